//! What happens in a run as server-sent events: of a run of this process all that is told, of another one what its record says
//! as it grows.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use llm_do::records::JournalContents;
use llm_do::store::layout::RunId;
use llm_do_launch::growing::{GrowingRun, RunNews};
use llm_do_launch::stored_runs::owned;
use serde_json::json;

use crate::house::House;
use crate::own_runs::{OwnRun, ToldCount};

/// A silent connection says so often that it is there.
const SILENCE: Duration = Duration::from_secs(15);
/// So often a record is looked at, as whoever follows it at a terminal does.
const LOOK: Duration = Duration::from_millis(100);
/// A long record takes long to read: most of the time is left to others.
const REST: u32 = 4;

/// The events of a run from a point on.
pub fn events(house: &Arc<House>, id: RunId, headers: &HeaderMap) -> Response {
    match house.own.get(&id) {
        Some(run) => answer(own(run, next_wanted(headers, "o"))),
        None => answer(of_record(Arc::clone(house), id)),
    }
}

/// Behind the last one that the client has heard.
fn next_wanted(headers: &HeaderMap, of: &str) -> u64 {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let number = last.and_then(|id| id.strip_prefix(of)).and_then(|id| id.parse::<u64>().ok());
    number.map_or(0, |number| number.saturating_add(1))
}

/// An answer that goes on as long as the stream does.
pub fn answer(events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    let mut response = Body::from_stream(events).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// One event. JSON has no line break outside of its texts, and none in them.
pub fn frame(id: Option<&str>, name: &str, data: &str) -> Bytes {
    let mut text = String::with_capacity(data.len() + 64);
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    let _ = write!(text, "event: {name}\ndata: {data}\n\n");
    Bytes::from(text)
}

fn own(run: Arc<OwnRun>, from: u64) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let hears = run.hears();
    let first = frame(None, "source", r#"{"live":true}"#);
    unfold((run, hears, from, Some(first)), async |(run, mut hears, next, first)| {
        if let Some(first) = first {
            return Some((Ok(first), (run, hears, next, None)));
        }
        loop {
            let ToldCount { is_over, .. } = *hears.borrow_and_update();
            let lines = run.told_from(next);
            if let Some(last) = lines.last() {
                let after = last.number + 1;
                let frames: Vec<Bytes> =
                    lines.iter().map(|line| frame(Some(&format!("o{}", line.number)), line.name, &line.data)).collect();
                return Some((Ok(Bytes::from(frames.concat())), (run, hears, after, None)));
            }
            if is_over {
                return None;
            }
            match tokio::time::timeout(SILENCE, hears.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some((Ok(Bytes::from_static(b": still here\n\n")), (run, hears, next, None))),
            }
        }
    })
}

/// What another process does.
struct Follower {
    house: Arc<House>,
    id: RunId,
    told: GrowingRun,
    seen: Option<u64>,
    ready: VecDeque<Bytes>,
    said: Instant,
    /// How long others come first, after what was read is told.
    rest: Duration,
    is_over: bool,
}

fn of_record(house: Arc<House>, id: RunId) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let ready = VecDeque::from([frame(None, "source", r#"{"live":false}"#)]);
    let told = GrowingRun::default();
    let follower =
        Follower { house, id, told, seen: None, ready, said: Instant::now(), rest: Duration::ZERO, is_over: false };
    unfold(follower, async |mut follower| {
        loop {
            if let Some(bytes) = follower.ready.pop_front() {
                follower.said = Instant::now();
                return Some((Ok(bytes), follower));
            }
            if follower.is_over {
                return None;
            }
            tokio::time::sleep(std::mem::replace(&mut follower.rest, LOOK)).await;
            follower = look(follower).await?;
            if follower.ready.is_empty() && follower.said.elapsed() > SILENCE {
                follower.ready.push_back(Bytes::from_static(b": still here\n\n"));
            }
        }
    })
}

/// Looks at the record once, if it has grown. Reading it is work of its own: the server answers others meanwhile.
async fn look(mut follower: Follower) -> Option<Follower> {
    let began = Instant::now();
    // Asked before the record is read: what it says then was all that there will be.
    let is_running = follower.house.store.is_running(&follower.id).ok()?;
    let journal = follower.house.store.layout().journal(&follower.id);
    let length = std::fs::metadata(journal).ok()?.len();
    if follower.seen == Some(length) && is_running {
        return Some(follower);
    }
    follower.seen = Some(length);
    let mut follower = tokio::task::spawn_blocking(move || {
        let contents = follower.house.contents(&follower.id).ok()?;
        follower.tell(&contents, is_running);
        Some(follower)
    })
    .await
    .ok()??;
    follower.is_over = !is_running;
    follower.rest = LOOK.max(began.elapsed() * REST);
    Some(follower)
}

impl Follower {
    fn tell(&mut self, contents: &JournalContents, is_running: bool) {
        let Self { told, ready, id, seen, .. } = self;
        let number = format!("r{}", seen.unwrap_or_default());
        let mut say =
            |name: &str, data: &serde_json::Value| ready.push_back(frame(Some(&number), name, &data.to_string()));
        told.news(contents, id.as_str(), &mut |news| match news {
            RunNews::Began { call, path } => say("call", &json!({"path": path, "call": call, "began": true})),
            RunNews::Ended { call, path } => say("call", &json!({"path": path, "call": call})),
            RunNews::Answered { turn, output } => {
                say("answer", &json!({"turn": turn.key, "output": output.to_json()}));
            }
            RunNews::Asked(pending) => say("question", &json!({"question": pending.id})),
        });
        say("grown", &json!({"bytes": seen}));
        if !is_running {
            let listed = self.house.store.listed(&llm_do_launch::kept_runs::project_of).ok();
            let line = listed.as_ref().and_then(|text| text.line_of(&self.id)).map(owned);
            let end = json!({"run": self.id, "state": line.map(|line| line.state)});
            self.ready.push_back(frame(None, "end", &end.to_string()));
        }
    }
}
