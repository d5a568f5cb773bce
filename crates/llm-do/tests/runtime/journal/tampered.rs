//! Journals of real runs in which bytes were changed: refused, or read as they were until a line before. So nothing that
//! they could make of a decision is ever read.

use super::*;
use llm_do::journal::blobs::Blobs;
use llm_do::journal::file::{Durability, JournalError, JournalSettings, NewRun};
use llm_do::journal::record::{RunIdentity, committed, verified};

/// What such a file says, if it is ours.
fn read(desk: &Desk, bytes: &[u8]) -> Option<String> {
    // Looked at first, and without a file: there are many of them.
    verified(&bytes[..committed(bytes)], Some(&key())).ok()?;
    std::fs::write(desk.journal(), bytes).unwrap();
    file::read(&desk.journal(), Some(&key())).ok().map(|contents| format!("{contents:?}"))
}

#[tokio::test]
async fn every_byte_of_a_run_that_was_asked_about_is_refused_if_it_is_another() {
    let desk = Desk::new(ASKING_SCRIPT, ASKING);
    let (approvals, _) = person(Answer::Once);
    desk.run_with(desk.project(), RuntimeConfig::new(approvals), desk.create()).await.said();
    let mut bytes = std::fs::read(desk.journal()).unwrap();
    assert!(["\"asked\"", "\"judged\"", "\"started\"", "\"part\""].iter().all(|part| desk.text().contains(part)));
    let last_line = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let before = read(&desk, &bytes[..last_line]).unwrap();
    let last = bytes.len() - 1;
    for at in 0..bytes.len() {
        let original = bytes[at];
        for other in [original ^ 1, original ^ 0x20, b'\n', b'"', 0] {
            if other == original {
                continue;
            }
            bytes[at] = other;
            let said = read(&desk, &bytes);
            assert!(said.is_none() || (at == last && said.as_ref() == Some(&before)), "byte {at} as {other}");
        }
        bytes[at] = original;
    }
}

#[tokio::test]
async fn a_byte_of_a_value_that_is_kept_apart_is_refused_if_it_is_another() {
    let desk = Desk::new("- say: done", &[("main", "")]);
    let blobs = desk.files.path().join("blobs");
    let settings = || JournalSettings {
        key: Some(key()),
        durability: Durability::Written,
        blobs: Some(Blobs::at(blobs.clone())),
        ..JournalSettings::default()
    };
    let run = NewRun::of(RunIdentity::default(), &"long ".repeat(14_000));
    let engine: Arc<dyn Journal> = Arc::new(FileJournal::begin(&desk.journal(), run, settings()).unwrap());
    desk.run((engine, PriorSpending::default())).await.said();
    let [place] = &std::fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()[..] else {
        panic!("one value is large")
    };
    let whole = std::fs::read(place).unwrap();
    let open = || file::read_with(&desk.journal(), Some(&key()), settings().blobs.as_ref()).map(drop);
    open().unwrap();
    // Each byte of a short one is turned where values are kept.
    for at in (0..whole.len()).step_by(997).chain([whole.len() - 1]) {
        let mut turned = whole.clone();
        turned[at] ^= 1;
        std::fs::write(place, turned).unwrap();
        assert!(matches!(open(), Err(JournalError::Damaged { line: 1, .. })), "byte {at}");
    }
    for other in [&whole[..whole.len() - 1], &[]] {
        std::fs::write(place, other).unwrap();
        assert!(open().is_err(), "a part of it is not the value");
    }
    std::fs::remove_file(place).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", place).unwrap();
    assert!(open().is_err(), "nor is what a link leads to");
}
