//! Where a limit is reached: the end, or a question to a person first, which is a step before that of the request.

use super::super::RunError;
use super::super::ledger::Reservation;
use super::super::record::WrapUpRecord;
use super::super::request::{RequestContext, tell_near};
use super::CallScope;
use crate::journal::digest::Chain;
use crate::journal::{Prior, StepKind, Steps, Suspension};
use crate::message::RawJson;
use crate::project::{Limit, OnLimit};
use crate::spending::{BoundedAmount, Cost, LimitHit, ReserveError, Wish};
use crate::tools::Ending;
use crate::tools::approval::{AskedQuestion, Candidate, GateOutcome, LimitRaise, RAISE_LIMIT, Ruling};

impl<'r> CallScope<'r> {
    /// Reserves for the next request before its step begins, so that a question about a limit comes before it. `None` if the
    /// record has its answer.
    pub(super) async fn admitted(&mut self, steps: &Steps) -> Result<Option<Reservation<'r>>, RunError> {
        if let Some(reached) = WrapUpRecord::at(steps, self.account) {
            return Err(self.finish_at(reached, steps));
        }
        match steps.prior(StepKind::Model, || RawJson::of(&self.chain.as_ref().map(Chain::digest))) {
            Prior::Nothing | Prior::Asked(_) | Prior::Begun => {}
            Prior::Done | Prior::Replayed(_) => return Ok(None),
        }
        let (runtime, mut questions) = (self.runtime, 0);
        loop {
            let reserved = match self.admissible() {
                Ok(wish) => runtime.ledger.reserve(self.account, wish).await,
                Err(reached) => Err(reached.into()),
            };
            let reached = match reserved {
                Ok(reserved) => return Ok(Some(reserved)),
                Err(ReserveError::Unkept(reason)) => return Err(Ending::BudgetUnkept { reason }.into()),
                Err(ReserveError::Limit(reached)) => reached,
            };
            if runtime.ledger.on_limit(&reached.limit, runtime.account) != OnLimit::Ask {
                return Err(self.reached(&reached, steps));
            }
            let to = self.raised(&reached, &nth(steps, "limit", questions)).await?;
            self.raise(&reached.limit, to);
            questions += 1;
        }
    }

    /// What the next request wishes for, unless the agent has asked often enough. What a last one would take after it is kept
    /// back.
    fn admissible(&mut self) -> Result<Wish, LimitHit> {
        let Self { runtime, agent, model, price, opening, limited, account, own, heard, frame, events, .. } = self;
        let prices = self.alternatives.as_ref().map_or(&[][..], |all| &all.prices);
        let request = RequestContext {
            agent,
            model,
            price: price.as_deref(),
            prices,
            opening,
            limited: *limited,
            ledger: &runtime.ledger,
            account: *account,
            run: runtime.account,
            own,
            heard,
            events,
            reserved: None,
            is_last: false,
        };
        let last = request.last_price(&frame.history);
        runtime.ledger.keep_back(*account, runtime.account, last);
        request.admissible(&frame.history)
    }

    /// A limit is reached before this place: what comes of it, unless a person is asked.
    pub(super) fn reached(&mut self, reached: &LimitHit, steps: &Steps) -> RunError {
        let runtime = self.runtime;
        if runtime.ledger.wraps_up(&reached.limit, self.account, runtime.account) && self.finishing.is_none() {
            return self.finish_at(reached.clone(), steps);
        }
        // Whoever called is the one that is asked to finish.
        let of_caller = runtime.ledger.on_limit(&reached.limit, runtime.account) == OnLimit::WrapUp && !self.is_entry();
        match (of_caller, self.limited(reached, self.partial_text())) {
            (true, RunError::Ended(Ending::Limit { limit, used, allowed, needed, partial })) => {
                RunError::Limit { agent: self.agent.name.clone(), limit, used, allowed, needed, partial }
            }
            (true, RunError::Ended(Ending::Budget { budget, used, allowed, needed, partial, .. })) => {
                let limit = format!("budget {budget}");
                RunError::Limit { agent: self.agent.name.clone(), limit, used, allowed, needed, partial }
            }
            (_, error) => error,
        }
    }

    /// Asks for more calls of tools than are allowed; whether it was enough is for the next look.
    pub(super) async fn admit_calls(&mut self, reached: LimitHit) -> Result<(), RunError> {
        let runtime = self.runtime;
        if runtime.ledger.on_limit(&reached.limit, runtime.account) != OnLimit::Ask {
            let place = self.request_steps().at(format_args!("calls"));
            return Err(self.reached(&reached, &place));
        }
        let place = nth(&self.request_steps(), "calls", self.asked_for_calls);
        self.asked_for_calls += 1;
        let to = self.raised(&reached, &place).await?;
        self.raise(&reached.limit, to);
        Ok(())
    }

    /// Calls that had begun in an earlier process were counted there.
    pub(super) fn spend_calls(&self, calls: usize) -> Result<(), LimitHit> {
        if self.limited.reacts {
            let place = self.request_steps().at(format_args!("calls"));
            if let Some(reached) = WrapUpRecord::at(&place, self.account) {
                return Err(reached);
            }
        }
        if self.runtime.resumed.has_begun(self.request_steps().path()) {
            return Ok(());
        }
        let cost = Cost { tool_calls: calls as u64, ..Cost::default() };
        tell_near(self.runtime.ledger.spend(self.account, cost)?, &self.events);
        Ok(())
    }

    /// How far a person raises a limit; an error if nobody does. The question is a step beneath this place.
    async fn raised(&mut self, reached: &LimitHit, steps: &Steps) -> Result<f64, RunError> {
        let (runtime, limit) = (self.runtime, &reached.limit);
        if runtime.ledger.on_limit(limit, runtime.account) != OnLimit::Ask {
            return Err(self.stopped(reached));
        }
        // One question about limits at a time: whoever waits may find that its limit was raised meanwhile, or that its
        // question is open already.
        let mut open = runtime.asking.lock().await;
        if let Some((_, pending)) = open.iter().find(|(asked, _)| asked == limit) {
            return Err(Ending::NeedsApproval(vec![pending.clone()]).into());
        }
        if let Some(allowed) = self.allowed(limit).filter(|allowed| *allowed > reached.allowed) {
            return Ok(allowed);
        }
        if runtime.ledger.is_refused(limit) {
            return Err(self.stopped(reached));
        }
        let (path, of) = self.owner(limit);
        let (used, needed) = (reached.used, reached.needed.unwrap_or(1.0));
        let raise = LimitRaise::proposed(key_of(limit), of, used, reached.allowed, needed);
        // Whoever was asked in another process was asked in these words, whatever others have spent since.
        let asked = match steps.at(format_args!("ask")).prior(StepKind::Ask, || RawJson::of(&())) {
            Prior::Asked(shown) => shown.to::<AskedQuestion>().ok(),
            Prior::Nothing | Prior::Begun | Prior::Done | Prior::Replayed(_) => None,
        };
        let raise = asked.and_then(|asked| raise.recorded(asked.arguments())).unwrap_or(raise);
        let arguments = raise.arguments();
        let key = || steps.path().to_owned();
        let agent = path.last().map_or("", String::as_str);
        let path = &path;
        let candidate = Candidate { tool: RAISE_LIMIT, arguments: &arguments, toolset: &"", agent, path, key: &key };
        let judge = |edited: RawJson| {
            let judged = raise.edited(&edited).map(|edited| Ruling::for_a_person(edited.question()));
            async move { judged }
        };
        let ruling = Ruling::for_a_person(raise.question());
        let events = self.events.clone();
        match runtime.gate.pass(candidate, ruling, judge, steps, &events).await?.outcome {
            GateOutcome::Permitted(permission) => Ok(permission
                .edited()
                .and_then(|edited| raise.edited(edited).ok())
                .map_or(raise.to, |edited| edited.to)),
            GateOutcome::Waits(pending) if steps.suspension() == Suspension::Possible => {
                open.push((limit.clone(), pending.clone()));
                Err(Ending::NeedsApproval(vec![pending]).into())
            }
            GateOutcome::EndRun => Err(Ending::EndedByPerson.into()),
            GateOutcome::Waits(_) => Err(self.stopped(reached)),
            GateOutcome::Refused { .. } => {
                runtime.ledger.refuse(limit);
                Err(self.stopped(reached))
            }
        }
    }

    /// The agents from the entry down to the one whose limit it is, and whose it is in words.
    fn owner(&self, limit: &BoundedAmount) -> (Vec<String>, String) {
        let mut path = self.frame.path.clone();
        let of = match limit {
            BoundedAmount::Budget { name, .. } => format!("budget {name}"),
            BoundedAmount::Account(_, account) if *account == self.runtime.account => "run".to_owned(),
            BoundedAmount::Account(_, account) => {
                path.truncate(self.runtime.ledger.depth(*account));
                format!("agent {}", path.last().map_or("", String::as_str))
            }
        };
        (path, of)
    }

    fn stopped(&self, reached: &LimitHit) -> RunError {
        self.limited(reached, self.partial_text())
    }

    /// Whether it is about the requests of this agent, which are counted apart.
    fn is_own(&self, limit: &BoundedAmount) -> bool {
        *limit == BoundedAmount::Account(Limit::Requests, self.account)
    }

    fn allowed(&self, limit: &BoundedAmount) -> Option<f64> {
        if self.is_own(limit) { Some(self.own.allowed()) } else { self.runtime.ledger.allowed(limit) }
    }

    fn raise(&mut self, limit: &BoundedAmount, to: f64) {
        if self.is_own(limit) {
            self.own.raise(to);
        } else {
            self.runtime.ledger.raise(limit, to);
        }
    }

    /// What people have raised in earlier processes holds, as long as the limit is the one that they were asked about.
    pub(super) fn restore_raises(&mut self) {
        let runtime = self.runtime;
        for (limit, prior) in runtime.resumed.raised_beneath(self.steps.path(), &self.frame.path) {
            let limit = BoundedAmount::Account(limit, self.account);
            if !self.allowed(&limit).is_some_and(|allowed| prior.raise.is_from(allowed)) {
                continue;
            }
            if prior.is_refused {
                runtime.ledger.refuse(&limit);
            } else {
                self.raise(&limit, prior.raise.to);
            }
        }
    }
}

/// The place of a question beneath a request: hardly ever there is more than one.
fn nth(steps: &Steps, name: &str, number: usize) -> Steps {
    match number {
        0 => steps.at(format_args!("{name}")),
        number => steps.at(format_args!("{name}.{number}")),
    }
}

fn key_of(limit: &BoundedAmount) -> &'static str {
    match limit {
        BoundedAmount::Account(limit, _) => limit.key(),
        BoundedAmount::Budget { .. } => "usd",
    }
}
