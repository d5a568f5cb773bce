//! `llm-do runs show`: what was called in a run, what is open, how to go on.

use llm_do::approval::{PendingQuestion, short_id};
use llm_do::escape::visible;
use llm_do::records::{ForkOrigin, JournalContents, RunKind, input_text, shown_time};
use llm_do::store::index::{IndexLine, RunState};
use llm_do::store::items::{ItemName, ItemTally};
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::store::summary::{JournalUse, RunSummary};
use llm_do_launch::question;
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::{ShownRun, now, waiting as waits};
use serde::Serialize;

use super::{NamedRun, damaged, table, transcript, tree};
use crate::args::ShowRunArgs;
use crate::commands::resume::doubts;
use crate::failure::Failure;
use crate::terminal::{style::fit, summary};
use crate::{console, json};

pub fn run(args: &ShowRunArgs, settings: &Settings) -> Result<(), Failure> {
    let named = NamedRun::find(&args.named.run, settings)?;
    let contents = named.store.read_journal(named.id()).map_err(|error| damaged(named.id(), &error.to_string()))?;
    if args.svg {
        return console::print(&llm_do_web::run_svg(&contents));
    }
    let shown = RunSheet::of(&named.store, named.line, &contents, args.messages);
    console::print(&if args.json { json::line(&shown) } else { shown.text(&contents) })
}

/// All that is shown of a run, as JSON one object.
pub fn shown(typed: &str, with_messages: bool, settings: &Settings) -> Result<RunSheet, Failure> {
    let named = NamedRun::find(typed, settings)?;
    let contents = named.store.read_journal(named.id()).map_err(|error| damaged(named.id(), &error.to_string()))?;
    Ok(RunSheet::of(&named.store, named.line, &contents, with_messages))
}

/// All that is shown of a run, with what can be typed now; as JSON one object.
#[derive(Serialize)]
pub struct RunSheet {
    #[serde(flatten)]
    shown: ShownRun,
    /// What its items have come to, if it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<ShownItems>,
    /// Commands that go on with it.
    commands: Vec<String>,
}

/// What the items of a run have come to. Of ten thousand nobody reads all: those that failed are named, up to a number.
#[derive(Serialize)]
struct ShownItems {
    answered: u64,
    waiting: u64,
    failed: u64,
    begun: u64,
    /// The first of those that failed, with the reason.
    failures: Vec<ItemFailure>,
}

#[derive(Serialize)]
struct ItemFailure {
    input: String,
    error: String,
}

impl ShownItems {
    /// So many are named.
    const MOST: usize = 12;

    /// Their open questions are added to those of the run.
    fn of(store: &RunStore, id: &RunId, tally: &ItemTally, waiting: &mut Vec<PendingQuestion>) -> Self {
        let read = |name: &ItemName| store.read_item(id, name).ok();
        let failure = |(name, error): &(ItemName, String)| {
            let input = read(name).and_then(|contents| {
                let key = format!("{}/t0/input", contents.entry()?);
                input_text(&contents, &key)
            });
            ItemFailure { input: input.unwrap_or_default(), error: error.clone() }
        };
        let failures = tally.failed.iter().take(Self::MOST).map(failure).collect();
        for name in tally.waits.iter().take(Self::MOST) {
            waiting.extend(read(name).map(|contents| waits(&contents, &format!("{id}/{name}"))).unwrap_or_default());
        }
        let (answered, begun) = (tally.answered, tally.begun);
        Self { answered, waiting: tally.waits.len() as u64, failed: tally.failed.len() as u64, begun, failures }
    }

    fn text(&self) -> String {
        let named = [(self.answered, "answered"), (self.waiting, "waiting"), (self.failed, "failed")];
        let named = named.into_iter().chain([(self.begun, "begun")]).filter(|(count, _)| *count > 0);
        let counts: Vec<String> = named.map(|(count, word)| format!("{count} {word}")).collect();
        let mut text = if counts.is_empty() { "none yet".to_owned() } else { counts.join(" · ") };
        for ItemFailure { input, error } in &self.failures {
            text.push_str(&format!("\n  {}: {}", fit(input, 40), fit(error, 100)));
        }
        let more = self.failed - self.failures.len() as u64;
        if more > 0 {
            text.push_str(&format!("\n  and {more} more that failed"));
        }
        text
    }
}

impl RunSheet {
    fn of(store: &RunStore, line: IndexLine<'static>, contents: &JournalContents, with_messages: bool) -> Self {
        let mut shown = ShownRun::of(line, contents, with_messages);
        let items = (contents.identity.kind == RunKind::Map).then(|| {
            let tally = store.tally(&shown.line.id).unwrap_or_default();
            let summary = RunSummary::of(contents, JournalUse::Free).with_items(&tally);
            let (requests, cost) = (summary.usage.requests, summary.usage.cost_usd);
            shown.line = IndexLine { turns: summary.turns, requests, cost, ..shown.line.clone() };
            shown.usage = summary.usage;
            ShownItems::of(store, &shown.line.id, &tally, &mut shown.waiting)
        });
        let fork = fork(&shown.line, !shown.calls.is_empty());
        Self { commands: commands(&shown.line, &shown.waiting, fork), items, shown }
    }

    fn text(&self, contents: &JournalContents) -> String {
        let ShownRun { line, usage, .. } = &self.shown;
        let row = |name: &str, value: &str| format!("{name:<8}  {}\n", visible(value));
        let mut text = format!("run {} · {}\n", line.id, table::state(line));
        text.push_str(&row("project", &line.project));
        text.push_str(&row("entry", &line.entry));
        text.push_str(&line.label.as_deref().map(|label| row("label", label)).unwrap_or_default());
        if let Some(ForkOrigin { run, at }) = &self.shown.forked {
            text.push_str(&row("fork", &format!("of {run} at {at}")));
        }
        let by = self.shown.begun_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
        let ago = table::when(self.shown.begun, now());
        text.push_str(&row("begun", &format!("{}{by}, {ago}", shown_time(self.shown.begun))));
        let requests =
            if usage.requests == 1 { "1 request".to_owned() } else { format!("{} requests", usage.requests) };
        text.push_str(&row("took", &format!("{requests} · {} · {}", summary::tokens(usage), summary::cost(usage))));
        match &self.items {
            Some(items) => text.push_str(&format!("items     {}\n", items.text())),
            None if self.shown.calls.is_empty() => {}
            None => text.push_str(&format!("\n{}", tree::tree(&self.shown.calls))),
        }
        if let Some(messages) = &self.shown.messages {
            text.push_str(&format!("\n{}", transcript::markdown(messages, &line.entry).trim_end()));
            text.push('\n');
        }
        for pending in &self.shown.waiting {
            text.push_str(&format!("\n{}", question::pending(pending)));
        }
        let doubts = doubts(contents);
        if !doubts.is_empty() {
            text.push_str(&format!("\n{doubts}"));
        }
        text.push_str("\nto go on:\n");
        text.extend(self.commands.iter().map(|command| format!("  {command}\n")));
        text
    }
}

/// How the run is tried once more, from its beginning or from the last turn of a chat, if anything was done in it. Pure.
fn fork(line: &IndexLine<'_>, has_calls: bool) -> Option<String> {
    let id = line.id;
    match line.kind {
        _ if !has_calls => None,
        RunKind::Run | RunKind::Mcp => Some(format!("llm-do runs fork {id}")),
        RunKind::Chat | RunKind::Acp | RunKind::Scope | RunKind::V1 | RunKind::Other => {
            (line.turns > 0).then(|| format!("llm-do runs fork {id} --turn {}", line.turns))
        }
        RunKind::Map => None,
    }
}

/// What can be typed now. Pure.
fn commands(line: &IndexLine<'_>, waiting: &[PendingQuestion], fork: Option<String>) -> Vec<String> {
    let id = line.id;
    let with_fork = |command: String| std::iter::once(command).chain(fork).collect();
    match line.state {
        RunState::Running => vec![format!("llm-do runs follow {id}"), format!("llm-do runs cancel {id}")],
        RunState::Waits if line.kind == RunKind::Map => {
            vec!["llm-do inbox".to_owned(), format!("llm-do resume {id}")]
        }
        RunState::Waits if !waiting.is_empty() => {
            let flags = |flag: &str| {
                let each = waiting.iter().map(|asked| format!(" {flag} {}", short_id(&asked.id)));
                each.collect::<Vec<_>>().concat()
            };
            let (approve, refuse) = (flags("--approve"), flags("--refuse"));
            vec![format!("llm-do resume {id}{approve}"), format!("llm-do resume {id}{refuse}")]
        }
        RunState::Waits | RunState::Stopped | RunState::Died if matches!(line.kind, RunKind::Run | RunKind::Mcp) => {
            with_fork(format!("llm-do resume {id}"))
        }
        RunState::Done if matches!(line.kind, RunKind::Run | RunKind::Mcp) => with_fork(format!("llm-do resume {id}")),
        RunState::Waits | RunState::Stopped | RunState::Died | RunState::Done => match line.kind {
            RunKind::Chat | RunKind::Acp => with_fork(format!("llm-do chat --continue {id}")),
            RunKind::Map => vec![format!("llm-do resume {id}")],
            RunKind::Run | RunKind::Mcp | RunKind::Scope | RunKind::V1 | RunKind::Other => {
                with_fork(format!("llm-do resume {id}"))
            }
        },
        RunState::Damaged => vec![format!("llm-do runs rm {id} --force")],
    }
}
