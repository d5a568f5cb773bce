//! Where results and failures go: whole lines, each in one piece.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use llm_do::Output;
use llm_do::escape::visible;
use rustix::fs::OFlags;
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::{answer_file, console, json};

/// The results, and what failed.
pub struct ResultSink {
    results: Option<(PathBuf, File)>,
    errors: Option<PathBuf>,
    /// Made with the first failure.
    failed: Option<File>,
}

#[derive(Serialize)]
struct FailureLine<'a> {
    item: u64,
    input: &'a Value,
    error: &'a str,
}

/// The line of a result.
pub fn result_line(item: u64, output: &Output) -> String {
    // JSON of others has line breaks between its tokens only, and ours has none.
    let is_of_others = matches!(output, Output::Value(json) if json.get().contains(['\n', '\r']));
    let output = output.to_json();
    let mut line = format!("{{\"item\":{item},\"output\":");
    line.reserve(output.get().len() + 2);
    if is_of_others {
        line.push_str(&output.get().replace(['\n', '\r'], " "));
    } else {
        line.push_str(output.get());
    }
    line.push_str("}\n");
    line
}

/// `NAME.errors.jsonl` of `NAME.jsonl`.
pub fn errors_of(results: &Path) -> PathBuf {
    let name = results.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json")).unwrap_or(&name);
    results.with_file_name(format!("{stem}.errors.jsonl"))
}

impl ResultSink {
    /// Into this file and the one beside it, both of which begin anew; else to stdout and stderr.
    pub fn open(results: Option<PathBuf>) -> Result<Self, Failure> {
        let Some(path) = results else { return Ok(Self { results: None, errors: None, failed: None }) };
        let mut options = OpenOptions::new();
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        if answer_file::is_stream(&path) {
            let file = OpenOptions::new().append(true).open(&path).map_err(|error| unwritten(&path, &error))?;
            return Ok(Self { results: Some((path, file)), errors: None, failed: None });
        }
        let errors = errors_of(&path);
        check_failures(&errors)?;
        let file = options.write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(|error| unwritten(&path, &error))?;
        match fs::remove_file(&errors) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unwritten(&errors, &error)),
            Ok(()) | Err(_) => {}
        }
        Ok(Self { results: Some((path, file)), errors: Some(errors), failed: None })
    }

    /// Whether results are in a file, and not on stdout.
    pub fn is_file(&self) -> bool {
        self.results.is_some()
    }

    /// The file of failures, if there is one.
    pub fn errors(&self) -> Option<&Path> {
        self.failed.as_ref().and(self.errors.as_deref())
    }

    /// Whole lines. Each is handed over in one piece, so that whoever is killed leaves no half of one.
    pub fn results(&mut self, lines: &str) -> Result<(), Failure> {
        match &mut self.results {
            None if lines.is_empty() => Ok(()),
            None => console::print(lines),
            Some((path, file)) => {
                let mut each = lines.split_inclusive('\n');
                each.try_for_each(|line| file.write_all(line.as_bytes())).map_err(|error| unwritten(path, &error))
            }
        }
    }

    /// An item that came to no result.
    pub fn failure(&mut self, item: u64, input: &Value, error: &str, is_told: bool) -> Result<(), Failure> {
        if let Some(path) = &self.errors {
            let file = match &mut self.failed {
                Some(file) => file,
                None => {
                    let made = OpenOptions::new().write(true).create_new(true).open(path);
                    self.failed.insert(made.map_err(|error| unwritten(path, &error))?)
                }
            };
            let line = json::line(&FailureLine { item, input, error });
            file.write_all(line.as_bytes()).map_err(|error| unwritten(path, &error))?;
        }
        if is_told {
            console::complain(&format!("item {item} failed: {}\n", crate::failure::marked(error)));
        }
        Ok(())
    }
}

/// Nobody typed the name of the file of failures, so it is only removed if it is one.
fn check_failures(errors: &Path) -> Result<(), Failure> {
    let is_one = |text: &[u8]| {
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_line = |value: Value| ["item", "input", "error"].iter().all(|name| value.get(name).is_some());
        text.is_empty() || serde_json::from_slice(first).is_ok_and(is_line)
    };
    match fs::read(errors) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(text) if is_one(&text) => Ok(()),
        Ok(_) | Err(_) => {
            let shown = errors.display().to_string();
            Err(Failure::usage(format!("`-o`: {} is there, and no list of failures", visible(&shown)))
                .hint("failures would be written there: move it away, or name another file for the results"))
        }
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{} cannot be written: {error}", visible(&path.display().to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_stand_beside_the_results() {
        for (results, errors) in [
            ("triaged.jsonl", "triaged.errors.jsonl"),
            ("a/b.json", "a/b.errors.jsonl"),
            ("out", "out.errors.jsonl"),
            ("x.tar.txt", "x.tar.txt.errors.jsonl"),
        ] {
            assert_eq!(errors_of(Path::new(results)), Path::new(errors));
        }
    }
}
