//! What reading a journal costs, against parsing its lines: `reading make FILE` writes one of a thousand steps, and
//! `reading bytes|ignored|values|verified|contents FILE` reads it in one way. Run under `valgrind --tool=callgrind`, or
//! with `reading times FILE`, which prints JSON.

use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use llm_do::event::Events;
use llm_do::journal::file::{Durability, FileJournal, JournalSettings, NewRun, read as read_file};
use llm_do::journal::mac::StateKey;
use llm_do::journal::record::{RunIdentity, verified};
use llm_do::journal::{Journal, StepDescription, StepKind, StepValue, Steps, Stop};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Steps of the journal: two of five are model requests with an answer, the others calls with a result.
const STEPS: usize = 1_000;
/// How often each way is measured; the least time counts.
const ROUNDS: usize = 51;

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, file] = &arguments[..] else { return Ok(ExitCode::from(2)) };
    if mode == "make" {
        let executor = tokio::runtime::Builder::new_current_thread().build()?;
        executor.block_on(make(Path::new(file)))?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = Path::new(file);
    let result = if mode == "times" { times(file)? } else { json!(read(mode, file)?) };
    writeln!(std::io::stdout(), "{result}")?;
    Ok(ExitCode::SUCCESS)
}

fn key() -> StateKey {
    StateKey::from_bytes([7; 32])
}

/// Reads it in one way; how many lines there are.
fn read(mode: &str, file: &Path) -> Result<usize, Failure> {
    let bytes = &std::fs::read(file)?[..];
    let lines = || bytes.split_inclusive(|byte| *byte == b'\n');
    match mode {
        "bytes" => {}
        "ignored" => {
            for line in lines() {
                black_box(serde_json::from_slice::<IgnoredAny>(line)?);
            }
        }
        "values" => {
            for line in lines() {
                black_box(serde_json::from_slice::<Value>(line)?);
            }
        }
        "verified" => {
            black_box(verified(bytes, Some(&key())).map_err(|damage| format!("{damage:?}"))?);
        }
        "contents" => {
            black_box(read_file(file, Some(&key()))?);
        }
        _ => return Err("bytes, ignored, values, verified, contents or times".into()),
    }
    Ok(lines().count())
}

fn times(file: &Path) -> Result<Value, Failure> {
    let mut least = serde_json::Map::new();
    for mode in ["bytes", "ignored", "values", "verified", "contents"] {
        let mut best = u64::MAX;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            read(mode, file)?;
            best = best.min(u64::try_from(started.elapsed().as_nanos())?);
        }
        least.insert(format!("{mode}_ns"), json!(best));
    }
    Ok(Value::Object(least))
}

/// What such steps give.
#[derive(Serialize, Deserialize)]
struct Given(Value);

impl StepValue for Given {}

async fn make(file: &Path) -> Result<(), Failure> {
    let settings = JournalSettings { key: Some(key()), durability: Durability::Written, ..JournalSettings::default() };
    let run = NewRun::of(RunIdentity::default(), &json!({"project": ".", "input": "Hello"}));
    let engine: Arc<dyn Journal> = Arc::new(FileJournal::begin(file, run, settings)?);
    let (root, events) = (Steps::recorded_by(engine).at(format_args!("main/t0")), Events::unheard());
    let result = "a line of notes as people take them, with \"words\" in quotes\n".repeat(8);
    for number in 0..STEPS {
        let request = root.at(format_args!("m{}", number / 5 * 2 + number % 5 / 3));
        let (steps, kind, value) = match number % 5 {
            0 | 3 => {
                let text = json!({"type": "text", "text": "I read the notes, and then say what stands in them."});
                let call = json!({"type": "tool_call", "id": "call_1", "tool": "read_file", "arguments": {"path": "notes.txt"}});
                let usage = json!([[1, 655, 34], "0.00123"]);
                let reply = json!({"parts": [text, call], "model": "anthropic:claude-haiku-4-5", "finish": "tool_calls", "usage": usage});
                (request, StepKind::Model, reply)
            }
            call => {
                let gave = json!({"gave": {"content": [{"type": "text", "text": result}]}, "ms": 3});
                (request.at(format_args!("c{call}")), StepKind::Tool, gave)
            }
        };
        let described = || StepDescription::new(kind, &"request");
        let taken = steps.here(&events).step(described, |_| async move { Ok::<_, Stop>(Given(value)) });
        taken.await?;
    }
    Ok(())
}
