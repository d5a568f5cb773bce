//! Conversation → the growing part of the request body.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::items::{Fields, Wrapping, shown_fields};
use super::opening::opening;
use crate::message::{
    Content, Message, RawJson, Reply, ReplyPart, ServerToolPart, TextPart, ToolCall, ToolMessage, ToolResult, quoted,
};
use crate::model::Head;
use crate::model::body::{BodyTail, Elements, RequestBody};
use crate::model::call_ids::CallIds;
use crate::model::content::{DataUrl, VisibleContent, arguments_object, shown};
use crate::model::protocol::{CallIdForm, Encoder};

pub(crate) struct ResponsesEncoder {
    body: RequestBody,
    tail: BodyTail,
    provider: String,
    call_ids: CallIds,
}

impl ResponsesEncoder {
    pub(crate) fn new(head: &Head) -> Self {
        let body = opening(head).open_array("input");
        let tail = BodyTail::new("]", "max_output_tokens", head.settings.max_tokens, "}");
        Self { body, tail, provider: head.model.provider.clone(), call_ids: CallIds::new(CallIdForm::Word) }
    }
}

impl Encoder for ResponsesEncoder {
    fn push(&mut self, message: &Message) {
        match message {
            Message::User(message) => self.body.push(|elements| elements.add(&user(&message.parts))),
            Message::Assistant(reply) if reply.is_from(&self.provider) => {
                self.body.push(|elements| own_reply(reply, elements));
            }
            Message::Assistant(reply) => {
                reply.tool_calls().for_each(|call| self.call_ids.adopt(&call.id));
                let call_ids = &self.call_ids;
                self.body.push(|elements| foreign_reply(reply, call_ids, elements));
            }
            Message::Tool(message) => {
                let call_ids = &self.call_ids;
                self.body.push(|elements| tool_results(message, call_ids, elements));
            }
        }
    }

    fn messages(&self) -> usize {
        self.body.messages()
    }

    fn truncate(&mut self, messages: usize) {
        self.body.truncate(messages);
    }

    fn body(&mut self, longest_answer: Option<u64>) -> Bytes {
        self.body.lend(&self.tail.text(longest_answer))
    }
}

#[derive(Serialize)]
struct UserMessage<'a> {
    role: &'static str,
    content: Input<'a>,
}

/// What a user says or a tool returns.
#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Text(#[serde(serialize_with = "quoted")] Cow<'a, str>),
    Parts(Vec<InputPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum InputPart<'a> {
    #[serde(rename = "input_text")]
    Text {
        #[serde(serialize_with = "quoted")]
        text: Cow<'a, str>,
    },
    #[serde(rename = "input_image")]
    Image { image_url: DataUrl<'a> },
    #[serde(rename = "input_file")]
    File { filename: &'a str, file_data: DataUrl<'a> },
}

fn user(parts: &[Content]) -> UserMessage<'_> {
    let mut parts: Vec<InputPart<'_>> = parts.iter().map(input_part).collect();
    let content = match parts.as_mut_slice() {
        [InputPart::Text { text }] => Input::Text(std::mem::take(text)),
        _ => Input::Parts(parts),
    };
    UserMessage { role: "user", content }
}

fn input_part(content: &Content) -> InputPart<'_> {
    match shown(content) {
        VisibleContent::Text(text) => InputPart::Text { text },
        VisibleContent::Image(file) => InputPart::Image { image_url: DataUrl(file) },
        VisibleContent::Pdf(file) => InputPart::File { filename: &file.name, file_data: DataUrl(file) },
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum NewItem<'a> {
    Message { role: &'static str, content: Vec<OutputText<'a>> },
    FunctionCall { call_id: &'a str, name: &'a str, arguments: Cow<'a, str> },
    FunctionCallOutput { call_id: &'a str, output: Input<'a> },
}

#[derive(Serialize)]
struct OutputText<'a> {
    r#type: &'static str,
    #[serde(serialize_with = "quoted")]
    text: &'a str,
}

fn tool_results(message: &ToolMessage, call_ids: &CallIds, elements: &mut Elements<'_>) {
    for result in &message.parts {
        let call_id = call_ids.on_wire(&result.id);
        elements.add(&NewItem::FunctionCallOutput { call_id, output: output(result) });
    }
}

fn output(result: &ToolResult) -> Input<'_> {
    let parts = match &result.outcome {
        Ok(parts) => parts,
        Err(error) => return Input::Text(format!("Error: {error}").into()),
    };
    let parts: Vec<InputPart<'_>> = parts.iter().map(input_part).collect();
    let text = |part: &InputPart<'_>| match part {
        InputPart::Text { text } => Some(text.to_string()),
        InputPart::Image { .. } | InputPart::File { .. } => None,
    };
    // A list is needed for files only, and not every server knows it.
    match parts.iter().map(text).collect::<Option<Vec<String>>>() {
        Some(texts) => Input::Text(texts.join("\n").into()),
        None => Input::Parts(parts),
    }
}

/// Of another provider's reply, what it said and what it called.
fn foreign_reply(reply: &Reply, call_ids: &CallIds, elements: &mut Elements<'_>) {
    for part in &reply.parts {
        match part {
            ReplyPart::Text(TextPart { text, .. }) | ReplyPart::Refusal(TextPart { text, .. }) => {
                add_new_message(text, elements);
            }
            ReplyPart::ToolCall(call) => elements.add(&NewItem::FunctionCall {
                call_id: call_ids.on_wire(&call.id),
                name: &call.tool,
                arguments: arguments_text(call),
            }),
            ReplyPart::Thinking(_) | ReplyPart::ServerTool(_) => {}
        }
    }
}

fn add_new_message(text: &str, elements: &mut Elements<'_>) {
    if !text.trim().is_empty() {
        let content = vec![OutputText { r#type: "output_text", text }];
        elements.add(&NewItem::Message { role: "assistant", content });
    }
}

fn arguments_text(call: &ToolCall) -> Cow<'_, str> {
    match arguments_object(&call.arguments) {
        Cow::Borrowed(object) => Cow::Borrowed(object.get()),
        Cow::Owned(object) => Cow::Owned(object.get().to_owned()),
    }
}

/// An item as it came, with what its part shows put back into it.
type OwnItem<'a> = BTreeMap<Cow<'a, str>, Field<'a>>;

#[derive(Serialize)]
#[serde(untagged)]
enum Field<'a> {
    Raw(&'a RawValue),
    Shown(&'a RawJson),
    Text(Cow<'a, str>),
    Content(Vec<OwnItem<'a>>),
}

fn own_reply(reply: &Reply, elements: &mut Elements<'_>) {
    // Thinking that led to nothing, because the reply was cut off there, is refused.
    let end = reply.parts.iter().rposition(|part| !matches!(part, ReplyPart::Thinking(_))).map_or(0, |last| last + 1);
    let mut rest = &reply.parts[..end];
    while let [part, after @ ..] = rest {
        rest = after;
        match part {
            ReplyPart::Text(_) | ReplyPart::Refusal(_) => rest = own_message(part, after, elements),
            ReplyPart::Thinking(part) => part.private.iter().for_each(|item| elements.add(item)),
            ReplyPart::ToolCall(call) => elements.add(&own_call(call)),
            ReplyPart::ServerTool(part) => own_server_tool(part).iter().for_each(|item| elements.add(item)),
        }
    }
}

/// Writes the message that a part belongs to, and leaves the parts behind it.
fn own_message<'a>(first: &ReplyPart, after: &'a [ReplyPart], elements: &mut Elements<'_>) -> &'a [ReplyPart] {
    let Some((Wrapping { item, .. }, content)) = own_content(first) else {
        if let ReplyPart::Text(part) | ReplyPart::Refusal(part) = first {
            add_new_message(&part.text, elements);
        }
        return after;
    };
    let same = |wrapping: &Wrapping<'_>| item.iter().map(raw_field).eq(wrapping.item.iter().map(raw_field));
    let more = after.iter().map_while(own_content).take_while(|(wrapping, _)| same(wrapping));
    let content: Vec<OwnItem<'_>> = [content].into_iter().chain(more.map(|(_, content)| content)).collect();
    let rest = &after[content.len() - 1..];
    let mut message = own_fields(item);
    message.insert("content".into(), Field::Content(content));
    elements.add(&message);
    rest
}

/// What a text or a refusal of ours is wrapped in, and its content part.
fn own_content(part: &ReplyPart) -> Option<(Wrapping<'_>, OwnItem<'_>)> {
    let (name, TextPart { text, private }) = match part {
        ReplyPart::Text(part) => ("text", part),
        ReplyPart::Refusal(part) => ("refusal", part),
        ReplyPart::Thinking(_) | ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) => return None,
    };
    let Wrapping { item, part } = serde_json::from_str(private.as_ref()?.get()).ok()?;
    let mut content = own_fields(part);
    content.insert(name.into(), Field::Text(text.into()));
    Some((Wrapping { item, ..Wrapping::default() }, content))
}

fn raw_field<'a>((name, value): (&'a String, &'a &RawValue)) -> (&'a str, &'a str) {
    (name, value.get())
}

fn own_call(call: &ToolCall) -> OwnItem<'_> {
    let mut item = call.private.as_ref().and_then(private_fields).unwrap_or_default();
    let shown = [
        ("type", "function_call".into()),
        ("call_id", call.id.as_str().into()),
        ("name", call.tool.as_str().into()),
        ("arguments", arguments_text(call)),
    ];
    item.extend(shown.map(|(name, text)| (name.into(), Field::Text(text))));
    item
}

fn own_server_tool(part: &ServerToolPart) -> Option<OwnItem<'_>> {
    #[derive(serde::Deserialize)]
    struct Kind {
        r#type: String,
    }
    let private = part.private.as_ref()?;
    let Kind { r#type } = private.to().ok()?;
    let mut item = private_fields(private)?;
    let (input, output) = shown_fields(&r#type);
    for (name, value) in [(input, &part.input), (output, &part.output)] {
        if let (Some(name), Some(value)) = (name, value) {
            item.insert(name.into(), Field::Shown(value));
        }
    }
    Some(item)
}

fn private_fields(private: &RawJson) -> Option<OwnItem<'_>> {
    serde_json::from_str(private.get()).ok().map(own_fields)
}

fn own_fields(fields: Fields<'_>) -> OwnItem<'_> {
    fields.into_iter().map(|(name, value)| (name.into(), Field::Raw(value))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::message::{Attachment, Finish, ThinkingPart, UserMessage as User};
    use crate::model::fixtures::{self, call, head, read_document, usage};
    use crate::model::openai_responses::OpenAiResponses;
    use crate::model::protocol::{Protocol as _, Quirks};

    fn input(messages: &[Message]) -> Value {
        fixtures::request(&OpenAiResponses, &head("openai:gpt-5"), &Quirks::NONE, messages)["input"].take()
    }

    fn file(name: &str, media_type: &str, data: &[u8]) -> Content {
        Content::Attachment(Attachment {
            name: name.into(),
            path: None,
            media_type: media_type.into(),
            data: Arc::from(data),
        })
    }

    fn reply(model: &str, parts: Vec<ReplyPart>) -> Message {
        Message::Assistant(Reply {
            parts,
            model: model.into(),
            finish: Finish::Stop,
            finish_reason: None,
            usage: usage(0, 0),
        })
    }

    fn result(id: &str, outcome: Result<Vec<Content>, String>) -> ToolResult {
        ToolResult { id: id.into(), tool: "add".into(), outcome }
    }

    #[test]
    fn files_go_with_what_they_belong_to() {
        let parts = vec![
            Content::text("look"),
            file("a.png", "image/png", b"\x01\x02"),
            file("a.pdf", "application/pdf", b"%PDF"),
            file("a.txt", "text/plain", b"hi"),
        ];
        let results = vec![
            result("c1", Ok(vec![Content::text("a"), Content::text("b")])),
            result("c2", Ok(vec![Content::text("seen"), file("b.png", "image/png", b"\x01")])),
            result("c3", Ok(vec![file("b.pdf", "application/pdf", b"%PDF")])),
            result("c4", Err("it failed".into())),
            result("c5", Ok(vec![])),
        ];
        let pdf = |name: &str| json!({"type": "input_file", "filename": name, "file_data": "data:application/pdf;base64,JVBERg=="});
        let image = |data: &str| json!({"type": "input_image", "image_url": format!("data:image/png;base64,{data}")});
        let output = |id: &str, output: Value| json!({"type": "function_call_output", "call_id": id, "output": output});
        let expected = json!([
            {"role": "user", "content": [
                {"type": "input_text", "text": "look"}, image("AQI="), pdf("a.pdf"),
                {"type": "input_text", "text": "<file name=\"a.txt\">\nhi\n</file>"},
            ]},
            output("c1", json!("a\nb")),
            output("c2", json!([{"type": "input_text", "text": "seen"}, image("AQ==")])),
            output("c3", json!([pdf("b.pdf")])),
            output("c4", json!("Error: it failed")),
            output("c5", json!("")),
        ]);
        assert_eq!(input(&[Message::User(User { parts }), Message::tool_results(results)]), expected);
    }

    /// An answer with every kind of item.
    const OUTPUT: &str = r#"[
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gA=="},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "container_id": "c", "outputs": null},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw=="},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
        {"type": "mcp_call", "id": "mcp_1", "name": "ask", "arguments": "{\"q\":1}", "output": "42", "error": null},
        {"type": "from_the_future", "x": [1, {"z": 1, "a": 2}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary", "content": [
            {"type": "output_text", "text": "cited", "logprobs": [], "annotations": [{"type": "url_citation", "url": "u"}]},
            {"type": "output_text", "text": "", "annotations": []},
            {"type": "refusal", "refusal": "no"}
        ]},
        {"type": "message", "id": "msg_2", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": "{\"b\": 1, \"a\": 2}", "status": "completed"}
    ]"#;

    fn answered() -> Reply {
        let body = format!(r#"{{"status": "completed", "output": {OUTPUT}}}"#);
        read_document(&OpenAiResponses, &head("openai:gpt-5"), &Quirks::NONE, &body).0.unwrap()
    }

    #[test]
    fn every_item_goes_back_as_it_came() {
        let came: Value = serde_json::from_str(OUTPUT).unwrap();
        assert_eq!(input(&[Message::Assistant(answered())]), came);
        let stored = serde_json::to_string(&answered()).unwrap();
        let restored: Reply = serde_json::from_str(&stored).unwrap();
        assert_eq!(input(&[Message::Assistant(restored)]), came, "from a journal, too");
    }

    #[test]
    fn of_another_providers_reply_only_words_and_calls_are_sent() {
        let foreign = Reply { model: "groq:m".into(), ..answered() };
        let message = |text: &str| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
        let arguments = r#"{"b": 1, "a": 2}"#;
        let expected = json!([
            message("cited"),
            message("no"),
            message("x"),
            {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": arguments},
        ]);
        assert_eq!(input(&[Message::Assistant(foreign)]), expected);
    }

    #[test]
    fn an_id_that_would_be_refused_is_replaced_in_the_call_and_in_its_result() {
        let strange = "functions.add:0";
        let conversation = |model| {
            let called = reply(model, vec![ReplyPart::ToolCall(call(strange, "[1]"))]);
            input(&[called, Message::tool_results(vec![result(strange, Err("no".into()))])])
        };
        let sent = conversation("groq:m");
        assert_eq!(sent[0]["call_id"], sent[1]["call_id"]);
        assert!(sent[0]["call_id"].as_str().unwrap().starts_with("call_"));
        let own = conversation("openai:m");
        let call = json!({
            "type": "function_call", "call_id": strange, "name": "add", "arguments": r#"{"malformed_arguments":"[1]"}"#,
        });
        assert_eq!((&own[0], &own[1]["call_id"]), (&call, &json!(strange)));
    }

    #[test]
    fn words_that_somebody_changed_go_back_changed() {
        let mut reply = answered();
        for part in &mut reply.parts {
            match part {
                ReplyPart::Text(part) if part.text == "x" => part.text = "y".into(),
                ReplyPart::ToolCall(call) => call.arguments = crate::message::Arguments::parse("{}".into()),
                _ => {}
            }
        }
        let sent = input(&[Message::Assistant(reply)]);
        assert_eq!((&sent[8]["content"][0]["text"], &sent[9]["arguments"]), (&json!("y"), &json!("{}")));
    }

    #[test]
    fn what_has_nothing_private_is_sent_new_and_thinking_that_led_nowhere_is_not_sent() {
        let thought = |private: Option<&str>| {
            ReplyPart::Thinking(ThinkingPart { text: "hm".into(), private: private.map(fixtures::json) })
        };
        let text = |text: &str| ReplyPart::Text(TextPart { text: text.into(), private: None });
        let reasoning = r#"{"type":"reasoning","id":"rs_1"}"#;
        let server_tool = ServerToolPart { tool: "web_search".into(), input: None, output: None, private: None };
        let parts =
            vec![thought(None), ReplyPart::ServerTool(server_tool), text(" "), text("x"), thought(Some(reasoning))];
        let sent = input(&[reply("openai:m", parts), reply("openai:m", vec![thought(Some(reasoning))])]);
        let content = json!([{"type": "output_text", "text": "x"}]);
        assert_eq!(sent, json!([{"type": "message", "role": "assistant", "content": content}]));
    }

    #[test]
    fn later_messages_are_forgotten() {
        let mut encoder = OpenAiResponses.encoder(&head("openai:gpt-5"), &Quirks::NONE);
        for message in [Message::user("a"), Message::Assistant(answered()), Message::user("b")] {
            encoder.push(&message);
        }
        encoder.truncate(1);
        let sent: Value = serde_json::from_slice(&encoder.body(None)).unwrap();
        assert_eq!((encoder.messages(), &sent["input"]), (1, &json!([{"role": "user", "content": "a"}])));
    }
}
