//! `POST …/chat/completions`.

use llm_do::message::{Content, RawJson};
use llm_do::model::Thinking;
use serde_json::Value;

use super::{Answered, Asked, BY_ADDRESS, NO_SUCH_CONTENT, NO_SUCH_TOOL, SaidCall, data_url, placeholder, texts};

const READ: &[&str] = &[
    "model",
    "stream",
    "stream_options",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "random_seed",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "response_format",
];

pub fn read(body: &Value) -> Asked {
    let mut asked = Asked {
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        stream: body["stream"] == true,
        ..Asked::default()
    };
    settings(&mut asked, body);
    for tool in body["tools"].as_array().into_iter().flatten() {
        match (tool["type"].as_str(), &tool["function"]) {
            (kind, Value::Null) => asked.cannot(kind.unwrap_or("a tool"), NO_SUCH_TOOL),
            (_, function) => asked.declare(&function["name"], &function["description"], &function["parameters"]),
        }
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        read_message(&mut asked, message);
    }
    asked.leave(body, if body["n"] == 1 { &READ_ONE } else { READ });
    asked
}

/// One answer is what everybody gets.
const READ_ONE: [&str; READ.len() + 1] = {
    let mut fields = ["n"; READ.len() + 1];
    let mut index = 0;
    while index < READ.len() {
        fields[index] = READ[index];
        index += 1;
    }
    fields
};

fn settings(asked: &mut Asked, body: &Value) {
    let settings = &mut asked.settings;
    settings.max_tokens = body["max_completion_tokens"].as_u64().or(body["max_tokens"].as_u64());
    settings.temperature = body["temperature"].as_f64();
    settings.top_p = body["top_p"].as_f64();
    settings.stop = texts(&body["stop"]);
    settings.seed = body["seed"].as_i64().or(body["random_seed"].as_i64());
    settings.parallel_tool_calls = body["parallel_tool_calls"].as_bool();
    let reasoning = &body["reasoning"];
    let efforts = [&body["reasoning_effort"], &reasoning["effort"]];
    settings.effort = efforts.into_iter().find_map(|effort| serde_json::from_value(effort.clone()).ok());
    let is_off = body["thinking"]["type"] == "disabled"
        || reasoning["enabled"] == false
        || efforts.into_iter().any(|effort| effort == "none");
    settings.thinking = match reasoning["max_tokens"].as_u64() {
        Some(budget) => Some(Thinking::Budget(budget)),
        None if is_off => Some(Thinking::Off),
        None if body["thinking"]["type"] == "enabled" || reasoning["enabled"] == true => Some(Thinking::On),
        None => None,
    };
    let schema = &body["response_format"]["json_schema"]["schema"];
    asked.output = (!schema.is_null()).then(|| RawJson::of(schema));
    if !matches!(body["tool_choice"].as_str(), Some("auto")) && !body["tool_choice"].is_null() {
        asked.cannot("a forced tool", super::reason_against("tool_choice"));
    }
}

fn read_message(asked: &mut Asked, message: &Value) {
    match message["role"].as_str().unwrap() {
        "system" | "developer" => {
            let text: String = contents(asked, &message["content"]).iter().map(plain).collect();
            asked.instruct(&text);
        }
        "assistant" => {
            let text: String = contents(asked, &message["content"]).iter().map(plain).collect();
            let said = asked.reply();
            said.text.push_str(&text);
            said.calls.extend(message["tool_calls"].as_array().into_iter().flatten().map(call));
        }
        "tool" => {
            let id = message["tool_call_id"].as_str().unwrap_or_default().to_owned();
            let outcome = Ok(contents(asked, &message["content"]));
            asked.tool_answers(Answered { id, outcome });
        }
        _ => {
            let content = contents(asked, &message["content"]);
            asked.user_says(content);
        }
    }
}

fn call(call: &Value) -> SaidCall {
    let arguments = call["function"]["arguments"].as_str().unwrap_or("{}");
    SaidCall {
        id: call["id"].as_str().unwrap_or_default().to_owned(),
        name: call["function"]["name"].as_str().unwrap().to_owned(),
        arguments: serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments)),
    }
}

fn plain(content: &Content) -> &str {
    match content {
        Content::Text { text } | Content::Value { json: text } => text,
        Content::Attachment(_) => "",
    }
}

fn contents(asked: &mut Asked, content: &Value) -> Vec<Content> {
    match content {
        Value::String(text) => vec![Content::text(text)],
        Value::Array(parts) => parts.iter().map(|part| part_content(asked, part)).collect(),
        _ => Vec::new(),
    }
}

fn part_content(asked: &mut Asked, part: &Value) -> Content {
    let file = &part["file"];
    match part["type"].as_str().unwrap() {
        "text" => return Content::text(part["text"].as_str().unwrap()),
        "image_url" | "file" => {
            let url = part["image_url"]["url"].as_str().or(file["file_data"].as_str());
            if let Some(content) = url.and_then(|url| data_url(&file["filename"], url)) {
                return content;
            }
            asked.cannot(part["type"].as_str().unwrap(), BY_ADDRESS);
        }
        kind => asked.cannot(kind, NO_SUCH_CONTENT),
    }
    placeholder(part["type"].as_str().unwrap())
}
