//! Flags and operands of a command, read as `getopt_long` reads them, with one difference: a flag is known by its whole
//! name or not at all.

use crate::escape::visible;
use crate::tools::shell::words::Word;

/// A flag that a command may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub short: Option<char>,
    /// Empty: it has only a short form.
    pub long: &'static str,
    pub value: Value,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    None,
    /// In the same word or in the next one.
    Needed(Type),
    /// Only in the same word: `--color=never`, `-U3`.
    Attached(Type),
    /// The flag is a number itself: `-20`.
    Number,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {
    Text,
    /// Digits, perhaps with a sign.
    Number,
    /// Digits and the letter of a unit.
    Size,
    OneOf(&'static [&'static str]),
    /// A function of the command's own grammar says what the value must not be.
    Checked(fn(&str) -> Result<(), String>),
}

pub(crate) const fn short(short: char) -> Flag {
    Flag { short: Some(short), long: "", value: Value::None }
}

pub(crate) const fn long(long: &'static str) -> Flag {
    Flag { short: None, long, value: Value::None }
}

pub(crate) const fn both(short: char, long: &'static str) -> Flag {
    Flag { short: Some(short), long, value: Value::None }
}

/// `-20`.
pub(crate) const NUMBER: Flag = Flag { short: None, long: "", value: Value::Number };

impl Flag {
    pub(crate) const fn takes(self, value: Type) -> Self {
        Self { value: Value::Needed(value), ..self }
    }

    pub(crate) const fn may_take(self, value: Type) -> Self {
        Self { value: Value::Attached(value), ..self }
    }
}

/// A command's words after its name, sorted.
#[derive(Debug, Default)]
pub(crate) struct Options<'w> {
    pub flags: Vec<(Flag, Option<Word>)>,
    pub operands: Vec<&'w Word>,
    /// How many operands came before `--`.
    pub before_dashes: usize,
}

impl<'w> Options<'w> {
    pub(crate) fn read(words: &'w [Word], known: &[Flag]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.text.as_str();
            if text == "--" {
                options.before_dashes = options.operands.len();
                options.operands.extend(words);
                return Ok(options);
            }
            match (text.strip_prefix("--"), text.strip_prefix('-')) {
                (Some(name), _) => options.long(name, known, &mut words)?,
                (None, Some(letters)) if !letters.is_empty() => options.short(letters, known, &mut words)?,
                (None, _) => options.operands.push(word),
            }
        }
        options.before_dashes = options.operands.len();
        Ok(options)
    }

    fn long(&mut self, text: &str, known: &[Flag], words: &mut std::slice::Iter<'w, Word>) -> Result<(), String> {
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let Some(flag) = known.iter().find(|flag| !flag.long.is_empty() && flag.long == name) else {
            return Err(format!("`--{}` is not among its known flags (by their whole names)", visible(name)));
        };
        let shown = format!("--{name}");
        let value = match (flag.value, attached) {
            (Value::None | Value::Attached(_), None) => None,
            (Value::None | Value::Number, _) => return Err(format!("`{shown}` takes no value")),
            (Value::Needed(kind) | Value::Attached(kind), Some(value)) => Some(checked(kind, &shown, value)?),
            (Value::Needed(kind), None) => Some(next(kind, &shown, words)?),
        };
        self.flags.push((*flag, value));
        Ok(())
    }

    fn short(&mut self, letters: &str, known: &[Flag], words: &mut std::slice::Iter<'w, Word>) -> Result<(), String> {
        let number = known.iter().find(|flag| matches!(flag.value, Value::Number));
        if let (Some(flag), true) = (number, letters.bytes().all(|byte| byte.is_ascii_digit())) {
            self.flags.push((*flag, None));
            return Ok(());
        }
        for (at, letter) in letters.char_indices() {
            let Some(flag) = known.iter().find(|flag| flag.short == Some(letter)) else {
                return Err(format!("`-{}` is not among its known flags", visible(&letter.to_string())));
            };
            let rest = &letters[at + letter.len_utf8()..];
            let shown = format!("-{letter}");
            let value = match flag.value {
                Value::None | Value::Number => {
                    self.flags.push((*flag, None));
                    continue;
                }
                Value::Attached(_) if rest.is_empty() => None,
                Value::Needed(kind) if rest.is_empty() => Some(next(kind, &shown, words)?),
                Value::Attached(kind) | Value::Needed(kind) => Some(checked(kind, &shown, rest)?),
            };
            self.flags.push((*flag, value));
            break;
        }
        Ok(())
    }

    /// Whether a flag was given, by its long name or else its letter.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.flags.iter().any(|(flag, _)| flag.is_called(name))
    }

    pub(crate) fn values(&self, name: &'static str) -> impl Iterator<Item = &Word> {
        self.flags.iter().filter(move |(flag, _)| flag.is_called(name)).filter_map(|(_, value)| value.as_ref())
    }
}

impl Flag {
    fn is_called(&self, name: &str) -> bool {
        if self.long.is_empty() { self.short.is_some_and(|short| name.chars().eq([short])) } else { self.long == name }
    }
}

fn next(kind: Type, flag: &str, words: &mut std::slice::Iter<'_, Word>) -> Result<Word, String> {
    let word = words.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
    checked(kind, flag, &word.text)?;
    Ok(word.clone())
}

fn checked(kind: Type, flag: &str, value: &str) -> Result<Word, String> {
    let wrong = |what: &str| Err(format!("`{flag}` takes {what}, not `{}`", visible(value)));
    match kind {
        Type::Number if !is_number(value) => return wrong("a number"),
        Type::Size if !is_size(value) => return wrong("a number of bytes"),
        Type::OneOf(words) if !words.contains(&value) => return wrong(&words.join(", ")),
        Type::Checked(check) => check(value).map_err(|reason| format!("`{flag}`: {reason}"))?,
        Type::Text | Type::Number | Type::Size | Type::OneOf(_) => {}
    }
    Ok(Word::literal(value))
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_size(text: &str) -> bool {
    let digits = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    is_number(digits.strip_suffix(['b', 'k', 'K', 'M', 'G']).unwrap_or(digits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::shell::words::split;

    const FLAGS: &[Flag] = &[
        both('n', "lines").takes(Type::Number),
        both('i', "ignore-case"),
        short('v'),
        long("color").may_take(Type::OneOf(&["never", "auto"])),
        NUMBER,
    ];

    fn read(command: &str) -> Result<String, String> {
        let words = split(command).unwrap();
        let options = Options::read(&words, FLAGS)?;
        let flags = options.flags.iter().map(|(flag, value)| {
            let name = if flag.long.is_empty() {
                flag.short.map_or("#".to_owned(), String::from)
            } else {
                flag.long.to_owned()
            };
            value.as_ref().map_or(name.clone(), |value| format!("{name}={}", value.text))
        });
        let operands = options.operands.iter().map(|word| word.text.clone());
        Ok(flags.chain(operands).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn flags_are_read_as_getopt_reads_them() {
        for (command, expected) in [
            ("-iv a", "ignore-case v a"),
            ("a -i b", "ignore-case a b"),
            ("-n5 a", "lines=5 a"),
            ("-n 5 a", "lines=5 a"),
            ("-in5 a", "ignore-case lines=5 a"),
            ("--lines=5", "lines=5"),
            ("--lines 5", "lines=5"),
            ("-20 a", "# a"),
            ("--color a", "color a"),
            ("--color=auto", "color=auto"),
            ("-- -i --lines", "-i --lines"),
            ("- a", "- a"),
        ] {
            assert_eq!(read(command).as_deref(), Ok(expected), "{command}");
        }
    }

    #[test]
    fn unknown_and_abbreviated_flags_do_not_fit() {
        for command in
            ["-x", "-ix", "--line=5", "--lin 5", "--color=always", "-n", "-nx", "--ignore-case=1", "-é", "--"]
        {
            let read = read(command);
            assert_eq!(read.is_err(), command != "--", "{command}: {read:?}");
        }
    }
}
