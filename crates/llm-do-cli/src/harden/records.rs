//! What an agent was given and answered in kept runs: what code is written from, and what it is judged by.

use std::collections::BTreeMap;

use llm_do::Input;
use llm_do::program::AgentSpec;
use llm_do::records::{AnsweredCall, JournalContents, answered_calls};
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::record::RunHeader;
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::{ProjectFilter, RunFilter, now};
use serde_json::Value;

use crate::failure::Failure;

/// Fewer distinct records say nothing.
pub const FEWEST: usize = 12;

/// A distinct input, and what was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    pub input: Value,
    pub output: Value,
    /// The run that it comes from.
    pub run: String,
}

/// The answered calls of an agent in the runs of a project.
#[derive(Default)]
pub struct RecordedAnswers {
    /// Each with its run, the oldest first.
    pub calls: Vec<(String, AnsweredCall)>,
    pub runs: usize,
}

impl RecordedAnswers {
    /// Those of this project's kept runs since then. What others began is no record.
    pub fn read(
        agent: &AgentSpec,
        project: &std::path::Path,
        since: std::time::Duration,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let mut answers = Self::default();
        let Some(store) = settings.state.runs_so_far()? else { return Ok(answers) };
        let since = now().saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let filter = RunFilter { project: ProjectFilter::of(project), state: None, label: None, since };
        let unlisted = |error| Failure::failed(format!("the runs cannot be listed: {error}"));
        let listed = store.listed(&project_of).map_err(unlisted)?;
        let mut ids: Vec<_> = filter.chosen(&listed, &store).map(|line| line.id).collect();
        ids.reverse();
        for id in ids {
            let mut records: Vec<JournalContents> = Vec::new();
            // One that cannot be read, or is only being made, says nothing.
            records.extend(store.read_journal(&id).ok());
            for name in store.item_names(&id).unwrap_or_default() {
                records.extend(store.read_item(&id, &name).ok());
            }
            let before = answers.calls.len();
            for contents in &records {
                let said: Option<Input> = contents.header.to::<RunHeader>().ok().and_then(|header| header.input);
                let found = answered_calls(contents, agent, said.as_ref());
                answers.calls.extend(found.into_iter().map(|call| (id.to_string(), call)));
            }
            answers.runs += usize::from(answers.calls.len() > before);
        }
        Ok(answers)
    }

    /// What the agent itself answered: equal inputs once, the latest answer counts.
    pub fn examples(&self) -> Vec<Example> {
        let mut by_input: BTreeMap<String, Example> = BTreeMap::new();
        for (run, call) in self.calls.iter().filter(|(_, call)| !call.is_by_code) {
            let (Ok(input), Ok(output)) = (call.input.to::<Value>(), call.output.to::<Value>()) else { continue };
            by_input.insert(input.to_string(), Example { input, output, run: run.clone() });
        }
        by_input.into_values().collect()
    }
}

/// The examples to write from, and those that are held out: a third, whichever order they came in.
pub fn parted(examples: Vec<Example>) -> (Vec<Example>, Vec<Example>) {
    let held_out = examples.len() / 3;
    let mut shuffled: Vec<(String, Example)> = examples
        .into_iter()
        .map(|example| (llm_do::records::digest(["held out", example.input.to_string().as_str()]), example))
        .collect();
    shuffled.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut all: Vec<Example> = shuffled.into_iter().map(|(_, example)| example).collect();
    let held = all.split_off(all.len() - held_out);
    (all, held)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_third_is_held_out_and_always_the_same() {
        let example = |number: u64| Example { input: json!({"n": number}), output: json!(1), run: String::new() };
        let (own, held) = parted((0..45).map(example).collect());
        assert_eq!((own.len(), held.len()), (30, 15));
        let (_, again) = parted((0..45).rev().map(example).collect());
        assert_eq!(held, again);
        assert!(own.iter().all(|one| !held.contains(one)));
    }
}
