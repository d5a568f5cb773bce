//! `llm-do resume`: a run from its journal, continued or only shown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llm_do::approval::{KnownAnswers, PendingQuestion, SHORT_ID, short_id};
use llm_do::escape::visible;
use llm_do::questions::AnswerDesk as _;
use llm_do::records::{Durability, JournalContents, Matching, RunKind, shown_time};
use llm_do::store::desk::RunAnswers;
use llm_do::store::index::RunState;
use llm_do::store::summary::{JournalUse, RunSummary};
use llm_do::toolsets::{Ending, InDoubt};
use llm_do::trust::Fingerprint;
use llm_do::{Answer, ApprovalRequest, Project, RunError, WorkingDirectory, names, records};
use llm_do_launch::keep::RunSubject;
use llm_do_launch::launch::{Record, Resumption};
use llm_do_launch::open_run::{LastRun, MeantRun, OpenRun, RunPlace, project_at};
use llm_do_launch::question;
use llm_do_launch::record::{Author, LaunchOverrides, RunHeader};
use llm_do_launch::settings::Settings;
use llm_do_launch::stored_runs::waiting;

use crate::args::{ResumeArgs, RunArgs, RunFormat};
use crate::attend::{self, Attendance, PriorRun, PriorTalk};
use crate::commands::{foreign, map};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::plan::{Conduct, RunPlan};
use crate::report::{OutputPlan, RunReport, not_begun};
use crate::terminal::chat::CutTurn;
use crate::{console, plan, remedy};

pub fn run(args: &ResumeArgs) -> Result<(), Failure> {
    let environment = Environment::read().on(&args.engine);
    let settings = Arc::new(environment.settings_of_run(&args.conduct)?);
    if args.show {
        let named = named(args, &settings)?;
        let shown = show(&named.place, Author::of(args.foreign), &settings);
        named.withdraw();
        return console::print(&shown?);
    }
    let format = plan::output_format(&args.conduct);
    attended(begin(args, &environment, &settings), format)
}

/// `chat --continue`: the last chat of a project, or the one with this id, goes on with the project of today.
pub fn continue_chat(args: &RunArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = Arc::new(environment.settings_of_run(&args.conduct)?);
    let format = plan::run_format(args);
    attended(begin_chat(args, &environment, &settings), format)
}

/// Goes on with a run that is held open already.
pub fn run_open(
    open: OpenRun,
    args: &ResumeArgs,
    environment: &Environment,
    settings: &Arc<Settings>,
) -> Result<(), Failure> {
    let format = plan::output_format(&args.conduct);
    attended(begin_open(open, args, environment, settings), format)
}

fn attended(begun: Result<ResumedRun, Failure>, format: RunFormat) -> Result<(), Failure> {
    match begun {
        Ok(run) => run.finish(),
        Err(failure) => Err(not_begun(failure, format)),
    }
}

enum ResumedRun {
    Finished(Box<RunReport>, OutputPlan),
    Continues(Box<Attendance>, Arc<Decisions>),
    /// One over items, which has said all itself.
    Items(Result<(), Failure>),
}

impl ResumedRun {
    /// Reports what it gave, once it has an end.
    fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Finished(ended, output) => ended.report(&output),
            Self::Items(ended) => ended,
            Self::Continues(attendance, decisions) => {
                let ended = attendance.run();
                console::complain(&decisions.unused());
                ended
            }
        }
    }
}

/// The run that was named.
fn named(args: &ResumeArgs, settings: &Settings) -> Result<MeantRun, Failure> {
    match &args.run {
        Some(word) => Ok(RunPlace::of(word, settings)?),
        None => Ok(RunPlace::last(project_at(Path::new(".")).as_deref(), LastRun::Any, settings)?.into()),
    }
}

/// A run that comes in a bundle is kept if it goes on.
fn begin(args: &ResumeArgs, environment: &Environment, settings: &Arc<Settings>) -> Result<ResumedRun, Failure> {
    let named = named(args, settings)?;
    let begun = opened(named.place.clone(), args, environment, settings)
        .and_then(|open| begin_open(open, args, environment, settings));
    if begun.is_err() {
        named.withdraw();
    }
    begun
}

fn begin_open(
    open: OpenRun,
    args: &ResumeArgs,
    environment: &Environment,
    settings: &Arc<Settings>,
) -> Result<ResumedRun, Failure> {
    if open.contents().identity.kind == RunKind::Map {
        return Ok(ResumedRun::Items(map::go_on(open, args, environment, settings)));
    }
    let is_conversation = open.is_conversation();
    if let Some(outcome) = records::outcome(open.contents()).filter(|_| !is_conversation) {
        let mut output = plan::output(&args.conduct, environment);
        output.view.streamed = false;
        return Ok(ResumedRun::Finished(Box::new(RunReport::recorded(outcome, open.header.run)), output));
    }
    let decisions = Decisions::of(args, &waiting(open.contents(), &open.header.run))?;
    let directory = open.header.working_directory()?;
    let conduct = plan::unspoken(&args.conduct, &directory, environment)?;
    let overrides = plan::overrides(&args.conduct, &directory, environment, settings)?;
    let talk = match (open.header.input.clone(), is_conversation) {
        (Some(input), false) => PriorTalk::Input(input),
        (_, true) => PriorTalk::Finish,
        (None, false) => return Err(Failure::usage("the record of the run does not say what was said to it")),
    };
    let directory = (directory, overrides, conduct);
    go_on(open, talk, directory, decisions, args.force, environment, settings)
}

fn begin_chat(args: &RunArgs, environment: &Environment, settings: &Arc<Settings>) -> Result<ResumedRun, Failure> {
    let named = args.continued.as_deref().filter(|id| !id.is_empty());
    let place = match named {
        Some(id) => RunPlace::in_store(id, settings)?,
        None => match project_at(&args.project) {
            // What is typed is meant: the last chat of another project would hear what is said to this one.
            None if args.project != Path::new(".") => {
                return Err(attend::no_project(&args.project, &WorkingDirectory::of_process(), environment));
            }
            project => RunPlace::last(project.as_deref(), LastRun::Chat, settings)?,
        },
    };
    let open = OpenRun::open(place, Author::User, settings)?;
    if !open.is_conversation() {
        return Err(Failure::usage(format!("`{}` is a run, and no chat", open.header.run))
            .hint(format!("`{}` goes on with it", command(&open.place().resumption()))));
    }
    let directory = open.header.working_directory()?;
    let conduct = plan::chat(args, &directory, environment)?;
    let overrides = plan::overrides(&args.conduct, &directory, environment, settings)?;
    let cut = if conduct.attended { CutTurn::Ask } else { CutTurn::Finish };
    let parts = (directory, overrides, conduct);
    go_on(open, PriorTalk::Chat(cut), parts, Decisions::default(), args.force, environment, settings)
}

/// Links the project of a run as it is now, and goes on with the run.
fn go_on(
    open: OpenRun,
    talk: PriorTalk,
    (directory, overrides, conduct): (WorkingDirectory, LaunchOverrides, Conduct),
    decisions: Decisions,
    is_forced: bool,
    environment: &Environment,
    settings: &Arc<Settings>,
) -> Result<ResumedRun, Failure> {
    let open = open.reached_from(&directory);
    let RunHeader { project, flags, files, .. } = open.header.clone();
    if !flags.terms.given.is_empty() {
        let given: Vec<&str> = flags.terms.given.iter().map(String::as_str).collect();
        return Err(Failure::usage(format!(
            "`{}` belongs to a program, which gave it what is not kept: {}",
            open.header.run,
            visible(&given.join(", "))
        ))
        .hint("that program goes on with it: `open` with `continue`, or `resume_run` in Python"));
    }
    let tells_notes = conduct.output.view.tells_notes();
    let durability = flags.durable.then_some(Durability::Synced);
    let plan = RunPlan { launch: flags.launch(project, directory, overrides)?, conduct };
    // Finished turns of a chat stand as they were recorded: only a turn that was cut off is compared with the project.
    let is_chat = matches!(talk, PriorTalk::Chat(_));
    let is_forgiven = is_forced || is_chat;
    let compare = |now: &Fingerprint| unchanged(&files.changes(now), is_forgiven);
    let surveyed =
        Project::load_from(&plan.launch.project, &plan.launch.directory).map(|project| project.fingerprint());
    let has_changed = surveyed.is_ok_and(|now| !files.changes(&now).is_empty());
    let talk = match talk {
        PriorTalk::Chat(_) if has_changed && !is_forced => PriorTalk::Chat(CutTurn::Changed),
        talk => talk,
    };
    let linked = attend::link(plan, environment, settings, Some(PriorRun { talk, compare: &compare }))?;
    let changes = files.changes(&linked.linked.files);
    let matching = if changes.is_empty() {
        Matching::Exact
    } else {
        unchanged(&changes, is_forgiven)?;
        let since = if is_chat { " since the last turn" } else { "" };
        if tells_notes {
            console::complain(&format!("note: the project has changed{since}: {}\n", listed(&changes)));
        }
        Matching::ForgiveModels
    };
    console::complain(&doubts(open.contents()));
    let (is_foreign, file) = (open.is_foreign(), open.place().file());
    if let Some(answers) = open.place().answers() {
        decisions.keep(&answers, &environment.user())?;
    }
    let subject = RunSubject::of(linked.linked.program());
    let record = open.resume(&linked.linked.files, matching, durability, subject, settings)?;
    if is_foreign {
        let signed = if settings.state.key()?.is_some() { ", and is signed as yours now" } else { "" };
        console::complain(&format!("note: {} was written anew{signed}\n", visible(&file.display().to_string())));
    }
    let decisions = Arc::new(decisions);
    let known = Arc::clone(&decisions) as Arc<dyn KnownAnswers>;
    let attendance = linked.ready(Record::Known(record), Some(known))?;
    Ok(ResumedRun::Continues(Box::new(attendance), decisions))
}

/// The record, locked: of the user's own, or of a stranger's after a person agreed to what it names.
fn opened(
    place: RunPlace,
    args: &ResumeArgs,
    environment: &Environment,
    settings: &Settings,
) -> Result<OpenRun, Failure> {
    let author = Author::of(args.foreign);
    let open = OpenRun::open(place, author, settings)?;
    if author == Author::Stranger {
        foreign::settle(&open.place().file(), &open.header, open.contents(), &args.conduct, environment)?;
    }
    Ok(open)
}

/// Told before anything of the project runs.
pub fn unchanged(changes: &[String], is_forced: bool) -> Result<(), Failure> {
    if changes.is_empty() || is_forced {
        return Ok(());
    }
    Err(Failure::usage(format!("the project has changed since the run began: {}", listed(changes)))
        .hint("`--force` goes on with it as it is now"))
}

pub fn listed(changes: &[String]) -> String {
    visible(&changes.join(", ")).into_owned()
}

/// What people decided on the command line, by the digests of the questions.
#[derive(Default)]
pub struct Decisions {
    given: BTreeMap<String, Answer>,
    used: Mutex<BTreeSet<String>>,
}

impl Decisions {
    /// Each must be about a question that waits.
    pub fn of(args: &ResumeArgs, waiting: &[PendingQuestion]) -> Result<Self, Failure> {
        if args.reason.len() > args.refuse.len() {
            return Err(Failure::usage("there are more `--reason` than `--refuse`"));
        }
        let mut given = BTreeMap::new();
        let approved = args.approve.iter().map(|id| (id, Answer::Once));
        let refused = args.refuse.iter().enumerate();
        let refused = refused.map(|(index, id)| (id, Answer::Refuse { reason: args.reason.get(index).cloned() }));
        for (id, answer) in approved.chain(refused) {
            let asked = meant(id, waiting)?;
            if asked.check_answer(&answer).is_err() {
                let asks = format!("`{}` asks for values, and takes no yes", visible(id));
                return Err(Failure::usage(asks).hint(remedy::filling(asked, short_id(&asked.id))));
            }
            if given.insert(asked.id.clone(), answer).is_some() {
                return Err(Failure::usage(format!("`{}` is decided twice", visible(id))));
            }
        }
        for (id, values) in values_of(&args.answer)? {
            let asked = meant(&id, waiting)?;
            let unfit = |wrong: String| {
                let how = asked.form.as_ref().map(|_| remedy::filling(asked, short_id(&asked.id)));
                Failure::usage(format!("`{}`: {}", visible(&id), visible(&wrong))).hint(how.unwrap_or_default())
            };
            let answer = asked.answer_by_values(&values).map_err(unfit)?;
            if given.insert(asked.id.clone(), answer).is_some() {
                return Err(Failure::usage(format!("`{}` is decided twice", visible(&id))));
            }
        }
        Ok(Self { given, used: Mutex::default() })
    }

    /// What was decided about a question, if anything was.
    pub fn about(&self, id: &str) -> Option<&Answer> {
        self.given.get(id)
    }

    /// Whether all of these are decided.
    #[cfg(feature = "restate")]
    pub fn answers(&self, waiting: &[PendingQuestion]) -> bool {
        waiting.iter().all(|asked| self.about(&asked.id).is_some())
    }

    /// What is decided here counts like an answer from anywhere: if it is the first.
    pub fn keep(&self, answers: &RunAnswers, by: &str) -> Result<(), Failure> {
        for (id, answer) in &self.given {
            let mut say = |note: String| console::complain(&format!("note: {}\n", visible(&note)));
            answers.keep(id, answer, by, &mut say).map_err(|first| {
                let (id, by) = (short_id(id), visible(&first.by).into_owned());
                Failure::usage(format!("the question `{id}` was answered already, by {by}"))
                    .hint("the first answer counts; leave this one out to go on")
            })?;
        }
        Ok(())
    }

    fn used(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decisions that nothing asked for.
    fn unused(&self) -> String {
        let used = self.used();
        let note = |id: &String| {
            let id = short_id(id);
            format!("note: nothing asked for `{id}`: what it was about has changed, or was not reached\n")
        };
        self.given.keys().filter(|id| !used.contains(*id)).map(note).collect()
    }
}

/// Values by their names, of each question that they are for.
type ValuesByQuestion = BTreeMap<String, Vec<(String, String)>>;

/// `ID.NAME=VALUE` of each, by the ids.
fn values_of(typed: &[String]) -> Result<ValuesByQuestion, Failure> {
    let mut values = ValuesByQuestion::new();
    for text in typed {
        let parts = text.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
        let Some(((id, name), value)) = parts else {
            return Err(Failure::usage(format!("`--answer {}` is no `ID.NAME=VALUE`", visible(text))));
        };
        values.entry(id.to_owned()).or_default().push((name.to_owned(), value.to_owned()));
    }
    Ok(values)
}

/// The one question that waits and that is meant.
fn meant<'a>(typed: &str, waiting: &'a [PendingQuestion]) -> Result<&'a PendingQuestion, Failure> {
    let whole = whole_id(typed, waiting)?;
    let gone = || Failure::usage(format!("no call waits with the id `{}`", visible(typed)));
    waiting.iter().find(|asked| asked.id == whole).ok_or_else(gone)
}

/// The digest of the one question that waits and begins with what was typed.
pub fn whole_id<'a>(typed: &str, waiting: &'a [PendingQuestion]) -> Result<&'a str, Failure> {
    let ids = || waiting.iter().map(|pending| pending.id.as_str());
    let mut meant = ids().filter(|id| typed.len() >= SHORT_ID && id.starts_with(typed));
    match (meant.next(), meant.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            let several: Vec<&str> = ids().filter(|id| id.starts_with(typed)).collect();
            Err(Failure::usage(format!("several calls wait with the id `{}`", visible(typed)))
                .hint(format!("type as much as tells them apart: {}", several.join(", "))))
        }
        (None, _) => {
            let hint = match names::listed(ids().map(short_id)) {
                None => "nothing waits for an approval".to_owned(),
                Some(ids) => format!("waiting: {ids}; `--show` says what for"),
            };
            Err(Failure::usage(format!("no call waits with the id `{}`", visible(typed))).hint(hint))
        }
    }
}

impl KnownAnswers for Decisions {
    /// The question has this digest as it is asked now, whatever the journal shows.
    fn answer_to(&self, request: &ApprovalRequest) -> Option<Answer> {
        let answer = self.given.get(&request.id)?;
        self.used().insert(request.id.clone());
        let verb = match answer {
            Answer::Refuse { .. } => "refused",
            Answer::Values(_) => "answered",
            _ => "approved",
        };
        let heading = format!("{verb} ({})", short_id(&request.id));
        console::complain(&question::call(&heading, &request.path, &request.tool, &request.arguments));
        Some(answer.clone())
    }
}

/// What may or may not have happened, said before anything goes on.
pub fn doubts(contents: &JournalContents) -> String {
    let in_doubt = contents.in_doubt().filter_map(|(_, shown)| shown.to::<InDoubt>().ok());
    let text = |doubt: InDoubt| {
        let heading = "note: interrupted, it may or may not have happened";
        question::call(heading, &doubt.path, &doubt.tool, &doubt.arguments)
    };
    in_doubt.map(text).collect()
}

/// What a journal says, in words. Nothing of the project runs, and the journal stays as it is.
fn show(place: &RunPlace, author: Author, settings: &Settings) -> Result<String, Failure> {
    let contents = place.read(author, settings)?;
    let header = RunHeader::of(&contents, &place.file())?;
    let by = contents.begun_by.as_deref().unwrap_or("somebody");
    let mut text = format!(
        "run {} of {} in {}\nbegun {} by {}\n",
        header.run,
        visible(&header.project.display().to_string()),
        visible(&header.directory.display().to_string()),
        shown_time(contents.begun_at),
        visible(by),
    );
    let waiting = waiting(&contents, &header.run);
    let is_done = RunSummary::of(&contents, JournalUse::Free).state == RunState::Done;
    let state = match waiting.len() {
        0 if is_done => "finished".to_owned(),
        0 => "not finished".to_owned(),
        1 if waiting[0].form.is_some() => "waits for an answer".to_owned(),
        1 => "waits for an approval".to_owned(),
        several if waiting.iter().any(|waits| waits.form.is_some()) => format!("waits for {several} answers"),
        several => format!("waits for {several} approvals"),
    };
    text.push_str(&format!("{state}\n"));
    for pending in &waiting {
        text.push_str(&format!("\n{}", question::pending(pending)));
    }
    let doubts = doubts(&contents);
    if !doubts.is_empty() {
        text.push_str(&format!("\n{doubts}"));
    }
    match author {
        Author::User => text.push_str(&changes_text(&header)),
        // What it names is not looked at before a person agreed to it.
        Author::Stranger => text.push_str("\nall of this is what a stranger's file says\n"),
    }
    Ok(text)
}

fn changes_text(header: &RunHeader) -> String {
    let project = header.working_directory().ok().map(|directory| Project::load_from(&header.project, &directory));
    match project {
        Some(Ok(project)) => {
            let changes = header.files.changes(&project.fingerprint());
            if changes.is_empty() {
                String::new()
            } else {
                format!("\nthe project has changed: {}\n", listed(&changes))
            }
        }
        None | Some(Err(_)) => "\nthe project cannot be read any more\n".to_owned(),
    }
}

/// The command that goes on with a run.
pub fn command(run: &Resumption) -> String {
    match run {
        Resumption::Run(id) => format!("llm-do resume {id}"),
        Resumption::File(file) => format!("llm-do resume {}", file.display()),
    }
}

/// How a run ended, with what can be done about it if it was journaled.
pub fn failure(error: RunError, resumption: Option<&Resumption>) -> Failure {
    let Some(run) = resumption else { return Failure::from(error) };
    let resume = format!("`{}", command(run));
    let hint = match &error {
        RunError::Ended(Ending::NeedsApproval(pending)) => match pending.as_slice() {
            [only] if only.form.is_some() => {
                let (flags, id) = (remedy::decided(only), short_id(&only.id));
                format!("{resume}{flags}` answers with these values, put in your own; `--refuse {id}` declines")
            }
            [only] => {
                let id = short_id(&only.id);
                format!("{resume} --approve {id}` allows it and goes on; `--refuse {id}` refuses it")
            }
            several => {
                let flags: Vec<String> = several.iter().map(remedy::decided).collect();
                let asks = several.iter().any(|waits| waits.form.is_some());
                let own = if asks { ", put in your own values" } else { "" };
                format!("{resume}{}` allows all and goes on{own}; `--refuse ID` refuses one", flags.concat())
            }
        },
        RunError::Ended(Ending::Limit { limit, .. }) => {
            format!("{resume}` goes on with a higher `--{}`", limit.replace('_', "-"))
        }
        RunError::Ended(Ending::Budget { per, .. }) => {
            format!("{resume}` goes on when a new {per} has begun, or when config.toml allows the budget more")
        }
        RunError::Ended(Ending::EndedByPerson) => format!("{resume}` asks again"),
        // Nobody was asked: a rule or a flag decided, and decides again.
        RunError::Ended(Ending::Refused { .. }) => format!("{resume}` judges it again"),
        RunError::Ended(Ending::Journal(_)) => return Failure::from(error),
        RunError::Input(_)
        | RunError::Model { .. }
        | RunError::NotAskedAgain { .. }
        | RunError::Empty { .. }
        | RunError::Unfinished { .. }
        | RunError::Limit { .. }
        | RunError::ContextFull { .. }
        | RunError::UnknownPrice { .. }
        | RunError::UnboundedTool { .. }
        | RunError::RepeatedFailure { .. }
        | RunError::Output { .. }
        | RunError::Code { .. }
        | RunError::NoAgent { .. }
        | RunError::TooDeep { .. }
        | RunError::TooManyCalls(_)
        | RunError::NoProvider { .. }
        | RunError::Incompatible { .. }
        | RunError::Toolset { .. }
        | RunError::IdleRule { .. }
        | RunError::Function { .. }
        | RunError::NotStarted
        | RunError::Panicked { .. }
        | RunError::Cancelled { .. }
        | RunError::Ended(Ending::Unauthenticated { .. } | Ending::BudgetUnkept { .. } | Ending::NeedsLogin { .. }) => {
            // What is to be changed for it is a file of the project.
            let is_in_a_file = matches!(error, RunError::Limit { .. } | RunError::UnboundedTool { .. });
            let failure = Failure::from(error);
            // What failed would most likely fail again; the summary names the run.
            let is_named = matches!(run, Resumption::Run(_)) && !matches!(failure.code(), 4 | 5 | 124..);
            if is_named {
                return failure;
            }
            let (_, hint) = failure.words();
            let hint = hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
            let goes_on = if is_in_a_file {
                format!("{resume} --force` goes on with the file as it is then")
            } else {
                format!("{resume}` goes on where it stopped")
            };
            return failure.hint(format!("{hint}{goes_on}"));
        }
    };
    Failure::from(error).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_id_that_several_calls_share_is_refused() {
        let pending = |id: &str| PendingQuestion {
            id: id.to_owned(),
            path: Vec::new(),
            tool: String::new(),
            arguments: llm_do::RawJson::of(&()),
            reason: String::new(),
            preview: None,
            form: None,
            shows: Vec::new(),
            edits: None,
            rule: None,
            foreign: None,
        };
        let [one, two, three] = ["aaaaaaaaaaaa1", "aaaaaaaaaaaa2", "bbbbbbbbbbbb3"].map(pending);
        let waiting = [one, two, three];
        let found = |typed: &str| whole_id(typed, &waiting).map(str::to_owned).map_err(|failure| failure.words().0);
        assert_eq!(found("bbbbbbbbbbbb"), Ok("bbbbbbbbbbbb3".to_owned()));
        assert_eq!(found("aaaaaaaaaaaa2"), Ok("aaaaaaaaaaaa2".to_owned()));
        assert_eq!(found("aaaaaaaaaaaa"), Err("several calls wait with the id `aaaaaaaaaaaa`".to_owned()));
        for typed in ["bbbbbbbbbbb", "", "bbbbbbbbbbbb4", "b\u{1b}"] {
            assert!(found(typed).unwrap_err().starts_with("no call waits with the id `"), "{typed}");
        }
    }
}
