//! Names of models, `anthropic:claude-haiku-4-5`, and the choice of one for an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::provider::ProtocolKind;
use crate::glob::{self, Glob, Letters, Slash};

/// A provider and one of its models.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName {
    /// What stands before the colon.
    pub provider: String,
    /// What stands behind it, as the provider calls the model.
    pub model: String,
}

impl ModelName {
    /// Splits at the first colon; `provider/model` is accepted where there is none.
    pub fn parse(text: &str) -> Result<Self, ModelNameError> {
        let (provider, model) = text
            .split_once(':')
            .or_else(|| text.split_once('/'))
            .ok_or_else(|| ModelNameError::NoProvider { text: text.to_owned() })?;
        if provider.is_empty() || model.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(ModelNameError::Malformed { text: text.to_owned() });
        }
        Ok(Self { provider: usual(provider).to_owned(), model: model.to_owned() })
    }

    /// That of an agent for which none was chosen: no text is parsed to it.
    pub(crate) fn none() -> Self {
        Self { provider: String::new(), model: String::new() }
    }

    /// Whether there is none.
    pub(crate) fn is_none(&self) -> bool {
        self.provider.is_empty()
    }
}

/// Providers that others know by another name.
const ALIASES: &[(&str, &str)] = &[("google-gla", "google")];

fn usual(provider: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == provider).map_or(provider, |(_, usual)| usual)
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

/// Why a text is not the name of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelNameError {
    /// There is no colon.
    #[error("`{text}` names no provider")]
    NoProvider {
        /// The text.
        text: String,
    },
    /// A part is empty, or there is a space in it.
    #[error("`{text}` is not of the form `provider:model`")]
    Malformed {
        /// The text.
        text: String,
    },
}

/// One entry of `compatible_models`: a glob over the whole name, letters of any case.
#[derive(Clone, Debug)]
pub(crate) struct ModelPattern {
    text: String,
    glob: Glob,
}

impl ModelPattern {
    /// Reads a glob, in which `*` stands for any letters, slashes too; an error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, glob::Mistake> {
        // `*` crosses `/`: in a model's name a slash is no directory.
        let known = text.split_once(':').map(|(provider, rest)| format!("{}:{rest}", usual(provider)));
        let glob = Glob::parse(known.as_deref().unwrap_or(text), Slash::IsPlain, Letters::Folded)?;
        Ok(Self { text: text.to_owned(), glob })
    }

    /// Whether the whole name of the model fits, provider and all, in letters of any case.
    pub(crate) fn matches(&self, model: &ModelName) -> bool {
        self.glob.matches(&model.to_string())
    }
}

impl fmt::Display for ModelPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for ModelPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// What the user chose outside the project's files, in falling order of precedence. Read by the caller.
#[derive(Clone, Debug, Default)]
pub struct ModelChoices {
    /// What the front end calls the option that `overrides` and `required` come from; messages about them name it.
    pub option: Option<String>,
    /// For one agent each, whatever its file says.
    pub overrides: BTreeMap<String, ModelName>,
    /// For the agent that a run starts with, whatever its file says, and for every agent whose file names none. It is a
    /// mistake if no agent uses it.
    pub required: Option<ModelName>,
    /// For every agent, whatever its file says.
    pub all: Option<ModelName>,
    /// Stands for the model of every agent whose file names none, where none of them is asked.
    pub unasked: Option<ModelName>,
    /// For agents whose files name none; the first of these decides. It is no mistake if no agent uses them.
    pub fallbacks: Vec<ModelFallback>,
    /// Whether an agent may be without a model. Such a one has a name without a provider, and whoever looks on is told.
    pub may_be_open: bool,
    /// The texts of scripts that these choices name as `scripted:FILE`, by file.
    pub scripts: BTreeMap<String, String>,
    /// Providers of the user's configuration.
    pub providers: Vec<CustomProvider>,
    /// Providers whose key is at hand.
    pub keys: BTreeSet<String>,
}

/// A model for agents whose files name none, and where it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFallback {
    /// The model.
    pub model: ModelName,
    /// Where it was chosen, as messages say it after "from": `the user's configuration`. A front end sets it.
    pub label: String,
    /// Which are asked in turn where the provider of the one before has trouble.
    pub others: Vec<ModelName>,
}

/// A compatible endpoint of the user's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomProvider {
    /// What stands before the colon of its models' names.
    pub name: String,
    /// The wire format that it speaks.
    pub protocol: ProtocolKind,
    /// The variable that holds its key, if one does.
    pub key_variable: Option<String>,
}

/// Whether a run starts with an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentPlace {
    Entry,
    Elsewhere,
}

/// A chosen model and what decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChosenModel {
    pub model: ModelName,
    /// Asked in turn where the provider of the one before has trouble.
    pub others: Vec<ModelName>,
    /// Of the same choice, but the agent is not made for them.
    pub left_out: Vec<ModelName>,
    pub by: ChosenBy,
}

impl ChosenModel {
    /// One that nobody else stands in for.
    pub(crate) fn only(model: ModelName, by: ChosenBy) -> Self {
        Self { model, others: Vec::new(), left_out: Vec::new(), by }
    }

    /// All of them, in the order in which they are asked.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ModelName> {
        std::iter::once(&self.model).chain(&self.others)
    }

    /// Of several, only those that these patterns name; of none that they name, it stays as it is, to be refused.
    fn compatible(self, patterns: &[ModelPattern]) -> Self {
        let fits = |model: &ModelName| patterns.iter().any(|pattern| pattern.matches(model));
        let (fitting, left_out): (Vec<_>, Vec<_>) = self.all().cloned().partition(fits);
        let mut fitting = fitting.into_iter();
        match fitting.next() {
            Some(model) => Self { model, others: fitting.collect(), left_out, by: self.by },
            None => self,
        }
    }
}

/// Which of the choices decided about the model of an agent, as in [`ModelChoices`]; `File` is its worker file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChosenBy {
    Override,
    Required,
    All,
    File,
    Unasked,
    /// One of the fallbacks, by its label.
    Fallback {
        label: String,
    },
}

/// Why an agent has no model: none was chosen, or the fallback is not among those it is compatible with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ChoiceError {
    NoModel,
    Incompatible(ChosenModel),
}

impl ModelChoices {
    /// This model for every agent whose file names none.
    pub fn of(model: &str) -> Result<Self, ModelNameError> {
        Ok(Self::program(ModelName::parse(model)?))
    }

    /// A scripted model for every agent whose file names none. The text is that of a script, as a file would have it; its
    /// mistakes are reported when a project is linked.
    pub fn scripted(text: impl Into<String>) -> Self {
        let name = ModelName { provider: "scripted".to_owned(), model: "script".to_owned() };
        Self { scripts: [(name.model.clone(), text.into())].into(), ..Self::program(name) }
    }

    fn program(model: ModelName) -> Self {
        let label = "the program that embeds this".to_owned();
        Self { fallbacks: vec![ModelFallback { model, label, others: Vec::new() }], ..Self::default() }
    }

    /// The choice for one agent, as a front end that has an option for it is used.
    pub(crate) fn shown_override(&self, agent: &str) -> String {
        match &self.option {
            Some(option) => format!("`{option} {agent}=…`"),
            None => format!("the choice of a model for `{agent}`"),
        }
    }

    /// What is chosen for this run beats the file, the file beats the fallbacks. `compatible` judges what was not chosen
    /// for this agent alone.
    pub(crate) fn choose(
        &self,
        agent: &str,
        place: AgentPlace,
        file: &[ModelName],
        compatible: Option<&[ModelPattern]>,
    ) -> Result<ChosenModel, ChoiceError> {
        let required = self.required.as_ref().filter(|_| place == AgentPlace::Entry || file.is_empty());
        let candidates = [
            (one(self.overrides.get(agent)), ChosenBy::Override),
            (one(required), ChosenBy::Required),
            (one(self.all.as_ref()), ChosenBy::All),
            (file, ChosenBy::File),
            (one(self.unasked.as_ref()), ChosenBy::Unasked),
        ];
        let choice = first(candidates).or_else(|| self.fallback()).ok_or(ChoiceError::NoModel)?;
        let is_judged = match choice.by {
            ChosenBy::Required | ChosenBy::All | ChosenBy::Fallback { .. } => true,
            ChosenBy::Override | ChosenBy::File | ChosenBy::Unasked => false,
        };
        let Some(patterns) = compatible.filter(|_| is_judged) else { return Ok(choice) };
        let choice = choice.compatible(patterns);
        let fits = patterns.iter().any(|pattern| pattern.matches(&choice.model));
        if fits { Ok(choice) } else { Err(ChoiceError::Incompatible(choice)) }
    }

    fn fallback(&self) -> Option<ChosenModel> {
        let ModelFallback { model, label, others } = self.fallbacks.first()?.clone();
        Some(ChosenModel { others, ..ChosenModel::only(model, ChosenBy::Fallback { label }) })
    }

    /// The provider of this name in the user's configuration; `None` if there is none.
    pub(crate) fn custom(&self, provider: &str) -> Option<&CustomProvider> {
        self.providers.iter().find(|custom| custom.name == provider)
    }
}

fn one(model: Option<&ModelName>) -> &[ModelName] {
    model.map_or(&[], std::slice::from_ref)
}

fn first<const N: usize>(candidates: [(&[ModelName], ChosenBy); N]) -> Option<ChosenModel> {
    candidates.into_iter().find_map(|(models, by)| {
        let (model, others) = models.split_first()?;
        Some(ChosenModel { others: others.to_vec(), ..ChosenModel::only(model.clone(), by) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_at_the_first_colon_or_slash() {
        let cases = [
            ("anthropic:claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
            ("anthropic/claude-haiku-4-5", "anthropic", "claude-haiku-4-5"),
            ("openrouter:meta/llama:free", "openrouter", "meta/llama:free"),
            ("ollama:qwen3:8b", "ollama", "qwen3:8b"),
            ("google-gla:gemini-2.5-pro", "google", "gemini-2.5-pro"),
            ("google-vertex:gemini-2.5-pro", "google-vertex", "gemini-2.5-pro"),
        ];
        for (text, provider, model) in cases {
            let name = ModelName::parse(text).unwrap();
            assert_eq!((name.provider.as_str(), name.model.as_str()), (provider, model));
        }
        for text in ["claude", ":x", "x:", "a:b c", "a:\u{7}"] {
            assert!(ModelName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_match_the_whole_name_in_any_case() {
        let cases = [
            ("anthropic:*", "anthropic:claude-haiku-4-5", true),
            ("ANTHROPIC:Claude-*", "anthropic:claude-haiku-4-5", true),
            ("claude-*", "anthropic:claude-haiku-4-5", false),
            ("openrouter:*", "openrouter:meta/llama", true),
            ("*", "ollama:qwen3", true),
            ("openai:gpt-?", "openai:gpt-55", false),
            ("google-gla:gemini-*", "google:gemini-2.5-pro", true),
            ("google:*", "google-gla:gemini-2.5-pro", true),
            ("google-gla:*", "google-gla:gemini-2.5-pro", true),
            ("google-vertex:*", "google-vertex:gemini-2.5-pro", true),
            ("google-gla:*", "google-vertex:gemini-2.5-pro", false),
        ];
        for (pattern, name, expected) in cases {
            let pattern = ModelPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(&ModelName::parse(name).unwrap()), expected, "{pattern} {name}");
        }
        assert!(ModelPattern::parse("a[").is_err());
    }

    #[test]
    fn an_override_beats_the_file_and_the_file_beats_the_fallbacks() {
        let name = |text| Some(ModelName::parse(text).unwrap());
        let fallback =
            |text| ModelFallback { model: ModelName::parse(text).unwrap(), label: text.to_owned(), others: Vec::new() };
        let mut choices = ModelChoices { fallbacks: vec![fallback("a:second")], ..ModelChoices::default() };
        let chosen_at = |choices: &ModelChoices, place, file| {
            choices
                .choose("main", place, one(name(file).filter(|_| file != "a:none").as_ref()), None)
                .unwrap()
                .model
                .model
        };
        let chosen = |choices: &ModelChoices, file| chosen_at(choices, AgentPlace::Elsewhere, file);
        assert_eq!(chosen(&choices, "a:none"), "second");
        choices.fallbacks.insert(0, fallback("a:first"));
        assert_eq!(chosen(&choices, "a:none"), "first");
        let by = choices.choose("main", AgentPlace::Entry, &[], None).unwrap().by;
        assert_eq!(by, ChosenBy::Fallback { label: "a:first".to_owned() });
        choices.unasked = name("a:unasked");
        assert_eq!(chosen(&choices, "a:none"), "unasked");
        assert_eq!(chosen(&choices, "a:file"), "file");
        choices.all = name("a:all");
        assert_eq!(chosen(&choices, "a:none"), "all");
        assert_eq!(chosen(&choices, "a:file"), "all");
        choices.required = name("a:required");
        assert_eq!(chosen(&choices, "a:none"), "required");
        assert_eq!(chosen(&choices, "a:file"), "all", "it is not where the run starts");
        assert_eq!(chosen_at(&choices, AgentPlace::Entry, "a:file"), "required");
        choices.overrides.insert("main".into(), name("a:override").unwrap());
        assert_eq!(chosen(&choices, "a:file"), "override");
        let nothing = ModelChoices::default().choose("main", AgentPlace::Entry, &[], None);
        assert_eq!(nothing, Err(ChoiceError::NoModel));
    }

    #[test]
    fn compatible_models_judge_what_was_not_chosen_for_the_agent_alone() {
        let name = |text| ModelName::parse(text).unwrap();
        let patterns = [ModelPattern::parse("anthropic:*").unwrap()];
        let file = name("anthropic:claude");
        let judged =
            |choices: &ModelChoices, file| choices.choose("main", AgentPlace::Entry, one(file), Some(&patterns));
        let required = ModelChoices { required: Some(name("openai:gpt")), ..ModelChoices::default() };
        let all = ModelChoices { all: Some(name("openai:gpt")), ..ModelChoices::default() };
        for mut choices in [required, all] {
            for file in [None, Some(&file)] {
                assert!(matches!(judged(&choices, file), Err(ChoiceError::Incompatible(_))), "{choices:?}");
            }
            choices.overrides.insert("main".into(), name("openai:gpt"));
            assert!(judged(&choices, None).is_ok());
        }
        let choices = ModelChoices { required: Some(name("anthropic:claude")), ..ModelChoices::default() };
        assert!(judged(&choices, None).is_ok());
    }

    #[test]
    fn of_several_models_each_is_judged_and_a_choice_for_the_run_stands_alone() {
        let name = |text: &str| ModelName::parse(text).unwrap();
        let patterns = [ModelPattern::parse("anthropic:*").unwrap(), ModelPattern::parse("ollama:*").unwrap()];
        let several = |names: &[&str]| {
            let mut names = names.iter().map(|text| name(text));
            let model = names.next().unwrap();
            let fallback = ModelFallback { model, label: "x".to_owned(), others: names.collect() };
            ModelChoices { fallbacks: vec![fallback], ..ModelChoices::default() }
        };
        let chosen = |choices: &ModelChoices, file: &[ModelName], patterns: Option<&[ModelPattern]>| {
            let choice = choices.choose("main", AgentPlace::Entry, file, patterns).ok()?;
            let text =
                |models: &mut dyn Iterator<Item = &ModelName>| models.map(ToString::to_string).collect::<Vec<_>>();
            Some((text(&mut choice.all()), text(&mut choice.left_out.iter())))
        };
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let choices = several(&["openai:a", "anthropic:b", "groq:c", "ollama:d"]);
        let expected = (list(&["anthropic:b", "ollama:d"]), list(&["openai:a", "groq:c"]));
        assert_eq!(chosen(&choices, &[], Some(&patterns)), Some(expected));
        let all = list(&["openai:a", "anthropic:b", "groq:c", "ollama:d"]);
        assert_eq!(chosen(&choices, &[], None), Some((all, list(&[]))));
        assert_eq!(chosen(&several(&["openai:a", "groq:c"]), &[], Some(&patterns)), None);
        let file = [name("openai:a"), name("groq:c")];
        assert_eq!(chosen(&choices, &file, None), Some((list(&["openai:a", "groq:c"]), list(&[]))));
        let required = ModelChoices { required: Some(name("ollama:e")), ..choices };
        assert_eq!(chosen(&required, &file, None), Some((list(&["ollama:e"]), list(&[]))));
    }
}
