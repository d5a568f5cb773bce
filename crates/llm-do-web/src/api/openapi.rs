//! What the API takes and gives, for programs that make clients of it. The schemas come from the types that read it.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::chats::{ChangeChat, ForgetGrants, SayTurn, SessionView};
use super::costs::ShowCosts;
use super::questions::{AddRule, AnswerResult, ConsiderArguments, QuestionView, SentAnswer};
use super::runs::{BeginRun, BegunResult, CallQuery, CancelledResult, ResumeRun, RunQuery, SentFork, SingleRunQuery};
use crate::error::ApiError;

/// What one address does.
struct Route {
    path: &'static str,
    method: &'static str,
    summary: &'static str,
    /// What stands in its query.
    query: Option<Schema>,
    body: Option<Schema>,
    answer: Option<Schema>,
}

fn routes(of: &mut SchemaGenerator) -> Vec<Route> {
    fn take<T: JsonSchema>(of: &mut SchemaGenerator) -> Schema {
        of.subschema_for::<T>()
    }
    let get = |path, summary| Route { path, method: "get", summary, query: None, body: None, answer: None };
    let post = |path, summary, body, answer| Route { path, method: "post", summary, query: None, body, answer };
    vec![
        get("/api/me", "Who asks, and what may be done here"),
        Route { query: Some(take::<RunQuery>(of)), ..get("/api/runs", "The runs that are kept, the newest first") },
        post("/api/runs", "Begin a run or a chat", Some(take::<BeginRun>(of)), Some(take::<BegunResult>(of))),
        Route { query: Some(take::<SingleRunQuery>(of)), ..get("/api/runs/{id}", "All that is known of a run") },
        Route {
            query: Some(take::<CallQuery>(of)),
            ..get("/api/runs/{id}/call", "One call, with its requests as recorded")
        },
        get("/api/runs/{id}/events", "What happens in it, as server-sent events; `Last-Event-ID` says from where"),
        post("/api/runs/{id}/cancel", "End its turn", None, Some(take::<CancelledResult>(of))),
        post("/api/runs/{id}/resume", "Go on with it", Some(take::<ResumeRun>(of)), Some(take::<BegunResult>(of))),
        post(
            "/api/runs/{id}/fork",
            "A new run that begins as this one did",
            Some(take::<SentFork>(of)),
            Some(take::<BegunResult>(of)),
        ),
        post(
            "/api/runs/{id}/turns",
            "Say the next thing in a chat",
            Some(take::<SayTurn>(of)),
            Some(take::<BegunResult>(of)),
        ),
        post(
            "/api/runs/{id}/change",
            "Look at a chat, or change it between two turns",
            Some(take::<ChangeChat>(of)),
            None,
        ),
        post("/api/runs/{id}/close", "Close a chat here", None, None),
        Route {
            answer: Some(take::<SessionView>(of)),
            ..get("/api/runs/{id}/session", "What was allowed until it ends, and what it took in this process")
        },
        post("/api/runs/{id}/forget", "Ask again about what was allowed", Some(take::<ForgetGrants>(of)), None),
        Route { answer: Some(take::<QuestionView>(of)), ..get("/api/questions", "The open questions of all runs") },
        post(
            "/api/questions/{id}",
            "Answer one; 409 says who was first",
            Some(take::<SentAnswer>(of)),
            Some(take::<AnswerResult>(of)),
        ),
        post(
            "/api/questions/{id}/try",
            "What would be asked about other arguments",
            Some(take::<ConsiderArguments>(of)),
            None,
        ),
        post("/api/questions/{id}/rule", "Add a rule that lasts", Some(take::<AddRule>(of)), None),
        get("/api/projects", "The projects of this server"),
        get("/api/projects/{name}/check", "What a project can do, and its mistakes"),
        Route { query: Some(take::<ShowCosts>(of)), ..get("/api/costs", "What runs cost, and how the budgets stand") },
        get("/v1/models", "The agents, as `project/agent`"),
        post("/v1/chat/completions", "One turn of an agent, as OpenAI's clients ask", None, None),
    ]
}

/// The whole description.
pub fn document() -> Value {
    let settings = SchemaSettings::openapi3();
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<ApiError>();
    let routes = routes(&mut generator);
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method] = operation(&route, &error);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "llm-do", "version": env!("CARGO_PKG_VERSION")},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn operation(route: &Route, error: &Schema) -> Value {
    let in_path = route.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let mut parameters: Vec<Value> = in_path
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    if let Some(query) = &route.query {
        parameters.push(json!({"name": "query", "in": "query", "style": "form", "explode": true, "schema": query}));
    }
    let answer = route.answer.as_ref().map_or_else(|| json!({"type": "object"}), |schema| json!(schema));
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer", "content": {"application/json": {"schema": answer}}},
            "default": {
                "description": "Why there is none",
                "content": {"application/json": {"schema": {"type": "object", "properties": {"error": error}}}},
            },
        },
    });
    if let Some(body) = &route.body {
        operation["requestBody"] = json!({"content": {"application/json": {"schema": body}}});
    }
    operation
}
