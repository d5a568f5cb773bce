//! Files beneath one or several roots: every access by descriptor, so that no path, link or race leads outside.

mod listing;
mod text;

use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, PermissionsExt as _};
use schemars::JsonSchema;
use serde::Deserialize;

use super::approval::{PermittedCall, Question, Verdict, digest};
use super::function::parse;
use super::source::{Access, Base, FileRoot, FilesystemConfig, Roots};
use super::{CallContext, Order, Repeat, ToolError, ToolKind, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::beneath::{self, Unopened};
use crate::escape::visible;
use crate::message::{Content, RawJson};

/// A live filesystem toolset.
#[derive(Clone)]
pub struct Filesystem(Arc<Vec<OpenRoot>>);

struct OpenRoot {
    /// The first part of its paths; empty if it is the only root.
    name: String,
    directory: Dir,
    /// As people know it.
    shown: PathBuf,
    root: FileRoot,
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

fn default_path() -> String {
    ".".to_owned()
}

fn default_pattern() -> String {
    "**/*".to_owned()
}

/// Larger files are neither written nor edited.
const LARGEST_WRITE: u64 = 16 * 1024 * 1024;

impl Filesystem {
    /// Opens the roots. Those inside the project are opened beneath its directory, so that a link cannot lead out.
    pub fn open(config: &FilesystemConfig, project_root: &Path) -> Result<Self, String> {
        let named: Vec<(String, &FileRoot)> = match &config.roots {
            Roots::One(root) => vec![(String::new(), root)],
            Roots::Named(roots) => roots.iter().map(|(name, root)| (name.clone(), root)).collect(),
        };
        let opened = named.into_iter().map(|(name, root)| {
            let (directory, shown) = open_root(root, project_root)?;
            Ok(OpenRoot { name, directory, shown, root: root.clone() })
        });
        opened.collect::<Result<Vec<_>, String>>().map(|roots| Self(Arc::new(roots)))
    }

    fn can_write(&self) -> bool {
        self.0.iter().any(|root| root.root.access == Access::ReadWrite)
    }

    /// Which root a path is in, and the path beneath it.
    fn locate(&self, path: &str) -> Result<(&OpenRoot, PathBuf), String> {
        let refuse = |reason: &str| Err(format!("`{}` {reason}; {}", visible(path), self.allowed()));
        let mut parts = Vec::new();
        for component in Path::new(path).components() {
            match component {
                Component::Normal(part) => parts.push(part),
                Component::CurDir => {}
                Component::ParentDir => return refuse("leads outside with `..`"),
                Component::RootDir | Component::Prefix(_) => return refuse("is absolute"),
            }
        }
        if path.contains('\0') {
            return refuse("has a NUL in it");
        }
        if parts.first().is_some_and(|part| *part == "~") {
            return refuse("starts with `~`, which means nothing here");
        }
        match self.0.as_slice() {
            [only] if only.name.is_empty() => Ok((only, parts.iter().collect())),
            roots => match parts.split_first() {
                Some((first, rest)) => match roots.iter().find(|root| first.to_str() == Some(root.name.as_str())) {
                    Some(root) => Ok((root, rest.iter().collect())),
                    None => refuse("is in no root"),
                },
                None => refuse("names no root"),
            },
        }
    }

    /// What the model may do instead.
    fn allowed(&self) -> String {
        match self.0.as_slice() {
            [only] if only.name.is_empty() => "paths are relative to the root and stay beneath it".to_owned(),
            roots => {
                let names: Vec<String> = roots.iter().map(|root| format!("`{}/…`", root.name)).collect();
                format!("paths start with {}", names.join(" or "))
            }
        }
    }

    fn writable(&self, path: &str) -> Result<(&OpenRoot, PathBuf), String> {
        let (root, beneath) = self.locate(path)?;
        if root.root.access == Access::ReadOnly {
            return Err(format!("`{}` is in a root that can only be read", visible(path)));
        }
        if beneath.as_os_str().is_empty() {
            return Err(format!("`{}` is a directory", visible(path)));
        }
        root.check_suffix(&beneath)?;
        Ok((root, beneath))
    }

    fn read(&self, arguments: &ReadFile) -> Result<String, String> {
        let (root, beneath) = self.locate(&arguments.path)?;
        root.check_suffix(&beneath)?;
        let file = root.open(&beneath).map_err(|error| root.explain(&beneath, &error))?;
        let read = text::read_part(file.into_std(), arguments.offset, arguments.max_chars);
        read.map(|part| RawJson::of(&part).get().to_owned())
            .map_err(|error| format!("`{}` {error}", visible(&arguments.path)))
    }

    /// What a write would leave, and what is there now.
    fn change(&self, tool: &str, arguments: &RawJson) -> Result<Change, String> {
        if tool == "write_file" {
            let WriteFile { path, content } = parse(arguments)?;
            let (root, beneath) = self.writable(&path)?;
            let old = root.content(&beneath)?;
            return Ok(Change { path, old, new: content });
        }
        let EditFile { path, old, new, replace_all } = parse(arguments)?;
        let (root, beneath) = self.writable(&path)?;
        let before = root.content(&beneath)?.ok_or_else(|| format!("`{}` does not exist", visible(&path)))?;
        let after = text::replaced(&before, &old, &new, replace_all)
            .map_err(|error| format!("`{}`: {error}", visible(&path)))?;
        Ok(Change { path, old: Some(before), new: after })
    }

    fn write(&self, call: &PermittedCall) -> Result<String, ToolError> {
        let change = self.change(call.tool(), call.arguments()).map_err(ToolError::Failed)?;
        // Bound to what was shown; that somebody else already wrote the same is fine.
        let is_as_shown = call.bound_to().is_none_or(|shown| shown == change.digest());
        if !is_as_shown && change.old.as_ref() != Some(&change.new) {
            return Err(ToolError::Changed);
        }
        let (root, beneath) = self.writable(&change.path).map_err(ToolError::Failed)?;
        root.replace(&beneath, &change.new)
            .map_err(|error| ToolError::Failed(root.explain(&beneath, &error.into())))?;
        Ok(format!("wrote {} characters to {}", change.new.chars().count(), change.path))
    }
}

/// A file before and after.
struct Change {
    path: String,
    old: Option<String>,
    new: String,
}

impl Change {
    /// Of what is there now.
    fn digest(&self) -> String {
        match &self.old {
            Some(old) => digest([self.path.as_str(), "is", old]),
            None => digest([self.path.as_str(), "is not"]),
        }
    }

    fn question(&self) -> Question {
        let verb = if self.old.is_some() { "changes" } else { "creates" };
        Question {
            reason: format!("{verb} the file `{}`", visible(&self.path)),
            preview: Some(text::difference(self.old.as_deref().unwrap_or_default(), &self.new)),
            bound_to: Some(self.digest()),
            covers: None,
            foreign: None,
        }
    }
}

impl OpenRoot {
    fn check_suffix(&self, path: &Path) -> Result<(), String> {
        let name = path.to_string_lossy().to_lowercase();
        let suffixes = &self.root.suffixes;
        if suffixes.is_empty() || suffixes.iter().any(|suffix| name.ends_with(suffix.as_str())) {
            return Ok(());
        }
        Err(format!("`{}` has an ending that is not allowed here; allowed: {}", visible(&name), suffixes.join(", ")))
    }

    /// A regular file that is not too large.
    fn open(&self, path: &Path) -> Result<cap_std::fs::File, Unopened> {
        let file = beneath::open(&self.directory, path)?;
        let metadata = file.metadata()?;
        if self.root.max_file_bytes.is_some_and(|limit| metadata.len() > limit) {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than this root allows").into());
        }
        Ok(file)
    }

    /// What is there now, as text; `None` if nothing is.
    fn content(&self, path: &Path) -> Result<Option<String>, String> {
        let file = match self.open(path) {
            Ok(file) => file,
            Err(Unopened::Missing) => return Ok(None),
            Err(error) => return Err(self.explain(path, &error)),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST_WRITE + 1).read_to_end(&mut bytes).map_err(|error| self.explain(path, &error.into()))?;
        if bytes.len() as u64 > LARGEST_WRITE {
            return Err(format!("`{}` is too large to be changed here", visible(&path.display().to_string())));
        }
        String::from_utf8(bytes).map(Some).map_err(|_| format!("`{}` is binary", visible(&path.display().to_string())))
    }

    /// Writes beside the file and puts it in its place, so that a reader sees the old or the new, never a half.
    fn replace(&self, path: &Path, content: &str) -> io::Result<()> {
        if self.root.max_file_bytes.is_some_and(|limit| content.len() as u64 > limit)
            || content.len() as u64 > LARGEST_WRITE
        {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than this root allows"));
        }
        let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file name"))?;
        let parent = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => {
                self.directory.create_dir_all(parent)?;
                self.directory.open_dir(parent)?
            }
            None => self.directory.try_clone()?,
        };
        let mode = match parent.symlink_metadata(name) {
            Ok(metadata) if metadata.is_file() => Some(metadata.permissions().mode()),
            Ok(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut file = cap_tempfile::TempFile::new(&parent)?;
        file.write_all(content.as_bytes())?;
        let permissions = cap_std::fs::Permissions::from_mode(mode.unwrap_or(0o644) & 0o7777);
        file.as_file().set_permissions(permissions)?;
        file.as_file().sync_all()?;
        file.replace(name)
    }

    /// In the words of whoever asked.
    fn explain(&self, path: &Path, error: &Unopened) -> String {
        let path = visible(&path.display().to_string()).into_owned();
        match error {
            Unopened::Missing => format!("`{path}` does not exist beneath {}", self.shown.display()),
            Unopened::Outside => format!("`{path}` leads outside the root"),
            Unopened::NotRegular => format!("`{path}` is not a regular file"),
            Unopened::Io(error) => format!("`{path}`: {error}"),
        }
    }
}

fn open_root(root: &FileRoot, project_root: &Path) -> Result<(Dir, PathBuf), String> {
    let failed = |path: &Path, error: io::Error| format!("the root {} cannot be opened: {error}", path.display());
    let ambient = |path: &Path| Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| failed(path, error));
    match &root.base {
        Base::WorkingDirectory => Ok((ambient(Path::new("."))?, PathBuf::from("the working directory"))),
        Base::Absolute(path) => Ok((ambient(path)?, path.clone())),
        Base::Project(relative) => {
            let project = ambient(project_root)?;
            let shown = project_root.join(relative);
            if root.access == Access::ReadWrite {
                project.create_dir_all(relative).map_err(|error| failed(&shown, error))?;
            }
            Ok((project.open_dir(relative).map_err(|error| failed(&shown, error))?, shown))
        }
    }
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
    pub(super) fn verdict(&self, tool: &str, arguments: &RawJson) -> Result<Verdict, String> {
        match tool {
            "read_file" => parse::<ReadFile>(arguments).map(|_| Verdict::Allow),
            "list_files" => parse::<ListFiles>(arguments).map(|_| Verdict::Allow),
            _ => match self.change(tool, arguments) {
                Ok(change) => Ok(Verdict::Ask(change.question())),
                Err(reason) => Err(reason),
            },
        }
    }
}

impl Toolset for Filesystem {
    fn specs(&self) -> Vec<ToolSpec> {
        let roots: Vec<String> = self
            .0
            .iter()
            .map(|root| match root.name.as_str() {
                "" => root.shown.display().to_string(),
                name => format!("{name}/ ({})", root.shown.display()),
            })
            .collect();
        let place = include_str!("filesystem.md").trim().replace("{root}", &roots.join(", "));
        let mut specs = vec![
            spec::<ReadFile>("read_file", &format!("Reads a text file, or a part of it. {place}"), Repeat::Repeatable),
            spec::<ListFiles>("list_files", &format!("Lists files by a glob. {place}"), Repeat::Repeatable),
        ];
        if self.can_write() {
            let writes = "Writes a whole text file; the user may be asked first.";
            let edits = "Replaces a text in a file; the user may be asked first.";
            specs.push(spec::<WriteFile>("write_file", &format!("{writes} {place}"), Repeat::Repeatable));
            specs.push(spec::<EditFile>("edit_file", &format!("{edits} {place}"), Repeat::Once));
        }
        specs
    }

    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Verdict, String>> {
        Box::pin(std::future::ready(self.verdict(tool, arguments)))
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        let filesystem = self.clone();
        Box::pin(async move {
            // Disks block; the other calls of the run must not.
            let work = tokio::task::spawn_blocking(move || filesystem.perform(&call));
            let text = work.await.map_err(|error| ToolError::Failed(format!("the tool panicked: {error}")))??;
            Ok(vec![Content::text(text)])
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

impl Filesystem {
    fn perform(&self, call: &PermittedCall) -> Result<String, ToolError> {
        let arguments = call.arguments();
        match call.tool() {
            "read_file" => parse(arguments).and_then(|arguments| self.read(&arguments)).map_err(ToolError::Failed),
            "list_files" => {
                parse(arguments).and_then(|arguments: ListFiles| self.list(&arguments)).map_err(ToolError::Failed)
            }
            _ => self.write(call),
        }
    }

    fn list(&self, arguments: &ListFiles) -> Result<String, String> {
        let named = matches!(self.0.as_slice(), [only] if only.name.is_empty());
        if !named && matches!(arguments.path.trim_end_matches('/'), "." | "") {
            let names: Vec<String> = self.0.iter().map(|root| format!("{}/", root.name)).collect();
            return Ok(names.join("\n"));
        }
        let (root, beneath) = self.locate(&arguments.path)?;
        listing::list(&root.directory, &beneath, &arguments.pattern).map_err(|error| match error {
            listing::ListError::Pattern(reason) => reason,
            listing::ListError::Io(error) => root.explain(&beneath, &error.into()),
        })
    }
}

#[cfg(test)]
mod tests;
