//! Scaffolds: a project or a worker file to start from. Never overwrites.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use llm_do::escape::visible;
use llm_do::program::MANIFEST_NAME;
use llm_do::{ModelChoices, ModelName, Project};

use crate::args::{COMMANDS, Template};
use crate::failure::Failure;
use crate::plan::NewPlan;
use crate::remedy::shell_word;
use crate::terminal::trust;
use llm_do_launch::state::StateDirectory;
use llm_do_launch::trust::WrittenOver;

type Files = &'static [(&'static str, &'static str)];

const MINIMAL: Files = &[
    ("project.json", include_str!("../../templates/minimal/project.json")),
    ("main.worker", include_str!("../../templates/minimal/main.worker")),
];

const TOOLS: Files = &[
    ("project.json", include_str!("../../templates/tools/project.json")),
    ("main.worker", include_str!("../../templates/tools/main.worker")),
];

const MULTI: Files = &[
    ("project.json", include_str!("../../templates/multi/project.json")),
    ("main.worker", include_str!("../../templates/multi/main.worker")),
    ("researcher.worker", include_str!("../../templates/multi/researcher.worker")),
    ("writer.worker", include_str!("../../templates/multi/writer.worker")),
];

const DEMO: Files = &[
    ("project.json", include_str!("../../templates/demo/project.json")),
    ("main.worker", include_str!("../../templates/demo/main.worker")),
    ("script.yaml", include_str!("../../templates/demo/script.yaml")),
];

const WORKER: &str = include_str!("../../templates/worker.worker");

/// Writes what was planned and says what to do next.
pub fn write(plan: &NewPlan) -> Result<String, Failure> {
    match plan {
        NewPlan::Project { directory, template } => {
            let files = match template {
                Template::Minimal => MINIMAL,
                Template::Tools => TOOLS,
                Template::Multi => MULTI,
                Template::Demo => DEMO,
            };
            refuse_command(directory)?;
            let files: Vec<(PathBuf, String)> =
                files.iter().map(|(name, text)| (directory.join(name), (*text).to_owned())).collect();
            write_all(directory, &files)?;
            let shown = visible(&directory.display().to_string()).into_owned();
            let names: Vec<String> =
                files.iter().map(|(path, _)| format!("  {}\n", visible(&path.display().to_string()))).collect();
            let next = match template {
                Template::Demo => format!("llm-do {}", shell_word(directory)),
                Template::Minimal | Template::Tools | Template::Multi => format!("llm-do check {shown}"),
            };
            Ok(format!("wrote\n{}\nnext: {next}\n", names.concat()))
        }
        NewPlan::Worker { directory, name } => {
            let path = directory.join(format!("{name}.worker"));
            let text = WORKER.replace("{{name}}", name);
            write_all(directory, &[(path.clone(), text)])?;
            let listed = if directory.join(MANIFEST_NAME).exists() {
                format!("list it in {MANIFEST_NAME}: \"worker_files\": [\"{name}.worker\"]\n")
            } else {
                String::new()
            };
            let shown = visible(&path.display().to_string()).into_owned();
            Ok(format!("wrote {shown}\n{listed}next: llm-do check {shown}\n"))
        }
    }
}

/// A project with the name of a command could only be run by its path.
fn refuse_command(directory: &Path) -> Result<(), Failure> {
    match directory.to_str().filter(|name| COMMANDS.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::usage(format!("`{name}` is a command of llm-do"))
            .hint(format!("choose another name, such as `llm-do new my-{name}`"))),
    }
}

/// The user who made a project agrees to what is in it: it is trusted exactly as it was written.
pub fn trust(plan: &NewPlan, state: &StateDirectory) -> Result<(), Failure> {
    let NewPlan::Project { directory, .. } = plan else { return Ok(()) };
    // No item depends on the model, and without one a project cannot be linked.
    let models = ModelChoices { required: ModelName::parse("ollama:any").ok(), ..ModelChoices::default() };
    match Project::load(directory).and_then(|project| project.surveyed(&models, None)) {
        Ok(surveyed) => trust::keep_written(&WrittenOver::Nothing, &surveyed, state),
        // What was written is in order; what others put beside it is told when it is used.
        Err(_) => Ok(()),
    }
}

/// All or nothing: an existing file is found before the first one is written, and a failure takes back what was.
fn write_all(directory: &Path, files: &[(PathBuf, String)]) -> Result<(), Failure> {
    let existing: Vec<String> = files
        .iter()
        .filter(|(path, _)| path.symlink_metadata().is_ok())
        .map(|(path, _)| path.display().to_string())
        .collect();
    if !existing.is_empty() {
        return Err(Failure::usage(format!("would overwrite {}", existing.join(", ")))
            .hint("nothing was written; choose another directory or name"));
    }
    let failed =
        |path: &Path, error: &io::Error| Failure::usage(format!("{} cannot be written: {error}", path.display()));
    let made = !directory.exists();
    fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    for (index, (path, text)) in files.iter().enumerate() {
        let opened = OpenOptions::new().write(true).create_new(true).open(path);
        // A file that could not be opened is not ours; one that could not be written whole is.
        let ours = index + usize::from(opened.is_ok());
        if let Err(error) = opened.and_then(|mut file| file.write_all(text.as_bytes())) {
            files[..ours].iter().for_each(|(path, _)| drop(fs::remove_file(path)));
            if made {
                let _ = fs::remove_dir(directory);
            }
            return Err(failed(path, &error));
        }
    }
    Ok(())
}
