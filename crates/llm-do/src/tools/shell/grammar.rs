//! What the built-in shells run: for each command the flags and operands that are known to be harmless. Everything else
//! does not fit, abbreviated flags included: a list of the dangerous ones would never be complete.

mod find;
mod git;
mod index;
mod options;
mod repository;
mod tables;

use std::path::{Path, PathBuf};

use super::directory::{CommandDirectory, CommandPath, CommandPathKind, Secrets};
use super::words::Word;
use crate::escape::visible;
use crate::tools::working_directory;
use options::{Flag, Options};

pub(crate) use git::harden;

/// A command that fits its grammar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Reasons to ask before it runs all the same.
    pub doubts: Vec<String>,
    /// Directories besides the working directory that it reads.
    pub reads: Vec<PathBuf>,
    /// What it changes.
    pub changes: Vec<CommandPath>,
}

/// Whether a fence keeps a file of the working directory from a command that only meets it on its way.
pub(crate) type IsHidden<'a> = &'a dyn Fn(&Path) -> bool;

/// Holds a command (its name first) against the grammar of its name; an error says what does not fit.
pub(crate) fn fit(words: &[Word], directory: &CommandDirectory, is_hidden: IsHidden<'_>) -> Result<Fit, String> {
    let (name, rest) = words.split_first().ok_or("the command is empty")?;
    working_directory::refusal(&directory.path).map_or(Ok(()), Err)?;
    match name.text.as_str() {
        "find" => find::fit(rest, directory),
        "git" => git::fit(rest, directory, is_hidden),
        "grep" => grep(rest, directory, is_hidden),
        "mv" => mv(rest, directory),
        "ls" => files(rest, tables::LS, OPTIONAL, directory),
        "cat" => files(rest, tables::CAT, SOME, directory),
        "head" => files(rest, tables::HEAD, SOME, directory),
        "tail" => files(rest, tables::TAIL, SOME, directory),
        "wc" => files(rest, tables::WC, SOME, directory),
        "sort" => files(rest, tables::SORT, SOME, directory),
        // Its second operand would be written.
        "uniq" => files(rest, tables::UNIQ, Count { least: 1, most: 1 }, directory),
        other => Err(format!("`{}` has no grammar", visible(other))),
    }
}

/// How many operands a command takes.
#[derive(Clone, Copy)]
struct Count {
    least: usize,
    most: usize,
}

const OPTIONAL: Count = Count { least: 0, most: usize::MAX };
/// Without a file these commands read their input, and there is none.
const SOME: Count = Count { least: 1, most: usize::MAX };

impl Count {
    fn check(self, found: usize) -> Result<(), String> {
        if found < self.least {
            return Err("it names no file, and there is no standard input to read".to_owned());
        }
        if found > self.most {
            return Err(format!("it takes {} file at most", self.most));
        }
        Ok(())
    }
}

/// Flags, then files.
fn files(words: &[Word], flags: &'static [Flag], count: Count, directory: &CommandDirectory) -> Result<Fit, String> {
    let options = Options::read(words, flags)?;
    count.check(options.operands.len())?;
    let mut fit = Fit::default();
    for operand in &options.operands {
        read_file(operand, directory, &mut fit)?;
    }
    Ok(fit)
}

/// An operand that is read.
fn read_file(operand: &Word, directory: &CommandDirectory, fit: &mut Fit) -> Result<CommandPath, String> {
    if operand.text == "-" {
        return Err("there is no standard input to read".to_owned());
    }
    let place = directory.find(operand)?;
    if directory.is_secret(&place) {
        fit.doubts.push(format!("`{}` looks like a secret", visible(&place.shown())));
    }
    Ok(place)
}

fn grep(words: &[Word], directory: &CommandDirectory, is_hidden: IsHidden<'_>) -> Result<Fit, String> {
    let options = Options::read(words, tables::GREP)?;
    let mut fit = Fit::default();
    for file in options.values("file") {
        read_file(file, directory, &mut fit)?;
    }
    let has_pattern = options.has("regexp") || options.has("file");
    let operands = match (has_pattern, options.operands.as_slice()) {
        (true, operands) => operands,
        (false, [_pattern, operands @ ..]) => operands,
        (false, []) => return Err("it has no pattern".to_owned()),
    };
    let is_recursive = options.has("recursive");
    if !is_recursive {
        SOME.check(operands.len())?;
    }
    let mut starts = Vec::new();
    for operand in operands {
        starts.push(read_file(operand, directory, &mut fit)?);
    }
    if operands.is_empty() {
        starts.push(directory.find(&Word::literal("."))?);
    }
    let included: Vec<&str> = options.values("include").map(|word| word.text.as_str()).collect();
    // Beside an exclusion, what matches neither may be read all the same: it depends on which of them comes first.
    let reads_all = included.is_empty() || options.has("exclude");
    let is_included = |name: &str| reads_all || included.iter().any(|pattern| may_match(pattern, name));
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_read = |path: &Path| is_included(&name(path)) && !is_hidden(path);
    for start in starts.iter().filter(|start| is_recursive && start.kind == CommandPathKind::Directory) {
        fit.doubts.extend(doubt_about_secrets(directory, &start.beneath, &is_read));
    }
    Ok(fit)
}

/// A reason to ask before everything beneath a directory is read.
pub(crate) fn doubt_about_secrets(
    directory: &CommandDirectory,
    start: &Path,
    is_read: &dyn Fn(&Path) -> bool,
) -> Option<String> {
    match directory.secrets_beneath(start, is_read) {
        Secrets::None => None,
        Secrets::One(path) => {
            Some(format!("`{}` looks like a secret and would be read", visible(&path.display().to_string())))
        }
        Secrets::TooMany => Some("so many files are read that nobody looked for secrets among them".to_owned()),
    }
}

/// Whether a pattern of file names may match: exact for `*.rs`, yes for whatever is less simple.
fn may_match(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(ending) if ending.starts_with('.') && ending[1..].bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            name.ends_with(ending)
        }
        _ => true,
    }
}

fn mv(words: &[Word], directory: &CommandDirectory) -> Result<Fit, String> {
    let options = Options::read(words, tables::MV)?;
    let (target, sources) = match options.operands.split_last() {
        Some((target, sources)) if !sources.is_empty() => (target, sources),
        _ => return Err("it takes what is moved, and where to".to_owned()),
    };
    let mut fit = Fit::default();
    let target = directory.find(target)?;
    for source in sources {
        let place = directory.find(source)?;
        if directory.is_secret(&place) {
            fit.doubts.push(format!("`{}` looks like a secret", visible(&place.shown())));
        }
        // What is moved into a directory keeps its own name there; a file has nothing in it.
        let is_into = target.kind != CommandPathKind::File;
        let own_name = place.written.file_name().filter(|_| is_into).map(|name| CommandPath {
            written: target.written.join(name),
            beneath: target.beneath.join(name),
            kind: place.kind,
        });
        fit.changes.extend(own_name);
        fit.changes.push(place);
    }
    if directory.is_secret(&target) {
        fit.doubts.push(format!("`{}` looks like a secret", visible(&target.written.display().to_string())));
    }
    fit.changes.push(target);
    Ok(fit)
}

#[cfg(test)]
mod tests;
