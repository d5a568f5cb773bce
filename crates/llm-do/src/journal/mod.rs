//! The one door for effects: every model request, tool call and approval is one step with a stable key, so that an
//! engine can record it, answer it from a record, or drive it elsewhere.
//!
//! Without an engine a step is its effect and nothing else: nothing is boxed, formatted or serialised. [`mod@file`] is the
//! engine that keeps a run in a file.

pub mod blobs;
pub mod call;
#[cfg(feature = "engine")]
pub mod conformance;
pub mod digest;
pub mod file;
#[cfg(feature = "front-end")]
pub mod fork;
#[cfg(test)]
pub(crate) mod generated;
pub mod mac;
pub mod parts;
pub mod record;
pub mod replica;
pub mod requests;
pub mod run_id;
pub mod telling;
mod writer;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::Either;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::event::{Derivation, Event, EventLog, Events, LogPart, Renaming, StepOrigin, ToldLog};
use crate::message::{Content, RawJson, WrittenJson, push_json};

pub use parts::RequestParts;

/// The engine under a run: takes a described effect and answers with its result, from the record or by running it.
///
/// A key with a recorded result never polls the effect again. The effect is polled in place, at most once. A result is
/// durable before it is returned (that of a decision: before anything that is done next); a [`Stop`] is never recorded.
/// Steps of different keys may run at the same time and finish in any order.
///
/// What an earlier process recorded can also be read, as [`RecordedSteps`]: a record names what stands in the records
/// beneath it instead of repeating it.
pub trait Journal: RecordedSteps + Send + Sync {
    /// Answers a step from the record, or polls its effect and records the result. A [`Stop`] of the effect is passed
    /// on.
    fn step<'a>(
        &'a self,
        step: Step,
        effect: BoxFuture<'a, Result<RawJson, Stop>>,
    ) -> BoxFuture<'a, Result<StepAnswer, Stop>>;

    /// A step gave no result: it failed, or nobody waits for it any more. What it took is kept all the same, as it was
    /// told.
    fn lost(&self, key: &str, kind: StepKind, told: RawJson);

    /// What the record has for a step that was not taken yet. What has a result is not judged again; all else is, since
    /// a record says what was done and never what may be done. A question of other words is another question.
    fn prior(&self, key: &str, kind: StepKind, request: &RawJson) -> Prior;
}

/// What was recorded before this process: results by the keys of their steps.
pub trait RecordedSteps {
    /// The result of a step that is done.
    fn result(&self, key: &str) -> Option<RawJson>;

    /// The keys of all steps beneath a place of which anything is recorded, in the order of the keys.
    fn keys_beneath(&self, key: &str) -> Vec<String>;

    /// Whether anything can be recorded of a step before it is taken. A run that has just begun is not asked for each.
    fn has_past(&self) -> bool {
        true
    }
}

/// How an engine answers a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepAnswer {
    /// The effect was run, and its result is recorded: whoever gave the effect has it.
    Ran,
    /// From the record.
    Recorded(RawJson),
}

/// What a step can give: what is recorded of it, and what follows from it.
pub trait StepValue: Serialize + DeserializeOwned + Send {
    /// The same value as a record gives it back: a line of a journal has no line breaks.
    #[must_use]
    fn settled(self) -> Self {
        self
    }

    /// Appends its JSON, as its serialisation has it. What nearly every step gives writes it without looking at the names of
    /// its members each time.
    fn write(&self, json: &mut Vec<u8>) {
        push_json(json, self);
    }

    /// How an event that the step told follows from its value; `None` if it has to be stored.
    fn derivation(&self, _event: &Event) -> Option<Derivation> {
        None
    }

    /// The value that was read at a key, with what it names in records beneath it put in.
    fn resolved(self, _key: &str, _records: &dyn RecordedSteps) -> Result<Self, String> {
        Ok(self)
    }
}

/// A message that was made of an input.
impl StepValue for Vec<Content> {}

/// What a function is given: a value, and files.
impl StepValue for (RawJson, Vec<Content>) {
    fn settled(self) -> Self {
        (self.0.in_one_line(), self.1)
    }
}

/// What a record has for a step.
#[derive(Clone, Debug)]
pub enum Prior {
    /// The step was never begun.
    Nothing,
    /// A person was asked something there, and not this, or has not answered it: what they were shown.
    Asked(RawJson),
    /// It may or may not have happened.
    Begun,
    /// It has a result, which [`Journal::step`] gives.
    Done,
    /// This engine runs nothing: what it does not have is missing. The result, if it has one.
    Replayed(Option<RawJson>),
}

/// An effect as data.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// Where in the call tree, never when: unique in a run, and the same each time it is run.
    pub key: String,
    /// What it does, which decides what becomes of it when it was interrupted.
    pub kind: StepKind,
    /// What identifies it: a record of another request is not its record.
    pub request: RawJson,
    /// What a person reads who decides on it later, or has to find out whether it happened.
    pub shown: Option<RawJson>,
    /// Set for what must not run twice: the result if it started and may have finished.
    pub interrupted: Option<RawJson>,
    /// What a model request is made of, for whoever looks at it later.
    pub parts: Option<StepParts>,
    /// How a call was judged before it was taken, for whoever looks at it later: no step is answered by it.
    pub judged: Option<RawJson>,
    /// Whether it only says why a call was refused: nothing is done.
    pub is_refusal: bool,
}

/// What a model request is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct StepParts {
    pub parts: Arc<RequestParts>,
    /// How many messages it sends.
    pub sent: u64,
}

/// What a step does, which decides what becomes of one that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// May be repeated: costs money, changes nothing.
    Model,
    /// Has no steps of its own.
    Tool,
    /// A tool whose code has steps of its own.
    Code,
    /// Waits for somebody.
    Ask,
    /// What is looked up on the way, such as the files that an input names; a question in it is a step of its own.
    /// Changes nothing, and is looked up again if nothing was built on it. Whether a call may run is never such a step.
    Decide,
    /// A call of an agent, with steps of its own.
    Call,
}

impl StepKind {
    /// Whether its result makes what stands beneath it irrelevant.
    pub(crate) fn is_call(self) -> bool {
        match self {
            Self::Tool | Self::Code | Self::Call => true,
            Self::Model | Self::Ask | Self::Decide => false,
        }
    }

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Code => "code",
            Self::Ask => "ask",
            Self::Decide => "decide",
            Self::Call => "call",
        }
    }

    /// As a person would call it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Model => "model request",
            Self::Tool | Self::Code => "tool call",
            Self::Ask => "question",
            Self::Decide => "decision",
            Self::Call => "call",
        }
    }
}

/// Why an engine gave no result; leaves the loop and is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// The record has another request under this key.
    #[error("the input differs from the recorded one ({} `{key}`)", .kind.words())]
    Diverged {
        /// The key of the step.
        key: String,
        /// What the step does.
        kind: StepKind,
    },
    /// The record has nothing under this key, and nothing may be run.
    #[error("the {} `{key}` is not in the record", .kind.words())]
    Unrecorded {
        /// The key of the step.
        key: String,
        /// What the step does.
        kind: StepKind,
    },
    /// The journal cannot be read or written, for this reason.
    #[error("the journal: {0}")]
    Journal(String),
    /// The effect ended the run.
    #[error("the step failed")]
    Failed,
}

/// Where in the call tree the loop is, and the engine that takes its steps.
#[derive(Clone)]
pub struct Steps(Option<StepPath>);

#[derive(Clone)]
struct StepPath {
    engine: Arc<dyn Journal>,
    place: Arc<StepPlace>,
    suspension: Suspension,
    has_past: bool,
}

/// What all have in common who are at one place.
struct StepPlace {
    path: String,
    /// How often code has asked for the same beneath it.
    named: Mutex<BTreeMap<String, u64>>,
}

impl StepPlace {
    fn of(path: String) -> Arc<Self> {
        Arc::new(Self { path, named: Mutex::new(BTreeMap::new()) })
    }
}

/// Whether a question that nobody can answer now may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Until the run is resumed.
    Possible,
    /// Nothing is recorded, so it would be lost.
    Unrecorded,
    /// It is asked within code that does not run twice: nobody could come back to it.
    WithinOnce,
}

impl Steps {
    /// Nothing is recorded.
    pub fn unrecorded() -> Self {
        Self(None)
    }

    /// The root of a run.
    pub fn recorded_by(engine: Arc<dyn Journal>) -> Self {
        let (place, suspension, has_past) = (StepPlace::of(String::new()), Suspension::Possible, engine.has_past());
        Self(Some(StepPath { engine, place, suspension, has_past }))
    }

    /// Whether an engine may know of steps here that were taken by an earlier process.
    pub(crate) fn has_past(&self) -> bool {
        self.0.as_ref().is_some_and(|place| place.has_past)
    }

    /// Whether an engine records the steps of this run.
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// The key of this place; empty if nothing is recorded.
    pub fn path(&self) -> &str {
        self.0.as_ref().map_or("", StepPath::path)
    }

    /// A place below this one.
    #[must_use]
    pub fn at(&self, name: fmt::Arguments<'_>) -> Self {
        Self(self.0.as_ref().map(|place| place.below(name)))
    }

    /// A place below this one for what code asks for: named by the request, because code may start its calls in any
    /// order, and numbered among the same ones.
    #[must_use]
    pub fn nth(&self, name: impl FnOnce() -> String) -> Self {
        Self(self.0.as_ref().map(|place| {
            let name = name();
            let count = {
                let mut named = place.place.named.lock().unwrap_or_else(PoisonError::into_inner);
                let count = named.entry(name.clone()).or_default();
                *count += 1;
                *count - 1
            };
            place.below(format_args!("{name}.{count}"))
        }))
    }

    /// The same place within code that does not run twice.
    #[must_use]
    pub fn within_once(mut self) -> Self {
        if let Some(place) = &mut self.0 {
            place.suspension = Suspension::WithinOnce;
        }
        self
    }

    /// Whether a question that is asked at this place may wait until the run is resumed.
    pub fn suspension(&self) -> Suspension {
        self.0.as_ref().map_or(Suspension::Unrecorded, |place| place.suspension)
    }

    /// The events of a step's effect go through this: with an engine they are kept with the result.
    pub(crate) fn telling<'e>(&self, events: &'e Events) -> StepEvents<'e> {
        self.telling_part(events, LogPart::Told)
    }

    /// The same for a part of the record of this place.
    pub(crate) fn telling_part<'e>(&self, events: &'e Events, part: LogPart) -> StepEvents<'e> {
        match &self.0 {
            None => StepEvents::Plain(events),
            Some(place) => StepEvents::Kept(Arc::new(events.overheard(place.path(), part))),
        }
    }

    /// What earlier processes recorded, if an engine records this run.
    pub fn records(&self) -> Option<&dyn RecordedSteps> {
        self.0.as_ref().map(|place| &*place.engine as &dyn RecordedSteps)
    }

    /// All that a log of the record at this place tells.
    pub(crate) fn told(&self, log: &ToldLog) -> Result<EventLog, Stop> {
        let Some(place) = &self.0 else { return Ok(EventLog::default()) };
        telling::told(place.path(), log, &*place.engine).map_err(Stop::Journal)
    }

    /// This place, with who hears of what happens there.
    pub fn here<'a>(&'a self, events: &'a Events) -> Here<'a> {
        Here { steps: self, events }
    }

    /// What the record has for the step at this place.
    pub fn prior(&self, kind: StepKind, request: impl FnOnce() -> RawJson) -> Prior {
        let place = self.0.as_ref().filter(|place| place.has_past);
        place.map_or(Prior::Nothing, |place| place.engine.prior(place.path(), kind, &request()))
    }

    /// The recorded result of a step that must not run now, with what was told of it.
    pub(crate) async fn recalled<T: StepValue>(&self, described: StepDescription<T>) -> Result<StepRecord<T>, Stop> {
        let Some(place) = &self.0 else { return Err(Stop::Failed) };
        let step = described.step(place.path().to_owned());
        let missing = Stop::Unrecorded { key: step.key.clone(), kind: step.kind };
        match place.engine.step(step, Box::pin(async { Err(missing) })).await? {
            StepAnswer::Recorded(json) => place.parsed(&json),
            StepAnswer::Ran => Err(Stop::Failed),
        }
    }

    /// What [`Here::step`] does, with events that were made before. An error of the effect ends the run and is no record.
    /// With an engine a value that was run just now is serialised once, for the record, and not read back.
    ///
    /// Not an async function: one would keep the effect twice, and steps lie within steps.
    pub(crate) fn run<'a, T, E>(
        &'a self,
        described: impl FnOnce() -> StepDescription<T>,
        telling: &'a StepEvents<'_>,
        effect: impl Future<Output = Result<T, E>> + Send + 'a,
    ) -> impl Future<Output = Result<T, E>>
    where
        T: StepValue,
        E: From<Stop> + Send,
    {
        match &self.0 {
            None => Either::Left(effect),
            Some(place) => {
                // In its place once and for all: it is large, and is polled from within a second future.
                let effect = Box::pin(effect);
                Either::Right(place.run(described().step(place.path().to_owned()), telling, effect))
            }
        }
    }
}

/// A place in the call tree, and who hears of what happens there.
#[derive(Clone, Copy)]
pub struct Here<'a> {
    steps: &'a Steps,
    events: &'a Events,
}

impl<'a> Here<'a> {
    /// Takes the step of this place: runs its effect, or takes the recorded result and tells again what was told. The
    /// effect gets the events that it tells of itself through, so that they are recorded with its result. Without an engine
    /// nothing is described, boxed or copied.
    ///
    /// The effect is a closure that gives a future, not an async closure: that one could not promise to be `Send`.
    pub fn step<T, E, Effect>(
        self,
        description: impl FnOnce() -> StepDescription<T>,
        effect: impl FnOnce(StepEvents<'a>) -> Effect,
    ) -> impl Future<Output = Result<T, E>>
    where
        T: StepValue,
        E: From<Stop> + Send,
        Effect: Future<Output = Result<T, E>> + Send + 'a,
    {
        let Some(place) = &self.steps.0 else { return Either::Left(effect(StepEvents::Plain(self.events))) };
        let telling = self.steps.telling(self.events);
        let (step, effect) = (description().step(place.path().to_owned()), Box::pin(effect(telling.clone())));
        Either::Right(Box::pin(async move { place.run(step, &telling, effect).await }))
    }
}

impl StepPath {
    fn path(&self) -> &str {
        &self.place.path
    }

    async fn run<T, E>(
        &self,
        step: Step,
        telling: &StepEvents<'_>,
        effect: Pin<Box<impl Future<Output = Result<T, E>> + Send>>,
    ) -> Result<T, E>
    where
        T: StepValue,
        E: From<Stop> + Send,
    {
        let (mut failure, mut value) = (None, None);
        // Dropped after the effect, which tells its end.
        let mut attempt = Attempt { place: self, kind: step.kind, telling, is_open: true };
        let recorded = Box::pin(async {
            match effect.await {
                Ok(ran) => {
                    let ran = ran.settled();
                    let told = telling.told(|event| ran.derivation(event));
                    let json = RecordToWrite { value: &ran, told }.json();
                    value = Some(ran);
                    Ok(json.in_one_line())
                }
                Err(error) => {
                    failure = Some(error);
                    Err(Stop::Failed)
                }
            }
        });
        let result = self.engine.step(step, recorded).await;
        let answer = match (result, failure) {
            (_, Some(error)) => return Err(error),
            (Err(stop), None) => return Err(stop.into()),
            (Ok(answer), None) => answer,
        };
        attempt.is_open = false;
        let value = match (answer, value) {
            (StepAnswer::Ran, Some(value)) => {
                telling.settle(Renaming::default());
                value
            }
            (StepAnswer::Ran, None) => return Err(Stop::Failed.into()),
            (StepAnswer::Recorded(json), _) => {
                let StepRecord { value, told } = self.parsed::<T>(&json)?;
                let told = telling::told(self.path(), &told, &*self.engine).map_err(Stop::Journal)?;
                telling.settle(telling.replay(told));
                value
            }
        };
        Ok(value)
    }

    fn parsed<T: StepValue>(&self, json: &RawJson) -> Result<StepRecord<T>, Stop> {
        let unreadable = |error| Stop::Journal(format!("the record at `{}` cannot be read: {error}", self.path()));
        let StepRecord { value, told } = json.to::<StepRecord<T>>().map_err(|error| unreadable(error.to_string()))?;
        let value = value.resolved(self.path(), &*self.engine).map_err(unreadable)?;
        Ok(StepRecord { value, told })
    }

    fn below(&self, name: fmt::Arguments<'_>) -> Self {
        // Room for the names that the loop gives.
        let above = self.path();
        let mut path = String::with_capacity(above.len() + 16);
        if !above.is_empty() {
            path.push_str(above);
            path.push('/');
        }
        let _ = path.write_fmt(name);
        let Self { suspension, has_past, .. } = *self;
        Self { engine: Arc::clone(&self.engine), place: StepPlace::of(path), suspension, has_past }
    }
}

/// A step under way. Without a result its costs would be forgotten with it.
struct Attempt<'a> {
    place: &'a StepPath,
    kind: StepKind,
    telling: &'a StepEvents<'a>,
    is_open: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_open || self.kind != StepKind::Model {
            return;
        }
        let EventLog { call, mut events, .. } = self.telling.heard();
        events.retain(|event| event.kind.usage().is_some_and(|usage| usage.requests > 0));
        if !events.is_empty() {
            self.place.engine.lost(
                self.place.path(),
                self.kind,
                RawJson::of(&EventLog::of(call, events)).in_one_line(),
            );
        }
    }
}

/// What a step gave: its value, and what was told meanwhile.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepRecord<T> {
    pub value: T,
    #[serde(default, skip_serializing_if = "ToldLog::is_empty")]
    pub told: ToldLog,
}

/// The same of a value that somebody else needs.
#[derive(Serialize)]
struct RecordToWrite<'a, T> {
    value: &'a T,
    #[serde(skip_serializing_if = "ToldLog::is_empty")]
    told: ToldLog,
}

impl<T: StepValue> RecordToWrite<'_, T> {
    fn json(&self) -> RawJson {
        // Room for nearly every record.
        let mut json = Vec::with_capacity(2048);
        json.extend_from_slice(b"{\"value\":");
        self.value.write(&mut json);
        if !self.told.is_empty() {
            json.extend_from_slice(b",\"told\":");
            self.told.write(&mut json);
        }
        json.push(b'}');
        debug_assert_eq!(
            str::from_utf8(&json).ok(),
            serde_json::to_string(self).ok().as_deref(),
            "written as it is read"
        );
        RawJson::of(&WrittenJson(&json))
    }
}

/// How a step is described to an engine. Built only if there is one.
pub struct StepDescription<T> {
    kind: StepKind,
    request: RawJson,
    shown: Option<RawJson>,
    interrupted: Option<T>,
    parts: Option<StepParts>,
    judged: Option<RawJson>,
    is_refusal: bool,
}

impl<T: Serialize> StepDescription<T> {
    /// A step of this kind that may run again if it was interrupted. The request is what identifies it.
    pub fn new(kind: StepKind, request: &impl Serialize) -> Self {
        let request = RawJson::of(request);
        Self { kind, request, shown: None, interrupted: None, parts: None, judged: None, is_refusal: false }
    }

    /// It must not run twice: this is its result if nobody knows whether it finished.
    #[must_use]
    pub fn once(self, interrupted: T) -> Self {
        Self { interrupted: Some(interrupted), ..self }
    }

    /// The same step, with what a person is shown of it.
    #[must_use]
    pub fn shown(self, shown: &impl Serialize) -> Self {
        Self { shown: Some(RawJson::of(shown)), ..self }
    }

    /// The same step, with what the request is made of.
    #[must_use]
    pub fn made_of(self, parts: StepParts) -> Self {
        Self { parts: Some(parts), ..self }
    }

    /// The same step, with how the call was judged.
    #[must_use]
    pub fn judged(self, judged: Option<&impl Serialize>) -> Self {
        Self { judged: judged.map(RawJson::of), ..self }
    }

    /// The same step, which reaches no tool.
    #[must_use]
    pub fn of_refusal(self) -> Self {
        Self { is_refusal: true, ..self }
    }

    fn step(self, key: String) -> Step {
        let Self { kind, request, shown, interrupted, parts, judged, is_refusal } = self;
        let interrupted = interrupted.map(|value| RawJson::of(&StepRecord { value, told: ToldLog::default() }));
        Step { key, kind, request, shown, interrupted, parts, judged, is_refusal }
    }
}

/// A handle on events within a step.
#[derive(Clone)]
pub enum StepEvents<'e> {
    Plain(&'e Events),
    Kept(Arc<Events>),
}

impl StepEvents<'_> {
    /// The step whose events they are, if it is recorded.
    pub fn origin(&self) -> Option<&Arc<StepOrigin>> {
        match self {
            Self::Plain(_) => None,
            Self::Kept(events) => events.origin(),
        }
    }

    /// The step has a record from now on.
    pub fn settle(&self, renaming: Renaming) {
        if let Some(origin) = self.origin() {
            origin.settle(renaming);
        }
    }
}

impl Deref for StepEvents<'_> {
    type Target = Events;

    fn deref(&self) -> &Events {
        match self {
            Self::Plain(events) => events,
            Self::Kept(events) => events,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventKind, Listen};

    /// The smallest engine: keeps results, and answers from them.
    #[derive(Default)]
    pub(super) struct Memory(Mutex<BTreeMap<String, RawJson>>);

    impl Memory {
        /// What is kept of a step.
        pub(super) fn line(&self, key: &str) -> String {
            self.0.lock().unwrap()[key].get().to_owned()
        }
    }

    impl StepValue for u32 {}

    impl RecordedSteps for Memory {
        fn result(&self, key: &str) -> Option<RawJson> {
            self.0.lock().unwrap().get(key).cloned()
        }

        fn keys_beneath(&self, key: &str) -> Vec<String> {
            let prefix = format!("{key}/");
            self.0.lock().unwrap().keys().filter(|key| key.starts_with(&prefix)).cloned().collect()
        }
    }

    impl Journal for Memory {
        fn step<'a>(
            &'a self,
            step: Step,
            effect: BoxFuture<'a, Result<RawJson, Stop>>,
        ) -> BoxFuture<'a, Result<StepAnswer, Stop>> {
            Box::pin(async move {
                if let Some(result) = self.result(&step.key) {
                    return Ok(StepAnswer::Recorded(result));
                }
                let result = effect.await?;
                self.0.lock().unwrap().insert(step.key, result);
                Ok(StepAnswer::Ran)
            })
        }

        fn lost(&self, _: &str, _: StepKind, _: RawJson) {}

        fn prior(&self, key: &str, _: StepKind, _: &RawJson) -> Prior {
            if self.0.lock().unwrap().contains_key(key) { Prior::Done } else { Prior::Nothing }
        }
    }

    fn request() -> StepDescription<u32> {
        StepDescription::new(StepKind::Tool, &"request")
    }

    #[tokio::test]
    async fn a_recorded_step_is_not_run_again_but_told_again() {
        let steps = Steps::recorded_by(Arc::new(Memory::default())).at(format_args!("main"));
        let (events, mut listener) = Events::new(Listen::Facts);
        for _ in 0..2 {
            let telling = steps.telling(&events);
            let mut runs = 0;
            let effect = async {
                runs += 1;
                telling.send(|| EventKind::Notice { text: "seven".into() });
                Ok::<_, Stop>(7)
            };
            assert_eq!(steps.run(request, &telling, effect).await, Ok(7));
            assert!(matches!(listener.try_recv().unwrap().kind, EventKind::Notice { .. }));
            assert!(listener.try_recv().is_err(), "told once");
        }
    }

    #[tokio::test]
    async fn a_failed_step_is_tried_again() {
        let steps = Steps::recorded_by(Arc::new(Memory::default())).at(format_args!("main"));
        let events = Events::unheard();
        let telling = steps.telling(&events);
        let no = Stop::Journal("no".into());
        let failed = steps.run(request, &telling, async { Err::<u32, _>(no.clone()) }).await;
        let again = steps.run(request, &telling, async { Ok::<_, Stop>(8_u32) }).await;
        assert_eq!((failed, again), (Err(no), Ok(8)));
    }

    #[tokio::test]
    async fn without_an_engine_a_step_is_its_effect() {
        let steps = Steps::unrecorded().at(format_args!("{}", "t0"));
        let events = Events::unheard();
        let mut count = 0;
        for _ in 0..2 {
            let telling = steps.telling(&events);
            let undescribed = || unreachable!("nobody wants to know");
            count += steps.run(undescribed, &telling, async { Ok::<_, Stop>(1) }).await.unwrap();
        }
        assert_eq!((count, steps.path(), steps.suspension()), (2, "", Suspension::Unrecorded));
    }

    #[test]
    fn places_have_names_and_the_same_request_of_code_has_numbers() {
        let root = Steps::recorded_by(Arc::new(Memory::default()));
        let turn = root.at(format_args!("main")).at(format_args!("t{}", 0));
        let named = |name: &'static str| turn.nth(|| name.to_owned()).path().to_owned();
        assert_eq!([named("xa"), named("xb"), named("xa")], ["main/t0/xa.0", "main/t0/xb.0", "main/t0/xa.1"]);
        assert_eq!(turn.at(format_args!("c0")).nth(|| "xa".to_owned()).path(), "main/t0/c0/xa.0");
        let within = turn.clone().within_once().at(format_args!("c0"));
        assert_eq!((turn.suspension(), within.suspension()), (Suspension::Possible, Suspension::WithinOnce));
    }
}
