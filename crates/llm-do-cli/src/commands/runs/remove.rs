//! `llm-do runs rm`: runs that have ended are removed, with all that belongs to them. What they cost stays.

use llm_do::store::index::{IndexLine, RunState};
use llm_do::store::layout::RunId;
use llm_do::store::run::{Removal, RemoveError, RunStore};
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::now;

use super::{NamedRun, table, unlisted};
use crate::args::RemoveRunsArgs;
use crate::console;
use crate::failure::Failure;

pub fn run(args: &RemoveRunsArgs, settings: &Settings) -> Result<(), Failure> {
    let Some(store) = settings.state.runs_so_far()? else {
        return match args.runs.first() {
            Some(typed) => NamedRun::find(typed, settings).map(drop),
            None => console::print("no run is kept yet\n"),
        };
    };
    let (chosen, removal) = match args.older {
        Some(older) => {
            let before = now().saturating_sub(u64::try_from(older.as_millis()).unwrap_or(u64::MAX));
            (older_than(before, args.force, &store)?, Removal::Careful)
        }
        None => {
            let removal = if args.force { Removal::Forced } else { Removal::Careful };
            (named(&args.runs, args.force, settings)?, removal)
        }
    };
    let mut removed = 0;
    for id in &chosen {
        match store.remove(id, removal) {
            Ok(()) => removed += 1,
            // Somebody else was faster.
            Err(RemoveError::Unknown(_)) => {}
            Err(RemoveError::Running(_)) if args.older.is_some() => {}
            Err(error @ RemoveError::Running(_)) => return Err(Failure::usage(error.to_string())),
            Err(error @ RemoveError::Io(_)) => return Err(Failure::failed(format!("the run `{id}`: {error}"))),
        }
    }
    console::print(&format!("removed {removed} {}\n", if removed == 1 { "run" } else { "runs" }))
}

/// All that were named, or none: each must be one that may be removed.
fn named(typed: &[String], is_forced: bool, settings: &Settings) -> Result<Vec<RunId>, Failure> {
    let mut ids = Vec::new();
    for word in typed {
        let found = NamedRun::find(word, settings)?;
        if !is_forced && !found.line.state.is_finished() {
            let state = match found.line.state {
                RunState::Running => "is running".to_owned(),
                RunState::Damaged => "cannot be read".to_owned(),
                _ => table::state(&found.line).into_owned(),
            };
            return Err(Failure::usage(format!("the run `{}` {state}", found.id()))
                .hint("nothing was removed; `--force` removes it all the same"));
        }
        if !ids.contains(found.id()) {
            ids.push(*found.id());
        }
    }
    Ok(ids)
}

/// Those that came into their state before a moment; one that runs is never among them.
fn older_than(before: u64, is_forced: bool, store: &RunStore) -> Result<Vec<RunId>, Failure> {
    let text = store.listed(&project_of).map_err(|error| unlisted(&error))?;
    let old = text.newest().filter(|line| line.at < before).map(|line| store.looked_at(line, &project_of));
    let may_go = |line: &IndexLine<'_>| line.state.is_finished() || (is_forced && line.state != RunState::Running);
    Ok(old.filter(may_go).map(|line| line.id).collect())
}
