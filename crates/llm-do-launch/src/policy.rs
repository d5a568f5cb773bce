//! Lasting rules tried on history: how the recorded calls of kept runs come out under other rules, how often each rule
//! decides, and which rules would save questions. Folds over records; what they come to is decided where every call is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::approval::{AskedQuestion, DecidedBy, JudgementRecord, PendingQuestion, VerdictKind, key_of_call};
use llm_do::policy::{
    CallOutlook, Explanation, LastingRule, LastingRules, RuleDraft, RuleFile, RuleSource, RuledCall, read_rules,
};
use llm_do::records::{CallFate, JournalContents, JudgedCall, StepKind, judged_calls};
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;

use crate::error::LaunchError;
use crate::kept_runs::project_of;

/// A call of a kept run.
#[derive(Clone, Debug)]
pub struct HistoricCall {
    pub run: RunId,
    /// The project's directory.
    pub project: PathBuf,
    pub call: JudgedCall,
}

impl HistoricCall {
    /// As rules look at it.
    pub fn ruled(&self) -> RuledCall<'_> {
        let JudgedCall { path, tool, arguments, judgement, .. } = &self.call;
        RuledCall { tool, path, arguments: arguments.as_ref(), subject: judgement.about.as_ref() }
    }

    /// What a person said about it, if one was asked: whether they wanted it as it was.
    pub fn was_wanted(&self) -> Option<bool> {
        let is_asked = matches!(self.call.judgement.by, Some(DecidedBy::Person | DecidedBy::Known));
        is_asked.then_some(self.call.fate != CallFate::Refused && self.call.judgement.edited.is_none())
    }

    /// The agent; where code called, with the code.
    fn caller(&self) -> String {
        let by_code = self.call.key.rsplit('/').next().is_some_and(|part| part.starts_with('x'));
        let path = &self.call.path;
        let from = path.len().saturating_sub(if by_code { 2 } else { 1 });
        path[from..].join(" > ")
    }
}

/// What is known of the calls of kept runs.
#[derive(Debug, Default)]
pub struct CallHistory {
    pub calls: Vec<HistoricCall>,
    /// Runs whose records cannot be read.
    pub unread: Vec<RunId>,
}

impl CallHistory {
    /// Of all runs that begun at this time, in milliseconds since 1970, or later.
    pub fn read(store: &RunStore, since: u64) -> Result<Self, LaunchError> {
        let unlisted = |error| LaunchError::failed(format!("the runs cannot be listed: {error}"));
        let listed = store.listed(&project_of).map_err(unlisted)?;
        let mut history = Self::default();
        for line in listed.newest().filter(|line| line.at >= since) {
            match store.read_journal(&line.id) {
                Ok(contents) => {
                    let project = PathBuf::from(line.project.as_ref());
                    let call = |call| HistoricCall { run: line.id, project: project.clone(), call };
                    history.calls.extend(judged_calls(&contents).map(call));
                }
                Err(_) => history.unread.push(line.id),
            }
        }
        Ok(history)
    }
}

/// A question that a run asked, by the beginning of its digest, and how its call was judged then; several are ambiguous.
pub fn asked_questions(contents: &JournalContents, run: &str, typed: &str) -> Vec<(PendingQuestion, JudgementRecord)> {
    let asked = contents.records().filter(|(_, record)| record.kind == StepKind::Ask);
    let found = asked.filter_map(|(key, record)| {
        let question: AskedQuestion = record.shown.as_ref()?.to().ok()?;
        let judged: JudgementRecord = record.judged.as_ref()?.to().ok()?;
        Some((question.pending(run, key_of_call(key)), judged))
    });
    found.filter(|(question, _)| question.id.starts_with(typed)).collect()
}

/// Rules for the calls of several projects.
struct RulesByProject<'a> {
    rules: &'a [Arc<LastingRule>],
    today: &'a str,
    of: BTreeMap<PathBuf, LastingRules>,
}

impl<'a> RulesByProject<'a> {
    fn new(rules: &'a [Arc<LastingRule>], today: &'a str) -> Self {
        Self { rules, today, of: BTreeMap::new() }
    }

    fn explain(&mut self, historic: &HistoricCall) -> Explanation {
        let in_force = |project: &Path| LastingRules::in_force(self.rules.iter().cloned(), project, Some(self.today));
        let rules = match self.of.get(&historic.project) {
            Some(rules) => rules,
            None => self.of.entry(historic.project.clone()).or_insert(in_force(&historic.project)),
        };
        Explanation::again(&historic.call.judgement, historic.ruled(), rules)
    }
}

/// How recorded calls come out under these rules.
#[derive(Debug, Default)]
pub struct Replay<'a> {
    pub run: usize,
    pub asked: usize,
    pub blocked: usize,
    /// Calls that came out otherwise than they did: what became of them, and what would now.
    pub changed: Vec<(&'a HistoricCall, Explanation)>,
    /// Calls that a person refused, or changed, and that would now run unasked.
    pub refused_and_run: Vec<(&'a HistoricCall, Explanation)>,
}

/// Judges recorded calls again.
pub fn replay<'a>(history: &'a CallHistory, rules: &[Arc<LastingRule>], today: &str) -> Replay<'a> {
    let mut rules = RulesByProject::new(rules, today);
    let mut replay = Replay::default();
    for historic in &history.calls {
        let explanation = rules.explain(historic);
        let before = match historic.call.judgement.by {
            None
            | Some(
                DecidedBy::Person
                | DecidedBy::Known
                | DecidedBy::Nobody
                | DecidedBy::Session
                | DecidedBy::ApproveAll
                | DecidedBy::RejectAll,
            ) => CallOutlook::Ask,
            Some(_) if historic.call.fate == CallFate::Refused => CallOutlook::Block,
            Some(_) => CallOutlook::Run,
        };
        match explanation.outlook {
            CallOutlook::Run => replay.run += 1,
            CallOutlook::Ask => replay.asked += 1,
            CallOutlook::Block | CallOutlook::Fail => replay.blocked += 1,
        }
        if explanation.outlook == CallOutlook::Run && historic.was_wanted() == Some(false) {
            replay.refused_and_run.push((historic, explanation));
        } else if explanation.outlook != before && explanation.outlook != CallOutlook::Fail {
            replay.changed.push((historic, explanation));
        }
    }
    replay
}

/// How often each rule decides the recorded calls, by its place, and which rules speak of any of them.
#[derive(Debug, Default)]
pub struct RuleUse {
    pub decided: BTreeMap<String, usize>,
    pub spoken: BTreeSet<String>,
}

/// Counts what rules do.
pub fn rule_use(history: &CallHistory, rules: &[Arc<LastingRule>], today: &str) -> RuleUse {
    let mut rules = RulesByProject::new(rules, today);
    let mut found = RuleUse::default();
    for historic in &history.calls {
        let explanation = rules.explain(historic);
        found.spoken.extend(explanation.rules.into_iter().filter_map(|rule| rule.place));
        if let Some(place) = explanation.rule {
            *found.decided.entry(place).or_default() += 1;
        }
    }
    found
}

/// A rule that would have saved questions.
#[derive(Debug)]
pub struct Suggestion {
    pub draft: RuleDraft,
    /// How many calls a person approved that it covers, and in how many runs.
    pub approved: usize,
    pub runs: usize,
    /// What else it would have covered that was not asked about, by what was called.
    pub also: Vec<String>,
}

/// A rule is worth its place if it saves so many questions.
const LEAST_APPROVALS: usize = 3;

/// The smallest rules that cover what was always approved and never refused.
pub fn suggest(
    history: &CallHistory,
    rules: &[Arc<LastingRule>],
    today: &str,
    until: &str,
) -> Result<Vec<Suggestion>, LaunchError> {
    let mut in_force = RulesByProject::new(rules, today);
    let mut groups: BTreeMap<(&Path, &str, String), Vec<&HistoricCall>> = BTreeMap::new();
    for historic in &history.calls {
        let would_ask = in_force.explain(historic).outlook == CallOutlook::Ask;
        let can_be_allowed =
            !matches!(historic.call.judgement.verdict, VerdictKind::AskAnyway | VerdictKind::AlwaysAsk);
        if would_ask && can_be_allowed && historic.was_wanted() == Some(true) {
            let group = (historic.project.as_path(), historic.call.tool.as_str(), historic.caller());
            groups.entry(group).or_default().push(historic);
        }
    }
    let mut suggestions = Vec::new();
    for ((project, _, caller), approved) in groups {
        suggest_for(history, project, &caller, approved, until, &mut suggestions)?;
    }
    Ok(suggestions)
}

/// For the approved calls of one tool by one caller: first the exact calls that came often, then wider rules for the rest.
fn suggest_for(
    history: &CallHistory,
    project: &Path,
    caller: &str,
    approved: Vec<&HistoricCall>,
    until: &str,
    suggestions: &mut Vec<Suggestion>,
) -> Result<(), LaunchError> {
    let ladder = |historic: &HistoricCall| -> Vec<RuleDraft> {
        let exact = RuleDraft::exact(historic.ruled(), caller, project).map(|draft| draft.until(until));
        exact.into_iter().flat_map(|exact| [vec![exact.clone()], exact.widened()].concat()).collect()
    };
    let mut uncovered: Vec<(&HistoricCall, Vec<RuleDraft>)> =
        approved.into_iter().map(|historic| (historic, ladder(historic))).collect();
    let highest = uncovered.iter().map(|(_, ladder)| ladder.len()).max().unwrap_or_default();
    for step in 0..highest {
        let drafts: BTreeMap<String, RuleDraft> = uncovered
            .iter()
            .filter_map(|(_, ladder)| ladder.get(step))
            .map(|draft| (draft.shown(), draft.clone()))
            .collect();
        for draft in drafts.into_values() {
            let rule = DraftRule::of(&draft, project)?;
            let (covered, rest): (Vec<_>, Vec<_>) =
                uncovered.iter().cloned().partition(|(historic, _)| rule.covers(historic));
            let is_refused = |historic: &HistoricCall| historic.was_wanted() == Some(false) && rule.covers(historic);
            if covered.len() < LEAST_APPROVALS || history.calls.iter().any(is_refused) {
                continue;
            }
            let runs: BTreeSet<RunId> = covered.iter().map(|(historic, _)| historic.run).collect();
            let is_other = |historic: &&HistoricCall| historic.was_wanted().is_none() && rule.covers(historic);
            let also: BTreeSet<String> = history.calls.iter().filter(is_other).map(about).collect();
            let (approved, runs) = (covered.len(), runs.len());
            suggestions.push(Suggestion { draft, approved, runs, also: also.into_iter().collect() });
            uncovered = rest;
        }
    }
    Ok(())
}

/// A call in a few words.
pub fn about(historic: &HistoricCall) -> String {
    use llm_do::approval::CallSubject;
    let JudgedCall { tool, arguments, judgement, .. } = &historic.call;
    match (&judgement.about, arguments) {
        (Some(CallSubject::File { name, .. }), _) => format!("{tool} {name}"),
        (Some(CallSubject::Words(words)), _) => format!("{tool} {}", words.join(" ")),
        (None, Some(arguments)) => format!("{tool} {}", arguments.get()),
        (None, None) => tool.clone(),
    }
}

/// A draft as the rule that it would be.
struct DraftRule(LastingRules);

impl DraftRule {
    fn of(draft: &RuleDraft, project: &Path) -> Result<Self, LaunchError> {
        let (path, label) = (PathBuf::from("suggested"), "suggested".to_owned());
        let file = RuleFile { path, label, text: draft.toml(), source: RuleSource::Yours };
        let rules = read_rules(&[file]).map_err(LaunchError::Project)?;
        // What is tried on history is tried as if it had been in force then.
        Ok(Self(LastingRules::in_force(rules, project, Some("0000-00-00"))))
    }

    /// Whether it would have answered the question about the call.
    fn covers(&self, historic: &HistoricCall) -> bool {
        let explanation = Explanation::again(&historic.call.judgement, historic.ruled(), &self.0);
        historic.project == self.project() && explanation.rules.iter().any(|rule| rule.whose == DecidedBy::Rule)
    }

    fn project(&self) -> &Path {
        self.0.project()
    }
}
