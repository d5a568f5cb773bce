//! Attends to a run from what was decided to its end: `run`, `chat` and `resume` come through here.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use llm_do::approval::{ApprovalMode, KnownAnswers};
use llm_do::escape::visible;
use llm_do::names::nearest;
use llm_do::program::{AgentSpec, Entry, Typing};
use llm_do::providers::ModelFallback;
use llm_do::records::JournalContents;
use llm_do::remedy::Remedy;
use llm_do::runs::RestoredTurns;
use llm_do::store::layout::RunId;
use llm_do::trust::Fingerprint;
use llm_do::{Input, Listen, Program, WorkingDirectory, process};
use llm_do_launch::config::MarkdownConfig;
use llm_do_launch::error::LaunchError;
use llm_do_launch::keep::RunKeeper;
use llm_do_launch::launch::{
    Launch, LinkedLaunch, ListenPlan, Purpose, ReadyRun, Record, Resumption, SurveyedLaunch, TrustedLaunch,
};
use llm_do_launch::record::{RunHeader, RunRecord, read};
use llm_do_launch::rehearsal::RehearsedRequest;
use llm_do_launch::session::{QuestionQueue, Session, SessionLength, TurnReport};
use llm_do_launch::settings::Settings;
use tokio::runtime::Runtime as Executor;

use crate::args::RunFormat;
use crate::console::{ConsolePace, StdoutReader};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::{Failure, marked};
use crate::plan::{Conduct, InputPlan, Recording, RunPlan, TalkPlan};
use crate::report::{self, OutputPlan, RunReport};
use crate::signals::Signals;
use crate::talk::{InputReader, Talk};
use crate::terminal::Terminal;
use crate::terminal::chat::{Chat, ChatEnded, ChatPause, CutTurn, Goes, TurnsPlan};
use crate::terminal::display::{Display, MessageLines};
use crate::terminal::editor::Editor;
use crate::terminal::lasting::Lasting;
use crate::terminal::markdown::MarkdownForm;
use crate::terminal::prompt::{Asking, PersonTools, QuestionNumbers};
use crate::terminal::render::{Thoughts, Verbosity, View};
use crate::terminal::screen::{Screen, ScreenOutcome, TurnEnded};
use crate::terminal::typing::TypedAhead;
use crate::{answer_file, console, first_model, foreign_flags, remedy, terminal::trust};

/// What is known of a run that goes on.
pub struct PriorRun<'a> {
    pub talk: PriorTalk,
    /// Whether it may go on with the files as they are now.
    pub compare: &'a dyn Fn(&Fingerprint) -> Result<(), Failure>,
}

/// What is said to a run that goes on.
pub enum PriorTalk {
    /// What was said to it first: its record answers as far as it goes.
    Input(Input),
    /// Nothing: its last turn is finished.
    Finish,
    /// What the plan says, behind what was said before.
    Chat(CutTurn),
}

/// A linked program and what is said to it: all that is known before a run is recorded and started.
pub struct LinkedRun {
    pub linked: LinkedLaunch,
    talk: Talk,
    conduct: Conduct,
    replayed: Option<(RunHeader, JournalContents)>,
    rehearsed: Option<RehearsedRequest>,
    person: Option<PersonTools>,
    /// What becomes of a turn that was cut off, in a chat that goes on.
    cut: Option<CutTurn>,
    /// What the children of the run, started before it, live on.
    executor: Executor,
}

/// Everything up to the first effect. An input that is known already is taken instead of the one that was typed.
pub fn link(
    plan: RunPlan,
    environment: &Environment,
    settings: &Arc<Settings>,
    before: Option<PriorRun<'_>>,
) -> Result<LinkedRun, Failure> {
    let colour = plan.conduct.colour;
    linked(plan, environment, settings, before).map_err(|failure| failure.coloured(colour))
}

fn linked(
    plan: RunPlan,
    environment: &Environment,
    settings: &Arc<Settings>,
    before: Option<PriorRun<'_>>,
) -> Result<LinkedRun, Failure> {
    let RunPlan { launch, mut conduct } = plan;
    let directory = launch.directory.clone();
    if settings.config.terminal.markdown == MarkdownConfig::Plain {
        conduct.output.view.answers = MarkdownForm::Source;
    }
    if settings.config.terminal.thinking {
        conduct.output.view.thoughts = Thoughts::Shown;
    }
    conduct.output.file = conduct.output.file.map(|file| directory.join(file));
    if conduct.output.partial && conduct.output.format != RunFormat::StreamJson {
        return Err(Failure::usage("`--partial` prints lines of JSON: it needs `--json`"));
    }
    conduct.output.files = conduct.output.files.map(|files| directory.join(files));
    conduct.files = conduct.files.iter().map(|file| directory.join(file)).collect();
    conduct.output.file.as_deref().map_or(Ok(()), answer_file::check)?;
    if launch.assistant {
        (settings.notes)("note: no project of that name: a plain assistant without tools answers\n");
    } else if before.is_none() && !launch.project_path().exists() {
        return Err(no_project(&launch.project, &launch.directory, environment));
    }
    let rehearsed = match &launch.purpose {
        Purpose::FirstRequest(rehearsed) => Some(rehearsed.clone()),
        Purpose::Answer => None,
    };
    let surveyed = with_model(launch.survey(settings)?, conduct.attended, settings)?;
    // Whoever goes on with a run learns first what has changed since: nothing of the project has run yet.
    before.as_ref().map_or(Ok(()), |before| (before.compare)(&surveyed.project().fingerprint()))?;
    if takes_text(surveyed.program()) {
        conduct = conduct.into_chat(environment);
    }
    // A record that is not the user's is refused before anybody is asked about the project.
    let replayed = replayed(&conduct.recording, settings)?;
    let (known, cut) = match before.map(|before| before.talk) {
        Some(PriorTalk::Input(input)) => (Some(Talk::Once(input)), None),
        Some(PriorTalk::Finish) => (Some(Talk::Finish), None),
        Some(PriorTalk::Chat(cut)) => (None, Some(cut)),
        None => (None, None),
    };
    // What comes from a record comes whole: there are no pieces of it to show.
    let is_recorded = known.is_some() || replayed.is_some();
    let said = || replayed.as_ref().and_then(|(header, _)| said_before(&conduct, header)).map(Talk::Once);
    let known = known.or_else(said);
    let executor = executor()?;
    let linking = async {
        let trusted = trust::settle(surveyed, &conduct.trust).await?;
        Box::pin(begin(trusted, &conduct, settings, known)).await
    };
    let (linked, talk) = match executor.block_on(linking) {
        Ok(begun) => begun,
        Err(failure) => {
            // Whoever still reads stdin is not waited for.
            executor.shutdown_background();
            return Err(failure);
        }
    };
    linked.program().replaced_models.iter().for_each(|fact| (settings.notes)(&format!("note: {fact}\n")));
    conduct.output.view.streamed &= linked.answers_in_text() && !is_recorded;
    let person = conduct.attended.then(|| {
        let root = &linked.program().root;
        let lasting = Lasting::new(Arc::clone(settings), root.clone());
        PersonTools { editor: Editor::of(environment, root, directory), lasting }
    });
    Ok(LinkedRun { linked, talk, conduct, replayed, rehearsed, person, cut, executor })
}

/// `llm-do chekc .` is read as a project to run as well.
pub fn no_project(project: &Path, directory: &WorkingDirectory, environment: &Environment) -> Failure {
    let shown = project.display().to_string();
    let failure = Failure::usage(format!("no such project: `{}`", visible(&shown)));
    let file = environment.config_file().map(|file| file.display().to_string()).unwrap_or_default();
    let near = || {
        nearest(&shown, near_names(project, directory).iter().map(String::as_str))
            .map(|name| format!("did you mean `{name}`?"))
    };
    let hint = foreign_flags::habit(&shown, &file).or_else(near).or_else(|| foreign_flags::instead_of_command(&shown));
    failure.hint(hint.unwrap_or_else(|| remedy::words(&Remedy::NewProject)))
}

/// What stands beside it and may be meant: directories and worker files.
fn near_names(project: &Path, directory: &WorkingDirectory) -> Vec<String> {
    const MOST: usize = 1000;
    let parent = project.parent().unwrap_or(Path::new(""));
    let Ok(entries) = std::fs::read_dir(directory.join(parent).join(".")) else { return Vec::new() };
    let is_meant = |path: &Path| path.is_dir() || path.extension().is_some_and(|ending| ending == "worker");
    let paths = entries.flatten().take(MOST).map(|entry| entry.path()).filter(|path| is_meant(path));
    paths.filter_map(|path| parent.join(path.file_name()?).to_str().map(str::to_owned)).collect()
}

/// Whether something has to be said, and can be typed.
fn takes_text(program: &Program) -> bool {
    let takes_text = |agent: &Arc<AgentSpec>| agent.input == Typing::Untyped;
    match &program.entry {
        Entry::Agent(name) => {
            program.default_input.is_none()
                && program.allow_cli_input
                && program.agents.get(name).is_some_and(takes_text)
        }
        Entry::Function(_) | Entry::Open => false,
    }
}

/// The same with a model for agents that have none, if the user chooses one now.
pub fn with_model(
    surveyed: SurveyedLaunch,
    attended: bool,
    settings: &Arc<Settings>,
) -> Result<SurveyedLaunch, Failure> {
    let agents = &surveyed.program().without_model;
    if agents.is_empty() {
        return Ok(surveyed);
    }
    let model = first_model::chosen(agents, &surveyed.launch.project, attended, settings)?;
    let mut launch = surveyed.launch;
    launch.models.fallbacks.push(ModelFallback {
        model,
        label: "the user's configuration".to_owned(),
        others: Vec::new(),
    });
    launch.models.may_be_open = false;
    Ok(launch.survey(settings)?)
}

/// The journal that answers every step.
fn replayed(recording: &Recording, settings: &Settings) -> Result<Option<(RunHeader, JournalContents)>, Failure> {
    let Recording::Replay(file, author) = recording else { return Ok(None) };
    let contents = read(file, *author, &settings.state)?;
    Ok(Some((RunHeader::of(&contents, file)?, contents)))
}

/// A replay takes the recorded input unless another one is given.
fn said_before(conduct: &Conduct, header: &RunHeader) -> Option<Input> {
    match &conduct.talk {
        TalkPlan::Once(InputPlan::Unspoken { .. }) if conduct.files.is_empty() => header.input.clone(),
        TalkPlan::Once(_) | TalkPlan::Chat { .. } => None,
    }
}

/// Starts Python and reads the input, both at once: either may have to be waited for.
async fn begin(
    trusted: TrustedLaunch,
    conduct: &Conduct,
    settings: &Arc<Settings>,
    known: Option<Talk>,
) -> Result<(LinkedLaunch, Talk), Failure> {
    if let Some(talk) = known {
        return Ok((Box::pin(link_recorded(trusted, conduct, settings)).await?, talk));
    }
    let reading = InputReader::new(conduct.talk.clone(), conduct.files.clone(), trusted.program());
    if !trusted.starts_python() {
        // A thread would cost more than there is to wait for.
        return Ok((Box::pin(trusted.link()).await?, reading.talk()?));
    }
    let reading = tokio::task::spawn_blocking(move || reading.talk());
    let linked = Box::pin(trusted.link()).await?;
    let talk = reading.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))?;
    Ok((linked, talk))
}

/// A record can be followed where Python is missing, if it need not understand an entry, an input or an answer.
async fn link_recorded(
    trusted: TrustedLaunch,
    conduct: &Conduct,
    settings: &Arc<Settings>,
) -> Result<LinkedLaunch, Failure> {
    let is_spared = matches!(conduct.recording, Recording::Replay(..)) && is_told_without_python(trusted.program());
    let spare: Option<Launch> = is_spared.then(|| trusted.launch.clone());
    match (Box::pin(trusted.link()).await, spare) {
        (Err(error), Some(launch)) => {
            if !matches!(conduct.output.view.verbosity, Verbosity::Quiet | Verbosity::Messages) {
                console::complain(&format!("note: replayed without Python: {}\n", marked(&error.fact())));
            }
            // It was agreed to a moment ago.
            Ok(launch.survey(settings)?.trust_as_own()?.link_without_python())
        }
        (linked, _) => Ok(linked?),
    }
}

fn is_told_without_python(program: &Program) -> bool {
    let is_typed = |typing: &Typing| matches!(typing, Typing::Python(_));
    matches!(program.entry, Entry::Agent(_))
        && !program.agents.values().any(|agent| is_typed(&agent.input) || is_typed(&agent.output))
}

impl LinkedRun {
    /// What becomes of the steps of a run that begins now.
    fn record(&mut self) -> Result<Record, Failure> {
        if let Some((header, contents)) = self.replayed.take() {
            return Ok(Record::Known(RunRecord::replay(contents, header.run)));
        }
        let input = match &self.talk {
            Talk::Once(input) => Some(input.clone()),
            Talk::Finish | Talk::Chat(_) => None,
        };
        begun(&self.linked, &self.conduct.recording, input)
    }

    /// Begins a new run, unless another one has its key.
    pub fn begin(mut self) -> Result<RunStart, Failure> {
        if self.replayed.is_none() {
            self.linked.check_keys()?;
        }
        let record = self.record()?;
        let once = match &record {
            Record::Keep(_, header) => header.once.clone(),
            Record::Ephemeral | Record::File(..) | Record::Known(_) | Record::Observed(..) => None,
        };
        match self.readied(record, None) {
            Ok(attendance) => Ok(RunStart::Ready(Box::new(attendance))),
            Err(LaunchError::Taken(first)) => Ok(RunStart::Taken(first, once)),
            Err(error) => Err(error.into()),
        }
    }

    /// Everything is known, and a new record is begun.
    pub fn ready(self, record: Record, known: Option<Arc<dyn KnownAnswers>>) -> Result<Attendance, Failure> {
        Ok(self.readied(record, known)?)
    }

    fn readied(self, record: Record, known: Option<Arc<dyn KnownAnswers>>) -> Result<Attendance, LaunchError> {
        let Self { linked, talk, conduct, rehearsed, person, cut, executor, .. } = self;
        let has_code = linked.program().registry.python.is_some();
        // A chat that is cleared begins another run of the same program.
        let again = matches!(talk, Talk::Chat(_)).then(|| linked.clone());
        let ready = linked.ready(record, known)?;
        Ok(Attendance { ready, talk, conduct, rehearsed, person, cut, again, executor, has_code })
    }
}

/// A new record, as the plan says.
fn begun(linked: &LinkedLaunch, recording: &Recording, input: Option<Input>) -> Result<Record, Failure> {
    Ok(match recording {
        Recording::Keep(plan) => linked.kept(plan.clone(), input)?,
        Recording::Journal(file, kind) => {
            let header = RunHeader::begin(&linked.launch, linked.files.clone(), input)?;
            Record::File(file.clone(), *kind, Box::new(header))
        }
        Recording::Nothing | Recording::Replay(..) => Record::Ephemeral,
    })
}

/// What a run that was to begin has become.
pub enum RunStart {
    Ready(Box<Attendance>),
    /// Another run has its key, and this is the digest of what was to be said.
    Taken(RunId, Option<String>),
}

/// A run that is about to start, and whoever attends to it.
pub struct Attendance {
    ready: ReadyRun,
    talk: Talk,
    conduct: Conduct,
    rehearsed: Option<RehearsedRequest>,
    person: Option<PersonTools>,
    cut: Option<CutTurn>,
    again: Option<LinkedLaunch>,
    executor: Executor,
    has_code: bool,
}

impl Attendance {
    /// The run itself, to its report.
    pub fn run(self) -> Result<(), Failure> {
        let Self { ready, talk, conduct, rehearsed, person, cut, again, executor, has_code } = self;
        let output = conduct.output.clone();
        let attended = AttendedRun { ready, talk, conduct, person, cut, again };
        // Agents within agents are rarely deep; code within code may be, and asking for room costs a short run a twentieth.
        let attend = || executor.block_on(attend(attended));
        let ended = if has_code { process::with_room(attend) } else { attend() };
        // What a task still holds ends here: its processes, and the threads that wait for a disk or a terminal.
        executor.shutdown_background();
        match (ended?, rehearsed.and_then(|rehearsed| rehearsed.request())) {
            ((ended, _), Some(request)) => ended.report_request(&output, &request),
            ((ended, None), None) => ended.report(&output),
            ((ended, Some(chat)), None) => ended.report_chat(&output, chat),
        }?;
        match console::delivered() {
            // It is in the file.
            Err(failure) if failure.is_stop() && output.file.is_some() => Ok(()),
            delivered => delivered,
        }
    }
}

/// What is attended to.
struct AttendedRun {
    ready: ReadyRun,
    talk: Talk,
    conduct: Conduct,
    person: Option<PersonTools>,
    cut: Option<CutTurn>,
    again: Option<LinkedLaunch>,
}

async fn attend(attended: AttendedRun) -> Result<(RunReport, Option<ChatEnded>), Failure> {
    let AttendedRun { ready, talk, conduct, person, cut, again } = attended;
    let OutputPlan { format, view, .. } = conduct.output.clone();
    let mut resumption = ready.resumption();
    let (signals, display) = (Signals::listen()?, Display::new(view, format));
    let display = if conduct.output.partial && has_typed_answer(ready.program()) {
        display.with_partial_answers()
    } else {
        display
    };
    let mut asking = person.map(|person| asking(person, view)).transpose()?;
    if let (Some(asking), Talk::Once(_) | Talk::Finish, true) = (&mut asking, &talk, view.live) {
        asking.terminal.silence();
    }
    let is_kept = conduct.output.file.is_some();
    let reader = if is_kept { StdoutReader::of_nobody() } else { StdoutReader::of_stdout() };
    let (waiting, timeout) = (QuestionQueue::default(), conduct.timeout);
    let (mut session, updates) = ready.start(listen(&conduct.output, length_of(&talk)));
    let typed = TypedAhead::default();
    let (has_prompt, reads_keys) = (false, false);
    let mut watch = Screen {
        updates,
        signals,
        reader,
        display,
        waiting,
        asking,
        timeout,
        has_prompt,
        typed,
        reads_keys,
        files: Vec::new(),
    };
    let (turn, chat) = match talk {
        Talk::Once(input) => (watch.turn(&session, input).await, None),
        Talk::Finish => (finish(&mut watch, &session).await, None),
        Talk::Chat(chat) => {
            let again = again.as_ref();
            let talked = converse(*chat, &mut watch, session, &mut resumption, &conduct, cut, again).await;
            watch.restore_terminal();
            let (chat, last) = talked?;
            session = last;
            (ScreenOutcome::Ended(TurnEnded::default()), Some(chat))
        }
    };
    let runtime = Arc::clone(&session.runtime);
    let stopped = chat.as_ref().map_or_else(|| turn.stopped(), |chat| chat.stopped);
    if let (Some(keeper), Some(stopped)) = (&session.keeper, stopped) {
        keeper.ends_by(stopped.end_reason());
    }
    let is_unused = chat.as_ref().is_some_and(|chat| chat.is_unused);
    let news = if is_unused { None } else { first_telling(session.keeper.as_deref(), view) };
    let mut killed = None;
    let (turn, messages) = match turn {
        ScreenOutcome::Killed(stopped) => (TurnEnded { stopped: Some(stopped), ..TurnEnded::default() }, Vec::new()),
        ScreenOutcome::Ended(turn) => match watch.close(session).await {
            ScreenOutcome::Ended(messages) => (turn, messages),
            ScreenOutcome::Killed(stopped) => {
                killed = Some(stopped);
                (turn, Vec::new())
            }
        },
    };
    let answer = chat.as_ref().map_or(turn.answer.as_ref().ok(), |chat| chat.last.as_ref());
    let handed_over = match (answer, conduct.output.file) {
        (Some(answer), Some(file)) if answer_file::is_stream(&file) => {
            let text = report::answer(answer).into_owned();
            Some(match killed {
                None => watch.hand_over(move || answer_file::write(&file, &text)).await,
                Some(stopped) => Err(stopped.failure()),
            })
        }
        (Some(_) | None, _) => None,
    };
    let report = RunReport::of(&runtime, turn, watch.display.clock.of_run(Instant::now()));
    let files = std::mem::take(&mut watch.files);
    Ok((RunReport { messages, resumption, handed_over, news, files, ..report }, chat))
}

/// The turn of a conversation that an earlier process did not finish; the last answer, if there is none.
async fn finish(watch: &mut Screen, session: &Session) -> ScreenOutcome<TurnEnded> {
    match watch.open(session).await {
        ScreenOutcome::Killed(stopped) => ScreenOutcome::Killed(stopped),
        ScreenOutcome::Ended(Err(error)) => {
            ScreenOutcome::Ended(TurnEnded { answer: Err(error), ..TurnEnded::default() })
        }
        ScreenOutcome::Ended(Ok(RestoredTurns { unfinished: None, last: Some(last), .. })) => {
            ScreenOutcome::Ended(TurnEnded { answer: Ok(last.output), ..TurnEnded::default() })
        }
        ScreenOutcome::Ended(Ok(_)) => watch.finish_turn(session).await,
    }
}

/// A chat, in as many runs as it is cleared into. Gives the last session, which is still open.
async fn converse(
    mut chat: Chat,
    watch: &mut Screen,
    mut session: Session,
    resumption: &mut Option<Resumption>,
    conduct: &Conduct,
    cut: Option<CutTurn>,
    again: Option<&LinkedLaunch>,
) -> Result<(ChatEnded, Session), Failure> {
    let plan = &conduct.output;
    let settings = again.map(LinkedLaunch::settings);
    let turns = TurnsPlan { plan, resumption: resumption.as_ref(), settings };
    if let Some(linked) = again {
        let mode = linked.launch.policy.approval_mode.unwrap_or(linked.program().policy.approval_mode);
        chat.greet(&project_name(linked), mode == ApprovalMode::Prompt, &session, plan);
    }
    let goes = match cut {
        Some(cut) => chat.go_on(watch, &session, turns, cut).await?,
        None => Goes::On,
    };
    let mut pause = match goes {
        Goes::On => chat.converse(watch, &session, turns).await?,
        Goes::Away => ChatPause::Over,
    };
    while let (ChatPause::Cleared, Some(linked)) = (pause, again) {
        if let ScreenOutcome::Killed(stopped) = watch.close(session).await {
            return Err(stopped.failure());
        }
        let ready = linked.clone().ready(begun(linked, &conduct.recording, None)?, None)?;
        *resumption = ready.resumption();
        let (next, updates) = ready.start(listen(plan, SessionLength::Conversation));
        (session, watch.updates) = (next, updates);
        pause = chat.converse(watch, &session, TurnsPlan { plan, resumption: resumption.as_ref(), settings }).await?;
    }
    Ok((chat.end(), session))
}

/// As it was typed; a directory that is not named by that, by its own name.
fn project_name(linked: &LinkedLaunch) -> String {
    let typed = linked.launch.project.display().to_string();
    match typed.trim_end_matches('/') {
        "" | "." | ".." => {
            let root = linked.program().root.file_name().map(|name| name.to_string_lossy().into_owned());
            root.unwrap_or(typed)
        }
        named => named.to_owned(),
    }
}

/// Where runs are kept, said once in the life of a store and only to a person.
fn first_telling(keeper: Option<&RunKeeper>, view: View) -> Option<String> {
    let store = keeper.and_then(RunKeeper::store).filter(|_| view.live)?;
    let place = store.layout().runs().display().to_string();
    let news = format!("(runs are kept in {}: `llm-do runs` lists them, `--ephemeral` keeps one out)", visible(&place));
    store.is_first_telling().unwrap_or(false).then_some(news)
}

/// Whether the answer of a run is JSON.
fn has_typed_answer(program: &Program) -> bool {
    let Entry::Agent(name) = &program.entry else { return false };
    program.agents.get(name).is_some_and(|agent| agent.output != Typing::Untyped)
}

fn length_of(talk: &Talk) -> SessionLength {
    match talk {
        Talk::Once(_) | Talk::Finish => SessionLength::OneTurn,
        Talk::Chat(_) => SessionLength::Conversation,
    }
}

/// What is shown nowhere is not even sent.
fn listen(output: &OutputPlan, length: SessionLength) -> ListenPlan {
    let OutputPlan { format, view, files, .. } = output;
    let hearing = match format {
        RunFormat::StreamJson => Listen::Everything,
        RunFormat::Text | RunFormat::Json if view.hears_deltas() => Listen::Everything,
        RunFormat::Text | RunFormat::Json if view.tells_calls() || view.live => Listen::Facts,
        RunFormat::Text | RunFormat::Json => Listen::Exceptions,
    };
    ListenPlan {
        hearing: Some(hearing),
        report: TurnReport::Answer,
        caller: None,
        pace: Some(Arc::new(ConsolePace)),
        log: match view.verbosity {
            Verbosity::Messages => Some(Arc::new(MessageLines)),
            Verbosity::Quiet | Verbosity::Normal | Verbosity::Calls | Verbosity::Text => None,
        },
        history: Vec::new(),
        length,
        files: files.clone(),
        answering: Some(remedy::answering),
    }
}

fn asking(person: PersonTools, view: View) -> Result<Asking, Failure> {
    let terminal =
        Terminal::open().map_err(|error| Failure::failed(format!("the terminal cannot be opened: {error}")))?;
    let PersonTools { editor, lasting } = person;
    let numbers = QuestionNumbers::default();
    Ok(Asking { terminal, editor, styles: view.stderr, has_title: view.live, numbers, lasting })
}
