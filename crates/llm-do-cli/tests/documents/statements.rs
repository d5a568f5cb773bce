//! `docs/seeds.md` names for every founding statement the test that shows it.

use std::collections::BTreeSet;
use std::fs;

use crate::{read, repository};

/// A statement: its number, and the test beside it, unless it is not there yet.
#[derive(Debug, PartialEq)]
struct Statement<'a> {
    number: &'a str,
    test: Option<&'a str>,
}

fn statements(document: &str) -> Vec<Statement<'_>> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ")?.trim_end().strip_suffix('|'));
    rows.filter_map(|row| statement(&row.split(" | ").map(str::trim).collect::<Vec<_>>())).collect()
}

/// That of a row whose first cell is a number like `A12`.
fn statement<'a>(cells: &[&'a str]) -> Option<Statement<'a>> {
    let digits = cells[0].strip_prefix(|letter: char| letter.is_ascii_uppercase())?;
    digits.parse::<u32>().ok()?;
    let [number, _, here, test] = cells[..] else { panic!("{cells:?}") };
    let test = test.split('`').nth(1);
    assert_eq!(test.is_none(), here == "not yet", "{number} has a test, or is not there yet");
    Some(Statement { number, test })
}

/// The names of functions that are marked as tests.
fn tests(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_marked = false;
    for line in source.lines().map(str::trim_start) {
        let name = || line.split_once("fn ")?.1.split('(').next();
        match line {
            "#[test]" | "#[tokio::test]" => is_marked = true,
            _ if line.starts_with("#[tokio::test(") => is_marked = true,
            _ if is_marked && (line.starts_with("fn ") || line.starts_with("async fn ")) => {
                found.extend(name());
                is_marked = false;
            }
            _ if line.starts_with('#') || line.starts_with("//") => {}
            _ => is_marked = false,
        }
    }
    // The snippets' tests are made by a macro.
    let snippets = source.split_once("\nsnippets! {\n").map_or("", |(_, rest)| rest.split('}').next().unwrap());
    found.extend(snippets.lines().filter_map(|line| Some(line.trim().split_once(": \"")?.0)));
    found
}

fn all_tests() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut waiting = vec![repository().join("crates")];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                all.extend(tests(&fs::read_to_string(path).unwrap()).into_iter().map(str::to_owned));
            }
        }
    }
    all
}

#[test]
fn every_statement_names_a_test_that_is_there() {
    let document = read("docs/seeds.md");
    let (statements, tests) = (statements(&document), all_tests());
    let missing: Vec<_> =
        statements.iter().filter(|statement| statement.test.is_some_and(|test| !tests.contains(test))).collect();
    assert_eq!(missing, Vec::<&Statement<'_>>::new());
    // Numbered without a gap, each once.
    let mut expected = Vec::new();
    for (letter, count) in [("R", 9), ("A", 60), ("C", 24), ("T", 12), ("P", 28), ("F", 29)] {
        expected.extend((1..=count).map(|number| format!("{letter}{number}")));
    }
    assert_eq!(statements.iter().map(|statement| statement.number).collect::<Vec<_>>(), expected);
    let open: Vec<_> = statements.iter().filter(|statement| statement.test.is_none()).map(|one| one.number).collect();
    assert_eq!(open, ["T12"], "not yet");
}

#[test]
fn a_test_is_what_is_marked_as_one() {
    let source = "#[test]\nfn a() {\n    fn helper() {}\n}\nfn b() {}\n#[tokio::test]\n#[cfg(unix)]\nasync fn c() {}\n\nsnippets! {\n    d: \"d\",\n}\n";
    assert_eq!(tests(source), ["a", "c", "d"]);
    let document = "| # | S | H | T |\n| --- | --- | --- | --- |\n| R1 | s | h | `a` |\n| T12 | s | not yet | |\n";
    let expected = [Statement { number: "R1", test: Some("a") }, Statement { number: "T12", test: None }];
    assert_eq!(statements(document), expected);
}
