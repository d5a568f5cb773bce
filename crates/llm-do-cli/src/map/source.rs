//! The items: read from a file line by line, row by row or value by value, and never all at once.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::escape::visible;
use llm_do::files::PathPattern;
use llm_do::messages::{Attachment, read_named};
use llm_do::records::digest;
use llm_do::store::layout::HexDigest;
use llm_do::{Content, Input};
use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::args::ItemFormatArg;
use crate::failure::Failure;

/// No item may be larger.
const LARGEST: u64 = 16 * 1024 * 1024;

/// One item, by its number in the input.
#[derive(Clone, Debug, PartialEq)]
pub struct ListItem {
    /// Counted from 1.
    pub number: u64,
    pub content: ItemContent,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq)]
pub enum ItemContent {
    Value(Value),
    File(PathBuf),
}

impl ItemContent {
    /// As the file of failures shows it.
    pub fn shown(&self) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::File(path) => Value::String(path.display().to_string()),
        }
    }

    /// What it is given as, and its digest.
    pub fn input(self, directory: &Path) -> Result<(Input, HexDigest), String> {
        let named = |parts: &[&str]| HexDigest::parse(&digest(parts.iter().copied()));
        let (input, name) = match self {
            Self::Value(value) => {
                let name = named(&["value", &value.to_string()]);
                (Input::Object { value, attachments: Vec::new() }, name)
            }
            Self::File(path) => {
                let attachment: Attachment = read_named(&directory.join(&path)).map_err(|error| error.to_string())?;
                let bytes = serde_json::to_vec(&attachment).map_err(|error| error.to_string())?;
                let name = named(&["file", &path.display().to_string(), HexDigest::of(&bytes).as_str()]);
                (Input::Parts(vec![Content::Attachment(attachment)]), name)
            }
        };
        name.map(|name| (input, name)).ok_or_else(|| "the item has no digest".to_owned())
    }
}

/// Where items come from.
#[derive(Clone, Debug)]
pub struct ItemSource {
    origin: ItemOrigin,
    /// What the agent takes: the cells of a table are texts, and become numbers where numbers are wanted.
    schema: Option<Arc<Value>>,
}

#[derive(Clone, Debug)]
enum ItemOrigin {
    File(PathBuf, ItemFormatArg),
    Stdin(Arc<[u8]>, ItemFormatArg),
    Files(Vec<PathBuf>),
}

/// What takes the items. It may have enough before the end.
pub type ItemTaker<'a> = &'a mut dyn FnMut(ListItem) -> ControlFlow<()>;

impl ItemSource {
    /// A file, or stdin. Paths are relative to the directory.
    pub fn over(path: &Path, format: Option<ItemFormatArg>, directory: &Path) -> Result<Self, Failure> {
        let is_stdin = path == Path::new("-");
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let format = format.or_else(|| format_of(ending)).ok_or_else(|| {
            let name = if is_stdin { "stdin".to_owned() } else { visible(&path.display().to_string()).into_owned() };
            Failure::usage(format!("how the items in {name} are written is not known"))
                .hint("`--as jsonl`, `--as csv`, `--as json` or `--as lines` says it")
        })?;
        let origin = if is_stdin {
            let mut bytes = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|error| Failure::failed(format!("stdin cannot be read: {error}")))?;
            ItemOrigin::Stdin(bytes.into(), format)
        } else {
            ItemOrigin::File(directory.join(path), format)
        };
        Ok(Self { origin, schema: None })
    }

    /// Files that a pattern means, in the order of their paths.
    pub fn files(pattern: &str, directory: &Path) -> Result<Self, Failure> {
        let wrong = |reason: String| Failure::usage(format!("`--files`: {reason}"));
        let wanted = PathPattern::parse(pattern.trim_start_matches("./")).map_err(wrong)?;
        let mut files = Vec::new();
        collect(&wanted, pattern, directory, &mut files)
            .map_err(|error| Failure::failed(format!("`--files`: {error}")))?;
        files.sort_unstable();
        if files.is_empty() {
            return Err(Failure::usage(format!("`--files`: no file is called like `{}`", visible(pattern)))
                .hint("put the pattern in quotes, so that the shell leaves it as it is; `**` crosses directories"));
        }
        Ok(Self { origin: ItemOrigin::Files(files), schema: None })
    }

    /// The same for an agent whose input has this schema.
    pub fn for_schema(self, schema: Option<Arc<Value>>) -> Self {
        Self { schema, ..self }
    }

    /// Reads all of it, and keeps nothing: how many items there are, or what is wrong with one.
    pub fn count(&self) -> Result<u64, Failure> {
        let mut count = 0;
        self.each(&mut |item| {
            count = item.number;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    /// Whether what is written there would take the place of an item, or of their list, before it is read.
    pub fn is_in(&self, file: &Path, directory: &Path) -> bool {
        // Without links, and as the system tells one file from another, whatever they are called.
        let of = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let Some(wanted) = of(file) else { return false };
        match &self.origin {
            ItemOrigin::File(path, _) => of(path) == Some(wanted),
            ItemOrigin::Stdin(..) => false,
            ItemOrigin::Files(files) => files.iter().any(|path| of(&directory.join(path)) == Some(wanted)),
        }
    }

    /// Gives one item after the other.
    pub fn each(&self, take: ItemTaker<'_>) -> Result<(), Failure> {
        let (name, reader, format): (String, Box<dyn Read>, ItemFormatArg) = match &self.origin {
            ItemOrigin::Files(files) => {
                for (index, path) in files.iter().enumerate() {
                    let item = ListItem { number: index as u64 + 1, content: ItemContent::File(path.clone()) };
                    if take(item).is_break() {
                        break;
                    }
                }
                return Ok(());
            }
            ItemOrigin::File(path, format) => {
                let unread = |error| Failure::usage(format!("{}: {error}", visible(&path.display().to_string())));
                (path.display().to_string(), Box::new(File::open(path).map_err(unread)?), *format)
            }
            ItemOrigin::Stdin(bytes, format) => ("stdin".to_owned(), Box::new(Cursor::new(Arc::clone(bytes))), *format),
        };
        let mut reader = BufReader::with_capacity(64 * 1024, reader);
        let read = without_mark(&mut reader).map_err(|error| error.to_string()).and_then(|()| match format {
            ItemFormatArg::Jsonl => {
                lines(reader, take, |line| serde_json::from_str(line).map_err(|error| format!("is not JSON: {error}")))
            }
            ItemFormatArg::Lines => lines(reader, take, |line| Ok(Value::String(line.to_owned()))),
            ItemFormatArg::Json => array(reader, take),
            ItemFormatArg::Csv => rows(reader, self.schema.as_deref(), take),
        });
        read.map_err(|reason| Failure::usage(format!("{}: {reason}", visible(&name))))
    }
}

fn format_of(ending: &str) -> Option<ItemFormatArg> {
    match ending.to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => Some(ItemFormatArg::Jsonl),
        "csv" => Some(ItemFormatArg::Csv),
        "json" => Some(ItemFormatArg::Json),
        "txt" | "text" | "lst" => Some(ItemFormatArg::Lines),
        _ => None,
    }
}

/// Regular files beneath the directory. What is hidden is found only where the pattern itself names it.
fn collect(wanted: &PathPattern, pattern: &str, directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let names_hidden = pattern.starts_with('.') || pattern.contains("/.");
    let mut waiting = vec![(PathBuf::new(), 1)];
    while let Some((beneath, depth)) = waiting.pop() {
        for entry in std::fs::read_dir(directory.join(&beneath).join("."))? {
            let entry = entry?;
            let name = entry.file_name();
            let is_hidden = name.as_encoded_bytes().starts_with(b".");
            if is_hidden && !names_hidden {
                continue;
            }
            let path = beneath.join(&name);
            let kind = entry.file_type()?;
            if kind.is_dir() && wanted.depth().is_none_or(|deepest| depth < deepest) {
                waiting.push((path, depth + 1));
            } else if kind.is_file() && path.to_str().is_some_and(|path| wanted.matches(path)) {
                files.push(path);
            }
        }
    }
    Ok(())
}

/// Some programs begin a text with a mark that is no part of it.
fn without_mark(reader: &mut impl BufRead) -> io::Result<()> {
    if reader.fill_buf()?.starts_with("\u{feff}".as_bytes()) {
        reader.consume("\u{feff}".len());
    }
    Ok(())
}

/// An item on each line that is not blank.
fn lines(
    mut reader: impl BufRead,
    take: ItemTaker<'_>,
    read: impl Fn(&str) -> Result<Value, String>,
) -> Result<(), String> {
    let (mut line, mut at, mut number) = (Vec::new(), 0_u64, 0);
    loop {
        line.clear();
        at += 1;
        let length = reader.by_ref().take(LARGEST + 1).read_until(b'\n', &mut line);
        if length.map_err(|error| error.to_string())? == 0 {
            return Ok(());
        }
        if line.len() as u64 > LARGEST {
            return Err(format!("line {at} is longer than {LARGEST} bytes"));
        }
        let text = std::str::from_utf8(&line).map_err(|_| format!("line {at} is not UTF-8"))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.trim().is_empty() {
            continue;
        }
        number += 1;
        let value = read(text).map_err(|reason| format!("line {at} {reason}"))?;
        if take(ListItem { number, content: ItemContent::Value(value) }).is_break() {
            return Ok(());
        }
    }
}

/// The values of one array.
fn array(reader: impl BufRead, take: ItemTaker<'_>) -> Result<(), String> {
    struct Values<'a, 't> {
        take: ItemTaker<'t>,
        has_enough: &'a mut bool,
    }

    impl<'de> Visitor<'de> for Values<'_, '_> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an array of items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
            let mut number = 0;
            while let Some(value) = values.next_element::<Value>()? {
                number += 1;
                if (self.take)(ListItem { number, content: ItemContent::Value(value) }).is_break() {
                    *self.has_enough = true;
                    return Err(A::Error::custom("enough"));
                }
            }
            Ok(())
        }
    }

    let mut has_enough = false;
    let mut json = serde_json::Deserializer::from_reader(reader);
    let read = json.deserialize_seq(Values { take, has_enough: &mut has_enough });
    match read.and_then(|()| json.end()) {
        Err(_) if has_enough => Ok(()),
        read => read.map_err(|error| format!("it is no JSON array: {error}")),
    }
}

/// The rows of a table, each an object with the names of its columns.
fn rows(reader: impl Read, schema: Option<&Value>, take: ItemTaker<'_>) -> Result<(), String> {
    let mut table = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(QuoteWatch::of(reader));
    let columns = table.headers().map_err(|error| error.to_string())?.clone();
    for (index, column) in columns.iter().enumerate() {
        if column.is_empty() {
            return Err(format!("column {} has no name", index + 1));
        }
        if columns.iter().take(index).any(|other| other == column) {
            return Err(format!("two columns are called `{}`", visible(column)));
        }
    }
    for (index, row) in table.records().enumerate() {
        let row = row.map_err(|error| error.to_string())?;
        let cell = |(column, text): (&str, &str)| Some((column.to_owned(), cell(schema, column, text)?));
        let object: Map<String, Value> = columns.iter().zip(row.iter()).filter_map(cell).collect();
        let item = ListItem { number: index as u64 + 1, content: ItemContent::Value(Value::Object(object)) };
        if take(item).is_break() {
            break;
        }
    }
    Ok(())
}

/// The bytes of a table, with an error at their end if a quote is open: all rows behind it would be one cell.
struct QuoteWatch<R> {
    reader: R,
    place: CellPlace,
    /// Counted from 1.
    line: u64,
    /// Where the last quoted cell began.
    begun: u64,
}

/// Where in a cell a byte of a table stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CellPlace {
    Beginning,
    Plain,
    Quoted,
    /// Behind a quote in a quoted cell, which ends it or stands for itself.
    Quote,
}

impl<R> QuoteWatch<R> {
    fn of(reader: R) -> Self {
        Self { reader, place: CellPlace::Beginning, line: 1, begun: 0 }
    }

    fn see(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (CellPlace::Beginning, b'"') => {
                self.begun = self.line;
                CellPlace::Quoted
            }
            (CellPlace::Quoted, b'"') => CellPlace::Quote,
            (CellPlace::Quoted, _) | (CellPlace::Quote, b'"') => CellPlace::Quoted,
            (_, b',' | b'\n' | b'\r') => CellPlace::Beginning,
            (CellPlace::Beginning | CellPlace::Plain | CellPlace::Quote, _) => CellPlace::Plain,
        };
        self.line += u64::from(byte == b'\n');
    }
}

impl<R: Read> Read for QuoteWatch<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        buffer[..length].iter().for_each(|byte| self.see(*byte));
        if length == 0 && !buffer.is_empty() && self.place == CellPlace::Quoted {
            return Err(io::Error::other(format!(
                "the quote that begins a cell on line {} is never closed",
                self.begun
            )));
        }
        Ok(length)
    }
}

/// A cell as the agent takes it. An empty one where no text is wanted says nothing.
fn cell(schema: Option<&Value>, column: &str, text: &str) -> Option<Value> {
    let wanted = schema.and_then(|schema| schema.get("properties")?.get(column)?.get("type"));
    let takes = |kind: &str| match wanted {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => false,
    };
    if wanted.is_none() || takes("string") && !text.is_empty() {
        return Some(Value::String(text.to_owned()));
    }
    let said = text.trim();
    if said.is_empty() {
        return if takes("null") {
            Some(Value::Null)
        } else if takes("string") {
            Some(Value::String(text.to_owned()))
        } else {
            None
        };
    }
    let read = serde_json::from_str::<Value>(said).ok().filter(|value| match value {
        Value::Number(number) => takes("number") || takes("integer") && !number.is_f64(),
        Value::Bool(_) => takes("boolean"),
        Value::Array(_) => takes("array"),
        Value::Object(_) => takes("object"),
        Value::Null | Value::String(_) => false,
    });
    // What cannot be read is judged by the schema, which says what is wrong.
    Some(read.unwrap_or_else(|| Value::String(text.to_owned())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items(format: ItemFormatArg, text: &str, schema: Option<Value>) -> Result<Vec<Value>, String> {
        let origin = ItemOrigin::Stdin(text.as_bytes().into(), format);
        let source = ItemSource { origin, schema: schema.map(Arc::new) };
        let mut found = Vec::new();
        let read = source.each(&mut |item| {
            assert_eq!(item.number, found.len() as u64 + 1);
            found.push(item.content.shown());
            ControlFlow::Continue(())
        });
        read.map(|()| found).map_err(|failure| failure.words().0)
    }

    #[test]
    fn items_are_read_in_four_forms() {
        let cases = [
            (ItemFormatArg::Jsonl, "\u{feff}{\"a\":1}\r\n\n \"x\"\n3", json!([{"a": 1}, "x", 3])),
            (ItemFormatArg::Lines, "one\r\n\n two \nthree", json!(["one", " two ", "three"])),
            (ItemFormatArg::Json, " [1, {\"b\": [2]}, \"z\"]\n", json!([1, {"b": [2]}, "z"])),
            (ItemFormatArg::Json, "[]", json!([])),
            (
                ItemFormatArg::Csv,
                "a, b\n1,\"x, \"\"y\"\"\"\n2,\"l\nm\"\n",
                json!([{"a": "1", "b": "x, \"y\""}, {"a": "2", "b": "l\nm"}]),
            ),
            (ItemFormatArg::Csv, "a\n", json!([])),
        ];
        for (format, text, expected) in cases {
            assert_eq!(items(format, text, None).map(Value::Array), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn a_mistake_has_its_place() {
        let cases = [
            (ItemFormatArg::Jsonl, "1\n\n{a}", "stdin: line 3 is not JSON: key must be a string at line 1 column 2"),
            (
                ItemFormatArg::Json,
                "{}",
                "stdin: it is no JSON array: invalid type: map, expected an array of items at line 1 column 1",
            ),
            (ItemFormatArg::Json, "[1] 2", "stdin: it is no JSON array: trailing characters at line 1 column 5"),
            (ItemFormatArg::Csv, "a,a\n1,2", "stdin: two columns are called `a`"),
            (ItemFormatArg::Csv, "a,\n1,2", "stdin: column 2 has no name"),
        ];
        for (format, text, expected) in cases {
            assert_eq!(items(format, text, None).unwrap_err(), expected);
        }
        let open = items(ItemFormatArg::Csv, "a,b\n1,\"2\n3,4\n", None).unwrap_err();
        assert!(open.contains("the quote that begins a cell on line 2 is never closed"), "{open}");
        let short = items(ItemFormatArg::Csv, "a,b\n1,2\n3\n", None).unwrap_err();
        assert!(short.contains("line: 3"), "{short}");
        let origin = ItemOrigin::Stdin(b"ok\n\xff\n"[..].into(), ItemFormatArg::Lines);
        let wrong = ItemSource { origin, schema: None }.count().unwrap_err();
        assert_eq!(wrong.words().0, "stdin: line 2 is not UTF-8");
    }

    #[test]
    fn cells_become_what_the_agent_takes() {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "x": {"type": ["number", "null"]}, "b": {"type": "boolean"}, "s": {"type": "string"},
            "l": {"type": "array"},
        }});
        let cases = [
            ("n", "7", Some(json!(7))),
            ("n", "7.5", Some(json!("7.5"))),
            ("n", "seven", Some(json!("seven"))),
            ("n", "", None),
            ("x", "7.5", Some(json!(7.5))),
            ("x", " ", Some(json!(null))),
            ("b", "true", Some(json!(true))),
            ("s", "12", Some(json!("12"))),
            ("s", "", Some(json!(""))),
            ("l", "[1]", Some(json!([1]))),
            ("other", "1", Some(json!("1"))),
        ];
        for (column, text, expected) in cases {
            assert_eq!(cell(Some(&schema), column, text), expected, "{column}: {text}");
        }
    }

    #[test]
    fn who_has_enough_reads_no_further() {
        for (format, text) in [
            (ItemFormatArg::Json, "[1, 2, oops"),
            (ItemFormatArg::Jsonl, "1\n2\noops"),
            (ItemFormatArg::Csv, "a\n1\n2\n3,3"),
        ] {
            let source = ItemSource { origin: ItemOrigin::Stdin(text.as_bytes().into(), format), schema: None };
            let mut count = 0;
            let read = source.each(&mut |_| {
                count += 1;
                if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(read.is_ok() && count == 2, "{text}");
        }
    }
}
