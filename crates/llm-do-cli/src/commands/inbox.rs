//! `llm-do inbox`: the open questions of all runs, and answers to them from any terminal.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llm_do::approval::short_id;
use llm_do::escape::{visible, visible_name};
use llm_do::records::shown_time;
use llm_do::store::answers::{AnswerWriteError, StoredAnswer};
use llm_do::store::layout::RunId;
use llm_do::store::run::FindError;
use llm_do::{Answer, RawJson, WorkingDirectory};
use llm_do_launch::inbox::{Inbox, InboxError, WaitingQuestion, check_edited};
use llm_do_launch::question;
use serde_json::{Value, json};

use crate::args::{self, Command, InboxArgs, InboxCommand, InboxShowArgs};
use crate::commands::resume;
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::terminal::arguments::{self, EditableArguments};
use crate::terminal::editor::Editor;
use crate::terminal::prompt::painted;
use crate::terminal::style::{Styles, fit, width};
use crate::{console, json, remedy};

pub fn run(args: InboxArgs) -> Result<(), Failure> {
    let environment = Environment::read().on(&args.engine);
    let (questions, decision, go) = match args.command {
        None if args.watch => return watch(&mut opened(&environment)?, args.json),
        None => return list(&mut opened(&environment)?, args.json),
        Some(InboxCommand::Show(args)) => return show(&environment, &args),
        Some(InboxCommand::Approve(args)) => (args.questions, Decision::approval(args.edit), args.go),
        Some(InboxCommand::Answer(args)) => (vec![args.question], Decision::values(&args.values)?, args.go),
        Some(InboxCommand::Refuse(args)) => (vec![args.question], Decision::Refuse(args.reason), args.go),
    };
    answer(&environment, &questions, &decision, go)
}

fn show(environment: &Environment, args: &InboxShowArgs) -> Result<(), Failure> {
    let waiting = found(&mut opened(environment)?, &args.question)?;
    let styles = Styles { coloured: environment.colours_stdout() };
    console::print(&if args.json { json::lines(&row(&waiting)) } else { shown(&waiting, styles) })
}

/// The questions of all runs that are kept.
pub fn opened(environment: &Environment) -> Result<Inbox, Failure> {
    let store = environment.settings()?.state.runs()?;
    store.map(Inbox::of).map_err(|reason| Failure::usage(format!("no runs are kept here: {reason}")))
}

fn list(inbox: &mut Inbox, as_json: bool) -> Result<(), Failure> {
    let open = inbox.open().map_err(unfound)?;
    tell_troubles(inbox);
    if as_json {
        return console::print(&open.iter().map(|waiting| json::line(&row(waiting))).collect::<String>());
    }
    if open.is_empty() {
        console::complain("no question is open\n");
        return Ok(());
    }
    console::print(&table(&open, now(), Heading::Shown))
}

/// How often a list that is watched is read again.
const LOOK: Duration = Duration::from_secs(1);

/// New questions as they come, until a signal ends it or its reader goes.
fn watch(inbox: &mut Inbox, as_json: bool) -> Result<(), Failure> {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut heading = Heading::Shown;
    loop {
        let mut new = inbox.open().map_err(unfound)?;
        new.retain(|waiting| !seen.contains(&waiting.question.id));
        tell_troubles(inbox);
        if !new.is_empty() {
            let lines = new.iter().map(|waiting| json::line(&row(waiting)));
            console::print(&if as_json { lines.collect() } else { table(&new, now(), heading) })?;
            console::delivered()?;
            heading = Heading::Hidden;
        }
        seen.extend(new.into_iter().map(|waiting| waiting.question.id));
        std::thread::sleep(LOOK);
    }
}

fn tell_troubles(inbox: &mut Inbox) {
    for trouble in inbox.take_troubles() {
        console::complain(&format!("note: {}\n", visible(&trouble)));
    }
}

/// What was decided, before the arguments are edited.
enum Decision {
    Approve,
    Edit,
    Values(Vec<(String, String)>),
    Refuse(Option<String>),
}

impl Decision {
    fn approval(is_edited: bool) -> Self {
        if is_edited { Self::Edit } else { Self::Approve }
    }

    /// `name=value` of each.
    fn values(typed: &[String]) -> Result<Self, Failure> {
        let parts = |typed: &String| {
            let unnamed = || Failure::usage(format!("`{}` is no `name=value`", visible(typed))).hint(UNANSWERED);
            typed.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(unnamed)
        };
        Ok(Self::Values(typed.iter().map(parts).collect::<Result<_, _>>()?))
    }
}

/// Every question is found before the first is answered: a mistake changes nothing.
fn answer(environment: &Environment, typed: &[String], decision: &Decision, go: bool) -> Result<(), Failure> {
    if matches!(decision, Decision::Edit) && typed.len() > 1 {
        return Err(Failure::usage("`--edit` changes the arguments of one call").hint("approve them one by one"));
    }
    let mut inbox = opened(environment)?;
    let waiting = typed.iter().map(|typed| found(&mut inbox, typed)).collect::<Result<Vec<_>, _>>()?;
    let runs: BTreeSet<RunId> = waiting.iter().map(|waiting| waiting.run).collect();
    if go && runs.len() > 1 {
        return Err(Failure::usage("`--go` goes on with one run, and these questions are of several")
            .hint("answer them without it, and `llm-do resume` each run"));
    }
    let by_values = waiting.iter().map(|waiting| of_values(waiting, decision)).collect::<Result<Vec<_>, _>>()?;
    let styles = Styles { coloured: environment.colours_stderr() };
    for (waiting, by_values) in waiting.iter().zip(by_values) {
        console::complain(&shown(waiting, styles));
        let (answer, said) = match decision {
            Decision::Approve => (Answer::Once, "approved"),
            Decision::Values(_) => (by_values.unwrap_or(Answer::Once), "answered"),
            Decision::Edit => (Answer::Edited(edited(environment, waiting)?), "approved with your edits"),
            Decision::Refuse(reason) => (Answer::Refuse { reason: reason.clone() }, "refused"),
        };
        let aside = inbox.answer(waiting, &answer, &environment.user()).map_err(|error| unanswered(waiting, error))?;
        for path in aside {
            let path = path.display().to_string();
            console::complain(&format!(
                "note: an answer that was not written by you was set aside: {}\n",
                visible(&path)
            ));
        }
        console::complain(&format!("{said}: {}\n", waiting.name()));
    }
    let waits = runs.into_iter().filter(|run| !inbox.is_running(run)).collect::<Vec<_>>();
    match (go, waits.as_slice()) {
        (_, [run, ..]) if environment.engine.is_some() => {
            console::complain(&format!("the run goes on at the engine: `llm-do runs follow {run}` tells of it\n"));
            Ok(())
        }
        (true, [run]) => go_on(run),
        (true, _) => {
            console::complain("note: the run goes on in the process that asked\n");
            Ok(())
        }
        (false, waits) => {
            for run in waits {
                console::complain(&format!("`llm-do resume {run}` goes on with the run\n"));
            }
            Ok(())
        }
    }
}

const UNANSWERED: &str = "nothing was answered";

/// What values mean as an answer to a question, if that is what was decided. A form takes nothing else but a refusal.
fn of_values(waiting: &WaitingQuestion, decision: &Decision) -> Result<Option<Answer>, Failure> {
    let question = &waiting.question;
    match decision {
        Decision::Values(values) => {
            let unfit = |wrong: String| {
                let how = question.form.as_ref().map(|_| format!("; {}", remedy::filling(question, &waiting.name())));
                Failure::usage(visible(&wrong)).hint(format!("{UNANSWERED}{}", how.unwrap_or_default()))
            };
            question.answer_by_values(values).map(Some).map_err(unfit)
        }
        Decision::Approve | Decision::Edit if question.form.is_some() => {
            let asks = format!("`{}` asks for values, and takes no yes", waiting.name());
            Err(Failure::usage(asks).hint(remedy::filling(question, &waiting.name())))
        }
        Decision::Approve | Decision::Edit | Decision::Refuse(_) => Ok(None),
    }
}

/// Goes on with a run in this process, as `llm-do resume ID` does.
fn go_on(run: &RunId) -> Result<(), Failure> {
    let args = args::parse(["llm-do", "resume", run.as_str()].map(Into::into)).map_err(Failure::Usage)?;
    match args.command {
        Command::Resume(args) => resume::run(&args),
        _ => Ok(()),
    }
}

fn edited(environment: &Environment, waiting: &WaitingQuestion) -> Result<RawJson, Failure> {
    let unedited = |reason: String| Failure::usage(format!("not edited: {reason}")).hint(UNANSWERED);
    let editor = Editor::of(environment, Path::new(&waiting.project), WorkingDirectory::of_process());
    let edited = executor()?.block_on(async {
        let terminal = Terminal::open().map_err(|error| format!("the terminal cannot be opened: {error}"))?;
        let question = &waiting.question;
        let editable =
            EditableArguments { arguments: &question.arguments, edits: question.edits.as_deref(), about: None };
        let checked = async |edited: RawJson| {
            check_edited(waiting, &edited).await?;
            Ok(edited)
        };
        let edited = arguments::edit(&editor, &terminal, editable, checked).await?;
        edited.ok_or_else(|| "nothing was changed".to_owned())
    });
    edited.map_err(unedited)
}

/// The open question that is meant.
pub fn found(inbox: &mut Inbox, typed: &str) -> Result<WaitingQuestion, Failure> {
    let found = inbox.find(typed).map_err(unfound);
    tell_troubles(inbox);
    found
}

/// Why no question was found, in words.
pub fn unfound(error: InboxError) -> Failure {
    const LIST: &str = "`llm-do inbox` lists those that are open";
    let failure = Failure::usage(visible(&error.to_string()));
    match error {
        InboxError::Answered { answer, id } => answered(&id, &answer),
        InboxError::Ambiguous { names, .. } => failure.hint(format!("name one with its run: {}", names.join(", "))),
        InboxError::NotAnId(_) => failure.hint(format!("type the first 12 digits of its id, or RUN/ID; {LIST}")),
        InboxError::NotOpen(_) => failure.hint(LIST),
        InboxError::Run(FindError::Ambiguous { candidates, .. }) => {
            let ids: Vec<&str> = candidates.iter().map(RunId::as_str).collect();
            failure.hint(format!("type more of it: {}", ids.join(", ")))
        }
        InboxError::Run(_) => failure.hint("`llm-do runs` lists the runs that are kept"),
        InboxError::Unreadable(_) | InboxError::Io(_) => failure,
    }
}

/// Why an answer does not count, in words.
pub fn unanswered(waiting: &WaitingQuestion, error: AnswerWriteError) -> Failure {
    match error {
        AnswerWriteError::AlreadyAnswered(first) => answered(&waiting.name(), &first),
        error => Failure::failed(error.to_string()),
    }
}

fn answered(id: &str, answer: &StoredAnswer) -> Failure {
    let (by, when) = (visible_name(answer.author()).into_owned(), shown_time(answer.at));
    Failure::usage(format!("the question `{}` was answered already, by {by}, {when}", visible(id)))
        .hint("the first answer counts; `llm-do inbox` lists what is open")
}

/// The whole question, as the terminal would ask it.
fn shown(waiting: &WaitingQuestion, styles: Styles) -> String {
    let lines = question::waiting_lines(&waiting.question, &waiting.name());
    let lines: Vec<String> = lines.iter().map(|line| format!("{}\n", painted(styles, line.role, &line.text))).collect();
    lines.concat()
}

/// A question as JSON.
pub fn row(waiting: &WaitingQuestion) -> Value {
    let WaitingQuestion { run, project, asked_at, question, .. } = waiting;
    let mut row = json!({"run": run, "project": project, "question": short_id(&question.id), "asked_at": asked_at});
    if let (Some(row), Ok(Value::Object(mut of_question))) = (row.as_object_mut(), serde_json::to_value(question)) {
        let digest = of_question.remove("id").unwrap_or_default();
        row.insert("digest".to_owned(), digest);
        row.extend(of_question);
    }
    row
}

/// Whether a table has its first line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heading {
    Shown,
    Hidden,
}

/// One line each, within 80 columns.
fn table(open: &[WaitingQuestion], now: u64, heading: Heading) -> String {
    const PROJECT: usize = 12;
    const CALL: usize = 22;
    let line = |cells: [&str; 4], call: &str| {
        let [question, run, asked, project] = cells;
        let project = format!("{project}{}", " ".repeat(PROJECT.saturating_sub(width(project))));
        format!("{question:<12}  {run:<16}  {asked:<10}  {project}  {call}\n")
    };
    let mut text = match heading {
        Heading::Shown => line(["QUESTION", "RUN", "ASKED", "PROJECT"], "CALL"),
        Heading::Hidden => String::new(),
    };
    for WaitingQuestion { run, project, asked_at, question, .. } in open {
        let name =
            Path::new(project).file_name().map_or_else(|| project.clone(), |name| name.to_string_lossy().into_owned());
        let agent = question.path.last().map(|agent| format!("{agent} › ")).unwrap_or_default();
        let call = fit(&format!("{agent}{}", question.tool), CALL);
        let asked = ago(now.saturating_sub(*asked_at));
        text.push_str(&line([short_id(&question.id), run.as_str(), &asked, &fit(&name, PROJECT)], &call));
    }
    text
}

/// How long ago something was.
fn ago(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_fits_into_its_column() {
        let times = [(0, "0 s ago"), (59_999, "59 s ago"), (60_000, "1 min ago"), (3_600_000, "1 h ago")];
        for (milliseconds, expected) in
            times.into_iter().chain([(172_800_000, "2 d ago"), (u64::MAX / 1_000_000, "213503 d ago")])
        {
            assert_eq!(ago(milliseconds), expected);
        }
    }
}
