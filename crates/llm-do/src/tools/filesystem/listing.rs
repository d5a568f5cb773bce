//! Lists files by a glob: beneath a directory, never into links, bounded in number, depth and time.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::root::Root;
use super::walk::{self, Visitor, WalkEntryKind, WalkSummary};
use crate::beneath::{self, FileKind, FileOpenError};
use crate::escape::visible;
use crate::glob::{Glob, Letters, Slash};
use crate::tools::plane::LONGEST_RESULT;

const MOST_LISTED: usize = 1_000;
const LONGEST_PATTERN: usize = 1_000;
/// What people seldom mean when they say everything: named in the path or the pattern, they are listed.
const LEFT_OUT: &[&str] = &[".git", ".venv", "__pycache__", "node_modules"];

/// Which of [`LEFT_OUT`] were named, and which were met.
pub(super) struct OmittedNames {
    named: Vec<&'static str>,
    met: Vec<&'static str>,
}

impl OmittedNames {
    pub(super) fn unless_named(path: &Path, pattern: &str) -> Self {
        let parts = |bytes| <[u8]>::split(bytes, |byte| *byte == b'/');
        let named = parts(path.as_os_str().as_bytes()).chain(parts(pattern.as_bytes()));
        let left_out = |part: &[u8]| LEFT_OUT.iter().copied().find(|name| name.as_bytes() == part);
        Self { named: named.filter_map(left_out).collect(), met: Vec::new() }
    }

    /// Whether a directory is not gone into.
    pub(super) fn keeps_out(&mut self, directory: &Path) -> bool {
        let name = directory.file_name().unwrap_or(OsStr::new(""));
        let Some(name) = LEFT_OUT.iter().find(|left_out| name == **left_out) else { return false };
        if self.named.contains(name) {
            return false;
        }
        if !self.met.contains(name) {
            self.met.push(name);
        }
        true
    }

    /// Says what was left out; `verb` is what would be done with it.
    pub(super) fn mark(&self, verb: &str) -> Option<String> {
        let key = if verb == "list" { "pattern" } else { "glob" };
        let names = || self.met.join("/, ");
        (!self.met.is_empty()).then(|| format!("[left out: {}/; name it in `path` or `{key}` to {verb} it]", names()))
    }
}

/// A list as it grows, of one root or of several.
pub(crate) struct FileListing {
    pattern: Pattern,
    left_out: OmittedNames,
    /// Each line with its end.
    text: String,
    listed: usize,
    total: usize,
    walked: WalkSummary,
}

impl FileListing {
    /// A list of the files whose paths, relative to where the list starts, match the pattern.
    pub(crate) fn new(path: &Path, pattern: &str) -> Result<Self, String> {
        Ok(Self {
            pattern: Pattern::parse(pattern)?,
            left_out: OmittedNames::unless_named(path, pattern),
            text: String::new(),
            listed: 0,
            total: 0,
            walked: WalkSummary::default(),
        })
    }

    /// Adds the files beneath a path of a root. `prefix` stands before the root's paths where the pattern is matched.
    pub(crate) fn add(&mut self, root: &Root, path: &Path, prefix: &Path) -> Result<(), FileOpenError> {
        let directory = root.place(path)?.open_directory()?;
        // What the pattern says without a wildcard need not be looked for; if it is not there, nothing matches.
        let known = self.pattern.fixed().strip_prefix(prefix).unwrap_or(Path::new(""));
        let start = prefix.join(known);
        let directory = if known.as_os_str().is_empty() {
            directory
        } else {
            let known = root.place(&path.join(known)).and_then(|place| place.open_directory());
            let Ok(known) = known else { return Ok(()) };
            known
        };
        let mut walked = self.walked;
        let shown = root.named(path).join("");
        let shown = visible(&shown.to_string_lossy()).into_owned();
        let matched = prefix.join("").as_os_str().len();
        let mut visitor = Lister { listing: self, root, path, prefix, shown, matched };
        let went = walk::walk(&directory, &start, &mut visitor, &mut walked);
        self.walked = walked;
        went.map_err(FileOpenError::from)
    }

    /// One path a line, with marks where something is left out.
    pub(crate) fn text(mut self) -> String {
        let more = self.total - self.listed;
        let mut mark = |line: &str| {
            self.text.push_str(line);
            self.text.push('\n');
        };
        if self.listed == 0 {
            mark("[no files]");
        }
        if more > 0 {
            mark(&format!("[cut: {more} more files; give a narrower pattern]"));
        }
        if self.walked.is_cut {
            mark("[cut: too many entries, or too deep; list a directory below]");
        }
        match self.walked.unreadable {
            0 => {}
            1 => mark("[one directory cannot be read]"),
            count => mark(&format!("[{count} directories cannot be read]")),
        }
        if let Some(left_out) = self.left_out.mark("list") {
            mark(&left_out);
        }
        self.text.pop();
        self.text
    }

    /// Adds a file: the directory as it is shown, and the path beneath it.
    fn push(&mut self, directory: &str, path: &str) {
        self.total += 1;
        // A name with a line break in it would look like two.
        let path = visible(path);
        let fits = self.text.len() + directory.len() + path.len() < LONGEST_RESULT - 1_000;
        if self.listed < MOST_LISTED && fits && self.total == self.listed + 1 {
            self.listed += 1;
            self.text.push_str(directory);
            self.text.push_str(&path);
            self.text.push('\n');
        }
    }
}

/// Lists beneath one path of one root.
struct Lister<'a> {
    listing: &'a mut FileListing,
    root: &'a Root,
    path: &'a Path,
    prefix: &'a Path,
    /// The path as a model would call it and people may see it, with a slash behind it.
    shown: String,
    /// How many bytes the prefix and its slash have.
    matched: usize,
}

impl Lister<'_> {
    /// The path beneath the root, for a path as the pattern sees it.
    fn beneath(&self, path: &Path) -> PathBuf {
        self.path.join(path.strip_prefix(self.prefix).unwrap_or(path))
    }

    /// A link is listed if reading it would read a file.
    fn leads_to_a_file(&self, path: &Path) -> bool {
        let place = self.root.directory().and_then(|root| beneath::resolve(root, &self.beneath(path)));
        place.is_ok_and(|place| place.found.is_some_and(|found| found.kind == FileKind::Regular))
    }
}

impl Visitor for Lister<'_> {
    fn enters(&mut self, path: &Path) -> bool {
        !self.listing.left_out.keeps_out(path) && self.listing.pattern.reaches(path)
    }

    fn meets(&mut self, path: &Path, kind: WalkEntryKind) {
        let matches = self.listing.pattern.matches(path) && self.root.has_suffix(path);
        if matches && (kind == WalkEntryKind::File || self.leads_to_a_file(path)) {
            let beneath = path.as_os_str().as_bytes().get(self.matched..).unwrap_or_default();
            self.listing.push(&self.shown, &String::from_utf8_lossy(beneath));
        }
    }
}

pub(super) enum Pattern {
    Everything,
    Glob {
        glob: Glob,
        /// The directories before the first wildcard.
        fixed: PathBuf,
        /// How deep a match can be, if the pattern says so.
        depth: Option<usize>,
    },
}

impl Pattern {
    /// The model writes the pattern: it cannot leave the directory, and matching it takes linear time.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST_PATTERN {
            return Err(format!("the pattern is longer than {LONGEST_PATTERN} bytes"));
        }
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err("the pattern leads outside: it is relative to `path` and has no `..`".to_owned());
        }
        let text = text.trim_start_matches("./");
        if matches!(text, "**/*" | "**" | "") {
            return Ok(Self::Everything);
        }
        let glob = Glob::parse(text, Slash::Separates, Letters::Exact).map_err(|mistake| {
            format!("the pattern is no glob: {mistake}; `*` matches within a directory, `**` across")
        })?;
        let is_plain = |part: &&str| !part.contains(['*', '?', '[', ']', '{', '}', ',', '\\', '!']);
        let parts: Vec<&str> = text.split('/').collect();
        let fixed = parts[..parts.len() - 1].iter().copied().take_while(is_plain).collect();
        Ok(Self::Glob { depth: glob.depth(), glob, fixed })
    }

    fn fixed(&self) -> &Path {
        match self {
            Self::Everything => Path::new(""),
            Self::Glob { fixed, .. } => fixed,
        }
    }

    pub(super) fn matches(&self, path: &Path) -> bool {
        match self {
            Self::Everything => true,
            Self::Glob { glob, .. } => glob.matches(&path.to_string_lossy()),
        }
    }

    /// Whether something in the directory can match.
    pub(super) fn reaches(&self, directory: &Path) -> bool {
        match self {
            Self::Everything | Self::Glob { depth: None, .. } => true,
            Self::Glob { depth: Some(depth), .. } => directory.iter().count() < *depth,
        }
    }
}
