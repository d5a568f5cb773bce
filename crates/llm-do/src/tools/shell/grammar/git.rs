//! The grammar of `git status`, `log`, `diff` and `show`, and the settings under which they run: nothing that a
//! repository configures may start another program.

use std::path::{Path, PathBuf};

use super::options::Type::{Checked, Number, OneOf, Text};
use super::options::{Flag, NUMBER, Options, both, long, short};
use super::repository::{self, TrackedFiles};
use super::{Fit, IsHidden, doubt_about_secrets, index::Hash, read_file};
use crate::escape::visible;
use crate::tools::secret::looks_secret;
use crate::tools::shell::directory::{CommandDirectory, stays_beneath};
use crate::tools::shell::words::Word;

/// `git` as it is executed: the judged words, between settings that no configuration overrides.
pub(crate) struct GitInvocation {
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
}

/// Settings that could name a program or a place, each with a value that names none.
const OVERRIDES: &[&str] = &[
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.editor=true",
    "core.askPass=true",
    "core.sshCommand=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "credential.helper=",
    "diff.external=",
    "diff.ignoreSubmodules=all",
    "diff.submodule=short",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "log.showSignature=false",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
    "status.submoduleSummary=false",
    "submodule.recurse=false",
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_ASKPASS", "true"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_EDITOR", "true"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PAGER", "cat"),
];

/// Puts the judged words of a `git` command (without its name) between the settings.
pub(crate) fn harden(words: &[String], directory: &CommandDirectory) -> GitInvocation {
    let repository = repository::examine(directory);
    let hash = repository.as_ref().map_or(Hash::Sha1, |repository| repository.hash);
    let mut arguments: Vec<String> =
        OVERRIDES.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]).collect();
    arguments.extend(["--no-pager", "--no-optional-locks"].map(str::to_owned));
    let (subcommand, rest) = words.split_first().map_or(("", words), |(first, rest)| (first.as_str(), rest));
    arguments.push(subcommand.to_owned());
    let own: &[&str] = match subcommand {
        "status" => &["--ignore-submodules=all"],
        "log" | "show" => {
            &["--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color", "--no-show-signature"]
        }
        _ => &["--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color"],
    };
    arguments.extend(own.iter().map(|flag| (*flag).to_owned()));
    arguments.extend_from_slice(rest);
    let mut environment: Vec<(&str, String)> =
        ENVIRONMENT.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    // Attributes name drivers; those of the empty tree name none.
    environment.push(("GIT_ATTR_SOURCE", hash.empty_tree().to_owned()));
    let above = repository.and_then(|repository| repository.above);
    let ceiling = above.as_deref().unwrap_or(&directory.path).parent().unwrap_or(Path::new("/"));
    environment.push(("GIT_CEILING_DIRECTORIES", ceiling.display().to_string()));
    GitInvocation { arguments, environment }
}

pub(super) fn fit(words: &[Word], directory: &CommandDirectory, is_hidden: IsHidden<'_>) -> Result<Fit, String> {
    let (subcommand, rest) = words.split_first().ok_or("`git` alone does nothing")?;
    let flags: Vec<Flag> = match subcommand.text.as_str() {
        "status" => STATUS.to_vec(),
        "log" => [LOG, DIFF].concat(),
        "diff" => [DIFF, DIFF_ONLY].concat(),
        "show" => [SHOW, DIFF].concat(),
        other => return Err(format!("`git {}` is not among `git status`, `log`, `diff` and `show`", visible(other))),
    };
    let options = Options::read(rest, &flags)?;
    let mut fit = Fit::default();
    let mut paths = Vec::new();
    for (at, operand) in options.operands.iter().enumerate() {
        let is_path = subcommand.text == "status" || at >= options.before_dashes;
        let found =
            if is_path { path(operand, directory, &mut fit)? } else { revision_or_path(operand, directory, &mut fit)? };
        paths.extend(found);
    }
    // The variable that keeps `git` from looking further up is a list with colons between its paths.
    if directory.path.to_string_lossy().contains(':') {
        fit.doubts.push("the path of the working directory has a colon in it".to_owned());
    }
    let Some(repository) = repository::examine(directory) else {
        // Without a repository `git diff` compares directories, file by file.
        for start in &paths {
            fit.doubts.extend(doubt_about_secrets(directory, start, &|path| !is_hidden(path)));
        }
        return Ok(fit);
    };
    fit.reads.extend(repository.above.iter().cloned());
    fit.doubts.extend(repository.doubts);
    if shows_content(&subcommand.text, &options) {
        let prefix = repository.above.as_deref().and_then(|above| directory.path.strip_prefix(above).ok());
        let is_shown = |secret: &Path| match prefix {
            Some(prefix) => covers(&paths, secret.strip_prefix(prefix).unwrap_or(secret)),
            None => covers(&paths, secret),
        };
        fit.doubts.extend(match &repository.tracked {
            TrackedFiles::Unknown => {
                Some("`.git/index` does not say which files are tracked: one may be a secret".to_owned())
            }
            TrackedFiles::Secrets(secrets) => secrets.iter().find(|secret| is_shown(secret)).map(|secret| {
                format!("`{}` looks like a secret and may be shown", visible(&secret.display().to_string()))
            }),
        });
    }
    Ok(fit)
}

/// Whether one of the paths is the file or a directory above it; without paths all files are meant.
fn covers(paths: &[PathBuf], file: &Path) -> bool {
    let is_pattern = |path: &Path| path.to_string_lossy().contains(['*', '?', '[']);
    let is_here = |path: &Path| path.as_os_str().is_empty() || path == Path::new(".");
    paths.is_empty() || paths.iter().any(|path| is_here(path) || is_pattern(path) || file.starts_with(path))
}

/// A path of the working tree, or a pattern of such.
fn path(operand: &Word, directory: &CommandDirectory, fit: &mut Fit) -> Result<Option<PathBuf>, String> {
    if operand.text.starts_with(':') {
        return Err(format!("`{}`: pathspecs with `:` are not known here", visible(&operand.text)));
    }
    // Here patterns are git's own, quoted or not.
    let operand = Word::literal(&operand.text);
    read_file(&operand, directory, fit).map(|place| Some(place.beneath))
}

/// Before `--` a word may be a revision or a path: it must be harmless as both.
fn revision_or_path(operand: &Word, directory: &CommandDirectory, fit: &mut Fit) -> Result<Option<PathBuf>, String> {
    let text = operand.text.as_str();
    let shown = visible(text);
    if let Some((revision, inside)) = text.split_once(':') {
        check_revision(revision)?;
        // `:0:path` names a stage of the index.
        let inside =
            inside.strip_prefix(['0', '1', '2', '3']).and_then(|rest| rest.strip_prefix(':')).unwrap_or(inside);
        let inside_path = Path::new(inside);
        // Without a revision before it, a mark after the colon means something else.
        let has_mark = revision.is_empty() && inside.starts_with(['(', '!', '^']);
        if has_mark || inside.starts_with('/') || inside.contains(':') || !stays_beneath(inside_path) {
            return Err(format!("`{shown}` does not name a file beneath the working directory"));
        }
        if looks_secret(inside_path) {
            fit.doubts.push(format!("`{shown}` looks like a secret"));
        }
        return Ok(None);
    }
    let place = directory.find(&Word::literal(text));
    let is_there =
        place.as_ref().is_ok_and(|place| place.kind != crate::tools::shell::directory::CommandPathKind::Missing);
    if is_there || text.contains(['*', '?', '[']) {
        return path(operand, directory, fit);
    }
    if check_revision(text).is_err() || text.starts_with('/') || text.split('/').any(|part| part == "..") {
        return Err(format!("`{shown}` is neither a revision nor a path beneath the working directory"));
    }
    if looks_secret(Path::new(text)) {
        fit.doubts.push(format!("`{shown}` looks like a secret"));
    }
    Ok(None)
}

/// Names of commits and ranges of them: `main`, `HEAD~3..`, `v1.0^{}`, `a...b`, `@{u}`, `^old`.
fn check_revision(text: &str) -> Result<(), String> {
    let is_known = |c: char| {
        c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '-' | '@' | '{' | '}' | '~' | '^' | '+' | '#' | ' ')
    };
    if text.starts_with('-') || !text.chars().all(is_known) || text.contains("{/") {
        return Err(format!("`{}` is not a plain name of a revision", visible(text)));
    }
    Ok(())
}

/// Whether contents of files come out, and not only names and numbers.
fn shows_content(subcommand: &str, options: &Options<'_>) -> bool {
    let has = |names: &[&str]| names.iter().any(|name| options.has(name));
    let patch =
        has(&["patch", "u", "unified", "binary", "c", "cc", "m", "function-context", "word-diff", "patch-with-stat"]);
    let summary = has(&[
        "stat",
        "shortstat",
        "numstat",
        "name-only",
        "name-status",
        "summary",
        "raw",
        "no-patch",
        "quiet",
        "dirstat",
    ]);
    match subcommand {
        "status" => false,
        "log" => patch,
        _ => patch || !summary,
    }
}

/// Formats may ask for signatures, which are checked by a program, and for descriptions, which another `git` finds.
fn harmless_format(format: &str) -> Result<(), String> {
    const NAMES: &[&str] = &["oneline", "short", "medium", "full", "fuller", "reference", "email", "mboxrd", "raw"];
    if NAMES.contains(&format) {
        return Ok(());
    }
    if !format.contains('%') {
        return Err("names of formats are those of git itself".to_owned());
    }
    let placeholders = format.split('%').skip(1).map(|rest| rest.trim_start_matches(['+', '-', ' ']));
    for placeholder in placeholders {
        if placeholder.starts_with('G') || placeholder.starts_with("(describe") {
            return Err("it asks for signatures or descriptions".to_owned());
        }
    }
    Ok(())
}

const UNTRACKED: super::options::Type = OneOf(&["no", "normal", "all"]);

const STATUS: &[Flag] = &[
    both('s', "short"),
    both('b', "branch"),
    long("show-stash"),
    long("porcelain").may_take(OneOf(&["v1", "v2", "1", "2"])),
    long("long"),
    both('u', "untracked-files").may_take(UNTRACKED),
    long("ignored").may_take(OneOf(&["traditional", "no", "matching"])),
    short('z'),
    long("ahead-behind"),
    long("no-ahead-behind"),
    long("renames"),
    long("no-renames"),
    long("find-renames").may_take(Number),
];

/// What `log`, `diff` and `show` have in common. Without: --output, --ext-diff, --textconv, --no-index, -O.
const DIFF: &[Flag] = &[
    both('p', "patch"),
    short('u'),
    both('s', "no-patch"),
    both('U', "unified").takes(Number),
    long("raw"),
    long("patch-with-stat"),
    long("minimal"),
    long("patience"),
    long("histogram"),
    long("indent-heuristic"),
    long("diff-algorithm").takes(OneOf(&["patience", "minimal", "histogram", "myers", "default"])),
    long("stat").may_take(Text),
    long("compact-summary"),
    long("numstat"),
    long("shortstat"),
    long("dirstat").may_take(Text),
    long("summary"),
    short('z'),
    long("name-only"),
    long("name-status"),
    long("no-color"),
    long("color").may_take(OneOf(&["never", "auto"])),
    long("word-diff").may_take(OneOf(&["plain", "porcelain", "none"])),
    long("no-renames"),
    long("check"),
    long("full-index"),
    long("binary"),
    long("abbrev").may_take(Number),
    both('M', "find-renames").may_take(Text),
    both('C', "find-copies").may_take(Text),
    both('D', "irreversible-delete"),
    long("diff-filter").takes(Text),
    short('S').takes(Text),
    short('G').takes(Text),
    long("pickaxe-all"),
    long("pickaxe-regex"),
    short('R'),
    long("relative"),
    both('a', "text"),
    long("ignore-cr-at-eol"),
    long("ignore-space-at-eol"),
    both('b', "ignore-space-change"),
    both('w', "ignore-all-space"),
    long("ignore-blank-lines"),
    long("inter-hunk-context").takes(Number),
    both('W', "function-context"),
    long("no-ext-diff"),
    long("no-textconv"),
    long("no-prefix"),
    short('c'),
    long("cc"),
    short('m'),
];

const DIFF_ONLY: &[Flag] = &[long("cached"), long("staged"), long("merge-base"), long("exit-code"), long("quiet")];

const FORMAT: Flag = long("format").may_take(Checked(harmless_format));
const PRETTY: Flag = long("pretty").may_take(Checked(harmless_format));

const SHOW: &[Flag] = &[
    FORMAT,
    PRETTY,
    long("oneline"),
    long("abbrev-commit"),
    long("no-abbrev-commit"),
    long("date").takes(Text),
    long("no-notes"),
    long("decorate").may_take(OneOf(&["short", "full", "auto", "no"])),
    long("no-decorate"),
];

const LOG: &[Flag] = &[
    NUMBER,
    FORMAT,
    PRETTY,
    long("oneline"),
    long("abbrev-commit"),
    long("no-abbrev-commit"),
    both('n', "max-count").takes(Number),
    long("skip").takes(Number),
    long("since").takes(Text),
    long("after").takes(Text),
    long("until").takes(Text),
    long("before").takes(Text),
    long("author").takes(Text),
    long("committer").takes(Text),
    long("grep").takes(Text),
    long("all-match"),
    long("invert-grep"),
    both('i', "regexp-ignore-case"),
    both('E', "extended-regexp"),
    both('F', "fixed-strings"),
    both('P', "perl-regexp"),
    long("merges"),
    long("no-merges"),
    long("first-parent"),
    long("all"),
    long("branches").may_take(Text),
    long("tags").may_take(Text),
    long("remotes").may_take(Text),
    both('g', "walk-reflogs"),
    long("cherry-pick"),
    long("cherry-mark"),
    long("left-only"),
    long("right-only"),
    long("left-right"),
    long("boundary"),
    long("full-history"),
    long("simplify-merges"),
    long("ancestry-path"),
    long("date-order"),
    long("author-date-order"),
    long("topo-order"),
    long("reverse"),
    long("no-walk"),
    long("parents"),
    long("children"),
    long("graph"),
    long("decorate").may_take(OneOf(&["short", "full", "auto", "no"])),
    long("no-decorate"),
    long("source"),
    long("follow"),
    long("full-diff"),
    long("date").takes(Text),
    long("relative-date"),
    long("no-notes"),
    long("no-mailmap"),
];
