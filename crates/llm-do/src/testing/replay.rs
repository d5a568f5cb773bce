//! The engine under a case: models answer from its record, or are asked and their replies kept; tools run, or answer from
//! the record too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::fixture::{
    Fixture, FixtureLine, FixtureStep, PartDigests, anywhere, gave_value, here, offer_value, offered_by, reply_value,
    result_of, tool_of,
};
use crate::BoxFuture;
use crate::journal::digest::short_digest;
use crate::journal::{Journal, Prior, RecordedSteps, Step, StepAnswer, StepKind, Stop};
use crate::message::RawJson;

/// Who answers in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// The record, and only to the requests that it was made of.
    Record,
    /// The record, whatever is asked: a run that becomes a case.
    RecordToAnything,
    /// Models and tools.
    World,
}

/// How a case is answered.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    /// Who answers.
    pub answering: Answering,
    /// What there is of its record.
    pub fixture: Fixture,
    /// Whether all tools answer from the record.
    pub are_tools_recorded: bool,
    /// Toolsets of servers, whose tools always answer from the record: what their names begin with.
    pub server_prefixes: Vec<String>,
    /// Tools that answer from the record since there is no fence here that they could run behind.
    pub unfenced: BTreeSet<String>,
    /// Where the scratch project is: no record names it.
    pub project: String,
}

/// Why the record of a case does not answer it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleStep {
    /// The step.
    pub key: String,
    /// What has changed, in words: `instructions`, `the result of read_file`.
    pub changed: Vec<String>,
}

/// The engine under one case.
pub struct TestJournal {
    plan: ReplayPlan,
    state: Mutex<ReplayState>,
}

#[derive(Default)]
struct ReplayState {
    /// What was answered now.
    made: Fixture,
    results: BTreeMap<String, RawJson>,
    stale: Option<StaleStep>,
    /// A tool that cannot run here, and has no result in the record.
    skipped: Option<String>,
    /// Tools of servers.
    offered: BTreeSet<String>,
}

/// How a step is answered.
enum PlannedAnswer {
    Effect,
    Recorded(RawJson),
    Stop,
}

impl TestJournal {
    /// An engine for one run of a case.
    pub fn new(plan: ReplayPlan) -> Self {
        Self { plan, state: Mutex::default() }
    }

    /// What was answered, as a record.
    pub fn fixture(&self) -> Fixture {
        self.state().made.clone()
    }

    /// Why the record does not answer any more, once the case has ended.
    pub fn stale(&self, has_ended_well: bool) -> Option<StaleStep> {
        let state = self.state();
        let is_unused = |line: &&FixtureLine| {
            matches!(line.what, FixtureStep::Reply { .. }) && !state.made.lines.contains_key(&line.k)
        };
        let unused = self.plan.fixture.lines.values().find(is_unused);
        let unused = unused.filter(|_| has_ended_well && self.plan.answering == Answering::Record);
        let fewer = |line: &FixtureLine| StaleStep {
            key: line.k.clone(),
            changed: vec!["fewer requests than recorded".to_owned()],
        };
        state.stale.clone().or_else(|| unused.map(fewer))
    }

    /// The tool that cannot run here, and that the record does not answer for.
    pub fn skipped(&self) -> Option<String> {
        self.state().skipped.clone()
    }

    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn planned(&self, step: &Step) -> PlannedAnswer {
        let line = self.plan.fixture.lines.get(&step.key).map(|line| &line.what);
        if self.plan.answering == Answering::World {
            return PlannedAnswer::Effect;
        }
        match step.kind {
            StepKind::Model => self.reply(step, line),
            StepKind::Tool | StepKind::Code if step.is_refusal => PlannedAnswer::Effect,
            StepKind::Tool | StepKind::Code => self.result_of_tool(step, line),
            StepKind::Decide => match (offered_by(step), line) {
                (None, _) => PlannedAnswer::Effect,
                (Some(_), Some(FixtureStep::Offer { offer, .. })) => self.offer(offer),
                (Some(server), _) => self.is_stale(step, vec![format!("what the server {server} offers")]),
            },
            StepKind::Ask | StepKind::Call => PlannedAnswer::Effect,
        }
    }

    fn offer(&self, offer: &RawJson) -> PlannedAnswer {
        let tools: Vec<Value> = offer.to().unwrap_or_default();
        let names = tools.iter().filter_map(|tool| tool["name"].as_str());
        self.state().offered.extend(names.map(str::to_owned));
        let record = RawJson::from_valid(format!("{{\"value\":{}}}", offer.get()));
        here(&record, &self.plan.project).map_or(PlannedAnswer::Stop, PlannedAnswer::Recorded)
    }

    fn reply(&self, step: &Step, line: Option<&FixtureStep>) -> PlannedAnswer {
        let Some(FixtureStep::Reply { parts, said, reply }) = line else {
            let changed = self.changed_before(step);
            let more = || vec!["more requests than recorded".to_owned()];
            return self.is_stale(step, if changed.is_empty() { more() } else { changed });
        };
        if self.plan.answering == Answering::Record {
            let now = self.parts(step);
            let mut changed: Vec<String> = parts.changes(&now).into_iter().map(str::to_owned).collect();
            changed.extend(self.changed_before(step));
            if changed.is_empty() && *said != said_digest(step) && !self.tells_of_place() {
                changed.push("what was said before".to_owned());
            }
            if !changed.is_empty() {
                return self.is_stale(step, changed);
            }
        }
        let reply = here(reply, &self.plan.project);
        reply.map_or(PlannedAnswer::Stop, PlannedAnswer::Recorded)
    }

    /// Inputs and results that are not those of the record. What comes behind this step was not asked for yet.
    fn changed_before(&self, step: &Step) -> Vec<String> {
        if self.plan.answering != Answering::Record {
            return Vec::new();
        }
        let state = self.state();
        let mut changed = Vec::new();
        for line in state.made.lines.values().filter(|line| line.k != step.key) {
            let before = self.plan.fixture.lines.get(&line.k).map(|line| &line.what);
            match (&line.what, before) {
                (FixtureStep::Input(now), Some(FixtureStep::Input(before))) if now != before => {
                    changed.push("input".to_owned());
                }
                (FixtureStep::Result { tool, gave, .. }, Some(FixtureStep::Result { gave: before, .. }))
                    if gave != before =>
                {
                    changed.push(format!("the result of {tool}"));
                }
                _ => {}
            }
        }
        changed
    }

    /// Whether what was said names the place of the scratch project, which is another one each time.
    fn tells_of_place(&self) -> bool {
        self.state().results.values().any(|result| result.get().contains(&self.plan.project))
    }

    fn result_of_tool(&self, step: &Step, line: Option<&FixtureStep>) -> PlannedAnswer {
        let tool = tool_of(step);
        let is_of_server = || {
            let state = self.state();
            self.plan
                .server_prefixes
                .iter()
                .any(|prefix| tool.strip_prefix(prefix.as_str()).is_some_and(|name| state.offered.contains(name)))
        };
        let is_unfenced = self.plan.unfenced.contains(&tool);
        if !self.plan.are_tools_recorded && !is_unfenced && !is_of_server() {
            return PlannedAnswer::Effect;
        }
        match line {
            Some(FixtureStep::Result { request, gave, .. })
                if self.plan.answering == Answering::RecordToAnything || *request == self.request_digest(step) =>
            {
                result_of(gave, &self.plan.project).map_or(PlannedAnswer::Stop, PlannedAnswer::Recorded)
            }
            Some(_) | None if is_unfenced => {
                self.state().skipped.get_or_insert(tool);
                PlannedAnswer::Stop
            }
            Some(_) | None => self.is_stale(step, vec![format!("a call of {tool} that the record does not have")]),
        }
    }

    fn is_stale(&self, step: &Step, changed: Vec<String>) -> PlannedAnswer {
        let mut unique: Vec<String> = Vec::new();
        for what in changed {
            if !unique.contains(&what) {
                unique.push(what);
            }
        }
        self.state().stale.get_or_insert(StaleStep { key: step.key.clone(), changed: unique });
        PlannedAnswer::Stop
    }

    fn parts(&self, step: &Step) -> PartDigests {
        step.parts.as_ref().map(|parts| PartDigests::of(parts, &self.plan.project)).unwrap_or_default()
    }

    fn request_digest(&self, step: &Step) -> String {
        short_digest([anywhere(step.request.get(), &self.plan.project).as_str()])
    }

    /// Keeps what a step gave.
    fn observe(&self, step: &Step, result: &RawJson) {
        let what = match step.kind {
            StepKind::Model => {
                let reply = self.anywhere(&reply_value(result));
                Some(FixtureStep::Reply { parts: self.parts(step), said: said_digest(step), reply })
            }
            StepKind::Tool | StepKind::Code => gave_value(&step.key, result, self).map(|gave| {
                let (tool, request) = (tool_of(step), self.request_digest(step));
                FixtureStep::Result { tool, request, gave: self.anywhere(&gave) }
            }),
            StepKind::Decide => match offered_by(step) {
                Some(server) => {
                    offer_value(result).map(|offer| FixtureStep::Offer { server, offer: self.anywhere(&offer) })
                }
                None => step.key.ends_with("/input").then(|| {
                    let value = result.to::<Value>().unwrap_or_default();
                    FixtureStep::Input(short_digest([
                        anywhere(&value["value"].to_string(), &self.plan.project).as_str()
                    ]))
                }),
            },
            StepKind::Ask | StepKind::Call => None,
        };
        let mut state = self.state();
        if let Some(what) = what {
            state.made.lines.insert(step.key.clone(), FixtureLine { k: step.key.clone(), what });
        }
        state.results.insert(step.key.clone(), result.clone());
    }

    fn anywhere(&self, value: &RawJson) -> RawJson {
        RawJson::parse(&anywhere(value.get(), &self.plan.project)).unwrap_or_else(|_| value.clone())
    }
}

/// All that was said, but for what each request says again.
fn said_digest(step: &Step) -> String {
    short_digest([step.request.get()])
}

impl RecordedSteps for TestJournal {
    fn result(&self, key: &str) -> Option<RawJson> {
        self.state().results.get(key).cloned()
    }

    fn keys_beneath(&self, key: &str) -> Vec<String> {
        let prefix = format!("{key}/");
        self.state().results.keys().filter(|key| key.starts_with(&prefix)).cloned().collect()
    }
}

impl Journal for TestJournal {
    fn step<'a>(
        &'a self,
        step: Step,
        effect: BoxFuture<'a, Result<RawJson, Stop>>,
    ) -> BoxFuture<'a, Result<StepAnswer, Stop>> {
        Box::pin(async move {
            match self.planned(&step) {
                PlannedAnswer::Effect => {
                    let result = effect.await?;
                    self.observe(&step, &result);
                    Ok(StepAnswer::Ran)
                }
                PlannedAnswer::Recorded(result) => {
                    self.observe(&step, &result);
                    Ok(StepAnswer::Recorded(result))
                }
                PlannedAnswer::Stop => Err(Stop::Unrecorded { key: step.key, kind: step.kind }),
            }
        })
    }

    fn lost(&self, _: &str, _: StepKind, _: RawJson) {}

    /// Everything is judged and asked anew: a record of a case decides nothing.
    fn prior(&self, _: &str, _: StepKind, _: &RawJson) -> Prior {
        Prior::Nothing
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::event::ToldLog;
    use crate::journal::StepRecord;
    use crate::journal::call::{CallOutcome, CallRecord, request_of};
    use crate::message::{Arguments, Content, ToolCall};

    fn step(command: &str) -> Step {
        let arguments = Arguments::Object(RawJson::of(&serde_json::json!({ "command": command })));
        let call = ToolCall { id: "1".into(), tool: "shell".into(), arguments, private: None };
        Step {
            key: "a/t0/c0".into(),
            kind: StepKind::Tool,
            request: RawJson::of(&request_of(&call)),
            shown: None,
            interrupted: None,
            parts: None,
            judged: None,
            is_refusal: false,
        }
    }

    fn journal(fixture: Fixture, unfenced: &[&str], answering: Answering) -> TestJournal {
        TestJournal::new(ReplayPlan {
            answering,
            fixture,
            are_tools_recorded: false,
            server_prefixes: Vec::new(),
            unfenced: unfenced.iter().map(|tool| (*tool).to_owned()).collect(),
            project: "/scratch".into(),
        })
    }

    /// What a command gives, and how often it ran.
    fn run(journal: &TestJournal, command: &str, ran: &Arc<AtomicUsize>) -> Result<StepAnswer, Stop> {
        let ran = Arc::clone(ran);
        let effect = Box::pin(async move {
            ran.fetch_add(1, Ordering::Relaxed);
            let value = CallRecord::at_once(CallOutcome::Content(vec![Content::text("a.md")]));
            Ok(RawJson::of(&StepRecord { value, told: ToldLog::default() }))
        });
        journal.step(step(command), effect).now_or_never().unwrap()
    }

    /// Where nothing keeps a command within bounds, the record says what it gave; another command skips the case.
    #[test]
    fn what_no_fence_keeps_answers_from_the_record_or_skips_the_case() {
        let ran = Arc::new(AtomicUsize::new(0));
        let recording = journal(Fixture::default(), &["shell"], Answering::World);
        assert!(matches!(run(&recording, "ls", &ran), Ok(StepAnswer::Ran)));
        let fixture = recording.fixture();
        let fenced = journal(fixture.clone(), &[], Answering::Record);
        assert!(matches!(run(&fenced, "ls", &ran), Ok(StepAnswer::Ran)), "behind a fence it runs");
        assert_eq!(ran.load(Ordering::Relaxed), 2);
        let unfenced = journal(fixture.clone(), &["shell"], Answering::Record);
        let Ok(StepAnswer::Recorded(result)) = run(&unfenced, "ls", &ran) else { panic!("it is in the record") };
        assert!(result.get().contains("a.md") && unfenced.skipped().is_none(), "{}", result.get());
        let other = journal(fixture, &["shell"], Answering::Record);
        assert!(run(&other, "ls -l", &ran).is_err());
        assert_eq!((other.skipped().as_deref(), ran.load(Ordering::Relaxed)), (Some("shell"), 2), "nothing ran");
    }
}
