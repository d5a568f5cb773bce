//! The conversation in a request: roles, parts, calls and their answers.

use serde_json::{Value, json};

use super::{check_fields, field};
use crate::protocol::Findings;
use crate::seen::{Role, SeenMessage, SeenPart};

/// The fields that say what a part is: a part has exactly one of them.
const KINDS: &[&str] = &[
    "codeExecutionResult",
    "executableCode",
    "fileData",
    "functionCall",
    "functionResponse",
    "inlineData",
    "text",
    "toolCall",
    "toolResponse",
];

/// The fields that a part may have beside the one that says what it is.
const BESIDE: &[&str] = &["mediaResolution", "partMetadata", "thought", "thoughtSignature", "videoMetadata"];

/// What the manual allows in place of a signature that does not exist, as it stands there and in base64.
const STAND_INS: [&str; 2] = ["skip_thought_signature_validator", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="];

/// A call that waits for its answer.
struct OpenCall {
    id: String,
    name: String,
}

pub fn read_system(body: &Value, findings: &mut Findings) -> String {
    let Some(system) = field(body, "systemInstruction") else { return String::new() };
    check_fields(system, &["parts", "role"], "system_instruction", findings);
    let parts = findings.required_list(system, "parts", "system_instruction.");
    let texts = parts.iter().map(|part| part.get("text").and_then(Value::as_str).unwrap_or_default());
    texts.collect::<Vec<_>>().join("\n")
}

pub fn read(body: &Value, signs_calls: bool, findings: &mut Findings) -> Vec<SeenMessage> {
    let contents = findings.required_list(body, "contents", "");
    let mut open = Vec::new();
    let mut messages: Vec<SeenMessage> = Vec::with_capacity(contents.len());
    for (index, content) in contents.iter().enumerate() {
        let at = format!("contents[{index}]");
        let message = read_content(content, &at, signs_calls, &mut open, findings);
        match messages.last_mut() {
            // Consecutive messages of the model are one message.
            Some(last) if last.role == Role::Assistant && message.role == Role::Assistant => {
                last.parts.extend(message.parts);
            }
            Some(_) | None => messages.push(message),
        }
    }
    check_order(&messages, findings);
    if signs_calls {
        check_signatures(contents, findings);
    }
    messages
}

fn check_order(messages: &[SeenMessage], findings: &mut Findings) {
    if messages.windows(2).any(|pair| pair[0].role == pair[1].role) {
        findings.refuse("contents: roles must alternate: the user spoke twice in a row");
    }
    let is_model = |message: Option<&SeenMessage>| message.is_some_and(|message| message.role == Role::Assistant);
    if is_model(messages.first()) || is_model(messages.last()) {
        findings.refuse("contents: must begin and end with the user role");
    }
}

/// Since the user last spoke, the first call of each step carries a signature.
fn check_signatures(contents: &[Value], findings: &mut Findings) {
    let parts = |content: &Value| content.get("parts").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_question = |content: &Value| {
        content.get("role") != Some(&json!("model"))
            && parts(content).iter().any(|part| field(part, "functionResponse").is_none())
    };
    let asked = contents.iter().rposition(is_question).unwrap_or(0);
    for content in &contents[asked.min(contents.len())..] {
        let parts = parts(content);
        let first = parts.iter().find(|part| field(part, "functionCall").is_some());
        if first.is_some_and(|call| field(call, "thoughtSignature").is_none()) {
            findings.refuse("Function call is missing a thought_signature in functionCall parts.");
        }
    }
}

fn read_content(
    content: &Value,
    at: &str,
    takes_files: bool,
    open: &mut Vec<OpenCall>,
    findings: &mut Findings,
) -> SeenMessage {
    check_fields(content, &["parts", "role"], at, findings);
    let role = match content.get("role").and_then(Value::as_str) {
        Some("user") | None => Role::User,
        Some("model") => Role::Assistant,
        Some(_) => {
            findings.refuse(format!("{at}.role: must be user or model"));
            Role::User
        }
    };
    if role == Role::Assistant {
        open.clear();
    }
    let mut parts = Vec::new();
    for (index, part) in findings.required_list(content, "parts", &format!("{at}.")).iter().enumerate() {
        let at = format!("{at}.parts[{index}]");
        check_part(part, role, &at, findings);
        if let Some(response) = field(part, "functionResponse") {
            parts.push(read_response(response, &at, takes_files, open, findings));
        } else {
            read_part(part, &at, open, &mut parts, findings);
        }
    }
    SeenMessage { role, parts }
}

fn check_part(part: &Value, role: Role, at: &str, findings: &mut Findings) {
    check_fields(part, &[KINDS, BESIDE].concat(), at, findings);
    let kinds: Vec<&str> = KINDS.iter().copied().filter(|kind| field(part, kind).is_some()).collect();
    match kinds.as_slice() {
        ["functionCall"] if role != Role::Assistant => findings.refuse(format!("{at}: a user cannot call")),
        ["functionResponse"] if role != Role::User => findings.refuse(format!("{at}: a model cannot answer calls")),
        [_] => {}
        _ => findings.refuse(format!("{at}.data: required oneof field 'data' must have one initialized field")),
    }
}

fn read_part(part: &Value, at: &str, open: &mut Vec<OpenCall>, parts: &mut Vec<SeenPart>, findings: &mut Findings) {
    let signature = field(part, "thoughtSignature").and_then(Value::as_str).filter(|text| !STAND_INS.contains(text));
    let signature = signature.map(str::to_owned);
    let text = field(part, "text").and_then(Value::as_str).map(str::to_owned);
    match (text, field(part, "functionCall")) {
        (Some(text), _) if field(part, "thought") == Some(&json!(true)) => parts.extend(match signature {
            Some(payload) if text.is_empty() => Some(SeenPart::RedactedThinking { payload }),
            Some(signature) => Some(SeenPart::Thinking { text, signature: Some(signature) }),
            None => None, // a thought without a signature is ignored
        }),
        (Some(text), _) => {
            parts.extend(wordless(signature));
            parts.push(SeenPart::Text(text));
        }
        (None, Some(call)) => {
            parts.extend(wordless(signature));
            parts.push(read_call(call, at, open, findings));
        }
        (None, None) => parts.push(SeenPart::Other(part.clone())),
    }
}

/// A signature on a part that is no thought itself.
fn wordless(signature: Option<String>) -> Option<SeenPart> {
    signature.map(|signature| SeenPart::Thinking { text: String::new(), signature: Some(signature) })
}

fn read_call(call: &Value, at: &str, open: &mut Vec<OpenCall>, findings: &mut Findings) -> SeenPart {
    check_fields(call, &["args", "id", "name"], at, findings);
    let arguments = field(call, "args").cloned().unwrap_or_else(|| json!({}));
    if !arguments.is_object() {
        findings.refuse(format!("{at}.function_call.args: an object is required"));
    }
    let name = findings.required_text(call, "name", &format!("{at}.function_call."));
    // Calls may come without an id; then their place stands for it.
    let id = call.get("id").and_then(Value::as_str).map_or_else(|| at.to_owned(), str::to_owned);
    open.push(OpenCall { id: id.clone(), name: name.clone() });
    SeenPart::Call { id, name, arguments }
}

/// An answer belongs to the call with its id, or else to the first open one with its name.
fn read_response(
    response: &Value,
    at: &str,
    takes_files: bool,
    open: &mut Vec<OpenCall>,
    findings: &mut Findings,
) -> SeenPart {
    check_fields(response, &["id", "name", "parts", "response", "scheduling", "willContinue"], at, findings);
    let name = findings.required_text(response, "name", &format!("{at}.function_response."));
    if field(response, "parts").is_some() && !takes_files {
        findings.refuse("function_response.parts is not supported for this model");
    }
    let given = response.get("id").and_then(Value::as_str);
    let meant = open.iter().position(|call| given.map_or(call.name == name, |id| call.id == id));
    let id = match meant.map(|place| open.remove(place)) {
        Some(call) => {
            if call.name != name {
                findings.refuse(format!("{at}.function_response.name: {name:?} answers a call of {:?}", call.name));
            }
            call.id
        }
        None => given.map_or_else(|| format!("{at} ({name})"), str::to_owned),
    };
    let Some(outcome) = response.get("response").filter(|outcome| outcome.is_object()) else {
        findings.refuse(format!("{at}.function_response.response: an object is required"));
        return SeenPart::Result { id, text: String::new(), is_error: false };
    };
    let is_error = outcome.get("error").is_some();
    let text = match outcome.get("error").or_else(|| outcome.get("output")) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => outcome.to_string(),
    };
    SeenPart::Result { id, text, is_error }
}
