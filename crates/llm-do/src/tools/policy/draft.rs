//! Rules as people read and keep them: the rule of a question, what it could be widened to, and its text in TOML. Pure.

use std::fmt::Write as _;
use std::path::Path;

use super::RuledCall;
use super::pattern::{FileNames, has_wildcards};
use super::toml_text::toml_text;
use crate::tools::approval::{CallSubject, canonical};

/// A rule that allows, before it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDraft {
    /// The tool.
    pub tool: String,
    /// The agent, and the code of its tools: `editor`, `editor > publish`.
    pub agent: String,
    /// The project's directory; without it the rule is for all projects.
    pub project: Option<String>,
    /// The last day on which it holds.
    pub expires: Option<String>,
    condition: Condition,
}

/// What a draft says of the call's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Anything,
    /// Exactly this file.
    File(String),
    /// Files like these.
    Files(String),
    /// The words, and whether more may follow.
    Words(Vec<String>, bool),
    /// All arguments, as JSON.
    Arguments(String),
}

impl RuleDraft {
    /// The rule for exactly this call: exact file, exact words of a command, or exact arguments. Nothing if what it was
    /// called with is not known.
    pub fn exact(call: RuledCall<'_>, caller: &str, project: &Path) -> Option<Self> {
        let condition = match call.subject {
            Some(CallSubject::File { name, root }) => {
                let names = FileNames::found(name, root, project);
                Condition::File(names.within.or(names.absolute)?)
            }
            Some(CallSubject::Words(words)) => Condition::Words(words.clone(), false),
            None => Condition::Arguments(canonical(call.arguments?)),
        };
        Some(Self {
            tool: call.tool.to_owned(),
            agent: caller.to_owned(),
            project: Some(project.to_string_lossy().into_owned()),
            expires: None,
            condition,
        })
    }

    /// The same rule, which holds until this day.
    #[must_use]
    pub fn until(self, day: impl Into<String>) -> Self {
        Self { expires: Some(day.into()), ..self }
    }

    /// The same rule for more, each wider than the one before.
    pub fn widened(&self) -> Vec<Self> {
        let with = |condition| Self { condition, ..self.clone() };
        match &self.condition {
            Condition::File(name) => {
                let (directory, file) =
                    name.rsplit_once('/').map_or(("", name.as_str()), |(directory, file)| (directory, file));
                // A directory whose name means something in a pattern cannot be written into one.
                if has_wildcards(directory) {
                    return vec![with(Condition::Anything)];
                }
                let beneath =
                    |rest: &str| if name.contains('/') { format!("{directory}/{rest}") } else { rest.to_owned() };
                let suffix = file.rsplit_once('.').map(|(_, suffix)| suffix).filter(|suffix| !has_wildcards(suffix));
                let of_kind = suffix.map(|suffix| with(Condition::Files(beneath(&format!("*.{suffix}")))));
                of_kind.into_iter().chain([with(Condition::Files(beneath("**")))]).collect()
            }
            Condition::Words(words, false) => {
                let lengths = [2, 1].into_iter().filter(|length| *length < words.len());
                lengths.map(|length| with(Condition::Words(words[..length].to_vec(), true))).collect()
            }
            Condition::Arguments(_) => vec![with(Condition::Anything)],
            Condition::Anything | Condition::Files(_) | Condition::Words(_, true) => Vec::new(),
        }
    }

    /// The keys of the rule, each with its value as TOML.
    pub fn keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = vec![("allow", toml_text(&self.tool)), ("agent", toml_text(&self.agent))];
        keys.extend(self.project.as_ref().map(|project| ("project", toml_text(project))));
        match &self.condition {
            Condition::Anything => {}
            Condition::File(name) if has_wildcards(name) => {
                keys.push(("path", format!("{{ equals = {} }}", toml_text(name))));
            }
            Condition::File(name) | Condition::Files(name) => keys.push(("path", toml_text(name))),
            Condition::Words(words, is_open) => {
                let last = words.len().wrapping_sub(1);
                let word = |(index, word): (usize, &String)| match word.as_str() {
                    "..." if index == last => "{ glob = \"...\" }".to_owned(),
                    word => toml_text(word),
                };
                let words = words.iter().enumerate().map(word).chain(is_open.then(|| "\"...\"".to_owned()));
                keys.push(("words", format!("[{}]", words.collect::<Vec<_>>().join(", "))));
            }
            Condition::Arguments(json) => keys.push(("arguments", toml_text(json))),
        }
        keys.extend(self.expires.as_ref().map(|expires| ("expires", expires.clone())));
        keys
    }

    /// As it stands in a file.
    pub fn toml(&self) -> String {
        let mut text = "[[rule]]\n".to_owned();
        for (key, value) in self.keys() {
            let _ = writeln!(text, "{key} = {value}");
        }
        text
    }

    /// In one line.
    pub fn shown(&self) -> String {
        self.keys().into_iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join("  ")
    }
}
