//! The interpreter as a session uses it: who hears what it prints, what its code gets for an answer, and its entry.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::RunError;
use crate::event::{EventKind, Events};
use crate::message::RawJson;
use crate::project::{Program, Typing};
use crate::tools::function::{FunctionEntry, RunEntry};
use crate::tools::python::PythonHost;

/// What is printed outside of calls is told by the session.
pub(super) fn attach(program: &Program, events: &Events) {
    let Some(host) = &program.registry.python else { return };
    host.attach(events.clone());
    let answer = |typing: &Typing| match typing {
        Typing::Untyped | Typing::Schema(_) => None,
        Typing::Python(class) => Some(class.reference.clone()),
    };
    let agents = program.agents.values();
    host.expect_answers(agents.filter_map(|agent| Some((agent.name.clone(), answer(&agent.output)?))).collect());
}

/// Before an outermost call begins, and before each turn of it: an interpreter that has ended meanwhile is followed by
/// another. That is no step of a run, so none of it is recorded.
pub(super) async fn renew(program: &Program, events: &Events) {
    let Some(host) = &program.registry.python else { return };
    if let Some(text) = host.renew().await {
        events.send(|| EventKind::Notice { text });
    }
}

/// An entry function in Python, as the function that it is.
pub(super) async fn entry(host: &Arc<PythonHost>, file: &Path, function: &str) -> Result<FunctionEntry, RunError> {
    let failed = |reason: String| RunError::Function { function: function.to_owned(), reason };
    let shape = host.entry_shape(file, function).await.map_err(failed)?;
    let (host, file, function) = (Arc::clone(host), PathBuf::from(file), function.to_owned());
    let run: RunEntry = Box::new(move |value, cx| {
        let (host, file, function) = (Arc::clone(&host), file.clone(), function.clone());
        Box::pin(async move { host.enter(&file, &function, &value, cx).await })
    });
    Ok(FunctionEntry::of(shape.name, shape.schema.unwrap_or_else(untyped), run))
}

/// What `PromptInput` is made of where a text was given. Files come beside it, and any other value is taken as it is.
fn untyped() -> RawJson {
    RawJson::of(&json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}))
}
