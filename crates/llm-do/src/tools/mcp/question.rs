//! What a server asks of a person while a tool of it runs: a question like any other, in the server's words.

use hyper::Uri;
use serde_json::Value;

use super::wire::elicitation::{ElicitAction, ElicitForm, ElicitParams, ElicitResult};
use crate::escape::visible_start;
use crate::json_schema;
use crate::message::RawJson;
use crate::tools::approval::{FieldType, Form, FormAnswer, FormField, Question};
use crate::tools::plane::InDoubt;
use crate::tools::{CallContext, Ending};

/// How often a person is asked again whose values the server's own schema does not take.
const MOST_TIMES: usize = 3;
const LONGEST_ADDRESS: usize = 1_500;
/// The answer to a question about an address.
const DONE: &str = "done";

/// What became of a question of a server.
pub(super) enum ElicitOutcome {
    /// It has an answer.
    Answered(ElicitResult),
    /// Nobody is there, and nobody could come back to the call.
    Nobody,
    /// It can be put to nobody, for this reason.
    Unaskable(String),
}

/// Puts a question of a server to a person. Each time it is asked is a step beneath this place.
pub(super) async fn put(
    server: &str,
    call: &InDoubt,
    params: &ElicitParams,
    place: (usize, usize),
    cx: &CallContext<'_>,
) -> Result<ElicitOutcome, Ending> {
    let asked = match prepared(params) {
        Ok(asked) => asked,
        Err(reason) => return Ok(ElicitOutcome::Unaskable(reason)),
    };
    let (round, number) = place;
    let mut wrong: Option<String> = None;
    for attempt in 0..MOST_TIMES {
        let steps = cx.steps.at(format_args!("q{round}.{number}.{attempt}"));
        let mut form = asked.form().clone();
        if let Some(wrong) = &wrong {
            form.question = format!("{}\n(the last answer does not do: {wrong})", form.question);
        }
        let question = Question {
            reason: format!("the MCP server `{server}` asks, in its own words:"),
            form: Some(form),
            ..Question::default()
        };
        let values = match cx.plane.fill_in(call, question, &steps, cx).await? {
            None => return Ok(ElicitOutcome::Nobody),
            Some(FormAnswer::Declined(_)) => {
                return Ok(ElicitOutcome::Answered(ElicitResult::of(ElicitAction::Decline)));
            }
            Some(FormAnswer::Filled(values)) => values,
        };
        match asked.answered(&values).await {
            Ok(result) => return Ok(ElicitOutcome::Answered(result)),
            Err(reason) => wrong = Some(visible_start(&reason, 300).into_owned()),
        }
    }
    Ok(ElicitOutcome::Answered(ElicitResult::of(ElicitAction::Cancel)))
}

/// A question as a person is asked it.
enum PreparedElicitation {
    Form { form: ElicitForm, schema: RawJson },
    Address(Form),
}

fn prepared(params: &ElicitParams) -> Result<PreparedElicitation, String> {
    let prepared = match params {
        ElicitParams::Form { message, requested } => {
            let form = ElicitForm::read(message, requested)?;
            PreparedElicitation::Form { form, schema: requested.clone() }
        }
        ElicitParams::Url { message, url } => PreparedElicitation::Address(address(message, url)?),
    };
    prepared.form().check()?;
    Ok(prepared)
}

/// The host stands first: it is what a person judges an address by. Nothing of it is fetched here.
fn address(message: &str, url: &str) -> Result<Form, String> {
    if url.len() > LONGEST_ADDRESS {
        return Err(format!("its address has more than {LONGEST_ADDRESS} bytes"));
    }
    let parsed: Uri = url.parse().map_err(|_| "its address is none".to_owned())?;
    crate::http::check_confidential(url)?;
    let host = parsed.host().unwrap_or_default();
    let (message, url) = (visible_start(message.trim(), 400), visible_start(url, LONGEST_ADDRESS));
    let question = format!("{message}\nat {}\nopen {url}", visible_start(host, 253));
    let done = FormField { name: DONE.to_owned(), kind: FieldType::YesNo, options: Vec::new(), required: true };
    Ok(Form { question, fields: vec![done] })
}

impl PreparedElicitation {
    fn form(&self) -> &Form {
        match self {
            Self::Form { form, .. } => &form.form,
            Self::Address(form) => form,
        }
    }

    /// What is sent of the values; an error is what is wrong with them in the words of the server's schema.
    async fn answered(&self, values: &RawJson) -> Result<ElicitResult, String> {
        match self {
            Self::Form { form, schema } => {
                let content = form.content(values)?;
                let schema: Value = schema.to().map_err(|error| error.to_string())?;
                let value: Value = content.to().map_err(|error| error.to_string())?;
                match json_schema::violation(&schema, &value).await {
                    None => Ok(ElicitResult::accepted(content)),
                    Some(violation) => Err(violation),
                }
            }
            Self::Address(_) => {
                let values: Value = values.to().map_err(|error| error.to_string())?;
                let action = if values[DONE] == true { ElicitAction::Accept } else { ElicitAction::Decline };
                Ok(ElicitResult::of(action))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_whole_with_its_host_first() {
        let form = address("Pay for it", "https://pay.example.com/x?y=1").unwrap();
        assert_eq!(form.question, "Pay for it\nat pay.example.com\nopen https://pay.example.com/x?y=1");
        for wrong in ["javascript:alert(1)", "http://pay.example.com/", "https://user@pay.example.com/", "file:///x"] {
            assert!(address("m", wrong).is_err(), "{wrong}");
        }
    }
}
