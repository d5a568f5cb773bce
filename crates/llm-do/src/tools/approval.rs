//! Who has to agree before a tool runs: verdicts, the rules of one agent for its tools, and the gate of the session.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::event::{Answered, EventKind, Events};
use crate::journal::{Described, StepKind, Steps, Stop};
use crate::message::RawJson;

pub use crate::journal::digest::digest;

/// What a rule of a worker file or a manifest says about a tool: `allow`, `ask` or `block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Allow,
    Ask,
    Block,
}

impl Rule {
    pub const WORDS: &[&str] = &["allow", "ask", "block"];

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "allow" => Some(Self::Allow),
            "ask" => Some(Self::Ask),
            "block" => Some(Self::Block),
            _ => None,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Block => "block",
        }
    }
}

/// One agent's rules for the tools of one toolset, by tool name.
pub type Rules = BTreeMap<String, Rule>;

/// What is known of a tool's verdict before it is called.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredVerdict {
    Allow,
    Ask,
    /// Asked each time: no rule and no earlier answer allows it.
    AlwaysAsk,
    Block,
    /// Depends on the command: the first pattern that matches decides.
    ByCommand(Cow<'static, [CommandVerdict]>),
    /// Only its code knows.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommandVerdict {
    pub pattern: Cow<'static, str>,
    pub verdict: Rule,
}

impl DeclaredVerdict {
    /// A rule may loosen an `Ask` or tighten an `Allow`; what always asks or is blocked stays.
    #[must_use]
    pub fn under(self, rule: Option<Rule>) -> Self {
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
    pub fn always_asks(&self) -> bool {
        match self {
            Self::Allow | Self::Block | Self::Unknown => false,
            Self::Ask | Self::AlwaysAsk => true,
            Self::ByCommand(commands) => !commands.iter().any(|command| command.verdict == Rule::Allow),
        }
    }

    /// Whether a call can happen at all.
    pub fn can_run(&self) -> bool {
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
    Allow,
    Ask(Question),
    /// Asked whatever a rule allows; an answer may cover this exact call for the session.
    AskAnyway(Question),
    /// Asked each time: no rule and no earlier answer allows it.
    AlwaysAsk(Question),
    Block(String),
}

/// What a person is told besides the call itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    pub reason: String,
    /// What would change, line by line.
    pub preview: Option<String>,
    /// A digest of what the answer is about, if it can change until then: the content that a write replaces.
    pub bound_to: Option<String>,
    /// What somebody else says about the call, such as the description of an agent: shown as theirs, never as ours.
    pub foreign: Option<String>,
    /// What an answer for the session covers, if that is not these arguments and this tool.
    pub covers: Option<Coverage>,
}

/// What an answer for the session covers, in words that are also what is remembered. They hold words of the model: whoever
/// shows them escapes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// By an answer for this exact call.
    pub call: String,
    /// By an answer for the tool.
    pub tool: String,
}

impl Question {
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), ..Self::default() }
    }

    #[must_use]
    pub fn quoting(self, foreign: impl Into<String>) -> Self {
        Self { foreign: Some(foreign.into()).filter(|text| !text.trim().is_empty()), ..self }
    }
}

impl Verdict {
    /// A rule may loosen an `Ask` or tighten an `Allow`; what always asks or is blocked stays.
    #[must_use]
    pub fn under(self, rule: Option<Rule>) -> Self {
        match (self, rule) {
            (verdict, None)
            | (verdict @ (Self::Block(_) | Self::AlwaysAsk(_) | Self::AskAnyway(_)), Some(Rule::Allow | Rule::Ask)) => {
                verdict
            }
            (verdict @ Self::Block(_), Some(Rule::Block)) | (verdict @ Self::Ask(_), Some(Rule::Ask)) => verdict,
            (_, Some(Rule::Block)) => Self::Block("blocked by a rule of the agent".to_owned()),
            (Self::Allow | Self::Ask(_), Some(Rule::Allow)) => Self::Allow,
            (Self::Allow, Some(Rule::Ask)) => Self::Ask(Question::because("a rule of the agent asks")),
        }
    }

    /// What a person would be asked.
    fn question(&self) -> Option<&Question> {
        match self {
            Self::Ask(question) | Self::AskAnyway(question) | Self::AlwaysAsk(question) => Some(question),
            Self::Allow | Self::Block(_) => None,
        }
    }

    fn covers(&self) -> Option<&Coverage> {
        self.question().and_then(|question| question.covers.as_ref())
    }

    fn memory(&self) -> Memory {
        match self {
            Self::Ask(_) => Memory::CallOrTool,
            Self::AskAnyway(_) => Memory::CallOnly,
            Self::Allow | Self::AlwaysAsk(_) | Self::Block(_) => Memory::Nothing,
        }
    }

    /// What no rule can allow is let through for what was judged, also where nobody is asked this time.
    fn bound_exception(&self) -> Option<String> {
        self.question().filter(|_| self.is_exceptional()).and_then(|question| question.bound_to.clone())
    }

    /// Whether letting it through allows what no rule can allow.
    fn is_exceptional(&self) -> bool {
        match self {
            Self::AskAnyway(_) | Self::AlwaysAsk(_) => true,
            Self::Allow | Self::Ask(_) | Self::Block(_) => false,
        }
    }
}

/// What of an approval may be remembered for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    Nothing,
    /// This exact call.
    CallOnly,
    /// This exact call, or the tool whatever the arguments.
    CallOrTool,
}

/// Who answers the questions of a session.
#[derive(Clone)]
pub enum Approvals {
    ApproveAll,
    RejectAll,
    Prompt(Arc<dyn Approver>),
    /// Nobody is there: a call that must ask ends the run.
    Nobody,
}

impl Approvals {
    pub fn prompt(approver: impl Approver + 'static) -> Self {
        Self::Prompt(Arc::new(approver))
    }
}

/// Somebody who can be asked.
pub trait Approver: Send + Sync {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer>;
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    pub id: String,
    /// The agents from the entry down; an answer for the session is for the last one.
    pub path: Vec<String>,
    pub tool: String,
    pub arguments: RawJson,
    pub question: Question,
    /// Which answers for the session are offered.
    pub memory: Memory,
    pub others: OtherQuestions,
}

/// The questions that wait for this one to be answered; more may come while it is being read.
#[derive(Clone, Debug, Default)]
pub struct OtherQuestions(Arc<AtomicUsize>);

impl OtherQuestions {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn one_more(&self) -> WaitingQuestion<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        WaitingQuestion(self)
    }
}

impl PartialEq for OtherQuestions {
    fn eq(&self, other: &Self) -> bool {
        self.count() == other.count()
    }
}

/// Also one that is given up is no longer counted.
struct WaitingQuestion<'a>(&'a OtherQuestions);

impl Drop for WaitingQuestion<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A question that nobody could answer, for whoever decides later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    pub id: String,
    pub path: Vec<String>,
    pub tool: String,
    pub arguments: RawJson,
    /// Why it is asked.
    pub reason: String,
    pub preview: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Once,
    /// This exact call for the rest of the session.
    CallForSession,
    /// This tool, whatever the arguments, for the rest of the session.
    ToolForSession,
    /// With other arguments, which are judged again.
    Edited(RawJson),
    Refuse {
        reason: Option<String>,
    },
    /// Refuse and end the run.
    EndRun,
    /// Whoever is there does not decide this: it waits for somebody else.
    Later,
}

/// What the policy says before anybody is asked.
#[derive(Debug, PartialEq)]
enum Decision<'a> {
    Run,
    Ask(&'a Question),
    NobodyToAsk,
    Refuse(&'a str),
}

/// The whole approval policy, as a function of values.
fn decide<'a>(approvals: &Approvals, verdict: &'a Verdict, remembered: bool) -> Decision<'a> {
    let question = match verdict {
        Verdict::Allow => return Decision::Run,
        Verdict::Block(reason) => return Decision::Refuse(reason),
        Verdict::Ask(question) | Verdict::AskAnyway(question) | Verdict::AlwaysAsk(question) => question,
    };
    match approvals {
        Approvals::ApproveAll => Decision::Run,
        Approvals::RejectAll => Decision::Refuse("every question is answered with no in this run"),
        Approvals::Prompt(_) if remembered => Decision::Run,
        Approvals::Prompt(_) => Decision::Ask(question),
        Approvals::Nobody => Decision::NobodyToAsk,
    }
}

/// A call that the gate let through. The private fields are the point: only the gate makes one.
#[derive(Debug)]
pub struct PermittedCall {
    id: String,
    tool: String,
    arguments: RawJson,
    bound_to: Option<String>,
    exceptional: bool,
}

/// What the gate let through, as it is recorded. Only the plane makes a call of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Permission {
    /// The arguments to which a person changed the call's.
    edited: Option<RawJson>,
    bound_to: Option<String>,
    exceptional: bool,
}

impl Permission {
    fn of(verdict: &Verdict, bound_to: Option<String>, edited: Option<RawJson>) -> Self {
        Self { edited, bound_to, exceptional: verdict.is_exceptional() }
    }

    pub fn edited(&self) -> Option<&RawJson> {
        self.edited.as_ref()
    }

    pub(super) fn call(self, id: &str, tool: &str, arguments: &RawJson) -> PermittedCall {
        let Self { edited, bound_to, exceptional } = self;
        let arguments = edited.unwrap_or_else(|| arguments.clone());
        PermittedCall { id: id.to_owned(), tool: tool.to_owned(), arguments, bound_to, exceptional }
    }
}

impl PermittedCall {
    /// What the events of the call are told apart by.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn tool(&self) -> &str {
        &self.tool
    }

    pub fn arguments(&self) -> &RawJson {
        &self.arguments
    }

    /// The digest of what the approval was shown against, if it was asked for.
    pub fn bound_to(&self) -> Option<&str> {
        self.bound_to.as_deref()
    }

    /// Whether it allows what no rule can allow, such as a file outside the project: the toolset said so when it
    /// judged the call, and must not do such a thing for any other call.
    pub fn is_exceptional(&self) -> bool {
        self.exceptional
    }

    /// The same call, under the name that the toolset below a variant has for its tool.
    pub(super) fn renamed(self, tool: String) -> Self {
        Self { tool, ..self }
    }
}

/// An answer, and what it was shown against.
#[derive(Serialize, Deserialize)]
struct Given {
    answer: Answer,
    bound_to: Option<String>,
}

/// Why a question stays open.
enum NoAnswer {
    Policy(String),
    Nobody,
    EndRun,
    Stopped(Stop),
}

impl From<Stop> for NoAnswer {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// What became of a call at the gate.
#[derive(Debug)]
pub enum Passage {
    Permitted(Permission),
    Refused {
        reason: String,
        by: RefusedBy,
    },
    /// It must ask, and nobody is there.
    Waits(Pending),
    /// A person ended the run.
    EndRun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    Policy,
    Person,
}

/// A call on its way through the gate.
pub struct Candidate<'a> {
    pub tool: &'a str,
    pub arguments: &'a RawJson,
    /// Which toolset definition it belongs to: an approval for one is none for another.
    pub toolset: &'a (dyn fmt::Debug + Send + Sync),
    /// The agents from the entry down.
    pub path: &'a [String],
    /// Where in the call tree it stands; made when somebody must be asked.
    pub key: &'a (dyn Fn() -> String + Sync),
}

/// The session's gate, shared by every call in it.
pub struct Gate {
    approvals: Approvals,
    remembered: Mutex<HashSet<Grant>>,
    /// One question at a time.
    asking: tokio::sync::Mutex<()>,
    others: OtherQuestions,
}

/// An approval for the rest of the session, for one agent: whoever read what `editor` was about to do has not read what
/// another agent does with the same tool. Refusals are never remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Grant {
    Call {
        agent: String,
        toolset: String,
        tool: String,
        call: String,
        /// What no rule can allow is granted for what was shown, and a plain grant does not cover it.
        exception: Option<String>,
    },
    Tool {
        agent: String,
        toolset: String,
        tool: String,
        /// The part of it, where an answer covers less than the tool.
        part: Option<String>,
    },
}

impl Gate {
    pub fn new(approvals: Approvals) -> Self {
        Self {
            approvals,
            remembered: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            others: OtherQuestions::default(),
        }
    }

    /// Judges a call and asks if it must. `judge` gives the toolset's verdict, rules applied; edited arguments are
    /// judged by it again. The question is a step at `steps`.
    pub async fn pass<Judged: Future<Output = Result<Verdict, String>>>(
        &self,
        candidate: Candidate<'_>,
        verdict: Verdict,
        judge: impl FnOnce(RawJson) -> Judged,
        steps: &Steps,
        events: &Events,
    ) -> Result<Passage, Stop> {
        let permitted =
            |verdict: &Verdict, bound_to, edited| Ok(Passage::Permitted(Permission::of(verdict, bound_to, edited)));
        let refused = |reason: String| Ok(Passage::Refused { reason, by: RefusedBy::Policy });
        match &verdict {
            Verdict::Allow => return permitted(&verdict, None, None),
            Verdict::Block(reason) => return refused(reason.clone()),
            Verdict::Ask(_) | Verdict::AskAnyway(_) | Verdict::AlwaysAsk(_) => {}
        }
        let Given { answer, bound_to } = match self.answered(&candidate, &verdict, steps, events).await {
            Ok(given) => given,
            Err(NoAnswer::Policy(reason)) => return refused(reason),
            Err(NoAnswer::Nobody) => return Ok(Passage::Waits(candidate.pending(&verdict))),
            Err(NoAnswer::EndRun) => return Ok(Passage::EndRun),
            Err(NoAnswer::Stopped(stop)) => return Err(stop),
        };
        match answer {
            Answer::Once | Answer::CallForSession | Answer::ToolForSession => permitted(&verdict, bound_to, None),
            Answer::Edited(arguments) => match judge(arguments.clone()).await {
                // Somebody is there and mistyped: the model reads it, and the run goes on.
                Ok(Verdict::Block(reason)) | Err(reason) => Ok(Passage::Refused { reason, by: RefusedBy::Person }),
                Ok(verdict @ (Verdict::Allow | Verdict::Ask(_) | Verdict::AskAnyway(_) | Verdict::AlwaysAsk(_))) => {
                    let bound_to = verdict.question().and_then(|question| question.bound_to.clone());
                    permitted(&verdict, bound_to, Some(arguments))
                }
            },
            Answer::Refuse { reason } => {
                let reason = reason.unwrap_or_else(|| "the user refused it".to_owned());
                Ok(Passage::Refused { reason, by: RefusedBy::Person })
            }
            Answer::EndRun => Ok(Passage::EndRun),
            Answer::Later => Ok(Passage::Waits(candidate.pending(&verdict))),
        }
    }

    /// An answer to the question of a verdict: recorded, from policy, from memory or from whoever is there. Only what
    /// allows or refuses is recorded, so that the rest can still be decided.
    async fn answered(
        &self,
        candidate: &Candidate<'_>,
        verdict: &Verdict,
        steps: &Steps,
        events: &Events,
    ) -> Result<Given, NoAnswer> {
        let steps = steps.at(format_args!("ask"));
        let telling = steps.telling(events);
        let described = || {
            let request = (candidate.path, candidate.tool, canonical(candidate.arguments));
            Described::new(StepKind::Ask, &request).shown(&candidate.pending(verdict))
        };
        let unasked = |answered| {
            candidate.tell(&telling, verdict, answered);
            Ok(Given { answer: Answer::Once, bound_to: verdict.bound_exception() })
        };
        let effect = async {
            let remembered = self.is_remembered(candidate, verdict);
            let question = match decide(&self.approvals, verdict, remembered) {
                Decision::Run => return unasked(if remembered { Answered::Remembered } else { Answered::Policy }),
                Decision::Refuse(reason) => return Err(NoAnswer::Policy(reason.to_owned())),
                Decision::NobodyToAsk => return Err(NoAnswer::Nobody),
                Decision::Ask(question) => question,
            };
            let Approvals::Prompt(approver) = &self.approvals else { unreachable!("only a prompt asks") };
            let waits = self.others.one_more();
            let _one_at_a_time = self.asking.lock().await;
            drop(waits);
            // Somebody may have allowed it while this question waited.
            if self.is_remembered(candidate, verdict) {
                return unasked(Answered::Remembered);
            }
            let request = candidate.request(question.clone(), verdict, self.others.clone());
            let answer = self.ask(approver.as_ref(), &request, &telling).await?;
            self.remember_answer(&answer, candidate, verdict);
            Ok(Given { answer, bound_to: question.bound_to.clone() })
        };
        steps.run(described, &telling, effect).await
    }

    /// For this session only: an answer from a record is not remembered.
    fn remember_answer(&self, answer: &Answer, candidate: &Candidate<'_>, verdict: &Verdict) {
        let grant = match answer {
            Answer::CallForSession => candidate.call_grant(verdict).filter(|_| verdict.memory() != Memory::Nothing),
            Answer::ToolForSession => {
                Some(candidate.tool_grant(verdict)).filter(|_| verdict.memory() == Memory::CallOrTool)
            }
            Answer::Once | Answer::Edited(_) | Answer::Refuse { .. } | Answer::EndRun | Answer::Later => None,
        };
        self.grants().extend(grant);
    }

    async fn ask(
        &self,
        approver: &dyn Approver,
        request: &ApprovalRequest,
        events: &Events,
    ) -> Result<Answer, NoAnswer> {
        let ApprovalRequest { id, path, tool, arguments, question, .. } = request;
        events.send(|| EventKind::ApprovalAsked {
            id: id.clone(),
            path: path.clone(),
            tool: tool.clone(),
            arguments: arguments.clone(),
            reason: question.reason.clone(),
        });
        let answer = approver.ask(request).await;
        let (answered, note) = match &answer {
            Answer::Once => (Answered::Once, None),
            Answer::CallForSession => (Answered::CallForSession, None),
            Answer::ToolForSession => (Answered::ToolForSession, None),
            Answer::Edited(arguments) => (Answered::Edited, Some(arguments.get().to_owned())),
            Answer::Refuse { reason } => (Answered::Refused, reason.clone()),
            Answer::EndRun => (Answered::Refused, Some("the run was ended".to_owned())),
            Answer::Later => return Err(NoAnswer::Nobody),
        };
        events.send(|| EventKind::ApprovalAnswered {
            id: id.clone(),
            path: path.clone(),
            tool: tool.clone(),
            answer: answered,
            note,
        });
        if answer == Answer::EndRun { Err(NoAnswer::EndRun) } else { Ok(answer) }
    }

    fn is_remembered(&self, candidate: &Candidate<'_>, verdict: &Verdict) -> bool {
        let remembered = self.grants();
        if remembered.is_empty() {
            return false;
        }
        let granted = |grant: Option<Grant>| grant.is_some_and(|grant| remembered.contains(&grant));
        match verdict.memory() {
            Memory::Nothing => false,
            Memory::CallOnly => granted(candidate.call_grant(verdict)),
            Memory::CallOrTool => {
                granted(Some(candidate.tool_grant(verdict))) || granted(candidate.call_grant(verdict))
            }
        }
    }

    // A panic elsewhere leaves the set as it was.
    fn grants(&self) -> MutexGuard<'_, HashSet<Grant>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Candidate<'_> {
    /// The agent that calls, wherever in the tree it was called.
    fn agent(&self) -> String {
        self.path.last().cloned().unwrap_or_default()
    }

    fn tool_grant(&self, verdict: &Verdict) -> Grant {
        let part = verdict.covers().map(|covers| covers.tool.clone());
        Grant::Tool { agent: self.agent(), toolset: format!("{:?}", self.toolset), tool: self.tool.to_owned(), part }
    }

    /// The grant that would cover the call, if one can.
    fn call_grant(&self, verdict: &Verdict) -> Option<Grant> {
        let exception = match verdict {
            Verdict::Ask(_) => None,
            Verdict::AskAnyway(question) => Some(question.bound_to.clone().unwrap_or_default()),
            Verdict::Allow | Verdict::AlwaysAsk(_) | Verdict::Block(_) => return None,
        };
        let (toolset, tool) = (format!("{:?}", self.toolset), self.tool.to_owned());
        let call = verdict.covers().map_or_else(|| canonical(self.arguments), |covers| covers.call.clone());
        Some(Grant::Call { agent: self.agent(), toolset, tool, call, exception })
    }

    /// A prefix of the hash of place, arguments and target: the same question has the same id.
    fn id(&self, verdict: &Verdict) -> String {
        let bound_to = verdict.question().and_then(|question| question.bound_to.as_deref()).unwrap_or_default();
        let path = self.path.join("/");
        let digest = digest([(self.key)().as_str(), &path, self.tool, &canonical(self.arguments), bound_to]);
        digest[..12].to_owned()
    }

    /// Who watches a run learns also of what would have been asked.
    fn tell(&self, events: &Events, verdict: &Verdict, answer: Answered) {
        events.send(|| EventKind::ApprovalAnswered {
            id: self.id(verdict),
            path: self.path.to_vec(),
            tool: self.tool.to_owned(),
            answer,
            note: verdict.question().map(|question| question.reason.clone()),
        });
    }

    fn pending(&self, verdict: &Verdict) -> Pending {
        let Question { reason, preview, .. } = verdict.question().cloned().unwrap_or_default();
        Pending {
            id: self.id(verdict),
            path: self.path.to_vec(),
            tool: self.tool.to_owned(),
            arguments: self.arguments.clone(),
            reason,
            preview,
        }
    }

    fn request(&self, question: Question, verdict: &Verdict, others: OtherQuestions) -> ApprovalRequest {
        ApprovalRequest {
            id: self.id(verdict),
            path: self.path.to_vec(),
            tool: self.tool.to_owned(),
            arguments: self.arguments.clone(),
            question,
            memory: verdict.memory(),
            others,
        }
    }
}

/// Keys sorted, no blanks: two spellings of one value are one.
pub fn canonical(json: &RawJson) -> String {
    json.to::<serde_json::Value>().map_or_else(|_| json.get().to_owned(), |value| value.to_string())
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
