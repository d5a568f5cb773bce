//! A live toolset in the interpreter, as one call of an agent uses it.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::host::{PythonHost, Sight};
use super::{PythonTool, PythonVerdict};
use crate::BoxFuture;
use crate::escape::visible;
use crate::message::{Attachment, Content, RawJson};
use crate::tools::approval::{PermittedCall, Question, Rule, Verdict, canonical};
use crate::tools::{CallContext, LONGEST_CALL, Repeat, ToolError, ToolSpec, Toolset};

/// A description by a toolset's own code is cut here.
const LONGEST_DESCRIPTION: usize = 2_000;

/// What a Python toolset turned out to be.
pub enum Opened {
    Tools(PythonTools),
    /// One of ours, configured in Python: a definition as in a manifest, and the rules of its approval config.
    BuiltIn {
        definition: RawJson,
        rules: BTreeMap<String, Rule>,
    },
}

/// Tools that run in the interpreter.
pub struct PythonTools {
    host: Arc<PythonHost>,
    instance: Instance,
    tools: Vec<PythonTool>,
    /// Calls whose code found out only while it ran that somebody has to agree.
    needing: Mutex<HashSet<(String, String)>>,
    closed: bool,
}

impl Drop for PythonTools {
    /// A call that was dropped waits for nobody, but its toolsets are still asked to clean up.
    fn drop(&mut self) {
        if let (false, Instance::Made(instance)) = (self.closed, &self.instance) {
            self.host.abandon(*instance);
        }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Instance {
    /// Made for this call.
    Made(u64),
    /// A single tool, which has no state of its own.
    Single(String),
}

/// A single exported tool.
pub fn single(host: Arc<PythonHost>, tool: PythonTool) -> PythonTools {
    PythonTools {
        host,
        instance: Instance::Single(tool.name.clone()),
        tools: vec![tool],
        needing: Mutex::default(),
        closed: false,
    }
}

/// Makes a toolset for one call of an agent.
pub async fn open(
    host: Arc<PythonHost>,
    toolset: &str,
    agent: &str,
    model: &str,
    depth: usize,
) -> Result<Opened, String> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        instance: u64,
        #[serde(default)]
        tools: Vec<PythonTool>,
        built_in: Option<RawJson>,
        #[serde(default)]
        approval: BTreeMap<String, Value>,
        #[serde(default)]
        rules: BTreeMap<String, String>,
    }
    let context = json!({"agent": agent, "model": model, "depth": depth});
    let answer: Answer = host.ask("open", &json!({"toolset": toolset, "context": context})).await?;
    Ok(match answer.built_in {
        None => {
            let (instance, tools) = (Instance::Made(answer.instance), answer.tools);
            Opened::Tools(PythonTools { host, instance, tools, needing: Mutex::default(), closed: false })
        }
        Some(built_in) => {
            let configured = answer.rules.into_iter().filter_map(|(tool, word)| Some((tool, Rule::parse(&word)?)));
            let allowed = answer.approval.into_iter().filter(|(_, rule)| rule["pre_approved"] == true);
            let allowed = allowed.map(|(tool, _)| (tool, Rule::Allow));
            Opened::BuiltIn { definition: built_in, rules: configured.chain(allowed).collect() }
        }
    })
}

#[derive(Serialize)]
struct Judging<'a> {
    instance: &'a Instance,
    tool: &'a str,
    arguments: &'a RawJson,
}

#[derive(Serialize)]
struct Calling<'a> {
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
enum Returned {
    Text(String),
    Json(String),
    Content(Vec<Part>),
    /// And why, if its code says so.
    ApprovalNeeded(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
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

    /// Asks the code what it thinks of a call; a person is only asked about arguments that fit.
    async fn opinion(&self, tool: &str, arguments: &RawJson, cx: &CallContext<'_>) -> Result<Verdict, String> {
        let asked = Judging { instance: &self.instance, tool, arguments };
        let opinion: Opinion = match self.host.within("judge", asked, self.sight(tool), time_of(cx), cx).await {
            Ok(answer) => answer.to().map_err(|error| error.to_string())?,
            // Nothing can run any more, and the call says why.
            Err(_) if self.host.is_gone() => return Ok(Verdict::Allow),
            // Whoever cannot say whether a call may run has not allowed it.
            Err(error) => return Ok(Verdict::Block(format!("its toolset cannot judge the call: {error}"))),
        };
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
        let asked = Calling {
            call: Judging { instance: &self.instance, tool, arguments },
            approved: !is_allowed || self.is_needing(tool, arguments),
        };
        let answer = self.host.within("call", asked, self.sight(tool), time_of(cx), cx).await?;
        let malformed =
            |error: serde_json::Error| ToolError::Failed(format!("Python answered what nobody asked: {error}"));
        match answer.to().map_err(malformed)? {
            Returned::Text(text) => Ok(vec![Content::text(text)]),
            Returned::Json(json) => Ok(vec![value(json)]),
            Returned::Content(parts) => Ok(parts.into_iter().map(content).collect()),
            Returned::ApprovalNeeded(_) => {
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

fn content(part: Part) -> Content {
    match part {
        Part::Text(text) => Content::text(text),
        Part::Json(json) => value(json),
        Part::Attachment(attachment) => Content::Attachment(attachment),
    }
}

/// Python writes numbers that JSON does not have: those are words.
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
    ) -> BoxFuture<'a, Result<Verdict, String>> {
        Box::pin(async move {
            let is_allowed = self.tool(tool).is_some_and(|tool| tool.verdict == PythonVerdict::Allow);
            // Nobody is asked, so the call itself may find out whether the arguments fit.
            if is_allowed && !self.is_needing(tool, arguments) {
                return Ok(Verdict::Allow);
            }
            self.opinion(tool, arguments, cx).await
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
            match &self.instance {
                Instance::Made(instance) => self.host.close(*instance).await,
                Instance::Single(_) => Ok(()),
            }
        })
    }
}
