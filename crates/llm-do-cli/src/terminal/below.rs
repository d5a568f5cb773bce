//! Rows at the end of a terminal, below what was written: drawn, drawn again and erased without a trace. Pure.
//!
//! A line without end may stand above them. Then room is made below it, its end is remembered by the terminal, and what is
//! written next goes on there: whoever writes need not know where that is.

use unicode_width::UnicodeWidthChar as _;

/// What stands below, and how it was drawn.
#[derive(Debug, Default)]
pub struct Below {
    drawn: Option<DrawnRows>,
    /// How wide the last line is that was written without an end.
    open: usize,
}

#[derive(Clone, Copy, Debug)]
struct DrawnRows {
    count: usize,
    /// Below a line without end.
    is_below_open: bool,
}

const CLEAR_ROW: &str = "\u{1b}[K";
const CLEAR_REST: &str = "\u{1b}[J";

impl Below {
    pub fn is_drawn(&self) -> bool {
        self.drawn.is_some()
    }

    /// What stood on the terminal is gone.
    pub fn forget(&mut self) {
        self.drawn = None;
    }

    /// Text that goes on where the last one ended.
    pub fn written(&mut self, text: &str) {
        self.open = end_of(self.open, text);
    }

    /// Takes the rows away: what is written next stands where it would without them.
    pub fn erased(&mut self) -> String {
        match self.drawn.take() {
            None => String::new(),
            Some(DrawnRows { is_below_open: true, .. }) => format!("\u{1b}8{CLEAR_REST}"),
            Some(DrawnRows { count: 1, .. }) => format!("\r{CLEAR_ROW}"),
            Some(DrawnRows { count, .. }) => format!("\r\u{1b}[{}A{CLEAR_REST}", count - 1),
        }
    }

    /// Draws rows, none of them wider than the terminal, in place of those that stand there. `cursor` is a column of the last
    /// one. Nothing where an open line ends at the edge of the terminal: it is not known on which row its end is.
    pub fn drawn(&mut self, rows: &[String], cursor: Option<usize>, columns: usize) -> String {
        let (count, is_below_open) = (rows.len(), self.open > 0);
        if count == 0 || (is_below_open && self.open.is_multiple_of(columns.max(1))) {
            return self.erased();
        }
        let mut out = String::new();
        if is_below_open {
            out.push_str(&self.erased());
            // These move down in the same column, and the screen with it if need be.
            out.push_str(&"\u{b}".repeat(count));
            out.push_str(&format!("\u{1b}[{count}A\u{1b}7"));
            out.extend(rows.iter().map(|row| format!("\r\n{row}{CLEAR_ROW}")));
        } else {
            let before = self.drawn.map_or(1, |drawn| drawn.count);
            out.push('\r');
            if before > 1 {
                out.push_str(&format!("\u{1b}[{}A", before - 1));
            }
            out.push_str(&rows.iter().map(|row| format!("{row}{CLEAR_ROW}")).collect::<Vec<_>>().join("\r\n"));
            if before > count {
                // The cursor is behind the last row, which stays.
                out.push_str(&format!("\r\n{CLEAR_REST}\u{1b}[A"));
            }
        }
        match cursor {
            Some(0) => out.push('\r'),
            Some(column) => out.push_str(&format!("\r\u{1b}[{column}C")),
            None if count < self.drawn.map_or(1, |drawn| drawn.count) => out.push('\r'),
            None => {}
        }
        self.drawn = Some(DrawnRows { count, is_below_open });
        out
    }
}

/// How wide the last line of a text is that goes on from a width.
fn end_of(start: usize, text: &str) -> usize {
    let (mut width, last) = match text.rfind('\n') {
        Some(end) => (0, &text[end + 1..]),
        None => (start, text),
    };
    let mut signs = last.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\u{1b}' => {
                // Styles only: `ESC [ … letter`.
                let _ = signs.by_ref().skip(1).find(|sign| ('@'..='~').contains(sign));
            }
            '\r' => width = 0,
            sign => width += sign.width().unwrap_or(0),
        }
    }
    width
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    /// A terminal of 8 rows and 20 columns, and one on which all that was written has room, without rows below.
    struct Twin {
        seen: vt100::Parser,
        plain: vt100::Parser,
        below: Below,
    }

    impl Twin {
        fn new() -> Self {
            let size = |number| NonZeroU16::new(number).unwrap();
            let parser = |rows| vt100::Parser::new(size(rows), size(20), 0);
            Self { seen: parser(8), plain: parser(1000), below: Below::default() }
        }

        fn write(&mut self, text: &str) {
            let erased = self.below.erased();
            self.seen.process(erased.as_bytes());
            let text = text.replace('\n', "\r\n");
            self.seen.process(text.as_bytes());
            self.plain.process(text.as_bytes());
            self.below.written(&text);
            let (seen, plain) = (self.seen.screen().contents(), self.plain.screen().contents());
            assert!(plain.ends_with(&seen), "{plain:?}\n{seen:?}");
            assert_eq!(self.seen.screen().cursor_position().1, self.plain.screen().cursor_position().1);
        }

        fn draw(&mut self, rows: &[String]) {
            let drawn = self.below.drawn(rows, Some(3), 20);
            self.seen.process(drawn.as_bytes());
        }
    }

    fn rows(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("row {number}")).collect()
    }

    #[test]
    fn rows_stand_below_an_open_line_and_are_gone_when_it_goes_on() {
        let mut twin = Twin::new();
        twin.write("one\ntwo");
        twin.draw(&rows(2));
        assert_eq!(twin.seen.screen().contents(), "one\ntwo\nrow 0\nrow 1");
        twin.write(" goes on");
        twin.draw(&rows(1));
        assert_eq!(twin.seen.screen().contents(), "one\ntwo goes on\nrow 0");
        twin.write("\n");
        twin.draw(&rows(3));
        assert_eq!(twin.seen.screen().contents(), "one\ntwo goes on\nrow 0\nrow 1\nrow 2");
        twin.draw(&rows(1));
        assert_eq!(twin.seen.screen().contents(), "one\ntwo goes on\nrow 0");
        twin.write("end");
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_written_stands_as_without_rows(
            steps in proptest::collection::vec(("[a-z \\n]{0,30}", 0..4usize), 0..30),
        ) {
            let mut twin = Twin::new();
            for (text, count) in steps {
                twin.write(&text);
                twin.draw(&rows(count));
                twin.draw(&rows(count));
            }
            twin.write("x");
        }
    }
}
