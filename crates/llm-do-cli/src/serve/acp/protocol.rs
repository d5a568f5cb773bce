//! The words of ACP, version 1: what is offered, asked and given back. Pure.

use llm_do::approval::{ApprovalMode, Memory};
use llm_do::escape::visible;
use llm_do::messages::Finish;
use llm_do::questions::OpenQuestion;
use llm_do::toolsets::Ending;
use llm_do::{Answer, Content, Input, RunError, messages};
use llm_do_launch::question::{self, QuestionNumber};
use serde_json::{Value, json};

use super::update::{text_content, title};

/// What `initialize` is answered, whichever version was asked for.
pub fn initialized() -> Value {
    json!({
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": true, "embeddedContext": true},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
        },
        "agentInfo": {"name": "llm-do", "version": env!("CARGO_PKG_VERSION")},
        "authMethods": [],
    })
}

/// What a client asks for between two turns, and before the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionChoices {
    pub agent: Option<String>,
    pub model: Option<String>,
    pub rejects_all: bool,
}

/// What can be chosen, and what is.
pub fn config_options(chosen: &SessionChoices, entry: &str, agents: &[String], models: &[String]) -> Value {
    let option = |value: &str| json!({"value": value, "name": value});
    let agent = chosen.agent.as_deref().unwrap_or(entry);
    let model = chosen.model.as_deref().unwrap_or(DEFAULT_MODEL);
    let models = std::iter::once(DEFAULT_MODEL).chain(models.iter().map(String::as_str));
    let mut models: Vec<&str> = models.collect();
    if !models.contains(&model) {
        models.push(model);
    }
    json!([
        {
            "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": model,
            "options": models.into_iter().map(option).collect::<Vec<_>>(),
        },
        {
            "id": "agent", "name": "Agent", "description": "who answers; chosen before the first prompt", "type": "select",
            "currentValue": agent, "options": agents.iter().map(|agent| option(agent)).collect::<Vec<_>>(),
        },
        {
            "id": "approval", "name": "Questions", "description": "chosen before the first prompt", "type": "select",
            "currentValue": if chosen.rejects_all { "reject" } else { "ask" },
            "options": [{"value": "ask", "name": "Ask"}, {"value": "reject", "name": "Answer all with no"}],
        },
    ])
}

/// The model that files and settings name.
pub const DEFAULT_MODEL: &str = "default";

pub fn approval_mode(chosen: &SessionChoices) -> Option<ApprovalMode> {
    chosen.rejects_all.then_some(ApprovalMode::RejectAll)
}

/// What a prompt says; or what of it cannot be used.
pub fn input(prompt: &Value) -> Result<Input, String> {
    let blocks = prompt.as_array().filter(|blocks| !blocks.is_empty()).ok_or("`prompt` is a list of content")?;
    let text = |block: &Value, key: &str| block.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut parts = Vec::new();
    for block in blocks {
        let part = match block.get("type").and_then(Value::as_str) {
            Some("text") => Content::Text { text: text(block, "text").ok_or("a text has no `text`")? },
            Some("image") => {
                let data = text(block, "data").ok_or("an image has no `data`")?;
                let kind = text(block, "mimeType").unwrap_or_default();
                let ending = kind.rsplit('/').next().unwrap_or("png").to_owned();
                let picture =
                    messages::of_base64(&format!("image.{ending}"), &data).map_err(|error| error.to_string())?;
                Content::Attachment(picture)
            }
            Some("resource") => {
                let resource = block.get("resource").unwrap_or(&Value::Null);
                let words = text(resource, "text").ok_or("of embedded resources only text is taken")?;
                let name = text(resource, "uri").unwrap_or_default();
                Content::Text { text: format!("<file name=\"{}\">\n{words}\n</file>", visible(&name)) }
            }
            Some("resource_link") => Content::Text { text: format!("@{}", text(block, "uri").unwrap_or_default()) },
            Some(other) => return Err(format!("content of the type `{}` is not taken", visible(other))),
            None => return Err("content has a `type`".to_owned()),
        };
        parts.push(part);
    }
    match parts.as_slice() {
        [Content::Text { text }] => Ok(Input::Text(text.clone())),
        _ => Ok(Input::Parts(parts)),
    }
}

/// How a turn ended, in the word of the protocol; and what is said besides.
pub fn stop_reason(answer: Result<Option<Finish>, &RunError>, is_cancelled: bool) -> (&'static str, Option<String>) {
    match answer {
        Ok(Some(Finish::Length | Finish::ContextWindow)) => ("max_tokens", None),
        Ok(Some(Finish::ContentFilter)) => ("refusal", None),
        Ok(Some(Finish::Stop | Finish::ToolCalls | Finish::Pause | Finish::Error) | None) => ("end_turn", None),
        Err(_) if is_cancelled => ("cancelled", None),
        Err(RunError::Cancelled { .. }) => ("cancelled", None),
        Err(error @ (RunError::Limit { limit, .. } | RunError::Ended(Ending::Limit { limit, .. }))) => {
            let reason = if limit == "max_requests" { "max_turn_requests" } else { "end_turn" };
            (reason, Some(error.to_string()))
        }
        Err(error @ RunError::Ended(Ending::NeedsApproval(_))) => ("end_turn", Some(error.to_string())),
        Err(error) => ("end_turn", Some(format!("error: {error}"))),
    }
}

/// What `session/request_permission` says.
pub fn permission(session: &str, asked: &OpenQuestion) -> Value {
    let request = &asked.request;
    let lines = question::lines(request, QuestionNumber { number: 1, of: None });
    let words: Vec<String> = lines.into_iter().map(|line| line.text).collect();
    let until = "until this session ends";
    let mut options = vec![json!({"optionId": "once", "name": "Yes, once", "kind": "allow_once"})];
    if request.memory != Memory::Nothing {
        let name = format!("Yes, and {} {until}", question::coverage(request, false));
        options.push(json!({"optionId": "call", "name": name, "kind": "allow_always"}));
    }
    if request.memory == Memory::CallOrTool {
        let name = format!("Yes, and {} {until}", question::coverage(request, true));
        options.push(json!({"optionId": "tool", "name": name, "kind": "allow_always"}));
    }
    options.push(json!({"optionId": "no", "name": "No", "kind": "reject_once"}));
    let agent = request.path.last().map_or("", String::as_str);
    json!({
        "sessionId": session,
        "toolCall": {
            "toolCallId": format!("question-{}", llm_do::approval::short_id(&request.id)),
            "title": title(agent, &request.tool, &request.arguments),
            "status": "pending",
            "content": [text_content(&words.join("\n"))],
            "rawInput": request.arguments.to::<Value>().unwrap_or_default(),
        },
        "options": options,
    })
}

/// What was chosen; anything that was not offered is no.
pub fn permitted(response: &Value) -> Answer {
    let outcome = response.get("outcome").unwrap_or(&Value::Null);
    let option = outcome.get("optionId").and_then(Value::as_str);
    match (outcome.get("outcome").and_then(Value::as_str), option) {
        (Some("selected"), Some("once")) => Answer::Once,
        (Some("selected"), Some("call")) => Answer::CallForSession,
        (Some("selected"), Some("tool")) => Answer::ToolForSession,
        _ => Answer::Refuse { reason: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_chosen_is_no() {
        let selected = |option: &str| permitted(&json!({"outcome": {"outcome": "selected", "optionId": option}}));
        assert_eq!(selected("once"), Answer::Once);
        assert_eq!(selected("call"), Answer::CallForSession);
        assert_eq!(selected("tool"), Answer::ToolForSession);
        let no = Answer::Refuse { reason: None };
        for option in ["no", "", "allow", "ONCE"] {
            assert_eq!(selected(option), no, "{option}");
        }
        for response in [
            json!({"outcome": {"outcome": "cancelled"}}),
            json!({"outcome": {"outcome": "cancelled", "optionId": "once"}}),
            json!({"optionId": "once"}),
            json!(null),
            json!({"outcome": "selected"}),
        ] {
            assert_eq!(permitted(&response), no, "{response}");
        }
    }

    #[test]
    fn a_prompt_is_made_of_its_blocks() {
        let said = |prompt: Value| input(&prompt).map(|input| input.to_json().get().to_owned());
        assert_eq!(said(json!([{"type": "text", "text": "hi"}])), Ok("\"hi\"".to_owned()));
        let with_file = said(json!([
            {"type": "text", "text": "look"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource_link", "uri": "file:///b.txt", "name": "b"},
        ]));
        let with_file = with_file.unwrap();
        assert!(with_file.contains("inside") && with_file.contains("@file:///b.txt"), "{with_file}");
        for wrong in
            [json!([]), json!("hi"), json!([{"type": "audio", "data": ""}]), json!([{"type": "text"}]), json!([{}])]
        {
            assert!(input(&wrong).is_err(), "{wrong}");
        }
    }
}
