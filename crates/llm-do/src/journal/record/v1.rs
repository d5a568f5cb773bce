//! Journals of version 1, as they were before lines were signed: what every step gave stood in its record whole, and all
//! decisions about a reply in one record. They can only be a stranger's. Pure.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::{JournalLine, LineState, NumberedLine};
use crate::event::{Teller, ToldItem, ToldLog, WholeKind};
use crate::journal::call::{CallOutcome, CallRecord, RecordedReply, request_of};
use crate::journal::file::identified;
use crate::journal::{StepKind, StepRecord};
use crate::message::{Arguments, Finish, Message, RawJson, Reply, ReplyPart, ToolCall, Usage};

/// The lines of steps as this version would have written them. An error names the line, counted from 1.
pub(super) fn v1(lines: Vec<NumberedLine>) -> Result<Vec<NumberedLine>, (usize, String)> {
    let mut replies = HashMap::new();
    let mut translated = Vec::with_capacity(lines.len());
    for (number, line) in lines {
        let of_line = lines_of(line, &mut replies).map_err(|reason| (number, reason))?;
        translated.extend(of_line.into_iter().map(|line| (number, line)));
    }
    Ok(translated)
}

fn lines_of(mut line: JournalLine, replies: &mut HashMap<String, Reply>) -> Result<Vec<JournalLine>, String> {
    // Of the digest of a request half as many digits are kept now. That of a model request is of messages as they were
    // written then, so that it says nothing today.
    line.req = match line.kind {
        StepKind::Model => String::new(),
        StepKind::Tool | StepKind::Code | StepKind::Ask | StepKind::Decide | StepKind::Call => {
            line.req.get(..32).unwrap_or(&line.req).to_owned()
        }
    };
    let result = match (&line.res, line.state) {
        (Some(result), LineState::Done) => result,
        (_, LineState::Started | LineState::Asked | LineState::Undone | LineState::Lost) | (None, LineState::Done) => {
            return Ok(vec![line]);
        }
    };
    let unreadable = |error: serde_json::Error| error.to_string();
    let result = match line.kind {
        StepKind::Model => {
            let StepResult::<OldReply> { value, told } = result.to().map_err(unreadable)?;
            let reply = value.reply().map_err(unreadable)?;
            replies.insert(line.k.clone(), reply.clone());
            RawJson::of(&StepRecord { value: RecordedReply(reply), told: told.log() })
        }
        StepKind::Decide if line.k.ends_with("/decided") => {
            return refusals(&line, result, replies).map_err(unreadable);
        }
        StepKind::Call if line.k.matches('/').count() == 1 => turn(result).map_err(unreadable)?,
        StepKind::Tool | StepKind::Code | StepKind::Call => {
            let StepResult::<OldCall> { value, told } = result.to().map_err(unreadable)?;
            let duration_ms = value.duration_ms;
            let value = CallRecord { duration_ms, ..CallRecord::at_once(value.gave) };
            RawJson::of(&StepRecord { value, told: told.log() })
        }
        StepKind::Decide | StepKind::Ask => {
            let StepResult::<RawJson> { value, told } = result.to().map_err(unreadable)?;
            RawJson::of(&StepRecord { value, told: told.log() })
        }
    };
    Ok(vec![JournalLine { res: Some(result), ..line }])
}

/// What a step gave, and what was told meanwhile, all of it.
#[derive(Deserialize)]
struct StepResult<T> {
    value: T,
    #[serde(default)]
    told: OldLog,
}

#[derive(Default, Deserialize)]
struct OldLog {
    events: Vec<RawJson>,
}

impl OldLog {
    /// Kinds of events that there are no more are left out.
    fn log(&self) -> ToldLog {
        self.log_of(|_| true)
    }

    fn log_of(&self, is_wanted: impl Fn(&BTreeMap<String, RawJson>) -> bool) -> ToldLog {
        let mut log = ToldLog::default();
        let fields = self.events.iter().filter_map(|event| event.to().ok()).filter(is_wanted);
        for (teller, kind) in fields.filter_map(event) {
            let teller = log.teller(teller);
            log.items.push(ToldItem::Is(teller, kind));
        }
        log
    }
}

/// An event was a flat object with its `type` among its fields.
fn event(mut fields: BTreeMap<String, RawJson>) -> Option<(Teller, WholeKind)> {
    let mut taken = |name: &str| fields.remove(name);
    let (agent, kind): (String, String) = (taken("agent")?.to().ok()?, taken("type")?.to().ok()?);
    let (depth, call) = (taken("depth")?.to().ok()?, taken("call")?.to().ok()?);
    let around = match kind.as_str() {
        "call_finished" => Some(("ended", ["output", "error"])),
        "tool_returned" => Some(("returned", ["result", "error"])),
        _ => None,
    };
    if let Some((name, inner)) = around {
        let inner: BTreeMap<&str, RawJson> = inner.iter().filter_map(|name| Some((*name, taken(name)?))).collect();
        fields.insert(name.to_owned(), RawJson::of(&inner));
    }
    if kind == "tool_refused" {
        fields.entry("path".to_owned()).or_insert_with(|| RawJson::of(&[&agent]));
        fields.entry("judged".to_owned()).or_insert_with(|| RawJson::of(&true));
    }
    let kind = RawJson::of(&BTreeMap::from([(kind, fields)])).to().ok()?;
    Some((Teller(agent.into(), depth, call, 0), kind))
}

#[derive(Deserialize)]
struct OldReply {
    parts: Vec<RawJson>,
    model: String,
    finish: Finish,
    usage: Usage,
}

impl OldReply {
    fn reply(self) -> Result<Reply, serde_json::Error> {
        let Self { parts, model, finish, usage } = self;
        let parts = parts.iter().map(part).collect::<Result<_, _>>()?;
        Ok(Reply { parts, model, finish, finish_reason: None, usage })
    }
}

/// The arguments of a call said of which sort they were.
fn part(part: &RawJson) -> Result<ReplyPart, serde_json::Error> {
    #[derive(Deserialize)]
    struct PartType {
        r#type: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum OldArguments {
        Object(RawJson),
        Malformed(String),
    }
    #[derive(Deserialize)]
    struct OldToolCall {
        id: String,
        tool: String,
        arguments: OldArguments,
        #[serde(default)]
        private: Option<RawJson>,
    }
    if part.to::<PartType>()?.r#type != "tool_call" {
        return part.to();
    }
    let OldToolCall { id, tool, arguments, private } = part.to()?;
    let arguments = match arguments {
        OldArguments::Object(object) => Arguments::Object(object),
        OldArguments::Malformed(text) => Arguments::Malformed(text),
    };
    Ok(ReplyPart::ToolCall(ToolCall { id, tool, arguments, private }))
}

#[derive(Deserialize)]
struct OldCall {
    gave: CallOutcome,
    duration_ms: u64,
}

/// What was decided about the calls of a reply. That one may run is never believed; that it was refused is its result.
fn refusals(
    line: &JournalLine,
    result: &RawJson,
    replies: &HashMap<String, Reply>,
) -> Result<Vec<JournalLine>, serde_json::Error> {
    #[derive(Deserialize)]
    struct OldDecision {
        #[serde(default)]
        not: Option<String>,
    }
    let StepResult::<Vec<OldDecision>> { value, told } = result.to()?;
    let Some((request, reply)) = line.k.rsplit_once('/').and_then(|(request, _)| replies.get_key_value(request)) else {
        return Ok(Vec::new());
    };
    let refused = reply.tool_calls().zip(value).enumerate().filter_map(|(position, (call, decision))| {
        let is_of_call =
            |fields: &BTreeMap<String, RawJson>| fields.get("id").is_some_and(|id| *id == RawJson::of(&call.id));
        let value = CallRecord::refused(decision.not?, told.log_of(is_of_call));
        Some(JournalLine {
            k: format!("{request}/c{position}"),
            kind: StepKind::Tool,
            req: identified(&request_of(call)),
            res: Some(RawJson::of(&StepRecord { value, told: ToldLog::default() })),
            ..line.clone()
        })
    });
    Ok(refused.collect())
}

/// A turn of the entry, with all its messages.
fn turn(result: &RawJson) -> Result<RawJson, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum OldOutput {
        Text(String),
        Value(RawJson),
    }
    #[derive(Deserialize)]
    struct OldTurn {
        input: RawJson,
        output: OldOutput,
        messages: Vec<RawJson>,
    }
    let StepResult::<OldTurn> { value: OldTurn { input, output, messages }, told } = result.to()?;
    let messages = messages.iter().map(message).collect::<Result<Vec<Message>, _>>()?;
    let output = match output {
        OldOutput::Text(text) => BTreeMap::from([("text", text)]),
        OldOutput::Value(json) => BTreeMap::from([("value", json.get().to_owned())]),
    };
    let each: Vec<BTreeMap<&str, Message>> =
        messages.into_iter().map(|message| BTreeMap::from([("whole", message)])).collect();
    let value = BTreeMap::from([
        ("input", input),
        ("output", RawJson::of(&output)),
        ("messages", RawJson::of(&BTreeMap::from([("each", each)]))),
    ]);
    Ok(RawJson::of(&StepRecord { value, told: told.log() }))
}

fn message(message: &RawJson) -> Result<Message, serde_json::Error> {
    #[derive(Deserialize)]
    struct MessageRole {
        role: String,
    }
    if message.to::<MessageRole>()?.role == "assistant" {
        return message.to::<OldReply>()?.reply().map(Message::Assistant);
    }
    message.to()
}
