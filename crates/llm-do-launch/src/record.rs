//! What a journal of this program says about a run: made from a launch, and made a launch again; and the errors around it.

use llm_do::approval::ApprovalMode;
use llm_do::created::WorkerDefaults;
use llm_do::fence::FenceConfig;
use llm_do::names::is_name;
use llm_do::providers::ModelNameError;
use llm_do::records::{
    JournalContents, JournalError, JournalSettings, NewRun, PriorSpending, RunIdentity, RunKind, StateKey, is_run_id,
    run_id,
};
use llm_do::remedy::Remedy;
use llm_do::runs::{Redactor, UnknownPrices};
use llm_do::telemetry::{RunTrace, TraceParent, TracePrior};
use llm_do::trust::Fingerprint;
use llm_do::{
    FileJournal, Input, Journal, Limits, ModelChoices, ModelName, OnLimit, RawJson, WorkingDirectory, records,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::LaunchError;
use crate::items::MapRecord;
use crate::keep::RunKeeper;
use crate::launch::{CacheUse, Launch, PolicyOverrides, Purpose};
use crate::program_terms::ProgramTerms;
use crate::python::PythonPlan;
use crate::state::StateDirectory;
use crate::tools::ToolOffer;

/// All that resuming needs to know. Keys of providers are not part of it, and neither is `--approve-all`: a file must not
/// be able to agree to anything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunHeader {
    pub run: String,
    /// As it was typed, relative to the directory.
    pub project: PathBuf,
    /// Where the run was started.
    pub directory: PathBuf,
    pub flags: LaunchRecord,
    /// The files of the project when the run began; once it is read, when its last turn did.
    pub files: Fingerprint,
    /// What was said. The turns of a conversation are in its record, and it has none of its own.
    #[serde(default)]
    pub input: Option<Input>,
    /// The digest of the lasting rules that were in force when the run began, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// The digest of what was said and to which agent, if only one run may have its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<String>,
    /// The span that the run stands beneath, if somebody else began the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<WrittenSpan>,
    /// Where the items of a run over many are, and what becomes of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<MapRecord>,
}

/// What was decided about a run, as far as one that goes on later inherits it.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag, as it was given")]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LaunchRecord {
    #[serde(default)]
    pub models: Vec<String>,
    pub agent: Option<String>,
    #[serde(default)]
    pub no_stream: bool,
    #[serde(default)]
    pub reject_all: bool,
    #[serde(default)]
    pub no_tools: bool,
    pub max_requests: Option<u64>,
    pub max_cost_usd: Option<f64>,
    #[serde(default)]
    pub allow_unknown_prices: bool,
    pub max_depth: Option<u64>,
    pub python: Option<PathBuf>,
    /// Whether each step is on the disk before the next one.
    #[serde(default)]
    pub durable: bool,
    /// Whether models were asked anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_cache: bool,
    /// Whether there was no project, and a plain assistant answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assistant: bool,
    /// Limits that only programs and manifests set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_input_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// What happens where a limit is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<OnLimit>,
    /// What a program that held the run decided.
    #[serde(default, skip_serializing_if = "ProgramTerms::is_empty")]
    pub terms: ProgramTerms,
    /// What agents get that the run creates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<WorkerDefaults>,
}

/// What is decided anew about a run that goes on. Where it says nothing, the record does.
#[derive(Clone)]
pub struct LaunchOverrides {
    /// The scripts that these name are relative to the directory of the run.
    pub models: ModelChoices,
    pub python: PythonPlan,
    pub policy: PolicyOverrides,
    pub fence: FenceConfig,
    /// Relative to the directory of the run.
    pub own_files: Vec<PathBuf>,
    pub terms: ProgramTerms,
    pub created: Option<WorkerDefaults>,
    /// The span on whose behalf it goes on.
    pub trace_parent: Option<TraceParent>,
}

/// A span as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenSpan(pub TraceParent);

impl Serialize for WrittenSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for WrittenSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        TraceParent::parse(&text).map(Self).ok_or_else(|| D::Error::custom("it names no span"))
    }
}

/// What is known of the spans of a run that is recorded.
#[derive(Clone, Debug, Default)]
pub struct TracedRecord {
    /// Where it is noted that a collector has them.
    pub journal: Option<Weak<FileJournal>>,
    /// What the run stands beneath, as it was written down.
    pub parent: Option<TraceParent>,
    /// What earlier processes did in it.
    pub prior: Option<TracePrior>,
}

impl TracedRecord {
    /// Of a run that begins.
    pub fn begun(journal: &Arc<FileJournal>) -> Self {
        Self { journal: Some(Arc::downgrade(journal)), ..Self::default() }
    }

    /// The run as it is traced. Who wants it now is what it stands beneath, or, if it goes on, what it is linked to.
    pub(crate) fn of_run(self, run: &str, wanted_by: Option<TraceParent>, redactor: Redactor) -> RunTrace {
        let Self { journal, parent, prior } = self;
        let (parent, link) = if prior.is_some() { (parent, wanted_by) } else { (wanted_by, None) };
        RunTrace { run: run.to_owned(), parent, link, prior, journal, redactor }
    }
}

impl LaunchRecord {
    /// What a run that goes on later inherits of a launch. `--approve-all` is no part of it.
    pub fn of(launch: &Launch) -> Self {
        let PolicyOverrides { approval_mode, is_attended: _, max_depth, limits, unknown_prices, stream, cache } =
            &launch.policy;
        let models = &launch.models;
        let (required, all, of_agents) = (models.required.clone(), models.all.clone(), models.overrides.clone());
        Self {
            models: ModelWords { required, all, of_agents }.words(),
            agent: launch.entry.clone(),
            no_stream: !stream,
            reject_all: *approval_mode == Some(ApprovalMode::RejectAll),
            no_tools: launch.tools == ToolOffer::Withheld,
            max_requests: limits.max_requests,
            max_cost_usd: limits.max_cost_usd,
            allow_unknown_prices: *unknown_prices == UnknownPrices::Allowed,
            max_depth: *max_depth,
            python: launch.python.named().map(Path::to_owned),
            durable: false,
            no_cache: *cache == CacheUse::Unused,
            assistant: launch.assistant,
            max_tool_calls: limits.max_tool_calls,
            max_input_tokens: limits.max_input_tokens,
            max_output_tokens: limits.max_output_tokens,
            timeout_seconds: limits.timeout_seconds,
            on_limit: limits.on_limit,
            terms: launch.terms.clone(),
            created: Some(launch.created.clone()).filter(|created| *created != WorkerDefaults::default()),
        }
    }

    /// The launch of a run that goes on: of this project, whose path was typed in this directory.
    pub fn launch(
        self,
        project: PathBuf,
        directory: WorkingDirectory,
        overrides: LaunchOverrides,
    ) -> Result<Launch, LaunchError> {
        let LaunchOverrides { models, python, policy, fence, own_files, terms, created, trace_parent } = overrides;
        let policy = self.policy(&policy);
        if !is_amount(policy.limits.max_cost_usd) {
            return Err(LaunchError::usage("the limit of the run's cost is not an amount"));
        }
        let unreadable = |error| LaunchError::usage(format!("the models of the run: {error}"));
        let chosen = chosen_models(&self.models).map_err(unreadable)?.under(&models);
        let python = match python.named() {
            Some(_) => python,
            None => python.naming(self.python.clone()),
        };
        Ok(Launch {
            project,
            assistant: self.assistant,
            directory,
            python,
            models: ModelChoices { required: chosen.required, all: chosen.all, overrides: chosen.of_agents, ..models },
            tools: if self.no_tools { ToolOffer::Withheld } else { ToolOffer::Offered },
            policy,
            entry: self.agent,
            fence,
            created: created.or(self.created).unwrap_or_default(),
            own_files,
            purpose: Purpose::Answer,
            terms: terms.or(&self.terms),
            rules: Vec::new(),
            trace_parent,
        })
    }

    fn policy(&self, anew: &PolicyOverrides) -> PolicyOverrides {
        let recorded = Limits {
            max_requests: self.max_requests,
            max_tool_calls: self.max_tool_calls,
            max_input_tokens: self.max_input_tokens,
            max_output_tokens: self.max_output_tokens,
            max_cost_usd: self.max_cost_usd,
            timeout_seconds: self.timeout_seconds,
            on_limit: self.on_limit,
        };
        let is_allowed = self.allow_unknown_prices || anew.unknown_prices == UnknownPrices::Allowed;
        PolicyOverrides {
            approval_mode: anew.approval_mode.or(self.reject_all.then_some(ApprovalMode::RejectAll)),
            is_attended: anew.is_attended,
            max_depth: anew.max_depth.or(self.max_depth),
            limits: anew.limits.or(&recorded),
            unknown_prices: UnknownPrices::when(is_allowed),
            stream: anew.stream && !self.no_stream,
            cache: if self.no_cache { CacheUse::Unused } else { anew.cache },
        }
    }
}

/// Whether a run can be limited to this amount of money.
pub fn is_amount(max_cost_usd: Option<f64>) -> bool {
    max_cost_usd.is_none_or(|usd| usd > 0.0)
}

/// Why words choose no models. A front end words it with the names of its own flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelWordsError {
    /// One agent has two models.
    #[error("the agent `{0}` has two models")]
    TwiceForAgent(String),
    /// There are two models for the agent that a run starts with.
    #[error("two models are chosen for where the run starts")]
    Twice,
    /// A word is no model.
    #[error("{0}")]
    NoModel(ModelNameError),
}

/// Models that were chosen for a run, as words say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelWords {
    /// For the entry, and for agents whose files name none: `provider:model`.
    pub required: Option<ModelName>,
    /// For every agent: `all=provider:model`.
    pub all: Option<ModelName>,
    /// For one agent each: `AGENT=provider:model`.
    pub of_agents: BTreeMap<String, ModelName>,
}

/// What stands for every agent where the name of one could.
const ALL: &str = "all";

impl ModelWords {
    /// These, as far as nothing else is chosen anew.
    pub(crate) fn under(self, anew: &ModelChoices) -> Self {
        let mut of_agents = self.of_agents;
        of_agents.extend(anew.overrides.clone());
        let required = anew.required.clone().or(self.required);
        Self { required, all: anew.all.clone().or(self.all), of_agents }
    }

    /// The words that these are read from.
    pub(crate) fn words(&self) -> Vec<String> {
        let all = self.all.iter().map(|model| format!("{ALL}={model}"));
        let of_agents = self.of_agents.iter().map(|(agent, model)| format!("{agent}={model}"));
        self.required.iter().map(ModelName::to_string).chain(all).chain(of_agents).collect()
    }
}

/// Reads words such as `provider:model`, `all=provider:model` and `AGENT=provider:model`.
pub fn chosen_models(words: &[String]) -> Result<ModelWords, ModelWordsError> {
    let mut chosen = ModelWords::default();
    for text in words {
        match text.split_once('=').filter(|(agent, _)| is_name(agent)) {
            Some((agent, model)) => {
                let model = chosen_model(model)?;
                let before = match agent {
                    ALL => chosen.all.replace(model),
                    agent => chosen.of_agents.insert(agent.to_owned(), model),
                };
                if before.is_some() {
                    return Err(ModelWordsError::TwiceForAgent(agent.to_owned()));
                }
            }
            None if chosen.required.is_none() => chosen.required = Some(chosen_model(text)?),
            None => return Err(ModelWordsError::Twice),
        }
    }
    Ok(chosen)
}

fn chosen_model(text: &str) -> Result<ModelName, ModelWordsError> {
    ModelName::parse(text).map_err(ModelWordsError::NoModel)
}

impl RunHeader {
    /// Of a run that begins.
    pub fn begin(launch: &Launch, files: Fingerprint, input: Option<Input>) -> Result<Self, LaunchError> {
        let directory = launch.directory.path();
        let directory =
            directory.map_err(|error| LaunchError::failed(format!("the working directory is unknown: {error}")))?;
        let (project, flags) = (launch.project.clone(), LaunchRecord::of(launch));
        let unspeakable = [&project, &directory].into_iter().chain(&flags.python).find(|path| path.to_str().is_none());
        if let Some(path) = unspeakable {
            return Err(LaunchError::usage(format!("a journal is UTF-8, and the path {} is not", path.display()))
                .hint(Remedy::RunElsewhere));
        }
        Ok(Self {
            run: run_id(),
            project,
            directory,
            flags,
            files,
            input,
            rules: None,
            once: None,
            trace: None,
            map: None,
        })
    }

    /// A digest of what was said and to which entry: runs with one key have the same.
    pub fn said(&self) -> Option<String> {
        let input = RawJson::of(self.input.as_ref()?);
        Some(records::digest([self.flags.agent.as_deref().unwrap_or_default(), input.get()]))
    }

    /// Where the run was started, and works when it goes on.
    pub fn working_directory(&self) -> Result<WorkingDirectory, LaunchError> {
        WorkingDirectory::at(&self.directory).map_err(|error| {
            let directory = self.directory.display();
            LaunchError::usage(format!("the run's directory {directory} cannot be entered: {error}"))
        })
    }

    pub fn of(contents: &JournalContents, file: &Path) -> Result<Self, LaunchError> {
        let header: Self = contents.header.to().map_err(|error| {
            LaunchError::usage(format!("the journal {} was not written by `llm-do run`: {error}", file.display()))
        })?;
        // An id of another form is a stranger's, or of a time before ids were signed.
        let run = if is_run_id(&header.run) { header.run.clone() } else { run_id() };
        let last = contents.turns().last().map(|(turn, _)| *turn);
        let files = header.files_of(last, contents);
        Ok(Self { run, files, ..header })
    }

    /// The files of the project as a turn began with them: those of the beginning, unless somebody went on with others.
    pub fn files_of(&self, turn: Option<u64>, contents: &JournalContents) -> Fingerprint {
        let note = turn.and_then(|turn| contents.note_before_turn(turn));
        let noted = note.and_then(|note| note.to::<ResumptionNote>().ok());
        noted.map_or_else(|| self.files.clone(), |noted| noted.files)
    }
}

/// What is written down when a run goes on with a project that has changed: the next turn begins with these files.
#[derive(Debug, Serialize, Deserialize)]
pub struct ResumptionNote {
    pub files: Fingerprint,
}

/// Who wrote a journal, as whoever names it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// This user, on this machine or on one that shares its key.
    User,
    Stranger,
}

impl Author {
    /// A stranger, or the user.
    pub fn of(is_foreign: bool) -> Self {
        if is_foreign { Self::Stranger } else { Self::User }
    }
}

/// What a journal says, without going on with it.
pub fn read(file: &Path, author: Author, state: &StateDirectory) -> Result<JournalContents, LaunchError> {
    let contents = match author {
        Author::User => records::read(file, state.key()?),
        Author::Stranger => records::read_foreign(file),
    };
    contents.map_err(unusable)
}

/// The engine of a run, and what is known of it already.
pub struct RunRecord {
    pub engine: Arc<dyn Journal>,
    pub resumed: PriorSpending,
    pub run: String,
    /// The file that the run can be resumed from.
    pub file: Option<PathBuf>,
    /// Whoever lists and counts the run.
    pub keeper: Option<Arc<RunKeeper>>,
    /// A conversation that goes on: its finished turns are taken over as they were.
    pub restores: bool,
    /// What is known of its spans.
    pub traced: Box<TracedRecord>,
}

impl RunRecord {
    /// A new journal.
    pub fn begin(
        file: &Path,
        header: &RunHeader,
        kind: RunKind,
        by: String,
        key: Option<&StateKey>,
    ) -> Result<Self, LaunchError> {
        let identity = RunIdentity { id: Some(header.run.clone()), kind, ..RunIdentity::default() };
        let settings = JournalSettings { by: Some(by), key: key.cloned(), ..JournalSettings::default() };
        let engine = Arc::new(FileJournal::begin(file, NewRun::of(identity, header), settings).map_err(unusable)?);
        let (run, resumed, traced) =
            (header.run.clone(), PriorSpending::default(), Box::new(TracedRecord::begun(&engine)));
        Ok(Self { engine, resumed, run, file: Some(file.to_owned()), keeper: None, restores: false, traced })
    }

    /// Of a run that is seen by an engine of the front end, and is in no file.
    pub fn observed(engine: Arc<dyn Journal>) -> Self {
        let (run, resumed, traced) = (run_id(), PriorSpending::default(), Box::default());
        Self { engine, resumed, run, file: None, keeper: None, restores: false, traced }
    }

    /// Everything from a journal, which stays as it is.
    pub fn replay(contents: JournalContents, run: String) -> Self {
        let engine = Arc::new(FileJournal::replaying(contents));
        let (resumed, traced) = (PriorSpending::default(), Box::default());
        Self { engine, resumed, run, file: None, keeper: None, restores: false, traced }
    }
}

pub fn unusable(error: JournalError) -> LaunchError {
    let failure = match &error {
        JournalError::Foreign { .. } => LaunchError::refused(error.to_string()),
        JournalError::NotEmpty(_)
        | JournalError::OtherContent(_)
        | JournalError::InUse(_)
        | JournalError::Damaged { .. }
        | JournalError::Version { .. }
        | JournalError::Missing(_)
        | JournalError::NotAJournal(_)
        | JournalError::NotRegular(_)
        | JournalError::Io { .. } => LaunchError::usage(error.to_string()),
    };
    match error {
        JournalError::Foreign { .. } => failure.hint(Remedy::ReadAsForeign),
        JournalError::NotEmpty(file) => failure.hint(Remedy::ResumeRun { file }),
        JournalError::InUse(_) => failure.hint(Remedy::ShowRun),
        JournalError::Damaged { .. } => failure
            .hint("nothing was changed; a journal is only good as a whole, since it says what must not be repeated"),
        JournalError::Version { .. } => failure.hint("resume it with the program that wrote it"),
        JournalError::Missing(_)
        | JournalError::OtherContent(_)
        | JournalError::NotAJournal(_)
        | JournalError::NotRegular(_)
        | JournalError::Io { .. } => failure,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model() -> impl Strategy<Value = ModelName> {
        "[a-z][a-z0-9-]{0,8}:[a-zA-Z0-9./=:@-]{1,12}".prop_map(|text| ModelName::parse(&text).unwrap())
    }

    prop_compose! {
        fn choices()(
            required in proptest::option::of(model()),
            overrides in proptest::collection::btree_map("[a-z][a-z0-9_-]{0,8}", model(), 0..4),
        ) -> ModelChoices {
            ModelChoices { required, overrides, ..ModelChoices::default() }
        }
    }

    prop_compose! {
        fn policy()(
            approval_mode in prop::sample::select(vec![
                None, Some(ApprovalMode::RejectAll), Some(ApprovalMode::ApproveAll),
            ]),
            max_depth in proptest::option::of(1u64..),
            max_requests in proptest::option::of(1u64..),
            cents in proptest::option::of(1u32..),
            (max_tool_calls, max_input_tokens, max_output_tokens, seconds) in any::<(
                Option<u64>, Option<u64>, Option<u64>, Option<u32>,
            )>(),
            (is_allowed, stream, is_attended) in any::<(bool, bool, bool)>(),
            cache in prop::sample::select(vec![CacheUse::Used, CacheUse::Unused]),
            on_limit in proptest::option::of(prop_oneof![Just(OnLimit::Ask), Just(OnLimit::Stop), Just(OnLimit::WrapUp)]),
        ) -> PolicyOverrides {
            let max_cost_usd = cents.map(|cents| f64::from(cents) / 100.0);
            PolicyOverrides {
                approval_mode,
                is_attended,
                max_depth,
                limits: Limits {
                    max_requests,
                    max_tool_calls,
                    max_input_tokens,
                    max_output_tokens,
                    max_cost_usd,
                    timeout_seconds: seconds.map(f64::from),
                    on_limit,
                },
                unknown_prices: UnknownPrices::when(is_allowed),
                stream,
                cache,
            }
        }
    }

    /// What a launch is made of; with the variables in it, it is not for showing.
    #[derive(Clone, Debug)]
    struct LaunchParts {
        models: ModelChoices,
        policy: PolicyOverrides,
        entry: Option<String>,
        python: Option<String>,
        project: String,
        tools: ToolOffer,
    }

    prop_compose! {
        fn parts()(
            models in choices(),
            policy in policy(),
            entry in proptest::option::of("[a-z]{1,8}"),
            python in proptest::option::of("[a-z/.]{1,12}"),
            project in "[a-z/.]{1,12}",
            tools in prop::sample::select(vec![ToolOffer::Offered, ToolOffer::Withheld]),
        ) -> LaunchParts {
            LaunchParts { models, policy, entry, python, project, tools }
        }
    }

    fn launch(parts: LaunchParts) -> Launch {
        let LaunchParts { models, policy, entry, python, project, tools } = parts;
        Launch {
            assistant: false,
            project: project.into(),
            directory: WorkingDirectory::of_process(),
            entry,
            python: PythonPlan::default().naming(python.map(PathBuf::from)),
            models,
            tools,
            policy,
            fence: FenceConfig::default(),
            created: WorkerDefaults::default(),
            own_files: Vec::new(),
            purpose: Purpose::Answer,
            terms: ProgramTerms::default(),
            rules: Vec::new(),
            trace_parent: None,
        }
    }

    /// Nothing is typed anew.
    fn silent() -> LaunchOverrides {
        LaunchOverrides {
            models: ModelChoices::default(),
            python: PythonPlan::default(),
            policy: PolicyOverrides::default(),
            fence: FenceConfig::default(),
            own_files: Vec::new(),
            terms: ProgramTerms::default(),
            created: None,
            trace_parent: None,
        }
    }

    /// Through the words of a file.
    fn recorded(launch: &Launch) -> LaunchRecord {
        serde_json::from_str(&serde_json::to_string(&LaunchRecord::of(launch)).unwrap()).unwrap()
    }

    fn resumed(launch: &Launch, anew: LaunchOverrides) -> Launch {
        let resumed = recorded(launch).launch(launch.project.clone(), launch.directory.clone(), anew);
        resumed.unwrap_or_else(|error| panic!("{}", error.fact()))
    }

    proptest! {
        #[test]
        fn a_launch_is_the_same_after_it_was_recorded(parts in parts()) {
            let launch = launch(parts);
            let again = resumed(&launch, silent());
            prop_assert_eq!(&again.project, &launch.project);
            prop_assert_eq!(&again.directory, &launch.directory);
            prop_assert_eq!(&again.entry, &launch.entry);
            prop_assert_eq!(again.python.named(), launch.python.named());
            prop_assert_eq!(&again.models.required, &launch.models.required);
            prop_assert_eq!(&again.models.overrides, &launch.models.overrides);
            prop_assert_eq!(again.tools, launch.tools);
            let (before, after) = (&launch.policy, &again.policy);
            let rejects = before.approval_mode.filter(|mode| *mode == ApprovalMode::RejectAll);
            prop_assert_eq!(after.approval_mode, rejects, "a file agrees to nothing");
            prop_assert_eq!(&after.limits, &before.limits);
            prop_assert_eq!(after.max_depth, before.max_depth);
            prop_assert_eq!(after.unknown_prices, before.unknown_prices);
            prop_assert_eq!(after.stream, before.stream);
            prop_assert_eq!(after.cache, before.cache);
            prop_assert!(!after.is_attended, "only whoever goes on with it knows");
            prop_assert_eq!(recorded(&again), recorded(&launch));
        }

        #[test]
        fn what_is_decided_anew_counts_before_the_record(parts in parts(), models in choices(), policy in policy()) {
            let launch = launch(parts);
            let again = resumed(&launch, LaunchOverrides { models: models.clone(), policy: policy.clone(), ..silent() });
            let expected = models.required.clone().or(launch.models.required.clone());
            prop_assert_eq!(&again.models.required, &expected);
            for (agent, model) in &again.models.overrides {
                prop_assert_eq!(Some(model), models.overrides.get(agent).or(launch.models.overrides.get(agent)));
            }
            let (before, after) = (&launch.policy, &again.policy);
            prop_assert_eq!(&after.limits, &policy.limits.or(&before.limits));
            prop_assert_eq!(after.max_depth, policy.max_depth.or(before.max_depth));
            prop_assert_eq!(after.is_attended, policy.is_attended);
            prop_assert_eq!(after.stream, policy.stream && before.stream);
            if policy.approval_mode.is_some() {
                prop_assert_eq!(after.approval_mode, policy.approval_mode);
            }
        }
    }

    #[test]
    fn a_record_that_names_what_is_none_is_refused() {
        let with = |models: &[&str], max_cost_usd| LaunchRecord {
            models: models.iter().map(|text| (*text).to_owned()).collect(),
            max_cost_usd,
            ..LaunchRecord::default()
        };
        for record in
            [with(&["a"], None), with(&["a:b", "c:d"], None), with(&["m=a:b", "m=a:c"], None), with(&[], Some(0.0))]
        {
            assert!(record.launch(".".into(), WorkingDirectory::of_process(), silent()).is_err());
        }
    }
}
