//! A working directory, what lies beside it, and a shell that is let loose in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::BoxFuture;
use llm_do::event::Events;
use llm_do::journal::Steps;
use llm_do::message::{Arguments, Content, RawJson, ToolCall};
use llm_do::tools::approval::{Approvals, Gate, Rule, Rules};
use llm_do::tools::plane::{OpenToolset, Refusals, ToolPlane};
use llm_do::tools::protected::Protected;
use llm_do::tools::shell::fence::Fencing;
use llm_do::tools::shell::{Part, Shell, Surroundings};
use llm_do::tools::source::{Grammar, ShellConfig, ShellRule};
use llm_do::tools::{Agents, CallContext, ToolError};
use serde_json::{Value, json};
use tempfile::TempDir;

/// With the fence of the kernel, and with the grammar alone.
pub const BOTH: [Fencing; 2] = [Fencing::WhereOffered, Fencing::Off];

/// `inside` is the working directory; `outside` is nobody's business.
pub struct World {
    directory: TempDir,
    pub fencing: Fencing,
    parts: Vec<Part>,
}

/// What became of a command.
#[derive(Debug)]
pub enum Attempt {
    Ran(Ran),
    /// Refused, or it must ask and nobody is there.
    Stopped(String),
}

#[derive(Debug)]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i64,
    pub truncated: bool,
}

impl World {
    pub fn new(fencing: Fencing) -> Self {
        let directory = tempfile::Builder::new().prefix("world").tempdir().unwrap();
        let world = Self { directory, fencing, parts: vec![part("shell_readonly", Grammar::ReadOnly)] };
        fs::create_dir(world.inside()).unwrap();
        fs::create_dir(world.outside()).unwrap();
        for (path, text) in [
            ("inside/a.txt", "alpha\nbeta\n"),
            ("inside/b.txt", "beta\nbeta\ngamma\n"),
            ("inside/README.md", "# Read me\n"),
            ("inside/src/main.rs", "fn main() {}\n"),
            ("inside/src/inner/lib.rs", "// x\n"),
            ("inside/in", "1\n1\n2\n"),
            ("inside/out", "precious\n"),
            ("inside/-rf", "dashes\n"),
            ("outside/secret.txt", "the outside secret\n"),
            ("inside-secret/s", "a neighbour's secret\n"),
        ] {
            world.file(path, text);
        }
        // Each leaves a mark when it runs.
        for path in ["inside/evil", "inside/cat", "inside/git", "inside/ls", "outside/evil"] {
            world.program(path, "fired");
        }
        world
    }

    pub fn with(mut self, parts: Vec<Part>) -> Self {
        self.parts = parts;
        self
    }

    pub fn inside(&self) -> PathBuf {
        self.directory.path().join("inside")
    }

    pub fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    pub fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A program that leaves a mark in `outside` and says so.
    pub fn program(&self, path: &str, mark: &str) {
        let mark = self.outside().join(mark);
        self.file(path, &format!("#!/bin/sh\nprintf 'FI%s\\n' RED\n: > '{}'\ncat\n", mark.display()));
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn link(&self, path: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
    }

    fn shell(&self) -> Shell {
        let inside = self.inside();
        let surroundings = Surroundings {
            directory: &inside,
            project_root: &inside,
            fencing: self.fencing,
            protected: Protected::new([inside.join("flow.yaml")]),
        };
        Shell::open(self.parts.clone(), surroundings).unwrap()
    }

    pub fn plane(&self, approvals: Approvals) -> ToolPlane {
        let toolset = Box::new(self.shell());
        let opened = OpenToolset { name: "sh".into(), definition: "sh".into(), toolset, rules: Rules::new() };
        ToolPlane::new(vec![opened], Arc::new(Gate::new(approvals)), Refusals::Return).unwrap()
    }

    /// Tries a command where nobody can be asked.
    pub fn attempt(&self, command: &str) -> Attempt {
        self.answered(command, 10, Approvals::Nobody)
    }

    /// Tries a command where every question is answered with yes.
    pub fn approved(&self, command: &str) -> Attempt {
        self.answered(command, 10, Approvals::ApproveAll)
    }

    pub fn answered(&self, command: &str, timeout: u64, approvals: Approvals) -> Attempt {
        attempt(&self.plane(approvals), command, timeout)
    }

    /// Everything there is, with its content, mode and time: what a command could change.
    pub fn state(&self) -> BTreeMap<PathBuf, String> {
        let mut state = BTreeMap::new();
        let mut waiting = vec![self.directory.path().to_owned()];
        while let Some(path) = waiting.pop() {
            let metadata = path.symlink_metadata().unwrap();
            let content = if metadata.is_dir() {
                waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                String::new()
            } else if metadata.is_file() {
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
            } else {
                String::new()
            };
            let shape = format!("{:o} {} {}", metadata.mode(), metadata.mtime(), metadata.nlink());
            state.insert(path, format!("{shape} {content}"));
        }
        state
    }
}

impl Attempt {
    #[track_caller]
    pub fn ran(self) -> Ran {
        match self {
            Self::Ran(ran) => ran,
            Self::Stopped(reason) => panic!("it was stopped: {reason}"),
        }
    }

    #[track_caller]
    pub fn stopped(self) -> String {
        match self {
            Self::Ran(ran) => panic!("it ran: {ran:?}"),
            Self::Stopped(reason) => reason,
        }
    }

    /// It must ask, and would run if somebody said yes.
    #[track_caller]
    pub fn asks(self) {
        let reason = self.stopped();
        assert!(reason.contains("needs an approval"), "{reason}");
    }
}

pub fn attempt(plane: &ToolPlane, command: &str, timeout: u64) -> Attempt {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match executor.block_on(call_within(plane, command, timeout)) {
        Ok(content) => {
            let [Content::Text { text }] = content.as_slice() else { panic!("{content:?}") };
            let result: Value = serde_json::from_str(text).unwrap();
            let text = |key: &str| result[key].as_str().unwrap().to_owned();
            Attempt::Ran(Ran {
                stdout: text("stdout"),
                stderr: text("stderr"),
                exit_code: result["exit_code"].as_i64().unwrap(),
                truncated: result["truncated"].as_bool().unwrap(),
            })
        }
        Err(reason) => Attempt::Stopped(reason),
    }
}

/// A call whose result nobody looks at.
pub async fn call(plane: &ToolPlane, command: &str) {
    drop(call_within(plane, command, 300).await);
}

async fn call_within(plane: &ToolPlane, command: &str, timeout: u64) -> Result<Vec<Content>, String> {
    let arguments = Arguments::Object(RawJson::of(&json!({"command": command, "timeout": timeout})));
    let call = ToolCall { id: "c1".into(), tool: "shell".into(), arguments, private: None };
    let events = Events::unheard();
    let path = ["main".to_owned()];
    let cx = CallContext {
        agents: &NoAgents,
        path: &path,
        depth: 0,
        call: 1,
        events: &events,
        project_root: Path::new("/"),
        steps: Steps::unrecorded(),
        account: 0,
        plane,
    };
    let mut results = plane.run(&[&call], &cx).await.unwrap();
    results.remove(0).outcome
}

struct NoAgents;

impl Agents for NoAgents {
    fn may_call(&self, _: &str, _: &CallContext<'_>) -> Result<(), String> {
        Err("there are none".to_owned())
    }

    fn call<'a>(
        &'a self,
        _: &'a str,
        _: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async { Err(ToolError::failed("there are none")) })
    }
}

pub fn part(name: &str, grammar: Grammar) -> Part {
    let config = ShellConfig { grammar, write: Vec::new(), network: false };
    Part { name: name.to_owned(), config, rule: None }
}

pub fn rule(pattern: &str, approval: Rule) -> ShellRule {
    ShellRule {
        pattern: pattern.split(' ').map(str::to_owned).collect(),
        approval,
        approval_required_if_args: Vec::new(),
        matches: Vec::new(),
        not_matches: Vec::new(),
        i_understand: true,
    }
}

/// A shell with rules and nothing else.
pub fn rules(rules: Vec<ShellRule>) -> Part {
    part("mine", Grammar::Rules { rules, default: Rule::Block })
}
