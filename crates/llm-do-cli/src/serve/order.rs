//! Keeps the order: the client is asked something only after it was told the events that led to it.

use tokio::sync::{mpsc, oneshot};

/// Held by the code that asks the client something.
#[derive(Clone, Debug)]
pub struct EventBarrier(mpsc::UnboundedSender<oneshot::Sender<()>>);

/// Held by the task that tells the client the events. Each sender in it belongs to a question that waits until all
/// events before it were told.
pub type EventBarrierRequests = mpsc::UnboundedReceiver<oneshot::Sender<()>>;

impl EventBarrier {
    pub fn new() -> (Self, EventBarrierRequests) {
        let (sender, waiting) = mpsc::unbounded_channel();
        (Self(sender), waiting)
    }

    /// Returns when every event that has happened so far was told.
    pub async fn told(&self) {
        let (sender, told) = oneshot::channel();
        if self.0.send(sender).is_ok() {
            // The task that tells events may have ended: then nothing more is told, and there is nothing to wait for.
            let _ = told.await;
        }
    }
}
