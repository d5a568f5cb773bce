//! The picture on top of the README: a real approval on a real terminal, cell by cell. `LLM_DO_WRITE_SESSION=1` draws it anew.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use vt100::{Cell, Color, Screen};

use crate::repository;
use crate::support::Sandbox;
use crate::terminal::{Elsewhere, Terminal};

const PICTURE: &str = "docs/approval.svg";
/// As it is typed after `llm-do new demo --template demo`.
const TYPED: &str = "$ llm-do demo";

const ROWS: u16 = 40;
const COLUMNS: u16 = 80;
/// Of one cell, in pixels.
const WIDTH: f64 = 9.0;
const HEIGHT: f64 = 21.0;
const MARGIN: f64 = 22.0;
/// Of the bar above the terminal.
const BAR: f64 = 34.0;

/// Colours as GitHub's own, in its light and in its dark form.
const STYLE: &str = "\
  .page { fill: #f6f8fa; stroke: #d1d9e0; } .bar { fill: #59636e; } text { fill: #1f2328; }
  .bold { font-weight: 700; } .dim { fill: #656d76; } .italic { font-style: italic; }
  .red { fill: #cf222e; } .green { fill: #1a7f37; } .yellow { fill: #8a5a00; } .magenta { fill: #8250df; } .cyan { fill: #0a6b73; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d; } .bar { fill: #9198a1; } text { fill: #e6edf3; }
    .dim { fill: #9198a1; } .red { fill: #ff7b72; } .green { fill: #56d364; } .yellow { fill: #e3b341; }
    .magenta { fill: #d2a8ff; } .cyan { fill: #56d4dd; }
  }
";

fn classes(cell: &Cell) -> String {
    let colour = match cell.fgcolor() {
        Color::Idx(1) => "red",
        Color::Idx(2) => "green",
        Color::Idx(3) => "yellow",
        Color::Idx(5) => "magenta",
        Color::Idx(6) => "cyan",
        Color::Default => "",
        other => panic!("the picture has no name for {other:?}"),
    };
    let styles = [(cell.bold(), "bold"), (cell.dim(), "dim"), (cell.italic(), "italic")];
    let styles = styles.into_iter().filter_map(|(is_set, name)| is_set.then_some(name));
    let classes: Vec<&str> = styles.chain((!colour.is_empty()).then_some(colour)).collect();
    classes.join(" ")
}

/// Neighbours that look alike, with the column of the first one and how many columns they take.
fn runs(screen: &Screen, row: u16) -> Vec<(u16, u16, String, String)> {
    let mut runs: Vec<(u16, u16, String, String)> = Vec::new();
    for column in 0..COLUMNS {
        let Some(cell) = screen.cell(row, column).filter(|cell| !cell.is_wide_continuation()) else { continue };
        let (classes, width) = (classes(cell), if cell.is_wide() { 2 } else { 1 });
        let letter = if cell.has_contents() { cell.contents() } else { " " };
        match runs.last_mut() {
            Some((start, length, look, text)) if *look == classes && *start + *length == column => {
                *length += width;
                text.push_str(letter);
            }
            Some(_) | None => runs.push((column, width, classes, letter.to_owned())),
        }
    }
    runs.retain(|(.., text)| !text.trim().is_empty());
    runs
}

fn draw(screen: &Screen) -> String {
    let rows: Vec<_> = (0..ROWS).map(|row| runs(screen, row)).collect();
    let count = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
    let (width, height) =
        (f64::from(COLUMNS) * WIDTH + 2.0 * MARGIN, BAR + f64::from(u16::try_from(count).unwrap()) * HEIGHT + MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"15\" role=\"img\">\n\
         <title>llm-do asks before a file is written</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"10\"/>\n",
        width - 1.0,
        height - 1.0
    );
    for dot in 0..3_u8 {
        let x = MARGIN + 6.0 + 20.0 * f64::from(dot);
        writeln!(svg, "<circle class=\"bar\" cx=\"{x:.0}\" cy=\"18\" r=\"5\" opacity=\"0.45\"/>").unwrap();
    }
    for (row, runs) in (0_u16..).zip(rows) {
        let y = BAR + f64::from(row) * HEIGHT + 15.0;
        for (column, length, classes, text) in runs {
            // Blanks at both ends are room, not letters.
            let before = text.chars().take_while(|c| *c == ' ').count();
            let after = text.chars().rev().take_while(|c| *c == ' ').count();
            let x = MARGIN + (f64::from(column) + f64::from(u16::try_from(before).unwrap())) * WIDTH;
            let wide = (f64::from(length) - f64::from(u16::try_from(before + after).unwrap())) * WIDTH;
            let class = if classes.is_empty() { String::new() } else { format!(" class=\"{classes}\"") };
            let text = text.trim_matches(' ').replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            // Whatever font is there, a cell is as wide as the others.
            writeln!(
                svg,
                "<text{class} x=\"{x:.0}\" y=\"{y:.0}\" textLength=\"{wide:.0}\" xml:space=\"preserve\">{text}</text>"
            )
            .unwrap();
        }
    }
    svg + "</svg>\n"
}

/// Each question has an id of its own: the picture has always the same one.
fn with_known_id(seen: &str) -> String {
    const BEFORE: &str = "write_file · ";
    let (start, rest) = seen.split_once(BEFORE).unwrap();
    let length = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
    format!("{start}{BEFORE}{}{}", "2dcb9cfd725e".get(..length).unwrap(), &rest[length..])
}

#[test]
fn the_picture_of_an_approval_is_what_is_seen() {
    let sandbox = Sandbox::new().told();
    let made = sandbox.run(&["new", "demo", "--template", "demo"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let program = Path::new(env!("CARGO_BIN_EXE_llm-do")).display();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("printf '%s\\n' '{TYPED}'; exec '{program}' demo")]);
    shell.current_dir(sandbox.path()).env_clear().env("HOME", sandbox.path()).env("PATH", "/usr/bin:/bin");
    let terminal = Terminal::start_sized(shell, (ROWS, COLUMNS), Elsewhere::default());
    terminal.expect("explain").expect_listening();
    let seen = with_known_id(&terminal.cells(draw));
    assert!(seen.contains("Allow?") && seen.contains("asleep"), "{seen}");
    terminal.answer("q");
    terminal.left();
    let path = repository().join(PICTURE);
    if std::env::var_os("LLM_DO_WRITE_SESSION").is_some() {
        return fs::write(path, seen).unwrap();
    }
    let drawn = fs::read_to_string(path).unwrap_or_default();
    assert!(drawn == seen, "{PICTURE} is not what is seen; `LLM_DO_WRITE_SESSION=1` draws it anew:\n{seen}");
}
