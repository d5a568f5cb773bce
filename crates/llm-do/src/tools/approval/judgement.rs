//! What a toolset thinks of a call, what the rules say to it, and what is written down of both: enough to judge the call
//! again by other rules, without looking at a world that has changed since. Pure.

use serde::{Deserialize, Serialize};

use super::decide::{self, DecidedBy};
use super::{Memory, Question, Rule, RulePlaces, Verdict, VerdictKind, Voices, strictest};
use crate::escape::visible;
use crate::message::RawJson;
use crate::redact::Redactor;

/// A toolset's opinion of one call, and what the call is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What the toolset itself thinks, before rules, policy and people.
    pub verdict: Verdict,
    /// What the call is about, beyond its arguments. Only looked at where somebody asks for it
    /// (`CallContext::wants_subject`).
    pub about: Option<CallSubject>,
    /// What rules say about it.
    pub(crate) voices: Voices,
}

impl From<Verdict> for Judgement {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, about: None, voices: Voices::default() }
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
    pub(crate) fn under(mut self, rule: Option<Rule>) -> Self {
        self.voices.variant = strictest([self.voices.variant, rule]);
        self
    }

    /// The same opinion with a rule of the agent.
    #[must_use]
    pub(crate) fn ruled(mut self, rule: Option<Rule>) -> Self {
        self.voices.worker = strictest([self.voices.worker, rule]);
        self
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

/// The verdict on a call when all rules have spoken.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruling {
    pub(crate) verdict: Verdict,
    /// The toolset's own.
    pub(in crate::tools) own: VerdictKind,
    pub(in crate::tools) voices: Voices,
    /// What the call is about, if that was looked at.
    pub(super) about: Option<CallSubject>,
    /// What will be written down of it, if anything is.
    pub(crate) record: Option<Box<JudgementRecord>>,
}

/// A verdict without rules, of which nothing is written down.
impl From<Verdict> for Ruling {
    fn from(verdict: Verdict) -> Self {
        Self::of(verdict.into())
    }
}

impl Ruling {
    /// A question that only a person can answer, of which nothing else is written down.
    pub(crate) fn for_a_person(question: Question) -> Self {
        let voices = Voices { person_only: true, ..Voices::default() };
        Self::of(Judgement { voices, ..Verdict::AlwaysAsk(question).into() })
    }

    /// The verdict under all rules.
    pub fn of(judgement: Judgement) -> Self {
        let Judgement { verdict, about, voices } = judgement;
        let own = verdict.kind();
        let verdict = verdict.ruled(&decide::verdict(own, &voices));
        Self { verdict, own, voices, about, record: None }
    }

    /// The same, with the words of the rule that asks or blocks, if one does: the agent's rules stand in these places.
    #[must_use]
    pub(crate) fn naming_rule(self, tool: &str, places: &RulePlaces) -> Self {
        match self.verdict.kind() {
            VerdictKind::Ask => self.naming_asking_rule(tool, places.of(tool)),
            VerdictKind::Block => self.naming_blocking_rule(tool, places.of(tool)),
            VerdictKind::Allow | VerdictKind::AskAnyway | VerdictKind::AlwaysAsk | VerdictKind::Fail => self,
        }
    }

    /// Rules of other places name theirs already.
    fn naming_blocking_rule(self, tool: &str, file: Option<&str>) -> Self {
        let place = match decide::verdict(self.own, &self.voices).by {
            DecidedBy::Worker => file.map_or("the agent".into(), visible),
            DecidedBy::Variant => "the definition of its toolset".into(),
            _ => return self,
        };
        let verdict = Verdict::Block(format!("blocked by `{}: block` in {place}", visible(tool)));
        Self { verdict, ..self }
    }

    fn naming_asking_rule(self, tool: &str, file: Option<&str>) -> Self {
        let ruled = decide::verdict(self.own, &self.voices);
        let place = || ruled.place.map(|place| visible(place)).unwrap_or_default();
        let words = match ruled.by {
            DecidedBy::Worker => {
                let file = file.map_or("the agent".into(), visible);
                Some(format!("{file} says `{}: ask`", visible(tool)))
            }
            DecidedBy::Variant => Some(format!("the definition of its toolset says `{}: ask`", visible(tool))),
            DecidedBy::Manifest => Some(format!("{} asks", place())),
            DecidedBy::Yours => Some(format!("your own {} asks", place())),
            DecidedBy::Organisation => Some(format!("the organisation's {} asks", place())),
            _ => None,
        };
        let is_whole_reason = self.own == VerdictKind::Allow;
        Self { verdict: self.verdict.asked_by(words, is_whole_reason), ..self }
    }

    /// The same, with what will be written down of it.
    pub fn recorded(judgement: Judgement, redactor: &Redactor) -> Self {
        let about = judgement.about.clone();
        let why = judgement.verdict.question().map(|question| redactor.redacted(question.reason.clone()));
        let ruling = Self::of(judgement);
        let ruled = decide::verdict(ruling.own, &ruling.voices);
        let is_asked = ruling.verdict.question().is_some();
        let (by, place) = if is_asked { (None, None) } else { (Some(ruled.by), ruled.place) };
        let said = |voice: &Option<super::PlacedRule>| voice.as_ref().map(|voice| voice.rule);
        let Voices { variant, worker, manifest, yours, organisation, .. } = &ruling.voices;
        let record = JudgementRecord {
            verdict: ruling.own,
            about,
            variant: *variant,
            worker: *worker,
            manifest: said(manifest),
            yours: said(yours),
            organisation: said(organisation),
            by,
            rule: place.map(|place| place.as_ref().to_owned()),
            why,
            call: None,
            edited: None,
        };
        Self { record: Some(Box::new(record)), ..ruling }
    }

    /// What of an answer may be remembered for the session.
    pub(super) fn memory(&self) -> Memory {
        if self.voices.needs_person() { Memory::Nothing } else { self.verdict.memory() }
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
    /// What the manifest's rules say about the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Rule>,
    /// What the user's own rules that ask or block said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yours: Option<Rule>,
    /// What the organisation's rules said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organisation: Option<Rule>,
    /// Who decided; nobody yet if it is a question's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DecidedBy>,
    /// Where the lasting rule stands that decided, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
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
    pub(crate) fn answered(self, by: DecidedBy, rule: Option<String>) -> Self {
        let why = self.why.filter(|_| by == DecidedBy::RejectAll);
        Self { by: Some(by), rule, why, ..self }
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

    #[test]
    fn a_record_is_read_as_it_was_written_and_is_short() {
        let about = Some(CallSubject::File { name: "a.md".into(), root: "/p".into() });
        let judgement = Judgement::from(verdicts()[1].clone()).about(about).under(Some(Rule::Allow));
        let ruling = Ruling::recorded(judgement.ruled(Some(Rule::Allow)), &Redactor::default());
        let json = RawJson::of(&ruling.record);
        assert_eq!(
            json.get(),
            r#"{"verdict":"ask","about":{"file":{"name":"a.md","root":"/p"}},"variant":"allow","worker":"allow","by":"worker","why":"why"}"#
        );
        assert_eq!(json.to::<Option<Box<JudgementRecord>>>().unwrap(), ruling.record);
        let words = Judgement::from(Verdict::Allow).about(Some(CallSubject::Words(vec!["ls".into(), "-l".into()])));
        let json = RawJson::of(&Ruling::recorded(words, &Redactor::default()).record);
        assert_eq!(json.get(), r#"{"verdict":"allow","about":{"words":["ls","-l"]},"by":"toolset"}"#);
    }
}
