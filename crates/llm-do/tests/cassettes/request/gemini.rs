//! `POST …/models/MODEL:generateContent` and `:streamGenerateContent`. Clients write its fields in both cases.

use std::collections::BTreeMap;

use llm_do::message::{Content, RawJson};
use llm_do::model::{ServerToolKind, Thinking};
use serde_json::Value;

use super::{Answered, Asked, BY_ADDRESS, NO_SUCH_CONTENT, NO_SUCH_TOOL, SaidCall, attachment, placeholder, texts};

const READ: &[&str] =
    &["contents", "systemInstruction", "system_instruction", "tools", "generationConfig", "toolConfig"];

pub fn read(path: &str, body: &Value) -> Asked {
    let (model, action) = path.rsplit_once("/models/").and_then(|(_, name)| name.split_once(':')).unwrap();
    let mut asked = Asked { model: model.to_owned(), stream: action.starts_with("stream"), ..Asked::default() };
    for part in field(body, "systemInstruction")["parts"].as_array().into_iter().flatten() {
        asked.instruct(part["text"].as_str().unwrap_or_default());
    }
    settings(&mut asked, field(body, "generationConfig"));
    if !matches!(body["toolConfig"]["functionCallingConfig"]["mode"].as_str(), None | Some("AUTO")) {
        asked.cannot("a forced tool", super::reason_against("toolConfig"));
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        read_tool(&mut asked, tool);
    }
    let mut ids = CallIds::default();
    for content in body["contents"].as_array().into_iter().flatten() {
        let is_reply = content["role"] == "model";
        ids.next_message(is_reply);
        for part in content["parts"].as_array().into_iter().flatten() {
            if is_reply { read_reply(&mut asked, part, &mut ids) } else { read_user(&mut asked, part, &mut ids) }
        }
    }
    asked.leave(body, READ);
    asked
}

/// A field in camel case or in snake case.
fn field<'a>(object: &'a Value, camel: &str) -> &'a Value {
    let mut snake = String::new();
    for letter in camel.chars() {
        if letter.is_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    object.get(camel).unwrap_or(&object[snake])
}

fn settings(asked: &mut Asked, config: &Value) {
    let settings = &mut asked.settings;
    settings.max_tokens = field(config, "maxOutputTokens").as_u64();
    settings.temperature = config["temperature"].as_f64();
    settings.top_p = field(config, "topP").as_f64();
    settings.stop = texts(field(config, "stopSequences"));
    settings.seed = config["seed"].as_i64();
    let thinking = field(config, "thinkingConfig");
    settings.thinking = match field(thinking, "thinkingBudget").as_i64() {
        Some(0) => Some(Thinking::Off),
        Some(budget) => u64::try_from(budget).ok().map(Thinking::Budget),
        None => (field(thinking, "includeThoughts") == true).then_some(Thinking::On),
    };
    let level = field(thinking, "thinkingLevel").as_str().unwrap_or_default().to_ascii_lowercase();
    settings.effort = serde_json::from_value(Value::from(level)).ok();
    let schemas = [field(config, "responseJsonSchema").clone(), json_schema(field(config, "responseSchema"))];
    asked.output = schemas.iter().find(|schema| !schema.is_null()).map(RawJson::of);
}

fn read_tool(asked: &mut Asked, tool: &Value) {
    for (kind, value) in tool.as_object().into_iter().flatten() {
        match kind.as_str() {
            "functionDeclarations" | "function_declarations" => {
                for function in value.as_array().unwrap() {
                    let schema = match field(function, "parametersJsonSchema") {
                        Value::Null => json_schema(&function["parameters"]),
                        schema => schema.clone(),
                    };
                    asked.declare(&function["name"], &function["description"], &schema);
                }
            }
            "googleSearch" | "google_search" => asked.serve(ServerToolKind::WebSearch, value),
            "urlContext" | "url_context" => asked.serve(ServerToolKind::WebFetch, value),
            "codeExecution" | "code_execution" => asked.serve(ServerToolKind::CodeExecution, value),
            kind => asked.cannot(kind, NO_SUCH_TOOL),
        }
    }
}

/// The provider's older schemas write types in capitals.
fn json_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let convert = |(name, value): (&String, &Value)| match value {
                Value::String(kind) if name == "type" => (name.clone(), Value::from(kind.to_ascii_lowercase())),
                other => (name.clone(), json_schema(other)),
            };
            fields.iter().map(convert).collect()
        }
        Value::Array(values) => values.iter().map(json_schema).collect(),
        other => other.clone(),
    }
}

/// Ids where there are none: the results of a message answer the calls of the one before by name and order.
#[derive(Default)]
struct CallIds {
    replies: usize,
    calls: BTreeMap<String, usize>,
    results: BTreeMap<String, usize>,
}

impl CallIds {
    fn next_message(&mut self, is_reply: bool) {
        if is_reply {
            *self = Self { replies: self.replies + 1, ..Self::default() };
        }
    }

    fn next(count: &mut BTreeMap<String, usize>, reply: usize, call: &Value) -> String {
        if let Some(id) = call["id"].as_str() {
            return id.to_owned();
        }
        let name = call["name"].as_str().unwrap();
        let number = count.entry(name.to_owned()).or_default();
        *number += 1;
        format!("{reply}/{name}/{number}")
    }
}

fn read_reply(asked: &mut Asked, part: &Value, ids: &mut CallIds) {
    let call = field(part, "functionCall");
    let is_thought = part["thought"] == true;
    let said = asked.reply();
    if !call.is_null() {
        let id = CallIds::next(&mut ids.calls, ids.replies, call);
        let arguments =
            if call["args"].is_null() { Value::Object(serde_json::Map::new()) } else { call["args"].clone() };
        said.calls.push(SaidCall { id, name: call["name"].as_str().unwrap().to_owned(), arguments });
    } else if !is_thought {
        said.text.push_str(part["text"].as_str().unwrap_or_default());
    }
}

fn read_user(asked: &mut Asked, part: &Value, ids: &mut CallIds) {
    let response = field(part, "functionResponse");
    if response.is_null() {
        let content = content(asked, part);
        asked.user_says(vec![content]);
        return;
    }
    let id = CallIds::next(&mut ids.results, ids.replies, response);
    let mut content = vec![Content::text(result_text(&response["response"]))];
    for part in response["parts"].as_array().into_iter().flatten() {
        content.push(self::content(asked, part));
    }
    asked.tool_answers(Answered { id, outcome: Ok(content) });
}

/// The provider wants an object; a text in it is what the tool returned.
fn result_text(response: &Value) -> String {
    let mut values = response.as_object().into_iter().flat_map(serde_json::Map::values);
    match (values.next(), values.next()) {
        (Some(Value::String(text)), None) => text.clone(),
        _ => response.to_string(),
    }
}

fn content(asked: &mut Asked, part: &Value) -> Content {
    let inline = field(part, "inlineData");
    if let Some(text) = part["text"].as_str() {
        return Content::text(text);
    }
    if let (Some(media_type), Some(data)) = (field(inline, "mimeType").as_str(), inline["data"].as_str()) {
        return attachment(field(inline, "displayName"), media_type, data);
    }
    let kind = part.as_object().and_then(|fields| fields.keys().next()).map_or("part", String::as_str);
    let reason = if field(part, "fileData").is_null() { NO_SUCH_CONTENT } else { BY_ADDRESS };
    asked.cannot(kind, reason);
    placeholder(kind)
}
