//! What a toolset thinks of a call, what the rules say to it, and what is written down of both: enough to judge the call
//! again by other rules, without looking at a world that has changed since. Pure.

use serde::{Deserialize, Serialize};

use super::{Rule, Verdict};
use crate::message::RawJson;
use crate::redact::Redactor;

/// A toolset's opinion of one call, and what the call is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What the toolset itself thinks, before rules, policy and people.
    pub verdict: Verdict,
    /// What the call is about, beyond its arguments. Only looked at where the run is recorded
    /// ([`CallContext::is_recorded`](crate::CallContext::is_recorded)).
    pub about: Option<CallSubject>,
    /// What definitions that choose some tools of the toolset say about this one.
    pub(crate) variant: Option<Rule>,
    /// What a rule of the agent says about the tool.
    pub(crate) worker: Option<Rule>,
}

impl From<Verdict> for Judgement {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, about: None, variant: None, worker: None }
    }
}

impl Judgement {
    /// The same opinion of a call that is about this.
    #[must_use]
    pub fn about(self, about: Option<CallSubject>) -> Self {
        Self { about, ..self }
    }

    /// The same opinion with the rule of a definition around it.
    #[must_use]
    pub(crate) fn under(self, rule: Option<Rule>) -> Self {
        Self { variant: together(self.variant, rule), ..self }
    }

    /// The same opinion with a rule of the agent.
    #[must_use]
    pub(crate) fn ruled(self, rule: Option<Rule>) -> Self {
        Self { worker: together(self.worker, rule), ..self }
    }
}

/// What a call is about, as it was found when it was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallSubject {
    /// A file, links followed.
    #[serde(rename = "file")]
    File {
        /// As a model would name it: beneath its root.
        name: String,
        /// Where on the disk the root is.
        root: String,
    },
    /// The words of a command, as it would be started.
    #[serde(rename = "words")]
    Words(Vec<String>),
}

/// What two rules say together: the outer one counts, but no rule lifts a block.
pub(crate) fn together(inner: Option<Rule>, outer: Option<Rule>) -> Option<Rule> {
    match (inner, outer) {
        (None, rule) | (rule, None) => rule,
        (Some(Rule::Block), _) | (_, Some(Rule::Block)) => Some(Rule::Block),
        (Some(Rule::Allow | Rule::Ask), outer) => outer,
    }
}

/// The verdict on a call when all rules have spoken.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruling {
    pub(crate) verdict: Verdict,
    /// What will be written down of it, if anything is.
    pub(crate) record: Option<Box<JudgementRecord>>,
}

/// A verdict without rules, of which nothing is written down.
impl From<Verdict> for Ruling {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, record: None }
    }
}

impl Ruling {
    /// The verdict under all rules.
    pub fn of(judgement: Judgement) -> Self {
        judgement.verdict.under(together(judgement.variant, judgement.worker)).into()
    }

    /// The same, with what will be written down of it.
    pub fn recorded(judgement: Judgement, redactor: &Redactor) -> Self {
        let Judgement { verdict: own, about, variant, worker } = judgement;
        let why = own.question().map(|question| redactor.redacted(question.reason.clone()));
        let (kind, verdict) = (own.kind(), own.under(together(variant, worker)));
        let by = match verdict {
            Verdict::Allow | Verdict::Block(_) | Verdict::Fail(_) => Some(DecidedBy::rule(kind, variant, worker)),
            Verdict::Ask(_) | Verdict::AskAnyway(_) | Verdict::AlwaysAsk(_) => None,
        };
        let record = JudgementRecord { verdict: kind, about, variant, worker, by, why, call: None, edited: None };
        Self { verdict, record: Some(Box::new(record)) }
    }
}

/// The sort of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// It may run.
    Allow,
    /// A person is asked, unless a rule allows it.
    Ask,
    /// Asked whatever a rule allows.
    AskAnyway,
    /// Asked each time.
    AlwaysAsk,
    /// It does not run, whatever a rule says.
    Block,
    /// It could not be judged, and so cannot run.
    Fail,
}

impl Verdict {
    /// Of which sort it is.
    pub(crate) fn kind(&self) -> VerdictKind {
        match self {
            Self::Allow => VerdictKind::Allow,
            Self::Ask(_) => VerdictKind::Ask,
            Self::AskAnyway(_) => VerdictKind::AskAnyway,
            Self::AlwaysAsk(_) => VerdictKind::AlwaysAsk,
            Self::Block(_) => VerdictKind::Block,
            Self::Fail(_) => VerdictKind::Fail,
        }
    }
}

/// Who had the last word about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// The toolset: no rule was about the call, or none could change it.
    Toolset,
    /// A definition that chooses some tools of a toolset.
    Variant,
    /// A rule of the agent.
    Worker,
    /// Every question was answered with no.
    RejectAll,
    /// A person's answer that was known before the question was asked.
    Known,
    /// An earlier answer for the rest of the session.
    Session,
    /// Every question was answered with yes.
    ApproveAll,
    /// A person who was asked.
    Person,
    /// It had to be asked, and nobody was there.
    Nobody,
}

impl DecidedBy {
    /// Who decided where nobody had to be asked.
    fn rule(own: VerdictKind, variant: Option<Rule>, worker: Option<Rule>) -> Self {
        let counts = |rule: Option<Rule>| match (own, rule) {
            (_, None) | (VerdictKind::Block, _) => false,
            (VerdictKind::AskAnyway | VerdictKind::AlwaysAsk | VerdictKind::Fail, rule) => rule == Some(Rule::Block),
            (VerdictKind::Allow | VerdictKind::Ask, Some(_)) => true,
        };
        match (counts(variant), counts(worker)) {
            (true, _) if variant == Some(Rule::Block) => Self::Variant,
            (_, true) => Self::Worker,
            (true, false) => Self::Variant,
            (false, false) => Self::Toolset,
        }
    }
}

/// What is written down of how a call was judged. It is for people and for those who try other rules on it: nothing that
/// is decided depends on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgementRecord {
    /// The toolset's own verdict.
    pub verdict: VerdictKind,
    /// What the call is about, beyond its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<CallSubject>,
    /// What definitions around the toolset say about the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<Rule>,
    /// What the agent's own rule says about the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Rule>,
    /// Who decided; nobody yet if it is a question's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DecidedBy>,
    /// Why the toolset would have asked, where nothing else in the record says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Who called what, where nothing else in the record says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<UnshownCall>,
    /// The same of the arguments to which a person changed those of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<Box<Self>>,
}

/// As much of a call as its record does not show otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnshownCall {
    /// The agents and the code from the entry down; empty if the entry itself called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// The tool, if code called it: what a model called stands in its reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What code called it with, unless that is too long to be written down again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<RawJson>,
}

impl UnshownCall {
    /// Longer arguments of code are not written down for this.
    const LONGEST_ARGUMENTS: usize = 64 * 1024;

    /// Of a call of a model. What the entry calls needs no words.
    pub(crate) fn of_model(path: &[String]) -> Option<Self> {
        (path.len() > 1).then(|| Self { path: path.to_vec(), ..Self::default() })
    }

    /// Of a call of code.
    pub(crate) fn of_code(path: &[String], tool: &str, arguments: &RawJson) -> Self {
        let arguments = Some(arguments).filter(|arguments| arguments.get().len() <= Self::LONGEST_ARGUMENTS);
        let path = if path.len() > 1 { path.to_vec() } else { Vec::new() };
        Self { path, tool: Some(tool.to_owned()), arguments: arguments.cloned() }
    }
}

impl JudgementRecord {
    /// The question had this answer. What it says of its reason stands where it was asked or told.
    #[must_use]
    pub(crate) fn answered(self, by: DecidedBy) -> Self {
        let why = self.why.filter(|_| by == DecidedBy::RejectAll);
        Self { by: Some(by), why, ..self }
    }

    /// The same of a question that is open: it says itself why it is asked.
    #[must_use]
    pub(crate) fn of_question(&self) -> Self {
        Self { why: None, ..self.clone() }
    }

    /// The same with how the changed arguments were judged.
    #[must_use]
    pub(crate) fn edited(self, edited: Option<Box<Self>>) -> Self {
        let edited = edited.map(|edited| Box::new(Self { why: None, by: None, ..*edited }));
        Self { edited, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Question;
    use super::*;

    const RULES: [Option<Rule>; 4] = [None, Some(Rule::Allow), Some(Rule::Ask), Some(Rule::Block)];

    fn verdicts() -> [Verdict; 5] {
        let question = || Question::because("why");
        [
            Verdict::Allow,
            Verdict::Ask(question()),
            Verdict::AskAnyway(question()),
            Verdict::AlwaysAsk(question()),
            Verdict::Block("no".to_owned()),
        ]
    }

    /// Whoever is said to have decided is the one without whom it would have come out otherwise.
    #[test]
    fn who_decided_is_who_made_the_difference() {
        for own in verdicts() {
            for variant in RULES {
                for worker in RULES {
                    let judgement = Judgement::from(own.clone()).under(variant).ruled(worker);
                    let ruling = Ruling::recorded(judgement.clone(), &Redactor::default());
                    assert_eq!(Ruling::of(judgement).verdict, ruling.verdict);
                    let one_by_one = own.clone().under(variant).under(worker);
                    assert_eq!(ruling.verdict.kind(), one_by_one.kind(), "{own:?} {variant:?} {worker:?}");
                    let without = |variant, worker| own.clone().under(together(variant, worker)).kind();
                    match ruling.record.unwrap().by {
                        None => assert!(ruling.verdict.question().is_some()),
                        Some(DecidedBy::Toolset) => assert_eq!(ruling.verdict.kind(), own.kind()),
                        Some(DecidedBy::Worker) => assert_eq!(without(None, worker), ruling.verdict.kind()),
                        Some(DecidedBy::Variant) => assert_eq!(without(variant, None), ruling.verdict.kind()),
                        Some(by) => panic!("{by:?} was not asked"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_is_short() {
        let about = Some(CallSubject::File { name: "a.md".into(), root: "/p".into() });
        let judgement = Judgement::from(verdicts()[1].clone()).about(about).under(Some(Rule::Ask));
        let ruling = Ruling::recorded(judgement.ruled(Some(Rule::Allow)), &Redactor::default());
        let json = RawJson::of(&ruling.record);
        assert_eq!(
            json.get(),
            r#"{"verdict":"ask","about":{"file":{"name":"a.md","root":"/p"}},"variant":"ask","worker":"allow","by":"worker","why":"why"}"#
        );
        assert_eq!(json.to::<Option<Box<JudgementRecord>>>().unwrap(), ruling.record);
        let words = Judgement::from(Verdict::Allow).about(Some(CallSubject::Words(vec!["ls".into(), "-l".into()])));
        let json = RawJson::of(&Ruling::recorded(words, &Redactor::default()).record);
        assert_eq!(json.get(), r#"{"verdict":"allow","about":{"words":["ls","-l"]},"by":"toolset"}"#);
    }
}
