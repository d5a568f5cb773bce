//! Models that can be asked now: of providers whose key is set, and of an Ollama on this machine. And what it takes to find
//! out before a run that an agent's model cannot be.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;

use llm_do::approval::DeclaredVerdict;
use llm_do::program::{AgentSpec, Entry};
use llm_do::providers::{HttpClient, PROVIDERS, Provider, provider};
use llm_do::remedy::Remedy;
use llm_do::{ModelName, Program};

use crate::config::Config;
use crate::error::LaunchError;
use crate::providers::{base_url, http_settings};
use crate::settings::Variables;

/// A model that can be asked, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableModel {
    /// `provider:model`.
    pub name: String,
    /// Where its key is, or where it runs.
    pub why: String,
}

/// One that is quick and cheap of each provider, to begin with. A test holds them against the table of prices.
const TO_BEGIN_WITH: &[(&str, &str)] = &[
    ("anthropic", "claude-haiku-4-5"),
    ("openai", "gpt-5-mini"),
    ("google", "gemini-2.5-flash"),
    ("openrouter", "anthropic/claude-haiku-4.5"),
    ("groq", "llama-3.1-8b-instant"),
    ("mistral", "mistral-small-latest"),
    ("deepseek", "deepseek-chat"),
    ("xai", "grok-4-fast"),
    ("together", "meta-llama/llama-3.3-70b-instruct-turbo"),
    ("cerebras", "gpt-oss-120b"),
];

/// A model that needs no key, for advice where nothing is known to be usable.
pub const WITHOUT_KEY: &str = "ollama:qwen3";

/// So long a server on this machine may take to say which models it has.
const LONGEST_LOOK: Duration = Duration::from_millis(300);
/// More than it says about all models that a disk holds.
const LONGEST_LIST: u64 = 1024 * 1024;
/// More are not shown to be chosen from.
const MOST_LOCAL: usize = 20;

/// One model of each provider whose key is set, in the order of the table of providers.
pub fn with_keys(variables: &Variables, config: &Config) -> Vec<UsableModel> {
    let mut seen = BTreeSet::new();
    let mut usable = Vec::new();
    for row in PROVIDERS.iter().filter(|row| row.needs_key()) {
        let Some(variable) = set_variable(row, variables) else { continue };
        let begun = to_begin_with(row.name);
        // Two rows with one key are two ways to the same models.
        if let Some(name) = begun.filter(|_| base_url(row, variables).is_some() && seen.insert(variable)) {
            usable.push(UsableModel { name, why: format!("key in {variable}") });
        }
    }
    for (name, custom) in &config.providers {
        let start = format!("{name}:");
        let Some(model) = config.prices.known().keys().find(|model| model.starts_with(&start)).map(|&it| it.to_owned())
        else {
            continue;
        };
        let why = match (&custom.api_key_env, &custom.api_key_cmd) {
            (Some(variable), _) if variables.get(variable).is_none() => continue,
            (Some(variable), _) => format!("key in {variable}"),
            (None, Some(_)) => "key by a command".to_owned(),
            (None, None) => "no key needed".to_owned(),
        };
        usable.push(UsableModel { name: model, why });
    }
    usable
}

/// The model of a provider that one begins with, if one is known.
pub fn to_begin_with(provider: &str) -> Option<String> {
    TO_BEGIN_WITH.iter().find(|(name, _)| *name == provider).map(|(name, model)| format!("{name}:{model}"))
}

fn set_variable(row: &Provider, variables: &Variables) -> Option<&'static str> {
    row.key_variables.iter().find(|variable| variables.get(variable).is_some()).copied()
}

/// The models of an Ollama on this machine; none if it does not answer at once.
pub async fn on_this_machine(variables: &Variables, config: &Config) -> Vec<UsableModel> {
    let looked = async {
        let address = base_url(provider("ollama")?, variables)?;
        let http = HttpClient::new(http_settings(variables, &config.http).ok()?).ok()?;
        let (status, body) = http.get(&format!("{address}/models"), LONGEST_LIST).await.ok()?;
        let listed: serde_json::Value = serde_json::from_slice(&body).ok().filter(|_| status == 200)?;
        let ids = listed["data"].as_array()?.iter().filter_map(|model| model["id"].as_str());
        let names = ids.map(|id| format!("ollama:{id}")).filter(|name| ModelName::parse(name).is_ok());
        Some(names.take(MOST_LOCAL).collect::<Vec<_>>())
    };
    let names = tokio::time::timeout(LONGEST_LOOK, looked).await.ok().flatten().unwrap_or_default();
    names.into_iter().map(|name| UsableModel { name, why: "on this machine".to_owned() }).collect()
}

/// More are counted.
const NAMED_AGENTS: usize = 3;

/// Refuses a run that would ask for a key which is not set, before it asks anybody. A key that a command gives counts as one,
/// and the command is not run for this.
pub fn check_keys(
    program: &Program,
    project: &Path,
    variables: &Variables,
    config: &Config,
) -> Result<(), LaunchError> {
    // Most programs have all keys: then nothing has to be known about who calls whom.
    if !program.agents.values().any(|agent| !missing(agent, variables, config).is_empty()) {
        return Ok(());
    }
    let asked = asked_agents(program);
    let keyless: Vec<(&AgentSpec, Vec<String>)> = asked
        .iter()
        .map(|agent| (*agent, missing(agent, variables, config)))
        .filter(|(_, it)| !it.is_empty())
        .collect();
    if keyless.is_empty() {
        return Ok(());
    }
    let line = |(agent, unset): &(&AgentSpec, Vec<String>)| {
        let models: Vec<String> = agent.models().chain(&agent.summariser).map(ToString::to_string).collect();
        format!("{} uses {}, {} is not set", agent.name, models.join(", "), unset.join(" or "))
    };
    let mut lines: Vec<String> = keyless.iter().take(NAMED_AGENTS).map(line).collect();
    if keyless.len() > NAMED_AGENTS {
        lines.push(format!("so do {} more agents", keyless.len() - NAMED_AGENTS));
    }
    let of_agents = asked.iter().find(|agent| agent.script.is_none() && missing(agent, variables, config).is_empty());
    let of_keys = || with_keys(variables, config).first().map(|usable| usable.name.clone());
    let other = of_agents.map(|agent| agent.model.to_string()).or_else(of_keys);
    let (project, has_key) = (project.to_owned(), other.is_some());
    let model = other.unwrap_or_else(|| WITHOUT_KEY.to_owned());
    Err(LaunchError::provider(lines.join("; ")).hint(Remedy::ReplaceModels { project, model, has_key }))
}

/// The variables of which one would have to be set for one of the models of an agent; none if one can be asked as it is.
fn missing(agent: &AgentSpec, variables: &Variables, config: &Config) -> Vec<String> {
    let others = agent.fallbacks.iter().map(|other| (&other.model, other.script.is_some()));
    let models = std::iter::once((&agent.model, agent.script.is_some())).chain(others);
    let mut unset: Vec<String> = Vec::new();
    for (model, is_scripted) in models {
        let of_model = if is_scripted { Vec::new() } else { unset_variables(model, variables, config) };
        if of_model.is_empty() {
            return agent.summariser.iter().flat_map(|model| unset_variables(model, variables, config)).collect();
        }
        unset.extend(of_model.into_iter().filter(|name| !unset.contains(name)).collect::<Vec<_>>());
    }
    unset
}

fn unset_variables(model: &ModelName, variables: &Variables, config: &Config) -> Vec<String> {
    match (provider(&model.provider), config.providers.get(&model.provider)) {
        (Some(row), _) if row.needs_key() && set_variable(row, variables).is_none() => {
            row.key_variables.iter().map(|&name| name.to_owned()).collect()
        }
        (None, Some(custom)) => {
            custom.api_key_env.iter().filter(|name| variables.get(name).is_none()).cloned().collect()
        }
        // A provider of a Python file brings its key with it.
        (Some(_) | None, _) => Vec::new(),
    }
}

/// The agents that a run asks, as far as files say it: the entry, and whoever is a tool of one of them. Agents that are only
/// called by name are not known before they are.
fn asked_agents(program: &Program) -> Vec<&AgentSpec> {
    let Entry::Agent(entry) = &program.entry else { return Vec::new() };
    let (mut names, mut found) = (VecDeque::from([entry.as_str()]), Vec::new());
    let mut seen = BTreeSet::from([entry.as_str()]);
    while let Some(name) = names.pop_front() {
        let Some(agent) = program.agents.get(name) else { continue };
        found.push(&**agent);
        let called = program.tools_of(agent).into_iter().filter(|tool| tool.verdict != DeclaredVerdict::Block);
        names.extend(called.filter_map(|tool| tool.agent).filter(|callee| seen.insert(callee)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_to_begin_with_has_a_price() {
        let config = Config::default();
        let known = config.prices.known();
        for (name, model) in TO_BEGIN_WITH {
            assert!(known.contains_key(format!("{name}:{model}").as_str()), "{name}:{model}");
        }
    }

    #[test]
    fn a_model_is_usable_by_its_key_once() {
        let names = |variables: &[(&str, &str)]| {
            let usable = with_keys(&Variables::of(variables.iter().copied()), &Config::default());
            usable.into_iter().map(|model| format!("{} {}", model.name, model.why)).collect::<Vec<_>>()
        };
        assert!(names(&[]).is_empty());
        let openai = "openai:gpt-5-mini key in OPENAI_API_KEY".to_owned();
        assert_eq!(names(&[("OPENAI_API_KEY", "k"), ("AZURE_OPENAI_API_KEY", "k")]), [openai]);
        assert_eq!(names(&[("GROQ_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")]).len(), 2);
    }
}
