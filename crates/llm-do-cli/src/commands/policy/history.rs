//! `llm-do policy replay` and `suggest`: rules and the calls of kept runs.

use llm_do::escape::visible;
use llm_do::policy::{RuleFile, RuleSource, read_rules};
use llm_do_launch::error::LaunchError;
use llm_do_launch::policy::{self, HistoricCall, Replay, Suggestion};
use llm_do_launch::rules;
use llm_do_launch::settings::Settings;
use serde_json::{Value, json};

use crate::args::{PolicyReplayArgs, PolicySuggestArgs};
use crate::environment::Environment;
use crate::failure::{self, Failure};
use crate::terminal::{Terminal, trust};
use crate::{console, json};

pub fn replay(args: &PolicyReplayArgs, settings: &Settings) -> Result<(), Failure> {
    let all = match &args.rules {
        None => rules::load(settings)?,
        Some(path) => {
            let text = llm_do_launch::text::file("the rules", path)?;
            let label =
                path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
            let tried = RuleFile { path: path.clone(), label, text, source: RuleSource::Yours };
            // The organisation's count whatever is tried.
            let others = rules::read(settings)?.into_iter().filter(|file| file.source == RuleSource::Organisation);
            let files: Vec<RuleFile> = others.chain([tried]).collect();
            read_rules(&files).map_err(LaunchError::Project)?
        }
    };
    let history = super::history(settings, args.since)?;
    let replay = policy::replay(&history, &all, &rules::today());
    let text = if args.json { json::lines(&replay_json(&replay)) } else { replay_text(&replay) };
    console::print(&text)?;
    if replay.refused_and_run.is_empty() { Ok(()) } else { Err(Failure::Said { code: failure::FAILED }) }
}

fn replay_text(replay: &Replay<'_>) -> String {
    let Replay { run, asked, blocked, changed, refused_and_run } = replay;
    let mut text = format!("{run} run unasked, {asked} are asked, {blocked} are blocked\n");
    let line = |(call, explanation): &(&HistoricCall, llm_do::policy::Explanation)| {
        let rule = explanation.rule.as_deref().map(|place| format!(" ({})", visible(place))).unwrap_or_default();
        let now = serde_json::to_value(explanation.outlook).ok().and_then(|word| word.as_str().map(str::to_owned));
        let about = policy::about(call);
        format!("  {}  {}  now: {}{rule}\n", call.run, visible(&about), now.unwrap_or_default())
    };
    if !changed.is_empty() {
        text.push_str("these come out otherwise than they did:\n");
        text.extend(changed.iter().map(line));
    }
    if !refused_and_run.is_empty() {
        text.push_str("a person refused or changed these, and they would now run unasked:\n");
        text.extend(refused_and_run.iter().map(line));
    }
    text
}

fn replay_json(replay: &Replay<'_>) -> Value {
    let call = |(call, explanation): &(&HistoricCall, llm_do::policy::Explanation)| json!({"run": call.run.as_str(), "key": call.call.key, "tool": call.call.tool, "path": call.call.path, "now": explanation});
    json!({
        "run": replay.run,
        "asked": replay.asked,
        "blocked": replay.blocked,
        "changed": replay.changed.iter().map(call).collect::<Vec<_>>(),
        "refused_and_run": replay.refused_and_run.iter().map(call).collect::<Vec<_>>(),
    })
}

pub fn suggest(args: &PolicySuggestArgs, environment: &Environment, settings: &Settings) -> Result<(), Failure> {
    let history = super::history(settings, args.since)?;
    let suggestions = policy::suggest(&history, &rules::load(settings)?, &rules::today(), &rules::in_30_days())?;
    if args.json {
        return console::print(
            &suggestions.iter().map(|suggestion| json::line(&suggestion_json(suggestion))).collect::<String>(),
        );
    }
    if suggestions.is_empty() {
        console::complain("nothing was approved three times, by a person, that no rule covers yet\n");
        return Ok(());
    }
    let mut added = Vec::new();
    for suggestion in &suggestions {
        console::print(&suggestion_text(suggestion))?;
        if args.yes || agreed(environment)? {
            added.push(suggestion.draft.clone());
        }
    }
    if added.is_empty() {
        console::complain("nothing is added\n");
        return Ok(());
    }
    let path = rules::add(settings, &added)?;
    let count = if added.len() == 1 { "1 rule is".to_owned() } else { format!("{} rules are", added.len()) };
    console::complain(&format!("{count} added to {}\n", path.display()));
    Ok(())
}

/// Only a person at a terminal can agree here.
fn agreed(environment: &Environment) -> Result<bool, Failure> {
    if !environment.stdin_is_terminal || !environment.stderr_is_terminal || !Terminal::is_there() {
        return Ok(false);
    }
    trust::ask("add this rule?\n  y yes\n  n no\n")
}

fn suggestion_text(suggestion: &Suggestion) -> String {
    let Suggestion { draft, approved, runs, also } = suggestion;
    let times = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    let mut text = format!("{}\n  approved {approved} times in {times}, never refused\n", visible(&draft.shown()));
    if !also.is_empty() {
        let shown: Vec<String> = also.iter().take(5).map(|call| visible(call).into_owned()).collect();
        let more = also.len().saturating_sub(shown.len());
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        text.push_str(&format!("  it would also have covered: {}{more}\n", shown.join(", ")));
    }
    text
}

fn suggestion_json(suggestion: &Suggestion) -> Value {
    let Suggestion { draft, approved, runs, also } = suggestion;
    json!({"rule": draft.toml(), "approved": approved, "runs": runs, "also": also})
}
