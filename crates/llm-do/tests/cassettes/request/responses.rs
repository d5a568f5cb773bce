//! `POST …/responses`.

use llm_do::message::{Content, RawJson};
use llm_do::model::{ServerToolKind, Thinking};
use serde_json::Value;

use super::{Answered, Asked, BY_ADDRESS, NO_SUCH_CONTENT, NO_SUCH_TOOL, SaidCall, data_url, placeholder};

const READ: &[&str] = &[
    "model",
    "stream",
    "instructions",
    "input",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "temperature",
    "top_p",
    "reasoning",
    "text",
    "include",
    "store",
];

pub fn read(body: &Value) -> Asked {
    let mut asked = Asked {
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        stream: body["stream"] == true,
        instructions: body["instructions"].as_str().unwrap_or_default().to_owned(),
        ..Asked::default()
    };
    settings(&mut asked, body);
    for tool in body["tools"].as_array().into_iter().flatten() {
        read_tool(&mut asked, tool);
    }
    match &body["input"] {
        Value::String(text) => asked.user_says(vec![Content::text(text)]),
        items => items.as_array().into_iter().flatten().for_each(|item| read_item(&mut asked, item)),
    }
    asked.leave(body, READ);
    asked
}

fn settings(asked: &mut Asked, body: &Value) {
    let settings = &mut asked.settings;
    settings.max_tokens = body["max_output_tokens"].as_u64();
    settings.temperature = body["temperature"].as_f64();
    settings.top_p = body["top_p"].as_f64();
    settings.parallel_tool_calls = body["parallel_tool_calls"].as_bool();
    settings.effort = serde_json::from_value(body["reasoning"]["effort"].clone()).ok();
    settings.thinking = (body["reasoning"]["effort"] == "none").then_some(Thinking::Off);
    let schema = &body["text"]["format"]["schema"];
    asked.output = (!schema.is_null()).then(|| RawJson::of(schema));
    if !matches!(body["tool_choice"].as_str(), Some("auto")) && !body["tool_choice"].is_null() {
        asked.cannot("a forced tool", super::reason_against("tool_choice"));
    }
}

fn read_tool(asked: &mut Asked, tool: &Value) {
    match tool["type"].as_str().unwrap() {
        "function" => asked.declare(&tool["name"], &tool["description"], &tool["parameters"]),
        "code_interpreter" => asked.serve(ServerToolKind::CodeExecution, tool),
        "image_generation" => asked.serve(ServerToolKind::ImageGeneration, tool),
        kind if kind.starts_with("web_search") => asked.serve(ServerToolKind::WebSearch, tool),
        kind => asked.cannot(kind, NO_SUCH_TOOL),
    }
}

fn read_item(asked: &mut Asked, item: &Value) {
    match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
        ("function_call", _) => asked.reply().calls.push(call(item)),
        ("function_call_output", _) => {
            let outcome = Ok(contents(asked, &item["output"]));
            asked.tool_answers(Answered { id: item["call_id"].as_str().unwrap().to_owned(), outcome });
        }
        ("message", Some("assistant")) => {
            let text: String = contents(asked, &item["content"]).iter().map(plain).collect();
            asked.reply().text.push_str(&text);
        }
        ("message", Some("system" | "developer")) => {
            let text: String = contents(asked, &item["content"]).iter().map(plain).collect();
            asked.instruct(&text);
        }
        ("message", _) => {
            let content = contents(asked, &item["content"]);
            asked.user_says(content);
        }
        (kind, Some(_)) => asked.cannot(kind, NO_SUCH_CONTENT),
        // Thinking and the provider's own tools: the reply that we decoded has them.
        (_, None) => drop(asked.reply()),
    }
}

fn call(item: &Value) -> SaidCall {
    let arguments = item["arguments"].as_str().unwrap_or("{}");
    SaidCall {
        id: item["call_id"].as_str().unwrap().to_owned(),
        name: item["name"].as_str().unwrap().to_owned(),
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
    match part["type"].as_str().unwrap() {
        "input_text" | "output_text" | "text" => return Content::text(part["text"].as_str().unwrap()),
        "refusal" => return Content::text(part["refusal"].as_str().unwrap()),
        "input_image" | "input_file" => {
            let url = part["image_url"].as_str().or(part["file_data"].as_str());
            if let Some(content) = url.and_then(|url| data_url(&part["filename"], url)) {
                return content;
            }
            asked.cannot(part["type"].as_str().unwrap(), BY_ADDRESS);
        }
        kind => asked.cannot(kind, NO_SUCH_CONTENT),
    }
    placeholder(part["type"].as_str().unwrap())
}
