//! Bounds on what a run, or a call of an agent, may spend. A limit is a variant, a field and a row of this file: its key in
//! worker files and manifests, its JSON Schema, how it is read, written, lowered and overridden come from the row.

use serde::{Deserialize, Serialize};

use super::manifest::{POSITIVE, SECONDS};
use crate::syntax::claim::Bearing::Neutral;
use crate::syntax::table::Shape::Integer;
use crate::syntax::table::{Fields, Table, optional};

/// An amount that a limit bounds.
trait LimitedAmount: Copy + PartialOrd + ToString {
    fn read(fields: &Fields<'_>, key: &str) -> Option<Self>;
}

impl LimitedAmount for u64 {
    fn read(fields: &Fields<'_>, key: &str) -> Option<Self> {
        fields.count(key)
    }
}

impl LimitedAmount for f64 {
    fn read(fields: &Fields<'_>, key: &str) -> Option<Self> {
        fields.number(key)
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
pub enum Limit {
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

/// Bounds on a run, or on each call of an agent. `None`: no bound.
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
}

/// What follows from the rows; a limit without a row does not compile.
macro_rules! limits {
    ($($limit:ident $key:ident $shape:expr, $what:literal;)*) => {
        impl Limit {
            /// As it is called in files, flags and events.
            pub const fn key(self) -> &'static str {
                match self {
                    $(Self::$limit => stringify!($key),)*
                }
            }
        }

        impl Limits {
            /// These, and others where these say nothing.
            #[must_use]
            pub fn or(&self, others: &Self) -> Self {
                Self { $($key: self.$key.or(others.$key),)* }
            }

            /// The lower one of each.
            pub(super) fn lower(&self, others: &Self) -> Self {
                Self { $($key: least(self.$key, others.$key),)* }
            }

            pub(super) fn read(fields: &Fields<'_>) -> Self {
                Self { $($key: LimitedAmount::read(fields, stringify!($key)),)* }
            }

            /// Each by its key, as it is written in a file.
            pub(super) fn written(&self) -> Vec<(&'static str, Option<String>)> {
                vec![$((stringify!($key), self.$key.map(|amount| amount.to_string())),)*]
            }
        }

        /// The keys of `limits` in a file.
        pub(super) const LIMITS: Table =
            Table { what: "`limits`", keys: &[$(optional(stringify!($key), $shape, Neutral, $what),)*] };
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
    }
}
