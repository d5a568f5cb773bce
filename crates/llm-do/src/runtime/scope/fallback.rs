//! Several models of one agent: which is asked now, and the next one where its provider has trouble.

use std::sync::Arc;
use std::time::Instant;

use super::CallScope;
use crate::event::EventKind;
use crate::model::fallback::{is_trouble_of_provider, next};
use crate::model::prices::ModelPrice;
use crate::model::{Model, ModelError};
use crate::project::{AgentSpec, Fallback};
use crate::runtime::{Models, RunError, Runtime};

/// An agent with one of its models, and who answers for that.
pub(in crate::runtime) type AskedAgent = (Arc<AgentSpec>, Arc<dyn Model>);

/// The models of a call that has several, and what became of them.
pub(super) struct Alternatives {
    /// The agent with each of its models, in the order in which they are asked.
    agents: Vec<Arc<AgentSpec>>,
    models: Vec<Arc<dyn Model>>,
    /// What each of them costs, as far as that is known: the dearest is reserved.
    pub prices: Vec<Arc<ModelPrice>>,
    /// The one that is asked.
    at: usize,
    /// Those that were asked for this request.
    tried: Vec<bool>,
    /// What went wrong with them, in words.
    failures: Vec<String>,
    /// Told with the next request.
    pub switched: Option<EventKind>,
}

impl Models {
    /// The agent with the model that it asks first; and with each, if it has several. Those whose provider cannot be asked are
    /// skipped, unless none can.
    pub(in crate::runtime) fn first_of(
        &self,
        agent: &Arc<AgentSpec>,
    ) -> Result<(AskedAgent, Vec<AskedAgent>), RunError> {
        if agent.fallbacks.is_empty() {
            return Ok(((Arc::clone(agent), self.of(agent)?), Vec::new()));
        }
        let with = |Fallback { model, script }: &Fallback| {
            let (model, script) = (model.clone(), script.clone());
            Arc::new(AgentSpec { model, script, ..AgentSpec::clone(agent) })
        };
        let all = std::iter::once(Arc::clone(agent)).chain(agent.fallbacks.iter().map(with));
        let usable = all.filter(|agent| agent.script.is_some() || !self.is_without_key(&agent.model.provider));
        let usable: Vec<_> = usable.filter_map(|agent| Some((Arc::clone(&agent), self.of(&agent).ok()?))).collect();
        match usable.first() {
            Some((first, model)) => Ok(((Arc::clone(first), Arc::clone(model)), usable)),
            None => Ok(((Arc::clone(agent), self.of(agent)?), Vec::new())),
        }
    }
}

impl Alternatives {
    /// Nothing for a call that has one model.
    pub(super) fn of(runtime: &Runtime, several: Vec<AskedAgent>) -> Option<Box<Self>> {
        if several.len() < 2 {
            return None;
        }
        let prices = several.iter().filter_map(|(agent, _)| runtime.price_of(&agent.model)).collect();
        let tried = vec![false; several.len()];
        let (agents, models) = several.into_iter().unzip();
        Some(Box::new(Self { agents, models, prices, at: 0, tried, failures: Vec::new(), switched: None }))
    }
}

impl CallScope<'_> {
    /// Before each request: the first of them that may be asked.
    pub(super) fn choose_model(&mut self) {
        if let Some(all) = &mut self.alternatives {
            all.tried.fill(false);
            all.failures.clear();
            self.ask_next(None);
        }
    }

    /// After a request that gave no reply: whether another model is asked for it now.
    pub(super) fn fall_back(&mut self, error: &ModelError) -> bool {
        let Some(all) = &mut self.alternatives else { return false };
        if !is_trouble_of_provider(error) || self.own.has_told {
            return false;
        }
        all.tried[all.at] = true;
        all.failures.push(format!("{}: {error}", self.model));
        self.runtime.models.failed.note(&self.agent.model, Instant::now());
        self.ask_next(Some(error))
    }

    /// What the others have said before the last one failed too.
    fn with_failures(&self, error: ModelError) -> ModelError {
        match &self.alternatives {
            Some(all) => {
                let earlier = all.failures.iter().filter(|failure| !failure.starts_with(&format!("{}: ", self.model)));
                let earlier: Vec<&str> = earlier.map(String::as_str).collect();
                if earlier.is_empty() {
                    return error;
                }
                let before = format!("; before it {}", earlier.join("; "));
                error.map_fault(|mut fault| {
                    fault.message = format!("{}{before}", fault.message);
                    fault
                })
            }
            None => error,
        }
    }

    /// The error of the last model, with what the others have said.
    pub(super) fn after_all(&self, error: RunError) -> RunError {
        match error {
            RunError::Model { agent, error } => RunError::Model { agent, error: self.with_failures(error) },
            error => error,
        }
    }

    fn ask_next(&mut self, error: Option<&ModelError>) -> bool {
        let Some(all) = &mut self.alternatives else { return false };
        let now = Instant::now();
        let rests: Vec<bool> =
            all.agents.iter().map(|agent| self.runtime.models.failed.rests(&agent.model, now)).collect();
        let Some(at) = next(&rests, &all.tried) else { return false };
        if at == all.at {
            return true;
        }
        let (agent, model) = (Arc::clone(&all.agents[at]), Arc::clone(&all.models[at]));
        let reason = match error {
            Some(error) => error.to_string(),
            None if at < all.at => "it may be asked again".to_owned(),
            None => "the provider of the one before had trouble less than a minute ago".to_owned(),
        };
        let (from, to) = (self.model.clone(), agent.model.to_string());
        all.switched = Some(EventKind::ModelSwitched { from, to, reason });
        all.at = at;
        self.take_model(agent, model.as_ref());
        true
    }
}
