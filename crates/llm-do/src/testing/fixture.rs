//! The record of a case: one line per reply and per result, with its step key and the digests of what the request was made
//! of. It is written by one machine and read by others: no path of a machine, no answer of a person, and no mac. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Derivation, ToldItem, ToldLog};
use crate::journal::call::{CallOutcome, CallRecord, RecordedReply};
use crate::journal::digest::short_digest;
use crate::journal::record::{JournalContents, StepProgress};
use crate::journal::{RecordedSteps, Step, StepKind, StepParts, StepRecord, StepValue};
use crate::message::RawJson;

/// The version of the format.
const VERSION: u64 = 1;
/// So much of a record is read.
const LARGEST: usize = 64 * 1024 * 1024;
/// What stands for the scratch project.
const PROJECT: &str = "<project>";

/// The first line.
#[derive(Serialize, Deserialize)]
struct FixtureHead {
    v: u64,
}

/// What was answered in a case, by the keys of its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fixture {
    pub(super) lines: BTreeMap<String, FixtureLine>,
}

/// One of its lines.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FixtureLine {
    pub k: String,
    pub what: FixtureStep,
}

/// What a line tells of. What models and tools gave is kept byte by byte.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FixtureStep {
    /// A digest of the message that was made of an input.
    Input(String),
    /// What a server offered.
    Offer { server: String, offer: RawJson },
    /// A reply of a model.
    Reply { parts: PartDigests, said: String, reply: RawJson },
    /// The result of a call.
    Result { tool: String, request: String, gave: RawJson },
}

/// A line as it is written. Raw JSON is kept as it is only in a field of its own.
#[derive(Default, Serialize, Deserialize)]
struct FixtureFields {
    k: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offer: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gave: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parts: Option<PartDigests>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    said: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<RawJson>,
}

impl FixtureLine {
    fn text(&self) -> String {
        let Self { k, what } = self.clone();
        let line = FixtureFields { k, ..FixtureFields::default() };
        let line = match what {
            FixtureStep::Input(digest) => FixtureFields { input: Some(digest), ..line },
            FixtureStep::Offer { server, offer } => FixtureFields { server: Some(server), offer: Some(offer), ..line },
            FixtureStep::Reply { parts, said, reply } => {
                FixtureFields { parts: Some(parts), said: Some(said), reply: Some(reply), ..line }
            }
            FixtureStep::Result { tool, request, gave } => {
                FixtureFields { tool: Some(tool), request: Some(request), gave: Some(gave), ..line }
            }
        };
        RawJson::of(&line).get().to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let line: FixtureFields = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let what = match line {
            FixtureFields { input: Some(digest), .. } => FixtureStep::Input(digest),
            FixtureFields { server: Some(server), offer: Some(offer), .. } => FixtureStep::Offer { server, offer },
            FixtureFields { parts: Some(parts), said: Some(said), reply: Some(reply), .. } => {
                FixtureStep::Reply { parts, said, reply }
            }
            FixtureFields { tool: Some(tool), request: Some(request), gave: Some(gave), .. } => {
                FixtureStep::Result { tool, request, gave }
            }
            FixtureFields { .. } => return Err("neither an input, an offer, a reply nor a result".to_owned()),
        };
        Ok(Self { k: line.k, what })
    }
}

/// Digests of what a request was made of, and the model that was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartDigests {
    pub instructions: String,
    pub tools: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    pub settings: String,
    #[serde(default)]
    pub model: String,
}

impl Fixture {
    /// Reads what [`Fixture::text`] has written.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LARGEST {
            return Err(format!("larger than {} MiB", LARGEST >> 20));
        }
        let mut lines = text.lines().enumerate();
        let head: Option<FixtureHead> = lines.next().and_then(|(_, line)| serde_json::from_str(line).ok());
        match head {
            Some(FixtureHead { v: VERSION }) => {}
            Some(FixtureHead { v }) => return Err(format!("it has version {v}, and this program reads {VERSION}")),
            None => return Err("its first line is not that of a record".to_owned()),
        }
        let mut fixture = Self::default();
        for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let line = FixtureLine::read(line).map_err(|error| format!("line {}: {error}", index + 1))?;
            fixture.lines.insert(line.k.clone(), line);
        }
        Ok(fixture)
    }

    /// As a file.
    pub fn text(&self) -> String {
        let head = RawJson::of(&FixtureHead { v: VERSION });
        let lines = self.lines.values().map(|line| format!("{}\n", line.text()));
        format!("{}\n{}", head.get(), lines.collect::<String>())
    }

    /// What was answered, for people: a line per reply.
    pub fn told(&self) -> String {
        let mut text = String::new();
        for FixtureLine { k, what } in self.lines.values() {
            let FixtureStep::Reply { reply, .. } = what else { continue };
            let reply: Value = reply.to().unwrap_or_default();
            for part in reply["value"]["parts"].as_array().into_iter().flatten() {
                let said = part["text"].as_str().map(str::to_owned);
                let arguments = part.get("arguments").or(part.get("input"));
                let called = part["tool"].as_str().zip(arguments);
                let called = called.map(|(tool, arguments)| format!("{tool} {arguments}"));
                text.extend(said.or(called).iter().map(|line| format!("{k}  {}\n", line.replace('\n', " "))));
            }
        }
        text
    }

    /// What stands beneath a name, and the rest: a case and its judge have one record. What stands beneath it comes second,
    /// without it.
    pub fn parted(self, name: &str) -> (Self, Self) {
        let (mut rest, mut beneath) = (Self::default(), Self::default());
        for (key, line) in self.lines {
            match key.strip_prefix(name) {
                Some(k) => drop(beneath.lines.insert(k.to_owned(), FixtureLine { k: k.to_owned(), ..line })),
                None => drop(rest.lines.insert(key, line)),
            }
        }
        (rest, beneath)
    }

    /// With another record beneath a name.
    #[must_use]
    pub fn joined(mut self, other: Self, name: &str) -> Self {
        for (key, line) in other.lines {
            let k = format!("{name}{key}");
            self.lines.insert(k.clone(), FixtureLine { k, ..line });
        }
        self
    }

    /// What a kept run of one turn answered. Its digests are those of another place, so it can only answer a case that is
    /// recorded anew; these directories are none of the machine where that happens. An error is why it can be no case.
    pub fn of_run(contents: &JournalContents, directories: &[String]) -> Result<Self, String> {
        let mut fixture = Self::default();
        for (key, record) in contents.records() {
            let StepProgress::Done(result) = &record.known else { continue };
            let step = match record.kind {
                StepKind::Model => FixtureStep::Reply {
                    parts: PartDigests::default(),
                    said: String::new(),
                    reply: reply_value(result),
                },
                StepKind::Tool | StepKind::Code => {
                    if result.to::<StepRecord<CallRecord>>().is_ok_and(|record| record.value.edited.is_some()) {
                        return Err("a person changed the arguments of a call in it".to_owned());
                    }
                    let Some(gave) = gave_value(key, result, contents) else { continue };
                    FixtureStep::Result { tool: String::new(), request: String::new(), gave }
                }
                StepKind::Decide => match offer_value(result) {
                    Some(offer) if is_offer(&offer) => FixtureStep::Offer { server: String::new(), offer },
                    _ => continue,
                },
                StepKind::Ask | StepKind::Call => continue,
            };
            let line = FixtureLine { k: key.to_owned(), what: step };
            let mut text = line.text();
            for directory in directories.iter().filter(|directory| directory.len() > 1) {
                text = with_paths(&text, directory, PROJECT);
            }
            let line = FixtureLine::read(&text)?;
            fixture.lines.insert(key.to_owned(), line);
        }
        Ok(fixture)
    }
}

/// A list of tools, each with its name at its server.
fn is_offer(offer: &RawJson) -> bool {
    let value: Value = offer.to().unwrap_or_default();
    value.as_array().is_some_and(|tools| !tools.is_empty() && tools.iter().all(|tool| tool.get("original").is_some()))
}

/// The name of the server whose offer a step is about.
pub(super) fn offered_by(step: &Step) -> Option<String> {
    let (word, server): (String, String) = step.request.to().ok()?;
    (step.kind == StepKind::Decide && word == "offer").then_some(server)
}

/// The tool that a step calls.
pub(super) fn tool_of(step: &Step) -> String {
    step.request.to::<(String, Value)>().map(|(tool, _)| tool).unwrap_or_default()
}

/// A reply without what differs from one machine to the next: how long it took, and what went wrong before.
pub(super) fn reply_value(result: &RawJson) -> RawJson {
    let Ok(StepRecord { mut value, told }) = result.to::<StepRecord<RecordedReply>>() else {
        return result.clone();
    };
    if value.0.model.starts_with("scripted:") {
        // Where a script lies is nobody's business.
        "scripted".clone_into(&mut value.0.model);
    }
    let kept = |item: ToldItem| match item {
        ToldItem::So(by, key, Derivation::Started(_)) => Some(ToldItem::So(by, key, Derivation::Started(None))),
        ToldItem::So(by, key, Derivation::Finished(_)) => Some(ToldItem::So(by, key, Derivation::Finished(0))),
        ToldItem::So(by, key, other) => Some(ToldItem::So(by, key, other)),
        ToldItem::Of(_) | ToldItem::Is(..) => None,
    };
    let told = ToldLog { items: told.items.into_iter().filter_map(kept).collect(), by: told.by };
    RawJson::of(&StepRecord { value, told })
}

/// What a call gave, whole.
pub(super) fn gave_value(key: &str, result: &RawJson, records: &dyn RecordedSteps) -> Option<RawJson> {
    let StepRecord { value, .. } = result.to::<StepRecord<CallRecord>>().ok()?;
    Some(RawJson::of(&value.resolved(key, records).ok()?.gave))
}

/// What a server offered, if that is what a step gave.
pub(super) fn offer_value(result: &RawJson) -> Option<RawJson> {
    #[derive(Deserialize)]
    struct OfferRecord {
        value: RawJson,
    }
    result.to::<OfferRecord>().ok().map(|offered| offered.value)
}

/// The same as a step gives it.
pub(super) fn result_of(gave: &RawJson, project: &str) -> Option<RawJson> {
    let gave: CallOutcome = gave.to().ok()?;
    let record = StepRecord { value: CallRecord::at_once(gave), told: ToldLog::default() };
    here(&RawJson::of(&record), project)
}

/// With the scratch project in the place of what stands for it.
pub(super) fn here(json: &RawJson, project: &str) -> Option<RawJson> {
    RawJson::parse(&json.get().replace(PROJECT, project)).ok()
}

/// A value of this machine as a record has it.
pub(super) fn anywhere(json: &str, project: &str) -> String {
    with_paths(json, project, PROJECT)
}

fn with_paths(json: &str, directory: &str, stand_in: &str) -> String {
    if directory.is_empty() { json.to_owned() } else { json.replace(directory, stand_in) }
}

impl PartDigests {
    pub(super) fn of(parts: &StepParts, project: &str) -> Self {
        let mut digests = Self::default();
        let all: Vec<&RawJson> = parts.parts.lines().map(|(_, part)| part).collect();
        // The last one is the list of their names.
        let [instructions, tools, output @ .., settings, _] = all.as_slice() else { return digests };
        let short = |text: &str| {
            let mut digest = short_digest([anywhere(text, project).as_str()]);
            digest.truncate(16);
            digest
        };
        digests.instructions = short(instructions.get());
        digests.tools = short(tools.get());
        digests.output = output.first().map(|output| short(output.get()));
        let mut settings: Value = settings.to().unwrap_or_default();
        let model = settings.as_object_mut().and_then(|settings| settings.remove("model"));
        let model = model.and_then(|model| model.as_str().map(str::to_owned)).unwrap_or_default();
        // A script stands for any model.
        digests.model = if model.starts_with("scripted:") { String::new() } else { model };
        digests.settings = short(&settings.to_string());
        digests
    }

    /// What of a request is not what it was, in words.
    pub(super) fn changes(&self, now: &Self) -> Vec<&'static str> {
        // An agent without a model of its own is asked for whatever the user chooses.
        let has_model = |digests: &Self| digests.model.len() > 1;
        let is_other_model = has_model(self) && has_model(now) && self.model != now.model;
        let changes = [
            (self.instructions != now.instructions, "instructions"),
            (self.tools != now.tools, "tools"),
            (self.output != now.output, "schema"),
            (self.settings != now.settings || is_other_model, "settings"),
        ];
        changes.into_iter().filter(|(is_other, _)| *is_other).map(|(_, what)| what).collect()
    }
}
