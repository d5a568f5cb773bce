//! A working directory, what lies beside it, and a shell that is let loose in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use llm_do::message::{Content, RawJson};
use llm_do::model::name::ModelChoices;
use llm_do::project::Project;
use llm_do::runtime::{Models, Runtime, RuntimeConfig};
use llm_do::tools::ToolError;
use llm_do::tools::approval::{Approvals, Rule};
use llm_do::tools::fence::{Accept, Fence, FenceConfig, Fencing, thin};
use llm_do::tools::function::Tool;
use llm_do::tools::plane::Refusals;
use llm_do::tools::protected::{Covers, ProtectedFiles};
use llm_do::tools::shell::{Shell, ShellPart, Surroundings};
use llm_do::tools::source::{Access, Grammar, ShellConfig, ShellRule};
use serde_json::{Value, json};
use tempfile::TempDir;

/// With the best kernel sandbox, with the thin one, and with the grammar alone.
pub const ALL: [Fencing; 3] = [Fencing::WhereOffered, Fencing::Thin, Fencing::Off];

/// What this kernel offers of it, with a program that is only a keeper.
pub fn fence(fencing: Fencing) -> FenceConfig {
    let keeper = Some(env!("CARGO_BIN_EXE_llm-do-keeper").into());
    FenceConfig { fencing, keeper, accept: Accept::Thin, ..FenceConfig::default() }
}

/// `inside` is the working directory; `outside` is nobody's business.
pub struct World {
    directory: TempDir,
    pub fencing: Fencing,
    accept: Accept,
    parts: Vec<ShellPart>,
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
        Self::beneath(&std::env::temp_dir(), fencing)
    }

    pub fn beneath(above: &Path, fencing: Fencing) -> Self {
        let directory = tempfile::Builder::new().prefix("world").tempdir_in(above).unwrap();
        let world =
            Self { directory, fencing, accept: Accept::Thin, parts: vec![part("shell_readonly", Grammar::ReadOnly)] };
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

    pub fn with(mut self, parts: Vec<ShellPart>) -> Self {
        self.parts = parts;
        self
    }

    /// With which fence a rule that allows is enough.
    pub fn accepting(mut self, accept: Accept) -> Self {
        self.accept = accept;
        self
    }

    pub fn fence(&self) -> Fence {
        Fence::find(&FenceConfig { accept: self.accept, ..fence(self.fencing) })
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

    /// A session in which an agent's code calls the shell, through the gate like any other call.
    pub fn session(&self, approvals: Approvals) -> Session {
        let (inside, parts) = (self.inside(), self.parts.clone());
        let fence = Arc::new(self.fence());
        let shell = move || {
            let mut protected = ProtectedFiles::default();
            protected.add(inside.join("flow.yaml"), Covers::File, "is read by a run");
            protected.add(inside.clone(), Covers::Agents, "would be an agent");
            protected.add(inside.join("workers"), Covers::Agents, "would be an agent");
            protected.add(inside.clone(), Covers::Modules, "could be imported");
            let programs = std::collections::BTreeMap::new();
            let surroundings = Surroundings {
                directory: &inside,
                project_root: &inside,
                fence: Arc::clone(&fence),
                protected,
                programs: &programs,
                directories: &[],
            };
            Box::new(Shell::open("shell", parts.clone(), surroundings).unwrap()) as Box<dyn llm_do::tools::Toolset>
        };
        let exchange = Exchange::default();
        let project = Project::new(self.outside())
            .agent("main.worker", "---\nname: main\ntools: [go]\ntoolsets: [sh]\n---\nGo.")
            .tool(exchange.tool())
            .toolset("sh", shell);
        let models = ModelChoices::scripted("- {round: 1, call: {go: {}}}\n- say: done\n");
        let program = project.link(&models).unwrap_or_else(|report| panic!("{report:?}"));
        let config = RuntimeConfig { refusals: Refusals::Return, ..RuntimeConfig::new(approvals) };
        Session { runtime: Runtime::new(program, Models::default(), config), exchange }
    }

    /// Tries a command where nobody can be asked.
    pub fn attempt(&self, command: &str) -> Attempt {
        self.answered(command, 10, Approvals::unattended())
    }

    /// Tries a command where every question is answered with yes.
    pub fn approved(&self, command: &str) -> Attempt {
        self.answered(command, 10, Approvals::approve_all())
    }

    pub fn answered(&self, command: &str, timeout: u64, approvals: Approvals) -> Attempt {
        self.session(approvals).attempt(command, timeout)
    }

    /// What lies outside the working directory and of `declared`, with its content. Times and modes are no part of it:
    /// no fence keeps them.
    pub fn outer(&self) -> BTreeMap<PathBuf, String> {
        let is_outer = |path: &PathBuf| !path.starts_with(self.inside()) && !path.starts_with(self.path("declared"));
        let state = self.state().into_iter().filter(|(path, _)| is_outer(path));
        state.map(|(path, text)| (path, text.splitn(4, ' ').skip(3).collect())).collect()
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

/// A run of the program whose code calls the shell.
pub struct Session {
    runtime: Runtime,
    exchange: Exchange,
}

/// What is to be called, and what came back.
#[derive(Clone, Default)]
struct Exchange {
    orders: Arc<Mutex<Vec<(String, u64)>>>,
    results: Arc<Mutex<Vec<Returned>>>,
}

type Returned = Result<Vec<Content>, ToolError>;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

impl Exchange {
    fn tool(&self) -> Tool {
        let exchange = self.clone();
        let go = Tool::with_context("go", move |_: Nothing, cx| {
            let exchange = exchange.clone();
            Box::pin(async move {
                let orders = exchange.orders.lock().unwrap().clone();
                let calls = orders.iter().map(|(command, timeout)| {
                    let arguments = RawJson::of(&json!({"command": command, "timeout": timeout}));
                    async move { cx.call("shell", &arguments).await }
                });
                let results = join_all(calls).await;
                *exchange.results.lock().unwrap() = results;
                Ok::<_, ToolError>("gone")
            })
        });
        go.verdict(Rule::Allow)
    }
}

impl Session {
    pub fn attempt(&self, command: &str, timeout: u64) -> Attempt {
        self.attempts(&[(command.to_owned(), timeout)]).remove(0)
    }

    /// Several at the same time.
    pub fn attempts(&self, orders: &[(String, u64)]) -> Vec<Attempt> {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        executor.block_on(self.run(orders));
        let results = std::mem::take(&mut *self.exchange.results.lock().unwrap());
        results.into_iter().map(Attempt::of).collect()
    }

    pub async fn run(&self, orders: &[(String, u64)]) {
        *self.exchange.orders.lock().unwrap() = orders.to_vec();
        self.runtime.run("go").await.unwrap();
    }
}

impl Attempt {
    fn of(result: Returned) -> Self {
        let content = match result {
            Ok(content) => content,
            Err(ToolError::Failed(reason)) => return Self::Stopped(reason),
            Err(other) => panic!("{other:?}"),
        };
        let [Content::Text { text }] = content.as_slice() else { panic!("{content:?}") };
        let result: Value = serde_json::from_str(text).unwrap();
        let text = |key: &str| result[key].as_str().unwrap().to_owned();
        Self::Ran(Ran {
            stdout: text("stdout"),
            stderr: text("stderr"),
            exit_code: result["exit_code"].as_i64().unwrap(),
            truncated: result["truncated"].as_bool().unwrap(),
        })
    }
}

/// What needs a fence says nothing where there is none; one that should be there and is not is a failure.
pub fn is_offered() -> bool {
    let modules = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    match thin::offered() {
        Ok(_) => true,
        Err(reason) => {
            assert!(!modules.contains("landlock"), "{reason}");
            false
        }
    }
}

/// Whether this kernel, or whoever set it up, gives its users namespaces.
pub fn is_full(fencing: Fencing) -> bool {
    Fence::find(&fence(fencing)).is_full()
}

pub fn part(name: &str, grammar: Grammar) -> ShellPart {
    let config = ShellConfig { grammar, directory: Access::ReadWrite, write: Vec::new(), network: false };
    ShellPart { name: name.to_owned(), config, variants: Vec::new(), worker: None }
}

pub fn rule(pattern: &str, approval: Rule) -> ShellRule {
    ShellRule {
        pattern: pattern.split(' ').map(str::to_owned).collect(),
        approval,
        approval_required_if_args: Vec::new(),
        allowed_args: None,
        matches: Vec::new(),
        not_matches: Vec::new(),
        i_understand: true,
    }
}

/// A shell with rules and nothing else.
pub fn rules(rules: Vec<ShellRule>) -> ShellPart {
    part("mine", Grammar::Rules { rules, default: None })
}
