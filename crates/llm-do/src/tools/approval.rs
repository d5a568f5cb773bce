//! Who has to agree before a tool runs: verdicts, the rules of one agent for its tools, and the gate of the session.

mod judgement;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::ToolsetIdentity;
use crate::BoxFuture;
use crate::event::{ApprovalResult, EventKind, Events};
use crate::journal::{Prior, StepDescription, StepKind, StepValue, Steps, Stop, Suspension};
use crate::message::RawJson;
use crate::redact::Redactor;

pub use crate::journal::digest::digest;
#[cfg(feature = "front-end")]
pub use judgement::VerdictKind;
pub(crate) use judgement::together;
pub use judgement::{CallSubject, DecidedBy, Judgement, JudgementRecord, Ruling, UnshownCall};

/// What a rule of a worker file or a manifest says about a tool: `allow`, `ask` or `block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The call runs without a question.
    Allow,
    /// A person is asked.
    Ask,
    /// The call does not run.
    Block,
}

impl Rule {
    /// The words for it in files, from the most to the least that is let through.
    pub(crate) const WORDS: &[&str] = &["allow", "ask", "block"];

    /// The rule that exactly this word means; `None` if it is none of `Rule::WORDS`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "allow" => Some(Self::Allow),
            "ask" => Some(Self::Ask),
            "block" => Some(Self::Block),
            _ => None,
        }
    }

    /// The word for it in files.
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
    /// A digest of what the answer is about, if it can change until then: the content that a write replaces.
    pub bound_to: Option<String>,
    /// What its author says about the call, such as the description of an agent: shown as theirs, never as ours.
    pub foreign: Option<String>,
    /// What an answer for the session covers, if that is not these arguments and this tool.
    pub covers: Option<Coverage>,
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
    /// A rule may loosen an `Ask` or tighten an `Allow`; what always asks or is blocked stays.
    #[must_use]
    pub fn under(self, rule: Option<Rule>) -> Self {
        match (self, rule) {
            (verdict, None)
            | (
                verdict @ (Self::Block(_) | Self::Fail(_) | Self::AlwaysAsk(_) | Self::AskAnyway(_)),
                Some(Rule::Allow | Rule::Ask),
            )
            | (verdict @ Self::Block(_), Some(Rule::Block))
            | (verdict @ Self::Ask(_), Some(Rule::Ask)) => verdict,
            (_, Some(Rule::Block)) => Self::Block("blocked by a rule of the agent".to_owned()),
            (Self::Allow | Self::Ask(_), Some(Rule::Allow)) => Self::Allow,
            (Self::Allow, Some(Rule::Ask)) => Self::Ask(Question::because("a rule of the agent asks")),
        }
    }

    /// What a person would be asked.
    fn question(&self) -> Option<&Question> {
        match self {
            Self::Ask(question) | Self::AskAnyway(question) | Self::AlwaysAsk(question) => Some(question),
            Self::Allow | Self::Block(_) | Self::Fail(_) => None,
        }
    }

    fn covers(&self) -> Option<&Coverage> {
        self.question().and_then(|question| question.covers.as_ref())
    }

    fn memory(&self) -> Memory {
        match self {
            Self::Ask(_) => Memory::CallOrTool,
            Self::AskAnyway(_) => Memory::CallOnly,
            Self::Allow | Self::AlwaysAsk(_) | Self::Block(_) | Self::Fail(_) => Memory::Nothing,
        }
    }

    /// What no rule can allow is let through for what was judged, also where no question is asked this time.
    fn bound_exception(&self) -> Option<String> {
        self.question().filter(|_| self.is_exceptional()).and_then(|question| question.bound_to.clone())
    }

    /// What an answer that allows it depends on.
    fn judged(&self) -> String {
        let bound_to = self.question().and_then(|question| question.bound_to.as_deref());
        digest([if self.is_exceptional() { "exception" } else { "" }, bound_to.unwrap_or_default()])
    }

    /// Whether letting it through allows what no rule can allow.
    fn is_exceptional(&self) -> bool {
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

/// Whether questions are asked, or have one answer for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalMode {
    /// Questions are asked.
    #[default]
    Prompt,
    /// Every question is answered with yes.
    ApproveAll,
    /// Every question is answered with no.
    RejectAll,
}

impl ApprovalMode {
    /// The words for it in files.
    pub(crate) const WORDS: &[&str] = &["prompt", "approve_all", "reject_all"];

    /// The mode that exactly this word means; `None` if it is none of [`ApprovalMode::WORDS`].
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "prompt" => Some(Self::Prompt),
            "approve_all" => Some(Self::ApproveAll),
            "reject_all" => Some(Self::RejectAll),
            _ => None,
        }
    }
}

/// Who answers the questions of a session: one answer for all of them, answers that are known before they are asked, and
/// an approver.
#[derive(Clone, Default)]
pub struct Approvals {
    /// Whether questions are asked at all.
    pub mode: ApprovalMode,
    /// Without one, a call that must ask waits for an answer where the run is recorded, and ends it elsewhere.
    pub approver: Option<Arc<dyn Approver>>,
    /// They count before the approver is asked.
    pub known: Option<Arc<dyn KnownAnswers>>,
}

impl Approvals {
    /// No approver is there.
    pub fn unattended() -> Self {
        Self::default()
    }

    /// Every question is answered with yes.
    pub fn approve_all() -> Self {
        Self { mode: ApprovalMode::ApproveAll, ..Self::default() }
    }

    /// Every question is answered with no.
    pub fn reject_all() -> Self {
        Self { mode: ApprovalMode::RejectAll, ..Self::default() }
    }

    /// Questions go to this approver.
    pub fn ask(approver: impl Approver + 'static) -> Self {
        Self { approver: Some(Arc::new(approver)), ..Self::default() }
    }

    /// Questions go to this function.
    pub fn ask_with<F, AnswerFuture>(answer: F) -> Self
    where
        F: Fn(ApprovalRequest) -> AnswerFuture + Send + Sync + 'static,
        AnswerFuture: Future<Output = Answer> + Send + 'static,
    {
        struct Function<F>(F);
        impl<F, AnswerFuture> Approver for Function<F>
        where
            F: Fn(ApprovalRequest) -> AnswerFuture + Send + Sync,
            AnswerFuture: Future<Output = Answer> + Send + 'static,
        {
            fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
                Box::pin((self.0)(request.clone()))
            }
        }
        Self::ask(Function(answer))
    }

    /// The same, of a session in which these answers were given before.
    #[must_use]
    pub fn with_known(self, known: Arc<dyn KnownAnswers>) -> Self {
        Self { known: Some(known), ..self }
    }
}

/// The approver: a person, or what answers for one.
pub trait Approver: Send + Sync {
    /// Asks about one call and waits for the answer. Dropping the future takes the question back.
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer>;
}

/// Answers that people gave before a question is asked again, such as on the command line of `resume`.
pub trait KnownAnswers: Send + Sync {
    /// An answer to exactly this question: it has the digest that the answer names.
    fn answer_to(&self, request: &ApprovalRequest) -> Option<Answer>;
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// The digest of the question, all of it; people read [`short_id`] of it.
    pub id: String,
    /// The agents and the code from the entry down.
    pub path: Vec<String>,
    /// Whom an answer for the session is for: the agent, and the code of its tools.
    pub caller: String,
    /// The tool that would be called.
    pub tool: String,
    /// What it would be called with.
    pub arguments: RawJson,
    /// Why it is asked, and what else there is to show.
    pub question: Question,
    /// Which answers for the session are offered.
    pub memory: Memory,
    /// What each of them covers, as a digest.
    pub coverage: SessionCoverage,
}

/// Digests of what answers for the session cover: two questions with the same one are answered together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCoverage {
    /// Of an answer for this exact call.
    pub call: Option<String>,
    /// Of an answer for the tool.
    pub tool: Option<String>,
}

/// A person does not answer more of them with a clear head.
pub const MOST_OPEN_QUESTIONS: usize = 128;

/// How many questions of a session are open.
#[derive(Debug, Default)]
struct OpenCount(AtomicUsize);

impl OpenCount {
    /// One more, unless too many are open already.
    fn one_more(&self) -> Option<OpenSlot<'_>> {
        let room = |open: usize| (open < MOST_OPEN_QUESTIONS).then_some(open + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok().map(|_| OpenSlot(self))
    }
}

/// Also one that is given up is no longer counted.
struct OpenSlot<'a>(&'a OpenCount);

impl Drop for OpenSlot<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A question that could not be answered, for the person who decides later.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PendingQuestion {
    /// The digest of the question, all of it; people read [`short_id`] of it.
    pub id: String,
    /// The agents and the code from the entry down.
    pub path: Vec<String>,
    /// The tool that would be called.
    pub tool: String,
    /// What it would be called with.
    pub arguments: RawJson,
    /// Why it is asked.
    pub reason: String,
    /// What would change, line by line.
    pub preview: Option<String>,
    /// What the author of the tool says about the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
}

/// As much of a question's digest as people read and type.
pub const SHORT_ID: usize = 12;

/// The first [`SHORT_ID`] characters of a digest, or all of one that is shorter.
pub fn short_id(digest: &str) -> &str {
    digest.get(..SHORT_ID).unwrap_or(digest)
}

/// A question as it stands in a journal: all that an answer is about. It has no id there: its reader makes the digest
/// of what is read, so that no line can show one call and get another one approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedQuestion {
    path: Vec<String>,
    tool: String,
    arguments: RawJson,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    foreign: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    covers: Option<Coverage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound_to: Option<String>,
}

impl AskedQuestion {
    /// Of the run, the place in its call tree, the call, each shown word and what the answer is bound to.
    pub(crate) fn digest(&self, run: &str, key: &str) -> String {
        let Self { path, tool, arguments, reason, preview, foreign, covers, bound_to } = self;
        let (depth, arguments) = (path.len().to_string(), canonical(arguments));
        let call = covers.as_ref().map(|covers| covers.call.as_str());
        let whole = covers.as_ref().map(|covers| covers.tool.as_str());
        // What is not there is told from what is empty.
        let said = [preview.as_deref(), foreign.as_deref(), call, whole, bound_to.as_deref()];
        let said = said.into_iter().flat_map(|part| [if part.is_some() { "1" } else { "0" }, part.unwrap_or_default()]);
        let place = [run, key, &depth].into_iter().chain(path.iter().map(String::as_str));
        digest(place.chain([tool.as_str(), &arguments, reason]).chain(said))
    }

    /// For the person who decides later. `run` and `key` say where it was asked.
    pub fn pending(&self, run: &str, key: &str) -> PendingQuestion {
        let Self { path, tool, arguments, reason, preview, foreign, .. } = self.clone();
        PendingQuestion { id: self.digest(run, key), path, tool, arguments, reason, preview, foreign }
    }
}

/// The key of the call that is asked about, from that of the question.
#[cfg(feature = "front-end")]
pub fn key_of_call(question: &str) -> &str {
    question.strip_suffix("/ask").unwrap_or(question)
}

/// What an approver decides about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes, this time.
    Once,
    /// This exact call for the rest of the session.
    CallForSession,
    /// This tool, whatever the arguments, for the rest of the session.
    ToolForSession,
    /// With other arguments, which are judged again.
    Edited(RawJson),
    /// No.
    Refuse {
        /// Why, for the model to read.
        reason: Option<String>,
    },
    /// Refuse and end the run.
    EndRun,
    /// The approver does not decide this: it waits for another one.
    Later,
}

impl Answer {
    /// No, for a reason that the model reads.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self::Refuse { reason: Some(reason.into()) }
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

/// What the gate let through, in this process: it is never written down, and nothing that was written down becomes one.
/// Only the plane makes a call of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    /// The arguments to which a person changed the call's.
    edited: Option<RawJson>,
    bound_to: Option<String>,
    exceptional: bool,
    /// Why the call fails without reaching its tool, if it does.
    failure: Option<String>,
}

impl Permission {
    fn of(verdict: &Verdict, bound_to: Option<String>, edited: Option<RawJson>) -> Self {
        let failure = match verdict {
            Verdict::Fail(reason) => Some(reason.clone()),
            Verdict::Allow | Verdict::Ask(_) | Verdict::AskAnyway(_) | Verdict::AlwaysAsk(_) | Verdict::Block(_) => {
                None
            }
        };
        Self { edited, bound_to, exceptional: verdict.is_exceptional(), failure }
    }

    /// Takes out why the call fails without reaching its tool, if it does.
    pub(super) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    /// The digest of what the approval was shown against.
    pub fn bound_to(&self) -> Option<&str> {
        self.bound_to.as_deref()
    }

    /// For a call beneath which nothing runs, since all its steps come from a record.
    pub(super) fn replayed(edited: Option<RawJson>) -> Self {
        Self { edited, bound_to: None, exceptional: false, failure: None }
    }

    /// The arguments that the approver put in the place of the model's; `None` if those stay.
    pub fn edited(&self) -> Option<&RawJson> {
        self.edited.as_ref()
    }

    pub(super) fn call(self, id: &str, tool: &str, arguments: &RawJson) -> PermittedCall {
        let Self { edited, bound_to, exceptional, failure: _ } = self;
        let arguments = edited.unwrap_or_else(|| arguments.clone());
        PermittedCall { id: id.to_owned(), tool: tool.to_owned(), arguments, bound_to, exceptional }
    }
}

impl PermittedCall {
    /// What the events of the call are told apart by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of the tool that may run.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The arguments that were permitted, which are the only ones that it may run with.
    pub fn arguments(&self) -> &RawJson {
        &self.arguments
    }

    /// The digest of what the approval was shown against, if it was asked for.
    pub(crate) fn bound_to(&self) -> Option<&str> {
        self.bound_to.as_deref()
    }

    /// Whether it allows what no rule can allow, such as a file outside the project: the toolset said so when it
    /// judged the call, and must not do such a thing for any other call.
    pub(crate) fn is_exceptional(&self) -> bool {
        self.exceptional
    }

    /// The same call, under the name that the toolset below a variant has for its tool.
    pub(super) fn renamed(self, tool: String) -> Self {
        Self { tool, ..self }
    }
}

/// A person's answer, as it is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedAnswer {
    pub(crate) answer: Answer,
    /// How arguments that the person changed were judged then: if they are judged otherwise later, the answer was about
    /// something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    judged: Option<String>,
}

impl StepValue for RecordedAnswer {
    fn settled(self) -> Self {
        let answer = match self.answer {
            Answer::Edited(arguments) => Answer::Edited(arguments.in_one_line()),
            answer => answer,
        };
        Self { answer, ..self }
    }
}

/// Why a call that asks goes on, or a question stays open.
enum NoAnswer {
    /// Nobody had to be asked, because of this.
    Unasked(DecidedBy),
    Policy(String, DecidedBy),
    Nobody,
    EndRun,
    Stopped(Stop),
}

impl From<Stop> for NoAnswer {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// An answer with more bytes is none.
pub const LARGEST_ANSWER: usize = 2 << 20;

/// An answer that no person can have typed refuses.
fn bounded(answer: Answer) -> Answer {
    let too_long = |what: &str| {
        let reason = Some(format!("{what} of more than {LARGEST_ANSWER} bytes are not taken"));
        Answer::Refuse { reason }
    };
    match answer {
        Answer::Edited(arguments) if arguments.get().len() > LARGEST_ANSWER => too_long("changed arguments"),
        Answer::Refuse { reason: Some(reason) } if reason.len() > LARGEST_ANSWER => too_long("reasons"),
        answer => answer,
    }
}

/// What became of a call at the gate.
#[derive(Debug)]
pub enum GateOutcome {
    Permitted(Permission),
    Refused {
        reason: String,
        by: RefusedBy,
    },
    /// It must ask, and there is no approver.
    Waits(PendingQuestion),
    /// A person ended the run.
    EndRun,
}

impl GateOutcome {
    fn permitted(verdict: &Verdict, bound_to: Option<String>, edited: Option<RawJson>) -> Self {
        Self::Permitted(Permission::of(verdict, bound_to, edited))
    }

    fn refused(reason: String, by: RefusedBy) -> Self {
        Self::Refused { reason, by }
    }

    /// Of arguments that a person changed. `judged` is how they were judged when the person did that.
    fn of_edited(arguments: RawJson, verdict: Result<Verdict, String>, judged: Option<&str>) -> Self {
        match verdict {
            // The person is there and mistyped: the model reads it, and the run goes on.
            Ok(Verdict::Block(reason)) | Err(reason) => Self::refused(reason, RefusedBy::Person),
            Ok(verdict) if judged != Some(verdict.judged().as_str()) => {
                let reason = "what the user changed the arguments to is about something else by now";
                Self::refused(reason.to_owned(), RefusedBy::Person)
            }
            Ok(
                verdict @ (Verdict::Allow
                | Verdict::Ask(_)
                | Verdict::AskAnyway(_)
                | Verdict::AlwaysAsk(_)
                | Verdict::Fail(_)),
            ) => {
                let bound_to = verdict.question().and_then(|question| question.bound_to.clone());
                Self::permitted(&verdict, bound_to, Some(arguments))
            }
        }
    }
}

/// A verdict that asks.
#[derive(Clone, Copy)]
struct PendingRuling<'a> {
    verdict: &'a Verdict,
    question: &'a Question,
    record: Option<&'a JudgementRecord>,
}

/// What became of a call at the gate, and what is written down of how it was judged.
#[derive(Debug)]
pub struct GatePassage {
    pub outcome: GateOutcome,
    /// Nothing if the run is not recorded.
    pub record: Option<Box<JudgementRecord>>,
}

/// Whether a rule or mode refused a call, or a person who was asked.
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
    pub toolset: &'a dyn ToolsetIdentity,
    /// Whose tool it is.
    pub agent: &'a str,
    /// The agents and the code from the entry down.
    pub path: &'a [String],
    /// Where in the call tree it stands; made when a question must be asked.
    pub key: &'a (dyn Fn() -> String + Sync),
}

/// The session's gate, shared by every call in it.
pub struct Gate {
    /// The id of the run: an answer in one is none in another.
    run: String,
    approvals: Approvals,
    remembered: Mutex<HashSet<Grant>>,
    /// Wakes the questions that an answer for the session may have answered too.
    granted: Notify,
    open: OpenCount,
}

/// An approval for the rest of the session, for one agent: a person who read what `editor` was about to do has not read what
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
    /// The gate of a run, by its id, at which nothing was approved yet.
    pub fn new(run: String, approvals: Approvals) -> Self {
        let (remembered, granted, open) = (Mutex::default(), Notify::new(), OpenCount::default());
        Self { run, approvals, remembered, granted, open }
    }

    /// The id of the run whose gate it is.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Judges a call and asks if it must. `judge` gives the toolset's verdict, rules applied; edited arguments are
    /// judged by it again. The question is a step at `steps`.
    pub async fn pass<Judged: Future<Output = Result<Ruling, String>> + Send>(
        &self,
        candidate: Candidate<'_>,
        ruling: Ruling,
        judge: impl Fn(RawJson) -> Judged + Sync,
        steps: &Steps,
        events: &Events,
    ) -> Result<GatePassage, Stop> {
        let Ruling { verdict, record } = ruling;
        let question = match &verdict {
            Verdict::Allow | Verdict::Fail(_) => {
                return Ok(GatePassage { outcome: GateOutcome::permitted(&verdict, None, None), record });
            }
            Verdict::Block(reason) => {
                return Ok(GatePassage { outcome: GateOutcome::refused(reason.clone(), RefusedBy::Policy), record });
            }
            Verdict::Ask(question) | Verdict::AskAnyway(question) | Verdict::AlwaysAsk(question) => question,
        };
        let pending = || candidate.asked(question, events.redactor()).pending(&self.run, &(candidate.key)());
        let asking = PendingRuling { verdict: &verdict, question, record: record.as_deref() };
        // Boxed: most calls are allowed, and have no use for it.
        let answered = Box::pin(self.answered(&candidate, asking, &judge, steps, events));
        let mut edited = None;
        let (outcome, by) = match answered.await {
            Ok((RecordedAnswer { answer, judged }, by)) => {
                let outcome = match answer {
                    Answer::Once | Answer::CallForSession | Answer::ToolForSession => {
                        GateOutcome::permitted(&verdict, question.bound_to.clone(), None)
                    }
                    Answer::Edited(arguments) => {
                        let ruling = judge(arguments.clone()).await;
                        let ruling = ruling.map(|ruling| {
                            edited = ruling.record;
                            ruling.verdict
                        });
                        GateOutcome::of_edited(arguments, ruling, judged.as_deref())
                    }
                    Answer::Refuse { reason } => {
                        let reason = reason.unwrap_or_else(|| "the user refused it".to_owned());
                        GateOutcome::refused(reason, RefusedBy::Person)
                    }
                    Answer::EndRun => GateOutcome::EndRun,
                    Answer::Later => GateOutcome::Waits(pending()),
                };
                (outcome, by)
            }
            Err(NoAnswer::Unasked(by)) => (GateOutcome::permitted(&verdict, verdict.bound_exception(), None), by),
            Err(NoAnswer::Policy(reason, by)) => (GateOutcome::refused(reason, RefusedBy::Policy), by),
            Err(NoAnswer::Nobody) => (GateOutcome::Waits(pending()), DecidedBy::Nobody),
            Err(NoAnswer::EndRun) => (GateOutcome::EndRun, DecidedBy::Person),
            Err(NoAnswer::Stopped(stop)) => return Err(stop),
        };
        let record = record.map(|record| Box::new(record.answered(by).edited(edited)));
        Ok(GatePassage { outcome, record })
    }

    /// The answer to the question of a verdict, and whose it is. Only what a person said is recorded: all else is found
    /// out again each time.
    async fn answered<Judged: Future<Output = Result<Ruling, String>> + Send>(
        &self,
        candidate: &Candidate<'_>,
        asking: PendingRuling<'_>,
        judge: &(impl Fn(RawJson) -> Judged + Sync),
        steps: &Steps,
        events: &Events,
    ) -> Result<(RecordedAnswer, DecidedBy), NoAnswer> {
        let PendingRuling { verdict, question, record } = asking;
        // Whatever was recorded: who rejects all rejects it now.
        if self.approvals.mode == ApprovalMode::RejectAll {
            let reason = "every question is answered with no in this run".to_owned();
            return Err(NoAnswer::Policy(reason, DecidedBy::RejectAll));
        }
        // Nothing is made for a question that is not asked, and that no record and no answer can know.
        if !steps.is_recorded() && self.approvals.known.is_none() {
            self.answered_at_once(candidate, verdict, false, events)?;
        }
        let asked = candidate.asked(question, events.redactor());
        let id = asked.digest(&self.run, &(candidate.key)());
        let steps = steps.at(format_args!("ask"));
        let request = candidate.request(id, question.clone(), verdict);
        let is_recorded = matches!(steps.prior(StepKind::Ask, || RawJson::of(&request.id)), Prior::Done);
        let known = self.approvals.known.as_ref().filter(|_| !is_recorded).and_then(|known| known.answer_to(&request));
        if !is_recorded {
            self.answered_at_once(candidate, verdict, known.is_some(), events)?;
        }
        let telling = steps.telling(events);
        // What a record answers a person has answered.
        let mut by = DecidedBy::Person;
        let effect = async {
            let answer = match known {
                Some(known) => {
                    by = DecidedBy::Known;
                    Self::told(known, &request, &telling)?
                }
                None => {
                    // It stays open, and can be answered elsewhere.
                    if self.approvals.approver.is_none() && steps.suspension() == Suspension::Possible {
                        tell_asked(&request, &telling);
                    }
                    let (answer, answered_by) = self.ask(candidate, verdict, &request, &telling).await?;
                    by = answered_by;
                    answer
                }
            };
            self.remember_answer(&answer, candidate, verdict);
            let judged = match &answer {
                Answer::Edited(arguments) => judge(arguments.clone()).await.ok().map(|ruling| ruling.verdict.judged()),
                Answer::Once
                | Answer::CallForSession
                | Answer::ToolForSession
                | Answer::Refuse { .. }
                | Answer::EndRun
                | Answer::Later => None,
            };
            Ok::<_, NoAnswer>(RecordedAnswer { answer, judged })
        };
        let described = || {
            let judged = record.map(JudgementRecord::of_question);
            StepDescription::new(StepKind::Ask, &request.id).shown(&asked).judged(judged.as_ref())
        };
        let answer = steps.run(described, &telling, effect).await?;
        Ok((answer, by))
    }

    /// Stops where no question is needed; who watches the run learns of it.
    fn answered_at_once(
        &self,
        candidate: &Candidate<'_>,
        verdict: &Verdict,
        is_known: bool,
        events: &Events,
    ) -> Result<(), NoAnswer> {
        let Approvals { mode, approver, .. } = &self.approvals;
        let is_remembered = self.is_remembered(candidate, verdict);
        let (answer, by) =
            match answerer(Facts { mode: *mode, is_known, is_remembered, has_approver: approver.is_some() }) {
                Answerer::Session => (ApprovalResult::Remembered, DecidedBy::Session),
                Answerer::ApproveAll => (ApprovalResult::Policy, DecidedBy::ApproveAll),
                Answerer::RejectAll | Answerer::Known | Answerer::Approver | Answerer::Nobody => return Ok(()),
            };
        candidate.tell(&self.run, events, verdict, answer);
        Err(NoAnswer::Unasked(by))
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
        if let Some(grant) = grant {
            self.grants().insert(grant);
            self.granted.notify_waiters();
        }
    }

    /// Asks the approver. An answer for the session that another question gets meanwhile may answer this one too.
    async fn ask(
        &self,
        candidate: &Candidate<'_>,
        verdict: &Verdict,
        request: &ApprovalRequest,
        events: &Events,
    ) -> Result<(Answer, DecidedBy), NoAnswer> {
        let approver = self.approvals.approver.as_ref().ok_or(NoAnswer::Nobody)?;
        let _open = self.open.one_more().ok_or_else(|| {
            NoAnswer::Policy(format!("{MOST_OPEN_QUESTIONS} questions are open already"), DecidedBy::Nobody)
        })?;
        tell_asked(request, events);
        let mut answered = approver.ask(request);
        let covered = async {
            loop {
                let granted = self.granted.notified();
                if self.is_remembered(candidate, verdict) {
                    return;
                }
                granted.await;
            }
        };
        tokio::select! {
            biased;
            answer = &mut answered => {
                Self::answer_told(bounded(answer), request, events).map(|answer| (answer, DecidedBy::Person))
            }
            () = covered => {
                candidate.tell(&self.run, events, verdict, ApprovalResult::Remembered);
                Ok((Answer::Once, DecidedBy::Session))
            }
        }
    }

    /// Tells of a question whose answer is known, and of the answer.
    fn told(known: Answer, request: &ApprovalRequest, events: &Events) -> Result<Answer, NoAnswer> {
        tell_asked(request, events);
        Self::answer_told(bounded(known), request, events)
    }

    fn answer_told(answer: Answer, request: &ApprovalRequest, events: &Events) -> Result<Answer, NoAnswer> {
        let (answered, note) = match &answer {
            Answer::Once => (ApprovalResult::Once, None),
            Answer::CallForSession => (ApprovalResult::CallForSession, None),
            Answer::ToolForSession => (ApprovalResult::ToolForSession, None),
            Answer::Edited(arguments) => (ApprovalResult::Edited, Some(arguments.get().to_owned())),
            Answer::Refuse { reason } => (ApprovalResult::Refused, reason.clone()),
            Answer::EndRun => (ApprovalResult::Refused, Some("the run was ended".to_owned())),
            Answer::Later => return Err(NoAnswer::Nobody),
        };
        events.send(|| EventKind::ApprovalAnswered {
            id: request.id.clone(),
            path: request.path.clone(),
            tool: request.tool.clone(),
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
    /// Who calls, wherever in the tree: the agent, and the code of its tools.
    fn caller(&self) -> String {
        let from = self.path.iter().rposition(|name| name == self.agent).unwrap_or_default();
        self.path[from..].join(" › ")
    }

    fn tool_grant(&self, verdict: &Verdict) -> Grant {
        let part = verdict.covers().map(|covers| covers.tool.clone());
        Grant::Tool { agent: self.caller(), toolset: self.toolset.digest(), tool: self.tool.to_owned(), part }
    }

    /// The grant that would cover the call, if one can.
    fn call_grant(&self, verdict: &Verdict) -> Option<Grant> {
        let exception = match verdict {
            Verdict::Ask(_) => None,
            Verdict::AskAnyway(question) => Some(question.bound_to.clone().unwrap_or_default()),
            Verdict::Allow | Verdict::AlwaysAsk(_) | Verdict::Block(_) | Verdict::Fail(_) => return None,
        };
        let (toolset, tool) = (self.toolset.digest(), self.tool.to_owned());
        let call = verdict.covers().map_or_else(|| canonical(self.arguments), |covers| covers.call.clone());
        Some(Grant::Call { agent: self.caller(), toolset, tool, call, exception })
    }

    /// Who watches a run learns also of what would have been asked.
    fn tell(&self, run: &str, events: &Events, verdict: &Verdict, answer: ApprovalResult) {
        events.send(|| EventKind::ApprovalAnswered {
            id: self
                .asked(verdict.question().unwrap_or(&Question::default()), events.redactor())
                .digest(run, &(self.key)()),
            path: self.path.to_vec(),
            tool: self.tool.to_owned(),
            answer,
            note: verdict.question().map(|question| question.reason.clone()),
        });
    }

    /// As it is written down: without keys. The approver who is asked now reads it as it is, and what an answer is bound to is too.
    fn asked(&self, question: &Question, redactor: &Redactor) -> AskedQuestion {
        let Question { reason, preview, bound_to, foreign, covers } = question.clone();
        let clean = |text: String| redactor.redacted(text);
        let (reason, preview, foreign) = (clean(reason), preview.map(clean), foreign.map(clean));
        let (path, tool, arguments) = (self.path.to_vec(), self.tool.to_owned(), self.arguments.clone());
        AskedQuestion { path, tool, arguments, reason, preview, foreign, covers, bound_to }
    }

    fn request(&self, id: String, question: Question, verdict: &Verdict) -> ApprovalRequest {
        ApprovalRequest {
            id,
            path: self.path.to_vec(),
            caller: self.caller(),
            tool: self.tool.to_owned(),
            arguments: self.arguments.clone(),
            question,
            coverage: SessionCoverage {
                call: self.call_grant(verdict).map(|grant| digest([format!("{grant:?}").as_str()])),
                tool: Some(digest([format!("{:?}", self.tool_grant(verdict)).as_str()])),
            },
            memory: verdict.memory(),
        }
    }
}

fn tell_asked(request: &ApprovalRequest, events: &Events) {
    events.send(|| EventKind::ApprovalAsked {
        id: request.id.clone(),
        path: request.path.clone(),
        tool: request.tool.clone(),
        arguments: request.arguments.clone(),
        reason: request.question.reason.clone(),
    });
}

/// What is known when a verdict asks.
#[derive(Clone, Copy, Debug)]
struct Facts {
    mode: ApprovalMode,
    /// A person has answered exactly this question before.
    is_known: bool,
    /// An answer for the session covers the call.
    is_remembered: bool,
    has_approver: bool,
}

/// Whose answer counts where a verdict asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answerer {
    RejectAll,
    Known,
    Session,
    ApproveAll,
    Approver,
    Nobody,
}

/// The third step of every decision. The first two make the verdict: the floor of a toolset, which no rule lifts, and the
/// rules ([`Verdict::under`]). If the verdict asks, the first of these answers. Pure.
fn answerer(facts: Facts) -> Answerer {
    match facts {
        Facts { mode: ApprovalMode::RejectAll, .. } => Answerer::RejectAll,
        Facts { is_known: true, .. } => Answerer::Known,
        Facts { is_remembered: true, .. } => Answerer::Session,
        Facts { mode: ApprovalMode::ApproveAll, .. } => Answerer::ApproveAll,
        Facts { has_approver: true, .. } => Answerer::Approver,
        Facts { mode: ApprovalMode::Prompt, .. } => Answerer::Nobody,
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
    fn a_question_is_answered_by_the_first_who_has_an_answer() {
        use ApprovalMode::{ApproveAll, Prompt, RejectAll};
        let cases = [
            // mode, known, remembered, an approver → who answers
            (RejectAll, true, true, true, Answerer::RejectAll),
            (RejectAll, false, false, false, Answerer::RejectAll),
            (ApproveAll, true, true, true, Answerer::Known),
            (ApproveAll, false, true, true, Answerer::Session),
            (ApproveAll, false, false, true, Answerer::ApproveAll),
            (ApproveAll, false, false, false, Answerer::ApproveAll),
            (Prompt, true, true, true, Answerer::Known),
            (Prompt, true, false, false, Answerer::Known),
            (Prompt, false, true, true, Answerer::Session),
            (Prompt, false, true, false, Answerer::Session),
            (Prompt, false, false, true, Answerer::Approver),
            (Prompt, false, false, false, Answerer::Nobody),
        ];
        for (mode, is_known, is_remembered, has_approver, expected) in cases {
            let facts = Facts { mode, is_known, is_remembered, has_approver };
            assert_eq!(answerer(facts), expected, "{facts:?}");
        }
    }

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

    fn asked(words: &[String]) -> (AskedQuestion, String, String) {
        let word = |index: usize| words[index % words.len()].clone();
        let optional = |index: usize| Some(word(index)).filter(|word| !word.starts_with('-'));
        let covers = optional(8).map(|call| Coverage { call, tool: word(9) });
        let question = AskedQuestion {
            path: words[10.min(words.len())..].to_vec(),
            tool: word(2),
            arguments: RawJson::of(&serde_json::json!({word(3): word(4)})),
            reason: word(5),
            preview: optional(6),
            foreign: optional(7),
            covers,
            bound_to: optional(1),
        };
        (question, word(0), word(1))
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        /// Two questions that differ in anything have different digests, and so have two runs.
        #[test]
        fn questions_that_differ_in_anything_have_different_digests(
            one in proptest::collection::vec("[-ab/01]{0,2}", 10..14),
            at in 0..14_usize,
            other in "[-ab/01]{0,2}",
        ) {
            let mut changed = one.clone();
            let at = at % changed.len();
            changed[at] = other;
            let ((first, run, key), (second, other_run, other_key)) = (asked(&one), asked(&changed));
            let is_same = first == second && run == other_run && key == other_key;
            proptest::prop_assert_eq!(is_same, first.digest(&run, &key) == second.digest(&other_run, &other_key));
            proptest::prop_assert_ne!(first.digest("0000000000000000", &key), first.digest("0000000000000001", &key));
        }
    }

    #[test]
    fn an_answer_of_any_size_is_no_answer() {
        let long = "x".repeat(LARGEST_ANSWER + 1);
        let refused =
            |answer: Answer| matches!(bounded(answer), Answer::Refuse { reason: Some(reason) } if reason.len() < 100);
        assert!(refused(Answer::Edited(RawJson::of(&long))));
        assert!(refused(Answer::Refuse { reason: Some(long) }));
        let edited = Answer::Edited(RawJson::of(&"x"));
        assert_eq!(bounded(edited.clone()), edited);
    }

    #[test]
    fn an_answer_is_replayed_as_it_was_given() {
        use crate::journal::generated::{Generator, assert_replayed_is_live};
        let answer = |generator: &mut Generator, _: &Steps| {
            let answer = match generator.number(7) {
                0 => Answer::Once,
                1 => Answer::CallForSession,
                2 => Answer::ToolForSession,
                3 => Answer::Refuse { reason: generator.maybe(Generator::text) },
                4 => Answer::EndRun,
                5 => Answer::Later,
                _ => Answer::Edited(generator.object()),
            };
            RecordedAnswer { answer, judged: generator.maybe(Generator::text) }
        };
        assert_replayed_is_live(answer, |answer| answer);
    }

    #[test]
    fn people_read_twelve_digits() {
        assert_eq!(short_id(&"0123456789abcdef".repeat(4)), "0123456789ab");
        assert_eq!((short_id("short"), key_of_call("main/t0/m0/c0/ask")), ("short", "main/t0/m0/c0"));
    }
}
