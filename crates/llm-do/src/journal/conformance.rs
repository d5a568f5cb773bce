//! What every engine is held against. It is told in steps, as the loop takes them, and looks at nothing but what an engine
//! answers and which effects it ran: how an engine keeps its records is its own matter.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use futures_util::future::{join_all, select};
use tokio::sync::Notify;

use super::{Journal, Prior, Step, StepAnswer, StepKind, Stop};
use crate::BoxFuture;
use crate::message::RawJson;

/// One run of an engine that is tried, and the processes that take it further, one after the other.
pub trait Desk: Send {
    /// A new process goes on with the run, or begins it. The one before has ended or was killed.
    fn open(&mut self) -> BoxFuture<'_, Result<Arc<dyn Journal>, String>>;

    /// The process is killed now: what its engine has not made durable by this moment never was. Steps that were under way
    /// are dropped after this, and what that leads to must not reach the record.
    fn kill(&mut self);
}

/// Where an engine does not do what every engine does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonconformity {
    /// What was tried, in a few words.
    pub case: String,
    /// What came of it.
    pub fact: String,
}

impl fmt::Display for Nonconformity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.case, self.fact)
    }
}

impl std::error::Error for Nonconformity {}

/// Tries everything that holds for every engine, each on a run of its own: keys, steps side by side, effects that must not
/// run twice, interrupted and undone ones, other requests under a known key, questions that wait, and a process that is
/// killed at every moment of a small run. The first thing that is wrong is told.
///
/// # Errors
///
/// What the engine does otherwise.
pub async fn check(make: &(dyn Fn() -> Box<dyn Desk> + Sync)) -> Result<(), Nonconformity> {
    let named =
        |case: &str, result: Result<(), String>| result.map_err(|fact| Nonconformity { case: case.to_owned(), fact });
    named("a recorded step is not run again", recorded(make()).await)?;
    named("a failed step is tried again", failed(make()).await)?;
    named("steps side by side finish in any order", side_by_side(make()).await)?;
    named("another request under a known key is not answered", diverged(make()).await)?;
    named("an effect that must not run twice does not", once(make()).await)?;
    named("what never began may begin later", undone(make()).await)?;
    named("a question waits until somebody answers it", suspended(make()).await)?;
    named("costs of what failed are no result", lost(make()).await)?;
    named("what was recorded can be read", read(make()).await)?;
    let last = AtomicUsize::new(0);
    for at in 0.. {
        if at > last.load(Ordering::SeqCst) {
            break;
        }
        named(&format!("a process is killed at moment {at}"), killed(make(), at, &last).await)?;
    }
    Ok(())
}

type Outcome = Result<StepAnswer, Stop>;

fn json(text: &str) -> RawJson {
    RawJson::of(&text)
}

fn step(key: &str, kind: StepKind) -> Step {
    Step {
        key: key.to_owned(),
        kind,
        request: json(&format!("request of {key}")),
        shown: None,
        interrupted: None,
        parts: None,
        judged: None,
        is_refusal: false,
    }
}

fn once_step(key: &str) -> Step {
    Step { interrupted: Some(json("interrupted")), shown: Some(json("shown")), ..step(key, StepKind::Tool) }
}

fn question(text: &str) -> Step {
    Step { request: json(text), shown: Some(json(text)), ..step("q", StepKind::Ask) }
}

/// What effects did, as somebody outside of all processes sees it.
#[derive(Default)]
struct World(Mutex<BTreeMap<String, usize>>);

impl World {
    fn done(&self, key: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied().unwrap_or(0)
    }

    fn effect<'a>(&'a self, key: &str, result: Result<&str, Stop>) -> BoxFuture<'a, Result<RawJson, Stop>> {
        let (key, result) = (key.to_owned(), result.map(json));
        Box::pin(async move {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
            // Something outside is waited for.
            let mut waited = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            result
        })
    }
}

fn wants<T: fmt::Debug + PartialEq>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?} instead of {wanted:?}")) }
}

fn answered(text: &str) -> StepAnswer {
    StepAnswer::Recorded(json(text))
}

async fn recorded(mut desk: Box<dyn Desk>) -> Result<(), String> {
    const KINDS: [StepKind; 6] =
        [StepKind::Model, StepKind::Tool, StepKind::Code, StepKind::Ask, StepKind::Decide, StepKind::Call];
    let world = World::default();
    // Something is built on the decision, else it would be taken again.
    let key = |kind: StepKind| format!("main/t0/{}", if kind == StepKind::Call { "z" } else { kind.words() });
    let keys: Vec<(String, StepKind)> =
        KINDS.iter().enumerate().map(|(n, kind)| (format!("{}{n}", key(*kind)), *kind)).collect();
    let engine = desk.open().await?;
    for (key, kind) in &keys {
        let first = engine.step(step(key, *kind), world.effect(key, Ok("value"))).await;
        wants(&format!("{kind:?} for the first time"), &first, &Ok(StepAnswer::Ran))?;
    }
    drop(engine);
    for _ in 0..2 {
        let engine = desk.open().await?;
        for (key, kind) in keys.iter().filter(|(_, kind)| *kind != StepKind::Decide) {
            let again = engine.step(step(key, *kind), world.effect(key, Ok("another value"))).await;
            wants(&format!("{kind:?} again"), &again, &Ok(answered("value")))?;
            wants(&format!("how often {kind:?} ran"), &world.done(key), &1)?;
        }
    }
    Ok(())
}

async fn failed(mut desk: Box<dyn Desk>) -> Result<(), String> {
    let world = World::default();
    for wanted in [Err(Stop::Failed), Ok(StepAnswer::Ran), Ok(answered("value"))] {
        let engine = desk.open().await?;
        let result = if wanted == Err(Stop::Failed) { Err(Stop::Failed) } else { Ok("value") };
        let outcome = engine.step(step("m", StepKind::Model), world.effect("m", result)).await;
        wants("a step that fails first", &outcome, &wanted)?;
    }
    wants("how often it ran", &world.done("m"), &2)
}

async fn side_by_side(mut desk: Box<dyn Desk>) -> Result<(), String> {
    let world = World::default();
    let key = |number: usize| format!("main/c{number}");
    for (process, order) in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]].into_iter().enumerate() {
        let engine = desk.open().await?;
        // The last one is new in each process.
        let numbers = order.iter().map(|number| if *number == 3 { 3 + process } else { *number });
        let steps = numbers.map(|number| {
            let (key, engine) = (key(number), &engine);
            let step = if number % 2 == 0 { once_step(&key) } else { step(&key, StepKind::Tool) };
            let effect = world.effect(&key, Ok(&*key));
            async move { (number, engine.step(step, effect).await) }
        });
        for (number, outcome) in join_all(steps).await {
            let is_new = process == 0 || number == 3 + process;
            let wanted = if is_new { Ok(StepAnswer::Ran) } else { Ok(answered(&key(number))) };
            wants(&key(number), &outcome, &wanted)?;
            wants("how often it ran", &world.done(&key(number)), &1)?;
        }
    }
    Ok(())
}

async fn diverged(mut desk: Box<dyn Desk>) -> Result<(), String> {
    let world = World::default();
    let engine = desk.open().await?;
    for kind in [StepKind::Model, StepKind::Tool] {
        let _ = engine.step(step(kind.words(), kind), world.effect("known", Ok("value"))).await;
    }
    drop(engine);
    let engine = desk.open().await?;
    for (kind, other) in [(StepKind::Model, StepKind::Model), (StepKind::Tool, StepKind::Code)] {
        let key = kind.words().to_owned();
        let asked = Step { request: json("another"), kind: other, ..step(&key, kind) };
        let outcome = engine.step(asked, world.effect("unknown", Ok("value"))).await;
        wants("another request", &outcome, &Err(Stop::Diverged { key, kind: other }))?;
    }
    wants("what ran all the same", &world.done("unknown"), &0)
}

async fn once(mut desk: Box<dyn Desk>) -> Result<(), String> {
    let world = World::default();
    let engine = desk.open().await?;
    let mut begun = engine.step(once_step("c"), Box::pin(pending(&world, "c")));
    until(&mut begun, || world.done("c") > 0).await?;
    desk.kill();
    drop(begun);
    drop(engine);
    for _ in 0..2 {
        let engine = desk.open().await?;
        let outcome = engine.step(once_step("c"), world.effect("c", Ok("value"))).await;
        wants("its result", &outcome, &Ok(answered("interrupted")))?;
    }
    wants("how often it ran", &world.done("c"), &1)?;
    let engine = desk.open().await?;
    let prior = engine.prior("c", StepKind::Tool, &once_step("c").request);
    if matches!(prior, Prior::Done) { Ok(()) } else { Err(format!("what is known of it: {prior:?}")) }
}

/// An effect that begins and is not seen to end.
async fn pending(world: &World, key: &str) -> Result<RawJson, Stop> {
    let _ = world.effect(key, Ok("value")).await;
    std::future::pending().await
}

/// Polls a step until something has happened outside.
async fn until(begun: &mut BoxFuture<'_, Outcome>, has_happened: impl Fn() -> bool) -> Result<(), String> {
    poll_fn(|context| match begun.as_mut().poll(context) {
        Poll::Ready(outcome) => Poll::Ready(Err(format!("it ended too early: {outcome:?}"))),
        Poll::Pending if has_happened() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn undone(mut desk: Box<dyn Desk>) -> Result<(), String> {
    let world = World::default();
    let engine = desk.open().await?;
    let mut begun = engine.step(once_step("c"), world.effect("c", Ok("value")));
    // Polled once: an engine that waits for its record has not begun the effect yet.
    poll_fn(|context| {
        let _ = begun.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    drop(begun);
    drop(engine);
    let ran = world.done("c");
    let engine = desk.open().await?;
    let outcome = engine.step(once_step("c"), world.effect("c", Ok("value"))).await;
    let wanted = if ran == 0 { Ok(StepAnswer::Ran) } else { Ok(answered("interrupted")) };
    wants("its result", &outcome, &wanted)?;
    wants("how often it ran", &world.done("c"), &1)
}

async fn suspended(mut desk: Box<dyn Desk>) -> Result<(), String> {
    let world = World::default();
    for _ in 0..2 {
        let engine = desk.open().await?;
        let outcome = engine.step(question("may I?"), world.effect("q", Err(Stop::Failed))).await;
        wants("nobody is there", &outcome, &Err(Stop::Failed))?;
        drop(engine);
        let engine = desk.open().await?;
        match engine.prior("q", StepKind::Ask, &json("may I?")) {
            Prior::Asked(shown) => wants("what was asked", &shown, &json("may I?"))?,
            other => return Err(format!("what is known of a question that waits: {other:?}")),
        }
    }
    let engine = desk.open().await?;
    let outcome = engine.step(question("may I?"), world.effect("q", Ok("yes"))).await;
    wants("somebody answers", &outcome, &Ok(StepAnswer::Ran))?;
    drop(engine);
    let engine = desk.open().await?;
    let outcome = engine.step(question("may I?"), world.effect("q", Ok("no"))).await;
    wants("it is not asked again", &outcome, &Ok(answered("yes")))?;
    drop(engine);
    let engine = desk.open().await?;
    let outcome = engine.step(question("and this?"), world.effect("q", Ok("no"))).await;
    wants("another question is another question", &outcome, &Ok(StepAnswer::Ran))
}

async fn lost(mut desk: Box<dyn Desk>) -> Result<(), String> {
    let world = World::default();
    let engine = desk.open().await?;
    let _ = engine.step(step("main", StepKind::Model), world.effect("m", Err(Stop::Failed))).await;
    engine.lost("main", StepKind::Model, json("what it took"));
    drop(engine);
    let engine = desk.open().await?;
    let outcome = engine.step(step("main", StepKind::Model), world.effect("m", Ok("value"))).await;
    wants("the next attempt", &outcome, &Ok(StepAnswer::Ran))
}

async fn read(mut desk: Box<dyn Desk>) -> Result<(), String> {
    let world = World::default();
    let engine = desk.open().await?;
    let keys = ["main/b", "main/a/m0", "main/a"];
    for key in keys {
        let kind = if key == "main/a" { StepKind::Call } else { StepKind::Tool };
        let _ = engine.step(step(key, kind), world.effect(key, Ok(key))).await;
    }
    drop(engine);
    let engine = desk.open().await?;
    wants("a result", &engine.result("main/a/m0"), &Some(json("main/a/m0")))?;
    wants("no result", &engine.result("main/c"), &None)?;
    wants(
        "keys beneath",
        &engine.keys_beneath("main"),
        &["main/a", "main/a/m0", "main/b"].map(str::to_owned).to_vec(),
    )?;
    let prior = engine.prior("main/c", StepKind::Tool, &json("x"));
    if matches!(prior, Prior::Nothing) { Ok(()) } else { Err(format!("what is known of what never began: {prior:?}")) }
}

/// Counts moments, and stops time at one of them.
struct Clock {
    now: AtomicUsize,
    kills_at: usize,
    is_killed: Notify,
}

impl Clock {
    /// A moment passes. After the last one nothing does.
    async fn tick(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst);
        if now >= self.kills_at {
            self.is_killed.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// A small run: a request, two calls that must not run twice beside one that may, a question, and a call with a step of its
/// own. Each gives what it gave, or that nobody knows.
async fn small_run(engine: &dyn Journal, world: &World, clock: &Clock, known: &World) -> Result<Vec<RawJson>, String> {
    let take = |step: Step| async move {
        let key = step.key.clone();
        clock.tick().await;
        let effect = async {
            clock.tick().await;
            let result = world.effect(&key, Ok(&*key)).await;
            clock.tick().await;
            result
        };
        let outcome = engine.step(step.clone(), Box::pin(effect)).await;
        // From here on the run has it.
        clock.tick().await;
        let value = match outcome {
            Ok(StepAnswer::Ran) => json(&key),
            Ok(StepAnswer::Recorded(value)) => value,
            Err(stop) => return Err(format!("`{key}`: {stop:?}")),
        };
        let _ = known.effect(&key, Ok("")).await;
        Ok(value)
    };
    let mut values = vec![take(step("main/m0", StepKind::Model)).await?];
    let calls = [once_step("main/m0/c0"), step("main/m0/c1", StepKind::Tool), once_step("main/m0/c2")];
    for value in join_all(calls.map(take)).await {
        values.push(value?);
    }
    values.push(take(question("may I?")).await?);
    values.push(take(step("main/a/m0", StepKind::Model)).await?);
    values.push(take(step("main/a", StepKind::Call)).await?);
    Ok(values)
}

async fn killed(mut desk: Box<dyn Desk>, at: usize, last: &AtomicUsize) -> Result<(), String> {
    let (world, known) = (World::default(), World::default());
    let clock = Clock { now: AtomicUsize::new(0), kills_at: at, is_killed: Notify::new() };
    let engine = desk.open().await?;
    {
        let run = Box::pin(small_run(&*engine, &world, &clock, &known));
        let is_killed = Box::pin(clock.is_killed.notified());
        // Whatever is under way is dropped after the kill.
        let _first = select(run, is_killed).await;
        desk.kill();
    }
    drop(engine);
    last.fetch_max(clock.now.load(Ordering::SeqCst), Ordering::SeqCst);
    let had: BTreeMap<String, usize> = known.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let before: BTreeMap<String, usize> = world.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let clock = Clock { now: AtomicUsize::new(0), kills_at: usize::MAX, is_killed: Notify::new() };
    let engine = desk.open().await?;
    let values = small_run(&*engine, &world, &clock, &known).await?;
    let keys = ["main/m0", "main/m0/c0", "main/m0/c1", "main/m0/c2", "q", "main/a/m0", "main/a"];
    for (key, value) in keys.iter().zip(&values) {
        let is_once = key.starts_with("main/m0/c") && !key.ends_with('1');
        let began = before.get(*key).copied().unwrap_or(0);
        let is_interrupted = *value == json("interrupted");
        if *value != json(key) && !(is_once && is_interrupted) {
            return Err(format!("`{key}` gave {value:?}"));
        }
        if had.contains_key(*key) && world.done(key) != 1 {
            return Err(format!("`{key}` was answered before the kill and ran again"));
        }
        if is_once && world.done(key) > 1 {
            return Err(format!("`{key}` must not run twice and ran {} times", world.done(key)));
        }
        if is_once && !is_interrupted && world.done(key) != 1 {
            return Err(format!("`{key}` has a result and ran {} times", world.done(key)));
        }
        // It began and its result is not durable, or nobody knows whether it began.
        if world.done(key) == 0 && began == 0 && !is_interrupted {
            return Err(format!("`{key}` never ran"));
        }
    }
    Ok(())
}
