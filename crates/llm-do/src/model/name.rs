//! Names of models, `anthropic:claude-haiku-4-5`, and the choice of one for an agent.

use std::fmt;

use globset::GlobBuilder;

/// A provider and one of its models.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName {
    pub provider: String,
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
        Ok(Self { provider: provider.to_owned(), model: model.to_owned() })
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelNameError {
    #[error("`{text}` names no provider")]
    NoProvider { text: String },
    #[error("`{text}` is not of the form `provider:model`")]
    Malformed { text: String },
}

/// One entry of `compatible_models`: a glob over the whole name, letters of any case.
#[derive(Clone, Debug)]
pub struct ModelPattern {
    text: String,
    matcher: globset::GlobMatcher,
}

impl ModelPattern {
    pub fn parse(text: &str) -> Result<Self, globset::Error> {
        // `*` crosses `/`: in a model's name a slash is no directory.
        let glob = GlobBuilder::new(text).case_insensitive(true).literal_separator(false).build()?;
        Ok(Self { text: text.to_owned(), matcher: glob.compile_matcher() })
    }

    pub fn matches(&self, model: &ModelName) -> bool {
        self.matcher.is_match(model.to_string())
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
        ];
        for (pattern, name, expected) in cases {
            let pattern = ModelPattern::parse(pattern).unwrap();
            assert_eq!(pattern.matches(&ModelName::parse(name).unwrap()), expected, "{pattern} {name}");
        }
        assert!(ModelPattern::parse("a[").is_err());
    }
}
