//! The directories besides the working directory that shells say they write: opened once, when a run begins, and the
//! same ones for every shell until it ends, whatever becomes of their names.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::beneath::Identity;
use crate::escape::visible;

/// The directories of one run.
#[derive(Debug, Default)]
pub struct WrittenRoots(Mutex<BTreeMap<PathBuf, Option<WrittenRoot>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct WrittenRoot {
    real: PathBuf,
    identity: Identity,
}

impl WrittenRoots {
    /// Where a declared path leads: one that is relative lies beneath the project. What is not there when it is first
    /// asked for is not written in this run.
    pub fn open(&self, project: &Path, declared: &str) -> Result<Option<PathBuf>, String> {
        let path = project.join(declared);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(&path) {
            let written = find(project, Path::new(declared)).map_err(|why| format!("`{}` {why}", visible(declared)))?;
            known.insert(path.clone(), written);
        }
        match known.get(&path).and_then(Option::as_ref) {
            Some(written) if written.is_same() => Ok(Some(written.real.clone())),
            Some(_) => Err(format!("`{}` is not the directory that it was when the run began", visible(declared))),
            None => Ok(None),
        }
    }
}

impl WrittenRoot {
    fn is_same(&self) -> bool {
        let is_link = self.real.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        !is_link && Identity::of_path(&self.real).is_ok_and(|identity| identity == self.identity)
    }
}

/// Finds a declared directory. No part of a path that a project gives may be a link, since the author of the link would
/// choose what is written.
fn find(project: &Path, declared: &Path) -> Result<Option<WrittenRoot>, String> {
    let (above, parts): (&Path, Vec<Component<'_>>) = if declared.is_absolute() {
        // A system may have links of its own on the way, such as `/tmp`.
        let last = declared.components().next_back().into_iter().collect();
        (declared.parent().unwrap_or(Path::new("/")), last)
    } else {
        (project, declared.components().collect())
    };
    let Ok(mut real) = above.canonicalize() else { return Ok(None) };
    for part in parts {
        match part {
            Component::Normal(name) => real.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => continue,
            Component::ParentDir => return Err("leads outside the project; name it by its absolute path".to_owned()),
        }
        match real.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => {
                let target = std::fs::read_link(&real).unwrap_or_default().display().to_string();
                return Err(format!("is a link to {}; name the directory itself", visible(&target)));
            }
            Ok(_) => {}
            Err(_) => return Ok(None),
        }
    }
    let identity = Identity::of_path(&real).map_err(|error| format!("cannot be opened: {error}"))?;
    Ok(Some(WrittenRoot { real, identity }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_is_the_same_one_for_the_whole_run() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["build", "other", "a/b"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        symlink("/", root.join("cache")).unwrap();
        symlink("a", root.join("alias")).unwrap();
        let roots = WrittenRoots::default();
        let open = |declared: &str| roots.open(&root, declared);
        assert_eq!(open("build"), Ok(Some(root.join("build"))));
        assert_eq!(open("./a//b"), Ok(Some(root.join("a/b"))));
        assert_eq!(open("gone"), Ok(None));
        let absolute = root.join("other").display().to_string();
        assert_eq!(open(&absolute), Ok(Some(root.join("other"))));
        for (declared, why) in [
            ("cache", "`cache` is a link to /; name the directory itself"),
            ("alias/b", "`alias/b` is a link to a; name the directory itself"),
            ("../x", "`../x` leads outside the project; name it by its absolute path"),
        ] {
            assert_eq!(open(declared), Err(why.to_owned()));
        }
        let link = root.join("cache").display().to_string();
        assert!(open(&link).unwrap_err().contains("is a link to /"));
        std::fs::rename(root.join("build"), root.join("old")).unwrap();
        assert!(open("build").unwrap_err().contains("is not the directory that it was"));
        symlink("other", root.join("build")).unwrap();
        assert!(open("build").unwrap_err().contains("is not the directory that it was"));
        std::fs::create_dir(root.join("gone")).unwrap();
        assert_eq!(open("gone"), Ok(None), "it was not there when the run began");
    }
}
