//! One session: a chat that begins with its first prompt, and is told of as it happens.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llm_do::approval::short_id;
use llm_do::escape::visible;
use llm_do::program::Entry;
use llm_do::questions::{OpenQuestion, QuestionBroker};
use llm_do::records::RunKind;
use llm_do::rpc::{RpcError, code};
use llm_do::runs::finish_of;
use llm_do::store::layout::RunId;
use llm_do::{Answer, CancellationToken, Listen, ModelName, Output, RawJson};
use llm_do_launch::error::{LaunchError, UntrustedProject};
use llm_do_launch::keep::EndReason;
use llm_do_launch::launch::{ListenPlan, ReadyRun};
use llm_do_launch::session::{
    ConversationChange, Session, SessionLength, SessionUpdates, TurnReport, TurnResult, Update,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use super::protocol::{self, SessionChoices};
use super::update::{self, UsedSoFar};
use super::{AcpHouse, failed, invalid};
use crate::console;
use crate::failure::Failure;
use crate::remedy;
use crate::serve::host::{BegunCall, CallChoices, NewCall};
use crate::serve::mcp::form::{self, AnsweredForm, ClientAnswer};

/// Where a session is, and what was chosen for it.
#[derive(Clone, Debug)]
pub struct SessionPlace {
    /// Its working directory; that of its record, if it has one.
    pub directory: Option<PathBuf>,
    pub choices: SessionChoices,
    /// Whether it has a record.
    pub is_begun: bool,
}

pub struct AcpSession {
    house: Arc<AcpHouse>,
    pub id: RunId,
    place: Mutex<SessionPlace>,
    live: Mutex<Option<LiveSession>>,
    /// Of several prompts the first one opens it.
    opening: tokio::sync::Mutex<()>,
}

/// A session whose call is open.
struct LiveSession {
    session: Session,
    questions: QuestionBroker,
    /// The turns that go on or wait, the first one first.
    turns: VecDeque<(CancellationToken, oneshot::Sender<Value>)>,
    closed: Option<oneshot::Receiver<()>>,
}

impl AcpSession {
    pub fn of(house: Arc<AcpHouse>, id: RunId, place: SessionPlace) -> Arc<Self> {
        let (place, live, opening) = (Mutex::new(place), Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { house, id, place, live, opening })
    }

    pub fn tell(&self, update: &Value) {
        let params = json!({"sessionId": self.id, "update": update});
        self.house.client.notify("session/update", &RawJson::of(&params));
    }

    /// Who answers.
    pub fn agent(&self) -> String {
        let chosen = self.place().choices.agent.clone();
        let entry = || {
            let surveyed = self.house.host.survey().ok()?;
            match &surveyed.program().entry {
                Entry::Agent(name) => Some(name.clone()),
                Entry::Function(_) | Entry::Open => None,
            }
        };
        chosen.or_else(entry).unwrap_or_default()
    }

    /// What can be chosen. The project is read for it, and nothing of it runs.
    pub fn config_options(&self) -> Result<Value, LaunchError> {
        let surveyed = self.house.host.survey()?;
        let program = surveyed.program();
        let entry = match &program.entry {
            Entry::Agent(name) => name.clone(),
            Entry::Function(function) => function.to_string(),
            Entry::Open => String::new(),
        };
        let agents: Vec<String> = program.agents.keys().cloned().collect();
        let mut models: Vec<String> = program.agents.values().map(|agent| agent.model.to_string()).collect();
        models.sort();
        models.dedup();
        Ok(protocol::config_options(&self.place().choices, &entry, &agents, &models))
    }

    /// Chooses something: the model at any time, all else before the first prompt.
    pub fn configure(&self, name: &str, value: &str, default_model: &str) -> Result<(), RpcError> {
        let mut place = self.place();
        if name != "model" && place.is_begun {
            return Err(invalid(format!("`{}` is chosen before the first prompt", visible(name))));
        }
        match (name, value) {
            ("model", value) if value == default_model && !place.is_begun => place.choices.model = None,
            ("model", value) => {
                let model = ModelName::parse(value).map_err(|error| invalid(error.to_string()))?;
                if model.provider == "scripted" && place.choices.model.as_deref() != Some(value) {
                    return Err(invalid("a script is not chosen from here"));
                }
                if let Some(live) = &*self.live() {
                    live.session.change(ConversationChange::Model(model));
                }
                place.choices.model = Some(value.to_owned());
            }
            ("agent", agent) => place.choices.agent = Some(agent.to_owned()),
            ("approval", "ask") => place.choices.rejects_all = false,
            ("approval", "reject") => place.choices.rejects_all = true,
            _ => return Err(invalid(format!("there is no such choice: `{}`", visible(name)))),
        }
        Ok(())
    }

    /// Says something: its answer comes when the turn has ended.
    pub async fn prompt(self: &Arc<Self>, prompt: &Value) -> Result<Value, RpcError> {
        let input = protocol::input(prompt).map_err(invalid)?;
        {
            let _alone = self.opening.lock().await;
            if self.live().is_none() {
                match Box::pin(self.opened()).await {
                    Ok(()) => {}
                    Err(OpenFailure::Untrusted(untrusted)) => {
                        self.tell(&update::chunk("agent_message_chunk", &untrusted_words(&untrusted)));
                        return Ok(json!({"stopReason": "end_turn"}));
                    }
                    Err(OpenFailure::Failed(failure)) => return Err(failed(failure)),
                }
            }
        }
        let (answer, answered) = oneshot::channel();
        {
            let mut live = self.live();
            let Some(live) = live.as_mut() else { return Err(failed(Failure::failed("the session was closed"))) };
            let cancelled = live.session.turn(input);
            live.turns.push_back((cancelled, answer));
        }
        answered.await.map_err(|_| RpcError::told(code::FAILED, "the session was closed"))
    }

    async fn opened(self: &Arc<Self>) -> Result<(), OpenFailure> {
        let place = self.place().clone();
        let host = &self.house.host;
        let ready = if place.is_begun {
            Box::pin(host.resume(&self.id)).await.map_err(OpenFailure::Failed)?.ready
        } else {
            let SessionChoices { agent, model, .. } = place.choices.clone();
            let call = NewCall {
                kind: RunKind::Acp,
                agent,
                input: None,
                once: None,
                choices: CallChoices {
                    id: Some(self.id),
                    directory: place.directory.clone(),
                    model,
                    mode: protocol::approval_mode(&place.choices),
                },
            };
            match Box::pin(host.begin(call)).await {
                Ok(BegunCall::Ready(ready)) => *ready,
                Ok(BegunCall::Known(_)) => return Err(OpenFailure::Failed(Failure::failed("the session is known"))),
                Err(error) => return Err(OpenFailure::of(error)),
            }
        };
        self.place().is_begun = true;
        self.start(ready);
        Ok(())
    }

    fn start(self: &Arc<Self>, ready: ReadyRun) {
        let (session, updates) = ready.start(ListenPlan {
            hearing: Some(Listen::Everything),
            report: TurnReport::Whole,
            length: SessionLength::Conversation,
            answering: Some(remedy::answering),
            ..ListenPlan::default()
        });
        session.open();
        let questions = session.questions.clone();
        let (closing, closed) = oneshot::channel();
        *self.live() = Some(LiveSession { session, questions, turns: VecDeque::new(), closed: Some(closed) });
        let attended = Arc::clone(self);
        tokio::spawn(async move {
            attended.attend(updates).await;
            // Whoever waits for turns hears that there are none any more.
            *attended.live() = None;
            let _ = closing.send(());
        });
    }

    async fn attend(self: &Arc<Self>, mut updates: SessionUpdates) {
        let mut asked: JoinSet<(String, Option<Answer>)> = JoinSet::new();
        let mut asks: BTreeMap<String, AbortHandle> = BTreeMap::new();
        let (mut used, mut has_said) = (UsedSoFar::default(), false);
        loop {
            tokio::select! {
                biased;
                update = updates.next() => match update {
                    None => return,
                    Some(Update::Events(events)) => events.for_each(|event| {
                        for update in update::of_event(&event, &mut used) {
                            has_said |= update["sessionUpdate"] == "agent_message_chunk";
                            self.tell(&update);
                        }
                    }),
                    Some(Update::Question(question)) => {
                        let (id, session) = (question.id().clone(), Arc::clone(self));
                        let ask = asked.spawn(async move { (question.id().clone(), session.asked(&question).await) });
                        asks.insert(id, ask);
                    }
                    Some(Update::Answered(id, ..)) => {
                        if let Some(ask) = asks.remove(&id) {
                            ask.abort();
                        }
                    }
                    Some(Update::Note(note)) => console::complain(&format!("note: {}\n", visible(&note))),
                    Some(Update::Opened(_) | Update::Changed(_) | Update::Closed(_)) => {}
                    Some(Update::TurnEnded(turn)) => self.turn_ended(turn, std::mem::take(&mut has_said)),
                },
                Some(answered) = asked.join_next() => {
                    if let Ok((id, Some(answer))) = answered {
                        asks.remove(&id);
                        let by = self.answers_as();
                        if let Some(live) = &*self.live() {
                            // It may be settled already, and then the answer is not needed.
                            let _ = live.questions.answer(&id, answer, &by);
                        }
                    }
                }
            }
        }
    }

    fn answers_as(&self) -> String {
        let name = super::lock(&self.house.introduced).name.clone();
        let name = if name.is_empty() { "a client".to_owned() } else { name };
        format!("{}, by {name} over ACP", self.house.host.user)
    }

    /// Puts a question to the client, or says where it is answered; no answer leaves it open.
    async fn asked(&self, question: &OpenQuestion) -> Option<Answer> {
        let here = || {
            let pending = remedy::answering(&form::pending_of(question), short_id(question.id()));
            let tool = visible(&question.request.tool).into_owned();
            let words = format!("`{tool}` waits for a person on this machine: `{pending}`\n");
            self.tell(&update::chunk("agent_message_chunk", &words));
            None
        };
        if self.house.answers_here || !form::is_for_client(question) {
            return here();
        }
        let client = &self.house.client;
        let request = &question.request;
        let Some(asked_form) = &request.question.form else {
            let params = protocol::permission(self.id.as_str(), question);
            let response = client.request("session/request_permission", &RawJson::of(&params)).await.ok()?;
            return Some(protocol::permitted(&response.to().unwrap_or_default()));
        };
        if !super::lock(&self.house.introduced).elicits {
            return here();
        }
        let mut params = form::elicitation(question, None);
        params["sessionId"] = json!(self.id);
        let response = client.request("elicitation/create", &RawJson::of(&params)).await.ok()?;
        let by_values = |values: &[(String, String)]| request.answer_by_values(values);
        let asked = AnsweredForm { form: Some(asked_form), by_values: &by_values };
        match form::answer(&asked, &response.to().unwrap_or_default()) {
            ClientAnswer::Given(answer) => Some(answer),
            ClientAnswer::Open | ClientAnswer::Again(_) => here(),
        }
    }

    fn turn_ended(&self, turn: TurnResult, has_said: bool) {
        let TurnResult { answer, messages, is_cancelled, .. } = turn;
        let (reason, words) = match &answer {
            Ok(output) => {
                // What is no text was not said piece by piece.
                let unsaid = !has_said || matches!(output, Output::Value(_));
                let (reason, _) = protocol::stop_reason(Ok(finish_of(&messages)), false);
                (reason, unsaid.then(|| output.to_string()))
            }
            Err(error) => protocol::stop_reason(Err(error), is_cancelled),
        };
        if let Some(words) = words.filter(|words| !words.is_empty()) {
            self.tell(&update::chunk("agent_message_chunk", &words));
        }
        let waits = self.live().as_mut().and_then(|live| live.turns.pop_front());
        if let Some((_, waits)) = waits {
            let _ = waits.send(json!({"stopReason": reason}));
        }
    }

    /// Refuses what is open and ends the turn that goes on.
    pub fn cancel(&self) {
        let live = self.live();
        let Some(live) = &*live else { return };
        if let Some((turn, _)) = live.turns.front() {
            turn.cancel();
        }
        for open in live.questions.open() {
            let _ = live.questions.answer(open.id(), Answer::Refuse { reason: None }, "session/cancel");
        }
    }

    /// Nobody is there any more: what is open waits in the record.
    pub async fn leave(&self) {
        let closed = {
            let mut live = self.live();
            let Some(LiveSession { session, turns, closed, .. }) = live.as_mut() else { return };
            if let Some(keeper) = session.keeper.as_ref().filter(|_| !turns.is_empty()) {
                keeper.ends_by(EndReason::Terminated);
            }
            match turns.front() {
                Some((turn, _)) => session.leave(turn),
                None => session.questions.leave(),
            }
            let closed = closed.take();
            *live = None;
            closed
        };
        if let Some(closed) = closed {
            let _ = closed.await;
        }
    }

    fn place(&self) -> MutexGuard<'_, SessionPlace> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> MutexGuard<'_, Option<LiveSession>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a session is not open.
enum OpenFailure {
    Untrusted(Box<UntrustedProject>),
    Failed(Failure),
}

impl OpenFailure {
    fn of(error: LaunchError) -> Self {
        match error {
            LaunchError::Untrusted(untrusted) => Self::Untrusted(untrusted),
            error => Self::Failed(error.into()),
        }
    }
}

/// A permission of a client cannot give trust: the list, and the two ways.
fn untrusted_words(untrusted: &UntrustedProject) -> String {
    let items = untrusted.list.items.iter().map(|item| format!("- {}: {}", item.class.words(), visible(&item.words)));
    let items: Vec<String> = items.collect();
    format!(
        "This project is not trusted yet. It asks for:\n\n{}\n\nTrust it at a terminal, with `llm-do check --trust` in its directory, or exactly \
         this list with `--trust={}` in the settings of this program.",
        items.join("\n"),
        untrusted.list.digest
    )
}
