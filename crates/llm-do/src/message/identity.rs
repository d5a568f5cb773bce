//! What tells one message from another, as bytes to be hashed: what was said in it, and not who said it at which price.

use serde::Serialize;

use super::{Arguments, Content, Message, ReplyPart, TextPart, ToolCall, ToolResult};

/// Appends the identity of a message. Every text has its length before it, so that no two lists of texts run together.
///
/// Texts, calls and results, which nearly all messages are made of, are taken as they are; the rest as its JSON.
pub(crate) fn write_identity(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::User(message) => {
            tagged(b'u', message.parts.len(), out);
            for part in &message.parts {
                content(part, out);
            }
        }
        Message::Assistant(reply) => {
            tagged(b'a', reply.parts.len(), out);
            for part in &reply.parts {
                reply_part(part, out);
            }
        }
        Message::Tool(message) => {
            tagged(b't', message.parts.len(), out);
            for result in &message.parts {
                tool_result(result, out);
            }
        }
    }
}

fn content(part: &Content, out: &mut Vec<u8>) {
    match part {
        Content::Text { text } => texts(b'T', [text], out),
        Content::Value { json } => texts(b'V', [json], out),
        Content::Attachment(attachment) => as_json(b'A', attachment, out),
    }
}

fn reply_part(part: &ReplyPart, out: &mut Vec<u8>) {
    match part {
        ReplyPart::Text(TextPart { text, private: None }) => texts(b'T', [text], out),
        ReplyPart::ToolCall(ToolCall { id, tool, arguments, private: None }) => match arguments {
            Arguments::Object(object) => texts(b'C', [id, tool, object.get()], out),
            Arguments::Malformed(text) => texts(b'M', [id, tool, text], out),
        },
        ReplyPart::Text(_)
        | ReplyPart::ToolCall(_)
        | ReplyPart::Thinking(_)
        | ReplyPart::ServerTool(_)
        | ReplyPart::Refusal(_) => as_json(b'J', part, out),
    }
}

fn tool_result(ToolResult { id, tool, outcome }: &ToolResult, out: &mut Vec<u8>) {
    match outcome {
        Ok(parts) => {
            texts(b'R', [id, tool], out);
            tagged(b'r', parts.len(), out);
            for part in parts {
                content(part, out);
            }
        }
        Err(reason) => texts(b'E', [id, tool, reason], out),
    }
}

fn as_json(tag: u8, value: &impl Serialize, out: &mut Vec<u8>) {
    let json = serde_json::to_string(value).expect("messages are JSON");
    texts(tag, [&json], out);
}

fn texts<const N: usize>(tag: u8, texts: [&str; N], out: &mut Vec<u8>) {
    out.push(tag);
    for text in texts {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

fn tagged(tag: u8, count: usize, out: &mut Vec<u8>) {
    out.push(tag);
    out.extend_from_slice(&(count as u64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Attachment, RawJson, Reply, ServerToolPart, ThinkingPart, Usage};

    fn identity(message: &Message) -> Vec<u8> {
        let mut out = Vec::new();
        write_identity(message, &mut out);
        out
    }

    fn said(parts: Vec<ReplyPart>) -> Message {
        Message::Assistant(Reply { parts, ..Reply::answer(&"m:m", "") })
    }

    fn text(text: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: private.map(|json| RawJson::parse(json).unwrap()) })
    }

    fn call(id: &str, tool: &str, arguments: Arguments, private: Option<RawJson>) -> Message {
        said(vec![ReplyPart::ToolCall(ToolCall { id: id.into(), tool: tool.into(), arguments, private })])
    }

    fn result(id: &str, tool: &str, outcome: Result<Vec<Content>, String>) -> Message {
        Message::tool_results(vec![ToolResult { id: id.into(), tool: tool.into(), outcome }])
    }

    #[test]
    fn whatever_is_said_differently_has_another_identity() {
        let object = |json: &str| Arguments::Object(RawJson::parse(json).unwrap());
        let attachment = |bytes: &[u8]| {
            Content::Attachment(Attachment {
                name: "a".into(),
                path: None,
                media_type: "image/png".into(),
                data: bytes.into(),
            })
        };
        let thinking = |text: &str| ReplyPart::Thinking(ThinkingPart { text: text.into(), private: None });
        let server = |tool: &str| {
            ReplyPart::ServerTool(ServerToolPart { tool: tool.into(), input: None, output: None, private: None })
        };
        let refusal = ReplyPart::Refusal(TextPart { text: "a".into(), private: None });
        let user = |parts: Vec<Content>| Message::User(super::super::UserMessage { parts });
        let messages = [
            Message::user("a"),
            Message::user("ab"),
            user(vec![Content::text("a"), Content::text("b")]),
            user(vec![Content::text("b"), Content::text("a")]),
            user(vec![Content::Value { json: "a".into() }]),
            user(vec![attachment(b"a")]),
            user(vec![attachment(b"b")]),
            user(vec![]),
            said(vec![]),
            said(vec![text("a", None)]),
            said(vec![text("a", Some("1"))]),
            said(vec![text("a", Some("2"))]),
            said(vec![text("a", None), text("", None)]),
            said(vec![thinking("a")]),
            said(vec![thinking("b")]),
            said(vec![server("a")]),
            said(vec![refusal]),
            call("a", "b", object("{}"), None),
            call("ab", "", object("{}"), None),
            call("a", "c", object("{}"), None),
            call("a", "b", object(r#"{"a":1}"#), None),
            call("a", "b", object("{}"), Some(RawJson::of(&1))),
            call("a", "b", Arguments::Malformed("{}".into()), None),
            result("a", "b", Ok(vec![Content::text("c")])),
            result("a", "b", Ok(vec![Content::text("c"), Content::text("")])),
            result("a", "b", Ok(vec![])),
            result("a", "b", Err("c".into())),
            result("a", "b", Err("d".into())),
            result("b", "b", Err("c".into())),
            Message::tool_results(vec![]),
        ];
        for (index, message) in messages.iter().enumerate() {
            for other in &messages[..index] {
                assert_ne!(identity(message), identity(other), "{message:?} {other:?}");
            }
        }
    }

    #[test]
    fn who_said_it_at_which_price_is_not_part_of_it() {
        let reply = Reply::answer(&"a:b", "a");
        let other = Reply { model: "c:d".into(), usage: Usage { requests: 7, ..Usage::default() }, ..reply.clone() };
        assert_eq!(identity(&Message::Assistant(reply)), identity(&Message::Assistant(other)));
    }
}
