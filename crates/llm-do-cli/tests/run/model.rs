//! Which model is asked, and with which key.

use fake_llm::{FakeLlm, FakeReply, FakeScript};

use crate::MAIN;
use crate::session::{KEY, Run};
use crate::support::Sandbox;

/// Three ways to be answered, each by a script that says its name.
fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", MAIN);
    for name in ["flag", "variable", "config", "override", "file"] {
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
        let run = Run::new(&sandbox, &[arguments, &["hi"]].concat());
        variables.iter().fold(run, |run, (name, value)| run.with(name, *value)).answer()
    };
    assert_eq!(run(&["main.worker"], &[]), "by the config\n");
    assert_eq!(run(&["main.worker"], &[environment]), "by the variable\n");
    assert_eq!(run(&["main.worker", "-m", "scripted:flag.yaml"], &[environment]), "by the flag\n");
    assert_eq!(run(&["main.worker", "-m", "scripted/flag.yaml"], &[environment]), "by the flag\n");
    assert_eq!(run(&["named.worker"], &[environment]), "by the file\n");
    assert_eq!(run(&["named.worker", "-m", "named=scripted:override.yaml"], &[environment]), "by the override\n");
}

#[test]
fn a_model_that_nobody_uses_is_an_error_with_the_way_out() {
    let sandbox = project();
    sandbox.file("named.worker", "---\nname: named\nmodel: scripted:file.yaml\n---\nAnswer.\n");
    let said = Run::new(&sandbox, &["named.worker", "hi", "-m", "scripted:flag.yaml"]).failure(2);
    assert_eq!(
        said,
        "error: no agent uses the model `scripted:flag.yaml`: each file names its own\n |\n = hint: `-m named=scripted:flag.yaml` replaces the model of one agent\n\n1 error\n"
    );
    let said = Run::new(&sandbox, &["main.worker", "hi", "-m", "other=scripted:flag.yaml"]).failure(2);
    assert!(said.starts_with("error: `--model other=…` names no agent of the project\n"), "{said}");
    let said = Run::new(&sandbox, &["main.worker", "hi"]).failure(2);
    assert!(said.starts_with("error: no model for agent `main`\n") && said.contains("`LLM_DO_MODEL`"), "{said}");
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
        let hint = "hint: `-m AGENT=PROVIDER:MODEL` chooses another model; `ollama` needs no key\n";
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
    assert!(said.contains("config.toml: TOML parse error at line 1, column 1"), "{said}");
    assert!(said.contains("unknown field `modle`"), "{said}");
    // Beside the project it is nobody's configuration.
    let sandbox = project();
    sandbox.file("config.toml", "modle = 1\n").file(".env", "LLM_DO_MODEL=scripted:variable.yaml\n");
    assert_eq!(Run::new(&sandbox, &["main.worker", "hi", "-m", "scripted:flag.yaml"]).answer(), "by the flag\n");
}
