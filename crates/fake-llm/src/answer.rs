//! An answer before it is sent: what HTTP will say and where it stops on the way. Both HTTP versions send the same
//! plan, so a fault means the same in both.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::gate::StallGate;

/// A place in the body of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// So much of the body, in hundredths.
    Percent(usize),
    /// So many bytes of the body.
    Byte(usize),
}

/// How an answer ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The connection closes, and HTTP knows that something is missing.
    Eof,
    /// The connection is reset.
    Reset,
    /// HTTP says that all is well; only the content is incomplete.
    Clean,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FakeBodyShape {
    Document,
    Events,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The length is announced.
    Length,
    /// HTTP/1.1 `Transfer-Encoding: chunked`, one for each of `Answer::chunks`.
    Chunked,
}

#[derive(Debug)]
pub(crate) struct FakeAnswer {
    pub status: u16,
    pub content_type: String,
    /// A header and its value.
    pub retry_after: Option<(&'static str, String)>,
    pub shape: FakeBodyShape,
    pub framing: Framing,
    pub chunks: Vec<Bytes>,
    /// How long the provider takes before it answers.
    pub latency: Duration,
    pub before_head: Vec<StallGate>,
    pub stalls: Vec<(At, StallGate)>,
    pub cut: Option<(At, Cut)>,
}

/// What is left to do, step by step.
pub(crate) struct Plan {
    pub latency: Duration,
    pub before_head: Vec<StallGate>,
    pub head: FakeAnswerHead,
    pub steps: VecDeque<DeliveryStep>,
    pub end: DeliveryEnd,
}

/// Every answer carries this as its `request-id`.
pub(crate) const REQUEST_ID: &str = "req_fake";

pub(crate) struct FakeAnswerHead {
    pub status: u16,
    pub content_type: String,
    /// A header and its value.
    pub retry_after: Option<(&'static str, String)>,
    /// `None` if the body is sent in chunks.
    pub length: Option<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum DeliveryStep {
    Send(Bytes),
    Stall(StallGate),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryEnd {
    Complete,
    Close,
    Reset,
}

impl At {
    fn offset(self, total: usize) -> usize {
        match self {
            Self::Percent(percent) => total * percent.min(100) / 100,
            Self::Byte(byte) => byte.min(total),
        }
    }
}

impl FakeAnswer {
    pub fn document(status: u16, body: impl Into<Bytes>) -> Self {
        Self::new(status, "application/json", FakeBodyShape::Document, Framing::Length, vec![body.into()])
    }

    pub fn events(chunks: Vec<Bytes>) -> Self {
        Self::new(200, "text/event-stream; charset=utf-8", FakeBodyShape::Events, Framing::Chunked, chunks)
    }

    fn new(status: u16, content_type: &str, shape: FakeBodyShape, framing: Framing, chunks: Vec<Bytes>) -> Self {
        Self {
            status,
            content_type: content_type.to_owned(),
            retry_after: None,
            shape,
            framing,
            chunks,
            latency: Duration::ZERO,
            before_head: Vec::new(),
            stalls: Vec::new(),
            cut: None,
        }
    }

    pub fn body(&self) -> Bytes {
        match self.chunks.as_slice() {
            [only] => only.clone(),
            chunks => {
                let mut whole = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
                for chunk in chunks {
                    whole.extend_from_slice(chunk);
                }
                whole.freeze()
            }
        }
    }

    pub fn plan(mut self) -> Plan {
        let total = self.chunks.iter().map(Bytes::len).sum();
        let stop = self.cut.map_or(total, |(at, _)| at.offset(total));
        let end = match self.cut {
            None | Some((_, Cut::Clean)) => DeliveryEnd::Complete,
            Some((_, Cut::Eof)) => DeliveryEnd::Close,
            Some((_, Cut::Reset)) => DeliveryEnd::Reset,
        };
        let announced = if end == DeliveryEnd::Complete { stop } else { total };
        let length = match self.framing {
            Framing::Length => Some(announced),
            Framing::Chunked => None,
        };
        let steps = self.steps(total, stop);
        let head = FakeAnswerHead {
            status: self.status,
            content_type: self.content_type,
            retry_after: self.retry_after,
            length,
        };
        Plan { latency: self.latency, before_head: self.before_head, head, steps, end }
    }

    /// The chunks up to byte `stop`, interrupted by the stalls before it.
    fn steps(&mut self, total: usize, stop: usize) -> VecDeque<DeliveryStep> {
        let mut stalls: Vec<_> = self.stalls.drain(..).map(|(at, gate)| (at.offset(total), gate)).collect();
        stalls.sort_by_key(|(offset, _)| *offset);
        let mut stalls = stalls.into_iter().peekable();
        let mut steps = VecDeque::with_capacity(self.chunks.len() + 1);
        let mut sent = 0;
        for mut chunk in self.chunks.drain(..) {
            chunk.truncate(stop - sent);
            while let Some((offset, gate)) = stalls.next_if(|(offset, _)| *offset < sent + chunk.len()) {
                let before = chunk.split_to(offset - sent);
                sent = offset;
                steps.extend((!before.is_empty()).then_some(DeliveryStep::Send(before)));
                steps.push_back(DeliveryStep::Stall(gate));
            }
            sent += chunk.len();
            steps.extend((!chunk.is_empty()).then_some(DeliveryStep::Send(chunk)));
        }
        steps.extend(stalls.filter(|(offset, _)| *offset <= stop).map(|(_, gate)| DeliveryStep::Stall(gate)));
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(chunks: &[&'static str], stalls: &[At], cut: Option<(At, Cut)>) -> (String, DeliveryEnd) {
        let mut answer = FakeAnswer::events(chunks.iter().map(|chunk| Bytes::from_static(chunk.as_bytes())).collect());
        answer.stalls = stalls.iter().map(|at| (*at, StallGate::new())).collect();
        answer.cut = cut;
        let plan = answer.plan();
        let steps = plan.steps.iter().map(|step| match step {
            DeliveryStep::Send(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            DeliveryStep::Stall(_) => "!".to_owned(),
        });
        (steps.collect::<Vec<_>>().join("|"), plan.end)
    }

    #[test]
    fn stalls_and_cuts_split_the_chunks_where_they_say() {
        let chunks = ["abcd", "efgh"];
        for (stalls, cut, expected) in [
            (vec![], None, ("abcd|efgh", DeliveryEnd::Complete)),
            (vec![At::Byte(0)], None, ("!|abcd|efgh", DeliveryEnd::Complete)),
            (vec![At::Byte(2)], None, ("ab|!|cd|efgh", DeliveryEnd::Complete)),
            (vec![At::Percent(50)], None, ("abcd|!|efgh", DeliveryEnd::Complete)),
            (vec![At::Percent(100)], None, ("abcd|efgh|!", DeliveryEnd::Complete)),
            (vec![At::Byte(5), At::Byte(1)], None, ("a|!|bcd|e|!|fgh", DeliveryEnd::Complete)),
            (vec![], Some((At::Byte(3), Cut::Eof)), ("abc", DeliveryEnd::Close)),
            (vec![], Some((At::Percent(75), Cut::Reset)), ("abcd|ef", DeliveryEnd::Reset)),
            (vec![], Some((At::Byte(0), Cut::Clean)), ("", DeliveryEnd::Complete)),
            (vec![At::Byte(2), At::Byte(6)], Some((At::Byte(4), Cut::Eof)), ("ab|!|cd", DeliveryEnd::Close)),
            (vec![At::Byte(4)], Some((At::Byte(4), Cut::Eof)), ("abcd|!", DeliveryEnd::Close)),
        ] {
            assert_eq!(planned(&chunks, &stalls, cut), (expected.0.to_owned(), expected.1), "{stalls:?} {cut:?}");
        }
    }

    #[test]
    fn a_clean_cut_announces_what_it_sends_and_a_rude_one_what_it_owes() {
        for (how, expected) in [(Cut::Clean, 3), (Cut::Eof, 6), (Cut::Reset, 6)] {
            let mut answer = FakeAnswer::document(200, "abcdef");
            answer.cut = Some((At::Percent(50), how));
            assert_eq!(answer.plan().head.length, Some(expected), "{how:?}");
        }
    }
}
