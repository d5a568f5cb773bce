//! The references name everything that the program knows, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use llm_do::model::provider::PROVIDERS;
use serde_json::Value;

use crate::read;
use crate::support::Sandbox;

/// A row of a table: the headings above it in backticks, and its cells.
struct Row {
    under: Vec<String>,
    cells: Vec<String>,
}

impl Row {
    /// The names in backticks of a cell.
    fn names(&self, cell: usize) -> Vec<String> {
        self.cells.get(cell).map_or_else(Vec::new, |cell| quoted(cell))
    }
}

fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The rows of all tables, without their headings.
fn rows(document: &str) -> Vec<Row> {
    let (mut rows, mut under, mut in_body) = (Vec::new(), Vec::new(), false);
    for line in document.lines() {
        let Some(inner) = line.strip_prefix('|').and_then(|line| line.trim_end().strip_suffix('|')) else {
            in_body = false;
            if line.starts_with("## ") {
                under = quoted(line);
            }
            continue;
        };
        if inner.chars().all(|c| matches!(c, '-' | '|' | ' ')) {
            in_body = inner.contains('-');
        } else if in_body {
            let cells = inner.split(" | ").map(|cell| cell.trim().to_owned()).collect();
            rows.push(Row { under: under.clone(), cells });
        }
    }
    rows
}

/// What a schema says of one key.
struct Key {
    required: bool,
    words: Vec<String>,
}

/// Every key of a schema by its path. What is beneath another spelling is beneath the key itself too.
fn keys(schema: &Value, path: &str, found: &mut BTreeMap<String, Key>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for alternative in schema["anyOf"].as_array().into_iter().flatten() {
        keys(alternative, path, found);
    }
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        let words = value["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let key = Key { required: required.contains(&name.as_str()), words: words.collect() };
        found.insert(below(name), key);
        if !value["description"].as_str().is_some_and(|text| text.starts_with("another spelling of ")) {
            keys(value, &below(name), found);
        }
    }
    if schema["additionalProperties"].is_object() {
        keys(&schema["additionalProperties"], &below("*"), found);
    }
    if schema["items"].is_object() {
        keys(&schema["items"], &below("[]"), found);
    }
}

/// Holds a document against the keys of a schema: the headings of its tables are paths, their first cells keys.
fn check_keys(document: &str, schema: &Value) {
    let text = read(document);
    let mut known = BTreeMap::new();
    keys(schema, "", &mut known);
    let mut named = BTreeSet::new();
    for row in rows(&text) {
        let places = if row.under.is_empty() { vec![String::new()] } else { row.under.clone() };
        for (place, name) in places.iter().flat_map(|place| row.names(0).into_iter().map(move |name| (place, name))) {
            let path = if place.is_empty() { name } else { format!("{place}.{name}") };
            let key = known.get(&path).unwrap_or_else(|| panic!("{document}: there is no key `{path}`"));
            let words = row.names(1);
            assert!(
                key.words.iter().all(|word| words.contains(word)),
                "{document}: `{path}` is one of {:?}",
                key.words
            );
            assert_eq!(row.cells[1].contains("required"), key.required, "{document}: `{path}`");
            assert!(named.insert(path.clone()), "{document}: `{path}` is there twice");
        }
    }
    let missing: Vec<&String> = known.keys().filter(|path| !named.contains(*path)).collect();
    assert!(missing.is_empty(), "{document} does not tell of {missing:?}");
}

#[test]
fn the_manifest_and_worker_files_have_these_keys() {
    check_keys("docs/manifest.md", &llm_do::project::schema::of_project());
    check_keys("docs/worker-files.md", &llm_do::project::schema::of_worker());
}

#[test]
fn events_have_these_types_and_fields() {
    let schema = llm_do::event::schema();
    let mut known = BTreeMap::new();
    for event in schema["oneOf"].as_array().unwrap() {
        let parts = std::iter::once(event).chain(event["oneOf"].as_array().into_iter().flatten());
        let fields = parts.flat_map(|part| part["properties"].as_object().into_iter().flatten());
        let fields: BTreeSet<String> = fields.map(|(name, _)| name.clone()).filter(|name| name != "type").collect();
        known.insert(event["properties"]["type"]["const"].as_str().unwrap().to_owned(), fields);
    }
    let text = read("docs/events.md");
    let rows = rows(&text);
    let told = rows.iter().filter(|row| row.cells.len() == 3);
    let told: BTreeMap<_, _> = told.map(|row| (row.names(0).remove(0), row.names(1).into_iter().collect())).collect();
    assert_eq!(told, known);
    // Words that are values of fields are named too.
    for definition in ["Answered", "CallKind", "Finish"] {
        let words = serde_json::to_string(&schema["$defs"][definition]).unwrap();
        for word in
            words.split('"').filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        {
            let is_of_schema = matches!(word, "type" | "string" | "enum" | "const" | "description");
            assert!(is_of_schema || text.contains(&format!("`{word}`")), "docs/events.md does not tell of `{word}`");
        }
    }
}

#[test]
fn results_have_these_fields() {
    let sandbox = Sandbox::new();
    sandbox.file("main.worker", "---\nname: main\nmodel: scripted:s.yaml\n---\nx").file("s.yaml", "- say: hi\n");
    let ended = sandbox.run(&["main.worker", "hi", "--output-format", "json"]);
    let result: Value = serde_json::from_str(&ended.stdout).unwrap();
    let known: BTreeSet<String> = result.as_object().unwrap().keys().cloned().collect();
    let rows = rows(&read("docs/events.md"));
    let told: BTreeSet<String> =
        rows.iter().filter(|row| row.cells.len() == 2).map(|row| row.names(0).remove(0)).collect();
    assert_eq!(told, known);
    let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for field in fields(&result["usage"]["total"]).into_iter().chain(fields(&result["trace"])) {
        assert!(read("docs/events.md").contains(&format!("`{field}`")), "{field}");
    }
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let help = Sandbox::new().run(&["--help"]).stdout;
    let (_, codes) = help.split_once("Exit codes: ").unwrap();
    let is_code = |word: &&str| word.chars().all(|c| c.is_ascii_digit());
    let known: Vec<&str> = codes.split([' ', ',', '\n']).filter(|word| !word.is_empty()).filter(is_code).collect();
    let text = read("docs/cli.md");
    let rows = rows(&text);
    let told: Vec<&str> =
        rows.iter().map(|row| row.cells[0].as_str()).filter(|cell| !cell.is_empty()).filter(is_code).collect();
    assert_eq!(told, known);
}

#[test]
fn providers_have_these_variables() {
    let text = read("docs/configuration.md");
    let told: Vec<_> = rows(&text)
        .iter()
        .filter(|row| row.cells.len() == 3)
        .map(|row| (row.names(0), row.names(1), row.names(2)))
        .collect();
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let known: Vec<_> = PROVIDERS
        .iter()
        .map(|row| (vec![row.name.to_owned()], owned(row.key_variables), owned(row.base_url_variables)))
        .collect();
    assert_eq!(told, known);
}

/// The keys that a mapping of `config.toml` may have, as its schema says.
fn config_keys(mapping: &Value) -> BTreeSet<String> {
    let keys = mapping["properties"].as_object().unwrap_or_else(|| panic!("{mapping}")).keys();
    keys.filter(|key| *key != "$schema").cloned().collect()
}

#[test]
fn the_configuration_has_these_keys() {
    let text = read("docs/configuration.md");
    let schema: Value = serde_json::from_str(&Sandbox::new().run(&["schema", "config"]).stdout).unwrap();
    let of = |name: &str| &schema["properties"][name];
    let tables = [
        ("config.toml", &schema),
        ("providers.NAME", &of("providers")["additionalProperties"]),
        ("prices.MODEL", &of("prices")["additionalProperties"]),
        ("http", of("http")),
        ("runs", of("runs")),
        ("cache", of("cache")),
        ("notify", of("notify")),
        ("budget", &of("budget")["items"]),
        ("fence", of("fence")),
        ("shell", of("shell")),
    ];
    for (heading, mapping) in tables {
        let told = rows(&text).into_iter().filter(|row| row.under == [heading]);
        let told: BTreeSet<String> = told.flat_map(|row| row.names(0)).collect();
        assert_eq!(told, config_keys(mapping), "{heading}");
    }
}

#[test]
fn rows_are_found_beneath_their_headings() {
    let found = rows("| a | b |\n| --- | --- |\n| `x` (`y`) | 1 |\n\n## `p.q`\n\n| k |\n| --- |\n| `z` |\nend\n");
    let shape: Vec<_> = found.iter().map(|row| (row.under.clone(), row.names(0))).collect();
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(shape, [(owned(&[]), owned(&["x", "y"])), (owned(&["p.q"]), owned(&["z"]))]);
}
