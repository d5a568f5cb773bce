//! Files that mean harm, or look like it: each gets a clear, located error, in bounded time and memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use llm_do::escape::is_deceptive;
use llm_do::model::name::ModelChoices;
use llm_do::project::Project;
use llm_do::project::link::Survey;
use llm_do::project::reach::Graph;
use llm_do::syntax::diagnostic::{Colour, Report};
use tempfile::TempDir;

const LARGEST_FILE: usize = 1024 * 1024;

/// A project directory of its own, gone with the test.
struct Files(TempDir);

fn files() -> Files {
    Files(TempDir::new().unwrap())
}

impl Files {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn with(self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Self {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// A manifest that lists one worker file.
    fn listing(self, worker: &str) -> Self {
        let listed = serde_json::to_string(worker).unwrap();
        self.with("project.json", format!("{{\"version\": 1, \"entry\": {{}},\n \"worker_files\": [{listed}]}}"))
    }

    fn survey(&self) -> Result<Survey, Report> {
        survey(self.path())
    }

    /// Every mistake as `file:line:column fact`, files beneath the directory.
    #[track_caller]
    fn mistakes(&self) -> Vec<String> {
        let report = self.survey().expect_err("the project has a mistake");
        mistakes(self.path(), &report)
    }

    #[track_caller]
    fn check(&self, expected: &str) {
        assert_eq!(self.mistakes(), [expected]);
    }
}

fn survey(path: &Path) -> Result<Survey, Report> {
    Project::load(path)?.survey(&ModelChoices::default(), None)
}

#[track_caller]
fn mistakes(root: &Path, report: &Report) -> Vec<String> {
    check_harmless(report);
    let root = format!("{}/", root.display());
    let json = serde_json::to_value(report.json()).unwrap();
    let one = |it: &serde_json::Value| {
        let file = it["file"].as_str().unwrap_or("").replace(&root, "");
        let place = match it["line"].as_u64() {
            Some(line) => format!("{file}:{line}:{}", it["column"]),
            None => file,
        };
        format!("{place} {}", it["message"].as_str().unwrap())
    };
    json.as_array().unwrap().iter().map(one).collect()
}

/// Nothing in a report can move the cursor, hide text or turn it around.
#[track_caller]
fn check_harmless(report: &Report) {
    let text = report.render(Colour::Plain);
    assert!(!text.chars().any(|c| c != '\n' && is_deceptive(c)), "{text:?}");
    let words = report.diagnostics().flat_map(|it| [Some(it.fact.clone()), it.hint.as_ref().map(ToString::to_string)]);
    let words = words.flatten();
    assert!(words.into_iter().all(|words| !words.chars().any(is_deceptive)), "whoever prints them is safe");
}

fn worker(name: &str, keys: &str) -> String {
    format!("---\nname: {name}\nmodel: ollama:q\n{keys}\n---\nDo it.\n")
}

#[test]
fn alias_bombs_are_refused() {
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..40 {
        writeln!(bomb, "a{level}: &a{level} [{}]", vec![format!("*a{}", level - 1); 10].join(",")).unwrap();
    }
    files().with("main.worker", worker("main", &bomb)).check("main.worker:8:38 more than 100000 values in one file");
    let text = format!("a: &x \"{}\"\nb: [{}]", "x".repeat(500_000), "*x,".repeat(90_000));
    files()
        .with("main.worker", worker("main", &text))
        .check("main.worker:5:26 more than 4194304 bytes of text, aliases expanded");
    let nested = format!("a: {}[{}]{}", "&a [".repeat(60), "x,".repeat(50_000), "]".repeat(60));
    files()
        .with("main.worker", worker("main", &nested))
        .check("main.worker:4:239 anchors inside anchors hold more than 100000 values or 4194304 bytes");
    let itself = worker("main", "schema_out: &x {a: *x}");
    let report = files().with("main.worker", itself).mistakes();
    assert_eq!(report, ["main.worker:4:20 an alias inside the value that it stands for"]);
}

#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{a: ", "- ", "? ", "a: &a [", "!x ["] {
        let found = files().with("main.worker", worker("main", &format!("x: {}", open.repeat(10_000)))).mistakes();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("main.worker:"), "{found:?}");
    }
    let block = (0..300).fold("x:\n".to_owned(), |text, level| format!("{text}{}y:\n", " ".repeat(level + 1)));
    let found = files().with("main.worker", worker("main", &block)).mistakes();
    assert!(found[0].starts_with("main.worker:"), "{found:?}");
    let json = format!("{{\"version\": {}", "[".repeat(100_000));
    let found = files().with("project.json", json).mistakes();
    assert!(found[0].starts_with("project.json:1:"), "{found:?}");
    let aliased = (1..40)
        .fold("a0: &a0 [x]\n".to_owned(), |text, level| format!("{text}a{level}: &a{level} [[[*a{}]]]\n", level - 1));
    files().with("main.worker", worker("main", &aliased)).check("main.worker:25:14 nested more than 64 levels deep");
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    let padding = |size: usize| {
        let start = worker("main", "");
        let rest = size - start.len();
        start + &"x".repeat(rest)
    };
    assert!(files().with("main.worker", padding(LARGEST_FILE)).survey().is_ok());
    files()
        .with("main.worker", padding(LARGEST_FILE + 1))
        .check("main.worker `main.worker`: larger than 1048576 bytes");
    files()
        .listing("main.worker")
        .with("main.worker", padding(LARGEST_FILE + 1))
        .check("project.json:2:19 `main.worker`: larger than 1048576 bytes");
    let manifest = format!("{{\"version\": 1{}}}", " ".repeat(LARGEST_FILE));
    files().with("project.json", manifest).check("project.json `project.json`: larger than 1048576 bytes");
    let schema = files().with("main.worker", worker("main", "schema_out_ref: big.json"));
    schema
        .with("big.json", " ".repeat(LARGEST_FILE + 1))
        .check("main.worker:4:17 `big.json`: larger than 1048576 bytes");
}

#[test]
fn unsafe_yaml_is_refused() {
    let cases = [
        ("entry: true\nentry: false", "main.worker:5:1 the key `entry` appears twice"),
        ("limits: {max_requests: 1, max_requests: 2}", "main.worker:4:27 the key `max_requests` appears twice"),
        (
            "description: !!python/object/apply:os.system ['id']",
            "main.worker:4:46 the tag `!!python/object/apply:os.system` is not allowed",
        ),
        ("description: !env HOME", "main.worker:4:19 the tag `!env` is not allowed"),
        ("? [a, b]\n: c", "main.worker:4:3 a key must be plain text"),
        ("<<: {entry: true}", "main.worker:4:1 unknown key `<<` in a worker file"),
    ];
    for (keys, expected) in cases {
        files().with("main.worker", worker("main", keys)).check(expected);
    }
    files()
        .with("main.worker", "---\n%YAML 1.2\nname: main\n---\n")
        .check("main.worker:2:1 not valid YAML: YAML directives are disallowed");
}

#[test]
fn what_editors_add_is_no_mistake() {
    let windows = format!("\u{feff}{}", worker("main", "entry: true").replace('\n', "\r\n"));
    let linked = files().with("main.worker", windows).survey().unwrap();
    assert_eq!(linked.program.agents["main"].instructions, "Do it.");
    let manifest =
        "\u{feff}{\"version\": 1,\r\n\"entry\": {\"agent\": \"main\"},\r\n\"worker_files\": [\"main.worker\"]}";
    let project = files().with("project.json", manifest).with("main.worker", worker("main", ""));
    assert!(project.survey().is_ok());
    let wrong = worker("main", "etnry: true").replace('\n', "\r\n");
    files().with("main.worker", wrong).check("main.worker:4:1 unknown key `etnry` in a worker file");
}

#[test]
fn what_is_no_text_says_so() {
    files()
        .with("main.worker", b"---\nname: main\n---\n\xff\xfe")
        .check("main.worker `main.worker`: not UTF-8: line 4, column 1");
    files()
        .with("project.json", b"{\"version\": 1, \"x\": \"\xc3\"}")
        .check("project.json `project.json`: not UTF-8: line 1, column 22");
    let utf16: Vec<u8> = "---\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    files().with("main.worker", utf16).check("main.worker:1:1 the file does not start with a line `---`");
}

#[test]
fn front_matter_is_at_the_very_start() {
    let cases = [
        ("```\n---\nname: main\n---\n```\n", "main.worker:1:1 the file does not start with a line `---`"),
        ("# Title\n---\nname: main\n---\n", "main.worker:1:1 the file does not start with a line `---`"),
        ("---\nname: main\nDo it.\n", "main.worker:1:1 the front matter has no end"),
        ("", "main.worker:1:1 the file is empty"),
        ("\u{feff}", "main.worker:1:1 the file is empty"),
    ];
    for (text, expected) in cases {
        files().with("main.worker", text).check(expected);
    }
}

#[test]
fn paths_stay_inside_the_project() {
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret.worker"), worker("main", "")).unwrap();
    fs::create_dir(outside.path().join("workers")).unwrap();
    fs::write(outside.path().join("workers/secret.yaml"), "name: secret\nmodel: ollama:q\n").unwrap();
    let absolute = outside.path().join("secret.worker");
    let leaves = |path: &str| format!("project.json:2:19 `{path}`: leads outside the root");

    for path in ["../secret.worker", "a/../../b.worker", "..", "/etc/passwd", absolute.to_str().unwrap()] {
        files().listing(path).check(&leaves(path));
    }
    files().listing("a\0b.worker").check("project.json:2:19 `a\\u{0}b.worker`: leads outside the root");

    let linked = files().listing("link.worker");
    symlink(&absolute, linked.path().join("link.worker")).unwrap();
    linked.check(&leaves("link.worker"));

    let directory = files().listing("dir/secret.worker");
    symlink(outside.path(), directory.path().join("dir")).unwrap();
    directory.check(&leaves("dir/secret.worker"));

    let around = files().listing("in/../main.worker").with("main.worker", worker("main", "entry: true"));
    assert!(around.survey().is_ok(), "inside after all");

    // A link inside the project is as good as a file.
    let inner = files().listing("link.worker").with("real.worker", worker("main", "entry: true"));
    symlink("real.worker", inner.path().join("link.worker")).unwrap();
    assert!(inner.survey().is_ok());

    // A directory that is a link to the outside is not looked into.
    let tree = files().with("main.worker", worker("main", ""));
    symlink(outside.path().join("workers"), tree.path().join("workers")).unwrap();
    assert_eq!(tree.survey().unwrap().program.agents.len(), 1);

    for (keys, path) in [
        ("schema_in_ref: ../x.json", "../x.json"),
        ("schema_in_ref: ../../x.py:Y", "../../x.py"),
        ("schema_out_ref: /etc/x.json", "/etc/x.json"),
    ] {
        let found = files().with("main.worker", worker("main", keys)).mistakes();
        assert!(found[0].ends_with(&format!("`{path}`: leads outside the root")), "{found:?}");
    }
    let made =
        "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"main.worker\"],\n\"generated_agents_dir\": \"/home\"}";
    files()
        .with("project.json", made)
        .with("main.worker", worker("main", "entry: true"))
        .check("project.json:2:25 `/home`: leads outside the root");
}

#[test]
fn only_regular_files_are_read() {
    let not_regular = "project.json:2:19 `main.worker`: not a regular file";
    let directory = files().listing("main.worker");
    fs::create_dir(directory.path().join("main.worker")).unwrap();
    directory.check(not_regular);

    // Nobody ever writes to it: opening must not wait.
    let fifo = files().listing("main.worker");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fifo.path().join("main.worker"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    fifo.check(not_regular);

    let endless = files().listing("main.worker");
    symlink("/dev/zero", endless.path().join("main.worker")).unwrap();
    endless.check("project.json:2:19 `main.worker`: leads outside the root");

    let itself = files().listing("main.worker");
    symlink("main.worker", itself.path().join("main.worker")).unwrap();
    let found = itself.mistakes();
    assert!(found[0].starts_with("project.json:2:19 `main.worker`: cannot be read: "), "{found:?}");

    files().listing("gone.worker").check("project.json:2:19 `gone.worker`: no such file");
    files().listing("main.txt").check("project.json:2:19 `main.txt` is not a worker file");
}

#[test]
fn a_device_or_a_pipe_is_no_project() {
    for path in ["/dev/zero", "/dev/null"] {
        let report = survey(Path::new(path)).unwrap_err();
        assert_eq!(mistakes(Path::new("/"), &report), [format!("{path} neither a file nor a directory")]);
    }
}

#[test]
fn names_cannot_deceive() {
    let nasty = "\u{1b}[2J\u{202e}evil\u{200b}\u{7}\u{9b}1m\r";
    let escaped = "\\u{1b}[2J\\u{202e}evil\\u{200b}\\u{7}\\u{9b}1m\\r";
    let listed = serde_json::to_string(nasty).unwrap().replace('\u{9b}', "\\u009b");
    let manifest = format!(
        "{{\"version\": 1, \"entry\": {{\"agent\": {listed}}}, {listed}: 1,\n\"worker_files\": [{listed}, \"main.worker\"],\n\
         \"toolsets\": {{{listed}: {{{listed}: 1}}}}, \"env\": [{listed}],\n\"generated_agents_dir\": {listed}}}"
    );
    let found = files().with("project.json", manifest).with("main.worker", worker("main", "")).mistakes();
    assert!(found.len() >= 5, "{found:#?}");
    assert!(found.iter().any(|it| it.contains(escaped)), "{found:#?}");

    let keys = format!(
        "{listed}: 1\ntoolsets: [{listed}]\nmodel_settings: {{{listed}: {listed}}}\nprompt: \"{{{{ x\u{202e} }}}}\""
    );
    let found = files().with("main.worker", worker("main", &keys)).mistakes();
    assert!(found.len() >= 3, "{found:#?}");

    // Names of files come from elsewhere too.
    let odd = std::ffi::OsStr::from_bytes(b"\x1b[2J\n\xe2\x80\xae-\xff.worker");
    let report = files().with(odd, "---\nname: [\n---\n").survey().unwrap_err();
    check_harmless(&report);
    assert_eq!(report.error_count(), 1);
}

#[test]
fn ten_thousand_agents_link() {
    let mut files = files();
    let mut listed = Vec::new();
    for index in 0..10_000 {
        let name = format!("agent{index:05}");
        let keys = format!("toolsets: [agent{:05}, filesystem_cwd]", (index + 1) % 10_000);
        files = files.with(format!("{name}.worker"), worker(&name, &keys));
        listed.push(format!("\"{name}.worker\""));
    }
    let manifest = format!(
        "{{\"version\": 1, \"entry\": {{\"agent\": \"agent00000\"}}, \"worker_files\": [{}]}}",
        listed.join(",")
    );
    let linked = files.with("project.json", manifest).survey().unwrap();
    assert_eq!(linked.program.agents.len(), 10_000);
    assert_eq!(Graph::new(&linked.program).worst_cases().len(), 10_000);
}

#[test]
fn ten_thousand_agents_with_an_unknown_toolset_each_are_reported_in_bounded_time() {
    let mut files = files();
    for index in 0..10_000 {
        let keys = format!("toolsets: [unknown{index}]\nallow_workers: [nobody{index}]");
        files = files.with(format!("agent{index:05}.worker"), worker(&format!("agent{index:05}"), &keys));
    }
    let report = files.survey().unwrap_err();
    assert_eq!(report.error_count(), 20_001, "and there is no entry");
    assert!(report.to_string().ends_with(" more"));
    check_harmless(&report);
}

#[test]
fn a_hundred_thousand_unknown_keys_are_counted() {
    let manifest: Vec<String> = (0..40_000).map(|index| format!("\"key{index}\": 1")).collect();
    let report = files().with("project.json", format!("{{{}}}", manifest.join(",\n"))).survey().unwrap_err();
    assert_eq!(report.error_count(), 40_002, "and `version` and `entry` are missing");
    // Twice as many values as a file may have.
    let keys: Vec<String> = (0..100_000).map(|index| format!("k{index}: 1")).collect();
    files()
        .with("main.worker", worker("main", &keys.join("\n")))
        .check("main.worker:50001:9 more than 100000 values in one file");
}

#[test]
fn many_variants_and_many_rules_stay_linear() {
    let variants: Vec<String> =
        (0..20_000).map(|index| format!("\"v{index}\": {{\"use\": \"nothing{index}\"}}")).collect();
    let manifest = format!(
        "{{\"version\": 1, \"entry\": {{\"agent\": \"main\"}}, \"worker_files\": [\"main.worker\"],\n\"toolsets\": {{{}}}}}",
        variants.join(",\n")
    );
    let report = files().with("project.json", manifest).with("main.worker", worker("main", "")).survey().unwrap_err();
    assert_eq!(report.error_count(), 20_000);
    let rules: Vec<String> = (0..40_000).map(|index| format!("r{index}: ask")).collect();
    let report = files()
        .with("main.worker", worker("main", &format!("approval: {{{}}}", rules.join(", "))))
        .survey()
        .unwrap_err();
    assert_eq!(report.error_count(), 40_000);
}

#[test]
fn what_was_created_in_another_run_is_no_agent_of_the_project() {
    let project = files()
        .with("main.worker", worker("main", ""))
        .with("workers/generated/worker.yaml", "name: worker\nmodel: ollama:q\n")
        .with("workers/plain.yaml", "name: plain\nmodel: ollama:q\n")
        .with("workers/own/worker.yaml", "name: own\nmodel: ollama:q\n")
        .with("workers/own/other.yaml", "not looked at: [")
        .with("workers/notes.txt", "nor this");
    let names: Vec<String> = project.survey().unwrap().program.agents.keys().cloned().collect();
    assert_eq!(names, ["main", "own", "plain"], "whether it was made here is known when it is called");
}
