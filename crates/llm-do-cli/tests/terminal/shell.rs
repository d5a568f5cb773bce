//! What bash offers for a word that is being typed, with a real Tab.

use std::path::Path;
use std::process::Command;

use crate::support::Sandbox;
use crate::terminal::Terminal;

#[test]
fn bash_completes_flags_models_and_agents_at_tab() {
    let sandbox = Sandbox::new();
    sandbox.file("p/main.worker", "---\nname: main\n---\nAnswer.\n");
    let program = Path::new(env!("CARGO_BIN_EXE_llm-do"));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", program.parent().unwrap().display());
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-i"]).current_dir(sandbox.path()).env_clear();
    command.env("PATH", path).env("HOME", sandbox.path()).env("TERM", "xterm").env("PS1", "$ ");
    command.env("ANTHROPIC_API_KEY", "k").env("INPUTRC", "/dev/null");
    let terminal = Terminal::start(command);
    terminal.expect("$ ").press("source <(llm-do completions bash); echo rea''dy\n");
    terminal.expect("\nready");
    let typed = [
        ("llm-do run --mo", "llm-do run --model "),
        ("llm-do p --fi", "llm-do p --file "),
        ("llm-do p -m anthropic:claude-haiku-4", "llm-do p -m anthropic:claude-haiku-4-5 "),
        ("llm-do p -m main=anthropic:claude-haiku-4", "llm-do p -m main=anthropic:claude-haiku-4-5 "),
        ("llm-do p -a ma", "llm-do p -a main "),
        ("llm-do p -f p/m", "llm-do p -f p/main.worker "),
        ("llm-do che", "llm-do check "),
    ];
    for (line, completed) in typed {
        // Behind what was completed, so that it is known to be there; then the line is emptied.
        terminal.press(&format!("{line}\t|")).expect(&format!("{completed}|")).press("\u{15}");
    }
    terminal.press("exit\n");
    assert_eq!(terminal.left().code, Some(0));
}
