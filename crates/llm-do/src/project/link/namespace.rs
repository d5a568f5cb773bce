//! What the names in `toolsets` mean: built-ins, the manifest's, Python's, and one per agent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Component;
use std::sync::Arc;
use std::time::Duration;

use super::Linker;
use crate::escape::visible;
use crate::project::manifest::ToolsetDefinition;
use crate::project::{Code, Program, Project, PythonOffer, ToolsetUse};
use crate::syntax::diagnostic::{Diagnostic, DiagnosticPlace, Located, Span};
use crate::syntax::table::is_name;
use crate::tools::approval::Rule;
use crate::tools::python::stand_in::AnswerMode;
use crate::tools::source::{
    BUILT_INS, Base, BuiltIn, ExportKind, FilesystemConfig, MapConfig, McpConfig, PythonToolset, RegisteredSource,
    ToolsetSource, Variant, built_in,
};

#[derive(Default)]
pub(crate) struct Namespace {
    sources: BTreeMap<String, Arc<ToolsetSource>>,
    /// Single functions, each as a toolset of one: of the embedding program and of Python files.
    functions: BTreeMap<String, Arc<ToolsetSource>>,
    /// Names whose definition is broken: referring to them is no further mistake.
    broken: BTreeSet<String>,
}

/// What a name turned out to be.
pub(crate) enum NameResolution<'a> {
    Source(&'a Arc<ToolsetSource>),
    /// Reported elsewhere.
    Broken,
    Unknown,
}

impl Namespace {
    pub(crate) fn new(linker: &mut Linker<'_>) -> Self {
        let functions = functions_of(linker.project);
        let mut namespace = Self { functions, broken: linker.project.broken.clone(), ..Self::of_built_ins() };
        for (name, loaded) in linker.agents.clone() {
            namespace.add(linker, "an agent", &loaded.worker.name, ToolsetSource::Agent(name.to_owned()));
        }
        namespace.add_registered(linker);
        namespace.add_python(linker);
        namespace.add_manifest(linker);
        namespace
    }

    fn of_built_ins() -> Self {
        let source = |built_in: &BuiltIn| (built_in.name.to_owned(), Arc::new((built_in.source)()));
        Self { sources: BUILT_INS.iter().map(source).collect(), ..Self::default() }
    }

    /// What the agents of a linked program use: what one that is created later may refer to.
    pub(crate) fn of_program(program: &Program) -> Self {
        let mut namespace = Self::of_built_ins();
        let agent = |name: &String| (name.clone(), Arc::new(ToolsetSource::Agent(name.clone())));
        namespace.sources.extend(program.agents.keys().map(agent));
        let used = |used: &ToolsetUse| (used.name.clone(), Arc::clone(&used.source));
        for agent in program.agents.values() {
            namespace.sources.extend(agent.toolsets.iter().map(used));
            namespace.functions.extend(agent.tools.iter().map(used));
        }
        namespace
    }

    /// A single function of this name.
    pub(crate) fn function(&self, name: &str) -> Option<&Arc<ToolsetSource>> {
        self.functions.get(name)
    }

    pub(crate) fn function_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.functions.keys().map(String::as_str)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.sources.keys().map(String::as_str)
    }

    pub(crate) fn resolve(&self, name: &str) -> NameResolution<'_> {
        match self.sources.get(name) {
            Some(source) => NameResolution::Source(source),
            None if self.broken.contains(name) => NameResolution::Broken,
            None => NameResolution::Unknown,
        }
    }

    fn add(&mut self, linker: &mut Linker<'_>, what: &str, name: &Located<String>, source: ToolsetSource) {
        if self.sources.contains_key(&name.value) {
            linker.problems.push(clash(linker, what, name));
        } else {
            self.sources.insert(name.value.clone(), Arc::new(source));
        }
    }

    /// What the embedding program offers; it has no place in a file.
    fn add_registered(&mut self, linker: &mut Linker<'_>) {
        for name in linker.project.registry.toolsets.keys() {
            if self.sources.contains_key(name) {
                let fact = format!("the registered toolset `{}` has the name of another toolset", visible(name));
                linker
                    .problems
                    .push(Diagnostic::error(DiagnosticPlace::Outside, fact).hint("register it under another name"));
            } else {
                let source = ToolsetSource::Registered(RegisteredSource::Toolset(name.clone()));
                self.sources.insert(name.clone(), Arc::new(source));
            }
        }
    }

    fn add_python(&mut self, linker: &mut Linker<'_>) {
        let Code::Read(PythonOffer { toolsets, .. }) = &linker.project.code else { return };
        for toolset in toolsets {
            if self.sources.contains_key(&toolset.name) {
                let fact = format!("the Python toolset `{}` has the name of another toolset", toolset.name);
                let place = crate::syntax::diagnostic::DiagnosticPlace::Path(linker.project.root.join(&toolset.file));
                linker.problems.push(Diagnostic::error(place, fact).hint("give it another name"));
            } else {
                self.sources.insert(toolset.name.clone(), Arc::new(ToolsetSource::Python(toolset.clone())));
            }
        }
    }

    fn add_manifest(&mut self, linker: &mut Linker<'_>) {
        let Some(manifest) = linker.manifest() else { return };
        let mut variants = Vec::new();
        for (name, definition) in &manifest.toolsets {
            let source = match definition {
                ToolsetDefinition::Filesystem(config) => {
                    check_roots(linker, name, config);
                    ToolsetSource::Filesystem(config.clone())
                }
                ToolsetDefinition::Shell(config, _) => ToolsetSource::Shell(config.clone()),
                ToolsetDefinition::Mcp(config, _) => {
                    let tools = linker.project.offered.get(&name.value).cloned();
                    ToolsetSource::Mcp(McpConfig { tools, ..config.clone() })
                }
                ToolsetDefinition::DynamicAgents(names) => ToolsetSource::DynamicAgents(*names),
                ToolsetDefinition::Map(map) => {
                    check_map(linker, name, map);
                    ToolsetSource::Map(Arc::clone(&map.value))
                }
                ToolsetDefinition::Use { target, prefix, tools, approval, timeout } => {
                    let (tools, timeout) = (tools.as_deref(), *timeout);
                    variants.push(Use { name, target, prefix, tools, approval, timeout });
                    continue;
                }
                // Its name is that of the agent, which is there already.
                ToolsetDefinition::StandIn(stand_in) => {
                    check_stand_in(linker, name, stand_in.value.mode);
                    continue;
                }
                ToolsetDefinition::Broken => {
                    self.broken.insert(name.value.clone());
                    continue;
                }
            };
            self.add(linker, "a toolset", name, source);
        }
        self.add_variants(linker, &variants);
    }

    /// A variant may be of another variant: each is added after its target, whatever their order in the file.
    fn add_variants(&mut self, linker: &mut Linker<'_>, variants: &[Use<'_>]) {
        // A variant with a name that is taken is reported when it is added, and others mean the owner of the name.
        let own_name = |(index, variant): (usize, &Use<'_>)| (variant.name.value.clone(), index);
        let mut by_name: HashMap<String, usize> = variants.iter().enumerate().map(own_name).collect();
        by_name.retain(|name, _| !self.sources.contains_key(name));
        let mut progress = vec![VariantProgress::Waiting; variants.len()];
        for start in 0..variants.len() {
            let mut chain = Vec::new();
            let mut next = Some(start);
            while let Some(index) = next.filter(|index| progress[*index] == VariantProgress::Waiting) {
                progress[index] = VariantProgress::OnChain;
                chain.push(index);
                next = by_name.get(&variants[index].target.value).copied();
            }
            if let Some(again) = next.filter(|index| progress[*index] == VariantProgress::OnChain) {
                let cycle = chain.iter().position(|index| *index == again).unwrap_or(0);
                for index in chain.drain(cycle..) {
                    let Use { name, target, .. } = variants[index];
                    let fact = format!("toolset `{}` is in the end a variant of itself", name.value);
                    linker.problems.push(Diagnostic::error(target.span, fact));
                    self.broken.insert(name.value.clone());
                    progress[index] = VariantProgress::Done;
                }
            }
            for index in chain.into_iter().rev() {
                self.add_variant(linker, variants[index]);
                progress[index] = VariantProgress::Done;
            }
        }
    }

    fn add_variant(&mut self, linker: &mut Linker<'_>, variant: Use<'_>) {
        let of = match self.resolve(&variant.target.value) {
            NameResolution::Source(source) => ToolsetSource::clone(source),
            NameResolution::Broken => {
                self.broken.insert(variant.name.value.clone());
                return;
            }
            // A function is a toolset of one.
            NameResolution::Unknown if let Some(function) = self.function(&variant.target.value) => {
                ToolsetSource::clone(function)
            }
            NameResolution::Unknown if linker.may_be_python() => {
                linker.open.insert(variant.target.value.clone());
                ToolsetSource::Open
            }
            NameResolution::Unknown if linker.lacks_names() => {
                self.broken.insert(variant.name.value.clone());
                return;
            }
            NameResolution::Unknown => {
                let fact = format!(
                    "toolset `{}` uses an unknown toolset `{}`",
                    variant.name.value,
                    visible(&variant.target.value)
                );
                let hint = linker.problems.suggest(&variant.target.value, "toolsets", self.names());
                linker.problems.push(Diagnostic::error(variant.target.span, fact).maybe_hint(hint));
                self.broken.insert(variant.name.value.clone());
                return;
            }
        };
        if of.variants() >= MOST_VARIANTS {
            let fact = format!("toolset `{}` is a variant of a variant too many times over", variant.name.value);
            let hint = format!("at most {MOST_VARIANTS} variants may follow each other");
            linker.problems.push(Diagnostic::error(variant.target.span, fact).hint(hint));
            self.broken.insert(variant.name.value.clone());
            return;
        }
        variant.check_tools(linker, &of);
        let source = Variant {
            name: variant.name.value.clone(),
            of,
            prefix: variant.prefix.to_owned(),
            tools: variant.tools.map(|tools| tools.iter().map(|tool| tool.value.clone()).collect()),
            approval: variant.approval.iter().map(|(tool, rule)| (tool.value.clone(), *rule)).collect(),
            timeout: variant.timeout,
        };
        self.add(linker, "a toolset", variant.name, ToolsetSource::Variant(Arc::new(source)));
    }
}

/// The functions that a project offers one by one. Those of the embedding program come before those of Python files.
fn functions_of(project: &Project) -> BTreeMap<String, Arc<ToolsetSource>> {
    let offered = match &project.code {
        Code::Read(offer) => offer.tools.as_slice(),
        Code::Absent | Code::Unread => &[],
    };
    let of_python = offered.iter().rev().map(|offered| {
        let name = offered.tool.name.to_string();
        let source = ToolsetSource::Python(PythonToolset {
            file: offered.file.clone(),
            name: name.clone(),
            exported: ExportKind::Tool,
            tools: Some(vec![offered.tool.clone()]),
        });
        (name, Arc::new(source))
    });
    let of_program = project.registry.tools.iter().map(|(name, tool)| {
        (name.clone(), Arc::new(ToolsetSource::Registered(RegisteredSource::Tool(tool.declared()))))
    });
    of_python.chain(of_program).collect()
}

/// Variants nest, and what nests must not overflow the stack.
const MOST_VARIANTS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum VariantProgress {
    Waiting,
    OnChain,
    Done,
}

#[derive(Clone, Copy)]
struct Use<'a> {
    name: &'a Located<String>,
    target: &'a Located<String>,
    prefix: &'a str,
    tools: Option<&'a [Located<String>]>,
    approval: &'a [(Located<String>, Rule)],
    timeout: Option<Duration>,
}

impl Use<'_> {
    /// Tools that it chooses or rules must exist, where they are known.
    fn check_tools(&self, linker: &mut Linker<'_>, of: &ToolsetSource) {
        let Some(known) = of.declared_tools() else { return };
        let names: Vec<&str> = known.iter().map(|tool| tool.name.as_ref()).collect();
        let ruled = self.approval.iter().map(|(tool, _)| tool);
        for tool in self.tools.unwrap_or_default().iter().chain(ruled) {
            if !names.contains(&tool.value.as_str()) {
                let fact = format!("`{}` has no tool `{}`", self.target.value, visible(&tool.value));
                let hint = linker.problems.suggest(&tool.value, "tools", names.iter().copied());
                linker.problems.push(Diagnostic::error(tool.span, fact).maybe_hint(hint));
            }
        }
        // Providers take no other names, and would say so only in the middle of a run.
        let is_chosen = |name: &&&str| self.tools.is_none_or(|chosen| chosen.iter().any(|tool| tool.value == ***name));
        let mut prefixed = names.iter().filter(is_chosen).map(|name| format!("{}{name}", self.prefix));
        if let Some(long) = prefixed.find(|name| !self.prefix.is_empty() && !is_name(name)) {
            let fact = format!("the prefix of `{}` makes a name that is none: `{}`", self.name.value, visible(&long));
            linker
                .problems
                .push(Diagnostic::error(self.name.span, fact).hint("names have 1 to 64 letters, digits, `_` or `-`"));
        }
    }
}

fn clash(linker: &Linker<'_>, what: &str, name: &Located<String>) -> Diagnostic {
    let other = linker.agents.get(name.value.as_str()).map(|loaded| loaded.worker.name.span);
    let is_built_in = built_in(&name.value).is_some();
    let owner = if is_built_in { "a built-in toolset" } else { "an agent or another toolset" };
    let fact = format!("{what} with the name of {owner}: `{}`", name.value);
    let problem = Diagnostic::error(name.span, fact).hint("give it another name");
    match other.filter(|span: &Span| *span != name.span && !is_built_in) {
        Some(span) => problem.related(span, "the other one"),
        None => problem,
    }
}

/// Code answers in the place of an agent, whose file says what it takes and gives.
fn check_stand_in(linker: &mut Linker<'_>, name: &Located<String>, mode: AnswerMode) {
    let Some(loaded) = linker.agents.get(name.value.as_str()) else {
        let fact = format!("toolset `{}` is code in the place of an agent that is not there", visible(&name.value));
        linker.unknown_agent(name.span, fact, &name.value);
        return;
    };
    if loaded.rests && mode.asks_agent() {
        let (file, awake) = (loaded.path.display(), loaded.path.with_extension(""));
        let fact = format!("the mode `{}` asks the agent `{}`, and its file rests: {file}", mode.word(), name.value);
        let hint = format!("rename it to `{}`", awake.display());
        linker.problems.push(Diagnostic::error(name.span, fact).hint(hint));
    }
}

/// Who is called for each item is an agent of the project.
fn check_map(linker: &mut Linker<'_>, name: &Located<String>, map: &Located<Arc<MapConfig>>) {
    let agent = &map.value.agent;
    if !linker.agents.contains_key(agent.as_str()) {
        let fact =
            format!("toolset `{}` is over an agent that is not there: `{}`", visible(&name.value), visible(agent));
        linker.unknown_agent(map.span, fact, agent);
    }
}

/// A relative root stays inside the project; outside it a root is written as an absolute path.
fn check_roots(linker: &mut Linker<'_>, name: &Located<String>, config: &FilesystemConfig) {
    for root in config.roots.all() {
        if let Base::Project(path) = &root.base
            && path.components().any(|part| matches!(part, Component::ParentDir))
        {
            let fact =
                format!("a root of `{}` leaves the project: `{}`", name.value, visible(&path.display().to_string()));
            linker.problems.push(
                Diagnostic::error(name.span, fact).hint("write an absolute path for a directory outside the project"),
            );
        }
    }
}
