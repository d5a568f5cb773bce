//! Replies that count again. A request is named by all that it is made of; whoever keeps replies stands behind a port.
//!
//! Each request of an agent is looked up on its own, and its tools run every time: so what they gave is part of what the next
//! request is named by, and an answer counts again only if all that the agent read is what it was.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::journal::call::RecordedReply;
#[cfg(feature = "front-end")]
use crate::journal::digest::digest;
use crate::journal::digest::of_bytes;
use crate::journal::parts::PartNames;
use crate::message::{Message, write_identity};

/// What a request is made of, each by its digest. With the same, the same reply counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestIdentity {
    /// Who asks.
    pub agent: String,
    /// Who is asked, as `provider:model`.
    pub model: String,
    /// The instructions, the tools, the schema of the answer and the settings.
    pub parts: PartNames,
    /// What was said until then, message by message.
    pub said: Vec<MessageIdentity>,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageIdentity {
    /// What it is, for people: `the input`, `a reply`, `the result of read_file`.
    pub what: String,
    /// What it is named by.
    pub digest: String,
}

impl MessageIdentity {
    pub(crate) fn of(message: &Message, position: usize) -> Self {
        let what = match message {
            Message::User(_) if position == 0 => "the input".to_owned(),
            Message::User(_) => "what was said to it".to_owned(),
            Message::Assistant(_) => "a reply".to_owned(),
            Message::Tool(results) => {
                let tools: BTreeSet<&str> = results.parts.iter().map(|result| result.tool.as_str()).collect();
                let tools: Vec<&str> = tools.into_iter().collect();
                format!("the result of {}", tools.join(", "))
            }
        };
        let mut identity = Vec::new();
        write_identity(message, &mut identity);
        Self { what, digest: of_bytes(&identity) }
    }
}

#[cfg(feature = "front-end")]
impl RequestIdentity {
    /// What stands for all of it.
    pub fn key(&self) -> String {
        let PartNames { instructions, tools, output, settings } = &self.parts;
        let parts = [&self.agent, &self.model, instructions, tools, settings, output.as_deref().unwrap_or_default()];
        let said = self.said.iter().map(|message| message.digest.as_str());
        digest(["reply 1"].into_iter().chain(parts.map(|part| part as &str)).chain(said))
    }

    /// What is another than there, in words, the first message only: those behind it follow from it.
    pub fn changes_since(&self, other: &Self) -> Vec<String> {
        let named = [
            ("the model", self.model != other.model),
            ("the instructions", self.parts.instructions != other.parts.instructions),
            ("the tools", self.parts.tools != other.parts.tools),
            ("the schema of the answer", self.parts.output != other.parts.output),
            // The model stands among the settings.
            ("the settings", self.parts.settings != other.parts.settings && self.model == other.model),
        ];
        let said = self.said.iter().zip(&other.said).find(|(here, there)| here.digest != there.digest);
        let first = said.map(|(here, _)| here.what.clone());
        let is_longer = self.said.len() != other.said.len() && first.is_none();
        let length = is_longer.then(|| "how much was said".to_owned());
        named
            .into_iter()
            .filter(|(_, is_other)| *is_other)
            .map(|(name, _)| name.to_owned())
            .chain(first.or(length))
            .collect()
    }
}

/// What is known of a request.
#[derive(Debug)]
#[cfg_attr(not(feature = "front-end"), expect(dead_code, reason = "whoever keeps replies is a part of that feature"))]
pub enum KnownReply {
    /// This was replied.
    Is(Box<RecordedReply>),
    /// Nothing; and what is told of that, if somebody wants to know why.
    Unknown(Option<String>),
}

/// Where replies are kept.
pub trait ReplyCache: Send + Sync {
    /// What was replied to this request before.
    fn find(&self, asked: &RequestIdentity) -> KnownReply;
    /// Keeps the reply to a request. What cannot be kept is asked again.
    fn keep(&self, asked: &RequestIdentity, reply: &RecordedReply);
}

/// Replies that count again, and for whom.
#[derive(Clone)]
pub struct ReplyCaching {
    replies: Arc<dyn ReplyCache>,
    agents: Arc<BTreeSet<String>>,
}

impl fmt::Debug for ReplyCaching {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReplyCaching").field("agents", &self.agents).finish_non_exhaustive()
    }
}

impl ReplyCaching {
    /// For the agents of these names.
    #[cfg(feature = "front-end")]
    pub fn of(replies: Arc<dyn ReplyCache>, agents: impl IntoIterator<Item = String>) -> Self {
        Self { replies, agents: Arc::new(agents.into_iter().collect()) }
    }

    /// Where the replies to this agent are kept, if they are.
    pub(crate) fn for_agent(&self, agent: &str) -> Option<&Arc<dyn ReplyCache>> {
        self.agents.contains(agent).then_some(&self.replies)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::journal::parts::RequestParts;
    use crate::message::{Content, RawJson, ToolResult, UserMessage};

    /// What a request is made of, before it is named.
    #[derive(Clone, Debug, PartialEq)]
    struct Asked {
        agent: String,
        model: String,
        instructions: String,
        tools: Vec<(String, String, String)>,
        schema: Option<String>,
        settings: BTreeMap<String, u64>,
        messages: Vec<Message>,
    }

    impl Asked {
        fn of(texts: &[String; 4], number: u64) -> Self {
            let [first, second, third, fourth] = texts.clone();
            let input =
                vec![Content::text(fourth.clone()), Content::Value { json: RawJson::of(&third).get().to_owned() }];
            let read = Ok(vec![Content::text(second.clone())]);
            let result = ToolResult { id: "1".into(), tool: "read_file".into(), outcome: read };
            Self {
                agent: "triage".into(),
                model: "anthropic:m".into(),
                instructions: first.clone(),
                tools: vec![("read_file".into(), second, third), ("list_files".into(), String::new(), "{}".into())],
                schema: Some(fourth),
                settings: BTreeMap::from([("temperature".to_owned(), number)]),
                messages: vec![
                    Message::User(UserMessage { parts: input }),
                    Message::user(first),
                    Message::tool_results(vec![result]),
                ],
            }
        }

        fn identity(&self) -> RequestIdentity {
            let schema = self.schema.as_ref().map(RawJson::of);
            let parts = RequestParts::of(&self.instructions, &self.tools, schema.as_ref(), &self.settings).names();
            let said = self.messages.iter().enumerate();
            let said = said.map(|(position, message)| MessageIdentity::of(message, position)).collect();
            RequestIdentity { agent: self.agent.clone(), model: self.model.clone(), parts, said }
        }

        fn input(&mut self) -> &mut Vec<Content> {
            let Message::User(message) = &mut self.messages[0] else { unreachable!("it is the input") };
            &mut message.parts
        }
    }

    type Edit = fn(&mut Asked, &str, usize);

    /// Each changes one thing, in whatever way the text and the number say.
    const EDITS: [(&str, Edit); 12] = [
        ("the agent", |asked, text, _| asked.agent.push_str(text)),
        ("the model", |asked, text, _| asked.model.push_str(text)),
        ("the instructions", |asked, text, at| insert(&mut asked.instructions, text, at)),
        ("the name of a tool", |asked, text, _| asked.tools[0].0.push_str(text)),
        ("the description of a tool", |asked, text, at| insert(&mut asked.tools[0].1, text, at)),
        ("the parameters of a tool", |asked, text, at| insert(&mut asked.tools[0].2, text, at)),
        ("one more tool", |asked, text, _| asked.tools.push((text.into(), String::new(), String::new()))),
        ("the schema", |asked, text, at| insert(asked.schema.get_or_insert_default(), text, at)),
        ("a setting", |asked, text, at| {
            asked.settings.insert(text.into(), at as u64);
        }),
        ("the input", |asked, text, at| {
            let Content::Text { text: input } = &mut asked.input()[0] else { unreachable!("a text") };
            insert(input, text, at);
        }),
        ("one more part of the input", |asked, text, _| asked.input().push(Content::text(text))),
        ("what was read", |asked, text, at| {
            let Message::Tool(results) = &mut asked.messages[2] else { unreachable!("results") };
            let Ok([Content::Text { text: read }]) = results.parts[0].outcome.as_deref_mut() else {
                unreachable!("one text")
            };
            insert(read, text, at);
        }),
    ];

    fn insert(text: &mut String, more: &str, at: usize) {
        let places: Vec<usize> = (0..=text.len()).filter(|place| text.is_char_boundary(*place)).collect();
        text.insert_str(places[at % places.len()], more);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1000))]

        /// Twelve kinds of edits: with any of them a request is another one than before and than with another of them, and
        /// without any it is the same.
        #[test]
        fn no_edit_leaves_a_request_what_it_was(
            texts: [String; 4], number: u64, more in "[a-z\"{}\\\\ é]{1,9}", at: usize,
        ) {
            let asked = Asked::of(&texts, number);
            let key = asked.identity().key();
            proptest::prop_assert_eq!(&key, &Asked::of(&texts, number).identity().key());
            let mut keys = BTreeMap::from([(key, asked.clone())]);
            for (name, edit) in EDITS {
                let mut edited = asked.clone();
                edit(&mut edited, &more, at);
                proptest::prop_assert_ne!(&edited, &asked, "{}", name);
                let changes = edited.identity().changes_since(&asked.identity());
                proptest::prop_assert_eq!(changes.is_empty(), name == "the agent", "{}: {:?}", name, changes);
                if let Some(other) = keys.insert(edited.identity().key(), edited.clone()) {
                    proptest::prop_assert_eq!(other, edited, "{}", name);
                }
            }
        }
    }
}
