//! Many turns on one call: a person types them, or each line of a pipe is one.

use std::io::{BufRead as _, Read as _};
use std::path::PathBuf;

use llm_do::escape::{visible, visible_lines};
use llm_do::messages::Attachment;
use llm_do::program::{AgentSpec, Entry};
use llm_do::reach::ReachableTool;
use llm_do::runs::RestoredTurns;
use llm_do::toolsets::Ending;
use llm_do::{Input, Output, Program, RunError, Runtime, names};
use llm_do_launch::launch::Resumption;
use llm_do_launch::session::Session;
use tokio::sync::mpsc;

use crate::commands::check_report::verdict_words;
use crate::console;
use crate::failure::Failure;
use crate::report::{self, OutputPlan};
use crate::signals::{Signals, StopReason};
use crate::terminal::line_editor::{LineEditor, PromptOutcome};
use crate::terminal::render::View;
use crate::terminal::screen::{Screen, ScreenOutcome, TurnEnded};
use crate::terminal::trust;
use crate::{terminal, terminal::summary};

/// A chat: what is said in it, and how far it has come.
pub struct Chat {
    /// Said before the person is asked for more.
    first: Option<Input>,
    /// Files that go with the first line, if nothing was said before it.
    files: Vec<Attachment>,
    lines: LineSource,
    ended: ChatEnded,
}

/// Why the turns of a session are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatPause {
    /// Everything is forgotten: what is said next is said to another run.
    Cleared,
    /// The chat is over.
    Over,
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
#[derive(Default)]
pub struct ChatEnded {
    pub last: Option<Output>,
    /// Of the last turn that failed, as far as it matters for the exit code. It was said already.
    pub failure: Option<Failure>,
    /// What ended it before its end.
    pub stopped: Option<StopReason>,
}

enum LineSource {
    /// Nobody was asked for a line yet.
    Planned(LinesPlan),
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
/clear   forget everything that was said: another run begins
/tools   what the agent can call, and what is asked first
/usage   what the chat took so far
/quit    end the chat (also Ctrl-D)
Enter sends; Alt+Enter or a `\\` at the end continues the line. Ctrl-C cancels the turn.
What is typed while an answer comes is the next line. A question takes keys once it shows `?`;
what was typed before that stands in the next line.
A line that starts with a space is sent as it is.
";

impl Chat {
    pub fn new(first: Option<Input>, files: Vec<Attachment>, lines: LinesPlan) -> Self {
        Self { first, files, lines: LineSource::Planned(lines), ended: ChatEnded::default() }
    }

    /// Turns of a session, until it is to be forgotten or the chat is over.
    pub async fn converse(
        &mut self,
        watch: &mut Screen,
        session: &Session,
        turns: TurnsPlan<'_>,
    ) -> Result<ChatPause, Failure> {
        let Self { first, files, lines, ended } = self;
        lines.open()?;
        if lines.has_commands() {
            watch.hush_terminal();
        }
        loop {
            let input = match first.take() {
                Some(input) => input,
                None => match ended.hear(lines.next(watch).await, lines.has_commands(), session, turns.plan) {
                    LineMeaning::Said(text) => Input::Object { value: text.into(), attachments: std::mem::take(files) },
                    LineMeaning::Nothing => continue,
                    LineMeaning::Forget => return Ok(ChatPause::Cleared),
                    LineMeaning::Goodbye => return Ok(ChatPause::Over),
                },
            };
            watch.display.restart();
            let goes = ended.take_turn(watch.turn(session, input).await, turns, lines.has_commands())?;
            if goes == Goes::Away {
                return Ok(ChatPause::Over);
            }
        }
    }

    /// Shows what a chat that goes on has come to, and finishes the turn that was cut off. Whether the chat goes on.
    pub async fn go_on(
        &mut self,
        watch: &mut Screen,
        session: &Session,
        turns: TurnsPlan<'_>,
        cut: CutTurn,
    ) -> Result<Goes, Failure> {
        let restored = match watch.open(session).await {
            ScreenOutcome::Ended(opened) => opened.map_err(Failure::from)?,
            ScreenOutcome::Killed(stopped) => {
                return Ok(self.ended.stop(stopped, turns.plan));
            }
        };
        if turns.plan.view.tells_notes() {
            console::complain(&last_exchange(&restored));
        }
        if restored.unfinished.is_none() || !cut.is_finished(turns.plan.view, &mut watch.signals).await? {
            return Ok(Goes::On);
        }
        watch.display.restart();
        let is_typed = self.lines.has_commands();
        self.ended.take_turn(watch.finish_turn(session).await, turns, is_typed)
    }

    /// How it ended.
    pub fn end(self) -> ChatEnded {
        self.ended
    }
}

/// How turns are reported.
#[derive(Clone, Copy)]
pub struct TurnsPlan<'a> {
    pub plan: &'a OutputPlan,
    /// What the chat can be resumed by.
    pub resumption: Option<&'a Resumption>,
}

/// What becomes of a turn that was cut off when its chat goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutTurn {
    /// It is finished first.
    Finish,
    /// Somebody at the terminal is asked.
    Ask,
    /// The project has changed: it is left out, and that is said.
    Changed,
}

impl CutTurn {
    async fn is_finished(self, view: View, signals: &mut Signals) -> Result<bool, Failure> {
        match self {
            Self::Finish => Ok(true),
            Self::Ask => {
                const QUESTION: &str =
                    "the last turn was not finished. Finish it first?\n  y yes\n  n no, leave it out\n";
                trust::ask_during(QUESTION, signals).await
            }
            Self::Changed => {
                if view.tells_notes() {
                    console::complain(
                        "note: the last turn was not finished, and the project has changed since: it is left out. `--force` \
                         finishes it with the project of today\n",
                    );
                }
                Ok(false)
            }
        }
    }
}

/// What was said last, so that a person knows where the conversation stands.
fn last_exchange(restored: &RestoredTurns) -> String {
    let Some(last) = &restored.last else { return String::new() };
    let said = match last.input.to::<String>() {
        Ok(text) => text,
        Err(_) => last.input.get().to_owned(),
    };
    let quoted = format!("> {}\n", visible_lines(&said).trim_end().replace('\n', "\n> "));
    let turns = if restored.finished == 1 { "1 turn".to_owned() } else { format!("{} turns", restored.finished) };
    format!("({turns} so far; the last one:)\n{quoted}{}", visible_lines(&report::answer(&last.output)))
}

/// What a line means.
enum LineMeaning {
    Said(String),
    Nothing,
    Forget,
    Goodbye,
}

/// Whether a chat goes on after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    On,
    Away,
}

impl ChatEnded {
    fn hear(&mut self, next: Next, is_typed: bool, session: &Session, plan: &OutputPlan) -> LineMeaning {
        match next {
            Next::Text(text) if is_typed && text.trim() == "/clear" => {
                console::complain("everything is forgotten\n");
                LineMeaning::Forget
            }
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
        self.stopped = Some(stopped);
        self.fail(report::failure(cancelled, Some(stopped), None), plan);
        Goes::Away
    }

    fn fail(&mut self, failure: Failure, plan: &OutputPlan) {
        let failure = if plan.debug { failure } else { failure.plain() };
        failure.print();
        self.failure = Some(failure);
    }

    fn take_turn(
        &mut self,
        turn: ScreenOutcome<TurnEnded>,
        turns: TurnsPlan<'_>,
        is_typed: bool,
    ) -> Result<Goes, Failure> {
        match turn {
            ScreenOutcome::Ended(turn) => self.take(turn, turns, is_typed),
            ScreenOutcome::Killed(stopped) => Ok(self.stop(stopped, turns.plan)),
        }
    }

    /// A failed turn does not end a chat; a person who ends it does, and a question that waits for one.
    fn take(&mut self, turn: TurnEnded, turns: TurnsPlan<'_>, is_typed: bool) -> Result<Goes, Failure> {
        let TurnsPlan { plan, resumption } = turns;
        let TurnEnded { answer, stopped } = turn;
        let goes = match (&answer, stopped) {
            (_, Some(StopReason::Interrupted | StopReason::Cancelled)) if !is_typed => Goes::Away,
            (_, Some(StopReason::Terminated | StopReason::Unread))
            | (Err(RunError::Ended(Ending::EndedByPerson | Ending::NeedsApproval(_))), None) => Goes::Away,
            (Ok(_) | Err(_), _) => Goes::On,
        };
        if goes == Goes::Away {
            self.stopped = stopped;
        }
        match answer {
            Ok(output) => {
                report::print_turn(&output, plan)?;
                self.last = Some(output);
            }
            Err(error) => {
                if let RunError::Ended(Ending::NeedsApproval(pending)) = &error {
                    console::complain(&report::pending_text(pending));
                }
                report::print_partial(&error, stopped, plan)?;
                let resumption = resumption.filter(|_| goes == Goes::Away);
                self.fail(report::failure(error, stopped, resumption), plan);
            }
        }
        Ok(goes)
    }
}

impl LineSource {
    /// Begins to read lines, unless that was begun before.
    fn open(&mut self) -> Result<(), Failure> {
        let Self::Planned(plan) = self else { return Ok(()) };
        *self = match std::mem::replace(plan, LinesPlan::None) {
            LinesPlan::Editor { home } => LineEditor::start(COMMANDS, home)
                .map(Self::Editor)
                .map_err(|error| Failure::failed(format!("the terminal cannot be used: {error}")))?,
            LinesPlan::Stdin => Self::Stdin(piped_lines()),
            LinesPlan::None => Self::None,
        };
        Ok(())
    }

    /// Only a person means a command by a slash: in a pipe it is a line like any other.
    fn has_commands(&self) -> bool {
        matches!(self, Self::Editor(_) | Self::Planned(LinesPlan::Editor { .. }))
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
                Self::None | Self::Planned(_) => Next::End,
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
