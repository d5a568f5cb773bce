//! How calls were judged is written down for people and for those who try other rules, and is never believed.

use super::*;
use llm_do::journal::file::JournalSettings;
use llm_do::journal::mac::{self, LineMac, SigningPurpose};
use llm_do::runtime::judgements::{CallFate, JudgedCall, judged_calls};
use llm_do::tools::approval::{ApprovalRequest, CallSubject, DecidedBy, KnownAnswers, VerdictKind};
use llm_do::tools::policy::{Explanation, LastingRules, RuleFile, RuleSource, RuledCall, read_rules};

fn calls(desk: &Desk) -> Vec<JudgedCall> {
    judged_calls(&file::read(&desk.journal(), Some(&key())).unwrap()).collect()
}

/// The only call of this tool.
#[track_caller]
fn call<'a>(calls: &'a [JudgedCall], tool: &str) -> &'a JudgedCall {
    let found: Vec<&JudgedCall> = calls.iter().filter(|call| call.tool == tool).collect();
    let [only] = found[..] else { panic!("{tool}: {calls:?}") };
    only
}

const MANIFEST: &str = r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker", "child.worker"], "toolsets": {
    "notes": {"use": "filesystem_project", "prefix": "notes_", "approval": {"write_file": "ask", "read_file": "block"}}}}"#;

const MAIN: &str =
    "entry: true\ntools: [pay, look, spend]\ntoolsets: [child, filesystem_project, notes, shell_readonly]
approval: {write_file: allow, pay: block, notes_write_file: allow}";

const SCRIPT: &str = "
- {agent: child, round: 1, call: [{look: {amount: 1}}, {charge: {amount: 2}}]}
- {agent: child, say: 'child'}
- {agent: main, round: 1, call: [{child: {input: a}}, {read_file: {path: link.md}}, {read_file: {path: .env}},
    {write_file: {path: ./new.md, content: x}}, {list_files: {path: .}}, {notes_write_file: {path: b.md, content: y}},
    {notes_read_file: {path: b.md}}, {shell: {command: \"ls  'link.md'\"}}, {pay: {amount: 3}}, {nothing: {}}, {look: {}}]}
- {agent: main, round: 2, call: {spend: {}}}
- {agent: main, say: done}
";

fn desk() -> Desk {
    let desk = Desk::new(SCRIPT, &[("main", MAIN), ("child", "tools: [look, charge]")]);
    std::fs::write(desk.files.path().join("project.json"), MANIFEST).unwrap();
    std::fs::write(desk.files.path().join("real.md"), "real").unwrap();
    std::fs::write(desk.files.path().join(".env"), "secret").unwrap();
    std::os::unix::fs::symlink("real.md", desk.files.path().join("link.md")).unwrap();
    desk
}

async fn look_by_code(cx: &CallContext<'_>) -> Result<String, ToolError> {
    let look = RawJson::of(&json!({"amount": 7}));
    cx.call("look", &look).await.map(|content| Content::shown(&content))
}

/// `spend` looks by code, which no reply tells of.
fn project(desk: &Desk) -> Project {
    desk.project().tool(Tool::with_context("spend", |_: Nothing, cx| Box::pin(look_by_code(cx))).verdict(Rule::Allow))
}

fn config(approvals: Approvals) -> RuntimeConfig {
    RuntimeConfig { refusals: Refusals::Return, ..RuntimeConfig::new(approvals) }
}

#[tokio::test]
async fn every_call_that_was_judged_says_how_and_by_whom() {
    use CallFate::{Ran as HasRun, Refused};
    use DecidedBy::{Person, Toolset, Variant, Worker};
    use VerdictKind::{Allow, Ask, AskAnyway};
    let desk = desk();
    let (approvals, _) = person(Answer::Once);
    desk.run_with(project(&desk), config(approvals), desk.create()).await.said();
    let calls = calls(&desk);
    let root = desk.files.path().canonicalize().unwrap().to_string_lossy().into_owned();
    let file = |name: &str| Some(CallSubject::File { name: name.to_owned(), root: root.clone() });
    let words = Some(CallSubject::Words(vec!["ls".to_owned(), "link.md".to_owned()]));
    let reads: Vec<&JudgedCall> = calls.iter().filter(|call| call.tool == "read_file").collect();
    let looks: Vec<&JudgedCall> = calls.iter().filter(|call| call.tool == "look").collect();
    for (found, verdict, about, by, fate) in [
        (call(&calls, "child"), Allow, None, Toolset, HasRun),
        (call(&calls, "charge"), Ask, None, Person, HasRun),
        (reads[0], Allow, file("real.md"), Toolset, HasRun),
        (reads[1], AskAnyway, file(".env"), Person, HasRun),
        (call(&calls, "write_file"), Ask, file("new.md"), Worker, HasRun),
        (call(&calls, "list_files"), Allow, file(""), Toolset, HasRun),
        // The strictest rule counts, so that what the agent allows is asked.
        (call(&calls, "notes_write_file"), Ask, file("b.md"), Person, HasRun),
        (call(&calls, "notes_read_file"), Allow, file("b.md"), Variant, Refused),
        (call(&calls, "shell"), Allow, words, Toolset, HasRun),
        (call(&calls, "pay"), Allow, None, Worker, Refused),
        (call(&calls, "spend"), Allow, None, Toolset, HasRun),
        (looks[0], Allow, None, Toolset, HasRun),
        (looks[1], Allow, None, Toolset, HasRun),
    ] {
        let JudgedCall { tool, judgement, .. } = found;
        assert_eq!((judgement.verdict, &judgement.about), (verdict, &about), "{tool}");
        assert_eq!((judgement.by, found.fate), (Some(by), fate), "{tool}");
    }
    assert_eq!((calls.len(), looks.len()), (13, 2), "what is no tool, or has no arguments for it, is not judged");
    let rules = |tool: &str| (call(&calls, tool).judgement.variant, call(&calls, tool).judgement.worker);
    assert_eq!(rules("notes_write_file"), (Some(Rule::Ask), Some(Rule::Allow)), "who else has spoken");
    assert_eq!((rules("pay"), rules("charge")), ((None, Some(Rule::Block)), (None, None)));
    let why = |tool: &str| call(&calls, tool).judgement.why.as_deref();
    assert_eq!(
        (why("write_file"), why("charge")),
        (Some("creates new.md: 1 line added"), None),
        "where nobody was asked"
    );
    let of = |call: &JudgedCall| (call.path.join(" > "), call.arguments.as_ref().map(|json| json.get().to_owned()));
    assert_eq!(of(call(&calls, "charge")), ("main > child".to_owned(), Some(r#"{"amount":2}"#.to_owned())));
    assert_eq!(of(call(&calls, "pay")), ("main".to_owned(), Some(r#"{"amount":3}"#.to_owned())));
    let by_code = looks.iter().find(|call| call.key.contains("/x")).unwrap();
    assert_eq!(of(by_code), ("main > spend".to_owned(), Some(r#"{"amount":7}"#.to_owned())));
}

/// Answers that were given before.
struct Known;

impl KnownAnswers for Known {
    fn answer_to(&self, _: &ApprovalRequest) -> Option<Answer> {
        Some(Answer::Once)
    }
}

#[tokio::test]
async fn whoever_answers_a_question_is_named() {
    let script = "- {round: 1, call: {charge: {amount: 1}}}\n- {round: 2, call: {charge: {amount: 1}}}\n- say: done";
    let known = || Approvals::unattended().with_known(Arc::new(Known));
    let asked = |answer| person(answer).0;
    for (approvals, by, fate) in [
        (Approvals::approve_all(), [DecidedBy::ApproveAll; 2], CallFate::Ran),
        (Approvals::reject_all(), [DecidedBy::RejectAll; 2], CallFate::Refused),
        (known(), [DecidedBy::Known; 2], CallFate::Ran),
        (asked(Answer::ToolForSession), [DecidedBy::Person, DecidedBy::Session], CallFate::Ran),
        (asked(Answer::refuse("no")), [DecidedBy::Person; 2], CallFate::Refused),
        (asked(Answer::Edited(RawJson::of(&json!({"amount": 2})))), [DecidedBy::Person; 2], CallFate::Ran),
    ] {
        let desk = Desk::new(script, &[("main", "tools: [charge]")]);
        desk.run_with(desk.project(), config(approvals), desk.create()).await.said();
        let calls = calls(&desk);
        let found: Vec<_> = calls.iter().map(|call| (call.judgement.by, call.fate)).collect();
        assert_eq!(found, by.map(|by| (Some(by), fate)), "{calls:?}");
        let arguments: Vec<_> = calls.iter().map(|call| call.arguments.as_ref().unwrap().get()).collect();
        assert_eq!(arguments, [r#"{"amount":1}"#; 2], "as the model wrote them");
        let is_edited = desk.effects() == ["charge 2", "charge 2"];
        assert!(calls.iter().all(|call| call.judgement.edited.is_some() == is_edited));
    }
}

#[tokio::test]
async fn an_open_question_and_a_call_in_doubt_say_how_they_were_judged() {
    let desk = Desk::new("- {round: 1, call: {charge: {amount: 1}}}\n- say: done", &[("main", "tools: [charge]")]);
    drop(desk.run(desk.create()).await);
    let contents = file::read(&desk.journal(), Some(&key())).unwrap();
    let (_, question) = contents.records().find(|(_, record)| record.kind == StepKind::Ask).unwrap();
    assert_eq!(question.judged.as_ref().unwrap().get(), r#"{"verdict":"ask"}"#);
    desk.run_with(desk.project(), config(Approvals::approve_all()), desk.resume()).await.said();
    let whole = desk.text();
    let started = whole.lines().position(|line| line.contains("\"state\":\"started\"")).unwrap();
    desk.cut(&whole, started + 1);
    let in_doubt = calls(&desk);
    assert_eq!((in_doubt[0].fate, in_doubt[0].judgement.by), (CallFate::InDoubt, Some(DecidedBy::ApproveAll)));
    assert_eq!(whole.matches("\"judged\":").count(), 2, "once for the question, once for the call: {whole}");
}

#[tokio::test]
async fn without_a_journal_nothing_is_written_down_and_a_strangers_judgements_are_left_out() {
    let desk = desk();
    let (approvals, _) = person(Answer::Once);
    desk.run_with(project(&desk), config(approvals), desk.create()).await.said();
    assert!(desk.text().contains("\"judged\":"));
    let open =
        OpenJournal::open_foreign(&desk.journal(), JournalSettings { key: Some(key()), ..JournalSettings::default() })
            .unwrap();
    assert_eq!(judged_calls(open.contents()).count(), 0);
    drop(open.resume(Matching::Exact, None).unwrap());
    assert!(!desk.text().contains("\"judged\":"), "nobody here has seen them judged");
}

/// What was decided under rules is decided again from the record alone, by the same rules: nothing else is looked at.
#[tokio::test]
async fn recorded_calls_come_out_as_they_did() {
    let rules = "[[rule]]\nallow = 'charge'\namount = { max = 5 }\n[[rule]]\nblock = 'list_files'\n\
        [[rule]]\nask = 'look'\nagent = 'child'\n[[rule]]\nallow = 'read_file'\n\
        [[rule]]\nblock = 'shell'\nwords = ['ls', '...']\n[[rule]]\nallow = '*write_file'\npath = 'b.md'\n";
    let file = |text: &str, source| {
        let (path, label) = ("rules.toml".into(), "rules.toml".to_owned());
        read_rules(&[RuleFile { path, label, text: text.to_owned(), source }]).unwrap()
    };
    let organisation = file("[[rule]]\nask = 'write_file'\n", RuleSource::Organisation);
    let all = [file(rules, RuleSource::Yours), organisation].concat();
    let desk = desk();
    let (approvals, asked) = person(Answer::Once);
    let approvals = approvals.with_rules(all.clone(), "2026-11-18");
    desk.run_with(project(&desk), config(approvals), desk.create()).await.said();
    let root = desk.files.path().canonicalize().unwrap();
    let in_force = LastingRules::in_force(all, &root, Some("2026-11-18"));
    let calls = calls(&desk);
    let mut seen = std::collections::BTreeSet::new();
    for JudgedCall { tool, path, arguments, judgement, .. } in &calls {
        let call = RuledCall { tool, path, arguments: arguments.as_ref(), subject: judgement.about.as_ref() };
        let again = Explanation::again(judgement, call, &in_force);
        assert_eq!((Some(again.by), &again.rule), (judgement.by, &judgement.rule), "{tool}: {again:?}");
        seen.insert(format!("{:?}", again.by));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["Person", "Rule", "Toolset", "Variant", "Worker", "Yours"]);
    let tools: Vec<String> = asked.lock().unwrap().iter().map(|request| request.tool.clone()).collect();
    // The secret always asks, the organisation asks whatever the agent allows, and the user's own `ask` is one.
    assert_eq!(tools.iter().filter(|tool| *tool == "read_file").count(), 1, "{tools:?}");
    assert!(tools.iter().any(|tool| tool == "write_file") && tools.iter().any(|tool| tool == "look"), "{tools:?}");
    assert!(!tools.iter().any(|tool| tool == "charge" || tool == "notes_write_file"), "{tools:?}");
}

/// The lines with other judgements, signed with the right key.
fn forged(whole: &str, judged: Option<&Value>) -> String {
    let (mut last, mut text) = (LineMac::default(), String::new());
    for line in whole.lines() {
        let mut json: Value = serde_json::from_str(line).unwrap();
        let fields = json.as_object_mut().unwrap();
        fields.remove("mac");
        if fields.remove("judged").is_some() {
            fields.extend(judged.map(|judged| ("judged".to_owned(), judged.clone())));
        }
        // Not through the map again: raw JSON keeps its order where it was not touched.
        let mut line = reordered(line, fields);
        let signed = line.strip_suffix('}').unwrap().to_owned();
        last = key().next(SigningPurpose::Journal, last, signed.as_bytes());
        mac::sign(&mut line, last);
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The line with its members as they were written, but for those that were changed.
fn reordered(line: &str, fields: &serde_json::Map<String, Value>) -> String {
    let raw: std::collections::BTreeMap<String, RawJson> = serde_json::from_str(line).unwrap();
    let is_same = |name: &str| name != "judged";
    let members = fields.iter().map(|(name, value)| {
        let value =
            raw.get(name).filter(|_| is_same(name)).map_or_else(|| value.to_string(), |raw| raw.get().to_owned());
        format!("{}:{value}", json!(name))
    });
    // The header is recognised by how it begins.
    let (mut first, mut rest): (Vec<String>, Vec<String>) = members.partition(|member| member.starts_with("\"v\":"));
    first.append(&mut rest);
    format!("{{{}}}", first.join(","))
}

#[tokio::test]
async fn a_judgement_that_was_forged_with_the_right_key_changes_no_decision() {
    let allow = json!({"verdict": "allow", "worker": "allow", "by": "approve_all"});
    let block = json!({"verdict": "block", "by": "toolset"});
    let person_allowed = json!({"verdict": "ask", "by": "person", "edited": {"verdict": "allow"}});
    for approvals in [Approvals::unattended(), Approvals::reject_all(), Approvals::approve_all()] {
        let desk = Desk::new(ASKING_SCRIPT, ASKING);
        let (asked, _) = person(Answer::Once);
        desk.run_with(desk.project(), config(asked), desk.create()).await.said();
        let whole = desk.text();
        desk.effects();
        for lines in 1..whole.lines().count() {
            let kept: String = whole.split_inclusive('\n').take(lines).collect();
            let mut ended = Vec::new();
            for judged in [None, Some(&allow), Some(&block), Some(&person_allowed), Some(&json!("nonsense"))] {
                std::fs::write(desk.journal(), forged(&kept, judged)).unwrap();
                let run = desk.run_with(desk.project(), config(approvals.clone()), desk.resume()).await;
                let said = run.outcome.as_ref().map(|outcome| outcome.output.clone()).map_err(ToString::to_string);
                ended.push((said, desk.effects(), run.facts()));
            }
            assert!(ended.windows(2).all(|pair| pair[0] == pair[1]), "after {lines} lines: {ended:#?}");
        }
    }
}
