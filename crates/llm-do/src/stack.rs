//! Calls within calls within calls are polled on one stack, however deep: it grows where it would overflow, so that how
//! deep they go is for limits to say.

use crate::BoxFuture;

/// What one level takes, with room to spare.
const RED_ZONE: usize = 256 * 1024;
const MORE: usize = 2 * 1024 * 1024;
/// What a thousand levels take. The system gives memory to those pages only that are touched.
#[cfg(feature = "front-end")]
const ROOM: usize = 64 * 1024 * 1024;

/// Runs an executor on a stack with room for calls within calls. They also work without it, but then the stack grows
/// whenever something deep is polled and is given back at once, which costs more time than the calls themselves.
#[cfg(feature = "front-end")]
pub fn with_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::grow(ROOM, work)
}

/// Runs something that may be deep within itself.
pub(crate) fn grown<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(RED_ZONE, MORE, work)
}

/// A future that is polled, and dropped, on enough stack.
pub(crate) async fn on_enough<T>(future: BoxFuture<'_, T>) -> T {
    let mut future = Growing(Some(future));
    std::future::poll_fn(|cx| {
        grown(|| match &mut future.0 {
            Some(future) => future.as_mut().poll(cx),
            None => std::task::Poll::Pending,
        })
    })
    .await
}

/// Drops a future on enough stack: a caller that gives up a call drops all that it waits for, one within the other.
struct Growing<'a, T>(Option<BoxFuture<'a, T>>);

impl<T> Drop for Growing<'_, T> {
    fn drop(&mut self) {
        grown(|| drop(self.0.take()));
    }
}
