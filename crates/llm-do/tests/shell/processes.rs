//! What a command may have and what is left of it.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::world::{ALL, World, is_full, rule, rules};
use llm_do::tools::approval::{Approvals, Rule};
use llm_do::tools::fence::Fencing;

fn with_bash(fencing: Fencing) -> World {
    let all = ["bash", "env", "cat", "cargo", "true"].map(|program| rule(program, Rule::Allow));
    World::new(fencing).with(vec![rules(all.to_vec())])
}

/// A time to sleep that no other test sleeps: in a namespace of its own a process has another number than here, but
/// the same arguments.
fn long() -> String {
    format!("1000.{}", fastrand::u64(100_000_000..1_000_000_000))
}

/// Whether a process that sleeps so long is there; one that ended and was not yet waited for has no arguments.
fn is_alive(long: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let sleeps = |line: Vec<u8>| line.split(|byte| *byte == 0).any(|word| word == long.as_bytes());
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).any(sleeps)
}

/// A killed process may need a moment until it is gone.
#[track_caller]
fn is_gone(long: &str) {
    let start = Instant::now();
    while is_alive(long) {
        assert!(start.elapsed() < Duration::from_secs(20), "`sleep {long}` survived");
        std::thread::yield_now();
    }
}

#[test]
fn a_command_without_end_is_ended_and_what_it_said_is_kept() {
    for fencing in ALL {
        let world = with_bash(fencing);
        let long = long();
        let command = format!("bash -c 'echo partial; exec sleep {long}'");
        let ran = world.answered(&command, 1, Approvals::approve_all()).ran();
        assert_eq!((ran.stdout.as_str(), ran.exit_code), ("partial\n", -1), "{ran:?}");
        assert!(ran.stderr.contains("ended after 1 s"), "{}", ran.stderr);
        is_gone(&long);
    }
}

#[test]
fn nothing_that_a_command_started_survives_it() {
    for fencing in ALL {
        let world = with_bash(fencing);
        let long = long();
        let leaving = |how: &str| {
            let how = how.replace("LONG", &long);
            // The command itself ends when the other has left, or could not.
            format!("bash -c 'rm -f pid; {how} & until [ -s pid ]; do kill -0 $! || exit 0; done 2>/dev/null; cat pid'")
        };
        for command in [
            // In the background, deaf to being asked, holding the pipe.
            &leaving(r#"(trap "" TERM HUP; echo $BASHPID > pid; exec sleep LONG)"#),
            // A session of its own, its parent gone.
            &leaving(r#"setsid bash -c "echo \$\$ > pid; exec sleep LONG""#),
            // A group of its own.
            &leaving(r#"set -m; bash -c "echo \$\$ > pid; exec sleep LONG""#),
        ] {
            let ran = world.answered(command, 20, Approvals::approve_all()).ran();
            is_gone(&long);
            assert_ne!(ran.exit_code, -1, "the command itself had ended: {ran:?}");
        }
    }
}

#[test]
fn a_call_that_is_dropped_ends_its_command() {
    for fencing in ALL {
        let world = with_bash(fencing);
        let session = world.session(Approvals::approve_all());
        let mark = world.path("inside/pid");
        let long = long();
        let orders = [(format!("bash -c 'echo $$ > pid; exec sleep {long}'"), 300)];
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        executor.block_on(async {
            tokio::select! {
                () = session.run(&orders) => panic!("it does not end by itself"),
                () = written(&mark) => {}
            }
        });
        is_gone(&long);
    }
}

async fn written(path: &Path) {
    while std::fs::read_to_string(path).map_or(true, |text| !text.ends_with('\n')) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn the_environment_is_fixed_and_small() {
    for fencing in ALL {
        let world = with_bash(fencing);
        let ran = world.approved("env").ran();
        let mut names: Vec<&str> = ran.stdout.lines().map(|line| line.split_once('=').unwrap().0).collect();
        names.sort_unstable();
        assert_eq!(names, ["HOME", "LANG", "LC_ALL", "LLM_DO_COMMAND", "PATH", "TERM", "TMPDIR"]);
        let home = ran.stdout.lines().find_map(|line| line.strip_prefix("HOME=")).unwrap();
        if is_full(fencing) {
            assert_eq!(home, "/tmp", "which is its own");
        } else {
            assert!(home.starts_with("/tmp/llm-do-"), "{home}");
            assert!(!Path::new(home).exists(), "it is gone with the shell");
        }
    }
}

#[test]
fn there_is_no_input() {
    for fencing in ALL {
        let ran = with_bash(fencing).approved("cat").ran();
        assert_eq!((ran.stdout.as_str(), ran.exit_code), ("", 0));
        let ran = with_bash(fencing).approved("bash -c 'read x || echo none'").ran();
        assert_eq!(ran.stdout, "none\n");
    }
}

#[test]
fn a_program_that_is_not_there_says_so() {
    let world = World::new(Fencing::WhereOffered).with(vec![rules(vec![rule("no-such-program", Rule::Allow)])]);
    let ran = world.approved("no-such-program x").ran();
    assert_eq!(ran.exit_code, 127);
    assert!(ran.stderr.contains("`no-such-program` is not in /usr/local/bin"), "{}", ran.stderr);
}

#[test]
fn a_command_that_works_goes_on_unheard() {
    let world = with_bash(Fencing::WhereOffered);
    let ran = world.approved("bash -c 'for i in {1..30000}; do echo line $i; done; echo done > finished'").ran();
    assert!(ran.truncated && ran.exit_code == 0, "{}", ran.exit_code);
    assert!(world.path("inside/finished").exists());
}

#[test]
fn signals_and_exit_codes_are_told() {
    let world = with_bash(Fencing::WhereOffered);
    assert_eq!(world.approved("bash -c 'exit 3'").ran().exit_code, 3);
    assert_eq!(world.approved("bash -c 'kill -TERM $$'").ran().exit_code, -15);
}

#[test]
fn many_commands_at_once_do_not_end_each_other() {
    let orders: Vec<(String, u64)> = (0..8)
        .map(|number| (format!("bash -c 'for i in 1 2 3 4 5; do sleep 0.0{number}; echo {number}; done'"), 30))
        .collect();
    let attempts = with_bash(Fencing::WhereOffered).session(Approvals::approve_all()).attempts(&orders);
    for (number, attempt) in attempts.into_iter().enumerate() {
        assert_eq!(attempt.ran().stdout, format!("{number}\n").repeat(5));
    }
}

/// Enough for any build, and too few for a bomb.
#[test]
fn the_number_of_processes_is_limited() {
    for fencing in ALL {
        let ran = with_bash(fencing).approved("bash -c 'ulimit -Hu'").ran();
        let most = ran.stdout.trim().parse::<u64>();
        assert!(most.is_ok_and(|most| (1025..1_000_000).contains(&most)), "{ran:?}");
    }
}

/// Commands that only look at themselves, and are done before anybody could have set anything from outside.
#[test]
fn limits_hold_before_the_first_instruction_of_a_command() {
    const TIMES: usize = 200;
    // Time, file size, data, core, files and memory, each as it is and as it could be raised to.
    let look: Vec<String> =
        ["t", "f", "d", "c", "n", "v"].iter().map(|limit| format!("ulimit -S -{limit}; ulimit -H -{limit}")).collect();
    let command = format!("sh -c '{}'", look.join("; "));
    let seconds = 305 * std::thread::available_parallelism().unwrap().get();
    let expected = [&*seconds.to_string(), "8388608", "4194304", "0", "1024", "unlimited"];
    let expected = expected.map(|limit| format!("{limit}\n{limit}\n")).concat();
    for fencing in ALL {
        let world = World::new(fencing).with(vec![rules(vec![rule("sh", Rule::Allow)])]);
        let session = world.session(Approvals::approve_all());
        for _ in 0..TIMES / 8 {
            for attempt in session.attempts(&vec![(command.clone(), 7); 8]) {
                let ran = attempt.ran();
                assert_eq!(ran.stdout, expected, "{fencing:?}: {}", ran.stderr);
            }
        }
    }
}
