//! What linking read and what a run of the project would run: files that no tool changes without a question.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::model::name::ModelChoices;
use crate::project::load::DEFAULT_GENERATED_DIR;
use crate::project::manifest::{Manifest, ToolsetDefinition};
use crate::project::worker::{PythonModule, SchemaSource};
use crate::project::{Layout, LoadedWorker, Project};
use crate::tools::protected::{Covers, ProtectedFiles};
use crate::tools::source::{Grammar, McpConfig, McpServer, ShellConfig, ShellRule};

const LINKED: &str = "is read when the project is linked";
const IMPORTED: &str = "is Python code that the project imports";
const CREATED: &str = "would be an agent of the project";
const SKILL: &str = "is a skill, which agents read as instructions";
const RUN: &str = "is run by a toolset of the project";

pub(crate) fn of(project: &Project, models: &ModelChoices) -> ProtectedFiles {
    let mut protected = ProtectedFiles::default();
    for source in project.sources.iter() {
        protected.add(&source.path, Covers::File, LINKED);
    }
    for script in models.scripts.keys() {
        protected.add(project.directory.join(script), Covers::File, LINKED);
    }
    let root = &project.root;
    // Many agents may share one module.
    let mut modules = ModuleFiles::default();
    for worker in &project.workers {
        modules.add_classes(root, worker);
    }
    for directory in project.skill_directories() {
        protected.add(directory, Covers::Tree, SKILL);
    }
    protected.add(root.join("workers"), Covers::Agents, CREATED);
    protected.add(root.join(DEFAULT_GENERATED_DIR), Covers::Tree, CREATED);
    match &project.layout {
        Layout::Manifest(manifest) => add_manifest(&mut protected, &mut modules, root, manifest),
        Layout::SingleFile | Layout::Directory | Layout::Unreadable => {}
    }
    for file in modules.files {
        protected.add(file, Covers::File, IMPORTED);
    }
    for directory in modules.directories {
        protected.add(directory, Covers::Modules, IMPORTED);
    }
    protected
}

fn add_manifest(protected: &mut ProtectedFiles, modules: &mut ModuleFiles, root: &Path, manifest: &Manifest) {
    if let Some(directory) = &manifest.generated_agents_dir {
        protected.add(root.join(&directory.value), Covers::Tree, CREATED);
    }
    for file in &manifest.python_files {
        modules.add(&root.join(&file.value));
    }
    for (_, definition) in &manifest.toolsets {
        match definition {
            ToolsetDefinition::Mcp(McpConfig { server: McpServer::Command { command, args, .. }, .. }, _) => {
                std::iter::once(command).chain(args).for_each(|word| add_run(protected, modules, root, word));
            }
            ToolsetDefinition::Shell(ShellConfig { grammar: Grammar::Rules { rules, .. }, .. }, _) => {
                let scripts =
                    rules.iter().flat_map(|rule| rule.pattern.iter().filter(|word| may_be_script(rule, word)));
                scripts.for_each(|word| add_run(protected, modules, root, word));
            }
            ToolsetDefinition::StandIn(stand_in) => modules.add(&root.join(&stand_in.value.file)),
            ToolsetDefinition::Shell(..)
            | ToolsetDefinition::Mcp(..)
            | ToolsetDefinition::Filesystem(_)
            | ToolsetDefinition::DynamicAgents(_)
            | ToolsetDefinition::Map(_)
            | ToolsetDefinition::Use { .. }
            | ToolsetDefinition::Broken => {}
        }
    }
}

/// Python files, and the directories that they can import from.
#[derive(Default)]
struct ModuleFiles {
    files: BTreeSet<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl ModuleFiles {
    fn add(&mut self, file: &Path) {
        self.files.insert(file.to_owned());
        self.directories.insert(parent(file));
    }

    fn add_classes(&mut self, root: &Path, LoadedWorker { path, worker, .. }: &LoadedWorker) {
        for source in [&worker.schema_in, &worker.schema_out].into_iter().flatten() {
            match source {
                SchemaSource::Python(class) => match &class.value.module {
                    PythonModule::File(file) => self.add(&parent(&root.join(path)).join(file)),
                    PythonModule::Importable(_) => drop(self.directories.insert(root.to_owned())),
                },
                // A file was read, and is among the sources.
                SchemaSource::File(_) | SchemaSource::Inline(_) => {}
            }
        }
    }
}

/// A plain word of a pattern is a subcommand, unless the program runs whatever it is given.
fn may_be_script(rule: &ShellRule, word: &str) -> bool {
    rule.i_understand || word.contains(['/', '.'])
}

/// A word of a command may be a script: relative to the project, or to the working directory.
fn add_run(protected: &mut ProtectedFiles, modules: &mut ModuleFiles, root: &Path, word: &str) {
    for path in [root.join(word), PathBuf::from(word)] {
        if path.extension().is_some_and(|extension| extension == "py") {
            modules.add(&path);
        }
        protected.add(path, Covers::File, RUN);
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}
