//! What is kept between runs and must not be lost: where it is, and the key that tells ours from others'.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use llm_do::created::CreatedStore;
use llm_do::python::CompiledStore;
use llm_do::records::StateKey;
use llm_do::store::cache::ReplyStore;
use llm_do::store::layout::StoreLayout;
use llm_do::store::run::RunStore;
use llm_do::{Project, files};

use crate::config::Config;
use crate::error::LaunchError;
use crate::settings::{Notes, Variables};

/// Who has its value may start runs of an engine and answer their questions; no child has.
pub const ENGINE_KEY_VARIABLE: &str = "LLM_DO_ENGINE_KEY";
/// Machines that share its value sign for each other.
pub const KEY_VARIABLE: &str = "LLM_DO_STATE_KEY";

/// The state directory. Nothing of it is read or made before it is needed.
pub struct StateDirectory {
    directory: Option<PathBuf>,
    cache: Option<PathBuf>,
    source: StateKeySource,
    key: OnceLock<Option<StateKey>>,
    notes: Notes,
}

impl fmt::Debug for StateDirectory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum StateKeySource {
    Directory,
    Given(StateKey),
    File(PathBuf),
}

impl StateDirectory {
    pub fn of(environment: &Variables, config: &Config, notes: Notes) -> Result<Self, LaunchError> {
        let source = match (environment.get(KEY_VARIABLE), &config.runs.key_file) {
            (Some(text), _) => StateKeySource::Given(StateKey::from_hex(text).ok_or_else(|| {
                LaunchError::usage(format!("{KEY_VARIABLE} is no key")).hint("a key has 64 hex digits")
            })?),
            (None, Some(file)) => StateKeySource::File(file.clone()),
            (None, None) => StateKeySource::Directory,
        };
        Ok(Self {
            directory: environment.state_directory(),
            cache: environment.cache_directory(),
            source,
            key: OnceLock::new(),
            notes,
        })
    }

    /// One at this place, whose runs are signed with this key. What may be lost is kept where it was before.
    pub fn at(directory: PathBuf, key: StateKey, environment: &Variables, notes: Notes) -> Self {
        let (cache, source) = (environment.cache_directory(), StateKeySource::Given(key));
        Self { directory: Some(directory), cache, source, key: OnceLock::new(), notes }
    }

    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The key, made when it is first asked for. Without one nothing can be signed, which is said once; a key that was
    /// named and cannot be used is an error.
    pub fn key(&self) -> Result<Option<&StateKey>, LaunchError> {
        if let Some(key) = self.key.get() {
            return Ok(key.as_ref());
        }
        let key = self.found()?.map_err(|reason| {
            (self.notes)(&format!(
                "note: nothing can be signed, so what is kept now counts as a stranger's later: {reason}\n"
            ));
        });
        Ok(self.key.get_or_init(|| key.ok()).as_ref())
    }

    /// The key, or why there is none.
    fn found(&self) -> Result<Result<StateKey, String>, LaunchError> {
        Ok(match (&self.source, &self.directory) {
            (StateKeySource::Given(key), _) => Ok(key.clone()),
            (StateKeySource::File(file), _) => Ok(from_file(file)?),
            (StateKeySource::Directory, Some(directory)) => {
                StateKey::of_directory(directory).map_err(|error| format!("{}: {error}", directory.display()))
            }
            (StateKeySource::Directory, None) => Err("there is no home directory for a key".to_owned()),
        })
    }

    /// The runs that are kept, or why none can be: without a place, or a key to sign with, nothing would be believed later.
    pub fn runs(&self) -> Result<Result<RunStore, String>, LaunchError> {
        let Some(directory) = &self.directory else { return Ok(Err("there is no home directory".to_owned())) };
        let key = match self.key.get() {
            Some(Some(key)) => Ok(key.clone()),
            Some(None) => Err("nothing can be signed".to_owned()),
            None => self.found()?,
        };
        Ok(key.map(|key| {
            let key = self.key.get_or_init(|| Some(key)).clone();
            RunStore::new(StoreLayout::new(directory), key)
        }))
    }

    /// The same for a command that only looks: nothing is made for that. `None` if no run was ever kept.
    pub fn runs_so_far(&self) -> Result<Option<RunStore>, LaunchError> {
        let is_there = self.directory().is_some_and(|directory| StoreLayout::new(directory).runs().is_dir());
        if is_there { Ok(self.runs()?.ok()) } else { Ok(None) }
    }

    /// Where replies are kept that count again. Without a key or a place none are, and models are asked as usual.
    pub fn replies(&self, most: u64) -> Result<Option<ReplyStore>, LaunchError> {
        let key = match self.key.get() {
            Some(known) => known.clone(),
            None => self.found()?.ok(),
        };
        let kept = |cache: &PathBuf, key| ReplyStore { directory: cache.join("replies"), key, most };
        Ok(self.cache.as_ref().zip(key).map(|(cache, key)| kept(cache, key)))
    }

    /// Where compiled code is kept, for a project that needs any. Without a key or a place none is: that costs time and nothing else,
    /// so nothing is said of it.
    pub fn compiled(&self, project: &Project) -> Result<Option<CompiledStore>, LaunchError> {
        if !project.needs_python() {
            return Ok(None);
        }
        let key = match self.key.get() {
            Some(known) => known.clone(),
            None => self.found()?.ok(),
        };
        let kept = |cache: &PathBuf, key| CompiledStore { directory: cache.join("compiled"), key };
        Ok(self.cache.as_ref().zip(key).map(|(cache, key)| kept(cache, key)))
    }
}

impl StateDirectory {
    /// Where it is kept which agents were created. Without a key, or a place, they are known in one run alone.
    pub fn created(&self) -> Result<Option<CreatedStore>, LaunchError> {
        let Some(directory) = self.directory().map(Path::to_owned) else { return Ok(None) };
        Ok(self.key()?.cloned().map(|key| CreatedStore { directory, key }))
    }

    /// The same for a command that only looks: nothing is made for that.
    pub fn created_so_far(&self) -> Result<Option<CreatedStore>, LaunchError> {
        let is_there = self.directory().is_some_and(|directory| directory.join("created").is_dir());
        if is_there { self.created() } else { Ok(None) }
    }
}

/// A key is far smaller.
const LARGEST: u64 = 4096;

fn from_file(file: &Path) -> Result<StateKey, LaunchError> {
    let wrong = |what: String| LaunchError::usage(format!("`[runs] key_file`: {}: {what}", file.display()));
    let bytes = files::read_regular(file, LARGEST).map_err(|error| wrong(error.to_string()))?;
    let text = String::from_utf8_lossy(&bytes);
    StateKey::from_hex(&text).ok_or_else(|| wrong("a key has 64 hex digits".to_owned()))
}

#[cfg(test)]
mod tests {
    use llm_do::records::{LineMac, SigningPurpose};

    use super::*;

    fn mac(state: &StateDirectory) -> LineMac {
        state.key().unwrap().unwrap().mac(SigningPurpose::Trust, [&b"x"[..]])
    }

    #[test]
    fn a_shared_key_counts_before_the_one_of_the_directory() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [home, other] = [&one, &two].map(|home| home.path().to_str().unwrap().to_owned());
        let hex = "5c".repeat(32);
        let state = |variables: [(&str, &str); 2], config: &Config| {
            StateDirectory::of(&Variables::of(variables), config, std::sync::Arc::new(|_| {}))
                .map_err(|error| error.fact())
        };
        let own = Config::default();
        let shared = mac(&state([("LLM_DO_HOME", &home), (KEY_VARIABLE, &hex)], &own).unwrap());
        assert!(!one.path().join("state").exists(), "a key that is given makes no file");
        assert_eq!(shared, mac(&state([("LLM_DO_HOME", &other), (KEY_VARIABLE, &hex)], &own).unwrap()));
        let first = mac(&state([("LLM_DO_HOME", &home), ("X", "")], &own).unwrap());
        assert_ne!(first, shared);
        assert_eq!(first, mac(&state([("LLM_DO_HOME", &home), ("X", "")], &own).unwrap()));
        let file = two.path().join("shared.key");
        std::fs::write(&file, format!("{hex}\n")).unwrap();
        let mut config = Config::default();
        config.runs.key_file = Some(file.clone());
        assert_eq!(shared, mac(&state([("LLM_DO_HOME", &home), ("X", "")], &config).unwrap()));
        std::fs::write(&file, "short").unwrap();
        assert!(state([("LLM_DO_HOME", &home), ("X", "")], &config).unwrap().key().is_err());
        assert!(state([("LLM_DO_HOME", &home), (KEY_VARIABLE, "short")], &own).is_err());
    }
}
