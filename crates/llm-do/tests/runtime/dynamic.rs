//! Agents made at run time: created with consent, with no more than their creator, and called by name.

use std::path::Path;

use llm_do::event::{CallKind, CallOutput};
use llm_do::journal::mac::StateKey;
use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::project::create::{CreateError, ExistingAgent, WorkerDefaults, WorkerSpec};
use llm_do::project::created::CreatedStore;
use llm_do::project::{AttachmentPolicy, Entry, Fallback, Program, Project};
use llm_do::runtime::{Models, OutsideCaller, RunError, Runtime, RuntimeConfig};
use llm_do::tools::Ending;
use llm_do::tools::approval::{Answer, Approvals, Memory, Rule};
use serde_json::json;

use super::support::{Files, person, text};

/// A project whose agents follow one script that the user named.
fn scripted(project: &Project, script: &str, approvals: Approvals) -> Runtime {
    scripted_with(project, script, RuntimeConfig::new(approvals))
}

fn scripted_with(project: &Project, script: &str, config: RuntimeConfig) -> Runtime {
    let models = ModelChoices {
        required: Some(ModelName::parse("scripted:script").unwrap()),
        scripts: [("script".to_owned(), script.to_owned())].into(),
        ..ModelChoices::default()
    };
    let program = project.link(&models).unwrap_or_else(|report| panic!("{report}"));
    Runtime::new(program, Models::default(), config)
}

/// As a program that keeps which agents it created.
fn keeping(state: &Path, approvals: Approvals) -> RuntimeConfig {
    let store = CreatedStore { directory: state.to_owned(), key: StateKey::from_bytes([7; 32]) };
    RuntimeConfig { created: Some(store), ..RuntimeConfig::new(approvals) }
}

fn maker(keys: &str) -> Files {
    let manifest = json!({"version": 1, "entry": {"agent": "maker"}, "worker_files": ["maker.worker", "other.worker"]});
    Files::new(&[
        ("project.json", &manifest.to_string()),
        ("maker.worker", &format!("---\nname: maker\n{keys}\n---\nYou make agents.")),
        ("other.worker", "---\nname: other\n---\nYou are another one."),
        ("notes.md", "the notes"),
    ])
}

const CREATE_AND_CALL: &str = "
- {agent: maker, round: 1, call: {agent_create: {name: poet, instructions: Rhyme., toolsets: [filesystem_project]}}}
- {agent: maker, tool: agent_create, call: {agent_call: {agent: poet, input: a boat, attachments: [notes.md]}}}
- {agent: maker, say: '{{ result }}'}
- {agent: poet, round: 1, call: {write_file: {path: poem.txt, content: x}}}
- {agent: poet, say: '{{ result }}'}
";

#[tokio::test]
async fn an_agent_is_created_with_consent_and_called_at_once_with_no_more_than_its_creator() {
    let keys =
        "toolsets: [dynamic_agents, filesystem_project]\napproval: {write_file: block}\nlimits: {max_requests: 7}";
    let files = maker(keys);
    let (approvals, asked) = person(Answer::ToolForSession);
    let runtime = scripted(&files.project(), CREATE_AND_CALL, approvals);
    let error = runtime.run("x").await.unwrap_err();
    let RunError::Ended(Ending::Refused { path, tool, .. }) = &error else { panic!("{error}") };
    assert_eq!((path.join(" "), tool.as_str()), ("maker poet".to_owned(), "write_file"), "the creator's rule holds");
    let file = std::fs::read_to_string(files.path().join("workers/generated/poet.yaml")).unwrap();
    let expected = "name: \"poet\"\ntoolsets: [\"filesystem_project\"]\n\
                    approval: {\"filesystem_project.write_file\": block}\n\
                    limits: {max_requests: 7}\ninstructions: \"Rhyme.\"\n";
    assert_eq!(file, expected);
    let asked = asked.lock().unwrap();
    let question = &asked[0].question;
    assert_eq!((asked.len(), asked[0].memory), (1, Memory::Nothing), "creating always asks");
    assert_eq!(question.preview.as_deref(), Some(expected), "the whole file is shown");
    assert_eq!(question.reason, "creates the agent `poet` in workers/generated/poet.yaml");
}

#[tokio::test]
async fn the_tools_are_offered_under_their_older_names_where_the_manifest_says_so() {
    let manifest = json!({"version": 1, "entry": {"agent": "maker"}, "worker_files": ["maker.worker"],
        "toolsets": {"makers": {"dynamic_agents": {"names": "worker"}}}});
    let files = Files::new(&[
        ("project.json", &manifest.to_string()),
        ("maker.worker", "---\nname: maker\ntoolsets: [makers]\n---\nYou make agents."),
    ]);
    let script = "
- {agent: maker, round: 1, call: {worker_create: {name: poet, instructions: Rhyme.}}}
- {agent: maker, round: 2, call: {worker_call: {agent: poet, input: a boat}}}
- {agent: maker, say: '{{ result }}'}
- {agent: poet, say: afloat}
";
    let outcome = scripted(&files.project(), script, Approvals::approve_all()).run("x").await.unwrap();
    assert_eq!(text(Ok(outcome.output.clone())), "afloat");
    let created = &outcome.trace[0].calls[0];
    let Some(CallOutput::Text(words)) = &created.output else { panic!("{created:?}") };
    assert!(words.ends_with("`worker_call` calls it"), "{words}");
    // The other names are no tools here.
    let script = "- {round: 1, call: {agent_call: {agent: poet, input: x}}}\n- {say: '{{ result }}'}";
    let said = text(scripted(&files.project(), script, Approvals::approve_all()).run("x").await.map(|it| it.output));
    assert!(said.contains("there is no tool `agent_call`; tools: worker_call, worker_create"), "{said}");
}

#[tokio::test]
async fn a_created_agent_is_in_the_tree_and_reached_by_later_runs() {
    let (files, state) = (maker("toolsets: [dynamic_agents, filesystem_project]"), tempfile::tempdir().unwrap());
    let runtime = scripted_with(&files.project(), CREATE_AND_CALL, keeping(state.path(), Approvals::approve_all()));
    let outcome = runtime.run("x").await.unwrap();
    assert_eq!(text(Ok(outcome.output)), "wrote 1 characters to poem.txt");
    let calls: Vec<_> = outcome.trace[0].calls.iter().map(|call| (call.name.as_str(), call.kind)).collect();
    assert_eq!(calls, [("agent_create", CallKind::Tool), ("poet", CallKind::Agent)], "no call appears twice");

    let script = "- {agent: maker, round: 1, call: {agent_call: {agent: poet, input: again}}}\n\
                  - {agent: maker, say: '{{ result }}'}\n- {agent: poet, say: 'poet heard {{ heard }}'}";
    let later = scripted_with(&files.project(), script, keeping(state.path(), Approvals::unattended()));
    assert!(!later.program().agents.contains_key("poet"), "it is not linked with the project");
    assert_eq!(text(later.run("x").await.map(|outcome| outcome.output)), "poet heard again");
    let forgetful = scripted(&files.project(), script, Approvals::unattended());
    let said = text(forgetful.run("x").await.map(|outcome| outcome.output));
    assert!(said.contains("`poet` was not made here; list it in `worker_files`"), "nobody kept that: {said}");
}

/// What a created agent can do is decided when it is called, by what its creator can do then.
#[tokio::test]
async fn a_created_agent_has_no_more_than_its_creator_has_now() {
    let call = "- {agent: maker, round: 1, call: {agent_call: {agent: poet, input: again}}}\n\
                - {agent: maker, say: '{{ result }}'}\n\
                - {agent: poet, round: 1, call: {write_file: {path: poem.txt, content: x}}}\n\
                - {agent: poet, say: '{{ result }}'}";
    let create = "- {agent: maker, round: 1, call: {agent_create: {name: poet, instructions: x, toolsets: [filesystem_project]}}}\n\
                  - {say: done}";
    let before = "toolsets: [dynamic_agents, filesystem_project]\napproval: {write_file: allow}";
    for (now, expected, is_written) in [
        (before, "wrote 1 characters to poem.txt", true),
        (
            "toolsets: [dynamic_agents, filesystem_project]\napproval: {write_file: block}",
            "blocked by `write_file: block` in maker.worker",
            false,
        ),
        ("toolsets: [dynamic_agents, filesystem_project]", "approval", false),
        ("toolsets: [dynamic_agents]", "there is no tool `write_file`", false),
        (
            "toolsets: [dynamic_agents, filesystem_project]\napproval: {write_file: allow}\nlimits: {max_requests: 1}",
            "max_requests",
            true,
        ),
    ] {
        let (files, state) = (maker(before), tempfile::tempdir().unwrap());
        let first = scripted_with(&files.project(), create, keeping(state.path(), Approvals::approve_all()));
        first.run("x").await.unwrap();
        std::fs::write(files.path().join("maker.worker"), format!("---\nname: maker\n{now}\n---\nx")).unwrap();
        let runtime = scripted_with(&files.project(), call, keeping(state.path(), Approvals::unattended()));
        let said = match runtime.run("x").await {
            Ok(outcome) => text(Ok(outcome.output)),
            Err(error) => error.to_string(),
        };
        assert!(said.contains(expected), "{now}: {said}");
        assert_eq!(files.path().join("poem.txt").exists(), is_written, "{now}: {said}");
    }
}

#[tokio::test]
async fn a_file_that_nobody_made_here_is_no_agent() {
    let keys = "toolsets: [dynamic_agents]\nallow_workers: ['*']";
    let call = "- {agent: maker, round: 1, call: {agent_call: {agent: evil, input: go}}}\n\
                - {agent: maker, say: '{{ result }}'}\n\
                - {agent: evil, round: 1, call: {write_file: {path: marker, content: x}}}\n- {say: done}";
    let evil = "name: evil\ntoolsets: [filesystem_project]\napproval: {write_file: allow}\ninstructions: x\n";
    let state = tempfile::tempdir().unwrap();
    let files = maker(keys);
    let other = "---\nname: other\ntoolsets: [filesystem_project]\n---\nYou have files.";
    std::fs::write(files.path().join("other.worker"), other).unwrap();
    let generated = files.path().join("workers/generated");
    std::fs::create_dir_all(&generated).unwrap();
    let said = async || {
        let runtime = scripted_with(&files.project(), call, keeping(state.path(), Approvals::approve_all()));
        text(runtime.run("x").await.map(|outcome| outcome.output))
    };
    let refused = "`evil` was not made here; list it in `worker_files`";
    std::fs::write(generated.join("evil.yaml"), evil).unwrap();
    assert!(said().await.contains(refused), "{}", said().await);
    // One that was made, and then changed.
    std::fs::remove_file(generated.join("evil.yaml")).unwrap();
    let create = "- {round: 1, call: {agent_create: {name: evil, instructions: harmless}}}\n- {say: done}";
    let made = scripted_with(&files.project(), create, keeping(state.path(), Approvals::approve_all()));
    made.run("x").await.unwrap();
    let harmless = std::fs::read_to_string(generated.join("evil.yaml")).unwrap();
    std::fs::write(generated.join("evil.yaml"), evil).unwrap();
    assert!(said().await.contains(refused), "{}", said().await);
    assert!(!files.path().join("marker").exists());
    std::fs::write(generated.join("evil.yaml"), harmless).unwrap();
    assert!(!said().await.contains(refused), "as it was made it counts: {}", said().await);
    assert!(!files.path().join("marker").exists(), "its creator has no files");
    // Whoever lists it in the manifest means it.
    std::fs::write(generated.join("evil.yaml"), evil).unwrap();
    let listed = json!({"version": 1, "entry": {"agent": "maker"},
        "worker_files": ["maker.worker", "other.worker", "workers/generated/evil.yaml"]});
    std::fs::write(files.path().join("project.json"), listed.to_string()).unwrap();
    assert_eq!(said().await, "done");
    assert!(files.path().join("marker").exists());
}

#[tokio::test]
async fn a_model_may_call_only_what_it_is_allowed_to() {
    let call = |agent: &str| {
        format!(
            "- {{agent: maker, round: 1, call: {{agent_call: {{agent: {agent}, input: x}}}}}}\n\
             - {{agent: maker, say: '{{{{ result }}}}'}}\n- {{say: 'I am {{{{ agent }}}}'}}"
        )
    };
    for (keys, agent, expected) in [
        ("toolsets: [dynamic_agents]", "other", "may not call `other`; it may call: agents that it created"),
        ("toolsets: [dynamic_agents, other]", "other", "I am other"),
        ("toolsets: [dynamic_agents]\nallow_workers: [other]", "other", "I am other"),
        ("toolsets: [dynamic_agents]\nallow_workers: ['*']", "other", "I am other"),
        ("toolsets: [dynamic_agents, other]\nallow_workers: []", "other", "may not call `other`"),
        ("toolsets: [dynamic_agents]\nallow_workers: ['*']", "nobody", "there is no agent `nobody`"),
        ("toolsets: [dynamic_agents]\nallow_workers: ['*']", "'../x'", "there is no agent `../x`"),
    ] {
        let files = maker(keys);
        let runtime = scripted(&files.project(), &call(agent), Approvals::unattended());
        let said = text(runtime.run("x").await.map(|outcome| outcome.output));
        assert!(said.contains(expected), "{keys}, {agent}: {said}");
    }
}

#[tokio::test]
async fn what_cannot_be_created_comes_back_to_the_model() {
    let files = maker("toolsets: [dynamic_agents, filesystem_project_ro]");
    let generated = files.path().join("workers/generated");
    std::fs::create_dir_all(&generated).unwrap();
    std::fs::write(generated.join("old.yaml"), "name: old\ninstructions: x\n").unwrap();
    std::fs::write(generated.join("kept.yaml"), "name: kept\nlocked: true\ninstructions: x\n").unwrap();
    for (arguments, expected) in [
        ("{name: '../x', instructions: x}", "`../x` is not a name"),
        ("{name: a, instructions: ' '}", "needs instructions"),
        ("{name: other, instructions: x, force: true}", "agent that was not created at run time"),
        ("{name: shell_readonly, instructions: x, force: true}", "is the name of a toolset"),
        ("{name: old, instructions: x}", "the agent `old` exists; `force` replaces it"),
        ("{name: kept, instructions: x, force: true}", "the file of the agent `kept` is locked"),
        (
            "{name: a, instructions: x, toolsets: [filesystem_project]}",
            "which has: dynamic_agents, filesystem_project_ro",
        ),
        ("{name: a, instructions: x, tools: [look]}", "`look` is not among the tools of `maker`, which has: none"),
        ("{name: a, instructions: x, model: 'anthropic:claude-opus-4-5'}", "may not use `anthropic:claude-opus-4-5`"),
        (
            "{name: a, instructions: x, model: 'openai:gpt-5'}",
            "choose `openai:gpt-5` for agents without a `model` of their own",
        ),
        ("{name: a, instructions: x, model: 'openai:gpt-5'}", "(their `compatible_models` must allow it)"),
        ("{name: a, instructions: x, model: 'scripted:script'}", "may not use `scripted:script`"),
        (
            "{name: a, instructions: x, colour: red}",
            "`colour` is unknown; arguments: description, force, instructions,",
        ),
    ] {
        let script = format!("- {{round: 1, call: {{agent_create: {arguments}}}}}\n- {{say: '{{{{ result }}}}'}}");
        let runtime = scripted(&files.project(), &script, Approvals::approve_all());
        let said = text(runtime.run("x").await.map(|outcome| outcome.output));
        assert!(said.contains(expected), "{arguments}: {said}");
    }
    let script = "- {round: 1, call: {agent_create: {name: old, instructions: new, force: true}}}\n- {say: done}";
    scripted(&files.project(), script, Approvals::approve_all()).run("x").await.unwrap();
    let text = std::fs::read_to_string(generated.join("old.yaml")).unwrap();
    assert_eq!(text, "name: \"old\"\ninstructions: \"new\"\n");
    let mut left: Vec<_> = std::fs::read_dir(generated).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["kept.yaml", "old.yaml"], "nothing half written");
}

#[tokio::test]
async fn defaults_of_a_program_are_given_where_the_creator_is_silent_and_has_them() {
    let files = maker("toolsets: [dynamic_agents, filesystem_project_ro]");
    let script = "- {agent: maker, round: 1, call: {agent_create: {name: a, instructions: x}}}\n\
                  - {agent: maker, round: 2, call: {agent_create: {name: b, instructions: x, toolsets: [dynamic_agents]}}}\n\
                  - {say: done}";
    let models = ModelChoices {
        required: Some(ModelName::parse("scripted:script").unwrap()),
        scripts: [("script".to_owned(), script.to_owned())].into(),
        ..ModelChoices::default()
    };
    let program = files.project().link(&models).unwrap();
    // Whoever sets a default chooses that model.
    let fallbacks = vec![Fallback { model: ModelName::parse("ollama:qwen3").unwrap(), script: None }];
    let program = program.adapted(|program| Ok::<_, ()>(Program { fallbacks, ..program })).unwrap();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let creation_defaults = WorkerDefaults {
        model: Some("ollama:qwen3".to_owned()),
        toolsets: names(&["filesystem_project_ro", "shell_readonly"]),
        allow_workers: Some(names(&["other"])),
        attachment_policy: None,
    };
    let config = RuntimeConfig { creation_defaults, ..RuntimeConfig::new(Approvals::approve_all()) };
    Runtime::new(program, Models::default(), config).run("x").await.unwrap();
    let file = |name: &str| std::fs::read_to_string(files.path().join("workers/generated").join(name)).unwrap();
    let expected = |toolset: &str| {
        format!(
            "name: \"{}\"\nmodel: \"ollama:qwen3\"\ntoolsets: [\"{toolset}\"]\nallow_workers: [\"other\"]\n\
             instructions: \"x\"\n",
            if toolset == "dynamic_agents" { "b" } else { "a" }
        )
    };
    assert_eq!(file("a.yaml"), expected("filesystem_project_ro"), "it has no shell, so what it creates has none");
    assert_eq!(file("b.yaml"), expected("dynamic_agents"));
}

#[tokio::test]
async fn a_created_agent_is_linked_if_somebody_starts_with_it() {
    let files = maker("");
    let spec = WorkerSpec { name: "poet".into(), instructions: "Rhyme.".into(), ..WorkerSpec::default() };
    files.project().create_worker(&spec, &WorkerDefaults::default(), ExistingAgent::Keep, None).unwrap();
    let models = ModelChoices { required: Some(ModelName::parse("ollama:q").unwrap()), ..ModelChoices::default() };
    assert!(files.project().survey(&models, Some("poet")).is_err(), "it is not linked with the others");
    let program = files.project().with_created("poet").survey(&models, Some("poet")).unwrap().program;
    assert_eq!(
        (&program.entry, program.agents["poet"].instructions.as_str()),
        (&Entry::Agent("poet".into()), "Rhyme.")
    );
    assert!(program.agent("poet").is_ok(), "it is read again when it is called, and the user's model is still its own");
    assert!(files.project().with_created("nobody").survey(&models, None).is_ok());
}

#[tokio::test]
async fn a_call_for_an_agent_elsewhere_is_one_level_deeper_and_named_after_it() {
    let files = maker("toolsets: [dynamic_agents]");
    let script = "- {round: 1, call: {agent_create: {name: a, instructions: x}}}\n- {say: done}";
    let (approvals, asked) = person(Answer::Once);
    let runtime = scripted(&files.project(), script, approvals);
    let caller = |depth| OutsideCaller { agent: "far".to_owned(), depth };
    let mut call = runtime.open_entry_for(Some(&caller(2))).await.unwrap();
    assert_eq!(text(call.turn("x").await), "done");
    assert_eq!((call.new_calls().len(), call.new_calls().len()), (1, 0));
    call.close().await;
    assert_eq!(asked.lock().unwrap()[0].path, ["far", "maker"]);
    let error = runtime.open_entry_for(Some(&caller(4))).await.err().unwrap();
    assert_eq!(error.to_string(), "agent `far` cannot call `maker`: that would be depth 5, and `max_depth` is 5");
}

#[tokio::test]
async fn a_program_creates_agents_with_defaults_and_may_replace_what_is_locked() {
    let files = maker("toolsets: [dynamic_agents]");
    let project = files.project();
    let policy = AttachmentPolicy { max_attachments: 1, ..AttachmentPolicy::default() };
    let defaults = WorkerDefaults {
        model: Some("anthropic:claude-haiku-4-5".to_owned()),
        toolsets: vec!["filesystem_project_ro".to_owned()],
        allow_workers: Some(vec!["other".to_owned()]),
        attachment_policy: Some(policy),
    };
    let spec = WorkerSpec {
        name: "reader".to_owned(),
        instructions: "Read.".to_owned(),
        approval: vec![("read_file".to_owned(), Rule::Ask)],
        locked: true,
        ..WorkerSpec::default()
    };
    let path = project.create_worker(&spec, &defaults, ExistingAgent::Keep, None).unwrap();
    let text = std::fs::read_to_string(files.path().join(&path)).unwrap();
    let expected = "name: \"reader\"\nmodel: \"anthropic:claude-haiku-4-5\"\ntoolsets: [\"filesystem_project_ro\"]\n\
                    approval: {\"read_file\": ask}\nallow_workers: [\"other\"]\n\
                    attachment_policy: {max_attachments: 1}\nlocked: true\ninstructions: \"Read.\"\n";
    assert_eq!(text, expected);
    let exists = project.create_worker(&spec, &defaults, ExistingAgent::Keep, None);
    assert_eq!(exists, Err(CreateError::Exists("reader".to_owned())));
    let other = WorkerSpec { instructions: "Read more.".to_owned(), ..spec.clone() };
    project.create_worker(&other, &defaults, ExistingAgent::Replace, None).unwrap();
    let taken = WorkerSpec { name: "other".to_owned(), ..spec };
    let refused = project.create_worker(&taken, &defaults, ExistingAgent::Replace, None);
    assert_eq!(refused, Err(CreateError::Taken("other".to_owned())));
}
