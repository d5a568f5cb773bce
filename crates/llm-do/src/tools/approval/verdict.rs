//! What a toolset thinks of a call, and what a person would be asked. Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::decide::{self, RuledVerdict};
use super::{Form, Rule, Voices, digest};
use crate::escape::visible;

/// What is known of a tool's verdict before it is called.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredVerdict {
    /// It runs without a question.
    Allow,
    /// A person is asked.
    Ask,
    /// Asked each time: no rule and no earlier answer allows it.
    AlwaysAsk,
    /// It never runs.
    Block,
    /// Depends on the command: the first pattern that matches decides.
    ByCommand(Cow<'static, [CommandVerdict]>),
    /// Only its code knows.
    Unknown,
}

/// What becomes of commands that begin with a pattern; `*` stands for those that no other pattern is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommandVerdict {
    /// How the commands begin.
    pub pattern: Cow<'static, str>,
    /// What becomes of them.
    pub verdict: Rule,
}

impl DeclaredVerdict {
    /// A rule may loosen an `Ask` or tighten an `Allow`; what always asks or is blocked stays.
    #[must_use]
    pub(crate) fn under(self, rule: Option<Rule>) -> Self {
        match (self, rule) {
            (verdict, None) => verdict,
            (Self::Block, _) | (_, Some(Rule::Block)) => Self::Block,
            (Self::AlwaysAsk, Some(Rule::Allow | Rule::Ask)) => Self::AlwaysAsk,
            (Self::ByCommand(commands), Some(rule)) => {
                let keeps = |command: &CommandVerdict| [Rule::Block, rule].contains(&command.verdict);
                if commands.iter().all(keeps) {
                    return Self::ByCommand(commands);
                }
                let tightened = commands.iter().map(|command| CommandVerdict {
                    verdict: if command.verdict == Rule::Block { Rule::Block } else { rule },
                    pattern: command.pattern.clone(),
                });
                Self::ByCommand(tightened.collect())
            }
            (Self::Allow | Self::Ask | Self::Unknown, Some(Rule::Allow)) => Self::Allow,
            (Self::Allow | Self::Ask | Self::Unknown, Some(Rule::Ask)) => Self::Ask,
        }
    }

    /// Whether nothing runs without a question.
    #[cfg(feature = "front-end")]
    pub(crate) fn always_asks(&self) -> bool {
        match self {
            Self::Allow | Self::Block | Self::Unknown => false,
            Self::Ask | Self::AlwaysAsk => true,
            Self::ByCommand(commands) => !commands.iter().any(|command| command.verdict == Rule::Allow),
        }
    }

    /// Whether a person may be asked about a call.
    #[cfg(feature = "front-end")]
    pub(crate) fn may_ask(&self) -> bool {
        match self {
            Self::Allow | Self::Block => false,
            Self::Ask | Self::AlwaysAsk | Self::Unknown => true,
            Self::ByCommand(commands) => commands.iter().any(|command| command.verdict == Rule::Ask),
        }
    }

    /// Whether a call can happen at all.
    #[cfg(feature = "front-end")]
    pub(crate) fn can_run(&self) -> bool {
        match self {
            Self::Allow | Self::Ask | Self::AlwaysAsk | Self::Unknown => true,
            Self::Block => false,
            Self::ByCommand(commands) => commands.iter().any(|command| command.verdict != Rule::Block),
        }
    }
}

/// A toolset's opinion of one call, before rules, policy and people.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may run.
    Allow,
    /// A person is asked, unless a rule allows it.
    Ask(Question),
    /// Asked whatever a rule allows; an answer may cover this exact call for the session.
    AskAnyway(Question),
    /// Asked each time: no rule and no earlier answer allows it.
    AlwaysAsk(Question),
    /// It does not run, for this reason, whatever a rule says.
    Block(String),
    /// It could not be judged and cannot run, for this reason: who asked for it is told of a failure, not of a refusal, and
    /// no approver is asked.
    Fail(String),
}

/// What a person is told besides the call itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// Why it is asked.
    pub reason: String,
    /// What would change, line by line.
    pub preview: Option<String>,
    /// Arguments that the reason and the preview hold in full: whoever shows the question need not show them again.
    pub shows: Vec<String>,
    /// The argument whose text a person edits who wants the call otherwise; without it they edit all arguments.
    pub edits: Option<String>,
    /// Which rule asks, if one does.
    pub rule: Option<String>,
    /// A digest of what the answer is about, if it can change until then: the content that a write replaces.
    pub bound_to: Option<String>,
    /// What its author says about the call, such as the description of an agent: shown as theirs, never as ours.
    pub foreign: Option<String>,
    /// What an answer for the session covers, if that is not these arguments and this tool.
    pub covers: Option<Coverage>,
    /// What a person fills in, if yes or no is no answer: then [`Answer::Values`](super::Answer::Values) is one, and a refusal
    /// declines.
    pub form: Option<Form>,
}

/// What an answer for the session covers, in words that are also what is remembered. They hold words of the model: a
/// front end that shows them escapes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// By an answer for this exact call.
    pub call: String,
    /// By an answer for the tool.
    pub tool: String,
}

impl Question {
    /// A question with this reason, which the approver reads.
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::default() }
    }

    /// The same question with words that are not ours, which are shown as such; blank ones are left out.
    #[must_use]
    pub(crate) fn quoting(self, foreign: impl Into<String>) -> Self {
        Self { foreign: Some(foreign.into()).filter(|text| !text.trim().is_empty()), ..self }
    }
}

impl Verdict {
    /// The verdict under one rule of the agent.
    #[must_use]
    pub fn under(self, rule: Option<Rule>) -> Self {
        let voices = Voices { worker: rule, ..Voices::default() };
        let ruled = decide::verdict(self.kind(), &voices);
        self.ruled(&ruled)
    }

    /// What the rules made of it, with words for the person or the model who reads it.
    #[must_use]
    pub(super) fn ruled(self, ruled: &RuledVerdict<'_>) -> Self {
        if ruled.kind == self.kind() {
            return self;
        }
        let whose = ruled.by.whose_rule();
        let whose = ruled.place.map_or_else(|| whose.to_owned(), |place| format!("{whose} ({})", visible(place)));
        match ruled.kind {
            VerdictKind::Allow => Self::Allow,
            VerdictKind::Ask => Self::Ask(Question::because(format!("{whose} asks"))),
            VerdictKind::Block => Self::Block(format!("blocked by {whose}")),
            VerdictKind::AskAnyway | VerdictKind::AlwaysAsk | VerdictKind::Fail => self,
        }
    }

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

    /// What an approval of this exact call is bound to, where no rule can allow it.
    pub(super) fn exception(&self) -> Option<String> {
        match self {
            Self::AskAnyway(question) => Some(question.bound_to.clone().unwrap_or_default()),
            Self::Allow | Self::Ask(_) | Self::AlwaysAsk(_) | Self::Block(_) | Self::Fail(_) => None,
        }
    }

    /// What a person would be asked.
    pub(super) fn question(&self) -> Option<&Question> {
        match self {
            Self::Ask(question) | Self::AskAnyway(question) | Self::AlwaysAsk(question) => Some(question),
            Self::Allow | Self::Block(_) | Self::Fail(_) => None,
        }
    }

    pub(super) fn covers(&self) -> Option<&Coverage> {
        self.question().and_then(|question| question.covers.as_ref())
    }

    pub(super) fn memory(&self) -> Memory {
        match self {
            Self::Ask(_) => Memory::CallOrTool,
            Self::AskAnyway(_) => Memory::CallOnly,
            Self::Allow | Self::AlwaysAsk(_) | Self::Block(_) | Self::Fail(_) => Memory::Nothing,
        }
    }

    /// The same with the words of the rule by which it asks, which may be all of its reason.
    #[must_use]
    pub(super) fn asked_by(mut self, words: Option<String>, is_whole_reason: bool) -> Self {
        if let (Self::Ask(question), Some(words)) = (&mut self, words) {
            if is_whole_reason {
                question.reason.clone_from(&words);
            }
            question.rule = Some(words);
        }
        self
    }

    /// What no rule can allow is let through for what was judged, also where no question is asked this time.
    pub(super) fn bound_exception(&self) -> Option<String> {
        self.question().filter(|_| self.is_exceptional()).and_then(|question| question.bound_to.clone())
    }

    /// What an answer that allows it depends on.
    pub(super) fn judged(&self) -> String {
        let bound_to = self.question().and_then(|question| question.bound_to.as_deref());
        digest([if self.is_exceptional() { "exception" } else { "" }, bound_to.unwrap_or_default()])
    }

    /// Whether letting it through allows what no rule can allow.
    pub(super) fn is_exceptional(&self) -> bool {
        match self {
            Self::AskAnyway(_) | Self::AlwaysAsk(_) => true,
            Self::Allow | Self::Ask(_) | Self::Block(_) | Self::Fail(_) => false,
        }
    }
}

/// What of an approval may be remembered for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// It is asked about each time.
    Nothing,
    /// This exact call.
    CallOnly,
    /// This exact call, or the tool whatever the arguments.
    CallOrTool,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_never_lifts_a_block_nor_what_always_asks() {
        use DeclaredVerdict::{Allow, AlwaysAsk, Ask, Block, Unknown};
        let cases = [
            (Allow, None, Allow),
            (Allow, Some(Rule::Ask), Ask),
            (Ask, Some(Rule::Allow), Allow),
            (Ask, Some(Rule::Block), Block),
            (AlwaysAsk, Some(Rule::Allow), AlwaysAsk),
            (AlwaysAsk, Some(Rule::Block), Block),
            (Block, Some(Rule::Allow), Block),
            (Unknown, None, Unknown),
            (Unknown, Some(Rule::Allow), Allow),
        ];
        for (verdict, rule, expected) in cases {
            assert_eq!(verdict.clone().under(rule), expected, "{verdict:?} under {rule:?}");
        }
        let command = |verdict| CommandVerdict { pattern: "ls".into(), verdict };
        let shell = DeclaredVerdict::ByCommand(vec![command(Rule::Allow), command(Rule::Block)].into());
        let asked = DeclaredVerdict::ByCommand(vec![command(Rule::Ask), command(Rule::Block)].into());
        assert_eq!(shell.under(Some(Rule::Ask)), asked);
    }
}
