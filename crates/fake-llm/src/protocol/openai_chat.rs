//! Chat Completions as `OpenAI` has them, and what its many relatives add to it (`reasoning_content`).

use serde_json::{Value, json};

use super::{Dialect, Findings, Protocol, Serving, quoted};
use crate::fault::FakeProviderError;
use crate::reply::{Block, FakeCall, FakeFinish, FakeReply, FakeUsage};
use crate::request::Headers;
use crate::seen::{Role, SeenMessage, SeenPart, SeenRequest, SeenTool, StreamMode};

pub(super) struct OpenAiChat;

impl Dialect for OpenAiChat {
    fn serves(&self, path: &str) -> bool {
        path.ends_with("/chat/completions")
    }

    fn check_headers(&self, _headers: &Headers, _findings: &mut Findings) {}

    fn has_key(&self, headers: &Headers) -> bool {
        let key = headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
        key.is_some_and(|key| !key.trim().is_empty())
    }

    fn read(&self, _path: &str, body: &Value, findings: &mut Findings) -> SeenRequest {
        check_companions(body, findings);
        let mut system = Vec::new();
        let mut messages = Vec::new();
        for (index, message) in findings.required_list(body, "messages", "").iter().enumerate() {
            match read_message(message, &format!("messages[{index}]"), findings) {
                Turn::System(text) => system.push(text),
                Turn::Said(message) => messages.push(message),
            }
        }
        SeenRequest {
            longest_answer: body
                .get("max_completion_tokens")
                .or_else(|| body.get("max_tokens"))
                .and_then(Value::as_u64),
            protocol: Protocol::OpenAiChat,
            model: findings.required_text(body, "model", ""),
            system: system.join("\n"),
            messages,
            tools: read_tools(body, findings),
            stream: match (is_true(body, "/stream"), is_true(body, "/stream_options/include_usage")) {
                (false, _) => StreamMode::No,
                (true, false) => StreamMode::Events,
                (true, true) => StreamMode::EventsWithUsage,
            },
        }
    }

    fn wants_thinking_back(&self) -> bool {
        false
    }

    fn document(&self, serving: &Serving<'_>) -> String {
        let reply = serving.reply;
        format!(
            r#"{{"id":"{}","object":"chat.completion","created":1700000000,"model":{},"choices":[{{"index":0,"message":{},"logprobs":null,"finish_reason":{}}}],"usage":{}}}"#,
            completion_id(serving),
            quoted(serving.model),
            whole_message(reply),
            quoted(finish_reason(reply)),
            usage(reply.usage),
        )
    }

    fn events(&self, serving: &Serving<'_>) -> Vec<String> {
        let reply = serving.reply;
        let mut events = vec![chunk(serving, r#"{"role":"assistant","content":"","refusal":null}"#, None)];
        let mut calls = 0;
        for block in &reply.blocks {
            let deltas = block_deltas(reply, block, calls);
            calls += usize::from(matches!(block, Block::Call(_)));
            events.extend(deltas.iter().map(|delta| chunk(serving, delta, None)));
        }
        events.push(chunk(serving, "{}", Some(finish_reason(reply))));
        if serving.stream == StreamMode::EventsWithUsage {
            events.push(frame(serving, "", &usage(reply.usage)));
        }
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    fn failure(&self, failure: &FakeProviderError) -> String {
        let code = failure.code.as_deref().map_or_else(|| "null".to_owned(), quoted);
        format!(
            r#"{{"error":{{"message":{},"type":"{}","param":null,"code":{code}}}}}"#,
            quoted(&failure.message),
            error_type(failure.status),
        )
    }

    fn failure_event(&self, failure: &FakeProviderError) -> String {
        format!("data: {}\n\n", self.failure(failure))
    }

    fn idle_frames(&self) -> &'static str {
        ": keep-alive\n\n"
    }
}

// What is read.

enum Turn {
    System(String),
    Said(SeenMessage),
}

fn is_true(body: &Value, pointer: &str) -> bool {
    body.pointer(pointer) == Some(&json!(true))
}

/// Fields that are only allowed beside others.
fn check_companions(body: &Value, findings: &mut Findings) {
    if body.get("stream_options").is_some_and(|options| !options.is_null()) && !is_true(body, "/stream") {
        findings.refuse("stream_options: only allowed when stream is enabled");
    }
    if body.get("max_tokens").is_some() && body.get("max_completion_tokens").is_some() {
        findings.refuse("max_tokens: not allowed together with max_completion_tokens");
    }
    for companion in ["tool_choice", "parallel_tool_calls"] {
        if body.get(companion).is_some() && body.get("tools").is_none() {
            findings.refuse(format!("{companion}: only allowed when tools are specified"));
        }
    }
}

fn read_message(message: &Value, at: &str, findings: &mut Findings) -> Turn {
    let text = read_content(message, at, findings);
    match message.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Turn::System(texts(&text)),
        Some("user") => Turn::Said(SeenMessage { role: Role::User, parts: text }),
        Some("tool") => {
            let id = findings.required_text(message, "tool_call_id", &format!("{at}."));
            let result = SeenPart::Result { id, text: texts(&text), is_error: false };
            Turn::Said(SeenMessage { role: Role::Tool, parts: vec![result] })
        }
        Some("assistant") => {
            Turn::Said(SeenMessage { role: Role::Assistant, parts: read_reply(message, text, at, findings) })
        }
        Some(_) | None => {
            findings.refuse(format!("{at}.role: must be system, developer, user, assistant or tool"));
            Turn::Said(SeenMessage { role: Role::User, parts: text })
        }
    }
}

fn texts(parts: &[SeenPart]) -> String {
    SeenMessage { role: Role::User, parts: parts.to_vec() }.text()
}

fn read_content(message: &Value, at: &str, findings: &mut Findings) -> Vec<SeenPart> {
    let speaks_otherwise = message.get("tool_calls").is_some() || message.get("refusal").is_some_and(Value::is_string);
    match message.get("content") {
        Some(Value::String(text)) => vec![SeenPart::Text(text.clone())],
        Some(Value::Array(parts)) if !parts.is_empty() => parts
            .iter()
            .enumerate()
            .map(|(index, part)| read_part(part, &format!("{at}.content[{index}]"), findings))
            .collect(),
        None | Some(Value::Null) if speaks_otherwise => Vec::new(),
        Some(_) | None => {
            findings.refuse(format!("{at}.content: a text or a list of parts is required"));
            Vec::new()
        }
    }
}

fn read_part(part: &Value, at: &str, findings: &mut Findings) -> SeenPart {
    match part.get("type").and_then(Value::as_str) {
        Some("text") => SeenPart::Text(findings.required_text(part, "text", &format!("{at}."))),
        Some("image_url" | "input_audio" | "file" | "refusal" | "video_url") => SeenPart::Other(part.clone()),
        Some(_) | None => {
            findings.refuse(format!("{at}.type: unknown part type"));
            SeenPart::Other(part.clone())
        }
    }
}

fn read_reply(message: &Value, text: Vec<SeenPart>, at: &str, findings: &mut Findings) -> Vec<SeenPart> {
    // Some want the field even where there was no thought.
    let reasoning = message.get("reasoning_content").and_then(Value::as_str).filter(|thought| !thought.is_empty());
    let thinking = reasoning.map(|text| SeenPart::Thinking { text: text.to_owned(), signature: None });
    let mut parts: Vec<SeenPart> = thinking.into_iter().chain(text).collect();
    if message.get("tool_calls").is_some() {
        let calls = findings.required_list(message, "tool_calls", &format!("{at}.")).iter().enumerate();
        parts.extend(calls.map(|(index, call)| read_call(call, &format!("{at}.tool_calls[{index}]."), findings)));
    }
    parts
}

fn read_call(call: &Value, at: &str, findings: &mut Findings) -> SeenPart {
    if call.get("type") != Some(&json!("function")) {
        findings.refuse(format!("{at}type: must be function"));
    }
    let function = call.get("function").unwrap_or(&Value::Null);
    let arguments = function.get("arguments").and_then(Value::as_str);
    if arguments.is_none() {
        findings.refuse(format!("{at}function.arguments: a text is required"));
    }
    let text = arguments.unwrap_or_default();
    SeenPart::Call {
        id: findings.required_text(call, "id", at),
        name: findings.required_text(function, "name", &format!("{at}function.")),
        arguments: serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
    }
}

fn read_tools(body: &Value, findings: &mut Findings) -> Vec<SeenTool> {
    if body.get("tools").is_none() {
        return Vec::new();
    }
    let tools = findings.required_list(body, "tools", "").iter().enumerate();
    let read = tools.map(|(index, tool)| {
        if tool.get("type") != Some(&json!("function")) {
            findings.refuse(format!("tools[{index}].type: must be function"));
        }
        let function = tool.get("function").unwrap_or(&Value::Null);
        SeenTool {
            name: findings.required_text(function, "name", &format!("tools[{index}].function.")),
            description: function.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
            schema: function.get("parameters").cloned(),
        }
    });
    read.collect()
}

// What is written.

fn completion_id(serving: &Serving<'_>) -> String {
    format!("chatcmpl-fake{:08}", serving.number)
}

fn finish_reason(reply: &FakeReply) -> &str {
    let refuses_in_words = reply.blocks.iter().any(|block| matches!(block, Block::Refusal(_)));
    match &reply.finish {
        FakeFinish::Natural if reply.tool_calls().next().is_some() => "tool_calls",
        FakeFinish::Refusal if !refuses_in_words => "content_filter",
        // The protocol knows no pause, and a model that says no has stopped.
        FakeFinish::Natural | FakeFinish::Refusal | FakeFinish::Pause => "stop",
        FakeFinish::Length => "length",
        FakeFinish::Unheard(word) => word,
    }
}

fn usage(usage: FakeUsage) -> String {
    let FakeUsage { input, output, cache_read, cache_write, reasoning } = usage;
    let prompt = input + cache_read + cache_write;
    let total = prompt + output;
    format!(
        r#"{{"prompt_tokens":{prompt},"completion_tokens":{output},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":{cache_read}}},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}"#
    )
}

fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}

fn frame(serving: &Serving<'_>, choices: &str, usage: &str) -> String {
    format!(
        "data: {{\"id\":\"{}\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":{},\"choices\":[{choices}],\"usage\":{usage}}}\n\n",
        completion_id(serving),
        quoted(serving.model),
    )
}

fn chunk(serving: &Serving<'_>, delta: &str, finish: Option<&str>) -> String {
    let finish = finish.map_or_else(|| "null".to_owned(), quoted);
    let choice = format!(r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}"#);
    frame(serving, &choice, "null")
}

fn whole_message(reply: &FakeReply) -> String {
    let mut texts = None;
    let mut reasoning = None;
    let mut refusal = None;
    let mut calls = Vec::new();
    for block in &reply.blocks {
        match block {
            Block::Text(text) => texts.get_or_insert_with(String::new).push_str(&reply.deltas.whole(text)),
            Block::Thinking { text, .. } => reasoning.get_or_insert_with(String::new).push_str(text),
            Block::Refusal(words) => refusal.get_or_insert_with(String::new).push_str(words),
            Block::Call(call) => calls.push(call_json(call, None)),
            // This protocol has no place for them.
            Block::RedactedThinking { .. } | Block::Native(_) => {}
        }
    }
    let or_null = |text: Option<String>| text.map_or_else(|| "null".to_owned(), |text| quoted(&text));
    let reasoning = reasoning.map(|text| format!(r#","reasoning_content":{}"#, quoted(&text))).unwrap_or_default();
    let calls = if calls.is_empty() { String::new() } else { format!(r#","tool_calls":[{}]"#, calls.join(",")) };
    let (content, refusal) = (or_null(texts), or_null(refusal));
    format!(r#"{{"role":"assistant","content":{content},"refusal":{refusal}{reasoning}{calls}}}"#)
}

fn call_json(call: &FakeCall, opening_at: Option<usize>) -> String {
    let index = opening_at.map(|index| format!(r#""index":{index},"#)).unwrap_or_default();
    let arguments = if opening_at.is_some() { "" } else { &call.arguments };
    let id = call.id.as_deref().unwrap_or_default();
    format!(
        r#"{{{index}"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}}"#,
        quoted(id),
        quoted(&call.name),
        quoted(arguments),
    )
}

fn block_deltas(reply: &FakeReply, block: &Block, call_index: usize) -> Vec<String> {
    let field = |name: &str, piece: &str| format!(r#"{{"{name}":{}}}"#, quoted(piece));
    match block {
        Block::Text(text) => reply.deltas.pieces(text).into_iter().map(|piece| field("content", piece)).collect(),
        Block::Thinking { text, .. } => {
            reply.deltas.split(text).into_iter().map(|piece| field("reasoning_content", piece)).collect()
        }
        Block::Refusal(words) => reply.deltas.split(words).into_iter().map(|piece| field("refusal", piece)).collect(),
        Block::Call(call) => {
            let opening = format!(r#"{{"tool_calls":[{}]}}"#, call_json(call, Some(call_index)));
            let arguments = reply.deltas.split(&call.arguments).into_iter().map(|piece| {
                let piece = quoted(piece);
                format!(r#"{{"tool_calls":[{{"index":{call_index},"function":{{"arguments":{piece}}}}}]}}"#)
            });
            [opening].into_iter().chain(arguments).collect()
        }
        Block::RedactedThinking { .. } | Block::Native(_) => Vec::new(),
    }
}
