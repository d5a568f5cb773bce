//! A rehearsal: the first request as it would be sent, shown instead of being sent. The key is not in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llm_do::events::Events;
use llm_do::messages::Reply;
use llm_do::providers::{Conversation, Encoder, Fault, Head, Meter, ModelError};
use llm_do::{BoxFuture, Endpoint, Key, Message, Model, RawJson};
use serde::Serialize;
use serde_json::json;

/// What would be sent, once a call wanted to send it.
#[derive(Clone, Debug, Default)]
pub struct RehearsedRequest(Arc<Mutex<Option<FirstRequest>>>);

#[derive(Clone, Debug, Serialize)]
pub struct FirstRequest {
    /// Absent where nothing is sent: a script answers.
    pub url: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub body: RawJson,
}

impl RehearsedRequest {
    /// Kept once: the first request is the one that is shown.
    fn keep(&self, request: FirstRequest) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(request);
    }

    pub fn request(&self) -> Option<FirstRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Stands in for a provider.
pub struct Rehearsal {
    pub rehearsed: RehearsedRequest,
    /// `None` for a script, which is asked nothing over any wire.
    pub endpoint: Option<Arc<Endpoint>>,
}

impl Model for Rehearsal {
    fn open(&self, head: Head) -> Box<dyn Conversation> {
        let (rehearsed, endpoint) = (self.rehearsed.clone(), self.endpoint.clone());
        let encoder = endpoint.as_ref().map(|endpoint| endpoint.protocol.encoder(&head, &endpoint.quirks));
        Box::new(RehearsalConversation { rehearsed, endpoint, encoder, head })
    }
}

struct RehearsalConversation {
    rehearsed: RehearsedRequest,
    endpoint: Option<Arc<Endpoint>>,
    encoder: Option<Box<dyn Encoder>>,
    head: Head,
}

impl Conversation for RehearsalConversation {
    fn reply<'a>(
        &'a mut self,
        history: &'a [Message],
        meter: &'a mut dyn Meter,
        _: &'a Events,
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let request = self.request(history, meter.longest_answer());
        self.rehearsed.keep(request);
        let message = "nothing is sent in a dry run".to_owned();
        Box::pin(async { Err(ModelError::GiveUp(Fault { message, ..Fault::default() })) })
    }

    fn rewind(&mut self, messages: usize) {
        if let Some(encoder) = &mut self.encoder {
            encoder.truncate(messages.min(encoder.messages()));
        }
    }

    fn longest_wait(&self) -> Option<Duration> {
        None
    }

    fn goes_on_with(&self, _: &Reply) -> bool {
        false
    }
}

impl RehearsalConversation {
    fn request(&mut self, history: &[Message], longest_answer: Option<u64>) -> FirstRequest {
        let (Some(endpoint), Some(encoder)) = (&self.endpoint, &mut self.encoder) else {
            return FirstRequest { url: None, headers: BTreeMap::new(), body: plain(&self.head, history) };
        };
        for message in history.iter().skip(encoder.messages()) {
            encoder.push(message);
        }
        let body = String::from_utf8_lossy(&encoder.body(longest_answer)).into_owned();
        let path = endpoint.protocol.path(&self.head, &endpoint.quirks);
        let key = match endpoint.key {
            Key::Unneeded => None,
            Key::Secret(_) | Key::OfVariable { .. } | Key::Later(_) => Some("(hidden)"),
            Key::Missing { .. } => Some("(missing)"),
        };
        let own = endpoint.protocol.headers(&self.head, &endpoint.quirks, key);
        let content_type = ("content-type".to_owned(), "application/json".to_owned());
        FirstRequest {
            url: Some(format!("{}{path}", endpoint.base_url.trim_end_matches('/'))),
            headers: own.into_iter().map(|(name, value)| (name.to_owned(), value)).chain([content_type]).collect(),
            body: RawJson::parse(&body).unwrap_or_else(|_| RawJson::of(&body)),
        }
    }
}

/// What a model would be told, whichever it is.
fn plain(head: &Head, history: &[Message]) -> RawJson {
    let tools: Vec<_> = head
        .tools
        .iter()
        .map(|tool| json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters}))
        .collect();
    RawJson::of(&json!({
        "model": head.model.to_string(),
        "instructions": head.instructions,
        "tools": tools,
        "messages": history,
    }))
}
