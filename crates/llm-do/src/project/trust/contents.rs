//! What is in the files that a project asks to be trusted with: read once, before the user is asked, and bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sha2::{Digest as _, Sha256};

use crate::beneath::open_regular;
use crate::journal::digest::hex;
use crate::syntax::claim::{Claim, ClaimSubject};

/// Beyond these the modules of a project are trusted by their place, and so is a single file that is larger.
pub(crate) const MOST_MODULES: usize = 2_000;
/// The most bytes of all modules together, and of a single file, whose contents are trusted.
pub(crate) const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// Names that are looked at in search of modules: a project in the middle of a large tree is no reason to wait.
const MOST_NAMES: usize = 100_000;

/// What Python imports: sources, compiled files without a source, extensions.
const MODULE_ENDINGS: [&str; 3] = ["py", "pyc", "so"];

/// The contents of files, as digests.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectContents {
    /// By the paths that were asked for.
    named: BTreeMap<PathBuf, FileContent>,
    /// Everything that Python files could import; `None`: there are none.
    pub modules: Option<ModuleDigests>,
    /// The project has an interpreter of its own.
    pub has_interpreter: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileContent {
    Digest(String),
    /// The file is too large: it is trusted by its place.
    Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModuleDigests {
    /// By their paths beneath the root: as text, which is compared faster than parts of paths.
    Read(BTreeMap<OsString, String>),
    TooMany,
}

impl ProjectContents {
    /// Of everything that claims name. Those of a worker file come with its directory beneath the root.
    pub(crate) fn read<'a>(root: &Path, claims: impl Iterator<Item = (&'a Path, &'a Claim)>) -> Self {
        let mut contents = Self::default();
        let whole = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        for (base, claim) in claims {
            match &claim.subject {
                // What it imports is agreed to with it.
                ClaimSubject::Python(file) | ClaimSubject::StandIn(file) => {
                    contents.modules.get_or_insert_with(|| ModuleDigests::beneath(root));
                    contents.read_named(root, &base.join(file));
                }
                ClaimSubject::Command { words, .. } => {
                    for path in words.iter().flat_map(|word| candidates(word)) {
                        match path.is_absolute() {
                            true if path.starts_with(&whole) => contents.read_at(path),
                            true => {}
                            false => contents.read_named(root, path),
                        }
                    }
                }
                ClaimSubject::Module(_) => {
                    contents.modules.get_or_insert_with(|| ModuleDigests::beneath(root));
                }
                ClaimSubject::Text(_)
                | ClaimSubject::Script(_)
                | ClaimSubject::Tool(_)
                | ClaimSubject::ToolOf { .. } => {}
            }
        }
        contents.has_interpreter = contents.modules.is_some() && root.join(".venv").exists();
        contents
    }

    /// A file of the project, if this is one.
    pub(crate) fn of_project(&self, path: &Path) -> Option<&FileContent> {
        self.named.get(&normal(path)?)
    }

    /// Whether Python would find what it would have found when this was read.
    pub(crate) fn has_same_modules(&self, root: &Path) -> bool {
        let mut named = self.named.iter().filter(|(path, _)| is_module(path));
        self.modules.as_ref().is_none_or(|modules| *modules == ModuleDigests::beneath(root))
            && named.all(|(path, known)| content(&root.join(path)).as_ref() == Some(known))
    }

    /// The file that a word of a command names, if it was read.
    pub(crate) fn named_by(&self, word: &str) -> Option<(PathBuf, &FileContent)> {
        candidates(word).into_iter().find_map(|path| {
            let path = if path.is_absolute() { path.to_owned() } else { normal(path)? };
            self.named.get(&path).map(|content| (path, content))
        })
    }

    fn read_named(&mut self, root: &Path, path: &Path) {
        let Some(path) = normal(path) else { return };
        let known = match &self.modules {
            Some(ModuleDigests::Read(files)) => files.get(path.as_os_str()).cloned().map(FileContent::Digest),
            Some(ModuleDigests::TooMany) | None => None,
        };
        let content = known.or_else(|| content(&root.join(&path)));
        self.named.extend(content.map(|content| (path, content)));
    }

    fn read_at(&mut self, path: &Path) {
        self.named.extend(content(path).map(|content| (path.to_owned(), content)));
    }
}

/// A word may be a path, or hold one behind a `=`.
fn candidates(word: &str) -> Vec<&Path> {
    let value = word.split_once('=').map(|(_, value)| value);
    std::iter::once(word).chain(value).filter(|word| !word.is_empty()).map(Path::new).collect()
}

/// Beneath the root as words alone can tell, or not at all.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => normal.push(part),
            Component::CurDir => {}
            Component::ParentDir => normal.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!normal.as_os_str().is_empty()).then_some(normal)
}

impl ModuleDigests {
    fn beneath(root: &Path) -> Self {
        let mut walk = ModuleWalk { files: Vec::new(), seen: BTreeSet::new(), names: 0 };
        let files = walk.directory(root, Path::new("")).and_then(|()| digests(root, &walk.files));
        files.map_or(Self::TooMany, Self::Read)
    }
}

struct ModuleWalk {
    files: Vec<PathBuf>,
    /// Directories by identity: links may lead back.
    seen: BTreeSet<(u64, u64)>,
    names: usize,
}

impl ModuleWalk {
    /// `None` if there is too much. What cannot be read cannot be imported either.
    fn directory(&mut self, root: &Path, beneath: &Path) -> Option<()> {
        let directory = root.join(beneath);
        let Ok(metadata) = std::fs::metadata(&directory) else { return Some(()) };
        if !self.seen.insert((metadata.dev(), metadata.ino())) {
            return Some(());
        }
        let Ok(entries) = std::fs::read_dir(&directory) else { return Some(()) };
        for entry in entries.flatten() {
            self.names += 1;
            (self.names <= MOST_NAMES).then_some(())?;
            let name = entry.file_name();
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_symlink() => entry.path().metadata().map(|metadata| metadata.file_type()),
                kind => kind,
            };
            match kind {
                Ok(kind) if kind.is_dir() && is_walked(&name.to_string_lossy()) => {
                    self.directory(root, &beneath.join(name))?;
                }
                Ok(kind) if kind.is_file() && is_module(Path::new(&name)) => {
                    (self.files.len() < MOST_MODULES).then_some(())?;
                    self.files.push(beneath.join(name));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Some(())
    }
}

/// Hashing takes longer than reading: as many threads share it as there is work and room for.
const FILES_OF_A_THREAD: usize = 64;
const MOST_THREADS: usize = 8;

/// The digests of files beneath a directory, `None` if they are too large together. What cannot be read is left out.
fn digests(root: &Path, files: &[PathBuf]) -> Option<BTreeMap<OsString, String>> {
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        let mut found = Vec::new();
        let mut room = vec![0; BUFFER];
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let left = MOST_BYTES.saturating_sub(bytes.load(Ordering::Relaxed)) + 1;
            let Ok((digest, read)) = hashed(&root.join(path), left, &mut room) else { continue };
            if bytes.fetch_add(read, Ordering::Relaxed) + read > MOST_BYTES {
                break;
            }
            found.push((path.as_os_str().to_owned(), digest));
        }
        found
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST_THREADS);
    let helpers = processors.min(files.len().div_ceil(FILES_OF_A_THREAD)).saturating_sub(1);
    let found: BTreeMap<OsString, String> = std::thread::scope(|scope| {
        // A thread that cannot be had leaves its share to the others.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (0..helpers).filter_map(start).collect();
        let own = work();
        let theirs = helpers.into_iter().flat_map(|helper| helper.join().unwrap_or_default());
        own.into_iter().chain(theirs).collect()
    });
    (bytes.into_inner() <= MOST_BYTES).then_some(found)
}

fn is_walked(name: &str) -> bool {
    !name.starts_with('.') && name != "node_modules" && name != "__pycache__"
}

fn is_module(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| MODULE_ENDINGS.contains(&ending))
}

/// `None` if there is no such file.
fn content(path: &Path) -> Option<FileContent> {
    match hashed(path, MOST_BYTES + 1, &mut vec![0; BUFFER]) {
        Ok((_, bytes)) if bytes > MOST_BYTES => Some(FileContent::Place),
        Ok((digest, _)) => Some(FileContent::Digest(digest)),
        Err(_) => None,
    }
}

/// What is read at a time.
const BUFFER: usize = 64 * 1024;

/// The digest of a regular file, or of its start, and how many bytes that are.
fn hashed(path: &Path, most: u64, room: &mut [u8]) -> io::Result<(String, u64)> {
    let (mut file, mut hash, mut bytes) = (open_regular(path)?.take(most), Sha256::new(), 0);
    loop {
        match file.read(room) {
            Ok(0) => return Ok((hex(&hash.finalize()), bytes)),
            Ok(read) => {
                hash.update(&room[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_has_its_own_digest_however_many_threads_read_them() {
        let directory = tempfile::tempdir().unwrap();
        let count = 5 * FILES_OF_A_THREAD;
        for module in 0..count {
            let above = directory.path().join(format!("d{}", module % 3));
            std::fs::create_dir_all(&above).unwrap();
            // Some are longer than what is read at a time.
            let text = module.to_string().repeat(if module % 100 == 0 { BUFFER } else { 1 });
            std::fs::write(above.join(format!("m{module}.py")), text).unwrap();
        }
        let ModuleDigests::Read(found) = ModuleDigests::beneath(directory.path()) else {
            panic!("there are not too many")
        };
        assert_eq!(found.len(), count);
        for (path, digest) in found {
            let text = std::fs::read(directory.path().join(&path)).unwrap();
            assert_eq!(digest, hex(&Sha256::digest(&text)), "{}", path.display());
        }
    }

    #[test]
    fn modules_that_are_too_large_together_are_too_many() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, length: u64| {
            std::fs::File::create(directory.path().join(name)).unwrap().set_len(length).unwrap();
        };
        make("a.py", MOST_BYTES - 1);
        make("b.py", 1);
        assert!(matches!(ModuleDigests::beneath(directory.path()), ModuleDigests::Read(files) if files.len() == 2));
        make("c.py", 1);
        assert!(matches!(ModuleDigests::beneath(directory.path()), ModuleDigests::TooMany));
    }
}
