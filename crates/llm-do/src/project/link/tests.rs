//! Linking from values: files by name and text, without a disk.

mod agents;
mod created;
mod entries;
mod toolsets;

use std::sync::Arc;

use super::super::manifest;
use super::super::worker::{self, Format};
use super::super::{Code, Layout, LoadedWorker, Program, Project, PythonOffer};
use super::{Report, Survey, TrustedProgram};
use crate::model::name::{ModelChoices, ModelFallback, ModelName};
use crate::syntax::diagnostic::{Diagnostics, Sources};

/// A project in memory.
pub(super) struct Files {
    manifest: Option<String>,
    workers: Vec<(String, String)>,
    schemas: Vec<(&'static str, &'static str)>,
    code: Code,
    broken: Vec<&'static str>,
    layout: fn() -> Layout,
    models: ModelChoices,
    entry: Option<&'static str>,
}

/// A directory of worker files without a manifest.
pub(super) fn directory() -> Files {
    Files {
        manifest: None,
        workers: Vec::new(),
        schemas: Vec::new(),
        code: Code::Absent,
        broken: Vec::new(),
        layout: || Layout::Directory,
        models: ModelChoices { keys: ["anthropic".to_owned()].into(), ..ModelChoices::default() },
        entry: None,
    }
}

/// A manifest whose other keys are given.
pub(super) fn manifest(keys: &str) -> Files {
    let text =
        format!("{{\"version\": 1, \"entry\": {{\"agent\": \"main\"}}, \"worker_files\": [\"x.worker\"]{keys}}}");
    Files { manifest: Some(text), ..directory() }
}

impl Files {
    pub(super) fn manifest_text(mut self, text: &str) -> Self {
        self.manifest = Some(text.to_owned());
        self
    }

    /// A worker file `NAME.worker` with its other keys, and a model.
    pub(super) fn agent(self, name: &str, keys: &str) -> Self {
        self.bare(name, &format!("model: anthropic:claude\n{keys}"))
    }

    /// Without a model.
    pub(super) fn bare(mut self, name: &str, keys: &str) -> Self {
        self.workers.push((format!("{name}.worker"), format!("---\nname: {name}\n{keys}\n---\nDo {name}.\n")));
        self
    }

    pub(super) fn file(mut self, path: &str, text: &str) -> Self {
        self.workers.push((path.to_owned(), text.to_owned()));
        self
    }

    pub(super) fn schema(mut self, path: &'static str, text: &'static str) -> Self {
        self.schemas.push((path, text));
        self
    }

    pub(super) fn code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    pub(super) fn offering(self, offer: PythonOffer) -> Self {
        self.code(Code::Read(offer))
    }

    pub(super) fn broken(mut self, name: &'static str) -> Self {
        self.broken.push(name);
        self
    }

    pub(super) fn single_file(self) -> Self {
        Self { layout: || Layout::SingleFile, ..self }
    }

    pub(super) fn starting_with(self, entry: &'static str) -> Self {
        Self { entry: Some(entry), ..self }
    }

    pub(super) fn choosing(mut self, change: impl FnOnce(&mut ModelChoices)) -> Self {
        change(&mut self.models);
        self
    }

    fn project(&self) -> Project {
        let mut sources = Sources::default();
        let mut problems = Diagnostics::default();
        let layout = match &self.manifest {
            None => (self.layout)(),
            Some(text) => {
                let file = sources.add("project.json".into(), text.clone());
                Layout::Manifest(Box::new(manifest::parse(file, text, &mut problems).unwrap()))
            }
        };
        let mut workers = Vec::new();
        for (path, text) in &self.workers {
            let file = sources.add(path.into(), text.clone());
            let worker = worker::parse(file, "main", text, Format::FrontMatter, &mut problems).unwrap();
            let rests = path.ends_with(".softened");
            workers.push(LoadedWorker { path: path.into(), worker, rests });
        }
        assert!(!problems.has_errors(), "the files themselves are good: {problems:?}");
        let schemas = self.schemas.iter().map(|(path, text)| (path.into(), sources.add(path.into(), (*text).into())));
        Project {
            root: "root".into(),
            shown_root: "root".into(),
            directory: crate::tools::working_directory::WorkingDirectory::of_process(),
            layout,
            workers,
            references: schemas.collect(),
            outside: crate::project::skills::OutsideTexts::default(),
            broken: self.broken.iter().map(|name| (*name).to_owned()).collect(),
            generated: [("made".to_owned(), "workers/generated/made.yaml".into())].into(),
            code: self.code.clone(),
            offered: std::collections::BTreeMap::new(),
            registry: crate::tools::function::Registry::default(),
            programs: Vec::new(),
            tests: Vec::new(),
            test_claims: Vec::new(),
            sources: Arc::new(sources),
            problems,
        }
    }

    pub(super) fn survey(&self) -> Result<Survey, Report> {
        self.project().survey(&self.models, self.entry)
    }

    pub(super) fn link(&self) -> Result<TrustedProgram, Report> {
        self.project().link(&self.models)
    }

    #[track_caller]
    pub(super) fn program(&self) -> Program {
        self.survey().unwrap_or_else(|report| panic!("{report}")).program
    }

    /// Every mistake as `file:line:column fact (hint)`, in order.
    #[track_caller]
    pub(super) fn mistakes(&self) -> Vec<String> {
        let report = self.survey().expect_err("the project has a mistake");
        shown(&report)
    }

    #[track_caller]
    pub(super) fn check_mistakes(&self, expected: &[&str]) {
        assert_eq!(self.mistakes(), expected);
    }

    pub(super) fn notes(&self) -> Vec<String> {
        shown(&self.survey().unwrap_or_else(|report| panic!("{report}")).notes)
    }
}

fn shown(report: &Report) -> Vec<String> {
    let json = serde_json::to_value(report.json()).unwrap();
    let one = |it: &serde_json::Value| {
        let place = match (it["file"].as_str(), it["line"].as_u64()) {
            (Some(file), Some(line)) => format!("{file}:{line}:{} ", it["column"]),
            (Some(file), None) => format!("{file} "),
            (None, _) => String::new(),
        };
        let hint = it["hint"].as_str().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{place}{}{hint}", it["message"].as_str().unwrap())
    };
    json.as_array().unwrap().iter().map(one).collect()
}

pub(super) fn fallback(text: &str) -> ModelFallback {
    ModelFallback { model: model(text), label: "a test".to_owned(), others: Vec::new() }
}

pub(super) fn model(text: &str) -> ModelName {
    ModelName::parse(text).unwrap()
}
