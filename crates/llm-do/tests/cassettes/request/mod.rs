//! Recorded requests, read into our own terms: what a client said, whatever the protocol. Nothing of the encoders is
//! used here, so that what they write is judged by someone else.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use llm_do::message::{Attachment, Content, RawJson};
use llm_do::model::provider::ProtocolKind;
use llm_do::model::{ModelSettings, ServerTool, ServerToolKind, ToolDeclaration};
use serde_json::Value;

/// One recorded request.
#[derive(Default)]
pub struct Asked {
    pub model: String,
    pub instructions: String,
    pub tools: Vec<ToolDeclaration>,
    pub server_tools: Vec<ServerTool>,
    pub settings: ModelSettings,
    pub output: Option<RawJson>,
    pub stream: bool,
    pub turns: Vec<Turn>,
    /// What the recorded client asked for and a conversation here deliberately cannot, with the reason.
    pub inexpressible: BTreeSet<String>,
}

/// What the user, the model or tools said; neighbours of one kind are one.
pub enum Turn {
    User(Vec<Content>),
    Reply(Said),
    Results(Vec<Answered>),
}

/// A reply as the recorded client sent it back.
#[derive(Clone, Default)]
pub struct Said {
    pub text: String,
    pub calls: Vec<SaidCall>,
}

#[derive(Clone)]
pub struct SaidCall {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

pub struct Answered {
    /// Of the call.
    pub id: String,
    pub outcome: Result<Vec<Content>, String>,
}

impl Asked {
    pub fn read(kind: ProtocolKind, request: &Value) -> Self {
        match kind {
            ProtocolKind::Anthropic => anthropic::read(&request["body"]),
            ProtocolKind::OpenAiChat => chat::read(&request["body"]),
            ProtocolKind::OpenAiResponses => responses::read(&request["body"]),
            ProtocolKind::Gemini => gemini::read(request["path"].as_str().unwrap(), &request["body"]),
            ProtocolKind::Scripted => panic!("nothing is recorded where there is no wire"),
        }
    }

    fn instruct(&mut self, text: &str) {
        if !self.instructions.is_empty() && !text.is_empty() {
            self.instructions.push_str("\n\n");
        }
        self.instructions.push_str(text);
    }

    fn user_says(&mut self, mut content: Vec<Content>) {
        match self.turns.last_mut() {
            Some(Turn::User(parts)) => parts.append(&mut content),
            _ if content.is_empty() => {}
            _ => self.turns.push(Turn::User(content)),
        }
    }

    fn reply(&mut self) -> &mut Said {
        if !matches!(self.turns.last(), Some(Turn::Reply(_))) {
            self.turns.push(Turn::Reply(Said::default()));
        }
        match self.turns.last_mut() {
            Some(Turn::Reply(said)) => said,
            _ => unreachable!("it was pushed just now"),
        }
    }

    fn tool_answers(&mut self, answered: Answered) {
        match self.turns.last_mut() {
            Some(Turn::Results(results)) => results.push(answered),
            _ => self.turns.push(Turn::Results(vec![answered])),
        }
    }

    fn serve(&mut self, kind: ServerToolKind, tool: &Value) {
        let domains = |name: &str| texts(tool.pointer(&format!("/filters/{name}")).unwrap_or(&tool[name]));
        self.server_tools.push(ServerTool {
            kind,
            max_uses: tool["max_uses"].as_u64(),
            allowed_domains: domains("allowed_domains"),
            blocked_domains: domains("blocked_domains"),
        });
    }

    fn declare(&mut self, name: &Value, description: &Value, parameters: &Value) {
        let parameters = match parameters {
            Value::Null => RawJson::parse(r#"{"type":"object","properties":{}}"#).unwrap(),
            schema => RawJson::of(schema),
        };
        self.tools.push(ToolDeclaration {
            name: name.as_str().unwrap().to_owned(),
            description: description.as_str().unwrap_or_default().to_owned(),
            parameters,
        });
    }

    fn cannot(&mut self, what: impl std::fmt::Display, reason: &str) {
        self.inexpressible.insert(format!("{what}: {reason}"));
    }

    /// Fields that nothing was read from.
    fn leave(&mut self, body: &Value, read: &[&str]) {
        for (name, value) in body.as_object().into_iter().flatten() {
            let says_nothing = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            if !says_nothing && !read.contains(&name.as_str()) {
                self.cannot(format!("`{name}`"), reason_against(name));
            }
        }
    }
}

fn reason_against(field: &str) -> &'static str {
    match field {
        "mcp_servers" => "tools of others are connected here and pass our gate, not at the provider",
        "background" | "cachedContent" | "previous_response_id" | "store" => "no state is left at the provider",
        "prompt_cache_key" | "prompt_cache_options" => "caching is as the provider does it by itself",
        "provider" => "routing is left to the router",
        "safetySettings" => "the provider's filters stay as they are",
        "include" => "it is the protocol's own matter",
        "toolConfig" | "tool_choice" => "the model chooses its tools",
        _ => "there is no such setting",
    }
}

/// One kind of thing that only some providers take.
const BY_ADDRESS: &str = "files travel with the message, not as an address";
const NO_SUCH_TOOL: &str = "no such tool of the provider is offered";
const NO_SUCH_CONTENT: &str = "there is no such content";

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().map(|value| value.as_str().unwrap().to_owned()).collect(),
        _ => Vec::new(),
    }
}

fn attachment(name: &Value, media_type: &str, base64: &str) -> Content {
    let data = STANDARD.decode(base64).or_else(|_| URL_SAFE.decode(base64)).unwrap();
    let name = name.as_str().map_or_else(|| format!("file.{}", media_type.rsplit('/').next().unwrap()), str::to_owned);
    Content::Attachment(Attachment { name, path: None, media_type: media_type.to_owned(), data: Arc::from(data) })
}

/// A `data:` URL, if it is one.
fn data_url(name: &Value, url: &str) -> Option<Content> {
    let (media_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some(attachment(name, media_type, data))
}

/// Stands for what cannot be said here.
fn placeholder(what: &str) -> Content {
    Content::text(format!("[{what}]"))
}
