//! `llm-do harden` and `soften` from the outside: recorded agents, an author that says what it is told, and a person at the
//! terminal.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, its helpers too, and tells its counts"
)]

#[path = "../support/session.rs"]
mod session;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/terminal.rs"]
mod terminal;

mod hostile;
mod modes;
mod refused;
mod ten;

use std::collections::BTreeMap;
use std::path::PathBuf;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, SeenRequest};
use serde_json::{Value, json};
use support::{Ended, Sandbox};
use terminal::{Left, Terminal};

/// An agent, what it is right to answer, and code that does so.
pub(crate) struct Recorded {
    pub name: &'static str,
    pub schema_in: &'static str,
    pub schema_out: &'static str,
    pub right: fn(&Value) -> Value,
    pub input: fn(u64) -> Value,
    pub code: &'static str,
}

/// One that tells new things from repairs by a word.
pub(crate) const SORTER: Recorded = Recorded {
    name: "sorter",
    schema_in: "{type: object, properties: {change: {type: string}}, required: [change]}",
    schema_out: "{type: object, properties: {kind: {enum: [new, fixed]}}, required: [kind]}",
    right: |input| {
        let is_fixed = input["change"].as_str().unwrap().to_lowercase().contains("fix");
        json!({"kind": if is_fixed { "fixed" } else { "new" }})
    },
    input: |number| json!({"change": format!("{} {number}", if number % 3 == 0 { "Fix crash" } else { "Add page" })}),
    code: "def sorter(change: str) -> dict:\n    \"\"\"Tell repairs from what is new.\"\"\"\n    \
           return {\"kind\": \"fixed\" if \"fix\" in change.lower() else \"new\"}\n",
};

/// Which answers of an agent are wrong: one of five, by what it is asked.
pub(crate) fn is_wrong(number: u64) -> bool {
    number % 5 == 4
}

/// A project with an agent and a caller of it, and a provider that answers for both and writes code.
pub(crate) struct Shop {
    pub sandbox: Sandbox,
    pub fake: FakeLlm,
}

impl Shop {
    /// Its agent is always right, and the author writes this.
    pub fn with_code(agent: &'static Recorded, code: &str) -> Self {
        Self::new(agent, code, |_| false)
    }

    pub fn new(agent: &'static Recorded, code: &str, is_wrong: fn(u64) -> bool) -> Self {
        let sandbox = Sandbox::new().told();
        let Recorded { name, schema_in, schema_out, .. } = agent;
        let manifest = format!(
            "{{\n  \"version\": 1,\n  \"entry\": {{\"agent\": \"main\"}},\n  \"worker_files\": [\"main.worker\", \"{name}.worker\"]\n}}\n"
        );
        sandbox.file("shop/project.json", &manifest);
        sandbox.file(
            "shop/main.worker",
            &format!("---\nname: main\nmodel: anthropic:m\ntoolsets: [{name}]\n---\nAsk {name}.\n"),
        );
        sandbox.file(
            &format!("shop/{name}.worker"),
            &format!(
                "---\nname: {name}\ndescription: Answers\nmodel: anthropic:m\nschema_in: {schema_in}\nschema_out: {schema_out}\n---\nAnswer as {name}.\n"
            ),
        );
        let (code, numbered) = (code.to_owned(), move |input: &Value| {
            (0..200).find(|number| (agent.input)(*number) == *input).unwrap_or(0)
        });
        let answer = move |seen: &SeenRequest| {
            let said = seen.last_user_text();
            if seen.system.contains("turn the work of a language model into code") {
                return FakeReply::text(&json!({ "code": code }).to_string());
            }
            if seen.system.contains("Ask ") {
                return match seen.last_result() {
                    Some(result) => FakeReply::text(&format!("it says {result}")),
                    None => {
                        let input: Value = serde_json::from_str(&said).unwrap();
                        FakeReply::calls([FakeCall::new(agent.name, input)])
                    }
                };
            }
            let input: Value = serde_json::from_str(&said).unwrap();
            let number = numbered(&input);
            // Wrong is what would be right for another input.
            let other = (1..200).map(agent.input).map(|other| (agent.right)(&other));
            let right = (agent.right)(&input);
            let wrong = || other.into_iter().find(|answer| *answer != right).unwrap();
            FakeReply::text(&if is_wrong(number) { wrong() } else { right.clone() }.to_string())
        };
        let script = FakeScript::new().answer(move |seen| Some(answer(seen))).accept_foreign_history();
        Self { sandbox, fake: FakeLlm::start(script) }
    }

    fn variables(&self) -> [(&'static str, String); 2] {
        [("ANTHROPIC_BASE_URL", self.fake.anthropic_url()), ("ANTHROPIC_API_KEY", "k".to_owned())]
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        let variables = self.variables();
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.sandbox.run_in(arguments, &variables)
    }

    /// The same where nothing is trusted but what somebody has agreed to.
    pub fn command_of_nobody(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.sandbox.command(arguments, &[]);
        command.envs(self.variables()).env_remove("LLM_DO_TRUST");
        command
    }

    pub fn run_by_nobody(&self, arguments: &[&str]) -> Ended {
        let mut command = self.command_of_nobody(arguments);
        support::wait(command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()))
    }

    /// Lets the agent answer so many items, which are kept.
    pub fn record(&self, agent: &Recorded, count: u64) {
        let items: Vec<String> = (0..count).map(|number| (agent.input)(number).to_string()).collect();
        self.sandbox.file("items.jsonl", &(items.join("\n") + "\n"));
        let ended = self.run(&["map", agent.name, "shop", "--over", "items.jsonl", "-j", "4", "-o", "answers.jsonl"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    /// At the terminal, with these keys.
    pub fn at_terminal(&self, arguments: &[&str], keys: &[&str]) -> Left {
        let variables = self.variables();
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let terminal = Terminal::start(self.sandbox.command(arguments, &variables));
        for key in keys {
            terminal.answer(key);
        }
        terminal.left()
    }

    /// The files of the project.
    pub fn files(&self) -> BTreeMap<PathBuf, String> {
        self.sandbox.tree().into_iter().filter(|(path, _)| path.starts_with("shop")).collect()
    }

    /// How many requests the provider has seen.
    pub fn asked(&self) -> usize {
        self.fake.requests().len()
    }

    /// Calls the agent through its caller, without anybody who could answer a question.
    pub fn call(&self, input: &Value) -> Ended {
        self.run(&["shop", &input.to_string(), "-q"])
    }
}

/// `equal on 29 of 30 and on 14 of 15 that it never saw (70 to 99 %)`: the four counts and the interval.
pub(crate) fn figures(text: &str) -> [u64; 6] {
    let line = text.lines().find(|line| line.contains("equal on ")).unwrap_or_else(|| panic!("no figures: {text}"));
    let numbers: Vec<u64> =
        line.split(|character: char| !character.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().unwrap_or_else(|numbers| panic!("{numbers:?}: {line}"))
}
