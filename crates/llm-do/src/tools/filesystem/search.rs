//! Searches files for lines that match: beneath a directory, never through links, without what `.gitignore` names and
//! without secrets, bounded in number, depth and bytes.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use tokio_util::sync::CancellationToken;

use super::listing::{OmittedNames, Pattern};
use super::root::{Root, Spot};
use super::walk::{self, Visitor, WalkEntryKind, WalkSummary};
use super::{SearchFiles, is_secret_elsewhere};
use crate::beneath::{FileKind, FileOpenError, Identity};
use crate::escape::visible;
use crate::tools::plane::LONGEST_RESULT;
use crate::tools::protected::ProtectedFiles;
use crate::tools::secret::looks_secret;

const LONGEST_PATTERN: usize = 1_000;
/// What an expression may become: some that are short stand for very long ones.
const LARGEST_MATCHER: usize = 2 * 1024 * 1024;
const MOST_LINES: u64 = 1_000;
const MOST_CONTEXT: u64 = 20;
/// Longer lines are shown in part, around what matches.
const LONGEST_LINE: usize = 400;
/// A file with a longer line is not one that people read.
const LINE_IN_MEMORY: usize = 8 * 1024 * 1024;
const MOST_BYTES: u64 = 1024 * 1024 * 1024;
const LARGEST_IGNORE_FILE: u64 = 256 * 1024;

/// What a search has found so far, in one root or in several.
pub(crate) struct FileSearch<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    glob: Pattern,
    left_out: OmittedNames,
    protected: &'a ProtectedFiles,
    cancellation: &'a CancellationToken,
    found: FoundLines,
    skipped: SkippedFiles,
    walked: WalkSummary,
    bytes: u64,
}

/// The lines that are shown, each with its end.
struct FoundLines {
    text: String,
    shown: u64,
    most: u64,
    /// There are more than may be shown.
    is_full: bool,
}

#[derive(Default)]
struct SkippedFiles {
    secret: usize,
    binary: usize,
    large: usize,
    unreadable: usize,
}

impl<'a> FileSearch<'a> {
    pub(crate) fn new(
        path: &Path,
        wanted: &SearchFiles,
        protected: &'a ProtectedFiles,
        cancellation: &'a CancellationToken,
    ) -> Result<Self, String> {
        // As people and `.gitignore` mean it: a name alone is one at any depth.
        let glob = match wanted.glob.as_str() {
            glob if glob.contains('/') || glob.is_empty() => glob.to_owned(),
            name => format!("**/{name}"),
        };
        let context = usize::try_from(wanted.context.min(MOST_CONTEXT)).unwrap_or_default();
        let searcher = SearcherBuilder::new()
            .line_number(true)
            // `$` also matches before the `\r` of files that come from elsewhere.
            .line_terminator(LineTerminator::crlf())
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LINE_IN_MEMORY))
            .build();
        Ok(Self {
            matcher: matcher(&wanted.pattern, wanted.literal)?,
            searcher,
            left_out: OmittedNames::unless_named(path, &glob),
            glob: Pattern::parse(&glob)?,
            protected,
            cancellation,
            found: FoundLines { text: String::new(), shown: 0, most: wanted.max.clamp(1, MOST_LINES), is_full: false },
            skipped: SkippedFiles::default(),
            walked: WalkSummary::default(),
            bytes: 0,
        })
    }

    /// Searches beneath a path of a root, or in the file that it names. `prefix` stands before the root's paths where
    /// the glob is matched.
    pub(crate) fn add(&mut self, root: &Root, path: &Path, prefix: &Path) -> Result<(), FileOpenError> {
        let spot = root.find(path)?;
        let mut visitor = RootSearch { search: self, root, path, prefix, ignored: Vec::new(), secrets: None };
        if spot.place.found.as_ref().is_some_and(|found| found.kind != FileKind::Directory) {
            visitor.search_file(path);
            return Ok(());
        }
        let directory = spot.place.open_directory()?;
        for above in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
            visitor.read_ignore_file(above);
        }
        let mut walked = visitor.search.walked;
        let went = walk::walk(&directory, prefix, &mut visitor, &mut walked);
        self.walked = walked;
        went.map_err(FileOpenError::from)
    }

    /// The lines by file, with marks where something is left out.
    pub(crate) fn text(mut self) -> String {
        let mut marks = Vec::new();
        if self.found.shown == 0 {
            marks.push("[no line matches]".to_owned());
        }
        if self.found.is_full {
            marks.push("[cut: more lines match; narrow `pattern`, `path` or `glob`, or raise `max`]".to_owned());
        }
        if self.is_over_bytes() {
            marks.push("[cut: too much to read; search a directory below, or give a `glob`]".to_owned());
        }
        if self.walked.is_cut {
            marks.push("[cut: too many entries, or too deep; search a directory below]".to_owned());
        }
        let counted = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("[skipped: one {one}]")),
            count => Some(format!("[skipped: {count} {many}]")),
        };
        let SkippedFiles { secret, binary, large, unreadable } = self.skipped;
        marks.extend(counted(
            secret,
            "file that may hold secrets; `read_file` asks before it reads it",
            "files that may hold secrets; `read_file` asks before it reads one",
        ));
        marks.extend(counted(binary, "binary file", "binary files"));
        marks.extend(counted(large, "file that is too large", "files that are too large"));
        let unreadable = unreadable + self.walked.unreadable;
        marks.extend(counted(
            unreadable,
            "file or directory that cannot be read",
            "files or directories that cannot be read",
        ));
        marks.extend(self.left_out.mark("search"));
        if !self.found.text.is_empty() && !marks.is_empty() {
            self.found.text.push('\n');
        }
        self.found.text + &marks.join("\n")
    }

    fn is_over_bytes(&self) -> bool {
        self.bytes >= MOST_BYTES
    }

    fn is_done(&self) -> bool {
        self.found.is_full || self.is_over_bytes() || self.cancellation.is_cancelled()
    }
}

fn matcher(pattern: &str, literal: bool) -> Result<RegexMatcher, String> {
    if pattern.is_empty() {
        return Err("the pattern is empty; `list_files` lists files".to_owned());
    }
    if pattern.len() > LONGEST_PATTERN {
        return Err(format!("the pattern is longer than {LONGEST_PATTERN} bytes"));
    }
    if pattern.contains('\n') {
        return Err("the pattern has a line break in it: files are searched line by line".to_owned());
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.fixed_strings(literal).crlf(true);
    builder.size_limit(LARGEST_MATCHER).dfa_size_limit(LARGEST_MATCHER).nest_limit(50);
    // Of several lines, the last one says what is wrong.
    builder.build(pattern).map_err(|error| {
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("the pattern is no regular expression: {reason}; with `literal` it is plain text")
    })
}

/// Searches beneath one path of one root.
struct RootSearch<'a, 'b> {
    search: &'a mut FileSearch<'b>,
    root: &'a Root,
    path: &'a Path,
    prefix: &'a Path,
    /// What the directories on the way say is ignored, the innermost last.
    ignored: Vec<(PathBuf, Gitignore)>,
    /// Which files beneath the root look like secrets, once it matters; an error if there are too many to look through.
    secrets: Option<Result<HashSet<Identity>, FileOpenError>>,
}

impl RootSearch<'_, '_> {
    /// The path beneath the root, for a path as the glob sees it.
    fn beneath(&self, path: &Path) -> PathBuf {
        self.path.join(path.strip_prefix(self.prefix).unwrap_or(path))
    }

    fn read_ignore_file(&mut self, directory: &Path) {
        self.ignored.retain(|(above, _)| directory.starts_with(above));
        let read = || {
            let place = self.root.place(&directory.join(".gitignore")).ok()?;
            place.found.as_ref().filter(|found| found.kind == FileKind::Regular)?;
            let mut text = Vec::new();
            place.open().ok()?.into_std().take(LARGEST_IGNORE_FILE).read_to_end(&mut text).ok()?;
            let mut builder = GitignoreBuilder::new("");
            for line in String::from_utf8_lossy(&text).lines() {
                // A line that means nothing ignores nothing.
                let _ = builder.add_line(None, line);
            }
            builder.build().ok().filter(|ignored| !ignored.is_empty())
        };
        if let Some(ignored) = read() {
            self.ignored.push((directory.to_owned(), ignored));
        }
    }

    /// The innermost file that speaks of a path decides.
    fn is_ignored(&mut self, beneath: &Path, is_directory: bool) -> bool {
        self.ignored.retain(|(above, _)| beneath.starts_with(above));
        let said = self.ignored.iter().rev().find_map(|(above, ignored)| {
            match ignored.matched(beneath.strip_prefix(above).ok()?, is_directory) {
                Match::None => None,
                Match::Ignore(_) => Some(true),
                Match::Whitelist(_) => Some(false),
            }
        });
        said.unwrap_or(false)
    }

    /// Whether a file is one that `read_file` would ask about, by any of its names.
    fn is_secret(&mut self, named: &Path, spot: &Spot, identity: Identity, names: u64) -> bool {
        let target = &spot.target;
        if self.search.protected.is_private(target)
            || looks_secret(&target.path)
            || is_secret_elsewhere(named, &target.path)
        {
            return true;
        }
        if names < 2 {
            return false;
        }
        let root = self.root;
        let known = self.secrets.get_or_insert_with(|| root.directory().and_then(walk::secrets_beneath));
        known.as_ref().map_or(true, |secrets| secrets.contains(&identity))
    }

    fn search_file(&mut self, beneath: &Path) {
        let Ok(spot) = self.root.find(beneath) else {
            self.search.skipped.unreadable += 1;
            return;
        };
        let Some(found) = spot.place.found.clone().filter(|found| found.kind == FileKind::Regular) else { return };
        if !self.root.has_suffix(&spot.place.path) {
            return;
        }
        if self.is_secret(beneath, &spot, found.identity, found.names) {
            self.search.skipped.secret += 1;
            return;
        }
        if self.root.is_too_large(found.bytes) {
            self.search.skipped.large += 1;
            return;
        }
        // What is read is what was judged.
        let opened = spot.place.open().ok();
        let opened = opened.filter(|file| Identity::of_file(file).is_ok_and(|identity| identity == found.identity));
        let Some(file) = opened else {
            self.search.skipped.unreadable += 1;
            return;
        };
        let shown = self.root.named(beneath);
        self.search.read(&visible(&shown.to_string_lossy()), file.into_std());
    }
}

impl FileSearch<'_> {
    fn read(&mut self, name: &str, file: std::fs::File) {
        let (length, shown) = (self.found.text.len(), self.found.shown);
        if length > 0 {
            self.found.text.push('\n');
        }
        self.found.text.push_str(name);
        self.found.text.push('\n');
        let start = self.found.text.len();
        let mut sink = FileSink { found: &mut self.found, matcher: &self.matcher, is_binary: false };
        let left = MOST_BYTES - self.bytes.min(MOST_BYTES);
        let mut reader = WantedReader { file: file.take(left), cancellation: self.cancellation };
        let searched = self.searcher.search_reader(&self.matcher, &mut reader, &mut sink);
        let is_binary = sink.is_binary;
        self.bytes += left - reader.file.limit();
        if is_binary || self.found.text.len() == start {
            self.found.text.truncate(length);
            self.found.shown = shown;
        }
        if is_binary {
            self.skipped.binary += 1;
        } else if searched.is_err() {
            self.skipped.unreadable += 1;
        }
    }
}

impl Visitor for RootSearch<'_, '_> {
    fn enters(&mut self, path: &Path) -> bool {
        if self.search.is_done() || self.search.left_out.keeps_out(path) || !self.search.glob.reaches(path) {
            return false;
        }
        let beneath = self.beneath(path);
        if self.is_ignored(&beneath, true) {
            return false;
        }
        self.read_ignore_file(&beneath);
        true
    }

    fn meets(&mut self, path: &Path, kind: WalkEntryKind) {
        // A link leads to what is searched where it lies, or to what is left out.
        if kind != WalkEntryKind::File || self.search.is_done() || !self.search.glob.matches(path) {
            return;
        }
        let beneath = self.beneath(path);
        if !self.is_ignored(&beneath, false) {
            self.search_file(&beneath);
        }
    }
}

/// Ends where nobody waits for the search any more.
struct WantedReader<'a> {
    file: io::Take<std::fs::File>,
    cancellation: &'a CancellationToken,
}

impl Read for WantedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancellation.is_cancelled() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}

/// Takes the lines of one file.
struct FileSink<'a> {
    found: &'a mut FoundLines,
    matcher: &'a RegexMatcher,
    is_binary: bool,
}

impl FileSink<'_> {
    fn push(&mut self, number: Option<u64>, mark: char, line: &[u8], place: usize) -> bool {
        let line = shown_part(line, place);
        if self.found.text.len() + line.len() > LONGEST_RESULT - 1_000 {
            self.found.is_full = true;
            return false;
        }
        self.found.text.push_str(&format!("{}{mark} {line}\n", number.unwrap_or_default()));
        true
    }
}

/// A line, of a long one the part around the place that matters, with `…` where something is missing.
fn shown_part(line: &[u8], place: usize) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= LONGEST_LINE {
        return String::from_utf8_lossy(line).into_owned();
    }
    let start = place.saturating_sub(LONGEST_LINE / 4).min(line.len() - LONGEST_LINE);
    let end = start + LONGEST_LINE;
    // A character that is cut in two is left out.
    let part = String::from_utf8_lossy(&line[start..end]);
    let part = part.trim_matches(char::REPLACEMENT_CHARACTER);
    let mark = |is_cut| if is_cut { "…" } else { "" };
    format!("{}{part}{}", mark(start > 0), mark(end < line.len()))
}

impl Sink for FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.found.shown == self.found.most {
            self.found.is_full = true;
            return Ok(false);
        }
        let place = self.matcher.find(line.bytes()).ok().flatten().map_or(0, |found| found.start());
        let fits = self.push(line.line_number(), ':', line.bytes(), place);
        self.found.shown += u64::from(fits);
        Ok(fits)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, io::Error> {
        Ok(self.push(line.line_number(), '-', line.bytes(), 0))
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.found.text.push_str("--\n");
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.is_binary = true;
        Ok(false)
    }
}
