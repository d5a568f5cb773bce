//! The project's Python files: started once, and what they offer as values for linking.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::load::shown_beneath;
use super::manifest;
use super::worker::{self, Format, PythonClass, PythonModule, SchemaSource};
use super::{Code, EntryFunction, Layout, LoadedWorker, Program, Project, PythonFileTool, PythonOffer, lexical_join};
use crate::beneath::FileOpenError;
use crate::escape::visible_start;
use crate::model::provider::PROVIDERS;
use crate::model::scripted::script_of;
use crate::remedy::Remedy;
use crate::syntax::diagnostic::{Diagnostic, DiagnosticPlace, Diagnostics, Located, Report, Sources, Span};
use crate::tools::DeclaredTool;
use crate::tools::protected::ProtectedFiles;
use crate::tools::python::stand_in::StandInHost;
use crate::tools::python::{
    Beginning, ExportedAgent, ExportedToolset, Exports, FoundClass, KnownTool, Problem, Python, PythonFence,
    PythonHost, WantedClass,
};
use crate::tools::rpc::child::ChildEnvironment;
use crate::tools::source::{ExportKind, PythonToolset, ToolsetSource};

impl PythonClass {
    /// The name by which the interpreter knows a class that a worker file in this directory refers to.
    pub(super) fn reference(&self, base: &Path) -> String {
        match &self.module {
            PythonModule::File(file) => format!("{}:{}", beneath(base, file).display(), self.class),
            PythonModule::Importable(module) => format!("{module}.{}", self.class),
        }
    }
}

fn beneath(base: &Path, file: &str) -> PathBuf {
    lexical_join(base, Path::new(file)).unwrap_or_else(|| PathBuf::from(file))
}

/// A line of a Python file, without its indentation. The file is one more source.
fn line_of(sources: &mut Arc<Sources>, shown: PathBuf, file: &Path, line: usize) -> Option<DiagnosticPlace> {
    let text = std::fs::read_to_string(file).ok()?;
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let written = text.get(start..)?.lines().next().unwrap_or_default();
    let indent = written.len() - written.trim_start().len();
    let (start, end) = (start + indent, start + written.trim_end().len().max(indent));
    // Reports of an earlier linking may still hold the files as they were.
    let file = Arc::make_mut(sources).add(shown, text);
    Some(DiagnosticPlace::At(Span { file, start, end }))
}

impl Project {
    /// Whether there is something that only an interpreter can say.
    pub fn needs_python(&self) -> bool {
        matches!(self.code, Code::Unread) || !self.wanted_classes().is_empty()
    }

    /// Starts an interpreter and imports the project's Python files in it, each once; does nothing if there are none.
    /// What is wrong with them is reported by [`Project::link`] with everything else; an error here is an interpreter
    /// that cannot be started.
    pub(super) async fn start_python(
        mut self,
        python: &Python,
        fenced: Option<PythonFence>,
        is_unchanged: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Result<Self, Report> {
        if !self.needs_python() {
            return Ok(self);
        }
        let root = self.canonical_root();
        let files = self.python_files();
        let python = Python { environment: self.environment(&python.environment), ..python.clone() };
        let place = DiagnosticPlace::Path(self.root.clone());
        let failed = |fact: String, hint: Remedy| Report::single(Diagnostic::error(place.clone(), fact).hint(hint));
        if root.to_str().is_none() {
            let fact = "the path of the project is not UTF-8, and its Python files are found by it".to_owned();
            return Err(failed(fact, "give its directory another name".into()));
        }
        let beginning = Beginning { python, root: root.clone(), files, fenced, is_unchanged, memory: None };
        let started = PythonHost::start(beginning).await;
        let (host, exports) = started.map_err(|error| failed(error.to_string(), error.hint()))?;
        let died = |reason: String| failed(reason, "the files of the project are imported when it starts".into());
        for problem in &exports.problems {
            self.report(problem, &root);
        }
        for agent in &exports.agents {
            self.add_exported(agent);
        }
        // Agents in Python refer to classes too.
        let wanted = self.wanted_classes();
        let found = host.classes(&wanted).await.map_err(died)?;
        self.check_entry(&host).await;
        self.code = Code::Read(offer(exports, wanted.into_iter().zip(found)));
        self.registry.python = Some(Arc::new(host));
        Ok(self)
    }

    /// Where code lives that answers in the place of agents: nothing of it starts before it is asked. It sees none of the
    /// variables that the manifest names.
    pub(super) fn with_stand_ins(
        mut self,
        python: &Python,
        protected: &ProtectedFiles,
        is_unchanged: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        let python = Python {
            environment: ChildEnvironment { offered: BTreeMap::new(), ..python.environment.clone() },
            ..python.clone()
        };
        let host = StandInHost::new(python, self.canonical_root(), protected.clone(), is_unchanged);
        self.registry.stand_ins = Some(Arc::new(host));
        self
    }

    fn canonical_root(&self) -> PathBuf {
        self.root.canonicalize().unwrap_or_else(|_| self.root.clone())
    }

    /// Those that the manifest lists, each once, beneath the root.
    pub(super) fn python_files(&self) -> Vec<PathBuf> {
        let listed = match &self.layout {
            Layout::Manifest(manifest) => manifest.python_files.as_slice(),
            Layout::SingleFile | Layout::Directory | Layout::Unreadable => &[],
        };
        let mut seen = BTreeSet::new();
        let files = listed.iter().map(|file| beneath(Path::new(""), &file.value));
        files.filter(|file| seen.insert(file.clone())).collect()
    }

    /// Files with code that answers in the place of agents, beneath the root.
    #[cfg(feature = "front-end")]
    pub(super) fn stand_in_files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let toolsets = match &self.layout {
            Layout::Manifest(manifest) => manifest.toolsets.as_slice(),
            Layout::SingleFile | Layout::Directory | Layout::Unreadable => &[],
        };
        toolsets.iter().filter_map(|(_, definition)| match definition {
            manifest::ToolsetDefinition::StandIn(stand_in) => Some(stand_in.value.file.clone()),
            _ => None,
        })
    }

    /// What the child sees: the fixed variables, and those that the manifest names. Never a provider's key, which
    /// linking reports as a mistake, but only after this.
    fn environment(&self, environment: &ChildEnvironment) -> ChildEnvironment {
        let named = match &self.layout {
            Layout::Manifest(manifest) => manifest.env.as_slice(),
            Layout::SingleFile | Layout::Directory | Layout::Unreadable => &[],
        };
        let is_key = |name: &&String| {
            PROVIDERS.iter().any(|provider| provider.key_variables.iter().any(|variable| variable == name))
        };
        let fixed = environment.with(named.iter().map(|name| &name.value).filter(|name| !is_key(name)));
        ChildEnvironment { fixed, offered: BTreeMap::new() }
    }

    fn wanted_classes(&self) -> Vec<WantedClass> {
        let mut wanted = BTreeMap::new();
        for LoadedWorker { path, worker, .. } in &self.workers {
            let base = path.parent().unwrap_or(Path::new(""));
            for (source, direction) in [(&worker.schema_out, "output"), (&worker.schema_in, "input")] {
                let Some(SchemaSource::Python(class)) = source else { continue };
                let (file, module) = match &class.value.module {
                    PythonModule::File(file) => (Some(beneath(base, file)), None),
                    PythonModule::Importable(module) => (None, Some(module.clone())),
                };
                let reference = class.value.reference(base);
                let class = class.value.class.clone();
                // One that is an input somewhere has to be fit for it.
                wanted.insert(reference.clone(), WantedClass { reference, file, module, class, direction });
            }
        }
        wanted.into_values().collect()
    }

    /// An entry function that the manifest names has to be there.
    async fn check_entry(&mut self, host: &PythonHost) {
        let Layout::Manifest(manifest) = &self.layout else { return };
        let Some(named) = &manifest.entry.function else { return };
        let Some((file, function)) = named.value.rsplit_once(':') else { return };
        if let Err(reason) = host.entry_shape(&beneath(Path::new(""), file), function).await {
            self.problems.push(Diagnostic::error(named.span, reason));
        }
    }

    /// A mistake in a Python file, at its line.
    fn report(&mut self, problem: &Problem, root: &Path) {
        let shown = self.shown_python(&problem.file, root);
        let place = problem.line.and_then(|line| line_of(&mut self.sources, shown, &problem.file, line));
        let place = place.unwrap_or_else(|| DiagnosticPlace::Path(problem.file.clone()));
        self.problems.push(Diagnostic::error(place, problem.fact.clone()).maybe_hint(problem.hint.clone()));
    }

    /// Where its Python files are no Python, as warnings.
    #[cfg(feature = "front-end")]
    pub(super) async fn python_syntax(&self, python: &Python) -> Report {
        let root = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        let files: Vec<PathBuf> = self.python_files().iter().map(|file| root.join(file)).collect();
        let mut sources = Arc::clone(&self.sources);
        let mut problems = Diagnostics::default();
        if !files.is_empty() {
            let python = Python { environment: self.environment(&python.environment), ..python.clone() };
            for mistake in crate::tools::python::syntax::mistakes(&python, &files).await {
                let shown = self.shown_python(&mistake.file, &root);
                let place = line_of(&mut sources, shown.clone(), &mistake.file, mistake.line);
                let place = place.unwrap_or(DiagnosticPlace::Path(shown));
                let problem = Diagnostic::warning(place, format!("not valid Python: {}", mistake.message));
                problems.push(problem.hint("mend it: no Python file of the project is imported before"));
            }
        }
        Report::new(sources, problems)
    }

    fn shown_python(&self, file: &Path, root: &Path) -> PathBuf {
        file.strip_prefix(root).map_or_else(|_| file.to_owned(), |file| shown_beneath(&self.root, file))
    }

    /// An agent that is defined in Python is a worker file in JSON, which is YAML.
    fn add_exported(&mut self, agent: &ExportedAgent) {
        let text = agent.keys.get().to_owned();
        let file = Arc::make_mut(&mut self.sources).add(self.root.join(&agent.file), text.clone());
        let mut problems = Diagnostics::default();
        if let Some(worker) = worker::parse(file, "main", &text, Format::Yaml, &mut problems) {
            for script in worker.models.iter().filter_map(script_of) {
                let base = agent.file.parent().unwrap_or(Path::new(""));
                if let Err(problem) = self.add_script(base, &script) {
                    problems.push(*problem);
                }
            }
            self.workers.push(LoadedWorker { path: agent.file.clone(), worker, rests: false });
        }
        self.problems.extend(problems);
    }
}

impl Project {
    /// Reads the script that an agent in Python follows, beneath the root like all files of a project.
    fn add_script(&mut self, base: &Path, listed: &Located<String>) -> Result<(), Box<Diagnostic>> {
        let wrong = |reason: &str| {
            let fact = format!("the script `{}` {reason}", visible_start(&listed.value, 120));
            Box::new(Diagnostic::error(listed.span, fact))
        };
        let path = beneath(base, &listed.value);
        if self.references.contains_key(&path) {
            return Ok(());
        }
        let read = Dir::open_ambient_dir(&self.root, ambient_authority())
            .map_err(FileOpenError::from)
            .and_then(|root| crate::beneath::read(&root, &path, LONGEST_SCRIPT + 1));
        let bytes = read.map_err(|error| match error {
            FileOpenError::Missing => wrong("does not exist"),
            FileOpenError::Outside => wrong("leads outside the project"),
            FileOpenError::NotRegular => wrong("is not a regular file"),
            FileOpenError::Io(error) => wrong(&format!("cannot be read: {error}")),
        })?;
        if bytes.len() as u64 > LONGEST_SCRIPT {
            return Err(wrong("is larger than 1 MiB"));
        }
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8"))?;
        let file = Arc::make_mut(&mut self.sources).add(self.root.join(&path), text);
        self.references.insert(path, file);
        Ok(())
    }
}

/// As all files of a project.
const LONGEST_SCRIPT: u64 = 1024 * 1024;

impl Program {
    /// Asks Python files that register model providers where those are that the program uses.
    #[cfg(feature = "front-end")]
    pub async fn find_endpoints(&self) -> Result<(), String> {
        let Some(host) = &self.registry.python else { return Ok(()) };
        for (model, _) in self.models() {
            host.find_endpoint(&model.provider, &model.model).await?;
        }
        Ok(())
    }
}

/// The tools of a toolset of the module. Those of a factory are not known before a call opens it.
fn known_tools(toolset: &ExportedToolset) -> Option<Vec<DeclaredTool>> {
    if let Some(built_in) = &toolset.built_in {
        // What is wrong with the definition is told where it is opened.
        let variant = manifest::defined_toolset(&toolset.name, built_in.definition.get(), built_in.rules()).ok()?;
        return ToolsetSource::Variant(Arc::new(variant)).declared_tools().map(Cow::into_owned);
    }
    toolset.tools.as_ref().map(|tools| tools.iter().map(KnownTool::declared).collect())
}

fn offer(exports: Exports, classes: impl Iterator<Item = (WantedClass, FoundClass)>) -> PythonOffer {
    let toolsets = exports.toolsets.into_iter().map(|toolset| PythonToolset {
        tools: known_tools(&toolset),
        file: toolset.file,
        name: toolset.name,
        exported: ExportKind::Toolset,
    });
    let tools = exports.tools.iter().map(|tool| PythonFileTool { file: tool.file.clone(), tool: tool.tool.declared() });
    let entries =
        exports.entries.into_iter().map(|entry| EntryFunction::Python { file: entry.file, function: entry.function });
    let class = |(wanted, found): (WantedClass, FoundClass)| match found {
        FoundClass::Schema(schema) => (wanted.reference, Ok(schema)),
        FoundClass::Fact(fact) => (wanted.reference, Err(fact)),
    };
    let tracebacks = exports.problems.iter().map(|problem| problem.traceback.clone());
    PythonOffer {
        providers: exports.providers,
        tracebacks: tracebacks.filter(|traceback| !traceback.is_empty()).collect(),
        incomplete: !exports.problems.is_empty(),
        toolsets: toolsets.collect(),
        tools: tools.collect(),
        entries: entries.collect(),
        classes: classes.map(class).collect(),
    }
}
