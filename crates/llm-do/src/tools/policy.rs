//! Lasting rules: what the user, the project and the organisation say about calls, in files. Reading them is here, and
//! which of them speak of a call; what follows from that is decided by `approval::decide` alone. Pure.

#[cfg(feature = "front-end")]
mod again;
#[cfg(feature = "front-end")]
mod draft;
mod keys;
mod pattern;
mod toml_text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::approval::{CallSubject, PlacedRule, Rule, Voices};
use super::source::reading_instead;
use crate::message::RawJson;
use pattern::{AgentPattern, ArgumentView, ArgumentsPattern, TextPattern, Unknown, WordsPattern};

#[cfg(feature = "front-end")]
pub use again::{Explanation, SpokenRule};
#[cfg(feature = "front-end")]
pub use draft::RuleDraft;
pub use keys::{RuleFile, read_rules};
pub(crate) use keys::{manifest_rule, read_manifest_rules};

/// Whose a lasting rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleSource {
    /// The project's manifest.
    Manifest,
    /// The user's own file.
    Yours,
    /// The organisation's file, which can only tighten.
    Organisation,
}

/// One rule of a file.
#[derive(Clone, Debug)]
pub struct LastingRule {
    source: RuleSource,
    place: Arc<str>,
    rule: Rule,
    tool: TextPattern,
    agent: Option<AgentPattern>,
    project: Option<PathBuf>,
    arguments: Option<ArgumentsPattern>,
    words: Option<WordsPattern>,
    /// The last day on which it holds: `2026-12-16`.
    expires: Option<String>,
    /// Its text, in one line.
    shown: String,
}

impl LastingRule {
    /// Whose it is.
    #[cfg(feature = "front-end")]
    pub fn source(&self) -> RuleSource {
        self.source
    }

    /// File and line: `rules.toml:12`.
    #[cfg(feature = "front-end")]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What it says.
    #[cfg(feature = "front-end")]
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Its text, in one line.
    #[cfg(feature = "front-end")]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Why it says nothing, whatever the call: on this day, and in this project if one is given.
    #[cfg(feature = "front-end")]
    pub fn silence(&self, project: Option<&Path>, today: &str) -> Option<&'static str> {
        if self.is_expired(today) {
            Some("it has expired")
        } else if self.source == RuleSource::Organisation && self.rule == Rule::Allow {
            Some("an organisation's rule can only tighten")
        } else if project.is_some_and(|project| !self.is_of_project(project)) {
            Some("it is for another project")
        } else {
            None
        }
    }

    /// Whether it says nothing any more on this day.
    fn is_expired(&self, today: &str) -> bool {
        self.expires.as_deref().is_some_and(|last| today > last)
    }

    /// Whether it is about calls of this project.
    fn is_of_project(&self, project: &Path) -> bool {
        self.project.as_deref().is_none_or(|of| of == project)
    }

    /// What the rule makes of what is not known: rules that tighten are read wide, those that allow are read narrow.
    fn unknown(&self) -> Unknown {
        if self.rule == Rule::Allow { Unknown::DoesNot } else { Unknown::Matches }
    }

    /// Whether it speaks of a call. One that allows is about the calls of the agent itself; one that tightens is also
    /// about what happens beneath the agent.
    fn speaks_of(&self, call: &RuledCall<'_>, view: &ArgumentView<'_>) -> bool {
        let is_agent = self.agent.as_ref().is_none_or(|agent| match self.rule {
            Rule::Allow => agent.is_caller(call.path),
            Rule::Ask | Rule::Block => agent.is_on_the_way(call.path),
        });
        is_agent && ((self.tool.matches(call.tool) && self.fits(view)) || self.tightens_reading_of(call.tool))
    }

    /// Whether it tightens reading, of which searching is another way: it reads any files, whatever it is called with.
    fn tightens_reading_of(&self, tool: &str) -> bool {
        self.rule > Rule::Allow && reading_instead(tool).is_some_and(|reading| self.tool.matches(&reading))
    }

    fn fits(&self, view: &ArgumentView<'_>) -> bool {
        self.words.as_ref().is_none_or(|words| view.fits_words(words))
            && self.arguments.as_ref().is_none_or(|arguments| view.fits(arguments, self.unknown()))
    }
}

/// A call, as rules look at it.
#[derive(Clone, Copy, Debug)]
pub struct RuledCall<'a> {
    /// The tool, by the name that the caller has for it.
    pub tool: &'a str,
    /// The agents and the code from the entry down; the last one is the caller.
    pub path: &'a [String],
    /// What it is called with; nothing if that is not known any more.
    pub arguments: Option<&'a RawJson>,
    /// What it is about, as it was found when it was judged.
    pub subject: Option<&'a CallSubject>,
}

/// The lasting rules in force for one project on one day.
#[derive(Clone, Debug, Default)]
pub struct LastingRules {
    project: PathBuf,
    rules: Vec<Arc<LastingRule>>,
    /// By the tools that they name; those with patterns are in `others`.
    by_tool: BTreeMap<String, Vec<usize>>,
    others: Vec<usize>,
}

impl LastingRules {
    /// Those of the rules that are about the project and have not expired on this day.
    ///
    /// Where the day is not known, what expires does not allow, and goes on tightening.
    pub fn in_force(rules: impl IntoIterator<Item = Arc<LastingRule>>, project: &Path, today: Option<&str>) -> Self {
        let has_expired = |rule: &LastingRule| match today {
            Some(today) => rule.is_expired(today),
            None => rule.rule == Rule::Allow && rule.expires.is_some(),
        };
        let is_in_force = |rule: &Arc<LastingRule>| rule.is_of_project(project) && !has_expired(rule);
        let rules: Vec<_> = rules.into_iter().filter(is_in_force).collect();
        let (mut by_tool, mut others) = (BTreeMap::<String, Vec<usize>>::new(), Vec::new());
        for (index, rule) in rules.iter().enumerate() {
            if rule.tool.is_literal() {
                by_tool.entry(rule.tool.text.clone()).or_default().push(index);
            } else {
                others.push(index);
            }
        }
        Self { project: project.to_owned(), rules, by_tool, others }
    }

    /// The project that they are for.
    #[cfg(feature = "front-end")]
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What tells these rules from others.
    #[cfg(feature = "front-end")]
    pub fn digest(&self) -> String {
        super::approval::digest(self.rules.iter().flat_map(|rule| [rule.source.word(), rule.shown.as_str()]))
    }

    /// Those that speak of a call.
    pub(crate) fn speaking_of<'a>(&'a self, call: RuledCall<'a>) -> impl Iterator<Item = &'a LastingRule> {
        let view = ArgumentView::new(call.arguments, call.subject, &self.project);
        let of = |tool: &str| self.by_tool.get(tool).map(Vec::as_slice).unwrap_or_default();
        let of_reading = reading_instead(call.tool).map_or(&[][..], |reading| of(&reading));
        let candidates =
            of(call.tool).iter().chain(of_reading).chain(&self.others).map(|index| self.rules[*index].as_ref());
        candidates.filter(move |rule| rule.speaks_of(&call, &view))
    }

    /// What they say of a call, besides what its agent and its definitions say.
    pub(crate) fn voices(&self, call: RuledCall<'_>, voices: Voices) -> Voices {
        self.speaking_of(call).fold(voices, |mut voices, rule| {
            let place = || Arc::clone(&rule.place);
            let said = || Some(PlacedRule { rule: rule.rule, place: place() });
            match (rule.source, rule.rule) {
                (RuleSource::Organisation, Rule::Allow) => {}
                (RuleSource::Yours, Rule::Allow) => {
                    voices.allowance.get_or_insert_with(place);
                }
                (RuleSource::Manifest, _) => tighten(&mut voices.manifest, rule.rule, said),
                (RuleSource::Yours, _) => tighten(&mut voices.yours, rule.rule, said),
                (RuleSource::Organisation, _) => tighten(&mut voices.organisation, rule.rule, said),
            }
            voices
        })
    }
}

/// Of several, the strictest counts, and of those that are as strict the first.
fn tighten(voice: &mut Option<PlacedRule>, rule: Rule, said: impl FnOnce() -> Option<PlacedRule>) {
    if voice.as_ref().is_none_or(|voice| voice.rule < rule) {
        *voice = said();
    }
}

impl RuleSource {
    /// As people read it.
    #[cfg(feature = "front-end")]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Yours => "yours",
            Self::Organisation => "organisation",
        }
    }
}

#[cfg(test)]
mod tests;
