//! The providers: a provider is a row. Reading the environment is the caller's; this table says which variables.

use super::ServerToolKind;
use super::anthropic::Anthropic;
use super::openai_chat::OpenAiChat;
use super::protocol::{
    CallIdForm, InlineThinking, OutputFormat, PromptCaching, Protocol, Quirks, ReasoningField, ReasoningReturn,
    StreamUsage, ThinkingSetting,
};
use ServerToolKind::{CodeExecution, ImageGeneration, WebFetch, WebSearch};

/// A provider that the program knows by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Provider {
    pub name: &'static str,
    pub protocol: ProtocolKind,
    pub base_url: &'static str,
    /// Variables that replace the base URL; the first one that is set wins.
    pub base_url_variables: &'static [&'static str],
    /// Variables that hold the key, the first one that is set wins; none: no key is needed.
    pub key_variables: &'static [&'static str],
    /// Whether its requests cost money.
    pub paid: bool,
    /// Tools that it runs itself.
    pub server_tools: &'static [ServerToolKind],
    /// How it differs from the others that speak its protocol.
    pub quirks: Quirks,
}

/// The four wire formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolKind {
    Anthropic,
    OpenAiResponses,
    OpenAiChat,
    Gemini,
    /// No wire: the model follows a script.
    Scripted,
}

impl ProtocolKind {
    /// The translation; none where there is no wire, or none yet.
    pub fn protocol(self) -> Option<&'static dyn Protocol> {
        match self {
            Self::Anthropic => Some(&Anthropic),
            Self::OpenAiChat => Some(&OpenAiChat),
            Self::OpenAiResponses | Self::Gemini | Self::Scripted => None,
        }
    }
}

const fn chat(
    name: &'static str,
    base_url: &'static str,
    base_url_variables: &'static [&'static str],
    key_variables: &'static [&'static str],
    quirks: Quirks,
) -> Provider {
    let protocol = ProtocolKind::OpenAiChat;
    Provider { name, protocol, base_url, base_url_variables, key_variables, paid: true, server_tools: &[], quirks }
}

/// Models of many makers, some of which write their thinking into the text.
const OPEN_MODELS: Quirks = Quirks { inline_thinking: InlineThinking::Thinking, ..Quirks::COMPATIBLE };

const OLLAMA: Quirks =
    Quirks { reasoning_return: ReasoningReturn::WithToolCalls(ReasoningField::Reasoning), ..OPEN_MODELS };

const OPENROUTER: Quirks = Quirks {
    thinking_setting: ThinkingSetting::Reasoning,
    reasoning_return: ReasoningReturn::Details,
    prompt_caching: PromptCaching::Marked,
    ..Quirks::NONE
};

const GROQ: Quirks = Quirks { inline_thinking: InlineThinking::Thinking, ..Quirks::NONE };

const MISTRAL: Quirks = Quirks {
    seed_field: "random_seed",
    stream_usage: StreamUsage::Unasked,
    call_ids: CallIdForm::NineAlphanumeric,
    ..Quirks::COMPATIBLE
};

const DEEPSEEK: Quirks = Quirks {
    thinking_setting: ThinkingSetting::ThinkingType,
    reasoning_return: ReasoningReturn::WithToolCalls(ReasoningField::ReasoningContent),
    output_format: OutputFormat::JsonObject,
    ..Quirks::COMPATIBLE
};

const AZURE: Quirks = Quirks { chat_path: "/openai/v1/chat/completions", ..Quirks::NONE };

pub const PROVIDERS: &[Provider] = &[
    Provider {
        name: "anthropic",
        protocol: ProtocolKind::Anthropic,
        base_url: "https://api.anthropic.com",
        base_url_variables: &["ANTHROPIC_BASE_URL"],
        key_variables: &["ANTHROPIC_API_KEY"],
        paid: true,
        server_tools: &[WebSearch, WebFetch, CodeExecution],
        quirks: Quirks::NONE,
    },
    Provider {
        name: "openai",
        protocol: ProtocolKind::OpenAiResponses,
        base_url: "https://api.openai.com/v1",
        base_url_variables: &["OPENAI_BASE_URL"],
        key_variables: &["OPENAI_API_KEY"],
        paid: true,
        server_tools: &[WebSearch, CodeExecution, ImageGeneration],
        quirks: Quirks::NONE,
    },
    chat("openai-chat", "https://api.openai.com/v1", &["OPENAI_BASE_URL"], &["OPENAI_API_KEY"], Quirks::NONE),
    Provider {
        name: "google",
        protocol: ProtocolKind::Gemini,
        base_url: "https://generativelanguage.googleapis.com",
        base_url_variables: &["GOOGLE_BASE_URL"],
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        paid: true,
        server_tools: &[WebSearch, WebFetch, CodeExecution],
        quirks: Quirks::NONE,
    },
    Provider { paid: false, ..chat("ollama", "http://localhost:11434/v1", &["OLLAMA_HOST"], &[], OLLAMA) },
    chat("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_BASE_URL"], &["OPENROUTER_API_KEY"], OPENROUTER),
    chat("groq", "https://api.groq.com/openai/v1", &["GROQ_BASE_URL"], &["GROQ_API_KEY"], GROQ),
    chat("mistral", "https://api.mistral.ai/v1", &["MISTRAL_BASE_URL"], &["MISTRAL_API_KEY"], MISTRAL),
    chat("deepseek", "https://api.deepseek.com", &["DEEPSEEK_BASE_URL"], &["DEEPSEEK_API_KEY"], DEEPSEEK),
    chat("xai", "https://api.x.ai/v1", &["XAI_BASE_URL"], &["XAI_API_KEY"], Quirks::NONE),
    chat("together", "https://api.together.xyz/v1", &["TOGETHER_BASE_URL"], &["TOGETHER_API_KEY"], OPEN_MODELS),
    chat(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        &["FIREWORKS_BASE_URL"],
        &["FIREWORKS_API_KEY"],
        OPEN_MODELS,
    ),
    chat("cerebras", "https://api.cerebras.ai/v1", &["CEREBRAS_BASE_URL"], &["CEREBRAS_API_KEY"], GROQ),
    chat(
        "huggingface",
        "https://router.huggingface.co/v1",
        &["HF_BASE_URL"],
        &["HF_TOKEN", "HUGGINGFACE_API_KEY"],
        OPEN_MODELS,
    ),
    // Azure has no address of its own: each resource has one, so the variable is required.
    chat("azure", "", &["AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_ENDPOINT"], &["AZURE_OPENAI_API_KEY"], AZURE),
    Provider { protocol: ProtocolKind::Scripted, paid: false, ..chat("scripted", "", &[], &[], Quirks::NONE) },
];

pub fn provider(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_has_one_row_and_a_way_to_its_address() {
        for (index, row) in PROVIDERS.iter().enumerate() {
            assert!(PROVIDERS[..index].iter().all(|other| other.name != row.name), "{} twice", row.name);
            let reachable = !row.base_url.is_empty() || !row.base_url_variables.is_empty();
            assert!(reachable || row.protocol == ProtocolKind::Scripted, "{}", row.name);
            assert!(!row.base_url.ends_with('/'), "{}", row.name);
        }
    }
}
