//! Bytes → frames: server-sent events as the WHATWG specification reads them, and JSON lines.
//!
//! Bytes are pushed as they arrive, split anywhere. A frame that lies within one chunk is lent from that chunk; only
//! what straddles chunks is copied. Time is linear, and memory is bounded by the limit on one frame.

use memchr::memchr2;

/// One message of a stream, lent to the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The event's name, where the stream names its events.
    pub event: Option<&'a [u8]>,
    /// Not checked for UTF-8: the JSON parser does that, and reports it.
    pub data: &'a [u8],
}

/// Large enough for an image in base64, small enough to not exhaust memory.
pub const FRAME_LIMIT: usize = 64 * 1024 * 1024;

/// A frame is longer than its reader allows; the rest of the stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of the stream is longer than {limit} bytes")]
pub struct FrameTooLong {
    pub limit: usize,
}

/// A longer one is sent back by nobody.
const LONGEST_ID: usize = 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Splits a `text/event-stream`. An event that the end of the stream leaves unfinished is dropped, as the
/// specification says.
#[derive(Debug)]
pub struct EventStream {
    limit: usize,
    /// How much of a byte order mark was seen at the start of the stream.
    mark_seen: usize,
    /// The last chunk ended with CR: an LF at the start of the next one belongs to it.
    after_cr: bool,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// What earlier chunks said about the current event.
    event: Vec<u8>,
    data: Option<Vec<u8>>,
    /// Where the stream is, as whoever goes on with it says it.
    last_id: Option<Vec<u8>>,
    /// How long to wait before that, in milliseconds.
    retry: Option<u64>,
}

/// What the current chunk says about the current event.
#[derive(Default)]
struct PendingFrame<'a> {
    event: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
}

enum FrameLine<'a> {
    Blank,
    Event(&'a [u8]),
    Data(&'a [u8]),
    Id(&'a [u8]),
    Retry(u64),
    Ignored,
}

impl EventStream {
    /// A reader at the start of a stream, for events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let (line, event, data) = (Vec::new(), Vec::new(), None);
        Self { limit, mark_seen: 0, after_cr: false, line, event, data, last_id: None, retry: None }
    }

    /// The id of the last event that has one: a stream that broke off can be gone on with from there.
    pub(crate) fn last_id(&self) -> Option<&[u8]> {
        self.last_id.as_deref()
    }

    /// How many milliseconds to wait before going on with a stream that broke off, if the server says so.
    pub(crate) fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Hands every frame that these bytes complete to the sink; the first error ends it.
    pub fn push<E: From<FrameTooLong>>(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = self.without_mark(bytes);
        if self.after_cr && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_cr = false;
        }
        let mut pending = PendingFrame::default();
        while let Some(end) = end_of_line(rest) {
            let (line, ended) = rest.split_at(end);
            rest = match ended {
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
                [] => &[],
            };
            if self.line.is_empty() {
                self.check(line.len())?;
                self.take(line, &mut pending, &mut sink)?;
            } else {
                self.take_straddling(line, &mut pending, &mut sink)?;
            }
        }
        self.keep(&pending)?;
        self.check(self.line.len() + rest.len())?;
        self.line.extend_from_slice(rest);
        Ok(())
    }

    fn without_mark<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while let (Some(expected), [first, after @ ..]) = (BYTE_ORDER_MARK.get(self.mark_seen), rest) {
            if first != expected {
                // It was no mark after all: what looked like one begins the first line.
                self.line.extend_from_slice(&BYTE_ORDER_MARK[..self.mark_seen]);
                self.mark_seen = BYTE_ORDER_MARK.len();
                break;
            }
            self.mark_seen += 1;
            rest = after;
        }
        rest
    }

    fn take<'a, E: From<FrameTooLong>>(
        &mut self,
        line: &'a [u8],
        pending: &mut PendingFrame<'a>,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match read(line) {
            FrameLine::Blank => self.dispatch(pending, sink)?,
            FrameLine::Event(name) => pending.event = Some(name),
            FrameLine::Data(value) if pending.data.is_none() && self.data.is_none() => pending.data = Some(value),
            FrameLine::Data(value) => {
                self.keep(pending)?;
                pending.data = None;
                self.append(value)?;
            }
            FrameLine::Id(id) => self.last_id = (!id.is_empty()).then(|| id.to_vec()),
            FrameLine::Retry(after) => self.retry = Some(after),
            FrameLine::Ignored => {}
        }
        Ok(())
    }

    /// A line that began in an earlier chunk and ends in this one.
    fn take_straddling<E: From<FrameTooLong>>(
        &mut self,
        end: &[u8],
        pending: &mut PendingFrame<'_>,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(self.line.len() + end.len())?;
        self.line.extend_from_slice(end);
        let mut line = std::mem::take(&mut self.line);
        let mut own = PendingFrame { event: pending.event.take(), data: pending.data.take() };
        self.take(&line, &mut own, sink)?;
        self.keep(&own)?;
        line.clear();
        self.line = line; // its capacity serves the next one
        Ok(())
    }

    fn dispatch<E>(
        &mut self,
        pending: &mut PendingFrame<'_>,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let PendingFrame { event, data } = std::mem::take(pending);
        let kept = self.data.take();
        if let Some(data) = data.or(kept.as_deref()) {
            let name = event.unwrap_or(&self.event);
            sink(Frame { event: (!name.is_empty()).then_some(name), data })?;
        }
        self.event.clear();
        Ok(())
    }

    fn keep(&mut self, pending: &PendingFrame<'_>) -> Result<(), FrameTooLong> {
        if let Some(name) = pending.event {
            self.event.clear();
            self.event.extend_from_slice(name);
        }
        pending.data.map_or(Ok(()), |data| self.append(data))
    }

    fn append(&mut self, value: &[u8]) -> Result<(), FrameTooLong> {
        let length = self.data.as_ref().map_or(0, |data| data.len() + 1);
        self.check(length + value.len())?;
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
        Ok(())
    }

    fn check(&self, length: usize) -> Result<(), FrameTooLong> {
        if length > self.limit { Err(FrameTooLong { limit: self.limit }) } else { Ok(()) }
    }
}

fn end_of_line(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\n', ..] => Some(0), // every third line is blank
        _ => memchr2(b'\n', b'\r', bytes),
    }
}

fn read(line: &[u8]) -> FrameLine<'_> {
    match line {
        [] => FrameLine::Blank,
        [b'd', b'a', b't', b'a', b':', value @ ..] => FrameLine::Data(value.strip_prefix(b" ").unwrap_or(value)),
        [b'e', b'v', b'e', b'n', b't', b':', value @ ..] => FrameLine::Event(value.strip_prefix(b" ").unwrap_or(value)),
        // A name alone has an empty value.
        b"data" => FrameLine::Data(b""),
        b"event" => FrameLine::Event(b""),
        // These two serve whoever goes on with a stream that broke off, which no provider offers; an id with a zero is none.
        [b'i', b'd', b':', value @ ..] if value.len() <= LONGEST_ID && !value.contains(&0) => {
            FrameLine::Id(value.strip_prefix(b" ").unwrap_or(value))
        }
        [b'r', b'e', b't', b'r', b'y', b':', value @ ..] => {
            let digits = std::str::from_utf8(value.strip_prefix(b" ").unwrap_or(value)).unwrap_or_default();
            digits.parse().map_or(FrameLine::Ignored, FrameLine::Retry)
        }
        // An empty name is a comment.
        _ => FrameLine::Ignored,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Seen = (Option<Vec<u8>>, Vec<u8>);

    fn events_of(chunks: &[&[u8]], limit: usize) -> (Vec<Seen>, Result<(), FrameTooLong>) {
        let mut stream = EventStream::new(limit);
        let mut seen = Vec::new();
        let outcome = chunks.iter().try_for_each(|chunk| {
            stream.push(chunk, |frame| {
                seen.push((frame.event.map(<[u8]>::to_vec), frame.data.to_vec()));
                Ok(())
            })
        });
        (seen, outcome)
    }

    #[test]
    fn events_are_read_as_the_specification_says() {
        type Expected<'a> = &'a [(Option<&'a str>, &'a str)];
        let cases: &[(&str, Expected<'_>)] = &[
            ("data: a\n\n", &[(None, "a")]),
            ("data:a\n\ndata:  b\n\n", &[(None, "a"), (None, " b")]),
            ("event: ping\ndata: 1\n\ndata: 2\n\n", &[(Some("ping"), "1"), (None, "2")]),
            ("data: a\ndata: b\ndata\n\n", &[(None, "a\nb\n")]),
            ("data: a\nevent: x\ndata: b\nevent: y\n\n", &[(Some("y"), "a\nb")]),
            (": comment\ndata: a\n:\n\n", &[(None, "a")]),
            ("event: only\n\ndata: a\n\n", &[(None, "a")]),
            ("data\n\n", &[(None, "")]),
            ("id: 7\nretry: x\nfield: y\ndata: a\n\n", &[(None, "a")]),
            ("dat: a\ndatax: b\n data: c\n\n", &[]),
            ("\u{FEFF}data: a\n\n", &[(None, "a")]),
            ("\u{FEFF}\u{FEFF}data: a\n\n", &[]),
            ("\n\n\ndata: a\n\n\n\n", &[(None, "a")]),
            ("data: lost", &[]),
            ("data: lost\n", &[]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            let expected: Vec<Seen> = expected
                .iter()
                .map(|(name, data)| (name.map(|name| name.as_bytes().to_vec()), data.as_bytes().to_vec()))
                .collect();
            for end in ["\n", "\r\n", "\r"] {
                let text = text.replace('\n', end);
                assert_eq!(events_of(&[text.as_bytes()], 100).0, expected, "{text:?}");
            }
        }
    }

    #[test]
    fn a_frame_within_one_chunk_is_lent_and_not_copied() {
        let chunk = b"event: e\ndata: hello\n\ndata: again\n\n";
        let mut lent = 0;
        let sink = |frame: Frame<'_>| {
            assert!(chunk.as_ptr_range().contains(&frame.data.as_ptr()));
            lent += 1;
            Ok::<(), FrameTooLong>(())
        };
        EventStream::new(100).push(chunk, sink).unwrap();
        assert_eq!(lent, 2);
    }

    #[test]
    fn an_error_of_the_sink_comes_back() {
        #[derive(Debug, PartialEq)]
        enum Failure {
            Sink,
            Frame(FrameTooLong),
        }
        impl From<FrameTooLong> for Failure {
            fn from(error: FrameTooLong) -> Self {
                Self::Frame(error)
            }
        }
        let mut stream = EventStream::new(10);
        assert_eq!(stream.push(b"data: a\n\n", |_| Err(Failure::Sink)), Err(Failure::Sink));
        let too_long = Failure::Frame(FrameTooLong { limit: 10 });
        assert_eq!(stream.push(b"data: 0123456789\n\n", |_| Ok(())), Err(too_long));
    }

    #[test]
    fn a_frame_over_the_limit_is_an_error_however_it_grows() {
        let endless_line = ["data: ".as_bytes(), &[b'x'; 50], &[b'x'; 50]];
        let many_lines = [b"data: 123456789\n".as_slice(); 20];
        for chunks in [&endless_line[..], &many_lines[..]] {
            let limit = 64;
            assert_eq!(events_of(chunks, limit), (vec![], Err(FrameTooLong { limit })));
            assert_eq!(events_of(&[&chunks.concat()], limit), (vec![], Err(FrameTooLong { limit })));
        }
    }

    /// Bytes that look like a stream more often than chance would have it.
    fn stream_bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"data: ".to_vec()),
            Just(b"data".to_vec()),
            Just(b"event: e".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b":".to_vec()),
            Just(BYTE_ORDER_MARK.to_vec()),
            Just("é€😀".as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..12),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    fn split<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn splitting_never_changes_the_frames(bytes in stream_bytes(), cuts: Vec<prop::sample::Index>) {
            for limit in [20, 1000] {
                prop_assert_eq!(events_of(&split(&bytes, &cuts), limit), events_of(&[&bytes], limit));
            }
        }
    }
}
