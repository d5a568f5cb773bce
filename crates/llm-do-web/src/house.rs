//! What the server is made of: the user's settings and store, the projects in which work may be started, and the runs of this
//! process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llm_do::created::WorkerDefaults;
use llm_do::records::JournalContents;
use llm_do::remedy::Wording;
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::{Limits, ModelChoices, ModelName, WorkingDirectory};
use llm_do_launch::error::LaunchError;
use llm_do_launch::inbox::Inbox;
use llm_do_launch::kept_runs::project_of;
use llm_do_launch::launch::{Launch, Purpose, TrustedLaunch};
use llm_do_launch::program_terms::ProgramTerms;
use llm_do_launch::record::{LaunchOverrides, chosen_models};
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::{StoredRun, StoredRunError};
use llm_do_launch::tools::ToolOffer;
use llm_do_launch::trust::{Consent, TrustAnswers};

use crate::error::ApiError;
use crate::own_runs::OwnRuns;
use crate::record_cache::{LiveSummaries, RecordCache};

/// What every request may need.
pub struct House {
    pub settings: Arc<Settings>,
    pub store: RunStore,
    pub projects: BTreeMap<String, ServedProject>,
    pub own: OwnRuns,
    /// What was read of the runs that wait, so that it is not read anew for everybody who asks.
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) records: RecordCache,
    pub(crate) live: LiveSummaries,
    /// Whose answers they are that come from the page.
    pub user: String,
    pub wording: Wording,
    pub is_read_only: bool,
    pub(crate) overrides: LaunchOverrides,
    /// What the user agreed to for this process.
    pub(crate) consent: Option<Consent>,
}

/// A project in which work may be started.
#[derive(Clone, Debug)]
pub struct ServedProject {
    /// What requests call it: the name of its directory.
    pub name: String,
    /// As it was typed.
    pub path: PathBuf,
    /// Where it is, without links, as lists name it.
    pub root: String,
}

/// What a request decides about a run that begins.
#[derive(Clone, Debug, Default)]
pub struct LaunchWishes {
    pub agent: Option<String>,
    /// `provider:model`, or `AGENT=provider:model`.
    pub models: Vec<String>,
    pub limits: Limits,
    pub terms: ProgramTerms,
}

impl House {
    /// One of the projects, by its name.
    pub fn project(&self, name: &str) -> Result<&ServedProject, ApiError> {
        let missing = || {
            let names: Vec<&str> = self.projects.keys().map(String::as_str).collect();
            ApiError::missing("this server starts nothing in such a project").hint(if names.is_empty() {
                "it was started without one".to_owned()
            } else {
                names.join(", ")
            })
        };
        self.projects.get(name).ok_or_else(missing)
    }

    /// The one whose root this is.
    pub fn project_at(&self, root: &str) -> Option<&ServedProject> {
        self.projects.values().find(|project| project.root == root)
    }

    /// What is run if a request wants nothing else.
    pub fn launch(&self, project: &ServedProject, wishes: LaunchWishes) -> Result<Launch, ApiError> {
        let LaunchOverrides { mut models, python, mut policy, fence, own_files, .. } = self.overrides.clone();
        let LaunchWishes { agent, models: words, limits, terms } = wishes;
        choose_models(&mut models, &words)?;
        policy.limits = limits.or(&policy.limits);
        Ok(Launch {
            project: project.path.clone(),
            assistant: false,
            directory: WorkingDirectory::of_process(),
            entry: agent,
            python,
            models,
            tools: ToolOffer::Offered,
            policy,
            fence,
            created: WorkerDefaults::default(),
            own_files,
            purpose: Purpose::Answer,
            terms,
            rules: Vec::new(),
            trace_parent: None,
        })
    }

    /// Everything of a project that is known before anything of it runs, once it is found that the user agreed to it.
    pub async fn trusted(&self, launch: Launch) -> Result<TrustedLaunch, LaunchError> {
        let answers = TrustAnswers { kept: None, once: self.consent.clone(), prompt: None };
        launch.survey(&self.settings)?.trust(&answers, |_, _| {}).await
    }

    /// What the record of a run says.
    pub fn contents(&self, id: &RunId) -> Result<Arc<JournalContents>, ApiError> {
        let damaged = |error| ApiError::of_run(StoredRunError::Damaged(*id, error), self.wording);
        self.records.read(&self.store, id).map_err(damaged)
    }

    pub fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn error(&self, error: LaunchError) -> ApiError {
        ApiError::of_launch(error, self.wording)
    }

    /// The run that is meant.
    pub fn run(&self, typed: &str) -> Result<StoredRun, ApiError> {
        StoredRun::find(typed, &self.settings).map_err(|error| ApiError::of_run(error, self.wording))
    }

    /// The project of a run, if work may be started there.
    pub fn project_of(&self, id: &RunId) -> Option<&ServedProject> {
        self.project_at(&project_of(&self.store.read_journal(id).ok()?))
    }
}

/// Puts the models that a request names before those of the server.
pub fn choose_models(models: &mut ModelChoices, words: &[String]) -> Result<(), ApiError> {
    let chosen = chosen_models(words).map_err(|error| ApiError::wrong(format!("`model`: {error}")))?;
    chosen.required.iter().chain(&chosen.all).chain(chosen.of_agents.values()).try_for_each(may_be_chosen)?;
    models.required = chosen.required.or(models.required.take());
    models.all = chosen.all.or(models.all.take());
    models.overrides.extend(chosen.of_agents);
    Ok(())
}

/// A script is a file, and no request names one.
pub fn may_be_chosen(model: &ModelName) -> Result<(), ApiError> {
    if model.provider == "scripted" {
        return Err(ApiError::wrong("`model`: a script is not chosen from here"));
    }
    Ok(())
}

impl ServedProject {
    pub fn of(path: &Path) -> Result<Self, LaunchError> {
        let wrong = || {
            LaunchError::usage(format!("no such project: `{}`", path.display()))
                .hint("name the directory of a project, or one of its worker files")
        };
        let root = llm_do_launch::open_run::project_at(path).ok_or_else(wrong)?;
        let name = root.file_name().map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned());
        // Names stand in addresses of `/v1`, before a slash.
        let name = name.replace(['/', '\\'], "-");
        Ok(Self { name, path: path.to_owned(), root: root.to_string_lossy().into_owned() })
    }
}
