//! Events that were told once and are told again: what a recorded step said, heard by the listeners of the run now.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kinds::StoredKind;
use super::told::{BorrowedEvents, Derivation, LogPart, Teller, ToldItem, ToldLog, WholeKind};
use super::{Event, EventKind};

/// What was told during a step, all of it, and the call whose step it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventLog {
    pub call: u64,
    #[serde(with = "stored")]
    pub events: Vec<Event>,
    /// Of each event the key of the step whose record tells of it, where that is known.
    #[serde(skip)]
    pub steps: Vec<Arc<str>>,
}

impl EventLog {
    /// Events of which it is not known which steps they are told of.
    pub fn of(call: u64, events: Vec<Event>) -> Self {
        Self { call, events, steps: Vec::new() }
    }

    /// The same with other ids of calls: `renumbered` gives the new one of each. The events of the call itself, and the
    /// beginnings of those that it made, get the rank; those of the calls beneath count only among themselves.
    #[must_use]
    pub fn renamed(mut self, rank: Option<u64>, mut renumbered: impl FnMut(u64) -> u64) -> Self {
        let own = self.call;
        self.call = renumbered(own);
        for event in &mut self.events {
            let is_own = event.call == own
                || matches!(event.kind, EventKind::CallStarted { parent: Some(parent), .. } if parent == own);
            event.rank = rank.filter(|_| is_own).unwrap_or(event.rank);
            event.call = renumbered(event.call);
            if let EventKind::CallStarted { parent: Some(id), .. } | EventKind::ToolCalled { calls_as: Some(id), .. } =
                &mut event.kind
            {
                *id = renumbered(*id);
            }
        }
        self
    }
}

/// An event as it is stored: with its rank, since the step that tells it again knows the order of calls, and with its kind around
/// its fields.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Event")]
struct StoredEvent {
    agent: Arc<str>,
    depth: usize,
    call: u64,
    #[serde(with = "StoredKind")]
    kind: EventKind,
    rank: u64,
}

/// Several of them.
mod stored {
    use super::{Deserialize, Deserializer, Event, Serialize, Serializer, StoredEvent};

    pub(super) fn serialize<S: Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct EventToStore<'a>(#[serde(with = "StoredEvent")] &'a Event);
        serializer.collect_seq(events.iter().map(EventToStore))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
        #[derive(Deserialize)]
        struct EventFromStore(#[serde(with = "StoredEvent")] Event);
        let events = Vec::<EventFromStore>::deserialize(deserializer)?;
        Ok(events.into_iter().map(|EventFromStore(event)| event).collect())
    }
}

/// A step under way, as those around it see it: what it told is found in its record, once there is one.
#[derive(Debug)]
pub struct StepOrigin {
    key: String,
    part: LogPart,
    around: Option<Arc<StepOrigin>>,
    settled: OnceLock<Renaming>,
}

/// How what a record tells became what was told in this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Renaming {
    /// Ids of calls there and here, where they differ.
    pub ids: Vec<(u64, u64)>,
    /// The rank here, if it is another one.
    pub rank: Option<u64>,
}

impl StepOrigin {
    /// Where it is in the call tree.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// From now on its record can be named.
    pub fn settle(&self, renaming: Renaming) {
        // A second time says the same.
        let _ = self.settled.set(renaming);
    }

    fn is_settled(&self) -> bool {
        self.settled.get().is_some()
    }
}

/// A fact, the innermost step that told it, and how it follows from a record.
#[derive(Debug)]
pub(super) struct HeardEvent {
    event: Event,
    from: Arc<StepOrigin>,
    derived: Option<(Arc<StepOrigin>, Derivation)>,
}

/// Keeps every fact that passes, for itself and for those around it.
#[derive(Debug)]
pub(super) struct EventCapture {
    heard: Mutex<HeardList>,
    origin: Arc<StepOrigin>,
    around: Option<Arc<EventCapture>>,
}

#[derive(Debug, Default)]
struct HeardList {
    events: Vec<Arc<HeardEvent>>,
    /// What comes later is not in the record.
    is_closed: bool,
}

impl EventCapture {
    pub(super) fn within(around: Option<Arc<Self>>, key: String, part: LogPart) -> Arc<Self> {
        let within = around.as_ref().map(|around| Arc::clone(&around.origin));
        let origin = Arc::new(StepOrigin { key, part, around: within, settled: OnceLock::new() });
        Arc::new(Self { heard: Mutex::default(), origin, around })
    }

    pub(super) fn origin(&self) -> &Arc<StepOrigin> {
        &self.origin
    }

    pub(super) fn hear(&self, event: Event, derived: Option<(Arc<StepOrigin>, Derivation)>) {
        if !is_passing(&event.kind) {
            let from = Arc::clone(&self.origin);
            self.take(Arc::new(HeardEvent { event, from, derived }));
        }
    }

    /// Those around hear it before anything else is heard here: so the order is the same everywhere.
    fn take(&self, heard: Arc<HeardEvent>) {
        let mut list = self.heard();
        if !list.is_closed {
            list.events.push(Arc::clone(&heard));
            if let Some(around) = &self.around {
                around.take(heard);
            }
            return;
        }
        if let Some(around) = &self.around {
            let (event, derived) = (heard.event.clone(), heard.derived.clone());
            around.take(Arc::new(HeardEvent { event, from: Arc::clone(&around.origin), derived }));
        }
    }

    /// The last text that follows from a record beneath this one, with the key of that record from here.
    pub(super) fn last_text<T>(&self, read: impl FnOnce(&str, &str) -> T) -> Option<T> {
        let list = self.heard();
        list.events
            .iter()
            .rev()
            .find_map(|heard| match (&heard.event.kind, &heard.derived) {
                (EventKind::TextComplete { text }, Some((origin, Derivation::Text))) if origin.is_settled() => {
                    Some((self.key_of(origin)?, text.as_str()))
                }
                _ => None,
            })
            .map(|(key, text)| read(key, text))
    }

    /// All that was heard, from whichever step.
    pub(super) fn events(&self) -> Vec<Event> {
        self.heard().events.iter().map(|heard| heard.event.clone()).collect()
    }

    /// What was heard, for the record of this step: nothing that another record has is said again. `derivation` says how
    /// a fact follows from the value of this step.
    pub(super) fn closed(&self, own: Teller, derivation: impl Fn(&Event) -> Option<Derivation>) -> ToldLog {
        let heard = {
            let mut list = self.heard();
            list.is_closed = true;
            std::mem::take(&mut list.events)
        };
        let mut log = ToldLog { by: vec![own], items: Vec::new() };
        for heard in heard {
            if let Some((origin, key)) = self.settled_below(&heard.from) {
                borrow(origin, key, &mut log.items);
                continue;
            }
            let teller = log.teller(Teller::of(&heard.event));
            let named = |(origin, derivation): &(Arc<StepOrigin>, Derivation)| {
                let can_be_named = origin.is_settled() || origin.key == self.origin.key;
                let key = self.key_of(origin).filter(|_| can_be_named)?;
                Some((key.to_owned(), derivation.clone()))
            };
            let own = || derivation(&heard.event).map(|derivation| (String::new(), derivation));
            let derived = heard.derived.as_ref().and_then(named).or_else(own);
            log.items.push(match derived {
                Some((key, derivation)) => ToldItem::So(teller, key, derivation),
                None => ToldItem::Is(teller, WholeKind(heard.event.kind.clone())),
            });
        }
        unbounded(&mut log.items);
        if log.items.is_empty() { ToldLog::default() } else { log }
    }

    /// The outermost step within this one that has a record and around what told it, and its key from here.
    fn settled_below<'a>(&self, from: &'a Arc<StepOrigin>) -> Option<(&'a StepOrigin, &'a str)> {
        let (mut at, mut found) = (Some(from), None);
        while let Some(origin) = at.filter(|origin| !Arc::ptr_eq(origin, &self.origin)) {
            found = if origin.is_settled() { Some(&**origin) } else { found };
            at = origin.around.as_ref();
        }
        found.and_then(|origin| Some((origin, self.key_of(origin).filter(|key| !key.is_empty())?)))
    }

    /// The key of a step from this one, which is empty for this one itself.
    fn key_of<'a>(&self, origin: &'a StepOrigin) -> Option<&'a str> {
        let rest = origin.key.strip_prefix(&self.origin.key)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }

    // A panic elsewhere leaves the list as it was.
    fn heard(&self) -> MutexGuard<'_, HeardList> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One more event of another record.
fn borrow(origin: &StepOrigin, key: &str, items: &mut Vec<ToldItem>) {
    if let Some(ToldItem::Of(BorrowedEvents { k, part, n: Some(n), .. })) = items.last_mut()
        && k == key
        && *part == origin.part
    {
        *n += 1;
        return;
    }
    let Renaming { ids, rank } = origin.settled.get().cloned().unwrap_or_default();
    items.push(ToldItem::Of(BorrowedEvents { k: key.to_owned(), part: origin.part, n: Some(1), ids, rank }));
}

/// The last loan of each record is of all that is left there: mostly it is the only one.
fn unbounded(items: &mut [ToldItem]) {
    let mut seen: HashSet<(&str, LogPart)> = HashSet::new();
    for item in items.iter_mut().rev() {
        if let ToldItem::Of(BorrowedEvents { k, part, n, .. }) = item
            && seen.insert((k, *part))
        {
            *n = None;
        }
    }
}

/// What a process says as it comes is a delta: what it came to is in the result. And what was started in one process is
/// not started in another.
fn is_passing(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ProcessOutput { .. }
            | EventKind::ToolProgressed { .. }
            | EventKind::ToolsetStarted { .. }
            | EventKind::ToolsetReady { .. }
            | EventKind::ToolsetFailed { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::super::{CallKind, Events, Listen, samples};
    use super::*;
    use crate::message::RawJson;

    #[test]
    fn every_event_survives_being_stored() {
        let event = |kind| Event { agent: Arc::from("main"), depth: 1, call: 7, kind, rank: 9 };
        let told = EventLog::of(7, samples::all().into_iter().map(event).collect());
        let json = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<EventLog>(&json).unwrap(), told);
        assert!(json.contains(r#""kind":{"notice":{"text":"t"}},"rank":9}"#), "{json}");
        let one = r#"{"agent":"a","depth":0,"call":1,"kind":KIND,"rank":0}"#;
        for wrong in [r#"{"new":{}}"#, r#"{"notice":{}}"#, r#"{"notice":{"text":1}}"#, "[]", r#""notice""#] {
            let json = format!(r#"{{"call":1,"events":[{}]}}"#, one.replace("KIND", wrong));
            assert!(serde_json::from_str::<EventLog>(&json).is_err(), "{json}");
        }
    }

    #[test]
    fn what_is_told_again_belongs_to_the_calls_of_this_run() {
        let (events, mut listener) = Events::new(Listen::Facts);
        let caller = events.for_call(&Arc::from("main"), 0, events.new_call());
        let outer = caller.overheard("a", LogPart::Told);
        let inner = outer.overheard("a/b", LogPart::Told);
        let child = inner.for_call(&Arc::from("child"), 1, inner.new_call());
        let parent = Some(1);
        let (name, kind, input) = ("child".to_owned(), CallKind::Agent, RawJson::of(&"x"));
        child.send(|| EventKind::CallStarted { name, kind, input, parent });
        inner.send(|| EventKind::Notice { text: "n".into() });
        let told = inner.heard();
        assert_eq!(told.events.iter().map(|event| event.call).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(outer.heard().events, told.events, "who is around hears it too");

        let again = events.for_call(&Arc::from("main"), 0, 40);
        again.replay(told);
        let heard: Vec<Event> = std::iter::from_fn(|| listener.try_recv().ok()).skip(2).collect();
        assert_eq!(heard.iter().map(|event| event.call).collect::<Vec<_>>(), [3, 40]);
        assert!(matches!(heard[0].kind, EventKind::CallStarted { parent: Some(40), .. }));
    }

    /// Two steps that tell at the same time, one that fails, and what comes too late.
    #[test]
    fn what_another_record_has_is_borrowed_from_it_in_its_order() {
        let (events, _listener) = Events::new(Listen::Facts);
        let turn = events.for_call(&Arc::from("main"), 0, events.new_call()).overheard("t", LogPart::Told);
        let [one, two, failed] = ["t/one", "t/two", "t/failed"].map(|key| turn.overheard(key, LogPart::Told));
        let say = |events: &Events, text: &str| events.send(|| EventKind::Notice { text: text.to_owned() });
        for (events, text) in [(&one, "1"), (&two, "2"), (&one, "3"), (&failed, "4"), (&turn, "5")] {
            say(events, text);
        }
        for done in [&one, &two] {
            assert!(!done.told(|_| None).is_empty());
            done.origin().unwrap().settle(Renaming::default());
        }
        say(&one, "too late");
        let of = |k: &str, n| ToldItem::Of(BorrowedEvents { k: k.to_owned(), n, ..BorrowedEvents::default() });
        let is = |text: &str| ToldItem::Is(0, WholeKind(EventKind::Notice { text: text.to_owned() }));
        let items = vec![of("one", Some(1)), of("two", None), of("one", None), is("4"), is("5"), is("too late")];
        assert_eq!(turn.told(|_| None).items, items);
        assert!(turn.told(|_| None).is_empty(), "once");
    }
}
