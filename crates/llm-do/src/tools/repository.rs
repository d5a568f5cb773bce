//! What `git` takes as settings or runs, in its directories and where these lead.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// In each of its directories.
const SETTINGS: &[&str] =
    &["config", "config.worktree", "hooks", "info/attributes", "objects/info/alternates", "commondir"];
/// In each directory of a worktree.
const OF_WORKTREES: &[&str] = &["config.worktree", "commondir", "gitdir"];

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
pub fn directories(path: &Path) -> Vec<PathBuf> {
    let Ok(real) = path.canonicalize() else { return Vec::new() };
    let own = if real.is_dir() { Some(real) } else { pointed_to(&real, "gitdir: ") };
    let common = own.as_ref().and_then(|own| pointed_to(&own.join("commondir"), ""));
    own.into_iter().chain(common).collect()
}

/// Whether a directory is one of `git`, whatever it is called.
pub fn is_directory(path: &Path) -> bool {
    path.join("HEAD").is_file() && path.join("objects").is_dir() && path.join("refs").is_dir()
}

/// Whether `git` would run or obey what is at a path without links, or what is in it: the repository in which it lies is a
/// bare one, or says so in its settings.
pub fn is_run(path: &Path) -> bool {
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
pub fn elsewhere(directory: &Path, worktree: &Path) -> Vec<PathBuf> {
    let settings = settings(directory);
    let real = settings.iter().filter_map(|path| path.canonicalize().ok());
    real.chain(named(directory, worktree)).filter(|real| !real.starts_with(directory)).collect()
}

/// Every path of a directory of `git` that is a setting, whether it is there or not.
pub fn settings(directory: &Path) -> Vec<PathBuf> {
    let mut settings: Vec<PathBuf> = SETTINGS.iter().map(|name| directory.join(name)).collect();
    for worktree in children(&directory.join("worktrees")) {
        settings.extend(OF_WORKTREES.iter().map(|name| worktree.join(name)));
    }
    // Modules have slashes in their names, and modules of their own.
    let mut waiting: Vec<(PathBuf, usize)> = vec![(directory.join("modules"), 0)];
    while let Some((path, depth)) = waiting.pop() {
        if path.join("HEAD").exists() {
            settings.extend(self::settings(&path));
        } else if depth < 8 {
            waiting.extend(children(&path).into_iter().map(|child| (child, depth + 1)));
        }
    }
    settings
}

/// What the settings of a directory of `git` name elsewhere and is there: each word that is a path beneath the worktree or
/// beside the settings. A word too many keeps a file read-only that nobody runs.
pub fn named(directory: &Path, worktree: &Path) -> Vec<PathBuf> {
    const MOST: u64 = 1 << 20;
    let mut text = String::new();
    for name in ["config", "config.worktree"] {
        let Ok(file) = fs::File::open(directory.join(name)) else { continue };
        let _ = file.take(MOST).read_to_string(&mut text);
        text.push('\n');
    }
    let places = [directory, worktree];
    let paths = text.lines().filter_map(setting).flat_map(|(key, value)| {
        let words = value.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '!'));
        let paths = words.filter(|word| !word.is_empty()).flat_map(|word| places.map(|place| place.join(word)));
        let is_directory_meant = key == HOOKS;
        paths.filter(move |path| path.is_file() || is_directory_meant).collect::<Vec<_>>()
    });
    let real = paths.filter_map(|path| path.canonicalize().ok());
    // A directory that the worktree lies in would be all that there is to work on.
    real.filter(|real| !directory.starts_with(real) && !worktree.starts_with(real)).collect()
}

fn setting(line: &str) -> Option<(String, &str)> {
    let (key, value) = line.trim().split_once('=')?;
    // A section and its first setting may stand on one line.
    let key = key.rsplit(']').next().unwrap_or(key).trim().to_lowercase();
    NAMING.contains(&key.as_str()).then_some((key, value))
}

fn children(directory: &Path) -> Vec<PathBuf> {
    const MOST: usize = 10_000;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MOST);
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// The directory that a file of `git` names, relative to the file's own.
fn pointed_to(file: &Path, prefix: &str) -> Option<PathBuf> {
    let mut text = String::new();
    fs::File::open(file).ok()?.take(4096).read_to_string(&mut text).ok()?;
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
