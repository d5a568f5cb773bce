//! The package as pip installs it, and how it finds the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::package;
use crate::sandbox;
use crate::support::{Ended, Sandbox, wait_for_all};

/// An environment of its own, in which the package is installed from the repository without a network.
fn installed() -> (Sandbox, PathBuf) {
    let sandbox = sandbox("", "- say: hi");
    let environment = sandbox.path().join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let python = environment.join("bin/python");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"];
    run(Command::new(&python).args(pip).arg(package()).env("PYTHONPYCACHEPREFIX", sandbox.path().join("compiled")));
    (sandbox, python)
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn ran(sandbox: &Sandbox, python: &Path, path: &str, named: Option<&Path>) -> Ended {
    let source = "import llm_do\n\
                  try:\n    print(llm_do.run_worker('main.worker', None, 'x').output)\n\
                  except llm_do.BinaryNotFound as error:\n    print(error)\n";
    let mut command = Command::new(python);
    command
        .args(["-W", "error", "-c", source])
        .current_dir(sandbox.path())
        .env_clear()
        .env("HOME", sandbox.path())
        .env("PATH", path);
    if let Some(named) = named {
        command.env("LLM_DO_BIN", named);
    }
    wait_for_all(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn pip_installs_it_without_a_network_and_it_finds_the_program_in_order() {
    let (sandbox, python) = installed();
    let program = Path::new(env!("CARGO_BIN_EXE_llm-do"));
    let elsewhere = program.parent().unwrap().to_str().unwrap();
    let said = |path: &str, named: Option<&Path>| {
        let ended = ran(&sandbox, &python, path, named);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        ended.stdout
    };
    let missing = said("/nonexistent", None);
    assert!(missing.starts_with("the program llm-do is not there: neither in "), "{missing}");
    assert!(missing.contains("hint: install it with `cargo install") && missing.contains("LLM_DO_BIN"), "{missing}");
    assert_eq!(said(elsewhere, None), "hi\n", "on the path");
    // Beside the interpreter comes before the path, and what is named before both.
    let beside = sandbox.path().join("venv/bin/llm-do");
    fs::write(&beside, "#!/bin/sh\nexit 7\n").unwrap();
    fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ended = ran(&sandbox, &python, elsewhere, None);
    assert!(ended.stderr.contains("ServerDied: llm-do is gone: it ended with exit code 7"), "{}", ended.stderr);
    assert_eq!(said(elsewhere, Some(program)), "hi\n", "named");
    let wrong = said(elsewhere, Some(Path::new("/nonexistent/llm-do")));
    assert_eq!(wrong, "`LLM_DO_BIN` is `/nonexistent/llm-do`, which is no program\n");
}

/// Every file beneath a directory, but for what Python compiled.
fn files(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("__pycache__") => {}
                true => waiting.push(path),
                false => drop(
                    files.insert(path.strip_prefix(directory).unwrap().to_owned(), fs::read_to_string(&path).unwrap()),
                ),
            }
        }
    }
    files
}

#[test]
fn what_pip_installs_is_what_the_program_carries() {
    let (sandbox, python) = installed();
    let site = sandbox.path().join("venv/lib");
    let site = fs::read_dir(site).unwrap().next().unwrap().unwrap().path().join("site-packages/llm_do");
    sandbox.file(
        "project.json",
        r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "python_files": ["kit.py"]}"#,
    );
    // The package says itself what it is made of.
    let kit = "\
import llm_do, pathlib
for name, (file, *_) in llm_do.__loader__.files.items():
    path = pathlib.Path('carried', file.removeprefix('<llm-do>/'))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(llm_do.__loader__.get_source(name))
TOOLS = []
";
    sandbox.file("kit.py", kit);
    let ended = sandbox.run(&["run", ".", "x", "-q", "--trust", "--python", python.to_str().unwrap()]);
    assert_eq!(ended, Ended { code: Some(0), stdout: "hi\n".into(), stderr: String::new() });
    let (carried, mut installed) = (files(&sandbox.path().join("carried/llm_do")), files(&site));
    assert_eq!(installed.remove(Path::new("py.typed")).as_deref(), Some(""), "for who checks types, not for who runs");
    let differing = |(path, text): &(&PathBuf, &String)| installed.get(*path) != Some(*text);
    let differing: Vec<&PathBuf> = carried.iter().filter(differing).map(|(path, _)| path).collect();
    assert_eq!((carried.len(), differing), (installed.len(), Vec::new()));
}

#[test]
fn its_version_is_the_programs() {
    let settings = fs::read_to_string(package().join("pyproject.toml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(settings.contains(&format!("\nversion = \"{version}\"\n")), "{settings}");
    let module = fs::read_to_string(package().join("llm_do/__init__.py")).unwrap();
    assert!(module.contains(&format!("\n__version__ = \"{version}\"\n")));
}
