//! The package under every Python that it is for, and under mypy.

use std::fs;
use std::path::{Path, PathBuf};

use parts::{command, is_wanted, parts, printed, repository, workplace};

/// The snippets, and what each says that it prints.
fn snippets() -> Vec<(String, String)> {
    let directory = repository().join("examples/seeds");
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text = |path: &PathBuf| fs::read_to_string(path).unwrap();
    let python = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "py"));
    let snippets = python.filter(|path| text(path).contains("# prints:\n"));
    snippets.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), text(&path))).collect()
}

/// Whether a snippet, or the project that it runs, imports `PydanticAI` or Pydantic.
fn needs_pydantic(name: &str, source: &str) -> bool {
    source.contains("pydantic_ai") || ["architecture.py", "sandboxed.py"].contains(&name)
}

fn runs_the_snippets(python: &Path, with_pydantic_ai: bool) {
    let mut ran = 0;
    for (name, source) in snippets() {
        if needs_pydantic(&name, &source) && !with_pydantic_ai {
            continue;
        }
        let place = workplace();
        let said = printed(command(python, place.path()).args(["-W", "error", &format!("examples/seeds/{name}")]));
        let expected = source.split("# prints:\n").nth(1).unwrap();
        let expected: Vec<&str> = expected.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{name} with {}", python.display());
        ran += 1;
    }
    assert!(ran >= 5, "{ran}");
    let place = workplace();
    let everything = "import llm_do, llm_do.runtime\n\
                      print(all(hasattr(llm_do, name) for name in llm_do.__all__))\n";
    assert_eq!(printed(command(python, place.path()).args(["-W", "error", "-c", everything])), "True\n");
}

#[expect(clippy::print_stdout, reason = "whoever runs the tests should know what was not tested")]
fn every_python(kind: &str, with_pydantic_ai: bool) {
    if !is_wanted("python") {
        return;
    }
    let mut found = 0;
    for minor in 10..=13 {
        let python = parts().join(format!("python-3.{minor}-{kind}/bin/python"));
        if python.exists() {
            runs_the_snippets(&python, with_pydantic_ai);
            found += 1;
        } else {
            println!("missing: Python 3.{minor} {kind} (`.ci/install` says why)");
        }
    }
    assert!(found > 0, "`.ci/install` found no Python at all");
}

#[test]
fn the_snippets_run_on_every_python_with_pydantic_ai() {
    every_python("with-pydantic-ai", true);
}

#[test]
fn the_snippets_that_need_no_library_run_on_every_python_without_one() {
    every_python("plain", false);
}

#[test]
fn the_package_is_typed() {
    if !is_wanted("mypy") {
        return;
    }
    let python = parts().join("mypy/bin/python");
    if !python.exists() {
        println!("missing: mypy (`.ci/install` says why)");
        return;
    }
    let place = workplace();
    let package = repository().join("crates/llm-do/python");
    let mut checking = command(&python, place.path());
    checking.current_dir(&package);
    checking.args(["-m", "mypy", "--strict", "--no-incremental", "--python-version", "3.10"]);
    checking.args(["--cache-dir", place.path().to_str().unwrap(), "-p", "llm_do"]);
    let said = printed(&mut checking);
    assert!(said.starts_with("Success"), "{said}");
    // A program that uses it wrongly is told so: its types are there for others.
    let wrong = "from llm_do import run_worker\nrun_worker('.', worker=1)\n";
    fs::write(place.path().join("wrong.py"), wrong).unwrap();
    let told = command(&python, place.path()).args(["-m", "mypy", "--no-incremental", "wrong.py"]).output().unwrap();
    assert!(String::from_utf8_lossy(&told.stdout).contains("incompatible type"), "{told:?}");
}
