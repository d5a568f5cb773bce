//! What is shipped compiles for systems that this one is not, without an error and without a warning.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::process::Command;

use parts::{is_wanted, repository, target};

#[track_caller]
fn compiles(part: &str, rust_target: &str) {
    if !is_wanted(part) {
        return;
    }
    let script = repository().join("packaging/check-target.sh");
    let output = Command::new(script).arg(rust_target).env("CARGO_TARGET_DIR", target()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn it_compiles_for_macos() {
    compiles("darwin", "aarch64-apple-darwin");
}

/// Both that are handed out: what one of them has, the other need not have.
#[test]
fn it_compiles_for_static_linux() {
    for rust_target in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"] {
        compiles("musl", rust_target);
    }
}
