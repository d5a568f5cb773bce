//! Foreign text made harmless for display: one function, used wherever text of a file, a model or a tool is shown.

use std::borrow::Cow;

/// Control, bidirectional and invisible characters as visible escapes (`\n`, `\u{202e}`); everything else as it is.
pub fn visible(text: &str) -> Cow<'_, str> {
    // Nearly all texts are plain; only others are looked at character by character.
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_plain || !text.chars().any(deceives) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if deceives(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Zero if JSON writes all of these bytes as they are. Else the lowest bit that is set is the highest one of the first byte that
/// is escaped; what is set above it means nothing. Eight bytes at a time, by arithmetic: a compiler that is to make a small
/// program makes no such loop of one that goes byte by byte.
pub(crate) fn escaped_in_json(bytes: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHEST: u64 = u64::from_le_bytes([0x80; 8]);
    let word = u64::from_le_bytes(bytes);
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
    let is = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (is(b'"') | is(b'\\') | below(word, b' ')) & HIGHEST
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

/// Like [`visible`], for names and sentences with names in them: a word of several alphabets looks like another one, so
/// its letters that are not Latin are spelled out, and it is marked.
pub fn visible_name(text: &str) -> Cow<'_, str> {
    let shown = visible(text);
    if shown.is_ascii() || !words(&shown).any(is_mixed) {
        return shown;
    }
    let mut marked = String::with_capacity(shown.len() + 32);
    let mut rest = shown.as_ref();
    while !rest.is_empty() {
        let end = rest.find(is_between_names).unwrap_or(rest.len());
        // A colon behind a name is not part of it.
        let end = Some(rest[..end].trim_end_matches(':').len()).filter(|end| *end > 0).unwrap_or(end);
        let (name, after) = rest.split_at(end);
        let between = after.find(|c| !is_between_names(c)).unwrap_or(after.len());
        // The mark stands behind the name and what closes it, not inside.
        let close = usize::from(after.starts_with('`'));
        let is_marked = words(name).any(is_mixed);
        if is_marked {
            spell(name, &mut marked);
        } else {
            marked.push_str(name);
        }
        marked.push_str(&after[..close]);
        if is_marked {
            marked.push_str(" (mixed alphabets)");
        }
        marked.push_str(&after[close..between]);
        rest = &after[between..];
    }
    Cow::Owned(marked)
}

fn is_between_names(c: char) -> bool {
    c.is_whitespace() || c == '`'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn is_mixed(word: &str) -> bool {
    let mut alphabets = word.chars().filter_map(Alphabet::of);
    alphabets.next().is_some_and(|first| alphabets.any(|other| other != first))
}

/// Writes a name in which the other letters of mixed words are escapes.
fn spell(name: &str, out: &mut String) {
    for piece in name.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let is_foreign = |c: char| matches!(Alphabet::of(c), Some(Alphabet::Greek | Alphabet::Cyrillic));
        let is_mixed = words(piece).any(is_mixed);
        for c in piece.chars() {
            if is_mixed && is_foreign(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
        }
    }
}

/// The alphabets whose letters look like each other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alphabet {
    Latin,
    Greek,
    Cyrillic,
}

impl Alphabet {
    fn of(c: char) -> Option<Self> {
        match c {
            '\u{d7}' | '\u{f7}' => None,
            'A'..='Z'
            | 'a'..='z'
            | '\u{c0}'..='\u{2af}'
            | '\u{1e00}'..='\u{1eff}'
            | '\u{2c60}'..='\u{2c7f}'
            | '\u{a722}'..='\u{a7ff}'
            | '\u{ab30}'..='\u{ab64}'
            | '\u{ff21}'..='\u{ff3a}'
            | '\u{ff41}'..='\u{ff5a}' => Some(Self::Latin),
            '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Some(Self::Greek),
            '\u{400}'..='\u{52f}' | '\u{1c80}'..='\u{1c8f}' | '\u{2de0}'..='\u{2dff}' | '\u{a640}'..='\u{a69f}' => {
                Some(Self::Cyrillic)
            }
            _ => None,
        }
    }
}

/// JSON that says the same without a character that could deceive its reader: inside of JSON each can be written as
/// `\uXXXX`. Characters below a space stand only between its tokens.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    // Nearly all texts are plain; only others are looked at character by character.
    let needs_escape = |c: char| c > '~' && deceives(c);
    if json.bytes().all(|byte| byte <= b'~') || !json.chars().any(needs_escape) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if needs_escape(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| shown.push_str(&format!("\\u{unit:04x}")));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether a character changes what a terminal shows without being seen itself: controls, those that Unicode calls
/// ignorable by default, the ends of lines and annotations, and the braille pattern that has no dot.
#[cfg(feature = "front-end")]
pub fn is_deceptive(c: char) -> bool {
    deceives(c)
}

/// The same, for every door of the library.
pub(crate) fn deceives(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// JSON whose escapes are whole characters: `\\ud83d` without its other half, which no text can hold, becomes `\\ufffd`.
pub(crate) fn whole_characters(json: &[u8]) -> Cow<'_, [u8]> {
    let unit = |at: usize| {
        let digits = json.get(at..)?.strip_prefix(b"\\u")?.get(..4)?;
        u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut whole, mut start) = (Cow::Borrowed(json), 0);
    while let Some(found) = json.get(start..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        let at = start + found;
        // Most escapes are of quotes and of ends of lines.
        if json.get(at + 1) != Some(&b'u') {
            start = at + 2;
            continue;
        }
        let is_pair = matches!((unit(at), unit(at + 6)), (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)));
        start = match unit(at) {
            Some(0xd800..=0xdfff) if is_pair => at + 12,
            Some(0xd800..=0xdfff) => {
                whole.to_mut()[at + 2..at + 6].copy_from_slice(b"fffd");
                at + 6
            }
            Some(_) | None => at + 2,
        };
    }
    whole
}

#[cfg(test)]
mod tests {
    #[test]
    fn escapes_of_half_characters_are_replaced_and_no_others() {
        let cases = [
            (r#""a\ud83d\ude00b\n\"""#, r#""a\ud83d\ude00b\n\"""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\uDE00x\uD83D\u0041""#, r#""\ufffdx\ufffd\u0041""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d \\\ud83d""#, r#""\\ud83d \\\ufffd""#),
            (r#""\ud8"#, r#""\ud8"#),
            (r"\", r"\"),
            ("", ""),
        ];
        for (json, expected) in cases {
            assert_eq!(str::from_utf8(&super::whole_characters(json.as_bytes())), Ok(expected), "{json}");
        }
    }

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
            ("notes\u{1bca0}.md\u{2800}", "notes\\u{1bca0}.md\\u{2800}"),
        ];
        for (text, shown) in cases {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn names_of_mixed_alphabets_are_marked() {
        let cases = [
            ("payment.md", "payment.md"),
            ("p\u{430}yment.md", "p\\u{430}yment.md (mixed alphabets)"),
            ("creates p\u{430}yment.md: 1 line: ::", "creates p\\u{430}yment.md (mixed alphabets): 1 line: ::"),
            (
                "writes `docs/p\u{430}yment.md`, a new file",
                "writes `docs/p\\u{430}yment.md` (mixed alphabets), a new file",
            ),
            ("\u{3bf}auth \u{202e}x", "\\u{3bf}auth (mixed alphabets) \\u{202e}x"),
            ("\u{3b1}\u{430}", "\\u{3b1}\\u{430} (mixed alphabets)"),
            // People write whole words of one alphabet beside those of another, so these are not marked.
            ("отчёт.md", "отчёт.md"),
            ("отчёт_final-v2.md", "отчёт_final-v2.md"),
            ("Ελλάδα 2026.txt, naïve Łódź ﬁ 漢字v2", "Ελλάδα 2026.txt, naïve Łódź ﬁ 漢字v2"),
            ("10µm×3", "10µm×3"),
        ];
        for (name, shown) in cases {
            assert_eq!(visible_name(name), shown);
        }
    }

    #[test]
    fn json_is_shown_with_escapes_and_says_the_same() {
        let text = "\u{9b}2J\u{202e}\u{7f}\u{2066}\u{200b}\u{85}\u{e0041}\u{2800} plain ünïcode\n\u{1}";
        let json = serde_json::to_string(&[text]).unwrap();
        let shown = visible_json(&json);
        let expected = r#"["\u009b2J\u202e\u007f\u2066\u200b\u0085\udb40\udc41\u2800 plain ünïcode\n\u0001"]"#;
        assert_eq!(shown, expected);
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [text]);
        assert_eq!(visible_json("{\n  \"a\": 1\n}"), "{\n  \"a\": 1\n}");
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let json = serde_json::to_string(&c).unwrap();
            let shown = visible_json(&json);
            assert!(!shown.chars().any(deceives), "{shown}");
            assert_eq!(serde_json::from_str::<char>(&shown).unwrap(), c);
        }
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!(visible_start("abc", 3), "abc");
        assert_eq!(visible_start("äbcd", 2), "äb…");
    }
}
