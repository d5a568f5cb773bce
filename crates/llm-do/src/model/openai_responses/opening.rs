//! Head of a conversation → the part of the request body that stays the same.

use std::borrow::Cow;

use serde::Serialize;

use super::strict::{enforceable, is_object};
use crate::message::RawJson;
use crate::model::body::BodyFields;
use crate::model::content::with_schema;
use crate::model::{Effort, Head, ModelSettings, ServerTool, ServerToolKind, Thinking, ToolDeclaration};

pub(crate) fn opening(head: &Head) -> BodyFields {
    let settings = &head.settings;
    let mut fields = BodyFields::default();
    fields.set("model", &head.model.model);
    fields.set("stream", &head.stream);
    fields.set("store", &false);
    let included = included(head);
    fields.set_some("include", (!included.is_empty()).then_some(included));
    let format = head.output.as_ref().filter(|schema| is_object(schema)).map(OutputFormat::of);
    let instructions = match &head.output {
        Some(schema) if format.is_none() => with_schema(&head.instructions, schema),
        Some(_) | None => head.instructions.clone(),
    };
    fields.set_some("instructions", (!instructions.is_empty()).then_some(instructions));
    let server_tools = head.server_tools.iter().filter_map(server_tool);
    let tools: Vec<WireTool<'_>> = head.tools.iter().map(declaration).chain(server_tools).collect();
    if !tools.is_empty() {
        fields.set("tools", &tools);
        fields.set_some("tool_choice", (!head.may_call).then_some("none"));
        fields.set_some("parallel_tool_calls", settings.parallel_tool_calls);
        fields.set_some("max_tool_calls", max_tool_calls(&head.server_tools));
    }
    fields.set_some("text", format.map(|format| Text { format }));
    fields.set_some("reasoning", reasoning(settings));
    fields.set_some("temperature", settings.temperature);
    fields.set_some("top_p", settings.top_p);
    // There are no stop words and no seed in this protocol, and the timeout is the connection's.
    fields
}

/// What the provider sends on demand only.
fn included(head: &Head) -> Vec<&'static str> {
    let runs_code = head.server_tools.iter().any(|tool| tool.kind == ServerToolKind::CodeExecution);
    let mut included = Vec::new();
    if may_reason(&head.model.model) {
        included.push("reasoning.encrypted_content"); // what is stored nowhere can only be returned whole
    }
    if runs_code {
        included.push("code_interpreter_call.outputs");
    }
    included
}

/// Models that are known to not reason refuse to be asked for it.
fn may_reason(model: &str) -> bool {
    const NEVER: &[&str] = &["gpt-3.5", "gpt-4", "chatgpt-4o", "gpt-5-chat"];
    let base = model.strip_prefix("ft:").unwrap_or(model);
    !NEVER.iter().any(|never| base.starts_with(never))
}

#[derive(Serialize)]
struct Text<'a> {
    format: OutputFormat<'a>,
}

#[derive(Serialize)]
struct OutputFormat<'a> {
    r#type: &'static str,
    name: &'static str,
    schema: Cow<'a, RawJson>,
    strict: bool,
}

impl<'a> OutputFormat<'a> {
    fn of(schema: &'a RawJson) -> Self {
        let (schema, strict) = match enforceable(schema) {
            Some(strict) => (Cow::Owned(strict), true),
            None => (Cow::Borrowed(schema), false),
        };
        Self { r#type: "json_schema", name: "output", schema, strict }
    }
}

#[derive(Serialize)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

fn reasoning(settings: &ModelSettings) -> Option<Reasoning> {
    let effort = settings.effort.map(effort);
    let (effort, summary) = match settings.thinking {
        // It cannot be bounded otherwise than by an effort. Summaries are for verified organisations, so they are
        // asked for only where the agent asks for thinking.
        Some(Thinking::On | Thinking::Budget(_)) => (effort, Some("auto")),
        Some(Thinking::Off) => (effort.or(Some("none")), None),
        None => (effort, None),
    };
    (effort.is_some() || summary.is_some()).then_some(Reasoning { effort, summary })
}

fn effort(effort: Effort) -> &'static str {
    match effort {
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Xhigh => "xhigh",
        Effort::Max => "max",
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireTool<'a> {
    Function {
        name: &'a str,
        description: &'a str,
        parameters: &'a RawJson,
        strict: bool,
    },
    WebSearch {
        #[serde(skip_serializing_if = "Option::is_none")]
        filters: Option<Filters<'a>>,
    },
    CodeInterpreter {
        container: Container,
    },
    ImageGeneration,
}

#[derive(Serialize)]
struct Filters<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    allowed_domains: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    blocked_domains: &'a [String],
}

#[derive(Serialize)]
struct Container {
    r#type: &'static str,
}

fn declaration(tool: &ToolDeclaration) -> WireTool<'_> {
    let ToolDeclaration { name, description, parameters } = tool;
    // It is said, because otherwise the provider makes a schema strict by itself: it would require what is optional.
    // Strictness of our own is not worth a request that is refused for a keyword in the schema of a tool; arguments
    // are validated before a tool runs.
    WireTool::Function { name, description, parameters, strict: false }
}

fn server_tool(tool: &ServerTool) -> Option<WireTool<'_>> {
    let ServerTool { allowed_domains, blocked_domains, .. } = tool;
    Some(match tool.kind {
        ServerToolKind::WebSearch => {
            let filtered = !allowed_domains.is_empty() || !blocked_domains.is_empty();
            WireTool::WebSearch { filters: filtered.then_some(Filters { allowed_domains, blocked_domains }) }
        }
        ServerToolKind::CodeExecution => WireTool::CodeInterpreter { container: Container { r#type: "auto" } },
        ServerToolKind::ImageGeneration => WireTool::ImageGeneration,
        // Linking refuses what the provider's row does not list.
        ServerToolKind::WebFetch => return None,
    })
}

/// The provider counts the uses of all its tools together, so the limit of one can be kept only where it is alone.
/// Linking refuses the others.
fn max_tool_calls(tools: &[ServerTool]) -> Option<u64> {
    match tools {
        [only] => only.max_uses,
        [] | [_, _, ..] => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::message::Message;
    use crate::model::fixtures::{self, head};
    use crate::model::openai_responses::OpenAiResponses;
    use crate::model::protocol::{Protocol as _, Quirks};

    fn request(head: &Head, messages: &[Message]) -> Value {
        fixtures::request(&OpenAiResponses, head, &Quirks::NONE, messages)
    }

    fn server_tool(kind: ServerToolKind, max_uses: Option<u64>, allowed: &[&str]) -> ServerTool {
        let allowed_domains = allowed.iter().map(|domain| (*domain).to_owned()).collect();
        ServerTool { kind, max_uses, allowed_domains, blocked_domains: vec![] }
    }

    #[test]
    fn the_least_request_stores_nothing() {
        let sent = request(&head("openai:gpt-4o"), &[Message::user("hi")]);
        let input = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(sent, json!({"model": "gpt-4o", "stream": true, "store": false, "input": input}));
    }

    #[test]
    fn settings_and_tools_have_their_places() {
        let mut head = head("openai:gpt-5");
        head.instructions = "Be brief.".into();
        head.stream = false;
        let parameters = fixtures::json(r#"{"type":"object","properties":{"b":{},"a":{}}}"#);
        head.tools = vec![ToolDeclaration { name: "add".into(), description: "Adds.".into(), parameters }];
        head.server_tools = vec![
            server_tool(ServerToolKind::WebSearch, Some(2), &["example.org"]),
            server_tool(ServerToolKind::CodeExecution, Some(3), &[]),
            server_tool(ServerToolKind::ImageGeneration, Some(1), &[]),
        ];
        head.output = Some(fixtures::json(r#"{"type":"object","properties":{"b":{"type":"null"}},"required":["b"]}"#));
        head.settings = ModelSettings {
            temperature: Some(1.0),
            top_p: Some(0.5),
            max_tokens: Some(99),
            stop: vec!["END".into()],
            seed: Some(1),
            effort: Some(Effort::Minimal),
            thinking: Some(Thinking::On),
            parallel_tool_calls: Some(false),
            timeout: None,
        };
        let properties = json!({"b": {}, "a": {}});
        let schema = json!({
            "type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"], "additionalProperties": false,
        });
        let expected = json!({
            "model": "gpt-5", "stream": false, "store": false, "instructions": "Be brief.",
            "include": ["reasoning.encrypted_content", "code_interpreter_call.outputs"],
            "tools": [
                {"type": "function", "name": "add", "description": "Adds.", "strict": false,
                 "parameters": {"type": "object", "properties": properties}},
                {"type": "web_search", "filters": {"allowed_domains": ["example.org"]}},
                {"type": "code_interpreter", "container": {"type": "auto"}},
                {"type": "image_generation"},
            ],
            "parallel_tool_calls": false,
            "text": {"format": {"type": "json_schema", "name": "output", "schema": schema, "strict": true}},
            "reasoning": {"effort": "minimal", "summary": "auto"},
            "temperature": 1.0, "top_p": 0.5, "max_output_tokens": 99, "input": [],
        });
        assert_eq!(request(&head, &[]), expected);
        let body = OpenAiResponses.encoder(&head, &Quirks::NONE).body(None);
        assert!(str::from_utf8(&body).unwrap().contains(r#"{"b":{},"a":{}}"#), "key order is kept");
        assert_eq!(OpenAiResponses.path(&head, &Quirks::NONE), "/responses");
        assert_eq!(
            OpenAiResponses.headers(&head, &Quirks::NONE, Some("k")),
            [("authorization", "Bearer k".to_owned())]
        );
    }

    #[test]
    fn an_output_is_enforced_or_hinted_at_or_asked_for_in_words() {
        let mut head = head("openai:gpt-5");
        let open = r#"{"type":"object","properties":{"a":{"type":"string"}}}"#;
        head.output = Some(fixtures::json(open));
        let sent = request(&head, &[]);
        let schema: Value = serde_json::from_str(open).unwrap();
        let format = json!({"type": "json_schema", "name": "output", "schema": schema, "strict": false});
        assert_eq!((&sent["text"]["format"], &sent["instructions"]), (&format, &Value::Null));
        head.output = Some(fixtures::json(r#"{"type":"string"}"#));
        let sent = request(&head, &[]);
        assert_eq!(sent["text"], Value::Null);
        assert!(sent["instructions"].as_str().unwrap().ends_with(r#"{"type":"string"}"#));
    }

    #[test]
    fn reasoning_is_asked_for_where_the_model_may_reason() {
        let encrypted = json!(["reasoning.encrypted_content"]);
        let cases = [
            ("o3", None, None, Value::Null, &encrypted),
            ("gpt-5.2", Some(Effort::Xhigh), None, json!({"effort": "xhigh"}), &encrypted),
            ("gpt-5", None, Some(Thinking::Off), json!({"effort": "none"}), &encrypted),
            ("gpt-5", Some(Effort::Low), Some(Thinking::Off), json!({"effort": "low"}), &encrypted),
            ("gpt-5", None, Some(Thinking::Budget(9)), json!({"summary": "auto"}), &encrypted),
            ("gpt-4.1-mini", None, None, Value::Null, &Value::Null),
            ("ft:gpt-4o:org::id", None, None, Value::Null, &Value::Null),
            ("gpt-5-chat-latest", None, None, Value::Null, &Value::Null),
        ];
        for (model, effort, thinking, reasoning, included) in cases {
            let mut head = head(&format!("openai:{model}"));
            (head.settings.effort, head.settings.thinking) = (effort, thinking);
            let sent = request(&head, &[]);
            assert_eq!((&sent["reasoning"], &sent["include"]), (&reasoning, included), "{model}");
        }
    }

    #[test]
    fn uses_are_limited_for_a_tool_that_is_alone() {
        let (search, code) = (ServerToolKind::WebSearch, ServerToolKind::CodeExecution);
        let cases = [
            (vec![], Value::Null),
            (vec![server_tool(search, Some(2), &[])], json!(2)),
            (vec![server_tool(search, Some(2), &[]), server_tool(code, None, &[])], Value::Null),
            (vec![server_tool(search, Some(2), &[]), server_tool(code, Some(1), &[])], Value::Null),
        ];
        for (server_tools, expected) in cases {
            let head = Head { server_tools, ..head("openai:gpt-5") };
            assert_eq!(request(&head, &[])["max_tool_calls"], expected);
        }
    }
}
