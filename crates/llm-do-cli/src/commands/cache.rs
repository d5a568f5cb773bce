//! `llm-do cache`: the replies that count again, and forgetting them.

use llm_do::escape::visible;
use llm_do::store::cache::{KeptReplies, ReplyStore};
use serde_json::json;

use crate::args::{CacheArgs, CacheCommand};
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::json;
use crate::terminal::style::{fit, width};
use crate::terminal::summary;

const WIDEST_NAME: usize = 32;

pub fn run(args: &CacheArgs) -> Result<(), Failure> {
    let store = store(&Environment::read())?;
    match &args.command {
        None => list(store.as_ref(), args.json),
        Some(CacheCommand::Rm { agent }) => forget(store.as_ref(), agent.as_deref()),
    }
}

fn list(store: Option<&ReplyStore>, as_json: bool) -> Result<(), Failure> {
    let kept = store.map(ReplyStore::all).unwrap_or_default();
    if as_json {
        return console::print(&kept.iter().map(line).collect::<String>());
    }
    if kept.is_empty() {
        console::complain("nothing is kept; agents with `cache: content` keep their replies\n");
    }
    console::print(&table(&kept))
}

fn forget(store: Option<&ReplyStore>, agent: Option<&str>) -> Result<(), Failure> {
    let forgotten = store.map_or(Ok(0), |store| store.forget(agent));
    let forgotten = forgotten.map_err(|error| Failure::failed(format!("the cache cannot be emptied: {error}")))?;
    if let (Some(agent), 0) = (agent, forgotten) {
        let hint = "`llm-do cache` lists the agents of which something is kept";
        return Err(Failure::usage(format!("nothing is kept of an agent `{}`", visible(agent))).hint(hint));
    }
    let replies = if forgotten == 1 { "reply" } else { "replies" };
    console::complain(&format!("{forgotten} {replies} forgotten\n"));
    Ok(())
}

fn store(environment: &Environment) -> Result<Option<ReplyStore>, Failure> {
    let settings = environment.settings()?;
    Ok(settings.state.replies(settings.config.cache.most())?)
}

/// A row for each agent.
fn table(kept: &[KeptReplies]) -> String {
    if kept.is_empty() {
        return String::new();
    }
    let heading = ["PROJECT", "AGENT", "REPLIES", "SIZE", "SAVED"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(heading).chain(kept.iter().map(cells)).collect();
    let widths: [usize; 5] =
        std::array::from_fn(|column| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let blanks = " ".repeat(widths[column] - width(cell));
            // Names begin where names begin, numbers end where numbers end.
            let cell = if column < 2 { format!("{cell}{blanks}") } else { format!("{blanks}{cell}") };
            text.push_str(if column == 0 { "" } else { "  " });
            text.push_str(&cell);
        }
        text.push('\n');
    }
    text
}

fn cells(kept: &KeptReplies) -> [String; 5] {
    let name = kept.project.rsplit('/').find(|part| !part.is_empty()).unwrap_or(&kept.project);
    let saved = if kept.saved.requests == 0 { "nothing yet".to_owned() } else { summary::cost(&kept.saved) };
    [
        fit(&visible(name), WIDEST_NAME),
        fit(&visible(&kept.agent), WIDEST_NAME),
        kept.replies.to_string(),
        format!("{} kB", kept.bytes.div_ceil(1000)),
        saved,
    ]
}

fn line(KeptReplies { project, agent, replies, bytes, saved, .. }: &KeptReplies) -> String {
    json::line(&json!({
        "project": project,
        "agent": agent,
        "replies": replies,
        "bytes": bytes,
        "saved": {
            "requests": saved.requests,
            "in": saved.input_tokens,
            "out": saved.output_tokens,
            "cost_usd": saved.cost_usd,
        },
    }))
}
