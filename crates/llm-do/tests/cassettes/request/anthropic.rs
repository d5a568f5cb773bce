//! `POST /v1/messages`.

use llm_do::message::{Content, RawJson};
use llm_do::model::{ServerToolKind, Thinking};
use serde_json::Value;

use super::{Answered, Asked, BY_ADDRESS, NO_SUCH_CONTENT, NO_SUCH_TOOL, SaidCall, attachment, placeholder, texts};

const READ: &[&str] = &[
    "model",
    "max_tokens",
    "stream",
    "system",
    "messages",
    "tools",
    "tool_choice",
    "thinking",
    "temperature",
    "top_p",
    "stop_sequences",
    "output_config",
    "output_format",
    "cache_control",
];

pub fn read(body: &Value) -> Asked {
    let mut asked = Asked {
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        stream: body["stream"] == true,
        ..Asked::default()
    };
    for text in blocks(&body["system"]).iter().filter_map(|block| block["text"].as_str()) {
        asked.instruct(text);
    }
    settings(&mut asked, body);
    for tool in body["tools"].as_array().into_iter().flatten() {
        read_tool(&mut asked, tool);
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        let blocks = blocks(&message["content"]);
        match message["role"].as_str().unwrap() {
            "assistant" => blocks.iter().for_each(|block| read_reply(&mut asked, block)),
            "system" => blocks.iter().for_each(|block| asked.instruct(block["text"].as_str().unwrap())),
            _ => read_user(&mut asked, &blocks),
        }
    }
    asked.leave(body, READ);
    asked
}

fn settings(asked: &mut Asked, body: &Value) {
    asked.settings.max_tokens = body["max_tokens"].as_u64();
    asked.settings.temperature = body["temperature"].as_f64();
    asked.settings.top_p = body["top_p"].as_f64();
    asked.settings.stop = texts(&body["stop_sequences"]);
    asked.settings.thinking = match (body["thinking"]["type"].as_str(), body["thinking"]["budget_tokens"].as_u64()) {
        (Some("disabled"), _) => Some(Thinking::Off),
        (Some(_), Some(budget)) => Some(Thinking::Budget(budget)),
        (Some(_), None) => Some(Thinking::On),
        (None, _) => None,
    };
    asked.settings.effort = serde_json::from_value(body["output_config"]["effort"].clone()).ok();
    let formats = [&body["output_config"]["format"]["schema"], &body["output_format"]["schema"]];
    asked.output = formats.into_iter().find(|schema| !schema.is_null()).map(RawJson::of);
    let choice = &body["tool_choice"];
    asked.settings.parallel_tool_calls = choice["disable_parallel_tool_use"].as_bool().map(|disabled| !disabled);
    if !matches!(choice["type"].as_str(), None | Some("auto")) {
        asked.cannot("a forced tool", super::reason_against("tool_choice"));
    }
}

fn read_tool(asked: &mut Asked, tool: &Value) {
    let kind = tool["type"].as_str().unwrap_or("custom");
    let known = ServerToolKind::ALL.into_iter().find(|known| kind.starts_with(known.name()));
    match known {
        Some(known) => asked.serve(known, tool),
        None if kind == "custom" => asked.declare(&tool["name"], &tool["description"], &tool["input_schema"]),
        None => asked.cannot(kind, NO_SUCH_TOOL),
    }
}

fn read_reply(asked: &mut Asked, block: &Value) {
    match block["type"].as_str().unwrap() {
        "text" => asked.reply().text.push_str(block["text"].as_str().unwrap()),
        "tool_use" => asked.reply().calls.push(SaidCall {
            id: block["id"].as_str().unwrap().to_owned(),
            name: block["name"].as_str().unwrap().to_owned(),
            arguments: block["input"].clone(),
        }),
        // Thinking and the provider's own tools: the reply that we decoded has them.
        _ => drop(asked.reply()),
    }
}

fn read_user(asked: &mut Asked, blocks: &[Value]) {
    let (results, said): (Vec<&Value>, Vec<&Value>) = blocks.iter().partition(|block| block["type"] == "tool_result");
    for result in results {
        let content = contents(asked, &self::blocks(&result["content"]));
        let outcome = if result["is_error"] == true { Err(plain(&content)) } else { Ok(content) };
        asked.tool_answers(Answered { id: result["tool_use_id"].as_str().unwrap().to_owned(), outcome });
    }
    let said: Vec<Value> = said.into_iter().cloned().collect();
    let content = contents(asked, &said);
    asked.user_says(content);
}

fn plain(content: &[Content]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Content::Text { text } | Content::Value { json: text } => Some(text.as_str()),
        Content::Attachment(_) => None,
    });
    texts.collect()
}

fn contents(asked: &mut Asked, blocks: &[Value]) -> Vec<Content> {
    blocks.iter().map(|block| content(asked, block)).collect()
}

fn content(asked: &mut Asked, block: &Value) -> Content {
    let source = &block["source"];
    match (block["type"].as_str().unwrap(), source["type"].as_str()) {
        ("text", _) => Content::text(block["text"].as_str().unwrap()),
        ("image" | "document", Some("base64")) => {
            attachment(&block["title"], source["media_type"].as_str().unwrap(), source["data"].as_str().unwrap())
        }
        ("document", Some("text")) => Content::text(source["data"].as_str().unwrap()),
        (kind @ ("image" | "document"), _) => {
            asked.cannot(kind, BY_ADDRESS);
            placeholder(kind)
        }
        (kind, _) => {
            asked.cannot(kind, NO_SUCH_CONTENT);
            placeholder(kind)
        }
    }
}

fn blocks(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    }
}
