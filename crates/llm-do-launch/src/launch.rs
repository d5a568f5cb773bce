//! From what was decided to a session, in phases: [`Launch`] → [`SurveyedLaunch`] → [`TrustedLaunch`] → [`LinkedLaunch`] →
//! [`ReadyRun`] → [`Session`]. Each phase is a type, so that nothing of a project starts before somebody agreed to it, and
//! nothing is asked or written before everything is known that can be known.

use llm_do::approval::{ApprovalMode, KnownAnswers};
use llm_do::created::WorkerDefaults;
use llm_do::escape::visible_lines;
use llm_do::events::MessageLog;
use llm_do::fence::FenceConfig;
use llm_do::policy::{Explanation, LastingRule};
use llm_do::program::{Code, Entry, Survey, Typing};
use llm_do::providers::ModelFallback;
use llm_do::questions::{AnswerDesk, QuestionBroker, QuestionUpdates};
use llm_do::records::{RunKind, run_id};
use llm_do::runs::{OutsideCaller, UnknownPrices};
use llm_do::store::desk::RunAnswers;
use llm_do::telemetry::{RunTelemetry, TraceParent};
use llm_do::toolsets::{DeclaredTool, Refusals};
use llm_do::trust::{Agreement, Fingerprint, SurveyedProject, TrustItem, TrustedProgram, TrustedProject, items};
use llm_do::{
    Answer, ApprovalRequest, Approvals, Approver, Input, Journal, Limits, Listen, Message, ModelChoices, ModelName,
    Models, Program, Project, RawJson, Runtime, RuntimeConfig, WorkingDirectory,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::LaunchError;
use crate::keep::{KeepPlan, RunKeeper, RunSubject};
use crate::notify::{AnswerWording, Notifier};
use crate::program_terms::{ProgramTerms, ruled, with_client_terms, with_creation_defaults};
use crate::python::PythonPlan;
use crate::record::{RunHeader, RunRecord, WrittenSpan};
use crate::rehearsal::RehearsedRequest;
use crate::session::{Session, SessionLength, SessionPace, SessionParts, SessionUpdates, TurnReport};
use crate::settings::Settings;
use crate::tools::ToolOffer;
use crate::trust::{Settlement, Standing, TrustAnswers};
use crate::{budgets, cached, children, fencing, logins, providers, rules, text, tools, trust, usable};

/// What was decided about a run; made once.
#[derive(Clone)]
pub struct Launch {
    /// As it was typed, relative to the directory.
    pub project: PathBuf,
    /// Whether there is no project, and a plain assistant without tools answers.
    pub assistant: bool,
    /// The base of relative paths, of shells and of children.
    pub directory: WorkingDirectory,
    /// Where it starts, if not where the project says.
    pub entry: Option<String>,
    pub python: PythonPlan,
    pub models: ModelChoices,
    pub tools: ToolOffer,
    pub policy: PolicyOverrides,
    pub fence: FenceConfig,
    /// What created agents get where whoever creates them is silent.
    pub created: WorkerDefaults,
    /// Files that the front end itself writes, relative to the directory: no tool changes them without a question.
    pub own_files: Vec<PathBuf>,
    pub purpose: Purpose,
    /// What a program decided that holds the run.
    pub terms: ProgramTerms,
    /// Lasting rules of the user and of the organisation; read when the project is.
    pub rules: Vec<Arc<LastingRule>>,
    /// The span on whose behalf it runs, if whoever wants it is traced: the run stands beneath it, and one that goes on is
    /// linked to it.
    pub trace_parent: Option<TraceParent>,
}

/// What counts before the project's own policy.
#[derive(Clone, Debug)]
pub struct PolicyOverrides {
    pub approval_mode: Option<ApprovalMode>,
    /// Whether questions go to the front end.
    pub is_attended: bool,
    pub max_depth: Option<u64>,
    pub limits: Limits,
    pub unknown_prices: UnknownPrices,
    /// Ask for streams, or for whole documents.
    pub stream: bool,
    /// What becomes of replies that are known from other runs.
    pub cache: CacheUse,
}

/// What becomes of replies that are known from other runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheUse {
    /// They count for agents whose files say so.
    #[default]
    Used,
    /// The same; and of each that is not known it is said what has changed.
    Explained,
    /// Models are asked anew, and nothing is kept.
    Unused,
}

/// The project's own policy, and nobody to ask.
impl Default for PolicyOverrides {
    fn default() -> Self {
        Self {
            approval_mode: None,
            is_attended: false,
            max_depth: None,
            limits: Limits::default(),
            unknown_prices: UnknownPrices::Refused,
            stream: true,
            cache: CacheUse::Used,
        }
    }
}

/// What a run is for.
#[derive(Clone, Debug, Default)]
pub enum Purpose {
    #[default]
    Answer,
    /// To show the first request instead of sending it.
    FirstRequest(RehearsedRequest),
}

/// What becomes of the steps of a run.
#[derive(Default)]
pub enum Record {
    #[default]
    Ephemeral,
    /// Kept in the store, where it begins with this header.
    Keep(KeepPlan, Box<RunHeader>),
    /// Kept in a new file, which begins with this header.
    File(PathBuf, RunKind, Box<RunHeader>),
    /// A run that is in a record already.
    Known(RunRecord),
    /// Seen by an engine of the front end, which keeps what it wants of it: a case of a test.
    Observed(Arc<dyn Journal>, ModelUse),
}

/// Whether models are asked at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelUse {
    Asked,
    /// The engine answers for them: no key is wanted, no connection made, and nothing costs.
    StandIn,
}

impl Launch {
    /// Where the project is, as the process opens it.
    pub fn project_path(&self) -> PathBuf {
        self.directory.join(&self.project)
    }

    /// Reads and links the project. Nothing of it runs.
    pub fn survey(self, settings: &Arc<Settings>) -> Result<SurveyedLaunch, LaunchError> {
        let project = if self.assistant {
            Project::new(self.directory.join(".")).agent("assistant.worker", ASSISTANT)
        } else {
            Project::load_from(&self.project, &self.directory).map_err(LaunchError::Project)?
        };
        self.survey_project(project, settings)
    }

    /// The same, of a project that is there already, such as one that a program gives as values.
    pub fn survey_project(mut self, project: Project, settings: &Arc<Settings>) -> Result<SurveyedLaunch, LaunchError> {
        self.offer_model()?;
        read_scripts(&mut self.models, &self.directory)?;
        let project = match self.entry.as_deref() {
            Some(entry) => project.with_created(entry),
            None => project,
        };
        // A file of rules that cannot be read stops everything: a rule in it may block what would run.
        self.rules = rules::load(settings)?;
        let surveyed = project.surveyed(&self.models, self.entry.as_deref()).map_err(LaunchError::Project)?;
        Ok(SurveyedLaunch { launch: self, settings: Arc::clone(settings), surveyed })
    }
}

impl Launch {
    /// The model that a program gives to agents without one is a fallback, which no agent need use: a program that gives it
    /// to every call need not know which agents have a model of their own.
    fn offer_model(&mut self) -> Result<(), LaunchError> {
        let Some(text) = &self.terms.model else { return Ok(()) };
        let model = ModelName::parse(text).map_err(|error| {
            LaunchError::usage(format!("`model`: {error}"))
                .hint("write `provider:model`, for example `anthropic:claude-haiku-4-5`")
        })?;
        self.models.fallbacks.insert(0, ModelFallback { model, label: "`model`".to_owned(), others: Vec::new() });
        Ok(())
    }
}

/// Whoever answers where no project was named.
const ASSISTANT: &str = "---\nname: assistant\n---\nAnswer what the user asks, as briefly as it can be answered well. You have no \
tools: say so where one would be needed.\n";

/// Scripts that the user names outside the project, relative to the working directory.
fn read_scripts(models: &mut ModelChoices, directory: &WorkingDirectory) -> Result<(), LaunchError> {
    let chosen =
        models.required.iter().chain(&models.all).chain(
            models.fallbacks.iter().flat_map(|fallback| std::iter::once(&fallback.model).chain(&fallback.others)),
        );
    let named: Vec<ModelName> =
        chosen.chain(models.overrides.values()).filter(|model| model.provider == "scripted").cloned().collect();
    for ModelName { model: file, .. } in named {
        let text = text::file(&format!("the script `{file}`"), &directory.join(&file))?;
        models.scripts.insert(file, text);
    }
    Ok(())
}

/// A project that was read and linked, and of which nothing has run.
pub struct SurveyedLaunch {
    pub launch: Launch,
    settings: Arc<Settings>,
    surveyed: SurveyedProject,
}

impl SurveyedLaunch {
    pub fn project(&self) -> &Project {
        self.surveyed.project()
    }

    pub fn program(&self) -> &Program {
        &self.surveyed.linked().program
    }

    /// What it asks of whoever runs it.
    pub fn trust_items(&self) -> Vec<TrustItem> {
        items(&self.surveyed)
    }

    /// How it stands with trust, without asking anybody.
    pub fn standing(&self, answers: &TrustAnswers<'_>) -> Result<Standing, LaunchError> {
        trust::standing(&self.surveyed, answers, &self.settings.state)
    }

    /// As it is, for whoever only looks.
    pub fn into_surveyed(self) -> SurveyedProject {
        self.surveyed
    }

    /// A copy of a project of which somebody agreed to these items: it may ask for nothing else.
    pub fn trust_as(self, agreed: &[TrustItem]) -> Result<TrustedLaunch, LaunchError> {
        let Self { launch, settings, surveyed } = self;
        let digests = agreed.iter().map(|item| item.digest.clone()).collect();
        match surveyed.trusted(Agreement::Items(&digests)) {
            Ok(trusted) => Ok(TrustedLaunch { launch, settings, trusted }),
            Err(surveyed) => {
                let new = items(&surveyed).into_iter().find(|item| !digests.contains(&item.digest));
                let what = new.map(|item| format!(": {} {}", item.class.words(), item.words)).unwrap_or_default();
                Err(LaunchError::refused(format!("the scratch project asks for more than was agreed to{what}")))
            }
        }
    }

    /// Asks for trust as far as it is not given yet. What there is to say about that is told.
    pub async fn trust(
        self,
        answers: &TrustAnswers<'_>,
        tell: impl FnOnce(&[TrustItem], Option<String>),
    ) -> Result<TrustedLaunch, LaunchError> {
        let Self { launch, settings, surveyed } = self;
        let Settlement { trusted, news, unkept } = trust::settle(surveyed, answers, &settings.state).await?;
        tell(&news, unkept);
        Ok(TrustedLaunch { launch, settings, trusted })
    }

    /// What a program gives as values is its own: there is nothing to agree to.
    pub fn trust_as_own(self) -> Result<TrustedLaunch, LaunchError> {
        let Self { launch, settings, surveyed } = self;
        let trusted = surveyed.trusted(Agreement::Everything);
        let trusted = trusted.map_err(|_| LaunchError::refused("the project is not trusted"))?;
        Ok(TrustedLaunch { launch, settings, trusted })
    }
}

/// A project that somebody agreed to.
pub struct TrustedLaunch {
    pub launch: Launch,
    settings: Arc<Settings>,
    trusted: TrustedProject,
}

impl TrustedLaunch {
    pub fn project(&self) -> &Project {
        self.trusted.project()
    }

    pub fn program(&self) -> &Program {
        self.trusted.program()
    }

    pub fn trusted_project(&self) -> &TrustedProject {
        &self.trusted
    }

    /// As it is, for whoever only looks.
    pub fn into_linked(self) -> Survey {
        self.trusted.into_linked()
    }

    /// Links it again with what its servers offer.
    pub fn offering(self, offered: BTreeMap<String, Vec<DeclaredTool>>) -> Result<Self, LaunchError> {
        let Self { launch, settings, trusted } = self;
        let linked = trusted.offering(offered).relinked(&launch.models, launch.entry.as_deref());
        Ok(Self { trusted: linked.map_err(LaunchError::Project)?, launch, settings })
    }

    /// Whether Python has to be started, which takes its time.
    pub fn starts_python(&self) -> bool {
        matches!(self.trusted.project().code, Code::Unread)
    }

    /// Where its Python files are no Python, as warnings; nothing of them is run.
    pub async fn python_syntax(&self) -> llm_do::Report {
        let root = &self.trusted.project().root;
        let python = self.launch.python.python(root, None, &self.launch.fence, &self.launch.directory);
        self.trusted.python_syntax(&python).await
    }

    /// Starts the project's Python files, if it has any, and links it again with what they offer. Mistakes that need no
    /// code to be found were reported before any code ran.
    pub async fn start_python(self) -> Result<Self, LaunchError> {
        let Self { launch, settings, mut trusted } = self;
        if !matches!(trusted.project().code, Code::Absent) || has_stand_ins(trusted.program()) {
            let compiled = settings.state.compiled(trusted.project())?;
            let python = launch.python.python(&trusted.project().root, compiled, &launch.fence, &launch.directory);
            trusted = trusted.start_python(&python).await.map_err(LaunchError::Project)?;
            if let Code::Read(offer) = &trusted.project().code {
                if launch.python.tells_tracebacks() {
                    let told = |traceback: &String| visible_lines(traceback.trim_end()).replace('\n', "\n  | ");
                    offer.tracebacks.iter().for_each(|traceback| (settings.notes)(&format!("{}\n", told(traceback))));
                }
                let linked = trusted.relinked(&launch.models, launch.entry.as_deref());
                trusted = linked.map_err(LaunchError::Project)?;
            }
        }
        Ok(Self { launch, settings, trusted })
    }

    /// The program, in which no name is open any more.
    pub async fn link(self) -> Result<LinkedLaunch, LaunchError> {
        fencing::open_declared(&self.trusted, &self.launch.fence)?;
        let linked = self.start_python().await?.link_without_python();
        let (terms, created) = (linked.launch.terms.clone(), linked.launch.created.clone());
        let linked = linked.adapted(|program| {
            with_creation_defaults(ruled(with_client_terms(program, &terms), &terms.tool_rules)?, &created)
        })?;
        if linked.program().registry.python.is_some() {
            linked.program().find_endpoints().await.map_err(LaunchError::usage)?;
        }
        Ok(linked)
    }

    /// Without Python: every step is in a record, so what Python would do was done.
    pub fn link_without_python(self) -> LinkedLaunch {
        let Self { launch, settings, trusted } = self;
        let files = trusted.project().fingerprint();
        let has_servers = !trusted.project().servers().is_empty();
        LinkedLaunch { launch, settings, program: trusted.into_program(), files, has_servers }
    }
}

/// Whether some agent has code in its place or beside it.
fn has_stand_ins(program: &Program) -> bool {
    program.agents.values().any(|agent| agent.stand_in.is_some())
}

/// A program in which no name is open.
#[derive(Clone)]
pub struct LinkedLaunch {
    pub launch: Launch,
    settings: Arc<Settings>,
    program: TrustedProgram,
    /// Of the project as it is now.
    pub files: Fingerprint,
    has_servers: bool,
}

impl LinkedLaunch {
    pub fn program(&self) -> &Program {
        &self.program
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The same program, changed by whoever drives it.
    pub fn adapted<E>(self, change: impl FnOnce(Program) -> Result<Program, E>) -> Result<Self, E> {
        Ok(Self { program: self.program.adapted(change)?, ..self })
    }

    /// Whether the answer is text, of which pieces can be shown.
    pub fn answers_in_text(&self) -> bool {
        match &self.program.entry {
            Entry::Agent(name) => self.program.agents.get(name).is_some_and(|agent| agent.output == Typing::Untyped),
            Entry::Function(_) | Entry::Open => false,
        }
    }

    /// Refuses a run that would ask for a key which is not set. A run that is replayed or only rehearsed asks nobody.
    pub fn check_keys(&self) -> Result<(), LaunchError> {
        let Settings { variables, config, .. } = &*self.settings;
        match self.launch.purpose {
            Purpose::Answer => usable::check_keys(&self.program, &self.launch.project, variables, config),
            Purpose::FirstRequest(_) => Ok(()),
        }
    }

    /// The record of a new run that is to be kept. Where its place has no name that can be written down, it is not.
    pub fn kept(&self, plan: KeepPlan, input: Option<Input>) -> Result<Record, LaunchError> {
        match RunHeader::begin(&self.launch, self.files.clone(), input) {
            Ok(mut header) => {
                header.once = plan.once.as_ref().and_then(|_| header.said());
                Ok(Record::Keep(plan, Box::new(header)))
            }
            Err(error) => {
                plan.unkept(&error, &self.settings.notes)?;
                Ok(Record::Ephemeral)
            }
        }
    }

    /// Keys, connections and policy; a new record is begun here.
    pub fn ready(self, record: Record, known: Option<Arc<dyn KnownAnswers>>) -> Result<ReadyRun, LaunchError> {
        let Self { launch, settings, program, has_servers, .. } = self;
        let Settings { variables, config, state, .. } = &*settings;
        let created = if program.has_created() { state.created()? } else { None };
        let directory = &launch.directory;
        // What the variables name is relative to the process.
        let own = |path: PathBuf| directory.import(&path).unwrap_or(path);
        let rehearsed = match &launch.purpose {
            Purpose::Answer => None,
            Purpose::FirstRequest(rehearsed) => Some(rehearsed),
        };
        let stands_in = matches!(record, Record::Observed(_, ModelUse::StandIn));
        let (program, models) = if stands_in {
            tools::unasked(program, config)?
        } else {
            tools::cast(program, launch.tools, variables, config, directory, rehearsed)?
        };
        let models = models.sharing(settings.failed.clone());
        let models = models.connected_by(providers::connector(Arc::clone(&settings), directory.clone()));
        let state_directory = state.directory().map(Path::to_owned).map(own);
        let (overrides, policy) = (&launch.policy, &program.policy);
        let mut runtime = RuntimeConfig {
            refusals: if policy.return_permission_errors { Refusals::Return } else { Refusals::EndRun },
            max_depth: overrides.max_depth.unwrap_or(policy.max_depth),
            max_call_depth: policy.max_call_depth,
            limits: overrides.limits.or(&policy.limits),
            unknown_prices: overrides.unknown_prices,
            stream: overrides.stream,
            directory: directory.clone(),
            fence: launch.fence.clone(),
            wording: launch.fence.wording,
            creation_defaults: launch.created.clone(),
            created,
            private_directories: variables.own_directories().into_iter().map(own).collect(),
            program_directories: config.shell.directories.iter().map(|path| variables.expand(path)).collect(),
            redactor: children::redactor(variables, config),
            own_files: state_directory.into_iter().chain(launch.own_files.clone()).collect(),
            // Who answers is known when it is known whether the run is kept.
            ..RuntimeConfig::new(Approvals::reject_all())
        };
        if has_servers {
            runtime.http = providers::http_settings(variables, &config.http)?;
            runtime.children = children::environment(variables, config);
            runtime.mcp = logins::home(&settings);
        }
        let is_rehearsed = rehearsed.is_some();
        let subject = RunSubject::of(&program);
        let project = subject.project.display().to_string();
        let is_replayed = stands_in || matches!(&record, Record::Known(RunRecord { file: None, .. }));
        if !is_rehearsed && !is_replayed {
            runtime.budgets = budgets::in_force(&settings, &subject.project)?;
        }
        if !is_rehearsed && !is_replayed && !matches!(record, Record::Observed(..)) {
            runtime.cache = cached::replies(&settings, &program, launch.policy.cache, &subject.project, directory)?;
        }
        let rules_digest = rules::digest(&program.rules, &launch.rules, &subject.project);
        let is_traced = !is_rehearsed && !is_replayed;
        let telemetry = if is_traced { settings.telemetry() } else { None };
        let trace = launch.trace_parent.filter(|_| telemetry.is_some());
        let ruled =
            |header: RunHeader| RunHeader { rules: rules_digest.clone(), trace: trace.map(WrittenSpan), ..header };
        let record = match record {
            Record::Ephemeral => None,
            Record::Known(record) => Some(record),
            Record::Observed(engine, _) => Some(RunRecord::observed(engine)),
            Record::Keep(plan, header) => RunKeeper::begin(&settings, &plan, subject.clone(), ruled(*header))?,
            Record::File(file, kind, header) => {
                let file = launch.directory.join(file);
                Some(RunRecord::begin(&file, &ruled(*header), kind, variables.user(), state.key()?)?)
            }
        };
        let run = record.as_ref().map_or_else(run_id, |record| record.run.clone());
        let keeper = match &record {
            _ if is_rehearsed => None,
            Some(RunRecord { keeper: Some(keeper), .. }) => Some(Arc::clone(keeper)),
            // A replay costs nothing.
            _ if is_replayed => None,
            Some(_) | None => RunKeeper::of_costs(&settings, &run, subject).map(Arc::new),
        };
        let telemetry = telemetry.map(|telemetry| {
            let traced = record.as_ref().map(|record| record.traced.clone()).unwrap_or_default();
            telemetry.run(traced.of_run(&run, launch.trace_parent, runtime.redactor.clone()))
        });
        runtime.own_files.extend(record.as_ref().and_then(|record| record.file.clone()));
        let answers = keeper.as_ref().and_then(|keeper| keeper.answers());
        let notifier = match &answers {
            Some(_) => Notifier::of(&settings, &run, &project)?,
            None => None,
        };
        let mode = overrides.approval_mode.unwrap_or(policy.approval_mode);
        let (approvals, questions) = asked(mode, overrides.is_attended, known, answers);
        runtime.approvals = approvals.with_rules(launch.rules, rules::today());
        Ok(ReadyRun { program, models, config: runtime, questions, record, run, keeper, notifier, telemetry })
    }
}

/// Who answers the questions of a run. Those of a run that is kept can be answered by other processes too.
fn asked(
    mode: ApprovalMode,
    is_attended: bool,
    known: Option<Arc<dyn KnownAnswers>>,
    answers: Option<RunAnswers>,
) -> (Approvals, (QuestionBroker, QuestionUpdates)) {
    let answers = answers.map(Arc::new);
    let (broker, updates) = QuestionBroker::with_desk(answers.clone().map(|answers| answers as Arc<dyn AnswerDesk>));
    let approver = is_attended.then(|| Arc::new(broker.clone()) as Arc<dyn Approver>);
    let of_files = answers.map(|answers| answers as Arc<dyn KnownAnswers>);
    let all: Vec<Arc<dyn KnownAnswers>> = known.into_iter().chain(of_files).collect();
    let known = (!all.is_empty()).then(|| Arc::new(FirstKnown(all)) as Arc<dyn KnownAnswers>);
    (Approvals { mode, approver, known, ..Approvals::default() }, (broker, updates))
}

/// Answers that are known from several places: the first that has one counts.
struct FirstKnown(Vec<Arc<dyn KnownAnswers>>);

impl KnownAnswers for FirstKnown {
    fn answer_to(&self, request: &ApprovalRequest) -> Option<Answer> {
        self.0.iter().find_map(|known| known.answer_to(request))
    }
}

/// All that a run needs.
pub struct ReadyRun {
    program: TrustedProgram,
    models: Models,
    config: RuntimeConfig,
    questions: (QuestionBroker, QuestionUpdates),
    record: Option<RunRecord>,
    run: String,
    keeper: Option<Arc<RunKeeper>>,
    notifier: Option<Notifier>,
    telemetry: Option<Arc<RunTelemetry>>,
}

/// What names a run that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// Its id, in the store.
    Run(String),
    /// Its journal.
    File(PathBuf),
}

/// How a front end wants to hear of a session.
#[derive(Default)]
pub struct ListenPlan {
    pub hearing: Option<Listen>,
    pub report: TurnReport,
    /// On whose behalf the entry is called, if an agent elsewhere does.
    pub caller: Option<OutsideCaller>,
    pub pace: Option<Arc<dyn SessionPace>>,
    /// Whoever keeps the messages.
    pub log: Option<Arc<dyn MessageLog>>,
    /// What was said elsewhere, which the conversation begins with.
    pub history: Vec<Message>,
    pub length: SessionLength,
    /// Where files are written that replies and results bring, if not beside the record of a kept run.
    pub files: Option<PathBuf>,
    /// How a question is answered from elsewhere, in the words of the front end.
    pub answering: Option<AnswerWording>,
}

fn traced(runtime: Runtime, telemetry: Option<Arc<RunTelemetry>>) -> Runtime {
    match telemetry {
        Some(telemetry) => runtime.traced_by(telemetry),
        None => runtime,
    }
}

impl ReadyRun {
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What the run can be resumed by.
    pub fn resumption(&self) -> Option<Resumption> {
        let record = self.record.as_ref()?;
        let is_stored = record.keeper.as_ref().is_some_and(|keeper| keeper.store().is_some());
        match &record.file {
            Some(_) if is_stored => Some(Resumption::Run(record.run.clone())),
            Some(file) => Some(Resumption::File(file.clone())),
            None => None,
        }
    }

    /// What would become of a call of a tool of the agent, or of the project's entry, and why. Nothing is called.
    pub async fn explain(
        self,
        agent: Option<&str>,
        tool: &str,
        arguments: &RawJson,
    ) -> Result<Explanation, LaunchError> {
        let entry = match &self.program.entry {
            Entry::Agent(name) => Some(name.clone()),
            Entry::Function(_) | Entry::Open => None,
        };
        let agent = agent.map(str::to_owned).or(entry);
        let agent = agent.ok_or_else(|| {
            LaunchError::usage("the project begins with a function, which has no tools").hint("name an agent")
        })?;
        let runtime = Runtime::new(self.program, self.models, self.config);
        runtime.explain(&agent, tool, arguments).await.map_err(|error| LaunchError::usage(error.to_string()))
    }

    /// The run without a session: whoever drives it calls what it likes, and hears nothing.
    pub(crate) fn into_runtime(self) -> (Runtime, Option<Arc<RunKeeper>>, String) {
        let Self { program, models, config, record, run, keeper, telemetry, .. } = self;
        let runtime = traced(Runtime::new(program, models, config), telemetry).identified(run.clone());
        // Its own record has no steps: it is held open by whoever writes down how the run ends.
        drop(record);
        (runtime, keeper, run)
    }

    /// Starts the session: the entry is opened with its first turn, or when it is asked to.
    pub fn start(self, listen: ListenPlan) -> (Session, SessionUpdates) {
        let Self { program, models, config, questions, record, run, keeper, notifier, telemetry } = self;
        let hearing = listen.hearing.unwrap_or(Listen::Facts);
        let (runtime, events) = Runtime::with_listener(program, models, config, hearing);
        let runtime = traced(runtime, telemetry);
        let runtime = match listen.log {
            Some(log) => runtime.logged_by(log),
            None => runtime,
        };
        let runtime = runtime.identified(run);
        let restores = record.as_ref().is_some_and(|record| record.restores);
        let runtime = match record {
            Some(RunRecord { engine, resumed, .. }) => runtime.recorded_by(engine as Arc<dyn Journal>, resumed),
            None => runtime,
        };
        let ListenPlan { report, caller, pace, answering, history, length, files, .. } = listen;
        let files = files.or_else(|| keeper.as_deref().and_then(RunKeeper::files));
        let notifier = notifier.map(|notifier| Arc::new(notifier.worded(answering)));
        Session::start(SessionParts {
            runtime,
            events,
            questions,
            caller,
            report,
            pace,
            keeper,
            notifier,
            restores,
            history,
            length,
            files,
        })
    }
}
