//! Sums of money and tokens as a table, and as JSON. Pure.

use llm_do::escape::visible;
use llm_do::store::budget::BudgetStanding;
use llm_do::store::costs::{CostGroup, CostSum};
use serde_json::json;

use crate::json;
use crate::terminal::style::{Style, Styles, fit, width};
use crate::terminal::summary;

const WIDEST_NAME: usize = 36;
const WIDEST_BAR: usize = 30;
const COLUMNS: usize = 5;

/// A row for each sum, the days in their order and all else by money; a bar for each if there are so many columns.
pub fn table(sums: &[CostSum], group: CostGroup, bar: Option<usize>, styles: Styles) -> String {
    let sorted = sorted(sums, group);
    let total = total(sums);
    let heading = [word(group).to_uppercase(), "RUNS".into(), "IN".into(), "OUT".into(), "COST".into()];
    let mut rows: Vec<[String; COLUMNS]> = vec![heading];
    rows.extend(sorted.iter().map(|sum| cells(sum, group)));
    rows.push(cells(&total, CostGroup::Day));
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0));
    let used = widths.iter().sum::<usize>() + 2 * COLUMNS;
    let room = bar.map_or(0, |columns| columns.saturating_sub(used + 1).min(WIDEST_BAR));
    let most = sums.iter().map(|sum| sum.usd).fold(0.0, f64::max);
    let is_sum = |index: usize| index.checked_sub(1).and_then(|index| sorted.get(index));
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let name = format!("{}{}", row[0], " ".repeat(widths[0] - width(&row[0])));
        let numbers = (1..COLUMNS).map(|column| format!("  {:>1$}", row[column], widths[column]));
        let numbers = numbers.collect::<Vec<_>>().concat();
        let bar = is_sum(index).map(|sum| bar_of(sum.usd, most, room)).filter(|bar| !bar.is_empty());
        let bar = bar.map(|bar| format!("  {}", styles.paint(Style::Code, &bar))).unwrap_or_default();
        text.push_str(&format!("{name}{numbers}{bar}\n"));
    }
    if total.unpriced > 0 {
        text.push_str(&format!("not in the costs: {} tokens without a known price\n", summary::count(total.unpriced)));
        for sum in sorted.iter().filter(|sum| sum.unpriced > 0) {
            let name = shown_name(&sum.name, group);
            text.push_str(&format!("  {name}: {} tokens\n", summary::count(sum.unpriced)));
        }
    }
    text
}

fn sorted(sums: &[CostSum], group: CostGroup) -> Vec<&CostSum> {
    let mut sorted: Vec<&CostSum> = sums.iter().collect();
    if group != CostGroup::Day {
        sorted.sort_by(|one, other| other.usd.total_cmp(&one.usd).then_with(|| one.name.cmp(&other.name)));
    }
    sorted
}

/// A run of several days is one run.
fn total(sums: &[CostSum]) -> CostSum {
    let count = |of: fn(&CostSum) -> u64| sums.iter().map(of).fold(0, u64::saturating_add);
    CostSum {
        name: "total".to_owned(),
        runs: 0,
        input: count(|sum| sum.input),
        output: count(|sum| sum.output),
        usd: sums.iter().map(|sum| sum.usd).sum(),
        unpriced: count(|sum| sum.unpriced),
    }
}

fn cells(sum: &CostSum, group: CostGroup) -> [String; COLUMNS] {
    let runs = if sum.runs == 0 { String::new() } else { sum.runs.to_string() };
    let money = match sum.usd {
        0.0 if sum.unpriced > 0 => "unknown".to_owned(),
        usd => summary::money(usd),
    };
    [shown_name(&sum.name, group), runs, summary::count(sum.input), summary::count(sum.output), money]
}

/// A project by its last part, as lists of runs show it.
fn shown_name(name: &str, group: CostGroup) -> String {
    let name = match group {
        CostGroup::Project => name.rsplit('/').find(|part| !part.is_empty()).unwrap_or(name),
        CostGroup::Day | CostGroup::Agent | CostGroup::Model | CostGroup::Entry => name,
    };
    fit(&visible(name), WIDEST_NAME)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a few columns"
)]
fn bar_of(usd: f64, most: f64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if most <= 0.0 || usd <= 0.0 {
        return String::new();
    }
    let eighths = ((usd / most * room as f64 * 8.0).round() as usize).max(1).min(room * 8);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn word(group: CostGroup) -> &'static str {
    match group {
        CostGroup::Day => "day",
        CostGroup::Project => "project",
        CostGroup::Agent => "agent",
        CostGroup::Model => "model",
        CostGroup::Entry => "entry",
    }
}

/// An object a line, with the name under the word that was summed up by.
pub fn json(sums: &[CostSum], group: CostGroup) -> String {
    let line = |sum: &&CostSum| {
        json::line(&json!({
            word(group): sum.name,
            "runs": sum.runs,
            "in": sum.input,
            "out": sum.output,
            "usd": sum.usd,
            "unpriced_tokens": sum.unpriced,
        }))
    };
    sorted(sums, group).iter().map(line).collect()
}

/// A row for each budget, with what is left of it now.
pub fn budgets(standings: &[BudgetStanding]) -> String {
    let heading = ["BUDGET", "PERIOD", "SPENT", "RESERVED", "OF", "LEFT"].map(str::to_owned);
    let cells = |standing: &BudgetStanding| {
        let BudgetStanding { budget, period, spent, reserved } = standing;
        let money = [*spent, *reserved, budget.usd, standing.left()].map(summary::money);
        let [spent, reserved, usd, left] = money;
        [
            fit(&budget.name, WIDEST_NAME),
            period.clone(),
            spent,
            reserved,
            format!("{usd} a {}", budget.per.name()),
            left,
        ]
    };
    let rows: Vec<[String; 6]> = std::iter::once(heading).chain(standings.iter().map(cells)).collect();
    let wide = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
    let line = |row: &[String; 6]| {
        let names = format!("{:<2$}  {:<3$}", row[0], row[1], wide(0), wide(1));
        let numbers = (2..6).map(|column| format!("  {:>1$}", row[column], wide(column)));
        format!("{names}{}\n", numbers.collect::<String>())
    };
    rows.iter().map(line).collect()
}

/// An object a line, which has the key `budget`.
pub fn budgets_json(standings: &[BudgetStanding]) -> String {
    let line = |standing: &BudgetStanding| {
        let BudgetStanding { budget, period, spent, reserved } = standing;
        json::line(&json!({
            "budget": budget.name,
            "per": budget.per,
            "period": period,
            "project": budget.project.as_ref().map(|project| project.to_string_lossy()),
            "spent": spent,
            "reserved": reserved,
            "usd": budget.usd,
            "left": standing.left(),
        }))
    };
    standings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use llm_do::store::budget::Budget;
    use llm_do::store::period::PeriodLength;

    use super::*;

    fn sum(name: &str, runs: usize, usd: f64, unpriced: u64) -> CostSum {
        CostSum { name: name.to_owned(), runs, input: 12_000, output: 34, usd, unpriced }
    }

    const PLAIN: Styles = Styles { coloured: false };

    #[test]
    fn sums_stand_in_a_table_with_bars_and_unknown_prices_apart() {
        let sums = [sum("a:x", 1, 0.25, 0), sum("b:y", 3, 2.0, 0), sum("c:z", 1, 0.0, 12_034)];
        let expected = "\
MODEL  RUNS     IN  OUT     COST
b:y       3  12.0k   34    $2.00  ██████████████████████████████
a:x       1  12.0k   34  $0.2500  ███▊
c:z       1  12.0k   34  unknown
total        36.0k  102    $2.25
not in the costs: 12.0k tokens without a known price
  c:z: 12.0k tokens
";
        assert_eq!(table(&sums, CostGroup::Model, Some(80), PLAIN), expected);
        let plain: Vec<&str> = expected.lines().map(|line| line.trim_end_matches(['█', '▊', ' '])).collect();
        let plain = plain.join("\n") + "\n";
        assert_eq!(table(&sums, CostGroup::Model, None, PLAIN), plain);
        let line = r#"{"in":12000,"model":"b:y","out":34,"runs":3,"unpriced_tokens":0,"usd":2.0}"#;
        assert_eq!(json(&sums, CostGroup::Model).lines().next(), Some(line));
    }

    #[test]
    fn budgets_stand_with_what_is_left_of_them() {
        let standing = |name: &str, per, period: &str, spent, reserved| BudgetStanding {
            budget: Budget { name: name.to_owned(), usd: 5.0, per, project: None, warn_at: None, on_limit: None },
            period: period.to_owned(),
            spent,
            reserved,
        };
        let standings = [
            standing("everyday", PeriodLength::Day, "2026-11-17", 3.25, 0.12),
            standing("all", PeriodLength::Week, "2026-W47", 6.0, 0.0),
        ];
        let expected = "\
BUDGET    PERIOD      SPENT  RESERVED            OF   LEFT
everyday  2026-11-17  $3.25   $0.1200   $5.00 a day  $1.63
all       2026-W47    $6.00        $0  $5.00 a week     $0
";
        assert_eq!(budgets(&standings), expected);
        let line = r#"{"budget":"everyday","left":1.63,"per":"day","period":"2026-11-17","project":null,"reserved":0.12,"spent":3.25,"usd":5.0}"#;
        assert_eq!(budgets_json(&standings).lines().next(), Some(line));
    }

    #[test]
    fn days_stand_in_their_order_and_projects_by_their_last_part() {
        let days = [sum("2026-11-16", 1, 0.0, 0), sum("2026-11-17", 1, 1.0, 0)];
        assert!(
            table(&days, CostGroup::Day, None, PLAIN).contains("\n2026-11-16     1  12.0k   34     $0\n2026-11-17")
        );
        let shown = table(&[sum("/home/me/re\u{1b}fund/", 1, 1.0, 0)], CostGroup::Project, None, PLAIN);
        assert!(shown.lines().nth(1).unwrap().starts_with("re\\u{1b}fund "), "{shown}");
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_wider_than_the_terminal(name in "\\PC{0,60}", usd in 0.0..1e6_f64, runs in 0..100_000_usize) {
            let shown = table(&[sum(&name, runs, usd, 0), sum("b", 1, 3.0, 0)], CostGroup::Model, Some(80), PLAIN);
            proptest::prop_assert!(shown.lines().all(|line| width(line) <= 80), "{shown}");
        }
    }
}
