//! A command text → its words. The only tokenizer: what it gives is judged, and exactly that is executed.
//!
//! It reads quotes as a POSIX shell does and expands nothing. Whatever a shell would do something with, and we would
//! not, is refused, so that neither the approver nor the model takes a command for something that it is not.

use crate::escape::{deceives, visible};

/// One word of a command, which remembers what of it was quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub text: String,
    /// For each character whether a quote or a backslash made it plain text.
    quoted: Vec<bool>,
}

/// Longer commands are refused.
pub(crate) const LONGEST_COMMAND: usize = 16 * 1024;
pub(crate) const MOST_WORDS: usize = 512;

impl Word {
    fn empty() -> Self {
        Self { text: String::new(), quoted: Vec::new() }
    }

    fn push(&mut self, c: char, quoted: bool) {
        self.text.push(c);
        self.quoted.push(quoted);
    }

    /// Whether a shell would take the word for a pattern of file names.
    pub(crate) fn is_glob(&self) -> bool {
        self.text.chars().zip(&self.quoted).any(|(c, quoted)| !quoted && matches!(c, '*' | '?' | '[' | '{'))
    }

    /// A word all of which is plain text.
    pub(crate) fn literal(text: &str) -> Self {
        Self { text: text.to_owned(), quoted: vec![true; text.chars().count()] }
    }
}

/// Splits a command into its words; an error says what the model may write instead.
pub(crate) fn split(command: &str) -> Result<Vec<Word>, String> {
    if command.len() > LONGEST_COMMAND {
        return Err(format!("the command is longer than {LONGEST_COMMAND} bytes"));
    }
    if let Some(c) = command.chars().find(|c| is_forbidden(*c)) {
        return Err(format!("the command has the control character `{}` in it", visible(&c.to_string())));
    }
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut characters = command.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' => words.extend(word.take()),
            '\'' => single_quoted(word.get_or_insert_with(Word::empty), &mut characters)?,
            '"' => double_quoted(word.get_or_insert_with(Word::empty), &mut characters)?,
            '\\' => match characters.next() {
                Some(next) => word.get_or_insert_with(Word::empty).push(next, true),
                None => return Err("the command ends in a backslash".to_owned()),
            },
            _ => {
                if let Some(reason) = reason_to_refuse(c, word.is_none()) {
                    return Err(reason);
                }
                word.get_or_insert_with(Word::empty).push(c, false);
            }
        }
        if words.len() >= MOST_WORDS {
            return Err(format!("the command has more than {MOST_WORDS} words"));
        }
    }
    words.extend(word);
    if words.is_empty() { Err("the command is empty".to_owned()) } else { Ok(words) }
}

/// Control characters, and what Unicode has besides them to end a line.
fn is_forbidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

fn single_quoted(word: &mut Word, characters: &mut std::str::Chars<'_>) -> Result<(), String> {
    for c in characters {
        if c == '\'' {
            return Ok(());
        }
        word.push(c, true);
    }
    Err("a `'` is not closed".to_owned())
}

fn double_quoted(word: &mut Word, characters: &mut std::str::Chars<'_>) -> Result<(), String> {
    while let Some(c) = characters.next() {
        match c {
            '"' => return Ok(()),
            '\\' => match characters.next() {
                Some(next @ ('$' | '`' | '"' | '\\')) => word.push(next, true),
                Some(next) => {
                    word.push('\\', true);
                    word.push(next, true);
                }
                None => break,
            },
            c => word.push(c, true),
        }
    }
    Err("a `\"` is not closed".to_owned())
}

/// What an unquoted character would mean to a shell, if anything.
fn reason_to_refuse(c: char, starts_word: bool) -> Option<String> {
    let meaning = match c {
        '|' | '&' | ';' => "one command at a time: there is no shell that could join several",
        '<' | '>' => "there are no redirections: the output comes back to you, and there is no input",
        '(' | ')' => "there are no subshells",
        '$' => "nothing is expanded: there are no variables and no substitutions",
        '`' => "nothing is expanded: there are no substitutions",
        '~' if starts_word => {
            "nothing is expanded: `~` is no directory here, paths are relative to the working directory"
        }
        '#' if starts_word => "there are no comments",
        _ => return None,
    };
    Some(format!("unquoted `{c}`: {meaning} (in quotes it is plain text)"))
}

/// The name of a program, if the word can be one: no path, no assignment, nothing that looks like another name.
pub(crate) fn program_name(word: &Word) -> Result<&str, String> {
    let name = word.text.as_str();
    let shown = || visible(name).into_owned();
    if name.is_empty() {
        return Err("the command has an empty name".to_owned());
    }
    if name.contains('=') {
        return Err(format!("`{}` would set a variable; the environment is fixed", shown()));
    }
    if let Some(odd) = name.chars().find(|c| !c.is_ascii_graphic() || deceives(*c)) {
        let odd = odd.escape_unicode();
        return Err(format!("the name of the command has the character `{odd}` in it; names are plain ASCII"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(command: &str) -> Result<Vec<String>, String> {
        split(command).map(|words| words.into_iter().map(|word| word.text).collect())
    }

    #[test]
    fn quotes_are_read_as_a_shell_reads_them() {
        let cases: [(&str, &[&str]); 12] = [
            ("ls -la  src", &["ls", "-la", "src"]),
            ("grep 'a b' f", &["grep", "a b", "f"]),
            (r#"grep "a|b" f"#, &["grep", "a|b", "f"]),
            (r#"grep "x;y" f"#, &["grep", "x;y", "f"]),
            ("awk '{print $1}' f", &["awk", "{print $1}", "f"]),
            (r#""ca"t x"#, &["cat", "x"]),
            (r"c\at x", &["cat", "x"]),
            (r"find . \( -name x \)", &["find", ".", "(", "-name", "x", ")"]),
            (r#"a "\$\`\"\\\n""#, &["a", "$`\"\\\\n"]),
            ("a ''", &["a", ""]),
            ("a 'b'\"c\"d", &["a", "bcd"]),
            ("ls {a,b} * [ab] a~ x#y", &["ls", "{a,b}", "*", "[ab]", "a~", "x#y"]),
        ];
        for (command, words) in cases {
            assert_eq!(texts(command).unwrap(), words, "{command}");
        }
    }

    #[test]
    fn what_a_shell_would_act_upon_is_refused() {
        let commands = [
            "ls; rm x",
            "ls && rm x",
            "ls || rm x",
            "ls | sh",
            "ls & rm x",
            "ls &> f",
            "cat a\nrm x",
            "cat a\rb",
            "cat a\u{b}b",
            "cat a\u{c}b",
            "cat\tfile",
            "cat a\u{2028}b",
            "cat $(id)",
            "cat `id`",
            "cat ${HOME}/x",
            "cat <(id)",
            "cat $HOME/.ssh/id_rsa",
            "cat ~/.ssh/id_rsa",
            "cat a\\\nb",
            "$'cat' x",
            "cat 'a",
            "cat \"a",
            "cat a\\",
            "",
            "   ",
            "cat 'a\nb'",
            "ls #x",
            "cat \"a\u{1b}[2K\"",
            "a\0b",
            "ls (x)",
            "cat <x",
            "cat >x",
        ];
        for command in commands {
            assert!(split(command).is_err(), "{command:?}");
        }
        assert!(split(&"a".repeat(LONGEST_COMMAND + 1)).is_err());
        assert!(split(&"true ".repeat(MOST_WORDS + 1)).is_err());
    }

    #[test]
    fn a_word_knows_what_of_it_was_quoted() {
        for (command, is_glob) in
            [("*.rs", true), ("'*.rs'", false), ("\\*.rs", false), ("a'*'?", true), ("x", false), ("{a,b}", true)]
        {
            assert_eq!(split(command).unwrap()[0].is_glob(), is_glob, "{command}");
        }
    }

    #[test]
    fn names_of_programs_are_plain() {
        for name in ["git", "git-log", "[", "g++"] {
            assert_eq!(program_name(&Word::literal(name)), Ok(name));
        }
        for name in ["", "A=b", "g\u{456}t", "cat\u{a0}x", "c\u{200b}at", "a b", "LD_PRELOAD=x"] {
            assert!(program_name(&Word::literal(name)).is_err(), "{name:?}");
        }
    }

    proptest! {
        /// Whatever is accepted means the same to another reading of the shell's grammar.
        #[test]
        fn the_words_are_those_of_shlex(command in r#"[ab *?{}\[\]~#=$|;\\'"\-\.é]{0,24}"#) {
            if let Ok(words) = texts(&command) {
                prop_assert_eq!(Some(words), shlex::split(&command));
            }
        }

        /// Quoting brings any text through unchanged.
        #[test]
        fn quoted_words_come_back(words in prop::collection::vec("[^\\p{C}\u{2028}\u{2029}]{0,12}", 1..6)) {
            let command = shlex::try_join(words.iter().map(String::as_str)).unwrap();
            prop_assert_eq!(texts(&command).unwrap(), words);
        }

        #[test]
        fn no_text_is_too_odd(command in any::<String>()) {
            let _ = split(&command);
        }
    }
}
