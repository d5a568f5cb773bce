//! The npm packages: the one that people name, and the one that carries the program.

use std::fs;

use parts::{is_wanted, printed, workplace};

use crate::{package, programs_of_the_system, tour, version, without_compiler};

#[test]
fn both_are_installed_offline_without_scripts_and_run() {
    if !is_wanted("packages") {
        return;
    }
    let place = workplace();
    let path = programs_of_the_system(place.path(), &["node", "npm", "npx", "sh", "true", "env"]);
    let cpu = if std::env::consts::ARCH == "x86_64" { "x64" } else { "arm64" };
    let (main, binary) = (package("llm-do-0", ".tgz"), package(&format!("llm-do-linux-{cpu}-"), ".tgz"));
    let command = |program: &str| {
        let mut command = without_compiler(format!("{path}/{program}"), &path, place.path());
        command.env("npm_config_update_notifier", "false").env("npm_config_cache", place.path().join("cache"));
        command
    };
    fs::write(place.path().join("package.json"), "{}").unwrap();
    let mut install = command("npm");
    install.args(["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"]);
    printed(install.arg(&main).arg(&binary));
    let npx = || {
        let mut npx = command("npx");
        npx.args(["--offline", "--no-install", "llm-do"]);
        npx
    };
    assert_eq!(printed(npx().arg("--version")).trim(), format!("llm-do {}", version()));
    tour(npx(), &place);
    // It ends as the program ends.
    assert_eq!(npx().args(["check", "nowhere"]).output().unwrap().status.code(), Some(2));
    let manifest = fs::read_to_string(place.path().join("node_modules/llm-do/package.json")).unwrap();
    assert!(!manifest.contains("\"scripts\""), "nothing runs when it is installed: {manifest}");
}
