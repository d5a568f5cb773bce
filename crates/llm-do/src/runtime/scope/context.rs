//! Makes room in a conversation that grows towards the window of its model. What is left out of requests stays in the history, and
//! can be recalled.

use std::sync::Arc;

use super::{CallScope, OpeningEstimate, head, parts_of};
use crate::event::EventKind;
use crate::journal::call::{RecordedReply, reply_at, value_at};
use crate::journal::{Prior, RecordedSteps, StepDescription, StepKind, Steps};
use crate::message::{Message, RawJson, Reply};
use crate::model::{Head, ModelSettings, estimate};
use crate::project::AgentSpec;
use crate::runtime::RunError;
use crate::runtime::context::{ContextPlan, ContextThresholds, LeftOut, SUMMARISE, grouped, refusals, transcript};
use crate::runtime::request::{RequestContext, RequestError};
use crate::tools::approval::{RulePlaces, Rules};
use crate::tools::plane::{OpenToolset, Precedence};
use crate::tools::recall::{RECALL, RecallToolset};

/// What is known of the room that a conversation has.
#[derive(Default)]
pub(super) struct ContextRoom {
    limits: KnownThresholds,
    /// Whether the window was given, or a refusal told it: then it is not passed.
    is_certain: bool,
    left_out: LeftOut,
    /// What requests send, if something is left out.
    view: Option<Vec<Message>>,
    /// How many tokens that had when something was last left out.
    size: u64,
}

/// From where on something is done.
#[derive(Clone, Copy, Default)]
enum KnownThresholds {
    /// They are looked up when they are first needed.
    #[default]
    Unasked,
    /// It is switched off, or nobody knows the window.
    Absent,
    From(ContextThresholds),
}

impl KnownThresholds {
    fn found(self) -> Option<ContextThresholds> {
        match self {
            Self::From(limits) => Some(limits),
            Self::Unasked | Self::Absent => None,
        }
    }
}

/// What identifies the step in which something is left out: it is decided from what was said, which the steps before it are.
const REQUEST: &str = "context";

impl ContextRoom {
    /// Whether the next request sends less than what was said.
    pub(super) fn leaves_out(&self) -> bool {
        self.view.is_some()
    }

    /// What the next request sends.
    pub(super) fn sent<'a>(&'a self, history: &'a [Message]) -> &'a [Message] {
        self.view.as_deref().unwrap_or(history)
    }
}

impl CallScope<'_> {
    fn shown_messages(&self) -> &[Message] {
        self.room.sent(&self.frame.history)
    }

    /// What was just said goes along.
    pub(super) fn extend_view(&mut self) {
        if let (Some(view), Some(said)) = (&mut self.room.view, self.frame.history.last()) {
            view.push(said.clone());
        }
    }

    /// How many tokens the next request has, about.
    fn context_size(&self) -> u64 {
        let history = &self.frame.history;
        let (since, model) = (self.room.left_out.last(), &self.agent.model);
        let estimated = estimate::of_request(self.opening.tokens(), history, model);
        let is_counted_since = history.get(since..).unwrap_or_default().iter().any(|message| match message {
            Message::Assistant(reply) => estimate::is_counted(&reply.usage),
            Message::User(_) | Message::Tool(_) => false,
        });
        if self.room.view.is_none() || is_counted_since {
            return estimated.tokens;
        }
        let new = history.get(since..).unwrap_or_default().iter().map(|message| estimate::of_message(message, model));
        self.room.size + new.sum::<u64>()
    }

    /// Whether the next request needs no estimate to be known as small, as nearly all are.
    fn is_surely_below(&self, size: u64) -> bool {
        let bound = || estimate::bound_of_request(self.opening.tokens(), &self.frame.history, &self.agent.model);
        self.room.view.is_none() && bound().is_some_and(|bound| bound <= size)
    }

    /// From where on something is done; nothing if it is switched off, or nobody knows the window.
    fn thresholds(&mut self) -> Option<ContextThresholds> {
        if !matches!(self.room.limits, KnownThresholds::Unasked) {
            return self.room.limits.found();
        }
        let settings = &self.agent.context;
        let known = || self.runtime.heads.window(&self.agent.model);
        let window = settings.window.or_else(|| known().map(|found| found.window));
        self.room.is_certain = settings.window.is_some();
        let limits = window.filter(|_| !settings.is_off);
        let limits = limits.map(|window| ContextThresholds::of(settings, window, self.agent.settings.max_tokens));
        self.room.limits = limits.map_or(KnownThresholds::Absent, KnownThresholds::From);
        limits
    }

    /// Another model has another window.
    pub(super) fn forget_window(&mut self) {
        self.room.limits = KnownThresholds::Unasked;
    }

    /// Whether the next request may be too large, or was found to be so when it was recorded. Nearly none is.
    pub(super) fn may_need_room(&mut self, steps: &Steps) -> bool {
        let Some(limits) = self.thresholds() else { return false };
        Self::was_cleared(steps) || !self.is_surely_below(limits.clear_above)
    }

    fn was_cleared(steps: &Steps) -> bool {
        let prior = || steps.at(format_args!("clear")).prior(StepKind::Decide, || RawJson::of(&REQUEST));
        steps.has_past() && matches!(prior(), Prior::Done | Prior::Replayed(Some(_)))
    }

    /// Makes room for the next request, if it needs some.
    pub(super) async fn make_room(&mut self, steps: &Steps) -> Result<(), RunError> {
        let Some(limits) = self.thresholds() else { return Ok(()) };
        let is_recorded = Self::was_cleared(steps);
        let size = self.context_size();
        if size <= limits.clear_above && !is_recorded {
            return Ok(());
        }
        let is_sent =
            || matches!(steps.prior(StepKind::Model, || RawJson::of(&REQUEST)), Prior::Done | Prior::Replayed(_));
        if !is_recorded && is_sent() {
            return Ok(());
        }
        Box::pin(self.leave_out(steps, size, limits)).await?;
        let left = self.context_size();
        if self.room.is_certain && left > limits.window {
            return Err(self.context_full(left, limits.window));
        }
        Ok(())
    }

    /// The provider takes less than was thought: room is made once, for four fifths of what it refused. Whether there is some.
    pub(super) async fn learn_window(&mut self, steps: &Steps) -> Result<bool, RunError> {
        if self.agent.context.is_off || self.room.left_out.last() == self.frame.history.len() {
            return Ok(false);
        }
        let size = self.context_size();
        let limits = ContextThresholds::of(&self.agent.context, size / 5 * 4, None);
        (self.room.limits, self.room.is_certain) = (KnownThresholds::From(limits), true);
        // Whatever the thresholds say: it has to become smaller.
        let forced = ContextThresholds { summarise_above: limits.clear_to, ..limits };
        Box::pin(self.leave_out(steps, size, forced)).await?;
        Ok(self.room.left_out.last() == self.frame.history.len())
    }

    pub(super) fn context_full(&self, size: u64, window: u64) -> RunError {
        RunError::ContextFull { agent: self.agent.name.clone(), size, window }
    }

    async fn leave_out(&mut self, steps: &Steps, size: u64, limits: ContextThresholds) -> Result<(), RunError> {
        let place = steps.at(format_args!("clear"));
        let plan = {
            let starts: Vec<usize> = self.past.iter().map(|turn| turn.start).collect();
            let present = self.turn.as_ref().map(|turn| turn.start);
            let starts: Vec<usize> = starts.into_iter().chain(present).collect();
            let Self { frame, room, agent, .. } = &*self;
            ContextPlan::of(&frame.history, &room.left_out, &starts, size, &limits, &agent.model)
        };
        let recorded =
            matches!(place.prior(StepKind::Decide, || RawJson::of(&REQUEST)), Prior::Done | Prior::Replayed(Some(_)));
        if plan.is_empty() && !recorded {
            return Ok(());
        }
        let plan = place
            .here(&self.events)
            .step(
                || StepDescription::new(StepKind::Decide, &REQUEST),
                |events| async move {
                    if !plan.cleared.is_empty() {
                        let (count, tokens) = (plan.cleared.len(), grouped(plan.saved));
                        let results = if count == 1 { "1 old result" } else { "old results" };
                        let count = if count == 1 { String::new() } else { format!("{count} ") };
                        let text = format!("{count}{results} cleared, {tokens} tokens");
                        events.send(|| EventKind::Notice { text });
                    }
                    Ok::<_, RunError>(plan)
                },
            )
            .await?;
        let summary = match plan.summarise_to {
            Some(to) => Some(self.summarise(&steps.at(format_args!("summary")), to, None).await?),
            None => None,
        };
        self.apply(plan, summary, size)
    }

    /// What can be left out between two turns, whatever the size of the conversation.
    #[cfg(feature = "front-end")]
    pub(super) fn compaction(&mut self) -> ContextPlan {
        let size = self.context_size();
        let known = self.thresholds().unwrap_or_else(|| ContextThresholds::of(&self.agent.context, size, None));
        let of_size = ContextThresholds::of(&self.agent.context, size, None).keep;
        let keep = known.keep.min(of_size);
        let limits = ContextThresholds { clear_above: 0, clear_to: 0, summarise_above: 0, keep, ..known };
        let starts: Vec<usize> = self.past.iter().map(|turn| turn.start).collect();
        let Self { frame, room, agent, .. } = &*self;
        ContextPlan::of(&frame.history, &room.left_out, &starts, size, &limits, &agent.model)
    }

    /// Does what a person wanted between two turns; gives the sizes before and after.
    #[cfg(feature = "front-end")]
    pub(super) async fn take_out(
        &mut self,
        steps: &Steps,
        plan: ContextPlan,
        focus: Option<&str>,
    ) -> Result<(u64, u64), RunError> {
        let size = self.context_size();
        let summary = match plan.summarise_to {
            Some(to) => Some(Box::pin(self.summarise(&steps.at(format_args!("summary")), to, focus)).await?),
            None => None,
        };
        self.apply(plan, summary, size)?;
        Ok((size, self.context_size()))
    }

    /// The same again, from its record. Without its summary it did not happen.
    pub(super) fn restore_compaction(&mut self, plan: ContextPlan, key: &str, records: &dyn RecordedSteps) {
        let summary = reply_at(&format!("{key}/summary"), records).ok().as_ref().map(Reply::text);
        if plan.summarise_to.is_some() && summary.is_none() {
            return;
        }
        let old = self.frame.history.get(1..plan.summarise_to.unwrap_or(1)).unwrap_or_default();
        let summary = summary.map(|text| text + &refusals(old));
        self.room.left_out.add(self.frame.history.len(), plan, summary);
    }

    /// Whoever summarises: the agent itself, or a model that its file names for this.
    fn summarising_agent(&self) -> Arc<AgentSpec> {
        match &self.agent.summariser {
            None => Arc::clone(&self.agent),
            Some(model) => {
                let (model, fallbacks) = (model.clone(), Vec::new());
                Arc::new(AgentSpec { model, fallbacks, script: None, ..AgentSpec::clone(&self.agent) })
            }
        }
    }

    /// One request that turns old turns into a few sentences.
    async fn summarise(&mut self, steps: &Steps, to: usize, focus: Option<&str>) -> Result<String, RunError> {
        let before = self.shown_messages();
        let kept = self.frame.history.len() - to;
        let old = before.get(1..before.len().saturating_sub(kept)).unwrap_or_default();
        let (asked, refused) = (vec![Message::user(transcript(old))], refusals(old));
        let asked_agent = self.summarising_agent();
        let longest = self.room.limits.found().map(|limits| (limits.keep / 2).clamp(256, 4_096));
        let settings = ModelSettings { max_tokens: longest, ..ModelSettings::default() };
        let head = Head {
            agent: Arc::from(self.agent.name.as_str()),
            model: asked_agent.model.clone(),
            instructions: match focus {
                None => SUMMARISE.to_owned(),
                Some(focus) => format!("{SUMMARISE} Keep above all what is about: {focus}"),
            },
            tools: Vec::new(),
            server_tools: Vec::new(),
            may_call: true,
            settings,
            output: None,
            stream: self.runtime.config.stream,
        };
        let opening = OpeningEstimate::of(&head);
        let mut conversation = self.runtime.models.chosen(&asked_agent)?.open(head);
        let (agent, model) = (&asked_agent, asked_agent.model.to_string());
        let price = self.runtime.price_of(&agent.model);
        let events = self.events.clone();
        let telling = steps.telling(&events);
        let Self { runtime, limited, account, own, .. } = &mut *self;
        let mut heard = String::new();
        let effect = async {
            let request = RequestContext {
                agent,
                model: &model,
                price: price.as_deref(),
                prices: &[],
                opening: &opening,
                limited: *limited,
                ledger: &runtime.ledger,
                account: *account,
                run: runtime.account,
                own,
                heard: &mut heard,
                events: &telling,
                reserved: None,
                is_last: false,
            };
            let reply = request.ask(conversation.as_mut(), &asked).await?;
            let count = to - 1;
            telling.send(|| EventKind::Notice { text: format!("{count} old messages summarised") });
            Ok::<_, RequestError>(RecordedReply(reply))
        };
        let description = || StepDescription::new(StepKind::Model, &REQUEST);
        let reply: Result<RecordedReply, RequestError> = steps.run(description, &telling, effect).await;
        drop(telling);
        let RecordedReply(reply) = reply.map_err(|error| self.unanswered(error, steps))?;
        Ok(reply.text() + &refused)
    }

    fn apply(&mut self, plan: ContextPlan, summary: Option<String>, size: u64) -> Result<(), RunError> {
        let saved = plan.saved;
        let is_summarised = summary.is_some();
        self.room.left_out.add(self.frame.history.len(), plan, summary);
        self.show_what_is_left()?;
        self.room.size = if is_summarised { self.estimated_view() } else { size.saturating_sub(saved) };
        Ok(())
    }

    fn estimated_view(&self) -> u64 {
        let messages = self.shown_messages().iter().map(|message| estimate::of_message(message, &self.agent.model));
        self.opening.tokens() + messages.sum::<u64>()
    }

    /// The next request is another one, and the model can ask for what it does not show.
    fn show_what_is_left(&mut self) -> Result<(), RunError> {
        if self.room.left_out.is_empty() {
            self.room.view = None;
        } else {
            self.room.view = Some(self.room.left_out.view(&self.frame.history, &self.model));
        }
        if self.plane().has(RECALL) || self.room.left_out.is_empty() {
            self.conversation.rewind(0);
            return Ok(());
        }
        let recall = OpenToolset {
            name: RECALL.to_owned(),
            definition: Arc::new(RECALL),
            toolset: Box::new(RecallToolset { transcript }),
            places: RulePlaces::default(),
            rules: Rules::new(),
            precedence: Precedence::Equal,
        };
        if let Some(plane) = &mut self.plane {
            let reason = |reason| RunError::Toolset { agent: self.agent.name.clone(), reason };
            plane.add(recall).map_err(reason)?;
        }
        let head = head(self.runtime, &self.agent, self.plane());
        self.opening = OpeningEstimate::of(&head);
        self.parts = self.steps.is_recorded().then(|| Arc::new(parts_of(&head)));
        self.conversation = self.runtime.models.chosen(&self.agent)?.open(head);
        Ok(())
    }

    /// The history is shorter, or another one from this message on. A turn that is forgotten takes back what was left out in it.
    pub(super) fn rewind(&mut self, messages: usize) {
        if let Some(cache) = &mut self.cache {
            cache.rewind(messages);
        }
        if self.room.view.is_none() {
            return self.conversation.rewind(messages);
        }
        self.room.left_out.truncate(self.frame.history.len());
        let is_empty = self.room.left_out.is_empty();
        self.room.view = (!is_empty).then(|| self.room.left_out.view(&self.frame.history, &self.model));
        self.room.size = self.estimated_view();
        self.conversation.rewind(0);
    }

    /// What a recorded turn left out is left out again.
    pub(super) fn restore_left_out(&mut self, turn: &str, records: &dyn RecordedSteps) -> Result<(), String> {
        let start = self.past.last().map_or(0, |turn| turn.start);
        let mut places: Vec<(u64, String)> = records
            .keys_beneath(turn)
            .into_iter()
            .filter_map(|key| {
                let request = key.strip_prefix(turn)?.strip_prefix("/m")?.strip_suffix("/clear")?;
                Some((request.parse().ok()?, key))
            })
            .collect();
        places.sort();
        for (_, key) in places {
            let plan: ContextPlan = value_at(&key, records)?;
            let summary = key.strip_suffix("/clear").map(|request| reply_at(&format!("{request}/summary"), records));
            let summary = summary.and_then(Result::ok).as_ref().map(Reply::text);
            let old = self.frame.history.get(1..plan.summarise_to.unwrap_or(1)).unwrap_or_default();
            let summary = summary.map(|text| text + &refusals(old));
            self.room.left_out.add(start + 1, plan, summary);
        }
        Ok(())
    }

    /// After all turns were taken over.
    pub(super) fn restore_view(&mut self) -> Result<(), RunError> {
        if self.room.left_out.is_empty() {
            return Ok(());
        }
        self.show_what_is_left()?;
        self.room.size = self.estimated_view();
        Ok(())
    }
}
