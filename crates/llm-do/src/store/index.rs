//! The list of all runs: one line per change of a run's state, the last line of a run counts.
//!
//! It is a cache. A process that lists runs reads this one file, from its end; when it is missing or behind, it is made again from
//! the runs themselves. Processes that change it hold the lock of another file, so that this one can be replaced as a whole
//! when it has grown to twice of what counts in it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::files;
use super::layout::{RunId, StoreLayout};
use crate::beneath::Beside;
pub use crate::journal::record::RunKind;

/// How far a run has come. As JSON its name in small letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// A process holds the lock of its journal.
    Running,
    /// A question is open, and no process runs it.
    Waits,
    /// It was ended by a limit, a timeout, a person or an error.
    Stopped,
    /// No end was written, and no process holds the lock.
    Died,
    /// It has its answer.
    Done,
    /// Its record cannot be read.
    Damaged,
}

impl RunState {
    /// Whether nothing is lost but the record if the run is removed: no process works on it, and no answer is waited for.
    pub fn is_finished(self) -> bool {
        match self {
            Self::Running | Self::Waits | Self::Damaged => false,
            Self::Stopped | Self::Died | Self::Done => true,
        }
    }
}

/// One line of the list. What comes from foreign text is to be escaped where it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexLine<'a> {
    /// The run that the line is about; this member comes first in the line.
    pub id: RunId,
    /// When it came into this state, in milliseconds since 1970.
    pub at: u64,
    /// What was begun.
    pub kind: RunKind,
    /// The root of its project.
    #[serde(borrow)]
    pub project: Cow<'a, str>,
    /// The agent or function that it began with.
    #[serde(borrow)]
    pub entry: Cow<'a, str>,
    /// What the user calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Cow<'a, str>>,
    /// How far it has come.
    pub state: RunState,
    /// The tool that its open question is about, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Cow<'a, str>>,
    /// What it has cost in US dollars so far; unknown if a price is.
    #[serde(default)]
    pub cost: Option<f64>,
    /// How many model requests it has made.
    #[serde(default)]
    pub requests: u64,
    /// How many turns were finished.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks in this form")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How a line about a run begins, and how one that takes a run off the list does.
const OPENING: &str = "{\"id\":\"";
const GONE: &str = "{\"gone\":\"";
const ID_LENGTH: usize = 16;
/// This is far beyond any number of runs that retention leaves: what is longer is no list.
const LONGEST: u64 = 512 << 20;
/// It is not made anew for less than this.
const SLACK: u64 = 64 << 10;
const VERSION: u64 = 1;
/// Hardly a line has fewer bytes; so many runs are expected at most, and more are no mistake.
const SHORTEST: usize = 128;
const MOST_EXPECTED: usize = 1 << 16;

/// The first line: which version of the list it is, and how it was when it was last made anew.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct IndexHeading {
    index: u64,
    /// How long the other lines were.
    bytes: u64,
    /// Whether there were runs that it does not have.
    behind: bool,
}

impl IndexHeading {
    const LONGEST: usize = 96;

    /// Without one of this version a file is no list.
    fn of(beginning: &[u8]) -> Option<(Self, usize)> {
        let beginning = &beginning[..beginning.len().min(Self::LONGEST)];
        let end = memchr::memchr(b'\n', beginning)?;
        let heading: Self = serde_json::from_slice(&beginning[..end]).ok()?;
        (heading.index == VERSION).then_some((heading, end + 1))
    }

    fn of_file(file: &File) -> io::Result<Option<Self>> {
        let mut beginning = [0; Self::LONGEST];
        let count = file.read_at(&mut beginning, 0)?;
        Ok(Self::of(&beginning[..count]).map(|(heading, _)| heading))
    }

    fn line(self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// The list of a store.
#[derive(Clone, Debug)]
pub struct RunIndex<'a> {
    layout: &'a StoreLayout,
}

impl<'a> RunIndex<'a> {
    /// The list of the store that is laid out like this.
    pub fn of(layout: &'a StoreLayout) -> Self {
        Self { layout }
    }

    /// Says that a run has come into another state.
    pub fn append(&self, line: &IndexLine<'_>) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.append_bytes(&bytes, &line.id)
    }

    /// Takes a run off the list.
    pub(crate) fn append_gone(&self, id: &RunId) -> io::Result<()> {
        let line = [GONE, id.as_str(), "\"}\n"].concat();
        self.append_bytes(line.as_bytes(), id)
    }

    /// Reads the list as it is now. One that is missing, or cannot be understood, is empty and behind.
    pub fn read(&self) -> io::Result<IndexText> {
        use io::ErrorKind::{FileTooLarge, InvalidInput, NotFound};
        let bytes = match files::read_whole(&self.layout.index(), LONGEST) {
            Err(error) if matches!(error.kind(), NotFound | InvalidInput | FileTooLarge) => Vec::new(),
            read => read?,
        };
        let is_list = IndexHeading::of(&bytes).is_some();
        let is_late = if is_list { self.is_late() } else { self.layout.runs().is_dir() };
        Ok(IndexText::of(bytes, is_late))
    }

    /// Makes the list anew: with the runs that it has and that are there, and of the given ones those that it does not have. The caller makes
    /// these from the runs themselves; others may append meanwhile.
    pub(crate) fn rebuild<'b>(&self, lines: impl IntoIterator<Item = IndexLine<'b>>) -> io::Result<()> {
        files::make_private(&self.layout.runs())?;
        let _lock = files::lock_file(&self.layout.index_lock())?;
        let body = self.read()?.body_with(lines, |id| self.layout.run(id).is_dir())?;
        self.replace(&body, &[], false)
    }

    fn append_bytes(&self, line: &[u8], id: &RunId) -> io::Result<()> {
        files::make_private(&self.layout.runs())?;
        let _lock = files::lock_file(&self.layout.index_lock())?;
        let opened = match files::open_lines(&self.layout.index()) {
            // What is there is no file, and no list.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => None,
            opened => Some(opened?),
        };
        let heading = opened.as_ref().map(IndexHeading::of_file).transpose()?.flatten();
        match (opened, heading) {
            (Some(file), Some(heading)) if file.metadata()?.len() <= 2 * heading.bytes.min(LONGEST) + SLACK => {
                files::append_lines(&file, line)
            }
            (_, Some(heading)) => {
                let text = self.read()?;
                self.replace(&text.shortened(), line, heading.behind || text.text.is_empty())
            }
            (_, None) => self.replace(&[], line, self.has_other_runs(id)),
        }
    }

    /// The caller holds the lock.
    fn replace(&self, body: &[u8], line: &[u8], behind: bool) -> io::Result<()> {
        let heading = IndexHeading { index: VERSION, bytes: body.len() as u64, behind };
        let beside = Beside::of_path(&self.layout.index(), 0o600)?;
        let mut file = beside.file();
        file.write_all(&[&heading.line()?, body, line].concat())?;
        let file = beside.replace()?;
        // Putting it there has changed the directory, which must not look newer than the list.
        file.set_modified(SystemTime::now())
    }

    fn has_other_runs(&self, own: &RunId) -> bool {
        let Ok(entries) = fs::read_dir(self.layout.runs()) else { return false };
        let mut ids = entries.flatten().filter_map(|entry| RunId::parse(entry.file_name().to_str()?));
        ids.any(|id| id != *own)
    }

    /// A directory is made before its line is appended: if one was made after the last line, a line may be missing.
    fn is_late(&self) -> bool {
        let changed = |path| fs::symlink_metadata(path).and_then(|found| found.modified());
        match (changed(self.layout.runs()), changed(self.layout.index())) {
            (Ok(directory), Ok(index)) => directory > index,
            (Err(_), _) | (_, Err(_)) => true,
        }
    }
}

/// What the list says.
#[derive(Clone, Debug)]
pub struct IndexText {
    /// It is a text as far as its lines are: each is looked at when it is asked for.
    text: Vec<u8>,
    is_late: bool,
}

impl IndexText {
    fn of(text: Vec<u8>, is_late: bool) -> Self {
        Self { text, is_late }
    }

    /// Whether there may be runs that it does not have. The caller compares it with the runs then ([`IndexText::missing`])
    /// and has it made anew.
    pub fn is_behind(&self) -> bool {
        let Some((heading, start)) = IndexHeading::of(&self.text) else {
            return self.is_late;
        };
        let is_cut = !self.text.ends_with(b"\n") || ((self.text.len() - start) as u64) < heading.bytes;
        self.is_late || heading.behind || is_cut
    }

    /// The same list with further runs: those that it has and that are there, and of the given ones those that it does not
    /// have. Nothing is written.
    pub(crate) fn with<'a>(
        &self,
        lines: impl IntoIterator<Item = IndexLine<'a>>,
        is_there: impl Fn(&RunId) -> bool,
    ) -> io::Result<Self> {
        let body = self.body_with(lines, is_there)?;
        let heading = IndexHeading { index: VERSION, bytes: body.len() as u64, behind: false };
        Ok(Self::of([heading.line()?, body].concat(), false))
    }

    fn body_with<'a>(
        &self,
        lines: impl IntoIterator<Item = IndexLine<'a>>,
        is_there: impl Fn(&RunId) -> bool,
    ) -> io::Result<Vec<u8>> {
        let mut all: Vec<IndexLine<'_>> = self.newest().filter(|line| is_there(&line.id)).collect();
        let gone = self.rows().filter(|row| row.is_gone).map(|row| row.id);
        let mut seen: HashSet<RunId> = all.iter().map(|line| line.id).chain(gone).collect();
        all.extend(lines.into_iter().filter_map(|line| seen.insert(line.id).then_some(line)));
        all.sort_by_key(|line| line.at);
        let mut body = Vec::new();
        for line in all {
            serde_json::to_writer(&mut body, &line)?;
            body.push(b'\n');
        }
        Ok(body)
    }

    /// Which of these runs it does not have.
    pub fn missing(&self, ids: impl IntoIterator<Item = RunId>) -> Vec<RunId> {
        let known: HashSet<RunId> = self.rows().map(|row| row.id).collect();
        ids.into_iter().filter(|id| !known.contains(id)).collect()
    }

    /// The last line of each run, the one that was written last first. Lines are read as they are asked for; those that
    /// cannot be understood are skipped.
    pub fn newest(&self) -> impl Iterator<Item = IndexLine<'_>> {
        self.newest_among(|_| true).map(|(_, line)| line)
    }

    /// The same of the runs of one project: the lines of all others are not even parsed.
    pub fn newest_of(&self, project: &str) -> impl Iterator<Item = IndexLine<'_>> {
        let name = serde_json::to_string(project).unwrap_or_default();
        let finder = memchr::memmem::Finder::new(&format!("\"project\":{name}")).into_owned();
        let lines = self.newest_among(move |row| finder.find(row.json).is_some()).map(|(_, line)| line);
        // A line of another project may hold the same text elsewhere.
        let project = project.to_owned();
        lines.filter(move |line| line.project == project)
    }

    /// The last line of this run.
    pub fn line_of(&self, id: &RunId) -> Option<IndexLine<'_>> {
        self.newest_among(|row| row.id == *id).map(|(_, line)| line).next()
    }

    /// The lines that count, the oldest first.
    fn shortened(&self) -> Vec<u8> {
        let mut lines: Vec<&[u8]> = self.newest_among(|_| true).map(|(json, _)| json).collect();
        lines.reverse();
        lines.into_iter().flat_map(|line| [line, b"\n"]).collect::<Vec<&[u8]>>().concat()
    }

    /// Among lines that are chosen by what does not change while a run lasts.
    fn newest_among<'a>(
        &'a self,
        is_chosen: impl Fn(&IndexRow<'a>) -> bool,
    ) -> impl Iterator<Item = (&'a [u8], IndexLine<'a>)> {
        let expected = self.text.len() / SHORTEST;
        let mut seen: HashSet<RunId, BuildHasherDefault<IdHasher>> =
            HashSet::with_capacity_and_hasher(expected.min(MOST_EXPECTED), BuildHasherDefault::default());
        self.rows().filter_map(move |row| {
            let is_wanted = row.is_gone || is_chosen(&row);
            if !is_wanted || seen.contains(&row.id) {
                return None;
            }
            // What cannot be understood does not hide what can.
            let line = if row.is_gone { None } else { Some(row.line()?) };
            seen.insert(row.id);
            line.map(|line| (row.json, line))
        })
    }

    /// All lines, the last one first. What follows the last newline was never finished.
    fn rows(&self) -> impl Iterator<Item = IndexRow<'_>> {
        let start = IndexHeading::of(&self.text).map_or(self.text.len(), |(_, start)| start);
        let body = &self.text[start..];
        let mut end = memchr::memrchr(b'\n', body);
        let lines = std::iter::from_fn(move || {
            let line_end = end?;
            end = memchr::memrchr(b'\n', &body[..line_end]);
            Some(&body[end.map_or(0, |before| before + 1)..line_end])
        });
        lines.filter_map(IndexRow::of)
    }
}

/// A line of which only the id was read.
struct IndexRow<'a> {
    id: RunId,
    is_gone: bool,
    json: &'a [u8],
}

impl<'a> IndexRow<'a> {
    fn of(json: &'a [u8]) -> Option<Self> {
        let (rest, is_gone) = match json.strip_prefix(OPENING.as_bytes()) {
            Some(rest) => (rest, false),
            None => (json.strip_prefix(GONE.as_bytes())?, true),
        };
        let (id, rest) = rest.split_at_checked(ID_LENGTH)?;
        let id = RunId::from_digits(id).filter(|_| rest.starts_with(b"\"") && rest.ends_with(b"}"))?;
        Some(Self { id, is_gone, json })
    }

    /// Nearly all lines are plain: members in our order, texts without escapes. These are read in a fraction of the time.
    fn line(&self) -> Option<IndexLine<'a>> {
        // What is no text spoils its own line only.
        let json = std::str::from_utf8(self.json).ok()?;
        let rest = &json[OPENING.len() + ID_LENGTH..];
        PlainLine { rest }.line(self.id).or_else(|| serde_json::from_str(json).ok())
    }
}

/// What is left of a line.
struct PlainLine<'a> {
    rest: &'a str,
}

impl<'a> PlainLine<'a> {
    /// Behind the id.
    fn line(mut self, id: RunId) -> Option<IndexLine<'a>> {
        let line = IndexLine {
            id,
            at: self.skip("\",\"at\":").and_then(|()| self.digits()?.parse().ok())?,
            kind: match self.skip(",\"kind\":\"").and_then(|()| self.text())? {
                "run" => RunKind::Run,
                "chat" => RunKind::Chat,
                "scope" => RunKind::Scope,
                "v1" => RunKind::V1,
                "mcp" => RunKind::Mcp,
                "acp" => RunKind::Acp,
                _ => return None,
            },
            project: self.skip(",\"project\":\"").and_then(|()| self.text())?.into(),
            entry: self.skip(",\"entry\":\"").and_then(|()| self.text())?.into(),
            label: self.optional(",\"label\":\""),
            state: match self.skip(",\"state\":\"").and_then(|()| self.text())? {
                "running" => RunState::Running,
                "waits" => RunState::Waits,
                "stopped" => RunState::Stopped,
                "died" => RunState::Died,
                "done" => RunState::Done,
                "damaged" => RunState::Damaged,
                _ => return None,
            },
            waits: self.optional(",\"waits\":\""),
            cost: match self.skip(",\"cost\":null") {
                Some(()) => None,
                None => self.skip(",\"cost\":").and_then(|()| self.digits()?.parse().ok()).map(Some)?,
            },
            requests: self.skip(",\"requests\":").and_then(|()| self.digits()?.parse().ok())?,
            turns: match self.skip(",\"turns\":") {
                Some(()) => self.digits()?.parse().ok()?,
                None => 0,
            },
        };
        (self.rest == "}").then_some(line)
    }

    fn skip(&mut self, literal: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(literal)?;
        Some(())
    }

    /// Up to the quote that ends it.
    fn text(&mut self) -> Option<&'a str> {
        let end = memchr::memchr2(b'"', b'\\', self.rest.as_bytes())?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest.strip_prefix('"')?;
        Some(text)
    }

    /// One with an escape is left where it is, and what is expected behind it is not found.
    fn optional(&mut self, opening: &str) -> Option<Cow<'a, str>> {
        self.skip(opening)?;
        self.text().map(Cow::from)
    }

    /// Digits and at most a point between them: all other numbers are left to others.
    fn digits(&mut self) -> Option<&'a str> {
        let end = self.rest.bytes().position(|byte| !byte.is_ascii_digit() && byte != b'.')?;
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        let ends_in_digits = digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.ends_with('.');
        ends_in_digits.then_some(digits)
    }
}

/// Ids are random at their end, and the lists are the user's own: there is nothing to be gained by mixing them well.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let part = chunk.iter().fold(0, |part, byte| part << 8 | u64::from(*byte));
            self.0 = (self.0.rotate_left(5) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::race;
    use super::*;

    fn line(number: u64, state: RunState) -> IndexLine<'static> {
        IndexLine {
            id: RunId::new(number, 7),
            at: number,
            kind: RunKind::Run,
            project: "/home/me/refund".into(),
            entry: "support".into(),
            label: None,
            state,
            waits: None,
            cost: Some(0.0041),
            requests: 3,
            turns: 0,
        }
    }

    fn numbers(text: &IndexText) -> Vec<u64> {
        text.newest().map(|line| line.id.milliseconds()).collect()
    }

    /// With the directories of these runs.
    fn layout(state: &Path, numbers: impl IntoIterator<Item = u64>) -> StoreLayout {
        let layout = StoreLayout::new(state);
        for number in numbers {
            fs::create_dir_all(layout.run(&RunId::new(number, 7))).unwrap();
        }
        layout
    }

    #[test]
    fn a_line_is_as_it_is_documented() {
        let waiting = IndexLine {
            label: Some("nightly".into()),
            waits: Some("write_file".into()),
            cost: None,
            ..line(1, RunState::Waits)
        };
        let json = serde_json::to_string(&waiting).unwrap();
        let expected = r#"{"id":"0000000004000007","at":1,"kind":"run","project":"/home/me/refund","entry":"support","label":"nightly","state":"waits","waits":"write_file","cost":null,"requests":3}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<IndexLine<'_>>(&json).unwrap(), waiting);
    }

    #[test]
    fn the_last_line_of_a_run_counts_and_the_newest_comes_first() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), [1]);
        let index = RunIndex::of(&layout);
        for (number, state) in
            [(1, RunState::Running), (2, RunState::Running), (3, RunState::Running), (1, RunState::Done)]
        {
            index.append(&line(number, state)).unwrap();
        }
        index.append_gone(&RunId::new(2, 7)).unwrap();
        let text = index.read().unwrap();
        assert_eq!(numbers(&text), [1, 3]);
        assert_eq!(text.newest().next().unwrap().state, RunState::Done);
        assert_eq!(text.line_of(&RunId::new(3, 7)).unwrap().at, 3);
        assert!(text.line_of(&RunId::new(2, 7)).is_none() && text.line_of(&RunId::new(9, 7)).is_none());
        assert!(matches!(text.newest().next().unwrap().project, Cow::Borrowed(_)), "nothing is copied");
        assert!(!text.is_behind());
        assert_eq!(text.missing([1, 2, 3, 4].map(|number| RunId::new(number, 7))), [RunId::new(4, 7)]);
    }

    #[test]
    fn the_runs_of_a_project_are_chosen_before_they_are_read() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), [1]);
        let index = RunIndex::of(&layout);
        let of_project = |number, project| IndexLine { project, ..line(number, RunState::Done) };
        let projects = ["/a", "/a \"b\"", "/ab", "x \"project\":\"/a\""];
        for (number, project) in (1..).zip(projects) {
            index.append(&of_project(number, project.into())).unwrap();
        }
        let sly = IndexLine { entry: "\"project\":\"/a\"".into(), ..of_project(5, "/c".into()) };
        index.append(&sly).unwrap();
        let text = index.read().unwrap();
        for (number, project) in (1..).zip(projects) {
            let found: Vec<u64> = text.newest_of(project).map(|line| line.at).collect();
            assert_eq!(found, [number], "{project}");
        }
        assert_eq!(text.newest_of("/none").count(), 0);
    }

    #[test]
    fn what_cannot_be_understood_is_skipped_and_hides_nothing() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), [1]);
        let index = RunIndex::of(&layout);
        index.append(&line(1, RunState::Done)).unwrap();
        let id = RunId::new(1, 7);
        let strange = [
            "nonsense\n".to_owned(),
            "\n\n{}\n".to_owned(),
            format!("{{\"id\":\"{id}\"}}\n"),
            format!(
                "{{\"id\":\"{id}\",\"at\":1,\"kind\":\"run\",\"project\":\"\",\"entry\":\"\",\"state\":\"later\"}}\n"
            ),
            format!("{{\"id\":\"{id}\",\"at\":"),
        ];
        for text in strange {
            let file = files::open_lines(&layout.index()).unwrap();
            (&file).write_all(text.as_bytes()).unwrap();
            assert_eq!(index.read().unwrap().newest().collect::<Vec<_>>(), [line(1, RunState::Done)], "{text}");
        }
        assert!(index.read().unwrap().is_behind(), "it ends in the middle of a line");
        index.append(&line(2, RunState::Done)).unwrap();
        assert_eq!(numbers(&index.read().unwrap()), [2, 1], "half a line spoils no other");
    }

    #[test]
    fn a_run_of_a_kind_that_only_a_newer_program_knows_is_listed() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), [1]);
        let index = RunIndex::of(&layout);
        index.append(&line(1, RunState::Done)).unwrap();
        let newer = serde_json::to_string(&line(2, RunState::Done)).unwrap();
        let newer = newer.replace("\"kind\":\"run\"", "\"kind\":\"later\"") + "\n";
        (&files::open_lines(&layout.index()).unwrap()).write_all(newer.as_bytes()).unwrap();
        let kinds: Vec<RunKind> = index.read().unwrap().newest().map(|line| line.kind).collect();
        assert_eq!(kinds, [RunKind::Other, RunKind::Run]);
    }

    #[test]
    fn a_list_that_is_missing_cut_or_of_another_version_is_made_again() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), 1..=5);
        let index = RunIndex::of(&layout);
        assert!(index.read().unwrap().is_behind(), "there are runs and no list");
        index.append(&line(5, RunState::Running)).unwrap();
        assert!(index.read().unwrap().is_behind(), "the first line of a new list says that there are others");
        index.rebuild((1..=4).map(|number| line(number, RunState::Died)).chain([line(5, RunState::Died)])).unwrap();
        let whole = || {
            let text = index.read().unwrap();
            assert!(!text.is_behind());
            assert_eq!(numbers(&text), [5, 4, 3, 2, 1]);
            assert_eq!(text.newest().next().unwrap().state, RunState::Running, "what the list has is newer");
        };
        whole();
        let written = fs::read(layout.index()).unwrap();
        let older = String::from_utf8(written.clone()).unwrap().replacen("\"index\":1", "\"index\":9", 1);
        for cut in (0..written.len()).step_by(17).map(|end| &written[..end]).chain([older.as_bytes(), &[0; 999]]) {
            fs::write(layout.index(), cut).unwrap();
            let text = index.read().unwrap();
            assert!(text.is_behind() && numbers(&text).len() <= 5);
            let missing = text.missing((1..=5).map(|number| RunId::new(number, 7)));
            index.rebuild(missing.iter().map(|id| line(id.milliseconds(), RunState::Running))).unwrap();
            whole_but_states(&index);
        }
    }

    fn whole_but_states(index: &RunIndex<'_>) {
        let text = index.read().unwrap();
        assert!(!text.is_behind());
        assert_eq!(numbers(&text), [5, 4, 3, 2, 1]);
    }

    #[test]
    fn a_run_without_a_line_is_noticed_and_one_that_is_gone_leaves() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), [1]);
        let index = RunIndex::of(&layout);
        index.append(&line(1, RunState::Done)).unwrap();
        assert!(!index.read().unwrap().is_behind());
        let earlier = SystemTime::now() - std::time::Duration::from_secs(9);
        File::options().write(true).open(layout.index()).unwrap().set_modified(earlier).unwrap();
        assert!(index.read().unwrap().is_behind(), "a directory was made since");
        index.rebuild([]).unwrap();
        assert!(!index.read().unwrap().is_behind(), "nothing was missing");
        fs::remove_dir(layout.run(&RunId::new(1, 7))).unwrap();
        index.rebuild([]).unwrap();
        assert_eq!(index.read().unwrap().newest().count(), 0);
    }

    #[test]
    fn what_is_no_file_is_no_list() {
        let state = tempfile::tempdir().unwrap();
        let layout = layout(state.path(), [1]);
        let index = RunIndex::of(&layout);
        rustix::fs::mkfifoat(rustix::fs::CWD, layout.index(), 0o600.into()).unwrap();
        assert!(index.read().unwrap().is_behind());
        index.append(&line(1, RunState::Done)).unwrap();
        assert_eq!(numbers(&index.read().unwrap()), [1]);
        fs::remove_file(layout.index()).unwrap();
        fs::create_dir(layout.index()).unwrap();
        assert!(index.read().unwrap().is_behind());
        assert!(index.append(&line(1, RunState::Done)).is_err());
    }

    const EACH: u64 = 150;

    fn append_many(layout: &StoreLayout, first: u64) {
        let index = RunIndex::of(layout);
        for number in first..first + EACH {
            for state in [RunState::Running, RunState::Waits, RunState::Running, RunState::Done] {
                index.append(&line(number, state)).unwrap();
            }
        }
    }

    #[test]
    fn many_processes_and_threads_lose_no_line_while_it_is_shortened() {
        let race = tempfile::tempdir().unwrap();
        race::run("store::index::tests::a_process_that_appends", race.path(), 4);
        let layout = StoreLayout::new(race.path());
        let text = RunIndex::of(&layout).read().unwrap();
        let mut found = numbers(&text);
        found.sort_unstable();
        assert_eq!(found.len(), 8 * usize::try_from(EACH).unwrap());
        found.dedup();
        assert_eq!(found.len(), 8 * usize::try_from(EACH).unwrap());
        assert!(text.newest().all(|line| line.state == RunState::Done));
        let shortened = text.shortened().len() as u64;
        assert!(text.text.len() as u64 <= 2 * shortened + 2 * SLACK, "{} {shortened}", text.text.len());
        let left: Vec<_> = fs::read_dir(layout.runs()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn a_process_that_appends() {
        let Some(directory) = race::directory() else { return };
        let layout = StoreLayout::new(&directory);
        let own = u64::from(std::process::id()) << 16;
        std::thread::scope(|scope| {
            scope.spawn(|| append_many(&layout, own));
            scope.spawn(|| append_many(&layout, own + EACH));
        });
    }

    #[test]
    fn a_full_disk_leaves_whole_lines() {
        let race = tempfile::tempdir().unwrap();
        race::run_with_small_files("store::index::tests::a_process_with_little_space", race.path(), 16);
        let layout = StoreLayout::new(race.path());
        let bytes = fs::read(layout.index()).unwrap();
        assert!(bytes.ends_with(b"\n") && bytes.len() <= 16 * 1024);
        let text = RunIndex::of(&layout).read().unwrap();
        assert_eq!(numbers(&text).len().to_string(), race::all_told(race.path())[0]);
        assert!(!text.is_behind());
    }

    #[test]
    fn a_process_with_little_space() {
        let Some(directory) = race::directory() else { return };
        let layout = StoreLayout::new(&directory);
        let written =
            (0..1000).take_while(|number| RunIndex::of(&layout).append(&line(*number, RunState::Done)).is_ok());
        let count = written.count();
        assert!(count > 10 && count < 200, "{count}");
        race::tell(&directory, &count.to_string());
    }

    proptest! {
        /// The last line of each run, in the order of the last lines: as a plain model says.
        #[test]
        fn any_history_reads_as_its_model(changes in proptest::collection::vec((0..6_u64, 0..6_usize), 0..40)) {
            let states = [RunState::Running, RunState::Waits, RunState::Stopped, RunState::Died, RunState::Done];
            let mut body = IndexHeading { index: VERSION, bytes: 0, behind: false }.line().unwrap();
            let mut model: Vec<(u64, RunState)> = Vec::new();
            for (number, state) in changes {
                model.retain(|(known, _)| *known != number);
                match states.get(state) {
                    Some(state) => {
                        model.push((number, *state));
                        serde_json::to_writer(&mut body, &line(number, *state)).unwrap();
                    }
                    None => body.extend([GONE, RunId::new(number, 7).as_str(), "\"}"].concat().into_bytes()),
                }
                body.push(b'\n');
            }
            model.reverse();
            let text = IndexText::of(body.clone(), false);
            let read = |text: &IndexText| text.newest().map(|line| (line.at, line.state)).collect::<Vec<_>>();
            prop_assert_eq!(&read(&text), &model);
            let mut short = IndexHeading { index: VERSION, bytes: 0, behind: false }.line().unwrap();
            short.extend(text.shortened());
            prop_assert_eq!(&read(&IndexText::of(short, false)), &model);
        }

        /// The short way says what the long way says, and goes for all that needs no escapes.
        #[test]
        fn any_line_is_read_as_it_was_written(
            texts in prop::array::uniform4("[ -~\n\tä\u{1f600}]{0,9}"),
            (at, requests) in any::<(u64, u64)>(),
            cost in prop::option::of(prop_oneof![0.0..1e4_f64, any::<f64>().prop_filter("JSON has it", |cost| cost.is_finite())]),
            has_label: bool,
        ) {
            let [project, entry, label, waits] = texts.map(Cow::from);
            let is_plain = [&project, &entry, &label, &waits].iter().all(|text| !text.contains(['"', '\\', '\n', '\t']));
            let (label, waits) = (has_label.then_some(label), has_label.then_some(waits));
            let line = IndexLine { at, project, entry, label, waits, cost, requests, ..line(1, RunState::Stopped) };
            let json = serde_json::to_string(&line).unwrap();
            let read = IndexRow::of(json.as_bytes()).unwrap().line().unwrap();
            let is_near = match (read.cost, cost) {
                (Some(read), Some(written)) => (read - written).abs() <= written.abs() * 1e-15,
                (read, written) => read == written,
            };
            prop_assert!(is_near);
            prop_assert_eq!(&IndexLine { cost, ..read }, &line);
            if is_plain && cost.is_none_or(|cost| (1e-4..1e4).contains(&cost)) {
                prop_assert_eq!(PlainLine { rest: &json[OPENING.len() + ID_LENGTH..] }.line(line.id), Some(line));
            }
            for end in json.char_indices().map(|(end, _)| end) {
                prop_assert_eq!(IndexRow::of(&json.as_bytes()[..end]).and_then(|row| row.line()), None);
            }
        }

        #[test]
        fn any_bytes_can_be_read(bytes: Vec<u8>, lines in "(\\{\"(id|gone)\":\"[0-9a-z]{15,17}\"[ -~]{0,9}\\}\n){0,4}") {
            let heading = IndexHeading { index: VERSION, bytes: 0, behind: false }.line().unwrap();
            for bytes in [bytes.clone(), [&heading[..], lines.as_bytes(), &bytes].concat()] {
                let text = IndexText::of(bytes, false);
                prop_assert!(text.newest().count() <= 4);
                text.newest_of("/a").count();
                let _ = text.is_behind();
            }
        }
    }
}
