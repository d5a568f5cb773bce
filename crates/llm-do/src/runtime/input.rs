//! What an agent is given: text, parts or an object → the user message, validated where the agent has a schema.

use std::future::Future;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json_schema;
use crate::judgement;
use crate::message::{Attachment, Content, RawJson};
use crate::project::{AgentSpec, AttachmentPolicy, Typing};
use crate::tools::attachment::{self, AttachmentError, AttachmentScope, Reach};
use crate::tools::function::Registry;
use crate::tools::python::RenderedPart;

/// The input of a turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Words.
    Text(String),
    /// Text and attachments that the user named.
    Parts(Vec<Content>),
    /// JSON from the command line, from code or from the manifest; attachments beside it go after the message.
    Object {
        /// The value.
        value: Value,
        /// The files.
        attachments: Vec<Attachment>,
    },
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Value> for Input {
    fn from(value: Value) -> Self {
        Self::Object { value, attachments: Vec::new() }
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Why an agent was not given its input; the words are for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// It does not fit the schema of the agent.
    #[error("the input of agent `{agent}` violates its schema: {violation}\nthe schema: {schema}")]
    Violates {
        /// The agent.
        agent: String,
        /// What does not fit.
        violation: String,
        /// The schema.
        schema: String,
    },
    /// It cannot be put into words.
    #[error("the template `prompt` of agent `{agent}` failed: {reason}")]
    Template {
        /// The agent.
        agent: String,
        /// Why.
        reason: String,
    },
    /// A file cannot be given to the agent.
    #[error(transparent)]
    Attachment(#[from] AttachmentError),
    /// The messages that it should go on with are none of this agent.
    #[error("agent `{agent}` cannot go on with the history that was given: {reason}")]
    History {
        /// The agent.
        agent: String,
        /// Why.
        reason: String,
    },
    /// There are messages to go on with, but no conversation.
    #[error("the entry is a function, which has no history to go on with")]
    NoHistory,
}

/// What stands for a blank prompt that was given explicitly.
const NO_INPUT: &str = "(no input)";

impl Input {
    /// The input as events show it: text as text, attachments by their names, an object as itself.
    pub fn to_json(&self) -> RawJson {
        match self {
            Self::Text(text) => RawJson::of(text),
            Self::Parts(parts) => RawJson::of(&Content::shown(parts)),
            Self::Object { value, .. } => RawJson::of(value),
        }
    }

    /// The user message for an agent. Attachments that the input names are relative to the project root.
    pub(crate) async fn into_message(
        self,
        agent: &AgentSpec,
        premises: AttachmentScope<'_>,
        reach: &Reach,
        registry: &Registry,
    ) -> Result<Vec<Content>, InputError> {
        let parts = match (&agent.input, registry.inputs.get(&agent.name), registry.python.as_ref()) {
            (Typing::Schema(schema), Some(renderer), _) => {
                Box::pin(self.rendered(agent, Some(schema), premises, reach, |value| renderer(value))).await?
            }
            (Typing::Schema(schema), None, _) => Box::pin(self.typed(agent, schema, premises, reach)).await?,
            (Typing::Python(class), _, Some(python)) => {
                let render = |value: Value| python.render(&class.reference, value);
                Box::pin(self.rendered(agent, class.schema.as_ref(), premises, reach, render)).await?
            }
            (Typing::Untyped | Typing::Python(_), _, _) => self.untyped(agent, premises, reach)?,
        };
        check_policy(&agent.attachment_policy, &parts)?;
        Ok(parts)
    }

    /// Any value: text is what is said, other values are shown as readable JSON. `attachments` are files.
    fn untyped(
        self,
        agent: &AgentSpec,
        premises: AttachmentScope<'_>,
        reach: &Reach,
    ) -> Result<Vec<Content>, InputError> {
        let mut admission = Admission::by(&agent.attachment_policy);
        let mut read = |path: &Value| admission.read(path, premises, reach).map(Content::Attachment);
        let (value, attachments) = match self {
            Self::Text(text) => return Ok(vec![Content::text(spoken(text))]),
            Self::Parts(parts) => return Ok(parts),
            Self::Object { value, attachments } => (value, attachments),
        };
        let mut parts: Vec<Content> = match &value {
            Value::Array(items) if attachment::is_message(items) => {
                let mut part = |item: &Value| match item {
                    Value::String(text) => Ok(Content::text(spoken(text.clone()))),
                    item => read(&item["attachment"]),
                };
                items.iter().map(&mut part).collect::<Result<_, _>>()?
            }
            value => {
                let files: Vec<Content> =
                    attachment::named_in(value).into_iter().map(read).collect::<Result<_, _>>()?;
                let text = spoken(readable(value, !files.is_empty()));
                std::iter::once(Content::text(text)).chain(files).collect()
            }
        };
        parts.extend(attachments.into_iter().map(Content::Attachment));
        Ok(parts)
    }

    async fn typed(
        self,
        agent: &AgentSpec,
        schema: &RawJson,
        premises: AttachmentScope<'_>,
        reach: &Reach,
    ) -> Result<Vec<Content>, InputError> {
        let schema_value: Value = schema.to().unwrap_or(Value::Null);
        let violates = |violation: String| InputError::Violates {
            agent: agent.name.clone(),
            violation,
            schema: schema.get().to_owned(),
        };
        let (mut value, attachments) = self.fitted(&schema_value).map_err(violates)?;
        let (mut files, mut admission) = (Vec::new(), Admission::by(&agent.attachment_policy));
        if takes_attachments(&schema_value) {
            for path in attachment::named_in(&value) {
                files.push(admission.read(path, premises, reach)?);
            }
            name_attachments(&mut value, &attachments, |file| &file.name);
        }
        json_schema::violation(&schema_value, &value).await.map_or(Ok(()), |violation| Err(violates(violation)))?;
        let text = render(agent, &schema_value, &value)?;
        let files = files.into_iter().chain(attachments).map(Content::Attachment);
        Ok(std::iter::once(Content::text(spoken(text))).chain(files).collect())
    }

    /// What the agent's input class says of the input; the files that it names are read here.
    async fn rendered<Rendering: Future<Output = Result<Vec<RenderedPart>, String>>>(
        self,
        agent: &AgentSpec,
        schema: Option<&RawJson>,
        premises: AttachmentScope<'_>,
        reach: &Reach,
        render: impl FnOnce(Value) -> Rendering,
    ) -> Result<Vec<Content>, InputError> {
        let schema = schema.map_or_else(|| RawJson::of(&Value::Null), RawJson::clone);
        let schema_value: Value = schema.to().unwrap_or(Value::Null);
        let violates = |violation: String| InputError::Violates {
            agent: agent.name.clone(),
            violation,
            schema: schema.get().to_owned(),
        };
        let (mut value, mut beside) = self.fitted(&schema_value).map_err(violates)?;
        if takes_attachments(&schema_value) {
            name_attachments(&mut value, &beside, |file| &file.name);
        }
        let (mut parts, mut admission) = (Vec::new(), Admission::by(&agent.attachment_policy));
        for part in render(value).await.map_err(violates)? {
            parts.push(match part {
                RenderedPart::Text(text) => Content::text(spoken(text)),
                RenderedPart::Attachment(path) => {
                    Content::Attachment(match beside.iter().position(|file| file.name == path) {
                        Some(given) => beside.remove(given),
                        None => admission.read(&Value::String(path), premises, reach)?,
                    })
                }
            });
        }
        parts.extend(beside.into_iter().map(Content::Attachment));
        Ok(parts)
    }

    /// A value for a schema, and the files beside it: a plain text is meant for the one field that needs a text.
    pub(super) fn fitted(self, schema: &Value) -> Result<(Value, Vec<Attachment>), String> {
        let (value, attachments) = match self {
            Self::Object { value, attachments } => (value, attachments),
            Self::Text(text) => (Value::String(text), Vec::new()),
            Self::Parts(parts) => split(parts),
        };
        match value {
            Value::String(text) if schema["type"] != "string" => match fill_only_field(schema, text) {
                Some(value) => Ok((value, attachments)),
                None => Err(takes_json(schema)),
            },
            value => Ok((value, attachments)),
        }
    }
}

/// Whether a schema has a field for the paths of files.
pub(super) fn takes_attachments(schema: &Value) -> bool {
    schema["properties"]["attachments"]["type"] == "array"
}

/// Files that the user gave beside the input are named in it, after those that it names itself.
pub(super) fn name_attachments(value: &mut Value, attachments: &[Attachment], name: impl Fn(&Attachment) -> &String) {
    let Value::Object(fields) = value else { return };
    if attachments.is_empty() {
        return;
    }
    let names = attachments.iter().map(|attachment| Value::String(name(attachment).clone()));
    match fields.entry("attachments").or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(list) => list.extend(names),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
}

fn spoken(text: String) -> String {
    if text.trim().is_empty() { NO_INPUT.to_owned() } else { text }
}

/// What a person would read of a value: its files, if it has any, are not part of it.
fn readable(value: &Value, has_files: bool) -> String {
    let is_spoken = |(name, value): (&String, &Value)| match name.as_str() {
        "input" => value.is_string(),
        "attachments" => has_files || value.is_null() || *value == Value::Array(Vec::new()),
        _ => false,
    };
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Object(fields) if fields.iter().all(is_spoken) => {
            fields.get("input").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        Value::Object(fields) if has_files => {
            let others = fields.iter().filter(|(name, _)| *name != "attachments");
            let others: serde_json::Map<String, Value> =
                others.map(|(name, value)| (name.clone(), value.clone())).collect();
            format!("{:#}", Value::Object(others))
        }
        value => format!("{value:#}"),
    }
}

/// Text parts joined, attachments apart.
fn split(parts: Vec<Content>) -> (Value, Vec<Attachment>) {
    let (mut texts, mut attachments) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Content::Text { text } | Content::Value { json: text } => texts.push(text),
            Content::Attachment(attachment) => attachments.push(attachment),
        }
    }
    (Value::String(texts.join("\n")), attachments)
}

/// A bare text is meant for the one required text field, if there is exactly one required field.
/// What to say to a plain text that no single field takes.
fn takes_json(schema: &Value) -> String {
    let fields = |key: &str| -> Vec<String> {
        let names: Vec<&str> = match &schema[key] {
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            Value::Object(fields) => fields.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        names.into_iter().take(8).map(|name| format!("`{name}`")).collect()
    };
    let required = fields("required");
    let names = if required.is_empty() { fields("properties") } else { required };
    if names.is_empty() {
        "this agent takes JSON".to_owned()
    } else {
        format!("this agent takes JSON with {}", names.join(", "))
    }
}

fn fill_only_field(schema: &Value, text: String) -> Option<Value> {
    let required: Vec<&str> = schema["required"].as_array()?.iter().filter_map(Value::as_str).collect();
    let texts: Vec<&str> =
        required.iter().copied().filter(|name| schema["properties"][*name]["type"] == "string").collect();
    match (texts.as_slice(), required.len()) {
        ([only], 1) => Some(Value::Object([((*only).to_owned(), Value::String(text))].into_iter().collect())),
        _ => None,
    }
}

/// By the agent's template, else its `input` field, else pretty JSON.
fn render(agent: &AgentSpec, schema: &Value, value: &Value) -> Result<String, InputError> {
    const FUEL: u64 = 1_000_000;
    let failed =
        |error: minijinja::Error| InputError::Template { agent: agent.name.clone(), reason: error.to_string() };
    let Some(template) = &agent.prompt else {
        return Ok(match value["input"].as_str() {
            Some(text) => text.to_owned(),
            None => format!("{value:#}"),
        });
    };
    let mut environment = minijinja::Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(undefined_behavior(&environment, template, schema).map_err(failed)?);
    let mut text = BoundedText(Vec::new());
    let template = environment.template_from_str(template).map_err(failed)?;
    template.render_captured_to(minijinja::value::Serde(value), &mut text).map_err(failed)?;
    Ok(String::from_utf8_lossy(&text.0).into_owned())
}

/// What a template says; a loop says in a few words more than fits anywhere.
struct BoundedText(Vec<u8>);

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > judgement::LARGEST_VALUE {
            return Err(io::Error::other(format!("it says more than {} MiB", judgement::LARGEST_VALUE >> 20)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A field that the schema declares and the input leaves out is empty; one that it does not declare is an error.
fn undefined_behavior(
    environment: &minijinja::Environment<'_>,
    template: &str,
    schema: &Value,
) -> Result<minijinja::UndefinedBehavior, minijinja::Error> {
    let names = environment.template_from_str(template)?.undeclared_variables(false);
    let is_known = |name: &String| {
        schema["properties"].get(name).is_some() || environment.globals().any(|(global, _)| global == name)
    };
    let all_known = names.iter().all(is_known);
    Ok(if all_known { minijinja::UndefinedBehavior::Lenient } else { minijinja::UndefinedBehavior::SemiStrict })
}

fn check_policy(policy: &AttachmentPolicy, parts: &[Content]) -> Result<(), InputError> {
    let mut admission = Admission::by(policy);
    parts.iter().try_for_each(|part| match part {
        Content::Attachment(attachment) => Ok(admission.admit(attachment)?),
        Content::Text { .. } | Content::Value { .. } => Ok(()),
    })
}

/// Attachments one after the other, held against what the agent takes: of a thousand that are named, no more are read
/// than may be sent.
struct Admission<'a> {
    policy: &'a AttachmentPolicy,
    count: u64,
    bytes: u64,
}

impl<'a> Admission<'a> {
    fn by(policy: &'a AttachmentPolicy) -> Self {
        Self { policy, count: 0, bytes: 0 }
    }

    fn read(
        &mut self,
        path: &Value,
        premises: AttachmentScope<'_>,
        reach: &Reach,
    ) -> Result<Attachment, AttachmentError> {
        let attachment = attachment::read(path, premises, reach)?;
        let place = path.as_str().map(|path| premises.root.join(path).display().to_string());
        self.admit(&attachment).map(|()| Attachment { path: place, ..attachment })
    }

    fn admit(&mut self, attachment: &Attachment) -> Result<(), AttachmentError> {
        let refuse = |reason: String| Err(AttachmentError::new(&attachment.name, reason));
        let AttachmentPolicy { max_attachments, max_total_bytes, allowed_suffixes, denied_suffixes } = self.policy;
        self.count += 1;
        self.bytes += attachment.data.len() as u64;
        if self.count > *max_attachments {
            return refuse(format!("is one too many: at most {max_attachments} are taken"));
        }
        if self.bytes > *max_total_bytes {
            return refuse(format!("is too large: at most {max_total_bytes} bytes are taken in all"));
        }
        let name = attachment.name.to_lowercase();
        let ends = |suffixes: &[String]| suffixes.iter().any(|suffix| name.ends_with(suffix.as_str()));
        if ends(denied_suffixes) || !(allowed_suffixes.is_empty() || ends(allowed_suffixes)) {
            return refuse("has an ending that the agent does not take".to_owned());
        }
        Ok(())
    }
}
