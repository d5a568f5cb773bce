//! What rules say about a call, and whose they are. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a rule of a worker file or a manifest says about a tool: `allow`, `ask` or `block`.
/// Ordered from the most to the least that is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The call runs without a question.
    Allow,
    /// A person is asked.
    Ask,
    /// The call does not run.
    Block,
}

impl Rule {
    /// The words for it in files, from the most to the least that is let through.
    pub(crate) const WORDS: &[&str] = &["allow", "ask", "block"];

    /// The rule that exactly this word means; `None` if it is none of `Rule::WORDS`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "allow" => Some(Self::Allow),
            "ask" => Some(Self::Ask),
            "block" => Some(Self::Block),
            _ => None,
        }
    }

    /// The word for it in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Block => "block",
        }
    }
}

/// One agent's rules for the tools of one toolset, by tool name.
pub type Rules = BTreeMap<String, Rule>;

/// What several rules say together: the strictest of those that say anything.
pub(crate) fn strictest(rules: impl IntoIterator<Item = Option<Rule>>) -> Option<Rule> {
    rules.into_iter().flatten().max()
}

/// A lasting rule that speaks of a call, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedRule {
    /// What it says.
    pub rule: Rule,
    /// File and line: `rules.toml:12`.
    pub place: Arc<str>,
}

/// What rules say about one call, by whose they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voices {
    /// Of definitions that choose some tools of a toolset.
    pub variant: Option<Rule>,
    /// Of the agent, for the tool.
    pub worker: Option<Rule>,
    /// Of the project's manifest, for such calls.
    pub manifest: Option<PlacedRule>,
    /// The user's own that asks or blocks.
    pub yours: Option<PlacedRule>,
    /// The organisation's that asks or blocks.
    pub organisation: Option<PlacedRule>,
    /// Where the user's own lasting `allow` stands, which answers a question and is no verdict.
    pub allowance: Option<Arc<str>>,
    /// Only a person can answer it, now or later: no rule, no answer for the session, and not the approval of everything.
    pub person_only: bool,
}

/// Where the rules of an agent for a toolset stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RulePlaces {
    /// The agent's own file.
    pub file: Option<String>,
    /// Where those stand that are not in it, by tool.
    pub elsewhere: BTreeMap<String, String>,
}

impl RulePlaces {
    pub(crate) fn of(&self, tool: &str) -> Option<&str> {
        self.elsewhere.get(tool).or(self.file.as_ref()).map(String::as_str)
    }
}
