//! The words of the protocol: what is said to a server, and what is made of what it says. Pure.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bounded::BoundedList;
use super::wire::header::HeaderParameter;
use super::wire::{ClientAbilities, WITH_INITIALIZE};
use crate::escape::{visible_lines, visible_start};
use crate::journal::StepValue;
use crate::json_schema::{self, Direction, SchemaError};
use crate::message::RawJson;
use crate::syntax::table::is_name;

/// No message of a server is longer: an image in base64 passes.
pub(crate) const LONGEST_MESSAGE: usize = 64 * 1024 * 1024;
/// More than any model can choose from.
const MOST_TOOLS: usize = 1_000;
/// Pages of a list, which a server may make as short as it likes.
pub(crate) const MOST_PAGES: usize = 200;
const LONGEST_DESCRIPTION: usize = 10_000;
const LONGEST_SCHEMA: usize = 256 * 1024;
/// Why a schema cannot be used may repeat some of it.
const LONGEST_REASON: usize = 500;
/// How many reasons are listed; further refused tools are only counted.
const MOST_REASONS: usize = 20;
/// What a server says while it works, at once.
const LONGEST_REMARK: usize = 2_000;

/// What servers can count on. Tasks are of the modern revision only.
pub(crate) const ABILITIES: ClientAbilities = ClientAbilities { forms: true, addresses: true, tasks: true };

/// A list of tools lasts so long at most, whatever its server says.
const LONGEST_LISTING: Duration = Duration::from_hours(1);
/// And at least: what was listed a moment ago is what there is.
const SHORTEST_LISTING: Duration = Duration::from_secs(1);

pub(crate) fn hello() -> RawJson {
    RawJson::of(&json!({
        "protocolVersion": WITH_INITIALIZE[0],
        "capabilities": ClientAbilities { tasks: false, ..ABILITIES }.to_json(),
        "clientInfo": {"name": "llm-do", "version": env!("CARGO_PKG_VERSION")},
    }))
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub version: &'static str,
    pub has_tools: bool,
}

pub(crate) fn read_hello(answer: &RawJson) -> Result<Hello, String> {
    #[derive(Deserialize)]
    struct HelloReply {
        #[serde(rename = "protocolVersion")]
        version: String,
        #[serde(default)]
        capabilities: Capabilities,
    }
    #[derive(Default, Deserialize)]
    struct Capabilities {
        tools: Option<serde::de::IgnoredAny>,
    }
    let said: HelloReply =
        answer.to().map_err(|error| format!("answers `initialize` with something else: {}", in_short(&error)))?;
    let version = WITH_INITIALIZE.iter().find(|version| **version == said.version);
    let version = version.ok_or_else(|| {
        let (asked, found) = (WITH_INITIALIZE.join(", "), visible_start(&said.version, 40));
        format!("speaks revision `{found}` of the protocol, and these are understood: {asked}")
    })?;
    Ok(Hello { version, has_tools: said.capabilities.tools.is_some() })
}

/// What a server offers.
impl StepValue for Vec<McpTool> {
    fn settled(self) -> Self {
        // Its schemas may have come on many lines.
        self.into_iter().map(|tool| McpTool { parameters: tool.parameters.in_one_line(), ..tool }).collect()
    }
}

/// A tool as its server describes it, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct McpTool {
    /// As models and people call it.
    pub name: String,
    /// As its server calls it.
    pub original: String,
    pub description: String,
    /// JSON Schema of an object.
    pub parameters: RawJson,
    /// What the server says that the tool does, in our words. It is only a claim of the server.
    pub hints: Vec<String>,
    /// Whether its server speaks the modern revision: a call may then be asked for input, and take several requests.
    #[serde(default, skip_serializing_if = "is_no")]
    pub in_rounds: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_no(answer: &bool) -> bool {
    !answer
}

/// What a server offers, page by page.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub tools: Vec<McpTool>,
    /// Why some of them cannot be used.
    pub refused: Vec<String>,
    refused_more: usize,
    /// Whether it is one of the modern revision.
    pub is_modern: bool,
    /// Arguments that headers repeat, by the server's own names of its tools.
    pub repeated: HashMap<String, Vec<HeaderParameter>>,
    /// How long it lasts, if its server says so.
    lasts: Option<Duration>,
}

impl Listing {
    /// An empty one, of the modern revision or an earlier one.
    pub(crate) fn of(is_modern: bool) -> Self {
        Self { is_modern, ..Self::default() }
    }

    /// Adds a page, and gives where the next one begins.
    pub(crate) fn add(&mut self, page: &RawJson) -> Result<Option<String>, String> {
        #[derive(Deserialize)]
        struct Page {
            tools: BoundedList<RawJson, MOST_TOOLS>,
            #[serde(rename = "nextCursor")]
            next: Option<String>,
            #[serde(rename = "ttlMs", default)]
            lasts: Value,
        }
        let page: Page =
            page.to().map_err(|error| format!("answers `tools/list` with something else: {}", in_short(&error)))?;
        // One that says nothing that can be understood is over at once.
        let lasts = Duration::from_millis(page.lasts.as_u64().unwrap_or(0));
        let lasts = lasts.clamp(SHORTEST_LISTING, LONGEST_LISTING);
        self.lasts = Some(self.lasts.map_or(lasts, |shortest| shortest.min(lasts)));
        for tool in page.tools.0 {
            if self.tools.len() + self.refused.len() + self.refused_more >= MOST_TOOLS {
                return Err(format!("offers more than {MOST_TOOLS} tools"));
            }
            match self.judged(&tool) {
                Ok(tool) => self.tools.push(tool),
                Err(reason) if self.refused.len() < MOST_REASONS => self.refused.push(reason),
                Err(_) => self.refused_more += 1,
            }
        }
        Ok(page.next.filter(|next| !next.is_empty()))
    }

    /// How long it lasts; one of an earlier revision lasts until its server says otherwise.
    pub(crate) fn lasts(&self) -> Option<Duration> {
        self.lasts.filter(|_| self.is_modern)
    }

    /// What cannot be used of all this, in one line.
    pub(crate) fn complaint(&self) -> Option<String> {
        let more = if self.refused_more > 0 { format!(", and {} more", self.refused_more) } else { String::new() };
        (!self.refused.is_empty()).then(|| format!("{}{more}", self.refused.join("; ")))
    }

    fn judged(&mut self, tool: &RawJson) -> Result<McpTool, String> {
        let ToolDescription { name: original, title, description, parameters, annotations } =
            tool.to().map_err(|error| format!("a tool is not described as one: {}", in_short(&error)))?;
        let shown = visible_start(&original, 80).into_owned();
        let name = our_name(&original).ok_or_else(|| format!("`{shown}` is not a name"))?;
        if self.tools.iter().any(|other| other.name == name) {
            return Err(format!("`{shown}` is there twice"));
        }
        check_schema(&parameters).map_err(|reason| format!("the parameters of `{shown}` {reason}"))?;
        if self.is_modern {
            let schema: Value = parameters.to().map_err(|error| in_short(&error))?;
            let repeated = HeaderParameter::all(&schema).map_err(|reason| format!("of `{shown}`, {reason}"))?;
            if !repeated.is_empty() {
                self.repeated.insert(original.clone(), repeated);
            }
        }
        let title = title.or_else(|| annotations.title.clone()).unwrap_or_default();
        let description = [title.as_str(), description.as_deref().unwrap_or_default()];
        let said: Vec<&str> = description.into_iter().filter(|text| !text.trim().is_empty()).collect();
        let description = bounded(said.join("\n").trim(), LONGEST_DESCRIPTION);
        let (parameters, hints, in_rounds) = (parameters.in_one_line(), annotations.words(), self.is_modern);
        Ok(McpTool { name, original, description, parameters, hints, in_rounds })
    }
}

#[derive(Deserialize)]
struct ToolDescription {
    name: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(rename = "inputSchema")]
    parameters: RawJson,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    title: Option<String>,
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

impl Annotations {
    fn words(&self) -> Vec<String> {
        let hints = [
            (self.read_only_hint, "only reads", "does not only read"),
            (self.destructive_hint, "may destroy", "destroys nothing"),
            (self.idempotent_hint, "may be repeated", "must not be repeated"),
            (self.open_world_hint, "reaches the world outside", "stays within its server"),
        ];
        let said = hints.into_iter().filter_map(|(hint, yes, no)| hint.map(|hint| if hint { yes } else { no }));
        said.map(str::to_owned).collect()
    }
}

/// Providers take letters, digits, `_` and `-`. Separators that servers like become `_`; what else there may be is no
/// name, so that a person or a model does not read words of a server where a name stands.
fn our_name(original: &str) -> Option<String> {
    let name = original.replace(['.', '/', ':'], "_");
    is_name(&name).then_some(name)
}

/// Checks only its size, and what providers insist on: the rest is judged when the tool is called.
fn check_schema(schema: &RawJson) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Head {
        r#type: Option<String>,
    }
    if schema.get().len() > LONGEST_SCHEMA {
        return Err(format!("are described by more than {} KiB", LONGEST_SCHEMA / 1024));
    }
    let is_map = schema.get().starts_with('{');
    match schema.to::<Head>() {
        Ok(Head { r#type: Some(kind) }) if is_map && kind == "object" => {}
        _ => return Err("are not described as an object".to_owned()),
    }
    match json_schema::sized(schema, Direction::Input) {
        // A tool whose schema is refused for one of these reasons alone is refused when it is called.
        Ok(_) | Err(SchemaError::Remote(_) | SchemaError::Invalid { .. } | SchemaError::Nowhere(_)) => Ok(()),
        Err(error) => Err(format!("are described by {}", visible_start(&error.to_string(), LONGEST_REASON))),
    }
}

/// Foreign text, made visible and cut with a mark.
fn bounded(text: &str, longest: usize) -> String {
    let (kept, mark) = match text.char_indices().nth(longest) {
        None => (text, ""),
        Some((cut, _)) => (&text[..cut], "…"),
    };
    format!("{}{mark}", visible_lines(kept))
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Progress {
    pub token: u64,
    pub done: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

pub(crate) fn read_progress(params: &RawJson) -> Option<Progress> {
    #[derive(Deserialize)]
    struct ProgressNotice {
        #[serde(rename = "progressToken")]
        token: u64,
        #[serde(rename = "progress")]
        done: f64,
        total: Option<f64>,
        message: Option<String>,
    }
    let ProgressNotice { token, done, total, message } = params.to().ok()?;
    Some(Progress { token, done, total, message: message.map(|text| bounded(&text, LONGEST_REMARK)) })
}

/// A line of a server's log.
pub(crate) fn read_log(params: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    struct LogNotice {
        level: String,
        data: RawJson,
    }
    let LogNotice { level, data } = params.to().ok()?;
    let text = data.to::<String>().unwrap_or_else(|_| data.get().to_owned());
    Some(format!("{}: {}\n", visible_start(&level, 20), bounded(&text, LONGEST_REMARK)))
}

/// Why something cannot be read; the reason may repeat what it is about.
pub(crate) fn in_short(error: &serde_json::Error) -> String {
    visible_start(&error.to_string(), 200).into_owned()
}

/// What the server's own words are cut to where they are part of ours.
pub(crate) fn remark(text: &str) -> String {
    bounded(text.trim(), LONGEST_REMARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(tools: &serde_json::Value) -> Listing {
        let mut listing = Listing::default();
        assert_eq!(listing.add(&RawJson::of(&json!({"tools": tools}))), Ok(None));
        listing
    }

    #[test]
    fn what_a_server_offers_is_replayed_as_it_was() {
        use crate::journal::generated::{Generator, assert_replayed_is_live};
        let tool = |generator: &mut Generator| McpTool {
            name: generator.text(),
            original: generator.text(),
            description: generator.text(),
            parameters: generator.json(),
            hints: generator.list(2, Generator::text),
            in_rounds: generator.number(2) == 0,
        };
        assert_replayed_is_live(|generator, _| generator.list(3, tool), |tools| tools);
    }

    #[test]
    fn revisions_are_agreed_on_or_named() {
        let hello = |version: &str, capabilities: serde_json::Value| {
            read_hello(&RawJson::of(&json!({"protocolVersion": version, "capabilities": capabilities})))
        };
        for version in WITH_INITIALIZE {
            assert_eq!(hello(version, json!({"tools": {}})), Ok(Hello { version, has_tools: true }));
        }
        assert!(!hello("2024-11-05", json!({"prompts": {}})).unwrap().has_tools);
        let error = hello("2031-01-01\u{1b}", json!({})).unwrap_err();
        assert!(error.starts_with("speaks revision `2031-01-01\\u{1b}` of the protocol"), "{error}");
        assert!(read_hello(&RawJson::of(&json!([]))).is_err());
    }

    #[test]
    fn a_tool_is_taken_with_its_words_and_hints() {
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let annotations = json!({"title": "Read", "readOnlyHint": true, "destructiveHint": false});
        let tool = json!({"name": "fs.read", "description": "reads\u{202e}\nfiles", "inputSchema": schema, "annotations": annotations});
        let listing = listing(&json!([tool]));
        let expected = McpTool {
            name: "fs_read".into(),
            original: "fs.read".into(),
            description: "Read\nreads\\u{202e}\nfiles".into(),
            parameters: RawJson::of(&schema),
            hints: vec!["only reads".into(), "destroys nothing".into()],
            in_rounds: false,
        };
        assert_eq!((listing.tools, listing.refused), (vec![expected], vec![]));
    }

    #[test]
    fn what_is_no_tool_is_refused_by_name_and_the_rest_is_kept() {
        let object = json!({"type": "object"});
        let tools = json!([
            {"name": "read (pre-approved)\n", "inputSchema": object},
            {"name": "", "inputSchema": object},
            {"name": "x".repeat(65), "inputSchema": object},
            {"name": "good", "inputSchema": object},
            {"name": "good", "inputSchema": object},
            {"name": "list", "inputSchema": {"type": "array"}},
            {"name": "none", "inputSchema": {}},
            {"name": "big", "inputSchema": {"type": "object", "title": "x".repeat(LONGEST_SCHEMA)}},
            {"name": "bare"},
            7,
        ]);
        let listing = listing(&tools);
        assert_eq!(listing.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["good"]);
        let complaint = listing.complaint().unwrap();
        let expected = [
            "`read (pre-approved)\\n` is not a name; `` is not a name; ",
            "`good` is there twice; the parameters of `list` are not described as an object; ",
            "the parameters of `big` are described by more than 256 KiB; ",
        ];
        for words in expected {
            assert!(complaint.contains(words), "{complaint}");
        }
    }

    #[test]
    fn a_list_without_an_end_has_one() {
        let tools: Vec<_> =
            (0..600).map(|number| json!({"name": format!("t{number}"), "inputSchema": {"type": "object"}})).collect();
        let page = RawJson::of(&json!({"tools": tools, "nextCursor": "more"}));
        let mut listing = Listing::default();
        assert_eq!(listing.add(&page), Ok(Some("more".into())));
        assert_eq!(listing.add(&page), Err("offers more than 1000 tools".into()), "also those that are there twice");
        assert!(listing.complaint().unwrap().ends_with(", and 380 more"));
        let flood = RawJson::from_valid(format!(r#"{{"tools":[{}0]}}"#, "0,".repeat(2_000)));
        assert!(Listing::default().add(&flood).unwrap_err().contains("a list of more than 1000 items"));
    }

    #[test]
    fn remarks_are_bounded_and_visible() {
        let progress = |params: serde_json::Value| read_progress(&RawJson::of(&params));
        let said = progress(json!({"progressToken": 3, "progress": 1, "total": 4.5, "message": "half\u{1b}"}));
        let message = Some("half\\u{1b}".to_owned());
        assert_eq!(said, Some(Progress { token: 3, done: 1.0, total: Some(4.5), message }));
        assert_eq!(progress(json!({"progressToken": "3", "progress": 1})), None);
        let log = |data: serde_json::Value| read_log(&RawJson::of(&json!({"level": "info", "data": data})));
        assert_eq!(log(json!("ready")).unwrap(), "info: ready\n");
        assert_eq!(log(json!({"a": 1})).unwrap(), "info: {\"a\":1}\n");
        assert!(log(json!("x".repeat(10_000))).unwrap().chars().count() < 2_100);
    }
}
