//! The commands `models` and `doctor`, and what a run costs.
#![allow(clippy::unwrap_used, reason = "the whole file is a test, its helpers included")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use fake_llm::{FakeLlm, FakeReply, FakeScript, FakeUsage};
use serde_json::{Value, json};
use tempfile::TempDir;

const CONFIG: &str = r#"
[providers.acme]
kind = "openai-chat"
base_url = "http://me:hunter2@localhost:8000/v1?key=hunter3"
api_key_env = "ACME_KEY"
[providers.vault]
kind = "anthropic"
base_url = "http://localhost:9000"
api_key_cmd = ["/no/such/program", "hunter4"]
[prices."acme:Rocket-1"]
input = 1.5
output = 4
[prices."anthropic:claude-haiku-4-5"]
input = 7
output = 8
"#;

fn home(config: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    home
}

/// The program with a home of its own, these variables and no others.
fn llm_do(home: &Path, variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llm-do"));
    command.env_clear().env("LLM_DO_HOME", home).envs(variables.iter().copied());
    command.args(args).current_dir(home).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn json_of(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

#[track_caller]
fn check_listed(list: &Value, expected: &Value) {
    let found = list.as_array().unwrap().iter().find(|item| item["name"] == expected["name"]);
    assert_eq!(found, Some(expected));
}

#[test]
fn providers_say_where_they_are_and_where_their_key_is() {
    let home = home(CONFIG);
    let variables = [
        ("GOOGLE_API_KEY", "hunter1"),
        ("ACME_KEY", "hunter5"),
        ("OPENAI_API_KEY", " "),
        ("OPENAI_BASE_URL", "http://localhost:1/v1"),
    ];
    let listed = json_of(&llm_do(home.path(), &variables, &["models", "--json"]));
    let check = |name: &str, protocol: &str, base_url: Option<&str>, state: &str, variables: &[&str], origin: &str| {
        let key = json!({"state": state, "variables": variables});
        let provider = json!({
            "name": name, "protocol": protocol, "base_url": base_url, "key": key, "origin": origin,
        });
        check_listed(&listed["providers"], &provider);
    };
    let anthropic = Some("https://api.anthropic.com");
    check("anthropic", "anthropic", anthropic, "missing", &["ANTHROPIC_API_KEY"], "built_in");
    let google = Some("https://generativelanguage.googleapis.com");
    check("google", "google", google, "present", &["GOOGLE_API_KEY"], "built_in");
    check("openai", "openai", Some("http://localhost:1/v1"), "missing", &["OPENAI_API_KEY"], "built_in");
    check("ollama", "openai-chat", Some("http://localhost:11434/v1"), "unneeded", &[], "built_in");
    let hosted = json_of(&llm_do(home.path(), &[("OLLAMA_API_KEY", "hunter8")], &["models", "ollama:", "--json"]));
    assert_eq!(hosted["providers"][0]["key"], json!({"state": "present", "variables": ["OLLAMA_API_KEY"]}));
    check("azure", "openai-chat", None, "missing", &["AZURE_OPENAI_API_KEY"], "built_in");
    check("acme", "openai-chat", Some("http://localhost:8000/v1"), "present", &["ACME_KEY"], "config");
    check("vault", "anthropic", Some("http://localhost:9000"), "command", &[], "config");
}

#[test]
fn models_have_the_prices_of_the_table_or_of_the_user() {
    let home = home(CONFIG);
    let listed = json_of(&llm_do(home.path(), &[], &["models", "--json"]));
    let check = |name: &str, [input, output, cache_read, cache_write]: [f64; 4]| {
        let model = json!({
            "name": name, "input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write,
            "tiers": [],
        });
        check_listed(&listed["models"], &model);
    };
    check("acme:rocket-1", [1.5, 4.0, 1.5, 1.5]);
    check("anthropic:claude-haiku-4-5", [7.0, 8.0, 7.0, 7.0]);
    check("anthropic:claude-opus-4-5", [5.0, 25.0, 0.5, 6.25]);
    let tiered = listed["models"].as_array().unwrap().iter().find(|model| model["name"] == "google:gemini-2.5-pro");
    let tier = &tiered.unwrap()["tiers"][0];
    assert_eq!((&tier["above_tokens"], &tier["output"]), (&json!(200_000), &json!(15.0)));
}

#[test]
fn as_text_it_is_aligned_and_can_be_filtered() {
    let home = home(CONFIG);
    let text = stdout(&llm_do(home.path(), &[("ACME_KEY", "hunter5")], &["models", "ACME"]));
    let expected = "\
provider  protocol     key          address
acme      openai-chat  in ACME_KEY  http://localhost:8000/v1

USD per million tokens  input  output  cache read  cache write
acme:rocket-1             1.5       4         1.5          1.5
";
    assert_eq!(text, expected);
    let nothing = llm_do(home.path(), &[], &["models", "no-such-model"]);
    assert_eq!(stdout(&nothing), "");
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("nothing matches \"no-such-model\""));
}

#[test]
fn no_key_is_ever_shown() {
    let home = home(CONFIG);
    let variables = [("ACME_KEY", "hunter5"), ("ANTHROPIC_API_KEY", "hunter6"), ("GROQ_BASE_URL", "http://hunter7@g")];
    for args in [&["models"][..], &["models", "--json"], &["models", "acme"]] {
        let output = llm_do(home.path(), &variables, args);
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(said.contains("acme") && !said.contains("hunter"), "{said}");
    }
}

#[test]
fn a_price_that_is_none_is_a_usage_error() {
    let home = home("[prices.\"acme:rocket-1\"]\ninput = -1\noutput = 1\n");
    let output = llm_do(home.path(), &[], &["models"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("config.toml:2:9") && said.contains("expected a number from 0 to 1000000000"), "{said}");
}

/// Runs one agent. Its provider answers nothing at first and is asked again; each time it reports 900 tokens in, 100 more
/// from a cache, and 10 out.
fn run(model: &str, prices: &str, args: &[&str]) -> Output {
    let usage = || FakeUsage { cache_read: 100, ..FakeUsage::new(900, 10) };
    let [nothing, hello] = ["", "Hello."].map(|text| FakeReply::text(text).with_usage(usage()));
    let fake = FakeLlm::start(FakeScript::new().reply(nothing).reply(hello));
    let address = fake.openai_url();
    let provider =
        format!("[providers.acme]\nkind = 'openai-chat'\nbase_url = '{address}'\napi_key_env = 'ACME_KEY'\n");
    let home = home(&format!("{provider}{prices}"));
    std::fs::write(home.path().join("hi.worker"), format!("---\nname: main\nmodel: {model}\n---\nGreet.\n")).unwrap();
    let output = llm_do(home.path(), &[("ACME_KEY", "k")], &[&["run", "hi.worker", "Hi"], args].concat());
    fake.assert_finished();
    output
}

#[test]
fn events_usage_trace_and_messages_agree_on_the_cost() {
    let prices = "[prices.\"acme:rocket-1\"]\ninput = 1\noutput = 5\ncache_read = 0.1\n";
    let output = run("acme:rocket-1-20260101", prices, &["--json"]);
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (one, both) = (0.00096, 0.00192);
    let costs = |kind: &str| -> Vec<Value> {
        lines.iter().filter(|line| line["type"] == kind).map(|line| line["usage"]["cost_usd"].clone()).collect()
    };
    assert_eq!(costs("request_finished"), [one, one]);
    assert_eq!(costs("call_finished"), [both]);
    let result = &lines[lines.len() - 1];
    assert_eq!(result["usage"]["total"]["cost_usd"], both);
    assert_eq!(result["usage"]["by_model"]["acme:rocket-1-20260101"]["cost_usd"], both);
    assert_eq!(result["trace"]["usage"]["cost_usd"], both);
    assert_eq!(result["messages"][1]["usage"]["cost_usd"], one);
}

#[test]
fn a_cost_that_nobody_knows_is_null() {
    let result = json_of(&run("acme:rocket-2", "", &["--output-format", "json"]));
    assert_eq!(result["output"], "Hello.");
    assert_eq!(result["usage"]["total"]["input_tokens"], 2000);
    assert_eq!(result["usage"]["total"]["cost_usd"], Value::Null);
    assert_eq!(result["messages"][1]["usage"]["cost_usd"], Value::Null);
}

#[test]
fn a_script_costs_nothing() {
    let home = home("");
    std::fs::write(home.path().join("hi.worker"), "---\nname: main\nmodel: scripted:script.yaml\n---\nGreet.\n")
        .unwrap();
    std::fs::write(home.path().join("script.yaml"), "- {say: Hello., usage: {input: 3, output: 4}}\n").unwrap();
    let result = json_of(&llm_do(home.path(), &[], &["run", "hi.worker", "Hi", "--trust", "--output-format", "json"]));
    assert_eq!(result["usage"]["total"]["input_tokens"], 3);
    assert_eq!(result["usage"]["total"]["cost_usd"], 0.0);
}

#[test]
fn an_overview_is_one_screen_and_leads_to_the_rest() {
    let home = home(CONFIG);
    let every =
        ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "GROQ_API_KEY", "XAI_API_KEY"];
    let more = ["MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "TOGETHER_API_KEY", "CEREBRAS_API_KEY", "ACME_KEY"];
    let all: Vec<(&str, &str)> = every.iter().chain(&more).map(|name| (*name, "k")).collect();
    for count in 0..=all.len() {
        let text = stdout(&llm_do(home.path(), &all[..count], &["models"]));
        assert!(text.lines().count() <= 23, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        // Each command that is named shows more.
        for line in text.lines().filter(|line| line.starts_with('…')) {
            let (_, command) = line.split_once("llm-do ").unwrap();
            let shown = stdout(&llm_do(home.path(), &all[..count], &command.split(' ').collect::<Vec<_>>()));
            assert!(shown.lines().count() > 3, "{command}: {shown}");
        }
    }
    let text = stdout(&llm_do(home.path(), &[("OPENAI_API_KEY", "k")], &["models"]));
    assert!(text.starts_with("openai       key in OPENAI_API_KEY\n"), "{text}");
    assert!(text.contains("\nopenai:gpt-5-mini ") && text.contains(" more: llm-do models openai:\n"), "{text}");
    assert!(!text.contains("anthropic:claude"), "it has no key: {text}");
    let all = stdout(&llm_do(home.path(), &[], &["models", "--all"]));
    assert!(all.lines().count() > 1000 && all.contains("anthropic:claude-haiku-4-5"), "{all}");
}

#[test]
fn the_doctor_sends_nothing_unless_asked_to() {
    let fake = FakeLlm::start(FakeScript::new());
    let (home, url) = (home(""), fake.anthropic_url());
    let variables = [("ANTHROPIC_API_KEY", "hunter1"), ("ANTHROPIC_BASE_URL", url.as_str()), ("PATH", "/usr/bin:/bin")];
    let well = llm_do(home.path(), &variables, &["doctor"]);
    let text = stdout(&well);
    assert_eq!(fake.stats().connections, 0, "{text}");
    for subject in ["program", "config", "keys", "model", "store", "fence", "python", "terminal"] {
        assert!(text.lines().any(|line| line[6..].starts_with(subject)), "{subject}: {text}");
    }
    assert!(text.contains("anthropic (ANTHROPIC_API_KEY)") && !text.contains("hunter"), "{text}");
    let entries = std::fs::read_dir(home.path()).unwrap().count();
    assert_eq!(entries, 1, "nothing is written");
    let online = json_of(&llm_do(home.path(), &variables, &["doctor", "--online", "--json"]));
    assert_eq!(online["ok"], true, "{online}");
    let found = online["findings"].as_array().unwrap();
    let answered = found.iter().find(|finding| finding["subject"] == "online").unwrap();
    assert!(answered["found"].as_str().unwrap().starts_with("anthropic answers ("), "{answered}");
    assert_eq!(fake.stats().connections, 1);
}

#[test]
fn the_doctor_names_what_is_wrong_and_looks_at_all_the_rest() {
    let home = home("modle = 1\n");
    let gone = [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")];
    for (variables, args, subject) in [(&[][..], &["doctor"][..], "config"), (&gone, &["doctor", "--online"], "online")]
    {
        let output = llm_do(home.path(), variables, args);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stdout).unwrap();
        let is_wrong = |line: &str| line.starts_with(&format!("wrong {subject} "));
        assert!(text.lines().any(is_wrong) && text.contains("fence"), "{text}");
    }
}
