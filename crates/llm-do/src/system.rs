//! What systems do in different ways, in the same words: `linux` with what only Linux has, `posix` with what every Unix has.
//! Code above asks here and does not know which it is. `posix` is tried on Linux too, since its functions work there.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(test, not(target_os = "linux")))]
mod posix;

#[cfg(feature = "front-end")]
use std::io;
#[cfg(feature = "front-end")]
use std::os::fd::AsFd;
#[cfg(feature = "front-end")]
use std::path::PathBuf;

#[cfg(target_os = "linux")]
use linux as here;
#[cfg(not(target_os = "linux"))]
use posix as here;

pub(crate) use here::{
    SEARCH, end_of, identity, is_group, kill_all_others, list, permissions, processes, processes_with, random,
    set_limit, shows_processes,
};
#[cfg(feature = "front-end")]
pub(crate) use here::{open_files, share_content};

/// The program that runs. On Linux it is found whatever has become of its file, elsewhere where it was when it was started.
#[cfg(feature = "front-end")]
pub fn own_program() -> Option<PathBuf> {
    here::own_program()
}

/// Hides memory, environment and files of this process from others that run with the same rights. Only Linux can; elsewhere
/// this is an error.
#[cfg(feature = "front-end")]
pub fn conceal() -> io::Result<()> {
    here::conceal()
}

/// Where a process stands among the others of its terminal. A number is 0 where it lies outside this namespace of processes, as
/// for what was started from outside a container.
#[cfg(feature = "front-end")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProcessPlace {
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
}

/// The place of a process, or of this one with `None`.
#[cfg(feature = "front-end")]
pub fn place_of(process: Option<rustix::process::Pid>) -> Option<ProcessPlace> {
    here::place_of(process)
}

/// Whether this process is among those that its terminal listens to.
#[cfg(feature = "front-end")]
pub fn is_in_foreground(terminal: &impl AsFd) -> bool {
    let listened_to = match rustix::termios::tcgetpgrp(terminal) {
        Ok(group) => group.as_raw_nonzero().get(),
        // The group lies outside this namespace.
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(_) => return false,
    };
    place_of(None).is_some_and(|place| place.group == listened_to)
}

/// The terminal that controls this process.
#[cfg(feature = "front-end")]
pub fn terminal() -> PathBuf {
    here::terminal()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::CStr;
    use std::fs::File;
    use std::ops::ControlFlow;
    use std::os::fd::AsFd as _;
    use std::path::Path;

    use rustix::fs::FileType;
    use rustix::process::{Resource, getpid, getrlimit};

    use super::{linux, posix};

    #[test]
    fn content_that_cannot_be_shared_is_left_to_a_copy() {
        let file = || tempfile::tempfile().unwrap();
        let (to, from) = (file(), file());
        assert!(!posix::share_content(to.as_fd(), from.as_fd()));
    }

    #[test]
    fn both_see_the_same_files() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            File::create(directory.path().join(name)).unwrap();
        }
        let stat = rustix::fs::stat(directory.path().join("a")).unwrap();
        assert_eq!(linux::identity(&stat), posix::identity(&stat));
        assert_eq!(linux::permissions(&stat), posix::permissions(&stat));
        let opened = || File::open(directory.path()).unwrap();
        let (mut one, mut other) = (BTreeSet::new(), BTreeSet::new());
        let noted = |names: &mut BTreeSet<_>, name: &CStr, kind: FileType| {
            names.insert((name.to_owned(), kind.as_raw_mode()));
            ControlFlow::Continue(())
        };
        let mut buffer = Vec::with_capacity(4096);
        linux::list(opened().as_fd(), &mut buffer, |name, kind| noted(&mut one, name, kind)).unwrap();
        posix::list(opened().as_fd(), &mut buffer, |name, kind| noted(&mut other, name, kind)).unwrap();
        assert_eq!(one, other);
        assert_eq!(one.len(), 5, "with `.` and `..`: {one:?}");
        for flags in [linux::SEARCH, posix::SEARCH] {
            let flags = flags | rustix::fs::OFlags::DIRECTORY;
            let opened = rustix::fs::open(directory.path(), flags, rustix::fs::Mode::empty()).unwrap();
            assert!(rustix::fs::statat(opened, "a", rustix::fs::AtFlags::empty()).is_ok());
        }
        for path in ["/proc", "/proc/self", "/usr"] {
            assert_eq!(linux::shows_processes(Path::new(path)), posix::shows_processes(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn both_know_this_process() {
        // It is 0 where this was started from outside a container.
        let group = rustix::process::Pid::from_raw(nix::unistd::getpgrp().as_raw());
        assert!(group.is_none_or(|group| linux::is_group(group) && posix::is_group(group)));
        assert!(linux::processes().is_some_and(|count| count > 0));
        let (mut one, mut other) = ([0; 32], [0; 32]);
        linux::random(&mut one).unwrap();
        posix::random(&mut other).unwrap();
        assert!(one != other && one != [0; 32] && other != [0; 32]);
        let limit = || getrlimit(Resource::Core);
        linux::set_limit(None, Resource::Core, limit()).unwrap();
        posix::set_limit(None, Resource::Core, limit()).unwrap();
        assert!(posix::set_limit(Some(getpid()), Resource::Core, limit()).is_err());
        assert!(linux::end_of(getpid()).unwrap().is_some() && posix::end_of(getpid()).unwrap().is_none());
        posix::kill_all_others(); // nothing: there is no namespace in which the others are ours
        assert_eq!(posix::processes().is_none(), posix::processes_with(b"A=b").is_empty());
    }

    #[cfg(feature = "front-end")]
    #[test]
    fn both_name_the_same_program_and_a_terminal_if_there_is_one() {
        let file = |path: Option<std::path::PathBuf>| path.and_then(|path| path.canonicalize().ok());
        assert_eq!(file(linux::own_program()), file(posix::own_program()));
        assert!(linux::open_files() > 0 && posix::open_files() > 0);
        assert!(linux::terminal().starts_with("/dev") && posix::terminal().starts_with("/dev"));
        let place = linux::place_of(None).unwrap();
        // Started from outside a container, it has none that the other could tell.
        assert!(place.group == 0 || place.session == 0 || posix::place_of(None) == Some(place));
        assert!(posix::conceal().is_err(), "it does not say that it did what it cannot do");
    }
}
