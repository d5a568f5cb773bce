//! Light Markdown on a terminal, piece by piece as the text arrives. Nothing of the text is left out: headings, bold
//! words and code get a style, marks included, and what could deceive is escaped. Pure.

use llm_do::escape::is_deceptive;

use crate::terminal::style::Style;

/// Where in a text we are.
#[derive(Debug, Default)]
pub struct Markdown {
    styled: bool,
    line: MarkdownLine,
    in_fence: bool,
    /// Asterisks or backticks whose number decides what they mean, at the start of a line or within it.
    held: String,
    previous: Option<char>,
}

/// The line that is being written.
#[derive(Debug, Default)]
struct MarkdownLine {
    /// Anything but blanks and held marks has been written.
    begun: bool,
    style: Option<Style>,
    bold: bool,
    code: bool,
}

impl Markdown {
    pub fn new(styled: bool) -> Self {
        Self { styled, ..Self::default() }
    }

    /// Whether the last line has no end yet.
    pub fn is_within_line(&self) -> bool {
        self.line.begun || !self.held.is_empty() || self.previous.is_some_and(|c| c != '\n')
    }

    pub fn push(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 16);
        text.chars().for_each(|c| self.take(c, &mut out));
        out
    }

    /// The text is over: what was held is written, and the last line gets its end.
    pub fn finish(&mut self) -> String {
        let mut out = String::new();
        if self.is_within_line() {
            self.take('\n', &mut out);
        }
        *self = Self::new(self.styled);
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        let is_mark = self.styled && matches!(c, '*' | '`' | '#');
        if is_mark && self.held.chars().all(|held| held == c) && self.held.len() < 8 {
            self.held.push(c);
        } else {
            self.release(c, out);
            match c {
                '\n' => self.end_line(out),
                _ if is_mark => self.held.push(c),
                c => self.write(c, out),
            }
        }
        self.previous = Some(c);
    }

    /// What the held marks mean is known by what comes next.
    fn release(&mut self, next: char, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        match held.as_bytes() {
            [] => {}
            [b'`', b'`', b'`', ..] if !self.line.begun => {
                self.in_fence = !self.in_fence;
                self.start_style(Style::Dim, out);
                out.push_str(&held);
            }
            _ if self.in_fence => out.push_str(&held),
            [b'#', ..] if !self.line.begun && held.len() <= 6 && next == ' ' => {
                self.start_style(Style::Bold, out);
                out.push_str(&held);
            }
            [b'*', b'*'] if !self.line.code && (self.line.bold || !next.is_whitespace()) => {
                self.toggle(&held, |line| &mut line.bold, Style::Bold, out);
            }
            [b'`'] => self.toggle(&held, |line| &mut line.code, Style::Code, out),
            _ => out.push_str(&held),
        }
        self.line.begun |= !held.is_empty();
    }

    fn start_style(&mut self, style: Style, out: &mut String) {
        self.line.style = Some(style);
        out.push_str(style.start());
    }

    /// Marks have the style of what they enclose.
    fn toggle(&mut self, marks: &str, flag: fn(&mut MarkdownLine) -> &mut bool, style: Style, out: &mut String) {
        let flag = flag(&mut self.line);
        *flag = !*flag;
        if *flag {
            out.push_str(style.start());
            out.push_str(marks);
            return;
        }
        out.push_str(marks);
        out.push_str(Style::END);
        let MarkdownLine { style, bold, code, .. } = &self.line;
        let still = [*style, bold.then_some(Style::Bold), code.then_some(Style::Code)];
        still.into_iter().flatten().for_each(|style| out.push_str(style.start()));
    }

    /// No style runs on into the next line, whatever was left open.
    fn end_line(&mut self, out: &mut String) {
        let line = std::mem::take(&mut self.line);
        if line.style.is_some() || line.bold || line.code {
            out.push_str(Style::END);
        }
        out.push('\n');
    }

    fn write(&mut self, c: char, out: &mut String) {
        match c {
            '\t' => out.push_str("    "),
            // These belong to an emoji: they change how the sign before them looks, and not where anything stands.
            '\u{fe0f}' | '\u{200d}' if self.previous.is_some_and(|before| !before.is_ascii_alphanumeric()) => {
                out.push(c);
            }
            c if is_deceptive(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
        self.line.begun |= c != ' ';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Styles as letters in braces.
    fn shown(pieces: &[&str]) -> String {
        let mut markdown = Markdown::new(true);
        let mut out: String = pieces.iter().map(|piece| markdown.push(piece)).collect();
        out.push_str(&markdown.finish());
        let names = [
            (Style::Bold.start(), "{b}"),
            (Style::Code.start(), "{c}"),
            (Style::Dim.start(), "{d}"),
            (Style::END, "{}"),
        ];
        names.iter().fold(out, |text, (code, name)| text.replace(code, name))
    }

    #[test]
    fn text_keeps_every_sign_and_gets_styles() {
        let cases = [
            ("plain\n", "plain\n"),
            ("no end", "no end\n"),
            ("# Title\nx\n", "{b}# Title{}\nx\n"),
            ("#hash\n", "#hash\n"),
            ("a **b** c\n", "a {b}**b**{} c\n"),
            ("2 ** 3\n", "2 ** 3\n"),
            ("**open\nnext\n", "{b}**open{}\nnext\n"),
            ("* item with `code`\n", "* item with {c}`code`{}\n"),
            ("`a ** b`\n", "{c}`a ** b`{}\n"),
            ("```rust\nlet a = b ** c; # x\n```\nend\n", "{d}```rust{}\nlet a = b ** c; # x\n{d}```{}\nend\n"),
            ("  ```\nx\n  ```\n", "  {d}```{}\nx\n  {d}```{}\n"),
            ("# a `b` c\n", "{b}# a {c}`b`{}{b} c{}\n"),
            ("\tx\u{1b}[2J\r\n", "    x\\u{1b}[2J\\r\n"),
            ("⚠\u{fe0f} gi\u{200d}t\n", "⚠\u{fe0f} gi\\u{200d}t\n"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(&[text]), expected, "{text:?}");
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(shown(&letters), expected, "letter by letter: {text:?}");
        }
    }

    #[test]
    fn without_styles_only_what_deceives_is_changed() {
        let mut markdown = Markdown::new(false);
        assert_eq!(markdown.push("# **a** `b`\u{7}"), "# **a** `b`\\u{7}");
        assert!(markdown.is_within_line());
        assert_eq!(markdown.finish(), "\n");
        assert_eq!((markdown.is_within_line(), markdown.finish().as_str()), (false, ""));
    }

    /// All that is shown of a text that came in these pieces.
    fn written(text: &str, cuts: &[usize]) -> String {
        let mut markdown = Markdown::new(true);
        let (mut out, mut start) = (String::new(), 0);
        for cut in cuts.iter().copied().filter(|cut| text.is_char_boundary(*cut)) {
            if cut >= start {
                out.push_str(&markdown.push(&text[start..cut]));
                start = cut;
            }
        }
        out.push_str(&markdown.push(&text[start..]));
        out + &markdown.finish()
    }

    proptest::proptest! {
        #[test]
        fn no_text_paints_and_no_split_matters(
            text in r"([ -~]|[*`#\n\t\r]|\PC|[\x00-\x1f\x7f-\x9f\u{202e}\u{200b}\u{fe0f}]){0,60}",
            mut cuts in proptest::collection::vec(0..120usize, 0..6),
        ) {
            cuts.sort_unstable();
            cuts.retain(|cut| *cut <= text.len());
            let whole = written(&text, &[]);
            proptest::prop_assert_eq!(&written(&text, &cuts), &whole);
            let styles = [Style::Bold, Style::Code, Style::Dim].map(Style::start);
            let plain = styles.iter().chain([&Style::END]).fold(whole, |text, code| text.replace(code, ""));
            proptest::prop_assert!(!plain.chars().any(|c| c != '\n' && c.is_control()), "{plain:?}");
        }
    }
}
