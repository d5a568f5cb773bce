//! Counts the sendings of a request: each is allowed before it begins, and reported when it has ended. One request
//! may be sent several times, and each time may have to be paid.

use super::ModelError;
use crate::BoxFuture;
use crate::message::Usage;

/// The meter of one request. It lets the first sending through before the conversation is asked.
pub trait Meter: Send {
    /// The most tokens that the answer to the present sending may have; `None` leaves it to the settings.
    fn longest_answer(&self) -> Option<u64>;

    /// How far the present sending has come. The last word counts, also of a sending that is dropped.
    fn note(&mut self, taken: RequestProgress);

    /// The next piece of the answer's text has come.
    fn hear(&mut self, text: &str);

    /// The present sending gave no reply, and another one is wished for: it is settled. An error if a limit leaves no room
    /// for another, whatever is waited for.
    fn failed(&mut self, error: &ModelError) -> Result<(), SendingRefusal>;

    /// Waits until the same request may be sent again.
    fn again(&mut self) -> BoxFuture<'_, Result<(), SendingRefusal>>;
}

/// How far a sending has come, by what it may have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RequestProgress {
    /// The provider has heard nothing of it.
    #[default]
    Nothing,
    /// It is on its way, and there is no answer.
    Sent,
    /// The provider refused it before any byte of an answer: that is not paid.
    Refused,
    /// A part of an answer has come: what the provider has said of its cost so far, and how many bytes of text.
    Answer {
        /// What the provider has said of its cost so far.
        reported: Usage,
        /// How many bytes of text have come.
        text: u64,
    },
}

/// A limit does not allow another sending. The meter knows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendingRefusal;

/// Counts nothing and allows everything.
#[cfg(any(test, feature = "internals"))]
#[derive(Clone, Copy, Debug)]
pub struct UnlimitedMeter;

#[cfg(any(test, feature = "internals"))]
impl Meter for UnlimitedMeter {
    fn longest_answer(&self) -> Option<u64> {
        None
    }

    fn note(&mut self, _: RequestProgress) {}

    fn hear(&mut self, _: &str) {}

    fn failed(&mut self, _: &ModelError) -> Result<(), SendingRefusal> {
        Ok(())
    }

    fn again(&mut self) -> BoxFuture<'_, Result<(), SendingRefusal>> {
        Box::pin(async { Ok(()) })
    }
}
