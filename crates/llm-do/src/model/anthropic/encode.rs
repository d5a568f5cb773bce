//! Conversation → request body.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;

use crate::message::{
    Attachment, Content, Message, RawJson, Reply, ReplyPart, TextPart, ThinkingPart, ToolCall, ToolMessage, ToolResult,
    UserMessage,
};
use crate::model::body::{Body, Fields};
use crate::model::call_ids::CallIds;
use crate::model::content::{Base64, Required, Shown, arguments_object, is_strict, shown, with_schema};
use crate::model::protocol::{CallIdForm, Encoder};
use crate::model::{Effort, Head, ModelSettings, ServerTool, ServerToolKind, Thinking, ToolDeclaration};

// The moving breakpoint: the provider caches up to the last block that it can.
const TAIL: &str = r#""cache_control":{"type":"ephemeral"}"#;

/// What thinking may take where a model wants a number and none was given.
const THINKING_BUDGET: u64 = 10_000;

pub struct MessagesEncoder {
    body: Body,
    provider: String,
    call_ids: CallIds,
}

impl MessagesEncoder {
    pub fn new(head: &Head) -> Self {
        let body = opening(head).open_array("messages");
        Self { body, provider: head.model.provider.clone(), call_ids: CallIds::new(CallIdForm::Word) }
    }

    fn adopt_foreign_ids(&mut self, reply: &Reply) {
        if !reply.is_from(&self.provider) {
            reply.tool_calls().for_each(|call| self.call_ids.adopt(&call.id));
        }
    }
}

impl Encoder for MessagesEncoder {
    fn push(&mut self, message: &Message) {
        if let Message::Assistant(reply) = message {
            self.adopt_foreign_ids(reply);
        }
        let call_ids = &self.call_ids;
        let (role, content) = match message {
            Message::User(message) => ("user", user_blocks(message)),
            Message::Assistant(reply) => ("assistant", reply_blocks(reply, reply.is_from(&self.provider), call_ids)),
            Message::Tool(message) => ("user", result_blocks(message, call_ids)),
        };
        // A message without content is refused; neighbours of the same role are not.
        self.body.push(|elements| {
            if !content.is_empty() {
                elements.add(&WireMessage { role, content });
            }
        });
    }

    fn messages(&self) -> usize {
        self.body.messages()
    }

    fn truncate(&mut self, messages: usize) {
        self.body.truncate(messages);
    }

    fn body(&mut self) -> Bytes {
        self.body.lend(TAIL)
    }
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Block<'a> {
    /// As it came from here.
    Own(&'a RawJson),
    New(NewBlock<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum NewBlock<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        title: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Cow<'a, RawJson>,
        #[serde(skip_serializing_if = "Option::is_none")]
        caller: Option<&'a RawJson>,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<Block<'a>>,
        is_error: bool,
    },
}

#[derive(Serialize)]
struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: Base64<'a>,
}

impl<'a> Source<'a> {
    fn of(file: &'a Attachment) -> Self {
        Self { r#type: "base64", media_type: &file.media_type, data: Base64(&file.data) }
    }
}

fn text_block(text: &str) -> Block<'_> {
    Block::New(NewBlock::Text { text: text.into() })
}

fn content_block(content: &Content) -> Block<'_> {
    Block::New(match shown(content) {
        Shown::Text(text) => NewBlock::Text { text },
        Shown::Image(file) => NewBlock::Image { source: Source::of(file) },
        Shown::Pdf(file) => NewBlock::Document { source: Source::of(file), title: &file.name },
    })
}

/// Blank text is refused by the provider.
fn is_blank(content: &Content) -> bool {
    match content {
        Content::Text { text } => text.trim().is_empty(),
        Content::Attachment(_) => false,
    }
}

fn user_blocks(message: &UserMessage) -> Vec<Block<'_>> {
    // A message that is nothing but blank goes out as it is: the provider's words explain it best.
    let keep_blank = message.parts.iter().all(is_blank);
    message.parts.iter().filter(|content| keep_blank || !is_blank(content)).map(content_block).collect()
}

fn result_blocks<'a>(message: &'a ToolMessage, call_ids: &'a CallIds) -> Vec<Block<'a>> {
    let block = |result: &'a ToolResult| {
        let (content, is_error) = match &result.outcome {
            Ok(parts) => (parts.iter().filter(|part| !is_blank(part)).map(content_block).collect(), false),
            Err(error) if error.trim().is_empty() => (vec![text_block("the tool failed")], true),
            Err(error) => (vec![text_block(error)], true),
        };
        Block::New(NewBlock::ToolResult { tool_use_id: call_ids.on_wire(&result.id), content, is_error })
    };
    message.parts.iter().map(block).collect()
}

fn reply_blocks<'a>(reply: &'a Reply, own: bool, call_ids: &'a CallIds) -> Vec<Block<'a>> {
    let block = |part: &'a ReplyPart| match part {
        ReplyPart::Text(TextPart { private: Some(block), .. }) if own => Some(Block::Own(block)),
        ReplyPart::Text(part) | ReplyPart::Refusal(part) => {
            (!part.text.trim().is_empty()).then(|| text_block(&part.text))
        }
        ReplyPart::Thinking(ThinkingPart { private, .. }) => private.as_ref().filter(|_| own).map(Block::Own),
        ReplyPart::ServerTool(part) => part.private.as_ref().filter(|_| own).map(Block::Own),
        ReplyPart::ToolCall(call) => Some(tool_use(call, own, call_ids)),
    };
    reply.parts.iter().filter_map(block).collect()
}

fn tool_use<'a>(call: &'a ToolCall, own: bool, call_ids: &'a CallIds) -> Block<'a> {
    Block::New(NewBlock::ToolUse {
        id: call_ids.on_wire(&call.id),
        name: &call.tool,
        input: arguments_object(&call.arguments),
        caller: call.private.as_ref().filter(|_| own),
    })
}

fn opening(head: &Head) -> Fields {
    let settings = &head.settings;
    let mut fields = Fields::new();
    fields.set("model", &head.model.model);
    fields.set("max_tokens", &max_tokens(&head.model.model, settings));
    fields.set("stream", &head.stream);
    let native_output = head.output.as_ref().filter(|schema| is_strict(schema, Required::Any));
    let instructions = match (&head.output, native_output) {
        (Some(schema), None) => with_schema(&head.instructions, schema),
        (Some(_), Some(_)) | (None, _) => head.instructions.clone(),
    };
    if !instructions.trim().is_empty() {
        fields.set("system", &[text_block(&instructions)]);
    }
    let declared = head.tools.iter().map(WireTool::Declared);
    let tools: Vec<WireTool<'_>> = declared.chain(head.server_tools.iter().filter_map(server_tool)).collect();
    if !tools.is_empty() {
        fields.set("tools", &tools);
        fields.set_some("tool_choice", tool_choice(settings));
    }
    fields.set_some("thinking", thinking(&head.model.model, settings.thinking));
    if native_output.is_some() || settings.effort.is_some() {
        let format = native_output.map(|schema| OutputFormat { r#type: "json_schema", schema });
        fields.set("output_config", &OutputConfig { effort: settings.effort.map(effort), format });
    }
    fields.set_some("temperature", settings.temperature);
    fields.set_some("top_p", settings.top_p);
    fields.set_some("stop_sequences", (!settings.stop.is_empty()).then_some(&settings.stop));
    // There is no seed in this protocol, and the timeout is the connection's.
    fields
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputFormat<'a>>,
}

#[derive(Serialize)]
struct OutputFormat<'a> {
    r#type: &'static str,
    schema: &'a RawJson,
}

fn effort(effort: Effort) -> &'static str {
    match effort {
        Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Xhigh => "xhigh",
        Effort::Max => "max",
    }
}

#[derive(Serialize)]
struct ToolChoice {
    r#type: &'static str,
    disable_parallel_tool_use: bool,
}

fn tool_choice(settings: &ModelSettings) -> Option<ToolChoice> {
    let parallel = settings.parallel_tool_calls?;
    Some(ToolChoice { r#type: "auto", disable_parallel_tool_use: !parallel })
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireThinking {
    Disabled,
    Adaptive,
    Enabled { budget_tokens: u64 },
}

fn thinking(model: &str, setting: Option<Thinking>) -> Option<WireThinking> {
    Some(match setting? {
        Thinking::Off => WireThinking::Disabled,
        Thinking::On if thinks_adaptively(model) => WireThinking::Adaptive,
        Thinking::On => WireThinking::Enabled { budget_tokens: THINKING_BUDGET },
        Thinking::Budget(budget_tokens) => WireThinking::Enabled { budget_tokens },
    })
}

/// The protocol wants a limit always: the largest that all models of a generation take, and room for thinking on top.
fn max_tokens(model: &str, settings: &ModelSettings) -> u64 {
    let room = match version(model) {
        Some(version) if version < (3, 5) => 4096,
        Some(version) if version < (3, 7) => 8192,
        Some(_) | None => 32_000,
    };
    let budget = match settings.thinking {
        Some(Thinking::Budget(budget)) => budget,
        Some(Thinking::On | Thinking::Off) | None => 0,
    };
    settings.max_tokens.unwrap_or_else(|| room.max(budget.saturating_add(room / 2)))
}

/// Models since 4.6 decide themselves how much to think; earlier ones want a budget.
fn thinks_adaptively(model: &str) -> bool {
    version(model).is_none_or(|version| version >= (4, 6))
}

/// `claude-sonnet-4-5-20250929` → (4, 5), `claude-opus-4-20250514` → (4, 0).
fn version(model: &str) -> Option<(u64, u64)> {
    let mut numbers = model.split('-').skip_while(|word| word.parse::<u64>().is_err()).map(str::parse::<u64>);
    let major = numbers.next()?.ok()?;
    let minor = numbers.next().and_then(Result::ok).filter(|number| *number < 100);
    (major < 100).then_some((major, minor.unwrap_or(0)))
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireTool<'a> {
    #[serde(serialize_with = "declaration")]
    Declared(&'a ToolDeclaration),
    Server(WireServerTool<'a>),
}

fn declaration<S: serde::Serializer>(tool: &&ToolDeclaration, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Declaration<'a> {
        name: &'a str,
        description: &'a str,
        input_schema: &'a RawJson,
    }
    let ToolDeclaration { name, description, parameters } = *tool;
    Declaration { name, description, input_schema: parameters }.serialize(serializer)
}

#[derive(Serialize)]
struct WireServerTool<'a> {
    r#type: &'static str,
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_uses: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    allowed_domains: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    blocked_domains: &'a [String],
}

fn server_tool(tool: &ServerTool) -> Option<WireTool<'_>> {
    let (r#type, name) = match tool.kind {
        ServerToolKind::WebSearch => ("web_search_20250305", "web_search"),
        ServerToolKind::WebFetch => ("web_fetch_20250910", "web_fetch"),
        ServerToolKind::CodeExecution => ("code_execution_20250825", "code_execution"),
        // Linking refuses what the provider's row does not list.
        ServerToolKind::ImageGeneration => return None,
    };
    let ServerTool { max_uses, allowed_domains, blocked_domains, .. } = tool;
    Some(WireTool::Server(WireServerTool { r#type, name, max_uses: *max_uses, allowed_domains, blocked_domains }))
}
