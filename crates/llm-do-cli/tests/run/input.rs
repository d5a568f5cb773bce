//! What an agent is given: prompts, stdin, JSON, the manifest's input, files.

use fake_llm::{FakeLlm, FakeReply, FakeScript, SeenPart};
use serde_json::{Value, json};

use crate::MAIN;
use crate::session::Run;
use crate::support::Sandbox;

/// A project whose model repeats what it hears.
fn echo() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", MAIN).file("echo.yaml", "- say: \"heard: {{ heard }}\"\n");
    sandbox
}

fn run<'a>(sandbox: &'a Sandbox, arguments: &[&'a str]) -> Run<'a> {
    Run::new(sandbox, &[&["main.worker", "-m", "scripted:echo.yaml"], arguments].concat())
}

const DEFAULTED: &str =
    r#"{"version": 1, "entry": {"agent": "main", "input": "from the manifest"}, "worker_files": ["main.worker"]}"#;

#[test]
fn the_input_comes_from_one_place() {
    let sandbox = echo();
    sandbox.file("input.json", "{\"input\": \"from a file\"}").file("text.json", "\"a text\"");
    let cases: [(&[&str], Option<&str>, &str); 15] = [
        (&["a prompt"], None, "a prompt"),
        (&["a prompt"], Some(""), "a prompt"),
        (&["a prompt"], Some("  \n"), "a prompt"),
        (&["a prompt"], Some("piped\n"), "a prompt\n\n<stdin>\npiped\n</stdin>"),
        (&["a prompt", "--no-stdin"], Some("piped\n"), "a prompt"),
        (&[], Some("piped\n"), "piped\n"),
        (&["-"], Some("piped\n"), "piped\n"),
        (&[""], None, "(no input)"),
        (&[" \n"], None, "(no input)"),
        (&["-"], Some(""), "(no input)"),
        (&["--input-json", "{\"input\": \"as JSON\"}"], Some("not read"), "as JSON"),
        (&["--input-json", "\"as JSON\""], None, "as JSON"),
        (&["--input-json", "[\"one\", \"two\"]"], None, "one\ntwo"),
        (&["--input-json", "@input.json"], None, "from a file"),
        (&["--input-json", "-"], Some("{\"input\": \"from stdin\"}"), "from stdin"),
    ];
    for (arguments, stdin, heard) in cases {
        let run = run(&sandbox, arguments);
        let run = if let Some(stdin) = stdin { run.hearing(stdin) } else { run };
        assert_eq!(run.answer().trim_end(), format!("heard: {}", heard.trim_end()), "{arguments:?} {stdin:?}");
    }
}

#[test]
fn the_manifest_has_the_last_word_only() {
    let sandbox = echo();
    sandbox.file("project.json", DEFAULTED);
    let cases: [(&[&str], Option<&str>, &str); 6] = [
        (&[], None, "from the manifest"),
        (&[], Some(""), "from the manifest"),
        (&[], Some("piped"), "piped"),
        (&["--no-stdin"], Some("piped"), "from the manifest"),
        (&["a prompt"], None, "a prompt"),
        (&["--input-json", "\"as JSON\""], None, "as JSON"),
    ];
    for (arguments, stdin, heard) in cases {
        let run = Run::new(&sandbox, &[&[".", "-m", "scripted:echo.yaml"], arguments].concat());
        let run = if let Some(stdin) = stdin { run.hearing(stdin) } else { run };
        assert_eq!(run.answer(), format!("heard: {heard}\n"), "{arguments:?} {stdin:?}");
    }
}

#[test]
fn a_project_may_take_no_input_from_outside() {
    let sandbox = echo();
    sandbox.file("project.json", &DEFAULTED.replace("\"version\"", "\"allow_cli_input\": false, \"version\""));
    let refused = "error: this project takes no input from the command line\n\
                   hint: `allow_cli_input` in its manifest says so; leave out the prompt, or give `--no-stdin`\n";
    let project =
        |arguments: &[&'static str]| Run::new(&sandbox, &[&[".", "-m", "scripted:echo.yaml"], arguments].concat());
    assert_eq!(project(&["hi"]).failure(2), refused);
    assert_eq!(project(&["--input-json", "\"hi\""]).failure(2), refused);
    assert_eq!(project(&[]).hearing("piped").failure(2), refused);
    assert_eq!(project(&[]).hearing("").answer(), "heard: from the manifest\n");
    assert_eq!(project(&["--no-stdin"]).hearing("piped").answer(), "heard: from the manifest\n");
}

#[test]
fn input_that_cannot_be_used_is_a_usage_error() {
    let sandbox = echo();
    sandbox.file("bad.json", "{");
    let hint = "hint: give a prompt, `--input-json`, or something on stdin\n";
    assert_eq!(run(&sandbox, &[]).failure(2), format!("error: no input\n{hint}"));
    assert_eq!(run(&sandbox, &[]).hearing(" \n").failure(2), format!("error: no input\n{hint}"));
    assert_eq!(
        run(&sandbox, &[]).hearing(b"caf\xe9").failure(2),
        "error: stdin is not UTF-8 text\nhint: attach other files with `-f`\n"
    );
    let both = run(&sandbox, &["hi", "--input-json", "{}"]).failure(2);
    assert!(both.starts_with("error: the argument '[PROMPT]' cannot be used with '--input-json <JSON>'"), "{both}");
    let cases: [(&[&str], &str); 5] = [
        (&["--input-json", "{"], "`--input-json` is not JSON: EOF while parsing an object at line 1 column 1"),
        (&["--input-json", "@bad.json"], "bad.json is not JSON: EOF while parsing an object at line 1 column 1"),
        (&["--input-json", "@/dev/zero"], "/dev/zero has more than 64 MiB"),
        (&["--input-json", "@none.json"], "none.json cannot be read: No such file or directory (os error 2)"),
        (
            &["--input-json", "{\"input\": \"x\", \"attachments\": [\"gone.md\"]}"],
            "the attachment `gone.md` does not exist",
        ),
    ];
    for (arguments, error) in cases {
        assert_eq!(run(&sandbox, arguments).failure(2), format!("error: {error}\n"), "{arguments:?}");
    }
}

const PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\0IEND\xaeB`\x82";
const PDF: &[u8] = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n";

fn with_files() -> Sandbox {
    let sandbox = echo();
    sandbox.file("notes.md", "# Notes\n\nThe crane carries 60 tonnes.\n").file("code.rs", "fn main() {}\n");
    for (name, bytes) in [("dot.png", PNG), ("paper.pdf", PDF), ("wrong.txt", PNG), ("blob.bin", b"\0\x01\x02\xff")] {
        std::fs::write(sandbox.path().join(name), bytes).unwrap();
    }
    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    sandbox
}

#[test]
fn files_reach_every_provider_as_what_they_are() {
    let sandbox = with_files();
    for model in ["anthropic:m", "openai:m", "openai-chat:m", "google:m"] {
        let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Seen.")));
        let files = ["-f", "notes.md", "-f", "dot.png", "--file", "paper.pdf", "-f", "wrong.txt"];
        let arguments = [&["main.worker", "Look", "-m", model], &files[..]].concat();
        assert_eq!(Run::new(&sandbox, &arguments).asking(&fake).answer(), "Seen.\n", "{model}");
        fake.assert_finished();
        let requests = fake.requests();
        let message = &requests[0].seen.as_ref().unwrap().messages[0];
        assert!(message.text().starts_with("Look"), "{model}: {message:?}");
        assert!(message.text().contains("The crane carries 60 tonnes."), "{model}: {message:?}");
        assert!(message.text().contains("notes.md"), "{model}: {message:?}");
        let others: Vec<&Value> = message.parts.iter().filter_map(other).collect();
        assert_eq!(others.len(), 3, "{model}: a picture, a paper and a picture with a wrong ending: {others:?}");
        assert!(others[1].to_string().contains("application/pdf"), "{model}: {}", others[1]);
        assert!([0, 2].iter().all(|index| others[*index].to_string().contains("image/png")), "{model}: {others:?}");
    }
}

fn other(part: &SeenPart) -> Option<&Value> {
    match part {
        SeenPart::Other(value) => Some(value),
        SeenPart::Text(_)
        | SeenPart::Thinking { .. }
        | SeenPart::RedactedThinking { .. }
        | SeenPart::Call { .. }
        | SeenPart::Result { .. } => None,
    }
}

#[test]
fn files_go_beside_every_kind_of_input() {
    let sandbox = with_files();
    let cases: [(&[&str], &str); 5] = [
        (&["-f", "notes.md"], "heard: [notes.md]\n"),
        (&["Look", "-f", "notes.md", "-f", "dot.png"], "heard: Look\n[notes.md]\n[dot.png]\n"),
        (&["", "-f", "notes.md"], "heard: (no input)\n[notes.md]\n"),
        (
            &["--input-json", "{\"input\": \"Look\", \"attachments\": [\"code.rs\"]}", "-f", "notes.md"],
            "heard: Look\n[code.rs]\n[notes.md]\n",
        ),
        (&["--input-json", "[\"Look\", {\"attachment\": \"code.rs\"}]"], "heard: Look\n[code.rs]\n"),
    ];
    for (arguments, heard) in cases {
        assert_eq!(run(&sandbox, arguments).answer(), heard, "{arguments:?}");
    }
}

#[test]
fn files_that_cannot_be_sent_are_named_before_any_request() {
    let sandbox = with_files();
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("never")));
    let kinds = "is neither text, nor an image (PNG, JPEG, GIF, WebP), nor a PDF";
    for (path, reason) in [
        ("blob.bin", kinds),
        ("gone.md", "does not exist"),
        ("folder", "is not a regular file"),
        ("/dev/null", "is not a regular file"),
    ] {
        let run = Run::new(&sandbox, &["main.worker", "Look", "-m", "anthropic:m", "-f", path]).asking(&fake);
        assert_eq!(run.failure(2), format!("error: the attachment `{path}` {reason}\n"));
    }
    assert_eq!(fake.requests().len(), 0);
}

#[test]
fn an_agent_takes_only_the_files_of_its_policy() {
    let sandbox = with_files();
    for (policy, reason) in [
        ("max_attachments: 1", "`notes.md` is one too many: at most 1 are taken"),
        ("max_total_bytes: 20", "`notes.md` is too large: at most 20 bytes are taken in all"),
        ("denied_suffixes: [.md]", "`notes.md` has an ending that the agent does not take"),
        ("allowed_suffixes: [.rs]", "`notes.md` has an ending that the agent does not take"),
    ] {
        let worker = format!("---\nname: main\nattachment_policy: {{ {policy} }}\n---\nAnswer.\n");
        sandbox.file("main.worker", &worker);
        let said = run(&sandbox, &["Look", "-f", "code.rs", "-f", "notes.md"]).failure(2);
        assert_eq!(said, format!("error: the attachment {reason}\n"), "{policy}");
    }
}

#[test]
fn attachments_of_a_json_input_outside_the_project_need_consent() {
    let sandbox = with_files();
    sandbox.file("project/main.worker", MAIN).file("project/inside.md", "inside");
    std::os::unix::fs::symlink(sandbox.path().join("notes.md"), sandbox.path().join("project/link.md")).unwrap();
    let attach = |path: &str| json!({"input": "x", "attachments": [path]}).to_string();
    let inside = attach("inside.md");
    let arguments = ["project/main.worker", "-m", "scripted:echo.yaml", "--input-json"];
    assert_eq!(Run::new(&sandbox, &[&arguments[..], &[&inside]].concat()).answer(), "heard: x\n[inside.md]\n");
    let missing = Run::new(&sandbox, &[&arguments[..], &[&attach("~/notes.md")]].concat()).failure(2);
    assert_eq!(missing, "error: the attachment `~/notes.md` does not exist\n");
    sandbox.file("project/.env", "KEY=1");
    for path in ["../notes.md", "link.md", "/etc/hostname", ".env"] {
        let outside = attach(path);
        let said = Run::new(&sandbox, &[&arguments[..], &[&outside]].concat()).failure(4);
        assert!(said.contains("error: approval is needed for `attach` of main"), "{said}");
        let approved = Run::new(&sandbox, &[&arguments[..], &[&outside, "--approve-all"]].concat()).answer();
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(approved, format!("heard: x\n[{name}]\n"));
    }
}

/// A sentence in the place of a project is a question to whoever answers; a word is a name, and may be mistyped.
#[test]
fn a_question_without_a_project_is_answered_by_an_assistant_without_tools() {
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("A monoid.")));
    let sandbox = Sandbox::new();
    let model = ["-m", "anthropic:claude-haiku-4-5"];
    let ended = Run::of(&sandbox, &[&["What is a monad?"][..], &model].concat()).asking(&fake).ended();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "A monoid.\n"), "{}", ended.stderr);
    assert_eq!(ended.stderr, "note: no project of that name: a plain assistant without tools answers\n");
    let requests = fake.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].body.get("tools").is_none(), "{}", requests[0].body);
    assert_eq!(requests[0].body["messages"][0]["content"][0]["text"], "What is a monad?");
    // Nobody is asked for a word, nor for a question behind what should be a project.
    sandbox.file("hello/main.worker", MAIN).file("my notes/main.worker", MAIN);
    let cases: [(&[&str], &str); 5] = [
        (&["helo"], "error: no such project: `helo`\nhint: did you mean `hello`?\n"),
        (
            &["hello/mian.worker"],
            "error: no such project: `hello/mian.worker`\nhint: did you mean `hello/main.worker`?\n",
        ),
        (&["my noted", "x"], "error: no such project: `my noted`\nhint: did you mean `my notes`?\n"),
        (
            &["something"],
            "error: no such project: `something`\nhint: `llm-do new hello` writes a project to start from\n",
        ),
        (&["What is it?", "x"], "error: no such project: `What is it?`\nhint: the prompt comes after the project: "),
    ];
    for (arguments, said) in cases {
        let ended = Run::of(&sandbox, &[arguments, &model].concat()).asking(&fake).ended();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
        assert!(ended.stderr.starts_with(said), "{}", ended.stderr);
    }
    assert_eq!(fake.requests().len(), 1);
}

#[test]
fn a_question_to_the_assistant_goes_on_like_any_run() {
    let sandbox = Sandbox::new();
    sandbox.file("fails.yaml", "- fail: wait\n").file("says.yaml", "- say: 'You said {{ heard }}'\n");
    let failed = Run::of(&sandbox, &["What is rain?", "-m", "scripted:fails.yaml"]).ended();
    assert_eq!(failed.code, Some(3), "{}", failed.stderr);
    let resumed = sandbox.run(&["resume", "--last", "-m", "scripted:says.yaml"]);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (Some(0), "You said What is rain?\n"), "{}", resumed.stderr);
}
