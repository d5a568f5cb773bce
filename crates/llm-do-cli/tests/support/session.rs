//! One run of an agent: what the program is given, and what comes out of it.

#![allow(dead_code, reason = "every test program uses a part of it")]

use std::io::{Seek as _, Write as _};
use std::process::Stdio;

use fake_llm::FakeLlm;
use serde_json::Value;

use crate::support::{Ended, Sandbox, wait};

/// The key of every provider. It must never be seen in what the program prints.
pub const KEY: &str = "sk-test-5f0c7a91e2";

pub struct Run<'a> {
    sandbox: &'a Sandbox,
    arguments: Vec<&'a str>,
    variables: Vec<(&'a str, String)>,
    stdin: Option<&'a [u8]>,
}

impl<'a> Run<'a> {
    /// `llm-do …`
    pub fn of(sandbox: &'a Sandbox, arguments: &[&'a str]) -> Self {
        Self { sandbox, arguments: arguments.to_vec(), variables: Vec::new(), stdin: None }
    }

    /// `llm-do run …`
    pub fn new(sandbox: &'a Sandbox, arguments: &[&'a str]) -> Self {
        Self::of(sandbox, &[&["run"], arguments].concat())
    }

    pub fn with(mut self, variable: &'a str, value: impl Into<String>) -> Self {
        self.variables.push((variable, value.into()));
        self
    }

    /// Every provider is this one, and has a key.
    pub fn asking(self, fake: &FakeLlm) -> Self {
        self.with("ANTHROPIC_BASE_URL", fake.anthropic_url())
            .with("OPENAI_BASE_URL", fake.openai_url())
            .with("GOOGLE_BASE_URL", fake.gemini_url())
            .with("GOOGLE_VERTEX_BASE_URL", fake.vertex_url())
            .with("ANTHROPIC_API_KEY", KEY)
            .with("OPENAI_API_KEY", KEY)
            .with("GEMINI_API_KEY", KEY)
            .with("GOOGLE_OAUTH_ACCESS_TOKEN", KEY)
    }

    pub fn hearing(mut self, stdin: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.stdin = Some(stdin.as_ref());
        self
    }

    /// Runs it. No run may show a key.
    pub fn ended(self) -> Ended {
        let variables: Vec<(&str, &str)> = self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut command = self.sandbox.command(&self.arguments, &variables);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(bytes) = self.stdin {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.rewind().unwrap();
            command.stdin(file);
        }
        let ended = wait(&mut command);
        assert!(!ended.stdout.contains(KEY) && !ended.stderr.contains(KEY), "a key is shown: {ended:?}");
        ended
    }

    /// A run that must succeed without a word beside its answer.
    #[track_caller]
    pub fn answer(self) -> String {
        let Ended { code, stdout, stderr } = self.ended();
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
        stdout
    }

    /// A run that must fail with nothing on stdout; what it says.
    #[track_caller]
    pub fn failure(self, code: i32) -> String {
        let ended = self.ended();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{}", ended.stderr);
        ended.stderr
    }

    /// The events of a run with `--json`, and its result.
    #[track_caller]
    pub fn events(self) -> (Vec<Value>, Value) {
        let ended = self.ended();
        let mut events: Vec<Value> =
            ended.stdout.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
        assert!(ended.stdout.ends_with('\n'), "{ended:?}");
        let result = events.pop().expect("there is a result");
        assert_eq!(result["exit_code"], Value::from(ended.code), "{}", ended.stderr);
        check_result(&result);
        (events, result)
    }
}

/// Every result has every field.
#[track_caller]
pub fn check_result(result: &Value) {
    let keys: Vec<&String> = result.as_object().expect("a result is an object").keys().collect();
    let all = [
        "error",
        "exit_code",
        "files",
        "finish",
        "messages",
        "output",
        "pending",
        "refused",
        "run",
        "trace",
        "type",
        "usage",
    ];
    assert_eq!(keys, all, "{result}");
    assert_eq!(result["type"], "result");
    assert!(result["usage"]["total"]["requests"].is_u64() && result["usage"]["by_model"].is_object(), "{result}");
    let failed = result["exit_code"] != 0;
    assert_eq!(failed, result["error"]["message"].is_string(), "{result}");
}

/// The events of one type.
pub fn of_type<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == name).collect()
}
