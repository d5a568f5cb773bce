//! Which model is asked, and with which key.

use fake_llm::{FakeLlm, FakeReply, FakeScript};

use crate::MAIN;
use crate::session::{KEY, Run};
use crate::support::Sandbox;

/// Three ways to be answered, each by a script that says its name.
fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", MAIN);
    for name in ["flag", "variable", "config", "override", "file", "all"] {
        sandbox.file(&format!("{name}.yaml"), &format!("- say: by the {name}\n"));
    }
    sandbox
}

#[test]
fn the_nearest_choice_of_a_model_wins() {
    let sandbox = project();
    sandbox.file(".config/llm-do/config.toml", "model = \"scripted:config.yaml\"\n");
    sandbox.file("named.worker", "---\nname: named\nmodel: scripted:file.yaml\n---\nAnswer.\n");
    let environment = ("LLM_DO_MODEL", "scripted:variable.yaml");
    let run = |arguments: &[&'static str], variables: &[(&'static str, &str)]| {
        let run = Run::new(&sandbox, &[arguments, &["hi", "-q"]].concat());
        variables.iter().fold(run, |run, (name, value)| run.with(name, *value)).answer()
    };
    assert_eq!(run(&["main.worker"], &[]), "by the config\n");
    assert_eq!(run(&["main.worker"], &[environment]), "by the variable\n");
    assert_eq!(run(&["main.worker", "-m", "scripted:flag.yaml"], &[environment]), "by the flag\n");
    assert_eq!(run(&["main.worker", "-m", "scripted/flag.yaml"], &[environment]), "by the flag\n");
    assert_eq!(run(&["named.worker"], &[environment]), "by the file\n");
    assert_eq!(run(&["named.worker", "-m", "named=scripted:override.yaml"], &[environment]), "by the override\n");
    assert_eq!(run(&["named.worker", "-m", "all=scripted:all.yaml"], &[environment]), "by the all\n");
    let flags = ["named.worker", "-m", "all=scripted:all.yaml", "-m", "scripted:flag.yaml"];
    assert_eq!(run(&flags, &[environment]), "by the flag\n");
    let flags = ["named.worker", "-m", "all=scripted:all.yaml", "-m", "named=scripted:override.yaml"];
    assert_eq!(run(&flags, &[environment]), "by the override\n");
}

/// Of several models the next is asked where one fails; what has no key is skipped; what is chosen for the run stands alone.
#[test]
fn several_models_are_asked_in_turn() {
    let sandbox = project();
    let configured = "model = [\"scripted:down.yaml\", \"scripted:config.yaml\"]\n";
    sandbox.file(".config/llm-do/config.toml", configured);
    sandbox.file("down.yaml", "- {fail: wait, say: overloaded}\n");
    let ran = Run::new(&sandbox, &["main.worker", "hi"]).ended();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "by the config\n"), "{}", ran.stderr);
    let note = "scripted:config.yaml is asked instead of scripted:down.yaml: the provider is not available: overloaded";
    assert_eq!(ran.stderr.matches(note).count(), 1, "{}", ran.stderr);
    let (events, result) = Run::new(&sandbox, &["main.worker", "hi", "--json"]).events();
    let switched = crate::session::of_type(&events, "model_switched");
    assert_eq!((&switched[0]["to"], switched.len()), (&"scripted:config.yaml".into(), 1), "{events:?}");
    assert_eq!(result["messages"][1]["model"], "scripted:config.yaml", "{result}");
    let said = Run::new(&sandbox, &["main.worker", "hi", "-m", "scripted:down.yaml"]).failure(3);
    assert!(said.contains("overloaded"), "{said}");

    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Hello.")));
    let listed = "---\nname: listed\nmodel: [anthropic:a, openai:b]\n---\nAnswer.\n";
    sandbox.file("listed.worker", listed);
    let ran = Run::new(&sandbox, &["listed.worker", "hi"])
        .with("OPENAI_BASE_URL", fake.openai_url())
        .with("OPENAI_API_KEY", KEY)
        .ended();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Hello.\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("note: listed skips anthropic:a: ANTHROPIC_API_KEY is not set\n"), "{}", ran.stderr);
    let said = Run::new(&sandbox, &["listed.worker", "hi"]).failure(3);
    let both = "listed uses anthropic:a, openai:b, ANTHROPIC_API_KEY or OPENAI_API_KEY";
    assert!(said.contains(both), "{said}");
    let checked = sandbox.run(&["check", "listed.worker", "--json"]);
    let agent: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(agent["agents"][0]["fallback_models"], serde_json::json!(["openai:b"]), "{}", checked.stdout);
    assert!(sandbox.run(&["check", "listed.worker"]).stdout.contains("listed  anthropic:a, then openai:b  ("));

    let search =
        "---\nname: s\nmodel: [anthropic:a, ollama:b]\nserver_side_tools: [{tool_type: web_search}]\n---\nX.\n";
    sandbox.file("search.worker", search);
    let checked = sandbox.run(&["check", "search.worker"]);
    assert!(checked.code == Some(2) && checked.stderr.contains("`ollama` has no server-side tool `web_search`"));
    let judged = "---\nname: j\ncompatible_models: [\"scripted:config*\"]\n---\nAnswer.\n";
    sandbox.file("judged.worker", judged);
    let ran = Run::new(&sandbox, &["judged.worker", "hi"]).ended();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "by the config\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("j leaves out scripted:down.yaml, which it is not compatible with"), "{}", ran.stderr);
    let chosen = sandbox.run(&["models", "--use", "ollama:a", "--use", "anthropic:b"]);
    assert_eq!(chosen.code, Some(0), "{}", chosen.stderr);
    let written = std::fs::read_to_string(sandbox.path().join(".config/llm-do/config.toml")).unwrap();
    assert_eq!(written, "model = [\"ollama:a\", \"anthropic:b\"]\n");
}

/// The entry is asked as `-m` says; another agent whose file names a model is asked as its file says.
#[test]
fn a_model_for_the_run_is_that_of_its_entry_and_is_told_of_once() {
    let sandbox = project();
    let worker =
        |name: &str, toolsets: &str| format!("---\nname: {name}\nmodel: scripted:file.yaml\n{toolsets}---\nx\n");
    sandbox.file("team/main.worker", &worker("main", "toolsets: [helper]\n"));
    sandbox.file("team/helper.worker", &worker("helper", "")).file("team/file.yaml", "- say: by the file\n");
    sandbox.file("calls.yaml", "- {round: 1, call: {helper: {input: hi}}}\n- say: 'helper said {{ result }}'\n");
    let ran = Run::new(&sandbox, &["team", "hi", "-m", "scripted:calls.yaml"]).ended();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "helper said by the file\n"), "{}", ran.stderr);
    let note = "note: main uses scripted:calls.yaml instead of scripted:file.yaml (main.worker)\n";
    assert_eq!(ran.stderr.matches("instead of").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.starts_with(note), "{}", ran.stderr);
    let quiet = Run::new(&sandbox, &["team", "hi", "-q", "-m", "scripted:calls.yaml"]).ended();
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    let checked = sandbox.run(&["check", "team", "-m", "scripted:calls.yaml"]);
    assert_eq!((checked.code, checked.stderr), (Some(0), format!("{note}\n")));
    let checked = sandbox.run(&["check", "team", "-m", "all=scripted:calls.yaml"]);
    assert_eq!(checked.stderr.matches(" uses scripted:calls.yaml instead of ").count(), 2, "{}", checked.stderr);
    // What an agent is compatible with is still its own word.
    sandbox.file("team/main.worker", "---\nname: main\nmodel: ollama:a\ncompatible_models: ['ollama:*']\n---\nx\n");
    for flag in ["scripted:calls.yaml", "all=scripted:calls.yaml"] {
        let said = Run::new(&sandbox, &["team", "hi", "-m", flag]).failure(2);
        assert!(said.contains("is not a model that agent `main` is compatible with"), "{said}");
    }
}

#[test]
fn a_model_for_the_run_goes_on_with_it() {
    let sandbox = project();
    sandbox.file("named.worker", "---\nname: named\nmodel: scripted:file.yaml\ntoolsets: [filesystem_cwd]\n---\nx\n");
    let script = "- {round: 1, call: {write_file: {path: a.txt, content: a}}}\n- say: by the one of the run\n";
    sandbox.file("asks.yaml", script);
    for flag in ["scripted:asks.yaml", "all=scripted:asks.yaml"] {
        Run::new(&sandbox, &["named.worker", "hi", "-m", flag]).failure(4);
        let resumed = sandbox.run(&["resume", "--last", "--approve-all"]);
        assert_eq!((resumed.code, resumed.stdout.as_str()), (Some(0), "by the one of the run\n"), "{}", resumed.stderr);
    }
}

#[test]
fn keys_of_all_agents_that_a_run_reaches_are_looked_for_first() {
    let sandbox = project();
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Hello.")).accept_missing_key());
    let worker = |name: &str, keys: &str| format!("---\nname: {name}\n{keys}---\nx\n");
    let desk = |toolsets: &str, researcher: &str| {
        sandbox.file("desk/main.worker", &worker("main", &format!("model: ollama:qwen3\ntoolsets: [{toolsets}]\n")));
        sandbox.file("desk/researcher.worker", &worker("researcher", researcher));
    };
    let run = || Run::new(&sandbox, &["desk", "hi"]).with("OLLAMA_HOST", fake.url());
    desk("researcher", "model: anthropic:claude-haiku-4-5\n");
    let said = "error: researcher uses anthropic:claude-haiku-4-5, ANTHROPIC_API_KEY is not set\n\
                hint: `llm-do desk -m all=ollama:qwen3`\n";
    assert_eq!(run().failure(3), said);
    assert_eq!(fake.requests().len(), 0);
    // It is not asked, or its key is there for whoever asks: a command that gives one is not run for this.
    let config = format!(
        "[providers.vault]\nkind = 'openai-chat'\nbase_url = '{}'\napi_key_cmd = ['/no/such/program']\n",
        fake.openai_url()
    );
    sandbox.file(".config/llm-do/config.toml", &config);
    desk("researcher", "model: vault:m\n");
    assert_eq!(run().answer(), "Hello.\n");
    for (toolsets, entry) in [("dynamic_agents", "model: anthropic:claude-haiku-4-5\n"), ("", "model: openai:gpt-5\n")]
    {
        desk(toolsets, entry);
        let said = run().failure(3);
        assert!(said.contains("the script has no reply left"), "it was reached: {said}");
    }
    // The hint does what it says.
    desk("researcher", "model: anthropic:claude-haiku-4-5\n");
    let again =
        Run::new(&sandbox, &["desk", "hi", "-m", "all=ollama:qwen3"]).with("OLLAMA_HOST", fake.url()).failure(3);
    assert!(again.contains("the script has no reply left"), "it was reached: {again}");
    let dry = Run::new(&sandbox, &["desk", "hi", "--dry-run"]).with("OLLAMA_HOST", fake.url());
    assert!(dry.answer().contains("qwen3"));
}

#[test]
fn without_a_model_there_are_commands_that_choose_one() {
    let sandbox = project();
    let said = Run::new(&sandbox, &["main.worker", "hi"]).failure(2);
    let none = "error: main has no model yet\nhint: set a key such as ANTHROPIC_API_KEY, or run Ollama and `llm-do models --use \
                ollama:qwen3`; without any: `llm-do new demo --template demo && llm-do demo`\n";
    assert_eq!(said, none);
    let said = Run::new(&sandbox, &["main.worker", "hi"]).with("OPENAI_API_KEY", KEY).failure(2);
    let some = "error: main has no model yet\nhint: `llm-do models --use openai:gpt-5-mini` for all runs, `llm-do main.worker \
                -m openai:gpt-5-mini` for this one\n";
    assert_eq!(said, some);
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("One.")).reply(FakeReply::text("All.")));
    let run = |arguments: &[&'static str]| {
        Run::new(&sandbox, arguments).with("OPENAI_API_KEY", KEY).with("OPENAI_BASE_URL", fake.openai_url())
    };
    assert_eq!(run(&["main.worker", "hi", "-m", "openai:gpt-5-mini"]).answer(), "One.\n");
    let used = sandbox.run(&["models", "--use", "openai:gpt-5-mini"]);
    assert_eq!(used.code, Some(0), "{}", used.stderr);
    assert_eq!(used.stderr, "note: its key is not set yet: OPENAI_API_KEY\n");
    assert_eq!(run(&["main.worker", "hi"]).answer(), "All.\n");
    let models: Vec<_> = fake.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(models, ["gpt-5-mini", "gpt-5-mini"]);
}

#[test]
fn a_choice_that_cannot_be_used_is_an_error_with_the_way_out() {
    let sandbox = project();
    let said = Run::new(&sandbox, &["main.worker", "hi", "-m", "antropic:claude-haiku-4-5"]).failure(2);
    assert!(said.contains("\nhint: did you mean `anthropic:claude-haiku-4-5`?\n"), "{said}");
    let said = Run::new(&sandbox, &["main.worker", "hi", "-m", "scripted:flag.yaml", "-m", "ollama:a"]).failure(2);
    let hint = "hint: `-m AGENT=provider:model` is for one agent, `-m all=provider:model` for every one\n";
    assert!(said.ends_with(hint), "{said}");
    for (name, hint) in [("antropic:x", "`llm-do models --use anthropic:x`"), ("gpt", "write `provider:model`")] {
        let refused = sandbox.run(&["models", "--use", name]);
        assert!(refused.code == Some(2) && refused.stderr.contains(hint), "{}", refused.stderr);
    }
    assert!(!sandbox.path().join(".config/llm-do/config.toml").exists(), "nothing was written");
    let said = Run::new(&sandbox, &["main.worker", "hi", "-m", "other=scripted:flag.yaml"]).failure(2);
    assert!(said.starts_with("error: `--model other=…` names no agent of the project\n"), "{said}");
    let said = Run::new(&sandbox, &["main.worker", "hi", "-m", "scripted:none.yaml"]).failure(2);
    assert_eq!(said, "error: the script `none.yaml` cannot be read: No such file or directory (os error 2)\n");
}

#[test]
fn a_provider_of_the_configuration_is_asked_with_its_own_key() {
    let sandbox = project();
    for kind in ["anthropic", "openai", "openai-chat", "google", "google-vertex"] {
        let base = |fake: &FakeLlm| match kind {
            "openai" | "openai-chat" => fake.openai_url(),
            "google-vertex" => fake.vertex_url(),
            _ => fake.url(),
        };
        for key in
            ["api_key_env = \"ACME_KEY\"".to_owned(), format!("api_key_cmd = [\"printf\", \"%s\\\\n\", \"{KEY}\"]")]
        {
            let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Rocket.")));
            let config = format!(
                "model = \"acme:rocket-1\"\n[providers.acme]\nkind = \"{kind}\"\nbase_url = \"{}\"\n{key}\n",
                base(&fake)
            );
            sandbox.file(".config/llm-do/config.toml", &config);
            let run = Run::new(&sandbox, &["main.worker", "hi"]).with("ACME_KEY", KEY).with("PATH", "/usr/bin:/bin");
            assert_eq!(run.answer(), "Rocket.\n", "{kind} {key}");
            fake.assert_finished();
            let requests = fake.requests();
            let sent = requests[0].headers.0.iter().any(|(_, value)| value == KEY || *value == format!("Bearer {KEY}"));
            assert!(sent, "{kind} {key}: {:?}", requests[0].headers);
        }
    }
}

#[test]
fn a_provider_without_a_key_gets_none() {
    let sandbox = project();
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("Free.")).accept_missing_key());
    let config = format!("[providers.local]\nkind = \"openai-chat\"\nbase_url = \"{}\"\n", fake.openai_url());
    sandbox.file(".config/llm-do/config.toml", &config);
    assert_eq!(Run::new(&sandbox, &["main.worker", "hi", "-m", "local:m"]).answer(), "Free.\n");
    assert_eq!(fake.requests()[0].headers.get("authorization"), None);
    let address = fake.url().replace("http://", "");
    let fake_of_ollama = Run::new(&sandbox, &["main.worker", "hi", "-m", "ollama:qwen3"]).with("OLLAMA_HOST", address);
    let said = fake_of_ollama.failure(3);
    assert!(said.contains("the script has no reply left"), "it was reached: {said}");
}

#[test]
fn a_command_that_gives_no_key_ends_the_run_before_any_request() {
    let sandbox = project();
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("never")));
    for (command, reason) in [
        ("[\"false\"]", "ended with exit status: 1"),
        ("[\"true\"]", "gave no key"),
        ("[\"/no/such/program\"]", "cannot be started: No such file or directory (os error 2)"),
    ] {
        let config = format!(
            "[providers.acme]\nkind = \"openai-chat\"\nbase_url = \"{}\"\napi_key_cmd = {command}\n",
            fake.openai_url()
        );
        sandbox.file(".config/llm-do/config.toml", &config);
        let run = Run::new(&sandbox, &["main.worker", "hi", "-m", "acme:m"]).with("PATH", "/usr/bin:/bin");
        let hint = "hint: `llm-do models` lists what can be asked; `ollama` needs no key\n";
        let fact = format!("error: agent `main`: not authenticated: `api_key_cmd` of `acme` {reason}\n");
        assert_eq!(run.failure(3), fact + hint);
    }
    assert_eq!(fake.requests().len(), 0);
}

#[test]
fn a_configuration_with_a_mistake_is_named_with_its_place() {
    let sandbox = project();
    sandbox.file(".config/llm-do/config.toml", "modle = \"a:b\"\n");
    let said = Run::new(&sandbox, &["main.worker", "hi", "-m", "scripted:flag.yaml"]).failure(2);
    assert!(said.starts_with("error: unknown key `modle` in the configuration\n"), "{said}");
    assert!(said.contains("config.toml:1:1\n") && said.contains("did you mean `model`?"), "{said}");
    // Beside the project it is nobody's configuration.
    let sandbox = project();
    sandbox.file("config.toml", "modle = 1\n").file(".env", "LLM_DO_MODEL=scripted:variable.yaml\n");
    assert_eq!(Run::new(&sandbox, &["main.worker", "hi", "-m", "scripted:flag.yaml"]).answer(), "by the flag\n");
}

/// A template names no model: the one that is named when it is run is asked.
#[test]
fn a_new_project_asks_the_model_that_its_run_names() {
    let (sandbox, fake) = (Sandbox::new(), FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("In short."))));
    assert_eq!(sandbox.run(&["new", "hello"]).code, Some(0));
    let run = Run::new(&sandbox, &["hello", "-m", "ollama:qwen3", "-q", "Summarise"]);
    assert_eq!(run.with("OLLAMA_HOST", fake.openai_url()).with("OLLAMA_API_KEY", KEY).answer(), "In short.\n");
    assert_eq!(fake.requests()[0].seen.as_ref().unwrap().model, "qwen3");
}

#[test]
fn a_request_that_may_cost_more_than_is_allowed_is_not_sent() {
    let (sandbox, fake) = (project(), FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("No."))));
    let flags = ["main.worker", "hi", "-m", "anthropic:claude-haiku-4-5", "--max-cost-usd", "0.0001"];
    let said = Run::new(&sandbox, &flags).asking(&fake).failure(5);
    assert!(said.contains("`max_cost_usd`"), "{said}");
    assert_eq!(fake.requests().len(), 0);
}
