//! Agents made at run time: their files are written here, and linked one at a time when they are called.
//!
//! What an agent creates has no more than its creator, then and whenever it is called. What a program creates has
//! what the program says. A file that was not created here is no agent, even if it lies in the directory of created
//! agents.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::created::{CreatedAgents, CreatedStore, CreationRecord};
use super::load::DEFAULT_GENERATED_DIR;
use super::worker::{self, Format, WorkerFile};
use super::{AgentSpec, AllowWorkers, AttachmentPolicy, Limits, Program, Project, ToolsetUse};
use crate::beneath::{self, FileAccess, FileOpenError};
use crate::escape::visible;
use crate::remedy::Wording;
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, FileId, Located, Report, Severity, Sources, Span};
use crate::syntax::names;
use crate::syntax::table::is_name;
use crate::syntax::tree::LARGEST_FILE;
use crate::tools::approval::Rule;
use crate::tools::source;

/// An agent to be written into the project.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerSpec {
    /// Its name.
    pub name: String,
    /// Its system prompt.
    pub instructions: String,
    /// What callers read about it.
    pub description: Option<String>,
    /// `provider:model`.
    pub model: Option<String>,
    /// The single tools that it has.
    pub tools: Vec<String>,
    /// The toolsets that it has.
    pub toolsets: Vec<String>,
    /// Rules by tool, or by `toolset.tool`.
    pub approval: Vec<(String, Rule)>,
    /// The agents that it may call; none says nothing about it.
    pub allow_workers: Option<Vec<String>>,
    /// What each of its calls may spend.
    pub limits: Limits,
    /// Which files it takes.
    pub attachment_policy: Option<AttachmentPolicy>,
    /// Whether tools may never overwrite its file.
    pub locked: bool,
}

/// What a created agent gets where its spec is silent.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct WorkerDefaults {
    /// The model.
    pub model: Option<String>,
    /// The toolsets.
    pub toolsets: Vec<String>,
    /// The agents that it may call.
    pub allow_workers: Option<Vec<String>>,
    /// Which files it takes.
    pub attachment_policy: Option<AttachmentPolicy>,
}

/// What to do with an agent of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingAgent {
    /// Creating it again is an error.
    Keep,
    /// The new one takes its place.
    Replace,
}

/// Why no agent was created, in words for the model or the program that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    #[error("`{0}` is not a name: letters, digits, `_` and `-`, at most 64")]
    Name(String),
    #[error("the agent `{0}` exists; `force` replaces it")]
    Exists(String),
    #[error("`{0}` is the name of a toolset or of an agent that was not created at run time")]
    Taken(String),
    #[error("the file of the agent `{0}` is locked")]
    Locked(String),
    #[error("an agent needs instructions")]
    NoInstructions,
    #[error("the agent's file would be larger than {LARGEST_FILE} bytes")]
    TooLarge,
    #[error("`{given}` is not among the {what} of `{creator}`, which has: {has}")]
    Beyond { what: &'static str, given: String, creator: String, has: String },
    #[error("`{0}` was not made here; list it in `worker_files`")]
    Foreign(String),
    #[error("{0}")]
    Unlinked(String),
    #[error("the agent's file cannot be written: {0}")]
    Unwritten(String),
}

impl WorkerSpec {
    /// As it would stand in a file.
    pub(crate) fn to_file(&self) -> WorkerFile {
        let listed = |names: &[String]| names.iter().cloned().map(unplaced).collect::<Vec<_>>();
        WorkerFile {
            description: self.description.clone(),
            models: self.model.clone().map(unplaced).into_iter().collect(),
            tools: listed(&self.tools),
            toolsets: listed(&self.toolsets),
            approval: self.approval.iter().map(|(key, rule)| (unplaced(key.clone()), *rule)).collect(),
            allow_workers: self.allow_workers.as_deref().map(listed),
            limits: self.limits.clone(),
            attachment_policy: self.attachment_policy.clone().unwrap_or_default(),
            locked: self.locked,
            ..WorkerFile::new(unplaced(self.name.clone()), self.instructions.trim().to_owned())
        }
    }

    fn check(&self) -> Result<(), CreateError> {
        if !is_name(&self.name) {
            return Err(CreateError::Name(visible(&self.name).into_owned()));
        }
        if self.instructions.trim().is_empty() { Err(CreateError::NoInstructions) } else { Ok(()) }
    }
}

/// A value that stands in no file.
fn unplaced<T>(value: T) -> Located<T> {
    Located { value, span: Span { file: no_file(), start: 0, end: 0 } }
}

fn no_file() -> FileId {
    Sources::default().add(PathBuf::new(), String::new())
}

impl Project {
    /// Writes an agent into the directory of created agents. Unlike the tool of a model it may replace a locked file,
    /// and it is not bound to what a creator has: the mistakes in it are found when it is linked. Agents can call it by name
    /// if it is recorded in `store`; without one, list it in `worker_files`.
    pub fn create_worker(
        &self,
        spec: &WorkerSpec,
        defaults: &WorkerDefaults,
        existing: ExistingAgent,
        store: Option<&CreatedStore>,
    ) -> Result<PathBuf, CreateError> {
        spec.check()?;
        let mut spec = spec.clone();
        spec.model = spec.model.or_else(|| defaults.model.clone());
        spec.allow_workers = spec.allow_workers.or_else(|| defaults.allow_workers.clone());
        spec.attachment_policy = spec.attachment_policy.or_else(|| defaults.attachment_policy.clone());
        if spec.toolsets.is_empty() {
            spec.toolsets.clone_from(&defaults.toolsets);
        }
        let directory = match &self.layout {
            super::Layout::Manifest(manifest) => manifest.generated_agents_dir.as_ref().map(|dir| dir.value.as_str()),
            super::Layout::SingleFile | super::Layout::Directory | super::Layout::Unreadable => None,
        };
        let path = Path::new(directory.unwrap_or(DEFAULT_GENERATED_DIR)).join(format!("{}.yaml", spec.name));
        if self.workers.iter().any(|loaded| loaded.worker.name.value == spec.name && loaded.path != path) {
            return Err(CreateError::Taken(spec.name));
        }
        let old = read(&self.root, &path).map_err(|error| CreateError::Unwritten(error.to_string()))?;
        if old.is_some() && existing == ExistingAgent::Keep {
            return Err(CreateError::Exists(spec.name));
        }
        let text = rendered(&spec)?;
        let recorded = CreatedAgents::of(&self.root, store).add(CreationRecord::of(&spec.name, &text, None));
        recorded.map_err(|error| CreateError::Unwritten(error.to_string()))?;
        write(&self.root, &path, &text)?;
        Ok(path)
    }
}

impl Project {
    /// Links a created agent like any other file of the project, for a caller that starts with it by name.
    #[must_use]
    pub fn with_created(mut self, name: &str) -> Self {
        let Some(path) = self.generated.get(name).cloned() else { return self };
        match read(&self.root, &path) {
            Ok(Some(text)) => {
                self.generated.remove(name);
                self.add_file(&path, &text)
            }
            // The file was removed since, or cannot be read, so there is no agent of this name.
            Ok(None) | Err(_) => self,
        }
    }
}

/// A file that would be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Draft {
    pub name: String,
    /// Who asks for it.
    pub creator: String,
    /// Beneath the project root.
    pub path: PathBuf,
    pub text: String,
    /// What it replaces.
    pub old: Option<String>,
}

impl Program {
    /// The file of an agent that another one asks for, with no more than its creator has.
    pub(crate) fn draft(
        &self,
        spec: &WorkerSpec,
        creator: &AgentSpec,
        existing: ExistingAgent,
    ) -> Result<Draft, CreateError> {
        spec.check()?;
        let path = self.created_path(&spec.name);
        let is_elsewhere = self.agents.get(&spec.name).is_some_and(|agent| agent.file != path);
        if is_elsewhere || (self.names_toolset(&spec.name) && !self.agents.contains_key(&spec.name)) {
            return Err(CreateError::Taken(spec.name.clone()));
        }
        let old = read(&self.root, &path).map_err(|error| CreateError::Unwritten(error.to_string()))?;
        if old.is_some() && existing == ExistingAgent::Keep {
            return Err(CreateError::Exists(spec.name.clone()));
        }
        // A file that cannot be read may be locked as well.
        if old.as_ref().is_some_and(|text| parse(&path, text).is_none_or(|worker| worker.locked)) {
            return Err(CreateError::Locked(spec.name.clone()));
        }
        within("tools", &spec.tools, &creator.tools, creator)?;
        within("toolsets", &spec.toolsets, &creator.toolsets, creator)?;
        let inherited = WorkerSpec {
            approval: rules_of(creator, spec),
            allow_workers: creator.allow_workers.as_ref().map(AllowWorkers::names).or(spec.allow_workers.clone()),
            limits: creator.limits.clone(),
            attachment_policy: Some(creator.attachment_policy.clone()),
            locked: false,
            ..spec.clone()
        };
        let text = rendered(&inherited)?;
        self.link_created(&path, &text).map_err(|report| unlinked(&spec.name, &report, self.wording))?;
        Ok(Draft { name: spec.name.clone(), creator: creator.name.clone(), path, text, old })
    }

    /// Writes a draft, over nothing else than what it was made against. It is recorded first: a record without its file
    /// allows nothing.
    pub(crate) fn write(&self, draft: &Draft) -> Result<(), CreateError> {
        let made = CreationRecord::of(&draft.name, &draft.text, Some(&draft.creator));
        self.created.add(made).map_err(|error| CreateError::Unwritten(error.to_string()))?;
        write(&self.root, &draft.path, &draft.text)
    }

    /// The agent of this name: linked with the project, or created since then or in an earlier run.
    pub fn agent(&self, name: &str) -> Result<Arc<AgentSpec>, CreateError> {
        self.agent_below(name, 0)
    }

    fn agent_below(&self, name: &str, depth: usize) -> Result<Arc<AgentSpec>, CreateError> {
        let linked = self.agents.get(name);
        if let Some(agent) = linked.filter(|agent| !agent.file.starts_with(&self.generated_agents_dir)) {
            return Ok(Arc::clone(agent));
        }
        match self.made(name)? {
            // A created agent may have been created anew since.
            AgentNameStatus::Made { made, path, text } => self.as_made(&made, &path, &text, depth).map(Arc::new),
            // The project lists it, and counts as it was then.
            AgentNameStatus::Stranger | AgentNameStatus::Nothing if linked.is_some() => {
                linked.cloned().ok_or_else(|| CreateError::Foreign(name.to_owned()))
            }
            AgentNameStatus::Stranger => Err(CreateError::Foreign(name.to_owned())),
            AgentNameStatus::Nothing => Err(CreateError::Unlinked(format!("there is no agent `{}`", visible(name)))),
        }
    }

    /// Which file of a created agent there is, if it is the one that was made here.
    fn made(&self, name: &str) -> Result<AgentNameStatus, CreateError> {
        if !is_name(name) {
            return Ok(AgentNameStatus::Nothing);
        }
        let linked = self.agents.get(name).map(|agent| agent.file.clone());
        let path = linked.or_else(|| self.generated.get(name).cloned()).unwrap_or_else(|| self.created_path(name));
        let text = read(&self.root, &path).map_err(|error| CreateError::Unlinked(error.to_string()))?;
        let Some(text) = text else { return Ok(AgentNameStatus::Nothing) };
        let unreadable =
            |error: io::Error| CreateError::Unlinked(format!("it cannot be read which agents were made here: {error}"));
        match self.created.made(name).map_err(unreadable)?.filter(|made| made.is_of(&text)) {
            Some(made) => Ok(AgentNameStatus::Made { made, path, text }),
            None => Ok(AgentNameStatus::Stranger),
        }
    }

    /// A file that was made here, linked, with no more than its creator has now.
    fn as_made(&self, made: &CreationRecord, path: &Path, text: &str, depth: usize) -> Result<AgentSpec, CreateError> {
        /// Agents that were made by agents that were made.
        const DEEPEST: usize = 16;
        let CreationRecord { name, creator, .. } = made;
        let wrong = |what: String| CreateError::Unlinked(format!("the agent `{name}` {what}"));
        let agent = self.link_created(path, text).map_err(|report| unlinked(name, &report, self.wording))?;
        if agent.name != *name {
            return Err(wrong(format!("has another name in its file: `{}`", visible(&agent.name))));
        }
        let Some(creator) = creator else { return Ok(agent) };
        if depth == DEEPEST {
            return Err(wrong("was made by agents that made each other; list it in `worker_files`".to_owned()));
        }
        let gone = |_| wrong(format!("was made by `{creator}`, which is gone; list it in `worker_files`"));
        let creator = self.agent_below(creator, depth + 1).map_err(gone)?;
        Ok(agent.within(&creator))
    }

    /// Whether agents can be created, or were.
    #[cfg(feature = "front-end")]
    pub fn has_created(&self) -> bool {
        let creates = |used: &ToolsetUse| matches!(used.source.origin(), source::ToolsetSource::DynamicAgents(_));
        let is_created = |agent: &AgentSpec| agent.file.starts_with(&self.generated_agents_dir);
        !self.generated.is_empty()
            || self.agents.values().any(|agent| is_created(agent) || agent.toolsets.iter().any(creates))
    }

    /// Whether the file of this name in the directory of created agents counts: it is the one that was made here.
    pub fn counts(&self, name: &str) -> bool {
        matches!(self.made(name), Ok(AgentNameStatus::Made { .. }))
    }

    /// Names of agents that were created at run time, as far as their files tell.
    pub(crate) fn is_created(&self, name: &str) -> bool {
        self.generated.contains_key(name)
            || self.agents.get(name).is_some_and(|agent| agent.file.starts_with(&self.generated_agents_dir))
            || (is_name(name) && matches!(read(&self.root, &self.created_path(name)), Ok(Some(_))))
    }

    fn created_path(&self, name: &str) -> PathBuf {
        self.generated_agents_dir.join(format!("{name}.yaml"))
    }

    /// Whether the name means a toolset in this program.
    fn names_toolset(&self, name: &str) -> bool {
        let mut uses = self.agents.values().flat_map(|agent| &agent.toolsets);
        source::built_in(name).is_some() || uses.any(|used| used.name == name)
    }
}

/// What is known of a name in the directory of created agents.
enum AgentNameStatus {
    Made {
        made: CreationRecord,
        path: PathBuf,
        text: String,
    },
    /// There is a file, and it was not made here, or not as it is now.
    Stranger,
    Nothing,
}

impl AllowWorkers {
    fn names(&self) -> Vec<String> {
        match self {
            Self::Any => vec!["*".to_owned()],
            Self::Only(names) => names.clone(),
        }
    }
}

fn within(what: &'static str, given: &[String], has: &[ToolsetUse], creator: &AgentSpec) -> Result<(), CreateError> {
    match given.iter().find(|name| !has.iter().any(|used| used.name == **name)) {
        None => Ok(()),
        Some(name) => Err(CreateError::Beyond {
            what,
            given: visible(name).into_owned(),
            creator: creator.name.clone(),
            has: names::listed(has.iter().map(|used| used.name.as_str())).unwrap_or_else(|| "none".to_owned()),
        }),
    }
}

/// The creator's rules for what the new agent gets of it.
fn rules_of(creator: &AgentSpec, spec: &WorkerSpec) -> Vec<(String, Rule)> {
    let tools = creator.tools.iter().filter(|used| spec.tools.contains(&used.name));
    let tools = tools.flat_map(|used| used.rules.iter().map(|(tool, rule)| (tool.clone(), *rule)));
    let toolsets = creator.toolsets.iter().filter(|used| spec.toolsets.contains(&used.name));
    let toolsets =
        toolsets.flat_map(|used| used.rules.iter().map(|(tool, rule)| (format!("{}.{tool}", used.name), *rule)));
    tools.chain(toolsets).collect()
}

/// Every mistake of a created agent's file, for the model or the person who reads why it cannot be called.
fn unlinked(name: &str, report: &Report, wording: Wording) -> CreateError {
    let errors = report.diagnostics().filter(|problem| problem.severity == Severity::Error);
    let words = |problem: &Diagnostic| {
        let hint = problem.hint_words(wording).map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{}: {}{hint}", report.place(problem), problem.fact)
    };
    let mistakes: Vec<String> = errors.map(words).collect();
    CreateError::Unlinked(format!("the file of the agent `{name}` has mistakes: {}", mistakes.join("; ")))
}

/// The text of an agent's file. More than is read of a file would be written and never be callable.
fn rendered(spec: &WorkerSpec) -> Result<String, CreateError> {
    let text = worker::render(&spec.to_file(), Format::Yaml);
    if text.len() > LARGEST_FILE { Err(CreateError::TooLarge) } else { Ok(text) }
}

fn parse(path: &Path, text: &str) -> Option<WorkerFile> {
    let mut problems = Diagnostics::default();
    let worker = worker::parse(no_file(), "main", text, Format::of(path)?, &mut problems)?;
    (!problems.has_errors()).then_some(worker)
}

/// What stands in a file of the project; `None` if there is none.
fn read(root: &Path, path: &Path) -> Result<Option<String>, FileOpenError> {
    let root = Dir::open_ambient_dir(root, ambient_authority())?;
    match beneath::read(&root, path, LARGEST_FILE as u64) {
        Ok(bytes) => Ok(Some(io::read_to_string(bytes.as_slice())?)),
        Err(FileOpenError::Missing) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the text beside the file and then puts it in its place, so that a reader never sees a half of it.
fn write(root: &Path, path: &Path, text: &str) -> Result<(), CreateError> {
    let write = || -> io::Result<()> {
        let root = Dir::open_ambient_dir(root, ambient_authority())?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        root.create_dir_all(parent)?;
        beneath::replace(root.open_dir(parent)?, name, text.as_bytes(), FileAccess::Usual)
    };
    write().map_err(|error| CreateError::Unwritten(error.to_string()))
}
