//! Wrong files, one row for each: `check` says what is wrong, where, and what to write instead.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use support::{Ended, Sandbox};

/// One mistake: the files that have it, and what is said about it.
struct Mistake {
    name: &'static str,
    files: Vec<(&'static str, String)>,
    /// `file:line:column`, or the file alone where there is no line to show. None where nothing is said.
    place: &'static str,
    /// Each stands in what is said.
    says: Vec<String>,
    code: i32,
}

/// Said of the project as a whole.
const NOWHERE: &str = "nowhere";
const HEAD: &str = "---\nname: main\nmodel: anthropic:claude-haiku-4-5\ntoolsets: [filesystem_cwd, shell_readonly]\n";
const MANIFEST: &str =
    "{\n  \"version\": 1,\n  \"entry\": { \"agent\": \"main\" },\n  \"worker_files\": [\"main.worker\"]";

/// The usual agent, with these lines before the end of its keys: they begin with line 5.
fn worker(lines: &str) -> (&'static str, String) {
    ("main.worker", format!("{HEAD}{lines}---\nDo it.\n"))
}

/// The usual agent without its `line`, with others in its place.
fn instead(line: &str, lines: &str) -> (&'static str, String) {
    let text = format!("{HEAD}---\nDo it.\n");
    assert!(text.contains(line), "{line}");
    ("main.worker", text.replace(line, lines))
}

/// The usual manifest, with these lines before its end: they begin with line 5.
fn manifest(lines: &str) -> (&'static str, String) {
    let comma = if lines.is_empty() { "" } else { "," };
    ("project.json", format!("{MANIFEST}{comma}\n{lines}\n}}\n"))
}

/// The usual manifest with something else in the place of a part.
fn manifest_with(part: &str, other: &str) -> (&'static str, String) {
    let text = format!("{MANIFEST}\n}}\n");
    assert!(text.contains(part), "{part}");
    ("project.json", text.replace(part, other))
}

fn file(path: &'static str, text: &str) -> (&'static str, String) {
    (path, text.to_owned())
}

fn mistake<const FILES: usize, const WORDS: usize>(
    name: &'static str,
    files: [(&'static str, String); FILES],
    place: &'static str,
    says: [&str; WORDS],
) -> Mistake {
    let says = says.into_iter().map(str::to_owned).collect();
    Mistake { name, files: files.into(), place, says, code: 2 }
}

/// The same where nothing is refused.
fn allowed<const FILES: usize, const WORDS: usize>(
    name: &'static str,
    files: [(&'static str, String); FILES],
    place: &'static str,
    says: [&str; WORDS],
) -> Mistake {
    Mistake { code: 0, ..mistake(name, files, place, says) }
}

fn misspelled() -> Vec<Mistake> {
    vec![
        mistake(
            "1: a key of a worker file",
            [instead("toolsets", "toolset")],
            "main.worker:4:1",
            ["error: unknown key `toolset` in a worker file", "did you mean `toolsets`?"],
        ),
        mistake(
            "2: a key of the manifest",
            [worker(""), manifest_with("worker_files", "workers")],
            "project.json:4:3",
            ["error: unknown key `workers` in the manifest", "did you mean `worker_files`?"],
        ),
        mistake(
            "3: a limit",
            [worker("limits: {max_request: 3}\n")],
            "main.worker:5:10",
            ["error: unknown key `max_request` in `limits`", "did you mean `max_requests`?"],
        ),
        mistake(
            "5: a worker file that is not there",
            [worker(""), manifest_with("main.worker", "helper.worker")],
            "project.json:4:20",
            ["error: `helper.worker`: no such file", "hint: worker files: main.worker"],
        ),
        mistake(
            "5: a worker file that is not there, and none that is",
            [manifest_with("main.worker", "helper.worker")],
            "project.json:4:20",
            ["error: `helper.worker`: no such file", "hint: `llm-do new --worker helper` writes one to start from"],
        ),
        mistake(
            "8: a toolset that nearly has that name",
            [instead("[filesystem_cwd, shell_readonly]", "[filesystem]")],
            "main.worker:4:12",
            [
                "error: agent `main` asks for an unknown toolset `filesystem`",
                "did you mean `filesystem_cwd`? toolsets: ",
            ],
        ),
        mistake(
            "8: a toolset by the name of what it does",
            [instead("[filesystem_cwd, shell_readonly]", "[bash]")],
            "main.worker:4:12",
            ["unknown toolset `bash`", "did you mean `shell_readonly`? toolsets: "],
        ),
        mistake(
            "8: a tool in the place of its toolset",
            [instead("[filesystem_cwd, shell_readonly]", "[read_file]")],
            "main.worker:4:12",
            ["unknown toolset `read_file`", "did you mean `filesystem_cwd`? toolsets: "],
        ),
        mistake(
            "9: a rule for a tool",
            [worker("approval:\n  write_fil: allow\n")],
            "main.worker:6:3",
            ["error: agent `main` has no tool `write_fil`", "did you mean `write_file`? tools: "],
        ),
    ]
}

fn misspelled_names() -> Vec<Mistake> {
    vec![
        mistake(
            "10: a provider",
            [instead("anthropic:", "antropic:")],
            "main.worker:3:8",
            ["unknown provider `antropic`", "did you mean `anthropic:claude-haiku-4-5`?"],
        ),
        mistake(
            "11: a model without its provider",
            [instead("anthropic:", "")],
            "main.worker:3:8",
            ["the model `claude-haiku-4-5` names no provider", "write `anthropic:claude-haiku-4-5`"],
        ),
        allowed(
            "12: a model that nearly is a known one",
            [instead("4-5", "4.5")],
            "main.worker:3:8",
            [
                "warning: `anthropic` is not known to have the model `claude-haiku-4.5`",
                "hint: did you mean `claude-haiku-4-5`?",
                "1 warning\n",
            ],
        ),
        mistake(
            "30: the entry",
            [worker(""), manifest_with("\"agent\": \"main\"", "\"agent\": \"mian\"")],
            "project.json:3:23",
            ["error: there is no agent `mian` to start with", "did you mean `main`?"],
        ),
        mistake(
            "32: a rule",
            [worker("approval:\n  write_file: always\n")],
            "main.worker:6:15",
            ["expected one of `allow`, `ask`, `block`, found the text `always`", "values: allow, ask, block"],
        ),
        mistake(
            "45: a directory to read",
            [
                worker(""),
                manifest("  \"toolsets\": {\"notes\": {\"filesystem\": {\"root\": \"nots\", \"mode\": \"ro\"}}}"),
                file("notes/a.md", ""),
            ],
            "project.json:5:49",
            ["error: the directory `nots` is not there", "did you mean `notes`?"],
        ),
        mistake(
            "56: a name in a prompt",
            [worker(
                "schema_in: {type: object, properties: {topic: {type: string}}, required: [topic]}\nprompt: \"{{ topc }}\"\n",
            )],
            "main.worker:6:9",
            ["`topc`", "did you mean `topic`?"],
        ),
    ]
}

fn yaml() -> Vec<Mistake> {
    vec![
        mistake(
            "4: one space too many",
            [worker("approval:\n  write_file: ask\n   edit_file: block\n")],
            "main.worker:7:4",
            ["error: 3 spaces here, 2 above", "hint: write `  edit_file: block`"],
        ),
        mistake(
            "4: one space too few",
            [worker("approval:\n   write_file: ask\n  edit_file: block\n")],
            "main.worker:7:3",
            ["error: 2 spaces here, 3 above", "hint: write `   edit_file: block`"],
        ),
        mistake(
            "6: a text where a list belongs",
            [instead("[filesystem_cwd, shell_readonly]", "filesystem_cwd")],
            "main.worker:4:11",
            ["expected a list (a name each), found the text `filesystem_cwd`", "write `[filesystem_cwd]`"],
        ),
        mistake(
            "7: a text where a number belongs",
            [worker("limits:\n  max_requests: \"ten\"\n")],
            "main.worker:6:17",
            ["expected a whole number of at least 1, found the text `ten`", "write a number, such as `10`"],
        ),
        mistake(
            "7: a number in quotes",
            [worker("limits:\n  max_requests: \"10\"\n")],
            "main.worker:6:17",
            ["expected a whole number of at least 1, found the text `10`", "write `10`, without quotes"],
        ),
        mistake(
            "16: a tab",
            [worker("approval:\n\twrite_file: ask\n")],
            "main.worker:6:1",
            ["error: YAML is indented with spaces, and this is a tab", "hint: write `  write_file: ask`"],
        ),
        allowed(
            "17: lines that end as on Windows",
            [("main.worker", format!("{HEAD}---\nDo it.\n").replace('\n', "\r\n"))],
            "",
            [],
        ),
        allowed("18: a byte order mark", [("main.worker", format!("\u{feff}{HEAD}---\nDo it.\n"))], "", []),
        mistake(
            "22: front matter without an end",
            [("main.worker", format!("{HEAD}Do it.\n"))],
            "main.worker:1:1",
            ["error: the front matter has no end", "put a line `---` after the keys"],
        ),
        mistake(
            "23: no front matter",
            [file("main.worker", "Do it.\n")],
            "main.worker:1:1",
            ["error: the file does not start with a line `---`", "put the keys between two lines `---`"],
        ),
        mistake(
            "24: an empty file",
            [file("main.worker", "")],
            "main.worker:1:1",
            ["error: the file is empty", "`llm-do new --worker main` writes one to start from"],
        ),
    ]
}

fn yaml_values() -> Vec<Mistake> {
    vec![
        mistake(
            "29: a key twice",
            [worker("locked: true\nlocked: false\n")],
            "main.worker:6:1",
            ["error: the key `locked` appears twice", "the first one at main.worker:5:1", "remove one of the two"],
        ),
        mistake(
            "33: a list where rules belong",
            [worker("approval: [write_file]\n")],
            "main.worker:5:11",
            ["expected a mapping, found a list", "write `approval: { write_file: ask }`"],
        ),
        mistake(
            "36: a name with a blank",
            [instead("name: main", "name: My Agent")],
            "main.worker:2:7",
            ["error: `My Agent` is not a name", "names have 1 to 64 letters, digits, `_` or `-`: `My-Agent`"],
        ),
        mistake(
            "37: no name",
            [instead("name: main\n", "")],
            "main.worker:2:1",
            ["error: `name` is missing in a worker file", "write `name: main`"],
        ),
        mistake(
            "38: a colon in a text",
            [worker("description: Note: writes poems\n")],
            "main.worker:5:18",
            ["put a text that holds `: ` in quotes: `\"Note: writes poems\"`"],
        ),
        mistake(
            "39: a text that begins with a brace",
            [worker("description: {topic} writer\n")],
            "main.worker:5:14",
            ["error: a text that begins with `{` needs quotes", "write `\"{topic} writer\"`"],
        ),
        mistake(
            "40: a text that begins with an at sign",
            [worker("description: @home writer\n")],
            "main.worker:5:14",
            ["error: a text that begins with `@` needs quotes", "write `\"@home writer\"`"],
        ),
        mistake(
            "41: a setting that is too large",
            [worker("model_settings: {temperature: 3}\n")],
            "main.worker:5:31",
            ["expected a number from 0 to 2, found the number `3`", "hint: write `2`, or less"],
        ),
        mistake(
            "57: another YAML's words for true",
            [worker("entry: yes\nlocked: on\n")],
            "main.worker:5:8",
            ["expected `true` or `false`, found the text `yes`", "hint: write `true`", "2 errors\n"],
        ),
    ]
}

fn json() -> Vec<Mistake> {
    vec![
        mistake(
            "19: a comment",
            [worker(""), manifest_with("  \"version\"", "  // ours\n  \"version\"")],
            "project.json:2:3",
            ["error: not valid JSON: ", "JSON has no comments"],
        ),
        mistake(
            "20: a comma at the end",
            [worker(""), manifest_with("[\"main.worker\"]", "[\"main.worker\"],")],
            "project.json:5:1",
            ["error: not valid JSON: ", "remove the comma before it"],
        ),
        mistake(
            "21: single quotes",
            [worker(""), manifest_with("\"version\"", "'version'")],
            "project.json:2:3",
            ["error: not valid JSON: ", "JSON has double quotes only"],
        ),
        mistake(
            "29: a key twice",
            [worker(""), manifest("  \"version\": 1")],
            "project.json:5:3",
            ["error: the key `version` appears twice", "the first one at project.json:2:3"],
        ),
        mistake(
            "34: another version",
            [worker(""), manifest_with("\"version\": 1", "\"version\": 2")],
            "project.json:2:14",
            ["error: this program reads version 1", "hint: write `\"version\": 1`"],
        ),
        mistake(
            "35: no version",
            [worker(""), manifest_with("  \"version\": 1,\n", "")],
            "project.json:1:1",
            ["error: `version` is missing in the manifest", "hint: write `\"version\": 1,` as the first line"],
        ),
        mistake(
            "57: an entry that is a text",
            [worker(""), manifest_with("{ \"agent\": \"main\" }", "\"main\"")],
            "project.json:3:12",
            ["expected an object, found the text `main`", "hint: write `\"entry\": { \"agent\": \"main\" }`"],
        ),
        mistake(
            "in JSON it is an object",
            [worker(""), manifest("  \"runtime\": []")],
            "project.json:5:14",
            ["error: expected an object, found a list"],
        ),
        mistake(
            "in JSON it is an object, found where a list belongs",
            [worker(""), manifest_with("[\"main.worker\"]", "{}")],
            "project.json:4:19",
            ["error: expected a list (a text each), found an object"],
        ),
    ]
}

fn schemas() -> Vec<Mistake> {
    vec![
        mistake(
            "14: two types that are none",
            [worker("schema_out: {type: objekt, properties: {a: {type: strng}}}\n")],
            "main.worker:5:20",
            [
                "error: `objekt` is no type: object, array, string, number, integer, boolean, null",
                "hint: did you mean `object`?",
                "error: `strng` is no type: ",
                "--> main.worker:5:51",
                "hint: did you mean `string`?",
                "2 errors\n",
            ],
        ),
        mistake(
            "14: in lines of their own, and of an input",
            [worker("schema_in:\n  type: objekt\n  properties:\n    a: {type: strng}\n")],
            "main.worker:6:9",
            ["error: `objekt` is no type: ", "error: `strng` is no type: ", "--> main.worker:8:15", "2 errors\n"],
        ),
        mistake(
            "14: in a file of its own",
            [
                worker("schema_out_ref: out.json\n"),
                file("out.json", "{\n  \"type\": \"objekt\",\n  \"properties\": {\"a\": {\"type\": \"strng\"}}\n}\n"),
            ],
            "out.json:2:11",
            ["error: `objekt` is no type: ", "error: `strng` is no type: ", "--> out.json:3:32", "2 errors\n"],
        ),
        mistake(
            "15: a property that says that it is required",
            [worker("schema_out: {type: object, properties: {a: {type: string, required: true}}}\n")],
            "main.worker:5:69",
            ["error: `required` is a list beside `properties`", "hint: write `required: [a]` there", "1 error\n"],
        ),
    ]
}

fn projects() -> Vec<Mistake> {
    let helper = |toolsets: &str| {
        ("helper.worker", format!("---\nname: helper\nmodel: ollama:qwen3\ntoolsets: [{toolsets}]\n---\nHelp.\n"))
    };
    vec![
        allowed(
            "13: two agents that call each other",
            [instead("[filesystem_cwd, shell_readonly]", "[helper]"), helper("main")],
            "",
            ["↺ cycle"],
        ),
        mistake(
            "28: two agents of one name",
            [worker(""), ("other.worker", format!("{HEAD}---\nDo it.\n"))],
            "other.worker:2:7",
            ["error: a second agent with the name `main`", "the first one at main.worker:2:7"],
        ),
        mistake(
            "31: several agents and no entry",
            [helper(""), ("other.worker", format!("{HEAD}---\nDo it.\n").replace("main", "other"))],
            ".",
            ["error: the project has no entry", "mark one with `entry: true`", "agents: helper, other"],
        ),
        allowed(
            "43: no instructions",
            [("main.worker", format!("{HEAD}---\n"))],
            "main.worker:2:7",
            ["warning: agent `main` has no instructions", "hint: write what it does below the second line `---`"],
        ),
        mistake(
            "44: a file outside",
            [worker(""), manifest_with("main.worker", "../other/main.worker")],
            "project.json:4:20",
            [
                "error: `../other/main.worker`: ",
                "paths are relative to their file and stay inside the project",
                "1 error\n",
            ],
        ),
        mistake(
            "46: a shell that may run anything",
            [
                worker(""),
                manifest(
                    "  \"toolsets\": {\"sh\": {\"shell\": {\"rules\": [{\"pattern\": \"bash -c\", \"approval\": \"allow\"}]}}}",
                ),
            ],
            "project.json:5:55",
            ["error: the rule allows too much: `bash` runs any code", "mark the rule with `\"i_understand\": true`"],
        ),
        mistake(
            "47: an empty directory",
            [],
            ".",
            [
                "error: neither a manifest nor worker files in this directory",
                "`llm-do new hello` writes a project to start from",
            ],
        ),
    ]
}

fn endings_and_programs() -> Vec<Mistake> {
    vec![
        mistake(
            "48: an ending in capitals",
            [("main.Worker", worker("").1)],
            "main.Worker",
            [
                "error: neither a manifest nor worker files in this directory",
                "hint: saw `main.Worker`: worker files end in `.worker`",
            ],
        ),
        mistake(
            "49: Markdown alone",
            [("main.md", worker("").1)],
            "main.md",
            [
                "neither a manifest nor worker files",
                "hint: saw `main.md`: name it in `worker_files`, or rename it to `main.worker`",
            ],
        ),
        allowed(
            "49: Markdown that is named",
            [("main.md", worker("").1), manifest_with("main.worker", "main.md")],
            "",
            ["(main.md)"],
        ),
        allowed(
            "50: no model",
            [instead("model: anthropic:claude-haiku-4-5\n", "")],
            NOWHERE,
            ["note: main has no model yet", "`llm-do models --use", "no model yet  (main.worker)", "ok: 1 agent, "],
        ),
        mistake(
            "52: a key of a provider for children",
            [worker(""), manifest("  \"env\": [\"ANTHROPIC_API_KEY\"]")],
            "project.json:5:11",
            [
                "error: `ANTHROPIC_API_KEY` holds the key of a model provider",
                "give the tool a variable and a key of its own",
            ],
        ),
        allowed(
            "53: a server whose program is not there",
            [worker(""), manifest("  \"toolsets\": {\"m\": {\"mcp\": {\"command\": \"no-such-server\"}}}")],
            "project.json:5:41",
            ["warning: the program `no-such-server` is not on PATH", "hint: install it, or write its whole path"],
        ),
        mistake(
            "54: two toolsets with one tool",
            [instead("shell_readonly", "filesystem_cwd_ro")],
            "main.worker:4:28",
            ["error: `filesystem_cwd` and `filesystem_cwd_ro` both have a tool `read_file`", "`use` and `prefix`"],
        ),
        allowed(
            "55: a list with one model",
            [instead("anthropic:claude-haiku-4-5", "[anthropic:claude-haiku-4-5]")],
            "",
            ["main  anthropic:claude-haiku-4-5  (main.worker)", "ok: 1 agent, "],
        ),
    ]
}

const PYTHON: &str = "  \"python_files\": [\"tools.py\"]";

fn python() -> Vec<Mistake> {
    vec![allowed(
        "25: Python that is none",
        [worker(""), manifest(PYTHON), file("tools.py", "x = 1\n  def count(:\n")],
        "tools.py:2:3",
        ["warning: not valid Python: ", "hint: mend it", "1 warning\n", "ok: 1 agent, "],
    )]
}

fn check(mistake: &Mistake) -> Ended {
    let sandbox = Sandbox::new();
    for (path, text) in &mistake.files {
        sandbox.file(path, text);
    }
    sandbox.run_in(&["check", "."], &[("ANTHROPIC_API_KEY", "k"), ("PATH", "/usr/bin:/bin")])
}

/// What of a row is not as it should be.
fn wrong(row: &Mistake, ended: &Ended) -> Vec<String> {
    let mut wrong = Vec::new();
    let shown = format!("{}{}", ended.stdout, ended.stderr);
    if ended.code != Some(row.code) {
        wrong.push(format!("exit code {:?}, not {}", ended.code, row.code));
    }
    wrong.extend(row.says.iter().filter(|words| !shown.contains(*words)).map(|words| format!("not said: {words}")));
    if row.place.is_empty() {
        if !ended.stderr.is_empty() {
            wrong.push("something is said about it".to_owned());
        }
        return wrong;
    }
    let is_place = |line: &str| line.trim_start().strip_prefix("--> ") == Some(row.place);
    if row.place != NOWHERE && !ended.stderr.lines().any(is_place) {
        wrong.push(format!("not at {}", row.place));
    }
    // A remedy for each mistake: what begins with its severity and has a place has a hint too.
    let parts = ended.stderr.split("\n\n").filter(|part| part.contains("--> "));
    wrong.extend(parts.filter(|part| !part.contains("= hint: ")).map(|part| format!("no remedy:\n{part}")));
    wrong
}

#[test]
fn each_mistake_is_told_at_its_place_and_with_a_remedy() {
    let rows = [
        misspelled(),
        misspelled_names(),
        yaml(),
        yaml_values(),
        json(),
        schemas(),
        projects(),
        endings_and_programs(),
        python(),
    ];
    let rows = rows.into_iter().flatten();
    let mut failed = String::new();
    for row in rows {
        let ended = check(&row);
        let wrong = wrong(&row, &ended);
        if !wrong.is_empty() {
            failed += &format!("\n=== {}\n{}\n{}{}", row.name, wrong.join("\n"), ended.stdout, ended.stderr);
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn a_file_in_another_encoding_is_told_with_the_place_of_its_first_letter() {
    let sandbox = Sandbox::new();
    let text = "---\nname: main\nmodel: anthropic:claude-haiku-4-5\ndescription: caf\u{e9} writer\n---\nDo it.\n";
    let latin: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    std::fs::write(sandbox.path().join("main.worker"), latin).unwrap();
    let Ended { code, stderr, .. } = sandbox.run(&["check", "."]);
    assert_eq!(code, Some(2));
    for words in
        ["error: `main.worker`: not UTF-8: line 4, column 17\n", "--> ./main.worker\n", "hint: save the file as UTF-8"]
    {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
}

#[test]
fn python_of_strangers_is_neither_run_nor_read() {
    let sandbox = Sandbox::new();
    for (path, text) in [worker(""), manifest(PYTHON), file("tools.py", "def count(:\n")] {
        sandbox.file(path, &text);
    }
    // An interpreter that says that it was started.
    sandbox.file("bin/python3", "#!/bin/sh\ntouch started\n");
    let program = sandbox.path().join("bin/python3");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", sandbox.path().join("bin").display());
    let mut command = sandbox.command(&["check", "."], &[("ANTHROPIC_API_KEY", "k"), ("PATH", &path)]);
    command.env_remove("LLM_DO_TRUST").stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let Ended { code, stdout, stderr } = support::wait(&mut command);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("\ntrust    not given yet; these were not run or read:\n"), "{stdout}");
    assert!(stdout.ends_with("next: llm-do check . --trust\n"), "{stdout}");
    assert!(!sandbox.path().join("started").exists());
}

#[test]
fn a_run_tells_which_module_or_interpreter_is_missing() {
    let sandbox = Sandbox::new();
    for (path, text) in [worker(""), manifest(PYTHON), file("tools.py", "import no_such_module\n")] {
        sandbox.file(path, &text);
    }
    let run = |path: &str| sandbox.run_in(&["run", ".", "hi"], &[("ANTHROPIC_API_KEY", "k"), ("PATH", path)]);
    let Ended { code, stderr, .. } = run("/usr/local/bin:/usr/bin:/bin");
    assert_eq!(code, Some(2));
    for words in ["No module named 'no_such_module'", " --> tools.py:1:1\n", "-m pip install 'no_such_module'"] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    let Ended { code, stderr, .. } = run("/nowhere:/elsewhere");
    assert_eq!(code, Some(2));
    let fact = "the Python interpreter `python3` cannot be started: it is not in /nowhere, /elsewhere";
    assert!(stderr.contains(fact) && stderr.contains("hint: name one with `--python PATH`"), "{stderr}");
}

/// The commands that a hint or the last line of a check names, between backquotes or behind `next: `.
fn commands(said: &str) -> Vec<String> {
    let quoted =
        said.split('`').skip(1).step_by(2).filter(|words| words.starts_with("llm-do ") || words.starts_with("mkdir "));
    let next = said.lines().filter_map(|line| line.strip_prefix("next: "));
    quoted.chain(next).map(str::to_owned).collect()
}

#[test]
fn the_commands_that_hints_name_do_what_the_hints_say() {
    let root = "  \"toolsets\": {\"notes\": {\"filesystem\": {\"root\": \"notes\"}}}";
    let cases: Vec<(Vec<(&str, String)>, &str)> = vec![
        (vec![], "hello/main.worker"),
        (vec![file("main.worker", "")], ""),
        (vec![manifest_with("main.worker", "helper.worker")], "helper.worker"),
        (vec![worker(""), manifest(root)], "notes"),
    ];
    for (files, made) in cases {
        let sandbox = Sandbox::new();
        for (path, text) in &files {
            sandbox.file(path, text);
        }
        let said = sandbox.run(&["check", "."]).stderr;
        let named = commands(&said);
        assert_eq!(named.len(), 1, "{said}");
        if made.is_empty() {
            // It writes over nothing: the empty file has to go first.
            std::fs::remove_file(sandbox.path().join("main.worker")).unwrap();
        }
        let words: Vec<&str> = named[0].split(' ').collect();
        let ended = match words.as_slice() {
            ["llm-do", arguments @ ..] => sandbox.run(arguments).code,
            ["mkdir", arguments @ ..] => {
                let mut command = std::process::Command::new("mkdir");
                command.args(arguments).current_dir(sandbox.path()).status().unwrap().code()
            }
            _ => None,
        };
        assert_eq!(ended, Some(0), "{}", named[0]);
        assert!(sandbox.path().join(made).exists(), "{made}: {}", named[0]);
    }
}
