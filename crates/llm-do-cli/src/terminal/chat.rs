//! Many turns on one call: a person types them, or each line of a pipe is one.

use std::io::{BufRead as _, Read as _};
use std::path::PathBuf;

use llm_do::escape::visible;
use llm_do::messages::Attachment;
use llm_do::program::{AgentSpec, Entry};
use llm_do::reach::ReachableTool;
use llm_do::toolsets::Ending;
use llm_do::{Input, Output, Program, RunError, Runtime, names};
use llm_do_launch::session::Session;
use tokio::sync::mpsc;

use crate::commands::check_report::verdict_words;
use crate::console;
use crate::failure::Failure;
use crate::report::{self, OutputPlan};
use crate::signals::StopReason;
use crate::terminal::line_editor::{LineEditor, PromptOutcome};
use crate::terminal::screen::{Screen, ScreenOutcome, TurnEnded};
use crate::{terminal, terminal::summary};

/// What was planned of a chat.
pub struct Chat {
    /// Said before the person is asked for more.
    pub first: Option<Input>,
    /// Files that go with the first line, if nothing was said before it.
    pub files: Vec<Attachment>,
    pub lines: LinesPlan,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinesPlan {
    /// A person types them.
    Editor {
        home: Option<PathBuf>,
    },
    /// Every line is a turn.
    Stdin,
    None,
}

/// How a chat ended.
pub struct ChatEnded {
    pub last: Option<Output>,
    /// Of the last turn that failed, as far as it matters for the exit code. It was said already.
    pub failure: Option<Failure>,
}

enum LineSource {
    Editor(LineEditor),
    Stdin(mpsc::Receiver<Result<String, Failure>>),
    None,
}

/// What comes next.
enum Next {
    Text(String),
    /// The person gave up a line.
    Nothing,
    Unreadable(Failure),
    End,
    Stopped(StopReason),
}

/// A longer line becomes several: no prompt is longer.
const LONGEST_LINE: u64 = 64 * 1024 * 1024;

const COMMANDS: &[&str] = &["/help", "/clear", "/tools", "/usage", "/quit", "/exit"];

const HELP: &str = "\
/help    this
/clear   forget everything that was said
/tools   what the agent can call, and what is asked first
/usage   what the chat took so far
/quit    end the chat (also Ctrl-D)
Enter sends; Alt+Enter or a `\\` at the end continues the line. Ctrl-C cancels the turn.
What is typed while an answer comes is the next line. A question takes keys once it shows `?`;
what was typed before that stands in the next line.
A line that starts with a space is sent as it is.
";

impl Chat {
    pub async fn converse(
        self,
        watch: &mut Screen,
        session: &Session,
        plan: &OutputPlan,
    ) -> Result<ChatEnded, Failure> {
        let mut lines = LineSource::open(self.lines)?;
        if lines.has_commands() {
            watch.hush_terminal();
        }
        let mut ended = ChatEnded { last: None, failure: None };
        let (mut first, mut files) = (self.first, self.files);
        loop {
            let input = match first.take() {
                Some(input) => input,
                None => match ended.hear(lines.next(watch).await, lines.has_commands(), session, plan) {
                    LineMeaning::Said(text) => {
                        Input::Object { value: text.into(), attachments: std::mem::take(&mut files) }
                    }
                    LineMeaning::Nothing => continue,
                    LineMeaning::Goodbye => break,
                },
            };
            watch.display.restart();
            let goes = match watch.turn(session, input).await {
                ScreenOutcome::Ended(turn) => ended.take(turn, plan, lines.has_commands())?,
                ScreenOutcome::Killed(stopped) => ended.stop(stopped, plan),
            };
            if goes == Goes::Away {
                break;
            }
        }
        Ok(ended)
    }
}

/// What a line means.
enum LineMeaning {
    Said(String),
    Nothing,
    Goodbye,
}

/// Whether a chat goes on after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    On,
    Away,
}

impl ChatEnded {
    fn hear(&mut self, next: Next, is_typed: bool, session: &Session, plan: &OutputPlan) -> LineMeaning {
        match next {
            Next::Text(text) if is_typed && text.starts_with('/') => match command(text.trim(), session) {
                Some(words) => {
                    console::complain(&words);
                    LineMeaning::Nothing
                }
                None => self.leave(),
            },
            Next::Text(text) => match text.trim() {
                "" => LineMeaning::Nothing,
                text => LineMeaning::Said(text.to_owned()),
            },
            Next::Nothing => {
                console::complain("(Ctrl-D or /quit ends the chat)\n");
                LineMeaning::Nothing
            }
            Next::Unreadable(failure) => {
                self.fail(failure, plan);
                LineMeaning::Nothing
            }
            Next::End if is_typed => self.leave(),
            Next::End => LineMeaning::Goodbye,
            Next::Stopped(stopped) => {
                self.stop(stopped, plan);
                LineMeaning::Goodbye
            }
        }
    }

    /// A person who leaves has seen what failed.
    fn leave(&mut self) -> LineMeaning {
        self.failure = None;
        LineMeaning::Goodbye
    }

    fn stop(&mut self, stopped: StopReason, plan: &OutputPlan) -> Goes {
        let cancelled = RunError::Cancelled { partial: String::new() };
        self.fail(report::failure(cancelled, Some(stopped), None), plan);
        Goes::Away
    }

    fn fail(&mut self, failure: Failure, plan: &OutputPlan) {
        let failure = if plan.debug { failure } else { failure.plain() };
        failure.print();
        self.failure = Some(failure);
    }

    /// A failed turn does not end a chat; a person who ends it does.
    fn take(&mut self, turn: TurnEnded, plan: &OutputPlan, is_typed: bool) -> Result<Goes, Failure> {
        let TurnEnded { answer, stopped } = turn;
        let goes = match (&answer, stopped) {
            (_, Some(StopReason::Interrupted)) if !is_typed => Goes::Away,
            (_, Some(StopReason::Terminated | StopReason::Unread))
            | (Err(RunError::Ended(Ending::EndedByPerson)), None) => Goes::Away,
            (Ok(_) | Err(_), _) => Goes::On,
        };
        match answer {
            Ok(output) => {
                report::print_turn(&output, plan)?;
                self.last = Some(output);
            }
            Err(error) => {
                report::print_partial(&error, stopped, plan)?;
                self.fail(report::failure(error, stopped, None), plan);
            }
        }
        Ok(goes)
    }
}

impl LineSource {
    fn open(plan: LinesPlan) -> Result<Self, Failure> {
        match plan {
            LinesPlan::Editor { home } => LineEditor::start(COMMANDS, home)
                .map(Self::Editor)
                .map_err(|error| Failure::failed(format!("the terminal cannot be used: {error}"))),
            LinesPlan::Stdin => Ok(Self::Stdin(piped_lines())),
            LinesPlan::None => Ok(Self::None),
        }
    }

    /// Only a person means a command by a slash: in a pipe it is a line like any other.
    fn has_commands(&self) -> bool {
        matches!(self, Self::Editor(_))
    }

    async fn next(&mut self, watch: &mut Screen) -> Next {
        let draft = watch.take_draft();
        let read = async {
            // Nothing is typed into the middle of an answer.
            console::told().await;
            match self {
                Self::Editor(editor) => match editor.read(draft).await {
                    PromptOutcome::Text(text) => Next::Text(text),
                    PromptOutcome::Interrupted => Next::Nothing,
                    PromptOutcome::Unreadable => Next::Unreadable(Failure::usage("what was typed is not UTF-8 text")),
                    PromptOutcome::End => Next::End,
                },
                Self::Stdin(lines) => match lines.recv().await {
                    Some(Ok(line)) => Next::Text(line),
                    Some(Err(failure)) => Next::Unreadable(failure),
                    None => Next::End,
                },
                Self::None => Next::End,
            }
        };
        tokio::select! {
            next = read => next,
            stopped = watch.stopped() => {
                if let Self::Editor(_) = self {
                    // What is said now stands below the line that was being typed.
                    terminal::restore_lent();
                    console::complain("\n");
                }
                Next::Stopped(stopped)
            }
        }
    }
}

/// Lines of stdin as they come. A thread of its own: a pipe whose writer does nothing cannot be waited for otherwise.
fn piped_lines() -> mpsc::Receiver<Result<String, Failure>> {
    // One ahead is enough: a writer that is faster than the agent waits.
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut bytes = Vec::new();
            let read = stdin.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
            let is_last = !matches!(read, Ok(count) if count > 0);
            let line = match read {
                Ok(0) => return,
                Ok(_) => String::from_utf8(bytes).map_err(|_| Failure::usage("a line of stdin is not UTF-8 text")),
                Err(error) => Err(Failure::usage(format!("stdin cannot be read: {error}"))),
            };
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// Does what a slash command says and gives its words; `None` ends the chat.
fn command(text: &str, session: &Session) -> Option<String> {
    match text {
        "/help" => Some(HELP.to_owned()),
        "/clear" => {
            session.reset();
            Some("everything is forgotten\n".to_owned())
        }
        "/tools" => Some(tools(session.runtime.program())),
        "/usage" => Some(usage(&session.runtime)),
        "/quit" | "/exit" => None,
        other => {
            let name = other.split_whitespace().next().unwrap_or(other);
            let instead = names::instead(name, "commands", COMMANDS.iter().copied());
            Some(format!("there is no command {}; {instead}\n", visible(name)))
        }
    }
}

fn tools(program: &Program) -> String {
    let entry = match &program.entry {
        Entry::Agent(name) => program.agents.get(name),
        Entry::Function(_) | Entry::Open => None,
    };
    let list = |agent: &std::sync::Arc<AgentSpec>| -> String {
        let line = |tool: &ReachableTool<'_>| format!("{}  {}\n", visible(&tool.name), verdict_words(&tool.verdict));
        program.tools_of(agent).iter().map(line).collect::<Vec<_>>().concat()
    };
    let listed = entry.map(list).unwrap_or_default();
    if listed.is_empty() { "no tools\n".to_owned() } else { listed }
}

fn usage(runtime: &Runtime) -> String {
    let report = runtime.usage();
    let line = |name: &str, usage| format!("{name}: {}, {}\n", summary::tokens(usage), summary::cost(usage));
    let models = report.by_model.iter().map(|(model, usage)| line(&visible(model), usage)).collect::<Vec<_>>().concat();
    format!("{models}{}", line("in all", &report.total))
}
