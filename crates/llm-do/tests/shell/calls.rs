//! Calls to the kernel that a fence refuses, each tried by its number, and those that go on working.

use std::path::PathBuf;
use std::process::Command;

use llm_do::tools::fence::thin::{Around, ThreadRestriction};
use llm_do::tools::fence::{Bounds, Network, Shelter, Write};
use serde_json::Value;

use crate::world::is_offered;

/// Says the error of each call; 0 for success.
const SCRIPT: &str = include_str!("calls.py");

/// Where the interpreter is, and what belongs to it.
fn interpreter() -> (PathBuf, Vec<PathBuf>) {
    let ask = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))";
    let output = Command::new("python3").args(["-c", ask]).output().unwrap();
    let paths: Vec<PathBuf> = serde_json::from_slice(&output.stdout).unwrap();
    let real = paths[0].canonicalize().unwrap();
    (real, paths[1..].to_vec())
}

fn errors(write: Write, network: Network, around: Around) -> Value {
    let (python, run) = interpreter();
    let bounds = Bounds { read: Vec::new(), run, write, network, shelter: Shelter::default() };
    let restricted = std::thread::spawn(move || {
        ThreadRestriction::new(&bounds, around).unwrap().restrict_thread().unwrap();
        Command::new(python).args(["-I", "-c", SCRIPT]).env_clear().current_dir("/").output().unwrap()
    });
    let output = restricted.join().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn calls_that_reach_around_a_fence_are_refused_and_others_are_not() {
    if !is_offered() {
        return;
    }
    let (eperm, enosys) = (1, 38);
    let group = rustix::process::getpid();
    for (network, around, write) in [
        (Network::None, Around::Thread { group }, Write::Nothing),
        (Network::Open, Around::Thread { group }, Write::Beneath(vec!["/nonexistent".into()])),
        (Network::Open, Around::Keeper, Write::Beneath(vec!["/nonexistent".into()])),
    ] {
        let reads_only = write == Write::Nothing;
        let said = errors(write, network, around);
        for (name, error) in said.as_object().unwrap() {
            let is_among_others = matches!(around, Around::Thread { .. });
            let expected = match name.as_str() {
                "clone3" | "newer" | "far" | "other way in" => enosys,
                "inet" | "inet6" | "route" if network == Network::Open => 0,
                "inotify_add_watch" | "setsid" if !is_among_others => continue,
                "setxattrat" | "removexattrat" if !reads_only => {
                    assert_ne!(*error, eperm, "{name}");
                    continue;
                }
                "thread" => 1,
                "fork" => 7,
                "spawn" => {
                    assert_eq!(error, "spawned");
                    continue;
                }
                _ => eperm,
            };
            assert_eq!(*error, expected, "{name} {network:?} {around:?}: {said}");
        }
    }
}
