//! A copy of a project that a case may change: made of what the project consists of, outside of it, and gone with the case.
//! Nothing is shared with the project: a hard link would let a command write through to it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use crate::beneath;
use crate::system;
use crate::tools::fence::private::{PrivateDirectory, TemporaryPlace};

/// A scratch project is no larger.
const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// Nor has it more files.
const MOST_FILES: usize = 50_000;
/// Larger files are not judged.
const LARGEST_JUDGED: u64 = 16 * 1024 * 1024;

/// Why there is no scratch project.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScratchError {
    /// It would be too large: what belongs to the project, as far as that was counted.
    #[error("the scratch project would have more than {} MiB or {MOST_FILES} files", MOST_BYTES >> 20)]
    TooLarge,
    /// A file cannot be copied or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no place for it.
    #[error("{0}")]
    NoPlace(String),
}

/// What a project consists of, for copies of it.
#[derive(Clone, Debug)]
pub struct ProjectListing {
    root: PathBuf,
    /// Beneath the root, with their sizes.
    files: Vec<(PathBuf, u64)>,
    /// What the project itself names: it is always copied.
    own: BTreeSet<PathBuf>,
}

impl ProjectListing {
    /// The files that somebody lists, such as a program that keeps versions of them; without a list all but hidden ones.
    pub fn of(root: &Path, listed: Option<Vec<PathBuf>>, own: BTreeSet<PathBuf>) -> Result<Self, ScratchError> {
        let mut paths: BTreeSet<PathBuf> = match listed {
            Some(listed) => listed.into_iter().collect(),
            None => walked(root)?,
        };
        paths.extend(own.iter().cloned());
        let mut files = Vec::new();
        for path in paths.into_iter().filter(|path| is_plain(path) && !is_of_records(path)) {
            // What git lists may be gone.
            if let Ok(metadata) = root.join(&path).symlink_metadata()
                && (metadata.is_file() || metadata.is_symlink())
            {
                files.push((path, metadata.len()));
            }
        }
        Ok(Self { root: root.to_owned(), files, own })
    }

    /// The project.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a file is a record of cases. No agent is told of them: each copy would have all of them, and a case more would be
/// another listing for every other.
fn is_of_records(path: &Path) -> bool {
    let is_records = |part: Component<'_>| part.as_os_str().as_encoded_bytes().ends_with(b".test.records");
    path.components().any(is_records)
}

/// Every file but hidden ones. Links to directories are not followed.
fn walked(root: &Path) -> Result<BTreeSet<PathBuf>, ScratchError> {
    let (mut found, mut waiting, mut bytes) = (BTreeSet::new(), vec![PathBuf::new()], 0);
    while let Some(directory) = waiting.pop() {
        let path = root.join(&directory);
        let entries = std::fs::read_dir(&path).map_err(|error| ScratchError::Io { path: path.clone(), error })?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let (path, kind) = (directory.join(&name), entry.file_type());
            match kind {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(_) => {
                    bytes += entry.metadata().map_or(0, |metadata| metadata.len());
                    found.insert(path);
                }
                Err(_) => {}
            }
            // Whoever has patterns for it may want less; but nobody wants to wait for this.
            if found.len() > 4 * MOST_FILES || bytes > 64 * MOST_BYTES {
                return Err(ScratchError::TooLarge);
            }
        }
    }
    Ok(found)
}

/// A copy of a project.
#[derive(Debug)]
pub struct ScratchProject {
    root: PathBuf,
    directory: Dir,
    _place: PrivateDirectory,
}

impl ScratchProject {
    /// A copy of what is wanted of a project, in a directory of its own where temporary files go.
    pub fn copy(
        listing: &ProjectListing,
        is_wanted: impl Fn(&Path) -> bool,
        temporary: Option<&Path>,
    ) -> Result<Self, ScratchError> {
        let place = PrivateDirectory::default();
        let root = place.path(&TemporaryPlace::new(temporary), &listing.root).map_err(ScratchError::NoPlace)?;
        // Its own name stays the same, and is no secret: agents see it.
        let root = root.join("project");
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| ScratchError::Io { path, error }
        };
        std::fs::create_dir(&root).map_err(failed(&root))?;
        let directory = Dir::open_ambient_dir(&root, ambient_authority()).map_err(failed(&root))?;
        let source = Dir::open_ambient_dir(&listing.root, ambient_authority()).map_err(failed(&listing.root))?;
        let wanted: Vec<&(PathBuf, u64)> =
            listing.files.iter().filter(|(path, _)| listing.own.contains(path) || is_wanted(path)).collect();
        let bytes: u64 = wanted.iter().map(|(_, bytes)| bytes).sum();
        if wanted.len() > MOST_FILES || bytes > MOST_BYTES {
            return Err(ScratchError::TooLarge);
        }
        for (path, _) in wanted {
            copy(&source, &directory, path).map_err(failed(path))?;
        }
        Ok(Self { root, directory, _place: place })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file of it. No link leads out of it.
    pub fn lay(&self, path: &str, content: &str) -> Result<(), ScratchError> {
        let written = make_parent(&self.directory, Path::new(path)).and_then(|()| self.directory.write(path, content));
        written.map_err(|error| ScratchError::Io { path: path.into(), error })
    }

    /// A file of it as it is now; nothing if there is no regular one.
    pub fn read(&self, path: &str) -> Option<String> {
        let bytes = beneath::read(&self.directory, Path::new(path), LARGEST_JUDGED).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn make_parent(directory: &Dir, path: &Path) -> io::Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => directory.create_dir_all(parent),
        None => Ok(()),
    }
}

fn copy(source: &Dir, target: &Dir, path: &Path) -> io::Result<()> {
    let metadata = source.symlink_metadata(path)?;
    make_parent(target, path)?;
    if metadata.is_symlink() {
        // One that leads out of the project would lead to something that a case could change.
        let Ok(leads_to) = source.read_link(path) else { return Ok(()) };
        return if stays_beneath(path, &leads_to) { target.symlink(leads_to, path) } else { Ok(()) };
    }
    let mut from = source.open(path)?;
    if !from.metadata()?.is_file() {
        return Ok(());
    }
    let mut to = target.open_with(path, OpenOptions::new().write(true).create_new(true))?;
    if !system::share_content(to.as_fd(), from.as_fd()) {
        io::copy(&mut from, &mut to)?;
    }
    to.set_permissions(metadata.permissions())
}

/// As words alone can tell.
fn stays_beneath(link: &Path, leads_to: &Path) -> bool {
    let mut depth = link.components().count() - 1;
    leads_to.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir => {
            depth = depth.wrapping_sub(1);
            depth != usize::MAX
        }
        Component::RootDir | Component::Prefix(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn project() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        std::fs::create_dir_all(at("notes/.hidden")).unwrap();
        std::fs::write(at("main.worker"), "m").unwrap();
        std::fs::write(at("notes/a.md"), "a").unwrap();
        std::fs::write(at("notes/.hidden/b"), "b").unwrap();
        std::fs::write(at("tool.sh"), "t").unwrap();
        std::fs::set_permissions(at("tool.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink("a.md", at("notes/inside")).unwrap();
        symlink("../../etc", at("notes/outside")).unwrap();
        symlink("/etc/passwd", at("passwd")).unwrap();
        directory
    }

    #[test]
    fn what_is_not_hidden_is_copied_and_links_stay_within() {
        let project = project();
        let listing = ProjectListing::of(project.path(), None, BTreeSet::new()).unwrap();
        let scratch = ScratchProject::copy(&listing, |_| true, None).unwrap();
        assert_eq!(scratch.read("notes/a.md").as_deref(), Some("a"));
        assert_eq!(scratch.read("notes/inside").as_deref(), Some("a"));
        for path in ["notes/.hidden/b", "notes/outside", "passwd"] {
            assert!(scratch.root().join(path).symlink_metadata().is_err(), "{path}");
        }
        let metadata = |path: PathBuf| path.metadata().unwrap();
        assert_eq!(metadata(scratch.root().join("tool.sh")).mode() & 0o777, 0o755);
        // Whoever writes to the copy does not write to the project.
        std::fs::write(scratch.root().join("notes/a.md"), "other").unwrap();
        assert_eq!(std::fs::read_to_string(project.path().join("notes/a.md")).unwrap(), "a");
        assert_eq!(metadata(project.path().join("notes/a.md")).nlink(), 1);
        let root = scratch.root().to_owned();
        drop(scratch);
        assert!(!root.exists(), "nothing is left");
    }

    #[test]
    fn records_of_cases_are_no_part_of_a_copy() {
        let project = project();
        std::fs::create_dir_all(project.path().join("notes/a.test.records")).unwrap();
        std::fs::write(project.path().join("notes/a.test.records/one.jsonl"), "{}").unwrap();
        for listed in [None, Some(vec![PathBuf::from("notes/a.md"), PathBuf::from("notes/a.test.records/one.jsonl")])] {
            let listing = ProjectListing::of(project.path(), listed, BTreeSet::new()).unwrap();
            let scratch = ScratchProject::copy(&listing, |_| true, None).unwrap();
            assert_eq!(scratch.read("notes/a.md").as_deref(), Some("a"));
            assert!(!scratch.root().join("notes/a.test.records/one.jsonl").exists());
        }
    }

    #[test]
    fn nothing_is_written_or_read_outside() {
        let (project, outside) = (project(), tempfile::tempdir().unwrap());
        let listing = ProjectListing::of(project.path(), None, BTreeSet::new()).unwrap();
        let scratch = ScratchProject::copy(&listing, |_| true, None).unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        symlink(outside.path(), scratch.root().join("out")).unwrap();
        for path in ["../x", "out/x", "/tmp/x", "out"] {
            assert!(scratch.lay(path, "x").is_err(), "{path}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
        assert_eq!(scratch.read("out/secret"), None);
        scratch.lay("new/directory/file", "x").unwrap();
        assert_eq!(scratch.read("new/directory/file").as_deref(), Some("x"));
    }

    #[test]
    fn a_large_project_is_refused_unless_patterns_choose_from_it() {
        let project = project();
        std::fs::File::create(project.path().join("large")).unwrap().set_len(MOST_BYTES).unwrap();
        let own = BTreeSet::from([PathBuf::from("main.worker")]);
        let listing = ProjectListing::of(project.path(), None, own).unwrap();
        assert!(matches!(ScratchProject::copy(&listing, |_| true, None), Err(ScratchError::TooLarge)));
        let scratch = ScratchProject::copy(&listing, |path| path.starts_with("notes"), None).unwrap();
        assert_eq!(scratch.read("main.worker").as_deref(), Some("m"), "what the project names is always there");
        assert_eq!(scratch.read("tool.sh"), None);
        let listed = vec![PathBuf::from("tool.sh"), PathBuf::from("../x"), PathBuf::from("gone")];
        let listing = ProjectListing::of(project.path(), Some(listed), BTreeSet::new()).unwrap();
        assert_eq!(listing.files.len(), 1);
    }
}
