//! What a journal knows of a run: what was spent, and its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::totals::RunTotals;
use super::{Outcome, Output, finish_of};
use crate::event::{CallEnd, CallKind, Event, EventKind, EventLog, Events, Recorder as _};
use crate::journal::call::{CallRecord, GivenResult, reply_at, value_at};
use crate::journal::record::{JournalContents, JournalEntry, LostStep, StepProgress, limited_request};
use crate::journal::requests::{RecordedRequest, requests, told_at};
use crate::journal::{RecordedSteps, StepKind, StepRecord, StepValue, Steps};
use crate::message::{Content, Message, RawJson, Reply, ToolCall, ToolResult, UserMessage, given, unfenced};
use crate::project::Limit;
use crate::spending::{Account, BoundedAmount, Cost, LimitHit};
use crate::tools::approval::{Answer, AskedQuestion, KnownAnswers, LimitRaise, RecordedAnswer, key_of_call};
use crate::tools::plane::{CallPosition, MOST_QUESTIONS};

/// A finished turn of the entry, which names the records beneath it instead of repeating them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TurnRecord {
    /// As events show it, unless that is the text of the message that was made of it.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    input: Option<RawJson>,
    output: TurnOutput,
    messages: TurnMessages,
    /// Why it came to no answer, if it stays in the conversation without one. Then the output is what was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
}

/// What was said in a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TurnMessages {
    /// The input and so many replies, with the results of all but the last one between them.
    Replies(u64),
    Each(Vec<StoredMessage>),
}

/// Where a message of a turn is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TurnMessage {
    /// It was made of the input.
    Input,
    /// The reply to this request.
    Reply(u64),
    /// The results of the calls of that reply.
    Results(u64),
    /// It was said while the turn went on, before this request.
    Heard(u64),
    /// It was made here, and is in no other record.
    Made,
}

/// A message of a turn: by its place, or whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredMessage {
    At(TurnMessage),
    Whole(Box<Message>),
}

/// What a turn gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TurnOutput {
    /// The text of the reply to this request, or the value that it is the JSON of.
    Reply(u64, #[serde(default, skip_serializing_if = "std::ops::Not::not")] bool),
    Text(String),
    /// Its JSON as text, line by line as it came.
    Value(String),
}

impl StepValue for TurnRecord {
    fn settled(self) -> Self {
        let flat = |stored: StoredMessage| match stored {
            // Messages that were made here have no JSON of others in them, but for what was joined of replies.
            StoredMessage::Whole(message) => {
                let json = RawJson::of(&message).in_one_line();
                StoredMessage::Whole(json.to().unwrap_or(message))
            }
            at @ StoredMessage::At(_) => at,
        };
        let messages = match self.messages {
            TurnMessages::Each(each) => TurnMessages::Each(each.into_iter().map(flat).collect()),
            replies @ TurnMessages::Replies(_) => replies,
        };
        Self { input: self.input.map(RawJson::in_one_line), messages, ..self }
    }
}

impl TurnRecord {
    /// Of a function, which has no messages.
    pub(super) fn of_function(input: RawJson, output: &Output) -> Self {
        Self {
            input: Some(input),
            output: TurnOutput::whole(output),
            messages: TurnMessages::Each(Vec::new()),
            stopped: None,
        }
    }

    /// Of an agent: each message has its place among `sources`.
    pub(super) fn of(input: RawJson, output: &Output, sources: &[TurnMessage], messages: &[Message]) -> Self {
        let is_shown = matches!(messages.first(), Some(Message::User(UserMessage { parts }))
            if RawJson::of(&Content::shown(parts)) == input);
        let stored = sources.iter().zip(messages).map(|(source, message)| match source {
            TurnMessage::Made => StoredMessage::Whole(Box::new(message.clone())),
            TurnMessage::Input | TurnMessage::Reply(_) | TurnMessage::Results(_) | TurnMessage::Heard(_) => {
                StoredMessage::At(*source)
            }
        });
        let output = match (sources.last(), messages.last()) {
            (Some(TurnMessage::Reply(request)), Some(Message::Assistant(reply))) => {
                TurnOutput::of(output, *request, reply)
            }
            _ => TurnOutput::whole(output),
        };
        let replies = sources.len() as u64 / 2;
        let messages = if *sources == usual(replies)[..] {
            TurnMessages::Replies(replies)
        } else {
            TurnMessages::Each(stored.collect())
        };
        Self { input: (!is_shown).then_some(input), output, messages, stopped: None }
    }

    /// The same of a turn that came to no answer.
    pub(super) fn stopped_by(self, reason: String) -> Self {
        Self { stopped: Some(reason), ..self }
    }

    /// Why it came to no answer, if it did not.
    pub(super) fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// What it says itself, without other records.
    pub(super) fn own_output(&self) -> Option<Output> {
        match &self.output {
            TurnOutput::Reply(..) => None,
            TurnOutput::Text(text) => Some(Output::Text(text.clone())),
            TurnOutput::Value(json) => RawJson::parse(json).ok().map(Output::Value),
        }
    }

    /// The answer. `key` is that of the turn.
    pub(super) fn output(&self, key: &str, records: &dyn RecordedSteps) -> Result<Output, String> {
        match &self.output {
            TurnOutput::Reply(request, is_value) => {
                let text = reply_at(&format!("{key}/m{request}"), records)?.text();
                Ok(if *is_value {
                    Output::Value(RawJson::parse(unfenced(&text)).map_err(|error| error.to_string())?)
                } else {
                    Output::Text(text)
                })
            }
            TurnOutput::Text(_) | TurnOutput::Value(_) => {
                self.own_output().ok_or_else(|| format!("the output of `{key}` is no JSON"))
            }
        }
    }

    /// What was said in the turn.
    pub(super) fn messages(&self, key: &str, records: &dyn RecordedSteps) -> Result<Vec<Message>, String> {
        let message = |stored: &StoredMessage| match stored {
            StoredMessage::Whole(message) => Ok(Message::clone(message)),
            StoredMessage::At(TurnMessage::Input) => {
                let parts = value_at(&format!("{key}/input"), records)?;
                Ok(Message::User(UserMessage { parts }))
            }
            StoredMessage::At(TurnMessage::Reply(request)) => {
                reply_at(&format!("{key}/m{request}"), records).map(Message::Assistant)
            }
            StoredMessage::At(TurnMessage::Results(request)) => {
                results_of(&format!("{key}/m{request}"), records).map(Message::tool_results)
            }
            StoredMessage::At(TurnMessage::Heard(request)) => {
                let parts = value_at(&format!("{key}/m{request}/heard"), records)?;
                Ok(Message::User(UserMessage { parts }))
            }
            StoredMessage::At(TurnMessage::Made) => Err(format!("a message of `{key}` is missing")),
        };
        match &self.messages {
            TurnMessages::Each(each) => each.iter().map(message).collect(),
            TurnMessages::Replies(replies) if *replies <= MOST_REPLIES => {
                usual(*replies).into_iter().map(StoredMessage::At).map(|stored| message(&stored)).collect()
            }
            TurnMessages::Replies(_) => Err(format!("`{key}` has more replies than any turn")),
        }
    }

    /// As events show it.
    pub(super) fn input(&self, key: &str, records: &dyn RecordedSteps) -> Result<RawJson, String> {
        if let Some(input) = &self.input {
            return Ok(input.clone());
        }
        let parts: Vec<Content> = value_at(&format!("{key}/input"), records)?;
        Ok(RawJson::of(&Content::shown(&parts)))
    }
}

/// No turn has more: one that is said to is not ours.
const MOST_REPLIES: u64 = 1_000_000;

/// The messages of a turn in which nothing unusual happened.
fn usual(replies: u64) -> Vec<TurnMessage> {
    let rounds = (0..replies).flat_map(|reply| {
        let before = reply.checked_sub(1).map_or(TurnMessage::Input, TurnMessage::Results);
        [before, TurnMessage::Reply(reply)]
    });
    rounds.collect()
}

impl TurnOutput {
    fn whole(output: &Output) -> Self {
        match output {
            Output::Text(text) => Self::Text(text.clone()),
            Output::Value(json) => Self::Value(json.get().to_owned()),
        }
    }

    fn of(output: &Output, request: u64, reply: &Reply) -> Self {
        let text = reply.text();
        match output {
            Output::Text(said) if *said == text => Self::Reply(request, false),
            Output::Value(json) if json.get() == unfenced(&text) => Self::Reply(request, true),
            Output::Text(_) | Output::Value(_) => Self::whole(output),
        }
    }
}

/// What the model read of the calls of a reply.
fn results_of(request: &str, records: &dyn RecordedSteps) -> Result<Vec<ToolResult>, String> {
    let reply = reply_at(request, records)?;
    let result = |(position, call): (usize, &ToolCall)| {
        let mut given = None;
        for attempt in 0..MOST_QUESTIONS {
            let place = CallPosition { position, attempt };
            let record: CallRecord = value_at(&format!("{request}/{place}"), records)?;
            given = record.given();
            if given.is_some() {
                break;
            }
        }
        let outcome = given.unwrap_or_else(GivenResult::keeps_changing).read();
        Ok(ToolResult { id: call.id.clone(), tool: call.tool.clone(), outcome })
    };
    reply.tool_calls().enumerate().map(result).collect()
}

/// What was said in the conversation of the entry: finished turns, and the last one as far as it came.
#[cfg(feature = "front-end")]
pub fn conversation(contents: &JournalContents) -> Vec<Message> {
    let Some(entry) = contents.entry() else { return Vec::new() };
    let mut messages: Vec<Message> = value_at(&format!("{entry}/history"), contents).unwrap_or_default();
    let turns = contents.turns();
    let last = turns.last().map(|(number, _)| *number);
    for (number, is_finished) in turns {
        let key = format!("{entry}/t{number}");
        if is_finished {
            let turn = value_at::<TurnRecord>(&key, contents);
            messages.extend(turn.and_then(|turn| turn.messages(&key, contents)).unwrap_or_default());
        } else if last == Some(number) {
            messages.extend(unfinished_turn(&key, contents));
        }
    }
    messages
}

/// What a finished turn gave, by its number.
#[cfg(feature = "front-end")]
pub fn turn_output(contents: &JournalContents, number: u64) -> Option<Output> {
    let key = format!("{}/t{number}", contents.entry()?);
    let turn: TurnRecord = value_at(&key, contents).ok()?;
    turn.output(&key, contents).ok()
}

/// What was said in a turn, whose input has this key; nothing if that was more than text.
#[cfg(feature = "front-end")]
pub fn input_text(contents: &JournalContents, key: &str) -> Option<String> {
    let parts: Vec<Content> = value_at(key, contents).ok()?;
    parts.iter().all(|part| matches!(part, Content::Text { .. })).then(|| Content::shown(&parts))
}

/// The messages of a turn that has no end, up to the first that is not whole.
#[cfg(feature = "front-end")]
fn unfinished_turn(key: &str, contents: &JournalContents) -> Vec<Message> {
    let input = value_at(&format!("{key}/input"), contents).map(|parts| Message::User(UserMessage { parts }));
    let mut messages: Vec<Message> = input.into_iter().collect();
    for number in 0..MOST_REPLIES {
        let request = format!("{key}/m{number}");
        let heard = value_at(&format!("{request}/heard"), contents);
        messages.extend(heard.map(|parts| Message::User(UserMessage { parts })));
        let Ok(reply) = reply_at(&request, contents) else { break };
        let has_calls = reply.tool_calls().next().is_some();
        messages.push(Message::Assistant(reply));
        match results_of(&request, contents) {
            Ok(results) if has_calls => messages.push(Message::tool_results(results)),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    messages
}

/// What earlier processes spent in a run. Steps that are answered from the record neither reserve nor settle: parallel
/// agents would overshoot while others are still catching up.
#[derive(Clone, Debug, Default)]
pub struct PriorSpending {
    /// By the keys of model requests.
    spent: BTreeMap<String, Cost>,
    /// Requests within code that was interrupted, and those that gave no reply: nothing in the resumed run tells of them.
    lost: Vec<EventKind>,
    /// Limits that people have raised. Each stands after those that it goes on from.
    raised: Vec<RecordedRaise>,
    /// Questions about limits that nobody has answered yet, with their keys.
    asked: Vec<(String, AskedQuestion)>,
}

/// What is recorded where a limit was reached, and the model was to finish with what it had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WrapUpRecord {
    pub limit: String,
    pub used: f64,
    pub allowed: f64,
}

impl StepValue for WrapUpRecord {}

impl WrapUpRecord {
    /// The limit that the call of this account came to at this place, as is recorded.
    pub(super) fn at(place: &Steps, account: Account) -> Option<LimitHit> {
        let records = place.records().filter(|_| place.has_past())?;
        value_at::<Self>(&format!("{}/wrap_up", place.path()), records).ok().map(|recorded| recorded.hit(account))
    }

    fn hit(&self, account: Account) -> LimitHit {
        let limit = match self.limit.strip_prefix("budget ") {
            Some(name) => BoundedAmount::Budget { name: name.into(), per: "", on_limit: None },
            None => BoundedAmount::Account(Limit::of_key(&self.limit).unwrap_or(Limit::Requests), account),
        };
        LimitHit { limit, used: self.used, allowed: self.allowed, needed: None }
    }
}

/// A limit that a person has raised, or did not want to.
#[derive(Clone, Debug)]
struct RecordedRaise {
    /// That of the question.
    key: String,
    /// The agents down to the one whose limit it is.
    path: Vec<String>,
    /// How far.
    raise: LimitRaise,
    is_refused: bool,
}

/// What a person has decided about a limit.
pub(super) struct PriorRaise<'a> {
    pub raise: &'a LimitRaise,
    pub is_refused: bool,
}

impl RecordedRaise {
    fn of(key: &str, asked: &AskedQuestion, answer: &Answer) -> Option<Self> {
        let (path, raise) = asked.raise()?;
        let is_refused = matches!(answer, Answer::Refuse { .. });
        let raise = if is_refused { raise } else { raise.answered(answer)? };
        Some(Self { key: key.to_owned(), path: path.to_vec(), raise, is_refused })
    }

    fn prior(&self) -> PriorRaise<'_> {
        PriorRaise { raise: &self.raise, is_refused: self.is_refused }
    }
}

impl PriorSpending {
    /// Adds up what the journal of the run tells of finished requests, and of those that gave no reply.
    pub fn from(contents: &JournalContents) -> Self {
        let mut spent: BTreeMap<String, Cost> = BTreeMap::new();
        for RecordedRequest { key, usage, .. } in requests(contents) {
            let sum = spent.entry(key).or_default();
            *sum = sum.plus(Cost::of(&usage));
        }
        // Calls are counted together, when the first of them begins.
        let models = contents.records().filter(|(_, record)| record.kind == StepKind::Model);
        let is_call =
            |beneath: &str| beneath.starts_with("/c") && beneath[2..].starts_with(|c: char| c.is_ascii_digit());
        let has_begun = |request: &str| contents.beneath(request).any(|(key, _)| is_call(&key[request.len()..]));
        for (key, _) in models.filter(|(key, _)| has_begun(key)) {
            let Ok(reply) = reply_at(key, contents) else { continue };
            spent.entry(key.to_owned()).or_default().tool_calls = reply.tool_calls().count() as u64;
        }
        let interrupted: Vec<&str> = contents.records().filter_map(interrupted).collect();
        let beneath = interrupted.into_iter().flat_map(|code| contents.beneath(code));
        let mut lost: Vec<EventKind> = beneath.flat_map(|(key, record)| requests_of(key, record, contents)).collect();
        for LostStep { key, told, .. } in contents.lost() {
            let Ok(EventLog { events, .. }) = told.to() else { continue };
            let kinds = events.into_iter().map(|event| event.kind);
            lost.extend(kinds.filter(|kind| !is_told(contents, key, kind)));
        }
        let (raised, asked) = raised(contents);
        Self { spent, lost, raised, asked }
    }

    /// Questions about limits that people have answered since count at once, whoever comes to the limit first.
    pub(super) fn answered(&mut self, run: &str, known: &dyn KnownAnswers) {
        for (key, asked) in &self.asked {
            let answer = known.answer_to(&asked.request(run, key_of_call(key)));
            self.raised.extend(answer.and_then(|answer| RecordedRaise::of(key, asked, &answer)));
        }
        sort(&mut self.raised);
    }

    /// Limits of the run, and of budgets in it, that people have raised.
    pub(super) fn raised_for_all(&self, run: Account) -> impl Iterator<Item = (BoundedAmount, PriorRaise<'_>)> {
        self.raised.iter().filter_map(move |recorded| {
            let raise = &recorded.raise;
            let limit = match raise.of.split_once(' ') {
                None => BoundedAmount::Account(Limit::of_key(&raise.limit)?, run),
                Some(("budget", name)) => BoundedAmount::Budget { name: name.into(), per: "", on_limit: None },
                Some(_) => return None,
            };
            Some((limit, recorded.prior()))
        })
    }

    /// Those of a call of an agent, by its place and the agents from the entry down to it.
    pub(super) fn raised_beneath(&self, key: &str, path: &[String]) -> Vec<(Limit, PriorRaise<'_>)> {
        let own = self.raised.iter().filter(|raised| {
            let is_beneath = raised.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('/'));
            is_beneath && raised.path == path && raised.raise.of.starts_with("agent ")
        });
        own.filter_map(|recorded| Some((Limit::of_key(&recorded.raise.limit)?, recorded.prior()))).collect()
    }

    /// Tells the totals of what no event will tell.
    pub(super) fn account_to(&self, session: &RunTotals) {
        for kind in &self.lost {
            session.record(Event { agent: Arc::from(""), depth: 0, call: 0, kind: kind.clone(), rank: 0 }, None);
        }
    }

    pub(super) fn total(&self) -> Cost {
        self.spent.values().fold(Cost::default(), |sum, cost| sum.plus(*cost))
    }

    pub(super) fn spent_beneath(&self, key: &str) -> Cost {
        if self.spent.is_empty() {
            return Cost::default();
        }
        let prefix = format!("{key}/");
        let beneath = self.spent.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        beneath.fold(Cost::default(), |sum, (_, cost)| sum.plus(*cost))
    }

    /// How often the request of a step was sent.
    pub(super) fn requests_at(&self, key: &str) -> u64 {
        self.spent.get(key).map_or(0, |cost| cost.requests)
    }

    /// Whether calls of the reply to this request had begun.
    pub(super) fn has_begun(&self, request: &str) -> bool {
        self.spent.get(request).is_some_and(|cost| cost.tool_calls > 0)
    }
}

/// What people have raised, each after what it goes on from, and what they are still asked about.
fn raised(contents: &JournalContents) -> (Vec<RecordedRaise>, Vec<(String, AskedQuestion)>) {
    let (mut raised, mut open) = (Vec::new(), Vec::new());
    let is_about_limit = |key: &str| limited_request(key).is_some();
    for (key, record) in contents.records().filter(|(_, record)| record.kind == StepKind::Ask) {
        let shown = record.shown.as_ref().filter(|_| is_about_limit(key));
        let Some(asked) = shown.and_then(|shown| shown.to::<AskedQuestion>().ok()) else { continue };
        match &record.known {
            StepProgress::Done(answer) => {
                let answer = answer.to::<StepRecord<RecordedAnswer>>().ok();
                raised.extend(answer.and_then(|answer| RecordedRaise::of(key, &asked, &answer.value.answer)));
            }
            StepProgress::Asked(_) => open.push((key.to_owned(), asked)),
            StepProgress::Started(_) => {}
        }
    }
    sort(&mut raised);
    (raised, open)
}

fn sort(raised: &mut [RecordedRaise]) {
    raised.sort_by(|one, other| one.raise.allowed.total_cmp(&other.raise.allowed));
}

/// The key of code that was interrupted: what it told until then went with it.
fn interrupted<'a>((key, record): (&'a str, &JournalEntry)) -> Option<&'a str> {
    let has_told =
        |result: &RawJson| result.to::<StepRecord<IgnoredAny>>().is_ok_and(|recorded| !recorded.told.is_empty());
    let is_lost = match &record.known {
        StepProgress::Started(_) => true,
        StepProgress::Done(result) => !has_told(result),
        StepProgress::Asked(_) => false,
    };
    Some(key).filter(|_| is_lost && record.kind == StepKind::Code)
}

/// What was told of the sendings of a request.
fn requests_of(key: &str, record: &JournalEntry, contents: &JournalContents) -> Vec<EventKind> {
    let told = if record.kind == StepKind::Model { told_at(key, record, contents) } else { EventLog::default() };
    told.events.into_iter().map(|event| event.kind).filter(|kind| kind.usage().is_some()).collect()
}

/// Whether a call above, which came to its end in the same process, tells of it.
fn is_told(contents: &JournalContents, key: &str, kind: &EventKind) -> bool {
    let tells = |(key, record): (&str, &JournalEntry)| {
        told_at(key, record, contents).events.iter().any(|event| event.kind == *kind)
    };
    contents.above(key).any(tells)
}

/// What a finished run gave, from its journal alone.
pub fn outcome(contents: &JournalContents) -> Option<Outcome> {
    let (key, record) = contents.records().find(|(key, record)| {
        let is_turn = record.kind == StepKind::Call && key.matches('/').count() == 1;
        is_turn && matches!(record.known, StepProgress::Done(_))
    })?;
    let turn: TurnRecord = value_at(key, contents).ok()?;
    let (output, messages) = (turn.output(key, contents).ok()?, turn.messages(key, contents).ok()?);
    let input = turn.input(key, contents).ok()?;
    let session = Arc::new(RunTotals::default());
    PriorSpending::from(contents).account_to(&session);
    let events = Events::unheard().recorded_by(Arc::clone(&session) as Arc<_>);
    let name = key.split('/').next().unwrap_or_default();
    let entry = events.for_call(&Arc::from(name), 0, events.new_call());
    let kind = if messages.is_empty() { CallKind::Function } else { CallKind::Agent };
    entry.send(|| EventKind::CallStarted { name: name.to_owned(), kind, input, parent: None });
    entry.replay(told_at(key, record, contents));
    let (ended, usage) = (CallEnd::Output(output.told()), session.usage());
    entry.send(|| EventKind::CallFinished { name: name.to_owned(), kind, ended, duration_ms: 0, usage: usage.total });
    let trace = session.trace();
    let refused = session.refused();
    Some(Outcome { refused, output, finish: finish_of(&messages), messages, usage, trace })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::generated::{Generator, assert_replayed_is_live};

    fn message(generator: &mut Generator) -> StoredMessage {
        let number = generator.one_of(&[0, 3, u64::MAX]);
        match generator.number(5) {
            0 => StoredMessage::At(TurnMessage::Input),
            1 => StoredMessage::At(TurnMessage::Reply(number)),
            2 => StoredMessage::At(TurnMessage::Results(number)),
            3 => StoredMessage::At(TurnMessage::Made),
            _ => StoredMessage::Whole(Box::new(generator.message())),
        }
    }

    fn output(generator: &mut Generator) -> TurnOutput {
        match generator.number(4) {
            0 => TurnOutput::Text(generator.text()),
            1 => TurnOutput::Value(generator.json().get().to_owned()),
            kind => TurnOutput::Reply(generator.one_of(&[0, 9]), kind == 2),
        }
    }

    #[test]
    fn a_turn_is_replayed_as_it_ended() {
        let turn = |generator: &mut Generator, _: &_| TurnRecord {
            input: generator.maybe(Generator::json),
            output: output(generator),
            messages: match generator.number(2) {
                0 => TurnMessages::Replies(generator.one_of(&[0, 5, u64::MAX])),
                _ => TurnMessages::Each(generator.list(3, message)),
            },
            stopped: generator.maybe(Generator::text),
        };
        assert_replayed_is_live(turn, |turn| turn);
    }
}
