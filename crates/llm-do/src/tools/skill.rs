//! Skills: texts that an agent reads when it needs them, each a directory with a `SKILL.md` and what belongs to it. They grant
//! nothing: they are instructions.

use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use schemars::JsonSchema;
use serde::Deserialize;

use super::approval::{Judgement, PermittedCall, Verdict};
use super::filesystem::walk::{self, Visitor, WalkEntryKind, WalkSummary};
use super::misfit::parse;
use super::protected::{ProtectedFiles, Target};
use super::secret::looks_secret;
use super::source::Base;
use super::{CallContext, Repeat, ToolError, ToolSpec, Toolset};
use crate::BoxFuture;
use crate::beneath::{self, FileKind};
use crate::escape::visible_start;
use crate::message::{Content, RawJson};
use crate::syntax::table::is_name;

/// The name of the tool.
pub(crate) const LOAD_SKILL: &str = "load_skill";
/// What makes a directory a skill.
pub(crate) const SKILL_FILE: &str = "SKILL.md";

/// Longer files are no texts that a model reads whole.
const LARGEST: u64 = 256 * 1024;
const MOST_LISTED: usize = 50;

/// Reads one of your skills, or another file of it
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LoadSkillArguments {
    /// As your instructions name it
    name: String,
    /// Another file of the skill, relative to its directory
    #[serde(default = "skill_file")]
    file: String,
}

fn skill_file() -> String {
    SKILL_FILE.to_owned()
}

/// The skills of one agent. Their directories are opened when one is read.
#[derive(Clone)]
pub(crate) struct SkillToolset {
    /// A directory that exists by itself, and a path that stays beneath it.
    directories: Vec<(PathBuf, PathBuf)>,
    protected: ProtectedFiles,
}

impl SkillToolset {
    pub(crate) fn new(directories: &[Base], project: &Path, protected: &ProtectedFiles) -> Self {
        let place = |base: &Base| match base {
            Base::Project(path) => (project.to_owned(), path.clone()),
            Base::Absolute(path) => (path.clone(), PathBuf::new()),
            Base::WorkingDirectory => (PathBuf::from("."), PathBuf::new()),
        };
        Self { directories: directories.iter().map(place).collect(), protected: protected.clone() }
    }

    fn load(&self, LoadSkillArguments { name, file }: &LoadSkillArguments) -> Result<String, String> {
        let found = is_name(name).then(|| self.directories.iter().find_map(|directory| opened(directory, name)));
        let Some((skill, place)) = found.flatten() else {
            return Err(format!("there is no skill `{}`", visible_start(name, 80)));
        };
        let text = self.read(&skill, &place, file)?;
        let others = if file == SKILL_FILE { other_files(&skill) } else { Vec::new() };
        if others.is_empty() {
            return Ok(text);
        }
        Ok(format!("{}\n\n[other files of the skill: {}]", text.trim_end(), others.join(", ")))
    }

    fn read(&self, skill: &Dir, place: &Path, file: &str) -> Result<String, String> {
        let failed = |reason: String| format!("`{}`: {reason}", visible_start(file, 120));
        let found = beneath::resolve(skill, Path::new(file)).map_err(|error| failed(error.to_string()))?;
        match &found.found {
            Some(details) if details.kind == FileKind::Regular => {}
            Some(_) | None => return Err(failed("there is no such file in the skill".to_owned())),
        }
        let path = place.join(&found.path);
        let is_private = || Target::of_path(&path).is_ok_and(|target| self.protected.is_private(&target));
        if looks_secret(&path) || looks_secret(Path::new(file)) || is_private() {
            return Err(failed("it looks like a secret, and is not read as a skill".to_owned()));
        }
        let bytes = beneath::read(skill, &found.path, LARGEST + 1).map_err(|error| failed(error.to_string()))?;
        if bytes.len() as u64 > LARGEST {
            return Err(failed(format!("it is larger than {LARGEST} bytes")));
        }
        String::from_utf8(bytes).map_err(|_| failed("it is no text".to_owned()))
    }
}

/// The directory of a skill, and where on the disk it is.
fn opened((base, relative): &(PathBuf, PathBuf), name: &str) -> Option<(Dir, PathBuf)> {
    let start = Dir::open_ambient_dir(base, ambient_authority()).ok()?;
    let place = beneath::resolve(&start, &relative.join(name)).ok()?;
    let skill = place.open_directory().ok()?;
    beneath::resolve(&skill, Path::new(SKILL_FILE)).ok()?.found?;
    let path = base.canonicalize().unwrap_or_else(|_| base.clone()).join(&place.path);
    Some((skill, path))
}

/// What else there is in a skill.
fn other_files(skill: &Dir) -> Vec<String> {
    struct SkillFiles(Vec<String>);

    impl Visitor for SkillFiles {
        fn enters(&mut self, path: &Path) -> bool {
            self.0.len() < MOST_LISTED && !is_hidden(path)
        }

        fn meets(&mut self, path: &Path, kind: WalkEntryKind) {
            let is_other = path != Path::new(SKILL_FILE) && !is_hidden(path) && kind == WalkEntryKind::File;
            if is_other && self.0.len() < MOST_LISTED {
                self.0.push(visible_start(&path.to_string_lossy(), 200).into_owned());
            }
        }
    }

    fn is_hidden(path: &Path) -> bool {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    }

    let mut files = SkillFiles(Vec::new());
    // What cannot be listed is not named; it can still be read.
    let _ = walk::walk(skill, Path::new(""), &mut files, &mut WalkSummary::default());
    files.0
}

impl Toolset for SkillToolset {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec { repeat: Repeat::Repeatable, ..ToolSpec::of::<LoadSkillArguments>(LOAD_SKILL) }]
    }

    fn judge<'a>(
        &'a self,
        _: &'a str,
        arguments: &'a RawJson,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move { parse::<LoadSkillArguments>(arguments).map(|_| Verdict::Allow.into()) })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        let skills = self.clone();
        Box::pin(async move {
            let wanted: LoadSkillArguments = parse(call.arguments()).map_err(ToolError::Failed)?;
            // Disks block; the other calls of the run must not.
            let read = tokio::task::spawn_blocking(move || skills.load(&wanted)).await;
            let text = read.map_err(|error| ToolError::Failed(format!("the skill cannot be read: {error}")))?;
            Ok(vec![Content::text(text.map_err(ToolError::Failed)?)])
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skills(files: &[(&str, &str)]) -> (tempfile::TempDir, SkillToolset) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("skills").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let directories = [Base::Project("skills".into())];
        let toolset = SkillToolset::new(&directories, root.path(), &ProtectedFiles::default());
        (root, toolset)
    }

    #[test]
    fn a_skill_is_read_and_what_belongs_to_it() {
        let (root, skills) = skills(&[
            ("release/SKILL.md", "---\ndescription: d\n---\nDo it.\n"),
            ("release/notes/form.md", "The form."),
            ("release/.env", "KEY=1"),
            ("release/picture", "\u{0}"),
            ("other/readme.md", "no skill"),
            ("secret.md", "beside"),
        ]);
        std::fs::write(root.path().join("skills/release/picture"), [0xff, 0xfe]).unwrap();
        std::os::unix::fs::symlink("../../secret.md", root.path().join("skills/release/link.md")).unwrap();
        let load =
            |name: &str, file: &str| skills.load(&LoadSkillArguments { name: name.to_owned(), file: file.to_owned() });
        assert_eq!(
            load("release", "SKILL.md").unwrap(),
            "---\ndescription: d\n---\nDo it.\n\n[other files of the skill: notes/form.md, picture]"
        );
        assert_eq!(load("release", "notes/form.md").unwrap(), "The form.");
        for (name, file, reason) in [
            ("none", "SKILL.md", "there is no skill `none`"),
            ("other", "SKILL.md", "there is no skill `other`"),
            ("../skills/release", "SKILL.md", "there is no skill `../skills/release`"),
            ("release", "none.md", "`none.md`: there is no such file in the skill"),
            ("release", "notes", "`notes`: there is no such file in the skill"),
            ("release", ".env", "`.env`: it looks like a secret, and is not read as a skill"),
            ("release", "picture", "`picture`: it is no text"),
        ] {
            assert_eq!(load(name, file).unwrap_err(), reason);
        }
        for outside in ["link.md", "../../secret.md", "/etc/passwd"] {
            assert!(load("release", outside).is_err(), "{outside}");
        }
    }
}
