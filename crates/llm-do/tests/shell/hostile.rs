use crate::world::{ALL, Attempt, World, part, rule, rules};
use llm_do::tools::approval::{Approvals, Rule};
use llm_do::tools::fence::Fencing;
use llm_do::tools::source::Grammar;

/// One command a line; shared with the tests of the grammar.
const HOSTILE: &str = include_str!("../../src/tools/shell/grammar/hostile.txt");

fn both_shells(fencing: Fencing) -> World {
    World::new(fencing).with(vec![part("shell_readonly", Grammar::ReadOnly), part("shell_file_ops", Grammar::FileOps)])
}

#[test]
fn what_does_not_fit_is_blocked_whoever_approves_and_changes_nothing() {
    for fencing in ALL {
        let world = both_shells(fencing);
        let before = world.state();
        for command in HOSTILE.lines() {
            match world.approved(command) {
                Attempt::Stopped(reason) => assert!(reason.starts_with("invalid arguments: "), "{command}: {reason}"),
                Attempt::Ran(ran) => panic!("{command}: {ran:?}"),
            }
        }
        assert_eq!(world.state(), before);
    }
}

#[test]
fn control_and_deceptive_characters_are_blocked() {
    let long = [format!("cat {}", "a.txt ".repeat(600)), format!("cat {}", "a".repeat(1 << 20))];
    for fencing in ALL {
        let world = both_shells(fencing);
        let before = world.state();
        for command in [
            "cat a.txt\nrm -rf out",
            "cat a.txt\rrm out",
            "cat a.txt\u{b}x",
            "cat a.txt\u{c}x",
            "cat a.txt\u{2028}rm out",
            "cat a\\\n.txt",
            "cat\ta.txt",
            "cat 'a\u{1b}[2K.txt'",
            "cat\u{a0}a.txt",
            "c\u{200b}at a.txt",
            "g\u{456}t status",
            "\u{feff}cat a.txt",
            "cat \0a.txt",
            &long[0],
            &long[1],
        ] {
            world.approved(command).stopped();
        }
        assert_eq!(world.state(), before);
    }
}

/// Dangerous argument lists that must be blocked however they are spelled.
const DANGEROUS: &[&[&str]] = &[
    &["sort", "-o", "out", "a.txt"],
    &["sort", "--output=out", "a.txt"],
    &["sort", "--output", "out", "a.txt"],
    &["sort", "--compress-program=./evil", "a.txt"],
    &["uniq", "in", "out"],
    &["find", ".", "-delete"],
    &["find", ".", "-exec", "./evil", ";"],
    &["find", ".", "-fprint", "out"],
    &["find", ".", "-ok", "./evil", ";"],
    &["grep", "-f", "../outside/secret.txt", "a.txt"],
    &["grep", "-R", "x", "."],
    &["cat", "../outside/secret.txt"],
    &["cat", "../inside-secret/s"],
    &["head", "/etc/passwd"],
    &["tail", "-f", "a.txt"],
    &["wc", "--files0-from=a.txt"],
    &["ls", "-L", "."],
    &["git", "diff", "--output=out"],
    &["git", "diff", "--no-index", "a.txt", "b.txt"],
    &["git", "-c", "core.pager=./evil", "log"],
    &["git", "log", "--ext-diff", "-p"],
    &["mv", "a.txt", "../outside/x"],
];

/// Other spellings of the same words: quotes, escapes, `--`, values joined and apart, combined and abbreviated flags.
fn spellings(words: &[&str]) -> Vec<String> {
    let quoted = |quote: fn(&str) -> String| words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
    let mut spellings = vec![
        quoted(|word| format!("'{word}'")),
        quoted(|word| format!("\"{word}\"")),
        quoted(|word| word.chars().flat_map(|c| ['\\', c]).collect()),
        quoted(|word| format!("''{word}\"\"")),
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join("   "),
    ];
    let (first, rest) = words.split_first().unwrap();
    let plain = |words: &[String]| words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let owned: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    for at in 1..owned.len() {
        // The flag moved to the end.
        let mut moved = owned.clone();
        let word = moved.remove(at);
        moved.push(word);
        if rest[at - 1].starts_with("--") && rest[at - 1].contains('=') {
            spellings.push(plain(&moved));
            // Apart, and abbreviated.
            let (name, value) = owned[at].split_once('=').unwrap();
            let mut apart = owned.clone();
            apart.splice(at..=at, [name.to_owned(), value.to_owned()]);
            spellings.push(plain(&apart));
            for cut in 5..name.len() {
                let mut short = owned.clone();
                short[at] = format!("{}={value}", &name[..cut]);
                spellings.push(plain(&short));
            }
        }
        if owned[at].len() == 2 && owned[at].starts_with('-') && *first != "find" {
            // Joined with harmless letters before, and with its value behind.
            let letter = &owned[at][1..];
            for harmless in ["-n", "-r", "-l"] {
                let mut combined = owned.clone();
                combined[at] = format!("{harmless}{letter}");
                spellings.push(plain(&combined));
            }
            if let Some(value) = owned.get(at + 1) {
                let mut joined = owned.clone();
                joined.splice(at..=at + 1, [format!("-{letter}{value}")]);
                spellings.push(plain(&joined));
            }
        }
    }
    spellings
}

#[test]
fn no_spelling_of_a_dangerous_command_gets_through() {
    for fencing in ALL {
        let world = both_shells(fencing);
        let before = world.state();
        for words in DANGEROUS {
            for command in spellings(words) {
                if let Attempt::Ran(ran) = world.attempt(&command) {
                    assert!(!ran.stdout.contains("secret") && !ran.stdout.contains("FIRED"), "{command}: {ran:?}");
                }
                assert_eq!(world.state(), before, "{command}");
            }
        }
    }
}

#[test]
fn links_pipes_and_devices_lead_nowhere() {
    for fencing in ALL {
        let world = both_shells(fencing);
        world.link("inside/out_dir", world.outside());
        world.link("inside/out_file", world.path("outside/secret.txt"));
        world.link("inside/chain", "out_file");
        world.link("inside/up", "..");
        world.link("inside/root", "/");
        world.link("inside/src/deep", "../../outside");
        rustix::fs::mkfifoat(rustix::fs::CWD, world.path("inside/fifo"), 0o600.into()).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(world.path("inside/socket")).unwrap();
        let before = world.state();
        for command in [
            "cat out_file",
            "cat chain",
            "cat out_dir/secret.txt",
            "cat up/outside/secret.txt",
            "cat root/etc/passwd",
            "cat src/deep/secret.txt",
            "cat fifo",
            "cat socket",
            "head -n1 fifo",
            "grep -r x out_dir",
            "grep x out_dir/secret.txt",
            "ls out_dir",
            "ls out_dir/",
            "find out_dir/",
            "find up/",
            "wc -l chain",
            "sort chain",
            "uniq chain",
            "mv a.txt out_dir",
            "mv out_dir/secret.txt here",
            "git diff -- out_dir/secret.txt",
            "cat src/../up/outside/secret.txt",
        ] {
            let reason = world.approved(command).stopped();
            assert!(!reason.contains("outside secret"), "{command}: {reason}");
        }
        // What walks a tree does not walk out of it, and does not wait for a pipe.
        for command in ["grep -r secret .", "find .", "ls -R", "grep -rn secret src"] {
            let ran = world.attempt(command).ran();
            assert!(!ran.stdout.contains("outside secret") && !ran.stdout.contains("secret.txt"), "{command}: {ran:?}");
            assert_ne!(ran.exit_code, -1, "{command} did not end");
        }
        assert_eq!(world.state(), before);
        drop(socket);
    }
}

#[test]
fn a_program_is_the_systems_own_wherever_others_are_planted() {
    for fencing in ALL {
        let world = World::new(fencing);
        let before = world.state();
        assert_eq!(world.attempt("cat a.txt").ran().stdout, "alpha\nbeta\n");
        assert!(world.attempt("ls").ran().stdout.contains("README.md"));
        world.attempt("git status").ran();
        for command in ["./cat a.txt", "./git status", "evil", "./evil"] {
            world.approved(command).stopped();
        }
        assert_eq!(world.state(), before);
    }
}

#[test]
fn output_and_patterns_without_end_are_ended() {
    for fencing in ALL {
        let world = World::new(fencing);
        world.file("inside/big", &"0123456789abcdef\n".repeat(600_000));
        let ran = world.attempt("cat big").ran();
        assert!(ran.truncated && ran.exit_code == -1 && ran.stdout.len() <= 60_000, "{}", ran.stdout.len());
        assert!(ran.stderr.contains("too long"), "{}", ran.stderr);
        let ran = world.attempt("head -c 999999999999 big").ran();
        assert!(ran.truncated);
        world.file("inside/backtrack", &format!("{}b\n", "a".repeat(64)));
        for pattern in [r"grep -P '(a+)+$' backtrack", r"grep -E '^(a*)*\1*\1*\1*c$' backtrack"] {
            let ended = world.answered(pattern, 1, Approvals::unattended()).ran();
            assert_ne!(ended.exit_code, 0, "{ended:?}");
        }
    }
}

#[test]
fn secrets_ask_whatever_rule_allows_them() {
    for fencing in ALL {
        let mut shell = part("shell_readonly", Grammar::ReadOnly);
        shell.variants = vec![Rule::Allow];
        let world = World::new(fencing).with(vec![shell, rules(vec![rule("cp", Rule::Allow)])]);
        world.file("inside/.env", "KEY=1\n");
        world.file("inside/.env.example", "KEY=\n");
        world.file("inside/keys/server.pem", "PEM\n");
        world.link("inside/notes", ".env");
        for command in [
            "cat .env",
            "cat notes",
            "head -n 1 ./keys/server.pem",
            "git show HEAD:.env",
            "git diff -- .env",
            "sort .env",
            "cp .env copy",
            "cp --from=.env copy",
        ] {
            world.attempt(command).asks();
        }
        for command in ["grep -r KEY .", "grep -r KEY"] {
            if world.fence().is_full() {
                let ran = world.attempt(command).ran();
                assert!(!ran.stdout.contains("KEY=1") && ran.stdout.contains(".env.example"), "{command}: {ran:?}");
            } else {
                world.attempt(command).asks();
            }
        }
        assert_eq!(world.attempt("cat .env.example").ran().stdout, "KEY=\n");
        assert_eq!(world.attempt("grep -rl x src").ran().stdout, "src/inner/lib.rs\n");
        assert_eq!(world.approved("cat .env").ran().stdout, "KEY=1\n");
    }
}

#[test]
fn moving_asks_and_never_leaves() {
    for fencing in ALL {
        let world = both_shells(fencing);
        world.attempt("mv a.txt c.txt").asks();
        assert!(world.path("inside/a.txt").exists());
        assert_eq!(world.approved("mv a.txt c.txt").ran().exit_code, 0);
        assert_eq!(std::fs::read_to_string(world.path("inside/c.txt")).unwrap(), "alpha\nbeta\n");
        assert_eq!(world.approved("mv -v b.txt c.txt src").ran().exit_code, 0);
        assert!(world.path("inside/src/b.txt").exists());
    }
}

#[test]
fn what_decides_a_project_is_never_moved_by_a_rule() {
    if !crate::world::is_offered() {
        return;
    }
    let mut shell = part("shell_file_ops", Grammar::FileOps);
    shell.variants = vec![Rule::Allow];
    let custom = rules(vec![rule("cp", Rule::Allow), rule("touch", Rule::Allow)]);
    let world = World::new(Fencing::WhereOffered).with(vec![shell, custom]);
    world.file("inside/.git/hooks/readme", "x");
    world.file("inside/flow.yaml", "x");
    assert_eq!(world.attempt("mv a.txt c.txt").ran().exit_code, 0, "the rule allows it");
    for command in [
        "mv c.txt .git/hooks/pre-commit",
        "mv c.txt .git/hooks",
        "mv c.txt main.worker",
        "mv c.txt tools.py",
        "mv c.txt project.json",
        "mv flow.yaml gone",
        "mv c.txt flow.yaml",
        "mv c.txt .env",
        "cp c.txt .git/hooks/pre-commit",
        "cp c.txt flow.yaml",
        "touch main.worker",
    ] {
        world.attempt(command).asks();
    }
}
