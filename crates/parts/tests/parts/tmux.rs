//! Ctrl-Z and `fg` in a real shell on a real terminal: the terminal is given back, then taken and drawn again.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{is_wanted, program};

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_mins(1);

/// A shell in a terminal of its own.
struct Shell {
    place: TempDir,
}

impl Shell {
    fn start(columns: u16, rows: u16) -> Self {
        let shell = Self { place: TempDir::new().unwrap() };
        let worker = "---\nname: main\ntoolsets: [filesystem_cwd]\n---\nWrite.\n";
        fs::create_dir(shell.place.path().join("desk")).unwrap();
        fs::write(shell.place.path().join("desk/main.worker"), worker).unwrap();
        let size = [columns.to_string(), rows.to_string()];
        shell.tmux(&["new-session", "-d", "-x", &size[0], "-y", &size[1], "env PS1='$ ' bash --norc --noprofile -i"]);
        shell.expect("a prompt", |screen| screen.trim_end() == "$");
        shell
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let place = self.place.path();
        let mut command = Command::new("tmux");
        command.arg("-S").arg(place.join("tmux")).args(["-f", "/dev/null"]).args(arguments).current_dir(place);
        command.env_clear().env("HOME", place).env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        command.env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-200"])
    }

    /// Waits until the screen is as it is expected.
    #[track_caller]
    fn expect(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return;
            }
            assert!(begun.elapsed() < DEADLINE, "waited in vain for {what}; the screen:\n{screen}");
            thread::yield_now();
        }
    }

    /// Waits until the last line of the screen is this.
    #[track_caller]
    fn expect_last(&self, last: &str) {
        self.expect(last, |screen| screen.trim_end().lines().last().is_some_and(|line| line.trim_end() == last));
    }

    #[track_caller]
    fn expect_count(&self, text: &str, count: usize) {
        self.expect(&format!("{text:?}, {count} times"), |screen| screen.matches(text).count() >= count);
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn command(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    /// Ctrl-Z, until the shell has its prompt; it echoes what is typed.
    #[track_caller]
    fn stop(&self, number: usize) {
        self.press(&["C-z"]);
        self.expect_count("Stopped", number);
        self.expect_last("$");
        self.command(&format!("echo seen-$((40+{number}))"));
        self.expect_count(&format!("seen-{}", 40 + number), 1);
        self.expect_count(&format!("echo seen-$((40+{number}))"), 1);
        self.expect_last("$");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let mut end = Command::new("tmux");
        end.arg("-S").arg(self.place.path().join("tmux")).arg("kill-server").stderr(Stdio::null());
        let _ = end.status();
    }
}

const WRITES: &str = "\
- { round: 1, call: { write_file: { path: out.txt, content: \"one\\ntwo\\n\" } } }
- say: \"{{ result }}\"
";

fn run(script: &str, shell: &Shell, flags: &str) -> String {
    fs::write(shell.place.path().join("script.yaml"), script).unwrap();
    format!("{} run desk hi -m scripted:script.yaml -q {flags}", program().display())
}

#[test]
fn a_question_is_drawn_again_from_its_first_line_and_keys_count_without_enter() {
    if !is_wanted("a question that was stopped (tmux)") {
        return;
    }
    let shell = Shell::start(80, 24);
    shell.command(&run(WRITES, &shell, ""));
    for number in 1..=3 {
        shell.expect_count("approval 1 · main › write_file", number);
        shell.expect_last("Allow?");
        shell.stop(number);
        shell.command("fg");
    }
    shell.expect_count("   1 + one\n   2 + two\ny yes", 4);
    shell.expect_last("Allow?");
    shell.press(&["n"]);
    shell.expect_last("why? (the model reads it)");
    shell.press(&["no", "Left", "Left"]);
    shell.tmux(&["send-keys", "-l", "please "]);
    shell.expect_last("why? (the model reads it) please no");
    shell.stop(4);
    shell.command("fg");
    shell.expect_count("approval 1 · main › write_file", 5);
    shell.expect_last("why? (the model reads it) please no");
    shell.press(&["Enter"]);
    shell.expect_count("refused: please no", 1);
    shell.expect_last("$");
    shell.command("stty -a | grep -o ' echo ' | tr -d ' '");
    shell.expect("the terminal as it was", |screen| screen.contains("\necho\n"));
}

#[test]
fn a_page_of_a_long_question_is_drawn_again_from_the_first() {
    if !is_wanted("a long question that was stopped (tmux)") {
        return;
    }
    let shell = Shell::start(80, 24);
    let lines = (1..=40).map(|number| format!("line {number}\\n")).collect::<Vec<_>>().concat();
    shell.command(&run(&WRITES.replace("one\\ntwo\\n", &lines), &shell, ""));
    let mark = |lines: &str| format!("lines {lines} of 43  space more  b back  G all  n no  q stop");
    shell.expect_last(&mark("1–19"));
    shell.press(&["Space"]);
    shell.expect_last(&mark("20–38"));
    shell.stop(1);
    shell.command("fg");
    shell.expect_last(&mark("1–19"));
    shell.press(&["G"]);
    shell.expect_last("Allow?");
    shell.press(&["y"]);
    shell.expect_count("characters to out.txt", 1);
}

#[test]
fn time_in_which_it_was_stopped_does_not_count() {
    if !is_wanted("a timeout that was stopped (tmux)") {
        return;
    }
    let shell = Shell::start(80, 24);
    shell.command(&run(WRITES, &shell, "--timeout 6"));
    shell.expect_last("Allow?");
    shell.stop(1);
    shell.command("sleep 7; echo over");
    shell.expect("the end of the time", |screen| screen.contains("\nover\n"));
    shell.command("fg");
    shell.expect_count("approval 1 · ", 2);
    shell.expect_last("Allow?");
    shell.press(&["y"]);
    shell.expect_count("wrote 8 characters to out.txt", 1);
}
