//! Conversation → request body.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;

use crate::message::{
    Attachment, Content, Finish, Message, RawJson, Reply, ReplyPart, ToolCall, ToolMessage, ToolResult, quoted,
};
use crate::model::body::{BodyFields, BodyTail, Elements, RequestBody};
use crate::model::call_ids::CallIds;
use crate::model::content::{
    DataUrl, RequiredProperties, VisibleContent, arguments_object, is_strict, shown, with_schema,
};
use crate::model::protocol::{
    Encoder, OutputFormat, Prefill, PromptCaching, Quirks, ReasoningField, ReasoningReturn, StreamUsage,
    ThinkingSetting,
};
use crate::model::{Effort, Head, ModelSettings, Thinking, ToolDeclaration};

pub(crate) struct ChatEncoder {
    body: RequestBody,
    tail: BodyTail,
    provider: String,
    quirks: Quirks,
    call_ids: CallIds,
    /// Whether answers must satisfy a schema.
    typed: bool,
}

impl ChatEncoder {
    pub(crate) fn new(head: &Head, quirks: &Quirks) -> Self {
        let mut body = opening(head, quirks).open_array("messages");
        let instructions = match (&head.output, quirks.output_format) {
            (Some(schema), OutputFormat::JsonObject) => with_schema(&head.instructions, schema),
            (Some(_), OutputFormat::Schema) | (None, _) => head.instructions.clone(),
        };
        if !instructions.is_empty() {
            body.preface(&PlainMessage { role: "system", content: &instructions });
        }
        let call_ids = CallIds::new(quirks.call_ids);
        let (provider, typed) = (head.model.provider.clone(), head.output.is_some());
        let after = match quirks.prompt_caching {
            PromptCaching::Automatic => "}",
            PromptCaching::Marked => r#","cache_control":{"type":"ephemeral"}}"#,
        };
        let tail = BodyTail::new("]", quirks.max_tokens_field, head.settings.max_tokens, after);
        Self { body, tail, provider, quirks: *quirks, call_ids, typed }
    }

    fn push_reply(&mut self, reply: &Reply) {
        let own = reply.is_from(&self.provider);
        if !own {
            reply.tool_calls().for_each(|call| self.call_ids.adopt(&call.id));
        }
        let mut message = assistant(reply, own, &self.quirks, &self.call_ids);
        // An answer that was cut stands last only to be gone on with; a typed one is sent back instead.
        let is_begun = self.quirks.prefill == Prefill::Marked && !self.typed && reply.finish == Finish::Length;
        message.prefix = is_begun.then_some(true);
        // A message that says nothing and calls nothing is refused.
        self.body.push(|elements| {
            if message.content.is_some() || message.tool_calls.is_some() {
                elements.add(&message);
            }
        });
    }
}

impl Encoder for ChatEncoder {
    fn push(&mut self, message: &Message) {
        match message {
            Message::User(message) => self.body.push(|elements| elements.add(&user(&message.parts))),
            Message::Assistant(reply) => self.push_reply(reply),
            Message::Tool(message) => {
                let call_ids = &self.call_ids;
                self.body.push(|elements| tool_results(message, call_ids, elements));
            }
        }
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
struct PlainMessage<'a> {
    role: &'static str,
    #[serde(serialize_with = "quoted")]
    content: &'a str,
}

#[derive(Serialize)]
struct UserMessage<'a> {
    role: &'static str,
    content: UserContent<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum UserContent<'a> {
    Text(#[serde(serialize_with = "quoted")] Cow<'a, str>),
    Parts(Vec<UserPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum UserPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    File { file: File<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

#[derive(Serialize)]
struct File<'a> {
    filename: &'a str,
    file_data: DataUrl<'a>,
}

fn image_part(file: &Attachment) -> UserPart<'_> {
    UserPart::ImageUrl { image_url: ImageUrl { url: DataUrl(file) } }
}

fn file_part(file: &Attachment) -> UserPart<'_> {
    UserPart::File { file: File { filename: &file.name, file_data: DataUrl(file) } }
}

fn user(parts: &[Content]) -> UserMessage<'_> {
    let mut parts: Vec<UserPart<'_>> = parts.iter().map(user_part).collect();
    let content = match parts.as_mut_slice() {
        // The plain form is the one that every compatible server knows.
        [UserPart::Text { text }] => UserContent::Text(std::mem::take(text)),
        _ => UserContent::Parts(parts),
    };
    UserMessage { role: "user", content }
}

fn user_part(content: &Content) -> UserPart<'_> {
    match shown(content) {
        VisibleContent::Text(text) => UserPart::Text { text },
        VisibleContent::Image(file) => image_part(file),
        VisibleContent::Pdf(file) => file_part(file),
    }
}

#[derive(Serialize)]
struct ToolResultMessage<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    content: String,
}

/// Results are text in this protocol: files follow in a message of their own, behind all results, because each call
/// must be answered before anything else is said.
fn tool_results(message: &ToolMessage, call_ids: &CallIds, elements: &mut Elements<'_>) {
    let mut files = Vec::new();
    for result in &message.parts {
        let tool_call_id = call_ids.on_wire(&result.id);
        elements.add(&ToolResultMessage { role: "tool", tool_call_id, content: result_text(result, &mut files) });
    }
    if !files.is_empty() {
        elements.add(&UserMessage { role: "user", content: UserContent::Parts(files) });
    }
}

fn result_text<'a>(result: &'a ToolResult, files: &mut Vec<UserPart<'a>>) -> String {
    let parts = match &result.outcome {
        Ok(parts) => parts,
        Err(error) => return format!("Error: {error}"),
    };
    let mut texts: Vec<Cow<'a, str>> = Vec::new();
    for part in parts {
        let (file, part) = match shown(part) {
            VisibleContent::Text(text) => {
                texts.push(text);
                continue;
            }
            VisibleContent::Image(file) => (file, image_part(file)),
            VisibleContent::Pdf(file) => (file, file_part(file)),
        };
        texts.push(format!("[the file {:?} follows]", file.name).into());
        files
            .push(UserPart::Text { text: format!("The file {:?} that `{}` returned:", file.name, result.tool).into() });
        files.push(part);
    }
    texts.join("\n")
}

#[derive(Serialize)]
struct AssistantMessage<'a> {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<WireCall<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<bool>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a RawJson>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: Cow<'a, str>,
}

fn assistant<'a>(reply: &'a Reply, own: bool, quirks: &Quirks, call_ids: &'a CallIds) -> AssistantMessage<'a> {
    let (mut text, mut reasoning, mut details, mut calls) = (String::new(), String::new(), None, Vec::new());
    for part in &reply.parts {
        match part {
            ReplyPart::Text(part) | ReplyPart::Refusal(part) => text.push_str(&part.text),
            ReplyPart::Thinking(part) if own => {
                reasoning.push_str(&part.text);
                details = part.private.as_ref().or(details);
            }
            ReplyPart::ToolCall(call) => calls.push(wire_call(call, own, call_ids)),
            // Thinking of others is nothing to this provider, and none takes its own tools' blocks back.
            ReplyPart::Thinking(_) | ReplyPart::ServerTool(_) => {}
        }
    }
    let mut message = AssistantMessage {
        role: "assistant",
        content: (!text.is_empty()).then_some(text),
        reasoning_details: None,
        reasoning_content: None,
        reasoning: None,
        tool_calls: (!calls.is_empty()).then_some(calls),
        prefix: None,
    };
    match quirks.reasoning_return {
        ReasoningReturn::Details => message.reasoning_details = details,
        ReasoningReturn::WithToolCalls(field) if message.tool_calls.is_some() => match field {
            ReasoningField::ReasoningContent => message.reasoning_content = Some(reasoning),
            ReasoningField::Reasoning => message.reasoning = Some(reasoning),
        },
        ReasoningReturn::WithToolCalls(_) | ReasoningReturn::Never => {}
    }
    message
}

fn wire_call<'a>(call: &'a ToolCall, own: bool, call_ids: &'a CallIds) -> WireCall<'a> {
    let arguments = match arguments_object(&call.arguments) {
        Cow::Borrowed(object) => Cow::Borrowed(object.get()),
        Cow::Owned(object) => Cow::Owned(object.get().to_owned()),
    };
    let extra_content = call.private.as_ref().filter(|_| own);
    let function = WireFunction { name: &call.tool, arguments };
    WireCall { id: call_ids.on_wire(&call.id), r#type: "function", function, extra_content }
}

fn opening(head: &Head, quirks: &Quirks) -> BodyFields {
    let settings = &head.settings;
    let mut fields = BodyFields::default();
    fields.set("model", &head.model.model);
    fields.set("stream", &head.stream);
    if head.stream && quirks.stream_usage == StreamUsage::Asked {
        fields.set("stream_options", &StreamOptions { include_usage: true });
    }
    if !head.tools.is_empty() {
        fields.set("tools", &head.tools.iter().map(wire_tool).collect::<Vec<_>>());
        fields.set_some("tool_choice", (!head.may_call).then_some("none"));
        fields.set_some("parallel_tool_calls", settings.parallel_tool_calls);
    }
    fields.set_some("response_format", head.output.as_ref().map(|schema| response_format(schema, quirks)));
    set_thinking(&mut fields, settings, quirks);
    fields.set_some("temperature", settings.temperature);
    fields.set_some("top_p", settings.top_p);
    fields.set_some("stop", (!settings.stop.is_empty()).then_some(&settings.stop));
    fields.set_some(quirks.seed_field, settings.seed);
    // No provider of this protocol lists tools of its own in the table, and the timeout is the connection's.
    fields
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireDeclaration<'a>,
}

#[derive(Serialize)]
struct WireDeclaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawJson,
}

fn wire_tool(tool: &ToolDeclaration) -> WireTool<'_> {
    let ToolDeclaration { name, description, parameters } = tool;
    WireTool { r#type: "function", function: WireDeclaration { name, description, parameters } }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat<'a> {
    JsonObject,
    JsonSchema { json_schema: NamedSchema<'a> },
}

#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'static str,
    schema: &'a RawJson,
    strict: bool,
}

fn response_format<'a>(schema: &'a RawJson, quirks: &Quirks) -> ResponseFormat<'a> {
    match quirks.output_format {
        OutputFormat::JsonObject => ResponseFormat::JsonObject,
        OutputFormat::Schema => {
            let strict = is_strict(schema, RequiredProperties::All);
            ResponseFormat::JsonSchema { json_schema: NamedSchema { name: "output", schema, strict } }
        }
    }
}

#[derive(Serialize)]
struct ThinkingType {
    r#type: &'static str,
}

#[derive(Serialize)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
}

fn set_thinking(fields: &mut BodyFields, settings: &ModelSettings, quirks: &Quirks) {
    let ModelSettings { effort, thinking, .. } = *settings;
    match quirks.thinking_setting {
        ThinkingSetting::Effort => match (effort, thinking) {
            (None, Some(Thinking::Off)) => fields.set("reasoning_effort", "none"),
            // It cannot be turned on or bounded otherwise.
            (effort, _) => fields.set_some("reasoning_effort", effort),
        },
        ThinkingSetting::ThinkingType => {
            let r#type = thinking.map(|thinking| match thinking {
                Thinking::Off => "disabled",
                Thinking::On | Thinking::Budget(_) => "enabled",
            });
            fields.set_some("thinking", r#type.map(|r#type| ThinkingType { r#type }));
            fields.set_some("reasoning_effort", effort);
        }
        ThinkingSetting::Reasoning if effort.is_none() && thinking.is_none() => {}
        ThinkingSetting::Reasoning => {
            let (enabled, max_tokens) = match thinking {
                Some(Thinking::Off) => (Some(false), None),
                Some(Thinking::On) => (Some(true), None),
                Some(Thinking::Budget(tokens)) => (None, Some(tokens)),
                None => (None, None),
            };
            // The provider takes either a bound or an effort.
            let effort = effort.filter(|_| max_tokens.is_none());
            fields.set("reasoning", &Reasoning { enabled, effort, max_tokens });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::message::{TextPart, ThinkingPart};
    use crate::model::fixtures::{self, call, head, usage};
    use crate::model::openai_chat::OpenAiChat;
    use crate::model::provider::provider;

    /// The request as this provider wants it.
    fn request(name: &str, adjust: impl FnOnce(&mut Head), messages: &[Message]) -> Value {
        let mut head = head(&format!("{name}:m"));
        adjust(&mut head);
        fixtures::request(&OpenAiChat, &head, &provider(name).unwrap().quirks, messages)
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

    fn text(text: &str) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: None })
    }

    fn thinking(text: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::Thinking(ThinkingPart { text: text.into(), private: private.map(fixtures::json) })
    }

    fn result(id: &str, outcome: Result<Vec<Content>, String>) -> ToolResult {
        ToolResult { id: id.into(), tool: "add".into(), outcome }
    }

    #[test]
    fn settings_and_tools_have_their_places() {
        let adjust = |head: &mut Head| {
            head.instructions = "Be brief.".into();
            let parameters = fixtures::json(r#"{"type":"object","properties":{}}"#);
            head.tools = vec![ToolDeclaration { name: "add".into(), description: "Adds.".into(), parameters }];
            head.output = Some(fixtures::json(r#"{"type":"object","properties":{}}"#));
            head.settings = ModelSettings {
                temperature: Some(0.0),
                top_p: Some(0.5),
                max_tokens: Some(99),
                stop: vec!["END".into()],
                seed: Some(1),
                effort: Some(Effort::High),
                thinking: None,
                parallel_tool_calls: Some(true),
                timeout: None,
            };
        };
        let schema = json!({"type": "object", "properties": {}});
        let expected = json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": schema}}],
            "parallel_tool_calls": true,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": schema, "strict": false},
            },
            "reasoning_effort": "high", "temperature": 0.0, "top_p": 0.5, "max_completion_tokens": 99,
            "stop": ["END"], "seed": 1,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        });
        assert_eq!(request("openai-chat", adjust, &[Message::user("hi")]), expected);
    }

    #[test]
    fn providers_differ_by_their_rows() {
        let adjust = |head: &mut Head| {
            head.settings.max_tokens = Some(9);
            head.settings.seed = Some(1);
            head.settings.thinking = Some(Thinking::Off);
            head.output = Some(fixtures::json("{}"));
        };
        let mistral = request("mistral", adjust, &[]);
        assert_eq!((&mistral["max_tokens"], &mistral["random_seed"]), (&json!(9), &json!(1)));
        assert_eq!(mistral["stream_options"], Value::Null);
        let deepseek = request("deepseek", adjust, &[]);
        assert_eq!(deepseek["thinking"], json!({"type": "disabled"}));
        assert_eq!(deepseek["response_format"], json!({"type": "json_object"}));
        assert!(deepseek["messages"][0]["content"].as_str().unwrap().contains("JSON"));
        let openrouter = request("openrouter", adjust, &[]);
        assert_eq!(openrouter["reasoning"], json!({"enabled": false}));
        assert_eq!(openrouter["cache_control"], json!({"type": "ephemeral"}));
        assert_eq!(request("openai-chat", adjust, &[])["reasoning_effort"], "none");
    }

    #[test]
    fn thinking_is_set_the_providers_way() {
        let cases = [
            ("openrouter", None, Some(Thinking::Budget(5)), "reasoning", json!({"max_tokens": 5})),
            ("openrouter", Some(Effort::Low), Some(Thinking::Budget(5)), "reasoning", json!({"max_tokens": 5})),
            ("openrouter", Some(Effort::Low), None, "reasoning", json!({"effort": "low"})),
            ("openrouter", None, None, "reasoning", Value::Null),
            ("deepseek", None, Some(Thinking::Budget(5)), "thinking", json!({"type": "enabled"})),
            ("deepseek", Some(Effort::Max), None, "reasoning_effort", json!("max")),
            ("groq", None, Some(Thinking::On), "reasoning_effort", Value::Null),
            ("groq", Some(Effort::Low), Some(Thinking::Off), "reasoning_effort", json!("low")),
        ];
        for (name, effort, thinking, field, expected) in cases {
            let adjust = |head: &mut Head| (head.settings.effort, head.settings.thinking) = (effort, thinking);
            assert_eq!(request(name, adjust, &[])[field], expected, "{name} {effort:?} {thinking:?}");
        }
    }

    #[test]
    fn files_of_results_follow_behind_all_results() {
        let image = |name: &str| {
            let (media_type, data) = ("image/png".to_owned(), Arc::from(*b"\x01"));
            Content::Attachment(Attachment { name: name.into(), path: None, media_type, data })
        };
        let results =
            vec![result("c1", Ok(vec![Content::text("seen"), image("a.png")])), result("c2", Err("it failed".into()))];
        let sent = request("groq", |_| {}, &[Message::tool_results(results)]);
        let expected = json!([
            {"role": "tool", "tool_call_id": "c1", "content": "seen\n[the file \"a.png\" follows]"},
            {"role": "tool", "tool_call_id": "c2", "content": "Error: it failed"},
            {"role": "user", "content": [
                {"type": "text", "text": "The file \"a.png\" that `add` returned:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQ=="}},
            ]},
        ]);
        assert_eq!(sent["messages"], expected);
    }

    #[test]
    fn reasoning_goes_back_as_the_provider_wants_it() {
        let details = r#"[{"type":"reasoning.text","signature":"s"}]"#;
        let spoken = || vec![thinking("hm", Some(details)), text("x")];
        let called = || vec![thinking("hm", Some(details)), ReplyPart::ToolCall(call("c1", "{}"))];
        let unthinking = || vec![ReplyPart::ToolCall(call("c1", "{}"))];
        let cases = [
            ("deepseek", "deepseek:m", called(), "reasoning_content", json!("hm")),
            ("deepseek", "deepseek:m", unthinking(), "reasoning_content", json!("")),
            ("deepseek", "deepseek:m", spoken(), "reasoning_content", Value::Null),
            ("deepseek", "groq:m", called(), "reasoning_content", json!("")),
            ("ollama", "ollama:m", called(), "reasoning", json!("hm")),
            ("openrouter", "openrouter:m", spoken(), "reasoning_details", fixtures::json(details).to().unwrap()),
            ("openrouter", "groq:m", called(), "reasoning_details", Value::Null),
            ("groq", "groq:m", called(), "reasoning", Value::Null),
        ];
        for (name, model, parts, field, expected) in cases {
            let sent = request(name, |_| {}, &[reply(model, parts)]);
            assert_eq!(sent["messages"][0][field], expected, "{name} {model} {field}");
        }
    }

    #[test]
    fn calls_go_back_with_their_arguments_and_ids() {
        let own = ToolCall { private: Some(fixtures::json(r#"{"s":1}"#)), ..call("call_1", "[1]") };
        let conversation = |model| {
            [
                reply(model, vec![ReplyPart::ToolCall(own.clone())]),
                Message::tool_results(vec![result("call_1", Ok(vec![]))]),
            ]
        };
        let sent = request("mistral", |_| {}, &conversation("mistral:m"));
        let function = json!({"name": "add", "arguments": r#"{"malformed_arguments":"[1]"}"#});
        let expected = json!([
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_1", "type": "function", "function": function, "extra_content": {"s": 1}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": ""},
        ]);
        assert_eq!(sent["messages"], expected);
        let sent = request("mistral", |_| {}, &conversation("groq:m"));
        let call = &sent["messages"][0]["tool_calls"][0];
        assert_eq!(call["id"].as_str().unwrap().len(), 9);
        assert_eq!(call["id"], sent["messages"][1]["tool_call_id"]);
        assert_eq!(call["extra_content"], Value::Null);
    }

    #[test]
    fn a_reply_that_says_nothing_is_left_out() {
        let sent = request("groq", |_| {}, &[Message::user("a"), reply("groq:m", vec![thinking("hm", None)])]);
        assert_eq!(sent["messages"].as_array().unwrap().len(), 1);
    }
}
