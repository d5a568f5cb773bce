//! What an agent is given: text, parts or an object → the user message, validated where the agent has a schema.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde_json::Value;

use crate::beneath::{self, Unopened};
use crate::escape::visible;
use crate::json_schema;
use crate::message::{Attachment, Content, RawJson};
use crate::project::{AgentSpec, AttachmentPolicy, Typing};

/// The input of a turn.
#[derive(Clone, Debug)]
pub enum Input {
    Text(String),
    /// Text and attachments that the user named.
    Parts(Vec<Content>),
    /// JSON from the command line, from code or from the manifest; attachments beside it go after the message.
    Object {
        value: Value,
        attachments: Vec<Attachment>,
    },
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    #[error("the input of agent `{agent}` violates its schema: {violation}\nthe schema: {schema}")]
    Violates { agent: String, violation: String, schema: String },
    #[error("agent `{agent}` takes text, or an object with `input` and `attachments`: {reason}")]
    Untyped { agent: String, reason: String },
    #[error("the template `prompt` of agent `{agent}` failed: {reason}")]
    Template { agent: String, reason: String },
    #[error("the attachment `{name}` {reason}")]
    Attachment { name: String, reason: String },
}

/// What stands for a blank prompt that was given explicitly.
const NO_INPUT: &str = "(no input)";

impl Input {
    /// The user message for an agent. Attachments that the input names are read beneath the project root.
    pub fn into_message(self, agent: &AgentSpec, root: &Path) -> Result<Vec<Content>, InputError> {
        let parts = match &agent.input {
            Typing::Schema(schema) => self.typed(agent, schema)?,
            Typing::Untyped | Typing::Python(_) => self.untyped(agent, root)?,
        };
        check_policy(&agent.attachment_policy, &parts)?;
        Ok(parts)
    }

    fn untyped(self, agent: &AgentSpec, root: &Path) -> Result<Vec<Content>, InputError> {
        let wrong = |reason: &str| InputError::Untyped { agent: agent.name.clone(), reason: reason.to_owned() };
        let (value, attachments) = match self {
            Self::Text(text) => return Ok(vec![Content::text(spoken(text))]),
            Self::Parts(parts) => return Ok(parts),
            Self::Object { value, attachments } => (value, attachments),
        };
        let mut parts = match value {
            Value::String(text) => vec![Content::text(spoken(text))],
            Value::Array(items) => items.iter().map(|item| list_item(item, root)).collect::<Result<_, _>>()?,
            Value::Object(mut fields) => {
                let Some(Value::String(text)) = fields.remove("input") else {
                    return Err(wrong("`input` is missing or not a text"));
                };
                let named = match fields.remove("attachments") {
                    None | Some(Value::Null) => Vec::new(),
                    Some(Value::Array(paths)) => paths,
                    Some(_) => return Err(wrong("`attachments` is not a list of paths")),
                };
                if let Some(unknown) = fields.keys().next() {
                    return Err(wrong(&format!("unknown field `{}`", visible(unknown))));
                }
                let mut parts = vec![Content::text(spoken(text))];
                for path in &named {
                    parts.push(Content::Attachment(read_beneath(path, root)?));
                }
                parts
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => return Err(wrong("it is neither")),
        };
        parts.extend(attachments.into_iter().map(Content::Attachment));
        Ok(parts)
    }

    fn typed(self, agent: &AgentSpec, schema: &RawJson) -> Result<Vec<Content>, InputError> {
        let schema_value: Value = schema.to().unwrap_or(Value::Null);
        let violates = |violation: String| InputError::Violates {
            agent: agent.name.clone(),
            violation,
            schema: schema.get().to_owned(),
        };
        let (value, attachments) = match self {
            Self::Object { value, attachments } => (value, attachments),
            Self::Text(text) => (Value::String(text), Vec::new()),
            Self::Parts(parts) => split(parts),
        };
        let value = match value {
            Value::String(text) => fill_only_field(&schema_value, text)
                .ok_or_else(|| violates("a plain text needs exactly one required text field to fill".to_owned()))?,
            value => value,
        };
        json_schema::violation(&schema_value, &value).map_or(Ok(()), |violation| Err(violates(violation)))?;
        let text = render(agent, &schema_value, &value)?;
        let attachments = attachments.into_iter().map(Content::Attachment);
        Ok(std::iter::once(Content::text(spoken(text))).chain(attachments).collect())
    }
}

fn spoken(text: String) -> String {
    if text.trim().is_empty() { NO_INPUT.to_owned() } else { text }
}

/// Text parts joined, attachments apart.
fn split(parts: Vec<Content>) -> (Value, Vec<Attachment>) {
    let (mut texts, mut attachments) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Content::Text { text } => texts.push(text),
            Content::Attachment(attachment) => attachments.push(attachment),
        }
    }
    (Value::String(texts.join("\n")), attachments)
}

/// A bare text is meant for the one required text field, if there is exactly one required field.
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
    environment.render_str(template, minijinja::value::Serde(value)).map_err(failed)
}

/// A field that the schema declares and the input leaves out is empty; one that nobody declares is an error.
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

fn list_item(item: &Value, root: &Path) -> Result<Content, InputError> {
    match item {
        Value::String(text) => Ok(Content::text(spoken(text.clone()))),
        item => read_beneath(&item["attachment"], root).map(Content::Attachment),
    }
}

/// An attachment that an input names: beneath the project root, a regular file.
fn read_beneath(path: &Value, root: &Path) -> Result<Attachment, InputError> {
    let wrong = |name: &str, reason: String| InputError::Attachment { name: visible(name).into_owned(), reason };
    let Some(name) = path.as_str() else {
        return Err(wrong(&path.to_string(), "is not a path".to_owned()));
    };
    let failed = |error: Unopened| match error {
        Unopened::Missing => wrong(name, "does not exist".to_owned()),
        Unopened::Outside => wrong(name, "leads outside the project root".to_owned()),
        Unopened::NotRegular => wrong(name, "is not a regular file".to_owned()),
        Unopened::Io(error) => wrong(name, format!("cannot be read: {error}")),
    };
    let directory = Dir::open_ambient_dir(root, ambient_authority()).map_err(|error| failed(error.into()))?;
    let file = beneath::open(&directory, Path::new(name)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_ATTACHMENT + 1).read_to_end(&mut bytes).map_err(|error| failed(error.into()))?;
    attachment(Path::new(name), bytes)
}

/// No provider takes more in one request.
pub const LARGEST_ATTACHMENT: u64 = 64 * 1024 * 1024;

/// Files that are sent as what they are; the kind is told by content first, by ending second.
pub fn attachment(path: &Path, bytes: Vec<u8>) -> Result<Attachment, InputError> {
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let wrong = |reason: &str| InputError::Attachment {
        name: visible(&path.display().to_string()).into_owned(),
        reason: reason.to_owned(),
    };
    if bytes.len() as u64 > LARGEST_ATTACHMENT {
        return Err(wrong("is larger than 64 MiB"));
    }
    let by_content = infer::get(&bytes).map(|kind| kind.mime_type());
    let media_type = match by_content {
        Some(media @ ("image/png" | "image/jpeg" | "image/gif" | "image/webp" | "application/pdf")) => media,
        _ if str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0')) => text_media_type(path),
        _ => return Err(wrong("is neither text, nor an image (PNG, JPEG, GIF, WebP), nor a PDF")),
    };
    Ok(Attachment { name, media_type: media_type.to_owned(), data: Arc::from(bytes) })
}

fn text_media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("md" | "markdown") => "text/markdown",
        Some("csv") => "text/csv",
        Some("html" | "htm") => "text/html",
        Some("xml") => "text/xml",
        _ => "text/plain",
    }
}

fn check_policy(policy: &AttachmentPolicy, parts: &[Content]) -> Result<(), InputError> {
    let attachments: Vec<&Attachment> = parts
        .iter()
        .filter_map(|part| match part {
            Content::Attachment(attachment) => Some(attachment),
            Content::Text { .. } => None,
        })
        .collect();
    let refuse = |attachment: &Attachment, reason: String| {
        Err(InputError::Attachment { name: visible(&attachment.name).into_owned(), reason })
    };
    let mut total = 0;
    for (index, attachment) in attachments.iter().enumerate() {
        if index as u64 >= policy.max_attachments {
            return refuse(attachment, format!("is one too many: at most {} are taken", policy.max_attachments));
        }
        total += attachment.data.len() as u64;
        if total > policy.max_total_bytes {
            return refuse(
                attachment,
                format!("is too large: at most {} bytes are taken in all", policy.max_total_bytes),
            );
        }
        let name = attachment.name.to_lowercase();
        let ends = |suffixes: &[String]| suffixes.iter().any(|suffix| name.ends_with(suffix.as_str()));
        if ends(&policy.denied_suffixes) || !(policy.allowed_suffixes.is_empty() || ends(&policy.allowed_suffixes)) {
            return refuse(attachment, "has an ending that the agent does not take".to_owned());
        }
    }
    Ok(())
}

/// Attachments that a user names on the command line: anywhere, regular files.
pub fn read_named(path: &Path) -> Result<Attachment, InputError> {
    let wrong =
        |reason: String| InputError::Attachment { name: visible(&path.display().to_string()).into_owned(), reason };
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => wrong("does not exist".to_owned()),
        _ => wrong(format!("cannot be read: {error}")),
    })?;
    if !metadata.is_file() {
        return Err(wrong("is not a regular file".to_owned()));
    }
    let file = std::fs::File::open(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let mut bytes = Vec::new();
    file.take(LARGEST_ATTACHMENT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(format!("cannot be read: {error}")))?;
    attachment(path, bytes)
}
