//! The commands of a chat: one table, which `/help`, completion and the documentation are made of. Pure.

use llm_do::escape::visible;
use llm_do::names;

/// What a person wants instead of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatCommand {
    Help,
    /// The entry's model from the next turn on, or which there is.
    Model(Option<String>),
    Clear,
    /// Old turns are summarised, and above all what is about this.
    Compact(Option<String>),
    /// What models think is shown, or not any more.
    Think,
    Undo,
    /// The last turn again, by another model if one is named.
    Retry(Option<String>),
    /// The chat into this file.
    Save(String),
    /// The result with this number, whole.
    Show(usize),
    Approvals(ApprovalsCommand),
    Tools,
    Cost,
    Runs,
    Exit,
}

/// What becomes of what runs without a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalsCommand {
    List,
    /// The one with this number of the list.
    Forget(usize),
    ForgetAll,
}

/// What a line that was typed means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypedLine {
    /// It goes to the model.
    Said(String),
    Nothing,
    Command(ChatCommand),
    /// It is meant as a command and is none: why.
    Mistaken(String),
}

/// A row of the table.
struct CommandRow {
    /// The first one is shown, all are understood.
    names: &'static [&'static str],
    /// What may follow it.
    arguments: &'static str,
    words: &'static str,
    /// What it means with what follows it, without the blanks around that.
    read: fn(&str) -> Option<ChatCommand>,
}

const ROWS: &[CommandRow] = &[
    CommandRow { names: &["/help"], arguments: "", words: "this list", read: |rest| alone(rest, ChatCommand::Help) },
    CommandRow {
        names: &["/model"],
        arguments: "[NAME]",
        words: "another model from now on; alone: what has a key",
        read: |rest| named(rest, ChatCommand::Model),
    },
    CommandRow {
        names: &["/undo"],
        arguments: "",
        words: "forget the last turn; changed files stay changed",
        read: |rest| alone(rest, ChatCommand::Undo),
    },
    CommandRow {
        names: &["/retry"],
        arguments: "[MODEL]",
        words: "forget the last turn and say it again",
        read: |rest| named(rest, ChatCommand::Retry),
    },
    CommandRow {
        names: &["/clear"],
        arguments: "",
        words: "forget everything that was said: another run begins",
        read: |rest| alone(rest, ChatCommand::Clear),
    },
    CommandRow {
        names: &["/compact"],
        arguments: "[FOCUS]",
        words: "summarise old turns now, and keep what is about FOCUS",
        read: |rest| Some(ChatCommand::Compact((!rest.is_empty()).then(|| rest.to_owned()))),
    },
    CommandRow {
        names: &["/save"],
        arguments: "FILE",
        words: "the chat as Markdown into a new file",
        read: |rest| (!rest.is_empty()).then(|| ChatCommand::Save(rest.to_owned())),
    },
    CommandRow {
        names: &["/show"],
        arguments: "N",
        words: "the result of the N-th call, whole",
        read: |rest| rest.parse().ok().filter(|number| *number > 0).map(ChatCommand::Show),
    },
    CommandRow {
        names: &["/approvals"],
        arguments: "[forget N|all]",
        words: "what runs unasked, and until when; ask again",
        read: approvals,
    },
    CommandRow {
        names: &["/tools"],
        arguments: "",
        words: "what the agent can call, and what asks, as of now",
        read: |rest| alone(rest, ChatCommand::Tools),
    },
    CommandRow {
        names: &["/cost", "/usage"],
        arguments: "",
        words: "tokens and money so far, by model",
        read: |rest| alone(rest, ChatCommand::Cost),
    },
    CommandRow {
        names: &["/think"],
        arguments: "",
        words: "show what the model thinks, or hide it again",
        read: |rest| alone(rest, ChatCommand::Think),
    },
    CommandRow {
        names: &["/runs"],
        arguments: "",
        words: "the runs of this project",
        read: |rest| alone(rest, ChatCommand::Runs),
    },
    CommandRow {
        names: &["/exit", "/quit", "exit", "quit"],
        arguments: "",
        words: "end the chat (also Ctrl-D)",
        read: |rest| alone(rest, ChatCommand::Exit),
    },
];

fn alone(rest: &str, command: ChatCommand) -> Option<ChatCommand> {
    rest.is_empty().then_some(command)
}

/// With one word, or none.
fn named(rest: &str, command: fn(Option<String>) -> ChatCommand) -> Option<ChatCommand> {
    match rest.split_whitespace().count() {
        0 => Some(command(None)),
        1 => Some(command(Some(rest.to_owned()))),
        _ => None,
    }
}

fn approvals(rest: &str) -> Option<ChatCommand> {
    let words: Vec<&str> = rest.split_whitespace().collect();
    let wanted = match words.as_slice() {
        [] => ApprovalsCommand::List,
        ["forget", "all"] => ApprovalsCommand::ForgetAll,
        ["forget", number] => ApprovalsCommand::Forget(number.parse().ok().filter(|number| *number > 0)?),
        _ => return None,
    };
    Some(ChatCommand::Approvals(wanted))
}

/// What Tab completes.
pub fn completed() -> Vec<&'static str> {
    ROWS.iter().flat_map(|row| row.names).copied().filter(|name| name.starts_with('/')).collect()
}

/// What `/help` shows: every command, then the keys, as far as they are read here and not by the terminal.
pub fn help(is_edited: bool) -> String {
    let call = |row: &CommandRow| format!("{} {}", row.names[0], row.arguments).trim_end().to_owned();
    let width = ROWS.iter().map(|row| call(row).len()).max().unwrap_or_default();
    let line = |row: &CommandRow| format!("{:width$}  {}\n", call(row), row.words);
    let rows: String = ROWS.iter().map(line).collect();
    format!("{rows}{}{WORDS}", if is_edited { KEYS } else { PLAIN_KEYS })
}

const KEYS: &str = "\
Enter sends; Ctrl-J, Alt+Enter or a final `\\` begins a new line. Ctrl-C stops
the turn, gives up a line, and ends the chat when pressed twice without one.
While an answer comes: Enter queues the line, Tab says it at once, and what is
left stands in the next line. A question takes keys once it shows `Allow?`.
`@path` sends that file too; Tab completes it. Ctrl-X Ctrl-E opens your editor.
Ctrl-O shows the last result whole that was cut.
";

const PLAIN_KEYS: &str = "\
Enter sends. Ctrl-C stops the turn, and ends the chat when pressed twice without
one. `@path` sends that file too.
";

const WORDS: &str = "\
A path such as `/etc/passwd` is text. A leading space sends a line as it is.
";

/// What a line means that a person typed.
pub fn read(line: &str) -> TypedLine {
    let text = line.trim();
    if text.is_empty() {
        return TypedLine::Nothing;
    }
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let row = ROWS.iter().find(|row| row.names.contains(&first));
    let is_sent = line.starts_with(char::is_whitespace) || first.matches('/').count() > 1;
    match row {
        // `exit code 3 means what?` is a question.
        Some(_) if !first.starts_with('/') && !rest.is_empty() => TypedLine::Said(text.to_owned()),
        Some(row) if !is_sent => match (row.read)(rest.trim()) {
            Some(command) => TypedLine::Command(command),
            None => {
                let usage = format!("{} {}", row.names[0], row.arguments);
                TypedLine::Mistaken(format!("it is `{}`: {}", usage.trim_end(), row.words))
            }
        },
        None if first.starts_with('/') && !is_sent => {
            let instead = names::instead(first, "commands", completed());
            let shown = visible(first);
            TypedLine::Mistaken(format!("there is no command {shown}; {instead}; a leading space sends it as it is"))
        }
        Some(_) | None => TypedLine::Said(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_them_too() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../llm-do-web/page/chat.js")).unwrap();
        for name in ROWS.iter().flat_map(|row| row.names) {
            let is_there = [format!("[\"{name}"), format!("\"{name}\": "), format!("{name}: \"/")];
            assert!(is_there.iter().any(|said| page.contains(said)), "{name} is no command of a chat in the page");
        }
    }

    #[test]
    fn a_line_is_a_command_or_is_said() {
        let said = |text: &str| TypedLine::Said(text.to_owned());
        let command = TypedLine::Command;
        let cases = [
            ("hello", said("hello")),
            ("", TypedLine::Nothing),
            ("  ", TypedLine::Nothing),
            ("/help", command(ChatCommand::Help)),
            (" /help", said("/help")),
            ("/etc/passwd has what?", said("/etc/passwd has what?")),
            ("/model", command(ChatCommand::Model(None))),
            ("/model  ollama:qwen3 ", command(ChatCommand::Model(Some("ollama:qwen3".to_owned())))),
            ("/retry ollama:qwen3", command(ChatCommand::Retry(Some("ollama:qwen3".to_owned())))),
            ("/save my chat.md", command(ChatCommand::Save("my chat.md".to_owned()))),
            ("/show 3", command(ChatCommand::Show(3))),
            ("/approvals", command(ChatCommand::Approvals(ApprovalsCommand::List))),
            ("/approvals forget 2", command(ChatCommand::Approvals(ApprovalsCommand::Forget(2)))),
            ("/approvals forget all", command(ChatCommand::Approvals(ApprovalsCommand::ForgetAll))),
            ("/usage", command(ChatCommand::Cost)),
            ("/think", command(ChatCommand::Think)),
            ("/compact", command(ChatCommand::Compact(None))),
            ("/compact  the crane ", command(ChatCommand::Compact(Some("the crane".to_owned())))),
            ("exit", command(ChatCommand::Exit)),
            ("quit", command(ChatCommand::Exit)),
            ("/quit", command(ChatCommand::Exit)),
            ("exit code 3 means what?", said("exit code 3 means what?")),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line:?}");
        }
        for (line, words) in [
            ("/hepl", "there is no command /hepl; did you mean"),
            ("/hepl", "a leading space sends it as it is"),
            ("/show", "it is `/show N`"),
            ("/show 0", "it is `/show N`"),
            ("/undo it", "it is `/undo`: forget the last turn"),
            ("/model a b", "it is `/model [NAME]`"),
            ("/approvals forget", "it is `/approvals [forget N|all]`"),
            ("/save", "it is `/save FILE`"),
        ] {
            assert!(
                matches!(read(line), TypedLine::Mistaken(said) if said.contains(words)),
                "{line}: {:?}",
                read(line)
            );
        }
    }

    #[test]
    fn every_row_is_in_the_help_and_completed() {
        let [help, plain] = [help(true), help(false)];
        assert!(plain.contains("/undo") && !plain.contains("Ctrl-O") && !plain.contains("Tab"), "{plain}");
        for row in ROWS {
            assert!(help.lines().any(|line| line.starts_with(row.names[0]) && line.ends_with(row.words)), "{help}");
            assert!(completed().contains(&row.names[0]));
        }
        assert!(help.lines().chain(plain.lines()).all(|line| line.chars().count() <= 80), "{help}{plain}");
    }
}
