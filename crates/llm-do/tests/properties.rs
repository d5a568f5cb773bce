//! What must hold for any bytes: the functions that the fuzzer drives, on stable and with every test run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::time::Duration;

use llm_do::message::RawJson;
use llm_do::model::{Effort, ModelSettings, ServerTool, ServerToolKind, Thinking};
use llm_do::project::worker::{PythonClass, PythonModule, SchemaSource, WorkerFile};
use llm_do::project::{AttachmentPolicy, Limits, OnLimit, fuzz};
use llm_do::syntax::diagnostic::{FileId, Located, Sources, Span};
use llm_do::tools::approval::Rule;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

const MANIFEST: &str = r#"{
  "version": 1,
  "entry": {"agent": "main", "input": {"topic": "tea", "n": [1, 2.5, null, true]}},
  "worker_files": ["main.worker", "sub/other.yaml"],
  "python_files": ["tools.py"],
  "runtime": {
    "approval_mode": "prompt", "max_depth": 5, "return_permission_errors": false,
    "agent_calls_require_approval": true, "worker_attachments_require_approval": false,
    "agent_approval_overrides": {"other": {"calls_require_approval": false}},
    "limits": {"max_requests": 50, "max_cost_usd": 0.5, "timeout_seconds": 60}
  },
  "allow_cli_input": true,
  "generated_agents_dir": "workers/generated",
  "toolsets": {
    "notes": {"filesystem": {"root": "notes", "mode": "rw", "suffixes": [".md"], "max_file_bytes": 1000}},
    "box": {"filesystem": {"roots": {"in": {"root": "in"}, "out": {"root": "/srv/out", "mode": "rw"}}}},
    "make": {"shell": {"rules": [{"pattern": "make", "approval": "allow", "match": ["make all"], "i_understand": true}], "default": "ask"}},
    "docs": {"mcp": {"command": "server", "args": ["-v"], "env": {"TOKEN": {"from_env": "DOCS_TOKEN"}}}},
    "web": {"mcp": {"url": "http://localhost:1", "headers": {"A": "b"}, "timeout_seconds": 5}},
    "small": {"use": "notes", "prefix": "n_", "tools": ["read_file"], "approval": {"read_file": "ask"}}
  },
  "env": ["HOME", "LANG"]
}
"#;

const WORKER: &str = "---
name: main
description: \"Does it\"
compatible_models: ['anthropic:*', \"openai:gpt-?\", 'ollama:*']
entry: true
schema_in: {type: object, properties: {topic: {type: string, pattern: '^[a-z]+$'}}, required: [topic]}
prompt: |
  About {{ topic }}: {% for item in [1, 2] %}{{ item }}{% endfor %}
schema_out_ref: out.json
toolsets: [filesystem_cwd, shell_readonly, main]
approval: {write_file: allow, shell_readonly.shell: ask}
allow_workers: ['*']
server_side_tools: []
model_settings: {temperature: 0.5, stop: [END], thinking: 100, effort: low}
limits: &limits {max_requests: 5}
attachment_policy: {max_attachments: 2, allowed_suffixes: [.png]}
locked: false
---
Do it.
---
Not a fence.
";

const WORDS: &[&str] = &[
    "---",
    "\n",
    "\r\n",
    "\t",
    "  ",
    ": ",
    "- ",
    "? ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "!!x ",
    "|\n",
    ">-\n",
    "\\",
    "\\u0000",
    "\\ud800",
    "\u{feff}",
    "\u{202e}",
    "\u{1b}",
    "\0",
    "ä",
    "😀",
    "~",
    "null",
    "true",
    "1e999",
    "0x1f",
    ".inf",
    "-0",
    "name",
    "model",
    "toolsets",
    "approval",
    "version",
    "entry",
    "use",
    "{{",
    "}}",
    "{%",
    "%}",
    "%YAML 1.2\n",
    "<<: *a",
    "...\n",
    "$ref",
    "99999999999999999999",
    "\u{85}",
    "\u{2028}",
];

/// One change to a text: what is at a place is removed, doubled, or gets a word in front of it.
#[derive(Clone, Debug)]
enum Edit {
    Remove(usize, usize),
    Double(usize, usize),
    Insert(usize, &'static str),
    Replace(usize, u8),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (any::<usize>(), 1..40_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (any::<usize>(), 1..40_usize).prop_map(|(at, length)| Edit::Double(at, length)),
        (any::<usize>(), select(WORDS)).prop_map(|(at, word)| Edit::Insert(at, word)),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Edit::Replace(at, byte)),
    ];
    vec(edit, 1..8)
}

fn edited(text: &str, edits: &[Edit]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for edit in edits {
        let size = bytes.len();
        let range = |at: usize, length: usize| {
            let start = at % (size + 1);
            start..(start + length).min(size)
        };
        match *edit {
            Edit::Remove(at, length) => drop(bytes.drain(range(at, length))),
            Edit::Double(at, length) => {
                let range = range(at, length);
                let part = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, part);
            }
            Edit::Insert(at, word) => drop(bytes.splice(range(at, 0), word.bytes())),
            Edit::Replace(at, byte) => {
                if let Some(old) = bytes.get_mut(range(at, 1).start) {
                    *old = byte;
                }
            }
        }
    }
    bytes
}

#[test]
fn the_files_that_are_edited_are_good_ones() {
    fuzz::manifest(MANIFEST.as_bytes());
    fuzz::worker(WORKER.as_bytes());
    let mut sources = Sources::default();
    let file = sources.add("x".into(), String::new());
    let mut problems = llm_do::syntax::diagnostic::Diagnostics::default();
    llm_do::project::manifest::parse(file, MANIFEST, &mut problems).unwrap();
    llm_do::project::worker::parse(file, "main", WORKER, llm_do::project::worker::Format::FrontMatter, &mut problems)
        .unwrap();
    assert!(!problems.has_errors(), "{problems:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in vec(any::<u8>(), 0..400)) {
        fuzz::manifest(&bytes);
        fuzz::worker(&bytes);
    }

    #[test]
    fn any_words_are_a_value_or_an_error(words in vec(select(WORDS), 0..60)) {
        let text = words.concat();
        fuzz::manifest(text.as_bytes());
        fuzz::worker(text.as_bytes());
        fuzz::worker(format!("---\nname: a\n{text}\n---\n").as_bytes());
        fuzz::worker(format!("---\nname: a\nprompt: \"{text}\"\n---\n").as_bytes());
    }

    #[test]
    fn an_edited_manifest_is_a_value_or_an_error(edits in edits()) {
        fuzz::manifest(&edited(MANIFEST, &edits));
    }

    #[test]
    fn an_edited_worker_file_is_a_value_or_an_error(edits in edits()) {
        fuzz::worker(&edited(WORKER, &edits));
    }

    #[test]
    fn a_worker_file_that_is_written_and_read_is_the_same(worker in worker_file()) {
        fuzz::check_round_trip(&worker);
    }
}

/// Texts that quoting gets wrong.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        select(WORDS).prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
        "[ -~]{0,12}",
        Just("\n---\n".to_owned()),
        Just("x".repeat(1_100)),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// The same, but not blank.
fn nasty_text() -> impl Strategy<Value = String> {
    nasty().prop_map(|text| if text.trim().is_empty() { "x".to_owned() } else { text })
}

fn name() -> impl Strategy<Value = String> {
    // Names that YAML would take for something else.
    let odd = ["1", "true", "null", "-", "---", "0x1f", "1e5"];
    prop_oneof!["[A-Za-z0-9_-]{1,64}", select(odd.to_vec()).prop_map(str::to_owned)]
}

fn located<T>(value: T) -> Located<T> {
    let file: FileId = Sources::default().add("made".into(), String::new());
    Located { value, span: Span { file, start: 0, end: 0 } }
}

fn names() -> impl Strategy<Value = Vec<Located<String>>> {
    btree_set(name(), 0..4).prop_map(|names| names.into_iter().map(located).collect())
}

fn nasty_list(least: usize) -> impl Strategy<Value = Vec<String>> {
    btree_set(nasty_text(), least..4).prop_map(|texts| texts.into_iter().collect())
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        (-1e9..1e9_f64).prop_map(Into::into),
        nasty().prop_map(Into::into),
    ];
    let key = nasty().prop_map(|key| key.chars().take(100).collect::<String>()).boxed();
    leaf.prop_recursive(4, 20, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Into::into),
            btree_map(key.clone(), inner, 0..4).prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

fn schema_source() -> impl Strategy<Value = SchemaSource> {
    let python = prop_oneof![
        nasty_text().prop_map(|text| PythonModule::File(format!("{text}/a.py"))),
        "[a-z]{1,5}(\\.[a-z]{1,5}){0,2}".prop_map(PythonModule::Importable),
    ];
    prop_oneof![
        btree_map("[a-z]{1,4}", json(), 0..4).prop_map(|map| SchemaSource::Inline(located(RawJson::of(&map)))),
        nasty_text().prop_map(|path| SchemaSource::File(located(format!("{path}.json")))),
        (python, "[A-Z][a-z0-9_]{0,9}")
            .prop_map(|(module, class)| SchemaSource::Python(located(PythonClass { module, class }))),
    ]
}

fn server_side_tools() -> impl Strategy<Value = Vec<Located<ServerTool>>> {
    let plain = |kind| ServerTool { kind, max_uses: None, allowed_domains: Vec::new(), blocked_domains: Vec::new() };
    let search = (of(1..1_000_u64), nasty_list(0), any::<bool>()).prop_map(move |(max_uses, domains, allowed)| {
        let (allowed_domains, blocked_domains) = if allowed { (domains, Vec::new()) } else { (Vec::new(), domains) };
        ServerTool { kind: ServerToolKind::WebSearch, max_uses, allowed_domains, blocked_domains }
    });
    let others = [ServerToolKind::WebFetch, ServerToolKind::CodeExecution, ServerToolKind::ImageGeneration];
    (of(search), proptest::sample::subsequence(others.to_vec(), 0..=3)).prop_map(move |(search, others)| {
        search.into_iter().chain(others.into_iter().map(plain)).map(located).collect()
    })
}

fn model_settings() -> impl Strategy<Value = ModelSettings> {
    let efforts = [Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::Xhigh, Effort::Max];
    let thinking = prop_oneof![Just(Thinking::On), Just(Thinking::Off), (1..1_000_000_u64).prop_map(Thinking::Budget)];
    let timeout = (1..86_400_000_u64).prop_map(Duration::from_millis);
    let counts = (of(0.0..=2.0_f64), of(0.0..=1.0_f64), of(1..u64::from(u32::MAX)), of(any::<i64>()));
    let others = (nasty_list(0), of(select(efforts.to_vec())), of(thinking), of(any::<bool>()), of(timeout));
    (counts, others).prop_map(
        |((temperature, top_p, max_tokens, seed), (stop, effort, thinking, parallel, timeout))| ModelSettings {
            temperature,
            top_p,
            max_tokens,
            stop,
            seed,
            effort,
            thinking,
            parallel_tool_calls: parallel,
            timeout,
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    let count = || of(1..i64::MAX.cast_unsigned());
    let number = || of(1e-9..1e9_f64);
    let on_limit = of(prop_oneof![Just(OnLimit::Ask), Just(OnLimit::Stop), Just(OnLimit::WrapUp)]);
    ((count(), count(), count(), count()), (number(), number(), on_limit)).prop_map(|(counts, others)| {
        let (max_requests, max_tool_calls, max_input_tokens, max_output_tokens) = counts;
        let (max_cost_usd, timeout_seconds, on_limit) = others;
        Limits {
            max_requests,
            max_tool_calls,
            max_input_tokens,
            max_output_tokens,
            max_cost_usd,
            timeout_seconds,
            on_limit,
        }
    })
}

fn attachment_policy() -> impl Strategy<Value = AttachmentPolicy> {
    let suffixes = || {
        // Endings are compared in lower case, and lower case twice is not always lower case once.
        btree_set("[.a-z0-9\"'\\\\{}#: ]{1,8}", 0..3)
            .prop_map(|texts| texts.into_iter().filter(|text| !text.trim().is_empty()).collect())
    };
    (0..100_u64, 1..1_000_000_000_u64, suffixes(), suffixes()).prop_map(
        |(max_attachments, max_total_bytes, allowed_suffixes, denied_suffixes)| AttachmentPolicy {
            max_attachments,
            max_total_bytes,
            allowed_suffixes,
            denied_suffixes,
        },
    )
}

fn worker_file() -> impl Strategy<Value = WorkerFile> {
    let rule = select(vec![Rule::Allow, Rule::Ask, Rule::Block]);
    // A key of a mapping has at most 1024 characters.
    let tool = nasty().prop_map(|text| text.chars().take(100).collect::<String>());
    let approval = btree_map(tool, rule, 0..4)
        .prop_map(|rules| rules.into_iter().map(|(tool, rule)| (located(tool), rule)).collect::<Vec<_>>());
    let head = (name(), of(nasty()), nasty(), of(any::<bool>()), any::<bool>(), of(nasty_text()));
    let model = prop_oneof![
        Just((Vec::new(), None)),
        nasty_text().prop_map(|model| (vec![located(model)], None)),
        nasty_list(1).prop_map(|list| (list.into_iter().map(located).collect(), None)),
        nasty_list(1).prop_map(|list| (Vec::new(), Some(list.into_iter().map(located).collect::<Vec<_>>()))),
    ];
    let lists = (names(), names(), approval, of(names()));
    let rest = (server_side_tools(), model_settings(), limits(), attachment_policy());
    (head, model, of(schema_source()), of(schema_source()), lists, rest).prop_map(
        |(head, (models, compatible_models), schema_in, schema_out, lists, rest)| {
            let (name, description, instructions, entry, locked, prompt) = head;
            let (tools, toolsets, approval, allow_workers) = lists;
            let (server_side_tools, model_settings, limits, attachment_policy) = rest;
            WorkerFile {
                description,
                models,
                compatible_models,
                entry: entry.map(located),
                schema_in,
                prompt: prompt.map(located),
                schema_out,
                tools,
                toolsets,
                approval,
                allow_workers,
                server_side_tools,
                model_settings,
                limits,
                attachment_policy,
                locked,
                ..WorkerFile::new(located(name), instructions.trim().to_owned())
            }
        },
    )
}
