//! Recordings played over HTTP, plain and through everything that may happen to an answer on its way.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cassette::{cassettes, folders, notice};
use crate::player::{Fault, Player, Tally, http, tape_of};
use crate::replay::Replay;

/// Plays everything with the server's rules in force: none of them may be broken, and all must have been served.
async fn play(options: &[&str], fault: Fault) -> Option<(Tally, Arc<Replay>)> {
    let cassettes = cassettes();
    if cassettes.is_empty() {
        return None;
    }
    let options = [&["--strict", "--each"], options].concat();
    let recordings: Vec<_> = folders().into_iter().filter(|folder| folder.is_dir()).collect();
    let server = Arc::new(Replay::start(&recordings, &options)?);
    let player = Player { server: Arc::clone(&server), idle_timeout: Duration::from_mins(1), fault };
    let tally = player.play_all(cassettes).await;
    let status = server.status(&http(Duration::from_mins(1))).await;
    assert_eq!(status["violations"], json!([]), "{options:?}");
    for (name, progress) in status["cassettes"].as_object().unwrap() {
        let left = tally.left.get(name).copied().unwrap_or(0);
        assert_eq!(progress["model_calls_left"], left, "{name} {options:?}");
    }
    Some((tally, server))
}

#[tokio::test]
async fn every_cassette_is_played_as_recorded() {
    let Some((tally, server)) = play(&[], Fault::Harmless).await else { return };
    report(&tally);
    let sent = server.log();
    for (cassette, exchange, traces) in &tally.traces {
        let is_it = |entry: &&Value| entry["cassette"] == **cassette && entry["exchange"] == *exchange;
        let body = sent.iter().find(is_it).unwrap()["body"].to_string();
        for trace in traces {
            assert!(body.contains(trace), "{cassette} {exchange} was asked without {trace:.200}");
        }
    }
}

fn report(tally: &Tally) {
    let list = |counts: &std::collections::BTreeMap<String, usize>| {
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        counts.join(", ")
    };
    notice(&format!("recorded responses played: {}", list(&tally.played)));
    if !tally.not_built.is_empty() {
        notice(&format!("recorded responses of protocols that are not built yet: {}", list(&tally.not_built)));
    }
    for (reason, count) in &tally.inexpressible {
        notice(&format!("not asked as recorded, {count} times: {reason}"));
    }
}

#[tokio::test]
async fn pieces_of_any_size_change_nothing() {
    play(&["--chaos", "--seed", "1"], Fault::Harmless).await;
}

#[tokio::test]
async fn single_bytes_change_nothing() {
    play(&["--chaos", "--seed", "2", "--max-chunk", "1"], Fault::Harmless).await;
}

#[tokio::test]
async fn carriage_returns_before_line_feeds_and_comments_change_nothing() {
    play(&["--newline", "crlf", "--comments"], Fault::Harmless).await;
}

#[tokio::test]
async fn carriage_returns_alone_and_comments_change_nothing() {
    play(&["--newline", "cr", "--comments"], Fault::Harmless).await;
}

#[tokio::test]
async fn a_rate_limit_is_waited_for() {
    play(&["--status", "429", "--retry-after", "0"], Fault::RefusedFirst).await;
}

#[tokio::test]
async fn a_server_error_is_tried_again() {
    play(&["--status", "500", "--retry-after", ""], Fault::RefusedFirst).await;
}

#[tokio::test]
async fn an_overload_is_tried_again() {
    play(&["--status", "529", "--retry-after", ""], Fault::RefusedFirst).await;
}

/// Plays everything, each exchange from a recording of its own. The rules that look back at what was served before
/// cannot be in force then; the others are.
async fn play_broken(options: &[&str], idle_timeout: Duration, recordings: &TempDir) {
    let cassettes = cassettes();
    if cassettes.is_empty() {
        return;
    }
    let options = [&["--loop", "--each"], options].concat();
    let Some(server) = Replay::start(&[recordings.path().to_owned()], &options).map(Arc::new) else { return };
    let player = Player { server: Arc::clone(&server), idle_timeout, fault: Fault::BrokenFirst };
    let tally = player.play_all(cassettes).await;
    assert!(!tally.played.is_empty());
    let status = server.status(&http(Duration::from_mins(1))).await;
    let broken = status["violations"].as_array().unwrap().iter().filter(|rule| rule["rule"] != "thinking_changed");
    assert_eq!(broken.collect::<Vec<_>>(), Vec::<&Value>::new(), "{options:?}");
}

/// Each exchange as a cassette.
fn single_exchanges() -> TempDir {
    let recordings = TempDir::new().unwrap();
    for cassette in cassettes() {
        for recorded in cassette.recorded() {
            let name = tape_of(recorded.cassette, recorded.index);
            let exchange = json!({"request": recorded.request, "response": recorded.response});
            let tape = json!({"name": name, "exchanges": [exchange]});
            std::fs::write(recordings.path().join(format!("{name}.json")), tape.to_string()).unwrap();
        }
    }
    recordings
}

async fn play_cut_at_every_tenth(mode: &str) {
    let recordings = single_exchanges();
    for tenth in 0..10 {
        let at = format!("0.{tenth}");
        play_broken(&["--cut", &at, "--cut-mode", mode], Duration::from_mins(1), &recordings).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_closed_too_early_is_no_end_of_an_answer() {
    play_cut_at_every_tenth("eof").await;
}

#[tokio::test]
async fn a_connection_that_is_reset_is_no_end_of_an_answer() {
    play_cut_at_every_tenth("reset").await;
}

#[tokio::test]
async fn a_stream_that_only_seems_complete_is_no_end_of_an_answer() {
    play_cut_at_every_tenth("clean").await;
}

#[tokio::test]
async fn an_answer_that_stalls_is_given_up_and_asked_for_again() {
    // The stall outlasts the test; what is measured is that nobody waits for its end.
    play_broken(&["--stall", "3600"], Duration::from_millis(300), &single_exchanges()).await;
}
