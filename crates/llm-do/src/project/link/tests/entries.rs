//! Where a run starts, which model an agent has, and what the policy says.

use super::*;
use crate::model::name::CustomProvider;
use crate::model::provider::ProtocolKind;
use crate::project::{Entry, EntryFunction};
use crate::tools::approval::ApprovalMode;

fn agent_entry(name: &str) -> Entry {
    Entry::Agent(name.to_owned())
}

const MADE: &str = "---\nname: made\nmodel: anthropic:claude\n---\nx\n";

fn function(file: &str, function: &str) -> EntryFunction {
    EntryFunction::Python { file: file.into(), function: function.to_owned() }
}

const NO_ENTRY: &str = r#"{"version": 1, "entry": {}, "worker_files": ["x.worker"]}"#;

#[test]
fn an_entry_is_named_marked_or_clear_from_the_layout() {
    let cases = [
        (manifest("").agent("main", "").agent("other", "entry: true"), "main"),
        (directory().manifest_text(NO_ENTRY).agent("a", "").agent("b", "entry: true"), "b"),
        (directory().manifest_text(NO_ENTRY).agent("a", "entry: false").agent("b", "entry: true"), "b"),
        (directory().agent("a", "").agent("b", "entry: true"), "b"),
        (directory().agent("main", "").agent("b", "entry: true"), "b"),
        (directory().agent("a", "").agent("main", ""), "main"),
        (directory().agent("only", ""), "only"),
        (directory().agent("only", "").file("workers/generated/made.worker", MADE), "only"),
        (directory().file("workers/generated/made.worker", MADE), "made"),
        (directory().single_file().agent("only", ""), "only"),
        (directory().agent("a", "").agent("b", "entry: true").starting_with("a"), "a"),
        (manifest("").agent("main", "").agent("b", "").starting_with("b"), "b"),
    ];
    for (files, entry) in cases {
        assert_eq!(files.program().entry, agent_entry(entry));
    }
}

#[test]
fn a_project_without_one_clear_entry_says_which_there_are() {
    let hint = "(mark one with `entry: true`, or name the one to start with; agents: a, b)";
    let two = || directory().agent("a", "").agent("b", "");
    two().check_mistakes(&[&format!("root the project has no entry {hint}")]);
    two().manifest_text(NO_ENTRY).check_mistakes(&[&format!("project.json:1:16 the project has no entry {hint}")]);
    directory().agent("a", "entry: true").agent("b", "entry: true").check_mistakes(&[
        "b.worker:4:8 several entries: a, b (mark one of them, or name it in the manifest's `entry`)",
    ]);
    // Not even the only agent: a manifest says what it means.
    directory().manifest_text(NO_ENTRY).agent("a", "").check_mistakes(&[
        "project.json:1:16 the project has no entry (mark one with `entry: true`, or name the one to start with; agents: a)",
    ]);
    manifest("")
        .agent("mian", "")
        .check_mistakes(&["project.json:1:35 there is no agent `main` to start with (did you mean `mian`?)"]);
    two().starting_with("c").check_mistakes(&["there is no agent `c` to start with (agents: a, b)"]);
}

#[test]
fn an_entry_function_is_one_of_the_listed_files() {
    let with = |entry: &str| {
        let text = format!(r#"{{"version": 1, "entry": {{{entry}}}, "python_files": ["./code/tools.py"]}}"#);
        directory().manifest_text(&text)
    };
    let offer = |entries: &[EntryFunction]| PythonOffer { entries: entries.to_vec(), ..PythonOffer::default() };
    let named = with(r#""function": "code/tools.py:main""#);
    assert_eq!(
        named.offering(PythonOffer::default()).program().entry,
        Entry::Function(function("code/tools.py", "main"))
    );
    let open = with(r#""function": "code/tools.py:main""#).code(Code::Unread).program();
    assert_eq!(
        (open.entry, open.open),
        (Entry::Function(function("code/tools.py", "main")), vec!["code/tools.py:main".to_owned()])
    );
    with(r#""function": "code/tool.py:main""#).code(Code::Unread).check_mistakes(&[
        "project.json:1:38 `code/tool.py` is not listed under `python_files` (did you mean `./code/tools.py`?)",
    ]);
    for wrong in ["main", "tools.py", "tools.py:", "tools.txt:main"] {
        with(&format!("\"function\": \"{wrong}\"")).code(Code::Unread).check_mistakes(&[&format!(
            "project.json:1:38 `{wrong}` does not name a function (write `path.py:function`)"
        )]);
    }
    let one = function("code/tools.py", "start");
    assert_eq!(with("").offering(offer(std::slice::from_ref(&one))).program().entry, Entry::Function(one.clone()));
    assert_eq!(with("").code(Code::Unread).program().entry, Entry::Open);
    with("").agent("a", "entry: true").offering(offer(&[one])).check_mistakes(&[
        "a.worker:4:8 several entries: a, code/tools.py:start (mark one of them, or name it in the manifest's `entry`)",
    ]);
}

#[test]
fn an_agent_whose_file_is_broken_is_not_reported_again() {
    let linked = manifest("").broken("main").agent("other", "toolsets: [main]\nallow_workers: [main]").survey();
    assert!(shown(&linked.unwrap_err()).is_empty(), "the broken file has said why");
}

#[test]
fn a_model_is_chosen_by_override_file_requirement_and_fallbacks_in_this_order() {
    type Step = fn(&mut ModelChoices);
    let steps: [(Step, &str); 4] = [
        (|choices| choices.fallbacks = vec![fallback("ollama:second")], "ollama:second"),
        (|choices| choices.fallbacks.insert(0, fallback("ollama:first")), "ollama:first"),
        (|choices| choices.required = Some(model("ollama:required")), "ollama:required"),
        (|choices| _ = choices.overrides.insert("main".into(), model("ollama:override")), "ollama:override"),
    ];
    let mut files = directory().bare("main", "").bare("other", "");
    for (step, expected) in steps {
        files = files.choosing(step);
        assert_eq!(files.program().agents["main"].model.to_string(), expected);
    }
    assert_eq!(files.program().agents["other"].model.to_string(), "ollama:required");
    let own = directory().agent("main", "").choosing(|choices| choices.fallbacks = vec![fallback("ollama:first")]);
    assert_eq!(own.program().agents["main"].model.to_string(), "anthropic:claude");
}

#[test]
fn a_model_that_cannot_be_is_refused() {
    directory().bare("main", "").check_mistakes(&["main.worker:2:7 no model for agent `main` (write `model:` in its \
         file, or choose a model for `main`)"]);
    directory()
        .bare("main", "model: claude")
        .check_mistakes(&["main.worker:3:8 the model `claude` names no provider \
         (write `anthropic:claude`)"]);
    directory().bare("main", "model: 'a:b c'").check_mistakes(&["main.worker:3:8 `a:b c` is not of the form \
         `provider:model` (write `anthropic:claude-haiku-4-5`, or another model)"]);
    directory().bare("main", "model: antropic:claude").check_mistakes(&[
        "main.worker:3:8 unknown provider `antropic` in \
         the model `antropic:claude` (did you mean `anthropic:claude`? providers: anthropic, azure, cerebras, deepseek, \
         fireworks, google, google-vertex, groq, huggingface, mistral, ollama, openai, and 5 more)",
    ]);
}

#[test]
fn an_unknown_provider_on_the_command_line_is_said_once() {
    let files = directory().bare("a", "entry: true").bare("b", "").bare("c", "");
    files
        .choosing(|choices| choices.required = Some(model("antropic:x")))
        .check_mistakes(&["unknown provider `antropic` in the model `antropic:x` (did you mean `anthropic:x`?)"]);
}

#[test]
fn a_provider_of_the_configuration_is_known() {
    let acme = CustomProvider {
        name: "acme".into(),
        protocol: ProtocolKind::OpenAiChat,
        key_variable: Some("ACME_KEY".into()),
    };
    let files = directory().bare("main", "model: acme:rocket").choosing(|choices| choices.providers = vec![acme]);
    assert_eq!(files.notes(), ["no key for `acme`, used by main (provide the key, usually `ACME_KEY`)"]);
    assert_eq!(files.choosing(|choices| choices.keys = ["acme".to_owned()].into()).notes(), Vec::<String>::new());
}

#[test]
fn a_missing_key_is_a_note() {
    let files = (0..7).fold(directory().bare("main", "model: google:g"), |files, index| {
        files.bare(&format!("a{index}"), "model: google:g")
    });
    assert_eq!(
        files.notes(),
        ["no key for `google`, used by a0, a1, a2, a3, a4 and 3 more (provide the key, usually `GEMINI_API_KEY` or \
          `GOOGLE_API_KEY`)"]
    );
    assert!(directory().bare("main", "model: ollama:q").notes().is_empty(), "no key is needed");
}

#[test]
fn compatible_models_judge_the_fallback() {
    let files = |patterns: &str| {
        directory()
            .bare("main", &format!("compatible_models: {patterns}"))
            .choosing(|choices| choices.required = Some(model("ollama:qwen3")))
    };
    assert_eq!(files("['anthropic:*', 'OLLAMA:*']").program().agents["main"].model.to_string(), "ollama:qwen3");
    files("['anthropic:*', 'ollama:llama*']")
        .check_mistakes(&["main.worker:3:21 `ollama:qwen3` from the choices for this run is not a \
         model that agent `main` is compatible with (compatible: anthropic:*, ollama:llama*)"]);
    directory()
        .bare("main", "compatible_models: ['anthropic:*']")
        .choosing(|choices| choices.fallbacks = vec![fallback("ollama:q")])
        .check_mistakes(&[
            "main.worker:3:21 `ollama:q` from a test is not a model that agent `main` is compatible with \
         (compatible: anthropic:*)",
        ]);
    let broken = files("['a[']").mistakes();
    assert!(broken[0].starts_with("main.worker:3:21 `a[` is not a pattern: "), "{broken:?}");
    let long = files(&format!("['{}']", "?".repeat(300))).mistakes();
    assert_eq!(long, ["main.worker:3:21 the pattern is longer than 256 bytes"]);
}

#[test]
fn a_choice_that_decides_nothing_is_a_mistake() {
    let flag = |choices: &mut ModelChoices| choices.required = Some(model("ollama:q"));
    let of_entry = |choices: &mut ModelChoices| _ = choices.overrides.insert("main".into(), model("ollama:o"));
    directory().agent("main", "").choosing(flag).choosing(of_entry).check_mistakes(&[
        "no agent uses the model `ollama:q`: each has \
         its own (choose `ollama:q` for one agent, such as `main`, to replace the model of its file)",
        "main uses ollama:o instead of anthropic:claude (main.worker)",
    ]);
    assert!(directory().agent("main", "").choosing(flag).survey().is_ok(), "it is that of the entry");
    assert!(directory().agent("main", "").bare("b", "").choosing(flag).choosing(of_entry).survey().is_ok());
    let unknown = |choices: &mut ModelChoices| _ = choices.overrides.insert("mian".into(), model("ollama:q"));
    directory()
        .agent("main", "")
        .choosing(unknown)
        .check_mistakes(&["the choice of a model for `mian` names no agent of the project (did you mean `main`?)"]);
    let option = |choices: &mut ModelChoices| choices.option = Some("--model".to_owned());
    directory()
        .agent("main", "")
        .choosing(unknown)
        .choosing(option)
        .check_mistakes(&["`--model mian=…` names no agent of the project (did you mean `main`?)"]);
}

#[test]
fn server_side_tools_are_those_of_the_provider() {
    let files = |model: &str| {
        directory().bare("main", &format!("model: {model}\nserver_side_tools: [{{tool_type: image_generation}}]"))
    };
    assert_eq!(files("openai:gpt").program().agents["main"].server_tools.len(), 1);
    files("anthropic:c").check_mistakes(&["main.worker:4:21 `anthropic` has no server-side tool `image_generation` \
         (providers with image_generation: openai)"]);
    files("ollama:q").check_mistakes(&["main.worker:4:21 `ollama` has no server-side tool `image_generation` \
         (providers with image_generation: openai)"]);
    let acme = CustomProvider { name: "acme".into(), protocol: ProtocolKind::OpenAiResponses, key_variable: None };
    files("acme:x").choosing(|choices| choices.providers = vec![acme]).program();
}

#[test]
fn a_script_does_without_server_side_tools() {
    let keys = "server_side_tools: [{tool_type: web_search, max_uses: 3}, {tool_type: image_generation}]";
    let files = directory().bare("main", keys).choosing(|choices| {
        choices.required = Some(model("scripted:s"));
        choices.scripts = [("s".to_owned(), "- say: x".to_owned())].into();
    });
    assert_eq!(files.program().agents["main"].server_tools, []);
    assert_eq!(files.notes(), ["main.worker:3:21 a scripted model has no server-side tools: they are left out"]);
}

#[test]
fn a_restriction_that_the_provider_does_not_keep_is_refused() {
    let files = |model: &str, tools: &str| {
        let keys = ["anthropic", "openai", "google"].map(str::to_owned);
        let text = format!("model: {model}\nserver_side_tools: [{tools}]");
        directory().bare("main", &text).choosing(|choices| choices.keys = keys.into())
    };
    let limited = "{tool_type: web_search, max_uses: 3, blocked_domains: [a.example]}";
    files("anthropic:c", &format!("{limited}, {{tool_type: code_execution}}")).program();
    files("openai:gpt", limited).program();
    files("openai:gpt", &format!("{limited}, {{tool_type: code_execution}}")).check_mistakes(&[
        "main.worker:4:21 `openai` does not keep `max_uses` of `web_search` (it counts the uses of all its tools \
         together: leave the others out, or the limit)",
    ]);
    files("google:gemini", limited).check_mistakes(&[
        "main.worker:4:21 `google` does not keep `max_uses` of `web_search` (leave it out, or choose a provider that \
         has it)",
        "main.worker:4:21 `google` does not keep `blocked_domains` of `web_search` (leave it out, or choose a provider \
         that has it)",
    ]);
}

#[test]
fn a_key_of_a_provider_never_reaches_a_child() {
    let custom = CustomProvider {
        name: "acme".into(),
        protocol: ProtocolKind::OpenAiChat,
        key_variable: Some("ACME_KEY".into()),
    };
    let keys = r#", "env": ["HOME", "ANTHROPIC_API_KEY"], "toolsets": {
        "local": {"mcp": {"command": "c", "env": {"A": {"from_env": "GOOGLE_API_KEY"}, "B": "text"}}},
        "remote": {"mcp": {"url": "u", "headers": {"A": {"from_env": "ACME_KEY"}}}}}"#;
    let hint = "(children never see these; give the tool a variable and a key of its own)";
    manifest(keys).agent("main", "").choosing(|choices| choices.providers = vec![custom]).check_mistakes(&[
        &format!("project.json:1:90 `ANTHROPIC_API_KEY` holds the key of a model provider {hint}"),
        &format!("project.json:2:69 `GOOGLE_API_KEY` holds the key of a model provider {hint}"),
        &format!("project.json:3:70 `ACME_KEY` holds the key of a model provider {hint}"),
    ]);
}

#[test]
fn the_policy_is_that_of_the_manifest() {
    let keys = r#", "runtime": {"approval_mode": "approve_all", "max_depth": 9, "agent_calls_require_approval": true,
        "agent_approval_overrides": {"main": {"calls_require_approval": false}}}, "env": ["HOME"],
        "allow_cli_input": false, "generated_agents_dir": "made""#;
    let program = manifest(keys).agent("main", "").program();
    assert_eq!((program.policy.approval_mode, program.policy.max_depth), (ApprovalMode::ApproveAll, 9));
    assert_eq!(program.policy.agent_approval_overrides["main"].calls_require_approval, Some(false));
    assert!(program.policy.agent_calls_require_approval && !program.allow_cli_input);
    assert_eq!((program.env, program.generated_agents_dir), (vec!["HOME".to_owned()], "made".into()));
    let plain = directory().agent("main", "").program();
    assert_eq!((plain.policy.max_depth, plain.policy.approval_mode), (5, ApprovalMode::Prompt));
    assert_eq!(plain.generated_agents_dir, std::path::PathBuf::from("workers/generated"));
    assert!(plain.allow_cli_input);
}

#[test]
fn an_approval_override_names_an_agent() {
    let keys = r#", "runtime": {"agent_approval_overrides": {"mian": {}, "\u001b[2J": {}}}"#;
    manifest(keys).agent("main", "").check_mistakes(&[
        "project.json:1:115 approval override for an unknown agent `mian` (did you mean `main`?)",
        "project.json:1:127 approval override for an unknown agent `\\u{1b}[2J` (agents: main)",
    ]);
}

#[test]
fn names_that_a_misspelled_list_of_the_manifest_would_define_are_not_unknown_too() {
    let cases = [
        (r#""entry": {"agent": "main"}, "worker_file": ["main.worker"]"#, "worker_files"),
        (
            r#""entry": {"function": "a.py:run"}, "worker_files": ["main.worker"], "python_file": ["a.py"]"#,
            "python_files",
        ),
        (r#""entry": {"agent": "main"}, "worker_files": ["main.worker"], "toolset": {"notes": {}}"#, "toolsets"),
    ];
    for (keys, meant) in cases {
        let directory = tempfile::tempdir().unwrap();
        let worker = "---\nname: main\nmodel: ollama:qwen3\ntoolsets: [notes]\napproval: {read_file: ask}\n---\n";
        std::fs::write(directory.path().join("main.worker"), worker).unwrap();
        std::fs::write(directory.path().join("project.json"), format!("{{\"version\": 1, {keys}}}")).unwrap();
        let project = Project::load(directory.path()).unwrap();
        let found = shown(&project.survey(&ModelChoices::default(), None).unwrap_err());
        let suggested = format!("(did you mean `{meant}`? keys: ");
        assert!(matches!(found.as_slice(), [only] if only.contains(&suggested)), "{keys}\n{found:#?}");
    }
}
