//! Answer → reply. A document is a stream of one chunk that says `message` instead of `delta`.

use std::collections::{HashMap, HashSet};

use crate::http::frames::Frame;
use crate::message::{
    Arguments, Finish, RawJson, Reply, ReplyPart, ServerToolPart, TextPart, ThinkingPart, ToolCall, Usage,
};
use crate::model::protocol::{
    BorrowedText, DecodeError, Decoder, Delta, InlineThinking, Quirks, ReportedCost, read_json,
};
use crate::model::think_tags::{TaggedText, ThinkTags};
use crate::model::{Head, fault};

use super::wire::{CallDelta, Choice, Chunk, Content, ExecutedTool, MessageDelta, ReasoningDetail, WireUsage};

pub(crate) struct ChatDecoder {
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
    reported_cost: ReportedCost,
    finish_reason: Option<String>,
    done: bool,
    /// Bytes of arguments.
    argument_bytes: usize,
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
            None => place(TaggedText::Text(text), said, thinking, tell),
        }
    }

    fn think(&mut self, thought: &str, tell: &mut dyn FnMut(Delta<'_>)) {
        place(TaggedText::Thinking(thought), &mut self.text, &mut self.thinking, tell);
    }

    fn finish(&mut self, tell: &mut dyn FnMut(Delta<'_>)) {
        let Self { text, thinking, tags } = self;
        if let Some(tags) = tags {
            tags.finish(&mut |piece| place(piece, text, thinking, tell));
        }
    }
}

fn place(piece: TaggedText<'_>, text: &mut String, thinking: &mut String, tell: &mut dyn FnMut(Delta<'_>)) {
    match piece {
        TaggedText::Text("") | TaggedText::Thinking("") => {}
        TaggedText::Text(piece) => {
            tell(Delta::Text(piece));
            text.push_str(piece);
        }
        TaggedText::Thinking(piece) => {
            tell(Delta::Thinking(piece));
            thinking.push_str(piece);
        }
    }
}

impl ChatDecoder {
    pub(crate) fn new(head: &Head, quirks: &Quirks, turn: usize) -> Self {
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
            reported_cost: quirks.reported_cost,
            finish_reason: None,
            done: false,
            argument_bytes: 0,
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let choices = chunk.choices.unwrap_or_default();
        let error = chunk.error.or_else(|| choices.iter().find_map(|choice| choice.error));
        if let Some(error) = error {
            return Err(DecodeError::Reported(fault::in_answer(error.get().as_bytes())));
        }
        let usage = chunk.usage.or_else(|| chunk.x_groq.and_then(|groq| groq.usage));
        self.usage = usage.map(|usage| *usage).or(self.usage.take());
        // More than one choice is never asked for.
        for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.choice(choice, tell);
        }
        Ok(())
    }

    fn choice(&mut self, choice: Choice<'_>, tell: &mut dyn FnMut(Delta<'_>)) {
        if let Some(BorrowedText(reason)) = choice.finish_reason.filter(|BorrowedText(reason)| !reason.is_empty()) {
            self.finish_reason = Some(reason.into_owned());
        }
        if let Some(mut message) = choice.message {
            for call in message.tool_calls.take().unwrap_or_default() {
                self.calls.push(OpenCall::default());
                self.grow_call(self.calls.len() - 1, call);
            }
            self.message(*message, tell);
        }
        if let Some(mut delta) = choice.delta {
            for call in delta.tool_calls.take().unwrap_or_default() {
                let position = self.call_meant(&call);
                self.grow_call(position, call);
            }
            self.message(*delta, tell);
        }
    }

    fn message(&mut self, delta: MessageDelta<'_>, tell: &mut dyn FnMut(Delta<'_>)) {
        let details = delta.reasoning_details.unwrap_or_default();
        let plain = [delta.reasoning_content, delta.reasoning].into_iter().flatten();
        if let Some(BorrowedText(thought)) = plain.into_iter().find(|BorrowedText(thought)| !thought.is_empty()) {
            self.words.think(&thought, tell);
        } else {
            details.iter().filter_map(ReasoningDetail::words).for_each(|thought| self.words.think(thought, tell));
        }
        for detail in details {
            self.add_detail(detail);
        }
        self.content(delta.content, tell);
        if let Some(BorrowedText(refusal)) = delta.refusal {
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
                    } else if let Some(BorrowedText(text)) = piece.text {
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
        let id = delta.id.as_ref().map_or("", |BorrowedText(id)| id);
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
        if let (Some(BorrowedText(id)), true) = (&delta.id, call.id.is_empty()) {
            call.id.push_str(id);
        }
        if let (Some(tool), true) = (delta.tool(), call.tool.is_empty()) {
            call.tool.push_str(tool);
        }
        if let Some(arguments) = delta.function.and_then(|function| function.arguments) {
            self.argument_bytes += arguments.0.len();
            call.arguments.push_str(&arguments.0);
        }
        call.extra_content = delta.extra_content.or(call.extra_content.take());
    }

    fn end(&mut self, tell: &mut dyn FnMut(Delta<'_>)) {
        self.words.finish(tell);
        self.done = true;
    }

    fn finish_of(&self) -> Finish {
        let finish = match self.finish_reason.as_deref() {
            Some("stop" | "end_turn" | "eos" | "stop_sequence") | None => Finish::Stop,
            Some("length" | "max_tokens") => Finish::Length,
            Some("model_length") => Finish::ContextWindow,
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
                self.end(tell);
                Ok(())
            }
            (Some(b"error"), error) => Err(DecodeError::Reported(fault::in_answer(error))),
            (_, chunk) => self.chunk(read_json(chunk)?, tell),
        }
    }

    fn document(&mut self, body: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let chunk: Chunk<'_> = read_json(body)?;
        let answered = chunk.choices.as_ref().is_some_and(|choices| !choices.is_empty());
        self.chunk(chunk, tell)?;
        if !answered {
            return Err(DecodeError::Malformed("there are no `choices`".to_owned()));
        }
        self.end(tell);
        Ok(())
    }

    fn ended(&self) -> bool {
        self.done
    }

    // Some servers forget the last event. Behind the reason only the usage may come; behind a bad one also an error.
    fn is_complete(&self) -> bool {
        self.done || (self.finish_reason.is_some() && (self.usage.is_some() || self.finish_of().is_natural()))
    }

    fn calls(&self) -> usize {
        self.calls.len()
    }

    fn progress(&self) -> usize {
        let Words { text, thinking, .. } = &self.words;
        let pieces = self.calls.len() + self.reasoning_details.len() + self.annotations.len() + self.server_tools.len();
        text.len() + thinking.len() + self.refusal.len() + self.argument_bytes + pieces
    }

    fn usage(&self) -> Usage {
        self.usage.as_ref().map_or(Usage::default(), |usage| usage.total(self.reported_cost))
    }

    fn finish(mut self: Box<Self>) -> Result<Reply, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Cut);
        }
        self.words.finish(&mut |_| {}); // for a stream without its last event
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
        let unknown = Usage { requests: 1, ..Usage::default() };
        let usage = self.usage.map_or(unknown, |usage| usage.total(self.reported_cost));
        let finish_reason = self.finish_reason.filter(|_| !finish.is_natural());
        Ok(Reply { parts, model: self.model, finish, finish_reason, usage })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelError;
    use crate::model::fixtures::{call, head, json, read_document, read_stream, usage};
    use crate::model::openai_chat::OpenAiChat;

    fn stream(quirks: &Quirks, sse: &str) -> (Result<Reply, DecodeError>, Vec<String>) {
        read_stream(&OpenAiChat, &head("groq:m"), quirks, sse)
    }

    fn document(quirks: &Quirks, body: &str) -> (Result<Reply, DecodeError>, Vec<String>) {
        read_document(&OpenAiChat, &head("groq:m"), quirks, body)
    }

    fn chunks(deltas: &[&str], reason: &str) -> String {
        let chunk = |delta: &&str| {
            format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null}}"#)
        };
        let mut events: Vec<String> = deltas.iter().map(chunk).collect();
        events.push(format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{reason}"}}]}}"#));
        events.push(r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}"#.to_owned());
        events.push("[DONE]".to_owned());
        events.iter().flat_map(|event| ["data: ", event, "\n\n"]).collect()
    }

    fn whole(message: &str, reason: &str) -> String {
        let usage = r#"{"prompt_tokens":5,"completion_tokens":9}"#;
        format!(r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"{reason}"}}],"usage":{usage}}}"#)
    }

    /// Both forms of an answer must give these parts.
    #[track_caller]
    fn check_with(quirks: &Quirks, deltas: &[&str], message: &str, reason: &str, expected: (Vec<ReplyPart>, Finish)) {
        let (parts, finish) = expected;
        let finish_reason = (!finish.is_natural()).then(|| reason.to_owned());
        let reply = Reply { parts, model: "groq:m".into(), finish, finish_reason, usage: usage(5, 9) };
        let (streamed, told) = stream(quirks, &chunks(deltas, reason));
        assert_eq!(streamed, Ok(reply.clone()));
        let (read, told_at_once) = document(quirks, &whole(message, reason));
        assert_eq!(read, Ok(reply));
        let join = |told: Vec<String>| told.join("").replace("text ", "").replace("thinking ", "");
        assert_eq!(join(told), join(told_at_once));
    }

    #[track_caller]
    fn check(deltas: &[&str], message: &str, reason: &str, expected: (Vec<ReplyPart>, Finish)) {
        check_with(&Quirks::NONE, deltas, message, reason, expected);
    }

    fn text(text: &str) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: None })
    }

    fn thinking(text: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::Thinking(ThinkingPart { text: text.into(), private: private.map(json) })
    }

    #[test]
    fn what_a_request_cost_is_believed_of_whoever_says_it_in_dollars() {
        let dollars = Quirks { reported_cost: ReportedCost::Dollars, ..Quirks::NONE };
        let cases = [
            (&dollars, r#""cost":0.25,"is_byok":false,"cost_details":{"upstream_inference_cost":0.5}"#, Some(0.25)),
            (&dollars, r#""cost":0.25,"is_byok":true,"cost_details":{"upstream_inference_cost":0.5}"#, Some(0.75)),
            (&dollars, r#""cost":0,"is_byok":true,"cost_details":null"#, Some(0.0)),
            (&dollars, r#""cost":-1"#, None),
            (&dollars, r#""cost":{"total":1},"is_byok":"no","cost_details":[]"#, None),
            (&dollars, r#""cost":null"#, None),
            (&Quirks::NONE, r#""cost":0.25"#, None),
            (&Quirks::NONE, r#""cost":{"total":1}"#, None),
        ];
        for (quirks, fields, expected) in cases {
            let body = format!(
                r#"{{"choices":[{{"message":{{"content":"a"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":5,{fields}}}}}"#
            );
            let (read, _) = document(quirks, &body);
            assert_eq!(read.unwrap().usage.cost_usd, expected, "{fields}");
        }
    }

    #[test]
    fn streams_and_documents_give_the_same_words() {
        check(
            &[r#"{"role":"assistant","content":""}"#, r#"{"content":"Hi, "}"#, r#"{"content":"\"you\""}"#],
            r#"{"content":"Hi, \"you\""}"#,
            "stop",
            (vec![text("Hi, \"you\"")], Finish::Stop),
        );
        check(
            &[
                r#"{"content":null,"reasoning_content":"h"}"#,
                r#"{"reasoning":"m"}"#,
                r#"{"content":"x","reasoning":null}"#,
            ],
            r#"{"content":"x","reasoning_content":"hm","reasoning":"hm"}"#,
            "length",
            (vec![thinking("hm", None), text("x")], Finish::Length),
        );
        check(
            &[
                r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]}"#,
                r#"{"content":[{"type":"thinking","thinking":"m"},{"type":"text","text":"x"}]}"#,
            ],
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"x"}]}"#,
            "model_length",
            (vec![thinking("hm", None), text("x")], Finish::ContextWindow),
        );
        check(
            &[r#"{"refusal":"I "}"#, r#"{"refusal":"won't"}"#],
            r#"{"content":null,"refusal":"I won't"}"#,
            "stop",
            (vec![ReplyPart::Refusal(TextPart { text: "I won't".into(), private: None })], Finish::ContentFilter),
        );
        check(
            &[r#"{"content":"x"}"#, r#"{"annotations":[{"z":1,"a":2}]}"#],
            r#"{"content":"x","annotations":[{"z":1,"a":2}]}"#,
            "stop",
            (
                vec![ReplyPart::Text(TextPart { text: "x".into(), private: Some(json(r#"[{"z":1,"a":2}]"#)) })],
                Finish::Stop,
            ),
        );
    }

    #[test]
    fn reasoning_details_are_put_together_again() {
        let (first, second) = (
            r#"{"reasoning":"h","reasoning_details":[{"type":"reasoning.text","text":"h","index":0,"format":null}]}"#,
            r#"{"reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m","index":0}]}"#,
        );
        let signature = r#"{"reasoning_details":[{"type":"reasoning.text","signature":"s","index":0}]}"#;
        let encrypted = r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"d","index":1}]}"#;
        let details = r#"[{"type":"reasoning.text","text":"hm","signature":"s","index":0},{"type":"reasoning.encrypted","data":"d","index":1}]"#;
        check(
            &[first, second, signature, encrypted],
            &format!(r#"{{"content":"","reasoning":"hm","reasoning_details":{details}}}"#),
            "stop",
            (vec![thinking("hm", Some(details))], Finish::Stop),
        );
        check(
            &[r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"s"}]}"#],
            r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"s"}]}"#,
            "stop",
            (vec![thinking("s", Some(r#"[{"type":"reasoning.summary","summary":"s"}]"#))], Finish::Stop),
        );
    }

    #[test]
    fn calls_are_put_together_however_servers_number_them() {
        let expected = |first: &str, second: &str| {
            let calls = [call(first, r#"{"a":1}"#), call(second, r#"{"b":2}"#)];
            (calls.map(ReplyPart::ToolCall).to_vec(), Finish::ToolCalls)
        };
        let function = |arguments: &str| format!(r#""function":{{"name":"add","arguments":{arguments}}}"#);
        let (a, b) = (function(r#""{\"a\":1}""#), function(r#""{\"b\":2}""#));
        let message = format!(r#"{{"tool_calls":[{{"id":"x",{a}}},{{"id":"y",{b}}}]}}"#);
        let by_index = [
            r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"add","arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"y","function":{"name":"add","arguments":"{\"b\":"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"id":"y","function":{"arguments":"2}"}}]}"#,
        ];
        check(&by_index, &message, "tool_calls", expected("x", "y"));
        for numbers in ["", r#""index":0,"#] {
            let delta = format!(r#"{{"tool_calls":[{{{numbers}"id":"x",{a}}},{{{numbers}"id":"y",{b}}}]}}"#);
            check(&[&delta], &message, "stop", expected("x", "y"));
        }
        let nameless = format!(r#"{{"tool_calls":[{{"id":"",{a}}},{{{b}}}]}}"#);
        check(&[&nameless], &nameless, "tool_calls", expected("call_3_0", "call_3_1"));
        let twice = format!(r#"{{"tool_calls":[{{"index":0,"id":"x",{a}}},{{"index":1,"id":"x",{b}}}]}}"#);
        check(&[&twice], &twice, "tool_calls", expected("x", "call_3_1"));
        let objects = format!(
            r#"{{"tool_calls":[{{"id":"x",{}}},{{"id":"y",{}}}]}}"#,
            function(r#"{"a":1}"#),
            function(r#"{"b":2}"#)
        );
        check(&[&objects], &objects, "tool_calls", expected("x", "y"));
    }

    #[test]
    fn arguments_that_were_cut_off_are_marked() {
        let cut = r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"add","arguments":"{\"a\":"}}]}"#;
        check(&[cut], cut, "length", (vec![ReplyPart::ToolCall(call("x", "{\"a\":"))], Finish::Length));
        let empty = r#"{"tool_calls":[{"index":0,"id":"x","function":{"name":"add"},"extra_content":{"s":1}}]}"#;
        let expected = ToolCall { private: Some(json(r#"{"s":1}"#)), ..call("x", "{}") };
        check(&[empty], empty, "tool_calls", (vec![ReplyPart::ToolCall(expected)], Finish::ToolCalls));
    }

    #[test]
    fn inline_thinking_is_told_apart_where_the_provider_writes_it() {
        let inline = Quirks { inline_thinking: InlineThinking::Thinking, ..Quirks::NONE };
        let deltas = [r#"{"content":"<th"}"#, r#"{"content":"ink>hm</thi"}"#, r#"{"content":"nk>\n\nx"}"#];
        let message = r#"{"content":"<think>hm</think>\n\nx"}"#;
        check_with(&inline, &deltas, message, "stop", (vec![thinking("hm", None), text("x")], Finish::Stop));
        check(&deltas, message, "stop", (vec![text("<think>hm</think>\n\nx")], Finish::Stop));
    }

    #[test]
    fn tools_that_the_provider_ran_are_shown() {
        let ran = r#"{"content":"x","executed_tools":[{"type":"search","arguments":"{\"q\":1}","output":"found"}]}"#;
        let part = ServerToolPart {
            tool: "search".into(),
            input: Some(json(r#"{"q":1}"#)),
            output: Some(json(r#""found""#)),
            private: None,
        };
        check(&[ran], ran, "stop", (vec![ReplyPart::ServerTool(part), text("x")], Finish::Stop));
    }

    #[test]
    fn a_stream_ends_with_its_last_event_or_all_that_comes_before() {
        let none = &Quirks::NONE;
        let sse = chunks(&[r#"{"content":"x"}"#], "stop");
        let without_done = sse.replace("data: [DONE]\n\n", "");
        assert_eq!(stream(none, &without_done).0, stream(none, &sse).0);
        let without_usage = without_done.rsplit_once("data: ").unwrap().0;
        let unknown = Reply { usage: usage(0, 0), ..stream(none, &sse).0.unwrap() };
        assert_eq!(stream(none, without_usage).0, Ok(unknown), "nothing of the answer is missing");
        let without_reason = without_usage.rsplit_once("data: ").unwrap().0;
        assert_eq!(stream(none, without_reason).0, Err(DecodeError::Cut));
        let (reply, _) = stream(none, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n");
        assert_eq!(reply.unwrap().finish, Finish::Stop);
    }

    #[test]
    fn what_is_no_answer_is_an_error_of_its_kind() {
        let none = &Quirks::NONE;
        let reported = [
            "data: {\"error\":{\"message\":\"m\",\"code\":502},\"choices\":[]}\n\n",
            "event: error\ndata: {\"message\":\"m\"}\n\n",
            "data: {\"choices\":[{\"error\":{\"message\":\"m\",\"code\":429}}]}\n\n",
        ];
        for sse in reported {
            assert!(matches!(stream(none, sse).0, Err(DecodeError::Reported(ModelError::Wait(_)))), "{sse}");
        }
        for sse in ["data: {\n\n", "data: [1]\n\n", "data: {\"choices\":[{\"delta\":{\"content\":7}}]}\n\n"] {
            assert!(matches!(stream(none, sse).0, Err(DecodeError::Malformed(_))), "{sse}");
        }
        for body in ["", "{}", "<html>", r#"{"choices":[]}"#] {
            assert!(matches!(document(none, body).0, Err(DecodeError::Malformed(_))), "{body}");
        }
        let (error, _) = document(none, r#"{"error":{"message":"m","code":503}}"#);
        assert!(matches!(error, Err(DecodeError::Reported(ModelError::Wait(_)))), "{error:?}");
    }
}
