//! What runs cost: a file a month, a line for each day, run, agent and model. The last line for the same of them counts, so
//! that writing one twice does no harm; removing a run leaves them alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::files;
use super::layout::{RunId, StoreLayout};
use super::period::CalendarDay;

/// What an agent of a run used of a model on one day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostLine {
    /// The day, in the user's time.
    pub day: CalendarDay,
    /// The run. One that is not kept has an id all the same.
    pub run: RunId,
    /// The root of its project.
    pub project: String,
    /// The agent or function that it began with.
    pub entry: String,
    /// The agent that asked the model.
    pub agent: String,
    /// The model, with its provider.
    pub model: String,
    /// How many tokens were sent.
    #[serde(rename = "in")]
    pub input: u64,
    /// How many tokens came back.
    #[serde(rename = "out")]
    pub output: u64,
    /// US dollars; `None` if the price is not known.
    pub usd: Option<f64>,
}

/// By what costs are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostGroup {
    /// The day.
    Day,
    /// The project.
    Project,
    /// The agent that asked the model.
    Agent,
    /// The model.
    Model,
    /// The agent or function that a run began with.
    Entry,
}

/// What belongs to one day, project, agent, model or entry.
#[derive(Clone, Debug, PartialEq)]
pub struct CostSum {
    /// Which one.
    pub name: String,
    /// How many runs took part in it.
    pub runs: usize,
    /// How many tokens were sent, whether their price is known or not.
    pub input: u64,
    /// How many tokens came back, whether their price is known or not.
    pub output: u64,
    /// US dollars, of what has a known price.
    pub usd: f64,
    /// How many of all these tokens have no known price.
    pub unpriced: u64,
}

/// Of lines for the same day, run, agent and model the last one, in the order of their first ones.
pub(crate) fn last_of_each(lines: impl IntoIterator<Item = CostLine>) -> Vec<CostLine> {
    let mut places: HashMap<(CalendarDay, RunId, String, String), usize> = HashMap::new();
    let mut kept: Vec<CostLine> = Vec::new();
    for line in lines {
        let key = (line.day, line.run, line.agent.clone(), line.model.clone());
        let place = *places.entry(key).or_insert(kept.len());
        if place == kept.len() {
            kept.push(line);
        } else {
            kept[place] = line;
        }
    }
    kept
}

/// Sums by group, in the order of their names. The caller has dropped what does not count.
pub fn sums(lines: &[CostLine], group: CostGroup) -> Vec<CostSum> {
    #[derive(Default)]
    struct Total {
        runs: BTreeSet<RunId>,
        tokens: [u64; 3],
        picodollars: u128,
    }
    let mut totals: BTreeMap<String, Total> = BTreeMap::new();
    for line in lines {
        let name = match group {
            CostGroup::Day => line.day.to_string(),
            CostGroup::Project => line.project.clone(),
            CostGroup::Agent => line.agent.clone(),
            CostGroup::Model => line.model.clone(),
            CostGroup::Entry => line.entry.clone(),
        };
        let total = totals.entry(name).or_default();
        total.runs.insert(line.run);
        let price = line.usd.and_then(picodollars);
        let unpriced = if price.is_none() { line.input.saturating_add(line.output) } else { 0 };
        for (sum, count) in total.tokens.iter_mut().zip([line.input, line.output, unpriced]) {
            *sum = sum.saturating_add(count);
        }
        total.picodollars = total.picodollars.saturating_add(price.unwrap_or(0));
    }
    let sum = |(name, Total { runs, tokens: [input, output, unpriced], picodollars })| CostSum {
        name,
        runs: runs.len(),
        input,
        output,
        usd: dollars(picodollars),
        unpriced,
    };
    totals.into_iter().map(sum).collect()
}

const PICODOLLARS: f64 = 1e12;

/// Whole ones, so that ten times ten cents are a dollar. What is no amount of money has no known price.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is neither negative nor too large")]
fn picodollars(usd: f64) -> Option<u128> {
    (0.0..1e15).contains(&usd).then(|| (usd * PICODOLLARS).round() as u128)
}

#[expect(clippy::cast_precision_loss, reason = "a double holds nine thousand dollars to the last picodollar")]
fn dollars(picodollars: u128) -> f64 {
    picodollars as f64 / PICODOLLARS
}

/// The files of what runs cost.
#[derive(Clone, Debug)]
pub struct CostFiles {
    state: PathBuf,
    directory: PathBuf,
}

/// Half a million lines; what is longer was not written by us.
const LONGEST: u64 = 256 << 20;

impl CostFiles {
    /// Those of this store.
    pub fn of(layout: &StoreLayout) -> Self {
        Self { state: layout.state().to_owned(), directory: layout.costs() }
    }

    /// Appends lines: for each month all of them by one write, or none.
    pub fn append(&self, lines: &[CostLine]) -> io::Result<()> {
        let mut months: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for line in lines {
            let bytes = months.entry(line.day.month()).or_default();
            serde_json::to_writer(&mut *bytes, line)?;
            bytes.push(b'\n');
        }
        if !months.is_empty() {
            files::make_private(&self.state)?;
            files::make_private(&self.directory)?;
        }
        for (month, bytes) in months {
            let path = self.directory.join(month);
            let file = files::open_lines(&path)?;
            files::lock_lines(&file, &path)?;
            files::append_lines(&file, &bytes)?;
        }
        Ok(())
    }

    /// The lines that count, from a day on, in the order in which they were first written. What is no line of ours, and what
    /// is no file of ours, is skipped.
    pub fn read(&self, since: Option<CalendarDay>) -> io::Result<Vec<CostLine>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let first = since.map(CalendarDay::month).unwrap_or_default();
        let is_month = |name: &String| CalendarDay::parse(&format!("{name}-01")).is_some() && *name >= first;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let months: BTreeSet<String> = names.filter(is_month).collect();
        let mut lines: Vec<CostLine> = Vec::new();
        for month in months {
            let Ok(bytes) = files::read_whole(&self.directory.join(&month), LONGEST) else { continue };
            let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
            let read = whole.filter_map(|line| serde_json::from_slice::<CostLine>(line).ok());
            lines.extend(read.filter(|line| since.is_none_or(|since| line.day >= since)));
        }
        Ok(last_of_each(lines))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn day(text: &str) -> CalendarDay {
        CalendarDay::parse(text).unwrap()
    }

    fn line(on: &str, run: u32, model: &str, input: u64, usd: Option<f64>) -> CostLine {
        CostLine {
            day: day(on),
            run: RunId::new(1, run),
            project: "/p".to_owned(),
            entry: "main".to_owned(),
            agent: "main".to_owned(),
            model: model.to_owned(),
            input,
            output: 1,
            usd,
        }
    }

    #[test]
    fn a_line_is_as_it_is_documented() {
        let json = serde_json::to_string(&line("2026-11-17", 2, "acme:one", 5, None)).unwrap();
        let expected = r#"{"day":"2026-11-17","run":"0000000004000002","project":"/p","entry":"main","agent":"main","model":"acme:one","in":5,"out":1,"usd":null}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<CostLine>(&json).unwrap(), line("2026-11-17", 2, "acme:one", 5, None));
    }

    #[test]
    fn the_last_line_for_the_same_counts_and_unknown_prices_are_counted_apart() {
        let lines = last_of_each([
            line("2026-11-17", 1, "a", 1, Some(0.1)),
            line("2026-11-17", 2, "a", 10, Some(0.2)),
            line("2026-11-17", 1, "a", 2, Some(0.1)),
            line("2026-11-18", 1, "a", 3, Some(0.1)),
            line("2026-11-18", 1, "b", 5, None),
            line("2026-11-18", 1, "b", 7, Some(-1.0)),
        ]);
        assert_eq!(lines.len(), 4);
        let sum = |name: &str, runs, input, output, usd, unpriced| CostSum {
            name: name.to_owned(),
            runs,
            input,
            output,
            usd,
            unpriced,
        };
        assert_eq!(sums(&lines, CostGroup::Model), [sum("a", 2, 15, 3, 0.4, 0), sum("b", 1, 7, 1, 0.0, 8)]);
        let by_day = [sum("2026-11-17", 2, 12, 2, 0.3, 0), sum("2026-11-18", 1, 10, 2, 0.1, 8)];
        assert_eq!(sums(&lines, CostGroup::Day), by_day);
        for (group, name) in [(CostGroup::Project, "/p"), (CostGroup::Agent, "main"), (CostGroup::Entry, "main")] {
            assert_eq!(sums(&lines, group), [sum(name, 2, 22, 4, 0.4, 8)]);
        }
    }

    #[test]
    fn what_was_appended_is_read_and_nothing_else_is() {
        let state = tempfile::tempdir().unwrap();
        let costs = CostFiles::of(&StoreLayout::new(state.path()));
        assert!(costs.read(None).unwrap().is_empty());
        costs.append(&[]).unwrap();
        assert!(!costs.directory.exists());
        let lines = [
            line("2026-10-31", 1, "a", 1, None),
            line("2026-11-01", 1, "a", 2, None),
            line("2026-11-02", 1, "a", 3, None),
        ];
        costs.append(&lines).unwrap();
        assert_eq!(costs.read(None).unwrap(), lines);
        assert_eq!(costs.read(Some(day("2026-10-31"))).unwrap(), lines);
        assert_eq!(costs.read(Some(day("2026-11-02"))).unwrap(), lines[2..]);
        let month = costs.directory.join("2026-11");
        let file = files::open_lines(&month).unwrap();
        (&file).write_all(b"nonsense\n{\"day\":\"2026-11-0").unwrap();
        costs.append(&lines[1..]).unwrap();
        assert_eq!(costs.read(None).unwrap(), lines, "written twice, counted once");
        fs::write(costs.directory.join("notes.txt"), "x").unwrap();
        fs::create_dir(costs.directory.join("2026-12")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, costs.directory.join("2027-01"), 0o600.into()).unwrap();
        assert_eq!(costs.read(None).unwrap(), lines);
        assert!(costs.append(&[line("2027-01-01", 1, "a", 1, None)]).is_err());
    }

    #[test]
    fn many_may_append_at_once() {
        let state = tempfile::tempdir().unwrap();
        let costs = CostFiles::of(&StoreLayout::new(state.path()));
        std::thread::scope(|scope| {
            for run in 0..8 {
                let costs = &costs;
                scope.spawn(move || {
                    for input in 0..25 {
                        costs.append(&[line("2026-11-01", run, "a", input, None)]).unwrap();
                    }
                });
            }
        });
        let lines = costs.read(None).unwrap();
        assert_eq!((lines.len(), lines.iter().filter(|line| line.input == 24).count()), (8, 8));
    }

    proptest! {
        /// The sum of any lines is that of the last ones, whatever the group.
        #[test]
        fn nothing_is_lost_in_any_group(lines in prop::collection::vec((0..3_u32, 0..3_usize, 0..100_u64, prop::option::of(0..100_u32)), 0..30)) {
            let models = ["a", "b", "c"];
            let lines = last_of_each(lines.iter().map(|(run, model, input, cents)| {
                line("2026-11-17", *run, models[*model], *input, cents.map(|cents| f64::from(cents) / 100.0))
            }));
            prop_assert!(lines.len() <= 9);
            let input: u64 = lines.iter().map(|line| line.input).sum();
            let cents: f64 = lines.iter().filter_map(|line| line.usd).map(|usd| (usd * 100.0).round()).sum();
            for group in [CostGroup::Day, CostGroup::Project, CostGroup::Agent, CostGroup::Model, CostGroup::Entry] {
                let sums = sums(&lines, group);
                prop_assert_eq!(sums.iter().map(|sum| sum.input).sum::<u64>(), input);
                let found: f64 = sums.iter().map(|sum| (sum.usd * 100.0).round()).sum();
                prop_assert!((found - cents).abs() < 0.5);
            }
        }
    }
}
