//! Cases held against models that are asked: a matrix of cases and models, how sure its shares are, and a budget that is
//! never exceeded.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use futures_util::stream;
use llm_do::ModelChoices;
use llm_do::tests::{Answering, Fixture, TestCase, TestFile};
use serde_json::json;

use super::TestSuite;
use super::case::{CaseAnswers, CaseReport, CaseVerdict};
use super::plan::LiveModel;
use super::report::{self, LiveCell};
use crate::failure::{FAILED, Failure};
use crate::{console, json as lines};

/// What is left of the budget. Each case that runs has a share of it, which its ledger keeps.
struct LiveBudget {
    left: Option<f64>,
    /// Cases that may begin beside those that run.
    free: usize,
    is_reached: bool,
}

impl LiveBudget {
    /// The share of a case that begins; an error if there is nothing left to share.
    #[expect(clippy::cast_precision_loss, reason = "a few cases at once")]
    fn take(&mut self) -> Result<Option<f64>, ()> {
        let Some(left) = &mut self.left else { return Ok(None) };
        if self.is_reached || *left <= 0.0 {
            self.is_reached = true;
            return Err(());
        }
        let share = *left / self.free.max(1) as f64;
        *left -= share;
        self.free -= 1;
        Ok(Some(share))
    }

    /// What a case did not spend is there for others.
    fn give_back(&mut self, share: Option<f64>, spent: f64) {
        if let (Some(left), Some(share)) = (&mut self.left, share) {
            *left += (share - spent).max(0.0);
            self.free += 1;
        }
    }
}

pub async fn run(
    suite: &TestSuite<'_>,
    times: u64,
    models: &[LiveModel],
    budget: Option<f64>,
    at_once: usize,
) -> Result<(), Failure> {
    let cases = suite.cases()?;
    let money = RefCell::new(LiveBudget { left: budget, free: at_once, is_reached: false });
    let cells: RefCell<BTreeMap<(usize, usize), LiveCell>> = RefCell::default();
    let reports: RefCell<Vec<(usize, usize, CaseReport)>> = RefCell::default();
    let wanted =
        (0..times).flat_map(|_| (0..cases.len()).flat_map(|case| (0..models.len()).map(move |model| (case, model))));
    let runs = stream::iter(wanted).map(|(case, model)| {
        let ((file, tested), column) = (cases[case], &models[model]);
        let (money, cells, reports) = (&money, &cells, &reports);
        async move {
            let Ok(share) = money.borrow_mut().take() else { return Ok::<_, Failure>(()) };
            let ran = one(suite, file, tested, column, share).await;
            let spent = ran.as_ref().map_or(share.unwrap_or(0.0), |ran| ran.usage.cost_usd.unwrap_or(0.0));
            money.borrow_mut().give_back(share, spent);
            let ran = ran?;
            if share.is_some() && ran.is_out_of_money {
                money.borrow_mut().is_reached = true;
                return Ok(());
            }
            cells.borrow_mut().entry((case, model)).or_default().count(&ran);
            reports.borrow_mut().push((case, model, ran));
            Ok(())
        }
    });
    let mut runs = runs.buffer_unordered(at_once.max(1));
    while let Some(ended) = runs.next().await {
        ended?;
    }
    drop(runs);
    let told = LiveMatrix { suite, cases: &cases, models, cells: cells.into_inner() };
    told.tell(&reports.into_inner())?;
    match (money.into_inner().is_reached, budget) {
        (true, Some(budget)) => Err(Failure::limit(format!("the budget of ${budget} is used up"))
            .hint("what ran is shown above; a higher budget lets the rest run")),
        _ if told.cells.values().all(|cell| cell.passed == cell.total) => Ok(()),
        _ => Err(Failure::Said { code: FAILED }),
    }
}

async fn one(
    suite: &TestSuite<'_>,
    file: &TestFile,
    case: &TestCase,
    model: &LiveModel,
    share: Option<f64>,
) -> Result<CaseReport, Failure> {
    let models = ModelChoices { may_be_open: false, ..model.choices.clone() };
    let answers = CaseAnswers { answering: Answering::World, fixture: Fixture::default(), models };
    suite.bench.within(share).run(file, case, answers).await
}

impl LiveCell {
    fn count(&mut self, ran: &CaseReport) {
        self.total += 1;
        self.passed += u64::from(ran.verdict == CaseVerdict::Passed);
        self.seconds.push(ran.seconds);
        let before = if self.total == 1 { Some(0.0) } else { self.cost_usd };
        self.cost_usd = before.zip(ran.usage.cost_usd).map(|(before, more)| before + more);
    }
}

/// What is told of it.
struct LiveMatrix<'a> {
    suite: &'a TestSuite<'a>,
    cases: &'a [(&'a TestFile, &'a TestCase)],
    models: &'a [LiveModel],
    cells: BTreeMap<(usize, usize), LiveCell>,
}

impl LiveMatrix<'_> {
    fn tell(&self, reports: &[(usize, usize, CaseReport)]) -> Result<(), Failure> {
        let styles = self.suite.plan.styles;
        let named = |case: usize, model: usize| {
            let (file, tested) = self.cases[case];
            let model = self.models[model].shown.clone().unwrap_or_else(|| "its own model".to_owned());
            (file.agent.as_str(), tested.name.as_str(), model)
        };
        if self.suite.plan.json {
            let cell = |((case, model), cell): (&(usize, usize), &LiveCell)| {
                let (agent, case, model) = named(*case, *model);
                report::live_json(agent, case, &model, cell)
            };
            let all: Vec<_> = self.cells.iter().map(cell).collect();
            return console::print(&lines::lines(&json!({ "cases": all })));
        }
        for ((case, model), cell) in &self.cells {
            let (agent, case, model) = named(*case, *model);
            console::print(&report::live_line(agent, case, &model, cell, styles))?;
        }
        // Of each case that failed the first failure says enough.
        let mut told = std::collections::BTreeSet::new();
        for (case, model, ran) in reports.iter().filter(|(_, _, ran)| ran.verdict != CaseVerdict::Passed) {
            if told.insert((case, model)) {
                let (agent, name, model) = named(*case, *model);
                console::print(&report::live_details(agent, name, &model, ran, styles))?;
            }
        }
        Ok(())
    }
}
