//! What was said in a run, to read. Pure.

use llm_do::escape::{visible, visible_json, visible_lines};
use llm_do::messages::{Arguments, ReplyPart, ToolCall, ToolResult};
use llm_do::{Content, Message};

/// Messages in Markdown: who speaks is a heading, calls and their results are blocks.
pub fn markdown(messages: &[Message], agent: &str) -> String {
    let section = |message: &Message| match message {
        Message::User(said) => format!("## User\n\n{}\n\n", visible_lines(Content::shown(&said.parts).trim_end())),
        Message::Assistant(reply) => {
            let parts: String = reply.parts.iter().map(reply_part).collect();
            format!("## {}\n\n{parts}", visible(agent))
        }
        Message::Tool(results) => results.parts.iter().map(result).collect(),
    };
    messages.iter().map(section).collect()
}

fn reply_part(part: &ReplyPart) -> String {
    match part {
        ReplyPart::Text(text) | ReplyPart::Refusal(text) if text.text.trim().is_empty() => String::new(),
        ReplyPart::Text(text) | ReplyPart::Refusal(text) => format!("{}\n\n", visible_lines(text.text.trim_end())),
        // Thoughts are nothing that was said.
        ReplyPart::Thinking(_) => String::new(),
        ReplyPart::ToolCall(ToolCall { tool, arguments, .. }) => {
            let arguments = match arguments {
                Arguments::Object(object) => visible_json(&object.indented()).into_owned(),
                Arguments::Malformed(text) => visible_lines(text),
            };
            format!("calls `{}`\n\n{}\n", visible(tool), block("json", &arguments))
        }
        ReplyPart::ServerTool(used) => format!("the provider ran `{}`\n\n", visible(&used.tool)),
    }
}

fn result(result: &ToolResult) -> String {
    let tool = visible(&result.tool);
    match &result.outcome {
        Ok(content) => format!("`{tool}` gave\n\n{}\n", block("", &visible_lines(&Content::shown(content)))),
        Err(reason) => format!("`{tool}` failed\n\n{}\n", block("", &visible_lines(reason))),
    }
}

/// Nothing in it ends it.
fn block(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}{language}\n{}\n{fence}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_block_cannot_end_it() {
        assert_eq!(block("json", "{}\n"), "```json\n{}\n```\n");
        assert_eq!(block("", "a ```` b"), "`````\na ```` b\n`````\n");
    }
}
