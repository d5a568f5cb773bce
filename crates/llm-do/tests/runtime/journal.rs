//! Runs that survive: cut off after any record, resumed, suspended at a question, replayed.

mod chat;
mod fork;
mod judged;
mod size;
mod tampered;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use llm_do::event::{Event, EventKind, Listen, TraceCall};
use llm_do::journal::file::{self, FileJournal, Matching, OpenJournal};
use llm_do::journal::mac::StateKey;
use llm_do::journal::{Journal, StepKind, Stop};
use llm_do::message::{Content, RawJson};
use llm_do::model::name::ModelChoices;
use llm_do::project::{Limits, Project};
use llm_do::runtime::record::{self, PriorSpending};
use llm_do::runtime::{Models, Outcome, RunError, Runtime, RuntimeConfig};
use llm_do::tools::approval::{Answer, Approvals, Rule};
use llm_do::tools::function::{FunctionEntry, Tool};
use llm_do::tools::plane::Refusals;
use llm_do::tools::{CallContext, Ending, ToolError};
use serde_json::{Value, json};

use super::support::{Files, person, text, worker};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Topic {
    #[expect(dead_code, reason = "an input needs a field")]
    topic: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Amount {
    amount: u64,
}

/// A project with effects that are counted, and its journal.
struct Desk {
    files: Files,
    effects: Arc<Mutex<Vec<String>>>,
}

fn key() -> StateKey {
    StateKey::from_bytes([3; 32])
}

impl Desk {
    fn new(script: &str, agents: &[(&str, &str)]) -> Self {
        let workers: Vec<(String, String)> =
            agents.iter().map(|(name, keys)| (format!("{name}.worker"), worker(name, keys))).collect();
        let mut files: Vec<(&str, &str)> = workers.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        files.push(("script.yaml", script));
        Self { files: Files::new(&files), effects: Arc::default() }
    }

    fn journal(&self) -> PathBuf {
        self.files.path().join("run.journal")
    }

    /// `look` may be repeated, `pay` may not, `pay_by_code` calls `pay` and an agent.
    fn project(&self) -> Project {
        let log = |name: &'static str| {
            let effects = Arc::clone(&self.effects);
            move |amount: Amount| {
                effects.lock().unwrap().push(format!("{name} {}", amount.amount));
                async move { Ok::<_, String>(format!("{name}: {}", amount.amount)) }
            }
        };
        self.files
            .project()
            .tool(Tool::new(log("look")).named("look").repeatable().verdict(Rule::Allow))
            .tool(Tool::new(log("pay")).named("pay").verdict(Rule::Allow))
            .tool(Tool::new(log("charge")).named("charge"))
    }

    fn effects(&self) -> Vec<String> {
        let mut effects = std::mem::take(&mut *self.effects.lock().unwrap());
        effects.sort();
        effects
    }

    fn create(&self) -> (Arc<dyn Journal>, PriorSpending) {
        (Arc::new(FileJournal::create(self.journal(), &"header", Some(&key())).unwrap()), PriorSpending::default())
    }

    fn resume(&self) -> (Arc<dyn Journal>, PriorSpending) {
        let open = OpenJournal::open(&self.journal(), Some(&key())).unwrap();
        let resumed = PriorSpending::from(open.contents());
        (Arc::new(open.resume(Matching::Exact, None).unwrap()), resumed)
    }

    fn replay(&self) -> (Arc<dyn Journal>, PriorSpending) {
        (Arc::new(FileJournal::replaying(file::read(&self.journal(), Some(&key())).unwrap())), PriorSpending::default())
    }

    async fn run(&self, journal: (Arc<dyn Journal>, PriorSpending)) -> Ran {
        self.run_with(self.project(), RuntimeConfig::new(Approvals::unattended()), journal).await
    }

    async fn run_with(
        &self,
        project: Project,
        config: RuntimeConfig,
        journal: (Arc<dyn Journal>, PriorSpending),
    ) -> Ran {
        let program = project.link(&ModelChoices::default()).unwrap_or_else(|report| panic!("{report}"));
        let (runtime, mut listener) = Runtime::with_listener(program, Models::default(), config, Listen::Everything);
        let runtime = runtime.identified("the run".to_owned()).recorded_by(journal.0, journal.1);
        let outcome = runtime.run("go").await;
        let (requests, trace) = (runtime.usage().total.requests, runtime.trace());
        drop(runtime);
        let events = std::iter::from_fn(|| listener.try_recv().ok()).collect();
        Ran { outcome, requests, trace, events }
    }

    /// Leaves the journal as a crash would have: the first lines, and a part of the next.
    fn cut(&self, whole: &str, lines: usize) {
        let end: usize = whole.split_inclusive('\n').take(lines).map(str::len).sum();
        let torn = whole[end..].lines().next().unwrap_or_default().len() / 2;
        std::fs::write(self.journal(), &whole[..end + torn]).unwrap();
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.journal()).unwrap()
    }
}

struct Ran {
    outcome: Result<Outcome, RunError>,
    requests: u64,
    trace: Vec<Arc<TraceCall>>,
    events: Vec<Event>,
}

impl Ran {
    fn said(self) -> String {
        text(self.outcome.map(|outcome| outcome.output))
    }

    /// Facts, without ids and durations; sorted, since parallel agents tell in any order.
    fn facts(&self) -> Vec<String> {
        let mut facts = self.ordered_facts();
        facts.sort();
        facts
    }

    fn ordered_facts(&self) -> Vec<String> {
        self.events.iter().filter_map(fact).collect()
    }

    fn shape(&self) -> Value {
        shape(&self.trace)
    }
}

fn fact(event: &Event) -> Option<String> {
    if matches!(event.kind, EventKind::TextDelta { .. } | EventKind::ThinkingDelta { .. }) {
        return None;
    }
    let mut json: Value = serde_json::to_value(event).unwrap();
    for name in ["call", "parent", "duration_ms"] {
        json.as_object_mut().unwrap().remove(name);
    }
    Some(json.to_string())
}

fn shape(trace: &[Arc<TraceCall>]) -> Value {
    json!(trace.iter().map(|call| timeless(call)).collect::<Vec<_>>())
}

/// A trace without durations; calls that ran together in one order.
fn timeless(call: &TraceCall) -> Value {
    let mut calls: Vec<Value> = call.calls.iter().map(timeless).collect();
    calls.sort_by_key(Value::to_string);
    json!([call.name, call.depth, call.input, call.output, call.error, call.usage, calls])
}

const TEAM: &[(&str, &str)] =
    &[("main", "entry: true\ntools: [look, pay]\ntoolsets: [child]"), ("child", "tools: [look, pay]")];

/// Two rounds of tools and agents at once, each child with two rounds of its own.
const TEAM_SCRIPT: &str = "
- {agent: child, round: 1, call: [{look: {amount: 1}}, {pay: {amount: 1}}], usage: {input: 7, output: 3}}
- {agent: child, round: 2, call: {pay: {amount: 2}}, usage: {input: 7, output: 3}}
- {agent: child, say: 'child {{ heard }}', usage: {input: 7, output: 3}}
- {agent: main, round: 1, call: [{child: {input: a}}, {pay: {amount: 9}}, {child: {input: b}}], usage: {input: 5, output: 2}}
- {agent: main, round: 2, call: [{look: {amount: 8}}, {nothing: {}}], usage: {input: 5, output: 2}}
- {agent: main, say: 'main {{ round }}', usage: {input: 5, output: 2}}
";

#[tokio::test]
async fn a_run_that_was_cut_off_after_any_record_ends_as_if_it_had_not_been() {
    let desk = Desk::new(TEAM_SCRIPT, TEAM);
    let whole_run = desk.run(desk.create()).await;
    let (facts, shape, requests) = (whole_run.facts(), whole_run.shape(), whole_run.requests);
    assert_eq!((whole_run.said().as_str(), requests), ("main 3", 9));
    let (all_effects, whole) = (desk.effects(), desk.text());
    assert_eq!(all_effects.len(), 8);
    let done = |text: &str, kind: &str| {
        let is_done = |line: &&str| line.contains(&format!("\"kind\":\"{kind}\",\"state\":\"done\""));
        text.lines().filter(is_done).filter(|line| !line.contains("\"refused\"")).count()
    };
    for lines in 1..whole.lines().count() {
        desk.cut(&whole, lines);
        let before = file::read(&desk.journal(), Some(&key())).unwrap();
        let in_doubt = before.in_doubt().count();
        let resumed = desk.run(desk.resume()).await;
        let is_reported = |fact: &&String| fact.contains("\"error\":\"interrupted: it may or may not have happened\"");
        assert_eq!(resumed.facts().iter().filter(is_reported).count(), in_doubt, "each one in doubt is reported");
        if in_doubt == 0 {
            assert_eq!(resumed.shape(), shape, "after {lines} lines");
            assert_eq!(resumed.facts(), facts, "after {lines} lines");
        }
        assert_eq!(resumed.requests, requests, "usage is that of the whole run");
        let kept: String = whole.split_inclusive('\n').take(lines).collect();
        let (now, begun) = (desk.effects(), done(&kept, "tool") + in_doubt);
        assert_eq!(now.len() + begun, all_effects.len(), "what was done or may have been is not done again: {now:?}");
        assert_eq!(done(&desk.text(), "model"), 9, "no finished request was repeated");
        assert_eq!(resumed.said(), "main 3");
    }
}

#[tokio::test]
async fn a_finished_run_gives_its_answer_again_from_its_journal_alone() {
    let desk = Desk::new(TEAM_SCRIPT, TEAM);
    let whole_run = desk.run(desk.create()).await;
    let (whole_shape, requests) = (whole_run.shape(), whole_run.requests);
    let messages = whole_run.outcome.as_ref().unwrap().messages.clone();
    desk.effects();
    let recorded = record::outcome(&file::read(&desk.journal(), Some(&key())).unwrap()).unwrap();
    assert_eq!((recorded.usage.total.requests, &recorded.messages), (requests, &messages));
    assert_eq!(shape(&recorded.trace), whole_shape);
    let again = desk.run(desk.resume()).await;
    assert_eq!((again.requests, again.shape()), (requests, whole_shape));
    assert_eq!(again.ordered_facts(), whole_run.ordered_facts(), "in the order in which it happened");
    assert_eq!(again.outcome.as_ref().unwrap().messages, messages);
    assert_eq!((again.said(), desk.effects()), ("main 3".to_owned(), Vec::new()));
    desk.cut(&desk.text(), 5);
    assert!(record::outcome(&file::read(&desk.journal(), Some(&key())).unwrap()).is_none());
}

#[tokio::test]
async fn a_limit_holds_for_the_whole_run_and_a_higher_one_lets_it_go_on() {
    let desk = Desk::new(TEAM_SCRIPT, TEAM);
    let config = |max_requests, max_tool_calls| RuntimeConfig {
        limits: Limits { max_requests: Some(max_requests), max_tool_calls, ..Limits::default() },
        ..RuntimeConfig::new(Approvals::unattended())
    };
    let mut journal = desk.create();
    for (allowed, as_shown) in [(2, 2.0), (4, 4.0), (7, 7.0)] {
        for _ in 0..2 {
            let stopped = desk.run_with(desk.project(), config(allowed, None), journal).await;
            let Err(RunError::Ended(Ending::Limit { used, .. })) = &stopped.outcome else { panic!("it stops") };
            assert_eq!((stopped.requests, *used), (allowed, as_shown), "those of earlier processes count");
            journal = desk.resume();
        }
    }
    let tools = desk.run_with(desk.project(), config(9, Some(10)), journal).await;
    let Err(RunError::Ended(Ending::Limit { limit, used, .. })) = &tools.outcome else { panic!("it stops") };
    assert_eq!((limit.as_str(), *used), ("max_tool_calls", 9.0));
    let done = desk.run_with(desk.project(), config(9, Some(11)), desk.resume()).await;
    assert_eq!((done.requests, done.said()), (9, "main 3".to_owned()));
    assert_eq!(desk.effects().len(), 8);
}

const ASKING: &[(&str, &str)] = &[("main", "entry: true\ntoolsets: [child]"), ("child", "tools: [look, charge]")];
const ASKING_SCRIPT: &str = "
- {agent: child, round: 1, call: [{look: {amount: 1}}, {charge: {amount: 2}}]}
- {agent: child, say: '{{ result }}'}
- {agent: main, round: 1, call: [{child: {input: a}}, {child: {input: b}}]}
- {agent: main, say: '{{ result }}'}
";

#[tokio::test]
async fn a_question_that_nobody_answers_suspends_the_run_until_somebody_does() {
    let desk = Desk::new(ASKING_SCRIPT, ASKING);
    let config = || RuntimeConfig { refusals: Refusals::Return, ..RuntimeConfig::new(Approvals::unattended()) };
    let suspended = desk.run_with(desk.project(), config(), desk.create()).await;
    let Err(RunError::Ended(Ending::NeedsApproval(pending))) = &suspended.outcome else { panic!("it waits") };
    assert_eq!((pending.len(), desk.effects()), (2, Vec::new()), "both children wait, and nothing has run");
    assert_ne!(pending[0].id, pending[1].id);
    let waiting = file::read(&desk.journal(), Some(&key())).unwrap();
    assert_eq!(waiting.waiting().count(), 2);
    let again = desk.run_with(desk.project(), config(), desk.resume()).await;
    let Err(RunError::Ended(Ending::NeedsApproval(same))) = &again.outcome else { panic!("it waits") };
    assert_eq!((same, again.requests), (pending, 3), "the same questions, and no request");

    let (approvals, asked) = person(Answer::ToolForSession);
    let done = desk.run_with(desk.project(), RuntimeConfig::new(approvals), desk.resume()).await;
    assert_eq!((done.requests, done.said()), (6, ["look: 1\ncharge: 2"; 2].join("\n")));
    assert_eq!(asked.lock().unwrap().len(), 1, "the second one was remembered");
    assert_eq!(desk.effects(), ["charge 2", "charge 2", "look 1", "look 1"]);
}

#[tokio::test]
async fn an_answer_that_was_given_counts_but_is_not_remembered_in_another_process() {
    let script = "- {round: 1, call: {charge: {amount: 1}}}\n- {round: 2, call: {charge: {amount: 1}}}\n- say: done";
    let desk = Desk::new(script, &[("main", "tools: [charge]")]);
    let (approvals, asked) = person(Answer::CallForSession);
    let whole = desk.run_with(desk.project(), RuntimeConfig::new(approvals), desk.create()).await;
    assert_eq!((asked.lock().unwrap().len(), whole.said()), (1, "done".to_owned()));
    let text = desk.text();
    let answered = text.lines().position(|line| line.contains("\"kind\":\"ask\",\"state\":\"done\"")).unwrap();
    desk.effects();
    desk.cut(&text, answered + 1);
    let suspended = desk.run(desk.resume()).await;
    assert!(matches!(suspended.outcome, Err(RunError::Ended(Ending::NeedsApproval(_)))), "the second one asks again");
    assert_eq!(desk.effects(), ["charge 1"], "the first one was answered");
}

#[tokio::test]
async fn what_is_blocked_today_is_not_done_because_it_was_allowed_yesterday() {
    let script = "- {round: 1, call: {charge: {amount: 1}}}\n- say: '{{ result }}'";
    let desk = Desk::new(script, &[("main", "tools: [charge]")]);
    let (approvals, _) = person(Answer::Once);
    desk.run_with(desk.project(), RuntimeConfig::new(approvals), desk.create()).await.said();
    let text = desk.text();
    let answered = text.lines().position(|line| line.contains("\"kind\":\"ask\",\"state\":\"done\"")).unwrap();
    desk.cut(&text, answered + 1);
    desk.effects();
    std::fs::write(desk.files.path().join("main.worker"), worker("main", "tools: [charge]\napproval: {charge: block}"))
        .unwrap();
    let config = RuntimeConfig { refusals: Refusals::Return, ..RuntimeConfig::new(Approvals::approve_all()) };
    let refused = desk.run_with(desk.project(), config, desk.resume()).await;
    assert_eq!(
        (refused.said().as_str(), desk.effects()),
        ("error: refused: blocked by `charge: block` in main.worker", vec![])
    );
}

#[tokio::test]
async fn whatever_was_allowed_yesterday_and_not_done_is_refused_today() {
    let desk = Desk::new(ASKING_SCRIPT, ASKING);
    desk.run_with(desk.project(), RuntimeConfig::new(Approvals::approve_all()), desk.create()).await.said();
    assert_eq!(desk.effects().len(), 4);
    let whole = desk.text();
    for lines in 1..whole.lines().count() {
        desk.cut(&whole, lines);
        let config = RuntimeConfig { refusals: Refusals::Return, ..RuntimeConfig::new(Approvals::reject_all()) };
        desk.run_with(desk.project(), config, desk.resume()).await.said();
        let effects = desk.effects();
        assert!(!effects.iter().any(|effect| effect.starts_with("charge")), "after {lines} lines: {effects:?}");
        desk.cut(&whole, lines);
        drop(desk.run(desk.resume()).await);
        assert!(!desk.effects().iter().any(|effect| effect.starts_with("charge")), "after {lines} lines");
    }
}

#[tokio::test]
async fn what_a_person_changed_the_arguments_to_counts_also_later_and_is_judged_again() {
    let script = "- {round: 1, call: {charge: {amount: 1}}}\n- say: '{{ result }}'";
    let desk = Desk::new(script, &[("main", "tools: [charge]")]);
    let (approvals, _) = person(Answer::Edited(RawJson::of(&json!({"amount": 7}))));
    let whole_run = desk.run_with(desk.project(), RuntimeConfig::new(approvals), desk.create()).await;
    let facts = whole_run.facts();
    assert_eq!(whole_run.said(), "(the user changed the arguments to {\"amount\":7})\ncharge: 7");
    assert_eq!(desk.effects(), ["charge 7"]);
    let text = desk.text();
    let replay = desk.run(desk.replay()).await;
    assert_eq!((replay.facts(), desk.effects()), (facts.clone(), vec![]));
    let answered = text.lines().position(|line| line.contains("\"kind\":\"ask\",\"state\":\"done\"")).unwrap();
    desk.cut(&text, answered + 1);
    let resumed = desk.run(desk.resume()).await;
    assert_eq!((resumed.facts(), desk.effects()), (facts.clone(), vec!["charge 7".to_owned()]));
    let again = desk.run(desk.resume()).await;
    assert_eq!((again.facts(), desk.effects()), (facts, vec![]));
    desk.cut(&text, answered + 1);
    let rejected = desk.run_with(desk.project(), RuntimeConfig::new(Approvals::reject_all()), desk.resume()).await;
    assert!(matches!(rejected.outcome, Err(RunError::Ended(Ending::Refused { .. }))));
    assert_eq!(desk.effects(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approval_of_a_write_holds_for_what_was_shown() {
    let script = "- {round: 1, call: {write_file: {path: a.txt, content: new}}}\n- say: '{{ result }}'";
    let desk = Desk::new(script, &[("main", "toolsets: [filesystem_project]")]);
    let target = desk.files.path().join("a.txt");
    let (approvals, _) = person(Answer::Once);
    desk.run_with(desk.project(), RuntimeConfig::new(approvals), desk.create()).await.said();
    let whole = desk.text();
    let answered = whole.lines().position(|line| line.contains("\"kind\":\"ask\",\"state\":\"done\"")).unwrap();
    for found in [None, Some("new"), Some("somebody else's")] {
        desk.cut(&whole, answered + 1);
        let _ = std::fs::remove_file(&target);
        if let Some(found) = found {
            std::fs::write(&target, found).unwrap();
        }
        let ran = desk.run(desk.resume()).await;
        let waits = matches!(ran.outcome, Err(RunError::Ended(Ending::NeedsApproval(_))));
        assert_eq!(waits, found.is_some(), "{found:?}");
        assert_eq!(std::fs::read_to_string(&target).unwrap(), found.unwrap_or("new"));
    }
}

/// Code that looks, asks an agent, and pays; `charge` asks.
fn by_code(name: &str, last: &'static str) -> Tool {
    Tool::with_context(name, move |_: Nothing, cx| Box::pin(spend(cx, last)))
}

async fn spend(cx: &CallContext<'_>, last: &str) -> Result<String, ToolError> {
    let amount = |amount: u64| RawJson::of(&json!({"amount": amount}));
    let (one, two) = (amount(1), amount(2));
    // In any order, and the same one twice.
    let (a, b, c) = tokio::join!(cx.call("pay", &two), cx.call("pay", &one), cx.call("pay", &one));
    let child = cx.call_agent("child", &RawJson::of(&json!({"input": "x"}))).await?;
    let last = cx.call(last, &amount(5)).await?;
    Ok([a?, b?, c?, child, last].iter().map(|content| Content::shown(content)).collect::<Vec<_>>().join(" "))
}

const CODE_SCRIPT: &str = "
- {agent: child, say: 'child', usage: {input: 1, output: 1}}
- {agent: main, round: 1, call: {spend: {}}}
- {agent: main, say: '{{ result }}'}
";
const CODE: &[(&str, &str)] = &[("main", "entry: true\ntools: [spend, pay, charge]"), ("child", "")];

#[tokio::test]
async fn code_that_declares_itself_resumable_runs_again_and_what_it_called_does_not() {
    let desk = Desk::new(CODE_SCRIPT, CODE);
    let runs = Arc::new(AtomicUsize::new(0));
    let project = || {
        let runs = Arc::clone(&runs);
        let counting = Tool::with_context("spend", move |_: Nothing, cx| {
            runs.fetch_add(1, Ordering::Relaxed);
            Box::pin(spend(cx, "charge"))
        });
        desk.project().tool(counting.resumable().verdict(Rule::Allow))
    };
    let suspended = desk.run_with(project(), RuntimeConfig::new(Approvals::unattended()), desk.create()).await;
    let Err(RunError::Ended(Ending::NeedsApproval(pending))) = &suspended.outcome else { panic!("it waits") };
    assert_eq!(
        (pending[0].tool.as_str(), desk.effects()),
        ("charge", vec!["pay 1".into(), "pay 1".into(), "pay 2".into()])
    );
    let (approvals, _) = person(Answer::Once);
    let done = desk.run_with(project(), RuntimeConfig::new(approvals), desk.resume()).await;
    assert_eq!((done.requests, runs.load(Ordering::Relaxed)), (3, 2));
    assert_eq!(done.trace[0].calls[0].calls.len(), 5, "what code called stands beneath it: {:?}", done.trace);
    assert_eq!(done.said(), "pay: 2 pay: 1 pay: 1 child charge: 5");
    assert_eq!(desk.effects(), ["charge 5"]);
    let again = desk.run_with(project(), RuntimeConfig::new(Approvals::unattended()), desk.resume()).await;
    assert_eq!((again.requests, again.trace[0].calls[0].calls.len(), runs.load(Ordering::Relaxed)), (3, 5, 2));
}

#[tokio::test]
async fn beneath_code_that_runs_once_a_question_is_refused_with_the_reason() {
    let desk = Desk::new(CODE_SCRIPT, CODE);
    let project = || desk.project().tool(by_code("spend", "charge").verdict(Rule::Allow));
    let refused = desk.run_with(project(), RuntimeConfig::new(Approvals::unattended()), desk.create()).await;
    let Err(RunError::Ended(Ending::Refused { reason, tool, .. })) = &refused.outcome else { panic!("it is refused") };
    assert_eq!((tool.as_str(), refused.requests), ("charge", 2));
    assert!(reason.ends_with("the code that asks cannot be continued later"), "{reason}");
    desk.effects();
    for _ in 0..2 {
        let resumed = desk.run_with(project(), RuntimeConfig::new(Approvals::unattended()), desk.resume()).await;
        assert_eq!(resumed.requests, 3, "what the code had asked for counts");
        assert_eq!(resumed.said(), "error: interrupted: it may or may not have happened");
    }
    assert_eq!(desk.effects(), Vec::<String>::new());
}

#[tokio::test]
async fn an_entry_function_runs_again_until_it_has_finished() {
    let desk = Desk::new("- {say: 'child', usage: {input: 1, output: 1}}", &[("child", "")]);
    let runs = Arc::new(AtomicUsize::new(0));
    let project = || {
        let runs = Arc::clone(&runs);
        desk.project().entry(FunctionEntry::new("main", move |_: Topic, cx| {
            runs.fetch_add(1, Ordering::Relaxed);
            Box::pin(spend(cx, "charge"))
        }))
    };
    let suspended = desk.run_with(project(), RuntimeConfig::new(Approvals::unattended()), desk.create()).await;
    let outcome = &suspended.outcome;
    assert!(matches!(outcome, Err(RunError::Ended(Ending::NeedsApproval(_)))), "{outcome:?}");
    assert_eq!(desk.effects(), ["pay 1", "pay 1", "pay 2"]);
    for _ in 0..2 {
        let done = desk.run_with(project(), RuntimeConfig::new(Approvals::approve_all()), desk.resume()).await;
        assert_eq!((done.requests, done.trace[0].calls.len()), (1, 5));
        assert_eq!(done.said(), "pay: 2 pay: 1 pay: 1 child charge: 5");
    }
    assert_eq!((runs.load(Ordering::Relaxed), desk.effects()), (2, vec!["charge 5".to_owned()]));
}

#[tokio::test]
async fn a_call_that_was_dropped_in_the_middle_is_in_doubt() {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    async fn hang(_: Nothing) -> Result<String, String> {
        HAS_BEGUN.store(true, Ordering::Relaxed);
        std::future::pending().await
    }
    let script = "- {round: 1, call: {hang: {}}}\n- say: '{{ result }}'";
    let desk = Desk::new(script, &[("main", "tools: [hang]")]);
    let project = || desk.files.project().tool(Tool::new(hang).verdict(Rule::Allow));
    {
        let running = desk.run_with(project(), RuntimeConfig::new(Approvals::unattended()), desk.create());
        let hangs = async {
            // What is only written down as begun, and never was, may run again.
            while !HAS_BEGUN.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = running => panic!("it hangs"),
            () = hangs => {}
        }
    }
    let resumed = desk.run_with(project(), RuntimeConfig::new(Approvals::unattended()), desk.resume()).await;
    assert_eq!(resumed.said(), "error: interrupted: it may or may not have happened");
}

#[tokio::test]
async fn a_replay_runs_nothing_and_names_the_first_step_that_differs() {
    let desk = Desk::new(TEAM_SCRIPT, TEAM);
    let whole_run = desk.run(desk.create()).await;
    let (facts, shape) = (whole_run.facts(), whole_run.shape());
    let before = desk.text();
    desk.effects();
    let replay = desk.run(desk.replay()).await;
    assert_eq!((replay.facts(), replay.shape(), replay.said()), (facts, shape, "main 3".to_owned()));
    assert_eq!((desk.effects(), desk.text()), (Vec::new(), before));

    std::fs::write(desk.files.path().join("child.worker"), worker("child", "tools: [look, pay]") + "Be brief.")
        .unwrap();
    let drifted = desk.run(desk.replay()).await;
    let Err(RunError::Ended(Ending::Journal(Stop::Diverged { key, kind }))) = &drifted.outcome else {
        panic!("it drifts")
    };
    assert_eq!((key.as_str(), *kind), ("main/t0/m0/c0/t0/m0", StepKind::Model));
    assert_eq!(desk.effects(), Vec::<String>::new());
    let resumed = desk.run(desk.resume()).await;
    assert_eq!(resumed.said(), "main 3", "what is finished does not depend on the project any more");

    desk.cut(&desk.text(), 12);
    std::fs::write(desk.files.path().join("child.worker"), worker("child", "tools: [look, pay]")).unwrap();
    let short = desk.run(desk.replay()).await;
    assert!(matches!(short.outcome, Err(RunError::Ended(Ending::Journal(Stop::Unrecorded { .. })))));
}

#[tokio::test]
async fn arguments_of_many_lines_are_one_line_of_the_journal() {
    let script = "- {round: 1, call: {look: {amount: 1}}}\n- say: done";
    let desk = Desk::new(script, &[("main", "tools: [look]")]);
    let project = || {
        let spread = Tool::with_context("spread", |_: Nothing, cx: &CallContext<'_>| {
            Box::pin(async move {
                let arguments = RawJson::parse("{\n  \"amount\":\r\n 3\n}").unwrap();
                cx.call("look", &arguments)
                    .await
                    .map(|content| Content::shown(&content))
                    .map_err(|error| error.to_string())
            })
        });
        desk.project().tool(spread.resumable().verdict(Rule::Allow))
    };
    std::fs::write(desk.files.path().join("main.worker"), worker("main", "tools: [look, spread]")).unwrap();
    std::fs::write(desk.files.path().join("script.yaml"), "- {round: 1, call: {spread: {}}}\n- say: '{{ result }}'")
        .unwrap();
    let config = || RuntimeConfig::new(Approvals::unattended());
    let whole = desk.run_with(project(), config(), desk.create()).await;
    assert_eq!(whole.said(), "look: 3");
    let text = desk.text();
    for lines in 1..text.lines().count() {
        desk.cut(&text, lines);
        assert_eq!(desk.run_with(project(), config(), desk.resume()).await.said(), "look: 3");
    }
}
