//! Which Python runs a project's files, what it sees of the environment, and where what it needs is kept. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use llm_do::model::provider::PROVIDERS;
use llm_do::tools::python::{Python, Tracebacks, interpreter};

use crate::config::Config;
use crate::environment::Environment;

/// What a child sees whatever a project says: enough to find programs, files and words, and nothing of anybody's.
const FIXED: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV"];

/// What was decided about Python before the project was read.
#[derive(Clone, Debug)]
pub struct PythonPlan {
    named: Option<PathBuf>,
    virtual_env: Option<String>,
    variables: BTreeMap<String, String>,
    offered: BTreeMap<String, String>,
    cache: PathBuf,
    tracebacks: Tracebacks,
}

impl PythonPlan {
    pub fn of(named: Option<PathBuf>, environment: &Environment, config: &Config) -> Self {
        let built_in = PROVIDERS.iter().flat_map(|provider| provider.key_variables.iter().copied());
        let custom = config.providers.values().filter_map(|provider| provider.api_key_env.as_deref());
        let keys: Vec<&str> = built_in.chain(custom).collect();
        let fixed = FIXED.iter().filter_map(|name| Some(((*name).to_owned(), environment.get(name)?.to_owned())));
        Self {
            named,
            virtual_env: environment.get("VIRTUAL_ENV").map(str::to_owned),
            variables: fixed.collect(),
            offered: environment.without(&keys),
            cache: environment.cache_directory(),
            tracebacks: Tracebacks::Nothing,
        }
    }

    /// With `--debug`.
    #[must_use]
    pub fn telling(self, tracebacks: Tracebacks) -> Self {
        Self { tracebacks, ..self }
    }

    /// For a project with this root.
    pub fn python(&self, root: &Path) -> Python {
        Python {
            program: self.named.clone().unwrap_or_else(|| interpreter(root, self.virtual_env.as_deref())),
            variables: self.variables.clone(),
            offered: self.offered.clone(),
            cache: self.cache.clone(),
            tracebacks: self.tracebacks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_the_named_one_the_projects_the_active_one_or_the_first_on_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let make = |environment: &str| {
            let bin = directory.path().join(environment).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(bin.join("python"), "").unwrap();
            bin.join("python")
        };
        let active = make("active");
        let path = directory.path().join("active").to_str().unwrap().to_owned();
        let environment = Environment::of([("VIRTUAL_ENV", path.as_str())]);
        let chosen = |named: Option<&str>, environment: &Environment| {
            let plan = PythonPlan::of(named.map(PathBuf::from), environment, &Config::default());
            plan.python(directory.path()).program
        };
        assert_eq!(chosen(None, &Environment::default()), Path::new("python3"));
        assert_eq!(chosen(None, &environment), active);
        let own = make(".venv");
        assert_eq!(chosen(None, &environment), own);
        assert_eq!(chosen(Some("/opt/python"), &environment), Path::new("/opt/python"));
    }

    #[test]
    fn no_key_of_a_provider_can_be_chosen() {
        let environment = Environment::of([("OPENAI_API_KEY", "k"), ("MINE", "m"), ("PATH", "/bin"), ("OTHER", "o")]);
        let python = PythonPlan::of(None, &environment, &Config::default()).python(Path::new("."));
        assert_eq!(python.variables, BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]));
        assert!(python.offered.contains_key("MINE") && !python.offered.contains_key("OPENAI_API_KEY"));
    }
}
