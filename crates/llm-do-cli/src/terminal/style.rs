//! The few styles that are used on a terminal, and widths on it. Pure.

use llm_do::escape::visible;
use unicode_width::UnicodeWidthChar as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Bold,
    Code,
    Dim,
    Added,
    Removed,
    Warning,
}

impl Style {
    pub const END: &str = "\u{1b}[0m";

    pub fn start(self) -> &'static str {
        match self {
            Self::Bold => "\u{1b}[1m",
            Self::Code => "\u{1b}[36m",
            Self::Dim => "\u{1b}[2m",
            Self::Added => "\u{1b}[32m",
            Self::Removed => "\u{1b}[31m",
            Self::Warning => "\u{1b}[33m",
        }
    }
}

/// Styles, or the plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Styles {
    pub coloured: bool,
}

impl Styles {
    pub fn paint(self, style: Style, text: &str) -> String {
        if self.coloured { format!("{}{text}{}", style.start(), Style::END) } else { text.to_owned() }
    }
}

/// How many columns a text takes; what has no width of its own takes none.
pub fn width(text: &str) -> usize {
    // Nearly all that is put into columns is plain, and there may be many thousand cells of it.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.len();
    }
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// Foreign text as one line of at most this many columns, with a mark at the cut.
pub fn fit(text: &str, columns: usize) -> String {
    // Nothing is made visible that would be cut off again: an argument may be megabytes.
    let near: String = text.chars().take(columns + 1).collect();
    let shown = visible(&near);
    if width(&shown) <= columns {
        return shown.into_owned();
    }
    let mut used = 1;
    let kept = shown.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    kept.chain(['…']).collect()
}

/// A line as rows of at most this many columns.
pub fn wrap(line: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
    for c in line.chars() {
        let width = c.width().unwrap_or(0);
        if used + width > columns && !row.is_empty() {
            rows.push(std::mem::take(&mut row));
            used = 0;
        }
        row.push(c);
        used += width;
    }
    rows.push(row);
    rows
}

/// Lines of which none is wider than the terminal: one that is becomes rows, which end between words and begin below the text of
/// the first one, as in the last column of a table.
pub fn wrap_lines(text: &str, columns: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line = line.trim_end_matches('\n');
        if width(line) <= columns {
            wrapped.push_str(line);
        } else {
            // The last column of a table, if it leaves room for words.
            let begins = line.rfind("  ").map_or(0, |gap| gap + 2);
            let begins = if width(&line[..begins]) * 2 <= columns { begins } else { 0 };
            let (head, rest) = line.split_at(begins);
            let words: Vec<String> = rest.split(' ').map(str::to_owned).collect();
            let rows = wrap_words(&words, " ", columns - width(head));
            wrapped.push_str(&format!("{head}{}", rows.join(&format!("\n{}", " ".repeat(width(head))))));
        }
        wrapped.push('\n');
    }
    wrapped
}

/// Words in rows of at most this many columns, with this between two of them; none is cut unless it alone is wider.
pub fn wrap_words(words: &[String], gap: &str, columns: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in words {
        match rows.last_mut() {
            Some(row) if width(row) + width(gap) + width(word) <= columns => {
                row.push_str(gap);
                row.push_str(word);
            }
            _ => rows.extend(wrap(word, columns)),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_fits_into_its_columns() {
        let cases = [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("漢字", 3, "漢…"), ("a\nb", 10, "a\\nb"), ("", 3, "")];
        for (text, columns, expected) in cases {
            assert_eq!(fit(text, columns), expected);
            assert!(width(&fit(text, columns)) <= columns);
        }
    }

    #[test]
    fn a_long_line_becomes_rows() {
        assert_eq!(wrap("abcdefg", 3), ["abc", "def", "g"]);
        assert_eq!(wrap("漢字", 3), ["漢", "字"]);
        assert_eq!(wrap("", 3), [""]);
        let words = ["y yes", "n no", "q stop"].map(str::to_owned);
        assert_eq!(wrap_words(&words, "  ", 11), ["y yes  n no", "q stop"]);
        assert_eq!(wrap_words(&words, "  ", 4), ["y ye", "s", "n no", "q st", "op"]);
        for (text, columns, expected) in [
            ("a\n\nb", 3, "a\n\nb\n"),
            ("nothing was allowed", 11, "nothing was\nallowed\n"),
            ("shell  allow ls, cat, head\n", 16, "shell  allow ls,\n       cat, head\n"),
            ("a long name  and more of it\n", 14, "a long name \nand more of it\n"),
            ("", 3, ""),
        ] {
            assert_eq!(wrap_lines(text, columns), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_wider_than_it_may_be(text in r"(\PC|[\x00-\x1f]){0,80}", columns in 2..60usize) {
            let fitted = fit(&text, columns);
            proptest::prop_assert!(width(&fitted) <= columns && !fitted.contains('\n'));
            proptest::prop_assert_eq!(wrap(&fitted, columns).len(), 1);
            let shown = llm_do::escape::visible(&text);
            let rows = wrap(&shown, columns);
            proptest::prop_assert!(rows.iter().all(|row| width(row) <= columns));
            proptest::prop_assert_eq!(rows.concat(), shown.as_ref());
        }
    }
}
