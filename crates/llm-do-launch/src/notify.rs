//! Tells somebody who is not at the terminal that a question waits: a command of the user's, or an address, gets one JSON
//! object. It never stops a run, and its failure is one line.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llm_do::approval::{Form, PendingQuestion, short_id};
use llm_do::escape::visible;
use llm_do::providers::{HttpClient, check_confidential};
use llm_do::questions::{OpenQuestion, QuestionBroker};
use llm_do::runs::Redactor;
use llm_do::{RawJson, process};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::error::LaunchError;
use crate::providers::http_settings;
use crate::settings::{Notes, Settings};
use crate::state::KEY_VARIABLE;

/// `[notify]` of `config.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifyConfig {
    /// An argument vector without a shell, which reads the object on its stdin.
    command: Option<Vec<String>>,
    /// Where the object is sent.
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, HeaderSource>,
    /// Whether it says what is asked, or only that something is.
    #[serde(default = "yes")]
    content: bool,
}

/// A header's value, or the variable that has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum HeaderSource {
    Text(String),
    Variable { from_env: String },
}

fn yes() -> bool {
    true
}

impl NotifyConfig {
    /// Mistakes that are known without telling anybody anything.
    pub fn check(&self) -> Result<(), String> {
        match (&self.command, &self.url) {
            (Some(_), Some(_)) => Err("`[notify]` has both `command` and `url`; keep one of them".to_owned()),
            (None, None) => Err("`[notify]` needs a `command` or a `url`".to_owned()),
            (Some(command), None) if command.is_empty() => Err("`[notify]`: `command` is empty".to_owned()),
            (Some(_), None) if !self.headers.is_empty() => Err("`[notify]`: `headers` belong to a `url`".to_owned()),
            (Some(_), None) => Ok(()),
            (None, Some(url)) => check_confidential(url).map_err(|reason| format!("`[notify]`: `url`: {reason}")),
        }
    }
}

/// So long a front end has for its answer before others are told.
const PATIENCE: Duration = Duration::from_secs(10);
/// So long telling may take.
const LONGEST: Duration = Duration::from_secs(5);
/// In bytes of the object.
const LARGEST: usize = 64 << 10;
/// In bytes of each other text in it.
const LARGEST_TEXT: usize = 4 << 10;

/// The command that answers a question, by the name that it has there, in the words of a front end. What a form asks for is left
/// out of it if the form has no fields.
pub type AnswerWording = fn(&PendingQuestion, &str) -> String;

/// Tells of the questions of one run.
pub struct Notifier {
    way: NotifyWay,
    content: bool,
    run: String,
    project: String,
    redactor: Redactor,
    notes: Notes,
    wording: Option<AnswerWording>,
    told: Mutex<BTreeSet<String>>,
}

enum NotifyWay {
    Command(Vec<String>),
    Post { client: HttpClient, url: String, headers: Vec<(String, Result<String, String>)> },
}

impl Notifier {
    /// Whoever the user wants to be told of this run's questions.
    pub fn of(settings: &Settings, run: &str, project: &str) -> Result<Option<Self>, LaunchError> {
        let Some(config) = &settings.config.notify else { return Ok(None) };
        let way = match (&config.command, &config.url) {
            (Some(command), _) => NotifyWay::Command(command.clone()),
            (None, Some(url)) => {
                let client = HttpClient::new(http_settings(&settings.variables, &settings.config.http)?);
                let client = client.map_err(|error| LaunchError::usage(error.to_string()))?;
                let value = |source: &HeaderSource| match source {
                    HeaderSource::Text(text) => Ok(text.clone()),
                    HeaderSource::Variable { from_env } => {
                        let value = settings.variables.get(from_env);
                        value.inspect(|value| settings.variables.redactor.learn(value));
                        value.map(str::to_owned).ok_or_else(|| format!("the variable {from_env} is not set"))
                    }
                };
                let headers = config.headers.iter().map(|(name, source)| (name.clone(), value(source))).collect();
                NotifyWay::Post { client, url: url.clone(), headers }
            }
            (None, None) => return Ok(None),
        };
        let (content, redactor) = (config.content, settings.variables.redactor.clone());
        let (run, project, notes) = (run.to_owned(), project.to_owned(), Arc::clone(&settings.notes));
        Ok(Some(Self { way, content, run, project, redactor, notes, wording: None, told: Mutex::default() }))
    }

    /// The same with the words of a front end.
    #[must_use]
    pub fn worded(self, wording: Option<AnswerWording>) -> Self {
        Self { wording, ..self }
    }

    /// A front end has been asked: if it does not answer, others are told.
    pub fn opened(self: &Arc<Self>, question: &OpenQuestion, broker: &QuestionBroker) {
        let (notifier, broker, request) = (Arc::clone(self), broker.clone(), Arc::clone(&question.request));
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            if broker.open().iter().any(|open| open.id() == &request.id) {
                let (id, path, tool) = (request.id.clone(), request.path.clone(), request.tool.clone());
                let (arguments, reason) = (request.arguments.clone(), request.question.reason.clone());
                let (shows, edits, rule) = (Vec::new(), None, None);
                let pending = PendingQuestion {
                    id,
                    path,
                    tool,
                    arguments,
                    reason,
                    preview: None,
                    shows,
                    edits,
                    rule,
                    foreign: None,
                    form: request.question.form.clone(),
                };
                notifier.tell(&pending).await;
            }
        });
    }

    /// A run stands still, since nobody is there: all that it waits for is told at once.
    pub async fn suspended(self: &Arc<Self>, pending: &[PendingQuestion]) {
        let mut telling = JoinSet::new();
        for question in pending {
            let (notifier, question) = (Arc::clone(self), question.clone());
            telling.spawn(async move { notifier.tell(&question).await });
        }
        telling.join_all().await;
    }

    /// Once for each question.
    async fn tell(&self, question: &PendingQuestion) {
        if !self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(question.id.clone()) {
            return;
        }
        let text = self.object(question);
        let sent = tokio::time::timeout(LONGEST, self.send(text)).await;
        let sent = sent.unwrap_or_else(|_| Err(format!("it took longer than {} seconds", LONGEST.as_secs())));
        if let Err(reason) = sent {
            let reason = self.redactor.redacted(reason);
            (self.notes)(&format!("note: nobody was notified of a question: {}\n", visible(&reason)));
        }
    }

    async fn send(&self, text: String) -> Result<(), String> {
        match &self.way {
            NotifyWay::Command(command) => run_command(command, text).await,
            NotifyWay::Post { client, url, headers } => {
                let value = |(name, value): &(String, Result<String, String>)| Ok((name.clone(), value.clone()?));
                let headers = headers.iter().map(value).collect::<Result<Vec<_>, String>>()?;
                match client.post_json(url, &headers, text, 0).await?.0 {
                    200..300 => Ok(()),
                    status => Err(format!("the answer is {status}")),
                }
            }
        }
    }

    /// What is told, in one line.
    fn object(&self, question: &PendingQuestion) -> String {
        let clean = |text: &str| bounded(&self.redactor.redacted(text.to_owned()), LARGEST_TEXT);
        let name = format!("{}/{}", self.run, short_id(&question.id));
        let answer = |question| self.wording.map_or_else(|| name.clone(), |wording| wording(question, &name));
        if !self.content {
            let without = question.form.is_some().then(|| PendingQuestion {
                form: Some(Form { question: String::new(), fields: Vec::new() }),
                ..question.clone()
            });
            let answer = answer(without.as_ref().unwrap_or(question));
            return json!({"run": self.run, "tool": clean(&question.tool), "answer": answer}).to_string();
        }
        let path: Vec<String> = question.path.iter().take(64).map(|name| bounded(&clean(name), 128)).collect();
        let answer = clean(&answer(question));
        let mut object = json!({
            "run": self.run, "project": clean(&self.project), "question": clean(&question.reason), "path": path,
            "tool": clean(&question.tool), "digest": question.id, "answer": answer,
        });
        let arguments = self.redactor.redacted(question.arguments.get().to_owned());
        // What was taken out may have been no text in it.
        object["arguments"] = RawJson::parse(&arguments)
            .ok()
            .and_then(|json| json.to::<Value>().ok())
            .unwrap_or_else(|| Value::String(arguments.clone()));
        let mut most = LARGEST;
        while object.to_string().len() > LARGEST && most > 0 {
            most /= 2;
            object["arguments"] = Value::String(bounded(&arguments, most));
            object["arguments_cut"] = Value::Bool(true);
            object["arguments_bytes"] = json!(arguments.len());
        }
        object.to_string()
    }
}

/// At most so many bytes, with a mark where it was cut.
fn bounded(text: &str, most: usize) -> String {
    if text.len() <= most { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(most)]) }
}

/// What it prints is of no use to a run.
async fn run_command(words: &[String], text: String) -> Result<(), String> {
    let [program, args @ ..] = words else { return Err("the command is empty".to_owned()) };
    let named = |what: String| format!("`{program}` {what}");
    let mut child = Command::new(program)
        .args(args)
        .env_remove(KEY_VARIABLE)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| named(format!("cannot be started: {error}")))?;
    process::give_back(child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)));
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read it may still do what it is for.
        let _ = stdin.write_all(format!("{text}\n").as_bytes()).await;
    }
    let status = child.wait().await.map_err(|error| named(format!("failed: {error}")))?;
    if status.success() { Ok(()) } else { Err(named(format!("ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(content: bool, notes: Notes, way: NotifyWay) -> Arc<Notifier> {
        let (run, project) = ("06gy3k9x7wqe4t2m".to_owned(), "/p/refund".to_owned());
        let redactor = Redactor::default();
        redactor.learn("sk-0123456789abc");
        let wording: Option<AnswerWording> = Some(|_, name| format!("approve {name}"));
        Arc::new(Notifier { way, content, run, project, redactor, notes, wording, told: Mutex::default() })
    }

    fn question(arguments: &str) -> PendingQuestion {
        PendingQuestion {
            id: "48877392a3eb0000".to_owned(),
            path: vec!["main".to_owned()],
            tool: "write_file".to_owned(),
            arguments: RawJson::parse(arguments).unwrap(),
            reason: "changes sk-0123456789abc".to_owned(),
            preview: None,
            shows: Vec::new(),
            edits: None,
            rule: None,
            foreign: None,
            form: None,
        }
    }

    fn told(content: bool, question: &PendingQuestion) -> Value {
        let notifier = notifier(content, Arc::new(|_| {}), NotifyWay::Command(Vec::new()));
        let text = notifier.object(question);
        assert!(text.len() <= LARGEST && !text.contains("sk-0123456789abc"), "{}", text.len());
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_is_told_is_bounded_and_without_keys() {
        let answer = "approve 06gy3k9x7wqe4t2m/48877392a3eb";
        assert_eq!(
            told(true, &question("{\"path\": \"sk-0123456789abc.md\"}")),
            json!({
                "run": "06gy3k9x7wqe4t2m", "project": "/p/refund", "question": "changes [redacted]", "path": ["main"],
                "tool": "write_file", "arguments": {"path": "[redacted].md"}, "digest": "48877392a3eb0000", "answer": answer,
            })
        );
        let bare = told(false, &question("{\"path\": \"a\"}"));
        assert_eq!(bare, json!({"run": "06gy3k9x7wqe4t2m", "tool": "write_file", "answer": answer}));
        for text in ["x".repeat(1 << 20), "\\u0001".repeat(100_000), "ä\\\"".repeat(200_000)] {
            let long = PendingQuestion { reason: text.clone(), ..question(&format!("{{\"a\": \"{text}\"}}")) };
            let cut = told(true, &long);
            assert_eq!(cut["arguments_cut"], true);
            assert!(
                cut["arguments"].as_str().unwrap().len() > 1000
                    && cut["arguments_bytes"].as_u64().unwrap() > LARGEST as u64
            );
        }
    }

    #[tokio::test]
    async fn a_command_reads_it_once_and_its_failure_is_one_line() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("told").display().to_string();
        let heard = Arc::new(Mutex::new(String::new()));
        let hearing = Arc::clone(&heard);
        let notes: Notes = Arc::new(move |note: &str| hearing.lock().unwrap().push_str(note));
        let command = |script: &str| NotifyWay::Command(["sh", "-c", script, &file].map(str::to_owned).to_vec());
        let working = notifier(true, Arc::clone(&notes), command("cat >> \"$0\""));
        working.suspended(&[question("{}"), question("{}")]).await;
        let told = std::fs::read_to_string(&file).unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["tool"], "write_file");
        assert_eq!(*heard.lock().unwrap(), "");
        notifier(true, Arc::clone(&notes), command("exit 3")).suspended(&[question("{}")]).await;
        let words = "note: nobody was notified of a question: `sh` ended with exit status: 3\n";
        assert_eq!(std::mem::take(&mut *heard.lock().unwrap()), words);
        let absent = NotifyWay::Command(vec!["/no/such\u{1b}".to_owned()]);
        notifier(true, notes, absent).suspended(&[question("{}")]).await;
        assert_eq!(heard.lock().unwrap().lines().count(), 1);
    }

    #[test]
    fn mistakes_in_the_configuration_are_named() {
        let check = |text: &str| toml::from_str::<NotifyConfig>(text).map_err(|error| error.to_string())?.check();
        for (text, expected) in [
            ("", "needs a `command` or a `url`"),
            ("command = ['a']\nurl = 'https://a'", "keep one of them"),
            ("command = []", "`command` is empty"),
            ("command = ['a']\nheaders = {a = 'b'}", "`headers` belong to a `url`"),
            ("url = 'http://hooks.example/x'", "https"),
            ("url = 'ftp://hooks.example/x'", "neither http nor https"),
            ("url = 'hooks'", "no scheme"),
            ("url = 'https://a'\nheaders = {a = {from = 'B'}}", "did not match"),
            ("comand = ['a']", "unknown field"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for text in [
            "command = ['a', 'b']\ncontent = false",
            "url = 'https://hooks.example/x'\nheaders = {authorization = {from_env = 'T'}, x = 'y'}",
            "url = 'http://127.0.0.1:80/x'",
            "url = 'http://localhost/x'",
            "url = 'http://[::1]:8080/'",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }
}
