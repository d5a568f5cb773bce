//! From names of providers to connections: addresses and keys out of the environment and the configuration.

use llm_do::providers::{
    Exchange, HttpClient, HttpSettings, KeyForm, LaterKey, OpenAiChat, PROVIDERS, Provider, ProxySettings, Quirks,
    Retries, provider,
};
use llm_do::python::PythonEndpoint;
use llm_do::remedy::Remedy;
use llm_do::{Endpoint, Key, Model, Models, Program, Secret, WorkingDirectory, files};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, HttpConfig, ProviderConfig};
use crate::error::LaunchError;
use crate::key_command::KeyCommand;
use crate::rehearsal::{Rehearsal, RehearsedRequest};
use crate::settings::{Settings, Variables};

/// Who answers for each provider that the program's agents use.
pub fn connect(
    program: &Program,
    environment: &Variables,
    config: &Config,
    directory: &WorkingDirectory,
) -> Result<Models, LaunchError> {
    let used = used(program);
    let mut models = Models::new(config.prices.clone());
    if used.is_empty() {
        return Ok(models);
    }
    let http = HttpClient::new(http_settings(environment, &config.http)?)
        .map_err(|error| LaunchError::usage(error.to_string()))?;
    let retries = retries(config);
    let mut without_key = Vec::new();
    for name in used {
        let endpoint = endpoint(name, program, environment, config, directory)?;
        if matches!(endpoint.key, Key::Missing { .. }) {
            without_key.push(name.to_owned());
        }
        models.insert(name, Arc::new(Exchange { endpoint: Arc::new(endpoint), http: http.clone(), retries }));
    }
    Ok(models.without_keys_of(without_key))
}

/// Connects providers that are first needed when a conversation goes on with another model.
pub fn connector(
    settings: Arc<Settings>,
    directory: WorkingDirectory,
) -> impl Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync {
    move |name| {
        let Settings { variables: environment, config, .. } = &*settings;
        let endpoint = match (provider(name), config.providers.get(name)) {
            (Some(row), _) => built_in(row, environment),
            (None, Some(custom)) => configured(name, custom, environment, &directory),
            (None, None) => Err(LaunchError::usage("there is no such provider")),
        };
        let endpoint = endpoint.map_err(|error| error.fact())?;
        if let Key::Missing { variables } = &endpoint.key {
            return Err(format!("its key is missing ({})", variables.join(" or ")));
        }
        let settings = http_settings(environment, &config.http).map_err(|error| error.fact())?;
        let http = HttpClient::new(settings).map_err(|error| error.to_string())?;
        Ok(Arc::new(Exchange { endpoint: Arc::new(endpoint), http, retries: retries(config) }))
    }
}

/// Providers that can be asked now: those whose key is at hand or that need none, with how it is known.
pub fn usable(environment: &Variables, config: &Config) -> Vec<String> {
    let has_key = |names: &[&str]| names.iter().any(|name| environment.get(name).is_some());
    let rows = PROVIDERS.iter().filter(|row| row.protocol.protocol().is_some() && has_key(row.key_variables));
    let own = config
        .providers
        .iter()
        .filter(|(_, own)| own.api_key_env.as_ref().is_none_or(|variable| environment.get(variable).is_some()));
    rows.map(|row| row.name.to_owned()).chain(own.map(|(name, _)| name.clone())).collect()
}

fn retries(config: &Config) -> Retries {
    let attempts = config.http.retries.unwrap_or(Retries::STANDARD.attempts);
    Retries { attempts, after_output: !config.http.never_after_output, ..Retries::STANDARD }
}

/// No provider answers, and what they would be asked is kept.
pub fn rehearse(
    program: &Program,
    environment: &Variables,
    config: &Config,
    directory: &WorkingDirectory,
    rehearsed: &RehearsedRequest,
) -> Result<Models, LaunchError> {
    let mut models = Models::new(config.prices.clone());
    for name in used(program) {
        let endpoint = match name {
            "scripted" => None,
            name => Some(Arc::new(endpoint(name, program, environment, config, directory)?)),
        };
        models.insert(name, Arc::new(Rehearsal { rehearsed: rehearsed.clone(), endpoint }));
    }
    Ok(models)
}

/// No provider is ever asked.
pub fn unasked(program: &Program, config: &Config) -> Models {
    let mut models = Models::new(config.prices.clone());
    for name in used(program) {
        let rehearsed = RehearsedRequest::default();
        models.insert(name, Arc::new(Rehearsal { rehearsed, endpoint: None }));
    }
    models
}

/// Providers that must answer for a model of the program.
pub fn used(program: &Program) -> BTreeSet<&str> {
    program.asked_models().map(|model| model.provider.as_str()).collect()
}

fn endpoint(
    name: &str,
    program: &Program,
    environment: &Variables,
    config: &Config,
    directory: &WorkingDirectory,
) -> Result<Endpoint, LaunchError> {
    let of_python = || program.registry.python.as_ref().and_then(|python| python.endpoint(name));
    match (provider(name), config.providers.get(name)) {
        (Some(row), _) => built_in(row, environment),
        (None, Some(custom)) => configured(name, custom, environment, directory),
        (None, None) => match of_python() {
            Some(PythonEndpoint { base_url, api_key }) => Ok(registered(name, base_url, api_key)),
            None => Err(LaunchError::usage(format!("unknown provider `{name}`"))),
        },
    }
}

/// Where a provider is asked.
pub fn address(
    name: &str,
    program: &Program,
    settings: &Settings,
    directory: &WorkingDirectory,
) -> Result<String, LaunchError> {
    // A script is asked nowhere.
    if name == "scripted" {
        return Ok(String::new());
    }
    endpoint(name, program, &settings.variables, &settings.config, directory).map(|endpoint| endpoint.base_url)
}

/// By a Python file of the project.
fn registered(name: &str, base_url: String, api_key: Option<String>) -> Endpoint {
    let key = api_key.map_or(Key::Unneeded, |key| Key::Secret(Secret::new(key.trim())));
    Endpoint { provider: name.to_owned(), protocol: &OpenAiChat, quirks: Quirks::COMPATIBLE, base_url, key }
}

fn built_in(row: &Provider, environment: &Variables) -> Result<Endpoint, LaunchError> {
    let protocol = row
        .protocol
        .protocol()
        .ok_or_else(|| LaunchError::usage(format!("the provider `{}` cannot be asked yet", row.name)))?;
    let base_url = base_url(row, environment).ok_or_else(|| {
        LaunchError::provider(format!("no address for `{}`", row.name))
            .hint(Remedy::SetAddress { variables: owned(row.base_url_variables) })
    })?;
    let set = row.key_variables.iter().find_map(|variable| Some((*variable, environment.get(variable)?)));
    let mut quirks = row.quirks;
    let key = match set {
        Some((variable, key)) => {
            if variable == GOOGLE_KEY {
                quirks.key_form = KeyForm::Own;
            }
            Key::OfVariable { variable: variable.to_owned(), secret: Secret::new(key.trim()) }
        }
        None if !row.needs_key() => Key::Unneeded,
        None => Key::Missing { variables: owned(row.key_variables) },
    };
    Ok(Endpoint { provider: row.name.to_owned(), protocol, quirks, base_url, key })
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Where a provider is asked: as the environment says, else where it usually is.
pub fn base_url(row: &Provider, environment: &Variables) -> Option<String> {
    match row.base_url_variables.iter().find_map(|variable| Some((*variable, environment.get(variable)?))) {
        Some((_, address)) if row.name == "ollama" => Some(ollama_address(address)),
        Some(("GOOGLE_CLOUD_PROJECT", project)) => {
            Some(vertex_address(project, environment.get("GOOGLE_CLOUD_LOCATION").unwrap_or("global")))
        }
        Some((_, address)) => Some(address.to_owned()),
        // A token says nothing of the project that pays.
        None if row.name == "google-vertex" && !has_only_google_key(row, environment) => None,
        None => Some(row.base_url.to_owned()).filter(|address| !address.is_empty()),
    }
}

/// A key of Google that is no token: of Gemini, or of Vertex where no project is named.
const GOOGLE_KEY: &str = "GOOGLE_API_KEY";

fn has_only_google_key(row: &Provider, environment: &Variables) -> bool {
    let mut set = row.key_variables.iter().filter(|variable| environment.get(variable).is_some());
    set.next() == Some(&GOOGLE_KEY)
}

/// Where the models of Google are for a project of Google Cloud.
fn vertex_address(project: &str, location: &str) -> String {
    let region = if location == "global" { String::new() } else { format!("{location}-") };
    format!("https://{region}aiplatform.googleapis.com/v1/projects/{project}/locations/{location}/publishers/google")
}

/// `OLLAMA_HOST` is often a bare host and port, as its own server takes it.
fn ollama_address(text: &str) -> String {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let (scheme, rest) = with_scheme.split_once("://").unwrap_or(("http", &with_scheme));
    let (authority, path) =
        rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path.trim_end_matches('/')));
    let authority = authority.replace("0.0.0.0", "127.0.0.1");
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if has_port || scheme == "https" { "" } else { ":11434" };
    let path = if path.is_empty() { "v1" } else { path };
    format!("{scheme}://{authority}{port}/{path}")
}

fn configured(
    name: &str,
    custom: &ProviderConfig,
    environment: &Variables,
    directory: &WorkingDirectory,
) -> Result<Endpoint, LaunchError> {
    let protocol = custom
        .kind
        .protocol()
        .protocol()
        .ok_or_else(|| LaunchError::usage(format!("the kind of `[providers.{name}]` cannot be spoken yet")))?;
    let key = match (&custom.api_key_env, &custom.api_key_cmd) {
        (None, None) => custom.api_key.clone().map_or(Key::Unneeded, Key::Secret),
        (Some(variable), _) => match environment.get(variable) {
            Some(key) => Key::OfVariable { variable: variable.clone(), secret: Secret::new(key.trim()) },
            None => Key::Missing { variables: vec![variable.clone()] },
        },
        (None, Some(command)) => {
            let redactor = environment.redactor.clone();
            Key::Later(LaterKey::new(KeyCommand::new(name, command, directory.clone(), redactor)))
        }
    };
    let quirks = custom.kind.quirks();
    Ok(Endpoint { provider: name.to_owned(), protocol, quirks, base_url: custom.base_url.clone(), key })
}

/// How any host is reached, as the configuration and the environment say.
pub fn http_settings(environment: &Variables, config: &HttpConfig) -> Result<HttpSettings, LaunchError> {
    let seconds = |value: Option<f64>, default: Duration, key: &str| match value {
        None => Ok(default),
        Some(value) => Duration::try_from_secs_f64(value)
            .ok()
            .filter(|duration| !duration.is_zero())
            .ok_or_else(|| LaunchError::usage(format!("`[http] {key}` in config.toml is not a time"))),
    };
    let standard = HttpSettings::STANDARD;
    Ok(HttpSettings {
        first_byte_timeout: seconds(config.first_byte_seconds, standard.first_byte_timeout, "first_byte_seconds")?,
        slow_first_byte_timeout: seconds(
            config.slow_first_byte_seconds,
            standard.slow_first_byte_timeout,
            "slow_first_byte_seconds",
        )?,
        content_timeout: seconds(config.content_seconds, standard.content_timeout, "content_seconds")?,
        idle_timeout: seconds(config.idle_seconds, standard.idle_timeout, "idle_seconds")?,
        proxy: proxies(environment, config),
        extra_certificates: config.ca_file.as_deref().map(read_certificates).transpose()?.unwrap_or_default(),
        // Company proxies: a user who sets these means that the system's authorities count.
        system_roots: environment.get("SSL_CERT_FILE").is_some() || environment.get("SSL_CERT_DIR").is_some(),
        ..standard
    })
}

fn read_certificates(path: &Path) -> Result<Vec<u8>, LaunchError> {
    const LARGEST: u64 = 16 * 1024 * 1024;
    files::read_regular(path, LARGEST)
        .map_err(|error| LaunchError::usage(format!("`[http] ca_file` {} cannot be read: {error}", path.display())))
}

/// The configuration wins over the usual variables, in either spelling.
fn proxies(environment: &Variables, config: &HttpConfig) -> ProxySettings {
    let variable =
        |name: &str| environment.get(name).or_else(|| environment.get(&name.to_lowercase())).map(str::to_owned);
    let all = config.proxy.clone().or_else(|| variable("ALL_PROXY"));
    let no_proxy = variable("NO_PROXY").unwrap_or_default();
    ProxySettings {
        http: config.proxy.clone().or_else(|| variable("HTTP_PROXY")).or_else(|| all.clone()),
        https: config.proxy.clone().or_else(|| variable("HTTPS_PROXY")).or(all),
        no_proxy: no_proxy.split(',').map(|host| host.trim().to_owned()).filter(|host| !host.is_empty()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use llm_do::{ModelChoices, Project};

    use super::*;

    /// An agent that is created later may be the only one that asks it.
    #[test]
    fn the_provider_of_the_fallback_is_used_too() {
        let worker = |toolsets: &str| {
            format!("---\nname: main\nmodel: anthropic:claude-haiku-4-5\ntoolsets: [{toolsets}]\n---\nHi.")
        };
        for (toolsets, expected) in [("dynamic_agents", &["anthropic", "ollama"][..]), ("", &["anthropic"])] {
            let project = Project::new(".").agent("main.worker", &worker(toolsets));
            let program = project.survey(&ModelChoices::of("ollama:qwen3").unwrap(), None).unwrap().program;
            assert!(used(&program).into_iter().eq(expected.iter().copied()), "{toolsets}: {:?}", used(&program));
        }
    }

    #[test]
    fn vertex_is_where_the_project_says() {
        let row = provider("google-vertex").unwrap();
        let found = |variables: &[(&'static str, &'static str)]| {
            let environment = Variables::new(
                variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            );
            let endpoint = built_in(row, &environment).ok()?;
            Some((endpoint.base_url, endpoint.quirks.key_form))
        };
        let of_project =
            |host: &str, location: &str| format!("https://{host}/v1/projects/p/locations/{location}/publishers/google");
        let token = ("GOOGLE_OAUTH_ACCESS_TOKEN", "t");
        let (project, key) = (("GOOGLE_CLOUD_PROJECT", "p"), ("GOOGLE_API_KEY", "k"));
        let global = of_project("aiplatform.googleapis.com", "global");
        assert_eq!(found(&[token, project]), Some((global.clone(), KeyForm::Bearer)));
        assert_eq!(found(&[token, project, key]), Some((global.clone(), KeyForm::Bearer)));
        assert_eq!(found(&[key, project]), Some((global, KeyForm::Own)));
        let there = of_project("europe-west4-aiplatform.googleapis.com", "europe-west4");
        assert_eq!(found(&[token, project, ("GOOGLE_CLOUD_LOCATION", "europe-west4")]), Some((there, KeyForm::Bearer)));
        let express = "https://aiplatform.googleapis.com/v1/publishers/google".to_owned();
        assert_eq!(found(&[key]), Some((express, KeyForm::Own)));
        let named = ("GOOGLE_VERTEX_BASE_URL", "http://localhost:1/x");
        assert_eq!(found(&[token, project, named]), Some((named.1.to_owned(), KeyForm::Bearer)));
        assert_eq!(found(&[token]), None, "whose money?");
    }

    #[test]
    fn ollama_is_found_as_its_server_names_itself() {
        let cases = [
            ("localhost", "http://localhost:11434/v1"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
            ("http://box:11434", "http://box:11434/v1"),
            ("https://ollama.example/api/v1/", "https://ollama.example/api/v1"),
        ];
        for (host, address) in cases {
            assert_eq!(ollama_address(host), address);
        }
    }

    #[test]
    fn the_configured_proxy_wins_over_the_variables() {
        let environment =
            Variables::of([("https_proxy", "http://a:1"), ("ALL_PROXY", "http://b:1"), ("NO_PROXY", "x, y")]);
        let proxies = super::proxies(&environment, &HttpConfig::default());
        assert_eq!((proxies.http.as_deref(), proxies.https.as_deref()), (Some("http://b:1"), Some("http://a:1")));
        assert_eq!(proxies.no_proxy, ["x", "y"]);
        let config = HttpConfig { proxy: Some("http://c:1".into()), ..HttpConfig::default() };
        let proxies = super::proxies(&environment, &config);
        assert_eq!((proxies.http.as_deref(), proxies.https.as_deref()), (Some("http://c:1"), Some("http://c:1")));
    }
}
