//! The smallest HTTP client that shows what was on the wire.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::io::{self, Read, Write};
use std::net::TcpStream;

use fake_llm::FakeLlm;
use serde_json::{Value, json};

pub const ANTHROPIC: &str = "/v1/messages";
pub const CHAT: &str = "/v1/chat/completions";

/// An answer as it came: how far, in which pieces, and how it ended.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    /// The chunks of a chunked body; one piece otherwise.
    pub pieces: Vec<Vec<u8>>,
    pub end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As HTTP wants it.
    Complete,
    /// The connection closed too early.
    Early,
    Reset,
}

impl Response {
    pub fn body(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.split("\r\n").filter_map(|line| line.split_once(": "));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The data of each event, the lines of which end in `\n`.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

/// A user's words in the body of each protocol.
pub fn body(path: &str, text: &str, stream: bool) -> Value {
    let message = json!({"role": "user", "content": text});
    match path {
        ANTHROPIC => json!({"model": "m", "max_tokens": 100, "messages": [message], "stream": stream}),
        _ => json!({"model": "m", "messages": [message], "stream": stream}),
    }
}

pub fn request(path: &str, body: &str, last: bool) -> String {
    let key = match path {
        ANTHROPIC => "x-api-key: k\r\nanthropic-version: 2023-06-01",
        _ => "authorization: Bearer k",
    };
    request_with(path, &format!("content-type: application/json\r\n{key}"), body, last)
}

pub fn request_with(path: &str, headers: &str, body: &str, last: bool) -> String {
    let length = body.len();
    let connection = if last { "close" } else { "keep-alive" };
    format!("POST {path} HTTP/1.1\r\n{headers}\r\nconnection: {connection}\r\ncontent-length: {length}\r\n\r\n{body}")
}

pub fn connect(fake: &FakeLlm) -> TcpStream {
    TcpStream::connect(("127.0.0.1", fake.port())).unwrap()
}

/// Sends one request on a connection of its own and reads until the server closes it.
pub fn ask(fake: &FakeLlm, path: &str, body: &Value) -> Response {
    exchange(&mut connect(fake), &request(path, &body.to_string(), true))
}

pub fn say(fake: &FakeLlm, path: &str, text: &str) -> Response {
    ask(fake, path, &body(path, text, false))
}

pub fn stream(fake: &FakeLlm, path: &str, text: &str) -> Response {
    ask(fake, path, &body(path, text, true))
}

pub fn exchange(wire: &mut (impl Read + Write), request: &str) -> Response {
    wire.write_all(request.as_bytes()).unwrap();
    wire.flush().unwrap();
    finish(wire)
}

/// Reads until the server closes.
pub fn finish(wire: &mut impl Read) -> Response {
    let mut raw = Vec::new();
    let reset = wire.read_to_end(&mut raw).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
    parse(&raw, reset)
}

/// Reads until `end` has come, and no byte more than there is.
pub fn read_until(wire: &mut impl Read, end: &str) -> String {
    let mut raw = Vec::new();
    let mut byte = [0];
    while !raw.ends_with(end.as_bytes()) {
        wire.read_exact(&mut byte).unwrap();
        raw.push(byte[0]);
    }
    String::from_utf8(raw).unwrap()
}

fn parse(raw: &[u8], reset: bool) -> Response {
    let head_end = raw.windows(4).position(|window| window == b"\r\n\r\n").map_or(raw.len(), |at| at + 4);
    let head = String::from_utf8(raw[..head_end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut response = Response { status, head, pieces: Vec::new(), end: End::Early };
    let received = &raw[head_end..];
    let complete = if response.header("transfer-encoding").is_some() {
        dechunk(received, &mut response.pieces)
    } else {
        response.pieces.push(received.to_vec());
        response.header("content-length") == Some(&received.len().to_string())
    };
    response.end = match (complete, reset) {
        (_, true) => End::Reset,
        (true, false) => End::Complete,
        (false, false) => End::Early,
    };
    response
}

/// Whether the last chunk is there.
fn dechunk(mut rest: &[u8], pieces: &mut Vec<Vec<u8>>) -> bool {
    while let Some(line_end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line_end]).unwrap(), 16).unwrap();
        rest = &rest[line_end + 2..];
        if size == 0 {
            return true;
        }
        pieces.push(rest[..size.min(rest.len())].to_vec());
        rest = rest.get(size + 2..).unwrap_or_default();
    }
    false
}
