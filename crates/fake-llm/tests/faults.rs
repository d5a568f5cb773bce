//! Each fault does to the wire what it says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod client;

use std::io::{Read, Write};
use std::time::{Duration, SystemTime};

use client::{
    ANTHROPIC, CHAT, End, GEMINI, RESPONSES, Response, body, connect, finish, read_until, request, say, stream,
    streaming,
};
use fake_llm::{
    At, Cut, FakeLlm, FakeProviderError, FakeReply, FakeScript, InjectedFault, LineEnd, On, RetryAfter, StallGate,
};
use serde_json::json;

const PATHS: [&str; 4] = [ANTHROPIC, CHAT, RESPONSES, GEMINI];

fn reply() -> FakeReply {
    FakeReply::text("grüße, 世界 and everybody").in_deltas(5)
}

/// A server whose first answer has the fault.
fn faulty(fault: InjectedFault) -> FakeLlm {
    FakeLlm::start(FakeScript::new().reply(reply()).fault(On::Request(1), fault))
}

fn whole(path: &str) -> Response {
    stream(&FakeLlm::start(FakeScript::new().reply(reply())), path, "hi")
}

/// The retry after a fault gets what the fault kept back.
#[track_caller]
fn check_retry(fake: &FakeLlm, path: &str) {
    assert_eq!(stream(fake, path, "hi").text(), whole(path).text().replace("00000001", "00000002"));
    fake.assert_finished();
}

#[test]
fn every_status_has_an_error_in_the_providers_shape() {
    for status in [400, 401, 403, 404, 408, 409, 413, 429, 500, 502, 503, 529] {
        for path in PATHS {
            let fake = faulty(InjectedFault::status(status));
            let response = stream(&fake, path, "hi");
            assert_eq!((response.status, response.end), (status, End::Complete));
            assert_eq!(response.header("content-type"), Some("application/json"));
            assert_eq!(response.json()["error"]["message"], format!("the script wants status {status}"));
            let word = if path == GEMINI { "status" } else { "type" };
            assert!(response.json()["error"][word].is_string());
            check_retry(&fake, path);
        }
    }
}

#[test]
fn a_failure_says_when_to_retry_and_why_it_failed() {
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    for (when, expected) in [
        (RetryAfter::Seconds(7), "7"),
        (RetryAfter::Date(date), "Sun, 06 Nov 1994 08:49:37 GMT"),
        (RetryAfter::Raw("soon".to_owned()), "soon"),
    ] {
        let failure = FakeProviderError::new(429, "slow down").with_code("too_fast").retry_after(when);
        let response = say(&faulty(InjectedFault::Failure(failure)), CHAT, "hi");
        assert_eq!(response.header("retry-after"), Some(expected));
        assert_eq!(response.json()["error"]["code"], "too_fast");
    }
}

#[test]
fn what_is_no_answer_of_a_provider_comes_as_it_is() {
    for path in PATHS {
        let fake = faulty(InjectedFault::HtmlPage { status: 502 });
        let page = stream(&fake, path, "hi");
        assert_eq!((page.status, page.header("content-type")), (502, Some("text/html; charset=utf-8")));
        assert!(page.text().starts_with("<html>"));
        check_retry(&fake, path);

        let fake = faulty(InjectedFault::EmptyBody);
        let empty = stream(&fake, path, "hi");
        assert_eq!((empty.status, empty.body().len(), empty.end), (200, 0, End::Complete));
        check_retry(&fake, path);

        let fake = faulty(InjectedFault::ContentType("text/plain".to_owned()));
        let plain = stream(&fake, path, "hi");
        assert_eq!((plain.header("content-type"), plain.text()), (Some("text/plain"), whole(path).text()));
        check_retry(&fake, path);
    }
}

#[test]
fn malformed_json_is_a_broken_document_or_one_broken_event() {
    for path in PATHS {
        let document = say(&faulty(InjectedFault::MalformedJson), path, "hi");
        assert_eq!(document.end, End::Complete);
        assert!(serde_json::from_slice::<serde_json::Value>(&document.body()).is_err());

        let text = stream(&faulty(InjectedFault::MalformedJson), path, "hi").text();
        let broken: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|line| *line != "[DONE]" && serde_json::from_str::<serde_json::Value>(line).is_err())
            .collect();
        assert_eq!(broken, ["{\"broken\": [1, 2"]);
    }
}

#[test]
fn truncated_utf8_ends_inside_a_character() {
    for path in PATHS {
        for response in [
            say(&faulty(InjectedFault::TruncatedUtf8), path, "x"),
            stream(&faulty(InjectedFault::TruncatedUtf8), path, "x"),
        ] {
            let error = std::str::from_utf8(&response.body()).unwrap_err();
            assert_eq!((error.error_len(), response.end), (None, End::Complete));
        }
    }
    let ascii =
        FakeLlm::start(FakeScript::new().reply(FakeReply::text("a")).fault(On::Every, InjectedFault::TruncatedUtf8));
    assert_eq!(std::str::from_utf8(&say(&ascii, CHAT, "x").body()).unwrap_err().error_len(), None);
}

#[test]
fn a_huge_body_is_as_long_as_it_says_and_one_line() {
    for bytes in [0, 5, 1_000_000] {
        let response = stream(&faulty(InjectedFault::HugeBody { bytes }), ANTHROPIC, "hi");
        assert_eq!((response.body().len(), response.end), (bytes, End::Complete));
        assert!(!response.body().contains(&b'\n'));
        assert_eq!(say(&faulty(InjectedFault::HugeBody { bytes }), ANTHROPIC, "hi").body().len(), bytes);
    }
}

#[test]
fn an_error_event_takes_the_place_of_the_rest() {
    for path in PATHS {
        let fake = faulty(InjectedFault::ErrorEvent { at: At::Percent(50) });
        let response = stream(&fake, path, "hi");
        let events = response.events();
        let complete = whole(path);
        assert_eq!(response.pieces.len(), complete.pieces.len() / 2 + 1);
        assert_eq!(events[..events.len() - 1], complete.events()[..events.len() - 1]);
        let last = events.last().unwrap();
        let error = last.get("error").unwrap_or(last); // the event of Responses is the error itself
        assert_eq!(error["message"], "overloaded in the middle of an answer");
        check_retry(&fake, path);
        let document = say(&faulty(InjectedFault::ErrorEvent { at: At::Byte(0) }), path, "hi");
        assert_eq!((document.status, document.json()["error"]["message"].is_string()), (200, true));
    }
}

#[test]
fn comments_line_ends_and_chunks_change_nothing_that_is_said() {
    let seeds = [1, 2, 3];
    for path in PATHS {
        let expected = whole(path);
        for (end, text) in [(None, "\n"), (Some(LineEnd::Crlf), "\r\n"), (Some(LineEnd::Cr), "\r")] {
            for seed in seeds {
                let mut script = FakeScript::new().reply(reply()).fault(On::Every, InjectedFault::Rechunk { seed });
                script = script.fault(On::Every, InjectedFault::Comments);
                if let Some(end) = end {
                    script = script.fault(On::Every, InjectedFault::LineEnds(end));
                }
                let fake = FakeLlm::start(script);
                let response = stream(&fake, path, "hi");
                check_pieces(&response);
                let mut plain = response.text().replace(text, "\n").replace(": keep-alive\n\n", "");
                plain = plain.replace("event: ping\ndata: {\"type\": \"ping\"}\n\n", "");
                assert_eq!(plain, expected.text());
                assert_eq!(response.text().matches(": keep-alive").count(), expected.pieces.len());
                fake.assert_finished();
            }
        }
    }
}

/// No piece holds a whole multi-byte character or a whole CR LF.
fn check_pieces(response: &Response) {
    for piece in &response.pieces {
        assert!(piece.utf8_chunks().all(|chunk| chunk.valid().is_ascii()), "{piece:?}");
        assert!(!piece.windows(2).any(|pair| pair == b"\r\n"), "{piece:?}");
    }
    assert!(response.pieces.len() > 20, "{} pieces", response.pieces.len());
}

#[test]
fn documents_can_be_rechunked_too() {
    let response = say(&faulty(InjectedFault::Rechunk { seed: 4 }), CHAT, "hi");
    assert_eq!((response.header("transfer-encoding"), response.header("content-length")), (Some("chunked"), None));
    check_pieces(&response);
    assert_eq!(response.json()["choices"][0]["message"]["content"], "grüße, 世界 and everybody");
}

#[test]
fn a_cut_ends_the_answer_in_the_way_it_says() {
    for path in PATHS {
        let total = whole(path).body().len();
        for (at, expected) in [(At::Percent(0), 0), (At::Percent(40), total * 40 / 100), (At::Byte(77), 77)] {
            for (how, end) in [(Cut::Eof, End::Early), (Cut::Reset, End::Reset), (Cut::Clean, End::Complete)] {
                let fake = faulty(InjectedFault::cut(at, how));
                let response = stream(&fake, path, "hi");
                assert_eq!(
                    (response.status, response.body().len(), response.end),
                    (200, expected, end),
                    "{at:?} {how:?}"
                );
                check_retry(&fake, path);
            }
        }
        for (how, end) in [(Cut::Eof, End::Early), (Cut::Reset, End::Reset), (Cut::Clean, End::Complete)] {
            let document = say(&faulty(InjectedFault::cut(At::Percent(50), how)), path, "hi");
            assert_eq!(document.end, end, "{how:?}");
            assert!(serde_json::from_slice::<serde_json::Value>(&document.body()).is_err());
        }
    }
}

#[test]
fn a_cut_after_everything_uses_the_reply_up() {
    let fake = faulty(InjectedFault::cut(At::Percent(100), Cut::Eof));
    let response = stream(&fake, ANTHROPIC, "hi");
    assert_eq!((response.text(), response.end), (whole(ANTHROPIC).text(), End::Early));
    fake.assert_finished();
}

#[test]
fn a_stall_before_the_head_holds_everything_back() {
    let gate = StallGate::new();
    let fake = faulty(InjectedFault::StallBeforeHead(gate.clone()));
    let mut wire = connect(&fake);
    wire.write_all(request(CHAT, &body(CHAT, "hi", true).to_string(), true).as_bytes()).unwrap();
    gate.wait_until_reached(1);
    wire.set_nonblocking(true).unwrap();
    assert_eq!(wire.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    wire.set_nonblocking(false).unwrap();
    gate.release();
    assert_eq!(finish(&mut wire).text(), whole(CHAT).text());
    fake.assert_finished();
}

#[test]
fn a_stall_in_the_middle_goes_on_when_released() {
    for path in PATHS {
        let gate = StallGate::new();
        let fake = faulty(InjectedFault::Stall { at: At::Byte(100), gate: gate.clone() });
        let mut wire = connect(&fake);
        wire.write_all(request(&streaming(path), &body(path, "hi", true).to_string(), true).as_bytes()).unwrap();
        let head = read_until(&mut wire, "\r\n\r\n");
        gate.wait_until_reached(1);
        gate.release();
        let mut rest = head.into_bytes();
        wire.read_to_end(&mut rest).unwrap();
        let expected = whole(path).text();
        let text = String::from_utf8(rest).unwrap();
        let last = expected.lines().rev().find(|line| !line.is_empty()).unwrap();
        assert!(text.contains(last) && text.ends_with("0\r\n\r\n"), "{text}");
        fake.assert_finished();
    }
}

#[test]
fn a_client_that_leaves_a_stall_is_noticed_and_its_retry_is_served() {
    for fault in [InjectedFault::StallBeforeHead, |gate| InjectedFault::Stall { at: At::Percent(50), gate }] {
        let gate = StallGate::new();
        let fake = faulty(fault(gate.clone()));
        let mut wire = connect(&fake);
        wire.write_all(request(CHAT, &body(CHAT, "hi", true).to_string(), true).as_bytes()).unwrap();
        gate.wait_until_reached(1);
        drop(wire);
        gate.wait_until_left(1);
        check_retry(&fake, CHAT);
    }
}

#[test]
fn faults_befall_the_requests_they_are_meant_for() {
    let script = FakeScript::new().reply(FakeReply::text("a")).reply(FakeReply::text("b"));
    let fake = FakeLlm::start(
        script.fault(On::First(2), InjectedFault::status(500)).fault(On::Request(4), InjectedFault::status(429)),
    );
    let statuses: Vec<u16> = (0..5).map(|_| say(&fake, CHAT, "hi").status).collect();
    assert_eq!(statuses, [500, 500, 200, 429, 200]);
    fake.assert_finished();
}

#[test]
fn calls_of_an_answer_that_was_cut_are_unknown() {
    let reply = FakeReply::calls([fake_llm::FakeCall::new("t", json!({})).with_id("a")]);
    let fake = FakeLlm::start(
        FakeScript::new().reply(reply).fault(On::First(1), InjectedFault::cut(At::Percent(99), Cut::Eof)),
    );
    stream(&fake, CHAT, "hi");
    let call = json!({"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}});
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "r"},
    ]);
    assert_eq!(client::ask(&fake, CHAT, &json!({"model": "m", "messages": messages})).status, 400);
    assert_eq!(fake.violations()[0].reason, "tool call \"a\" in the history was never served");
}
