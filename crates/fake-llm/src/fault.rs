//! What can go wrong on the way of an answer, as changes to it.

use std::time::SystemTime;

use bytes::Bytes;

use crate::answer::{At, Cut, FakeAnswer, FakeBodyShape, Framing};
use crate::gate::StallGate;
use crate::protocol::Dialect;

/// Which requests a fault befalls. Requests are counted from 1 in the order of their arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Request(usize),
    First(usize),
    Every,
    /// This percentage of the requests, chosen at random; the same seed always chooses the same ones.
    Chance {
        percent: u64,
        seed: u64,
    },
}

/// One thing that goes wrong. Several may befall one answer; their order does not matter.
#[derive(Debug, Clone)]
pub enum InjectedFault {
    /// An error in the provider's shape.
    Failure(FakeProviderError),
    /// What a proxy or load balancer in between says.
    HtmlPage { status: u16 },
    /// The usual head and no body at all.
    EmptyBody,
    /// The usual body under this content type.
    ContentType(String),
    /// A document that breaks off, or a stream with one event that is no JSON in its middle.
    MalformedJson,
    /// The body ends inside a character.
    TruncatedUtf8,
    /// A body of this many bytes that never gets to the point: one string, or one line of a stream, without end.
    HugeBody { bytes: usize },
    /// An error event in place of the rest of a stream; in place of a document, an error with status 200.
    ErrorEvent { at: At },
    /// Comments and the provider's pings before each event of a stream.
    Comments,
    /// Other line ends in a stream.
    LineEnds(LineEnd),
    /// Pieces of random length; also a split inside each multi-byte character and between each CR and LF.
    Rechunk { seed: u64 },
    /// Nothing is sent until the gate opens.
    StallBeforeHead(StallGate),
    /// The body stops there until the gate opens. `At::Percent(0)` is after the head and before the body.
    Stall { at: At, gate: StallGate },
    /// The answer ends there.
    Cut { at: At, how: Cut },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    Crlf,
    Cr,
}

/// An error that the provider reports.
#[derive(Debug, Clone)]
pub struct FakeProviderError {
    pub status: u16,
    pub message: String,
    /// A word for programs, beside the one that belongs to the status (`code` in chat completions).
    pub code: Option<String>,
    pub retry_after: Option<RetryAfter>,
}

#[derive(Debug, Clone)]
pub enum RetryAfter {
    Seconds(u64),
    Date(SystemTime),
    /// In a header of its own, `retry-after-ms`.
    Milliseconds(u64),
    /// Not in a header but among the details of the error, where the protocol has such; `"7.5s"`.
    Detail(String),
    /// Whatever a server may put there.
    Raw(String),
}

impl On {
    pub(crate) fn includes(self, number: usize) -> bool {
        match self {
            Self::Request(only) => number == only,
            Self::First(count) => number <= count,
            Self::Every => true,
            Self::Chance { percent, seed } => {
                fastrand::Rng::with_seed(seed ^ ((number as u64) << 20)).u64(..100) < percent
            }
        }
    }
}

impl FakeProviderError {
    pub fn new(status: u16, message: &str) -> Self {
        Self { status, message: message.to_owned(), code: None, retry_after: None }
    }

    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, when: RetryAfter) -> Self {
        self.retry_after = Some(when);
        self
    }

    pub(crate) fn answer(&self, dialect: &dyn Dialect) -> FakeAnswer {
        let retry_after = self.retry_after.as_ref().and_then(|when| match when {
            RetryAfter::Seconds(seconds) => Some(("retry-after", seconds.to_string())),
            RetryAfter::Date(date) => Some(("retry-after", httpdate::fmt_http_date(*date))),
            RetryAfter::Milliseconds(count) => Some(("retry-after-ms", count.to_string())),
            RetryAfter::Raw(text) => Some(("retry-after", text.clone())),
            RetryAfter::Detail(_) => None,
        });
        FakeAnswer { retry_after, ..FakeAnswer::document(self.status, dialect.failure(self)) }
    }
}

impl InjectedFault {
    /// The provider refuses with this status.
    pub fn status(status: u16) -> Self {
        Self::Failure(FakeProviderError::new(status, &format!("the script wants status {status}")))
    }

    pub fn cut(at: At, how: Cut) -> Self {
        Self::Cut { at, how }
    }

    /// Whether a client cannot be expected to have the reply after this, so that it is offered again.
    pub(crate) fn may_lose_the_reply(&self) -> bool {
        match self {
            Self::Failure(_)
            | Self::HtmlPage { .. }
            | Self::EmptyBody
            | Self::ContentType(_)
            | Self::MalformedJson
            | Self::TruncatedUtf8
            | Self::HugeBody { .. }
            | Self::ErrorEvent { .. }
            | Self::StallBeforeHead(_)
            | Self::Stall { .. }
            | Self::Cut { .. } => true,
            Self::Comments | Self::LineEnds(_) | Self::Rechunk { .. } => false,
        }
    }

    /// Whether the reply has arrived after all once the answer is complete: a stall may end well, and a cut
    /// after everything takes nothing away.
    pub(crate) fn may_end_well(&self) -> bool {
        match self {
            Self::StallBeforeHead(_) | Self::Stall { .. } => true,
            Self::Cut { at: At::Percent(percent), .. } => *percent >= 100,
            other => !other.may_lose_the_reply(),
        }
    }
}

/// Changes `answer` by all `faults`: first what it says, then how it is written, then how it travels.
pub(crate) fn apply(mut faults: Vec<InjectedFault>, mut answer: FakeAnswer, dialect: &dyn Dialect) -> FakeAnswer {
    faults.sort_by_key(stage);
    for fault in faults {
        answer = befall(fault, answer, dialect);
    }
    answer
}

fn stage(fault: &InjectedFault) -> usize {
    match fault {
        InjectedFault::Failure(_)
        | InjectedFault::HtmlPage { .. }
        | InjectedFault::EmptyBody
        | InjectedFault::MalformedJson
        | InjectedFault::HugeBody { .. }
        | InjectedFault::ErrorEvent { .. } => 0,
        InjectedFault::ContentType(_) | InjectedFault::Comments => 1,
        InjectedFault::LineEnds(_) => 2,
        InjectedFault::TruncatedUtf8 => 3,
        InjectedFault::Rechunk { .. } => 4,
        InjectedFault::StallBeforeHead(_) | InjectedFault::Stall { .. } | InjectedFault::Cut { .. } => 5,
    }
}

fn befall(fault: InjectedFault, mut answer: FakeAnswer, dialect: &dyn Dialect) -> FakeAnswer {
    match fault {
        InjectedFault::Failure(failure) => return failure.answer(dialect),
        InjectedFault::HtmlPage { status } => return html_page(status),
        InjectedFault::EmptyBody => answer.chunks.clear(),
        InjectedFault::ContentType(content_type) => answer.content_type = content_type,
        InjectedFault::MalformedJson => answer.chunks = malformed(&answer),
        InjectedFault::TruncatedUtf8 => answer.chunks = vec![cut_inside_a_character(&answer.body())],
        InjectedFault::HugeBody { bytes } => answer.chunks = endless(answer.shape, bytes),
        InjectedFault::ErrorEvent { at } => return error_event(answer, at, dialect),
        InjectedFault::Comments => answer.chunks = with_comments(&answer, dialect),
        InjectedFault::LineEnds(end) => answer.chunks = with_line_ends(&answer, end),
        InjectedFault::Rechunk { seed } => {
            answer.chunks = rechunk(&answer.body(), seed);
            answer.framing = Framing::Chunked;
        }
        InjectedFault::StallBeforeHead(gate) => answer.before_head.push(gate),
        InjectedFault::Stall { at, gate } => answer.stalls.push((at, gate)),
        InjectedFault::Cut { at, how } => answer.cut = Some((at, how)),
    }
    answer
}

fn html_page(status: u16) -> FakeAnswer {
    let page =
        format!("<html>\r\n<head><title>{status}</title></head>\r\n<body><h1>{status}</h1></body>\r\n</html>\r\n");
    FakeAnswer { content_type: "text/html; charset=utf-8".to_owned(), ..FakeAnswer::document(status, page) }
}

fn malformed(answer: &FakeAnswer) -> Vec<Bytes> {
    match answer.shape {
        FakeBodyShape::Document => {
            let body = answer.body();
            vec![body.slice(..body.len() / 2)]
        }
        FakeBodyShape::Events => {
            let mut chunks = answer.chunks.clone();
            chunks.insert(chunks.len() / 2, Bytes::from_static(b"data: {\"broken\": [1, 2\n\n"));
            chunks
        }
    }
}

/// The body up to the first byte of its first multi-byte character; where it has none, half of it and such a byte.
fn cut_inside_a_character(body: &Bytes) -> Bytes {
    const FIRST_BYTE_OF_TWO: u8 = 0xC3;
    match body.iter().position(|byte| !byte.is_ascii()) {
        Some(at) => body.slice(..=at),
        None => [&body[..body.len() / 2], &[FIRST_BYTE_OF_TWO]].concat().into(),
    }
}

fn endless(shape: FakeBodyShape, bytes: usize) -> Vec<Bytes> {
    static FILLING: [u8; 64 * 1024] = [b'a'; 64 * 1024];
    let opening: &'static [u8] = match shape {
        FakeBodyShape::Document => b"{\"id\":\"",
        FakeBodyShape::Events => b"data: {\"id\":\"",
    };
    let mut chunks = vec![Bytes::from_static(&opening[..opening.len().min(bytes)])];
    let mut missing = bytes.saturating_sub(opening.len());
    while missing > 0 {
        let size = missing.min(FILLING.len());
        chunks.push(Bytes::from_static(&FILLING[..size]));
        missing -= size;
    }
    chunks
}

fn error_event(mut answer: FakeAnswer, at: At, dialect: &dyn Dialect) -> FakeAnswer {
    let failure = FakeProviderError::new(529, "overloaded in the middle of an answer");
    match answer.shape {
        FakeBodyShape::Document => FakeAnswer::document(200, dialect.failure(&failure)),
        FakeBodyShape::Events => {
            let keep = match at {
                At::Percent(percent) => answer.chunks.len() * percent.min(100) / 100,
                At::Byte(byte) => events_before(&answer.chunks, byte),
            };
            answer.chunks.truncate(keep);
            answer.chunks.push(dialect.failure_event(&failure).into());
            answer
        }
    }
}

fn events_before(chunks: &[Bytes], byte: usize) -> usize {
    let mut end = 0;
    let ends = chunks.iter().map(|chunk| {
        end += chunk.len();
        end
    });
    ends.take_while(|end| *end <= byte).count()
}

fn with_comments(answer: &FakeAnswer, dialect: &dyn Dialect) -> Vec<Bytes> {
    match answer.shape {
        FakeBodyShape::Document => answer.chunks.clone(),
        FakeBodyShape::Events => {
            let idle = Bytes::from_static(dialect.idle_frames().as_bytes());
            answer.chunks.iter().flat_map(|event| [idle.clone(), event.clone()]).collect()
        }
    }
}

fn with_line_ends(answer: &FakeAnswer, end: LineEnd) -> Vec<Bytes> {
    let replacement: &[u8] = match end {
        LineEnd::Crlf => b"\r\n",
        LineEnd::Cr => b"\r",
    };
    match answer.shape {
        FakeBodyShape::Document => answer.chunks.clone(),
        FakeBodyShape::Events => {
            let rewrite = |event: &Bytes| event.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(replacement);
            answer.chunks.iter().map(|event| rewrite(event).into()).collect()
        }
    }
}

fn rechunk(body: &Bytes, seed: u64) -> Vec<Bytes> {
    const LONGEST: usize = 48;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut chunks = Vec::new();
    let (mut start, mut size) = (0, random.usize(1..=LONGEST));
    for at in 1..body.len() {
        let inside_character = body[at] & 0b1100_0000 == 0b1000_0000;
        let inside_line_end = body[at - 1] == b'\r' && body[at] == b'\n';
        if inside_character || inside_line_end || at - start >= size {
            chunks.push(body.slice(start..at));
            (start, size) = (at, random.usize(1..=LONGEST));
        }
    }
    chunks.push(body.slice(start..));
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rechunking_keeps_every_byte_and_splits_characters_and_line_ends(
            text in "([a-zé€😀]|\r\n){0,80}", seed in any::<u64>()
        ) {
            let chunks = rechunk(&Bytes::from(text.clone()), seed);
            prop_assert_eq!(chunks.concat(), text.clone().into_bytes());
            for chunk in &chunks {
                prop_assert!(!chunk.windows(2).any(|pair| pair == b"\r\n"));
                prop_assert!(chunk.utf8_chunks().all(|piece| piece.valid().is_ascii()));
            }
        }
    }

    #[test]
    fn a_fault_befalls_the_requests_it_names() {
        for (on, expected) in
            [(On::Request(2), [false, true, false]), (On::First(2), [true, true, false]), (On::Every, [true; 3])]
        {
            assert_eq!([1, 2, 3].map(|number| on.includes(number)), expected, "{on:?}");
        }
    }
}
