//! `llm-do runs export`: all that is kept of a run, on stdout.

use std::io;

use llm_do::escape::{visible, visible_json};
use llm_do::records::{RunKind, conversation, shown_time};
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::ShownRun;
use serde_json::{Map, Value};

use super::{NamedRun, damaged, table, transcript};
use crate::args::{ExportFormat, ExportRunArgs};
use crate::console;
use crate::failure::Failure;

pub fn run(args: &ExportRunArgs, settings: &Settings) -> Result<(), Failure> {
    let named = NamedRun::find(&args.named.run, settings)?;
    if named.line.kind == RunKind::Map && args.format != ExportFormat::Jsonl {
        return Err(Failure::usage("the items of a run cannot be exported like this")
            .hint("`--format jsonl` prints its record and those of all its items"));
    }
    match args.format {
        ExportFormat::Jsonl => {
            lines(&named.store, named.id())?;
            item_lines(&named.store, named.id())?;
        }
        ExportFormat::Markdown => console::print(&markdown(&named)?)?,
        ExportFormat::Html => {
            let contents = named.contents()?;
            let shown = ShownRun::of(named.line.clone(), &contents, false);
            console::print(&llm_do_web::run_html(&shown, &contents))?;
        }
        ExportFormat::Bundle => bundle(&named.store, named.id())?,
    }
    console::delivered()
}

/// As it is: whoever goes on with it compares every byte.
fn bundle(store: &RunStore, id: &RunId) -> Result<(), Failure> {
    let mut print = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        console::print(text).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    store.bundle(id, &mut print).map_err(|error| damaged(id, &error.to_string()))
}

/// The records of its items, one behind the other.
fn item_lines(store: &RunStore, id: &RunId) -> Result<(), Failure> {
    let unread = |reason: String| damaged(id, &reason);
    for name in store.item_names(id).map_err(|error| unread(error.to_string()))? {
        // What cannot be read, such as one that was only being begun, was not written by it.
        if store.read_item(id, &name).is_err() {
            continue;
        }
        let journal = std::fs::read(store.layout().item(id, &name)).map_err(|error| unread(error.to_string()))?;
        let whole = journal.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        print_lines(store, id, &journal[..whole])?;
    }
    Ok(())
}

/// The lines of the record without their macs, which say nothing to others, and with every value in its place.
fn lines(store: &RunStore, id: &RunId) -> Result<(), Failure> {
    // Whatever is printed as the record of a run was written by it.
    store.read_journal(id).map_err(|error| damaged(id, &error.to_string()))?;
    let mut journal = Vec::new();
    let mut take = |bytes: &[u8]| {
        journal.extend_from_slice(bytes);
        Ok(())
    };
    store.bundle(id, &mut take).map_err(|error| damaged(id, &error.to_string()))?;
    print_lines(store, id, &journal)
}

fn print_lines(store: &RunStore, id: &RunId, journal: &[u8]) -> Result<(), Failure> {
    for line in journal.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut line: Map<String, Value> =
            serde_json::from_slice(line).map_err(|error| damaged(id, &error.to_string()))?;
        if line.contains_key("base64") {
            continue;
        }
        line.remove("mac");
        if let Some(Value::String(digest)) = line.remove("blob") {
            let value = store.blobs(id).get(&digest).map_err(|error| damaged(id, &error.to_string()))?;
            line.insert("res".to_owned(), serde_json::from_slice(&value).unwrap_or(Value::Null));
        }
        let json = Value::Object(line).to_string();
        console::print(&format!("{}\n", visible_json(&json)))?;
    }
    Ok(())
}

fn markdown(named: &NamedRun) -> Result<String, Failure> {
    let contents = named.store.read_journal(named.id()).map_err(|error| damaged(named.id(), &error.to_string()))?;
    let line = &named.line;
    let (project, begun) = (visible(&line.project), shown_time(contents.begun_at));
    let head = format!(
        "# Run {}\n\n{project} · {} · begun {begun} · {}\n\n",
        line.id,
        visible(&line.entry),
        table::state(line)
    );
    Ok(head + transcript::markdown(&conversation(&contents), &line.entry).trim_end() + "\n")
}
