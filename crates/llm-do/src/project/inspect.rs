//! What is looked at beyond linking, where somebody asks for it: what is not there though a file names it, and what is
//! probably a mistake though it can be run. None of it is on the way of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::load::shown_beneath;
use super::{Layout, Program, Project};
use crate::escape::visible;
use crate::model::name::ModelName;
use crate::model::prices::Prices;
use crate::model::provider::provider;
use crate::syntax::diagnostic::{Diagnostic, DiagnosticPlace, Diagnostics, Located, Report, Span};
use crate::syntax::names;
use crate::syntax::tree::{self, Node};
use crate::tools::source::{Access, Base, FileRoot, McpServer, Roots};

use super::manifest::ToolsetDefinition;

/// A directory with more is not searched for a name that was meant.
const MOST_NEIGHBOURS: usize = 1_000;
/// So many letters may be wrong in the name of a model.
const MOST_WRONG_LETTERS: usize = 2;

impl Project {
    /// What a linked project probably does not mean: directories to read that are not there (errors), models that nearly
    /// have a known name, agents without instructions, and servers whose program `is_found` does not know (warnings).
    pub fn inspect(&self, program: &Program, prices: &Prices, is_found: &dyn Fn(&str) -> bool) -> Report {
        let mut problems = Diagnostics::default();
        self.inspect_manifest(is_found, &mut problems);
        self.inspect_agents(program, prices, &mut problems);
        Report::new(Arc::clone(&self.sources), problems)
    }

    fn inspect_manifest(&self, is_found: &dyn Fn(&str) -> bool, problems: &mut Diagnostics) {
        let Layout::Manifest(manifest) = &self.layout else { return };
        if manifest.toolsets.is_empty() {
            return;
        }
        let text = &self.sources.get(manifest.file).text;
        let node = tree::parse_json(tree::Text::whole(manifest.file, text), &mut Diagnostics::default());
        let place = |name: &str, rest: &str, otherwise: Span| -> DiagnosticPlace {
            let found = node.as_ref().map(|node: &Node| node.at(&format!("/toolsets/{name}/{rest}")).span);
            found.unwrap_or(otherwise).into()
        };
        for (name, definition) in &manifest.toolsets {
            match definition {
                ToolsetDefinition::Filesystem(config) => {
                    let roots: Vec<(String, &FileRoot)> = match &config.roots {
                        Roots::One(root) => vec![("filesystem/root".to_owned(), root)],
                        Roots::Named(roots) => roots
                            .iter()
                            .map(|(root, config)| (format!("filesystem/roots/{root}/root"), config))
                            .collect(),
                    };
                    for (key, root) in roots {
                        if let Some((fact, hint)) = self.missing(root) {
                            let problem = Diagnostic::error(place(&name.value, &key, name.span), fact);
                            problems.push(problem.hint(hint));
                        }
                    }
                }
                ToolsetDefinition::Mcp(config, _) => {
                    if let McpServer::Command { command, .. } = &config.server
                        && !is_found(command)
                    {
                        let (fact, hint) = if command.contains('/') {
                            ("is not there", "install it, or mend its path")
                        } else {
                            ("is not on PATH", "install it, or write its whole path")
                        };
                        let fact = format!("the program `{}` {fact}", visible(command));
                        let place = place(&name.value, "mcp/command", name.span);
                        problems.push(Diagnostic::warning(place, fact).hint(hint));
                    }
                }
                ToolsetDefinition::Shell(..)
                | ToolsetDefinition::DynamicAgents(_)
                | ToolsetDefinition::Map(_)
                | ToolsetDefinition::StandIn(_)
                | ToolsetDefinition::Use { .. }
                | ToolsetDefinition::Broken => {}
            }
        }
    }

    /// What is wrong with a root that can only be read and is not there: one that can be written is made when it is needed.
    fn missing(&self, root: &FileRoot) -> Option<(String, String)> {
        let (shown, path) = match &root.base {
            Base::WorkingDirectory => return None,
            Base::Project(path) => (path, shown_beneath(&self.root, path)),
            Base::Absolute(path) => (path, path.clone()),
        };
        if root.access == Access::ReadWrite || path.is_dir() {
            return None;
        }
        let fact = format!("the directory `{}` is not there", visible(&shown.display().to_string()));
        let neighbours = directories_beside(&path);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let near = names::nearest(&name, neighbours.iter().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean `{}`?", shown.with_file_name(near).display()),
            None => format!("make it: `mkdir -p {}`", path.display()),
        };
        Some((fact, hint))
    }

    fn inspect_agents(&self, program: &Program, prices: &Prices, problems: &mut Diagnostics) {
        let mut looked_up: BTreeMap<&str, Option<String>> = BTreeMap::new();
        for loaded in &self.workers {
            let worker = &loaded.worker;
            if worker.instructions.is_empty() && worker.prompt.is_none() {
                let fact = format!("agent `{}` has no instructions", worker.name.value);
                let is_yaml = loaded.path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
                let hint = if is_yaml {
                    "write `instructions: |`, and below it what it does"
                } else {
                    "write what it does below the second line `---`"
                };
                problems.push(Diagnostic::warning(worker.name.span, fact).hint(hint));
            }
            let Some(agent) = program.agents.get(&worker.name.value) else { continue };
            let is_used = |written: &&Located<String>| agent.models().any(|model| model.to_string() == written.value);
            for written in worker.models.iter().filter(is_used) {
                let near = looked_up.entry(&written.value).or_insert_with(|| near_model(&written.value, prices));
                if let Some(near) = near {
                    let (provider, model) = written.value.split_once(':').unwrap_or_default();
                    let fact = format!("`{provider}` is not known to have the model `{}`", visible(model));
                    problems.push(Diagnostic::warning(written.span, fact).hint(format!("did you mean `{near}`?")));
                }
            }
        }
    }
}

fn directories_beside(path: &Path) -> Vec<String> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(parent).into_iter().flatten();
    let directories = entries.take(MOST_NEIGHBOURS).flatten().filter(|entry| entry.path().is_dir());
    directories.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The known model of the same provider that has nearly this name, if this one is not known. A name with other numbers is
/// another model, and may be newer than what is known.
fn near_model(written: &str, prices: &Prices) -> Option<String> {
    let name = ModelName::parse(written).ok()?;
    if provider(&name.provider).is_none_or(|row| !row.paid) || prices.of(&name).is_some() {
        return None;
    }
    let model = plain(&name.model);
    let known = prices.known();
    let of_provider = known.keys().filter_map(|known| known.strip_prefix(&name.provider)?.strip_prefix(':'));
    let distance = |known: &&str| strsim::osa_distance(&model, &plain(known));
    let near = of_provider.filter(|known| numbers(known) == numbers(&name.model)).min_by_key(distance)?;
    (distance(&near) <= MOST_WRONG_LETTERS).then(|| near.to_owned())
}

/// Separators are confused more often than letters, and count as one.
fn plain(model: &str) -> String {
    model.to_ascii_lowercase().replace(['.', '_', ' '], "-")
}

fn numbers(model: &str) -> Vec<&str> {
    model.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_near_if_its_numbers_are_the_same() {
        let near = |name: &str| near_model(name, &Prices::default());
        for (name, expected) in [
            ("anthropic:claude-haiku-4.5", Some("claude-haiku-4-5")),
            ("anthropic:claude-haku-4-5", Some("claude-haiku-4-5")),
            ("anthropic:Claude_Haiku_4.5", Some("claude-haiku-4-5")),
            ("anthropic:claude-haiku-4-5", None),
            ("anthropic:claude-haiku-4-5-20251001", None),
            ("anthropic:claude-haiku-9", None),
            ("anthropic:something-else", None),
            ("ollama:claude-haiku-4.5", None),
            ("acme:claude-haiku-4.5", None),
        ] {
            assert_eq!(near(name).as_deref(), expected, "{name}");
        }
    }
}
