//! Files that cannot be a journal, disks that are full, and others who use it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;

use fake_llm::{FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};

use crate::session::{KEY, Run};
use crate::support::{Sandbox, wait};
use crate::{begin, journal, records, resume, waiting_id, worker, writer};

#[test]
fn a_file_with_something_in_it_is_not_overwritten() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    let before = fs::read(journal(&sandbox)).unwrap();
    let again = begin(&sandbox, &fake, &[]).failure(2);
    assert!(again.contains("the journal run.journal is not empty\nhint: `llm-do resume run.journal`"), "{again}");
    assert_eq!(fs::read(journal(&sandbox)).unwrap(), before);
    assert_eq!(fs::metadata(journal(&sandbox)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_no_journal_is_said_so_and_stays_as_it_was() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    let good = fs::read_to_string(journal(&sandbox)).unwrap();
    let damaged = good.replacen("\"kind\":\"model\"", "\"kind\":\"mod\u{0}l\"", 1);
    let first_model = good.lines().position(|line| line.contains("\"kind\":\"model\"")).unwrap() + 1;
    let foreign = |line: usize| format!("run.journal was not written by you on this machine (line {line})");
    let cases = [
        ("my notes\n".to_owned(), 2, "run.journal is not a journal".to_owned()),
        (String::new(), 2, "run.journal is not a journal".to_owned()),
        (good.replacen("{\"v\":2,", "{\"v\":3,", 1), 4, foreign(1)),
        (damaged, 4, foreign(first_model)),
        (good.replacen('\n', "\n\n", 1), 4, foreign(2)),
    ];
    for (text, code, fact) in cases {
        fs::write(journal(&sandbox), &text).unwrap();
        for flags in [&[][..], &["--show"]] {
            let said = resume(&sandbox, &fake, flags).failure(code);
            assert!(said.contains(&fact), "{said}");
        }
        assert_eq!(fs::read_to_string(journal(&sandbox)).unwrap(), text);
    }
    assert_eq!(fake.requests().len(), 1);
}

#[test]
fn a_torn_last_line_was_never_there() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    let id = waiting_id(&sandbox, &fake);
    let good = fs::read_to_string(journal(&sandbox)).unwrap();
    fs::write(journal(&sandbox), format!("{good}{{\"k\":\"main/t0/m0/c0\",\"kind\":\"tool\",\"sta")).unwrap();
    assert_eq!(resume(&sandbox, &fake, &["--approve", &id]).ended().code, Some(0));
    assert_eq!(records(&sandbox).last().unwrap()["k"], "main/t0");
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_before_any_request() {
    let (sandbox, fake) = writer();
    sandbox.file("shut/x", "");
    fs::set_permissions(sandbox.path().join("shut"), fs::Permissions::from_mode(0o555)).unwrap();
    sandbox.file("target", "");
    symlink(sandbox.path().join("target"), sandbox.path().join("link")).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    // Nobody can make files in /sys, not even the superuser, whom the mode of a directory does not stop.
    let shut = if is_root { "/sys/run.journal" } else { "shut/run.journal" };
    for file in [shut, "no/where/run.journal", ".", "link", "/dev/full"] {
        let said = Run::new(&sandbox, &[".", "hi", "--journal", file]).asking(&fake).failure(2);
        assert!(said.starts_with("error: ") && said.contains(file), "{said}");
    }
    assert_eq!((fake.requests().len(), fs::read(sandbox.path().join("target")).unwrap().len()), (0, 0));
}

#[test]
fn only_one_process_goes_on_with_a_run() {
    let (sandbox, gate) = (Sandbox::new(), StallGate::new());
    sandbox.file("main.worker", &worker("main", ""));
    let fake = FakeLlm::start(
        FakeScript::new()
            .reply(FakeReply::text("slow"))
            .fault(On::Request(1), InjectedFault::StallBeforeHead(gate.clone())),
    );
    std::thread::scope(|scope| {
        let first = scope.spawn(|| begin(&sandbox, &fake, &[]).answer());
        gate.wait_until_reached(1);
        let second = resume(&sandbox, &fake, &[]).failure(2);
        assert!(second.contains("the journal run.journal is in use by another process"), "{second}");
        assert!(resume(&sandbox, &fake, &["--show"]).answer().ends_with("\nnot finished\n"));
        gate.release();
        assert_eq!(first.join().unwrap(), "slow\n");
    });
    assert_eq!(resume(&sandbox, &fake, &[]).answer(), "slow\n");
}

#[test]
fn a_full_disk_ends_the_run_before_the_next_effect_and_room_lets_it_go_on() {
    let (sandbox, fake) = writer();
    let binary = env!("CARGO_BIN_EXE_llm-do");
    begin(&sandbox, &fake, &[]).failure(4);
    let header = fs::read_to_string(journal(&sandbox)).unwrap().lines().next().unwrap().len();
    for allowed in [header / 2, header + 100, header + 500] {
        let _ = fs::remove_file(journal(&sandbox));
        let asked = fake.requests().len();
        let variables = [("ANTHROPIC_BASE_URL", fake.anthropic_url()), ("ANTHROPIC_API_KEY", KEY.to_owned())];
        let mut shell = std::process::Command::new("sh");
        // The limit of a file's size stands for the size of a disk.
        shell.args([
            "-c",
            "trap '' XFSZ; exec prlimit --fsize=\"$1\" \"$2\" run . hi --journal run.journal --approve-all",
        ]);
        shell.args(["sh", &allowed.to_string(), binary]).env_clear().envs(variables).env("HOME", sandbox.path());
        shell.env("PATH", std::env::var_os("PATH").unwrap()).current_dir(sandbox.path());
        let ended = wait(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let is_begun = allowed > header;
        assert_eq!(ended.code, Some(if is_begun { 1 } else { 2 }), "{ended:?}");
        assert!(ended.stderr.contains("File too large"), "{}", ended.stderr);
        assert!(!sandbox.path().join("a.txt").exists(), "nothing runs that is not recorded");
        assert!(fake.requests().len() - asked <= 1);
        let goes_on = if is_begun {
            resume(&sandbox, &fake, &["--approve-all"])
        } else {
            begin(&sandbox, &fake, &["--approve-all"])
        };
        assert_eq!(goes_on.answer(), "Result: wrote 4 characters to a.txt\n");
        fs::remove_file(sandbox.path().join("a.txt")).unwrap();
    }
}

#[test]
fn a_provider_that_failed_can_be_asked_again() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", &worker("main", ""));
    let fake = FakeLlm::start(
        FakeScript::new().reply(FakeReply::text("now")).fault(On::Request(1), InjectedFault::status(400)),
    );
    let failed = begin(&sandbox, &fake, &[]).failure(3);
    assert!(failed.contains("`llm-do resume run.journal` goes on where it stopped"), "{failed}");
    assert_eq!(resume(&sandbox, &fake, &[]).answer(), "now\n");
}

#[test]
fn a_path_that_a_journal_could_not_name_is_refused_before_there_is_one() {
    use std::os::unix::ffi::OsStrExt as _;
    let sandbox = Sandbox::new();
    let directory = sandbox.path().join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("main.worker"), "---\nname: main\n---\nx\n").unwrap();
    std::fs::write(directory.join("script.yaml"), "- say: ran\n").unwrap();
    let arguments = ["main.worker", "hi", "-m", "scripted:script.yaml", "--journal", "run.journal"];
    let mut command = sandbox.command(&arguments, &[]);
    let ended = wait(command.current_dir(&directory).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("error: a journal is UTF-8, and the path /"), "{}", ended.stderr);
    assert!(!directory.join("run.journal").exists());
}

/// All bits are turned where journals are read; here is a sample of them, through the program.
#[test]
fn a_turned_bit_is_noticed_before_anything_goes_on() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &["--approve-all"]).answer();
    let whole = fs::read(journal(&sandbox)).unwrap();
    let asked = fake.requests().len();
    for part in 0..12 {
        let mut turned = whole.clone();
        // Never the end of the last line: without it the line was not written yet.
        let bit = (turned.len() - 1) * 8 * part / 12 + part % 8;
        turned[bit / 8] ^= 1 << (bit % 8);
        fs::write(journal(&sandbox), &turned).unwrap();
        for flags in [&["--show"][..], &[]] {
            let ended = resume(&sandbox, &fake, flags).ended();
            assert!(matches!(ended.code, Some(1 | 2 | 4)), "bit {bit}: {ended:?}");
            assert_eq!((ended.stdout.as_str(), fake.requests().len()), ("", asked), "bit {bit}: {}", ended.stderr);
        }
        assert_eq!(fs::read(journal(&sandbox)).unwrap(), turned, "nothing was written to it");
    }
}
