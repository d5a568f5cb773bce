//! Typed input and output.

use fake_llm::{FakeLlm, FakeReply, FakeScript};
use serde_json::{Value, json};

use crate::session::Run;
use crate::support::Sandbox;

const TYPED_IN: &str = "\
---
name: main
schema_in:
  type: object
  properties:
    topic: { type: string }
    points: { type: array, items: { type: string } }
  required: [topic]
  additionalProperties: false
prompt: \"Write about {{ topic }}{% for point in points %}; {{ point }}{% endfor %}.\"
---
Write.
";

fn echo(worker: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", worker).file("echo.yaml", "- say: \"heard: {{ heard }}\"\n");
    sandbox
}

const ECHO: [&str; 3] = ["main.worker", "-m", "scripted:echo.yaml"];

#[test]
fn a_typed_input_becomes_the_message_of_the_template() {
    let sandbox = echo(TYPED_IN);
    let run = |arguments: &[&'static str]| Run::new(&sandbox, &[&ECHO, arguments].concat());
    assert_eq!(run(&["rain"]).answer(), "heard: Write about rain.\n");
    assert_eq!(run(&[]).hearing("rain").answer(), "heard: Write about rain.\n");
    let json = r#"{"topic": "rain", "points": ["wet", "loud"]}"#;
    assert_eq!(run(&["--input-json", json]).answer(), "heard: Write about rain; wet; loud.\n");
    sandbox.file("notes.md", "wet");
    assert_eq!(run(&["rain", "-f", "notes.md"]).answer(), "heard: Write about rain.\n[notes.md]\n");
    // Without a template: the field `input`, else the whole object.
    let sandbox =
        echo("---\nname: main\nschema_in: { type: object, properties: { input: { type: string } } }\n---\nx\n");
    let run = |json: &'static str| Run::new(&sandbox, &[&ECHO[..], &["--input-json", json]].concat()).answer();
    assert_eq!(run(r#"{"input": "hi"}"#), "heard: hi\n");
    assert_eq!(run(r#"{"other": 1}"#), "heard: {\n  \"other\": 1\n}\n");
}

#[test]
fn an_input_that_violates_its_schema_is_shown_the_schema() {
    let sandbox = echo(TYPED_IN);
    let schema = r#"{"type":"object","properties":{"topic":{"type":"string"},"points":{"type":"array","items":{"type":"string"}}},"required":["topic"],"additionalProperties":false}"#;
    for (json, violation) in [
        ("{}", "`topic` is missing"),
        ("{\"topic\": 7}", "`/topic`: 7 is not of type \"string\""),
        ("{\"topic\": \"x\", \"more\": 1}", "Additional properties are not allowed ('more' was unexpected)"),
    ] {
        let said = Run::new(&sandbox, &[&ECHO[..], &["--input-json", json]].concat()).failure(2);
        let expected =
            format!("error: the input of agent `main` violates its schema: {violation}\n  | the schema: {schema}\n");
        assert_eq!(said, expected);
    }
    let sandbox = echo(&TYPED_IN.replace("required: [topic]", "required: [topic, points]"));
    let said = Run::new(&sandbox, &[&ECHO[..], &["rain"]].concat()).failure(2);
    let reason = "error: the input of agent `main` violates its schema: \
                  this agent takes JSON with `topic`, `points`\n  | the schema: {";
    assert!(said.starts_with(reason), "{said}");
}

const TYPED_OUT: &str = "\
---
name: main
schema_out:
  type: object
  properties:
    verdict: { type: string, enum: [good, bad] }
    score: { type: integer }
  required: [verdict, score]
  additionalProperties: false
---
Judge.
";

#[test]
fn a_typed_output_is_asked_for_natively_and_printed_as_indented_json() {
    let sandbox = echo(TYPED_OUT);
    for (model, pointer) in [
        ("anthropic:claude-sonnet-4-5", "/output_config/format/schema"),
        ("openai:gpt-x", "/text/format/schema"),
        ("openai-chat:gpt-x", "/response_format/json_schema/schema"),
        ("google:gemini-x", "/generationConfig/responseJsonSchema"),
    ] {
        let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text(r#"{"verdict":"good","score":7}"#)));
        let answer = Run::new(&sandbox, &["main.worker", "x", "-m", model]).asking(&fake).answer();
        assert_eq!(answer, "{\n  \"verdict\": \"good\",\n  \"score\": 7\n}\n", "{model}");
        fake.assert_finished();
        let body = &fake.requests()[0].body;
        let schema = body.pointer(pointer).unwrap_or_else(|| panic!("{model}: no schema in {body}"));
        assert_eq!(schema["required"], json!(["verdict", "score"]), "{model}");
    }
}

#[test]
fn an_answer_that_violates_its_schema_is_sent_back() {
    let sandbox = echo(TYPED_OUT);
    let replies = ["Sorry?", r#"{"verdict":"fine","score":7}"#, "```json\n{\"verdict\":\"bad\",\"score\":1}\n```"];
    let script = replies.iter().fold(FakeScript::new(), |script, text| script.reply(FakeReply::text(text)));
    let fake = FakeLlm::start(script);
    let run = Run::new(&sandbox, &["main.worker", "x", "--json", "-m", "anthropic:claude-sonnet-4-5"]).asking(&fake);
    let (_, result) = run.events();
    fake.assert_finished();
    assert_eq!(result["output"], json!({"verdict": "bad", "score": 1}));
    let requests = fake.requests();
    let sent_back = |index: usize| requests[index].seen.as_ref().unwrap().last_user_text();
    assert!(sent_back(1).contains("it is not JSON"), "{}", sent_back(1));
    assert!(sent_back(2).contains("`/verdict`: \"fine\" is not one of"), "{}", sent_back(2));
}

#[test]
fn an_answer_that_never_satisfies_its_schema_is_exit_code_six() {
    let sandbox = echo(TYPED_OUT);
    sandbox.file("wrong.yaml", "- say: '{\"verdict\": \"good\"}'\n");
    let arguments = ["main.worker", "x", "-m", "scripted:wrong.yaml"];
    let said = Run::new(&sandbox, &arguments).failure(6);
    assert_eq!(said, "error: the answer of agent `main` violates its schema: `score` is missing\n");
    let (_, result) = Run::new(&sandbox, &[&arguments[..], &["--json"]].concat()).events();
    assert_eq!((&result["output"], &result["exit_code"]), (&Value::Null, &json!(6)));
    assert_eq!(result["usage"]["total"]["requests"], 4, "it is sent back three times");
}

#[test]
fn an_answer_of_any_json_is_a_value() {
    for (schema, said, printed) in [
        ("{ type: integer }", "42", "42\n"),
        ("{ type: array }", "[]", "[]\n"),
        ("{ type: string }", "\"a \\\"b\\\"\"", "\"a \\\"b\\\"\"\n"),
    ] {
        let sandbox = echo(&format!("---\nname: main\nschema_out: {schema}\n---\nx\n"));
        sandbox.file("say.yaml", &format!("- say: {}\n", json!(said)));
        assert_eq!(Run::new(&sandbox, &["main.worker", "x", "-m", "scripted:say.yaml"]).answer(), printed);
    }
}

#[test]
fn a_typed_answer_is_printed_as_it_comes() {
    let answer = r#"{"verdict": "merge", "remarks": ["all is well", "and short"]}"#;
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text(answer).in_deltas(8)));
    let worker = "---\nname: main\nschema_out:\n  type: object\n  required: [verdict]\n---\nAnswer.\n";
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", worker).file("plain.worker", "---\nname: plain\n---\nAnswer.\n");
    let model = "anthropic:claude-haiku-4-5";
    let words = ["main.worker", "-m", model, "hi", "--json", "--partial"];
    let (events, result) = Run::new(&sandbox, &words).asking(&fake).events();
    let partial: Vec<&Value> = events.iter().filter(|event| event["type"] == "partial_output").collect();
    assert!(!partial.is_empty() && partial.len() < 8, "{partial:?}");
    for event in &partial {
        assert_eq!((&event["validated"], &event["depth"]), (&json!(false), &json!(0)));
        assert!(event["output"].is_object(), "{event}");
    }
    assert_eq!(result["output"]["verdict"], "merge");
    let words = ["plain.worker", "-m", model, "hi", "--json", "--partial"];
    let (events, _) = Run::new(&sandbox, &words).asking(&fake).events();
    assert!(events.iter().all(|event| event["type"] != "partial_output"), "a text is told by its deltas");
    let said = Run::new(&sandbox, &["main.worker", "-m", model, "hi", "--partial"]).asking(&fake).failure(2);
    assert!(said.contains("`--partial` prints lines of JSON: it needs `--json`"), "{said}");
}
