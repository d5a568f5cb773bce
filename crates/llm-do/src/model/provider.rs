//! The providers: a provider is a row. Reading the environment is the caller's; this table says which variables.

use super::anthropic::Anthropic;
use super::gemini::Gemini;
use super::openai_chat::OpenAiChat;
use super::openai_responses::OpenAiResponses;
use super::prices::Money;
use super::protocol::{
    CallIdForm, InlineThinking, KeyForm, OutputFormat, Prefill, PromptCaching, Protocol, Quirks, ReasoningField,
    ReasoningReturn, ReportedCost, StreamUsage, ThinkingSetting,
};
use super::{ServerTool, ServerToolKind};
use Restriction::{AllowedDomains, BlockedDomains, MaxUses, MaxUsesAlone};
use ServerToolKind::{CodeExecution, ImageGeneration, WebFetch, WebSearch};

/// A provider that the program knows by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Provider {
    /// What stands before the colon of its models' names.
    pub name: &'static str,
    /// The wire format that it speaks.
    pub protocol: ProtocolKind,
    /// Where it usually is; empty if each customer has another address.
    pub base_url: &'static str,
    /// Variables that replace the base URL; the first one that is set wins.
    pub base_url_variables: &'static [&'static str],
    /// Variables that hold the key, the first one that is set wins; none: it has no keys.
    pub key_variables: &'static [&'static str],
    /// Whether it must have a key.
    pub key_need: KeyNeed,
    /// Whether its requests cost money.
    pub paid: bool,
    /// Tools that it runs itself.
    pub server_tools: &'static [OfferedTool],
    /// How it differs from the others that speak its protocol.
    pub quirks: Quirks,
}

impl Provider {
    /// Whether asking without a key is in vain.
    pub fn needs_key(&self) -> bool {
        match self.key_need {
            KeyNeed::Always => !self.key_variables.is_empty(),
            KeyNeed::Sometimes => false,
        }
    }
}

/// Whether a provider can be asked without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNeed {
    /// If there are variables for it.
    Always,
    /// Sent if it is there: the same provider may be a server of one's own or a hosted one.
    Sometimes,
}

/// A tool that a provider runs itself, and what it lets us restrict. What is not listed is not sent, and linking
/// refuses it: a restriction that the provider does not keep is worse than none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedTool {
    pub kind: ServerToolKind,
    pub keeps: &'static [Restriction],
    /// What one use costs, besides the tokens that it brings along.
    pub per_use: Money,
}

/// A bound on a tool that the provider runs itself, which the provider keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restriction {
    MaxUses,
    /// As long as it is the only one of its tools: the provider counts the uses of all of them together.
    MaxUsesAlone,
    AllowedDomains,
    BlockedDomains,
}

impl Restriction {
    /// The key in worker files.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::MaxUses | Self::MaxUsesAlone => "max_uses",
            Self::AllowedDomains => "allowed_domains",
            Self::BlockedDomains => "blocked_domains",
        }
    }

    fn is_wanted(self, tool: &ServerTool) -> bool {
        match self {
            Self::MaxUses | Self::MaxUsesAlone => tool.max_uses.is_some(),
            Self::AllowedDomains => !tool.allowed_domains.is_empty(),
            Self::BlockedDomains => !tool.blocked_domains.is_empty(),
        }
    }
}

impl OfferedTool {
    /// The restrictions of a tool that the provider would not keep; `together` is how many of its tools are used.
    pub(crate) fn unkept<'a>(
        &'a self,
        tool: &'a ServerTool,
        together: usize,
    ) -> impl Iterator<Item = Restriction> + 'a {
        let counts_together = self.keeps.contains(&MaxUsesAlone);
        let uses = if counts_together { MaxUsesAlone } else { MaxUses };
        let keeps = move |restriction: Restriction| match restriction {
            MaxUsesAlone => together == 1,
            MaxUses | AllowedDomains | BlockedDomains => self.keeps.contains(&restriction),
        };
        let all = [uses, AllowedDomains, BlockedDomains].into_iter();
        all.filter(move |restriction| restriction.is_wanted(tool) && !keeps(*restriction))
    }
}

const fn unrestricted(kind: ServerToolKind, per_use: Money) -> OfferedTool {
    OfferedTool { kind, keeps: &[], per_use }
}

const ANTHROPIC_TOOLS: &[OfferedTool] = &[
    OfferedTool { kind: WebSearch, keeps: &[MaxUses, AllowedDomains, BlockedDomains], per_use: Money::mills(10) },
    OfferedTool { kind: WebFetch, keeps: &[MaxUses, AllowedDomains, BlockedDomains], per_use: Money::ZERO },
    unrestricted(CodeExecution, Money::mills(50)),
];

const OPENAI_TOOLS: &[OfferedTool] = &[
    OfferedTool { kind: WebSearch, keeps: &[MaxUsesAlone, AllowedDomains, BlockedDomains], per_use: Money::mills(25) },
    OfferedTool { kind: CodeExecution, keeps: &[MaxUsesAlone], per_use: Money::mills(30) },
    OfferedTool { kind: ImageGeneration, keeps: &[MaxUsesAlone], per_use: Money::mills(250) },
];

const GOOGLE_TOOLS: &[OfferedTool] = &[
    unrestricted(WebSearch, Money::mills(35)),
    unrestricted(WebFetch, Money::ZERO),
    unrestricted(CodeExecution, Money::ZERO),
];

/// The four wire formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolKind {
    /// Messages of Anthropic.
    Anthropic,
    /// Responses of `OpenAI`.
    OpenAiResponses,
    /// Chat Completions, which most providers speak.
    OpenAiChat,
    /// Gemini of Google.
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
            Self::OpenAiResponses => Some(&OpenAiResponses),
            Self::Gemini => Some(&Gemini),
            Self::Scripted => None,
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
    Provider {
        name,
        protocol: ProtocolKind::OpenAiChat,
        base_url,
        base_url_variables,
        key_variables,
        key_need: KeyNeed::Always,
        paid: true,
        server_tools: &[],
        quirks,
    }
}

/// Models of many makers, some of which write their thinking into the text.
const OPEN_MODELS: Quirks = Quirks { inline_thinking: InlineThinking::Thinking, ..Quirks::COMPATIBLE };

const OLLAMA: Quirks =
    Quirks { reasoning_return: ReasoningReturn::WithToolCalls(ReasoningField::Reasoning), ..OPEN_MODELS };

const OPENROUTER: Quirks = Quirks {
    thinking_setting: ThinkingSetting::Reasoning,
    reasoning_return: ReasoningReturn::Details,
    prompt_caching: PromptCaching::Marked,
    reported_cost: ReportedCost::Dollars,
    ..Quirks::NONE
};

const CEREBRAS: Quirks = Quirks { inline_thinking: InlineThinking::Thinking, ..Quirks::NONE };

const GROQ: Quirks = Quirks { prefill: Prefill::Plain, ..CEREBRAS };

const MISTRAL: Quirks = Quirks {
    seed_field: "random_seed",
    stream_usage: StreamUsage::Unasked,
    call_ids: CallIdForm::NineAlphanumeric,
    prefill: Prefill::Marked,
    ..Quirks::COMPATIBLE
};

const DEEPSEEK: Quirks = Quirks {
    thinking_setting: ThinkingSetting::ThinkingType,
    reasoning_return: ReasoningReturn::WithToolCalls(ReasoningField::ReasoningContent),
    output_format: OutputFormat::JsonObject,
    ..Quirks::COMPATIBLE
};

const AZURE: Quirks = Quirks { chat_path: "/openai/v1/chat/completions", ..Quirks::NONE };

/// The models of Google in a project of Google Cloud.
pub const VERTEX: Quirks = Quirks { gemini_path: "", key_form: KeyForm::Bearer, ..Quirks::NONE };

/// Every provider that is known without configuration, each name once.
pub const PROVIDERS: &[Provider] = &[
    Provider {
        name: "anthropic",
        protocol: ProtocolKind::Anthropic,
        base_url: "https://api.anthropic.com",
        base_url_variables: &["ANTHROPIC_BASE_URL"],
        key_variables: &["ANTHROPIC_API_KEY"],
        key_need: KeyNeed::Always,
        paid: true,
        server_tools: ANTHROPIC_TOOLS,
        quirks: Quirks::NONE,
    },
    Provider {
        name: "openai",
        protocol: ProtocolKind::OpenAiResponses,
        base_url: "https://api.openai.com/v1",
        base_url_variables: &["OPENAI_BASE_URL"],
        key_variables: &["OPENAI_API_KEY"],
        key_need: KeyNeed::Always,
        paid: true,
        server_tools: OPENAI_TOOLS,
        quirks: Quirks::NONE,
    },
    chat("openai-chat", "https://api.openai.com/v1", &["OPENAI_BASE_URL"], &["OPENAI_API_KEY"], Quirks::NONE),
    Provider {
        name: "google",
        protocol: ProtocolKind::Gemini,
        base_url: "https://generativelanguage.googleapis.com",
        base_url_variables: &["GOOGLE_BASE_URL"],
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        key_need: KeyNeed::Always,
        paid: true,
        server_tools: GOOGLE_TOOLS,
        quirks: Quirks::NONE,
    },
    Provider {
        name: "google-vertex",
        protocol: ProtocolKind::Gemini,
        // For keys of no project; a token belongs to one, which has an address of its own.
        base_url: "https://aiplatform.googleapis.com/v1/publishers/google",
        base_url_variables: &["GOOGLE_VERTEX_BASE_URL", "GOOGLE_CLOUD_PROJECT"],
        key_variables: &["GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_API_KEY"],
        key_need: KeyNeed::Always,
        paid: true,
        server_tools: GOOGLE_TOOLS,
        quirks: VERTEX,
    },
    Provider {
        key_need: KeyNeed::Sometimes, // a server of one's own has none, the hosted one has
        paid: false,
        ..chat("ollama", "http://localhost:11434/v1", &["OLLAMA_HOST"], &["OLLAMA_API_KEY"], OLLAMA)
    },
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
    chat("cerebras", "https://api.cerebras.ai/v1", &["CEREBRAS_BASE_URL"], &["CEREBRAS_API_KEY"], CEREBRAS),
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

/// The row of the provider with exactly this name; `None` if there is none.
pub fn provider(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Head;
    use crate::model::fixtures::{head, request};

    /// A tool with one restriction, whose value is seen nowhere else in a request.
    fn restricted(kind: ServerToolKind, restriction: Restriction) -> (ServerTool, &'static str) {
        let mut tool = plain(kind);
        let value = match restriction {
            MaxUses | MaxUsesAlone => {
                tool.max_uses = Some(987_654);
                "987654"
            }
            AllowedDomains => {
                tool.allowed_domains = vec!["restricted.example".to_owned()];
                r#"allowed_domains":["restricted.example"]"#
            }
            BlockedDomains => {
                tool.blocked_domains = vec!["restricted.example".to_owned()];
                r#"blocked_domains":["restricted.example"]"#
            }
        };
        (tool, value)
    }

    fn plain(kind: ServerToolKind) -> ServerTool {
        ServerTool { kind, max_uses: None, allowed_domains: vec![], blocked_domains: vec![] }
    }

    fn sent(row: &Provider, server_tools: Vec<ServerTool>) -> Option<String> {
        let head = Head { server_tools, ..head(&format!("{}:m", row.name)) };
        Some(request(row.protocol.protocol()?, &head, &row.quirks, &[]).to_string())
    }

    #[test]
    fn the_tools_of_a_row_are_those_that_its_protocol_sends() {
        for row in PROVIDERS {
            for kind in ServerToolKind::ALL {
                let offered = row.server_tools.iter().any(|tool| tool.kind == kind);
                assert_eq!(sent(row, vec![plain(kind)]) != sent(row, vec![]), offered, "{} {kind:?}", row.name);
            }
        }
    }

    #[test]
    fn a_restriction_of_a_row_is_sent_and_no_other_is() {
        for row in PROVIDERS {
            for offered in row.server_tools {
                for restriction in [MaxUses, AllowedDomains, BlockedDomains] {
                    let (tool, value) = restricted(offered.kind, restriction);
                    let kept = offered.unkept(&tool, 1).next().is_none();
                    let sent = sent(row, vec![tool]).unwrap();
                    assert_eq!(sent.contains(value), kept, "{} {offered:?} {restriction:?}: {sent}", row.name);
                }
            }
        }
    }

    #[test]
    fn uses_that_are_counted_together_are_limited_for_one_tool_only() {
        let openai = provider("openai").unwrap();
        let (tool, value) = restricted(WebSearch, MaxUses);
        let keys = |row: &Provider, together| -> Vec<&str> {
            row.server_tools[0].unkept(&tool, together).map(Restriction::key).collect()
        };
        assert_eq!((keys(openai, 1), keys(openai, 2)), (vec![], vec!["max_uses"]));
        assert!(!sent(openai, vec![tool.clone(), plain(CodeExecution)]).unwrap().contains(value));
        assert_eq!(keys(provider("anthropic").unwrap(), 2), Vec::<&str>::new());
        assert_eq!(keys(provider("google").unwrap(), 1), ["max_uses"]);
    }

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
