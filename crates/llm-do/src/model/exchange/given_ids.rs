//! Ids of calls, each given once in a conversation: results find their calls by them, and providers refuse a second one.

use std::collections::HashSet;

use crate::message::{Message, Reply, ReplyPart};

/// The ids of a conversation so far.
#[derive(Default)]
pub(crate) struct GivenIds {
    messages: usize,
    ids: HashSet<String>,
}

impl GivenIds {
    /// Takes note of what was said since the last time.
    pub(crate) fn read(&mut self, history: &[Message]) {
        for message in history.iter().skip(self.messages) {
            match message {
                Message::Assistant(reply) => self.ids.extend(reply.tool_calls().map(|call| call.id.clone())),
                Message::User(_) | Message::Tool(_) => {}
            }
        }
        self.messages = history.len();
    }

    /// Forgets all ids, for a history that was rewound.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Calls whose id was given before get one of their own.
    pub(crate) fn make_unique(&self, reply: &mut Reply) {
        let mut given = HashSet::new();
        let calls = reply.parts.iter_mut().filter_map(|part| match part {
            ReplyPart::ToolCall(call) => Some(call),
            ReplyPart::Text(_) | ReplyPart::Thinking(_) | ReplyPart::ServerTool(_) | ReplyPart::Refusal(_) => None,
        });
        for call in calls {
            let is_free = |id: &String| !self.ids.contains(id) && !given.contains(id);
            if !is_free(&call.id) {
                let candidates = (0..).map(|number| format!("call_{}_again_{number}", self.messages));
                call.id = candidates.into_iter().find(is_free).unwrap_or_default();
            }
            given.insert(call.id.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Arguments, Finish, ToolCall, Usage};

    fn reply(ids: &[&str]) -> Reply {
        let call = |id: &&str| {
            let arguments = Arguments::parse(String::new());
            ReplyPart::ToolCall(ToolCall { id: (*id).to_owned(), tool: "t".into(), arguments, private: None })
        };
        let (finish, usage) = (Finish::ToolCalls, Usage::default());
        Reply { parts: ids.iter().map(call).collect(), model: "a:b".into(), finish, finish_reason: None, usage }
    }

    #[test]
    fn every_call_of_a_conversation_has_an_id_of_its_own() {
        let mut given = GivenIds::default();
        let mut history = vec![Message::user("x"), Message::Assistant(reply(&["a", "b"]))];
        given.read(&history);
        let mut next = reply(&["a", "c", "c", "d"]);
        given.make_unique(&mut next);
        let ids = |reply: &Reply| reply.tool_calls().map(|call| call.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&next), ["call_2_again_0", "c", "call_2_again_1", "d"]);
        history.push(Message::Assistant(next));
        given.read(&history);
        let mut last = reply(&["call_2_again_0", "e"]);
        given.make_unique(&mut last);
        assert_eq!(ids(&last), ["call_3_again_0", "e"]);
        given.forget();
        let mut first = reply(&["a"]);
        given.make_unique(&mut first);
        assert_eq!(ids(&first), ["a"]);
    }
}
