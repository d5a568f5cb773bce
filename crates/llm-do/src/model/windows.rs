//! How much models take and say: their windows, and their longest answers.
//!
//! `windows.txt` is a list that we keep: `cargo run -p price-table` writes it from its own rows and holds them against
//! the prices. A model is looked up as for its price: by its whole name, then without what marks a version of it.

use super::name::ModelName;
use super::prices::{find, listed_as};

/// How much a model takes and says, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Input and answer together.
    pub window: u64,
    pub longest_answer: u64,
}

/// What a model is taken to answer at most if the table does not have it.
pub(crate) const USUAL_LONGEST_ANSWER: u64 = 32_000;

/// `name window longest_answer` lines in the order of their names, after comments. ASCII.
const TABLE: &str = include_str!("windows.txt");

impl Window {
    /// The window of a model; `None` if the list has neither its whole name nor one without a version.
    pub fn of(model: &ModelName) -> Option<Self> {
        listed_as(model).find_map(|name| Self::read(find(TABLE, &name)?))
    }

    fn read(text: &str) -> Option<Self> {
        let (window, longest_answer) = text.split_once(' ')?;
        Some(Self { window: window.parse().ok()?, longest_answer: longest_answer.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_as_their_prices_are() {
        let answer = |name: &str| Window::of(&ModelName::parse(name).unwrap()).map(|window| window.longest_answer);
        let known = [
            ("anthropic:claude-haiku-4-5-20251001", 64_000),
            ("Anthropic:Claude-Haiku-4-5", 64_000),
            ("openai-chat:gpt-4o", 16_384),
            ("azure:gpt-4o-2024-11-20", 16_384),
            ("google:gemini-2.5-pro", 65_536),
            ("google-vertex:gemini-2.5-pro", 65_536),
        ];
        for (name, tokens) in known {
            assert_eq!(answer(name), Some(tokens), "{name}");
        }
        assert_eq!(answer("acme:rocket-1"), None);
        assert_eq!(answer("anthropic:claude"), None);
    }
}
