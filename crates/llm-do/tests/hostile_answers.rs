//! Answers from a provider gone wrong: whatever the bytes are, decoding neither panics nor depends on how they were
//! split. `read_stream` and `read_document` are plain functions over bytes, so a fuzzer can run them too.

use llm_do::message::Reply;
use llm_do::model::frames::EventStream;
use llm_do::model::name::ModelName;
use llm_do::model::protocol::{DecodeError, Protocol};
use llm_do::model::provider::PROVIDERS;
use llm_do::model::{Head, ModelSettings};
use proptest::prelude::*;
use proptest::sample::Index;

fn head(provider: &str) -> Head {
    Head {
        agent: "test".into(),
        model: ModelName { provider: provider.into(), model: "m".into() },
        instructions: String::new(),
        tools: Vec::new(),
        server_tools: Vec::new(),
        settings: ModelSettings::default(),
        output: None,
        stream: true,
    }
}

/// Providers that stand for all rows with their quirks.
fn translated() -> impl Iterator<Item = (&'static dyn Protocol, &'static llm_do::model::provider::Provider)> {
    PROVIDERS.iter().filter_map(|row| Some((row.protocol.protocol()?, row)))
}

fn read_stream(chunks: &[&[u8]]) -> Vec<(Result<Reply, DecodeError>, usize)> {
    let read = |(protocol, row): (&dyn Protocol, &llm_do::model::provider::Provider)| {
        let mut decoder = protocol.decoder(&head(row.name), &row.quirks, 0);
        let mut frames = EventStream::new(1000);
        let mut told = 0;
        let pushed =
            chunks.iter().try_for_each(|chunk| frames.push(chunk, |frame| decoder.frame(frame, &mut |_| told += 1)));
        (pushed.and_then(|()| decoder.finish()), told)
    };
    translated().map(read).collect()
}

fn read_document(body: &[u8]) {
    for (protocol, row) in translated() {
        let mut decoder = protocol.decoder(&head(row.name), &row.quirks, 0);
        let read = decoder.document(body, &mut |_| {});
        let _ = read.and_then(|()| decoder.finish());
        let _ = protocol.fault(400, body);
    }
}

/// Words of both protocols, put together like JSON more often than chance would have it.
fn wire_words() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "null",
        "true",
        "0",
        "1",
        "-1",
        "1e999",
        "18446744073709551616",
        "\"\"",
        "\"x\"",
        "\"\\ud83d\"",
        "\"\\u0000\"",
        "\"type\":",
        "\"index\":",
        "\"delta\":",
        "\"content\":",
        "\"text\":",
        "\"thinking\":",
        "\"choices\":[{",
        "\"message\":{",
        "\"tool_calls\":[{",
        "\"function\":{",
        "\"arguments\":",
        "\"id\":",
        "\"name\":",
        "\"usage\":{",
        "\"prompt_tokens\":",
        "\"input_tokens\":",
        "\"error\":",
        "\"reasoning_details\":[{",
        "\"content_block\":{",
        "\"tool_use\"",
        "\"server_tool_use\"",
        "\"partial_json\":",
        "\"signature\":",
        "\"citation\":",
        "\"stop_reason\":",
        "\"finish_reason\":",
        "\"stop\"",
        "[DONE]",
        "<think>",
        "</think>",
        "é€😀",
    ];
    let word = prop_oneof![
        8 => prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

/// Frames of valid events with hostile ones among them.
fn wire_stream() -> impl Strategy<Value = Vec<u8>> {
    const EVENTS: &[&str] = &[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"é"}}"#,
        r#"{"type":"content_block_start","index":18446744073709551615,"content_block":{"type":"tool_use","input":null}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"s","name":"n"}}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"x_tool_result","tool_use_id":"s"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"é\n"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"partial_json":"{]"}}"#,
        r#"{"type":"content_block_delta","index":18446744073709551615,"delta":{"partial_json":"{"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":18446744073709551615}}"#,
        r#"{"type":"message_stop"}"#,
        r#"{"choices":[{"delta":{"content":"<think>a</th"}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"thinking":[{"text":"b"}]},{"text":"ink>"}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":9,"id":"x","function":{"name":"f","arguments":"{"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":{"k":[]}}},{}]}}]}"#,
        r#"{"choices":[{"message":{"content":"c","tool_calls":[{}]},"finish_reason":"length"}],"usage":{}}"#,
        "[DONE]",
    ];
    let event = prop_oneof![
        6 => prop::sample::select(EVENTS).prop_map(|event| event.as_bytes().to_vec()),
        1 => wire_words(),
    ];
    prop::collection::vec(event, 0..30).prop_map(|events| {
        events.iter().flat_map(|event| [b"data: ".as_slice(), event, b"\r\n\r\n"].concat()).collect()
    })
}

fn split<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_an_error(bytes: Vec<u8>, words in wire_words()) {
        read_document(&bytes);
        read_document(&words);
        read_stream(&[&bytes]);
    }

    #[test]
    fn splitting_never_changes_what_is_understood(bytes in wire_stream(), cuts: Vec<Index>) {
        prop_assert_eq!(read_stream(&split(&bytes, &cuts)), read_stream(&[&bytes]));
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    for open in ["[", "{\"content\":", "{\"choices\":[{\"message\":{\"content\":[{\"thinking\":["] {
        read_document(open.repeat(100_000).as_bytes());
    }
    let pieces = "[{\"thinking\":".repeat(100_000);
    read_document(format!("{{\"choices\":[{{\"message\":{{\"content\":{pieces}").as_bytes());
}
