//! The process's environment as a value: read once, here and nowhere else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use llm_do::redact::Redactor;

use crate::terminal::Terminal;

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts about the process, each of its own")]
pub struct Environment {
    /// Variables whose values are text; others cannot be meant for us.
    variables: BTreeMap<String, String>,
    pub stdin_is_terminal: bool,
    pub stdout_is_terminal: bool,
    pub stderr_is_terminal: bool,
    /// Somebody can be asked: stderr is a terminal, and so is what controls the process.
    pub can_ask: bool,
    /// A pipe or a file; a terminal or a device is never read.
    pub stdin_is_readable: bool,
    /// The keys that are known so far; whoever gets one teaches it.
    pub redactor: Redactor,
}

impl Environment {
    pub fn read() -> Self {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let stderr_is_terminal = std::io::stderr().is_terminal();
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            stdin_is_terminal: std::io::stdin().is_terminal(),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal,
            can_ask: stderr_is_terminal && Terminal::is_there(),
            stdin_is_readable: stdin_is_readable(),
            redactor: Redactor::default(),
        }
    }

    /// An empty variable counts as unset.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// The user's configuration.
    pub fn config_file(&self) -> Option<PathBuf> {
        self.home().map(|directory| directory.join("config.toml"))
    }

    /// What is kept between runs and may be lost: `$LLM_DO_HOME/cache`, else `$XDG_CACHE_HOME/llm-do`, else
    /// `~/.cache/llm-do`. Without any of them nothing is kept.
    pub fn cache_directory(&self) -> Option<PathBuf> {
        let home = self.get("LLM_DO_HOME").map(|path| PathBuf::from(path).join("cache"));
        let xdg = || self.get("XDG_CACHE_HOME").map(|path| PathBuf::from(path).join("llm-do"));
        let user = || self.get("HOME").map(|path| PathBuf::from(path).join(".cache").join("llm-do"));
        home.or_else(xdg).or_else(user)
    }

    /// What is kept between runs and must not be lost: `$LLM_DO_HOME/state`, else `$XDG_STATE_HOME/llm-do`, else
    /// `~/.local/state/llm-do`.
    pub fn state_directory(&self) -> Option<PathBuf> {
        let home = self.get("LLM_DO_HOME").map(|path| PathBuf::from(path).join("state"));
        let xdg = || self.get("XDG_STATE_HOME").map(|path| PathBuf::from(path).join("llm-do"));
        let user = || self.get("HOME").map(|path| PathBuf::from(path).join(".local/state/llm-do"));
        home.or_else(xdg).or_else(user)
    }

    /// Every variable but these.
    pub fn without(&self, names: &[&str]) -> BTreeMap<String, String> {
        let kept = self.variables.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// What we keep for the user: `$LLM_DO_HOME`, else `$XDG_CONFIG_HOME/llm-do`, else `~/.config/llm-do`.
    pub fn home(&self) -> Option<PathBuf> {
        let home = self.get("LLM_DO_HOME").map(PathBuf::from);
        let xdg = || self.get("XDG_CONFIG_HOME").map(|path| PathBuf::from(path).join("llm-do"));
        let user = || self.get("HOME").map(|path| PathBuf::from(path).join(".config").join("llm-do"));
        home.or_else(xdg).or_else(user)
    }

    /// What we keep for the user and nobody else needs to read: settings, state and cache.
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

    pub fn colours_stderr(&self) -> bool {
        self.stderr_is_terminal && self.wants_colour()
    }

    pub fn colours_stdout(&self) -> bool {
        self.stdout_is_terminal && self.wants_colour()
    }

    /// Unless `NO_COLOR` or a dumb terminal says otherwise.
    fn wants_colour(&self) -> bool {
        self.get("NO_COLOR").is_none() && !self.is_dumb()
    }

    /// A terminal that knows no control codes, or of which nothing is known.
    pub fn is_dumb(&self) -> bool {
        self.get("TERM").is_none_or(|term| term == "dumb")
    }

    /// The user's name, or at least number.
    pub fn user(&self) -> String {
        let named = self.get("USER").or_else(|| self.get("LOGNAME")).map(str::to_owned);
        named.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()))
    }

    #[cfg(test)]
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { variables: variables.collect(), ..Self::default() }
    }
}

fn stdin_is_readable() -> bool {
    use rustix::fs::FileType;
    let Ok(stat) = rustix::fs::fstat(std::io::stdin()) else { return false };
    matches!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile | FileType::Fifo | FileType::Socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_found_by_three_variables_in_order() {
        let all = [("LLM_DO_HOME", "/l"), ("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(Environment::of(all).config_file(), Some("/l/config.toml".into()));
        assert_eq!(Environment::of([all[1], all[2]]).config_file(), Some("/x/llm-do/config.toml".into()));
        assert_eq!(Environment::of([all[2]]).config_file(), Some("/h/.config/llm-do/config.toml".into()));
        assert_eq!(Environment::of([("LLM_DO_HOME", " ")]).config_file(), None);
        let all = [("LLM_DO_HOME", "/l"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(Environment::of(all).state_directory(), Some("/l/state".into()));
        assert_eq!(Environment::of([all[1], all[2]]).state_directory(), Some("/x/llm-do".into()));
        assert_eq!(Environment::of([all[2]]).state_directory(), Some("/h/.local/state/llm-do".into()));
    }
}
