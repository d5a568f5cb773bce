//! What the examples do besides what their READMEs show: where the wire matters, and where a claim is about several runs.

use std::fs;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, SeenPart};
use serde_json::{Value, json};

use crate::document::{Part as Shown, parts};
use crate::place::{Place, Reader};
use crate::session::{Run, of_type};
use crate::support::Ended;
use crate::{python, read, repository};

#[test]
fn every_example_is_listed_and_shows_a_session() {
    let index = read("examples/README.md");
    for entry in fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(index.contains(&format!("]({name}/README.md)")), "{name} is not in examples/README.md");
            let readme = fs::read_to_string(path.join("README.md")).unwrap();
            assert!(parts(&readme).iter().any(|part| matches!(part, Shown::Console(_))), "{name} shows no session");
        }
    }
}

/// The guide goes through the directories of an example: the files that it shows are theirs, and each step is there.
#[test]
fn the_guide_shows_the_files_of_its_example() {
    let guide = read("docs/guide.md");
    let mut steps = std::collections::BTreeSet::new();
    for part in parts(&guide) {
        let Shown::File { path, text, .. } = part else { continue };
        assert_eq!(text, read(&format!("examples/{path}")), "{path}");
        steps.insert(path.split('/').nth(1).unwrap().to_owned());
    }
    let directories = fs::read_dir(repository().join("examples/release")).unwrap().map(|entry| entry.unwrap().path());
    let all =
        directories.filter(|path| path.is_dir()).map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
    assert_eq!(steps, all.collect());
}

/// A run where nobody is, of an example.
fn ran(place: &Place<'_>, arguments: &[&str], fake: Option<&FakeLlm>) -> Ended {
    let run = Run::of(&place.sandbox, arguments).with("XDG_CACHE_HOME", python::cache().to_str().unwrap());
    match fake {
        Some(fake) => run.asking(fake),
        None => run,
    }
    .ended()
}

const TOUR: &[&str] = &["examples/tour", "-m", "scripted:examples/tour/script.yaml", "What about the harbour?"];

#[test]
fn the_tour_shows_what_it_promises() {
    let place = Place::new(None, Reader::User);
    let ended = ran(&place, &[TOUR, &["--json", "--approve-all"]].concat(), None);
    let events: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [reader] = of_type(&events, "call_started")[1..] else { panic!("two agents") };
    assert_eq!((&reader["name"], &reader["input"]), (&json!("reader"), &json!({"topic": "harbour"})));
    let refused = of_type(&events, "tool_refused");
    assert_eq!(refused[0]["tool"], "edit_file");
    let approved = of_type(&events, "approval_answered");
    assert_eq!((&approved[0]["tool"], &approved[0]["answer"]), (&json!("write_file"), &json!("policy")));
    let result = events.last().unwrap();
    assert_eq!((&result["exit_code"], &result["usage"]["total"]["requests"]), (&json!(0), &json!(7)));
    assert!(result["output"].as_str().unwrap().starts_with("(scripted: no model was asked;"), "{result}");
    let note = fs::read_to_string(place.sandbox.path().join("examples/tour/notes/harbour.md")).unwrap();
    assert_eq!(note, read("examples/tour/notes/harbour.md"));
    assert!(place.sandbox.path().join("examples/tour/drafts/harbour.md").exists());
}

#[test]
fn the_tour_says_that_a_person_refused_its_article_and_why() {
    let place = Place::new(None, Reader::User);
    let command = "llm-do examples/tour -m scripted:examples/tour/script.yaml \"What about the harbour?\"";
    let seen = place.types(command, &[(" explain", "n"), ("why?", "not before Friday\r")], 0);
    let told = seen.screen.split_once("There is no article: ").map(|(_, told)| told.replace('\n', " "));
    let told = told.unwrap_or_else(|| panic!("{}", seen.screen));
    assert!(told.starts_with("the write was not approved (error: refused: not before Friday)"), "{told}");
    assert!(!place.sandbox.path().join("examples/tour/drafts/harbour.md").exists());
}

#[test]
fn the_tour_with_a_real_model_and_no_key_says_what_to_set() {
    let place = Place::new(None, Reader::User);
    let ended = ran(&place, &["examples/tour", "-m", "anthropic:claude-haiku-4-5", "What about the harbour?"], None);
    let said = "error: editor uses anthropic:claude-haiku-4-5, ANTHROPIC_API_KEY is not set; reader uses \
                anthropic:claude-haiku-4-5, ANTHROPIC_API_KEY is not set\n\
                hint: `llm-do examples/tour -m all=ollama:qwen3`; without any key: `llm-do new demo --template demo && \
                llm-do demo`\n";
    assert_eq!(ended, Ended { code: Some(3), stdout: String::new(), stderr: said.to_owned() });
}

#[test]
fn the_tour_goes_the_same_way_with_a_provider() {
    let facts = json!({"facts": [{"fact": "It carries 60 tonnes.", "file": "notes/harbour.md"}]}).to_string();
    let article = json!({"path": "drafts/harbour.md", "content": "# Crane\n"});
    let script = FakeScript::new()
        .reply(FakeReply::calls([FakeCall::new("reader", json!({"topic": "harbour"}))]))
        .reply(FakeReply::calls([FakeCall::new("read_file", json!({"path": "notes/harbour.md"}))]))
        .reply(FakeReply::text(&facts))
        .reply(FakeReply::calls([FakeCall::new("write_file", article)]))
        .reply(FakeReply::text("Done."));
    let fake = FakeLlm::start(script);
    let place = Place::new(None, Reader::User);
    let flags = ["examples/tour", "-m", "anthropic:claude-haiku-4-5", "--approve-all", "What about the harbour?"];
    let ended = ran(&place, &flags, Some(&fake));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Done.\n"), "{}", ended.stderr);
    assert_eq!(fake.violations(), []);
}

#[test]
fn hardening_changes_neither_the_caller_nor_the_answer() {
    let place = Place::new(None, Reader::User);
    let stage = |manifest: &str| {
        let project = format!("examples/hardening/{manifest}.json");
        let flags =
            ["march.csv", "--trust", "-m", "scripted:examples/hardening/script.yaml", "--output-format", "json"];
        let ended = ran(&place, &[&[project.as_str()][..], &flags].concat(), None);
        let result: Value = serde_json::from_str(&ended.stdout).unwrap();
        (result["output"].clone(), result["usage"]["total"]["requests"].clone())
    };
    let (prompt, tools, code) = (stage("1-prompt"), stage("2-tools"), stage("3-code"));
    assert_eq!((&prompt.0, &prompt.0), (&tools.0, &code.0));
    assert_eq!(prompt.0["total"], 461.0);
    assert_eq!((prompt.1, tools.1, code.1), (json!(6), json!(4), json!(1)));
}

#[test]
fn the_files_of_a_claim_reach_the_provider_as_what_they_are() {
    let read = |file: &str| FakeCall::new("receipt_reader", json!({"input": "Read it.", "attachments": [file]}));
    let line = json!({"vendor": "x", "date": "2026-11-03", "amount": 1, "currency": "EUR"}).to_string();
    let claim = json!({"total": 2, "currency": "EUR", "lines": []}).to_string();
    let script = FakeScript::new()
        .reply(FakeReply::calls([read("receipts/hotel.png")]))
        .reply(FakeReply::text(&line))
        .reply(FakeReply::calls([read("receipts/taxi.pdf")]))
        .reply(FakeReply::text(&line))
        .reply(FakeReply::text(&claim));
    let (fake, place) = (FakeLlm::start(script), Place::new(None, Reader::User));
    let ended = ran(&place, &["examples/claims", "-m", "anthropic:claude-haiku-4-5", "Add up"], Some(&fake));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(fake.violations(), []);
    let attached: Vec<Value> = fake
        .requests()
        .iter()
        .filter_map(|request| {
            let user = request.seen.as_ref().unwrap().messages.first().unwrap().clone();
            user.parts.into_iter().find_map(|part| if let SeenPart::Other(block) = part { Some(block) } else { None })
        })
        .collect();
    let kinds: Vec<_> = attached.iter().map(|block| (&block["type"], &block["source"]["media_type"])).collect();
    let expected =
        [("image", "image/png"), ("document", "application/pdf")].map(|(kind, media)| (json!(kind), json!(media)));
    assert_eq!(kinds, expected.iter().map(|(kind, media)| (kind, media)).collect::<Vec<_>>());
    // `%PDF-1.4` in base64: the bytes themselves.
    assert!(attached[1]["source"]["data"].as_str().unwrap().starts_with("JVBERi0xLj"), "{}", attached[1]);
}

#[test]
fn a_search_of_the_provider_is_told_and_its_tool_was_offered() {
    let used =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Vasa raised"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
        {"type": "web_search_result", "url": "https://vasa.example/", "title": "Vasa", "encrypted_content": "x"}
    ]});
    let answer = FakeReply::empty().and_native(used).and_native(found).and_text("In 1961 (https://vasa.example/).");
    let (fake, place) = (FakeLlm::start(FakeScript::new().reply(answer)), Place::new(None, Reader::User));
    let flags = ["examples/search", "--trust", "-m", "anthropic:claude-haiku-4-5", "-v", "When was the Vasa raised?"];
    let ended = ran(&place, &flags, Some(&fake));
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "In 1961 (https://vasa.example/).\n"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("→ web_search (run by the provider) {\"query\":\"Vasa raised\"}"),
        "{}",
        ended.stderr
    );
    let requests = fake.requests();
    let tools = &requests[0].body["tools"];
    assert_eq!((&tools[0]["name"], &tools[0]["max_uses"]), (&json!("web_search"), &json!(3)));
    assert_eq!(fake.violations(), []);
}

#[test]
fn the_survey_moves_what_it_may_and_removes_nothing() {
    let place = Place::new(None, Reader::User);
    let flags =
        ["examples/survey", "--trust", "-m", "scripted:examples/survey/script.yaml", "-v", "--approve-all", "Tidy up"];
    let ended = ran(&place, &flags, None);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("`rm` is not among the commands here"), "{}", ended.stderr);
    assert!(place.sandbox.path().join("examples/survey/notes/attic/crane.md").exists());
}
