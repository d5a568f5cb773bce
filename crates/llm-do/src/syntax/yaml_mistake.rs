//! What was meant where YAML cannot be read: the mistakes that people make, each at its place, with what to write instead.
//! A parser says where it could not go on, in its own words, which is seldom where the mistake is.

use std::ops::Range;

/// A mistake that was recognised.
pub(super) struct YamlMistake {
    /// Where it is, in bytes of the text.
    pub range: Range<usize>,
    /// What is wrong; `None` if the parser says it well.
    pub fact: Option<String>,
    /// What to write instead.
    pub hint: String,
}

/// A text cannot begin with these and go on after what they open.
const OPENING: &[char] = &['{', '[', '"', '\'', '@', '`', '%', '*', '&', '!', '|', '>', ','];

/// The mistake at the place where a parser stopped, if it is a usual one. Only lines around that place are read.
pub(super) fn find(text: &str, position: usize, reason: &str) -> Option<YamlMistake> {
    let line = YamlLine::at(text, position)?;
    tab(text, &line)
        .or_else(|| indentation(text, &line, position, reason))
        .or_else(|| opening(&line))
        .or_else(|| colon(&line, position, reason))
}

/// A line without its end, and where it starts.
struct YamlLine<'a> {
    start: usize,
    text: &'a str,
}

impl<'a> YamlLine<'a> {
    /// The line that holds a position, or the last one before it that is not blank.
    fn at(text: &'a str, position: usize) -> Option<Self> {
        let position = text.floor_char_boundary(position);
        let start = text[..position].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[position..].find('\n').map_or(text.len(), |newline| position + newline);
        let line = Self { start, text: text[start..end].trim_end_matches('\r') };
        if line.is_content() { Some(line) } else { line.above(text) }
    }

    fn is_content(&self) -> bool {
        let trimmed = self.text.trim_start();
        !trimmed.is_empty() && !trimmed.starts_with('#')
    }

    /// The nearest line above that says something.
    fn above(&self, text: &'a str) -> Option<Self> {
        let mut end = self.start.checked_sub(1)?;
        loop {
            let start = text[..end].rfind('\n').map_or(0, |newline| newline + 1);
            let line = Self { start, text: text[start..end].trim_end_matches('\r') };
            if line.is_content() {
                return Some(line);
            }
            end = start.checked_sub(1)?;
        }
    }

    fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start_matches(' ').len()
    }

    /// The key and what is behind its colon, if the line has the form `key: value` or `key:`.
    fn pair(&self) -> Option<(&'a str, &'a str)> {
        let (key, value) = self.text.split_once(": ").or_else(|| Some((self.text.strip_suffix(':')?, "")))?;
        let is_key = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let key = key.trim_start();
        (!key.is_empty() && key.chars().all(is_key)).then(|| (key, without_comment(value).trim()))
    }

    /// Where the value of a pair starts in the whole text.
    fn place_of(&self, value: &str) -> usize {
        self.start + (value.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }
}

fn without_comment(value: &str) -> &str {
    value.split_once(" #").map_or(value, |(value, _)| value)
}

fn tab(text: &str, line: &YamlLine<'_>) -> Option<YamlMistake> {
    let content = line.text.trim_start();
    let indent = &line.text[..line.text.len() - content.len()];
    let place = line.start + indent.find('\t')?;
    let above = line.above(text);
    let width = above.map_or(0, |above| match above.pair() {
        Some((_, "")) => above.indent() + 2,
        _ => above.indent(),
    });
    Some(YamlMistake {
        range: place..place + 1,
        fact: Some("YAML is indented with spaces, and this is a tab".to_owned()),
        hint: format!("write `{}{content}`", " ".repeat(width)),
    })
}

fn indentation(text: &str, line: &YamlLine<'_>, position: usize, reason: &str) -> Option<YamlMistake> {
    let (key, _) = line.pair()?;
    let above = line.above(text)?;
    let (here, there) = (line.indent(), above.indent());
    let is_meant = if here > there {
        // A value that goes on in the next line, until it turns out to be a key.
        let is_key = reason.contains("mapping values") || reason.contains("expected key");
        is_key && position <= line.start + here + key.len() && !above.pair()?.1.is_empty()
    } else {
        here < there && !ends_level(text, &above, here)
    };
    is_meant.then(|| YamlMistake {
        range: line.start + here..line.start + line.text.len(),
        fact: Some(format!("{} here, {there} above", spaces(here))),
        hint: format!("write `{}{}`", " ".repeat(there), line.text.trim_start()),
    })
}

/// Whether a line with this indentation below that one goes on with what is further out.
fn ends_level(text: &str, below: &YamlLine<'_>, indent: usize) -> bool {
    let mut level = below.indent();
    let mut line = below.above(text);
    while let Some(above) = line {
        if above.indent() < level {
            level = above.indent();
        }
        if level <= indent {
            return level == indent;
        }
        line = above.above(text);
    }
    indent == 0
}

fn spaces(count: usize) -> String {
    if count == 1 { "1 space".to_owned() } else { format!("{count} spaces") }
}

/// `description: {topic} writer`: what looks like another kind of value and goes on as a text.
fn opening(line: &YamlLine<'_>) -> Option<YamlMistake> {
    let (_, value) = line.pair()?;
    let first = value.chars().next().filter(|first| OPENING.contains(first))?;
    let goes_on = |close: char| value[1..].split_once(close).is_some_and(|(_, rest)| !rest.trim().is_empty());
    let is_text = match first {
        '{' => goes_on('}'),
        '[' => goes_on(']'),
        '"' | '\'' => goes_on(first),
        _ => true,
    };
    let place = line.place_of(value);
    is_text.then(|| YamlMistake {
        range: place..place + value.len(),
        fact: Some(format!("a text that begins with `{first}` needs quotes")),
        hint: format!("write `{}`", quoted(value)),
    })
}

/// `description: Note: read this`.
fn colon(line: &YamlLine<'_>, position: usize, reason: &str) -> Option<YamlMistake> {
    let hint = "put a text that holds `: ` in quotes";
    reason.contains("mapping values").then(|| YamlMistake {
        range: position..position + 1,
        fact: None,
        hint: match line.pair() {
            Some((_, value)) if !value.is_empty() => format!("{hint}: `{}`", quoted(value)),
            _ => hint.to_owned(),
        },
    })
}

/// In double quotes, as YAML and JSON have them.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text serialises")
}

#[cfg(test)]
mod tests {
    use crate::syntax::diagnostic::{Diagnostics, Report, Sources};
    use crate::syntax::tree::{Text, parse_yaml};

    /// `line:column fact; hint` of the only mistake.
    fn told(text: &str) -> String {
        let mut sources = Sources::default();
        let file = sources.add("f".into(), text.to_owned());
        let mut problems = Diagnostics::default();
        parse_yaml(Text::whole(file, text), &mut problems);
        let report = Report::new(std::sync::Arc::new(sources), problems);
        let told = report.diagnostics().map(|problem| {
            let hint = problem.hint.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{} {}; {hint}", report.place(problem).trim_start_matches("f:"), problem.fact)
        });
        told.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn usual_mistakes_are_told_where_they_are() {
        let quotes = |place: &str, first: &str, text: &str| {
            format!("{place} a text that begins with `{first}` needs quotes; write `{text}`")
        };
        let cases = [
            ("a:\n  b: c\n   d: e\n", "3:4 3 spaces here, 2 above; write `  d: e`".to_owned()),
            ("a:\n   b: c\n  d: e\n", "3:3 2 spaces here, 3 above; write `   d: e`".to_owned()),
            ("a: b\n c: d\n", "2:2 1 space here, 0 above; write `c: d`".to_owned()),
            ("a: b\n\n# why\n c: d\n", "4:2 1 space here, 0 above; write `c: d`".to_owned()),
            ("a:\r\n  b: c\r\n   d: e\r\n", "3:4 3 spaces here, 2 above; write `  d: e`".to_owned()),
            ("a:\n\tb: c\n", "2:1 YAML is indented with spaces, and this is a tab; write `  b: c`".to_owned()),
            ("a: {x} y\n", quotes("1:4", "{", r#""{x} y""#)),
            ("a: [x] y # why\n", quotes("1:4", "[", r#""[x] y""#)),
            ("a: @x y\n", quotes("1:4", "@", r#""@x y""#)),
            ("a: `x` y\n", quotes("1:4", "`", r#""`x` y""#)),
            ("a: %x\n", quotes("1:4", "%", r#""%x""#)),
            ("a: *x* y\n", quotes("1:4", "*", r#""*x* y""#)),
            ("a: \"x\" y\n", quotes("1:4", "\"", r#""\"x\" y""#)),
        ];
        for (text, expected) in cases {
            assert_eq!(told(text), expected, "{text}");
        }
        for text in ["a: [x, y\nb: c\n", "a: \"x\nb: c\n", "a: {x: 1\n"] {
            assert!(told(text).contains("not valid YAML: "), "{text}: {}", told(text));
        }
    }
}
