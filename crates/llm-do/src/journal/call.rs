//! What is recorded of a call of a tool or an agent, and what is told of it: the same functions make events from a call
//! that has just run and from one that a journal remembers. Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use super::{RecordedSteps, StepRecord, StepValue};
use crate::event::{CallEnd, CallKind, CallOutput, Derivation, Event, EventKind, ToldLog, ToolReturn, brief};
use crate::message::{
    Arguments, Content, Finish, RawJson, Reply, ReplyPart, TextPart, ToolCall, Usage, given, push_json, push_number,
    push_quoted, unfenced,
};

/// Results with more characters than this are cut.
pub const LONGEST_RESULT: usize = 60_000;
/// What is told of a call whose target has changed since somebody agreed to it.
pub const CHANGED: &str = "its target changed since it was approved";
/// What a call gives whose target was changed by others as often as it was asked about.
pub const KEEPS_CHANGING: &str = "its target keeps changing";

/// What is recorded of a call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CallRecord {
    pub gave: CallOutcome,
    #[serde(rename = "ms")]
    pub duration_ms: u64,
    /// The arguments to which a person changed the call's.
    #[serde(default, deserialize_with = "given")]
    pub edited: Option<RawJson>,
    /// What was told until it was decided.
    #[serde(default)]
    pub decided: ToldLog,
    /// What the agent that was called said, if that is what it gave: then only this is written.
    #[serde(skip)]
    pub said: Option<SaidBeneath>,
    /// The arguments that counted, if a reply asked for the call.
    #[serde(skip)]
    pub given: Option<RawJson>,
}

/// Everything of a call's end that the loop goes on with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Content(Vec<Content>),
    Failed(String),
    /// It reached no tool.
    Refused(String),
    Changed,
    /// What stands in another record; only where it is stored.
    Said(SaidBeneath),
}

/// The text of a reply beneath a call, which is what the call gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaidBeneath {
    /// The key of the request, from the call.
    pub k: String,
    /// Whether it was given as the value that it is the JSON of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json: bool,
}

impl SaidBeneath {
    /// Whether this content is what the text of the reply at `k` gives.
    pub fn of(content: &[Content], k: &str, text: &str) -> Option<Self> {
        [false, true].map(|json| Self { k: k.to_owned(), json }).into_iter().find(|said| said.content(text) == content)
    }

    fn content(&self, text: &str) -> [Content; 1] {
        [if self.json { Content::Value { json: unfenced(text).to_owned() } } else { Content::text(text) }]
    }
}

impl Serialize for CallRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct CallFields<'a> {
            gave: &'a CallOutcome,
            ms: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            edited: Option<&'a RawJson>,
            #[serde(skip_serializing_if = "ToldLog::is_empty")]
            decided: &'a ToldLog,
        }
        let said = self.said.clone().map(CallOutcome::Said);
        let Self { gave, duration_ms, edited, decided, .. } = self;
        let fields =
            CallFields { gave: said.as_ref().unwrap_or(gave), ms: *duration_ms, edited: edited.as_ref(), decided };
        fields.serialize(serializer)
    }
}

impl CallRecord {
    /// A call that ended in the moment it began.
    pub fn at_once(gave: CallOutcome) -> Self {
        Self { gave, duration_ms: 0, edited: None, decided: ToldLog::default(), said: None, given: None }
    }

    /// The run ended during the call.
    pub fn interrupted() -> Self {
        Self::at_once(CallOutcome::Failed("interrupted: it may or may not have happened".to_owned()))
    }

    /// It reached no tool; the model reads why.
    pub fn refused(reason: String, decided: ToldLog) -> Self {
        Self { decided, ..Self::at_once(CallOutcome::Refused(reason)) }
    }

    /// What its caller got, in the form in which events tell it.
    fn output(&self) -> Option<CallOutput> {
        let CallOutcome::Content(content) = &self.gave else { return None };
        match content.as_slice() {
            [Content::Text { text }] => Some(CallOutput::Text(text.clone())),
            [Content::Value { json }] => RawJson::parse(json).ok().map(CallOutput::Json),
            _ => None,
        }
    }

    /// What the model that asked for the call reads of it, or code gets: nothing if it has to be decided again.
    pub fn given(self) -> Option<GivenResult> {
        match self.gave {
            CallOutcome::Content(content) => Some(GivenResult { edited: self.edited, given: Ok(content) }),
            CallOutcome::Failed(reason) | CallOutcome::Refused(reason) => {
                Some(GivenResult { edited: None, given: Err(reason) })
            }
            CallOutcome::Changed | CallOutcome::Said(_) => None,
        }
    }
}

/// How one call ended, for whoever asked for it.
#[derive(Debug)]
pub struct GivenResult {
    /// What a person made of its arguments.
    pub edited: Option<RawJson>,
    pub given: Result<Vec<Content>, String>,
}

impl GivenResult {
    /// Of a call whose target was changed by others each time.
    pub fn keeps_changing() -> Self {
        Self { edited: None, given: Err(KEEPS_CHANGING.to_owned()) }
    }

    /// Code gets what was given; a model reads it, and is told what it did not ask for.
    pub fn read(self) -> Result<Vec<Content>, String> {
        let edited = self.edited.map(|edited| format!("(the user changed the arguments to {})", edited.get()));
        Ok(edited.map(Content::text).into_iter().chain(self.given?.into_iter().map(as_read)).collect())
    }
}

impl CallOutcome {
    /// As events tell it.
    pub fn returned(&self) -> ToolReturn {
        match self {
            // Only a value is read in another way than it was given.
            Self::Content(content) if content.iter().any(|part| matches!(part, Content::Value { .. })) => {
                let read: Vec<Content> = content.iter().cloned().map(as_read).collect();
                ToolReturn::Result(Content::shown(&read))
            }
            Self::Content(content) => ToolReturn::Result(Content::shown(content)),
            Self::Failed(reason) | Self::Refused(reason) => ToolReturn::Error(reason.clone()),
            Self::Changed => ToolReturn::Error(CHANGED.to_owned()),
            Self::Said(said) => ToolReturn::Error(format!("what was said at `{}` is missing", said.k)),
        }
    }
}

impl StepValue for CallRecord {
    fn write(&self, json: &mut Vec<u8>) {
        let Self { gave, duration_ms, edited, decided, said, given: _ } = self;
        let (CallOutcome::Content(content), None, None) = (gave, edited, said) else { return push_json(json, self) };
        json.extend_from_slice(b"{\"gave\":{\"content\":[");
        for (index, part) in content.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            match part {
                Content::Text { text } => {
                    json.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                    push_quoted(json, text);
                    json.push(b'}');
                }
                Content::Value { .. } | Content::Attachment(_) => push_json(json, part),
            }
        }
        json.extend_from_slice(b"]},\"ms\":");
        push_number(json, *duration_ms);
        if !decided.is_empty() {
            json.extend_from_slice(b",\"decided\":");
            decided.write(json);
        }
        json.push(b'}');
    }

    fn settled(self) -> Self {
        Self { edited: self.edited.map(RawJson::in_one_line), ..self }
    }

    fn derivation(&self, event: &Event) -> Option<Derivation> {
        match &event.kind {
            EventKind::CallStarted { name, kind: CallKind::Agent, input, parent: Some(parent) } => {
                let is_given = *name == *event.agent && self.given.as_ref().map(input_of).as_ref() == Some(input);
                is_given.then_some(Derivation::Begun(*parent))
            }
            EventKind::CallFinished {
                name,
                kind: CallKind::Agent,
                ended: CallEnd::Output(output),
                duration_ms,
                usage,
            } => {
                let is_given = *name == *event.agent && self.output().as_ref() == Some(output);
                is_given.then_some(Derivation::Ended(*duration_ms, *usage))
            }
            _ => None,
        }
    }

    fn resolved(self, key: &str, records: &dyn RecordedSteps) -> Result<Self, String> {
        let CallOutcome::Said(said) = &self.gave else { return Ok(self) };
        let text = reply_at(&format!("{key}/{}", said.k), records)?.text();
        Ok(Self { gave: CallOutcome::Content(said.content(&text).into()), ..self })
    }
}

/// The arguments of a call as the beginning of the agent's call tells them.
fn input_of(arguments: &RawJson) -> RawJson {
    arguments.to::<serde_json::Value>().map_or_else(|_| arguments.clone(), |value| RawJson::of(&value))
}

/// A reply as a journal keeps it: its usage takes few bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedReply(pub Reply);

impl Serialize for RecordedReply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ReplyJson<'a> {
            parts: &'a [ReplyPart],
            model: &'a str,
            finish: Finish,
            #[serde(skip_serializing_if = "Option::is_none")]
            finish_reason: Option<&'a str>,
            #[serde(with = "brief")]
            usage: Usage,
        }
        let Reply { parts, model, finish, finish_reason, usage } = &self.0;
        let (finish, finish_reason, usage) = (*finish, finish_reason.as_deref(), *usage);
        ReplyJson { parts, model, finish, finish_reason, usage }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RecordedReply {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ReplyFields {
            parts: Vec<ReplyPart>,
            model: String,
            finish: Finish,
            #[serde(default)]
            finish_reason: Option<String>,
            #[serde(with = "brief")]
            usage: Usage,
        }
        let ReplyFields { parts, model, finish, finish_reason, usage } = ReplyFields::deserialize(deserializer)?;
        Ok(Self(Reply { parts, model, finish, finish_reason, usage }))
    }
}

impl StepValue for RecordedReply {
    fn write(&self, json: &mut Vec<u8>) {
        let Reply { parts, model, finish, finish_reason, usage } = &self.0;
        json.extend_from_slice(b"{\"parts\":[");
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            match part {
                ReplyPart::Text(TextPart { text, private: None }) => {
                    json.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                    push_quoted(json, text);
                    json.push(b'}');
                }
                ReplyPart::ToolCall(ToolCall { id, tool, arguments: Arguments::Object(object), private: None }) => {
                    json.extend_from_slice(b"{\"type\":\"tool_call\",\"id\":");
                    push_quoted(json, id);
                    json.extend_from_slice(b",\"tool\":");
                    push_quoted(json, tool);
                    json.extend_from_slice(b",\"arguments\":");
                    json.extend_from_slice(object.get().as_bytes());
                    json.push(b'}');
                }
                ReplyPart::Text(_)
                | ReplyPart::ToolCall(_)
                | ReplyPart::Thinking(_)
                | ReplyPart::ServerTool(_)
                | ReplyPart::Refusal(_) => push_json(json, part),
            }
        }
        json.extend_from_slice(b"],\"model\":");
        push_quoted(json, model);
        json.extend_from_slice(b",\"finish\":");
        push_json(json, finish);
        if let Some(reason) = finish_reason {
            json.extend_from_slice(b",\"finish_reason\":");
            push_quoted(json, reason);
        }
        json.extend_from_slice(b",\"usage\":");
        brief::write(usage, json);
        json.push(b'}');
    }

    fn settled(mut self) -> Self {
        let flat = |json: &mut Option<RawJson>| *json = json.take().map(RawJson::in_one_line);
        for part in &mut self.0.parts {
            match part {
                ReplyPart::Text(part) | ReplyPart::Refusal(part) => flat(&mut part.private),
                ReplyPart::Thinking(part) => flat(&mut part.private),
                ReplyPart::ServerTool(part) => {
                    flat(&mut part.private);
                    flat(&mut part.input);
                    flat(&mut part.output);
                }
                ReplyPart::ToolCall(call) => {
                    flat(&mut call.private);
                    if let Arguments::Object(object) = &mut call.arguments {
                        *object = object.clone().in_one_line();
                    }
                }
            }
        }
        self
    }

    fn derivation(&self, event: &Event) -> Option<Derivation> {
        let Reply { model: own, finish: own_finish, usage: own_usage, .. } = &self.0;
        // What `of_reply` makes of it is the same.
        match &event.kind {
            EventKind::RequestStarted { model, longest_wait_ms } => {
                (model == own).then_some(Derivation::Started(*longest_wait_ms))
            }
            EventKind::RequestFinished { model, duration_ms, usage, finish } => {
                let is_same = model == own && usage == own_usage && finish == own_finish;
                is_same.then_some(Derivation::Finished(*duration_ms))
            }
            _ => None,
        }
    }
}

/// What follows from a reply.
pub fn of_reply(reply: &Reply, derivation: &Derivation) -> Option<EventKind> {
    let model = || reply.model.clone();
    match derivation {
        Derivation::Text => Some(EventKind::TextComplete { text: reply.text() }),
        Derivation::Started(wait) => Some(EventKind::RequestStarted { model: model(), longest_wait_ms: *wait }),
        Derivation::Finished(duration_ms) => Some(EventKind::RequestFinished {
            model: model(),
            duration_ms: *duration_ms,
            usage: reply.usage,
            finish: reply.finish,
        }),
        Derivation::Heard
        | Derivation::Called(_)
        | Derivation::Returned
        | Derivation::Refused(..)
        | Derivation::Begun(_)
        | Derivation::Ended(..) => None,
    }
}

/// What follows from the input of a turn.
pub fn of_input(parts: &[Content]) -> EventKind {
    EventKind::UserMessage { text: Content::shown(parts) }
}

/// What follows from a call that a reply asked for, and from its record.
pub fn of_call(call: &ToolCall, record: &CallRecord, agent: &Arc<str>, derivation: &Derivation) -> Option<EventKind> {
    let arguments = || match (&record.edited, &call.arguments) {
        (Some(edited), _) | (None, Arguments::Object(edited)) => edited.clone(),
        (None, Arguments::Malformed(text)) => RawJson::of(text),
    };
    match derivation {
        Derivation::Called(calls_as) => Some(called(call, &arguments(), *calls_as)),
        Derivation::Returned => Some(returned(call, record)),
        Derivation::Refused(path, judged) => {
            let CallOutcome::Refused(read) = &record.gave else { return None };
            let reason = if *judged { read.strip_prefix(REFUSED)? } else { read };
            Some(refused(call, &call.arguments, path.clone(), reason.to_owned(), *judged))
        }
        Derivation::Begun(parent) => Some(EventKind::CallStarted {
            name: agent.to_string(),
            kind: CallKind::Agent,
            input: input_of(&arguments()),
            parent: Some(*parent),
        }),
        Derivation::Ended(..)
        | Derivation::Text
        | Derivation::Heard
        | Derivation::Started(_)
        | Derivation::Finished(_) => None,
    }
}

/// The end of an agent's call follows from what its caller got, whoever asked for it.
pub fn ended(record: &CallRecord, agent: &Arc<str>, duration_ms: u64, usage: Usage) -> Option<EventKind> {
    let (name, ended) = (agent.to_string(), CallEnd::Output(record.output()?));
    Some(EventKind::CallFinished { name, kind: CallKind::Agent, ended, duration_ms, usage })
}

/// What a model reads before the reason of a rule or a person.
pub const REFUSED: &str = "refused: ";

/// What identifies a call: what the model asked for, whatever a person made of it.
pub fn request_of(call: &ToolCall) -> RawJson {
    match &call.arguments {
        Arguments::Object(arguments) => RawJson::of(&(&call.tool, arguments)),
        Arguments::Malformed(text) => RawJson::of(&(&call.tool, text)),
    }
}

/// A tool is called with these arguments, which a person may have changed.
pub fn called(call: &ToolCall, arguments: &RawJson, calls_as: Option<u64>) -> EventKind {
    let (id, tool, arguments) = (call.id.clone(), call.tool.clone(), arguments.clone());
    EventKind::ToolCalled { id, tool, arguments, calls_as }
}

/// A tool has returned.
pub fn returned(call: &ToolCall, record: &CallRecord) -> EventKind {
    let (returned, duration_ms) = (record.gave.returned(), record.duration_ms);
    EventKind::ToolReturned { id: call.id.clone(), tool: call.tool.clone(), returned, duration_ms }
}

/// A call reaches no tool. `judged`: a rule or a person refused it.
pub fn refused(call: &ToolCall, arguments: &Arguments, path: Vec<String>, reason: String, judged: bool) -> EventKind {
    let (arguments, arguments_text) = arguments.in_json();
    let (arguments, arguments_text) = (arguments.cloned(), arguments_text.map(str::to_owned));
    EventKind::ToolRefused {
        id: call.id.clone(),
        path,
        tool: call.tool.clone(),
        arguments,
        arguments_text,
        reason,
        judged,
    }
}

/// The reply that a record holds.
pub fn reply_at(key: &str, records: &dyn RecordedSteps) -> Result<Reply, String> {
    let RecordedReply(reply) = value_at(key, records)?;
    Ok(reply)
}

/// The value that a record holds.
pub fn value_at<T: StepValue>(key: &str, records: &dyn RecordedSteps) -> Result<T, String> {
    let json = records.result(key).ok_or_else(|| format!("the record at `{key}` is missing"))?;
    let StepRecord { value, .. } =
        json.to::<StepRecord<T>>().map_err(|error| format!("the record at `{key}` cannot be read: {error}"))?;
    value.resolved(key, records)
}

/// The call whose record has this key, if a reply asked for it.
pub fn call_at(key: &str, records: &dyn RecordedSteps) -> Result<ToolCall, String> {
    let (request, _) = key.rsplit_once('/').ok_or_else(|| unasked(key))?;
    call_of(key, &reply_at(request, records)?)
}

/// The same for whoever has the reply.
pub fn call_of(key: &str, reply: &Reply) -> Result<ToolCall, String> {
    let place = key.rsplit('/').next().and_then(|place| place.strip_prefix('c'));
    let position: Option<usize> = place.and_then(|place| place.split('.').next()?.parse().ok());
    let asked = position.and_then(|position| reply.tool_calls().nth(position));
    asked.cloned().ok_or_else(|| unasked(key))
}

fn unasked(key: &str) -> String {
    format!("no reply asks for the call `{key}`")
}

/// Whether a call with this key is one that a reply asked for; all others are of code.
pub fn is_of_reply(key: &str) -> bool {
    let request = key.rsplit('/').nth(1).and_then(|name| name.strip_prefix('m'));
    request.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What a model reads.
pub fn as_read(part: Content) -> Content {
    match part {
        Content::Value { json } => Content::Text { text: cut_text(json) },
        read @ (Content::Text { .. } | Content::Attachment(_)) => read,
    }
}

/// A long text is cut, with a mark that says so.
pub fn cut_text(text: String) -> String {
    // A character has at least one byte: most texts need not be counted.
    if text.len() <= LONGEST_RESULT {
        return text;
    }
    let Some((end, _)) = text.char_indices().nth(LONGEST_RESULT) else { return text };
    let left_out = text[end..].chars().count();
    format!("{}\n[cut: {left_out} more characters; ask for less, or for a part]", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Events;
    use crate::journal::generated::{Generator, assert_replayed_is_live};
    use crate::journal::{StepDescription, StepKind, Steps, Stop};

    fn outcome(generator: &mut Generator) -> CallOutcome {
        match generator.number(4) {
            0 => CallOutcome::Failed(generator.text()),
            1 => CallOutcome::Refused(generator.text()),
            2 => CallOutcome::Changed,
            _ => CallOutcome::Content(generator.contents()),
        }
    }

    fn call(generator: &mut Generator) -> CallRecord {
        let duration_ms = generator.one_of(&[0, 7, u64::MAX]);
        let given = generator.maybe(Generator::object);
        let edited = generator.maybe(Generator::json);
        CallRecord { duration_ms, edited, given, ..CallRecord::at_once(outcome(generator)) }
    }

    fn comparable(record: CallRecord) -> CallRecord {
        CallRecord { said: None, given: None, ..record }
    }

    #[test]
    fn a_reply_is_replayed_as_it_came() {
        assert_replayed_is_live(|generator, _| RecordedReply(generator.reply()), |reply| reply);
    }

    #[test]
    fn a_call_is_replayed_as_it_ended() {
        assert_replayed_is_live(|generator, _| call(generator), comparable);
    }

    /// What an agent said stands once in the record, as the reply beneath the call.
    #[test]
    fn a_call_that_gave_what_a_reply_beneath_it_says_is_replayed_as_it_ended() {
        let mut references = 0;
        let said = |generator: &mut Generator, steps: &Steps| {
            let reply = generator.reply();
            let text = reply.text();
            let k = "t0/m0".to_owned();
            let beneath = steps.at(format_args!("{k}"));
            let (events, described) = (Events::unheard(), || StepDescription::new(StepKind::Model, &"request"));
            let recorded = RecordedReply(reply);
            let effect = async { Ok::<_, Stop>(recorded) };
            let taken = beneath.here(&events).step(described, |_| effect);
            futures_util::FutureExt::now_or_never(taken).expect("nothing waits").unwrap();
            let gave = if generator.number(2) == 0 {
                Content::text(text.clone())
            } else {
                Content::Value { json: unfenced(&text).to_owned() }
            };
            let said = SaidBeneath::of(std::slice::from_ref(&gave), &k, &text);
            references += usize::from(said.is_some());
            CallRecord { said, ..CallRecord::at_once(CallOutcome::Content(vec![gave])) }
        };
        assert_replayed_is_live(said, comparable);
        assert!(references > 5_000, "{references}");
    }
}
