//! OpenTelemetry as the usual variables want it: from their values to what is sent, and where. Pure but for `started`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use llm_do::escape::visible;
use llm_do::providers::HttpSettings;
use llm_do::runs::Redactor;
use llm_do::telemetry::{Choice, Destination, Sampler, Telemetry, TelemetryConfig};

use crate::providers::http_settings;
use crate::settings::{Settings, Variables};

/// Variables that may hold keys of collectors: no child sees them.
pub const KEY_VARIABLES: [&str; 3] =
    ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"];
/// The span that a process was started beneath.
pub const TRACE_PARENT: &str = "TRACEPARENT";
const CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
const PROTOCOL: &str = "http/protobuf";
const PAUSE: &str = "OTEL_BSP_SCHEDULE_DELAY";

/// The telemetry of the process, if its variables want any. What is wrong with them is said once.
pub(crate) fn started(settings: &Settings) -> Option<Arc<Telemetry>> {
    let Settings { variables, config, notes, .. } = settings;
    let TelemetryWish { wanted, mut mistakes } = TelemetryWish::of(variables, &variables.redactor);
    // What is wrong with a variable of all signals is wrong with each.
    let mut said = BTreeSet::new();
    mistakes.retain(|mistake| said.insert(mistake.clone()));
    let mut mistakes: Vec<String> = mistakes.iter().map(|mistake| visible(mistake).into_owned()).collect();
    let started = wanted.and_then(|wanted| {
        let http = http_settings(variables, &config.http).map_err(|error| error.fact());
        let http = http.inspect_err(|error| mistakes.push(error.clone())).ok()?;
        let notes = Arc::clone(notes);
        Telemetry::start(wanted.config(http), notes).inspect_err(|error| mistakes.push(error.to_string())).ok()
    });
    if !mistakes.is_empty() {
        notes(&format!("note: OpenTelemetry: {}\n", mistakes.join("; ")));
    }
    started
}

/// What the variables want, and what is wrong with them.
#[derive(Debug)]
struct TelemetryWish {
    wanted: Option<WantedTelemetry>,
    mistakes: Vec<String>,
}

#[derive(Debug, PartialEq)]
struct WantedTelemetry {
    traces: Option<Destination>,
    metrics: Option<Destination>,
    resource: Vec<(String, String)>,
    sampler: Sampler,
    has_content: bool,
    pause: Duration,
}

impl WantedTelemetry {
    fn config(self, http: HttpSettings) -> TelemetryConfig {
        let Self { traces, metrics, mut resource, sampler, has_content, pause } = self;
        let known = |resource: &[(String, String)], name: &str| resource.iter().any(|(known, _)| known == name);
        let version = env!("CARGO_PKG_VERSION");
        // Each process adds up for itself, and says which one it is.
        let instance = llm_do::records::run_id();
        for (name, value) in [
            ("service.name", "llm-do"),
            ("service.version", version),
            ("service.instance.id", instance.as_str()),
            ("telemetry.sdk.name", "llm-do"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", version),
        ] {
            if !known(&resource, name) {
                resource.push((name.to_owned(), value.to_owned()));
            }
        }
        TelemetryConfig { traces, metrics, resource, sampler, has_content, pause, http }
    }
}

impl TelemetryWish {
    fn of(variables: &Variables, redactor: &Redactor) -> Self {
        let nothing = Self { wanted: None, mistakes: Vec::new() };
        if is_true(variables.get("OTEL_SDK_DISABLED")) {
            return nothing;
        }
        let mut reading = VariableReader { variables, redactor, mistakes: Vec::new() };
        let (traces, metrics) =
            (reading.destination("TRACES", "v1/traces"), reading.destination("METRICS", "v1/metrics"));
        if traces.is_none() && metrics.is_none() {
            return Self { mistakes: reading.mistakes, ..nothing };
        }
        let (resource, sampler, has_content) = (reading.resource(), reading.sampler(), reading.content());
        let pause = reading.milliseconds(PAUSE, variables.get(PAUSE)).unwrap_or(TelemetryConfig::USUAL_PAUSE);
        if variables.get(TRACE_PARENT).is_some_and(|text| llm_do::telemetry::TraceParent::parse(text).is_none()) {
            reading.mistakes.push(format!("`{TRACE_PARENT}` names no span"));
        }
        let wanted = Some(WantedTelemetry { traces, metrics, resource, sampler, has_content, pause });
        Self { wanted, mistakes: reading.mistakes }
    }
}

fn is_true(value: Option<&str>) -> bool {
    value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

/// Variables as they are read, and what is wrong with them.
struct VariableReader<'a> {
    variables: &'a Variables,
    redactor: &'a Redactor,
    mistakes: Vec<String>,
}

impl<'a> VariableReader<'a> {
    /// The variable of one signal, else that of all.
    fn of_signal(&self, signal: &str, what: &str) -> Option<(String, &'a str)> {
        let names = [format!("OTEL_EXPORTER_OTLP_{signal}_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| Some((name.clone(), self.variables.get(&name)?)))
    }

    /// Where a signal goes. Without an address it is not wanted.
    fn destination(&mut self, signal: &str, path: &str) -> Option<Destination> {
        let (variable, endpoint) = self.of_signal(signal, "ENDPOINT")?;
        let exporter = format!("OTEL_{signal}_EXPORTER");
        match self.variables.get(&exporter) {
            None | Some("otlp") => {}
            Some("none") => return None,
            Some(other) => {
                self.mistakes.push(format!("`{exporter}` is `{other}`, which is not known: nothing of that is sent"));
                return None;
            }
        }
        if let Some((variable, protocol)) = self.of_signal(signal, "PROTOCOL").filter(|(_, it)| *it != PROTOCOL) {
            let known =
                format!("`{variable}` is `{protocol}`, and only `{PROTOCOL}` is spoken: nothing of that is sent");
            self.mistakes.push(known);
            return None;
        }
        let is_whole = variable.contains(signal);
        let url = if is_whole { endpoint.to_owned() } else { format!("{}/{path}", endpoint.trim_end_matches('/')) };
        let (headers, timeout) = (self.headers(signal), self.timeout(signal));
        // A header that cannot be sent is not shown, since it may be a key.
        Destination::new(url, headers, timeout)
            .inspect_err(|error| self.mistakes.push(format!("`{variable}`: {error}")))
            .ok()
    }

    fn headers(&mut self, signal: &str) -> Vec<(String, String)> {
        let Some((variable, text)) = self.of_signal(signal, "HEADERS") else { return Vec::new() };
        let pairs = pairs(text);
        if pairs.len() < text.split(',').filter(|pair| !pair.trim().is_empty()).count() {
            self.mistakes.push(format!("`{variable}` is not of the form `name=value,name=value`"));
        }
        // `Basic` and `Bearer` are no part of the key.
        pairs.iter().flat_map(|(_, value)| value.split(' ')).for_each(|value| self.redactor.learn(value));
        pairs
    }

    fn timeout(&mut self, signal: &str) -> Duration {
        let (variable, text) = self.of_signal(signal, "TIMEOUT").unzip();
        self.milliseconds(&variable.unwrap_or_default(), text).unwrap_or(Destination::USUAL_TIMEOUT)
    }

    fn milliseconds(&mut self, variable: &str, text: Option<&str>) -> Option<Duration> {
        match text?.trim().parse() {
            Ok(milliseconds @ 1..) => Some(Duration::from_millis(milliseconds)),
            Ok(_) | Err(_) => {
                let text = text.unwrap_or_default();
                self.mistakes.push(format!("`{variable}` is `{text}`, and no number of milliseconds"));
                None
            }
        }
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let text = self.variables.get("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let mut resource = pairs(text);
        if resource.len() < text.split(',').filter(|pair| !pair.trim().is_empty()).count() {
            self.mistakes.push("`OTEL_RESOURCE_ATTRIBUTES` is not of the form `name=value,name=value`".to_owned());
            resource.clear();
        }
        if let Some(name) = self.variables.get("OTEL_SERVICE_NAME") {
            resource.retain(|(known, _)| known != "service.name");
            resource.push(("service.name".to_owned(), name.to_owned()));
        }
        resource
    }

    fn sampler(&mut self) -> Sampler {
        const USUAL: Sampler = Sampler::ParentBased(Choice::On);
        let Some(name) = self.variables.get("OTEL_TRACES_SAMPLER") else { return USUAL };
        Sampler::parse(name.trim(), self.variables.get("OTEL_TRACES_SAMPLER_ARG")).unwrap_or_else(|error| {
            self.mistakes.push(format!("`OTEL_TRACES_SAMPLER`: {error}"));
            USUAL
        })
    }

    fn content(&mut self) -> bool {
        let value = self.variables.get(CONTENT);
        if let Some(other) = value.filter(|value| !is_true(Some(value)) && !value.trim().eq_ignore_ascii_case("false"))
        {
            self.mistakes.push(format!("`{CONTENT}` is `{other}`, and neither `true` nor `false`"));
        }
        is_true(value)
    }
}

/// `name=value,name=value`, values percent-encoded. What is none is left out.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name = name.trim();
        (!name.is_empty()).then(|| Some((name.to_owned(), decoded(value.trim())?)))?
    };
    text.split(',').filter_map(pair).collect()
}

fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(variables: &[(&str, &str)]) -> TelemetryWish {
        TelemetryWish::of(&Variables::of(variables.iter().copied()), &Redactor::default())
    }

    fn shown(destination: Option<&Destination>) -> String {
        destination.map_or_else(|| "none".to_owned(), |destination| format!("{destination:?}"))
    }

    const HERE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/");

    #[test]
    fn each_signal_goes_where_its_variables_say() {
        for (variables, traces, metrics) in [
            (vec![], "none", "none"),
            (
                vec![HERE],
                "Destination(http://127.0.0.1:4318/v1/traces, [], 10s)",
                "Destination(http://127.0.0.1:4318/v1/metrics, [], 10s)",
            ),
            (
                vec![("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c.example/in")],
                "Destination(https://c.example/in, [], 10s)",
                "none",
            ),
            (
                vec![
                    HERE,
                    ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:9/m?key=k"),
                    ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,b=two"),
                    ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "c=%20x%3D"),
                    ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
                    ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "20"),
                ],
                r#"Destination(http://127.0.0.1:4318/v1/traces, ["a", "b"], 1.5s)"#,
                r#"Destination(http://127.0.0.1:9/m, ["c"], 20ms)"#,
            ),
            (vec![HERE, ("OTEL_SDK_DISABLED", "True")], "none", "none"),
            (
                vec![HERE, ("OTEL_METRICS_EXPORTER", "none")],
                "Destination(http://127.0.0.1:4318/v1/traces, [], 10s)",
                "none",
            ),
        ] {
            let TelemetryWish { wanted, mistakes } = wish(&variables);
            assert_eq!(mistakes, Vec::<String>::new(), "{variables:?}");
            let wanted = wanted.as_ref();
            assert_eq!(shown(wanted.and_then(|it| it.traces.as_ref())), traces, "{variables:?}");
            assert_eq!(shown(wanted.and_then(|it| it.metrics.as_ref())), metrics, "{variables:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_and_what_is_right_is_done() {
        for (variable, value, said, is_sent) in [
            (
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                "grpc",
                "`grpc`, and only `http/protobuf` is spoken: nothing of that is sent",
                false,
            ),
            ("OTEL_TRACES_EXPORTER", "zipkin", "`zipkin`, which is not known", false),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318", "`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`: ", false),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,secret", "`name=value,name=value`", true),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "`soon`, and no number of milliseconds", true),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "`0`, and no number of milliseconds", true),
            (PAUSE, "-1", "`-1`, and no number of milliseconds", true),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name", "`name=value,name=value`", true),
            ("OTEL_TRACES_SAMPLER", "sometimes", "none of the samplers", true),
            (CONTENT, "yes", "neither `true` nor `false`", true),
            (TRACE_PARENT, "00-1-2-3", "names no span", true),
        ] {
            let TelemetryWish { wanted, mistakes } = wish(&[HERE, (variable, value)]);
            assert!(mistakes.iter().any(|mistake| mistake.contains(said)), "{variable}: {mistakes:?}");
            assert!(!mistakes.concat().contains("secret"), "a header may be a key");
            assert_eq!(wanted.is_some_and(|wanted| wanted.traces.is_some()), is_sent, "{variable}");
        }
        assert_eq!(wish(&[("OTEL_TRACES_SAMPLER", "sometimes")]).mistakes, Vec::<String>::new(), "nothing is wanted");
    }

    #[test]
    fn the_resource_says_which_service_it_is() {
        let resource = |variables: &[(&str, &str)]| {
            let wanted = wish(&[&[HERE], variables].concat()).wanted.unwrap();
            let config = wanted.config(HttpSettings::STANDARD);
            let value = |name: &str| -> Vec<String> {
                let own = config.resource.iter().filter(|(known, _)| known == name);
                own.map(|(_, value)| value.clone()).collect()
            };
            (value("service.name"), value("team"))
        };
        let team = || ("OTEL_RESOURCE_ATTRIBUTES", "team=a%2Cb,service.name=desk");
        assert_eq!(resource(&[]), (vec!["llm-do".to_owned()], vec![]));
        assert_eq!(resource(&[team()]), (vec!["desk".to_owned()], vec!["a,b".to_owned()]));
        assert_eq!(resource(&[team(), ("OTEL_SERVICE_NAME", "front")]).0, ["front"]);
    }

    #[test]
    fn keys_of_collectors_are_learned_and_kept_from_children() {
        let variables = Variables::of([HERE, (KEY_VARIABLES[0], "authorization=Bearer%20sk-0123456789ab")]);
        assert!(TelemetryWish::of(&variables, &variables.redactor).wanted.is_some());
        assert_eq!(variables.redactor.redacted("it is sk-0123456789ab".to_owned()), "it is [redacted]");
        let seen = crate::children::environment(&variables, &crate::config::Config::default());
        assert!(!seen.offered.contains_key(KEY_VARIABLES[0]));
    }
}
