//! Patterns for names: `*`, `?`, `[a-z]`, `{a,b}`, and `**` across directories. They are matched without an engine
//! for regular expressions, because a model brings another pattern with each call and compiling it would cost more
//! than matching it.

use std::borrow::Cow;
use std::fmt;
use std::str::Chars;

/// A pattern, as all that its braces stand for.
#[derive(Clone, Debug)]
pub(crate) struct Glob {
    alternatives: Vec<Vec<GlobPart>>,
    slash: Slash,
    letters: Letters,
}

/// A pattern of paths as a person types it: only `**` crosses directories.
#[cfg(feature = "front-end")]
#[derive(Clone, Debug)]
pub struct PathPattern(Glob);

#[cfg(feature = "front-end")]
impl PathPattern {
    /// Reads one; an error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Glob::parse(text, Slash::Separates, Letters::Exact).map(Self).map_err(|mistake| mistake.to_string())
    }

    /// Whether a path is meant, whose parts are parted by `/`.
    pub fn matches(&self, path: &str) -> bool {
        self.0.matches(path)
    }

    /// How many directories and names a path has at most that it can mean; `None` if there is no bound.
    pub fn depth(&self) -> Option<usize> {
        self.0.depth()
    }
}

/// What a `/` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slash {
    /// It parts directories: only `**` crosses it.
    Separates,
    /// A character like any other.
    IsPlain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    Exact,
    /// Of any case.
    Folded,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    OpenClass,
    TurnedRange,
    OpenBrace,
    ClosedBrace,
    LoneBackslash,
    TooMany,
}

/// How many names braces may stand for, and how deep they may be nested.
const MOST_ALTERNATIVES: usize = 256;
const DEEPEST: usize = 32;

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenClass => "a `[` is not closed",
            Self::TurnedRange => "a range in `[…]` begins behind its end",
            Self::OpenBrace => "a `{` is not closed",
            Self::ClosedBrace => "a `}` closes nothing",
            Self::LoneBackslash => "a `\\` stands at the end",
            Self::TooMany => "its braces stand for too many names",
        })
    }
}

/// What stands between two slashes.
#[derive(Clone, Debug)]
enum GlobPart {
    /// `**`: any number of directories.
    Directories,
    Name(Vec<Token>),
}

#[derive(Clone, Debug)]
enum Token {
    Character(char),
    /// `?`
    One,
    /// `*`
    Any,
    /// `[…]`
    Class {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    pub(crate) fn parse(text: &str, slash: Slash, letters: Letters) -> Result<Self, Mistake> {
        let text = match letters {
            Letters::Exact => Cow::Borrowed(text),
            Letters::Folded => Cow::Owned(text.to_lowercase()),
        };
        let spelled_out = spelled_out(&text)?;
        let alternatives = spelled_out.iter().map(|text| parts(text, slash)).collect::<Result<_, _>>()?;
        Ok(Self { alternatives, slash, letters })
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        let folded = (self.letters == Letters::Folded).then(|| name.to_lowercase());
        let name = folded.as_deref().unwrap_or(name);
        self.alternatives.iter().any(|parts| match (parts.as_slice(), self.slash) {
            ([GlobPart::Name(tokens)], Slash::IsPlain) => is_name(tokens, name),
            (parts, _) => is_path(parts, name),
        })
    }

    /// How many names a path that matches has, at most; `None` if any number.
    pub(crate) fn depth(&self) -> Option<usize> {
        let depth = |parts: &Vec<GlobPart>| {
            let crosses = parts.iter().any(|part| matches!(part, GlobPart::Directories));
            (!crosses).then_some(parts.len())
        };
        self.alternatives.iter().map(depth).collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

/// Part by part. The last `**` that was met takes one directory more whenever what follows it does not fit; what an earlier
/// one took need never be changed.
fn is_path(parts: &[GlobPart], path: &str) -> bool {
    let mut rest = Some(path);
    let mut at = 0;
    let mut again: Option<(usize, &str)> = None;
    while let Some(path) = rest {
        let (name, behind) = first_name(path);
        match parts.get(at) {
            Some(GlobPart::Directories) => {
                at += 1;
                again = Some((at, path));
                continue;
            }
            Some(GlobPart::Name(tokens)) if is_name(tokens, name) => {
                (at, rest) = (at + 1, behind);
                continue;
            }
            Some(GlobPart::Name(_)) | None => {}
        }
        let Some((start, taken)) = again else { return false };
        let (_, Some(behind)) = first_name(taken) else { return false };
        (at, rest, again) = (start, Some(behind), Some((start, behind)));
    }
    at == parts.len()
}

/// The first name of a path, and what follows it. Names are short, so nothing is prepared for a search.
fn first_name(path: &str) -> (&str, Option<&str>) {
    match path.bytes().position(|byte| byte == b'/') {
        Some(end) => (&path[..end], Some(&path[end + 1..])),
        None => (path, None),
    }
}

/// Goes character by character; `*` is handled like `**` in [`is_path`].
fn is_name(tokens: &[Token], name: &str) -> bool {
    // What follows the only `*` must be the end of the name.
    if let [Token::Any, behind @ ..] = tokens
        && !behind.iter().any(|token| matches!(token, Token::Any))
    {
        let mut characters = name.chars();
        return behind.iter().rev().all(|token| characters.next_back().is_some_and(|last| token.takes(last)));
    }
    let mut rest = name;
    let mut at = 0;
    let mut again: Option<(usize, &str)> = None;
    loop {
        if let Some(Token::Any) = tokens.get(at) {
            at += 1;
            again = Some((at, rest));
            continue;
        }
        let mut characters = rest.chars();
        let next = characters.next();
        match (tokens.get(at), next) {
            (None, None) => return true,
            (Some(token), Some(character)) if token.takes(character) => {
                (at, rest) = (at + 1, characters.as_str());
                continue;
            }
            (None | Some(_), _) => {}
        }
        let Some((start, taken)) = again else { return false };
        let mut taken = taken.chars();
        if taken.next().is_none() {
            return false;
        }
        (at, rest, again) = (start, taken.as_str(), Some((start, taken.as_str())));
    }
}

impl Token {
    fn takes(&self, character: char) -> bool {
        match self {
            Self::Character(own) => *own == character,
            Self::One | Self::Any => true,
            Self::Class { is_negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&character)) != *is_negated
            }
        }
    }
}

fn parts(text: &str, slash: Slash) -> Result<Vec<GlobPart>, Mistake> {
    if slash == Slash::IsPlain {
        return Ok(vec![GlobPart::Name(tokens(text)?)]);
    }
    let mut parts: Vec<GlobPart> = Vec::new();
    for text in text.split('/') {
        match (text, parts.last()) {
            ("**", Some(GlobPart::Directories)) => {}
            ("**", _) => parts.push(GlobPart::Directories),
            (text, _) => parts.push(GlobPart::Name(tokens(text)?)),
        }
    }
    // At the end it means all that is there.
    if let Some(GlobPart::Directories) = parts.last() {
        parts.push(GlobPart::Name(vec![Token::Any]));
    }
    Ok(parts)
}

fn tokens(text: &str) -> Result<Vec<Token>, Mistake> {
    let mut tokens = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let token = match character {
            '?' => Token::One,
            '*' => Token::Any,
            '[' => class(&mut characters)?,
            '\\' => Token::Character(characters.next().ok_or(Mistake::LoneBackslash)?),
            character => Token::Character(character),
        };
        if !matches!((&token, tokens.last()), (Token::Any, Some(Token::Any))) {
            tokens.push(token);
        }
    }
    Ok(tokens)
}

/// Reads a class whose `[` was read already.
fn class(characters: &mut Chars<'_>) -> Result<Token, Mistake> {
    let length = class_length(characters.as_str()).ok_or(Mistake::OpenClass)?;
    let (inside, behind) = characters.as_str().split_at(length - 1);
    *characters = behind[1..].chars();
    let is_negated = inside.starts_with(['!', '^']);
    let members: Vec<char> = inside.chars().skip(usize::from(is_negated)).collect();
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(first) = members.get(at) {
        match (members.get(at + 1), members.get(at + 2)) {
            (Some('-'), Some(last)) if first > last => return Err(Mistake::TurnedRange),
            (Some('-'), Some(last)) => {
                ranges.push((*first, *last));
                at += 3;
            }
            _ => {
                ranges.push((*first, *first));
                at += 1;
            }
        }
    }
    Ok(Token::Class { is_negated, ranges })
}

/// How many bytes follow a `[` until its class is closed. A `]` that is the first member is one.
fn class_length(text: &str) -> Option<usize> {
    let members = text.strip_prefix(['!', '^']).unwrap_or(text);
    let first = members.chars().next()?.len_utf8();
    let before = text.len() - members.len() + first;
    Some(before + text[before..].find(']')? + 1)
}

/// All that braces stand for.
fn spelled_out(text: &str) -> Result<Vec<String>, Mistake> {
    if !text.contains(['{', '}']) {
        return Ok(vec![text.to_owned()]);
    }
    let mut characters = text.chars();
    alternatives(&mut characters, 0)
}

fn alternatives(characters: &mut Chars<'_>, depth: usize) -> Result<Vec<String>, Mistake> {
    let (mut done, mut current) = (Vec::new(), vec![String::new()]);
    let append = |current: &mut Vec<String>, text: &str| current.iter_mut().for_each(|it| it.push_str(text));
    // Two stars that meet only through braces are no `**`.
    let joined = |one: &str, other: &str| {
        let meets = one.ends_with('*') && !one.ends_with("\\*");
        let other = other.strip_prefix('*').filter(|_| meets).unwrap_or(other);
        format!("{one}{other}")
    };
    let mut follows_braces = false;
    loop {
        let before = characters.as_str();
        let Some(character) = characters.next() else { break };
        match character {
            '\\' => {
                let escaped = characters.next().ok_or(Mistake::LoneBackslash)?;
                append(&mut current, &before[..=escaped.len_utf8()]);
            }
            '[' => {
                let length = class_length(characters.as_str()).ok_or(Mistake::OpenClass)?;
                append(&mut current, &before[..=length]);
                *characters = before[length + 1..].chars();
            }
            '{' if depth == DEEPEST => return Err(Mistake::TooMany),
            '{' => {
                let inner = alternatives(characters, depth + 1)?;
                if current.len().saturating_mul(inner.len()) > MOST_ALTERNATIVES {
                    return Err(Mistake::TooMany);
                }
                current = current.iter().flat_map(|one| inner.iter().map(move |other| joined(one, other))).collect();
            }
            '*' if follows_braces => current.iter_mut().for_each(|it| *it = joined(it, "*")),
            ',' if depth > 0 => done.append(&mut std::mem::replace(&mut current, vec![String::new()])),
            '}' if depth > 0 => {
                done.append(&mut current);
                return Ok(done);
            }
            '}' => return Err(Mistake::ClosedBrace),
            other => append(&mut current, &before[..other.len_utf8()]),
        }
        follows_braces = character == '{';
        if done.len() > MOST_ALTERNATIVES {
            return Err(Mistake::TooMany);
        }
    }
    if depth > 0 { Err(Mistake::OpenBrace) } else { Ok(current) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> Result<Glob, Mistake> {
        Glob::parse(text, Slash::Separates, Letters::Exact)
    }

    #[test]
    fn patterns_match_what_people_mean() {
        for (pattern, good, bad) in [
            ("*.rs", "main.rs .rs a.b.rs", "main.rsx src/main.rs rs"),
            ("**/*.rs", "main.rs src/main.rs a/b/c.rs", "main.py src/main.rs/x"),
            ("src/**", "src/a src/a/b", "src lib/a"),
            ("src/**/test.rs", "src/test.rs src/a/b/test.rs", "test.rs src/tests.rs src/a/test.rs/b"),
            ("**", "a a/b/c", ""),
            ("a/**/b/**/c", "a/b/c a/x/b/y/z/c a/b/b/c", "a/c a/b/c/d b/c"),
            ("a?c", "abc aéc", "ac abbc a/c"),
            ("[a-c]x", "ax cx", "dx x"),
            ("[!a]x", "bx éx", "ax x"),
            ("[]x]y", "]y xy", "yy"),
            ("a[-z]", "a- az", "am"),
            ("*.{rs,toml}", "a.rs Cargo.toml", "a.md x/a.rs"),
            ("{src,tests}/**/*.rs", "src/a.rs tests/b/c.rs", "a.rs lib/a.rs"),
            ("a{b,{c,d}}e", "abe ace ade", "ae abce"),
            ("a{,b}", "a ab", "b"),
            ("a\\*b", "a*b", "axb"),
            ("a,b", "a,b", "a b"),
            ("*a*b*c", "abc xaybzc aabbcc", "acb ab"),
            ("", "", "a"),
        ] {
            let glob = path(pattern).unwrap();
            good.split(' ').for_each(|name| assert!(glob.matches(name), "{pattern}: {name}"));
            bad.split(' ')
                .filter(|name| !name.is_empty())
                .for_each(|name| assert!(!glob.matches(name), "{pattern}: {name}"));
        }
    }

    #[test]
    fn a_slash_may_be_plain_and_letters_of_any_case() {
        let glob = Glob::parse("OpenRouter:*Claude*", Slash::IsPlain, Letters::Folded).unwrap();
        assert!(glob.matches("openrouter:anthropic/claude-opus") && glob.matches("OPENROUTER:CLAUDE"));
        assert!(!glob.matches("openrouter:gpt"));
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for (pattern, mistake) in [
            ("[", Mistake::OpenClass),
            ("[]", Mistake::OpenClass),
            ("[a", Mistake::OpenClass),
            ("[z-a]", Mistake::TurnedRange),
            ("{a,b", Mistake::OpenBrace),
            ("a}b", Mistake::ClosedBrace),
            ("a\\", Mistake::LoneBackslash),
            (&"{a,b,{c,d}}".repeat(90), Mistake::TooMany),
            (&"{".repeat(900), Mistake::TooMany),
        ] {
            assert_eq!(path(pattern).unwrap_err(), mistake, "{pattern}");
        }
    }

    #[test]
    fn the_depth_of_a_match_is_known_unless_it_crosses_directories() {
        for (pattern, depth) in
            [("*", Some(1)), ("a/*/c", Some(3)), ("{a,b/c}", Some(2)), ("**/a", None), ("a/**", None)]
        {
            assert_eq!(path(pattern).unwrap().depth(), depth, "{pattern}");
        }
    }

    #[test]
    fn hostile_patterns_cost_little() {
        let name = "a".repeat(4_000);
        for pattern in ["*a".repeat(400), "?*".repeat(400), "**/".repeat(300) + "x", "[a-b]*".repeat(150)] {
            let deep = "a/".repeat(60) + &name;
            let glob = path(&(pattern + "b")).unwrap();
            assert!(!glob.matches(&name) && !glob.matches(&deep));
        }
    }

    proptest! {
        /// Matches must be the same as those of another implementation of the notation.
        #[test]
        fn it_is_the_notation_that_others_have(
            pattern in "([ab/]|\\*\\*/|\\*|\\?|\\[ab\\]){0,8}",
            name in "[ab](/?[ab]){0,8}",
        ) {
            // A slash at either end, or two of them, are in no path.
            prop_assume!(!pattern.starts_with('/') && !pattern.contains("//") && !pattern.ends_with('/'));
            // Elsewhere than between slashes `**` is two stars to some and a mistake to others.
            prop_assume!(pattern.split('/').all(|part| part == "**" || !part.contains("**")));
            let other = globset::GlobBuilder::new(&pattern).literal_separator(true).build().unwrap().compile_matcher();
            prop_assert_eq!(path(&pattern).unwrap().matches(&name), other.is_match(&name), "{} {}", pattern, name);
        }

        #[test]
        fn braces_are_what_others_take_them_for(
            pattern in "(a|b|c|/|\\*|\\{[abc*]{0,2},[abc]{0,2}\\}|\\{a,\\{b,c\\}\\}){1,6}",
            name in "[abc](/?[abc]){0,5}",
        ) {
            prop_assume!(!pattern.contains("**"));
            let other = globset::GlobBuilder::new(&pattern).literal_separator(true).empty_alternates(true).build();
            let other = other.unwrap().compile_matcher();
            let own = path(&pattern);
            // Six alternatives of three are more than we take.
            prop_assume!(!matches!(own, Err(Mistake::TooMany)));
            prop_assert_eq!(own.unwrap().matches(&name), other.is_match(&name), "{} {}", pattern, name);
        }

        #[test]
        fn no_text_panics(pattern in "\\PC{0,40}", name in "\\PC{0,40}") {
            for (slash, letters) in [(Slash::Separates, Letters::Exact), (Slash::IsPlain, Letters::Folded)] {
                if let Ok(glob) = Glob::parse(&pattern, slash, letters) {
                    glob.matches(&name);
                }
            }
        }
    }
}
