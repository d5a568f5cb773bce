//! What a shell offers for the word that is being typed. The scripts of `completions` call `llm-do __complete`: with all that they
//! know of the line, and they understand nothing of it themselves. A mistake is never said here: nothing is offered then.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use llm_do::Project;
use llm_do_launch::settings::Settings;

use crate::args::{self, COMMANDS, ListRunsArgs, ShellArg};
use crate::commands::models::askable;
use crate::commands::runs::list;
use crate::environment::Environment;

/// The script for a shell.
pub fn script(shell: ShellArg) -> &'static str {
    match shell {
        ShellArg::Bash => include_str!("complete/llm-do.bash"),
        ShellArg::Zsh => include_str!("complete/llm-do.zsh"),
        ShellArg::Fish => include_str!("complete/llm-do.fish"),
    }
}

/// More are of no help.
const MOST: usize = 400;

/// What can stand in the place of a word, and what it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CompletionWord {
    word: String,
    about: String,
}

impl CompletionWord {
    fn new(word: impl Into<String>, about: impl Into<String>) -> Self {
        let about: String = about.into();
        let about = about.lines().next().unwrap_or_default().replace('\t', " ");
        Self { word: word.into(), about }
    }
}

/// What is wanted in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CompletionPlace {
    Words(Vec<CompletionWord>),
    Projects,
    Models,
    /// Of the project that was typed.
    Agents,
    Runs,
    /// The shell knows files.
    Files,
}

/// `__complete bash LINE BREAKS`, `__complete zsh WORD…` and `__complete fish WORD…`, the word that is being typed last.
pub fn run(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let Some((shell, rest)) = words.split_first() else { return String::new() };
    let (line, breaks) = match (shell.as_str(), rest) {
        ("bash", [line, breaks, ..]) => (split(line), breaks.as_str()),
        (_, rest) => (rest.to_vec(), ""),
    };
    let found = offered(&line);
    let current = line.last().map(String::as_str).unwrap_or_default();
    // Bash takes the part behind the last of its break characters for the word.
    let kept = current.rfind(|letter| breaks.contains(letter)).map_or(0, |at| at + 1);
    let mut text = String::new();
    for CompletionWord { word, about } in found.into_iter().take(MOST) {
        if word.chars().any(char::is_control) {
            continue;
        }
        text.push_str(if word.starts_with(current) { &word[kept..] } else { &word });
        if shell != "bash" && !about.is_empty() {
            text.push('\t');
            text.push_str(&llm_do::escape::visible(&about));
        }
        text.push('\n');
    }
    text
}

/// The words of a line as far as it was typed, the last of them unfinished.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_escaped, mut is_begun) =
        (Vec::new(), String::new(), None, false, false);
    for letter in line.chars() {
        match (quote, letter) {
            _ if is_escaped => {
                word.push(letter);
                is_escaped = false;
            }
            (None | Some('"'), '\\') => (is_escaped, is_begun) = (true, true),
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), letter) => word.push(letter),
            (None, '\'' | '"') => (quote, is_begun) = (Some(letter), true),
            (None, letter) if letter.is_whitespace() => {
                if is_begun {
                    words.push(std::mem::take(&mut word));
                }
                is_begun = false;
            }
            (None, letter) => {
                word.push(letter);
                is_begun = true;
            }
        }
    }
    words.push(word);
    words
}

/// What can stand in the place of the last word, which begins with what was typed of it.
fn offered(line: &[String]) -> Vec<CompletionWord> {
    let Some((current, before)) = line.split_last() else { return Vec::new() };
    let root = args::command();
    let (wanted, start) = wanted(&root, before, current);
    let typed = &current[start.len()..];
    let mut found: Vec<CompletionWord> =
        wanted.into_iter().flat_map(|wanted| candidates(wanted, before, typed)).collect();
    found.retain(|candidate| candidate.word.starts_with(typed));
    found.sort();
    found.dedup_by(|one, other| one.word == other.word);
    found
        .into_iter()
        .map(|candidate| CompletionWord { word: format!("{start}{}", candidate.word), ..candidate })
        .collect()
}

/// What is wanted behind these words, and which part of the current one belongs to none of it.
fn wanted(root: &Command, before: &[String], current: &str) -> (Vec<CompletionPlace>, String) {
    let words = before.get(1..).unwrap_or_default();
    let Some(first) = words.first() else {
        let flags = ["--help", "--version"].map(|flag| CompletionWord::new(flag, ""));
        let run = root.find_subcommand("run").map(flags_of).unwrap_or_default();
        let wanted = if current.starts_with('-') {
            vec![CompletionPlace::Words(flags.into_iter().chain(run).collect())]
        } else {
            vec![CompletionPlace::Words(commands_of(root)), CompletionPlace::Projects]
        };
        return (wanted, String::new());
    };
    let is_command = COMMANDS.contains(&first.as_str());
    let (mut command, mut rest) = match root.find_subcommand(first).filter(|_| is_command) {
        Some(command) => (command, &words[1..]),
        None => (root.find_subcommand("run").unwrap_or(root), words),
    };
    while let Some(inner) = rest.first().and_then(|word| command.find_subcommand(word)) {
        (command, rest) = (inner, &rest[1..]);
    }
    let takes_value = |argument: &&Arg| matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let flag = |word: &str| command.get_arguments().find(|argument| is_flag(argument, word)).filter(takes_value);
    if let Some((name, _)) = current.split_once('=').filter(|(name, _)| name.starts_with("--")) {
        let wanted = flag(name).map(|argument| vec![values_of(argument)]).unwrap_or_default();
        return (wanted, format!("{name}="));
    }
    if let Some(argument) = rest.last().and_then(|word| flag(word)).filter(|argument| !argument.is_require_equals_set())
    {
        return match (values_of(argument), current.split_once('=')) {
            // The model of one agent, or of all.
            (CompletionPlace::Models, Some((agent, _))) => (vec![CompletionPlace::Models], format!("{agent}=")),
            (wanted, _) => (vec![wanted], String::new()),
        };
    }
    if current.starts_with('-') {
        return (vec![CompletionPlace::Words(flags_of(command))], String::new());
    }
    let mut wanted = Vec::new();
    let positionals = positionals_in(rest, flag);
    if positionals == 0 && command.has_subcommands() {
        wanted.push(CompletionPlace::Words(commands_of(command)));
    }
    let last =
        || command.get_positionals().last().filter(|argument| matches!(argument.get_action(), ArgAction::Append));
    wanted.extend(command.get_positionals().nth(positionals).or_else(last).map(values_of));
    (wanted, String::new())
}

/// How many words are no flags and no values of them.
fn positionals_in<'a>(words: &[String], flag: impl Fn(&str) -> Option<&'a Arg>) -> usize {
    let (mut count, mut is_value) = (0, false);
    for word in words {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if word.starts_with('-') && word != "-" {
            is_value = flag(word).is_some_and(|argument| !argument.is_require_equals_set());
        } else {
            count += 1;
        }
    }
    count
}

fn is_flag(argument: &Arg, word: &str) -> bool {
    let long = || argument.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
    let short = || argument.get_short().is_some_and(|short| word.strip_prefix('-') == Some(short.to_string().as_str()));
    long() || short()
}

fn about_of(help: Option<&clap::builder::StyledStr>) -> String {
    help.map(ToString::to_string).unwrap_or_default()
}

fn commands_of(command: &Command) -> Vec<CompletionWord> {
    let shown = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    shown.map(|inner| CompletionWord::new(inner.get_name(), about_of(inner.get_about()))).collect()
}

fn flags_of(command: &Command) -> Vec<CompletionWord> {
    let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let flag = |argument: &Arg| {
        let long = argument.get_long()?;
        Some(CompletionWord::new(format!("--{long}"), about_of(argument.get_help())))
    };
    shown.filter_map(flag).chain([CompletionWord::new("--help", "Print help")]).collect()
}

/// What can be the value of an argument.
fn values_of(argument: &Arg) -> CompletionPlace {
    let possible = argument.get_possible_values();
    if !possible.is_empty() {
        let value =
            |value: &clap::builder::PossibleValue| CompletionWord::new(value.get_name(), about_of(value.get_help()));
        return CompletionPlace::Words(possible.iter().filter(|value| !value.is_hide_set()).map(value).collect());
    }
    match argument.get_id().as_str() {
        "project" => CompletionPlace::Projects,
        "models" | "used" => CompletionPlace::Models,
        "agent" => CompletionPlace::Agents,
        "run" | "runs" | "continued" => CompletionPlace::Runs,
        "prompt" | "filter" => CompletionPlace::Words(Vec::new()),
        _ => CompletionPlace::Files,
    }
}

/// Looks for what is wanted. Nothing of a project runs, and nobody is asked over the network.
fn candidates(wanted: CompletionPlace, before: &[String], typed: &str) -> Vec<CompletionWord> {
    match wanted {
        CompletionPlace::Words(words) => words,
        CompletionPlace::Files => Vec::new(),
        CompletionPlace::Projects => projects(typed),
        CompletionPlace::Agents => agents(before),
        CompletionPlace::Models => {
            let environment = Environment::read();
            let config = llm_do_launch::config::Config::load(environment.config_file().as_deref());
            let models = config.map(|config| askable(&environment, &config)).unwrap_or_default();
            let chosen =
                agents(before).into_iter().map(|agent| CompletionWord { word: format!("{}=", agent.word), ..agent });
            let all = CompletionWord::new("all=", "every agent");
            models.into_iter().map(|(name, why)| CompletionWord::new(name, why)).chain(chosen).chain([all]).collect()
        }
        CompletionPlace::Runs => runs().unwrap_or_default(),
    }
}

/// Directories, worker files and manifests, as far as a path was typed.
fn projects(typed: &str) -> Vec<CompletionWord> {
    let (directory, _) = typed.rsplit_once('/').map_or(("", typed), |(directory, name)| (directory, name));
    let start = if typed.contains('/') { format!("{directory}/") } else { String::new() };
    let place = if start.is_empty() { "." } else { start.as_str() };
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let candidate = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
        let path = entry.path();
        let is_file = name == "project.json" || Path::new(&name).extension().is_some_and(|it| it == "worker");
        let end = if path.is_dir() { Some("/") } else { is_file.then_some("") };
        Some(CompletionWord::new(format!("{start}{name}{}", end?), ""))
    };
    entries.flatten().take(10_000).filter_map(candidate).collect()
}

/// The agents of the project that was typed, or of the one in this directory.
fn agents(before: &[String]) -> Vec<CompletionWord> {
    let words = before.iter().skip(1).filter(|word| !word.starts_with('-') && !COMMANDS.contains(&word.as_str()));
    let typed = words.map(String::as_str).find(|word| Path::new(word).exists());
    let Ok(project) = Project::load(typed.unwrap_or(".")) else { return Vec::new() };
    let models = llm_do::ModelChoices { may_be_open: true, ..llm_do::ModelChoices::default() };
    let Ok(survey) = project.survey(&models, None) else { return Vec::new() };
    let agents = survey.program.agents.values();
    agents.map(|agent| CompletionWord::new(&*agent.name, &*agent.description)).collect()
}

/// The newest runs of this user.
fn runs() -> Option<Vec<CompletionWord>> {
    let settings = Settings::load(Environment::read().variables, std::sync::Arc::new(|_| {})).ok()?;
    let args = ListRunsArgs { all: true, lines: Some(50), ..ListRunsArgs::default() };
    let lines = list::listed(&args, &settings).ok()?;
    let about = |line: &llm_do::store::index::IndexLine<'_>| {
        let label = line.label.as_deref().unwrap_or_default();
        format!("{} {label}", line.project).trim_end().to_owned()
    };
    Some(lines.iter().map(|line| CompletionWord::new(line.id.to_string(), about(line))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        let cases = [
            ("llm-do run --mo", &["llm-do", "run", "--mo"][..]),
            ("llm-do p ", &["llm-do", "p", ""]),
            ("llm-do 'my desk' -m a:b", &["llm-do", "my desk", "-m", "a:b"]),
            ("llm-do my\\ desk \"it's", &["llm-do", "my desk", "it's"]),
            ("", &[""]),
        ];
        for (line, words) in cases {
            assert_eq!(split(line), words, "{line}");
        }
    }

    fn words(line: &str) -> Vec<String> {
        offered(&split(line)).into_iter().map(|candidate| candidate.word).collect()
    }

    #[test]
    fn flags_and_their_values_are_offered_in_their_places() {
        assert_eq!(words("llm-do run --mo"), ["--model"]);
        assert_eq!(words("llm-do p --fi"), ["--file"]);
        assert_eq!(words("llm-do p hi --output-f"), ["--output-format"]);
        assert_eq!(words("llm-do p --output-format st"), ["stream-json"]);
        assert_eq!(words("llm-do p --output-format=st"), ["--output-format=stream-json"]);
        assert_eq!(words("llm-do completions "), ["bash", "fish", "zsh"]);
        assert_eq!(words("llm-do runs sh"), ["show"]);
        assert_eq!(words("llm-do chek"), [""; 0]);
        assert!(words("llm-do che").contains(&"check".to_owned()));
        assert!(words("llm-do p -m all").contains(&"all=".to_owned()));
        assert!(!words("llm-do ").iter().any(|word| word.starts_with("__")));
        assert!(words("llm-do p -f ").is_empty(), "the shell knows files");
    }

    /// Every flag that there is can be completed from its first letters.
    #[test]
    fn every_flag_of_every_command_is_offered() {
        fn check(command: &Command, path: &str) {
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let Some(long) = argument.get_long() else { continue };
                let line = format!("{path} --{}", &long[..1]);
                assert!(words(&line).contains(&format!("--{long}")), "{line} {long}");
            }
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                check(inner, &format!("{path} {}", inner.get_name()));
            }
        }
        args::command().get_subcommands().for_each(|command| check(command, &format!("llm-do {}", command.get_name())));
    }
}
