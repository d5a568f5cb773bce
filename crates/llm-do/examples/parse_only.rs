//! Reads the files of a project that `bench/generate.py` wrote, as a project's files are read, and parses their YAML and
//! JSON into trees, nothing more: the floor under `llm-do check`.

use std::io::{self, Write as _};
use std::path::Path;
use std::{env, str};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use llm_do::beneath;
use llm_do::syntax::diagnostic::{Diagnostics, Sources};
use llm_do::syntax::tree::{self, LARGEST_FILE, Node, NodeKind, Text};

fn main() -> io::Result<()> {
    let root = env::args().nth(1).ok_or_else(|| io::Error::other("give a project directory"))?;
    let directory = Dir::open_ambient_dir(&root, ambient_authority())?;
    let read = |path: &str| beneath::read(&directory, Path::new(path), LARGEST_FILE as u64).map_err(io::Error::other);
    let file = Sources::default().add(root.into(), String::new());
    let mut problems = Diagnostics::default();
    let manifest = read("project.json")?;
    let manifest = str::from_utf8(&manifest).map_err(io::Error::other)?;
    let manifest = tree::parse_json(Text::whole(file, manifest), &mut problems);
    let mut parsed = usize::from(manifest.is_some());
    for path in manifest.iter().flat_map(worker_files) {
        let text = read(path)?;
        let text = str::from_utf8(&text).map_err(io::Error::other)?;
        let yaml = text.split("---\n").nth(1).unwrap_or_default();
        parsed += usize::from(tree::parse_yaml(Text::whole(file, yaml), &mut problems).is_some());
    }
    writeln!(io::stdout(), "{parsed} files parsed, mistakes: {}", problems.has_errors())
}

fn worker_files(manifest: &Node) -> impl Iterator<Item = &str> {
    let entries = match &manifest.kind {
        NodeKind::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    let listed = entries.iter().find(|entry| entry.key.value == "worker_files").map(|entry| &entry.value.kind);
    let items = match listed {
        Some(NodeKind::List(items)) => items.as_slice(),
        _ => &[],
    };
    items.iter().filter_map(|item| match &item.kind {
        NodeKind::Text(path) => Some(path.as_str()),
        _ => None,
    })
}
