//! Every row of the providers' table, without knowing any of them: a new row is checked by being there.

use std::collections::BTreeMap;

use fake_llm::{FakeCall, FakeLlm, FakeReply as Said, FakeScript};
use hyper::Uri;
use llm_do::message::{Message, RawJson};
use llm_do::model::name::ModelName;
use llm_do::model::provider::{PROVIDERS, ProtocolKind, Provider};
use llm_do::model::{Effort, Head, Model as _, ModelSettings, ServerTool, Thinking};
use serde_json::json;

use crate::talk::{FORMS, Form, ask, exchange, head, result};

fn rows() -> impl Iterator<Item = &'static Provider> {
    PROVIDERS.iter().filter(|row| row.protocol != ProtocolKind::Scripted)
}

#[test]
fn an_address_is_one_and_variables_are_named_like_variables() {
    let mut owners: BTreeMap<&str, &Provider> = BTreeMap::new();
    for row in rows() {
        assert!(row.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", row.name);
        assert!(!row.base_url_variables.is_empty(), "{} cannot be asked elsewhere", row.name);
        if !row.base_url.is_empty() {
            let address: Uri = row.base_url.parse().unwrap();
            let local = address.host() == Some("localhost");
            assert_eq!(address.scheme_str(), Some(if local { "http" } else { "https" }), "{}", row.base_url);
            assert!(address.query().is_none() && !row.base_url.ends_with('/'), "{}", row.base_url);
        }
        for variable in row.base_url_variables.iter().chain(row.key_variables) {
            let upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(variable.bytes().all(upper), "{variable}");
            // Two rows may be one provider with two protocols, or with two doors: a key is for its own provider alone.
            let owner = *owners.entry(variable).or_insert(row);
            let is_google =
                |row: &Provider| row.base_url.split('/').nth(2).is_some_and(|host| host.ends_with(".googleapis.com"));
            let is_one = owner.base_url == row.base_url || (is_google(owner) && is_google(row));
            assert!(is_one, "{variable} belongs to {} and {}", owner.name, row.name);
        }
    }
}

#[test]
fn only_what_its_own_protocol_reads_is_a_quirk() {
    use llm_do::model::protocol::Quirks;
    for row in rows().filter(|row| row.protocol != ProtocolKind::OpenAiChat) {
        let read = match row.protocol {
            ProtocolKind::Gemini => {
                Quirks { gemini_path: row.quirks.gemini_path, key_form: row.quirks.key_form, ..Quirks::NONE }
            }
            _ => Quirks::NONE,
        };
        assert_eq!(row.quirks, read, "{}: its protocol reads no more quirks", row.name);
    }
}

/// Everything that a worker file can ask for.
fn full_head(row: &Provider, form: Form) -> Head {
    let model = match row.protocol {
        ProtocolKind::Anthropic => "claude-sonnet-4-5",
        ProtocolKind::Gemini => "gemini-3.8-flash",
        ProtocolKind::OpenAiResponses | ProtocolKind::OpenAiChat | ProtocolKind::Scripted => "gpt-5",
    };
    let output =
        r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#;
    let server_tool = |kind| ServerTool { kind, max_uses: None, allowed_domains: vec![], blocked_domains: vec![] };
    Head {
        model: ModelName { provider: row.name.to_owned(), model: model.to_owned() },
        server_tools: row.server_tools.iter().map(|offered| server_tool(offered.kind)).collect(),
        settings: ModelSettings {
            temperature: Some(1.0),
            top_p: Some(0.95),
            max_tokens: Some(20_000),
            stop: vec!["END".to_owned()],
            seed: Some(7),
            effort: Some(Effort::Medium),
            thinking: Some(Thinking::On),
            parallel_tool_calls: Some(true),
            timeout: None,
        },
        output: Some(RawJson::parse(output).unwrap()),
        ..head(row.name, form)
    }
}

#[tokio::test]
async fn a_whole_conversation_with_every_setting_is_accepted() {
    for (row, form) in rows().flat_map(|row| FORMS.map(|form| (row, form))) {
        let calls = ["a", "b"].map(|name| FakeCall::new("read", json!({"path": name})));
        let script = FakeScript::new().reply(Said::text("I look.").and_calls(calls)).reply(Said::text(r#"{"a":"b"}"#));
        let fake = FakeLlm::start(script);
        let mut talk = exchange(row.name, &fake).open(full_head(row, form));
        let mut history = vec![Message::user("What do they say?")];
        let reply = ask(talk.as_mut(), &history).await.reply.unwrap_or_else(|error| panic!("{}: {error}", row.name));
        let results: Vec<_> = reply.tool_calls().map(|call| result(&call.id, "hello")).collect();
        let results = results.into_iter().flat_map(|message| match message {
            Message::Tool(results) => results.parts,
            Message::User(_) | Message::Assistant(_) => Vec::new(),
        });
        let results = Message::tool_results(results.collect());
        history.extend([Message::Assistant(reply), results]);
        let reply = ask(talk.as_mut(), &history).await.reply.unwrap_or_else(|error| panic!("{}: {error}", row.name));
        assert_eq!(reply.text(), r#"{"a":"b"}"#, "{}", row.name);
        fake.assert_finished();
        let sent = fake.requests()[1].headers.clone();
        let key = ["authorization", "x-api-key", "x-goog-api-key"].iter().find_map(|name| sent.get(name));
        assert!(key.is_some_and(|key| key.ends_with("secret")), "{} was asked without the key", row.name);
    }
}
