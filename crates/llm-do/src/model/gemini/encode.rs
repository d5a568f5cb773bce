//! Conversation → request body.
//!
//! Roles must alternate, so neighbours of the same role share one content. It stays open at the end of the buffer: the
//! next message goes on with it or closes it, and forgetting messages forgets just that.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use serde::Serialize;

use super::generation::Generation;
use super::opening::opening;
use crate::message::{Attachment, Content, Message, RawJson, Reply, ReplyPart, TextPart, ToolCall, ToolResult, quoted};
use crate::model::Head;
use crate::model::body::{BodyTail, RequestBody};
use crate::model::content::{Base64, VisibleContent, arguments_object, shown};
use crate::model::protocol::Encoder;

/// What the provider's manual says to put on calls that it did not make itself, which it refuses otherwise:
/// `skip_thought_signature_validator`, in base64 as all signatures are.
const FOREIGN_SIGNATURE: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

pub(crate) struct ContentsEncoder {
    body: RequestBody,
    tail: BodyTail,
    provider: String,
    generation: Generation,
    /// Whose content is open behind each message.
    speakers: Vec<Role>,
    /// The calls that the provider gave an id; only their results name it.
    given_ids: HashSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// There is no message yet.
    None,
    User,
    Model,
}

impl ContentsEncoder {
    pub(crate) fn new(head: &Head) -> Self {
        let (opening, tail) = opening(head);
        Self {
            body: opening.open_array("contents"),
            tail,
            provider: head.model.provider.clone(),
            generation: Generation::of(&head.model.model),
            speakers: Vec::new(),
            given_ids: HashSet::new(),
        }
    }

    fn speaker(&self) -> Role {
        self.speakers.last().copied().unwrap_or(Role::None)
    }

    fn add(&mut self, role: Role, parts: &[Part<'_>]) {
        let before = self.speaker();
        // A content without parts is refused.
        let role = if parts.is_empty() { before } else { role };
        self.body.push(|elements| {
            if role != before {
                elements.raw(if before == Role::None { "{" } else { "]},{" });
                elements.raw(if role == Role::User { r#""role":"user""# } else { r#""role":"model""# });
                elements.raw(r#","parts":["#);
            }
            for part in parts {
                elements.add(part);
            }
        });
        self.speakers.push(role);
    }
}

impl Encoder for ContentsEncoder {
    fn push(&mut self, message: &Message) {
        match message {
            Message::User(message) => self.add(Role::User, &user_parts(&message.parts)),
            Message::Assistant(reply) => {
                let own = reply.is_from(&self.provider);
                let named = reply.tool_calls().filter(|call| is_named(call, own, self.generation));
                self.given_ids.extend(named.map(|call| call.id.clone()));
                self.add(Role::Model, &reply_parts(reply, own, self.generation));
            }
            Message::Tool(message) => {
                let parts = result_parts(&message.parts, self.generation, &self.given_ids);
                self.add(Role::User, &parts);
            }
        }
    }

    fn messages(&self) -> usize {
        self.body.messages()
    }

    fn truncate(&mut self, messages: usize) {
        self.body.truncate(messages);
        self.speakers.truncate(messages);
    }

    fn body(&mut self, longest_answer: Option<u64>) -> Bytes {
        let closing = if self.speaker() == Role::None { "]" } else { "]}]" };
        self.body.lend(&format!("{closing}{}", self.tail.text(longest_answer)))
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    /// As it came from here.
    Own(&'a RawJson),
    /// With fields that came along from here.
    Accompanied(BTreeMap<String, RawJson>),
    New(NewPart<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum NewPart<'a> {
    Text(#[serde(serialize_with = "quoted")] Cow<'a, str>),
    InlineData(Blob<'a>),
    FunctionResponse(FunctionResponse<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: &'a str,
    data: Base64<'a>,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<RawJson>,
    name: &'a str,
    args: Cow<'a, RawJson>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Response<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<NewPart<'a>>,
}

/// Text as text: what looks like JSON in it is not taken apart, because the provider would look for references in it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Response<'a> {
    Output(String),
    Error(&'a str),
}

fn text_part<'a>(text: impl Into<Cow<'a, str>>) -> NewPart<'a> {
    NewPart::Text(text.into())
}

fn file_part(file: &Attachment) -> NewPart<'_> {
    NewPart::InlineData(Blob { mime_type: &file.media_type, data: Base64(&file.data) })
}

/// A piece of content as these models can see it: they know one kind of image less than others.
fn shown_here(content: &Content) -> Result<&Attachment, Cow<'_, str>> {
    match shown(content) {
        VisibleContent::Text(text) => Err(text),
        VisibleContent::Image(file) if file.media_type == "image/gif" => {
            Err(format!("[the file {:?} of type image/gif cannot be shown]", file.name).into())
        }
        VisibleContent::Image(file) | VisibleContent::Pdf(file) => Ok(file),
    }
}

fn user_parts(parts: &[Content]) -> Vec<Part<'_>> {
    let is_blank = |content: &&Content| matches!(content, Content::Text { text } if text.trim().is_empty());
    // A message that is nothing but blank goes out as it is: the provider's words explain it best.
    let keep_blank = parts.iter().all(|content| is_blank(&content));
    let part = |content| Part::New(shown_here(content).map_or_else(text_part, file_part));
    parts.iter().filter(|content| keep_blank || !is_blank(content)).map(part).collect()
}

fn result_parts<'a>(results: &'a [ToolResult], generation: Generation, given_ids: &HashSet<String>) -> Vec<Part<'a>> {
    let mut parts = Vec::with_capacity(results.len());
    let mut behind = Vec::new();
    for result in results {
        let (response, files) = response(result);
        let nested = match generation {
            Generation::Levels => files.iter().copied().map(file_part).collect(),
            // Here files follow behind all results, because each call must be answered before anything else is said.
            Generation::Plain | Generation::Budgets => {
                for file in files {
                    behind.push(text_part(format!("The file {:?} that `{}` returned:", file.name, result.tool)));
                    behind.push(file_part(file));
                }
                Vec::new()
            }
        };
        let id = given_ids.contains(&result.id).then_some(result.id.as_str());
        let response = FunctionResponse { id, name: &result.tool, response, parts: nested };
        parts.push(Part::New(NewPart::FunctionResponse(response)));
    }
    parts.extend(behind.into_iter().map(Part::New));
    parts
}

fn response(result: &ToolResult) -> (Response<'_>, Vec<&Attachment>) {
    let content = match &result.outcome {
        Ok(content) => content,
        Err(error) => return (Response::Error(error), Vec::new()),
    };
    let (mut texts, mut files) = (Vec::new(), Vec::new());
    for piece in content {
        match shown_here(piece) {
            Ok(file) => {
                texts.push(format!("[the file {:?} follows]", file.name).into());
                files.push(file);
            }
            Err(text) => texts.push(text),
        }
    }
    (Response::Output(texts.join("\n")), files)
}

/// Models since 3 sign their calls: what is not signed is another model's, be it of the same provider, and needs a stand-in.
fn reply_parts(reply: &Reply, own: bool, generation: Generation) -> Vec<Part<'_>> {
    let signed = own && reply.parts.iter().filter_map(private).any(|raw| raw.get().contains("\"thoughtSignature\""));
    let mut unsigned = generation == Generation::Levels && !signed;
    let mut parts = Vec::with_capacity(reply.parts.len());
    for part in &reply.parts {
        parts.extend(match part {
            ReplyPart::Text(part) if own => own_text(part),
            ReplyPart::Text(part) | ReplyPart::Refusal(part) => {
                (!part.text.trim().is_empty()).then(|| Part::New(text_part(part.text.as_str())))
            }
            ReplyPart::Thinking(_) | ReplyPart::ServerTool(_) => private(part).filter(|_| own).map(Part::Own),
            ReplyPart::ToolCall(call) => {
                // The stand-in on the first call of a step counts for all its calls.
                let sign_for_them = std::mem::take(&mut unsigned);
                Some(Part::Accompanied(call_fields(call, own, is_named(call, own, generation), sign_for_them)))
            }
        });
    }
    parts
}

fn private(part: &ReplyPart) -> Option<&RawJson> {
    match part {
        ReplyPart::Text(part) | ReplyPart::Refusal(part) => part.private.as_ref(),
        ReplyPart::Thinking(part) => part.private.as_ref(),
        ReplyPart::ServerTool(part) => part.private.as_ref(),
        ReplyPart::ToolCall(call) => call.private.as_ref(),
    }
}

/// What came along with a part. (An unreadable history has lost it; the part itself is still worth sending.)
fn fields(private: Option<&RawJson>) -> BTreeMap<String, RawJson> {
    private.and_then(|raw| raw.to().ok()).unwrap_or_default()
}

/// A text may be empty and only carry its signature.
fn own_text(part: &TextPart) -> Option<Part<'_>> {
    let mut fields = fields(part.private.as_ref());
    fields.remove("citationMetadata");
    fields.remove("groundingMetadata");
    if fields.is_empty() {
        return (!part.text.is_empty()).then(|| Part::New(text_part(part.text.as_str())));
    }
    fields.insert("text".to_owned(), RawJson::of(&part.text));
    Some(Part::Accompanied(fields))
}

fn call_fields(call: &ToolCall, own: bool, named: bool, sign: bool) -> BTreeMap<String, RawJson> {
    let mut fields = fields(call.private.as_ref().filter(|_| own));
    fields.remove("id");
    let id = named.then(|| RawJson::of(&call.id));
    let function_call = FunctionCall { id, name: &call.tool, args: arguments_object(&call.arguments) };
    fields.insert("functionCall".to_owned(), RawJson::of(&function_call));
    if sign {
        fields.insert("thoughtSignature".to_owned(), RawJson::of(&FOREIGN_SIGNATURE));
    }
    fields
}

/// Whether a call goes by its id: one that the provider gave, and since 3 also those of others.
fn is_named(call: &ToolCall, own: bool, generation: Generation) -> bool {
    if own { fields(call.private.as_ref()).contains_key("id") } else { generation == Generation::Levels }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::message::{Finish, ServerToolPart, ThinkingPart, UserMessage};
    use crate::model::fixtures::{self, call, head, usage};
    use crate::model::gemini::Gemini;
    use crate::model::protocol::{Protocol as _, Quirks};

    const OLD: &str = "google:gemini-2.5-flash";
    const NEW: &str = "google:gemini-3.8-flash";

    fn contents(model: &str, messages: &[Message]) -> Value {
        fixtures::request(&Gemini, &head(model), &Quirks::NONE, messages)["contents"].take()
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

    fn text(text: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: private.map(fixtures::json) })
    }

    fn result(id: &str, outcome: Result<Vec<Content>, String>) -> ToolResult {
        ToolResult { id: id.into(), tool: "add".into(), outcome }
    }

    fn called(id: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::ToolCall(ToolCall { private: private.map(fixtures::json), ..call(id, r#"{"b":1,"a":2}"#) })
    }

    #[test]
    fn neighbours_of_one_role_share_a_content() {
        let messages = [
            Message::user("a"),
            reply("groq:m", vec![]),
            Message::user("b"),
            reply("groq:m", vec![text("c", None)]),
            reply("groq:m", vec![text("d", None)]),
            Message::user("e"),
        ];
        let expected = json!([
            {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
            {"role": "model", "parts": [{"text": "c"}, {"text": "d"}]},
            {"role": "user", "parts": [{"text": "e"}]},
        ]);
        assert_eq!(contents(NEW, &messages), expected);
    }

    #[test]
    fn forgotten_messages_leave_no_trace() {
        let messages = [Message::user("a"), reply("groq:m", vec![text("b", None)]), Message::user("c")];
        for kept in 0..=messages.len() {
            let mut encoder = Gemini.encoder(&head(NEW), &Quirks::NONE);
            for message in &messages {
                encoder.push(message);
            }
            drop(encoder.body(None));
            encoder.truncate(kept);
            for message in [Message::user("d"), Message::user("e")] {
                encoder.push(&message);
            }
            let sent: Value = serde_json::from_slice(&encoder.body(None)).unwrap();
            let retold: Vec<Message> =
                messages[..kept].iter().cloned().chain([Message::user("d"), Message::user("e")]).collect();
            assert_eq!(sent["contents"], contents(NEW, &retold), "{kept}");
        }
    }

    #[test]
    fn files_go_as_data_of_their_kind() {
        let parts = vec![
            Content::text(" "),
            file("a.png", "image/png", b"\x01\x02"),
            file("a.pdf", "application/pdf", b"%PDF"),
            file("a.gif", "image/gif", b"GIF"),
            file("a.txt", "text/plain", b"hi"),
        ];
        let expected = json!([{"role": "user", "parts": [
            {"inlineData": {"mimeType": "image/png", "data": "AQI="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}},
            {"text": "[the file \"a.gif\" of type image/gif cannot be shown]"},
            {"text": "<file name=\"a.txt\">\nhi\n</file>"},
        ]}]);
        assert_eq!(contents(NEW, &[Message::User(UserMessage { parts })]), expected);
        assert_eq!(contents(NEW, &[Message::user(" ")]), json!([{"role": "user", "parts": [{"text": " "}]}]));
    }

    #[test]
    fn results_go_back_by_name_in_order_and_by_id_where_there_is_one() {
        let calls = vec![called("x", Some(r#"{"id":"x","thoughtSignature":"s"}"#)), called("call_1_1", None)];
        let outcomes =
            vec![result("x", Ok(vec![Content::text("1"), Content::text("2")])), result("call_1_1", Err("no".into()))];
        let sent = contents(NEW, &[Message::user("q"), reply(NEW, calls), Message::tool_results(outcomes)]);
        let args = json!({"b": 1, "a": 2});
        let expected = json!([
            {"role": "user", "parts": [{"text": "q"}]},
            {"role": "model", "parts": [
                {"functionCall": {"id": "x", "name": "add", "args": args}, "thoughtSignature": "s"},
                {"functionCall": {"name": "add", "args": args}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "x", "name": "add", "response": {"output": "1\n2"}}},
                {"functionResponse": {"name": "add", "response": {"error": "no"}}},
            ]},
        ]);
        assert_eq!(sent, expected);
    }

    #[test]
    fn files_of_results_travel_inside_of_them_or_behind_all_of_them() {
        let results = || {
            vec![
                result("1", Ok(vec![Content::text("seen"), file("a.png", "image/png", b"\x01")])),
                result("2", Ok(vec![])),
            ]
        };
        let output = "seen\n[the file \"a.png\" follows]";
        let blob = json!({"inlineData": {"mimeType": "image/png", "data": "AQ=="}});
        let empty = json!({"functionResponse": {"name": "add", "response": {"output": ""}}});
        let nested = json!([
            {"functionResponse": {"name": "add", "response": {"output": output}, "parts": [blob]}},
            empty,
        ]);
        assert_eq!(contents(NEW, &[Message::tool_results(results())])[0]["parts"], nested);
        let behind = json!([
            {"functionResponse": {"name": "add", "response": {"output": output}}},
            empty,
            {"text": "The file \"a.png\" that `add` returned:"},
            blob,
        ]);
        assert_eq!(contents(OLD, &[Message::tool_results(results())])[0]["parts"], behind);
    }

    #[test]
    fn private_parts_go_back_to_this_provider_only() {
        let thought = r#"{"text":"hm","thought":true,"thoughtSignature":"t"}"#;
        let code = r#"{"executableCode":{"z":1,"a":2},"thoughtSignature":"c"}"#;
        let parts = || {
            vec![
                ReplyPart::Thinking(ThinkingPart { text: "hm".into(), private: Some(fixtures::json(thought)) }),
                ReplyPart::Thinking(ThinkingPart { text: "unsigned".into(), private: None }),
                ReplyPart::ServerTool(ServerToolPart {
                    tool: "code_execution".into(),
                    input: None,
                    output: None,
                    private: Some(fixtures::json(code)),
                }),
                text("x", Some(r#"{"groundingMetadata":{"g":1},"thoughtSignature":"x/+="}"#)),
                text("", None),
                text("y", Some(r#"{"citationMetadata":{"c":1}}"#)),
                called("i", Some(r#"{"id":"i"}"#)),
                text("", Some(r#"{"thoughtSignature":"e"}"#)),
            ]
        };
        let args = json!({"b": 1, "a": 2});
        let own = json!([
            {"text": "hm", "thought": true, "thoughtSignature": "t"},
            {"executableCode": {"z": 1, "a": 2}, "thoughtSignature": "c"},
            {"text": "x", "thoughtSignature": "x/+="},
            {"text": "y"},
            {"functionCall": {"id": "i", "name": "add", "args": args}},
            {"text": "", "thoughtSignature": "e"},
        ]);
        assert_eq!(contents(NEW, &[reply("google:other", parts())])[0]["parts"], own);
        let foreign = |signature: Option<&str>| {
            let mut call = json!({"functionCall": {"name": "add", "args": args}});
            if let Some(signature) = signature {
                call["thoughtSignature"] = json!(signature);
                call["functionCall"]["id"] = json!("i");
            }
            json!([{"text": "x"}, {"text": "y"}, call])
        };
        let sent =
            contents(NEW, &[reply("groq:m", parts()), Message::tool_results(vec![result("i", Err("no".into()))])]);
        assert_eq!(sent[0]["parts"], foreign(Some(FOREIGN_SIGNATURE)));
        assert_eq!(
            sent[1]["parts"][0],
            json!({"functionResponse": {"id": "i", "name": "add", "response": {"error": "no"}}})
        );
        assert_eq!(contents(OLD, &[reply("groq:m", parts())])[0]["parts"], foreign(None));
    }

    #[test]
    fn only_the_first_call_of_an_unsigned_step_gets_a_signature_in_its_place() {
        let steps = [reply(OLD, vec![called("1", None), called("2", None)]), reply("groq:m", vec![called("3", None)])];
        let sent = contents(NEW, &steps);
        let signatures: Vec<&Value> =
            sent[0]["parts"].as_array().unwrap().iter().map(|part| &part["thoughtSignature"]).collect();
        assert_eq!(signatures, [&json!(FOREIGN_SIGNATURE), &Value::Null, &json!(FOREIGN_SIGNATURE)]);
    }

    #[test]
    fn arguments_that_were_no_object_are_wrapped() {
        let sent = contents(OLD, &[reply(OLD, vec![ReplyPart::ToolCall(call("1", "[1]"))])]);
        assert_eq!(sent[0]["parts"][0]["functionCall"]["args"], json!({"malformed_arguments": "[1]"}));
    }
}
