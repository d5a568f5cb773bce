//! The gate of a session: every call passes it, and it asks where it must.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::answer::bounded;
use super::decide::{CallOutlook, DecidedBy, Facts, decide};
#[cfg(feature = "front-end")]
use super::grants::SessionGrant;
use super::grants::{Grants, coverage};
use super::trial::Trials;
use super::{
    Answer, ApprovalMode, ApprovalRequest, Approvals, AskedQuestion, Form, FormAnswer, JudgementRecord,
    PendingQuestion, Permission, Question, RecordedAnswer, Ruling, Verdict,
};
use crate::event::{ApprovalResult, EventKind, Events};
use crate::journal::{Prior, StepDescription, StepKind, Steps, Stop, Suspension};
use crate::message::RawJson;
use crate::redact::Redactor;
use crate::tools::ToolsetIdentity;
use crate::tools::policy::{LastingRule, LastingRules};

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

/// Why a call that asks goes on, or a question stays open.
enum NoAnswer {
    /// Nobody had to be asked, because of this, and of the lasting rule that stands there.
    Unasked(DecidedBy, Option<Arc<str>>),
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

    /// Of a question with a form: the call goes on whatever the person made of it, since what it gives is that.
    fn of_form(form: &Form, verdict: &Verdict, answer: Answer) -> Self {
        Self::Permitted(Permission::answered(verdict, form.answered(answer)))
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
    ruling: &'a Ruling,
    question: &'a Question,
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
    /// In force for the project.
    rules: LastingRules,
    grants: Grants,
    open: OpenCount,
}

impl Gate {
    /// The gate of a run, by its id, at which nothing was approved yet.
    pub fn new(run: String, approvals: Approvals) -> Self {
        Self { run, approvals, rules: LastingRules::default(), grants: Grants::default(), open: OpenCount::default() }
    }

    /// The same gate of a project in this directory, with the rules of its manifest.
    #[must_use]
    pub(crate) fn ruled(self, manifest: &[Arc<LastingRule>], project: &Path) -> Self {
        let rules: Vec<_> = manifest.iter().chain(&self.approvals.rules).cloned().collect();
        if rules.is_empty() {
            return self;
        }
        // Rules name a project by the path that it has without links.
        let project = project.canonicalize().unwrap_or_else(|_| project.to_owned());
        let rules = LastingRules::in_force(rules, &project, self.approvals.today.as_deref());
        Self { rules, ..self }
    }

    /// The lasting rules in force.
    pub(crate) fn rules(&self) -> &LastingRules {
        &self.rules
    }

    /// What runs without a question until the session ends.
    #[cfg(feature = "front-end")]
    pub fn granted(&self) -> Vec<SessionGrant> {
        self.grants.list()
    }

    /// Asks again about what was granted for the session.
    #[cfg(feature = "front-end")]
    pub fn forget(&self, grant: &SessionGrant) {
        self.grants.forget(grant);
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
        let verdict = &ruling.verdict;
        let question = match verdict {
            Verdict::Allow | Verdict::Fail(_) => {
                let outcome = GateOutcome::permitted(verdict, None, None);
                return Ok(GatePassage { outcome, record: ruling.record });
            }
            Verdict::Block(reason) => {
                let outcome = GateOutcome::refused(reason.clone(), RefusedBy::Policy);
                return Ok(GatePassage { outcome, record: ruling.record });
            }
            Verdict::Ask(question) | Verdict::AskAnyway(question) | Verdict::AlwaysAsk(question) => question,
        };
        let pending = || candidate.asked(question, events.redactor()).pending(&self.run, &(candidate.key)());
        let asking = PendingRuling { ruling: &ruling, question };
        // Boxed: most calls are allowed, and have no use for it.
        let answered = Box::pin(self.answered(&candidate, asking, &judge, steps, events));
        let (mut edited, mut place) = (None, None);
        let (outcome, by) = match answered.await {
            Ok((RecordedAnswer { answer, judged }, by)) => {
                let outcome = match (answer, &question.form) {
                    (Answer::EndRun, _) => GateOutcome::EndRun,
                    (Answer::Later, _) => GateOutcome::Waits(pending()),
                    (answer, Some(form)) => GateOutcome::of_form(form, verdict, answer),
                    (Answer::Once | Answer::CallForSession | Answer::ToolForSession, None) => {
                        GateOutcome::permitted(verdict, question.bound_to.clone(), None)
                    }
                    (Answer::Edited(arguments), None) => {
                        let ruling = judge(arguments.clone()).await;
                        let ruling = ruling.map(|ruling| {
                            edited = ruling.record;
                            ruling.verdict
                        });
                        GateOutcome::of_edited(arguments, ruling, judged.as_deref())
                    }
                    (Answer::Values(_), None) => {
                        let reason = "it was answered with values, and takes yes or no";
                        GateOutcome::refused(reason.to_owned(), RefusedBy::Person)
                    }
                    (Answer::Refuse { reason }, None) => {
                        let reason = reason.unwrap_or_else(|| "the user refused it".to_owned());
                        GateOutcome::refused(reason, RefusedBy::Person)
                    }
                };
                (outcome, by)
            }
            Err(NoAnswer::Unasked(by, rule)) => {
                place = rule;
                (GateOutcome::permitted(verdict, verdict.bound_exception(), None), by)
            }
            Err(NoAnswer::Policy(reason, by)) if question.form.is_some() => {
                (GateOutcome::Permitted(Permission::answered(verdict, FormAnswer::Declined(Some(reason)))), by)
            }
            Err(NoAnswer::Policy(reason, by)) => (GateOutcome::refused(reason, RefusedBy::Policy), by),
            Err(NoAnswer::Nobody) => (GateOutcome::Waits(pending()), DecidedBy::Nobody),
            Err(NoAnswer::EndRun) => (GateOutcome::EndRun, DecidedBy::Person),
            Err(NoAnswer::Stopped(stop)) => return Err(stop),
        };
        let place = place.map(|place| place.as_ref().to_owned());
        let record = ruling.record.map(|record| Box::new(record.answered(by, place).edited(edited)));
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
        let PendingRuling { ruling, question } = asking;
        // Whatever was recorded: who rejects all rejects it now.
        if self.approvals.mode == ApprovalMode::RejectAll {
            let reason = "every question is answered with no in this run".to_owned();
            return Err(NoAnswer::Policy(reason, DecidedBy::RejectAll));
        }
        // Nothing is made for a question that is not asked, and that no record and no answer can know.
        if !steps.is_recorded() && self.approvals.known.is_none() {
            self.answered_at_once(candidate, ruling, false, events)?;
        }
        let asked = candidate.asked(question, events.redactor());
        let id = asked.digest(&self.run, &(candidate.key)());
        let steps = steps.at(format_args!("ask"));
        let request = candidate.request(id, question.clone(), ruling);
        let is_recorded = matches!(steps.prior(StepKind::Ask, || RawJson::of(&request.id)), Prior::Done);
        let known = self.approvals.known.as_ref().filter(|_| !is_recorded).and_then(|known| known.answer_to(&request));
        if !is_recorded {
            self.answered_at_once(candidate, ruling, known.is_some(), events)?;
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
                    let (answer, answered_by) = self.ask(candidate, ruling, &request, judge, &telling).await?;
                    by = answered_by;
                    answer
                }
            };
            self.grants.remember(&answer, candidate, ruling);
            let judged = match &answer {
                Answer::Edited(arguments) => judge(arguments.clone()).await.ok().map(|ruling| ruling.verdict.judged()),
                Answer::Once
                | Answer::CallForSession
                | Answer::ToolForSession
                | Answer::Values(_)
                | Answer::Refuse { .. }
                | Answer::EndRun
                | Answer::Later => None,
            };
            Ok::<_, NoAnswer>(RecordedAnswer { answer, judged })
        };
        let described = || {
            let judged = ruling.record.as_deref().map(JudgementRecord::of_question);
            StepDescription::new(StepKind::Ask, &request.id).shown(&asked).judged(judged.as_ref())
        };
        let answer = steps.run(described, &telling, effect).await?;
        Ok((answer, by))
    }

    /// Stops where no question is needed; who watches the run learns of it.
    fn answered_at_once(
        &self,
        candidate: &Candidate<'_>,
        ruling: &Ruling,
        is_known: bool,
        events: &Events,
    ) -> Result<(), NoAnswer> {
        let Approvals { mode, approver, .. } = &self.approvals;
        let is_remembered = self.grants.cover(candidate, ruling);
        let Ruling { own, voices, .. } = ruling;
        let has_approver = approver.is_some();
        let decision = decide(Facts { own: *own, voices, mode: *mode, is_known, is_remembered, has_approver });
        if decision.outlook != CallOutlook::Run {
            return Ok(());
        }
        let answer = match decision.by {
            DecidedBy::Rule => ApprovalResult::Rule,
            DecidedBy::Session => ApprovalResult::Remembered,
            _ => ApprovalResult::Policy,
        };
        candidate.tell(&self.run, events, &ruling.verdict, answer, decision.place);
        Err(NoAnswer::Unasked(decision.by, decision.place.cloned()))
    }

    /// Asks the approver. An answer for the session that another question gets meanwhile may answer this one too.
    async fn ask<Judged: Future<Output = Result<Ruling, String>> + Send>(
        &self,
        candidate: &Candidate<'_>,
        ruling: &Ruling,
        request: &ApprovalRequest,
        judge: &(impl Fn(RawJson) -> Judged + Sync),
        events: &Events,
    ) -> Result<(Answer, DecidedBy), NoAnswer> {
        let approver = self.approvals.approver.as_ref().ok_or(NoAnswer::Nobody)?;
        let _open = self.open.one_more().ok_or_else(|| {
            NoAnswer::Policy(format!("{MOST_OPEN_QUESTIONS} questions are open already"), DecidedBy::Nobody)
        })?;
        tell_asked(request, events);
        let (trials, mut tried) = Trials::open();
        let request = ApprovalRequest { trials, ..request.clone() };
        let mut answered = approver.ask(&request);
        let mut covered = std::pin::pin!(self.grants.covering(candidate, ruling));
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => {
                    let told = Self::answer_told(bounded(answer), &request, events);
                    return told.map(|answer| (answer, DecidedBy::Person));
                }
                () = &mut covered => {
                    candidate.tell(&self.run, events, &ruling.verdict, ApprovalResult::Remembered, None);
                    return Ok((Answer::Once, DecidedBy::Session));
                }
                // The request keeps the way open.
                Some(trial) = tried.recv() => {
                    let judged = judge(trial.arguments.clone()).await;
                    trial.settle(judged);
                }
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
            Answer::Values(values) => (ApprovalResult::Values, Some(values.get().to_owned())),
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
            rule: None,
        });
        if answer == Answer::EndRun { Err(NoAnswer::EndRun) } else { Ok(answer) }
    }
}

impl Candidate<'_> {
    /// Who calls, wherever in the tree: the agent, and the code of its tools.
    pub(super) fn caller(&self) -> String {
        let from = self.path.iter().rposition(|name| name == self.agent).unwrap_or_default();
        self.path[from..].join(" › ")
    }

    /// Who watches a run learns also of what would have been asked.
    fn tell(&self, run: &str, events: &Events, verdict: &Verdict, answer: ApprovalResult, rule: Option<&Arc<str>>) {
        events.send(|| EventKind::ApprovalAnswered {
            id: self
                .asked(verdict.question().unwrap_or(&Question::default()), events.redactor())
                .digest(run, &(self.key)()),
            path: self.path.to_vec(),
            tool: self.tool.to_owned(),
            answer,
            note: verdict.question().map(|question| question.reason.clone()),
            rule: rule.map(|place| place.as_ref().to_owned()),
        });
    }

    /// As it is written down: without keys. The approver who is asked now reads it as it is, and what an answer is bound to is too.
    fn asked(&self, question: &Question, redactor: &Redactor) -> AskedQuestion {
        let Question { reason, preview, shows, edits, rule, bound_to, foreign, covers, form } = question.clone();
        let clean = |text: String| redactor.redacted(text);
        let (reason, preview, foreign) = (clean(reason), preview.map(clean), foreign.map(clean));
        let form = form.map(|form| Form { question: clean(form.question), ..form });
        let (path, tool, arguments) = (self.path.to_vec(), self.tool.to_owned(), self.arguments.clone());
        AskedQuestion { path, tool, arguments, reason, preview, shows, edits, rule, foreign, covers, bound_to, form }
    }

    fn request(&self, id: String, question: Question, ruling: &Ruling) -> ApprovalRequest {
        ApprovalRequest {
            id,
            path: self.path.to_vec(),
            caller: self.caller(),
            tool: self.tool.to_owned(),
            arguments: self.arguments.clone(),
            about: ruling.about.clone(),
            question,
            coverage: coverage(self, ruling),
            memory: ruling.memory(),
            trials: Trials::default(),
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
