//! What all providers demand of a conversation: calls and results belong together, and what the model said comes
//! back as it was said.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::protocol::{Dialect, Findings};
use crate::reply::{Block, FakeReply};
use crate::seen::{Role, SeenMessage, SeenPart, SeenRequest, SeenTool};

const LONGEST_TOOL_NAME: usize = 64;

/// Whether histories may contain what this server never said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignHistory {
    Refused,
    Accepted,
}

/// What was served so far.
#[derive(Debug, Default)]
pub(crate) struct ServedHistory {
    calls: HashMap<String, ServedCall>,
    /// The thoughts of each reply that must come back while its tool loop is open.
    owed_thoughts: Vec<Vec<SeenPart>>,
    thoughts: Vec<SeenPart>,
    native_blocks: Vec<Value>,
}

#[derive(Debug)]
struct ServedCall {
    name: String,
    /// None when the arguments were no JSON object: then a client may return what it made of them.
    arguments: Option<Value>,
    reply: usize,
}

impl ServedHistory {
    pub fn record(&mut self, reply: &FakeReply, dialect: &dyn Dialect) {
        let signs = dialect.wants_thinking_back();
        let mut thoughts = Vec::new();
        for block in &reply.blocks {
            match block {
                Block::Text(_) | Block::Refusal(_) => {}
                Block::Thinking { text, signature } => {
                    thoughts
                        .push(SeenPart::Thinking { text: text.clone(), signature: signs.then(|| signature.clone()) });
                }
                Block::RedactedThinking { payload } => {
                    thoughts.push(SeenPart::RedactedThinking { payload: payload.clone() });
                }
                Block::Native(block) => self.native_blocks.push(block.clone()),
                Block::Call(call) => {
                    let arguments = serde_json::from_str(&call.arguments).ok().filter(Value::is_object);
                    let reply = self.owed_thoughts.len();
                    let served = ServedCall { name: call.name.clone(), arguments, reply };
                    self.calls.insert(call.id.clone().unwrap_or_default(), served);
                }
            }
        }
        self.thoughts.extend(thoughts.iter().cloned());
        self.owed_thoughts.push(if signs { thoughts } else { Vec::new() });
    }
}

/// Notes everything about the conversation in `seen` that a provider would refuse.
pub(crate) fn check(seen: &SeenRequest, ledger: &ServedHistory, foreign: ForeignHistory, findings: &mut Findings) {
    check_tools(&seen.tools, findings);
    check_answers(&seen.messages, findings);
    match foreign {
        ForeignHistory::Accepted => {}
        ForeignHistory::Refused => check_served(&seen.messages, ledger, findings),
    }
    check_owed_thoughts(&seen.messages, ledger, findings);
}

fn check_tools(tools: &[SeenTool], findings: &mut Findings) {
    let mut names = HashSet::new();
    for tool in tools {
        let name = &tool.name;
        let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if name.is_empty() || name.len() > LONGEST_TOOL_NAME || !is_word {
            findings.refuse(format!("tool name {name:?} does not match ^[a-zA-Z0-9_-]{{1,64}}$"));
        }
        if !names.insert(name) {
            findings.refuse(format!("tool names must be unique: {name:?}"));
        }
        let is_object_schema = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "object");
        if tool.schema.as_ref().is_some_and(|schema| !is_object_schema(schema)) {
            findings.refuse(format!("the schema of tool {name:?} must be of type object"));
        }
    }
}

/// Every call is answered exactly once, right after it, by its id.
fn check_answers(messages: &[SeenMessage], findings: &mut Findings) {
    let mut called = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        for (id, _) in message.results() {
            if let Some(at) = open.iter().position(|waiting| *waiting == id) {
                open.remove(at);
            } else if called.contains(id) {
                findings.refuse(format!("tool result for {id:?} is given twice or not right after its call"));
            } else {
                findings.refuse(format!("tool result for {id:?}, which no call before it has as its id"));
            }
        }
        match message.role {
            Role::Tool => {}
            Role::User | Role::Assistant => refuse_unanswered(open.drain(..), findings),
        }
        for (id, ..) in message.calls() {
            if !called.insert(id) {
                findings.refuse(format!("tool call ids must be unique: {id:?}"));
            }
            open.push(id);
        }
    }
    refuse_unanswered(open.drain(..), findings);
}

fn refuse_unanswered<'a>(open: impl Iterator<Item = &'a str>, findings: &mut Findings) {
    for id in open {
        findings.refuse(format!("tool call {id:?} has no result right after it"));
    }
}

/// Checks that what the history attributes to the model was really served.
fn check_served(messages: &[SeenMessage], ledger: &ServedHistory, findings: &mut Findings) {
    for part in messages.iter().filter(|message| message.role == Role::Assistant).flat_map(|message| &message.parts) {
        match part {
            SeenPart::Text(_) | SeenPart::Result { .. } => {}
            SeenPart::Call { id, name, arguments } => check_served_call(id, name, arguments, ledger, findings),
            SeenPart::Thinking { signature, .. } => check_served_thought(part, signature.as_deref(), ledger, findings),
            SeenPart::RedactedThinking { .. } => check_served_thought(part, None, ledger, findings),
            SeenPart::Other(block) => {
                if !ledger.native_blocks.contains(block) {
                    findings.refuse("a block in the history was modified or never served");
                }
            }
        }
    }
}

fn check_served_call(id: &str, name: &str, arguments: &Value, ledger: &ServedHistory, findings: &mut Findings) {
    match ledger.calls.get(id) {
        None => findings.refuse(format!("tool call {id:?} in the history was never served")),
        Some(served) => {
            let same_arguments = served.arguments.as_ref().is_none_or(|expected| expected == arguments);
            if served.name != name || !same_arguments {
                findings.refuse(format!("tool call {id:?} in the history is not the one that was served"));
            }
        }
    }
}

fn check_served_thought(thought: &SeenPart, signature: Option<&str>, ledger: &ServedHistory, findings: &mut Findings) {
    if ledger.thoughts.contains(thought) {
        return;
    }
    let is_signed_alike = |served: &SeenPart| matches!(served, SeenPart::Thinking { signature: Some(known), .. } if Some(known.as_str()) == signature);
    if ledger.thoughts.iter().any(is_signed_alike) {
        findings.refuse("thinking blocks cannot be modified");
    } else {
        findings.refuse("invalid signature in a thinking block, or thinking that was never served");
    }
}

/// While a tool loop is open, the thinking of its replies comes back with their calls.
fn check_owed_thoughts(messages: &[SeenMessage], ledger: &ServedHistory, findings: &mut Findings) {
    let asked = messages.iter().rposition(|message| message.role == Role::User && message.results().next().is_none());
    for message in messages.iter().skip(asked.map_or(0, |at| at + 1)) {
        let replies: HashSet<usize> =
            message.calls().filter_map(|(id, ..)| Some(ledger.calls.get(id)?.reply)).collect();
        let owed = replies.into_iter().flat_map(|reply| &ledger.owed_thoughts[reply]);
        if owed.into_iter().any(|thought| !message.parts.contains(thought)) {
            findings.refuse("the thinking before these tool calls must be returned while the tool loop is open");
        }
        let first_call = message.parts.iter().position(|part| matches!(part, SeenPart::Call { .. }));
        let last_thought = message.parts.iter().rposition(|part| {
            matches!(part, SeenPart::Thinking { signature: Some(_), .. } | SeenPart::RedactedThinking { .. })
        });
        if let (Some(call), Some(thought)) = (first_call, last_thought)
            && call < thought
        {
            findings.refuse("thinking must come before the tool calls of its reply");
        }
    }
}
