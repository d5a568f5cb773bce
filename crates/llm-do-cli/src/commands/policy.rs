//! `llm-do policy`: the lasting rules about calls, what they decide, and what they would have decided.

mod explain;
mod history;
mod shown;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llm_do::policy::LastingRule;
use llm_do::{Project, WorkingDirectory};
use llm_do_launch::open_run::project_at;
use llm_do_launch::policy::{CallHistory, rule_use};
use llm_do_launch::rules;
use llm_do_launch::settings::Settings;

use crate::args::{PolicyArgs, PolicyCommand};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::terminal::editor::{self, Editor};
use crate::{console, json};

pub fn run(args: PolicyArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = environment.settings()?;
    match args.command {
        None => list(args.json, &settings),
        Some(PolicyCommand::Explain(args)) => explain::run(args, &environment, settings),
        Some(PolicyCommand::Replay(args)) => history::replay(&args, &settings),
        Some(PolicyCommand::Suggest(args)) => history::suggest(&args, &environment, &settings),
        Some(PolicyCommand::Test) => test(&settings),
        Some(PolicyCommand::Edit) => edit(&environment, &settings),
    }
}

/// How far back it is counted how often a rule decides.
const COUNTED: Duration = Duration::from_hours(30 * 24);

fn list(as_json: bool, settings: &Settings) -> Result<(), Failure> {
    let here = project_at(std::path::Path::new("."));
    let mut all = rules::load(settings)?;
    if let Some(project) = &here {
        all.extend(manifest_rules(project)?);
    }
    let history = history(settings, COUNTED)?;
    let (today, found) = (rules::today(), rule_use(&history, &all, &rules::today()));
    let rows: Vec<shown::RuleRow<'_>> =
        all.iter().map(|rule| shown::RuleRow::of(rule, here.as_deref(), &today, &found)).collect();
    if as_json {
        return console::print(&rows.iter().map(json::line).collect::<String>());
    }
    if rows.is_empty() {
        console::complain("there are no lasting rules: the toolsets and the agents' own rules decide alone\n");
        return Ok(());
    }
    console::print(&shown::table(&rows))
}

/// The rules of the project's manifest. What else is wrong with the project is not told here.
fn manifest_rules(project: &std::path::Path) -> Result<Vec<Arc<LastingRule>>, Failure> {
    let loaded =
        Project::load(project).map_err(|report| Failure::from(llm_do_launch::error::LaunchError::Project(report)))?;
    Ok(loaded.rules().to_vec())
}

/// The calls of kept runs of this time.
fn history(settings: &Settings, since: Duration) -> Result<CallHistory, Failure> {
    let Some(store) = settings.state.runs_so_far()? else { return Ok(CallHistory::default()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begin = u64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(u64::MAX);
    let history = CallHistory::read(&store, begin)?;
    for run in &history.unread {
        console::complain(&format!("note: the run {run} cannot be read and is left out\n"));
    }
    Ok(history)
}

fn test(settings: &Settings) -> Result<(), Failure> {
    let files = rules::read(settings)?;
    let all = rules::load(settings)?;
    let count = match all.len() {
        1 => "1 rule is as its examples say".to_owned(),
        several => format!("{several} rules are as their examples say"),
    };
    let names: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
    let read = if names.is_empty() { "there is no file of rules".to_owned() } else { names.join(", ") };
    console::print(&format!("{count} ({read})\n"))
}

fn edit(environment: &Environment, settings: &Settings) -> Result<(), Failure> {
    let file =
        rules::own_file(settings).ok_or_else(|| Failure::usage("there is no home directory to keep rules in"))?;
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    let directory = WorkingDirectory::of_process();
    let editor = Editor::of(environment, std::path::Path::new("."), directory);
    let beginning = if before.is_empty() { shown::TEMPLATE } else { before.as_str() };
    let edited = executor()?.block_on(async {
        let terminal = Terminal::open().map_err(|_| {
            Failure::usage("an editor needs a terminal").hint(format!("the file is {}", file.display()))
        })?;
        editor::edit_file(&editor, &terminal, "rules.toml", beginning).await.map_err(Failure::failed)
    })?;
    if edited.trim() == beginning.trim() {
        console::complain("nothing was changed\n");
        return Ok(());
    }
    let meanwhile = || Failure::failed("the rules were changed by somebody else meanwhile; nothing is saved");
    let path = rules::change(settings, |now| if now == before { Ok(edited) } else { Err(changed_meanwhile()) })
        .map_err(|error| if error.fact() == CHANGED { meanwhile() } else { error.into() })?;
    console::complain(&format!("saved {}\n", path.display()));
    Ok(())
}

const CHANGED: &str = "the rules were changed meanwhile";

fn changed_meanwhile() -> llm_do_launch::error::LaunchError {
    llm_do_launch::error::LaunchError::failed(CHANGED)
}
