//! Words that people know from other tools, and what means the same here. Pure.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use llm_do::names::{instead, nearest};

use crate::args::COMMANDS;

/// Where settings are; the file is put in where it is said.
const SETTINGS: &str = "settings are in CONFIG_FILE, and docs/configuration.md describes them";

/// Commands of other tools, and what to type here instead.
const COMMANDS_ELSEWHERE: &[(&[&str], &str)] = &[
    (&["init", "create", "scaffold"], "`llm-do new DIRECTORY` writes a project to start from"),
    (&["exec", "e", "start"], "`llm-do run PROJECT` runs a project once"),
    (&["repl", "talk"], "`llm-do chat PROJECT` talks to a project"),
    (&["lint", "verify"], "`llm-do check PROJECT` links a project and shows what it can do"),
    (&["graph"], "`llm-do check PROJECT --dot` prints the call graph"),
    (&["trust"], "`llm-do check PROJECT --trust` trusts a project"),
    (&["auth", "login", "logout", "providers"], "`llm-do models` shows which keys are set"),
    (&["sessions", "ls", "list", "ps", "history", "threads"], "`llm-do runs` lists the runs that are kept"),
    (&["logs", "trace", "log", "transcript"], "`llm-do runs show RUN` shows what happened in a run"),
    (&["continue"], "`llm-do chat PROJECT --continue` goes on with a chat, `llm-do resume RUN` with a run"),
    (&["replay"], "`llm-do run PROJECT --replay FILE` answers every step from a journal"),
    (&["fork", "branch"], "`llm-do runs fork RUN` goes on with a run in another way"),
    (&["kill", "stop", "cancel"], "`llm-do runs cancel RUN` ends a run in another process"),
    (&["attach", "tail", "watch"], "`llm-do runs follow RUN` shows what another process does"),
    (&["usage", "cost", "spend"], "`llm-do costs` sums up what runs cost"),
    (&["config", "settings", "set"], SETTINGS),
    (&["version"], "`llm-do --version` prints it"),
];

/// Flags of other tools, and what to type here instead.
const FLAGS_ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["-r", "--resume", "--session", "--session-id", "--thread"],
        "every run is kept: `llm-do runs` lists them, `llm-do resume RUN` goes on with one, `llm-do chat --continue` with a \
         chat",
    ),
    (&["--last"], "`llm-do resume --last` goes on with the last run, `llm-do chat --continue` with the last chat"),
    (&["--fork", "--fork-session"], "`llm-do runs fork RUN` goes on with a run in another way"),
    (&["--no-session", "--no-session-persistence", "--no-history"], "`--ephemeral` keeps nothing of a run"),
    (&["--name", "--title", "--tag"], "`--label NAME` gives a run a name"),
    (&["--idempotency-key"], "`--once KEY` runs once for a key"),
    (&["-i", "--image", "--attach", "--attachment"], "`-f FILE` attaches a file"),
    (&["--prompt", "--message", "-t", "--text"], "the prompt comes after the project: `llm-do PROJECT \"…\"`"),
    (&["--param", "--params", "--args", "--input"], "`--input-json '{…}'` gives a typed input"),
    (
        &["--allow", "--deny", "--allowedTools", "--disallowedTools", "--allowed-tools", "--permission-mode"],
        "`approval` in a worker file says what each tool may do",
    ),
    (
        &["--dangerously-skip-permissions", "--full-auto", "--auto-approve", "--yes", "-y"],
        "`--approve-all` answers every question with yes",
    ),
    (&["-s", "--sandbox"], "commands are always fenced; `llm-do check PROJECT` shows how"),
    (&["-C", "--cd", "--cwd", "--dir"], "tools work in the working directory: `cd` there first"),
    (&["--add-dir"], "a `filesystem` toolset in project.json names the directories that may be used"),
    (&["--explain", "--render", "--show-prompt"], "`--dry-run` prints the first request instead of sending it"),
    (&["--set", "--config"], SETTINGS),
    (&["--log-file", "--log"], "`-vvv 2> FILE` keeps the messages"),
    (&["--color", "--colour", "--no-color", "--no-colour"], "`NO_COLOR=1` in the environment turns colours off"),
    (&["--output-schema", "--json-schema", "--schema"], "`schema_out` in a worker file types the answer"),
    (&["--system", "--system-prompt", "--instructions"], "the instructions are the text of the worker file"),
    (&["--temperature", "--max-tokens", "--top-p", "--effort"], "`model_settings` in a worker file sets it"),
    (&["--provider"], "`-m provider:model` names both"),
    (&["--api-key", "--key"], "keys come from the provider's variable; `llm-do models` names it"),
    (&["--tui"], "`llm-do chat PROJECT` talks to a project at the terminal"),
    (&["--fake"], "`--replay FILE` answers from a record, `-m scripted:FILE` follows a script"),
];

/// What other tools mean by a command that there is not. The user's configuration is in `file`.
pub fn habit(name: &str, file: &str) -> Option<String> {
    said(COMMANDS_ELSEWHERE, name, file)
}

/// What to type instead of a command that there is not, or of a prompt that stands where the project belongs.
pub fn instead_of_command(name: &str) -> Option<String> {
    if name.contains(char::is_whitespace) {
        return Some("the prompt comes after the project: `llm-do . \"…\"` asks the one in this directory".to_owned());
    }
    if COMMANDS.contains(&name) {
        return Some(format!("flags stand behind the command: `llm-do {name} …`"));
    }
    // A word that is like no command is more likely the name of a project, so nothing is suggested for it.
    nearest(name, COMMANDS.iter().copied()).map(|_| instead(name, "commands", COMMANDS.iter().copied()))
}

/// Improves an error of clap. A flag of another tool gets what it is called here, instead of a guess by its letters;
/// a prompt that was typed without quotes gets the advice to quote it.
pub fn explained(mut error: clap::Error, file: &str) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    if !word.starts_with('-') {
        let takes_prompt = error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("[PROMPT]"));
        let tip = "a prompt of several words needs quotes".to_owned();
        return if takes_prompt { with_tip(error, tip) } else { error };
    }
    let Some(hint) = said(FLAGS_ELSEWHERE, word.split('=').next().unwrap_or(word), file) else { return error };
    // The usage is removed as well, because clap's guess changes it to the flag that was guessed.
    for guess in [ContextKind::SuggestedArg, ContextKind::Usage] {
        error.remove(guess);
    }
    with_tip(error, hint)
}

fn with_tip(mut error: clap::Error, tip: String) -> clap::Error {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

fn said(habits: &[(&[&str], &'static str)], word: &str, file: &str) -> Option<String> {
    habits.iter().find(|(words, _)| words.contains(&word)).map(|(_, hint)| hint.replace("CONFIG_FILE", file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_exists_is_explained_away() {
        for (words, _) in COMMANDS_ELSEWHERE {
            assert!(words.iter().all(|word| !COMMANDS.contains(word)), "{words:?}");
        }
        let command = crate::args::command();
        let run = command.find_subcommand("run").unwrap();
        let flags = run.get_arguments().flat_map(|argument| {
            let long = argument.get_long_and_visible_aliases().unwrap_or_default();
            let long = long.into_iter().map(|name| format!("--{name}"));
            long.chain(argument.get_short().map(|name| format!("-{name}"))).collect::<Vec<_>>()
        });
        let flags: Vec<String> = flags.collect();
        for (words, _) in FLAGS_ELSEWHERE {
            assert!(words.iter().all(|word| !flags.iter().any(|flag| flag == word)), "{words:?}");
        }
    }

    #[test]
    fn a_habit_is_told_before_a_guess() {
        assert_eq!(habit("trust", "").as_deref(), Some("`llm-do check PROJECT --trust` trusts a project"));
        let settings = "settings are in /a/config.toml, and docs/configuration.md describes them";
        assert_eq!(habit("config", "/a/config.toml").as_deref(), Some(settings));
        assert!(
            instead_of_command("chekc").unwrap().starts_with("did you mean `check`? commands: cache, chat, check, ")
        );
        let prompt = instead_of_command("What is rain?").unwrap();
        assert!(prompt.starts_with("the prompt comes after the project"), "{prompt}");
        assert_eq!(instead_of_command("examples"), None);
    }
}
