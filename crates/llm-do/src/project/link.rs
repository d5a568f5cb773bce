//! Names → [`Program`]. Pure: what Python offers and which models the user chose come in as values; every mistake of
//! the project goes out in one report.

mod agent;
mod created;
mod namespace;
mod prompt;
mod protected;
mod schema_mistakes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::manifest::{Manifest, RuntimeKeys, ToolsetDefinition};
use super::programs::RuleProgram;
use super::trust::TrustedProgram;
use super::{AgentSpec, Code, Entry, EntryFunction, Fallback, Layout, LoadedWorker, Policy, Program, Project};
use crate::escape::visible;
use crate::model::name::{AgentPlace, ChosenBy, ModelChoices, ModelName};
use crate::model::provider::{PROVIDERS, provider};
use crate::model::scripted::Script;
use crate::remedy::{Remedy, Wording};
use crate::syntax::diagnostic::{Diagnostic, DiagnosticPlace, Diagnostics, Located, Report};
use crate::syntax::names;
use crate::tools::python::stand_in::StandIn;
use crate::tools::source::MapConfig;
use namespace::Namespace;

/// A linked project, with what is worth knowing about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Survey {
    /// The program, in which some names may be open.
    pub program: Program,
    /// Notes: nothing in it is an error.
    pub notes: Report,
}

impl Project {
    /// Resolves every name, or reports every mistake. Names that only unread Python files can define are an error. A
    /// program that names a project asks for what is in it, as an `import` does; for the project of a stranger there is
    /// [`Project::surveyed`].
    pub fn link(&self, models: &ModelChoices) -> Result<TrustedProgram, Report> {
        let mut linked = self.survey(models, None)?;
        self.tell_outside(&self.outside_texts(), &mut linked.program);
        match linked.program.open.first() {
            None => Ok(TrustedProgram::of_caller(linked.program)),
            Some(name) => Err(Report::single(
                Diagnostic::error(
                    DiagnosticPlace::Path(self.root.clone()),
                    format!("`{name}` is defined in Python, which was not started"),
                )
                .hint("start Python before linking"),
            )),
        }
    }

    /// Like [`Project::link`], but names that unread Python files may define stay open and are listed. `entry` is the
    /// agent to start with instead of the project's own entry.
    pub fn survey(&self, models: &ModelChoices, entry: Option<&str>) -> Result<Survey, Report> {
        let mut linker = Linker::new(self, models);
        let program = linker.program(entry);
        let report = |problems| Report::new(Arc::clone(&self.sources), problems);
        match program {
            Some(program) if !linker.problems.has_errors() => Ok(Survey { program, notes: report(linker.problems) }),
            Some(_) | None => Err(report(linker.problems)),
        }
    }
}

struct Linker<'a> {
    project: &'a Project,
    models: &'a ModelChoices,
    problems: Diagnostics,
    /// Each name once: of two agents with one name the first is kept, the second reported.
    agents: BTreeMap<&'a str, &'a LoadedWorker>,
    open: BTreeSet<String>,
    /// Which of the user's choices decided something.
    choices_used: Vec<ChosenBy>,
    /// Agents by the provider whose key is missing.
    keyless: BTreeMap<String, Vec<&'a str>>,
    /// Models of unknown providers that were chosen outside the files: said once, not for every agent.
    refused_choices: BTreeSet<ModelName>,
    /// Whether some agent creates others, which cannot be known now.
    creates_agents: bool,
    /// Scripts that the user named, `None` if they have mistakes.
    scripts: BTreeMap<String, Option<Arc<Script>>>,
    /// The agent that a run starts with.
    entry_agent: Option<String>,
    /// Models that were chosen in place of those that files name, and those of a list that are not asked, in words.
    replaced_models: Vec<String>,
    /// Agents for which no model was chosen.
    without_model: Vec<String>,
}

impl<'a> Linker<'a> {
    fn new(project: &'a Project, models: &'a ModelChoices) -> Self {
        Self {
            project,
            models,
            problems: project.problems.clone(),
            agents: BTreeMap::new(),
            open: BTreeSet::new(),
            choices_used: Vec::new(),
            keyless: BTreeMap::new(),
            refused_choices: BTreeSet::new(),
            creates_agents: false,
            scripts: BTreeMap::new(),
            entry_agent: None,
            replaced_models: Vec::new(),
            without_model: Vec::new(),
        }
    }

    fn program(&mut self, entry: Option<&str>) -> Option<Program> {
        if matches!(self.project.layout, Layout::Unreadable) {
            return None;
        }
        self.index_agents();
        self.check_resting();
        let namespace = Namespace::new(self);
        self.creates_agents = self.creates_agents(&namespace);
        let entry = self.entry(entry);
        if let Some(Entry::Agent(name)) = &entry {
            self.entry_agent = Some(name.clone());
        }
        let mut agents: BTreeMap<String, Arc<AgentSpec>> = BTreeMap::new();
        for (name, loaded) in self.agents.clone() {
            if let Some(spec) = self.agent(loaded, &namespace) {
                agents.insert(name.to_owned(), Arc::new(spec));
            }
        }
        let manifest = self.manifest();
        let policy = self.policy(manifest.map(|manifest| &manifest.runtime));
        self.check_environment(manifest);
        let exports = self.exports(manifest);
        self.check_choices();
        self.check_python_providers();
        self.note_missing_keys();
        self.note_models();
        Some(Program {
            root: self.project.root.clone(),
            shown_root: self.project.shown_root.clone(),
            entry: entry?,
            agents,
            exports,
            policy,
            default_input: manifest.and_then(|manifest| manifest.entry.input.clone()),
            allow_cli_input: manifest.is_none_or(|manifest| manifest.allow_cli_input),
            generated_agents_dir: self.generated_agents_dir(),
            generated: self.project.generated.clone(),
            created: Arc::default(),
            protected: protected::of(self.project, self.models),
            programs: self.project.programs.iter().filter_map(RuleProgram::as_found).collect(),
            env: manifest
                .map(|manifest| manifest.env.iter().map(|name| name.value.clone()).collect())
                .unwrap_or_default(),
            rules: manifest.map(|manifest| manifest.rules.clone()).unwrap_or_default(),
            python_fence: manifest.and_then(|manifest| manifest.runtime.python_fence.clone()),
            maps: self.maps().cloned().collect(),
            open: std::mem::take(&mut self.open).into_iter().collect(),
            registry: self.project.registry.clone(),
            wording: Wording::default(),
            fallbacks: self.fallbacks().unwrap_or_default(),
            replaced_models: std::mem::take(&mut self.replaced_models),
            without_model: std::mem::take(&mut self.without_model),
        })
    }

    fn exports(&mut self, manifest: Option<&Manifest>) -> Vec<String> {
        let named = manifest.map(|manifest| manifest.export.as_slice()).unwrap_or_default();
        for name in named {
            if !self.agents.contains_key(name.value.as_str()) {
                let fact = format!("there is no agent `{}` to export", visible(&name.value));
                self.unknown_agent(name.span, fact, &name.value);
            }
        }
        named.iter().map(|name| name.value.clone()).collect()
    }

    /// The user's choice for agents that are created later; nothing if there can be none.
    fn fallbacks(&mut self) -> Option<Vec<Fallback>> {
        let directory = self.generated_agents_dir();
        let is_created = |loaded: &&LoadedWorker| loaded.path.starts_with(&directory);
        if !self.creates_agents && self.project.generated.is_empty() && !self.agents.values().any(is_created) {
            return None;
        }
        let choice = self.models.choose("", AgentPlace::Elsewhere, &[], None).ok()?;
        let mut fallbacks = Vec::new();
        for model in choice.all() {
            let script = match model.provider.as_str() {
                "scripted" => Some(self.chosen_script(&model.model)?),
                _ => None,
            };
            fallbacks.push(Fallback { model: model.clone(), script });
        }
        Some(fallbacks)
    }

    fn generated_agents_dir(&self) -> PathBuf {
        let named = self.manifest().and_then(|manifest| manifest.generated_agents_dir.as_ref());
        PathBuf::from(named.map_or(super::load::DEFAULT_GENERATED_DIR, |directory| &directory.value))
    }

    fn manifest(&self) -> Option<&'a Manifest> {
        match &self.project.layout {
            Layout::Manifest(manifest) => Some(manifest),
            Layout::SingleFile | Layout::Directory | Layout::Unreadable => None,
        }
    }

    /// The agents over lists that the manifest names.
    fn maps(&self) -> impl Iterator<Item = &'a Arc<MapConfig>> {
        let toolsets = self.manifest().into_iter().flat_map(|manifest| &manifest.toolsets);
        toolsets.filter_map(|(_, definition)| match definition {
            ToolsetDefinition::Map(map) => Some(&map.value),
            _ => None,
        })
    }

    /// The code that has the name of an agent.
    fn stand_in(&self, agent: &str) -> Option<&'a StandIn> {
        self.manifest()?.toolsets.iter().find_map(|(name, definition)| match definition {
            ToolsetDefinition::StandIn(stand_in) if name.value == agent => Some(&stand_in.value),
            _ => None,
        })
    }

    /// A file that rests is that of an agent in whose place code answers.
    fn check_resting(&mut self) {
        let is_idle = |loaded: &&&LoadedWorker| loaded.rests && self.stand_in(&loaded.worker.name.value).is_none();
        let idle: Vec<&LoadedWorker> = self.agents.values().filter(is_idle).copied().collect();
        for loaded in idle {
            let fact = format!("{} rests, and nothing answers in its place", loaded.path.display());
            let hint = format!("rename it to `{}`", loaded.path.with_extension("").display());
            self.problems.push(Diagnostic::error(loaded.worker.name.span, fact).hint(hint));
        }
    }

    fn index_agents(&mut self) {
        for loaded in &self.project.workers {
            let name = &loaded.worker.name;
            match self.agents.entry(&name.value) {
                std::collections::btree_map::Entry::Vacant(vacant) => {
                    vacant.insert(loaded);
                }
                std::collections::btree_map::Entry::Occupied(first) => {
                    let first = first.get().worker.name.span;
                    self.problems.push(
                        Diagnostic::error(name.span, format!("a second agent with the name `{}`", name.value))
                            .hint("give one of them another name")
                            .related(first, "the first one"),
                    );
                }
            }
        }
    }

    /// Names that Python files which were not looked at, or have mistakes, may define.
    fn may_be_python(&self) -> bool {
        match &self.project.code {
            Code::Absent => false,
            Code::Unread => true,
            Code::Read(offer) => offer.incomplete,
        }
    }

    /// Whether Python files register this provider, or may do so.
    fn is_python_provider(&mut self, name: &str) -> bool {
        if matches!(&self.project.code, Code::Read(offer) if offer.providers.contains(name)) {
            return true;
        }
        let is_open = self.may_be_python();
        if is_open {
            self.open.insert(format!("the provider {name}"));
        }
        is_open
    }

    /// A provider has one meaning.
    fn check_python_providers(&mut self) {
        let Code::Read(offer) = &self.project.code else { return };
        let is_taken = |name: &&String| provider(name).is_some() || self.models.custom(name).is_some();
        if let Some(name) = offer.providers.iter().find(is_taken) {
            let fact = format!("a Python file registers the provider `{name}`, which there is already");
            let place = DiagnosticPlace::Path(self.project.root.clone());
            self.problems.push(Diagnostic::error(place, fact).hint("give it another prefix"));
        }
    }

    /// A file that would have defined the name could not be read: that was reported.
    fn is_broken(&self, name: &str) -> bool {
        self.project.broken.contains(name)
    }

    /// A list of the manifest that would have defined names is misspelled: that was reported.
    fn lacks_names(&self) -> bool {
        let lists = ["worker_files", "python_files", "toolsets"];
        self.manifest().is_some_and(|manifest| manifest.mistaken.iter().any(|key| lists.contains(key)))
    }

    fn unknown_agent(&mut self, place: impl Into<DiagnosticPlace>, fact: String, name: &str) {
        if self.is_broken(name) || self.may_be_python() || self.lacks_names() {
            return;
        }
        let hint = self.problems.suggest(name, "agents", self.agents.keys().copied());
        self.problems.push(Diagnostic::error(place, fact).maybe_hint(hint));
    }

    fn entry(&mut self, chosen: Option<&str>) -> Option<Entry> {
        if let Some(name) = chosen {
            return self.entry_agent(DiagnosticPlace::Outside, name);
        }
        let keys = self.manifest().map(|manifest| &manifest.entry);
        if let Some(agent) = keys.and_then(|keys| keys.agent.as_ref()) {
            return self.entry_agent(DiagnosticPlace::At(agent.span), &agent.value);
        }
        if let Some(function) = keys.and_then(|keys| keys.function.as_ref()) {
            return self.entry_function(function);
        }
        let marked: Vec<&LoadedWorker> = self.marked_entries();
        let functions = self.offered_entries();
        match (marked.as_slice(), functions.as_slice()) {
            ([only], []) => Some(Entry::Agent(only.worker.name.value.clone())),
            ([], [only]) => Some(Entry::Function(only.clone())),
            ([], []) if self.may_be_python() => {
                self.open.insert("the entry".to_owned());
                Some(Entry::Open)
            }
            ([], []) => self.entry_by_layout(),
            (marked, functions) => {
                self.several_entries(marked, functions);
                None
            }
        }
    }

    /// Functions that are made to be an entry.
    fn offered_entries(&self) -> Vec<EntryFunction> {
        let python = match &self.project.code {
            Code::Read(offer) => offer.entries.as_slice(),
            Code::Absent | Code::Unread => &[],
        };
        let registered = self.project.registry.entry.iter();
        let registered = registered.map(|entry| EntryFunction::Registered(entry.name().to_owned()));
        python.iter().cloned().chain(registered).collect()
    }

    fn entry_agent(&mut self, place: DiagnosticPlace, name: &str) -> Option<Entry> {
        if self.agents.contains_key(name) || self.may_be_python() {
            return Some(Entry::Agent(name.to_owned()));
        }
        self.unknown_agent(place, format!("there is no agent `{}` to start with", visible(name)), name);
        None
    }

    fn marked_entries(&self) -> Vec<&'a LoadedWorker> {
        let is_marked = |loaded: &&LoadedWorker| loaded.worker.entry.as_ref().is_some_and(|entry| entry.value);
        self.project.workers.iter().filter(is_marked).collect()
    }

    fn several_entries(&mut self, marked: &[&LoadedWorker], functions: &[EntryFunction]) {
        let agents = marked.iter().map(|loaded| loaded.worker.name.value.clone());
        let functions = functions.iter().map(EntryFunction::to_string);
        let names: Vec<String> = agents.chain(functions).collect();
        let fact = format!("several entries: {}", names.join(", "));
        let mark = marked.last().and_then(|loaded| loaded.worker.entry.as_ref());
        let place =
            mark.map_or(DiagnosticPlace::Path(self.project.root.clone()), |mark| DiagnosticPlace::At(mark.span));
        self.problems
            .push(Diagnostic::error(place, fact).hint("mark one of them, or name it in the manifest's `entry`"));
    }

    fn entry_by_layout(&mut self) -> Option<Entry> {
        // An agent that a run created does not change where the next run starts.
        let is_written = |loaded: &LoadedWorker| !loaded.path.starts_with(super::load::DEFAULT_GENERATED_DIR);
        let only_of =
            |names: &mut dyn Iterator<Item = &&'a str>| names.next().filter(|_| names.next().is_none()).copied();
        let mut written = self.agents.iter().filter(|(_, loaded)| is_written(loaded)).map(|(name, _)| name);
        let only = only_of(&mut written).or_else(|| only_of(&mut self.agents.keys())).map(str::to_owned);
        let named_main = self.agents.contains_key("main").then(|| "main".to_owned());
        let agent = match self.project.layout {
            Layout::SingleFile => only,
            Layout::Directory => named_main.or(only),
            // One without files is that of a project of values.
            Layout::Manifest(ref manifest) if manifest.worker_files.is_empty() && manifest.python_files.is_empty() => {
                named_main.or(only)
            }
            Layout::Manifest(_) | Layout::Unreadable => None,
        };
        let is_mistaken = self.manifest().is_some_and(|manifest| manifest.entry.is_mistaken)
            || self.project.workers.iter().any(|loaded| loaded.worker.is_mistaken(&["entry"]));
        if agent.is_none() && !self.agents.is_empty() && !is_mistaken {
            let place = self
                .manifest()
                .map_or(DiagnosticPlace::Path(self.project.root.clone()), |m| DiagnosticPlace::At(m.entry.span));
            let agents = names::there_are("agents", self.agents.keys().copied());
            let problem = Diagnostic::error(place, "the project has no entry");
            self.problems.push(problem.hint(Remedy::ChooseEntry { agents }));
        }
        agent.map(Entry::Agent)
    }

    fn entry_function(&mut self, text: &Located<String>) -> Option<Entry> {
        let Some((file, function)) =
            text.value.rsplit_once(':').filter(|(file, name)| is_python(file) && !name.is_empty())
        else {
            let fact = format!("`{}` does not name a function", visible(&text.value));
            self.problems.push(Diagnostic::error(text.span, fact).hint("write `path.py:function`"));
            return None;
        };
        let listed = &self.manifest()?.python_files;
        let same = |other: &Located<String>| normal(Path::new(&other.value)) == normal(Path::new(file));
        let is_listed = listed.iter().any(same);
        if !is_listed && self.lacks_names() {
            return None;
        }
        if !is_listed {
            let fact = format!("`{}` is not listed under `python_files`", visible(file));
            let hint = self.problems.suggest(file, "Python files", listed.iter().map(|file| file.value.as_str()));
            self.problems.push(Diagnostic::error(text.span, fact).maybe_hint(hint));
            return None;
        }
        if self.may_be_python() {
            self.open.insert(text.value.clone());
        }
        let function = function.to_owned();
        Some(Entry::Function(EntryFunction::Python { file: normal(Path::new(file)), function }))
    }

    fn policy(&mut self, keys: Option<&RuntimeKeys>) -> Policy {
        let defaults = RuntimeKeys::default();
        let keys = keys.unwrap_or(&defaults);
        for (name, _) in &keys.agent_approval_overrides {
            if !self.agents.contains_key(name.value.as_str()) {
                let fact = format!("approval override for an unknown agent `{}`", visible(&name.value));
                self.unknown_agent(name.span, fact, &name.value);
            }
        }
        let overrides = keys.agent_approval_overrides.iter();
        Policy {
            approval_mode: keys.approval_mode,
            max_depth: keys.max_depth,
            max_call_depth: keys.max_call_depth,
            return_permission_errors: keys.return_permission_errors,
            agent_calls_require_approval: keys.agent_calls_require_approval,
            agent_attachments_require_approval: keys.agent_attachments_require_approval,
            agent_approval_overrides: overrides.map(|(name, value)| (name.value.clone(), *value)).collect(),
            limits: keys.limits.clone(),
        }
    }

    /// Refuses variables that hold a provider's key: a key never reaches a child.
    fn check_environment(&mut self, manifest: Option<&Manifest>) {
        let from_env = |definition: &'a super::manifest::ToolsetDefinition| match definition {
            super::manifest::ToolsetDefinition::Mcp(_, from_env) => from_env.as_slice(),
            _ => &[],
        };
        let Some(manifest) = manifest.and(self.manifest()) else { return };
        let settings = manifest.toolsets.iter().flat_map(|(_, definition)| from_env(definition));
        for name in manifest.env.iter().chain(settings) {
            if self.is_key_variable(&name.value) {
                let fact = format!("`{}` holds the key of a model provider", name.value);
                self.problems.push(
                    Diagnostic::error(name.span, fact)
                        .hint("children never see these; give the tool a variable and a key of its own"),
                );
            }
        }
    }

    fn is_key_variable(&self, name: &str) -> bool {
        let built_in = PROVIDERS.iter().any(|provider| provider.key_variables.contains(&name));
        built_in || self.models.providers.iter().any(|custom| custom.key_variable.as_deref() == Some(name))
    }

    /// A choice that decides nothing is a mistake of the person who made it.
    fn check_choices(&mut self) {
        for name in self.models.overrides.keys() {
            if !self.agents.contains_key(name.as_str()) {
                let chosen = self.models.shown_override(&visible(name));
                let fact = format!("{chosen} names no agent of the project");
                self.unknown_agent(DiagnosticPlace::Outside, fact, name);
            }
        }
        if let Some(model) = &self.models.required
            && !self.choices_used.contains(&ChosenBy::Required)
            && !self.creates_agents
            && !self.may_be_python()
            && !self.problems.has_errors()
        {
            let agent = self.agents.keys().next().copied().unwrap_or("AGENT");
            let fact = format!("no agent uses the model `{model}`: each has its own");
            let remedy = Remedy::OverrideModel { agent: agent.to_owned(), model: model.to_string() };
            self.problems.push(Diagnostic::error(DiagnosticPlace::Outside, fact).hint(remedy));
        }
    }

    /// Which model is asked is no secret of a flag, and without one there is nobody to ask.
    fn note_models(&mut self) {
        for fact in &self.replaced_models {
            self.problems.push(Diagnostic::note(DiagnosticPlace::Outside, fact.clone()));
        }
        let (shown, more) = self.without_model.split_at(self.without_model.len().min(5));
        if !shown.is_empty() {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            let verb = if self.without_model.len() == 1 { "has" } else { "have" };
            let fact = format!("{}{more} {verb} no model yet", shown.join(", "));
            let note = Diagnostic::note(DiagnosticPlace::Outside, fact);
            self.problems.push(note.hint(Remedy::ChooseFirstModel));
        }
    }

    /// The variables of which one would hold the key of a provider.
    fn key_variables(&self, name: &str) -> Vec<String> {
        match provider(name) {
            Some(row) => row.key_variables.iter().map(|variable| (*variable).to_owned()).collect(),
            None => self.models.custom(name).and_then(|custom| custom.key_variable.clone()).into_iter().collect(),
        }
    }

    fn note_missing_keys(&mut self) {
        for (name, agents) in std::mem::take(&mut self.keyless) {
            let variables = self.key_variables(&name);
            let (shown, more) = agents.split_at(agents.len().min(5));
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            let fact = format!("no key for `{name}`, used by {}{more}", shown.join(", "));
            let note = Diagnostic::note(DiagnosticPlace::Outside, fact);
            self.problems.push(note.hint(Remedy::SetKey { variables }));
        }
    }
}

fn is_python(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "py")
}

/// `./a//b` and `a/b` are one file.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

#[cfg(test)]
mod tests;
