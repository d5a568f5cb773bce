//! Bounds on what a run, or a call of an agent, may spend. A limit is a variant, a field and a row of this file: its key in
//! worker files and manifests, its JSON Schema, how it is read, written, lowered and overridden come from the row.

use serde::{Deserialize, Serialize};

use super::manifest::{POSITIVE, SECONDS};
use crate::syntax::claim::Bearing::Neutral;
use crate::syntax::table::Shape::{Integer, OneOf};
use crate::syntax::table::{Fields, Table, optional};

/// An amount that a limit bounds.
trait LimitedAmount: Copy + PartialOrd + ToString {
    fn read(fields: &Fields<'_>, key: &str) -> Option<Self>;

    /// As people read and write it.
    fn figure(self) -> f64;

    fn of_figure(figure: f64) -> Self;
}

impl LimitedAmount for u64 {
    fn read(fields: &Fields<'_>, key: &str) -> Option<Self> {
        fields.count(key)
    }

    #[expect(clippy::cast_precision_loss, reason = "shown to people, and counts are small")]
    fn figure(self) -> f64 {
        self as f64
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and bounded where it is read")]
    fn of_figure(figure: f64) -> Self {
        figure as Self
    }
}

impl LimitedAmount for f64 {
    fn read(fields: &Fields<'_>, key: &str) -> Option<Self> {
        fields.number(key)
    }

    fn figure(self) -> f64 {
        self
    }

    fn of_figure(figure: f64) -> Self {
        figure
    }
}

fn least<T: LimitedAmount>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// What can be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limit {
    /// Requests to models.
    Requests,
    /// Calls of tools.
    ToolCalls,
    /// Tokens that are sent.
    InputTokens,
    /// Tokens that are received.
    OutputTokens,
    /// Money.
    Cost,
    /// Time.
    Time,
}

/// Bounds on a run, or on each call of an agent, and what happens there. `None`: no bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The most requests to models.
    pub max_requests: Option<u64>,
    /// The most calls of tools.
    pub max_tool_calls: Option<u64>,
    /// The most tokens that are sent.
    pub max_input_tokens: Option<u64>,
    /// The most tokens that are received.
    pub max_output_tokens: Option<u64>,
    /// The most money, in dollars.
    pub max_cost_usd: Option<f64>,
    /// The longest time, in seconds.
    pub timeout_seconds: Option<f64>,
    /// What happens where one of the others is reached. `None`: what holds for the run; if that says nothing, it stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<OnLimit>,
}

/// What happens where a limit is reached. Time always stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// A person is asked how far to raise it.
    Ask,
    /// The call, or the run, ends.
    Stop,
    /// The model is asked once more, without tools, to finish with what it has: what that takes is kept back from the
    /// beginning.
    WrapUp,
}

impl OnLimit {
    /// The words for it in files.
    pub(crate) const WORDS: &[&str] = &["ask", "stop", "wrap_up"];

    /// What exactly this word means; `None` if it is none of [`OnLimit::WORDS`].
    fn parse(word: &str) -> Option<Self> {
        match word {
            "ask" => Some(Self::Ask),
            "stop" => Some(Self::Stop),
            "wrap_up" => Some(Self::WrapUp),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Stop => "stop",
            Self::WrapUp => "wrap_up",
        }
    }
}

/// What follows from the rows; a limit without a row does not compile.
macro_rules! limits {
    ($($limit:ident $key:ident $shape:expr, $what:literal;)*) => {
        impl Limit {
            /// As it is called in files, flags and events.
            pub(crate) const fn key(self) -> &'static str {
                match self {
                    $(Self::$limit => stringify!($key),)*
                }
            }

            /// The one that is called like this.
            pub(crate) fn of_key(key: &str) -> Option<Self> {
                $(if key == stringify!($key) {
                    return Some(Self::$limit);
                })*
                None
            }
        }

        impl Limits {
            /// These, and others where these say nothing.
            #[must_use]
            pub fn or(&self, others: &Self) -> Self {
                Self { $($key: self.$key.or(others.$key),)* on_limit: self.on_limit.or(others.on_limit) }
            }

            /// The lower one of each. What happens there is what these say: no answer makes a limit higher but a person's.
            pub(super) fn lower(&self, others: &Self) -> Self {
                Self { $($key: least(self.$key, others.$key),)* on_limit: self.on_limit.or(others.on_limit) }
            }

            /// How much one of them allows.
            pub(crate) fn amount(&self, limit: Limit) -> Option<f64> {
                match limit {
                    $(Limit::$limit => self.$key.map(LimitedAmount::figure),)*
                }
            }

            /// The same with another amount.
            pub(crate) fn set_amount(&mut self, limit: Limit, figure: f64) {
                match limit {
                    $(Limit::$limit => self.$key = Some(LimitedAmount::of_figure(figure)),)*
                }
            }

            pub(super) fn read(fields: &Fields<'_>) -> Self {
                let on_limit = fields.text("on_limit").and_then(|word| OnLimit::parse(&word.value));
                Self { $($key: LimitedAmount::read(fields, stringify!($key)),)* on_limit }
            }

            /// Each by its key, as it is written in a file.
            pub(super) fn written(&self) -> Vec<(&'static str, Option<String>)> {
                let on_limit = self.on_limit.map(|on_limit| on_limit.word().to_owned());
                vec![$((stringify!($key), self.$key.map(|amount| amount.to_string())),)* ("on_limit", on_limit)]
            }
        }

        /// The keys of `limits` in a file.
        pub(super) const LIMITS: Table = Table {
            what: "`limits`",
            keys: &[
                $(optional(stringify!($key), $shape, Neutral, $what),)*
                optional("on_limit", OneOf(OnLimit::WORDS), Neutral, "what happens where one of them is reached"),
            ],
        };
    };
}

limits! {
    Requests max_requests Integer { min: 1 }, "model requests";
    ToolCalls max_tool_calls Integer { min: 0 }, "tool calls";
    InputTokens max_input_tokens Integer { min: 1 }, "tokens sent";
    OutputTokens max_output_tokens Integer { min: 1 }, "tokens received";
    Cost max_cost_usd POSITIVE, "money";
    Time timeout_seconds SECONDS, "time";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_wins_and_the_rest_stays() {
        let flags = Limits { max_requests: Some(9), timeout_seconds: Some(0.5), ..Limits::default() };
        let manifest = Limits { max_requests: Some(3), max_tool_calls: Some(0), ..Limits::default() };
        let both = Limits { max_requests: Some(9), max_tool_calls: Some(0), ..flags.clone() };
        assert_eq!(flags.or(&manifest), both);
        assert_eq!(flags.lower(&manifest), Limits { max_requests: Some(3), ..both });
    }

    #[test]
    fn a_limit_is_called_as_its_key() {
        let keys: Vec<&str> = LIMITS.keys.iter().map(|key| key.name).collect();
        let limits = serde_json::to_value(Limits::default()).unwrap();
        assert!(limits.as_object().unwrap().keys().all(|field| keys.contains(&field.as_str())));
        assert_eq!(Limit::Cost.key(), "max_cost_usd");
        for word in OnLimit::WORDS {
            assert_eq!(OnLimit::parse(word).map(OnLimit::word), Some(*word));
        }
    }
}
