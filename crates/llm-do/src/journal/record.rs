//! The lines of a journal file, and what they say together. Pure.
//!
//! One JSON object a line, the header first. The newline is the commit mark: what follows the last one was never
//! acknowledged and is not there. Each line ends with a mac over itself and all before it: a file is ours as a whole,
//! which is found out before anything in it is parsed, or it is a stranger's.

mod v1;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::mac::{self, LineMac, SigningPurpose, StateKey};
use super::{RecordedSteps, StepKind};
use crate::message::{RawJson, push_number, push_quoted};

/// The version of the format. Unknown fields are ignored, so fields may be added; a change of meaning raises it.
pub const VERSION: u64 = 2;
/// The version without macs, which can only be a stranger's.
const UNSIGNED_VERSION: u64 = 1;

/// What a line says about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineState {
    /// What must not run twice is about to run.
    Started,
    Done,
    /// Somebody was asked.
    Asked,
    /// What was about to run never began.
    Undone,
    /// It gave no result, but it took something: what was told of that.
    Lost,
}

impl LineState {
    /// As it is written.
    fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::Asked => "asked",
            Self::Undone => "undone",
            Self::Lost => "lost",
        }
    }

    /// Whether it says that the run goes on. What is left behind may be told after a run's end.
    fn goes_on(self) -> bool {
        match self {
            Self::Started | Self::Done | Self::Asked => true,
            Self::Undone | Self::Lost => false,
        }
    }
}

/// A line about a step.
#[derive(Clone, Debug)]
pub struct JournalLine {
    pub k: String,
    pub kind: StepKind,
    pub state: LineState,
    /// A digest of the request.
    pub req: String,
    /// The result; of `started` and `asked` what a person is shown.
    pub res: Option<RawJson>,
    /// Milliseconds since 1970.
    pub at: u64,
    /// Who answered.
    pub by: Option<String>,
    /// The parts that a model request was made of, by the name of their line.
    pub parts: Option<String>,
    /// How many messages a model request sent.
    pub sent: Option<u64>,
    /// How a call was judged. It stands in the first line of a step.
    pub judged: Option<RawJson>,
    /// The digest of `res`, if that is kept outside of the file.
    pub blob: Option<String>,
}

/// The same as it is written, without copies: `{"k":…,"kind":…,"state":…,"req":…,"res":…,"at":…,"by":…}`.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Serialize))]
pub(super) struct LineText<'a> {
    pub k: &'a str,
    pub kind: StepKind,
    pub state: LineState,
    /// Left out where it is empty.
    #[cfg_attr(test, serde(skip_serializing_if = "str::is_empty"))]
    pub req: &'a str,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub res: Option<&'a RawJson>,
    pub at: u64,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub by: Option<&'a str>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub parts: Option<&'a str>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub sent: Option<u64>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub judged: Option<&'a RawJson>,
    #[cfg_attr(test, serde(skip_serializing_if = "Option::is_none"))]
    pub blob: Option<&'a str>,
}

impl LineText<'_> {
    /// Appends its JSON: a line is written for every step, and the names of its members need not be looked at each time.
    pub(super) fn write(&self, line: &mut Vec<u8>) {
        let Self { k, kind, state, req, res, at, by, parts, sent, judged, blob } = *self;
        let text = |name: &str, text: Option<&str>, line: &mut Vec<u8>| {
            if let Some(text) = text {
                line.extend_from_slice(name.as_bytes());
                push_quoted(line, text);
            }
        };
        let number = |name: &str, number: u64, line: &mut Vec<u8>| {
            line.extend_from_slice(name.as_bytes());
            push_number(line, number);
        };
        text("{\"k\":", Some(k), line);
        text(",\"kind\":", Some(kind.name()), line);
        text(",\"state\":", Some(state.name()), line);
        let json = |name: &str, json: Option<&RawJson>, line: &mut Vec<u8>| {
            if let Some(json) = json {
                line.extend_from_slice(name.as_bytes());
                line.extend_from_slice(json.get().as_bytes());
            }
        };
        text(",\"req\":", Some(req).filter(|req| !req.is_empty()), line);
        json(",\"res\":", res, line);
        number(",\"at\":", at, line);
        text(",\"by\":", by, line);
        text(",\"parts\":", parts, line);
        if let Some(sent) = sent {
            number(",\"sent\":", sent, line);
        }
        json(",\"judged\":", judged, line);
        text(",\"blob\":", blob, line);
        line.push(b'}');
    }

    /// About how many bytes it has: enough for nearly all.
    pub(super) fn size(&self) -> usize {
        let of_json = |json: Option<&RawJson>| json.map_or(0, |json| json.get().len());
        256 + self.k.len() + of_json(self.res) + of_json(self.judged)
    }
}

impl JournalLine {
    /// As it is written.
    pub(super) fn text(&self) -> LineText<'_> {
        let Self { k, kind, state, req, res, at, by, parts, sent, judged, blob } = self;
        let (by, parts, blob) = (by.as_deref(), parts.as_deref(), blob.as_deref());
        let (res, judged) = (res.as_ref(), judged.as_ref());
        LineText { k, kind: *kind, state: *state, req, res, at: *at, by, parts, sent: *sent, judged, blob }
    }
}

/// What a run is, for whoever lists and shows runs without knowing what is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    /// What the run is called, as run ids are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A name that whoever started it gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What sort of run it is.
    #[serde(default)]
    pub kind: RunKind,
    /// The run whose records it began with, and the first step that was not taken over from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<ForkOrigin>,
}

/// Where a run was forked from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkOrigin {
    /// The id of the other run.
    pub run: String,
    /// The key of its first step that was not taken over.
    pub at: String,
}

/// What was begun. As JSON its name in small letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// One input, one answer.
    #[default]
    Run,
    /// Many turns with a person.
    Chat,
    /// Many turns with a program.
    Scope,
    /// One turn of a program that speaks as a provider's clients do, behind the history that it gave.
    V1,
    /// One call of a tool by a program that speaks MCP.
    Mcp,
    /// Many turns with a person, in a program that speaks ACP.
    Acp,
    /// One agent over the items of a list. Each item has a record of its own.
    Map,
    /// A kind that only a newer program knows. It is listed; this program cannot go on with it.
    #[serde(other)]
    Other,
}

impl RunKind {
    /// Whether it has one input and one answer.
    pub(crate) fn has_one_turn(self) -> bool {
        match self {
            Self::Run | Self::Mcp => true,
            Self::Chat | Self::Acp | Self::Scope | Self::V1 | Self::Map | Self::Other => false,
        }
    }
}

/// How a run was left by the process that ran it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// What is left to do.
    pub state: EndState,
    /// Why, in a few words; empty if there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl RunEnd {
    /// Nobody reads more of a reason in a list.
    const LONGEST_REASON: usize = 300;

    /// The end of a run; a long reason is cut.
    pub fn new(state: EndState, reason: &str) -> Self {
        Self { state, reason: reason.chars().take(Self::LONGEST_REASON).collect() }
    }
}

/// What is left to do for a run that no process runs. As JSON its name in small letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndState {
    /// Nothing: it has its answer.
    Done,
    /// It can be resumed: a limit, a timeout, a person or an error ended it.
    Stopped,
    /// A question is open.
    Waits,
}

/// A line about the run as a whole: the first one is its header, later ones say who resumed it and how it ended, or hold
/// the parts of its requests.
#[derive(Clone, Debug, Serialize)]
pub struct RunLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<u64>,
    pub k: String,
    pub kind: String,
    pub state: String,
    /// Of the header only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunIdentity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub res: Option<RawJson>,
    /// The digest of `res`, if that is kept outside of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    pub at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl RunLine {
    /// The first line of a journal: what was run (`res`), when, and by which user if that is known.
    pub fn header(run: RunIdentity, res: RawJson, at: u64, by: Option<String>) -> Self {
        Self { v: Some(VERSION), run: Some(run), res: Some(res), ..Self::said("run", "header", at, by) }
    }

    /// A line that says when the run was resumed, by which user if that is known, and what is different since (`res`).
    pub fn resumed(note: Option<RawJson>, at: u64, by: Option<String>) -> Self {
        Self { res: note, ..Self::said("run", "resumed", at, by) }
    }

    /// From here on it is somebody else's: what stands above was a stranger's, and was taken over.
    pub fn adopted(note: Option<RawJson>, at: u64, by: Option<String>) -> Self {
        Self { res: note, ..Self::said("run", ADOPTED, at, by) }
    }

    /// A line that says how the process that ran it left it.
    pub fn ended(end: &RunEnd, at: u64, by: Option<String>) -> Self {
        Self { res: Some(RawJson::of(end)), ..Self::said("run", ENDED, at, by) }
    }

    /// What requests were made of, under the name by which they say so.
    pub fn part(name: &str, part: RawJson, at: u64) -> Self {
        Self { res: Some(part), ..Self::said(PART, name, at, None) }
    }

    /// Spans of the run that a collector has, by their ids.
    pub fn delivered(spans: &[String], at: u64) -> Self {
        Self { res: Some(RawJson::of(&spans)), ..Self::said(TRACE, "delivered", at, None) }
    }

    /// How the run was left, if it says that.
    fn end(&self) -> Option<RunEnd> {
        self.res.as_ref().filter(|_| self.state == ENDED)?.to().ok()
    }

    fn said(kind: &str, state: &str, at: u64, by: Option<String>) -> Self {
        let (kind, state) = (kind.to_owned(), state.to_owned());
        Self { v: None, k: String::new(), kind, state, run: None, res: None, blob: None, at, by }
    }
}

/// The kind of a line that holds what requests were made of.
const PART: &str = "part";
/// The kind of a line that says which spans were delivered.
const TRACE: &str = "trace";
/// What a line is of that somebody wrote who went on with a run of others.
const ADOPTED: &str = "adopted";
/// The state of a line that says how a run was left.
const ENDED: &str = "ended";

/// How every journal begins.
pub const OPENING: &str = r#"{"v":"#;

/// What is known of one step.
#[derive(Clone, Debug)]
pub struct JournalEntry {
    pub kind: StepKind,
    /// A digest of its request.
    pub request: String,
    pub known: StepProgress,
    pub at: u64,
    pub by: Option<String>,
    /// The parts that a model request was made of: the name of one of [`JournalContents::parts`].
    pub parts: Option<String>,
    /// How many messages a model request sent.
    pub sent: Option<u64>,
    /// What a person was shown of it before it was done.
    pub shown: Option<RawJson>,
    /// How a call was judged then, for people and for those who try other rules. Nothing is decided by it.
    pub judged: Option<RawJson>,
    /// Its last line, counted from 1.
    pub line: usize,
}

/// How far a step got, as its journal tells.
#[derive(Clone, Debug)]
pub enum StepProgress {
    /// It may or may not have happened.
    Started(Option<RawJson>),
    /// Nobody has answered yet.
    Asked(Option<RawJson>),
    /// This is its result.
    Done(RawJson),
}

/// All that a journal says.
#[derive(Clone, Debug)]
pub struct JournalContents {
    /// What the program that began the run wrote for those who resume it.
    pub header: RawJson,
    /// Which run it is.
    pub identity: RunIdentity,
    /// What requests were made of, by name: of each request a list of its parts, and the parts.
    pub parts: BTreeMap<String, RawJson>,
    /// Milliseconds since 1970.
    pub begun_at: u64,
    /// The user who began it, if that is known.
    pub begun_by: Option<String>,
    records: BTreeMap<String, JournalEntry>,
    lost: Vec<LostStep>,
    notes: Vec<(usize, RawJson)>,
    delivered: Vec<String>,
    ended: Option<RunEnd>,
    #[cfg_attr(not(feature = "front-end"), expect(dead_code, reason = "who looks at many runs asks it"))]
    is_of_others: bool,
}

/// A step that gave no result, but took something.
#[derive(Clone, Debug)]
pub struct LostStep {
    pub key: String,
    /// Milliseconds since 1970.
    pub at: u64,
    /// What it had told of that.
    pub told: RawJson,
}

/// What is wrong with a file that is no journal, or no longer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    NotAJournal,
    /// This line, counted from 1, was not written with our key, or not at this place.
    Foreign(usize),
    Version(u64),
    /// A line in the middle, counted from 1.
    Line {
        number: usize,
        reason: String,
    },
}

/// A time of a record, for people.
#[cfg(feature = "front-end")]
pub fn shown_time(milliseconds: u64) -> String {
    const YEAR_9999: u64 = 253_370_764_800_000;
    let since = std::time::Duration::from_millis(milliseconds.min(YEAR_9999));
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}

/// How many bytes of the file are committed lines.
pub fn committed(bytes: &[u8]) -> usize {
    memchr::memrchr(b'\n', bytes).map_or(0, |end| end + 1)
}

/// Lines with what ends them, and a rest that nothing ends.
fn lines_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b'\n', bytes).map(|end| end + 1);
    let rest = (committed(bytes) < bytes.len()).then_some(bytes.len());
    ends.chain(rest).scan(0, |begin, end| Some(&bytes[std::mem::replace(begin, end)..end]))
}

/// A line of a step, and which of the file it is, counted from 1.
pub type NumberedLine = (usize, JournalLine);

/// The mac of the last of committed lines that we wrote, each at its place. Nothing is parsed.
pub fn verified(lines: &[u8], key: Option<&StateKey>) -> Result<LineMac, Damage> {
    if !lines.starts_with(OPENING.as_bytes()) {
        return Err(Damage::NotAJournal);
    }
    let key = key.ok_or(Damage::Foreign(1))?;
    let mut last = LineMac::default();
    for (index, line) in lines_of(lines).enumerate() {
        let foreign = || Damage::Foreign(index + 1);
        let line = line.strip_suffix(b"\n").ok_or_else(foreign)?;
        let (signed, found) = mac::split(line).ok_or_else(foreign)?;
        last = key.next(SigningPurpose::Journal, last, signed);
        if !last.is_written(found) {
            return Err(foreign());
        }
    }
    Ok(last)
}

/// What a stranger's file says, line by line: the replies of models, the results of tools and the questions. What people
/// answered there was not answered here, and what servers offered there is not what they offer here.
pub fn strangers_lines(lines: &[u8], values: ValueLookup<'_>) -> Result<ParsedLines, Damage> {
    let mut parsed = parsed(lines, &[UNSIGNED_VERSION, VERSION], values)?;
    if parsed.header.v == Some(UNSIGNED_VERSION) {
        parsed.steps = v1::v1(parsed.steps).map_err(|(number, reason)| Damage::Line { number, reason })?;
    }
    let is_kept = |(_, line): &NumberedLine| match line.kind {
        StepKind::Model | StepKind::Tool | StepKind::Code | StepKind::Call => true,
        StepKind::Decide => line.k.ends_with("/input") || is_said(&line.k),
        StepKind::Ask => line.state == LineState::Asked,
    };
    // How it was judged there is nothing that is known here.
    let unjudged = |(number, line)| (number, JournalLine { judged: None, ..line });
    Ok(ParsedLines { steps: parsed.steps.into_iter().filter(is_kept).map(unjudged).collect(), ..parsed })
}

/// Finds a value that is kept outside of the file by its digest, which whoever finds it has compared.
pub type ValueLookup<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// The lookup of a journal that has all its values inside.
pub fn no_values(digest: &str) -> Result<Vec<u8>, String> {
    Err(format!("the value {digest} is kept elsewhere, and nobody said where"))
}

/// The lines of a journal, read and not yet put together.
#[derive(Clone, Debug)]
pub struct ParsedLines {
    pub header: RunLine,
    /// What requests were made of, each under its name.
    pub parts: BTreeMap<String, RawJson>,
    pub steps: Vec<NumberedLine>,
    /// What those wrote who went on with it, each with its line, counted from 1.
    pub notes: Vec<(usize, RawJson)>,
    /// Spans that a collector has, by their ids.
    pub delivered: Vec<String>,
    /// How it was left, if nobody went on with it since.
    pub ended: Option<RunEnd>,
    /// Whether somebody else began it.
    pub is_of_others: bool,
}

/// The header and the lines of steps. A line that cannot be read is never skipped: that would do again what was done.
fn parsed(lines: &[u8], versions: &[u64], values: ValueLookup<'_>) -> Result<ParsedLines, Damage> {
    let mut lines = lines_of(lines).enumerate();
    let header = lines.next().map(|(_, line)| AnyLine::read(line));
    let Some(Ok(AnyLine::Run(mut header))) = header else { return Err(Damage::NotAJournal) };
    let version = header.v.ok_or(Damage::NotAJournal)?;
    if !versions.contains(&version) {
        return Err(Damage::Version(version));
    }
    let damage = |number: usize| move |reason: String| Damage::Line { number, reason };
    fetch(&mut header.res, header.blob.as_ref(), values).map_err(damage(1))?;
    if header.res.is_none() {
        return Err(Damage::NotAJournal);
    }
    let (mut steps, mut parts, mut notes, mut ended) = (Vec::new(), BTreeMap::new(), Vec::new(), None);
    let mut delivered = Vec::new();
    let mut is_of_others = version != VERSION;
    for (index, line) in lines {
        let damage = damage(index + 1);
        match AnyLine::read(line).map_err(|error| damage(error.to_string()))? {
            AnyLine::Step(mut line) => {
                fetch(&mut line.res, line.blob.as_ref(), values).map_err(damage)?;
                ended = ended.filter(|_| !line.state.goes_on());
                steps.push((index + 1, line));
            }
            AnyLine::Run(line) if line.kind == PART => {
                let RunLine { state: name, mut res, blob, .. } = line;
                fetch(&mut res, blob.as_ref(), values).map_err(damage)?;
                parts.extend(res.map(|part| (name, part)));
            }
            // It may come after the run's end, and says nothing of that.
            AnyLine::Run(mut line) if line.kind == TRACE => {
                fetch(&mut line.res, line.blob.as_ref(), values).map_err(damage)?;
                delivered.extend(line.res.and_then(|spans| spans.to::<Vec<String>>().ok()).unwrap_or_default());
            }
            // Whatever else is said of the run: somebody went on with it.
            AnyLine::Run(mut line) => {
                ended = line.end();
                is_of_others |= line.state == ADOPTED;
                fetch(&mut line.res, line.blob.as_ref(), values).map_err(damage)?;
                notes.extend(line.res.filter(|_| ended.is_none()).map(|note| (index + 1, note)));
            }
        }
    }
    Ok(ParsedLines { header, parts, steps, notes, delivered, ended, is_of_others })
}

/// Puts a value into its line that was kept outside.
fn fetch(res: &mut Option<RawJson>, blob: Option<&String>, values: ValueLookup<'_>) -> Result<(), String> {
    let Some(digest) = blob.filter(|_| res.is_none()) else { return Ok(()) };
    let bytes = values(digest)?;
    *res = Some(serde_json::from_slice(&bytes).map_err(|error| error.to_string())?);
    Ok(())
}

impl JournalContents {
    /// Reads committed lines that we wrote; with them the mac of the last one. All values are inside of the lines.
    #[cfg(test)]
    pub(crate) fn read(lines: &[u8], key: Option<&StateKey>) -> Result<(Self, LineMac), Damage> {
        Self::read_with(lines, key, &no_values)
    }

    /// Reads committed lines that we wrote; with them the mac of the last one. Some values may be kept elsewhere.
    pub(crate) fn read_with(
        lines: &[u8],
        key: Option<&StateKey>,
        values: ValueLookup<'_>,
    ) -> Result<(Self, LineMac), Damage> {
        let last = verified(lines, key)?;
        Ok((Self::of(parsed(lines, &[VERSION], values)?)?, last))
    }

    /// What lines say together.
    pub(crate) fn of(lines: ParsedLines) -> Result<Self, Damage> {
        let ParsedLines { header, parts, steps, notes, delivered, ended, is_of_others } = lines;
        let RunLine { run, res, at: begun_at, by: begun_by, .. } = header;
        let (header, identity) = (res.ok_or(Damage::NotAJournal)?, run.unwrap_or_default());
        let (records, lost) = (BTreeMap::new(), Vec::new());
        let mut contents =
            Self { header, identity, parts, begun_at, begun_by, records, lost, notes, delivered, ended, is_of_others };
        let mut unused = UnusedDecisions::default();
        for (number, line) in steps {
            if line.state != LineState::Lost {
                unused.see(&line);
            }
            contents.take(number, line).map_err(|reason| Damage::Line { number, reason })?;
        }
        let is_conversation = !contents.identity.kind.has_one_turn();
        for key in unused.0.into_values().filter(|key| !(is_conversation && is_said(key))) {
            contents.records.remove(&key);
        }
        Ok(contents)
    }

    fn take(&mut self, number: usize, line: JournalLine) -> Result<(), String> {
        let JournalLine { k, kind, state, req: request, res, at, by, parts, sent, judged, .. } = line;
        // What nothing was built on is decided again, and a question that has changed is asked again.
        let is_final = |record: &&JournalEntry| !matches!(record.kind, StepKind::Decide | StepKind::Ask);
        let before = self.records.get(&k).filter(is_final).filter(|_| state != LineState::Lost);
        if before.is_some_and(|record| matches!(record.known, StepProgress::Done(_))) {
            return Err(format!("`{k}` was done before"));
        }
        let known = match state {
            LineState::Started => StepProgress::Started(res),
            LineState::Asked => StepProgress::Asked(res),
            LineState::Done => StepProgress::Done(res.ok_or_else(|| format!("`{k}` has no result"))?),
            LineState::Lost => {
                self.lost.extend(res.map(|told| LostStep { key: k, at, told }));
                return Ok(());
            }
            LineState::Undone => {
                self.records.remove(&k);
                return Ok(());
            }
        };
        let (shown, judged) = match &known {
            StepProgress::Started(shown) | StepProgress::Asked(shown) => (shown.clone(), judged),
            StepProgress::Done(_) => {
                let (shown, before) = self.records.remove(&k).map(|begun| (begun.shown, begun.judged)).unzip();
                (shown.flatten(), judged.or(before.flatten()))
            }
        };
        self.records.insert(k, JournalEntry { kind, request, known, at, by, parts, sent, shown, judged, line: number });
        Ok(())
    }

    /// Whether somebody else wrote its beginning: what is in it is taken at their word.
    #[cfg(feature = "front-end")]
    pub(crate) fn is_of_others(&self) -> bool {
        self.is_of_others
    }

    /// Every step with its key, in the order of the keys.
    pub fn records(&self) -> impl Iterator<Item = (&str, &JournalEntry)> {
        self.records.iter().map(|(key, record)| (key.as_str(), record))
    }

    /// What is known of the step with this key.
    pub fn record(&self, key: &str) -> Option<&JournalEntry> {
        self.records.get(key)
    }

    /// What steps without a result had told of their costs.
    pub(crate) fn lost(&self) -> &[LostStep] {
        &self.lost
    }

    /// When something was last recorded of a step, in milliseconds since 1970.
    #[cfg(feature = "front-end")]
    pub(crate) fn last_at(&self) -> u64 {
        let steps = self.records.values().map(|record| record.at);
        steps.chain(self.lost.iter().map(|lost| lost.at)).fold(self.begun_at, u64::max)
    }

    /// What the run began with, as its keys name it; nothing before its first step.
    pub fn entry(&self) -> Option<&str> {
        self.records.keys().next().and_then(|key| key.split('/').next())
    }

    /// The turns of the entry of which anything is recorded, in their order, each with whether it was finished.
    pub fn turns(&self) -> Vec<(u64, bool)> {
        let Some(entry) = self.entry() else { return Vec::new() };
        let of_turns = self.records.keys().filter(|key| command_number(entry, key).is_none());
        let numbers: BTreeSet<u64> = of_turns.filter_map(|key| turn_number(entry, key)).collect();
        numbers.into_iter().map(|number| (number, self.done(&format!("{entry}/t{number}")).is_some())).collect()
    }

    /// The turn of the entry that a key stands at or beneath.
    pub fn turn_at(&self, key: &str) -> Option<u64> {
        turn_number(self.entry()?, key)
    }

    /// What whoever went on with the run last wrote down before this turn of the entry began.
    pub fn note_before_turn(&self, turn: u64) -> Option<&RawJson> {
        let begun = self.records.get(&format!("{}/t{turn}/input", self.entry()?))?.line;
        self.notes.iter().rev().find(|(line, _)| *line < begun).map(|(_, note)| note)
    }

    /// The spans of the run that a collector has, by their ids.
    pub(crate) fn delivered(&self) -> &[String] {
        &self.delivered
    }

    /// How the run was left by the process that ran it last; nothing if that one still runs, or died.
    pub fn ended(&self) -> Option<&RunEnd> {
        self.ended.as_ref()
    }

    /// The records above a key, the outermost first.
    pub(crate) fn above<'a>(&'a self, key: &'a str) -> impl Iterator<Item = (&'a str, &'a JournalEntry)> {
        let places = memchr::memchr_iter(b'/', key.as_bytes()).map(|end| &key[..end]);
        places.filter_map(|place| Some((place, self.records.get(place)?)))
    }

    /// The records beneath a key, all levels.
    pub(crate) fn beneath<'a>(&'a self, key: &str) -> impl Iterator<Item = (&'a str, &'a JournalEntry)> + use<'a> {
        beneath(&self.records, key)
    }

    /// The result of a step that is done, which may name what stands in the records beneath it.
    pub(crate) fn done(&self, key: &str) -> Option<&RawJson> {
        match &self.records.get(key)?.known {
            StepProgress::Done(result) => Some(result),
            StepProgress::Started(_) | StepProgress::Asked(_) => None,
        }
    }

    /// Whether it stands beneath a call that is done, and so decides nothing any more. What stands beneath a model
    /// request are the calls that the reply asks for.
    pub(crate) fn is_settled(&self, key: &str) -> bool {
        let is_done = |record: &JournalEntry| matches!(record.known, StepProgress::Done(_));
        // A request that was answered needs no limit raised any more.
        let request = limited_request(key).filter(|(_, step)| *step == LimitedStep::Request);
        let request = request.and_then(|(request, _)| self.records.get(request));
        request.is_some_and(is_done) || self.above(key).any(|(_, record)| record.kind.is_call() && is_done(record))
    }

    /// What a person is shown of the steps that may or may not have happened.
    pub fn in_doubt(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.open(|known| match known {
            StepProgress::Started(shown) => shown.as_ref(),
            StepProgress::Asked(_) | StepProgress::Done(_) => None,
        })
    }

    /// The questions that nobody has answered.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, &RawJson)> {
        self.open(|known| match known {
            StepProgress::Asked(shown) => shown.as_ref(),
            StepProgress::Started(_) | StepProgress::Done(_) => None,
        })
    }

    fn open<'a>(
        &'a self,
        choose: impl Fn(&'a StepProgress) -> Option<&'a RawJson>,
    ) -> impl Iterator<Item = (&'a str, &'a RawJson)> {
        let chosen = self.records.iter().filter_map(move |(key, record)| Some((key.as_str(), choose(&record.known)?)));
        chosen.filter(|(key, _)| !self.is_settled(key))
    }

    /// The same without the questions that wait: they are asked anew.
    #[must_use]
    pub(crate) fn without_questions(mut self) -> Self {
        self.records.retain(|_, record| record.kind != StepKind::Ask);
        self
    }

    /// Every step by its key.
    pub(crate) fn into_records(self) -> BTreeMap<String, JournalEntry> {
        self.records
    }
}

/// The key of the request that a question about a limit stands at, before it or before the calls of its reply. No tool and no
/// code has such a key, whatever it is called.
pub(crate) fn limited_request(key: &str) -> Option<(&str, LimitedStep)> {
    let (request, name) = key.strip_suffix("/ask")?.rsplit_once('/')?;
    let step = match name.split('.').next()? {
        "limit" => LimitedStep::Request,
        "calls" => LimitedStep::Calls,
        _ => return None,
    };
    is_request(request).then_some((request, step))
}

/// What a question about a limit stands before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitedStep {
    Request,
    Calls,
}

impl RecordedSteps for JournalContents {
    fn result(&self, key: &str) -> Option<RawJson> {
        self.done(key).cloned()
    }

    fn keys_beneath(&self, key: &str) -> Vec<String> {
        self.beneath(key).map(|(key, _)| key.to_owned()).collect()
    }
}

/// The number of the turn of an entry that a key stands at or beneath.
pub fn turn_number(entry: &str, key: &str) -> Option<u64> {
    let name = key.strip_prefix(entry)?.strip_prefix("/t")?.split('/').next()?;
    name.parse().ok().filter(|number: &u64| number.to_string() == name)
}

/// What a person may want of a conversation between two turns. It is recorded before the turn that comes next, under its
/// number, and counted: `main/t3/undo.0`.
const COMMANDS: [&str; 3] = ["undo", "model", "compact"];

/// The number of the command before a turn of the entry that a key stands at or beneath.
pub fn command_number(entry: &str, key: &str) -> Option<u64> {
    turn_number(entry, key)?;
    let (name, number) = key.strip_prefix(entry)?.split('/').nth(2)?.split_once('.')?;
    number.parse().ok().filter(|_| COMMANDS.contains(&name))
}

/// Whether a key is that of what was said in a turn of the entry, or wanted before it. That stands nowhere else in the record
/// of a conversation.
fn is_said(key: &str) -> bool {
    let entry = key.split('/').next().unwrap_or_default();
    let is_of_turn = turn_number(entry, key).is_some();
    match key.matches('/').count() {
        2 => is_of_turn && (key.ends_with("/input") || command_number(entry, key).is_some()),
        // While the turn went on, before one of its requests.
        3 => is_of_turn && key.strip_suffix("/heard").is_some_and(is_request),
        _ => false,
    }
}

/// Whether a key is that of a model request.
fn is_request(key: &str) -> bool {
    let number = key.rsplit_once('/').and_then(|(_, name)| name.strip_prefix('m'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The records beneath a key, all levels.
pub fn beneath<'a>(
    records: &'a BTreeMap<String, JournalEntry>,
    key: &str,
) -> impl Iterator<Item = (&'a str, &'a JournalEntry)> + use<'a> {
    let prefix = format!("{key}/");
    let range = records.range(prefix.clone()..);
    range.take_while(move |(key, _)| key.starts_with(&prefix)).map(|(key, record)| (key.as_str(), record))
}

/// Decisions on which nothing was built: they are taken again, under the policy of the day. By the place whose next
/// step would show that they were used.
#[derive(Default)]
struct UnusedDecisions(HashMap<String, String>);

impl UnusedDecisions {
    /// A decision `main/t0/input` is used when anything else happens beneath `main`, or `main` is done.
    fn see(&mut self, line: &JournalLine) {
        // Hardly ever is one left: the next step uses it.
        if !self.0.is_empty() {
            if line.state == LineState::Done {
                self.0.remove(&line.k);
            }
            for end in memchr::memchr_iter(b'/', line.k.as_bytes()) {
                self.0.remove(&line.k[..end]);
            }
        }
        let turn = line.k.rsplitn(3, '/').nth(2);
        if let (StepKind::Decide, Some(turn)) = (line.kind, turn) {
            self.0.insert(turn.to_owned(), line.k.clone());
        }
    }
}

/// A line of either sort: those of the run have an empty key.
enum AnyLine {
    Step(JournalLine),
    Run(RunLine),
}

/// All that a line of either sort can have. Read once, and nothing is copied that is not kept.
#[derive(Deserialize)]
struct LineFields<'a> {
    #[serde(default)]
    v: Option<u64>,
    #[serde(borrow)]
    k: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    #[serde(default)]
    run: Option<RunIdentity>,
    #[serde(default, borrow)]
    req: Cow<'a, str>,
    #[serde(default, borrow, deserialize_with = "borrowed")]
    res: Option<&'a RawValue>,
    #[serde(default)]
    blob: Option<String>,
    #[serde(default)]
    at: u64,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    parts: Option<String>,
    #[serde(default)]
    sent: Option<u64>,
    #[serde(default, borrow, deserialize_with = "borrowed")]
    judged: Option<&'a RawValue>,
}

/// What is there is given, also if it is `null`.
fn borrowed<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl AnyLine {
    fn read(line: &[u8]) -> Result<Self, serde_json::Error> {
        let LineFields { v, k, kind, state, run, req, res, blob, at, by, parts, sent, judged } =
            serde_json::from_slice(line)?;
        let (k, res) = (k.into_owned(), res.map(RawJson::of_raw));
        if k.is_empty() {
            let (kind, state) = (kind.into_owned(), state.into_owned());
            return Ok(Self::Run(RunLine { v, k, kind, state, run, res, blob, at, by }));
        }
        let (kind, state) = (named(&kind)?, named(&state)?);
        let (req, judged) = (req.into_owned(), judged.map(RawJson::of_raw));
        Ok(Self::Step(JournalLine { k, kind, state, req, res, at, by, parts, sent, judged, blob }))
    }
}

/// The variant with this name.
fn named<'a, T: Deserialize<'a>>(name: &'a str) -> Result<T, serde_json::Error> {
    T::deserialize(serde::de::value::BorrowedStrDeserializer::new(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::writer::Signer;

    const HEADER: &str = r#"{"v":2,"k":"","kind":"run","state":"header","res":{"run":"r"}}"#;

    fn key() -> StateKey {
        StateKey::from_bytes([7; 32])
    }

    #[test]
    fn a_line_is_written_as_it_is_described() {
        let (value, digest) = (RawJson::parse("{\"a\": [1, \"\\n\"]}").unwrap(), "d".repeat(32));
        let (kinds, states) =
            ([StepKind::Model, StepKind::Call], [LineState::Started, LineState::Done, LineState::Lost]);
        for (with, (kind, state)) in (0..64).zip(kinds.into_iter().cycle().zip(states.into_iter().cycle())) {
            let has = |bit: u32| with >> bit & 1 == 1;
            let text = |bit: u32| has(bit).then_some("\"ä\"/t0\n");
            let req = if has(0) { digest.as_str() } else { "" };
            let (res, judged) = (has(1).then_some(&value), has(2).then_some(&value));
            let (by, parts, blob) = (text(3), text(4), text(5));
            let (k, at, sent) = ("ma\"in/t0", 7, has(4).then_some(u64::MAX));
            let line = LineText { k, kind, state, req, res, at, by, parts, sent, judged, blob };
            let mut written = Vec::new();
            line.write(&mut written);
            assert_eq!(String::from_utf8(written).unwrap(), serde_json::to_string(&line).unwrap());
        }
    }

    /// The lines, each with its mac.
    fn signed(lines: &[&str]) -> Vec<u8> {
        let (mut signer, mut text) = (Signer::after(LineMac::default(), Some(key())), Vec::new());
        for line in lines {
            signer.append(line.as_bytes(), &mut text);
        }
        text
    }

    fn read(lines: &[&str]) -> Result<JournalContents, Damage> {
        let lines = [&[HEADER], lines].concat();
        JournalContents::read(&signed(&lines), Some(&key())).map(|(contents, _)| contents)
    }

    fn line(key: &str, kind: &str, state: &str) -> String {
        format!(r#"{{"k":"{key}","kind":"{kind}","state":"{state}","req":"d","res":{{"value":1}},"new":true}}"#)
    }

    fn keys(contents: Result<JournalContents, Damage>) -> Vec<String> {
        contents.unwrap().records().map(|(key, _)| key.to_owned()).collect()
    }

    #[test]
    fn any_time_can_be_shown() {
        assert_eq!(shown_time(1_794_795_499_000), "Mon, 16 Nov 2026 02:18:19 GMT");
        assert!(shown_time(u64::MAX).contains("9999"));
    }

    #[test]
    fn only_whole_lines_are_committed() {
        assert_eq!(committed(b""), 0);
        assert_eq!(committed(b"abc"), 0);
        assert_eq!(committed(b"abc\n"), 4);
        assert_eq!(committed(b"abc\nde"), 4);
    }

    #[test]
    fn damage_has_a_place() {
        let step = line("a", "tool", "done");
        let damage = |lines: &[&str]| read(lines).unwrap_err();
        let whole = |bytes: &[u8]| JournalContents::read(bytes, Some(&key())).unwrap_err();
        assert_eq!(whole(b""), Damage::NotAJournal);
        assert_eq!(whole(b"hello\n"), Damage::NotAJournal);
        let other = signed(&[r#"{"v":3,"k":"","kind":"","state":"","res":1}"#]);
        assert_eq!(whole(&other), Damage::Version(3));
        for (lines, number) in [
            (vec!["{nonsense}"], 2),
            (vec![&step, "{\0\0\0}"], 3),
            (vec![&step, &step], 3),
            (vec![r#"{"k":"a","kind":"tool","state":"done"}"#], 2),
            (vec![r#"{"k":"a","kind":"new","state":"done","res":1}"#], 2),
            (vec![r#"{"k":"a","kind":"tool","state":"new","res":1}"#], 2),
        ] {
            let Damage::Line { number: found, .. } = damage(&lines) else { panic!("{lines:?}") };
            assert_eq!(found, number, "{lines:?}");
        }
    }

    #[test]
    fn a_step_is_what_its_last_line_says() {
        let lines = [
            line("a", "tool", "started"),
            line("b", "tool", "started"),
            line("b", "tool", "done"),
            line("c", "ask", "asked"),
            line("c", "ask", "asked"),
            line("d", "ask", "asked"),
            line("d", "ask", "done"),
            line("e", "tool", "started"),
            line("e", "tool", "undone"),
        ];
        let contents = read(&lines.each_ref().map(String::as_str)).unwrap();
        assert_eq!(contents.in_doubt().map(|(key, _)| key).collect::<Vec<_>>(), ["a"]);
        assert_eq!(contents.waiting().map(|(key, _)| key).collect::<Vec<_>>(), ["c"]);
        assert!(contents.done("b").is_some() && contents.done("d").is_some() && contents.done("e").is_none());
    }

    #[test]
    fn what_stands_beneath_something_done_is_settled() {
        let lines = [
            line("main/t0/m0", "model", "done"),
            line("main/t0/m0/c1", "tool", "started"),
            line("main/t0/m0/c0/t0/m0", "model", "done"),
            line("main/t0/m0/c0/t0/m0/c0", "tool", "started"),
            line("main/t0/m0/c0.1/t0/m0", "model", "done"),
            line("main/t0/m0/c0", "call", "done"),
        ];
        let contents = read(&lines.each_ref().map(String::as_str)).unwrap();
        assert_eq!(contents.in_doubt().map(|(key, _)| key).collect::<Vec<_>>(), ["main/t0/m0/c1"]);
        assert_eq!(contents.beneath("main/t0/m0/c0").count(), 2);
        assert_eq!(contents.beneath("main").count(), 6);
    }

    #[test]
    fn a_decision_counts_once_something_is_built_on_it() {
        let decided = line("main/t0/input", "decide", "done");
        let cases = [
            (vec![], 0),
            (vec![line("main/t0/m0", "model", "done")], 2),
            (vec![line("other/t0/m0", "model", "done")], 1),
            (vec![line("main", "call", "done")], 2),
        ];
        for (later, left) in cases {
            let lines: Vec<&str> = std::iter::once(&decided).chain(&later).map(String::as_str).collect();
            assert_eq!(keys(read(&lines)).len(), left, "{lines:?}");
        }
    }

    #[test]
    fn what_was_said_in_a_conversation_counts_at_once() {
        let header = HEADER.replacen("\"kind\":\"run\",", "\"kind\":\"run\",\"run\":{\"kind\":\"chat\"},", 1);
        let read = |later: &[&str]| {
            let said = [line("main/t0/input", "decide", "done"), line("main/t0", "call", "done")];
            let lines: Vec<String> = std::iter::once(header.clone())
                .chain(said)
                .chain(later.iter().map(|key| line(key, "decide", "done")))
                .collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            keys(JournalContents::read(&signed(&lines), Some(&key())).map(|(contents, _)| contents))
        };
        assert_eq!(read(&["main/t1/input"]), ["main/t0", "main/t0/input", "main/t1/input"]);
        let heard = ["main/t1/input", "main/t1/m0/heard"];
        assert_eq!(read(&heard), ["main/t0", "main/t0/input", "main/t1/input", "main/t1/m0/heard"]);
        // What an agent was called with follows from the call, and is decided again.
        assert_eq!(read(&["main/t0/m0/c0/t0/input"]).len(), 2);
    }

    #[test]
    fn an_end_counts_until_somebody_goes_on() {
        let line = |line: &RunLine| RawJson::of(line).get().to_owned();
        let ended = |state, reason: &str| line(&RunLine::ended(&RunEnd::new(state, reason), 7, None));
        let (waits, done) = (ended(EndState::Waits, "write_file"), ended(EndState::Done, ""));
        assert_eq!(
            waits,
            r#"{"k":"","kind":"run","state":"ended","res":{"state":"waits","reason":"write_file"},"at":7}"#
        );
        let resumed = line(&RunLine::resumed(None, 8, None));
        let step = |state: &str| self::line("main/t0/m0", "model", state);
        let end = |state, reason: &str| Some(RunEnd::new(state, reason));
        let waiting = end(EndState::Waits, "write_file");
        for (lines, expected) in [
            (vec![], None),
            (vec![&waits], waiting.clone()),
            (vec![&step("done"), &waits], waiting.clone()),
            (vec![&waits, &resumed], None),
            (vec![&waits, &step("done")], None),
            (vec![&waits, &step("asked")], None),
            (vec![&waits, &step("started")], None),
            (vec![&waits, &step("lost")], waiting.clone()),
            (vec![&waits, &step("undone")], waiting.clone()),
            (vec![&waits, &resumed, &step("done"), &done], end(EndState::Done, "")),
            (vec![&waits, &done], end(EndState::Done, "")),
            (vec![&waits, &done.replace("done", "new")], None),
        ] {
            let lines: Vec<&str> = lines.into_iter().map(String::as_str).collect();
            assert_eq!(read(&lines).unwrap().ended(), expected.as_ref(), "{lines:?}");
        }
        assert_eq!(RunEnd::new(EndState::Stopped, &"ä".repeat(400)).reason.chars().count(), 300);
    }

    /// A run of a few steps.
    fn whole() -> Vec<u8> {
        let lines = [
            HEADER.to_owned(),
            line("main/t0/m0", "model", "done"),
            line("main/t0/m0/c0/ask", "ask", "asked"),
            line("main/t0/m0/c0/ask", "ask", "done"),
            line("main/t0/m0/c0", "tool", "started"),
            line("main/t0/m0/c0", "tool", "done"),
        ];
        signed(&lines.each_ref().map(String::as_str))
    }

    /// Only what we wrote is believed, and only from its beginning on: whatever was changed, the lines that are left
    /// are those of the original, in their order.
    fn is_refused_or_a_beginning(changed: &[u8]) -> bool {
        let committed = &changed[..committed(changed)];
        verified(committed, Some(&key())).is_err() || whole().starts_with(committed)
    }

    #[test]
    fn a_journal_with_any_byte_changed_is_refused_or_cut_short() {
        let whole = whole();
        assert!(verified(&whole, Some(&key())).is_ok());
        assert_eq!(verified(&whole, None), Err(Damage::Foreign(1)));
        assert_eq!(verified(&whole, Some(&StateKey::from_bytes([8; 32]))), Err(Damage::Foreign(1)));
        for at in 0..whole.len() {
            for flip in [1, 2, 0x20, 0x80, whole[at] ^ b'\n', whole[at] ^ b'"'] {
                let mut changed = whole.clone();
                changed[at] ^= flip;
                assert!(flip == 0 || is_refused_or_a_beginning(&changed), "byte {at} by {flip}");
            }
        }
    }

    proptest::proptest! {
        /// Lines dropped, doubled, swapped, of another run, of another key.
        #[test]
        fn lines_in_any_other_order_are_refused_or_cut_short(order in proptest::collection::vec((0..6_usize, 0..3_usize), 0..8)) {
            let other_run = HEADER.replace("\"r\"", "\"s\"");
            let originals = String::from_utf8(whole()).unwrap();
            let others = String::from_utf8(signed(&[&other_run, &line("main/t0/m0/c0", "tool", "done")])).unwrap();
            let unsigned = format!("{HEADER}\n{}\n", line("main/t0/m0/c0", "tool", "done"));
            let files = [&originals, &others, &unsigned].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
            let spliced: String = order.iter().map(|(index, file)| files[*file][index % files[*file].len()]).collect();
            let of_other = others.starts_with(&spliced);
            proptest::prop_assert!(of_other || is_refused_or_a_beginning(spliced.as_bytes()));
        }

        /// Whatever is in the file, it is read or refused.
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, lines in proptest::collection::vec("[ -~]{0,60}", 0..5)) {
            let _ = JournalContents::read(&bytes, Some(&key()));
            let _ = strangers_lines(&bytes, &no_values);
            let text = [&[HEADER.to_owned()][..], &lines, &[String::new()]].concat().join("\n");
            let _ = strangers_lines(text.as_bytes(), &no_values);
        }
    }
}
