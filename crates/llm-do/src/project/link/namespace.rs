//! What the names in `toolsets` mean: built-ins, the manifest's, Python's, and one per agent.

use std::collections::BTreeMap;
use std::path::Component;
use std::sync::Arc;

use super::Linker;
use crate::escape::visible;
use crate::project::manifest::ToolsetDefinition;
use crate::project::{Code, Offer};
use crate::syntax::diagnostic::{Diagnostic, Located, Span, suggest};
use crate::tools::approval::Rule;
use crate::tools::source::{BUILT_INS, Base, FilesystemConfig, ToolsetSource, Variant, built_in};

pub struct Namespace {
    sources: BTreeMap<String, ToolsetSource>,
    /// Names whose definition is broken: referring to them is no further mistake.
    broken: Vec<String>,
}

/// What a name turned out to be.
pub enum Resolved {
    Source(ToolsetSource),
    /// Reported elsewhere.
    Broken,
    Unknown,
}

impl Namespace {
    pub fn new(linker: &mut Linker<'_>) -> Self {
        let mut namespace = Self { sources: BTreeMap::new(), broken: linker.project.broken.clone() };
        for built_in in BUILT_INS {
            namespace.sources.insert(built_in.name.to_owned(), (built_in.source)());
        }
        for (name, loaded) in linker.agents.clone() {
            namespace.add(linker, "an agent", &loaded.worker.name, ToolsetSource::Agent(name.to_owned()));
        }
        namespace.add_python(linker);
        namespace.add_manifest(linker);
        namespace
    }

    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.sources.keys().map(String::as_str)
    }

    pub fn resolve(&self, name: &str) -> Resolved {
        match self.sources.get(name) {
            Some(source) => Resolved::Source(source.clone()),
            None if self.broken.iter().any(|broken| broken == name) => Resolved::Broken,
            None => Resolved::Unknown,
        }
    }

    fn add(&mut self, linker: &mut Linker<'_>, what: &str, name: &Located<String>, source: ToolsetSource) {
        if self.sources.contains_key(&name.value) {
            linker.problems.push(clash(linker, what, name));
        } else {
            self.sources.insert(name.value.clone(), source);
        }
    }

    fn add_python(&mut self, linker: &mut Linker<'_>) {
        let Code::Read(Offer { toolsets, .. }) = &linker.project.code else { return };
        for toolset in toolsets {
            if self.sources.contains_key(&toolset.name) {
                let fact = format!("the Python toolset `{}` has the name of another toolset", toolset.name);
                let place = crate::syntax::diagnostic::Place::Path(linker.project.root.join(&toolset.file));
                linker.problems.push(Diagnostic::error(place, fact).hint("give it another name"));
            } else {
                self.sources.insert(toolset.name.clone(), ToolsetSource::Python(toolset.clone()));
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
                ToolsetDefinition::Shell(config) => ToolsetSource::Shell(config.clone()),
                ToolsetDefinition::Mcp(config, _) => ToolsetSource::Mcp(config.clone()),
                ToolsetDefinition::Use { target, prefix, tools, approval } => {
                    variants.push(Use { name, target, prefix, tools: tools.as_deref(), approval });
                    continue;
                }
                ToolsetDefinition::Broken => {
                    self.broken.push(name.value.clone());
                    continue;
                }
            };
            self.add(linker, "a toolset", name, source);
        }
        self.add_variants(linker, variants);
    }

    /// A variant may be of another variant: those whose target is known come first, until none is left or none moves.
    fn add_variants(&mut self, linker: &mut Linker<'_>, mut waiting: Vec<Use<'_>>) {
        loop {
            let before = waiting.len();
            let pending: Vec<&str> = waiting.iter().map(|variant| variant.name.value.as_str()).collect();
            let (blocked, ready): (Vec<Use<'_>>, Vec<Use<'_>>) =
                waiting.iter().copied().partition(|variant| pending.contains(&variant.target.value.as_str()));
            for variant in ready {
                self.add_variant(linker, variant);
            }
            waiting = blocked;
            if waiting.is_empty() {
                return;
            }
            if waiting.len() == before {
                break;
            }
        }
        for variant in waiting {
            let fact = format!("toolset `{}` is in the end a variant of itself", variant.name.value);
            linker.problems.push(Diagnostic::error(variant.target.span, fact));
            self.broken.push(variant.name.value.clone());
        }
    }

    fn add_variant(&mut self, linker: &mut Linker<'_>, variant: Use<'_>) {
        let of = match self.resolve(&variant.target.value) {
            Resolved::Source(source) => source,
            Resolved::Broken => {
                self.broken.push(variant.name.value.clone());
                return;
            }
            Resolved::Unknown if linker.may_be_python() => {
                linker.open.insert(variant.target.value.clone());
                ToolsetSource::Open
            }
            Resolved::Unknown => {
                let fact = format!(
                    "toolset `{}` uses an unknown toolset `{}`",
                    variant.name.value,
                    visible(&variant.target.value)
                );
                let hint = suggest(&variant.target.value, "toolsets", self.names());
                linker.problems.push(Diagnostic::error(variant.target.span, fact).hint(hint));
                self.broken.push(variant.name.value.clone());
                return;
            }
        };
        variant.check_tools(linker, &of);
        let source = Variant {
            name: variant.name.value.clone(),
            of,
            prefix: variant.prefix.to_owned(),
            tools: variant.tools.map(|tools| tools.iter().map(|tool| tool.value.clone()).collect()),
            approval: variant.approval.iter().map(|(tool, rule)| (tool.value.clone(), *rule)).collect(),
        };
        self.add(linker, "a toolset", variant.name, ToolsetSource::Variant(Arc::new(source)));
    }
}

#[derive(Clone, Copy)]
struct Use<'a> {
    name: &'a Located<String>,
    target: &'a Located<String>,
    prefix: &'a str,
    tools: Option<&'a [Located<String>]>,
    approval: &'a [(Located<String>, Rule)],
}

impl Use<'_> {
    /// Tools that it chooses or rules must exist, where they are known.
    fn check_tools(&self, linker: &mut Linker<'_>, of: &ToolsetSource) {
        let Some(known) = of.declared_tools() else { return };
        let names: Vec<&str> = known.iter().map(|tool| tool.name.as_str()).collect();
        let ruled = self.approval.iter().map(|(tool, _)| tool);
        for tool in self.tools.unwrap_or_default().iter().chain(ruled) {
            if !names.contains(&tool.value.as_str()) {
                let fact = format!("`{}` has no tool `{}`", self.target.value, visible(&tool.value));
                let hint = suggest(&tool.value, "tools", names.iter().copied());
                linker.problems.push(Diagnostic::error(tool.span, fact).hint(hint));
            }
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
