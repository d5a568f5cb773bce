//! Answer → reply.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::http::frames::Frame;
use crate::message::{
    Arguments, Finish, RawJson, Reply, ReplyPart, ServerToolPart, TextPart, ThinkingPart, ToolCall, Usage,
};
use crate::model::plain::Plain;
use crate::model::protocol::{BorrowedText, DecodeError, Decoder, Delta, leniently, read_json, read_plain, tokens};
use crate::model::{Head, fault};

pub(crate) struct MessagesDecoder {
    model: String,
    turn: usize,
    /// By the index that the stream gives them; they end up in its order.
    blocks: BTreeMap<u64, Box<Block>>,
    /// Uses of the provider's tools by their ids, for the results to come.
    server_tools: HashMap<String, ServerToolPart>,
    /// Those whose result has not come, in their order.
    without_result: Vec<String>,
    /// Grows with every piece of content.
    progress: usize,
    usage: WireUsage,
    stop_reason: Option<String>,
    refusal: Option<String>,
    calls: usize,
    ended: bool,
}

/// A block that still grows, or what it became.
enum Block {
    Open(OpenBlock),
    Closed(ReplyPart),
}

impl MessagesDecoder {
    pub(crate) fn new(head: &Head, turn: usize) -> Self {
        Self {
            model: head.model.to_string(),
            turn,
            blocks: BTreeMap::new(),
            server_tools: HashMap::new(),
            without_result: Vec::new(),
            progress: 0,
            usage: WireUsage::default(),
            stop_reason: None,
            refusal: None,
            calls: 0,
            ended: false,
        }
    }

    fn block_delta(&mut self, data: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let BlockDelta { index, delta } = BlockDelta::read(data)?;
        let Some(Block::Open(block)) = self.blocks.get_mut(&index).map(Box::as_mut) else {
            return Err(DecodeError::Malformed(format!("a delta of block {index}, which is not open")));
        };
        let before = block.size();
        if let Some(BorrowedText(text)) = delta.text {
            tell(Delta::Text(&text));
            if block.text.is_empty() {
                // Most answers come in many small pieces.
                block.text.reserve(USUAL_ANSWER);
            }
            block.text.push_str(&text);
        }
        if let Some(BorrowedText(text)) = delta.thinking {
            tell(Delta::Thinking(&text));
            block.text.push_str(&text);
        }
        if let Some(BorrowedText(json)) = delta.partial_json {
            block.input.push_str(&json);
        }
        if let Some(BorrowedText(signature)) = delta.signature {
            block.signature.push_str(&signature);
        }
        if let Some(citation) = delta.citation {
            block.citations.push(citation.to_owned());
        }
        self.progress += block.size() - before;
        Ok(())
    }

    fn block_start(&mut self, data: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let BlockStart { index, content_block } = read_json(data)?;
        let block = OpenBlock::new(content_block)?;
        block.tell_beginning(tell);
        self.calls += usize::from(block.kind == "tool_use");
        self.progress += 1;
        if self.blocks.insert(index, Box::new(Block::Open(block))).is_some() {
            return Err(DecodeError::Malformed(format!("block {index} begins twice")));
        }
        Ok(())
    }

    fn block_stop(&mut self, index: u64, tell: &mut dyn FnMut(Delta<'_>)) {
        let part = match self.blocks.remove(&index).map(|block| *block) {
            Some(Block::Open(block)) => self.part(block, index, tell),
            // A block that is closed twice is kept once.
            Some(closed @ Block::Closed(_)) => return drop(self.blocks.insert(index, Box::new(closed))),
            None => return,
        };
        self.blocks.insert(index, Box::new(Block::Closed(part)));
    }

    fn message_end(&mut self, end: MessageEnd, tell: &mut dyn FnMut(Delta<'_>)) {
        self.stop_reason = end.stop_reason.or(self.stop_reason.take());
        if let Some(details) = end.stop_details {
            self.refusal = details.explanation.or(details.category);
        }
        // A use of a tool that was interrupted gets its result in the next answer, and is told with it.
        if self.stop_reason.is_some() && finish(self.stop_reason.as_deref()) != Finish::Pause {
            for id in std::mem::take(&mut self.without_result) {
                self.server_tools.get(&id).into_iter().for_each(|part| tell(Delta::ServerTool(part)));
            }
        }
    }

    /// What a block has become. A use of the provider's tools is told with its result.
    fn part(&mut self, block: OpenBlock, index: u64, tell: &mut dyn FnMut(Delta<'_>)) -> ReplyPart {
        match block.kind.as_str() {
            "text" => {
                let private = (!block.citations.is_empty()).then(|| block.raw());
                ReplyPart::Text(TextPart { text: block.text, private })
            }
            "thinking" | "redacted_thinking" => {
                let private = Some(block.raw());
                ReplyPart::Thinking(ThinkingPart { text: block.text, private })
            }
            "tool_use" => {
                let ToolUse { id, name, input, caller: private } = block.tool_use;
                let id = id.unwrap_or_else(|| format!("call_{}_{index}", self.turn));
                // The model's words; a call without any has an empty text.
                let given = || input.map_or_else(String::new, |input| input.get().to_owned());
                let arguments = if block.input.is_empty() { given() } else { block.input };
                let (tool, arguments) = (name.unwrap_or_default(), Arguments::parse(arguments));
                ReplyPart::ToolCall(ToolCall { id, tool, arguments, private })
            }
            "server_tool_use" | "mcp_tool_use" => {
                let (input, private) = (Some(block.input()), Some(block.raw()));
                let tool = block.tool_use.name.unwrap_or(block.kind);
                let part = ServerToolPart { tool, input, output: None, private };
                match block.tool_use.id {
                    Some(id) => {
                        self.without_result.push(id.clone());
                        self.server_tools.insert(id, part.clone());
                    }
                    None => tell(Delta::ServerTool(&part)),
                }
                ReplyPart::ServerTool(part)
            }
            // Results of the provider's tools, and whatever else it may invent: shown if it has content, carried along.
            kind => {
                let fields = block.fields();
                let field = |name: &str| fields.get(&BorrowedText(name.into())).copied();
                let id = string(field("tool_use_id"));
                self.without_result.retain(|waiting| Some(waiting) != id.as_ref());
                let used = id.and_then(|id| self.server_tools.get(&id));
                let named = || kind.strip_suffix("_tool_result").unwrap_or(kind).to_owned();
                let tool = used.map_or_else(named, |used| used.tool.clone());
                let output = field("content").map(|json| json.to_owned().into());
                let part = ServerToolPart { tool, input: None, output, private: Some(block.raw()) };
                let input = used.and_then(|used| used.input.clone());
                tell(Delta::ServerTool(&ServerToolPart { input, ..part.clone() }));
                ReplyPart::ServerTool(part)
            }
        }
    }

    fn event(&mut self, name: &[u8], data: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        match name {
            b"content_block_delta" => self.block_delta(data, tell)?,
            b"content_block_start" => self.block_start(data, tell)?,
            b"content_block_stop" => self.block_stop(read_json::<BlockStop>(data)?.index, tell),
            b"message_start" => {
                let MessageStart { message } = read_json(data)?;
                self.usage.update(message.usage);
            }
            b"message_delta" => {
                let MessageDelta { delta, usage } = read_json(data)?;
                self.message_end(delta, tell);
                self.usage.update(usage);
            }
            b"message_stop" => self.ended = true,
            b"error" => return Err(DecodeError::Reported(fault::in_answer(data))),
            _ => {} // `ping`, and what may come: new events are announced as ignorable
        }
        Ok(())
    }
}

impl Decoder for MessagesDecoder {
    fn frame(&mut self, frame: Frame<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        if let Some(name) = frame.event {
            return self.event(name, frame.data, tell);
        }
        // Some proxies drop the names; every event says its own inside, too.
        let MessagesEventType { r#type: BorrowedText(name) } = read_json(frame.data)?;
        self.event(name.as_bytes(), frame.data, tell)
    }

    fn document(&mut self, body: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let document: Document = read_json(body)?;
        if document.error.is_some() {
            return Err(DecodeError::Reported(fault::in_answer(body)));
        }
        let content = document.content.ok_or_else(|| DecodeError::Malformed("there is no `content`".to_owned()))?;
        for (index, block) in (0..).zip(content) {
            let block = OpenBlock::new(block)?;
            block.tell_beginning(tell);
            self.calls += usize::from(block.kind == "tool_use");
            self.blocks.insert(index, Box::new(Block::Open(block)));
            self.block_stop(index, tell);
        }
        self.usage.update(document.usage);
        let end = MessageEnd { stop_reason: document.stop_reason, stop_details: document.stop_details };
        self.message_end(end, tell);
        self.ended = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.ended
    }

    // After the reason only the terminal event comes.
    fn is_complete(&self) -> bool {
        let mut blocks = self.blocks.values();
        self.ended || (self.stop_reason.is_some() && blocks.all(|block| matches!(**block, Block::Closed(_))))
    }

    fn calls(&self) -> usize {
        self.calls
    }

    fn progress(&self) -> usize {
        self.progress
    }

    fn usage(&self) -> Usage {
        self.usage.total()
    }

    fn finish(mut self: Box<Self>) -> Result<Reply, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Cut);
        }
        let mut parts = Vec::with_capacity(self.blocks.len() + 1);
        for (index, block) in std::mem::take(&mut self.blocks) {
            parts.push(match *block {
                Block::Open(block) => self.part(block, index, &mut |_| {}),
                Block::Closed(part) => part,
            });
        }
        let refusal = self.refusal.take().filter(|words| !words.is_empty());
        parts.extend(refusal.map(|text| ReplyPart::Refusal(TextPart { text, private: None })));
        let finish = finish(self.stop_reason.as_deref());
        let finish_reason = self.stop_reason.filter(|_| !finish.is_natural());
        Ok(Reply { parts, model: self.model, finish, finish_reason, usage: self.usage.total() })
    }
}

fn finish(stop_reason: Option<&str>) -> Finish {
    match stop_reason {
        Some("end_turn" | "stop_sequence") => Finish::Stop,
        Some("max_tokens") => Finish::Length,
        Some("model_context_window_exceeded") => Finish::ContextWindow,
        Some("tool_use") => Finish::ToolCalls,
        Some("pause_turn" | "compaction") => Finish::Pause,
        Some("refusal") => Finish::ContentFilter,
        Some(_) | None => Finish::Error,
    }
}

/// A content block and what deltas added to it.
struct OpenBlock {
    kind: String,
    /// As it began.
    start: RawJson,
    tool_use: ToolUse,
    /// Of `text` or `thinking`.
    text: String,
    signature: String,
    /// The text of `input`, if it came in pieces.
    input: String,
    citations: Vec<Box<RawValue>>,
}

/// What the beginning of a block says about the use of a tool.
/// So many bytes an answer usually has, or more.
const USUAL_ANSWER: usize = 512;

#[derive(Default)]
struct ToolUse {
    id: Option<String>,
    name: Option<String>,
    input: Option<RawJson>,
    caller: Option<RawJson>,
}

/// The fields of all kinds of blocks that are read at their beginning. Which of them must be strings depends on the kind.
#[derive(Deserialize)]
struct Beginning<'a> {
    #[serde(borrow)]
    r#type: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow)]
    citations: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    caller: Option<&'a RawValue>,
}

/// A string that is there and not empty.
fn string(json: Option<&RawValue>) -> Option<String> {
    serde_json::from_str::<String>(json?.get()).ok().filter(|text| !text.is_empty())
}

/// What is absent or null is empty.
fn read<T: Default + DeserializeOwned>(json: Option<&RawValue>) -> Result<T, DecodeError> {
    let read = json.map_or(Ok(None), |json| serde_json::from_str::<Option<T>>(json.get()))?;
    Ok(read.unwrap_or_default())
}

impl OpenBlock {
    fn new(start: RawJson) -> Result<Self, DecodeError> {
        let began: Beginning<'_> = serde_json::from_str(start.get())?;
        let kind = began.r#type.map(|BorrowedText(kind)| kind.into_owned()).unwrap_or_default();
        let (mut tool_use, mut text, mut signature, mut citations) = Default::default();
        match kind.as_str() {
            "text" => (text, citations) = (read(began.text)?, read(began.citations)?),
            "thinking" => (text, signature) = (read(began.thinking)?, read(began.signature)?),
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                let raw = |json: Option<&RawValue>| json.map(|json| json.to_owned().into());
                let (input, caller) = (raw(began.input), raw(began.caller));
                tool_use = ToolUse { id: string(began.id), name: string(began.name), input, caller };
            }
            _ => {}
        }
        Ok(Self { kind, start, tool_use, text, signature, input: String::new(), citations })
    }

    fn size(&self) -> usize {
        self.text.len() + self.input.len() + self.signature.len() + self.citations.len()
    }

    /// All of its fields, in alphabetical order.
    fn fields(&self) -> BTreeMap<BorrowedText<'_>, &RawValue> {
        serde_json::from_str(self.start.get()).unwrap_or_default()
    }

    /// What a block brings along when it begins: nothing in a stream, everything in a document.
    fn tell_beginning(&self, tell: &mut dyn FnMut(Delta<'_>)) {
        if !self.text.is_empty() {
            tell(if self.kind == "text" { Delta::Text(&self.text) } else { Delta::Thinking(&self.text) });
        }
    }

    fn input(&self) -> RawJson {
        let streamed = RawJson::parse(&self.input).ok();
        let given = || self.tool_use.input.clone();
        streamed.or_else(given).unwrap_or_else(|| RawJson::from_valid("{}".to_owned()))
    }

    /// The block as it goes back.
    fn raw(&self) -> RawJson {
        let now = match self.kind.as_str() {
            "text" => vec![("text", RawJson::of(&self.text)), ("citations", RawJson::of(&self.citations))],
            "thinking" => vec![("thinking", RawJson::of(&self.text)), ("signature", RawJson::of(&self.signature))],
            "server_tool_use" | "mcp_tool_use" => vec![("input", self.input())],
            _ => Vec::new(),
        };
        let mut fields = self.fields();
        fields.extend(now.iter().map(|(name, json)| (BorrowedText((*name).into()), json.raw())));
        RawJson::of(&fields)
    }
}

#[derive(Deserialize)]
struct MessagesEventType<'a> {
    #[serde(borrow)]
    r#type: BorrowedText<'a>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    index: u64,
    #[serde(borrow)]
    delta: DeltaFields<'a>,
}

impl<'a> BlockDelta<'a> {
    fn read(data: &'a [u8]) -> Result<Self, DecodeError> {
        read_plain(data, Self::plain)
    }

    /// Of a delta that needs no whole parser.
    fn plain(plain: &mut Plain<'a>) -> Option<Self> {
        if let Some(usual) = plain.spelled(Self::usual) {
            return Some(usual);
        }
        let (mut index, mut delta) = (None, None);
        plain.object(|plain, name| match name {
            "index" => Plain::once(&mut index, plain.count()?),
            "delta" => Plain::once(&mut delta, DeltaFields::plain(plain)?),
            _ => plain.text().map(drop),
        })?;
        Some(Self { index: index?, delta: delta? })
    }

    /// Of a delta of text as the provider spells it: nearly every frame of an answer is one.
    fn usual(plain: &mut Plain<'a>) -> Option<Self> {
        plain.exactly(r#"{"type":"content_block_delta","index":"#)?;
        let index = plain.count()?;
        plain.exactly(r#","delta":{"type":"text_delta","text":"#)?;
        let text = Some(BorrowedText(plain.text()?.into()));
        plain.take(b'}')?;
        plain.take(b'}')?;
        Some(Self { index, delta: DeltaFields { text, ..DeltaFields::default() } })
    }
}

impl<'a> DeltaFields<'a> {
    fn plain(plain: &mut Plain<'a>) -> Option<Self> {
        let mut fields = Self::default();
        plain.object(|plain, name| {
            let place = match name {
                "text" => &mut fields.text,
                "thinking" => &mut fields.thinking,
                "partial_json" => &mut fields.partial_json,
                "signature" => &mut fields.signature,
                "citation" => return None,
                _ => return plain.text().map(drop),
            };
            Plain::once(place, BorrowedText(plain.text()?.into()))
        })?;
        Some(fields)
    }
}

/// The fields of all kinds of deltas: whichever is there says the kind.
#[derive(Default, Deserialize)]
struct DeltaFields<'a> {
    #[serde(borrow)]
    text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    thinking: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    partial_json: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    signature: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    citation: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct BlockStart {
    index: u64,
    content_block: RawJson,
}

#[derive(Deserialize)]
struct BlockStop {
    index: u64,
}

#[derive(Deserialize)]
struct MessageStart {
    message: StartedMessage,
}

#[derive(Deserialize)]
struct StartedMessage {
    #[serde(default, deserialize_with = "leniently")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct MessageDelta {
    delta: MessageEnd,
    #[serde(default, deserialize_with = "leniently")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct MessageEnd {
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
}

#[derive(Deserialize)]
struct StopDetails {
    explanation: Option<String>,
    category: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    content: Option<Vec<RawJson>>,
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
    #[serde(default, deserialize_with = "leniently")]
    usage: Option<WireUsage>,
    error: Option<RawJson>,
}

#[derive(Default, Deserialize)]
struct WireUsage {
    /// Without what the cache served or took.
    #[serde(default, deserialize_with = "tokens")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "tokens")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "tokens")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "tokens")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "leniently")]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Default, Deserialize)]
struct OutputDetails {
    #[serde(default, deserialize_with = "tokens")]
    thinking_tokens: Option<u64>,
}

impl WireUsage {
    /// Counts in later events replace earlier ones: they are totals.
    fn update(&mut self, later: Option<Self>) {
        let Some(later) = later else { return };
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.output_tokens_details = later.output_tokens_details.or(self.output_tokens_details.take());
    }

    fn total(&self) -> Usage {
        let cache_read_tokens = self.cache_read_input_tokens.unwrap_or(0);
        let cache_write_tokens = self.cache_creation_input_tokens.unwrap_or(0);
        let fresh = self.input_tokens.unwrap_or(0);
        Usage {
            requests: 1,
            input_tokens: fresh.saturating_add(cache_read_tokens).saturating_add(cache_write_tokens),
            output_tokens: self.output_tokens.unwrap_or(0),
            cache_read_tokens,
            cache_write_tokens,
            reasoning_tokens: self
                .output_tokens_details
                .as_ref()
                .and_then(|details| details.thinking_tokens)
                .unwrap_or(0),
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelError;
    use crate::model::anthropic::Anthropic;
    use crate::model::fixtures::{call, head, json, read_document, read_stream, usage};
    use crate::model::protocol::Quirks;

    const START: &str = r#"event: message_start
data: {"type":"message_start","message":{"content":[],"usage":{"input_tokens":5,"cache_read_input_tokens":2,"output_tokens":1}}}

"#;
    const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

    fn event(name: &str, fields: &str) -> String {
        format!("event: {name}\ndata: {{\"type\":\"{name}\",{fields}}}\n\n")
    }

    #[test]
    fn a_delta_is_read_as_the_parser_reads_it_however_it_is_spelled() {
        let frames = [
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi ü"}}"#,
            r#"{"type":"content_block_delta","index":12,"delta":{"type":"text_delta","text":""}      }  "#,
            r#"{"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}}"#,
            r#"{"delta":{"text":"a","type":"text_delta"},"index":1,"type":"content_block_delta"}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\n\u00fc"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"},"more":[1]}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","more":"b"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","text":"b"}}"#,
            r#"{"type":"content_block_delta","index":01,"delta":{"type":"text_delta","text":"a"}}"#,
            r#"{"type":"content_block_delta","index":-1,"delta":{"type":"text_delta","text":"a"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":null}}"#,
        ];
        let read = |delta: BlockDelta<'_>| (delta.index, delta.delta.text.map(|BorrowedText(text)| text.into_owned()));
        for frame in frames {
            let parsed = serde_json::from_str::<BlockDelta<'_>>(frame).ok().map(read);
            assert_eq!(BlockDelta::read(frame.as_bytes()).ok().map(read), parsed, "{frame}");
        }
    }

    /// The stream of one block: how it starts, and its deltas.
    fn block(index: usize, start: &str, deltas: &[&str]) -> String {
        let mut text = event("content_block_start", &format!(r#""index":{index},"content_block":{start}"#));
        for delta in deltas {
            text += &event("content_block_delta", &format!(r#""index":{index},"delta":{delta}"#));
        }
        text + &event("content_block_stop", &format!(r#""index":{index}"#))
    }

    fn end(reason: &str) -> String {
        event("message_delta", &format!(r#""delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":9}}"#)) + STOP
    }

    fn stream(sse: &str) -> (Result<Reply, DecodeError>, Vec<String>) {
        read_stream(&Anthropic, &head("anthropic:m"), &Quirks::NONE, sse)
    }

    fn document(body: &str) -> (Result<Reply, DecodeError>, Vec<String>) {
        read_document(&Anthropic, &head("anthropic:m"), &Quirks::NONE, body)
    }

    /// Both forms of an answer with one block must give this part.
    #[track_caller]
    fn check(start: &str, deltas: &[&str], whole: &str, reason: &str, expected: (ReplyPart, Finish)) {
        let sse = format!("{START}{}{}", block(0, start, deltas), end(reason));
        let usage_fields = r#"{"input_tokens":5,"cache_read_input_tokens":2,"output_tokens":9}"#;
        let body = format!(r#"{{"content":[{whole}],"stop_reason":"{reason}","usage":{usage_fields}}}"#);
        let usage = Usage { cache_read_tokens: 2, ..usage(7, 9) };
        let (parts, finish) = (vec![expected.0], expected.1);
        let finish_reason = (!finish.is_natural()).then(|| reason.to_owned());
        let reply = Reply { parts, model: "anthropic:m".into(), finish, finish_reason, usage };
        let (streamed, told) = stream(&sse);
        assert_eq!(streamed, Ok(reply.clone()));
        let (read, told_at_once) = document(&body);
        assert_eq!(read, Ok(reply));
        let join = |told: Vec<String>| told.join("").replace("text ", "").replace("thinking ", "");
        assert_eq!(join(told), join(told_at_once));
    }

    fn text(text: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: private.map(json) })
    }

    fn thinking(text: &str, private: &str) -> ReplyPart {
        ReplyPart::Thinking(ThinkingPart { text: text.into(), private: Some(json(private)) })
    }

    #[test]
    fn streams_and_documents_give_the_same_parts() {
        let stop = |part| (part, Finish::Stop);
        check(
            r#"{"type":"text","text":""}"#,
            &[r#"{"type":"text_delta","text":"Hi, "}"#, r#"{"type":"text_delta","text":"\"you\" \u00e9"}"#],
            r#"{"type":"text","text":"Hi, \"you\" é"}"#,
            "end_turn",
            stop(text("Hi, \"you\" é", None)),
        );
        check(
            r#"{"type":"text","text":"","citations":[]}"#,
            &[r#"{"type":"text_delta","text":"A"}"#, r#"{"type":"citations_delta","citation":{"z":1,"a":2}}"#],
            r#"{"citations":[ {"z":1,"a":2} ],"text":"A","type":"text"}"#,
            "max_tokens",
            (text("A", Some(r#"{"citations":[{"z":1,"a":2}],"text":"A","type":"text"}"#)), Finish::Length),
        );
        check(
            r#"{"type":"thinking","thinking":"","signature":""}"#,
            &[
                r#"{"type":"thinking_delta","thinking":"hm"}"#,
                r#"{"type":"thinking_delta","thinking":"\n…"}"#,
                r#"{"type":"signature_delta","signature":"Eq=="}"#,
            ],
            r#"{"type":"thinking","thinking":"hm\n…","signature":"Eq=="}"#,
            "pause_turn",
            (thinking("hm\n…", r#"{"signature":"Eq==","thinking":"hm\n…","type":"thinking"}"#), Finish::Pause),
        );
        check(
            r#"{"type":"redacted_thinking","data":"xyz"}"#,
            &[],
            r#"{"type":"redacted_thinking","data":"xyz"}"#,
            "end_turn",
            stop(thinking("", r#"{"data":"xyz","type":"redacted_thinking"}"#)),
        );
    }

    #[test]
    fn calls_keep_what_the_model_wrote() {
        let calls = |call| (ReplyPart::ToolCall(call), Finish::ToolCalls);
        let start = r#"{"type":"tool_use","id":"c1","name":"add","input":{}}"#;
        let whole = |input: &str| format!(r#"{{"type":"tool_use","id":"c1","name":"add","input":{input}}}"#);
        let pieces = [r#"{"type":"input_json_delta","partial_json":""}"#, r#"{"partial_json":"{\"b\":1,"}"#];
        let pieces = [&pieces[..], &[r#"{"partial_json":"\"a\":2}"}"#]].concat();
        check(start, &pieces, &whole(r#"{"b":1,"a":2}"#), "tool_use", calls(call("c1", r#"{"b":1,"a":2}"#)));
        check(start, &[], &whole("{}"), "tool_use", calls(call("c1", "{}")));
        check(start, &[r#"{"partial_json":"[1]"}"#], &whole("[1]"), "tool_use", calls(call("c1", "[1]")));
        let called = ToolCall { private: Some(json(r#"{"type":"direct"}"#)), ..call("c1", "{}") };
        let with_caller = r#"{"type":"tool_use","id":"c1","name":"add","input":{},"caller":{"type":"direct"}}"#;
        check(with_caller, &[], with_caller, "tool_use", calls(called));
        let nameless = r#"{"type":"tool_use","name":"add"}"#;
        check(nameless, &[], nameless, "tool_use", calls(call("call_3_0", "")));
    }

    #[test]
    fn tools_of_the_provider_are_carried_in_order_and_shown() {
        let used = r#"{"id":"s1","input":{"q":"x"},"name":"web_search","type":"server_tool_use"}"#;
        let result = r#"{"content":[{"z":1}],"tool_use_id":"s1","type":"web_search_tool_result"}"#;
        let strange = r#"{"type":"from_the_future","x":1}"#;
        let sse = START.to_owned()
            + &block(
                0,
                r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#,
                &[r#"{"partial_json":"{\"q\":\"x\"}"}"#],
            )
            + &block(1, result, &[])
            + &block(2, strange, &[])
            + &end("end_turn");
        let body = format!(r#"{{"content":[{used},{result},{strange}],"stop_reason":"end_turn"}}"#);
        let part = |tool: &str, input, output, private| {
            let [input, output, private] = [input, output, Some(private)].map(|text| text.map(json));
            ReplyPart::ServerTool(ServerToolPart { tool: tool.into(), input, output, private })
        };
        let expected = vec![
            part("web_search", Some(r#"{"q":"x"}"#), None, used),
            part("web_search", None, Some(r#"[{"z":1}]"#), result),
            part("from_the_future", None, None, strange),
        ];
        for (reply, told) in [stream(&sse), document(&body)] {
            assert_eq!(reply.unwrap().parts, expected);
            assert_eq!(told, ["server tool web_search", "server tool from_the_future"], "one search is one search");
        }
        // Without a result it is told at the end, and where it was interrupted by the answer that brings the result.
        for (reason, told_now) in [("end_turn", 1), ("pause_turn", 0)] {
            let body = format!(r#"{{"content":[{used}],"stop_reason":"{reason}"}}"#);
            assert_eq!(document(&body).1.len(), told_now, "{reason}");
        }
    }

    #[test]
    fn a_refusal_says_why() {
        let details = r#""stop_reason":"refusal","stop_details":{"explanation":"no","category":"c"}"#;
        let sse = START.to_owned() + &event("message_delta", &format!(r#""delta":{{{details}}}"#)) + STOP;
        for (reply, _) in [stream(&sse), document(&format!(r#"{{"content":[],{details}}}"#))] {
            let reply = reply.unwrap();
            assert_eq!(reply.finish, Finish::ContentFilter);
            assert_eq!(reply.parts, [ReplyPart::Refusal(TextPart { text: "no".into(), private: None })]);
        }
    }

    #[test]
    fn a_stream_without_event_names_is_read_by_its_types() {
        let sse = START.to_owned() + &block(0, r#"{"type":"text","text":""}"#, &[r#"{"text":"x"}"#]) + &end("end_turn");
        let nameless: String =
            sse.lines().filter(|line| !line.starts_with("event")).map(|line| line.to_owned() + "\n").collect();
        assert_eq!(stream(&nameless), stream(&sse));
    }

    #[test]
    fn a_block_that_ends_twice_is_there_once() {
        let used = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#;
        let again = |index: usize| event("content_block_stop", &format!(r#""index":{index}"#));
        let sse = START.to_owned()
            + &block(0, r#"{"type":"text","text":"kept"}"#, &[])
            + &again(0)
            + &block(1, used, &[])
            + &again(1)
            + &again(7)
            + &end("end_turn");
        let (reply, told) = stream(&sse);
        let parts = reply.unwrap().parts;
        assert_eq!(parts.len(), 2, "{parts:?}");
        assert_eq!(parts[0], text("kept", None));
        assert_eq!(told, ["text kept", "server tool web_search"]);
    }

    #[test]
    fn what_is_no_answer_is_an_error_of_its_kind() {
        let overloaded = r#"event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}

"#;
        let (error, _) = stream(&format!("{START}{overloaded}"));
        assert!(matches!(error, Err(DecodeError::Reported(ModelError::Wait(_)))), "{error:?}");
        let (cut, _) = stream(&(START.to_owned() + &block(0, r#"{"type":"text","text":"a"}"#, &[])));
        assert_eq!(cut, Err(DecodeError::Cut));
        let stray = event("content_block_delta", r#""index":4,"delta":{"text":"x"}"#);
        for malformed in [stray.as_str(), "event: content_block_start\ndata: {\n\n", "data: \u{1}\n\n"] {
            assert!(matches!(stream(malformed).0, Err(DecodeError::Malformed(_))), "{malformed}");
        }
        for body in ["", "{}", "<html>", "[1]", r#"{"content":{}}"#] {
            assert!(matches!(document(body).0, Err(DecodeError::Malformed(_))), "{body}");
        }
        let (error, _) = document(r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#);
        assert!(matches!(error, Err(DecodeError::Reported(ModelError::Wait(_)))), "{error:?}");
    }

    #[test]
    fn a_plain_delta_is_read_as_the_parser_reads_it() {
        let texts = |delta: BlockDelta<'_>| {
            let DeltaFields { text, thinking, partial_json, signature, citation } = delta.delta;
            let texts =
                [text, thinking, partial_json, signature].map(|text| text.map(|BorrowedText(text)| text.into_owned()));
            (delta.index, texts, citation.map(|json| json.get().to_owned()))
        };
        for (json, is_plain) in [
            (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"so ü"}}"#, true),
            (r#" {"delta" : {"thinking":"so","type":"thinking_delta"}, "index" : 12 } "#, true),
            (r#"{"index":3,"delta":{"signature":"abc","partial_json":""},"new":"x"}"#, true),
            (r#"{"index":3,"delta":{"text":null}}"#, false),
            (r#"{"index":3,"delta":{"text":"a\nb"}}"#, false),
            (r#"{"index":3,"delta":{"citation":{"a":1}},"new":[1]}"#, false),
            (r#"{"index":3,"delta":{"text":"a","text":"b"}}"#, false),
            (r#"{"index":3,"index":3,"delta":{}}"#, false),
            (r#"{"delta":{"text":"a"}}"#, false),
            (r#"{"index":3}"#, false),
            (r#"{"index":-3,"delta":{}}"#, false),
            (r#"{"index":3,"delta":{}} x"#, false),
        ] {
            let parsed = serde_json::from_str::<BlockDelta<'_>>(json).map(texts).ok();
            assert_eq!(Plain::read(json, BlockDelta::plain).is_some(), is_plain, "{json}");
            assert_eq!(BlockDelta::read(json.as_bytes()).map(texts).ok(), parsed, "{json}");
        }
    }
}
