//! What a run and each call may spend: one ledger, which reserves before it spends and settles after. Pure but for its
//! lock, and for the wait until others have settled.
//!
//! An account belongs to the run or to a call of an agent; what a call spends, its callers spend too. Counts and money
//! never pass their limit: a request reserves the most that it can cost, and one that does not fit only because of what
//! others have reserved waits for them. Tokens are estimated, so they pass theirs by at most the replies in flight.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::model::prices::Money;
use crate::project::{Limit, Limits, OnLimit};
use crate::spending::{
    Account, BoundedAmount, BudgetsInForce, Cost, FurtherLedger, FurtherReservation, LimitHit, ReserveError, Wish,
};

/// From this share of a limit on, it is told of.
const NEAR: f64 = 0.8;

#[derive(Default)]
pub(crate) struct Ledger {
    state: Mutex<LedgerState>,
    /// Heard by those who wait for others' reservations.
    settled: Notify,
    further: Option<Arc<dyn FurtherLedger>>,
}

#[derive(Debug, Default)]
struct LedgerState {
    /// Boxed, as rising keys leave half of every node empty.
    accounts: BTreeMap<Account, Box<LedgerEntry>>,
    next: u64,
    /// Limits that a person did not want to raise.
    refused: Vec<BoundedAmount>,
}

#[derive(Debug)]
struct LedgerEntry {
    limits: Limits,
    parent: Option<Account>,
    spent: Cost,
    reserved: Cost,
    /// Limits that were told of already.
    told: Vec<Limit>,
    /// How many agents stand above the one whose account it is, with itself.
    depth: usize,
    /// What is kept back for the last requests of calls.
    kept: Vec<(Account, Cost)>,
    /// Whether anything is kept back for this one.
    keeps_back: bool,
}

/// What is limited for an account, by itself or above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitKinds {
    pub money: bool,
    pub tokens: bool,
    /// Something else than the end may come of a limit.
    pub reacts: bool,
}

impl Ledger {
    /// One whose requests also pass another one.
    pub(crate) fn before(further: Option<BudgetsInForce>) -> Self {
        Self { further: further.map(|BudgetsInForce(further)| further), ..Self::default() }
    }

    /// What people call the first limit of the ledger beyond this one.
    pub(crate) fn further_name(&self) -> Option<String> {
        self.further.as_ref().map(|further| further.name())
    }

    /// The account of an agent so many agents deep, or of the run.
    pub(crate) fn open(&self, limits: Limits, parent: Option<Account>, depth: usize) -> Account {
        let mut state = self.state();
        let account = Account(state.next);
        state.next += 1;
        let (spent, reserved) = (Cost::default(), Cost::default());
        let entry = LedgerEntry {
            limits,
            parent,
            spent,
            reserved,
            told: Vec::new(),
            depth,
            kept: Vec::new(),
            keeps_back: false,
        };
        state.accounts.insert(account, Box::new(entry));
        account
    }

    /// What was spent before this process: a call that is resumed has no more than it had left.
    pub(crate) fn carry_over(&self, account: Account, spent: Cost) {
        if let Some(entry) = self.state().accounts.get_mut(&account) {
            entry.spent = entry.spent.plus(spent);
        }
    }

    pub(crate) fn close(&self, account: Account) {
        let mut state = self.state();
        let Some(closed) = state.accounts.remove(&account) else { return };
        if closed.keeps_back {
            if let Some(above) = closed.parent.and_then(|parent| state.accounts.get_mut(&parent)) {
                above.kept.retain(|(keeper, _)| *keeper != account);
            }
            drop(state);
            if let Some(further) = &self.further {
                further.keep_back(account, Money::ZERO, None);
            }
        }
    }

    /// Whether what happens at this limit is that the call of this account is asked to finish.
    pub(crate) fn wraps_up(&self, limit: &BoundedAmount, account: Account, run: Account) -> bool {
        let is_first = self.state().accounts.get(&account).and_then(|entry| entry.parent) == Some(run);
        let is_its = match limit {
            BoundedAmount::Account(_, of) => *of == account || (*of == run && is_first),
            BoundedAmount::Budget { .. } => is_first,
        };
        is_its && self.on_limit(limit, run) == OnLimit::WrapUp
    }

    /// Keeps so much back for the last request of a call, wherever it would be the one that is asked to finish.
    pub(crate) fn keep_back(&self, account: Account, run: Account, cost: Cost) {
        let mut state = self.state();
        let parent = state.accounts.get(&account).and_then(|entry| entry.parent);
        let own = [Some(account), parent.filter(|parent| *parent == run)];
        for at in own.into_iter().flatten() {
            let Some(entry) = state.accounts.get_mut(&at) else { continue };
            if entry.limits.on_limit == Some(OnLimit::WrapUp) {
                entry.kept.retain(|(keeper, _)| *keeper != account);
                entry.kept.push((account, cost));
            }
        }
        let of_run = state.accounts.get(&run).and_then(|entry| entry.limits.on_limit);
        if let Some(entry) = state.accounts.get_mut(&account) {
            entry.keeps_back = true;
        }
        drop(state);
        if let Some(further) = self.further.as_ref().filter(|_| parent == Some(run)) {
            further.keep_back(account, cost.money, of_run);
        }
    }

    pub(crate) fn limited(&self, account: Account) -> LimitKinds {
        let state = self.state();
        let all = state.line(account).map(|(_, entry)| &entry.limits);
        let asks = |on_limit: Option<OnLimit>| on_limit.is_some_and(|on_limit| on_limit != OnLimit::Stop);
        let reacts = self.further.as_ref().is_some_and(|further| further.on_limits().into_iter().any(asks));
        let first = LimitKinds { money: self.further.is_some(), tokens: false, reacts };
        all.fold(first, |limited, limits| LimitKinds {
            money: limited.money || limits.max_cost_usd.is_some(),
            tokens: limited.tokens || limits.max_input_tokens.is_some() || limits.max_output_tokens.is_some(),
            reacts: limited.reacts || asks(limits.on_limit),
        })
    }

    /// What happens where this limit is reached; `run` is the account of the run.
    pub(crate) fn on_limit(&self, limit: &BoundedAmount, run: Account) -> OnLimit {
        let state = self.state();
        let of = |account: Account| state.accounts.get(&account).and_then(|entry| entry.limits.on_limit);
        let said = match limit {
            BoundedAmount::Account(_, account) => of(*account),
            BoundedAmount::Budget { on_limit, .. } => *on_limit,
        };
        said.or_else(|| of(run)).unwrap_or(OnLimit::Stop)
    }

    /// How many agents stand above the one whose account it is, with itself.
    pub(crate) fn depth(&self, account: Account) -> usize {
        self.state().accounts.get(&account).map_or(0, |entry| entry.depth)
    }

    /// What a limit allows now.
    pub(crate) fn allowed(&self, limit: &BoundedAmount) -> Option<f64> {
        match limit {
            BoundedAmount::Account(limit, account) => self.state().accounts.get(account)?.limits.amount(*limit),
            BoundedAmount::Budget { name, .. } => self.further.as_ref()?.allowed(name),
        }
    }

    /// Allows more, in this run. Whoever waits looks again.
    pub(crate) fn raise(&self, limit: &BoundedAmount, to: f64) {
        match limit {
            BoundedAmount::Account(limit, account) => {
                if let Some(entry) = self.state().accounts.get_mut(account) {
                    entry.limits.set_amount(*limit, to);
                    entry.told.retain(|told| told != limit);
                }
            }
            BoundedAmount::Budget { name, .. } => {
                if let Some(further) = &self.further {
                    further.raise(name, to);
                }
            }
        }
        self.settled.notify_waiters();
    }

    /// A person does not want to raise it: nobody is asked again.
    pub(crate) fn refuse(&self, limit: &BoundedAmount) {
        self.state().refused.push(limit.clone());
    }

    /// Whether a person did not want to raise it.
    pub(crate) fn is_refused(&self, limit: &BoundedAmount) -> bool {
        let is_same = |refused: &BoundedAmount| match (refused, limit) {
            // Of a record only the name is known.
            (BoundedAmount::Budget { name, .. }, BoundedAmount::Budget { name: other, .. }) => name == other,
            (one, other) => one == other,
        };
        self.state().refused.iter().any(is_same)
    }

    /// Reserves in the account and in all above it, or in none. Waits as long as only what others have reserved is in
    /// the way. Nothing that waits holds a reservation, so that those who hold one never wait for it.
    pub(crate) async fn reserve(&self, account: Account, wish: Wish) -> Result<Reservation<'_>, ReserveError> {
        let own = match self.try_reserve(account, wish)? {
            Some(own) => own,
            None => Box::pin(self.wait_and_reserve(account, wish)).await?,
        };
        match &self.further {
            None => Ok(own),
            Some(further) => Box::pin(Self::reserve_further(own, further.as_ref(), wish)).await,
        }
    }

    async fn wait_and_reserve(&self, account: Account, wish: Wish) -> Result<Reservation<'_>, LimitHit> {
        loop {
            let mut settled = pin!(self.settled.notified());
            // From here on, so that nothing is missed between the look and the wait.
            settled.as_mut().enable();
            if let Some(own) = self.try_reserve(account, wish)? {
                return Ok(own);
            }
            settled.await;
        }
    }

    async fn reserve_further<'a>(
        mut own: Reservation<'a>,
        further: &dyn FurtherLedger,
        wish: Wish,
    ) -> Result<Reservation<'a>, ReserveError> {
        let reserved = further.reserve(Wish { longest: own.longest, ..wish }).await?;
        own.shorten(reserved.as_ref(), wish);
        own.further = Some(reserved);
        Ok(own)
    }

    /// What an account has spent of its money.
    pub(crate) fn money(&self, account: Account) -> LimitHit {
        let state = self.state();
        let entry = state.accounts.get(&account);
        let used = entry.map_or(0.0, |entry| entry.spent.money.usd());
        let allowed = entry.and_then(|entry| entry.limits.max_cost_usd).unwrap_or(used);
        LimitHit { limit: BoundedAmount::Account(Limit::Cost, account), used, allowed, needed: None }
    }

    /// Whether a request would fit if nothing were reserved by others.
    pub(crate) fn check(&self, account: Account, wish: &Wish) -> Result<(), LimitHit> {
        self.state().fitting(account, wish).map(drop)
    }

    /// Spends what is known beforehand. Returns the limits that are now near, each once.
    pub(crate) fn spend(&self, account: Account, cost: Cost) -> Result<Vec<LimitHit>, LimitHit> {
        let mut state = self.state();
        state.fitting(account, &Wish::exactly(cost))?;
        Ok(state.settle(account, Cost::default(), cost))
    }

    /// `None` if it does not fit only because of what others have reserved.
    fn try_reserve(&self, account: Account, wish: Wish) -> Result<Option<Reservation<'_>>, LimitHit> {
        let mut state = self.state();
        let longest = state.fitting(account, &wish)?;
        let cost = wish.cost(longest);
        let waits = state.line(account).any(|(_, entry)| {
            let now = entry.spent.plus(entry.reserved).plus(entry.kept_from(&wish));
            stopped(&entry.limits, now, cost).is_some()
        });
        if waits {
            return Ok(None);
        }
        state.change_line(account, |_, entry| entry.reserved = entry.reserved.plus(cost));
        let lowered = (longest < wish.longest).then(|| state.poorest(account)).flatten().map(Lowering::Account);
        Ok(Some(Reservation { ledger: self, account, cost, longest, lowered, further: None, is_open: true }))
    }

    fn settle(&self, account: Account, reserved: Cost, spent: Cost) -> Vec<LimitHit> {
        let near = self.state().settle(account, reserved, spent);
        self.settled.notify_waiters();
        near
    }

    // The sums stay right whatever panicked elsewhere.
    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is reserved for one sending of a request. Dropped, it is given back.
pub(crate) struct Reservation<'a> {
    ledger: &'a Ledger,
    account: Account,
    pub cost: Cost,
    /// How many tokens the answer may have.
    pub longest: u64,
    /// Set if that is fewer than were wished for: whose money did not reach.
    pub lowered: Option<Lowering>,
    further: Option<Box<dyn FurtherReservation>>,
    is_open: bool,
}

/// Whose money did not reach for a longer answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lowering {
    Account(Account),
    /// A further ledger's, as it stood when the request was sent.
    Further(LimitHit),
}

impl Reservation<'_> {
    /// Turns it into what was really spent. Returns the limits that are now near, each once.
    pub(crate) fn settle(mut self, spent: Cost) -> Vec<LimitHit> {
        self.is_open = false;
        let mut near = self.further.take().map(|further| further.settle(spent.money)).unwrap_or_default();
        near.extend(self.ledger.settle(self.account, self.cost, spent));
        near
    }

    /// Gives back what the shorter answer does not need that a further ledger allows.
    fn shorten(&mut self, further: &dyn FurtherReservation, wish: Wish) {
        let longest = further.longest();
        if longest >= self.longest {
            return;
        }
        let cost = wish.cost(longest);
        // All but the money is the same however long the answer is.
        self.ledger.settle(self.account, self.cost.minus(cost), Cost::default());
        (self.cost, self.longest, self.lowered) = (cost, longest, further.lowered().map(Lowering::Further));
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.ledger.settle(self.account, self.cost, Cost::default());
        }
    }
}

impl LedgerEntry {
    /// What is kept back, but for the call whose last request this is.
    fn kept_from(&self, wish: &Wish) -> Cost {
        let others = self.kept.iter().filter(|(keeper, _)| Some(*keeper) != wish.last_of);
        others.fold(Cost::default(), |sum, (_, cost)| sum.plus(*cost))
    }
}

impl LedgerState {
    /// The longest answer for which there is money if nothing were reserved; an error if even the shortest does not fit.
    fn fitting(&self, account: Account, wish: &Wish) -> Result<u64, LimitHit> {
        let mut longest = wish.longest;
        for (_, entry) in self.line(account) {
            if let Some(allowed) = entry.limits.max_cost_usd {
                let room = Money::from_usd(allowed).minus(entry.spent.money).minus(wish.fixed.money);
                let room = room.minus(entry.kept_from(wish).money);
                longest = longest.min(room.holds(wish.per_token));
            }
        }
        let longest = longest.max(wish.least.min(wish.longest));
        for (account, entry) in self.line(account) {
            let now = entry.spent.plus(entry.kept_from(wish));
            if let Some((limit, _, allowed, wanted)) = stopped(&entry.limits, now, wish.cost(longest)) {
                let shown = |amount| shown(limit, amount);
                let spent = amounts(&entry.limits, entry.spent, Cost::default()).into_iter();
                let used = spent.filter(|(of, ..)| *of == limit).map(|(_, used, ..)| used).sum();
                let needed = Some(wanted).filter(|wanted| *wanted > 0).map(shown);
                let (used, allowed) = (shown(used), shown(allowed));
                return Err(LimitHit { limit: BoundedAmount::Account(limit, account), used, allowed, needed });
            }
        }
        Ok(longest)
    }

    /// The account with the least money left, of this one and all above it.
    fn poorest(&self, account: Account) -> Option<Account> {
        let left = |(account, entry): (Account, &LedgerEntry)| {
            let allowed = Money::from_usd(entry.limits.max_cost_usd?);
            Some((allowed.minus(entry.spent.money), account))
        };
        self.line(account).filter_map(left).min().map(|(_, account)| account)
    }

    fn settle(&mut self, account: Account, reserved: Cost, spent: Cost) -> Vec<LimitHit> {
        let mut near = Vec::new();
        self.change_line(account, |account, entry| {
            entry.reserved = entry.reserved.minus(reserved);
            entry.spent = entry.spent.plus(spent);
            for (limit, used, _, allowed) in amounts(&entry.limits, entry.spent, spent) {
                let Some(allowed) = allowed else { continue };
                let (used, allowed) = (shown(limit, used), shown(limit, allowed));
                if used >= NEAR * allowed && !entry.told.contains(&limit) {
                    entry.told.push(limit);
                    let limit = BoundedAmount::Account(limit, account);
                    near.push(LimitHit { limit, used, allowed, needed: None });
                }
            }
        });
        near
    }

    /// The account and all above it.
    fn line(&self, account: Account) -> impl Iterator<Item = (Account, &LedgerEntry)> {
        let entry = |account: Account| Some((account, self.accounts.get(&account)?.as_ref()));
        std::iter::successors(entry(account), move |(_, below)| below.parent.and_then(entry))
    }

    fn change_line(&mut self, account: Account, mut change: impl FnMut(Account, &mut LedgerEntry)) {
        let mut next = Some(account);
        while let Some((account, entry)) = next.and_then(|account| Some((account, self.accounts.get_mut(&account)?))) {
            change(account, entry);
            next = entry.parent;
        }
    }
}

/// Each limit with what is used of it, what more is wanted, and how much is allowed; money in picodollars.
fn amounts(limits: &Limits, now: Cost, more: Cost) -> [(Limit, u64, u64, Option<u64>); 5] {
    [
        (Limit::Requests, now.requests, more.requests, limits.max_requests),
        (Limit::ToolCalls, now.tool_calls, more.tool_calls, limits.max_tool_calls),
        (Limit::InputTokens, now.input_tokens, more.input_tokens, limits.max_input_tokens),
        (Limit::OutputTokens, now.output_tokens, more.output_tokens, limits.max_output_tokens),
        (Limit::Cost, now.money.picodollars(), more.money.picodollars(), limits.max_cost_usd.map(picodollars)),
    ]
}

fn picodollars(usd: f64) -> u64 {
    Money::from_usd(usd).picodollars()
}

/// The first limit that stops what more is wanted: its name, what is used, what is allowed, what is wanted. A limit that
/// is used up stops everything that would use it, even an estimate of nothing.
fn stopped(limits: &Limits, now: Cost, more: Cost) -> Option<(Limit, u64, u64, u64)> {
    amounts(limits, now, more).into_iter().find_map(|(limit, used, wanted, allowed)| {
        let stops = |allowed: &u64| used.saturating_add(wanted) > *allowed || used >= *allowed;
        let allowed = allowed.filter(stops).filter(|_| is_touched(limit, more))?;
        Some((limit, used, allowed, wanted))
    })
}

/// A tool call uses no tokens, a request no tool calls.
fn is_touched(limit: Limit, cost: Cost) -> bool {
    match limit {
        Limit::ToolCalls => cost.tool_calls > 0,
        Limit::Requests | Limit::InputTokens | Limit::OutputTokens | Limit::Cost | Limit::Time => cost.requests > 0,
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown to people")]
fn shown(limit: Limit, amount: u64) -> f64 {
    if limit == Limit::Cost { Money::from_picodollars(amount).usd() } else { amount as f64 }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::*;
    use crate::BoxFuture;

    fn request(input_tokens: u64) -> Cost {
        Cost { input_tokens, ..Cost::REQUEST }
    }

    /// Of a request that costs exactly this.
    fn priced(usd: f64) -> Wish {
        Wish::exactly(Cost { money: Money::from_usd(usd), ..Cost::REQUEST })
    }

    /// Of one with a cent for its input and a cent for each token of its answer.
    fn cents(least: u64, longest: u64) -> Wish {
        let cent = Money::from_usd(0.01);
        Wish { per_token: cent, longest, least, ..priced(0.01) }
    }

    fn spent(usd: f64) -> Cost {
        Cost { money: Money::from_usd(usd), ..Cost::REQUEST }
    }

    fn limits(max_requests: u64) -> Limits {
        Limits { max_requests: Some(max_requests), ..Limits::default() }
    }

    fn money(max_cost_usd: f64) -> Limits {
        Limits { max_cost_usd: Some(max_cost_usd), ..Limits::default() }
    }

    /// What comes of a reservation that does not have to wait.
    fn at_once(ledger: &Ledger, account: Account, wish: Wish) -> Result<Reservation<'_>, LimitHit> {
        let mut reserving = Box::pin(ledger.reserve(account, wish));
        match poll(&mut reserving) {
            Poll::Ready(reserved) => reserved.map_err(|error| match error {
                ReserveError::Limit(reached) => reached,
                ReserveError::Unkept(reason) => panic!("{reason}"),
            }),
            Poll::Pending => panic!("it waits"),
        }
    }

    fn of(limit: Limit, account: Account) -> BoundedAmount {
        BoundedAmount::Account(limit, account)
    }

    fn poll<T>(future: &mut Pin<Box<impl Future<Output = T> + ?Sized>>) -> Poll<T> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_limit_allows_exactly_what_it_says() {
        let ledger = Ledger::default();
        let run = ledger.open(limits(2), None, 0);
        for _ in 0..2 {
            at_once(&ledger, run, Wish::exactly(request(0))).unwrap().settle(request(5));
        }
        let Err(reached) = at_once(&ledger, run, Wish::exactly(request(0))) else { panic!("one too many") };
        assert_eq!((reached.limit, reached.used, reached.allowed), (of(Limit::Requests, run), 2.0, 2.0));
        let call = Cost { tool_calls: 1, ..Cost::default() };
        assert!(ledger.spend(run, call).is_ok(), "tools have a limit of their own");
    }

    /// Of the account's own last request.
    fn last(account: Account, usd: f64) -> Wish {
        Wish { last_of: Some(account), ..priced(usd) }
    }

    #[test]
    fn what_is_kept_back_is_there_for_the_last_request_alone() {
        let ledger = Ledger::default();
        let wraps_up = |limits: Limits| Limits { on_limit: Some(OnLimit::WrapUp), ..limits };
        let run = ledger.open(wraps_up(money(1.0)), None, 0);
        let entry = ledger.open(wraps_up(Limits::default()), Some(run), 1);
        let child = ledger.open(wraps_up(Limits::default()), Some(entry), 2);
        ledger.keep_back(entry, run, Cost { money: Money::from_usd(0.3), ..Cost::REQUEST });
        // A call beneath the entry is not the one that is asked to finish.
        ledger.keep_back(child, run, Cost { money: Money::from_usd(0.6), ..Cost::REQUEST });
        for account in [entry, child] {
            assert!(ledger.check(account, &priced(0.7)).is_ok());
            let hit = ledger.check(account, &priced(0.71)).unwrap_err();
            assert_eq!((hit.used, hit.allowed, hit.needed), (0.0, 1.0, Some(0.71)));
            assert_eq!(ledger.wraps_up(&hit.limit, account, run), account == entry);
        }
        assert!(ledger.check(child, &last(child, 0.71)).is_err());
        assert!(ledger.check(entry, &last(entry, 1.0)).is_ok());
        // It is kept anew for each request, and given back with the call.
        ledger.keep_back(entry, run, Cost { money: Money::from_usd(0.1), ..Cost::REQUEST });
        assert!(ledger.check(child, &priced(0.9)).is_ok() && ledger.check(child, &priced(0.91)).is_err());
        ledger.close(entry);
        let other = ledger.open(Limits::default(), Some(run), 1);
        assert!(ledger.check(other, &priced(1.0)).is_ok());
    }

    #[test]
    fn what_a_call_spends_its_callers_spend_too() {
        let ledger = Ledger::default();
        let run = ledger.open(money(1.0), None, 0);
        let call = ledger.open(limits(5), Some(run), 0);
        let near = at_once(&ledger, call, priced(0.9)).unwrap().settle(spent(0.9));
        assert_eq!(near.len(), 1);
        assert_eq!(near[0].limit, of(Limit::Cost, run));
        let Err(reached) = at_once(&ledger, call, priced(0.2)) else { panic!("too dear") };
        assert_eq!((reached.limit, reached.needed), (of(Limit::Cost, run), Some(0.2)));
        assert_eq!(ledger.check(call, &priced(0.1)), Ok(()));
        assert!(ledger.check(call, &priced(0.100_000_000_001)).is_err(), "not by the smallest coin");
    }

    #[test]
    fn tokens_that_are_used_up_stop_the_next_request() {
        let ledger = Ledger::default();
        let run = ledger.open(Limits { max_output_tokens: Some(10), ..Limits::default() }, None, 0);
        let first = at_once(&ledger, run, Wish::exactly(request(0))).unwrap();
        first.settle(Cost { output_tokens: 25, ..request(0) });
        let Err(reached) = at_once(&ledger, run, Wish::exactly(request(0))) else { panic!("used up") };
        assert_eq!(reached.limit, of(Limit::OutputTokens, run));
    }

    #[test]
    fn a_request_waits_for_what_others_have_reserved_and_is_stopped_only_by_what_was_spent() {
        let ledger = Ledger::default();
        let run = ledger.open(money(1.0), None, 0);
        let mut three: Vec<_> = (0..3).map(|_| at_once(&ledger, run, priced(0.32)).unwrap()).collect();
        let mut fourth = Box::pin(ledger.reserve(run, priced(0.32)));
        assert!(poll(&mut fourth).is_pending());
        three.pop().unwrap().settle(spent(0.02));
        let Poll::Ready(Ok(fourth)) = poll(&mut fourth) else { panic!("there is room now") };
        // Dropped, as when the turn is cancelled, it is given back.
        let mut fifth = Box::pin(ledger.reserve(run, priced(0.32)));
        assert!(poll(&mut fifth).is_pending());
        drop(fourth);
        let Poll::Ready(Ok(_fifth)) = poll(&mut fifth) else { panic!("there is room again") };
        assert!(at_once(&ledger, run, priced(0.99)).is_err(), "it would not fit alone either");
    }

    #[test]
    fn the_longest_answer_that_there_is_money_for_is_allowed_but_none_that_is_too_short() {
        let ledger = Ledger::default();
        let run = ledger.open(money(0.5), None, 0);
        let call = ledger.open(money(0.3), Some(run), 0);
        let whole = at_once(&ledger, run, cents(5, 20)).unwrap();
        assert_eq!((whole.longest, &whole.lowered, whole.cost), (20, &None, spent(0.21)));
        drop(whole);
        let lowered = at_once(&ledger, call, cents(5, 100)).unwrap();
        let whose = Some(Lowering::Account(call));
        assert_eq!((lowered.longest, &lowered.lowered, lowered.cost), (29, &whose, spent(0.3)));
        lowered.settle(spent(0.25));
        assert_eq!((ledger.money(call).used, ledger.money(call).allowed), (0.25, 0.3));
        let Err(reached) = at_once(&ledger, call, cents(5, 100)) else { panic!("there are five cents left") };
        assert_eq!((reached.limit, reached.used, reached.needed), (of(Limit::Cost, call), 0.25, Some(0.06)));
        assert_eq!(at_once(&ledger, call, cents(5, 4)).map(|it| it.longest), Ok(4), "short by its own wish");
    }

    #[test]
    fn what_is_limited_anywhere_above_is_limited() {
        let ledger = Ledger::default();
        let run = ledger.open(Limits { max_output_tokens: Some(1), ..Limits::default() }, None, 0);
        let call = ledger.open(money(1.0), Some(run), 0);
        assert_eq!(ledger.limited(run), LimitKinds { money: false, tokens: true, reacts: false });
        assert_eq!(ledger.limited(call), LimitKinds { money: true, tokens: true, reacts: false });
        let free = ledger.open(limits(1), None, 0);
        assert_eq!(ledger.limited(free), LimitKinds::default());
    }

    /// A budget that is empty, or lets no more than ten tokens through at a time.
    #[derive(Default)]
    struct Budget {
        spent: Arc<Mutex<Vec<Option<Money>>>>,
        is_empty: bool,
    }

    struct OfBudget(Arc<Mutex<Vec<Option<Money>>>>, u64, bool);

    fn of_budget() -> LimitHit {
        let limit = BoundedAmount::Budget { name: "everyday".into(), per: "day", on_limit: None };
        LimitHit { limit, used: 1.0, allowed: 1.0, needed: None }
    }

    impl FurtherLedger for Budget {
        fn name(&self) -> String {
            "budget everyday".to_owned()
        }

        fn on_limits(&self) -> Vec<Option<OnLimit>> {
            vec![Some(OnLimit::Ask)]
        }

        fn allowed(&self, limit: &str) -> Option<f64> {
            (limit == "everyday").then_some(1.0)
        }

        fn raise(&self, _: &str, _: f64) {}

        fn keep_back(&self, _: Account, _: Money, _: Option<OnLimit>) {}

        fn reserve(&self, wish: Wish) -> BoxFuture<'_, Result<Box<dyn FurtherReservation>, ReserveError>> {
            Box::pin(async move {
                if self.is_empty {
                    return Err(of_budget().into());
                }
                let reserved = OfBudget(Arc::clone(&self.spent), wish.longest.min(10), false);
                Ok(Box::new(reserved) as Box<dyn FurtherReservation>)
            })
        }
    }

    impl FurtherReservation for OfBudget {
        fn longest(&self) -> u64 {
            self.1
        }

        fn lowered(&self) -> Option<LimitHit> {
            Some(of_budget())
        }

        fn settle(mut self: Box<Self>, spent: Money) -> Vec<LimitHit> {
            self.2 = true;
            self.0.lock().unwrap().push(Some(spent));
            vec![of_budget()]
        }
    }

    impl Drop for OfBudget {
        fn drop(&mut self) {
            if !self.2 {
                self.0.lock().unwrap().push(None);
            }
        }
    }

    #[test]
    fn what_the_run_lets_through_passes_a_further_ledger_and_what_that_refuses_is_given_back() {
        let (generous, empty) = (Arc::new(Budget::default()), Arc::new(Budget { is_empty: true, ..Budget::default() }));
        let ledger = Ledger::before(Some(BudgetsInForce(generous.clone())));
        let run = ledger.open(money(1.0), None, 0);
        assert!(ledger.limited(run).money);
        let reserved = at_once(&ledger, run, cents(5, 20)).unwrap();
        let lowered = Some(Lowering::Further(of_budget()));
        assert_eq!((reserved.longest, &reserved.lowered, reserved.cost), (10, &lowered, spent(0.11)));
        assert_eq!(reserved.settle(spent(0.04)), [of_budget()]);
        drop(at_once(&ledger, run, cents(5, 20)).unwrap());
        assert_eq!(*generous.spent.lock().unwrap(), [Some(Money::from_usd(0.04)), None]);

        let ledger = Ledger::before(Some(BudgetsInForce(empty)));
        let run = ledger.open(money(0.21), None, 0);
        for _ in 0..2 {
            let Err(reached) = at_once(&ledger, run, cents(5, 20)) else { panic!("nothing is left") };
            assert_eq!(reached, of_budget(), "and nothing of the run's own stays reserved");
        }
    }

    proptest! {
        /// Whatever the order in which parallel calls reserve and settle.
        #[test]
        fn counts_never_pass_their_limit(
            allowed in 0_u64..20,
            order in prop::collection::vec((0_usize..4, any::<bool>()), 0..100),
        ) {
            let ledger = Ledger::default();
            let run = ledger.open(limits(allowed), None, 0);
            let calls: Vec<Account> = (0..4).map(|_| ledger.open(Limits::default(), Some(run), 0)).collect();
            let (mut open, mut made): ([Vec<Reservation<'_>>; 4], u64) = (Default::default(), 0);
            for (call, settles) in order {
                if settles && let Some(reserved) = open[call].pop() {
                    reserved.settle(request(7));
                } else if let Ok(Some(reserved)) = ledger.try_reserve(calls[call], Wish::exactly(request(3))) {
                    open[call].push(reserved);
                    made += 1;
                }
                prop_assert!(made <= allowed);
            }
        }

        /// 64 children on one dollar: whatever the order in which they are sent, answered, cut and cancelled, what is spent
        /// stays within it, no request is stopped while others only hold reservations, and none waits for ever.
        #[test]
        fn money_never_passes_its_limit_and_only_spent_money_stops(
            wishes in prop::collection::vec((1_u64..30, 0_u64..60, 0_u64..=100, any::<bool>()), 64),
            order in prop::collection::vec(any::<prop::sample::Index>(), 300),
        ) {
            let ledger = Ledger::default();
            let run = ledger.open(money(1.0), None, 0);
            let calls: Vec<Account> = (0..64).map(|_| ledger.open(Limits::default(), Some(run), 0)).collect();
            let dollar = Money::from_usd(1.0);
            let mut waiting: VecDeque<_> = wishes.iter().zip(&calls).map(|(wish, call)| {
                let mill = Money::mills(1);
                let fixed = Cost { money: mill.times(wish.0), ..Cost::REQUEST };
                let wished = Wish { per_token: mill, longest: wish.1 + 4, least: 4, ..Wish::exactly(fixed) };
                (Box::pin(ledger.reserve(*call, wished)), *wish, wished)
            }).collect();
            let (mut sent, mut total, mut order): (Vec<_>, _, _) = (Vec::new(), Money::ZERO, order.into_iter().cycle());
            let mut next = |length: usize| order.next().map_or(0, |index| index.index(length));
            while !waiting.is_empty() || !sent.is_empty() {
                // All that can be sent is; one of those that were sent comes to an end.
                for (mut reserving, wish, wished) in std::mem::take(&mut waiting) {
                    match poll(&mut reserving) {
                        Poll::Pending => waiting.push_back((reserving, wish, wished)),
                        Poll::Ready(Ok(reserved)) => sent.push((reserved, wish, wished)),
                        Poll::Ready(Err(reached)) => {
                            let least = wished.cost(wished.least).money;
                            prop_assert!(total.plus(least) > dollar, "{reached:?} though only {total:?} was spent");
                        }
                    }
                }
                prop_assert!(waiting.is_empty() || !sent.is_empty(), "all wait, and nobody holds anything");
                if sent.is_empty() {
                    break;
                }
                let (reserved, (_, _, share, is_answered), _) = sent.swap_remove(next(sent.len()));
                let cost = Money::from_usd(reserved.cost.money.usd() * f64::from(u8::try_from(share).unwrap()) / 100.0);
                if is_answered {
                    total = total.plus(cost);
                    reserved.settle(Cost { money: cost, ..Cost::REQUEST });
                }
                prop_assert!(total <= dollar, "{total:?}");
                prop_assert_eq!(Money::from_usd(ledger.money(run).used), total);
            }
        }
    }
}
