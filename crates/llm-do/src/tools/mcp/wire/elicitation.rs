//! Questions of a server to a person: how they travel, and the form that a person fills in. Pure.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::escape::{visible_lines, visible_start};
use crate::message::RawJson;
use crate::tools::approval::{FieldType, Form, FormField};

/// What a person is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum ElicitParams {
    /// To fill in a form.
    Form {
        /// The question.
        message: String,
        /// The schema of what is wanted: an object of plain values.
        requested: RawJson,
    },
    /// To open an address, for what must not pass through the client.
    Url {
        /// The question.
        message: String,
        /// The address.
        url: String,
    },
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct SentElicitation {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requested_schema: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl ElicitParams {
    /// As a server says it. The error says what is wrong.
    pub fn read(params: &RawJson) -> Result<Self, String> {
        let SentElicitation { mode, message, requested_schema, url } =
            params.to().map_err(|error| crate::tools::mcp::protocol::in_short(&error))?;
        match (mode.as_deref(), requested_schema, url) {
            (None | Some("form"), Some(requested), _) => Ok(Self::Form { message, requested }),
            (Some("url"), _, Some(url)) => Ok(Self::Url { message, url }),
            (None | Some("form"), None, _) => Err("a form without a `requestedSchema`".to_owned()),
            (Some("url"), _, None) => Err("a question about an address without one".to_owned()),
            (Some(other), ..) => Err(format!("a question of the mode `{}`", visible_start(other, 40))),
        }
    }
}

impl Serialize for ElicitParams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sent = match self.clone() {
            Self::Form { message, requested } => {
                SentElicitation { mode: None, message, requested_schema: Some(requested), url: None }
            }
            Self::Url { message, url } => {
                SentElicitation { mode: Some("url".to_owned()), message, requested_schema: None, url: Some(url) }
            }
        };
        sent.serialize(serializer)
    }
}

/// What a person did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ElicitAction {
    /// They answered.
    Accept,
    /// They said no.
    Decline,
    /// They did not decide.
    Cancel,
}

/// An answer as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ElicitResult {
    /// What the person did.
    pub action: ElicitAction,
    /// What they filled in, if they answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<RawJson>,
}

impl ElicitResult {
    /// An answer without values.
    pub fn of(action: ElicitAction) -> Self {
        Self { action, content: None }
    }

    /// Values for a form.
    pub fn accepted(content: RawJson) -> Self {
        Self { action: ElicitAction::Accept, content: Some(content) }
    }
}

/// The schema that asks for what a form asks for.
pub fn schema_of(form: &Form) -> RawJson {
    let property = |field: &FormField| match field.kind {
        FieldType::Text => json!({"type": "string"}),
        FieldType::Choice => json!({"type": "string", "enum": field.options}),
        FieldType::Number => json!({"type": "number"}),
        FieldType::YesNo => json!({"type": "boolean"}),
    };
    let properties: Map<String, Value> =
        form.fields.iter().map(|field| (field.name.clone(), property(field))).collect();
    let required: Vec<&str> =
        form.fields.iter().filter(|field| field.required).map(|field| field.name.as_str()).collect();
    RawJson::of(&json!({"type": "object", "properties": properties, "required": required}))
}

/// A server's form as a person fills it in, and what becomes of the values.
#[derive(Clone, Debug, PartialEq)]
pub struct ElicitForm {
    /// What the person is shown, all of it in the server's words.
    pub form: Form,
    fields: Vec<ElicitField>,
}

/// One value that a server wants.
#[derive(Clone, Debug, PartialEq)]
struct ElicitField {
    name: String,
    kind: ElicitKind,
    default: Option<Value>,
    /// What can be chosen: as a person reads it, and as the server does.
    options: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElicitKind {
    Text,
    Number,
    Whole,
    YesNo,
    /// Several of the options.
    Several,
}

#[derive(Deserialize)]
struct SentSchema {
    // In the order of the names: JSON has no other that is kept.
    #[serde(default)]
    properties: std::collections::BTreeMap<String, SentField>,
    #[serde(default)]
    required: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentField {
    r#type: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(default)]
    r#enum: Vec<String>,
    #[serde(default)]
    enum_names: Vec<String>,
    #[serde(default)]
    one_of: Vec<SentOption>,
    items: Option<SentItems>,
    default: Option<Value>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    format: Option<String>,
}

#[derive(Clone, Deserialize)]
struct SentOption {
    r#const: String,
    title: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SentItems {
    #[serde(default)]
    r#enum: Vec<String>,
    #[serde(default)]
    any_of: Vec<SentOption>,
}

impl SentField {
    fn options(&self) -> Vec<(String, String)> {
        let items = self.items.as_ref();
        let plain = items.map_or(&self.r#enum, |items| &items.r#enum);
        let titled = items.map_or(&self.one_of, |items| &items.any_of);
        let plain = plain.iter().enumerate().map(|(index, value)| {
            let title = self.enum_names.get(index).unwrap_or(value);
            (title.clone(), value.clone())
        });
        let titled = titled.iter().cloned().map(|option| {
            let SentOption { r#const: value, title } = option;
            (title.unwrap_or_else(|| value.clone()), value)
        });
        let all: Vec<(String, String)> = plain.chain(titled).collect();
        let is_twice = |(index, (title, _)): (usize, &(String, String))| all[..index].iter().any(|(t, _)| t == title);
        // Titles that do not tell options apart are none.
        if all.iter().enumerate().any(is_twice) {
            return all.into_iter().map(|(_, value)| (value.clone(), value)).collect();
        }
        all
    }

    fn kind(&self) -> Option<ElicitKind> {
        Some(match self.r#type.as_str() {
            "string" => ElicitKind::Text,
            "number" => ElicitKind::Number,
            "integer" => ElicitKind::Whole,
            "boolean" => ElicitKind::YesNo,
            "array" if self.items.is_some() => ElicitKind::Several,
            _ => return None,
        })
    }

    /// What the server says of it, in one line.
    fn words(&self, name: &str, options: &[(String, String)], is_choice: bool) -> Option<String> {
        let said = [self.title.as_deref(), self.description.as_deref()];
        let mut words =
            said.into_iter().flatten().map(str::trim).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
        let mut notes = Vec::new();
        if !options.is_empty() && !is_choice {
            let titles: Vec<&str> = options.iter().map(|(title, _)| title.as_str()).collect();
            let several = if self.items.is_some() { "any of, separated by commas: " } else { "one of: " };
            notes.push(format!("{several}{}", titles.join(", ")));
        }
        match (self.minimum, self.maximum) {
            (Some(least), Some(most)) => notes.push(format!("{least} to {most}")),
            (Some(least), None) => notes.push(format!("at least {least}")),
            (None, Some(most)) => notes.push(format!("at most {most}")),
            (None, None) => {}
        }
        notes.extend(self.format.clone());
        if let Some(default) = &self.default {
            let shown = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            notes.push(format!("if left empty: {shown}"));
        }
        if !notes.is_empty() {
            let _ = write!(words, "{}({})", if words.is_empty() { "" } else { " " }, notes.join("; "));
        }
        (!words.is_empty()).then(|| format!("{name}: {words}"))
    }
}

impl ElicitForm {
    /// The form that a server asks to be filled in. The error says why nobody can.
    pub fn read(message: &str, requested: &RawJson) -> Result<Self, String> {
        let SentSchema { properties, required } =
            requested.to().map_err(|error| crate::tools::mcp::protocol::in_short(&error))?;
        let (mut form, mut fields) = (Form { question: visible_lines(message.trim()), fields: Vec::new() }, Vec::new());
        for (name, sent) in properties {
            let kind = sent
                .kind()
                .ok_or_else(|| format!("it asks for a value that no form has: `{}`", visible_start(&name, 40)))?;
            let options = sent.options();
            let field = |kind, options: &[(String, String)]| FormField {
                name: name.clone(),
                kind,
                options: options.iter().map(|(title, _)| title.clone()).collect(),
                required: required.contains(&name) && sent.default.is_none(),
            };
            let choice = field(FieldType::Choice, &options);
            let is_choice = kind == ElicitKind::Text && choice.can_be_chosen();
            let shown = match kind {
                ElicitKind::Text if is_choice => choice,
                ElicitKind::Text | ElicitKind::Several => field(FieldType::Text, &[]),
                ElicitKind::Number | ElicitKind::Whole => field(FieldType::Number, &[]),
                ElicitKind::YesNo => field(FieldType::YesNo, &[]),
            };
            if let Some(words) = sent.words(&name, &options, is_choice) {
                let _ = write!(form.question, "\n{}", visible_lines(&words));
            }
            form.fields.push(shown);
            fields.push(ElicitField { name, kind, default: sent.default, options });
        }
        Ok(Self { form, fields })
    }

    /// What is sent of the values that a person filled in: of what they left empty, the server's default.
    pub fn content(&self, values: &RawJson) -> Result<RawJson, String> {
        let mut given: Map<String, Value> = values.to().map_err(|_| "values are an object".to_owned())?;
        let mut content = Map::new();
        for field in &self.fields {
            let value = match given.remove(&field.name) {
                Some(value) => Some(field.sent(value)?),
                None => field.default.clone(),
            };
            content.extend(value.map(|value| (field.name.clone(), value)));
        }
        Ok(RawJson::of(&content))
    }
}

impl ElicitField {
    fn sent(&self, value: Value) -> Result<Value, String> {
        let text = value.as_str();
        match self.kind {
            ElicitKind::Several => {
                let parts = text.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty());
                parts.map(|part| self.chosen(part)).collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            ElicitKind::Text if !self.options.is_empty() => self.chosen(text.unwrap_or_default()),
            ElicitKind::Whole if value.as_i64().is_none() && value.as_u64().is_none() => {
                Err(format!("`{}` takes a whole number", self.name))
            }
            ElicitKind::Text | ElicitKind::Number | ElicitKind::Whole | ElicitKind::YesNo => Ok(value),
        }
    }

    fn chosen(&self, text: &str) -> Result<Value, String> {
        let option = self.options.iter().find(|(title, value)| title == text || value == text);
        let option = option.or_else(|| self.options.iter().find(|(title, _)| title.eq_ignore_ascii_case(text)));
        option.map(|(_, value)| json!(value)).ok_or_else(|| format!("`{}` has no option `{text}`", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(properties: &Value, required: &Value) -> ElicitForm {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        ElicitForm::read("Which?\u{1b}", &RawJson::of(&schema)).unwrap()
    }

    #[test]
    fn questions_travel_both_ways() {
        for params in [
            ElicitParams::Form { message: "Who?".into(), requested: RawJson::of(&json!({"type": "object"})) },
            ElicitParams::Url { message: "Pay".into(), url: "https://pay.example/1".into() },
        ] {
            assert_eq!(ElicitParams::read(&RawJson::of(&params)), Ok(params));
        }
        let explicit = json!({"mode": "form", "message": "m", "requestedSchema": {}});
        assert!(matches!(ElicitParams::read(&RawJson::of(&explicit)), Ok(ElicitParams::Form { .. })));
        for wrong in
            [json!({"message": "m"}), json!({"mode": "url", "message": "m"}), json!({"mode": "x", "message": "m"})]
        {
            assert!(ElicitParams::read(&RawJson::of(&wrong)).is_err(), "{wrong}");
        }
        let declined = RawJson::of(&ElicitResult::of(ElicitAction::Decline));
        assert_eq!(declined.get(), r#"{"action":"decline"}"#);
    }

    #[test]
    fn a_form_says_what_the_server_says_and_nothing_hidden() {
        let asked = form(
            &json!({
                "age": {"type": "integer", "title": "Age", "minimum": 1, "maximum": 150, "default": 30},
                "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
                "mail": {"type": "string", "description": "where to", "format": "email"},
                "ok": {"type": "boolean"},
                "parts": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A!"}, {"const": "b", "title": "B"}]}},
            }),
            &json!(["age", "mail"]),
        );
        let expected = "Which?\\u{1b}\nage: Age (1 to 150; if left empty: 30)\nmail: where to (email)\nparts: (any of, separated by commas: A!, B)";
        assert_eq!(asked.form.question, expected);
        let fields: Vec<_> =
            asked.form.fields.iter().map(|field| (field.name.as_str(), field.kind, field.required)).collect();
        let (text, choice, number, yes) = (FieldType::Text, FieldType::Choice, FieldType::Number, FieldType::YesNo);
        assert_eq!(
            fields,
            [
                ("age", number, false),
                ("colour", choice, false),
                ("mail", text, true),
                ("ok", yes, false),
                ("parts", text, false)
            ]
        );
        let values = RawJson::of(&json!({"colour": "Green", "mail": "x@y", "parts": "A!, b"}));
        let content: Value = asked.content(&values).unwrap().to().unwrap();
        assert_eq!(content, json!({"age": 30, "colour": "g", "mail": "x@y", "parts": ["a", "b"]}));
        assert!(asked.content(&RawJson::of(&json!({"age": 1.5}))).is_err());
        assert!(asked.content(&RawJson::of(&json!({"parts": "C"}))).is_err());
    }

    #[test]
    fn our_own_forms_can_be_asked_for_and_read_back() {
        let field = |name: &str, kind, options: &[&str], required| FormField {
            name: name.into(),
            kind,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            required,
        };
        let fields = vec![
            field("a", FieldType::Text, &[], true),
            field("b", FieldType::Choice, &["x", "y"], true),
            field("c", FieldType::Number, &[], false),
            field("d", FieldType::YesNo, &[], true),
        ];
        let ours = Form { question: "Which?".into(), fields };
        assert_eq!(ElicitForm::read("Which?", &schema_of(&ours)).unwrap().form, ours);
    }

    #[test]
    fn what_no_form_has_is_refused() {
        for property in [json!({"type": "object"}), json!({"type": "array"}), json!({}), json!(7)] {
            let schema = json!({"type": "object", "properties": {"a": property}});
            assert!(ElicitForm::read("m", &RawJson::of(&schema)).is_err(), "{schema}");
        }
    }
}
