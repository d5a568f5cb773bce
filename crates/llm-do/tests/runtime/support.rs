//! Projects in directories of their own, people who answer questions, and toolsets that tell what becomes of them.

use std::future::pending;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use llm_do::BoxFuture;
use llm_do::message::{Content, RawJson};
use llm_do::model::name::ModelChoices;
use llm_do::project::Project;
use llm_do::runtime::{Models, Output, RunError, Runtime, RuntimeConfig};
use llm_do::tools::approval::{
    Answer, ApprovalRequest, Approvals, Approver, Judgement, PermittedCall, Question, Verdict,
};
use llm_do::tools::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};

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
    let program = project.link(&ModelChoices::default()).unwrap_or_else(|report| panic!("{report}"));
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
    (Approvals::ask(Person { answer, asked: Arc::clone(&asked) }), asked)
}

/// A toolset with one tool: what it is, and what it does.
#[derive(Clone)]
pub struct OneTool {
    pub tool: &'static str,
    pub verdict: Verdict,
    pub deed: Deed,
    pub closing: Result<(), &'static str>,
}

#[derive(Clone, Copy)]
pub enum Deed {
    /// Says how often this instance was called.
    Counts,
    Says(&'static str),
    Hangs,
}

/// What became of the instances of toolsets: opened, called, closed, dropped.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn tell(&self, what: &str, toolset: &str) {
        self.0.lock().unwrap().push(format!("{what} {toolset}"));
    }

    /// Everything that was told of these deeds, in order.
    pub fn told(&self, deeds: &[&str]) -> Vec<String> {
        let is_wanted = |line: &&String| deeds.iter().any(|deed| line.starts_with(deed));
        self.0.lock().unwrap().iter().filter(is_wanted).cloned().collect()
    }
}

impl OneTool {
    /// Asks before it counts, and does not close well.
    pub fn counting(tool: &'static str) -> Self {
        let verdict = Verdict::Ask(Question::because("counts"));
        Self { tool, verdict, deed: Deed::Counts, closing: Err("it would not close") }
    }

    /// A project with this toolset, an instance for each call.
    pub fn within(self, project: Project, toolset: &'static str, log: &Log) -> Project {
        let log = log.clone();
        project.toolset(toolset, move || {
            log.tell("open", toolset);
            Box::new(Instance { toolset, of: self.clone(), calls: AtomicUsize::new(0), log: log.clone() })
        })
    }
}

struct Instance {
    toolset: &'static str,
    of: OneTool,
    calls: AtomicUsize,
    log: Log,
}

impl Toolset for Instance {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: self.of.tool.to_owned(),
            description: "does what the test wants".into(),
            parameters: RawJson::parse(r#"{"type":"object"}"#).unwrap(),
            kind: ToolKind::Leaf,
            order: Order::Sequential,
            repeat: Repeat::Once,
        }]
    }

    fn judge<'a>(
        &'a self,
        _: &'a str,
        _: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async { Ok(self.of.verdict.clone().into()) })
    }

    fn call<'a>(&'a self, _: PermittedCall, _: &'a CallContext<'a>) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        self.log.tell("call", self.toolset);
        let count = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move {
            Ok(vec![Content::text(match self.of.deed {
                Deed::Counts => count.to_string(),
                Deed::Says(text) => text.to_owned(),
                Deed::Hangs => pending().await,
            })])
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        self.log.tell("close", self.toolset);
        let closing = self.of.closing.map_err(str::to_owned);
        Box::pin(async { closing })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.log.tell("drop", self.toolset);
    }
}
