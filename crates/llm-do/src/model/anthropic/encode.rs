//! Conversation → request body.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;

use crate::message::{
    Attachment, Content, Finish, Message, RawJson, Reply, ReplyPart, TextPart, ThinkingPart, ToolCall, ToolMessage,
    ToolResult, UserMessage, quoted,
};
use crate::model::body::{BodyFields, BodyTail, RequestBody};
use crate::model::call_ids::CallIds;
use crate::model::content::{
    Base64, RequiredProperties, VisibleContent, arguments_object, is_strict, shown, with_schema,
};
use crate::model::protocol::{CallIdForm, Encoder};
use crate::model::{Effort, Head, ModelSettings, ServerTool, ServerToolKind, Thinking, ToolDeclaration};

// The moving breakpoint: the provider caches up to the last block that it can.
const CLOSING: &str = r#","cache_control":{"type":"ephemeral"}}"#;

/// What thinking may take where a model wants a number and none was given.
const THINKING_BUDGET: u64 = 10_000;

pub(crate) struct MessagesEncoder {
    body: RequestBody,
    tail: BodyTail,
    provider: String,
    call_ids: CallIds,
}

impl MessagesEncoder {
    pub(crate) fn new(head: &Head) -> Self {
        let body = opening(head).open_array("messages");
        let tail = BodyTail::new("]", "max_tokens", Some(max_tokens(&head.model.model, &head.settings)), CLOSING);
        Self { body, tail, provider: head.model.provider.clone(), call_ids: CallIds::new(CallIdForm::Word) }
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

    fn body(&mut self, longest_answer: Option<u64>) -> Bytes {
        self.body.lend(&self.tail.text(longest_answer))
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
        #[serde(serialize_with = "quoted")]
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
        VisibleContent::Text(text) => NewBlock::Text { text },
        VisibleContent::Image(file) => NewBlock::Image { source: Source::of(file) },
        VisibleContent::Pdf(file) => NewBlock::Document { source: Source::of(file), title: &file.name },
    })
}

/// Blank text is refused by the provider.
fn is_blank(content: &Content) -> bool {
    match content {
        Content::Text { text } | Content::Value { json: text } => text.trim().is_empty(),
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
    // The beginning of an answer to go on with must not end with white space.
    let said = |text: &'a str| if reply.finish == Finish::Length { text.trim_end() } else { text };
    let block = |part: &'a ReplyPart| match part {
        ReplyPart::Text(TextPart { private: Some(block), .. }) if own => Some(Block::Own(block)),
        ReplyPart::Text(part) | ReplyPart::Refusal(part) => {
            (!part.text.trim().is_empty()).then(|| text_block(said(&part.text)))
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

fn opening(head: &Head) -> BodyFields {
    let settings = &head.settings;
    let mut fields = BodyFields::default();
    fields.set("model", &head.model.model);
    fields.set("stream", &head.stream);
    let native_output = head.output.as_ref().filter(|schema| is_strict(schema, RequiredProperties::Any));
    let instructions = match (&head.output, native_output) {
        (Some(schema), None) => with_schema(&head.instructions, schema),
        (Some(_), Some(_)) | (None, _) => head.instructions.clone(),
    };
    if !instructions.trim().is_empty() {
        fields.set("system", &[text_block(&instructions)]);
    }
    let declared = head.tools.iter().map(declaration);
    let tools: Vec<WireTool<'_>> = declared.chain(head.server_tools.iter().filter_map(server_tool)).collect();
    if !tools.is_empty() {
        fields.set("tools", &tools);
        fields.set_some("tool_choice", tool_choice(head));
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
    #[serde(skip_serializing_if = "Option::is_none")]
    disable_parallel_tool_use: Option<bool>,
}

fn tool_choice(head: &Head) -> Option<ToolChoice> {
    if !head.may_call {
        return Some(ToolChoice { r#type: "none", disable_parallel_tool_use: None });
    }
    let parallel = head.settings.parallel_tool_calls?;
    Some(ToolChoice { r#type: "auto", disable_parallel_tool_use: Some(!parallel) })
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

/// What thinking takes of an answer that is not told how much it may: nothing that is fixed, for models that decide it.
pub(crate) fn thinking_budget(model: &str) -> u64 {
    if thinks_adaptively(model) { 0 } else { THINKING_BUDGET }
}

/// Models since 4.6 decide themselves how much to think; earlier ones want a budget.
fn thinks_adaptively(model: &str) -> bool {
    version(model).is_none_or(|version| version >= (4, 6))
}

/// Models since 4.6 refuse a request that ends with the beginning of their answer.
pub(crate) fn takes_prefill(model: &str) -> bool {
    version(model).is_some_and(|version| version < (4, 6))
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
    Declared(Declaration<'a>),
    Server(WireServerTool<'a>),
}

#[derive(Serialize)]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawJson,
}

fn declaration(tool: &ToolDeclaration) -> WireTool<'_> {
    let ToolDeclaration { name, description, parameters: input_schema } = tool;
    WireTool::Declared(Declaration { name, description, input_schema })
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
    let (max_uses, allowed_domains, blocked_domains): (_, &[String], &[String]) = match tool.kind {
        ServerToolKind::WebSearch | ServerToolKind::WebFetch => (*max_uses, allowed_domains, blocked_domains),
        // It knows no restrictions and refuses them.
        ServerToolKind::CodeExecution | ServerToolKind::ImageGeneration => (None, &[], &[]),
    };
    Some(WireTool::Server(WireServerTool { r#type, name, max_uses, allowed_domains, blocked_domains }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::message::ServerToolPart;
    use crate::model::anthropic::Anthropic;
    use crate::model::fixtures::{self, call, head, usage};
    use crate::model::protocol::{Protocol as _, Quirks};

    fn request(head: &Head, messages: &[Message]) -> Value {
        fixtures::request(&Anthropic, head, &Quirks::NONE, messages)
    }

    fn file(name: &str, media_type: &str, data: &[u8]) -> Content {
        Content::Attachment(Attachment {
            name: name.into(),
            path: None,
            media_type: media_type.into(),
            data: Arc::from(data),
        })
    }

    fn reply(model: &str, parts: Vec<ReplyPart>) -> Message {
        Message::Assistant(Reply {
            parts,
            model: model.into(),
            finish: Finish::Stop,
            finish_reason: None,
            usage: usage(0, 0),
        })
    }

    fn text(text: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: private.map(fixtures::json) })
    }

    fn thinking(private: &str) -> ReplyPart {
        ReplyPart::Thinking(ThinkingPart { text: "hm".into(), private: Some(fixtures::json(private)) })
    }

    #[test]
    fn the_least_request_has_a_limit_and_asks_for_caching() {
        let sent = request(&head("anthropic:claude-sonnet-4-5"), &[Message::user("hi")]);
        let expected = json!({
            "model": "claude-sonnet-4-5", "max_tokens": 32000, "stream": true,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "cache_control": {"type": "ephemeral"},
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn settings_and_tools_have_their_places() {
        let mut head = head("anthropic:claude-opus-4-6");
        head.instructions = "Be brief.".into();
        head.stream = false;
        let parameters = fixtures::json(r#"{"type":"object","properties":{"b":{},"a":{}}}"#);
        head.tools = vec![ToolDeclaration { name: "add".into(), description: "Adds.".into(), parameters }];
        let allowed_domains = vec!["example.org".into()];
        let kind = ServerToolKind::WebFetch;
        head.server_tools = vec![ServerTool { kind, max_uses: Some(2), allowed_domains, blocked_domains: vec![] }];
        head.output = Some(fixtures::json(r#"{"type":"object","additionalProperties":false}"#));
        head.settings = ModelSettings {
            temperature: Some(1.0),
            top_p: Some(0.5),
            max_tokens: Some(99),
            stop: vec!["END".into()],
            seed: Some(1),
            effort: Some(Effort::Minimal),
            thinking: Some(Thinking::On),
            parallel_tool_calls: Some(false),
            timeout: None,
        };
        let expected = json!({
            "model": "claude-opus-4-6", "max_tokens": 99, "stream": false,
            "system": [{"type": "text", "text": "Be brief."}],
            "tools": [
                {"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}}},
                {"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 2, "allowed_domains": ["example.org"]},
            ],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
            "thinking": {"type": "adaptive"},
            "output_config": {
                "effort": "low",
                "format": {"type": "json_schema", "schema": {"type": "object", "additionalProperties": false}},
            },
            "temperature": 1.0, "top_p": 0.5, "stop_sequences": ["END"],
            "messages": [], "cache_control": {"type": "ephemeral"},
        });
        assert_eq!(request(&head, &[]), expected);
        let body = Anthropic.encoder(&head, &Quirks::NONE).body(None);
        assert!(str::from_utf8(&body).unwrap().contains(r#"{"b":{},"a":{}}"#), "key order is kept");
        let beta = ("anthropic-beta", "web-fetch-2025-09-10".to_owned());
        assert!(Anthropic.headers(&head, &Quirks::NONE, Some("key")).contains(&beta));
    }

    #[test]
    fn an_output_that_the_provider_cannot_enforce_is_asked_for_in_words() {
        let mut head = head("anthropic:claude-opus-4-6");
        head.output = Some(fixtures::json(r#"{"type":"object","properties":{}}"#));
        let sent = request(&head, &[]);
        assert_eq!(sent["output_config"], Value::Null);
        assert!(sent["system"][0]["text"].as_str().unwrap().ends_with(r#"{"type":"object","properties":{}}"#));
    }

    #[test]
    fn limits_and_thinking_follow_the_model() {
        let cases = [
            ("claude-3-haiku-20240307", None, 4096, Value::Null),
            ("claude-3-5-sonnet-20241022", None, 8192, Value::Null),
            ("claude-opus-4-20250514", Some(Thinking::On), 32000, json!({"type": "enabled", "budget_tokens": 10000})),
            (
                "claude-sonnet-4-5",
                Some(Thinking::Budget(40000)),
                56000,
                json!({"type": "enabled", "budget_tokens": 40000}),
            ),
            ("claude-sonnet-4-6", Some(Thinking::On), 32000, json!({"type": "adaptive"})),
            ("claude-new", Some(Thinking::Off), 32000, json!({"type": "disabled"})),
        ];
        for (model, thinking, max_tokens, expected) in cases {
            let mut head = head(&format!("anthropic:{model}"));
            head.settings.thinking = thinking;
            let sent = request(&head, &[]);
            assert_eq!((&sent["max_tokens"], &sent["thinking"]), (&json!(max_tokens), &expected), "{model}");
        }
    }

    #[test]
    fn files_go_as_blocks_of_their_kind() {
        let parts = vec![
            Content::text(" "),
            file("a.png", "image/png", b"\x01\x02"),
            file("a.pdf", "application/pdf", b"%PDF"),
            file("a.txt", "text/plain", b"hi"),
        ];
        let results = vec![
            ToolResult { id: "c1".into(), tool: "add".into(), outcome: Ok(vec![file("b.png", "image/png", b"\x01")]) },
            ToolResult { id: "c2".into(), tool: "add".into(), outcome: Err("it failed".into()) },
            ToolResult { id: "c3".into(), tool: "add".into(), outcome: Ok(vec![]) },
        ];
        let messages = [Message::User(UserMessage { parts }), Message::tool_results(results)];
        let sent = request(&head("anthropic:m"), &messages);
        let image = |data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
        let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="});
        let expected = json!([
            {"role": "user", "content": [
                image("AQI="),
                {"type": "document", "source": pdf, "title": "a.pdf"},
                {"type": "text", "text": "<file name=\"a.txt\">\nhi\n</file>"},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [image("AQ==")], "is_error": false},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "it failed"}], "is_error": true},
                {"type": "tool_result", "tool_use_id": "c3", "is_error": false},
            ]},
        ]);
        assert_eq!(sent["messages"], expected);
    }

    #[test]
    fn private_blocks_go_back_to_this_provider_only() {
        let server_tool = ServerToolPart {
            tool: "web_search".into(),
            input: None,
            output: None,
            private: Some(fixtures::json(r#"{"type":"server_tool_use","z":1,"a":2}"#)),
        };
        let called =
            ToolCall { private: Some(fixtures::json(r#"{"type":"direct"}"#)), ..call("functions.add:0", "[1]") };
        let parts = || {
            vec![
                thinking(r#"{"signature":"s","type":"thinking"}"#),
                ReplyPart::ServerTool(server_tool.clone()),
                text("", None),
                text("x", Some(r#"{"citations":[1],"text":"x","type":"text"}"#)),
                ReplyPart::ToolCall(called.clone()),
            ]
        };
        let results = ToolResult { id: "functions.add:0".into(), tool: "add".into(), outcome: Err("no".into()) };
        let conversation = |model| [reply(model, parts()), Message::tool_results(vec![results.clone()])];
        let input = json!({"malformed_arguments": "[1]"});
        let own = request(&head("anthropic:m"), &conversation("anthropic:other"));
        let expected = json!([
            {"signature": "s", "type": "thinking"},
            {"type": "server_tool_use", "z": 1, "a": 2},
            {"citations": [1], "text": "x", "type": "text"},
            {"type": "tool_use", "id": "functions.add:0", "name": "add", "input": input, "caller": {"type": "direct"}},
        ]);
        assert_eq!(own["messages"][0]["content"], expected);
        assert_eq!(own["messages"][1]["content"][0]["tool_use_id"], "functions.add:0");

        let foreign = request(&head("anthropic:m"), &conversation("groq:m"));
        let id = foreign["messages"][1]["content"][0]["tool_use_id"].clone();
        assert!(id.as_str().unwrap().starts_with("call_"), "an id that would be refused is replaced");
        let expected =
            json!([{"type": "text", "text": "x"}, {"type": "tool_use", "id": id, "name": "add", "input": input}]);
        assert_eq!(foreign["messages"][0]["content"], expected);
    }

    #[test]
    fn a_message_without_content_is_left_out() {
        let empty = reply("groq:m", vec![thinking("{}")]);
        let mut encoder = Anthropic.encoder(&head("anthropic:m"), &Quirks::NONE);
        for message in [Message::user("a"), empty, Message::user("b")] {
            encoder.push(&message);
        }
        let sent: Value = serde_json::from_slice(&encoder.body(None)).unwrap();
        assert_eq!(sent["messages"].as_array().unwrap().len(), 2);
        encoder.truncate(1);
        let sent: Value = serde_json::from_slice(&encoder.body(None)).unwrap();
        assert_eq!(sent["messages"].as_array().unwrap().len(), 1);
    }
}
