//! What a person does with runs in the page, in a real browser.

use std::fs;
use std::process::Stdio;
use std::sync::Barrier;

use fake_llm::{At, FakeCall, FakeLlm, FakeReply, FakeScript, InjectedFault, On, StallGate};
use parts::is_wanted;
use serde_json::{Value, json};

use super::browser::{Browser, TAB};
use super::desk::{Desk, until, write};

const MODEL: &str = "anthropic:claude-haiku-4-5";

/// A model that writes a file and says what came of it.
fn writer() -> FakeScript {
    let call = FakeCall::new("write_file", json!({"path": "haiku.md", "content": "The new crane, asleep.\n"}));
    let said = "The crane sleeps. Its lamp is out. Nobody is on the quay. I write that down.";
    FakeScript::new()
        .reply(FakeReply::text(said).and_calls([call]).in_deltas(40))
        .reply(FakeReply::text("That was all."))
}

fn with(desk: Desk, fake: &FakeLlm) -> Desk {
    desk.with("ANTHROPIC_BASE_URL", &fake.anthropic_url()).with("ANTHROPIC_API_KEY", "k")
}

/// Starts a run in the page as a person does.
fn start(browser: &Browser, project: &str, prompt: &str, model: Option<&str>) {
    browser.script("location.hash = arguments[0]", &[json!(format!("#/project/{project}"))]);
    browser.fill("form textarea", prompt);
    if let Some(model) = model {
        browser.click("form summary");
        browser.fill("form input[placeholder='provider:model']", model);
    }
    browser.click_words("Start");
    browser.until("location.hash.startsWith('#/run/')");
}

fn run_of(browser: &Browser) -> String {
    browser.value("location.hash.split('/')[2]").as_str().unwrap().to_owned()
}

#[test]
fn a_run_streams_asks_and_writes_what_was_approved() {
    if !is_wanted("chromium") {
        return;
    }
    let gate = StallGate::new();
    let stalled = InjectedFault::Stall { at: At::Percent(30), gate: gate.clone() };
    let fake = FakeLlm::start(writer().fault(On::Request(1), stalled));
    let mut desk = with(Desk::new(), &fake);
    desk.serve(&["demo"]);
    let browser = desk.browser();
    assert!(!browser.value("location.href").as_str().unwrap().contains("k="), "the key has left the address");
    start(&browser, "demo", "Write a haiku", Some(MODEL));
    browser.sees("The crane sleeps.");
    browser.sees("streams from this server");
    assert!(!browser.page().contains("I write that down."), "the rest has not come yet");
    // Whatever is pressed in the moment in which the question appears was meant for something else.
    browser.script(
        "new MutationObserver((_, all) => { const yes = document.querySelector('.question .main'); if (yes) { all.disconnect(); \
         yes.click(); window.wasEarly = true; } }).observe(document.body, { childList: true, subtree: true });",
        &[],
    );
    gate.release();
    browser.until("window.wasEarly");
    browser.there_is(".question");
    assert!(browser.page().contains("creates haiku.md"), "{}", browser.page());
    browser.rests();
    assert!(!desk.path("demo/drafts/haiku.md").exists());
    browser.press(&["y"]);
    browser.sees("That was all.");
    assert_eq!(desk.read("demo/drafts/haiku.md"), "The new crane, asleep.\n");
    browser.until("document.querySelector('.head .pill')?.textContent === 'done'");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    fake.assert_finished();
}

#[test]
fn the_model_reads_why_it_was_refused() {
    if !is_wanted("chromium") {
        return;
    }
    let fake = FakeLlm::start(writer());
    let mut desk = with(Desk::new(), &fake);
    desk.serve(&["demo"]);
    let browser = desk.browser();
    start(&browser, "demo", "Write a haiku", Some(MODEL));
    browser.there_is(".question");
    browser.rests();
    browser.press(&["n"]);
    browser.there_is("dialog textarea");
    browser.types("not on a Sunday");
    browser.press(&[TAB, super::browser::ENTER]);
    browser.sees("That was all.");
    assert!(!desk.path("demo/drafts/haiku.md").exists());
    let requests = fake.requests();
    let read = requests[1].seen.as_ref().unwrap().last_result().unwrap().to_owned();
    assert!(read.contains("not on a Sunday"), "{read}");
}

#[test]
fn an_edited_call_is_shown_again_before_it_runs() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.serve(&["demo"]);
    let browser = desk.browser();
    browser.press(&["3"]);
    browser.click_words("Start");
    browser.there_is(".question");
    browser.rests();
    browser.press(&["e"]);
    browser.there_is("dialog textarea");
    assert_eq!(browser.value("document.querySelector('dialog textarea').value"), "The new crane, asleep.\n");
    browser.fill("dialog textarea", "Rain on the quay.");
    browser.click_words("Show the difference");
    browser.until("document.querySelector('.question pre').innerText.includes('+ Rain on the quay.')");
    assert!(!browser.value("document.querySelector('.question pre').innerText").as_str().unwrap().contains("asleep"));
    assert!(!desk.path("demo/drafts/haiku.md").exists());
    browser.rests();
    browser.press(&["y"]);
    browser.sees("The haiku is in drafts/haiku.md.");
    assert_eq!(desk.read("demo/drafts/haiku.md"), "Rain on the quay.");
}

#[test]
fn of_two_browsers_and_a_terminal_one_answers_and_the_others_are_told_who() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.serve(&["demo"]);
    let run = desk.begin(&json!({"project": "demo"}));
    let digest = desk.question()["digest"].as_str().unwrap().to_owned();
    let (first, second) = (desk.browser(), desk.browser());
    for browser in [&first, &second] {
        browser.press(&["2"]);
        browser.there_is(".question");
        browser.rests();
    }
    second.press(&["n"]);
    second.there_is("dialog");
    let line_up = Barrier::new(3);
    let (by_yes, by_no, by_hand) = std::thread::scope(|scope| {
        let yes = scope.spawn(|| {
            line_up.wait();
            first.script("document.querySelector('.question .main').click()", &[]);
            first.until("document.getElementById('said').textContent")
        });
        let no = scope.spawn(|| {
            second.script("document.getElementById('said').replaceChildren()", &[]);
            line_up.wait();
            second.script("document.querySelector('dialog button.main').click()", &[]);
            second.until("document.getElementById('said').textContent")
        });
        let hand = scope.spawn(|| {
            line_up.wait();
            let ended = desk.command(&["inbox", "approve", &digest]).env("USER", "ben").output().unwrap();
            (String::from_utf8_lossy(&ended.stderr).into_owned(), ended.status.success())
        });
        (yes.join().unwrap(), no.join().unwrap(), hand.join().unwrap())
    });
    let said = [by_yes.as_str().unwrap(), by_no.as_str().unwrap(), by_hand.0.as_str()];
    let counted = said[..2].iter().filter(|said| said.starts_with("answered;")).count() + usize::from(by_hand.1);
    assert_eq!(counted, 1, "{said:?}");
    let told =
        said.iter().filter(|said| said.contains("already") && (said.contains("ann") || said.contains("ben"))).count();
    assert_eq!(told, 2, "{said:?}");
    desk.until_run(&run, "done");
}

#[test]
fn a_killed_server_loses_nothing() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.serve(&["demo"]);
    let browser = desk.browser();
    start(&browser, "demo", "Write a haiku", None);
    let run = run_of(&browser);
    browser.there_is(".question");
    desk.kill();
    desk.serve(&["demo"]);
    browser.reload();
    browser.there_is(".question");
    browser.sees("shown from its record");
    browser.rests();
    browser.press(&["y"]);
    browser.sees("The haiku is in drafts/haiku.md.");
    desk.until_run(&run, "done");
    assert_eq!(desk.read("demo/drafts/haiku.md"), "The new crane, asleep.\n");
}

#[test]
fn a_run_of_another_process_appears_is_followed_and_stopped() {
    if !is_wanted("chromium") {
        return;
    }
    let gate = StallGate::new();
    let script = FakeScript::new()
        .reply(FakeReply::calls([FakeCall::new("list_files", json!({}))]))
        .reply(FakeReply::text("Never said."))
        .fault(On::Request(2), InjectedFault::StallBeforeHead(gate.clone()));
    let fake = FakeLlm::start(script);
    let mut desk = with(Desk::new(), &fake);
    desk.serve(&["demo"]);
    let browser = desk.browser();
    browser.sees("No run is kept yet.");
    let mut other = desk.command(&["run", "demo", "-m", MODEL, "--label", "elsewhere"]);
    let other = other.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    gate.wait_until_reached(1);
    browser.until("document.querySelector('tbody .pill.running')");
    browser.sees("elsewhere");
    browser.click("tbody a.name");
    browser.sees("shown from its record");
    browser.until("[...document.querySelectorAll('.line')].some((line) => line.textContent.includes('list_files'))");
    browser.click_words("Stop");
    browser.until("document.querySelector('.head .pill')?.textContent === 'stopped'");
    let ended = other.wait_with_output().unwrap();
    assert!(!ended.status.success(), "{ended:?}");
}

#[test]
fn a_chat_is_begun_continued_and_found_again() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.serve(&["plain"]);
    let browser = desk.browser();
    browser.press(&["4"]);
    browser.click_words("New chat with plain");
    browser.until("location.hash.startsWith('#/chat/')");
    browser.there_is("textarea");
    browser.fill("textarea", "one");
    browser.press_with_control(super::browser::ENTER);
    browser.sees("You said one.");
    browser.until("!document.querySelector('button.main').disabled");
    // A file is attached, as it would be by dropping it.
    let file = write(&desk.path("plain"), "note.txt", "A note.");
    browser.choose_file("input[type=file]", &file);
    browser.sees("note.txt (7 B)");
    browser.fill("textarea", "two");
    browser.click_words("Send");
    browser.sees("You said two");
    browser.until("!document.querySelector('button.main').disabled");
    browser.fill("textarea", "/undo");
    browser.press_with_control(super::browser::ENTER);
    browser.until("!document.querySelector('.talk').innerText.includes('two')");
    browser.fill("textarea", "/help");
    browser.press_with_control(super::browser::ENTER);
    browser.sees("/retry");
    desk.kill();
    desk.serve(&["plain"]);
    browser.open(desk.address());
    browser.press(&["4"]);
    browser.click("tbody a.name");
    browser.sees("You said one.");
    browser.fill("textarea", "three");
    browser.press_with_control(super::browser::ENTER);
    browser.sees("You said three.");
}

/// Types a line into a chat and sends it.
#[track_caller]
fn say(browser: &Browser, line: &str) {
    browser.script("document.getElementById('said').replaceChildren()", &[]);
    browser.fill("textarea", line);
    browser.press_with_control(super::browser::ENTER);
}

#[test]
fn a_chat_has_the_commands_of_the_terminal() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.serve(&["demo"]);
    let browser = desk.browser();
    browser.press(&["4"]);
    browser.click_words("New chat with demo");
    browser.until("location.hash.startsWith('#/chat/')");
    browser.there_is("textarea");
    say(&browser, "Write a haiku");
    browser.there_is(".question");
    browser.script("document.activeElement.blur()", &[]);
    browser.rests();
    browser.press(&["t"]);
    browser.sees("The haiku is in drafts/haiku.md.");
    browser.until("!document.querySelector('button.main').disabled");
    browser.sees("1 write_file");
    say(&browser, "/show 1");
    browser.sees("wrote 23 characters to haiku.md");
    say(&browser, "/show 2");
    browser.sees("calls have the numbers 1 to 1");
    say(&browser, "/tools");
    browser.sees("write_file – allowed until the chat is closed");
    browser.sees("read_file – allow");
    say(&browser, "/approvals");
    browser.sees("main › write_file with any arguments");
    say(&browser, "/approvals forget 1");
    browser.sees("it is asked about again");
    say(&browser, "/approvals");
    browser.sees("Nothing was allowed for this session");
    say(&browser, "/usage");
    browser.sees("scripted:script.yaml – 0 tokens in");
    say(&browser, "/compact");
    browser.sees("there is nothing to summarise yet");
    say(&browser, "/think");
    browser.sees("what the model thinks is shown");
    say(&browser, "/save talk.md");
    browser.sees("saved as talk.md");
    say(&browser, "/nothing");
    browser.sees("there is no command /nothing");
    // A path is text, and so is what begins with a space.
    for text in ["/etc/passwd", " /undo"] {
        say(&browser, text);
        browser.there_is(".question");
        browser.until(&format!("document.querySelector('.talk').innerText.includes({})", json!(text.trim())));
        browser.script("document.activeElement.blur()", &[]);
        browser.rests();
        browser.press(&["y"]);
        browser
            .until("document.querySelector('.question') === null && !document.querySelector('button.main').disabled");
    }
    // A file is dropped.
    browser.script(
        "const data = new DataTransfer(); data.items.add(new File(['A note.'], 'note.txt')); \
         document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }))",
        &[],
    );
    browser.sees("note.txt (7 B)");
    say(&browser, "exit");
    browser.until("location.hash === '#/runs'");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_run_is_forked_from_a_call_and_exported_into_a_file() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.serve(&["demo"]);
    let run = desk.begin(&json!({"project": "demo"}));
    let digest = desk.question()["digest"].as_str().unwrap().to_owned();
    assert_eq!(desk.api("POST", &format!("/api/questions/{digest}"), &json!({"answer": "once"})).0, 200);
    desk.until_run(&run, "done");
    let browser = desk.browser();
    browser.script("location.hash = arguments[0]", &[json!(format!("#/run/{run}"))]);
    browser.sees("The haiku is in drafts/haiku.md.");
    // By the keyboard: past the request to the second call, with its arguments and its result.
    browser.until("document.querySelector('.line.at')");
    browser.press(&["j", "j"]);
    browser.until("document.querySelector('.stick h3')?.textContent === 'write_file'");
    browser.sees("wrote 23 characters to haiku.md");
    browser.click_words("Fork from here");
    browser.click("dialog button.main");
    browser.until(&format!("location.hash.startsWith('#/run/') && !location.hash.endsWith({})", json!(run)));
    browser.sees("fork of");
    browser.there_is(".question");
    let fork = run_of(&browser);
    browser.rests();
    browser.press(&["y"]);
    desk.until_run(&fork, "done");

    let (page, complaints, code) = desk.run(&["runs", "export", &run, "--format", "html"]);
    assert_eq!(code, Some(0), "{complaints}");
    let file = desk.path("run.html");
    fs::write(&file, page).unwrap();
    desk.kill();
    let offline = Browser::start();
    offline.open(&format!("file://{}", file.display()));
    offline.sees("The haiku is in drafts/haiku.md.");
    assert_eq!(offline.value("document.querySelectorAll('details.call:not([hidden])').length"), 2);
    offline.fill("#filter", "write_file");
    offline.until("document.querySelector('details.call').textContent.includes('write_file')");
    offline.fill("#filter", "nothing like this");
    offline.until("document.querySelectorAll('details.call:not([hidden])').length === 0");
    let asked = offline.requests();
    assert!(asked.iter().all(|address| address.starts_with("file://")), "{asked:?}");
    assert_eq!(offline.complaints(), Vec::<String>::new());
}

/// Forms and scripts of a page on another port of this machine send what they can.
#[test]
fn other_pages_on_this_machine_can_send_nothing_that_counts() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.serve(&["demo", "plain"]);
    let run = desk.begin(&json!({"project": "demo"}));
    let digest = desk.question()["digest"].as_str().unwrap().to_owned();
    let root = desk.root().to_owned();
    let key = desk.key("all");
    // Even one that knew the key could not: its requests say where they come from.
    let page = format!(
        "<!doctype html><iframe name=inside></iframe>
        <form method=post target=inside enctype=text/plain action='{root}/api/questions/{digest}'><input name='{{\"answer\":\"once\",\"reason\":\"' value='\"}}'></form>
        <script>
        window.seen = [];
        const note = (words) => window.seen.push(words);
        document.forms[0].submit();
        const body = JSON.stringify({{ answer: 'once' }});
        const all = [
          fetch('{root}/api/questions/{digest}', {{ method: 'POST', body, mode: 'no-cors' }}),
          fetch('{root}/api/questions/{digest}', {{ method: 'POST', body, headers: {{ authorization: 'Bearer {key}', 'content-type': 'application/json' }} }}),
          fetch('{root}/api/runs', {{ method: 'POST', body: JSON.stringify({{ project: 'plain', input: 'x' }}), mode: 'no-cors', credentials: 'include' }}),
          fetch('{root}/api/runs', {{ headers: {{ authorization: 'Bearer {key}' }} }}).then((answer) => answer.text()).then((text) => note('READ ' + text)),
          fetch('{root}/v1/chat/completions', {{ method: 'POST', mode: 'no-cors', body: JSON.stringify({{ model: 'plain/main', messages: [{{ role: 'user', content: 'x' }}] }}) }}),
          import('{root}/assets/main.js').then(() => note('IMPORTED')),
          navigator.sendBeacon('{root}/api/questions/{digest}', body),
        ];
        Promise.allSettled(all).then((results) => {{ window.done = results.map((result) => result.status); }});
        </script>"
    );
    let site = super::desk::OtherSite::serve(page);
    let browser = Browser::start();
    browser.open(&site.address);
    let done = browser.until("window.done");
    assert_eq!(browser.value("window.seen"), json!([]), "{done}");
    // A window that is opened from there is no handle on ours either.
    browser.script("window.ours = open(arguments[0])", &[json!(format!("{root}/"))]);
    browser.until("window.ours.closed");
    let open = desk.question();
    assert_eq!((&open["digest"], &open["run"]), (&json!(digest), &json!(run)));
    let (_, runs) = desk.api("GET", "/api/runs", &Value::Null);
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    assert!(!desk.path("demo/drafts/haiku.md").exists());
    until("the end of the run", || {
        desk.api("POST", &format!("/api/runs/{run}/cancel"), &Value::Null);
        (desk.api("GET", &format!("/api/runs/{run}"), &Value::Null).1["state"] == "stopped").then_some(())
    });
}
