//! `--once KEY`: however many start, there is one run.

use std::fs;
use std::process::{Child, Stdio};

use fake_llm::{FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use serde_json::Value;

use crate::session::{KEY, Run};
use crate::support::{Sandbox, wait_for_end};

/// So many schedulers start at once.
const STARTED: usize = 100;

/// The provider answers only when all of them have been started: none comes too late to meet the others.
#[test]
fn a_hundred_that_start_with_one_key_are_one_run() {
    let (sandbox, gate) = (Sandbox::new(), StallGate::new());
    sandbox.file("main.worker", "---\nname: main\nmodel: anthropic:m\n---\nx\n");
    let script = FakeScript::new().otherwise(FakeReply::text("the report"));
    let fake = FakeLlm::start(script.fault(On::Every, InjectedFault::StallBeforeHead(gate.clone())));
    let url = fake.anthropic_url();
    let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)];
    let started = |number: usize| -> Child {
        let arguments = ["run", "main.worker", "report", "--once", "nightly", "-p"];
        let mut command = sandbox.command(&arguments, &variables);
        let printed = fs::File::create(sandbox.path().join(format!("printed-{number}"))).unwrap();
        command.stdout(printed).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut children: Vec<Child> = (0..STARTED).map(started).collect();
    gate.wait_until_reached(1);
    gate.release();
    for (number, child) in children.iter_mut().enumerate() {
        assert_eq!(wait_for_end(child), Some(0), "{number}");
        let printed = fs::read_to_string(sandbox.path().join(format!("printed-{number}"))).unwrap();
        assert_eq!(printed, "the report\n", "{number}");
    }
    assert_eq!(fake.requests().len(), 1);
    let listed = Run::of(&sandbox, &["runs", "--all", "--json"]).ended().stdout;
    let states: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone()).collect();
    assert_eq!(states, ["done"]);
    assert_eq!(sandbox.runs().len(), 1, "who lost has removed what was his");
    let other = Run::new(&sandbox, &["main.worker", "another report", "--once", "nightly", "-p"]).asking(&fake);
    assert!(other.failure(2).contains("belongs to the run RUN, to which something else was said"));
}
