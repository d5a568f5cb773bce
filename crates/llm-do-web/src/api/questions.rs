//! Questions: those of all runs in one list, in the words of the terminal, and the one answer that counts.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use llm_do::approval::{Form, Memory, PendingQuestion, RAISE_LIMIT, short_id};
use llm_do::policy::{RuleDraft, RuledCall};
use llm_do::questions::AnswerError;
use llm_do::store::answers::{AnswerWriteError, LARGEST_ARGUMENTS, StoredAnswer};
use llm_do::{Answer, ApprovalRequest, RawJson};
use llm_do_launch::inbox::{Inbox, InboxError, WaitingQuestion, check_edited};
use llm_do_launch::question::{self, AnswerOffer, LineRole, QuestionLine, QuestionNumber};
use llm_do_launch::rules::{self, AddedRules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Answered, WebState, apart, read, whole_digest};
use crate::begin;
use crate::error::ApiError;
use crate::house::House;
use crate::own_runs::OwnRun;

/// Arguments, a reason, and what stands around them.
const LARGEST_ANSWER: usize = LARGEST_ARGUMENTS + (64 << 10);

/// A line of a question, and what it is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShownLine {
    /// `heading`, `plain`, `added`, `removed` or `quoted`.
    pub role: &'static str,
    pub text: String,
}

impl From<QuestionLine> for ShownLine {
    fn from(QuestionLine { role, text }: QuestionLine) -> Self {
        let role = match role {
            LineRole::Heading => "heading",
            LineRole::Plain => "plain",
            LineRole::Added => "added",
            LineRole::Removed => "removed",
            LineRole::Quoted => "quoted",
        };
        Self { role, text }
    }
}

/// What can be answered.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShownKey {
    pub key: char,
    pub words: &'static str,
}

/// What comes of an answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterAnswer {
    /// A process runs it, this one or another, and goes on.
    GoesOn,
    /// Nobody runs it, and it goes on in this process once nothing of it waits.
    GoesOnHere,
    /// Nobody runs it: the answer waits for whoever resumes it.
    IsKept,
}

/// A question as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuestionView {
    pub run: String,
    pub project: String,
    /// The first characters of its digest, which people read.
    pub question: String,
    /// All of it, which an answer names.
    pub digest: String,
    /// Milliseconds since 1970.
    pub asked_at: u64,
    pub path: Vec<String>,
    pub tool: String,
    #[schemars(with = "Value")]
    pub arguments: RawJson,
    /// The argument whose text a person edits.
    pub edits: Option<String>,
    pub lines: Vec<ShownLine>,
    pub keys: Vec<ShownKey>,
    pub explanation: Vec<String>,
    /// Which one it is of those of its run.
    pub number: usize,
    pub of: usize,
    /// Whether this process asks it.
    pub own: bool,
    /// What comes of an answer.
    pub after: AfterAnswer,
    /// Whether it is about a limit, which a figure answers.
    pub raises: bool,
    /// What is to be filled in, if values answer it: `question` and `fields`.
    #[schemars(with = "Option<Value>")]
    pub form: Option<Form>,
    /// The rules that would allow it from now on, the exact one first.
    pub rules: Vec<String>,
}

pub async fn list(State(served): State<WebState>) -> Answered {
    let house = served.house;
    let (open, troubles) = apart(move || shown(&house)).await??;
    Ok(Json(json!({"questions": open, "left_out": troubles})))
}

fn shown(house: &House) -> Result<(Vec<QuestionView>, Vec<String>), ApiError> {
    let (open, troubles) = {
        let mut inbox = house.inbox();
        let open = inbox.open().map_err(|error| ApiError::failed(error.to_string()))?;
        (open, inbox.take_troubles())
    };
    let mut of_run: BTreeMap<_, usize> = BTreeMap::new();
    for waiting in &open {
        *of_run.entry(waiting.run).or_default() += 1;
    }
    let mut before: BTreeMap<_, usize> = BTreeMap::new();
    let questions = open.iter().map(|waiting| {
        let number = before.entry(waiting.run).or_default();
        *number += 1;
        let own = house.own.get(&waiting.run).and_then(|run| run.question(&waiting.question.id));
        of_one(house, waiting, own.as_deref(), *number, of_run[&waiting.run])
    });
    Ok((questions.collect(), troubles))
}

fn of_one(
    house: &House,
    waiting: &WaitingQuestion,
    own: Option<&ApprovalRequest>,
    number: usize,
    of: usize,
) -> QuestionView {
    let asked = &waiting.question;
    let raises = asked.tool == RAISE_LIMIT;
    let rules = own.map(|request| widths(house, request, FilePath::new(&waiting.project))).unwrap_or_default();
    let memory = own.map_or(Memory::Nothing, |request| request.memory);
    let offer = AnswerOffer { memory, lasts: !rules.is_empty(), raises, fills: asked.form.is_some() };
    let numbered = QuestionNumber { number, of: (of > 1).then_some(of) };
    let lines = match own {
        Some(request) => question::lines(request, numbered),
        None => question::waiting_lines(asked, &waiting.name()),
    };
    QuestionView {
        run: waiting.run.to_string(),
        project: waiting.project.clone(),
        question: short_id(&asked.id).to_owned(),
        digest: asked.id.clone(),
        asked_at: waiting.asked_at,
        path: asked.path.clone(),
        tool: asked.tool.clone(),
        arguments: asked.arguments.clone(),
        edits: asked.edits.clone(),
        lines: lines.into_iter().map(ShownLine::from).collect(),
        keys: keys(asked, offer),
        explanation: own.map(|request| question::explanation(request, offer)).unwrap_or_default(),
        number,
        of,
        own: own.is_some(),
        after: after_answer(house, waiting),
        raises,
        form: asked.form.clone(),
        rules,
    }
}

fn after_answer(house: &House, waiting: &WaitingQuestion) -> AfterAnswer {
    if house.own.get(&waiting.run).is_some() || house.store.is_running(&waiting.run).unwrap_or(false) {
        return AfterAnswer::GoesOn;
    }
    match house.project_at(&waiting.project) {
        Some(_) if !house.is_read_only => AfterAnswer::GoesOnHere,
        Some(_) | None => AfterAnswer::IsKept,
    }
}

/// A form is filled in or declined; what else can be answered is what the terminal offers.
fn keys(asked: &PendingQuestion, offer: AnswerOffer) -> Vec<ShownKey> {
    match asked.form {
        Some(_) => vec![ShownKey { key: 'y', words: "fill it in" }, ShownKey { key: 'n', words: "decline" }],
        None => question::keys(offer).into_iter().map(|key| ShownKey { key: key.key, words: key.words }).collect(),
    }
}

/// The rule for exactly this call, and wider ones, as texts that a person may change.
fn widths(house: &House, request: &ApprovalRequest, project: &FilePath) -> Vec<String> {
    const MOST: usize = 3;
    let ApprovalRequest { path, tool, arguments, about, caller, memory, .. } = request;
    if *memory != Memory::CallOrTool || rules::own_file(&house.settings).is_none() {
        return Vec::new();
    }
    let call = RuledCall { tool, path, arguments: Some(arguments), subject: about.as_ref() };
    let Some(exact) = RuleDraft::exact(call, &caller.replace(" › ", " > "), project) else { return Vec::new() };
    let wider = exact.widened();
    let all = std::iter::once(exact).chain(wider).take(MOST);
    let expires = rules::in_30_days();
    all.map(|draft| draft.until(expires.as_str()).toml()).collect()
}

/// What is answered.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SentAnswer {
    /// `once`, `call`, `tool`, `edit`, `refuse` or `stop`.
    pub answer: AnswerWord,
    /// The other arguments of `edit`.
    #[serde(default)]
    #[schemars(with = "Option<Value>")]
    pub arguments: Option<RawJson>,
    /// What the model reads of a refusal.
    #[serde(default)]
    pub reason: Option<String>,
    /// What a limit is raised to, by name, instead of what is proposed; or what a form is filled in with.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerWord {
    Once,
    /// This call, until the run ends.
    Call,
    /// This tool, until the run ends.
    Tool,
    Edit,
    Refuse,
    /// No, and the run stops here.
    Stop,
}

impl SentAnswer {
    fn answer(self, by_values: impl FnOnce(&[(String, String)]) -> Result<Answer, String>) -> Result<Answer, ApiError> {
        let Self { answer, arguments: edited, reason, values } = self;
        if edited.is_some() != (answer == AnswerWord::Edit) {
            return Err(ApiError::wrong("`arguments` belong to `edit`").hint("nothing was answered"));
        }
        if reason.is_some() && answer != AnswerWord::Refuse {
            return Err(ApiError::wrong("`reason` belongs to `refuse`").hint("nothing was answered"));
        }
        if !values.is_empty() {
            if answer != AnswerWord::Once {
                return Err(ApiError::wrong("`values` belong to `once`").hint("nothing was answered"));
            }
            let values: Vec<(String, String)> = values.into_iter().collect();
            return by_values(&values).map_err(|wrong| ApiError::wrong(wrong).hint("nothing was answered"));
        }
        Ok(match (answer, edited) {
            (AnswerWord::Once, _) => Answer::Once,
            (AnswerWord::Call, _) => Answer::CallForSession,
            (AnswerWord::Tool, _) => Answer::ToolForSession,
            (AnswerWord::Edit, Some(edited)) => Answer::Edited(edited),
            (AnswerWord::Edit, None) | (AnswerWord::Refuse, _) => Answer::Refuse { reason },
            (AnswerWord::Stop, _) => Answer::EndRun,
        })
    }
}

/// What became of an answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AnswerResult {
    pub run: String,
    pub question: String,
    /// Whether the run goes on: in some process, or in this one from now on.
    pub goes_on: bool,
    /// What can be typed to go on with it, if it does not.
    pub command: Option<String>,
    /// Why it did not go on here.
    pub why: Option<String>,
}

/// The question that a request names, in this process or in another one.
enum NamedQuestion {
    Own(Arc<OwnRun>, Arc<ApprovalRequest>),
    Waiting(Box<WaitingQuestion>),
}

fn named(house: &House, digest: &str) -> Result<NamedQuestion, ApiError> {
    for id in house.own.ids() {
        if let Some(run) = house.own.get(&id)
            && let Some(request) = run.question(digest)
        {
            return Ok(NamedQuestion::Own(run, request));
        }
    }
    let found = Inbox::of(house.store.clone()).find(digest);
    found.map(|waiting| NamedQuestion::Waiting(Box::new(waiting))).map_err(|error| match error {
        InboxError::Answered { answer, .. } => answered_before(&answer),
        error => ApiError::missing(error.to_string()),
    })
}

fn answered_before(first: &StoredAnswer) -> ApiError {
    by_whom(first.author()).with("at", first.at).with("answer", first.answer)
}

fn by_whom(by: &str) -> ApiError {
    ApiError::conflict("answered", format!("the question was answered already, by {}", llm_do::escape::visible(by)))
        .with("by", by)
}

pub async fn answer(State(served): State<WebState>, Path(id): Path<String>, body: Body) -> Answered<AnswerResult> {
    let digest = whole_digest(&id)?.to_owned();
    let given: SentAnswer = read(body, LARGEST_ANSWER).await?;
    let house = served.house;
    let (at, sought) = (Arc::clone(&house), digest.clone());
    let run = match apart(move || named(&at, &sought)).await?? {
        NamedQuestion::Own(run, request) => {
            let answer = given.answer(|values| request.answer_by_values(values))?;
            if let Answer::Edited(arguments) = &answer {
                request.with_arguments(arguments.clone()).await.map_err(unfit)?;
            }
            let answered = run.questions.answer(&digest, answer, &house.user);
            answered.map_err(|error| match error {
                AnswerError::AlreadyAnswered { by } => by_whom(&by),
                error => ApiError::conflict("not_open", error.to_string()),
            })?;
            run.id
        }
        NamedQuestion::Waiting(waiting) => {
            let answer = given.answer(|values| waiting.question.answer_by_values(values))?;
            waiting
                .question
                .check_answer(&answer)
                .map_err(|wrong| ApiError::wrong(wrong).hint("nothing was answered"))?;
            if let Answer::Edited(arguments) = &answer {
                check_edited(&waiting, arguments).await.map_err(unfit)?;
            }
            let (at, run) = (Arc::clone(&house), waiting.run);
            apart(move || keep(&at, &waiting, &answer)).await??;
            run
        }
    };
    let is_running = house.own.get(&run).is_some() || house.store.is_running(&run).unwrap_or(false);
    let gone_on = if is_running { Ok(true) } else { Box::pin(begin::go_on_after_answer(&house, &run)).await };
    let goes_on = matches!(gone_on, Ok(true));
    let command = (!goes_on).then(|| format!("llm-do resume {run}"));
    let why = gone_on.err().map(|error| error.message);
    Ok(Json(AnswerResult { run: run.to_string(), question: digest, goes_on, command, why }))
}

fn unfit(reason: impl std::fmt::Display) -> ApiError {
    ApiError::wrong(format!("`arguments`: {reason}")).hint("nothing was answered")
}

fn keep(house: &House, waiting: &WaitingQuestion, answer: &Answer) -> Result<(), ApiError> {
    if matches!(answer, Answer::CallForSession | Answer::ToolForSession | Answer::EndRun) {
        return Err(ApiError::wrong("a question of another process is approved once, edited or refused")
            .hint("nothing was answered"));
    }
    let kept = Inbox::of(house.store.clone()).answer(waiting, answer, &house.user);
    kept.map(drop).map_err(|error| match error {
        AnswerWriteError::AlreadyAnswered(first) => answered_before(&first),
        error => ApiError::failed(error.to_string()),
    })
}

/// Other arguments, before they are an answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsiderArguments {
    #[schemars(with = "Value")]
    pub arguments: RawJson,
}

/// What would be asked about other arguments. Nothing is answered by it.
pub async fn consider(State(served): State<WebState>, Path(id): Path<String>, body: Body) -> Answered {
    let digest = whole_digest(&id)?.to_owned();
    let ConsiderArguments { arguments } = read(body, LARGEST_ANSWER).await?;
    let house = served.house;
    match apart(move || named(&house, &digest)).await?? {
        NamedQuestion::Own(_, request) => {
            let question = request.with_arguments(arguments.clone()).await.map_err(unfit)?;
            let number = QuestionNumber { number: 1, of: None };
            let lines = question::edited_lines(&request, &arguments, &question, number);
            let lines: Vec<ShownLine> = lines.into_iter().map(ShownLine::from).collect();
            Ok(Json(json!({"lines": lines})))
        }
        NamedQuestion::Waiting(waiting) => {
            check_edited(&waiting, &arguments).await.map_err(unfit)?;
            let changed = llm_do::approval::PendingQuestion {
                arguments,
                preview: None,
                shows: Vec::new(),
                ..waiting.question.clone()
            };
            let lines = question::waiting_lines(&changed, &waiting.name());
            let lines: Vec<ShownLine> = lines.into_iter().map(ShownLine::from).collect();
            Ok(Json(json!({"lines": lines, "note": "the process that asks judges it again before it runs"})))
        }
    }
}

/// A rule as TOML, as it was shown or changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddRule {
    pub rule: String,
}

/// Adds a rule that lasts, and lets the call through if the rule covers it.
pub async fn add_rule(State(served): State<WebState>, Path(id): Path<String>, body: Body) -> Answered {
    const LARGEST_RULE: usize = 64 << 10;
    let digest = whole_digest(&id)?.to_owned();
    let AddRule { rule } = read(body, LARGEST_RULE).await?;
    let house = served.house;
    let (at, sought) = (Arc::clone(&house), digest.clone());
    let NamedQuestion::Own(run, request) = apart(move || named(&at, &sought)).await?? else {
        return Err(ApiError::conflict("elsewhere", "another process asks this question")
            .hint("add the rule there, or with `llm-do policy edit`"));
    };
    let mut added = AddedRules::default();
    let file = added.add(&house.settings, &rule).map_err(|error| house.error(error))?;
    let root = house.project_of(&run.id).map(|project| project.root.clone()).unwrap_or_default();
    let covers = added.cover(&request, FilePath::new(&root));
    if covers {
        // The answer stands beside the rule: whoever goes on with the run finds it there.
        let _ = run.questions.answer(&digest, Answer::Once, &house.user);
    }
    Ok(Json(json!({"file": file, "covers": covers})))
}
