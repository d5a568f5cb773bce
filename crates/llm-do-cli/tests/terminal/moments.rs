//! What is said during a turn, and queued behind it, at any moment, also right before the process is killed: nothing is read twice
//! or in another order, and what was not lost with the process is read.

use fake_llm::{FakeCall, FakeLlm, FakeReply, FakeScript, Role};
use serde_json::json;

use crate::support::Sandbox;
use crate::terminal::Terminal;
use crate::{command, sandbox};

const ARGUMENTS: [&str; 4] = ["chat", "main.worker", "-m", "anthropic:claude-haiku-4-5"];
/// So many moments in one chat: its requests do not become ever longer.
const EACH: usize = 20;

/// Looks for files in each turn, and says what it has heard.
fn listener() -> FakeLlm {
    let look = || FakeReply::calls([FakeCall::new("list_files", json!({"pattern": "*"}))]);
    let script = FakeScript::new()
        .accept_foreign_history()
        .answer(move |seen| {
            let last = seen.messages.last().map(fake_llm::SeenMessage::text).unwrap_or_default();
            last.starts_with("turn").then(look)
        })
        .answer(|seen| {
            Some(FakeReply::text(&format!("I have heard it all: {}.", seen.last_user_text())).in_deltas(12))
        });
    FakeLlm::start(script)
}

/// What was said in a chat, as its last request has it.
fn heard(fake: &FakeLlm) -> Vec<String> {
    let requests = fake.requests();
    let longest = requests.iter().filter_map(|request| request.seen.as_ref()).max_by_key(|seen| seen.messages.len());
    let messages = longest.map(|seen| seen.messages.clone()).unwrap_or_default();
    let texts: Vec<String> =
        messages.iter().filter(|message| message.role == Role::User).map(fake_llm::SeenMessage::text).collect();
    // What is typed when a turn is over already stands in one line: `said1next1`.
    let all: String = texts.join(" ");
    let kinds = ["turn", "said", "next"].map(|kind| all.match_indices(kind).map(|(at, _)| at).collect::<Vec<_>>());
    let mut places: Vec<usize> = kinds.concat();
    places.sort_unstable();
    let end = |at: usize| all[at + 4..].find(|c: char| !c.is_ascii_digit()).map_or(all.len(), |end| at + 4 + end);
    places.into_iter().map(|at| all[at..end(at)].to_owned()).collect()
}

/// In the order in which they are to be read.
fn order(word: &str) -> (usize, usize) {
    let (kind, number) = word.split_at(4);
    (number.parse().unwrap(), ["turn", "said", "next"].iter().position(|known| *known == kind).unwrap())
}

fn begun(sandbox: &Sandbox, fake: &FakeLlm, more: &[&str]) -> Terminal {
    Terminal::start(command(sandbox, fake, &[&ARGUMENTS[..], more].concat()))
}

/// One chat, with a kill at every fifth moment. How often it was killed.
fn chat(first: usize, count: usize, random: &mut fastrand::Rng) -> usize {
    let (fake, sandbox) = (listener(), sandbox());
    sandbox.file("main.worker", "---\nname: main\ntoolsets: [filesystem_cwd_ro]\n---\nx\n");
    let mut terminal = begun(&sandbox, &fake, &[]);
    terminal.expect("> ");
    let mut killed = Vec::new();
    for moment in first..first + count {
        // The line editor keeps what comes together with its Enter for the next line: here a turn has begun.
        terminal.press(&format!("turn{moment}\r")).expect(&format!("> turn{moment}\n"));
        terminal.wait_for_more(random.usize(0..400));
        terminal.press(&format!("said{moment}\t"));
        terminal.wait_for_more(random.usize(0..200));
        terminal.press(&format!("next{moment}\r"));
        if moment % 5 < 4 {
            terminal.expect_written(&format!("next{moment}."), 1).expect(&format!("next{moment}.\n>"));
            continue;
        }
        terminal.wait_for_more(random.usize(0..400));
        terminal.kill();
        killed.push(moment);
        terminal = begun(&sandbox, &fake, &["--continue"]);
        if !terminal.expect_prompt_or("Finish it first?") {
            terminal.answer("y").expect_prompt_below("leave it out");
        }
    }
    terminal.press("\u{4}");
    assert_eq!(terminal.left().code, Some(0));
    let words = heard(&fake);
    let places: Vec<(usize, usize)> = words.iter().map(|word| order(word)).collect();
    assert!(places.is_sorted_by(|one, two| one < two), "twice, or in another order: {words:?}");
    for moment in (first..first + count).filter(|moment| !killed.contains(moment)) {
        for kind in ["turn", "said", "next"] {
            assert!(words.contains(&format!("{kind}{moment}")), "{kind}{moment} was not read: {words:?}");
        }
    }
    assert_eq!(fake.violations(), []);
    killed.len()
}

#[test]
fn what_is_said_at_any_moment_is_read_once_and_in_order() {
    let moments = std::env::var("LLM_DO_MOMENTS").ok().and_then(|moments| moments.parse().ok()).unwrap_or(60);
    let seed =
        std::env::var("LLM_DO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    eprintln!("SEED {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let chats = (0..moments).step_by(EACH);
    let killed: usize = chats.map(|first| chat(first, EACH.min(moments - first), &mut random)).sum();
    eprintln!("{moments} moments, {killed} kills: each read once, in order");
}
