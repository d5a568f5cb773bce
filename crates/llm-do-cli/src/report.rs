//! The end of a run: the answer, the summary, and what is left to say.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use llm_do::approval::PendingQuestion;
use llm_do::escape::{visible, visible_json, visible_lines};
use llm_do::events::{Refusal, TraceCall, UsageReport};
use llm_do::messages::Finish;
use llm_do::runs::finish_of;
use llm_do::toolsets::Ending;
use llm_do::{Message, Outcome, Output, RawJson, Report, RunError, Runtime};

use crate::args::RunFormat;
use crate::failure::Failure;
use crate::json::{self, ErrorJson, ResultJson};
use crate::signals::StopReason;
use crate::terminal::chat::ChatEnded;
use crate::terminal::markdown::Markdown;
use crate::terminal::render::{Verbosity, View};
use crate::terminal::screen::TurnEnded;
use crate::terminal::style::{Style, width, wrap_words};
use crate::{answer_file, commands::resume, console, terminal::summary};
use llm_do_launch::launch::Resumption;
use llm_do_launch::question;
use llm_do_launch::rehearsal::FirstRequest;
use llm_do_launch::saved_files::SavedFile;

/// Where the answer goes, and what else is said.
#[derive(Clone, Debug)]
pub struct OutputPlan {
    pub format: RunFormat,
    /// Also into this file.
    pub file: Option<PathBuf>,
    /// Where files go that replies and results bring, if not beside the record.
    pub files: Option<PathBuf>,
    /// Whether a typed answer is printed as it comes.
    pub partial: bool,
    pub view: View,
    /// Whether errors say more than people want to read.
    pub debug: bool,
    /// Whether a call that was refused makes the run a failure.
    pub fail_on_refusal: bool,
}

/// All that is known of a run when it is over.
pub struct RunReport {
    pub answer: Result<Output, RunError>,
    pub stopped: Option<StopReason>,
    pub messages: Vec<Message>,
    pub usage: UsageReport,
    pub trace: Vec<Arc<TraceCall>>,
    pub refused: Vec<Refusal>,
    pub run: String,
    pub elapsed: Duration,
    /// What it can be resumed by.
    pub resumption: Option<Resumption>,
    /// What became of the answer's way into a pipe or a device, if that is where it goes.
    pub handed_over: Option<Result<(), Failure>>,
    /// What is said once in the life of a user.
    pub news: Option<String>,
    /// Files that replies and results brought.
    pub files: Vec<SavedFile>,
}

impl RunReport {
    pub fn of(runtime: &Runtime, turn: TurnEnded, elapsed: Duration) -> Self {
        let TurnEnded { answer, stopped, .. } = turn;
        let (usage, trace, run) = (runtime.usage(), runtime.trace(), runtime.run_id().to_owned());
        let (messages, resumption, handed_over, news) = (Vec::new(), None, None, None);
        let refused = runtime.refused();
        let files = Vec::new();
        Self { answer, stopped, messages, usage, trace, refused, run, elapsed, resumption, handed_over, news, files }
    }

    /// A run that ended in another process.
    pub fn recorded(outcome: Outcome, run: String) -> Self {
        let Outcome { output, messages, usage, trace, refused, .. } = outcome;
        let (answer, stopped, elapsed) = (Ok(output), None, Duration::ZERO);
        let (resumption, handed_over, news, files) = (None, None, None, Vec::new());
        Self { answer, stopped, messages, usage, trace, refused, run, elapsed, resumption, handed_over, news, files }
    }

    pub fn report(mut self, plan: &OutputPlan) -> Result<(), Failure> {
        let pending = self.pending();
        console::complain(&pending_text(&pending));
        let kept = self.handed_over.take().unwrap_or_else(|| keep(self.answer.as_ref().ok(), plan));
        let kept = kept.and_then(|()| self.unrefused(plan));
        let reported = match plan.format {
            RunFormat::Text => self.report_text(plan, kept),
            RunFormat::Json | RunFormat::StreamJson => self.report_json(plan, pending, kept),
        };
        if plan.debug { reported } else { reported.map_err(Failure::plain) }
    }

    fn report_text(self, plan: &OutputPlan, kept: Result<(), Failure>) -> Result<(), Failure> {
        match &self.answer {
            Ok(output) => print_turn(output, plan)?,
            Err(error) => print_partial(error, self.stopped, plan)?,
        }
        let summary = self.summary();
        let resumption = self.resumption.as_ref();
        let ended = self.answer.map_or_else(|error| Err(failure(error, self.stopped, resumption)), |_| kept);
        summary.print(plan.view, ended.as_ref().err());
        ended
    }

    fn report_json(
        self,
        plan: &OutputPlan,
        pending: Vec<PendingQuestion>,
        kept: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (output, failure) = match &self.answer {
            Ok(output) => (Some(output.to_json()), kept.err()),
            Err(error) => {
                let partial = error.partial().map(|partial| RawJson::of(&partial));
                (partial, Some(failure(error.clone(), self.stopped, self.resumption.as_ref())))
            }
        };
        let summary = self.summary();
        let printed = console::print(&json::line(&self.result(output, failure.as_ref(), pending)));
        summary.print(plan.view, failure.as_ref());
        printed?;
        failure.map_or(Ok(()), Err)
    }

    /// Of a dry run: the request is the answer, and it took nothing.
    pub fn report_request(self, plan: &OutputPlan, request: &FirstRequest) -> Result<(), Failure> {
        match plan.format {
            RunFormat::Text if plan.view.stdout_is_terminal => console::print(&visible_lines(&request_text(request))),
            RunFormat::Text => console::print(&request_text(request)),
            RunFormat::Json | RunFormat::StreamJson => {
                let request = RawJson::of(request);
                let unsent = Self { messages: Vec::new(), trace: Vec::new(), ..self };
                console::print(&json::line(&unsent.result(Some(request), None, Vec::new())))
            }
        }
    }

    /// A chat has said everything but its end.
    pub fn report_chat(mut self, plan: &OutputPlan, chat: ChatEnded) -> Result<(), Failure> {
        let ChatEnded { last, failure, has_stopped_turn, is_unused, .. } = chat;
        let kept = self.handed_over.take().unwrap_or_else(|| keep(last.as_ref(), plan));
        let kept = kept.and_then(|()| self.unrefused(plan));
        let summary = self.summary();
        let summary = Summary { is_cancelled: summary.is_cancelled || has_stopped_turn, ..summary };
        if plan.format != RunFormat::Text {
            let output = last.as_ref().map(Output::to_json);
            let failure = kept.as_ref().err().or(failure.as_ref());
            console::print(&json::line(&self.result(output, failure, Vec::new())))?;
        }
        if !(is_unused && summary.usage.total.requests == 0) {
            let run = summary.run.clone().filter(|_| !is_unused);
            Summary { run, ..summary }.print(plan.view, failure.as_ref());
        }
        kept?;
        failure.map_or(Ok(()), |failure| Err(Failure::Said { code: failure.code() }))
    }

    fn result(self, output: Option<RawJson>, failure: Option<&Failure>, pending: Vec<PendingQuestion>) -> ResultJson {
        ResultJson {
            r#type: "result",
            output,
            finish: self.finish(),
            exit_code: failure.map_or(0, Failure::code),
            error: failure.map(error_json),
            usage: self.usage,
            trace: self.trace.into_iter().next(),
            messages: self.messages,
            pending,
            refused: self.refused,
            files: self.files,
            run: Some(self.run),
        }
    }

    /// How the reply ended that is the answer, or that is none.
    fn finish(&self) -> Option<Finish> {
        match &self.answer {
            Ok(_) => finish_of(&self.messages),
            Err(error) => error.finish(),
        }
    }

    fn summary(&self) -> Summary {
        let refused = refused_text(&self.refused);
        let run = match &self.resumption {
            Some(Resumption::Run(id)) => Some(id.clone()),
            Some(Resumption::File(_)) | None => None,
        };
        let (elapsed, is_cancelled) = (self.elapsed, self.stopped.is_some());
        Summary { elapsed, usage: self.usage.clone(), refused, run, is_cancelled, news: self.news.clone() }
    }

    /// With `--fail-on-refusal`, a run in which a call was refused is none that went well.
    fn unrefused(&self, plan: &OutputPlan) -> Result<(), Failure> {
        match refused_text(&self.refused) {
            Some(refused) if plan.fail_on_refusal => Err(Failure::refused(refused)),
            Some(_) | None => Ok(()),
        }
    }

    fn pending(&self) -> Vec<PendingQuestion> {
        match &self.answer {
            Err(RunError::Ended(Ending::NeedsApproval(pending))) => pending.clone(),
            Ok(_) | Err(_) => Vec::new(),
        }
    }
}

/// An answer, unless it was shown as it came.
pub fn print_turn(output: &Output, plan: &OutputPlan) -> Result<(), Failure> {
    match (output, plan.format) {
        (_, RunFormat::Json | RunFormat::StreamJson) => Ok(()),
        (Output::Text(_), RunFormat::Text) if plan.view.streamed => Ok(()),
        (output, RunFormat::Text) => console::print(&shown(answer(output), plan.view)),
    }
}

/// Stands behind what is only the beginning of an answer, also where the error is not read.
const UNFINISHED: &str = "[unfinished]\n";

/// What a person interrupted is not waited for; what ran out of time or money was paid for.
pub fn print_partial(error: &RunError, stopped: Option<StopReason>, plan: &OutputPlan) -> Result<(), Failure> {
    let is_wanted = matches!(stopped, None | Some(StopReason::TimedOut(_)));
    match error.partial().filter(|_| is_wanted) {
        Some(partial) => {
            print_turn(&Output::Text(partial.to_owned()), plan)?;
            match plan.format {
                RunFormat::Text => console::print(UNFINISHED),
                RunFormat::Json | RunFormat::StreamJson => Ok(()),
            }
        }
        None => Ok(()),
    }
}

/// Also into the file. An answer that cannot be kept there was paid for: it is printed all the same.
fn keep(output: Option<&Output>, plan: &OutputPlan) -> Result<(), Failure> {
    match (output, &plan.file) {
        (Some(output), Some(file)) => answer_file::write(file, &answer(output)),
        (None, _) | (_, None) => Ok(()),
    }
}

/// What the closing line says.
struct Summary {
    elapsed: Duration,
    usage: UsageReport,
    refused: Option<String>,
    /// The id of a run that is kept.
    run: Option<String>,
    /// Whether a request was stopped: by a person, by the clock, or since nobody read the answer any more.
    is_cancelled: bool,
    news: Option<String>,
}

impl Summary {
    /// Unless only errors are wanted, or nothing came of it but an error.
    fn print(&self, view: View, failure: Option<&Failure>) {
        let is_wanted = !matches!(view.verbosity, Verbosity::Quiet | Verbosity::Messages);
        let is_empty = self.usage.total.requests == 0 && failure.is_some_and(|failure| !failure.cuts_short());
        let is_said = failure.is_some_and(|failure| failure.kind() == "approval");
        if let Some(refused) = self.refused.as_deref().filter(|_| is_wanted && !is_said) {
            console::complain(&format!("{}\n", view.stderr.paint(Style::Warning, &visible(refused))));
        }
        if is_wanted && !is_empty {
            let usage = (&self.usage.total, &self.usage.saved);
            let line = summary::line(self.elapsed, usage, self.run.as_deref(), self.is_cancelled);
            say_dimly(line.trim_end(), " · ", view);
        }
        if let Some(news) = &self.news {
            say_dimly(news, " ", view);
        }
    }
}

/// A remark below the answer. Where a person reads it, its rows end between its parts.
fn say_dimly(text: &str, gap: &str, view: View) {
    let parts: Vec<String> = text.split(gap).map(str::to_owned).collect();
    let rows = match console::columns().filter(|columns| view.live && width(text) > *columns) {
        Some(columns) => wrap_words(&parts, gap, columns),
        None => vec![text.to_owned()],
    };
    for row in rows {
        console::complain(&format!("{}\n", view.stderr.paint(Style::Dim, &row)));
    }
}

/// The reason that stopped a run decides how it ends; the error only says that it did.
pub fn failure(error: RunError, stopped: Option<StopReason>, resumption: Option<&Resumption>) -> Failure {
    let failure = match stopped {
        None => return resume::failure(error, resumption),
        Some(stopped) => stopped.failure(),
    };
    match resumption {
        Some(run) => {
            let (_, hint) = failure.words();
            let hint = hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
            failure.hint(format!("{hint}`{}` goes on where it stopped", resume::command(run)))
        }
        None => failure,
    }
}

/// What was refused, in one line.
fn refused_text(refused: &[Refusal]) -> Option<String> {
    const NAMED: usize = 5;
    let name = |refusal: &Refusal| format!("`{}` of {}", refusal.tool, refusal.path.join(" › "));
    let mut names: Vec<String> = refused.iter().take(NAMED).map(name).collect();
    names.extend(refused.len().checked_sub(NAMED).filter(|more| *more > 0).map(|more| format!("{more} more")));
    match refused.len() {
        0 => None,
        1 => Some(format!("1 call was refused: {}", names.join(", "))),
        count => Some(format!("{count} calls were refused: {}", names.join(", "))),
    }
}

/// What waits for a person's answer, all of it, nothing cut.
pub fn pending_text(pending: &[PendingQuestion]) -> String {
    let numbered = |(index, waits): (usize, &PendingQuestion)| {
        let number = if pending.len() == 1 { String::new() } else { format!("{}. ", index + 1) };
        format!("{number}{}", question::pending(waits))
    };
    pending.iter().enumerate().map(numbered).collect()
}

/// Text as it is, a typed answer as indented JSON.
pub fn answer(output: &Output) -> Cow<'_, str> {
    let text = match output {
        Output::Text(text) => Cow::Borrowed(text.as_str()),
        Output::Value(value) => Cow::Owned(visible_json(&value.indented()).into_owned()),
    };
    if text.ends_with('\n') { text } else { text + "\n" }
}

/// Programs get every byte as it is; on a terminal nothing may deceive.
fn shown(answer: Cow<'_, str>, view: View) -> Cow<'_, str> {
    if !view.stdout_is_terminal {
        return answer;
    }
    let mut markdown = Markdown::new(view.answers, console::answer_columns());
    let mut shown = markdown.push(&answer);
    shown.push_str(&markdown.finish());
    Cow::Owned(shown)
}

pub fn error_json(failure: &Failure) -> ErrorJson {
    if let Failure::Project { report, .. } = failure {
        return project_error(report);
    }
    let (message, hint) = failure.words();
    ErrorJson { message, hint, places: Vec::new() }
}

/// What is wrong with a project in one line, and each mistake by itself.
fn project_error(report: &Report) -> ErrorJson {
    const TOLD: usize = 3;
    let places = report.json().iter().filter_map(|it| serde_json::to_value(it).ok()).collect::<Vec<_>>();
    let errors: Vec<&serde_json::Value> = places.iter().filter(|it| it["severity"] == "error").collect();
    let mut facts: Vec<String> =
        errors.iter().take(TOLD).filter_map(|it| Some(it["message"].as_str()?.to_owned())).collect();
    facts.extend(report.error_count().checked_sub(TOLD).filter(|more| *more > 0).map(|more| format!("{more} more")));
    let hint = match errors.as_slice() {
        [only] => only["hint"].as_str().map(str::to_owned),
        _ => None,
    };
    ErrorJson { message: facts.join("; "), hint, places }
}

/// A program that reads JSON gets a result even of a run that never began.
pub fn not_begun(failure: Failure, format: RunFormat) -> Failure {
    if format != RunFormat::Text {
        let result = ResultJson::not_begun(failure.code(), error_json(&failure));
        let _ = console::print(&json::line(&result));
    }
    failure
}

/// As it goes over the wire, more or less.
fn request_text(request: &FirstRequest) -> String {
    let line = request.url.as_ref().map(|url| format!("POST {url}\n")).unwrap_or_default();
    let headers: Vec<String> = request.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    let gap = if line.is_empty() { "" } else { "\n" };
    format!("{line}{}{gap}{}\n", headers.concat(), visible_json(&request.body.indented()))
}
