use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::*;
use crate::event::{EventKind, Events, Listen, samples};
use crate::journal::{StepDescription, Steps};

struct Desk {
    directory: TempDir,
    /// How often each effect ran.
    runs: AtomicUsize,
}

impl Desk {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), runs: AtomicUsize::new(0) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("run.journal")
    }

    fn create(&self) -> Arc<FileJournal> {
        Arc::new(FileJournal::create_by(&self.path(), &"header", Some("ann".into()), Some(&key())).unwrap())
    }

    fn resume(&self) -> Arc<FileJournal> {
        let open = OpenJournal::open(&self.path(), Some(&key())).unwrap();
        Arc::new(open.resume(Matching::Exact, Some("bob".into())).unwrap())
    }

    fn runs(&self) -> usize {
        self.runs.swap(0, Ordering::Relaxed)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    async fn take(
        &self,
        journal: &Arc<FileJournal>,
        key: &str,
        described: StepDescription<u32>,
        result: Result<u32, Stop>,
    ) -> Result<u32, Stop> {
        let steps = Steps::recorded_by(Arc::clone(journal) as Arc<dyn Journal>).at(format_args!("{key}"));
        let events = Events::unheard();
        let effect = async {
            self.runs.fetch_add(1, Ordering::Relaxed);
            result
        };
        steps.run(|| described, &steps.telling(&events), effect).await
    }
}

fn key() -> StateKey {
    StateKey::from_bytes([5; 32])
}

fn step(kind: StepKind) -> StepDescription<u32> {
    StepDescription::new(kind, &"request")
}

fn once() -> StepDescription<u32> {
    step(StepKind::Tool).once(99).shown(&"a payment")
}

fn other() -> Stop {
    Stop::Journal("something else".into())
}

/// What a step told is told again by whoever resumes the run, each kind of it; only what passes is not kept.
#[tokio::test]
async fn every_kind_of_event_is_told_again_from_a_file() {
    let desk = Desk::new();
    let told = async |journal: Arc<FileJournal>| {
        let steps = Steps::recorded_by(journal as Arc<dyn Journal>).at(format_args!("c0"));
        let (events, mut listener) = Events::new(Listen::Everything);
        let telling = steps.telling(&events);
        let effect = async {
            desk.runs.fetch_add(1, Ordering::Relaxed);
            for kind in samples::all() {
                telling.send(|| kind);
            }
            Ok::<u32, Stop>(1)
        };
        steps.run(|| step(StepKind::Tool), &telling, effect).await.unwrap();
        std::iter::from_fn(|| listener.try_recv().ok()).map(|event| event.kind).collect::<Vec<EventKind>>()
    };
    let first = told(desk.create()).await;
    assert_eq!((desk.runs(), first.len()), (1, samples::all().len()));
    let again = told(desk.resume()).await;
    assert_eq!(desk.runs(), 0);
    let is_kept =
        |kind: &&EventKind| again.iter().any(|kept| std::mem::discriminant(kept) == std::mem::discriminant(kind));
    let passing: Vec<&EventKind> = first.iter().filter(|kind| !is_kept(kind)).collect();
    assert_eq!(passing.len(), 5, "{passing:?}");
    assert_eq!(again.len(), first.len() - passing.len());
}

#[tokio::test]
async fn what_is_done_is_not_done_again() {
    let desk = Desk::new();
    let journal = desk.create();
    for (key, described) in [("m0", step(StepKind::Model)), ("c0", once()), ("q", step(StepKind::Ask).shown(&"may I?"))]
    {
        assert_eq!(desk.take(&journal, key, described, Ok(7)).await, Ok(7));
    }
    assert_eq!(desk.runs(), 3);
    drop(journal);
    let journal = desk.resume();
    for (key, described) in [("q", step(StepKind::Ask)), ("c0", once()), ("m0", step(StepKind::Model))] {
        assert_eq!(desk.take(&journal, key, described, Ok(8)).await, Ok(7), "in any order");
    }
    assert_eq!(desk.runs(), 0);
    let states: Vec<&str> = desk
        .text()
        .lines()
        .filter_map(|line| line.split("\"state\":\"").nth(1))
        .map(|rest| rest.split('"').next().unwrap())
        .map(|state| match state {
            "header" => "h",
            "resumed" => "r",
            "started" => "s",
            "asked" => "a",
            "done" => "d",
            _ => "?",
        })
        .collect();
    assert_eq!(states.concat(), "hdsdadr");
    assert!(desk.text().contains(r#""by":"ann","mac":"#), "who answered is recorded");
}

#[tokio::test]
async fn what_may_have_happened_does_not_happen_again_unless_it_may_be_repeated() {
    let desk = Desk::new();
    let journal = desk.create();
    for (key, described) in [("once", once()), ("again", step(StepKind::Tool))] {
        assert_eq!(desk.take(&journal, key, described, Err(other())).await, Err(other()));
    }
    assert_eq!(desk.runs(), 2);
    drop(journal);
    let contents = read(&desk.path(), Some(&key())).unwrap();
    assert_eq!(
        contents.in_doubt().map(|(key, shown)| (key, shown.get())).collect::<Vec<_>>(),
        [("once", "\"a payment\"")]
    );
    for _ in 0..2 {
        let journal = desk.resume();
        assert_eq!(desk.take(&journal, "once", once(), Ok(7)).await, Ok(99), "the same each time");
    }
    let journal = desk.resume();
    assert_eq!(desk.runs(), 0);
    assert_eq!(desk.take(&journal, "again", step(StepKind::Tool), Ok(7)).await, Ok(7));
    assert_eq!(desk.runs(), 1);
}

#[tokio::test]
async fn an_effect_that_never_began_is_no_reason_to_wonder() {
    let desk = Desk::new();
    let journal = desk.create();
    {
        let Mode::Writes { writer, .. } = &journal.mode else { panic!("it writes") };
        let lines = StepLines {
            journal: &journal,
            writer,
            key: "c0",
            kind: StepKind::Tool,
            request: identified(&RawJson::of(&"request")),
            made_of: None,
        };
        lines.append(LineState::Started, None, None).durable().await.unwrap();
        drop(StartedEffect { lines: &lines, was_polled: false });
    }
    drop(journal);
    assert_eq!(read(&desk.path(), Some(&key())).unwrap().in_doubt().count(), 0);
    assert_eq!(desk.take(&desk.resume(), "c0", once(), Ok(7)).await, Ok(7));
}

#[tokio::test]
async fn a_question_waits_until_somebody_answers() {
    let desk = Desk::new();
    let ask = |shown: &str| step(StepKind::Ask).shown(&shown);
    let waits = desk.take(&desk.create(), "q", ask("may I?"), Err(other())).await;
    assert_eq!(waits, Err(other()));
    assert_eq!(desk.take(&desk.resume(), "q", ask("may I?"), Err(other())).await, Err(other()));
    assert_eq!(desk.text().matches("asked").count(), 1, "the same question is kept once");
    assert_eq!(desk.take(&desk.resume(), "q", ask("and now?"), Err(other())).await, Err(other()));
    let contents = read(&desk.path(), Some(&key())).unwrap();
    assert_eq!(contents.waiting().map(|(_, shown)| shown.get()).collect::<Vec<_>>(), ["\"and now?\""]);
    assert_eq!(desk.take(&desk.resume(), "q", ask("and now?"), Ok(1)).await, Ok(1));
    assert_eq!(read(&desk.path(), Some(&key())).unwrap().waiting().count(), 0);
}

#[tokio::test]
async fn another_request_is_not_answered_from_the_record() {
    let desk = Desk::new();
    let journal = desk.create();
    desk.take(&journal, "m0", step(StepKind::Model), Ok(7)).await.unwrap();
    desk.take(&journal, "c0", once(), Ok(7)).await.unwrap();
    drop(journal);
    let changed = |kind| StepDescription::<u32>::new(kind, &"another request");
    let diverged = |key: &str, kind| Err(Stop::Diverged { key: key.into(), kind });
    assert_eq!(desk.take(&desk.resume(), "m0", changed(StepKind::Model), Ok(8)).await, diverged("m0", StepKind::Model));
    assert_eq!(desk.take(&desk.resume(), "m0", step(StepKind::Tool), Ok(8)).await, diverged("m0", StepKind::Tool));
    let open = OpenJournal::open(&desk.path(), Some(&key())).unwrap();
    let forgiving = Arc::new(open.resume(Matching::ForgiveModels, None).unwrap());
    assert_eq!(desk.take(&forgiving, "m0", changed(StepKind::Model), Ok(8)).await, Ok(7));
    assert_eq!(desk.take(&forgiving, "c0", changed(StepKind::Tool), Ok(8)).await, diverged("c0", StepKind::Tool));
}

#[tokio::test]
#[should_panic(expected = "the key `m0` is used by two steps")]
async fn a_key_that_is_used_twice_is_a_bug() {
    let desk = Desk::new();
    let journal = desk.create();
    for _ in 0..2 {
        let _ = desk.take(&journal, "m0", step(StepKind::Model), Ok(7)).await;
    }
}

#[tokio::test]
async fn a_replay_runs_nothing_and_says_what_it_does_not_have() {
    let desk = Desk::new();
    let journal = desk.create();
    desk.take(&journal, "m0", step(StepKind::Model), Ok(7)).await.unwrap();
    drop(journal);
    let before = desk.text();
    desk.runs();
    let replay = Arc::new(FileJournal::replaying(read(&desk.path(), Some(&key())).unwrap()));
    assert_eq!(desk.take(&replay, "m0", step(StepKind::Model), Ok(8)).await, Ok(7));
    let unrecorded = Stop::Unrecorded { key: "m1".into(), kind: StepKind::Model };
    assert_eq!(desk.take(&replay, "m1", step(StepKind::Model), Ok(8)).await, Err(unrecorded));
    assert_eq!((desk.runs(), desk.text()), (0, before));
    assert_eq!(desk.take(&replay, "main", step(StepKind::Call), Ok(8)).await, Ok(8), "a call is what its steps are");
}

#[tokio::test]
async fn a_torn_last_line_is_dropped_and_other_damage_leaves_the_file_alone() {
    let desk = Desk::new();
    let journal = desk.create();
    desk.take(&journal, "m0", step(StepKind::Model), Ok(7)).await.unwrap();
    desk.take(&journal, "m1", step(StepKind::Model), Ok(8)).await.unwrap();
    drop(journal);
    let whole = desk.text();
    let last_line = whole.trim_end().rfind('\n').unwrap() + 1;
    for end in last_line..whole.len() - 1 {
        std::fs::write(desk.path(), &whole[..end]).unwrap();
        let journal = desk.resume();
        assert_eq!(desk.take(&journal, "m0", step(StepKind::Model), Ok(9)).await, Ok(7));
        assert_eq!(desk.take(&journal, "m1", step(StepKind::Model), Ok(9)).await, Ok(9));
        drop(journal);
        assert!(read(&desk.path(), Some(&key())).is_ok());
    }
    let damaged = whole.replacen("\"done\"", "\"do\0e\"", 1);
    std::fs::write(desk.path(), format!("{damaged}torn")).unwrap();
    let error = OpenJournal::open(&desk.path(), Some(&key())).err().unwrap();
    assert!(matches!(error, JournalError::Foreign { line: 2, .. }), "{error}");
    assert_eq!(desk.text(), format!("{damaged}torn"));
}

#[test]
fn only_a_new_or_empty_regular_file_becomes_a_journal() {
    let desk = Desk::new();
    let path = desk.path();
    let create = || FileJournal::create(&path, &"header", Some(&key()));
    drop(create().unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(create(), Err(JournalError::NotEmpty(_))));
    for (content, is_taken) in
        [("", true), ("{\"v\":1,\"k\":\"\",\"ki", true), ("my notes", false), ("{\"v\":1}\n", false)]
    {
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(create().is_ok(), is_taken, "{content}");
        assert_eq!(is_taken, std::fs::metadata(&path).unwrap().permissions().mode() & 0o777 == 0o600);
        assert_eq!(is_taken, read(&path, Some(&key())).is_ok());
    }
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(desk.directory.path().join("elsewhere"), &path).unwrap();
    assert!(matches!(create(), Err(JournalError::NotRegular(_))));
    assert!(!desk.directory.path().join("elsewhere").exists());
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
    assert!(matches!(create(), Err(JournalError::NotRegular(_))));
    assert!(matches!(read(desk.directory.path(), Some(&key())), Err(JournalError::NotRegular(_))));
    assert!(matches!(read(&desk.directory.path().join("no"), Some(&key())), Err(JournalError::Missing(_))));
}

#[test]
fn two_cannot_go_on_with_one_journal() {
    let desk = Desk::new();
    let journal = desk.create();
    assert!(matches!(OpenJournal::open(&desk.path(), Some(&key())), Err(JournalError::InUse(_))));
    assert!(matches!(FileJournal::create(desk.path(), &"header", Some(&key())), Err(JournalError::InUse(_))));
    assert!(read(&desk.path(), Some(&key())).is_ok(), "to look is always possible");
    drop(journal);
    drop(OpenJournal::open(&desk.path(), Some(&key())).unwrap());
    drop(desk.resume());
}

#[test]
fn a_journal_of_another_version_is_refused() {
    let desk = Desk::new();
    let header = "{\"v\":7,\"k\":\"\",\"kind\":\"run\",\"state\":\"header\",\"res\":{}}";
    let mut signed = Vec::new();
    Signer::after(LineMac::default(), Some(key())).append(header.as_bytes(), &mut signed);
    std::fs::write(desk.path(), signed).unwrap();
    let error = OpenJournal::open(&desk.path(), Some(&key())).err().unwrap();
    assert!(matches!(error, JournalError::Version { version: 7, .. }), "{error}");
    let error =
        OpenJournal::open_foreign(&desk.path(), JournalSettings { key: Some(key()), ..JournalSettings::default() })
            .err()
            .unwrap();
    assert!(matches!(error, JournalError::Version { version: 7, .. }), "{error}");
}

#[tokio::test]
async fn after_a_failed_write_nothing_runs_any_more() {
    for durability in [Durability::Written, Durability::Synced] {
        let desk = Desk::new();
        std::fs::write(desk.path(), "").unwrap();
        // A handle that cannot write stands for a full disk.
        let signer = Signer::after(LineMac::default(), None);
        let target = WriterTarget { file: File::open(desk.path()).unwrap(), durability, blobs: None, replica: None };
        let writer = Writer::start(target, signer, Vec::new()).unwrap();
        let mode = Mode::Writes { writer, _replaced: None };
        let header = RunLine::header(RunIdentity::default(), RawJson::of(&"header"), 0, None);
        let (parts, steps, notes, delivered) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        let lines = ParsedLines { header, parts, steps, notes, delivered, ended: None, is_of_others: false };
        let contents = JournalContents::of(lines).unwrap();
        let journal = Arc::new(FileJournal::of(contents, mode, Matching::Exact, JournalSettings::default()));
        let failed = desk.take(&journal, "c0", once(), Ok(7)).await.unwrap_err();
        assert!(failed.to_string().starts_with("the journal: it cannot be written: "), "{failed}");
        for (key, kind) in [("m0", StepKind::Model), ("c1", StepKind::Tool), ("q", StepKind::Ask)] {
            assert_eq!(desk.take(&journal, key, step(kind), Ok(7)).await, Err(failed.clone()));
        }
        assert_eq!(desk.runs(), 0);
    }
}

#[tokio::test]
async fn steps_at_the_same_time_are_written_together() {
    let desk = Desk::new();
    let journal = desk.create();
    let keys: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    let running = keys.iter().map(|key| desk.take(&journal, key, once(), Ok(7)));
    assert!(futures_util::future::join_all(running).await.iter().all(|result| *result == Ok(7)));
    drop(journal);
    assert_eq!(read(&desk.path(), Some(&key())).unwrap().records().count(), 100);
}

/// A program that was about to be started when its parent ended holds the lock until it is that program.
#[tokio::test]
async fn a_lock_that_is_about_to_go_is_waited_for() {
    let desk = Desk::new();
    drop(desk.create());
    let held = File::open(desk.path()).unwrap();
    held.lock().unwrap();
    let inside = std::thread::spawn({
        let path = desk.path();
        move || OpenJournal::open(&path, Some(&key())).map(drop)
    });
    // Long enough that it has met the lock, and shorter than it waits.
    std::thread::sleep(Duration::from_millis(100));
    drop(held);
    inside.join().unwrap().unwrap();
    let held = File::open(desk.path()).unwrap();
    held.lock().unwrap();
    assert!(matches!(OpenJournal::open(&desk.path(), Some(&key())), Err(JournalError::InUse(_))), "but not for ever");
}

#[tokio::test]
async fn what_is_started_meanwhile_does_not_have_the_journal() {
    let desk = Desk::new();
    let _journal = desk.create();
    let listed = std::process::Command::new("ls").args(["-l", "/proc/self/fd/"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(" -> ") && !listed.contains("run.journal"), "{listed}");
}

/// A run of a few steps of every kind that is written.
async fn some_run(desk: &Desk, journal: &Arc<FileJournal>) {
    for (name, kind) in [("0", StepKind::Model), ("1", StepKind::Tool), ("2", StepKind::Decide)] {
        desk.take(journal, name, StepDescription::new(kind, &name), Ok(7)).await.unwrap();
    }
}

#[tokio::test]
async fn no_bit_of_a_journal_can_be_turned_without_a_word() {
    let desk = Desk::new();
    some_run(&desk, &desk.create()).await;
    let whole = std::fs::read(desk.path()).unwrap();
    let said = |bytes: &[u8]| {
        let read = JournalContents::read(&bytes[..record::committed(bytes)], Some(&key()));
        read.map(|(contents, _)| format!("{contents:?}"))
    };
    // A file that is cut after a line is what it was then: the only thing that a turned bit may make of it.
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let before = said(&whole[..last]).unwrap();
    assert_ne!(before, said(&whole).unwrap());
    for bit in 0..whole.len() * 8 {
        let mut turned = whole.clone();
        turned[bit / 8] ^= 1 << (bit % 8);
        match said(&turned) {
            Err(_) => {}
            Ok(said) => assert!(bit / 8 == whole.len() - 1 && said == before, "bit {bit}"),
        }
    }
}

#[tokio::test]
async fn a_journal_without_a_signature_is_a_strangers_whichever_bit_of_it_is_turned() {
    let desk = Desk::new();
    some_run(&desk, &Arc::new(FileJournal::create(desk.path(), &"header", None).unwrap())).await;
    let whole = std::fs::read(desk.path()).unwrap();
    let is_own =
        |bytes: &[u8], key: Option<&StateKey>| JournalContents::read(&bytes[..record::committed(bytes)], key).is_ok();
    for bit in 0..=whole.len() * 8 {
        let mut turned = whole.clone();
        if let Some(byte) = turned.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
        assert!(!is_own(&turned, Some(&key())) && !is_own(&turned, None), "bit {bit}");
    }
}

/// Texts as values of steps.
impl crate::journal::StepValue for String {}

#[tokio::test]
async fn large_values_stand_outside_of_the_file_and_are_compared() {
    let desk = Desk::new();
    let blobs = desk.directory.path().join("blobs");
    let settings = || JournalSettings {
        key: Some(key()),
        durability: Durability::Written,
        blobs: Some(Blobs::at(blobs.clone())),
        ..JournalSettings::default()
    };
    let (large, small) = ("x".repeat(LARGEST_INLINE), "y".to_owned());
    let identity = RunIdentity { id: Some("0".repeat(16)), kind: record::RunKind::Chat, ..RunIdentity::default() };
    let taken = async |journal: Arc<FileJournal>, run: Option<()>| {
        let root = Steps::recorded_by(journal as Arc<dyn Journal>);
        let events = Events::unheard();
        let mut values = Vec::new();
        for (name, value) in [("m0", &large), ("m1", &small), ("m2", &large)] {
            let steps = root.at(format_args!("{name}"));
            let effect = async { run.map(|()| value.clone()).ok_or_else(other) };
            let described = || StepDescription::new(StepKind::Model, &"request");
            values.push(steps.run(described, &steps.telling(&events), effect).await.unwrap());
        }
        values
    };
    let header = NewRun::of(identity.clone(), &large);
    let first = taken(Arc::new(FileJournal::begin(&desk.path(), header, settings()).unwrap()), Some(())).await;
    assert!(desk.text().len() < 2_000, "{}", desk.text().len());
    assert_eq!(std::fs::read_dir(&blobs).unwrap().count(), 2, "the header, and one value that two steps gave");
    let open = OpenJournal::open_with(&desk.path(), settings()).unwrap();
    assert_eq!((open.contents().header.to::<String>().unwrap(), &open.contents().identity), (large.clone(), &identity));
    let again = taken(Arc::new(open.resume(Matching::Exact, None).unwrap()), None).await;
    assert_eq!((first, again), ([&large, &small, &large].map(Clone::clone).into(), vec![large.clone(), small, large]));
    assert!(matches!(read(&desk.path(), Some(&key())), Err(JournalError::Damaged { line: 1, .. })));
    let places: Vec<PathBuf> = std::fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().path()).collect();
    for place in places {
        let before = std::fs::read(&place).unwrap();
        let mut turned = before.clone();
        turned[before.len() / 2] ^= 1;
        std::fs::write(&place, turned).unwrap();
        assert!(matches!(OpenJournal::open_with(&desk.path(), settings()), Err(JournalError::Damaged { .. })));
        std::fs::write(&place, before).unwrap();
    }
    assert!(OpenJournal::open_with(&desk.path(), settings()).is_ok());
}

#[tokio::test]
async fn what_is_only_written_is_there_for_the_next_process_and_a_question_is_on_the_disk() {
    let desk = Desk::new();
    let settings =
        || JournalSettings { key: Some(key()), durability: Durability::Written, ..JournalSettings::default() };
    let run = NewRun::of(RunIdentity::default(), &"header");
    let journal = Arc::new(FileJournal::begin(&desk.path(), run, settings()).unwrap());
    assert_eq!(desk.take(&journal, "c0", once(), Ok(7)).await, Ok(7));
    assert!(desk.text().contains("\"state\":\"done\""), "it counts when it is written");
    let waits = desk.take(&journal, "q", step(StepKind::Ask).shown(&"may I?"), Err(other())).await;
    assert_eq!((waits, desk.text().matches("\"asked\"").count()), (Err(other()), 1));
    drop(journal);
    let open = OpenJournal::open_with(&desk.path(), settings()).unwrap();
    let journal = Arc::new(open.resume(Matching::Exact, None).unwrap());
    assert_eq!(desk.take(&journal, "c0", once(), Ok(8)).await, Ok(7));
}

#[tokio::test]
async fn the_end_of_a_run_is_its_last_line_until_it_is_resumed() {
    let desk = Desk::new();
    let ended = || read(&desk.path(), Some(&key())).unwrap().ended().cloned();
    for durability in [Durability::Written, Durability::Synced] {
        let settings = JournalSettings { key: Some(key()), durability, ..JournalSettings::default() };
        let run = NewRun::of(RunIdentity::default(), &"header");
        let journal = Arc::new(FileJournal::begin(&desk.path(), run, settings).unwrap());
        desk.take(&journal, "m0", step(StepKind::Model), Ok(7)).await.unwrap();
        assert_eq!(ended(), None);
        journal.end(EndState::Stopped, "10 of 10 requests").await.unwrap();
        assert_eq!(ended(), Some(RunEnd::new(EndState::Stopped, "10 of 10 requests")), "it is there when that returns");
        drop(journal);
        let journal = desk.resume();
        assert_eq!(ended(), None);
        desk.take(&journal, "m0", step(StepKind::Model), Ok(8)).await.unwrap();
        journal.end(EndState::Done, "").await.unwrap();
        drop(journal);
        assert_eq!(ended(), Some(RunEnd::new(EndState::Done, "")));
        let text = desk.text();
        let replay = FileJournal::replaying(read(&desk.path(), Some(&key())).unwrap());
        replay.end(EndState::Stopped, "").await.unwrap();
        assert_eq!(desk.text(), text);
        let open =
            OpenJournal::open_foreign(&desk.path(), JournalSettings { key: Some(key()), ..JournalSettings::default() })
                .unwrap();
        drop(open.resume(Matching::Exact, None).unwrap());
        assert_eq!(ended(), None, "what a stranger says of the end is not taken over");
        std::fs::remove_file(desk.path()).unwrap();
    }
}

/// A second place that takes some lines and is gone then, as an engine is that has given the run to another machine.
#[derive(Debug)]
struct Going(Mutex<usize>);

impl Replica for Going {
    fn keep(&self, _: &[u8]) -> io::Result<()> {
        let mut left = self.0.lock().unwrap();
        *left = left.checked_sub(1).ok_or_else(|| io::Error::other("gone"))?;
        Ok(())
    }
}

/// Also where the user would rather have a run that is not kept than none: another machine goes on with this one.
#[tokio::test]
async fn no_effect_begins_whose_line_is_not_in_the_second_place() {
    for (kept, is_resumed) in (0..4).flat_map(|kept| [(kept, false), (kept, true)]) {
        let desk = Desk::new();
        let settings = |kept| JournalSettings {
            replica: Some(Arc::new(Going(Mutex::new(kept)))),
            key: Some(key()),
            durability: Durability::Written,
            failure: WriteFailure::Told(Arc::new(|_| {})),
            ..JournalSettings::default()
        };
        let begin = |kept| {
            let run = NewRun::of(RunIdentity::default(), &"header");
            FileJournal::begin(&desk.path(), run, settings(kept)).unwrap()
        };
        let journal = if is_resumed {
            drop(begin(99));
            OpenJournal::open_with(&desk.path(), settings(kept)).unwrap().resume(Matching::Exact, None).unwrap()
        } else {
            begin(kept)
        };
        let journal = Arc::new(journal);
        let mut answered = 0;
        for number in 0..4 {
            answered += usize::from(desk.take(&journal, &format!("c{number}"), once(), Ok(1)).await.is_ok());
        }
        // The first lines begin the record; each effect has one before it and one behind.
        let lines = kept.saturating_sub(1);
        assert_eq!((desk.runs(), answered), (lines.div_ceil(2), lines / 2), "{kept} kept, resumed: {is_resumed}");
    }
}
