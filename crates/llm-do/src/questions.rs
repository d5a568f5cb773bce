//! The questions of a session that stand open, and those who answer them: any number of front ends may, in any order, and the
//! first valid answer counts. With an [`AnswerDesk`] other processes may answer too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::BoxFuture;
use crate::tools::approval::{Answer, ApprovalRequest, Approver, Memory, check_kind};

/// The whole digest of a question.
pub type QuestionId = String;

/// A question without an answer yet.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpenQuestion {
    /// The call that is asked about, and why.
    pub request: Arc<ApprovalRequest>,
}

impl OpenQuestion {
    /// What an answer names the question by, for as long as it is open.
    pub fn id(&self) -> &QuestionId {
        &self.request.id
    }
}

/// What front ends are told of questions.
#[derive(Clone, Debug, PartialEq)]
pub enum QuestionUpdate {
    /// A question waits for an answer.
    Opened(OpenQuestion),
    /// It needs no answer any more: who saw to that, and what they answered, if anything.
    Answered(QuestionId, String, Option<Answer>),
    /// What a person should know about answers that do not count, or are not kept. The same is said once.
    Note(String),
}

/// Where the answers to the questions of one run are kept, so that other processes can give them too. Of all answers to a
/// question one is ever kept.
///
/// What a person should know is said to `say`: that something lay there which was no answer, or that an answer could not
/// be kept.
pub trait AnswerDesk: Send + Sync + fmt::Debug {
    /// Keeps an answer, or gives the one that was first. One that cannot be kept counts in this process all the same.
    fn keep(&self, id: &str, answer: &Answer, by: &str, say: &mut dyn FnMut(String)) -> Result<(), KeptAnswer>;

    /// The answer that is kept, if there is one.
    fn look(&self, id: &str, say: &mut dyn FnMut(String)) -> Option<KeptAnswer>;
}

/// An answer that lies at a desk, and whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptAnswer {
    /// What was decided.
    pub answer: Answer,
    /// Who decided it.
    pub by: String,
}

/// So often an open question is looked up at the desk.
const LOOK_EVERY: Duration = Duration::from_millis(90);

/// Why an answer does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// No question has this id.
    #[error("there is no such question")]
    NotOpen,
    /// Another answer came first.
    #[error("it was answered already, by {by}")]
    AlreadyAnswered {
        /// Who gave it.
        by: String,
    },
    /// The question offers no such answer.
    #[error("this question cannot be answered for the session")]
    NotOffered,
    /// It takes values and got none, or other ones.
    #[error("{0}")]
    Unfit(String),
}

/// By which a question is answered that the run itself took back: its call was given up, or another answer covers it.
pub const BY_THE_RUN: &str = "the run";

/// The approver of a session with front ends.
#[derive(Clone, Debug)]
pub struct QuestionBroker(Arc<BrokerState>);

#[derive(Debug)]
struct BrokerState {
    questions: Mutex<Questions>,
    updates: mpsc::UnboundedSender<QuestionUpdate>,
    desk: Option<Arc<dyn AnswerDesk>>,
}

#[derive(Debug, Default)]
struct Questions {
    /// In the order in which they were asked.
    open: Vec<AskedNow>,
    /// Those that need no answer any more, since another one covers them or ends the run: the run takes them back.
    settled: Vec<AskedNow>,
    /// Who answered.
    answered: BTreeMap<QuestionId, String>,
    /// The front end has left: no answer will come.
    is_left: bool,
    /// What was noted already.
    said: BTreeSet<String>,
}

#[derive(Debug)]
struct AskedNow {
    question: OpenQuestion,
    answer: oneshot::Sender<Answer>,
}

impl QuestionBroker {
    /// A broker, and what its front end is told. When the front end drops that, it has left.
    pub fn new() -> (Self, QuestionUpdates) {
        Self::with_desk(None)
    }

    /// The same of a run whose answers are kept at a desk: an answer counts if the desk keeps it first, and while a question
    /// is open an answer of another process is looked for there. This takes a tokio runtime that has its time enabled.
    pub fn with_desk(desk: Option<Arc<dyn AnswerDesk>>) -> (Self, QuestionUpdates) {
        let (sender, updates) = mpsc::unbounded_channel();
        let broker = Self(Arc::new(BrokerState { questions: Mutex::default(), updates: sender, desk }));
        let updates = QuestionUpdates { broker: broker.clone(), updates };
        (broker, updates)
    }

    /// The open questions, in the order in which they were asked.
    pub fn open(&self) -> Vec<OpenQuestion> {
        self.questions().open.iter().map(|asked| asked.question.clone()).collect()
    }

    /// Answers a question. All other front ends are told who did.
    pub fn answer(&self, id: &str, answer: Answer, by: &str) -> Result<(), AnswerError> {
        // Held while the desk keeps the answer: whoever is second in this process must not come between.
        let mut questions = self.questions();
        if let Some(asked) = questions.open.iter().find(|asked| asked.question.id() == id) {
            check_offered(&answer, &asked.question.request)?;
        }
        let Some(asked) = questions.take(id) else {
            let by = questions.answered.get(id).cloned();
            return Err(by.map_or(AnswerError::NotOpen, |by| AnswerError::AlreadyAnswered { by }));
        };
        match self.keep(&mut questions, id, &answer, by) {
            Ok(()) => {
                self.settle(&mut questions, asked, KeptAnswer { answer, by: by.to_owned() });
                Ok(())
            }
            Err(first) => {
                let by = first.by.clone();
                self.settle(&mut questions, asked, first);
                Err(AnswerError::AlreadyAnswered { by })
            }
        }
    }

    /// An answer that ends the run, or leaves the question to others, answers nothing for good: whoever goes on with the run
    /// is asked again.
    fn keep(&self, questions: &mut Questions, id: &str, answer: &Answer, by: &str) -> Result<(), KeptAnswer> {
        match (&self.0.desk, answer) {
            (None, _) | (_, Answer::EndRun | Answer::Later) => Ok(()),
            (Some(desk), _) => desk.keep(id, answer, by, &mut |note| self.note(questions, note)),
        }
    }

    /// Takes the answer of another process, if there is one.
    fn look(&self, desk: &dyn AnswerDesk, id: &str) {
        let mut questions = self.questions();
        if !questions.open.iter().any(|asked| asked.question.id() == id) {
            return;
        }
        let kept = desk.look(id, &mut |note| self.note(&mut questions, note));
        if let Some((asked, kept)) = kept.and_then(|kept| Some((questions.take(id)?, kept))) {
            self.settle(&mut questions, asked, kept);
        }
    }

    /// An answer counts, and closes the other questions that it covers. One of them that has an answer of its own at the desk
    /// keeps that.
    fn settle(&self, questions: &mut Questions, asked: AskedNow, kept: KeptAnswer) {
        let mut heard = Vec::new();
        let mut counting = vec![(asked, kept)];
        while let Some((asked, kept)) = counting.pop() {
            self.close(questions, asked.question.id(), &kept.by, Some(&kept.answer));
            let (covered, open): (Vec<_>, Vec<_>) = std::mem::take(&mut questions.open)
                .into_iter()
                .partition(|other| answer_settles(&kept.answer, &asked, other));
            questions.open = open;
            for other in covered {
                let covering = if kept.answer == Answer::EndRun { Answer::EndRun } else { Answer::Once };
                match self.keep(questions, other.question.id(), &covering, &kept.by) {
                    Ok(()) => {
                        self.close(questions, other.question.id(), &kept.by, Some(&covering));
                        questions.settled.push(other);
                    }
                    Err(own) => counting.push((other, own)),
                }
            }
            heard.push((asked, kept.answer));
        }
        // The run learns last of what covers others: these hear their own answers before.
        for (asked, answer) in heard.into_iter().rev() {
            // The call may have been given up this moment.
            let _ = asked.answer.send(answer);
        }
    }

    fn close(&self, questions: &mut Questions, id: &str, by: &str, answer: Option<&Answer>) {
        questions.answered.insert(id.to_owned(), by.to_owned());
        let _ = self.0.updates.send(QuestionUpdate::Answered(id.to_owned(), by.to_owned(), answer.cloned()));
    }

    fn note(&self, questions: &mut Questions, note: String) {
        if questions.said.insert(note.clone()) {
            let _ = self.0.updates.send(QuestionUpdate::Note(note));
        }
    }

    /// The front end has left: what is open, and all that comes, waits for another front end.
    pub fn leave(&self) {
        let mut questions = self.questions();
        questions.is_left = true;
        let mut open = std::mem::take(&mut questions.open);
        open.append(&mut questions.settled);
        drop(questions);
        for asked in open {
            let _ = asked.answer.send(Answer::Later);
        }
    }

    // A panic elsewhere leaves the list as it was.
    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.0.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Questions {
    /// An open question, which is not open any more.
    fn take(&mut self, id: &str) -> Option<AskedNow> {
        let at = self.open.iter().position(|asked| asked.question.id() == id)?;
        Some(self.open.remove(at))
    }
}

/// Whether an answer to one question leaves nothing to ask at another: it covers both, or ends the run.
fn answer_settles(answer: &Answer, answered: &AskedNow, other: &AskedNow) -> bool {
    let (one, two) = (&answered.question.request, &other.question.request);
    match answer {
        Answer::CallForSession => one.coverage.call.is_some() && one.coverage.call == two.coverage.call,
        Answer::ToolForSession => {
            two.memory == Memory::CallOrTool && one.coverage.tool.is_some() && one.coverage.tool == two.coverage.tool
        }
        Answer::EndRun => true,
        Answer::Once | Answer::Edited(_) | Answer::Values(_) | Answer::Refuse { .. } | Answer::Later => false,
    }
}

/// An answer for the session counts only where one was offered.
fn is_offered(answer: &Answer, memory: Memory) -> bool {
    match answer {
        Answer::CallForSession => memory != Memory::Nothing,
        Answer::ToolForSession => memory == Memory::CallOrTool,
        Answer::Once
        | Answer::Edited(_)
        | Answer::Values(_)
        | Answer::Refuse { .. }
        | Answer::EndRun
        | Answer::Later => true,
    }
}

/// Whether the question takes such an answer.
fn check_offered(answer: &Answer, request: &ApprovalRequest) -> Result<(), AnswerError> {
    check_kind(answer, request.question.form.as_ref()).map_err(AnswerError::Unfit)?;
    if is_offered(answer, request.memory) { Ok(()) } else { Err(AnswerError::NotOffered) }
}

impl Approver for QuestionBroker {
    fn ask<'a>(&'a self, request: &'a ApprovalRequest) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let (answer, mut answered) = oneshot::channel();
            {
                let mut questions = self.questions();
                if questions.is_left {
                    return Answer::Later;
                }
                let question = OpenQuestion { request: Arc::new(request.clone()) };
                let _ = self.0.updates.send(QuestionUpdate::Opened(question.clone()));
                questions.open.push(AskedNow { question, answer });
            }
            let _withdraws = Withdraw { broker: self, id: &request.id };
            let Some(desk) = &self.0.desk else { return answered.await.unwrap_or(Answer::Later) };
            loop {
                self.look(&**desk, &request.id);
                tokio::select! {
                    biased;
                    answer = &mut answered => return answer.unwrap_or(Answer::Later),
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        })
    }
}

/// Takes a question back that is not waited for any more.
struct Withdraw<'a> {
    broker: &'a QuestionBroker,
    id: &'a str,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let mut questions = self.broker.questions();
        questions.settled.retain(|asked| asked.question.id() != self.id);
        if questions.take(self.id).is_some() {
            self.broker.close(&mut questions, self.id, BY_THE_RUN, None);
        }
    }
}

/// What a front end is told of questions, in order.
#[derive(Debug)]
pub struct QuestionUpdates {
    broker: QuestionBroker,
    updates: mpsc::UnboundedReceiver<QuestionUpdate>,
}

impl QuestionUpdates {
    /// The next one. Cancel-safe.
    pub async fn next(&mut self) -> Option<QuestionUpdate> {
        self.updates.recv().await
    }
}

impl Drop for QuestionUpdates {
    fn drop(&mut self) {
        self.broker.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RawJson;
    use crate::tools::approval::Question;

    fn request(id: &str) -> ApprovalRequest {
        ApprovalRequest {
            about: None,
            trials: crate::tools::approval::Trials::default(),
            id: id.to_owned(),
            path: vec!["main".to_owned()],
            caller: "main".to_owned(),
            tool: "write_file".to_owned(),
            arguments: RawJson::of(&serde_json::json!({"path": "a"})),
            question: Question::because("it writes"),
            memory: Memory::CallOnly,
            coverage: crate::tools::approval::SessionCoverage::default(),
        }
    }

    fn executor() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn of_three_who_answer_at_once_one_counts() {
        let executor = executor();
        for round in 0..1000 {
            let (broker, _updates) = QuestionBroker::new();
            let asking = request("q");
            let answerers: Vec<_> = {
                let mut asked = broker.ask(&asking);
                let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
                assert!(asked.as_mut().poll(&mut cx).is_pending());
                let threads: Vec<_> = (0..3)
                    .map(|number| {
                        let broker = broker.clone();
                        std::thread::spawn(move || {
                            let answer = Answer::Refuse { reason: Some(number.to_string()) };
                            (number, broker.answer("q", answer, &number.to_string()))
                        })
                    })
                    .collect();
                let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
                let heard = executor.block_on(asked);
                let (counted, others): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, result)| result.is_ok());
                assert_eq!(counted.len(), 1, "round {round}");
                let winner = counted[0].0.to_string();
                assert_eq!(heard, Answer::Refuse { reason: Some(winner.clone()) });
                let too_late = Err(AnswerError::AlreadyAnswered { by: winner });
                assert!(others.iter().all(|(_, result)| *result == too_late), "{others:?}");
                others
            };
            assert_eq!((answerers.len(), broker.open().len()), (2, 0));
        }
    }

    #[test]
    fn answers_come_in_any_order_and_only_as_they_were_offered() {
        let executor = executor();
        let (broker, mut updates) = QuestionBroker::new();
        let requests: Vec<ApprovalRequest> = ["a", "b", "c", "d", "e"].map(request).into();
        let answers = executor.block_on(async {
            let asking = futures_util::future::join_all(requests.iter().map(|request| broker.ask(request)));
            let answering = async {
                for id in ["a", "b", "c", "d", "e"] {
                    let update = updates.next().await.unwrap();
                    assert!(matches!(update, QuestionUpdate::Opened(open) if open.id() == id));
                }
                assert_eq!(broker.open().len(), 5);
                assert_eq!(broker.answer("c", Answer::ToolForSession, "x"), Err(AnswerError::NotOffered));
                assert_eq!(broker.answer("z", Answer::Once, "x"), Err(AnswerError::NotOpen));
                for id in ["d", "a", "e", "c"] {
                    broker.answer(id, Answer::Refuse { reason: Some(id.to_owned()) }, "x").unwrap();
                }
                broker.answer("b", Answer::CallForSession, "x").unwrap();
            };
            tokio::join!(asking, answering).0
        });
        let refused = |id: &str| Answer::Refuse { reason: Some(id.to_owned()) };
        assert_eq!(answers, [refused("a"), Answer::CallForSession, refused("c"), refused("d"), refused("e")]);
    }

    #[test]
    fn a_question_that_is_given_up_is_taken_back_and_a_front_end_that_leaves_answers_nothing() {
        let executor = executor();
        let (broker, mut updates) = QuestionBroker::new();
        let (first, second) = (request("a"), request("b"));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut asked = broker.ask(&first);
        assert!(asked.as_mut().poll(&mut cx).is_pending());
        drop(asked);
        let told = executor.block_on(async { [updates.next().await.unwrap(), updates.next().await.unwrap()] });
        assert_eq!(told[1], QuestionUpdate::Answered("a".to_owned(), BY_THE_RUN.to_owned(), None));
        assert_eq!(
            broker.answer("a", Answer::Once, "x"),
            Err(AnswerError::AlreadyAnswered { by: BY_THE_RUN.to_owned() })
        );
        let mut asked = broker.ask(&second);
        assert!(asked.as_mut().poll(&mut cx).is_pending());
        drop(updates);
        assert_eq!(executor.block_on(asked), Answer::Later);
        assert_eq!(executor.block_on(broker.ask(&first)), Answer::Later);
    }

    #[test]
    fn an_answer_for_the_session_closes_what_it_covers_and_one_that_ends_the_run_closes_all() {
        let covered = |id: &str, memory, tool: &str| {
            let mut request = request(id);
            request.memory = memory;
            request.coverage.tool = Some(tool.to_owned());
            request
        };
        let requests = [
            covered("a", Memory::CallOrTool, "t"),
            covered("b", Memory::CallOrTool, "t"),
            covered("c", Memory::CallOnly, "t"),
            covered("d", Memory::CallOrTool, "u"),
        ];
        let (broker, _updates) = QuestionBroker::new();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut asked: Vec<_> = requests.iter().map(|request| broker.ask(request)).collect();
        assert!(asked.iter_mut().all(|asked| asked.as_mut().poll(&mut cx).is_pending()));
        let open = || broker.open().iter().map(|open| open.id().clone()).collect::<Vec<_>>();
        broker.answer("a", Answer::ToolForSession, "x").unwrap();
        assert_eq!(open(), ["c", "d"], "what always asks is still asked, and so is another tool");
        assert!(asked[1].as_mut().poll(&mut cx).is_pending(), "the run itself takes it back");
        broker.answer("d", Answer::EndRun, "x").unwrap();
        assert_eq!(open(), Vec::<String>::new());
    }
}
