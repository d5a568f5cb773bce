//! Lists files by a glob: beneath a directory, never through links, bounded in number, depth and time.

use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use globset::{GlobBuilder, GlobMatcher};

const MOST_LISTED: usize = 1_000;
const MOST_VISITED: usize = 200_000;
const DEEPEST: usize = 64;
const LONGEST_PATTERN: usize = 1_000;

#[derive(Debug)]
pub enum ListError {
    Pattern(String),
    Io(io::Error),
}

impl From<io::Error> for ListError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Sorted relative paths of files, one a line, with a mark where the list was cut.
pub fn list(root: &Dir, beneath: &Path, pattern: &str) -> Result<String, ListError> {
    let matcher = Pattern::parse(pattern).map_err(ListError::Pattern)?;
    let start = if beneath.as_os_str().is_empty() { root.try_clone()? } else { root.open_dir(beneath)? };
    let mut found = Vec::new();
    let mut visited = 0;
    let mut waiting = vec![(start, PathBuf::new(), 0)];
    let mut complete = true;
    while let Some((directory, path, depth)) = waiting.pop() {
        for entry in directory.entries()?.flatten() {
            visited += 1;
            if visited > MOST_VISITED {
                complete = false;
                break;
            }
            let path = path.join(entry.file_name());
            // Links are listed by nobody: what they lead to may be outside, or in a circle.
            match entry.file_type() {
                Ok(kind) if kind.is_file() && matcher.matches(&path) => found.push(beneath.join(path)),
                Ok(kind) if kind.is_dir() && depth < DEEPEST => {
                    if let Ok(inner) = entry.open_dir() {
                        waiting.push((inner, path, depth + 1));
                    }
                }
                Ok(_) | Err(_) => {}
            }
        }
        if !complete {
            break;
        }
    }
    found.sort();
    let total = found.len();
    found.truncate(MOST_LISTED);
    let mut lines: Vec<String> = found.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    match (total > MOST_LISTED, complete) {
        (true, _) => lines.push(format!("[cut: {} more files; give a narrower pattern]", total - MOST_LISTED)),
        (false, false) => lines.push("[cut: too many entries were visited; list a directory below]".to_owned()),
        (false, true) => {}
    }
    Ok(if lines.is_empty() { "[no files]".to_owned() } else { lines.join("\n") })
}

enum Pattern {
    Everything,
    Glob(Box<GlobMatcher>),
}

impl Pattern {
    /// The model writes the pattern: it cannot leave the directory, and matching it takes linear time.
    fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST_PATTERN {
            return Err("the pattern is too long".to_owned());
        }
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err("the pattern leads outside: it is relative and has no `..`".to_owned());
        }
        if matches!(text, "**/*" | "**" | "") {
            return Ok(Self::Everything);
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        glob.map(|glob| Self::Glob(Box::new(glob.compile_matcher())))
            .map_err(|error| format!("the pattern is none: {}", error.kind()))
    }

    fn matches(&self, path: &Path) -> bool {
        match self {
            Self::Everything => true,
            Self::Glob(glob) => glob.is_match(path),
        }
    }
}
