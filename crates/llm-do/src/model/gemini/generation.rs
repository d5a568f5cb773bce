//! What differs between the generations of models, read off their names.

use serde::Serialize;

use crate::model::{Effort, ModelSettings, Thinking};

/// How far a model goes along with tools and thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Before 2.5, and what is no Gemini: does not think.
    Plain,
    /// 2.5: thinking is bounded by a number of tokens.
    Budgets,
    /// Since 3: thinking has levels, calls are signed, results carry files, and tools of all kinds and an output schema
    /// go together.
    Levels,
}

impl Generation {
    pub(crate) fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        let Some(rest) = name.strip_prefix("gemini-") else { return Self::Plain };
        let version = rest.split('-').next().unwrap_or(rest);
        match version.parse::<f64>() {
            Ok(version) if version < 2.5 => Self::Plain,
            Ok(version) if version < 3.0 => Self::Budgets,
            // `gemini-flash-latest` is of the newest.
            Ok(_) | Err(_) => Self::Levels,
        }
    }
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ThinkingConfig {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
}

/// Asks for thoughts to be shown wherever thinking is asked for.
pub(crate) fn thinking(model: &str, settings: &ModelSettings) -> Option<ThinkingConfig> {
    let ModelSettings { effort, thinking, .. } = *settings;
    let generation = Generation::of(model);
    let off = thinking == Some(Thinking::Off);
    if (effort.is_none() && thinking.is_none()) || (off && generation == Generation::Plain) {
        return None;
    }
    let budget = match thinking {
        Some(Thinking::Budget(tokens)) => Some(tokens),
        Some(Thinking::Off | Thinking::On) | None => None,
    };
    let (thinking_budget, thinking_level) = match generation {
        Generation::Levels if off => (None, Some(least_level(model))),
        Generation::Levels => {
            let asked = effort.map(|effort| level(model, effort));
            (None, asked.or_else(|| budget.map(|tokens| level_of_budget(model, tokens))))
        }
        Generation::Plain | Generation::Budgets if off => (Some(least_budget(model)), None),
        Generation::Plain | Generation::Budgets => (budget.or_else(|| effort.map(budget_of_effort)), None),
    };
    Some(ThinkingConfig { include_thoughts: !off, thinking_budget, thinking_level })
}

fn level(model: &str, effort: Effort) -> &'static str {
    match effort {
        Effort::Minimal => least_level(model),
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High | Effort::Xhigh | Effort::Max => "high",
    }
}

/// Thinking cannot be turned off in this generation, and only some models go below the low level.
fn least_level(model: &str) -> &'static str {
    if model.contains("-lite") || model.contains("gemini-3-flash") { "minimal" } else { "low" }
}

// The numbers are those that the provider itself puts for the efforts of another protocol.

fn budget_of_effort(effort: Effort) -> u64 {
    match effort {
        Effort::Minimal | Effort::Low => 1024,
        Effort::Medium => 8192,
        Effort::High | Effort::Xhigh | Effort::Max => 24_576,
    }
}

fn level_of_budget(model: &str, tokens: u64) -> &'static str {
    match tokens {
        0 => least_level(model),
        1..=1024 => "low",
        1025..=8192 => "medium",
        8193.. => "high",
    }
}

/// The large models of 2.5 always think.
fn least_budget(model: &str) -> u64 {
    if model.contains("-pro") { 128 } else { 0 }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn generations_are_read_off_the_name() {
        let cases = [
            ("gemini-1.5-flash", Generation::Plain),
            ("gemini-2.0-flash", Generation::Plain),
            ("gemma-3-27b-it", Generation::Plain),
            ("gemini-2.5-flash-lite", Generation::Budgets),
            ("models/gemini-2.5-pro", Generation::Budgets),
            ("gemini-3-flash-preview", Generation::Levels),
            ("gemini-3.1-pro-preview", Generation::Levels),
            ("gemini-4-argon", Generation::Levels),
            ("gemini-flash-latest", Generation::Levels),
        ];
        for (model, expected) in cases {
            assert_eq!(Generation::of(model), expected, "{model}");
        }
    }

    #[test]
    fn thinking_is_set_by_budget_or_level() {
        use Thinking::{Budget, Off, On};
        let cases = [
            ("gemini-2.0-flash", None, Some(Off), Value::Null),
            ("gemini-2.5-flash", None, None, Value::Null),
            ("gemini-2.5-flash", None, Some(Off), json!({"thinkingBudget": 0})),
            ("gemini-2.5-pro", None, Some(Off), json!({"thinkingBudget": 128})),
            ("gemini-2.5-pro", None, Some(On), json!({"includeThoughts": true})),
            ("gemini-2.5-pro", None, Some(Budget(9)), json!({"includeThoughts": true, "thinkingBudget": 9})),
            ("gemini-2.5-pro", Some(Effort::Medium), None, json!({"includeThoughts": true, "thinkingBudget": 8192})),
            ("gemini-3.1-pro-preview", None, Some(Off), json!({"thinkingLevel": "low"})),
            ("gemini-3-flash-preview", None, Some(Off), json!({"thinkingLevel": "minimal"})),
            ("gemini-3.8-flash", None, Some(On), json!({"includeThoughts": true})),
            ("gemini-3.8-flash", Some(Effort::Minimal), None, json!({"includeThoughts": true, "thinkingLevel": "low"})),
            (
                "gemini-3.8-flash",
                Some(Effort::Max),
                Some(On),
                json!({"includeThoughts": true, "thinkingLevel": "high"}),
            ),
            ("gemini-3.8-flash", None, Some(Budget(4096)), json!({"includeThoughts": true, "thinkingLevel": "medium"})),
        ];
        for (model, effort, asked, expected) in cases {
            let settings = ModelSettings { effort, thinking: asked, ..ModelSettings::default() };
            let sent = serde_json::to_value(thinking(model, &settings)).unwrap();
            assert_eq!(sent, expected, "{model} {effort:?} {asked:?}");
        }
    }
}
