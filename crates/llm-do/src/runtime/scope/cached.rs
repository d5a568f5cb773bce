//! Requests of an agent whose replies count again.

use std::sync::Arc;

use super::CallScope;
use crate::event::{EventKind, Events};
use crate::journal::call::RecordedReply;
use crate::journal::parts::PartNames;
use crate::message::{Message, Reply};
use crate::replies::{KnownReply, MessageIdentity, ReplyCache, RequestIdentity};

/// The replies that are kept for one call, and what was asked in it.
pub(super) struct CallCache {
    replies: Arc<dyn ReplyCache>,
    parts: PartNames,
    /// What was said, as far as a request has sent it.
    said: Vec<MessageIdentity>,
    /// What was replied in the turn that is going on. It is kept when the turn comes to its answer: nobody is to be given a
    /// conversation again that led nowhere.
    replied: Vec<(RequestIdentity, RecordedReply)>,
}

impl CallCache {
    pub(super) fn new(replies: Arc<dyn ReplyCache>, parts: PartNames) -> Self {
        Self { replies, parts, said: Vec::new(), replied: Vec::new() }
    }

    /// Forgets all messages but the first ones.
    pub(super) fn rewind(&mut self, messages: usize) {
        self.said.truncate(messages);
    }

    /// What a request is that sends this.
    fn request(&mut self, agent: &str, model: &str, history: &[Message]) -> RequestIdentity {
        let known = self.said.len();
        let new =
            history.iter().enumerate().skip(known).map(|(position, message)| MessageIdentity::of(message, position));
        self.said.extend(new);
        let (agent, model) = (agent.to_owned(), model.to_owned());
        RequestIdentity { agent, model, parts: self.parts.clone(), said: self.said.clone() }
    }
}

/// A request whose reply may be known.
pub(super) struct CachedRequest {
    replies: Arc<dyn ReplyCache>,
    asked: RequestIdentity,
}

impl CachedRequest {
    /// What was replied to it before. It is told of as what it is: nobody was asked.
    pub(super) fn known(&self, events: &Events) -> Option<RecordedReply> {
        match self.replies.find(&self.asked) {
            KnownReply::Is(reply) => {
                let Reply { model, usage, .. } = &reply.0;
                events.send(|| EventKind::CacheHit { model: model.clone(), saved: *usage });
                Some(*reply)
            }
            KnownReply::Unknown(why) => {
                if let Some(text) = why {
                    events.send(|| EventKind::Notice { text });
                }
                None
            }
        }
    }
}

impl CallScope<'_> {
    /// The request that comes next, if its reply may be known. Of one that leaves out what was said before, it is not.
    pub(super) fn cached_request(&mut self) -> Option<CachedRequest> {
        let cache = self.cache.as_mut().filter(|_| !self.room.leaves_out())?;
        let asked = cache.request(&self.agent.name, &self.model, &self.frame.history);
        Some(CachedRequest { replies: Arc::clone(&cache.replies), asked })
    }

    /// A reply of the turn that is going on.
    pub(super) fn note_reply(&mut self, request: CachedRequest, reply: &RecordedReply) {
        if let Some(cache) = &mut self.cache {
            // A request that was repeated word for word has the reply that counts.
            cache.replied.retain(|(asked, _)| *asked != request.asked);
            cache.replied.push((request.asked, reply.clone()));
        }
    }

    /// At the end of a turn: its replies count again if it came to an answer.
    pub(super) fn keep_replies(&mut self, is_answered: bool) {
        let Some(cache) = &mut self.cache else { return };
        for (asked, reply) in std::mem::take(&mut cache.replied) {
            if is_answered {
                cache.replies.keep(&asked, &reply);
            }
        }
    }
}
