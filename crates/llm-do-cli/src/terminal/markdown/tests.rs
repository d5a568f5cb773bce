use std::num::NonZeroU16;

use proptest::prelude::*;

use super::*;

/// What is written of a text that came in these pieces.
fn written<'a>(pieces: impl IntoIterator<Item = &'a str>, columns: usize) -> String {
    let mut markdown = Markdown::new(MarkdownForm::Styled, columns);
    let mut out: String = pieces.into_iter().map(|piece| markdown.push(piece)).collect();
    out.push_str(&markdown.finish());
    out
}

/// Styles as letters in braces.
fn named(text: &str) -> String {
    let letters = [('1', 'b'), ('2', 'd'), ('3', 'i'), ('4', 'u')];
    let colours = [("32", 'q'), ("35", 'k'), ("36", 'c')];
    let mut out = String::new();
    for (index, part) in text.split("\u{1b}[").enumerate() {
        let Some((codes, rest)) = part.split_once('m').filter(|_| index > 0) else {
            out.push_str(part);
            continue;
        };
        out.push('{');
        for code in codes.split(';') {
            let colour = colours.iter().find(|(colour, _)| *colour == code).map(|(_, letter)| *letter);
            let letter = letters.iter().find(|(letter, _)| code == letter.to_string()).map(|(_, letter)| *letter);
            out.extend(colour.or(letter));
        }
        out.push('}');
        out.push_str(rest);
    }
    out
}

#[track_caller]
fn check(columns: usize, text: &str, expected: &str) {
    assert_eq!(named(&written([text], columns)), expected, "{text:?}");
    let letters: Vec<String> = text.chars().map(String::from).collect();
    let by_letters = written(letters.iter().map(String::as_str), columns);
    assert_eq!(named(&by_letters), expected, "letter by letter: {text:?}");
}

#[test]
fn marks_within_a_line_become_style() {
    let cases = [
        ("plain\n", "plain\n"),
        ("no end", "no end\n"),
        ("a **b** c\n", "a {b}b{} c\n"),
        ("a *b c* d, _e_.\n", "a {i}b c{} d, {i}e{}.\n"),
        ("***both*** **a *b***\n", "{bi}both{} {b}a {bi}b{b}{}\n"),
        ("2 ** 3 and 2*3*4 and snake_case_name __init__\n", "2 ** 3 and 2*3*4 and snake_case_name {b}init{}\n"),
        ("**open\nnext\n", "**open\nnext\n"),
        ("*args and **kwargs\n", "*args and **kwargs\n"),
        ("`a ** b` and `` a`b ``\n", "{c}a ** b{} and {c}a`b{}\n"),
        ("**a `x*y` b**\n", "{b}a {bc}x*y{b} b{}\n"),
        ("重**要**な\n", "重{b}要{}な\n"),
        (r"\*not\* C:\dir \_x", "*not* C:\\dir _x\n"),
        ("see [the page](https://a.example/x_(y)) now\n", "see {u}the page{} {d}(https://a.example/x_(y)){} now\n"),
        ("[https://a.example](https://a.example)\n", "{u}https://a.example{}\n"),
        ("[x] and a[1] and [y](\n", "[x] and a[1] and [y](\n"),
        ("x\u{1b}[2J\r\n", "x\\u{1b}[2J\\r\n"),
        ("⚠\u{fe0f} gi\u{200d}t\n", "⚠\u{fe0f} gi\\u{200d}t\n"),
    ];
    for (text, expected) in cases {
        check(80, text, expected);
    }
}

#[test]
fn lines_begin_with_what_they_are() {
    let cases = [
        ("# Title\n## Two `c`\n#hash\n", "{bu}Title{}\n{b}Two {bc}c{b}{}\n#hash\n"),
        ("- one\n  * two\n+ three\n", "• one\n  • two\n• three\n"),
        ("1. one\n12) twelve\n1.5 is a number\n2024\n", "1. one\n12) twelve\n1.5 is a number\n2024\n"),
        ("> quoted\n> > twice\n>\n", "{d}│{} quoted\n{d}│{} {d}│{} twice\n{d}│{} \n"),
        ("- > # deep\n", "• {d}│{} {bu}deep{}\n"),
        ("- [ ] to do\n- [x] done\n", "• [ ] to do\n• [x] done\n"),
        ("---\n* * *\n- - x\n-5\n", "{d}──────────{}\n{d}──────────{}\n• • x\n-5\n"),
        ("**bold** starts\n*it* too\n", "{b}bold{} starts\n{i}it{} too\n"),
        ("a\n\n\nb\n", "a\n\n\nb\n"),
    ];
    for (text, expected) in cases {
        check(if text.starts_with("---") { 10 } else { 80 }, text, expected);
    }
}

#[test]
fn rows_end_between_words_and_keep_the_margin() {
    let cases = [
        (10, "one two three four\n", "one two\nthree four\n"),
        (10, "- one two three\n", "• one two\n  three\n"),
        (10, "10. one two\n", "10. one\n    two\n"),
        (10, "> one two three\n", "{d}│{} one two\n{d}│{} three\n"),
        (10, "**one two three** x\n", "{b}one two{}\n{b}three{} x\n"),
        (10, "exactly 10\nexactly 11x\n", "exactly 10\nexactly\n11x\n"),
        (10, "go https://a.example/long x\n", "go\nhttps://a.example/long\nx\n"),
        (6, "漢字の文。あ\n", "漢字の\n文。あ\n"),
        (4, "漢字。あ\n", "漢\n字。\nあ\n"),
        (1, "ab c\n", "ab\nc\n"),
        (3, "                - deep\n", "                • deep\n"),
    ];
    for (columns, text, expected) in cases {
        check(columns, text, expected);
    }
}

#[test]
fn code_has_a_few_colours_and_is_not_wrapped() {
    let cases = [
        ("```rust\nlet a = b ** c; // x\n```\nend\n", "{d}── rust{}\n{k}let{} a = b ** c; {d}// x{}\n{d}──{}\nend\n"),
        ("  ```\n  x\n  ```\n", "{d}  ──{}\n  x\n{d}  ──{}\n"),
        ("~~~py\n'''a\nb''' + \"c\" # d\n~~~\n", "{d}── py{}\n{q}'''a{}\n{q}b'''{} + {q}\"c\"{} {d}# d{}\n{d}──{}\n"),
        ("```c\n/* a\n* b */ int x;\n```\n", "{d}── c{}\n{d}/* a{}\n{d}* b */{} {k}int{} x;\n{d}──{}\n"),
        ("```sh\necho $# it's\n```", "{d}── sh{}\necho $# it's\n{d}──{}\n"),
        ("```rust\nfn f<'a>() { letter }\n", "{d}── rust{}\n{k}fn{} f<'a>() { letter }\n"),
        ("```\n\u{1b}[2J\n```\n", "{d}──{}\n\\u{1b}[2J\n{d}──{}\n"),
        ("````\n```\n````\n", "{d}──{}\n```\n{d}──{}\n"),
        ("```one``` line\n", "{c}one{} line\n"),
    ];
    for (text, expected) in cases {
        check(10, text, expected);
    }
}

#[test]
fn tables_are_columns_that_fit() {
    let table = "| Name | Cost |\n|:---|---:|\n| **a** | 1 |\n| `b\\|c` | 1,200 |\nafter\n";
    check(
        80,
        table,
        "{b}Name{}{d} │ {} {b}Cost{}\n{d}─────┼──────{}\n{b}a{}   {d} │ {}    1\n{c}b|c{} {d} │ {}1,200\nafter\n",
    );
    let wide = "| Key | Meaning |\n|---|---|\n| one | a text of many words |\n";
    check(
        20,
        wide,
        "{b}Key{}{d} │ {}{b}Meaning{}\n{d}────┼───────────────{}\none{d} │ {}a text of many\n   {d} │ {}words\n",
    );
    check(10, wide, "Key: one\nMeaning: a\ntext of\nmany words\n");
    // What has no second line of dashes is text.
    check(80, "| a | b |\nnext\n", "| a | b |\nnext\n");
    check(80, "| a |\n| b |", "| a |\n| b |\n");
}

#[test]
fn the_source_is_shown_where_nothing_has_a_style() {
    let mut markdown = Markdown::new(MarkdownForm::Source, 10);
    assert_eq!(markdown.push("# **a** `b`\u{7} and more words"), "# **a** `b`\\u{7} and more words");
    assert!(markdown.is_within_line());
    assert_eq!(markdown.finish(), "\n");
    assert_eq!((markdown.is_within_line(), markdown.finish().as_str()), (false, ""));
}

#[test]
fn whatever_interrupts_a_text_finds_an_empty_line_and_code_goes_on() {
    let mut markdown = Markdown::new(MarkdownForm::Styled, 80);
    let mut out = markdown.push("```rust\nlet a");
    assert!(!markdown.is_within_line());
    out.push_str(&markdown.pause());
    out.push_str("note\n");
    out.push_str(&markdown.push("let b\n```\n| x |\n"));
    assert!(!markdown.is_within_line());
    out.push_str(&markdown.finish());
    assert_eq!(named(&out), "{d}── rust{}\n{k}let{} a\nnote\n{k}let{} b\n{d}──{}\n| x |\n");
}

const SIZES: [(u16, u16); 3] = [(24, 80), (40, 120), (10, 30)];

/// What a terminal shows of it, with its looks.
fn screen(written: &str, (rows, columns): (u16, u16)) -> String {
    let size = |number| NonZeroU16::new(number).unwrap();
    let mut terminal = vt100::Parser::new(size(rows), size(columns), 0);
    terminal.process(written.replace('\n', "\r\n").as_bytes());
    terminal.screen().contents_formatted()
}

fn cut(text: &str, cuts: &[usize]) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for (index, c) in text.char_indices() {
        if cuts.binary_search(&index).is_ok() {
            pieces.push(String::new());
        }
        pieces.last_mut().unwrap().push(c);
    }
    pieces
}

const STORY: &str = "# The harbour\n\nA **new crane** came on *Tuesday*; it carries `60 tonnes`, as [the port](https://port.example/news) says.\n\n\
    - one **item** that is long enough to need more than one row on any of the terminals that there are in this test\n  1. within\n> quoted 漢字の文が続くとき、行は文字の間で終わる。絵文字 👩\u{200d}🚀 ⚠\u{fe0f} too\n\n\
    | Name | Meaning | Cost |\n|---|:-:|--:|\n| **a** | a text of many words that does not fit | 1 |\n| `b` | 漢字 | 1,200 |\n\n\
    ```rust\n/* a comment\nof two lines */ fn main() { let text = \"x\"; } // a line that is longer than any of these terminals, so that it must be parted somewhere by the terminal itself\n```\n\
    ---\n**open and `open\u{1b}[2J\u{202e} end";

#[test]
fn however_a_text_is_cut_the_screen_is_the_same() {
    for size in SIZES {
        let columns = usize::from(size.1);
        let whole = written([STORY], columns);
        let shown = screen(&whole, size);
        let every: Vec<usize> = (0..STORY.len()).collect();
        let mut random = fastrand::Rng::with_seed(7);
        let some = (0..1_000).map(|_| {
            let mut cuts: Vec<usize> = (0..random.usize(1..40)).map(|_| random.usize(0..STORY.len())).collect();
            cuts.sort_unstable();
            cuts
        });
        for (index, cuts) in std::iter::once(every).chain(some).enumerate() {
            let pieces = cut(STORY, &cuts);
            let out = written(pieces.iter().map(String::as_str), columns);
            // The same bytes are the same screen: the terminal need not be asked each time.
            if out != whole || index % 50 == 0 {
                assert_eq!(screen(&out, size), shown, "{cuts:?}");
            }
        }
    }
}

#[test]
fn wherever_a_text_pauses_its_words_are_shown_and_the_screen_is_the_same_at_the_end() {
    let mut markdown = Markdown::new(MarkdownForm::Styled, 12);
    let mut out = markdown.push("It is half");
    out.push_str(&markdown.show_early());
    assert!(markdown.is_within_line());
    assert!(out.ends_with("half"), "{out:?}");
    for size in SIZES {
        let columns = usize::from(size.1);
        let shown = screen(&written([STORY], columns), size);
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..100 {
            let mut pauses: Vec<usize> = match round {
                0 => (0..STORY.len()).collect(),
                _ => (0..random.usize(1..40)).map(|_| random.usize(0..STORY.len())).collect(),
            };
            pauses.sort_unstable();
            let (mut markdown, mut out) = (Markdown::new(MarkdownForm::Styled, columns), String::new());
            for piece in cut(STORY, &pauses) {
                out.push_str(&markdown.push(&piece));
                out.push_str(&markdown.show_early());
            }
            out.push_str(&markdown.finish());
            assert_eq!(screen(&out, size), shown, "{pauses:?}");
        }
    }
}

#[test]
fn nothing_takes_long_that_only_looks_like_marks() {
    // Each would be read again and again by a reader without bounds.
    for hostile in ["*a ", "[", "`", "**a", "_a ", "| a ", "> ", "- ", "#", "[a](", "~", "\\", "漢", "1.", "   "] {
        let text = hostile.repeat(20_000);
        assert!(!written([text.as_str()], 80).is_empty(), "{hostile}");
        assert!(!written([format!("```rust\n{text}").as_str()], 80).is_empty(), "{hostile}");
        assert!(!written([format!("|{text}|\n|--|\n|{text}|").as_str()], 80).is_empty(), "{hostile}");
    }
}

proptest! {
    #[test]
    fn no_text_paints_and_no_split_matters(
        text in r"([ -~]|[*`#\n\t\r|_>-]|\PC|漢|[\x00-\x1f\x7f-\x9f\u{202e}\u{200b}\u{fe0f}]){0,120}",
        mut cuts in proptest::collection::vec(0..240usize, 0..8),
        size in 0..3usize,
    ) {
        cuts.sort_unstable();
        let (size, columns) = (SIZES[size], usize::from(SIZES[size].1));
        let whole = written([text.as_str()], columns);
        let pieces = cut(&text, &cuts);
        let in_pieces = written(pieces.iter().map(String::as_str), columns);
        prop_assert_eq!(screen(&in_pieces, size), screen(&whole, size));
        prop_assert_eq!(in_pieces, whole.clone());
        let bare = named(&whole);
        prop_assert!(!bare.chars().any(|c| c != '\n' && c.is_control()), "{bare:?}");
    }

    #[test]
    fn no_word_is_lost(
        parts in proptest::collection::vec((0..24usize, r"[*_`~#>\[\]()! \n-]{1,4}"), 0..60),
        // In a column that is narrower than a word the word is cut.
        columns in 40..90usize,
    ) {
        let text: String = parts.iter().enumerate().map(|(index, (kind, marks))| match kind {
            0 => format!("\n```rust\nw{index}x\n"),
            1 => format!("\n| w{index}x | {marks}"),
            2 => format!("\n|---|---|\nw{index}x"),
            _ => format!("{marks}w{index}x "),
        }).collect();
        let shown = named(&written([text.as_str()], columns));
        for index in 0..parts.len() {
            let word = format!("w{index}x");
            prop_assert!(shown.contains(&word), "{word} of {text:?} in {shown}");
        }
    }
}
