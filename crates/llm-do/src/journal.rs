//! The one door for effects: every model request, tool call and approval is one step with a stable key, so that an
//! engine can record it, answer it from a record, or drive it elsewhere.
//!
//! Without an engine a step is its effect and nothing else: nothing is boxed, formatted or serialised.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::BoxFuture;
use crate::message::RawJson;

/// The engine under a run: takes a described effect and answers with its result, from the record or by running it.
///
/// A key with a recorded result never polls the effect again. The effect is polled in place, at most once. A result is
/// durable before it is returned; a [`Stop`] is never recorded. Steps of different keys may run at the same time and
/// finish in any order.
pub trait Journal: Send + Sync {
    fn step<'a>(
        &'a self,
        step: Step,
        effect: BoxFuture<'a, Result<RawJson, Stop>>,
    ) -> BoxFuture<'a, Result<RawJson, Stop>>;
}

/// An effect as data.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Where in the call tree, never when: unique in a run, and the same each time it is run.
    pub key: String,
    pub kind: StepKind,
    /// What identifies it: a record of another request is not its record.
    pub request: RawJson,
    /// Set for what must not run twice: the result if it started and may have finished.
    pub interrupted: Option<RawJson>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// May be repeated: costs money, changes nothing.
    Model,
    Tool,
    /// Waits for somebody.
    Ask,
    /// A call with steps of its own.
    Call,
}

/// Why an engine gave no result; leaves the loop and is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error("the journal differs at `{0}`")]
    Diverged(String),
    #[error("the journal: {0}")]
    Journal(String),
    /// The effect ended the run.
    #[error("the step failed")]
    Failed,
}

/// Where in the call tree the loop is, and the engine that takes its steps.
#[derive(Clone)]
pub struct Steps {
    engine: Option<Arc<dyn Journal>>,
    path: String,
}

impl Steps {
    /// Nothing is recorded.
    pub fn unrecorded() -> Self {
        Self { engine: None, path: String::new() }
    }

    pub fn recorded_by(engine: Arc<dyn Journal>, path: impl Into<String>) -> Self {
        Self { engine: Some(engine), path: path.into() }
    }

    /// The key of this place; empty if nothing is recorded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A place below this one.
    #[must_use]
    pub fn at(&self, name: fmt::Arguments<'_>) -> Self {
        match &self.engine {
            None => self.clone(),
            Some(engine) => Self { engine: Some(Arc::clone(engine)), path: format!("{}/{name}", self.path) },
        }
    }

    /// Runs the effect, or takes its recorded result; an error of the effect ends the run and is no record. With an
    /// engine the value goes through JSON even if it was run just now, so that live and replayed cannot differ.
    pub async fn run<T, E, R>(
        &self,
        kind: StepKind,
        request: &R,
        interrupted: Option<&T>,
        effect: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Stop> + Send,
        R: Serialize + ?Sized,
    {
        let Some(engine) = &self.engine else { return effect.await };
        let step = Step {
            key: self.path.clone(),
            kind,
            request: RawJson::of(&request),
            interrupted: interrupted.map(RawJson::of),
        };
        let mut failure = None;
        let recorded = Box::pin(async {
            match effect.await {
                Ok(value) => Ok(RawJson::of(&value)),
                Err(error) => {
                    failure = Some(error);
                    Err(Stop::Failed)
                }
            }
        });
        let result = engine.step(step, recorded).await;
        match (result, failure) {
            (_, Some(error)) => Err(error),
            (Err(stop), None) => Err(stop.into()),
            (Ok(json), None) => json.to().map_err(|error| {
                Stop::Journal(format!("the record at `{}` cannot be read: {error}", self.path)).into()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    /// The smallest engine: keeps results, and answers from them.
    #[derive(Default)]
    struct Memory(Mutex<BTreeMap<String, RawJson>>);

    impl Journal for Memory {
        fn step<'a>(
            &'a self,
            step: Step,
            effect: BoxFuture<'a, Result<RawJson, Stop>>,
        ) -> BoxFuture<'a, Result<RawJson, Stop>> {
            Box::pin(async move {
                if let Some(result) = self.0.lock().unwrap().get(&step.key) {
                    return Ok(result.clone());
                }
                let result = effect.await?;
                self.0.lock().unwrap().insert(step.key, result.clone());
                Ok(result)
            })
        }
    }

    #[tokio::test]
    async fn a_recorded_step_is_not_run_again() {
        let engine: Arc<dyn Journal> = Arc::new(Memory::default());
        let steps = Steps::recorded_by(engine, "main").at(format_args!("t0"));
        let first = steps.run(StepKind::Tool, "request", None, async { Ok::<_, Stop>(7_u32) }).await;
        let never = async { unreachable!("it is recorded") };
        let again: Result<u32, Stop> = steps.run(StepKind::Tool, "request", None, never).await;
        assert_eq!((first, again), (Ok(7), Ok(7)));
    }

    #[tokio::test]
    async fn a_failed_step_is_tried_again() {
        let engine: Arc<dyn Journal> = Arc::new(Memory::default());
        let steps = Steps::recorded_by(engine, "main");
        let failed = steps.run(StepKind::Model, &(), None, async { Err::<u32, _>(Stop::Journal("no".into())) }).await;
        let again = steps.run(StepKind::Model, &(), None, async { Ok::<_, Stop>(8_u32) }).await;
        assert_eq!((failed, again), (Err(Stop::Journal("no".into())), Ok(8)));
    }

    #[tokio::test]
    async fn without_an_engine_a_step_is_its_effect() {
        let steps = Steps::unrecorded().at(format_args!("{}", "t0"));
        let mut count = 0;
        for _ in 0..2 {
            count += steps.run(StepKind::Model, &(), None, async { Ok::<_, Stop>(1) }).await.unwrap();
        }
        assert_eq!((count, steps.path.as_str()), (2, ""));
    }
}
