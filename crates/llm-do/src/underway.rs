//! Futures that are under way together and may each hold such a set again, a thousand deep.
//!
//! `FuturesUnordered` wakes its task once more whenever it has polled all that it holds. One within the other that
//! adds up: each level makes all levels above it be polled again, for every single thing that happens. Here what is
//! woken while it is polled is polled again at once, and the levels above are not woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;

/// How often it is polled again at once, before others have their turn.
const MOST_POLLS: usize = 16;

/// Futures that are polled when they are woken, and no others.
pub(crate) struct Underway<F> {
    futures: FuturesUnordered<F>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// The waker of the futures. It wakes the task above, unless the set is being polled and looks at it anyway.
#[derive(Default)]
struct Bell {
    above: AtomicWaker,
    has_rung: AtomicBool,
    is_heard: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::SeqCst);
        if !self.is_heard.load(Ordering::SeqCst) {
            self.above.wake();
        }
    }
}

impl<F> Default for Underway<F> {
    fn default() -> Self {
        let bell = Arc::new(Bell::default());
        Self { futures: FuturesUnordered::new(), waker: Waker::from(Arc::clone(&bell)), bell }
    }
}

impl<F: Future> Underway<F> {
    pub(crate) fn is_empty(&self) -> bool {
        self.futures.is_empty()
    }

    pub(crate) fn push(&mut self, future: F) {
        self.futures.push(future);
    }

    /// The next one that is done. Without any it waits for ever: others may come.
    pub(crate) async fn next(&mut self) -> F::Output {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<F::Output> {
        if self.futures.is_empty() {
            return Poll::Pending;
        }
        self.bell.above.register(cx.waker());
        let polled = self.poll_while_rung();
        self.bell.is_heard.store(false, Ordering::SeqCst);
        // What was woken since the last look is left to the next poll, so the task above is woken.
        if polled.is_pending() && self.bell.has_rung.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        polled
    }

    fn poll_while_rung(&mut self) -> Poll<F::Output> {
        self.bell.is_heard.store(true, Ordering::SeqCst);
        for _ in 0..MOST_POLLS {
            self.bell.has_rung.store(false, Ordering::SeqCst);
            let polled = Pin::new(&mut self.futures).poll_next_unpin(&mut Context::from_waker(&self.waker));
            match polled {
                Poll::Ready(Some(output)) => return Poll::Ready(output),
                Poll::Ready(None) | Poll::Pending if !self.bell.has_rung.load(Ordering::SeqCst) => break,
                Poll::Ready(None) | Poll::Pending => {}
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::oneshot;

    use super::*;
    use crate::BoxFuture;

    /// A future that counts how often it is polled, on its way to what is innermost.
    fn counted(polls: Arc<AtomicUsize>, inner: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let mut inner = inner;
        Box::pin(std::future::poll_fn(move |cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            inner.as_mut().poll(cx)
        }))
    }

    #[tokio::test]
    async fn one_within_the_other_is_polled_once_for_each_thing_that_happens() {
        const LEVELS: usize = 200;
        let polls = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = oneshot::channel::<()>();
        let mut inner: BoxFuture<'static, ()> = Box::pin(async { receiver.await.unwrap() });
        for _ in 0..LEVELS {
            let mut underway = Underway::default();
            underway.push(inner);
            inner = counted(Arc::clone(&polls), Box::pin(async move { underway.next().await }));
        }
        let waiting = tokio::spawn(inner);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let before = polls.load(Ordering::Relaxed);
        sender.send(()).unwrap();
        waiting.await.unwrap();
        assert!(before <= 2 * LEVELS, "{before}");
        assert!(polls.load(Ordering::Relaxed) - before <= 2 * LEVELS, "{}", polls.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn whatever_wakes_from_another_thread_is_heard() {
        let (orders, waiting) = std::sync::mpsc::channel::<(oneshot::Sender<usize>, usize)>();
        let other =
            std::thread::spawn(move || waiting.into_iter().for_each(|(sender, round)| sender.send(round).unwrap()));
        for round in 0..2_000_usize {
            let mut underway = Underway::default();
            for _ in 0..3 {
                let (sender, receiver) = oneshot::channel();
                orders.send((sender, round)).unwrap();
                underway.push(receiver);
            }
            for _ in 0..3 {
                assert_eq!(underway.next().await, Ok(round));
            }
        }
        drop(orders);
        other.join().unwrap();
    }

    #[tokio::test]
    async fn one_that_yields_is_polled_on() {
        let mut underway = Underway::default();
        underway.push(async {
            for _ in 0..100 {
                let mut yielded = false;
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        });
        underway.next().await;
    }
}
