//! What the commands of a chat do. Each gives the words that a person reads.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use llm_do::approval::DeclaredVerdict;
use llm_do::escape::{visible, visible_start};
use llm_do::files::{FileAccess, create_path};
use llm_do::messages::{Arguments, ToolCall};
use llm_do::policy::{LastingRule, RuleSource};
use llm_do::program::Entry;
use llm_do::reach::ReachableTool;
use llm_do::runs::UndoneTurn;
use llm_do::{Content, Message, ModelName, Program, Rule, Runtime};
use llm_do_launch::providers::usable;
use llm_do_launch::rules;
use llm_do_launch::session::{ChangedConversation, ConversationChange, KeptTurn, Session};
use llm_do_launch::settings::Settings;

use crate::commands::check_report::verdict_words;
use crate::commands::runs;
use crate::failure::Failure;
use crate::signals::StopReason;
use crate::terminal::calls::{self, LONGEST_SUBJECT};
use crate::terminal::commands::ApprovalsCommand;
use crate::terminal::render::Thoughts;
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
        ChangedConversation::Seen(..) | ChangedConversation::Model(_) | ChangedConversation::Compacted(_) => None,
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
        ChangedConversation::Seen(..) | ChangedConversation::Undone(_) | ChangedConversation::Compacted(_) => None,
    })
    .await
}

/// All that was said, and the model that answers.
pub async fn look(watch: &mut Screen, session: &Session) -> ChangeOutcome<(Vec<Message>, Option<ModelName>)> {
    change(watch, session, ConversationChange::Look, |changed| match changed {
        ChangedConversation::Seen(messages, model) => Some((messages, model)),
        ChangedConversation::Undone(_) | ChangedConversation::Model(_) | ChangedConversation::Compacted(_) => None,
    })
    .await
}

/// Summarises old turns.
pub async fn compact(
    focus: Option<String>,
    watch: &mut Screen,
    session: &Session,
) -> ChangeOutcome<Option<(u64, u64)>> {
    change(watch, session, ConversationChange::Compact(focus), |changed| match changed {
        ChangedConversation::Compacted(sizes) => Some(sizes),
        ChangedConversation::Seen(..) | ChangedConversation::Undone(_) | ChangedConversation::Model(_) => None,
    })
    .await
}

/// Whether thoughts are shown from now on.
pub fn thoughts_words(thoughts: Thoughts) -> &'static str {
    match thoughts {
        Thoughts::Shown => "what the model thinks is shown, if its provider tells it\n",
        Thoughts::Hidden => "what the model thinks is not shown any more\n",
    }
}

/// What the conversation is now.
pub fn compacted_words(sizes: Option<(u64, u64)>) -> String {
    match sizes {
        None => "there is nothing to summarise yet: the last turn stays as it is\n".to_owned(),
        Some((before, after)) => {
            let (before, after) = (summary::count(before), summary::count(after));
            format!("compacted: about {after} tokens go with the next message, {before} did before\n")
        }
    }
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
    let shown = visible(file);
    match create_path(Path::new(file), text.as_bytes(), FileAccess::Usual) {
        Ok(()) => format!("saved {shown}\n"),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            format!("{shown} is there already, and stays as it is: choose another name\n")
        }
        Err(error) => format!("{shown} cannot be written: {error}\n"),
    }
}

/// A tool of the entry, and what becomes of its calls as of now.
struct PresentTool {
    name: String,
    verdict: DeclaredVerdict,
    /// The person allowed it until they leave.
    is_granted: bool,
}

fn present_tools(runtime: &Runtime) -> Vec<PresentTool> {
    let program = runtime.program();
    let Entry::Agent(name) = &program.entry else { return Vec::new() };
    let Some(agent) = program.agents.get(name) else { return Vec::new() };
    let granted = runtime.granted();
    let is_granted =
        |tool: &str| granted.iter().any(|grant| grant.agent == *name && grant.only.is_none() && grant.tool == tool);
    let present = |tool: &ReachableTool<'_>| PresentTool {
        name: tool.name.to_string(),
        verdict: tool.verdict.clone(),
        is_granted: is_granted(&tool.name),
    };
    program.tools_of(agent).iter().map(present).collect()
}

/// What the entry can call, and what becomes of it as of now.
pub fn tools(runtime: &Runtime) -> String {
    let tools = present_tools(runtime);
    let width = tools.iter().map(|tool| visible(&tool.name).chars().count()).max().unwrap_or_default();
    let line = |tool: &PresentTool| {
        let verdict = if tool.is_granted { "allowed in this session".into() } else { verdict_words(&tool.verdict) };
        format!("{:width$}  {verdict}\n", visible(&tool.name))
    };
    let lines: String = tools.iter().map(line).collect();
    if lines.is_empty() { "no tools\n".to_owned() } else { lines }
}

/// What a chat begins with: whom one talks to, what they can do, and what becomes of it.
pub fn greeting(project: &str, session: &Session, asks: bool) -> String {
    let runtime = &session.runtime;
    let program = runtime.program();
    let kept = session.keeper.as_ref().is_some_and(|keeper| keeper.store().is_some());
    let mut parts = vec![visible(project).into_owned()];
    if let Entry::Agent(name) = &program.entry {
        let model = program.agents.get(name).map(|agent| agent.model.to_string());
        parts.extend([Some(name.clone()), model].into_iter().flatten().map(|part| visible(&part).into_owned()));
    }
    parts.extend(tool_count(&present_tools(runtime), asks));
    parts.extend(kept.then(|| runtime.run_id().to_owned()));
    let ends = if kept { "the chat is kept" } else { "the chat is not kept" };
    format!("{}\n/help lists commands, Ctrl-D leaves, {ends}\n", parts.join(" · "))
}

fn tool_count(tools: &[PresentTool], asks: bool) -> Option<String> {
    let asking = tools.iter().filter(|tool| match tool.verdict {
        DeclaredVerdict::Ask | DeclaredVerdict::AlwaysAsk => asks && !tool.is_granted,
        DeclaredVerdict::Allow | DeclaredVerdict::Block | DeclaredVerdict::ByCommand(_) | DeclaredVerdict::Unknown => {
            false
        }
    });
    let asking = match asking.count() {
        0 => String::new(),
        count => format!(", {count} ask"),
    };
    match tools.len() {
        0 => None,
        1 => Some(format!("1 tool{asking}")),
        count => Some(format!("{count} tools{asking}")),
    }
}

/// The lasting rules that allow calls in this project: where each stands, and what it says. Those that were added meanwhile are
/// among them.
fn lasting_rules(program: &Program, settings: &Settings) -> Result<String, Failure> {
    let own = rules::load(settings)?;
    let of_project = program.rules.iter().filter(|rule| rule.source() == RuleSource::Manifest);
    let (today, root) = (rules::today(), program.root.canonicalize().unwrap_or_else(|_| program.root.clone()));
    let allows = |rule: &&Arc<LastingRule>| rule.rule() == Rule::Allow && rule.silence(Some(&root), &today).is_none();
    let line = |rule: &Arc<LastingRule>| format!("{}  {}\n", visible(rule.place()), visible(rule.shown()));
    Ok(of_project.chain(&own).filter(allows).map(line).collect())
}

/// What runs without a question, or is asked about again from now on.
pub fn approvals(wanted: ApprovalsCommand, runtime: &Runtime, settings: Option<&Settings>) -> String {
    let granted = runtime.granted();
    let words = |grant: &llm_do::approval::SessionGrant| {
        let only = grant.only.as_ref().map_or_else(
            || "with any arguments".to_owned(),
            |only| format!("only {}", visible_start(only, 2 * LONGEST_SUBJECT)),
        );
        format!("{} › {} {only}", visible(&grant.agent), visible(&grant.tool))
    };
    match wanted {
        ApprovalsCommand::List => {
            let line = |(index, grant)| format!("{}  {}, until you leave\n", index + 1, words(grant));
            let session: String = granted.iter().enumerate().map(line).collect();
            let session =
                if session.is_empty() { "nothing was allowed for this session\n".to_owned() } else { session };
            let lasting = settings.map(|settings| lasting_rules(runtime.program(), settings));
            let lasting = match lasting {
                None => String::new(),
                Some(Ok(rules)) if rules.is_empty() => "no lasting rule allows a call here\n".to_owned(),
                Some(Ok(rules)) => format!("lasting rules, which `llm-do policy edit` changes:\n{rules}"),
                Some(Err(failure)) => Failure::words(&failure).0 + "\n",
            };
            session + &lasting
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

/// A call in a few words: its tool, and what it was about.
fn call_words(call: &ToolCall) -> String {
    match &call.arguments {
        Arguments::Object(arguments) => calls::words(&call.tool, arguments),
        Arguments::Malformed(_) => visible(&call.tool).into_owned(),
    }
}

/// The argument that says what a call is about.
fn subject(call: &ToolCall) -> Option<String> {
    match &call.arguments {
        Arguments::Object(arguments) => calls::subject(arguments),
        Arguments::Malformed(_) => None,
    }
}
