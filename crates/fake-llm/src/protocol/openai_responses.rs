//! `OpenAI` Responses, as a client uses them that keeps the conversation itself: the history is a list of items.

use serde_json::{Value, json};

use super::{Dialect, Findings, Protocol, Serving};
use crate::fault::FakeProviderError;
use crate::reply::{Block, FakeCall, FakeFinish, FakeReply, FakeUsage};
use crate::request::Headers;
use crate::seen::{Role, SeenMessage, SeenPart, SeenRequest, SeenTool, StreamMode};

pub(super) struct OpenAiResponses;

const KNOWN_FIELDS: &[&str] = &[
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// Items that are only carried: what the provider's own tools leave in a history.
const CARRIED_ITEMS: &[&str] = &[
    "additional_tools",
    "code_interpreter_call",
    "compaction",
    "file_search_call",
    "image_generation_call",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
];

const SERVER_TOOLS: &[&str] =
    &["code_interpreter", "file_search", "image_generation", "mcp", "tool_search", "web_search", "web_search_preview"];

const LONGEST_CALL_ID: usize = 64;

impl Dialect for OpenAiResponses {
    fn serves(&self, path: &str) -> bool {
        path.ends_with("/responses")
    }

    fn check_headers(&self, _headers: &Headers, _findings: &mut Findings) {}

    fn has_key(&self, headers: &Headers) -> bool {
        let key = headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
        key.is_some_and(|key| !key.trim().is_empty())
    }

    fn read(&self, _path: &str, body: &Value, findings: &mut Findings) -> SeenRequest {
        for unknown in body.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if !KNOWN_FIELDS.contains(&unknown.as_str()) {
                findings.refuse(format!("unknown parameter: {unknown:?}"));
            }
        }
        check_format(body, findings);
        let mut system: Vec<String> = text_at(body, "instructions").map(str::to_owned).into_iter().collect();
        let messages = match body.get("input") {
            Some(Value::String(text)) => {
                vec![SeenMessage { role: Role::User, parts: vec![SeenPart::Text(text.clone())] }]
            }
            _ => read_items(body, &mut system, findings),
        };
        SeenRequest {
            longest_answer: body.get("max_output_tokens").and_then(Value::as_u64),
            protocol: Protocol::OpenAiResponses,
            model: findings.required_text(body, "model", ""),
            system: system.join("\n"),
            messages,
            tools: read_tools(body, findings),
            stream: if body.get("stream") == Some(&json!(true)) { StreamMode::EventsWithUsage } else { StreamMode::No },
        }
    }

    fn wants_thinking_back(&self) -> bool {
        true
    }

    fn document(&self, serving: &Serving<'_>) -> String {
        response(serving, &status(serving.reply), &whole_items(serving)).to_string()
    }

    fn events(&self, serving: &Serving<'_>) -> Vec<String> {
        let mut events = Events(Vec::new());
        let beginning = response(serving, &Status::word("in_progress"), &[]);
        events.tell("response.created", json!({"response": beginning}));
        events.tell("response.in_progress", json!({"response": beginning}));
        let items = whole_items(serving);
        for (index, (block, item)) in serving.reply.blocks.iter().zip(&items).enumerate() {
            item_events(serving.reply, block, item, index, &mut events);
        }
        let status = status(serving.reply);
        let name = if status.word == "incomplete" { "response.incomplete" } else { "response.completed" };
        events.tell(name, json!({"response": response(serving, &status, &items)}));
        events.0
    }

    fn failure(&self, failure: &FakeProviderError) -> String {
        let FakeProviderError { message, code, status, .. } = failure;
        json!({"error": {"message": message, "type": error_type(*status), "param": null, "code": code}}).to_string()
    }

    fn failure_event(&self, failure: &FakeProviderError) -> String {
        let code = failure.code.as_deref().unwrap_or(error_type(failure.status));
        let event =
            json!({"type": "error", "code": code, "message": failure.message, "param": null, "sequence_number": 0});
        format!("event: error\ndata: {event}\n\n")
    }

    fn idle_frames(&self) -> &'static str {
        ": keep-alive\n\n"
    }
}

// What is read.

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn check_format(body: &Value, findings: &mut Findings) {
    let Some(format) = body.pointer("/text/format") else { return };
    match text_at(format, "type") {
        Some("text" | "json_object") => {}
        Some("json_schema") => {
            findings.required_text(format, "name", "text.format.");
            let schema = format.get("schema").unwrap_or(&Value::Null);
            if text_at(schema, "type") != Some("object") {
                findings.refuse("text.format.schema: must be of type object");
            }
            if format.get("strict") == Some(&json!(true)) && !is_closed(schema) {
                findings.refuse("text.format.schema: every object must be closed and require all of its properties");
            }
        }
        Some(_) | None => findings.refuse("text.format.type: unknown format"),
    }
}

/// Whether all objects in a schema list their properties as required and allow no others.
fn is_closed(schema: &Value) -> bool {
    let inner = match schema {
        Value::Object(fields) => fields.values().all(is_closed),
        Value::Array(values) => values.iter().all(is_closed),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|names| names.contains(&json!(name)));
    let is_object = properties.is_some() || text_at(schema, "type") == Some("object");
    let closed = schema.get("additionalProperties") == Some(&json!(false))
        && properties.is_none_or(|properties| properties.keys().all(is_required));
    inner && (!is_object || closed)
}

fn read_items(body: &Value, system: &mut Vec<String>, findings: &mut Findings) -> Vec<SeenMessage> {
    let stored = body.get("store") != Some(&json!(false));
    let items = findings.required_list(body, "input", "");
    let mut messages: Vec<SeenMessage> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let at = format!("input[{index}]");
        if text_at(item, "type") == Some("reasoning") {
            check_reasoning(item, items.get(index + 1), stored, &at, findings);
        }
        match read_item(item, &at, findings) {
            Turn::System(text) => system.push(text),
            // The items of one reply are one message.
            Turn::Said(Role::Assistant, parts) => match messages.last_mut() {
                Some(last) if last.role == Role::Assistant => last.parts.extend(parts),
                Some(_) | None => messages.push(SeenMessage { role: Role::Assistant, parts }),
            },
            Turn::Said(role, parts) => messages.push(SeenMessage { role, parts }),
        }
    }
    messages
}

enum Turn {
    System(String),
    Said(Role, Vec<SeenPart>),
}

fn read_item(item: &Value, at: &str, findings: &mut Findings) -> Turn {
    let said = |part: SeenPart| Turn::Said(Role::Assistant, vec![part]);
    match text_at(item, "type") {
        None | Some("message") => read_message(item, at, findings),
        Some("reasoning") => said(read_reasoning(item)),
        Some("function_call") => {
            check_id(item, "fc", at, findings);
            said(read_call(item, &format!("{at}."), findings))
        }
        Some("function_call_output") => Turn::Said(Role::Tool, vec![read_result(item, &format!("{at}."), findings)]),
        Some(kind) => {
            if !CARRIED_ITEMS.contains(&kind) {
                findings.refuse(format!("{at}.type: unknown item type {kind:?}"));
            }
            said(SeenPart::Other(item.clone()))
        }
    }
}

/// Ids may be left out; those of another kind of item are refused.
fn check_id(item: &Value, prefix: &str, at: &str, findings: &mut Findings) {
    if item.get("id").is_some_and(|id| !id.as_str().is_some_and(|id| id.starts_with(prefix))) {
        findings.refuse(format!("{at}.id: expected an id that begins with {prefix:?}"));
    }
}

fn check_reasoning(item: &Value, next: Option<&Value>, stored: bool, at: &str, findings: &mut Findings) {
    check_id(item, "rs", at, findings);
    if !item.get("summary").is_some_and(Value::is_array) {
        findings.refuse(format!("{at}.summary: a list is required"));
    }
    let encrypted = text_at(item, "encrypted_content").is_some_and(|content| !content.is_empty());
    if !stored && !encrypted {
        findings.refuse(format!("{at}: not found, items are not persisted when store is false"));
    }
    let follows = next.is_some_and(|next| {
        text_at(next, "role").is_none_or(|role| role == "assistant")
            && text_at(next, "type") != Some("function_call_output")
    });
    if !follows {
        findings.refuse(format!("{at}: reasoning was provided without its required following item"));
    }
}

fn read_message(item: &Value, at: &str, findings: &mut Findings) -> Turn {
    let role = text_at(item, "role");
    let from_model = role == Some("assistant");
    let parts = match item.get("content") {
        Some(Value::String(text)) => vec![SeenPart::Text(text.clone())],
        Some(Value::Array(parts)) if !parts.is_empty() => {
            let parts = parts.iter().enumerate();
            parts.map(|(n, part)| read_part(part, from_model, &format!("{at}.content[{n}]."), findings)).collect()
        }
        Some(_) | None => {
            findings.refuse(format!("{at}.content: a text or a list of parts is required"));
            Vec::new()
        }
    };
    match role {
        Some("user") => Turn::Said(Role::User, parts),
        Some("assistant") => {
            check_id(item, "msg", at, findings);
            Turn::Said(Role::Assistant, parts)
        }
        Some("system" | "developer") => Turn::System(SeenMessage { role: Role::User, parts }.text()),
        Some(_) | None => {
            findings.refuse(format!("{at}.role: must be user, assistant, system or developer"));
            Turn::Said(Role::User, parts)
        }
    }
}

fn read_part(part: &Value, from_model: bool, at: &str, findings: &mut Findings) -> SeenPart {
    let text = |key: &str| text_at(part, key).map(str::to_owned);
    let read = match (text_at(part, "type").unwrap_or_default(), from_model) {
        ("output_text", true) | ("input_text", false) => text("text").map(SeenPart::Text),
        // What the model declined with is text as far as scripts are concerned.
        ("refusal", true) => text("refusal").map(SeenPart::Text),
        ("input_image", false) => text("image_url").or(text("file_id")).map(|_| SeenPart::Other(part.clone())),
        ("input_file", false) => {
            let source = ["file_data", "file_id", "file_url"].iter().find_map(|key| text(key));
            source.map(|_| SeenPart::Other(part.clone()))
        }
        (kind, _) => {
            findings.refuse(format!("{at}type: {kind:?} is not allowed here"));
            return SeenPart::Other(part.clone());
        }
    };
    read.unwrap_or_else(|| {
        findings.refuse(format!("{at}the content is missing"));
        SeenPart::Other(part.clone())
    })
}

fn read_reasoning(item: &Value) -> SeenPart {
    let thoughts = ["summary", "content"].iter().filter_map(|key| item.get(key)?.as_array()).flatten();
    let text: String = thoughts.filter_map(|thought| text_at(thought, "text")).collect();
    let encrypted = text_at(item, "encrypted_content").map(str::to_owned);
    match encrypted {
        Some(payload) if text.is_empty() => SeenPart::RedactedThinking { payload },
        signature => SeenPart::Thinking { text, signature },
    }
}

fn read_call(item: &Value, at: &str, findings: &mut Findings) -> SeenPart {
    let arguments = text_at(item, "arguments");
    if arguments.is_none() {
        findings.refuse(format!("{at}arguments: a text is required"));
    }
    let text = arguments.unwrap_or_default();
    SeenPart::Call {
        id: read_call_id(item, at, findings),
        name: findings.required_text(item, "name", at),
        arguments: serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
    }
}

fn read_call_id(item: &Value, at: &str, findings: &mut Findings) -> String {
    let id = findings.required_text(item, "call_id", at);
    if id.len() > LONGEST_CALL_ID {
        findings.refuse(format!("{at}call_id: expected a text with a maximum length of {LONGEST_CALL_ID}"));
    }
    id
}

fn read_result(item: &Value, at: &str, findings: &mut Findings) -> SeenPart {
    let text = match item.get("output") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let parts = parts.iter().enumerate();
            let parts = parts.map(|(n, part)| read_part(part, false, &format!("{at}output[{n}]."), findings));
            SeenMessage { role: Role::Tool, parts: parts.collect() }.text()
        }
        Some(_) | None => {
            findings.refuse(format!("{at}output: a text or a list of parts is required"));
            String::new()
        }
    };
    SeenPart::Result { id: read_call_id(item, at, findings), text, is_error: false }
}

fn read_tools(body: &Value, findings: &mut Findings) -> Vec<SeenTool> {
    let tools = body.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate();
    tools.map(|(index, tool)| read_tool(tool, &format!("tools[{index}]."), findings)).collect()
}

fn read_tool(tool: &Value, at: &str, findings: &mut Findings) -> SeenTool {
    let kind = text_at(tool, "type").unwrap_or_default();
    if kind != "function" {
        if !SERVER_TOOLS.contains(&kind) {
            findings.refuse(format!("{at}type: unknown tool type {kind:?}"));
        }
        if kind == "code_interpreter" && tool.get("container").is_none() {
            findings.refuse(format!("{at}container: field required"));
        }
        return SeenTool { name: kind.to_owned(), description: String::new(), schema: None };
    }
    let schema = tool.get("parameters").cloned().unwrap_or_default();
    if tool.get("strict") == Some(&json!(true)) && !is_closed(&schema) {
        findings.refuse(format!("{at}parameters: every object must be closed and require all of its properties"));
    }
    SeenTool {
        name: findings.required_text(tool, "name", at),
        description: text_at(tool, "description").unwrap_or_default().to_owned(),
        schema: Some(schema),
    }
}

// What is written.

struct Status {
    word: String,
    incomplete: Option<&'static str>,
}

impl Status {
    fn word(word: &str) -> Self {
        Self { word: word.to_owned(), incomplete: None }
    }
}

fn status(reply: &FakeReply) -> Status {
    let refuses_in_words = reply.blocks.iter().any(|block| matches!(block, Block::Refusal(_)));
    let incomplete = |reason| Status { word: "incomplete".to_owned(), incomplete: Some(reason) };
    match &reply.finish {
        FakeFinish::Refusal if !refuses_in_words => incomplete("content_filter"),
        // A model that says no has completed its answer.
        FakeFinish::Natural | FakeFinish::Refusal => Status::word("completed"),
        FakeFinish::Length => incomplete("max_output_tokens"),
        FakeFinish::Pause => Status::word("in_progress"),
        FakeFinish::Unheard(word) => Status::word(word),
    }
}

fn response(serving: &Serving<'_>, status: &Status, items: &[Value]) -> Value {
    let usage = if status.word == "in_progress" && items.is_empty() { Value::Null } else { usage(serving.reply.usage) };
    json!({
        "id": format!("resp_fake{:08}", serving.number),
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status.word,
        "error": null,
        "incomplete_details": status.incomplete.map(|reason| json!({"reason": reason})),
        "model": serving.model,
        "output": items,
        "store": false,
        "usage": usage,
    })
}

fn usage(usage: FakeUsage) -> Value {
    let FakeUsage { input, output, cache_read, cache_write, reasoning } = usage;
    let input = input + cache_read + cache_write;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cache_read, "cache_write_tokens": cache_write},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input + output,
    })
}

fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_exceeded",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}

/// One item for each block of the reply.
fn whole_items(serving: &Serving<'_>) -> Vec<Value> {
    let reply = serving.reply;
    let items = reply.blocks.iter().enumerate().map(|(index, block)| {
        let id = |prefix: &str| format!("{prefix}_fake{:08}_{index}", serving.number);
        match block {
            Block::Text(text) => {
                let part =
                    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": reply.deltas.whole(text)});
                message(&id("msg"), &part)
            }
            Block::Refusal(words) => message(&id("msg"), &json!({"type": "refusal", "refusal": words})),
            Block::Thinking { text, signature } => {
                reasoning(&id("rs"), &json!([{"type": "summary_text", "text": text}]), signature)
            }
            Block::RedactedThinking { payload } => reasoning(&id("rs"), &json!([]), payload),
            Block::Call(call) => function_call(&id("fc"), call),
            Block::Native(item) => item.clone(),
        }
    });
    items.collect()
}

fn message(id: &str, part: &Value) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [part]})
}

fn reasoning(id: &str, summary: &Value, encrypted: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted})
}

fn function_call(id: &str, call: &FakeCall) -> Value {
    json!({
        "type": "function_call",
        "id": id,
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": "completed",
    })
}

/// The events of a stream, numbered.
struct Events(Vec<String>);

impl Events {
    fn tell(&mut self, name: &str, mut fields: Value) {
        fields["type"] = json!(name);
        fields["sequence_number"] = json!(self.0.len());
        self.0.push(format!("event: {name}\ndata: {fields}\n\n"));
    }
}

fn item_events(reply: &FakeReply, block: &Block, item: &Value, index: usize, events: &mut Events) {
    let id = item.get("id").cloned().unwrap_or_default();
    let mut opening = item.clone();
    let empty = match block {
        Block::Text(_) | Block::Refusal(_) => Some(("content", json!([]))),
        Block::Thinking { .. } => Some(("summary", json!([]))),
        Block::Call(_) => Some(("arguments", json!(""))),
        Block::RedactedThinking { .. } | Block::Native(_) => None,
    };
    if let Some((field, value)) = empty {
        opening[field] = value;
    }
    events.tell("response.output_item.added", json!({"output_index": index, "item": opening}));
    let mut grow = |kind: &str, place: Option<&str>, pieces: Vec<&str>, whole: (&str, &Value)| {
        let mut fields = json!({"output_index": index, "item_id": id});
        if let Some(place) = place {
            fields[place] = json!(0);
        }
        for piece in pieces {
            let mut delta = fields.clone();
            delta["delta"] = json!(piece);
            events.tell(&format!("response.{kind}.delta"), delta);
        }
        fields[whole.0] = whole.1.clone();
        events.tell(&format!("response.{kind}.done"), fields);
    };
    match block {
        Block::Text(text) => {
            let whole = ("text", &item["content"][0]["text"]);
            grow("output_text", Some("content_index"), reply.deltas.pieces(text), whole);
        }
        Block::Refusal(words) => {
            let whole = ("refusal", &item["content"][0]["refusal"]);
            grow("refusal", Some("content_index"), reply.deltas.split(words), whole);
        }
        Block::Thinking { text, .. } => {
            let whole = ("text", &item["summary"][0]["text"]);
            grow("reasoning_summary_text", Some("summary_index"), reply.deltas.split(text), whole);
        }
        Block::Call(call) => {
            grow(
                "function_call_arguments",
                None,
                reply.deltas.split(&call.arguments),
                ("arguments", &item["arguments"]),
            );
        }
        Block::RedactedThinking { .. } | Block::Native(_) => {}
    }
    events.tell("response.output_item.done", json!({"output_index": index, "item": item}));
}
