//! `llm-do runs` and `llm-do costs`, from the outside: listed, shown, followed, cancelled, forked, exported, removed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;

mod followed;
mod forked;
mod listed;
mod moved;
mod removed;
mod shown;

use std::path::PathBuf;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, FakeUsage, SeenRequest};
use serde_json::{Value, json};
use session::Run;
use support::{Ended, Sandbox};

/// A project whose agent writes a file, which asks, and then says what became of it.
struct Desk {
    sandbox: Sandbox,
    fake: FakeLlm,
}

impl Desk {
    fn new() -> Self {
        Self::answering(FakeScript::new().answer(|seen| Some(writes(seen))).accept_foreign_history())
    }

    fn answering(script: FakeScript) -> Self {
        let sandbox = Sandbox::new();
        let worker =
            "---\nname: main\nmodel: anthropic:claude-haiku-4-5\ntoolsets: [filesystem_cwd]\n---\nYou write.\n";
        sandbox.file("desk/main.worker", worker);
        Self { sandbox, fake: FakeLlm::start(script) }
    }

    fn llm_do<'a>(&'a self, arguments: &[&'a str]) -> Run<'a> {
        Run::of(&self.sandbox, arguments).asking(&self.fake)
    }

    /// A run that ends at a question; its id.
    fn waiting(&self) -> String {
        let ended = self.llm_do(&["run", "desk", "write", "-p"]).ended();
        assert_eq!(ended.code, Some(4), "{ended:?}");
        self.last()
    }

    /// A run that has its answer.
    fn done(&self) -> String {
        let ended = self.llm_do(&["run", "desk", "hello", "-p"]).ended();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "You said hello.\n"), "{ended:?}");
        self.last()
    }

    /// The id of the newest run.
    fn last(&self) -> String {
        self.listed(&["--all"])[0]["id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn listed(&self, flags: &[&str]) -> Vec<Value> {
        let ended = self.sandbox.run(&[&["runs", "--json"], flags].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    fn states(&self) -> Vec<String> {
        self.listed(&["--all"]).iter().map(|line| line["state"].as_str().unwrap().to_owned()).collect()
    }

    fn journal(&self, id: &str) -> PathBuf {
        self.sandbox.state().join("runs").join(id).join("journal")
    }

    /// What a command says that must succeed.
    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        let ended = self.llm_do(arguments).ended();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    }

    /// A mistake of whoever typed: two lines on stderr, and nothing has changed.
    #[track_caller]
    fn refuses(&self, arguments: &[&str]) -> String {
        let before = self.listed(&["--all"]);
        let Ended { code, stdout, stderr } = self.llm_do(arguments).ended();
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        assert!(stderr.contains("\nhint: "), "{stderr}");
        assert_eq!(self.listed(&["--all"]), before);
        stderr
    }
}

fn writes(seen: &SeenRequest) -> FakeReply {
    let usage = FakeUsage::new(1000, 100);
    let heard = seen.messages.last().map(fake_llm::SeenMessage::text).unwrap_or_default();
    let reply = match seen.last_result() {
        None if heard == "write" => {
            FakeReply::calls([FakeCall::new("write_file", json!({"path": "a.txt", "content": "new\n"}))])
        }
        None => FakeReply::text(&format!("You said {heard}.")),
        Some(result) => FakeReply::text(&format!("Result: {result}")),
    };
    reply.with_usage(usage)
}
