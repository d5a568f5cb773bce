//! What users and tools hand over, in the few shapes that providers know.

use std::borrow::Cow;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::message::{Arguments, Attachment, Content, RawJson};

/// A piece of content as a model can see it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VisibleContent<'a> {
    Text(Cow<'a, str>),
    Image(&'a Attachment),
    Pdf(&'a Attachment),
}

/// Text files go as text under their name. What no provider reads was refused long before; here it is named at least.
pub(crate) fn shown(content: &Content) -> VisibleContent<'_> {
    let file = match content {
        Content::Text { text } | Content::Value { json: text } => return VisibleContent::Text(Cow::Borrowed(text)),
        Content::Attachment(file) => file,
    };
    match (file.media_type.as_str(), str::from_utf8(&file.data)) {
        ("image/png" | "image/jpeg" | "image/gif" | "image/webp", _) => VisibleContent::Image(file),
        ("application/pdf", _) => VisibleContent::Pdf(file),
        (_, Ok(text)) => VisibleContent::Text(format!("<file name={:?}>\n{text}\n</file>", file.name).into()),
        (kind, Err(_)) => {
            VisibleContent::Text(format!("[the file {:?} of type {kind} cannot be shown]", file.name).into())
        }
    }
}

/// Bytes as base64, written without a detour.
pub(crate) struct Base64<'a>(pub &'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &BASE64))
    }
}

/// A file as a `data:` URL.
pub(crate) struct DataUrl<'a>(pub &'a Attachment);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = Base64Display::new(&self.0.data, &BASE64);
        serializer.collect_str(&format_args!("data:{};base64,{data}", self.0.media_type))
    }
}

/// Arguments as the JSON object that providers insist on. What the model wrote wrong it sees again, but as a string.
pub(crate) fn arguments_object(arguments: &Arguments) -> Cow<'_, RawJson> {
    #[derive(Serialize)]
    struct MalformedArguments<'a> {
        malformed_arguments: &'a str,
    }
    match arguments {
        Arguments::Object(object) => Cow::Borrowed(object),
        Arguments::Malformed(text) => Cow::Owned(RawJson::of(&MalformedArguments { malformed_arguments: text })),
    }
}

/// Whether providers enforce the schema: they insist that every object lists its properties and excludes others.
/// `required` says which of the properties must be listed as required.
pub(crate) fn is_strict(schema: &RawJson, required: RequiredProperties) -> bool {
    schema.to::<Value>().is_ok_and(|schema| strict(&schema, required))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredProperties {
    All,
    Any,
}

// The depth is bounded: the JSON parser refuses deeper nesting than 128.
fn strict(schema: &Value, required: RequiredProperties) -> bool {
    match schema {
        Value::Object(fields) => {
            let listed = |name: &String| match fields.get("required") {
                Some(Value::Array(names)) => names.iter().any(|known| known == name),
                Some(_) | None => false,
            };
            let closed = fields.get("additionalProperties") == Some(&Value::Bool(false));
            let complete = match fields.get("properties") {
                Some(Value::Object(properties)) => required == RequiredProperties::Any || properties.keys().all(listed),
                Some(_) | None => true,
            };
            let is_object =
                fields.get("type").is_some_and(|kind| kind == "object") || fields.contains_key("properties");
            (!is_object || (closed && complete)) && fields.values().all(|value| strict(value, required))
        }
        Value::Array(values) => values.iter().all(|value| strict(value, required)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Asks in words for an output that the provider cannot be asked for otherwise.
pub(crate) fn with_schema(instructions: &str, schema: &RawJson) -> String {
    let request = format!(
        "Your final answer must be one JSON value, without any text around it, that satisfies this JSON Schema:\n{}",
        schema.get()
    );
    if instructions.is_empty() { request } else { format!("{instructions}\n\n{request}") }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn file(name: &str, media_type: &str, data: &[u8]) -> Content {
        Content::Attachment(Attachment {
            name: name.into(),
            path: None,
            media_type: media_type.into(),
            data: Arc::from(data),
        })
    }

    #[test]
    fn files_are_shown_by_what_they_are() {
        assert!(matches!(shown(&file("a.png", "image/png", b"\x89PNG")), VisibleContent::Image(_)));
        assert!(matches!(shown(&file("a.pdf", "application/pdf", b"%PDF")), VisibleContent::Pdf(_)));
        let cases = [
            (Content::text("hi"), "hi"),
            (file("a.csv", "text/csv", b"1,2"), "<file name=\"a.csv\">\n1,2\n</file>"),
            (file("a.svg", "image/svg+xml", b"<svg/>"), "<file name=\"a.svg\">\n<svg/>\n</file>"),
            (file("a.bin", "application/zip", b"\xff"), "[the file \"a.bin\" of type application/zip cannot be shown]"),
        ];
        for (content, expected) in cases {
            assert_eq!(shown(&content), VisibleContent::Text(expected.into()));
        }
    }

    #[test]
    fn a_schema_is_strict_if_every_object_in_it_is_closed() {
        let cases = [
            (r#"{"type":"string"}"#, true, true),
            (r#"{"type":"object"}"#, false, false),
            (r#"{"type":"object","additionalProperties":false}"#, true, true),
            (r#"{"properties":{"a":{}},"additionalProperties":false}"#, true, false),
            (r#"{"properties":{"a":{}},"required":["a"],"additionalProperties":false}"#, true, true),
            (r#"{"anyOf":[{"type":"object","properties":{}}]}"#, false, false),
        ];
        for (schema, any, all) in cases {
            let schema = RawJson::parse(schema).unwrap();
            assert_eq!(
                (is_strict(&schema, RequiredProperties::Any), is_strict(&schema, RequiredProperties::All)),
                (any, all),
                "{schema:?}"
            );
        }
    }
}
