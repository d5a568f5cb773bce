//! An entry that is a function: code above the agents, without a model.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::input::{Input, InputError, name_attachments, takes_attachments};
use super::record::TurnRecord;
use super::{Output, RunError, Runtime, scope, toolsets};
use crate::event::{CallEnd, CallKind, EventKind, Events};
use crate::journal::record::turn_number;
use crate::journal::{StepDescription, StepKind, Steps, Stop};
use crate::message::{Attachment, Content, RawJson};
use crate::project::Limit;
use crate::tools::attachment;
use crate::tools::function::FunctionEntry;
use crate::tools::plane::ToolPlane;
use crate::tools::{CallContext, Ending, ToolError};

/// The turns of an entry that is a function: each is recorded under its number.
#[derive(Default)]
pub(super) struct FunctionTurns {
    /// Where they are recorded, once the first one has begun.
    steps: Option<Steps>,
    /// How many have begun.
    begun: u64,
    /// Whether those count that the record has.
    pub(super) restores: bool,
}

impl FunctionTurns {
    /// Where the next one is recorded.
    pub(super) fn next(&mut self, runtime: &Runtime, entry: &FunctionEntry) -> Steps {
        let Self { steps, begun, restores } = self;
        let steps = steps.get_or_insert_with(|| {
            let steps = runtime.steps_of_entry(entry.name());
            if let Some(records) = steps.records().filter(|_| *restores) {
                let path = steps.path();
                let numbers = records.keys_beneath(path).into_iter().filter_map(|key| turn_number(path, &key));
                *begun = numbers.max().map_or(0, |last| last + 1);
            }
            steps
        });
        *begun += 1;
        steps.at(format_args!("t{}", *begun - 1))
    }
}

impl Runtime {
    /// Runs the entry function once: its call of depth 0, with the project's single tools. It is recorded at these steps.
    pub(super) async fn run_function(
        &self,
        entry: &FunctionEntry,
        input: Input,
        steps: Steps,
        call: u64,
    ) -> Result<Output, RunError> {
        let wrong = |reason| RunError::Toolset { agent: entry.name().to_owned(), reason };
        let tools = toolsets::exported(&self.program);
        let name = entry.name().to_owned();
        let events = self.events.for_call(&Arc::from(entry.name()), 0, call);
        let (gate, refusals) = (Arc::clone(&self.gate), self.config.refusals);
        let plane = ToolPlane::open(tools, gate, refusals, &events).await.map_err(wrong)?;
        let (kind, input_json) = (CallKind::Function, input.to_json());
        events.send(|| EventKind::CallStarted { name: name.clone(), kind, input: input_json, parent: None });
        let started = Instant::now();
        let longest = self.config.limits.timeout_seconds;
        let output = scope::within(longest, pin!(self.run_as_step(entry, input, &plane, &events, steps, call))).await;
        let output = output.unwrap_or_else(|allowed| {
            let (limit, partial) = (Limit::Time.key().to_owned(), String::new());
            events.send(|| EventKind::LimitReached { limit: limit.clone(), used: allowed, allowed });
            Err(Ending::Limit { limit, used: allowed, allowed, needed: None, partial }.into())
        });
        let ended = match &output {
            Ok(output) => CallEnd::Output(output.told()),
            Err(error) => {
                events.send(|| EventKind::RunFailed { error: error.to_string() });
                CallEnd::Error(error.to_string())
            }
        };
        plane.close(&events).await;
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let usage = self.session.usage_of(call);
        events.send(|| EventKind::CallFinished { name, kind, ended, duration_ms, usage });
        output
    }

    /// As one step: a finished function does not run again, an interrupted one runs from its beginning.
    async fn run_as_step(
        &self,
        entry: &FunctionEntry,
        input: Input,
        plane: &ToolPlane,
        events: &Events,
        steps: Steps,
        call: u64,
    ) -> Result<Output, RunError> {
        let request = steps.is_recorded().then(|| RawJson::of(&(entry.name(), &input)));
        let (description, beneath) = (|| StepDescription::new(StepKind::Call, &request), steps.clone());
        let turn = steps.here(events).step(description, |events| async move {
            let shown = input.to_json();
            let output = self.enter(entry, input, plane, &events, call, beneath).await?;
            Ok::<_, RunError>(TurnRecord::of_function(shown, &output))
        });
        let turn = turn.await?;
        turn.own_output().ok_or_else(|| Stop::Journal(format!("`{}` has no output", steps.path())).into())
    }

    async fn enter(
        &self,
        entry: &FunctionEntry,
        input: Input,
        plane: &ToolPlane,
        events: &Events,
        call: u64,
        steps: Steps,
    ) -> Result<Output, RunError> {
        let path = [entry.name().to_owned()];
        let (value, given) = self.given_to(entry, input, &steps, events).await?;
        // Dropped with this future, however the run ends.
        let cancellation = CancellationToken::new();
        let _run = cancellation.drop_guard_ref();
        let cx = CallContext {
            agents: self,
            agent: entry.name(),
            path: &path,
            depth: 0,
            nesting: self.config.nesting(),
            call,
            model: None,
            input: &given,
            messages: &[],
            events,
            project_root: &self.program.root,
            steps,
            account: self.account.0,
            plane,
            cancellation: &cancellation,
            timeout: None,
        };
        let output = entry.run(value, &cx).await;
        if let Some(ending) = plane.ending() {
            return Err(ending.into());
        }
        match output {
            Ok(value) => Ok(value.to::<String>().map_or(Output::Value(value), Output::Text)),
            Err(ToolError::Ends(ending)) => Err(ending.into()),
            Err(error @ (ToolError::Failed(_) | ToolError::Changed)) => {
                Err(RunError::Function { function: entry.name().to_owned(), reason: error.to_string() })
            }
        }
    }
    /// The input as the function declares it, and the files that came with it or that it names. They are read once:
    /// what they hold later does not matter.
    async fn given_to(
        &self,
        entry: &FunctionEntry,
        input: Input,
        turn: &Steps,
        events: &Events,
    ) -> Result<(RawJson, Vec<Content>), RunError> {
        let steps = turn.at(format_args!("input"));
        let request = steps.is_recorded().then(|| RawJson::of(&input));
        let description = || StepDescription::new(StepKind::Decide, &request);
        let read = steps.here(events).step(description, |events| async move {
            let path = [entry.name().to_owned()];
            let reach = self.permitted_reach(&input, &path, turn, &events).await?;
            let schema = entry.schema();
            let schema_value = schema.to().unwrap_or_default();
            let (mut value, beside) = input.fitted(&schema_value).map_err(|violation| InputError::Violates {
                agent: entry.name().to_owned(),
                violation,
                schema: schema.get().to_owned(),
            })?;
            let mut given = Vec::new();
            for named in attachment::named_in(&value) {
                let file = attachment::read(named, self.program.premises(), &reach).map_err(InputError::from)?;
                let path = named.as_str().map(|path| self.program.root.join(path).display().to_string());
                given.push(Content::Attachment(Attachment { path, ..file }));
            }
            if takes_attachments(&schema_value) {
                name_attachments(&mut value, &beside, |file| file.path.as_ref().unwrap_or(&file.name));
            }
            given.extend(beside.into_iter().map(Content::Attachment));
            Ok((RawJson::of(&value), given))
        });
        read.await
    }
}
