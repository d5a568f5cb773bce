//! The list of runs, and what they cost.

use std::fs;

use serde_json::json;

use crate::Desk;

#[test]
fn runs_are_listed_with_their_states_and_only_of_this_project() {
    let desk = Desk::new();
    let nothing = desk.sandbox.run(&["runs"]);
    assert_eq!((nothing.stdout.as_str(), nothing.stderr.as_str()), ("", "no run is kept yet\n"));
    assert!(!desk.sandbox.state().exists(), "whoever looks makes nothing");
    desk.waiting();
    let ended = desk.llm_do(&["run", "desk", "hello", "-p", "--label", "nightly\u{1b}[2J"]).ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let chat = desk.llm_do(&["chat", "desk", "-p"]).hearing("one\ntwo\n").ended();
    assert_eq!(chat.code, Some(0), "{chat:?}");
    let table = desk.says(&["runs"]);
    let rows: Vec<Vec<&str>> =
        table.lines().map(|row| row.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect()).collect();
    assert_eq!(rows[0], ["ID", "WHEN", "PROJECT", "ENTRY", "STATE", "COST", "REQ"], "{table}");
    assert_eq!(rows[1][2..], ["desk", "main", "chat, 2 turns", "$0.0030", "2"], "{table}");
    assert_eq!(rows[2][2..], ["desk", "main", "done", "$0.0015", "1"], "{table}");
    assert_eq!(rows[3][2..], ["desk", "main", "waits: write_file", "$0.0015", "1"], "{table}");
    assert!(table.lines().all(|row| row.chars().count() <= 80), "{table}");

    let states = |flags: &[&str]| -> Vec<String> {
        desk.listed(flags).iter().map(|line| line["state"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(states(&["--state", "waits"]), ["waits"]);
    assert_eq!(states(&["-n", "2"]), ["done", "done"]);
    assert_eq!(states(&["--label", "nightly\u{1b}[2J"]), ["done"]);
    assert_eq!(states(&["--since", "1w"]).len(), 3);
    assert_eq!(states(&["--project", "desk"]).len(), 3, "by its path");
    fs::rename(desk.sandbox.path().join("desk"), desk.sandbox.path().join("office")).unwrap();
    assert_eq!(states(&["--project", "desk"]).len(), 3, "by its name, if there is no such path");
    assert!(states(&["--project", "other"]).is_empty());
    desk.sandbox.file("other.worker", "---\nname: other\n---\nHi.\n");
    assert!(states(&[]).is_empty(), "the directory is a project of its own");
    assert_eq!(states(&["--all"]).len(), 3);
    let none = desk.sandbox.run(&["runs"]);
    assert_eq!(none.stderr, "no run of this project is kept; `llm-do runs --all` lists those of all\n");
    let json = desk.sandbox.run(&["runs", "--all", "--json"]).stdout;
    assert!(json.contains(r"nightly\u001b[2J") && !json.contains('\u{1b}'), "{json}");
}

#[test]
fn a_list_that_is_lost_is_made_anew_and_damage_hides_nothing() {
    let desk = Desk::new();
    let (waiting, done) = (desk.waiting(), desk.done());
    let without_times = |mut lines: Vec<serde_json::Value>| {
        for line in &mut lines {
            line["at"] = json!(0);
        }
        lines
    };
    let before = without_times(desk.listed(&["--all"]));
    let index = desk.sandbox.state().join("runs/index");
    let whole = fs::read_to_string(&index).unwrap();
    for spoiled in ["", "nonsense\n", &whole[..whole.len() / 2], &whole.replace("\"index\":1", "\"index\":99")] {
        fs::write(&index, spoiled).unwrap();
        assert_eq!(without_times(desk.listed(&["--all"])), before, "{spoiled}");
    }
    fs::remove_file(&index).unwrap();
    assert_eq!(without_times(desk.listed(&["--all"])), before);

    let journal = fs::read_to_string(desk.journal(&waiting)).unwrap();
    fs::write(desk.journal(&waiting), journal.replace("a.txt", "b.txt")).unwrap();
    fs::remove_file(&index).unwrap();
    let ended = desk.sandbox.run(&["runs"]);
    assert!(ended.stdout.contains("damaged") && ended.stdout.contains(&done), "{ended:?}");
    assert!(ended.stderr.starts_with("note: the run RUN cannot be read: "), "{ended:?}");
    for command in ["show", "follow", "export", "fork", "cancel"] {
        let said = desk.refuses(&["runs", command, &waiting]);
        assert!(said.starts_with("error: the run `RUN` cannot be read: "), "{command}: {said}");
    }
    fs::write(desk.journal(&waiting), journal).unwrap();
    assert_eq!(without_times(desk.listed(&["--all", "--state", "waits"]))[0]["id"], waiting, "it is whole again");
}

#[test]
fn an_id_is_any_unique_beginning() {
    let desk = Desk::new();
    let (one, other) = (desk.done(), desk.done());
    let common: String = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let said = desk.refuses(&["runs", "show", &common]);
    assert!(said.contains("is the beginning of 2 ids") && said.ends_with(": RUN, RUN\n"), "{said}");
    assert!(desk.says(&["runs", "show", &one[..=common.len()]]).starts_with(&format!("run {one} ")));
    assert!(desk.refuses(&["runs", "show", "zzzzzz"]).starts_with("error: there is no run `zzzzzz`\n"));
    assert!(desk.refuses(&["runs", "show", "06"]).contains("too short"));
    assert!(desk.refuses(&["runs", "rm", &one, "../../key"]).contains("there is no run"));
}

#[test]
fn costs_are_summed_up_and_outlive_their_runs() {
    let desk = Desk::new();
    let none = desk.sandbox.run(&["costs"]);
    assert_eq!((none.code, none.stderr.as_str()), (Some(0), "nothing was spent in this time\n"));
    let run = desk.waiting();
    desk.llm_do(&["run", "desk", "hello", "-p", "--ephemeral"]).ended();
    desk.says(&["runs", "rm", &run, "--force"]);
    let table = desk.says(&["costs", "--by", "model"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["MODEL", "RUNS", "IN", "OUT", "COST"]);
    assert_eq!(rows[1], ["anthropic:claude-haiku-4-5", "2", "2000", "200", "$0.0030"], "{table}");
    assert_eq!(rows[2], ["total", "2000", "200", "$0.0030"]);
    let sums =
        |by: &str| -> serde_json::Value { serde_json::from_str(&desk.says(&["costs", "--json", "--by", by])).unwrap() };
    assert_eq!(sums("agent")["agent"], "main");
    assert_eq!(
        sums("entry"),
        json!({"entry": "main", "runs": 2, "in": 2000, "out": 200, "usd": 0.003, "unpriced_tokens": 0})
    );
    assert!(sums("project")["project"].as_str().unwrap().ends_with("/desk"));
    assert_eq!(desk.says(&["costs", "--since", "1h"]).lines().count(), 3);
}

#[test]
fn a_run_whose_process_was_killed_died_and_what_it_cost_is_counted() {
    let desk = Desk::new();
    let run = desk.done();
    // As if its process had been killed before it could say anything of its end.
    let index = desk.sandbox.state().join("runs/index");
    let lines = fs::read_to_string(&index).unwrap();
    let kept: Vec<&str> = lines.lines().filter(|line| !line.contains("\"done\"")).collect();
    fs::write(&index, kept.join("\n") + "\n").unwrap();
    let journal = fs::read_to_string(desk.journal(&run)).unwrap();
    let beginning: Vec<&str> = journal.lines().take_while(|line| !line.contains("\"k\":\"main/t0\"")).collect();
    fs::write(desk.journal(&run), beginning.join("\n") + "\n").unwrap();
    fs::remove_dir_all(desk.sandbox.state().join("costs")).unwrap();
    let listed = desk.listed(&["--all"]);
    assert_eq!(
        (&listed[0]["state"], &listed[0]["cost"], &listed[0]["requests"]),
        (&json!("died"), &json!(0.0015), &json!(1))
    );
    let costs: serde_json::Value = serde_json::from_str(&desk.says(&["costs", "--json"])).unwrap();
    assert_eq!(costs["usd"], 0.0015);
    assert!(desk.says(&["runs", "show", &run]).ends_with(&format!("llm-do resume {run}\n  llm-do runs fork {run}\n")));
}
