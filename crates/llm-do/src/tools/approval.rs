//! Who has to agree before a tool runs: verdicts and the rules of one agent for its tools.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a rule of a worker file or a manifest says about a tool: `allow`, `ask` or `block`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Allow,
    Ask,
    Block,
}

impl Rule {
    pub const WORDS: &[&str] = &["allow", "ask", "block"];

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "allow" => Some(Self::Allow),
            "ask" => Some(Self::Ask),
            "block" => Some(Self::Block),
            _ => None,
        }
    }

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

/// What is known of a tool's verdict before it is called.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredVerdict {
    Allow,
    Ask,
    /// Asked each time: no rule and no earlier answer allows it.
    AlwaysAsk,
    Block,
    /// Depends on the command: the first pattern that matches decides.
    ByCommand(Vec<CommandVerdict>),
    /// Only its code knows.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommandVerdict {
    pub pattern: String,
    pub verdict: Rule,
}

impl DeclaredVerdict {
    /// A rule may loosen an `Ask` or tighten an `Allow`; what always asks or is blocked stays.
    #[must_use]
    pub fn under(self, rule: Option<Rule>) -> Self {
        match (self, rule) {
            (verdict, None) => verdict,
            (Self::Block, _) | (_, Some(Rule::Block)) => Self::Block,
            (Self::AlwaysAsk, Some(Rule::Allow | Rule::Ask)) => Self::AlwaysAsk,
            (Self::ByCommand(commands), Some(rule)) => {
                let tightened = commands.into_iter().map(|command| CommandVerdict {
                    verdict: if command.verdict == Rule::Block { Rule::Block } else { rule },
                    ..command
                });
                Self::ByCommand(tightened.collect())
            }
            (Self::Allow | Self::Ask | Self::Unknown, Some(Rule::Allow)) => Self::Allow,
            (Self::Allow | Self::Ask | Self::Unknown, Some(Rule::Ask)) => Self::Ask,
        }
    }

    /// Whether nothing runs without a question.
    pub fn always_asks(&self) -> bool {
        match self {
            Self::Allow | Self::Block | Self::Unknown => false,
            Self::Ask | Self::AlwaysAsk => true,
            Self::ByCommand(commands) => !commands.iter().any(|command| command.verdict == Rule::Allow),
        }
    }

    /// Whether a call can happen at all.
    pub fn can_run(&self) -> bool {
        match self {
            Self::Allow | Self::Ask | Self::AlwaysAsk | Self::Unknown => true,
            Self::Block => false,
            Self::ByCommand(commands) => commands.iter().any(|command| command.verdict != Rule::Block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_never_lifts_a_block_nor_what_always_asks() {
        use DeclaredVerdict::{Allow, AlwaysAsk, Ask, Block, Unknown};
        let cases = [
            (Allow, None, Allow),
            (Allow, Some(Rule::Ask), Ask),
            (Ask, Some(Rule::Allow), Allow),
            (Ask, Some(Rule::Block), Block),
            (AlwaysAsk, Some(Rule::Allow), AlwaysAsk),
            (AlwaysAsk, Some(Rule::Block), Block),
            (Block, Some(Rule::Allow), Block),
            (Unknown, None, Unknown),
            (Unknown, Some(Rule::Allow), Allow),
        ];
        for (verdict, rule, expected) in cases {
            assert_eq!(verdict.clone().under(rule), expected, "{verdict:?} under {rule:?}");
        }
        let command = |verdict| CommandVerdict { pattern: "ls".into(), verdict };
        let shell = DeclaredVerdict::ByCommand(vec![command(Rule::Allow), command(Rule::Block)]);
        let asked = DeclaredVerdict::ByCommand(vec![command(Rule::Ask), command(Rule::Block)]);
        assert_eq!(shell.under(Some(Rule::Ask)), asked);
    }
}
