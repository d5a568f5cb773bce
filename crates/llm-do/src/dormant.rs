//! A future beside another one that wakes often: it is polled only when something has happened to it.
//!
//! A turn is polled whenever a piece of an answer has come, thousands of times, and whether it was cancelled would be asked
//! each time. This looks only at whether its future was woken.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Waits for a future without polling it each time that the task around it is woken.
pub(crate) async fn dormant<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut alarm = None;
    std::future::poll_fn(move |cx| poll(future.as_mut(), &mut alarm, cx)).await
}

/// What the future wakes.
struct Alarm {
    has_rung: AtomicBool,
    task: Waker,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

fn poll<T>(
    future: Pin<&mut impl Future<Output = T>>,
    alarm: &mut Option<(Arc<Alarm>, Waker)>,
    cx: &mut Context<'_>,
) -> Poll<T> {
    // A future may move to another task, which its alarm does not wake.
    let known = alarm.take_if(|(alarm, _)| alarm.task.will_wake(cx.waker()));
    let (alarm, waker) = alarm.insert(known.unwrap_or_else(|| {
        let new = Arc::new(Alarm { has_rung: AtomicBool::new(true), task: cx.waker().clone() });
        (Arc::clone(&new), Waker::from(new))
    }));
    if alarm.has_rung.swap(false, Ordering::AcqRel) {
        future.poll(&mut Context::from_waker(waker))
    } else {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn it_is_polled_when_it_is_woken_or_moved_and_never_else() {
        let (token, polls) = (CancellationToken::new(), AtomicUsize::new(0));
        let mut cancelled = pin!(token.cancelled());
        let counted = std::future::poll_fn(|cx| {
            polls.fetch_add(1, Ordering::SeqCst);
            cancelled.as_mut().poll(cx)
        });
        let mut waiting = pin!(dormant(counted));
        let [first, second] = [Arc::new(Task::default()), Arc::new(Task::default())];
        let [first_waker, second_waker] = [Waker::from(Arc::clone(&first)), Waker::from(Arc::clone(&second))];
        let mut poll = |waker: &Waker| waiting.as_mut().poll(&mut Context::from_waker(waker));
        for _ in 0..3 {
            assert!(poll(&first_waker).is_pending());
        }
        assert_eq!(polls.load(Ordering::SeqCst), 1, "nothing has happened to it since");
        for _ in 0..3 {
            assert!(poll(&second_waker).is_pending());
        }
        assert_eq!(polls.load(Ordering::SeqCst), 2, "another task must be woken now");
        token.cancel();
        assert_eq!((first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst)), (0, 1));
        assert!(poll(&second_waker).is_ready());
    }
}
