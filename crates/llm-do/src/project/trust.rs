//! What a project asks of the user who runs it, and the phases that keep it from being run before the user has
//! agreed: a project is *surveyed* (files are read, nothing runs), *trusted*, and only then anything of it starts.

pub(crate) mod claims;
mod contents;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::link::Survey;
use super::manifest::{Manifest, ToolsetDefinition};
use super::programs::RuleProgram;
use super::{AgentSpec, Layout, Program, Project, lexical_join};
use crate::BoxFuture;
use crate::escape::visible_name;
use crate::journal::digest::digest;
use crate::model::name::ModelChoices;
use crate::syntax::claim::{Claim, ClaimClass, ClaimSubject};
use crate::syntax::diagnostic::{Diagnostic, DiagnosticPlace, Located, Report, Span};
use crate::tools::DeclaredTool;
use crate::tools::approval::Rule;
use crate::tools::python::{Python, PythonFence};
use crate::tools::shell::program::ProgramPlace;
use crate::tools::source::{Access, Base, FilesystemConfig, ToolsetSource};
pub(crate) use contents::MOST_BYTES;
use contents::{FileContent, ModuleDigests, ProjectContents};

/// What is said of a program that a rule asks about.
const IF_YES: &str = ", if you say yes";

/// More items than a person reads.
pub(crate) const MOST_ITEMS: usize = 1_000;

/// One thing that needs trust.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TrustItem {
    /// How dangerous it is.
    pub class: ClaimClass,
    /// Harmless wherever they are printed.
    pub words: String,
    /// The file and its line: `project.json:9`.
    pub place: String,
    /// Whose it is: "shell `sh`".
    pub source: String,
    /// Of all that is agreed to, shown or not.
    pub digest: TrustDigest,
}

/// What identifies an item, or a whole list: 32 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TrustDigest(String);

impl TrustDigest {
    const DIGITS: usize = 32;

    fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut digest = digest(parts);
        digest.truncate(Self::DIGITS);
        Self(digest)
    }

    /// As it was typed.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digest = text.len() == Self::DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| Self(text.to_ascii_lowercase()))
    }

    /// Of a whole list.
    pub fn of_list(items: &[TrustItem]) -> Self {
        let digests: BTreeSet<&str> = items.iter().map(|item| item.digest.0.as_str()).collect();
        Self::of(std::iter::once("list").chain(digests))
    }
}

impl fmt::Display for TrustDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A project that was read and linked as far as that is possible without running any of it.
pub struct SurveyedProject {
    project: Project,
    linked: Survey,
    contents: ProjectContents,
}

/// What the user agreed to.
#[derive(Clone, Copy, Debug)]
pub enum Agreement<'a> {
    /// Whatever it is now.
    Everything,
    /// Exactly the list with this digest.
    List(&'a TrustDigest),
    /// Each of these, once.
    Items(&'a BTreeSet<TrustDigest>),
}

/// A project that the user agreed to. Whatever of it starts, starts from here: its Python files, its servers, its
/// runs.
#[derive(Debug)]
pub struct TrustedProject {
    project: Project,
    linked: Survey,
    contents: Arc<ProjectContents>,
}

/// A program of a trusted project: what a runtime takes.
#[derive(Clone, Debug)]
pub struct TrustedProgram(Program);

impl Deref for TrustedProgram {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

impl TrustedProgram {
    /// The same program with something in it changed by the caller that runs it, not by the project.
    #[cfg(feature = "front-end")]
    pub fn adapted<E>(self, change: impl FnOnce(Program) -> Result<Program, E>) -> Result<Self, E> {
        change(self.0).map(Self)
    }

    /// Trusts a program for a caller of this library, whose own project it is.
    pub(super) fn of_caller(program: Program) -> Self {
        Self(program)
    }

    pub(crate) fn into_inner(self) -> Program {
        self.0
    }
}

impl Project {
    /// Resolves every name that can be resolved without running anything, and reads what trust is about.
    pub fn surveyed(self, models: &ModelChoices, entry: Option<&str>) -> Result<SurveyedProject, Report> {
        let linked = self.survey(models, entry)?;
        let count = self.claims().count();
        if count > MOST_ITEMS {
            let fact = format!("{count} things in this project need trust, and {MOST_ITEMS} are the most");
            let problem = Diagnostic::error(DiagnosticPlace::Path(self.root.clone()), fact);
            return Err(Report::single(problem.hint("nobody reads so many: split the project, or name fewer")));
        }
        let contents = ProjectContents::read(&self.root, self.claims().map(|(base, claim)| (base, &claim.value)));
        Ok(SurveyedProject { project: self, linked, contents })
    }

    /// What the keys of its files ask for, with the directory of each file beneath the root.
    fn claims(&self) -> impl Iterator<Item = (&Path, &Located<Claim>)> {
        let manifest = self.written_manifest().into_iter().flat_map(|manifest| &manifest.claims);
        let workers = self.workers.iter().flat_map(|loaded| {
            let base = loaded.path.parent().unwrap_or(Path::new(""));
            loaded.worker.claims.iter().map(move |claim| (base, claim))
        });
        manifest.map(|claim| (Path::new(""), claim)).chain(workers).chain(self.claims_of_tests())
    }

    fn claims_of_tests(&self) -> impl Iterator<Item = (&Path, &Located<Claim>)> {
        self.test_claims.iter().map(|claim| (Path::new(""), claim))
    }

    fn written_manifest(&self) -> Option<&Manifest> {
        match &self.layout {
            Layout::Manifest(manifest) => Some(manifest),
            Layout::SingleFile | Layout::Directory | Layout::Unreadable => None,
        }
    }
}

impl SurveyedProject {
    /// The project as it was loaded; nothing of it has run.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// What could be resolved without running anything of the project.
    pub fn linked(&self) -> &Survey {
        &self.linked
    }

    /// What can be looked at without trust.
    #[cfg(feature = "front-end")]
    pub fn into_linked(self) -> Survey {
        self.linked
    }

    /// The project, if all that it asks for is agreed to.
    pub fn trusted(self, agreement: Agreement<'_>) -> Result<TrustedProject, Box<Self>> {
        let items = items(&self);
        let is_agreed = match agreement {
            Agreement::Everything => true,
            Agreement::List(digest) => TrustDigest::of_list(&items) == *digest,
            Agreement::Items(agreed) => items.iter().all(|item| agreed.contains(&item.digest)),
        };
        if !is_agreed {
            return Err(Box::new(self));
        }
        let Self { mut project, mut linked, contents } = self;
        project.read_outside(&mut linked.program);
        Ok(TrustedProject { project, linked, contents: Arc::new(contents) })
    }
}

impl TrustedProject {
    /// The project as it was loaded when it was trusted.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// The linked program, to look at; [`TrustedProject::into_program`] is what a runtime takes.
    pub fn program(&self) -> &Program {
        &self.linked.program
    }

    /// The linked program, which a runtime may run since it was trusted.
    pub fn into_program(self) -> TrustedProgram {
        TrustedProgram(self.linked.program)
    }

    /// What can be looked at.
    #[cfg(feature = "front-end")]
    pub fn into_linked(self) -> Survey {
        self.linked
    }

    /// Starts an interpreter and imports the project's Python files in it, each once; does nothing if there are none. What
    /// is wrong with them is reported by [`TrustedProject::relinked`]; an error here is an interpreter that cannot be
    /// started.
    pub async fn start_python(self, python: &Python) -> Result<Self, Report> {
        self.with_python(python).await
    }

    /// Where its Python files are no Python, as warnings. An interpreter parses them and runs nothing of them.
    #[cfg(feature = "front-end")]
    pub async fn python_syntax(&self, python: &Python) -> Report {
        self.project.python_syntax(python).await
    }

    /// Boxed, so that its code is made here and not by every crate that starts Python.
    #[inline(never)]
    fn with_python(self, python: &Python) -> BoxFuture<'_, Result<Self, Report>> {
        let program = &self.linked.program;
        let fenced = program.python_fence.clone();
        let fenced = fenced.map(|enclosure| PythonFence { enclosure, protected: program.protected.clone() });
        let (contents, root) = (Arc::clone(&self.contents), self.project.root.clone());
        let is_unchanged = Arc::new(move || contents.has_same_modules(&root));
        Box::pin(async move {
            let Self { project, mut linked, contents } = self;
            let project = if linked.program.has_stand_ins() {
                project.with_stand_ins(python, &linked.program.protected, Arc::clone(&is_unchanged) as _)
            } else {
                project
            };
            linked.program.registry.stand_ins.clone_from(&project.registry.stand_ins);
            let project = project.start_python(python, fenced, is_unchanged).await?;
            Ok(Self { project, linked, contents })
        })
    }

    /// The same project, of whose servers it is known what they offer: linking then checks names against it.
    #[must_use]
    pub fn offering(self, offered: BTreeMap<String, Vec<DeclaredTool>>) -> Self {
        Self { project: self.project.offering(offered), ..self }
    }

    /// Linked again, with what became known meanwhile.
    pub fn relinked(self, models: &ModelChoices, entry: Option<&str>) -> Result<Self, Report> {
        let linked = self.project.survey(models, entry)?;
        Ok(Self { linked, ..self })
    }
}

/// Everything of a project that needs trust, each once, the most dangerous first. Pure.
pub fn items(surveyed: &SurveyedProject) -> Vec<TrustItem> {
    let listing = TrustItemWriter { surveyed };
    let claims = surveyed.project.claims().filter(|(_, claim)| !listing.is_like_a_name(&claim.value));
    let mut items: Vec<Item> = claims.map(|(base, claim)| listing.item(base, claim)).collect();
    items.extend(listing.of_python());
    items.sort_by(|one, other| one.order().cmp(&other.order()));
    let mut seen = BTreeSet::new();
    let items = items.into_iter().filter(|item| seen.insert(item.digest()));
    items.map(|item| listing.shown(&item)).collect()
}

/// An item before it is put into words.
struct Item {
    class: ClaimClass,
    words: Vec<String>,
    /// How the words are shown.
    shown: String,
    hidden: Vec<String>,
    source: String,
    span: Option<Span>,
}

impl Item {
    /// The same wherever the project is, and wherever in its files the key stands.
    fn digest(&self) -> TrustDigest {
        let counted = |list: &[String]| list.len().to_string();
        let (words, hidden) = (counted(&self.words), counted(&self.hidden));
        let head = ["item", self.class.words(), self.source.as_str(), words.as_str(), hidden.as_str()];
        TrustDigest::of(head.into_iter().chain(self.words.iter().chain(&self.hidden).map(String::as_str)))
    }

    /// The order of items. What answers every question comes before what allows one.
    fn order(&self) -> (ClaimClass, bool, bool, Option<Span>, &str) {
        (self.class, self.source != "runtime", self.span.is_none(), self.span, &self.shown)
    }
}

struct TrustItemWriter<'a> {
    surveyed: &'a SurveyedProject,
}

impl TrustItemWriter<'_> {
    fn item(&self, base: &Path, Located { value: claim, span }: &Located<Claim>) -> Item {
        let mut item = Item {
            class: claim.class,
            words: Vec::new(),
            shown: String::new(),
            hidden: claim.literals.clone(),
            source: claim.owner.clone(),
            span: Some(*span),
        };
        let agent = self.agent_of(*span);
        if item.source.is_empty() {
            item.source = agent.map(|agent| format!("agent `{}`", agent.name)).unwrap_or_default();
        }
        match &claim.subject {
            ClaimSubject::Text(text) => item.shown.clone_from(text),
            ClaimSubject::Module(module) => {
                item.hidden.extend(self.python_fence());
                item.shown = format!("the Python module {module}{}", self.behind_fence());
            }
            ClaimSubject::Command { words, remark } => self.command(&mut item, words, remark),
            ClaimSubject::Python(file) => {
                let file = lexical_join(base, Path::new(file)).unwrap_or_else(|| PathBuf::from(file));
                item.hidden.push(covered(self.contents().of_project(&file)));
                item.hidden.extend(self.python_fence());
                item.shown = format!("{} of this project{}", file.display(), self.behind_fence());
            }
            ClaimSubject::StandIn(file) => {
                let file = lexical_join(base, Path::new(file)).unwrap_or_else(|| PathBuf::from(file));
                item.hidden.push(covered(self.contents().of_project(&file)));
                item.shown = format!("{} of this project, behind a fence (no network)", file.display());
            }
            ClaimSubject::Script(file) => {
                item.hidden.extend([std::mem::take(&mut item.source), self.script(base, file)]);
                "from a script instead of a model".clone_into(&mut item.shown);
                item.source.clone_from(file);
            }
            ClaimSubject::Tool(tool) => self.tool(&mut item, agent, tool),
            ClaimSubject::ToolOf { toolset, tool } => {
                item.hidden.extend(self.definitions(toolset));
                item.shown = format!("{tool} of `{toolset}`");
            }
        }
        if item.words.is_empty() {
            item.words.push(item.shown.clone());
        }
        item
    }

    fn contents(&self) -> &ProjectContents {
        &self.surveyed.contents
    }

    /// What Python may reach, if the project says so: a user who agreed to run it behind one fence has not agreed to
    /// another.
    fn python_fence(&self) -> Option<String> {
        let fence = self.surveyed.linked.program.python_fence.as_ref()?;
        Some(serde_json::json!([fence.read, fence.write, fence.network]).to_string())
    }

    fn behind_fence(&self) -> String {
        let fence = self.surveyed.linked.program.python_fence.as_ref();
        fence.map(|fence| format!(", behind a fence ({})", fence.words())).unwrap_or_default()
    }

    /// The agent whose file this is in.
    fn agent_of(&self, span: Span) -> Option<&AgentSpec> {
        let is_of = |name: Span| name.file == span.file;
        let worker = self.surveyed.project.workers.iter().find(|loaded| is_of(loaded.worker.name.span))?;
        self.surveyed.linked.program.agents.get(&worker.worker.name.value).map(AsRef::as_ref)
    }

    /// Where the program of a shell's rule lies, if the rule names it by its path.
    fn place_of_program(&self, owner: &str, words: &[String]) -> Option<&ProgramPlace> {
        let is_it = |rule: &&RuleProgram| rule.pattern == words && owner == format!("shell `{}`", rule.toolset);
        self.surveyed.project.programs.iter().find(is_it).map(|rule| &rule.place)
    }

    /// Whether a rule asks about a program of the system, which needs no trust: the user would be asked about it as
    /// well if the rule named it without its path.
    fn is_like_a_name(&self, claim: &Claim) -> bool {
        match &claim.subject {
            ClaimSubject::Command { words, remark } if remark == IF_YES => {
                matches!(self.place_of_program(&claim.owner, words), Some(ProgramPlace::System))
            }
            _ => false,
        }
    }

    fn command(&self, item: &mut Item, words: &[String], remark: &str) {
        match self.place_of_program(&item.source, words) {
            Some(ProgramPlace::System) => item.class = ClaimClass::Allow,
            Some(ProgramPlace::Own { path, digest }) => item.hidden.extend([shown_path(path), digest.clone()]),
            Some(ProgramPlace::Missing | ProgramPlace::Refused(_)) | None => {}
        }
        let named: Vec<(PathBuf, String)> = words
            .iter()
            .filter_map(|word| self.contents().named_by(word))
            .map(|(path, content)| (path, covered(Some(content))))
            .collect();
        // A rule that allows a program of the project runs code of the project.
        if item.class == ClaimClass::Allow && !named.is_empty() {
            item.class = ClaimClass::Run;
        }
        let unasked = match (item.class, item.source.starts_with("shell"), remark) {
            (ClaimClass::Run, true, IF_YES) => "",
            (ClaimClass::Run, true, _) => ", unasked",
            _ => "",
        };
        let vector = match (words, named.as_slice()) {
            ([_], [(path, _)]) if path.is_relative() => format!("{} of this project", path.display()),
            ([_], [(path, _)]) => path.display().to_string(),
            (words, _) => json(words),
        };
        item.shown = format!("{vector}{remark}{unasked}");
        item.words = words.iter().cloned().chain([remark.to_owned()]).collect();
        item.hidden.extend(named.into_iter().flat_map(|(path, content)| [path.display().to_string(), content]));
    }

    /// The text of a script was read with the other files.
    fn script(&self, base: &Path, file: &str) -> String {
        let project = &self.surveyed.project;
        let path = lexical_join(base, Path::new(file));
        let source = path.and_then(|path| project.references.get(&path)).map(|id| project.sources.get(*id));
        source.map(|source| digest([source.text.as_str()])).unwrap_or_default()
    }

    /// A rule of an agent: what it allows depends on the toolset that has the tool.
    fn tool(&self, item: &mut Item, agent: Option<&AgentSpec>, tool: &str) {
        let uses = agent.into_iter().flat_map(|agent| agent.tools.iter().chain(&agent.toolsets));
        let name = tool.split_once('.').map_or(tool, |(_, name)| name);
        let allowing = uses.filter(|used| [tool, name].iter().any(|name| used.rules.get(*name) == Some(&Rule::Allow)));
        let mut places = Vec::new();
        for used in allowing {
            places.push(place_of(&used.name, &used.source));
            item.hidden.push(used.name.clone());
            item.hidden.extend(self.definitions(&used.name));
        }
        item.shown = if places.is_empty() { tool.to_owned() } else { format!("{tool} {}", places.join(" and ")) };
    }

    /// A toolset of the manifest as it is written, and those that it is a variant of.
    fn definitions(&self, toolset: &str) -> Vec<String> {
        let Some(manifest) = self.surveyed.project.written_manifest() else { return Vec::new() };
        let mut found: Vec<String> = Vec::new();
        let mut next = Some(toolset);
        while let Some(definition) = next.and_then(|name| manifest.definitions.get(name)) {
            // A chain that leads back to itself is a mistake, and was reported.
            if found.len() > manifest.definitions.len() {
                break;
            }
            found.push(definition.clone());
            next = manifest.toolsets.iter().find(|(name, _)| Some(name.value.as_str()) == next).and_then(
                |(_, definition)| match definition {
                    ToolsetDefinition::Use { target, .. } => Some(target.value.as_str()),
                    ToolsetDefinition::Filesystem(_)
                    | ToolsetDefinition::Shell(..)
                    | ToolsetDefinition::Mcp(..)
                    | ToolsetDefinition::DynamicAgents(_)
                    | ToolsetDefinition::Map(_)
                    | ToolsetDefinition::StandIn(_)
                    | ToolsetDefinition::Broken => None,
                },
            );
        }
        found
    }

    /// What Python brings with it, besides the files that are named.
    fn of_python(&self) -> Vec<Item> {
        let item = |shown: String, hidden: Vec<String>| Item {
            class: ClaimClass::Run,
            words: vec![shown.clone()],
            shown,
            hidden: hidden.into_iter().chain(self.python_fence()).collect(),
            source: "Python".to_owned(),
            span: None,
        };
        let mut items = Vec::new();
        match &self.contents().modules {
            None => return items,
            Some(ModuleDigests::TooMany) => {
                let words = "whatever Python modules this directory contains: too many to tell changes";
                items.push(item(words.to_owned(), Vec::new()));
            }
            Some(ModuleDigests::Read(files)) => {
                let named = self.named_modules();
                let others = files.iter().map(|(path, digest)| (Path::new(path), digest));
                let others: Vec<(&Path, &String)> = others.filter(|(path, _)| !named.contains(*path)).collect();
                if !others.is_empty() {
                    let words = match others.as_slice() {
                        [(path, _)] => format!("{} of this project, if it is imported", path.display()),
                        several => format!("{} other Python modules of this project, if imported", several.len()),
                    };
                    let pairs = others.into_iter().flat_map(|(path, digest)| [shown_path(path), digest.clone()]);
                    items.push(item(words, pairs.collect()));
                }
            }
        }
        if self.contents().has_interpreter {
            items.push(item("the Python interpreter in .venv, and what is installed there".to_owned(), Vec::new()));
        }
        items
    }

    /// Modules of which an item of their own speaks.
    fn named_modules(&self) -> BTreeSet<PathBuf> {
        let named = self.surveyed.project.claims().filter_map(|(base, claim)| match &claim.value.subject {
            ClaimSubject::Python(file) | ClaimSubject::StandIn(file) => lexical_join(base, Path::new(file)),
            _ => None,
        });
        named.collect()
    }

    fn shown(&self, item: &Item) -> TrustItem {
        let digest = item.digest();
        TrustItem {
            class: item.class,
            words: visible_name(&item.shown).into_owned(),
            place: item.span.map(|span| self.place(span)).unwrap_or_default(),
            source: visible_name(&item.source).into_owned(),
            digest,
        }
    }

    fn place(&self, span: Span) -> String {
        let project = &self.surveyed.project;
        let source = project.sources.get(span.file);
        let path = source.path.strip_prefix(&project.root).unwrap_or(&source.path);
        let line = source.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1;
        format!("{}:{line}", visible_name(&path.display().to_string()))
    }
}

/// Names need not be UTF-8, and two that are not must not look alike.
fn shown_path(path: &Path) -> String {
    path.as_os_str().as_encoded_bytes().escape_ascii().to_string()
}

fn covered(content: Option<&FileContent>) -> String {
    match content {
        Some(FileContent::Digest(digest)) => digest.clone(),
        Some(FileContent::Place) => "by its place".to_owned(),
        None => String::new(),
    }
}

/// The words of a command, one by one.
fn json(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| serde_json::Value::from(word.as_str()).to_string()).collect();
    format!("[{}]", words.join(", "))
}

/// Where the tool of a toolset does what it does.
fn place_of(name: &str, source: &ToolsetSource) -> String {
    match source.origin() {
        ToolsetSource::Filesystem(FilesystemConfig { roots }) => {
            // A rule is needed to write unasked, and not to read.
            let writable = roots.all().filter(|root| root.access == Access::ReadWrite).map(|root| base_of(&root.base));
            let writable: Vec<String> = writable.collect();
            let all = || roots.all().map(|root| base_of(&root.base)).collect();
            let roots: Vec<String> = if writable.is_empty() { all() } else { writable };
            format!("in {}", roots.join(" and "))
        }
        ToolsetSource::Shell(_) => format!("of the shell `{name}`"),
        ToolsetSource::Mcp(_) => format!("of the server `{name}`"),
        ToolsetSource::Agent(agent) => format!("of the agent `{agent}`"),
        ToolsetSource::Map(config) => format!("of the agent `{}` over a list", config.agent),
        ToolsetSource::Python(_) | ToolsetSource::Open => "in Python".to_owned(),
        ToolsetSource::Registered(_)
        | ToolsetSource::DynamicAgents(_)
        | ToolsetSource::AskUser
        | ToolsetSource::Skills(_) => format!("of `{name}`"),
        // It is the origin of no toolset.
        ToolsetSource::Variant(_) => String::new(),
    }
}

fn base_of(base: &Base) -> String {
    match base {
        Base::WorkingDirectory => "the working directory".to_owned(),
        Base::Project(path) if path == Path::new(".") => "the project".to_owned(),
        Base::Project(path) => format!("{} of the project", path.display()),
        Base::Absolute(path) => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests;
