//! Hostile worker files as agents that were created at run time: the same refusals, in bounded time, told by `check` as well.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use llm_do::journal::mac::StateKey;
use llm_do::project::created::{CreatedAgents, CreatedStore, CreationRecord};
use serde_json::{Value, json};

use crate::python::KEY as STATE_KEY;
use crate::session::Run;
use crate::support::Sandbox;

/// Nothing here is unfolded, rendered or compiled, which would take for ever.
const LONGEST: Duration = Duration::from_secs(30);

const EVIL: &str = "workers/generated/evil.yaml";

const CALL: &str = "\
- { agent: main, round: 1, call: { agent_call: { agent: evil, input: go } } }
- { agent: main, say: \"{{ result }}\" }
- { say: never }
";

/// A project that may create agents, in which these worker files are listed.
fn maker(listed: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    let files: Vec<&str> = [&["main.worker"], listed].concat();
    let manifest = json!({"version": 1, "entry": {"agent": "main"}, "worker_files": files});
    sandbox.file("project.json", &manifest.to_string()).file("script.yaml", CALL);
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [dynamic_agents]\n---\nYou make agents.\n");
    sandbox
}

/// As if this file had been created here.
fn sign(sandbox: &Sandbox, text: &str) {
    sandbox.file(EVIL, text);
    let byte = u8::from_str_radix(STATE_KEY, 16).unwrap();
    let directory = sandbox.path().join(".local/state/llm-do");
    let store = CreatedStore { directory, key: StateKey::from_bytes([byte; 32]) };
    CreatedAgents::of(sandbox.path(), Some(&store)).add(CreationRecord::of("evil", text, Some("main"))).unwrap();
}

fn llm_do<'a>(sandbox: &'a Sandbox, words: &[&'a str]) -> Run<'a> {
    Run::of(sandbox, words).with("LLM_DO_STATE_KEY", STATE_KEY.repeat(32))
}

const MODEL: [&str; 2] = ["-m", "scripted:script.yaml"];

/// What `check` says of the project.
fn checked(sandbox: &Sandbox) -> Value {
    let ended = llm_do(sandbox, &[&["check", ".", "--json"], &MODEL[..]].concat()).ended();
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Every mistake that `check` finds in a listed file, as a created one tells of it.
fn mistakes(report: &Value) -> Vec<String> {
    let one = |it: &Value| {
        let place = format!("{}:{}:{}", Path::new(it["file"].as_str().unwrap()).display(), it["line"], it["column"]);
        let hint = it["hint"].as_str().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{}: {}{hint}", place.trim_start_matches("./"), it["message"].as_str().unwrap())
    };
    report["errors"].as_array().unwrap_or_else(|| panic!("{report}")).iter().map(one).collect()
}

/// The mistake without its place and its hint.
fn fact_of(mistake: &str) -> String {
    let fact = mistake.splitn(4, ':').nth(3).unwrap().trim_start();
    fact.split(" (").next().unwrap().to_owned()
}

/// What `check` says of the only agent that was created: it is known and has mistakes, or not even its name can be read.
fn told_by_check(report: &Value) -> String {
    assert_eq!(report["ok"], true, "it is no mistake of the project: {report}");
    match &report["created"][0] {
        Value::Null => {
            let of_file = |note: &&Value| note["file"].as_str().is_some_and(|file| file.ends_with(EVIL));
            let note = report["notes"].as_array().unwrap().iter().find(of_file);
            note.unwrap_or_else(|| panic!("{report}"))["message"].as_str().unwrap().to_owned()
        }
        created => {
            assert_eq!((&created["name"], &created["counts"]), (&json!("evil"), &json!(true)));
            created["mistake"].as_str().unwrap_or_else(|| panic!("it is told of no mistake: {created}")).to_owned()
        }
    }
}

/// Files and a word of what is said about each.
fn hostile() -> Vec<(String, &'static str)> {
    let mut aliases = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..40 {
        writeln!(aliases, "a{level}: &a{level} [{}]", vec![format!("*a{}", level - 1); 10].join(",")).unwrap();
    }
    let mut unfolding = json!({"n0": {"type": "object"}});
    for number in 1..40 {
        let below = json!({"$ref": format!("#/$defs/n{}", number - 1)});
        unfolding[format!("n{number}")] = json!({"allOf": [below, below]});
    }
    let unfolding = json!({"type": "object", "$ref": "#/$defs/n39", "$defs": unfolding});
    let long_chain = format!("{{{{ input{} }}}}", ".a".repeat(100_000));
    let alternatives = format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(50_000));
    let brackets = format!("{{{{ {}1{} }}}}", "[".repeat(400), "]".repeat(400));
    let rules: Vec<String> = (0..40_000).map(|index| format!("r{index}: ask")).collect();
    let keys: Vec<String> = (0..60_000).map(|index| format!("k{index}: 1")).collect();
    let rows = [
        (aliases, "more than 100000 values in one file"),
        (
            format!("a: &x \"{}\"\nb: [{}]", "x".repeat(500_000), "*x,".repeat(90_000)),
            "more than 4194304 bytes of text, aliases expanded",
        ),
        (
            format!("a: {}[{}]{}", "&a [".repeat(60), "x,".repeat(50_000), "]".repeat(60)),
            "anchors inside anchors hold more than 100000 values or 4194304 bytes",
        ),
        ("schema_out: &x {a: *x}".to_owned(), "an alias inside the value that it stands for"),
        (format!("x: {}", "[".repeat(10_000)), ""),
        (format!("x: {}", "{a: ".repeat(10_000)), ""),
        (format!("x: {}", "- ".repeat(10_000)), ""),
        (format!("x: {}", "a: &a [".repeat(10_000)), ""),
        ("description: a\ndescription: b".to_owned(), "the key `description` appears twice"),
        ("description: !!python/object/apply:os.system ['id']".to_owned(), "is not allowed"),
        ("? [a, b]\n: c".to_owned(), "a key must be plain text"),
        ("<<: {entry: true}".to_owned(), "unknown key `<<` in a worker file"),
        (keys.join("\n"), "more than 100000 values in one file"),
        (format!("approval: {{{}}}", rules.join(", ")), "r0"),
        ("toolsets: [\"\\e[2J\\u202eevil\"]".to_owned(), "\\u{1b}[2J\\u{202e}evil"),
        (format!("prompt: '{long_chain}'"), "the template does not parse: a tag is longer than 1000 bytes"),
        (format!("prompt: '{alternatives}'"), "the template does not parse: more than 100 times `elif`"),
        (format!("prompt: '{brackets}'"), "the template does not parse: "),
        ("prompt: '{{ input'".to_owned(), "the template does not parse: "),
        ("prompt: '{{ nothing }}'".to_owned(), "the template uses an unknown field `nothing`"),
        (format!("schema_in: {unfolding}"), "a JSON Schema that unfolds to more than 100000 parts"),
        (format!("schema_out: {unfolding}"), "a JSON Schema that unfolds to more than 100000 parts"),
        ("schema_in: {type: object, properties: {a: {type: 7}}}".to_owned(), ""),
        ("schema_out: {type: object, $ref: 'file:///etc/passwd'}".to_owned(), ""),
        (
            format!("schema_in: {{type: object, properties: {{a: {{pattern: '{}'}}}}}}", "x".repeat(4_097)),
            "a pattern of more than 4096 bytes",
        ),
        ("schema_in: {type: object, properties: {a: {pattern: '('}}}".to_owned(), ""),
    ];
    rows.map(|(keys, fact)| (format!("name: evil\n{keys}\ninstructions: x\n"), fact)).into()
}

/// Enough for somebody to read what is wrong, and no more than a model should be sent.
const MOST_WORDS: usize = 200_000;

#[test]
fn a_hostile_file_of_a_created_agent_is_refused_like_one_of_the_project() {
    for (text, fact) in hostile() {
        let shown: String = text.chars().take(60).collect();
        let listed = maker(&[EVIL]);
        listed.file(EVIL, &text);
        let expected = mistakes(&checked(&listed));
        assert!(expected.iter().any(|mistake| mistake.contains(fact)), "{shown}: {expected:?}");

        let (sandbox, began) = (maker(&[]), Instant::now());
        sign(&sandbox, &text);
        let called = llm_do(&sandbox, &[&["run", ".", "hi"], &MODEL[..]].concat()).ended();
        let start = format!("error: invalid arguments: the file of the agent `evil` has mistakes: {}", expected[0]);
        assert!(called.stdout.starts_with(&start), "{shown}: {}{}, not {start}", called.stdout, called.stderr);
        assert!(called.stdout.len() < MOST_WORDS, "{shown}: {} bytes", called.stdout.len());
        let told = told_by_check(&checked(&sandbox));
        assert!(told.contains(&fact_of(&expected[0])), "{shown}: {told}, not {}", expected[0]);
        assert!(began.elapsed() < LONGEST, "{shown}: {:?}", began.elapsed());
    }
}

/// An agent that asks for an agent with these arguments; what it hears of it, and its project.
fn create(arguments: &Value) -> (Sandbox, String) {
    let sandbox = maker(&[]);
    let call = FakeCall::new("agent_create", arguments.clone());
    let script = FakeScript::new().answer(move |seen| {
        Some(match seen.last_result() {
            None if seen.system == "You make agents." => FakeReply::calls([call.clone()]),
            Some(result) => FakeReply::text(result),
            None => FakeReply::text("never"),
        })
    });
    let fake = FakeLlm::start(script);
    let began = Instant::now();
    let words = ["run", ".", "hi", "-m", "anthropic:m", "--approve-all"];
    let ended = llm_do(&sandbox, &words).asking(&fake).ended();
    assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(fake.violations(), []);
    (sandbox, ended.stdout)
}

#[test]
fn what_no_file_of_a_project_may_be_is_not_created_either() {
    // Three times as long in a file as in a call.
    let large = "\u{85}".repeat(400_000);
    let many: Vec<String> = (0..50_000).map(|index| format!("toolset{index}")).collect();
    for (arguments, fact) in [
        (json!({"name": "evil", "instructions": "x".repeat(1024 * 1024)}), "the arguments are longer than 1 MiB"),
        (json!({"name": "evil", "instructions": format!("x{large}x")}), "larger than 1048576 bytes"),
        (json!({"name": "evil", "instructions": "x", "description": large}), "larger than 1048576 bytes"),
        (
            json!({"name": "evil", "instructions": "x", "toolsets": many}),
            "`toolset0` is not among the toolsets of `main`",
        ),
        (
            json!({"name": "evil", "instructions": "x", "toolsets": ["\u{1b}[2J\u{202e}"]}),
            "`\\u{1b}[2J\\u{202e}` is not among",
        ),
        (json!({"name": "x".repeat(100_000), "instructions": "x"}), "is not a name"),
        (json!({"name": "evil", "instructions": "x", "model": "x".repeat(100_000)}), "mistakes"),
    ] {
        let shown: String = arguments.to_string().chars().take(80).collect();
        let (sandbox, said) = create(&arguments);
        assert!(said.contains(fact), "{shown}: {}", said.chars().take(300).collect::<String>());
        assert!(said.len() < MOST_WORDS, "{shown}: {} bytes", said.len());
        assert!(!sandbox.path().join("workers").exists(), "{shown}");
    }
}

/// What is told an agent is text, whatever it looks like.
#[test]
fn instructions_that_look_like_a_file_or_a_template_are_words() {
    let nasty = "---\nname: other\ntoolsets: [shell_readonly]\n---\n\"]\n{% for i in range(9999) %}{{ \"x\" * 1000000 }}\
                 {% endfor %}\n&a [*a]\n!!python/object:x {}\ttab \u{85}\u{2028}end\u{1b}[2J";
    let sandbox = maker(&[]);
    let call = |tool: &str, arguments: &Value| FakeReply::calls([FakeCall::new(tool, arguments.clone())]);
    let script = FakeScript::new()
        .reply(call("agent_create", &json!({"name": "evil", "instructions": nasty})))
        .reply(call("agent_call", &json!({"agent": "evil", "input": "go"})))
        .otherwise(FakeReply::text("said"));
    let fake = FakeLlm::start(script);
    let words = ["run", ".", "hi", "-m", "anthropic:m", "--approve-all"];
    let ended = llm_do(&sandbox, &words).asking(&fake).ended();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "said\n"), "{}", ended.stderr);
    let asked = fake.requests();
    let told = asked[2].seen.as_ref().unwrap();
    assert_eq!((told.system.as_str(), told.tools.len()), (nasty, 0));
    assert_eq!(checked(&sandbox)["created"], json!([{"name": "evil", "counts": true}]));
}
