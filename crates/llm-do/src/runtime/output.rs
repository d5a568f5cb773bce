//! Typed answers: always judged here, whatever the provider promises.

use serde_json::Value;

use super::Output;
use crate::escape::visible_start;
use crate::json_schema;
use crate::judgement;
use crate::message::{RawJson, repeated_key, unfenced};
use crate::project::Typing;
use crate::tools::python::PythonHost;

/// The answer as its agent declares it, or what is wrong with it.
pub(crate) async fn judge(typing: &Typing, text: &str, python: Option<&PythonHost>) -> Result<Output, String> {
    let json = unfenced(text);
    let schema = match (typing, python) {
        (Typing::Schema(schema), _) => schema,
        (Typing::Python(class), Some(python)) => {
            return python.validate(&class.reference, json).await.map(Output::Value);
        }
        (Typing::Untyped | Typing::Python(_), _) => return Ok(Output::Text(text.to_owned())),
    };
    if json.len() > judgement::LARGEST_VALUE {
        return Err(format!("it is longer than {} MiB", judgement::LARGEST_VALUE >> 20));
    }
    let value: Value = serde_json::from_str(json).map_err(|error| format!("it is not JSON: {error}"))?;
    if let Some(key) = repeated_key(json) {
        return Err(format!("it has the key `{}` twice", visible_start(&key, 80)));
    }
    match json_schema::violation(&schema.to().unwrap_or(Value::Null), &value).await {
        Some(violation) => Err(violation),
        None => Ok(Output::Value(RawJson::from_valid(json.to_owned()))),
    }
}

/// What the model reads when its answer is sent back.
pub(crate) fn repair_request(violation: &str) -> String {
    format!(
        "Your answer does not satisfy the required JSON Schema. {violation}. Answer again with the corrected JSON only."
    )
}

/// What the model reads when its answer was cut before its end.
pub(crate) const SHORTEN_REQUEST: &str =
    "Your answer was cut off, because it is longer than allowed. Answer again with all of the JSON, and be brief.";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_must_satisfy_its_schema() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
        let typing = Typing::Schema(RawJson::parse(schema).unwrap());
        assert_eq!(judge(&Typing::Untyped, "hi", None).await, Ok(Output::Text("hi".into())));
        for text in [r#"{"n": 1}"#, "```json\n{\"n\": 1}\n```", "  {\"n\": 1}\n"] {
            assert_eq!(
                judge(&typing, text, None).await,
                Ok(Output::Value(RawJson::parse(r#"{"n": 1}"#).unwrap())),
                "{text}"
            );
        }
        let cases = [
            ("sorry", "it is not JSON"),
            (r#"{"n": "one", "n": 1}"#, "it has the key `n` twice"),
            (r#"{"n": "one"}"#, "`/n`: \"one\" is not of type \"integer\""),
            ("{}", "`n` is missing"),
        ];
        for (text, violation) in cases {
            let found = judge(&typing, text, None).await.unwrap_err();
            assert!(found.starts_with(violation), "{found}");
        }
    }
}
