//! What stays the same during a conversation: instructions, tools and settings.

use serde::Serialize;

use super::generation::{Generation, ThinkingConfig, thinking};
use super::schema::{output_schema, parameters_schema};
use crate::message::RawJson;
use crate::model::body::{BodyFields, BodyTail};
use crate::model::content::with_schema;
use crate::model::{Head, ServerTool, ServerToolKind, ToolDeclaration};

/// With what goes behind the messages: there the answer is bounded, for each request anew.
pub(crate) fn opening(head: &Head) -> (BodyFields, BodyTail) {
    let generation = Generation::of(&head.model.model);
    let tools = tools(head);
    // Earlier models refuse an output schema beside tools of any kind.
    let native = head.output.as_ref().filter(|_| generation == Generation::Levels || tools.is_empty());
    let instructions = match (&head.output, native) {
        (Some(schema), None) => with_schema(&head.instructions, schema),
        (Some(_), Some(_)) | (None, _) => head.instructions.clone(),
    };
    let mut fields = BodyFields::default();
    if !instructions.trim().is_empty() {
        fields.set("systemInstruction", &Instructions { parts: [InstructionPart { text: &instructions }] });
    }
    let mixed = tools.len() > 1 && !head.tools.is_empty();
    fields.set_some("tools", (!tools.is_empty()).then_some(tools));
    let config = ToolConfig {
        // Without it, tools of ours and of the provider do not go together.
        include_server_side_tool_invocations: (mixed && generation == Generation::Levels).then_some(true),
        function_calling_config: (!head.may_call && !head.tools.is_empty()).then_some(CallingConfig { mode: "NONE" }),
    };
    let is_said = config.include_server_side_tool_invocations.is_some() || config.function_calling_config.is_some();
    fields.set_some("toolConfig", is_said.then_some(config));
    (fields, tail(head, native))
}

#[derive(Serialize)]
struct Instructions<'a> {
    parts: [InstructionPart<'a>; 1],
}

#[derive(Serialize)]
struct InstructionPart<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    include_server_side_tool_invocations: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_calling_config: Option<CallingConfig>,
}

#[derive(Serialize)]
struct CallingConfig {
    mode: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<RawJson>,
}

fn tail(head: &Head, output: Option<&RawJson>) -> BodyTail {
    let config = RawJson::of(&generation_config(head, output));
    let open = config.get().strip_suffix('}').unwrap_or_default();
    let before = format!(r#","generationConfig":{open}"#);
    BodyTail::new(&before, "maxOutputTokens", head.settings.max_tokens, "}}")
}

fn generation_config<'a>(head: &'a Head, output: Option<&RawJson>) -> GenerationConfig<'a> {
    let settings = &head.settings;
    GenerationConfig {
        temperature: settings.temperature,
        top_p: settings.top_p,
        stop_sequences: &settings.stop,
        seed: settings.seed,
        thinking_config: thinking(&head.model.model, settings),
        response_mime_type: output.map(|_| "application/json"),
        response_json_schema: output.map(output_schema),
        // Parallel calls cannot be turned off in this protocol, and the timeout is the connection's.
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum WireTool<'a> {
    FunctionDeclarations(Vec<FunctionDeclaration<'a>>),
    GoogleSearch {},
    UrlContext {},
    CodeExecution {},
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: &'a str,
    description: &'a str,
    /// The newer of two fields for it: `parameters` takes a small subset of `OpenAPI` and refuses the request for
    /// every keyword beyond that.
    parameters_json_schema: RawJson,
}

fn tools(head: &Head) -> Vec<WireTool<'_>> {
    let declarations: Vec<_> = head.tools.iter().map(declaration).collect();
    let declared = (!declarations.is_empty()).then_some(WireTool::FunctionDeclarations(declarations));
    declared.into_iter().chain(head.server_tools.iter().filter_map(server_tool)).collect()
}

fn declaration(tool: &ToolDeclaration) -> FunctionDeclaration<'_> {
    let ToolDeclaration { name, description, parameters } = tool;
    FunctionDeclaration { name, description, parameters_json_schema: parameters_schema(parameters) }
}

fn server_tool(tool: &ServerTool) -> Option<WireTool<'_>> {
    let limited = tool.max_uses.is_some() || !tool.allowed_domains.is_empty() || !tool.blocked_domains.is_empty();
    if limited {
        return None; // A limit that this provider cannot keep is not dropped: rather the tool is.
    }
    match tool.kind {
        ServerToolKind::WebSearch => Some(WireTool::GoogleSearch {}),
        ServerToolKind::WebFetch => Some(WireTool::UrlContext {}),
        ServerToolKind::CodeExecution => Some(WireTool::CodeExecution {}),
        // Linking refuses what the provider's row does not list.
        ServerToolKind::ImageGeneration => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::fixtures::{self, head};
    use crate::model::gemini::Gemini;
    use crate::model::protocol::{Protocol as _, Quirks};
    use crate::model::{ModelSettings, Thinking};

    fn request(head: &Head) -> Value {
        fixtures::request(&Gemini, head, &Quirks::NONE, &[])
    }

    fn tool(name: &str) -> ToolDeclaration {
        let parameters = fixtures::json(r#"{"type":"object","properties":{"b":{},"a":{}}}"#);
        ToolDeclaration { name: name.into(), description: "Adds.".into(), parameters }
    }

    fn server(kind: ServerToolKind) -> ServerTool {
        ServerTool { kind, max_uses: None, allowed_domains: vec![], blocked_domains: vec![] }
    }

    #[test]
    fn the_least_request_has_contents_only() {
        assert_eq!(request(&head("google:gemini-3.8-flash")), json!({"generationConfig": {}, "contents": []}));
    }

    #[test]
    fn settings_and_tools_have_their_places() {
        let mut head = head("google:gemini-3.8-flash");
        head.instructions = "Be brief.".into();
        head.tools = vec![tool("add"), tool("sum")];
        head.server_tools =
            [ServerToolKind::WebSearch, ServerToolKind::WebFetch, ServerToolKind::CodeExecution].map(server).into();
        head.output = Some(fixtures::json(r#"{"type":"object","properties":{"x":{"const":1}}}"#));
        head.settings = ModelSettings {
            temperature: Some(1.0),
            top_p: Some(0.5),
            max_tokens: Some(99),
            stop: vec!["END".into()],
            seed: Some(1),
            effort: None,
            thinking: Some(Thinking::On),
            parallel_tool_calls: Some(false),
            timeout: None,
        };
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let expected = json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "tools": [
                {"functionDeclarations": [
                    {"name": "add", "description": "Adds.", "parametersJsonSchema": schema},
                    {"name": "sum", "description": "Adds.", "parametersJsonSchema": schema},
                ]},
                {"googleSearch": {}}, {"urlContext": {}}, {"codeExecution": {}},
            ],
            "toolConfig": {"includeServerSideToolInvocations": true},
            "generationConfig": {
                "temperature": 1.0, "topP": 0.5, "maxOutputTokens": 99, "stopSequences": ["END"], "seed": 1,
                "thinkingConfig": {"includeThoughts": true},
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "object", "properties": {"x": {"type": "integer", "enum": [1]}}},
            },
            "contents": [],
        });
        assert_eq!(request(&head), expected);
        let body = Gemini.encoder(&head, &Quirks::NONE).body(None);
        assert!(str::from_utf8(&body).unwrap().contains(r#"{"b":{},"a":{}}"#), "key order is kept");
    }

    #[test]
    fn an_output_beside_tools_is_asked_for_in_words_where_models_refuse_it() {
        let mut head = head("google:gemini-2.5-flash");
        head.output = Some(fixtures::json(r#"{"type":"object"}"#));
        let sent = request(&head);
        assert_eq!(sent["generationConfig"]["responseJsonSchema"], json!({"type": "object"}));
        assert_eq!(sent["systemInstruction"], Value::Null);
        head.tools = vec![tool("add")];
        head.server_tools = vec![server(ServerToolKind::WebSearch)];
        let sent = request(&head);
        assert_eq!(sent["generationConfig"], json!({}));
        assert_eq!(sent["toolConfig"], Value::Null);
        let words = sent["systemInstruction"]["parts"][0]["text"].as_str().unwrap();
        assert!(words.ends_with(r#"{"type":"object"}"#), "{words}");
    }

    #[test]
    fn a_server_tool_with_limits_that_cannot_be_kept_is_not_offered() {
        let mut head = head("google:gemini-3.8-flash");
        let search = server(ServerToolKind::WebSearch);
        head.server_tools = vec![
            ServerTool { max_uses: Some(1), ..search.clone() },
            ServerTool { allowed_domains: vec!["example.org".into()], ..search.clone() },
            ServerTool { blocked_domains: vec!["example.org".into()], ..search },
        ];
        assert_eq!(request(&head)["tools"], Value::Null);
    }
}
