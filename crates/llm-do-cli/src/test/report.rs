//! How tests are told: a line a case, then what was expected and what came; for programs JSON, and XML as `JUnit` has it. Pure.

use std::fmt::Write as _;

use llm_do::escape::{visible, visible_lines, visible_start};
use llm_do::tests::{CallMade, CaseOutcome, Miss, PassRate};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::case::{CaseReport, CaseVerdict};
use crate::terminal::style::{Style, Styles};

/// A case that was run.
pub struct NamedReport {
    /// The file, as people name it.
    pub file: String,
    pub agent: String,
    pub case: String,
    pub report: CaseReport,
}

impl CaseVerdict {
    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::Stale(_) => "stale",
            Self::Unrecorded => "unrecorded",
            Self::Skipped(_) => "skipped",
        }
    }

    /// Whether it lets the whole pass.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Passed | Self::Skipped(_))
    }

    fn style(&self) -> Style {
        match self {
            Self::Passed => Style::Added,
            Self::Failed => Style::Removed,
            Self::Stale(_) | Self::Unrecorded | Self::Skipped(_) => Style::Warning,
        }
    }
}

/// The line of a case.
pub fn line(named: &NamedReport, styles: Styles) -> String {
    let NamedReport { agent, case, report, .. } = named;
    let word = styles.paint(report.verdict.style(), &format!("{:<10}", report.verdict.word()));
    let more = match &report.verdict {
        CaseVerdict::Stale(stale) => format!("   {}", visible(&stale.changed.join(", "))),
        CaseVerdict::Skipped(tool) => format!("   {} cannot run here, and its record has no result", visible(tool)),
        CaseVerdict::Passed | CaseVerdict::Failed | CaseVerdict::Unrecorded => String::new(),
    };
    format!("{word} {}   {}{}\n", visible(agent), visible(case), styles.paint(Style::Dim, &more))
}

/// What is wrong with a case, where something is.
pub fn details(named: &NamedReport, styles: Styles) -> String {
    let NamedReport { file, agent, case, report } = named;
    if !matches!(report.verdict, CaseVerdict::Failed | CaseVerdict::Stale(_)) {
        return String::new();
    }
    let mut text = format!("\n{}\n", styles.paint(Style::Bold, &format!("{}   {}", visible(agent), visible(case))));
    let _ = writeln!(text, "  in {}", visible(file));
    if let CaseVerdict::Stale(stale) = &report.verdict {
        let _ = writeln!(text, "  the record is no longer of this request: {}", visible(&stale.key));
        let _ = writeln!(text, "  changed: {}", visible(&stale.changed.join(", ")));
        return text;
    }
    report.misses.iter().for_each(|miss| text.push_str(&missed(miss, styles)));
    text.push_str(&styles.paint(Style::Dim, &done(&report.outcome)));
    text
}

/// What the agent did, beside what is wrong with it.
fn done(outcome: &CaseOutcome) -> String {
    let mut text = String::new();
    let call =
        |call: &CallMade| format!("{} {}", visible(&call.tool), visible_start(&call.arguments.to_string(), LONGEST));
    let calls: Vec<String> = outcome.calls.iter().take(MOST_CALLS).map(call).collect();
    if !calls.is_empty() {
        let more = outcome.calls.len() - calls.len();
        let more = if more > 0 { format!("\n    and {more} more calls") } else { String::new() };
        let _ = writeln!(text, "  it called\n    {}{more}", calls.join("\n    "));
    }
    if let Some(output) = &outcome.output {
        let said = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
        let lines: Vec<_> = said.lines().take(MOST_LINES).map(|line| visible_start(line, LONGEST)).collect();
        let more = said.lines().count() - lines.len();
        let more = if more > 0 { format!("\n    and {more} more lines") } else { String::new() };
        let _ = writeln!(text, "  it said\n    {}{more}", lines.join("\n    "));
    }
    text
}

/// Of what an agent did so much is shown.
const MOST_CALLS: usize = 20;
const MOST_LINES: usize = 10;
const LONGEST: usize = 200;

fn missed(miss: &Miss, styles: Styles) -> String {
    let Miss { of, expected, came, are_texts } = miss;
    if !are_texts {
        let (expected, came) = (visible_lines(expected), visible_lines(came));
        return format!("  {}: expected {expected}\n  {}  came {came}\n", visible(of), " ".repeat(of.chars().count()));
    }
    let mut text = format!("  {}: expected (-), came (+)\n", visible(of));
    for change in TextDiff::from_lines(expected.as_str(), came.as_str()).iter_all_changes() {
        let line = visible(change.value().trim_end_matches(['\r', '\n']));
        let line = match change.tag() {
            ChangeTag::Equal => format!("      {line}"),
            ChangeTag::Delete => styles.paint(Style::Removed, &format!("    - {line}")),
            ChangeTag::Insert => styles.paint(Style::Added, &format!("    + {line}")),
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// How many there were of each sort, and what to do about those that are no longer answered.
pub fn summary(reports: &[NamedReport]) -> String {
    let count = |is_it: fn(&CaseVerdict) -> bool| reports.iter().filter(|named| is_it(&named.report.verdict)).count();
    let counts = [
        (count(|verdict| *verdict == CaseVerdict::Passed), "passed"),
        (count(|verdict| *verdict == CaseVerdict::Failed), "failed"),
        (count(|verdict| matches!(verdict, CaseVerdict::Stale(_))), "stale"),
        (count(|verdict| *verdict == CaseVerdict::Unrecorded), "unrecorded"),
        (count(|verdict| matches!(verdict, CaseVerdict::Skipped(_))), "skipped"),
    ];
    let words = counts.iter().enumerate().filter(|(index, (count, _))| *index == 0 || *count > 0);
    let words: Vec<String> = words.map(|(_, (count, word))| format!("{count} {word}")).collect();
    format!("\n{}\n", words.join(", "))
}

/// One object for programs.
pub fn json(reports: &[NamedReport]) -> Value {
    let miss = |miss: &Miss| json!({ "of": miss.of, "expected": miss.expected, "came": miss.came });
    let case = |named: &NamedReport| {
        let report = &named.report;
        let CaseReport { verdict, misses, usage, seconds, .. } = report;
        let mut case = json!({
            "file": named.file, "agent": named.agent, "case": named.case, "verdict": verdict.word().to_lowercase(),
            "misses": misses.iter().map(miss).collect::<Vec<_>>(), "requests": usage.requests,
            "cost_usd": usage.cost_usd, "seconds": seconds,
        });
        match verdict {
            CaseVerdict::Stale(stale) => case["changed"] = json!(stale.changed),
            CaseVerdict::Skipped(tool) => case["tool"] = json!(tool),
            CaseVerdict::Failed => {
                let call = |call: &CallMade| json!({ "tool": call.tool, "arguments": call.arguments });
                case["calls"] = report.outcome.calls.iter().map(call).collect();
                case["output"] = report.outcome.output.clone().unwrap_or_default();
            }
            CaseVerdict::Passed | CaseVerdict::Unrecorded => {}
        }
        case
    };
    json!({ "cases": reports.iter().map(case).collect::<Vec<_>>() })
}

/// As `JUnit` writes it, which most machines that run tests read.
pub fn junit(reports: &[NamedReport]) -> String {
    let escaped = |text: &str| {
        let mut out = String::new();
        for character in text.chars() {
            match character {
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '"' => out.push_str("&quot;"),
                '\n' => out.push_str("&#10;"),
                control if control.is_control() => out.push('\u{fffd}'),
                plain => out.push(plain),
            }
        }
        out
    };
    let bad = reports.iter().filter(|named| !named.report.verdict.is_good()).count();
    let skipped = reports.iter().filter(|named| matches!(named.report.verdict, CaseVerdict::Skipped(_))).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let total = reports.len();
    let _ = writeln!(xml, "<testsuites tests=\"{total}\" failures=\"{bad}\" skipped=\"{skipped}\">");
    let _ = writeln!(xml, "  <testsuite name=\"llm-do\" tests=\"{total}\" failures=\"{bad}\" skipped=\"{skipped}\">");
    for named in reports {
        let NamedReport { agent, case, report, .. } = named;
        let (agent, case) = (escaped(agent), escaped(case));
        let _ = write!(xml, "    <testcase classname=\"{agent}\" name=\"{case}\" time=\"{:.3}\"", report.seconds);
        let plain = Styles { coloured: false };
        match &report.verdict {
            CaseVerdict::Passed => xml.push_str("/>\n"),
            CaseVerdict::Skipped(tool) => {
                let _ = writeln!(xml, "><skipped message=\"{} cannot run here\"/></testcase>", escaped(tool));
            }
            verdict @ (CaseVerdict::Failed | CaseVerdict::Stale(_) | CaseVerdict::Unrecorded) => {
                let (word, details) = (verdict.word().to_lowercase(), details(named, plain));
                let _ = writeln!(xml, "><failure type=\"{word}\">{}</failure></testcase>", escaped(details.trim()));
            }
        }
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// A cell of the matrix: one case, one model, several times.
#[derive(Clone, Debug, Default)]
pub struct LiveCell {
    pub passed: u64,
    pub total: u64,
    pub cost_usd: Option<f64>,
    pub seconds: Vec<f64>,
}

impl LiveCell {
    pub fn rate(&self) -> PassRate {
        PassRate::of(self.passed, self.total)
    }

    fn median(&self) -> f64 {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).copied().unwrap_or(0.0)
    }
}

/// A line of the matrix.
pub fn live_line(agent: &str, case: &str, model: &str, cell: &LiveCell, styles: Styles) -> String {
    let rate = cell.rate();
    let style = match (rate.passed == rate.total, rate.passed) {
        (true, _) => Style::Added,
        (false, 0) => Style::Removed,
        (false, _) => Style::Warning,
    };
    let share = styles.paint(style, &format!("{:>7}", format!("{}/{}", rate.passed, rate.total)));
    let interval = format!("{:.0} to {:.0} %", rate.low * 100.0, rate.high * 100.0);
    let cost = cell.cost_usd.map_or_else(|| "$?".to_owned(), |cost| format!("${cost:.4}"));
    let seconds = format!("{:.1} s", cell.median());
    format!(
        "{share}  {interval:<13} {cost:>9} {seconds:>8}   {}   {}   {}\n",
        visible(model),
        visible(agent),
        visible(case)
    )
}

/// Why a case failed with a model.
pub fn live_details(agent: &str, case: &str, model: &str, report: &CaseReport, styles: Styles) -> String {
    let title = format!("{}   {}   {}", visible(agent), visible(case), visible(model));
    let misses: String = report.misses.iter().map(|miss| missed(miss, styles)).collect();
    format!("\n{}\n{misses}{}", styles.paint(Style::Bold, &title), styles.paint(Style::Dim, &done(&report.outcome)))
}

/// What a new record answers, beside what the one before it did.
pub fn renewed(path: &str, before: &str, now: &str, styles: Styles) -> String {
    let mut text = format!("{}\n", visible(path));
    for change in TextDiff::from_lines(before, now).iter_all_changes() {
        let line = visible(change.value().trim_end_matches(['\r', '\n']));
        match change.tag() {
            ChangeTag::Equal => {}
            ChangeTag::Delete => text.push_str(&styles.paint(Style::Removed, &format!("  - {line}\n"))),
            ChangeTag::Insert => text.push_str(&styles.paint(Style::Added, &format!("  + {line}\n"))),
        }
    }
    text
}

/// The matrix for programs.
pub fn live_json(agent: &str, case: &str, model: &str, cell: &LiveCell) -> Value {
    let PassRate { passed, total, low, high, .. } = cell.rate();
    json!({
        "agent": agent, "case": case, "model": model, "passed": passed, "total": total, "low": low, "high": high,
        "cost_usd": cell.cost_usd, "median_seconds": cell.median(),
    })
}

#[cfg(test)]
mod tests {
    use llm_do::messages::Usage;
    use llm_do::tests::{Fixture, StaleStep};

    use super::*;

    fn named(verdict: CaseVerdict, misses: Vec<Miss>) -> NamedReport {
        let report = CaseReport {
            verdict,
            misses,
            fixture: Fixture::default(),
            usage: Usage::default(),
            seconds: 0.25,
            outcome: CaseOutcome {
                calls: vec![CallMade { tool: "read_file".into(), arguments: json!({ "path": "a" }) }],
                output: Some("one\nthree".into()),
                ..CaseOutcome::default()
            },
            is_out_of_money: false,
        };
        NamedReport { file: "a.test.yaml".into(), agent: "a".into(), case: "<one> & \"two\"".into(), report }
    }

    fn miss(are_texts: bool) -> Miss {
        Miss { of: "output".into(), expected: "one\ntwo\n".into(), came: "one\nthree\u{1b}\n".into(), are_texts }
    }

    #[test]
    fn a_failure_says_what_was_expected_and_what_came() {
        let plain = Styles { coloured: false };
        let failed = named(CaseVerdict::Failed, vec![miss(true)]);
        assert_eq!(line(&failed, plain), "FAILED     a   <one> & \"two\"\n");
        let expected = "\na   <one> & \"two\"\n  in a.test.yaml\n  output: expected (-), came (+)\n      one\n    - two\n    + \
                        three\\u{1b}\n  it called\n    read_file {\"path\":\"a\"}\n  it said\n    one\n    three\n";
        assert_eq!(details(&failed, plain), expected);
        let stale = StaleStep { key: "a/t0/m0".into(), changed: vec!["instructions".into(), "tools".into()] };
        let stale = named(CaseVerdict::Stale(stale), Vec::new());
        assert_eq!(line(&stale, plain), "stale      a   <one> & \"two\"   instructions, tools\n");
        assert_eq!(summary(&[stale, failed]), "\n0 passed, 1 failed, 1 stale\n");
    }

    #[test]
    fn junit_is_well_formed_whatever_cases_are_called() {
        let reports = [
            named(CaseVerdict::Passed, Vec::new()),
            named(CaseVerdict::Skipped("shell".into()), Vec::new()),
            named(CaseVerdict::Failed, vec![miss(false)]),
        ];
        let xml = junit(&reports);
        assert!(xml.contains("tests=\"3\" failures=\"1\" skipped=\"1\""), "{xml}");
        assert!(xml.contains("name=\"&lt;one&gt; &amp; &quot;two&quot;\" time=\"0.250\"/>"), "{xml}");
        assert!(!xml.contains('\u{1b}'), "{xml}");
    }
}
