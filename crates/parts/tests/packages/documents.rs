//! What documents say of packages: no command that fetches a name which is not ours, and the steps of `docs/ci.md`, typed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use parts::{is_wanted, printed, repository, workplace};

use crate::{dist, package, static_target};

/// Needs no part: it reads.
#[test]
fn no_command_fetches_a_name_that_is_not_ours() {
    let published = fs::read_to_string(repository().join("packaging/published")).unwrap();
    let is_ours = |registry: &str| {
        let ours = |line: &str| line.split(' ').next() == Some(registry);
        published.lines().filter(|line| !line.starts_with('#')).any(ours)
    };
    let mut checked = 0;
    for path in texts(&repository()) {
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            for (registry, name) in fetched(line) {
                checked += 1;
                let place = format!("{}:{}", path.display(), at + 1);
                assert!(is_ours(registry), "{place}: `{name}` is not ours on {registry} (packaging/published)\n{line}");
            }
        }
    }
    assert_eq!(checked, 0, "no name is ours yet; this counts once one is");
}

/// Everything that people read: documents, help, hints, examples.
fn texts(root: &Path) -> Vec<std::path::PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                waiting.extend(Some(path).filter(|_| !name.starts_with('.') && name != "target" && name != "dist"));
            } else if is_read(&path) && !path.starts_with(root.join("crates/parts")) {
                found.push(path);
            }
        }
    }
    found
}

fn is_read(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["md", "1", "worker", "py", "js", "yml", "rs"].contains(&ending))
}

/// The registries that the commands in a line would ask for a name of ours, and the name. Files and paths are no names.
fn fetched(line: &str) -> Vec<(&'static str, String)> {
    const WAYS: &[(&str, &str)] = &[
        ("pip install ", "pypi"),
        ("pipx install ", "pypi"),
        ("pipx run ", "pypi"),
        ("uvx ", "pypi"),
        ("uv tool install ", "pypi"),
        ("uv add ", "pypi"),
        ("npx ", "npm"),
        ("npm install ", "npm"),
        ("npm i ", "npm"),
        ("npm exec ", "npm"),
        ("cargo install ", "crates"),
        ("cargo binstall ", "crates"),
        ("cargo add ", "crates"),
        ("code --install-extension ", "vscode"),
    ];
    let mut found = Vec::new();
    for (way, registry) in WAYS {
        for (at, _) in line.match_indices(way) {
            let rest = line[at + way.len()..].split(['`', ';', '|', '&', ')', '"', '#']).next().unwrap_or_default();
            let has_path = rest.contains("--path ") || rest.contains("--offline ");
            let name = rest.split(' ').find(|word| is_ours_by_name(word)).filter(|_| !has_path);
            found.extend(name.map(|name| (*registry, name.to_owned())));
        }
    }
    found
}

fn is_ours_by_name(word: &str) -> bool {
    let bare = word.split(['=', '@', '[', '<', '>', ',', '.']).next().unwrap_or_default();
    !word.contains('/') && (bare.starts_with("llm-do") || bare.starts_with("llm_do"))
}

#[test]
fn commands_that_fetch_are_told_from_those_that_do_not() {
    let names =
        |line| fetched(line).into_iter().map(|(registry, name)| format!("{registry} {name}")).collect::<Vec<_>>();
    assert_eq!(names("run `pip install llm-do` first"), ["pypi llm-do"]);
    assert_eq!(names("$ pip install --user llm-do==0.2.0"), ["pypi llm-do==0.2.0"]);
    assert_eq!(names("npx llm-do --version"), ["npm llm-do"]);
    assert_eq!(names("cargo install --locked llm-do-cli"), ["crates llm-do-cli"]);
    for honest in [
        "pip install ./dist/llm_do-0.2.0-py3-none-any.whl",
        "npm install --offline ./dist/llm-do-0.2.0.tgz",
        "cargo install --path crates/llm-do-cli",
        "code --install-extension dist/llm-do-0.2.0.vsix",
        "pip install pydantic-ai-slim  # then llm-do runs it",
    ] {
        assert!(names(honest).is_empty(), "{honest}");
    }
}

/// The scripts of a workflow in a document, in their order, each with its name.
fn steps(document: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut name = String::new();
    let mut script: Option<(usize, String)> = None;
    for line in document.lines() {
        let indent = line.len() - line.trim_start().len();
        if let Some((outer, text)) = &mut script {
            if line.trim().is_empty() || indent > *outer {
                text.push_str(line.get(*outer + 2..).unwrap_or_default());
                text.push('\n');
                continue;
            }
            found.push((name.clone(), script.take().unwrap().1));
        }
        if let Some(named) = line.trim_start().strip_prefix("- name: ") {
            named.clone_into(&mut name);
        } else if line.trim_end().ends_with("run: |") {
            script = Some((indent, String::new()));
        }
    }
    found
}

#[test]
fn the_steps_of_the_workflows_do_what_the_document_says() {
    if !is_wanted("packages") {
        return;
    }
    let document = fs::read_to_string(repository().join("docs/ci.md")).unwrap();
    let place = workplace();
    let root = place.path();
    let archive = package("llm-do-", &format!("-{}.tar.gz", static_target()));
    fs::create_dir(root.join("tools")).unwrap();
    // The one archive that a runner needs, beside the sums of all.
    let name = archive.file_name().unwrap().to_str().unwrap().replace(std::env::consts::ARCH, "x86_64");
    fs::copy(&archive, root.join("tools").join(name)).unwrap();
    fs::copy(dist().join("SHA256SUMS"), root.join("tools/SHA256SUMS")).unwrap();
    // What is written to an issue is kept instead.
    let programs = root.join("programs");
    fs::create_dir(&programs).unwrap();
    fs::write(programs.join("gh"), "#!/bin/sh\ncat comment.md > said.md\n").unwrap();
    fs::set_permissions(programs.join("gh"), fs::Permissions::from_mode(0o755)).unwrap();
    // Runners have jq; here is as much of it as the steps ask for.
    fs::write(programs.join("jq"), JQ).unwrap();
    fs::set_permissions(programs.join("jq"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let (mut ran, mut comment, mut variables) = (Vec::new(), String::new(), Vec::<(String, String)>::new());
    for (name, script) in steps(&document) {
        if name == "Get llm-do" && ran.iter().filter(|ran| *ran == "Get llm-do").count() == 3 {
            // Another machine: neither the program nor the state of the first is there.
            fs::rename(root.join("home"), root.join("home-of-the-first")).unwrap();
            comment = fs::read_to_string(root.join("said.md")).unwrap();
            let asked = comment.split_once("Comment `").unwrap().1;
            comment = asked.split('`').next().unwrap().to_owned();
        }
        fs::create_dir_all(root.join("home")).unwrap();
        let mut step = Command::new("bash");
        step.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &script]).current_dir(root).env_clear();
        step.env("PATH", format!("{}:{path}", root.join("home/llm-do/bin").display())).env("HOME", root.join("home"));
        step.env("LLM_DO_STATE_KEY", "5".repeat(64)).env("LLM_DO_FENCE", "thin").env("GITHUB_RUN_ID", "42");
        step.env("MODEL", "scripted:examples/refund/script.yaml").env("ISSUE", "1").env("COMMENT", &comment);
        step.env("MESSAGE", "The lamp of order 1042 arrived broken");
        for file in ["GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_ENV"] {
            step.env(file, root.join(file));
        }
        step.envs(variables.iter().map(|(name, value)| (name, value)));
        printed(&mut step);
        let set = fs::read_to_string(root.join("GITHUB_ENV")).unwrap_or_default();
        variables = set
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        ran.push(name);
    }
    assert_eq!(ran.len(), 11, "{ran:?}");
    let results = fs::read_to_string(root.join("results.xml")).unwrap();
    assert!(results.contains("<testcase") && !results.contains("<failure"), "{results}");
    let said = fs::read_to_string(root.join("said.md")).unwrap();
    assert!(said.contains("We refund the 34.50 for order 1042."), "{said}");
    assert!(root.join("examples/refund/outbox/1042.json").exists());
}

/// `jq` for `select(.KEY == $NAME) | .MEMBER` with one `--arg NAME VALUE`.
const JQ: &str = r#"#!/usr/bin/env python3
import json, re, sys
_, _, _, name, value, program = sys.argv
key, named, member = re.fullmatch(r"select\(\.(\w+) == \$(\w+)\) \| \.(\w+)", program).groups()
assert named == name
for line in sys.stdin:
    found = json.loads(line)
    if found.get(key) == value:
        print(found[member])
"#;

#[test]
fn the_version_is_the_same_everywhere() {
    let version = crate::version();
    for (file, said) in [
        ("Cargo.toml", format!("llm-do = {{ path = \"crates/llm-do\", version = \"{version}\" }}")),
        ("crates/llm-do/python/pyproject.toml", format!("version = \"{version}\"")),
        ("crates/llm-do/python/llm_do/__init__.py", format!("__version__ = \"{version}\"")),
        ("docs/man/llm-do.1", format!("llm-do {version}")),
        ("README.md", format!("./dist/llm-do-{version}.tgz")),
        ("README.md", format!("./dist/llm_do-{version}-py3")),
        ("docs/editors.md", format!("dist/llm-do-{version}.vsix")),
    ] {
        assert!(fs::read_to_string(repository().join(file)).unwrap().contains(&said), "{file}: {said}");
    }
}
