//! `llm-do new` and `llm-do schema`, from the outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use llm_do::syntax::diagnostic::{Diagnostics, Sources};
use llm_do::syntax::tree;
use serde_json::Value;
use support::Sandbox;

#[test]
fn every_template_is_a_good_project() {
    for template in ["minimal", "tools", "multi"] {
        let sandbox = Sandbox::new();
        let ended = sandbox.run(&["new", "made", "--template", template]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{template}");
        assert!(ended.stdout.starts_with("wrote\n  made/project.json\n"), "{template}: {}", ended.stdout);
        assert!(ended.stdout.ends_with("\nnext: llm-do check made\n"), "{template}: {}", ended.stdout);
        let checked = sandbox.run_in(&["check", "made"], &[("LLM_DO_MODEL", "ollama:qwen3")]);
        assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{template}");
        // Which model is asked is for the user to say: until then it is noted, and nothing is wrong.
        let checked = sandbox.run(&["check", "made"]);
        let agents = if template == "multi" { "main, researcher, writer have" } else { "main has" };
        let note = format!("note: {agents} no model yet\nhint: `-m`, `LLM_DO_MODEL` or `llm-do models --use NAME`\n\n");
        assert_eq!((checked.code, checked.stderr), (Some(0), note), "{template}");
        assert!(checked.stdout.contains("  main  no model yet  (main.worker)\n"), "{}", checked.stdout);
        let checked = sandbox.run(&["check", "made", "--json"]);
        let checked: Value = serde_json::from_str(&checked.stdout).unwrap();
        assert_eq!((&checked["ok"], &checked["agents"][0]["model"]), (&true.into(), &Value::Null), "{template}");
    }
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["new", "a/b/c"]).code, Some(0), "directories are made");
    assert_eq!(sandbox.run(&["check", "a/b/c"]).code, Some(0));
}

#[test]
fn the_demo_asks_and_needs_no_key() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["new", "demo", "--template", "demo"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.ends_with("\nnext: llm-do demo\n"), "{}", ended.stdout);
    let checked = sandbox.run(&["check", "demo"]);
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "it names its model");
    let asked = sandbox.run(&["demo"]);
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(4), ""), "{}", asked.stderr);
    assert!(asked.stderr.contains("approval is needed for `write_file` of main"), "{}", asked.stderr);
    assert!(!sandbox.path().join("demo/drafts/haiku.md").exists());
    let refused = sandbox.run(&["demo", "--reject-all"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let approved = sandbox.run(&["demo", "--approve-all"]);
    assert_eq!(approved.code, Some(0), "{}", approved.stderr);
    assert!(approved.stdout.starts_with("The haiku is in drafts/haiku.md"), "{}", approved.stdout);
    assert!(sandbox.path().join("demo/drafts/haiku.md").exists());
}

#[test]
fn the_name_of_a_command_is_no_name_of_a_project() {
    let sandbox = Sandbox::new();
    let refused = sandbox.run(&["new", "models"]);
    let said = "error: `models` is a command of llm-do\nhint: choose another name, such as `llm-do new my-models`\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (Some(2), said));
    assert!(sandbox.tree().is_empty());
    assert_eq!(sandbox.run(&["new", "my-models"]).code, Some(0));
    // Whoever has such a project reads which of both it was.
    let worker = "---\nname: main\nmodel: scripted:script.yaml\n---\nx\n";
    sandbox.file("schema/main.worker", worker).file("schema/script.yaml", "- say: the project\n");
    let ended = sandbox.run(&["schema", "worker"]);
    let said = "note: `schema` is a command; `llm-do ./schema` runs the project of that name\n";
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), said));
    let ended = sandbox.run(&["./schema", "hi"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "the project\n"), "{}", ended.stderr);
}

#[test]
fn nothing_is_ever_overwritten() {
    let sandbox = Sandbox::new();
    sandbox.file("made/writer.worker", "mine").file("taken", "a file").file("main.worker", "mine too");
    let before = sandbox.tree();
    let refused: [(&[&str], &str); 3] = [
        (&["new", "made", "--template", "multi"], "error: would overwrite made/writer.worker\n"),
        (&["new", "--worker", "main"], "error: would overwrite main.worker\n"),
        (&["new", "taken"], "error: taken cannot be written: "),
    ];
    for (arguments, error) in refused {
        let ended = sandbox.run(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(ended.stderr.starts_with(error), "{arguments:?}: {}", ended.stderr);
        assert_eq!(sandbox.tree(), before, "{arguments:?}");
    }
    // Even a link that leads nowhere is somebody's.
    std::os::unix::fs::symlink("gone", sandbox.path().join("dangling.worker")).unwrap();
    assert_eq!(sandbox.run(&["new", "--worker", "dangling"]).code, Some(2));
    assert!(!sandbox.path().join("gone").exists());
}

#[test]
fn a_worker_file_is_written_where_it_is_wanted() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["new", "--worker", "summarizer"]);
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.stdout, "wrote summarizer.worker\nnext: llm-do check summarizer.worker\n");
    assert_eq!(sandbox.run(&["check", "summarizer.worker"]).code, Some(0));
    assert_eq!(sandbox.run(&["new", "project"]).code, Some(0));
    let ended = sandbox.run(&["new", "project", "--worker", "helper"]);
    assert_eq!(
        ended.stdout,
        "wrote project/helper.worker\nlist it in project.json: \"worker_files\": [\"helper.worker\"]\nnext: llm-do check \
         project/helper.worker\n"
    );
}

/// The schema that the program prints, compiled.
fn schema(format: &str) -> jsonschema::Validator {
    let ended = Sandbox::new().run(&["schema", format]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let schema: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn the_schema_offers_no_word_that_is_a_mistake() {
    let project = schema("project");
    for (default, is_offered) in [("ask", true), ("block", true), ("allow", false), ("deny", false)] {
        let shell = serde_json::json!({"shell": {"rules": [], "default": default}});
        let manifest = serde_json::json!({"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"],
            "toolsets": {"sh": shell}});
        assert_eq!(project.is_valid(&manifest), is_offered, "{default}");
        let sandbox = Sandbox::new();
        sandbox
            .file("main.worker", "---\nname: main\ntoolsets: [sh]\n---\nx\n")
            .file("project.json", &manifest.to_string());
        let checked = sandbox.run(&["check", ".", "-m", "ollama:qwen3"]);
        assert_eq!(checked.code, Some(if is_offered { 0 } else { 2 }), "{default}: {}", checked.stderr);
    }
}

/// A worker file's keys as JSON.
fn keys(text: &str) -> Value {
    let yaml = match text.strip_prefix("---\n") {
        Some(rest) => rest.split_once("\n---\n").unwrap().0,
        None => text,
    };
    let mut problems = Diagnostics::default();
    let file = Sources::default().add("x".into(), String::new());
    let node = tree::parse_yaml(tree::Text { file, text: yaml, offset: 0 }, &mut problems).unwrap();
    serde_json::from_str(&node.to_json()).unwrap()
}

fn files_beneath(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_beneath(&path, files) } else { files.push(path) }
    }
}

#[test]
fn every_template_and_example_satisfies_the_schemas() {
    let (project, worker) = (schema("project"), schema("worker"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    files_beneath(&root.join("templates"), &mut files);
    files_beneath(&root.join("../../examples"), &mut files);
    let mut judged = 0;
    for path in files {
        let is = |suffix: &str| path.extension().is_some_and(|extension| extension == suffix);
        // Some examples have pictures.
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).replace("{{name}}", "name");
        let (schema, value) = if is("json") && text.contains("\"worker_files\"") {
            (&project, serde_json::from_str(&text).unwrap())
        } else if is("worker") || is("agent") {
            (&worker, keys(&text))
        } else {
            continue;
        };
        let errors: Vec<String> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        judged += 1;
    }
    assert!(judged >= 30, "the templates and examples are where they were");
}

#[test]
fn the_schemas_refuse_what_check_refuses() {
    let (project, worker) = (schema("project"), schema("worker"));
    let manifests = [
        r#"{"version": 2, "entry": {}, "worker_files": ["a"]}"#,
        r#"{"version": 1}"#,
        r#"{"version": 1, "entry": {}, "worker_fils": []}"#,
        r#"{"version": 1, "entry": {}, "worker_files": ["a"], "agent_files": ["a"]}"#,
        r#"{"version": 1, "entry": {"agent": "a b"}}"#,
        r#"{"version": 1, "entry": {}, "worker_files": ["a", "a"]}"#,
        r#"{"version": 1, "entry": {}, "runtime": {"max_depth": 0}}"#,
        r#"{"version": 1, "entry": {}, "toolsets": {"t": {"filesystem": {"rot": "."}}}}"#,
        r#"{"version": 1, "entry": {}, "env": ["A=B"]}"#,
    ];
    for text in manifests {
        assert!(!project.is_valid(&serde_json::from_str(text).unwrap()), "{text}");
        let sandbox = Sandbox::new();
        assert_eq!(sandbox.file("project.json", text).run(&["check", "."]).code, Some(2), "{text}");
    }
    let workers = [
        "model: a:b",
        "name: a b",
        "name: a\nentry: 'yes'",
        "name: a\ntoolsets: x",
        "name: a\nlimits: {max_requests: 0}",
        "name: a\napproval: {x: maybe}",
        "name: a\ninput_model_ref: a.json\nschema_in_ref: b.json",
        "name: a\nmodel_settings: {temperature: 3}",
    ];
    for text in workers {
        assert!(!worker.is_valid(&keys(text)), "{text}");
        let sandbox = Sandbox::new();
        let ended = sandbox.file("a.yaml", text).run(&["check", "a.yaml", "-m", "ollama:q"]);
        assert_eq!(ended.code, Some(2), "{text}");
    }
}
