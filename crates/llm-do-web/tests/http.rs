//! The real server, spoken to by HTTP as any program would.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, InjectedFault, On};
use llm_do_web::guard::{ConnectionBounds, KeyKind};
use serde_json::{Value, json};
use support::{House, Reply};

const ROUTES: &[(&str, &str)] = &[
    ("GET", "/api/me"),
    ("GET", "/api/runs"),
    ("POST", "/api/runs"),
    ("GET", "/api/runs/aaaaaaaaaaaaaaaa"),
    ("GET", "/api/runs/aaaaaaaaaaaaaaaa/events"),
    ("GET", "/api/runs/aaaaaaaaaaaaaaaa/call?key=main/t0"),
    ("POST", "/api/runs/aaaaaaaaaaaaaaaa/cancel"),
    ("POST", "/api/runs/aaaaaaaaaaaaaaaa/resume"),
    ("POST", "/api/runs/aaaaaaaaaaaaaaaa/fork"),
    ("POST", "/api/runs/aaaaaaaaaaaaaaaa/turns"),
    ("POST", "/api/runs/aaaaaaaaaaaaaaaa/change"),
    ("POST", "/api/runs/aaaaaaaaaaaaaaaa/close"),
    ("GET", "/api/runs/aaaaaaaaaaaaaaaa/session"),
    ("POST", "/api/runs/aaaaaaaaaaaaaaaa/forget"),
    ("GET", "/api/questions"),
    ("POST", "/api/questions/0000"),
    ("POST", "/api/questions/0000/try"),
    ("POST", "/api/questions/0000/rule"),
    ("GET", "/api/projects"),
    ("GET", "/api/projects/demo/check"),
    ("GET", "/api/costs"),
    ("GET", "/api/openapi.json"),
    ("GET", "/v1/models"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/"),
    ("DELETE", "/api/runs"),
];

#[test]
fn every_route_opens_with_its_keys_and_no_other() {
    let house = House::new();
    for (method, path) in ROUTES {
        let opens = |kind: KeyKind| match (kind, path.starts_with("/v1"), *method) {
            (KeyKind::All, ..) | (KeyKind::Ask, true, _) | (KeyKind::Look, false, "GET") => true,
            (KeyKind::Ask | KeyKind::Look, ..) => false,
        };
        for kind in [KeyKind::All, KeyKind::Look, KeyKind::Ask] {
            let status = house.send(method, path, &[("authorization", &house.bearer(kind))], "{}").status;
            assert_eq!(![401, 403, 421].contains(&status), opens(kind), "{method} {path} with {kind:?}: {status}");
        }
        assert_eq!(house.send(method, path, &[], "{}").status, 401, "{method} {path} without a key");
    }
    for path in ["/", "/assets/none.js"] {
        assert!([200, 404].contains(&house.send("GET", path, &[], "").status));
    }
}

#[test]
fn a_key_is_taken_from_one_header_alone() {
    let house = House::new();
    let key = house.key(KeyKind::All);
    for header in
        [("cookie", format!("key={key}")), ("x-api-key", key.clone()), ("authorization", format!("Basic {key}"))]
    {
        assert_eq!(house.send("GET", "/api/me", &[(header.0, &header.1)], "").status, 401, "{header:?}");
    }
    assert_eq!(house.send("GET", &format!("/api/me?key={key}"), &[], "").status, 401);
}

#[test]
fn forged_hosts_and_origins_are_sent_away() {
    let house = House::new();
    let bearer = house.bearer(KeyKind::All);
    let status = |headers: &[(&str, &str)]| {
        let all: Vec<(&str, &str)> = [("authorization", bearer.as_str())].iter().chain(headers).copied().collect();
        house.send("GET", "/api/me", &all, "").status
    };
    assert_eq!(status(&[]), 200);
    assert_eq!(status(&[("host", "evil.example")]), 421);
    assert_eq!(status(&[("host", &format!("evil.example:{}", house.at.port()))]), 421);
    assert_eq!(status(&[("x-forwarded-host", "evil.example")]), 200);
    assert_eq!(status(&[("origin", "http://evil.example")]), 403);
    assert_eq!(status(&[("origin", "http://127.0.0.1:1")]), 403);
    assert_eq!(status(&[("origin", &format!("http://localhost:{}", house.at.port()))]), 200);
    // A page of others may ask first: it is told nothing that lets it go on.
    let asked = house.send(
        "OPTIONS",
        "/api/runs",
        &[("origin", "http://evil.example"), ("access-control-request-method", "POST")],
        "",
    );
    assert_eq!(asked.status, 403);
    assert!(!asked.headers.keys().any(|name| name.starts_with("access-control")));
    // Static files too are only for those who know our name.
    assert_eq!(house.send("GET", "/", &[("host", "evil.example")], "").status, 421);
}

#[test]
fn every_answer_says_what_a_browser_must_not_do() {
    let house = House::new();
    for (path, key) in [("/", false), ("/api/me", true), ("/api/me", false), ("/nothing", false)] {
        let bearer = house.bearer(KeyKind::All);
        let headers: Vec<(&str, &str)> = if key { vec![("authorization", bearer.as_str())] } else { Vec::new() };
        let reply = house.send("GET", path, &headers, "");
        assert!(
            reply.headers["content-security-policy"].starts_with("default-src 'none'; script-src 'self';"),
            "{path}"
        );
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        assert_eq!(reply.headers["referrer-policy"], "no-referrer");
        assert!(!reply.headers.contains_key("set-cookie"));
    }
}

#[test]
fn paths_lead_to_the_files_of_the_page_only() {
    let house = House::new();
    for path in [
        "/assets/../Cargo.toml",
        "/assets/%2e%2e/Cargo.toml",
        "/assets//etc/passwd",
        "//etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/assets/style.css%00",
        "/index.html",
    ] {
        assert_eq!(house.send("GET", path, &[], "").status, 404, "{path}");
    }
    let page = house.send("GET", "/", &[], "");
    assert_eq!(page.headers["cache-control"], "no-cache");
    let asset = page.body.split('"').find(|part| part.starts_with("/assets/main-")).unwrap().to_owned();
    let script = house.send("GET", &asset, &[], "");
    assert_eq!((script.status, script.headers["content-type"].as_str()), (200, "text/javascript; charset=utf-8"));
    assert!(script.headers["cache-control"].contains("immutable"));
    for (method, path) in [("GET", "/api/runs/..%2f..%2fkey"), ("GET", "/api/projects/..%2f..%2f/check")] {
        assert_eq!(house.all(method, path, &Value::Null).status, 404, "{path}");
    }
}

#[test]
fn bodies_are_bounded_and_must_be_what_they_are_meant_to_be() {
    let house = House::new();
    let large = format!("{{\"answer\": \"once\", \"reason\": \"{}\"}}", "x".repeat(3 << 20));
    let path = format!("/api/questions/{}", "0".repeat(64));
    let bearer = house.bearer(KeyKind::All);
    assert_eq!(house.send("POST", &path, &[("authorization", &bearer)], &large).status, 413);
    for body in ["", "[", "[]", "{\"answer\": \"maybe\"}", "{\"answer\": \"once\", \"path\": \"/etc\"}"] {
        assert_eq!(house.send("POST", &path, &[("authorization", &bearer)], body).status, 400, "{body}");
    }
    let short = house.all("POST", "/api/questions/000000000000", &json!({"answer": "once"}));
    assert_eq!((short.status, short.error().contains("whole digest")), (400, true));
    // A request names a project by its name, and no file.
    for project in ["/etc", "../demo", "demo/..", "", "."] {
        assert_eq!(house.all("POST", "/api/runs", &json!({"project": project, "input": "x"})).status, 404, "{project}");
    }
    let script =
        house.all("POST", "/api/runs", &json!({"project": "demo", "input": "x", "model": ["scripted:/etc/passwd"]}));
    assert_eq!(script.status, 400);
}

#[test]
fn slow_clients_are_cut() {
    let bounds = ConnectionBounds { most: 2, head: Duration::from_millis(200), stalled: Duration::from_millis(200) };
    let house = House::with(bounds, |_| {});
    let mut slow = house.connect();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
    assert_eq!(support::read_to_end(&mut slow), "", "the connection is closed without an answer");
    // As many as there may be, and one more, which is sent away.
    let held: Vec<_> = (0..2).map(|_| house.connect()).collect();
    let mut more = house.connect();
    let _ = more.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(support::read_to_end(&mut more), "");
    drop(held);
}

#[test]
fn a_run_begins_asks_is_answered_once_and_ends() {
    let house = House::new();
    let begun = house.all("POST", "/api/runs", &json!({"project": "demo", "label": "first"}));
    assert_eq!(begun.status, 201, "{}", begun.body);
    let run = begun.json()["run"].as_str().unwrap().to_owned();
    let question = house.question();
    assert_eq!(question["run"], run.as_str());
    assert_eq!(question["own"], true);
    let lines: Vec<&str> =
        question["lines"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert!(lines[0].starts_with("approval 1 · main › write_file · "), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("The new crane, asleep.")), "{lines:?}");
    let path = format!("/api/questions/{}", question["digest"].as_str().unwrap());
    // What would be asked about other arguments answers nothing.
    let other = json!({"path": "haiku.md", "content": "Rain.\n"});
    let tried = house.all("POST", &format!("{path}/try"), &json!({"arguments": other}));
    assert!(tried.body.contains("Rain."), "{}", tried.body);
    let answered = house.all("POST", &path, &json!({"answer": "edit", "arguments": other}));
    assert_eq!((answered.status, &answered.json()["goes_on"]), (200, &json!(true)), "{}", answered.body);
    let again = house.all("POST", &path, &json!({"answer": "refuse"}));
    assert_eq!((again.status, &again.json()["error"]["by"]), (409, &json!("ann")), "{}", again.body);
    let shown = house.ended(&run);
    assert_eq!(shown["state"], "done");
    assert!(shown["answer"].as_str().unwrap().contains("haiku.md"));
    assert_eq!(house.read("demo/drafts/haiku.md"), "Rain.\n");
    let times = shown["timeline"]["rows"].as_array().unwrap();
    assert!(times.iter().any(|time| time["kind"] == "person"), "{times:?}");
    let call = house.all("GET", &format!("/api/runs/{run}/call?key=main/t0"), &Value::Null).json();
    assert_eq!(call["requests"].as_array().unwrap().len(), 2, "{call}");
    assert!(
        call["parts"].as_object().unwrap().values().any(|part| part.as_str().is_some_and(|it| it.contains("haiku")))
    );
    assert!(house.all("GET", "/api/runs?label=first&text=DEMO", &Value::Null).body.contains(&run));
    assert_eq!(house.all("GET", "/api/runs?label=second", &Value::Null).json()["runs"], json!([]));
}

#[test]
fn a_refusal_is_read_by_the_model_with_its_reason() {
    let house = House::new();
    let run = house.begin(&json!({"project": "demo"}));
    let question = house.question();
    let path = format!("/api/questions/{}", question["digest"].as_str().unwrap());
    assert_eq!(house.all("POST", &path, &json!({"answer": "refuse", "reason": "not today"})).status, 200);
    let shown = house.ended(&run);
    assert!(shown["answer"].as_str().unwrap().starts_with("Nothing was written"), "{shown}");
    assert!(shown["calls"].to_string().contains("not today"), "{shown}");
}

#[test]
fn events_come_from_the_point_that_is_asked_for() {
    let house = House::new();
    let run = house.begin(&json!({"project": "demo"}));
    let mut stream = house.events(&run, None);
    let first = stream.until("question");
    assert!(first.iter().any(|frame| frame.contains("\"type\":\"text_delta\"")), "{first:?}");
    assert!(first[0].contains("\"live\":true"));
    let ids: Vec<&str> = first.iter().filter_map(|frame| frame.strip_prefix("id: ")?.lines().next()).collect();
    let last = (*ids.last().unwrap()).to_owned();
    drop(stream);
    let question = house.question();
    let mut rest = house.events(&run, Some(&last));
    house.all("POST", &format!("/api/questions/{}", question["digest"].as_str().unwrap()), &json!({"answer": "once"}));
    let frames = rest.until("end");
    assert!(!frames.iter().any(|frame| ids.iter().any(|id| frame.starts_with(&format!("id: {id}\n")))), "{frames:?}");
    assert!(frames.iter().any(|frame| frame.contains("event: answer")));
    // Of a run that nobody runs the record tells.
    let told = house.events(&run, None).until("end");
    assert!(told[0].contains("\"live\":false") && told.iter().any(|frame| frame.contains("event: answer")), "{told:?}");
}

#[test]
fn a_run_is_stopped_resumed_and_forked() {
    let house = House::new();
    let run = house.begin(&json!({"project": "demo"}));
    house.question();
    let path = format!("/api/runs/{run}");
    assert_eq!(house.all("POST", &format!("{path}/resume"), &json!({})).status, 409, "it goes on already");
    assert_eq!(house.all("POST", &format!("{path}/cancel"), &Value::Null).json()["outcome"], "asked");
    assert_eq!(house.ended(&run)["state"], "stopped");
    assert_eq!(house.all("POST", &format!("{path}/cancel"), &Value::Null).json()["outcome"], "stopped");
    assert_eq!(house.all("POST", &format!("{path}/resume"), &json!({})).status, 200);
    house.answer_all();
    assert_eq!(house.ended(&run)["state"], "done");
    assert_eq!(house.all("POST", &format!("{path}/cancel"), &Value::Null).status, 409);
    assert_eq!(house.all("POST", &format!("{path}/resume"), &json!({})).status, 409, "it is done");
    let script = house.all("POST", &format!("{path}/fork"), &json!({"model": ["all=scripted:/etc/passwd"]}));
    assert_eq!((script.status, script.body.contains("a script is not chosen")), (400, true), "{}", script.body);
    let forked = house.all("POST", &format!("{path}/fork"), &json!({"at": "main/t0/m1"}));
    assert_eq!(forked.status, 200, "{}", forked.body);
    let fork = forked.json()["run"].as_str().unwrap().to_owned();
    let shown = house.ended(&fork);
    assert_eq!((&shown["state"], &shown["forked"]["run"]), (&json!("done"), &json!(run)), "{shown}");
}

/// The list and the costs hear of a run when it ends; what is shown of one that goes on is read from its record.
#[test]
fn a_run_that_goes_on_is_counted_as_far_as_it_has_come() {
    let call = FakeReply::calls([FakeCall::new("write_file", json!({"path": "x.md", "content": "x"}))]);
    let usage = fake_llm::FakeUsage { input: 1_000_000, output: 0, cache_read: 0, cache_write: 0, reasoning: 0 };
    let fake = FakeLlm::start(FakeScript::new().reply(call.with_usage(usage)));
    let house = House::with(ConnectionBounds::default(), |plan| support::ask(plan, &fake));
    let run = house.begin(&json!({"project": "demo", "model": ["anthropic:claude-haiku-4-5"]}));
    house.question();
    let listed = || house.all("GET", "/api/runs", &Value::Null).json()["runs"][0].clone();
    let line = house.until(|| Some(listed()).filter(|line| line["requests"] == 1));
    let cost = line["cost"].as_f64().unwrap();
    assert!(cost > 0.5, "{line}");
    assert_eq!((&line["state"], &line["id"]), (&json!("waits"), &json!(run)));
    let costs = house.until(|| {
        let costs = house.all("GET", "/api/costs", &Value::Null).json();
        (costs["today_usd"].as_f64() == Some(cost)).then_some(costs)
    });
    assert_eq!((&costs["agent"][0]["name"], &costs["dearest"][0]["run"]), (&json!("main"), &json!(run)), "{costs}");
    // Once it has ended it is counted once.
    house.all("POST", &format!("/api/runs/{run}/cancel"), &Value::Null);
    assert_eq!(house.ended(&run)["state"], "stopped");
    let costs = house.all("GET", "/api/costs", &Value::Null).json();
    assert_eq!((&costs["today_usd"], &costs["day"][0]["runs"]), (&json!(cost), &json!(1)), "{costs}");
}

#[test]
fn what_was_allowed_for_a_session_is_listed_and_asked_about_again() {
    let house = House::new();
    let chat = house.begin(&json!({"project": "demo", "input": "Write a haiku", "chat": true}));
    let question = house.question();
    let path = format!("/api/questions/{}", question["digest"].as_str().unwrap());
    assert_eq!(house.all("POST", &path, &json!({"answer": "tool"})).status, 200);
    let session = format!("/api/runs/{chat}/session");
    let shown = house.until(|| {
        let shown = house.all("GET", &session, &Value::Null).json();
        (shown["granted"] != json!([])).then_some(shown)
    });
    assert_eq!(shown["granted"], json!([{"agent": "main", "tool": "write_file", "only": null}]));
    assert!(shown["usage"]["by_model"].is_object(), "{shown}");
    let forget = format!("/api/runs/{chat}/forget");
    assert_eq!(house.all("POST", &forget, &json!({"number": 2})).status, 404);
    assert_eq!(house.all("POST", &forget, &json!({"number": 0})).status, 404);
    assert_eq!(house.all("POST", &forget, &json!({"number": 1})).json(), json!({"forgotten": 1}));
    assert_eq!(house.all("GET", &session, &Value::Null).json()["granted"], json!([]));
    house.all("POST", &format!("/api/runs/{chat}/close"), &Value::Null);
    house.until(|| (house.all("GET", &session, &Value::Null).status == 409).then_some(()));
}

#[test]
fn one_key_is_one_run() {
    let house = House::new();
    let asked = json!({"project": "plain", "input": "hello", "once": "today"});
    let first = house.all("POST", "/api/runs", &asked);
    let run = first.json()["run"].as_str().unwrap().to_owned();
    house.ended(&run);
    let again = house.all("POST", "/api/runs", &asked);
    assert_eq!((again.status, &again.json()["run"], &again.json()["new"]), (200, &json!(run), &json!(false)));
    let other = house.all("POST", "/api/runs", &json!({"project": "plain", "input": "bye", "once": "today"}));
    assert_eq!(other.status, 409, "{}", other.body);
}

#[test]
fn a_chat_is_kept_changed_closed_and_continued() {
    let house = House::new();
    let chat = house.begin(&json!({"project": "plain", "input": "one", "chat": true}));
    let turns = |count: u64| {
        house.until(|| {
            let shown = house.all("GET", &format!("/api/runs/{chat}?messages=true"), &Value::Null).json();
            (shown["turns"] == count && shown["busy"] == false).then_some(shown)
        })
    };
    assert!(turns(1)["messages"].to_string().contains("You said one."));
    let path = format!("/api/runs/{chat}");
    assert_eq!(house.all("POST", &format!("{path}/turns"), &json!({"input": "two"})).status, 200);
    turns(2);
    let undone = house.all("POST", &format!("{path}/change"), &json!({"undo": {}}));
    assert_eq!(undone.json(), json!({"undone": true}), "{}", undone.body);
    let seen = house.all("POST", &format!("{path}/change"), &json!({"look": {}})).json();
    assert!(!seen["messages"].to_string().contains("two") && seen["messages"].to_string().contains("one"), "{seen}");
    let shown = house.all("GET", &format!("{path}?messages=true"), &Value::Null).json();
    assert!(!shown["messages"].to_string().contains("two"), "what was forgotten is not shown: {shown}");
    assert_eq!(house.all("POST", &format!("{path}/close"), &Value::Null).json()["closed"], true);
    house.until(|| {
        let shown = house.all("GET", &path, &Value::Null).json();
        (shown["own"] == false && shown["state"] == "done").then_some(())
    });
    assert_eq!(house.all("POST", &format!("{path}/turns"), &json!({"input": "three"})).status, 200);
    house.until(|| {
        let shown = house.all("GET", &format!("{path}?messages=true"), &Value::Null).json();
        shown["messages"].to_string().contains("You said three.").then_some(())
    });
}

/// As at the terminal, where `check` notes it: the model may be named when a run begins.
#[test]
fn a_project_without_a_model_is_shown_and_begins_with_one() {
    let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("Yes.")));
    let house = House::with(ConnectionBounds::default(), |plan| support::ask(plan, &fake));
    house.write("plain/main.worker", "---\nname: main\n---\nAnswer.");
    let checked = house.all("GET", "/api/projects/plain/check", &Value::Null).json();
    assert_eq!((&checked["ok"], &checked["agents"][0]["model"]), (&json!(true), &Value::Null), "{checked}");
    assert_eq!(checked["picture"]["boxes"][0]["model"], "no model yet");
    let without = house.all("POST", "/api/runs", &json!({"project": "plain", "input": "x"}));
    assert_eq!((without.status, &without.json()["error"]["code"]), (422, &json!("project")), "{}", without.body);
    let model = "anthropic:claude-haiku-4-5";
    let run = house.begin(&json!({"project": "plain", "input": "x", "model": [model]}));
    assert_eq!(house.ended(&run)["answer"], "Yes.");
}

#[test]
fn a_project_is_shown_with_what_it_can_do() {
    let house = House::new();
    let checked = house.all("GET", "/api/projects/demo/check", &Value::Null).json();
    assert_eq!(
        (&checked["ok"], &checked["trusted"], &checked["entry"]),
        (&json!(true), &json!(true), &json!({"agent": "main"}))
    );
    assert_eq!(
        checked["agents"][0]["tools"].as_array().unwrap().iter().filter(|tool| tool["name"] == "write_file").count(),
        1
    );
    assert_eq!(checked["picture"]["boxes"][0]["is_entry"], true);
    house.write("plain/main.worker", "---\nname: main\nmodle: x\n---\nHi.");
    let wrong = house.all("GET", "/api/projects/plain/check", &Value::Null).json();
    assert_eq!(wrong["ok"], false);
    assert!(wrong["errors"].to_string().contains("modle"), "{wrong}");
    let costs = house.all("GET", "/api/costs?days=7", &Value::Null).json();
    assert_eq!(costs["today_usd"], 0.0);
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn the_description_of_the_api_names_every_route_and_is_whole() {
    let house = House::new();
    let document = house.all("GET", "/api/openapi.json", &Value::Null).json();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths["/api/runs"]["post"]["requestBody"].is_object());
    let template = |path: &str| {
        let path = path.split('?').next().unwrap();
        path.replace("aaaaaaaaaaaaaaaa", "{id}").replace("/0000", "/{id}").replace("/demo/", "/{name}/")
    };
    let served: BTreeSet<(String, String)> = ROUTES
        .iter()
        .filter(|(_, path)| *path != "/")
        .filter(|(method, _)| *method != "DELETE")
        .filter(|(_, path)| *path != "/api/openapi.json")
        .map(|(method, path)| (template(path), method.to_lowercase()))
        .collect();
    let told = paths
        .iter()
        .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|method| (path.clone(), method.clone())));
    assert_eq!(told.collect::<BTreeSet<_>>(), served);
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn what_waits_when_the_server_goes_waits_in_its_record() {
    let mut house = House::new();
    let run = house.begin(&json!({"project": "demo"}));
    let before = house.question();
    house.restart(|_| {});
    let after = house.question();
    assert_eq!((&after["digest"], &after["own"]), (&before["digest"], &json!(false)));
    assert_eq!((&before["after"], &after["after"]), (&json!("goes_on"), &json!("goes_on_here")));
    let path = format!("/api/questions/{}", after["digest"].as_str().unwrap());
    let session = house.all("POST", &path, &json!({"answer": "tool"}));
    assert_eq!(session.status, 400, "{}", session.body);
    let answered = house.all("POST", &path, &json!({"answer": "once"}));
    assert_eq!((answered.status, &answered.json()["goes_on"]), (200, &json!(true)), "{}", answered.body);
    assert_eq!(house.ended(&run)["state"], "done");
}

#[test]
fn work_of_other_projects_is_shown_and_named_by_its_command() {
    let mut house = House::new();
    let run = house.begin(&json!({"project": "demo"}));
    house.question();
    house.restart(|plan| plan.projects.retain(|project| project.ends_with("plain")));
    let question = house.question();
    assert_eq!(question["after"], "is_kept");
    let path = format!("/api/questions/{}", question["digest"].as_str().unwrap());
    let answered = house.all("POST", &path, &json!({"answer": "once"})).json();
    assert_eq!((&answered["goes_on"], &answered["command"]), (&json!(false), &json!(format!("llm-do resume {run}"))));
    let resumed = house.all("POST", &format!("/api/runs/{run}/resume"), &json!({}));
    assert_eq!((resumed.status, &resumed.json()["error"]["command"]), (403, &json!(format!("llm-do resume {run}"))));
}

#[test]
fn a_server_that_only_shows_starts_and_answers_nothing() {
    let house = House::with(ConnectionBounds::default(), |plan| plan.is_read_only = true);
    assert_eq!(house.send("GET", "/api/runs", &[("authorization", &house.bearer(KeyKind::Look))], "").status, 200);
    for kind in [KeyKind::All, KeyKind::Ask] {
        assert_eq!(house.send("GET", "/api/runs", &[("authorization", &house.bearer(kind))], "").status, 403);
    }
}

#[test]
fn a_question_that_was_answered_elsewhere_says_by_whom() {
    let house = House::new();
    let run = house.begin(&json!({"project": "demo"}));
    let question = house.question();
    let digest = question["digest"].as_str().unwrap();
    house.answer_elsewhere(&run, digest, "ben");
    let reply = house.until(|| {
        let reply = house.all("POST", &format!("/api/questions/{digest}"), &json!({"answer": "refuse"}));
        (reply.status == 409).then_some(reply)
    });
    assert_eq!(reply.json()["error"]["by"], "ben", "{}", reply.body);
    assert_eq!(house.ended(&run)["state"], "done");
}

mod v1 {
    use super::*;

    fn ask(house: &House, asked: &Value) -> Reply {
        let bearer = house.bearer(KeyKind::Ask);
        house.send("POST", "/v1/chat/completions", &[("authorization", &bearer)], &asked.to_string())
    }

    fn user(model: &str, text: &str) -> Value {
        json!({"model": model, "messages": [{"role": "user", "content": text}]})
    }

    #[test]
    fn agents_are_listed_as_models() {
        let house = House::new();
        let listed = house.send("GET", "/v1/models", &[("authorization", &house.bearer(KeyKind::Ask))], "").json();
        let names: Vec<&str> =
            listed["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(names, ["demo/main", "plain/main", "typed/main"]);
    }

    #[test]
    fn each_request_is_a_run_that_is_kept() {
        let house = House::new();
        let mut asked = user("plain/main", "hello");
        asked["temperature"] = json!(0.5);
        let reply = ask(&house, &asked);
        assert_eq!(reply.status, 200, "{}", reply.body);
        let answer = reply.json();
        assert_eq!(answer["choices"][0]["message"]["content"], "You said hello.");
        assert_eq!((&answer["choices"][0]["finish_reason"], &answer["model"]), (&json!("stop"), &json!("plain/main")));
        assert_eq!(reply.headers["x-llm-do-ignored"], "temperature");
        let shown = house.ended(answer["id"].as_str().unwrap());
        assert_eq!((&shown["kind"], &shown["state"]), (&json!("v1"), &json!("done")));
    }

    #[test]
    fn earlier_messages_are_history_and_the_clients_words_are_marked() {
        let house = House::new();
        let asked = json!({"model": "plain/main", "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ]});
        let answer = ask(&house, &asked).json();
        let run = answer["id"].as_str().unwrap();
        house.ended(run);
        let shown = house.all("GET", &format!("/api/runs/{run}?messages=true"), &Value::Null).json();
        let said = shown["messages"].to_string();
        assert!(["one", "two", "three"].iter().all(|word| said.contains(word)), "{said}");
        let call = house.all("GET", &format!("/api/runs/{run}/call?key=main/t0"), &Value::Null).json();
        let parts = call["parts"].to_string();
        assert!(parts.contains("It is the client who says this") && parts.contains("Be brief."), "{parts}");
    }

    #[test]
    fn a_stream_has_the_same_words_and_ends() {
        let house = House::new();
        let mut asked = user("plain/main", "hello");
        asked["stream"] = json!(true);
        asked["stream_options"] = json!({"include_usage": true});
        let reply = ask(&house, &asked);
        assert_eq!(reply.headers["content-type"], "text/event-stream");
        let chunks: Vec<&str> = reply.body.split("\n\n").filter_map(|chunk| chunk.strip_prefix("data: ")).collect();
        assert_eq!(chunks.last(), Some(&"[DONE]"));
        let read: Vec<Value> =
            chunks[..chunks.len() - 1].iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
        let text: String = read.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, "You said hello.");
        assert_eq!(read[read.len() - 2]["choices"][0]["finish_reason"], "stop");
        assert!(read.last().unwrap()["usage"]["total_tokens"].is_u64());
    }

    #[test]
    fn a_call_that_must_ask_never_hangs() {
        let house = House::new();
        let reply = ask(&house, &user("demo/main", "harbour"));
        let (answer, question) = (reply.json(), reply.headers["x-llm-do-question"].clone());
        let words = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(words.contains("`write_file`") && words.contains(&question[..12]), "{words}");
        let run = answer["id"].as_str().unwrap();
        let answered = house.all("POST", &format!("/api/questions/{question}"), &json!({"answer": "once"}));
        assert_eq!(answered.json()["goes_on"], true, "{}", answered.body);
        let shown = house.ended(run);
        assert_eq!(shown["state"], "done");
        assert!(shown["answer"].as_str().unwrap().contains("haiku.md"), "{shown}");
        let mut asked = user("demo/main", "harbour");
        asked["stream"] = json!(true);
        let streamed = ask(&house, &asked);
        assert!(streamed.body.contains("\"metadata\":{\"x-llm-do-question\":\""), "{}", streamed.body);
    }

    /// With a provider that answers so, for the agent `main` of `cloud`.
    fn with_provider(fake: &FakeLlm, worker: &str) -> House {
        House::with(ConnectionBounds::default(), |plan| {
            let place = plan.projects[0].parent().unwrap().to_owned();
            std::fs::create_dir(place.join("cloud")).unwrap();
            std::fs::write(place.join("cloud/main.worker"), worker).unwrap();
            std::fs::write(place.join("cloud/note.txt"), "").unwrap();
            support::ask(plan, fake);
            plan.projects.push(place.join("cloud"));
        })
    }

    const CLOUD: &str =
        "---\nname: main\nmodel: anthropic:claude-haiku-4-5\nmodel_settings: {max_tokens: 900}\n---\nAnswer.";

    #[test]
    fn an_answer_is_as_long_as_client_and_agent_allow_and_pictures_come_with_the_request() {
        let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("Seen.")));
        let house = with_provider(&fake, CLOUD);
        // The smallest picture that there is.
        let picture =
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
        let mut asked = json!({"model": "cloud/main", "max_tokens": 70, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{picture}")}},
        ]}]});
        for (most, expected) in [(70, 70), (9000, 900)] {
            asked["max_tokens"] = json!(most);
            let reply = ask(&house, &asked);
            assert_eq!(reply.status, 200, "{}", reply.body);
            let requests = fake.requests();
            let seen = requests.last().unwrap().seen.as_ref().unwrap();
            assert_eq!(seen.longest_answer, Some(expected));
            assert!(format!("{seen:?}").contains("iVBORw0KGgo"), "{seen:?}");
        }
    }

    #[test]
    fn what_is_said_before_a_call_and_after_it_stands_apart() {
        let script = FakeScript::new()
            .reply(FakeReply::text("I look.").and_calls([FakeCall::new("list_files", json!({}))]))
            .reply(FakeReply::text("There is a note."));
        let fake = FakeLlm::start(script);
        let house =
            with_provider(&fake, &CLOUD.replace("---\nAnswer", "toolsets: [filesystem_project_ro]\n---\nAnswer"));
        let mut asked = user("cloud/main", "Look");
        asked["stream"] = json!(true);
        let reply = ask(&house, &asked);
        let chunks = reply.body.split("\n\n").filter_map(|chunk| chunk.strip_prefix("data: "));
        let read = chunks.filter_map(|chunk| serde_json::from_str::<Value>(chunk).ok());
        let text: String =
            read.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect();
        assert_eq!(text, "I look.\n\nThere is a note.");
    }

    #[test]
    fn limits_and_troubles_of_providers_are_told_apart() {
        let fake = FakeLlm::start(FakeScript::new().fault(On::Every, InjectedFault::status(400)));
        let house = with_provider(&fake, CLOUD);
        let failed = ask(&house, &user("cloud/main", "x"));
        assert_eq!((failed.status, &failed.json()["error"]["code"]), (502, &json!("provider")), "{}", failed.body);
        let mut asked = user("cloud/main", "x");
        asked["stream"] = json!(true);
        let streamed = ask(&house, &asked);
        assert!(
            streamed.body.contains("\"code\":\"provider\"") && streamed.body.ends_with("data: [DONE]\n\n"),
            "{}",
            streamed.body
        );
        let fake =
            FakeLlm::start(FakeScript::new().otherwise(FakeReply::calls([FakeCall::new("list_files", json!({}))])));
        let house = with_provider(
            &fake,
            &CLOUD.replace("---\nAnswer", "toolsets: [filesystem_project_ro]\nlimits: {max_requests: 2}\n---\nAnswer"),
        );
        let limited = ask(&house, &user("cloud/main", "x"));
        assert_eq!(
            (limited.status, &limited.json()["error"]["code"]),
            (400, &json!("limit_reached")),
            "{}",
            limited.body
        );
    }

    #[test]
    fn instructions_that_are_made_of_a_template_take_no_more_words() {
        let fake = FakeLlm::start(FakeScript::new().otherwise(FakeReply::text("Yes.")));
        let house = with_provider(
            &fake,
            &CLOUD.replace("---\nAnswer", "schema_in: {type: object, properties: {topic: {type: string}}, required: [topic]}\nprompt: \"About {{ topic }}\"\n---\nAnswer"),
        );
        let said = json!({"role": "user", "content": "{\"topic\": \"cranes\"}"});
        assert_eq!(ask(&house, &json!({"model": "cloud/main", "messages": [said]})).status, 200);
        let system = json!({"role": "system", "content": "Be brief."});
        let refused = ask(&house, &json!({"model": "cloud/main", "messages": [system, said]}));
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("messages")), "{}", refused.body);
        let missing = ask(&house, &user("cloud/main", "{}"));
        assert!(missing.status == 400 && missing.error().contains("topic"), "{}", missing.body);
    }

    #[test]
    fn what_cannot_be_answered_is_told_in_their_shape() {
        let house = House::new();
        let with = |model: &str, field: &str, value: Value| {
            let mut asked = user(model, "x");
            asked[field] = value;
            asked
        };
        for (asked, status, code) in [
            (user("plain/nobody", "x"), 404, "model_not_found"),
            (user("nothing/main", "x"), 404, "model_not_found"),
            (user("gpt-4", "x"), 404, "model_not_found"),
            (with("plain/main", "tools", json!([{"type": "function"}])), 400, "wrong_request"),
            (with("plain/main", "response_format", json!({"type": "json_object"})), 400, "wrong_request"),
            (with("plain/main", "messages", json!([])), 400, "wrong_request"),
            (user("typed/main", "no JSON"), 400, "wrong_request"),
            (user("typed/main", "{\"place\": 1}"), 400, "wrong_request"),
            (
                with(
                    "plain/main",
                    "messages",
                    json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/"}}]}]),
                ),
                400,
                "wrong_request",
            ),
            (with("limited/main", "messages", json!([{"role": "user", "content": "x"}])), 404, "model_not_found"),
        ] {
            let reply = ask(&house, &asked);
            assert_eq!(
                (reply.status, &reply.json()["error"]["code"]),
                (status, &json!(code)),
                "{asked}: {}",
                reply.body
            );
            assert!(reply.json()["error"]["message"].is_string());
        }
        let wrong = house.send("POST", "/v1/chat/completions", &[("authorization", "Bearer x")], "{}");
        assert_eq!((wrong.status, &wrong.json()["error"]["type"]), (401, &json!("authentication_error")));
    }

    #[test]
    fn typed_agents_take_and_give_json() {
        let house = House::new();
        let mut asked = user("typed/main", "{\"place\": \"quay\"}");
        asked["response_format"] = json!({"type": "json_object"});
        let reply = ask(&house, &asked);
        assert_eq!(reply.status, 200, "{}", reply.body);
        let content = reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        assert_eq!(serde_json::from_str::<Value>(&content).unwrap(), json!({"wind": "west"}));
    }
}

#[test]
fn of_three_answers_at_once_one_counts_in_a_hundred_races() {
    let house = House::new();
    for race in 0..100 {
        let run = house.begin(&json!({"project": "demo"}));
        let question = house.question();
        let digest = question["digest"].as_str().unwrap();
        let by_page = |answer: &'static str| {
            let house = &house;
            move || house.all("POST", &format!("/api/questions/{digest}"), &json!({"answer": answer})).status == 200
        };
        let counted = std::thread::scope(|scope| {
            let answers = [
                scope.spawn(by_page("once")),
                scope.spawn(by_page("refuse")),
                scope.spawn(|| house.try_answer_elsewhere(&run, digest, "ben")),
            ];
            answers.into_iter().map(|answered| usize::from(answered.join().unwrap())).sum::<usize>()
        });
        assert_eq!(counted, 1, "race {race}");
        house.ended(&run);
    }
}

#[test]
fn what_asks_waits_in_the_list_whoever_runs_it() {
    let house = House::new();
    let run = house.begin(&json!({"project": "demo"}));
    house.question();
    let waits = house.all("GET", "/api/runs?state=waits", &Value::Null).json();
    assert_eq!((&waits["runs"][0]["id"], &waits["runs"][0]["waits"]), (&json!(run), &json!("write_file")));
    assert_eq!(house.all("GET", "/api/runs?state=running", &Value::Null).json()["runs"], json!([]));
    assert!(house.all("GET", "/api/runs?text=write_file", &Value::Null).body.contains(&run));
}

#[test]
fn new_keys_open_and_old_ones_do_not() {
    let mut house = House::new();
    let old = KeyKind::EACH.map(|kind| house.bearer(kind));
    house.restart(|plan| plan.has_new_keys = true);
    for bearer in old {
        assert_eq!(house.send("GET", "/api/me", &[("authorization", &bearer)], "").status, 401);
    }
    assert_eq!(house.all("GET", "/api/me", &Value::Null).status, 200);
}

#[test]
fn a_certificate_that_cannot_be_used_is_found_before_anything_is_served() {
    use llm_do_web::guard::TlsFiles;
    let place = tempfile::tempdir().unwrap();
    let files = TlsFiles { certificate: place.path().join("cert.pem"), key: place.path().join("key.pem") };
    let wrong = |files: &TlsFiles| files.read().unwrap_err();
    assert!(wrong(&files).contains("cert.pem"), "{}", wrong(&files));
    let [one, other] = [(); 2].map(|()| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
    std::fs::write(&files.certificate, one.cert.pem()).unwrap();
    assert!(wrong(&files).contains("key.pem"), "{}", wrong(&files));
    std::fs::write(&files.key, other.signing_key.serialize_pem()).unwrap();
    assert!(files.read().is_err(), "the key is of another one");
    std::fs::write(&files.key, one.signing_key.serialize_pem()).unwrap();
    assert!(files.read().is_ok());
}

#[test]
fn with_a_certificate_nothing_is_said_in_the_open() {
    use llm_do_web::guard::TlsFiles;
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let house = House::with(ConnectionBounds::default(), |plan| {
        let place = plan.projects[0].parent().unwrap();
        let files = TlsFiles { certificate: place.join("cert.pem"), key: place.join("key.pem") };
        std::fs::write(&files.certificate, signed.cert.pem()).unwrap();
        std::fs::write(&files.key, signed.signing_key.serialize_pem()).unwrap();
        plan.tls = Some(files);
    });
    let mut roots = RootCertStore::empty();
    roots.add(signed.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(std::sync::Arc::new(crypto::ring::default_provider()));
    let config =
        config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth();
    let connection = ClientConnection::new(std::sync::Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, house.connect());
    let (bearer, port) = (house.bearer(KeyKind::Look), house.at.port());
    let asked = format!(
        "GET /api/me HTTP/1.0\r\nHost: localhost:{port}\r\nOrigin: https://localhost:{port}\r\nAuthorization: {bearer}\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    // Whoever speaks in the open hears nothing.
    assert_ne!(house.all("GET", "/api/me", &Value::Null).status, 200);
}

#[test]
fn as_many_runs_go_on_as_there_is_room_for() {
    let house = House::new();
    for _ in 0..32 {
        house.begin(&json!({"project": "demo"}));
    }
    let more = house.all("POST", "/api/runs", &json!({"project": "demo"}));
    assert_eq!((more.status, &more.json()["error"]["code"]), (429, &json!("busy")));
    let asked = json!({"model": "plain/main", "messages": [{"role": "user", "content": "x"}]});
    let bearer = house.bearer(KeyKind::Ask);
    let client = house.send("POST", "/v1/chat/completions", &[("authorization", &bearer)], &asked.to_string());
    assert_eq!(client.status, 429, "{}", client.body);
}
