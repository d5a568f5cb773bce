//! The programs that rules of shells name: looked up once when a project is loaded, so that what is reported, agreed to and
//! run is the same file.

use std::path::{Path, PathBuf};

use super::manifest::shell::too_much;
use super::manifest::{Manifest, ToolsetDefinition};
use crate::escape::visible;
use crate::remedy::Remedy;
use crate::syntax::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::tools::approval::Rule;
use crate::tools::shell::danger;
use crate::tools::shell::program::{Grounds, ProgramPlace, Programs, ShellProgram};
use crate::tools::source::{Access, Base, Grammar, ShellConfig, ShellRule};
use crate::tools::working_directory::WorkingDirectory;

/// A rule that names its program by an absolute path.
#[derive(Clone, Debug)]
pub struct RuleProgram {
    /// The shell of the manifest.
    pub toolset: String,
    pub pattern: Vec<String>,
    pub approval: Rule,
    pub span: Span,
    pub place: ProgramPlace,
    /// As it was when it was looked at.
    pub found: Option<ShellProgram>,
}

impl RuleProgram {
    /// By the name that commands have for it.
    pub(crate) fn as_found(&self) -> Option<(String, ShellProgram)> {
        Some((self.pattern.first()?.clone(), self.found.clone()?))
    }
}

/// Looks up the programs of a manifest's rules, and reports those that no rule may name.
pub(crate) fn look_up(
    manifest: &Manifest,
    root: &Path,
    directory: &WorkingDirectory,
    problems: &mut Diagnostics,
) -> Vec<RuleProgram> {
    let shells: Vec<_> =
        manifest.toolsets.iter().filter_map(|(name, definition)| Some((name, shell(definition)?))).collect();
    if shells.is_empty() {
        return Vec::new();
    }
    let written: Vec<PathBuf> =
        manifest.toolsets.iter().flat_map(|(_, definition)| written(definition, root)).collect();
    let working = directory.path().unwrap_or_default();
    let grounds = Grounds::new(root, &working, written.iter().map(PathBuf::as_path));
    let by_name = Programs::default();
    let mut found = Vec::new();
    for (name, (config, spans)) in shells {
        let Grammar::Rules { rules, .. } = &config.grammar else { continue };
        // What is blocked is never started.
        for (rule, span) in rules.iter().zip(spans).filter(|(rule, _)| rule.approval != Rule::Block) {
            let program = rule.pattern.first().map_or("", String::as_str);
            let file = if Path::new(program).is_absolute() {
                let looked_up = look_up_path(&name.value, rule, *span, &grounds, problems);
                found.push(looked_up.clone());
                looked_up.found.map(|program| program.file)
            } else {
                by_name.find(program).ok().map(|program| program.file)
            };
            let danger = file.and_then(|file| danger::by_file(&rule.pattern, &file));
            // By its name alone it was reported already.
            let is_known = rule.i_understand || danger::by_name(&rule.pattern).is_some();
            if let Some(danger) = danger.filter(|_| rule.approval == Rule::Allow && !is_known) {
                problems.push(too_much(*span, &danger));
            }
        }
    }
    found
}

fn look_up_path(
    toolset: &str,
    rule: &ShellRule,
    span: Span,
    grounds: &Grounds,
    problems: &mut Diagnostics,
) -> RuleProgram {
    let path = PathBuf::from(&rule.pattern[0]);
    let place = grounds.place(&path);
    let found = match &place {
        ProgramPlace::System | ProgramPlace::Own { .. } => ShellProgram::at(path),
        ProgramPlace::Missing => None,
        ProgramPlace::Refused(reason) => {
            let fact = format!("no rule may name the program `{}`: it {reason}", visible(&rule.pattern[0]));
            problems.push(Diagnostic::error(span, fact).hint(Remedy::PlaceProgram));
            None
        }
    };
    let (toolset, pattern, approval) = (toolset.to_owned(), rule.pattern.clone(), rule.approval);
    RuleProgram { toolset, pattern, approval, span, place, found }
}

fn shell(definition: &ToolsetDefinition) -> Option<(&ShellConfig, &[Span])> {
    match definition {
        ToolsetDefinition::Shell(config, spans) => Some((config, spans)),
        ToolsetDefinition::Filesystem(_)
        | ToolsetDefinition::Mcp(..)
        | ToolsetDefinition::DynamicAgents(_)
        | ToolsetDefinition::Map(_)
        | ToolsetDefinition::StandIn(_)
        | ToolsetDefinition::Use { .. }
        | ToolsetDefinition::Broken => None,
    }
}

/// What tools of the project may write outside it.
fn written(definition: &ToolsetDefinition, root: &Path) -> Vec<PathBuf> {
    match definition {
        ToolsetDefinition::Shell(config, _) => config.write.iter().map(|path| root.join(path)).collect(),
        ToolsetDefinition::Filesystem(config) => {
            let roots = config.roots.all().filter(|root| root.access == Access::ReadWrite);
            let outside = roots.filter_map(|root| match &root.base {
                Base::Absolute(path) => Some(path.clone()),
                Base::WorkingDirectory | Base::Project(_) => None,
            });
            outside.collect()
        }
        ToolsetDefinition::Mcp(..)
        | ToolsetDefinition::DynamicAgents(_)
        | ToolsetDefinition::Map(_)
        | ToolsetDefinition::StandIn(_)
        | ToolsetDefinition::Use { .. }
        | ToolsetDefinition::Broken => Vec::new(),
    }
}
