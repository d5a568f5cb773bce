//! A question as a form that a client of MCP can show, and what was filled in as an answer. Pure.

use std::collections::BTreeSet;

use llm_do::approval::{FieldType, Form, FormField, Memory, PendingQuestion};
use llm_do::questions::OpenQuestion;
use llm_do::{Answer, RawJson};
use llm_do_launch::question::{self, QuestionNumber};
use serde_json::{Map, Value, json};

/// Whoever would have to read more than this says no, or answers on this machine.
const LONGEST_MESSAGE: usize = 8 * 1024;

/// Whether a question may be put to a client: one that always asks wants a person on this machine, since a client may fill in
/// its forms by itself. What an agent of ours wants to know is no permission; what a server elsewhere asks is for a person.
pub fn is_for_client(asked: &OpenQuestion) -> bool {
    let is_of_agent = asked.request.question.form.is_some() && asked.request.tool == "ask_user";
    is_of_agent || asked.request.memory != Memory::Nothing
}

/// What `elicitation/create` says: the words, and a form.
pub fn elicitation(asked: &OpenQuestion, wrong: Option<&str>) -> Value {
    let request = &asked.request;
    let before = wrong.map(|wrong| format!("{wrong}\n\n")).unwrap_or_default();
    if let Some(form) = &request.question.form {
        return json!({"mode": "form", "message": format!("{before}{}", form.question), "requestedSchema": of_form(form)});
    }
    let lines = question::lines(request, QuestionNumber { number: 1, of: None });
    let words: Vec<String> = lines.into_iter().map(|line| line.text).collect();
    let words = words.join("\n");
    if words.len() > LONGEST_MESSAGE {
        let end = (0..=LONGEST_MESSAGE).rev().find(|end| words.is_char_boundary(*end)).unwrap_or(0);
        let message = format!(
            "{before}{}…\n\nThis is too long to be agreed to here: answer no, or answer on the machine that asks.",
            &words[..end]
        );
        return json!({"mode": "form", "message": message, "requestedSchema": of_call(Memory::Nothing, &["no"])});
    }
    let schema = of_call(request.memory, &["once", "no"]);
    json!({"mode": "form", "message": format!("{before}{words}"), "requestedSchema": schema})
}

/// As it is named to whoever answers it on this machine.
pub fn pending_of(asked: &OpenQuestion) -> PendingQuestion {
    let request = &asked.request;
    PendingQuestion {
        id: request.id.clone(),
        path: request.path.clone(),
        tool: request.tool.clone(),
        arguments: request.arguments.clone(),
        reason: request.question.reason.clone(),
        preview: None,
        shows: Vec::new(),
        edits: None,
        rule: None,
        foreign: None,
        form: request.question.form.clone(),
    }
}

/// What can be answered about a call.
fn of_call(memory: Memory, least: &[&str]) -> Value {
    let remembered: &[&str] = match memory {
        Memory::Nothing => &[],
        Memory::CallOnly => &["call"],
        Memory::CallOrTool => &["call", "tool"],
    };
    let mut words: Vec<&str> = least.to_vec();
    let before_no = words.len().saturating_sub(1);
    words.splice(before_no..before_no, remembered.iter().copied());
    let told = "once: yes, this time. call: this exact call until the run ends. tool: this tool until the run ends. no: refuse it";
    let mut fields = Map::new();
    fields
        .insert("answer".to_owned(), json!({"type": "string", "title": "Answer", "description": told, "enum": words}));
    let reason = json!({"type": "string", "title": "Reason", "description": "with no: what the agent reads"});
    fields.insert("reason".to_owned(), reason);
    if least.contains(&"once") {
        let told = "with once: other arguments for the call, as JSON";
        fields.insert("arguments".to_owned(), json!({"type": "string", "title": "Arguments", "description": told}));
    }
    json!({"type": "object", "properties": fields, "required": ["answer"]})
}

fn of_form(form: &Form) -> Value {
    let field = |field: &FormField| {
        let schema = match field.kind {
            FieldType::Text => json!({"type": "string"}),
            FieldType::Choice => json!({"type": "string", "enum": field.options}),
            FieldType::Number => json!({"type": "number"}),
            FieldType::YesNo => json!({"type": "boolean"}),
        };
        (field.name.clone(), schema)
    };
    let fields: Map<String, Value> = form.fields.iter().map(field).collect();
    let required: Vec<&str> = form.fields.iter().filter(|field| field.required).map(|it| it.name.as_str()).collect();
    json!({"type": "object", "properties": fields, "required": required})
}

/// What a client gave back for a question.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientAnswer {
    Given(Answer),
    /// It is left to others.
    Open,
    /// It is asked again, for this reason.
    Again(String),
}

/// What texts by their fields answer.
type ByValues<'a> = dyn Fn(&[(String, String)]) -> Result<Answer, String> + Sync + 'a;

/// What is known of a question when its answer is read, whichever process asked it.
pub struct AnsweredForm<'a> {
    pub form: Option<&'a Form>,
    /// Texts by their fields, as the question reads them.
    pub by_values: &'a ByValues<'a>,
}

/// Reads `{action, content}`.
pub fn answer(asked: &AnsweredForm<'_>, response: &Value) -> ClientAnswer {
    let content = response.get("content").and_then(Value::as_object);
    match (response.get("action").and_then(Value::as_str), asked.form, content) {
        (Some("decline"), ..) => ClientAnswer::Given(Answer::Refuse { reason: None }),
        (Some("cancel"), ..) => ClientAnswer::Open,
        (Some("accept"), Some(_), content) => {
            let content = content.cloned().unwrap_or_default();
            let given = content.iter().filter(|(_, value)| !value.is_null());
            let values: Vec<(String, String)> = given.map(|(name, value)| (name.clone(), text_of(value))).collect();
            (asked.by_values)(&values).map_or_else(ClientAnswer::Again, ClientAnswer::Given)
        }
        (Some("accept"), None, Some(content)) => of_content(content),
        _ => ClientAnswer::Again("the form was not filled in: `answer` is missing".to_owned()),
    }
}

fn of_content(content: &Map<String, Value>) -> ClientAnswer {
    let text = |name: &str| content.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
    let known = BTreeSet::from(["answer", "reason", "arguments"]);
    if let Some(unknown) = content.keys().find(|name| !known.contains(name.as_str())) {
        return ClientAnswer::Again(format!("there is no field `{}`", llm_do::escape::visible(unknown)));
    }
    let edited = match text("arguments").map(|text| (RawJson::parse(text), text)) {
        None => None,
        Some((Ok(edited), text)) if text.starts_with('{') => Some(edited),
        Some(_) => return ClientAnswer::Again("`arguments` is no JSON object".to_owned()),
    };
    let answer = match (text("answer"), edited) {
        (Some("once"), Some(edited)) => Answer::Edited(edited),
        (Some("once"), None) => Answer::Once,
        (Some("call"), None) => Answer::CallForSession,
        (Some("tool"), None) => Answer::ToolForSession,
        (Some("no"), None) => Answer::Refuse { reason: text("reason").map(str::to_owned) },
        (Some("call" | "tool" | "no"), Some(_)) => {
            return ClientAnswer::Again("`arguments` belong to the answer `once`".to_owned());
        }
        (Some(_), _) => return ClientAnswer::Again("`answer` is one of `once`, `call`, `tool`, `no`".to_owned()),
        (None, _) => return ClientAnswer::Again("`answer` is missing".to_owned()),
    };
    ClientAnswer::Given(answer)
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: &Value) -> ClientAnswer {
        answer(&AnsweredForm { form: None, by_values: &|_| Err("no form".to_owned()) }, response)
    }

    #[test]
    fn each_answer_of_a_client_means_one_thing() {
        let given = |content: Value| read(&json!({"action": "accept", "content": content}));
        let refused = |reason: Option<&str>| ClientAnswer::Given(Answer::Refuse { reason: reason.map(str::to_owned) });
        let cases = [
            (given(json!({"answer": "once"})), ClientAnswer::Given(Answer::Once)),
            (given(json!({"answer": "call", "reason": ""})), ClientAnswer::Given(Answer::CallForSession)),
            (given(json!({"answer": "tool", "arguments": " "})), ClientAnswer::Given(Answer::ToolForSession)),
            (given(json!({"answer": "no", "reason": "not now"})), refused(Some("not now"))),
            (given(json!({"answer": "no"})), refused(None)),
            (
                given(json!({"answer": "once", "arguments": "{\"path\": \"b\"}"})),
                ClientAnswer::Given(Answer::Edited(RawJson::parse("{\"path\": \"b\"}").unwrap())),
            ),
            (read(&json!({"action": "decline"})), refused(None)),
            (read(&json!({"action": "decline", "content": {"answer": "once"}})), refused(None)),
            (read(&json!({"action": "cancel", "content": {"answer": "once"}})), ClientAnswer::Open),
        ];
        for (read, meant) in cases {
            assert_eq!(read, meant);
        }
    }

    #[test]
    fn what_is_no_answer_is_asked_again_and_never_taken_for_a_yes() {
        let contents = [
            json!({}),
            json!({"answer": ""}),
            json!({"answer": "yes"}),
            json!({"answer": true}),
            json!({"answer": ["once"]}),
            json!({"answer": "ONCE"}),
            json!({"answer": "once", "arguments": "[1]"}),
            json!({"answer": "once", "arguments": "{"}),
            json!({"answer": "no", "arguments": "{}"}),
            json!({"answer": "once", "approve": true}),
            json!({"reason": "once"}),
        ];
        for content in contents {
            let read = read(&json!({"action": "accept", "content": content}));
            assert!(matches!(read, ClientAnswer::Again(_)), "{content}: {read:?}");
        }
        for response in [json!({}), json!(null), json!("accept"), json!({"action": "accept"}), json!({"action": "yes"})]
        {
            assert!(matches!(read(&response), ClientAnswer::Again(_)), "{response}");
        }
    }

    #[test]
    fn no_is_always_offered_and_nothing_is_chosen_beforehand() {
        for (memory, words) in [
            (Memory::Nothing, json!(["once", "no"])),
            (Memory::CallOnly, json!(["once", "call", "no"])),
            (Memory::CallOrTool, json!(["once", "call", "tool", "no"])),
        ] {
            let schema = of_call(memory, &["once", "no"]);
            assert_eq!(schema["properties"]["answer"]["enum"], words);
            assert!(schema["properties"]["answer"].get("default").is_none());
        }
        let long = of_call(Memory::Nothing, &["no"]);
        assert_eq!(long["properties"]["answer"]["enum"], json!(["no"]));
        assert!(long["properties"].get("arguments").is_none());
    }
}
