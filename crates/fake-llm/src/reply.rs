//! What the model says: the content of one reply, in no provider's words.

use serde_json::Value;

/// One reply of the model. Built from a first piece of content and what follows it, in the order given:
/// `FakeReply::thinking("hm", "sig").and_text("I look.").and_calls([FakeCall::new("list", json!({}))])`.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeReply {
    pub(crate) blocks: Vec<Block>,
    pub(crate) finish: FakeFinish,
    pub(crate) usage: FakeUsage,
    pub(crate) deltas: Deltas,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    Text(String),
    Refusal(String),
    Thinking { text: String, signature: String },
    RedactedThinking { payload: String },
    Call(FakeCall),
    Native(Value),
}

/// How the pieces of a stream are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deltas {
    /// Every text, thought and argument document in so many pieces of about equal length.
    Split(usize),
    /// Every text is one piece, sent so many times.
    Repeat(usize),
}

/// Why the model stopped, in no provider's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeFinish {
    /// It was done, or it waits for the results of its calls.
    Natural,
    /// The limit of tokens was reached.
    Length,
    /// It refused, or a filter did.
    Refusal,
    /// The provider interrupted a long turn and wants to be asked again (Anthropic `pause_turn`).
    Pause,
    /// A word that clients do not know.
    Unheard(String),
}

/// The tokens of one reply, each counted once: `input` excludes what came from or went to a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakeUsage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// The part of `output` that was thinking.
    pub reasoning: u64,
}

/// One tool call of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeCall {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl FakeUsage {
    pub const fn new(input: u64, output: u64) -> Self {
        Self { input, output, cache_read: 0, cache_write: 0, reasoning: 0 }
    }
}

impl FakeCall {
    /// A call with an id that is made up when it is served, another one each time.
    pub fn new(name: &str, arguments: impl Into<Value>) -> Self {
        Self::malformed(name, &arguments.into().to_string())
    }

    /// A call whose arguments are sent exactly as written, JSON or not.
    pub fn malformed(name: &str, arguments: &str) -> Self {
        Self { id: None, name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[must_use]
    pub fn with_id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }
}

impl FakeReply {
    /// Streamed content comes in this many pieces unless the test says otherwise: in more than one, so that a client
    /// that expects a single piece fails.
    const USUAL_DELTAS: Deltas = Deltas::Split(3);

    pub fn text(text: &str) -> Self {
        Self::of([Block::Text(text.to_owned())])
    }

    /// `piece`, `times` times over, each time as one delta of a stream.
    pub fn repeated(piece: &str, times: usize) -> Self {
        Self { deltas: Deltas::Repeat(times), ..Self::text(piece) }
    }

    pub fn calls(calls: impl IntoIterator<Item = FakeCall>) -> Self {
        Self::of(calls.into_iter().map(Block::Call))
    }

    pub fn thinking(text: &str, signature: &str) -> Self {
        Self::of([Block::Thinking { text: text.to_owned(), signature: signature.to_owned() }])
    }

    pub fn refusal(words: &str) -> Self {
        Self::of([Block::Refusal(words.to_owned())]).finishing(FakeFinish::Refusal)
    }

    /// A turn the provider interrupted: what was said so far.
    pub fn paused(text: &str) -> Self {
        Self::text(text).finishing(FakeFinish::Pause)
    }

    /// A turn that ends without a word.
    pub fn empty() -> Self {
        Self::of([])
    }

    #[must_use]
    pub fn and_text(self, text: &str) -> Self {
        self.and([Block::Text(text.to_owned())])
    }

    #[must_use]
    pub fn and_calls(self, calls: impl IntoIterator<Item = FakeCall>) -> Self {
        self.and(calls.into_iter().map(Block::Call))
    }

    #[must_use]
    pub fn and_thinking(self, text: &str, signature: &str) -> Self {
        self.and([Block::Thinking { text: text.to_owned(), signature: signature.to_owned() }])
    }

    /// Thinking that the provider shows only in encrypted form.
    #[must_use]
    pub fn and_redacted_thinking(self, payload: &str) -> Self {
        self.and([Block::RedactedThinking { payload: payload.to_owned() }])
    }

    /// A content block in the provider's own words (a server tool, say), which a client must return unmodified.
    /// Protocols without such blocks leave it out.
    #[must_use]
    pub fn and_native(self, block: Value) -> Self {
        self.and([Block::Native(block)])
    }

    #[must_use]
    pub fn finishing(mut self, finish: FakeFinish) -> Self {
        self.finish = finish;
        self
    }

    #[must_use]
    pub fn with_usage(mut self, usage: FakeUsage) -> Self {
        self.usage = usage;
        self
    }

    /// Streams every text, thought and argument document in `count` pieces (at most one for each character).
    #[must_use]
    pub fn in_deltas(mut self, count: usize) -> Self {
        self.deltas = Deltas::Split(count);
        self
    }

    fn of(blocks: impl IntoIterator<Item = Block>) -> Self {
        let blocks = blocks.into_iter().collect();
        Self { blocks, finish: FakeFinish::Natural, usage: FakeUsage::new(10, 5), deltas: Self::USUAL_DELTAS }
    }

    fn and(mut self, blocks: impl IntoIterator<Item = Block>) -> Self {
        self.blocks.extend(blocks);
        self
    }

    /// Gives an id to each call that has none.
    pub(crate) fn name_calls(&mut self, mut fresh: impl FnMut() -> String) {
        for block in &mut self.blocks {
            if let Block::Call(call) = block {
                call.id.get_or_insert_with(&mut fresh);
            }
        }
    }

    pub(crate) fn tool_calls(&self) -> impl Iterator<Item = &FakeCall> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call(call) => Some(call),
            Block::Text(_)
            | Block::Refusal(_)
            | Block::Thinking { .. }
            | Block::RedactedThinking { .. }
            | Block::Native(_) => None,
        })
    }
}

impl Deltas {
    /// The whole of `text` as a document shows it.
    pub(crate) fn whole(self, text: &str) -> String {
        match self {
            Self::Split(_) => text.to_owned(),
            Self::Repeat(times) => text.repeat(times),
        }
    }

    /// `text` as a stream shows it.
    pub(crate) fn pieces(self, text: &str) -> Vec<&str> {
        match self {
            Self::Split(count) => split(text, count),
            Self::Repeat(times) => vec![text; times],
        }
    }

    /// A thought or an argument document as a stream shows it: these are never repeated.
    pub(crate) fn split(self, text: &str) -> Vec<&str> {
        match self {
            Self::Split(count) => split(text, count),
            Self::Repeat(_) => split(text, 1),
        }
    }
}

/// `text` in `count` pieces of about equal length, none of them empty.
fn split(text: &str, count: usize) -> Vec<&str> {
    let length = text.chars().count();
    let count = count.clamp(1, length.max(1));
    let mut pieces = Vec::with_capacity(count);
    let mut rest = text;
    for index in 0..count {
        // The rounding is spread over the pieces: piece `index` ends at this share of all characters.
        let size = length * (index + 1) / count - length * index / count;
        let end = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        if !piece.is_empty() {
            pieces.push(piece);
        }
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_between_characters_and_nothing_is_lost() {
        for (text, count, expected) in [
            ("", 3, vec![]),
            ("hello", 1, vec!["hello"]),
            ("hello", 2, vec!["he", "llo"]),
            ("añ€😀", 4, vec!["a", "ñ", "€", "😀"]),
            ("ab", 20_000, vec!["a", "b"]),
            ("ab", 0, vec!["ab"]),
        ] {
            assert_eq!(split(text, count), expected, "{text:?} in {count}");
        }
    }

    #[test]
    fn a_repeated_piece_is_one_delta_each_time() {
        let deltas = Deltas::Repeat(3);
        assert_eq!((deltas.pieces("ab"), deltas.whole("ab")), (vec!["ab"; 3], "ababab".to_owned()));
    }
}
