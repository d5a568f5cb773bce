//! How fast the page is beside the terminal, and how much it can hold. What is compared happens at the same time on the same
//! machine, so a ratio says something where a time would not.

#![allow(clippy::print_stdout, reason = "the figures are wanted, not only that they are good")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript};
use parts::is_wanted;
use serde_json::{Value, json};

use super::desk::{Desk, until};

const MODEL: &str = "anthropic:claude-haiku-4-5";
/// The goal is twice the time of the terminal, which is printed. On a busy machine two processes share what one has, so what fails
/// is only what is slower in kind.
const SLOWEST: f64 = 6.0;

/// Milliseconds since 1970, as a page counts them.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The same run of another process is followed by `runs follow` and by the page: a call of it is seen there at most twice as late.
#[test]
fn what_another_process_does_is_seen_about_as_soon_as_at_a_terminal() {
    const FACTS: usize = 100;
    if !is_wanted("chromium") {
        return;
    }
    // A request says that the call before it has ended, and was recorded just before.
    let ended = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&ended);
    let script = FakeScript::new().latency(Duration::from_millis(300), 11).answer(move |seen| {
        let results = seen.results().count();
        if results > 0 {
            hears.lock().unwrap().push(now());
        }
        let call = FakeCall::new("list_files", json!({"path": format!("d{results}")}));
        Some(if results < FACTS { FakeReply::calls([call]) } else { FakeReply::text("done") })
    });
    let fake = FakeLlm::start(script);
    let mut desk = Desk::new().with("ANTHROPIC_BASE_URL", &fake.anthropic_url()).with("ANTHROPIC_API_KEY", "k");
    desk.write(
        "walk/main.worker",
        "---\nname: main\ntoolsets: [filesystem_project_ro]\nlimits: {max_requests: 1000}\n---\nLook.",
    );
    for fact in 0..=FACTS {
        desk.write(&format!("walk/d{fact}/file"), "");
    }
    desk.serve(&["walk"]);
    let browser = desk.browser();
    let mut other = desk.command(&["run", "walk", "-m", MODEL, "Look"]);
    let mut other = other.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let run = until("the run", || {
        let (_, runs) = desk.api("GET", "/api/runs", &Value::Null);
        runs["runs"][0]["id"].as_str().map(str::to_owned)
    });
    let mut follow =
        desk.command(&["runs", "follow", &run]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let at_terminal = std::thread::spawn(move || {
        lines.map_while(Result::ok).filter(|line| line.contains("list_files")).map(|_| now()).collect::<Vec<f64>>()
    });
    browser.script("location.hash = arguments[0]", &[json!(format!("#/run/{run}"))]);
    browser.there_is(".line");
    // The list is as high as it has lines: a call and its request, and the first line.
    browser.script(
        "window.seen = []; const list = document.querySelector('.list .pad'); const look = () => { const calls = Math.floor((parseFloat(list.style.height) / 30 - 1) / 2); \
         while (window.seen.length < calls) window.seen.push(Date.now()); }; look(); new MutationObserver(look).observe(list, { attributes: true });",
        &[],
    );
    assert!(other.wait().unwrap().success());
    browser.until("document.querySelector('.head .pill')?.textContent === 'done'");
    assert!(follow.wait().unwrap().success());
    let at_terminal = at_terminal.join().unwrap();
    let in_page = browser.value("window.seen");
    let in_page: Vec<f64> = in_page.as_array().unwrap().iter().map(|at| at.as_f64().unwrap()).collect();
    let ended: Vec<f64> = ended.lock().unwrap().clone();
    assert_eq!((ended.len(), at_terminal.len(), in_page.len()), (FACTS, FACTS, FACTS));
    // Whoever began to look late has seen the first ones late.
    let late = |seen: &[f64]| median(seen.iter().zip(&ended).skip(10).map(|(seen, ended)| seen - ended).collect());
    let (terminal, page) = (late(&at_terminal), late(&in_page));
    println!(
        "a call of another process is seen after {terminal:.0} ms at a terminal and {page:.0} ms in the page (medians)"
    );
    assert!(page <= SLOWEST * terminal, "{page} ms, {terminal} ms at a terminal");
}

/// From the key that begins a run to the first piece of its answer, at a terminal and in the page.
fn first_piece(script: FakeScript) -> (f64, f64) {
    const ROUNDS: usize = 15;
    let fake = FakeLlm::start(script.otherwise(FakeReply::text("First words of it.").in_deltas(3)));
    let mut desk = Desk::new().with("ANTHROPIC_BASE_URL", &fake.anthropic_url()).with("ANTHROPIC_API_KEY", "k");
    desk.write("talk/main.worker", "---\nname: main\nmodel: anthropic:claude-haiku-4-5\n---\nAnswer.");
    desk.serve(&["talk"]);
    let browser = desk.browser();
    let (mut terminal, mut page) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let mut run = desk.command(&["run", "talk", "Say it", "--stream"]);
        let mut run = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut first = [0; 1];
        run.stdout.take().unwrap().read_exact(&mut first).unwrap();
        terminal.push(begun.elapsed().as_secs_f64() * 1000.0);
        run.wait().unwrap();
        browser.script("location.hash = '#/costs'", &[]);
        browser.there_is(".costs");
        browser.script("location.hash = '#/project/talk'", &[]);
        browser.fill("form textarea", "Say it");
        browser.script(
            "window.first = null; new MutationObserver((_, all) => { if (document.querySelector('main').textContent.includes('First')) { \
             all.disconnect(); window.first = performance.now() - window.began; } }).observe(document.body, { childList: true, subtree: true, characterData: true }); \
             window.began = performance.now(); document.querySelector('form button.main').click();",
            &[],
        );
        page.push(browser.until("window.first").as_f64().unwrap());
        browser.sees("First words of it.");
    }
    (median(terminal), median(page))
}

#[test]
fn the_first_piece_of_an_answer_is_seen_about_as_soon_as_at_a_terminal() {
    if !is_wanted("chromium") {
        return;
    }
    let (terminal, page) = first_piece(FakeScript::new());
    println!(
        "of a model that answers at once, the first piece is seen after {terminal:.0} ms at a terminal and {page:.0} ms in the page"
    );
    // As long as the quickest models take.
    let (terminal, page) = first_piece(FakeScript::new().latency(Duration::from_millis(300), 5));
    println!("of one that thinks for up to 300 ms, after {terminal:.0} ms at a terminal and {page:.0} ms in the page");
    assert!(page <= SLOWEST * terminal, "{page} ms, {terminal} ms at a terminal");
}

#[test]
fn a_run_of_ten_thousand_calls_is_opened_scrolled_and_filtered() {
    const ROUNDS: usize = 80;
    const CALLS: usize = 125;
    if !is_wanted("chromium") {
        return;
    }
    let mut desk = Desk::new();
    desk.write(
        "many/main.worker",
        "---\nname: main\nmodel: scripted:script.yaml\ntoolsets: [filesystem_project_ro]\nlimits: {max_requests: 1000, max_tool_calls: 100000}\n---\nLook.",
    );
    let calls = |round: usize| {
        let one = |call: usize| format!("    - list_files: {{path: d{}}}\n", round * CALLS + call);
        format!("- round: {}\n  call:\n{}", round + 1, (0..CALLS).map(one).collect::<String>())
    };
    let script: String = (0..ROUNDS).map(calls).collect();
    desk.write("many/script.yaml", &format!("{script}- say: done\n"));
    let (_, complaints, code) = desk.run(&["run", "many", "Look"]);
    assert_eq!(code, Some(0), "{complaints}");
    desk.serve(&["many"]);
    let run = desk.api("GET", "/api/runs", &Value::Null).1["runs"][0]["id"].as_str().unwrap().to_owned();
    let browser = desk.browser();
    browser.sees("many › main");
    let empty = browser.memory_of_tab();
    browser.script("window.asked = performance.now(); location.hash = arguments[0]", &[json!(format!("#/run/{run}"))]);
    browser.until("document.querySelector('.stick h3')");
    let opened = browser.value("performance.now() - window.asked").as_f64().unwrap();
    let lines = browser.value("parseFloat(document.querySelector('.list .pad').style.height) / 30").as_f64().unwrap();
    assert!(lines >= 10_000.0, "{lines}");
    // To the end, and there the last call is.
    browser.script("window.asked = performance.now(); const list = document.querySelector('.list'); list.scrollTop = list.scrollHeight", &[]);
    browser.until("[...document.querySelectorAll('.list .line')].some((line) => line.textContent.includes('d9999'))");
    let scrolled = browser.value("performance.now() - window.asked").as_f64().unwrap();
    assert!(browser.value("document.querySelectorAll('.line').length").as_u64().unwrap() < 200);
    browser.press(&["/"]);
    browser.until("document.activeElement?.type === 'search'");
    browser.script("window.asked = performance.now()", &[]);
    browser.types("d7777");
    browser.until("document.querySelector('.list .pad').style.height === '30px'");
    let filtered = browser.value("performance.now() - window.asked").as_f64().unwrap();
    browser.until("document.querySelector('.list .line').textContent.includes('d7777')");
    let memory = browser.memory_of_tab();
    println!(
        "10 000 calls: opened in {opened:.0} ms, scrolled to the end in {scrolled:.0} ms, filtered in {filtered:.0} ms; the tab has {} MB, {} MB before",
        memory >> 20,
        empty >> 20
    );
    assert!(memory > 0 && memory <= 200 << 20, "{memory}");
}
