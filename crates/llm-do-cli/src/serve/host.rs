//! A project whose agents clients of other protocols use: each run of it comes through the phases of the hall and is kept, and one
//! that stopped goes on here as it would with `resume`.

use std::path::PathBuf;
use std::sync::Arc;

use llm_do::approval::ApprovalMode;
use llm_do::records::{Matching, RunKind, StateKey};
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::{Input, ModelChoices, WorkingDirectory};
use llm_do_launch::error::LaunchError;
use llm_do_launch::keep::{KeepNeed, KeepPlan, RunSubject};
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::launch::{Launch, LinkedLaunch, ReadyRun, Record, SurveyedLaunch};
use llm_do_launch::open_run::{OpenRun, RunPlace, is_chat, project_at};
use llm_do_launch::record::{Author, LaunchOverrides, RunHeader, chosen_models};
use llm_do_launch::settings::Settings;
use llm_do_launch::trust::{Consent, TrustAnswers};

use crate::failure::Failure;
use crate::plan;

/// What was decided about all runs of a project that clients begin.
pub struct HostPlan {
    pub settings: Arc<Settings>,
    pub project: PathBuf,
    pub overrides: LaunchOverrides,
    /// What the user agreed to for this process.
    pub consent: Option<Consent>,
}

/// A project, and the store that its runs are kept in.
pub struct Host {
    pub settings: Arc<Settings>,
    pub store: RunStore,
    /// Signs what clients give back.
    pub key: StateKey,
    /// Whose answers are given on this machine.
    pub user: String,
    project: PathBuf,
    /// Where it is, as lists name it.
    root: String,
    overrides: LaunchOverrides,
    consent: Option<Consent>,
}

/// What a run is to begin with.
pub struct NewCall {
    pub kind: RunKind,
    pub agent: Option<String>,
    /// What is said to it; what is said to a conversation stands in its turns.
    pub input: Option<Input>,
    pub once: Option<String>,
    pub choices: CallChoices,
}

/// What a client chose for a run; all else is as it was decided for the server.
#[derive(Clone, Debug, Default)]
pub struct CallChoices {
    /// An id that was told before there was a run.
    pub id: Option<RunId>,
    pub directory: Option<PathBuf>,
    /// As `--model` names it.
    pub model: Option<String>,
    pub mode: Option<ApprovalMode>,
}

/// A run that can start, or the one that was begun with the same key and was told the same.
pub enum BegunCall {
    Ready(Box<ReadyRun>),
    Known(RunId),
}

/// A run of the store that can go on.
pub struct HostedRun {
    pub ready: ReadyRun,
    /// What was said to it, if it has one turn.
    pub input: Option<Input>,
}

impl Host {
    pub fn open(plan: HostPlan) -> Result<Self, Failure> {
        let HostPlan { settings, project, overrides, consent } = plan;
        let store = settings.state.runs()?;
        let store = store.map_err(|reason| Failure::usage(format!("no runs are kept: {reason}")))?;
        let unsigned = || Failure::usage("there is no key to sign with").hint("`llm-do doctor` says why");
        let key = settings.state.key()?.cloned().ok_or_else(unsigned)?;
        let root = project_at(&project).ok_or_else(|| {
            Failure::usage(format!("no such project: `{}`", project.display()))
                .hint("name the directory of a project, or one of its worker files")
        })?;
        let (root, user) = (root.to_string_lossy().into_owned(), settings.variables.user());
        Ok(Self { settings, store, key, user, project, root, overrides, consent })
    }

    /// The project as it is now, without anything of it running.
    pub fn survey(&self) -> Result<SurveyedLaunch, LaunchError> {
        self.launch(None).survey(&self.settings)
    }

    fn launch(&self, entry: Option<String>) -> Launch {
        let LaunchOverrides { models, python, mut policy, fence, own_files, .. } = self.overrides.clone();
        policy.is_attended = true;
        let launch = plan::launch(ModelChoices::default());
        Launch { project: self.project.clone(), entry, models, python, policy, fence, own_files, ..launch }
    }

    /// How it is found out that the user agreed to it; nobody is asked.
    pub fn trust(&self) -> TrustAnswers<'static> {
        TrustAnswers { kept: None, once: self.consent.clone(), prompt: None }
    }

    /// Where the project is, as lists name it.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Begins the record of a new run.
    pub async fn begin(&self, call: NewCall) -> Result<BegunCall, LaunchError> {
        let NewCall { kind, agent, input, once, choices } = call;
        let CallChoices { id, directory, model, mode } = choices;
        let mut launch = self.launch(agent);
        if let Some(directory) = directory {
            launch.directory = WorkingDirectory::at(&directory)
                .map_err(|error| LaunchError::usage(format!("{}: {error}", directory.display())))?;
            launch.project = PathBuf::from(&self.root);
        }
        if let Some(model) = model {
            let chosen = chosen_models(&[model]).map_err(|error| LaunchError::usage(error.to_string()))?;
            launch.models.required = chosen.required.or(launch.models.required);
            launch.models.all = chosen.all.or(launch.models.all);
            launch.models.overrides.extend(chosen.of_agents);
        }
        launch.policy.approval_mode = mode.or(launch.policy.approval_mode);
        let linked = self.linked(launch.survey(&self.settings)?).await?;
        let durability = self.settings.config.runs.durability();
        let plan = KeepPlan { kind, label: None, durability, need: KeepNeed::Required, once, id };
        let record = linked.kept(plan, input)?;
        let said = match &record {
            Record::Keep(_, header) => header.once.clone(),
            Record::Ephemeral | Record::File(..) | Record::Known(_) | Record::Observed(..) => None,
        };
        match linked.ready(record, None) {
            Ok(ready) => Ok(BegunCall::Ready(Box::new(ready))),
            Err(LaunchError::Taken(first)) => self.same_as(first, said.as_deref()),
            Err(error) => Err(error),
        }
    }

    /// One key is for one input.
    fn same_as(&self, first: RunId, said: Option<&str>) -> Result<BegunCall, LaunchError> {
        let contents = self.store.read_journal(&first).map_err(|error| LaunchError::failed(error.to_string()))?;
        let header: RunHeader = contents.header.to().map_err(|error| LaunchError::failed(format!("{error}")))?;
        if header.once.as_deref() == said {
            return Ok(BegunCall::Known(first));
        }
        Err(LaunchError::usage(format!("the run `{first}` has this key and was told something else")))
    }

    async fn linked(&self, surveyed: SurveyedLaunch) -> Result<LinkedLaunch, LaunchError> {
        let trusted = Box::pin(surveyed.trust(&self.trust(), |_, _| {})).await?;
        let linked = Box::pin(trusted.link()).await?;
        linked.check_keys()?;
        Ok(linked)
    }

    /// Takes the lock of a run that no process runs, and makes it ready to go on.
    pub async fn resume(&self, id: &RunId) -> Result<HostedRun, Failure> {
        let place = RunPlace::Store(self.store.clone(), *id);
        let open = OpenRun::open(place, Author::User, &self.settings)?;
        if project_of(open.contents()) != self.root {
            return Err(Failure::usage(format!("`{id}` is a run of another project"))
                .hint(format!("`llm-do resume {id}` goes on with it")));
        }
        let header = open.header.clone();
        let mut overrides = self.overrides.clone();
        overrides.policy.is_attended = true;
        let directory = header.working_directory()?;
        let RunHeader { project, flags, files, input, .. } = header;
        let launch = flags.launch(project, directory, overrides)?;
        let linked = self.linked(launch.survey(&self.settings)?).await?;
        let changes = files.changes(&linked.files);
        // Finished turns of a chat stand as they were recorded.
        let forgives = is_chat(open.contents().identity.kind);
        if !changes.is_empty() && !forgives {
            return Err(Failure::usage(format!("the project has changed since the run began: {}", changes.join(", ")))
                .hint(format!("`llm-do resume {id} --force` goes on with it as it is now")));
        }
        let matching = if changes.is_empty() { Matching::Exact } else { Matching::ForgiveModels };
        let record = open.resume(&linked.files, matching, None, RunSubject::of(linked.program()), &self.settings)?;
        Ok(HostedRun { ready: linked.ready(Record::Known(record), None)?, input })
    }
}
