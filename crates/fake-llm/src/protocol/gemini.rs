//! Gemini `generateContent`.

mod contents;
mod schema;

use serde_json::{Value, json};

use super::{Dialect, Findings, Protocol, Serving, quoted};
use crate::fault::{FakeProviderError, RetryAfter};
use crate::reply::{Block, FakeCall, FakeFinish, FakeReply, FakeUsage};
use crate::request::Headers;
use crate::seen::{SeenRequest, SeenTool, StreamMode};

pub(super) struct Gemini;

const KNOWN_FIELDS: &[&str] = &[
    "cachedContent",
    "contents",
    "generationConfig",
    "safetySettings",
    "serviceTier",
    "store",
    "systemInstruction",
    "toolConfig",
    "tools",
];

const KNOWN_SETTINGS: &[&str] = &[
    "candidateCount",
    "frequencyPenalty",
    "logprobs",
    "maxOutputTokens",
    "mediaResolution",
    "presencePenalty",
    "responseJsonSchema",
    "responseLogprobs",
    "responseMimeType",
    "responseModalities",
    "responseSchema",
    "seed",
    "speechConfig",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
];

const PROVIDERS_TOOLS: &[&str] = &["codeExecution", "fileSearch", "googleMaps", "googleSearch", "urlContext"];

impl Dialect for Gemini {
    fn serves(&self, path: &str) -> bool {
        path.contains("/models/") && (path.ends_with(":generateContent") || path.ends_with(":streamGenerateContent"))
    }

    fn check_headers(&self, _headers: &Headers, _findings: &mut Findings) {}

    fn has_key(&self, headers: &Headers) -> bool {
        // A key, or the token of a project of Google Cloud.
        let token = headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
        headers.get("x-goog-api-key").or(token).is_some_and(|key| !key.is_empty())
    }

    fn read(&self, path: &str, body: &Value, findings: &mut Findings) -> SeenRequest {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let model =
            path.rsplit_once("/models/").and_then(|(_, rest)| rest.split_once(':')).map_or("", |(name, _)| name);
        let streams = path.ends_with(":streamGenerateContent");
        if streams && !query.split('&').any(|pair| pair == "alt=sse") {
            findings.refuse("alt: only alt=sse is served here");
        }
        check_fields(body, KNOWN_FIELDS, "", findings);
        let settings = field(body, "generationConfig").unwrap_or(&Value::Null);
        check_settings(settings, model, findings);
        let tools = read_tools(body, findings);
        check_combination(body, settings, &tools, model, findings);
        SeenRequest {
            longest_answer: settings.get("maxOutputTokens").and_then(Value::as_u64),
            protocol: Protocol::Gemini,
            model: model.to_owned(),
            system: contents::read_system(body, findings),
            messages: contents::read(body, is_third(model), findings),
            tools,
            stream: if streams { StreamMode::EventsWithUsage } else { StreamMode::No },
        }
    }

    fn wants_thinking_back(&self) -> bool {
        true
    }

    fn document(&self, serving: &Serving<'_>) -> String {
        let reply = serving.reply;
        let parts = parts(reply, |text| vec![reply.deltas.whole(text)]);
        chunk(serving, &parts.join(","), &end(reply))
    }

    fn events(&self, serving: &Serving<'_>) -> Vec<String> {
        let reply = serving.reply;
        let pieces = |text: &str| reply.deltas.pieces(text).into_iter().map(str::to_owned).collect();
        let parts = parts(reply, pieces);
        let mut events: Vec<String> = parts.iter().map(|part| event(&chunk(serving, part, ""))).collect();
        events.push(event(&chunk(serving, r#"{"text":""}"#, &end(reply))));
        events
    }

    fn failure(&self, failure: &FakeProviderError) -> String {
        let reason = failure.code.as_deref().map(|code| format!(r#"{{"reason":{}}}"#, quoted(code)));
        let delay = match &failure.retry_after {
            Some(RetryAfter::Detail(delay)) => Some(format!(
                r#"{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":{}}}"#,
                quoted(delay)
            )),
            Some(_) | None => None,
        };
        let details: Vec<String> = reason.into_iter().chain(delay).collect();
        let details = if details.is_empty() { String::new() } else { format!(r#","details":[{}]"#, details.join(",")) };
        format!(
            r#"{{"error":{{"code":{},"message":{},"status":"{}"{}}}}}"#,
            failure.status,
            quoted(&failure.message),
            error_status(failure.status),
            details,
        )
    }

    fn failure_event(&self, failure: &FakeProviderError) -> String {
        event(&self.failure(failure))
    }

    fn idle_frames(&self) -> &'static str {
        ": keep-alive\n\n"
    }
}

// What is read. Fields may be written `likeThis` or `like_this`, and one that is null is not there.

fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = value.as_object()?;
    let found = fields.get(name).or_else(|| fields.iter().find(|(key, _)| camel(key) == name).map(|(_, value)| value));
    found.filter(|value| !value.is_null())
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        name + &initial.to_uppercase() + rest
    })
}

fn check_fields(value: &Value, known: &[&str], at: &str, findings: &mut Findings) {
    let Some(fields) = value.as_object() else {
        return findings.refuse(format!("{at}: an object is required"));
    };
    for unknown in fields.keys().filter(|name| !known.contains(&camel(name).as_str())) {
        findings.refuse(format!("Unknown name {unknown:?} at '{at}': Cannot find field."));
    }
}

/// Whether the model is of the third generation or later.
fn is_third(model: &str) -> bool {
    let version = model.strip_prefix("gemini-").unwrap_or_default();
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    major.parse::<u32>().is_ok_and(|major| major >= 3)
}

fn check_settings(settings: &Value, model: &str, findings: &mut Findings) {
    if settings.is_null() {
        return;
    }
    check_fields(settings, KNOWN_SETTINGS, "generation_config", findings);
    if let Some(thinking) = field(settings, "thinkingConfig") {
        let at = "generation_config.thinking_config";
        check_fields(thinking, &["includeThoughts", "thinkingBudget", "thinkingLevel"], at, findings);
        let level = field(thinking, "thinkingLevel").is_some();
        if level && field(thinking, "thinkingBudget").is_some() {
            findings.refuse("You can only set only one of thinking budget and thinking level.");
        }
        if level && !is_third(model) {
            findings.refuse("Thinking level is not supported for this model.");
        }
    }
    if let Some(output) = field(settings, "responseJsonSchema") {
        schema::check_json_schema(output, "generation_config.response_json_schema", findings);
        if field(settings, "responseMimeType").is_none() {
            findings.refuse("response_mime_type: required for a response schema");
        }
    }
}

/// What earlier models cannot do at once.
fn check_combination(body: &Value, settings: &Value, tools: &[SeenTool], model: &str, findings: &mut Findings) {
    let json_wanted = field(settings, "responseMimeType").is_some_and(|kind| kind == "application/json");
    if !is_third(model) && json_wanted && !tools.is_empty() {
        findings.refuse("Function calling with a response mime type: 'application/json' is unsupported");
    }
    let mixed = tools.iter().any(|tool| tool.schema.is_some()) && tools.iter().any(|tool| tool.schema.is_none());
    let config = field(body, "toolConfig").and_then(|config| field(config, "includeServerSideToolInvocations"));
    if mixed && !(is_third(model) && config == Some(&json!(true))) {
        findings.refuse("Built-in tools and function calling need tool_config.include_server_side_tool_invocations");
    }
}

fn read_tools(body: &Value, findings: &mut Findings) -> Vec<SeenTool> {
    let mut tools = Vec::new();
    for (index, entry) in field(body, "tools").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let at = format!("tools[{index}]");
        check_fields(entry, &[PROVIDERS_TOOLS, &["functionDeclarations"]].concat(), &at, findings);
        let declared = field(entry, "functionDeclarations").and_then(Value::as_array).into_iter().flatten();
        for (index, declaration) in declared.enumerate() {
            tools.push(read_declaration(declaration, &format!("{at}.function_declarations[{index}]"), findings));
        }
        let own = PROVIDERS_TOOLS.iter().filter(|name| field(entry, name).is_some());
        tools.extend(own.map(|name| SeenTool { name: (*name).to_owned(), description: String::new(), schema: None }));
    }
    tools
}

fn read_declaration(declaration: &Value, at: &str, findings: &mut Findings) -> SeenTool {
    let known = ["behavior", "description", "name", "parameters", "parametersJsonSchema", "response"];
    check_fields(declaration, &known, at, findings);
    let schema = match (field(declaration, "parameters"), field(declaration, "parametersJsonSchema")) {
        (Some(_), Some(_)) => {
            findings.refuse(format!("{at}: parameters and parameters_json_schema are mutually exclusive"));
            json!({"type": "object"})
        }
        (Some(parameters), None) => {
            schema::check_openapi(parameters, &format!("{at}.parameters"), findings);
            let mut schema = parameters.clone();
            if let Some(kind) = schema.get_mut("type") {
                *kind = kind.as_str().unwrap_or_default().to_lowercase().into();
            }
            schema
        }
        (None, Some(schema)) => {
            schema::check_json_schema(schema, &format!("{at}.parameters_json_schema"), findings);
            schema.clone()
        }
        (None, None) => json!({"type": "object"}),
    };
    SeenTool {
        name: findings.required_text(declaration, "name", &format!("{at}.")),
        description: declaration.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
        schema: Some(schema),
    }
}

// What is written.

fn event(json: &str) -> String {
    format!("data: {json}\n\n")
}

fn chunk(serving: &Serving<'_>, parts: &str, end: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}},"index":0{end}}}],"usageMetadata":{},"modelVersion":{},"responseId":"fake{:08}"}}"#,
        usage(serving.reply.usage),
        quoted(serving.model),
        serving.number,
    )
}

fn end(reply: &FakeReply) -> String {
    let reason = match &reply.finish {
        // The protocol knows no pause.
        FakeFinish::Natural | FakeFinish::Pause => "STOP",
        FakeFinish::Length => "MAX_TOKENS",
        FakeFinish::Refusal => "SAFETY",
        FakeFinish::Unheard(word) => word,
    };
    let words = reply.blocks.iter().find_map(|block| match block {
        Block::Refusal(words) => (!words.is_empty()).then(|| format!(r#","finishMessage":{}"#, quoted(words))),
        Block::Text(_)
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::Call(_)
        | Block::Native(_) => None,
    });
    format!(r#","finishReason":{}{}"#, quoted(reason), words.unwrap_or_default())
}

fn usage(usage: FakeUsage) -> String {
    let FakeUsage { input, output, cache_read, cache_write, reasoning } = usage;
    let (prompt, candidates) = (input + cache_read + cache_write, output.saturating_sub(reasoning));
    let total = prompt + output;
    format!(
        r#"{{"promptTokenCount":{prompt},"candidatesTokenCount":{candidates},"totalTokenCount":{total},"cachedContentTokenCount":{cache_read},"thoughtsTokenCount":{reasoning}}}"#
    )
}

fn error_status(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        408 | 504 => "DEADLINE_EXCEEDED",
        503 | 529 => "UNAVAILABLE",
        400..=499 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}

/// The parts of a reply, its texts cut by `pieces`. A thought without words is only a signature, and that goes on the
/// part that follows it.
fn parts(reply: &FakeReply, pieces: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut parts = Vec::new();
    let mut signature = None;
    for block in &reply.blocks {
        match block {
            Block::Text(text) => {
                let texts = pieces(text);
                let last = texts.len().saturating_sub(1);
                for (index, text) in texts.iter().enumerate() {
                    let signature = if index == last { signature.take() } else { None };
                    parts.push(part(&format!(r#""text":{}"#, quoted(text)), signature));
                }
            }
            Block::Call(call) => parts.push(part(&function_call(call), signature.take())),
            Block::Thinking { text, signature: only } if text.is_empty() => signature = Some(only.as_str()),
            Block::Thinking { text, signature } => {
                parts.push(part(&format!(r#""text":{},"thought":true"#, quoted(text)), Some(signature)));
            }
            Block::RedactedThinking { payload } => parts.push(part(r#""text":"","thought":true"#, Some(payload))),
            Block::Native(part) => parts.push(part.to_string()),
            Block::Refusal(_) => {} // said at the end
        }
    }
    parts.extend(signature.map(|signature| part(r#""text":"""#, Some(signature))));
    parts
}

fn part(fields: &str, signature: Option<&str>) -> String {
    let signature = signature.map(|signature| format!(r#","thoughtSignature":{}"#, quoted(signature)));
    format!("{{{fields}{}}}", signature.unwrap_or_default())
}

fn function_call(call: &FakeCall) -> String {
    // Calls come whole, so broken JSON cannot come at all; the nearest to it are arguments that are no object.
    let broken = serde_json::from_str::<Value>(&call.arguments).is_err();
    let args = if broken { quoted(&call.arguments) } else { call.arguments.clone() };
    let id = call.id.as_deref().unwrap_or_default();
    format!(r#""functionCall":{{"id":{},"name":{},"args":{args}}}"#, quoted(id), quoted(&call.name))
}
