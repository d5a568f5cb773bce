//! The answer in a file: whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use llm_do::escape::visible;
use llm_do::files;
use llm_do::files::FileAccess;
use rustix::fs::OFlags;

use crate::failure::Failure;

/// Before anything is paid for: whether the file could be written.
pub fn check(path: &Path) -> Result<(), Failure> {
    let wrong = |fact: String| Err(Failure::usage(format!("`-o`: {fact}")));
    if path.is_dir() || path.file_name().is_none() {
        return wrong(format!("{} is not a file", path.display()));
    }
    if path.file_name() == Some("-".as_ref()) {
        return Err(Failure::usage("`-o`: `-` is no name for a file").hint("without `-o` it goes to stdout"));
    }
    match AnswerTarget::of(path) {
        AnswerTarget::File if !directory(path).is_dir() => {
            wrong(format!("there is no directory {}", directory(path).display()))
        }
        AnswerTarget::File => match files::check_path(path) {
            Ok(()) => Ok(()),
            Err(error) => wrong(format!("{} cannot be written: {error}", path.display())),
        },
        AnswerTarget::Stream | AnswerTarget::OfTheSystem => Ok(()),
        AnswerTarget::Link(target) => Err(Failure::usage(format!("`-o`: {}", is_link(path, &target)))
            .hint("name the file itself, or remove the link")),
    }
}

/// Says that a path is a link. It is not followed, because its maker, who need not be the user, would decide which
/// file is written.
fn is_link(path: &Path, target: &Path) -> String {
    let (path, target) = (path.display().to_string(), target.display().to_string());
    format!("{} is a link to {}", visible(&path), visible(&target))
}

/// A file is written beside its place and then put there, so that a reader sees the old or the new, never a half. A
/// device or a pipe stays what it is.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let stream = |flags: OFlags| OpenOptions::new().append(true).custom_flags(flags.bits().cast_signed()).open(path);
    let written = match AnswerTarget::of(path) {
        AnswerTarget::File => files::replace_path(path, text.as_bytes(), FileAccess::of_path(path)),
        AnswerTarget::Stream => stream(OFlags::NOFOLLOW).and_then(|mut stream| stream.write_all(text.as_bytes())),
        AnswerTarget::OfTheSystem => stream(OFlags::empty()).and_then(|mut stream| stream.write_all(text.as_bytes())),
        AnswerTarget::Link(target) => Err(io::Error::other(is_link(path, &target))),
    };
    written.map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))
}

/// Whether a writer may have to wait there until a reader reads.
pub fn is_stream(path: &Path) -> bool {
    matches!(AnswerTarget::of(path), AnswerTarget::Stream | AnswerTarget::OfTheSystem)
}

/// What a path names. Only its last part is looked at: directories are where they are.
#[derive(Debug, PartialEq)]
enum AnswerTarget {
    /// It may not exist yet.
    File,
    /// A device or a pipe.
    Stream,
    /// What the system calls an open file of this process (`/dev/stdout`, `/dev/fd/3`), or a device: to replace it
    /// would replace a part of the system, or the file that a stream has open.
    OfTheSystem,
    /// With where it leads.
    Link(PathBuf),
}

impl AnswerTarget {
    fn of(path: &Path) -> Self {
        let is_of_the_system = fs::canonicalize(directory(path))
            .is_ok_and(|directory| directory == Path::new("/dev") || directory.starts_with("/proc"));
        if is_of_the_system {
            return Self::OfTheSystem;
        }
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => Self::Link(fs::read_link(path).unwrap_or_default()),
            Ok(found) if !found.is_file() => Self::Stream,
            Ok(_) | Err(_) => Self::File,
        }
    }
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
    fn a_link_is_named_and_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("sub/there"), "old").unwrap();
        for (link, target) in [("link", "sub/there"), ("chain", "link"), ("new", "sub/new"), ("null", "/dev/null")] {
            symlink(target, at(link)).unwrap();
            let failure = check(&at(link)).unwrap_err();
            assert!(failure.words().0.ends_with(&format!("/{link} is a link to {target}")), "{:?}", failure.words());
            assert_eq!(failure.code(), 2);
            // One that was put there during the run.
            assert_eq!(write(&at(link), "new").map_err(|failure| failure.code()), Err(1));
            assert!(at(link).is_symlink(), "{link}");
        }
        assert_eq!(fs::read_to_string(at("sub/there")).unwrap(), "old");
        assert!(!at("sub/new").exists());
        // Directories may be links.
        symlink("sub", at("directory")).unwrap();
        check(&at("directory/there")).unwrap();
        write(&at("directory/there"), "new").unwrap();
        assert_eq!(fs::read_to_string(at("sub/there")).unwrap(), "new");
    }

    #[test]
    fn devices_and_pipes_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        check(&pipe).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        let null = Path::new("/dev/null");
        check(null).unwrap();
        write(null, "gone").unwrap();
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        assert!(fs::symlink_metadata(null).unwrap().file_type().is_char_device());
        for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            assert_eq!(AnswerTarget::of(Path::new(path)), AnswerTarget::OfTheSystem, "{path}");
        }
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
