//! Another process changes the tree between judging and doing, and all the time.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::*;

const SECRET: &str = "canary of the secret";
const OUTSIDE: &str = "canary of the outside";
const ROUNDS: usize = 400;

/// Exchanges two names in one step, again and again, while the work is done.
fn while_swapping<T>(one: &Path, other: &Path, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let (here, exchange) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                rustix::fs::renameat_with(here, one, here, other, exchange).unwrap();
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn swap(one: &Path, other: &Path) {
    let (here, exchange) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, one, here, other, exchange).unwrap();
}

/// A root with a secret and links, and a file outside.
fn tree() -> (tempfile::TempDir, Filesystem) {
    let temporary = temporary();
    let root = temporary.path().join("root");
    for directory in ["root/plain", "root/guarded", "outside"] {
        std::fs::create_dir_all(temporary.path().join(directory)).unwrap();
    }
    std::fs::write(root.join(".env"), SECRET).unwrap();
    std::fs::write(root.join("main.worker"), SECRET).unwrap();
    std::fs::write(root.join("notes.txt"), "notes").unwrap();
    std::fs::write(root.join("plain/file"), "plain").unwrap();
    std::fs::write(temporary.path().join("outside/file"), OUTSIDE).unwrap();
    symlink("notes.txt", root.join("link")).unwrap();
    symlink(".env", root.join("bad_link")).unwrap();
    symlink("../outside", root.join("door")).unwrap();
    let files = rooted(&root, Access::ReadWrite);
    (temporary, files)
}

#[test]
fn a_secret_put_in_the_place_of_what_was_judged_is_asked_for() {
    let (temporary, files) = tree();
    let root = temporary.path().join("root");
    let arguments = json!({"path": "link"}).to_string();
    let call = passed(&files, "read_file", &arguments, Approvals::unattended()).unwrap().unwrap();
    swap(&root.join("link"), &root.join("bad_link"));
    assert_eq!(done(&files, &call), Err(ToolError::Changed));
    // The consent was for one secret, and is none for another.
    let call = permitted(&files, "read_file", &arguments).unwrap();
    assert!(done(&files, &call).unwrap().contains(SECRET));
    std::fs::write(root.join("server.key"), "another canary").unwrap();
    std::fs::remove_file(root.join("link")).unwrap();
    symlink("server.key", root.join("link")).unwrap();
    assert_eq!(done(&files, &call), Err(ToolError::Changed));
}

#[test]
fn a_protected_file_put_in_the_place_of_what_was_judged_is_asked_for() {
    let (temporary, files) = tree();
    let root = temporary.path().join("root");
    for (path, replacement) in [("link", "main.worker"), ("notes.txt", "main.worker")] {
        let arguments = json!({"path": path, "content": "planted"}).to_string();
        let call = passed(&files, "write_file", &arguments, Approvals::unattended()).unwrap().unwrap();
        std::fs::remove_file(root.join(path)).unwrap();
        symlink(replacement, root.join(path)).unwrap();
        assert_eq!(done(&files, &call), Err(ToolError::Changed), "{path}");
    }
    assert_eq!(std::fs::read_to_string(root.join("main.worker")).unwrap(), SECRET);
}

#[test]
fn reads_during_swaps_never_give_a_secret_or_the_outside() {
    let (temporary, files) = tree();
    let root = temporary.path().join("root");
    for (one, other, path) in [("link", "bad_link", "link"), ("plain", "door", "plain/file")] {
        let mut read = 0;
        while_swapping(&root.join(one), &root.join(other), || {
            for _ in 0..ROUNDS {
                let arguments = json!({"path": path}).to_string();
                let Ok(Some(call)) = passed(&files, "read_file", &arguments, Approvals::unattended()) else { continue };
                if let Ok(text) = done(&files, &call) {
                    assert!(!text.contains("canary"), "{text}");
                    read += 1;
                }
            }
        });
        assert!(read > 0, "{path}: the honest file is read now and then");
    }
}

#[test]
fn writes_during_swaps_never_reach_the_outside_or_a_protected_file() {
    let (temporary, files) = tree();
    let root = temporary.path().join("root");
    std::fs::remove_file(root.join("bad_link")).unwrap();
    symlink("main.worker", root.join("bad_link")).unwrap();
    let mut written = 0;
    for (one, other, path) in
        [("plain", "door", "plain/file"), ("link", "bad_link", "link"), ("plain", "door", "plain/new")]
    {
        while_swapping(&root.join(one), &root.join(other), || {
            for round in 0..ROUNDS {
                let arguments = json!({"path": path, "content": format!("written {round}")}).to_string();
                let Ok(Some(call)) = passed(&files, "write_file", &arguments, Approvals::unattended()) else {
                    continue;
                };
                written += usize::from(done(&files, &call).is_ok());
            }
        });
    }
    assert!(written > 0, "honest writes happen now and then");
    let outside: Vec<_> =
        std::fs::read_dir(temporary.path().join("outside")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(outside, ["file"]);
    assert_eq!(std::fs::read_to_string(temporary.path().join("outside/file")).unwrap(), OUTSIDE);
    assert_eq!(std::fs::read_to_string(root.join("main.worker")).unwrap(), SECRET);
}

#[test]
fn of_two_writers_one_is_last_and_a_reader_never_sees_a_half() {
    let (temporary, files) = tree();
    let contents = ["a".repeat(300_000), "b".repeat(200_000)];
    let path = temporary.path().join("root/shared");
    std::fs::write(&path, &contents[0]).unwrap();
    std::thread::scope(|scope| {
        for content in &contents {
            let files = &files;
            scope.spawn(move || {
                for _ in 0..20 {
                    let arguments = json!({"path": "shared", "content": content}).to_string();
                    let call = passed(files, "write_file", &arguments, Approvals::unattended()).unwrap().unwrap();
                    done(files, &call).unwrap();
                }
            });
        }
        for _ in 0..200 {
            let seen = std::fs::read_to_string(&path).unwrap();
            assert!(contents.contains(&seen), "{} characters", seen.len());
        }
    });
    let left: Vec<_> = std::fs::read_dir(temporary.path().join("root")).unwrap().collect();
    assert_eq!(left.len(), 9, "no temporary file stays: {left:?}");
}
