//! How many tokens a request will have, before its provider has counted them. Pure.
//!
//! ASCII text has about three bytes to a token, more in most languages; of other text every byte may be one. Pictures and
//! documents are counted as their provider says that it counts them. A conversation that was counted before is not
//! estimated again: only what is new is.

use super::Head;
use super::content::{VisibleContent, shown};
use super::name::ModelName;
use super::picture::PictureSize;
use crate::message::{Arguments, Attachment, Content, Message, RawJson, Reply, ReplyPart, ToolResult, Usage};

/// A picture or a document whose provider does not say how it counts them.
const UNKNOWN_FILE: u64 = 6_000;

/// What goes in with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InputEstimate {
    pub tokens: u64,
    /// Of them, those that the provider counted itself: no estimate, and never too many.
    pub counted: u64,
}

/// How many tokens the instructions, the tools and the output schema have, which go in with each request.
pub(crate) fn of_head(head: &Head) -> u64 {
    let tools =
        head.tools.iter().map(|tool| of_text(&tool.name) + of_text(&tool.description) + of_json(&tool.parameters));
    of_text(&head.instructions) + tools.sum::<u64>() + head.output.as_ref().map_or(0, of_json)
}

/// How many tokens a request with this history has: the last count of the provider, and an estimate of what is new
/// since. Without a count everything is estimated.
pub(crate) fn of_request(head: u64, history: &[Message], model: &ModelName) -> InputEstimate {
    let new = |messages: &[Message]| messages.iter().map(|message| of_message(message, model)).sum::<u64>();
    let counted = history.iter().enumerate().rev().find_map(|(index, message)| match message {
        Message::Assistant(reply) if is_counted(&reply.usage) && is_of(reply, model) => Some((index, reply)),
        Message::User(_) | Message::Assistant(_) | Message::Tool(_) => None,
    });
    match counted {
        None => InputEstimate { tokens: head + new(history), counted: 0 },
        Some((index, reply)) => {
            let counted = reply.usage.input_tokens;
            InputEstimate { tokens: counted + of_reply(reply) + new(&history[index + 1..]), counted }
        }
    }
}

/// More than a request with this history can have, found without looking at any text: no token is shorter than a byte. Files
/// have no such bound.
pub(crate) fn bound_of_request(head: u64, history: &[Message], model: &ModelName) -> Option<u64> {
    let mut bound = 0;
    for message in history.iter().rev() {
        bound += most_of_message(message)?;
        if let Message::Assistant(reply) = message
            && is_counted(&reply.usage)
            && is_of(reply, model)
        {
            return Some(bound + reply.usage.input_tokens);
        }
    }
    Some(head + bound)
}

fn most_of_message(message: &Message) -> Option<u64> {
    let content = |part: &Content| match part {
        Content::Text { text } => Some(text.len()),
        Content::Value { json } => Some(json.len()),
        Content::Attachment(_) => None,
    };
    let result = |result: &ToolResult| match &result.outcome {
        Ok(parts) => parts.iter().map(content).sum(),
        Err(error) => Some(error.len()),
    };
    let bytes: Option<usize> = match message {
        Message::User(message) => message.parts.iter().map(content).sum(),
        Message::Tool(message) => message.parts.iter().map(result).sum(),
        Message::Assistant(reply) => Some(reply.parts.iter().map(most_of_part).sum()),
    };
    bytes.map(|bytes| bytes as u64)
}

fn most_of_part(part: &ReplyPart) -> usize {
    let length = |json: &Option<RawJson>| json.as_ref().map_or(0, |json| json.get().len());
    match part {
        ReplyPart::Text(part) | ReplyPart::Refusal(part) => part.text.len() + length(&part.private),
        ReplyPart::Thinking(part) => part.text.len() + length(&part.private),
        ReplyPart::ToolCall(call) => {
            let arguments = match &call.arguments {
                Arguments::Object(arguments) => arguments.get().len(),
                Arguments::Malformed(text) => text.len(),
            };
            call.tool.len() + arguments + length(&call.private)
        }
        ReplyPart::ServerTool(part) => length(&part.private) + length(&part.input) + length(&part.output),
    }
}

/// Whether the provider counted the input of one request: an estimate is no count, and the sum of two requests is not
/// what went in with one.
pub(crate) fn is_counted(usage: &Usage) -> bool {
    usage.input_tokens > 0 && usage.requests == 1 && usage.estimated == 0
}

/// Whether this model wrote the reply: other models count otherwise.
fn is_of(reply: &Reply, model: &ModelName) -> bool {
    let name = reply.model.split_once(':');
    name.is_some_and(|(provider, name)| provider == model.provider && name == model.model)
}

pub(crate) fn of_text(text: &str) -> u64 {
    let other = text.bytes().filter(|byte| !byte.is_ascii()).count() as u64;
    (text.len() as u64 - other).div_ceil(3) + other
}

fn of_json(json: &RawJson) -> u64 {
    of_text(json.get())
}

pub(crate) fn of_message(message: &Message, model: &ModelName) -> u64 {
    let content = |parts: &[Content]| parts.iter().map(|part| of_content(part, model)).sum::<u64>();
    let result = |result: &ToolResult| match &result.outcome {
        Ok(parts) => content(parts),
        Err(error) => of_text(error),
    };
    match message {
        Message::User(message) => content(&message.parts),
        Message::Tool(message) => message.parts.iter().map(result).sum(),
        Message::Assistant(reply) => of_reply(reply),
    }
}

/// A reply is at most as many tokens of input as its provider counted as output. What the provider's tools have found
/// is not part of that count, so a reply with such parts is estimated.
fn of_reply(reply: &Reply) -> u64 {
    let estimate = reply.parts.iter().map(of_part).sum();
    let has_found = reply.parts.iter().any(|part| matches!(part, ReplyPart::ServerTool(_)));
    match reply.usage.output_tokens {
        0 => estimate,
        _ if has_found => estimate,
        output_tokens => estimate.min(output_tokens),
    }
}

fn of_part(part: &ReplyPart) -> u64 {
    let private = |private: &Option<RawJson>| private.as_ref().map_or(0, of_json);
    match part {
        ReplyPart::Text(part) | ReplyPart::Refusal(part) => of_text(&part.text) + private(&part.private),
        ReplyPart::Thinking(part) => of_text(&part.text).max(private(&part.private)),
        ReplyPart::ToolCall(call) => {
            let arguments = match &call.arguments {
                Arguments::Object(arguments) => of_json(arguments),
                Arguments::Malformed(text) => of_text(text),
            };
            of_text(&call.tool) + arguments + private(&call.private)
        }
        ReplyPart::ServerTool(part) => private(&part.private).max(private(&part.input) + private(&part.output)),
    }
}

fn of_content(content: &Content, model: &ModelName) -> u64 {
    match shown(content) {
        VisibleContent::Text(text) => of_text(&text),
        VisibleContent::Image(file) => of_picture(&file.data, model).unwrap_or(UNKNOWN_FILE),
        VisibleContent::Pdf(file) => of_document(file, model).unwrap_or(UNKNOWN_FILE),
    }
}

/// By the provider's formula, at its dearest setting.
fn of_picture(data: &[u8], model: &ModelName) -> Option<u64> {
    let size = PictureSize::of(data)?;
    match model.provider.as_str() {
        // A token for 750 pixels; the largest is made smaller.
        "anthropic" => Some(size.width.saturating_mul(size.height).div_ceil(750).min(4_784)),
        "google" | "google-vertex" => Some(gemini_picture(size)),
        "openai" | "openai-chat" | "azure" => openai_picture(size, &model.model),
        _ => None,
    }
}

/// Squares of 258 tokens; newer models have a fixed count for each picture.
fn gemini_picture(size: PictureSize) -> u64 {
    const NEWER: u64 = 1_120;
    let side = (size.width.min(size.height) * 2 / 3).clamp(256, 768);
    let squares = if size.width.max(size.height) <= 384 { 1 } else { size.tiles(side) };
    squares.saturating_mul(258).max(NEWER)
}

/// Squares of 512 pixels after it was made smaller, or patches of 32 pixels for the small models.
fn openai_picture(size: PictureSize, model: &str) -> Option<u64> {
    let squares = size.within(2_048).with_shorter_side(768).tiles(512);
    let patches = size.tiles(32).min(1_536);
    let is_small = model.contains("-mini") || model.contains("-nano");
    match model {
        model if model.starts_with("gpt-4o-mini") => Some(2_833 + 5_667 * squares),
        model
            if is_small && (model.starts_with("gpt-4.1") || model.starts_with("gpt-5-") || model.starts_with("o4")) =>
        {
            Some(patches * 246 / 100)
        }
        model if model.starts_with("gpt-4o") || model.starts_with("gpt-4.1") => Some(85 + 170 * squares),
        "gpt-5" | "o1" | "o3" => Some(85 + 170 * squares),
        _ => None,
    }
}

/// By the page: its text, and a picture of it.
fn of_document(file: &Attachment, model: &ModelName) -> Option<u64> {
    let pages = pages(&file.data)?;
    match model.provider.as_str() {
        "anthropic" => Some(pages.saturating_mul(3_000 + 1_600)),
        "google" | "google-vertex" => Some(pages.saturating_mul(560)),
        _ => None,
    }
}

/// The largest count of pages that the file says in plain text; compressed ones say none.
fn pages(data: &[u8]) -> Option<u64> {
    let counts = memchr::memmem::find_iter(data, b"/Count").filter_map(|at| {
        let rest = data[at + b"/Count".len()..].trim_ascii_start();
        let digits = rest.iter().take(7).take_while(|byte| byte.is_ascii_digit()).count();
        str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    });
    counts.max().filter(|pages| *pages > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::{Finish, TextPart};
    use crate::model::ToolDeclaration;
    use crate::model::fixtures::{call, head, json};

    fn model(name: &str) -> ModelName {
        ModelName::parse(name).unwrap()
    }

    fn file(media_type: &str, data: &[u8]) -> Content {
        let (name, media_type) = ("f".to_owned(), media_type.to_owned());
        Content::Attachment(Attachment { name, path: None, media_type, data: Arc::from(data) })
    }

    fn png(width: u32, height: u32) -> Content {
        let mut data = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        data.extend(width.to_be_bytes().into_iter().chain(height.to_be_bytes()));
        file("image/png", &data)
    }

    fn reply(name: &str, text: &str, input_tokens: u64, output_tokens: u64) -> Message {
        let usage = Usage { requests: 1, input_tokens, output_tokens, ..Usage::default() };
        let parts =
            vec![ReplyPart::Text(TextPart { text: text.into(), private: None }), ReplyPart::ToolCall(call("c", "{}"))];
        Message::Assistant(Reply { parts, model: name.into(), finish: Finish::Stop, finish_reason: None, usage })
    }

    #[test]
    fn text_has_three_bytes_to_a_token_and_other_text_one() {
        for (text, tokens) in [("", 0), ("a", 1), ("abc", 1), ("abcd", 2), ("äöü", 6), ("日本", 6), ("abc日", 4)]
        {
            assert_eq!(of_text(text), tokens, "{text}");
        }
    }

    #[test]
    fn the_bound_is_never_below_the_estimate() {
        let model = model("anthropic:m");
        let results =
            |outcome| Message::tool_results(vec![ToolResult { id: "i".into(), tool: "t".into(), outcome }; 2]);
        let values = vec![Content::text("日本 and more"), Content::Value { json: r#"{"a":[1,2,3]}"#.into() }];
        let messages = [
            Message::user("a word"),
            Message::user("äöü"),
            reply("anthropic:m", "an answer", 0, 0),
            reply("anthropic:m", "an answer that was counted", 700, 3),
            reply("openai:m", "another's answer", 70, 3),
            results(Ok(values)),
            results(Err("it failed: 日本".into())),
        ];
        for from in 0..messages.len() {
            for to in from..=messages.len() {
                let history = &messages[from..to];
                let bound = bound_of_request(11, history, &model).unwrap();
                assert!(bound >= of_request(11, history, &model).tokens, "{history:?}");
            }
        }
        let picture = Message::User(crate::message::UserMessage { parts: vec![png(10, 10)] });
        assert_eq!(bound_of_request(11, std::slice::from_ref(&picture), &model), None);
        let counted = [picture, messages[3].clone()];
        assert_eq!(
            bound_of_request(11, &counted, &model).map(|bound| bound > 700),
            Some(true),
            "its files are counted"
        );
    }

    #[test]
    fn instructions_tools_and_the_schema_of_the_answer_go_in_each_time() {
        let parameters = json(r#"{"type":"object"}"#);
        let mut head = head("anthropic:m");
        head.instructions = "abcdef".into();
        head.tools = vec![ToolDeclaration { name: "abc".into(), description: "abcdef".into(), parameters }];
        head.output = Some(json(r#"{"a":1}"#));
        assert_eq!(of_head(&head), 2 + (1 + 2 + 6) + 3);
    }

    #[test]
    fn what_the_provider_has_counted_is_not_estimated_again() {
        let name = "anthropic:m";
        let model = model(name);
        let user = || Message::user("abcdef");
        let (own, foreign) = (reply(name, "abc", 1_000, 50), reply("openai:m", "abc", 1_000, 50));
        let cases: [(Vec<Message>, u64, u64); 6] = [
            (vec![], 100, 0),
            (vec![user()], 102, 0),
            (vec![user(), own.clone(), user()], 1_000 + 3 + 2, 1_000),
            (vec![user(), reply(name, &"a".repeat(600), 1_000, 50), user()], 1_000 + 50 + 2, 1_000),
            (vec![user(), foreign.clone(), user()], 102 + 3 + 2, 0),
            (vec![user(), own, user(), foreign, user()], 1_000 + 3 + 2 + 3 + 2, 1_000),
        ];
        for (history, tokens, counted) in cases {
            assert_eq!(of_request(100, &history, &model), InputEstimate { tokens, counted }, "{history:?}");
        }
        // A server that reports zero tokens has not counted.
        let uncounted = [user(), reply(name, "abc", 0, 0)];
        assert_eq!(of_request(100, &uncounted, &model), InputEstimate { tokens: 105, counted: 0 });
    }

    #[test]
    fn pictures_are_counted_as_their_provider_counts_them() {
        let cases = [
            ("anthropic:m", png(1_500, 1_000), 2_000),
            ("anthropic:m", png(20_000, 20_000), 4_784),
            ("google:gemini-2.5-pro", png(100, 100), 1_120),
            ("google:gemini-2.5-pro", png(3_840, 2_160), 258 * 15),
            ("openai:gpt-4o", png(1_024, 1_024), 85 + 170 * 4),
            ("openai-chat:gpt-4o-mini", png(1_024, 1_024), 2_833 + 5_667 * 4),
            ("openai:gpt-5-mini", png(4_000, 4_000), 3_778),
            ("openai:gpt-9", png(10, 10), UNKNOWN_FILE),
            ("acme:m", png(10, 10), UNKNOWN_FILE),
            ("anthropic:m", file("image/png", b"what"), UNKNOWN_FILE),
            ("anthropic:m", file("application/pdf", b"%PDF-1.7 /Count 3 /Count  12 "), 12 * 4_600),
            ("google:m", file("application/pdf", b"/Count 10"), 5_600),
            ("anthropic:m", file("application/pdf", b"%PDF-1.7 /Count -1 /Count"), UNKNOWN_FILE),
            ("openai:gpt-4o", file("application/pdf", b"/Count 10"), UNKNOWN_FILE),
        ];
        for (name, content, tokens) in cases {
            assert_eq!(of_content(&content, &model(name)), tokens, "{name} {content:?}");
        }
        assert!(of_content(&file("text/plain", &[b'a'; 300]), &model("acme:m")) > 100);
    }
}
