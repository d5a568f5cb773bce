//! What linking read and what a run of the project would run: files that no tool changes without a question.

use std::path::{Path, PathBuf};

use crate::model::name::ModelChoices;
use crate::project::load::DEFAULT_GENERATED_DIR;
use crate::project::manifest::{Manifest, ToolsetDefinition};
use crate::project::worker::{PythonModule, SchemaSource};
use crate::project::{Layout, LoadedWorker, Project};
use crate::tools::protected::{Covers, Protected};
use crate::tools::source::{Grammar, McpConfig, McpServer, ShellConfig};

const LINKED: &str = "is read when the project is linked";
const IMPORTED: &str = "is Python code that the project imports";
const CREATED: &str = "would be an agent of the project";
const RUN: &str = "is run by a toolset of the project";

pub fn of(project: &Project, models: &ModelChoices) -> Protected {
    let mut protected = Protected::default();
    for source in project.sources.iter() {
        protected.add(&source.path, Covers::File, LINKED);
    }
    for script in models.scripts.keys() {
        protected.add(script, Covers::File, LINKED);
    }
    let root = &project.root;
    for worker in &project.workers {
        add_classes(&mut protected, root, worker);
    }
    protected.add(root.join("workers"), Covers::Agents, CREATED);
    protected.add(root.join(DEFAULT_GENERATED_DIR), Covers::Tree, CREATED);
    match &project.layout {
        Layout::Manifest(manifest) => add_manifest(&mut protected, root, manifest),
        Layout::SingleFile | Layout::Directory | Layout::Unreadable => {}
    }
    protected
}

fn add_manifest(protected: &mut Protected, root: &Path, manifest: &Manifest) {
    if let Some(directory) = &manifest.generated_agents_dir {
        protected.add(root.join(&directory.value), Covers::Tree, CREATED);
    }
    for file in &manifest.python_files {
        add_python(protected, &root.join(&file.value));
    }
    for (_, definition) in &manifest.toolsets {
        match definition {
            ToolsetDefinition::Mcp(McpConfig { server: McpServer::Command { command, args, .. }, .. }, _) => {
                std::iter::once(command).chain(args).for_each(|word| add_run(protected, root, word));
            }
            ToolsetDefinition::Shell(ShellConfig { grammar: Grammar::Rules { rules, .. }, .. }) => {
                rules.iter().flat_map(|rule| &rule.pattern).for_each(|word| add_run(protected, root, word));
            }
            ToolsetDefinition::Shell(_)
            | ToolsetDefinition::Mcp(..)
            | ToolsetDefinition::Filesystem(_)
            | ToolsetDefinition::Use { .. }
            | ToolsetDefinition::Broken => {}
        }
    }
}

/// A file, and the modules that it can import from beside it.
fn add_python(protected: &mut Protected, file: &Path) {
    protected.add(file, Covers::File, IMPORTED);
    protected.add(parent(file), Covers::Modules, IMPORTED);
}

fn add_classes(protected: &mut Protected, root: &Path, LoadedWorker { path, worker }: &LoadedWorker) {
    for source in [&worker.schema_in, &worker.schema_out].into_iter().flatten() {
        match source {
            SchemaSource::Python(class) => match &class.value.module {
                PythonModule::File(file) => add_python(protected, &parent(&root.join(path)).join(file)),
                PythonModule::Importable(_) => protected.add(root, Covers::Modules, IMPORTED),
            },
            // A file was read, and is among the sources.
            SchemaSource::File(_) | SchemaSource::Inline(_) => {}
        }
    }
}

/// A word of a command may be a script: relative to the project, or to the working directory.
fn add_run(protected: &mut Protected, root: &Path, word: &str) {
    for path in [root.join(word), PathBuf::from(word)] {
        if path.extension().is_some_and(|extension| extension == "py") {
            add_python(protected, &path);
        }
        protected.add(path, Covers::File, RUN);
    }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}
