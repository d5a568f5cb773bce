//! What a client is asked comes after the events that led to it.

use tokio::sync::{mpsc, oneshot};

/// Held by whoever asks the client something.
#[derive(Clone, Debug)]
pub struct EventBarrier(mpsc::UnboundedSender<oneshot::Sender<()>>);

/// Held by whoever tells it the events: each of these waits until all that happened before was told.
pub type EventBarrierRequests = mpsc::UnboundedReceiver<oneshot::Sender<()>>;

impl EventBarrier {
    pub fn new() -> (Self, EventBarrierRequests) {
        let (sender, waiting) = mpsc::unbounded_channel();
        (Self(sender), waiting)
    }

    /// Returns when everything that has happened was told.
    pub async fn told(&self) {
        let (sender, told) = oneshot::channel();
        if self.0.send(sender).is_ok() {
            // Whoever tells may be gone: then nothing more is told.
            let _ = told.await;
        }
    }
}
