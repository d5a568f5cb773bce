//! What a repository could make `git` do: its configuration can name programs that a mere `git status` runs. Known
//! harmless settings pass, known dangerous ones are overridden, everything else asks.

use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use super::index::{self, Hash};
use crate::beneath::{self, FileOpenError};
use crate::escape::visible;
use crate::tools::secret::looks_secret;
use crate::tools::shell::directory::CommandDirectory;

/// The repository that `git` would find, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Repository {
    /// Where it begins, if that is above the working directory.
    pub above: Option<PathBuf>,
    pub hash: Hash,
    /// What could make a reading command run something else, or read elsewhere.
    pub doubts: Vec<String>,
    pub tracked: TrackedFiles,
}

/// What is known of the files that a repository tracks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TrackedFiles {
    /// Nothing says which they are.
    Unknown,
    /// Those that look like secrets, from its root.
    Secrets(Vec<PathBuf>),
}

const LARGEST_CONFIG: u64 = 1024 * 1024;
const LARGEST_INDEX: u64 = 256 * 1024 * 1024;
/// So many keys are named in a question.
const MOST_NAMED: usize = 5;

/// Looks where `git` would look. `None`: there is no repository, and `git` will say so.
pub(super) fn examine(directory: &CommandDirectory) -> Option<Repository> {
    if directory.directory.symlink_metadata(".git").is_ok() {
        return Some(Repository::read(&directory.directory, None));
    }
    let above = directory.path.ancestors().skip(1).find(|path| path.join(".git").symlink_metadata().is_ok())?;
    let mut repository = match Dir::open_ambient_dir(above, ambient_authority()) {
        Ok(root) => Repository::read(&root, Some(above)),
        Err(_) => Repository { above: None, hash: Hash::Sha1, doubts: Vec::new(), tracked: TrackedFiles::Unknown },
    };
    let shown = above.display().to_string();
    repository.doubts.push(format!("the repository begins above the working directory, at `{}`", visible(&shown)));
    Some(repository)
}

impl Repository {
    fn read(root: &Dir, above: Option<&Path>) -> Self {
        let above = above.map(Path::to_owned);
        let mut repository = Self { above, hash: Hash::Sha1, doubts: Vec::new(), tracked: TrackedFiles::Unknown };
        match root.symlink_metadata(".git") {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) | Err(_) => {
                repository.doubts.push("`.git` is not a directory: the repository is somewhere else".to_owned());
                return repository;
            }
        }
        for (path, meaning) in ELSEWHERE {
            if root.symlink_metadata(path).is_ok() {
                repository.doubts.push(format!("`{path}` {meaning}"));
            }
        }
        repository.read_config(root, ".git/config");
        repository.read_config(root, ".git/config.worktree");
        repository.read_index(root);
        repository
    }

    fn read_config(&mut self, root: &Dir, path: &str) {
        let text = match read(root, path, LARGEST_CONFIG) {
            Ok(Some(bytes)) => String::from_utf8(bytes).unwrap_or_else(|_| "?".to_owned()),
            Ok(None) => return,
            Err(error) => {
                self.doubts.push(format!("`{path}` {error}"));
                return;
            }
        };
        let Some(settings) = settings(&text) else {
            self.doubts.push(format!("`{path}` is not understood"));
            return;
        };
        if settings.iter().any(|(key, value)| key == "extensions.objectformat" && value.contains("sha256")) {
            self.hash = Hash::Sha256;
        }
        let mut odd: Vec<&str> = settings.iter().map(|(key, _)| key.as_str()).filter(|key| !is_harmless(key)).collect();
        odd.dedup();
        if !odd.is_empty() {
            let more = if odd.len() > MOST_NAMED { ", …" } else { "" };
            let named: Vec<String> = odd.iter().take(MOST_NAMED).map(|key| format!("`{}`", visible(key))).collect();
            let named = named.join(", ");
            self.doubts.push(format!("`{path}` sets {named}{more}: `git` could run other programs or read elsewhere"));
        }
    }

    fn read_index(&mut self, root: &Dir) {
        match read(root, ".git/index", LARGEST_INDEX) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                if let Some(paths) = index::paths(&bytes, self.hash) {
                    self.tracked = TrackedFiles::Secrets(paths.into_iter().filter(|path| looks_secret(path)).collect());
                }
            }
            Err(error) => self.doubts.push(format!("`.git/index` {error}")),
        }
    }
}

/// Files by which a repository refers to places outside itself, or to drivers of its own.
const ELSEWHERE: &[(&str, &str)] = &[
    (".git/commondir", "says that the repository is somewhere else"),
    (".git/objects/info/alternates", "names objects of another repository"),
    (".git/info/attributes", "may send files through programs"),
];

fn read(root: &Dir, path: &str, limit: u64) -> Result<Option<Vec<u8>>, String> {
    match beneath::read(root, Path::new(path), limit + 1) {
        Ok(bytes) if bytes.len() as u64 > limit => Err("is too large".to_owned()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(FileOpenError::Missing) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// The keys of a configuration file with their values, sections and keys in lower case. Only the plain forms of the
/// format, a line for each thing, are read: `None` for everything that `git` might read in another way.
fn settings(text: &str) -> Option<Vec<(String, String)>> {
    let mut section = None;
    let mut settings = Vec::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.ends_with('\\') || line.contains(['\r', '\0']) {
            return None;
        }
        let line = line.trim_matches([' ', '\t']);
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            section = Some(section_of(header.strip_suffix(']')?)?);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let key = key.trim_matches([' ', '\t']);
        let is_key = key.starts_with(|c: char| c.is_ascii_alphabetic())
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_key || value.matches('"').count() % 2 != 0 {
            return None;
        }
        settings.push((format!("{}.{}", section.as_ref()?, key.to_ascii_lowercase()), value.to_ascii_lowercase()));
    }
    Some(settings)
}

/// `core`, or `remote "origin"` as `remote.origin`.
fn section_of(header: &str) -> Option<String> {
    let is_plain =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_plain(header) {
        return Some(header.to_ascii_lowercase());
    }
    let (name, rest) = header.split_once([' ', '\t'])?;
    let inner = rest.trim_start_matches([' ', '\t']).strip_prefix('"')?.strip_suffix('"')?;
    (is_plain(name) && !inner.contains(['"', '\\'])).then(|| format!("{}.{inner}", name.to_ascii_lowercase()))
}

/// Settings that cannot mislead `status`, `log`, `diff` and `show`, and those that we override, by section.
const HARMLESS: &[(&[&str], HarmlessKeys)] = &[
    // Only other commands look at these.
    (
        &[
            "advice",
            "alias",
            "am",
            "apply",
            "author",
            "blame",
            "branch",
            "clean",
            "clone",
            "commit",
            "committer",
            "fetch",
            "gc",
            "grep",
            "gui",
            "help",
            "init",
            "lfs",
            "maintenance",
            "merge",
            "mergetool",
            "pack",
            "pull",
            "push",
            "rebase",
            "receive",
            "rerere",
            "revert",
            "stash",
            "submodule",
            "tag",
            "user",
            "versionsort",
            "worktree",
        ],
        HarmlessKeys::All,
    ),
    // Output has no colours and goes to no pager.
    (&["color", "column", "pager"], HarmlessKeys::All),
    // Nothing is fetched or sent.
    (&["credential", "http", "url"], HarmlessKeys::All),
    // What another repository promised would have to be fetched.
    (&["remote"], HarmlessKeys::AllBut(&["promisor", "partialclonefilter"])),
    (&["status"], HarmlessKeys::AllBut(&["submodulesummary"])),
    (
        &["core"],
        HarmlessKeys::Only(&[
            "abbrev",
            "autocrlf",
            "bare",
            "bigfilethreshold",
            "checkstat",
            "commentchar",
            "commitgraph",
            "compression",
            "eol",
            "filemode",
            "hidedotfiles",
            "ignorecase",
            "logallrefupdates",
            "longpaths",
            "multipackindex",
            "precomposeunicode",
            "preloadindex",
            "protecthfs",
            "protectntfs",
            "quotepath",
            "repositoryformatversion",
            "safecrlf",
            "sharedrepository",
            "sparsecheckout",
            "sparsecheckoutcone",
            "symlinks",
            "trustctime",
            "untrackedcache",
            "whitespace",
            // Overridden.
            "askpass",
            "editor",
            "fsmonitor",
            "hookspath",
            "pager",
            "sshcommand",
        ]),
    ),
    (
        &["diff"],
        HarmlessKeys::Only(&[
            "algorithm",
            "autorefreshindex",
            "colormoved",
            "colormovedws",
            "context",
            "dirstat",
            "guitool",
            "indentheuristic",
            "interhunkcontext",
            "mnemonicprefix",
            "noprefix",
            "renamelimit",
            "renames",
            "statgraphwidth",
            "statnamewidth",
            "suppressblankempty",
            "tool",
            "wserrorhighlight",
            // Overridden.
            "external",
            "ignoresubmodules",
            "submodule",
        ]),
    ),
    (&["extensions"], HarmlessKeys::Only(&["noop", "objectformat", "preciousobjects", "refstorage", "worktreeconfig"])),
    (&["feature"], HarmlessKeys::Only(&["manyfiles"])),
    (&["index"], HarmlessKeys::Only(&["recordendofindexentries", "recordoffsettable", "sparse", "threads", "version"])),
    (
        &["log"],
        HarmlessKeys::Only(&[
            "abbrevcommit",
            "date",
            "decorate",
            "follow",
            "graphcolors",
            "initialdecorationset",
            "mailmap",
            "showroot",
            // Overridden.
            "showsignature",
        ]),
    ),
];

enum HarmlessKeys {
    All,
    AllBut(&'static [&'static str]),
    /// Only these keys, and no subsections, whose names are those of drivers.
    Only(&'static [&'static str]),
}

fn is_harmless(key: &str) -> bool {
    let (section, rest) = key.split_once('.').unwrap_or((key, ""));
    let Some((_, keys)) = HARMLESS.iter().find(|(sections, _)| sections.contains(&section)) else { return false };
    match keys {
        HarmlessKeys::All => true,
        HarmlessKeys::AllBut(names) => !names.contains(&rest.rsplit_once('.').map_or(rest, |(_, name)| name)),
        HarmlessKeys::Only(names) => names.contains(&rest),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_configuration_is_read() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n# a remark\n; another\n[remote \"origin\"]\n\
                    \turl = git@example.org:a/b.git\n[branch \"main\"]\r\n\tremote = origin\r\n[Alias]\n\tSt = status -s\n";
        let keys: Vec<String> = settings(text).unwrap().into_iter().map(|(key, _)| key).collect();
        let expected =
            ["core.repositoryformatversion", "core.bare", "remote.origin.url", "branch.main.remote", "alias.st"];
        assert_eq!(keys, expected);
        assert!(keys.iter().all(|key| is_harmless(key)));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_not_read() {
        for text in [
            "[core] fsmonitor = x",
            "[core]\n\ta = b \\\nfsmonitor = x",
            "[core]\n\ta = b \\\r\nfsmonitor = x",
            "[core]\na = \"b\nc = d\"",
            "[filter \"a\\\"b\"]\nclean = x",
            "[filter.x]\nclean = x",
            "[core\nfsmonitor = x",
            "\u{feff}[core]\na = b",
            "a = b",
            "[core]\na b = c",
            "[core]\r[filter \"x\"]\nclean = y",
            "[]\na=b",
        ] {
            assert_eq!(settings(text), None, "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Where the file is understood at all, `git` reads the same keys in it.
        #[test]
        fn the_keys_are_those_that_git_reads(lines in prop::collection::vec(line(), 1..7)) {
            let text = lines.concat();
            if let Some(read) = settings(&text) {
                let file = tempfile::NamedTempFile::new().unwrap();
                std::fs::write(file.path(), &text).unwrap();
                let mut git = std::process::Command::new("git");
                git.args(["config", "--name-only", "--list", "--file"]).arg(file.path());
                let output = git.output().unwrap();
                let keys: Vec<String> = read.into_iter().map(|(key, _)| key).collect();
                let theirs = String::from_utf8_lossy(&output.stdout);
                // What git refuses to read as a whole it does not act upon either.
                if output.status.success() {
                    prop_assert_eq!(keys, theirs.lines().collect::<Vec<_>>(), "{:?}", text);
                }
            }
        }

        #[test]
        fn no_index_is_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..300), version in 0_u8..6, count in any::<u8>()) {
            let head = [b'D', b'I', b'R', b'C', 0, 0, 0, version, 0, 0, 0, count];
            let _ = index::paths(&[&head[..], &bytes].concat(), Hash::Sha1);
            let _ = index::paths(&bytes, Hash::Sha256);
        }
    }

    /// Lines that are configuration, and lines that only nearly are.
    fn line() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "[core]",
            "[filter \"x\"]",
            "[a.b]",
            "[a \"b]",
            "]",
            "[",
            "clean",
            " = ",
            "=",
            "x",
            "\"",
            "\\",
            "#",
            ";",
            " ",
            "\t",
            "\r",
            "a-b",
            "1",
            "[remote \"o p\"]",
            "\\\"",
            "é",
        ]);
        let ending = prop_oneof![6 => Just("\n"), 1 => Just("\\\n"), 1 => Just("\r\n"), 1 => Just("")];
        (prop::collection::vec(pieces, 0..5), ending)
            .prop_map(|(pieces, ending)| format!("{}{ending}", pieces.concat()))
    }

    #[test]
    fn settings_that_run_or_redirect_are_not_harmless() {
        for key in [
            "filter.x.clean",
            "filter.x.process",
            "diff.x.textconv",
            "diff.x.command",
            "diff.orderfile",
            "core.worktree",
            "core.attributesfile",
            "core.excludesfile",
            "core.gitproxy",
            "core.alternaterefscommand",
            "include.path",
            "includeif.gitdir:/.path",
            "gpg.program",
            "gpg.ssh.program",
            "format.pretty",
            "pretty.x",
            "mailmap.file",
            "remote.origin.promisor",
            "extensions.partialclone",
            "protocol.ext.allow",
            "trace2.eventtarget",
            "status.submodulesummary",
            "unheard.of",
            "filter.x",
            "feature.experimental",
            "interactive.difffilter",
            "log.diffmerges",
            "notes.displayref",
        ] {
            assert!(!is_harmless(key), "{key}");
        }
    }
}
