//! What a client carries for us: which questions it was asked, and what names a run to it. Both are signed with the key of the
//! state directory, so that any process of this user can read them and nobody else can make one. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use llm_do::records::{SigningPurpose, StateKey};
use llm_do::store::layout::RunId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long the answers of a call may take, in milliseconds.
pub const STATE_LASTS: u64 = 24 * 60 * 60 * 1000;
const VERSION: &str = "1";
/// Longer ones are nobody's.
const LONGEST: usize = 64 * 1024;

/// What a call waits for, as the client gives it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestState {
    pub run: String,
    /// The whole digests of the questions.
    pub questions: Vec<String>,
    pub tool: String,
    /// The digest of the arguments.
    pub arguments: String,
    /// Who was asked.
    pub principal: String,
    /// Milliseconds since 1970.
    pub expires: u64,
    /// How often the form came back without an answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(tries: &u32) -> bool {
    *tries == 0
}

impl RequestState {
    pub fn sealed(&self, key: &StateKey) -> String {
        let text = URL_SAFE_NO_PAD.encode(serde_json::to_string(self).unwrap_or_default());
        let mac = signed(key, &["state", VERSION, &text]);
        format!("{VERSION}.{text}.{mac}")
    }

    /// The one that this text is, if we made it and it still counts. Nothing in it is believed before.
    pub fn open(text: &str, key: &StateKey, now: u64) -> Option<Self> {
        let (signed_text, mac) = text.rsplit_once('.').filter(|_| text.len() <= LONGEST)?;
        let (VERSION, content) = signed_text.split_once('.')? else { return None };
        if !is_equal(&signed(key, &["state", VERSION, content]), mac) {
            return None;
        }
        let state: Self = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(content).ok()?).ok()?;
        (now < state.expires && state.expires <= now.saturating_add(STATE_LASTS)).then_some(state)
    }
}

/// What names a run to a client.
pub fn task_id(key: &StateKey, run: &RunId, principal: &str) -> String {
    format!("{run}{}", signed(key, &["task", run.as_str(), principal]))
}

/// The run that a client names, if it was told of it.
pub fn run_of_task(key: &StateKey, task: &str, principal: &str) -> Option<RunId> {
    let run = RunId::parse(task.get(..16)?)?;
    is_equal(&task_id(key, &run, principal), task).then_some(run)
}

/// The digest of a value, whatever the order of its keys.
pub fn digest_of(value: &Value) -> String {
    llm_do::records::digest([value.to_string().as_str()])
}

fn signed(key: &StateKey, parts: &[&str]) -> String {
    key.mac(SigningPurpose::Client, parts.iter().map(|part| part.as_bytes())).to_string()
}

/// Compares to the end: how long it takes tells nothing.
fn is_equal(ours: &str, given: &str) -> bool {
    let given = given.as_bytes();
    let differing = ours.bytes().enumerate().fold(0, |differing, (at, byte)| {
        differing | (byte ^ std::hint::black_box(given.get(at).copied().unwrap_or(0)))
    });
    std::hint::black_box(differing) == 0 && given.len() == ours.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> StateKey {
        StateKey::from_bytes([7; 32])
    }

    fn state() -> RequestState {
        RequestState {
            run: "06gy3k9x7wqe4t2m".to_owned(),
            questions: vec!["48877392a3eb".repeat(5), "ä\n\"".to_owned()],
            tool: "triage".to_owned(),
            arguments: digest_of(&serde_json::json!({"input": "x"})),
            principal: "stdio me".to_owned(),
            expires: 1000,
            tries: 0,
        }
    }

    #[test]
    fn what_was_sealed_opens_as_it_was_until_it_expires() {
        let sealed = state().sealed(&key());
        assert!(sealed.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{sealed}");
        assert_eq!(RequestState::open(&sealed, &key(), 999), Some(state()));
        assert_eq!(RequestState::open(&sealed, &key(), 1000), None, "its time is over");
        assert_eq!(RequestState::open(&sealed, &StateKey::from_bytes([8; 32]), 0), None, "another key");
        let late = RequestState { expires: STATE_LASTS + 2, ..state() }.sealed(&key());
        assert_eq!(RequestState::open(&late, &key(), 1), None, "no time of ours");
    }

    #[test]
    fn of_a_thousand_forged_ones_none_opens() {
        let mut random = fastrand::Rng::with_seed(7);
        let sealed = state().sealed(&key());
        let task = task_id(&key(), &RunId::parse("06gy3k9x7wqe4t2m").unwrap(), "stdio me");
        for round in 0..1000 {
            for (text, is_state) in [(&sealed, true), (&task, false)] {
                let mut bytes = text.clone().into_bytes();
                match random.u8(..4) {
                    0 => {
                        let at = random.usize(..bytes.len());
                        let other = *random.choice(b"0123456789abcdef.").unwrap();
                        bytes[at] = if bytes[at] == other { b'-' } else { other };
                    }
                    1 => bytes.truncate(random.usize(..bytes.len())),
                    2 => bytes.push(*random.choice(b"0aA._-").unwrap()),
                    _ => {
                        let at = random.usize(..bytes.len() - 1);
                        if bytes[at] == bytes[at + 1] {
                            bytes[at] ^= 1;
                        } else {
                            bytes.swap(at, at + 1);
                        }
                    }
                }
                let forged = String::from_utf8_lossy(&bytes).into_owned();
                if is_state {
                    assert_eq!(RequestState::open(&forged, &key(), 1), None, "{round}: {forged}");
                } else {
                    assert_eq!(run_of_task(&key(), &forged, "stdio me"), None, "{round}: {forged}");
                }
            }
        }
        // What was signed as one thing is not another one.
        let other = StateKey::from_bytes([7; 32]);
        let text = URL_SAFE_NO_PAD.encode(serde_json::to_string(&state()).unwrap());
        let mac = other.mac(SigningPurpose::Answer, [&b"state"[..], b"1", text.as_bytes()]);
        assert_eq!(RequestState::open(&format!("1.{text}.{mac}"), &key(), 1), None);
    }

    #[test]
    fn a_task_is_that_of_whoever_was_told_of_it() {
        let run = RunId::parse("06gy3k9x7wqe4t2m").unwrap();
        let task = task_id(&key(), &run, "one");
        assert_eq!(run_of_task(&key(), &task, "one"), Some(run));
        assert_eq!(run_of_task(&key(), &task, "two"), None);
        assert_eq!(run_of_task(&key(), run.as_str(), "one"), None);
    }
}
