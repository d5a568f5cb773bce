//! Many turns of one entry in one journal, gone on with in another process.

use tokio_util::sync::CancellationToken;

use super::*;
use llm_do::message::Message;
use llm_do::runtime::{EntryCall, Output, RestoredTurns};

const TALK: &[(&str, &str)] =
    &[("main", "entry: true\ntools: [look, pay]\ntoolsets: [child]"), ("child", "tools: [pay]")];
const TALK_SCRIPT: &str = "
- {agent: child, round: 1, call: {pay: {amount: 1}}, usage: {input: 7, output: 3}}
- {agent: child, say: 'paid', usage: {input: 7, output: 3}}
- {agent: main, tool: child, say: 'it is {{ result }}', usage: {input: 5, output: 2}}
- {agent: main, tool: look, say: '{{ result }}', usage: {input: 5, output: 2}}
- {agent: main, heard: pay, call: [{child: {input: a}}, {pay: {amount: 2}}], usage: {input: 5, output: 2}}
- {agent: main, heard: look, call: {look: {amount: 3}}, usage: {input: 5, output: 2}}
- {agent: main, say: 'round {{ round }}', usage: {input: 5, output: 2}}
";

impl Desk {
    fn runtime(&self, journal: (Arc<dyn Journal>, PriorSpending)) -> (Runtime, Heard) {
        let program = self.project().link(&ModelChoices::default()).unwrap_or_else(|report| panic!("{report}"));
        let config = RuntimeConfig::new(Approvals::unattended());
        let (runtime, heard) = Runtime::with_listener(program, Models::default(), config, Listen::Everything);
        (runtime.identified("the run".to_owned()).recorded_by(journal.0, journal.1), Heard(heard))
    }
}

struct Heard(tokio::sync::mpsc::UnboundedReceiver<Event>);

impl Heard {
    fn facts(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.try_recv().ok()).filter_map(|event| fact(&event)).collect()
    }
}

async fn say(entry: &mut EntryCall<'_>, said: &str) -> String {
    text(entry.turn(said).await)
}

/// How many turns were finished, and what was said in one that was not.
fn turns(restored: RestoredTurns) -> (usize, Option<Vec<Content>>) {
    (restored.finished, restored.unfinished)
}

#[tokio::test]
async fn a_chat_goes_on_where_it_ended_and_nothing_is_asked_again() {
    let desk = Desk::new(TALK_SCRIPT, TALK);
    let (runtime, mut heard) = desk.runtime(desk.create());
    let mut entry = runtime.open_entry().await.unwrap();
    for input in ["pay", "look", "hello"] {
        say(&mut entry, input).await;
    }
    let (facts, history, requests) = (heard.facts(), entry.history().to_vec(), runtime.usage().total.requests);
    drop(entry);
    drop(runtime);
    assert_eq!(desk.effects(), ["look 3", "pay 1", "pay 2"]);
    let before = desk.text();
    // Whatever becomes of the project: what was said stands.
    std::fs::write(desk.files.path().join("main.worker"), worker("main", TALK[0].1) + "Be brief.").unwrap();

    let (runtime, mut heard) = desk.runtime(desk.resume());
    let mut entry = runtime.open_entry().await.unwrap();
    let restored = entry.restore().unwrap();
    let last = restored.last.as_ref().unwrap();
    assert_eq!((last.input.get(), &last.output), ("\"hello\"", &Output::Text("round 5".to_owned())));
    assert_eq!(turns(restored), (3, None));
    assert_eq!((entry.history(), heard.facts()), (&history[..], facts), "the same history and events, in order");
    assert_eq!((runtime.usage().total.requests, desk.effects()), (requests, Vec::new()));
    assert_eq!(say(&mut entry, "hello").await, "round 6");
    drop(entry);
    drop(runtime);
    let after = desk.text();
    assert!(after.starts_with(&before) && after.contains("\"k\":\"main/t3/m0\""), "{after}");
    let (runtime, _heard) = desk.runtime(desk.resume());
    let mut entry = runtime.open_entry().await.unwrap();
    assert_eq!((turns(entry.restore().unwrap()), entry.history().len()), ((4, None), history.len() + 2));
}

#[tokio::test]
async fn a_turn_that_was_cut_off_anywhere_is_finished_or_given_up() {
    let desk = Desk::new(TALK_SCRIPT, TALK);
    let (runtime, _heard) = desk.runtime(desk.create());
    let mut entry = runtime.open_entry().await.unwrap();
    say(&mut entry, "look").await;
    let first = entry.history().len();
    say(&mut entry, "pay").await;
    let history = entry.history().to_vec();
    drop(entry);
    drop(runtime);
    let all = desk.effects();
    let whole = desk.text();
    let turn = whole.lines().position(|line| line.contains("\"k\":\"main/t1/")).unwrap();
    for lines in turn..whole.lines().count() {
        for is_finished in [true, false] {
            desk.cut(&whole, lines);
            let in_doubt = file::read(&desk.journal(), Some(&key())).unwrap().in_doubt().count();
            let (runtime, _heard) = desk.runtime(desk.resume());
            let mut entry = runtime.open_entry().await.unwrap();
            let restored = entry.restore().unwrap();
            assert_eq!((restored.finished, entry.history().len()), (1, first), "after {lines} lines");
            // A message that nothing was built on is not kept.
            assert_eq!(restored.unfinished.is_some(), lines > turn + 1, "after {lines} lines");
            if is_finished && restored.unfinished.is_some() {
                let answer = entry.finish_turn(&CancellationToken::new()).await.unwrap();
                assert!(text(answer).starts_with("it is paid"));
                if in_doubt == 0 {
                    assert_eq!(entry.history(), history, "after {lines} lines");
                }
                assert!(entry.finish_turn(&CancellationToken::new()).await.is_none(), "once");
            } else {
                assert_eq!(say(&mut entry, "hello").await, "round 3");
                assert_eq!(entry.history().len(), first + 2);
            }
            let number = if is_finished || restored.unfinished.is_none() { 1 } else { 2 };
            let is_numbered = format!("\"k\":\"main/t{number}\"");
            drop(entry);
            drop(runtime);
            assert!(desk.text().contains(&is_numbered) || lines == turn + 1, "after {lines} lines: {is_numbered}");
            assert!(desk.effects().len() <= all.len());
            let (runtime, _heard) = desk.runtime(desk.resume());
            let mut entry = runtime.open_entry().await.unwrap();
            assert_eq!(turns(entry.restore().unwrap()), (2, None), "after {lines} lines");
        }
    }
}

#[tokio::test]
async fn a_history_from_elsewhere_is_checked_and_is_the_beginning_of_the_record() {
    let desk = Desk::new(TALK_SCRIPT, TALK);
    let (runtime, _heard) = desk.runtime(desk.create());
    let mut entry = runtime.open_entry().await.unwrap();
    say(&mut entry, "pay").await;
    let history = entry.history().to_vec();
    drop(entry);
    drop(runtime);
    std::fs::remove_file(desk.journal()).unwrap();

    let (runtime, _heard) = desk.runtime(desk.create());
    let refused = runtime.open_entry_with(history[..2].to_vec()).await.err().unwrap();
    let expected =
        "agent `main` cannot go on with the history that was given: the last reply has tool calls without results";
    assert_eq!(refused.to_string(), expected);
    drop(runtime);
    std::fs::remove_file(desk.journal()).unwrap();

    let (runtime, _heard) = desk.runtime(desk.create());
    let mut entry = runtime.open_entry_with(history.clone()).await.unwrap();
    assert_eq!(say(&mut entry, "hello").await, "round 3");
    let all: Vec<Message> = entry.history().to_vec();
    assert_eq!(all[..history.len()], history);
    drop(entry);
    drop(runtime);
    let (runtime, _heard) = desk.runtime(desk.resume());
    let mut entry = runtime.open_entry().await.unwrap();
    assert_eq!((turns(entry.restore().unwrap()), entry.history()), ((1, None), &all[..]));
}
