//! Answer → reply.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::message::{
    Arguments, Finish, RawJson, Reply, ReplyPart, ServerToolPart, TextPart, ThinkingPart, ToolCall, Usage,
};
use crate::model::frames::Frame;
use crate::model::protocol::{DecodeError, Decoder, Delta};
use crate::model::{Head, fault};

pub struct MessagesDecoder {
    model: String,
    turn: usize,
    /// By the index that the stream gives them; they end up in its order.
    blocks: BTreeMap<u64, Block>,
    /// Names of the provider's tools by the id of their use, for the results to come.
    server_tools: HashMap<String, String>,
    usage: WireUsage,
    stop_reason: Option<String>,
    refusal: Option<String>,
    ended: bool,
}

/// A block that still grows, or what it became.
enum Block {
    Open(OpenBlock),
    Closed(ReplyPart),
}

impl MessagesDecoder {
    pub fn new(head: &Head, turn: usize) -> Self {
        Self {
            model: head.model.to_string(),
            turn,
            blocks: BTreeMap::new(),
            server_tools: HashMap::new(),
            usage: WireUsage::default(),
            stop_reason: None,
            refusal: None,
            ended: false,
        }
    }

    fn block_delta(&mut self, data: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let BlockDelta { index, delta } = serde_json::from_slice(data)?;
        let Some(Block::Open(block)) = self.blocks.get_mut(&index) else {
            return Err(DecodeError::Malformed(format!("a delta of block {index}, which is not open")));
        };
        if let Some(Borrowed(text)) = delta.text {
            tell(Delta::Text(&text));
            block.text.push_str(&text);
        }
        if let Some(Borrowed(text)) = delta.thinking {
            tell(Delta::Thinking(&text));
            block.text.push_str(&text);
        }
        if let Some(Borrowed(json)) = delta.partial_json {
            block.input.push_str(&json);
        }
        if let Some(Borrowed(signature)) = delta.signature {
            block.signature.push_str(&signature);
        }
        if let Some(citation) = delta.citation {
            block.citations.push(citation.to_owned());
        }
        Ok(())
    }

    fn block_start(&mut self, data: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let BlockStart { index, content_block } = serde_json::from_slice(data)?;
        let block = OpenBlock::new(content_block)?;
        block.tell_beginning(tell);
        if self.blocks.insert(index, Block::Open(block)).is_some() {
            return Err(DecodeError::Malformed(format!("block {index} begins twice")));
        }
        Ok(())
    }

    fn block_stop(&mut self, index: u64, tell: &mut dyn FnMut(Delta<'_>)) {
        if let Some(Block::Open(block)) = self.blocks.remove(&index) {
            let part = self.part(block, index);
            if let ReplyPart::ServerTool(part) = &part {
                tell(Delta::ServerTool(part));
            }
            self.blocks.insert(index, Block::Closed(part));
        }
    }

    fn message_end(&mut self, end: MessageEnd) {
        self.stop_reason = end.stop_reason.or(self.stop_reason.take());
        if let Some(details) = end.stop_details {
            self.refusal = details.explanation.or(details.category);
        }
    }

    fn part(&mut self, block: OpenBlock, index: u64) -> ReplyPart {
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
                let id = block.string("id").unwrap_or_else(|| format!("call_{}_{index}", self.turn));
                let tool = block.string("name").unwrap_or_default();
                let private = block.fields.get("caller").cloned();
                ReplyPart::ToolCall(ToolCall { id, tool, arguments: Arguments::parse(block.arguments()), private })
            }
            "server_tool_use" | "mcp_tool_use" => {
                let tool = block.string("name").unwrap_or_else(|| block.kind.clone());
                if let Some(id) = block.string("id") {
                    self.server_tools.insert(id, tool.clone());
                }
                let (input, private) = (Some(block.input()), Some(block.raw()));
                ReplyPart::ServerTool(ServerToolPart { tool, input, output: None, private })
            }
            // Results of the provider's tools, and whatever else it may invent: shown if it has content, carried along.
            kind => {
                let used = block.string("tool_use_id").and_then(|id| self.server_tools.get(&id).cloned());
                let tool = used.unwrap_or_else(|| kind.strip_suffix("_tool_result").unwrap_or(kind).to_owned());
                let output = block.fields.get("content").cloned();
                let private = Some(block.raw());
                ReplyPart::ServerTool(ServerToolPart { tool, input: None, output, private })
            }
        }
    }

    fn event(&mut self, name: &str, data: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        match name {
            "content_block_delta" => self.block_delta(data, tell)?,
            "content_block_start" => self.block_start(data, tell)?,
            "content_block_stop" => self.block_stop(serde_json::from_slice::<BlockStop>(data)?.index, tell),
            "message_start" => {
                let MessageStart { message } = serde_json::from_slice(data)?;
                self.usage.update(message.usage);
            }
            "message_delta" => {
                let MessageDelta { delta, usage } = serde_json::from_slice(data)?;
                self.message_end(delta);
                self.usage.update(usage);
            }
            "message_stop" => self.ended = true,
            "error" => return Err(DecodeError::Reported(fault::in_answer(data))),
            _ => {} // `ping`, and what may come: new events are announced as ignorable
        }
        Ok(())
    }
}

impl Decoder for MessagesDecoder {
    fn frame(&mut self, frame: Frame<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        match frame.event {
            Some(name) => self.event(name, frame.data, tell),
            // Some proxies drop the names; every event says its own inside, too.
            None => {
                let Typed { r#type: Borrowed(name) } = serde_json::from_slice(frame.data)?;
                self.event(&name, frame.data, tell)
            }
        }
    }

    fn document(&mut self, body: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let document: Document = serde_json::from_slice(body)?;
        if document.error.is_some() {
            return Err(DecodeError::Reported(fault::in_answer(body)));
        }
        let content = document.content.ok_or_else(|| DecodeError::Malformed("there is no `content`".to_owned()))?;
        for (index, fields) in (0..).zip(content) {
            let block = OpenBlock::new(fields)?;
            block.tell_beginning(tell);
            self.blocks.insert(index, Block::Open(block));
            self.block_stop(index, tell);
        }
        self.usage.update(document.usage);
        self.message_end(MessageEnd { stop_reason: document.stop_reason, stop_details: document.stop_details });
        self.ended = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn finish(mut self: Box<Self>) -> Result<Reply, DecodeError> {
        if !self.ended {
            return Err(DecodeError::Cut);
        }
        let mut parts = Vec::with_capacity(self.blocks.len() + 1);
        for (index, block) in std::mem::take(&mut self.blocks) {
            parts.push(match block {
                Block::Open(block) => self.part(block, index),
                Block::Closed(part) => part,
            });
        }
        let refusal = self.refusal.take().filter(|words| !words.is_empty());
        parts.extend(refusal.map(|text| ReplyPart::Refusal(TextPart { text, private: None })));
        let finish = finish(self.stop_reason.as_deref());
        Ok(Reply { parts, model: self.model, finish, usage: self.usage.total() })
    }
}

fn finish(stop_reason: Option<&str>) -> Finish {
    match stop_reason {
        Some("end_turn" | "stop_sequence") => Finish::Stop,
        Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
        Some("tool_use") => Finish::ToolCalls,
        Some("pause_turn" | "compaction") => Finish::Pause,
        Some("refusal") => Finish::ContentFilter,
        Some(_) | None => Finish::Error,
    }
}

/// A content block and what deltas added to it.
struct OpenBlock {
    kind: String,
    fields: BTreeMap<String, RawJson>,
    /// Of `text` or `thinking`.
    text: String,
    signature: String,
    /// The text of `input`, if it came in pieces.
    input: String,
    citations: Vec<Box<RawValue>>,
}

impl OpenBlock {
    fn new(fields: BTreeMap<String, RawJson>) -> Result<Self, DecodeError> {
        let read = |name: &str| fields.get(name).map_or(Ok(None), RawJson::to::<Option<String>>);
        let kind = read("type")?.unwrap_or_default();
        let text = if kind == "thinking" {
            read("thinking")?
        } else if kind == "text" {
            read("text")?
        } else {
            None
        };
        let signature = if kind == "thinking" { read("signature")? } else { None };
        let citations = match fields.get("citations").filter(|_| kind == "text") {
            Some(citations) => citations.to::<Option<Vec<Box<RawValue>>>>()?.unwrap_or_default(),
            None => Vec::new(),
        };
        let (text, signature) = (text.unwrap_or_default(), signature.unwrap_or_default());
        Ok(Self { kind, fields, text, signature, input: String::new(), citations })
    }

    /// What a block brings along when it begins: nothing in a stream, everything in a document.
    fn tell_beginning(&self, tell: &mut dyn FnMut(Delta<'_>)) {
        if !self.text.is_empty() {
            tell(if self.kind == "text" { Delta::Text(&self.text) } else { Delta::Thinking(&self.text) });
        }
    }

    fn string(&self, name: &str) -> Option<String> {
        self.fields.get(name)?.to::<String>().ok().filter(|text| !text.is_empty())
    }

    /// The arguments of a call in the model's words; a call without any has an empty text.
    fn arguments(&self) -> String {
        if self.input.is_empty() {
            self.fields.get("input").map_or_else(String::new, |input| input.get().to_owned())
        } else {
            self.input.clone()
        }
    }

    fn input(&self) -> RawJson {
        let streamed = RawJson::parse(&self.input).ok();
        let given = || self.fields.get("input").cloned();
        streamed.or_else(given).unwrap_or_else(|| RawJson::from_valid("{}".to_owned()))
    }

    /// The block as it goes back.
    fn raw(&self) -> RawJson {
        let mut fields = self.fields.clone();
        let mut set = |name: &str, value: RawJson| fields.insert(name.to_owned(), value);
        match self.kind.as_str() {
            "text" => {
                set("text", RawJson::of(&self.text));
                set("citations", RawJson::of(&self.citations));
            }
            "thinking" => {
                set("thinking", RawJson::of(&self.text));
                set("signature", RawJson::of(&self.signature));
            }
            "server_tool_use" | "mcp_tool_use" => {
                set("input", self.input());
            }
            _ => {}
        }
        RawJson::of(&fields)
    }
}

/// A string of the frame, copied only if it has escapes. (Inside of an `Option` a bare `Cow` would always be copied.)
#[derive(Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow)]
    r#type: Borrowed<'a>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    index: u64,
    #[serde(borrow)]
    delta: DeltaFields<'a>,
}

/// The fields of all kinds of deltas: whichever is there says the kind.
#[derive(Deserialize)]
struct DeltaFields<'a> {
    #[serde(borrow)]
    text: Option<Borrowed<'a>>,
    #[serde(borrow)]
    thinking: Option<Borrowed<'a>>,
    #[serde(borrow)]
    partial_json: Option<Borrowed<'a>>,
    #[serde(borrow)]
    signature: Option<Borrowed<'a>>,
    #[serde(borrow)]
    citation: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct BlockStart {
    index: u64,
    content_block: BTreeMap<String, RawJson>,
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
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct MessageDelta {
    delta: MessageEnd,
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
    content: Option<Vec<BTreeMap<String, RawJson>>>,
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
    usage: Option<WireUsage>,
    error: Option<RawJson>,
}

#[derive(Default, Deserialize)]
struct WireUsage {
    /// Without what the cache served or took.
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Default, Deserialize)]
struct OutputDetails {
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
            cost_usd: None,
        }
    }
}
