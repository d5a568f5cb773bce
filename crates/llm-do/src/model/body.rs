//! The request body as one growing buffer: every message is encoded once, and the body is lent without a copy.
//!
//! The stable parts come first, then the array of messages; the few bytes after it are rewritten for each request. The
//! buffer is lent as [`Bytes`] and taken back when the connection has dropped it. If it has not, a copy is made, so a
//! body on its way never changes.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

/// A JSON object under construction, field by field in the order they are set.
#[derive(Debug)]
pub(crate) struct BodyFields(Vec<u8>);

/// A short prompt with a few tools fits in.
const USUAL_LENGTH: usize = 1024;

impl Default for BodyFields {
    fn default() -> Self {
        Self(Vec::with_capacity(USUAL_LENGTH))
    }
}

impl BodyFields {
    /// Adds a field with this value at the end of the object; the caller sets each name once.
    pub(crate) fn set(&mut self, name: &str, value: &(impl Serialize + ?Sized)) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        write_json(&mut self.0, name);
        self.0.push(b':');
        write_json(&mut self.0, value);
    }

    /// What is absent is not sent.
    pub(crate) fn set_some(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.set(name, &value);
        }
    }

    /// Ends the stable parts: what follows are the elements of the array `name`.
    #[must_use]
    pub(crate) fn open_array(mut self, name: &str) -> RequestBody {
        self.set(name, &[(); 0]);
        self.0.pop(); // the array stays open
        let end = self.0.len();
        RequestBody { bytes: Arc::new(self.0), ends: vec![end] }
    }
}

/// The whole body; ends inside of its array between requests.
#[derive(Debug)]
pub(crate) struct RequestBody {
    bytes: Arc<Vec<u8>>,
    /// Where the opening and each message end; never empty.
    ends: Vec<usize>,
}

/// The open array: a message may become one element, several, or none.
#[derive(Debug)]
pub(crate) struct Elements<'a>(&'a mut Vec<u8>);

impl Elements<'_> {
    pub(crate) fn add(&mut self, element: &(impl Serialize + ?Sized)) {
        if self.0.last() != Some(&b'[') {
            self.0.push(b',');
        }
        write_json(self.0, element);
    }

    /// Text between elements, for arrays whose elements hold several messages.
    pub(crate) fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }
}

impl RequestBody {
    /// Elements before the first message, e.g. a system prompt that travels as a message.
    pub(crate) fn preface(&mut self, element: &impl Serialize) {
        debug_assert!(self.messages() == 0, "a preface comes before the messages");
        self.push(|elements| elements.add(element));
        self.ends.remove(0);
    }

    /// Appends one message.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Elements<'_>)) {
        let bytes = self.reopened();
        write(&mut Elements(bytes));
        let end = bytes.len();
        self.ends.push(end);
    }

    /// How many messages it holds.
    pub(crate) fn messages(&self) -> usize {
        self.ends.len() - 1
    }

    /// Forgets all messages but the first ones.
    pub(crate) fn truncate(&mut self, messages: usize) {
        self.ends.truncate(messages + 1);
    }

    /// Lends the body behind whose last message `closing` ends everything that is open: `]}` and what stands between.
    pub(crate) fn lend(&mut self, closing: &str) -> Bytes {
        // A retry lends what is lent already.
        if &self.bytes[self.end()..] != closing.as_bytes() {
            self.reopened().extend_from_slice(closing.as_bytes());
        }
        Bytes::from_owner(SharedBytes(Arc::clone(&self.bytes)))
    }

    /// Takes the buffer back (or a copy, if it is still lent) and cuts the tail off.
    fn reopened(&mut self) -> &mut Vec<u8> {
        let end = self.end();
        let bytes = Arc::make_mut(&mut self.bytes);
        bytes.truncate(end);
        bytes
    }

    fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }
}

/// What stands behind the messages. The bound of the answer is in it: unlike all else that was set, it may be another one
/// for each request.
#[derive(Debug)]
pub(crate) struct BodyTail {
    /// Up to where the bound belongs; also what closes the array.
    before: String,
    field: &'static str,
    after: &'static str,
    /// With the bound that was set, if one was.
    usual: String,
}

impl BodyTail {
    pub(crate) fn new(before: &str, field: &'static str, usual: Option<u64>, after: &'static str) -> Self {
        let mut tail = Self { before: before.to_owned(), field, after, usual: String::new() };
        tail.usual = match usual {
            Some(bound) => tail.bounded(bound),
            None => format!("{before}{after}"),
        };
        tail
    }

    /// With this bound, or with the one that was set.
    pub(crate) fn text(&self, bound: Option<u64>) -> Cow<'_, str> {
        bound.map_or(Cow::Borrowed(&self.usual), |bound| Cow::Owned(self.bounded(bound)))
    }

    fn bounded(&self, bound: u64) -> String {
        let Self { before, field, after, .. } = self;
        let comma = if before.ends_with('{') { "" } else { "," };
        format!("{before}{comma}\"{field}\":{bound}{after}")
    }
}

struct SharedBytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn write_json(bytes: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(bytes, value).expect("plain values serialise, and a Vec takes every byte");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> RequestBody {
        let mut fields = BodyFields::default();
        fields.set("model", "m");
        fields.set_some("top_p", None::<f64>);
        fields.open_array("messages")
    }

    fn text(bytes: &Bytes) -> &str {
        str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn messages_are_appended_between_the_opening_and_the_tail() {
        let mut body = body();
        assert_eq!(text(&body.lend("]}")), r#"{"model":"m","messages":[]}"#);
        body.push(|elements| elements.add("a"));
        assert_eq!(text(&body.lend(r#"],"x":1}"#)), r#"{"model":"m","messages":["a"],"x":1}"#);
        body.push(|_| {});
        body.push(|elements| {
            elements.add(&1);
            elements.add(&2);
        });
        assert_eq!(body.messages(), 3);
        assert_eq!(text(&body.lend("]}")), r#"{"model":"m","messages":["a",1,2]}"#);
    }

    #[test]
    fn the_bound_of_the_answer_stands_behind_the_messages() {
        let tail = BodyTail::new("]", "max_tokens", None, "}");
        assert_eq!((&*tail.text(None), &*tail.text(Some(7))), ("]}", r#"],"max_tokens":7}"#));
        let tail = BodyTail::new(r#"],"config":{"#, "most", Some(9), "}}");
        assert_eq!(
            (&*tail.text(None), &*tail.text(Some(7))),
            (r#"],"config":{"most":9}}"#, r#"],"config":{"most":7}}"#)
        );
    }

    #[test]
    fn later_messages_are_forgotten() {
        let mut body = body();
        body.preface(&"system");
        for number in 0..3 {
            body.push(|elements| elements.add(&number));
        }
        body.truncate(7);
        assert_eq!(body.messages(), 3);
        body.truncate(1);
        assert_eq!(text(&body.lend("]}")), r#"{"model":"m","messages":["system",0]}"#);
        body.truncate(0);
        body.push(|elements| elements.add(&9));
        assert_eq!(text(&body.lend("]}")), r#"{"model":"m","messages":["system",9]}"#);
    }

    #[test]
    fn the_buffer_is_taken_back_when_it_was_dropped() {
        let mut body = body();
        body.push(|elements| elements.add(&"x".repeat(1000)));
        // Room for what follows, so that only a copy could move the buffer.
        Arc::get_mut(&mut body.bytes).unwrap().reserve(1000);
        let lent = body.lend("]}");
        let address = lent.as_ptr();
        drop(lent);
        body.push(|elements| elements.add("y"));
        let again = body.lend("]}");
        assert_eq!(again.as_ptr(), address);
        assert!(text(&again).ends_with(r#"x","y"]}"#));
    }

    #[test]
    fn a_body_on_its_way_never_changes() {
        let mut body = body();
        body.push(|elements| elements.add("a"));
        let lent = body.lend("]}");
        assert_eq!(body.lend("]}").as_ptr(), lent.as_ptr(), "a retry needs no copy");
        body.push(|elements| elements.add("b"));
        let grown = body.lend("]}");
        assert_ne!(grown.as_ptr(), lent.as_ptr());
        assert_eq!(text(&lent), r#"{"model":"m","messages":["a"]}"#);
        assert_eq!(text(&grown), r#"{"model":"m","messages":["a","b"]}"#);
    }
}
