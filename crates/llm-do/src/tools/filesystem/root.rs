//! One root of a filesystem toolset: opened once, and from then on the only way to its files.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::beneath::{self, FileKind, FileOpenError, Place};
use crate::escape::visible;
use crate::tools::protected::Target;
use crate::tools::source::{Access, Base, FileRoot};
use crate::tools::working_directory::{self, WorkingDirectory};

pub(crate) struct Root {
    /// The first part of its paths; empty if it is the only root.
    pub name: String,
    pub settings: FileRoot,
    /// As people know it.
    pub shown: PathBuf,
    /// The root itself; for one inside the project, the project's directory.
    base: OpenRoot,
    /// From the base to the root.
    relative: PathBuf,
    /// Where it is on the disk.
    on_disk: PathBuf,
    /// Why nothing of it is read or written, if so.
    refusal: Option<String>,
    /// A root that can be written need not exist: the first write that is permitted makes it.
    opened: OnceLock<OpenRoot>,
}

/// A directory, and where on the disk it is.
struct OpenRoot {
    directory: Dir,
    target: Target,
}

/// A place beneath a root, and where on the disk it is.
#[derive(Debug)]
pub(crate) struct Spot {
    pub place: Place,
    pub target: Target,
    /// By which a model would call it, without links: the same wherever the root is.
    pub name: PathBuf,
    /// Links led elsewhere than the path says.
    pub is_elsewhere: bool,
}

/// The directories that roots are named from.
#[derive(Clone, Debug)]
pub struct FileBases<'a> {
    /// The root of the project.
    pub project: &'a Path,
    /// The same as models know it: as it was typed, so that a run that goes on in another process tells them the same.
    pub shown_project: &'a Path,
    /// The directory that the run works in.
    pub directory: WorkingDirectory,
}

#[cfg(any(test, feature = "internals"))]
impl<'a> FileBases<'a> {
    /// Those of a project with this root, in the directory of the process.
    pub fn of(project: &'a Path) -> Self {
        Self { project, shown_project: project, directory: WorkingDirectory::of_process() }
    }
}

impl Root {
    /// A root inside the project is opened beneath the project's directory, so that a link cannot lead out.
    pub(super) fn open(name: String, settings: FileRoot, bases: &FileBases<'_>) -> Result<Self, String> {
        let (base, relative, shown) = match &settings.base {
            Base::WorkingDirectory => (bases.directory.base(), PathBuf::new(), PathBuf::from("the working directory")),
            Base::Absolute(path) => (path.as_path(), PathBuf::new(), path.clone()),
            Base::Project(relative) => (bases.project, relative.clone(), bases.shown_project.join(relative)),
        };
        let failed = |error: &dyn std::fmt::Display| format!("the root {} cannot be opened: {error}", shown.display());
        let base = OpenRoot::ambient(base).map_err(|error| failed(&error))?;
        let refusal = match settings.base {
            Base::WorkingDirectory => working_directory::refusal(&base.target.path),
            Base::Absolute(_) | Base::Project(_) => None,
        };
        // Without the `.` of a root that is its base.
        let on_disk = base.target.path.join(&relative).components().collect();
        let (shown_here, opened) = (shown.clone(), OnceLock::new());
        let root = Self { name, settings, shown: shown_here, base, relative, on_disk, refusal, opened };
        match root.opened() {
            Ok(_) => Ok(root),
            Err(FileOpenError::Missing) if root.settings.access == Access::ReadWrite => Ok(root),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Why nothing of it is read or written, if it is a working directory that holds more than files of people.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The path by which a model calls a file of this root.
    pub(crate) fn named(&self, beneath: &Path) -> PathBuf {
        Path::new(&self.name).join(beneath)
    }

    /// The rest of a whole path that leads into this root, by its words alone: as the root was named, or as it lies on
    /// the disk.
    pub(crate) fn beneath<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        if !path.is_absolute() {
            return None;
        }
        path.strip_prefix(self.on_disk()).or_else(|_| path.strip_prefix(&self.shown)).ok()
    }

    /// Where it is on the disk.
    pub(crate) fn on_disk(&self) -> &Path {
        &self.on_disk
    }

    fn opened(&self) -> Result<&OpenRoot, FileOpenError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let place = beneath::resolve(&self.base.directory, &self.relative)?;
        let directory = place.open_directory()?;
        Ok(self.opened.get_or_init(|| OpenRoot { directory, target: self.base.target.at(&place) }))
    }

    /// The root's own directory, once it exists.
    pub(crate) fn directory(&self) -> Result<&Dir, FileOpenError> {
        self.opened().map(|opened| &opened.directory)
    }

    /// Makes the root if it does not exist.
    pub(crate) fn make(&self) -> Result<(), FileOpenError> {
        if matches!(self.opened(), Err(FileOpenError::Missing)) {
            beneath::resolve(&self.base.directory, &self.relative)?.make_directory()?;
        }
        self.opened().map(drop)
    }

    pub(crate) fn find(&self, path: &Path) -> Result<Spot, FileOpenError> {
        let (start, above, place) = self.resolved(path)?;
        let target = start.target.at(&place);
        let beneath = place.path.strip_prefix(above).unwrap_or(&place.path);
        let (name, is_elsewhere) = (self.named(beneath), beneath != path);
        Ok(Spot { place, target, name, is_elsewhere })
    }

    /// Like [`Root::find`], for callers who need not know where on the disk it is.
    pub(crate) fn place(&self, path: &Path) -> Result<Place, FileOpenError> {
        self.resolved(path).map(|(_, _, place)| place)
    }

    /// From where a path was followed, how the root lies beneath that, and where the path leads.
    fn resolved(&self, path: &Path) -> Result<(&OpenRoot, &Path, Place), FileOpenError> {
        let (start, above) = match self.opened() {
            Ok(opened) => return Ok((opened, Path::new(""), beneath::resolve(&opened.directory, path)?)),
            Err(FileOpenError::Missing) => (&self.base, self.relative.as_path()),
            Err(error) => return Err(error),
        };
        let place = beneath::resolve(&start.directory, &above.join(path))?;
        if place.found.is_some() && self.opened.get().is_none() {
            // The root was made by another process just now; what is in it has to be looked at from the root itself.
            return Err(FileOpenError::Missing);
        }
        Ok((start, above, place))
    }

    /// Whether a file has an ending that is allowed here.
    pub(crate) fn has_suffix(&self, path: &Path) -> bool {
        let suffixes = &self.settings.suffixes;
        if suffixes.is_empty() {
            return true;
        }
        let name = path.to_string_lossy().to_lowercase();
        suffixes.iter().any(|suffix| name.ends_with(&suffix.to_lowercase()))
    }

    pub(crate) fn can_write(&self) -> bool {
        self.settings.access == Access::ReadWrite
    }

    /// How paths of this root start.
    pub(crate) fn shown_name(&self) -> String {
        if self.name.is_empty() { "the root".to_owned() } else { format!("`{}/…`", self.name) }
    }

    /// What a model is told of it.
    pub(crate) fn description(&self) -> String {
        let words = format!("{}{}", self.shown.display(), self.settings.bounds());
        if self.name.is_empty() { words } else { format!("`{}/` is {words}", self.name) }
    }

    /// Says that a file is too large for what was wanted, which itself has a limit.
    pub(crate) fn too_large(&self, path: &str, limit: u64) -> String {
        let limit = self.settings.max_file_bytes.unwrap_or(u64::MAX).min(limit);
        format!("`{}` is larger than {limit} bytes, and no more is allowed here", visible(path))
    }

    pub(crate) fn is_too_large(&self, bytes: u64) -> bool {
        self.settings.max_file_bytes.is_some_and(|limit| bytes > limit)
    }

    /// Whether a file of this identity has another name beneath the root that looks like a secret. An error if there is
    /// too much to look through.
    pub(crate) fn secret_name_of(&self, place: &Place) -> Result<Option<PathBuf>, FileOpenError> {
        let Some(found) = place.found.as_ref().filter(|found| found.kind == FileKind::Regular) else { return Ok(None) };
        super::walk::secret_with(self.directory()?, found.identity)
    }
}

impl OpenRoot {
    fn ambient(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            directory: Dir::open_ambient_dir(path, ambient_authority())?,
            target: Target::of_path(path)?.worked_in(),
        })
    }
}
