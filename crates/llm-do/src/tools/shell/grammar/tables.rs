//! The flags of the plain commands. What is missing here is missing on purpose: it writes, executes, reads lists of
//! files, follows links, or never ends.

use super::options::Type::{Number, OneOf, Size, Text};
use super::options::{Flag, NUMBER, both, long, short};

const WHEN: super::options::Type = OneOf(&["never", "auto", "always"]);

// Without: -L, -H and their long forms, which look at what links lead to.
pub(crate) const LS: &[Flag] = &[
    both('a', "all"),
    both('A', "almost-all"),
    both('b', "escape"),
    both('B', "ignore-backups"),
    short('c'),
    short('C'),
    long("color").may_take(WHEN),
    both('d', "directory"),
    short('f'),
    both('F', "classify"),
    long("file-type"),
    long("format").takes(OneOf(&["across", "commas", "horizontal", "long", "single-column", "verbose", "vertical"])),
    long("full-time"),
    short('g'),
    long("group-directories-first"),
    both('G', "no-group"),
    both('h', "human-readable"),
    long("si"),
    long("hide").takes(Text),
    both('i', "inode"),
    both('I', "ignore").takes(Text),
    both('k', "kibibytes"),
    short('l'),
    short('m'),
    both('n', "numeric-uid-gid"),
    both('N', "literal"),
    short('o'),
    short('p'),
    both('q', "hide-control-chars"),
    both('Q', "quote-name"),
    both('r', "reverse"),
    both('R', "recursive"),
    both('s', "size"),
    short('S'),
    long("sort").takes(OneOf(&["none", "size", "time", "version", "extension", "name", "width"])),
    long("time").takes(OneOf(&[
        "atime",
        "access",
        "use",
        "ctime",
        "status",
        "birth",
        "creation",
        "mtime",
        "modification",
    ])),
    long("time-style").takes(OneOf(&["full-iso", "long-iso", "iso", "locale"])),
    short('t'),
    short('u'),
    short('U'),
    short('v'),
    short('x'),
    short('X'),
    short('1'),
];

pub(crate) const CAT: &[Flag] = &[
    both('A', "show-all"),
    both('b', "number-nonblank"),
    short('e'),
    both('E', "show-ends"),
    both('n', "number"),
    both('s', "squeeze-blank"),
    short('t'),
    both('T', "show-tabs"),
    short('u'),
    both('v', "show-nonprinting"),
];

pub(crate) const HEAD: &[Flag] = &[
    NUMBER,
    both('c', "bytes").takes(Size),
    both('n', "lines").takes(Size),
    both('q', "quiet"),
    long("silent"),
    both('v', "verbose"),
    both('z', "zero-terminated"),
];

// Without: -f, -F, --follow, --retry, --pid, -s, which wait.
pub(crate) const TAIL: &[Flag] = HEAD;

// Without: --files0-from, which reads other files.
pub(crate) const WC: &[Flag] = &[
    both('c', "bytes"),
    both('m', "chars"),
    both('l', "lines"),
    both('L', "max-line-length"),
    both('w', "words"),
    long("total").takes(OneOf(&["auto", "always", "only", "never"])),
];

// Without: -o, --compress-program, -T, --files0-from, --random-source, -R, --batch-size, -S, --parallel.
pub(crate) const SORT: &[Flag] = &[
    both('b', "ignore-leading-blanks"),
    both('c', "check").may_take(OneOf(&["quiet", "silent", "diagnose-first"])),
    short('C'),
    both('d', "dictionary-order"),
    both('f', "ignore-case"),
    both('g', "general-numeric-sort"),
    both('h', "human-numeric-sort"),
    both('i', "ignore-nonprinting"),
    both('k', "key").takes(Text),
    both('m', "merge"),
    both('M', "month-sort"),
    both('n', "numeric-sort"),
    both('r', "reverse"),
    both('s', "stable"),
    both('t', "field-separator").takes(Text),
    both('u', "unique"),
    both('V', "version-sort"),
    both('z', "zero-terminated"),
];

pub(crate) const UNIQ: &[Flag] = &[
    both('c', "count"),
    both('d', "repeated"),
    short('D'),
    both('f', "skip-fields").takes(Number),
    both('i', "ignore-case"),
    both('s', "skip-chars").takes(Number),
    both('u', "unique"),
    both('w', "check-chars").takes(Number),
    both('z', "zero-terminated"),
];

// Without: -R and --dereference-recursive, which follow links; -d and -D, which mean them too; --exclude-from.
pub(crate) const GREP: &[Flag] = &[
    NUMBER,
    both('A', "after-context").takes(Number),
    both('a', "text"),
    both('B', "before-context").takes(Number),
    both('b', "byte-offset"),
    long("binary-files").takes(OneOf(&["binary", "text", "without-match"])),
    both('C', "context").takes(Number),
    both('c', "count"),
    long("color").may_take(WHEN),
    long("colour").may_take(WHEN),
    both('E', "extended-regexp"),
    both('e', "regexp").takes(Text),
    long("exclude").takes(Text),
    long("exclude-dir").takes(Text),
    both('F', "fixed-strings"),
    both('f', "file").takes(Text),
    both('G', "basic-regexp"),
    both('H', "with-filename"),
    both('h', "no-filename"),
    short('I'),
    both('i', "ignore-case"),
    long("no-ignore-case"),
    long("include").takes(Text),
    both('L', "files-without-match"),
    both('l', "files-with-matches"),
    long("line-buffered"),
    both('m', "max-count").takes(Number),
    both('n', "line-number"),
    both('o', "only-matching"),
    both('P', "perl-regexp"),
    both('q', "quiet"),
    long("silent"),
    both('r', "recursive"),
    both('s', "no-messages"),
    both('T', "initial-tab"),
    both('v', "invert-match"),
    both('w', "word-regexp"),
    both('x', "line-regexp"),
    both('Z', "null"),
    both('z', "null-data"),
];

// Without: -b, -S and -t, which name other files.
pub(crate) const MV: &[Flag] =
    &[both('f', "force"), both('n', "no-clobber"), both('T', "no-target-directory"), both('v', "verbose")];
