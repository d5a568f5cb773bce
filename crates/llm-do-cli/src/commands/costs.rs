//! `llm-do costs`: what runs cost, summed up.

mod table;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use llm_do::store::budget::BudgetStanding;
use llm_do::store::costs::{CostFiles, CostGroup, CostLine, sums};
use llm_do::store::layout::StoreLayout;
use llm_do::store::period::{CalendarDay, LocalZone};
use llm_do_launch::budgets;

use crate::args::{CostGroupArg, CostsArgs};
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::terminal::style::Styles;

pub fn run(args: &CostsArgs) -> Result<(), Failure> {
    let (environment, group) = (Environment::read().on(&args.engine), group_of(args.by));
    let sums = sums(&lines(args, &environment)?, group);
    let budgets = standings(&environment)?;
    if args.json {
        return console::print(&(table::json(&sums, group) + &table::budgets_json(&budgets)));
    }
    if sums.is_empty() {
        console::complain("nothing was spent in this time\n");
    }
    let styles = Styles { coloured: environment.colours_stdout() };
    let table = || table::table(&sums, group, columns(&environment), styles);
    let parts = [(!sums.is_empty()).then(table), (!budgets.is_empty()).then(|| table::budgets(&budgets))];
    console::print(&parts.into_iter().flatten().collect::<Vec<_>>().join("\n"))
}

/// How the budgets of the user stand now.
fn standings(environment: &Environment) -> Result<Vec<BudgetStanding>, Failure> {
    // Budgets are kept where their runs are counted.
    if environment.engine.is_some() {
        return Ok(Vec::new());
    }
    let settings = environment.settings()?;
    let Some(book) = budgets::book(&settings)? else { return Ok(Vec::new()) };
    book.standings().map_err(|error| budgets::unkept(error.to_string()).into())
}

/// What was spent since the time that was asked for.
fn lines(args: &CostsArgs, environment: &Environment) -> Result<Vec<CostLine>, Failure> {
    let kept = environment.settings()?.state.directory().map(Path::to_owned);
    let Some(state) = kept else {
        return Err(Failure::usage("there is no home directory in which costs could be kept"));
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = u64::try_from(now.saturating_sub(args.since).as_millis()).unwrap_or(u64::MAX);
    let lines = CostFiles::of(&StoreLayout::new(state)).read(Some(CalendarDay::of(since, &LocalZone::of_process())));
    lines.map_err(|error| Failure::failed(format!("the costs cannot be read: {error}")))
}

/// How wide the bars of the table may be, if it is shown where bars can be.
fn columns(environment: &Environment) -> Option<usize> {
    let has_bars = environment.stdout_is_terminal && !environment.is_dumb();
    has_bars.then(|| console::columns().filter(|_| environment.stderr_is_terminal).unwrap_or(80))
}

fn group_of(by: CostGroupArg) -> CostGroup {
    match by {
        CostGroupArg::Day => CostGroup::Day,
        CostGroupArg::Project => CostGroup::Project,
        CostGroupArg::Agent => CostGroup::Agent,
        CostGroupArg::Model => CostGroup::Model,
        CostGroupArg::Entry => CostGroup::Entry,
    }
}
