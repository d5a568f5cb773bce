//! The agents that a project offers, as tools. Pure.

use llm_do::program::{Entry, Typing};
use llm_do::reach::{Graph, Worst};
use llm_do::{Input, Program};
use serde_json::{Map, Value, json};

use super::protocol::McpEra;

/// The agents that may be called, and in which order: nothing depends on how files are listed.
pub fn exported(program: &Program) -> Vec<String> {
    let mut names = program.exports.clone();
    if let (true, Entry::Agent(name)) = (names.is_empty(), &program.entry) {
        names.push(name.clone());
    }
    names.sort();
    names
}

/// What `tools/list` tells of each of them.
pub fn listed(program: &Program, era: McpEra) -> Vec<Value> {
    let graph = Graph::new(program);
    let worst = graph.worst_cases();
    let tool = |name: &String| {
        let agent = program.agents.get(name)?;
        let worst = worst.get(graph.place(name)?)?;
        let mut tool = Map::new();
        tool.insert("name".to_owned(), json!(name));
        if !agent.description.is_empty() {
            tool.insert("description".to_owned(), json!(agent.description));
        }
        tool.insert("inputSchema".to_owned(), input_schema(&agent.input));
        let output = schema_of(&agent.output).filter(|schema| era == McpEra::Modern || is_object(schema));
        tool.extend(output.map(|schema| ("outputSchema".to_owned(), schema)));
        tool.insert("annotations".to_owned(), hints(worst));
        Some(Value::Object(tool))
    };
    exported(program).iter().filter_map(tool).collect()
}

/// What an agent can do in the worst case, through all that it calls.
fn hints(worst: &Worst<'_>) -> Value {
    let can = |words: &str| worst.iter().any(|(capability, _)| capability.words() == words);
    let changes = ["writes files", "runs commands", "creates agents"].into_iter().any(can);
    let reaches = can("reaches the network");
    json!({
        "readOnlyHint": !changes && !reaches,
        "destructiveHint": changes || reaches,
        "idempotentHint": false,
        // A command can reach whatever the machine does.
        "openWorldHint": reaches || can("runs commands"),
    })
}

fn schema_of(typing: &Typing) -> Option<Value> {
    match typing {
        Typing::Untyped => None,
        Typing::Schema(schema) => schema.to().ok(),
        // What is not known before Python was started is a class all the same, and so an object.
        Typing::Python(python) => {
            let known = python.schema.as_ref().and_then(|schema| schema.to().ok());
            Some(known.unwrap_or_else(|| json!({"type": "object"})))
        }
    }
}

fn is_object(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
}

/// Arguments are an object: what takes anything else takes it as `input`.
fn input_schema(typing: &Typing) -> Value {
    match schema_of(typing) {
        Some(schema) if is_object(&schema) => schema,
        Some(schema) => json!({"type": "object", "properties": {"input": schema}, "required": ["input"]}),
        None => json!({
            "type": "object",
            "properties": {"input": {"type": "string", "description": "what to say to the agent"}},
            "required": ["input"],
            "additionalProperties": false,
        }),
    }
}

/// What is said to an agent that is called with these arguments; or why that is no call of it.
pub fn input(typing: &Typing, arguments: &Value) -> Result<Input, String> {
    let inner = || arguments.get("input").cloned().ok_or_else(|| "`input` is missing".to_owned());
    let value = match schema_of(typing) {
        None => match inner()? {
            Value::String(text) => return Ok(Input::Text(text)),
            _ => return Err("`input` is a text".to_owned()),
        },
        Some(schema) if is_object(&schema) => arguments.clone(),
        Some(_) => inner()?,
    };
    Ok(Input::Object { value, attachments: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use llm_do::RawJson;

    fn typed(schema: &str) -> Typing {
        Typing::Schema(RawJson::parse(schema).unwrap())
    }

    #[test]
    fn arguments_are_an_object_whatever_an_agent_takes() {
        let object = typed(r#"{"type": "object", "properties": {"n": {"type": "integer"}}}"#);
        let list = typed(r#"{"type": "array", "items": {"type": "string"}}"#);
        assert_eq!(input_schema(&Typing::Untyped)["required"], json!(["input"]));
        assert_eq!(input_schema(&object)["properties"], json!({"n": {"type": "integer"}}));
        assert_eq!(input_schema(&list)["properties"]["input"]["type"], "array");
        let said =
            |typing: &Typing, arguments: Value| input(typing, &arguments).unwrap().to_json().to::<Value>().unwrap();
        assert_eq!(said(&Typing::Untyped, json!({"input": "hi"})), json!("hi"));
        assert_eq!(said(&object, json!({"n": 1})), json!({"n": 1}));
        assert_eq!(said(&list, json!({"input": ["a"]})), json!(["a"]));
        for wrong in [json!({}), json!({"input": 1}), json!({"text": "hi"})] {
            assert!(input(&Typing::Untyped, &wrong).is_err(), "{wrong}");
        }
    }
}
