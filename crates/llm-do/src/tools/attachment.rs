//! Files that travel with an input: which of them need the approver's consent, and how they are read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::approval::{Question, digest};
use super::filesystem::walk;
use super::protected::{ProtectedFiles, Target};
use super::secret::looks_secret;
use crate::beneath::{self, FileKind, FileOpenError, Identity, Place};
use crate::escape::visible;
use crate::journal::digest::hex;
use crate::message::Attachment;

/// Where the files that an input names are looked for.
#[derive(Clone, Copy, Debug)]
pub struct AttachmentScope<'a> {
    /// Names are relative to it, and what lies beneath it is the project's.
    pub root: &'a Path,
    /// What belongs to this program itself is asked about beneath the root, too.
    pub protected: &'a ProtectedFiles,
}

/// How far the attachments that an input names may reach.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Beneath the project root, nothing that looks like a secret and nothing of this program itself.
    Project,
    /// Also what the approver agreed to: exactly the bytes that the question was about.
    Agreed(AgreedFiles),
}

/// Files as they were when the approver agreed to send them, by the names that the input has for them.
#[derive(Clone, Debug)]
pub struct AgreedFiles(Arc<BTreeMap<String, Result<Attachment, AttachmentError>>>);

/// A file is no longer what the approver was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedAttachment;

/// Why a file cannot travel with an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the attachment `{name}` {reason}")]
pub struct AttachmentError {
    name: String,
    reason: String,
}

impl AttachmentError {
    /// An error about the attachment of this name, which is made harmless; the reason goes on after the name.
    pub(crate) fn new(name: &str, reason: impl Into<String>) -> Self {
        Self { name: visible(name).into_owned(), reason: reason.into() }
    }

    fn unopened(name: &str, error: &FileOpenError) -> Self {
        Self::new(
            name,
            match error {
                FileOpenError::Missing => "does not exist".to_owned(),
                FileOpenError::Outside => "leads outside the project root".to_owned(),
                FileOpenError::NotRegular => "is not a regular file".to_owned(),
                FileOpenError::Io(error) => format!("cannot be read: {error}"),
            },
        )
    }
}

/// The files that an input names: in its field `attachments`, or as items `{"attachment": path}` of a list. An input
/// that uses these words for something else names no files.
pub(crate) fn named_in(input: &Value) -> Vec<&Value> {
    match input {
        Value::Object(fields) => {
            let named = fields.get("attachments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if named.iter().all(is_file) { named.iter().collect() } else { Vec::new() }
        }
        Value::Array(items) if is_message(items) => items.iter().filter_map(|item| item.get("attachment")).collect(),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Whether a list is a message: texts, and files as `{"attachment": path}`.
pub(crate) fn is_message(items: &[Value]) -> bool {
    items.iter().all(|item| match item {
        Value::String(_) => true,
        Value::Object(fields) => fields.len() == 1 && fields.get("attachment").is_some_and(is_file),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    })
}

/// A path, or a file that the caller was given itself.
fn is_file(named: &Value) -> bool {
    named.is_string() || held(named).is_some()
}

/// The id by which the runtime knows a file that code was given and passes on.
pub(crate) fn held(named: &Value) -> Option<&str> {
    named.get("given").and_then(Value::as_str)
}

/// A file that code passes on, as its input names it.
pub(crate) fn as_held(file: &Attachment) -> Value {
    serde_json::json!({"given": held_as(file), "name": file.name})
}

/// The same file has the same name in every run, so that a journal knows it again.
pub(crate) fn held_as(file: &Attachment) -> String {
    digest([file.name.as_str(), &BASE64.encode(&file.data)])[..32].to_owned()
}

/// What the approver must be asked before the files that an input names are sent to an agent: those outside the
/// project, those that look like secrets and those of this program itself. `None` if there are none.
pub(crate) fn question(input: &Value, premises: AttachmentScope<'_>, agent: &str) -> Option<Question> {
    let mut named = names(input);
    if !named.any(|path| find(path, premises).is_ok_and(|found| found.exception.is_some())) {
        return None;
    }
    let looks = look_at(input, premises);
    let exceptions = looks.iter().filter_map(|look| {
        let why = look.exception?;
        Some(format!("`{}`, which {why}", visible(&look.resolved.display().to_string())))
    });
    let shown: Vec<String> = exceptions.collect();
    let reason = format!("sends to the agent `{agent}` {}", shown.join(", and "));
    Some(Question { reason, bound_to: Some(state_of(&looks)), ..Question::default() })
}

/// A path beneath the root as one that is relative to it, however it is written.
fn inside<'a>(named: &'a str, root: &Path) -> Cow<'a, Path> {
    let path = Path::new(named);
    if path.is_relative() {
        return Cow::Borrowed(path);
    }
    if let Ok(relative) = path.strip_prefix(root) {
        return Cow::Borrowed(relative);
    }
    match (path.canonicalize(), root.canonicalize()) {
        (Ok(path), Ok(root)) => path.strip_prefix(root).map(|path| Cow::Owned(path.to_owned())).ok(),
        _ => None,
    }
    .unwrap_or(Cow::Borrowed(path))
}

/// What an answer about the files of an input is for: their paths, which files they are, and what is in them.
pub(crate) fn binding(input: &Value, premises: AttachmentScope<'_>) -> String {
    state_of(&look_at(input, premises))
}

/// How far an input reaches after the approver was asked about its files: `bound_to` is what the question showed. The
/// files are read here, once, so that what was compared is what is sent.
pub(crate) fn reach(
    input: &Value,
    premises: AttachmentScope<'_>,
    bound_to: Option<&str>,
) -> Result<Reach, ChangedAttachment> {
    let Some(bound_to) = bound_to else { return Ok(Reach::Project) };
    let looks = look_at(input, premises);
    if state_of(&looks) != bound_to {
        return Err(ChangedAttachment);
    }
    let agreed = looks.into_iter().map(|Look { named, content, .. }| {
        let attachment = content.and_then(|content| of_bytes(Path::new(&named), content.bytes));
        (named, attachment)
    });
    Ok(Reach::Agreed(AgreedFiles(Arc::new(agreed.collect()))))
}

fn names(input: &Value) -> impl Iterator<Item = &str> {
    named_in(input).into_iter().filter_map(Value::as_str)
}

/// A file that an input names, as it is now.
struct Look {
    named: String,
    resolved: PathBuf,
    exception: Option<&'static str>,
    content: Result<AttachmentBytes, AttachmentError>,
}

struct AttachmentBytes {
    identity: Identity,
    bytes: Vec<u8>,
}

/// How much is read of all files together: no request is larger, and the caller does not wait for more.
const MOST_READ: u64 = 4 * LARGEST;

fn look_at(input: &Value, premises: AttachmentScope<'_>) -> Vec<Look> {
    let mut left = MOST_READ;
    let look = |named: &str| {
        let look = look_at_one(named, premises, left);
        left = left.saturating_sub(look.content.as_ref().map_or(0, |read| read.bytes.len() as u64));
        look
    };
    names(input).map(look).collect()
}

fn look_at_one(named: &str, premises: AttachmentScope<'_>, left: u64) -> Look {
    let unread = |error: &FileOpenError| {
        let content = Err(AttachmentError::unopened(named, error));
        Look { named: named.to_owned(), resolved: PathBuf::from(named), exception: None, content }
    };
    let Finding { place, resolved, exception } = match find(named, premises) {
        Ok(found) => found,
        Err(error) => return unread(&error),
    };
    let content = match left {
        0 => Err(AttachmentError::new(named, "is one too many: the files before it are too large")),
        left => read_place(named, &place, left),
    };
    Look { named: named.to_owned(), resolved, exception, content }
}

/// A digest of paths, devices, inodes and contents.
fn state_of(looks: &[Look]) -> String {
    let of_one = |look: &Look| {
        let resolved = look.resolved.as_os_str().as_encoded_bytes().escape_ascii().to_string();
        let content = match &look.content {
            Ok(AttachmentBytes { identity, bytes }) => format!("{identity:?} {}", hex(&Sha256::digest(bytes))),
            Err(error) => format!("unread: {error}"),
        };
        [look.named.clone(), resolved, content]
    };
    let parts: Vec<String> = looks.iter().flat_map(of_one).collect();
    digest(parts.iter().map(String::as_str))
}

/// Where a name leads, and why the approver must be asked about it.
struct Finding {
    place: Place,
    resolved: PathBuf,
    exception: Option<&'static str>,
}

/// Finds the file that a name leads to. One that is missing or no file needs no consent: reading it says so.
fn find(named: &str, premises: AttachmentScope<'_>) -> Result<Finding, FileOpenError> {
    let AttachmentScope { root, .. } = premises;
    let directory = Dir::open_ambient_dir(root, ambient_authority())?;
    match beneath::resolve(&directory, &inside(named, root)) {
        Ok(place) => {
            let exception = premises.exception(&directory, named, &place);
            Ok(Finding { resolved: place.path.clone(), place, exception })
        }
        Err(FileOpenError::Outside) => {
            // From the top, link by link: so that the path that is shown is that of the file that is opened.
            let canonical = root.join(named).canonicalize()?;
            let top = Dir::open_ambient_dir("/", ambient_authority())?;
            let place = beneath::resolve(&top, canonical.strip_prefix("/").unwrap_or(&canonical))?;
            Ok(Finding {
                resolved: Path::new("/").join(&place.path),
                place,
                exception: Some("lies outside the project"),
            })
        }
        Err(error) => Err(error),
    }
}

fn read_place(named: &str, place: &Place, most: u64) -> Result<AttachmentBytes, AttachmentError> {
    let failed = |error: FileOpenError| AttachmentError::unopened(named, &error);
    let file = place.open().map_err(failed)?;
    let identity = Identity::of_file(&file).map_err(|error| failed(error.into()))?;
    if place.found.as_ref().is_none_or(|found| found.identity != identity) {
        return Err(AttachmentError::new(named, "changed while it was opened"));
    }
    let mut bytes = Vec::new();
    file.take(most.min(LARGEST + 1)).read_to_end(&mut bytes).map_err(|error| failed(error.into()))?;
    Ok(AttachmentBytes { identity, bytes })
}

impl AttachmentScope<'_> {
    /// Why a file beneath the root is not sent unasked, if so.
    fn exception(self, directory: &Dir, named: &str, place: &Place) -> Option<&'static str> {
        let own = || self.is_private(place).then_some("belongs to llm-do itself");
        own().or_else(|| is_secret(directory, named, place).then_some("looks like a secret"))
    }

    /// Whether a file belongs to this program itself. If the root cannot be looked at, that is not known, and the
    /// answer is yes.
    fn is_private(self, place: &Place) -> bool {
        let is_file = place.found.as_ref().is_some_and(|found| found.kind == FileKind::Regular);
        let is_own = |root: Target| self.protected.is_private(&root.at(place));
        is_file && self.protected.private().next().is_some() && Target::of_path(self.root).map_or(true, is_own)
    }
}

/// Whether a file looks like a secret: by the name it is called, by its name behind all links, or by another name of
/// the same file.
fn is_secret(root: &Dir, named: &str, place: &Place) -> bool {
    let Some(found) = place.found.as_ref().filter(|found| found.kind == FileKind::Regular) else { return false };
    let has_other_secret_name = || found.names > 1 && !matches!(walk::secret_with(root, found.identity), Ok(None));
    looks_secret(&place.path) || looks_secret(Path::new(named)) || has_other_secret_name()
}

/// Reads a file that an input names, relative to the project root.
pub(crate) fn read(path: &Value, premises: AttachmentScope<'_>, reach: &Reach) -> Result<Attachment, AttachmentError> {
    let Some(name) = path.as_str() else { return Err(AttachmentError::new(&path.to_string(), "is not a path")) };
    if let Reach::Agreed(AgreedFiles(files)) = reach
        && let Some(agreed) = files.get(name)
    {
        return agreed.clone();
    }
    let failed = |error: FileOpenError| AttachmentError::unopened(name, &error);
    let AttachmentScope { root, .. } = premises;
    let directory = Dir::open_ambient_dir(root, ambient_authority()).map_err(|error| failed(error.into()))?;
    let place = beneath::resolve(&directory, &inside(name, root)).map_err(failed)?;
    let AttachmentBytes { bytes, .. } = read_place(name, &place, LARGEST + 1)?;
    if let Some(why) = premises.exception(&directory, name, &place) {
        return Err(AttachmentError::new(name, format!("{why}, and nobody was asked")));
    }
    of_bytes(Path::new(name), bytes)
}

/// Reads a file that a user names: anywhere, a regular file.
pub fn read_named(path: &Path) -> Result<Attachment, AttachmentError> {
    let shown = path.display().to_string();
    let failed = |error: FileOpenError| AttachmentError::unopened(&shown, &error);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(FileOpenError::NotRegular));
    };
    let resolved = path.canonicalize().map_err(|error| failed(error.into()))?;
    let directory = resolved.parent().unwrap_or(parent);
    let directory = Dir::open_ambient_dir(directory, ambient_authority()).map_err(|error| failed(error.into()))?;
    let name = Path::new(resolved.file_name().unwrap_or(name));
    let file = of_bytes(path, beneath::read(&directory, name, LARGEST + 1).map_err(failed)?)?;
    Ok(Attachment { path: Some(resolved.display().to_string()), ..file })
}

/// A file that a program gives as base64.
pub fn of_base64(name: &str, data: &str) -> Result<Attachment, AttachmentError> {
    let bytes = BASE64.decode(data).map_err(|error| AttachmentError::new(name, format!("is not base64: {error}")))?;
    of_bytes(Path::new(name), bytes)
}

/// No provider takes more in one request.
pub(crate) const LARGEST: u64 = 64 * 1024 * 1024;

/// Files are sent as what they are; the kind is told by content first, by ending second.
pub(crate) fn of_bytes(path: &Path, bytes: Vec<u8>) -> Result<Attachment, AttachmentError> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let wrong = |reason: &str| AttachmentError::new(&path.display().to_string(), reason);
    if bytes.len() as u64 > LARGEST {
        return Err(wrong("is larger than 64 MiB"));
    }
    let by_content = infer::get(&bytes).map(|kind| kind.mime_type());
    let media_type = match by_content {
        Some(media @ ("image/png" | "image/jpeg" | "image/gif" | "image/webp" | "application/pdf")) => media,
        _ if str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0')) => text_media_type(path),
        _ => return Err(wrong("is neither text, nor an image (PNG, JPEG, GIF, WebP), nor a PDF")),
    };
    Ok(Attachment { name, path: None, media_type: media_type.to_owned(), data: Arc::from(bytes) })
}

fn text_media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("md" | "markdown") => "text/markdown",
        Some("csv") => "text/csv",
        Some("html" | "htm") => "text/html",
        Some("xml") => "text/xml",
        _ => "text/plain",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn premises<'a>(root: &'a Path, own: &'a ProtectedFiles) -> AttachmentScope<'a> {
        AttachmentScope { root, protected: own }
    }

    /// A project with a file, a secret and links, and a file outside it.
    fn project() -> (tempfile::TempDir, tempfile::TempDir) {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(inside.path().join("notes.md"), "notes").unwrap();
        std::fs::write(inside.path().join(".env"), "KEY=1").unwrap();
        std::fs::write(outside.path().join("other.md"), "other").unwrap();
        std::os::unix::fs::symlink(".env", inside.path().join("innocent.md")).unwrap();
        std::fs::hard_link(inside.path().join("notes.md"), inside.path().join("other_notes.md")).unwrap();
        std::fs::write(inside.path().join("server.key"), "KEY=2").unwrap();
        std::fs::hard_link(inside.path().join("server.key"), inside.path().join("hard.md")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("other.md"), inside.path().join("out.md")).unwrap();
        (inside, outside)
    }

    #[test]
    fn files_outside_and_secrets_are_asked_for_with_the_path_they_lead_to() {
        let (inside, outside) = project();
        let own = ProtectedFiles::default();
        let other = outside.path().canonicalize().unwrap().join("other.md").display().to_string();
        let absolute = outside.path().join("other.md").display().to_string();
        let cases = [
            ("notes.md", None),
            ("missing.md", None),
            (".", None),
            (".env", Some("`.env`, which looks like a secret".to_owned())),
            ("innocent.md", Some("`.env`, which looks like a secret".to_owned())),
            ("hard.md", Some("`hard.md`, which looks like a secret".to_owned())),
            ("out.md", Some(format!("`{other}`, which lies outside the project"))),
            (absolute.as_str(), Some(format!("`{other}`, which lies outside the project"))),
        ];
        for (path, expected) in cases {
            for input in [json!({"input": "x", "attachments": [path]}), json!(["x", {"attachment": path}])] {
                let reason = question(&input, premises(inside.path(), &own), "child").map(|question| question.reason);
                let expected = expected.as_ref().map(|what| format!("sends to the agent `child` {what}"));
                assert_eq!(reason, expected, "{path}");
            }
        }
    }

    #[test]
    fn without_consent_only_plain_files_of_the_project_are_read() {
        let (inside, outside) = project();
        let own = ProtectedFiles::default();
        let absolute = outside.path().join("other.md").display().to_string();
        let agreed = |path: &str| {
            let input = json!({"attachments": [path]});
            let bound_to = question(&input, premises(inside.path(), &own), "child").unwrap().bound_to;
            reach(&input, premises(inside.path(), &own), bound_to.as_deref()).unwrap()
        };
        for (path, reach, expected) in [
            ("notes.md", Reach::Project, Ok("notes")),
            ("missing.md", Reach::Project, Err("does not exist")),
            (".", Reach::Project, Err("is not a regular file")),
            (".env", Reach::Project, Err("looks like a secret, and nobody was asked")),
            ("innocent.md", Reach::Project, Err("looks like a secret, and nobody was asked")),
            ("hard.md", Reach::Project, Err("looks like a secret, and nobody was asked")),
            ("out.md", Reach::Project, Err("leads outside the project root")),
            (absolute.as_str(), Reach::Project, Err("leads outside the project root")),
            (absolute.as_str(), agreed(&absolute), Ok("other")),
            ("out.md", agreed("out.md"), Ok("other")),
            ("innocent.md", agreed("innocent.md"), Ok("KEY=1")),
            (".env", agreed("innocent.md"), Err("looks like a secret, and nobody was asked")),
        ] {
            let read = read(&json!(path), premises(inside.path(), &own), &reach);
            let read = read.map(|file| String::from_utf8(file.data.to_vec()).unwrap()).map_err(|error| error.reason);
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{path}");
        }
    }

    #[test]
    fn an_answer_is_for_the_file_that_was_shown_and_for_what_was_in_it() {
        let (inside, outside) = project();
        let own = ProtectedFiles::default();
        let (named, other) = (outside.path().join("harmless.txt"), outside.path().join("id_rsa"));
        let input = json!({"attachments": [named.to_str().unwrap()]});
        let fresh = || {
            let _ = std::fs::remove_file(&named);
            std::fs::write(&named, "harmless").unwrap();
            std::fs::write(&other, "harmless").unwrap();
        };
        let changes: [(&str, &dyn Fn()); 4] = [
            ("a link to another file, even with the same content", &|| {
                std::fs::remove_file(&named).unwrap();
                std::os::unix::fs::symlink(&other, &named).unwrap();
            }),
            ("other content", &|| std::fs::write(&named, "SECRET").unwrap()),
            ("another file of the same name and content", &|| std::fs::rename(&other, &named).unwrap()),
            ("gone", &|| std::fs::remove_file(&named).unwrap()),
        ];
        for (name, change) in changes {
            fresh();
            let bound_to = question(&input, premises(inside.path(), &own), "child").unwrap().bound_to;
            assert!(reach(&input, premises(inside.path(), &own), bound_to.as_deref()).is_ok(), "{name}: unchanged");
            change();
            assert_eq!(
                reach(&input, premises(inside.path(), &own), bound_to.as_deref()).err(),
                Some(ChangedAttachment),
                "{name}"
            );
        }
        fresh();
        let bound_to = question(&input, premises(inside.path(), &own), "child").unwrap().bound_to;
        let agreed = reach(&input, premises(inside.path(), &own), bound_to.as_deref()).unwrap();
        std::fs::write(&named, "SECRET").unwrap();
        let sent = read(&json!(named.to_str().unwrap()), premises(inside.path(), &own), &agreed).unwrap();
        assert_eq!(&*sent.data, b"harmless", "the bytes that were compared are sent");
    }

    #[test]
    fn files_of_this_program_ask_wherever_the_project_lies() {
        let (home, own) = (tempfile::tempdir().unwrap(), [".config/llm-do", "state", "cache/not-yet"]);
        let mut protected = ProtectedFiles::default();
        for path in own {
            protected.add(home.path().join(path), crate::tools::protected::Covers::Private, "belongs to llm-do itself");
        }
        for path in [".config/llm-do/config.toml", "state/runs/one", "cache/notes.md", "states/notes.md"] {
            std::fs::create_dir_all(home.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(home.path().join(path), "text").unwrap();
        }
        std::os::unix::fs::symlink("state", home.path().join("notes")).unwrap();
        let absolute = home.path().join("state/runs/one").display().to_string();
        let premises = premises(home.path(), &protected);
        for (path, is_own) in [
            (".config/llm-do/config.toml", true),
            ("state/runs/one", true),
            ("states/../state/runs/one", true),
            ("notes/runs/one", true),
            (absolute.as_str(), true),
            ("cache/notes.md", false),
            ("states/notes.md", false),
        ] {
            let input = json!({"attachments": [path]});
            let asked = question(&input, premises, "child");
            let says = |question: &Question| question.reason.ends_with("which belongs to llm-do itself");
            assert_eq!(asked.as_ref().is_some_and(says), is_own, "{path}: {asked:?}");
            let unasked = read(&json!(path), premises, &Reach::Project).map_err(|error| error.reason);
            let expected = Err("belongs to llm-do itself, and nobody was asked".to_owned());
            assert_eq!(unasked.map(drop), if is_own { expected } else { Ok(()) }, "{path}");
            let bound_to = asked.and_then(|question| question.bound_to);
            let agreed = reach(&input, premises, bound_to.as_deref()).unwrap();
            assert_eq!(&*read(&json!(path), premises, &agreed).unwrap().data, b"text", "{path}");
        }
    }
}
