//! One reply over each protocol, by each way there is.

use fake_llm::{
    At, Cut, FakeLlm, FakeReply, FakeScript, FakeUsage, HttpVersion, InjectedFault, On, StreamMode, Transport,
};
use serde_json::json;

use crate::MAIN;
use crate::session::{KEY, Run, of_type};
use crate::support::Sandbox;

const MODELS: [&str; 4] = ["anthropic:claude-x", "openai:gpt-x", "openai-chat:gpt-x", "google:gemini-x"];

fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", MAIN);
    sandbox
}

#[test]
fn every_protocol_answers_in_streams_and_in_documents() {
    let sandbox = project();
    for model in MODELS {
        let fake = FakeLlm::start(
            FakeScript::new().reply(FakeReply::text("Hello — ünïcode")).reply(FakeReply::text("Hello — ünïcode")),
        );
        let run = |arguments: &[&'static str]| {
            let arguments = [&["main.worker", "Say hello", "-m", model], arguments].concat();
            Run::new(&sandbox, &arguments).asking(&fake).answer()
        };
        assert_eq!(run(&[]), "Hello — ünïcode\n", "{model}");
        assert_eq!(run(&["--no-stream"]), "Hello — ünïcode\n", "{model}");
        fake.assert_finished();
        let requests = fake.requests();
        let [streamed, whole] = requests.as_slice() else { panic!("{model}: {} requests", requests.len()) };
        let (streamed, whole) = (streamed.seen.as_ref().unwrap(), whole.seen.as_ref().unwrap());
        assert_eq!((streamed.stream, whole.stream), (StreamMode::EventsWithUsage, StreamMode::No), "{model}");
        for seen in [streamed, whole] {
            assert_eq!((seen.system.as_str(), seen.last_user_text().as_str()), ("Answer.", "Say hello"), "{model}");
            assert_eq!(seen.model, model.split_once(':').unwrap().1);
        }
    }
}

#[test]
fn streams_and_documents_are_the_same_result() {
    let sandbox = project();
    for model in MODELS {
        let usage = FakeUsage { input: 100, output: 20, cache_read: 30, cache_write: 0, reasoning: 0 };
        let reply = || FakeReply::text("Same.").with_usage(usage);
        let result = |arguments: &[&'static str]| {
            let fake = FakeLlm::start(FakeScript::new().reply(reply()));
            let arguments = [&["main.worker", "hi", "--json", "-m", model], arguments].concat();
            let (events, mut result) = Run::new(&sandbox, &arguments).asking(&fake).events();
            let text: String =
                of_type(&events, "text_delta").iter().map(|event| event["text"].as_str().unwrap()).collect();
            assert_eq!(text, "Same.", "{model}");
            result["run"].take();
            result["trace"]["duration_ms"].take();
            result
        };
        let streamed = result(&[]);
        assert_eq!(streamed, result(&["--no-stream"]), "{model}");
        let total = &streamed["usage"]["total"];
        assert_eq!((&total["requests"], &total["output_tokens"]), (&json!(1), &json!(20)), "{model}");
        assert_eq!((&total["input_tokens"], &total["cache_read_tokens"]), (&json!(130), &json!(30)), "{model}");
        assert_eq!(total["cost_usd"], json!(null), "{model}: nobody knows the price of such a model");
        assert_eq!(streamed["usage"]["by_model"], json!({model: total}));
    }
}

#[test]
fn tls_is_spoken_over_both_http_versions() {
    let sandbox = project();
    for (transport, version) in [(Transport::Tls, HttpVersion::Http2), (Transport::TlsHttp1, HttpVersion::Http1)] {
        for model in MODELS {
            let fake = FakeLlm::start_on(transport, FakeScript::new().reply(FakeReply::text("Secure.")));
            sandbox.file("ca.pem", fake.ca_pem());
            let config = format!("[http]\nca_file = {:?}\n", sandbox.path().join("ca.pem"));
            sandbox.file(".config/llm-do/config.toml", &config);
            let run = Run::new(&sandbox, &["main.worker", "hi", "-m", model]).asking(&fake);
            assert_eq!(run.answer(), "Secure.\n", "{model} {transport:?}");
            fake.assert_finished();
            assert_eq!(fake.requests()[0].version, version, "{model} {transport:?}");
        }
    }
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    let sandbox = project();
    let fake = FakeLlm::start_on(Transport::Tls, FakeScript::new().reply(FakeReply::text("Secure.")));
    let said = Run::new(&sandbox, &["main.worker", "hi", "-m", "anthropic:claude-x"]).asking(&fake).failure(3);
    let expected = format!(
        "error: agent `main`: the provider is not available: no secure connection to 127.0.0.1:{}: ",
        fake.port()
    );
    assert!(said.starts_with(&expected), "{said}");
    assert_eq!(fake.requests().len(), 0);
}

#[test]
fn a_stream_that_breaks_off_is_asked_for_again_and_no_text_comes_twice() {
    let sandbox = project();
    sandbox.file(".config/llm-do/config.toml", "[http]\nretries = 1\n");
    for model in MODELS {
        let reply = FakeReply::text("One two three four five six.").in_deltas(8);
        let script =
            FakeScript::new().reply(reply).fault(On::Request(1), InjectedFault::cut(At::Percent(60), Cut::Eof));
        let fake = FakeLlm::start(script);
        let (events, result) = Run::new(&sandbox, &["main.worker", "hi", "--json", "-m", model]).asking(&fake).events();
        fake.assert_finished();
        assert_eq!(result["output"], "One two three four five six.", "{model}");
        let text: String = of_type(&events, "text_delta").iter().map(|event| event["text"].as_str().unwrap()).collect();
        assert_eq!(text, "One two three four five six.", "{model}");
        assert_eq!(of_type(&events, "retry_scheduled").len(), 1, "{model}");
    }
}

#[test]
fn the_key_goes_where_the_protocol_wants_it() {
    let sandbox = project();
    for (model, header, value) in [
        (MODELS[0], "x-api-key", KEY.to_owned()),
        (MODELS[1], "authorization", format!("Bearer {KEY}")),
        (MODELS[2], "authorization", format!("Bearer {KEY}")),
        (MODELS[3], "x-goog-api-key", KEY.to_owned()),
    ] {
        let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("ok")));
        Run::new(&sandbox, &["main.worker", "hi", "-m", model]).asking(&fake).answer();
        let request = &fake.requests()[0];
        assert_eq!(request.headers.get(header), Some(value.as_str()), "{model}");
        assert!(!request.path.contains(KEY), "{model}: {}", request.path);
    }
}
