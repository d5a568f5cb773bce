//! `llm-do runs`: which runs there are, the newest first. The list alone is read, and only runs that it calls running are
//! looked at.

use std::path::Path;

use llm_do::store::index::{IndexLine, IndexText, RunState};
use llm_do::store::run::RunStore;
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::open_run::project_at;
use llm_do_launch::settings::Settings;

use super::table;
use super::{now, owned, unlisted};
use crate::args::{ListRunsArgs, StateArg};
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;

/// So many are listed if nobody says otherwise.
const USUAL: usize = 20;

pub fn run(args: &ListRunsArgs, environment: &Environment, settings: &Settings) -> Result<(), Failure> {
    let filter = RunFilter::of(args, now());
    let Some(store) = settings.state.runs_so_far()? else {
        if !args.json {
            console::complain(filter.nothing());
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
        console::complain(filter.nothing());
    }
    printed
}

/// The runs that are wanted, the newest first, each as it is now.
pub fn listed(args: &ListRunsArgs, settings: &Settings) -> Result<Vec<IndexLine<'static>>, Failure> {
    let Some(store) = settings.state.runs_so_far()? else { return Ok(Vec::new()) };
    let (filter, text) = (RunFilter::of(args, now()), store.listed(&project_of).map_err(|error| unlisted(&error))?);
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
struct RunFilter {
    project: ProjectFilter,
    state: Option<RunState>,
    label: Option<String>,
    since: u64,
}

enum ProjectFilter {
    Any,
    /// The project with this canonical root.
    Root(String),
    /// All whose roots are called so.
    Name(String),
}

impl ProjectFilter {
    /// A path of a project, or a name as the table shows it.
    fn of(project: Option<&Path>, is_all: bool) -> Self {
        let root = |path: &Path| project_at(path).map(|root| root.to_string_lossy().into_owned());
        match project {
            Some(typed) => {
                let canonical = || typed.canonicalize().ok().map(|path| path.to_string_lossy().into_owned());
                let found = root(typed).or_else(canonical);
                found.map_or_else(|| Self::Name(typed.to_string_lossy().into_owned()), Self::Root)
            }
            None if is_all => Self::Any,
            None => root(Path::new(".")).map_or(Self::Any, Self::Root),
        }
    }
}

impl RunFilter {
    fn of(args: &ListRunsArgs, now: u64) -> Self {
        let since = args.since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        Self {
            project: ProjectFilter::of(args.project.as_deref(), args.all),
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

    /// The newest first, each as it is now.
    fn chosen<'a>(&'a self, text: &'a IndexText, store: &'a RunStore) -> Box<dyn Iterator<Item = IndexLine<'a>> + 'a> {
        let lines: Box<dyn Iterator<Item = IndexLine<'a>>> = match &self.project {
            ProjectFilter::Any => Box::new(text.newest()),
            ProjectFilter::Root(root) => Box::new(text.newest_of(root)),
            ProjectFilter::Name(name) => Box::new(
                text.newest()
                    .filter(move |line| line.project.trim_end_matches('/').rsplit('/').next() == Some(name.as_str())),
            ),
        };
        let wanted = lines.filter(|line| line.at >= self.since && self.fits_label(line) && self.may_be(line.state));
        let looked_at = wanted.map(|line| store.looked_at(line, &project_of));
        Box::new(looked_at.filter(|line| self.state.is_none_or(|state| line.state == state)))
    }

    fn fits_label(&self, line: &IndexLine<'_>) -> bool {
        self.label.is_none() || line.label.as_deref() == self.label.as_deref()
    }

    /// One that is called running, or could not be read, may be in any state by now.
    fn may_be(&self, listed: RunState) -> bool {
        matches!(listed, RunState::Running | RunState::Damaged) || self.state.is_none_or(|state| state == listed)
    }

    fn nothing(&self) -> &'static str {
        let is_filtered = self.state.is_some() || self.label.is_some() || self.since > 0;
        match (&self.project, is_filtered) {
            (ProjectFilter::Any, false) => "no run is kept yet\n",
            (ProjectFilter::Root(_), false) => {
                "no run of this project is kept; `llm-do runs --all` lists those of all\n"
            }
            (ProjectFilter::Name(_), false) => {
                "no run of such a project is kept; `llm-do runs --all` lists those of all\n"
            }
            (ProjectFilter::Any | ProjectFilter::Root(_) | ProjectFilter::Name(_), true) => "there is no such run\n",
        }
    }
}
