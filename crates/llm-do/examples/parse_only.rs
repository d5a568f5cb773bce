//! Reads the files of a project that `bench/generate.py` wrote and parses their YAML and JSON, nothing more: the floor
//! under `llm-do check`.

use std::io::Write as _;
use std::path::Path;
use std::{env, fs, io};

use llm_do::syntax::diagnostic::{Diagnostics, Sources};
use llm_do::syntax::tree::{self, Text};

fn main() -> io::Result<()> {
    let argument = env::args().nth(1).ok_or_else(|| io::Error::other("give a project directory"))?;
    let root = Path::new(&argument);
    let file = Sources::default().add(root.to_owned(), String::new());
    let mut problems = Diagnostics::default();
    let manifest = fs::read_to_string(root.join("project.json"))?;
    let mut parsed = usize::from(tree::parse_json(Text::whole(file, &manifest), &mut problems).is_some());
    for entry in fs::read_dir(root.join("agents"))? {
        let text = fs::read_to_string(entry?.path())?;
        let yaml = text.split("---\n").nth(1).unwrap_or_default();
        parsed += usize::from(tree::parse_yaml(Text::whole(file, yaml), &mut problems).is_some());
    }
    writeln!(io::stdout(), "{parsed} files parsed, mistakes: {}", problems.has_errors())
}
