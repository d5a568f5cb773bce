//! What the words of a command may name: the only place that says so. A program reads its words as it likes (`-tDIR`,
//! `-f.env`, `@file`, `HEAD:.env`, `if=x`), so every end of a word that names something is taken for an operand.

use std::io;
use std::path::{Path, PathBuf};

use super::words::Word;
use crate::beneath::Identity;
use crate::tools::protected::Target;
use crate::tools::secret::looks_secret;

/// Something that a command may read or write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operand {
    /// The end of a word that names it.
    pub named: String,
    /// Where this leads.
    pub target: Target,
    pub identity: Option<Identity>,
    pub is_directory: bool,
}

/// The operands of one command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operands {
    /// Without links.
    directory: PathBuf,
    pub all: Vec<Operand>,
    /// What would lie in the directories among them if the others were put there: under their own names.
    pub placed: Vec<Operand>,
    /// There are more than are looked at.
    pub are_too_many: bool,
}

/// No honest command names more.
const MOST_OPERANDS: usize = 1024;
const MOST_PLACED: usize = 4096;
/// Longer paths lead nowhere.
const LONGEST_PATH: usize = 4096;
/// As many letters may stand before the value of an option, as in `-vDtDIR`.
const MOST_LETTERS: usize = 8;

impl Operands {
    /// Of words that are run in this directory; the words of the rule that allows them are none.
    pub(crate) fn of(words: &[Word], directory: &Path) -> Self {
        let (all, placed) = (Vec::new(), Vec::new());
        let mut operands = Self { directory: directory.to_owned(), all, placed, are_too_many: false };
        for word in words {
            for (start, _) in word.text.char_indices() {
                let end = WordSuffix { word: &word.text, start };
                if operands.all.len() >= MOST_OPERANDS {
                    operands.are_too_many = true;
                    return operands;
                }
                operands.all.extend(end.operand(directory));
            }
        }
        operands.place();
        operands
    }

    /// Adds what would lie in each directory, because only the program knows which of several words is a destination.
    fn place(&mut self) {
        let directories: Vec<&Operand> = self.all.iter().filter(|operand| operand.is_directory).collect();
        if directories.len().saturating_mul(self.all.len()) > MOST_PLACED {
            self.are_too_many = true;
            return;
        }
        let into = |directory: &Operand, operand: &Operand| {
            let name = operand.target.path.file_name().filter(|_| operand.target != directory.target)?;
            let path = directory.target.path.join(name);
            let target = Target::of_path(&path).ok()?.within(&self.directory);
            let named = Path::new(&directory.named).join(name).display().to_string();
            Some(Operand { named, target, identity: None, is_directory: false })
        };
        let placed = directories.iter().flat_map(|directory| self.all.iter().filter_map(|it| into(directory, it)));
        self.placed = placed.collect();
    }

    /// An operand as people read it: where it leads, if that is elsewhere.
    pub(crate) fn shown(&self, operand: &Operand) -> String {
        let named: PathBuf = self.directory.join(&operand.named).components().collect();
        let real = &operand.target.path;
        if named == *real {
            return operand.named.clone();
        }
        format!("{} → {}", operand.named, real.strip_prefix(&self.directory).unwrap_or(real).display())
    }

    /// Those that lead elsewhere than they say.
    pub(crate) fn links(&self) -> Vec<String> {
        let shown = self.all.iter().filter(|operand| operand.identity.is_some()).map(|operand| self.shown(operand));
        shown.filter(|shown| shown.contains(" → ")).collect()
    }

    /// What an answer about the command is an answer to.
    pub(crate) fn binding(&self) -> Vec<String> {
        let bound = |operand: &Operand| {
            let identity = operand.identity.map(|identity| identity.to_string()).unwrap_or_default();
            [operand.named.clone(), operand.target.path.display().to_string(), identity]
        };
        self.all.iter().flat_map(bound).collect()
    }
}

impl Operand {
    pub(crate) fn looks_secret(&self) -> bool {
        looks_secret(Path::new(&self.named)) || looks_secret(&self.target.path)
    }
}

/// A word from some character on.
struct WordSuffix<'a> {
    word: &'a str,
    start: usize,
}

impl WordSuffix<'_> {
    fn text(&self) -> &str {
        &self.word[self.start..]
    }

    fn operand(&self, directory: &Path) -> Option<Operand> {
        let text = self.text();
        if text.len() > LONGEST_PATH {
            return None;
        }
        let starts_value = self.starts_value();
        // `src/` is not the root of the disk, and `done.` not this directory.
        let is_inside_path = text.starts_with('/') || text.bytes().all(|byte| matches!(byte, b'.' | b'/'));
        if is_inside_path && !starts_value {
            return None;
        }
        let path = directory.join(text);
        let is_there = match path.symlink_metadata() {
            Ok(_) => true,
            Err(error) => !leads_nowhere(&error),
        };
        // What is not there may be made, where a program would take it for a name. Numbers are none.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if !is_there && (!starts_value || is_number) {
            return None;
        }
        let target = Target::of_path(&path).ok()?.within(directory);
        let metadata = path.metadata().ok();
        let is_directory = metadata.as_ref().is_some_and(std::fs::Metadata::is_dir);
        let identity = metadata.as_ref().map(Identity::of_file_metadata);
        Some(Operand { named: text.to_owned(), target, identity, is_directory })
    }

    /// Whether a program may take what begins here for a value: a whole word, what follows a mark, and what follows the
    /// letters of an option.
    fn starts_value(&self) -> bool {
        let before = &self.word[..self.start];
        let Some(last) = before.chars().next_back() else { return true };
        let is_mark = last.is_ascii_punctuation() && !matches!(last, '.' | '/' | '-' | '_');
        let letters = before.strip_prefix('-').filter(|letters| (1..=MOST_LETTERS).contains(&letters.len()));
        is_mark || letters.is_some_and(|letters| letters.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    }
}

fn leads_nowhere(error: &io::Error) -> bool {
    let is_too_long = error.raw_os_error() == Some(rustix::io::Errno::NAMETOOLONG.raw_os_error());
    is_too_long || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Why a word hands a program a list of files, if it does: whatever the list names is read.
pub(crate) fn list_of_files(program: &str, words: &[Word], directory: &Path) -> Option<String> {
    let is_file = |name: &str| !name.is_empty() && directory.join(name).is_file();
    let is_tar = program.rsplit('/').next().is_some_and(|name| name.contains("tar"));
    let names_list = |word: &&Word| {
        let text = word.text.as_str();
        let is_short = is_tar && text.starts_with('-') && !text.starts_with("--") && text.contains('T');
        text.strip_prefix('@').is_some_and(is_file) || text.starts_with("--files") || is_short
    };
    words.iter().find(names_list).map(|word| word.text.clone())
}

#[cfg(test)]
mod tests;
