//! Files that no tool changes before the approver was asked, whatever a rule allows: what linking reads or runs, what
//! other programs run unasked, and what the run itself writes. Compared by file identity; what does not exist yet, by
//! its name in the directory that does.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::repository;
use super::secret::looks_secret;
use crate::beneath::{Identity, Place};

/// The protected files of one program and run; a copy is the same list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProtectedFiles(Arc<Vec<ProtectedPath>>);

#[derive(Clone, Debug, PartialEq)]
struct ProtectedPath {
    path: PathBuf,
    covers: Covers,
    /// Completes "a file, which …".
    why: &'static str,
}

/// How far the protection of a path goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// The file.
    File,
    /// The file, or everything beneath the directory.
    Tree,
    /// Whatever Python could import from beneath the directory.
    Modules,
    /// Whatever would be an agent beneath the directory.
    Agents,
    /// Everything beneath the directory, which is not read unasked either.
    Private,
}

impl ProtectedFiles {
    /// Protects a path: absolute, or relative to the working directory. It need not exist.
    pub fn add(&mut self, path: impl Into<PathBuf>, covers: Covers, why: &'static str) {
        Arc::make_mut(&mut self.0).push(ProtectedPath { path: path.into(), covers, why });
    }

    /// What is protected by its place.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Path, Covers)> {
        self.0.iter().map(|entry| (entry.path.as_path(), entry.covers))
    }

    /// Whether a file, by its absolute path without links, would be an agent.
    pub(crate) fn is_agent(&self, path: &Path) -> bool {
        let has_ending = path.file_name().is_some_and(|name| has_ending(name, AGENT_ENDINGS));
        let is_beneath = |entry: &ProtectedPath| entry.covers == Covers::Agents && path.starts_with(&entry.path);
        has_ending && self.0.iter().any(is_beneath)
    }

    /// The first of these whose change, removal or move would change something protected: itself, or what is in it. A
    /// command only may write what it names, so of names those count that are known to be run or obeyed.
    pub(crate) fn touched<'a>(&self, targets: impl IntoIterator<Item = &'a Target>) -> Option<&'a Target> {
        let held: Vec<Target> = self.0.iter().filter_map(|entry| Target::of_path(&entry.path).ok()).collect();
        let is_above = |target: &Target| held.iter().any(|held| held.path.starts_with(&target.path));
        targets.into_iter().find(|target| self.names(target) || is_above(target))
    }

    /// Whether a target is protected itself, and not only a directory with something protected in it.
    pub(crate) fn names(&self, target: &Target) -> bool {
        by_name(target).or_else(|| by_repository(target)).is_some()
            || (target.is_there() && looks_secret(&target.path))
            || self.0.iter().any(|entry| entry.covers(target))
    }

    /// Whether the target belongs to this program itself, and is not even read unasked.
    pub(crate) fn is_private(&self, target: &Target) -> bool {
        self.0.iter().any(|entry| entry.covers == Covers::Private && entry.covers(target))
    }

    /// Directories that are not read unasked.
    pub(crate) fn private(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter(|entry| entry.covers == Covers::Private).map(|entry| entry.path.as_path())
    }

    /// Why the approver must be asked before the target is written, if so.
    pub(crate) fn reason(&self, target: &Target) -> Option<&'static str> {
        let entry = || self.0.iter().find(|entry| entry.covers(target)).map(|entry| entry.why);
        let secret = || looks_secret(&target.path).then_some("looks like a secret");
        by_name(target).or_else(secret).or_else(|| by_dot(target)).or_else(|| by_repository(target)).or_else(entry)
    }
}

/// A file that would be written, whether or not it exists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// Absolute, without links.
    pub path: PathBuf,
    /// How many parts of it are those of the directory that a tool works in.
    above: usize,
    /// The identities of `/` and of each further part of the path, as far as they exist.
    lineage: Vec<Identity>,
}

impl Target {
    /// What a path leads to now. The last part may be missing, and those above it.
    pub(crate) fn of_path(path: &Path) -> io::Result<Self> {
        let mut existing = std::path::absolute(path)?;
        let mut missing = Vec::new();
        let real = loop {
            match existing.canonicalize() {
                Ok(real) => break real,
                Err(error) if error.kind() == io::ErrorKind::NotFound => match existing.file_name() {
                    Some(name) => {
                        missing.push(name.to_owned());
                        existing.pop();
                    }
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        };
        let mut lineage = Vec::new();
        let mut above: Vec<&Path> = real.ancestors().collect();
        above.reverse();
        for ancestor in above {
            lineage.push(Identity::of_path(ancestor)?);
        }
        let path: PathBuf = real.iter().chain(missing.iter().rev().map(AsRef::as_ref)).collect();
        Ok(Self { path, above: 0, lineage })
    }

    /// The same target, named from within a directory: what that one is called says nothing of what is in it.
    #[must_use]
    pub(crate) fn within(self, directory: &Path) -> Self {
        let above = if self.path.starts_with(directory) { directory.iter().count() } else { 0 };
        Self { above, ..self }
    }

    /// Whether all of the path exists.
    fn is_there(&self) -> bool {
        self.lineage.len() >= self.path.iter().count()
    }

    /// Whether a part of the path has this name.
    fn has_part(&self, name: Option<&OsStr>) -> bool {
        let Some(name) = name else { return false };
        let path = self.path.as_os_str().as_bytes();
        if !path.is_ascii() || !name.is_ascii() {
            return self.path.iter().any(|part| is_same_name(part, name));
        }
        let mut parts = path.split(|byte| *byte == b'/');
        parts.any(|part| part.len() == name.len() && part.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// The same directory, as the one that a tool works in.
    #[must_use]
    pub(crate) fn worked_in(self) -> Self {
        Self { above: self.path.iter().count(), ..self }
    }

    /// The parts of the path that were named, or led to, in lower case; and those above them.
    fn parts(&self) -> (Vec<String>, Vec<String>) {
        let mut above: Vec<String> = self.path.iter().map(|part| part.to_string_lossy().to_lowercase()).collect();
        let named = above.split_off(self.above.min(above.len()));
        (named, above)
    }

    /// A place beneath this directory, which exists.
    #[must_use]
    pub(crate) fn at(&self, place: &Place) -> Self {
        let lineage = self.lineage.iter().copied().chain(place.directories.iter().skip(1).copied());
        let file = place.found.as_ref().map(|found| found.identity).filter(|file| !place.directories.contains(file));
        Self { path: self.path.join(&place.path), above: self.above, lineage: lineage.chain(file).collect() }
    }
}

impl ProtectedPath {
    fn covers(&self, target: &Target) -> bool {
        let (known, missing) = match Identity::of_path(&self.path) {
            Ok(known) => (known, Vec::new()),
            // What is not there can only be meant by its name.
            Err(_) if !target.has_part(self.path.file_name()) => return false,
            Err(_) => match deepest_known(&self.path) {
                Some(found) => found,
                None => return false,
            },
        };
        let meets = |(depth, _): (usize, &Identity)| {
            let below: Vec<&OsStr> = target.path.iter().skip(depth + 1).collect();
            below.len() >= missing.len()
                && below.iter().zip(&missing).all(|(part, name)| is_same_name(part, name))
                && self.covers.reaches(&below[missing.len()..])
        };
        target.lineage.iter().enumerate().filter(|(_, identity)| **identity == known).any(meets)
    }
}

impl Covers {
    /// Whether what lies this far below a path is covered with it.
    fn reaches(self, below: &[&OsStr]) -> bool {
        match self {
            Self::File => below.is_empty(),
            Self::Tree | Self::Private => true,
            Self::Modules => below.last().is_some_and(|name| has_ending(name, MODULE_ENDINGS)),
            Self::Agents => below.last().is_some_and(|name| has_ending(name, AGENT_ENDINGS)),
        }
    }
}

/// The part of a path that exists, and the names below it that do not.
fn deepest_known(path: &Path) -> Option<(Identity, Vec<&OsStr>)> {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(identity) = Identity::of_path(existing) {
            missing.reverse();
            return Some((identity, missing));
        }
        missing.push(existing.file_name()?);
        existing = existing.parent()?;
    }
}

/// Whether two names may be the same: a disk may take two spellings for one name. Where it does not, a question too
/// many is asked.
fn is_same_name(one: &OsStr, other: &OsStr) -> bool {
    if one.is_ascii() && other.is_ascii() {
        return one.eq_ignore_ascii_case(other);
    }
    one == other || one.to_string_lossy().to_lowercase() == other.to_string_lossy().to_lowercase()
}

fn has_ending(name: &OsStr, endings: &[&str]) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    endings.iter().any(|ending| name.ends_with(ending))
}

const MODULE_ENDINGS: &[&str] = &[".py", ".pyc", ".pyo", ".pyi", ".pyw", ".pyd", ".so", ".pth", ".egg", ".zip"];
const AGENTS: &[&str] = &[".worker", ".agent"];
const AGENT_ENDINGS: &[&str] = &[".worker", ".agent", ".yaml", ".yml"];

const RUN_BY_SHELL: &str = "is run by a shell";
const RUN_BY_GIT: &str = "belongs to git, which runs what is there";
const RUN_BY_EDITOR: &str = "is run by an editor";
const RUN_BY_OTHERS: &str = "is run or obeyed by another program";
const INSTRUCTS: &str = "instructs other agents";

/// Wherever they are, as a part of the path, in lower case: what this program or another one takes as code, settings
/// that name code, or instructions.
const PARTS: &[(&str, &str)] = &[
    (RUN_BY_GIT, ".git .githooks .gitconfig .gitattributes .gitmodules .husky .pre-commit-config.yaml .hg .hgrc .svn"),
    ("belongs to llm-do", ".llm-do"),
    ("belongs to a Python environment", ".venv .pdbrc .pythonrc .pythonrc.py .pythonstartup .ipython .jupyter"),
    (
        RUN_BY_EDITOR,
        ".vscode .vscode-server .idea .fleet .zed .devcontainer .devcontainer.json .vim .vimrc .gvimrc .exrc .nvimrc \
         .nvim.lua .lvimrc .emacs .emacs.d .dir-locals.el .nanorc .sublime",
    ),
    (
        RUN_BY_SHELL,
        ".bashrc .bashrc.d .bash_profile .bash_login .bash_logout .bash_aliases .bash_completion .profile .zshrc .zshenv \
         .zprofile .zlogin .zlogout .oh-my-zsh .kshrc .cshrc .tcshrc .login .logout .shrc .aliases .inputrc .xinitrc \
         .xprofile .xsession .xsessionrc .xserverrc .pam_environment .tmux.conf .screenrc .direnvrc",
    ),
    (
        INSTRUCTS,
        ".cursor .cursorrules .windsurf .windsurfrules .clinerules .roo .claude .claude.json .codex .gemini .aider.conf.yml \
         .mcp.json .agents .goosehints",
    ),
    (
        RUN_BY_OTHERS,
        ".config .local .cargo .rustup .npm .npmrc .yarn .yarnrc .yarnrc.yml .pnpmfile.cjs .bundle .gemrc .gradle .m2 .sbt \
         .github .gitlab-ci.yml .gitlab .circleci .travis.yml .drone.yml .buildkite .bazelrc .gdbinit .lldbinit .psqlrc \
         .sqliterc .my.cnf .mylogin.cnf .rprofile .renviron .irbrc .pryrc .rspec .rvmrc .curlrc .wgetrc .forward .procmailrc \
         .mailcap .muttrc .ctags .ctags.d .ackrc .mise.toml .tool-versions .terraformrc .ansible.cfg .vagrant.d .docker \
         .dockercfg .kube .ssh .gnupg .aws .mozilla .thunderbird",
    ),
];

/// Those among them that programs write while they work: a build in which they stay as they are would fail.
const WORKED_IN: &str = ".gitattributes .gitmodules .hg .svn .ipython .jupyter .vscode-server .local .rustup .npm .yarn .bundle \
     .gradle .m2 .sbt .mozilla .thunderbird";

/// From which commands something is kept because of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptFrom {
    All,
    /// `git` brings it along with other files of a branch.
    AllButGit,
}

/// Whether what has this name (in lower case) is run or obeyed wherever it lies, and is not written by programs in
/// ordinary work.
pub(crate) fn kept_name(name: &str, is_directory: bool) -> Option<KeptFrom> {
    let part = PARTS.iter().find(|(_, names)| name.starts_with('.') && has(names, name) && !has(WORKED_IN, name));
    let is_file = || NAMES.iter().any(|(_, names)| has(names, name)) || has_ending(name.as_ref(), AGENTS);
    match part {
        Some((why, _)) if *why == RUN_BY_OTHERS => Some(KeptFrom::AllButGit),
        Some(_) => Some(KeptFrom::All),
        None => (!is_directory && is_file()).then_some(KeptFrom::All),
    }
}

/// Wherever they are, as the name of a file.
const NAMES: &[(&str, &str)] = &[
    ("is the manifest of a project", "project.json"),
    (INSTRUCTS, "agents.md agents.override.md agent.md claude.md claude.local.md gemini.md qwen.md"),
    ("is imported by every Python", "sitecustomize.py usercustomize.py"),
    ("chooses which compiler runs", "rust-toolchain.toml rust-toolchain"),
];

/// Files with a leading dot that name no plugin and no program.
const PLAIN: &str = ".gitignore .gitkeep .editorconfig .dockerignore .nojekyll";

fn has(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}

/// Those that also count as a part of the directory that a tool works in: a project of its own may lie beneath any
/// other.
const ABOVE: &str = ".git .llm-do .venv .vscode .idea .config .ssh .gnupg";

/// Whether a target is known to be run or obeyed, by the names in its path.
fn by_name(target: &Target) -> Option<&'static str> {
    let (named, above) = target.parts();
    let of_part = |part: &&String| {
        let known = || PARTS.iter().find(|(_, names)| has(names, part)).map(|(why, _)| *why);
        let of_environment = || part.starts_with(".env").then_some("sets the environment of programs");
        part.starts_with('.').then(|| known().or_else(of_environment)).flatten()
    };
    let last = named.last().map(String::as_str).unwrap_or_default();
    let of_name = || NAMES.iter().find(|(_, names)| has(names, last)).map(|(why, _)| *why);
    let of_agent = || has_ending(last.as_ref(), AGENTS).then_some("is a worker file");
    let of_paths = || has_ending(last.as_ref(), &[".pth"]).then_some("is run by every Python");
    let above = above.iter().filter(|part| has(ABOVE, part) || part.starts_with(".env"));
    let found = above.chain(&named).find_map(|part| of_part(&part));
    found.or_else(of_name).or_else(of_agent).or_else(of_paths)
}

/// Hooks and settings may lie anywhere: in a bare repository, or where the settings of another one say.
fn by_repository(target: &Target) -> Option<&'static str> {
    repository::is_run(&target.path).then_some(RUN_BY_GIT)
}

/// Hidden files are settings, and there is no list of all programs that read them: writing any of them asks.
fn by_dot(target: &Target) -> Option<&'static str> {
    let (named, _) = target.parts();
    let (last, above) = named.split_last()?;
    let is_hidden = |part: &String| part.starts_with('.');
    let hidden = above.iter().any(is_hidden) || (is_hidden(last) && !has(PLAIN, last));
    hidden.then_some("is hidden, as settings of programs are")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(protected: &ProtectedFiles, root: &Path, path: &str) -> Option<&'static str> {
        protected.reason(&Target::of_path(&root.join(path)).unwrap().within(&root.canonicalize().unwrap()))
    }

    #[test]
    fn a_directory_is_touched_with_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir(root.join("schemas")).unwrap();
        std::fs::write(root.join("schemas/in.json"), "{}").unwrap();
        std::os::unix::fs::symlink("schemas/in.json", root.join("link")).unwrap();
        let mut protected = ProtectedFiles::default();
        protected.add(root.join("schemas/in.json"), Covers::File, "is read");
        protected.add(root.join("workers/generated"), Covers::Agents, "is an agent");
        for path in ["schemas/in.json", "link", "schemas", "workers", "workers/generated/x.yaml", ".git/config"] {
            assert!(protected.touched(&[Target::of_path(&root.join(path)).unwrap()]).is_some(), "{path}");
        }
        for path in ["other.json", "schemas/other.json", "workersx", "notes.md"] {
            assert!(protected.touched(&[Target::of_path(&root.join(path)).unwrap()]).is_none(), "{path}");
        }
        // Where each of them is kept, naming a directory around them changes none.
        let names = |path: &str| protected.names(&Target::of_path(&root.join(path)).unwrap());
        assert!(!names("schemas") && !names(".") && !names("workers"));
        assert!(names("schemas/in.json") && names("link") && names("workers/generated/x.yaml"));
    }

    #[test]
    fn some_names_are_protected_wherever_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let nothing = ProtectedFiles::default();
        for path in [
            ".git/hooks/pre-commit",
            ".git",
            "sub/.git/config",
            ".GIT/config",
            ".env",
            ".env.example",
            ".envrc",
            "sub/.ENV",
            ".llm-do/trust",
            ".venv/bin/python",
            "main.worker",
            "deep/Main.Agent",
            "project.json",
            "AGENTS.md",
            ".vscode/tasks.json",
            ".bashrc",
            ".ssh/authorized_keys",
            "server.pem",
            ".zlogin",
            ".bash_aliases",
            ".config/fish/config.fish",
            ".config/git/config",
            ".config/autostart/x.desktop",
            ".config/systemd/user/x.service",
            ".vimrc",
            ".tmux.conf",
            ".gitattributes",
            ".gitmodules",
            ".npmrc",
            ".mcp.json",
            ".cursor/rules",
            ".cursorrules",
            ".claude/settings.json",
            ".github/workflows/x.yml",
            ".husky/pre-commit",
            ".pre-commit-config.yaml",
            ".devcontainer/devcontainer.json",
            ".cargo/config.toml",
            ".idea/workspace.xml",
            ".ssh/rc",
            ".gdbinit",
            ".psqlrc",
            ".Rprofile",
            "site/sitecustomize.py",
            "usercustomize.py",
            "x.pth",
            "GEMINI.md",
            "sub/claude.md",
            "rust-toolchain.toml",
            ".cache/llm-do/python/threading.py",
        ] {
            assert!(reason(&nothing, directory.path(), path).is_some(), "{path}");
        }
        for path in [
            "notes.md",
            "src/main.py",
            "git/config",
            "env",
            "workers.md",
            "a.yaml",
            "venv.txt",
            ".gitignore",
            "sub/.gitkeep",
            ".editorconfig",
            ".dockerignore",
            ".nojekyll",
            "Makefile",
            "package.json",
            "conftest.py",
            "build.rs",
        ] {
            assert_eq!(reason(&nothing, directory.path(), path), None, "{path}");
        }
    }

    #[test]
    fn writing_what_is_hidden_asks_and_a_command_may_name_it() {
        let directory = tempfile::tempdir().unwrap();
        let (root, nothing) = (directory.path(), ProtectedFiles::default());
        for path in [".unheard-of", "a/.b/c", ".gitignore/x", ".prettierrc"] {
            assert_eq!(reason(&nothing, root, path), Some("is hidden, as settings of programs are"), "{path}");
            let target = Target::of_path(&root.join(path)).unwrap().within(&root.canonicalize().unwrap());
            assert_eq!(nothing.touched([&target]), None, "{path}");
        }
        std::fs::create_dir_all(root.join(".hidden/work")).unwrap();
        assert_eq!(
            reason(&nothing, &root.join(".hidden/work"), "notes.md"),
            None,
            "what somebody works in is no matter"
        );
        std::fs::create_dir_all(root.join(".config/work")).unwrap();
        assert!(reason(&nothing, &root.join(".config/work"), "notes.md").is_some());
    }

    #[test]
    fn what_git_runs_asks_wherever_its_settings_say_that_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (root, nothing) = (directory.path(), ProtectedFiles::default());
        for (path, text) in [
            ("bare/HEAD", ""),
            ("bare/objects/x", ""),
            ("bare/refs/x", ""),
            ("work/.git/config", "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../shared\n"),
            ("work/tools/hooks/pre-commit", ""),
            ("work/shared", ""),
            ("work/linked/x", ""),
            ("almost/HEAD", ""),
            ("almost/refs/x", ""),
        ] {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), text).unwrap();
        }
        std::os::unix::fs::symlink("../linked", root.join("work/.git/hooks")).unwrap();
        for path in [
            "bare",
            "bare/config",
            "bare/hooks/post-receive",
            "work/tools",
            "work/tools/hooks/new",
            "work/shared",
            "work/linked/pre-commit",
        ] {
            assert_eq!(reason(&nothing, root, path), Some(RUN_BY_GIT), "{path}");
            assert!(nothing.touched(&[Target::of_path(&root.join(path)).unwrap()]).is_some(), "{path}");
        }
        for path in ["almost/config", "work/notes.md", "work/tools/new", "work/hooks/pre-commit", "work"] {
            assert_eq!(reason(&nothing, root, path), None, "{path}");
        }
    }

    #[test]
    fn what_is_private_covers_all_beneath() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir(root.join("state")).unwrap();
        let mut protected = ProtectedFiles::default();
        protected.add(root.join("state"), Covers::Private, "is ours");
        let target = |path: &str| Target::of_path(&root.join(path)).unwrap();
        assert!(protected.is_private(&target("state/key")) && protected.is_private(&target("state")));
        assert!(!protected.is_private(&target("other")));
        assert_eq!(reason(&protected, root, "state/x"), Some("is ours"));
    }

    #[test]
    fn what_exists_is_compared_by_identity_and_what_does_not_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("code")).unwrap();
        std::fs::write(root.join("main.txt"), "").unwrap();
        std::fs::hard_link(root.join("main.txt"), root.join("other.txt")).unwrap();
        std::os::unix::fs::symlink("main.txt", root.join("link.txt")).unwrap();
        std::os::unix::fs::symlink("code", root.join("alias")).unwrap();
        let mut protected = ProtectedFiles::default();
        protected.add(root.join("main.txt"), Covers::File, "is read");
        protected.add(root.join("new/made"), Covers::Tree, "is made");
        protected.add(root.join("code"), Covers::Modules, "is imported");
        protected.add(root.join("workers"), Covers::Agents, "is an agent");
        for (path, expected) in [
            ("main.txt", Some("is read")),
            ("other.txt", Some("is read")),
            ("link.txt", Some("is read")),
            ("main.txt.bak", None),
            ("sub/main.txt", None),
            ("new/made", Some("is made")),
            ("NEW/Made/deep/x", Some("is made")),
            ("new/other", None),
            ("code/a.py", Some("is imported")),
            ("code/package/__init__.PY", Some("is imported")),
            ("alias/a.py", Some("is imported")),
            ("code/notes.md", None),
            ("a.py", None),
            ("workers/a.yaml", Some("is an agent")),
            ("workers/a/worker.yml", Some("is an agent")),
            ("workers/notes.md", None),
        ] {
            assert_eq!(reason(&protected, root, path), expected, "{path}");
        }
    }
}
