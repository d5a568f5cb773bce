//! Foreign text made harmless for display: one function, used wherever text of a file, a model or a tool is shown.

use std::borrow::Cow;

/// Control, bidirectional and invisible characters as visible escapes (`\n`, `\u{202e}`); everything else as it is.
pub fn visible(text: &str) -> Cow<'_, str> {
    // Nearly always; the rest is only looked at one by one.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain || !text.chars().any(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_deceptive(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Like [`visible`], but lines stay lines.
pub fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// Like [`visible`], shortened to `limit` characters with a mark at the cut.
pub fn visible_start(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => visible(text),
        Some((cut, _)) => Cow::Owned(format!("{}…", visible(&text[..cut]))),
    }
}

/// Whether a character changes what a terminal shows without being seen itself.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_deceive_is_spelled_out() {
        let cases = [
            ("plain ünïcode 漢字", "plain ünïcode 漢字"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u{1b}[2K", "\\u{1b}[2K"),
            ("gi\u{200b}t", "gi\\u{200b}t"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe"),
            ("\u{9b}2K", "\\u{9b}2K"),
            ("\u{e0041}", "\\u{e0041}"),
        ];
        for (text, shown) in cases {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!(visible_start("abc", 3), "abc");
        assert_eq!(visible_start("äbcd", 2), "äb…");
    }
}
