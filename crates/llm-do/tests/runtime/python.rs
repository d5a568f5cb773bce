//! Calls of Python tools that are judged while the interpreter has ended and another takes its place, which happens where
//! several runs share one interpreter. The interpreter is a real one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use llm_do::message::{Content, Message, RawJson};
use llm_do::model::name::ModelChoices;
use llm_do::project::trust::Agreement;
use llm_do::runtime::{Models, Runtime, RuntimeConfig};
use llm_do::tools::approval::{Answer, Approvals};
use llm_do::tools::fence::FenceConfig;
use llm_do::tools::python::{Python, Tracebacks};
use llm_do::tools::rpc::child::ChildEnvironment;
use llm_do::tools::working_directory::WorkingDirectory;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::support::{Files, text, worker};

/// Arguments are read before a call is permitted. Those of a deletion end the first interpreter, once another question
/// is open. An interpreter that takes its place is held at the door while there is a file `door`.
const KIT: &str = "\
import dataclasses, os, time

def wait(is_over):
    while not is_over():
        time.sleep(0.001)

with open('imported', 'a') as file:
    file.write('x')
wait(lambda: not os.path.exists('door'))

@dataclasses.dataclass
class Deed:
    text: str
    def __post_init__(self):
        if self.text == 'delete' and not os.path.exists('ended'):
            wait(lambda: os.path.exists('asked'))
            open('ended', 'w').close()
            os._exit(7)

def act(deed: Deed) -> str:
    with open('acts', 'a') as file:
        file.write(deed.text + ' ')
    return 'did ' + deed.text

def alive() -> str:
    return 'alive'

TOOLS = [act, alive]
";

const SCRIPT: &str = "
- {heard: both, round: 1, call: [{act: {deed: {text: keep}}}, {act: {deed: {text: delete}}}]}
- {heard: both, say: done}
- {tool: alive, say: '{{ result }}'}
- {call: {alive: {}}}
";

/// A question about a call: its arguments, and where the answer goes.
type Asked = (RawJson, oneshot::Sender<Answer>);

/// A project with real Python files, one runtime for all its runs, and the questions that they ask.
struct Stage {
    files: Files,
    runtime: Arc<Runtime>,
    questions: mpsc::UnboundedReceiver<Asked>,
}

impl Stage {
    async fn new() -> Self {
        let main = worker("main", "entry: true\ntools: [act, alive]\napproval: {alive: allow}");
        let manifest = r#"{"version": 1, "entry": {}, "worker_files": ["main.worker"], "python_files": ["kit.py"]}"#;
        let files = [("project.json", manifest), ("main.worker", &main), ("kit.py", KIT), ("script.yaml", SCRIPT)];
        let files = Files::new(&files);
        let variables = ["PATH", "HOME"].map(|name| (name.to_owned(), std::env::var(name).unwrap()));
        let python = Python {
            program: PathBuf::from("python3"),
            environment: ChildEnvironment { fixed: variables.into(), ..ChildEnvironment::default() },
            directory: WorkingDirectory::at(files.path()).unwrap(),
            compiled: None,
            tracebacks: Tracebacks::Nothing,
            fence: FenceConfig::default(),
        };
        let choices = ModelChoices::default();
        let surveyed = files.project().surveyed(&choices, None).unwrap_or_else(|report| panic!("{report}"));
        let trusted = surveyed.trusted(Agreement::Everything).ok().unwrap();
        let started = trusted.start_python(&python).await.unwrap_or_else(|report| panic!("{report}"));
        let program = started.relinked(&choices, None).unwrap_or_else(|report| panic!("{report}")).into_program();
        let (asks, questions) = mpsc::unbounded_channel();
        let approvals = Approvals::ask_with(move |request| {
            let (answers, answer) = oneshot::channel();
            asks.send((request.arguments.clone(), answers)).unwrap();
            async move { answer.await.unwrap() }
        });
        let runtime = Arc::new(Runtime::new(program, Models::default(), RuntimeConfig::new(approvals)));
        Self { files, runtime, questions }
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.files.path().join(name), "").unwrap();
    }

    fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.files.path().join(name)).unwrap_or_default()
    }

    /// Waits for a file that Python writes.
    async fn written(&self, name: &str, is_it: impl Fn(&str) -> bool) {
        let is_written = async {
            while !self.files.path().join(name).exists() || !is_it(&self.content(name)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), is_written).await.unwrap();
    }

    /// A run whose reply has two calls: one that the person is asked about, and one whose judging ends Python.
    async fn two_calls(&mut self) -> (tokio::task::JoinHandle<Vec<Message>>, oneshot::Sender<Answer>) {
        let runtime = Arc::clone(&self.runtime);
        let run = tokio::spawn(async move { runtime.run("both").await.unwrap().messages });
        let (arguments, answer) = self.questions.recv().await.unwrap();
        assert_eq!(arguments.get(), r#"{"deed":{"text":"keep"}}"#);
        self.touch("asked");
        self.written("ended", |_| true).await;
        (run, answer)
    }
}

/// Begins runs until one finds Python alive again: the first that finds it ended renews it.
async fn renewed(runtime: Arc<Runtime>) {
    let is_alive = async { while text(runtime.run("again").await.map(|run| run.output)) != "alive" {} };
    tokio::time::timeout(Duration::from_mins(1), is_alive).await.unwrap();
}

/// What the model reads of the calls.
fn results(messages: &[Message]) -> Vec<String> {
    let of = |message: &Message| match message {
        Message::Tool(message) => message.parts.clone(),
        Message::User(_) | Message::Assistant(_) => Vec::new(),
    };
    let read = |outcome: Result<Vec<Content>, String>| match outcome {
        Ok(content) => content.iter().map(|part| format!("{part:?}")).collect::<Vec<_>>().concat(),
        Err(error) => error,
    };
    messages.iter().flat_map(of).map(|result| read(result.outcome)).collect()
}

const ENDED: &str = "Python ended with exit code 7";

#[tokio::test]
async fn a_call_that_nobody_could_judge_does_not_run_once_python_is_back() {
    let mut stage = Stage::new().await;
    let (run, answer) = stage.two_calls().await;
    renewed(Arc::clone(&stage.runtime)).await;
    answer.send(Answer::Once).unwrap();
    let results = results(&run.await.unwrap());
    assert!(results[0].contains("did keep") && results[1] == ENDED, "{results:?}");
    assert_eq!((stage.content("acts").as_str(), stage.content("imported").as_str()), ("keep ", "xx"));
    assert!(stage.questions.try_recv().is_err(), "nobody is asked about what cannot run");
}

/// What the person makes of one call is judged by the new interpreter and allowed. That is no permission for the other,
/// which asks for the same.
#[tokio::test]
async fn the_same_arguments_in_another_call_permit_none_that_was_not_judged() {
    let mut stage = Stage::new().await;
    let (run, answer) = stage.two_calls().await;
    renewed(Arc::clone(&stage.runtime)).await;
    answer.send(Answer::Edited(RawJson::parse(r#"{"deed":{"text":"delete"}}"#).unwrap())).unwrap();
    let results = results(&run.await.unwrap());
    assert_eq!(stage.content("acts"), "delete ", "{results:?}");
    assert!(results[0].contains("did delete") && results[1] == ENDED, "{results:?}");
}

/// While another interpreter is on its way, none is there: what is judged then fails, and waits for nothing.
#[tokio::test]
async fn what_is_judged_while_python_starts_again_fails_and_python_starts_once() {
    let mut stage = Stage::new().await;
    stage.touch("door");
    let (run, answer) = stage.two_calls().await;
    let mut others = JoinSet::new();
    for _ in 0..8 {
        others.spawn(renewed(Arc::clone(&stage.runtime)));
    }
    stage.written("imported", |imported| imported == "xx").await;
    answer.send(Answer::Edited(RawJson::parse(r#"{"deed":{"text":"other"}}"#).unwrap())).unwrap();
    let results = results(&run.await.unwrap());
    assert!(results.iter().all(|result| result.ends_with(ENDED)), "{results:?}");
    std::fs::remove_file(stage.files.path().join("door")).unwrap();
    others.join_all().await;
    assert_eq!((stage.content("acts").as_str(), stage.content("imported").as_str()), ("", "xx"));
}
