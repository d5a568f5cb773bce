//! What a step told, as a journal stores it: every fact once. What follows from a value that is recorded is named, what a
//! step within it told is named, and only the rest is written out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::kinds::StoredKind;
use super::{Event, EventKind};
use crate::message::{Usage, push_json, push_number, push_quoted};

/// How a fact follows from a recorded value, which therefore is all that has to be stored. The record is that of the step
/// that the fact is told of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Derivation {
    /// The text of a reply is complete.
    Text,
    /// The user message was made of an input.
    Heard,
    /// A request was sent to the model of its reply; how long an answer was waited for, in milliseconds.
    Started(Option<u64>),
    /// A request was answered; how long it took, in milliseconds.
    Finished(u64),
    /// A tool was called; the id under which its code calls others.
    Called(Option<u64>),
    /// A tool returned.
    Returned,
    /// A call was refused: the agents and the code from the entry down, and whether a rule or a person refused it.
    Refused(Vec<String>, bool),
    /// A call of an agent began with the arguments of the tool call.
    Begun(u64),
    /// A call of an agent ended with what its caller got; how long it took, in milliseconds, and what it used.
    Ended(u64, #[serde(with = "brief")] Usage),
}

impl Derivation {
    fn write(&self, json: &mut Vec<u8>) {
        let (name, number) = match self {
            Self::Started(Some(wait)) => (&b"{\"started\":"[..], *wait),
            Self::Finished(duration_ms) => (&b"{\"finished\":"[..], *duration_ms),
            Self::Called(Some(call)) => (&b"{\"called\":"[..], *call),
            Self::Called(None) => return json.extend_from_slice(b"{\"called\":null}"),
            Self::Returned => return json.extend_from_slice(b"\"returned\""),
            Self::Text | Self::Heard | Self::Started(None) | Self::Refused(..) | Self::Begun(_) | Self::Ended(..) => {
                return push_json(json, self);
            }
        };
        json.extend_from_slice(name);
        push_number(json, number);
        json.push(b'}');
    }
}

/// A usage in few bytes: a list of its numbers without the zeros at its end. Money is text, since it is compared.
pub mod brief {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::message::{Usage, push_number, push_quoted};

    /// The numbers, then the money.
    #[derive(Deserialize)]
    struct Numbers(Vec<u64>, Option<String>);

    /// Writes the list.
    pub fn serialize<S: Serializer>(usage: &Usage, serializer: S) -> Result<S::Ok, S::Error> {
        let (numbers, used) = numbers(usage);
        (&numbers[..used], usage.cost_usd.map(|cost| cost.to_string())).serialize(serializer)
    }

    /// Appends the JSON of the list.
    pub(crate) fn write(usage: &Usage, json: &mut Vec<u8>) {
        let (numbers, used) = numbers(usage);
        json.extend_from_slice(b"[[");
        for (index, number) in numbers[..used].iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            push_number(json, *number);
        }
        json.extend_from_slice(b"],");
        match usage.cost_usd {
            Some(cost) => push_quoted(json, &cost.to_string()),
            None => json.extend_from_slice(b"null"),
        }
        json.push(b']');
    }

    /// All numbers, and how many stand before the zeros at the end.
    fn numbers(usage: &Usage) -> ([u64; 8], usize) {
        let Usage { requests, input_tokens, output_tokens, cache_read_tokens, .. } = *usage;
        let Usage { cache_write_tokens, reasoning_tokens, unanswered, estimated, .. } = *usage;
        let numbers = [
            requests,
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            reasoning_tokens,
            unanswered,
            estimated,
        ];
        let used = numbers.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
        (numbers, used)
    }

    /// Reads the list.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Usage, D::Error> {
        let Numbers(numbers, cost) = Numbers::deserialize(deserializer)?;
        let number = |index: usize| numbers.get(index).copied().unwrap_or_default();
        Ok(Usage {
            requests: number(0),
            input_tokens: number(1),
            output_tokens: number(2),
            cache_read_tokens: number(3),
            cache_write_tokens: number(4),
            reasoning_tokens: number(5),
            unanswered: number(6),
            estimated: number(7),
            cost_usd: cost.map(|cost| cost.parse().map_err(D::Error::custom)).transpose()?,
        })
    }
}

/// Whose events they are: what [`Event`] has besides its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Teller(pub Arc<str>, pub usize, pub u64, pub u64);

impl Teller {
    /// Who told this event.
    pub fn of(event: &Event) -> Self {
        Self(Arc::clone(&event.agent), event.depth, event.call, event.rank)
    }

    /// The event of this kind that it tells.
    pub fn event(&self, kind: EventKind) -> Event {
        let Self(agent, depth, call, rank) = self;
        Event { agent: Arc::clone(agent), depth: *depth, call: *call, kind, rank: *rank }
    }
}

/// Which of the two lists of a record: what was told until a call was decided stands apart from what it told itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogPart {
    #[default]
    Told,
    Decided,
}

/// Events that stand in the record of a step beneath this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BorrowedEvents {
    /// The key of that record, from here.
    pub k: String,
    #[serde(default, skip_serializing_if = "is_told")]
    pub part: LogPart,
    /// How many of them, from the first that was not borrowed yet; all that are left if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<usize>,
    /// The ids of calls there and here, where they differ: the record is of another process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<(u64, u64)>,
    /// The rank here, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks in this form")]
fn is_told(part: &LogPart) -> bool {
    *part == LogPart::Told
}

/// One entry of what was told. The number is that of its teller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToldItem {
    /// It stands in another record.
    Of(BorrowedEvents),
    /// It follows from the record at this key, from here; without one from this record.
    So(usize, String, Derivation),
    /// All of it.
    Is(usize, WholeKind),
}

impl ToldItem {
    fn write(&self, json: &mut Vec<u8>) {
        match self {
            Self::Of(BorrowedEvents { k, part: LogPart::Told, n: None, ids, rank: None }) if ids.is_empty() => {
                json.extend_from_slice(b"{\"of\":{\"k\":");
                push_quoted(json, k);
                json.extend_from_slice(b"}}");
            }
            Self::So(teller, key, derivation) => {
                json.extend_from_slice(b"{\"so\":[");
                push_number(json, *teller as u64);
                json.push(b',');
                push_quoted(json, key);
                json.push(b',');
                derivation.write(json);
                json.extend_from_slice(b"]}");
            }
            Self::Of(_) | Self::Is(..) => push_json(json, self),
        }
    }
}

/// A kind of event with all its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholeKind(#[serde(with = "StoredKind")] pub EventKind);

/// All that was told during a step, in its order. The first teller is the call whose step it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToldLog {
    pub by: Vec<Teller>,
    pub items: Vec<ToldItem>,
}

impl ToldLog {
    /// Appends its JSON, as its serialisation has it.
    pub(crate) fn write(&self, json: &mut Vec<u8>) {
        json.extend_from_slice(b"{\"by\":[");
        for (index, Teller(agent, depth, call, rank)) in self.by.iter().enumerate() {
            json.extend_from_slice(if index > 0 { b",[" } else { b"[" });
            push_quoted(json, agent);
            for number in [*depth as u64, *call, *rank] {
                json.push(b',');
                push_number(json, number);
            }
            json.push(b']');
        }
        json.extend_from_slice(b"],\"items\":[");
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            item.write(json);
        }
        json.extend_from_slice(b"]}");
    }

    /// Whether nothing was told during the step.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of a teller among those of this log.
    pub fn teller(&mut self, teller: Teller) -> usize {
        // Mostly it is the one of the event before.
        let known = self.by.iter().rposition(|known| *known == teller);
        known.unwrap_or_else(|| {
            self.by.push(teller);
            self.by.len() - 1
        })
    }
}
