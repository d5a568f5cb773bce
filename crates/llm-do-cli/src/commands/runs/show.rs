//! `llm-do runs show`: what was called in a run, what is open, how to go on.

use llm_do::approval::{PendingQuestion, short_id};
use llm_do::escape::visible;
use llm_do::records::{ForkOrigin, JournalContents, RecordedCall, RunKind, calls, calls_of, conversation, shown_time};
use llm_do::store::index::{IndexLine, RunState};
use llm_do::store::summary::{JournalUse, RunSummary};
use llm_do::{Message, RawJson};
use llm_do_launch::question;
use llm_do_launch::settings::Settings;
use serde::Serialize;

use super::{NamedRun, damaged, now, table, transcript, tree};
use crate::args::ShowRunArgs;
use crate::commands::resume::{doubts, waiting};
use crate::failure::Failure;
use crate::{console, json, terminal::summary};

pub fn run(args: &ShowRunArgs, settings: &Settings) -> Result<(), Failure> {
    let named = NamedRun::find(&args.named.run, settings)?;
    let contents = named.store.read_journal(named.id()).map_err(|error| damaged(named.id(), &error.to_string()))?;
    let shown = ShownRun::of(named.line, &contents, args.messages);
    console::print(&if args.json { json::line(&shown) } else { shown.text(&contents) })
}

/// All that is shown of a run, as JSON one object.
pub fn shown(typed: &str, with_messages: bool, settings: &Settings) -> Result<ShownRun, Failure> {
    let named = NamedRun::find(typed, settings)?;
    let contents = named.store.read_journal(named.id()).map_err(|error| damaged(named.id(), &error.to_string()))?;
    Ok(ShownRun::of(named.line, &contents, with_messages))
}

/// All that is shown of a run; as JSON one object.
#[derive(Serialize)]
pub struct ShownRun {
    #[serde(flatten)]
    line: IndexLine<'static>,
    begun: u64,
    begun_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forked: Option<ForkOrigin>,
    usage: llm_do::messages::Usage,
    calls: Vec<RecordedCall>,
    /// Questions that nobody has answered.
    waiting: Vec<PendingQuestion>,
    /// Calls that may or may not have happened.
    in_doubt: Vec<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<Message>>,
    /// Commands that go on with it.
    commands: Vec<String>,
}

impl ShownRun {
    fn of(line: IndexLine<'static>, contents: &JournalContents, with_messages: bool) -> Self {
        let journal_use = if line.state == RunState::Running { JournalUse::Locked } else { JournalUse::Free };
        let RunSummary { usage, turns, requests, .. } = RunSummary::of(contents, journal_use);
        let waiting = waiting(contents, line.id.as_str());
        // A list may be a moment behind the record.
        let line = IndexLine { turns, requests: usage.requests, cost: usage.cost_usd, ..line };
        Self {
            begun: contents.begun_at,
            begun_by: contents.begun_by.clone(),
            forked: contents.identity.forked.clone(),
            usage,
            // A fork shows also what it took over, which is not its own.
            calls: if contents.identity.forked.is_some() { calls(contents) } else { calls_of(contents, &requests) },
            in_doubt: contents.in_doubt().map(|(_, shown)| shown.clone()).collect(),
            messages: with_messages.then(|| conversation(contents)),
            commands: commands(&line, &waiting),
            waiting,
            line,
        }
    }

    fn text(&self, contents: &JournalContents) -> String {
        let Self { line, usage, .. } = self;
        let row = |name: &str, value: &str| format!("{name:<8}  {}\n", visible(value));
        let mut text = format!("run {} · {}\n", line.id, table::state(line));
        text.push_str(&row("project", &line.project));
        text.push_str(&row("entry", &line.entry));
        text.push_str(&line.label.as_deref().map(|label| row("label", label)).unwrap_or_default());
        if let Some(ForkOrigin { run, at }) = &self.forked {
            text.push_str(&row("fork", &format!("of {run} at {at}")));
        }
        let by = self.begun_by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
        let ago = table::when(self.begun, now());
        text.push_str(&row("begun", &format!("{}{by}, {ago}", shown_time(self.begun))));
        let requests =
            if usage.requests == 1 { "1 request".to_owned() } else { format!("{} requests", usage.requests) };
        text.push_str(&row("took", &format!("{requests} · {} · {}", summary::tokens(usage), summary::cost(usage))));
        text.push_str(&format!("\n{}", tree::tree(&self.calls)));
        if let Some(messages) = &self.messages {
            text.push_str(&format!("\n{}", transcript::markdown(messages, &line.entry).trim_end()));
            text.push('\n');
        }
        for pending in &self.waiting {
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

/// What can be typed now. Pure.
fn commands(line: &IndexLine<'_>, waiting: &[PendingQuestion]) -> Vec<String> {
    let id = line.id;
    let fork = format!("llm-do runs fork {id} --at KEY");
    match line.state {
        RunState::Running => vec![format!("llm-do runs follow {id}"), format!("llm-do runs cancel {id}")],
        RunState::Waits if !waiting.is_empty() => {
            let flags = |flag: &str| {
                let each = waiting.iter().map(|asked| format!(" {flag} {}", short_id(&asked.id)));
                each.collect::<Vec<_>>().concat()
            };
            let (approve, refuse) = (flags("--approve"), flags("--refuse"));
            vec![format!("llm-do resume {id}{approve}"), format!("llm-do resume {id}{refuse}")]
        }
        RunState::Waits | RunState::Stopped | RunState::Died if line.kind == RunKind::Run => {
            vec![format!("llm-do resume {id}"), fork]
        }
        RunState::Done if line.kind == RunKind::Run => vec![format!("llm-do resume {id}"), fork],
        RunState::Waits | RunState::Stopped | RunState::Died | RunState::Done => match line.kind {
            RunKind::Chat => vec![format!("llm-do chat --continue {id}"), fork],
            RunKind::Run | RunKind::Scope | RunKind::Other => vec![format!("llm-do resume {id}"), fork],
        },
        RunState::Damaged => vec![format!("llm-do runs rm {id} --force")],
    }
}
