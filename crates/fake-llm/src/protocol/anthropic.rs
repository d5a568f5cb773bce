//! Anthropic Messages.

use serde_json::{Value, json};

use super::{Dialect, Findings, Protocol, Serving, quoted};
use crate::answer::REQUEST_ID;
use crate::fault::FakeProviderError;
use crate::reply::{Block, FakeCall, FakeFinish, FakeReply, FakeUsage};
use crate::request::Headers;
use crate::seen::{Role, SeenMessage, SeenPart, SeenRequest, SeenTool, StreamMode};

pub(super) struct Anthropic;

const KNOWN_FIELDS: &[&str] = &[
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "output_format",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// Blocks that are only carried: what the provider's own tools leave in a history, and what users attach.
const CARRIED_BLOCKS: &[&str] = &[
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "container_upload",
    "document",
    "image",
    "mcp_tool_result",
    "mcp_tool_use",
    "search_result",
    "server_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
];

const MOST_CACHE_BREAKPOINTS: usize = 4;
const SMALLEST_THINKING_BUDGET: u64 = 1024;

impl Dialect for Anthropic {
    fn serves(&self, path: &str) -> bool {
        path.ends_with("/v1/messages")
    }

    fn check_headers(&self, headers: &Headers, findings: &mut Findings) {
        if headers.get("anthropic-version").is_none_or(str::is_empty) {
            findings.refuse("anthropic-version: header is required");
        }
    }

    fn has_key(&self, headers: &Headers) -> bool {
        headers.get("x-api-key").is_some_and(|key| !key.is_empty())
    }

    fn read(&self, _path: &str, body: &Value, findings: &mut Findings) -> SeenRequest {
        check_fields(body, KNOWN_FIELDS, "", findings);
        let limit = body.get("max_tokens").and_then(Value::as_u64).unwrap_or(0);
        if limit == 0 {
            findings.refuse("max_tokens: a positive integer is required");
        }
        check_thinking_budget(body, limit, findings);
        check_cache_breakpoints(body, findings);
        let mut messages: Vec<SeenMessage> = Vec::new();
        for (index, message) in findings.required_list(body, "messages", "").iter().enumerate() {
            let message = read_message(message, &format!("messages.{index}"), findings);
            match messages.last_mut() {
                // The provider combines consecutive messages of one role, so results may be spread over several.
                Some(last) if last.role == message.role => last.parts.extend(message.parts),
                Some(_) | None => messages.push(message),
            }
        }
        check_order(&messages, findings);
        SeenRequest {
            longest_answer: Some(limit),
            protocol: Protocol::Anthropic,
            model: findings.required_text(body, "model", ""),
            system: read_system(body, findings),
            messages,
            tools: read_tools(body, findings),
            stream: if body.get("stream") == Some(&json!(true)) { StreamMode::EventsWithUsage } else { StreamMode::No },
        }
    }

    fn wants_thinking_back(&self) -> bool {
        true
    }

    fn document(&self, serving: &Serving<'_>) -> String {
        let reply = serving.reply;
        let content: Vec<String> = reply.blocks.iter().filter_map(|block| whole_block(reply, block)).collect();
        format!(
            r#"{{"id":"{}","type":"message","role":"assistant","model":{},"content":[{}],"stop_reason":{},"stop_sequence":null,"usage":{}}}"#,
            message_id(serving),
            quoted(serving.model),
            content.join(","),
            quoted(stop_reason(reply)),
            usage(reply.usage, reply.usage.output),
        )
    }

    fn events(&self, serving: &Serving<'_>) -> Vec<String> {
        let reply = serving.reply;
        let start = format!(
            r#"{{"type":"message_start","message":{{"id":"{}","type":"message","role":"assistant","model":{},"content":[],"stop_reason":null,"stop_sequence":null,"usage":{}}}}}"#,
            message_id(serving),
            quoted(serving.model),
            usage(reply.usage, 1),
        );
        let mut events = vec![event("message_start", &start)];
        for (index, block) in reply.blocks.iter().filter(|block| is_shown(block)).enumerate() {
            block_events(reply, block, index, &mut events);
        }
        let end = format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":{},"stop_sequence":null}},"usage":{}}}"#,
            quoted(stop_reason(reply)),
            usage(reply.usage, reply.usage.output),
        );
        events.push(event("message_delta", &end));
        events.push(event("message_stop", r#"{"type":"message_stop"}"#));
        events
    }

    fn failure(&self, failure: &FakeProviderError) -> String {
        format!(
            r#"{{"type":"error","error":{{"type":"{}","message":{}}},"request_id":"{REQUEST_ID}"}}"#,
            error_type(failure.status),
            quoted(&failure.message),
        )
    }

    fn failure_event(&self, failure: &FakeProviderError) -> String {
        event("error", &self.failure(failure))
    }

    fn idle_frames(&self) -> &'static str {
        ": keep-alive\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n"
    }
}

// What is read.

fn check_fields(value: &Value, known: &[&str], at: &str, findings: &mut Findings) {
    let Some(fields) = value.as_object() else {
        return findings.refuse(format!("{at}: an object is required"));
    };
    for unknown in fields.keys().filter(|field| !known.contains(&field.as_str())) {
        findings.refuse(format!("{at}{unknown}: extra inputs are not permitted"));
    }
}

fn check_thinking_budget(body: &Value, limit: u64, findings: &mut Findings) {
    let Some(budget) = body.pointer("/thinking/budget_tokens").and_then(Value::as_u64) else { return };
    if budget < SMALLEST_THINKING_BUDGET || budget >= limit {
        findings.refuse("thinking.budget_tokens: must be at least 1024 and less than max_tokens");
    }
}

fn check_cache_breakpoints(body: &Value, findings: &mut Findings) {
    let elements = |key: &str| body.get(key).and_then(Value::as_array).into_iter().flatten();
    let blocks = elements("messages").filter_map(|message| message.get("content")?.as_array()).flatten();
    let marked = elements("system")
        .chain(elements("tools"))
        .chain(blocks)
        .filter(|block| block.get("cache_control").is_some_and(|mark| !mark.is_null()));
    if marked.count() > MOST_CACHE_BREAKPOINTS {
        findings.refuse("at most 4 blocks may have cache_control");
    }
}

fn check_order(messages: &[SeenMessage], findings: &mut Findings) {
    if messages.first().is_some_and(|first| first.role != Role::User) {
        findings.refuse("messages: the first message must use the user role");
    }
    if let Some(SeenMessage { role: Role::Assistant, parts }) = messages.last()
        && let Some(SeenPart::Text(text)) = parts.last()
        && text.ends_with(char::is_whitespace)
    {
        findings.refuse("messages: final assistant content cannot end with trailing whitespace");
    }
}

fn read_system(body: &Value, findings: &mut Findings) -> String {
    match body.get("system") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts = blocks.iter().enumerate().map(|(index, block)| {
                let at = format!("system.{index}.");
                check_fields(block, &["type", "text", "cache_control", "citations"], &at, findings);
                read_text(block, &at, findings)
            });
            texts.collect::<Vec<_>>().join("\n")
        }
        Some(_) => {
            findings.refuse("system: a text or a list of text blocks is required");
            String::new()
        }
    }
}

fn read_message(message: &Value, at: &str, findings: &mut Findings) -> SeenMessage {
    check_fields(message, &["role", "content"], &format!("{at}."), findings);
    let role = match message.get("role").and_then(Value::as_str) {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(_) | None => {
            findings.refuse(format!("{at}.role: must be user or assistant"));
            Role::User
        }
    };
    let parts: Vec<SeenPart> = match message.get("content") {
        Some(Value::String(text)) if !text.trim().is_empty() => vec![SeenPart::Text(text.clone())],
        Some(Value::Array(blocks)) if !blocks.is_empty() => blocks
            .iter()
            .enumerate()
            .map(|(index, block)| read_block(block, role, &format!("{at}.content.{index}."), findings))
            .collect(),
        Some(_) | None => {
            findings.refuse(format!("{at}: messages must have non-empty content"));
            Vec::new()
        }
    };
    let is_result = |part: &SeenPart| matches!(part, SeenPart::Result { .. });
    if parts.iter().skip_while(|part| is_result(part)).any(is_result) {
        findings.refuse(format!("{at}.content: tool_result blocks must come first"));
    }
    SeenMessage { role, parts }
}

fn read_block(block: &Value, role: Role, at: &str, findings: &mut Findings) -> SeenPart {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
    let (fields, speaker): (&[&str], Option<Role>) = match kind {
        "text" => (&["type", "text", "cache_control", "citations"], None),
        "thinking" => (&["type", "thinking", "signature"], Some(Role::Assistant)),
        "redacted_thinking" => (&["type", "data"], Some(Role::Assistant)),
        "tool_use" => (&["type", "id", "name", "input", "cache_control", "caller"], Some(Role::Assistant)),
        "tool_result" => (&["type", "tool_use_id", "content", "is_error", "cache_control"], Some(Role::User)),
        carried => {
            if !CARRIED_BLOCKS.contains(&carried) {
                findings.refuse(format!("{at}type: unknown block type {carried:?}"));
            }
            return SeenPart::Other(block.clone());
        }
    };
    check_fields(block, fields, at, findings);
    if speaker.is_some_and(|speaker| speaker != role) {
        findings.refuse(format!("{at}type: a {kind} block cannot be in a message of this role"));
    }
    match kind {
        "text" => SeenPart::Text(read_text(block, at, findings)),
        "thinking" => SeenPart::Thinking {
            text: block.get("thinking").and_then(Value::as_str).unwrap_or_default().to_owned(),
            signature: Some(findings.required_text(block, "signature", at)),
        },
        "redacted_thinking" => SeenPart::RedactedThinking { payload: findings.required_text(block, "data", at) },
        "tool_use" => read_call(block, at, findings),
        _ => read_result(block, at, findings),
    }
}

fn read_text(block: &Value, at: &str, findings: &mut Findings) -> String {
    let text = block.get("text").and_then(Value::as_str).unwrap_or_default();
    if text.trim().is_empty() {
        findings.refuse(format!("{at}text: text content blocks must contain non-whitespace text"));
    }
    text.to_owned()
}

fn read_call(block: &Value, at: &str, findings: &mut Findings) -> SeenPart {
    let arguments = block.get("input").cloned().unwrap_or_default();
    if !arguments.is_object() {
        findings.refuse(format!("{at}input: an object is required"));
    }
    let id = findings.required_text(block, "id", at);
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        findings.refuse(format!("{at}id: must match ^[a-zA-Z0-9_-]+$"));
    }
    SeenPart::Call { id, name: findings.required_text(block, "name", at), arguments }
}

fn read_result(block: &Value, at: &str, findings: &mut Findings) -> SeenPart {
    let text = match block.get("content") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts = blocks.iter().enumerate().filter(|(_, inner)| inner.get("type") == Some(&json!("text")));
            texts.map(|(index, inner)| read_text(inner, &format!("{at}content.{index}."), findings)).collect()
        }
        Some(_) => {
            findings.refuse(format!("{at}content: a text or a list of blocks is required"));
            String::new()
        }
    };
    let is_error = block.get("is_error") == Some(&json!(true));
    SeenPart::Result { id: findings.required_text(block, "tool_use_id", at), text, is_error }
}

fn read_tools(body: &Value, findings: &mut Findings) -> Vec<SeenTool> {
    let tools = body.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate();
    let read = tools.map(|(index, tool)| {
        let at = format!("tools.{index}.");
        // A tool of another type is one the provider runs itself.
        let custom = tool.get("type").is_none_or(|kind| kind == "custom");
        if custom && tool.get("input_schema").is_none() {
            findings.refuse(format!("{at}input_schema: field required"));
        }
        SeenTool {
            name: findings.required_text(tool, "name", &at),
            description: tool.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
            schema: tool.get("input_schema").filter(|_| custom).cloned(),
        }
    });
    read.collect()
}

// What is written.

fn message_id(serving: &Serving<'_>) -> String {
    format!("msg_fake{:08}", serving.number)
}

fn event(name: &str, json: &str) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

fn stop_reason(reply: &FakeReply) -> &str {
    match &reply.finish {
        FakeFinish::Natural if reply.tool_calls().next().is_some() => "tool_use",
        FakeFinish::Natural => "end_turn",
        FakeFinish::Length => "max_tokens",
        FakeFinish::Refusal => "refusal",
        FakeFinish::Pause => "pause_turn",
        FakeFinish::Unheard(word) => word,
    }
}

fn usage(usage: FakeUsage, output: u64) -> String {
    let FakeUsage { input, cache_read, cache_write, .. } = usage;
    format!(
        r#"{{"input_tokens":{input},"cache_creation_input_tokens":{cache_write},"cache_read_input_tokens":{cache_read},"output_tokens":{output}}}"#
    )
}

fn error_type(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

/// A refusal without words is only a stop reason.
fn is_shown(block: &Block) -> bool {
    !matches!(block, Block::Refusal(words) if words.is_empty())
}

fn whole_block(reply: &FakeReply, block: &Block) -> Option<String> {
    let json = match block {
        Block::Refusal(words) if words.is_empty() => return None,
        Block::Text(text) | Block::Refusal(text) => {
            format!(r#"{{"type":"text","text":{}}}"#, quoted(&reply.deltas.whole(text)))
        }
        Block::Thinking { text, signature } => {
            format!(r#"{{"type":"thinking","thinking":{},"signature":{}}}"#, quoted(text), quoted(signature))
        }
        Block::RedactedThinking { payload } => redacted(payload),
        Block::Call(call) => {
            // A document cannot carry broken JSON inside; the nearest to it is input that is no object.
            let broken = serde_json::from_str::<Value>(&call.arguments).is_err();
            let input = if broken { quoted(&call.arguments) } else { call.arguments.clone() };
            call_block(call, &input)
        }
        Block::Native(block) => block.to_string(),
    };
    Some(json)
}

fn redacted(payload: &str) -> String {
    format!(r#"{{"type":"redacted_thinking","data":{}}}"#, quoted(payload))
}

fn call_block(call: &FakeCall, input: &str) -> String {
    let id = call.id.as_deref().unwrap_or_default();
    format!(r#"{{"type":"tool_use","id":{},"name":{},"input":{input}}}"#, quoted(id), quoted(&call.name))
}

fn block_events(reply: &FakeReply, block: &Block, index: usize, events: &mut Vec<String>) {
    let (opening, deltas): (String, Vec<(&str, &str, &str)>) = match block {
        Block::Text(text) | Block::Refusal(text) => (
            r#"{"type":"text","text":""}"#.to_owned(),
            reply.deltas.pieces(text).into_iter().map(|piece| ("text_delta", "text", piece)).collect(),
        ),
        Block::Thinking { text, signature } => {
            let texts = reply.deltas.split(text).into_iter().map(|piece| ("thinking_delta", "thinking", piece));
            let signed = texts.chain([("signature_delta", "signature", signature.as_str())]);
            (r#"{"type":"thinking","thinking":"","signature":""}"#.to_owned(), signed.collect())
        }
        Block::Call(call) => {
            let parts = [""].into_iter().chain(reply.deltas.split(&call.arguments));
            let deltas = parts.map(|piece| ("input_json_delta", "partial_json", piece));
            (call_block(call, "{}"), deltas.collect())
        }
        Block::RedactedThinking { payload } => (redacted(payload), Vec::new()),
        Block::Native(block) => (block.to_string(), Vec::new()),
    };
    let start = format!(r#"{{"type":"content_block_start","index":{index},"content_block":{opening}}}"#);
    events.push(event("content_block_start", &start));
    events.extend(deltas.into_iter().map(|(kind, field, piece)| {
        let delta = format!(r#"{{"type":"{kind}","{field}":{}}}"#, quoted(piece));
        event("content_block_delta", &format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#))
    }));
    events.push(event("content_block_stop", &format!(r#"{{"type":"content_block_stop","index":{index}}}"#)));
}
