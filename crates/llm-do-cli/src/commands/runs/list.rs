//! `llm-do runs`: which runs there are, the newest first. The list alone is read, and only runs that it calls running are
//! looked at.

use std::path::Path;

use llm_do::store::index::{IndexLine, RunState};
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::{ProjectFilter, RunFilter, now, owned};

use super::{table, unlisted};
use crate::args::{ListRunsArgs, StateArg};
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;

/// So many are listed if nobody says otherwise.
const USUAL: usize = 20;

pub fn run(args: &ListRunsArgs, environment: &Environment, settings: &Settings) -> Result<(), Failure> {
    let filter = filter(args, now());
    let Some(store) = settings.state.runs_so_far()? else {
        if !args.json {
            console::complain(nothing(&filter));
        }
        return Ok(());
    };
    let text = store.listed(&project_of).map_err(|error| unlisted(&error))?;
    let most = args.lines.unwrap_or(if args.all { usize::MAX } else { USUAL });
    let lines: Vec<IndexLine<'_>> = filter.chosen(&text, &store).take(most).collect();
    let printed = console::print(&shown(&lines, args, environment));
    for line in lines.iter().filter(|line| line.state == RunState::Damaged) {
        if let Err(error) = store.read_journal(&line.id) {
            console::complain(&format!(
                "note: the run {} cannot be read: {}\n",
                line.id,
                crate::failure::marked(&error.to_string())
            ));
        }
    }
    if lines.is_empty() && !args.json {
        console::complain(nothing(&filter));
    }
    printed
}

/// The runs that are wanted, the newest first, each as it is now.
pub fn listed(args: &ListRunsArgs, settings: &Settings) -> Result<Vec<IndexLine<'static>>, Failure> {
    let Some(store) = settings.state.runs_so_far()? else { return Ok(Vec::new()) };
    let (filter, text) = (filter(args, now()), store.listed(&project_of).map_err(|error| unlisted(&error))?);
    let most = args.lines.unwrap_or(USUAL);
    Ok(filter.chosen(&text, &store).take(most).map(owned).collect())
}

/// The newest runs of a project, in a table.
pub fn of_project(root: &Path, settings: &Settings) -> Result<String, Failure> {
    let args = ListRunsArgs { project: Some(root.to_owned()), ..ListRunsArgs::default() };
    let lines = listed(&args, settings)?;
    let columns = console::columns().unwrap_or(table::NARROW).max(table::NARROW);
    Ok(if lines.is_empty() { String::new() } else { table::table(&lines, now(), columns) })
}

fn shown(lines: &[IndexLine<'_>], args: &ListRunsArgs, environment: &Environment) -> String {
    if args.json {
        return lines.iter().map(table::json).collect();
    }
    if lines.is_empty() {
        return String::new();
    }
    let columns = console::columns().filter(|_| environment.stdout_is_terminal && environment.stderr_is_terminal);
    table::table(lines, now(), columns.unwrap_or(table::NARROW).max(table::NARROW))
}

/// Which runs are wanted.
fn filter(args: &ListRunsArgs, now: u64) -> RunFilter {
    let since = args.since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    RunFilter {
        project: match args.project.as_deref() {
            Some(typed) => ProjectFilter::of(typed),
            None if args.all => ProjectFilter::Any,
            None => ProjectFilter::at(Path::new(".")),
        },
        state: args.state.map(|state| match state {
            StateArg::Running => RunState::Running,
            StateArg::Waits => RunState::Waits,
            StateArg::Stopped => RunState::Stopped,
            StateArg::Died => RunState::Died,
            StateArg::Done => RunState::Done,
            StateArg::Damaged => RunState::Damaged,
        }),
        label: args.label.clone(),
        since: since.map_or(0, |since| now.saturating_sub(since)),
    }
}

/// What is said where no run is wanted that there is.
fn nothing(filter: &RunFilter) -> &'static str {
    let is_filtered = filter.state.is_some() || filter.label.is_some() || filter.since > 0;
    match (&filter.project, is_filtered) {
        (ProjectFilter::Any, false) => "no run is kept yet\n",
        (ProjectFilter::Root(_), false) => "no run of this project is kept; `llm-do runs --all` lists those of all\n",
        (ProjectFilter::Name(_), false) => "no run of such a project is kept; `llm-do runs --all` lists those of all\n",
        (ProjectFilter::Any | ProjectFilter::Root(_) | ProjectFilter::Name(_), true) => "there is no such run\n",
    }
}
