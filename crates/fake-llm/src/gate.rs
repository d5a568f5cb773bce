//! A gate in an answer: the server stops there until the test lets it pass or the client goes away.

use std::time::Duration;

use tokio::sync::watch;

/// A handle on a place where answers stop. Clones are the same gate.
///
/// The `wait_…` methods block their thread; inside an async test use [`StallGate::reached`] and [`StallGate::left`].
#[derive(Debug, Clone)]
pub struct StallGate(watch::Sender<StallGateState>);

#[derive(Debug, Default, Clone, Copy)]
struct StallGateState {
    open: bool,
    /// Answers that have come to the gate, ever.
    reached: usize,
    /// Answers whose client went away while they stood at the gate.
    left: usize,
}

impl Default for StallGate {
    fn default() -> Self {
        Self::new()
    }
}

impl StallGate {
    /// How long the blocking methods wait before they fail the test. It is only a bound: they return as soon as the
    /// answers or clients that they wait for are there.
    const PATIENCE: Duration = Duration::from_mins(3);

    /// A closed gate.
    pub fn new() -> Self {
        Self(watch::Sender::default())
    }

    /// Lets everything pass, now and later.
    pub fn release(&self) {
        self.0.send_modify(|passage| passage.open = true);
    }

    /// Resolves once `count` answers have come to the gate.
    pub async fn reached(&self, count: usize) {
        self.wait_for(|passage| passage.reached >= count).await;
    }

    /// Resolves once the clients of `count` answers have gone away while waiting here.
    pub async fn left(&self, count: usize) {
        self.wait_for(|passage| passage.left >= count).await;
    }

    pub fn wait_until_reached(&self, count: usize) {
        block_on(self.reached(count), &format!("{count} answers at the gate"));
    }

    pub fn wait_until_left(&self, count: usize) {
        block_on(self.left(count), &format!("{count} clients to go away"));
    }

    /// The server's side: waits here until the gate is released. If this is dropped before that, the client has left.
    pub(crate) async fn pass(self) {
        self.0.send_modify(|passage| passage.reached += 1);
        let mut departure = GateVisit { gate: &self, waiting: true };
        self.wait_for(|passage| passage.open).await;
        departure.waiting = false;
    }

    async fn wait_for(&self, condition: impl FnMut(&StallGateState) -> bool) {
        self.0.subscribe().wait_for(condition).await.expect("the sender lives in `self`");
    }
}

struct GateVisit<'a> {
    gate: &'a StallGate,
    waiting: bool,
}

impl Drop for GateVisit<'_> {
    fn drop(&mut self) {
        if self.waiting {
            self.gate.0.send_modify(|passage| passage.left += 1);
        }
    }
}

fn block_on(future: impl Future<Output = ()>, expected: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime needs no more");
    let waited = runtime.block_on(async { tokio::time::timeout(StallGate::PATIENCE, future).await });
    assert!(waited.is_ok(), "waited {:?} in vain for {expected}", StallGate::PATIENCE);
}
