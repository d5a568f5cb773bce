//! Tables as columns that fit the terminal. Pure.

use super::flow::Flow;
use super::inline::InlineReader;
use super::look::Appearance;
use crate::terminal::style::width;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Middle,
    Right,
}

/// Whether the line parts the head of a table from its rows.
pub fn is_delimiter(line: &str) -> bool {
    let cells = cells(line);
    line.contains('-') && cells.iter().all(|cell| side(cell).is_some())
}

fn side(cell: &str) -> Option<Side> {
    let dashes = cell.strip_prefix(':').unwrap_or(cell);
    let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
    if dashes.is_empty() || dashes.bytes().any(|byte| byte != b'-') {
        return None;
    }
    Some(match (cell.starts_with(':'), cell.ends_with(':')) {
        (true, true) => Side::Middle,
        (false, true) => Side::Right,
        (true | false, false) => Side::Left,
    })
}

/// The texts between the bars; one behind a backslash or within code is no bar.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let (mut cells, mut cell, mut in_code, mut is_escaped) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '|' if !is_escaped && !in_code => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            '|' if is_escaped => {
                cell.pop();
                cell.push(c);
            }
            c => cell.push(c),
        }
        in_code ^= c == '`' && line.matches('`').count().is_multiple_of(2);
        is_escaped = c == '\\' && !is_escaped;
    }
    if !cell.trim().is_empty() {
        cells.push(cell.trim().to_owned());
    }
    cells
}

const GAP: &str = " │ ";
/// A column that is narrower shows letters, not words.
const NARROWEST: usize = 6;

/// The lines of a table: its head, the line that parts it from the rows, the rows.
pub fn draw(lines: &[String], columns: usize, out: &mut String) {
    let [head, delimiter, rows @ ..] = lines else { return };
    let sides: Vec<Side> = cells(delimiter).iter().filter_map(|cell| side(cell)).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).map(|row| cells(row)).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let natural: Vec<usize> = (0..count).map(|column| widest(&rows, column)).collect();
    let room = columns.saturating_sub(GAP.chars().count() * count.saturating_sub(1));
    match fitted(&natural, room) {
        Some(widths) => grid(&rows, &widths, &sides, out),
        None => records(&rows, columns, out),
    }
}

fn widest(rows: &[Vec<String>], column: usize) -> usize {
    let shown = |row: &Vec<String>| row.get(column).map_or(0, |cell| bare_width(cell));
    rows.iter().map(shown).max().unwrap_or(0).max(1)
}

/// The widest columns give way first, down to the narrowest that is still read. `None` if there is no room for all.
fn fitted(natural: &[usize], room: usize) -> Option<Vec<usize>> {
    let least: usize = natural.iter().map(|width| (*width).min(NARROWEST)).sum();
    if least > room {
        return None;
    }
    let is_enough = |cap: usize| natural.iter().map(|width| (*width).min(cap)).sum::<usize>() <= room;
    let cap = (NARROWEST..=room.max(NARROWEST)).rev().find(|cap| is_enough(*cap)).unwrap_or(NARROWEST);
    let mut widths: Vec<usize> = natural.iter().map(|width| (*width).min(cap)).collect();
    // What is left over after an equal share goes to whoever wants more, from the left.
    let mut left = room - widths.iter().sum::<usize>();
    for (width, natural) in widths.iter_mut().zip(natural) {
        let more = (natural - *width).min(left);
        (*width, left) = (*width + more, left - more);
    }
    Some(widths)
}

fn grid(rows: &[Vec<String>], widths: &[usize], sides: &[Side], out: &mut String) {
    for (index, row) in rows.iter().enumerate() {
        let look = if index == 0 { Appearance::BOLD } else { Appearance::PLAIN };
        let empty = String::new();
        let shown =
            widths.iter().enumerate().map(|(column, width)| cell_rows(row.get(column).unwrap_or(&empty), *width, look));
        let shown: Vec<Vec<String>> = shown.collect();
        for line in 0..shown.iter().map(Vec::len).max().unwrap_or(0) {
            let mut pieces = Vec::new();
            for (column, width) in widths.iter().enumerate() {
                let piece = shown.get(column).and_then(|rows| rows.get(line)).map_or("", String::as_str);
                pieces.push(aside(piece, *width, sides.get(column).copied().unwrap_or(Side::Left)));
            }
            out.push_str(pieces.join(&painted(GAP)).trim_end_matches(' '));
            out.push('\n');
        }
        if index == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            out.push_str(&painted(&rules.join("─┼─")));
            out.push('\n');
        }
    }
}

fn painted(text: &str) -> String {
    let mut out = String::new();
    Appearance::PLAIN.change(Appearance::DIM, &mut out);
    out.push_str(text);
    Appearance::DIM.change(Appearance::PLAIN, &mut out);
    out
}

fn aside(piece: &str, columns: usize, side: Side) -> String {
    let missing = columns.saturating_sub(shown_width(piece));
    let before = match side {
        Side::Left => 0,
        Side::Middle => missing / 2,
        Side::Right => missing,
    };
    format!("{}{piece}{}", " ".repeat(before), " ".repeat(missing - before))
}

/// Where the columns do not fit side by side: a line for each cell, with the name of its column.
fn records(rows: &[Vec<String>], columns: usize, out: &mut String) {
    let Some((head, rows)) = rows.split_first() else { return };
    if rows.is_empty() {
        out.push_str(&text_rows(&head.join(" │ "), columns, Appearance::BOLD).join("\n"));
        out.push('\n');
    }
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            out.push_str(&painted(&"─".repeat(columns.min(8))));
            out.push('\n');
        }
        for (column, cell) in row.iter().enumerate() {
            let name = head.get(column).filter(|name| !name.is_empty());
            let line = name.map_or_else(|| cell.clone(), |name| format!("{name}: {cell}"));
            out.push_str(&text_rows(&line, columns, Appearance::PLAIN).join("\n"));
            out.push('\n');
        }
    }
}

fn cell_rows(cell: &str, columns: usize, look: Appearance) -> Vec<String> {
    if look == Appearance::PLAIN && cell.len() <= columns && has_no_marks(cell) {
        return vec![cell.to_owned()];
    }
    let rows = text_rows(cell, columns, look);
    // A word that is too wide is written in one: in a column it is cut into rows instead.
    if rows.iter().all(|row| shown_width(row) <= columns) {
        return rows;
    }
    crate::terminal::style::wrap(&bare(cell), columns)
}

/// Rows of a text with its marks as styles; each row begins and ends without one.
fn text_rows(text: &str, columns: usize, look: Appearance) -> Vec<String> {
    let (mut flow, mut inline, mut out) = (Flow::new(columns), InlineReader::new(look), String::new());
    flow.set_look(look);
    text.chars().for_each(|c| inline.take(c, &mut flow, &mut out));
    inline.end(&mut flow, &mut out);
    flow.end_line(&mut out);
    out.lines().map(str::to_owned).collect()
}

/// As it is shown, without its looks.
fn bare(cell: &str) -> String {
    without_codes(&text_rows(cell, usize::MAX, Appearance::PLAIN).concat())
}

fn bare_width(cell: &str) -> usize {
    if has_no_marks(cell) { cell.len() } else { width(&bare(cell)) }
}

/// Most cells are words and numbers.
fn has_no_marks(cell: &str) -> bool {
    cell.bytes().all(|byte| byte == b' ' || byte.is_ascii_alphanumeric() || b".,-$%".contains(&byte))
}

fn shown_width(piece: &str) -> usize {
    if piece.contains('\u{1b}') { width(&without_codes(piece)) } else { width(piece) }
}

/// Only our own codes are here: what came from outside was made harmless.
fn without_codes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, part) in text.split('\u{1b}').enumerate() {
        out.push_str(if index == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) });
    }
    out
}
