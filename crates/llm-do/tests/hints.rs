//! The library and the launcher name no flag, no variable and no command of a front end in their texts: what can be done
//! about a mistake is a `Remedy`, and each front end words it. This reads every string in their sources and fails on one
//! that names such a thing, but for those in [`EXCEPTIONS`].

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::LitStr;
use syn::buffer::{Cursor, TokenBuffer};

/// Files, a part of each string that may stand there, and why. An exception without a use fails too.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("llm-do/src/store/race.rs", "-", "what a test says to another process of the same tests"),
    ("llm-do/src/store/race.rs", "LLM_DO_TEST_RACE", "what a test says to another process of the same tests"),
    ("llm-do/src/tools/shell/danger.rs", "-", "options of other programs"),
    ("llm-do/src/tools/shell/grammar", "--", "options of git and of other programs"),
    ("llm-do/src/tools/shell/operands.rs", "--files", "an option of other programs"),
    ("llm-do/src/tools/shell/process.rs", "LLM_DO_COMMAND", "the variable that marks the processes of a command"),
    ("llm-do/src/tools/protected.rs", ".llm-do .venv", "names of directories"),
    ("llm-do/src/project/schema.rs", "llm-do ", "the titles of our own formats"),
    ("llm-do/src", "belongs to llm-do itself", "a fact about a file"),
    ("llm-do/src/runtime/mod.rs", "llm-do itself failed", "a fact about a mistake of the program"),
    ("llm-do/src/tools/fence/tenant.rs", "`llm-do-keeper`", "what a program that embeds the library gives it"),
    ("llm-do/src/tools", "it is started by `llm-do` alone", "a fact about a command that no person types"),
    ("llm-do/src/model/provider.rs", "_API_KEY", "the table of providers: data, which remedies carry"),
    ("llm-do-launch/src/providers.rs", "GOOGLE_API_KEY", "a variable that decides how a key is sent"),
    ("llm-do-launch/src/settings.rs", "LLM_DO_HOME", "a variable that is looked up among the given ones"),
    ("llm-do-launch/src/settings.rs", "config.toml", "the name of a file that is read"),
    ("llm-do-launch/src/state.rs", "LLM_DO_STATE_KEY", "a variable that is looked up among the given ones"),
    ("llm-do-launch/src/state.rs", "LLM_DO_ENGINE_KEY", "likewise"),
    ("llm-do-launch/src/fencing.rs", "LLM_DO_FENCE", "a variable that is looked up, and where a wrong value stands"),
    ("llm-do-launch/src/config.rs", "in config.toml", "where a wrong value stands"),
    ("llm-do-launch/src/providers.rs", "in config.toml", "where a wrong value stands"),
    ("llm-do-launch/src/record.rs", "was not written by `llm-do run`", "a fact about a file"),
];

/// Whether a text names a flag, a variable, a command or the configuration of a front end.
fn names_a_front_end(text: &str) -> bool {
    let flag = text.match_indices("--").any(|(at, dashes)| {
        let before = text[..at].chars().next_back();
        let after = text[at + dashes.len()..].chars().next();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '-') && after.is_some_and(|c| c.is_ascii_lowercase())
    });
    let short = text
        .match_indices("`-")
        .any(|(at, start)| text[at + start.len()..].chars().next().is_some_and(|c| c.is_ascii_lowercase()));
    let named = ["LLM_DO_", "llm-do ", "`llm-do", "_API_KEY", "config.toml"];
    flag || short || named.iter().any(|name| text.contains(name))
}

/// Every string of a source, in macros and attributes too; not those of documentation and of tests.
fn strings(cursor: Cursor<'_>, found: &mut Vec<String>) {
    let mut rest = cursor;
    let mut skipped_item = false;
    while !rest.eof() {
        if let Some((punct, after)) = rest.punct()
            && punct.as_char() == '#'
            && let Some((attribute, _, _, behind)) = behind_hash(after).any_group()
        {
            let words = attribute.token_stream().to_string();
            skipped_item |= words.starts_with("cfg (test)") || words == "test";
            if !words.starts_with("doc") {
                strings(attribute, found);
            }
            rest = behind;
        } else if let Some((inside, delimiter, _, behind)) = rest.any_group() {
            if !skipped_item {
                strings(inside, found);
            }
            // A function has its arguments before its body.
            skipped_item &= format!("{delimiter:?}") != "Brace";
            rest = behind;
        } else if let Some((literal, behind)) = rest.literal() {
            if !skipped_item && let Ok(text) = syn::parse_str::<LitStr>(&literal.to_string()) {
                found.push(text.value());
            }
            rest = behind;
        } else {
            let (token, behind) = rest.token_tree().unwrap();
            skipped_item &= token.to_string() != ";";
            rest = behind;
        }
    }
}

/// Where the brackets of an attribute begin, whether it is of what follows or of what it stands in.
fn behind_hash(hash: Cursor<'_>) -> Cursor<'_> {
    let inner = hash.punct().filter(|(punct, _)| punct.as_char() == '!').map(|(_, behind)| behind);
    inner.unwrap_or(hash)
}

fn strings_of(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    strings(TokenBuffer::new2(syn::parse_str(source).unwrap()).begin(), &mut found);
    found
}

/// The sources beneath a directory, but those of tests.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

#[test]
fn texts_name_nothing_of_a_front_end() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in ["llm-do/src", "llm-do-launch/src"] {
        sources(&crates.join(name), &mut files);
    }
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for file in files {
        let shown = file.strip_prefix(crates).unwrap().to_string_lossy().into_owned();
        let named = strings_of(&fs::read_to_string(&file).unwrap()).into_iter().filter(|text| names_a_front_end(text));
        for text in named {
            let excepted = |(place, part, _): &&(&str, &str, &str)| shown.starts_with(place) && text.contains(part);
            match EXCEPTIONS.iter().find(excepted) {
                Some(exception) => _ = used.insert(exception),
                None => wrong.push(format!("{shown}: {text:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "make these a `Remedy`, which front ends word:\n{}", wrong.join("\n"));
    let idle: Vec<_> = EXCEPTIONS.iter().filter(|exception| !used.contains(exception)).collect();
    assert!(idle.is_empty(), "no text needs these exceptions: {idle:?}");
}

#[test]
fn a_text_is_found_wherever_it_stands() {
    let source = r#"
        /// `--flag` in documentation.
        #[error("`--one` is wrong")]
        struct Mistake;
        fn advice() -> String {
            // "`--comment`"
            format!("give `-m {}`", vec!["set LLM_DO_MODEL"][0])
        }
        #[cfg(test)]
        mod tests { const IN_TEST: &str = "--test"; }
        const LATER: &str = "`llm-do new` writes one";
    "#;
    let found: Vec<String> = strings_of(source).into_iter().filter(|text| names_a_front_end(text)).collect();
    assert_eq!(found, ["`--one` is wrong", "give `-m {}`", "set LLM_DO_MODEL", "`llm-do new` writes one"]);
    for harmless in ["a -- b", "a--b", "----", "`-`", "llm-do", "an em--dash"] {
        assert!(!names_a_front_end(harmless), "{harmless}");
    }
}
