//! The directory that a run works in, as a value; and which directories are too wide for that, since a caller who
//! starts there does not mean everything beneath.

use std::io;
use std::path::{Path, PathBuf};

use crate::escape::visible;

/// The directory that a run works in: the base of relative paths, of shells and of child processes. Runs in one process
/// may each have their own, because nothing changes the directory of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkingDirectory {
    /// Absent where it is the directory of the process.
    elsewhere: Option<PathBuf>,
}

impl WorkingDirectory {
    /// The directory of the process. It is not looked at before it is needed, because it may be gone.
    pub fn of_process() -> Self {
        Self::default()
    }

    /// The directory at this path, which is taken relative to the directory of the process. An error says why it cannot
    /// be worked in.
    pub fn at(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        // The point at the end is only found by processes that may enter the directory.
        std::fs::metadata(path.join("."))?;
        let is_here = std::env::current_dir().is_ok_and(|here| here == path);
        Ok(Self { elsewhere: (!is_here).then_some(path) })
    }

    /// The absolute path of the directory. An error says why the process has none.
    pub fn path(&self) -> io::Result<PathBuf> {
        self.elsewhere.clone().map_or_else(std::env::current_dir, Ok)
    }

    /// The path by which the process opens the directory itself.
    pub(crate) fn base(&self) -> &Path {
        self.elsewhere.as_deref().unwrap_or(Path::new("."))
    }

    /// Where a child process is to be started, unless it inherits the directory from this process.
    pub fn for_child(&self) -> Option<&Path> {
        self.elsewhere.as_deref()
    }

    /// A path that was typed relative to this directory, as the process opens it: unchanged in the directory of the
    /// process, else absolute.
    pub fn join(&self, typed: impl AsRef<Path>) -> PathBuf {
        let typed = typed.as_ref();
        match &self.elsewhere {
            None => typed.to_owned(),
            Some(directory) => {
                let joined = directory.join(typed);
                std::path::absolute(&joined).unwrap_or(joined)
            }
        }
    }

    /// A path that is relative to the directory of the process, as it is written in this one: unchanged if they are the
    /// same, else absolute. An error says why the process has no directory.
    pub fn import(&self, typed: impl AsRef<Path>) -> io::Result<PathBuf> {
        let typed = typed.as_ref();
        if self.elsewhere.is_some() { std::path::absolute(typed) } else { Ok(typed.to_owned()) }
    }

    /// A program to be started here: a bare name is looked for on the path of the child, anything else is relative to
    /// this directory.
    pub fn program(&self, named: impl AsRef<Path>) -> PathBuf {
        let named = named.as_ref();
        let is_bare = !named.as_os_str().as_encoded_bytes().contains(&b'/');
        if is_bare { named.to_owned() } else { self.join(named) }
    }
}

/// Beneath these lies more than files of people: other processes, devices, sockets, secrets of services.
const OF_THE_SYSTEM: &[&str] = &["/proc", "/sys", "/dev", "/run"];
/// The exception beneath them: desktops put disks there.
const OF_PEOPLE: &str = "/run/media";

/// Whether more lies beneath a directory (absolute, without links) than a user who works there means.
pub fn is_too_wide(path: &Path) -> bool {
    let is_of_system = OF_THE_SYSTEM.iter().any(|system| path.starts_with(system)) && !path.starts_with(OF_PEOPLE);
    path == Path::new("/") || is_of_system
}

/// Why a working directory (absolute, without links) is no place to look around in.
pub(crate) fn refusal(path: &Path) -> Option<String> {
    is_too_wide(path).then(|| {
        let path = path.display().to_string();
        format!("the working directory is `{}`: everything would lie beneath it", visible(&path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_as_they_were_typed_where_the_process_is_and_are_absolute_elsewhere() {
        let here = WorkingDirectory::of_process();
        assert_eq!(here.join("a/b"), Path::new("a/b"));
        assert_eq!(here.import("a").unwrap(), Path::new("a"));
        assert_eq!((here.base(), here.for_child()), (Path::new("."), None));
        let process = std::env::current_dir().unwrap();
        assert_eq!(here.path().unwrap(), process);
        assert_eq!(WorkingDirectory::at(".").unwrap(), here, "by another name");
        assert_eq!(WorkingDirectory::at(&process).unwrap(), here);
        let temporary = tempfile::tempdir().unwrap();
        let elsewhere = WorkingDirectory::at(temporary.path()).unwrap();
        assert_eq!(elsewhere.path().unwrap(), temporary.path());
        for (typed, joined) in [("a/b", "a/b"), (".", ""), ("./a", "a"), ("../a", "../a")] {
            assert_eq!(elsewhere.join(typed), temporary.path().join(joined), "{typed}");
            assert!(!elsewhere.join(typed).to_str().unwrap().contains("/./"));
        }
        assert_eq!(elsewhere.join("/a"), Path::new("/a"));
        assert_eq!(elsewhere.import("a").unwrap(), process.join("a"));
        assert_eq!(elsewhere.program("python3"), Path::new("python3"));
        assert_eq!(elsewhere.program("bin/python3"), temporary.path().join("bin/python3"));
    }

    #[test]
    fn what_cannot_be_entered_is_no_working_directory() {
        let temporary = tempfile::tempdir().unwrap();
        std::fs::write(temporary.path().join("file"), "").unwrap();
        assert_eq!(WorkingDirectory::at(temporary.path().join("gone")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(
            WorkingDirectory::at(temporary.path().join("file")).unwrap_err().kind(),
            io::ErrorKind::NotADirectory
        );
    }

    #[test]
    fn the_system_is_no_working_directory() {
        for path in ["/", "/proc", "/proc/self", "/sys/kernel", "/dev/shm", "/run", "/run/secrets"] {
            assert!(refusal(Path::new(path)).is_some(), "{path}");
        }
        for path in ["/home/somebody", "/tmp", "/processes", "/srv/run", "/run/media/somebody/disk", "/var/lib"] {
            assert_eq!(refusal(Path::new(path)), None, "{path}");
        }
    }
}
