//! Paths, links, patterns and files that an attacker would use. What counts is the effect.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const OUTSIDE: &str = "canary of the outside";
const SECRET: &str = "canary of the secret";

/// A root with doors to the outside, beside a directory whose name starts alike.
fn trap() -> (tempfile::TempDir, Filesystem) {
    let temporary = temporary();
    let base = temporary.path();
    let root = base.join("proj");
    for directory in ["proj/sub/deep", "proj/.ssh", "proj-secret", "elsewhere"] {
        std::fs::create_dir_all(base.join(directory)).unwrap();
    }
    std::fs::write(base.join("proj-secret/s"), OUTSIDE).unwrap();
    std::fs::write(base.join("elsewhere/file"), OUTSIDE).unwrap();
    std::fs::write(root.join("plain.txt"), "plain").unwrap();
    std::fs::write(root.join("sub/deep/file.md"), "deep").unwrap();
    for secret in [".env", ".ssh/id_ed25519", "sub/server.pem"] {
        std::fs::write(root.join(secret), SECRET).unwrap();
    }
    let outside = base.join("elsewhere").display().to_string();
    for (target, link) in [
        (format!("{outside}/file"), "file_link"),
        (outside.clone(), "directory_link"),
        ("../elsewhere/file".to_owned(), "relative_link"),
        ("chain_2".to_owned(), "chain_1"),
        ("sub/../../elsewhere/file".to_owned(), "chain_2"),
        ("/proc/self/root".to_owned(), "magic_root"),
        ("/proc/self/cwd".to_owned(), "magic_cwd"),
        ("/dev/fd/0".to_owned(), "magic_fd"),
        ("../proj-secret".to_owned(), "neighbour"),
        ("..".to_owned(), "up"),
        (".".to_owned(), "here"),
        ("loop_b".to_owned(), "loop_a"),
        ("loop_a".to_owned(), "loop_b"),
        ("new_file_outside".to_owned(), "dangling"),
        (format!("{outside}/new"), "dangling_out"),
        (".env".to_owned(), "innocent.txt"),
        ("innocent.txt".to_owned(), "twice.txt"),
        (".ssh".to_owned(), "keys"),
        ("plain.txt".to_owned(), "id_rsa"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), 0o600.into()).unwrap();
    let files = rooted(&root, Access::ReadWrite);
    (temporary, files)
}

/// Everything outside is as it was.
#[track_caller]
fn assert_untouched(temporary: &tempfile::TempDir) {
    let base = temporary.path();
    for (directory, files) in [("proj-secret", ["s"].as_slice()), ("elsewhere", &["file"])] {
        let names: Vec<_> =
            std::fs::read_dir(base.join(directory)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, files, "{directory}");
        for file in files {
            assert_eq!(std::fs::read_to_string(base.join(directory).join(file)).unwrap(), OUTSIDE);
        }
    }
    assert_eq!(std::fs::read_dir(base).unwrap().count(), 3);
}

/// Spellings of one path.
fn variants(path: &str) -> Vec<String> {
    vec![
        path.to_owned(),
        format!("./{path}"),
        format!(".//{}", path.replace('/', "//")),
        format!("here/{path}"),
        format!("here/./here/{path}"),
        format!("{path}/"),
        format!("{path}/."),
    ]
}

const ESCAPES: &[&str] = &[
    "../elsewhere/file",
    "sub/../../elsewhere/file",
    "sub//..//../elsewhere/file",
    "up/elsewhere/file",
    "here/up/elsewhere/file",
    "~/.ssh/id_rsa",
    "%2e%2e/elsewhere/file",
    "..%2felsewhere/file",
    "..\\elsewhere\\file",
    "file:///etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/root/etc/passwd",
    "../proj-secret/s",
    "neighbour/s",
    "file_link",
    "directory_link/file",
    "directory_link/new",
    "relative_link",
    "chain_1",
    "magic_root/etc/passwd",
    "magic_cwd/Cargo.toml",
    "magic_fd",
    "loop_a",
    "loop_a/x",
    "dangling",
    "dangling_out",
    "fifo",
    "sub",
    ".",
    "",
    "sub\0/x",
    "plain.txt/x",
];

#[test]
fn no_spelling_of_a_path_reads_or_writes_outside() {
    let (temporary, files) = trap();
    let root = temporary.path().canonicalize().unwrap().join("proj");
    let neighbour = temporary.path().join("proj-secret/s").display().to_string();
    for path in ESCAPES.iter().copied().chain([neighbour.as_str()]) {
        for path in variants(path) {
            for (tool, arguments) in [
                ("read_file", json!({"path": path})),
                ("write_file", json!({"path": path, "content": "planted"})),
                ("edit_file", json!({"path": path, "old": "canary", "new": "planted"})),
                ("list_files", json!({"path": path})),
            ] {
                let done = perform(&files, tool, &arguments.to_string());
                let shown = done.clone().unwrap_or_default();
                assert!(!shown.contains(OUTSIDE) && !shown.contains("root:"), "{tool} {path:?}: {shown}");
                // A name may look like a way out and be one inside.
                let is_inside = root.join(&path).canonicalize().is_ok_and(|path| path.starts_with(&root));
                assert!(done.is_err() || is_inside || tool == "list_files", "{tool} {path:?}: {shown}");
            }
        }
    }
    assert_untouched(&temporary);
}

#[test]
fn errors_say_what_is_allowed() {
    let (_temporary, files) = trap();
    for (path, reason) in [
        ("../x", "leads outside with `..`; paths are relative to the root and stay beneath it"),
        ("/etc/passwd", "lies in no root; paths are relative to the root and stay beneath it"),
        ("~/x", "starts with `~`, which means nothing here; paths are relative"),
        ("file_link", "is a link that leads outside"),
        ("nothing.txt", "does not exist; `list_files` shows what is there"),
        ("sub", "is not a regular file"),
        ("fifo", "is not a regular file"),
        ("sub/", "is a directory; `list_files` lists it"),
        ("a\nb", "`a\\nb` does not exist"),
    ] {
        let error = perform(&files, "read_file", &json!({"path": path}).to_string()).unwrap_err();
        assert!(error.contains(reason), "{path}: {error}");
    }
}

#[test]
fn a_secret_asks_to_be_read_by_whatever_name() {
    let (temporary, files) = trap();
    let root = temporary.path().join("proj");
    std::fs::hard_link(root.join(".env"), root.join("sub/notes.txt")).unwrap();
    let real = root.canonicalize().unwrap();
    for (path, shown) in [
        (".env", ".env"),
        ("innocent.txt", ".env"),
        ("twice.txt", ".env"),
        ("keys/id_ed25519", ".ssh/id_ed25519"),
        (".ssh/id_ed25519", ".ssh/id_ed25519"),
        ("sub/server.pem", "sub/server.pem"),
        ("id_rsa", "plain.txt"),
        ("sub/notes.txt", "sub/notes.txt"),
    ] {
        for path in variants(path).into_iter().filter(|path| !path.ends_with(['/', '.'])) {
            let arguments = json!({"path": path, "offset": 1, "max_chars": 3});
            let Ok(Verdict::AskAnyway(question)) = verdict(&files, "read_file", &arguments) else { panic!("{path}") };
            let place = format!("reads `{}`, which ", real.join(shown).display());
            assert!(question.reason.starts_with(&place), "{path}: {}", question.reason);
            assert!(passed(&files, "read_file", &arguments.to_string(), Approvals::unattended()).unwrap().is_none());
        }
    }
    let read = perform(&files, "read_file", r#"{"path":"innocent.txt"}"#).unwrap();
    assert!(read.contains(SECRET), "with consent it is read: {read}");
    let listed = perform(&files, "list_files", "{}").unwrap();
    assert!(listed.contains(".env") && !listed.contains("canary"), "names are no secret: {listed}");
}

#[test]
fn an_edit_is_no_way_to_guess_a_secret() {
    let (_temporary, files) = trap();
    for path in [".env", "innocent.txt", "sub/server.pem"] {
        let guesses = ["canary", "no canary"].map(|old| {
            let judged = verdict(&files, "edit_file", &json!({"path": path, "old": old, "new": "x"}));
            let Ok(Verdict::AlwaysAsk(question)) = judged else { panic!("{path}: {judged:?}") };
            question.reason
        });
        assert_eq!(guesses[0], guesses[1], "right or wrong, it is asked first");
    }
}

#[test]
fn patterns_neither_escape_nor_explode() {
    let (temporary, files) = trap();
    for pattern in ["../**/*", "/etc/*", "sub/../../**", "..", "[", "{a,b", "a{b", "[z-a]", &"*".repeat(2_000)] {
        assert!(perform(&files, "list_files", &json!({"pattern": pattern}).to_string()).is_err(), "{pattern}");
    }
    let bomb = "{a,b,{c,d}}".repeat(90);
    let stars = "**/".repeat(300) + "x";
    let questions = "?*".repeat(400);
    for pattern in
        ["**/*", "up/**", "directory_link/*", "up/elsewhere/*", "neighbour/*", "here/**", &bomb, &stars, &questions]
    {
        let listed = perform(&files, "list_files", &json!({"pattern": pattern}).to_string()).unwrap_or_default();
        for line in listed.lines().filter(|line| !line.starts_with('[')) {
            let path = temporary.path().join("proj").join(line).canonicalize().unwrap();
            assert!(path.starts_with(temporary.path().canonicalize().unwrap().join("proj")), "{pattern}: {line}");
        }
    }
    let everything = perform(&files, "list_files", "{}").unwrap();
    assert_eq!(
        everything.lines().filter(|line| line.contains("here")).count(),
        0,
        "links are not entered: {everything}"
    );
}

#[test]
fn names_cannot_forge_a_line() {
    let directory = temporary();
    let names = ["a\nb.txt", "\u{1b}[2Kc", "\u{202e}d", "-rf"];
    for name in names {
        std::fs::write(directory.path().join(name), "x").unwrap();
    }
    let files = rooted(directory.path(), Access::ReadWrite);
    let listed = perform(&files, "list_files", "{}").unwrap();
    assert_eq!(listed, "\\u{1b}[2Kc\n-rf\na\\nb.txt\n\\u{202e}d");
    let judged = verdict(&files, "write_file", &json!({"path": "\u{202e}d", "content": "\u{1b}[2Kharmless\n"}));
    let Ok(Verdict::Ask(question)) = judged else { panic!("{judged:?}") };
    assert_eq!(question.reason, "changes \\u{202e}d: 1 line added, 1 removed");
    assert_eq!(
        question.preview.as_deref(),
        Some("   1 - x\n       (no line break at the end)\n   1\\+ \\u{1b}[2Kharmless")
    );
    let judged = verdict(&files, "write_file", &json!({"path": "new\nname", "content": "x"}));
    let Ok(Verdict::Ask(question)) = judged else { panic!("{judged:?}") };
    assert_eq!(question.reason, "creates new\\nname: 1 line added");
}

#[test]
fn files_of_any_size_and_content_are_read_or_refused_at_once() {
    let directory = temporary();
    let at = |name: &str| directory.path().join(name);
    std::fs::File::create(at("sparse")).unwrap().set_len(10 << 30).unwrap();
    std::fs::write(at("nul"), vec![0; 100_000]).unwrap();
    std::fs::write(at("latin1"), b"gr\xfc\xdfe").unwrap();
    std::fs::write(at("utf16"), b"\xff\xfeh\0i\0").unwrap();
    std::fs::write(at("text"), "aß漢").unwrap();
    let files = rooted(directory.path(), Access::ReadWrite);
    for name in ["sparse", "nul", "latin1", "utf16"] {
        let error = perform(&files, "read_file", &json!({"path": name}).to_string()).unwrap_err();
        assert_eq!(error, format!("`{name}` is binary, use attachments"));
    }
    let huge = json!({"path": "text", "offset": u64::MAX, "max_chars": 1_u64 << 63});
    let read = perform(&files, "read_file", &huge.to_string()).unwrap();
    assert!(read.contains(r#""truncated":false,"total_chars":3"#), "{read}");
    for wrong in [json!({"path": "text", "offset": -1}), json!({"path": "text", "max_chars": 1.5}), json!({"path": 3})]
    {
        assert!(verdict(&files, "read_file", &wrong).is_err(), "{wrong}");
    }
    let error = perform(&files, "write_file", &json!({"path": "sparse", "content": "x"}).to_string()).unwrap_err();
    assert!(error.contains("is larger than 16777216 bytes"), "{error}");
    let judged = verdict(&files, "write_file", &json!({"path": "latin1", "content": "x\n"}));
    let Ok(Verdict::Ask(question)) = judged else { panic!("{judged:?}") };
    assert_eq!(question.preview.as_deref(), Some("(what is there is binary, and all of it goes)\n   1 + x"));
    let deep = vec!["d"; 500].join("/");
    assert!(
        perform(&files, "write_file", &json!({"path": deep, "content": "x"}).to_string())
            .unwrap_err()
            .contains("too long")
    );
    assert!(!at("d").exists());
}

#[test]
fn a_file_with_several_names_asks_and_only_one_changes() {
    let (temporary, files) = trap();
    let (root, outside) = (temporary.path().join("proj"), temporary.path().join("elsewhere/file"));
    std::fs::hard_link(&outside, root.join("hard.txt")).unwrap();
    let arguments = json!({"path": "hard.txt", "content": "planted"});
    let Ok(Verdict::AskAnyway(question)) = verdict(&files, "write_file", &arguments) else { panic!("it asks") };
    assert!(question.reason.contains("one of 2 names of a file"), "{}", question.reason);
    assert!(passed(&files, "write_file", &arguments.to_string(), Approvals::unattended()).unwrap().is_none());
    perform(&files, "write_file", &arguments.to_string()).unwrap();
    assert_eq!(std::fs::read_to_string(root.join("hard.txt")).unwrap(), "planted");
    assert_untouched(&temporary);
}

#[test]
fn a_link_inside_is_written_where_it_leads_and_stays_a_link() {
    let (temporary, files) = trap();
    let root = temporary.path().join("proj");
    symlink("sub/deep/file.md", root.join("inner.md")).unwrap();
    let arguments = json!({"path": "inner.md", "content": "new"});
    let Ok(Verdict::Ask(question)) = verdict(&files, "write_file", &arguments) else { panic!("it asks") };
    let real = root.canonicalize().unwrap().join("sub/deep/file.md");
    assert_eq!(question.reason, format!("changes inner.md, that is `{}`: 1 line added, 1 removed", real.display()));
    perform(&files, "write_file", &arguments.to_string()).unwrap();
    assert!(root.join("inner.md").is_symlink());
    assert_eq!(std::fs::read_to_string(real).unwrap(), "new");
}

#[test]
fn a_listing_is_cut_with_a_mark_and_says_what_it_left_out() {
    let directory = temporary();
    for number in 0..1_500 {
        std::fs::write(directory.path().join(format!("f{number:04}")), "").unwrap();
    }
    std::fs::create_dir_all(directory.path().join(".git/objects")).unwrap();
    std::fs::write(directory.path().join(".git/objects/o"), "").unwrap();
    let files = rooted(directory.path(), Access::ReadOnly);
    let listed = perform(&files, "list_files", "{}").unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[999]), (1_002, "f0000", "f0999"));
    assert_eq!(lines[1_000], "[cut: 500 more files; give a narrower pattern]");
    assert_eq!(lines[1_001], "[left out: .git/; name it in `path` or `pattern` to list it]");
    for arguments in [r#"{"path":".git"}"#, r#"{"pattern":".git/**"}"#] {
        assert_eq!(perform(&files, "list_files", arguments).unwrap(), ".git/objects/o");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a model writes: nothing outside is read, changed or made.
    #[test]
    fn any_path_stays_beneath_the_root(parts in prop::collection::vec(
        prop::sample::select(vec![
            "..", ".", "", "sub", "deep", "up", "here", "directory_link", "chain_1", "magic_root", "elsewhere", "file",
            "proj", "keys", "new", "~", "fifo", "etc", "passwd", "dangling_out", "\u{2024}\u{2024}", "..;", "file_link",
        ]), 1..7), prefix in prop::sample::select(vec!["", "/", "./", "\\", "file://"])) {
        let (temporary, files) = trap();
        let path = format!("{prefix}{}", parts.join("/"));
        for (tool, arguments) in [
            ("read_file", json!({"path": path})),
            ("list_files", json!({"path": path})),
            ("list_files", json!({"pattern": path})),
            ("edit_file", json!({"path": path, "old": "canary", "new": "planted"})),
            ("write_file", json!({"path": path, "content": "planted"})),
        ] {
            let shown = perform(&files, tool, &arguments.to_string()).unwrap_or_default();
            prop_assert!(!shown.contains(OUTSIDE) && !shown.contains("root:"), "{} {:?}: {}", tool, path, shown);
        }
        assert_untouched(&temporary);
    }
}
