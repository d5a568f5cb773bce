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
use crate::project::{Limit, Limits};
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
}

#[derive(Debug)]
struct LedgerEntry {
    limits: Limits,
    parent: Option<Account>,
    spent: Cost,
    reserved: Cost,
    /// Limits that were told of already.
    told: Vec<Limit>,
}

/// What is limited for an account, by itself or above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitKinds {
    pub money: bool,
    pub tokens: bool,
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

    pub(crate) fn open(&self, limits: Limits, parent: Option<Account>) -> Account {
        let mut state = self.state();
        let account = Account(state.next);
        state.next += 1;
        let (spent, reserved) = (Cost::default(), Cost::default());
        let entry = LedgerEntry { limits, parent, spent, reserved, told: Vec::new() };
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
        self.state().accounts.remove(&account);
    }

    pub(crate) fn limited(&self, account: Account) -> LimitKinds {
        let state = self.state();
        let all = state.line(account).map(|(_, entry)| &entry.limits);
        let first = LimitKinds { money: self.further.is_some(), tokens: false };
        all.fold(first, |limited, limits| LimitKinds {
            money: limited.money || limits.max_cost_usd.is_some(),
            tokens: limited.tokens || limits.max_input_tokens.is_some() || limits.max_output_tokens.is_some(),
        })
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
            let now = entry.spent.plus(entry.reserved);
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

impl LedgerState {
    /// The longest answer for which there is money if nothing were reserved; an error if even the shortest does not fit.
    fn fitting(&self, account: Account, wish: &Wish) -> Result<u64, LimitHit> {
        let mut longest = wish.longest;
        for (_, entry) in self.line(account) {
            if let Some(allowed) = entry.limits.max_cost_usd {
                let room = Money::from_usd(allowed).minus(entry.spent.money).minus(wish.fixed.money);
                longest = longest.min(room.holds(wish.per_token));
            }
        }
        let longest = longest.max(wish.least.min(wish.longest));
        for (account, entry) in self.line(account) {
            if let Some((limit, used, allowed, wanted)) = stopped(&entry.limits, entry.spent, wish.cost(longest)) {
                let shown = |amount| shown(limit, amount);
                let needed = Some(wanted).filter(|wanted| limit == Limit::Cost && *wanted > 0).map(shown);
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
        Wish { fixed: Cost { money: cent, ..Cost::REQUEST }, per_token: cent, longest, least }
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
        let run = ledger.open(limits(2), None);
        for _ in 0..2 {
            at_once(&ledger, run, Wish::exactly(request(0))).unwrap().settle(request(5));
        }
        let Err(reached) = at_once(&ledger, run, Wish::exactly(request(0))) else { panic!("one too many") };
        assert_eq!((reached.limit, reached.used, reached.allowed), (of(Limit::Requests, run), 2.0, 2.0));
        let call = Cost { tool_calls: 1, ..Cost::default() };
        assert!(ledger.spend(run, call).is_ok(), "tools have a limit of their own");
    }

    #[test]
    fn what_a_call_spends_its_callers_spend_too() {
        let ledger = Ledger::default();
        let run = ledger.open(money(1.0), None);
        let call = ledger.open(limits(5), Some(run));
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
        let run = ledger.open(Limits { max_output_tokens: Some(10), ..Limits::default() }, None);
        let first = at_once(&ledger, run, Wish::exactly(request(0))).unwrap();
        first.settle(Cost { output_tokens: 25, ..request(0) });
        let Err(reached) = at_once(&ledger, run, Wish::exactly(request(0))) else { panic!("used up") };
        assert_eq!(reached.limit, of(Limit::OutputTokens, run));
    }

    #[test]
    fn a_request_waits_for_what_others_have_reserved_and_is_stopped_only_by_what_was_spent() {
        let ledger = Ledger::default();
        let run = ledger.open(money(1.0), None);
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
        let run = ledger.open(money(0.5), None);
        let call = ledger.open(money(0.3), Some(run));
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
        let run = ledger.open(Limits { max_output_tokens: Some(1), ..Limits::default() }, None);
        let call = ledger.open(money(1.0), Some(run));
        assert_eq!(ledger.limited(run), LimitKinds { money: false, tokens: true });
        assert_eq!(ledger.limited(call), LimitKinds { money: true, tokens: true });
        let free = ledger.open(limits(1), None);
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
        let limit = BoundedAmount::Budget { name: "everyday".into(), per: "day" };
        LimitHit { limit, used: 1.0, allowed: 1.0, needed: None }
    }

    impl FurtherLedger for Budget {
        fn name(&self) -> String {
            "budget everyday".to_owned()
        }

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
        let run = ledger.open(money(1.0), None);
        assert!(ledger.limited(run).money);
        let reserved = at_once(&ledger, run, cents(5, 20)).unwrap();
        let lowered = Some(Lowering::Further(of_budget()));
        assert_eq!((reserved.longest, &reserved.lowered, reserved.cost), (10, &lowered, spent(0.11)));
        assert_eq!(reserved.settle(spent(0.04)), [of_budget()]);
        drop(at_once(&ledger, run, cents(5, 20)).unwrap());
        assert_eq!(*generous.spent.lock().unwrap(), [Some(Money::from_usd(0.04)), None]);

        let ledger = Ledger::before(Some(BudgetsInForce(empty)));
        let run = ledger.open(money(0.21), None);
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
            let run = ledger.open(limits(allowed), None);
            let calls: Vec<Account> = (0..4).map(|_| ledger.open(Limits::default(), Some(run))).collect();
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
            let run = ledger.open(money(1.0), None);
            let calls: Vec<Account> = (0..64).map(|_| ledger.open(Limits::default(), Some(run))).collect();
            let dollar = Money::from_usd(1.0);
            let mut waiting: VecDeque<_> = wishes.iter().zip(&calls).map(|(wish, call)| {
                let mill = Money::mills(1);
                let fixed = Cost { money: mill.times(wish.0), ..Cost::REQUEST };
                let wished = Wish { fixed, per_token: mill, longest: wish.1 + 4, least: 4 };
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
