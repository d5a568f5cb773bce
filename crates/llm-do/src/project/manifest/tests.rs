use super::super::key_rows::{
    BLANK, EMPTY_LIST, Mapping, NEGATIVE, NOT_BOOL, NOT_INTEGER, NOT_LIST, NOT_LIST_OF_TEXT, NOT_MAP, NOT_NAME,
    NOT_NUMBER, NOT_POSITIVE, NOT_RULES, NOT_TEXT, NOT_VARIABLE, Row, Style, TWICE, check_completeness, check_doubled,
    check_misspelled, check_rows, line_and_column, places,
};
use super::*;
use crate::syntax::diagnostic::Sources;
use crate::tools::source::{Grammar, ShellRule};

/// A mapping somewhere in an otherwise good manifest.
const fn inside(
    what: &'static str,
    open: &'static str,
    others: &'static [(&'static str, &'static str)],
    close: &'static str,
) -> Mapping {
    Mapping { what, open, others, close, style: Style::Json }
}

const TOP: Mapping =
    inside("the manifest", "{", &[("version", "1"), ("entry", "{}"), ("worker_files", "[\"m.worker\"]")], "}");
const IN_ENTRY: Mapping =
    inside("`entry`", "{\"version\": 1, \"worker_files\": [\"m.worker\"],\n\"entry\": {\n", &[], "}}");
const IN_RUNTIME: Mapping =
    inside("`runtime`", "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"runtime\": {", &[], "}}");
const IN_LIMITS: Mapping = inside(
    "`limits`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"], \"runtime\": {\"limits\": {\n",
    &[],
    "}}}",
);
const IN_OVERRIDE: Mapping = inside(
    "an approval override",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"runtime\": {\"agent_approval_overrides\": {\"main\": {",
    &[],
    "}}}}",
);
const IN_TOOLSET: Mapping = inside(
    "a toolset",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {",
    &[],
    "}}}",
);
const IN_VARIANT: Mapping = inside(
    "a toolset",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {",
    &[("use", "\"filesystem_cwd\"")],
    "}}}",
);
const IN_STAND_IN: Mapping = inside(
    "a toolset",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {",
    &[("python", "\"t.py:t\"")],
    "}}}",
);
const IN_HARDEN: Mapping =
    inside("`harden`", "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"harden\": {", &[], "}}");
const IN_FILESYSTEM: Mapping = inside(
    "`filesystem`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"filesystem\": {",
    &[("root", "\"notes\"")],
    "}}}}",
);
const IN_FILESYSTEMS: Mapping = inside(
    "`filesystem`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"filesystem\": {",
    &[],
    "}}}}",
);
const IN_ROOT: Mapping = inside(
    "a root",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"filesystem\": {\"roots\": {\"in\": {",
    &[("root", "\"notes\"")],
    "}}}}}}",
);
const IN_SHELL: Mapping = inside(
    "`shell`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"shell\": {",
    &[],
    "}}}}",
);
const IN_MAP: Mapping = inside(
    "`map`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"map\": {",
    &[("agent", "\"m\"")],
    "}}}}",
);
const IN_DYNAMIC_AGENTS: Mapping = inside(
    "`dynamic_agents`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"dynamic_agents\": {",
    &[],
    "}}}}",
);
const IN_RULE: Mapping = inside(
    "a shell rule",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"shell\": {\"rules\": [{",
    &[("pattern", "\"git status\""), ("approval", "\"allow\"")],
    "}]}}}}",
);
const IN_LOCAL_MCP: Mapping = inside(
    "`mcp`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"mcp\": {",
    &[("command", "\"server\"")],
    "}}}}",
);
const IN_REMOTE_MCP: Mapping = inside(
    "`mcp`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"mcp\": {",
    &[("url", "\"http://localhost:1/mcp\"")],
    "}}}}",
);
const IN_FENCE: Mapping = inside(
    "a fence",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"mcp\": {\"command\": \"s\", \"fence\": {",
    &[],
    "}}}}}",
);
const IN_SETTING: Mapping = inside(
    "a setting",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"mcp\": {\"command\": \"s\", \"env\": {\"A\": {",
    &[],
    "}}}}}}",
);

const IN_AUTH: Mapping = inside(
    "`auth`",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"mcp\": {\"url\": \"u\", \"auth\": {",
    &[("client_id", "\"x\"")],
    "}}}}}",
);
const IN_SECRET: Mapping = inside(
    "a secret",
    "{\"version\": 1, \"entry\": {}, \"worker_files\": [\"m.worker\"],\n\"toolsets\": {\"t\": {\"mcp\": {\"url\": \"u\", \"auth\": {\"client_id\": \"x\", \"client_secret\": {",
    &[],
    "}}}}}}",
);

const SETTING_MAPS: &[&str] =
    &["{}", "{\"A\": \"text\"}", "{\"A\": \"\"}", "{\"A\": {\"from_env\": \"B\"}}", "{\"A\": \"x\", \"B\": \"y\"}"];
const NOT_SETTINGS: &[&str] = &["{\"A\": §1}", "{\"A\": §null}", "{\"A\": §[\"x\"]}", "{\"A\": {\"from_env\": §1}}"];

/// Every key of a manifest, with what it takes and what it refuses.
const KEYS: &[Row] = &[
    (&TOP, "$schema", &["\"schema.json\"", "\"\""], &[NOT_TEXT]),
    (&TOP, "version", &["1"], &[&["0", "2", "-1", "1.0", "\"1\"", "true", "null", "[1]", "{\"x\": 1}"]]),
    (&TOP, "entry", &["{}", "{\"agent\": \"main\"}"], &[NOT_MAP]),
    (&TOP, "worker_files", &["[\"a.worker\"]", "[\"a.worker\", \"b/c.yaml\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&TOP, "python_files", &["[]", "[\"a.py\", \"b.py\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&TOP, "tests", &["[]", "[\"a.test.yaml\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&TOP, "export", &["[\"main\"]", "[\"a\", \"b\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&TOP, "harden", &["{}", "{\"author\": \"writer\"}"], &[NOT_MAP]),
    (&IN_HARDEN, "author", &["\"writer\""], &[NOT_TEXT, NOT_NAME]),
    (&TOP, "runtime", &["{}", "{\"max_depth\": 3}"], &[NOT_MAP]),
    (&TOP, "rules", &["[]", "[{\"ask\": \"f\"}]"], &[NOT_LIST, &["[§1]"]]),
    (&TOP, "allow_cli_input", &["true", "false"], &[NOT_BOOL]),
    (&TOP, "generated_agents_dir", &["\"made\"", "\"a/b\""], &[NOT_TEXT, BLANK]),
    (&TOP, "toolsets", &["{}", "{\"t\": {\"shell\": {}}}"], &[NOT_MAP, &["{\"t\": §1}", "{\"t\": §[]}"]]),
    (
        &TOP,
        "env",
        &["[]", "[\"HOME\", \"_x1\"]"],
        &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, &["[§\"1A\"]", "[§\"A=B\"]", "[§\"\"]"]],
    ),
    (&IN_ENTRY, "agent", &["\"main\"", "\"a-b_C9\""], &[NOT_TEXT, NOT_NAME]),
    (&IN_ENTRY, "function", &["\"tools.py:main\""], &[NOT_TEXT, BLANK]),
    (
        &IN_ENTRY,
        "input",
        &["\"text\"", "\"\"", "{\"a\": [1, null]}", "[\"text\", {\"path\": \"a.png\"}]"],
        &[&["1", "true", "null", "[]", "[§1]", "[\"x\", §null]"]],
    ),
    (
        &IN_RUNTIME,
        "approval_mode",
        &["\"prompt\"", "\"approve_all\"", "\"reject_all\""],
        &[NOT_TEXT, &["\"yolo\"", "\"Prompt\"", "\"\""]],
    ),
    (&IN_RUNTIME, "max_depth", &["1", "5", "1000000"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_RUNTIME, "max_call_depth", &["1", "74", "1000"], &[NOT_INTEGER, NOT_POSITIVE, &["1001"]]),
    (&IN_RUNTIME, "return_permission_errors", &["true", "false"], &[NOT_BOOL]),
    (&IN_RUNTIME, "agent_calls_require_approval", &["true", "false"], &[NOT_BOOL]),
    (&IN_RUNTIME, "agent_attachments_require_approval", &["true", "false"], &[NOT_BOOL]),
    (&IN_RUNTIME, "agent_approval_overrides", &["{}", "{\"main\": {}}"], &[NOT_MAP, &["{\"main\": §true}"]]),
    (&IN_RUNTIME, "limits", &["{}", "{\"max_requests\": 1}"], &[NOT_MAP]),
    (&IN_RUNTIME, "python_fence", &["{}", "{\"read\": [\"/srv\"], \"network\": true}"], &[NOT_MAP]),
    (&IN_OVERRIDE, "calls_require_approval", &["true", "false"], &[NOT_BOOL]),
    (&IN_OVERRIDE, "attachments_require_approval", &["true", "false"], &[NOT_BOOL]),
    (&IN_LIMITS, "max_requests", &["1", "50"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_LIMITS, "max_tool_calls", &["0", "50"], &[NOT_INTEGER, NEGATIVE]),
    (&IN_LIMITS, "max_input_tokens", &["1", "9000000000"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_LIMITS, "max_output_tokens", &["1", "9000000000"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_LIMITS, "max_cost_usd", &["1", "0.5", "1e-3"], &[NOT_NUMBER, NOT_POSITIVE, &["1e999"]]),
    (&IN_LIMITS, "timeout_seconds", &["1", "0.5"], &[NOT_NUMBER, NOT_POSITIVE, &["1e999", "1e300"]]),
    (&IN_LIMITS, "on_limit", &["\"ask\"", "\"stop\"", "\"wrap_up\""], &[NOT_TEXT, &["\"wait\"", "\"Ask\""]]),
    (&IN_TOOLSET, "filesystem", &["{\"root\": \".\"}"], &[NOT_MAP]),
    (&IN_TOOLSET, "shell", &["{}", "{\"default\": \"ask\"}"], &[NOT_MAP]),
    (&IN_TOOLSET, "mcp", &["{\"command\": \"server\"}"], &[NOT_MAP]),
    (&IN_TOOLSET, "dynamic_agents", &["{}", "{\"names\": \"worker\"}"], &[NOT_MAP]),
    (&IN_TOOLSET, "map", &["{\"agent\": \"m\"}"], &[NOT_MAP]),
    (&IN_MAP, "agent", &["\"m\""], &[NOT_TEXT, NOT_NAME]),
    (&IN_MAP, "over", &["\"listed\""], &[NOT_TEXT, NOT_NAME]),
    (&IN_MAP, "max_items", &["1", "1000000"], &[NOT_INTEGER, NOT_POSITIVE, &["1000001"]]),
    (&IN_MAP, "parallel", &["1", "256"], &[NOT_INTEGER, NOT_POSITIVE, &["257"]]),
    (&IN_DYNAMIC_AGENTS, "names", &["\"agent\"", "\"worker\""], &[NOT_TEXT, &["\"workers\"", "\"\""]]),
    (&IN_TOOLSET, "use", &["\"filesystem_cwd\""], &[NOT_TEXT, BLANK]),
    (
        &IN_TOOLSET,
        "python",
        &["\"t.py:t\"", "\"code/t.py:t\""],
        &[NOT_TEXT, &["\"t\"", "\"t.js:t\"", "\"t.py:\"", "\"t.py:a b\"", "\" \""]],
    ),
    (
        &IN_STAND_IN,
        "mode",
        &["\"agent\"", "\"shadow\"", "\"fallback\"", "\"code\""],
        &[NOT_TEXT, &["\"prompt\"", "\"Code\""]],
    ),
    (&IN_VARIANT, "prefix", &["\"a_\""], &[NOT_TEXT, NOT_NAME]),
    (&IN_VARIANT, "tools", &["[\"read_file\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST]),
    (&IN_VARIANT, "timeout_seconds", &["1", "0.5", "0"], &[NOT_NUMBER, &["-1", "1e300"]]),
    (&IN_VARIANT, "approval", &["{}", "{\"read_file\": \"ask\", \"x\": \"block\"}"], &[NOT_MAP, NOT_RULES]),
    (&IN_FILESYSTEMS, "root", &["\".\"", "\"notes\"", "\"/srv/notes\""], &[NOT_TEXT, BLANK]),
    (&IN_FILESYSTEM, "mode", &["\"ro\"", "\"rw\""], &[NOT_TEXT, &["\"r\"", "\"RW\"", "\"\""]]),
    (&IN_FILESYSTEM, "suffixes", &["[\".md\", \".txt\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST]),
    (&IN_FILESYSTEM, "max_file_bytes", &["1", "1000000"], &[NOT_INTEGER, NOT_POSITIVE]),
    (
        &IN_FILESYSTEMS,
        "roots",
        &["{\"in\": {\"root\": \"a\"}, \"out\": {\"root\": \"b\", \"mode\": \"rw\"}}"],
        &[
            NOT_MAP,
            &["{}", "{\"in\": §1}", "{\"in\": §{}}", "{§\"a/b\": {\"root\": \"x\"}}", "{§\"..\": {\"root\": \"x\"}}"],
        ],
    ),
    (&IN_ROOT, "root", &["\".\"", "\"notes\"", "\"/srv/notes\""], &[NOT_TEXT, BLANK]),
    (&IN_ROOT, "mode", &["\"ro\"", "\"rw\""], &[NOT_TEXT, &["\"r\"", "\"RW\"", "\"\""]]),
    (&IN_ROOT, "suffixes", &["[\".md\", \".txt\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST]),
    (&IN_ROOT, "max_file_bytes", &["1", "1000000"], &[NOT_INTEGER, NOT_POSITIVE]),
    (
        &IN_SHELL,
        "rules",
        &["[]", "[{\"pattern\": \"ls\", \"approval\": \"allow\"}]"],
        &[NOT_LIST, &["[§1]", "[§\"ls\"]", "[§{\"approval\": \"ask\"}]", "[§{\"pattern\": \"ls\"}]"]],
    ),
    (&IN_SHELL, "default", &["\"ask\"", "\"block\""], &[NOT_TEXT, &["\"deny\"", "\"\"", "\"allow\""]]),
    (&IN_SHELL, "directory", &["\"ro\"", "\"rw\""], &[NOT_TEXT, &["\"r\"", "\"RW\"", "\"\""]]),
    (&IN_SHELL, "write", &["[]", "[\"target\", \"/tmp/x\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&IN_SHELL, "network", &["true", "false"], &[NOT_BOOL]),
    (
        &IN_RULE,
        "pattern",
        &["\"git log\"", "[\"git\", \"log\"]", "[\"a\", \"a\"]"],
        &[&["1", "true", "null", "{\"x\": 1}"], BLANK, EMPTY_LIST, NOT_LIST_OF_TEXT],
    ),
    (&IN_RULE, "approval", &["\"allow\"", "\"ask\"", "\"block\""], &[NOT_TEXT, &["\"deny\"", "\"\""]]),
    (
        &IN_RULE,
        "approval_required_if_args",
        &["[\"--force\", \"-f\"]"],
        &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST],
    ),
    (&IN_RULE, "allowed_args", &["[]", "[\"--verbose\", \"-v\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&IN_RULE, "match", &["\"git status -s\"", "[\"git status\"]"], &[&["1", "null"], BLANK, EMPTY_LIST]),
    (&IN_RULE, "not_match", &["\"git log\"", "[\"git push\"]"], &[&["1", "null"], BLANK, EMPTY_LIST]),
    (&IN_RULE, "i_understand", &["true", "false"], &[NOT_BOOL]),
    (&IN_LOCAL_MCP, "command", &["\"server\"", "\"/usr/bin/server\""], &[NOT_TEXT, BLANK]),
    (
        &IN_LOCAL_MCP,
        "args",
        &["[]", "[\"\", \"a\", \"a\"]"],
        &[NOT_LIST, &["[§1]", "[\"x\", §true]", "[§null]", "[§[\"x\"]]"]],
    ),
    (&IN_LOCAL_MCP, "env", SETTING_MAPS, &[NOT_MAP, NOT_SETTINGS, &["{§\"A=B\": \"x\"}", "{§\"\": \"x\"}"]]),
    (&IN_REMOTE_MCP, "url", &["\"http://localhost:1/mcp\""], &[NOT_TEXT, BLANK]),
    (&IN_REMOTE_MCP, "headers", SETTING_MAPS, &[NOT_MAP, NOT_SETTINGS]),
    (&IN_LOCAL_MCP, "timeout_seconds", &["1", "0.5", "0"], &[NOT_NUMBER, &["-1", "1e300"]]),
    (&IN_LOCAL_MCP, "task_seconds", &["1", "0.5"], &[NOT_NUMBER, &["0", "-1", "1e300"]]),
    (
        &IN_REMOTE_MCP,
        "auth",
        &["\"oauth\"", "{}", "{\"client_id\": \"x\"}"],
        &[&["1", "true", "null", "[\"oauth\"]", "\"basic\""]],
    ),
    (&IN_AUTH, "grant", &["\"authorization_code\"", "\"client_credentials\""], &[NOT_TEXT, &["\"implicit\""]]),
    (&IN_AUTH, "client_id", &["\"llm-do\""], &[NOT_TEXT, BLANK]),
    (&IN_AUTH, "client_secret", &["{\"from_env\": \"S\"}", "{\"command\": [\"pass\", \"hub\"]}"], &[NOT_MAP]),
    (&IN_AUTH, "assertion", &["{\"from_env\": \"S\"}", "{\"command\": [\"sign\"]}"], &[NOT_MAP]),
    (&IN_AUTH, "scopes", &["[\"read\", \"write\"]"], &[NOT_LIST, &["[§1]"], TWICE, EMPTY_LIST]),
    (&IN_SECRET, "from_env", &["\"TOKEN\"", "\"_x\""], &[NOT_TEXT, NOT_VARIABLE]),
    (&IN_SECRET, "command", &["[\"pass\"]", "[\"a\", \"\", \"a\"]"], &[NOT_LIST, &["[§1]"], EMPTY_LIST]),
    (&IN_LOCAL_MCP, "fence", &["{}", "{\"write\": [\"cache\"]}"], &[NOT_MAP]),
    (&IN_FENCE, "read", &["[]", "[\"data\", \"/srv/x\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&IN_FENCE, "write", &["[]", "[\"cache\", \"/srv/x\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&IN_FENCE, "network", &["true", "false"], &[NOT_BOOL]),
    (&IN_SETTING, "from_env", &["\"TOKEN\"", "\"_x\""], &[NOT_TEXT, NOT_VARIABLE]),
];

const ALIASES: &[(&str, &[&str])] = &[
    ("the manifest.worker_files", &["agent_files"]),
    ("`entry`.input", &["args"]),
    ("`runtime`.agent_calls_require_approval", &["worker_calls_require_approval"]),
    ("`runtime`.agent_attachments_require_approval", &["worker_attachments_require_approval"]),
    ("`runtime`.agent_approval_overrides", &["worker_approval_overrides"]),
];

fn read(file: FileId, text: &str, problems: &mut Diagnostics) {
    parse(file, text, problems);
}

#[test]
fn every_key_takes_its_values_and_refuses_others_where_they_stand() {
    check_rows(KEYS, ALIASES, read);
}

#[test]
fn the_description_and_the_tables_have_the_same_keys() {
    check_completeness(KEYS, ALIASES, &[&MANIFEST]);
}

#[test]
fn two_spellings_of_one_key_exclude_each_other() {
    check_doubled(KEYS, ALIASES, read);
}

#[test]
fn a_misspelled_key_is_refused_at_every_level_with_a_suggestion() {
    check_misspelled(KEYS, read);
}

fn parsed(text: &str) -> Manifest {
    let mut problems = Diagnostics::default();
    let file = Sources::default().add("project.json".into(), text.to_owned());
    let manifest = parse(file, text, &mut problems);
    assert!(!problems.has_errors(), "{problems:?}");
    manifest.unwrap()
}

/// The manifest with its other keys given.
fn with(keys: &str) -> String {
    format!("{{\"version\": 1, \"entry\": {{}}, \"worker_files\": [\"main.worker\"]{keys}}}")
}

fn only_toolset(definition: &str) -> ToolsetDefinition {
    parsed(&with(&format!(", \"toolsets\": {{\"t\": {definition}}}"))).toolsets.remove(0).1
}

/// The one mistake of a manifest with these keys; `§` stands where it is.
fn check_mistake(keys: &str, fact: &str) {
    let marked = with(keys);
    let position = marked.find('§').expect("the mistake is marked");
    let text = marked.replace('§', "");
    let (line, column) = line_and_column(&text, position);
    assert_eq!(places(&text, read), [(line, column, format!("{fact:?}"))], "{text}");
}

#[test]
fn code_in_the_place_of_an_agent_has_a_mode_and_one_word_about_its_calls() {
    let definition = r#"{"python": "code/t.py:sorted_by", "mode": "fallback", "approval": "allow"}"#;
    let ToolsetDefinition::StandIn(Located { value, .. }) = only_toolset(definition) else { panic!("no stand-in") };
    let expected = StandIn {
        mode: AnswerMode::Fallback,
        file: "code/t.py".into(),
        function: "sorted_by".to_owned(),
        approval: Some(Rule::Allow),
    };
    assert_eq!(value, expected);
    let ToolsetDefinition::StandIn(resting) = only_toolset(r#"{"python": "t.py:t"}"#) else { panic!("no stand-in") };
    assert_eq!((resting.value.mode, resting.value.approval), (AnswerMode::Agent, None));
    let toolset = |keys: &str| format!(r#", "toolsets": {{"t": {{{keys}}}}}"#);
    let one_word = "`approval` of a toolset with `python` is one word";
    check_mistake(&toolset(r#""python": "t.py:t", §"approval": {"t": "allow"}"#), one_word);
    check_mistake(
        &toolset(r#""filesystem": {"root": "."}, §"mode": "code""#),
        "`mode` belongs to a toolset with `python`",
    );
    let fact = "`prefix` belongs to a toolset with `use`";
    check_mistake(&toolset(r#""python": "t.py:t", §"prefix": "a_""#), fact);
}

#[test]
fn what_is_not_written_has_its_default() {
    let manifest = parsed(&with(""));
    assert_eq!(manifest.runtime, RuntimeKeys::default());
    assert!(manifest.allow_cli_input);
    assert!(manifest.generated_agents_dir.is_none() && manifest.env.is_empty() && manifest.toolsets.is_empty());
}

#[test]
fn what_is_written_is_read_under_either_spelling() {
    let text = r#"{"version": 1, "agent_files": ["a.worker"], "python_files": ["b.py"], "allow_cli_input": false,
        "entry": {"agent": "main", "args": {"z": 1, "a": 2}}, "generated_agents_dir": "made", "env": ["HOME"],
        "runtime": {"approval_mode": "reject_all", "max_depth": 7, "max_call_depth": 70, "return_permission_errors": true,
            "worker_calls_require_approval": true, "worker_attachments_require_approval": true,
            "worker_approval_overrides": {"a": {"calls_require_approval": false}},
            "limits": {"max_requests": 1, "max_tool_calls": 2, "max_input_tokens": 3, "max_output_tokens": 4,
                "max_cost_usd": 0.5, "timeout_seconds": 6, "on_limit": "ask"}}}"#;
    let manifest = parsed(text);
    assert_eq!(manifest.worker_files[0].value, "a.worker");
    assert_eq!(manifest.python_files[0].value, "b.py");
    assert_eq!(manifest.entry.agent.as_ref().map(|agent| agent.value.as_str()), Some("main"));
    assert_eq!(manifest.entry.input.as_ref().map(RawJson::get), Some(r#"{"z":1,"a":2}"#));
    assert_eq!(manifest.generated_agents_dir.as_ref().map(|dir| dir.value.as_str()), Some("made"));
    assert_eq!(manifest.env[0].value, "HOME");
    assert!(!manifest.allow_cli_input);
    let exception = AgentApprovalOverride { calls_require_approval: Some(false), attachments_require_approval: None };
    let limits = Limits {
        max_requests: Some(1),
        max_tool_calls: Some(2),
        max_input_tokens: Some(3),
        max_output_tokens: Some(4),
        max_cost_usd: Some(0.5),
        timeout_seconds: Some(6.0),
        on_limit: Some(crate::project::OnLimit::Ask),
    };
    let name = manifest.runtime.agent_approval_overrides[0].0.clone();
    assert_eq!(name.value, "a");
    let expected = RuntimeKeys {
        approval_mode: ApprovalMode::RejectAll,
        max_depth: 7,
        max_call_depth: Some(70),
        return_permission_errors: true,
        agent_calls_require_approval: true,
        agent_attachments_require_approval: true,
        agent_approval_overrides: vec![(name, exception)],
        limits,
        python_fence: None,
    };
    assert_eq!(manifest.runtime, expected);
}

#[test]
fn toolset_definitions_are_read_whole() {
    let root = |base, access| FileRoot { base, access, suffixes: vec![".md".into()], max_file_bytes: Some(9) };
    let one = only_toolset(r#"{"filesystem": {"root": "n", "mode": "rw", "suffixes": [".MD"], "max_file_bytes": 9}}"#);
    let ToolsetDefinition::Filesystem(config) = one else { panic!("{one:?}") };
    assert_eq!(config.roots, Roots::One(root(Base::Project("n".into()), Access::ReadWrite)));

    let named =
        only_toolset(r#"{"filesystem": {"roots": {"in": {"root": "/n", "suffixes": [".md"], "max_file_bytes": 9}}}}"#);
    let ToolsetDefinition::Filesystem(config) = named else { panic!("{named:?}") };
    let expected = BTreeMap::from([("in".to_owned(), root(Base::Absolute("/n".into()), Access::ReadOnly))]);
    assert_eq!(config.roots, Roots::Named(expected));

    let shell = only_toolset(
        r#"{"shell": {"rules": [{"pattern": " git  log ", "approval": "allow", "approval_required_if_args": ["-p"],
            "match": "git log", "not_match": ["git push"], "i_understand": true}], "default": "ask",
            "write": ["target"], "network": true}}"#,
    );
    let ToolsetDefinition::Shell(config, _) = shell else { panic!("{shell:?}") };
    let rule = ShellRule {
        pattern: vec!["git".into(), "log".into()],
        approval: Rule::Allow,
        approval_required_if_args: vec!["-p".into()],
        allowed_args: None,
        matches: vec!["git log".into()],
        not_matches: vec!["git push".into()],
        i_understand: true,
    };
    let grammar = Grammar::Rules { rules: vec![rule], default: Some(Rule::Ask) };
    assert_eq!(
        config,
        ShellConfig { grammar, directory: Access::ReadWrite, write: vec!["target".into()], network: true }
    );

    let mcp = only_toolset(
        r#"{"mcp": {"command": "c", "args": ["a"], "env": {"A": "x", "B": {"from_env": "C"}}, "timeout_seconds": 2}}"#,
    );
    let ToolsetDefinition::Mcp(config, from_env) = mcp else { panic!("{mcp:?}") };
    let env =
        BTreeMap::from([("A".to_owned(), Setting::Text("x".into())), ("B".to_owned(), Setting::FromEnv("C".into()))]);
    let server = McpServer::Command { command: "c".into(), args: vec!["a".into()], env, fence: None };
    let (name, timeout) = (config.name.clone(), Some(Duration::from_secs(2)));
    assert_eq!(config, McpConfig { name, server, timeout, task_time: None, tools: None });
    assert_eq!(from_env[0].value, "C");

    let variant = only_toolset(
        r#"{"use": "u", "prefix": "p_", "tools": ["a"], "approval": {"a": "block"}, "timeout_seconds": 2}"#,
    );
    assert!(matches!(&variant, ToolsetDefinition::Use { timeout: Some(time), .. } if time.as_secs() == 2));
    let ToolsetDefinition::Use { target, prefix, tools, approval, .. } = variant else { panic!("{variant:?}") };
    assert_eq!((target.value.as_str(), prefix.as_str()), ("u", "p_"));
    assert_eq!(tools.unwrap()[0].value, "a");
    assert_eq!((approval[0].0.value.as_str(), approval[0].1), ("a", Rule::Block));
}

#[test]
fn keys_that_do_not_go_together_are_refused_where_they_meet() {
    let toolset = |definition: &str| format!(",\n \"toolsets\": {{§\"t\": {definition}}}");
    let inner = |definition: &str| format!(",\n \"toolsets\": {{\"t\": {definition}}}");
    check_mistake(&toolset("{}"), "toolset `t` does not say what it is");
    check_mistake(&toolset(r#"{"shell": {}, "use": "x"}"#), "toolset `t` is several things at once: `shell`, `use`");
    check_mistake(&inner(r#"{"shell": {}, §"prefix": "x"}"#), "`prefix` belongs to a toolset with `use`");
    check_mistake(&inner(r#"{"shell": {}, §"tools": ["x"]}"#), "`tools` belongs to a toolset with `use`");
    check_mistake(&inner(r#"{"mcp": {"url": "u"}, §"approval": {}}"#), "`approval` belongs to a toolset with `use`");
    check_mistake(&inner(r#"{"filesystem": §{}}"#), "`filesystem` has no `root`");
    check_mistake(
        &inner(r#"{"filesystem": {"root": ".", "roots": §{"a": {"root": "."}}}}"#),
        "`roots` and `root` exclude each other",
    );
    check_mistake(&inner(r#"{"mcp": §{}}"#), "`mcp` has neither `command` nor `url`");
    check_mistake(&inner(r#"{"mcp": {"command": "c", "url": §"u"}}"#), "`mcp` has both `command` and `url`");
    check_mistake(&inner(r#"{"mcp": {"command": "c", §"headers": {}}}"#), "`headers` belongs to a server with `url`");
    check_mistake(&inner(r#"{"mcp": {"command": "c", §"auth": "oauth"}}"#), "`auth` belongs to a server with `url`");
    check_mistake(
        &inner(r#"{"mcp": {"url": "u", §"auth": "oauth", "headers": {"Authorization": "x"}}}"#),
        "`auth` stands beside a header `authorization`",
    );
    check_mistake(
        &inner(r#"{"mcp": {"url": "u", "auth": §{"grant": "client_credentials"}}}"#),
        "`auth` has no `client_id`",
    );
    check_mistake(
        &inner(r#"{"mcp": {"url": "u", "auth": {"client_id": "x", "client_secret": §{}}}}"#),
        "`client_secret` is either from the environment or from a command",
    );
    check_mistake(&inner(r#"{"mcp": {"url": "u", §"args": []}}"#), "`args` belongs to a server with `command`");
    check_mistake(&inner(r#"{"mcp": {"url": "u", §"env": {}}}"#), "`env` belongs to a server with `command`");
    check_mistake(&inner(r#"{"mcp": {"url": "u", §"fence": {}}}"#), "`fence` belongs to a server with `command`");
    check_mistake(",\n \"toolsets\": {§\"a b\": {\"shell\": {}}}", "`a b` is not a name");
}

#[test]
fn the_whole_must_make_sense() {
    let cases = [
        ("[]", "expected an object, found a list"),
        ("\"x\"", "expected an object, found the text `x`"),
        ("{}", "`version` is missing in the manifest"),
        ("{\"version\": 1, \"worker_files\": [\"a.worker\"]}", "`entry` is missing in the manifest"),
        ("{\"version\": 2, \"entry\": {}, \"worker_files\": [\"a\"]}", "this program reads version 1"),
        ("{\"version\": 1, \"entry\": {}}", "the manifest lists no files"),
        ("{\"version\": 1, \"entry\": {}, \"worker_files\": [], \"python_files\": []}", "the manifest lists no files"),
        (
            "{\"version\": 1, \"entry\": {\"agent\": \"a\", \"function\": \"b.py:c\"}, \"worker_files\": [\"a\"]}",
            "`entry` names both an agent and a function",
        ),
        ("{\"version\": 1,}", "not valid JSON: key must be a string"),
        ("", "not valid JSON: EOF while parsing a value"),
    ];
    for (text, fact) in cases {
        let found = places(text, read);
        assert_eq!(found.first().map(|it| it.2.clone()), Some(format!("{fact:?}")), "{text}");
    }
}
