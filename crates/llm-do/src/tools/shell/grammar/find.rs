//! The grammar of `find`: where it starts, then an expression of tests that only look.

use super::{Fit, read_file};
use crate::escape::visible;
use crate::tools::shell::directory::CommandDirectory;
use crate::tools::shell::words::Word;

/// A word of an expression and what follows it.
struct Test {
    name: &'static str,
    takes: Takes,
}

#[derive(Clone, Copy)]
enum Takes {
    Nothing,
    Text,
    File,
}

const fn alone(name: &'static str) -> Test {
    Test { name, takes: Takes::Nothing }
}

const fn text(name: &'static str) -> Test {
    Test { name, takes: Takes::Text }
}

// Without: -exec, -execdir, -ok, -okdir, -delete, -fls, -fprint, -fprint0, -fprintf, -follow, -files0-from.
const TESTS: &[Test] = &[
    alone("("),
    alone(")"),
    alone("!"),
    alone(","),
    alone("-a"),
    alone("-and"),
    alone("-o"),
    alone("-or"),
    alone("-not"),
    alone("-true"),
    alone("-false"),
    alone("-daystart"),
    alone("-depth"),
    alone("-d"),
    text("-maxdepth"),
    text("-mindepth"),
    alone("-mount"),
    alone("-xdev"),
    alone("-noleaf"),
    alone("-ignore_readdir_race"),
    alone("-nowarn"),
    text("-regextype"),
    text("-amin"),
    text("-atime"),
    text("-cmin"),
    text("-ctime"),
    text("-mmin"),
    text("-mtime"),
    text("-used"),
    Test { name: "-newer", takes: Takes::File },
    Test { name: "-anewer", takes: Takes::File },
    Test { name: "-cnewer", takes: Takes::File },
    text("-newermt"),
    text("-newerat"),
    text("-newerct"),
    alone("-empty"),
    alone("-executable"),
    alone("-readable"),
    alone("-writable"),
    text("-fstype"),
    text("-gid"),
    text("-group"),
    alone("-nogroup"),
    text("-uid"),
    text("-user"),
    alone("-nouser"),
    text("-ilname"),
    text("-lname"),
    text("-iname"),
    text("-name"),
    text("-inum"),
    text("-links"),
    text("-ipath"),
    text("-path"),
    text("-iwholename"),
    text("-wholename"),
    text("-iregex"),
    text("-regex"),
    text("-perm"),
    text("-size"),
    text("-type"),
    text("-xtype"),
    alone("-ls"),
    alone("-print"),
    alone("-print0"),
    text("-printf"),
    alone("-prune"),
    alone("-quit"),
];

pub(super) fn fit(words: &[Word], directory: &CommandDirectory) -> Result<Fit, String> {
    let mut fit = Fit::default();
    // The one global option that is no danger says not to follow links, which is also the default.
    let words = match words {
        [first, rest @ ..] if first.text == "-P" => rest,
        words => words,
    };
    let starts = words.iter().take_while(|word| !begins_expression(&word.text)).count();
    let (starts, expression) = words.split_at(starts);
    for start in starts {
        read_file(start, directory, &mut fit)?;
    }
    let mut expression = expression.iter();
    while let Some(word) = expression.next() {
        let Some(test) = TESTS.iter().find(|test| test.name == word.text) else {
            return Err(format!("`{}` is not among the tests of `find` that only look", visible(&word.text)));
        };
        let mut value = || expression.next().ok_or_else(|| format!("`{}` needs a value", test.name));
        match test.takes {
            Takes::Nothing => {}
            Takes::Text => drop(value()?),
            Takes::File => drop(read_file(value()?, directory, &mut fit)?),
        }
    }
    Ok(fit)
}

/// As `find` itself decides it.
fn begins_expression(word: &str) -> bool {
    (word.starts_with('-') && word.len() > 1) || matches!(word, "(" | ")" | "!" | ",")
}
