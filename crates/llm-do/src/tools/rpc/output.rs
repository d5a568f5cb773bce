//! What a child prints, told as events: within bounds, and by the call it belongs to if there is one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::event::{EventKind, Events, OutputStream};

/// What is printed after this much is counted, not shown.
const MOST_OUTPUT: usize = 16 * 1024 * 1024;

/// Tells what one child prints.
pub(crate) struct ChildOutput {
    /// The child, as people call it.
    whose: String,
    unclaimed: Mutex<UnclaimedOutput>,
    printed: AtomicUsize,
}

/// What was printed before there was a listener, or in no call.
#[derive(Default)]
struct UnclaimedOutput {
    events: Option<Events>,
    waiting: Vec<(OutputStream, String)>,
}

impl ChildOutput {
    /// What a child prints, of which nothing was printed yet; its name is used where output is cut.
    pub(crate) fn of(whose: impl Into<String>) -> Self {
        Self { whose: whose.into(), unclaimed: Mutex::default(), printed: AtomicUsize::new(0) }
    }

    /// From now on what is printed outside of calls is told to these; so is what was printed before.
    pub(crate) fn attach(&self, events: Events) {
        let mut unclaimed = self.unclaimed();
        for (stream, text) in std::mem::take(&mut unclaimed.waiting) {
            events.send(|| EventKind::ProcessOutput { stream, text });
        }
        unclaimed.events = Some(events);
    }

    /// Forgets the listener: the last sender of events must not live as long as the child.
    pub(crate) fn detach(&self) {
        self.unclaimed().events = None;
    }

    /// The listener for what is printed outside of calls.
    pub(crate) fn listener(&self) -> Option<Events> {
        self.unclaimed().events.clone()
    }

    /// Tells a piece of output to the listener of a call, else to the one outside of calls; without either it is kept
    /// for later.
    pub(crate) fn say(&self, within: Option<&Events>, stream: OutputStream, text: &str) {
        let before = self.printed.fetch_add(text.len(), Ordering::Relaxed);
        let text = match before {
            ..MOST_OUTPUT => text.to_owned(),
            _ if before.saturating_sub(text.len()) < MOST_OUTPUT => {
                format!("(what {} prints from here on is not shown)", self.whose)
            }
            _ => return,
        };
        let mut unclaimed = self.unclaimed();
        match within.or(unclaimed.events.as_ref()) {
            Some(events) => events.send(|| EventKind::ProcessOutput { stream, text }),
            None => unclaimed.waiting.push((stream, text)),
        }
    }

    fn unclaimed(&self) -> MutexGuard<'_, UnclaimedOutput> {
        self.unclaimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
