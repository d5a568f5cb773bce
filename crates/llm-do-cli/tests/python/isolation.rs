//! What others put where Python would find it is not run: neither beside the package, nor compiled, nor by a variable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::session::Run;
use crate::support::{Ended, Sandbox, wait};
use crate::{calls, project, run};

const MAIN: &str = "entry: true\ntools: [tool]\napproval: { tool: allow }";
/// Imports what an intruder would like to stand in for, and a sibling.
const KIT: &str = "\
import threading, json, helper
def tool() -> str:
    return f'honest {helper.x}'
TOOLS = [tool]
";

fn clone() -> Sandbox {
    let sandbox = project(&[("main", MAIN)], &[("kit.py", KIT)], &calls(&["{ tool: {} }"]));
    sandbox.file("helper.py", "x = 1\n");
    sandbox
}

/// Runs with a cache of its own.
fn start(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Ended {
    let words = [".", "hi", "-q", "--trust", "-m", "scripted:script.yaml"];
    let path = std::env::var("PATH").unwrap();
    let variables = [&[("PATH", path.as_str())], variables].concat();
    sandbox.run_in(&words, &variables)
}

fn answers(ended: &Ended) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "honest 1\n"), "{}", ended.stderr);
}

fn compiled(sandbox: &Sandbox) -> Vec<PathBuf> {
    let directory = sandbox.path().join(".cache/llm-do/compiled");
    fs::read_dir(directory).map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

/// Python that leaves a mark when it is imported.
fn mark(sandbox: &Sandbox) -> (PathBuf, String) {
    let marker = sandbox.path().join("marker");
    let text = format!("open({:?}, 'w')\n", marker.to_str().unwrap());
    (marker, text)
}

/// The code of a text, in a file that Python takes for that of another one: same time, same length.
fn plant_compiled(source: &Path, text: &str, target: &Path) {
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    let plant = "\
import importlib._bootstrap_external as e, marshal, os, sys
source, text, target = sys.argv[1:]
found = os.stat(source)
open(target, 'wb').write(e._code_to_timestamp_pyc(compile(text, source, 'exec'), int(found.st_mtime), found.st_size))
";
    let status = Command::new("python3").args(["-c", plant]).arg(source).arg(text).arg(target).status().unwrap();
    assert!(status.success());
}

fn cache_tag() -> String {
    let said =
        Command::new("python3").args(["-c", "import sys; print(sys.implementation.cache_tag)"]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_second_start_uses_what_the_first_one_compiled() {
    let sandbox = clone();
    answers(&start(&sandbox, &[]));
    let [first] = compiled(&sandbox).try_into().unwrap();
    let written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let before = written(&first);
    answers(&start(&sandbox, &[]));
    assert_eq!(compiled(&sandbox), std::slice::from_ref(&first));
    assert_eq!(written(&first), before, "it was not made again");
    // It says itself whether it came compiled.
    let kit = "import llm_do\ndef tool() -> str:\n    return str(bool(llm_do.__loader__.files['llm_do'][3]))\nTOOLS = [tool]\n";
    sandbox.file("kit.py", kit);
    assert_eq!(start(&sandbox, &[]).stdout, "True\n");
    // Without a key nothing is kept, and what was kept is not trusted.
    let file = sandbox.path().join(".local/state/llm-do/key");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(start(&sandbox, &[]).stdout, "False\n");
    assert_eq!(compiled(&sandbox).len(), 1);
}

#[test]
fn what_is_put_beside_or_into_the_cache_is_not_run() {
    let sandbox = clone();
    let (marker, text) = mark(&sandbox);
    answers(&start(&sandbox, &[]));
    let [kept] = compiled(&sandbox).try_into().unwrap();
    let cache = sandbox.path().join(".cache/llm-do");
    for planted in ["threading.py", "json.py", "llm_do/__init__.py", "llm_do/_host/main.py", "sitecustomize.py"] {
        for directory in [cache.clone(), cache.join("compiled"), sandbox.path().join("<llm-do>")] {
            let file = directory.join(planted);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, &text).unwrap();
        }
    }
    answers(&start(&sandbox, &[]));
    assert!(!marker.exists());
    // The kept file itself, with the same name, length and time: another code within the same frame.
    let honest = fs::read(&kept).unwrap();
    let times = fs::metadata(&kept).unwrap().modified().unwrap();
    let swap = |from: &[u8], to: &[u8]| {
        let mut changed = honest.clone();
        let at = changed.windows(from.len()).position(|window| window == from).unwrap();
        changed[at..at + to.len()].copy_from_slice(to);
        fs::write(&kept, &changed).unwrap();
        fs::File::options().write(true).open(&kept).unwrap().set_modified(times).unwrap();
    };
    let (words, others) = (b"because others can write to it", b"because others can break into ");
    swap(words, others);
    answers(&start(&sandbox, &[]));
    let made = fs::read(&kept).unwrap();
    let holds = |words: &[u8]| made.windows(words.len()).any(|window| window == words);
    assert!(holds(words) && !holds(others), "it was made anew");
    fs::write(&kept, "").unwrap();
    answers(&start(&sandbox, &[]));
    assert!(fs::metadata(&kept).unwrap().len() > 100_000, "it was made anew");
    // One that another key signed is a stranger's, whatever its name.
    let other = clone();
    answers(&start(&other, &[]));
    fs::copy(&compiled(&other)[0], &kept).unwrap();
    answers(&start(&sandbox, &[]));
    assert!(!marker.exists());
}

#[test]
fn compiled_files_of_a_project_are_neither_read_nor_written() {
    let sandbox = clone();
    let (marker, text) = mark(&sandbox);
    let source = sandbox.path().join("helper.py");
    let text = format!("{text}x = 1\n");
    plant_compiled(&source, &text, &sandbox.path().join(format!("__pycache__/helper.{}.pyc", cache_tag())));
    let old = sandbox.path().join(".cache/llm-do/compiled").join(source.strip_prefix("/").unwrap());
    plant_compiled(&source, &text, &old.with_extension(format!("{}.pyc", cache_tag())));
    // By whatever means the project imports it.
    let kit = "\
import importlib.util, sys
spec = importlib.util.spec_from_file_location('again', __file__.replace('kit.py', 'helper.py'))
again = importlib.util.module_from_spec(spec)
spec.loader.exec_module(again)
";
    sandbox.file("kit.py", &format!("{kit}{KIT}"));
    answers(&start(&sandbox, &[]));
    assert!(!marker.exists());
    let kept: Vec<_> = fs::read_dir(sandbox.path().join("__pycache__")).unwrap().collect();
    assert_eq!(kept.len(), 1, "nothing was written");
    // The same file is run by who takes it for what it says: the attack is a real one.
    let status = Command::new("python3").args(["-c", "import helper"]).current_dir(sandbox.path()).status().unwrap();
    assert!(status.success() && marker.exists());
}

#[test]
fn the_directory_and_variables_choose_no_modules_unless_the_manifest_names_them() {
    let sandbox = clone();
    let (marker, text) = mark(&sandbox);
    sandbox.file("elsewhere/json.py", &text).file("elsewhere/extra.py", "y = 2\n").file("elsewhere/startup.py", &text);
    let place = sandbox.path().join("elsewhere").to_str().unwrap().to_owned();
    let startup = sandbox.path().join("elsewhere/startup.py").to_str().unwrap().to_owned();
    let variables =
        [("PYTHONPATH", place.as_str()), ("PYTHONSTARTUP", startup.as_str()), ("PYTHONHOME", "/nonexistent")];
    answers(&start(&sandbox, &variables));
    assert!(!marker.exists());
    // Named, it counts, and its own modules come before those of Python.
    let manifest = fs::read_to_string(sandbox.path().join("project.json")).unwrap();
    sandbox.file("project.json", &manifest.replace("\"MINE\"", "\"PYTHONPATH\", \"PYTHONHOME\""));
    fs::remove_file(sandbox.path().join("elsewhere/json.py")).unwrap();
    sandbox.file("kit.py", &KIT.replace("json, helper", "json, helper, extra"));
    answers(&start(&sandbox, &variables));
}

#[test]
fn what_the_user_installed_counts_unless_others_can_write_there() {
    let sandbox = clone();
    let said =
        Command::new("python3").args(["-m", "site", "--user-site"]).env("HOME", sandbox.path()).output().unwrap();
    let site = PathBuf::from(String::from_utf8(said.stdout).unwrap().trim());
    fs::create_dir_all(&site).unwrap();
    fs::write(site.join("installed.py"), "z = 3\n").unwrap();
    sandbox.file("kit.py", &KIT.replace("json, helper", "json, helper, installed"));
    answers(&start(&sandbox, &[]));
    for writable in [site.as_path(), site.parent().unwrap()] {
        fs::set_permissions(writable, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let ended = start(&sandbox, &[]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("No module named 'installed'"), "{}", ended.stderr);
        fs::set_permissions(writable, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_cache_that_cannot_be_written_costs_time_and_nothing_else() {
    let sandbox = clone();
    let sandbox_path = sandbox.path().to_str().unwrap().to_owned();
    let words = [".", "hi", "-q", "--trust", "-m", "scripted:script.yaml"];
    let start = |variables: &[(&str, &str)]| {
        let path = std::env::var("PATH").unwrap();
        let variables = [&[("PATH", path.as_str()), ("HOME", &sandbox_path)], variables].concat();
        wait(sandbox.unprivileged(&words).envs(variables))
    };
    // Nobody else's directory: neither state nor cache can be made.
    answers(&start(&[("LLM_DO_TRUST", "1")]));
    assert!(!sandbox.path().join(".cache").exists());
    // A directory of theirs: kept, and used again.
    let own = sandbox.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let home = [("LLM_DO_HOME", own.to_str().unwrap())];
    answers(&start(&home));
    let kept: Vec<_> = fs::read_dir(own.join("cache/compiled")).unwrap().collect();
    assert_eq!(kept.len(), 1);
    fs::set_permissions(own.join("cache/compiled"), std::os::unix::fs::PermissionsExt::from_mode(0o500)).unwrap();
    let file = kept[0].as_ref().unwrap().path();
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    answers(&start(&home));
    assert_eq!(fs::read(&file).unwrap().len(), whole.len() - 1, "it could not be made anew");
    fs::set_permissions(own.join("cache/compiled"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    answers(&start(&home));
    assert_eq!(fs::read(&file).unwrap(), whole, "now it could");
}

#[test]
fn the_package_shows_its_own_lines_and_no_other_is_taken_for_it() {
    let kit = "\
import llm_do, llm_do.toolsets, traceback
def tool() -> str:
    assert llm_do.__file__ == '<llm-do>/llm_do/__init__.py', llm_do.__file__
    try:
        llm_do._host.wire.line({1})
    except AttributeError as error:
        return 'message.get' in ''.join(traceback.format_exception(error)) and 'shown'
TOOLS = [tool]
";
    let sandbox = project(&[("main", MAIN)], &[("kit.py", kit)], &calls(&["{ tool: {} }"]));
    sandbox.file("llm_do/__init__.py", "raise SystemExit\n");
    let run: Run<'_> = run(&sandbox, &["-q"]);
    assert_eq!(run.answer(), "shown\n");
}
