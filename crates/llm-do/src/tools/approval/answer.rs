//! Questions, answers, and who gives them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::trial::Trials;
use super::{CallSubject, Coverage, Form, LimitRaise, Memory, Question, RAISE_LIMIT, digest};
use crate::BoxFuture;
use crate::journal::StepValue;
use crate::message::RawJson;
use crate::tools::policy::LastingRule;

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
    /// Lasting rules of the user and of the organisation; those of the project stand in its manifest.
    pub rules: Vec<Arc<LastingRule>>,
    /// The day of the run, as `2026-12-16`: rules may expire. Without it, what expires does not allow, and goes on tightening.
    pub today: Option<String>,
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

    /// The same under these lasting rules, on this day.
    #[must_use]
    pub fn with_rules(self, rules: Vec<Arc<LastingRule>>, today: impl Into<String>) -> Self {
        Self { rules, today: Some(today.into()), ..self }
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
    /// What the call is about, beyond its arguments, if that was looked at.
    pub about: Option<CallSubject>,
    /// Why it is asked, and what else there is to show.
    pub question: Question,
    /// Which answers for the session are offered.
    pub memory: Memory,
    /// What each of them covers, as a digest.
    pub coverage: SessionCoverage,
    /// Where other arguments for the call are judged, as long as it is open.
    pub trials: Trials,
}

/// Digests of what answers for the session cover: two questions with the same one are answered together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCoverage {
    /// Of an answer for this exact call.
    pub call: Option<String>,
    /// Of an answer for the tool.
    pub tool: Option<String>,
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
    /// Arguments that the reason and the preview hold in full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<String>,
    /// The argument whose text a person edits who wants the call otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edits: Option<String>,
    /// Which rule asks, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What the author of the tool says about the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<String>,
    /// What a person fills in, if yes or no is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
}

/// As much of a question's digest as people read and type.
pub const SHORT_ID: usize = 12;

/// The first 12 characters of a digest, which is what people read, or all of one that is shorter.
pub fn short_id(digest: &str) -> &str {
    digest.get(..SHORT_ID).unwrap_or(digest)
}

/// A question as it stands in a journal: all that an answer is about. It has no id there: its reader makes the digest
/// of what is read, so that no line can show one call and get another one approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedQuestion {
    pub(super) path: Vec<String>,
    pub(super) tool: String,
    pub(super) arguments: RawJson,
    pub(super) reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) preview: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) shows: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) edits: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) foreign: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) covers: Option<Coverage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bound_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) form: Option<Form>,
}

impl AskedQuestion {
    /// What the call would be made with.
    pub(crate) fn arguments(&self) -> &RawJson {
        &self.arguments
    }

    /// As it was put to a person in the run, at this place.
    pub(crate) fn request(&self, run: &str, key: &str) -> ApprovalRequest {
        let Self { path, tool, arguments, reason, preview, shows, edits, rule, foreign, covers, bound_to, form } =
            self.clone();
        ApprovalRequest {
            id: self.digest(run, key),
            caller: path.last().cloned().unwrap_or_default(),
            path,
            tool,
            arguments,
            about: None,
            question: Question { reason, preview, shows, edits, rule, bound_to, foreign, covers, form },
            memory: Memory::Nothing,
            coverage: SessionCoverage::default(),
            trials: Trials::default(),
        }
    }

    /// The agents from the entry down to the one whose limit it is about, if it is about one, and how far it is raised.
    pub(crate) fn raise(&self) -> Option<(&[String], LimitRaise)> {
        let raise = self.arguments.to().ok().filter(|_| self.tool == RAISE_LIMIT)?;
        Some((&self.path, raise))
    }

    /// Of the run, the place in its call tree, the call, each shown word and what the answer is bound to.
    pub(crate) fn digest(&self, run: &str, key: &str) -> String {
        let Self { path, tool, arguments, reason, preview, shows, edits, rule, foreign, covers, bound_to, form } = self;
        let (depth, shown, arguments) = (path.len().to_string(), shows.len().to_string(), canonical(arguments));
        let call = covers.as_ref().map(|covers| covers.call.as_str());
        let whole = covers.as_ref().map(|covers| covers.tool.as_str());
        // What is not there is told from what is empty.
        let said = [preview, edits, rule, foreign].map(Option::as_deref).into_iter();
        let said = said.chain([call, whole, bound_to.as_deref()]);
        let said = said.flat_map(|part| [if part.is_some() { "1" } else { "0" }, part.unwrap_or_default()]);
        let place = [run, key, &depth].into_iter().chain(path.iter().map(String::as_str));
        let shows = std::iter::once(shown.as_str()).chain(shows.iter().map(String::as_str));
        let form = form.as_ref().map(|form| RawJson::of(form).get().to_owned());
        let said = said.chain(form.as_deref());
        digest(place.chain([tool.as_str(), &arguments, reason]).chain(shows).chain(said))
    }

    /// For the person who decides later. `run` and `key` say where it was asked.
    pub fn pending(&self, run: &str, key: &str) -> PendingQuestion {
        let Self { path, tool, arguments, reason, preview, shows, edits, rule, foreign, form, .. } = self.clone();
        let id = self.digest(run, key);
        PendingQuestion { id, path, tool, arguments, reason, preview, shows, edits, rule, foreign, form }
    }
}

/// The key of the call that is asked about, from that of the question.
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
    /// With values for the fields of a form: an object, by their names.
    Values(RawJson),
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

/// A person's answer, as it is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedAnswer {
    pub(crate) answer: Answer,
    /// How arguments that the person changed were judged then: if they are judged otherwise later, the answer was about
    /// something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) judged: Option<String>,
}

impl StepValue for RecordedAnswer {
    fn settled(self) -> Self {
        let answer = match self.answer {
            Answer::Edited(arguments) => Answer::Edited(arguments.in_one_line()),
            Answer::Values(values) => Answer::Values(values.in_one_line()),
            answer => answer,
        };
        Self { answer, ..self }
    }
}

/// An answer with more bytes is none.
pub(super) const LARGEST_ANSWER: usize = 2 << 20;

/// An answer that no person can have typed refuses.
pub(super) fn bounded(answer: Answer) -> Answer {
    let too_long = |what: &str| {
        let reason = Some(format!("{what} of more than {LARGEST_ANSWER} bytes are not taken"));
        Answer::Refuse { reason }
    };
    match answer {
        Answer::Edited(arguments) if arguments.get().len() > LARGEST_ANSWER => too_long("changed arguments"),
        Answer::Values(values) if values.get().len() > LARGEST_ANSWER => too_long("values"),
        Answer::Refuse { reason: Some(reason) } if reason.len() > LARGEST_ANSWER => too_long("reasons"),
        answer => answer,
    }
}

/// Keys sorted, no blanks: two spellings of one value are one.
pub fn canonical(json: &RawJson) -> String {
    json.to::<serde_json::Value>().map_or_else(|_| json.get().to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Steps;

    fn asked(words: &[String]) -> (AskedQuestion, String, String) {
        let word = |index: usize| words[index % words.len()].clone();
        let optional = |index: usize| Some(word(index)).filter(|word| !word.starts_with('-'));
        let covers = optional(8).map(|call| Coverage { call, tool: word(9) });
        let question = AskedQuestion {
            path: words[16.min(words.len())..].to_vec(),
            tool: word(2),
            arguments: RawJson::of(&serde_json::json!({word(3): word(4)})),
            reason: word(5),
            preview: optional(6),
            shows: optional(11).into_iter().chain(optional(12)).collect(),
            edits: optional(13),
            rule: optional(14),
            foreign: optional(7),
            covers,
            bound_to: optional(1),
            form: optional(16).map(|question| Form { question, fields: Vec::new() }),
        };
        (question, word(0), word(1))
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        /// Two questions that differ in anything have different digests, and so have two runs.
        #[test]
        fn questions_that_differ_in_anything_have_different_digests(
            one in proptest::collection::vec("[-ab/01]{0,2}", 17..21),
            at in 0..21_usize,
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
        assert!(refused(Answer::Values(RawJson::of(&long))));
        assert!(refused(Answer::Refuse { reason: Some(long) }));
        let edited = Answer::Edited(RawJson::of(&"x"));
        assert_eq!(bounded(edited.clone()), edited);
    }

    #[test]
    fn an_answer_is_replayed_as_it_was_given() {
        use crate::journal::generated::{Generator, assert_replayed_is_live};
        let answer = |generator: &mut Generator, _: &Steps| {
            let answer = match generator.number(8) {
                0 => Answer::Once,
                1 => Answer::CallForSession,
                2 => Answer::ToolForSession,
                3 => Answer::Refuse { reason: generator.maybe(Generator::text) },
                4 => Answer::EndRun,
                5 => Answer::Later,
                6 => Answer::Values(generator.object()),
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
