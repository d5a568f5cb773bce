//! What a project's files were: so that the process that resumes a run knows what has changed since.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::trust::MOST_BYTES;
use super::{Layout, Project};
use crate::beneath::read_regular;
use crate::journal::digest::digest;

/// A digest of each file that linking read, by its path beneath the project root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint(BTreeMap<String, String>);

impl Project {
    /// Of all files that were read. Those of agents made at run time are left out: a run makes them itself.
    pub fn fingerprint(&self) -> Fingerprint {
        let created = match &self.layout {
            Layout::Manifest(manifest) => {
                manifest.generated_agents_dir.as_ref().map(|directory| directory.value.clone())
            }
            Layout::SingleFile | Layout::Directory | Layout::Unreadable => None,
        };
        let created = created.unwrap_or_else(|| super::load::DEFAULT_GENERATED_DIR.to_owned());
        let files = self.sources.iter().map(|file| {
            let path = file.path.strip_prefix(&self.root).unwrap_or(&file.path);
            (path, digest([file.text.as_str()]))
        });
        let named = files.filter(|(path, _)| !path.starts_with(&created));
        let named = named.map(|(path, digest)| (path.display().to_string(), digest));
        Fingerprint(named.chain(self.digests_of_python()).collect())
    }

    /// Digests of the Python files. Linking does not read them, but they decide what a run does.
    fn digests_of_python(&self) -> impl Iterator<Item = (String, String)> {
        self.python_files().into_iter().filter_map(|path| {
            let text = read_regular(&self.root.join(&path), MOST_BYTES).ok()?;
            Some((path.display().to_string(), digest([String::from_utf8_lossy(&text).as_ref()])))
        })
    }
}

impl Fingerprint {
    /// What differs from this one now, in words: `main.worker has changed`.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let gone_or_changed = self.0.iter().filter_map(|(path, before)| match now.0.get(path) {
            None => Some(format!("{path} is gone")),
            Some(now) if now != before => Some(format!("{path} has changed")),
            Some(_) => None,
        });
        let new = now.0.keys().filter(|path| !self.0.contains_key(*path)).map(|path| format!("{path} is new"));
        gone_or_changed.chain(new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        let fingerprint = || Project::load(directory.path()).unwrap().fingerprint();
        write("main.worker", "---\nname: main\nentry: true\n---\nOne.");
        write("old.worker", "---\nname: old\n---\nTwo.");
        let before = fingerprint();
        assert_eq!(before.changes(&fingerprint()), Vec::<String>::new());
        write("main.worker", "---\nname: main\nentry: true\n---\nOther.");
        write("new.worker", "---\nname: new\n---\nThree.");
        std::fs::remove_file(directory.path().join("old.worker")).unwrap();
        std::fs::create_dir_all(directory.path().join("workers/generated")).unwrap();
        write("workers/generated/made.yaml", "name: made\ninstructions: x\n");
        let changes = before.changes(&fingerprint());
        assert_eq!(changes, ["main.worker has changed", "old.worker is gone", "new.worker is new"]);
    }

    #[test]
    fn python_files_count() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        let manifest = r#"{"version": 1, "entry": {"function": "tools.py:main"}, "python_files": ["tools.py"]}"#;
        write("project.json", manifest);
        write("tools.py", "x = 1");
        let fingerprint = || Project::load(directory.path()).unwrap().fingerprint();
        let before = fingerprint();
        write("tools.py", "x = 2");
        assert_eq!(before.changes(&fingerprint()), ["tools.py has changed"]);
    }
}
