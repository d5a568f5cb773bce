//! What a file asks of the user who runs it. Each key of a format says that it asks for nothing, or names the
//! function that says what it asks for: a key of which neither is said does not compile.

use serde::Serialize;

use super::diagnostic::{Located, Span};
use super::table::Fields;
use super::tree::Node;

/// What a key means to the user who runs the file.
#[derive(Clone, Copy)]
pub(crate) enum Bearing {
    /// It asks for nothing: a name, a prompt, a schema, a bound, or whatever only tightens.
    Neutral,
    /// The keys of its value say it, each for itself.
    Inside,
    /// The item of a key beside or around it covers it.
    Covered,
    /// Something that the user has to agree to, depending on its value.
    Item(Claiming),
}

/// Adds what a key asks for.
pub(crate) type Claiming = fn(&WrittenKey<'_>, &mut Vec<Located<Claim>>);

/// A key as it was written.
pub(crate) struct WrittenKey<'a> {
    /// The mapping that it stands in.
    pub beside: &'a Fields<'a>,
    /// Where the key itself stands.
    pub span: Span,
    pub value: &'a Node,
    /// The free names on the way to it: `hub` of `toolsets.hub.mcp`.
    pub names: &'a [&'a str],
}

impl WrittenKey<'_> {
    /// The nearest free name on the way.
    pub(crate) fn name(&self) -> &str {
        self.names.first().copied().unwrap_or_default()
    }
}

/// The kinds of claims, the most dangerous first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimClass {
    /// Code that starts, or may start, with the user's rights.
    Run,
    /// The approver is asked less often.
    Allow,
    /// Something outside the project is read, written or told.
    ReachOut,
    /// A script of the project answers instead of a model.
    Answer,
}

impl ClaimClass {
    pub fn words(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Allow => "allow",
            Self::ReachOut => "reach out",
            Self::Answer => "answer",
        }
    }
}

/// One thing that a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub class: ClaimClass,
    pub subject: ClaimSubject,
    /// What else is agreed to and not shown: it may be long, or a secret.
    pub literals: Vec<String>,
    /// What the claim belongs to: "shell `sh`". Empty if it is the file itself.
    pub owner: String,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimSubject {
    /// In words.
    Text(String),
    /// The words of a command, and what is said of it behind them.
    Command { words: Vec<String>, remark: String },
    /// A Python file, from the file that names it.
    Python(String),
    /// A Python file, from the file that names it, whose code runs behind a fence that nothing opens.
    StandIn(String),
    /// A Python module by its name, of the project or installed.
    Module(String),
    /// A script of a model, from the file that names it.
    Script(String),
    /// A tool of the agent that the file describes.
    Tool(String),
    /// A tool of another toolset.
    ToolOf { toolset: String, tool: String },
}

impl Claim {
    pub(crate) fn new(class: ClaimClass, subject: ClaimSubject) -> Self {
        Self { class, subject, literals: Vec::new(), owner: String::new() }
    }

    pub(crate) fn text(class: ClaimClass, words: impl Into<String>) -> Self {
        Self::new(class, ClaimSubject::Text(words.into()))
    }

    #[must_use]
    pub(crate) fn of(self, owner: impl Into<String>) -> Self {
        Self { owner: owner.into(), ..self }
    }

    #[must_use]
    pub(crate) fn with(self, literals: impl IntoIterator<Item = String>) -> Self {
        Self { literals: literals.into_iter().collect(), ..self }
    }

    pub(crate) fn at(self, span: Span) -> Located<Self> {
        Located { value: self, span }
    }
}
