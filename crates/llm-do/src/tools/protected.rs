//! Files that decide what a project does: to change one of them always asks, whatever rule allows it.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// The files of one project, by identity: a link or another spelling of the name is the same file.
#[derive(Clone, Debug, Default)]
pub struct Protected {
    files: Vec<PathBuf>,
    identities: HashSet<(u64, u64)>,
}

/// Whatever is beneath one of these, wherever that is.
const DIRECTORIES: &[&str] = &[".git", ".llm-do", ".venv"];
const ENDINGS: &[&str] = &["worker", "agent", "py"];

impl Protected {
    /// Absolute paths of what linking reads or runs; those that do not exist are known by their names.
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> Self {
        let files: Vec<PathBuf> = files.into_iter().map(|file| file.canonicalize().unwrap_or(file)).collect();
        let identities = files.iter().filter_map(|file| identity(file)).collect();
        Self { files, identities }
    }

    /// Whether a change of the file, or of the directory that holds it, is a change of what a project does.
    pub fn covers(&self, path: &Path) -> bool {
        self.covers_as_written(path) || self.covers_as_written(&without_links(path))
    }

    fn covers_as_written(&self, path: &Path) -> bool {
        is_protected_name(path)
            || identity(path).is_some_and(|identity| self.identities.contains(&identity))
            || self.files.iter().any(|file| file.starts_with(path) || path.starts_with(file))
    }
}

/// Where a path leads; of what does not exist, where its directory leads.
fn without_links(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for existing in path.ancestors() {
        if let Ok(resolved) = existing.canonicalize() {
            return missing.iter().rev().fold(resolved, |path, name| path.join(name));
        }
        missing.extend(existing.file_name());
    }
    path.to_owned()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn is_protected_name(path: &Path) -> bool {
    let names = || {
        path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        })
    };
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    names().any(|name| DIRECTORIES.contains(&name.as_str()))
        || name.starts_with(".env")
        || name == "project.json"
        || name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_protected_by_name_and_by_identity() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir(root.join("schemas")).unwrap();
        std::fs::write(root.join("schemas/in.json"), "{}").unwrap();
        std::fs::write(root.join("other.json"), "{}").unwrap();
        std::os::unix::fs::symlink("schemas/in.json", root.join("link")).unwrap();
        std::fs::hard_link(root.join("schemas/in.json"), root.join("hard")).unwrap();
        std::fs::create_dir_all(root.join(".git/hooks")).unwrap();
        std::os::unix::fs::symlink(".git/hooks", root.join("h")).unwrap();
        let protected = Protected::new([root.join("schemas/in.json"), root.join("workers/generated")]);
        for path in [
            "schemas/in.json",
            "link",
            "hard",
            "h/pre-commit",
            "schemas",
            "workers/generated/x.yaml",
            "workers",
            ".git/hooks/pre-commit",
            ".GIT/config",
            "a/main.worker",
            "tools.py",
            ".env",
            ".env.local",
            ".llm-do/x",
            "project.json",
            ".venv/bin/python",
        ] {
            assert!(protected.covers(&root.join(path)), "{path}");
        }
        for path in ["other.json", "notes.md", "gitignore", "src/main.rs", "workersx"] {
            assert!(!protected.covers(&root.join(path)), "{path}");
        }
    }
}
