//! A collector of our own: it takes what is sent over HTTP, and reads the protobuf by hand.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// A span as it arrived. Attributes are text, numbers as they are written.
#[derive(Clone, Debug, Default)]
pub struct SpanSeen {
    pub trace: String,
    pub id: String,
    pub parent: Option<String>,
    pub name: String,
    pub start: u64,
    pub end: u64,
    pub attributes: BTreeMap<String, String>,
    pub events: Vec<String>,
    pub links: Vec<String>,
    pub has_failed: bool,
}

/// What came so far.
#[derive(Default)]
pub struct Received {
    pub spans: Vec<SpanSeen>,
    /// Names of metrics, with how many points each had in the last request.
    pub metrics: BTreeMap<String, usize>,
    pub resource: BTreeMap<String, String>,
    /// Headers of each request, names in small letters.
    pub headers: Vec<HashMap<String, String>>,
    /// Statuses that are answered first.
    pub refusals: Vec<u16>,
}

/// Takes what is sent until the test ends.
pub struct Collector {
    port: u16,
    pub received: Arc<Mutex<Received>>,
}

impl Collector {
    pub fn start() -> Self {
        Self::refusing(&[])
    }

    /// The first requests are answered with these statuses.
    pub fn refusing(refusals: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Received { refusals: refusals.to_vec(), ..Received::default() }));
        let shared = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let received = Arc::clone(&shared);
                // A client that was killed sends half of a request.
                std::thread::spawn(move || while answer(&stream, &received).is_some() {});
            }
        });
        Self { port, received }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn spans(&self) -> Vec<SpanSeen> {
        self.received.lock().unwrap().spans.clone()
    }
}

/// One request; nothing at the end of the connection.
fn answer(stream: &TcpStream, received: &Mutex<Received>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let status = {
        let mut received = received.lock().unwrap();
        received.headers.push(headers);
        if received.refusals.is_empty() {
            match path.as_str() {
                "/v1/traces" => received.take_spans(&body),
                "/v1/metrics" => received.take_metrics(&body),
                other => panic!("`{other}` is no signal"),
            }
            200
        } else {
            received.refusals.remove(0)
        }
    };
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} x\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n").ok()
}

impl Received {
    fn take_spans(&mut self, body: &[u8]) {
        for of_resource in all(body, 1) {
            self.resource = all(bytes_of(of_resource, 1), 1).into_iter().map(pair).collect();
            for of_scope in all(of_resource, 2) {
                self.spans.extend(all(of_scope, 2).into_iter().map(span));
            }
        }
    }

    fn take_metrics(&mut self, body: &[u8]) {
        for of_resource in all(body, 1) {
            for of_scope in all(of_resource, 2) {
                for metric in all(of_scope, 2) {
                    let data = [7, 9].into_iter().flat_map(|field| all(metric, field));
                    let points = data.map(|data| all(data, 1).len()).sum();
                    self.metrics.insert(text(metric, 1), points);
                }
            }
        }
    }
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(taken(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                Field::Bytes(taken(&mut bytes, length))
            }
            5 => Field::Number(u64::from(u32::from_le_bytes(taken(&mut bytes, 4).try_into().unwrap()))),
            other => panic!("no field has the form {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn taken<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (first, rest) = bytes.split_at(count);
    *bytes = rest;
    first
}

fn all(message: &[u8], wanted: u64) -> Vec<&[u8]> {
    let of_field = |(field, value)| match value {
        Field::Bytes(bytes) if field == wanted => Some(bytes),
        Field::Bytes(_) | Field::Number(_) => None,
    };
    fields(message).into_iter().filter_map(of_field).collect()
}

fn bytes_of(message: &[u8], wanted: u64) -> &[u8] {
    all(message, wanted).last().copied().unwrap_or_default()
}

fn text(message: &[u8], wanted: u64) -> String {
    String::from_utf8(bytes_of(message, wanted).to_vec()).unwrap()
}

fn number(message: &[u8], wanted: u64) -> u64 {
    let of_field = |(field, value): &(u64, Field<'_>)| match value {
        Field::Number(number) if *field == wanted => Some(*number),
        Field::Number(_) | Field::Bytes(_) => None,
    };
    fields(message).iter().find_map(of_field).unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn pair(message: &[u8]) -> (String, String) {
    let value = bytes_of(message, 2);
    let shown = match fields(value).first() {
        Some((1, Field::Bytes(text))) => String::from_utf8(text.to_vec()).unwrap(),
        Some((3, Field::Number(number))) => number.to_string(),
        Some((4, Field::Number(bits))) => f64::from_bits(*bits).to_string(),
        Some((5, Field::Bytes(list))) => all(list, 1).into_iter().map(|any| text(any, 1)).collect::<Vec<_>>().join(","),
        _ => panic!("no value has this form"),
    };
    (text(message, 1), shown)
}

fn span(message: &[u8]) -> SpanSeen {
    SpanSeen {
        trace: hex(bytes_of(message, 1)),
        id: hex(bytes_of(message, 2)),
        parent: Some(hex(bytes_of(message, 4))).filter(|parent| !parent.is_empty()),
        name: text(message, 5),
        start: number(message, 7),
        end: number(message, 8),
        attributes: all(message, 9).into_iter().map(pair).collect(),
        events: all(message, 11).into_iter().map(|event| text(event, 2)).collect(),
        links: all(message, 13).into_iter().map(|link| hex(bytes_of(link, 1))).collect(),
        has_failed: number(bytes_of(message, 15), 3) == 2,
    }
}

/// Calls within each other, without their order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tree(pub String, pub Vec<Tree>);

/// The trees of spans beneath this one, requests left out.
pub fn spans_beneath(spans: &[SpanSeen], parent: Option<&str>) -> Vec<Tree> {
    let own = spans.iter().filter(|span| span.parent.as_deref() == parent && !span.name.starts_with("chat "));
    let mut trees: Vec<Tree> = own.map(|span| Tree(span.name.clone(), spans_beneath(spans, Some(&span.id)))).collect();
    trees.sort();
    trees
}

/// The tree of a result's trace.
pub fn trace_tree(call: &Value) -> Tree {
    let operation = match call["kind"].as_str().unwrap() {
        "agent" | "function" => "invoke_agent",
        _ => "execute_tool",
    };
    let mut calls: Vec<Tree> = call["calls"].as_array().unwrap().iter().map(trace_tree).collect();
    calls.sort();
    Tree(format!("{operation} {}", call["name"].as_str().unwrap()), calls)
}

/// One trace, in which each span but one has its parent, and none was sent twice.
pub fn check_whole(spans: &[SpanSeen]) {
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!(traces.len(), 1, "{traces:?}");
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    assert_eq!(ids.len(), spans.len(), "no span is sent twice: {spans:#?}");
    let orphans: Vec<&SpanSeen> =
        spans.iter().filter(|span| span.parent.as_deref().is_some_and(|parent| !ids.contains(parent))).collect();
    assert!(orphans.is_empty(), "{orphans:#?}");
    assert_eq!(spans.iter().filter(|span| span.parent.is_none()).count(), 1);
    assert!(spans.iter().all(|span| span.start <= span.end && span.start > 0), "{spans:#?}");
}
