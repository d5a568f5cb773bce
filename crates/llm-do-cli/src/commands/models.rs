//! What `models` shows: providers, whether a key is set, and what models cost. And which model is asked where nothing
//! else says it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use llm_do::ModelName;
use llm_do::escape::visible;
use llm_do::names::nearest;
use llm_do::prices::{ModelPrice, Rate, Rates};
use llm_do::providers::{PROVIDERS, ProtocolKind, Provider};
use serde_json::{Value, json};

use crate::args::ModelsArgs;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::terminal::style::width;
use crate::{console, first_model, json};
use llm_do_launch::config::{Config, ProviderConfig};
use llm_do_launch::{providers, usable};

/// Names in lower case → prices, and the providers in the order of our table, the user's last.
struct ModelListing<'a> {
    providers: Vec<ListedProvider<'a>>,
    models: BTreeMap<&'a str, ModelPrice>,
}

struct ListedProvider<'a> {
    name: &'a str,
    protocol: &'static str,
    /// Without what may be a secret in it.
    base_url: Option<String>,
    base_url_variables: &'static [&'static str],
    key: KeyState<'a>,
    origin: ProviderOrigin,
}

/// Where a key is; never the key.
enum KeyState<'a> {
    Unneeded,
    Present {
        variable: &'a str,
    },
    Missing {
        variables: Vec<&'a str>,
    },
    /// Not run for a listing.
    Command,
}

#[derive(Clone, Copy)]
enum ProviderOrigin {
    BuiltIn,
    Config,
}

/// Shows what there is, or writes down a choice.
pub fn run(args: &ModelsArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    match args.used.as_slice() {
        [] => show(args, &environment),
        names => choose(names, &environment),
    }
}

fn show(args: &ModelsArgs, environment: &Environment) -> Result<(), Failure> {
    let config = Config::load(environment.config_file().as_deref())?;
    let listing = ModelListing::of(environment, &config).only(args.filter.as_deref().unwrap_or_default());
    if listing.is_empty() {
        let filter = args.filter.as_deref().unwrap_or_default();
        console::complain(&format!("nothing matches \"{}\"\n", visible(filter)));
    }
    let is_overview = args.filter.is_none() && !args.all;
    console::print(&match (args.json, is_overview) {
        (true, _) => listing.json(),
        (false, true) => listing.overview(),
        (false, false) => listing.text(console::answer_width()),
    })
}

/// Writes down which models are asked where nothing else says it.
fn choose(names: &[String], environment: &Environment) -> Result<(), Failure> {
    let settings = environment.settings()?;
    let form = "write `provider:model`, for example `anthropic:claude-haiku-4-5`";
    let parse =
        |text: &String| ModelName::parse(text).map_err(|error| Failure::usage(format!("`--use`: {error}")).hint(form));
    let names: Vec<ModelName> = names.iter().map(parse).collect::<Result<_, _>>()?;
    let known = PROVIDERS.iter().map(|row| row.name).chain(settings.config.providers.keys().map(String::as_str));
    let known: Vec<&str> = known.filter(|provider| *provider != "scripted").collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&name.provider.as_str())) {
        let near = nearest(&name.provider, known.iter().copied());
        let near = near.map(|provider| format!("`llm-do models --use {provider}:{}`", name.model));
        let fact = format!("unknown provider `{}`", visible(&name.provider));
        return Err(Failure::usage(fact).hint(near.unwrap_or_else(|| "`llm-do models` lists providers".to_owned())));
    }
    let said = first_model::write(&names, &settings)?;
    console::print(&format!("{said}\n"))?;
    let keys = ListedProvider::all(environment, &settings.config);
    for name in &names {
        match keys.iter().find(|provider| provider.name == name.provider).map(|provider| &provider.key) {
            Some(KeyState::Missing { variables }) => {
                let (whose, variables) =
                    (if names.len() == 1 { "its key" } else { &format!("the key of {name}") }, variables.join(" or "));
                console::complain(&format!("note: {} is not set yet: {}\n", visible(whose), visible(&variables)));
            }
            Some(KeyState::Unneeded | KeyState::Present { .. } | KeyState::Command) | None => {}
        }
    }
    Ok(())
}

/// Models that are known and whose provider can be asked, and where its key is.
pub fn askable(environment: &Environment, config: &Config) -> Vec<(String, String)> {
    let providers = ListedProvider::all(environment, config);
    let known = config.prices.known();
    let with_key = |model: &str| {
        let provider = providers.iter().find(|it| model.split_once(':').is_some_and(|(name, _)| name == it.name))?;
        match &provider.key {
            KeyState::Present { variable } => Some(format!("key in {variable}")),
            KeyState::Command => Some("key by a command".to_owned()),
            KeyState::Unneeded => Some("no key needed".to_owned()),
            KeyState::Missing { .. } => None,
        }
    };
    known.keys().filter_map(|model| Some(((*model).to_owned(), with_key(model)?))).collect()
}

/// The keys that are set, each with where it is.
pub fn keys_set(environment: &Environment, config: &Config) -> Vec<String> {
    let key = |provider: &ListedProvider<'_>| match &provider.key {
        KeyState::Present { variable } => Some(format!("{} ({variable})", provider.name)),
        KeyState::Command => Some(format!("{} (by a command, which was not run)", provider.name)),
        KeyState::Unneeded | KeyState::Missing { .. } => None,
    };
    ListedProvider::all(environment, config).iter().filter_map(key).collect()
}

/// Where the providers are whose keys are set.
pub fn addresses(environment: &Environment, config: &Config) -> Vec<(String, String)> {
    let all = ListedProvider::all(environment, config).into_iter();
    let askable = all.filter(|provider| matches!(provider.key, KeyState::Present { .. } | KeyState::Command));
    askable.filter_map(|provider| Some((provider.name.to_owned(), provider.base_url?))).collect()
}

/// So many lines has a screen that shows an overview, with room for a prompt.
const SCREEN: usize = 23;

impl<'a> ModelListing<'a> {
    /// Keys, then models whose key is set, on one screen.
    pub fn overview(&self) -> String {
        let (missing, present): (Vec<&ListedProvider<'_>>, Vec<_>) =
            self.providers.iter().partition(|provider| matches!(provider.key, KeyState::Missing { .. }));
        let present: Vec<_> = present.into_iter().filter(|provider| provider.protocol != "script").collect();
        let mut text = String::new();
        let cells = |provider: &&ListedProvider<'_>| {
            let [name, _, key, _] = provider.cells();
            [name, format!("key {key}")]
        };
        // Most of the screen is for models.
        let (shown, more) = present.split_at(present.len().min(SCREEN / 3));
        text.push_str(&aligned(&shown.iter().map(cells).collect::<Vec<_>>(), &[]));
        if !more.is_empty() {
            let _ = writeln!(text, "… {} more: llm-do models --all", more.len());
        }
        let names: Vec<&str> = missing.iter().map(|provider| provider.name).collect();
        if !names.is_empty() {
            text.push_str(&wrapped(&format!(
                "no key: {}; llm-do models --all names their variables",
                names.join(", ")
            )));
        }
        let with_models: Vec<(&&ListedProvider<'_>, Vec<&str>)> = present
            .iter()
            .map(|provider| (provider, self.models_of(provider.name)))
            .filter(|(_, models)| !models.is_empty())
            .collect();
        if with_models.is_empty() {
            text.push_str("\nno model with a known price has a key; llm-do models --all lists all\n");
            return text;
        }
        let room = SCREEN.saturating_sub(text.lines().count() + 2);
        text.push('\n');
        text.push_str(&self.prices_on(room, &with_models));
        text
    }

    /// So many lines of prices, of each provider some.
    fn prices_on(&self, room: usize, providers: &[(&&ListedProvider<'_>, Vec<&str>)]) -> String {
        let head = ["USD per million tokens", "input", "output", "cache read", "cache write"];
        let mut rows = vec![head.map(str::to_owned)];
        let shown = providers.len().min(room / 2);
        for (provider, models) in &providers[..shown] {
            let each = (room / shown).saturating_sub(1).max(1);
            let each = if models.len() == each + 1 { models.len() } else { each };
            let row = |name: &&str| self.models.get(name).map(|price| price_cells(&visible(name), &price.rates));
            rows.extend(models.iter().take(each).filter_map(row));
            if models.len() > each {
                let more = format!("… {} more: llm-do models {}:", models.len() - each, provider.name);
                rows.push([more, String::new(), String::new(), String::new(), String::new()]);
            }
        }
        let mut text = aligned(&rows, &[1, 2, 3, 4]);
        if shown < providers.len() {
            let _ = writeln!(text, "… {} more providers: llm-do models --all", providers.len() - shown);
        }
        text
    }

    /// The models of a provider, the one to begin with first.
    fn models_of(&self, provider: &str) -> Vec<&'a str> {
        let start = format!("{provider}:");
        let mut models: Vec<&'a str> = self.models.keys().copied().filter(|model| model.starts_with(&start)).collect();
        let first = usable::to_begin_with(provider);
        models.sort_by_key(|model| Some(*model) != first.as_deref());
        models
    }

    pub fn of(environment: &Environment, config: &'a Config) -> Self {
        Self { providers: ListedProvider::all(environment, config), models: config.prices.known() }
    }

    /// What has the filter in its name, and the providers of such models.
    pub fn only(mut self, filter: &str) -> Self {
        let filter = filter.to_lowercase();
        self.models.retain(|name, _| name.to_lowercase().contains(&filter));
        let models = &self.models;
        self.providers.retain(|provider| {
            // With the colon, so that `anthropic:` means that provider and no model of others.
            let start = format!("{}:", provider.name.to_lowercase());
            start.contains(&filter) || models.keys().any(|model| model.starts_with(&start))
        });
        self
    }

    pub fn is_empty(&self) -> bool {
        self.providers.is_empty() && self.models.is_empty()
    }

    /// Everything, in tables. Where a terminal is too narrow for one, its less important columns are left out, which is said.
    pub fn text(&self, columns: Option<usize>) -> String {
        let mut providers = Vec::new();
        if !self.providers.is_empty() {
            providers.push(["provider", "protocol", "key", "address"].map(str::to_owned));
        }
        providers.extend(self.providers.iter().map(ListedProvider::cells));
        let mut models = Vec::new();
        if !self.models.is_empty() {
            let head = ["USD per million tokens", "input", "output", "cache read", "cache write"];
            models.push(head.map(str::to_owned));
        }
        for (name, price) in &self.models {
            models.push(price_cells(&visible(name), &price.rates));
            let tiers = price.tiers.iter();
            models.extend(tiers.map(|tier| price_cells(&format!("  above {} tokens", tier.above), &tier.rates)));
        }
        let gap = if providers.is_empty() || models.is_empty() { "" } else { "\n" };
        let fits = |table: &str| columns.is_none_or(|columns| table.lines().all(|line| width(line) <= columns));
        let mut places = aligned(&providers, &[]);
        if !fits(&places) {
            let [name, key, address] = [0, 2, 3];
            places = aligned(&only(&providers, [name, key, address]), &[]);
        }
        let mut prices = aligned(&models, &[1, 2, 3, 4]);
        if !fits(&prices) {
            prices = aligned(&only(&models, [0, 1, 2]), &[1, 2]);
            prices.push_str("prices of cached tokens: --json, or a wider terminal\n");
        }
        format!("{places}{gap}{prices}")
    }

    pub fn json(&self) -> String {
        let providers: Vec<Value> = self.providers.iter().map(ListedProvider::json).collect();
        let models: Vec<Value> = self.models.iter().map(|(name, price)| model_json(name, price)).collect();
        json::lines(&json!({"providers": providers, "models": models}))
    }
}

fn built_in(row: &'static Provider, environment: &Environment) -> ListedProvider<'static> {
    let present = row.key_variables.iter().find(|variable| environment.get(variable).is_some());
    ListedProvider {
        name: row.name,
        protocol: protocol_word(row.protocol),
        base_url: providers::base_url(row, environment).map(|address| without_secrets(&address)),
        base_url_variables: row.base_url_variables,
        key: match present {
            Some(variable) => KeyState::Present { variable },
            None if !row.needs_key() => KeyState::Unneeded,
            None => KeyState::Missing { variables: row.key_variables.to_vec() },
        },
        origin: ProviderOrigin::BuiltIn,
    }
}

fn configured<'a>(name: &'a str, custom: &'a ProviderConfig, environment: &Environment) -> ListedProvider<'a> {
    ListedProvider {
        name,
        protocol: protocol_word(custom.kind.protocol()),
        base_url: Some(without_secrets(&custom.base_url)),
        base_url_variables: &[],
        key: match (custom.api_key_env.as_deref(), &custom.api_key_cmd) {
            (Some(variable), _) if environment.get(variable).is_some() => KeyState::Present { variable },
            (Some(variable), _) => KeyState::Missing { variables: vec![variable] },
            (None, Some(_)) => KeyState::Command,
            (None, None) => KeyState::Unneeded,
        },
        origin: ProviderOrigin::Config,
    }
}

/// The word that `kind` in config.toml has for it.
fn protocol_word(protocol: ProtocolKind) -> &'static str {
    match protocol {
        ProtocolKind::Anthropic => "anthropic",
        ProtocolKind::OpenAiResponses => "openai",
        ProtocolKind::OpenAiChat => "openai-chat",
        ProtocolKind::Gemini => "google",
        ProtocolKind::Scripted => "script",
    }
}

/// An address may carry a password or a key: before the host, or as a query.
fn without_secrets(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let separator = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{separator}{host}{path}")
}

impl<'a> ListedProvider<'a> {
    /// All that there are, the user's last.
    fn all(environment: &Environment, config: &'a Config) -> Vec<Self> {
        let built_in = PROVIDERS.iter().map(|row| built_in(row, environment));
        let configured = config.providers.iter().map(|(name, custom)| configured(name, custom, environment));
        built_in.chain(configured).collect()
    }

    fn cells(&self) -> [String; 4] {
        let key = match &self.key {
            KeyState::Unneeded => "not needed".to_owned(),
            KeyState::Present { variable } => format!("in {}", visible(variable)),
            KeyState::Missing { variables } => format!("missing: set {}", visible(&variables.join(" or "))),
            KeyState::Command => "by a command".to_owned(),
        };
        let address = match &self.base_url {
            Some(address) => visible(address).into_owned(),
            None if self.base_url_variables.is_empty() => "none".to_owned(),
            None => format!("missing: set {}", self.base_url_variables.join(" or ")),
        };
        [visible(self.name).into_owned(), self.protocol.to_owned(), key, address]
    }

    fn json(&self) -> Value {
        let (state, variables) = match &self.key {
            KeyState::Unneeded => ("unneeded", Vec::new()),
            KeyState::Present { variable } => ("present", vec![*variable]),
            KeyState::Missing { variables } => ("missing", variables.clone()),
            KeyState::Command => ("command", Vec::new()),
        };
        let origin = match self.origin {
            ProviderOrigin::BuiltIn => "built_in",
            ProviderOrigin::Config => "config",
        };
        json!({
            "name": self.name,
            "protocol": self.protocol,
            "base_url": self.base_url,
            "key": {"state": state, "variables": variables},
            "origin": origin,
        })
    }
}

fn price_cells(name: &str, rates: &Rates) -> [String; 5] {
    let cell = |rate: Rate| rate.to_string();
    [name.to_owned(), cell(rates.input), cell(rates.output), cell(rates.cache_read), cell(rates.cache_write)]
}

fn model_json(name: &str, price: &ModelPrice) -> Value {
    let tiers = price.tiers.iter().map(|tier| {
        let mut rates = rates_json(&tier.rates);
        rates["above_tokens"] = tier.above.into();
        rates
    });
    let tiers: Vec<Value> = tiers.collect();
    let mut model = rates_json(&price.rates);
    model["name"] = name.into();
    model["tiers"] = tiers.into();
    model
}

fn rates_json(rates: &Rates) -> Value {
    json!({
        "input": rates.input.dollars(),
        "output": rates.output.dollars(),
        "cache_read": rates.cache_read.dollars(),
        "cache_write": rates.cache_write.dollars(),
    })
}

/// In lines of 80 columns at most, the later ones indented.
fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 80;
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push_str(&line);
            lines.push('\n');
            "  ".clone_into(&mut line);
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    format!("{lines}{line}\n")
}

/// Only these columns.
fn only<const N: usize, const M: usize>(rows: &[[String; N]], columns: [usize; M]) -> Vec<[String; M]> {
    rows.iter().map(|row| columns.map(|column| row[column].clone())).collect()
}

/// Columns as wide as their widest cell; numbers stand at the right.
fn aligned<const N: usize>(rows: &[[String; N]], right: &[usize]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cell = |column: usize| {
            let (text, width) = (&row[column], widths[column]);
            if right.contains(&column) { format!("{text:>width$}") } else { format!("{text:<width$}") }
        };
        let cells: [String; N] = std::array::from_fn(cell);
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_secret() {
        let cases = [
            ("http://localhost:8000/v1", "http://localhost:8000/v1"),
            ("https://user:pa@ss@host/v1?key=s3cret", "https://host/v1"),
            ("https://host?key=s3cret", "https://host"),
            ("user:s3cret@host/v1", "host/v1"),
            ("https://host/a@b", "https://host/a@b"),
            ("", ""),
        ];
        for (address, shown) in cases {
            assert_eq!(without_secrets(address), shown);
        }
    }

    #[test]
    fn a_narrow_terminal_gets_fewer_columns() {
        let (environment, config) = (Environment::default(), Config::default());
        let listing = ModelListing::of(&environment, &config).only("haiku");
        let [wide, narrow] = [listing.text(None), listing.text(Some(80))];
        assert!(wide.contains("cache write") && wide.contains("openai-chat"), "{wide}");
        assert!(narrow.lines().all(|line| width(line) <= 80), "{narrow}");
        assert!(narrow.ends_with("\nprices of cached tokens: --json, or a wider terminal\n"), "{narrow}");
    }

    #[test]
    fn columns_are_aligned_and_lines_end_where_they_end() {
        let rows = [["a", "1.25", "x"], ["bcd", "0.5", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows, &[1]), "a    1.25  x\nbcd   0.5\n");
    }

    #[test]
    fn a_filter_keeps_models_and_whose_they_are() {
        let (environment, config) = (Environment::default(), Config::default());
        let listing = ModelListing::of(&environment, &config).only("Claude-Haiku-4-5");
        let names: Vec<&str> = listing.providers.iter().map(|provider| provider.name).collect();
        assert_eq!(names, ["anthropic"]);
        assert_eq!(listing.models.keys().copied().collect::<Vec<_>>(), ["anthropic:claude-haiku-4-5"]);
        assert!(ModelListing::of(&environment, &config).only("no such thing").is_empty());
        let alone = ModelListing::of(&environment, &config).only("openai:");
        assert_eq!(alone.providers.len(), 1);
        assert!(alone.models.keys().all(|model| model.starts_with("openai:")) && !alone.models.is_empty());
        let whole = ModelListing::of(&environment, &config).only("");
        assert_eq!(whole.providers.len(), PROVIDERS.len());
    }
}
