//! Projects: those of this server, and what each of them can do.

use axum::Json;
use axum::extract::{Path, State};
use llm_do::Program;
use llm_do::approval::DeclaredVerdict;
use llm_do::program::{AgentSpec, Entry, Typing};
use llm_do::reach::{Graph, ReachableTool, Worst};
use llm_do_launch::launch::Launch;
use serde_json::{Map, Value, json};

use super::{Answered, WebState};
use crate::error::ApiError;
use crate::house::LaunchWishes;
use crate::layout::graph::{CallGraph, GraphAgent, PlacedGraph};

/// Who asks, and what may be done here.
pub async fn me(State(served): State<WebState>) -> Answered {
    let house = &served.house;
    Ok(Json(json!({
        "user": house.user,
        "projects": house.projects.keys().collect::<Vec<_>>(),
        "read_only": house.is_read_only,
        "version": env!("CARGO_PKG_VERSION"),
        "home": house.settings.variables.get("HOME"),
    })))
}

pub async fn list(State(served): State<WebState>) -> Answered {
    let projects: Vec<Value> =
        served.house.projects.values().map(|project| json!({"name": project.name, "root": project.root})).collect();
    Ok(Json(json!({"projects": projects})))
}

/// What `check` finds out without running anything: agents, tools, worst cases, mistakes with their places.
pub async fn check(State(served): State<WebState>, Path(name): Path<String>) -> Answered {
    let house = served.house;
    let project = house.project(&name)?.clone();
    // A model can still be chosen when a run begins.
    let open = || -> Result<Launch, ApiError> {
        let mut launch = house.launch(&project, LaunchWishes::default())?;
        launch.models.may_be_open = true;
        Ok(launch)
    };
    let surveyed = match open()?.survey(&house.settings) {
        Ok(surveyed) => surveyed,
        Err(error) => {
            let error = house.error(error);
            let mistakes = error.more.get("mistakes").cloned().unwrap_or_else(|| json!([{"message": error.message}]));
            return Ok(Json(json!({"ok": false, "project": project.name, "root": project.root, "errors": mistakes})));
        }
    };
    let trusted = Box::pin(house.trusted(open()?)).await;
    let is_trusted = trusted.is_ok();
    // What Python defines is known only if its files are started, which a trusted project's may be.
    let linked = match trusted {
        Ok(trusted) => Box::pin(trusted.link()).await.map_err(|error| house.error(error)),
        Err(error) => Err(house.error(error)),
    };
    let program = linked.as_ref().map_or_else(|_| surveyed.program(), |linked| linked.program());
    let mut view = view(program);
    view.insert("ok".to_owned(), json!(linked.is_ok()));
    view.insert("project".to_owned(), json!(project.name));
    view.insert("root".to_owned(), json!(project.root));
    view.insert("trusted".to_owned(), json!(is_trusted));
    let mistakes = linked.err().map(|error: ApiError| {
        error.more.get("mistakes").cloned().unwrap_or_else(|| json!([{"message": error.message, "hint": error.hint}]))
    });
    view.insert("errors".to_owned(), mistakes.unwrap_or_else(|| json!([])));
    Ok(Json(Value::Object(view)))
}

/// A linked program as JSON, and its picture.
fn view(program: &Program) -> Map<String, Value> {
    let graph = Graph::new(program);
    let worst = graph.worst_cases();
    let agents: Vec<Value> =
        graph.nodes.iter().zip(&worst).map(|(node, worst)| agent(node.agent, &node.tools, worst)).collect();
    let entry = match &program.entry {
        Entry::Agent(name) => json!({"agent": name}),
        Entry::Function(function) => json!({"function": function.to_string()}),
        Entry::Open => Value::Null,
    };
    let picture = PlacedGraph::of(&call_graph(program));
    let view = json!({
        "entry": entry,
        "default_input": program.default_input,
        "agents": agents,
        "cyclic": graph.cyclic(),
        "unreached": graph.unreached(),
        "picture": picture,
    });
    match view {
        Value::Object(view) => view,
        _ => Map::new(),
    }
}

/// Who calls whom, for a picture.
pub fn call_graph(program: &Program) -> CallGraph {
    let graph = Graph::new(program);
    let (worst, cyclic) = (graph.worst_cases(), graph.cyclic());
    let agents = graph.nodes.iter().zip(&worst).map(|(node, worst)| GraphAgent {
        name: node.agent.name.clone(),
        model: model_of(node.agent).unwrap_or_else(|| "no model yet".to_owned()),
        calls: node.callees.clone(),
        calls_any: node.calls_any,
        is_cyclic: cyclic.contains(&node.agent.name.as_str()),
        unasked: worst.iter().filter(|(_, way)| !way.asks).map(|(capability, _)| word(capability)).collect(),
        asked: worst.iter().filter(|(_, way)| way.asks).map(|(capability, _)| word(capability)).collect(),
        tools: node.tools.iter().filter(|tool| tool.agent.is_none()).map(|tool| tool.name.to_string()).collect(),
    });
    let entry = match &program.entry {
        Entry::Agent(name) => graph.place(name),
        Entry::Function(_) | Entry::Open => None,
    };
    CallGraph { agents: agents.collect(), entry }
}

fn agent(agent: &AgentSpec, tools: &[ReachableTool<'_>], worst: &Worst<'_>) -> Value {
    let worst: Vec<Value> = worst
        .iter()
        .map(|(capability, way)| json!({"capability": word(capability), "path": way.words(), "asks": way.asks}))
        .collect();
    json!({
        "name": agent.name,
        "file": agent.file.display().to_string(),
        "description": agent.description,
        "model": model_of(agent),
        "instructions": agent.instructions,
        "input": schema(&agent.input),
        "output": schema(&agent.output),
        "tools": tools.iter().map(tool).collect::<Vec<_>>(),
        "limits": agent.limits,
        "worst_case": worst,
    })
}

/// The first model that is asked, if one was chosen.
fn model_of(agent: &AgentSpec) -> Option<String> {
    (!agent.model.provider.is_empty()).then(|| agent.model.to_string())
}

/// The JSON Schema of what an agent takes or gives; nothing for text.
pub fn schema(typing: &Typing) -> Value {
    match typing {
        Typing::Untyped => Value::Null,
        Typing::Schema(schema) => super::json(schema),
        Typing::Python(class) => class.schema.as_ref().map_or_else(|| json!({"type": "object"}), super::json),
    }
}

fn tool(tool: &ReachableTool<'_>) -> Value {
    let (verdict, commands) = match &tool.verdict {
        DeclaredVerdict::ByCommand(commands) => ("by_command".to_owned(), json!(commands)),
        verdict => (word(verdict), Value::Null),
    };
    json!({
        "name": tool.name,
        "toolsets": tool.toolsets,
        "verdict": verdict,
        "commands": commands,
        "agent": tool.agent,
        "capabilities": tool.capabilities,
    })
}

/// The word that an enum has in JSON.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
