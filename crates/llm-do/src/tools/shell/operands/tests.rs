use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::super::words;
use super::*;

fn scene() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    for file in [".env", "main.worker", "list", "a b", "-f", "drafts/evil.yaml"] {
        let file = path.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "x").unwrap();
    }
    symlink(".env", path.join("notes")).unwrap();
    (directory, path)
}

fn named(command: &str, directory: &Path) -> Vec<String> {
    let words = words::split(command).unwrap();
    Operands::of(&words[1..], directory).all.into_iter().map(|operand| operand.named).collect()
}

#[test]
fn every_end_of_a_word_that_names_something_is_an_operand() {
    let (_kept, directory) = scene();
    for (command, expected) in [
        ("grep -f.env -v x f", ".env"),
        ("sort -omain.worker f", "main.worker"),
        ("sort -onew.worker f", "new.worker"),
        ("git show HEAD:.env", ".env"),
        ("git diff --no-index /dev/null -- .env", ".env"),
        ("tar -cf- @list", "list"),
        ("install -Dtdrafts x", "drafts"),
        ("install -Dtnew/made x", "new/made"),
        ("x --file=.env", ".env"),
        ("dd if=.env", ".env"),
        ("x 'a b'", "a b"),
        ("cp -r . copy", "."),
        ("x -C..", ".."),
        ("x -I/etc", "/etc"),
        ("x file:///etc/passwd", "///etc/passwd"),
        ("x weirdprefix.env", ".env"),
        ("x notes", "notes"),
        ("x a,.env", ".env"),
        ("x -- -f", "-f"),
    ] {
        assert!(named(command, &directory).iter().any(|name| name == expected), "{command}");
    }
}

#[test]
fn what_names_nothing_is_none() {
    let (_kept, directory) = scene();
    for (command, excluded) in [
        ("echo done.", "."),
        ("ls drafts/", "/"),
        ("ls x/etc", "/etc"),
        ("cc main.rs", ".rs"),
        ("head -c1.5", ".5"),
        ("date +%Y.%m", ".%m"),
    ] {
        assert!(!named(command, &directory).iter().any(|name| name == excluded), "{command}");
    }
    assert_eq!(named("wc -l", &directory), ["-l"]);
    assert_eq!(named(&format!("git '{}'", "x".repeat(300)), &directory), Vec::<String>::new());
}

#[test]
fn a_link_is_shown_with_where_it_leads_and_bound_to_what_is_there() {
    let (_kept, directory) = scene();
    let operands = |command: &str| Operands::of(&words::split(command).unwrap()[1..], &directory);
    assert_eq!(operands("cat notes list").links(), ["notes → .env"]);
    assert_eq!(operands("cat ./list").links(), Vec::<String>::new());
    let before = operands("cat notes").binding();
    assert_eq!(operands("cat notes").binding(), before);
    std::fs::remove_file(directory.join("notes")).unwrap();
    symlink("list", directory.join("notes")).unwrap();
    let after = operands("cat notes").binding();
    assert_ne!(after, before);
    std::fs::write(directory.join("new"), "x").unwrap();
    std::fs::rename(directory.join("new"), directory.join("list")).unwrap();
    assert_ne!(operands("cat notes").binding(), after, "another file under the same name");
}

#[test]
fn lists_of_files_are_told() {
    let (_kept, directory) = scene();
    let list = |command: &str| {
        let words = words::split(command).unwrap();
        list_of_files(&words[0].text, &words[1..], &directory)
    };
    for command in
        ["tar -cf- @list", "tar -cT list", "sort --files0-from=list", "rsync --files-from list a b", "gcc @list"]
    {
        assert!(list(command).is_some(), "{command}");
    }
    for command in ["tar -cf x list", "npm ls @scope/x", "touch -T x", "echo @"] {
        assert_eq!(list(command), None, "{command}");
    }
}

#[test]
fn long_words_are_looked_at_in_bounded_time() {
    let (_kept, directory) = scene();
    let started = std::time::Instant::now();
    for word in ["a".repeat(16_000), "=".repeat(16_000), "/".repeat(16_000), "a=".repeat(8_000), "./".repeat(8_000)] {
        let operands = Operands::of(&[Word::literal(&word)], &directory);
        assert!(operands.all.len() <= MOST_OPERANDS);
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

proptest! {
    #[test]
    fn no_end_of_a_word_that_names_a_file_is_missed(before in "[ -~&&[^'/]]{0,12}", name in "[a-zA-Z0-9_.-]{1,10}") {
        prop_assume!(!name.bytes().all(|byte| byte == b'.'));
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(&name), "x").unwrap();
        let operands = Operands::of(&[Word::literal(&format!("{before}{name}"))], directory.path());
        prop_assert!(operands.all.iter().any(|operand| operand.named == name), "{before}{name}");
    }
}
