//! What is in the files that a project asks to be trusted with: read once, before anybody is asked, and bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::journal::digest::hex;
use crate::syntax::claim::{Claim, Subject};

/// Beyond these the modules of a project are trusted by their place, and so is a single file that is larger.
pub const MOST_MODULES: usize = 2_000;
pub const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// Names that are looked at in search of modules: a project in the middle of a large tree is no reason to wait.
const MOST_NAMES: usize = 100_000;

/// What Python imports: sources, compiled files without a source, extensions.
const MODULE_ENDINGS: [&str; 3] = ["py", "pyc", "so"];

/// The contents of files, as digests.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// By the paths that were asked for.
    named: BTreeMap<PathBuf, Content>,
    /// Everything that Python files could import; `None`: there are none.
    pub modules: Option<Modules>,
    /// The project has an interpreter of its own.
    pub has_interpreter: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Digest(String),
    /// Too large: where it is has to do.
    Place,
}

#[derive(Clone, Debug)]
pub enum Modules {
    /// By their paths beneath the root.
    Read(BTreeMap<PathBuf, String>),
    TooMany,
}

impl Contents {
    /// Of everything that claims name. Those of a worker file come with its directory beneath the root.
    pub fn read<'a>(root: &Path, claims: impl Iterator<Item = (&'a Path, &'a Claim)>) -> Self {
        let mut contents = Self::default();
        let whole = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        for (base, claim) in claims {
            match &claim.subject {
                Subject::Python(file) => {
                    contents.modules.get_or_insert_with(|| Modules::beneath(root));
                    contents.read_named(root, &base.join(file));
                }
                Subject::Command { words, .. } => {
                    let program = words.first().map(Path::new).filter(|program| program.is_absolute());
                    if let Some(program) = program {
                        contents.read_at(program);
                    }
                    for path in words.iter().flat_map(|word| candidates(word)) {
                        match path.is_absolute() {
                            true if path.starts_with(&whole) => contents.read_at(path),
                            true => {}
                            false => contents.read_named(root, path),
                        }
                    }
                }
                Subject::Module(_) => {
                    contents.modules.get_or_insert_with(|| Modules::beneath(root));
                }
                Subject::Text(_) | Subject::Script(_) | Subject::Tool(_) | Subject::ToolOf { .. } => {}
            }
        }
        contents.has_interpreter = contents.modules.is_some() && root.join(".venv").exists();
        contents
    }

    /// A file of the project, if this is one.
    pub fn of_project(&self, path: &Path) -> Option<&Content> {
        self.named.get(&normal(path)?)
    }

    /// The file that a word of a command names, if it was read.
    pub fn named_by(&self, word: &str) -> Option<(PathBuf, &Content)> {
        candidates(word).into_iter().find_map(|path| {
            let path = if path.is_absolute() { path.to_owned() } else { normal(path)? };
            self.named.get(&path).map(|content| (path, content))
        })
    }

    fn read_named(&mut self, root: &Path, path: &Path) {
        let Some(path) = normal(path) else { return };
        let known = match &self.modules {
            Some(Modules::Read(files)) => files.get(&path).cloned().map(Content::Digest),
            Some(Modules::TooMany) | None => None,
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

impl Modules {
    fn beneath(root: &Path) -> Self {
        let mut walk = Walk { files: BTreeMap::new(), seen: BTreeSet::new(), names: 0, bytes: 0 };
        match walk.directory(root, Path::new("")) {
            Some(()) => Self::Read(walk.files),
            None => Self::TooMany,
        }
    }
}

struct Walk {
    files: BTreeMap<PathBuf, String>,
    /// Directories by identity: links may lead back.
    seen: BTreeSet<(u64, u64)>,
    names: usize,
    bytes: u64,
}

impl Walk {
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
            let (path, name) = (beneath.join(entry.file_name()), entry.file_name());
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_symlink() => entry.path().metadata().map(|metadata| metadata.file_type()),
                kind => kind,
            };
            match kind {
                Ok(kind) if kind.is_dir() && is_walked(&name.to_string_lossy()) => self.directory(root, &path)?,
                Ok(kind) if kind.is_file() && is_module(&path) => self.file(root, path)?,
                Ok(_) | Err(_) => {}
            }
        }
        Some(())
    }

    fn file(&mut self, root: &Path, path: PathBuf) -> Option<()> {
        (self.files.len() < MOST_MODULES).then_some(())?;
        let Ok((digest, bytes)) = hashed(&root.join(&path), MOST_BYTES - self.bytes + 1) else { return Some(()) };
        self.bytes += bytes;
        (self.bytes <= MOST_BYTES).then_some(())?;
        self.files.insert(path, digest);
        Some(())
    }
}

fn is_walked(name: &str) -> bool {
    !name.starts_with('.') && name != "node_modules" && name != "__pycache__"
}

fn is_module(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| MODULE_ENDINGS.contains(&ending))
}

/// `None` if there is no such file.
fn content(path: &Path) -> Option<Content> {
    match hashed(path, MOST_BYTES + 1) {
        Ok((_, bytes)) if bytes > MOST_BYTES => Some(Content::Place),
        Ok((digest, _)) => Some(Content::Digest(digest)),
        Err(_) => None,
    }
}

/// The digest of a regular file, or of its start, and how many bytes that are.
fn hashed(path: &Path, most: u64) -> io::Result<(String, u64)> {
    // Non-blocking, because opening a FIFO would wait for its writer.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file: File = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(most)).unwrap_or(0));
    file.take(most).read_to_end(&mut bytes)?;
    Ok((hex(&Sha256::digest(&bytes)), bytes.len() as u64))
}
