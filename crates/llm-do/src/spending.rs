//! What is spent, and the port through which whoever keeps budgets over several runs bounds it. The ledger of a run
//! (`runtime/ledger.rs`) is the one place that reserves; budgets stand behind it and know nothing of runs.

use std::sync::Arc;

use crate::BoxFuture;
use crate::message::Usage;
use crate::model::prices::Money;
use crate::project::Limit;

pub(crate) use crate::project::OnLimit;

/// What something costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub requests: u64,
    pub tool_calls: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub money: Money,
}

impl Cost {
    pub(crate) const REQUEST: Self =
        Self { requests: 1, tool_calls: 0, input_tokens: 0, output_tokens: 0, money: Money::ZERO };

    /// What a request took.
    pub(crate) fn of(usage: &Usage) -> Self {
        Self {
            requests: usage.requests,
            tool_calls: 0,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            money: Money::from_usd(usage.cost_usd.unwrap_or(0.0)),
        }
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            money: self.money.plus(other.money),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tool_calls: self.tool_calls.saturating_sub(other.tool_calls),
            input_tokens: self.input_tokens.saturating_sub(other.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(other.output_tokens),
            money: self.money.minus(other.money),
        }
    }
}

/// What a request wishes for before it is sent: the most that it can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// However short the answer is: the input, and the provider's own tools.
    pub fixed: Cost,
    /// For each token of the answer.
    pub per_token: Money,
    /// How many tokens the answer may have: as many of them as there is money for, but not fewer than the least.
    pub longest: u64,
    pub least: u64,
    /// Set if it is the last request of a call, which may take what was kept back for it: the call's account.
    pub last_of: Option<Account>,
}

impl Wish {
    /// Of something whose cost is known.
    pub(crate) const fn exactly(fixed: Cost) -> Self {
        Self { fixed, per_token: Money::ZERO, longest: 0, least: 0, last_of: None }
    }

    /// With an answer of so many tokens.
    pub(crate) fn cost(&self, answer: u64) -> Cost {
        Cost { money: self.fixed.money.plus(self.per_token.times(answer)), ..self.fixed }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Account(pub u64);

/// A limit that stops something, or is near.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LimitHit {
    pub limit: BoundedAmount,
    pub used: f64,
    pub allowed: f64,
    /// What comes next takes at least so much, where that is known.
    pub needed: Option<f64>,
}

/// What a limit bounds, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoundedAmount {
    /// An amount of an account.
    Account(Limit, Account),
    /// The money of a budget over several runs: its name, and of what length its periods are.
    #[cfg_attr(not(feature = "front-end"), allow(dead_code, reason = "the store has the budgets"))]
    Budget {
        name: Arc<str>,
        per: &'static str,
        /// What the user wants to happen there, if that is said.
        on_limit: Option<OnLimit>,
    },
}

impl BoundedAmount {
    /// As events and messages call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Account(limit, _) => limit.key().to_owned(),
            Self::Budget { name, .. } => format!("budget {name}"),
        }
    }
}

/// Why nothing was reserved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReserveError {
    /// A limit stops it.
    Limit(LimitHit),
    /// A further ledger cannot be kept: why.
    #[cfg_attr(not(feature = "front-end"), allow(dead_code, reason = "the store has the budgets"))]
    Unkept(String),
}

impl From<LimitHit> for ReserveError {
    fn from(reached: LimitHit) -> Self {
        Self::Limit(reached)
    }
}

/// A ledger beyond that of the run: budgets over several runs. What the run's own ledger has let through passes it as well,
/// with the same amounts and under the same rule.
pub(crate) trait FurtherLedger: Send + Sync {
    /// What people call the first of its limits.
    fn name(&self) -> String;

    /// What the user wants to happen at each of its limits, where that is said.
    fn on_limits(&self) -> Vec<Option<OnLimit>>;

    /// How many dollars one of its limits allows in this run.
    fn allowed(&self, limit: &str) -> Option<f64>;

    /// Lets this run, and no other, go on until so many dollars are spent.
    fn raise(&self, limit: &str, usd: f64);

    /// Keeps so much back for the last request of a call, in place of what was kept back for it before, at each limit where
    /// that is wanted, or where nothing is said and this is.
    fn keep_back(&self, keeper: Account, money: Money, unless_said: Option<OnLimit>);

    /// Reserves everywhere or nowhere. Waits as long as only the reservations of others are in the way.
    fn reserve(&self, wish: Wish) -> BoxFuture<'_, Result<Box<dyn FurtherReservation>, ReserveError>>;
}

/// What is reserved in a further ledger. Dropped, it is given back.
pub(crate) trait FurtherReservation: Send {
    /// How long the answer may be: no longer than was wished for.
    fn longest(&self) -> u64;

    /// Whose money did not reach for a longer one.
    fn lowered(&self) -> Option<LimitHit>;

    /// Turns it into what was really spent. Returns the limits that are now near, each once in a run.
    fn settle(self: Box<Self>, spent: Money) -> Vec<LimitHit>;
}

/// Budgets over several runs that a run has to keep, as `store` opens them.
#[derive(Clone)]
pub struct BudgetsInForce(pub(crate) Arc<dyn FurtherLedger>);
