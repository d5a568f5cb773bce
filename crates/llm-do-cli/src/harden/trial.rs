//! Written code, tried on recorded inputs in a scratch project: it runs as it would run in the project itself, behind the
//! fence, and what it gives is held against the agent's own schema.

use std::sync::Arc;

use llm_do::tests::{Answering, Fixture, PassRate, ReplayPlan, ScratchProject, TestJournal};
use llm_do::{Input, Journal, Output, RunError, WorkingDirectory};
use llm_do_launch::launch::{Launch, ListenPlan, ModelUse, Record};
use llm_do_launch::session::Update;
use serde_json::Value;

use super::records::Example;
use crate::failure::Failure;
use crate::test::case::TestBench;

/// Code that fails so often in a row, be it that it takes too long, is not tried any further.
const MOST_FAILURES: usize = 3;
/// How the runtime begins to say that code is not sure.
const NOT_SURE: &str = "it is not sure";

/// What code gave for an input.
#[derive(Clone, Debug, PartialEq)]
pub enum TrialAnswer {
    Answer(Value),
    NotSure(String),
    Failed(String),
    /// Others before it failed.
    Untried,
}

impl TrialAnswer {
    pub fn is(&self, output: &Value) -> bool {
        matches!(self, Self::Answer(answer) if answer == output)
    }

    /// For people.
    pub fn words(&self) -> String {
        match self {
            Self::Answer(answer) => answer.to_string(),
            Self::NotSure(why) => format!("not sure ({why})"),
            Self::Failed(why) => format!("failed ({why})"),
            Self::Untried => format!("not tried: it failed {MOST_FAILURES} times in a row"),
        }
    }
}

/// What came of examples.
pub struct CodeTrial<'a> {
    pub seen: Vec<(&'a Example, TrialAnswer)>,
    pub held_out: Vec<(&'a Example, TrialAnswer)>,
}

impl CodeTrial<'_> {
    /// On those that the author never saw.
    pub fn rate(&self) -> PassRate {
        PassRate::of(equal(&self.held_out), self.held_out.len() as u64)
    }

    pub fn differences(&self) -> impl Iterator<Item = &(&Example, TrialAnswer)> {
        let all = || self.held_out.iter().chain(&self.seen).filter(|(example, tried)| !tried.is(&example.output));
        let is_untried = |(_, tried): &&(&Example, TrialAnswer)| *tried == TrialAnswer::Untried;
        // What failed says why.
        all().filter(move |tried| !is_untried(tried)).chain(all().filter(move |tried| is_untried(tried)))
    }

    /// Whether code was not sure of one of them.
    pub fn is_ever_not_sure(&self) -> bool {
        self.held_out.iter().chain(&self.seen).any(|(_, tried)| matches!(tried, TrialAnswer::NotSure(_)))
    }

    /// `equal on 29 of 30 and on 14 of 15 that it never saw (70 to 99 %)`.
    pub fn words(&self) -> String {
        format!(
            "equal on {} of {} and on {} of {} that it never saw ({})",
            equal(&self.seen),
            self.seen.len(),
            equal(&self.held_out),
            self.held_out.len(),
            interval(&self.rate()),
        )
    }
}

fn equal(tried: &[(&Example, TrialAnswer)]) -> u64 {
    tried.iter().filter(|(example, tried)| tried.is(&example.output)).count() as u64
}

/// `70 to 99 %`.
pub fn interval(rate: &PassRate) -> String {
    format!("{:.0} to {:.0} %", (rate.low * 100.0).floor(), (rate.high * 100.0).ceil())
}

/// Runs the code on these inputs. The files lie in a copy of the project that is thrown away.
pub async fn tried(
    bench: &TestBench,
    agent: &str,
    files: &[(String, String)],
    inputs: &[&Value],
) -> Result<Vec<TrialAnswer>, Failure> {
    let failed = |error: llm_do::tests::ScratchError| Failure::usage(error.to_string());
    let scratch = ScratchProject::copy(&bench.listing, |_| true, bench.temporary.as_deref()).map_err(failed)?;
    for (path, text) in files {
        scratch.lay(path, text).map_err(failed)?;
    }
    let directory = WorkingDirectory::at(scratch.root());
    let directory = directory.map_err(|error| Failure::failed(format!("the scratch project: {error}")))?;
    let launch =
        Launch { project: bench.project.clone(), directory, entry: Some(agent.to_owned()), ..bench.launch.clone() };
    // Whoever is at the terminal has read the code and agreed to run it here.
    let linked = launch.survey(&bench.settings)?.trust_as_own()?.link().await?;
    let engine = Arc::new(TestJournal::new(ReplayPlan {
        answering: Answering::World,
        fixture: Fixture::default(),
        are_tools_recorded: false,
        server_prefixes: Vec::new(),
        unfenced: std::collections::BTreeSet::new(),
        project: scratch.root().display().to_string(),
    }));
    let ready = linked.ready(Record::Observed(engine as Arc<dyn Journal>, ModelUse::StandIn), None)?;
    let (session, mut updates) = ready.start(ListenPlan::default());
    let (mut found, mut failures) = (Vec::with_capacity(inputs.len()), 0);
    for input in inputs {
        if failures == MOST_FAILURES {
            found.push(TrialAnswer::Untried);
            continue;
        }
        session.turn(Input::from((*input).clone()));
        let ended = loop {
            match updates.next().await {
                Some(Update::TurnEnded(result)) => break result.answer,
                Some(_) => {}
                None => return Err(Failure::failed("the trial ended before it was over")),
            }
        };
        let tried = of_answer(ended);
        failures = if matches!(tried, TrialAnswer::Failed(_)) { failures + 1 } else { 0 };
        found.push(tried);
    }
    drop(session);
    while updates.next().await.is_some() {}
    Ok(found)
}

fn of_answer(answer: Result<Output, RunError>) -> TrialAnswer {
    match answer {
        Ok(output) => TrialAnswer::Answer(output.to_json().to().unwrap_or_default()),
        Err(RunError::Code { reason, .. }) => match reason.strip_prefix(NOT_SURE) {
            Some(why) => TrialAnswer::NotSure(why.trim_start_matches([':', ' ']).to_owned()),
            None => TrialAnswer::Failed(reason),
        },
        Err(error) => TrialAnswer::Failed(error.to_string()),
    }
}
