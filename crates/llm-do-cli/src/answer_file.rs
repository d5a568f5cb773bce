//! The answer in a file: whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Before anything is paid for: whether the file could be written.
pub fn check(path: &Path) -> Result<(), Failure> {
    let wrong = |fact: String| Err(Failure::usage(format!("`-o`: {fact}")));
    if path.is_dir() || path.file_name().is_none() {
        return wrong(format!("{} is not a file", path.display()));
    }
    match Place::of(path) {
        Ok(Place::File(file)) if !directory(&file).is_dir() => {
            wrong(format!("there is no directory {}", directory(&file).display()))
        }
        Ok(Place::File(file)) => match make_beside(&file).and_then(|(beside, _)| fs::remove_file(beside)) {
            Ok(()) => Ok(()),
            Err(error) => wrong(format!("{} cannot be written: {error}", path.display())),
        },
        Ok(Place::Stream) => Ok(()),
        Err(error) => wrong(format!("{} leads nowhere: {error}", path.display())),
    }
}

/// A file is written beside its place and then put there, so that a reader sees the old or the new, never a half. A
/// device or a pipe stays what it is.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = Place::of(path).and_then(|place| match place {
        Place::Stream => OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes()),
        Place::File(file) => replace(&file, text),
    });
    written.map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))
}

/// What a path leads to.
enum Place {
    /// Where links lead: they stay, and what they lead to is replaced.
    File(PathBuf),
    /// A device, a pipe, or an open file of this process.
    Stream,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        const MOST_LINKS: usize = 40;
        let mut place = path.to_owned();
        for _ in 0..MOST_LINKS {
            // To replace what is there would replace a part of the system, or the file that a stream has open.
            let is_of_the_system = fs::canonicalize(directory(&place))
                .is_ok_and(|directory| directory == Path::new("/dev") || directory.starts_with("/proc"));
            if is_of_the_system {
                return Ok(Self::Stream);
            }
            match fs::symlink_metadata(&place) {
                Ok(found) if found.is_symlink() => place = directory(&place).join(fs::read_link(&place)?),
                Ok(found) if !found.is_file() => return Ok(Self::Stream),
                Ok(_) | Err(_) => return Ok(Self::File(place)),
            }
        }
        Err(io::Error::other("too many links"))
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (beside, file) = make_beside(path)?;
    let replaced = fill(file, path, text).and_then(|()| fs::rename(&beside, path));
    replaced.inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

fn fill(mut file: File, path: &Path, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    if let Ok(before) = fs::metadata(path) {
        file.set_permissions(before.permissions())?;
    }
    file.sync_all()
}

/// A process that was killed may have left a file of the same name.
fn make_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    const MOST_ATTEMPTS: usize = 100;
    let mut attempts = (0..MOST_ATTEMPTS).map(|attempt| {
        let beside = directory(path).join(format!(".llm-do-{}-{attempt}.part", std::process::id()));
        File::create_new(&beside).map(|file| (beside, file))
    });
    let is_taken =
        |made: &io::Result<_>| made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
    attempts.find(|made| !is_taken(made)).unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_stays_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("answer.txt");
        for text in ["first\n", "second\n"] {
            check(&path).unwrap();
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("sub/there"), "old").unwrap();
        symlink("sub/there", at("link")).unwrap();
        symlink("link", at("chain")).unwrap();
        symlink("sub/new", at("dangling")).unwrap();
        for (link, file) in [("link", "sub/there"), ("chain", "sub/there"), ("dangling", "sub/new")] {
            check(&at(link)).unwrap();
            write(&at(link), link).unwrap();
            assert!(at(link).is_symlink(), "{link}");
            assert_eq!(fs::read_to_string(at(file)).unwrap(), link);
        }
        symlink("loop", at("loop")).unwrap();
        symlink("no/where", at("nowhere")).unwrap();
        for link in ["loop", "nowhere"] {
            assert_eq!(check(&at(link)).map_err(|failure| failure.code()), Err(2), "{link}");
        }
    }

    #[test]
    fn devices_and_pipes_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, device) = (directory.path().join("pipe"), directory.path().join("device"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        symlink("/dev/null", &device).unwrap();
        check(&pipe).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        check(&device).unwrap();
        write(&device, "gone").unwrap();
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        assert!(device.is_symlink() && fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert!(matches!(Place::of(Path::new("/dev/stdout")), Ok(Place::Stream)));
        assert!(matches!(Place::of(Path::new("/dev/fd/1")), Ok(Place::Stream)));
        assert!(matches!(Place::of(Path::new("/proc/self/fd/1")), Ok(Place::Stream)));
    }

    #[test]
    fn what_a_killed_process_left_is_not_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join(format!(".llm-do-{}-0.part", std::process::id()));
        fs::write(&left, "half").unwrap();
        let long = directory.path().join("n".repeat(255));
        write(&long, "whole").unwrap();
        assert_eq!(fs::read_to_string(&long).unwrap(), "whole");
        assert_eq!(fs::read_to_string(&left).unwrap(), "half", "it may be somebody's");
    }

    #[test]
    fn a_place_that_is_no_file_is_found_before_the_run() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().to_owned(), directory.path().join("no/where.txt"), PathBuf::from("..")] {
            assert_eq!(check(&path).map_err(|failure| failure.code()), Err(2), "{}", path.display());
        }
        assert!(check(Path::new("answer.txt")).is_ok());
    }
}
