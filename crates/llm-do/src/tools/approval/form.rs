//! Questions that want more than yes or no: what a person is asked to fill in, and which values are an answer. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Answer;
use crate::escape::deceives;
use crate::message::RawJson;
use crate::syntax::names;

/// What a person is asked to fill in. All words of it are those of whoever asks, an agent or a server: a front end shows them
/// as theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// What is asked.
    pub question: String,
    /// What there is to fill in, in this order.
    pub fields: Vec<FormField>,
}

/// One thing to fill in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FormField {
    /// A short name, which is also that of the value in the answer.
    pub name: String,
    /// What kind of value is wanted; without it, a text.
    #[serde(rename = "type", default)]
    pub kind: FieldType,
    /// What can be chosen, if it is a choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Whether it must be filled in; if nothing is said, it must.
    #[serde(default = "yes")]
    pub required: bool,
}

fn yes() -> bool {
    true
}

/// What kind of value a field takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// Any words.
    #[default]
    Text,
    /// One of the options.
    Choice,
    /// A number.
    Number,
    /// Yes or no.
    YesNo,
}

/// Whether an answer is of the kind that a question takes: values that fit if it has a form, else yes or no. Any can be refused.
pub(crate) fn check_kind(answer: &Answer, form: Option<&Form>) -> Result<(), String> {
    match (answer, form) {
        (Answer::Values(values), Some(form)) => form.judged(values).map(drop),
        (Answer::Values(_), None) => Err("this question is answered by yes or no, and not by values".to_owned()),
        (Answer::Once | Answer::CallForSession | Answer::ToolForSession | Answer::Edited(_), Some(_)) => {
            Err("this question is answered by values, and not by yes".to_owned())
        }
        (Answer::Once | Answer::CallForSession | Answer::ToolForSession | Answer::Edited(_), None)
        | (Answer::Refuse { .. } | Answer::EndRun | Answer::Later, _) => Ok(()),
    }
}

/// What a person made of a form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FormAnswer {
    /// An object with the values, by the names of the fields.
    Filled(RawJson),
    /// They did not want to, perhaps for this reason.
    Declined(Option<String>),
}

const MOST_FIELDS: usize = 8;
const MOST_OPTIONS: usize = 20;
/// In characters, as are the others.
const LONGEST_QUESTION: usize = 2_000;
const LONGEST_NAME: usize = 40;
const LONGEST_OPTION: usize = 100;
const LONGEST_VALUE: usize = 64 * 1024;

impl Form {
    /// Why nobody can be asked to fill it in.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { question, fields } = self;
        if question.trim().is_empty() {
            return Err("the question is empty".to_owned());
        }
        if question.chars().count() > LONGEST_QUESTION {
            return Err(format!("the question is longer than {LONGEST_QUESTION} characters"));
        }
        if fields.is_empty() || fields.len() > MOST_FIELDS {
            return Err(format!("a form has 1 to {MOST_FIELDS} fields, and this one has {}", fields.len()));
        }
        for (index, field) in fields.iter().enumerate() {
            field.check()?;
            if fields[..index].iter().any(|other| other.name == field.name) {
                return Err(format!("two fields have the name `{}`", field.name));
            }
        }
        Ok(())
    }

    /// The answer that values are, as a person typed them, each by the name of its field; or what is wrong with them.
    #[cfg(feature = "front-end")]
    pub(crate) fn answer(&self, typed: &[(String, String)]) -> Result<Answer, String> {
        let mut values = Map::new();
        for (name, text) in typed {
            let field = self.field(name)?;
            if let Some(value) = field.read(text)?
                && values.insert(name.clone(), value).is_some()
            {
                return Err(format!("`{name}` is given twice"));
            }
        }
        self.complete(&values)?;
        Ok(Answer::Values(RawJson::of(&values)))
    }

    /// What becomes of the form by an answer, however it was given: what is no answer to it declines it.
    pub(crate) fn answered(&self, answer: Answer) -> FormAnswer {
        let values = match answer {
            Answer::Values(values) => values,
            Answer::Refuse { reason } => return FormAnswer::Declined(reason),
            Answer::Once
            | Answer::CallForSession
            | Answer::ToolForSession
            | Answer::Edited(_)
            | Answer::EndRun
            | Answer::Later => return FormAnswer::Declined(Some("it was answered without values".to_owned())),
        };
        match self.judged(&values) {
            Ok(values) => FormAnswer::Filled(values),
            Err(wrong) => FormAnswer::Declined(Some(format!("the values do not fit: {wrong}"))),
        }
    }

    /// The values as they count, or what is wrong with them.
    pub(crate) fn judged(&self, values: &RawJson) -> Result<RawJson, String> {
        let given: Map<String, Value> = values.to().map_err(|_| "values are an object".to_owned())?;
        let mut values = Map::new();
        for (name, value) in given {
            let field = self.field(&name)?;
            let value = match value {
                Value::Null => None,
                Value::String(text) => field.read(&text)?,
                Value::Array(_) | Value::Object(_) => return Err(format!("`{name}` takes no lists and no objects")),
                value @ (Value::Bool(_) | Value::Number(_)) => field.read(&value.to_string())?,
            };
            values.extend(value.map(|value| (name, value)));
        }
        self.complete(&values)?;
        Ok(RawJson::of(&values))
    }

    fn field(&self, name: &str) -> Result<&FormField, String> {
        self.fields.iter().find(|field| field.name == name).ok_or_else(|| {
            let instead = names::instead(name, "fields", self.fields.iter().map(|field| field.name.as_str()));
            format!("there is no field `{name}`; {instead}")
        })
    }

    /// Nothing that is required may be missing.
    fn complete(&self, values: &Map<String, Value>) -> Result<(), String> {
        let missing = self.fields.iter().filter(|field| field.required && !values.contains_key(&field.name));
        let missing: Vec<String> = missing.map(|field| format!("`{}` ({})", field.name, field.takes())).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("still to fill in: {}", missing.join(", "))) }
    }
}

impl FormField {
    fn check(&self) -> Result<(), String> {
        let Self { name, kind, options, .. } = self;
        let begins = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let is_name = begins && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
        if !is_name || name.chars().count() > LONGEST_NAME || name.chars().any(deceives) {
            return Err(format!(
                "a field's name has at most {LONGEST_NAME} letters, digits, `_` and `-`, and begins with a letter"
            ));
        }
        match (kind, options.len()) {
            (FieldType::Choice, found) if !(2..=MOST_OPTIONS).contains(&found) => {
                return Err(format!("`{name}` is a choice: it needs 2 to {MOST_OPTIONS} options, and has {found}"));
            }
            (FieldType::Choice, _) | (_, 0) => {}
            (FieldType::Text | FieldType::Number | FieldType::YesNo, _) => {
                return Err(format!("`{name}` has options, so its type must be `choice`"));
            }
        }
        for (index, option) in options.iter().enumerate() {
            let is_plain = option.trim() == option && !option.is_empty() && !option.chars().any(deceives);
            if !is_plain || option.chars().count() > LONGEST_OPTION {
                return Err(format!(
                    "each option of `{name}` is one line of at most {LONGEST_OPTION} characters without blanks around it"
                ));
            }
            if options[..index].contains(option) {
                return Err(format!("`{name}` has two options that are the same"));
            }
        }
        Ok(())
    }

    /// Whether it is a choice that a form can have.
    pub(crate) fn can_be_chosen(&self) -> bool {
        self.kind == FieldType::Choice && self.check().is_ok()
    }

    /// The value that a text means; `None` if nothing was filled in. An error says what is wanted.
    #[cfg(feature = "front-end")]
    pub fn value(&self, text: &str) -> Result<Option<Value>, String> {
        self.read(text)
    }

    fn read(&self, text: &str) -> Result<Option<Value>, String> {
        let (name, trimmed) = (&self.name, text.trim());
        if trimmed.is_empty() {
            return Ok(None);
        }
        let wrong = || format!("`{name}` takes {}", self.takes());
        let value = match self.kind {
            FieldType::Text if text.chars().count() > LONGEST_VALUE => {
                return Err(format!("`{name}` takes at most {LONGEST_VALUE} characters"));
            }
            FieldType::Text => Value::String(text.to_owned()),
            FieldType::Choice => Value::String(self.chosen(trimmed).ok_or_else(wrong)?.to_owned()),
            FieldType::Number => number(trimmed).ok_or_else(wrong)?,
            FieldType::YesNo => match trimmed.to_lowercase().as_str() {
                "yes" | "y" | "true" => Value::Bool(true),
                "no" | "n" | "false" => Value::Bool(false),
                _ => return Err(wrong()),
            },
        };
        Ok(Some(value))
    }

    /// An option as it stands there, else whatever its capitals, else by its number.
    fn chosen(&self, text: &str) -> Option<&str> {
        let same = |option: &&String| option.to_lowercase() == text.to_lowercase();
        let exact = self.options.iter().find(|option| *option == text);
        let option = exact.or_else(|| self.options.iter().find(same)).or_else(|| {
            let number: usize = text.parse().ok()?;
            self.options.get(number.checked_sub(1)?)
        });
        option.map(String::as_str)
    }

    /// What it takes, in words. Options are words of whoever asks.
    #[cfg(feature = "front-end")]
    pub fn wanted(&self) -> String {
        self.takes()
    }

    fn takes(&self) -> String {
        match self.kind {
            FieldType::Text => "a text".to_owned(),
            FieldType::Choice => format!("one of {}", self.options.join(", ")),
            FieldType::Number => "a number".to_owned(),
            FieldType::YesNo => "yes or no".to_owned(),
        }
    }

    /// A value that it takes, as an example.
    #[cfg(feature = "front-end")]
    pub fn example(&self) -> &str {
        match self.kind {
            FieldType::Text => "TEXT",
            FieldType::Choice => self.options.first().map_or("", String::as_str),
            FieldType::Number => "1",
            FieldType::YesNo => "yes",
        }
    }
}

/// Whole numbers stay whole.
fn number(text: &str) -> Option<Value> {
    let whole = text.parse::<i64>().ok().map(Value::from);
    let is_written_plainly = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    whole.or_else(|| text.parse::<f64>().ok().filter(|_| is_written_plainly).and_then(number_of))
}

fn number_of(number: f64) -> Option<Value> {
    serde_json::Number::from_f64(number).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(name: &str, kind: FieldType, options: &[&str], required: bool) -> FormField {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        FormField { name: name.to_owned(), kind, options, required }
    }

    fn form() -> Form {
        let fields = vec![
            field("crane", FieldType::Choice, &["Blue", "red", "2"], true),
            field("days", FieldType::Number, &[], true),
            field("insured", FieldType::YesNo, &[], false),
            field("note", FieldType::Text, &[], false),
        ];
        Form { question: "Which crane?".to_owned(), fields }
    }

    fn typed(text: &str) -> Result<RawJson, String> {
        let values = text.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (name, value) = part.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        });
        let values: Map<String, Value> = values.map(|(name, value)| (name, Value::String(value))).collect();
        form().judged(&RawJson::of(&values))
    }

    #[test]
    fn values_are_what_the_fields_take() {
        for (text, expected) in [
            ("crane=red&days=3", json!({"crane": "red", "days": 3})),
            (
                "crane=BLUE&days=2.5&insured=y&note= as it is ",
                json!({"crane": "Blue", "days": 2.5, "insured": true, "note": " as it is "}),
            ),
            // What is an option is meant before what is the number of one.
            ("crane=2&days=-1e3&insured=no", json!({"crane": "2", "days": -1000.0, "insured": false})),
            ("crane=1&days=0&insured=&note=  ", json!({"crane": "Blue", "days": 0})),
        ] {
            assert_eq!(typed(text).unwrap().to::<Value>().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (text, wrong) in [
            ("", "still to fill in: `crane` (one of Blue, red, 2), `days` (a number)"),
            ("crane=red", "still to fill in: `days` (a number)"),
            ("crane=green&days=3", "`crane` takes one of Blue, red, 2"),
            ("crane=4&days=3", "`crane` takes one of Blue, red, 2"),
            ("crane=0&days=3", "`crane` takes one of Blue, red, 2"),
            ("crane=red&days=three", "`days` takes a number"),
            ("crane=red&days=inf", "`days` takes a number"),
            ("crane=red&days=1e999", "`days` takes a number"),
            ("crane=red&days=3&insured=maybe", "`insured` takes yes or no"),
        ] {
            assert_eq!(typed(text).unwrap_err(), wrong, "{text}");
        }
        assert!(typed("cran=red&days=3").unwrap_err().contains("did you mean `crane`?"));
        let judged = |values: Value| form().judged(&RawJson::of(&values));
        assert_eq!(judged(json!([1])).unwrap_err(), "values are an object");
        assert_eq!(judged(json!({"crane": ["red"]})).unwrap_err(), "`crane` takes no lists and no objects");
        let plain = judged(json!({"crane": "red", "days": 3, "insured": true, "note": null})).unwrap();
        assert_eq!(plain.to::<Value>().unwrap(), json!({"crane": "red", "days": 3, "insured": true}));
    }

    #[test]
    fn a_form_that_nobody_could_fill_in_is_none() {
        let with = |change: fn(&mut Form)| {
            let mut form = form();
            change(&mut form);
            form.check().unwrap_err()
        };
        assert_eq!(form().check(), Ok(()));
        for (wrong, words) in [
            (with(|form| form.question = " \n".to_owned()), "the question is empty"),
            (with(|form| form.question = "x".repeat(2_001)), "longer than 2000"),
            (with(|form| form.fields.clear()), "1 to 8 fields"),
            (with(|form| form.fields = vec![form.fields[1].clone(); 9]), "this one has 9"),
            (with(|form| form.fields[1].name = "crane".to_owned()), "two fields have the name `crane`"),
            (with(|form| form.fields[1].name = "a=b".to_owned()), "a field's name"),
            (with(|form| form.fields[1].name = "x".repeat(41)), "a field's name"),
            (with(|form| form.fields[0].options.truncate(1)), "needs 2 to 20 options, and has 1"),
            (with(|form| form.fields[1].options = vec!["a".to_owned()]), "its type must be `choice`"),
            (with(|form| form.fields[0].options[1] = "a\u{202e}b".to_owned()), "each option"),
            (with(|form| form.fields[0].options[1] = " a".to_owned()), "each option"),
            (with(|form| form.fields[0].options[1] = "Blue".to_owned()), "two options"),
        ] {
            assert!(wrong.contains(words), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_answer_to_a_form_declines_it() {
        let answered = |answer| form().answered(answer);
        let refused = Answer::Refuse { reason: Some("later".to_owned()) };
        assert_eq!(answered(refused), FormAnswer::Declined(Some("later".to_owned())));
        assert_eq!(answered(Answer::Refuse { reason: None }), FormAnswer::Declined(None));
        for answer in [Answer::Once, Answer::ToolForSession, Answer::Edited(RawJson::of(&json!({})))] {
            assert!(matches!(answered(answer), FormAnswer::Declined(Some(_))));
        }
        let unfit = answered(Answer::Values(RawJson::of(&json!({"days": 3}))));
        assert!(matches!(unfit, FormAnswer::Declined(Some(why)) if why.contains("still to fill in: `crane`")));
        let fit = json!({"crane": "red", "days": 3});
        assert_eq!(answered(Answer::Values(RawJson::of(&fit))), FormAnswer::Filled(RawJson::of(&fit)));
    }
}
