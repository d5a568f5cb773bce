//! Every engine passes what `llm_do::conformance` tries: one in memory, as somebody else would write it; the file; and the
//! file with a second place of its lines, which is all that a machine leaves behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llm_do::conformance::{Desk, check};
use llm_do::records::{
    Durability, JournalSettings, Matching, NewRun, OpenJournal, Prior, RecordedSteps, Replica, RunIdentity, StateKey,
    Step, StepAnswer, StepKind, Stop,
};
use llm_do::{BoxFuture, FileJournal, Journal, RawJson};

/// What an engine knows of a step.
#[derive(Clone)]
enum Known {
    Started,
    Asked(RawJson),
    Done(RawJson),
}

#[derive(Clone)]
struct Entry {
    kind: StepKind,
    request: RawJson,
    known: Known,
}

/// The smallest whole engine: records in a map that outlives its processes.
#[derive(Clone)]
struct Memory {
    records: Arc<Mutex<BTreeMap<String, Entry>>>,
    flaw: Flaw,
}

/// What an engine can do wrong, to see that it is found.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    None,
    RunsAgain,
    ForgetsStarts,
    AnswersAnything,
    KeepsFailures,
    ForgetsQuestions,
}

impl Memory {
    fn records(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, step: &Step, known: Known) {
        let Step { key, kind, request, .. } = step;
        self.records().insert(key.clone(), Entry { kind: *kind, request: request.clone(), known });
    }
}

impl RecordedSteps for Memory {
    fn result(&self, key: &str) -> Option<RawJson> {
        match &self.records().get(key)?.known {
            Known::Done(result) => Some(result.clone()),
            Known::Started | Known::Asked(_) => None,
        }
    }

    fn keys_beneath(&self, key: &str) -> Vec<String> {
        let prefix = format!("{key}/");
        self.records().keys().filter(|key| key.starts_with(&prefix)).cloned().collect()
    }
}

impl Journal for Memory {
    fn step<'a>(
        &'a self,
        step: Step,
        effect: BoxFuture<'a, Result<RawJson, Stop>>,
    ) -> BoxFuture<'a, Result<StepAnswer, Stop>> {
        Box::pin(async move {
            let entry = self.records().get(&step.key).cloned().filter(|_| self.flaw != Flaw::RunsAgain);
            let is_same = entry.as_ref().is_some_and(|e| e.kind == step.kind && e.request == step.request);
            match entry {
                Some(entry) if !is_same && self.flaw != Flaw::AnswersAnything => {
                    if step.kind != StepKind::Ask || entry.kind != StepKind::Ask {
                        return Err(Stop::Diverged { key: step.key, kind: step.kind });
                    }
                }
                Some(Entry { known: Known::Done(result), .. }) => return Ok(StepAnswer::Recorded(result)),
                Some(Entry { known: Known::Started, .. }) => {
                    if let Some(interrupted) = &step.interrupted {
                        self.put(&step, Known::Done(interrupted.clone()));
                        return Ok(StepAnswer::Recorded(interrupted.clone()));
                    }
                }
                Some(Entry { known: Known::Asked(_), .. }) | None => {}
            }
            if step.interrupted.is_some() && self.flaw != Flaw::ForgetsStarts {
                self.put(&step, Known::Started);
            }
            if let (StepKind::Ask, Some(shown)) = (step.kind, &step.shown)
                && self.flaw != Flaw::ForgetsQuestions
            {
                self.put(&step, Known::Asked(shown.clone()));
            }
            match effect.await {
                Err(_) if self.flaw == Flaw::KeepsFailures => {
                    self.put(&step, Known::Done(RawJson::of(&"failed")));
                    Ok(StepAnswer::Ran)
                }
                result => {
                    self.put(&step, Known::Done(result?));
                    Ok(StepAnswer::Ran)
                }
            }
        })
    }

    fn lost(&self, _: &str, _: StepKind, _: RawJson) {}

    fn prior(&self, key: &str, kind: StepKind, request: &RawJson) -> Prior {
        match self.records().get(key) {
            None => Prior::Nothing,
            Some(Entry { known: Known::Asked(shown), .. }) => Prior::Asked(shown.clone()),
            Some(Entry { known: Known::Done(_), request: known, .. }) if kind == StepKind::Ask && known != request => {
                Prior::Asked(known.clone())
            }
            Some(Entry { known: Known::Started, .. }) => Prior::Begun,
            Some(Entry { known: Known::Done(_), .. }) => Prior::Done,
        }
    }
}

struct MemoryDesk(Memory);

impl Desk for MemoryDesk {
    fn open(&mut self) -> BoxFuture<'_, Result<Arc<dyn Journal>, String>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as Arc<dyn Journal>) })
    }

    /// What the dropped steps of the dead process still do happens to a map that nobody reads.
    fn kill(&mut self) {
        let records = self.0.records().clone();
        self.0.records = Arc::new(Mutex::new(records));
    }
}

fn memory(flaw: Flaw) -> Box<dyn Desk> {
    Box::new(MemoryDesk(Memory { records: Arc::default(), flaw }))
}

fn key() -> StateKey {
    StateKey::from_bytes([7; 32])
}

/// A run in a file. A kill is a copy of it at that moment.
struct FileDesk {
    home: tempfile::TempDir,
    file: PathBuf,
    kills: usize,
}

impl FileDesk {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("run.jsonl");
        Self { home, file, kills: 0 }
    }

    fn opened(&self, settings: JournalSettings) -> Result<Arc<dyn Journal>, String> {
        let settings = JournalSettings { key: Some(key()), durability: Durability::Written, ..settings };
        let journal = if self.file.exists() {
            OpenJournal::open_with(&self.file, settings).and_then(|open| open.resume(Matching::Exact, None))
        } else {
            FileJournal::begin(&self.file, NewRun::of(RunIdentity::default(), &"header"), settings)
        };
        Ok(Arc::new(journal.map_err(|error| error.to_string())?))
    }
}

impl Desk for FileDesk {
    fn open(&mut self) -> BoxFuture<'_, Result<Arc<dyn Journal>, String>> {
        Box::pin(async { self.opened(JournalSettings::default()) })
    }

    fn kill(&mut self) {
        self.kills += 1;
        let copy = self.home.path().join(format!("run-{}.jsonl", self.kills));
        std::fs::copy(&self.file, &copy).unwrap();
        self.file = copy;
    }
}

/// All that the engine has, which takes what one process gives it and no other one any more.
#[derive(Debug, Default)]
struct Lines(Mutex<Vec<u8>>);

impl Replica for Lines {
    fn keep(&self, lines: &[u8]) -> io::Result<()> {
        assert!(lines.is_empty() || lines.ends_with(b"\n"), "whole lines");
        self.0.lock().unwrap().extend_from_slice(lines);
        Ok(())
    }
}

/// A run whose machine is gone after each process: only the second place of its lines is left.
#[derive(Default)]
struct ReplicaDesk {
    machine: Option<FileDesk>,
    lines: Arc<Lines>,
}

impl Desk for ReplicaDesk {
    fn open(&mut self) -> BoxFuture<'_, Result<Arc<dyn Journal>, String>> {
        Box::pin(async {
            let machine = FileDesk::new();
            let lines = self.lines.0.lock().unwrap().clone();
            if !lines.is_empty() {
                std::fs::write(&machine.file, lines).unwrap();
            }
            let replica = Some(Arc::clone(&self.lines) as Arc<dyn Replica>);
            let journal = machine.opened(JournalSettings { replica, ..JournalSettings::default() });
            self.machine = Some(machine);
            journal
        })
    }

    fn kill(&mut self) {
        let lines = self.lines.0.lock().unwrap().clone();
        self.lines = Arc::new(Lines(Mutex::new(lines)));
    }
}

#[tokio::test]
async fn an_engine_in_memory_conforms() {
    check(&|| memory(Flaw::None)).await.unwrap();
}

#[tokio::test]
async fn a_run_in_a_file_conforms() {
    check(&|| Box::new(FileDesk::new())).await.unwrap();
}

#[tokio::test]
async fn a_run_whose_machine_is_gone_conforms() {
    check(&|| Box::new(ReplicaDesk::default())).await.unwrap();
}

#[tokio::test]
async fn what_an_engine_does_wrong_is_found() {
    for (flaw, case) in [
        (Flaw::RunsAgain, "a recorded step is not run again"),
        (Flaw::KeepsFailures, "a failed step is tried again"),
        (Flaw::AnswersAnything, "another request under a known key is not answered"),
        (Flaw::ForgetsStarts, "an effect that must not run twice does not"),
        (Flaw::ForgetsQuestions, "a question waits until somebody answers it"),
    ] {
        assert_eq!(check(&|| memory(flaw)).await.unwrap_err().case, case);
    }
}

/// A second place that is gone: the run must not go on as if it were there.
#[derive(Debug)]
struct Gone;

impl Replica for Gone {
    fn keep(&self, _: &[u8]) -> io::Result<()> {
        Err(io::Error::other("gone"))
    }
}

#[tokio::test]
async fn without_its_second_place_a_run_does_nothing() {
    let desk = FileDesk::new();
    let settings = || JournalSettings { replica: Some(Arc::new(Gone)), key: Some(key()), ..JournalSettings::default() };
    let begun = FileJournal::begin(&desk.file, NewRun::of(RunIdentity::default(), &"header"), settings()).unwrap();
    let ended = begun.end(llm_do::records::EndState::Done, "").await;
    assert_eq!(ended, Err(Stop::Journal("it cannot be kept: gone".to_owned())));
    drop(begun);
    let open = OpenJournal::open_with(&desk.file, settings()).unwrap();
    let resumed = open.resume(Matching::Exact, None).unwrap();
    assert!(resumed.end(llm_do::records::EndState::Done, "").await.is_err());
}
