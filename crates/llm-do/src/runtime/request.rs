//! One model request: reserved before each time it is sent, priced and settled after, all of it one effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::ledger::{Ledger, LimitKinds, Lowering, Reservation};
use crate::BoxFuture;
use crate::event::{EventKind, Events};
use crate::journal::digest::Chain;
use crate::journal::{RequestParts, Stop};
use crate::message::{Finish, Message, RawJson, Reply, ReplyPart, Usage};
use crate::model::anthropic;
use crate::model::estimate::{self, InputEstimate};
use crate::model::meter::{Meter, RequestProgress, SendingRefusal};
use crate::model::name::ModelName;
use crate::model::prices::{ModelPrice, Money};
use crate::model::provider::provider;
use crate::model::windows::{USUAL_LONGEST_ANSWER, Window};
use crate::model::{Conversation, Head, ModelError, ModelSettings, ServerTool, Thinking, ToolDeclaration};
use crate::project::{AgentSpec, Limit, OnLimit, Typing};
use crate::spending::{Account, BoundedAmount, Cost, LimitHit, ReserveError, Wish};

/// No answer is bounded to fewer tokens for want of money.
const LEAST_ANSWER: u64 = 1_024;

/// So many tokens of what tools gave last, and of our own words, go into a last request.
pub(super) const LAST_RESULTS: u64 = 4_096;

/// Everything around a request but the conversation itself.
pub(super) struct RequestContext<'a> {
    pub agent: &'a AgentSpec,
    /// `provider:model`.
    pub model: &'a str,
    /// What the model costs, if that is known.
    pub price: Option<&'a ModelPrice>,
    /// Those of all its models, if there are several: the dearest is reserved.
    pub prices: &'a [Arc<ModelPrice>],
    pub opening: &'a OpeningEstimate,
    pub limited: LimitKinds,
    pub ledger: &'a Ledger,
    pub account: Account,
    /// The account of the run.
    pub run: Account,
    pub own: &'a mut OwnRequests,
    /// The text of the answer as far as it has come, for whoever stops it.
    pub heard: &'a mut String,
    pub events: &'a Events,
    /// What is reserved already for the first sending.
    pub reserved: Option<Reservation<'a>>,
    /// Whether it is the last one of the call, for which something was kept back.
    pub is_last: bool,
}

/// What is known of each request of a conversation when it is opened.
#[derive(Clone, Copy)]
pub(super) struct OpeningEstimate {
    /// Tokens of what goes in each time.
    tokens: u64,
    /// The most that the provider's own tools can cost.
    server_tools: Money,
}

impl OpeningEstimate {
    /// Tokens of what goes in each time.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Estimates what each request with this head takes besides its history.
    pub(super) fn of(head: &Head) -> Self {
        let most =
            |tool: &ServerTool| per_use(&head.model.provider, tool.kind.name()).times(tool.max_uses.unwrap_or(0));
        let server_tools = head.server_tools.iter().map(most).fold(Money::ZERO, Money::plus);
        Self { tokens: estimate::of_head(head), server_tools }
    }
}

/// What is the same for all calls of an agent in a run, by its name: worked out for the first of them.
#[derive(Default)]
pub(super) struct KnownHeads {
    by_agent: Mutex<BTreeMap<String, KnownHead>>,
    /// Looked up once for each model: their table is long.
    windows: Mutex<BTreeMap<ModelName, Option<Window>>>,
}

struct KnownHead {
    agent: Arc<AgentSpec>,
    tools: Vec<ToolDeclaration>,
    opening: OpeningEstimate,
    /// Made when somebody first wants to know.
    parts: OnceLock<Arc<RequestParts>>,
    /// Of a recorded conversation in which nothing was said yet.
    chain: OnceLock<Chain>,
}

impl KnownHeads {
    /// What each request with this head takes, and what it is made of if that is wanted. Toolsets may offer other tools to each
    /// call; whatever else is in a head follows from the agent and the run.
    pub(super) fn of(
        &self,
        agent: &Arc<AgentSpec>,
        head: &Head,
        is_named: bool,
    ) -> (OpeningEstimate, Option<Arc<RequestParts>>) {
        let mut known = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &&mut KnownHead| Arc::ptr_eq(&known.agent, agent) && known.tools == head.tools;
        let known = match known.get_mut(&agent.name).filter(is_same) {
            Some(known) => known,
            None => {
                let (agent, tools, opening) = (Arc::clone(agent), head.tools.clone(), OpeningEstimate::of(head));
                let name = agent.name.clone();
                let (parts, chain) = (OnceLock::new(), OnceLock::new());
                known.entry(name).insert_entry(KnownHead { agent, tools, opening, parts, chain }).into_mut()
            }
        };
        let parts = || Arc::clone(known.parts.get_or_init(|| Arc::new(parts_of(head))));
        (known.opening, is_named.then(parts))
    }

    /// The window of a model, if it is known.
    pub(super) fn window(&self, model: &ModelName) -> Option<Window> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        match windows.get(model) {
            Some(window) => *window,
            None => *windows.entry(model.clone()).or_insert_with(|| Window::of(model)),
        }
    }

    /// What identifies a conversation with an agent in which nothing was said yet.
    pub(super) fn chain(&self, agent: &Arc<AgentSpec>) -> Chain {
        let beginning = || Chain::starting_with([&*agent.name, &*agent.instructions]);
        let known = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(&agent.name).filter(|known| Arc::ptr_eq(&known.agent, agent));
        known.map_or_else(beginning, |known| known.chain.get_or_init(beginning).clone())
    }
}

/// What the requests of a conversation are made of, for people who look at them later.
pub(super) fn parts_of(head: &Head) -> RequestParts {
    #[derive(Serialize)]
    struct ToolPart<'a> {
        name: &'a str,
        description: &'a str,
        parameters: &'a RawJson,
    }
    let tools = head.tools.iter().map(|ToolDeclaration { name, description, parameters }| ToolPart {
        name,
        description,
        parameters,
    });
    let tools: Vec<ToolPart<'_>> = tools.collect();
    let ModelSettings { temperature, top_p, max_tokens, stop, seed, effort, .. } = &head.settings;
    let ModelSettings { thinking, parallel_tool_calls, timeout, .. } = &head.settings;
    let thinking = thinking.map(|thinking| match thinking {
        Thinking::Off => json!(false),
        Thinking::On => json!(true),
        Thinking::Budget(tokens) => json!(tokens),
    });
    let server_tools: Vec<&str> = head.server_tools.iter().map(|tool| tool.kind.name()).collect();
    let mut settings = json!({
        "model": head.model.to_string(), "temperature": temperature, "top_p": top_p, "max_tokens": max_tokens,
        "stop": stop, "seed": seed, "effort": effort, "thinking": thinking, "parallel_tool_calls": parallel_tool_calls,
        "timeout_seconds": timeout.map(|timeout| timeout.as_secs_f64()), "server_tools": server_tools,
    });
    if let Some(settings) = settings.as_object_mut() {
        settings.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
    }
    RequestParts::of(&head.instructions, &tools, head.output.as_ref(), &settings)
}

/// What one use of a provider's own tool costs.
fn per_use(name: &str, tool: &str) -> Money {
    let offered = provider(name).map(|row| row.server_tools).unwrap_or_default();
    offered.iter().find(|offered| offered.kind.name() == tool).map_or(Money::ZERO, |offered| offered.per_use)
}

/// How often the model of one call was asked. The agents that it calls count their own.
#[derive(Debug, Default)]
pub(super) struct OwnRequests {
    pub sent: u64,
    /// Whether something of an answer to the present one was told.
    pub has_told: bool,
    /// Those before the turn that is going on.
    pub earlier: u64,
    /// Of the whole call, as the agent's file says.
    pub limit: Option<u64>,
    /// Of each turn, if a person has raised that.
    pub of_turn: Option<u64>,
    /// So many are kept back for the last one.
    pub kept: u64,
}

/// Model requests of one turn, unless the agent's limits bound those of the whole call. It stops a model that goes round
/// in circles, not a person who has much to say.
const MOST_OF_A_TURN: u64 = 50;

impl OwnRequests {
    /// How often it may be asked, in the call or in a turn of it.
    #[expect(clippy::cast_precision_loss, reason = "small counts, shown to people")]
    pub(super) fn allowed(&self) -> f64 {
        self.limit.or(self.of_turn).unwrap_or(MOST_OF_A_TURN) as f64
    }

    /// Lets it be asked so often.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and bounded where it is read")]
    pub(super) fn raise(&mut self, to: f64) {
        let limit = if self.limit.is_some() { &mut self.limit } else { &mut self.of_turn };
        *limit = Some(to as u64);
    }

    #[expect(clippy::cast_precision_loss, reason = "small counts, shown to people")]
    fn check(&self, account: Account) -> Result<(), LimitHit> {
        let (made, allowed) = match self.limit {
            Some(allowed) => (self.sent, allowed),
            None => (self.sent - self.earlier, self.of_turn.unwrap_or(MOST_OF_A_TURN)),
        };
        if made.saturating_add(self.kept) < allowed {
            return Ok(());
        }
        let limit = BoundedAmount::Account(Limit::Requests, account);
        Err(LimitHit { limit, used: made as f64, allowed: allowed as f64, needed: Some(1.0) })
    }
}

/// Why there is no reply.
pub(super) enum RequestError {
    Limit(LimitHit),
    /// A budget over several runs cannot be kept: why.
    Budget(String),
    /// The answer was bounded for want of money, and ended there: what was said.
    CutByMoney {
        reached: LimitHit,
        said: String,
    },
    /// With the limit that forbade to ask again, if one did.
    Model {
        error: ModelError,
        forbidden: Option<Box<LimitHit>>,
    },
    Stopped(Stop),
}

impl From<ReserveError> for RequestError {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Limit(reached) => Self::Limit(reached),
            ReserveError::Unkept(reason) => Self::Budget(reason),
        }
    }
}

impl From<Stop> for RequestError {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

impl RequestContext<'_> {
    /// Asks. The reply gets its price here and nowhere else, before any listener hears of it: so events, usage, trace and
    /// messages agree, also when they come from a record.
    pub(super) async fn ask(
        self,
        conversation: &mut dyn Conversation,
        history: &[Message],
    ) -> Result<Reply, RequestError> {
        let events = self.events;
        let mut sendings = Sendings::of(self, history, conversation.longest_wait());
        sendings.admit().await?;
        match conversation.reply(history, &mut sendings, events).await {
            Ok(reply) => {
                let goes_on = sendings.request.agent.output == Typing::Untyped && conversation.goes_on_with(&reply);
                sendings.answered(reply, goes_on)
            }
            Err(error) => {
                sendings.close(&error.to_string());
                match sendings.forbidden.take() {
                    Some(ReserveError::Unkept(reason)) => Err(RequestError::Budget(reason)),
                    Some(ReserveError::Limit(reached)) => {
                        Err(RequestError::Model { error, forbidden: Some(Box::new(reached)) })
                    }
                    None => Err(RequestError::Model { error, forbidden: None }),
                }
            }
        }
    }

    /// What it wishes for, unless the agent has asked often enough.
    pub(super) fn admissible(&self, history: &[Message]) -> Result<Wish, LimitHit> {
        self.own.check(self.account)?;
        Ok(self.wish(history))
    }

    fn input(&self, history: &[Message]) -> InputEstimate {
        estimate::of_request(self.opening.tokens, history, &self.agent.model)
    }

    /// The most that it can cost. Where neither money nor tokens are limited, nothing is estimated.
    fn wish(&self, history: &[Message]) -> Wish {
        if self.limited == LimitKinds::default() {
            return Wish::exactly(Cost::REQUEST);
        }
        let input = self.input(history);
        let output_tokens = self.agent.settings.max_tokens.unwrap_or(0);
        let fixed = Cost { input_tokens: input.tokens, output_tokens, ..Cost::REQUEST };
        let last_of = self.is_last.then_some(self.account);
        match self.dearest(input.tokens) {
            None => Wish { last_of, ..Wish::exactly(fixed) },
            Some((money, per_token)) => {
                let fixed = Cost { money: money.plus(self.opening.server_tools), ..fixed };
                let (least, longest) = self.answer(input);
                Wish { fixed, per_token, longest, least, last_of }
            }
        }
    }

    /// What a last request would take at most that comes after this one: its answer, and a little of what tools give, go in too.
    pub(super) fn last_price(&self, history: &[Message]) -> Cost {
        if self.limited == LimitKinds::default() {
            return Cost::REQUEST;
        }
        let wish = self.wish(history);
        let answer = wish.longest.max(self.agent.settings.max_tokens.unwrap_or(0));
        let input_tokens = wish.fixed.input_tokens.saturating_add(answer).saturating_add(LAST_RESULTS);
        let output_tokens = self.agent.settings.max_tokens.map_or(0, |most| most.min(LEAST_ANSWER));
        let money = self.dearest(input_tokens).map_or(Money::ZERO, |(input, per_token)| {
            input.plus(per_token.times(wish.least)).plus(self.opening.server_tools)
        });
        Cost { input_tokens, output_tokens, money, ..Cost::REQUEST }
    }

    /// The most that so much input and one token of the answer to it can cost, with whichever model; nothing where money is not
    /// limited or nothing is paid.
    fn dearest(&self, input_tokens: u64) -> Option<(Money, Money)> {
        if !self.limited.money {
            return None;
        }
        let prices = self.price.into_iter().chain(self.prices.iter().map(|price| &**price));
        let most = prices.filter(|price| !price.is_free()).map(|price| price.most(input_tokens));
        most.reduce(|(input, token), (other_input, other_token)| (input.max(other_input), token.max(other_token)))
    }

    /// The shortest answer that is of use, and the longest: thinking is part of it.
    fn answer(&self, input: InputEstimate) -> (u64, u64) {
        let settings = &self.agent.settings;
        let model = &self.agent.model;
        let thinking = match settings.thinking {
            Some(Thinking::Budget(tokens)) => tokens,
            Some(Thinking::On) if model.provider == "anthropic" => anthropic::thinking_budget(&model.model),
            Some(Thinking::On | Thinking::Off) | None => 0,
        };
        let least = thinking.saturating_add(LEAST_ANSWER);
        let window = Window::of(model);
        let usual = window.map_or(USUAL_LONGEST_ANSWER, |window| window.longest_answer);
        // What went in for certain is not there for the answer.
        let room = window.map_or(u64::MAX, |window| window.window.saturating_sub(input.counted));
        (least, settings.max_tokens.unwrap_or_else(|| usual.min(room).max(least)))
    }
}

/// A request that is sent, perhaps more than once. Whatever becomes of it, also if it is dropped, each sending is settled
/// and told of.
struct Sendings<'a> {
    request: RequestContext<'a>,
    history: &'a [Message],
    longest_wait: Option<Duration>,
    wish: Wish,
    /// Of the present sending.
    reserved: Option<Reservation<'a>>,
    taken: RequestProgress,
    started: Instant,
    /// What does not allow another.
    forbidden: Option<ReserveError>,
}

impl<'a> Sendings<'a> {
    fn of(mut request: RequestContext<'a>, history: &'a [Message], longest_wait: Option<Duration>) -> Self {
        let (wish, started, reserved) = (request.wish(history), Instant::now(), request.reserved.take());
        request.own.has_told = false;
        Self {
            request,
            history,
            longest_wait,
            wish,
            reserved,
            taken: RequestProgress::Nothing,
            started,
            forbidden: None,
        }
    }

    /// Waits until it fits, and begins a sending.
    async fn admit(&mut self) -> Result<(), ReserveError> {
        let RequestContext { ledger, account, .. } = self.request;
        if self.reserved.is_none() {
            self.request.own.check(account)?;
            self.reserved = Some(ledger.reserve(account, self.wish).await?);
        }
        self.request.own.sent += 1;
        self.taken = RequestProgress::Nothing;
        self.request.heard.clear();
        self.started = Instant::now();
        self.request.events.send(|| EventKind::RequestStarted {
            model: self.request.model.to_owned(),
            longest_wait_ms: self.longest_wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        });
        Ok(())
    }

    fn duration_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A reply that was cut for want of money, and can be gone on with, is one where a person is asked for more.
    fn answered(mut self, mut reply: Reply, goes_on: bool) -> Result<Reply, RequestError> {
        let reserved = self.reserved.take();
        reply.usage = self.priced(&reply, reserved.as_ref());
        let RequestContext { model, events, limited, ledger, run, .. } = self.request;
        let spent = Cost::of(&reply.usage);
        let (lowered, expected) =
            reserved.as_ref().map_or((None, Money::ZERO), |it| (it.lowered.clone(), it.cost.money));
        tell_near(reserved.map(|reserved| reserved.settle(spent)).unwrap_or_default(), events);
        events.send(|| EventKind::RequestFinished {
            model: model.to_owned(),
            duration_ms: self.duration_ms(),
            usage: reply.usage,
            finish: reply.finish,
        });
        if limited.money && spent.money > expected {
            events.send(|| EventKind::Notice { text: beyond(&reply.usage, spent, expected) });
        }
        match lowered.filter(|_| reply.finish == Finish::Length) {
            None => Ok(reply),
            Some(lowered) => {
                let reached = match lowered {
                    Lowering::Account(account) => self.request.ledger.money(account),
                    Lowering::Further(reached) => LimitHit { used: reached.used + spent.money.usd(), ..reached },
                };
                if goes_on && ledger.on_limit(&reached.limit, run) == OnLimit::Ask {
                    return Ok(reply);
                }
                Err(RequestError::CutByMoney { reached, said: reply.text() })
            }
        }
    }

    /// What a reply took. A model that says itself what it cost knows better than a table; one that says nothing of a
    /// request that must be paid is taken at its estimate.
    fn priced(&self, reply: &Reply, reserved: Option<&Reservation<'_>>) -> Usage {
        let usage = reply.usage;
        let Some(price) = self.request.price.filter(|_| usage.cost_usd.is_none()) else { return usage };
        if usage.input_tokens == 0 && usage.output_tokens == 0 && !price.is_free() {
            let text = reply.text().len() as u64;
            return Usage { unanswered: 0, ..self.unreported(reserved, text) };
        }
        let used = reply.parts.iter().filter_map(|part| match part {
            ReplyPart::ServerTool(part) => part.input.as_ref().map(|_| part.tool.as_str()),
            ReplyPart::Text(_) | ReplyPart::Thinking(_) | ReplyPart::ToolCall(_) | ReplyPart::Refusal(_) => None,
        });
        let provider = &self.request.agent.model.provider;
        let tools = used.map(|tool| per_use(provider, tool)).fold(Money::ZERO, Money::plus);
        let cost = Money::from_usd(price.cost(&usage)).plus(tools);
        Usage { cost_usd: Some(cost.usd()), ..usage }
    }

    /// Settles a sending that gave no reply.
    fn close(&mut self, error: &str) {
        let Some(reserved) = self.reserved.take() else { return };
        let usage = self.charged(&reserved);
        if usage.requests == 0 {
            self.request.own.sent -= 1;
        }
        let RequestContext { model, events, .. } = self.request;
        tell_near(reserved.settle(Cost::of(&usage)), events);
        let (model, duration_ms, error) = (model.to_owned(), self.duration_ms(), error.to_owned());
        events.send(|| EventKind::RequestFailed { model, duration_ms, usage, error });
    }

    /// What a sending without a reply counts for: what was reported, or else the most that it can have cost.
    fn charged(&self, reserved: &Reservation<'_>) -> Usage {
        let refused = Usage { requests: 1, unanswered: 1, cost_usd: Some(0.0), ..Usage::default() };
        match self.taken {
            RequestProgress::Nothing => Usage::default(),
            RequestProgress::Refused => refused,
            RequestProgress::Sent => self.unreported(Some(reserved), 0),
            RequestProgress::Answer { reported, text } if reported.input_tokens == 0 && reported.output_tokens == 0 => {
                self.unreported(Some(reserved), text)
            }
            RequestProgress::Answer { reported, text } => {
                // The count of the answer comes at its end; until then it has at least what was heard, and never more than
                // it was allowed to have.
                let heard = text.div_ceil(3).min(self.longest(reserved));
                let output_tokens = reported.output_tokens.max(heard);
                let usage = Usage { requests: 1, unanswered: 1, estimated: 1, output_tokens, ..reported };
                let priced = || self.request.price.map(|price| price.cost(&usage));
                Usage { cost_usd: usage.cost_usd.or_else(priced), ..usage }
            }
        }
    }

    /// How many tokens the answer to a sending may have had.
    fn longest(&self, reserved: &Reservation<'_>) -> u64 {
        let bounded = Some(reserved.longest).filter(|longest| *longest > 0);
        bounded.or(self.request.agent.settings.max_tokens).unwrap_or(u64::MAX)
    }

    /// The provider has not said what it took. With a limit it counts for all that was reserved; without one, for what went in and
    /// was heard.
    fn unreported(&self, reserved: Option<&Reservation<'_>>, text: u64) -> Usage {
        let usage = Usage { requests: 1, unanswered: 1, estimated: 1, ..Usage::default() };
        if let Some(reserved) = reserved.filter(|_| self.wish.longest > 0) {
            let (input_tokens, output_tokens) = (reserved.cost.input_tokens, reserved.longest);
            return Usage { input_tokens, output_tokens, cost_usd: Some(reserved.cost.money.usd()), ..usage };
        }
        let (input_tokens, output_tokens) = (self.request.input(self.history).tokens, text.div_ceil(3));
        let cost = self.request.price.map(|price| {
            let (input, per_token) = price.most(input_tokens);
            input.plus(per_token.times(output_tokens)).usd()
        });
        Usage { input_tokens, output_tokens, cost_usd: cost, ..usage }
    }
}

impl Meter for Sendings<'_> {
    fn longest_answer(&self) -> Option<u64> {
        self.reserved.as_ref().map(|reserved| reserved.longest).filter(|longest| *longest > 0)
    }

    fn note(&mut self, taken: RequestProgress) {
        self.taken = taken;
    }

    fn hear(&mut self, text: &str) {
        self.request.own.has_told |= !text.is_empty();
        self.request.heard.push_str(text);
    }

    fn failed(&mut self, error: &ModelError) -> Result<(), SendingRefusal> {
        self.close(&error.to_string());
        let RequestContext { ledger, account, .. } = self.request;
        let room = self.request.own.check(account).and_then(|()| ledger.check(account, &self.wish));
        room.map_err(|reached| {
            self.forbidden = Some(reached.into());
            SendingRefusal
        })
    }

    fn again(&mut self) -> BoxFuture<'_, Result<(), SendingRefusal>> {
        Box::pin(async {
            self.admit().await.map_err(|error| {
                self.forbidden = Some(error);
                SendingRefusal
            })
        })
    }
}

impl Drop for Sendings<'_> {
    fn drop(&mut self) {
        self.close("cancelled");
    }
}

pub(super) fn tell_near(near: Vec<LimitHit>, events: &Events) {
    for LimitHit { limit, used, allowed, .. } in near {
        events.send(|| EventKind::LimitApproached { limit: limit.name(), used, allowed });
    }
}

/// What a provider charges beyond all that was expected cannot be bounded; but it is said.
fn beyond(usage: &Usage, spent: Cost, expected: Money) -> String {
    format!(
        "the request cost ${:.4}, which is more than the ${:.4} that were reserved for it ({} tokens in, {} out)",
        spent.money.usd(),
        expected.usd(),
        usage.input_tokens,
        usage.output_tokens
    )
}
