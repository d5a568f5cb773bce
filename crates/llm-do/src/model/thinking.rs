//! Which models think before they answer, and so are silent for long.

use super::{Head, Thinking};

/// Beginnings of names, behind whatever maker or kind stands before a slash.
const THINKERS: &[&str] = &[
    "o1",
    "o3",
    "o4",
    "gpt-5",
    "gpt-oss",
    "codex",
    "gemini-2.5",
    "gemini-3",
    "gemini-flash-latest",
    "gemini-pro-latest",
    "grok-3-mini",
    "grok-4",
    "deepseek-reasoner",
    "deepseek-r1",
    "deepseek-v4",
    "magistral",
    "qwq",
    "qwen3",
    "kimi-k2",
    "glm-4.5",
    "glm-4.6",
    "glm-5",
    "minimax-m",
];

/// As it is set, else as its name says.
pub(crate) fn thinks(head: &Head) -> bool {
    match (head.settings.thinking, head.settings.effort) {
        (Some(Thinking::Off), _) => false,
        (Some(Thinking::On | Thinking::Budget(_)), _) | (None, Some(_)) => true,
        (None, None) => {
            let name = head.model.model.to_lowercase();
            let name = name.rsplit('/').next().unwrap_or(&name);
            let says_so = || ["thinking", "reasoning", "reasoner"].iter().any(|word| name.contains(word));
            !name.contains("non-") && (THINKERS.iter().any(|start| name.starts_with(start)) || says_so())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::head;
    use crate::model::{Effort, ModelSettings};

    #[test]
    fn a_model_thinks_as_it_is_set_or_as_it_is_called() {
        let cases = [
            ("openai:gpt-5.4", true),
            ("openai:o3-mini", true),
            ("openai:gpt-4o", false),
            ("google:gemini-2.5-flash", true),
            ("google:gemini-2.0-flash", false),
            ("openrouter:deepseek/deepseek-r1", true),
            ("ollama:qwen3:8b", true),
            ("ollama:llama3.3", false),
            ("xai:grok-4-fast-non-reasoning", false),
            ("anthropic:claude-sonnet-4-5", false),
        ];
        for (model, expected) in cases {
            assert_eq!(thinks(&head(model)), expected, "{model}");
            let set = |thinking, effort| {
                let settings = ModelSettings { effort, thinking, ..ModelSettings::default() };
                thinks(&Head { settings, ..head(model) })
            };
            assert!(set(Some(Thinking::On), None) && set(None, Some(Effort::Low)), "{model}");
            assert!(!set(Some(Thinking::Off), Some(Effort::Low)), "{model}");
        }
    }
}
