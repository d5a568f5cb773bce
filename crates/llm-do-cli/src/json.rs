//! Runs as JSON: one event per line, and the result. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use llm_do::approval::PendingQuestion;
use llm_do::escape::visible_json;
use llm_do::events::{Refusal, TraceCall, UsageReport};
use llm_do::messages::Finish;
use llm_do::{Event, Message, RawJson};
use llm_do_launch::saved_files::SavedFile;
use serde::Serialize;

/// A typed answer as far as it has come, on a line.
pub fn partial(event: &Event, output: &RawJson) -> String {
    #[derive(Serialize)]
    struct PartialOutput<'a> {
        r#type: &'static str,
        agent: &'a str,
        depth: usize,
        call: u64,
        output: &'a RawJson,
        validated: bool,
    }
    let Event { agent, depth, call, .. } = event;
    line(&PartialOutput { r#type: "partial_output", agent, depth: *depth, call: *call, output, validated: false })
}

/// The last line of a stream, or the one object.
#[derive(Debug, Serialize)]
pub struct ResultJson {
    pub r#type: &'static str,
    pub output: Option<RawJson>,
    pub finish: Option<Finish>,
    pub exit_code: u8,
    pub error: Option<ErrorJson>,
    pub usage: UsageReport,
    /// The call of the entry; none of a run that never began.
    pub trace: Option<Arc<TraceCall>>,
    pub messages: Vec<Message>,
    pub pending: Vec<PendingQuestion>,
    pub refused: Vec<Refusal>,
    /// Pictures and other files that replies and results brought, and where they were written.
    pub files: Vec<SavedFile>,
    pub run: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct ErrorJson {
    pub message: String,
    pub hint: Option<String>,
    /// The mistakes of a project, each with its own message, hint and place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<serde_json::Value>,
}

impl ResultJson {
    /// Of a run that never began.
    pub fn not_begun(exit_code: u8, error: ErrorJson) -> Self {
        Self {
            r#type: "result",
            output: None,
            finish: None,
            exit_code,
            error: Some(error),
            usage: UsageReport::default(),
            trace: None,
            messages: Vec::new(),
            pending: Vec::new(),
            refused: Vec::new(),
            files: Vec::new(),
            run: None,
        }
    }
}

/// On one line. Whatever the reader is, nothing in it deceives: so is all JSON that is printed.
pub fn line(value: &impl Serialize) -> String {
    printed(serde_json::to_string(value).expect("plain values serialise"))
}

/// On many lines.
pub fn lines(value: &serde_json::Value) -> String {
    printed(format!("{value:#}"))
}

fn printed(json: String) -> String {
    let mut json = match visible_json(&json) {
        Cow::Borrowed(_) => json,
        Cow::Owned(shown) => shown,
    };
    json.push('\n');
    json
}

pub fn event(event: &Event) -> String {
    line(event)
}
