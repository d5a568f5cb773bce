//! Kills at any moment: nothing that was answered is asked again, nothing is lost, and the order is kept.
//!
//! `LLM_DO_MAP_ITEMS` and `LLM_DO_MAP_KILLS` say how many; there are 500 and 20 without them.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Desk, lines};

fn number(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

impl Desk {
    /// How many items have their answer in a record.
    fn recorded(&self) -> usize {
        let Some(id) = self.sandbox.runs().pop() else { return 0 };
        let records = fs::read_dir(self.sandbox.state().join("runs").join(id).join("items")).into_iter().flatten();
        let has_answer = |text: &str| {
            text.lines().any(|line| line.contains("\"kind\":\"model\",\"state\":\"done\"") && line.contains("\"mac\""))
        };
        records.flatten().filter(|entry| has_answer(&fs::read_to_string(entry.path()).unwrap_or_default())).count()
    }
}

#[test]
fn a_map_that_is_killed_goes_on_and_asks_nothing_twice() {
    let (items, kills) = (number("LLM_DO_MAP_ITEMS", 500), number("LLM_DO_MAP_KILLS", 20));
    let desk = Desk::new();
    let text: Vec<String> = (1..=items).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    desk.sandbox.file("items.jsonl", &text.concat());
    let mut deaths = 0;
    loop {
        let id = desk.sandbox.runs().pop();
        let arguments = match &id {
            Some(id) => vec!["resume", id.as_str()],
            None => vec!["map", "triage", "--over", "items.jsonl", "-j", "8", "-o", "out.jsonl"],
        };
        let mut command = desk.sandbox.command(&arguments, &[]);
        command.envs(desk.variables()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        if deaths < kills {
            // Until more is asked than before, so that each death is one at work.
            let before = desk.recorded();
            while desk.recorded() <= before + items / (2 * kills) && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(fastrand::u64(1..20)));
            }
            let _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        let written = fs::read_to_string(desk.sandbox.path().join("out.jsonl")).unwrap_or_default();
        let numbers: Vec<u64> = lines(&written).iter().map(|line| line["item"].as_u64().unwrap()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        let asked = desk.fake.requests().len();
        match output.status.code() {
            None => deaths += 1,
            Some(0) => break,
            Some(code) => panic!("it ended with {code}: {}", String::from_utf8_lossy(&output.stderr)),
        }
        assert!(
            asked <= desk.recorded() + 8 * deaths,
            "only what was under way is asked again: {asked} for {} with {deaths} deaths",
            desk.recorded()
        );
    }
    let expected: Vec<Value> =
        (1..=items).map(|number| json!({"item": number, "output": format!("sorted {{\"n\":{number}}}")})).collect();
    let found = lines(&desk.read("out.jsonl"));
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        let plain = |line: &Value| line["output"].as_str().unwrap().replace([' ', '\n'], "");
        assert_eq!((&found["item"], plain(found)), (&expected["item"], plain(expected)));
    }
    let asked = desk.fake.requests().len();
    println!("{items} items, {deaths} kills, {} asked again that were under way", asked - items);
}
