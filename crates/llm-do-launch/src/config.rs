//! The user's `config.toml`. Unknown keys are errors; a file inside a project is never read.

use std::collections::BTreeMap;
use std::path::Path;

use llm_do::prices::{ModelPrice, Prices, Rate, Rates};
use llm_do::providers::{CustomProvider, ModelNameError, ProtocolKind, Quirks, VERTEX, provider};
use llm_do::records::Durability;
use llm_do::schema::settings_mistakes;
use llm_do::store::retention::RetentionRule;
use llm_do::{ModelName, Secret, files};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::budgets::BudgetConfig;
use crate::error::LaunchError;
use crate::fencing::FenceChoice;
use crate::notify::NotifyConfig;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// For editors.
    #[serde(rename = "$schema")]
    _schema: Option<String>,
    /// The last resort of an agent that names no model.
    #[serde(default)]
    model: ModelList,
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderConfig>,
    /// What is known of prices, the user's own first.
    #[serde(default, deserialize_with = "prices")]
    pub prices: Prices,
    /// What runs may spend together.
    #[serde(default, rename = "budget")]
    pub budgets: Vec<BudgetConfig>,
    #[serde(default)]
    pub http: HttpConfig,
    #[serde(default)]
    pub runs: RunsConfig,
    #[serde(default)]
    pub cache: CacheConfig,
    /// Whoever is told of questions that wait.
    pub notify: Option<NotifyConfig>,
    #[serde(default)]
    pub fence: FenceSettings,
    #[serde(default)]
    pub shell: ShellSettings,
    #[serde(default)]
    pub terminal: TerminalConfig,
    #[serde(default)]
    pub mcp: McpSettings,
}

/// What authorization servers of MCP servers are told of this program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpSettings {
    /// The address of metadata about it, which some of them take as its name.
    pub client_metadata_url: Option<String>,
}

/// How answers and prompts look at a terminal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalConfig {
    /// What becomes of the marks in answers.
    #[serde(default)]
    pub markdown: MarkdownConfig,
    /// How lines are edited at a prompt; as `~/.inputrc` says, if nothing is given.
    pub keys: Option<KeysConfig>,
    /// Whether what models think is shown.
    #[serde(default)]
    pub thinking: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum KeysConfig {
    Emacs,
    Vi,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum MarkdownConfig {
    /// They become style.
    #[default]
    Styled,
    /// The source is shown.
    Plain,
}

/// One model, or several that are asked in turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum ModelList {
    One(String),
    Several(Vec<String>),
}

impl Default for ModelList {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

/// What keeps commands in.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FenceSettings {
    /// With which fence a rule that allows is enough.
    pub accept: Option<FenceChoice>,
}

/// How commands of shells are found.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellSettings {
    /// Where programs are found by name, besides the directories of the system. `~` is the user's home.
    #[serde(default)]
    pub directories: Vec<String>,
}

/// How what is kept of runs is kept.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunsConfig {
    /// Whether runs are kept, unless a run says otherwise.
    keep: Option<bool>,
    /// Whether each step of a kept run is on the disk before the next one.
    durable: Option<bool>,
    /// So many days after its end a run is removed.
    days: Option<u64>,
    /// Finished runs are removed, the oldest first, until all take no more than this.
    megabytes: Option<u64>,
    /// A file with the key that machines share, 64 hex digits, instead of the state's own.
    pub key_file: Option<std::path::PathBuf>,
}

impl RunsConfig {
    /// Whether runs are kept, unless a run says otherwise.
    pub fn keep(&self) -> bool {
        self.keep.unwrap_or(true)
    }

    /// When a line of a kept run counts, unless a run says otherwise.
    pub fn durability(&self) -> Durability {
        if self.durable == Some(true) { Durability::Synced } else { Durability::Written }
    }

    /// How much is kept.
    pub fn retention(&self) -> RetentionRule {
        RetentionRule { days: self.days.unwrap_or(90), megabytes: self.megabytes.unwrap_or(2048) }
    }
}

/// How replies are kept that count again.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// Those that were not used for longest go, until all take no more than this.
    megabytes: Option<u64>,
}

impl CacheConfig {
    /// How many bytes they may take.
    pub fn most(&self) -> u64 {
        self.megabytes.unwrap_or(256).saturating_mul(1 << 20)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    pub kind: ProviderKind,
    pub base_url: String,
    pub api_key_env: Option<String>,
    /// An argument vector without a shell, run when the key is first needed.
    pub api_key_cmd: Option<Vec<String>>,
    /// The key itself, which no file holds: a program that opens a scope may say it.
    #[serde(skip)]
    pub api_key: Option<Secret>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub enum ProviderKind {
    #[serde(rename = "anthropic")]
    Anthropic,
    #[serde(rename = "openai")]
    OpenAi,
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    #[serde(rename = "google")]
    Google,
    #[serde(rename = "google-vertex")]
    GoogleVertex,
}

impl ProviderKind {
    pub fn protocol(self) -> ProtocolKind {
        match self {
            Self::Anthropic => ProtocolKind::Anthropic,
            Self::OpenAi => ProtocolKind::OpenAiResponses,
            Self::OpenAiChat => ProtocolKind::OpenAiChat,
            Self::Google | Self::GoogleVertex => ProtocolKind::Gemini,
        }
    }

    pub fn quirks(self) -> Quirks {
        match self {
            Self::Anthropic | Self::OpenAi | Self::OpenAiChat | Self::Google => Quirks::COMPATIBLE,
            Self::GoogleVertex => VERTEX,
        }
    }
}

/// US dollars per million tokens. A cache without a price of its own costs what input costs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceConfig {
    #[serde(deserialize_with = "rate")]
    input: Rate,
    #[serde(deserialize_with = "rate")]
    output: Rate,
    #[serde(default, deserialize_with = "optional_rate")]
    cache_read: Option<Rate>,
    #[serde(default, deserialize_with = "optional_rate")]
    cache_write: Option<Rate>,
}

impl From<PriceConfig> for ModelPrice {
    fn from(config: PriceConfig) -> Self {
        let PriceConfig { input, output, cache_read, cache_write } = config;
        let cache_read = cache_read.unwrap_or(input);
        let cache_write = cache_write.unwrap_or(input);
        Self { rates: Rates { input, output, cache_read, cache_write }, tiers: Vec::new() }
    }
}

fn prices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Prices, D::Error> {
    let configured = BTreeMap::<String, PriceConfig>::deserialize(deserializer)?;
    let named = |(name, price): (String, PriceConfig)| Ok((ModelName::parse(&name)?, price.into()));
    let named = configured.into_iter().map(named).collect::<Result<Vec<_>, ModelNameError>>();
    named.map(Prices::new).map_err(D::Error::custom)
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
    let dollars = f64::deserialize(deserializer)?;
    let wrong = || format!("{dollars} is not a price: from 0 to {} dollars per million tokens", Rate::HIGHEST);
    Rate::from_dollars(dollars).ok_or_else(|| D::Error::custom(wrong()))
}

fn optional_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rate>, D::Error> {
    rate(deserializer).map(Some)
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    pub retries: Option<u32>,
    pub first_byte_seconds: Option<f64>,
    pub slow_first_byte_seconds: Option<f64>,
    pub content_seconds: Option<f64>,
    pub idle_seconds: Option<f64>,
    pub proxy: Option<String>,
    pub ca_file: Option<std::path::PathBuf>,
    /// Whether an answer is asked for again of which some was shown already, and cannot be taken back. A run says it.
    #[serde(skip)]
    pub never_after_output: bool,
}

/// No configuration is larger.
const LARGEST: u64 = 16 * 1024 * 1024;

impl Config {
    /// A file that is not there is an empty one.
    pub fn load(path: Option<&Path>) -> Result<Self, LaunchError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let read = files::read_regular(path, LARGEST).and_then(|bytes| std::io::read_to_string(bytes.as_slice()));
        match read {
            Ok(text) => Self::parse(&text).map_err(|error| match settings_mistakes(path.to_owned(), &text) {
                Some(report) => LaunchError::Project(report),
                None => LaunchError::usage(format!("{}: {error}", path.display())),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(LaunchError::usage(format!("{} cannot be read: {error}", path.display()))),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        for (name, custom) in &config.providers {
            if provider(name).is_some() {
                return Err(format!("`[providers.{name}]` has the name of a built-in provider; give it another one"));
            }
            if custom.api_key_env.is_some() && custom.api_key_cmd.is_some() {
                return Err(format!("`[providers.{name}]` has both `api_key_env` and `api_key_cmd`; keep one of them"));
            }
            if custom.api_key_cmd.as_ref().is_some_and(Vec::is_empty) {
                return Err(format!("`[providers.{name}]`: `api_key_cmd` is empty"));
            }
        }
        BudgetConfig::check(&config.budgets)?;
        config.notify.as_ref().map_or(Ok(()), NotifyConfig::check)?;
        Ok(config)
    }

    /// The models of agents that name none, in the order in which they are asked.
    pub fn model_names(&self) -> Result<Vec<ModelName>, LaunchError> {
        let models = match &self.model {
            ModelList::One(model) => std::slice::from_ref(model),
            ModelList::Several(models) => models,
        };
        let parse = |text: &String| {
            ModelName::parse(text).map_err(|error| LaunchError::usage(format!("`model` in config.toml: {error}")))
        };
        models.iter().map(parse).collect()
    }

    pub fn custom_providers(&self) -> Vec<CustomProvider> {
        let custom = |(name, config): (&String, &ProviderConfig)| CustomProvider {
            name: name.clone(),
            protocol: config.kind.protocol(),
            key_variable: config.api_key_env.clone(),
        };
        self.providers.iter().map(custom).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
"$schema" = "config.schema.json"
model = "anthropic:claude-haiku-4-5"
[providers.acme]
kind = "openai-chat"
base_url = "http://localhost:8000/v1"
api_key_env = "ACME_KEY"
[prices."acme:rocket-1"]
input = 1
output = 4.5
cache_read = 0.25
[http]
retries = 2
first_byte_seconds = 5
slow_first_byte_seconds = 50
content_seconds = 50
idle_seconds = 5
proxy = "http://localhost:3128"
ca_file = "/etc/company.pem"
[runs]
keep = false
durable = true
days = 30
megabytes = 512
key_file = "/etc/llm-do.key"
[notify]
url = "https://hooks.example/llm-do"
headers = { authorization = { from_env = "HOOK_TOKEN" } }
content = false
[fence]
accept = "thin"
[shell]
directories = ["~/.cargo/bin"]
"#;

    #[test]
    fn every_key_is_read() {
        let config = Config::parse(FULL).unwrap();
        assert_eq!(config.custom_providers()[0].key_variable.as_deref(), Some("ACME_KEY"));
        assert_eq!(config.prices.known()["acme:rocket-1"].to_string(), "1 4.5 0.25 1");
        assert_eq!(config.http.retries, Some(2));
        assert_eq!(config.runs.key_file, Some("/etc/llm-do.key".into()));
        assert!(!config.runs.keep() && Config::default().runs.keep());
        assert_eq!(config.runs.durability(), Durability::Synced);
        assert_eq!(config.runs.retention(), RetentionRule { days: 30, megabytes: 512 });
        assert_eq!(Config::default().runs.retention(), RetentionRule { days: 90, megabytes: 2048 });
        assert_eq!(config.fence.accept, Some(FenceChoice::Thin));
        assert_eq!(config.shell.directories, ["~/.cargo/bin"]);
    }

    #[test]
    fn what_is_read_is_what_the_table_has() {
        assert_eq!(settings_mistakes("config.toml".into(), FULL).map(|report| report.to_string()), None);
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("modle = 'a:b'", "unknown field `modle`"),
            ("[providers.acme]\nkind = 'open'\nbase_url = ''", "unknown variant `open`"),
            ("[providers.acme]\nkind = 'openai'", "missing field `base_url`"),
            ("[providers.openai]\nkind = 'openai'\nbase_url = 'x'", "name of a built-in provider"),
            ("[providers.a]\nkind='google'\nbase_url='x'\napi_key_env='A'\napi_key_cmd=['b']", "keep one of them"),
            ("[http]\nretry = 1", "unknown field `retry`"),
            ("[[budget]]\nname = 'a b'\nusd = 1\nper = 'day'", "`name` has letters"),
            ("[notify]\ncommand = []", "`command` is empty"),
            ("[prices.rocket]\ninput = 1\noutput = 1", "`rocket` names no provider"),
            ("[prices.'a:b']\ninput = 1", "missing field `output`"),
            ("[prices.'a:b']\ninput = 1\noutput = -1", "-1 is not a price"),
            ("[prices.'a:b']\ninput = 1\noutput = nan", "NaN is not a price"),
            ("[prices.'a:b']\ninput = 1\noutput = 1\ncache = 1", "unknown field `cache`"),
        ];
        for (text, message) in cases {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
