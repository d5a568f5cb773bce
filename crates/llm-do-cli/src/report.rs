//! The end of a run: the answer, the summary, and what is left to say.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use llm_do::escape::{visible, visible_lines};
use llm_do::event::{TraceCall, UsageReport};
use llm_do::message::{Message, RawJson};
use llm_do::runtime::{Output, RunError, Runtime};
use llm_do::tools::Ending;
use llm_do::tools::approval::Pending;

use crate::args::OutputFormat;
use crate::failure::Failure;
use crate::json::{self, ErrorJson, ResultJson};
use crate::markdown::Markdown;
use crate::render::{Verbosity, View};
use crate::style::Style;
use crate::watch::Stopped;
use crate::{answer_file, console, summary};

/// Where the answer goes, and what else is said.
#[derive(Clone, Debug)]
pub struct OutputPlan {
    pub format: OutputFormat,
    /// Also into this file.
    pub file: Option<PathBuf>,
    pub view: View,
    /// Whether errors say more than people want to read.
    pub debug: bool,
}

/// All that is known of a run when it is over.
pub struct Ended {
    pub answer: Result<Output, RunError>,
    pub stopped: Option<Stopped>,
    pub messages: Vec<Message>,
    pub usage: UsageReport,
    pub trace: Vec<Arc<TraceCall>>,
    pub run: String,
    pub elapsed: Duration,
}

impl Ended {
    pub fn of(
        runtime: &Runtime,
        answer: Result<Output, RunError>,
        stopped: Option<Stopped>,
        elapsed: Duration,
    ) -> Self {
        let (usage, trace, run) = (runtime.usage(), runtime.trace(), runtime.run.clone());
        Self { answer, stopped, messages: Vec::new(), usage, trace, run, elapsed }
    }

    pub fn report(self, plan: &OutputPlan) -> Result<(), Failure> {
        let pending = self.pending();
        console::complain(&pending_text(&pending));
        if let (Ok(output), Some(file)) = (&self.answer, &plan.file) {
            answer_file::write(file, &answer(output))?;
        }
        let reported = match plan.format {
            OutputFormat::Text => self.report_text(plan),
            OutputFormat::Json | OutputFormat::StreamJson => self.report_json(plan, pending),
        };
        if plan.debug { reported } else { reported.map_err(Failure::plain) }
    }

    fn report_text(self, plan: &OutputPlan) -> Result<(), Failure> {
        match &self.answer {
            // It was shown as it came.
            Ok(Output::Text(_)) if plan.view.streamed => {}
            Ok(output) => console::print(&shown(&answer(output), &plan.view))?,
            Err(error) => {
                // What somebody interrupted nobody waits for; what ran out of time or money was paid for.
                let is_wanted = self.stopped.is_none() || matches!(self.stopped, Some(Stopped::ByTime(_)));
                if let Some(partial) = error.partial().filter(|_| is_wanted && !plan.view.streamed) {
                    console::print(&shown(&answer(&Output::Text(partial.to_owned())), &plan.view))?;
                }
            }
        }
        summarise(plan.view, self.elapsed, &self.usage);
        self.answer.map_or_else(|error| Err(failure(error, self.stopped)), |_| Ok(()))
    }

    fn report_json(self, plan: &OutputPlan, pending: Vec<Pending>) -> Result<(), Failure> {
        let (output, failure) = match self.answer {
            Ok(output) => (Some(output.to_json()), None),
            Err(error) => (error.partial().map(|partial| RawJson::of(&partial)), Some(failure(error, self.stopped))),
        };
        let printed = console::print(&json::line(&ResultJson {
            r#type: "result",
            output,
            exit_code: failure.as_ref().map_or(0, Failure::code),
            error: failure.as_ref().map(error_json),
            usage: self.usage.clone(),
            trace: self.trace,
            messages: self.messages,
            pending,
            run: Some(self.run),
        }));
        summarise(plan.view, self.elapsed, &self.usage);
        printed?;
        failure.map_or(Ok(()), Err)
    }

    fn pending(&self) -> Vec<Pending> {
        match &self.answer {
            Err(RunError::Ended(Ending::NeedsApproval(pending))) => pending.clone(),
            Ok(_) | Err(_) => Vec::new(),
        }
    }
}

/// The closing line, unless only errors are wanted.
pub fn summarise(view: View, elapsed: Duration, usage: &UsageReport) {
    if !matches!(view.verbosity, Verbosity::Quiet | Verbosity::Messages) {
        let line = summary::line(elapsed, &usage.total);
        console::complain(&format!("{}\n", view.stderr.paint(Style::Dim, line.trim_end())));
    }
}

/// Whoever stopped a run decides how it ends; the error only says that it did.
pub fn failure(error: RunError, stopped: Option<Stopped>) -> Failure {
    match stopped {
        None => Failure::from(error),
        Some(Stopped::ByPerson) => Failure::interrupted(),
        Some(Stopped::BySystem) => Failure::terminated(),
        Some(Stopped::ByTime(limit)) => Failure::timed_out(limit),
    }
}

/// What waits for somebody's answer, all of it, nothing cut.
fn pending_text(pending: &[Pending]) -> String {
    let call = |(index, pending): (usize, &Pending)| {
        let path = pending.path.join(" › ");
        let arguments = visible_lines(&json::indented(&pending.arguments));
        let number = if index == 0 { String::new() } else { format!("{}. ", index + 1) };
        let (id, tool) = (&pending.id, visible(&pending.tool));
        format!("{number}waiting for approval ({id}): {} › {tool}\n{arguments}\n", visible(&path))
    };
    pending.iter().enumerate().map(call).collect()
}

/// Text as it is, a typed answer as indented JSON.
fn answer(output: &Output) -> String {
    let mut text = match output {
        Output::Text(text) => text.clone(),
        Output::Value(value) => json::indented(value),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Programs get every byte as it is; on a terminal nothing may deceive.
fn shown(answer: &str, view: &View) -> String {
    if !view.stdout_is_terminal {
        return answer.to_owned();
    }
    let mut markdown = Markdown::new(view.stdout.coloured);
    let mut shown = markdown.push(answer);
    shown.push_str(&markdown.finish());
    shown
}

pub fn error_json(failure: &Failure) -> ErrorJson {
    let (message, hint) = failure.words();
    ErrorJson { message, hint }
}

/// Whoever reads JSON gets a result even of a run that never began.
pub fn not_begun(failure: Failure, format: OutputFormat) -> Failure {
    if format != OutputFormat::Text {
        let result = ResultJson::not_begun(failure.code(), error_json(&failure));
        let _ = console::print(&json::line(&result));
    }
    failure
}
