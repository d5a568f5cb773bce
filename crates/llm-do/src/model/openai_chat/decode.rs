//! Answer → reply. A document is a stream of one chunk that says `message` instead of `delta`.

use std::collections::{HashMap, HashSet};

use crate::message::{
    Arguments, Finish, RawJson, Reply, ReplyPart, ServerToolPart, TextPart, ThinkingPart, ToolCall, Usage,
};
use crate::model::frames::Frame;
use crate::model::protocol::{DecodeError, Decoder, Delta, InlineThinking, Quirks};
use crate::model::think_tags::{Piece, ThinkTags};
use crate::model::{Head, fault};

use super::wire::{
    Borrowed, CallDelta, Choice, Chunk, Content, ExecutedTool, MessageDelta, ReasoningDetail, WireUsage,
};

pub struct ChatDecoder {
    model: String,
    turn: usize,
    words: Words,
    reasoning_details: Vec<ReasoningDetail>,
    annotations: Vec<RawJson>,
    refusal: String,
    server_tools: Vec<ServerToolPart>,
    calls: Vec<OpenCall>,
    /// Which call a stream means by an index: the latest that had it.
    call_of_index: HashMap<u64, usize>,
    usage: Option<WireUsage>,
    finish_reason: Option<String>,
    done: bool,
}

#[derive(Default)]
struct OpenCall {
    id: String,
    tool: String,
    arguments: String,
    extra_content: Option<RawJson>,
}

/// Text and thinking, told apart.
struct Words {
    text: String,
    thinking: String,
    tags: Option<ThinkTags>,
}

impl Words {
    fn say(&mut self, text: &str, tell: &mut dyn FnMut(Delta<'_>)) {
        let Self { text: said, thinking, tags } = self;
        match tags {
            Some(tags) => tags.push(text, &mut |piece| place(piece, said, thinking, tell)),
            None => place(Piece::Text(text), said, thinking, tell),
        }
    }

    fn think(&mut self, thought: &str, tell: &mut dyn FnMut(Delta<'_>)) {
        place(Piece::Thinking(thought), &mut self.text, &mut self.thinking, tell);
    }

    fn finish(&mut self) {
        let Self { text, thinking, tags } = self;
        if let Some(tags) = tags {
            tags.finish(&mut |piece| place(piece, text, thinking, &mut |_| {}));
        }
    }
}

fn place(piece: Piece<'_>, text: &mut String, thinking: &mut String, tell: &mut dyn FnMut(Delta<'_>)) {
    match piece {
        Piece::Text("") | Piece::Thinking("") => {}
        Piece::Text(piece) => {
            tell(Delta::Text(piece));
            text.push_str(piece);
        }
        Piece::Thinking(piece) => {
            tell(Delta::Thinking(piece));
            thinking.push_str(piece);
        }
    }
}

impl ChatDecoder {
    pub fn new(head: &Head, quirks: &Quirks, turn: usize) -> Self {
        let tags = match quirks.inline_thinking {
            InlineThinking::Text => None,
            InlineThinking::Thinking => Some(ThinkTags::default()),
        };
        Self {
            model: head.model.to_string(),
            turn,
            words: Words { text: String::new(), thinking: String::new(), tags },
            reasoning_details: Vec::new(),
            annotations: Vec::new(),
            refusal: String::new(),
            server_tools: Vec::new(),
            calls: Vec::new(),
            call_of_index: HashMap::new(),
            usage: None,
            finish_reason: None,
            done: false,
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let choices = chunk.choices.unwrap_or_default();
        let error = chunk.error.or_else(|| choices.iter().find_map(|choice| choice.error));
        if let Some(error) = error {
            return Err(DecodeError::Reported(fault::in_answer(error.get().as_bytes())));
        }
        let usage = chunk.usage.or_else(|| chunk.x_groq.and_then(|groq| groq.usage));
        self.usage = usage.or(self.usage.take());
        // More than one choice is never asked for.
        for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.choice(choice, tell);
        }
        Ok(())
    }

    fn choice(&mut self, choice: Choice<'_>, tell: &mut dyn FnMut(Delta<'_>)) {
        if let Some(Borrowed(reason)) = choice.finish_reason.filter(|Borrowed(reason)| !reason.is_empty()) {
            self.finish_reason = Some(reason.into_owned());
        }
        if let Some(mut message) = choice.message {
            for call in message.tool_calls.take().unwrap_or_default() {
                self.calls.push(OpenCall::default());
                self.grow_call(self.calls.len() - 1, call);
            }
            self.message(message, tell);
        }
        if let Some(mut delta) = choice.delta {
            for call in delta.tool_calls.take().unwrap_or_default() {
                let position = self.call_meant(&call);
                self.grow_call(position, call);
            }
            self.message(delta, tell);
        }
    }

    fn message(&mut self, delta: MessageDelta<'_>, tell: &mut dyn FnMut(Delta<'_>)) {
        let details = delta.reasoning_details.unwrap_or_default();
        let plain = [delta.reasoning_content, delta.reasoning].into_iter().flatten();
        if let Some(Borrowed(thought)) = plain.into_iter().find(|Borrowed(thought)| !thought.is_empty()) {
            self.words.think(&thought, tell);
        } else {
            details.iter().filter_map(ReasoningDetail::words).for_each(|thought| self.words.think(thought, tell));
        }
        details.into_iter().for_each(|detail| self.add_detail(detail));
        self.content(delta.content, tell);
        if let Some(Borrowed(refusal)) = delta.refusal {
            self.refusal.push_str(&refusal);
        }
        self.annotations.extend(delta.annotations.unwrap_or_default());
        for tool in delta.executed_tools.unwrap_or_default() {
            let part = server_tool(tool);
            tell(Delta::ServerTool(&part));
            self.server_tools.push(part);
        }
    }

    fn content(&mut self, content: Option<Content<'_>>, tell: &mut dyn FnMut(Delta<'_>)) {
        match content {
            Some(Content::Text(text)) => self.words.say(&text, tell),
            Some(Content::Pieces(pieces)) => {
                for piece in pieces {
                    if let Some(thought) = piece.thinking {
                        thought.texts(&mut |thought| self.words.think(thought, tell));
                    } else if let Some(Borrowed(text)) = piece.text {
                        self.words.say(&text, tell);
                    }
                }
            }
            None => {}
        }
    }

    /// A stream brings a detail in pieces of the same kind and index.
    fn add_detail(&mut self, detail: ReasoningDetail) {
        match self.reasoning_details.last_mut() {
            Some(last) if last.is_continued_by(&detail) => last.append(detail),
            Some(_) | None => self.reasoning_details.push(detail),
        }
    }

    /// Finds the call that a delta belongs to, or begins a new one: by index; where servers give none, or the same one
    /// to all, by id.
    fn call_meant(&mut self, delta: &CallDelta<'_>) -> usize {
        let id = delta.id.as_ref().map_or("", |Borrowed(id)| id);
        let known = match delta.index {
            Some(index) => self.call_of_index.get(&index).copied(),
            None if id.is_empty() && delta.tool().is_some() => None,
            None => self.calls.len().checked_sub(1),
        };
        let same =
            |position: &usize| id.is_empty() || self.calls[*position].id.is_empty() || self.calls[*position].id == id;
        let position = known.filter(same).unwrap_or_else(|| {
            self.calls.push(OpenCall::default());
            self.calls.len() - 1
        });
        if let Some(index) = delta.index {
            self.call_of_index.insert(index, position);
        }
        position
    }

    fn grow_call(&mut self, position: usize, delta: CallDelta<'_>) {
        let call = &mut self.calls[position];
        if let (Some(Borrowed(id)), true) = (&delta.id, call.id.is_empty()) {
            call.id.push_str(id);
        }
        if let (Some(tool), true) = (delta.tool(), call.tool.is_empty()) {
            call.tool.push_str(tool);
        }
        if let Some(arguments) = delta.function.and_then(|function| function.arguments) {
            call.arguments.push_str(&arguments.0);
        }
        call.extra_content = delta.extra_content.or(call.extra_content.take());
    }

    fn is_complete(&self) -> bool {
        // Some servers forget the last event; after the reason and the usage nothing else can come.
        self.done || (self.finish_reason.is_some() && self.usage.is_some())
    }

    fn finish_of(&self) -> Finish {
        let finish = match self.finish_reason.as_deref() {
            Some("stop" | "end_turn" | "eos" | "stop_sequence") | None => Finish::Stop,
            Some("length" | "model_length" | "max_tokens") => Finish::Length,
            Some("tool_calls" | "function_call") => Finish::ToolCalls,
            Some("content_filter" | "sensitive") => Finish::ContentFilter,
            Some(_) => Finish::Error,
        };
        match finish {
            Finish::Stop if !self.calls.is_empty() => Finish::ToolCalls,
            Finish::Stop if !self.refusal.is_empty() => Finish::ContentFilter,
            other => other,
        }
    }
}

impl Decoder for ChatDecoder {
    fn frame(&mut self, frame: Frame<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let data = frame.data.trim_ascii();
        match (frame.event, data) {
            (_, b"") => Ok(()),
            (_, b"[DONE]") => {
                self.done = true;
                Ok(())
            }
            (Some("error"), error) => Err(DecodeError::Reported(fault::in_answer(error))),
            (_, chunk) => self.chunk(serde_json::from_slice(chunk)?, tell),
        }
    }

    fn document(&mut self, body: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let chunk: Chunk<'_> = serde_json::from_slice(body)?;
        let answered = chunk.choices.as_ref().is_some_and(|choices| !choices.is_empty());
        self.chunk(chunk, tell)?;
        if !answered {
            return Err(DecodeError::Malformed("there are no `choices`".to_owned()));
        }
        self.done = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.done
    }

    fn finish(mut self: Box<Self>) -> Result<Reply, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Cut);
        }
        self.words.finish();
        let finish = self.finish_of();
        let mut parts = Vec::new();
        let details = (!self.reasoning_details.is_empty()).then(|| RawJson::of(&self.reasoning_details));
        if !self.words.thinking.is_empty() || details.is_some() {
            parts.push(ReplyPart::Thinking(ThinkingPart { text: self.words.thinking, private: details }));
        }
        parts.extend(self.server_tools.into_iter().map(ReplyPart::ServerTool));
        if !self.words.text.is_empty() {
            let private = (!self.annotations.is_empty()).then(|| RawJson::of(&self.annotations));
            parts.push(ReplyPart::Text(TextPart { text: self.words.text, private }));
        }
        if !self.refusal.is_empty() {
            parts.push(ReplyPart::Refusal(TextPart { text: self.refusal, private: None }));
        }
        parts.extend(closed(self.calls, self.turn).map(ReplyPart::ToolCall));
        let usage = self.usage.map_or(Usage { requests: 1, ..Usage::default() }, |usage| usage.total());
        Ok(Reply { parts, model: self.model, finish, usage })
    }
}

/// Calls without an id, or with one that was given already, get one of their own.
fn closed(calls: Vec<OpenCall>, turn: usize) -> impl Iterator<Item = ToolCall> {
    let mut given = HashSet::new();
    calls.into_iter().enumerate().map(move |(position, call)| {
        let usable = !call.id.is_empty() && given.insert(call.id.clone());
        let id = if usable { call.id } else { format!("call_{turn}_{position}") };
        ToolCall { id, tool: call.tool, arguments: Arguments::parse(call.arguments), private: call.extra_content }
    })
}

fn server_tool(executed: ExecutedTool) -> ServerToolPart {
    let ExecutedTool { r#type, name, arguments, output } = executed;
    let tool = r#type.or(name).unwrap_or_default();
    // The arguments are JSON inside of a string.
    let arguments =
        arguments.map(|json| json.to::<String>().ok().and_then(|text| RawJson::parse(&text).ok()).unwrap_or(json));
    ServerToolPart { tool, input: arguments, output, private: None }
}
