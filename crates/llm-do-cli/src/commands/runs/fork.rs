//! `llm-do runs fork`: a new run that begins with what another one has recorded.

use llm_do::WorkingDirectory;
use llm_do::records::RunKind;
use llm_do::store::layout::RunId;
use llm_do_launch::kept_runs::{self, ForkChanges, ForkPlace, ForkedRun};
use llm_do_launch::settings::Settings;

use super::{NamedRun, damaged};
use crate::args::{ConductArgs, ForkRunArgs, ResumeArgs, RunArgs};
use crate::commands::resume;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::{console, plan};

pub fn run(args: ForkRunArgs, environment: &Environment, settings: &Settings) -> Result<(), Failure> {
    let ForkRunArgs { named, prompt, at, turn, conduct } = args;
    let place = match (at, turn) {
        (Some(key), _) => ForkPlace::Key(key),
        (None, Some(turn)) => ForkPlace::Turn(turn),
        (None, None) => ForkPlace::End,
    };
    let models = plan::overrides(&conduct, &WorkingDirectory::of_process(), environment, settings)?.models;
    let (origin, forked) = forked(&named.run, ForkChanges { place, prompt, models }, settings)?;
    console::complain(&format!(
        "note: {} is a fork of {} at {}; files and the outside world are not rewound\n",
        forked.id,
        origin,
        llm_do::escape::visible(&forked.at)
    ));
    go_on(forked, conduct)
}

/// The run that was meant, and a new one that begins as it did.
pub fn forked(typed: &str, changes: ForkChanges, settings: &Settings) -> Result<(RunId, ForkedRun), Failure> {
    let named = NamedRun::find(typed, settings)?;
    if named.line.kind == RunKind::Map {
        return Err(Failure::usage("a run over items has no places to begin a new one at")
            .hint(format!("`llm-do resume {}` asks about items that are new or have changed", named.id())));
    }
    let contents = named.store.read_journal(named.id()).map_err(|error| damaged(named.id(), &error.to_string()))?;
    Ok((*named.id(), kept_runs::fork(&named.store, &contents, changes, settings)?))
}

/// Goes on with the fork as with any other run that is kept. The project is taken as it is now.
fn go_on(forked: ForkedRun, conduct: ConductArgs) -> Result<(), Failure> {
    let ForkedRun { id, said, is_conversation, .. } = forked;
    if let Some(prompt) = said.filter(|_| is_conversation) {
        let continued = Some(id.to_string());
        return resume::continue_chat(&RunArgs {
            prompt: Some(prompt),
            no_stdin: true,
            chat: true,
            continued,
            force: true,
            conduct,
            ..RunArgs::default()
        });
    }
    resume::run(&ResumeArgs { force: true, ..ResumeArgs::of_run(id.as_str(), conduct) })
}
