//! What a person may want of a conversation between two turns: that the last one is forgotten, or that another model goes
//! on. Each is a step, so that whoever goes on with the run later finds the conversation as it was.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::keep::PastTurn;
use super::{CallScope, OpeningEstimate, head, parts_of};
use crate::event::EventKind;
use crate::journal::call::value_at;
use crate::journal::record::{command_number, turn_number};
use crate::journal::{RecordedSteps, StepValue, Stop};
#[cfg(feature = "front-end")]
use crate::journal::{StepDescription, StepKind, Steps};
#[cfg(feature = "front-end")]
use crate::message::Content;
use crate::message::Message;
use crate::model::Model;
use crate::model::name::{ModelName, ModelPattern};
use crate::model::provider::provider;
use crate::project::AgentSpec;
use crate::runtime::RunError;
use crate::runtime::context::ContextPlan;

/// What was wanted, as a journal keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WantedChange {
    /// The last turn is forgotten.
    Undo,
    /// This model goes on.
    Model(String),
    /// Old turns are left out of later requests, and what is about this is kept above all. What follows from a plan with a
    /// summary follows from the reply beneath the step.
    Compact { plan: ContextPlan, focus: Option<String> },
}

impl StepValue for WantedChange {}

/// A turn that is forgotten.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct UndoneTurn {
    /// What was said in it.
    pub messages: Vec<Message>,
}

#[cfg(feature = "front-end")]
impl UndoneTurn {
    /// What it began with, without what its message told of the turn before: as an input it says the same again.
    pub fn input(&self) -> Vec<Content> {
        let Some(Message::User(message)) = self.messages.first() else { return Vec::new() };
        message.parts.iter().filter(|part| !part.is_interruption()).cloned().collect()
    }
}

impl CallScope<'_> {
    /// Forgets the last turn: the conversation is as it was before it. What its calls have done stays done. `None` if there
    /// is no turn.
    #[cfg(feature = "front-end")]
    pub(in crate::runtime) async fn undo(&mut self) -> Result<Option<UndoneTurn>, RunError> {
        self.roll_back();
        if self.past.is_empty() {
            return Ok(None);
        }
        self.take_command("undo", WantedChange::Undo).await?;
        Ok(self.forget_turn())
    }

    /// The next turns ask another model.
    #[cfg(feature = "front-end")]
    pub(in crate::runtime) async fn change_model(&mut self, model: ModelName) -> Result<(), RunError> {
        self.roll_back();
        let agent = self.agent_with(model.clone())?;
        self.runtime.models.chosen(&agent)?;
        self.take_command("model", WantedChange::Model(model.to_string())).await?;
        self.ask_as(agent)
    }

    /// Leaves out of later requests what can be left out. `None` if that is nothing; else how many tokens the next request
    /// had and has now, about.
    #[cfg(feature = "front-end")]
    pub(in crate::runtime) async fn compact(&mut self, focus: Option<String>) -> Result<Option<(u64, u64)>, RunError> {
        self.roll_back();
        let plan = self.compaction();
        if plan.is_empty() {
            return Ok(None);
        }
        let wanted = WantedChange::Compact { plan: plan.clone(), focus: focus.clone() };
        let steps = self.take_command("compact", wanted).await?;
        self.take_out(&steps, plan, focus.as_deref()).await.map(Some)
    }

    /// The model that the next turn asks.
    #[cfg(feature = "front-end")]
    pub(in crate::runtime) fn model(&self) -> &ModelName {
        &self.agent.model
    }

    #[cfg(feature = "front-end")]
    async fn take_command(&mut self, name: &str, wanted: WantedChange) -> Result<Steps, RunError> {
        let steps = self.command_steps(name);
        let description = || StepDescription::new(StepKind::Decide, &wanted);
        let effect = wanted.clone();
        steps.here(&self.events).step(description, |_| async move { Ok::<_, RunError>(effect) }).await?;
        Ok(steps)
    }

    /// Where the next command is recorded.
    #[cfg(feature = "front-end")]
    pub(super) fn command_steps(&mut self, name: &str) -> Steps {
        self.commands += 1;
        self.steps.at(format_args!("t{}/{name}.{}", self.turns, self.commands - 1))
    }

    fn forget_turn(&mut self) -> Option<UndoneTurn> {
        let PastTurn { start, told } = self.past.pop()?;
        let messages = self.frame.history.split_off(start.min(self.frame.history.len()));
        self.rewind(start);
        (self.chain, self.answered) = (None, None);
        self.interrupted = told;
        Some(UndoneTurn { messages })
    }

    /// What this agent is with another model.
    fn agent_with(&self, model: ModelName) -> Result<AgentSpec, RunError> {
        let name = &self.agent.name;
        if let Some(patterns) = &self.agent.compatible_models {
            let fits = |text: &String| ModelPattern::parse(text).is_ok_and(|pattern| pattern.matches(&model));
            if !patterns.iter().any(fits) {
                let (agent, model, compatible) = (name.clone(), model.to_string(), patterns.join(", "));
                return Err(RunError::Incompatible { agent, model, compatible });
            }
        }
        let offered = provider(&model.provider).map(|row| row.server_tools).unwrap_or_default();
        let is_offered = |tool: &&crate::model::ServerTool| offered.iter().any(|row| row.kind == tool.kind);
        let server_tools = self.agent.server_tools.iter().filter(is_offered).cloned().collect();
        let fallbacks = Vec::new();
        Ok(AgentSpec { model, fallbacks, script: None, server_tools, ..AgentSpec::clone(&self.agent) })
    }

    fn ask_as(&mut self, agent: AgentSpec) -> Result<(), RunError> {
        let model = self.runtime.models.chosen(&agent)?;
        let missing = self.agent.server_tools.iter().filter(|tool| !agent.server_tools.contains(tool));
        for tool in missing {
            let text = format!("`{}` has no tool `{}`, which is left out", agent.model.provider, tool.kind.name());
            self.events.send(|| EventKind::Notice { text });
        }
        self.alternatives = None;
        self.take_model(Arc::new(agent), model.as_ref());
        Ok(())
    }

    /// What follows is asked of this model.
    pub(super) fn take_model(&mut self, agent: Arc<AgentSpec>, model: &dyn Model) {
        self.agent = agent;
        self.model = self.agent.model.to_string();
        self.forget_window();
        self.price = self.runtime.price_of(&self.agent.model);
        let head = head(self.runtime, &self.agent, self.plane());
        self.opening = OpeningEstimate::of(&head);
        self.parts = self.steps.is_recorded().then(|| Arc::new(parts_of(&head)));
        self.conversation = model.open(head);
    }

    /// Does again what was wanted before this turn.
    pub(super) fn restore_commands(&mut self, turn: u64, records: &dyn RecordedSteps) -> Result<(), RunError> {
        self.commands = 0;
        let path = self.steps.path().to_owned();
        for key in commands_before(&path, turn, records) {
            self.commands += 1;
            match value_at::<WantedChange>(&key, records).map_err(Stop::Journal)? {
                WantedChange::Undo => drop(self.forget_turn()),
                WantedChange::Compact { plan, .. } => self.restore_compaction(plan, &key, records),
                WantedChange::Model(name) => {
                    let model = ModelName::parse(&name).map_err(|error| Stop::Journal(error.to_string()))?;
                    let agent = self.agent_with(model)?;
                    self.ask_as(agent)?;
                }
            }
        }
        Ok(())
    }
}

/// The keys of what was wanted before a turn, in order.
fn commands_before(path: &str, turn: u64, records: &dyn RecordedSteps) -> Vec<String> {
    let keys = records.keys_beneath(&format!("{path}/t{turn}"));
    let is_command = |key: &String| key.matches('/').count() == path.matches('/').count() + 2;
    let mut commands: Vec<(u64, String)> = keys
        .into_iter()
        .filter(|key| turn_number(path, key) == Some(turn) && is_command(key))
        .filter_map(|key| Some((command_number(path, &key)?, key)))
        .collect();
    commands.sort();
    commands.into_iter().map(|(_, key)| key).collect()
}
