//! The wheel: program, Python package and completions.

use std::path::Path;
use std::process::Command;

use parts::{is_wanted, printed, workplace};

use crate::{package, programs_of_the_system, static_target, tour, version, without_compiler};

#[test]
fn the_wheel_is_installed_without_a_network_and_runs_without_a_compiler() {
    if !is_wanted("packages") {
        return;
    }
    let place = workplace();
    let wheel = package("llm_do-", &format!("_{}.whl", std::env::consts::ARCH));
    let venv = place.path().join("venv");
    printed(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let python = venv.join("bin/python");
    let mut install = without_compiler(&python, "/nowhere", place.path());
    install.args(["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"]);
    printed(install.arg(&wheel));
    let path = programs_of_the_system(place.path(), &["true"]);
    let installed = |program: &str| without_compiler(venv.join("bin").join(program), &path, place.path());
    assert_eq!(printed(installed("llm-do").arg("--version")).trim(), format!("llm-do {}", version()));
    tour(installed("llm-do"), &place);
    // The package finds the program beside its interpreter.
    let used = "import llm_do, llm_do._serve as serve; print(llm_do.__version__, serve.find_binary())";
    let said = printed(installed("python").args(["-c", used]));
    assert_eq!(said.trim(), format!("{} {}", version(), venv.join("bin/llm-do").display()));
    for there in [
        "share/bash-completion/completions/llm-do",
        "share/zsh/site-functions/_llm-do",
        "share/fish/vendor_completions.d/llm-do.fish",
        "share/man/man1/llm-do.1",
        "share/llm-do/schemas/worker.json",
    ] {
        assert!(venv.join(there).exists(), "{there}");
    }
}

#[test]
fn the_name_of_the_wheel_is_for_both_libraries_of_c() {
    if !is_wanted("packages") {
        return;
    }
    let wheel = package("llm_do-", &format!("_{}.whl", std::env::consts::ARCH));
    let name = Path::new(wheel.file_name().unwrap()).to_str().unwrap();
    let arch = std::env::consts::ARCH;
    assert_eq!(name, format!("llm_do-{}-py3-none-manylinux_2_17_{arch}.musllinux_1_1_{arch}.whl", version()));
    assert!(static_target().starts_with(arch));
}
