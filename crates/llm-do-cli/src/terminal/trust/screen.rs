//! What is shown of a project that the user has not agreed to yet: a list, and its pages. Pure.

use std::path::Path;

use llm_do::escape::visible_name;
use llm_do::trust::{TrustDigest, TrustItem};
use llm_do_launch::error::TrustList;

use crate::terminal::style::width;

/// Beyond this, the columns behind a long entry are not aligned with the others.
const WIDEST_COLUMN: usize = 56;
/// Marks the rest of a long line, so that a reader cannot take it for another line.
const CONTINUED: &str = "    … ";
/// Narrower than this, lines wrap themselves.
const NARROWEST: usize = 20;

/// What is asked about.
pub struct List<'a> {
    /// The project's path as its user typed it.
    project: &'a Path,
    items: &'a [TrustItem],
    /// Some of it was agreed to before, and is not listed.
    is_rest: bool,
    /// The digest of all items, those that were agreed to included.
    digest: &'a TrustDigest,
}

/// As much as fits on the screen.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pub text: String,
    pub is_last: bool,
}

impl<'a> List<'a> {
    pub fn of(project: &'a Path, list: &'a TrustList) -> Self {
        Self { project, items: &list.items, is_rest: list.is_rest, digest: &list.digest }
    }

    /// The whole list, for output that is no screen.
    pub fn whole(&self) -> String {
        let lines: Vec<String> = lines(self.items).into_iter().map(|line| format!("{line}\n")).collect();
        let count = self.items.len();
        format!("{}\n{}-- {count} of {count}, digest {} --\n", self.heading(), lines.concat(), self.digest)
    }

    /// For a screen: no line is longer than it is wide, and no page longer than it is high. The last one ends in `keys`.
    pub fn pages(&self, rows: usize, columns: usize, keys: &str) -> Vec<Page> {
        let columns = columns.max(NARROWEST);
        let mut rows_of_items: Vec<(String, usize)> = Vec::new();
        for (index, line) in lines(self.items).iter().enumerate() {
            rows_of_items.extend(wrapped(line, columns).into_iter().map(|row| (row, index)));
        }
        let heading = wrapped(&self.heading(), columns);
        let keys = wrapped(keys, columns);
        // A footer, and the keys below it.
        let height = rows.saturating_sub(heading.len() + keys.len() + 2).max(1);
        let count = self.items.len();
        let chunks: Vec<&[(String, usize)]> = rows_of_items.chunks(height).collect();
        let page = |(at, chunk): (usize, &&[(String, usize)])| {
            let is_last = at + 1 == chunks.len();
            let mut page = heading.clone();
            page.extend(chunk.iter().map(|(row, _)| row.clone()));
            let shown = chunk.last().map_or(0, |(_, index)| index + 1);
            if is_last {
                page.extend(wrapped(&format!("-- {count} of {count}, digest {} --", self.digest), columns));
                page.extend(keys.iter().cloned());
            } else {
                page.push(format!("-- {shown} of {count} --"));
                page.push("space more   n no".to_owned());
            }
            Page { text: page.join("\n") + "\n", is_last }
        };
        chunks.iter().enumerate().map(page).collect()
    }

    fn heading(&self) -> String {
        let project = self.project.display().to_string();
        let project = visible_name(&project);
        if self.is_rest {
            format!("{project} has changed since it was trusted. With your rights it would now")
        } else {
            format!("{project} was never trusted. With your rights it would")
        }
    }
}

/// One for each item: class, words, place, source.
pub fn lines(items: &[TrustItem]) -> Vec<String> {
    let cells: Vec<[&str; 4]> =
        items.iter().map(|item| [item.class.words(), &item.words, &item.place, &item.source]).collect();
    let widest = |column: usize| {
        let widths = cells.iter().map(|cells| width(cells[column])).filter(|width| *width <= WIDEST_COLUMN);
        widths.max().unwrap_or(0)
    };
    let widths = [0, 1, 2].map(widest);
    let line = |cells: &[&str; 4]| {
        let mut line = String::from("  ");
        for (cell, widest) in cells.iter().zip(widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(widest.saturating_sub(width(cell)) + 2));
        }
        line.push_str(cells[3]);
        line.trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
    for character in line.chars() {
        let wide = width(character.encode_utf8(&mut [0; 4]));
        if used + wide > columns {
            rows.push(std::mem::replace(&mut row, CONTINUED.to_owned()));
            used = width(CONTINUED);
        }
        row.push(character);
        used += wide;
    }
    rows.push(row);
    rows
}
