//! A run that goes on where somebody sits.

use std::fs;

use crate::session::KEY;
use crate::terminal::Terminal;
use crate::{JOURNAL, begin, resume, writer};

#[test]
fn what_waits_is_asked_at_the_terminal_and_the_answer_is_shown_whole() {
    let (sandbox, fake) = writer();
    begin(&sandbox, &fake, &[]).failure(4);
    let url = fake.anthropic_url();
    let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)];
    let terminal = Terminal::start(sandbox.command(&["resume", JOURNAL], &variables));
    terminal.expect(" explain").answer("q");
    let left = terminal.left();
    assert_eq!(left.code, Some(4), "{}", left.screen);
    assert!(left.screen.contains("`llm-do resume run.journal` asks again"), "{}", left.screen);

    let terminal = Terminal::start(sandbox.command(&["resume", JOURNAL], &variables));
    terminal.expect(" explain").answer("y");
    let left = terminal.left();
    assert_eq!(left.code, Some(0), "{}", left.screen);
    assert!(left.screen.contains("Result: wrote 4 characters to a.txt"), "{}", left.screen);
    assert_eq!(fs::read_to_string(sandbox.path().join("a.txt")).unwrap(), "new\n");

    let again = Terminal::start(sandbox.command(&["resume", JOURNAL], &variables)).left();
    assert!(again.screen.contains("Result: wrote 4 characters to a.txt"), "{}", again.screen);
    assert_eq!(resume(&sandbox, &fake, &[]).answer(), "Result: wrote 4 characters to a.txt\n");
    assert_eq!(fake.requests().len(), 2);
}

#[test]
fn an_interrupted_run_says_how_it_goes_on() {
    let (sandbox, fake) = writer();
    let url = fake.anthropic_url();
    let variables = [("ANTHROPIC_BASE_URL", url.as_str()), ("ANTHROPIC_API_KEY", KEY)];
    let terminal = Terminal::start(sandbox.command(&["run", ".", "hi", "--journal", JOURNAL], &variables));
    terminal.expect(" explain").press("\x03");
    let left = terminal.left();
    assert_eq!(left.code, Some(130), "{}", left.screen);
    assert!(left.screen.contains("`llm-do resume run.journal` goes on where it stopped"), "{}", left.screen);
    assert_eq!(resume(&sandbox, &fake, &["--approve-all"]).answer(), "Result: wrote 4 characters to a.txt\n");
}
