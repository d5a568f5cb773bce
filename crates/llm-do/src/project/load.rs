//! The only reading of project files: by descriptor beneath the project root, regular files only, bounded.

use crate::remedy::Remedy;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileType};

use super::manifest::{self, ToolsetDefinition};
use super::skills::{AGENTS_MD, OutsideTexts};
use super::worker::{self, AgentsMd, Format, PythonModule, SchemaSource, WorkerFile};
use super::{Code, Layout, LoadedWorker, Project, programs};
use crate::beneath::{self, FileOpenError};
use crate::escape::visible_start;
use crate::model::scripted;
use crate::syntax::diagnostic::{
    Diagnostic, DiagnosticPlace, Diagnostics, FileId, Located, Report, Severity, Sources, Span,
};
use crate::syntax::names;
use crate::syntax::table::is_name;
use crate::syntax::tree::LARGEST_FILE;
use crate::tools::function::Registry;
#[cfg(feature = "front-end")]
use crate::tools::policy::LastingRule;
use crate::tools::skill::SKILL_FILE;
use crate::tools::working_directory::WorkingDirectory;

/// The manifest's name.
pub const MANIFEST_NAME: &str = "project.json";
/// Where agents that are created at run time are kept, beneath the project root, unless the manifest says otherwise.
pub(crate) const DEFAULT_GENERATED_DIR: &str = "workers/generated";
/// More agents than people write; a directory of more files is a mistake or an attack.
const MOST_WORKER_FILES: usize = 50_000;

impl Project {
    /// A project without files: its agents are added with [`Project::agent`], and its root is where its files are. The
    /// entry is the agent that is marked, or `main`, or the only one.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self {
            shown_root: root.clone(),
            root,
            directory: WorkingDirectory::of_process(),
            layout: Layout::Directory,
            workers: Vec::new(),
            references: BTreeMap::new(),
            outside: OutsideTexts::default(),
            broken: BTreeSet::new(),
            generated: BTreeMap::new(),
            code: Code::Absent,
            offered: BTreeMap::new(),
            registry: Registry::default(),
            programs: Vec::new(),
            #[cfg(feature = "front-end")]
            tests: Vec::new(),
            test_claims: Vec::new(),
            sources: Arc::default(),
            problems: Diagnostics::default(),
        }
    }

    /// A project without files, with a manifest as text, which lists none: its agents are added with [`Project::agent`].
    pub fn of_manifest(root: impl Into<PathBuf>, text: &str) -> Self {
        let mut project = Self::new(root);
        let sources = Arc::make_mut(&mut project.sources);
        let file = sources.add(PathBuf::from(MANIFEST_NAME), text.to_owned());
        let manifest = manifest::of_values(file, text, &mut project.problems);
        project.layout = manifest.map_or(Layout::Unreadable, |manifest| Layout::Manifest(Box::new(manifest)));
        project
    }

    /// Reads the schemas and scripts that agents refer to which came as text, beneath the root like those of files.
    #[must_use]
    #[cfg(feature = "front-end")]
    pub fn read_references(mut self) -> Self {
        let Ok(mut loader) = Loader::open(self.root.clone(), &self.directory) else { return self };
        loader.sources = Sources::clone(&self.sources);
        loader.workers = std::mem::take(&mut self.workers);
        let found = loader.references();
        let Loader { sources, problems, workers, .. } = loader;
        self.sources = Arc::new(sources);
        self.problems.extend(problems);
        self.workers = workers;
        self.references.extend(found);
        self
    }

    /// Adds an agent as text, written like a `.worker` file. Its mistakes are reported by [`Project::link`], at places in
    /// a file of this name.
    #[must_use]
    pub fn agent(self, file: &str, text: &str) -> Self {
        self.add(Path::new(file), text, Format::FrontMatter)
    }

    /// A worker file that was not loaded with the others.
    pub(super) fn add_file(self, path: &Path, text: &str) -> Self {
        self.add(path, text, Format::of(path).unwrap_or(Format::FrontMatter))
    }

    fn add(mut self, path: &Path, text: &str, format: Format) -> Self {
        let sources = Arc::get_mut(&mut self.sources).expect("a project that is not linked yet is the only owner");
        let id = sources.add(path.to_owned(), text.to_owned());
        let mut problems = Diagnostics::default();
        match worker::parse(id, &stem_of(path), text, format, &mut problems) {
            Some(worker) => self.workers.push(LoadedWorker { path: path.to_owned(), worker, rests: false }),
            None => drop(path.file_stem().map(|stem| self.broken.insert(stem.to_string_lossy().into_owned()))),
        }
        self.problems.extend(problems);
        self
    }

    /// The lasting rules of its manifest.
    #[cfg(feature = "front-end")]
    pub fn rules(&self) -> &[Arc<LastingRule>] {
        match &self.layout {
            Layout::Manifest(manifest) => &manifest.rules,
            Layout::SingleFile | Layout::Directory | Layout::Unreadable => &[],
        }
    }

    /// Reads a project: a manifest, a directory, or one worker file. Mistakes inside its files are kept for
    /// [`Project::link`], which reports them together with its own.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Report> {
        Self::load_from(path, &WorkingDirectory::of_process())
    }

    /// Reads a project whose path was typed in this directory; a run of it should work there as well.
    pub fn load_from(path: impl AsRef<Path>, directory: &WorkingDirectory) -> Result<Self, Report> {
        let typed = path.as_ref();
        let path = directory.join(typed);
        let path = path.as_path();
        let failed = |fact: String| {
            let problem = Diagnostic::error(DiagnosticPlace::Path(path.to_owned()), fact);
            Report::single(problem.hint("give a project directory, its `project.json`, or a worker file"))
        };
        let metadata = std::fs::metadata(path).map_err(|error| failed(reading(&error)))?;
        if metadata.is_dir() {
            let loader = Loader::open(typed.to_owned(), directory).map_err(|error| failed(reading(&error)))?;
            let manifest = Path::new(MANIFEST_NAME);
            return Ok(if loader.exists(manifest) { loader.manifest(manifest) } else { loader.directory() });
        }
        if !metadata.is_file() {
            return Err(failed("neither a file nor a directory".to_owned()));
        }
        let name = path.file_name().map(PathBuf::from).ok_or_else(|| failed("not a file name".to_owned()))?;
        let root = typed.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let loader = Loader::open(root.to_owned(), directory).map_err(|error| failed(reading(&error)))?;
        match (Format::of(&name), name.extension().and_then(|extension| extension.to_str())) {
            (Some(format), _) => Ok(loader.single_file(&name, format)),
            (None, Some("json")) => Ok(loader.manifest(&name)),
            (None, _) => Err(failed("neither a manifest nor a worker file".to_owned())),
        }
    }
}

/// Reads files with cases, as project files are read: beneath the root, regular ones only, bounded.
#[cfg(feature = "front-end")]
pub(super) struct TestLoader(Loader);

#[cfg(feature = "front-end")]
impl TestLoader {
    /// An error gives the sources back.
    pub(super) fn open(project: &Project, sources: Sources) -> Result<Self, (Sources, io::Error)> {
        match Loader::open(project.root.clone(), &project.directory) {
            Ok(loader) => Ok(Self(Loader { sources, ..loader })),
            Err(error) => Err((sources, error)),
        }
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }

    pub(super) fn beneath(&mut self, listed: &Located<String>) -> Option<PathBuf> {
        self.0.beneath(Path::new(""), listed)
    }

    pub(super) fn tests_in(&mut self, directory: &Path) -> Vec<PathBuf> {
        self.0.names_in(directory, |kind, path| kind.is_file() && is_test(path))
    }

    pub(super) fn add_source(&mut self, path: &Path, place: DiagnosticPlace) -> Option<FileId> {
        self.0.add_source(path, place)
    }

    pub(super) fn text(&self, file: FileId) -> String {
        self.0.sources.get(file).text.clone()
    }

    pub(super) fn problems(&mut self) -> &mut Diagnostics {
        &mut self.0.problems
    }

    pub(super) fn done(self) -> (Sources, Diagnostics) {
        (self.0.sources, self.0.problems)
    }
}

/// Whether a file has cases: it is never read as a worker file.
#[cfg(feature = "front-end")]
fn is_test(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(worker::TEST_FILE_ENDING))
}

/// What a worker file is called while code answers in its agent's place: `sorter.worker.softened`.
pub(crate) fn resting(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".softened");
    PathBuf::from(name)
}

/// What it is called otherwise.
fn awake(path: &Path) -> PathBuf {
    let is_resting = path.extension().is_some_and(|ending| ending == "softened");
    if is_resting { path.with_extension("") } else { path.to_owned() }
}

fn reading(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

/// Why a file of the project was not read.
#[derive(Debug, thiserror::Error)]
enum ProjectFileError {
    #[error(transparent)]
    Unopened(#[from] FileOpenError),
    #[error("larger than {LARGEST_FILE} bytes")]
    TooLarge,
    #[error("not UTF-8: line {line}, column {column}")]
    NotText { line: usize, column: usize },
}

impl From<io::Error> for ProjectFileError {
    fn from(error: io::Error) -> Self {
        Self::Unopened(error.into())
    }
}

struct Loader {
    root: PathBuf,
    shown_root: PathBuf,
    working: WorkingDirectory,
    directory: Dir,
    sources: Sources,
    problems: Diagnostics,
    workers: Vec<LoadedWorker>,
    broken: BTreeSet<String>,
    /// Directories that could not be looked into, each reported once.
    closed: BTreeSet<PathBuf>,
}

impl Loader {
    fn open(shown_root: PathBuf, working: &WorkingDirectory) -> io::Result<Self> {
        let (root, working) = (working.join(&shown_root), working.clone());
        let directory = Dir::open_ambient_dir(&root, ambient_authority())?;
        let (sources, problems) = (Sources::default(), Diagnostics::default());
        let (broken, closed) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { root, shown_root, working, directory, sources, problems, workers: Vec::new(), broken, closed })
    }

    fn exists(&self, path: &Path) -> bool {
        self.directory.symlink_metadata(path).is_ok()
    }

    fn manifest(mut self, name: &Path) -> Project {
        let manifest = self.add_source(name, DiagnosticPlace::Path(self.root.join(name))).and_then(|file| {
            let text = &self.sources.get(file).text;
            manifest::parse(file, text, &mut self.problems)
        });
        let Some(manifest) = manifest else {
            return self.finish(Layout::Unreadable, BTreeMap::new(), Code::Absent);
        };
        for listed in &manifest.worker_files {
            match self.beneath(Path::new(""), listed) {
                Some(path) => self.add_listed(&path, DiagnosticPlace::At(listed.span)),
                // What it would have defined is not missing too.
                None => self.broken.extend([stem_of(Path::new(&listed.value))]),
            }
        }
        for listed in &manifest.python_files {
            self.expect_python(Path::new(""), listed);
        }
        for (_, definition) in &manifest.toolsets {
            if let ToolsetDefinition::StandIn(Located { value, span }) = definition {
                let value = value.file.display().to_string();
                self.expect_python(Path::new(""), &Located { value, span: *span });
            }
        }
        let generated_dir = match &manifest.generated_agents_dir {
            Some(listed) => self.beneath(Path::new(""), listed),
            None => Some(PathBuf::from(DEFAULT_GENERATED_DIR)),
        };
        let generated = generated_dir.map(|path| self.generated(&path)).unwrap_or_default();
        let code = if manifest.python_files.is_empty() { Code::Absent } else { Code::Unread };
        let programs = programs::look_up(&manifest, &self.root, &self.working, &mut self.problems);
        Project { programs, ..self.finish(Layout::Manifest(Box::new(manifest)), generated, code) }
    }

    fn single_file(mut self, name: &Path, format: Format) -> Project {
        self.add_worker_as(name, format, DiagnosticPlace::Path(self.root.join(name)));
        self.finish(Layout::SingleFile, BTreeMap::new(), Code::Absent)
    }

    fn directory(mut self) -> Project {
        let mut files = self.files_in(Path::new(""), &[Format::FrontMatter]);
        files.extend(self.files_in(Path::new("workers"), &[Format::Yaml]));
        for directory in self.directories_in(Path::new("workers")) {
            let file = directory.join("worker.yaml");
            // `workers/generated/worker.yaml` is a created agent, if it was created here.
            if directory != Path::new(DEFAULT_GENERATED_DIR) && self.exists(&file) {
                files.push(file);
            }
        }
        let generated = self.generated(Path::new(DEFAULT_GENERATED_DIR));
        if files.is_empty() && generated.is_empty() && self.closed.is_empty() {
            self.note_no_files();
        }
        for file in files {
            self.add_worker(&file, DiagnosticPlace::Path(self.root.join(&file)));
        }
        self.finish(Layout::Directory, generated, Code::Absent)
    }

    /// Says that there is nothing to run here, and what nearly is.
    fn note_no_files(&mut self) {
        let fact = "neither a manifest nor worker files in this directory";
        let ends = |path: &Path, endings: &[&str]| {
            let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
            ending.is_some_and(|ending| endings.contains(&ending.as_str()))
        };
        let is_near = |kind: FileType, path: &Path| kind.is_file() && ends(path, &["worker", "agent", "md"]);
        let near = self.names_in(Path::new(""), is_near);
        let misspelled = near.iter().find(|path| !ends(path, &["md"]));
        let (place, hint) = match misspelled.or(near.first()) {
            None => (self.root.clone(), Remedy::NewProject),
            Some(path) => {
                let (saw, stem) = (path.display(), stem_of(path));
                let hint = if misspelled.is_some() {
                    format!("saw `{saw}`: worker files end in `.worker`")
                } else {
                    format!("saw `{saw}`: name it in `worker_files`, or rename it to `{stem}.worker`")
                };
                (shown_beneath(&self.root, path), hint.into())
            }
        };
        self.problems.push(Diagnostic::error(DiagnosticPlace::Path(place), fact).hint(hint));
    }

    /// What was meant by a file that is not there: another one beside it, or one that has yet to be written.
    fn instead_of(&mut self, path: &Path) -> Option<Remedy> {
        let ending = path.extension()?.to_owned();
        let is_worker = Format::of(path).is_some();
        let is_like = |kind: FileType, other: &Path| {
            kind.is_file() && (other.extension() == Some(&ending) || (is_worker && Format::of(other).is_some()))
        };
        let beside = self.names_in(path.parent().unwrap_or(Path::new("")), is_like);
        let names: Vec<String> = beside.iter().map(|path| path.display().to_string()).collect();
        let what = if is_worker { "worker files" } else { "files" };
        if names.is_empty() {
            return is_worker.then(|| Remedy::NewWorkerFile { name: stem_of(path) });
        }
        Some(names::instead(&path.display().to_string(), what, names.iter().map(String::as_str)).into())
    }

    fn finish(mut self, layout: Layout, generated: BTreeMap<String, PathBuf>, code: Code) -> Project {
        let references = self.references();
        Project {
            root: self.root,
            shown_root: self.shown_root,
            directory: self.working,
            layout,
            workers: self.workers,
            references,
            outside: OutsideTexts::default(),
            broken: self.broken,
            generated,
            code,
            offered: BTreeMap::new(),
            registry: Registry::default(),
            programs: Vec::new(),
            #[cfg(feature = "front-end")]
            tests: Vec::new(),
            test_claims: Vec::new(),
            sources: Arc::new(self.sources),
            problems: self.problems,
        }
    }

    /// A path of a project file, beneath the root, as words alone can tell; opening it tells the rest.
    fn beneath(&mut self, base: &Path, listed: &Located<String>) -> Option<PathBuf> {
        let mut path = base.to_owned();
        let mut inside = !listed.value.contains('\0');
        for component in Path::new(&listed.value).components() {
            match component {
                Component::Normal(part) => path.push(part),
                Component::CurDir => {}
                Component::ParentDir => inside &= path.pop(),
                Component::RootDir | Component::Prefix(_) => inside = false,
            }
        }
        if !inside {
            self.unreadable(DiagnosticPlace::At(listed.span), &listed.value, &FileOpenError::Outside.into());
        }
        inside.then_some(path)
    }

    fn unreadable(&mut self, place: DiagnosticPlace, path: &str, reason: &ProjectFileError) {
        let problem = Diagnostic::error(place, format!("`{}`: {reason}", visible_start(path, 120)));
        let problem = match reason {
            ProjectFileError::Unopened(FileOpenError::Outside) => {
                problem.hint("paths are relative to their file and stay inside the project root")
            }
            ProjectFileError::NotText { .. } => problem.hint("save the file as UTF-8"),
            ProjectFileError::Unopened(FileOpenError::Missing) => {
                problem.maybe_remedy(self.instead_of(Path::new(path)))
            }
            ProjectFileError::Unopened(FileOpenError::NotRegular | FileOpenError::Io(_))
            | ProjectFileError::TooLarge => problem,
        };
        self.problems.push(problem);
    }

    fn read(&self, path: &Path) -> Result<String, ProjectFileError> {
        let bytes = beneath::read(&self.directory, path, LARGEST_FILE as u64 + 1)?;
        if bytes.len() > LARGEST_FILE {
            return Err(ProjectFileError::TooLarge);
        }
        String::from_utf8(bytes).map_err(|error| {
            let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
            let column = good.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
            ProjectFileError::NotText { line: good.matches('\n').count() + 1, column }
        })
    }

    fn add_source(&mut self, path: &Path, place: DiagnosticPlace) -> Option<FileId> {
        match self.read(path) {
            Ok(text) => Some(self.sources.add(shown_beneath(&self.root, path), text)),
            Err(reason) => {
                self.unreadable(place, &path.display().to_string(), &reason);
                None
            }
        }
    }

    /// A worker file that is listed may rest beside its place, while code answers in its agent's stead.
    fn add_listed(&mut self, path: &Path, place: DiagnosticPlace) {
        let resting = resting(path);
        match Format::of(path).or_else(|| Format::of_markdown(path)) {
            Some(format) if !self.exists(path) && self.exists(&resting) => {
                self.add_worker_as(&resting, format, place);
                if let Some(loaded) = self.workers.last_mut().filter(|loaded| loaded.path == resting) {
                    loaded.rests = true;
                }
            }
            Some(_) | None => self.add_worker(path, place),
        }
    }

    fn add_worker(&mut self, path: &Path, place: DiagnosticPlace) {
        match Format::of(path).or_else(|| Format::of_markdown(path)) {
            Some(format) => self.add_worker_as(path, format, place),
            None => {
                self.broken.extend([stem_of(path)]);
                let fact = format!("`{}` is not a worker file", visible_start(&path.display().to_string(), 120));
                let hint = "worker files end in `.worker`, `.agent`, `.md`, `.yaml` or `.yml`";
                self.problems.push(Diagnostic::error(place, fact).hint(hint));
            }
        }
    }

    fn add_worker_as(&mut self, path: &Path, format: Format, place: DiagnosticPlace) {
        let worker = self.add_source(path, place).and_then(|file| {
            let mut problems = Diagnostics::default();
            let text = &self.sources.get(file).text;
            let worker = worker::parse(file, &stem_of(&awake(path)), text, format, &mut problems);
            self.problems.extend(problems);
            worker
        });
        match worker {
            Some(worker) => self.workers.push(LoadedWorker { path: path.to_owned(), worker, rests: false }),
            None => self.broken.extend(awake(path).file_stem().and_then(|stem| stem.to_str()).map(str::to_owned)),
        }
    }

    /// Reads the JSON Schemas and scripts that worker files refer to, and looks for the Python files.
    fn references(&mut self) -> BTreeMap<PathBuf, FileId> {
        let mut references = BTreeMap::new();
        let workers = std::mem::take(&mut self.workers);
        for LoadedWorker { path, worker, .. } in &workers {
            let base = path.parent().unwrap_or(Path::new(""));
            for source in [&worker.schema_in, &worker.schema_out].into_iter().flatten() {
                self.schema(base, source, &mut references);
            }
            for script in worker.models.iter().filter_map(scripted::script_of) {
                self.reference(base, &script, &mut references);
            }
            for directory in &worker.skills {
                self.skills(base, directory, &mut references);
            }
            if let Some(Located { value: AgentsMd::Project, span }) = worker.agents_md {
                self.agents_md(span, &mut references);
            }
        }
        self.workers = workers;
        references
    }

    fn reference(&mut self, base: &Path, listed: &Located<String>, references: &mut BTreeMap<PathBuf, FileId>) {
        let Some(path) = self.beneath(base, listed) else { return };
        if !references.contains_key(&path)
            && let Some(file) = self.add_source(&path, DiagnosticPlace::At(listed.span))
        {
            references.insert(path, file);
        }
    }

    fn schema(&mut self, base: &Path, source: &SchemaSource, references: &mut BTreeMap<PathBuf, FileId>) {
        match source {
            SchemaSource::Inline(_) => {}
            SchemaSource::File(listed) => self.reference(base, listed, references),
            SchemaSource::Python(class) => match &class.value.module {
                PythonModule::File(file) => {
                    self.expect_python(base, &Located { value: file.clone(), span: class.span });
                }
                PythonModule::Importable(_) => {}
            },
        }
    }

    /// Reads the skills of the project in a directory; those outside of it are read when it is trusted.
    fn skills(&mut self, base: &Path, listed: &Located<String>, references: &mut BTreeMap<PathBuf, FileId>) {
        if Path::new(&listed.value).is_absolute() {
            return;
        }
        let Some(directory) = self.beneath(base, listed) else { return };
        if !self.exists(&directory) {
            self.unreadable(DiagnosticPlace::At(listed.span), &listed.value, &FileOpenError::Missing.into());
            return;
        }
        let files = self.directories_in(&directory).into_iter().map(|skill| skill.join(SKILL_FILE));
        let files: Vec<PathBuf> = files.filter(|file| self.exists(file)).collect();
        if files.is_empty() {
            let fact = format!("there is no skill in `{}`", visible_start(&listed.value, 120));
            let hint = "a skill is a directory in it with a `SKILL.md`";
            self.problems.push(Diagnostic::warning(listed.span, fact).hint(hint));
        }
        for path in files.into_iter().filter(|path| !references.contains_key(path)).collect::<Vec<_>>() {
            if let Some(file) = self.add_source(&path, DiagnosticPlace::At(listed.span)) {
                references.insert(path, file);
            }
        }
    }

    fn agents_md(&mut self, span: Span, references: &mut BTreeMap<PathBuf, FileId>) {
        let path = PathBuf::from(AGENTS_MD);
        if references.contains_key(&path) {
            return;
        }
        if !self.exists(&path) {
            self.problems.push(Diagnostic::note(span, "there is no `AGENTS.md` in the project: nothing is added"));
            return;
        }
        if let Some(file) = self.add_source(&path, DiagnosticPlace::At(span)) {
            references.insert(path, file);
        }
    }

    /// Python files are not read here, but they must be there.
    fn expect_python(&mut self, base: &Path, listed: &Located<String>) {
        let Some(path) = self.beneath(base, listed) else { return };
        if path.extension().is_none_or(|extension| extension != "py") {
            let fact = format!("`{}` is not a Python file", visible_start(&listed.value, 120));
            self.problems.push(Diagnostic::error(listed.span, fact).hint("Python files end in `.py`"));
            return;
        }
        let reason = match self.directory.metadata(&path).map_err(ProjectFileError::from) {
            Ok(metadata) if metadata.is_file() => return,
            Ok(_) => FileOpenError::NotRegular.into(),
            Err(reason) => reason,
        };
        self.unreadable(DiagnosticPlace::At(listed.span), &path.display().to_string(), &reason);
    }

    /// Agents that earlier runs created. They are not linked, so what is wrong with them is no error here.
    fn generated(&mut self, directory: &Path) -> BTreeMap<String, PathBuf> {
        let mut generated = BTreeMap::new();
        let mut files = self.files_in(directory, &[Format::Yaml, Format::FrontMatter]);
        if !files.is_empty() {
            let listed: BTreeSet<&Path> = self.workers.iter().map(|worker| worker.path.as_path()).collect();
            files.retain(|path| !listed.contains(path.as_path()));
        }
        for path in files {
            match self.generated_agent(&path) {
                Ok(worker) => {
                    generated.insert(worker.name.value, path);
                }
                Err(reason) => {
                    let place = DiagnosticPlace::Path(self.root.join(&path));
                    let fact = format!("a created agent whose file cannot be used: {reason}");
                    self.problems.push(Diagnostic::note(place, fact));
                }
            }
        }
        generated
    }

    /// The file, or the first mistake in it.
    fn generated_agent(&self, path: &Path) -> Result<WorkerFile, String> {
        let text = self.read(path).map_err(|reason| reason.to_string())?;
        let mut problems = Diagnostics::default();
        let file = Sources::default().add(path.to_owned(), String::new());
        let format = Format::of(path).unwrap_or(Format::FrontMatter);
        match worker::parse(file, &stem_of(path), &text, format, &mut problems) {
            Some(worker) if !problems.has_errors() => Ok(worker),
            Some(_) | None => {
                let mistake = problems.iter().find(|problem| problem.severity == Severity::Error);
                Err(mistake.map(|mistake| mistake.fact.clone()).unwrap_or_default())
            }
        }
    }

    fn files_in(&mut self, directory: &Path, formats: &[Format]) -> Vec<PathBuf> {
        self.names_in(directory, |kind, path| kind.is_file() && Format::of(path).is_some_and(|f| formats.contains(&f)))
    }

    fn directories_in(&mut self, directory: &Path) -> Vec<PathBuf> {
        self.names_in(directory, |kind, path| {
            kind.is_dir() && path.file_name().and_then(|name| name.to_str()).is_some_and(is_name)
        })
    }

    /// Sorted, so that a report has the same order everywhere. A directory that is not there has no names.
    fn names_in(&mut self, directory: &Path, wanted: impl Fn(FileType, &Path) -> bool) -> Vec<PathBuf> {
        let opened = if directory.as_os_str().is_empty() { "." } else { directory.to_str().unwrap_or(".") };
        let entries = match self.directory.read_dir(opened) {
            Ok(entries) => entries,
            Err(error) => {
                self.note_closed(directory, &error);
                return Vec::new();
            }
        };
        let mut names = Vec::new();
        for entry in entries.flatten() {
            let path = directory.join(entry.file_name());
            // A link counts as what it leads to, if that is inside the root.
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_symlink() => self.directory.metadata(&path).map(|metadata| metadata.file_type()),
                kind => kind,
            };
            if kind.is_ok_and(|kind| wanted(kind, &path)) {
                names.push(path);
            }
            if names.len() > MOST_WORKER_FILES {
                let fact = format!("more than {MOST_WORKER_FILES} worker files in one directory");
                self.problems.push(Diagnostic::error(DiagnosticPlace::Path(self.root.join(directory)), fact));
                return Vec::new();
            }
        }
        names.sort();
        names
    }

    /// What cannot be looked into may hold agents: that is something else than holding none.
    fn note_closed(&mut self, directory: &Path, error: &io::Error) {
        let is_absent = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        // What leads outside leads nowhere, and it is not the system that says so.
        let leads_nowhere = error.raw_os_error().is_none();
        if !is_absent && !leads_nowhere && self.closed.insert(directory.to_owned()) {
            let place = DiagnosticPlace::Path(self.root.join(directory));
            self.problems.push(Diagnostic::error(place, reading(error)));
        }
    }
}

/// What an agent of a file would be called.
fn stem_of(path: &Path) -> String {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_name(stem));
    stem.unwrap_or("main").to_owned()
}

/// As people wrote it: no `./` in front of everything.
pub(super) fn shown_beneath(root: &Path, path: &Path) -> PathBuf {
    if root == Path::new(".") { path.to_owned() } else { root.join(path) }
}
