//! Tests in which real processes do the same at once: this test program starts itself again.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const VARIABLE: &str = "LLM_DO_TEST_RACE";
const READY: &str = "ready for the race";

/// Runs one test, named by its whole path, in so many processes, which all begin at once. Each test that is meant to be run
/// like this begins with [`directory`].
pub(super) fn run(test: &str, directory: &Path, count: usize) {
    let start = File::create(directory.join("start")).unwrap();
    start.lock().unwrap();
    let mut children: Vec<Child> = (0..count).map(|_| spawn(program(), test, directory)).collect();
    for child in &mut children {
        wait_for_ready(child);
    }
    start.unlock().unwrap();
    for mut child in children {
        assert!(child.wait().unwrap().success(), "{test}");
    }
}

/// The same in one process that cannot write files longer than this, counted in 512 bytes, as if the disk were full.
pub(super) fn run_with_small_files(test: &str, directory: &Path, blocks: usize) {
    File::create(directory.join("start")).unwrap();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
    shell.arg(std::env::current_exe().unwrap());
    let mut child = spawn(shell, test, directory);
    wait_for_ready(&mut child);
    assert!(child.wait().unwrap().success(), "{test}");
}

fn program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

fn spawn(mut command: Command, test: &str, directory: &Path) -> Child {
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(VARIABLE, directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// What it says later fits into the pipe.
fn wait_for_ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(READY)), "the test began");
}

/// In a process that was started for a race: waits for the start, and gives the directory of the race. The test does nothing
/// if there is none.
pub(super) fn directory() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os(VARIABLE)?);
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{READY}").unwrap();
    out.flush().unwrap();
    drop(out);
    File::open(directory.join("start")).unwrap().lock_shared().unwrap();
    Some(directory)
}

/// Leaves a line for the process that started the race.
pub(super) fn tell(directory: &Path, line: &str) {
    let mut file = File::options().append(true).create(true).open(directory.join("told-by-all")).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// The lines that were left, in order.
pub(super) fn all_told(directory: &Path) -> Vec<String> {
    let mut lines: Vec<String> =
        std::fs::read_to_string(directory.join("told-by-all")).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
