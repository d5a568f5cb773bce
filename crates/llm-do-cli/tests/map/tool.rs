//! An agent over a list, as a tool of a project: agents and code give it a list, or a tool does, and get one.

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, SeenMessage, SeenRequest};
use serde_json::{Value, json};

use super::{Desk, lines, said};
use crate::support::Sandbox;

const CLERK: &str = "---\nname: clerk\nmodel: anthropic:m\nKEYS---\nSort all.\n";
const KIT: &str = "\
from llm_do.runtime import CallContext, EntrySpec, PromptInput
def listed() -> list:
    '''What there is.'''
    return ['a', 'b', 'c']
TOOLS = [listed]
async def main(args: PromptInput, ctx: CallContext):
    results = await ctx.call('sweep', {'items': args.input.split()} if args.input != 'all' else {})
    return ' '.join(result.get('output', 'none') for result in results)
start = EntrySpec(name='start', main=main)
";

/// A project with a clerk who has an agent over a list: what `map` says of it, what the clerk's file says, who begins.
fn desk(map: &str, keys: &str, entry: &str, reply: impl Fn(&SeenRequest) -> FakeReply + Send + Sync + 'static) -> Desk {
    let sandbox = Sandbox::new().told();
    let manifest = format!(
        r#"{{"version": 1, "entry": {entry}, "worker_files": ["clerk.worker", "triage.worker"], "python_files": ["kit.py"], "toolsets": {{"sweep": {{"map": {map}}}}}}}"#
    );
    sandbox
        .file("project.json", &manifest)
        .file("kit.py", KIT)
        .file("clerk.worker", &CLERK.replace("KEYS", keys))
        .file(
            "triage.worker",
            "---\nname: triage\nmodel: anthropic:m\ntoolsets: [filesystem_project]\n---\nSort one.\n",
        );
    Desk {
        sandbox,
        fake: FakeLlm::start(FakeScript::new().answer(move |seen| Some(reply(seen))).accept_foreign_history()),
    }
}

const BY_AGENT: &str = r#"{"agent": "clerk"}"#;
const SWEEPS: &str = "toolsets: [sweep]\n";

/// The clerk gives the list that it was told to give, and says what came of it.
fn reply(seen: &SeenRequest) -> FakeReply {
    if seen.system.contains("Sort one") {
        // What a tool gave comes as a user's message too.
        return match seen.messages.first().map(SeenMessage::text).unwrap_or_default() {
            item if item.starts_with("write") && seen.last_result().is_none() => {
                FakeReply::calls([FakeCall::new("write_file", json!({"path": item, "content": "x"}))])
            }
            item if item == "refuse" => FakeReply::refusal("I would rather not"),
            item => FakeReply::text(&format!("sorted {item}")),
        };
    }
    match seen.last_result() {
        Some(result) => FakeReply::text(result),
        None => {
            let arguments: Value = serde_json::from_str(&said(seen)).unwrap_or_else(|_| json!({}));
            FakeReply::calls([FakeCall::new("sweep", arguments)])
        }
    }
}

/// How often the model of each item was asked.
fn asked(desk: &Desk, item: &str) -> usize {
    let seen = desk.fake.requests().into_iter().filter_map(|request| request.seen);
    seen.filter(|seen| seen.system.contains("Sort one") && said(seen) == item).count()
}

#[test]
fn an_agent_gives_a_list_and_gets_one_in_its_order() {
    let desk = desk(r#"{"agent": "triage", "parallel": 3}"#, SWEEPS, BY_AGENT, reply);
    let items: Vec<Value> = (1..=20).map(|number| json!(format!("item {number}"))).collect();
    let items = [items, vec![json!("refuse"), json!("item 1"), json!({"b": 1, "a": 2})]].concat();
    let ended = desk.run(&["run", ".", &json!({"items": items}).to_string(), "--trust", "-q"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let results: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(results.len(), 23);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["item"], json!(index + 1));
        match index {
            20 => assert!(result["error"].as_str().unwrap().contains("declined"), "{result}"),
            21 => assert_eq!(result["output"], "sorted item 1", "the same item twice is two items"),
            22 => assert!(result["output"].as_str().unwrap().starts_with("sorted {"), "{result}"),
            _ => assert_eq!(result["output"], format!("sorted item {}", index + 1)),
        }
    }
    assert_eq!((asked(&desk, "item 1"), asked(&desk, "item 7")), (2, 1));
    let shown = desk.run(&["check", ".", "--trust"]).stdout;
    assert!(shown.contains("sweep  allow  (agent triage over a list)"), "{shown}");
    assert!(shown.contains("writes files         clerk → triage → write_file"), "{shown}");
}

#[test]
fn a_list_that_is_too_long_or_none_asks_nobody() {
    let of = |map: &str, said: &str| {
        let desk = desk(map, SWEEPS, BY_AGENT, reply);
        let ended = desk.run(&["run", ".", said, "--trust", "-q"]);
        assert_eq!((ended.code, desk.fake.requests().len()), (Some(0), 2), "{ended:?}");
        ended.stdout
    };
    let few = r#"{"agent": "triage", "max_items": 3}"#;
    let told = of(few, r#"{"items": ["a", "b", "c", "d"]}"#);
    assert!(told.contains("the list has 4 items, and `max_items` of `sweep` is 3; nothing was asked"), "{told}");
    assert!(of(few, "{}").contains("`items` is missing"));
    assert!(of(few, r#"{"items": "a"}"#).contains("`items` is no list"));
    assert!(of(few, r#"{"items": [], "item": 1}"#).contains("takes `items` and nothing else: `item`"));
    assert_eq!(of(few, r#"{"items": []}"#), "[]\n");
}

#[test]
fn a_tool_gives_the_list_and_code_gets_it() {
    let map = r#"{"agent": "triage", "over": "listed"}"#;
    let by_agent = desk(map, "tools: [listed]\ntoolsets: [sweep]\napproval: { listed: allow }\n", BY_AGENT, reply);
    let ended = by_agent.run(&["run", ".", "all", "--trust", "-q"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let results: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((results.len(), &results[2]), (3, &json!({"item": 3, "output": "sorted c"})));
    let by_code = desk(map, "", r#"{"function": "kit.py:start"}"#, reply);
    let ended = by_code.run(&["run", ".", "x y", "--trust", "-q"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "sorted x sorted y\n"), "{}", ended.stderr);
    let ended = by_code.run(&["run", ".", "all", "--trust", "-q", "--approve-all"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "sorted a sorted b sorted c\n"), "{}", ended.stderr);
}

#[test]
fn an_item_that_asks_waits_and_what_was_answered_is_not_asked_again() {
    let desk = desk(r#"{"agent": "triage", "parallel": 2}"#, SWEEPS, BY_AGENT, reply);
    let items = json!({"items": ["a", "write one", "b", "write two", "c"]}).to_string();
    assert_eq!(desk.run(&["run", ".", &items, "--trust"]).code, Some(4));
    let open: Vec<Value> = lines(&desk.sandbox.run_raw(&["inbox", "--json"]).stdout);
    assert_eq!(open.len(), 2, "{open:?}");
    assert!(["a", "b", "c"].iter().all(|item| asked(&desk, item) == 1), "the others went on");
    let ended = desk.run(&["resume", &desk.id(), "--approve-all", "-q"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let results: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((results.len(), &results[3]["output"]), (5, &json!("sorted write two")));
    assert!(["a", "b", "c"].iter().all(|item| asked(&desk, item) == 1), "what was answered is in the record");
    assert!(desk.sandbox.path().join("write one").exists());
}

#[test]
fn a_limit_holds_over_items_and_a_higher_one_goes_on() {
    let desk = desk(r#"{"agent": "triage", "parallel": 3}"#, SWEEPS, BY_AGENT, reply);
    let names: Vec<String> = (0..10).map(|number| format!("item {number}")).collect();
    let items = json!({ "items": names }).to_string();
    let ended = desk.run(&["run", ".", &items, "--trust", "--max-requests", "5"]);
    assert_eq!((ended.code, desk.fake.requests().len()), (Some(5), 5), "{}", ended.stderr);
    let ended = desk.run(&["resume", &desk.id(), "--max-requests", "20", "-q"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(names.iter().all(|item| asked(&desk, item) == 1), "each is asked once");
    assert_eq!(serde_json::from_str::<Vec<Value>>(&ended.stdout).unwrap().len(), 10);
}

#[test]
fn mistakes_about_it_are_told_with_their_places() {
    let cases = [
        (r#"{"agent": "triag"}"#, SWEEPS, "toolset `sweep` is over an agent that is not there: `triag`"),
        (
            r#"{"agent": "triage", "over": "listed"}"#,
            SWEEPS,
            "`sweep` is over `listed`, which agent `clerk` does not have",
        ),
        (r#"{"agent": "triage", "max_items": 0}"#, SWEEPS, "a whole number from 1 to 1000000"),
        (r#"{"over": "listed"}"#, SWEEPS, "`agent`"),
        (r#"{"agent": "triage"}, "use": "sweep""#, SWEEPS, "is several things at once: `map`, `use`"),
        (r#"{"agent": "triage"}, "prefix": "x_""#, SWEEPS, "`prefix` belongs to a toolset with `use`"),
    ];
    for (map, keys, expected) in cases {
        let desk = desk(map, keys, BY_AGENT, reply);
        let ended = desk.run(&["check", ".", "--trust"]);
        assert_eq!(ended.code, Some(2), "{map}: {ended:?}");
        assert!(ended.stderr.contains(expected), "{map}: {}", ended.stderr);
    }
}
