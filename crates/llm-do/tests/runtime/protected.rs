//! What asks to be written whatever a rule allows.

use std::os::unix::fs::symlink;
use std::path::Path;

use llm_do::message::RawJson;
use llm_do::model::name::ModelChoices;
use llm_do::project::Project;
use llm_do::tools::approval::{Rule, Verdict};
use llm_do::tools::filesystem::{FileBases, Filesystem};
use llm_do::tools::protected::{Covers, ProtectedFiles};
use llm_do::tools::source::{Access, Base, FileRoot, FilesystemConfig, Roots};
use serde_json::json;

/// What becomes of a write under a rule that allows it.
fn written(files: &Filesystem, path: &str) -> Verdict {
    let arguments = RawJson::of(&json!({"path": path, "content": "planted"}));
    files.verdict("write_file", &arguments).unwrap().under(Some(Rule::Allow))
}

#[track_caller]
fn reason_to_ask(files: &Filesystem, path: &str) -> String {
    match written(files, path) {
        Verdict::AlwaysAsk(question) => question.reason,
        other => panic!("{path}: {other:?}"),
    }
}

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A project on disk, linked; its root is writable.
fn project() -> (tempfile::TempDir, Filesystem) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let manifest = json!({
        "version": 1, "entry": {"agent": "main"}, "worker_files": ["agents/main.txt.yaml"],
        "python_files": ["code/tools.py"], "generated_agents_dir": "made",
        "toolsets": {
            "server": {"mcp": {"command": "./serve.sh", "args": ["scripts/server.py", "--data", "data"]}},
            "commands": {"shell": {"rules": [{"pattern": "bash build.sh", "approval": "allow", "i_understand": true}]}},
        },
    });
    file(root, "manifest.json", &manifest.to_string());
    file(
        root,
        "agents/main.txt.yaml",
        "name: main\ninstructions: x\nmodel: scripted:script.txt\nschema_out_ref: shape.json\n",
    );
    file(root, "agents/script.txt", "- say: x\n");
    file(root, "agents/shape.json", r#"{"type": "object"}"#);
    for path in ["code/tools.py", "serve.sh", "build.sh", "scripts/server.py", "chosen.txt"] {
        file(root, path, "");
    }
    let chosen = root.join("chosen.txt").display().to_string();
    let models = ModelChoices {
        scripts: [(chosen.clone(), "- say: x\n".to_owned())].into(),
        ..ModelChoices::of(&format!("scripted:{chosen}")).unwrap()
    };
    let linked = Project::load(root.join("manifest.json")).unwrap().survey(&models, None);
    let mut protected = linked.map_err(|report| format!("{report:?}")).unwrap().program.protected;
    protected.add(root.join("answer.txt"), Covers::Tree, "is written by this run");
    let root = FileRoot {
        base: Base::Project(".".into()),
        access: Access::ReadWrite,
        suffixes: Vec::new(),
        max_file_bytes: None,
    };
    let config = FilesystemConfig { roots: Roots::One(root) };
    let files = Filesystem::open(&config, &FileBases::of(directory.path()), &protected).unwrap();
    (directory, files)
}

const PROTECTED: &[&str] = &[
    "manifest.json",
    "agents/main.txt.yaml",
    "agents/script.txt",
    "agents/shape.json",
    "chosen.txt",
    "code/tools.py",
    "code/beside.py",
    "code/package/__init__.py",
    "code/native.so",
    "serve.sh",
    "build.sh",
    "scripts/server.py",
    "scripts/imported.py",
    "made/new.yaml",
    "made/anything",
    "workers/new.yaml",
    "workers/new/worker.yaml",
    "new.worker",
    "deep/down/new.agent",
    "project.json",
    ".git/hooks/pre-commit",
    ".git/config",
    "sub/.git/config",
    ".env",
    ".env.local",
    ".envrc",
    ".llm-do/trust",
    ".venv/bin/python",
    ".venv/lib/x.pth",
    "AGENTS.md",
    ".vscode/tasks.json",
    ".bashrc",
    "answer.txt",
    ".ssh/authorized_keys",
];

const PLAIN: &[&str] =
    &["notes.md", "code/notes.md", "data/x", "agents/notes.md", "workers/notes.md", "other.py", "answer.md"];

#[test]
fn what_linking_reads_or_runs_always_asks_and_nothing_is_made_meanwhile() {
    let (directory, files) = project();
    let count = walk_count(directory.path());
    for path in PROTECTED {
        for path in [(*path).to_owned(), format!("./{path}"), path.to_uppercase()] {
            // Another spelling of a name that exists is another file here; where it is the same one, its identity tells.
            let first = Path::new(&path).iter().next().unwrap().to_str().unwrap().to_owned();
            if first != first.to_lowercase() && directory.path().join(first.to_lowercase()).exists() {
                continue;
            }
            reason_to_ask(&files, &path);
        }
    }
    for path in PLAIN {
        assert_eq!(written(&files, path), Verdict::Allow, "{path}");
    }
    assert_eq!(walk_count(directory.path()), count, "judging makes nothing");
}

fn walk_count(root: &Path) -> usize {
    let inside = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        1 + if path.is_dir() && !path.is_symlink() { walk_count(&path) } else { 0 }
    };
    std::fs::read_dir(root).unwrap().map(inside).sum()
}

#[test]
fn identity_counts_not_the_name() {
    let (directory, files) = project();
    let root = directory.path();
    for path in ["manifest.json", "agents/main.txt.yaml", "agents/script.txt", "code/tools.py", "chosen.txt"] {
        std::fs::hard_link(root.join(path), root.join("hard.txt")).unwrap();
        symlink(root.join(path).strip_prefix(root).unwrap(), root.join("soft.txt")).unwrap();
        symlink("soft.txt", root.join("softer.txt")).unwrap();
        for name in ["hard.txt", "soft.txt", "softer.txt"] {
            let real = if name == "hard.txt" { name } else { path };
            let real = format!("that is `{}`, which ", root.canonicalize().unwrap().join(real).display());
            let reason = reason_to_ask(&files, name);
            assert!(reason.contains(&real), "{reason}");
        }
        for name in ["hard.txt", "soft.txt", "softer.txt"] {
            std::fs::remove_file(root.join(name)).unwrap();
        }
    }
    symlink("code", root.join("alias")).unwrap();
    symlink(".", root.join("here")).unwrap();
    for path in ["alias/new.py", "here/alias/new.py", "here/made/x", "here/.git/config"] {
        reason_to_ask(&files, path);
    }
}

#[test]
fn a_file_that_was_replaced_is_still_the_protected_one() {
    let (directory, files) = project();
    file(directory.path(), "new", "- say: y\n");
    std::fs::rename(directory.path().join("new"), directory.path().join("agents/script.txt")).unwrap();
    std::fs::hard_link(directory.path().join("agents/script.txt"), directory.path().join("hard.txt")).unwrap();
    for path in ["agents/script.txt", "hard.txt"] {
        reason_to_ask(&files, path);
    }
}

#[test]
fn a_root_inside_what_is_protected_is_protected() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join(".git/hooks")).unwrap();
    std::fs::create_dir_all(directory.path().join("made/deep")).unwrap();
    let mut protected = ProtectedFiles::default();
    protected.add(directory.path().join("made"), Covers::Tree, "is made");
    for base in [".git/hooks", "made/deep", "made"] {
        let base = Base::Absolute(directory.path().join(base));
        let root = FileRoot { base, access: Access::ReadWrite, suffixes: Vec::new(), max_file_bytes: None };
        let config = FilesystemConfig { roots: Roots::One(root) };
        reason_to_ask(&Filesystem::open(&config, &FileBases::of(directory.path()), &protected).unwrap(), "x");
    }
}
