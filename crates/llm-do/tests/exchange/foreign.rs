//! A history that another model wrote: every provider reads what every other one left, without what only the writer
//! understands, and gets its own back as it was.

use std::sync::Arc;

use fake_llm::{FakeLlm, FakeReply as Said, FakeScript, SeenRequest};
use llm_do::message::{Attachment, Content, Message, Reply, ToolResult, UserMessage};
use llm_do::model::name::ModelName;
use llm_do::model::protocol::CallIdForm;
use llm_do::model::provider::{ProtocolKind, Provider, provider};
use llm_do::model::{Head, Model as _};
use serde_json::{Value, json};

use crate::talk::{Form, ask, exchange, head};

/// Every protocol, both generations of Gemini, and the rows with the most quirks.
const MODELS: [(&str, &str); 12] = [
    ("anthropic", "claude-sonnet-4-5"),
    ("openai", "gpt-5"),
    ("openai-chat", "gpt-5"),
    ("google", "gemini-2.5-flash"),
    ("google", "gemini-3.8-flash"),
    ("ollama", "qwen3"),
    ("openrouter", "anthropic/claude-sonnet-4.5"),
    ("groq", "qwen3"),
    ("mistral", "magistral"),
    ("deepseek", "deepseek-chat"),
    ("huggingface", "qwen3"),
    ("azure", "gpt-5"),
];

/// In everything that nobody but its writer may see.
const PRIVATE: &str = "PRIVATE";
const TEXT: &str = "It is known.";

/// An answer as its provider writes it, and what of it comes back to just that provider.
struct Written {
    document: Value,
    returned: Vec<Value>,
}

fn written(row: &Provider) -> Written {
    match row.protocol {
        ProtocolKind::Anthropic => by_anthropic(),
        ProtocolKind::OpenAiResponses => by_responses(),
        ProtocolKind::OpenAiChat => by_chat(row.name),
        ProtocolKind::Gemini => by_gemini(),
        ProtocolKind::Scripted => panic!("a script has no wire"),
    }
}

fn by_anthropic() -> Written {
    let found = json!({
        "type": "web_search_result", "url": "https://a.example", "title": "t", "encrypted_content": "PRIVATE found",
        "page_age": null,
    });
    let cited = json!({
        "type": "web_search_result_location", "cited_text": "c", "url": "https://a.example", "title": "t",
        "encrypted_index": "PRIVATE cited",
    });
    let returned = vec![
        json!({"type": "thinking", "thinking": "PRIVATE thought", "signature": "PRIVATE signature"}),
        json!({"type": "redacted_thinking", "data": "PRIVATE redacted"}),
        json!({"type": "server_tool_use", "id": "srvtoolu_PRIVATE", "name": "web_search", "input": {"query": "q"}}),
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_PRIVATE", "content": [found]}),
        json!({"type": "text", "text": TEXT, "citations": [cited]}),
    ];
    let calls = [("toolu_01A", "a.png"), ("toolu_01B", "b.txt")]
        .map(|(id, path)| json!({"type": "tool_use", "id": id, "name": "read", "input": {"path": path}}));
    let content: Vec<Value> = returned.iter().cloned().chain(calls).collect();
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    Written {
        document: json!({"type": "message", "content": content, "stop_reason": "tool_use", "usage": usage}),
        returned,
    }
}

fn by_responses() -> Written {
    let cited = json!({
        "type": "url_citation", "start_index": 0, "end_index": 2, "url": "https://PRIVATE.example", "title": "t",
    });
    let text = json!({"type": "output_text", "text": TEXT, "annotations": [cited], "logprobs": []});
    let call = |number: u64, path: &str| {
        json!({
            "type": "function_call", "id": format!("fc_PRIVATE{number}"), "call_id": format!("call_{number}Ab"),
            "name": "read", "arguments": json!({"path": path}).to_string(), "status": "completed",
        })
    };
    let returned = vec![
        json!({"type": "reasoning", "id": "rs_PRIVATE", "summary": [{"type": "summary_text", "text": "PRIVATE thought"}],
            "encrypted_content": "PRIVATE encrypted"}),
        json!({"type": "web_search_call", "id": "ws_PRIVATE", "status": "completed",
            "action": {"type": "search", "query": "q"}}),
        json!({"type": "message", "id": "msg_PRIVATE", "role": "assistant", "status": "completed", "content": [text]}),
        call(1, "a.png"),
        call(2, "b.txt"),
    ];
    Written { document: json!({"status": "completed", "output": returned, "usage": {}}), returned }
}

fn by_chat(name: &str) -> Written {
    let signature = json!({"google": {"thought_signature": "PRIVATE signature"}});
    let detail =
        json!({"type": "reasoning.encrypted", "data": "PRIVATE data", "id": "PRIVATE", "format": "f", "index": 0});
    // Shapes of ids that other providers refuse.
    let ids = match name {
        "mistral" => ["rHU0eZiMa", "rHU0eZiMb"].map(str::to_owned),
        "ollama" | "huggingface" => ["functions.read:0", "functions.read:1"].map(str::to_owned),
        _ => ["a", "b"].map(|letter| format!("call_{}", letter.repeat(80))),
    };
    let call = |id: &str, path: &str| {
        let function = json!({"name": "read", "arguments": json!({"path": path}).to_string()});
        json!({"id": id, "type": "function", "function": function, "extra_content": signature})
    };
    let (reasoning, thought) = match name {
        "deepseek" => ("reasoning_content", "PRIVATE thought"),
        _ => ("reasoning", "PRIVATE thought"),
    };
    let message = json!({
        "role": "assistant", "content": TEXT, reasoning: thought, "reasoning_details": [detail],
        "annotations": [{"type": "url_citation", "url_citation": {"url": "https://PRIVATE.example"}}],
        "executed_tools": [{"type": "search", "arguments": "{\"query\":\"q\"}", "output": "PRIVATE found"}],
        "tool_calls": [call(&ids[0], "a.png"), call(&ids[1], "b.txt")],
    });
    let mut returned = vec![json!({"extra_content": signature})];
    returned.extend(match name {
        "openrouter" => Some(json!({"reasoning_details": [detail]})),
        "deepseek" | "ollama" => Some(json!({reasoning: thought})),
        _ => None,
    });
    Written { document: json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]}), returned }
}

fn by_gemini() -> Written {
    let call = |call: Value| json!({"functionCall": call});
    let mut first = call(json!({"id": "fc.1", "name": "read", "args": {"path": "a.png"}}));
    first["thoughtSignature"] = json!("PRIVATE call");
    let returned = vec![
        json!({"text": "PRIVATE thought", "thought": true, "thoughtSignature": "PRIVATE signature"}),
        json!({"executableCode": {"language": "PYTHON", "code": "PRIVATE code"}}),
        json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "PRIVATE output"}}),
        json!({"text": TEXT, "thoughtSignature": "PRIVATE text"}),
        first,
        call(json!({"name": "read", "args": {"path": "b.txt"}})),
    ];
    let grounding = json!({"groundingChunks": [{"web": {"uri": "https://PRIVATE.example"}}]});
    let candidate = json!({
        "content": {"role": "model", "parts": returned}, "finishReason": "STOP", "groundingMetadata": grounding,
    });
    Written { document: json!({"candidates": [candidate]}), returned }
}

fn head_of(name: &str, model: &str, form: Form) -> Head {
    let model = ModelName { provider: name.to_owned(), model: model.to_owned() };
    Head { model, ..head(name, form) }
}

/// The answer as it is read here.
fn read(row: &Provider, model: &str, document: &Value) -> Reply {
    let head = head_of(row.name, model, Form::Document);
    let mut decoder = row.protocol.protocol().unwrap().decoder(&head, &row.quirks, 1);
    decoder.document(document.to_string().as_bytes(), &mut |_| {}).unwrap();
    decoder.finish().unwrap()
}

fn file(name: &str, media_type: &str, data: &[u8]) -> Content {
    Content::Attachment(Attachment {
        name: name.into(),
        path: None,
        media_type: media_type.into(),
        data: Arc::from(data),
    })
}

/// Files of users and of tools, in base64.
const FILES: [&str; 4] = ["UE5HIG9mIHVzZXI", "UERGIG9mIHVzZXI", "UE5HIG9mIHRvb2w", "UERGIG9mIHRvb2w"];

/// A user's message with files, a reply of the writer, results with files, and so on.
fn history(reply: Reply) -> Vec<Message> {
    let parts = vec![
        Content::text("What is known?"),
        file("u.png", "image/png", b"PNG of user"),
        file("u.pdf", "application/pdf", b"PDF of user"),
    ];
    let files = vec![
        Content::text("seen"),
        file("t.png", "image/png", b"PNG of tool"),
        file("t.pdf", "application/pdf", b"PDF of tool"),
    ];
    let outcomes = [Ok(files), Err("no such file".to_owned())];
    let results = reply.tool_calls().zip(outcomes).map(|(call, outcome)| {
        let (id, tool) = (call.id.clone(), call.tool.clone());
        ToolResult { id, tool, outcome }
    });
    let results = results.collect();
    let mut after = reply.clone();
    after.parts.retain(|part| !matches!(part, llm_do::message::ReplyPart::ToolCall(_)));
    vec![
        Message::User(UserMessage { parts }),
        Message::Assistant(reply),
        Message::tool_results(results),
        Message::Assistant(after),
        Message::user("Go on."),
    ]
}

/// Text, calls and results are all there, and belong together.
#[track_caller]
fn check_said(seen: &SeenRequest, row: &Provider, case: &str) {
    assert!(seen.messages.iter().any(|message| message.text().contains(TEXT)), "{case}");
    let calls: Vec<_> = seen.messages.iter().flat_map(fake_llm::SeenMessage::calls).collect();
    let (paths, ids): (Vec<&Value>, Vec<&str>) =
        calls.iter().map(|(id, _, arguments)| (&arguments["path"], *id)).unzip();
    assert_eq!(paths, [&json!("a.png"), &json!("b.txt")], "{case}");
    let results: Vec<(&str, &str)> = seen.results().collect();
    assert_eq!(results.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids, "{case}");
    assert!(results[0].1.contains("seen") && results[1].1.contains("no such file"), "{case}: {results:?}");
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let fits = |id: &&str| match (row.protocol, row.quirks.call_ids) {
        (ProtocolKind::Anthropic | ProtocolKind::OpenAiResponses, _) | (_, CallIdForm::Word) => {
            id.len() <= 64 && id.bytes().all(is_word)
        }
        (_, CallIdForm::NineAlphanumeric) => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        (_, CallIdForm::Any) => true,
    };
    assert!(ids.iter().all(fits), "{case}: {ids:?}");
}

/// Whether `wanted` is somewhere in `value`, among other fields if need be.
fn holds(value: &Value, wanted: &Value) -> bool {
    let is_it = match (value, wanted) {
        (Value::Object(fields), Value::Object(wanted)) => {
            wanted.iter().all(|(name, value)| fields.get(name) == Some(value))
        }
        _ => value == wanted,
    };
    is_it
        || match value {
            Value::Object(fields) => fields.values().any(|value| holds(value, wanted)),
            Value::Array(values) => values.iter().any(|value| holds(value, wanted)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
}

async fn check_pair(writer: (&str, &str), reader: (&str, &str)) {
    let case = format!("{writer:?} → {reader:?}");
    let (wrote, reads) = (provider(writer.0).unwrap(), provider(reader.0).unwrap());
    let Written { document, returned } = written(wrote);
    let history = history(read(wrote, writer.1, &document));
    let fake = FakeLlm::start(FakeScript::new().otherwise(Said::text("Good.")).accept_foreign_history());
    let mut talk = exchange(reads.name, &fake).open(head_of(reader.0, reader.1, Form::Stream));
    // In the open tool loop, and after it.
    for messages in [3, 5] {
        let outcome = ask(talk.as_mut(), &history[..messages]).await;
        assert_eq!(outcome.reply.map(|reply| reply.text()), Ok("Good.".to_owned()), "{case}");
        let requests = fake.requests();
        let request = requests.last().unwrap();
        let sent = String::from_utf8(request.bytes.to_vec()).unwrap();
        check_said(request.seen.as_ref().unwrap(), reads, &case);
        for file in FILES {
            assert_eq!(sent.matches(file).count(), 1, "{case}: {file}");
        }
        if writer.0 == reader.0 {
            for wanted in &returned {
                assert!(holds(&request.body, wanted), "{case}: {wanted} did not come back in {sent}");
            }
        } else {
            assert!(!sent.contains(PRIVATE), "{case}: {sent}");
        }
    }
    assert_eq!(fake.violations(), [], "{case}");
}

#[tokio::test]
async fn every_provider_reads_what_every_other_one_wrote() {
    for writer in MODELS {
        for reader in MODELS {
            check_pair(writer, reader).await;
        }
    }
}
