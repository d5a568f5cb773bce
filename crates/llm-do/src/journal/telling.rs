//! What was told during a recorded step, whole again: from its record and from those beneath it. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use serde::de::IgnoredAny;

use super::call::{CallRecord, call_at, ended, of_call, of_input, of_reply, reply_at, value_at};
use super::{RecordedSteps, StepRecord};
use crate::event::{BorrowedEvents, Derivation, Event, EventKind, EventLog, LogPart, Teller, ToldItem, ToldLog};
use crate::message::{Content, Reply};

/// A file of ours is far from both; one that is not may hold anything.
const MOST_EVENTS: usize = 4_000_000;
const MOST_LEVELS: usize = 1_000;

/// All that was told during the step with this key. `log` is what its record says.
pub fn told(key: &str, log: &ToldLog, records: &dyn RecordedSteps) -> Result<EventLog, String> {
    Expansion { records, left: MOST_EVENTS, reply: None }.log(key, log, MOST_LEVELS)
}

struct Expansion<'a> {
    records: &'a dyn RecordedSteps,
    left: usize,
    /// The last reply that was read, and its key: all events of a request follow from one.
    reply: Option<(String, Reply)>,
}

/// What is left of the events of other records.
type Loans = HashMap<(String, LogPart), std::vec::IntoIter<ToldEvent>>;

/// An event, and the key of the step whose record tells of it.
type ToldEvent = (Event, Arc<str>);

impl Expansion<'_> {
    fn log(&mut self, key: &str, log: &ToldLog, levels: usize) -> Result<EventLog, String> {
        self.count(1)?;
        let mut loans = Loans::new();
        let here: Arc<str> = Arc::from(key);
        let mut told: Vec<ToldEvent> = Vec::with_capacity(log.items.len());
        for item in &log.items {
            match item {
                ToldItem::Of(borrowed) => {
                    let loan = self.loan(key, borrowed, &mut loans, levels)?;
                    told.extend(loan.take(borrowed.n.unwrap_or(usize::MAX)));
                }
                ToldItem::So(teller, at, derivation) => {
                    let teller = teller_of(log, *teller)?;
                    let at = if at.is_empty() { Arc::clone(&here) } else { Arc::from(format!("{key}/{at}")) };
                    told.push((teller.event(self.derived(&at, teller, derivation)?), at));
                }
                ToldItem::Is(teller, kind) => {
                    told.push((teller_of(log, *teller)?.event(kind.0.clone()), Arc::clone(&here)));
                }
            }
        }
        self.count(told.len())?;
        let (events, steps) = told.into_iter().unzip();
        Ok(EventLog { call: log.by.first().map_or(0, |Teller(_, _, call, _)| *call), events, steps })
    }

    fn count(&mut self, more: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(more).ok_or("it tells of more events than any run has")?;
        Ok(())
    }

    fn loan<'l>(
        &mut self,
        key: &str,
        borrowed: &BorrowedEvents,
        loans: &'l mut Loans,
        levels: usize,
    ) -> Result<&'l mut std::vec::IntoIter<ToldEvent>, String> {
        let BorrowedEvents { k, part, ids, rank, .. } = borrowed;
        let place = (k.clone(), *part);
        if !loans.contains_key(&place) {
            let levels =
                levels.checked_sub(1).ok_or("its steps lie within each other more often than those of any run")?;
            if k.is_empty() {
                return Err(format!("the record at `{key}` tells of itself"));
            }
            let at = format!("{key}/{k}");
            // What people answered in a stranger's file was left out, and what was told of it with that.
            let log = self.log_at(&at, *part)?.unwrap_or_default();
            let recorded = self.log(&at, &log, levels)?;
            let renumbered = |id: u64| ids.iter().find(|(there, _)| *there == id).map_or(id, |(_, here)| *here);
            let EventLog { events, steps, .. } = recorded.renamed(*rank, renumbered);
            let told: Vec<ToldEvent> = events.into_iter().zip(steps).collect();
            loans.insert(place.clone(), told.into_iter());
        }
        loans.get_mut(&place).ok_or_else(|| format!("the record at `{key}` cannot be read"))
    }

    fn log_at(&self, key: &str, part: LogPart) -> Result<Option<ToldLog>, String> {
        let Some(json) = self.records.result(key) else { return Ok(None) };
        let unreadable = |error| format!("the record at `{key}` cannot be read: {error}");
        Ok(Some(match part {
            LogPart::Told => json.to::<StepRecord<IgnoredAny>>().map_err(unreadable)?.told,
            LogPart::Decided => json.to::<StepRecord<CallRecord>>().map_err(unreadable)?.value.decided,
        }))
    }

    fn reply(&mut self, key: &str) -> Result<&Reply, String> {
        let reply = match self.reply.take().filter(|(known, _)| known == key) {
            Some((_, reply)) => reply,
            None => reply_at(key, self.records)?,
        };
        Ok(&self.reply.insert((key.to_owned(), reply)).1)
    }

    fn derived(&mut self, key: &str, teller: &Teller, derivation: &Derivation) -> Result<EventKind, String> {
        let derived = match derivation {
            Derivation::Text | Derivation::Started(_) | Derivation::Finished(_) => {
                of_reply(self.reply(key)?, derivation)
            }
            Derivation::Ended(duration_ms, usage) => {
                ended(&value_at(key, self.records)?, &teller.0, *duration_ms, *usage)
            }
            Derivation::Heard => Some(of_input(&value_at::<Vec<Content>>(key, self.records)?)),
            Derivation::Called(_) | Derivation::Returned | Derivation::Refused(..) | Derivation::Begun(_) => {
                let record: CallRecord = value_at(key, self.records)?;
                of_call(&call_at(key, self.records)?, &record, &teller.0, derivation)
            }
        };
        derived.ok_or_else(|| format!("the record at `{key}` does not tell what it is said to tell"))
    }
}

fn teller_of(log: &ToldLog, number: usize) -> Result<&Teller, String> {
    log.by.get(number).ok_or_else(|| "nobody told it".to_owned())
}
