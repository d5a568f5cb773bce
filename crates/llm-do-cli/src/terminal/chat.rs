//! Many turns on one call: a person types them, or each line of a pipe is one.

mod effects;

use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use llm_do::escape::visible;
use llm_do::messages::{Attachment, read_named};
use llm_do::runs::RestoredTurns;
use llm_do::toolsets::Ending;
use llm_do::{Content, Input, Output, RunError};
use llm_do_launch::launch::Resumption;
use llm_do_launch::session::Session;
use llm_do_launch::settings::Settings;
use tokio::sync::mpsc;

use crate::console;
use crate::failure::Failure;
use crate::report::{self, OutputPlan};
use crate::signals::{Signals, StopReason};
use crate::terminal;
use crate::terminal::commands::{self, ChatCommand, TypedLine};
use crate::terminal::editor::edit_file;
use crate::terminal::line_editor::{LineEditor, PromptOutcome, edit_mode};
use crate::terminal::markdown::{Markdown, MarkdownForm};
use crate::terminal::mentions;
use crate::terminal::render::{View, quoted};
use crate::terminal::screen::{Screen, ScreenOutcome, TurnEnded};
use crate::terminal::style::wrap_lines;
use crate::terminal::trust;
use crate::terminal::typing::WaitingLine;
use effects::ChangeOutcome;

/// A chat: what is said in it, and how far it has come.
pub struct Chat {
    /// Said before the person is asked for more.
    first: Option<Input>,
    /// Files that go with the first line, if nothing was said before it.
    files: Vec<Attachment>,
    lines: LineSource,
    /// When a person gave up an empty line, if nothing came since.
    given_up: Option<Instant>,
    /// Whether anything was said in the present conversation.
    has_said: bool,
    /// As it was typed.
    project: String,
    ended: ChatEnded,
}

/// Why the turns of a session are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatPause {
    /// The conversation is cleared: what is said next is said to another run.
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
    /// A person types them on a terminal that edits them itself.
    Plain,
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
    /// Whether a person stopped a turn of it.
    pub has_stopped_turn: bool,
    /// Nothing was said in it, so it is not kept.
    pub is_unused: bool,
}

enum LineSource {
    /// Nobody was asked for a line yet.
    Planned(LinesPlan),
    Editor(LineEditor),
    Plain(PlainLines),
    Stdin(mpsc::Receiver<Result<String, Failure>>),
    None,
}

/// Lines that a terminal edits, each read when it is wanted: between two of them others read its keys.
struct PlainLines {
    wanted: std::sync::mpsc::Sender<()>,
    lines: mpsc::Receiver<Result<String, Failure>>,
    /// A line is waited for already.
    is_wanted: bool,
}

/// What comes next.
enum Next {
    Text(String),
    /// The person gave up a line. When that was, if it was empty.
    GivenUp(Option<Instant>),
    Unreadable(Failure),
    /// The person wants to write this in their editor.
    Edit(String),
    End,
    Stopped(StopReason),
}

/// A longer line becomes several: no prompt is longer.
const LONGEST_LINE: u64 = 64 * 1024 * 1024;

impl Chat {
    pub fn new(first: Option<Input>, files: Vec<Attachment>, lines: LinesPlan) -> Self {
        let (lines, ended) = (LineSource::Planned(lines), ChatEnded::default());
        Self { first, files, lines, given_up: None, has_said: false, project: String::new(), ended }
    }

    /// Says whom a person talks to, who types what is said.
    pub fn greet(&mut self, project: &str, asks: bool, session: &Session, plan: &OutputPlan) {
        project.clone_into(&mut self.project);
        if self.lines.has_commands() && plan.view.tells_notes() {
            say(&effects::greeting(project, session, asks));
        }
    }

    /// Turns of a session, until it is to be forgotten or the chat is over.
    pub async fn converse(
        &mut self,
        watch: &mut Screen,
        session: &Session,
        turns: TurnsPlan<'_>,
    ) -> Result<ChatPause, Failure> {
        self.lines.open(turns.settings)?;
        let is_typed = self.lines.has_commands();
        if is_typed {
            watch.take_prompt(self.lines.is_edited());
        }
        loop {
            let (input, said) = match self.first.take() {
                Some(input) => (input, String::new()),
                None => match self.hear(watch, session, turns).await {
                    LineMeaning::Said(input, said) => (input, said),
                    LineMeaning::Nothing => continue,
                    LineMeaning::Forget => {
                        self.forget_unused(session);
                        self.has_said = false;
                        return Ok(ChatPause::Cleared);
                    }
                    LineMeaning::Goodbye => {
                        self.forget_unused(session);
                        return Ok(ChatPause::Over);
                    }
                },
            };
            self.has_said = true;
            watch.display.restart();
            let turn = watch.turn(session, input).await;
            settle_typed(watch, session, &turn, said);
            if self.ended.take_turn(turn, turns, is_typed)? == Goes::Away {
                return Ok(ChatPause::Over);
            }
        }
    }

    /// What comes next, and what it means.
    async fn hear(&mut self, watch: &mut Screen, session: &Session, turns: TurnsPlan<'_>) -> LineMeaning {
        let (is_typed, given_up) = (self.lines.has_commands(), self.given_up.take());
        if is_typed {
            watch.display.clock.wait(Instant::now());
        }
        let next = self.lines.next(watch).await;
        watch.display.clock.go_on(Instant::now());
        match next {
            Next::Text(text) if is_typed => match commands::read(&text) {
                TypedLine::Said(text) => self.say_with_files(text),
                TypedLine::Nothing => LineMeaning::Nothing,
                TypedLine::Mistaken(words) => told(&format!("{words}\n")),
                TypedLine::Command(command) => self.obey(command, watch, session, turns).await,
            },
            Next::Text(text) => match text.trim() {
                "" => LineMeaning::Nothing,
                text => self.say(text.to_owned()),
            },
            Next::GivenUp(at) if is_again(given_up, at) => {
                say(&self.way_back(session));
                self.ended.leave()
            }
            Next::GivenUp(at) => {
                self.given_up = at;
                let words = if at.is_some() { "Ctrl-C again, Ctrl-D" } else { "Ctrl-D" };
                told(&format!("({words} or /exit ends the chat)\n"))
            }
            Next::Edit(line) => {
                edit(watch, &line).await;
                LineMeaning::Nothing
            }
            Next::Unreadable(failure) => {
                self.ended.fail(failure, turns.plan);
                LineMeaning::Nothing
            }
            Next::End if is_typed => self.ended.leave(),
            Next::End => LineMeaning::Goodbye,
            Next::Stopped(stopped) => {
                self.ended.stop(stopped, turns.plan);
                LineMeaning::Goodbye
            }
        }
    }

    /// Nobody looks for a conversation in which nothing was said.
    fn forget_unused(&mut self, session: &Session) {
        if let Some(keeper) = session.keeper.as_ref().filter(|_| !self.has_said && self.lines.has_commands()) {
            keeper.forget();
            self.ended.is_unused = true;
        }
    }

    /// How to come back to the chat, if it is kept.
    fn way_back(&self, session: &Session) -> String {
        let store = session.keeper.as_ref().and_then(|keeper| keeper.store()).filter(|_| self.has_said);
        let run = store.map(|_| session.runtime.run_id());
        let project = shlex::try_quote(&self.project).unwrap_or_default();
        run.map(|run| format!("`llm-do chat {} --continue {run}` goes on with it\n", visible(&project)))
            .unwrap_or_default()
    }

    /// Says a line that a person typed, with the files that it names.
    fn say_with_files(&mut self, text: String) -> LineMeaning {
        for path in mentions::named(&text) {
            match read_named(Path::new(path)) {
                Ok(file) => self.files.push(file),
                Err(error) => say(&format!("note: {}: sent as text\n", visible(&error.to_string()))),
            }
        }
        self.say(text)
    }

    fn say(&mut self, text: String) -> LineMeaning {
        let attachments = std::mem::take(&mut self.files);
        LineMeaning::Said(Input::Object { value: text.clone().into(), attachments }, text)
    }

    async fn obey(
        &mut self,
        command: ChatCommand,
        watch: &mut Screen,
        session: &Session,
        turns: TurnsPlan<'_>,
    ) -> LineMeaning {
        let (runtime, settings) = (&session.runtime, turns.settings);
        let unknown = || "there is nothing to look it up in\n".to_owned();
        match command {
            ChatCommand::Help => told(&commands::help(self.lines.is_edited())),
            ChatCommand::Exit => self.ended.leave(),
            ChatCommand::Clear => {
                console::complain("conversation cleared\n");
                LineMeaning::Forget
            }
            ChatCommand::Tools => told(&effects::tools(runtime)),
            ChatCommand::Cost => told(&effects::cost(runtime)),
            ChatCommand::Approvals(wanted) => told(&effects::approvals(wanted, runtime, settings)),
            ChatCommand::Runs => {
                told(&settings.map_or_else(unknown, |settings| effects::runs_of(runtime.program(), settings)))
            }
            ChatCommand::Save(file) => {
                let looked = effects::look(watch, session).await;
                self.tell(looked, turns, |(messages, _)| effects::save(&file, &messages, runtime.program()))
            }
            ChatCommand::Show(number) => {
                // As it is: it is not ours.
                console::complain(&watch.display.calls().whole(number));
                LineMeaning::Nothing
            }
            ChatCommand::Model(None) => {
                let looked = effects::look(watch, session).await;
                self.tell(looked, turns, |(_, model)| {
                    settings.map_or_else(unknown, |settings| effects::model_words(model.as_ref(), settings))
                })
            }
            ChatCommand::Model(Some(name)) => {
                let changed = effects::use_model(&name, watch, session).await;
                self.tell(changed, turns, |model| format!("{} answers from now on\n", visible(&model.to_string())))
            }
            ChatCommand::Undo => {
                let undone = effects::undo(watch, session).await;
                self.tell(undone, turns, |undone| effects::undone_words(undone.as_ref()))
            }
            ChatCommand::Compact(focus) => {
                let compacted = effects::compact(focus, watch, session).await;
                self.tell(compacted, turns, effects::compacted_words)
            }
            ChatCommand::Think => told(effects::thoughts_words(watch.display.toggle_thoughts())),
            ChatCommand::Retry(model) => self.retry(model, watch, session, turns).await,
        }
    }

    /// Says what was said last once more, as if it had not been said before.
    async fn retry(
        &mut self,
        model: Option<String>,
        watch: &mut Screen,
        session: &Session,
        turns: TurnsPlan<'_>,
    ) -> LineMeaning {
        if let Some(name) = model {
            match effects::use_model(&name, watch, session).await {
                ChangeOutcome::Done(_) => {}
                unchanged => return self.tell(unchanged, turns, |_| String::new()),
            }
        }
        match effects::undo(watch, session).await {
            ChangeOutcome::Done(Some(undone)) => {
                say(&effects::undone_words(Some(&undone)));
                let parts = undone.input();
                let said = Content::shown(&parts);
                LineMeaning::Said(Input::Parts(parts), said)
            }
            other => self.tell(other, turns, |undone| effects::undone_words(undone.as_ref())),
        }
    }

    /// Says what came of a command.
    fn tell<T>(
        &mut self,
        changed: ChangeOutcome<T>,
        turns: TurnsPlan<'_>,
        words: impl FnOnce(T) -> String,
    ) -> LineMeaning {
        match changed {
            ChangeOutcome::Done(done) => told(&words(done)),
            ChangeOutcome::Failed(words) => told(&words),
            ChangeOutcome::Stopped(stopped) => {
                self.ended.stop(stopped, turns.plan);
                LineMeaning::Goodbye
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
        self.has_said = true;
        let restored = match watch.open(session).await {
            ScreenOutcome::Ended(opened) => opened.map_err(Failure::from)?,
            ScreenOutcome::Killed(stopped) => {
                return Ok(self.ended.stop(stopped, turns.plan));
            }
        };
        if turns.plan.view.tells_notes() {
            console::complain(&last_exchange(&restored, turns.plan.view.answers));
        }
        if restored.unfinished.is_none() || !cut.is_finished(turns.plan.view, &mut watch.signals).await? {
            return Ok(Goes::On);
        }
        watch.display.restart();
        let is_typed = self.lines.has_commands();
        if is_typed {
            watch.take_prompt(self.lines.is_edited());
        }
        let turn = watch.finish_turn(session).await;
        settle_typed(watch, session, &turn, String::new());
        self.ended.take_turn(turn, turns, is_typed)
    }

    /// How it ended.
    pub fn end(self) -> ChatEnded {
        self.ended
    }
}

/// Opens a line in the person's editor. What they make of it is the next draft.
async fn edit(watch: &mut Screen, line: &str) {
    let Some(asking) = &watch.asking else { return };
    let edited = edit_file(&asking.editor, &asking.terminal, "message.md", line).await;
    let text = edited.unwrap_or_else(|error| {
        console::complain(&format!("{}\n", visible(&error)));
        line.to_owned()
    });
    watch.typed.insert(text.trim_end_matches(['\r', '\n']));
}

/// Whether an empty line was given up a second time, so soon that both were meant together.
fn is_again(before: Option<Instant>, now: Option<Instant>) -> bool {
    const SOON: Duration = Duration::from_secs(2);
    before.zip(now).is_some_and(|(before, now)| now.saturating_duration_since(before) <= SOON)
}

/// What becomes of what was typed during a turn: it is said next, unless the turn came to nothing. Then a person looks at it
/// first, behind what was said in a turn that was taken back.
fn settle_typed(watch: &mut Screen, session: &Session, turn: &ScreenOutcome<TurnEnded>, said: String) {
    let unheard = session.take_unheard();
    match turn {
        ScreenOutcome::Ended(TurnEnded { answer: Ok(_), .. }) => watch.typed.go_on(unheard),
        ScreenOutcome::Ended(TurnEnded { kept: None, .. }) => watch.typed.stand_still(Some(said), unheard),
        ScreenOutcome::Ended(_) | ScreenOutcome::Killed(_) => watch.typed.stand_still(None, unheard),
    }
}

/// How turns are reported.
#[derive(Clone, Copy)]
pub struct TurnsPlan<'a> {
    pub plan: &'a OutputPlan,
    /// What the chat can be resumed by.
    pub resumption: Option<&'a Resumption>,
    /// What holds for every run of the user.
    pub settings: Option<&'a Settings>,
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
fn last_exchange(restored: &RestoredTurns, form: MarkdownForm) -> String {
    let Some(last) = &restored.last else { return String::new() };
    let said = match last.input.to::<String>() {
        Ok(text) => text,
        Err(_) => last.input.get().to_owned(),
    };
    let quoted = quoted(&said);
    let turns = if restored.finished == 1 { "1 turn".to_owned() } else { format!("{} turns", restored.finished) };
    let answer = report::answer(&last.output);
    // As it was shown when it came.
    let mut page = Markdown::new(form, console::answer_columns());
    let answer = if answer.trim().is_empty() { String::new() } else { page.push(&answer) + &page.finish() };
    let stopped = last.stopped.as_ref().map(|reason| format!("(stopped: {})\n", visible(reason))).unwrap_or_default();
    format!("({turns} so far; the last one:)\n{quoted}{answer}{stopped}")
}

/// Says something of the program's own, in rows that end between words.
fn say(words: &str) {
    console::complain(&match console::columns() {
        Some(columns) => wrap_lines(words, columns),
        None => words.to_owned(),
    });
}

fn told(words: &str) -> LineMeaning {
    say(words);
    LineMeaning::Nothing
}

/// What a line means.
enum LineMeaning {
    /// What goes to the model, and the text of it.
    Said(Input, String),
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
        let TurnsPlan { plan, resumption, .. } = turns;
        let TurnEnded { answer, stopped, kept } = turn;
        let goes = match (&answer, stopped) {
            (_, Some(StopReason::Interrupted | StopReason::Cancelled))
            | (Err(RunError::Ended(Ending::EndedByPerson)), None)
                if !is_typed =>
            {
                Goes::Away
            }
            (_, Some(StopReason::Terminated | StopReason::Unread))
            | (Err(RunError::Ended(Ending::NeedsApproval(_))), None) => Goes::Away,
            (Ok(_) | Err(_), _) => Goes::On,
        };
        if goes == Goes::Away {
            self.stopped = stopped;
        }
        self.has_stopped_turn |= stopped == Some(StopReason::Interrupted);
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
                let is_left = matches!(&error, RunError::Ended(Ending::EndedByPerson));
                let resumption = resumption.filter(|_| goes == Goes::Away);
                let failure = report::failure(error, stopped, resumption);
                match kept {
                    Some(kept) if stopped == Some(StopReason::Interrupted) && is_typed => {
                        say(&format!("stopped: kept{}; /undo forgets it\n", effects::kept_words(&kept)));
                        self.failure = Some(failure);
                    }
                    Some(kept) if is_left && is_typed => {
                        let words = effects::kept_words(&kept);
                        say(&format!("stopped: you answered q; kept{words}; /undo forgets it\n"));
                        self.failure = Some(failure);
                    }
                    Some(kept) => {
                        self.fail(failure, plan);
                        if plan.view.tells_notes() {
                            let undo = if is_typed { "; /undo forgets it" } else { "" };
                            let words = effects::kept_words(&kept);
                            say(&format!("note: what was said and done is kept{words}{undo}\n"));
                        }
                    }
                    None => self.fail(failure, plan),
                }
            }
        }
        Ok(goes)
    }
}

impl LineSource {
    /// Begins to read lines, unless that was begun before.
    fn open(&mut self, settings: Option<&Settings>) -> Result<(), Failure> {
        let Self::Planned(plan) = self else { return Ok(()) };
        *self = match std::mem::replace(plan, LinesPlan::None) {
            LinesPlan::Editor { home } => {
                let user = settings.and_then(|settings| settings.variables.get("HOME")).map(Path::new);
                let keys = edit_mode(settings.and_then(|settings| settings.config.terminal.keys), user);
                LineEditor::start(commands::completed(), home, keys)
                    .map(Self::Editor)
                    .map_err(|error| Failure::failed(format!("the terminal cannot be used: {error}")))?
            }
            LinesPlan::Plain => {
                let (wanted, orders) = std::sync::mpsc::channel();
                Self::Plain(PlainLines {
                    wanted,
                    lines: lines_of_stdin(move || orders.recv().is_ok()),
                    is_wanted: false,
                })
            }
            LinesPlan::Stdin => Self::Stdin(lines_of_stdin(|| true)),
            LinesPlan::None => Self::None,
        };
        Ok(())
    }

    /// Only a person means a command by a slash: in a pipe it is a line like any other.
    fn has_commands(&self) -> bool {
        matches!(self, Self::Editor(_) | Self::Plain(_) | Self::Planned(LinesPlan::Editor { .. } | LinesPlan::Plain))
    }

    /// Whether keys are edited here, and not by the terminal.
    fn is_edited(&self) -> bool {
        matches!(self, Self::Editor(_) | Self::Planned(LinesPlan::Editor { .. }))
    }

    async fn next(&mut self, watch: &mut Screen) -> Next {
        match watch.typed.next() {
            // As the prompt would have shown it.
            Some(WaitingLine::Text(text)) => {
                console::complain(&quoted(&text));
                if let Self::Editor(editor) = self {
                    editor.remember(text.clone());
                }
                return Next::Text(text);
            }
            Some(WaitingLine::End) => {
                console::complain(">\n");
                return Next::End;
            }
            None => {}
        }
        let (draft, is_edited) = (watch.take_draft(), self.is_edited());
        let is_plain = matches!(self, Self::Plain(_));
        let cut = watch.display.calls().last_cut();
        let read = async {
            // Nothing is typed into the middle of an answer.
            console::told().await;
            match self {
                Self::Editor(editor) => {
                    let mut draft = draft;
                    loop {
                        break match editor.read(draft).await {
                            PromptOutcome::Text(text) => Next::Text(text),
                            PromptOutcome::Interrupted(empty) => Next::GivenUp(empty),
                            PromptOutcome::More(before, behind) => {
                                draft = (before, behind);
                                console::complain(cut.as_deref().unwrap_or("no result was cut\n"));
                                console::told().await;
                                continue;
                            }
                            PromptOutcome::Edit(line) => Next::Edit(line),
                            PromptOutcome::Unreadable => {
                                Next::Unreadable(Failure::usage("what was typed is not UTF-8 text"))
                            }
                            PromptOutcome::End => Next::End,
                        };
                    }
                }
                Self::Plain(plain) => {
                    console::complain("> ");
                    plain.next().await
                }
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
                if is_plain && stopped == StopReason::Interrupted {
                    // The terminal has taken away what was typed.
                    console::complain("\n");
                    return Next::GivenUp(Some(Instant::now()));
                }
                if is_edited {
                    // What is said now stands below the line that was being typed.
                    terminal::restore_lent();
                    console::complain("\n");
                }
                Next::Stopped(stopped)
            }
        }
    }
}

impl PlainLines {
    async fn next(&mut self) -> Next {
        if !std::mem::replace(&mut self.is_wanted, true) {
            let _ = self.wanted.send(());
        }
        let line = self.lines.recv().await;
        self.is_wanted = false;
        match line {
            Some(Ok(line)) => Next::Text(line),
            Some(Err(failure)) => Next::Unreadable(failure),
            None => Next::End,
        }
    }
}

/// Lines of stdin as they come, as long as one is wanted. A thread of its own: a pipe whose writer does nothing cannot be waited
/// for otherwise.
fn lines_of_stdin(is_wanted: impl Fn() -> bool + Send + 'static) -> mpsc::Receiver<Result<String, Failure>> {
    // One ahead is enough: a writer that is faster than the agent waits.
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        while is_wanted() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_empty_lines_that_are_given_up_one_after_the_other_leave() {
        let first = Instant::now();
        let after = |milliseconds| Some(first + Duration::from_millis(milliseconds));
        for (before, now, expected) in [
            (None, after(0), false),
            (Some(first), None, false),
            (Some(first), after(0), true),
            (Some(first), after(2000), true),
            (Some(first), after(2001), false),
        ] {
            assert_eq!(is_again(before, now), expected, "{before:?} {now:?}");
        }
    }
}
