//! A live toolset in the interpreter, as one call of an agent uses it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::host::PythonHost;
use super::interpreter::Interpreter;
use super::{DefinedToolset, PythonTool, PythonVerdict};
use crate::BoxFuture;
use crate::escape::visible;
use crate::message::{Attachment, Content, RawJson};
use crate::tools::approval::{Judgement, PermittedCall, Question, Verdict, canonical};
use crate::tools::callback::Sight;
use crate::tools::function::ToolsetContext;
use crate::tools::{CallContext, LONGEST_CALL, Repeat, ToolError, ToolSpec, Toolset};

/// A description by a toolset's own code is cut here.
const LONGEST_DESCRIPTION: usize = 2_000;

/// What a Python toolset turned out to be.
pub(crate) enum OpenPythonToolset {
    Tools(Box<PythonTools>),
    /// One of ours, configured in Python.
    BuiltIn(DefinedToolset),
}

/// Tools that run in the interpreter.
pub(crate) struct PythonTools {
    host: Arc<PythonHost>,
    origin: PythonOrigin,
    tools: Vec<PythonTool>,
    /// Calls whose code found out only while it ran that the approver has to agree.
    needing: Mutex<HashSet<(String, String)>>,
    closed: bool,
}

impl Drop for PythonTools {
    /// A call that was dropped does not wait, but its toolsets are still asked to clean up.
    fn drop(&mut self) {
        if let (false, PythonOrigin::Made(_, made)) = (self.closed, &mut self.origin) {
            let PythonToolsetInstance { interpreter, instance } = made.get_mut();
            interpreter.abandon(*instance);
        }
    }
}

enum PythonOrigin {
    /// Made for this call, by this interpreter.
    Made(PythonToolsetRequest, tokio::sync::Mutex<PythonToolsetInstance>),
    /// A single tool, which has no state of its own.
    Single(String),
}

struct PythonToolsetInstance {
    interpreter: Arc<Interpreter>,
    instance: u64,
}

/// How the interpreter knows a tool's owner.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Instance {
    Made(u64),
    Single(String),
}

/// Which toolset is made, and for which call.
#[derive(Clone, Debug, Serialize)]
struct PythonToolsetRequest {
    toolset: String,
    context: ToolsetContext,
}

#[derive(Deserialize)]
struct PythonToolsetReply {
    #[serde(default)]
    instance: u64,
    #[serde(default)]
    tools: Vec<PythonTool>,
    built_in: Option<DefinedToolset>,
}

impl PythonToolsetRequest {
    async fn ask(&self, interpreter: &Interpreter) -> Result<PythonToolsetReply, String> {
        interpreter.ask("open", &json!(self)).await
    }
}

/// A single exported tool.
pub(crate) fn single(host: Arc<PythonHost>, tool: PythonTool) -> PythonTools {
    let origin = PythonOrigin::Single(tool.name.clone());
    PythonTools { host, origin, tools: vec![tool], needing: Mutex::default(), closed: false }
}

/// Makes a toolset for one call of an agent.
pub(crate) async fn open(
    host: Arc<PythonHost>,
    toolset: String,
    context: ToolsetContext,
) -> Result<OpenPythonToolset, String> {
    let (interpreter, making) = (host.live(), PythonToolsetRequest { toolset, context });
    let answer = making.ask(&interpreter).await?;
    Ok(match answer.built_in {
        None => {
            let made = PythonToolsetInstance { interpreter, instance: answer.instance };
            let (origin, tools) = (PythonOrigin::Made(making, tokio::sync::Mutex::new(made)), answer.tools);
            let needing = Mutex::default();
            OpenPythonToolset::Tools(Box::new(PythonTools { host, origin, tools, needing, closed: false }))
        }
        Some(built_in) => OpenPythonToolset::BuiltIn(built_in),
    })
}

#[derive(Serialize)]
struct Judging<'a> {
    instance: Instance,
    tool: &'a str,
    arguments: &'a RawJson,
}

#[derive(Serialize)]
struct PythonToolCall<'a> {
    #[serde(flatten)]
    call: Judging<'a>,
    approved: bool,
}

#[derive(Deserialize)]
struct Opinion {
    invalid: Option<String>,
    verdict: Option<String>,
    reason: Option<String>,
    description: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PythonResult {
    Text(String),
    Json(String),
    Content(Vec<PythonResultPart>),
    /// The approver has to agree; the code may say why.
    ApprovalNeeded(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PythonResultPart {
    Text(String),
    Json(String),
    Attachment(Attachment),
}

impl PythonTools {
    fn tool(&self, name: &str) -> Option<&PythonTool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    fn sight(&self, name: &str) -> Sight {
        if self.tool(name).is_some_and(|tool| tool.takes_context) { Sight::Full } else { Sight::Place }
    }

    fn is_needing(&self, tool: &str, arguments: &RawJson) -> bool {
        let needing = self.needing.lock().unwrap_or_else(PoisonError::into_inner);
        !needing.is_empty() && needing.contains(&(tool.to_owned(), canonical(arguments)))
    }

    /// Where its code lives now. A toolset that has ended with its interpreter is made anew by the next one.
    async fn place(&self) -> Result<(Arc<Interpreter>, Instance), String> {
        let live = self.host.live();
        let (making, made) = match &self.origin {
            PythonOrigin::Single(name) => return Ok((live, Instance::Single(name.clone()))),
            PythonOrigin::Made(making, made) => (making, made),
        };
        let mut made = made.lock().await;
        if !Arc::ptr_eq(&made.interpreter, &live) {
            let answer = making.ask(&live).await?;
            // The model knows the tools that there were, so the new ones must be the same.
            if answer.built_in.is_some() || answer.tools != self.tools {
                live.abandon(answer.instance);
                return Err(format!("the toolset `{}` was made anew and has other tools than before", making.toolset));
            }
            *made = PythonToolsetInstance { interpreter: live, instance: answer.instance };
        }
        Ok((Arc::clone(&made.interpreter), Instance::Made(made.instance)))
    }

    /// Asks the code what it thinks of a call; a person is only asked about arguments that fit. A call that Python could
    /// not judge, since it had ended or has not made the toolset anew, fails: it must not run, even if another interpreter
    /// is there by then, and nobody is asked about it.
    async fn opinion(&self, tool: &str, arguments: &RawJson, cx: &CallContext<'_>) -> Result<Verdict, String> {
        let (interpreter, instance) = match self.place().await {
            Ok(place) => place,
            Err(reason) => return Ok(Verdict::Fail(reason)),
        };
        let asked = Judging { instance, tool, arguments };
        let answer = match interpreter.within("judge", asked, self.sight(tool), time_of(cx), cx).await {
            Ok(answer) => answer,
            Err(error) if interpreter.is_gone() => return Ok(Verdict::Fail(error.to_string())),
            // A toolset that cannot say whether a call may run has not allowed it.
            Err(error) => return Ok(Verdict::Block(format!("its toolset cannot judge the call: {error}"))),
        };
        let opinion: Opinion = answer.to().map_err(|error| error.to_string())?;
        if let Some(violation) = opinion.invalid {
            return Err(violation);
        }
        let question = || question(tool, opinion.description.as_deref());
        Ok(match opinion.verdict.as_deref() {
            Some("allow") if !self.is_needing(tool, arguments) => Verdict::Allow,
            Some("block") => Verdict::Block(opinion.reason.unwrap_or_else(|| "its toolset blocks it".to_owned())),
            _ => Verdict::Ask(question()),
        })
    }

    async fn run(&self, call: PermittedCall, cx: &CallContext<'_>) -> Result<Vec<Content>, ToolError> {
        let (tool, arguments) = (call.tool(), call.arguments());
        let is_allowed = self.tool(tool).is_some_and(|tool| tool.verdict == PythonVerdict::Allow);
        let (interpreter, instance) = self.place().await.map_err(ToolError::Failed)?;
        let asked = PythonToolCall {
            call: Judging { instance, tool, arguments },
            approved: !is_allowed || self.is_needing(tool, arguments),
        };
        let answer = interpreter.within("call", asked, self.sight(tool), time_of(cx), cx).await?;
        let malformed =
            |error: serde_json::Error| ToolError::Failed(format!("Python answered what nobody asked: {error}"));
        match answer.to().map_err(malformed)? {
            PythonResult::Text(text) => Ok(vec![Content::text(text)]),
            PythonResult::Json(json) => Ok(vec![value(json)]),
            PythonResult::Content(parts) => Ok(parts.into_iter().map(content).collect()),
            PythonResult::ApprovalNeeded(_) => {
                let key = (tool.to_owned(), canonical(arguments));
                self.needing.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
                // It is decided again, and this time it asks.
                Err(ToolError::Changed)
            }
        }
    }
}

fn time_of(cx: &CallContext<'_>) -> Duration {
    cx.timeout.unwrap_or(LONGEST_CALL)
}

fn content(part: PythonResultPart) -> Content {
    match part {
        PythonResultPart::Text(text) => Content::text(text),
        PythonResultPart::Json(json) => value(json),
        PythonResultPart::Attachment(attachment) => Content::Attachment(attachment),
    }
}

/// A value that Python wrote. Numbers that JSON does not have become words.
fn value(json: String) -> Content {
    match RawJson::parse(&json) {
        Ok(value) => Content::value(&value),
        Err(_) => Content::text(json),
    }
}

/// What a person is told: our words first, the tool's own marked as such.
fn question(tool: &str, description: Option<&str>) -> Question {
    let preview = description.filter(|text| !text.trim().is_empty()).map(|text| {
        let cut: String = text.chars().take(LONGEST_DESCRIPTION).collect();
        let lines: Vec<String> = cut.lines().map(|line| format!("the tool says: {}", visible(line))).collect();
        lines.join("\n")
    });
    Question { preview, ..Question::because(format!("runs the tool `{tool}`, which is Python code")) }
}

impl Toolset for PythonTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &PythonTool| ToolSpec {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            kind: tool.kind(),
            order: tool.order(),
            repeat: Repeat::Once,
        };
        self.tools.iter().map(spec).collect()
    }

    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move {
            let is_allowed = self.tool(tool).is_some_and(|tool| tool.verdict == PythonVerdict::Allow);
            // No question is asked, so the call itself may find out whether the arguments fit.
            if is_allowed && !self.is_needing(tool, arguments) {
                return Ok(Verdict::Allow.into());
            }
            Ok(self.opinion(tool, arguments, cx).await?.into())
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(self.run(call, cx))
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move {
            self.closed = true;
            match &mut self.origin {
                PythonOrigin::Made(_, made) => {
                    let PythonToolsetInstance { interpreter, instance } = made.get_mut();
                    interpreter.close(*instance).await
                }
                PythonOrigin::Single(_) => Ok(()),
            }
        })
    }
}
