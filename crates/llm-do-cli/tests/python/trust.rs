//! Code of a project that nobody agreed to is not imported: not in a run, not by `check`, not when a run goes on.

use std::path::PathBuf;

use crate::project;
use crate::session::Run;
use crate::support::{Ended, Sandbox};

const MAIN: &str = "entry: true\ntools: [tool]\napproval: { tool: block }";

/// Python that leaves a mark wherever it is imported.
fn kit(value: usize) -> String {
    format!(
        "import pathlib\nimport helper\npathlib.Path(__file__).with_name('imported').touch()\n\
         def tool() -> int:\n    return {value}\nTOOLS = [tool]\n"
    )
}

fn clone() -> Sandbox {
    let sandbox = project(&[("main", MAIN)], &[("kit.py", &kit(1))], "- say: ran\n");
    sandbox.file("helper.py", "x = 1\n");
    sandbox
}

struct Project<'a>(&'a Sandbox);

impl Project<'_> {
    fn run(&self, words: &[&str]) -> Ended {
        let cache = crate::python::cache().to_str().unwrap().to_owned();
        Run::of(self.0, words).with("LLM_DO_TRUST", "").with("XDG_CACHE_HOME", cache).ended()
    }

    fn mark(&self) -> PathBuf {
        self.0.path().join("imported")
    }

    /// Runs, and was imported before.
    fn passes(&self, words: &[&str]) {
        let ended = self.run(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ran\n"), "{words:?}: {}", ended.stderr);
        std::fs::remove_file(self.mark()).unwrap();
    }

    /// Does not even begin to run.
    fn stops(&self, words: &[&str], code: i32) -> String {
        let ended = self.run(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{words:?}: {}", ended.stderr);
        assert!(!self.mark().exists(), "{words:?}: it was imported");
        ended.stderr
    }
}

const RUN: [&str; 4] = [".", "hi", "-m", "scripted:script.yaml"];

#[test]
fn nothing_is_imported_before_somebody_agreed_and_again_when_it_is_another_file() {
    let sandbox = clone();
    let project = Project(&sandbox);
    for flags in [&[][..], &["-p"], &["-q"], &["--json"], &["--approve-all"], &["--no-tools"], &["--dry-run"]] {
        let ended = project.run(&[&RUN[..], flags].concat());
        assert_eq!(ended.code, Some(4), "{flags:?}");
        assert!(ended.stderr.contains("  run        kit.py of this project  "), "{flags:?}: {}", ended.stderr);
        assert!(!project.mark().exists(), "{flags:?}");
    }
    project.run(&["check", ".", "-m", "scripted:script.yaml"]);
    assert!(!project.mark().exists(), "check imports what is trusted");
    project.passes(&[&RUN[..], &["--trust"]].concat());
    project.passes(&RUN);
    for (name, text) in [
        ("kit.py", kit(2)),
        ("helper.py", "x = 2\n".to_owned()),
        ("new.py", String::new()),
        ("main.worker", format!("---\nname: main\n{}\n---\nx\n", MAIN.replace("block", "allow"))),
    ] {
        sandbox.file(name, &text);
        let said = project.stops(&RUN, 4);
        assert!(said.starts_with(". has changed since it was trusted."), "{name}: {said}");
        assert!(said.contains("-- 1 of 1, digest "), "only what is new is listed: {said}");
        project.passes(&[&RUN[..], &["--trust"]].concat());
    }
    sandbox.file("main.worker", &format!("---\nname: main\n{MAIN}\n---\nother words\n"));
    project.passes(&RUN);
}

#[test]
fn a_run_that_goes_on_imports_nothing_that_changed_meanwhile() {
    let main = "entry: true\ntools: [tool]";
    let script = "- { agent: main, round: 1, call: { tool: {} } }\n- { say: ran }\n";
    let sandbox = project(&[("main", main)], &[("kit.py", &kit(1))], script);
    sandbox.file("helper.py", "x = 1\n");
    let project = Project(&sandbox);
    let begun = project.run(&[&RUN[..], &["-p", "--trust", "--journal", "run.journal"]].concat());
    assert_eq!(begun.code, Some(4), "{}", begun.stderr);
    assert!(begun.stderr.contains("waiting for approval"), "{}", begun.stderr);
    std::fs::remove_file(project.mark()).unwrap();
    // What the run itself was built on has changed: told before anything of it runs.
    sandbox.file("kit.py", &kit(2));
    let resume = ["resume", "run.journal", "-p", "--approve-all"];
    let said = project.stops(&resume, 2);
    assert!(said.contains("the project has changed since the run began: kit.py has changed"), "{said}");
    let said = project.stops(&[&resume[..], &["--force"]].concat(), 4);
    assert!(said.contains("has changed since it was trusted"), "{said}");
    sandbox.file("kit.py", &kit(1)).file("helper.py", "x = 2\n");
    let said = project.stops(&resume, 4);
    assert!(said.contains("run  helper.py of this project, if it is imported"), "{said}");
    sandbox.file("helper.py", "x = 1\n");
    project.passes(&resume);
}
