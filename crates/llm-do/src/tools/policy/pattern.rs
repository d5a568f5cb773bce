//! What a lasting rule says of a call's agents, words and arguments. Pure.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::path::Path;

use serde_json::Value;

use crate::glob::{Glob, Letters, Mistake, Slash};
use crate::message::RawJson;
use crate::tools::approval::CallSubject;

/// A text that may have `*`, `?`, `[…]`, `{…}` and `**` in it. One without them is compared.
#[derive(Clone, Debug)]
pub(crate) struct TextPattern {
    pub text: String,
    /// Nothing where the text stands for itself.
    glob: Option<Glob>,
}

impl TextPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        let glob = has_wildcards(text).then(|| Glob::parse(text, Slash::Separates, Letters::Exact)).transpose()?;
        Ok(Self { text: text.to_owned(), glob })
    }

    /// Exactly this text, whatever characters it has.
    pub(crate) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), glob: None }
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        match &self.glob {
            None => self.text == text,
            Some(glob) => glob.matches(text),
        }
    }

    pub(crate) fn is_literal(&self) -> bool {
        self.glob.is_none()
    }
}

/// Whether a text has characters that mean something in a pattern.
pub(crate) fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// What a rule says of one argument.
#[derive(Clone, Debug)]
pub(crate) enum ValuePattern {
    /// A text like this one.
    Text(TextPattern),
    /// Exactly this value.
    Equals(Value),
    /// A path beneath this directory, or the directory itself.
    Under(String),
    /// A number that is no larger.
    Max(f64),
}

/// What a rule says of the arguments.
#[derive(Clone, Debug)]
pub(crate) enum ArgumentsPattern {
    /// Each of these; of others it says nothing.
    ByName(Vec<(String, ValuePattern)>),
    /// All of them, exactly.
    Exactly(Value),
}

/// The words of a command.
#[derive(Clone, Debug)]
pub(crate) struct WordsPattern {
    pub words: Vec<TextPattern>,
    /// Any further ones may follow.
    pub is_open: bool,
}

impl WordsPattern {
    pub(crate) fn matches(&self, words: &[String]) -> bool {
        let fits = if self.is_open { words.len() >= self.words.len() } else { words.len() == self.words.len() };
        fits && self.words.iter().zip(words).all(|(pattern, word)| pattern.matches(word))
    }
}

/// A path of agents, from the caller's caller down to the caller.
#[derive(Clone, Debug)]
pub(crate) struct AgentPattern(pub Vec<TextPattern>);

impl AgentPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split('>').map(str::trim);
        let parts = parts.map(|part| {
            if part.is_empty() {
                return Err("a name is missing beside `>`".to_owned());
            }
            TextPattern::parse(part).map_err(|mistake| mistake.to_string())
        });
        parts.collect::<Result<_, _>>().map(Self)
    }

    /// The last of the path is like the last of the pattern, and so on upwards.
    pub(crate) fn is_caller(&self, path: &[String]) -> bool {
        let Self(parts) = self;
        path.len() >= parts.len() && parts.iter().rev().zip(path.iter().rev()).all(|(part, name)| part.matches(name))
    }

    /// The same of the caller or of one of those above it.
    pub(crate) fn is_on_the_way(&self, path: &[String]) -> bool {
        (1..=path.len()).any(|length| self.is_caller(&path[..length]))
    }
}

/// A file by both of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileNames {
    /// Beneath the project, if it is there.
    pub within: Option<String>,
    /// From the root of the disk, if that is known.
    pub absolute: Option<String>,
}

impl FileNames {
    /// Of a file that a toolset found beneath one of its roots.
    pub(crate) fn found(name: &str, root: &str, project: &Path) -> Self {
        let absolute = Path::new(root).join(name);
        let within = absolute.strip_prefix(project).ok().map(|path| path.to_string_lossy().into_owned());
        Self { within, absolute: Some(absolute.to_string_lossy().into_owned()) }
    }

    /// Of a path as it was written; nothing if it leads out of where it begins.
    pub(crate) fn written(path: &str) -> Option<Self> {
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                part => parts.push(part),
            }
        }
        let joined = parts.join("/");
        Some(if path.starts_with('/') {
            Self { within: None, absolute: Some(format!("/{joined}")) }
        } else {
            Self { within: Some(joined), absolute: None }
        })
    }

    /// The one that a pattern is about: absolute patterns are about any file, others about those of the project.
    fn name_for(&self, pattern: &str) -> Option<&str> {
        if pattern.starts_with('/') { self.absolute.as_deref() } else { self.within.as_deref() }
    }

    fn fits(&self, pattern: &ValuePattern) -> bool {
        match pattern {
            ValuePattern::Text(pattern) => self.name_for(&pattern.text).is_some_and(|name| pattern.matches(name)),
            ValuePattern::Equals(Value::String(text)) => self.name_for(text) == Some(text.as_str()),
            ValuePattern::Under(directory) => {
                self.name_for(directory).is_some_and(|name| Path::new(name).starts_with(Path::new(directory)))
            }
            ValuePattern::Equals(_) | ValuePattern::Max(_) => false,
        }
    }
}

/// What of a call the conditions of a rule look at.
pub(crate) struct CallView<'a> {
    file: Option<FileNames>,
    words: Option<&'a [String]>,
    arguments: Option<&'a RawJson>,
    /// Read when a rule wants to know.
    read: OnceCell<Option<Value>>,
}

/// What is not known of a call: a rule that allows does not match then, one that tightens does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    Matches,
    DoesNot,
}

impl<'a> CallView<'a> {
    pub(crate) fn new(arguments: Option<&'a RawJson>, subject: Option<&'a CallSubject>, project: &Path) -> Self {
        let (file, words) = match subject {
            Some(CallSubject::File { name, root }) => (Some(FileNames::found(name, root, project)), None),
            Some(CallSubject::Words(words)) => (None, Some(words.as_slice())),
            None => (None, None),
        };
        Self { file, words, arguments, read: OnceCell::new() }
    }

    /// Of the file alone.
    pub(crate) fn of_file(file: FileNames) -> Self {
        Self { file: Some(file), words: None, arguments: None, read: OnceCell::new() }
    }

    /// Of the words alone.
    pub(crate) fn of_words(words: &'a [String]) -> Self {
        Self { file: None, words: Some(words), arguments: None, read: OnceCell::new() }
    }

    fn read(&self) -> Option<&Value> {
        self.read.get_or_init(|| self.arguments.and_then(|json| json.to().ok())).as_ref()
    }

    pub(crate) fn fits_words(&self, pattern: &WordsPattern) -> bool {
        self.words.is_some_and(|words| pattern.matches(words))
    }

    pub(crate) fn fits(&self, pattern: &ArgumentsPattern, unknown: Unknown) -> bool {
        match pattern {
            ArgumentsPattern::Exactly(value) => match self.read() {
                Some(read) => read == value,
                None => unknown == Unknown::Matches,
            },
            ArgumentsPattern::ByName(patterns) => {
                patterns.iter().all(|(name, pattern)| self.fits_one(name, pattern, unknown))
            }
        }
    }

    fn fits_one(&self, name: &str, pattern: &ValuePattern, unknown: Unknown) -> bool {
        // A file is what is opened, whatever it was called.
        if let (Some(file), "path") = (&self.file, name) {
            return file.fits(pattern);
        }
        // A command is its words, never the text that they were read from.
        if self.words.is_some() && name == "command" {
            return unknown == Unknown::Matches;
        }
        let Some(read) = self.read() else { return unknown == Unknown::Matches };
        let Some(value) = read.get(name) else { return false };
        match (pattern, value) {
            (ValuePattern::Equals(expected), value) => value == expected,
            (ValuePattern::Max(most), Value::Number(number)) => number.as_f64().is_some_and(|number| number <= *most),
            (ValuePattern::Text(pattern), Value::String(text)) => {
                let leads_back = || text.split('/').any(|part| part == "..");
                pattern.matches(text) && (pattern.is_literal() || unknown == Unknown::Matches || !leads_back())
            }
            (ValuePattern::Under(_), Value::String(text)) => match FileNames::written(text) {
                Some(names) => names.fits(pattern),
                None => unknown == Unknown::Matches,
            },
            (ValuePattern::Max(_) | ValuePattern::Text(_) | ValuePattern::Under(_), _) => false,
        }
    }
}

/// A directory as patterns have it: without a slash at the end.
pub(crate) fn directory(text: &str) -> Option<Cow<'_, str>> {
    let names = FileNames::written(text)?;
    Some(Cow::Owned(names.within.or(names.absolute)?))
}
