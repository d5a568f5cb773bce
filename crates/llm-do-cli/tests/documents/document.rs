//! A Markdown document as a session: words, files to write, and commands to type.

/// A part of a document. Put together again, the parts are the document.
#[derive(Debug, PartialEq)]
pub enum Part {
    Words(String),
    /// A fence that names a file after its language: ```` ```yaml hello/main.worker ````.
    File {
        opening: String,
        path: String,
        text: String,
    },
    /// A fence `console`: each command after `$ `, what is seen beneath it.
    Console(Vec<Typed>),
    /// A fence `sh`: each line is a command that succeeds, whatever it shows.
    Commands(Vec<String>),
}

#[derive(Debug, PartialEq)]
pub struct Typed {
    pub command: String,
    pub seen: String,
}

/// Fences that are shown and not typed.
const SHOWN: &[&str] =
    &["", "json", "yaml", "toml", "python", "rust", "text", "mermaid", "jinja", "jsonrpc", "javascript"];

/// Reads a document. A command in any other place than a fence that is typed is a mistake, so that none is shown without
/// having been run.
pub fn parts(document: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut fence: Option<(&str, String)> = None;
    for line in document.split_inclusive('\n') {
        match (&mut fence, line.trim_end().strip_prefix("```")) {
            (None, Some(opening)) => fence = Some((opening, String::new())),
            (Some((_, text)), None) => text.push_str(line),
            (None, None) => {
                assert!(!line.starts_with("    llm-do "), "a command outside of a fence: {line}");
                add_words(&mut parts, line);
            }
            (Some(_), Some(_)) => {
                let (opening, text) = fence.take().unwrap();
                match part(opening, text) {
                    Part::Words(words) => add_words(&mut parts, &words),
                    // What follows a language is not shown to readers.
                    Part::File { path, .. } if !is_named(&parts, &path) => panic!("no words name `{path}` before it"),
                    part => parts.push(part),
                }
            }
        }
    }
    assert!(fence.is_none(), "a fence has no end");
    parts
}

/// Whether the words since the last fence name a file.
fn is_named(parts: &[Part], path: &str) -> bool {
    matches!(parts.last(), Some(Part::Words(words))
        if words.rsplit("```").next().is_some_and(|words| words.contains(&format!("`{path}`"))))
}

fn add_words(parts: &mut Vec<Part>, line: &str) {
    match parts.last_mut() {
        Some(Part::Words(words)) => words.push_str(line),
        _ => parts.push(Part::Words(line.to_owned())),
    }
}

fn part(opening: &str, text: String) -> Part {
    match opening.split_once(' ') {
        _ if opening == "console" => Part::Console(typed(&text)),
        _ if opening == "sh" => Part::Commands(text.lines().map(str::to_owned).collect()),
        Some((language, path)) if SHOWN.contains(&language) => {
            Part::File { opening: opening.to_owned(), path: path.to_owned(), text }
        }
        _ => {
            // What belongs to the documentation's own tests is no name of a file.
            let language = opening.split(',').next().unwrap_or_default();
            assert!(SHOWN.contains(&language), "nobody knows the fence {opening:?}");
            let is_command = |line: &str| line.starts_with("$ ") || line.starts_with("llm-do ");
            assert!(!text.lines().any(is_command), "a command in a fence {opening:?}:\n{text}");
            Part::Words(format!("```{opening}\n{text}```\n"))
        }
    }
}

fn typed(text: &str) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    for line in text.split_inclusive('\n') {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Typed { command: command.trim_end().to_owned(), seen: String::new() }),
            (None, Some(last)) => last.seen.push_str(line),
            (None, None) => panic!("{line:?} is the output of nothing"),
        }
    }
    all
}

/// The document again.
pub fn written(parts: &[Part]) -> String {
    let part = |part: &Part| match part {
        Part::Words(words) => words.clone(),
        Part::File { opening, text, .. } => format!("```{opening}\n{text}```\n"),
        Part::Commands(commands) => format!("```sh\n{}\n```\n", commands.join("\n")),
        Part::Console(typed) => {
            let shown: Vec<String> =
                typed.iter().map(|Typed { command, seen }| format!("$ {command}\n{seen}")).collect();
            format!("```console\n{}```\n", shown.concat())
        }
    };
    parts.iter().map(part).collect()
}

#[test]
fn a_document_is_its_parts() {
    let document = "x\n```json\n{}\n```\n`a/b.worker`:\n```yaml a/b.worker\nname: a\n```\n```console\n$ llm-do c\nout\n\nmore\n$ d\n```\n\
                    y\n```sh\nllm-do b  # why\n```\n";
    let typed = |command: &str, seen: &str| Typed { command: command.into(), seen: seen.into() };
    let expected = [
        Part::Words("x\n```json\n{}\n```\n`a/b.worker`:\n".into()),
        Part::File { opening: "yaml a/b.worker".into(), path: "a/b.worker".into(), text: "name: a\n".into() },
        Part::Console(vec![typed("llm-do c", "out\n\nmore\n"), typed("d", "")]),
        Part::Words("y\n".into()),
        Part::Commands(vec!["llm-do b  # why".into()]),
    ];
    assert_eq!(parts(document), expected);
    assert_eq!(written(&expected), document);
}

#[test]
fn no_command_hides_in_a_place_that_is_not_typed() {
    let hidden = ["    llm-do x\n", "```\n$ llm-do x\n```\n", "```text\nllm-do x\n```\n", "```fish\nx\n```\n"];
    for document in hidden.into_iter().chain(["```sh\n", "```yaml a\n```\n"]) {
        assert!(std::panic::catch_unwind(|| parts(document)).is_err(), "{document}");
    }
}
