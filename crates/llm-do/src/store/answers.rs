//! Answers to the questions of a run, from any process: a file each, made by the first that answers and by no other.
//!
//! An answer is signed with the run and the question that it belongs to, so that no other file can take its place. One that
//! is not ours is set aside, and the question stays open.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::files;
use super::layout::{HexDigest, RunId, StoreLayout, now};
use crate::beneath::Beside;
use crate::journal::mac::{LineMac, SigningPurpose, StateKey, sign, split};
use crate::message::RawJson;
use crate::tools::approval::Answer;

/// What was decided about a call, as it is kept. As JSON its name in small letters with underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredDecision {
    /// This call, once.
    Approve,
    /// This exact call for the rest of the session.
    ApproveCallForSession,
    /// This tool, whatever the arguments, for the rest of the session.
    ApproveToolForSession,
    /// With the arguments that the answer brings, which are judged again.
    Edited,
    /// With the values that the answer brings, for the fields of a form.
    Values,
    /// Not this call; the model reads the reason.
    Refuse,
}

/// An answer to one question, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// What was decided.
    pub answer: StoredDecision,
    /// The other arguments of [`StoredDecision::Edited`], or the values of [`StoredDecision::Values`]; no other decision has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<RawJson>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who answered, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it was answered, in milliseconds since 1970.
    pub at: u64,
}

impl StoredAnswer {
    /// An answer that is given now. What ends a run, or leaves a question to others, is not kept: whoever goes on with the run
    /// is asked again.
    pub fn of(answer: &Answer, by: &str) -> Option<Self> {
        let (answer, arguments, reason) = match answer {
            Answer::Once => (StoredDecision::Approve, None, None),
            Answer::CallForSession => (StoredDecision::ApproveCallForSession, None, None),
            Answer::ToolForSession => (StoredDecision::ApproveToolForSession, None, None),
            Answer::Edited(arguments) => (StoredDecision::Edited, Some(arguments.clone().in_one_line()), None),
            Answer::Values(values) => (StoredDecision::Values, Some(values.clone().in_one_line()), None),
            Answer::Refuse { reason } => (StoredDecision::Refuse, None, reason.clone()),
            Answer::EndRun | Answer::Later => return None,
        };
        Some(Self { answer, arguments, reason, by: Some(by.to_owned()), at: now() })
    }

    /// What was decided, as a run takes it.
    pub(crate) fn answer(&self) -> Answer {
        match (self.answer, &self.arguments) {
            (StoredDecision::Approve, _) => Answer::Once,
            (StoredDecision::ApproveCallForSession, _) => Answer::CallForSession,
            (StoredDecision::ApproveToolForSession, _) => Answer::ToolForSession,
            (StoredDecision::Edited, Some(arguments)) => Answer::Edited(arguments.clone()),
            (StoredDecision::Values, Some(values)) => Answer::Values(values.clone()),
            (StoredDecision::Values, None) => Answer::refuse("the values of the answer are missing"),
            (StoredDecision::Refuse, _) => Answer::Refuse { reason: self.reason.clone() },
            (StoredDecision::Edited, None) => Answer::refuse("the other arguments of the call are missing"),
        }
    }

    /// Who answered, in words.
    pub fn author(&self) -> &str {
        self.by.as_deref().unwrap_or("somebody")
    }

    /// Only a decision about other arguments, or values, brings some.
    fn is_consistent(&self) -> bool {
        matches!(self.answer, StoredDecision::Edited | StoredDecision::Values) == self.arguments.is_some()
    }
}

/// Why an answer was not given.
#[derive(Debug, thiserror::Error)]
pub enum AnswerWriteError {
    /// This other answer was first, and counts.
    #[error("the question was answered before")]
    AlreadyAnswered(Box<StoredAnswer>),
    /// Its arguments, or the whole of it, are too long.
    #[error("an answer has at most {} bytes", LARGEST_ARGUMENTS)]
    TooLarge,
    /// It has arguments and its decision takes none, or the other way round.
    #[error("an answer has arguments if it changes them, and else none")]
    Inconsistent,
    /// Without a key nothing can be signed, and no process would believe it.
    #[error("nothing can be signed without a key")]
    NoKey,
    /// It cannot be written.
    #[error("the answer cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// What lies in the place of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerReading {
    /// The question is open.
    Open,
    /// This answer counts.
    Answered(StoredAnswer),
    /// What lay there was not written by us. It was moved to this path, and the question is open; this is said to one process
    /// only.
    SetAside(PathBuf),
}

/// Edited arguments have at most so many bytes.
pub const LARGEST_ARGUMENTS: usize = 2 << 20;
/// The rest of an answer is a reason and a name.
const LARGEST_FILE: usize = LARGEST_ARGUMENTS + (64 << 10);
/// So often the place of an answer is cleared before the writer gives up.
const MOST_ATTEMPTS: usize = 100;

/// The answers to the questions of one run.
#[derive(Clone, Debug)]
pub struct AnswerFiles<'a> {
    directory: PathBuf,
    run: RunId,
    key: Option<&'a StateKey>,
}

impl<'a> AnswerFiles<'a> {
    /// Those of a run of this store, signed with this key. Without one no answer is written, and none is believed.
    pub fn of(layout: &StoreLayout, run: RunId, key: Option<&'a StateKey>) -> Self {
        Self { directory: layout.answers(&run), run, key }
    }

    /// Answers a question, which is named by its full digest. Of all answers exactly one succeeds. Gives what lay in its place
    /// and was none of ours: it was set aside.
    pub fn write(&self, question: &HexDigest, answer: &StoredAnswer) -> Result<Vec<PathBuf>, AnswerWriteError> {
        let content = self.content(question, answer)?;
        let mut aside = Vec::new();
        files::make_inside(&self.directory)?;
        for _ in 0..MOST_ATTEMPTS {
            let beside = Beside::of_path(&self.path(question), 0o600)?;
            beside.file().write_all(content.as_bytes())?;
            beside.file().sync_all()?;
            match beside.place_first() {
                Ok(()) => return Ok(aside),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
            match self.read(question)? {
                AnswerReading::Answered(first) => return Err(AnswerWriteError::AlreadyAnswered(Box::new(first))),
                AnswerReading::SetAside(path) => aside.push(path),
                AnswerReading::Open => {}
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "its place is taken all the time").into())
    }

    /// Looks whether a question was answered. What is not ours is set aside.
    pub fn read(&self, question: &HexDigest) -> io::Result<AnswerReading> {
        match self.look(question)? {
            AnswerSlot::Free => Ok(AnswerReading::Open),
            AnswerSlot::Answer(answer) => Ok(AnswerReading::Answered(answer)),
            AnswerSlot::Strange => self.set_aside(question),
        }
    }

    /// The answer that counts, if there is one. Nothing is set aside.
    pub fn given(&self, question: &HexDigest) -> io::Result<Option<StoredAnswer>> {
        match self.look(question)? {
            AnswerSlot::Answer(answer) => Ok(Some(answer)),
            AnswerSlot::Free | AnswerSlot::Strange => Ok(None),
        }
    }

    /// Only a process that holds the lock moves anything away, and only after another look: what lies there now may be the
    /// answer of a process that was faster.
    fn set_aside(&self, question: &HexDigest) -> io::Result<AnswerReading> {
        let _lock = files::lock_directory(&self.directory)?;
        match self.look(question)? {
            AnswerSlot::Free => Ok(AnswerReading::Open),
            AnswerSlot::Answer(answer) => Ok(AnswerReading::Answered(answer)),
            AnswerSlot::Strange => {
                let place = self.path(question);
                let named = (1..=MOST_ATTEMPTS).map(|number| place.with_extension(format!("json.bad-{number}")));
                let free = named.into_iter().find(|path| fs::symlink_metadata(path).is_err());
                let aside = free.ok_or_else(|| io::Error::other("too many answers were set aside"))?;
                fs::rename(&place, &aside)?;
                Ok(AnswerReading::SetAside(aside))
            }
        }
    }

    fn look(&self, question: &HexDigest) -> io::Result<AnswerSlot> {
        use io::ErrorKind::{FileTooLarge, InvalidInput, NotFound, PermissionDenied};
        match files::read_whole(&self.path(question), LARGEST_FILE as u64) {
            Err(error) if error.kind() == NotFound => Ok(AnswerSlot::Free),
            Err(error) if matches!(error.kind(), FileTooLarge | InvalidInput | PermissionDenied) => {
                Ok(AnswerSlot::Strange)
            }
            content => Ok(self.verified(question, &content?).map_or(AnswerSlot::Strange, AnswerSlot::Answer)),
        }
    }

    fn verified(&self, question: &HexDigest, content: &[u8]) -> Option<StoredAnswer> {
        let line = content.strip_suffix(b"\n")?;
        let (signed, mac) = split(line)?;
        if self.mac(question, signed)?.to_string().as_bytes() != mac {
            return None;
        }
        serde_json::from_slice(line).ok().filter(StoredAnswer::is_consistent)
    }

    fn content(&self, question: &HexDigest, answer: &StoredAnswer) -> Result<String, AnswerWriteError> {
        if !answer.is_consistent() {
            return Err(AnswerWriteError::Inconsistent);
        }
        let arguments = answer.arguments.as_ref().map_or(0, |arguments| arguments.get().len());
        let mut json = serde_json::to_string(answer).map_err(io::Error::from)?;
        let mac = self.mac(question, json.strip_suffix('}').unwrap_or(&json).as_bytes());
        sign(&mut json, mac.ok_or(AnswerWriteError::NoKey)?);
        json.push('\n');
        if arguments > LARGEST_ARGUMENTS || json.len() > LARGEST_FILE {
            return Err(AnswerWriteError::TooLarge);
        }
        Ok(json)
    }

    fn mac(&self, question: &HexDigest, signed: &[u8]) -> Option<LineMac> {
        let parts = [self.run.as_str().as_bytes(), question.as_str().as_bytes(), signed];
        self.key.map(|key| key.mac(SigningPurpose::Answer, parts))
    }

    fn path(&self, question: &HexDigest) -> PathBuf {
        self.directory.join(format!("{question}.json"))
    }
}

/// What one look finds.
enum AnswerSlot {
    Free,
    Answer(StoredAnswer),
    Strange,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::race;
    use super::*;

    fn key() -> StateKey {
        StateKey::from_bytes([7; 32])
    }

    fn question() -> HexDigest {
        HexDigest::of(b"may it?")
    }

    fn answer(by: &str) -> StoredAnswer {
        let by = Some(by.to_owned());
        StoredAnswer { answer: StoredDecision::Approve, arguments: None, reason: None, by, at: 7 }
    }

    fn edited(arguments: &str) -> StoredAnswer {
        let arguments = Some(RawJson::parse(arguments).unwrap());
        StoredAnswer { answer: StoredDecision::Edited, arguments, ..answer("me") }
    }

    fn run() -> RunId {
        RunId::new(1, 1)
    }

    fn layout(state: &Path) -> StoreLayout {
        let layout = StoreLayout::new(state);
        fs::create_dir_all(layout.run(&run())).unwrap();
        layout
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_first_answer_counts_and_the_others_are_told_whose_it_was() {
        let (state, key) = (tempfile::tempdir().unwrap(), key());
        let answers = AnswerFiles::of(&layout(state.path()), run(), Some(&key));
        assert_eq!(answers.read(&question()).unwrap(), AnswerReading::Open);
        let refused = StoredAnswer {
            answer: StoredDecision::Refuse,
            reason: Some("not \"today\",\"mac\":\"\n".to_owned()),
            ..answer("me")
        };
        answers.write(&question(), &refused).unwrap();
        assert_eq!(answers.read(&question()).unwrap(), AnswerReading::Answered(refused));
        let Err(AnswerWriteError::AlreadyAnswered(first)) = answers.write(&question(), &answer("you")) else {
            panic!("two answers count")
        };
        assert_eq!((first.by.as_deref(), first.at), (Some("me"), 7));
        let other = HexDigest::of(b"another");
        answers.write(&other, &edited("{\n \"path\": \"ä\"}")).unwrap();
        assert_eq!(answers.read(&other).unwrap(), AnswerReading::Answered(edited("{\n \"path\": \"ä\"}")));
        assert_eq!(names(&answers.directory).len(), 2, "nothing else is left");
        let gone = AnswerFiles::of(&StoreLayout::new(state.path()), RunId::new(2, 2), Some(&key));
        assert!(gone.write(&question(), &answer("me")).is_err() && !gone.directory.exists());
    }

    #[test]
    fn only_an_answer_that_can_be_signed_and_read_is_written() {
        let (state, key) = (tempfile::tempdir().unwrap(), key());
        let layout = layout(state.path());
        let answers = AnswerFiles::of(&layout, run(), Some(&key));
        let unsigned = AnswerFiles::of(&layout, run(), None);
        let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        let inconsistent = StoredAnswer { arguments: edited("1").arguments, ..answer("me") };
        let bare = StoredAnswer { answer: StoredDecision::Edited, ..answer("me") };
        let chatty = StoredAnswer { reason: Some("x".repeat(LARGEST_FILE)), ..answer("me") };
        for (wrong, expected) in [
            (answers.write(&question(), &inconsistent), "an answer has arguments if it changes them, and else none"),
            (answers.write(&question(), &bare), "an answer has arguments if it changes them, and else none"),
            (answers.write(&question(), &edited(&text(LARGEST_ARGUMENTS + 1))), "an answer has at most 2097152 bytes"),
            (answers.write(&question(), &chatty), "an answer has at most 2097152 bytes"),
            (unsigned.write(&question(), &answer("me")), "nothing can be signed without a key"),
        ] {
            assert_eq!(wrong.unwrap_err().to_string(), expected);
        }
        assert!(!answers.directory.exists());
        let largest = edited(&text(LARGEST_ARGUMENTS));
        answers.write(&question(), &largest).unwrap();
        assert_eq!(answers.read(&question()).unwrap(), AnswerReading::Answered(largest));
        assert!(
            matches!(unsigned.read(&question()).unwrap(), AnswerReading::SetAside(_)),
            "nobody can tell whose it is"
        );
    }

    #[test]
    fn what_is_not_ours_is_set_aside_once_and_the_right_one_counts() {
        let (state, key) = (tempfile::tempdir().unwrap(), key());
        let layout = layout(state.path());
        let answers = AnswerFiles::of(&layout, run(), Some(&key));
        answers.write(&question(), &answer("me")).unwrap();
        let place = answers.path(&question());
        let good = fs::read_to_string(&place).unwrap();
        fs::remove_file(&place).unwrap();
        // Of another question, of another run, with another key.
        answers.write(&HexDigest::of(b"another"), &answer("me")).unwrap();
        let of_question = fs::read_to_string(answers.path(&HexDigest::of(b"another"))).unwrap();
        fs::create_dir(layout.run(&RunId::new(2, 2))).unwrap();
        let elsewhere = AnswerFiles::of(&layout, RunId::new(2, 2), Some(&key));
        elsewhere.write(&question(), &answer("me")).unwrap();
        let of_run = fs::read_to_string(elsewhere.path(&question())).unwrap();
        let long = "x".repeat(LARGEST_FILE + 1);
        let unsigned = format!("{}\n", serde_json::to_string(&answer("me")).unwrap());
        let contents = ["", "x", "{}", &good[..20], good.trim_end(), &of_question, &of_run, &long, &unsigned];
        for (number, content) in (1..).zip(contents) {
            fs::write(&place, content).unwrap();
            let aside = answers.directory.join(format!("{}.json.bad-{number}", question()));
            assert_eq!(answers.read(&question()).unwrap(), AnswerReading::SetAside(aside), "{number}");
            assert_eq!(answers.read(&question()).unwrap(), AnswerReading::Open, "{number}");
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, &place, 0o600.into()).unwrap();
        assert!(matches!(answers.read(&question()).unwrap(), AnswerReading::SetAside(_)), "a FIFO is not waited for");
        fs::create_dir(&place).unwrap();
        answers.write(&question(), &answer("me")).unwrap();
        assert_eq!(answers.read(&question()).unwrap(), AnswerReading::Answered(answer("me")));
        assert!(names(&answers.directory).contains(&format!("{}.json.bad-11", question())));
    }

    /// One race for a question in whose place something strange may lie.
    fn race_of(directory: &Path, number: usize, by: &str) -> String {
        let key = key();
        let answers = AnswerFiles::of(&StoreLayout::new(directory), run(), Some(&key));
        let question = HexDigest::of(number.to_string().as_bytes());
        match answers.write(&question, &answer(by)) {
            Ok(_) => format!("{number} {by} counts"),
            Err(AnswerWriteError::AlreadyAnswered(first)) => format!("{number} {}", first.author()),
            Err(error) => panic!("{error}"),
        }
    }

    const RACES: usize = 100;
    const RACERS: usize = 4;

    #[test]
    fn in_a_hundred_races_of_processes_one_answer_counts_each_time() {
        let race = tempfile::tempdir().unwrap();
        let layout = layout(race.path());
        fs::create_dir(layout.answers(&run())).unwrap();
        for number in (0..RACES).step_by(2) {
            let question = HexDigest::of(number.to_string().as_bytes());
            fs::write(layout.answers(&run()).join(format!("{question}.json")), "strange").unwrap();
        }
        race::run("store::answers::tests::a_process_that_answers", race.path(), RACERS);
        let told = race::all_told(race.path());
        assert_eq!(told.len(), RACES * RACERS);
        for number in 0..RACES {
            let of_race = || told.iter().filter_map(|line| line.strip_prefix(&format!("{number} ")));
            let winners: Vec<&str> = of_race().filter_map(|line| line.strip_suffix(" counts")).collect();
            assert_eq!(winners.len(), 1, "{number}");
            assert!(of_race().all(|line| line.strip_suffix(" counts").unwrap_or(line) == winners[0]), "{number}");
            let key = key();
            let answers = AnswerFiles::of(&layout, run(), Some(&key));
            let read = answers.read(&HexDigest::of(number.to_string().as_bytes())).unwrap();
            assert_eq!(read, AnswerReading::Answered(answer(winners[0])));
        }
        assert_eq!(names(&layout.answers(&run())).len(), RACES + RACES / 2, "each strange one was set aside once");
    }

    #[test]
    fn a_process_that_answers() {
        let Some(directory) = race::directory() else { return };
        let by = std::process::id().to_string();
        for number in 0..RACES {
            race::tell(&directory, &race_of(&directory, number, &by));
        }
    }

    #[test]
    fn in_a_hundred_races_of_threads_one_answer_counts_each_time() {
        let state = tempfile::tempdir().unwrap();
        layout(state.path());
        for number in 0..RACES {
            let barrier = std::sync::Barrier::new(RACERS);
            let counts = std::thread::scope(|scope| {
                let racers = ["a", "b", "c", "d"].map(|by| {
                    let (barrier, directory) = (&barrier, state.path());
                    scope.spawn(move || {
                        barrier.wait();
                        race_of(directory, number, by).ends_with(" counts")
                    })
                });
                racers.into_iter().map(|racer| racer.join().unwrap()).filter(|counts| *counts).count()
            });
            assert_eq!(counts, 1, "{number}");
        }
    }

    proptest! {
        /// No byte of it can be changed, and nothing else passes for it.
        #[test]
        fn any_other_content_is_not_believed(at: prop::sample::Index, flip in 1..=255_u8, bytes: Vec<u8>) {
            let key = key();
            let answers = AnswerFiles::of(&StoreLayout::new("/nowhere"), run(), Some(&key));
            let mut content = answers.content(&question(), &answer("me")).unwrap().into_bytes();
            prop_assert!(answers.verified(&question(), &content).is_some());
            let at = at.index(content.len());
            content[at] ^= flip;
            prop_assert!(answers.verified(&question(), &content).is_none());
            prop_assert!(answers.verified(&question(), &bytes).is_none());
        }
    }
}
