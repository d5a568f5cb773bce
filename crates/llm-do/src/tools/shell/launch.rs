//! From a judged command to what is started: its real arguments, its environment, its limits and its bounds.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::grammar::harden;
use super::process::{Confinement, MARK, Overflow, ProcessSpec};
use super::program::ShellProgram;
use super::{By, CommandJudgement, CommandMatch, Shell};
use crate::remedy::Remedy;
use crate::tools::fence::shelter::{Listings, MOST_ENTRIES, MOST_MOUNTS, Repositories, ShelterFindings, ShelterSearch};
use crate::tools::fence::{Accept, Bounds, FenceKind, Network, Write};
use crate::tools::repository;
use crate::tools::source::Access;

/// A home that is not there, for commands that need none.
const NOWHERE: &str = "/nonexistent";

impl Shell {
    /// What is started, and what must be as it was when it has ended.
    pub(super) fn launch(
        &self,
        judged: &CommandJudgement<'_>,
        program: &ShellProgram,
        timeout: Duration,
        approved: &[PathBuf],
    ) -> Result<(ProcessSpec, ShelterFindings), String> {
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
        let homes = self.programs.homes(program, self.fence.home.as_deref());
        for (name, path) in &homes {
            variable(name, path.display().to_string());
        }
        let mut arguments = texts;
        let mut private = None;
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
            let home = self.private.path(&self.fence.temporary, &self.project_root)?;
            let seen = if self.fence.is_full() { PathBuf::from("/tmp") } else { home.clone() };
            variable("HOME", seen.display().to_string());
            variable("TMPDIR", seen.display().to_string());
            variable(MARK, format!("{:016x}", fastrand::u64(..)));
            private = Some(home.clone());
            Write::Beneath(self.written(&judged.matched)?.into_iter().chain([home]).collect())
        };
        let may_write = write != Write::Nothing;
        let network = if config.network { Network::Open } else { Network::None };
        let read: Vec<PathBuf> =
            [self.directory.path.clone()].into_iter().chain(judged.fit.reads.iter().cloned()).collect();
        let written: Vec<PathBuf> = match &write {
            Write::Nothing => Vec::new(),
            Write::Beneath(paths) => paths.iter().filter(|path| Some(*path) != private.as_ref()).cloned().collect(),
        };
        // Only the full fence can keep anything from a command inside of what it may read and write.
        let found = if self.fence.is_full() {
            self.sheltered.found(self, &written, &read, judged.matched.repositories())
        } else {
            ShelterFindings::default()
        };
        // A path of the user's own may lead through links that are not there behind the fence.
        let run = self.programs.run_from(program).into_iter().chain(homes.into_iter().map(|(_, path)| path));
        let run: Vec<PathBuf> = run.filter_map(|path| path.canonicalize().ok()).collect();
        let file = if run.contains(&program.file) { program.file.clone() } else { program.path.clone() };
        let shelter = found.shelter(approved, private);
        let bounds = Bounds { read, run, write, network, shelter };
        let launch = ProcessSpec {
            program: file,
            name,
            arguments,
            environment,
            directory: self.directory.path.clone(),
            timeout,
            overflow: if is_grammar { Overflow::End } else { Overflow::Discard },
            may_write,
            within: Confinement::new(bounds, &self.fence),
        };
        Ok((launch, found))
    }

    /// Where commands of a rule write, besides a private directory.
    pub(super) fn written(&self, matched: &CommandMatch<'_>) -> Result<Vec<PathBuf>, String> {
        let config = &matched.part.config;
        let own = match config.directory {
            Access::ReadWrite => Some(self.directory.path.clone()),
            Access::ReadOnly => None,
        };
        let declared = config.write.iter().map(|path| self.fence.written.open(&self.project_root, path));
        let declared = declared.collect::<Result<Vec<_>, _>>()?;
        let linked = own.is_some().then(|| self.linked_repository(matched)).into_iter().flatten();
        Ok(own.iter().cloned().chain(declared.into_iter().flatten()).chain(linked).collect())
    }

    /// The directories of `git` that lie elsewhere and are those of the working directory by their own account: for a
    /// rule that begins with `git`.
    pub(super) fn linked_repository(&self, matched: &CommandMatch<'_>) -> Vec<PathBuf> {
        match matched.repositories() {
            Repositories::Written => repository::linked(&self.directory.path),
            Repositories::ReadOnly => Vec::new(),
        }
    }

    /// Tells which files of the working directory a fence hides from a command to which they are not named.
    pub(super) fn hidden_when_met(&self, written: &[PathBuf], repositories: Repositories) -> impl Fn(&Path) -> bool {
        // A whole tree would be looked at, and most commands meet nothing, so it is done when it is first needed.
        let found = OnceCell::new();
        let look =
            move || self.sheltered.found(self, written, std::slice::from_ref(&self.directory.path), repositories);
        move |beneath: &Path| {
            let path = self.directory.path.join(beneath);
            self.fence.is_full() && {
                let found: &ShelterFindings = found.get_or_init(&look);
                path.ancestors().any(|above| found.hidden.contains(above))
            }
        }
    }

    /// Why the fence is not enough for a command that a rule allows, if so.
    pub(super) fn unkept(&self, matched: &CommandMatch<'_>) -> Result<(), String> {
        let config = &matched.part.config;
        // The approver is not asked about a command that cannot be started.
        let Ok(written) = self.written(matched) else { return Ok(()) };
        let found = || {
            let found = self.sheltered.found(
                self,
                &written,
                std::slice::from_ref(&self.directory.path),
                matched.repositories(),
            );
            (found.mounts(&written), found)
        };
        match (&self.fence.kind, self.fence.accept) {
            (FenceKind::None { why }, _) => Err(format!("there is no fence to keep it in: {why}")),
            (FenceKind::Thin { .. }, Accept::Thin) => Ok(()),
            (FenceKind::Thin { .. }, Accept::Full) => match found() {
                (0, found) if config.directory == Access::ReadOnly && found.is_whole => Ok(()),
                _ => {
                    let remedy = self.fence.wording.of(&Remedy::AcceptUnkeptRepository);
                    Err(format!("`.git` cannot be kept read-only here; {remedy}"))
                }
            },
            (FenceKind::Full { .. }, _) => match found() {
                (_, found) if !found.is_whole => {
                    Err(format!("there are more than {MOST_ENTRIES} files, and not all secrets can be hidden"))
                }
                (mounts @ MOST_MOUNTS.., _) => {
                    Err(format!("{mounts} files and directories would have to be kept, and {MOST_MOUNTS} are"))
                }
                _ => Ok(()),
            },
        }
    }
}

/// What is kept from commands: looked for before each of them, with what is known of directories that stayed the same.
#[derive(Debug, Default)]
pub(crate) struct ShelterCache(Mutex<Listings>);

impl ShelterCache {
    fn found(
        &self,
        shell: &Shell,
        written: &[PathBuf],
        read: &[PathBuf],
        repositories: Repositories,
    ) -> ShelterFindings {
        let mut listings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (protected, hidden, home) = (&shell.protected, &shell.fence.hidden, shell.fence.home.as_deref());
        ShelterSearch { written, read, protected, hidden, home, repositories }.run(&mut listings)
    }
}
