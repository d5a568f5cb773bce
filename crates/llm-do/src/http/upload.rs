//! The body of a request on its way out.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

/// Large enough to cost nothing, small enough to tell a slow line from a dead one.
const PIECE: usize = 64 * 1024;

/// Hands the bytes out in pieces, without copying, and tells when.
///
/// As small as can be: hyper keeps room for dozens of requests in each connection.
pub(super) struct Upload(Arc<Mutex<UploadState>>);

/// When the last piece was taken.
#[derive(Clone)]
pub(super) struct UploadProgress(Arc<Mutex<UploadState>>);

struct UploadState {
    rest: Bytes,
    last: Instant,
    /// Whether there is a connection that has taken something.
    begun: bool,
}

impl Upload {
    pub(super) fn new(body: Bytes) -> (Self, UploadProgress) {
        let sent = Arc::new(Mutex::new(UploadState { rest: body, last: Instant::now(), begun: false }));
        (Self(Arc::clone(&sent)), UploadProgress(sent))
    }
}

impl UploadProgress {
    pub(super) fn last(&self) -> Instant {
        lock(&self.0).last
    }

    /// Whether all of it was taken.
    pub(super) fn is_taken(&self) -> bool {
        lock(&self.0).rest.is_empty()
    }

    pub(super) fn has_begun(&self) -> bool {
        lock(&self.0).begun
    }
}

/// Lets go of the bytes with the request, so that a lent body is given back as soon as it is no longer being sent.
impl Drop for Upload {
    fn drop(&mut self) {
        lock(&self.0).rest = Bytes::new();
    }
}

fn lock(sent: &Mutex<UploadState>) -> MutexGuard<'_, UploadState> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut sent = lock(&self.0);
        if sent.rest.is_empty() {
            return Poll::Ready(None);
        }
        sent.last = Instant::now();
        sent.begun = true;
        let length = sent.rest.len().min(PIECE);
        let piece = sent.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).rest.is_empty()
    }

    // Known, so that the request has a content-length: not every server takes chunks.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(lock(&self.0).rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    fn next_piece(upload: &mut Upload) -> Option<Bytes> {
        let Poll::Ready(frame) = Pin::new(upload).poll_frame(&mut Context::from_waker(Waker::noop())) else {
            panic!("all of it is here already");
        };
        frame.map(|Ok(frame)| frame.into_data().unwrap())
    }

    #[test]
    fn a_long_body_goes_out_in_pieces_that_are_not_copies() {
        let mut lender = Arc::new(vec![7; 2 * PIECE + 1]);
        let start = lender.as_ptr();
        let (mut upload, progress) = Upload::new(Bytes::from_owner(Lent(Arc::clone(&lender))));
        assert_eq!(upload.size_hint().exact(), Some(2 * PIECE as u64 + 1));
        for (offset, length) in [(0, PIECE), (PIECE, PIECE), (2 * PIECE, 1)] {
            let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
            lock(&progress.0).last = long_ago;
            let piece = next_piece(&mut upload).unwrap();
            assert_eq!((piece.as_ptr(), piece.len()), (start.wrapping_add(offset), length));
            assert!(progress.last() > long_ago);
        }
        assert!(upload.is_end_stream() && next_piece(&mut upload).is_none());
        assert!(Arc::get_mut(&mut lender).is_some(), "given back with its last piece");
    }

    #[test]
    fn a_body_that_is_no_longer_sent_is_given_back_though_its_progress_is_watched() {
        let mut lender = Arc::new(vec![7; PIECE + 1]);
        let (mut upload, _progress) = Upload::new(Bytes::from_owner(Lent(Arc::clone(&lender))));
        drop(next_piece(&mut upload));
        assert!(Arc::get_mut(&mut lender).is_none());
        drop(upload);
        assert!(Arc::get_mut(&mut lender).is_some());
    }

    struct Lent(Arc<Vec<u8>>);

    impl AsRef<[u8]> for Lent {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
}
