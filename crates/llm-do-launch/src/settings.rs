//! What holds for every run of a user: variables, configuration, and what is kept between runs. Given as values: nothing
//! here reads the environment.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use llm_do::providers::FailedModels;
use llm_do::records::Replica;
use llm_do::runs::Redactor;
use llm_do::store::budget::BudgetBook;
use llm_do::telemetry::{Telemetry, TraceParent};

use crate::config::Config;
use crate::error::LaunchError;
use crate::rules;
use crate::state::StateDirectory;
use crate::telemetry;

/// Where remarks go that belong to no result.
pub type Notes = Arc<dyn Fn(&str) + Send + Sync>;

/// The settings of a user.
pub struct Settings {
    pub variables: Variables,
    pub config: Config,
    pub state: StateDirectory,
    pub notes: Notes,
    /// Made when the first run needs it; its runs share what they hold of it.
    pub(crate) budgets: OnceLock<Arc<BudgetBook>>,
    /// Models whose providers had trouble: all runs of the process know of them.
    pub(crate) failed: FailedModels,
    /// Where the organisation's rules are, if it has any: only root may write there.
    pub organisation_rules: PathBuf,
    /// Where the records of runs are kept besides the state directory; `None` on one machine.
    pub elsewhere: Option<RecordsElsewhere>,
}

/// What outlives this machine of a run.
#[derive(Clone, Debug)]
pub struct RecordsElsewhere {
    pub replica: Arc<dyn Replica>,
    /// Values that are too large for a line, if many machines share a place for them.
    pub blobs: Option<PathBuf>,
}

impl Settings {
    /// With the configuration that the variables lead to.
    pub fn load(variables: Variables, notes: Notes) -> Result<Self, LaunchError> {
        let config = Config::load(variables.config_file().as_deref())?;
        let state = StateDirectory::of(&variables, &config, Arc::clone(&notes))?;
        let organisation_rules = PathBuf::from(rules::ORGANISATION);
        Ok(Self {
            variables,
            config,
            state,
            notes,
            organisation_rules,
            budgets: OnceLock::new(),
            failed: FailedModels::default(),
            elsewhere: None,
        })
    }

    /// The same user's, with another state: that of a run whose record is kept elsewhere, or of what an engine keeps. What the
    /// process knows of providers that have trouble is shared.
    #[must_use]
    pub fn with_state(&self, state: StateDirectory, elsewhere: Option<RecordsElsewhere>) -> Self {
        let Self { variables, config, notes, failed, organisation_rules, .. } = self;
        let budgets = self.budgets.get().cloned().map_or_else(OnceLock::new, OnceLock::from);
        Self {
            variables: variables.clone(),
            config: config.clone(),
            state,
            notes: Arc::clone(notes),
            budgets,
            failed: failed.clone(),
            organisation_rules: organisation_rules.clone(),
            elsewhere,
        }
    }

    /// Who makes spans and metrics of the runs of the process, if the variables want that.
    pub(crate) fn telemetry(&self) -> Option<&Arc<Telemetry>> {
        self.variables.telemetry.get_or_init(|| telemetry::started(self)).as_ref()
    }
}

/// The variables of a process, as a value.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// Those whose values are text; others cannot be meant for us.
    all: Arc<BTreeMap<String, String>>,
    /// The keys that are known so far; the code that gets one teaches it.
    pub redactor: Redactor,
    /// Started when the first run needs it: all runs of the process share it.
    telemetry: Arc<OnceLock<Option<Arc<Telemetry>>>>,
}

impl Variables {
    pub fn new(all: BTreeMap<String, String>) -> Self {
        Self { all: Arc::new(all), redactor: Redactor::default(), telemetry: Arc::default() }
    }

    /// An empty variable counts as unset.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// The span that the process was started beneath, if there is one.
    pub fn trace_parent(&self) -> Option<TraceParent> {
        self.get(telemetry::TRACE_PARENT).and_then(TraceParent::parse)
    }

    /// Every variable but these.
    pub fn without(&self, names: &[&str]) -> BTreeMap<String, String> {
        let kept = self.all.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The user's configuration.
    pub fn config_file(&self) -> Option<PathBuf> {
        self.home().map(|directory| directory.join("config.toml"))
    }

    /// What we keep for the user: `$LLM_DO_HOME`, else `$XDG_CONFIG_HOME/llm-do`, else `~/.config/llm-do`.
    pub fn home(&self) -> Option<PathBuf> {
        self.place("", "XDG_CONFIG_HOME", ".config")
    }

    /// What is kept between runs and may be lost: `$LLM_DO_HOME/cache`, else `$XDG_CACHE_HOME/llm-do`, else
    /// `~/.cache/llm-do`. Without any of them nothing is kept.
    pub fn cache_directory(&self) -> Option<PathBuf> {
        self.place("cache", "XDG_CACHE_HOME", ".cache")
    }

    /// What is kept between runs and must not be lost: `$LLM_DO_HOME/state`, else `$XDG_STATE_HOME/llm-do`, else
    /// `~/.local/state/llm-do`.
    pub fn state_directory(&self) -> Option<PathBuf> {
        self.place("state", "XDG_STATE_HOME", ".local/state")
    }

    fn place(&self, ours: &str, xdg: &str, users: &str) -> Option<PathBuf> {
        let own = self.get("LLM_DO_HOME").map(|home| PathBuf::from(home).join(ours));
        let xdg = || self.get(xdg).map(|path| PathBuf::from(path).join("llm-do"));
        let user = || self.get("HOME").map(|home| PathBuf::from(home).join(users).join("llm-do"));
        own.or_else(xdg).or_else(user)
    }

    /// What we keep for the user and no other user needs to read: settings, state and cache.
    pub fn own_directories(&self) -> Vec<PathBuf> {
        let kept = self.home().into_iter().chain(self.state_directory());
        kept.chain(self.cache_directory()).collect()
    }

    /// A path of the user's, in which `~` is the home.
    pub fn expand(&self, path: &str) -> PathBuf {
        match (path.strip_prefix('~'), self.get("HOME")) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                PathBuf::from(format!("{home}{rest}"))
            }
            _ => PathBuf::from(path),
        }
    }

    /// The user's name, or at least number.
    pub fn user(&self) -> String {
        let named = self.get("USER").or_else(|| self.get("LOGNAME")).map(str::to_owned);
        named.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()))
    }

    /// These, and no others.
    pub fn of<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::new(all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_found_by_three_variables_in_order() {
        let all = [("LLM_DO_HOME", "/l"), ("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(Variables::of(all).config_file(), Some("/l/config.toml".into()));
        assert_eq!(Variables::of([all[1], all[2]]).config_file(), Some("/x/llm-do/config.toml".into()));
        assert_eq!(Variables::of([all[2]]).config_file(), Some("/h/.config/llm-do/config.toml".into()));
        assert_eq!(Variables::of([("LLM_DO_HOME", " ")]).config_file(), None);
        let all = [("LLM_DO_HOME", "/l"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(Variables::of(all).state_directory(), Some("/l/state".into()));
        assert_eq!(Variables::of([all[1], all[2]]).state_directory(), Some("/x/llm-do".into()));
        assert_eq!(Variables::of([all[2]]).state_directory(), Some("/h/.local/state/llm-do".into()));
    }
}
