//! Events that were told once and are told again: what a recorded step said, heard by whoever listens to the run now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::kinds::StoredKind;
use super::{Event, EventKind};

/// What was told during a step, and the call whose step it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventLog {
    pub call: u64,
    #[serde(with = "stored")]
    pub events: Vec<Event>,
}

impl EventLog {
    /// Whether nothing was told during the step.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

/// An event as it is stored: with its rank, since whoever tells it again knows the order of calls, and with its kind around
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

/// Keeps every fact that passes, for itself and for those around it.
#[derive(Debug)]
pub(super) struct EventCapture {
    heard: Mutex<Vec<Event>>,
    around: Option<Arc<EventCapture>>,
}

impl EventCapture {
    pub(super) fn within(around: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { heard: Mutex::default(), around })
    }

    pub(super) fn hear(&self, event: &Event) {
        if is_passing(&event.kind) {
            return;
        }
        self.heard().push(event.clone());
        if let Some(around) = &self.around {
            around.hear(event);
        }
    }

    pub(super) fn taken(&self) -> Vec<Event> {
        std::mem::take(&mut self.heard())
    }

    // A panic elsewhere leaves the list as it was.
    fn heard(&self) -> MutexGuard<'_, Vec<Event>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
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
        let told = EventLog { call: 7, events: samples::all().into_iter().map(event).collect() };
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
        let outer = caller.overheard();
        let inner = outer.overheard();
        let child = inner.for_call(&Arc::from("child"), 1, inner.new_call());
        let parent = Some(1);
        let (name, kind, input) = ("child".to_owned(), CallKind::Agent, RawJson::of(&"x"));
        child.send(|| EventKind::CallStarted { name, kind, input, parent });
        inner.send(|| EventKind::Notice { text: "n".into() });
        let told = inner.told();
        assert_eq!(told.events.iter().map(|event| event.call).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(outer.told().events, told.events, "who is around hears it too");

        let again = events.for_call(&Arc::from("main"), 0, 40);
        again.replay(told);
        let heard: Vec<Event> = std::iter::from_fn(|| listener.try_recv().ok()).skip(2).collect();
        assert_eq!(heard.iter().map(|event| event.call).collect::<Vec<_>>(), [3, 40]);
        assert!(matches!(heard[0].kind, EventKind::CallStarted { parent: Some(40), .. }));
    }
}
