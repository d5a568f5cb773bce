//! What `git` takes as settings or runs, in its directories and where these lead.

use std::fs;
use std::path::{Path, PathBuf};

use crate::beneath::read_regular;

/// What `git` takes as settings or runs in each of its directories.
const SETTINGS: &[&str] =
    &["config", "config.worktree", "hooks", "info/attributes", "objects/info/alternates", "commondir"];
/// What is there while `git` works, and lists programs that it runs when it goes on.
pub(crate) const FOLLOWED: [&str; 1] = ["rebase-merge/git-rebase-todo"];
/// Any of them makes a directory among the modules one of `git`.
const OF_MODULES: &[&str] = &["HEAD", "config", "hooks", "objects", "refs"];
/// What such a directory holds that is no module, or is looked at by itself.
const CONTENTS: &[&str] = &["objects", "refs", "logs", "hooks", "info", "modules", "worktrees", "lfs"];
/// What counts as settings in each directory of a worktree.
const OF_WORKTREES: &[&str] = &["config.worktree", "commondir", "gitdir"];

/// More of a file of settings is not read.
const LONGEST_SETTINGS: u64 = 1 << 20;

/// Directories that tell a directory of `git` from any other: without them it is none. `git` needs more than these in
/// it, but a command could take the rest away and bring it back.
pub(crate) const MARKS: [&str; 2] = ["objects", "refs"];

const HOOKS: &str = "hookspath";
/// Settings whose values name a file that is read as settings or run.
const NAMING: &[&str] = &[
    "attributesfile",
    "clean",
    "cmd",
    "command",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "helper",
    HOOKS,
    "pager",
    "path",
    "process",
    "program",
    "smudge",
    "sshcommand",
    "textconv",
];

/// The directories behind a `.git`: itself, or what a file leads to, and what that shares.
pub(crate) fn directories(path: &Path) -> Vec<PathBuf> {
    let Ok(real) = path.canonicalize() else { return Vec::new() };
    let own = if real.is_dir() { Some(real) } else { pointed_to(&real, "gitdir: ") };
    let common = own.as_ref().and_then(|own| pointed_to(&own.join("commondir"), ""));
    own.into_iter().chain(common).collect()
}

/// The directories behind the `.git` of a working directory that lie elsewhere, if they say themselves that they are
/// those of this directory: a worktree or a module that `git` has made. A `.git` file alone is not enough, because an
/// attacker could write it.
pub(crate) fn linked(worktree: &Path) -> Vec<PathBuf> {
    let git = worktree.join(".git");
    if !git.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Vec::new();
    }
    let found = directories(&git);
    let Some((own, shared)) = found.split_first() else { return Vec::new() };
    let is_worktree = || pointed_to(&own.join("gitdir"), "").is_some_and(|named| named == git);
    let is_known = match shared {
        [] => has_worktree(own, worktree),
        [shared, ..] => own.parent() == Some(&shared.join("worktrees")) && is_worktree(),
    };
    if is_known { found } else { Vec::new() }
}

/// The `.git` that a program would find from a directory, if commands in this directory do not reach what it stands
/// for: it lies further up, or leads elsewhere.
pub(crate) fn out_of_reach(directory: &Path) -> Option<PathBuf> {
    let git = directory.ancestors().map(|above| above.join(".git")).find(|git| git.symlink_metadata().is_ok())?;
    let is_own = git.parent() == Some(directory);
    let leads_elsewhere = directories(&git).iter().any(|real| !real.starts_with(directory));
    (!is_own || (leads_elsewhere && linked(directory).is_empty())).then_some(git)
}

/// Whether the settings of a module name the directory that it is checked out in.
fn has_worktree(own: &Path, worktree: &Path) -> bool {
    let text = text_of(&own.join("config"), LONGEST_SETTINGS).unwrap_or_default();
    let named = text.lines().filter_map(|line| line.trim().split_once('='));
    let named = named.filter(|(key, _)| key.trim().eq_ignore_ascii_case("worktree"));
    let mut real = named.filter_map(|(_, value)| own.join(value.trim()).canonicalize().ok());
    real.any(|real| real == worktree)
}

/// Whether a directory is one of `git`, whatever it is called.
pub(crate) fn is_directory(path: &Path) -> bool {
    MARKS.iter().all(|mark| path.join(mark).is_dir())
}

/// Whether `git` would run or obey what is at a path without links, or what is in it: the repository in which it lies
/// is a bare one, or says so in its settings.
pub(crate) fn is_run(path: &Path) -> bool {
    for above in path.ancestors() {
        if is_directory(above) {
            return true;
        }
        let git = above.join(".git");
        if git.symlink_metadata().is_ok() {
            let concerns = |kept: &PathBuf| path.starts_with(kept) || (path != above && kept.starts_with(path));
            return directories(&git).iter().any(|directory| elsewhere(directory, above).iter().any(concerns));
        }
    }
    false
}

/// What settings of a directory of `git` are, or name, that is not beneath it.
pub(crate) fn elsewhere(directory: &Path, worktree: &Path) -> Vec<PathBuf> {
    let settings = settings(directory);
    let real = settings.iter().filter_map(|path| path.canonicalize().ok());
    real.chain(named(directory, worktree)).filter(|real| !real.starts_with(directory)).collect()
}

/// Every path of a directory of `git` that is a setting, whether it is there or not.
pub(crate) fn settings(directory: &Path) -> Vec<PathBuf> {
    let mut settings: Vec<PathBuf> = SETTINGS.iter().map(|name| directory.join(name)).collect();
    settings.extend(Some(directory.join("worktrees")).filter(|path| is_closed(path)));
    for worktree in children(&directory.join("worktrees")) {
        settings.extend(OF_WORKTREES.iter().map(|name| worktree.join(name)));
    }
    // Modules have slashes in their names, and modules of their own.
    let mut waiting: Vec<(PathBuf, usize)> = vec![(directory.join("modules"), 0)];
    while let Some((path, depth)) = waiting.pop() {
        if is_closed(&path) {
            settings.push(path);
            continue;
        }
        // One that a command took apart is still one: `git` needs more of it than this, which the command can bring
        // back.
        if depth > 0 && OF_MODULES.iter().any(|name| path.join(name).symlink_metadata().is_ok()) {
            settings.extend(self::settings(&path));
        }
        if depth < 8 {
            let is_searched =
                |child: &PathBuf| !child.file_name().is_some_and(|name| CONTENTS.iter().any(|one| name == *one));
            waiting.extend(children(&path).into_iter().filter(is_searched).map(|child| (child, depth + 1)));
        }
    }
    settings
}

/// What the settings of a directory of `git` name elsewhere and is there: each word that is a path beneath the worktree
/// or beside the settings. A word too many only keeps a file read-only that `git` does not run.
pub(crate) fn named(directory: &Path, worktree: &Path) -> Vec<PathBuf> {
    let texts = ["config", "config.worktree"].map(|name| text_of(&directory.join(name), LONGEST_SETTINGS));
    let text = texts.map(Option::unwrap_or_default).join("\n");
    let places = [directory, worktree];
    let paths = text.lines().filter_map(setting).flat_map(|(key, value)| {
        let words = value.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '!'));
        let paths = words.filter(|word| !word.is_empty()).flat_map(|word| places.map(|place| place.join(word)));
        let is_directory_meant = key == HOOKS;
        paths.filter(move |path| path.is_file() || is_directory_meant).collect::<Vec<_>>()
    });
    let real = paths.filter_map(|path| path.canonicalize().ok());
    // A directory that the worktree lies in is left out: if it were kept, nothing would be left to work on.
    real.filter(|real| !directory.starts_with(real) && !worktree.starts_with(real)).collect()
}

fn setting(line: &str) -> Option<(String, &str)> {
    let (key, value) = line.trim().split_once('=')?;
    // A section and its first setting may stand on one line.
    let key = key.rsplit(']').next().unwrap_or(key).trim().to_lowercase();
    NAMING.contains(&key.as_str()).then_some((key, value))
}

/// Whether it is a directory that no process may look into, until its owner changes that.
fn is_closed(directory: &Path) -> bool {
    fs::read_dir(directory).map(|mut entries| entries.next()).is_err_and(|error| is_denied(&error))
        || directory.join(".").metadata().is_err_and(|error| is_denied(&error))
}

/// What a file says. Bytes that are no text do not matter: settings around them are obeyed all the same.
fn text_of(file: &Path, most: u64) -> Option<String> {
    read_regular(file, most).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn is_denied(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

fn children(directory: &Path) -> Vec<PathBuf> {
    const MOST: usize = 10_000;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MOST);
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// The directory that a file of `git` names, relative to the file's own.
fn pointed_to(file: &Path, prefix: &str) -> Option<PathBuf> {
    let text = text_of(file, 4096)?;
    file.parent()?.join(text.strip_prefix(prefix)?.trim_end()).canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_what_they_run_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let git = root.join(".git");
        for path in [".git/x", "tools/hooks/pre-commit", "elsewhere/x", "own", "run/clean.sh", "other/x", "deep/er/x"] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), "").unwrap();
        }
        let text = "[core]\n\tHooksPath = \"tools/hooks\"\n\tworktree = ../elsewhere\n[include] path = ../own\n\
                    [filter \"x\"]\n\tclean = sh run/clean.sh %f . ./ other\n[remote \"o\"]\n\turl = ../other\n\
                    [core]\n\thookspath = ./\n\thookspath = /\n\tpager = missing\n";
        fs::write(git.join("config"), text).unwrap();
        assert_eq!(named(&git, &root), [root.join("tools/hooks"), root.join("own"), root.join("run/clean.sh")]);
    }
}
