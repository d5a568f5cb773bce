//! Rules, explanations and suggestions as people read them. Pure.

use std::path::Path;

use llm_do::approval::{DecidedBy, VerdictKind};
use llm_do::escape::visible;
use llm_do::policy::{CallOutlook, Explanation, JudgingStep, LastingRule, RuleSource};
use llm_do_launch::policy::RuleUse;
use serde::Serialize;

/// What an empty file of rules begins with.
pub const TEMPLATE: &str = r#"# Your rules about calls, for all projects. The strictest rule counts; an `allow` answers what would be asked.
#
# [[rule]]
# allow = "write_file"
# agent = "editor"
# project = "/home/ann/release"
# path = "drafts/*.md"
# expires = 2027-01-31
"#;

/// One rule of a list.
#[derive(Debug, Serialize)]
pub struct RuleRow<'a> {
    source: RuleSource,
    place: &'a str,
    rule: &'a str,
    /// How many of the calls of the last 30 days it decides.
    decided: usize,
    /// Why it says nothing, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent: Option<&'static str>,
}

impl<'a> RuleRow<'a> {
    pub fn of(rule: &'a LastingRule, here: Option<&Path>, today: &str, found: &RuleUse) -> Self {
        let unheard = || (!found.spoken.contains(rule.place())).then_some("it spoke of no call in the last 30 days");
        let silent = rule.silence(here, today).or_else(unheard);
        let decided = found.decided.get(rule.place()).copied().unwrap_or_default();
        Self { source: rule.source(), place: rule.place(), rule: rule.shown(), decided, silent }
    }
}

/// The rules of each place, with what they do.
pub fn table(rows: &[RuleRow<'_>]) -> String {
    let mut text = String::new();
    for source in [RuleSource::Organisation, RuleSource::Yours, RuleSource::Manifest] {
        let title = match source {
            RuleSource::Organisation => "of the organisation",
            RuleSource::Yours => "yours",
            RuleSource::Manifest => "of the project",
        };
        let of_source: Vec<_> = rows.iter().filter(|row| row.source == source).collect();
        if of_source.is_empty() {
            continue;
        }
        text.push_str(&format!("{title}\n"));
        for row in of_source {
            let decided = match row.decided {
                1 => "decides 1 call".to_owned(),
                several => format!("decides {several} calls"),
            };
            let note = row.silent.map_or(decided, str::to_owned);
            text.push_str(&format!("  {}  {}\n    {note}\n", visible(row.place), visible(row.rule)));
        }
    }
    text
}

/// The three steps of a call.
pub fn explanation(explanation: &Explanation) -> String {
    let Explanation { outlook, step, by, rule, toolset, rules } = explanation;
    let marked = |at: JudgingStep| if *step == at { "→" } else { " " };
    let floor = match toolset {
        VerdictKind::Allow | VerdictKind::Ask => "the toolset blocks nothing here and does not always ask",
        VerdictKind::AskAnyway | VerdictKind::AlwaysAsk => "the toolset always asks about this",
        VerdictKind::Block => "the toolset blocks this",
        VerdictKind::Fail => "the toolset cannot judge this, so it cannot run",
    };
    let mut text = format!("{} floor    {floor}\n", marked(JudgingStep::Floor));
    let own = match toolset {
        VerdictKind::Allow => "allow",
        VerdictKind::Ask | VerdictKind::AskAnyway | VerdictKind::AlwaysAsk => "ask",
        VerdictKind::Block | VerdictKind::Fail => "block",
    };
    text.push_str(&format!("{} verdict  the toolset says {own}\n", marked(JudgingStep::Verdict)));
    for spoken in rules.iter().filter(|spoken| spoken.whose != DecidedBy::Rule) {
        let place = spoken.place.as_deref().map(|place| format!(" ({})", visible(place))).unwrap_or_default();
        text.push_str(&format!("           {} says {}{place}\n", whose(spoken.whose), spoken.says.word()));
    }
    let lasting = rules.iter().find(|spoken| spoken.whose == DecidedBy::Rule);
    let allowed = lasting.and_then(|spoken| spoken.place.as_deref());
    let answer = match (step, by) {
        (JudgingStep::Answer, DecidedBy::Rule) => {
            format!("your rule allows it ({})", visible(rule.as_deref().unwrap_or_default()))
        }
        (JudgingStep::Answer, DecidedBy::ApproveAll) => "--approve-all is on".to_owned(),
        (JudgingStep::Answer, DecidedBy::RejectAll) => "every question is answered with no".to_owned(),
        (JudgingStep::Answer, _) => match allowed {
            Some(place) => format!("a person; your rule ({}) does not count here", visible(place)),
            None => "a person, or an answer for the session".to_owned(),
        },
        (JudgingStep::Floor | JudgingStep::Verdict, _) => "nobody is asked".to_owned(),
    };
    text.push_str(&format!("{} answer   {answer}\n", marked(JudgingStep::Answer)));
    text.push_str(&format!("{}\n", outcome(*outlook, *by)));
    text
}

fn outcome(outlook: CallOutlook, by: DecidedBy) -> String {
    let decided = format!("decided by {}", whose(by));
    match outlook {
        CallOutlook::Run => format!("It runs: {decided}."),
        CallOutlook::Ask => "It is asked.".to_owned(),
        CallOutlook::Block => format!("It does not run: {decided}."),
        CallOutlook::Fail => "It fails without being asked about.".to_owned(),
    }
}

fn whose(by: DecidedBy) -> &'static str {
    match by {
        DecidedBy::Toolset => "the toolset",
        DecidedBy::Variant => "the toolset's definition",
        DecidedBy::Worker => "the agent's rule",
        DecidedBy::Manifest => "the project's rule",
        DecidedBy::Yours | DecidedBy::Rule => "your rule",
        DecidedBy::Organisation => "the organisation's rule",
        DecidedBy::RejectAll => "--reject-all",
        DecidedBy::Known => "an answer that is known",
        DecidedBy::Session => "an answer for the session",
        DecidedBy::ApproveAll => "--approve-all",
        DecidedBy::Person => "a person",
        DecidedBy::Nobody => "nobody",
    }
}
