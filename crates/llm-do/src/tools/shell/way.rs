//! The way to a file from the root of the disk: every directory that a path leads through, link by link, with what it
//! was when it was looked at. An attacker who can write one of them decides where the path leads.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::io;
use std::path::{Component, Path, PathBuf};

/// More links than any honest path has.
const MOST_LINKS: usize = 40;

/// A way, as far as it goes.
#[derive(Clone, Debug)]
pub(crate) struct PathTrail {
    /// The directories that something was looked up in, each without links.
    pub directories: Vec<(PathBuf, Metadata)>,
    /// What is at its end, without links; `None` if nothing is.
    pub arrived: Option<(PathBuf, Metadata)>,
}

impl PathTrail {
    /// The same way with its end as one more directory: what would be looked up in it.
    #[must_use]
    pub(crate) fn entered(mut self) -> Self {
        self.directories.extend(self.arrived.take_if(|(_, metadata)| metadata.is_dir()));
        self
    }
}

enum TrailStep {
    Up,
    Into(std::ffi::OsString),
}

/// Follows an absolute path.
pub(crate) fn to(path: &Path) -> io::Result<PathTrail> {
    let mut here = PathBuf::from("/");
    let mut at = here.symlink_metadata()?;
    let mut directories = Vec::new();
    let mut waiting = VecDeque::new();
    let mut links = 0;
    put_in_front(&mut waiting, path);
    while let Some(step) = waiting.pop_front() {
        if !at.is_dir() {
            return Ok(PathTrail { directories, arrived: None });
        }
        directories.push((here.clone(), at.clone()));
        let next = match step {
            TrailStep::Up => here.parent().unwrap_or(Path::new("/")).to_owned(),
            TrailStep::Into(name) => here.join(name),
        };
        let metadata = match next.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(PathTrail { directories, arrived: None });
            }
            Err(error) => return Err(error),
        };
        if metadata.is_symlink() {
            links += 1;
            if links > MOST_LINKS {
                return Err(io::Error::other("too many links"));
            }
            let target = next.read_link()?;
            if target.is_absolute() {
                here = PathBuf::from("/");
                at = here.symlink_metadata()?;
            }
            put_in_front(&mut waiting, &target);
        } else {
            (here, at) = (next, metadata);
        }
    }
    Ok(PathTrail { directories, arrived: Some((here, at)) })
}

fn put_in_front(waiting: &mut VecDeque<TrailStep>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => waiting.push_front(TrailStep::Into(name.to_owned())),
            Component::ParentDir => waiting.push_front(TrailStep::Up),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_directory_on_the_way_is_told() {
        let scene = tempfile::tempdir().unwrap();
        let root = scene.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(root.join("c")).unwrap();
        std::fs::write(root.join("c/file"), "").unwrap();
        symlink("../../c", root.join("a/b/up")).unwrap();
        symlink(root.join("a/b"), root.join("short")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let way = to(&root.join("short/up/file")).unwrap();
        assert_eq!(way.arrived.unwrap().0, root.join("c/file"));
        for expected in ["", "a", "a/b", "c"] {
            let expected = root.join(expected);
            assert!(way.directories.iter().any(|(path, _)| path.join("") == expected.join("")), "{expected:?}");
        }
        assert!(to(&root.join("none/x")).unwrap().arrived.is_none());
        assert!(to(&root.join("c/file/x")).unwrap().arrived.is_none());
        assert!(to(&root.join("loop")).is_err());
        let entered = to(&root.join("short")).unwrap().entered();
        assert_eq!(entered.directories.last().unwrap().0, root.join("a/b"));
    }
}
