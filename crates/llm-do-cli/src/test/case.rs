//! One case: its scratch project, its run, and what came of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use llm_do::approval::KnownAnswers;
use llm_do::events::{CallKind, TraceCall};
use llm_do::messages::Usage;
use llm_do::program::{Entry, Typing};
use llm_do::runs::UnknownPrices;
use llm_do::tests::{
    Answering, ApprovedTools, CallMade, CaseOutcome, Fixture, Miss, ProjectListing, ReplayPlan, ScratchError,
    ScratchProject, StaleStep, TestCase, TestFile, TestJournal, ToolAnswers,
};
use llm_do::toolsets::ToolsetSource;
use llm_do::trust::TrustItem;
use llm_do::{
    Answer, ApprovalRequest, EventKind, Input, Journal, ModelChoices, Output, Program, WorkingDirectory, messages,
};
use llm_do_launch::keep::EndReason;
use llm_do_launch::launch::{Launch, LinkedLaunch, ListenPlan, ModelUse, Record};
use llm_do_launch::session::Update;
use llm_do_launch::settings::Settings;
use serde_json::{Value, json};

use crate::failure::Failure;

/// What cases of a project share.
#[derive(Clone)]
pub struct TestBench {
    pub launch: Launch,
    pub settings: Arc<Settings>,
    /// What the user agreed to.
    pub agreed: Vec<TrustItem>,
    pub listing: ProjectListing,
    /// The project as it is named within a copy of it.
    pub project: PathBuf,
    pub temporary: Option<PathBuf>,
    /// The agents in whose place code alone answers: no model is asked for them, so they need no record.
    pub by_code: BTreeSet<String>,
}

/// Who answers in a case.
pub struct CaseAnswers {
    pub answering: Answering,
    pub fixture: Fixture,
    pub models: ModelChoices,
}

/// What came of a case.
pub struct CaseReport {
    pub verdict: CaseVerdict,
    pub misses: Vec<Miss>,
    /// What was answered.
    pub fixture: Fixture,
    pub usage: Usage,
    pub seconds: f64,
    /// What was called, for a case that is made of it.
    pub outcome: CaseOutcome,
    /// A limit ended it.
    pub is_out_of_money: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CaseVerdict {
    Passed,
    Failed,
    /// The record does not answer it any more.
    Stale(StaleStep),
    /// There is no record.
    Unrecorded,
    /// A tool of this name cannot run here, and its result is not in the record.
    Skipped(String),
}

/// The part of a record that is the judge's.
const JUDGE: &str = "@judge/";

/// What came of one run.
#[derive(Default)]
struct RunSeen {
    outcome: CaseOutcome,
    usage: Usage,
    fixture: Fixture,
    stale: Option<StaleStep>,
    skipped: Option<String>,
    is_limited: bool,
}

impl TestBench {
    /// The same, whose cases may cost no more than this.
    pub fn within(&self, share: Option<f64>) -> Self {
        let mut bench = self.clone();
        if let Some(share) = share {
            let limits = &mut bench.launch.policy.limits;
            limits.max_cost_usd = Some(limits.max_cost_usd.map_or(share, |limit| limit.min(share)));
        }
        bench
    }

    /// Runs a case in a scratch project of its own.
    pub async fn run(&self, file: &TestFile, case: &TestCase, answers: CaseAnswers) -> Result<CaseReport, Failure> {
        let began = Instant::now();
        let scratch = self.scratch(case)?;
        let (of_agent, of_judge) = answers.fixture.parted(JUDGE);
        let input = Self::input(case, &scratch)?;
        let one = |agent: &str, fixture: Fixture, input: Option<Input>, approve: ApprovedTools| RunWanted {
            agent: agent.to_owned(),
            fixture,
            input,
            approve,
            are_tools_recorded: case.tools == ToolAnswers::Recorded,
            answering: answers.answering,
            models: answers.models.clone(),
        };
        let seen = Box::pin(self.run_agent(one(&file.agent, of_agent, input, case.approve.clone()), &scratch)).await?;
        let RunSeen { mut outcome, mut usage, mut fixture, mut stale, skipped, mut is_limited } = seen;
        outcome.files = case.expect.files.keys().map(|path| (path.clone(), scratch.read(path))).collect();
        // What its judge takes is not what it takes.
        outcome.requests = usage.requests;
        outcome.cost_usd = if usage.requests == 0 { Some(0.0) } else { usage.cost_usd };
        let mut judged = None;
        if let (Some(judge), Some(output), None) = (&case.judge, &outcome.output, &stale) {
            let input = json!({ "question": judge.question, "input": case.input, "output": output });
            let input = Some(Input::from(input));
            let run =
                Box::pin(self.run_agent(one(&judge.agent, of_judge, input, ApprovedTools::Nothing), &scratch)).await?;
            stale = run.stale;
            is_limited |= run.is_limited;
            usage = usage.plus(&run.usage);
            fixture = fixture.joined(run.fixture, JUDGE);
            judged = judgement(judge.at_least, &run.outcome);
        }
        let seconds = began.elapsed().as_secs_f64();
        outcome.seconds = (answers.answering == Answering::World).then_some(seconds);
        let mut misses = case.expect.misses(&outcome);
        misses.extend(judged);
        let verdict = match (stale, skipped) {
            (_, Some(tool)) => CaseVerdict::Skipped(tool),
            (Some(stale), None) => CaseVerdict::Stale(stale),
            (None, None) if misses.is_empty() => CaseVerdict::Passed,
            (None, None) => CaseVerdict::Failed,
        };
        Ok(CaseReport { verdict, misses, fixture, usage, seconds, outcome, is_out_of_money: is_limited })
    }

    fn scratch(&self, case: &TestCase) -> Result<ScratchProject, Failure> {
        let failed = |error: ScratchError| {
            let hint = match &error {
                ScratchError::TooLarge => "`scratch` of the case or of its file names what is copied",
                _ => "it lies where temporary files go; `TMPDIR` says where that is",
            };
            Failure::usage(error.to_string()).hint(hint)
        };
        let scratch = ScratchProject::copy(&self.listing, |path| case.copies(path), self.temporary.as_deref());
        let scratch = scratch.map_err(failed)?;
        for (path, content) in &case.files {
            scratch.lay(path, content).map_err(failed)?;
        }
        Ok(scratch)
    }

    /// What the case says; nothing if the project gives the input.
    fn input(case: &TestCase, scratch: &ScratchProject) -> Result<Option<Input>, Failure> {
        let read = |path: &String| {
            let at = scratch.root().join(path);
            messages::read_named(&at).map_err(|error| Failure::usage(format!("the attachment `{path}`: {error}")))
        };
        let attachments = case.attachments.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let attachments: Vec<_> =
            attachments.into_iter().map(|file| messages::Attachment { path: None, ..file }).collect();
        Ok(match &case.input {
            None if attachments.is_empty() => None,
            value => Some(Input::Object { value: value.clone().unwrap_or(Value::String(String::new())), attachments }),
        })
    }

    async fn linked(
        &self,
        agent: &str,
        wanted: (ModelChoices, Answering),
        scratch: &Path,
    ) -> Result<LinkedLaunch, Failure> {
        let (models, answering) = wanted;
        let directory = WorkingDirectory::at(scratch);
        let directory = directory.map_err(|error| Failure::failed(format!("the scratch project: {error}")))?;
        let mut policy = self.launch.policy.clone();
        if answering != Answering::World {
            // Nothing is paid.
            policy.unknown_prices = UnknownPrices::when(true);
        }
        let launch = Launch {
            project: self.project.clone(),
            directory,
            entry: Some(agent.to_owned()),
            models,
            policy,
            ..self.launch.clone()
        };
        Ok(launch.survey(&self.settings)?.trust_as(&self.agreed)?.link().await?)
    }

    async fn run_agent(&self, wanted: RunWanted, scratch: &ScratchProject) -> Result<RunSeen, Failure> {
        let RunWanted { agent, fixture, input, approve, are_tools_recorded, answering, models } = wanted;
        let linked = Box::pin(self.linked(&agent, (models, answering), scratch.root())).await?;
        let program = linked.program();
        let is_replayed = answering != Answering::World;
        let has_fence = self.launch.fence.fence().is_there();
        let engine = Arc::new(TestJournal::new(ReplayPlan {
            answering,
            fixture,
            are_tools_recorded,
            server_prefixes: server_prefixes(program),
            unfenced: if has_fence { BTreeSet::new() } else { unfenced(program) },
            project: scratch.root().display().to_string(),
        }));
        if !is_replayed {
            linked.check_keys()?;
        }
        let default = program.default_input.clone();
        let fits_schema = match &program.entry {
            Entry::Agent(name) => program.agents.get(name).is_some_and(|agent| agent.output != Typing::Untyped),
            Entry::Function(_) | Entry::Open => false,
        };
        let input = input.or_else(|| Some(Input::from(default?.to::<Value>().ok()?)));
        let input = input.ok_or_else(|| {
            Failure::usage(format!("a case of `{agent}` has no input")).hint("give `input`, or `attachments`")
        })?;
        let use_of_models = if is_replayed { ModelUse::StandIn } else { ModelUse::Asked };
        let known: Arc<dyn KnownAnswers> = Arc::new(ApprovedInCase(approve.clone()));
        let record = Record::Observed(Arc::clone(&engine) as Arc<dyn Journal>, use_of_models);
        let ready = linked.ready(record, Some(known))?;
        let mut seen = RunSeen::default();
        seen.outcome.fits_schema = fits_schema;
        let (session, mut updates) = ready.start(ListenPlan::default());
        let runtime = Arc::clone(&session.runtime);
        session.turn(input);
        let mut session = Some(session);
        while let Some(update) = updates.next().await {
            match update {
                Update::Events(events) => events.for_each(|event| seen.hear(&event.kind, &approve)),
                Update::TurnEnded(result) => {
                    let reason = result.answer.as_ref().err().map(EndReason::of);
                    seen.is_limited = reason == Some(EndReason::Limit);
                    seen.end(result.answer.map_err(|error| error.to_string()));
                    drop(session.take());
                }
                Update::Question(_)
                | Update::Answered(..)
                | Update::Note(_)
                | Update::Opened(_)
                | Update::Changed(_)
                | Update::Closed(_) => {}
            }
        }
        seen.see(&runtime.trace());
        seen.fixture = engine.fixture();
        seen.stale = engine.stale(seen.outcome.error.is_none());
        seen.skipped = engine.skipped();
        Ok(seen)
    }
}

/// One run of a case: that of the agent, or of its judge.
struct RunWanted {
    agent: String,
    fixture: Fixture,
    input: Option<Input>,
    approve: ApprovedTools,
    are_tools_recorded: bool,
    answering: Answering,
    models: ModelChoices,
}

impl RunSeen {
    fn hear(&mut self, event: &EventKind, approve: &ApprovedTools) {
        match event {
            EventKind::RequestFinished { usage, .. } | EventKind::RequestFailed { usage, .. } => {
                self.usage = self.usage.plus(usage);
            }
            // What was refused reached no tool.
            EventKind::ToolCalled { tool, .. } => self.outcome.called.push(tool.clone()),
            EventKind::CallStarted { name, kind: CallKind::Agent, parent: Some(_), .. } => {
                self.outcome.called.push(name.clone());
            }
            EventKind::ApprovalAsked { tool, .. } => self.outcome.asked.push((tool.clone(), approve.covers(tool))),
            _ => {}
        }
    }

    fn end(&mut self, answer: Result<Output, String>) {
        match answer {
            Ok(Output::Text(text)) => self.outcome.output = Some(Value::String(text)),
            Ok(Output::Value(json)) => self.outcome.output = json.to().ok(),
            Err(error) => self.outcome.error = Some(error),
        }
    }

    /// What was called: the call of the entry stands above all others.
    fn see(&mut self, entries: &[Arc<TraceCall>]) {
        let made = |call: &TraceCall| CallMade {
            tool: call.name.clone(),
            arguments: call.input.as_ref().and_then(|input| input.to().ok()).unwrap_or_default(),
        };
        let own = entries.iter().flat_map(|entry| &entry.calls).filter(|call| call.kind != CallKind::ServerTool);
        self.outcome.calls = own.map(made).collect();
    }
}

/// What a case answers to questions.
struct ApprovedInCase(ApprovedTools);

impl KnownAnswers for ApprovedInCase {
    fn answer_to(&self, request: &ApprovalRequest) -> Option<Answer> {
        let refused = || Answer::refuse("the case does not approve it");
        Some(if self.0.covers(&request.tool) { Answer::Once } else { refused() })
    }
}

/// What a judge says, unless it is content.
fn judgement(at_least: f64, outcome: &CaseOutcome) -> Option<Miss> {
    let miss = |came: String| Miss {
        of: "judge".to_owned(),
        expected: format!("a score of at least {at_least}"),
        came,
        are_texts: false,
    };
    if let Some(error) = &outcome.error {
        return Some(miss(format!("the judge failed: {error}")));
    }
    let output = match outcome.output.clone().unwrap_or_default() {
        Value::String(text) => serde_json::from_str(&text).unwrap_or_default(),
        other => other,
    };
    let why = output["why"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
    match (output["score"].as_f64(), output["pass"].as_bool()) {
        (Some(score), _) if score >= at_least => None,
        (Some(score), _) => Some(miss(format!("{score}{why}"))),
        (None, Some(true)) => None,
        (None, Some(false)) => Some(miss(format!("it does not pass{why}"))),
        (None, None) => Some(miss("an answer with neither `score` nor `pass`".to_owned())),
    }
}

/// What the names of servers' tools begin with.
fn server_prefixes(program: &Program) -> Vec<String> {
    let mut prefixes = BTreeSet::new();
    for used in program.agents.values().flat_map(|agent| agent.tools.iter().chain(&agent.toolsets)) {
        if matches!(used.source.origin(), ToolsetSource::Mcp(_)) {
            prefixes.insert(used.source.prefix());
        }
    }
    prefixes.into_iter().collect()
}

/// The tools that run programs of the project, which nothing keeps within bounds here.
fn unfenced(program: &Program) -> BTreeSet<String> {
    let mut tools = BTreeSet::new();
    for agent in program.agents.values() {
        for used in agent.tools.iter().chain(&agent.toolsets) {
            if matches!(used.source.origin(), ToolsetSource::Shell(_) | ToolsetSource::Python(_)) {
                let declared = used.source.declared_tools();
                tools.extend(declared.iter().flat_map(|tools| tools.iter()).map(|tool| tool.name.to_string()));
            }
        }
    }
    tools
}
