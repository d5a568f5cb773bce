//! The answers to one run's questions, as the processes see them that run it: a desk for its broker, and answers that are
//! known when it goes on.

use super::answers::{AnswerFiles, AnswerReading, AnswerWriteError, StoredAnswer};
use super::layout::{HexDigest, RunId};
use super::run::RunStore;
use crate::questions::{AnswerDesk, KeptAnswer};
use crate::tools::approval::{Answer, ApprovalRequest, KnownAnswers};

/// The answers to the questions of one run of a store.
#[derive(Clone, Debug)]
pub struct RunAnswers {
    store: RunStore,
    run: RunId,
}

impl RunAnswers {
    /// Those of this run.
    pub fn of(store: RunStore, run: RunId) -> Self {
        Self { store, run }
    }

    fn files(&self) -> AnswerFiles<'_> {
        self.store.answers(&self.run)
    }
}

impl AnswerDesk for RunAnswers {
    fn keep(&self, id: &str, answer: &Answer, by: &str, say: &mut dyn FnMut(String)) -> Result<(), KeptAnswer> {
        let Some((question, answer)) = HexDigest::parse(id).zip(StoredAnswer::of(answer, by)) else { return Ok(()) };
        match self.files().write(&question, &answer) {
            Ok(aside) => aside.iter().for_each(|path| say(set_aside(path))),
            Err(AnswerWriteError::AlreadyAnswered(first)) => return Err(kept(&first)),
            // That nothing can be signed was said when the key was looked for.
            Err(AnswerWriteError::NoKey) => {}
            Err(error @ (AnswerWriteError::TooLarge | AnswerWriteError::Inconsistent | AnswerWriteError::Io(_))) => {
                say(format!("the answer counts, but other processes do not learn of it: {error}"));
            }
        }
        Ok(())
    }

    fn look(&self, id: &str, say: &mut dyn FnMut(String)) -> Option<KeptAnswer> {
        match self.files().read(&HexDigest::parse(id)?) {
            Ok(AnswerReading::Answered(answer)) => Some(kept(&answer)),
            Ok(AnswerReading::Open) => None,
            Ok(AnswerReading::SetAside(path)) => {
                say(set_aside(&path));
                None
            }
            Err(error) => {
                say(format!("answers of other processes cannot be read: {error}"));
                None
            }
        }
    }
}

/// For a run that goes on: what was answered since it stopped. What is no answer stays where it is, for the process that asks.
impl KnownAnswers for RunAnswers {
    fn answer_to(&self, request: &ApprovalRequest) -> Option<Answer> {
        let given = self.files().given(&HexDigest::parse(&request.id)?);
        given.ok().flatten().map(|answer| answer.answer())
    }
}

fn kept(stored: &StoredAnswer) -> KeptAnswer {
    KeptAnswer { answer: stored.answer(), by: stored.author().to_owned() }
}

fn set_aside(path: &std::path::Path) -> String {
    format!("an answer that was not written by you was set aside: {}", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::super::layout::StoreLayout;
    use super::*;
    use crate::journal::mac::StateKey;
    use crate::message::RawJson;
    use crate::questions::{AnswerError, QuestionBroker, QuestionUpdate};
    use crate::tools::approval::{Approver as _, Memory, Question, SessionCoverage};

    fn executor() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    fn store(state: &std::path::Path) -> (RunStore, RunId) {
        let store = RunStore::new(StoreLayout::new(state), Some(StateKey::from_bytes([7; 32])));
        let run = store.create().unwrap();
        (store, run)
    }

    fn request(name: &str) -> ApprovalRequest {
        ApprovalRequest {
            about: None,
            trials: crate::tools::approval::Trials::default(),
            id: HexDigest::of(name.as_bytes()).to_string(),
            path: vec!["main".to_owned()],
            caller: "main".to_owned(),
            tool: "write_file".to_owned(),
            arguments: RawJson::parse("{}").unwrap(),
            question: Question::because("it writes"),
            memory: Memory::CallOrTool,
            coverage: SessionCoverage { call: None, tool: Some("t".to_owned()) },
        }
    }

    fn refusal(reason: &str) -> Answer {
        Answer::Refuse { reason: Some(reason.to_owned()) }
    }

    fn write(store: &RunStore, run: &RunId, question: &ApprovalRequest, answer: &Answer, by: &str) {
        let (question, answer) = (HexDigest::parse(&question.id).unwrap(), StoredAnswer::of(answer, by).unwrap());
        store.answers(run).write(&question, &answer).unwrap();
    }

    #[test]
    fn every_answer_that_stays_true_is_the_same_when_it_was_kept() {
        let edited = Answer::Edited(RawJson::parse("{\"a\":1}").unwrap());
        let unexplained = Answer::Refuse { reason: None };
        let values = Answer::Values(RawJson::parse("{\"a\":1}").unwrap());
        for answer in
            [Answer::Once, Answer::CallForSession, Answer::ToolForSession, edited, values, unexplained, refusal("x")]
        {
            assert_eq!(StoredAnswer::of(&answer, "me").unwrap().answer(), answer);
        }
        for answer in [Answer::EndRun, Answer::Later] {
            assert_eq!(StoredAnswer::of(&answer, "me"), None, "it is asked again when the run goes on");
        }
    }

    #[test]
    fn an_answer_of_another_process_counts_while_the_question_is_open() {
        let state = tempfile::tempdir().unwrap();
        let (store, run) = store(state.path());
        let desk = RunAnswers::of(store.clone(), run);
        let (broker, mut updates) = QuestionBroker::with_desk(Some(Arc::new(desk.clone())));
        let asking = request("q");
        let (answer, told) = executor().block_on(async {
            let elsewhere = async {
                assert!(matches!(updates.next().await, Some(QuestionUpdate::Opened(_))));
                fs::create_dir(store.layout().answers(&run)).unwrap();
                fs::write(store.layout().answers(&run).join(format!("{}.json", asking.id)), "forged").unwrap();
                let Some(QuestionUpdate::Note(note)) = updates.next().await else { panic!("it is said") };
                assert!(note.ends_with(".json.bad-1"), "{note}");
                assert_eq!(broker.open().len(), 1, "it stays open");
                write(&store, &run, &asking, &refusal("no"), "ann");
                updates.next().await
            };
            tokio::join!(broker.ask(&asking), elsewhere)
        });
        assert_eq!(answer, refusal("no"));
        assert_eq!(
            told,
            Some(QuestionUpdate::Answered(asking.id.clone(), "ann".to_owned(), Some(Answer::refuse("no"))))
        );
        let late = broker.answer(&asking.id, Answer::Once, "me");
        assert_eq!(late, Err(AnswerError::AlreadyAnswered { by: "ann".to_owned() }));
        assert_eq!(desk.answer_to(&asking), Some(refusal("no")), "a process that goes on knows it");
    }

    #[test]
    fn an_answer_here_is_kept_first_and_one_that_lost_takes_what_was_first() {
        let state = tempfile::tempdir().unwrap();
        let (store, run) = store(state.path());
        let (broker, _updates) = QuestionBroker::with_desk(Some(Arc::new(RunAnswers::of(store.clone(), run))));
        let (first, second, third) = (request("1"), request("2"), request("3"));
        executor().block_on(async {
            let mut cx = Context::from_waker(Waker::noop());
            let mut asked = [broker.ask(&first), broker.ask(&second), broker.ask(&third)];
            assert!(asked.iter_mut().all(|asked| asked.as_mut().poll(&mut cx).is_pending()));
            write(&store, &run, &second, &refusal("not that"), "ann");
            assert_eq!(broker.answer(&first.id, Answer::ToolForSession, "me"), Ok(()));
            let [one, two, mut three] = asked;
            assert_eq!(two.await, refusal("not that"), "a session answer does not cover what has an answer of its own");
            assert_eq!(one.await, Answer::ToolForSession);
            assert!(three.as_mut().poll(&mut cx).is_pending(), "the run itself takes it back");
            let lost = store
                .answers(&run)
                .write(&HexDigest::parse(&third.id).unwrap(), &StoredAnswer::of(&refusal("late"), "bob").unwrap());
            assert!(matches!(lost, Err(AnswerWriteError::AlreadyAnswered(first)) if first.author() == "me"));
            let fourth = request("4");
            let mut asked = broker.ask(&fourth);
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            write(&store, &run, &fourth, &Answer::Once, "ann");
            let late = broker.answer(&fourth.id, refusal("no"), "me");
            assert_eq!(late, Err(AnswerError::AlreadyAnswered { by: "ann".to_owned() }));
            assert_eq!(asked.await, Answer::Once);
        });
    }

    #[test]
    fn what_ends_the_run_is_asked_again_when_it_goes_on() {
        let state = tempfile::tempdir().unwrap();
        let (store, run) = store(state.path());
        let desk = RunAnswers::of(store.clone(), run);
        let (broker, updates) = QuestionBroker::with_desk(Some(Arc::new(desk.clone())));
        let (first, second) = (request("1"), request("2"));
        executor().block_on(async {
            let mut cx = Context::from_waker(Waker::noop());
            let mut asked = broker.ask(&first);
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            broker.answer(&first.id, Answer::EndRun, "me").unwrap();
            assert_eq!(asked.await, Answer::EndRun);
            let mut asked = broker.ask(&second);
            assert!(asked.as_mut().poll(&mut cx).is_pending());
            drop(updates);
            assert_eq!(asked.await, Answer::Later);
        });
        assert_eq!((desk.answer_to(&first), desk.answer_to(&second)), (None, None));
        assert!(!store.layout().answers(&run).exists());
    }

    #[test]
    fn an_answer_that_cannot_be_kept_counts_here_and_that_is_said_once() {
        let state = tempfile::tempdir().unwrap();
        let (store, run) = store(state.path());
        fs::write(store.layout().answers(&run), "no directory").unwrap();
        let (broker, mut updates) = QuestionBroker::with_desk(Some(Arc::new(RunAnswers::of(store, run))));
        let asking = request("q");
        executor().block_on(async {
            let answering = async {
                assert!(matches!(updates.next().await, Some(QuestionUpdate::Opened(_))));
                assert!(matches!(updates.next().await, Some(QuestionUpdate::Note(_))));
                broker.answer(&asking.id, Answer::Once, "me").unwrap();
                assert!(matches!(updates.next().await, Some(QuestionUpdate::Note(_))));
                assert!(matches!(updates.next().await, Some(QuestionUpdate::Answered(..))));
            };
            assert_eq!(tokio::join!(broker.ask(&asking), answering).0, Answer::Once);
        });
    }
}
