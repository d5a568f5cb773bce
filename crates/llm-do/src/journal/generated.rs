//! Values of every sort that a step can give, the hard ones often; and the property that they must have.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::tests::Memory;
use super::{Journal, StepDescription, StepKind, StepValue, Steps, Stop};
use crate::event::Events;
use crate::message::{
    Arguments, Attachment, Content, Finish, Message, RawJson, Reply, ReplyPart, ServerToolPart, TextPart, ThinkingPart,
    ToolCall, ToolResult, Usage, UserMessage,
};

/// As many as the design asks for.
const CASES: usize = 10_000;

/// What a record gives back is what was there when it was made: of 10 000 values, through the same engine and the same
/// code as in a run. `comparable` leaves out what is never recorded.
pub(crate) fn assert_replayed_is_live<T: StepValue + Clone + PartialEq + Debug>(
    mut make: impl FnMut(&mut Generator, &Steps) -> T,
    comparable: impl Fn(T) -> T,
) {
    let (mut generator, events) = (Generator(fastrand::Rng::with_seed(7)), Events::unheard());
    let engine = Arc::new(Memory::default());
    let root = Steps::recorded_by(Arc::clone(&engine) as Arc<dyn Journal>).at(format_args!("main"));
    for number in 0..CASES {
        let steps = root.at(format_args!("c{number}"));
        let made = make(&mut generator, &steps);
        let taken = |value: Option<T>| {
            let effect = async { value.ok_or(Stop::Failed) };
            let described = || StepDescription::new(StepKind::Tool, &"request");
            let taken = steps.here(&events).step(described, |_| effect).now_or_never().expect("nothing waits");
            comparable(taken.unwrap_or_else(|stop| panic!("{stop}: {made:?}")))
        };
        let (live, replayed) = (taken(Some(made.clone())), taken(None));
        assert_eq!(live, replayed, "value {number}");
        let line = engine.line(steps.path());
        assert!(!line.contains(['\n', '\r']), "one line: {line}");
    }
}

/// Makes values.
pub(crate) struct Generator(pub fastrand::Rng);

const PIECES: &[&str] = &[
    "",
    "a",
    " ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "\"",
    "\\",
    "/",
    "\0",
    "\u{7f}",
    "\u{2028}",
    "\u{2029}",
    "\u{feff}",
    "é",
    "e\u{301}",
    "\u{10ffff}",
    "😀",
    "{",
    "}",
    "[1,",
    "null",
    "```json\n{\"a\": 1}\n```",
    "\\u0000",
    "\\ud83d",
    "%s",
    "\u{1b}[31m",
    ",\"mac\":\"",
    "value",
];

const SCALARS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "0.1",
    "1e5",
    "1E-7",
    "1e400",
    "-1.5e-400",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "123456789012345678901234567890.123456789",
    "0.30000000000000004",
    "\"\"",
    r#""\ud83d\ude00""#,
    r#""\ud800""#,
    r#""\u0000\n\/""#,
    r#""é""#,
    "\"\u{2028}\"",
];

const BLANKS: &[&str] = &["", "", "", " ", "\n", "\r\n", "\t", "\r"];

impl Generator {
    pub(crate) fn number(&mut self, below: usize) -> usize {
        self.0.usize(..below)
    }

    pub(crate) fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.number(choices.len())].clone()
    }

    pub(crate) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.bool().then(|| make(self))
    }

    pub(crate) fn list<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.number(most + 1)).map(|_| make(self)).collect()
    }

    pub(crate) fn text(&mut self) -> String {
        self.list(4, |generator| generator.one_of(PIECES)).concat()
    }

    /// Any JSON, also on many lines.
    pub(crate) fn json(&mut self) -> RawJson {
        let text = self.json_text(3);
        RawJson::parse(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    /// A JSON object without repeated keys.
    pub(crate) fn object(&mut self) -> RawJson {
        let text = self.object_text(2);
        RawJson::parse(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    fn json_text(&mut self, depth: usize) -> String {
        match self.number(if depth == 0 { 2 } else { 4 }) {
            0 => self.one_of(SCALARS).to_owned(),
            1 => RawJson::of(&self.text()).get().to_owned(),
            2 => {
                let items =
                    self.list(3, |generator| format!("{}{}", generator.one_of(BLANKS), generator.json_text(depth - 1)));
                format!("[{}{}]", items.join(","), self.one_of(BLANKS))
            }
            _ => self.object_text(depth - 1),
        }
    }

    fn object_text(&mut self, depth: usize) -> String {
        let mut number = 0;
        let members = self.list(3, |generator| {
            number += 1;
            let key = RawJson::of(&format!("{number}{}", generator.text()));
            let [before, behind] = [(); 2].map(|()| generator.one_of(BLANKS));
            format!("{before}{}{behind}:{behind}{}", key.get(), generator.json_text(depth))
        });
        format!("{{{}{}}}", members.join(","), self.one_of(BLANKS))
    }

    pub(crate) fn content(&mut self) -> Content {
        match self.number(4) {
            0 => Content::Text { text: self.text() },
            1 => Content::Value { json: self.json_text(2) },
            2 => Content::Attachment(self.picture()),
            _ => Content::Attachment(Attachment { data: Arc::from([]), ..self.picture() }),
        }
    }

    pub(crate) fn contents(&mut self) -> Vec<Content> {
        self.list(3, Self::content)
    }

    fn picture(&mut self) -> Attachment {
        let media_type = self.one_of(&["image/png", "application/pdf", "text/plain", ""]).to_owned();
        let data: Vec<u8> = self.list(40, |generator| generator.0.u8(..));
        Attachment { name: self.text(), path: self.maybe(Self::text), media_type, data: data.into() }
    }

    fn usage(&mut self) -> Usage {
        let mut number = || self.one_of(&[0, 0, 1, 655, u64::MAX]);
        let (requests, input_tokens, output_tokens) = (number(), number(), number());
        let (cache_read_tokens, cache_write_tokens, reasoning_tokens) = (number(), number(), number());
        let (unanswered, estimated) = (number(), number());
        let cost_usd = self.maybe(|generator| generator.0.f64() * generator.one_of(&[0.0, 1e-12, 1.0, 1e300]));
        Usage {
            requests,
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            reasoning_tokens,
            cost_usd,
            unanswered,
            estimated,
        }
    }

    pub(crate) fn tool_call(&mut self) -> ToolCall {
        let arguments = match self.number(3) {
            0 => Arguments::Malformed(self.text()),
            _ => Arguments::Object(self.object()),
        };
        ToolCall { id: self.text(), tool: self.text(), arguments, private: self.maybe(Self::json) }
    }

    fn reply_part(&mut self) -> ReplyPart {
        match self.number(5) {
            0 => ReplyPart::Text(TextPart { text: self.text(), private: self.maybe(Self::json) }),
            1 => ReplyPart::Thinking(ThinkingPart { text: self.text(), private: self.maybe(Self::json) }),
            2 => ReplyPart::Refusal(TextPart { text: self.text(), private: self.maybe(Self::json) }),
            3 => ReplyPart::ServerTool(ServerToolPart {
                tool: self.text(),
                input: self.maybe(Self::json),
                output: self.maybe(Self::json),
                private: self.maybe(Self::json),
            }),
            _ => ReplyPart::ToolCall(self.tool_call()),
        }
    }

    pub(crate) fn reply(&mut self) -> Reply {
        use Finish::{ContentFilter, ContextWindow, Error, Length, Pause, Stop, ToolCalls};
        Reply {
            parts: self.list(4, Self::reply_part),
            model: self.text(),
            finish: self.one_of(&[Stop, Length, ContextWindow, ToolCalls, ContentFilter, Pause, Error]),
            finish_reason: self.maybe(Self::text),
            usage: self.usage(),
        }
    }

    pub(crate) fn message(&mut self) -> Message {
        match self.number(3) {
            0 => Message::User(UserMessage { parts: self.contents() }),
            1 => Message::Assistant(self.reply()),
            _ => Message::tool_results(self.list(3, |generator| ToolResult {
                id: generator.text(),
                tool: generator.text(),
                outcome: if generator.0.bool() { Ok(generator.contents()) } else { Err(generator.text()) },
            })),
        }
    }
}

#[test]
fn what_a_message_or_a_function_was_given_is_replayed_as_it_was() {
    assert_replayed_is_live(|generator, _| generator.contents(), |contents| contents);
    assert_replayed_is_live(|generator, _| (generator.json(), generator.contents()), |given| given);
}
