//! Answers from a provider gone wrong, and whatever else comes from a model: whatever the bytes are, decoding neither
//! panics nor depends on how they were split. The functions that are driven here the fuzzer drives too.

use llm_do::model::fuzz::{self, read_document, read_stream};
use llm_do::model::provider::ProtocolKind;
use llm_do::tools;
use proptest::prelude::*;
use proptest::sample::Index;

const PROTOCOLS: [ProtocolKind; 4] =
    [ProtocolKind::Anthropic, ProtocolKind::OpenAiResponses, ProtocolKind::OpenAiChat, ProtocolKind::Gemini];

/// What the fuzzer has a target for.
const TARGETS: [fn(&[u8]); 10] = [
    fuzz::frames,
    fuzz::anthropic,
    fuzz::openai_responses,
    fuzz::openai_chat,
    fuzz::gemini,
    fuzz::script,
    tools::fuzz::arguments,
    tools::fuzz::command,
    tools::fuzz::paths,
    tools::fuzz::server,
];

/// Words of all protocols, put together like JSON more often than chance would have it.
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
        "\"output\":[{",
        "\"response\":{",
        "\"output_index\":",
        "\"item\":{",
        "\"status\":",
        "\"summary\":[{",
        "\"encrypted_content\":",
        "\"message\"",
        "\"reasoning\"",
        "\"function_call\"",
        "\"web_search_call\"",
        "\"response.output_item.done\"",
        "\"response.completed\"",
        "\"stop\"",
        "\"candidates\":[{",
        "\"parts\":[{",
        "\"thought\":",
        "\"thoughtSignature\":",
        "\"functionCall\":{",
        "\"args\":",
        "\"executableCode\":",
        "\"finishReason\":",
        "\"groundingMetadata\":",
        "\"promptFeedback\":{",
        "\"blockReason\":",
        "\"usageMetadata\":{",
        "\"promptTokenCount\":",
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
        r#"{"type":"response.output_text.delta","output_index":0,"delta":"é\n"}"#,
        r#"{"type":"response.output_text.delta","output_index":18446744073709551615,"delta":"x"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":1,"delta":"h"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"é"},{"type":"refusal"},{}]}}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"reasoning","summary":null,"content":[{}]}}"#,
        r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"x","arguments":{"k":[]}}}"#,
        r#"{"type":"response.output_item.done","output_index":3,"item":{"type":"image_generation_call", "result":"x"}}"#,
        r#"{"type":"response.output_item.done","item":{"type":7,"content":"x"}}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[{},{"type":"message"},{"type":"function_call"}]}}"#,
        r#"{"type":"response.incomplete","response":{"status":"incomplete","usage":{"input_tokens":18446744073709551615}}}"#,
        r#"{"type":"response.failed","response":null}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"é"},{"text":"\n","thought":true},{"text":"","thoughtSignature":"s"}]}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":[]},"thoughtSignature":null},{}]},"index":0}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"executableCode":null},{"toolCall":{"toolType":null}},{"x":[{}]}]}}]}"#,
        r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"other"}]}},{"groundingMetadata":{"groundingChunks":0}}]}"#,
        r#"{"candidates":[{"finishReason":"STOP","urlContextMetadata":{"urlMetadata":[]},"citationMetadata":7}],"usageMetadata":{"promptTokenCount":18446744073709551615,"toolUsePromptTokenCount":1}}"#,
        r#"{"candidates":[{"finishReason":"?"}],"promptFeedback":{"blockReason":"b"}}"#,
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

/// Pieces of scripts, put together like YAML more often than chance would have it.
fn script_words() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "- ",
        "\n",
        "\n  ",
        "{",
        "}",
        "[",
        "]",
        ": ",
        ", ",
        "agent",
        "heard",
        "tool",
        "round",
        "say",
        "call",
        "think",
        "usage",
        "fail",
        "wait",
        "input",
        "1",
        "-1",
        "harbour",
        "'{{ heard }}'",
        "\"{{ result\"",
        "{% for x in heard %}",
        "&a",
        "*a",
        "!!str",
        "? ",
        "# ",
        "|\n",
        "\u{202e}",
        "é😀",
        "\t",
        "---",
        "read_file",
        "null",
    ];
    prop::collection::vec(prop::sample::select(WORDS), 0..40).prop_map(|words| words.concat())
}

/// Pieces of arguments.
fn argument_words() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"path\":",
        "\"content\":",
        "\"old\":",
        "\"new\":",
        "\"offset\":",
        "\"max_chars\":",
        "\"pattern\":",
        "\"topic\":",
        "\"input\":",
        "\"attachments\":",
        "\"a\"",
        "\"../x\"",
        "\"/etc/passwd\"",
        "\"src/lib.rs\"",
        "\"\\u0000\"",
        "\"\\ud83d\"",
        "\"**/{a,b}*[\"",
        "1e999",
        "-0",
        "0",
        "18446744073709551616",
        "1.0",
        "true",
        "null",
        " ",
        "\"é\"",
    ];
    let words = prop::collection::vec(prop::sample::select(WORDS), 0..12).prop_map(|words| words.concat());
    let member = (prop::sample::select(WORDS), prop::sample::select(WORDS));
    let members = prop::collection::vec(member.prop_map(|(key, value)| format!("{key}{value}")), 0..5);
    prop_oneof![words, members.prop_map(|members| format!("{{{}}}", members.join(",")))]
}

proptest! {
    #[test]
    fn any_bytes_hold_for_every_target(bytes: Vec<u8>, words in wire_words()) {
        for target in TARGETS {
            target(&bytes);
            target(&words);
        }
    }

    #[test]
    fn events_hold_for_every_target(bytes in wire_stream()) {
        for target in TARGETS {
            target(&bytes);
        }
    }

    #[test]
    fn splitting_never_changes_what_is_understood(bytes in wire_stream(), cuts: Vec<Index>) {
        for protocol in PROTOCOLS {
            prop_assert_eq!(read_stream(protocol, &split(&bytes, &cuts)), read_stream(protocol, &[&bytes]));
        }
    }

    #[test]
    fn any_script_is_played_or_reported_on(text in script_words()) {
        fuzz::script(text.as_bytes());
        fuzz::script(format!("- agent: fuzzed\n  say: {text}\n").as_bytes());
    }

    #[test]
    fn any_path_leads_where_the_system_says_or_nowhere(parts in prop::collection::vec(
        prop::sample::select(vec!["a", "b", "f", "l", "u", "o", "m", "d2", "c", "..", ".", "", ".env", "x", "root", "outside"]), 0..9)) {
        tools::fuzz::paths(parts.join("/").as_bytes());
    }

    #[test]
    fn any_arguments_are_judged_or_refused(text in argument_words()) {
        tools::fuzz::arguments(text.as_bytes());
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let read = |text: &str| PROTOCOLS.iter().for_each(|protocol| read_document(*protocol, text.as_bytes()));
    for open in [
        "[",
        "{\"content\":",
        "{\"output\":[",
        "{\"candidates\":[{\"content\":{\"parts\":[{\"x\":",
        "{\"choices\":[{\"message\":{\"content\":[{\"thinking\":[",
    ] {
        read(&open.repeat(100_000));
    }
    let pieces = "[{\"thinking\":".repeat(100_000);
    read(&format!("{{\"choices\":[{{\"message\":{{\"content\":{pieces}"));
    for target in TARGETS {
        for open in ["[", "{\"a\":", "- ", "? "] {
            target(open.repeat(20_000).as_bytes());
        }
    }
}
