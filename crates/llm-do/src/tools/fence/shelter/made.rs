//! What a command made although it may not: found and removed by descriptors, so that no link which it left leads to
//! another file.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{CWD, Mode, OFlags, openat};

/// Something that is there now, in a directory that is held.
pub(crate) struct LeftoverEntry {
    pub path: PathBuf,
    above: Dir,
    name: PathBuf,
}

impl LeftoverEntry {
    /// What stands at a path that led through no links: itself, or the first link on the way to it.
    pub(crate) fn at(root: &Path, path: &Path) -> Option<Self> {
        let parts: Vec<&OsStr> = path.strip_prefix(root).ok()?.components().map(Component::as_os_str).collect();
        let mut above = open(CWD, root)?;
        let mut so_far = root.to_owned();
        for (at, part) in parts.iter().enumerate() {
            so_far.push(part);
            let metadata = above.symlink_metadata(part).ok()?;
            if metadata.is_symlink() || at + 1 == parts.len() {
                return Some(Self { path: so_far, above, name: PathBuf::from(part) });
            }
            above = open(&above, Path::new(part))?;
        }
        None
    }

    /// Removes it, a directory with all that is in it; says whether that succeeded.
    pub(crate) fn remove(&self) -> bool {
        let is_directory = self.above.symlink_metadata(&self.name).is_ok_and(|metadata| metadata.is_dir());
        if is_directory { self.above.remove_dir_all(&self.name) } else { self.above.remove_file(&self.name) }.is_ok()
    }
}

/// A directory, and no link to one.
fn open(above: impl std::os::fd::AsFd, path: &Path) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, path, flags, Mode::empty()).ok().map(|opened| Dir::from_std_file(File::from(opened)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_was_made_is_removed_and_what_it_leads_to_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("root");
        let victim = directory.path().join("victim");
        for path in [&root.join("a/b/file"), &root.join("a/tree/x/y"), &victim.join("b/file")] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        symlink(&victim, root.join("way")).unwrap();
        for (path, removed) in [("way/b/file", "way"), ("a/b/file", "a/b/file"), ("a/tree", "a/tree")] {
            let made = LeftoverEntry::at(&root, &root.join(path)).unwrap();
            assert_eq!(made.path, root.join(removed));
            assert!(made.remove() && root.join(removed).symlink_metadata().is_err(), "{path}");
        }
        assert!(victim.join("b/file").exists());
        for path in ["gone", "a/b/file/further", "a/gone/x"] {
            assert!(LeftoverEntry::at(&root, &root.join(path)).is_none(), "{path}");
        }
        assert!(LeftoverEntry::at(&root, &victim).is_none(), "it lies elsewhere");
    }
}
