//! Money that runs share: budgets over a day, a week or a month, kept by any number of processes at once.
//!
//! `budgets/<name>/<period>` is a ledger of lines that begins with what `costs` has for the period. A request reserves there
//! before it is sent, in every budget that covers it or in none, and settles after. `budgets/<name>/holders/<random>` is
//! locked by a process as long as it lives: what a dead one had reserved may have been sent, so it counts as spent. The
//! rule is that of the ledger of a run, which lets a request through before it comes here.

mod account;
mod open;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use self::account::{BudgetAccount, BudgetStand, Room, room};
use self::open::{LockedBudget, OpenBudget};
use super::costs::CostFiles;
use super::layout::{StoreLayout, now};
use super::period::{CalendarDay, CalendarPeriod, LocalZone, PeriodLength};
use crate::BoxFuture;
use crate::model::prices::Money;
use crate::spending::{
    Account, BoundedAmount, BudgetsInForce, FurtherLedger, FurtherReservation, LimitHit, OnLimit, ReserveError, Wish,
};

/// What may be spent in each period.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Letters, digits, `-` and `_`.
    pub name: String,
    /// So many dollars.
    pub usd: f64,
    /// In a period of this length.
    pub per: PeriodLength,
    /// The canonical root of the project whose runs count; `None` for all.
    pub project: Option<PathBuf>,
    /// From this share on it is told that it comes to its end.
    pub warn_at: Option<f64>,
    /// What happens where it is used up; what holds for the run if nothing is said.
    pub on_limit: Option<OnLimit>,
}

impl Budget {
    /// Whether it counts what a project spends.
    pub fn covers(&self, project: &Path) -> bool {
        self.project.as_deref().is_none_or(|own| own == project)
    }

    fn allowed(&self) -> Money {
        Money::from_usd(self.usd)
    }

    /// As costs and ledgers write it.
    fn project_name(&self) -> Option<String> {
        self.project.as_ref().map(|project| project.to_string_lossy().into_owned())
    }

    fn bounded(&self) -> BoundedAmount {
        BoundedAmount::Budget { name: self.name.as_str().into(), per: self.per.name(), on_limit: self.on_limit }
    }

    fn unkept(&self, reason: String) -> BudgetError {
        BudgetError { budget: self.name.clone(), reason }
    }
}

/// Why a budget cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget `{budget}` cannot be kept: {reason}")]
pub struct BudgetError {
    budget: String,
    reason: String,
}

impl From<BudgetError> for ReserveError {
    fn from(error: BudgetError) -> Self {
        Self::Unkept(error.to_string())
    }
}

/// The budgets of a user, as this process keeps them.
pub struct BudgetBook {
    layout: StoreLayout,
    zone: LocalZone,
    /// By name: whoever locks several does so in this order.
    budgets: Vec<Budget>,
    /// Those that a run of this process uses now.
    open: Mutex<Vec<Weak<OpenBudget>>>,
    settled: Arc<Notify>,
}

impl BudgetBook {
    /// Nothing is opened before a run needs it.
    pub fn new(layout: StoreLayout, mut budgets: Vec<Budget>, zone: LocalZone) -> Self {
        budgets.sort_by(|one, other| one.name.cmp(&other.name));
        Self { layout, zone, budgets, open: Mutex::default(), settled: Arc::default() }
    }

    /// Opens those that cover a run of this project; `None` if none does.
    pub fn open_for(&self, project: &Path) -> Result<Option<BudgetsInForce>, BudgetError> {
        let covering: Vec<&Budget> = self.budgets.iter().filter(|budget| budget.covers(project)).collect();
        if covering.is_empty() {
            return Ok(None);
        }
        let budgets = covering.into_iter().map(|budget| self.opened(budget)).collect::<Result<Vec<_>, _>>()?;
        let (told, raised, kept) = (Arc::new(Mutex::new(Vec::new())), Mutex::default(), Mutex::default());
        let settled = Arc::clone(&self.settled);
        let zone = self.zone.clone();
        Ok(Some(BudgetsInForce(Arc::new(RunBudgets { budgets, zone, told, raised, kept, settled }))))
    }

    /// Shared with the other runs of this process.
    fn opened(&self, budget: &Budget) -> Result<Arc<OpenBudget>, BudgetError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|known| known.strong_count() > 0);
        if let Some(known) = open.iter().filter_map(Weak::upgrade).find(|known| known.terms == *budget) {
            return Ok(known);
        }
        let period = budget.per.around(CalendarDay::of(now(), &self.zone));
        let opened = Arc::new(OpenBudget::open(budget, &self.layout, &period, &self.settled)?);
        open.push(Arc::downgrade(&opened));
        Ok(opened)
    }

    /// How each stands now. Nothing is made for a look.
    pub fn standings(&self) -> Result<Vec<BudgetStanding>, BudgetError> {
        let today = CalendarDay::of(now(), &self.zone);
        let standing = |budget: &Budget| {
            let period = budget.per.around(today);
            let account = open::look(budget, &self.layout, &period)?;
            let spent = match account.subject {
                Some(_) => account.spent,
                None => spent_in(&self.layout, budget, &period)?,
            };
            let (spent, reserved) = (spent.usd(), account.reserved().usd());
            Ok(BudgetStanding { budget: budget.clone(), period: period.name, spent, reserved })
        };
        self.budgets.iter().map(standing).collect()
    }
}

/// How a budget stands.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetStanding {
    /// The budget.
    pub budget: Budget,
    /// What its present period is called.
    pub period: String,
    /// So many dollars were spent in it.
    pub spent: f64,
    /// So many more are reserved for requests that are under way.
    pub reserved: f64,
}

impl BudgetStanding {
    /// So many dollars are neither spent nor reserved.
    pub fn left(&self) -> f64 {
        let used = Money::from_usd(self.spent).plus(Money::from_usd(self.reserved));
        self.budget.allowed().minus(used).usd()
    }
}

/// What runs have cost in a period, as far as a budget counts it.
fn spent_in(layout: &StoreLayout, budget: &Budget, period: &CalendarPeriod) -> Result<Money, BudgetError> {
    let lines = CostFiles::of(layout).read(Some(period.first));
    let lines = lines.map_err(|error| budget.unkept(format!("{}: {error}", layout.costs().display())))?;
    let project = budget.project_name();
    let counts = lines.iter().filter(|line| period.has(line.day));
    let counts = counts.filter(|line| project.as_ref().is_none_or(|project| *project == line.project));
    Ok(counts.filter_map(|line| line.usd).map(Money::from_usd).fold(Money::ZERO, Money::plus))
}

/// Pauses that grow to the longest one.
fn waits(first: Duration, longest: Duration) -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(first), move |wait| Some((*wait * 2).min(longest)))
}

/// The budgets that one run has to keep.
struct RunBudgets {
    budgets: Vec<Arc<OpenBudget>>,
    zone: LocalZone,
    /// Those whose end was told of in this run.
    told: Arc<Mutex<Vec<String>>>,
    /// Those that a person has raised for this run, and how far.
    raised: Mutex<BTreeMap<String, f64>>,
    /// What this run keeps back for last requests, at which budgets.
    kept: Mutex<BTreeMap<Account, KeptBack>>,
    settled: Arc<Notify>,
}

/// What is kept back for the last request of a call.
#[derive(Clone, Copy)]
struct KeptBack {
    money: Money,
    /// Where a budget says nothing.
    unless_said: Option<OnLimit>,
}

/// What came of trying to reserve.
enum ReserveAttempt {
    Reserved(BudgetReservation),
    /// Another process is at one of the ledgers.
    Busy,
    /// Only what others have reserved is in the way.
    Waits,
}

impl RunBudgets {
    /// Reserves in all of them or in none, as of this moment.
    fn try_reserve(&self, wish: &Wish, at: u64) -> Result<ReserveAttempt, ReserveError> {
        let today = CalendarDay::of(at, &self.zone);
        let periods: Vec<CalendarPeriod> = self.budgets.iter().map(|budget| budget.terms.per.around(today)).collect();
        let mut locks: Vec<LockedBudget<'_>> = Vec::with_capacity(self.budgets.len());
        for budget in &self.budgets {
            match budget.try_lock()? {
                Some(lock) => locks.push(lock),
                None => return Ok(ReserveAttempt::Busy),
            }
        }
        let (longest, lowered) = loop {
            let stands = self.stands(&mut locks, &periods, wish.last_of)?;
            let hit = |index: usize, needed: Option<Money>| self.hit(index, stands[index].spent, needed);
            match room(&stands, wish) {
                Room::Fits { longest, lowered } => break (longest, lowered.map(|index| hit(index, None))),
                Room::Stops(index) => {
                    let needed = wish.cost(wish.least.min(wish.longest)).money;
                    return Err(hit(index, Some(needed)).into());
                }
                Room::Waits => {
                    let mut has_buried = false;
                    for (lock, period) in locks.iter_mut().zip(&periods) {
                        has_buried |= lock.bury(&period.name)?;
                    }
                    if !has_buried {
                        return Ok(ReserveAttempt::Waits);
                    }
                }
            }
        };
        let mut reserved = self.nothing(periods, longest, lowered);
        let amount = wish.cost(longest).money;
        for (lock, part) in locks.iter_mut().zip(&mut reserved.parts) {
            // An error drops what is reserved so far, which gives it back.
            part.number = Some(lock.reserve(&part.period.name, amount)?);
        }
        Ok(ReserveAttempt::Reserved(reserved))
    }

    /// A reservation before anything is reserved.
    fn nothing(&self, periods: Vec<CalendarPeriod>, longest: u64, lowered: Option<LimitHit>) -> BudgetReservation {
        let parts = self.budgets.iter().zip(periods);
        let part = |(budget, period): (&Arc<OpenBudget>, CalendarPeriod)| ReservationPart {
            budget: Arc::clone(budget),
            period,
            number: None,
        };
        BudgetReservation { parts: parts.map(part).collect(), longest, lowered, told: Arc::clone(&self.told) }
    }

    fn hit(&self, index: usize, spent: Money, needed: Option<Money>) -> LimitHit {
        let terms = &self.budgets[index].terms;
        let allowed = self.allowed_by(terms);
        LimitHit { limit: terms.bounded(), used: spent.usd(), allowed, needed: needed.map(Money::usd) }
    }

    /// In dollars, with what a person has added for this run.
    fn allowed_by(&self, terms: &Budget) -> f64 {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).get(&terms.name).copied();
        raised.map_or(terms.usd, |raised| raised.max(terms.usd))
    }

    /// What is kept back of a budget, but for the call whose last request it is.
    fn kept_at(&self, terms: &Budget, last_of: Option<Account>) -> Money {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let others = kept.iter().filter(|(keeper, _)| Some(**keeper) != last_of);
        let here = others.filter(|(_, kept)| terms.on_limit.or(kept.unless_said) == Some(OnLimit::WrapUp));
        here.fold(Money::ZERO, |sum, (_, kept)| sum.plus(kept.money))
    }

    fn stands(
        &self,
        locks: &mut [LockedBudget<'_>],
        periods: &[CalendarPeriod],
        last_of: Option<Account>,
    ) -> Result<Vec<BudgetStand>, BudgetError> {
        let stand = |(lock, period): (&mut LockedBudget<'_>, &CalendarPeriod)| {
            let account: BudgetAccount = lock.account(period)?;
            let terms = &lock.budget.terms;
            let allowed = Money::from_usd(self.allowed_by(terms)).minus(self.kept_at(terms, last_of));
            let reserved = account.reserved();
            Ok(BudgetStand { allowed, spent: account.spent, reserved })
        };
        locks.iter_mut().zip(periods).map(stand).collect()
    }
}

impl FurtherLedger for RunBudgets {
    fn name(&self) -> String {
        self.budgets.first().map(|budget| budget.terms.bounded().name()).unwrap_or_default()
    }

    fn on_limits(&self) -> Vec<Option<OnLimit>> {
        self.budgets.iter().map(|budget| budget.terms.on_limit).collect()
    }

    fn allowed(&self, limit: &str) -> Option<f64> {
        let budget = self.budgets.iter().find(|budget| budget.terms.name == limit)?;
        Some(self.allowed_by(&budget.terms))
    }

    fn raise(&self, limit: &str, usd: f64) {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).insert(limit.to_owned(), usd);
    }

    fn keep_back(&self, keeper: Account, money: Money, unless_said: Option<OnLimit>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(keeper, KeptBack { money, unless_said });
    }

    fn reserve(&self, wish: Wish) -> BoxFuture<'_, Result<Box<dyn FurtherReservation>, ReserveError>> {
        Box::pin(async move {
            // What costs nothing needs no budget, not even one that is used up.
            if wish.cost(wish.longest).money == Money::ZERO {
                let today = CalendarDay::of(now(), &self.zone);
                let periods = self.budgets.iter().map(|budget| budget.terms.per.around(today)).collect();
                return Ok(Box::new(self.nothing(periods, wish.longest, None)) as Box<dyn FurtherReservation>);
            }
            let mut pauses = waits(Duration::from_millis(20), Duration::from_millis(250));
            let mut retries = waits(Duration::from_millis(1), Duration::from_millis(10));
            loop {
                let mut settled = pin!(self.settled.notified());
                // From here on, so that nothing is missed between the look and the wait.
                settled.as_mut().enable();
                match self.try_reserve(&wish, now())? {
                    ReserveAttempt::Reserved(reserved) => return Ok(Box::new(reserved) as Box<dyn FurtherReservation>),
                    ReserveAttempt::Busy => {
                        let retry = retries.next().unwrap_or_default();
                        tokio::time::sleep(retry.mul_f64(0.5 + fastrand::f64())).await;
                    }
                    ReserveAttempt::Waits => {
                        let pause = pauses.next().unwrap_or_default().mul_f64(0.75 + fastrand::f64() / 2.0);
                        tokio::select! {
                            () = settled => {}
                            () = tokio::time::sleep(pause) => {}
                        }
                    }
                }
            }
        })
    }
}

/// What a request has reserved in each budget that covers it.
struct BudgetReservation {
    parts: Vec<ReservationPart>,
    longest: u64,
    lowered: Option<LimitHit>,
    told: Arc<Mutex<Vec<String>>>,
}

struct ReservationPart {
    budget: Arc<OpenBudget>,
    period: CalendarPeriod,
    /// None if nothing is reserved.
    number: Option<u64>,
}

impl ReservationPart {
    fn settle(&mut self, spent: Money) {
        match self.number.take() {
            Some(number) => self.budget.settle(&self.period, number, spent),
            None if spent > Money::ZERO => self.budget.spend(&self.period, spent),
            None => {}
        }
    }

    /// If it comes to its end, and the user wants to hear of that.
    fn near(&self) -> Option<LimitHit> {
        let terms = &self.budget.terms;
        let used = self.budget.last_seen(&self.period.name).spent.usd();
        let is_near = used >= terms.warn_at? * terms.usd;
        is_near.then(|| LimitHit { limit: terms.bounded(), used, allowed: terms.usd, needed: None })
    }
}

impl FurtherReservation for BudgetReservation {
    fn longest(&self) -> u64 {
        self.longest
    }

    fn lowered(&self) -> Option<LimitHit> {
        self.lowered.clone()
    }

    fn settle(mut self: Box<Self>, spent: Money) -> Vec<LimitHit> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut near = Vec::new();
        for part in &mut self.parts {
            part.settle(spent);
            let name = &part.budget.terms.name;
            if let Some(hit) = part.near().filter(|_| !told.contains(name)) {
                told.push(name.clone());
                near.push(hit);
            }
        }
        drop(told);
        // Nothing is left to be given back.
        self.parts.clear();
        near
    }
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        self.parts.iter_mut().for_each(|part| part.settle(Money::ZERO));
    }
}
