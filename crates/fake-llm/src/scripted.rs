//! A script being played: each request is read, checked, answered and remembered.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use crate::answer::FakeAnswer;
use crate::counts::InFlight;
use crate::fault::{self, FakeProviderError, InjectedFault};
use crate::history::{self, ServedHistory};
use crate::protocol::{Finding, Findings, Protocol, Serving};
use crate::reply::FakeReply;
use crate::request::{ReceivedRequest, TransportRequest, Violation};
use crate::script::{ApiKeyRequirement, FakeScript};
use crate::seen::{SeenRequest, StreamMode};

#[derive(Debug)]
pub(crate) struct ScriptPlayer {
    script: FakeScript,
    progress: Mutex<ScriptProgress>,
}

#[derive(Debug, Default)]
struct ScriptProgress {
    /// The replies in order that have not reached a client, by their index.
    pending: BTreeSet<usize>,
    used_rules: BTreeSet<usize>,
    requests: Vec<ReceivedRequest>,
    violations: Vec<Violation>,
    ledger: ServedHistory,
    named_calls: usize,
}

/// An answer on its way. Dropped before it is complete, it gives its reply back to the script.
pub(crate) struct Delivery {
    scripted: Arc<ScriptPlayer>,
    claim: Option<ReplyClaim>,
    in_flight: Option<InFlight>,
}

/// A reply in order that this answer holds.
#[derive(Debug, Clone, Copy)]
enum ReplyClaim {
    /// No other answer may have it meanwhile.
    Reserved(usize),
    /// A fault may keep it from arriving, so a retry must find it; it is used up when it has arrived.
    Offered(usize),
}

/// Where a reply came from.
enum ReplySource {
    Rule(usize),
    Order(usize),
    Otherwise,
}

impl ScriptPlayer {
    pub fn new(script: FakeScript) -> Self {
        let progress = ScriptProgress { pending: (0..script.replies.len()).collect(), ..ScriptProgress::default() };
        Self { script, progress: Mutex::new(progress) }
    }

    pub fn respond(self: &Arc<Self>, incoming: TransportRequest, in_flight: InFlight) -> (FakeAnswer, Delivery) {
        let mut findings = Findings::default();
        let protocol = protocol_of(&incoming, &mut findings);
        let (body, seen) = self.read(&incoming, protocol, &mut findings);
        // The rules run outside the lock: one that panics must not take the records with it.
        let ruled = seen.as_ref().and_then(|seen| self.ruled(seen));
        let mut progress = self.lock();
        if let Some(seen) = &seen {
            history::check(seen, &progress.ledger, self.script.foreign_history, &mut findings);
        }
        let number = progress.remember(incoming, body, seen.clone());
        let (answer, claim) = match (protocol, seen) {
            (Some(protocol), Some(seen)) if findings.0.is_empty() => {
                self.play(&mut progress, number, protocol, &seen, ruled)
            }
            _ => (progress.refuse(number, protocol, findings.0), None),
        };
        drop(progress);
        (answer, Delivery { scripted: Arc::clone(self), claim, in_flight: Some(in_flight) })
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.lock().requests.clone()
    }

    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// Notes bytes that are no HTTP request.
    pub fn refuse_bytes(&self, reason: String) {
        self.lock().violations.push(Violation { request: 0, reason });
    }

    /// Everything that keeps the script from having been played to its end without a fault of the client.
    pub fn unfinished(&self) -> Vec<String> {
        let progress = self.lock();
        let violations = progress.violations.iter().map(|it| format!("request {}: {}", it.request, it.reason));
        let unserved = progress.pending.iter().map(|index| format!("reply {} was never delivered", index + 1));
        let unused = (0..self.script.rules.len()).filter(|index| !progress.used_rules.contains(index));
        violations.chain(unserved).chain(unused.map(|index| format!("rule {} never applied", index + 1))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, ScriptProgress> {
        self.progress.lock().expect("nothing that can panic runs under this lock")
    }

    fn read(
        &self,
        incoming: &TransportRequest,
        protocol: Option<Protocol>,
        findings: &mut Findings,
    ) -> (Value, Option<SeenRequest>) {
        let Some(dialect) = protocol.map(Protocol::dialect) else { return (Value::Null, None) };
        if self.script.keys == ApiKeyRequirement::Required && !dialect.has_key(&incoming.headers) {
            findings.0.push(Finding { status: 401, reason: "an API key is required".to_owned() });
        }
        let content_type = incoming.headers.get("content-type").unwrap_or_default();
        if content_type.split(';').next().is_none_or(|kind| kind.trim() != "application/json") {
            findings.refuse(format!("content-type: application/json is required, not {content_type:?}"));
        }
        dialect.check_headers(&incoming.headers, findings);
        match serde_json::from_slice::<Value>(&incoming.bytes) {
            Ok(body) => {
                let seen = dialect.read(&incoming.path, &body, findings);
                (body, Some(seen))
            }
            Err(error) => {
                findings.refuse(format!("the body is no JSON: {error}"));
                (Value::Null, None)
            }
        }
    }

    fn ruled(&self, seen: &SeenRequest) -> Option<(usize, FakeReply)> {
        self.script.rules.iter().enumerate().find_map(|(index, rule)| Some((index, rule(seen)?)))
    }

    /// The answer to a request that is in order.
    fn play(
        &self,
        progress: &mut ScriptProgress,
        number: usize,
        protocol: Protocol,
        seen: &SeenRequest,
        ruled: Option<(usize, FakeReply)>,
    ) -> (FakeAnswer, Option<ReplyClaim>) {
        let faults = self.faults_on(number);
        let ordered = || {
            let next = progress.pending.first().copied()?;
            Some((ReplySource::Order(next), self.script.replies[next].clone()))
        };
        let chosen = ruled.map(|(index, reply)| (ReplySource::Rule(index), reply)).or_else(ordered);
        let otherwise = || self.script.otherwise.clone().map(|reply| (ReplySource::Otherwise, reply));
        let Some((source, mut reply)) = chosen.or_else(otherwise) else {
            let reason = "the script has no reply left".to_owned();
            return (progress.refuse(number, Some(protocol), vec![Finding { status: 500, reason }]), None);
        };
        reply.name_calls(|| progress.fresh_call_id());
        if faults.iter().all(InjectedFault::may_end_well) {
            progress.ledger.record(&reply, protocol.dialect());
        }
        let claim = progress.claim(&source, &faults);
        let serving = Serving { reply: &reply, number, model: &seen.model, stream: seen.stream };
        let chunks = serving.chunks(protocol);
        let answer = match seen.stream {
            StreamMode::No => FakeAnswer::document(200, chunks.concat()),
            StreamMode::Events | StreamMode::EventsWithUsage => FakeAnswer::events(chunks),
        };
        let answer = FakeAnswer { latency: (self.script.latency)(number), ..answer };
        (fault::apply(faults, answer, protocol.dialect()), claim)
    }

    fn faults_on(&self, number: usize) -> Vec<InjectedFault> {
        let faults = self.script.faults.iter().filter(|(on, _)| on.includes(number));
        faults.map(|(_, fault)| fault.clone()).collect()
    }
}

fn protocol_of(incoming: &TransportRequest, findings: &mut Findings) -> Option<Protocol> {
    let protocol = Protocol::of_path(&incoming.path).filter(|_| incoming.method == "POST");
    if protocol.is_none() {
        let reason = format!("there is nothing at {} {}", incoming.method, incoming.path);
        findings.0.push(Finding { status: 404, reason });
    }
    protocol
}

impl ScriptProgress {
    fn remember(&mut self, incoming: TransportRequest, body: Value, seen: Option<SeenRequest>) -> usize {
        let number = self.requests.len() + 1;
        let TransportRequest { connection, version, method, path, headers, bytes } = incoming;
        self.requests.push(ReceivedRequest { number, connection, version, method, path, headers, bytes, body, seen });
        number
    }

    fn refuse(&mut self, number: usize, protocol: Option<Protocol>, findings: Vec<Finding>) -> FakeAnswer {
        let status = findings.first().map_or(400, |finding| finding.status);
        let reasons: Vec<String> = findings.into_iter().map(|finding| finding.reason).collect();
        let failure = FakeProviderError::new(status, &reasons.join("; "));
        self.violations.extend(reasons.into_iter().map(|reason| Violation { request: number, reason }));
        failure.answer(protocol.unwrap_or(Protocol::OpenAiChat).dialect())
    }

    fn fresh_call_id(&mut self) -> String {
        self.named_calls += 1;
        format!("call_fake{:08}", self.named_calls)
    }

    fn claim(&mut self, source: &ReplySource, faults: &[InjectedFault]) -> Option<ReplyClaim> {
        match *source {
            ReplySource::Rule(index) => {
                self.used_rules.insert(index);
                None
            }
            ReplySource::Otherwise => None,
            ReplySource::Order(_) if !faults.iter().all(InjectedFault::may_end_well) => None,
            ReplySource::Order(index) if faults.iter().any(InjectedFault::may_lose_the_reply) => {
                Some(ReplyClaim::Offered(index))
            }
            ReplySource::Order(index) => {
                self.pending.remove(&index);
                Some(ReplyClaim::Reserved(index))
            }
        }
    }
}

impl Delivery {
    /// Must be called before the last bytes go out, so that a client that has read them finds everything accounted for.
    pub fn complete(&mut self) {
        self.in_flight = None;
        match self.claim.take() {
            Some(ReplyClaim::Offered(index)) => {
                self.scripted.lock().pending.remove(&index);
            }
            Some(ReplyClaim::Reserved(_)) | None => {}
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(ReplyClaim::Reserved(index)) = self.claim {
            self.scripted.lock().pending.insert(index);
        }
    }
}
