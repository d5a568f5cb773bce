//! What a client asks, row by row. Pure.

use llm_do::messages::{Attachment, Reply, of_base64};
use llm_do::{Content, Input, Message};
use serde_json::Value;

use super::wrong;
use crate::error::ApiError;

/// A request that can be answered.
#[derive(Debug)]
pub struct ClientRequest {
    /// `project/agent`.
    pub model: String,
    pub talk: ClientTalk,
    /// The longest answer, in tokens.
    pub max_tokens: Option<u64>,
    /// Whether the answer is to have a form of its own.
    pub has_format: bool,
    /// Settings that are the agent's, and were given.
    pub ignored: Vec<String>,
    pub is_streamed: bool,
    /// Whether a stream ends with what it took.
    pub wants_usage: bool,
}

/// What was said.
#[derive(Debug)]
pub struct ClientTalk {
    /// The last message.
    pub said: Input,
    /// What the client says beside the agent's instructions.
    pub client_words: Option<String>,
    /// What was said before.
    pub history: Vec<Message>,
}

/// What is read here, and so is not ignored.
const KNOWN: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
    "stream",
    "stream_options",
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "n",
];
/// What says nothing about the answer.
const SILENT: &[&str] = &["user", "metadata", "store", "safety_identifier", "prompt_cache_key"];

impl ClientRequest {
    pub fn of(asked: &Value) -> Result<Self, ApiError> {
        let fields = asked.as_object().ok_or_else(|| ApiError::wrong("the body is no object"))?;
        let is_given = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
        let model = asked["model"].as_str().ok_or_else(|| wrong("model", "`model` is missing"))?.to_owned();
        for name in ["tools", "functions"] {
            if is_given(name) && asked[name].as_array().is_none_or(|tools| !tools.is_empty()) {
                return Err(wrong(name, format!("`{name}`: the tools are the project's")));
            }
        }
        if is_given("n") && asked["n"] != 1 {
            return Err(wrong("n", "`n`: an agent gives one answer"));
        }
        let longest = ["max_completion_tokens", "max_tokens"].into_iter().find(|name| is_given(name));
        let max_tokens = longest.map(|name| {
            let number = asked[name].as_u64().filter(|number| *number > 0);
            number.ok_or_else(|| wrong(name, format!("`{name}` is a whole number above 0")))
        });
        let has_format = is_given("response_format") && asked["response_format"]["type"] != "text";
        let is_ignored =
            |name: &&String| is_given(name) && !KNOWN.contains(&name.as_str()) && !SILENT.contains(&name.as_str());
        // They stand in a header.
        let is_plain = |name: &&String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        Ok(Self {
            talk: ClientTalk::of(asked.get("messages"))?,
            max_tokens: max_tokens.transpose()?,
            has_format,
            ignored: fields.keys().filter(is_ignored).filter(is_plain).cloned().collect(),
            is_streamed: asked["stream"].as_bool().unwrap_or(false),
            wants_usage: asked["stream_options"]["include_usage"].as_bool().unwrap_or(false),
            model,
        })
    }
}

impl ClientTalk {
    fn of(messages: Option<&Value>) -> Result<Self, ApiError> {
        let of_talk = |message: String| wrong("messages", message);
        let messages =
            messages.and_then(Value::as_array).ok_or_else(|| of_talk("`messages` are missing".to_owned()))?;
        let (mut client_words, mut history, mut pending): (Vec<String>, Vec<Message>, Vec<Content>) =
            Default::default();
        for (place, message) in messages.iter().enumerate() {
            match message["role"].as_str() {
                Some("system" | "developer") => client_words.push(text_of(&message["content"], place)?),
                Some("user") => pending.extend(parts_of(&message["content"], place)?),
                Some("assistant") => {
                    if message
                        .get("tool_calls")
                        .is_some_and(|calls| !calls.is_null() && calls != &Value::Array(Vec::new()))
                    {
                        return Err(of_talk(format!("messages[{place}]: calls of tools are the project's")));
                    }
                    if pending.is_empty() {
                        return Err(of_talk(format!("messages[{place}]: an answer without a message before it")));
                    }
                    history.push(user(std::mem::take(&mut pending)));
                    let text = text_of(&message["content"], place)?;
                    history.push(Message::Assistant(Reply::answer(&"client:history", text)));
                }
                Some("tool" | "function") => {
                    return Err(of_talk(format!("messages[{place}]: results of tools are the project's")));
                }
                _ => return Err(of_talk(format!("messages[{place}]: `role` is user, assistant, system or developer"))),
            }
        }
        let said = match pending.as_slice() {
            [] => return Err(of_talk("the last message is not the user's".to_owned())),
            [Content::Text { text }] => Input::Text(text.clone()),
            _ => Input::Parts(pending),
        };
        let client_words = (!client_words.is_empty()).then(|| client_words.join("\n\n"));
        Ok(Self { said, client_words, history })
    }
}

fn user(parts: Vec<Content>) -> Message {
    let mut message = Message::user(String::new());
    if let Message::User(said) = &mut message {
        said.parts = parts;
    }
    message
}

fn text_of(content: &Value, place: usize) -> Result<String, ApiError> {
    let parts = parts_of(content, place)?;
    let text = parts.into_iter().map(|part| match part {
        Content::Text { text } => Ok(text),
        Content::Value { .. } | Content::Attachment(_) => {
            Err(wrong("messages", format!("messages[{place}]: only text can stand there")))
        }
    });
    Ok(text.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn parts_of(content: &Value, place: usize) -> Result<Vec<Content>, ApiError> {
    match content {
        Value::String(text) => Ok(vec![Content::text(text)]),
        Value::Array(parts) => parts.iter().map(|part| part_of(part, place)).collect(),
        Value::Null => Ok(vec![Content::text("")]),
        _ => Err(wrong("messages", format!("messages[{place}]: `content` is a text, or a list of parts"))),
    }
}

fn part_of(part: &Value, place: usize) -> Result<Content, ApiError> {
    let unknown = || wrong("messages", format!("messages[{place}]: a part is `text`, `image_url` or `file`"));
    match part["type"].as_str() {
        Some("text") => part["text"].as_str().map(Content::text).ok_or_else(unknown),
        Some("image_url") => {
            let address =
                part["image_url"].as_str().or_else(|| part["image_url"]["url"].as_str()).ok_or_else(unknown)?;
            attached("picture", address, place).map(Content::Attachment)
        }
        Some("file") => {
            let name = part["file"]["filename"].as_str().unwrap_or("file");
            let address = part["file"]["file_data"].as_str().ok_or_else(unknown)?;
            attached(name, address, place).map(Content::Attachment)
        }
        _ => Err(unknown()),
    }
}

/// What is sent with the request itself. Nothing is ever fetched.
fn attached(name: &str, address: &str, place: usize) -> Result<Attachment, ApiError> {
    let fact = |what: &str| wrong("messages", format!("messages[{place}]: {what}"));
    let rest =
        address.strip_prefix("data:").ok_or_else(|| fact("only `data:` addresses are taken; nothing is fetched"))?;
    let (_, data) = rest.split_once(";base64,").ok_or_else(|| fact("a `data:` address has base64"))?;
    of_base64(name, data).map_err(|error| fact(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(messages: &Value) -> Result<ClientTalk, String> {
        ClientTalk::of(Some(messages)).map_err(|error| error.message)
    }

    #[test]
    fn the_last_message_is_said_and_the_others_are_history() {
        let talk = of(&json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "Two."},
            {"role": "developer", "content": [{"type": "text", "text": "And kind."}]},
            {"role": "user", "content": "Three?"},
        ]))
        .unwrap();
        assert_eq!(talk.client_words.as_deref(), Some("Be brief.\n\nAnd kind."));
        assert_eq!(talk.history.len(), 2);
        assert!(matches!(talk.said, Input::Text(text) if text == "Three?"));
    }

    #[test]
    fn what_cannot_be_answered_is_refused_with_its_place() {
        for (messages, expected) in [
            (json!([]), "the last message is not the user's"),
            (
                json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]),
                "the last message is not the user's",
            ),
            (json!([{"role": "assistant", "content": "b"}]), "messages[0]: an answer without a message before it"),
            (json!([{"role": "tool", "content": "b"}]), "messages[0]: results of tools are the project's"),
            (json!([{"role": "king", "content": "b"}]), "messages[0]: `role` is user, assistant, system or developer"),
            (json!([{"role": "user", "content": 1}]), "messages[0]: `content` is a text, or a list of parts"),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}]}]),
                "messages[0]: only `data:` addresses are taken; nothing is fetched",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]),
                "messages[0]: only `data:` addresses are taken; nothing is fetched",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_audio"}]}]),
                "messages[0]: a part is `text`, `image_url` or `file`",
            ),
        ] {
            assert_eq!(of(&messages).unwrap_err(), expected, "{messages}");
        }
    }

    #[test]
    fn settings_of_the_agent_are_named_as_ignored() {
        let request = ClientRequest::of(&json!({
            "model": "p/a", "messages": [{"role": "user", "content": "x"}],
            "temperature": 0.5, "seed": 1, "user": "ann", "max_tokens": 7, "stop": null,
        }))
        .unwrap();
        assert_eq!(request.ignored, ["seed", "temperature"]);
        assert_eq!(request.max_tokens, Some(7));
        for (field, value) in
            [("tools", json!([{}])), ("functions", json!([{}])), ("max_tokens", json!(0)), ("n", json!(2))]
        {
            let mut asked = json!({"model": "p/a", "messages": [{"role": "user", "content": "x"}]});
            asked[field] = value;
            assert_eq!(ClientRequest::of(&asked).unwrap_err().more["param"], field);
        }
    }
}
