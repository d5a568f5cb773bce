//! The other side: honest work passes without a question.

use serde_json::json;

use super::*;

const READ: &[&str] = &[
    "README.md",
    "./README.md",
    "src/main.rs",
    "src//main.rs",
    "src/lib/mod.rs",
    "docs/ünïcode 漢字.md",
    "docs/with space.md",
    "docs/it's \"quoted\".md",
    "docs/100%.md",
    "docs/~tilde.md",
    "docs/..dots.md",
    "docs/...",
    "docs/a..b",
    "-dash.txt",
    ".gitignore",
    ".github/workflows/ci.yml",
    ".editorconfig",
    ".env.example",
    ".env.sample",
    ".env.template",
    "env",
    "environment.yml",
    "id_rsa.pub",
    "keys.md",
    "keyboard.key.md",
    "monkey.txt",
    "pem/notes",
    "secrets.md",
    "credentials.md",
    "Makefile",
    "empty.txt",
    "main.worker",
    "project.json",
    "workers/a.yaml",
    "tool.py",
    ".git/HEAD",
    "linked.md",
    "linked_directory/main.rs",
    "deep/a/b/c/d/e/f/g.txt",
    "AGENTS.md",
];

const WRITTEN: &[&str] = &[
    "out.txt",
    "README.md",
    "new/directories/file.md",
    "docs/ünïcode 漢字.md",
    "docs/new file.md",
    "src/main.rs",
    "src/new.rs",
    "script.sh",
    "data.json",
    "package.json",
    "config.yaml",
    "docs/project.json.md",
    "notes/worker.md",
    "notes/agent.txt",
    "git/config",
    "env",
    "environment/local",
    ".gitignore",
    "new/.gitkeep",
    ".editorconfig",
    ".dockerignore",
    ".nojekyll",
    "conftest.py",
    "build.rs",
    "Makefile",
    "deep/a/b/c/d/e/f/g.txt",
    "-dash.txt",
    "linked.md",
    "linked_directory/new.rs",
    "keys.md",
    "venv.md",
    "public.pub",
    "tests/data/a.csv",
    "other.py",
];

const PATTERNS: &[(&str, &str, &str)] = &[
    (".", "*.md", "AGENTS.md README.md credentials.md keyboard.key.md keys.md linked.md secrets.md"),
    (".", "src/**/*.rs", "src/lib/mod.rs src/main.rs"),
    (".", "**/*.rs", "src/lib/mod.rs src/main.rs"),
    (".", "src/*.rs", "src/main.rs"),
    ("src", "*.rs", "src/main.rs"),
    ("src", "**/*.rs", "src/lib/mod.rs src/main.rs"),
    ("src/", "**/*", "src/lib/mod.rs src/main.rs"),
    ("./src/lib", "*", "src/lib/mod.rs"),
    (".", "{src,docs}/*.rs", "src/main.rs"),
    (".", "src/{main,lib/mod}.rs", "src/lib/mod.rs src/main.rs"),
    (".", "[RM]*", "Makefile README.md"),
    (".", "[!.A-z-]*", "[no files]"),
    (".", "?nv", "env"),
    (".", "src/main.rs", "src/main.rs"),
    (".", "./src/main.rs", "src/main.rs"),
    (".", "deep/**/g.txt", "deep/a/b/c/d/e/f/g.txt"),
    (".", "**/g.txt", "deep/a/b/c/d/e/f/g.txt"),
    (".", "nothing/**", "[no files]"),
    (".", ".github/**", ".github/workflows/ci.yml"),
    ("docs", "*漢*", "docs/ünïcode 漢字.md"),
    ("linked_directory", "*.rs", "linked_directory/main.rs"),
    (".", "linked_directory/*.rs", "linked_directory/main.rs"),
    (".", ".git/*", ".git/HEAD"),
];

fn project() -> (tempfile::TempDir, Filesystem) {
    let directory = temporary();
    let root = directory.path();
    let is_link = |path: &&str| path.starts_with("linked");
    for path in READ.iter().filter(|path| !is_link(path)) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = if path.ends_with("empty.txt") { "" } else { "honest\n" };
        std::fs::write(path, text).unwrap();
    }
    symlink("docs/100%.md", root.join("linked.md")).unwrap();
    symlink("src", root.join("linked_directory")).unwrap();
    let files = rooted(root, Access::ReadWrite);
    (directory, files)
}

/// What the call gives, if it runs without a question.
#[track_caller]
fn unasked(files: &Filesystem, tool: &str, arguments: &serde_json::Value) -> String {
    let call = passed(files, tool, &arguments.to_string(), Approvals::unattended()).unwrap();
    let call = call.unwrap_or_else(|| panic!("{tool} {arguments} asks"));
    done(files, &call).unwrap()
}

#[test]
fn honest_reads_need_no_question() {
    let (_directory, files) = project();
    for path in READ {
        let read = unasked(&files, "read_file", &json!({"path": path}));
        let expected = if *path == "empty.txt" { "\"total_chars\":0" } else { "\"content\":\"honest\\n\"" };
        assert!(read.contains(expected), "{path}: {read}");
        assert_eq!(verdict(&files, "read_file", &json!({"path": path})), Ok(Verdict::Allow), "{path}");
    }
}

#[test]
fn honest_writes_pass_under_a_rule_that_allows_them() {
    let (directory, files) = project();
    for path in WRITTEN {
        let written = unasked(&files, "write_file", &json!({"path": path, "content": "written\n"}));
        assert_eq!(written, format!("wrote 8 characters to {path}"));
        let edit = json!({"path": path, "old": "written", "new": "edited"});
        unasked(&files, "edit_file", &edit);
        assert_eq!(std::fs::read_to_string(directory.path().join(path)).unwrap(), "edited\n", "{path}");
        let judged = verdict(&files, "write_file", &json!({"path": path, "content": "x"}));
        assert!(matches!(judged, Ok(Verdict::Ask(_))), "without a rule it asks: {path}");
    }
}

#[test]
fn honest_patterns_list_what_they_say() {
    let (_directory, files) = project();
    for (path, pattern, expected) in PATTERNS {
        let listed = unasked(&files, "list_files", &json!({"path": path, "pattern": pattern}));
        let lines: Vec<&str> = listed.lines().filter(|line| !line.starts_with("[left out")).collect();
        assert_eq!(lines.join(" "), *expected, "{path} {pattern}");
    }
}
