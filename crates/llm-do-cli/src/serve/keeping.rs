//! Scopes that are kept: what becomes of the record of one that begins, and how one goes on that was kept before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use llm_do::approval::{KnownAnswers, PendingQuestion, short_id};
use llm_do::escape::visible;
use llm_do::questions::AnswerDesk as _;
use llm_do::records::{Durability, Matching, RunKind};
use llm_do::runs::check_history;
use llm_do::{Answer, ApprovalRequest, Input, RawJson, records};
use llm_do_launch::keep::{KeepNeed, KeepPlan, RunSubject};
use llm_do_launch::launch::{LinkedLaunch, Record};
use llm_do_launch::open_run::{OpenRun, RunPlace};
use llm_do_launch::record::{Author, RunHeader};
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::waiting;

use super::protocol::{Decision, Open};
use crate::commands::resume;
use crate::failure::Failure;

/// What is written of a scope, and what is known of it already.
pub struct ScopeRecording {
    pub record: Record,
    pub known: Option<Arc<dyn KnownAnswers>>,
    pub prior: Option<PriorScope>,
}

/// A scope that goes on.
pub struct PriorScope {
    /// What has changed in the project since it began.
    pub changed: Vec<String>,
    /// Questions that nobody has answered.
    pub pending: Vec<PendingQuestion>,
    /// Calls that may or may not have happened.
    pub in_doubt: Vec<RawJson>,
    /// Whether a turn that was cut off may be finished with the project as it is now.
    pub may_finish: bool,
    /// The input of a run that has one turn only.
    pub only_input: Option<Input>,
}

/// What contradicts itself, before anything is made for it.
pub fn check(open: &Open) -> Result<(), Failure> {
    check_history(&open.message_history)
        .map_err(|reason| Failure::usage(format!("`message_history` cannot be gone on with: {reason}")))?;
    if open.keep == Some(false) && open.durable {
        return Err(Failure::usage("`durable` is for scopes that are kept, and `keep` is false"));
    }
    if open.keep == Some(false) && open.label.is_some() {
        return Err(Failure::usage("`label` is for scopes that are kept, and `keep` is false"));
    }
    if open.continues.is_none() {
        return match (open.force, open.answers.is_empty()) {
            (true, _) => Err(Failure::usage("`force` belongs to `continue`")),
            (false, false) => Err(Failure::usage("`answers` belong to `continue`")),
            (false, true) => Ok(()),
        };
    }
    let recorded = [
        ("message_history", !open.message_history.is_empty()),
        ("label", open.label.is_some()),
        ("keep", open.keep.is_some()),
    ];
    match recorded.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => {
            Err(Failure::usage(format!("`{name}` and `continue` exclude each other"))
                .hint("the record of the run says it"))
        }
        None => Ok(()),
    }
}

/// What the client gives as values, which no record holds.
pub fn given(open: &Open) -> BTreeSet<String> {
    let function = open.entry.as_ref().and_then(|entry| entry.function.as_ref());
    let whole = [
        ("agents", open.is_of_values()),
        ("runtime", open.runtime.is_some()),
        ("caller", open.caller.is_some()),
        ("entry.function", function.is_some()),
    ];
    let whole = whole.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name.to_owned());
    whole
        .chain(open.tools.iter().map(|tool| format!("tools.{}", tool.name)))
        .chain(open.toolsets.keys().map(|name| format!("toolsets.{name}")))
        .chain(open.inputs.iter().map(|name| format!("inputs.{name}")))
        .chain(open.providers.keys().map(|name| format!("providers.{name}")))
        .collect()
}

/// The run that goes on, locked by this process.
pub fn continued(open: &Open, given: &BTreeSet<String>, settings: &Settings) -> Result<Option<OpenRun>, Failure> {
    let Some(id) = &open.continues else { return Ok(None) };
    let run = OpenRun::open(RunPlace::in_store(id, settings)?, Author::User, settings)?;
    let RunHeader { run: id, project, directory, flags, input, .. } = &run.header;
    if !run.is_conversation() && input.is_none() {
        return Err(Failure::usage(format!("the record of `{id}` does not say what was said to it")));
    }
    let root = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let begun_in = root(&directory.join(project));
    if let Some(named) = open.project.as_deref().map(root).filter(|named| *named != begun_in) {
        let (begun_in, named) = (begun_in.display().to_string(), named.display().to_string());
        return Err(Failure::usage(format!("`{id}` is a run of {}, not of {}", visible(&begun_in), visible(&named)))
            .hint("`project` may be left out"));
    }
    let missing = flags.terms.missing(given);
    if !missing.is_empty() {
        let missing: Vec<String> = missing.iter().map(|name| format!("`{}`", visible(name))).collect();
        return Err(Failure::usage(format!("`{id}` needs what its program gave it: {}", missing.join(", ")))
            .hint("give it again beside `continue`; it is not kept"));
    }
    match open.entered() {
        Some(agent) if flags.agent.as_ref() != Some(&agent) => {
            let begun = flags.agent.as_deref().unwrap_or("the entry of its project");
            Err(Failure::usage(format!("`{id}` began with {begun}, not with `{agent}`")))
        }
        Some(_) | None => Ok(Some(run)),
    }
}

/// A new record, as the client and the configuration say; or the one of the run that goes on.
pub fn recording(
    open: &mut Open,
    linked: &LinkedLaunch,
    continued: Option<OpenRun>,
    settings: &Settings,
) -> Result<ScopeRecording, Failure> {
    let Some(run) = continued else {
        return Ok(ScopeRecording { record: new_record(open, linked, settings)?, known: None, prior: None });
    };
    let contents = run.contents();
    let pending = waiting(contents, &run.header.run);
    let answers = GivenAnswers::of(std::mem::take(&mut open.answers), &pending)?;
    let changed = run.header.files.changes(&linked.files);
    let is_whole = !run.is_conversation() && records::outcome(contents).is_some();
    let prior = PriorScope {
        may_finish: changed.is_empty() || open.force || is_whole,
        in_doubt: contents.in_doubt().map(|(_, shown)| shown.clone()).collect(),
        only_input: run.header.input.clone().filter(|_| !run.is_conversation()),
        pending,
        changed,
    };
    answers.keep(&run, settings)?;
    let matching = if prior.changed.is_empty() { Matching::Exact } else { Matching::ForgiveModels };
    let durability = (open.durable || run.header.flags.durable).then_some(Durability::Synced);
    let record = run.resume(&linked.files, matching, durability, RunSubject::of(linked.program()), settings)?;
    let known = (!answers.0.is_empty()).then(|| Arc::new(answers) as Arc<dyn KnownAnswers>);
    Ok(ScopeRecording { record: Record::Known(record), known, prior: Some(prior) })
}

fn new_record(open: &Open, linked: &LinkedLaunch, settings: &Settings) -> Result<Record, Failure> {
    let runs = &settings.config.runs;
    if !(open.durable || open.keep.unwrap_or_else(|| runs.keep())) {
        return Ok(Record::Ephemeral);
    }
    let plan = KeepPlan {
        kind: RunKind::Scope,
        label: open.label.clone(),
        durability: if open.durable { Durability::Synced } else { runs.durability() },
        need: if open.durable { KeepNeed::Required } else { KeepNeed::Wanted },
        once: None,
        id: None,
    };
    let header = RunHeader::begin(&linked.launch, linked.files.clone(), None)?;
    Ok(Record::Keep(plan, Box::new(header)))
}

/// What the client decided about questions that waited, by their digests.
struct GivenAnswers(BTreeMap<String, Answer>);

impl GivenAnswers {
    /// Each must be about a question that waits.
    fn of(given: BTreeMap<String, Decision>, waiting: &[PendingQuestion]) -> Result<Self, Failure> {
        let mut answers = BTreeMap::new();
        for (id, decision) in given {
            let wrong = |what: &str| Failure::usage(format!("`answers.{}`: {what}", visible(&id)));
            let whole = resume::whole_id(&id, waiting).map_err(|failure| {
                Failure::usage(failure.words().0).hint("`pending` of the turn that waits names its questions")
            })?;
            let Some(asked) = waiting.iter().find(|asked| asked.id == whole) else { continue };
            let answer = decision.answer_to(|values| asked.answer_by_values(values)).map_err(|what| wrong(&what))?;
            asked.check_answer(&answer).map_err(|what| wrong(&what))?;
            match answer {
                Answer::Once | Answer::Edited(_) | Answer::Values(_) | Answer::Refuse { .. } => {}
                Answer::CallForSession | Answer::ToolForSession | Answer::EndRun | Answer::Later => {
                    return Err(wrong("a question that waited is approved once, or refused"));
                }
            }
            if answers.insert(whole.to_owned(), answer).is_some() {
                return Err(wrong("the question is decided twice"));
            }
        }
        Ok(Self(answers))
    }
}

impl GivenAnswers {
    /// What is decided here counts like an answer from anywhere: if it is the first.
    fn keep(&self, run: &OpenRun, settings: &Settings) -> Result<(), Failure> {
        let Some(desk) = run.place().answers() else { return Ok(()) };
        for (id, answer) in &self.0 {
            let mut say = |note: String| (settings.notes)(&format!("note: {}\n", visible(&note)));
            desk.keep(id, answer, &settings.variables.user(), &mut say).map_err(|first| {
                let (id, by) = (short_id(id), visible(&first.by).into_owned());
                Failure::usage(format!("the question `{id}` was answered already, by {by}"))
                    .hint("the first answer counts; leave this one out to go on")
            })?;
        }
        Ok(())
    }
}

impl KnownAnswers for GivenAnswers {
    /// The question has this digest as it is asked now, whatever the record shows.
    fn answer_to(&self, request: &ApprovalRequest) -> Option<Answer> {
        self.0.get(&request.id).cloned()
    }
}
