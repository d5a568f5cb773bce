//! Answer → reply.
//!
//! A stream says a text in many parts, a document in one: neighbours without anything beside their text become one part
//! again. A part with a signature stays by itself, because the signature belongs to just that part.

use std::collections::{BTreeMap, HashSet};

use serde_json::value::RawValue;

use super::wire::{
    Candidate, Chunk, FunctionCall, Part, PromptFeedback, SIGNATURE, ToolInvocation, WireUsage, compact,
};
use crate::http::frames::Frame;
use crate::message::{
    Arguments, Finish, RawJson, Reply, ReplyPart, ServerToolPart, TextPart, ThinkingPart, ToolCall, Usage,
};
use crate::model::protocol::{DecodeError, Decoder, Delta, read_json};
use crate::model::{Fault, Head, ModelError, fault};

pub(crate) struct ContentDecoder {
    model: String,
    turn: usize,
    parts: Vec<ReplyPart>,
    calls: usize,
    /// Uses of the provider's tools whose result has not come: both are told together.
    without_result: Vec<ServerToolPart>,
    /// Grows with every piece of content.
    progress: usize,
    given_ids: HashSet<String>,
    metadata: Metadata,
    usage: Option<WireUsage>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    /// Why the prompt was not even shown to the model.
    blocked: Option<String>,
    /// A whole document was read. A stream says nowhere that it ends: some models give a finish reason in every chunk.
    whole: bool,
}

/// What is said about the answer as a whole; in a stream it grows.
#[derive(Default)]
struct Metadata {
    grounding: BTreeMap<String, RawJson>,
    url_context: BTreeMap<String, RawJson>,
    citations: Option<RawJson>,
    /// The answer itself shows which tools were used.
    tools_shown: bool,
    search_shown: bool,
    url_context_shown: bool,
}

impl ContentDecoder {
    pub(crate) fn new(head: &Head, turn: usize) -> Self {
        Self {
            model: head.model.to_string(),
            turn,
            parts: Vec::new(),
            calls: 0,
            without_result: Vec::new(),
            progress: 0,
            given_ids: HashSet::new(),
            metadata: Metadata::default(),
            usage: None,
            finish_reason: None,
            finish_message: None,
            blocked: None,
            whole: false,
        }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        if let Some(error) = chunk.error {
            return Err(DecodeError::Reported(fault::in_answer(error.get().as_bytes())));
        }
        self.usage = chunk.usage_metadata.or(self.usage.take());
        if let Some(PromptFeedback { block_reason: Some(reason), block_reason_message }) = chunk.prompt_feedback {
            self.blocked = Some(block_reason_message.filter(|words| !words.is_empty()).unwrap_or(reason));
        }
        // More than one candidate is never asked for.
        let candidates = chunk.candidates.unwrap_or_default();
        for candidate in candidates.into_iter().filter(|candidate| candidate.index.unwrap_or(0) == 0) {
            self.candidate(candidate, tell)?;
        }
        Ok(())
    }

    fn candidate(&mut self, candidate: Candidate<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
            self.part(&part, tell)?;
        }
        let kept = |(name, value): (String, &RawValue)| (name, compact(value));
        self.metadata.grounding.extend(candidate.grounding_metadata.into_iter().flatten().map(kept));
        self.metadata.url_context.extend(candidate.url_context_metadata.into_iter().flatten().map(kept));
        self.metadata.citations = candidate.citation_metadata.map(compact).or(self.metadata.citations.take());
        self.finish_message = candidate.finish_message.or(self.finish_message.take());
        self.finish_reason = candidate.finish_reason.or(self.finish_reason.take());
        if self.finish_reason.is_some() {
            for part in std::mem::take(&mut self.without_result) {
                tell(Delta::ServerTool(&part));
            }
            self.show_metadata(tell);
        }
        Ok(())
    }

    fn part(&mut self, part: &Part<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        self.progress += part.text.as_ref().map_or(0, |text| text.len()) + part.beside.len();
        if let Some(call) = part.field("functionCall") {
            self.call(serde_json::from_str(call.get())?, part);
        } else if part.text.is_none() && part.holds_more_than_a_signature() {
            let shown = server_tool(part)?;
            self.tell_tool(&shown, tell);
            self.metadata.tools_shown |= part.field("toolCall").is_some();
            self.parts.push(ReplyPart::ServerTool(shown));
        } else {
            let text = part.text.as_deref().unwrap_or_default();
            if part.thought { self.thought(text, part, tell) } else { self.text(text, part, tell) }
        }
        Ok(())
    }

    /// A use waits for its result. Both name the tool, and results come in the order of the uses.
    fn tell_tool(&mut self, part: &ServerToolPart, tell: &mut dyn FnMut(Delta<'_>)) {
        if part.output.is_none() && part.input.is_some() {
            return self.without_result.push(part.clone());
        }
        let used = self.without_result.iter().position(|used| used.tool == part.tool);
        let input = used.and_then(|position| self.without_result.remove(position).input);
        tell(Delta::ServerTool(&ServerToolPart { input: input.or_else(|| part.input.clone()), ..part.clone() }));
    }

    fn text(&mut self, text: &str, part: &Part<'_>, tell: &mut dyn FnMut(Delta<'_>)) {
        if !text.is_empty() {
            tell(Delta::Text(text));
        }
        let bare = part.beside.is_empty();
        match self.parts.last_mut() {
            Some(ReplyPart::Text(last)) if bare && last.private.is_none() => last.text.push_str(text),
            Some(_) | None if bare && text.is_empty() => {}
            Some(_) | None => {
                let private = (!bare).then(|| RawJson::of(&part.fields()));
                self.parts.push(ReplyPart::Text(TextPart { text: text.to_owned(), private }));
            }
        }
    }

    fn thought(&mut self, text: &str, part: &Part<'_>, tell: &mut dyn FnMut(Delta<'_>)) {
        if !text.is_empty() {
            tell(Delta::Thinking(text));
        }
        let bare = part.beside.is_empty();
        match self.parts.last_mut() {
            Some(ReplyPart::Thinking(last)) if bare && last.private.is_none() => last.text.push_str(text),
            Some(_) | None if bare && text.is_empty() => {}
            Some(_) | None => {
                let private = (!bare).then(|| part.raw());
                self.parts.push(ReplyPart::Thinking(ThinkingPart { text: text.to_owned(), private }));
            }
        }
    }

    fn call(&mut self, call: FunctionCall<'_>, part: &Part<'_>) {
        let mut private = part.fields();
        private.remove("functionCall");
        let given = call.id.filter(|id| !id.is_empty() && self.given_ids.insert(id.clone()));
        if let Some(id) = &given {
            private.insert("id".to_owned(), RawJson::of(id));
        }
        let id = given.unwrap_or_else(|| format!("call_{}_{}", self.turn, self.calls));
        self.calls += 1;
        let arguments = call.args.map_or_else(String::new, |args| compact(args).get().to_owned());
        self.parts.push(ReplyPart::ToolCall(ToolCall {
            id,
            tool: call.name.unwrap_or_default(),
            arguments: Arguments::parse(arguments),
            private: (!private.is_empty()).then(|| RawJson::of(&private)),
        }));
    }

    /// Keeps what the metadata says of the provider's tools, and tells it where nothing else does.
    fn show_metadata(&mut self, tell: &mut dyn FnMut(Delta<'_>)) {
        let shown = [self.metadata.search(), self.metadata.fetched()];
        for part in shown.into_iter().flatten() {
            if !self.metadata.tools_shown {
                tell(Delta::ServerTool(&part));
            }
            self.parts.push(ReplyPart::ServerTool(part));
        }
    }

    /// The citations belong to the last text there is.
    fn attach_citations(&mut self) {
        let Metadata { grounding, citations, .. } = std::mem::take(&mut self.metadata);
        let cites = grounding.contains_key("groundingChunks") || grounding.contains_key("groundingSupports");
        let grounding = cites.then(|| ("groundingMetadata".to_owned(), RawJson::of(&grounding)));
        let kept: Vec<_> =
            grounding.into_iter().chain(citations.map(|raw| ("citationMetadata".to_owned(), raw))).collect();
        let text = self.parts.iter_mut().rev().find_map(|part| match part {
            ReplyPart::Text(part) => (!part.text.is_empty()).then_some(part),
            ReplyPart::Thinking(_) | ReplyPart::ToolCall(_) | ReplyPart::ServerTool(_) | ReplyPart::Refusal(_) => None,
        });
        if let (Some(part), false) = (text, kept.is_empty()) {
            let mut fields: BTreeMap<String, RawJson> =
                part.private.take().and_then(|raw| raw.to().ok()).unwrap_or_default();
            fields.extend(kept);
            part.private = Some(RawJson::of(&fields));
        }
    }

    fn finish_of(&self) -> Finish {
        match self.finish_reason.as_deref() {
            None if self.blocked.is_some() => Finish::ContentFilter,
            Some("STOP") | None if self.calls > 0 => Finish::ToolCalls,
            Some("STOP") | None => Finish::Stop,
            Some("MAX_TOKENS") => Finish::Length,
            Some(
                "SAFETY"
                | "RECITATION"
                | "LANGUAGE"
                | "BLOCKLIST"
                | "PROHIBITED_CONTENT"
                | "SPII"
                | "MODEL_ARMOR"
                | "IMAGE_SAFETY"
                | "IMAGE_PROHIBITED_CONTENT"
                | "IMAGE_RECITATION",
            ) => Finish::ContentFilter,
            Some(_) => Finish::Error,
        }
    }

    /// The model wrote a call that the provider could not read or does not know, whatever it said besides.
    fn is_garbled(&self) -> bool {
        const REASONS: [&str; 3] = ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"];
        self.finish_reason.as_deref().is_some_and(|reason| REASONS.contains(&reason))
    }

    /// The provider's reason where there is nothing else: a call that it could not read, above all.
    fn unusable(&self) -> DecodeError {
        let reason = self.finish_reason.clone().unwrap_or_default();
        let words = self.finish_message.clone().filter(|words| !words.is_empty());
        let message = words.unwrap_or_else(|| format!("the model stopped with {reason}"));
        let fault = Fault { message, kind: Some(reason), ..Fault::default() };
        DecodeError::Reported(if self.is_garbled() { ModelError::Garbled(fault) } else { ModelError::GiveUp(fault) })
    }
}

impl Decoder for ContentDecoder {
    fn frame(&mut self, frame: Frame<'_>, tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        match frame.data.trim_ascii() {
            b"" | b"[DONE]" => Ok(()), // what proxies add
            chunk => self.chunk(read_json(chunk)?, tell),
        }
    }

    fn document(&mut self, body: &[u8], tell: &mut dyn FnMut(Delta<'_>)) -> Result<(), DecodeError> {
        let chunk: Chunk<'_> = read_json(body)?;
        let answered = chunk.candidates.as_ref().is_some_and(|candidates| !candidates.is_empty());
        self.chunk(chunk, tell)?;
        if !answered && self.blocked.is_none() {
            return Err(DecodeError::Malformed("there are no `candidates`".to_owned()));
        }
        self.whole = true;
        Ok(())
    }

    fn ended(&self) -> bool {
        self.whole
    }

    // Some models give a reason in every chunk: the end of a stream is known from its connection alone.
    fn is_complete(&self) -> bool {
        self.whole
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

    fn finish(mut self: Box<Self>) -> Result<Reply, DecodeError> {
        if !self.whole && self.finish_reason.is_none() && self.blocked.is_none() {
            return Err(DecodeError::Cut);
        }
        self.attach_citations();
        let finish = self.finish_of();
        let said = |part: &ReplyPart| matches!(part, ReplyPart::Text(_) | ReplyPart::ToolCall(_));
        if self.is_garbled() || (finish == Finish::Error && !self.parts.iter().any(said)) {
            return Err(self.unusable());
        }
        if finish == Finish::ContentFilter {
            let words = self.finish_message.take().or(self.blocked.take()).filter(|words| !words.is_empty());
            self.parts.extend(words.map(|text| ReplyPart::Refusal(TextPart { text, private: None })));
        }
        let usage = self.usage.map_or(Usage { requests: 1, ..Usage::default() }, |usage| usage.total());
        let finish_reason = self.finish_reason.filter(|_| !finish.is_natural());
        Ok(Reply { parts: self.parts, model: self.model, finish, finish_reason, usage })
    }
}

impl Metadata {
    fn search(&mut self) -> Option<ServerToolPart> {
        let searched = ["webSearchQueries", "searchEntryPoint"].iter().any(|name| self.grounding.contains_key(*name));
        let found = self.grounding.get("groundingChunks").cloned();
        if self.search_shown || !(searched || found.is_some()) {
            return None;
        }
        self.search_shown = true;
        let tool = if searched { "google_search" } else { "grounding" }.to_owned();
        Some(ServerToolPart {
            tool,
            input: self.grounding.get("webSearchQueries").cloned(),
            output: found,
            private: None,
        })
    }

    fn fetched(&mut self) -> Option<ServerToolPart> {
        let pages = self.url_context.get("urlMetadata").filter(|_| !self.url_context_shown)?.clone();
        self.url_context_shown = true;
        Some(ServerToolPart { tool: "url_context".to_owned(), input: None, output: Some(pages), private: None })
    }
}

/// A part that is neither text nor a call: what the provider's tools did, and whatever else it may invent. Shown as far
/// as it is known, carried along as it is.
fn server_tool(part: &Part<'_>) -> Result<ServerToolPart, DecodeError> {
    let invoked =
        |field: &str| part.field(field).map(|raw| serde_json::from_str::<ToolInvocation<'_>>(raw.get())).transpose();
    let (tool, input, output) = if let Some(code) = part.field("executableCode") {
        ("code_execution".to_owned(), Some(code), None)
    } else if let Some(result) = part.field("codeExecutionResult") {
        ("code_execution".to_owned(), None, Some(result))
    } else if let Some(used) = invoked("toolCall")? {
        (tool_name(used.tool_type), used.args, None)
    } else if let Some(result) = invoked("toolResponse")? {
        (tool_name(result.tool_type), None, result.response)
    } else {
        let kind = part.beside.iter().map(|(name, _)| name.as_ref()).find(|name| *name != SIGNATURE);
        (kind.unwrap_or_default().to_owned(), None, None)
    };
    Ok(ServerToolPart { tool, input: input.map(compact), output: output.map(compact), private: Some(part.raw()) })
}

fn tool_name(tool_type: Option<String>) -> String {
    tool_type.map_or_else(|| "unknown".to_owned(), |name| name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixtures::{call, head, json, read_document, read_stream, usage};
    use crate::model::gemini::Gemini;
    use crate::model::protocol::Quirks;

    fn stream(sse: &str) -> (Result<Reply, DecodeError>, Vec<String>) {
        read_stream(&Gemini, &head("google:m"), &Quirks::NONE, sse)
    }

    fn document(body: &str) -> (Result<Reply, DecodeError>, Vec<String>) {
        read_document(&Gemini, &head("google:m"), &Quirks::NONE, body)
    }

    fn chunk(parts: &str, end: &str) -> String {
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}},"index":0{end}}}],"usageMetadata":{{"promptTokenCount":5,"candidatesTokenCount":9}}}}"#
        )
    }

    fn events(chunks: &[String]) -> String {
        chunks.iter().flat_map(|chunk| ["data: ", chunk, "\r\n\r\n"]).collect()
    }

    /// Chunks with one part each, the last with the end.
    fn streamed(parts: &[&str], end: &str) -> String {
        let (last, before) = parts.split_last().unwrap();
        let mut chunks: Vec<String> = before.iter().map(|part| chunk(part, "")).collect();
        chunks.push(chunk(last, end));
        events(&chunks)
    }

    fn reply(parts: Vec<ReplyPart>, finish: Finish) -> Reply {
        Reply { parts, model: "google:m".into(), finish, finish_reason: None, usage: usage(5, 9) }
    }

    /// Both forms of an answer must give these parts.
    #[track_caller]
    fn check(pieces: &[&str], whole: &str, end: &str, expected: (Vec<ReplyPart>, Finish)) {
        let mut expected = reply(expected.0, expected.1);
        let reason = end.split('"').nth(3).map(str::to_owned);
        expected.finish_reason = reason.filter(|_| !expected.finish.is_natural());
        let (read, told) = stream(&streamed(pieces, end));
        assert_eq!(read, Ok(expected.clone()));
        let (read, told_at_once) = document(&chunk(whole, end));
        assert_eq!(read, Ok(expected));
        let join = |told: Vec<String>| told.join("").replace("text ", "").replace("thinking ", "");
        assert_eq!(join(told), join(told_at_once));
    }

    const STOP: &str = r#","finishReason":"STOP""#;

    fn text(text: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::Text(TextPart { text: text.into(), private: private.map(json) })
    }

    fn thinking(text: &str, private: Option<&str>) -> ReplyPart {
        ReplyPart::Thinking(ThinkingPart { text: text.into(), private: private.map(json) })
    }

    fn tool(name: &str, input: Option<&str>, output: Option<&str>, private: Option<&str>) -> ReplyPart {
        let [input, output, private] = [input, output, private].map(|text| text.map(json));
        ReplyPart::ServerTool(ServerToolPart { tool: name.into(), input, output, private })
    }

    #[test]
    fn streams_and_documents_give_the_same_parts() {
        check(
            &[r#"{"text":"Hi, "}"#, r#"{"text":""}"#, r#"{"text":"\"you\" \u00e9"}"#],
            r#"{"text":"Hi, \"you\" é"}"#,
            STOP,
            (vec![text("Hi, \"you\" é", None)], Finish::Stop),
        );
        check(
            &[r#"{"text":"h","thought":true}"#, r#"{"thought":true,"text":"m"}"#, r#"{"text":"x","thought":false}"#],
            r#"{"text":"hm","thought":true},{"text":"x"}"#,
            r#","finishReason":"MAX_TOKENS""#,
            (vec![thinking("hm", None), text("x", None)], Finish::Length),
        );
        check(&[""], "", STOP, (vec![], Finish::Stop));
    }

    #[test]
    fn a_signature_stays_with_its_part() {
        let pieces = [
            r#"{"text":"hm","thought":true}"#,
            r#"{"text":"","thought":true,"thoughtSignature":"t\/1+"}"#,
            r#"{"text":"a"}"#,
            r#"{"text":"b","thoughtSignature":"s1"}"#,
            r#"{"text":"c"}"#,
            r#"{"functionCall":{"name":"add","args":{}},"thoughtSignature":"s2"}"#,
            r#"{"text":"","thoughtSignature":"s3"}"#,
            r#"{"thoughtSignature":"s4"}"#,
        ];
        let called = ToolCall { private: Some(json(r#"{"thoughtSignature":"s2"}"#)), ..call("call_3_0", "{}") };
        let expected = vec![
            thinking("hm", None),
            thinking("", Some(r#"{"text":"","thought":true,"thoughtSignature":"t\/1+"}"#)),
            text("a", None),
            text("b", Some(r#"{"thoughtSignature":"s1"}"#)),
            text("c", None),
            ReplyPart::ToolCall(called),
            text("", Some(r#"{"thoughtSignature":"s3"}"#)),
            text("", Some(r#"{"thoughtSignature":"s4"}"#)),
        ];
        check(&pieces, &pieces.join(","), STOP, (expected, Finish::ToolCalls));
    }

    #[test]
    fn calls_keep_what_the_model_wrote_and_get_an_id_where_they_have_none() {
        let function = |fields: &str| format!(r#"{{"functionCall":{{"name":"add"{fields}}}}}"#);
        let cases = [
            (r#","args":{ "b" : 1, "a":2 }"#, call("call_3_0", r#"{"b":1,"a":2}"#)),
            ("", call("call_3_0", "")),
            (r#","id":"","args":null"#, call("call_3_0", "")),
            (r#","args":[1]"#, call("call_3_0", "[1]")),
            (r#","id":"x","args":{}"#, ToolCall { private: Some(json(r#"{"id":"x"}"#)), ..call("x", "{}") }),
        ];
        for (fields, expected) in cases {
            let part = function(fields);
            check(&[&part], &part, STOP, (vec![ReplyPart::ToolCall(expected)], Finish::ToolCalls));
        }
        let twice = [function(r#","id":"x""#), function(r#","id":"x""#)];
        let (reply, _) = document(&chunk(&twice.join(","), STOP));
        let ids: Vec<String> = reply.unwrap().tool_calls().map(|call| call.id.clone()).collect();
        assert_eq!(ids, ["x", "call_3_1"]);
    }

    #[test]
    fn tools_of_the_provider_are_carried_in_order_and_shown() {
        let code = r#"{"executableCode":{"language":"PYTHON","code":"1 + 1"},"thoughtSignature":"s"}"#;
        let result = r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK"}}"#;
        let used = r#"{"toolCall":{"toolType":"GOOGLE_SEARCH_WEB","args":{"q":"x"},"id":"i"}}"#;
        let answered = r#"{"toolResponse":{"toolType":"GOOGLE_SEARCH_WEB","response":{"z":1,"a":2}}}"#;
        let strange = r#"{"from_the_future":{"z":1,"a":2}}"#;
        let expected = vec![
            tool("code_execution", Some(r#"{"language":"PYTHON","code":"1 + 1"}"#), None, Some(code)),
            tool("code_execution", None, Some(r#"{"outcome":"OUTCOME_OK"}"#), Some(result)),
            tool("google_search_web", Some(r#"{"q":"x"}"#), None, Some(used)),
            tool("google_search_web", None, Some(r#"{"z":1,"a":2}"#), Some(answered)),
            tool("from_the_future", None, None, Some(strange)),
            tool("google_search", Some(r#"["x"]"#), None, None),
        ];
        let pieces = [code, result, used, answered, strange];
        // The metadata tells of the same search again: it is kept, and told once.
        let end = r#","finishReason":"STOP","groundingMetadata":{"webSearchQueries":["x"]}"#;
        check(&pieces, &pieces.join(","), end, (expected, Finish::Stop));
        let told = document(&chunk(&pieces.join(","), end)).1;
        let tools = ["server tool code_execution", "server tool google_search_web", "server tool from_the_future"];
        assert_eq!(told, tools);
    }

    #[test]
    fn metadata_is_shown_as_the_tools_it_comes_from_and_kept_as_citations() {
        let supports = r#""groundingChunks":[{"web":{"uri":"u"}}],"groundingSupports":[]"#;
        let early = format!(r#","groundingMetadata":{{{supports}}},"urlContextMetadata":{{"urlMetadata":[1]}}"#);
        let end = r#","finishReason":"STOP","groundingMetadata":{"webSearchQueries":["q"]},"citationMetadata":{"c":1}"#;
        let sse = events(&[chunk(r#"{"text":"a"}"#, &early), chunk(r#"{"text":"","thoughtSignature":"s"}"#, end)]);
        let whole = format!(
            r#","finishReason":"STOP","citationMetadata":{{"c" : 1}},"urlContextMetadata":{{"urlMetadata":[ 1 ]}},"groundingMetadata":{{"webSearchQueries":["q"],{supports}}}"#
        );
        let body = chunk(r#"{"text":"a"},{"text":"","thoughtSignature":"s"}"#, &whole);
        let cited =
            format!(r#"{{"citationMetadata":{{"c":1}},"groundingMetadata":{{{supports},"webSearchQueries":["q"]}}}}"#);
        let expected = vec![
            text("a", Some(&cited)),
            text("", Some(r#"{"thoughtSignature":"s"}"#)),
            tool("google_search", Some(r#"["q"]"#), Some(r#"[{"web":{"uri":"u"}}]"#), None),
            tool("url_context", None, Some("[1]"), None),
        ];
        for (read, told) in [stream(&sse), document(&body)] {
            assert_eq!(read, Ok(reply(expected.clone(), Finish::Stop)));
            assert_eq!(told, ["text a", "server tool google_search", "server tool url_context"]);
        }
        let (nothing, told) = document(&chunk(r#"{"text":"a"}"#, r#","finishReason":"STOP","groundingMetadata":{}"#));
        assert_eq!((nothing.unwrap().parts, told.len()), (vec![text("a", None)], 1));
    }

    #[test]
    fn what_was_filtered_says_why_if_the_provider_does() {
        let refusal = |words: &str| ReplyPart::Refusal(TextPart { text: words.into(), private: None });
        for reason in ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "LANGUAGE"] {
            let end = format!(r#","finishReason":"{reason}""#);
            check(&[""], "", &end, (vec![], Finish::ContentFilter));
            let end = format!(r#"{end},"finishMessage":"no""#);
            check(
                &[r#"{"text":"a"}"#],
                r#"{"text":"a"}"#,
                &end,
                (vec![text("a", None), refusal("no")], Finish::ContentFilter),
            );
        }
        for (feedback, words) in [
            (r#"{"blockReason":"OTHER"}"#, "OTHER"),
            (r#"{"blockReason":"SAFETY","blockReasonMessage":"because"}"#, "because"),
        ] {
            let body = format!(
                r#"{{"promptFeedback":{feedback},"usageMetadata":{{"promptTokenCount":5,"candidatesTokenCount":9}}}}"#
            );
            for (read, _) in [stream(&events(std::slice::from_ref(&body))), document(&body)] {
                assert_eq!(read, Ok(reply(vec![refusal(words)], Finish::ContentFilter)));
            }
        }
    }

    #[test]
    fn a_bad_end_is_an_error_or_a_reply_that_is_not_whole() {
        let end = r#","finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"Malformed function call: x""#;
        let said = r#"{"text":"a"},{"functionCall":{"name":"add"}}"#;
        for (read, _) in [stream(&streamed(&[""], end)), document(&chunk("", end)), document(&chunk(said, end))] {
            let Err(DecodeError::Reported(ModelError::Garbled(fault))) = read else { panic!("{read:?}") };
            assert_eq!(fault.message, "Malformed function call: x");
            assert_eq!(fault.kind.as_deref(), Some("MALFORMED_FUNCTION_CALL"));
        }
        let (read, _) = document(&chunk("", r#","finishReason":"OTHER""#));
        let Err(DecodeError::Reported(ModelError::GiveUp(fault))) = read else { panic!("{read:?}") };
        assert_eq!(fault.message, "the model stopped with OTHER");
        let end = r#","finishReason":"OTHER""#;
        check(&[r#"{"text":"a"}"#], r#"{"text":"a"}"#, end, (vec![text("a", None)], Finish::Error));
    }

    #[test]
    fn usage_counts_what_tools_read_as_input_and_thoughts_as_output() {
        let body = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"toolUsePromptTokenCount":10,"cachedContentTokenCount":1,"candidatesTokenCount":100,"thoughtsTokenCount":1000}}"#;
        let expected = Usage { cache_read_tokens: 1, reasoning_tokens: 1000, ..usage(11, 1100) };
        assert_eq!(document(body).0.unwrap().usage, expected);
        assert_eq!(document(r#"{"candidates":[{"finishReason":"STOP"}]}"#).0.unwrap().usage, usage(0, 0));
    }

    #[test]
    fn a_finish_reason_in_every_chunk_ends_nothing_early() {
        let sse = events(&[chunk(r#"{"text":"a"}"#, STOP), chunk(r#"{"text":"b"}"#, STOP)]);
        assert_eq!(stream(&sse).0.unwrap().text(), "ab");
    }

    #[test]
    fn what_is_no_answer_is_an_error_of_its_kind() {
        let (cut, _) = stream(&streamed(&[r#"{"text":"a"}"#], ""));
        assert_eq!(cut, Err(DecodeError::Cut));
        assert_eq!(stream("").0, Err(DecodeError::Cut));
        let unavailable = r#"{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}"#;
        let sse = streamed(&[r#"{"text":"a"}"#], "") + &events(&[unavailable.to_owned()]);
        for (error, _) in [stream(&sse), document(unavailable)] {
            let Err(DecodeError::Reported(ModelError::Wait(fault))) = error else { panic!("{error:?}") };
            assert_eq!(fault.message, "The model is overloaded.");
        }
        for sse in ["data: {\n\n", "data: [1]\n\n", "data: {\"candidates\":[{\"content\":{\"parts\":[7]}}]}\n\n"] {
            assert!(matches!(stream(sse).0, Err(DecodeError::Malformed(_))), "{sse}");
        }
        for body in ["", "{}", "<html>", r#"{"candidates":[]}"#, r#"{"promptFeedback":{}}"#] {
            assert!(matches!(document(body).0, Err(DecodeError::Malformed(_))), "{body}");
        }
    }
}
