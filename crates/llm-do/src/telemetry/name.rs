//! Every name that leaves the program, in one table: semantic conventions 1.41, the last release with `gen_ai`, and ours.

/// What the names below mean is written there.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";
/// Who makes the spans and metrics.
pub(super) const SCOPE: &str = "llm-do";

pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const AGENT: &str = "gen_ai.agent.name";
pub(super) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const REQUEST_MODEL: &str = "gen_ai.request.model";
pub(super) const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub(super) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
pub(super) const CACHE_CREATION: &str = "gen_ai.usage.cache_creation.input_tokens";
pub(super) const REASONING: &str = "gen_ai.usage.reasoning.output_tokens";
pub(super) const INPUT_MESSAGES: &str = "gen_ai.input.messages";
pub(super) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
pub(super) const TOOL: &str = "gen_ai.tool.name";
pub(super) const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(super) const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(super) const TOOL_RESULT: &str = "gen_ai.tool.call.result";
pub(super) const MCP_METHOD: &str = "mcp.method.name";
pub(super) const MCP_VERSION: &str = "mcp.protocol.version";
pub(super) const ERROR_TYPE: &str = "error.type";
pub(super) const TOKEN_TYPE: &str = "gen_ai.token.type";

/// What a call cost with all that it called, in dollars.
pub(super) const COST: &str = "llm_do.cost_usd";

/// Operations, which also begin the names of spans.
pub(super) const INVOKE_AGENT: &str = "invoke_agent";
pub(super) const CHAT: &str = "chat";
pub(super) const EXECUTE_TOOL: &str = "execute_tool";

/// Questions, which are events of the span of the agent that they are about.
pub(super) const QUESTION: &str = "llm_do.question";
pub(super) const ANSWER: &str = "llm_do.answer";
pub(super) const QUESTION_REASON: &str = "llm_do.question.reason";
pub(super) const ANSWER_KIND: &str = "llm_do.answer.kind";

/// Kinds of errors that are no status of a provider.
pub(super) const OTHER_ERROR: &str = "_OTHER";
pub(super) const CANCELLED: &str = "cancelled";
pub(super) const LIMIT: &str = "limit";
pub(super) const REFUSED: &str = "refused";
pub(super) const NOT_CALLED: &str = "not_called";
pub(super) const TIMEOUT: &str = "timeout";
pub(super) const TOOL_ERROR: &str = "tool_error";
pub(super) const WAITING: &str = "waiting";

/// Tools that are run here, and those that a provider runs itself.
pub(super) const FUNCTION: &str = "function";
pub(super) const EXTENSION: &str = "extension";

/// Metrics: names, units and what they say.
pub(super) const DURATION: Instrument =
    Instrument { name: "gen_ai.client.operation.duration", unit: "s", text: "GenAI operation duration." };
pub(super) const TOKENS: Instrument =
    Instrument { name: "gen_ai.client.token.usage", unit: "{token}", text: "Number of input and output tokens used." };
pub(super) const SPENT: Instrument =
    Instrument { name: "llm_do.cost", unit: "USD", text: "What model requests cost, where the price is known." };

/// A metric as it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instrument {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) text: &'static str,
}

/// Providers that the conventions name otherwise than we do; the others keep their names.
const PROVIDERS: &[(&str, &str)] = &[
    ("azure", "azure.ai.openai"),
    ("google", "gcp.gemini"),
    ("google-vertex", "gcp.vertex_ai"),
    ("mistral", "mistral_ai"),
    ("openai-chat", "openai"),
    ("xai", "x_ai"),
];

/// A provider as the conventions name it.
pub(super) fn provider(name: &str) -> &str {
    PROVIDERS.iter().find(|(ours, _)| *ours == name).map_or(name, |(_, theirs)| theirs)
}
