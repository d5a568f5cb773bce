//! HTTP/1.1 by hand: a test server must be able to break off at any byte, which libraries rightly prevent.

use std::io;

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::server::TlsStream;

use crate::answer::{DeliveryEnd, DeliveryStep, FakeAnswerHead, Plan, REQUEST_ID};
use crate::counts::CountedConnection;
use crate::gate::StallGate;
use crate::request::{Headers, HttpVersion, TransportRequest};
use crate::scripted::Delivery;
use crate::server::{FakeServer, ServerBehaviour};

const LONGEST_HEAD: usize = 64 * 1024;
const LONGEST_BODY: usize = 256 * 1024 * 1024;
/// Bytes are collected up to here before they are written.
const WRITE_SIZE: usize = 256 * 1024;

/// A connection, encrypted or not.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    /// The connection below, which can be reset.
    fn socket(&self) -> &CountedConnection;
}

impl Wire for CountedConnection {
    fn socket(&self) -> &CountedConnection {
        self
    }
}

impl Wire for TlsStream<CountedConnection> {
    fn socket(&self) -> &CountedConnection {
        self.get_ref().0
    }
}

/// Answers the requests of one connection until the client or the script ends it.
pub(crate) async fn serve(mut wire: impl Wire, server: &FakeServer, connection: usize) -> io::Result<()> {
    let mut inbound = BytesMut::new();
    loop {
        let request = match read_request(&mut wire, &mut inbound).await {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                server.refuse_bytes(&error);
                wire.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await?;
                return wire.flush().await;
            }
            Err(error) => return Err(error),
        };
        let closes = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let in_flight = server.counts.begin();
        match &server.behaviour {
            ServerBehaviour::Constant(prepared) => {
                let answer = prepared.answer(request.target(), &request.body).await;
                drop(in_flight);
                wire.write_all(&answer.http1).await?;
                wire.flush().await?;
            }
            ServerBehaviour::Scripted(scripted) => {
                let (answer, mut delivery) = scripted.respond(request.into_incoming(connection), in_flight);
                let end = send(&mut wire, &mut inbound, answer.plan(), &mut delivery).await?;
                if end != DeliveryEnd::Complete {
                    return Ok(());
                }
            }
        }
        if closes {
            return wire.shutdown().await;
        }
    }
}

/// A whole answer as one piece of bytes, for plans that neither stall nor break off.
pub(crate) fn rendered(plan: Plan) -> Bytes {
    let mut out = Vec::new();
    write_head(&plan.head, &mut out);
    for step in plan.steps {
        match step {
            DeliveryStep::Send(bytes) => write_chunk(&bytes, &plan.head, &mut out),
            DeliveryStep::Stall(_) => {}
        }
    }
    write_end(&plan.head, &mut out);
    out.into()
}

async fn send(
    wire: &mut impl Wire,
    inbound: &mut BytesMut,
    plan: Plan,
    delivery: &mut Delivery,
) -> io::Result<DeliveryEnd> {
    tokio::time::sleep(plan.latency).await;
    for gate in plan.before_head {
        stand_at(gate, wire, inbound).await?;
    }
    let mut out = Vec::new();
    write_head(&plan.head, &mut out);
    for step in plan.steps {
        match step {
            DeliveryStep::Send(bytes) => {
                // What was collected before is written first, so that the last bytes of the answer go out only after
                // the answer is accounted for.
                if out.len() > WRITE_SIZE {
                    flush(wire, &mut out).await?;
                }
                write_chunk(&bytes, &plan.head, &mut out);
            }
            DeliveryStep::Stall(gate) => {
                flush(wire, &mut out).await?;
                stand_at(gate, wire, inbound).await?;
            }
        }
    }
    delivery.complete();
    match plan.end {
        DeliveryEnd::Complete => write_end(&plan.head, &mut out),
        DeliveryEnd::Close | DeliveryEnd::Reset => {}
    }
    flush(wire, &mut out).await?;
    if plan.end == DeliveryEnd::Reset {
        wire.socket().stream.set_zero_linger()?;
    }
    Ok(plan.end)
}

async fn flush(wire: &mut impl Wire, out: &mut Vec<u8>) -> io::Result<()> {
    wire.write_all(out).await?;
    out.clear();
    wire.flush().await
}

/// Waits at the gate, and ends with an error when the client goes away meanwhile.
async fn stand_at(gate: StallGate, wire: &mut impl Wire, inbound: &mut BytesMut) -> io::Result<()> {
    tokio::select! {
        () = gate.pass() => Ok(()),
        () = departure(wire, inbound) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

async fn departure(wire: &mut impl Wire, inbound: &mut BytesMut) {
    while inbound.len() < LONGEST_HEAD && matches!(wire.read_buf(inbound).await, Ok(1..)) {}
}

fn write_head(head: &FakeAnswerHead, out: &mut Vec<u8>) {
    let FakeAnswerHead { status, content_type, retry_after, length } = head;
    let reason = hyper::StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
    let reason = reason.unwrap_or("Unheard Of");
    let retry_after = retry_after.as_ref().map(|(name, when)| format!("{name}: {when}\r\n")).unwrap_or_default();
    let framing = match length {
        Some(length) => format!("content-length: {length}"),
        None => "transfer-encoding: chunked".to_owned(),
    };
    let text = format!(
        "HTTP/1.1 {status} {reason}\r\nrequest-id: {REQUEST_ID}\r\ncontent-type: {content_type}\r\n{retry_after}{framing}\r\n\r\n"
    );
    out.extend_from_slice(text.as_bytes());
}

fn write_chunk(bytes: &[u8], head: &FakeAnswerHead, out: &mut Vec<u8>) {
    if head.length.is_some() {
        out.extend_from_slice(bytes);
    } else if !bytes.is_empty() {
        // An empty chunk would be the end.
        out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_end(head: &FakeAnswerHead, out: &mut Vec<u8>) {
    if head.length.is_none() {
        out.extend_from_slice(b"0\r\n\r\n");
    }
}

/// A request whose headers are parsed only when a caller asks for them.
#[derive(Debug)]
pub(crate) struct RawRequest {
    /// Up to and with the empty line; it is text.
    head: String,
    pub body: Bytes,
}

impl RawRequest {
    pub fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        fields.map(|(name, value)| (name, value.trim()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn into_incoming(self, connection: usize) -> TransportRequest {
        let headers = self.headers().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        TransportRequest {
            connection,
            version: HttpVersion::Http1,
            method: self.method().to_owned(),
            path: self.target().to_owned(),
            headers: Headers(headers),
            bytes: self.body,
        }
    }
}

/// The next request, or `None` when the client has no more. An error of the kind `InvalidData` means that the bytes are
/// no request.
pub(crate) async fn read_request(
    wire: &mut (impl AsyncRead + AsyncWrite + Unpin),
    inbound: &mut BytesMut,
) -> io::Result<Option<RawRequest>> {
    let Some(head) = read_head(wire, inbound).await? else { return Ok(None) };
    let mut request = RawRequest { head, body: Bytes::new() };
    let first_line = request.head.split("\r\n").next().unwrap_or_default();
    if first_line.split(' ').count() != 3 || !first_line.ends_with(" HTTP/1.1") {
        return Err(invalid("no request line of HTTP/1.1"));
    }
    if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        wire.flush().await?;
    }
    request.body = if request.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        read_chunked(wire, inbound).await?
    } else {
        let length = request.header("content-length").unwrap_or("0").parse().map_err(|_| invalid("content-length"))?;
        take(wire, inbound, length).await?.freeze()
    };
    Ok(Some(request))
}

pub(crate) async fn read_head(
    wire: &mut (impl AsyncRead + Unpin),
    inbound: &mut BytesMut,
) -> io::Result<Option<String>> {
    let mut searched = 0;
    let end = loop {
        if let Some(at) = memmem::find(&inbound[searched..], b"\r\n\r\n") {
            break searched + at + 4;
        }
        if inbound.len() > LONGEST_HEAD {
            return Err(invalid("the head has no end"));
        }
        searched = inbound.len().saturating_sub(3);
        if wire.read_buf(inbound).await? == 0 {
            return if inbound.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
    };
    let head = inbound.split_to(end);
    let head = std::str::from_utf8(&head).map_err(|_| invalid("the head is no text"))?;
    Ok(Some(head.to_owned()))
}

async fn read_chunked(wire: &mut (impl AsyncRead + Unpin), inbound: &mut BytesMut) -> io::Result<Bytes> {
    let mut body = BytesMut::new();
    loop {
        let line = read_line(wire, inbound).await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).map_err(|_| invalid("the size of a chunk"))?;
        if size == 0 {
            break;
        }
        if size > LONGEST_BODY - body.len() {
            return Err(invalid("the body is too long"));
        }
        body.extend_from_slice(&take(wire, inbound, size).await?);
        if !read_line(wire, inbound).await?.is_empty() {
            return Err(invalid("a chunk is longer than it says"));
        }
    }
    while !read_line(wire, inbound).await?.is_empty() {}
    Ok(body.freeze())
}

async fn read_line(wire: &mut (impl AsyncRead + Unpin), inbound: &mut BytesMut) -> io::Result<String> {
    loop {
        if let Some(at) = memmem::find(inbound, b"\r\n") {
            let line = inbound.split_to(at + 2);
            return String::from_utf8(line[..at].to_vec()).map_err(|_| invalid("a line that is no text"));
        }
        if inbound.len() > LONGEST_HEAD {
            return Err(invalid("a line has no end"));
        }
        if wire.read_buf(inbound).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn take(wire: &mut (impl AsyncRead + Unpin), inbound: &mut BytesMut, length: usize) -> io::Result<BytesMut> {
    if length > LONGEST_BODY {
        return Err(invalid("the body is too long"));
    }
    while inbound.len() < length {
        // Memory is reserved as bytes arrive, because the length is only what the client announces.
        inbound.reserve((length - inbound.len()).min(WRITE_SIZE));
        if wire.read_buf(inbound).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(inbound.split_to(length))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads one request from `bytes` as if they came in two pieces.
    fn read(bytes: &[u8], split: usize) -> io::Result<Option<RawRequest>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (first, second) = bytes.split_at(split.min(bytes.len()));
            let mut wire = tokio::io::join(first.chain(second), tokio::io::sink());
            read_request(&mut wire, &mut BytesMut::new()).await
        })
    }

    #[test]
    fn a_request_is_read_whichever_way_its_length_is_told() {
        for text in [
            "POST /a?b HTTP/1.1\r\nContent-Length: 5\r\nX-Key:  k \r\n\r\nhello",
            "POST /a?b HTTP/1.1\r\nX-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nt: 1\r\n\r\n",
        ] {
            for split in 0..text.len() {
                let request = read(text.as_bytes(), split).unwrap().unwrap();
                assert_eq!((request.method(), request.target()), ("POST", "/a?b"));
                assert_eq!((request.header("x-key"), &request.body[..]), (Some("k"), &b"hello"[..]));
            }
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in [
            "hello\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        ] {
            assert_eq!(read(text.as_bytes(), 0).unwrap_err().kind(), io::ErrorKind::InvalidData, "{text:?}");
        }
        assert_eq!(read(b"POST / HT", 3).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(read(b"", 0).unwrap().is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            start in "(POST / HTTP/1.1\r\n(transfer-encoding: chunked\r\n|content-length: [0-9]{1,3}\r\n)?(\r\n)?)?",
            rest in proptest::collection::vec(any::<u8>(), 0..80),
            split in 0_usize..40,
        ) {
            let _ = read(&[start.as_bytes(), &rest].concat(), split);
        }
    }
}
