//! `llm-do costs`: what runs cost, summed up.

mod table;

use std::time::{SystemTime, UNIX_EPOCH};

use llm_do::store::costs::{CalendarDay, CostFiles, CostGroup, sums};
use llm_do::store::layout::StoreLayout;

use crate::args::{CostGroupArg, CostsArgs};
use crate::console;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::terminal::style::Styles;

pub fn run(args: &CostsArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let Some(state) = environment.state_directory() else {
        return Err(Failure::usage("there is no home directory in which costs could be kept"));
    };
    let group = match args.by {
        CostGroupArg::Day => CostGroup::Day,
        CostGroupArg::Project => CostGroup::Project,
        CostGroupArg::Agent => CostGroup::Agent,
        CostGroupArg::Model => CostGroup::Model,
        CostGroupArg::Entry => CostGroup::Entry,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = u64::try_from(now.saturating_sub(args.since).as_millis()).unwrap_or(u64::MAX);
    let lines = CostFiles::of(&StoreLayout::new(state)).read(Some(CalendarDay::of(since, 0)));
    let lines = lines.map_err(|error| Failure::failed(format!("the costs cannot be read: {error}")))?;
    let sums = sums(&lines, group);
    if args.json {
        return console::print(&table::json(&sums, group));
    }
    if sums.is_empty() {
        console::complain("nothing was spent in this time\n");
        return Ok(());
    }
    let bar = environment.stdout_is_terminal && !environment.is_dumb();
    let columns = console::columns().filter(|_| environment.stderr_is_terminal).unwrap_or(80);
    let styles = Styles { coloured: environment.colours_stdout() };
    console::print(&table::table(&sums, group, bar.then_some(columns), styles))
}
