//! Every view: for everybody (`axe-core`), by keys alone, narrow, and as pictures, of which the documents show some.

use std::fs;
use std::path::PathBuf;

use parts::{is_wanted, parts, repository, target};
use serde_json::{Value, json};

use super::browser::{BACKSPACE, Browser, Colours, ENTER, ESCAPE, TAB};
use super::desk::Desk;
use super::newsroom::newsroom;

/// A view, its name in pictures, and what is there once it is drawn.
struct View {
    name: &'static str,
    address: String,
    ready: &'static str,
}

/// All of them, and what a question, a chat and a run in all their states look like.
fn views(desk: &Desk) -> Vec<View> {
    let ended = |asked: &Value, label: &str| {
        let mut asked = asked.clone();
        asked["label"] = json!(label);
        let run = desk.begin(&asked);
        let digest = desk.question()["digest"].as_str().unwrap().to_owned();
        desk.api("POST", &format!("/api/questions/{digest}"), &json!({"answer": "once"}));
        desk.until_run(&run, "done");
        run
    };
    let newsroom = json!({"project": "newsroom"});
    let done = ended(&newsroom, "morning");
    let chat = desk.begin(&json!({"project": "plain", "input": "What is a crane?", "chat": true}));
    super::desk::until("a turn", || {
        let (_, shown) = desk.api("GET", &format!("/api/runs/{chat}"), &Value::Null);
        (shown["turns"] == 1 && shown["busy"] == false).then_some(())
    });
    let stopped = desk.begin(&json!({"project": "demo", "label": "haiku"}));
    desk.question();
    desk.api("POST", &format!("/api/runs/{stopped}/cancel"), &Value::Null);
    desk.until_run(&stopped, "stopped");
    let waits = desk.begin(&json!({"project": "newsroom", "input": "What about the harbour?", "label": "evening"}));
    desk.question();
    let view = |name, address: String, ready| View { name, address, ready };
    vec![
        view("runs", "#/runs".to_owned(), "tbody tr"),
        view("run", format!("#/run/{waits}"), ".question .end"),
        view("run-done", format!("#/run/{done}"), ".stick h3"),
        view("run-stopped", format!("#/run/{stopped}"), ".stick h3"),
        view("inbox", "#/inbox".to_owned(), ".question .end"),
        view("project", "#/project/newsroom".to_owned(), ".picture svg"),
        view("project-plain", "#/project/plain".to_owned(), "form textarea"),
        view("chats", "#/chat".to_owned(), "tbody tr"),
        view("chat", format!("#/chat/{chat}"), ".message.assistant"),
        view("costs", "#/costs".to_owned(), ".costs .card"),
    ]
}

fn go(browser: &Browser, view: &View) {
    browser.script("location.hash = arguments[0]", &[json!(view.address)]);
    browser.until(&format!(
        "location.hash === {} && document.querySelector({}) !== null",
        json!(view.address),
        json!(view.ready)
    ));
}

/// What `axe-core` finds wrong with what is seen now.
#[track_caller]
fn violations(browser: &Browser, axe: &str) -> Vec<String> {
    browser.script(axe, &[]);
    browser.script("window.found = null; axe.run(document, { resultTypes: ['violations'] }).then((all) => { window.found = all; });", &[]);
    let found = browser.until(
        "window.found && { all: window.found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 4).map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ''}`).join(' | ')}`) }",
    );
    found["all"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

fn served() -> (Desk, fake_llm::FakeLlm) {
    let (mut desk, fake) = newsroom();
    desk.serve(&["newsroom", "demo", "plain"]);
    (desk, fake)
}

#[test]
fn everybody_can_use_every_view_in_either_light() {
    if !is_wanted("chromium") {
        return;
    }
    let axe = fs::read_to_string(parts().join("npm/node_modules/axe-core/axe.min.js")).unwrap();
    let (desk, _fake) = served();
    let views = views(&desk);
    let browser = desk.browser();
    let mut found = Vec::new();
    for colours in [Colours::Light, Colours::Dark] {
        browser.prefers(colours);
        for view in &views {
            go(&browser, view);
            found.extend(
                violations(&browser, &axe).into_iter().map(|one| format!("{} {}: {one}", view.name, colours.name())),
            );
        }
        // Its dialogs: the keys, an edited call, a fork.
        go(&browser, &views[1]);
        for (keys, what) in [("?", "keys"), ("e", "edit"), ("n", "refuse"), ("a", "always")] {
            browser.rests();
            browser.press(&[keys]);
            browser.there_is("dialog[open]");
            found.extend(violations(&browser, &axe).into_iter().map(|one| format!("{what} {}: {one}", colours.name())));
            browser.press(&[ESCAPE]);
            browser.until("document.querySelector('dialog') === null");
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_view_fits_in_400_pixels() {
    if !is_wanted("chromium") {
        return;
    }
    let (desk, _fake) = served();
    let views = views(&desk);
    let browser = desk.browser();
    browser.size(400, 800);
    for view in &views {
        go(&browser, view);
        let wide = browser.value(
            "document.documentElement.scrollWidth <= 400 ? [] : [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > 400).slice(0, 5).map((one) => one.outerHTML.slice(0, 120))",
        );
        assert_eq!(wide, json!([]), "{}", view.name);
        // What can be pressed is in sight, or can be scrolled to within its own box.
        let lost = browser.value(
            "[...document.querySelectorAll('main button, main a, main input, main select, main textarea')].filter((one) => one.offsetParent !== null \
             && !one.closest('.tablebox, .list, .picture, pre') && (one.getBoundingClientRect().left < 0 || one.getBoundingClientRect().right > 401)).map((one) => one.outerHTML.slice(0, 120))",
        );
        assert_eq!(lost, json!([]), "{}", view.name);
    }
}

/// Presses Tab until the focus is on such an element.
#[track_caller]
fn tab_to(browser: &Browser, selector: &str) {
    for _ in 0..80 {
        if browser.value(&format!("document.activeElement?.matches({})", json!(selector))) == json!(true) {
            return;
        }
        browser.press(&[TAB]);
    }
    panic!("no Tab leads to {selector}; the page:\n{}", browser.page());
}

#[test]
fn everything_is_done_by_the_keyboard_alone() {
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.serve(&["demo", "plain"]);
    let browser = desk.browser();
    // A run: chosen, written, begun, answered with a change, looked at.
    browser.press(&["3"]);
    browser.there_is("form textarea");
    tab_to(&browser, "form textarea");
    browser.press_with_control("a");
    browser.types("Write a haiku");
    tab_to(&browser, "form button.main");
    browser.press(&[ENTER]);
    browser.there_is(".question");
    browser.press(&["2"]);
    browser.until("location.hash === '#/inbox'");
    browser.rests();
    browser.press(&["e"]);
    browser.there_is("dialog textarea");
    browser.press_with_control("a");
    browser.types("Rain.");
    tab_to(&browser, "dialog button.main");
    browser.press(&[ENTER]);
    browser.until("document.querySelector('.question pre')?.innerText.includes('+ Rain.')");
    browser.rests();
    browser.press(&["y"]);
    browser.sees("No question is open.");
    browser.press(&["1"]);
    browser.until("document.querySelector('tbody .pill.done')");
    browser.press(&["/"]);
    browser.until("document.activeElement?.type === 'search'");
    browser.types("nothing");
    browser.sees("No run fits.");
    browser.press_with_control("a");
    browser.press(&[BACKSPACE, ESCAPE]);
    browser.until("document.querySelector('tbody .pill.done')");
    browser.press(&["j", ENTER]);
    browser.sees("The haiku is in drafts/haiku.md.");
    assert_eq!(desk.read("demo/drafts/haiku.md"), "Rain.");
    browser.until("document.querySelector('.line.at')");
    browser.press(&["j", "j"]);
    browser.until("document.querySelector('.stick h3')?.textContent === 'write_file'");
    tab_to(&browser, ".stick button");
    browser.press(&[ENTER]);
    browser.there_is("dialog[open]");
    browser.press(&[ESCAPE]);
    // A chat.
    browser.press(&["4"]);
    browser.sees("No chat is kept yet.");
    tab_to(&browser, ".head button:nth-of-type(2)");
    browser.press(&[ENTER]);
    browser.until("document.activeElement?.matches('textarea')");
    browser.types("one");
    browser.press_with_control(ENTER);
    browser.sees("You said one.");
    browser.press(&[ESCAPE, "5"]);
    browser.until("location.hash === '#/costs'");
    browser.press(&["?"]);
    browser.there_is("dialog[open]");
    browser.press(&[ESCAPE]);
    browser.until("document.querySelector('dialog') === null");
}

/// Where pictures are made; those of the documents too, if `LLM_DO_PICTURES` is set.
fn pictures() -> PathBuf {
    let directory = target().join("pictures");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Those that documents show: the view, its width and the light.
const SHOWN: [(&str, u32, Colours, &str); 2] =
    [("run", 1280, Colours::Light, "run.png"), ("project", 1280, Colours::Dark, "project.png")];

#[test]
fn every_view_is_drawn() {
    if !is_wanted("chromium") {
        return;
    }
    let (desk, _fake) = served();
    let views = views(&desk);
    let browser = desk.browser();
    go(&browser, &views[1]);
    browser.sees("one to the checker.\n");
    for (width, height) in [(1280, 860), (400, 800)] {
        browser.size(width, height);
        for colours in [Colours::Light, Colours::Dark] {
            browser.prefers(colours);
            for view in &views {
                go(&browser, view);
                browser.until("document.fonts.status === 'loaded' && document.getAnimations().every((one) => one.playState !== 'pending')");
                let picture = browser.picture();
                assert!(picture.starts_with(b"\x89PNG") && picture.len() > 4000, "{}", view.name);
                fs::write(pictures().join(format!("{}-{width}-{}.png", view.name, colours.name())), &picture).unwrap();
                let shown =
                    SHOWN.iter().find(|(name, wide, light, _)| (*name, *wide, *light) == (view.name, width, colours));
                if let Some((.., file)) = shown.filter(|_| std::env::var_os("LLM_DO_PICTURES").is_some()) {
                    fs::write(repository().join("docs/pictures").join(file), &picture).unwrap();
                }
            }
        }
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let root = desk.root().to_owned();
    let foreign: Vec<String> = browser
        .requests()
        .into_iter()
        .filter(|address| !address.starts_with(&root) && !address.starts_with("data:"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}
