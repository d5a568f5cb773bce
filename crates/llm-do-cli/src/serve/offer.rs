//! What a client offers: tools, toolsets, an entry and the words of inputs. Each is a request of ours to the client, inside
//! the call that it belongs to, behind the same gate as any other tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use llm_do::approval::Question;
use llm_do::messages::Attachment;
use llm_do::python::RenderedPart;
use llm_do::rpc::Sight;
use llm_do::toolsets::{MadeToolset, Order, Repeat, Run, RunEntry, ToolKind, ToolsetContext, fits};
use llm_do::{
    BoxFuture, CallContext, Content, FunctionEntry, Judgement, PermittedCall, Project, RawJson, Rule, Tool, ToolError,
    ToolSpec, Toolset, Verdict, schema,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::calls::ClientCaller;
use super::protocol::{Approval, ClientOffer, EntryParam, OfferedTool, ToolsetParam};
use crate::failure::Failure;

/// A project, with everything that the client offers to it by name.
pub fn offered(mut project: Project, offer: &ClientOffer, caller: &ClientCaller) -> Project {
    for tool in &offer.tools {
        project = project.tool(single(tool, caller));
    }
    for (name, toolset) in &offer.toolsets {
        let tools = match toolset {
            ToolsetParam::Tools(tools) => Some(tools.clone()),
            ToolsetParam::Made => None,
            ToolsetParam::Defined(_) => continue,
        };
        let (caller, toolset) = (caller.clone(), name.clone());
        let factory = move |opening| -> BoxFuture<'static, _> {
            Box::pin(made(caller.clone(), toolset.clone(), tools.clone(), opening))
        };
        project = project.toolset_made_by(name.clone(), Arc::new(factory));
    }
    for agent in &offer.inputs {
        let (caller, name) = (caller.clone(), agent.clone());
        let render = move |value: Value| -> BoxFuture<'static, _> {
            let (caller, name) = (caller.clone(), name.clone());
            Box::pin(async move { rendered(&caller, &name, &value).await })
        };
        project = project.input_rendered_by(agent.clone(), Arc::new(render));
    }
    project
}

/// The client's function as the entry of a run.
pub fn entry(entry: &EntryParam, caller: &ClientCaller) -> Option<FunctionEntry> {
    let name = entry.function.clone()?;
    let schema = entry.schema.clone().unwrap_or_else(|| RawJson::of(&json!({})));
    let (caller, function) = (caller.clone(), name.clone());
    let run: RunEntry = Box::new(move |input, cx| {
        #[derive(Serialize)]
        struct ClientEntryCall<'a> {
            function: &'a str,
            input: &'a RawJson,
        }
        #[derive(Deserialize)]
        struct ClientEntryResult {
            value: RawJson,
        }
        let (caller, function) = (caller.clone(), function.clone());
        Box::pin(async move {
            let asked = ClientEntryCall { function: &function, input: &input };
            let answer = caller.within("call_entry", asked, Sight::Full, cx).await?;
            answer.to().map(|ClientEntryResult { value }| value).map_err(|error| nonsense(&error))
        })
    });
    Some(FunctionEntry::of(name, schema, run))
}

fn nonsense(error: &serde_json::Error) -> ToolError {
    ToolError::Failed(format!("the client answered what nobody asked: {error}"))
}

fn spec(tool: &OfferedTool) -> ToolSpec {
    ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
        kind: ToolKind::Code,
        order: if tool.sequential { Order::Sequential } else { Order::Concurrent },
        repeat: Repeat::Once,
    }
}

fn sight(tool: &OfferedTool) -> Sight {
    if tool.takes_context { Sight::Full } else { Sight::Place }
}

#[derive(Serialize)]
struct ClientToolCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    toolset: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a Value>,
    tool: &'a str,
    arguments: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approved: Option<bool>,
}

/// What code gave.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClientToolResult {
    Value(RawJson),
    Content(Vec<ClientResultPart>),
    ApprovalNeeded(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClientResultPart {
    Text(String),
    Attachment(Attachment),
}

fn content(returned: ClientToolResult) -> Option<Vec<Content>> {
    let part = |part| match part {
        ClientResultPart::Text(text) => Content::text(text),
        ClientResultPart::Attachment(attachment) => Content::Attachment(attachment),
    };
    match returned {
        ClientToolResult::Value(value) => Some(vec![Content::value(&value)]),
        ClientToolResult::Content(parts) => Some(parts.into_iter().map(part).collect()),
        ClientToolResult::ApprovalNeeded(_) => None,
    }
}

/// A single function: it has no state, and entries may call it too.
fn single(tool: &OfferedTool, caller: &ClientCaller) -> Tool {
    let (caller, name, sight) = (caller.clone(), tool.name.clone(), sight(tool));
    let run: Run = Box::new(move |arguments, cx| {
        let (caller, name) = (caller.clone(), name.clone());
        Box::pin(async move {
            let calling = ClientToolCall {
                toolset: None,
                instance: None,
                tool: &name,
                arguments: &arguments,
                id: None,
                approved: None,
            };
            let answer = caller.within("call_tool", calling, sight, cx).await?;
            let unasked = || ToolError::failed("its code wants an approval; offer it with `approval: \"ask\"`");
            content(answer.to().map_err(|error| nonsense(&error))?).ok_or_else(unasked)
        })
    });
    Tool::of(spec(tool), tool.approval.rule(), run)
}

/// A toolset for one call of an agent: its tools are known, or the client makes it now.
async fn made(
    caller: ClientCaller,
    name: String,
    tools: Option<Vec<OfferedTool>>,
    opening: ToolsetContext,
) -> Result<MadeToolset, String> {
    #[derive(Serialize)]
    struct ClientToolsetRequest<'a> {
        toolset: &'a str,
        agent: &'a str,
        model: &'a str,
        depth: usize,
    }
    #[derive(Deserialize)]
    struct ClientToolsetAnswer {
        #[serde(default)]
        instance: Value,
        #[serde(default)]
        tools: Vec<OfferedTool>,
        definition: Option<RawJson>,
        #[serde(default)]
        rules: BTreeMap<String, String>,
    }
    if let Some(tools) = tools {
        return Ok(MadeToolset::Live(Box::new(ClientTools::new(caller, name, None, tools))));
    }
    let ToolsetContext { agent, model, depth } = &opening;
    let answer = caller.ask("open_toolset", ClientToolsetRequest { toolset: &name, agent, model, depth: *depth }).await;
    let answer = answer.map_err(|fault| fault.to_string())?;
    let ClientToolsetAnswer { instance, tools, definition, rules } =
        answer.to().map_err(|error| format!("the client answered what nobody asked: {error}"))?;
    match definition {
        Some(definition) => {
            let rules = rules.into_iter().filter_map(|(tool, word)| Some((tool, Rule::parse(&word)?))).collect();
            Ok(MadeToolset::Defined { definition, rules })
        }
        None => {
            tools.iter().try_for_each(bounded)?;
            Ok(MadeToolset::Live(Box::new(ClientTools::new(caller, name, Some(instance), tools))))
        }
    }
}

/// What the client says of a typed input.
async fn rendered(caller: &ClientCaller, agent: &str, value: &Value) -> Result<Vec<RenderedPart>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum ClientRendering {
        Parts(Vec<RenderedPart>),
        Invalid(String),
    }
    let answer = caller.ask("render_input", json!({"agent": agent, "value": value})).await;
    match answer.map_err(|fault| fault.to_string())?.to() {
        Ok(ClientRendering::Parts(parts)) => Ok(parts),
        Ok(ClientRendering::Invalid(violation)) => Err(violation),
        Err(error) => Err(format!("the client answered what nobody asked: {error}")),
    }
}

/// Tools that run in the client.
struct ClientTools {
    caller: ClientCaller,
    name: String,
    /// Of a toolset that was made for this call.
    instance: Option<Value>,
    /// Each with its schema.
    tools: Vec<(OfferedTool, Value)>,
    /// Calls whose code found out only while it ran that an approver has to agree.
    needing: std::sync::Mutex<Vec<(String, String)>>,
    closed: bool,
}

impl Drop for ClientTools {
    /// A call that was dropped waits for no answer, but its toolsets are still asked to clean up.
    fn drop(&mut self) {
        if let (false, Some(instance)) = (self.closed, &self.instance) {
            let params = json!({"scope": self.caller.scope, "toolset": self.name, "instance": instance});
            self.caller.client.notify("close_toolset", &RawJson::of(&params));
        }
    }
}

impl ClientTools {
    fn new(caller: ClientCaller, name: String, instance: Option<Value>, tools: Vec<OfferedTool>) -> Self {
        let with_schema = |tool: OfferedTool| {
            let schema = tool.parameters.to().unwrap_or_default();
            (tool, schema)
        };
        let tools = tools.into_iter().map(with_schema).collect();
        Self { caller, name, instance, tools, needing: std::sync::Mutex::default(), closed: false }
    }

    fn tool(&self, name: &str) -> Result<&(OfferedTool, Value), String> {
        self.tools.iter().find(|(tool, _)| tool.name == name).ok_or_else(|| format!("there is no tool `{name}`"))
    }

    fn calling<'a>(&'a self, tool: &'a str, arguments: &'a RawJson) -> ClientToolCall<'a> {
        let (toolset, instance) = (Some(self.name.as_str()), self.instance.as_ref());
        ClientToolCall { toolset, instance, tool, arguments, id: None, approved: None }
    }

    fn needing(&self) -> std::sync::MutexGuard<'_, Vec<(String, String)>> {
        self.needing.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn is_needing(&self, tool: &str, arguments: &RawJson) -> bool {
        self.needing().iter().any(|(needing, with)| needing == tool && with == arguments.get())
    }

    async fn opinion(&self, tool: &str, arguments: &RawJson, cx: &CallContext<'_>) -> Result<Verdict, String> {
        #[derive(Deserialize)]
        struct ClientOpinion {
            invalid: Option<String>,
            #[serde(default)]
            verdict: Approval,
            reason: Option<String>,
            description: Option<String>,
        }
        let (offered, schema) = self.tool(tool)?;
        fits(schema, arguments).await?;
        let declared = match offered.approval {
            Approval::Allow if self.is_needing(tool, arguments) => Approval::Ask,
            declared => declared,
        };
        if declared != Approval::Judge {
            return Ok(verdict(tool, declared, None, None));
        }
        let answer = self.caller.within("judge_tool", self.calling(tool, arguments), sight(offered), cx).await;
        // A client that cannot say whether a call may run has not allowed it.
        let opinion = match answer.map(|answer| answer.to::<ClientOpinion>()) {
            Ok(Ok(opinion)) => opinion,
            Ok(Err(error)) => return Ok(Verdict::Block(format!("its toolset cannot judge the call: {error}"))),
            Err(error) => return Ok(Verdict::Block(format!("its toolset cannot judge the call: {error}"))),
        };
        match opinion.invalid {
            Some(violation) => Err(violation),
            None => Ok(verdict(tool, opinion.verdict, opinion.reason, opinion.description)),
        }
    }
}

fn verdict(tool: &str, approval: Approval, reason: Option<String>, description: Option<String>) -> Verdict {
    match approval {
        Approval::Allow => Verdict::Allow,
        Approval::Block => Verdict::Block(reason.unwrap_or_else(|| "its toolset blocks it".to_owned())),
        Approval::Ask | Approval::Judge => {
            let question = Question::because(format!("runs the tool `{tool}`, which is code of the program"));
            Verdict::Ask(Question { foreign: description.filter(|text| !text.trim().is_empty()), ..question })
        }
    }
}

impl Toolset for ClientTools {
    fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().map(|(tool, _)| spec(tool)).collect()
    }

    fn judge<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move { Ok(self.opinion(tool, arguments, cx).await?.into()) })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        Box::pin(async move {
            let (tool, arguments) = (call.tool(), call.arguments());
            let (offered, _) = self.tool(tool).map_err(ToolError::Failed)?;
            let approved = offered.approval != Approval::Allow || self.is_needing(tool, arguments);
            let calling =
                ClientToolCall { id: Some(call.id()), approved: Some(approved), ..self.calling(tool, arguments) };
            let answer = self.caller.within("call_tool", calling, sight(offered), cx).await?;
            match content(answer.to().map_err(|error| nonsense(&error))?) {
                Some(content) => Ok(content),
                None => {
                    self.needing().push((tool.to_owned(), arguments.get().to_owned()));
                    // The call is decided again, and this time the approver is asked.
                    Err(ToolError::Changed)
                }
            }
        })
    }

    fn close(mut self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move {
            self.closed = true;
            let Some(instance) = &self.instance else { return Ok(()) };
            let closed = self.caller.ask("close_toolset", json!({"toolset": self.name, "instance": instance})).await;
            closed.map(drop).map_err(|fault| fault.to_string())
        })
    }
}

/// Refuses names that mean two things, before anything is linked.
pub fn check(offer: &ClientOffer) -> Result<(), Failure> {
    let mut names: Vec<&str> = offer.tools.iter().map(|tool| tool.name.as_str()).collect();
    names.sort_unstable();
    if let Some([name, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(format!("`tools` has `{name}` twice")));
    }
    let of_toolsets = offer.toolsets.values().filter_map(|toolset| match toolset {
        ToolsetParam::Tools(tools) => Some(tools),
        ToolsetParam::Made | ToolsetParam::Defined(_) => None,
    });
    offer.tools.iter().chain(of_toolsets.flatten()).try_for_each(|tool| bounded(tool).map_err(Failure::usage))
}

/// The size of a client's schema is bounded before any value is held against it.
fn bounded(tool: &OfferedTool) -> Result<(), String> {
    let judged = schema::sized(&tool.parameters, schema::Direction::Input);
    judged.map(drop).map_err(|error| format!("`parameters` of `{}`: {error}", tool.name))
}
