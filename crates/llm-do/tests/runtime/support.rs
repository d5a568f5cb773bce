//! Projects in directories of their own, and people who answer questions.

use std::path::Path;
use std::sync::{Arc, Mutex};

use llm_do::BoxFuture;
use llm_do::model::name::ModelChoices;
use llm_do::project::Project;
use llm_do::runtime::{Models, Output, RunError, Runtime, RuntimeConfig};
use llm_do::tools::approval::{Answer, ApprovalRequest, Approvals, Approver};

/// A project in a directory of its own.
pub struct Files(tempfile::TempDir);

impl Files {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        Self(directory)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn project(&self) -> Project {
        Project::load(self.path()).unwrap()
    }
}

pub fn runtime(project: &Project, config: RuntimeConfig) -> Runtime {
    let program = project.link(&ModelChoices::default()).unwrap_or_else(|report| panic!("{report}")).program;
    Runtime::new(program, Models::default(), config)
}

pub fn worker(name: &str, keys: &str) -> String {
    format!("---\nname: {name}\nmodel: scripted:script.yaml\n{keys}\n---\nYou are {name}.\n")
}

pub fn text(output: Result<Output, RunError>) -> String {
    match output.unwrap() {
        Output::Text(text) => text,
        Output::Value(value) => value.get().to_owned(),
    }
}

/// Answers every question the same way, and remembers what was asked.
struct Person {
    answer: Answer,
    asked: Arc<Mutex<Vec<ApprovalRequest>>>,
}

impl Approver for Person {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        self.asked.lock().unwrap().push(request.clone());
        Box::pin(async { self.answer.clone() })
    }
}

pub fn person(answer: Answer) -> (Approvals, Arc<Mutex<Vec<ApprovalRequest>>>) {
    let asked = Arc::new(Mutex::default());
    (Approvals::prompt(Person { answer, asked: Arc::clone(&asked) }), asked)
}
