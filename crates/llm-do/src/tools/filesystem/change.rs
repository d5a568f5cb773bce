//! A write before it happens: what is there, what would be there, and what the approver has to be told.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::difference::Difference;
use super::root::{Root, Spot};
use super::text::Replacement;
use crate::beneath::{self, FileAccess, FileKind, FileOpenError};
use crate::escape::visible;
use crate::redact::REDACTED;
use crate::tools::approval::{Question, Verdict, digest};
use crate::tools::protected::ProtectedFiles;

/// Larger files are neither written nor edited.
pub(crate) const LARGEST: u64 = 16 * 1024 * 1024;

/// What a call wants to be in a file.
pub(crate) enum ChangeRequest {
    Content(String),
    Replacement(Replacement),
}

/// A file before and after.
pub(crate) struct Change<'a> {
    pub root: &'a Root,
    /// Beneath the root, as it was called.
    path: PathBuf,
    pub spot: Spot,
    old: Option<Vec<u8>>,
    /// What is there afterwards, or why that cannot be.
    pub new: Result<String, String>,
    pub exception: Option<Exception>,
    /// The arguments that the difference holds in full.
    shows: &'static [&'static str],
    /// The one whose text a person edits.
    edits: Option<&'static str>,
}

/// Why a write is asked for, whatever a rule allows.
#[derive(Debug, PartialEq)]
pub(crate) enum Exception {
    /// The approver cannot agree to it once and for all.
    Protected(&'static str),
    /// Only one of its names would have the new content.
    SeveralNames(u64),
}

/// Why there is no change to speak of.
pub(crate) enum Unchangeable {
    Unopened(FileOpenError),
    TooLarge,
    ReadOnly,
}

impl From<FileOpenError> for Unchangeable {
    fn from(error: FileOpenError) -> Self {
        Self::Unopened(error)
    }
}

impl From<std::io::Error> for Unchangeable {
    fn from(error: std::io::Error) -> Self {
        Self::Unopened(error.into())
    }
}

/// Refuses a text with a mark in place of a key: a model that read a file without its keys and writes it back would
/// lose them.
fn kept_keys(old: Option<&[u8]>, new: String) -> Result<String, String> {
    let holds = |text: &[u8]| memchr::memmem::find(text, REDACTED.as_bytes()).is_some();
    if holds(new.as_bytes()) && !old.is_some_and(holds) {
        return Err(format!("`{REDACTED}` stands for a key that is not shown, and is not written in its place"));
    }
    Ok(new)
}

impl<'a> Change<'a> {
    pub(crate) fn of(
        root: &'a Root,
        path: PathBuf,
        wanted: ChangeRequest,
        protected: &ProtectedFiles,
    ) -> Result<Self, Unchangeable> {
        let spot = root.find(&path)?;
        let old = content(root, &spot)?;
        let (shows, edits): (&[_], _) = match &wanted {
            ChangeRequest::Content(_) => (&["path", "content"], Some("content")),
            ChangeRequest::Replacement(_) => (&["path", "old", "new", "replace_all"], Some("new")),
        };
        let new = match wanted {
            ChangeRequest::Content(content) => Ok(content),
            ChangeRequest::Replacement(replacement) => match old.as_deref().map(str::from_utf8) {
                None => return Err(FileOpenError::Missing.into()),
                Some(Err(_)) => Err("it is binary, and only text can be edited".to_owned()),
                Some(Ok(text)) => replacement.applied(text),
            },
        };
        let new = new.and_then(|new| kept_keys(old.as_deref(), new));
        if new.as_ref().is_ok_and(|new| new.len() as u64 > LARGEST || root.is_too_large(new.len() as u64)) {
            return Err(Unchangeable::TooLarge);
        }
        let names = spot.place.found.as_ref().map_or(1, |found| found.names);
        let exception = match protected.reason(&spot.target) {
            Some(why) => Some(Exception::Protected(why)),
            None => (names > 1).then_some(Exception::SeveralNames(names)),
        };
        Ok(Self { root, path, spot, old, new, exception, shows, edits })
    }

    /// Where it really is, without links.
    pub(crate) fn real_path(&self) -> &Path {
        &self.spot.target.path
    }

    /// Whether the file already has the new content.
    pub(crate) fn is_done(&self) -> bool {
        matches!((&self.old, &self.new), (Some(old), Ok(new)) if old.as_slice() == new.as_bytes())
    }

    /// A digest of the place and of what is there now.
    pub(crate) fn digest(&self) -> String {
        let place = self.spot.name.to_string_lossy();
        match self.old.as_deref().map(|old| (old, str::from_utf8(old))) {
            Some((_, Ok(text))) => digest([place.as_ref(), "is", text]),
            Some((bytes, Err(_))) => {
                let bytes: String = bytes.iter().map(|byte| char::from(*byte)).collect();
                digest([place.as_ref(), "is binary", &bytes])
            }
            None => digest([place.as_ref(), "is not"]),
        }
    }

    /// What has to be asked. An error is for the model at once, unless it would tell of a file that it may not know.
    pub(crate) fn verdict(&self) -> Result<Verdict, String> {
        match (&self.exception, &self.new) {
            (None, Err(reason)) => Err(format!("`{}`: {reason}", self.shown())),
            (None, Ok(_)) => Ok(Verdict::Ask(self.question())),
            (Some(Exception::SeveralNames(_)), _) => Ok(Verdict::AskAnyway(self.question())),
            (Some(Exception::Protected(_)), _) => Ok(Verdict::AlwaysAsk(self.question())),
        }
    }

    fn shown(&self) -> String {
        visible(&self.root.named(&self.path).display().to_string()).into_owned()
    }

    fn question(&self) -> Question {
        let verb = match &self.old {
            None => "creates",
            Some(_) if self.is_done() => "writes",
            Some(_) => "changes",
        };
        let mut reason = format!("{verb} {}", self.shown());
        if self.exception.is_some() || self.spot.is_elsewhere {
            reason.push_str(&format!(", that is `{}`", visible(&self.real_path().display().to_string())));
        }
        match &self.exception {
            None => {}
            Some(Exception::Protected(why)) => reason.push_str(&format!(", which {why}")),
            Some(Exception::SeveralNames(names)) => {
                reason.push_str(&format!(", which is one of {names} names of a file: the others keep what they have"));
            }
        }
        let bound_to = Some(self.digest());
        let new = match &self.new {
            Ok(new) => new,
            Err(why) => {
                let preview = Some(format!("(it will fail: {why})"));
                return Question { preview, bound_to, ..Question::because(reason) };
            }
        };
        let old = self.old.as_deref().map(str::from_utf8);
        let difference = Difference::between(old.and_then(Result::ok).unwrap_or_default(), new);
        // Of a secret nobody learns in passing whether a guess was right.
        if !matches!(self.exception, Some(Exception::Protected(_))) {
            reason.push_str(&format!(": {}", difference.amount()));
        }
        let binary = matches!(old, Some(Err(_))).then_some("(what is there is binary, and all of it goes)\n");
        let preview = format!("{}{}", binary.unwrap_or_default(), difference.shown);
        Question {
            preview: Some(preview).filter(|preview| !preview.is_empty()),
            bound_to,
            shows: self.shows.iter().map(|name| (*name).to_owned()).collect(),
            edits: self.edits.map(str::to_owned),
            ..Question::because(reason)
        }
    }

    /// Writes beside the file and puts it in its place, so that a reader sees the old or the new, never a half. A link
    /// that appears there meanwhile is replaced, not followed.
    pub(crate) fn write(&self, new: &str) -> Result<(), Unchangeable> {
        let made;
        let place = if self.root.directory().is_ok() {
            &self.spot.place
        } else {
            self.root.make()?;
            made = self.root.find(&self.path)?;
            &made.place
        };
        let (parent, name) = place.make_parent()?;
        let access = self.spot.place.found.as_ref().map_or(FileAccess::Usual, |found| FileAccess::Kept {
            mode: found.mode,
            owner: found.owner,
            group: found.group,
        });
        Ok(beneath::replace(parent, name, new.as_bytes(), access)?)
    }
}

/// What is there now; `None` if nothing is.
fn content(root: &Root, spot: &Spot) -> Result<Option<Vec<u8>>, Unchangeable> {
    let Some(found) = &spot.place.found else { return Ok(None) };
    if found.kind != FileKind::Regular {
        return Err(FileOpenError::NotRegular.into());
    }
    if !spot.place.is_writable() {
        return Err(Unchangeable::ReadOnly);
    }
    let mut bytes = Vec::new();
    spot.place.open()?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    let length = bytes.len() as u64;
    if length > LARGEST || root.is_too_large(length) {
        return Err(Unchangeable::TooLarge);
    }
    Ok(Some(bytes))
}
