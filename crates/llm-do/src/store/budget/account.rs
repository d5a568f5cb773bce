//! What the ledger of a budget says: its lines, what they come to, and whether a request still fits. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::prices::Money;
use crate::spending::Wish;

/// Which reservation: who made it, and its number there.
pub(super) type ReservationId = (String, u64);

/// A line of a ledger. Money is in millionths of a millionth of a dollar, exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum LedgerLine {
    /// The first line: of which project the budget is, and what was spent before.
    Begun {
        #[serde(skip_serializing_if = "Option::is_none")]
        project: Option<String>,
        picodollars: u64,
    },
    /// A request is about to be sent that can cost so much.
    Reserved { holder: String, number: u64, picodollars: u64 },
    /// It has cost so much.
    Settled { holder: String, number: u64, picodollars: u64 },
    /// Something cost so much for which nothing was reserved.
    Spent { picodollars: u64 },
    /// A holder is gone: what it had reserved may have been sent, so it counts as spent.
    Died { holder: String },
}

/// Whose spending a ledger counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerSubject {
    /// `None` for all projects.
    pub project: Option<String>,
}

/// What was spent and is reserved in one period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BudgetAccount {
    /// `None` before the first line.
    pub subject: Option<LedgerSubject>,
    pub spent: Money,
    pub open: BTreeMap<ReservationId, Money>,
}

impl BudgetAccount {
    /// An error says what is wrong with the line.
    pub(super) fn apply(&mut self, line: LedgerLine) -> Result<(), &'static str> {
        if self.subject.is_none() != matches!(line, LedgerLine::Begun { .. }) {
            return Err(if self.subject.is_none() {
                "it does not say what was spent before"
            } else {
                "it begins again"
            });
        }
        match line {
            LedgerLine::Begun { project, picodollars } => {
                (self.subject, self.spent) = (Some(LedgerSubject { project }), Money::from_picodollars(picodollars));
            }
            LedgerLine::Reserved { holder, number, picodollars } => {
                if holder.is_empty() || !holder.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                    return Err("its holder has no name of ours");
                }
                if self.open.insert((holder, number), Money::from_picodollars(picodollars)).is_some() {
                    return Err("it reserves what is reserved already");
                }
            }
            LedgerLine::Settled { holder, number, picodollars } => {
                self.open.remove(&(holder, number)).ok_or("it settles what was not reserved")?;
                self.spend(Money::from_picodollars(picodollars));
            }
            LedgerLine::Spent { picodollars } => self.spend(Money::from_picodollars(picodollars)),
            LedgerLine::Died { holder } => {
                let left: Vec<ReservationId> = self.open.keys().filter(|(name, _)| *name == holder).cloned().collect();
                for amount in left.iter().filter_map(|id| self.open.remove(id)).collect::<Vec<_>>() {
                    self.spend(amount);
                }
            }
        }
        Ok(())
    }

    fn spend(&mut self, amount: Money) {
        self.spent = self.spent.plus(amount);
    }

    pub(super) fn reserved(&self) -> Money {
        self.open.values().copied().fold(Money::ZERO, Money::plus)
    }

    /// Whoever has something reserved.
    pub(super) fn holders(&self) -> BTreeSet<String> {
        self.open.keys().map(|(holder, _)| holder.clone()).collect()
    }

    /// The fewest lines that come to the same.
    pub(super) fn lines(&self) -> Vec<LedgerLine> {
        let begun = LedgerLine::Begun {
            project: self.subject.clone().and_then(|subject| subject.project),
            picodollars: self.spent.picodollars(),
        };
        let open = self.open.iter().map(|((holder, number), amount)| LedgerLine::Reserved {
            holder: holder.clone(),
            number: *number,
            picodollars: amount.picodollars(),
        });
        std::iter::once(begun).chain(open).collect()
    }
}

/// What there is of one budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetStand {
    pub allowed: Money,
    pub spent: Money,
    pub reserved: Money,
}

/// Whether a request fits into all budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// With an answer of so many tokens; if that is fewer than were wished for, because of this budget.
    Fits { longest: u64, lowered: Option<usize> },
    /// Only what others have reserved is in its way.
    Waits,
    /// This budget stops it, whatever becomes of the reservations.
    Stops(usize),
}

pub(super) fn room(stands: &[BudgetStand], wish: &Wish) -> Room {
    let holds = |stand: &BudgetStand| {
        let left = stand.allowed.minus(stand.spent).minus(wish.fixed.money);
        left.holds(wish.per_token)
    };
    let poorest = stands.iter().map(holds).enumerate().min_by_key(|(_, holds)| *holds);
    let (longest, lowered) = match poorest {
        Some((index, holds)) if holds < wish.longest => (holds.max(wish.least.min(wish.longest)), Some(index)),
        Some(_) | None => (wish.longest, None),
    };
    let cost = wish.cost(longest).money;
    let stops = |used: Money, stand: &BudgetStand| used.plus(cost) > stand.allowed || used >= stand.allowed;
    if let Some(stopping) = stands.iter().position(|stand| stops(stand.spent, stand)) {
        return Room::Stops(stopping);
    }
    if stands.iter().any(|stand| stops(stand.spent.plus(stand.reserved), stand)) {
        return Room::Waits;
    }
    Room::Fits { longest, lowered: lowered.filter(|_| longest < wish.longest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spending::Cost;

    fn cents(count: u64) -> Money {
        Money::mills(10 * count)
    }

    fn stand(allowed: u64, spent: u64, reserved: u64) -> BudgetStand {
        BudgetStand { allowed: cents(allowed), spent: cents(spent), reserved: cents(reserved) }
    }

    #[test]
    fn a_request_fits_waits_or_is_stopped_by_all_budgets_together() {
        // A cent for what goes in, one for each token of the answer, of which ten are enough.
        let fixed = Cost { money: cents(1), ..Cost::REQUEST };
        let wish = Wish { per_token: cents(1), longest: 30, least: 10, ..Wish::exactly(fixed) };
        let fits = |longest, lowered| Room::Fits { longest, lowered };
        for (stands, expected) in [
            (vec![stand(100, 0, 0)], fits(30, None)),
            (vec![stand(100, 69, 0)], fits(30, None)),
            (vec![stand(100, 70, 0)], fits(29, Some(0))),
            (vec![stand(100, 89, 0)], fits(10, Some(0))),
            (vec![stand(100, 90, 0)], Room::Stops(0)),
            (vec![stand(100, 0, 70)], Room::Waits),
            (vec![stand(100, 0, 69)], fits(30, None)),
            // Only what was spent shortens an answer: the reservations of others may come to less.
            (vec![stand(100, 70, 1)], Room::Waits),
            (vec![stand(100, 0, 0), stand(20, 0, 0)], fits(19, Some(1))),
            (vec![stand(100, 0, 99), stand(20, 15, 0)], Room::Stops(1)),
            (vec![stand(100, 0, 99), stand(20, 0, 0)], Room::Waits),
            (vec![], fits(30, None)),
        ] {
            assert_eq!(room(&stands, &wish), expected, "{stands:?}");
        }
    }

    #[test]
    fn lines_come_to_sums_and_sums_to_lines() {
        let text = |line: &LedgerLine| serde_json::to_string(line).unwrap();
        let reserved =
            |holder: &str, number, picodollars| LedgerLine::Reserved { holder: holder.into(), number, picodollars };
        let lines = [
            LedgerLine::Begun { project: None, picodollars: 5 },
            reserved("a", 1, 10),
            reserved("a", 2, 20),
            reserved("b", 1, 40),
            LedgerLine::Settled { holder: "a".into(), number: 1, picodollars: 3 },
            LedgerLine::Spent { picodollars: 100 },
            LedgerLine::Died { holder: "b".into() },
        ];
        let mut account = BudgetAccount::default();
        for line in &lines {
            account.apply(line.clone()).unwrap();
        }
        assert_eq!((account.spent.picodollars(), account.reserved().picodollars()), (148, 20));
        let again = account.lines();
        let shown = [r#"{"begun":{"picodollars":148}}"#, r#"{"reserved":{"holder":"a","number":2,"picodollars":20}}"#];
        assert_eq!(again.iter().map(text).collect::<Vec<_>>(), shown);
        let mut same = BudgetAccount::default();
        for line in again {
            same.apply(line).unwrap();
        }
        assert_eq!(same, account);
        for wrong in [
            LedgerLine::Begun { project: None, picodollars: 0 },
            reserved("a", 2, 1),
            LedgerLine::Settled { holder: "a".into(), number: 1, picodollars: 3 },
        ] {
            assert!(account.clone().apply(wrong).is_err());
        }
        assert!(BudgetAccount::default().apply(LedgerLine::Spent { picodollars: 1 }).is_err());
    }
}
