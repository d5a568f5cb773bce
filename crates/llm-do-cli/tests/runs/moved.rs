//! Runs that move from one machine to another.

use std::fs;
use std::path::{Path, PathBuf};

use llm_do::records::StateKey;
use llm_do::store::layout::StoreLayout;
use llm_do::store::run::RunStore;
use llm_do_launch::kept_runs::unbundle;

use crate::Desk;

/// A prompt that is too large for a line.
fn large() -> String {
    "many words ".repeat(8_000)
}

impl Desk {
    /// A run with a large value, whose bundle lies in a file.
    fn bundled(&self, key: &str) -> (String, PathBuf) {
        let ended = self.llm_do(&["run", "desk", "-", "-p"]).hearing(&large()).with("LLM_DO_STATE_KEY", key).ended();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let run = self.last();
        let exported =
            self.llm_do(&["runs", "export", &run, "--format", "bundle"]).with("LLM_DO_STATE_KEY", key).ended();
        assert_eq!(exported.code, Some(0), "{exported:?}");
        let file = self.sandbox.path().join("run.bundle");
        fs::write(&file, exported.stdout).unwrap();
        (run, file)
    }
}

fn store(state: &Path, key: &str) -> RunStore {
    RunStore::new(StoreLayout::new(state), StateKey::from_hex(key))
}

#[test]
fn a_bundle_is_the_journal_byte_for_byte_and_its_large_values_and_goes_on_elsewhere() {
    let (desk, elsewhere) = (Desk::new(), tempfile::tempdir().unwrap());
    let key = desk.says(&["runs", "key"]).trim_end().to_owned();
    let (run, file) = desk.bundled(&key);
    let (bundle, journal) = (fs::read_to_string(&file).unwrap(), fs::read_to_string(desk.journal(&run)).unwrap());
    let blobs = fs::read_dir(desk.journal(&run).with_file_name("blobs")).unwrap().count();
    assert!(bundle.starts_with(&journal) && blobs > 0);
    assert_eq!(bundle.lines().count(), journal.lines().count() + blobs);
    let there = store(elsewhere.path(), &key);
    let id = unbundle(&file, &there).unwrap();
    assert_eq!(id.as_str(), run);
    let contents = there.read_journal(&id).unwrap();
    assert!(contents.header.get().contains(&large()), "large values came with it");
    assert_eq!(fs::read_to_string(there.layout().journal(&id)).unwrap(), journal);
    let again = unbundle(&file, &there).unwrap_err().fact();
    assert_eq!(again, format!("the run `{run}` is here already"));

    // The whole way: on the same machine it is here already, on another one it goes on.
    let typed = |home: &Path| {
        let flags = ["resume", "run.bundle", "-p"];
        desk.llm_do(&flags).with("LLM_DO_STATE_KEY", key.clone()).with("LLM_DO_HOME", home.to_str().unwrap()).ended()
    };
    let other = tempfile::tempdir().unwrap();
    let ended = typed(other.path());
    assert!(ended.code == Some(0) && ended.stdout.starts_with("You said many words"), "{}", ended.stderr);
    let ended = typed(other.path());
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("error: the run `RUN` is here already\n"), "{}", ended.stderr);
}

#[test]
fn without_a_shared_key_a_bundle_is_a_strangers() {
    let (desk, elsewhere) = (Desk::new(), tempfile::tempdir().unwrap());
    let keys = [desk.says(&["runs", "key"]), desk.says(&["runs", "key"])].map(|key| key.trim_end().to_owned());
    let (run, file) = desk.bundled(&keys[0]);
    let there = store(elsewhere.path(), &keys[1]);
    let id = unbundle(&file, &there).unwrap();
    assert_eq!(id.as_str(), run);
    assert!(there.read_journal(&id).unwrap_err().to_string().contains("was not written by you"));
}

/// Until somebody agrees to what it names nothing of it is kept; then it is a run like any other.
#[test]
fn a_strangers_bundle_goes_on_after_somebody_agreed() {
    let (desk, home) = (Desk::new(), tempfile::tempdir().unwrap());
    let run = desk.waiting();
    let bundle = desk.says(&["runs", "export", &run, "--format", "bundle"]);
    fs::write(desk.sandbox.path().join("run.bundle"), bundle).unwrap();
    let there = |arguments: &[&str]| {
        let home = home.path().to_str().unwrap().to_owned();
        desk.llm_do(arguments).with("LLM_DO_HOME", home).ended()
    };
    let listed = || there(&["runs", "--all", "--json"]).stdout;
    let ended = there(&["resume", "run.bundle", "-p", "--approve-all"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("was not written by you on this machine"), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("\nhint: `--foreign` reads it as a stranger's\n"), "{}", ended.stderr);
    assert_eq!(listed(), "", "nobody has agreed to it");
    let shown = there(&["resume", "run.bundle", "--foreign", "--show"]);
    assert!(shown.code == Some(0) && shown.stdout.contains("\nwaits for an approval\n"), "{shown:?}");
    assert_eq!(listed(), "", "looking at it keeps nothing");
    let ended = there(&["resume", "run.bundle", "--foreign", "-p", "--approve-all"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), ""), "{}", ended.stderr);
    for line in
        ["  project   desk\n", "  keep      1 reply of models, 0 results of tools\n", "`--trust` goes on with it\n"]
    {
        assert!(ended.stderr.contains(line), "{}", ended.stderr);
    }
    assert_eq!(listed(), "");
    assert_eq!(desk.fake.requests().len(), 1);
    let ended = there(&["resume", "run.bundle", "--foreign", "--trust", "-p", "--approve-all"]);
    assert!(ended.code == Some(0) && ended.stdout.starts_with("Result: "), "{ended:?}");
    assert_eq!(desk.fake.requests().len(), 2, "what it had asked is not asked again");
    let line: serde_json::Value = serde_json::from_str(&listed()).unwrap();
    assert_eq!((&line["id"], &line["state"]), (&run.clone().into(), &"done".into()));
    let again = there(&["resume", &run]);
    assert_eq!((again.code, again.stdout), (Some(0), ended.stdout), "it is signed as ours: {}", again.stderr);
    let twice = there(&["resume", "run.bundle", "--foreign", "--trust"]);
    assert!(twice.code == Some(2) && twice.stderr.starts_with("error: the run `RUN` is here already\n"), "{twice:?}");
    assert_eq!(desk.states(), ["waits"], "nothing has changed where it came from");
}

#[test]
fn a_bundle_that_is_not_whole_leaves_nothing_behind() {
    let (desk, elsewhere) = (Desk::new(), tempfile::tempdir().unwrap());
    let key = desk.says(&["runs", "key"]).trim_end().to_owned();
    let (_, file) = desk.bundled(&key);
    let bundle = fs::read_to_string(&file).unwrap();
    let there = store(elsewhere.path(), &key);
    let blob = bundle.lines().find(|line| line.starts_with("{\"blob\"")).unwrap();
    let middle = blob.len() / 2;
    let flipped = if &blob[middle..=middle] == "A" { "B" } else { "A" };
    let changed = format!("{}{flipped}{}", &blob[..middle], &blob[middle + 1..]);
    for broken in [
        bundle.replace(blob, &changed),
        bundle.replace(&format!("{blob}\n"), ""),
        bundle[..bundle.len() - 1].to_owned(),
        bundle[..bundle.len() / 2].to_owned(),
        format!("{bundle}more\n"),
        bundle.replacen("\"run\":{", "\"ran\":{", 1),
        String::new(),
        "{}\n".to_owned(),
    ] {
        fs::write(&file, &broken).unwrap();
        let said = unbundle(&file, &there).unwrap_err().fact();
        assert!(said.contains("is no whole bundle of a run: "), "{said}");
        assert!(there.ids().unwrap().is_empty(), "{said}");
    }
    fs::write(&file, bundle).unwrap();
    unbundle(&file, &there).unwrap();
}
