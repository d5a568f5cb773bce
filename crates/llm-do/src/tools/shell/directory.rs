//! The working directory of a shell: which paths of a command lie beneath it, and what looks like a secret there.

use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::words::Word;
use crate::beneath::FileOpenError;
use crate::escape::visible;
use crate::tools::secret::{is_met, looks_secret};

/// A directory that is open, so that it stays the same one whatever becomes of its name.
pub(crate) struct CommandDirectory {
    pub directory: Dir,
    /// Absolute, without links.
    pub path: PathBuf,
    /// What lies beneath these is a secret whatever it is called; without links.
    private: Vec<PathBuf>,
}

/// Where a path of a command leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandPath {
    /// As it was written, relative to the directory.
    pub written: PathBuf,
    /// The same without links.
    pub beneath: PathBuf,
    pub kind: CommandPathKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandPathKind {
    File,
    Directory,
    Missing,
}

impl CommandPath {
    /// As people read it: where it leads, if that is elsewhere.
    pub(crate) fn shown(&self) -> String {
        let plain: PathBuf = self.written.components().filter(|part| *part != Component::CurDir).collect();
        let written = self.written.display();
        if plain == self.beneath { written.to_string() } else { format!("{written} → {}", self.beneath.display()) }
    }

    /// Whether the name of a secret is in the path, as it was written or where it leads.
    pub(crate) fn looks_secret(&self) -> bool {
        looks_secret(&self.written) || looks_secret(&self.beneath)
    }
}

/// What a search for secret-looking files found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    None,
    One(PathBuf),
    /// More files than are looked at.
    TooMany,
}

/// Larger trees are not searched to their end.
const MOST_ENTRIES: usize = 200_000;

impl CommandDirectory {
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let wrong = |error| format!("the working directory {} cannot be opened: {error}", path.display());
        let path = path.canonicalize().map_err(wrong)?;
        let directory = Dir::open_ambient_dir(&path, ambient_authority()).map_err(wrong)?;
        Ok(Self { directory, path, private: Vec::new() })
    }

    /// The same directory, with others in which everything is a secret.
    #[must_use]
    pub(crate) fn hiding<'a>(self, private: impl Iterator<Item = &'a Path>) -> Self {
        Self { private: private.filter_map(|path| path.canonicalize().ok()).collect(), ..self }
    }

    /// Whether a place beneath this directory is a secret.
    pub(crate) fn is_secret(&self, place: &CommandPath) -> bool {
        place.looks_secret() || self.is_private(&place.beneath)
    }

    fn is_private(&self, beneath: &Path) -> bool {
        self.private.iter().any(|private| self.path.join(beneath).starts_with(private))
    }

    /// What of this directory lies beneath another path: all, a part of it, or nothing.
    pub(crate) fn overlap(&self, path: &Path) -> Option<PathBuf> {
        if self.path.starts_with(path) {
            return Some(PathBuf::new());
        }
        path.strip_prefix(&self.path).ok().map(Path::to_owned)
    }

    /// Where a word leads as a path, if that is a file or a directory beneath this one, or nothing at all.
    pub(crate) fn find(&self, word: &Word) -> Result<CommandPath, String> {
        let shown = visible(&word.text);
        let written = self.relative(&word.text)?;
        let leads_outside = || format!("`{shown}` leads outside the working directory");
        if !stays_beneath(&written) {
            return Err(leads_outside());
        }
        let metadata = match self.directory.metadata(or_here(&written)) {
            Ok(metadata) => metadata,
            Err(error) => {
                return match FileOpenError::from(error) {
                    FileOpenError::Outside => Err(leads_outside()),
                    FileOpenError::Missing if word.is_glob() => {
                        Err(format!("`{shown}`: file names are not expanded; name the files, or use `find -name`"))
                    }
                    FileOpenError::Missing if has_parents(&written) => Err(format!("`{shown}` does not exist")),
                    FileOpenError::Missing => {
                        Ok(CommandPath { beneath: written.clone(), written, kind: CommandPathKind::Missing })
                    }
                    FileOpenError::NotRegular => Err(format!("`{shown}` is not a regular file")),
                    FileOpenError::Io(error) => Err(format!("`{shown}` cannot be looked at: {error}")),
                };
            }
        };
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => CommandPathKind::Directory,
            kind if kind.is_file() => CommandPathKind::File,
            _ => return Err(format!("`{shown}` is neither a regular file nor a directory")),
        };
        let beneath = self.directory.canonicalize(or_here(&written)).map_err(|_| leads_outside())?;
        Ok(CommandPath { written, beneath, kind })
    }

    /// An absolute path may name what lies beneath just as well.
    fn relative(&self, text: &str) -> Result<PathBuf, String> {
        if text.is_empty() {
            return Err("an empty path names nothing".to_owned());
        }
        let path = Path::new(text);
        if !path.is_absolute() {
            return Ok(path.to_owned());
        }
        let beneath = path.strip_prefix(&self.path).map_err(|_| {
            format!("`{}` leads outside the working directory; paths are relative to it", visible(text))
        })?;
        Ok(beneath.to_owned())
    }

    /// Looks for files that look like secrets beneath a directory, without following links. `is_read` says which paths
    /// would be read at all.
    pub(crate) fn secrets_beneath(&self, start: &Path, is_read: &dyn Fn(&Path) -> bool) -> Secrets {
        let mut waiting = vec![start.to_owned()];
        let mut seen = 0;
        while let Some(path) = waiting.pop() {
            // What cannot be listed cannot be read either.
            let Ok(entries) = self.directory.read_dir(or_here(&path)) else { continue };
            for entry in entries.flatten() {
                seen += 1;
                if seen > MOST_ENTRIES {
                    return Secrets::TooMany;
                }
                let name = entry.file_name();
                let Ok(kind) = entry.file_type() else { continue };
                let inner = path.join(name);
                if kind.is_dir() {
                    waiting.push(inner);
                } else if kind.is_file() && self.is_secret_met(&inner) && is_read(&inner) {
                    return Secrets::One(inner);
                }
            }
        }
        Secrets::None
    }

    fn is_secret_met(&self, beneath: &Path) -> bool {
        const LARGEST: u64 = 1 << 20;
        self.is_private(beneath) || is_met(beneath, || crate::beneath::read(&self.directory, beneath, LARGEST).ok())
    }
}

/// The empty path, which an operating system does not know, is the directory itself.
fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

fn has_parents(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// Whether `..` never climbs above the start, links left aside.
pub(crate) fn stays_beneath(path: &Path) -> bool {
    let mut depth = 0_usize;
    for part in path.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Scene {
        _outside: tempfile::TempDir,
        _inside: tempfile::TempDir,
        directory: CommandDirectory,
    }

    fn scene() -> Scene {
        let (outside, inside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("o"), "x").unwrap();
        let path = inside.path();
        std::fs::create_dir_all(path.join("d/e")).unwrap();
        for file in ["a", "d/b", "d/e/.env", "-rf"] {
            std::fs::write(path.join(file), "x").unwrap();
        }
        symlink(outside.path(), path.join("out")).unwrap();
        symlink(outside.path().join("o"), path.join("outfile")).unwrap();
        symlink("a", path.join("link")).unwrap();
        symlink("d/e/.env", path.join("notes")).unwrap();
        symlink("gone", path.join("dangling")).unwrap();
        symlink("/gone", path.join("dangling_out")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join("fifo"), 0o600.into()).unwrap();
        let directory = CommandDirectory::open(path).unwrap();
        Scene { _outside: outside, _inside: inside, directory }
    }

    #[test]
    fn paths_are_found_beneath_and_nowhere_else() {
        let scene = scene();
        let find = |path: &str| scene.directory.find(&Word::literal(path));
        for (path, beneath, kind) in [
            ("a", "a", CommandPathKind::File),
            ("./d//b", "d/b", CommandPathKind::File),
            ("d/../a", "a", CommandPathKind::File),
            (".", ".", CommandPathKind::Directory),
            ("d/", "d", CommandPathKind::Directory),
            ("link", "a", CommandPathKind::File),
            ("new", "new", CommandPathKind::Missing),
            ("-rf", "-rf", CommandPathKind::File),
            ("dangling", "dangling", CommandPathKind::Missing),
        ] {
            let place = find(path).unwrap();
            assert_eq!((place.beneath.as_path(), place.kind), (Path::new(beneath), kind), "{path}");
        }
        let absolute = scene.directory.path.join("d/b");
        assert_eq!(find(absolute.to_str().unwrap()).unwrap().beneath, Path::new("d/b"));
        let sibling = format!("{}-secret/x", scene.directory.path.display());
        for path in [
            "..",
            "../x",
            "d/../../x",
            "/etc/passwd",
            "//etc/passwd",
            "out",
            "out/o",
            "outfile",
            "dangling_out",
            "fifo",
            "",
            "new/../../x",
            "/proc/self/environ",
            "out/../a",
            &sibling,
            "new/../a",
        ] {
            assert!(find(path).is_err(), "{path}: {:?}", find(path));
        }
    }

    #[test]
    fn secrets_are_seen_through_links_and_in_trees() {
        let scene = scene();
        let find = |path: &str| scene.directory.find(&Word::literal(path)).unwrap();
        assert!(find("notes").looks_secret() && find("d/e/.env").looks_secret() && find(".env.local").looks_secret());
        assert!(!find("a").looks_secret());
        let search =
            |path: &str, is_read: &dyn Fn(&Path) -> bool| scene.directory.secrets_beneath(Path::new(path), is_read);
        assert_eq!(search("", &|_| true), Secrets::One("d/e/.env".into()));
        assert_eq!(search("", &|path| path.ends_with("main")), Secrets::None);
        assert_eq!(search("out", &|_| true), Secrets::None);
    }

    #[test]
    fn a_pattern_of_a_shell_says_that_it_is_none() {
        let scene = scene();
        let words = crate::tools::shell::words::split("*.rs 'x*'").unwrap();
        assert!(scene.directory.find(&words[0]).unwrap_err().contains("not expanded"));
        assert_eq!(scene.directory.find(&words[1]).unwrap().kind, CommandPathKind::Missing);
    }
}
