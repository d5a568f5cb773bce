//! What a search finds, and what it leaves out.

use serde_json::{Value, json};

use super::*;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Filesystem) {
    let directory = temporary();
    for (path, text) in files {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let files = rooted(directory.path(), Access::ReadOnly);
    (directory, files)
}

fn search(files: &Filesystem, arguments: &Value) -> Result<String, String> {
    assert_eq!(verdict(files, "search_files", arguments), Ok(Verdict::Allow));
    perform(files, "search_files", &arguments.to_string())
}

#[track_caller]
fn check(files: &Filesystem, arguments: &Value, expected: &str) {
    assert_eq!(search(files, arguments).unwrap(), expected, "{arguments}");
}

#[test]
fn lines_that_match_come_by_file_with_their_numbers() {
    let (_kept, files) = tree(&[
        ("a.md", "one\nTwo ships\nthree\nfour\n"),
        ("src/b.rs", "fn ships() {}\r\n"),
        ("src/deep/c.rs", "// a.b\n// aXb\n"),
        ("no-end.txt", "last ship"),
    ]);
    check(
        &files,
        &json!({"pattern": "ships?"}),
        "a.md\n2: Two ships\n\nno-end.txt\n1: last ship\n\nsrc/b.rs\n1: fn ships() {}\n",
    );
    check(&files, &json!({"pattern": "(?i)two", "context": 1}), "a.md\n1- one\n2: Two ships\n3- three\n");
    check(&files, &json!({"pattern": "a.b", "literal": true}), "src/deep/c.rs\n1: // a.b\n");
    check(&files, &json!({"pattern": "ship", "path": "src"}), "src/b.rs\n1: fn ships() {}\n");
    check(&files, &json!({"pattern": "ship", "path": "no-end.txt"}), "no-end.txt\n1: last ship\n");
    check(&files, &json!({"pattern": "//", "glob": "*.rs"}), "src/deep/c.rs\n1: // a.b\n2: // aXb\n");
    check(&files, &json!({"pattern": "//", "glob": "src/*.rs"}), "[no line matches]");
    check(&files, &json!({"pattern": "^fn.*}$"}), "src/b.rs\n1: fn ships() {}\n");
    check(&files, &json!({"pattern": "one|four", "context": 1}), "a.md\n1: one\n2- Two ships\n3- three\n4: four\n");
    check(
        &files,
        &json!({"pattern": "//", "max": 1}),
        "src/deep/c.rs\n1: // a.b\n\n[cut: more lines match; narrow `pattern`, `path` or `glob`, or raise `max`]",
    );
}

#[test]
fn what_cannot_be_searched_for_is_said() {
    let (_kept, files) = tree(&[("a.md", "one\n")]);
    for (arguments, reason) in [
        (json!({"pattern": ""}), "the pattern is empty; `list_files` lists files"),
        (
            json!({"pattern": "a("}),
            "the pattern is no regular expression: unclosed group; with `literal` it is plain text",
        ),
        (json!({"pattern": "a\nb"}), "the pattern has a line break in it: files are searched line by line"),
        (
            json!({"pattern": "(a{1000}){1000}"}),
            "the pattern is no regular expression: compiled regex exceeds size limit of 2097152; with `literal` it is plain text",
        ),
        (
            json!({"pattern": "a", "glob": "../*"}),
            "the pattern leads outside: it is relative to `path` and has no `..`",
        ),
        (
            json!({"pattern": "a", "path": "../b"}),
            "`../b` leads outside with `..`; paths are relative to the root and stay beneath it",
        ),
        (json!({"pattern": "a", "path": "none"}), "`none` does not exist; `list_files` shows what is there"),
    ] {
        assert_eq!(search(&files, &arguments).unwrap_err(), reason);
    }
}

#[test]
fn what_gitignore_names_is_left_out() {
    let (kept, files) = tree(&[
        (".gitignore", "# built\n/out/\n*.log\n!keep.log\n"),
        ("out/a.txt", "word"),
        ("deep/out/a.txt", "word"),
        ("x.log", "word"),
        ("keep.log", "word"),
        ("deep/.gitignore", "keep.log\nmine/*\n!mine/b.txt\n"),
        ("deep/keep.log", "word"),
        ("deep/mine/a.txt", "word"),
        ("deep/mine/b.txt", "word"),
        ("deeper/keep.log", "word"),
        (".git/HEAD", "word"),
        ("node_modules/m/index.js", "word"),
    ]);
    let found = |arguments: Value| {
        let text = search(&files, &arguments).unwrap();
        text.lines().filter(|line| line.contains('.')).map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let all = "deep/mine/b.txt deep/out/a.txt deeper/keep.log keep.log \
               [left out: .git/, node_modules/; name it in `path` or `glob` to search it]";
    assert_eq!(found(json!({"pattern": "word"})), all);
    assert_eq!(found(json!({"pattern": "word", "path": "deep"})), "deep/mine/b.txt deep/out/a.txt");
    // Whoever names a place means it.
    assert_eq!(found(json!({"pattern": "word", "path": "out"})), "out/a.txt");
    assert_eq!(found(json!({"pattern": "word", "path": "x.log"})), "x.log");
    assert_eq!(found(json!({"pattern": "word", "path": ".git"})), ".git/HEAD");
    // A link that leads outside says nothing.
    let outside = temporary();
    std::fs::write(outside.path().join("ignore"), "*").unwrap();
    std::fs::remove_file(kept.path().join(".gitignore")).unwrap();
    symlink(outside.path().join("ignore"), kept.path().join(".gitignore")).unwrap();
    assert!(found(json!({"pattern": "word"})).contains("x.log"));
}

#[test]
fn secrets_and_what_is_no_text_are_skipped_and_counted() {
    let (kept, files) = tree(&[
        (".env", "KEY=word"),
        ("id_rsa", "word"),
        ("notes.md", "word"),
        ("picture", "word\nword\0word"),
        ("utf-16.txt", "\u{fffd}"),
    ]);
    let root = kept.path();
    std::fs::write(root.join("utf-16.txt"), b"\xff\xfew\0o\0r\0d\0").unwrap();
    // Another name of a secret is one; a link is not followed, so that nothing is found twice.
    std::fs::hard_link(root.join(".env"), root.join("plain.txt")).unwrap();
    std::fs::hard_link(root.join("notes.md"), root.join("notes too.md")).unwrap();
    symlink("notes.md", root.join("link.md")).unwrap();
    check(
        &files,
        &json!({"pattern": "word"}),
        "notes too.md\n1: word\n\nnotes.md\n1: word\n\nutf-16.txt\n1: word\n\n\
         [skipped: 3 files that may hold secrets; `read_file` asks before it reads one]\n[skipped: one binary file]",
    );
    check(
        &files,
        &json!({"pattern": "word", "path": ".env"}),
        "[no line matches]\n[skipped: one file that may hold secrets; `read_file` asks before it reads it]",
    );
    let root = FileRoot {
        base: Base::Absolute(root.to_owned()),
        access: Access::ReadOnly,
        suffixes: vec![".md".to_owned()],
        max_file_bytes: Some(3),
    };
    check(
        &opened(root, &ProtectedFiles::default()),
        &json!({"pattern": "word"}),
        "[no line matches]\n[skipped: 2 files that are too large]",
    );
}

#[test]
fn long_lines_are_shown_around_what_matches_and_long_results_end() {
    let long = format!("{}needle{}\n", "ä".repeat(1_000), "z".repeat(1_000));
    let many = "needle in a line\n".repeat(20_000);
    let (_kept, files) = tree(&[("a.txt", &long), ("b.txt", &many)]);
    let text = search(&files, &json!({"pattern": "needle", "glob": "a.txt"})).unwrap();
    let line = text.lines().nth(1).unwrap();
    assert!(line.starts_with("1: …ä") && line.ends_with("z…") && line.contains("äneedlez"), "{line}");
    assert!(line.len() < 420, "{line}");
    let text = search(&files, &json!({"pattern": "needle", "glob": "b.txt", "max": 1_000_000})).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("needle")).count(), 1_000);
    assert!(text.ends_with("or raise `max`]"), "{text}");
}

#[test]
fn all_roots_with_names_are_searched_together() {
    let (one, two) = (temporary(), temporary());
    std::fs::write(one.path().join("a.txt"), "word").unwrap();
    std::fs::write(two.path().join("b.txt"), "word").unwrap();
    let root = |path: &Path| FileRoot {
        base: Base::Absolute(path.to_owned()),
        access: Access::ReadOnly,
        suffixes: Vec::new(),
        max_file_bytes: None,
    };
    let roots = [("in".to_owned(), root(one.path())), ("out".to_owned(), root(two.path()))];
    let config = FilesystemConfig { roots: Roots::Named(roots.into()) };
    let files = Filesystem::open(&config, &FileBases::of(Path::new("/nowhere")), &ProtectedFiles::default()).unwrap();
    check(&files, &json!({"pattern": "word"}), "in/a.txt\n1: word\n\nout/b.txt\n1: word\n");
    check(&files, &json!({"pattern": "word", "path": "out"}), "out/b.txt\n1: word\n");
    check(&files, &json!({"pattern": "word", "glob": "in/*"}), "in/a.txt\n1: word\n");
}

#[test]
fn a_search_that_nobody_waits_for_ends() {
    let (_kept, files) = tree(&[("a.txt", "word\n")]);
    let call = permitted(&files, "search_files", r#"{"pattern":"word"}"#).unwrap();
    let cancellation = CancellationToken::new();
    cancellation.cancel();
    assert_eq!(files.perform(&call, &cancellation), Ok("[no line matches]".to_owned()));
}
