//! Files beneath one or several roots: every access by descriptor, so that no path, link or race leads outside.

mod change;
mod difference;
mod listing;
mod root;
mod search;
mod text;
pub(super) mod walk;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use schemars::JsonSchema;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::approval::{CallSubject, Judgement, PermittedCall, Question, Verdict, digest};
use super::misfit::parse;
use super::protected::ProtectedFiles;
use super::secret::looks_secret;
use super::source::{FileRoot, FilesystemConfig, Roots};
use super::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::beneath::{FileKind, FileOpenError, Identity};
use crate::escape::{visible, visible_start};
use crate::judgement;
use crate::message::{Content, RawJson};
use change::{Change, ChangeRequest, Unchangeable};
use listing::FileListing;
use root::{Root, Spot};
use search::FileSearch;

pub use root::FileBases;
use text::Replacement;

/// A live filesystem toolset.
#[derive(Clone)]
pub struct Filesystem {
    roots: Arc<Vec<Root>>,
    protected: Arc<ProtectedFiles>,
    /// Made when they are first asked for: schemas take longer than most calls.
    specs: Arc<OnceLock<Vec<ToolSpec>>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    /// Relative to the root
    path: String,
    /// How many characters at most
    #[serde(default = "default_max_chars")]
    max_chars: u64,
    /// Where to start, in characters
    #[serde(default)]
    offset: u64,
}

fn default_max_chars() -> u64 {
    20_000
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    /// Relative to the root
    path: String,
    /// The whole new content
    content: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditFile {
    /// Relative to the root
    path: String,
    /// The text to replace; it must occur exactly once
    old: String,
    /// What to put in its place
    new: String,
    /// Replace every occurrence
    #[serde(default)]
    replace_all: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    /// The directory to list
    #[serde(default = "default_path")]
    path: String,
    /// A glob: `*` within a directory, `**` across
    #[serde(default = "default_pattern")]
    pattern: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchFiles {
    /// A regular expression, held against each line; `(?i)` at its start: in any case
    pattern: String,
    /// The directory to search, or one file
    #[serde(default = "default_path")]
    path: String,
    /// Which files, relative to `path`; without `/` by name, at any depth
    #[serde(default = "default_pattern")]
    glob: String,
    /// The pattern is plain text
    #[serde(default)]
    literal: bool,
    /// How many lines before and after each match
    #[serde(default)]
    context: u64,
    /// How many matching lines at most
    #[serde(default = "default_max_lines")]
    max: u64,
}

fn default_max_lines() -> u64 {
    100
}

fn default_path() -> String {
    ".".to_owned()
}

fn default_pattern() -> String {
    "**/*".to_owned()
}

/// Paths are as long as systems allow, and have more parts than honest projects need.
const LONGEST_PATH: usize = 4_096;
const MOST_PARTS: usize = 128;

impl Filesystem {
    /// Opens the roots; those that can be written need not exist yet. What is protected is asked for, whatever the
    /// rules.
    pub fn open(config: &FilesystemConfig, bases: &FileBases<'_>, protected: &ProtectedFiles) -> Result<Self, String> {
        let named: Vec<(String, &FileRoot)> = match &config.roots {
            Roots::One(root) => vec![(String::new(), root)],
            Roots::Named(roots) => roots.iter().map(|(name, root)| (name.clone(), root)).collect(),
        };
        let opened = named.into_iter().map(|(name, root)| Root::open(name, root.clone(), bases));
        let roots = opened.collect::<Result<Vec<_>, String>>()?;
        Ok(Self { roots: Arc::new(roots), protected: Arc::new(protected.clone()), specs: Arc::default() })
    }

    fn can_write(&self) -> bool {
        self.roots.iter().any(Root::can_write)
    }

    fn has_named_roots(&self) -> bool {
        self.roots.iter().any(|root| !root.name.is_empty())
    }

    /// Which root a path is in, and the path beneath it: words only, nothing is looked at.
    fn locate(&self, path: &str) -> Result<(&Root, PathBuf), String> {
        let refuse = |reason: &str| Err(format!("`{}` {reason}; {}", visible_start(path, 200), self.allowed()));
        let whole = self.beneath_root(Path::new(path));
        let mut parts = Vec::new();
        for component in whole.map_or(Path::new(path), |(_, beneath)| beneath).components() {
            match component {
                Component::Normal(part) => parts.push(part),
                Component::CurDir => {}
                Component::ParentDir => return refuse("leads outside with `..`"),
                Component::RootDir | Component::Prefix(_) => return refuse("lies in no root"),
            }
        }
        if path.contains('\0') {
            return refuse("has a NUL in it");
        }
        if path.len() > LONGEST_PATH || parts.len() > MOST_PARTS {
            return refuse("is too long");
        }
        if parts.first().is_some_and(|part| *part == "~") {
            return refuse("starts with `~`, which means nothing here");
        }
        let (root, beneath) = match (whole, self.roots.as_slice(), parts.split_first()) {
            (Some((root, _)), _, _) => (root, parts.as_slice()),
            (None, [only], _) if !self.has_named_roots() => (only, parts.as_slice()),
            (None, roots, Some((first, rest))) => {
                match roots.iter().find(|root| first.to_str() == Some(root.name.as_str())) {
                    Some(root) => (root, rest),
                    None => return refuse("is in no root"),
                }
            }
            (None, _, None) => return refuse("names no root"),
        };
        match root.refusal() {
            None => Ok((root, beneath.iter().collect())),
            Some(reason) => Err(reason.to_owned()),
        }
    }

    /// A whole path may name what lies beneath a root just as well: the innermost root that it is in, and the rest.
    fn beneath_root<'a>(&self, path: &'a Path) -> Option<(&Root, &'a Path)> {
        let roots = self.roots.iter().filter_map(|root| Some((root, root.beneath(path)?)));
        roots.min_by_key(|(_, beneath)| beneath.as_os_str().len())
    }

    /// What the model may do instead.
    fn allowed(&self) -> String {
        if !self.has_named_roots() {
            return "paths are relative to the root and stay beneath it".to_owned();
        }
        let names: Vec<String> = self.roots.iter().map(|root| format!("`{}/…`", root.name)).collect();
        format!("paths start with {}", names.join(" or "))
    }

    /// Like [`Filesystem::locate`], for a file of an ending that is allowed.
    fn locate_file(&self, path: &str) -> Result<(&Root, PathBuf), String> {
        let (root, beneath) = self.locate(path)?;
        if beneath.as_os_str().is_empty() || path.ends_with('/') || path.ends_with("/.") {
            return Err(format!("`{}` is a directory; `list_files` lists it", visible(path)));
        }
        check_suffix(root, path, &beneath)?;
        Ok((root, beneath))
    }

    fn locate_writable(&self, path: &str) -> Result<(&Root, PathBuf), String> {
        let (root, beneath) = self.locate_file(path)?;
        if !root.can_write() {
            let writable: Vec<String> =
                self.roots.iter().filter(|root| root.can_write()).map(Root::shown_name).collect();
            let instead = if writable.is_empty() {
                "nothing can be written here".to_owned()
            } else {
                format!("write to {}", writable.join(" or "))
            };
            return Err(format!("`{}` is in a root that can only be read; {instead}", visible(path)));
        }
        Ok((root, beneath))
    }

    /// Explains an error with the path as the model wrote it.
    fn explain(&self, root: &Root, path: &str, error: &FileOpenError) -> String {
        let path = visible(path);
        match error {
            FileOpenError::Missing => format!("`{path}` does not exist; `list_files` shows what is there"),
            FileOpenError::Outside => {
                format!("`{path}` is a link that leads outside {}; {}", root.shown.display(), self.allowed())
            }
            FileOpenError::NotRegular => format!("`{path}` is not a regular file; only those are read and written"),
            FileOpenError::Io(error) => format!("`{path}`: {error}"),
        }
    }
}

/// Whether a path looks like a secret although the place that it leads to does not. One that is the end of the place's
/// own path need not be looked at again.
fn is_secret_elsewhere(named: &Path, place: &Path) -> bool {
    !place.ends_with(named) && looks_secret(named)
}

fn check_suffix(root: &Root, path: &str, beneath: &Path) -> Result<(), String> {
    if root.has_suffix(beneath) {
        return Ok(());
    }
    let allowed = root.settings.suffixes.join(", ");
    Err(format!("`{}` has an ending that is not allowed here; allowed: {allowed}", visible(path)))
}

/// How far the judgement of a file looks for other names of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SearchDepth {
    AtTheFile,
    /// In all of the root, which takes time.
    ForOtherNames,
}

/// Whether a judgement says what the call is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Describing {
    Subject,
    Nothing,
}

impl Describing {
    fn of(self, root: &Root, spot: &Spot) -> Option<CallSubject> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        match self {
            Self::Subject => Some(CallSubject::File { name: text(&spot.name), root: text(root.on_disk()) }),
            Self::Nothing => None,
        }
    }
}

/// Reading.
impl Filesystem {
    fn find_to_read(&self, path: &str) -> Result<(&Root, Spot), String> {
        let (root, beneath) = self.locate_file(path)?;
        let spot = root.find(&beneath).map_err(|error| self.explain(root, path, &error))?;
        // A link with an allowed ending may lead to a file with another one.
        check_suffix(root, path, &spot.place.path)?;
        Ok((root, spot))
    }

    /// What the approver must be asked before the file is read, if it is a secret by any of its names.
    fn secret(&self, root: &Root, named: &str, spot: &Spot) -> Option<Question> {
        let several_names = spot.place.found.as_ref().is_some_and(|found| found.names > 1);
        let why = if self.protected.is_private(&spot.target) {
            "belongs to llm-do itself".to_owned()
        } else if looks_secret(&spot.target.path) || is_secret_elsewhere(Path::new(named), &spot.target.path) {
            "looks like a secret".to_owned()
        } else if several_names {
            match root.secret_name_of(&spot.place) {
                Ok(None) => return None,
                Ok(Some(other)) => {
                    let other = visible(&other.display().to_string()).into_owned();
                    format!("is another name of `{other}`, which looks like a secret")
                }
                Err(_) => "has other names, more than can be looked for".to_owned(),
            }
        } else {
            return None;
        };
        let real = spot.target.path.display().to_string();
        let bound_to = Some(digest(["read", spot.name.to_string_lossy().as_ref()]));
        Some(Question { bound_to, ..Question::because(format!("reads `{}`, which {why}", visible(&real))) })
    }

    /// Judges a read. `None` if the file has other names, and they are not to be looked for now.
    fn judge_read(&self, arguments: &ReadFile, looking: SearchDepth, describing: Describing) -> Option<Judgement> {
        let Ok((root, spot)) = self.find_to_read(&arguments.path) else {
            // Reading says what is wrong, if it still is.
            return Some(Verdict::Allow.into());
        };
        let about = |verdict: Verdict| Judgement::from(verdict).about(describing.of(root, &spot));
        let names = match &spot.place.found {
            Some(found) if found.kind == FileKind::Regular => found.names,
            Some(_) | None => return Some(about(Verdict::Allow)),
        };
        if names > 1 && looking == SearchDepth::AtTheFile {
            return None;
        }
        Some(about(self.secret(root, &arguments.path, &spot).map_or(Verdict::Allow, Verdict::AskAnyway)))
    }

    /// Nothing is asked before files are listed or searched: what would ask is left out.
    fn judge_looking(&self, path: &str, describing: Describing) -> Judgement {
        let found = || {
            let (root, beneath) = self.locate(path).ok()?;
            describing.of(root, &root.find(&beneath).ok()?)
        };
        let about = if describing == Describing::Subject { found() } else { None };
        Judgement::from(Verdict::Allow).about(about)
    }

    fn read(&self, call: &PermittedCall, cancellation: &CancellationToken) -> Result<String, ToolError> {
        let arguments: ReadFile = parse(call.arguments()).map_err(ToolError::Failed)?;
        let path = &arguments.path;
        let (root, spot) = self.find_to_read(path).map_err(ToolError::Failed)?;
        let unopened = |error: &FileOpenError| ToolError::Failed(self.explain(root, path, error));
        let file = spot.place.open().map_err(|error| unopened(&error))?;
        let identity = Identity::of_file(&file).map_err(|error| unopened(&error.into()))?;
        if spot.place.found.as_ref().is_none_or(|found| found.identity != identity) {
            return Err(ToolError::Changed);
        }
        // What was no secret when it was judged may be one now.
        if let Some(question) = self.secret(root, path, &spot) {
            let is_as_shown = call.bound_to().is_none_or(|shown| Some(shown) == question.bound_to.as_deref());
            if !call.is_exceptional() || !is_as_shown {
                return Err(ToolError::Changed);
            }
        }
        let size = file.metadata().map_err(|error| unopened(&error.into()))?.len();
        if root.is_too_large(size) {
            return Err(ToolError::Failed(root.too_large(path, u64::MAX)));
        }
        let is_wanted = || !cancellation.is_cancelled();
        let read = text::read_part(file.into_std(), arguments.offset, arguments.max_chars, &is_wanted);
        read.map(|part| part.to_json()).map_err(|error| ToolError::Failed(format!("`{}` {error}", visible(path))))
    }

    fn list(&self, arguments: &ListFiles) -> Result<String, String> {
        let ListFiles { path, pattern } = arguments;
        let mut listing = FileListing::new(&self.start(path)?, pattern)?;
        self.look(path, &mut |root, beneath, prefix| listing.add(root, beneath, prefix))?;
        Ok(listing.text())
    }

    fn search(&self, arguments: &SearchFiles, cancellation: &CancellationToken) -> Result<String, String> {
        let start = self.start(&arguments.path)?;
        let mut search = FileSearch::new(&start, arguments, &self.protected, cancellation)?;
        self.look(&arguments.path, &mut |root, beneath, prefix| search.add(root, beneath, prefix))?;
        Ok(search.text())
    }

    /// Whether a path means all roots together.
    fn is_everything(&self, path: &str) -> bool {
        self.has_named_roots() && Path::new(path).components().all(|part| part == Component::CurDir)
    }

    /// The path beneath the root that it is in.
    fn start(&self, path: &str) -> Result<PathBuf, String> {
        if self.is_everything(path) { Ok(PathBuf::new()) } else { Ok(self.locate(path)?.1) }
    }

    /// Looks beneath a path: in one root, or in all that have a name. What looks is told the root, the path beneath it, and
    /// what stands before its paths.
    fn look(
        &self,
        path: &str,
        looks: &mut dyn FnMut(&Root, &Path, &Path) -> Result<(), FileOpenError>,
    ) -> Result<(), String> {
        if self.is_everything(path) {
            for root in self.roots.iter().filter(|root| root.refusal().is_none()) {
                match looks(root, Path::new(""), Path::new(&root.name)) {
                    Ok(()) | Err(FileOpenError::Missing) => {}
                    Err(error) => return Err(self.explain(root, &root.name, &error)),
                }
            }
            return Ok(());
        }
        let (root, beneath) = self.locate(path)?;
        match looks(root, &beneath, Path::new("")) {
            // A root that does not exist yet, because nothing was written to it.
            Err(FileOpenError::Missing) if beneath.as_os_str().is_empty() => Ok(()),
            Err(error) => Err(self.explain(root, path, &error)),
            Ok(()) => Ok(()),
        }
    }
}

/// Writing.
impl Filesystem {
    /// What a write would leave, and what is there now.
    fn change(&self, tool: &str, arguments: &RawJson) -> Result<(Change<'_>, String), String> {
        let (path, wanted) = if tool == "write_file" {
            let WriteFile { path, content } = parse(arguments)?;
            (path, ChangeRequest::Content(content))
        } else {
            let EditFile { path, old, new, replace_all } = parse(arguments)?;
            (path, ChangeRequest::Replacement(Replacement { old, new, replace_all }))
        };
        let (root, beneath) = self.locate_writable(&path)?;
        let change = Change::of(root, beneath, wanted, &self.protected)
            .map_err(|error| self.explain_unchangeable(root, &path, &error))?;
        check_suffix(root, &path, change.real_path())?;
        Ok((change, path))
    }

    fn explain_unchangeable(&self, root: &Root, path: &str, error: &Unchangeable) -> String {
        match error {
            Unchangeable::Unopened(error) => self.explain(root, path, error),
            Unchangeable::TooLarge => root.too_large(path, change::LARGEST),
            Unchangeable::ReadOnly => format!("`{}` is read-only: its permissions say so", visible(path)),
        }
    }

    fn write(&self, call: &PermittedCall) -> Result<String, ToolError> {
        let change = || self.change(call.tool(), call.arguments()).map_err(ToolError::Failed);
        // Two agents may change one file at the same time: no other change comes between what is read and what is
        // written.
        let (_alone, (change, path)) = (lock_of(change()?.0.real_path()), change()?);
        if change.exception.is_some() && !call.is_exceptional() {
            return Err(ToolError::Changed);
        }
        // The answer is bound to what was shown; it does no harm if another process has already written the same.
        if call.bound_to().is_some_and(|shown| shown != change.digest()) && !change.is_done() {
            return Err(ToolError::Changed);
        }
        let failed = |reason: String| ToolError::Failed(format!("`{}`: {reason}", visible(&path)));
        let new = change.new.as_ref().map_err(|reason| failed(reason.clone()))?;
        if !change.is_done() {
            let (root, _) = self.locate_writable(&path).map_err(ToolError::Failed)?;
            change.write(new).map_err(|error| ToolError::Failed(self.explain_unchangeable(root, &path, &error)))?;
        }
        Ok(format!("wrote {} characters to {path}", new.chars().count()))
    }
}

/// The lock that is held while a file is changed. Files share locks: few are changed at the same time.
fn lock_of(file: &Path) -> MutexGuard<'static, ()> {
    static LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];
    let mut hasher = DefaultHasher::new();
    file.hash(&mut hasher);
    let lock = usize::try_from(hasher.finish() % 64).unwrap_or_default();
    LOCKS[lock].lock().unwrap_or_else(PoisonError::into_inner)
}

fn spec<T: JsonSchema>(name: &str, description: &str, repeat: Repeat) -> ToolSpec {
    let schema = schemars::SchemaGenerator::default().into_root_schema_for::<T>();
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: RawJson::of(&schema),
        kind: ToolKind::Leaf,
        order: Order::Concurrent,
        repeat,
    }
}

impl Filesystem {
    fn described_tools(&self) -> Vec<ToolSpec> {
        let roots: Vec<String> = self.roots.iter().map(Root::description).collect();
        let here = include_str!("filesystem/here.md").trim().replace("{roots}", &roots.join("; "));
        let described = |text: &str| format!("{} {here}", text.trim());
        let (read, list) = (include_str!("filesystem/read_file.md"), include_str!("filesystem/list_files.md"));
        let search = include_str!("filesystem/search_files.md");
        let mut specs = vec![
            spec::<ReadFile>("read_file", &described(read), Repeat::Repeatable),
            spec::<ListFiles>("list_files", &described(list), Repeat::Repeatable),
            spec::<SearchFiles>("search_files", &described(search), Repeat::Repeatable),
        ];
        if self.can_write() {
            let (write, edit) = (include_str!("filesystem/write_file.md"), include_str!("filesystem/edit_file.md"));
            // In the order of the reply: a model that changes a file twice means the second change to come after the
            // first.
            let in_order = |spec| ToolSpec { order: Order::Sequential, ..spec };
            specs.push(in_order(spec::<WriteFile>("write_file", &described(write), Repeat::Repeatable)));
            specs.push(in_order(spec::<EditFile>("edit_file", &described(edit), Repeat::Once)));
        }
        specs
    }

    /// Whether a call is judged in no time: what it names is small, and has no other names that would have to be looked
    /// for.
    fn is_light(&self, arguments: &RawJson) -> bool {
        #[derive(Deserialize)]
        struct PathArgument {
            path: Option<String>,
        }
        let named = arguments.to::<PathArgument>().ok().and_then(|named| named.path);
        let located = named.as_deref().and_then(|path| self.locate(path).ok());
        let found = located.and_then(|(root, beneath)| root.find(&beneath).ok()?.place.found);
        let (bytes, names) = found.map_or((0, 1), |found| match found.kind {
            FileKind::Regular => (found.bytes, found.names),
            FileKind::Directory | FileKind::Other => (0, 1),
        });
        bytes.saturating_add(arguments.get().len() as u64) <= judgement::SMALL_TEXT as u64 && names == 1
    }

    /// What it thinks of a call: it needs no context to find out.
    #[cfg(any(test, feature = "internals"))]
    pub fn verdict(&self, tool: &str, arguments: &RawJson) -> Result<Verdict, String> {
        self.judgement(tool, arguments, Describing::Nothing).map(|judgement| judgement.verdict)
    }

    fn judgement(&self, tool: &str, arguments: &RawJson, describing: Describing) -> Result<Judgement, String> {
        match tool {
            "read_file" => {
                let judged = self.judge_read(&parse(arguments)?, SearchDepth::ForOtherNames, describing);
                Ok(judged.unwrap_or(Verdict::Allow.into()))
            }
            "list_files" => Ok(self.judge_looking(&parse::<ListFiles>(arguments)?.path, describing)),
            "search_files" => Ok(self.judge_looking(&parse::<SearchFiles>(arguments)?.path, describing)),
            _ => {
                let (change, _) = self.change(tool, arguments)?;
                Ok(Judgement::from(change.verdict()?).about(describing.of(change.root, &change.spot)))
            }
        }
    }
}

impl Toolset for Filesystem {
    fn specs(&self) -> Vec<ToolSpec> {
        self.specs.get_or_init(|| self.described_tools()).clone()
    }

    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        let describing = if cx.wants_subject() { Describing::Subject } else { Describing::Nothing };
        Box::pin(async move {
            match tool {
                "list_files" | "search_files" => return self.judgement(tool, arguments, describing),
                // Most files have one name, and for those a look at the file itself decides.
                "read_file" => {
                    if let Some(judged) = self.judge_read(&parse(arguments)?, SearchDepth::AtTheFile, describing) {
                        return Ok(judged);
                    }
                }
                _ if self.is_light(arguments) => return self.judgement(tool, arguments, describing),
                _ => {}
            }
            let (filesystem, tool, arguments) = (self.clone(), tool.to_owned(), arguments.clone());
            let judged = judgement::apart(move || filesystem.judgement(&tool, &arguments, describing)).await;
            judged.unwrap_or_else(|unjudged| Err(format!("the call cannot be judged: {unjudged}")))
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        let filesystem = self.clone();
        let cancellation = cx.cancelled();
        Box::pin(async move {
            // Disks block; the other calls of the run must not.
            let work = move || filesystem.perform(&call, &cancellation);
            // It panics where the system has no thread left, which is not a mistake in the program.
            let started = std::panic::catch_unwind(AssertUnwindSafe(|| tokio::task::spawn_blocking(work)));
            let no_thread =
                |_| ToolError::Failed("no thread can be started to work on files: there are too many".to_owned());
            let done = started.map_err(no_thread)?.await;
            let text = done.map_err(|error| ToolError::Failed(format!("the tool panicked: {error}")))??;
            Ok(vec![Content::text(text)])
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

impl Filesystem {
    fn perform(&self, call: &PermittedCall, cancellation: &CancellationToken) -> Result<String, ToolError> {
        match call.tool() {
            "read_file" => self.read(call, cancellation),
            "list_files" => {
                let arguments = parse(call.arguments());
                arguments.and_then(|arguments: ListFiles| self.list(&arguments)).map_err(ToolError::Failed)
            }
            "search_files" => {
                let arguments = parse(call.arguments());
                let searched = |arguments: SearchFiles| self.search(&arguments, cancellation);
                arguments.and_then(searched).map_err(ToolError::Failed)
            }
            _ => self.write(call),
        }
    }
}

#[cfg(test)]
mod tests;
