//! A hundred questions, each answered at once by a broker in this process, by `llm-do inbox` and by a file.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use llm_do::approval::{Memory, Question, SessionCoverage};
use llm_do::questions::{AnswerError, QuestionBroker};
use llm_do::store::answers::{AnswerWriteError, StoredAnswer};
use llm_do::store::desk::RunAnswers;
use llm_do::store::layout::{HexDigest, RunId};
use llm_do::{Answer, ApprovalRequest, Approver as _, RawJson};
use serde_json::Value;

use crate::{inbox, questions, short, store, suspend, writer};

const RACES: usize = 100;

#[test]
fn of_a_terminal_a_process_and_a_file_one_counts_and_the_others_are_told() {
    let files: Vec<String> = (0..RACES).map(|number| format!("{number}.txt")).collect();
    let sandbox = writer(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let run = suspend(&sandbox);
    let store = store(&sandbox);
    let id = RunId::parse(&run).unwrap();
    let open = questions(&sandbox);
    assert_eq!(open.len(), RACES);
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut won: BTreeMap<String, usize> = BTreeMap::new();
    // The process takes its time to start: the others begin at some moment of that, so that each can be the first.
    let begun = Instant::now();
    inbox(&sandbox, &["show", short(&open[0])]);
    let start = begun.elapsed() * 2;
    for question in &open {
        let request = request(question);
        let (broker, _updates) = QuestionBroker::with_desk(Some(Arc::new(RunAnswers::of(store.clone(), id))));
        let name = format!("{run}/{}", short(question));
        let barrier = Barrier::new(3);
        let wait = || {
            barrier.wait();
            thread::sleep(start.mul_f64(fastrand::f64()));
        };
        let (heard, told) = thread::scope(|scope| {
            let process = scope.spawn(|| {
                barrier.wait();
                let ended = inbox(&sandbox, &["approve", &name]);
                match ended.code {
                    Some(0) => Ok(()),
                    Some(2) => Err(ended
                        .stderr
                        .split("answered already, by ")
                        .nth(1)
                        .unwrap()
                        .split(',')
                        .next()
                        .unwrap()
                        .to_owned()),
                    _ => panic!("{ended:?}"),
                }
            });
            let file = scope.spawn(|| {
                let answer = StoredAnswer::of(&Answer::refuse("file"), "file").unwrap();
                wait();
                match store.answers(&id).write(&HexDigest::parse(&request.id).unwrap(), &answer) {
                    Ok(_) => Ok(()),
                    Err(AnswerWriteError::AlreadyAnswered(first)) => Err(first.author().to_owned()),
                    Err(error) => panic!("{error}"),
                }
            });
            let (own, id) = (broker.clone(), request.id.clone());
            let (asked, is_asked) = std::sync::mpsc::channel();
            let terminal = scope.spawn(move || {
                is_asked.recv().unwrap();
                wait();
                match own.answer(&id, Answer::refuse("terminal"), "terminal") {
                    Ok(()) => Ok(()),
                    Err(AnswerError::AlreadyAnswered { by }) => Err(by),
                    Err(error) => panic!("{error}"),
                }
            });
            let mut asking = broker.ask(&request);
            let heard = executor.block_on(async {
                let polled = futures_util::poll!(asking.as_mut());
                assert!(polled.is_pending());
                asked.send(()).unwrap();
                tokio::time::timeout(Duration::from_mins(1), asking).await.unwrap()
            });
            (
                heard,
                [
                    ("bob", process.join().unwrap()),
                    ("file", file.join().unwrap()),
                    ("terminal", terminal.join().unwrap()),
                ],
            )
        });
        let winners: Vec<&str> = told.iter().filter(|(_, told)| told.is_ok()).map(|(who, _)| *who).collect();
        let [winner] = winners[..] else { panic!("{name}: {told:?}") };
        assert!(told.iter().all(|(_, told)| told.as_ref().err().is_none_or(|by| by == winner)), "{name}: {told:?}");
        let expected = if winner == "bob" { Answer::Once } else { Answer::refuse(winner) };
        assert_eq!(heard, expected, "{name}");
        *won.entry(winner.to_owned()).or_default() += 1;
    }
    assert_eq!(won.values().sum::<usize>(), RACES);
    assert!(questions(&sandbox).is_empty(), "{won:?}");
}

fn request(question: &Value) -> ApprovalRequest {
    ApprovalRequest {
        about: None,
        trials: llm_do::approval::Trials::default(),
        id: question["digest"].as_str().unwrap().to_owned(),
        path: vec!["main".to_owned()],
        caller: "main".to_owned(),
        tool: "write_file".to_owned(),
        arguments: RawJson::parse("{}").unwrap(),
        question: Question::because("x"),
        memory: Memory::Nothing,
        coverage: SessionCoverage::default(),
    }
}
