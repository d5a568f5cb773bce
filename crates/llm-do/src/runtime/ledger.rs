//! What a run and each call may spend: one ledger, which reserves before it spends and settles after. Pure but for its
//! lock.
//!
//! An account belongs to the run or to a call of an agent; what a call spends, its callers spend too. Counts never pass
//! their limit. Tokens and money are estimated first, so they pass it by at most the replies in flight.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::message::Usage;
use crate::project::Limits;

/// What something costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub requests: u64,
    pub tool_calls: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub usd: f64,
}

impl Cost {
    pub const TOOL_CALL: Self = Self { requests: 0, tool_calls: 1, input_tokens: 0, output_tokens: 0, usd: 0.0 };

    /// What a reply really took.
    pub fn of_reply(usage: &Usage) -> Self {
        Self {
            requests: 1,
            tool_calls: 0,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            usd: usage.cost_usd.unwrap_or(0.0),
        }
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            usd: self.usd + other.usd,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tool_calls: self.tool_calls.saturating_sub(other.tool_calls),
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            usd: (self.usd - other.usd).max(0.0),
        }
    }

    /// Each amount with the name and the value of its limit.
    #[expect(clippy::cast_precision_loss, reason = "shown to people, and compared far below the precision of a double")]
    fn against(self, limits: &Limits) -> [(&'static str, f64, Option<f64>); 5] {
        let count = |limit: Option<u64>| limit.map(|limit| limit as f64);
        [
            ("max_requests", self.requests as f64, count(limits.max_requests)),
            ("max_tool_calls", self.tool_calls as f64, count(limits.max_tool_calls)),
            ("max_input_tokens", self.input_tokens as f64, count(limits.max_input_tokens)),
            ("max_output_tokens", self.output_tokens as f64, count(limits.max_output_tokens)),
            ("max_cost_usd", self.usd, limits.max_cost_usd),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(pub u64);

/// A limit that stops something, or is near.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    pub limit: &'static str,
    pub used: f64,
    pub allowed: f64,
    /// The account whose limit it is.
    pub account: Account,
}

/// From this share of a limit on, it is told of.
const NEAR: f64 = 0.8;

#[derive(Debug, Default)]
pub struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Boxed, as rising keys leave half of every node empty.
    accounts: BTreeMap<Account, Box<Entry>>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    limits: Limits,
    parent: Option<Account>,
    spent: Cost,
    reserved: Cost,
    /// Limits that were told of already.
    told: Vec<&'static str>,
}

impl Ledger {
    pub fn open(&self, limits: Limits, parent: Option<Account>) -> Account {
        let mut state = self.state();
        let account = Account(state.next);
        state.next += 1;
        let (spent, reserved) = (Cost::default(), Cost::default());
        let entry = Entry { limits, parent, spent, reserved, told: Vec::new() };
        state.accounts.insert(account, Box::new(entry));
        account
    }

    /// What was spent before this process: a call that is resumed has no more than it had left.
    pub fn carry_over(&self, account: Account, spent: Cost) {
        if let Some(entry) = self.state().accounts.get_mut(&account) {
            entry.spent = entry.spent.plus(spent);
        }
    }

    pub fn close(&self, account: Account) {
        self.state().accounts.remove(&account);
    }

    /// Reserves in the account and in all above it, or in none.
    pub fn reserve(&self, account: Account, estimate: Cost) -> Result<(), Reached> {
        let mut state = self.state();
        for (account, entry) in state.line(account) {
            let now = entry.spent.plus(entry.reserved);
            let after = now.plus(estimate).against(&entry.limits);
            for ((limit, used, allowed), (_, wanted, _)) in now.against(&entry.limits).into_iter().zip(after) {
                // A limit that is used up stops everything that would use it, even an estimate of nothing.
                let stops = |allowed: &f64| wanted > *allowed || used >= *allowed;
                if let Some(allowed) = allowed.filter(stops).filter(|_| is_touched(limit, estimate)) {
                    return Err(Reached { limit, used, allowed, account });
                }
            }
        }
        state.change_line(account, |_, entry| entry.reserved = entry.reserved.plus(estimate));
        Ok(())
    }

    /// Turns a reservation into what was really spent. Returns the limits that are now near, each once.
    pub fn settle(&self, account: Account, estimate: Cost, spent: Cost) -> Vec<Reached> {
        let mut near = Vec::new();
        self.state().change_line(account, |account, entry| {
            entry.reserved = entry.reserved.minus(estimate);
            entry.spent = entry.spent.plus(spent);
            for (limit, used, allowed) in entry.spent.against(&entry.limits) {
                if let Some(allowed) = allowed.filter(|allowed| used >= NEAR * allowed)
                    && !entry.told.contains(&limit)
                {
                    entry.told.push(limit);
                    near.push(Reached { limit, used, allowed, account });
                }
            }
        });
        near
    }

    // The sums stay right whatever panicked elsewhere.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The account and all above it.
    fn line(&self, account: Account) -> impl Iterator<Item = (Account, &Entry)> {
        let entry = |account: Account| Some((account, self.accounts.get(&account)?.as_ref()));
        std::iter::successors(entry(account), move |(_, below)| below.parent.and_then(entry))
    }

    fn change_line(&mut self, account: Account, mut change: impl FnMut(Account, &mut Entry)) {
        let mut next = Some(account);
        while let Some((account, entry)) = next.and_then(|account| Some((account, self.accounts.get_mut(&account)?))) {
            change(account, entry);
            next = entry.parent;
        }
    }
}

/// A tool call uses no tokens, a request no tool calls.
fn is_touched(limit: &str, estimate: Cost) -> bool {
    match limit {
        "max_tool_calls" => estimate.tool_calls > 0,
        _ => estimate.requests > 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(input_tokens: u64) -> Cost {
        Cost { requests: 1, input_tokens, ..Cost::default() }
    }

    fn limits(max_requests: u64) -> Limits {
        Limits { max_requests: Some(max_requests), ..Limits::default() }
    }

    #[test]
    fn a_limit_allows_exactly_what_it_says() {
        let ledger = Ledger::default();
        let run = ledger.open(limits(2), None);
        for _ in 0..2 {
            ledger.reserve(run, request(0)).unwrap();
            ledger.settle(run, request(0), request(5));
        }
        let reached = ledger.reserve(run, request(0)).unwrap_err();
        assert_eq!((reached.limit, reached.used, reached.allowed), ("max_requests", 2.0, 2.0));
        assert!(ledger.reserve(run, Cost::TOOL_CALL).is_ok(), "tools have a limit of their own");
    }

    #[test]
    fn what_a_call_spends_its_callers_spend_too() {
        let ledger = Ledger::default();
        let run = ledger.open(Limits { max_cost_usd: Some(1.0), ..Limits::default() }, None);
        let call = ledger.open(limits(5), Some(run));
        let cost = Cost { usd: 0.9, ..request(1) };
        ledger.reserve(call, request(1)).unwrap();
        let near = ledger.settle(call, request(1), cost);
        assert_eq!(near.len(), 1);
        assert_eq!((near[0].limit, near[0].account), ("max_cost_usd", run));
        let estimate = Cost { usd: 0.2, ..request(1) };
        let reached = ledger.reserve(call, estimate).unwrap_err();
        assert_eq!((reached.limit, reached.account), ("max_cost_usd", run));
    }

    #[test]
    fn tokens_that_are_used_up_stop_the_next_request() {
        let ledger = Ledger::default();
        let run = ledger.open(Limits { max_output_tokens: Some(10), ..Limits::default() }, None);
        ledger.reserve(run, request(0)).unwrap();
        ledger.settle(run, request(0), Cost { output_tokens: 25, ..request(0) });
        assert_eq!(ledger.reserve(run, request(0)).unwrap_err().limit, "max_output_tokens");
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
            let (mut open, mut made) = ([0_u64; 4], 0_u64);
            for (call, settles) in order {
                if settles && open[call] > 0 {
                    open[call] -= 1;
                    ledger.settle(calls[call], request(3), request(7));
                } else if ledger.reserve(calls[call], request(3)).is_ok() {
                    open[call] += 1;
                    made += 1;
                }
                prop_assert!(made <= allowed);
            }
        }
    }
}
