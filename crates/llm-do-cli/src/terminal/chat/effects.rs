//! What the commands of a chat do. Each gives the words that a person reads.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use llm_do::escape::{visible, visible_lines, visible_start};
use llm_do::messages::{Arguments, Reply, ToolCall, ToolResult};
use llm_do::program::Entry;
use llm_do::runs::UndoneTurn;
use llm_do::{Content, Message, ModelName, Program, Runtime};
use llm_do_launch::providers::usable;
use llm_do_launch::session::{ChangedConversation, ConversationChange, KeptTurn, Session};
use llm_do_launch::settings::Settings;

use crate::commands::check_report::verdict_words;
use crate::commands::runs;
use crate::failure::Failure;
use crate::signals::StopReason;
use crate::terminal::commands::ApprovalsCommand;
use crate::terminal::screen::{Screen, ScreenOutcome};
use crate::terminal::summary;

/// What came of a command that changes the conversation.
pub enum ChangeOutcome<T> {
    Done(T),
    /// Nothing was changed: why.
    Failed(String),
    Stopped(StopReason),
}

/// Asks for a change, and takes what came of it as far as it is of the expected sort.
async fn change<T>(
    watch: &mut Screen,
    session: &Session,
    wanted: ConversationChange,
    expected: impl FnOnce(ChangedConversation) -> Option<T>,
) -> ChangeOutcome<T> {
    match watch.change(session, wanted).await {
        ScreenOutcome::Killed(stopped) => ChangeOutcome::Stopped(stopped),
        ScreenOutcome::Ended(Err(error)) => ChangeOutcome::Failed(format!("{}\n", visible(&error.to_string()))),
        ScreenOutcome::Ended(Ok(changed)) => expected(changed)
            .map_or_else(|| ChangeOutcome::Failed("nothing was changed\n".to_owned()), ChangeOutcome::Done),
    }
}

/// Forgets the last turn.
pub async fn undo(watch: &mut Screen, session: &Session) -> ChangeOutcome<Option<UndoneTurn>> {
    change(watch, session, ConversationChange::Undo, |changed| match changed {
        ChangedConversation::Undone(undone) => Some(undone),
        ChangedConversation::Seen(..) | ChangedConversation::Model(_) => None,
    })
    .await
}

/// Goes on with another model.
pub async fn use_model(name: &str, watch: &mut Screen, session: &Session) -> ChangeOutcome<ModelName> {
    let model = match ModelName::parse(name) {
        Ok(model) => model,
        Err(error) => return ChangeOutcome::Failed(format!("{}\n", visible(&error.to_string()))),
    };
    change(watch, session, ConversationChange::Model(model), |changed| match changed {
        ChangedConversation::Model(model) => Some(model),
        ChangedConversation::Seen(..) | ChangedConversation::Undone(_) => None,
    })
    .await
}

/// All that was said, and the model that answers.
pub async fn look(watch: &mut Screen, session: &Session) -> ChangeOutcome<(Vec<Message>, Option<ModelName>)> {
    change(watch, session, ConversationChange::Look, |changed| match changed {
        ChangedConversation::Seen(messages, model) => Some((messages, model)),
        ChangedConversation::Undone(_) | ChangedConversation::Model(_) => None,
    })
    .await
}

/// What is forgotten, and what stays.
pub fn undone_words(undone: Option<&UndoneTurn>) -> String {
    let Some(undone) = undone else { return "there is no turn to forget\n".to_owned() };
    let said = Content::shown(&undone.input());
    let first = said.lines().next().unwrap_or_default();
    let stays = match changed_files(&undone.messages).as_slice() {
        [] => String::new(),
        files => format!("; stays changed: {}", files.join(", ")),
    };
    format!("forgotten: {}{stays}\n", visible_start(first, LONGEST_SUBJECT))
}

/// The tools of files that change them.
const CHANGING: &[&str] = &["write_file", "edit_file", "append_file", "create_file", "delete_file", "move_file"];

/// The files that calls of these messages have changed, each once, in order.
fn changed_files(messages: &[Message]) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for call in KeptTurn::of(messages).done.iter().filter(|call| CHANGING.contains(&call.tool.as_str())) {
        let path = subject(call).map(|path| visible(&path).into_owned());
        files.extend(path.filter(|path| !files.contains(path)));
    }
    files
}

/// The model that answers, and whose models may be named.
pub fn model_words(model: Option<&ModelName>, settings: &Settings) -> String {
    let now = model.map_or_else(|| "no model".to_owned(), |model| visible(&model.to_string()).into_owned());
    let usable = usable(&settings.variables, &settings.config);
    let others = match usable.as_slice() {
        [] => "no provider has a key".to_owned(),
        names => format!("with a key: {}", visible(&names.join(", "))),
    };
    format!("{now}\n{others}; `/model PROVIDER:MODEL` goes on with another one\n")
}

/// Writes the chat into a new file.
pub fn save(file: &str, messages: &[Message], program: &Program) -> String {
    let agent = match &program.entry {
        Entry::Agent(name) => name.as_str(),
        Entry::Function(_) | Entry::Open => "main",
    };
    let text = runs::markdown(messages, agent);
    let written = OpenOptions::new().write(true).create_new(true).open(Path::new(file));
    let shown = visible(file);
    match written.and_then(|mut written| written.write_all(text.as_bytes())) {
        Ok(()) => format!("saved {shown}\n"),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            format!("{shown} is there already, and stays as it is: choose another name\n")
        }
        Err(error) => format!("{shown} cannot be written: {error}\n"),
    }
}

/// The result of a call, counted from the first one of the chat.
pub fn result_words(number: usize, messages: &[Message]) -> String {
    let results = messages.iter().filter_map(|message| match message {
        Message::Tool(results) => Some(&results.parts),
        Message::User(_) | Message::Assistant(_) => None,
    });
    let results: Vec<&ToolResult> = results.flatten().collect();
    let Some(result) = results.get(number - 1) else {
        return match results.len() {
            0 => "no call was made yet\n".to_owned(),
            count => format!("there is no result {number}: 1 to {count}\n"),
        };
    };
    let call = messages.iter().find_map(|message| match message {
        Message::Assistant(reply) => Reply::tool_calls(reply).find(|call| call.id == result.id),
        Message::User(_) | Message::Tool(_) => None,
    });
    let title = call.map_or_else(|| visible(&result.tool).into_owned(), call_words);
    let text = match &result.outcome {
        Ok(content) => Content::shown(content),
        Err(reason) => format!("error: {reason}"),
    };
    format!("{number} {title}\n{}\n", visible_lines(text.trim_end()))
}

/// What the entry can call, and what becomes of it as of now.
pub fn tools(runtime: &Runtime) -> String {
    let program = runtime.program();
    let Entry::Agent(name) = &program.entry else { return "no tools\n".to_owned() };
    let Some(agent) = program.agents.get(name) else { return "no tools\n".to_owned() };
    let granted: Vec<String> = runtime
        .granted()
        .into_iter()
        .filter(|grant| grant.agent == *name && grant.only.is_none())
        .map(|grant| grant.tool)
        .collect();
    let tools = program.tools_of(agent);
    let width = tools.iter().map(|tool| visible(&tool.name).chars().count()).max().unwrap_or_default();
    let line = |tool: &llm_do::reach::ReachableTool<'_>| {
        let verdict = if granted.iter().any(|name| *name == *tool.name) {
            "allowed in this session".into()
        } else {
            verdict_words(&tool.verdict)
        };
        format!("{:width$}  {verdict}\n", visible(&tool.name))
    };
    let lines: String = tools.iter().map(line).collect();
    if lines.is_empty() { "no tools\n".to_owned() } else { lines }
}

/// What runs without a question, or is asked about again from now on.
pub fn approvals(wanted: ApprovalsCommand, runtime: &Runtime) -> String {
    let granted = runtime.granted();
    let words = |grant: &llm_do::approval::SessionGrant| {
        let only = grant.only.as_ref().map_or_else(
            || "with any arguments".to_owned(),
            |only| format!("only {}", visible_start(only, 2 * LONGEST_SUBJECT)),
        );
        format!("{} › {} {only}", visible(&grant.agent), visible(&grant.tool))
    };
    match wanted {
        ApprovalsCommand::List if granted.is_empty() => {
            "nothing was allowed for this session; lasting rules are listed by `llm-do policy`\n".to_owned()
        }
        ApprovalsCommand::List => {
            let line = |(index, grant)| format!("{}  {}, until you leave\n", index + 1, words(grant));
            granted.iter().enumerate().map(line).collect()
        }
        ApprovalsCommand::ForgetAll => {
            for grant in &granted {
                runtime.forget(grant);
            }
            "everything is asked about again\n".to_owned()
        }
        ApprovalsCommand::Forget(number) => match granted.get(number - 1) {
            Some(grant) => {
                runtime.forget(grant);
                format!("asked about again: {}\n", words(grant))
            }
            None => format!("there is no approval {number}: `/approvals` lists them\n"),
        },
    }
}

/// Tokens and money so far.
pub fn cost(runtime: &Runtime) -> String {
    let report = runtime.usage();
    let line = |name: &str, usage| format!("{name}: {}, {}\n", summary::tokens(usage), summary::cost(usage));
    let models: String = report.by_model.iter().map(|(model, usage)| line(&visible(model), usage)).collect();
    format!("{models}{}", line("in all", &report.total))
}

/// The runs of this project.
pub fn runs_of(program: &Program, settings: &Settings) -> String {
    match runs::of_project(&program.root, settings) {
        Ok(table) if table.is_empty() => "no run of this project is kept\n".to_owned(),
        Ok(table) => table,
        Err(failure) => Failure::words(&failure).0 + "\n",
    }
}

/// What a turn had done that came to no answer.
pub fn kept_words(kept: &KeptTurn) -> String {
    const NAMED: usize = 3;
    let mut names: Vec<String> = kept.done.iter().take(NAMED).map(call_words).collect();
    names.extend(kept.done.len().checked_sub(NAMED).filter(|more| *more > 0).map(|more| format!("{more} more")));
    match kept.done.len() {
        0 => String::new(),
        1 => format!(", 1 call done ({})", names.join(", ")),
        count => format!(", {count} calls done ({})", names.join(", ")),
    }
}

/// The most that is shown of an argument.
const LONGEST_SUBJECT: usize = 60;

/// A call in a few words: its tool, and what it was about.
fn call_words(call: &ToolCall) -> String {
    match subject(call) {
        Some(subject) => format!("{} {}", visible(&call.tool), visible_start(&subject, LONGEST_SUBJECT)),
        None => visible(&call.tool).into_owned(),
    }
}

/// The argument that says what a call is about.
fn subject(call: &ToolCall) -> Option<String> {
    const SUBJECTS: &[&str] = &["path", "command", "url", "query", "pattern", "name", "input"];
    let Arguments::Object(arguments) = &call.arguments else { return None };
    let arguments = arguments.to::<serde_json::Value>().ok()?;
    let text = |name: &&str| arguments.get(*name).and_then(serde_json::Value::as_str).map(str::to_owned);
    SUBJECTS.iter().find_map(text)
}
