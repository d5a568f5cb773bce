//! Located mistakes: where, a one-line fact, and a separate hint. All of a project's are reported together.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use serde::Serialize;

use super::names;
use crate::escape::{deceives, visible};
use crate::remedy::{Remedy, Wording};

/// A reader has no use for more mistakes than these; the rest is counted.
const MOST_DIAGNOSTICS: usize = 1_000;
/// Beyond this many, a report on a terminal is no longer read.
const MOST_RENDERED: usize = 100;
/// Looking for the nearest of ten thousand names costs milliseconds, so only the first mistakes, which are read, get
/// a suggestion.
const MOST_SUGGESTIONS: usize = 100;
/// A line longer than this is located but not shown.
const LONGEST_SHOWN_LINE: usize = 8 * 1024;

/// A file of the project as it was read.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// As it is shown to people.
    pub path: PathBuf,
    pub text: String,
}

/// All files that diagnostics can point into, in the order in which they were read.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<SourceFile>);

/// Names a file among the [`Sources`] that gave it; it means nothing to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(u32);

/// A range of bytes in a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub file: FileId,
    pub start: usize,
    pub end: usize,
}

impl Span {
    /// Whether the other place lies within this one, in the same file; a place contains itself.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.file == other.file && self.start <= other.start && other.end <= self.end
    }
}

/// A value and where it stands. Two are equal if their values are.
#[derive(Clone, Debug)]
pub struct Located<T> {
    pub value: T,
    pub span: Span,
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Sources {
    /// Keeps the text of a file and gives the id that places in it carry.
    pub fn add(&mut self, path: PathBuf, text: String) -> FileId {
        self.0.push(SourceFile { path, text });
        FileId(u32::try_from(self.0.len() - 1).expect("fewer files than memory holds"))
    }

    /// The file of an id that these sources gave; panics if others with more files gave it.
    pub(crate) fn get(&self, file: FileId) -> &SourceFile {
        &self.0[file.0 as usize]
    }

    /// Every file, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SourceFile> {
        self.0.iter()
    }

    /// `file:line:column`, for people.
    pub(crate) fn place(&self, span: Span) -> String {
        let source = self.get(span.file);
        let line = SourceLine::around(&source.text, span.start);
        format!("{}:{}:{}", visible_path(&source.path), line.number, line.column(&source.text, span.start))
    }
}

/// Whether a diagnostic keeps a project from being run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Error,
    /// Probably a mistake; it can be run as it is.
    Warning,
    /// Worth knowing; nothing is wrong.
    Note,
}

/// Where a diagnostic points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiagnosticPlace {
    At(Span),
    /// A file or directory without a position in it.
    Path(PathBuf),
    /// Something outside the project's files: a flag, a variable, the configuration.
    Outside,
}

impl From<Span> for DiagnosticPlace {
    fn from(span: Span) -> Self {
        Self::At(span)
    }
}

/// A mistake or a note. Its words are harmless wherever they are printed: they often quote a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub place: DiagnosticPlace,
    pub fact: String,
    pub hint: Option<Remedy>,
    /// Another place that belongs to it, and what is there.
    pub related: Option<(Span, String)>,
}

impl Diagnostic {
    /// A mistake at a place, as a fact in one line; foreign text in it is made harmless.
    pub(crate) fn error(place: impl Into<DiagnosticPlace>, fact: impl Into<String>) -> Self {
        let severity = Severity::Error;
        Self { severity, place: place.into(), fact: harmless_words(fact.into()), hint: None, related: None }
    }

    /// The same for what is probably a mistake, and keeps nothing from being run.
    pub(crate) fn warning(place: impl Into<DiagnosticPlace>, fact: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(place, fact) }
    }

    /// The same for what is worth knowing and no mistake.
    pub(crate) fn note(place: impl Into<DiagnosticPlace>, fact: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(place, fact) }
    }

    /// The same diagnostic with what a person can do about it, in place of any earlier hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<Remedy>) -> Self {
        let hint = match hint.into() {
            Remedy::Text(text) => Remedy::Text(harmless_words(text)),
            other => other,
        };
        Self { hint: Some(hint), ..self }
    }

    /// With a suggestion, if there was one to be had (see [`Diagnostics::suggest`]).
    #[must_use]
    pub(crate) fn maybe_hint(self, hint: Option<String>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// The same for what a front end words.
    #[must_use]
    pub(crate) fn maybe_remedy(self, hint: Option<Remedy>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// The hint in these words, foreign text in it made harmless.
    pub(crate) fn hint_words(&self, wording: Wording) -> Option<String> {
        self.hint.as_ref().map(|hint| harmless_words(wording.of(hint)))
    }

    /// The same diagnostic with one other place that has to do with it, and what is there.
    #[must_use]
    pub(crate) fn related(self, span: Span, label: impl Into<String>) -> Self {
        Self { related: Some((span, harmless_words(label.into()))), ..self }
    }
}

/// A growing list of mistakes, bounded whatever the input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    omitted: usize,
}

impl Diagnostics {
    /// Adds a diagnostic; when the list is full it is counted and not kept.
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        if diagnostic.severity == Severity::Error {
            self.errors += 1;
        }
        if self.is_full() { self.omitted += 1 } else { self.list.push(diagnostic) }
    }

    /// Adds all others, with those that were only counted.
    pub(crate) fn extend(&mut self, other: Self) {
        let listed_errors = other.list.iter().filter(|it| it.severity == Severity::Error).count();
        self.omitted += other.omitted;
        self.errors += other.errors - listed_errors;
        other.list.into_iter().for_each(|diagnostic| self.push(diagnostic));
    }

    /// Whether there is any mistake, kept or only counted; warnings and notes are none.
    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// More are only counted.
    fn is_full(&self) -> bool {
        self.list.len() >= MOST_DIAGNOSTICS
    }

    /// Which name was probably meant, and what there is; nothing once there are more mistakes than a reader reads.
    pub(crate) fn suggest<'a>(
        &self,
        name: &str,
        what: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Option<String> {
        self.is_read().then(|| names::instead(name, what, known))
    }

    /// Whether so few mistakes were found yet that hints are read.
    pub(crate) fn is_read(&self) -> bool {
        self.list.len() < MOST_SUGGESTIONS
    }

    /// Those that are kept, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Each file's in the order of its lines, files in the order in which they were read; what is outside first.
    fn sorted(mut self) -> Self {
        self.list.sort_by_key(|diagnostic| match diagnostic.place {
            DiagnosticPlace::Outside | DiagnosticPlace::Path(_) => None,
            DiagnosticPlace::At(span) => Some(span),
        });
        self
    }
}

/// A report on one project: its diagnostics and the text they point into.
#[derive(Clone, Debug)]
pub struct Report {
    sources: Arc<Sources>,
    diagnostics: Diagnostics,
    wording: Wording,
}

/// Whether text for a person has colours: none, or escape sequences for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Without colours.
    Plain,
    /// With the colours of a terminal.
    Ansi,
}

/// A diagnostic as JSON.
#[derive(Debug, Serialize)]
pub struct DiagnosticJson<'a> {
    severity: Severity,
    message: &'a str,
    hint: Option<String>,
    file: Option<String>,
    /// From 1, like the column; columns count characters.
    line: Option<usize>,
    column: Option<usize>,
    end_line: Option<usize>,
    end_column: Option<usize>,
    source: Option<String>,
}

impl Report {
    /// Puts diagnostics in the order of their places in these sources, those without a place in a file first.
    pub(crate) fn new(sources: Arc<Sources>, diagnostics: Diagnostics) -> Self {
        Self { sources, diagnostics: diagnostics.sorted(), wording: Wording::default() }
    }

    /// The same report, whose hints a front end words.
    #[must_use]
    pub fn worded(self, wording: Wording) -> Self {
        Self { wording, ..self }
    }

    /// For a mistake before anything could be read.
    pub(crate) fn single(diagnostic: Diagnostic) -> Self {
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(diagnostic);
        Self::new(Arc::default(), diagnostics)
    }

    /// How many there are, those that were only counted included.
    pub fn error_count(&self) -> usize {
        self.diagnostics.errors
    }

    /// How many of those that were kept are probably mistakes.
    #[cfg(feature = "front-end")]
    pub fn warning_count(&self) -> usize {
        self.diagnostics().filter(|diagnostic| diagnostic.severity == Severity::Warning).count()
    }

    /// How many diagnostics were only counted, because there were too many.
    pub fn omitted(&self) -> usize {
        self.diagnostics.omitted
    }

    /// Every diagnostic that was kept, in the order of their places.
    pub fn diagnostics(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter()
    }

    /// `file:line:column`, as far as it is known.
    pub(crate) fn place(&self, diagnostic: &Diagnostic) -> String {
        match &diagnostic.place {
            DiagnosticPlace::Outside => String::new(),
            DiagnosticPlace::Path(path) => visible_path(path),
            DiagnosticPlace::At(span) => self.sources.place(*span),
        }
    }

    /// Every diagnostic as it is written for programs, with line and column where it has a place in a file.
    pub fn json(&self) -> Vec<DiagnosticJson<'_>> {
        self.diagnostics().map(|diagnostic| self.diagnostic_json(diagnostic)).collect()
    }

    fn diagnostic_json<'a>(&'a self, diagnostic: &'a Diagnostic) -> DiagnosticJson<'a> {
        let shown = |path: &Path| Some(path.display().to_string());
        let mut json = DiagnosticJson {
            severity: diagnostic.severity,
            message: &diagnostic.fact,
            hint: diagnostic.hint_words(self.wording),
            file: None,
            line: None,
            column: None,
            end_line: None,
            end_column: None,
            source: None,
        };
        match &diagnostic.place {
            DiagnosticPlace::Outside => {}
            DiagnosticPlace::Path(path) => json.file = shown(path),
            DiagnosticPlace::At(span) => {
                let source = self.sources.get(span.file);
                let start = SourceLine::around(&source.text, span.start);
                let end = SourceLine::around(&source.text, span.end);
                json.file = shown(&source.path);
                (json.line, json.column) = (Some(start.number), Some(start.column(&source.text, span.start)));
                (json.end_line, json.end_column) = (Some(end.number), Some(end.column(&source.text, span.end)));
                json.source = (start.range.len() <= LONGEST_SHOWN_LINE).then(|| source.text[start.range].to_owned());
            }
        }
        json
    }

    /// Like a good compiler's: the place, the line with a marker, the fact and the hint.
    pub fn render(&self, colour: Colour) -> String {
        let renderer = match colour {
            Colour::Plain => Renderer::plain(),
            Colour::Ansi => Renderer::styled(),
        };
        let mut text = String::new();
        for diagnostic in self.diagnostics().take(MOST_RENDERED) {
            text.push_str(&self.render_one(&renderer, diagnostic));
            text.push_str("\n\n");
        }
        let shown = self.diagnostics().count().min(MOST_RENDERED);
        let hidden = self.diagnostics().count() - shown + self.diagnostics.omitted;
        if hidden > 0 {
            text += &format!("… and {hidden} more\n\n");
        }
        text
    }

    fn render_one(&self, renderer: &Renderer, diagnostic: &Diagnostic) -> String {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let mut group = level.primary_title(diagnostic.fact.as_str()).elements(None::<Origin<'_>>);
        match &diagnostic.place {
            DiagnosticPlace::Outside => {}
            DiagnosticPlace::Path(path) => group = group.element(Origin::path(visible_path(path))),
            DiagnosticPlace::At(span) => {
                let shown = self.show(*span);
                group = match shown.line {
                    None => group.element(Origin::path(shown.path).line(shown.number).char_column(shown.column)),
                    Some((line, marked)) => group.element(
                        Snippet::source(line)
                            .path(shown.path)
                            .line_start(shown.number)
                            .annotation(AnnotationKind::Primary.span(marked)),
                    ),
                };
            }
        }
        if let Some((span, label)) = &diagnostic.related {
            let shown = self.show(*span);
            let place = format!("{label} at {}:{}:{}", shown.path, shown.number, shown.column);
            group = group.element(Level::NOTE.message(place));
        }
        let hint = Level::HELP.with_name("hint");
        match (diagnostic.hint_words(self.wording), &diagnostic.place) {
            (None, _) => renderer.render(&[group]),
            // Without a place there is no margin that it could stand in.
            (Some(words), DiagnosticPlace::Outside) => {
                let words = hint.primary_title(words).elements(None::<Origin<'_>>);
                format!("{}\n{}", renderer.render(&[group]), renderer.render(&[words]))
            }
            (Some(words), DiagnosticPlace::Path(_) | DiagnosticPlace::At(_)) => {
                renderer.render(&[group.element(hint.message(words))])
            }
        }
    }

    fn show(&self, span: Span) -> SourceExcerpt {
        let source = self.sources.get(span.file);
        let line = SourceLine::around(&source.text, span.start);
        let column = line.column(&source.text, span.start);
        let (path, number) = (visible_path(&source.path), line.number);
        if line.range.len() > LONGEST_SHOWN_LINE {
            return SourceExcerpt { path, number, column, line: None };
        }
        let start = source.text.floor_char_boundary(span.start).min(line.range.end);
        let end = source.text.ceil_char_boundary(span.end).clamp(start, line.range.end);
        let before = harmless(&source.text[line.range.start..start]);
        let marked = harmless(&source.text[start..end]);
        let after = harmless(&source.text[end..line.range.end]);
        let range = before.len()..before.len() + marked.len();
        SourceExcerpt { path, number, column, line: Some((before + &marked + &after, range)) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(Colour::Plain).trim_end())
    }
}

impl std::error::Error for Report {}

struct SourceExcerpt {
    path: String,
    number: usize,
    column: usize,
    /// The text, and the marked range in it.
    line: Option<(String, Range<usize>)>,
}

fn visible_path(path: &Path) -> String {
    visible(&path.display().to_string()).into_owned()
}

fn harmless_words(words: String) -> String {
    match visible(&words) {
        Cow::Borrowed(_) => words,
        Cow::Owned(words) => words,
    }
}

/// One character for one character, so that columns stay true.
fn harmless(line: &str) -> String {
    line.chars().map(|c| if c != '\t' && deceives(c) { '\u{fffd}' } else { c }).collect()
}

/// The line that holds a position.
struct SourceLine {
    range: Range<usize>,
    number: usize,
}

impl SourceLine {
    fn around(text: &str, position: usize) -> Self {
        let position = text.floor_char_boundary(position);
        let start = text[..position].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[position..].find('\n').map_or(text.len(), |newline| position + newline);
        let end = if text[start..end].ends_with('\r') { end - 1 } else { end };
        let number = memchr::memchr_iter(b'\n', &text.as_bytes()[..start]).count() + 1;
        Self { range: start..end.max(start), number }
    }

    /// In characters, from 1.
    fn column(&self, text: &str, position: usize) -> usize {
        let position = text.floor_char_boundary(position).max(self.range.start);
        text[self.range.start..position].chars().count() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, range: Range<usize>, fact: &str) -> Report {
        let mut sources = Sources::default();
        let file = sources.add("dir/main.worker".into(), text.to_owned());
        let mut diagnostics = Diagnostics::default();
        let span = Span { file, start: range.start, end: range.end };
        diagnostics.push(Diagnostic::error(span, fact).hint("did you mean `toolsets`?"));
        Report::new(Arc::new(sources), diagnostics)
    }

    #[test]
    fn an_error_shows_its_place_its_line_and_a_hint() {
        let report = report("---\nname: main\ntoolset: [a]\n---\n", 15..22, "unknown key `toolset`");
        let expected = "\
error: unknown key `toolset`
 --> dir/main.worker:3:1
  |
3 | toolset: [a]
  | ^^^^^^^
  |
  = hint: did you mean `toolsets`?";
        assert_eq!(report.to_string(), expected);
        let json = serde_json::to_value(report.json()).unwrap();
        assert_eq!(json[0]["line"], 3);
        assert_eq!(json[0]["column"], 1);
        assert_eq!(json[0]["end_column"], 8);
        assert_eq!(json[0]["source"], "toolset: [a]");
    }

    #[test]
    fn a_source_line_cannot_paint_over_the_report() {
        let text = "na\u{1b}[2Jme: \u{202e}x\u{9b}\u{200b}";
        let shown = report(text, 0..2, "bad \u{1b}[31m name").to_string();
        assert!(!shown.chars().any(|c| c != '\n' && deceives(c)), "{shown:?}");
        assert!(shown.contains("bad \\u{1b}[31m name"), "{shown}");
    }

    #[test]
    fn a_very_long_line_is_located_but_not_shown() {
        let text = format!("{{{}}}", " ".repeat(100_000));
        let shown = report(&text, 50_000..50_001, "odd").to_string();
        assert!(shown.contains("dir/main.worker:1:50001"), "{shown}");
        assert!(shown.len() < 300);
    }

    #[test]
    fn positions_at_the_end_and_inside_characters_are_safe() {
        for range in [0..0, 3..3, 2..3, 99..120, 1..2] {
            report("aß", range, "odd").to_string();
        }
    }

    #[test]
    fn the_number_of_diagnostics_is_bounded() {
        let mut diagnostics = Diagnostics::default();
        for _ in 0..5_000 {
            diagnostics.push(Diagnostic::error(DiagnosticPlace::Outside, "again"));
        }
        let report = Report::new(Arc::default(), diagnostics);
        assert_eq!((report.error_count(), report.omitted()), (5_000, 4_000));
        assert!(report.to_string().ends_with("… and 4900 more"));
    }
}
