//! What was left out of requests, read again: results that were cleared, and turns that were summarised. Offered once something
//! was left out; it reads only what this call was given.

use schemars::JsonSchema;
use serde::Deserialize;

use super::approval::{Judgement, PermittedCall, Verdict};
use super::{CallContext, Repeat, ToolError, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::message::{Content, Message, RawJson};

/// Reads a result that was cleared (`r17`), or what was said before a summary (`s`), from this character on
#[derive(Deserialize, JsonSchema)]
struct RecallArguments {
    /// The id that the mark names.
    id: String,
    /// How many characters to skip.
    #[serde(default)]
    offset: usize,
    /// How many characters to read, 4000 if nothing is said.
    max_chars: Option<usize>,
}

const USUAL: usize = 4_000;
const MOST: usize = 20_000;

/// The name of the tool.
pub(crate) const RECALL: &str = "recall";

pub(crate) struct RecallToolset {
    /// What was said before a summary, to read.
    pub(crate) transcript: fn(&[Message]) -> String,
}

impl RecallToolset {
    fn read(&self, arguments: &RawJson, messages: &[Message]) -> Result<String, ToolError> {
        let wrong = |error: serde_json::Error| ToolError::Failed(error.to_string());
        let RecallArguments { id, offset, max_chars } = arguments.to().map_err(wrong)?;
        let text = match id.strip_prefix('r').and_then(|number| number.parse::<usize>().ok()) {
            Some(number) => result(messages, number),
            None if id.starts_with('s') => Some((self.transcript)(messages)),
            None => None,
        };
        let text = text.ok_or_else(|| ToolError::failed(format!("there is nothing to recall as `{id}`")))?;
        let length = max_chars.unwrap_or(USUAL).min(MOST);
        let part: String = text.chars().skip(offset).take(length).collect();
        let left = text.chars().count().saturating_sub(offset + length);
        Ok(if left == 0 { part } else { format!("{part}\n[{left} more characters, from offset {}]", offset + length) })
    }
}

/// The result with this number, counted from 1.
fn result(messages: &[Message], number: usize) -> Option<String> {
    let results = messages.iter().filter_map(|message| match message {
        Message::Tool(results) => Some(&results.parts),
        Message::User(_) | Message::Assistant(_) => None,
    });
    let result = results.flatten().nth(number.checked_sub(1)?)?;
    Some(match &result.outcome {
        Ok(content) => Content::shown(content),
        Err(reason) => reason.clone(),
    })
}

impl Toolset for RecallToolset {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec { repeat: Repeat::Repeatable, ..ToolSpec::of::<RecallArguments>(RECALL) }]
    }

    fn judge<'a>(
        &'a self,
        _: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move {
            arguments.to::<RecallArguments>().map_err(|error| error.to_string())?;
            Ok(Verdict::Allow.into())
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move { Ok(vec![Content::text(self.read(call.arguments(), cx.messages)?)]) })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
