use super::super::key_rows::{
    BLANK, EMPTY_LIST, Mapping, NEGATIVE, NOT_BOOL, NOT_INTEGER, NOT_LIST, NOT_LIST_OF_TEXT, NOT_MAP, NOT_NAME,
    NOT_NUMBER, NOT_POSITIVE, NOT_RULES, NOT_TEXT, Row, Style, TWICE, check_completeness, check_doubled,
    check_misspelled, check_rows, line_and_column, places,
};
use super::*;
use crate::syntax::diagnostic::Sources;

const TOP: Mapping =
    Mapping { what: "a worker file", open: "", others: &[("name", "main")], close: "", style: Style::Yaml };

/// A mapping in flow style behind a key of an otherwise good file.
const fn inside(what: &'static str, open: &'static str, close: &'static str) -> Mapping {
    Mapping { what, open, others: &[], close, style: Style::Json }
}

const IN_SETTINGS: Mapping = inside("`model_settings`", "name: main\nmodel_settings: {\n ", "\n  }\n");
const IN_CONTEXT: Mapping = inside("`context`", "name: main\ncontext: {\n ", "\n  }\n");
const IN_LIMITS: Mapping = inside("`limits`", "name: main\nlimits: {\n ", "\n  }\n");
const IN_POLICY: Mapping = inside("`attachment_policy`", "name: main\nattachment_policy: {\n ", "\n  }\n");
const IN_SERVER_TOOL: Mapping = inside("a server-side tool", "name: main\nserver_side_tools: [{\n ", "\n  }]\n");
const IN_SEARCH: Mapping = Mapping {
    others: &[("tool_type", "web_search")],
    ..inside("a server-side tool", "name: main\nserver_side_tools: [{\n ", "\n  }]\n")
};

const REFERENCES: &[&str] = &["in.json", "a/b.JSON", "args.py:Args", "../args.py:Args", "package.module.Class"];
const NOT_REFERENCES: &[&str] =
    &["schema.yaml", "args.py", "args.txt:Args", "\"args.py:\"", "args.py:1x", ".Class", "a..B", "Class"];
const NOT_LIST_OF_NAMES: &[&str] = &["[§\"a b\"]", "[x, §\"y.z\"]", "[§\"\"]"];

/// Every key of a worker file, with what it takes and what it refuses.
const KEYS: &[Row] = &[
    (&TOP, "name", &["main", "\"a-b_C9\"", "'1'"], &[NOT_TEXT, NOT_NAME, BLANK]),
    (&TOP, "description", &["Any text, yes", "\"\"", "|\n  two\n  lines"], &[&["1", "true", "null", "[x]", "{x: y}"]]),
    (
        &TOP,
        "model",
        &["anthropic:claude-haiku-4-5", "a/b", "[\"a:b\"]", "[\"a:b\", \"c:d\"]"],
        &[&["1", "1.5", "true", "null"], BLANK],
    ),
    (
        &TOP,
        "compatible_models",
        &["[\"anthropic:*\"]", "['*', \"ollama:*\"]"],
        &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST],
    ),
    (&TOP, "entry", &["true", "False"], &[NOT_BOOL, &["yes", "on"]]),
    (&TOP, "schema_in_ref", REFERENCES, &[NOT_TEXT, BLANK, NOT_REFERENCES]),
    (&TOP, "schema_in", &["{type: object}", "{}"], &[NOT_MAP]),
    (&TOP, "prompt", &["\"{{ input }}\""], &[NOT_TEXT, BLANK]),
    (&TOP, "schema_out_ref", REFERENCES, &[NOT_TEXT, BLANK, NOT_REFERENCES]),
    (&TOP, "schema_out", &["{type: array}", "{}"], &[NOT_MAP]),
    (&TOP, "tools", &["[]", "[a, b]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, NOT_LIST_OF_NAMES]),
    (&TOP, "toolsets", &["[]", "[a, b]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, NOT_LIST_OF_NAMES]),
    (&TOP, "skills", &["[skills]", "[a/b, '../c', \"/srv/skills\"]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST]),
    (&TOP, "agents_md", &["project", "cwd"], &[NOT_TEXT, &["here", "\"\""]]),
    (&TOP, "approval", &["{}", "{read_file: ask, a.b: block, c: allow}"], &[NOT_MAP, NOT_RULES]),
    (&TOP, "allow_workers", &["[]", "[a, b]", "['*']"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, NOT_LIST_OF_NAMES]),
    (
        &TOP,
        "server_side_tools",
        &["[]", "[{tool_type: web_fetch}, {tool_type: web_search}]"],
        &[NOT_LIST, &["[§web_search]", "[§{}]", "[{tool_type: web_fetch}, §{tool_type: web_fetch}]"]],
    ),
    (&TOP, "model_settings", &["{}", "{seed: 1}"], &[NOT_MAP]),
    (&TOP, "limits", &["{}", "{max_requests: 1}"], &[NOT_MAP]),
    (&TOP, "cache", &["content"], &[&["on", "true", "{}", "[content]"]]),
    (&TOP, "context", &["{}", "{window: 8192, keep: 10}", "off"], &[&["1", "true", "[x]", "on"]]),
    (&TOP, "attachment_policy", &["{}", "{max_attachments: 0}"], &[NOT_MAP]),
    (&TOP, "locked", &["true", "false"], &[NOT_BOOL]),
    (&TOP, "instructions", &["\"\"", "Do it.", "|\n  two\n  lines"], &[&["1", "true", "null", "[x]", "{x: y}"]]),
    (
        &IN_SERVER_TOOL,
        "tool_type",
        &["web_search", "web_fetch", "code_execution", "image_generation"],
        &[NOT_TEXT, &["\"search\"", "\"\""]],
    ),
    (&IN_SEARCH, "max_uses", &["1", "100"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_SEARCH, "allowed_domains", &["[example.com]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST]),
    (&IN_SEARCH, "blocked_domains", &["[example.com]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST]),
    (&IN_SETTINGS, "temperature", &["0", "0.7", "2"], &[NOT_NUMBER, &["-0.1", "2.1", ".inf", ".nan"]]),
    (&IN_SETTINGS, "top_p", &["0", "0.5", "1"], &[NOT_NUMBER, &["-1", "1.1"]]),
    (&IN_SETTINGS, "max_tokens", &["1", "100000"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_SETTINGS, "stop", &["END", "[a, b]"], &[&["1", "true", "null"], BLANK, NOT_LIST_OF_TEXT, TWICE, EMPTY_LIST]),
    (&IN_SETTINGS, "seed", &["0", "-5", "9223372036854775807"], &[NOT_INTEGER, &["9223372036854775808"]]),
    (
        &IN_SETTINGS,
        "effort",
        &["minimal", "low", "medium", "high", "xhigh", "max"],
        &[NOT_TEXT, &["\"huge\"", "\"\"", "Low"]],
    ),
    (&IN_SETTINGS, "thinking", &["true", "false", "1", "8000"], &[&["0", "-1", "1.5", "\"yes\"", "null", "[1]"]]),
    (&IN_SETTINGS, "parallel_tool_calls", &["true", "false"], &[NOT_BOOL]),
    (&IN_SETTINGS, "timeout_seconds", &["1", "0.5", "86400"], &[NOT_NUMBER, NOT_POSITIVE, &["86401"]]),
    (&IN_CONTEXT, "window", &["1", "8192"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_CONTEXT, "clear_at", &["1", "0.5"], &[NOT_NUMBER, NOT_POSITIVE]),
    (&IN_CONTEXT, "summarise_at", &["1", "0.5"], &[NOT_NUMBER, NOT_POSITIVE]),
    (&IN_CONTEXT, "keep", &["1", "8192"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_CONTEXT, "model", &["\"ollama:qwen3\""], &[NOT_TEXT, BLANK]),
    (&IN_LIMITS, "max_requests", &["1", "50"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_LIMITS, "max_tool_calls", &["0", "50"], &[NOT_INTEGER, NEGATIVE]),
    (&IN_LIMITS, "max_input_tokens", &["1"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_LIMITS, "max_output_tokens", &["1"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_LIMITS, "max_cost_usd", &["1", "0.5"], &[NOT_NUMBER, NOT_POSITIVE]),
    (&IN_LIMITS, "timeout_seconds", &["1", "0.5"], &[NOT_NUMBER, NOT_POSITIVE]),
    (&IN_LIMITS, "on_limit", &["ask", "stop", "wrap_up"], &[NOT_TEXT, &["wait", "Ask"]]),
    (&IN_POLICY, "max_attachments", &["0", "4"], &[NOT_INTEGER, NEGATIVE]),
    (&IN_POLICY, "max_total_bytes", &["1", "10000000"], &[NOT_INTEGER, NOT_POSITIVE]),
    (&IN_POLICY, "allowed_suffixes", &["[]", "[.png, .pdf]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
    (&IN_POLICY, "denied_suffixes", &["[]", "[.exe]"], &[NOT_LIST, NOT_LIST_OF_TEXT, TWICE]),
];

const ALIASES: &[(&str, &[&str])] = &[
    ("a worker file.schema_in_ref", &["input_model_ref"]),
    ("a worker file.schema_out_ref", &["output_schema_ref", "output_model_ref"]),
];

fn read_yaml(file: FileId, text: &str, problems: &mut Diagnostics) {
    parse(file, "main", text, Format::Yaml, problems);
}

/// The same keys as front matter: a line is in front of them.
fn read_front_matter(file: FileId, text: &str, problems: &mut Diagnostics) {
    parse(file, "main", text, Format::FrontMatter, problems);
}

#[test]
fn every_key_takes_its_values_and_refuses_others_where_they_stand() {
    check_rows(KEYS, ALIASES, read_yaml);
}

#[test]
fn the_description_and_the_tables_have_the_same_keys() {
    check_completeness(KEYS, ALIASES, &[&WORKER]);
}

#[test]
fn two_spellings_of_one_key_exclude_each_other() {
    check_doubled(KEYS, ALIASES, read_yaml);
}

#[test]
fn a_misspelled_key_is_refused_at_every_level_with_a_suggestion() {
    check_misspelled(KEYS, read_yaml);
}

#[test]
fn words_of_other_formats_are_corrected() {
    let hint = |text: &str| {
        let mut problems = Diagnostics::default();
        let file = Sources::default().add("a.yaml".into(), text.to_owned());
        parse(file, "main", text, Format::Yaml, &mut problems);
        problems.iter().next().and_then(|problem| problem.hint.as_ref()).map(ToString::to_string).unwrap_or_default()
    };
    assert_eq!(hint("name: a\nentry: yes"), "write `true`");
    assert_eq!(hint("name: a\nlocked: 'off'"), "write `false`");
    assert_eq!(hint("name: a\ntoolsets: shell"), "write `[shell]`");
    assert_eq!(hint("name: 1"), "put it in quotes: `\"1\"`");
    assert_eq!(hint("name: a\napproval: {shell: alow}"), "did you mean `allow`? values: allow, ask, block");
}

fn parsed(text: &str, format: Format) -> WorkerFile {
    let mut problems = Diagnostics::default();
    let file = Sources::default().add("a.worker".into(), text.to_owned());
    let worker = parse(file, "main", text, format, &mut problems);
    assert!(!problems.has_errors(), "{text}\n{problems:?}");
    worker.unwrap()
}

const FULL: &str = r#"
name: full
description: "what it does"
compatible_models: ["anthropic:*"]
entry: true
input_model_ref: in.json
prompt: "{{ topic }}"
output_model_ref: out.py:Answer
tools: [count]
toolsets: [shell_readonly, other]
skills: [skills, /srv/skills]
agents_md: cwd
approval: {shell: ask, other: block}
allow_workers: [other]
server_side_tools:
  - {tool_type: web_search, max_uses: 3, allowed_domains: [example.com]}
  - tool_type: code_execution
model_settings: {temperature: 0.5, top_p: 1, max_tokens: 9, stop: END, seed: -1, effort: high, thinking: 100,
  parallel_tool_calls: false, timeout_seconds: 1.5}
limits: {max_requests: 1, max_tool_calls: 0, max_input_tokens: 3, max_output_tokens: 4, max_cost_usd: 0.5,
  timeout_seconds: 6, on_limit: ask}
context: {model: "ollama:qwen3"}
attachment_policy: {max_attachments: 1, max_total_bytes: 2, allowed_suffixes: [.PNG], denied_suffixes: [.exe]}
locked: true
"#;

#[test]
fn what_is_written_is_read() {
    let worker = parsed(&format!("---{FULL}---\n  Do it.\n\n"), Format::FrontMatter);
    let span = worker.name.span;
    let located = |text: &str| Located { value: text.to_owned(), span };
    let class = PythonClass { module: PythonModule::File("out.py".into()), class: "Answer".into() };
    let server_tool = |kind, max_uses, domains: &[&str]| {
        let allowed_domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
        Located { value: ServerTool { kind, max_uses, allowed_domains, blocked_domains: Vec::new() }, span }
    };
    let expected = WorkerFile {
        description: Some("what it does".into()),
        compatible_models: Some(vec![located("anthropic:*")]),
        entry: Some(Located { value: true, span }),
        schema_in: Some(SchemaSource::File(located("in.json"))),
        prompt: Some(located("{{ topic }}")),
        schema_out: Some(SchemaSource::Python(Located { value: class, span })),
        tools: vec![located("count")],
        toolsets: vec![located("shell_readonly"), located("other")],
        skills: vec![located("skills"), located("/srv/skills")],
        agents_md: Some(Located { value: AgentsMd::WorkingDirectory, span }),
        summariser: Some(located("ollama:qwen3")),
        approval: vec![(located("shell"), Rule::Ask), (located("other"), Rule::Block)],
        allow_workers: Some(vec![located("other")]),
        server_side_tools: vec![
            server_tool(ServerToolKind::WebSearch, Some(3), &["example.com"]),
            server_tool(ServerToolKind::CodeExecution, None, &[]),
        ],
        model_settings: ModelSettings {
            temperature: Some(0.5),
            top_p: Some(1.0),
            max_tokens: Some(9),
            stop: vec!["END".into()],
            seed: Some(-1),
            effort: Some(Effort::High),
            thinking: Some(Thinking::Budget(100)),
            parallel_tool_calls: Some(false),
            timeout: Some(std::time::Duration::from_millis(1500)),
        },
        limits: Limits {
            max_requests: Some(1),
            max_tool_calls: Some(0),
            max_input_tokens: Some(3),
            max_output_tokens: Some(4),
            max_cost_usd: Some(0.5),
            timeout_seconds: Some(6.0),
            on_limit: Some(crate::project::OnLimit::Ask),
        },
        attachment_policy: AttachmentPolicy {
            max_attachments: 1,
            max_total_bytes: 2,
            allowed_suffixes: vec![".png".into()],
            denied_suffixes: vec![".exe".into()],
        },
        locked: true,
        claims: worker.claims.clone(),
        ..WorkerFile::new(located("full"), "Do it.".into())
    };
    assert_eq!(worker, expected);
    let yaml = parsed(&format!("{FULL}instructions: |\n  Do it.\n"), Format::Yaml);
    assert_eq!(yaml, expected);
    for format in [Format::FrontMatter, Format::Yaml] {
        assert_eq!(parsed(&render(&expected, format), format), expected, "{}", render(&expected, format));
    }
}

#[test]
fn front_matter_is_found_whatever_the_editor() {
    let cases = [
        ("---\nname: a\n---\nHi\n", "Hi"),
        ("\u{feff}---\nname: a\n---\nHi\n", "Hi"),
        ("---\r\nname: a\r\n---\r\nHi\r\nthere\r\n", "Hi\r\nthere"),
        ("---  \nname: a\n--- \t\nHi", "Hi"),
        ("---\nname: a\n---", ""),
        ("---\nname: a\n---\n---\nHi\n---\n", "---\nHi\n---"),
        ("---\nname: a\n---\n```\n---\nname: b\n---\n```", "```\n---\nname: b\n---\n```"),
        ("---\n# a comment\nname: a # another\n---\nHi", "Hi"),
    ];
    for (text, instructions) in cases {
        let worker = parsed(text, Format::FrontMatter);
        assert_eq!((worker.name.value.as_str(), worker.instructions.as_str()), ("a", instructions), "{text:?}");
    }
}

/// The first mistake of a file; `§` stands where it is.
fn check_mistake(marked: &str, format: Format, fact: &str) {
    let position = marked.find('§').expect("the mistake is marked");
    let text = marked.replace('§', "");
    let (line, column) = line_and_column(&text, position);
    let reader = match format {
        Format::Yaml => read_yaml,
        Format::FrontMatter => read_front_matter,
    };
    let found = places(&text, reader);
    assert_eq!(found.first(), Some(&(line, column, format!("{fact:?}"))), "{text}\n{found:?}");
}

#[test]
fn a_file_that_is_none_says_why() {
    let front_matter = [
        ("§", "the file is empty"),
        ("§ \n\t\n", "the file is empty"),
        ("§name: a\n", "the file does not start with a line `---`"),
        ("§\n---\nname: a\n---\n", "the file does not start with a line `---`"),
        ("§```\n---\nname: a\n---\n```\n", "the file does not start with a line `---`"),
        ("§--- x\nname: a\n---\n", "the file does not start with a line `---`"),
        ("§---\nname: a\n", "the front matter has no end"),
        ("§---\nname: a\n----\n", "the front matter has no end"),
        ("---\n§---\nHi\n", "`name` is missing in a worker file"),
        ("---\n§# nothing\n---\nHi\n", "`name` is missing in a worker file"),
        ("---\n§model: a:b\n---\n", "`name` is missing in a worker file"),
        ("---\n§- name\n---\n", "expected a mapping, found a list"),
        ("---\nname: a\n§instructions: x\n---\n", "`instructions` belongs to a YAML worker file"),
        ("\u{feff}---\r\nname: a\r\n§nmae: b\r\n---\r\n", "unknown key `nmae` in a worker file"),
        ("---\nname: a\n§name: b\n---\n", "the key `name` appears twice"),
        ("---\nname: !!str §a\n---\n", "the tag `!!str` is not allowed"),
    ];
    for (text, fact) in front_matter {
        check_mistake(text, Format::FrontMatter, fact);
    }
    let yaml = [
        ("§", "the file is empty"),
        ("§# nothing\n", "`name` is missing in a worker file"),
        ("name: a\n§---\nHi\n", "a second YAML document in one file"),
    ];
    for (text, fact) in yaml {
        check_mistake(text, Format::Yaml, fact);
    }
}

#[test]
fn keys_that_do_not_go_together_are_refused_where_they_meet() {
    let cases = [
        ("name: a\nmodel: a:b\n§compatible_models: [x]", "`model` and `compatible_models` exclude each other"),
        ("name: a\nschema_in: {}\n§schema_in_ref: a.json", "`schema_in` and `schema_in_ref` exclude each other"),
        ("name: a\nschema_in_ref: a.json\n§schema_in: {}", "`schema_in` and `schema_in_ref` exclude each other"),
        ("name: a\noutput_model_ref: a.json\n§schema_out: {}", "`schema_out` and `schema_out_ref` exclude each other"),
        (
            "name: a\nserver_side_tools: [{tool_type: web_fetch, §max_uses: 1}]",
            "`max_uses` belongs to `web_search`, not to `web_fetch`",
        ),
        (
            "name: a\nserver_side_tools: [{tool_type: web_search, allowed_domains: [a], §blocked_domains: [b]}]",
            "`allowed_domains` and `blocked_domains` exclude each other",
        ),
        ("name: a\nallow_workers: [b, §'c d']", "`c d` is neither a name nor `*`"),
    ];
    for (text, fact) in cases {
        check_mistake(text, Format::Yaml, fact);
    }
}

#[test]
fn every_mistake_of_a_file_is_found_at_once() {
    let text = "---\nnmae: a\nentry: maybe\ntoolsets: x\nlimits: {max_request: 1, max_cost_usd: -1}\n---\n";
    let lines: Vec<usize> = places(text, read_front_matter).into_iter().map(|(line, ..)| line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 5]);
}
