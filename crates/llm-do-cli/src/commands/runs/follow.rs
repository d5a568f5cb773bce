//! `llm-do runs follow`: what another process does, as its record grows.

use std::time::{Duration, Instant};

use llm_do::records::JournalContents;
use llm_do::store::index::RunState;
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::store::summary::{JournalUse, RunSummary};
use llm_do_launch::growing::GrowingRun;
use llm_do_launch::keep::EndReason;
use llm_do_launch::settings::Settings;

use super::{NamedRun, damaged, telling};
use crate::args::NamedRunArgs;
use crate::console::{self, StdoutReader};
use crate::executor::executor;
use crate::failure::Failure;
use crate::signals::{Signals, StopSignal};

/// So often the record is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A long record takes long to read: most of the time is left to others.
const REST: u32 = 4;

pub fn run(args: &NamedRunArgs, settings: &Settings) -> Result<(), Failure> {
    let named = NamedRun::find(&args.run, settings)?;
    let executor = executor()?;
    let ended = executor.block_on(until_it_ends(&named.store, named.id(), &mut |news| console::print(news)));
    executor.shutdown_background();
    let contents = ended?;
    console::delivered()?;
    exit(named.id(), &contents)
}

/// Until nobody runs it any more; gives what its record says then.
pub async fn until_it_ends(
    store: &RunStore,
    id: &RunId,
    tell: &mut dyn FnMut(&str) -> Result<(), Failure>,
) -> Result<JournalContents, Failure> {
    let (mut signals, reader) = (Signals::listen()?, StdoutReader::of_stdout());
    let (mut told, mut seen) = (GrowingRun::default(), None);
    let lost = |error: std::io::Error| Failure::failed(format!("the run `{id}` cannot be followed: {error}"));
    loop {
        // Asked before the record is read: what it says then was all that there will be.
        let is_running = store.is_running(id).map_err(lost)?;
        let began = Instant::now();
        let length = std::fs::metadata(store.layout().journal(id)).map_err(lost)?.len();
        let mut contents = None;
        if seen.replace(length) != Some(length) || !is_running {
            let read = store.read_journal(id).map_err(|error| damaged(id, &error.to_string()))?;
            tell(&telling::news(&mut told, &read, id.as_str()))?;
            contents = Some(read);
        }
        match contents {
            Some(contents) if !is_running => return Ok(contents),
            Some(_) | None => {}
        }
        tokio::select! {
            stopped = signals.next() => return Err(match stopped {
                StopSignal::Interrupt => Failure::interrupted(),
                StopSignal::Terminate => Failure::terminated(),
            }),
            () = reader.gone() => return Err(Failure::unread()),
            () = tokio::time::sleep(LOOK.max(began.elapsed() * REST)) => {}
        }
    }
}

/// The exit code of the run itself.
pub fn exit(id: &RunId, contents: &JournalContents) -> Result<(), Failure> {
    let state = RunSummary::of(contents, JournalUse::Free).state;
    let reason = contents.ended().map(|end| EndReason::parse(&end.reason));
    let go_on = |failure: Failure| Err(failure.hint(format!("`llm-do runs show {id}` says how to go on")));
    match (state, reason) {
        (RunState::Done, _) => Ok(()),
        (RunState::Waits, _) => go_on(Failure::refused(format!("the run {id} waits for an answer"))),
        (RunState::Stopped, Some(reason)) => go_on(Failure::of_end(reason, id.as_str())),
        (RunState::Stopped | RunState::Died | RunState::Running | RunState::Damaged, _) => {
            go_on(Failure::failed(format!("the run {id} died")))
        }
    }
}
