//! What a step of a journal costs, against the `fdatasync` that it cannot avoid: `steps DIRECTORY` prints JSON.

use std::fs::File;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llm_do::event::Events;
use llm_do::journal::file::FileJournal;
use llm_do::journal::mac::StateKey;
use llm_do::journal::{Journal, StepDescription, StepKind, StepValue, Steps, Stop};
use serde_json::{Value, json};
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Steps that wait for the disk.
const DURABLE: u32 = 600;
/// Steps that are not recorded.
const FREE: u32 = 5_000_000;
/// Steps that are taken at the same time.
const TOGETHER: u32 = 8;
/// How often all measurements are made in turn; the median of each counts.
const ROUNDS: usize = 7;

fn main() -> Result<ExitCode, Failure> {
    let Some(directory) = std::env::args_os().nth(1) else { return Ok(ExitCode::from(2)) };
    let executor = tokio::runtime::Builder::new_current_thread().build()?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(executor.block_on(round(Path::new(&directory)))?);
    }
    let middle = |choose: fn(&Round) -> Duration| {
        let mut times: Vec<u128> = rounds.iter().map(|round| choose(round).as_nanos()).collect();
        times.sort_unstable();
        u64::try_from(times[ROUNDS / 2]).unwrap_or(u64::MAX)
    };
    let result: Value = json!({
        "fdatasync_ns": middle(|round| round.sync),
        "step_ns": middle(|round| round.step),
        "parallel_step_ns": middle(|round| round.parallel),
        "effect_ns_thousandth": middle(|round| round.effect),
        "unrecorded_step_ns_thousandth": middle(|round| round.unrecorded),
    });
    writeln!(std::io::stdout(), "{result}")?;
    Ok(ExitCode::SUCCESS)
}

/// One round of measurements. `sync`, `step` and `parallel` are times of one sync or step; `effect` and `unrecorded`
/// are times of a thousand.
struct Round {
    sync: Duration,
    step: Duration,
    parallel: Duration,
    effect: Duration,
    unrecorded: Duration,
}

async fn round(directory: &Path) -> Result<Round, Failure> {
    let sync = bare(&directory.join("bare"))?;
    let step = sequential(&directory.join("sequential")).await?;
    let parallel = parallel(&directory.join("parallel")).await?;
    let started = Instant::now();
    for number in 0..FREE {
        black_box(effect(black_box(number)).await?);
    }
    let effect = started.elapsed() / (FREE / 1000);
    let (unrecorded_steps, events) = (Steps::unrecorded(), Events::unheard());
    let started = Instant::now();
    for number in 0..FREE {
        black_box(taken(black_box(&unrecorded_steps), number, &events).await?);
    }
    Ok(Round { sync, step, parallel, effect, unrecorded: started.elapsed() / (FREE / 1000) })
}

/// The line that a step writes, written and synced by itself.
fn bare(path: &Path) -> Result<Duration, Failure> {
    let line = format!("{}\n", "x".repeat(300));
    let mut file = File::create(path)?;
    let started = Instant::now();
    for _ in 0..DURABLE {
        file.write_all(line.as_bytes())?;
        file.sync_data()?;
    }
    let elapsed = started.elapsed() / DURABLE;
    std::fs::remove_file(path)?;
    Ok(elapsed)
}

async fn sequential(path: &Path) -> Result<Duration, Failure> {
    let (steps, events) = (recorded(path)?, Events::unheard());
    let started = Instant::now();
    for number in 0..DURABLE {
        taken(&steps, number, &events).await?;
    }
    let elapsed = started.elapsed() / DURABLE;
    std::fs::remove_file(path)?;
    Ok(elapsed)
}

async fn parallel(path: &Path) -> Result<Duration, Failure> {
    let steps = recorded(path)?;
    let started = Instant::now();
    let mut running = JoinSet::new();
    for lane in 0..TOGETHER {
        let steps = steps.clone();
        running.spawn(async move {
            let events = Events::unheard();
            for number in 0..DURABLE {
                taken(&steps, lane * DURABLE + number, &events).await?;
            }
            Ok::<_, Stop>(())
        });
    }
    while let Some(lane) = running.join_next().await {
        lane??;
    }
    let elapsed = started.elapsed() / (TOGETHER * DURABLE);
    std::fs::remove_file(path)?;
    Ok(elapsed)
}

fn recorded(path: &Path) -> Result<Steps, Failure> {
    let journal = FileJournal::create(path, &"a benchmark", Some(&StateKey::from_bytes([1; 32])))?;
    Ok(Steps::recorded_by(Arc::new(journal) as Arc<dyn Journal>))
}

/// A step like a model request: one line of about 300 bytes.
async fn taken(steps: &Steps, number: u32, events: &Events) -> Result<StepResult, Stop> {
    let steps = steps.at(format_args!("main/t0/m{number}"));
    let described = || StepDescription::new(StepKind::Model, &("x".repeat(100), number));
    steps.here(events).step(described, |_| effect(number)).await
}

fn effect(number: u32) -> Ready<Result<StepResult, Stop>> {
    ready(Ok(StepResult(u64::from(number) * 3)))
}

/// What a step of the benchmark gives.
#[derive(serde::Deserialize, serde::Serialize)]
struct StepResult(u64);

impl StepValue for StepResult {}
