//! What must hold for any arguments that a model writes and any words of a server, as plain functions: the property
//! tests and the fuzzer drive the same ones. They panic when something does not hold.

use std::path::{Component, Path};

use cap_std::fs::Dir;
use cap_tempfile::TempDir;

use super::agent::AgentTool;
use super::approval::{Verdict, canonical};
use super::filesystem::{FileBases, Filesystem};
use super::mcp::protocol::{self, Listing};
use super::protected::ProtectedFiles;
use super::shell::directory::CommandDirectory;
use super::shell::{grammar, words};
use super::source::{Access, Base, FileRoot, FilesystemConfig, Roots};
use super::{ToolSpec, Toolset, mcp};
use crate::beneath::{self, Identity};
use crate::escape::deceives;
use crate::message::{Arguments, Content, RawJson};
use crate::syntax::table::is_name;

/// Arguments are judged or refused by every tool, nothing runs, and what is shown and remembered of them is one text.
pub fn arguments(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let arguments = match Arguments::parse(text.clone()) {
        Arguments::Object(arguments) => arguments,
        Arguments::Malformed(kept) => return assert_eq!(kept, text, "the model reads what it wrote"),
    };
    check_canonical(&arguments);
    for (specs, judge) in judges() {
        for spec in specs {
            assert_eq!(judge(&spec.name, &arguments), judge(&spec.name, &arguments), "{}", spec.name);
        }
    }
}

/// A command is split into the words that another reading of the shell's grammar finds in it, or refused; and what it
/// is shown as is the same command.
pub fn command(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(split) = words::split(&text) else { return };
    // Judging looks, and changes nothing.
    if let Ok(directory) = CommandDirectory::open(Path::new("src")) {
        assert_eq!(
            grammar::fit(&split, &directory, &|_| false),
            grammar::fit(&split, &directory, &|_| false),
            "{text:?}"
        );
    }
    let split: Vec<String> = split.into_iter().map(|word| word.text).collect();
    assert_eq!(shlex::split(&text).as_ref(), Some(&split), "{text:?}");
    assert!(split.iter().all(|word| !word.chars().any(char::is_control)), "{text:?}");
    let shown = shlex::try_join(split.iter().map(String::as_str)).expect("there is no NUL in a word");
    let again = words::split(&shown).map(|words| words.into_iter().map(|word| word.text).collect());
    // What is shown may be longer than a command may be.
    assert!(shown.len() > words::LONGEST_COMMAND || again == Ok(split), "{text:?}");
}

/// A path leads where the system's own confined lookup leads, or nowhere; and judging it, to read or to write, makes
/// nothing. The tree has links of every kind, inside and out.
pub fn paths(bytes: &[u8]) {
    // One tree for each thread: nothing here changes it, and it goes with the thread.
    thread_local!(static TREE: TempDir = tree().expect("a temporary directory can be made"));
    let path = String::from_utf8_lossy(bytes).into_owned();
    TREE.with(|tree| {
        check_place(&tree.open_dir("root").expect("it was made with the tree"), &path);
        let names = tree.entries().map(Iterator::count).unwrap_or_default();
        assert_eq!(names, 2, "nothing is made outside");
    });
    let config = FilesystemConfig { roots: Roots::One(writable(Base::WorkingDirectory)) };
    let files = Filesystem::open(&config, &FileBases::of(Path::new(".")), &ProtectedFiles::default())
        .expect("there is a working directory");
    for (tool, arguments) in [
        ("read_file", serde_json::json!({"path": path})),
        ("write_file", serde_json::json!({"path": path, "content": "x"})),
        ("edit_file", serde_json::json!({"path": path, "old": "x", "new": "y"})),
    ] {
        let _ = files.verdict(tool, &RawJson::of(&arguments));
    }
}

/// Whatever a server says, what is made of it is bounded, has names that are names, and shows nothing that deceives.
pub fn server(bytes: &[u8]) {
    let Ok(said) = RawJson::parse(&String::from_utf8_lossy(bytes)) else { return };
    let _ = protocol::read_hello(&said);
    let mut listing = Listing::default();
    // The second page may be the first one again.
    let _ = listing.add(&said).and_then(|_| listing.add(&said));
    assert!(listing.tools.len() + listing.refused.len() <= 1_000);
    for (index, tool) in listing.tools.iter().enumerate() {
        assert!(is_name(&tool.name), "{:?}", tool.name);
        assert!(listing.tools[..index].iter().all(|other| other.name != tool.name), "{:?}", tool.name);
        assert!(tool.parameters.to::<serde_json::Map<String, serde_json::Value>>().is_ok(), "{:?}", tool.parameters);
        check_words(&tool.description, 10_000);
    }
    check_words(&listing.complaint().unwrap_or_default(), 10_000);
    for words in [protocol::read_log(&said), protocol::read_progress(&said).and_then(|progress| progress.message)] {
        check_words(&words.unwrap_or_default(), 3_000);
    }
    check_content(&mcp::result::read(&said));
}

/// Checks the length and the characters of a text. Each character may have become ten where it was made visible.
fn check_words(text: &str, longest: usize) {
    assert!(text.chars().count() <= longest * 10, "{} characters", text.len());
    assert!(text.chars().all(|c| c == '\n' || !deceives(c)), "{text:?}");
}

fn check_content(read: &Result<Vec<Content>, String>) {
    let Ok(content) = read else { return };
    assert!(content.len() <= 102, "{} parts", content.len());
    for part in content {
        match part {
            Content::Text { .. } | Content::Value { .. } => {}
            Content::Attachment(file) => {
                let kinds = ["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/"];
                assert!(kinds.iter().any(|kind| file.media_type.starts_with(kind)), "{file:?}");
            }
        }
    }
}

fn check_place(root: &Dir, path: &str) {
    // To the system a `.` at the end says that a directory is there.
    let plain: std::path::PathBuf = Path::new(path).components().collect();
    let theirs = if plain.as_os_str().is_empty() { root.dir_metadata() } else { root.metadata(&plain) };
    match beneath::resolve(root, Path::new(path)) {
        Ok(place) => {
            assert!(place.path.components().all(|part| matches!(part, Component::Normal(_))), "{path:?}");
            match place.found {
                Some(found) => {
                    let theirs = theirs.unwrap_or_else(|error| panic!("{path:?}: {error}"));
                    assert_eq!(Identity::of_metadata(&theirs), found.identity, "{path:?}");
                }
                None => assert!(root.symlink_metadata(&place.path).is_err(), "{path:?}"),
            }
        }
        // A path may be deeper than we follow.
        Err(_) => assert!(theirs.is_err() || plain.iter().count() > 200, "{path:?}"),
    }
}

fn tree() -> std::io::Result<TempDir> {
    let tree = cap_tempfile::tempdir(cap_std::ambient_authority())?;
    tree.write("outside", "x")?;
    tree.create_dir_all("root/a/b")?;
    tree.write("root/a/b/f", "x")?;
    tree.write("root/.env", "x")?;
    for (target, link) in
        [("a/b", "l"), ("../a", "a/u"), ("../outside", "o"), ("m", "n"), ("n", "m"), ("d", "d2"), ("a/../l/f", "c")]
    {
        tree.symlink(target, Path::new("root").join(link))?;
    }
    Ok(tree)
}

/// Two calls are the same to a remembered approval exactly if their arguments are the same JSON.
fn check_canonical(arguments: &RawJson) {
    let Ok(value) = arguments.to::<serde_json::Value>() else { return };
    let text = canonical(arguments);
    let again = RawJson::parse(&text).expect("canonical JSON is JSON");
    assert_eq!(canonical(&again), text);
    assert_eq!(again.to::<serde_json::Value>().ok(), Some(value));
}

type Judge = Box<dyn Fn(&str, &RawJson) -> Result<Verdict, String>>;

fn judges() -> Vec<(Vec<ToolSpec>, Judge)> {
    let schema = r#"{"type":"object","properties":{"topic":{"type":"string","maxLength":9},"n":{"type":"integer"}},"required":["topic"]}"#;
    let agent = |parameters: Option<&str>| AgentTool {
        project_root: std::path::PathBuf::from("."),
        protected: ProtectedFiles::default(),
        name: "reader".to_owned(),
        description: String::new(),
        parameters: parameters.map(|schema| RawJson::from_valid(schema.to_owned())),
        calls_ask: false,
        attachments_ask: true,
    };
    let mut judges: Vec<(Vec<ToolSpec>, Judge)> = Vec::new();
    for agent in [agent(None), agent(Some(schema))] {
        judges.push((agent.specs(), Box::new(move |_, arguments| executor().block_on(agent.verdict(arguments)))));
    }
    // Judging a write looks at what is there, and changes nothing.
    let config = FilesystemConfig { roots: Roots::One(writable(Base::WorkingDirectory)) };
    if let Ok(files) = Filesystem::open(&config, &FileBases::of(Path::new(".")), &ProtectedFiles::default()) {
        judges.push((files.specs(), Box::new(move |tool, arguments| files.verdict(tool, arguments))));
    }
    judges
}

fn executor() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("an executor starts")
}

fn writable(base: Base) -> FileRoot {
    FileRoot { base, access: Access::ReadWrite, suffixes: Vec::new(), max_file_bytes: Some(1 << 16) }
}
