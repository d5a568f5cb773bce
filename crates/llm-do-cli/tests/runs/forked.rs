//! New runs out of what others have recorded.

use serde_json::Value;

use crate::Desk;

impl Desk {
    #[track_caller]
    fn fork(&self, arguments: &[&str]) -> (String, String) {
        let ended = self.llm_do(&[&["runs", "fork"], arguments, &["-p"]].concat()).ended();
        assert!(ended.stderr.contains("files and the outside world are not rewound\n"), "{ended:?}");
        (self.last(), ended.stdout)
    }

    fn shown(&self, id: &str) -> Value {
        serde_json::from_str(&self.says(&["runs", "show", id, "--json", "--messages"])).unwrap()
    }
}

#[test]
fn a_fork_answers_from_the_old_record_and_pays_only_for_itself() {
    let desk = Desk::new();
    let run = desk.waiting();
    desk.llm_do(&["resume", &run, "-p", "--approve-all"]).ended();
    assert_eq!(desk.fake.requests().len(), 2);
    let (fork, answer) = desk.fork(&[&run, "--at", "main/t0/m1"]);
    assert!(answer.starts_with("Result: "), "{answer}");
    assert_eq!(desk.fake.requests().len(), 3, "one request was taken over");
    let shown = desk.shown(&fork);
    assert_eq!((&shown["forked"]["run"], &shown["forked"]["at"]), (&run.clone().into(), &"main/t0/m1".into()));
    assert_eq!((&shown["requests"], &shown["cost"]), (&1.into(), &0.0015.into()), "{shown}");
    assert_eq!(shown["messages"], desk.shown(&run)["messages"]);
    let listed = desk.listed(&["--all"]);
    assert_eq!((&listed[0]["id"], &listed[0]["requests"]), (&fork.into(), &1.into()));
    let costs: Value = serde_json::from_str(&desk.says(&["costs", "--json"])).unwrap();
    assert_eq!((&costs["in"], &costs["usd"]), (&3000.into(), &0.0045.into()), "nothing is paid twice");
}

#[test]
fn a_fork_may_be_told_something_else() {
    let desk = Desk::new();
    let run = desk.done();
    let (_, answer) = desk.fork(&[&run, "good night"]);
    assert_eq!(answer, "You said good night.\n");
    let (_, answer) = desk.fork(&[&run]);
    assert_eq!(answer, "You said hello.\n", "the whole run once more");
    let chat = desk.llm_do(&["chat", "desk", "-p"]).hearing("one\ntwo\nthree\n").ended();
    assert_eq!(chat.code, Some(0), "{chat:?}");
    let chat = desk.last();
    let (fork, answer) = desk.fork(&[&chat, "--turn", "2", "zwei"]);
    assert_eq!(answer, "You said zwei.\n");
    let texts = |id: &str| -> Vec<String> {
        let shown = desk.shown(id);
        let messages = shown["messages"].as_array().unwrap().iter();
        messages
            .filter(|it| it["role"] == "user")
            .map(|it| it["parts"][0]["text"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(texts(&fork), ["one", "zwei"]);
    let (fork, answer) = desk.fork(&[&chat, "four"]);
    assert_eq!(
        (answer.as_str(), texts(&fork)),
        ("You said four.\n", ["one", "two", "three", "four"].map(str::to_owned).to_vec())
    );
    let (fork, answer) = desk.fork(&[&chat, "--turn", "3"]);
    assert_eq!((answer.as_str(), texts(&fork).len()), ("You said three.\n", 3), "what was said then is said again");
    assert_eq!(texts(&chat), ["one", "two", "three"], "the old one stays as it was");
}

#[test]
fn what_cannot_be_forked_is_said_and_nothing_is_made() {
    let desk = Desk::new();
    let run = desk.waiting();
    desk.llm_do(&["resume", &run, "-p", "--approve-all"]).ended();
    let said = desk.refuses(&["runs", "fork", &run, "--at", "main/t7"]);
    assert!(said.starts_with("error: nothing is recorded at `main/t7`\n"), "{said}");
    let said = desk.refuses(&["runs", "fork", &run, "--at", "main/t0/m1", "something else"]);
    assert!(said.starts_with("error: `main/t0/m1` stands within a turn"), "{said}");
    let said = desk.refuses(&["runs", "fork", &run, "--turn", "5"]);
    assert!(said.starts_with("error: the run has no turn 5\nhint: it has 1\n"), "{said}");
}
