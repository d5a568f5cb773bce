//! Answer → reply. The reply is made of whole items: those that a stream completes, and from the response that ends it
//! only what the stream left out. A document is a response of which nothing was streamed.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::items::{Fields, Wrapping, compact, shown_fields};
use crate::http::frames::Frame;
use crate::message::{
    Arguments, Finish, RawJson, Reply, ReplyPart, ServerToolPart, TextPart, ThinkingPart, ToolCall, Usage,
};
use crate::model::protocol::{BorrowedText, DecodeError, Decoder, Delta, leniently, read_json, tokens};
use crate::model::{Head, ServerToolKind, fault};

pub(crate) struct ResponsesDecoder {
    model: String,
    turn: usize,
    /// By their place in the answer.
    items: BTreeMap<u64, Item>,
    call_ids: HashSet<String>,
    calls: usize,
    usage: Option<WireUsage>,
    /// How the response that ended the answer says it ended.
    finish: Option<Finish>,
    finish_reason: Option<String>,
    /// Events that tell of something new.
    progress: usize,
}

#[derive(Default)]
struct Item {
    /// How many bytes of its words were told while it grew.
    told: usize,
    /// None while it grows: the words are in the item when it is complete, so they are not collected before.
    parts: Option<Vec<ReplyPart>>,
}

impl ResponsesDecoder {
    pub(crate) fn new(head: &Head, turn: usize) -> Self {
        Self {
            model: head.model.to_string(),
            turn,
            items: BTreeMap::new(),
            call_ids: HashSet::new(),
            calls: 0,
            usage: None,
            finish: None,
            finish_reason: None,
            progress: 0,
        }
    }

    fn event(&mut self, name: &[u8], data: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        self.progress += usize::from(is_news(name));
        match name {
            b"response.output_text.delta" => {
                let text = self.grow(read_json(data)?);
                tell(Delta::Text(&text.0));
            }
            b"response.reasoning_summary_text.delta" | b"response.reasoning_text.delta" => {
                let thought = self.grow(read_json(data)?);
                tell(Delta::Thinking(&thought.0));
            }
            b"response.output_item.done" => {
                let ItemDone { output_index, item } = read_json(data)?;
                self.item(output_index, item, tell)?;
            }
            b"response.completed" | b"response.incomplete" | b"response.failed" | b"response.cancelled" => {
                let Terminal { response, error } = read_json(data)?;
                let response = response.map_or_else(Response::default, |response| *response);
                self.response(Response { error: response.error.or(error), ..response }, tell)?;
            }
            b"error" => return Err(DecodeError::Reported(fault::in_answer(data))),
            // Refusals and arguments are not told as they grow and come whole with their item; of the rest, progress of
            // the provider's tools among them, nothing is needed.
            _ => {}
        }
        Ok(())
    }

    fn grow<'a>(&mut self, delta: WordsDelta<'a>) -> BorrowedText<'a> {
        self.items.entry(delta.output_index).or_default().told += delta.delta.0.len();
        delta.delta
    }

    fn item(&mut self, position: u64, raw: &RawValue, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let item = self.items.entry(position).or_default();
        if item.parts.is_some() {
            return Ok(());
        }
        let json = compact(raw.get());
        let fields: Fields<'_> = serde_json::from_str(&json)?;
        let kind = string(&fields, "type");
        let parts = match kind.as_str() {
            "message" => message(fields, item.told, tell)?,
            "reasoning" => vec![thinking(&fields, item.told, tell)?],
            "function_call" => {
                self.calls += 1;
                let mut call = call(fields);
                if call.id.is_empty() || !self.call_ids.insert(call.id.clone()) {
                    call.id = format!("call_{}_{position}", self.turn);
                }
                vec![ReplyPart::ToolCall(call)]
            }
            // The provider's tools, and whatever else it may invent: shown, and carried along.
            kind => {
                let part = server_tool(kind, fields);
                tell(Delta::ServerTool(&part));
                vec![ReplyPart::ServerTool(part)]
            }
        };
        item.parts = Some(parts);
        Ok(())
    }

    fn response(&mut self, response: Response<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let status = response.status.as_deref().unwrap_or("completed");
        let reason = response.incomplete_details.and_then(|details| details.reason);
        if let Some(error) = response.error {
            return Err(DecodeError::Reported(fault::in_answer(error.get().as_bytes())));
        }
        let finish = match status {
            "completed" => Finish::Stop,
            "incomplete" => match reason.as_deref() {
                Some("content_filter") => Finish::ContentFilter,
                Some("max_output_tokens") | None => Finish::Length,
                Some(_) => Finish::Error,
            },
            "queued" | "in_progress" => Finish::Pause,
            "failed" => return Err(DecodeError::Reported(fault::in_answer(b""))),
            _ => Finish::Error,
        };
        for (position, item) in (0..).zip(response.output.unwrap_or_default()) {
            self.item(position, item, tell)?;
        }
        if finish == Finish::Stop && self.items.values().any(|item| item.parts.is_none()) {
            return Err(DecodeError::Malformed("an item of the answer never ended".to_owned()));
        }
        self.usage = response.usage.or(self.usage.take());
        self.finish = Some(finish);
        self.finish_reason = Some(reason.unwrap_or_else(|| status.to_owned()));
        Ok(())
    }
}

impl Decoder for ResponsesDecoder {
    fn frame(&mut self, frame: Frame<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        if let Some(name) = frame.event {
            return self.event(name, frame.data, tell);
        }
        // Some proxies drop the names, and some add the end of another protocol.
        if frame.data.trim_ascii() == b"[DONE]" {
            return Ok(());
        }
        let ResponsesEventType { r#type: BorrowedText(name) } = read_json(frame.data)?;
        self.event(name.as_bytes(), frame.data, tell)
    }

    fn document(&mut self, body: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let response: Response<'_> = read_json(body)?;
        if response.output.is_none() && response.error.is_none() {
            return Err(DecodeError::Malformed("there is no `output`".to_owned()));
        }
        self.response(response, tell)
    }

    fn ended(&self) -> bool {
        self.finish.is_some()
    }

    // Whether more items come is known from the last event alone.
    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    fn calls(&self) -> usize {
        self.calls
    }

    fn progress(&self) -> usize {
        self.progress
    }

    fn usage(&self) -> Usage {
        self.usage.as_ref().map_or(Usage::default(), WireUsage::total)
    }

    fn finish(self: Box<Self>) -> Result<Reply, DecodeError> {
        let Some(finish) = self.finish else { return Err(DecodeError::Cut) };
        let parts: Vec<ReplyPart> = self.items.into_values().filter_map(|item| item.parts).flatten().collect();
        let finish = match finish {
            Finish::Stop if parts.iter().any(|part| matches!(part, ReplyPart::ToolCall(_))) => Finish::ToolCalls,
            Finish::Stop if parts.iter().any(|part| matches!(part, ReplyPart::Refusal(_))) => Finish::ContentFilter,
            other => other,
        };
        let usage = self.usage.map_or(Usage { requests: 1, ..Usage::default() }, |usage| usage.total());
        let finish_reason = self.finish_reason.filter(|_| !finish.is_natural());
        Ok(Reply { parts, model: self.model, finish, finish_reason, usage })
    }
}

/// Whether an event tells of something new; those that are repeated while nothing happens do not.
fn is_news(event: &[u8]) -> bool {
    let is_repeated = matches!(event, b"response.created" | b"response.queued" | b"response.in_progress");
    event.starts_with(b"response.") && !is_repeated
}

fn message(
    mut item: Fields<'_>,
    mut told: usize,
    tell: &mut dyn FnMut(Delta<'_>),
) -> Result<Vec<ReplyPart>, DecodeError> {
    let content: Vec<Fields<'_>> = match item.remove("content") {
        Some(content) => serde_json::from_str::<Option<_>>(content.get())?.unwrap_or_default(),
        None => Vec::new(),
    };
    let mut parts = Vec::with_capacity(content.len());
    for mut part in content {
        let refuses = string(&part, "type") == "refusal";
        let text = take_string(&mut part, if refuses { "refusal" } else { "text" })?;
        if !refuses {
            tell_rest(&text, &mut told, &mut |rest| tell(Delta::Text(rest)));
        }
        let wrapping = Wrapping { item, part };
        let said = TextPart { text, private: Some(RawJson::of(&wrapping)) };
        parts.push(if refuses { ReplyPart::Refusal(said) } else { ReplyPart::Text(said) });
        item = wrapping.item;
    }
    Ok(parts)
}

fn thinking(item: &Fields<'_>, mut told: usize, tell: &mut dyn FnMut(Delta<'_>)) -> Result<ReplyPart, DecodeError> {
    #[derive(Deserialize)]
    struct ReasoningText {
        text: Option<String>,
    }
    let mut text = String::new();
    for thoughts in ["summary", "content"].iter().filter_map(|name| item.get(*name)) {
        let thoughts: Option<Vec<ReasoningText>> = serde_json::from_str(thoughts.get())?;
        thoughts.into_iter().flatten().filter_map(|thought| thought.text).for_each(|thought| text.push_str(&thought));
    }
    tell_rest(&text, &mut told, &mut |rest| tell(Delta::Thinking(rest)));
    Ok(ReplyPart::Thinking(ThinkingPart { text, private: Some(RawJson::of(item)) }))
}

/// Tells what of an item's words was not told while it grew: all of a document, nothing of the usual stream.
fn tell_rest(text: &str, told: &mut usize, tell: &mut dyn FnMut(&str)) {
    match text.get(*told..) {
        Some("") | None => {}
        Some(rest) => tell(rest),
    }
    *told = told.saturating_sub(text.len());
}

fn call(mut item: Fields<'_>) -> ToolCall {
    let (id, tool) = (string(&item, "call_id"), string(&item, "name"));
    let arguments = item.remove("arguments").map_or("", RawValue::get);
    // JSON inside of a string, or from some servers the object itself.
    let arguments = serde_json::from_str::<Option<String>>(arguments)
        .map_or_else(|_| arguments.to_owned(), Option::unwrap_or_default);
    for shown in ["call_id", "name", "type"] {
        item.remove(shown);
    }
    let private = (!item.is_empty()).then(|| RawJson::of(&item));
    ToolCall { id, tool, arguments: Arguments::parse(arguments), private }
}

fn server_tool(kind: &str, mut item: Fields<'_>) -> ServerToolPart {
    let tool = match kind {
        "mcp_call" => Some(string(&item, "name")).filter(|name| !name.is_empty()),
        "code_interpreter_call" => Some(ServerToolKind::CodeExecution.name().to_owned()),
        _ => None,
    };
    let tool = tool.unwrap_or_else(|| kind.strip_suffix("_call").unwrap_or(kind).to_owned());
    let (input, output) = shown_fields(kind);
    let mut take = |name: Option<&str>| {
        let name = name.filter(|name| item.get(*name).is_some_and(|value| value.get() != "null"))?;
        Some(RawJson::of(&item.remove(name)?))
    };
    let (input, output) = (take(input), take(output));
    ServerToolPart { tool, input, output, private: Some(RawJson::of(&item)) }
}

fn string(fields: &Fields<'_>, name: &str) -> String {
    fields.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn take_string(fields: &mut Fields<'_>, name: &str) -> Result<String, DecodeError> {
    let text = fields.remove(name).map_or(Ok(None), |raw| serde_json::from_str::<Option<String>>(raw.get()))?;
    Ok(text.unwrap_or_default())
}

#[derive(Deserialize)]
struct ResponsesEventType<'a> {
    #[serde(borrow)]
    r#type: BorrowedText<'a>,
}

#[derive(Deserialize)]
struct WordsDelta<'a> {
    #[serde(default)]
    output_index: u64,
    #[serde(borrow)]
    delta: BorrowedText<'a>,
}

#[derive(Deserialize)]
struct ItemDone<'a> {
    #[serde(default)]
    output_index: u64,
    #[serde(borrow)]
    item: &'a RawValue,
}

#[derive(Deserialize)]
struct Terminal<'a> {
    #[serde(borrow)]
    response: Option<Box<Response<'a>>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Response<'a> {
    status: Option<String>,
    incomplete_details: Option<IncompleteDetails>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Lent, and read only where the stream did not bring the item: it may be a large answer once more.
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    #[serde(default, deserialize_with = "leniently")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default, deserialize_with = "tokens")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "tokens")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "leniently")]
    input_tokens_details: Option<InputDetails>,
    #[serde(default, deserialize_with = "leniently")]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Default, Deserialize)]
struct InputDetails {
    #[serde(default, deserialize_with = "tokens")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "tokens")]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetails {
    #[serde(default, deserialize_with = "tokens")]
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    fn total(&self) -> Usage {
        let cached = self.input_tokens_details.as_ref();
        let reasoned = self.output_tokens_details.as_ref();
        Usage {
            requests: 1,
            input_tokens: self.input_tokens.unwrap_or(0),
            output_tokens: self.output_tokens.unwrap_or(0),
            cache_read_tokens: cached.and_then(|details| details.cached_tokens).unwrap_or(0),
            cache_write_tokens: cached.and_then(|details| details.cache_write_tokens).unwrap_or(0),
            reasoning_tokens: reasoned.and_then(|details| details.reasoning_tokens).unwrap_or(0),
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelError;
    use crate::model::fixtures::{call, head, json, read_document, read_stream, usage};
    use crate::model::openai_responses::OpenAiResponses;
    use crate::model::protocol::{Protocol as _, Quirks};

    const USAGE: &str = r#""usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":2},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":4}}"#;
    const COMPLETED: &str = r#""status":"completed""#;
    const CREATED: &str =
        "event: response.created\ndata: {\"response\":{\"status\":\"in_progress\",\"output\":[]}}\n\n";

    fn stream(sse: &str) -> (Result<Reply, DecodeError>, Vec<String>) {
        read_stream(&OpenAiResponses, &head("openai:m"), &Quirks::NONE, sse)
    }

    fn document(body: &str) -> (Result<Reply, DecodeError>, Vec<String>) {
        read_document(&OpenAiResponses, &head("openai:m"), &Quirks::NONE, body)
    }

    fn event(name: &str, fields: &str) -> String {
        format!("event: {name}\ndata: {{\"type\":\"{name}\",{fields}}}\n\n")
    }

    fn item_done(index: usize, item: &str) -> String {
        event("response.output_item.done", &format!(r#""output_index":{index},"item":{item}"#))
    }

    /// The stream of items that are complete at once, and how it ends. The last event repeats them.
    fn items(items: &[&str], status: &str) -> String {
        let done: String = items.iter().enumerate().map(|(index, item)| item_done(index, item)).collect();
        format!("{CREATED}{done}{}", end(items, status))
    }

    fn end(items: &[&str], status: &str) -> String {
        let output = items.join(",");
        event("response.completed", &format!(r#""response":{{{status},"output":[{output}],{USAGE}}}"#))
    }

    fn whole(items: &[&str], status: &str) -> String {
        format!(r#"{{"id":"resp_1",{status},"error":null,"output":[{}],{USAGE}}}"#, items.join(","))
    }

    fn reply(parts: Vec<ReplyPart>, finish: Finish) -> Reply {
        let usage = Usage { cache_read_tokens: 2, reasoning_tokens: 4, ..usage(5, 9) };
        Reply { parts, model: "openai:m".into(), finish, finish_reason: None, usage }
    }

    /// An indented document as the provider writes it: spaces where a stream has none.
    fn indented(json: &str) -> String {
        json.replace(":[", ":\n    [ ").replace(",\"", ",\n  \"").replace("},{", "} , {")
    }

    /// Both forms of an answer with this item must give these parts, and tell the same.
    #[track_caller]
    fn check(deltas: &str, item: &str, status: &str, expected: (Vec<ReplyPart>, Finish)) {
        let mut expected = reply(expected.0, expected.1);
        // The last quoted word of the status is the reason.
        expected.finish_reason = status.rsplit('"').nth(1).map(str::to_owned).filter(|_| !expected.finish.is_natural());
        let sse = format!("{CREATED}{deltas}{}{}", item_done(0, item), end(&[item], status));
        let (streamed, told) = stream(&sse);
        assert_eq!(streamed, Ok(expected.clone()));
        let join = |told: &[String]| told.join("").replace("text ", "").replace("thinking ", "");
        let only_at_the_end = format!("{CREATED}{}", end(&[item], status));
        let without_deltas = format!(
            "{CREATED}{}{}",
            item_done(0, item),
            event("response.incomplete", &format!(r#""response":{{{status},{USAGE}}}"#))
        );
        let (at_once, told_at_once) = document(&indented(&whole(&[item], status)));
        assert_eq!(at_once, Ok(expected.clone()));
        assert_eq!(join(&told), join(&told_at_once));
        for sse in [only_at_the_end, without_deltas] {
            assert_eq!(stream(&sse), (Ok(expected.clone()), told_at_once.clone()), "{sse}");
        }
    }

    fn text(text: &str, private: &str) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: Some(json(private)) })
    }

    #[test]
    fn streams_and_documents_give_the_same_words() {
        let delta = |text: &str| {
            event(
                "response.output_text.delta",
                &format!(r#""item_id":"m","output_index":0,"content_index":0,"delta":"{text}""#),
            )
        };
        let message = r#"{"id":"m","type":"message","phase":"final_answer","content":[{"type":"output_text","annotations":[{"z":1,"a":" b"}],"text":"Hi, \"you\" é"}],"role":"assistant"}"#;
        let private = r#"{"item":{"id":"m","phase":"final_answer","role":"assistant","type":"message"},"part":{"annotations":[{"z":1,"a":" b"}],"type":"output_text"}}"#;
        let deltas = delta("Hi, ") + &delta(r#"\"you\" \u00e9"#);
        let expected = || vec![text("Hi, \"you\" é", private)];
        check(&deltas, message, COMPLETED, (expected(), Finish::Stop));
        let length = r#""status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}"#;
        check(&delta("Hi, "), message, length, (expected(), Finish::Length));
        let filtered = r#""status":"incomplete","incomplete_details":{"reason":"content_filter"}"#;
        check("", message, filtered, (expected(), Finish::ContentFilter));
        check("", message, r#""status":"in_progress""#, (expected(), Finish::Pause));
        check("", message, r#""status":"queued""#, (expected(), Finish::Pause));
        check("", message, r#""status":"cancelled""#, (expected(), Finish::Error));
        check("", message, r#""status":null"#, (expected(), Finish::Stop));
    }

    #[test]
    fn a_message_may_have_several_parts_and_refuse() {
        let delta = |name: &str, index: usize, text: &str| {
            event(
                &format!("response.{name}.delta"),
                &format!(r#""output_index":0,"content_index":{index},"delta":"{text}""#),
            )
        };
        let message = r#"{"type":"message","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"no"},{"type":"output_text","text":"bc"}]}"#;
        let private = |kind: &str| format!(r#"{{"item":{{"type":"message"}},"part":{{"type":"{kind}"}}}}"#);
        let refusal = ReplyPart::Refusal(TextPart { text: "no".into(), private: Some(json(&private("refusal"))) });
        let parts = vec![text("a", &private("output_text")), refusal, text("bc", &private("output_text"))];
        let deltas = [delta("output_text", 0, "a"), delta("refusal", 1, "no"), delta("output_text", 2, "b")].concat();
        check(&deltas, message, COMPLETED, (parts, Finish::ContentFilter));
    }

    #[test]
    fn thinking_keeps_its_whole_item() {
        let delta = |name: &str, text: &str| event(name, &format!(r#""output_index":0,"delta":"{text}""#));
        let item = r#"{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"h"},{"type":"summary_text","text":"m"}],"content":[{"type":"reasoning_text","text":"…"}],"encrypted_content":"gA=="}"#;
        let private = r#"{"content":[{"type":"reasoning_text","text":"…"}],"encrypted_content":"gA==","id":"rs","summary":[{"type":"summary_text","text":"h"},{"type":"summary_text","text":"m"}],"type":"reasoning"}"#;
        let thinking =
            |text: &str, private| ReplyPart::Thinking(ThinkingPart { text: text.into(), private: Some(json(private)) });
        let deltas = delta("response.reasoning_summary_text.delta", "h")
            + &delta("response.reasoning_summary_text.delta", "m")
            + &delta("response.reasoning_text.delta", "…");
        check(&deltas, item, COMPLETED, (vec![thinking("hm…", private)], Finish::Stop));
        let silent = r#"{"encrypted_content":"gA==","summary":[],"type":"reasoning"}"#;
        check("", silent, COMPLETED, (vec![thinking("", silent)], Finish::Stop));
    }

    #[test]
    fn calls_keep_what_the_model_wrote() {
        let item = |arguments: &str| {
            format!(
                r#"{{"type":"function_call","id":"fc","call_id":"c1","name":"add","arguments":{arguments},"status":"completed"}}"#
            )
        };
        let expected = |arguments: &str| {
            let private = Some(json(r#"{"id":"fc","status":"completed"}"#));
            (vec![ReplyPart::ToolCall(ToolCall { private, ..call("c1", arguments) })], Finish::ToolCalls)
        };
        let delta = event("response.function_call_arguments.delta", r#""output_index":0,"delta":"{\"b\"""#);
        check(&delta, &item(r#""{\"b\":1,\"a\":2}""#), COMPLETED, expected(r#"{"b":1,"a":2}"#));
        check("", &item(r#""{\"b\":""#), COMPLETED, expected(r#"{"b":"#));
        check("", &item(r#""[1]""#), COMPLETED, expected("[1]"));
        check("", &item(r#""""#), COMPLETED, expected("{}"));
        check("", &item("null"), COMPLETED, expected("{}"));
        check("", &item(r#"{"b":1}"#), COMPLETED, expected(r#"{"b":1}"#));
        let bare = r#"{"type":"function_call","name":"add","arguments":""}"#;
        check("", bare, COMPLETED, (vec![ReplyPart::ToolCall(call("call_3_0", "{}"))], Finish::ToolCalls));
    }

    #[test]
    fn calls_with_the_same_id_are_told_apart() {
        let item = r#"{"type":"function_call","call_id":"c1","name":"add","arguments":"{}"}"#;
        let calls = ["c1", "call_3_1"].map(|id| ReplyPart::ToolCall(call(id, "{}")));
        let expected = reply(calls.to_vec(), Finish::ToolCalls);
        assert_eq!(stream(&items(&[item, item], COMPLETED)).0, Ok(expected.clone()));
        assert_eq!(document(&whole(&[item, item], COMPLETED)).0, Ok(expected));
    }

    #[test]
    fn tools_of_the_provider_are_carried_in_order_and_shown() {
        let part = |tool: &str, input: Option<&str>, output: Option<&str>, private: &str| {
            let [input, output, private] = [input, output, Some(private)].map(|text| text.map(json));
            ReplyPart::ServerTool(ServerToolPart { tool: tool.into(), input, output, private })
        };
        let search = r#"{"type":"web_search_call","id":"w","action":{"query":"q"}}"#;
        let code = r#"{"type":"code_interpreter_call","code":"1+1","outputs":null}"#;
        let image = r#"{"type":"image_generation_call","result":"iVBORw=="}"#;
        let mcp = r#"{"type":"mcp_call","name":"ask","arguments":"{}","output":"42"}"#;
        let strange = r#"{"type":"from_the_future","x":1}"#;
        let expected = vec![
            part("web_search", Some(r#"{"query":"q"}"#), None, r#"{"id":"w","type":"web_search_call"}"#),
            part("code_execution", Some(r#""1+1""#), None, r#"{"outputs":null,"type":"code_interpreter_call"}"#),
            part("image_generation", None, Some(r#""iVBORw==""#), r#"{"type":"image_generation_call"}"#),
            part("ask", Some(r#""{}""#), Some(r#""42""#), r#"{"name":"ask","type":"mcp_call"}"#),
            part("from_the_future", None, None, strange),
        ];
        let all = [search, code, image, mcp, strange];
        for (read, told) in [stream(&items(&all, COMPLETED)), document(&indented(&whole(&all, COMPLETED)))] {
            assert_eq!(read, Ok(reply(expected.clone(), Finish::Stop)));
            let names = ["web_search", "code_execution", "image_generation", "ask", "from_the_future"];
            assert_eq!(told, names.map(|name| format!("server tool {name}")));
        }
    }

    #[test]
    fn what_the_stream_completed_counts_and_the_last_event_adds_the_rest() {
        let message =
            |text: &str| format!(r#"{{"type":"message","content":[{{"type":"output_text","text":"{text}"}}]}}"#);
        let sse =
            format!("{CREATED}{}{}", item_done(1, &message("b")), end(&[&message("a"), &message("x")], COMPLETED));
        let (read, told) = stream(&sse);
        assert_eq!((read.unwrap().text().as_str(), told), ("ab", vec!["text b".to_owned(), "text a".to_owned()]));
    }

    #[test]
    fn a_stream_without_event_names_is_read_by_its_types() {
        let sse = items(&[r#"{"type":"message","content":[{"type":"output_text","text":"x"}]}"#], COMPLETED);
        let nameless: String = sse
            .replace("response\":{\"status\":\"in_", "type\":\"response.created\",\"response\":{\"status\":\"in_")
            .lines()
            .filter(|line| !line.starts_with("event"))
            .map(|line| line.to_owned() + "\n")
            .collect();
        assert_eq!(stream(&(nameless + "data: [DONE]\n\n")), stream(&sse));
    }

    #[test]
    fn errors_inside_of_an_answer_are_told_apart_by_what_to_do() {
        let failed = |code: &str| {
            let error =
                format!(r#""response":{{"status":"failed","error":{{"code":"{code}","message":"m"}},"output":[]}}"#);
            [event("response.failed", &error), format!("{{{}}}", &error[12..error.len() - 1])]
        };
        let check = |read: Result<Reply, DecodeError>, expected: &str| {
            let Err(DecodeError::Reported(error)) = read else { panic!("{read:?}") };
            assert!(format!("{error:?}").starts_with(expected), "{error:?}");
        };
        for (code, expected) in [
            ("server_error", "Wait"),
            ("rate_limit_exceeded", "Wait"),
            ("invalid_prompt", "FixRequest"),
            ("context_length_exceeded", "ContextTooLong"),
            ("insufficient_quota", "Authenticate"),
        ] {
            let [sse, body] = failed(code);
            check(stream(&format!("{CREATED}{sse}")).0, expected);
            check(document(&body).0, expected);
            let flat = event("error", &format!(r#""code":"{code}","message":"m","param":null"#));
            check(stream(&flat).0, expected);
            let nested = event("error", &format!(r#""error":{{"code":"{code}","message":"m"}}"#));
            check(stream(&nested).0, expected);
        }
        check(stream(&event("response.failed", r#""error":{"message":"m"}"#)).0, "Wait");
        check(stream(&event("response.failed", r#""response":{"status":"failed"}"#)).0, "Wait");
        check(document(r#"{"error":{"message":"m","code":503}}"#).0, "Wait");
    }

    #[test]
    fn what_is_no_answer_is_an_error_of_its_kind() {
        let message = r#"{"type":"message","content":[{"type":"output_text","text":"a"}]}"#;
        assert_eq!(stream(&format!("{CREATED}{}", item_done(0, message))).0, Err(DecodeError::Cut));
        assert_eq!(stream("").0, Err(DecodeError::Cut));
        let delta = event("response.output_text.delta", r#""output_index":7,"delta":"lost""#);
        let never_ended = format!("{delta}{}", end(&[], COMPLETED));
        let not_text = item_done(0, r#"{"type":"message","content":[{"text":7}]}"#);
        for malformed in [never_ended.as_str(), &not_text, "event: response.completed\ndata: {\n\n", "data: \u{1}\n\n"]
        {
            assert!(matches!(stream(malformed).0, Err(DecodeError::Malformed(_))), "{malformed}");
        }
        for body in ["", "{}", "<html>", "[1]", r#"{"output":{}}"#, r#"{"output":[7]}"#] {
            assert!(matches!(document(body).0, Err(DecodeError::Malformed(_))), "{body}");
        }
        let error = OpenAiResponses.fault(429, br#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#);
        assert!(matches!(error, ModelError::Wait(_)), "{error:?}");
    }
}
