//! What the children of a run, Python and MCP servers, see of the environment. Pure.

use llm_do::providers::PROVIDERS;
use llm_do::runs::ChildEnvironment;
use llm_do::runs::Redactor;

use crate::config::Config;
use crate::settings::Variables;
use crate::state::{ENGINE_KEY_VARIABLE, KEY_VARIABLE};
use crate::telemetry;

/// What a child sees whatever a project says: enough to find programs, files and words, and nothing that is private.
const FIXED: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV"];

/// No key of a provider can be chosen.
pub fn environment(environment: &Variables, config: &Config) -> ChildEnvironment {
    seen(environment, &configured_keys(config))
}

/// The same, if these variables of the configuration hold keys.
pub fn seen(environment: &Variables, configured: &[String]) -> ChildEnvironment {
    let keys: Vec<&str> = key_variables(configured).collect();
    let fixed = FIXED.iter().filter_map(|name| Some(((*name).to_owned(), environment.get(name)?.to_owned())));
    ChildEnvironment { fixed: fixed.collect(), offered: environment.without(&keys) }
}

/// The variables that hold keys: no child gets them.
fn key_variables(configured: &[String]) -> impl Iterator<Item = &str> {
    let built_in = PROVIDERS.iter().flat_map(|provider| provider.key_variables.iter().copied());
    let ours = [KEY_VARIABLE, ENGINE_KEY_VARIABLE].into_iter().chain(telemetry::KEY_VARIABLES);
    built_in.chain(configured.iter().map(String::as_str)).chain(ours)
}

/// Those of them that the configuration names.
pub fn configured_keys(config: &Config) -> Vec<String> {
    config.providers.values().filter_map(|provider| provider.api_key_env.clone()).collect()
}

/// What is never told: the keys in the environment now, and those that are fetched later.
pub fn redactor(environment: &Variables, config: &Config) -> Redactor {
    let configured = configured_keys(config);
    let values = key_variables(&configured).filter_map(|name| environment.get(name));
    values.for_each(|value| environment.redactor.learn(value));
    environment.redactor.clone()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn no_key_of_a_provider_can_be_chosen() {
        let ours = [("LLM_DO_STATE_KEY", "s"), ("LLM_DO_ENGINE_KEY", "e")];
        let variables = [("OPENAI_API_KEY", "k"), ("MINE", "m"), ("PATH", "/bin"), ours[0], ours[1]];
        let seen = environment(&Variables::of(variables), &Config::default());
        assert_eq!(seen.fixed, BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]));
        assert!(seen.offered.contains_key("MINE") && !seen.offered.contains_key("OPENAI_API_KEY"));
        assert!(ours.iter().all(|(name, _)| !seen.offered.contains_key(*name)), "who has one signs for the user");
        let chosen = seen.with(&["MINE".to_owned(), "OPENAI_API_KEY".to_owned(), "ABSENT".to_owned()]);
        assert_eq!(chosen.keys().collect::<Vec<_>>(), ["MINE", "PATH"]);
    }
}
