//! What a project can run, send out or loosen besides what its agents may do at the gate: asked once, and remembered
//! outside the project.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use llm_do::escape::visible;
use llm_do::project::manifest::{Manifest, ToolsetDefinition};
use llm_do::project::worker::{PythonClass, PythonModule};
use llm_do::project::{ApprovalMode, Layout, Program, Project, Typing};
use llm_do::tools::approval::digest;
use llm_do::tools::source::{Access, Base, FilesystemConfig, McpConfig, McpServer, Setting, ShellConfig};
use serde::Serialize;

use crate::attention::Stage;
use crate::console;
use crate::failure::Failure;
use crate::signals::{Received, Signals};
use crate::style::{Style, Styles};
use crate::terminal::Terminal;

/// One thing that needs trust.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Item {
    /// The key of the file that says so.
    pub key: &'static str,
    /// A path, a command, a name.
    pub what: String,
    /// What else was agreed to, which may be a secret and is not shown: a digest of it.
    #[serde(skip)]
    bound_to: String,
}

impl Item {
    fn new(key: &'static str, what: impl Into<String>) -> Self {
        Self { key, what: what.into(), bound_to: String::new() }
    }

    pub fn words(&self) -> String {
        format!("{}: {}", self.key, visible(&self.what))
    }
}

/// Everything of a project that needs trust, each once. Pure but for one look whether it brings an interpreter.
pub fn items(project: &Project, program: &Program) -> Vec<Item> {
    let mut items = Vec::new();
    if let Layout::Manifest(manifest) = &project.layout {
        of_manifest(manifest, &mut items);
    }
    for agent in program.agents.values() {
        for typing in [&agent.input, &agent.output] {
            if let Typing::Python(class) = typing {
                items.push(Item::new("schema_ref", class_name(&class.class)));
            }
        }
    }
    if program.policy.approval_mode == ApprovalMode::ApproveAll {
        items.push(Item::new("approval_mode", "approve_all: every question is answered with yes"));
    }
    let runs_python = items.iter().any(|item| matches!(item.key, "python_files" | "schema_ref"));
    if runs_python && project.root.join(".venv").exists() {
        items.push(Item::new(".venv", "its own Python interpreter"));
    }
    items.sort();
    items.dedup();
    items
}

fn of_manifest(manifest: &Manifest, items: &mut Vec<Item>) {
    items.extend(manifest.python_files.iter().map(|file| Item::new("python_files", &file.value)));
    items.extend(manifest.env.iter().map(|name| Item::new("env", &name.value)));
    for (name, definition) in &manifest.toolsets {
        match definition {
            ToolsetDefinition::Filesystem(config) => of_files(&name.value, config, items),
            ToolsetDefinition::Shell(config) => of_shell(&name.value, config, items),
            ToolsetDefinition::Mcp(config, _) => of_server(&name.value, config, items),
            ToolsetDefinition::Use { .. } | ToolsetDefinition::Broken => {}
        }
    }
}

fn of_files(name: &str, config: &FilesystemConfig, items: &mut Vec<Item>) {
    for root in config.roots.all() {
        if let Base::Absolute(path) = &root.base {
            let access = match root.access {
                Access::ReadOnly => "read",
                Access::ReadWrite => "read and written",
            };
            items.push(Item::new("root", format!("{} is {access} by `{name}`", path.display())));
        }
    }
}

fn of_shell(name: &str, config: &ShellConfig, items: &mut Vec<Item>) {
    let is_outside = |path: &&String| path.starts_with(['/', '~']) || path.split('/').any(|part| part == "..");
    let outside = config.write.iter().filter(is_outside);
    items.extend(outside.map(|path| Item::new("write", format!("{path} is written by commands of `{name}`"))));
    if config.network {
        items.push(Item::new("network", format!("commands of `{name}` reach it")));
    }
    if let llm_do::tools::source::Grammar::Rules { rules, .. } = &config.grammar {
        let understood = rules.iter().filter(|rule| rule.i_understand);
        items.extend(
            understood.map(|rule| Item::new("i_understand", format!("{} in `{name}`", rule.pattern.join(" ")))),
        );
    }
}

fn of_server(name: &str, config: &McpConfig, items: &mut Vec<Item>) {
    let (settings, what) = match &config.server {
        McpServer::Command { env, .. } => (env, "variables"),
        McpServer::Url { headers, .. } => (headers, "headers"),
    };
    let given: Vec<&str> = settings.keys().map(String::as_str).collect();
    let given = if given.is_empty() { String::new() } else { format!(" with the {what} {}", given.join(", ")) };
    // A variable can make a program do anything, so its value counts; it may be a secret, so it is not shown.
    let values = settings.iter().flat_map(|(name, setting)| match setting {
        Setting::Text(value) => [name.as_str(), value.as_str()],
        Setting::FromEnv(variable) => [name.as_str(), variable.as_str()],
    });
    let bound_to = digest(values);
    items.push(Item { bound_to, ..Item::new("mcp", format!("{}{given} is `{name}`", reached(&config.server))) });
    for setting in settings.values() {
        match setting {
            Setting::FromEnv(variable) => items.push(Item::new("from_env", format!("{variable} is sent to `{name}`"))),
            Setting::Text(_) => {}
        }
    }
}

/// How a server is reached: its command, or its address.
pub fn reached(server: &McpServer) -> String {
    match server {
        McpServer::Command { command, args, .. } => {
            let words: Vec<&str> = std::iter::once(command).chain(args).map(String::as_str).collect();
            words.join(" ")
        }
        McpServer::Url { url, .. } => url.clone(),
    }
}

fn class_name(class: &PythonClass) -> String {
    match &class.module {
        PythonModule::File(file) => format!("{file}:{}", class.class),
        PythonModule::Importable(module) => format!("{module}.{}", class.class),
    }
}

/// Where trust is kept.
pub struct Store {
    directory: Option<PathBuf>,
}

impl Store {
    pub fn beneath(home: Option<PathBuf>) -> Self {
        Self { directory: home.map(|home| home.join("trust")) }
    }

    /// Whether this list was trusted for this project.
    pub fn holds(&self, root: &Path, items: &[Item]) -> bool {
        self.file(root, items).is_some_and(|file| file.is_file())
    }

    /// Remembers the answer. What is in the file is for people: its name is what counts.
    pub fn keep(&self, root: &Path, items: &[Item]) -> std::io::Result<()> {
        let (Some(directory), Some(file)) = (&self.directory, self.file(root, items)) else { return Ok(()) };
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let lines: Vec<String> = items.iter().map(|item| format!("{}\n", item.words())).collect();
        let text = format!("{}\n{}", visible(&root.display().to_string()), lines.concat());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).open(file)?.write_all(text.as_bytes())
    }

    fn file(&self, root: &Path, items: &[Item]) -> Option<PathBuf> {
        let root = root.canonicalize().ok()?;
        // Names need not be UTF-8, and two that are not must not look alike.
        let root = root.as_os_str().as_encoded_bytes().escape_ascii().to_string();
        let parts = items.iter().flat_map(|item| [item.key, item.what.as_str(), item.bound_to.as_str()]);
        let name = digest(std::iter::once(root.as_str()).chain(parts));
        self.directory.as_ref().map(|directory| directory.join(&name[..32]))
    }
}

/// Who answers whether a project is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// `--trust`.
    Flag,
    Person(Styles),
    /// Running a project is asking for its code: it is said, and the run goes on.
    Nobody,
    /// Nobody wants to hear of it either.
    Silent,
}

/// Lets a project run, or not.
pub fn settle(project: &Project, program: &Program, store: &Store, answerer: Answerer) -> Result<(), Failure> {
    let items = items(project, program);
    if items.is_empty() || store.holds(&project.root, &items) {
        return Ok(());
    }
    match answerer {
        Answerer::Silent => return Ok(()),
        Answerer::Nobody => {
            let keys: Vec<&str> = items.chunk_by(|a, b| a.key == b.key).map(|same| same[0].key).collect();
            console::complain(&format!(
                "note: this project was never trusted: {} (`llm-do check` lists what it can do)\n",
                keys.join(", ")
            ));
            return Ok(());
        }
        Answerer::Person(styles) => {
            if !ask(&question(&project.root, &items, styles))? {
                return Err(
                    Failure::refused("the project is not trusted").hint("`--trust` trusts it without a question")
                );
            }
        }
        Answerer::Flag => {}
    }
    // Whoever agreed wants it to run now, whatever becomes of the next time.
    if let Err(error) = store.keep(&project.root, &items) {
        console::complain(&format!("note: trust cannot be kept, it will be asked for again: {error}\n"));
    }
    Ok(())
}

fn question(root: &Path, items: &[Item], styles: Styles) -> String {
    let heading = "this project can run code, send data out or loosen the gate:";
    let lines: Vec<String> = items.iter().map(|item| format!("  {}\n", item.words())).collect();
    let root = root.display().to_string();
    let root = visible(&root);
    format!(
        "{}\n{}trust {root}? It is asked again if this list changes.\n  {} yes\n  {} no\n",
        styles.paint(Style::Bold, heading),
        lines.concat(),
        styles.paint(Style::Bold, "y"),
        styles.paint(Style::Bold, "n"),
    )
}

/// Before the run and its executor.
fn ask(question: &str) -> Result<bool, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("the terminal cannot be read: {error}"));
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    executor.block_on(async {
        let mut signals = Signals::listen()?;
        let terminal = Terminal::open().map_err(failed)?;
        let mut keys = terminal.keys().map_err(failed)?;
        keys.show(question, Stage::Answer);
        loop {
            let key = tokio::select! {
                key = keys.next() => key.map_err(failed)?,
                signal = signals.next() => return Err(match signal {
                    Received::Interrupt => Failure::interrupted(),
                    Received::Terminate => Failure::terminated(),
                }),
            };
            match key.to_ascii_lowercase() {
                b'y' => return Ok(true),
                b'n' | b'q' | b'd' => return Ok(false),
                _ => console::complain("\u{7}"),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use llm_do::model::name::{ModelChoices, ModelName};

    use super::*;

    fn items_of(manifest: &str, worker_keys: &str) -> Vec<String> {
        all_items_of(manifest, worker_keys).iter().map(Item::words).collect()
    }

    fn all_items_of(manifest: &str, worker_keys: &str) -> Vec<Item> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("project.json"), manifest).unwrap();
        let worker = format!("---\nname: main\n{worker_keys}\n---\nx\n");
        std::fs::write(directory.path().join("main.worker"), worker).unwrap();
        std::fs::write(directory.path().join("tools.py"), "").unwrap();
        std::fs::create_dir(directory.path().join(".venv")).unwrap();
        let models = ModelChoices { flag: Some(ModelName::parse("ollama:q").unwrap()), ..ModelChoices::default() };
        let project = Project::load(directory.path()).unwrap();
        let program = project.survey(&models, None).unwrap().program;
        items(&project, &program)
    }

    #[test]
    fn a_project_of_prompts_needs_no_trust() {
        let manifest = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "toolsets": {"notes": {"filesystem": {"root": "notes", "mode": "rw"}}}}"#;
        assert_eq!(items_of(manifest, "toolsets: [notes, shell_readonly]"), [""; 0]);
    }

    #[test]
    fn whatever_runs_sends_or_loosens_is_listed_once() {
        let manifest = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "python_files": ["tools.py"], "env": ["HOME_BASE"],
            "runtime": {"approval_mode": "approve_all"},
            "toolsets": {
                "etc": {"filesystem": {"root": "/etc", "mode": "ro"}},
                "sh": {"shell": {"rules": [{"pattern": "env", "approval": "ask", "i_understand": true}], "write": ["/var", "sub"], "network": true}},
                "hub": {"mcp": {"command": "npx", "args": ["-y", "hub\u001b"], "env": {"TOKEN": {"from_env": "HUB_TOKEN"}}}},
                "far": {"mcp": {"url": "https://example.com/mcp"}}}}"#;
        let expected = [
            ".venv: its own Python interpreter",
            "approval_mode: approve_all: every question is answered with yes",
            "env: HOME_BASE",
            "from_env: HUB_TOKEN is sent to `hub`",
            "i_understand: env in `sh`",
            "mcp: https://example.com/mcp is `far`",
            "mcp: npx -y hub\\u{1b} with the variables TOKEN is `hub`",
            "network: commands of `sh` reach it",
            "python_files: tools.py",
            "root: /etc is read by `etc`",
            "schema_ref: tools.py:Topic",
            "write: /var is written by commands of `sh`",
        ];
        assert_eq!(items_of(manifest, "schema_in_ref: tools.py:Topic\nschema_out_ref: tools.py:Topic"), expected);
    }

    #[test]
    fn trust_is_for_a_place_and_a_list() {
        let (home, project, other) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::beneath(Some(home.path().join("new")));
        let items = [Item::new("mcp", "npx hub")];
        assert!(!store.holds(project.path(), &items));
        store.keep(project.path(), &items).unwrap();
        assert!(store.holds(project.path(), &items));
        assert!(store.holds(&project.path().join("."), &items), "the same place by another name");
        assert!(!store.holds(other.path(), &items));
        assert!(!store.holds(project.path(), &[Item::new("mcp", "npx hub2")]));
        assert!(!Store::beneath(None).holds(project.path(), &items));
        let [kept, alike] = [b"\xfe", b"\xff"].map(|name| other.path().join(std::ffi::OsStr::from_bytes(name)));
        for root in [&kept, &alike] {
            std::fs::create_dir(root).unwrap();
        }
        store.keep(&kept, &items).unwrap();
        assert!(store.holds(&kept, &items) && !store.holds(&alike, &items), "names that are not UTF-8");
    }

    #[test]
    fn the_value_of_a_variable_counts_and_is_not_shown() {
        let items = |value: &str| {
            let manifest = format!(
                r#"{{"version": 1, "entry": {{"agent": "main"}}, "worker_files": ["main.worker"],
                "toolsets": {{"hub": {{"mcp": {{"command": "hub", "env": {{"LD_PRELOAD": "{value}"}}}}}}}}}}"#
            );
            all_items_of(&manifest, "")
        };
        let (one, two) = (items("one.so"), items("two.so"));
        assert_eq!(one[0].words(), "mcp: hub with the variables LD_PRELOAD is `hub`");
        assert_eq!(one[0].words(), two[0].words());
        assert_ne!(one, two);
    }
}
