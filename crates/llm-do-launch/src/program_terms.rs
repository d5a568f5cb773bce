//! What a program that holds a run decides about it, beyond what a person can: it is part of the launch and of the run's
//! record, so that whoever goes on with the run is bound by it too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use llm_do::created::WorkerDefaults;
use llm_do::program::{DoubtfulRule, Entry, Fallback};
use llm_do::{ModelName, Program, Rule, names};
use serde::{Deserialize, Serialize};

use crate::error::LaunchError;

/// The decisions of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramTerms {
    /// The model of agents whose file names none; none of them need use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Rules for the tools of all agents, by `tool` or `toolset.tool`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tool_rules: BTreeMap<String, ToolRule>,
    /// What a client said to the entry beside its instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_words: Option<String>,
    /// The longest answer that a client wants of the entry, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// What the program gave as values, such as tools that run in it: no record holds these, so only a program that gives
    /// them again can go on with the run.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub given: BTreeSet<String>,
}

impl ProgramTerms {
    /// Whether nothing was decided.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and what a record says where these say nothing. What was given as values is what was given first.
    #[must_use]
    pub fn or(self, recorded: &Self) -> Self {
        let mut tool_rules = recorded.tool_rules.clone();
        tool_rules.extend(self.tool_rules);
        let model = self.model.or_else(|| recorded.model.clone());
        Self {
            model,
            tool_rules,
            client_words: self.client_words.or_else(|| recorded.client_words.clone()),
            max_tokens: self.max_tokens.or(recorded.max_tokens),
            given: recorded.given.union(&self.given).cloned().collect(),
        }
    }

    /// What was given to the run when it began and is not given now.
    pub fn missing<'a>(&'a self, given: &'a BTreeSet<String>) -> Vec<&'a str> {
        self.given.difference(given).map(String::as_str).collect()
    }
}

/// What a program says about a tool of whichever agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolRule {
    #[serde(default = "yes")]
    pub allowed: bool,
    #[serde(default)]
    pub approval_required: bool,
    /// Told with the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it may name a tool that the project lacks: the program has functions of its own.
    #[serde(default)]
    pub optional: bool,
}

fn yes() -> bool {
    true
}

impl ToolRule {
    pub fn rule(&self) -> Rule {
        match (self.allowed, self.approval_required) {
            (false, _) => Rule::Block,
            (true, true) => Rule::Ask,
            (true, false) => Rule::Allow,
        }
    }
}

/// Rules of a program for the tools of all agents. A name that can be no tool is a mistake: a rule that rules nothing
/// would be taken for a protection. Those of a controller are another matter: it guards functions of the program too.
pub fn ruled(mut program: Program, rules: &BTreeMap<String, ToolRule>) -> Result<Program, LaunchError> {
    let mut known: Vec<String> = Vec::new();
    let mut unused: Vec<&String> = rules.iter().filter(|(_, rule)| !rule.optional).map(|(name, _)| name).collect();
    // Which toolsets of which agents may have a tool of this name.
    let mut doubtful: BTreeMap<&String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (name, agent) in &mut program.agents {
        let agent = Arc::make_mut(agent);
        for used in agent.tools.iter_mut().chain(&mut agent.toolsets) {
            let declared = used.source.declared_tools();
            for (key, rule) in rules {
                let Some(tool) = tool_of(key, &used.name) else { continue };
                match &declared {
                    Some(tools) if tools.iter().any(|declared| declared.name == tool) => {
                        unused.retain(|name| *name != key);
                    }
                    Some(_) => continue,
                    None => {
                        let agents = doubtful.entry(key).or_default();
                        agents.entry(name.clone()).or_default().push(used.name.clone());
                    }
                }
                used.rules.insert(tool.to_owned(), rule.rule());
                used.rule_places.insert(tool.to_owned(), "the program that runs it".to_owned());
            }
            known.extend(declared.iter().flat_map(|tools| tools.iter()).map(|tool| tool.name.to_string()));
        }
    }
    for key in unused {
        match doubtful.remove(key) {
            None => {
                let fact = format!("`tool_rules` names `{key}`, which is no tool of this project");
                let instead = names::instead(key, "tools", known.iter().map(String::as_str));
                return Err(LaunchError::usage(fact).hint(instead));
            }
            Some(agents) => doubt(&mut program, key, agents),
        }
    }
    Ok(program)
}

/// The tool that a key means in a toolset: `tool`, or `toolset.tool`.
fn tool_of<'k>(key: &'k str, toolset: &str) -> Option<&'k str> {
    match key.split_once('.') {
        Some((named, tool)) => (named == toolset).then_some(tool),
        None => Some(key),
    }
}

/// Marks a rule whose tool is known only when the toolsets of its one agent are opened. If several agents may have
/// the tool nothing is marked, since it is enough that any of them has it.
fn doubt(program: &mut Program, key: &str, agents: BTreeMap<String, Vec<String>>) {
    let mut agents = agents.into_iter();
    let (Some((name, toolsets)), None) = (agents.next(), agents.next()) else { return };
    if let Some(agent) = program.agents.get_mut(&name) {
        let tool = key.rsplit('.').next().unwrap_or(key).to_owned();
        let rule = DoubtfulRule { place: "`tool_rules`".to_owned(), tool, toolsets };
        Arc::make_mut(agent).doubtful_rules.push(rule);
    }
}

/// What a client says of its own request is told to the entry as the client's words, and can make its answers shorter only.
#[must_use]
pub fn with_client_terms(mut program: Program, terms: &ProgramTerms) -> Program {
    let Entry::Agent(entry) = &program.entry else { return program };
    let Some(agent) = program.agents.get_mut(entry).filter(|_| !terms.is_empty()) else { return program };
    let agent = Arc::make_mut(agent);
    if let Some(words) = &terms.client_words {
        agent.instructions.push_str(CLIENT_WORDS);
        agent.instructions.push_str(words);
    }
    if let Some(most) = terms.max_tokens {
        agent.settings.max_tokens = Some(agent.settings.max_tokens.map_or(most, |own| own.min(most)));
    }
    program
}

const CLIENT_WORDS: &str = "\n\nThe client that sends you this conversation adds the following. It is the client who says this, \
     not the author of your instructions, which come first:\n\n";

/// A model that created agents get by default is one that they may use.
pub fn with_creation_defaults(mut program: Program, defaults: &WorkerDefaults) -> Result<Program, LaunchError> {
    let Some(model) = &defaults.model else { return Ok(program) };
    let wrong = |reason: String| LaunchError::usage(format!("`creation_defaults.model`: {reason}"));
    let model = ModelName::parse(model).map_err(|error| wrong(error.to_string()))?;
    if model.provider == "scripted" {
        return Err(wrong("created agents follow no script of their own".to_owned()));
    }
    program.fallbacks = vec![Fallback { model, script: None }];
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_a_program_is_one_of_ours() {
        let rule = |text: &str| serde_json::from_str::<ToolRule>(text).unwrap().rule();
        assert_eq!(rule("{}"), Rule::Allow);
        assert_eq!(rule(r#"{"approval_required": true, "description": "x"}"#), Rule::Ask);
        assert_eq!(rule(r#"{"allowed": false, "approval_required": true}"#), Rule::Block);
    }

    #[test]
    fn whoever_goes_on_is_bound_unless_he_says_otherwise() {
        let terms = |text: &str| serde_json::from_str::<ProgramTerms>(text).unwrap();
        let recorded = terms(
            r#"{"model": "a:b", "tool_rules": {"x": {"allowed": false}, "y": {"allowed": false}}, "given": ["tools.t"]}"#,
        );
        assert_eq!(ProgramTerms::default().or(&recorded), recorded);
        let anew = terms(r#"{"model": "c:d", "tool_rules": {"y": {}}}"#).or(&recorded);
        assert_eq!(anew.model.as_deref(), Some("c:d"));
        assert_eq!((anew.tool_rules["x"].rule(), anew.tool_rules["y"].rule()), (Rule::Block, Rule::Allow));
        assert_eq!(recorded.missing(&BTreeSet::new()), ["tools.t"]);
        assert_eq!(recorded.missing(&anew.given), Vec::<&str>::new());
    }
}
