//! From a judged command to what is started: its real arguments, its environment, its limits and its bounds.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Resource;

use super::fence::{Bounds, Network, Write};
use super::grammar::harden;
use super::process::{Launch, Limit, MARK, Overflow};
use super::program::Program;
use super::{By, Judged, Shell};
use crate::tools::source::ShellConfig;

/// A home that is not there, for commands that need none.
const NOWHERE: &str = "/nonexistent";

impl Shell {
    pub(super) fn launch(&self, judged: &Judged<'_>, program: &Program, timeout: Duration) -> Result<Launch, String> {
        let mut texts: Vec<String> = judged.words.iter().map(|word| word.text.clone()).collect();
        let name = texts.remove(0);
        let config = &judged.matched.part.config;
        let is_grammar = judged.matched.by == By::Grammar;
        let mut environment = vec![
            ("PATH".to_owned(), self.programs.search_path()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("LC_ALL".to_owned(), "C.UTF-8".to_owned()),
            ("TERM".to_owned(), "dumb".to_owned()),
        ];
        let mut variable = |name: &str, value: String| environment.push((name.to_owned(), value));
        let mut arguments = texts;
        let write = if is_grammar {
            variable("HOME", NOWHERE.to_owned());
            // A sort that does not fit into memory would write here.
            variable("TMPDIR", "/dev/null".to_owned());
            if name == "git" {
                let hardened = harden(&arguments, &self.directory);
                arguments = hardened.arguments;
                hardened.environment.into_iter().for_each(|(name, value)| variable(name, value));
            }
            let changes = !judged.fit.changes.is_empty();
            if changes { Write::Beneath(vec![self.directory.path.clone()]) } else { Write::Nothing }
        } else {
            let private = self.private.path()?;
            variable("HOME", private.display().to_string());
            variable("TMPDIR", private.display().to_string());
            variable(MARK, format!("{:016x}", fastrand::u64(..)));
            Write::Beneath(self.written(config, private))
        };
        let limits = limits(&write, timeout);
        let network = if config.network { Network::Open } else { Network::None };
        let read = [self.directory.path.clone()].into_iter().chain(judged.fit.reads.iter().cloned()).collect();
        let bounds = Bounds { read, run: self.programs.run_from(program), write, network };
        Ok(Launch {
            program: program.path.clone(),
            name,
            arguments,
            environment,
            directory: self.directory.path.clone(),
            timeout,
            overflow: if is_grammar { Overflow::End } else { Overflow::Discard },
            limits,
            bounds: self.fence.is_ok().then_some(bounds),
        })
    }

    /// Where a configured shell's commands write: relative paths are those of the project.
    fn written(&self, config: &ShellConfig, private: PathBuf) -> Vec<PathBuf> {
        let declared = config.write.iter().map(|path| self.project_root.join(path));
        [self.directory.path.clone(), private].into_iter().chain(declared).collect()
    }
}

const GIB: u64 = 1 << 30;

/// Bounds that the kernel keeps for each process, fence or none.
fn limits(write: &Write, timeout: Duration) -> Vec<Limit> {
    let mut limits = vec![
        (Resource::Core, 0),
        (Resource::Nofile, 1024),
        (Resource::Data, 4 * GIB),
        (Resource::Nproc, processes() + 1024),
    ];
    match write {
        Write::Nothing => limits.extend([(Resource::Fsize, 0), (Resource::As, 16 * GIB)]),
        Write::Beneath(_) => limits.push((Resource::Fsize, 4 * GIB)),
    }
    limits.push((Resource::Cpu, timeout.as_secs() + 5));
    limits
}

/// How many processes there are: the limit counts all of the user's, and must leave room for those of others.
fn processes() -> u64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let total = load.split(' ').nth(3).and_then(|counts| counts.split_once('/')?.1.parse().ok());
    total.unwrap_or(4096)
}

/// A directory for the commands of one shell alone, made when one first needs it, gone with the shell.
#[derive(Debug, Default)]
pub struct PrivateDirectory(Mutex<Option<PathBuf>>);

impl PrivateDirectory {
    fn path(&self) -> Result<PathBuf, String> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &*made {
            return Ok(path.clone());
        }
        let path = Path::new("/tmp").join(format!("llm-do-{:016x}", fastrand::u64(..)));
        let built = std::fs::DirBuilder::new().mode(0o700).create(&path);
        built.map_err(|error| format!("no private directory for commands: {error}"))?;
        *made = Some(path.clone());
        Ok(path)
    }

    pub fn remove(&self) -> Result<(), String> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match made {
            Some(path) => std::fs::remove_dir_all(&path).map_err(|error| format!("{}: {error}", path.display())),
            None => Ok(()),
        }
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
