//! Attends to a turn while it goes on: what happens is shown, signals and the clock can end it.

use std::time::Duration;

use llm_do::escape::visible;
use llm_do::questions::{AnswerError, BY_THE_RUN, OpenQuestion};
use llm_do::runs::RestoredTurns;
use llm_do::{Answer, Event, Input, Message, Output, RunError};
use llm_do_launch::saved_files::{SavedFile, TurnFiles};
use llm_do_launch::session::{
    ChangedConversation, ConversationChange, KeptTurn, QuestionQueue, Session, SessionUpdates, TurnResult, Update,
};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::console::{self, StdoutReader};
use crate::countdown::Countdown;
use crate::failure::Failure;
use crate::signals::{Signals, StopReason};
use crate::terminal::calls::CallNumbering;
use crate::terminal::display::Display;
use crate::terminal::prompt::Asking;
use crate::terminal::typing::{TurnWish, TypedAhead};

/// How a turn ended.
#[derive(Debug)]
pub struct TurnEnded {
    pub answer: Result<Output, RunError>,
    pub stopped: Option<StopReason>,
    /// What stays of a turn that came to no answer.
    pub kept: Option<KeptTurn>,
}

impl TurnEnded {
    fn of(turn: TurnResult, stopped: Option<StopReason>) -> Self {
        let cancelled = turn.is_cancelled.then_some(StopReason::Cancelled);
        Self { answer: turn.answer, stopped: stopped.or(cancelled), kept: turn.kept }
    }
}

/// Of a turn that came to nothing.
impl Default for TurnEnded {
    fn default() -> Self {
        Self { answer: Err(RunError::Cancelled { partial: String::new() }), stopped: None, kept: None }
    }
}

/// What is heard and seen of a session.
pub struct Screen {
    pub updates: SessionUpdates,
    pub signals: Signals,
    /// The reader of what it prints.
    pub reader: StdoutReader,
    pub display: Display,
    /// Questions that wait until those before them are answered.
    pub waiting: QuestionQueue,
    /// The person at the terminal; without one no question comes.
    pub asking: Option<Asking>,
    /// Of each turn.
    pub timeout: Option<Duration>,
    /// Whether whoever stops a turn is back at a prompt, and does not leave.
    pub has_prompt: bool,
    /// What is typed during a turn.
    pub typed: TypedAhead,
    /// Whether it is read: nobody else reads keys while a turn goes on.
    pub reads_keys: bool,
    /// Files that replies and results brought so far.
    pub files: Vec<SavedFile>,
}

/// Who answers the questions of a run at the terminal.
const PERSON: &str = "the person at the terminal";

/// What came of a question, and what happened while it stood.
#[derive(Default)]
struct Meanwhile {
    events: Vec<Event>,
    /// What is said when it stands no more.
    notes: Vec<String>,
    ended: Option<TurnResult>,
}

/// Whether a second signal ended everything at once.
pub enum ScreenOutcome<T> {
    Ended(T),
    Killed(StopReason),
}

impl ScreenOutcome<TurnEnded> {
    /// What ended the turn before its answer.
    pub fn stopped(&self) -> Option<StopReason> {
        match self {
            Self::Ended(turn) => turn.stopped,
            Self::Killed(stopped) => Some(*stopped),
        }
    }
}

/// How long a terminal that is gone is ahead of the signal that it sends, at most.
const HANGUP: Duration = Duration::from_millis(200);

/// How often the status line moves.
const TICK: Duration = Duration::from_millis(100);

impl Screen {
    /// One turn to its end. The first signal cancels it; the second does not wait for anything.
    pub async fn turn(&mut self, session: &Session, input: Input) -> ScreenOutcome<TurnEnded> {
        let cancelled = session.turn(input);
        self.attend(session, &cancelled).await
    }

    /// Goes on with the turn that an earlier process did not finish.
    pub async fn finish_turn(&mut self, session: &Session) -> ScreenOutcome<TurnEnded> {
        let cancelled = session.finish_turn();
        self.attend(session, &cancelled).await
    }

    /// Opens the call, with what its record has: what was taken over.
    pub async fn open(&mut self, session: &Session) -> ScreenOutcome<Result<RestoredTurns, RunError>> {
        session.open();
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => return ScreenOutcome::Killed(signal.stops()),
                update = self.updates.next() => match update {
                    Some(Update::Opened(opened)) => return ScreenOutcome::Ended(opened.map(|opened| opened.restored)),
                    // What happened in another process is not shown again.
                    Some(
                        Update::Events(_)
                        | Update::Question(_)
                        | Update::Answered(..)
                        | Update::TurnEnded(_)
                        | Update::Changed(_),
                    ) => {}
                    Some(Update::Note(note)) => tell_note(&note),
                    Some(Update::Closed(_)) | None => {
                        return ScreenOutcome::Ended(Err(RunError::Cancelled { partial: String::new() }));
                    }
                },
            }
        }
    }

    /// Changes the conversation between two turns.
    pub async fn change(
        &mut self,
        session: &Session,
        wanted: ConversationChange,
    ) -> ScreenOutcome<Result<ChangedConversation, RunError>> {
        session.change(wanted);
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => return ScreenOutcome::Killed(signal.stops()),
                update = self.updates.next() => match update {
                    Some(Update::Changed(changed)) => {
                        self.display.step_back();
                        return ScreenOutcome::Ended(changed);
                    }
                    Some(Update::Events(events)) => self.display.show(events, &mut self.typed),
                    Some(Update::Note(note)) => tell_note(&note),
                    Some(Update::Question(_) | Update::Answered(..) | Update::TurnEnded(_) | Update::Opened(_)) => {}
                    Some(Update::Closed(_)) | None => {
                        return ScreenOutcome::Ended(Err(RunError::Cancelled { partial: String::new() }));
                    }
                },
            }
        }
    }

    async fn attend(&mut self, session: &Session, cancelled: &CancellationToken) -> ScreenOutcome<TurnEnded> {
        self.signals.settle();
        console::take_time();
        if let Some(asking) = &self.asking {
            // Whoever begins a turn has typed something.
            asking.terminal.was_used();
        }
        let mut countdown = Countdown::of(self.timeout);
        let (mut stopped, mut tick) = (None, ticks_from(Instant::now() + TICK));
        let has_prompt = self.has_prompt;
        loop {
            if let Some(question) = self.waiting.pop().filter(|_| stopped.is_none()) {
                // Another answer may have closed it, which is told behind what was told before.
                if !session.questions.open().iter().any(|open| open.id() == question.id()) {
                    continue;
                }
                self.display.clock.wait(Instant::now().into_std());
                let (meanwhile, interrupted) = self.ask(session, question, &mut countdown).await;
                self.display.clock.go_on(Instant::now().into_std());
                meanwhile.notes.iter().for_each(|note| console::complain(note));
                self.take_aside();
                self.display.show(meanwhile.events.into_iter(), &mut self.typed);
                stopped = stopped.or(interrupted.map(|stopped| leave(session, cancelled, stopped, has_prompt)));
                if let Some(turn) = meanwhile.ended {
                    return ScreenOutcome::Ended(ended(turn, stopped, &mut self.display, &mut self.files));
                }
                continue;
            }
            let mut keys = None;
            tokio::select! {
                biased;
                signal = self.signals.next() => match stopped {
                    None => {
                        if has_prompt && !self.reads_keys {
                            // The terminal has echoed the key.
                            console::complain("\n");
                        }
                        stopped = Some(cancel(session, cancelled, signal.stops(), has_prompt));
                    }
                    Some(_) => return ScreenOutcome::Killed(signal.stops()),
                },
                // Before the events: those of agents that never wait do not end.
                () = countdown.over(), if stopped.is_none() => {
                    let limit = self.timeout.unwrap_or_default();
                    stopped = Some(cancel(session, cancelled, StopReason::TimedOut(limit), has_prompt));
                }
                () = self.reader.gone(), if stopped.is_none() => {
                    stopped = Some(cancel(session, cancelled, StopReason::Unread, has_prompt));
                }
                update = self.updates.next() => match update {
                    Some(Update::Events(events)) => self.display.show(events, &mut self.typed),
                    Some(Update::Question(question)) => self.waiting.push(question),
                    Some(Update::TurnEnded(turn)) => return ScreenOutcome::Ended(ended(turn, stopped, &mut self.display, &mut self.files)),
                    Some(Update::Answered(id, ..)) => self.waiting.remove(&id),
                    Some(Update::Note(note)) => {
                        self.display.step_back();
                        tell_note(&note);
                    }
                    Some(Update::Opened(_) | Update::Changed(_)) => {}
                    Some(Update::Closed(_)) | None => return ScreenOutcome::Ended(TurnEnded { stopped, ..TurnEnded::default() }),
                },
                _ = tick.tick(), if self.display.view.live => {
                    self.display.hear_silence(session.runtime.silence());
                    self.display.pulse(&self.typed);
                }
                pressed = pressed(self.asking.as_ref()), if self.reads_keys => keys = Some(pressed),
            }
            if let Some(pressed) = keys {
                self.press(pressed, session);
            }
        }
    }

    /// Takes what was typed while the turn goes on.
    fn press(&mut self, pressed: TurnKeys, session: &Session) {
        match pressed {
            TurnKeys::Typed(bytes) => {
                for wish in self.typed.read(&bytes) {
                    match wish {
                        TurnWish::Say(text) => session.say(text),
                        TurnWish::More => self.display.show_cut(&self.typed),
                    }
                }
                self.display.tick(&self.typed);
            }
            TurnKeys::Returned => self.display.returned(&self.typed),
            // A signal says so too.
            TurnKeys::Nothing => self.reads_keys = false,
        }
    }

    /// What was typed at a question and not meant for it is for the next line.
    fn take_aside(&mut self) {
        if let Some(asking) = &self.asking {
            self.typed.insert(&asking.terminal.take_draft());
        }
    }

    /// Whoever stops a turn is back at a prompt. Unless the terminal edits lines itself, what is typed meanwhile is a draft.
    pub fn take_prompt(&mut self, is_edited: bool) {
        self.has_prompt = true;
        self.display.number_calls(if is_edited { CallNumbering::Keys } else { CallNumbering::Command });
        if let Some(asking) = self.asking.as_mut().filter(|_| is_edited) {
            asking.terminal.hush();
            self.reads_keys = true;
        }
    }

    /// What was typed for the next line, before and behind its cursor.
    pub fn take_draft(&mut self) -> (String, String) {
        self.take_aside();
        self.typed.take_draft()
    }

    /// Puts back what a part of the program changed and could not put back, since it was interrupted.
    pub fn restore_terminal(&mut self) {
        if let Some(asking) = &mut self.asking {
            asking.terminal.restore();
        }
    }

    /// A signal while no turn goes on.
    pub async fn stopped(&mut self) -> StopReason {
        self.signals.settle();
        tokio::select! {
            signal = self.signals.next() => signal.stops(),
            () = self.reader.gone() => StopReason::Unread,
        }
    }

    /// Asks the person at the terminal. A signal and the clock answer for them: no, and that was it.
    async fn ask(
        &mut self,
        session: &Session,
        question: OpenQuestion,
        countdown: &mut Countdown,
    ) -> (Meanwhile, Option<StopReason>) {
        let mut meanwhile = Meanwhile::default();
        let Some(asking) = self.asking.as_mut() else { return (meanwhile, None) };
        asking.number(session.questions.open().iter().map(OpenQuestion::id), question.id());
        let mut numbers = asking.numbers.clone();
        self.display.step_back();
        let mut answered = std::pin::pin!(asking.ask(&question.request));
        let stopped = loop {
            tokio::select! {
                biased;
                answer = &mut answered => match answer {
                    Some(answer) => {
                        // Another process may have been faster.
                        if let Err(AnswerError::AlreadyAnswered { by }) = session.questions.answer(question.id(), answer, PERSON) {
                            meanwhile.notes.extend(told_answer(&numbers.name(question.id()), &by, None));
                        }
                        return (meanwhile, None);
                    }
                    // The signal that says the same may come a moment later, and is no second one.
                    None => break match tokio::time::timeout(HANGUP, self.signals.next()).await {
                        Ok(signal) => signal.stops(),
                        Err(_) => StopReason::Terminated,
                    },
                },
                signal = self.signals.next() => break signal.stops(),
                () = countdown.over() => {
                    break StopReason::TimedOut(self.timeout.unwrap_or_default());
                }
                () = self.reader.gone() => break StopReason::Unread,
                update = self.updates.next() => match update {
                    Some(Update::Events(events)) => meanwhile.events.extend(events),
                    Some(Update::Question(other)) => {
                        numbers.assign(other.id(), true);
                        self.waiting.push(other);
                    }
                    // The call that waited was given up, or it was answered elsewhere.
                    Some(Update::Answered(id, by, answer)) => {
                        meanwhile.notes.extend(told_answer(&numbers.name(&id), &by, answer.as_ref()));
                        if id == *question.id() {
                            return (meanwhile, None);
                        }
                        self.waiting.remove(&id);
                    }
                    Some(Update::Note(note)) => tell_note(&note),
                    Some(Update::TurnEnded(turn)) => {
                        meanwhile.ended = Some(turn);
                        return (meanwhile, None);
                    }
                    Some(Update::Opened(_) | Update::Changed(_)) => {}
                    Some(Update::Closed(_)) | None => return (meanwhile, None),
                },
            }
        };
        (meanwhile, Some(stopped))
    }

    /// Writes where others may have to be waited for. A signal and the clock end that too.
    pub async fn hand_over(
        &mut self,
        writing: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        // Both may be one terminal.
        let written = async {
            console::told().await;
            tokio::task::spawn_blocking(writing).await
        };
        let limit = self.timeout.unwrap_or(Duration::MAX);
        tokio::select! {
            biased;
            written = written => written.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())),
            signal = self.signals.next() => Err(signal.stops().failure()),
            () = tokio::time::sleep(limit), if self.timeout.is_some() => Err(Failure::timed_out(limit)),
        }
    }

    /// Closes the call and gives its messages.
    pub async fn close(&mut self, session: Session) -> ScreenOutcome<Vec<Message>> {
        let ending = self.updates.ending();
        session.close();
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    ending.abort();
                    return ScreenOutcome::Killed(signal.stops());
                }
                update = self.updates.next() => match update {
                    Some(Update::Events(events)) => self.display.show(events, &mut self.typed),
                    Some(Update::Closed(closed)) => {
                        self.display.step_back();
                        return ScreenOutcome::Ended(closed.messages);
                    }
                    Some(Update::Note(note)) => tell_note(&note),
                    Some(
                        Update::Question(_)
                        | Update::Answered(..)
                        | Update::Opened(_)
                        | Update::TurnEnded(_)
                        | Update::Changed(_),
                    ) => {}
                    None => return ScreenOutcome::Ended(Vec::new()),
                },
            }
        }
    }
}

/// What a person does at the terminal while a turn goes on.
enum TurnKeys {
    Typed(Vec<u8>),
    /// They had stopped the process, which goes on.
    Returned,
    /// Nothing any more.
    Nothing,
}

async fn pressed(asking: Option<&Asking>) -> TurnKeys {
    let Some(Asking { terminal, .. }) = asking else { return std::future::pending().await };
    tokio::select! {
        biased;
        () = terminal.returned() => TurnKeys::Returned,
        typed = terminal.typed() => typed.map_or(TurnKeys::Nothing, TurnKeys::Typed),
    }
}

/// Whoever was asked and not heard learns whose answer counts.
fn told_answer(question: &str, by: &str, answer: Option<&Answer>) -> Option<String> {
    if by == BY_THE_RUN || by == PERSON {
        return None;
    }
    let answer = match answer {
        None | Some(Answer::Later | Answer::Values(_)) => "",
        Some(Answer::Once | Answer::CallForSession | Answer::ToolForSession) => ": yes",
        Some(Answer::Edited(_)) => ": yes, with edits",
        Some(Answer::Refuse { .. } | Answer::EndRun) => ": no",
    };
    Some(format!("{question} was answered by {} in inbox{answer}\n", visible(by)))
}

fn tell_note(note: &str) {
    console::complain(&format!("note: {}\n", visible(note)));
}

/// Whatever took long, a question above all, the status line moves once and not once for each tick that was missed.
fn ticks_from(first: Instant) -> Interval {
    let mut ticks = tokio::time::interval_at(first, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// A turn is over: what it brought is said.
fn ended(
    mut turn: TurnResult,
    stopped: Option<StopReason>,
    display: &mut Display,
    files: &mut Vec<SavedFile>,
) -> TurnEnded {
    display.step_back();
    let TurnFiles { saved, notes } = std::mem::take(&mut turn.files);
    if display.view.tells_notes() {
        console::complain(&notes.concat());
    }
    if display.view.tells_calls() {
        for SavedFile { path, bytes, tool, .. } in &saved {
            let path = path.display().to_string();
            console::complain(&format!("{} brought {} ({bytes} bytes)\n", visible(tool), visible(&path)));
        }
    }
    files.extend(saved);
    TurnEnded::of(turn, stopped)
}

/// Whoever ends a run at a question ends it; a terminal that is gone leaves the question to somebody else.
fn leave(session: &Session, turn: &CancellationToken, stopped: StopReason, has_prompt: bool) -> StopReason {
    match stopped {
        StopReason::Terminated => {
            session.leave(turn);
            console::hurry();
            stopped
        }
        StopReason::Interrupted | StopReason::Cancelled | StopReason::TimedOut(_) | StopReason::Unread => {
            if let Some(first) = session.questions.open().first() {
                let _ = session.questions.answer(first.id(), Answer::EndRun, PERSON);
            }
            cancel(session, turn, stopped, has_prompt)
        }
    }
}

/// Ends a turn. If that ends the chat too, the turn is left open for whoever comes back.
fn cancel(session: &Session, turn: &CancellationToken, stopped: StopReason, has_prompt: bool) -> StopReason {
    let leaves = match stopped {
        StopReason::Terminated | StopReason::Unread => true,
        StopReason::Interrupted | StopReason::Cancelled => !has_prompt,
        StopReason::TimedOut(_) => false,
    };
    if leaves {
        session.leave_turns_open();
    }
    turn.cancel();
    console::hurry();
    stopped
}

#[cfg(test)]
mod tests {
    use llm_do::questions::QuestionBroker;
    use llm_do::{
        Approvals, BoxFuture, CallContext, Content, Judgement, Listen, ModelChoices, ModelName, Models, PermittedCall,
        Project, RawJson, Runtime, RuntimeConfig, ToolError, ToolSpec, Toolset, Verdict,
    };
    use llm_do_launch::session::{SessionLength, SessionParts, TurnReport};

    use super::*;
    use crate::args::RunFormat;
    use crate::terminal::markdown::MarkdownForm;
    use crate::terminal::render::{Thoughts, Verbosity, View};
    use crate::terminal::style::Styles;

    /// A toolset that does not let go.
    struct Clinging;

    impl Toolset for Clinging {
        fn specs(&self) -> Vec<ToolSpec> {
            Vec::new()
        }

        fn judge<'a>(
            &'a self,
            _: &'a str,
            _: &'a RawJson,
            _: &'a CallContext<'a>,
        ) -> BoxFuture<'a, Result<Judgement, String>> {
            Box::pin(async move { Ok(Verdict::Allow.into()) })
        }

        fn call<'a>(
            &'a self,
            _: PermittedCall,
            _: &'a CallContext<'a>,
        ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
            Box::pin(std::future::pending())
        }
    }

    fn started() -> (Session, SessionUpdates) {
        let models = ModelChoices {
            required: Some(ModelName::parse("scripted:s").unwrap()),
            scripts: [("s".to_owned(), "- say: done".to_owned())].into(),
            ..ModelChoices::default()
        };
        let project = Project::new(".")
            .agent("main.worker", "---\nname: main\ntoolsets: [clinging]\n---\nx")
            .toolset("clinging", || Box::new(Clinging));
        let program = project.link(&models).unwrap();
        let config = RuntimeConfig::new(Approvals::unattended());
        let (runtime, events) = Runtime::with_listener(program, Models::default(), config, Listen::Facts);
        let questions = QuestionBroker::new();
        Session::start(SessionParts {
            runtime,
            events,
            questions,
            caller: None,
            report: TurnReport::Answer,
            pace: None,
            keeper: None,
            notifier: None,
            restores: false,
            history: Vec::new(),
            length: SessionLength::Conversation,
            files: None,
        })
    }

    fn watch(updates: SessionUpdates) -> Screen {
        let plain = Styles { coloured: false };
        let (verbosity, live, streamed, stdout_is_terminal) = (Verbosity::Quiet, false, false, false);
        let view = View {
            verbosity,
            live,
            streamed,
            stdout_is_terminal,
            stdout: plain,
            answers: MarkdownForm::Source,
            stderr: plain,
            thoughts: Thoughts::Hidden,
        };
        let (signals, display) = (Signals::listen().unwrap(), Display::new(view, RunFormat::Text));
        let (reader, waiting) = (StdoutReader::of_stdout(), QuestionQueue::default());
        let typed = TypedAhead::default();
        Screen {
            updates,
            signals,
            reader,
            display,
            waiting,
            asking: None,
            timeout: None,
            has_prompt: false,
            typed,
            reads_keys: false,
            files: Vec::new(),
        }
    }

    #[tokio::test]
    async fn ticks_that_were_missed_are_not_made_up_for() {
        let mut ticks = ticks_from(Instant::now() - Duration::from_secs(3));
        ticks.tick().await;
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(ticks.poll_tick(&mut cx).is_pending(), "one is enough");
    }

    #[tokio::test]
    async fn a_signal_does_not_wait_for_what_does_not_let_go() {
        let (session, updates) = started();
        let mut watch = watch(updates);
        let turn = watch.turn(&session, Input::from("hi")).await;
        assert!(matches!(turn, ScreenOutcome::Ended(TurnEnded { answer: Ok(_), stopped: None, .. })));
        let signal = async {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT).unwrap();
        };
        let (closed, ()) = tokio::join!(watch.close(session), signal);
        assert!(matches!(closed, ScreenOutcome::Killed(StopReason::Interrupted)));
    }
}
