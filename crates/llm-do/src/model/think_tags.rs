//! Thinking that a model writes into its text, between `<think>` and `</think>` at the very beginning.
//!
//! The tags may be split over deltas: what could still become a tag is held back, and nothing else.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// White space before the tag; more is not looked at, for it would be looked at again with every delta.
const LONGEST_INDENT: usize = 64;

/// A piece of text, told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaggedText<'a> {
    Text(&'a str),
    Thinking(&'a str),
}

/// Tells the pieces of one text apart as they come.
#[derive(Debug, Default)]
pub(crate) struct ThinkTags {
    place: TagState,
    held: String,
}

#[derive(Debug, Default)]
enum TagState {
    /// Nothing but white space and perhaps a part of the opening tag so far.
    #[default]
    Beginning,
    Thinking,
    /// Behind the closing tag: white space there separates and is not text.
    Gap,
    Text,
}

impl ThinkTags {
    pub(crate) fn push(&mut self, text: &str, tell: &mut dyn FnMut(TaggedText<'_>)) {
        match self.place {
            TagState::Beginning => self.begin(text, tell),
            TagState::Thinking => self.think(text, tell),
            TagState::Gap => self.leave_gap(text, tell),
            TagState::Text => say(TaggedText::Text(text), tell),
        }
    }

    /// What was held back was no tag after all.
    pub(crate) fn finish(&mut self, tell: &mut dyn FnMut(TaggedText<'_>)) {
        let held = std::mem::take(&mut self.held);
        match self.place {
            TagState::Thinking => say(TaggedText::Thinking(&held), tell),
            TagState::Beginning | TagState::Gap | TagState::Text => say(TaggedText::Text(&held), tell),
        }
    }

    fn begin(&mut self, text: &str, tell: &mut dyn FnMut(TaggedText<'_>)) {
        self.held.push_str(text);
        let begun = self.held.trim_start();
        let indent = self.held.len() - begun.len();
        if let (Some(inside), 0..=LONGEST_INDENT) = (begun.strip_prefix(OPEN), indent) {
            let inside = inside.to_owned();
            self.held.clear();
            self.place = TagState::Thinking;
            self.think(&inside, tell);
        } else if !OPEN.starts_with(begun) || indent > LONGEST_INDENT {
            self.place = TagState::Text;
            say(TaggedText::Text(&std::mem::take(&mut self.held)), tell);
        }
    }

    fn think(&mut self, text: &str, tell: &mut dyn FnMut(TaggedText<'_>)) {
        let mut whole = std::mem::take(&mut self.held);
        whole.push_str(text);
        if let Some((thinking, rest)) = whole.split_once(CLOSE) {
            say(TaggedText::Thinking(thinking), tell);
            self.place = TagState::Gap;
            self.leave_gap(rest, tell);
            return;
        }
        let held = (1..CLOSE.len()).rev().find(|length| whole.ends_with(&CLOSE[..*length])).unwrap_or(0);
        let (sure, perhaps) = whole.split_at(whole.len() - held);
        say(TaggedText::Thinking(sure), tell);
        self.held.push_str(perhaps);
    }

    fn leave_gap(&mut self, text: &str, tell: &mut dyn FnMut(TaggedText<'_>)) {
        let text = text.trim_start();
        if !text.is_empty() {
            self.place = TagState::Text;
            tell(TaggedText::Text(text));
        }
    }
}

fn say(piece: TaggedText<'_>, tell: &mut dyn FnMut(TaggedText<'_>)) {
    let (TaggedText::Text(text) | TaggedText::Thinking(text)) = piece;
    if !text.is_empty() {
        tell(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(chunks: &[&str]) -> (String, String) {
        let (mut thinking, mut text) = (String::new(), String::new());
        let mut tags = ThinkTags::default();
        let mut tell = |piece: TaggedText<'_>| match piece {
            TaggedText::Text(piece) => text.push_str(piece),
            TaggedText::Thinking(piece) => thinking.push_str(piece),
        };
        for chunk in chunks {
            tags.push(chunk, &mut tell);
        }
        tags.finish(&mut tell);
        (thinking, text)
    }

    #[test]
    fn leading_tags_are_told_apart_however_they_are_split() {
        let cases = [
            ("plain", "", "plain"),
            ("", "", ""),
            ("  text", "", "  text"),
            ("<think>a</think>b", "a", "b"),
            ("\n<think>\na é</think>\n\nb", "\na é", "b"),
            ("<think>cut", "cut", ""),
            ("<think>a</thin", "a</thin", ""),
            ("<think></think>b", "", "b"),
            ("<thin", "", "<thin"),
            ("<thinking>a", "", "<thinking>a"),
            ("a <think>b</think>", "", "a <think>b</think>"),
            ("<think>a</think>b</think>", "a", "b</think>"),
        ];
        for (whole, thinking, text) in cases {
            let expected = (thinking.to_owned(), text.to_owned());
            assert_eq!(told(&[whole]), expected, "{whole:?}");
            let letters: Vec<String> = whole.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(told(&letters), expected, "{whole:?}");
        }
    }
}
