//! Code that wants more than to answer: it reads, writes, reaches out, never ends, takes all memory, and calls what it likes.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::Ended;
use crate::terminal::Terminal;
use crate::{SORTER, Shop, figures};

/// What is tried, each as the body of the function.
fn attempts(port: u16) -> Vec<(&'static str, String)> {
    let body = |lines: &[&str]| {
        let lines = format!("    {}\n", lines.join("\n    "));
        format!(
            "import os, socket, subprocess, sys\n\n\ndef sorter(change):\n{lines}    return {{\"kind\": \"new\"}}\n"
        )
    };
    let reach = format!("socket.create_connection((\"127.0.0.1\", {port}), 1).send(b\"x\")");
    vec![
        ("reads a secret", body(&["open(os.path.expanduser(\"~/secret.txt\")).read()"])),
        ("reads the key of its provider", body(&["assert os.environ[\"ANTHROPIC_API_KEY\"]"])),
        ("writes to the project", body(&["open(\"shop/effect\", \"w\").write(\"x\")"])),
        (
            "writes beside its file",
            body(&["open(os.path.join(os.path.dirname(__file__), \"effect\"), \"w\").write(\"x\")"]),
        ),
        ("writes to the home directory", body(&["open(os.path.expanduser(\"~/effect\"), \"w\").write(\"x\")"])),
        ("reaches the network", body(&[&reach])),
        (
            "starts a program",
            body(&["subprocess.run([\"sh\", \"-c\", \"echo x > effect\"], check=True, cwd=os.path.dirname(__file__))"]),
        ),
        ("kills its caller", body(&["os.kill(os.getppid(), 9)", "os.kill(1, 9)"])),
        ("takes all memory", body(&["bytearray(1 << 31)"])),
        ("never ends", body(&["while True: pass"])),
    ]
}

#[test]
fn hostile_code_has_no_effect() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, reached) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&reached);
    std::thread::spawn(move || {
        for _ in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let attempts = attempts(port);
    for (what, code) in &attempts {
        let shop = Shop::with_code(&SORTER, code);
        shop.sandbox.file("secret.txt", "s3cret");
        shop.record(&SORTER, 12);
        let before = shop.sandbox.tree();
        let left = shop.at_terminal(&["harden", "sorter", "shop"], &["y", "y", "n"]);
        assert_eq!(left.code, Some(0), "{what}: {}", left.written);
        let [equal, _, equal_held_out, ..] = figures(&left.written);
        // Killing what is not theirs is no effect either way; whatever else they try fails the call.
        if *what != "kills its caller" {
            assert_eq!(equal + equal_held_out, 0, "{what}: {}", left.written);
        }
        assert_eq!(shop.sandbox.tree(), before, "{what}");
        assert!(!left.written.contains("s3cret"), "{what}");
    }
    assert_eq!(reached.load(Ordering::Relaxed), 0, "nothing was reached");
    println!("{} kinds of hostile code had no effect", attempts.len());
}

#[test]
fn code_that_was_refused_never_ran() {
    // It would stop everything for a while if it were imported, and say so.
    let code = "import sys, time\nprint(\"ran\", file=sys.stderr)\nraise SystemExit(7)\n";
    let shop = Shop::with_code(&SORTER, code);
    shop.record(&SORTER, 12);
    let (before, asked) = (shop.sandbox.tree(), shop.asked());
    // Nothing is sent, so there is no code.
    let left = shop.at_terminal(&["harden", "sorter", "shop"], &["n"]);
    assert_eq!((left.code, shop.asked()), (Some(0), asked), "{}", left.written);
    assert!(left.written.contains("nothing was changed"), "{}", left.written);
    // It is shown and not run.
    let left = shop.at_terminal(&["harden", "sorter", "shop"], &["y", "n"]);
    assert_eq!((left.code, shop.asked()), (Some(0), asked + 1), "{}", left.written);
    assert!(left.written.contains("raise SystemExit(7)") && !left.written.contains("equal on"), "{}", left.written);
    assert!(!left.written.lines().any(|line| line.trim() == "ran"), "{}", left.written);
    assert_eq!(shop.sandbox.tree(), before);
}

/// Hardened by somebody who trusts nothing beforehand.
fn agreed() -> Shop {
    let shop = Shop::with_code(&SORTER, SORTER.code);
    shop.record(&SORTER, 18);
    let terminal = Terminal::start(shop.command_of_nobody(&["harden", "sorter", "shop"]));
    for _ in 0..3 {
        terminal.answer("y");
    }
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.written);
    shop
}

fn call(shop: &Shop) -> Ended {
    shop.run_by_nobody(&["shop", "{\"change\": \"Fix 1\"}", "-q"])
}

/// What somebody else put into a project is not agreed to by who changes who answers in it.
#[test]
fn nothing_is_trusted_that_was_not_trusted_before() {
    for change in [&["harden", "sorter", "shop", "--mode", "shadow"][..], &["soften", "sorter", "shop"]] {
        let shop = agreed();
        assert_eq!(call(&shop).code, Some(0), "what was written is trusted");
        let manifest = std::fs::read_to_string(shop.sandbox.path().join("shop/project.json")).unwrap();
        let evil = manifest.replacen("\"version\": 1,", "\"version\": 1, \"python_files\": [\"x.py\"],", 1);
        assert_ne!(evil, manifest);
        shop.sandbox.file("shop/project.json", &evil);
        shop.sandbox.file("shop/x.py", "open('came', 'w').write('in')\ndef f() -> str:\n    return ''\nTOOLS = [f]\n");
        let refused = |when: &str| {
            let ended = call(&shop);
            assert_eq!(ended.code, Some(4), "{when} {change:?}: {ended:?}");
        };
        refused("before");
        let changed = shop.run_by_nobody(change);
        assert_eq!(changed.code, Some(0), "{changed:?}");
        refused("after");
        assert!(!shop.sandbox.tree().keys().any(|path| path.ends_with("came")));
    }
}

/// Who has once agreed goes on: each change of who answers is trusted as it was written.
#[test]
fn a_trusted_project_stays_trusted() {
    let shop = agreed();
    for mode in ["shadow", "fallback", "agent", "code"] {
        assert_eq!(shop.run_by_nobody(&["harden", "sorter", "shop", "--mode", mode]).code, Some(0));
        assert_eq!(call(&shop).code, Some(0), "{mode}");
    }
    // What a person changed by hand is asked about, whatever is changed behind it.
    let code = std::fs::read_to_string(shop.sandbox.path().join("shop/sorter.py")).unwrap();
    shop.sandbox.file("shop/sorter.py", &(code + "# by hand\n"));
    for mode in ["fallback", "code"] {
        assert_eq!(shop.run_by_nobody(&["harden", "sorter", "shop", "--mode", mode]).code, Some(0));
        assert_eq!(call(&shop).code, Some(4), "{mode}");
    }
}

#[test]
fn what_looks_like_a_secret_is_neither_sent_nor_written() {
    let shop = Shop::with_code(&SORTER, SORTER.code);
    let secret = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789";
    let mut items: Vec<String> = (0..15).map(|number| (SORTER.input)(number).to_string()).collect();
    items.push(json!({"change": format!("Fix {secret}")}).to_string());
    shop.sandbox.file("items.jsonl", &(items.join("\n") + "\n"));
    let ended = shop.run(&["map", "sorter", "shop", "--over", "items.jsonl"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let before = shop.asked();
    let left = shop.at_terminal(&["harden", "sorter", "shop"], &["y", "y", "y"]);
    assert!(left.written.contains("1 record has a value that looks like a secret"), "{}", left.written);
    assert!(shop.files().values().all(|text| !text.contains(secret)));
    let sent = shop.fake.requests().into_iter().skip(before).filter_map(|request| request.seen);
    assert!(sent.flat_map(|seen| seen.messages).all(|message| !message.text().contains(secret)));
}
