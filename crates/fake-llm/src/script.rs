//! What the server shall do: replies, and the faults that befall them.

use std::fmt;
use std::time::Duration;

use crate::fault::{InjectedFault, On};
use crate::history::ForeignHistory;
use crate::reply::FakeReply;
use crate::seen::SeenRequest;

/// Replies in order, replies by what was said, and faults.
///
/// A request is answered by the first rule ([`FakeScript::when`], [`FakeScript::answer`]) that applies to it, else by
/// the next reply in order, else by the one for all others ([`FakeScript::otherwise`]). A reply in order that a fault
/// keeps from its client stays the next one, so that a retry gets it. Requests that a provider would refuse are refused
/// and use up nothing.
pub struct FakeScript {
    pub(crate) replies: Vec<FakeReply>,
    pub(crate) rules: Vec<ReplyRule>,
    pub(crate) otherwise: Option<FakeReply>,
    pub(crate) faults: Vec<(On, InjectedFault)>,
    pub(crate) foreign_history: ForeignHistory,
    pub(crate) keys: ApiKeyRequirement,
    pub(crate) latency: Latency,
}

/// How long the provider takes for the request with this number.
pub(crate) type Latency = Box<dyn Fn(usize) -> Duration + Send + Sync>;

pub(crate) type ReplyRule = Box<dyn Fn(&SeenRequest) -> Option<FakeReply> + Send + Sync>;

/// Whether a request needs an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiKeyRequirement {
    Required,
    Optional,
}

impl FakeScript {
    #[expect(clippy::new_without_default, reason = "an empty script answers nothing: it is only a beginning")]
    pub fn new() -> Self {
        Self {
            replies: Vec::new(),
            rules: Vec::new(),
            otherwise: None,
            faults: Vec::new(),
            foreign_history: ForeignHistory::Refused,
            keys: ApiKeyRequirement::Required,
            latency: Box::new(|_| Duration::ZERO),
        }
    }

    /// The next reply in order.
    #[must_use]
    pub fn reply(mut self, reply: FakeReply) -> Self {
        self.replies.push(reply);
        self
    }

    /// The reply to every request of which `applies` is true.
    #[must_use]
    pub fn when(self, applies: impl Fn(&SeenRequest) -> bool + Send + Sync + 'static, reply: FakeReply) -> Self {
        self.answer(move |seen| applies(seen).then(|| reply.clone()))
    }

    /// Asks `answer` for the reply to each request; it may have none.
    #[must_use]
    pub fn answer(mut self, answer: impl Fn(&SeenRequest) -> Option<FakeReply> + Send + Sync + 'static) -> Self {
        self.rules.push(Box::new(answer));
        self
    }

    /// The reply to every request that nothing else answers.
    #[must_use]
    pub fn otherwise(mut self, reply: FakeReply) -> Self {
        self.otherwise = Some(reply);
        self
    }

    #[must_use]
    pub fn fault(mut self, on: On, fault: InjectedFault) -> Self {
        self.faults.push((on, fault));
        self
    }

    /// Histories may contain calls and thinking that this server never served: a resumed run, a change of models.
    #[must_use]
    pub fn accept_foreign_history(mut self) -> Self {
        self.foreign_history = ForeignHistory::Accepted;
        self
    }

    /// Waits before each answer for a random time up to this; the same seed always gives the same times.
    #[must_use]
    pub fn latency(mut self, most: Duration, seed: u64) -> Self {
        self.latency =
            Box::new(move |number| most.mul_f64(fastrand::Rng::with_seed(seed ^ ((number as u64) << 20)).f64()));
        self
    }

    /// Requests need no API key, as with local servers.
    #[must_use]
    pub fn accept_missing_key(mut self) -> Self {
        self.keys = ApiKeyRequirement::Optional;
        self
    }
}

impl fmt::Debug for FakeScript {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Script")
            .field("replies", &self.replies)
            .field("rules", &self.rules.len())
            .field("otherwise", &self.otherwise)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}
