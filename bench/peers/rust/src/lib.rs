//! What the runners have in common: their command line, the conversations they hold, and how they are told to be right.

use std::future::Future;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

pub const MODEL: &str = "gpt-4.1-mini";
pub const INSTRUCTIONS: &str = "You are a friendly assistant. Answer briefly.";
pub const QUESTION: &str = "Hello";
pub const TOOL: &str = "read_file";
pub const TOOL_DESCRIPTION: &str = "Reads a text file";

const PIECE: &str = "and so the story goes further ";
const PIECES: usize = 20;
const SLOWNESS: Duration = Duration::from_millis(20);

/// `RUNNER BASE_URL WORK`.
#[derive(Clone, Copy)]
pub enum Work {
    /// One reply.
    One,
    /// One streamed reply of this many pieces.
    Stream(usize),
    /// A conversation in which the model calls the tool this often.
    Loop(usize),
    /// One in which it calls the tool this often at once, and the tool takes its time.
    Parallel(usize),
    /// This many conversations without a tool at the same time.
    Runs(usize),
    /// An agent that calls an agent that calls an agent.
    Nested,
}

/// What a conversation gave.
pub struct Held {
    pub text: String,
    pub calls: usize,
}

/// What each model of [`Work::Nested`] calls the next agent.
pub const NESTED: [&str; 2] = ["middle", "leaf"];

/// Where the model is, or the models of nested agents, and the work.
pub fn task() -> Result<(Vec<String>, Work), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut base_urls = vec![words.first().copied().unwrap_or_default().to_owned()];
    let work = match words.get(1..).unwrap_or_default() {
        ["one"] => Work::One,
        ["stream", pieces] => Work::Stream(pieces.parse()?),
        ["loop", calls] => Work::Loop(calls.parse()?),
        ["parallel", calls] => Work::Parallel(calls.parse()?),
        ["runs", runs] => Work::Runs(runs.parse()?),
        ["nested", second, third] => {
            base_urls.extend([(*second).to_owned(), (*third).to_owned()]);
            Work::Nested
        }
        _ => return Err("RUNNER BASE_URL (one | stream N | loop N | parallel N | runs N | nested URL URL)".into()),
    };
    Ok((base_urls, work))
}

/// The arguments of an agent that is called.
pub fn input_schema() -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "properties": { "input": { "type": "string" } },
        "required": ["input"],
    })
}

pub fn schema() -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "properties": { "path": { "type": "string" } },
        "required": ["path"],
    })
}

/// What is behind the tool.
pub async fn read_file(work: Work) -> String {
    if let Work::Parallel(_) = work {
        tokio::time::sleep(SLOWNESS).await;
    }
    "a line of notes as people take them\n".repeat(16)
}

/// Does the work on one thread, and fails if it came to something else than it should.
pub fn run<F>(work: Work, hold: impl Fn() -> F) -> Result<ExitCode, Failure>
where
    F: Future<Output = Result<Held, Failure>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let held: Vec<Held> = runtime.block_on(async {
        let count = if let Work::Runs(runs) = work { runs } else { 1 };
        let running: Vec<_> = (0..count)
            .map(|_| {
                let conversation = hold();
                tokio::spawn(async move {
                    let started = Instant::now();
                    conversation.await.map(|held| (held, started.elapsed()))
                })
            })
            .collect();
        let (mut held, mut times) = (Vec::new(), Vec::new());
        for conversation in running {
            let (one, time) = conversation.await??;
            held.push(one);
            times.push(time);
        }
        tell(&mut times);
        Ok::<_, Failure>(held)
    })?;
    let right = held.iter().all(|held| {
        let (pieces, calls) = match work {
            Work::One => return !held.text.is_empty(),
            Work::Stream(pieces) => (pieces, 0),
            Work::Loop(calls) | Work::Parallel(calls) => (PIECES, calls),
            Work::Runs(_) => (PIECES, 0),
            Work::Nested => (PIECES, 1),
        };
        // Some trim what a model says, and a piece ends with a space.
        held.text.trim_end().len() + 1 == pieces * PIECE.len() && held.calls == calls
    });
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The 99th percentile, for those who ask for it.
fn tell(times: &mut [Duration]) {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    println!("p99 {}", times[(times.len() * 99 / 100).min(last)].as_micros());
}
