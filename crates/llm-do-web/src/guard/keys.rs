//! The keys of a server: three, each for less than the one before. They lie in files that only their user can read.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use llm_do::files::{FileAccess, create_path, replace_path};
use llm_do::records::StateKey;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Everything.
    All,
    /// Looking.
    Look,
    /// Asking agents, as programs do.
    Ask,
}

impl KeyKind {
    pub const EACH: [Self; 3] = [Self::All, Self::Look, Self::Ask];

    /// What its file is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Look => "look",
            Self::Ask => "ask",
        }
    }
}

/// 32 random bytes in hex.
const LENGTH: usize = 64;

/// The three keys of a state directory.
#[derive(Clone)]
pub struct Keys {
    directory: PathBuf,
    texts: [String; 3],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Keys {
    /// Those of a directory, made as far as they are missing.
    pub fn of(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let [all, look, ask] = KeyKind::EACH.map(|kind| key_in(&directory.join(kind.name())));
        Ok(Self { directory: directory.to_owned(), texts: [all?, look?, ask?] })
    }

    /// Others in their place: those that there were open nothing any more.
    pub fn anew(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        for kind in KeyKind::EACH {
            let text = format!("{}\n", StateKey::new_hex()?);
            replace_path(&directory.join(kind.name()), text.as_bytes(), FileAccess::Private)?;
        }
        Self::of(directory)
    }

    /// The key itself.
    pub fn text(&self, kind: KeyKind) -> &str {
        let [all, look, ask] = &self.texts;
        match kind {
            KeyKind::All => all,
            KeyKind::Look => look,
            KeyKind::Ask => ask,
        }
    }

    /// Where it lies.
    pub fn file(&self, kind: KeyKind) -> PathBuf {
        self.directory.join(kind.name())
    }

    /// Which of them it is. Each is compared to its end: how long it takes tells nothing.
    pub fn kind_of(&self, given: &str) -> Option<KeyKind> {
        let is_equal = KeyKind::EACH.map(|kind| equals(self.text(kind), given));
        KeyKind::EACH.into_iter().zip(is_equal).find_map(|(kind, is_equal)| is_equal.then_some(kind))
    }
}

fn equals(ours: &str, given: &str) -> bool {
    let given = given.as_bytes();
    let differing = ours.bytes().enumerate().fold(0, |differing, (at, byte)| {
        differing | (byte ^ std::hint::black_box(given.get(at).copied().unwrap_or(0)))
    });
    std::hint::black_box(differing) == 0 && given.len() == LENGTH
}

/// Of several processes that make one at the same time the first counts, and nobody ever reads half of one.
fn key_in(path: &Path) -> io::Result<String> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    match create_path(path, format!("{}\n", StateKey::new_hex()?).as_bytes(), FileAccess::Private) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => read(path),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()));
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.mode() & 0o077 != 0 {
        return Err(wrong("others can read it: `chmod 600`, or make new keys"));
    }
    let mut text = String::new();
    file.take(256).read_to_string(&mut text)?;
    let key = text.trim();
    let is_key = key.len() == LENGTH && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key.then(|| key.to_owned()).ok_or_else(|| wrong("it is no key: remove it, or make new keys"))
}
