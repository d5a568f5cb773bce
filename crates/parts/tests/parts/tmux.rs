//! Ctrl-Z and `fg` in a real shell on a real terminal: the terminal is given back, then taken and drawn again.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use fake_llm::{At, FakeLlm, FakeReply, FakeScript, InjectedFault, On, Role, StallGate};
use parts::{is_wanted, program};

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
            // Each look is a process of its own, and the program that is looked at needs the processor too.
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
    if !is_wanted("tmux") {
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
    if !is_wanted("tmux") {
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
    if !is_wanted("tmux") {
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

#[test]
fn the_prompt_of_a_chat_is_given_back_and_taken_again_with_its_line() {
    if !is_wanted("tmux") {
        return;
    }
    let shell = Shell::start(80, 24);
    fs::write(shell.place.path().join("script.yaml"), "- say: \"{{ round }}: {{ heard }}\"\n").unwrap();
    shell.command(&format!("{} chat desk -m scripted:script.yaml", program().display()));
    shell.expect_last(">");
    for number in 1..=3 {
        shell.press(&["a", "d", "Left"]);
        shell.expect_last("> ad");
        shell.stop(number);
        shell.command("fg");
        shell.expect_last("> ad");
        shell.press(&["b", "Enter"]);
        shell.expect_count(&format!("{number}: abd"), 1);
        shell.expect_last(">");
    }
    shell.press(&["C-d"]);
    shell.expect_last("$");
    shell.command("echo as-$((40+2))");
    shell.expect_count("echo as-$((40+2))", 1);
    shell.expect_count("as-42", 1);
}

/// How often it is stopped at each place.
fn times() -> usize {
    std::env::var("LLM_DO_STOPS").ok().and_then(|times| times.parse().ok()).unwrap_or(3)
}

impl Shell {
    /// Ctrl-Z until the shell has its prompt, which echoes what is typed, and `fg`; on a screen without anything else.
    #[track_caller]
    fn stop_and_go_on(&self, number: usize) {
        self.press(&["C-z"]);
        self.expect_last("$");
        self.command("clear");
        self.expect("an empty screen", |screen| screen.trim_end().ends_with('$') && !screen.contains("Stopped"));
        self.command(&format!("echo seen-$(({number}+1000))"));
        self.expect_count(&format!("seen-{}", number + 1000), 1);
        self.expect_count(&format!("echo seen-$(({number}+1000))"), 1);
        self.expect_last("$");
        self.tmux(&["clear-history"]);
        self.command("clear; fg");
    }

    /// What stops and goes on at this place, whose last line begins like this.
    #[track_caller]
    #[expect(clippy::print_stderr, reason = "the long form counts them")]
    fn lasts(&self, place: &str, last: &str) {
        let is_there =
            |screen: &str| screen.trim_end().lines().last().is_some_and(|line| line.trim_end().starts_with(last));
        self.expect(last, is_there);
        for number in 1..=times() {
            self.stop_and_go_on(number);
            self.expect(&format!("{last:?}, {place}, after {number} stops"), is_there);
        }
        eprintln!("stopped {} times {place}", times());
    }
}

/// Answers with its number, and stalls in the middle of the answers to these requests.
fn stalling(gates: &[StallGate], before: &StallGate) -> FakeLlm {
    let script = FakeScript::new().accept_foreign_history().answer(|seen| {
        let round = seen.messages.iter().filter(|message| message.role == Role::Assistant).count() + 1;
        Some(FakeReply::text(&format!("Number {round} answers: {}.", seen.last_user_text())).in_deltas(4))
    });
    let stall = |gate: &StallGate| InjectedFault::Stall { at: At::Percent(60), gate: gate.clone() };
    let stalls = gates.iter().enumerate();
    let script = stalls.fold(script, |script, (index, gate)| script.fault(On::Request(index + 1), stall(gate)));
    FakeLlm::start(script.fault(On::Request(gates.len() + 1), InjectedFault::StallBeforeHead(before.clone())))
}

#[test]
fn a_chat_that_is_stopped_again_and_again_loses_no_key_no_mode_and_no_line() {
    if !is_wanted("tmux") {
        return;
    }
    let (gates, before) = ([StallGate::new(), StallGate::new()], StallGate::new());
    let fake = stalling(&gates, &before);
    let shell = Shell::start(80, 24);
    let key = format!("ANTHROPIC_BASE_URL={} ANTHROPIC_API_KEY=k", fake.anthropic_url());
    shell.command(&format!("{key} {} chat desk -m anthropic:claude-haiku-4-5", program().display()));
    shell.expect_last(">");
    shell.press(&["a", "c", "Left"]);
    shell.lasts("at the prompt of a chat", "> ac");
    shell.press(&["b", "Enter"]);
    // A turn, and the next one too: echo stays off, and what is typed is a draft.
    for (turn, gate) in (1..).zip(&gates) {
        shell.expect_count(&format!("Number {turn}"), 1);
        shell.press(&["d", "x"]);
        shell.lasts("while an answer comes", "> dx");
        shell.press(&["BSpace", "y"]);
        shell.expect("a draft", |screen| screen.contains("> dy ") && !screen.contains("dyy"));
        gate.release();
        shell.expect_last("> dy");
        shell.press(&["Enter"]);
    }
    before.wait_until_reached(1);
    // The line of the status moves; before the first byte nothing else stands there.
    let is_waiting =
        |screen: &str| screen.trim_end().lines().last().is_some_and(|line| line.contains(" main · anthropic"));
    for number in 1..=times() {
        shell.expect("the status", is_waiting);
        shell.stop_and_go_on(number);
    }
    shell.expect("the status", is_waiting);
    before.release();
    shell.expect_count("Number 3 answers: dy.", 1);
    shell.expect_last(">");
    shell.press(&["C-d"]);
    shell.expect_last("$");
    let said: Vec<String> =
        fake.requests().iter().map(|request| request.seen.as_ref().unwrap().last_user_text()).collect();
    assert_eq!(said, ["abc", "dy", "dy"]);
}

#[test]
fn a_question_that_is_stopped_again_and_again_is_still_the_same() {
    if !is_wanted("tmux") {
        return;
    }
    let shell = Shell::start(80, 24);
    let lines = (1..=40).map(|number| format!("line {number}\\n")).collect::<Vec<_>>().concat();
    shell.command(&run(&WRITES.replace("one\\ntwo\\n", &lines), &shell, ""));
    shell.lasts("at a page of a question", "lines 1–19 of 43");
    shell.press(&["G"]);
    shell.expect_last("Allow?");
    shell.press(&["n"]);
    shell.expect_last("why? (the model reads it)");
    shell.tmux(&["send-keys", "-l", "not yet"]);
    shell.lasts("at a reason", "why? (the model reads it) not yet");
    shell.press(&["Enter"]);
    shell.expect_count("refused: not yet", 1);
    shell.command("clear");
    shell.command(&run(WRITES, &shell, ""));
    shell.lasts("at a question", "Allow?");
    shell.press(&["y"]);
    shell.expect_count("wrote 8 characters to out.txt", 1);
    shell.expect_last("$");
    shell.command("stty -a | grep -o ' echo ' | tr -d ' '");
    shell.expect("the terminal as it was", |screen| screen.contains("\necho\n"));
}
