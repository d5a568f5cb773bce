//! A journal that another user wrote: what it names counts only after a person has agreed to it.

use std::path::Path;

use llm_do::escape::visible;
use llm_do::records::{JournalContents, StepKind, StepProgress};

use crate::args::ConductArgs;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::{console, terminal::trust};
use llm_do_launch::record::RunHeader;
use llm_do_launch::trust::Consent;

/// Asks whether to go on with what a stranger's journal names. Nothing of it has been used yet.
pub fn settle(
    file: &Path,
    header: &RunHeader,
    contents: &JournalContents,
    conduct: &ConductArgs,
    environment: &Environment,
) -> Result<(), Failure> {
    let list = list(file, header, contents);
    // A digest is one of a project's list, which this is not.
    if trust::typed(conduct.trust.as_deref())? == Some(Consent::Everything) {
        console::complain(&list);
        return Ok(());
    }
    let is_attended = environment.can_ask && !conduct.headless;
    if !is_attended {
        console::complain(&list);
        return Err(refused().hint("`--trust` goes on with it"));
    }
    let question = format!("{list}go on with it? What it says is then kept as yours.\n  y yes\n  n no\n");
    if trust::ask(&question)? { Ok(()) } else { Err(refused()) }
}

fn refused() -> Failure {
    Failure::refused("the journal is a stranger's, and nobody agreed to go on with it")
}

/// All that the header decides, and what becomes of the rest. Pure.
fn list(file: &Path, header: &RunHeader, contents: &JournalContents) -> String {
    let path = |path: &Path| visible(&path.display().to_string()).into_owned();
    let mut lines = vec![("project", path(&header.project)), ("directory", path(&header.directory))];
    lines.extend(header.flags.agent.iter().map(|agent| ("agent", visible(agent).into_owned())));
    lines.extend(header.flags.models.iter().map(|model| ("model", visible(model).into_owned())));
    lines.extend(header.flags.python.iter().map(|python| ("python", path(python))));
    let done = |is_reply: bool| {
        let is_counted = |kind: StepKind| match kind {
            StepKind::Model => is_reply,
            StepKind::Tool | StepKind::Code => !is_reply,
            StepKind::Ask | StepKind::Decide | StepKind::Call => false,
        };
        contents
            .records()
            .filter(|(_, record)| is_counted(record.kind) && matches!(record.known, StepProgress::Done(_)))
            .count()
    };
    lines.push((
        "keep",
        format!(
            "{} of models, {} of tools",
            counted(done(true), "reply", "replies"),
            counted(done(false), "result", "results")
        ),
    ));
    lines.push(("drop", "what people answered there".to_owned()));
    let lines: Vec<String> = lines.into_iter().map(|(key, what)| format!("  {key:<10}{what}\n")).collect();
    format!("{} was not written by you on this machine. It names\n{}", path(file), lines.concat())
}

fn counted(count: usize, one: &str, several: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {several}") }
}
