//! What runs cost: sums by day, model, agent and project, the dearest runs, and how the budgets stand.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use llm_do::store::costs::{CostGroup, CostLine, CostSum, sums};
use llm_do::store::index::RunState;
use llm_do::store::period::{CalendarDay, LocalZone};
use llm_do_launch::budgets;
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::stored_runs::now;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answered, WebState, apart};
use crate::error::ApiError;
use crate::house::House;

/// Since when.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowCosts {
    /// Whole days before today; 30 if nothing is said.
    pub days: Option<u64>,
}

pub async fn show(State(served): State<WebState>, Query(wanted): Query<ShowCosts>) -> Answered {
    let house = served.house;
    Ok(Json(apart(move || costs(&house, wanted.days.unwrap_or(30))).await??))
}

fn costs(house: &House, days: u64) -> Result<Value, ApiError> {
    const DAY: u64 = 24 * 60 * 60 * 1000;
    const DEAREST: usize = 10;
    let zone = LocalZone::of_process();
    let since = CalendarDay::of(now().saturating_sub(days.min(3660) * DAY), &zone);
    let unread = |error: std::io::Error| ApiError::failed(format!("the costs cannot be read: {error}"));
    let mut lines = house.store.costs().read(Some(since)).map_err(unread)?;
    // The book hears of a run when it ends: one that goes on is counted as far as it has come.
    let listed = house.store.listed(&project_of).map_err(unread)?;
    for run in listed.newest().filter(|line| line.state == RunState::Running).map(|line| line.id) {
        let Some(known) = house.live.read(&house.store, &run) else { continue };
        lines.retain(|line| line.run != run);
        lines.extend(known.summary.costs(run, &known.project).into_iter().filter(|line| line.day >= since));
    }
    let today = CalendarDay::of(now(), &zone);
    let of_today: Vec<CostLine> = lines.iter().filter(|line| line.day == today).cloned().collect();
    let by = |group| sums(&lines, group).iter().map(row).collect::<Vec<Value>>();
    let mut runs: BTreeMap<_, (f64, &CostLine)> = BTreeMap::new();
    for line in &lines {
        let (usd, _) = runs.entry(line.run).or_insert((0.0, line));
        *usd += line.usd.unwrap_or(0.0);
    }
    let mut dearest: Vec<(f64, &CostLine)> = runs.into_values().collect();
    dearest.sort_by(|one, other| other.0.total_cmp(&one.0));
    dearest.truncate(DEAREST);
    let dearest = dearest.into_iter().map(|(usd, line)| {
        json!({"run": line.run, "project": line.project, "entry": line.entry, "usd": usd, "day": line.day})
    });
    let today_usd: f64 = sums(&of_today, CostGroup::Day).iter().map(|sum| sum.usd).sum();
    Ok(json!({
        "since": since,
        "today": today,
        "today_usd": today_usd,
        "day": by(CostGroup::Day),
        "model": by(CostGroup::Model),
        "agent": by(CostGroup::Agent),
        "project": by(CostGroup::Project),
        "dearest": dearest.collect::<Vec<_>>(),
        "budgets": standings(house)?,
    }))
}

fn row(sum: &CostSum) -> Value {
    let CostSum { name, runs, input, output, usd, unpriced } = sum;
    json!({"name": name, "runs": runs, "in": input, "out": output, "usd": usd, "unpriced": unpriced})
}

fn standings(house: &House) -> Result<Vec<Value>, ApiError> {
    let Some(book) = budgets::book(&house.settings).map_err(|error| house.error(error))? else { return Ok(Vec::new()) };
    let standings = book.standings().map_err(|error| ApiError::failed(error.to_string()))?;
    let row = |standing: &llm_do::store::budget::BudgetStanding| {
        json!({
            "name": standing.budget.name,
            "usd": standing.budget.usd,
            "period": standing.period,
            "project": standing.budget.project,
            "spent": standing.spent,
            "reserved": standing.reserved,
            "left": standing.left(),
        })
    };
    Ok(standings.iter().map(row).collect())
}
