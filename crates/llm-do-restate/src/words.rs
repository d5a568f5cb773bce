//! What is said to a run: that it begins, answers, that it goes on, that it ends. Whoever has the engine key says it: the engine
//! itself knows no users, so each word is signed, for one run and one purpose. Pure.

use llm_do::records::{RunKind, SigningPurpose, StateKey};
use llm_do::{Input, Limits};
use llm_do_launch::record::LaunchRecord;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// That a run begins, and with what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Which files the caller has seen of the project; any, without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    pub kind: RunKind,
    pub flags: LaunchRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Input>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Tells this start from one of somebody else with the same id.
    pub nonce: String,
    pub by: String,
    /// Milliseconds since 1970.
    pub at: u64,
}

/// What is said to a run that was begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mail {
    /// A person's answer: the digest of the question, and the answer as a store keeps it, signed once more for the two.
    Answer { question: String, file: String },
    /// A run that was stopped goes on.
    GoOn { limits: WordLimits, at: u64 },
    /// It ends.
    Cancel { by: String, at: u64 },
}

/// Limits that are raised for a run that goes on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WordLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
}

impl WordLimits {
    pub fn limits(&self) -> Limits {
        Limits { max_requests: self.requests, max_cost_usd: self.usd, ..Limits::default() }
    }
}

/// A word and who vouches for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignedWord {
    /// The word as JSON, as it was signed.
    pub word: String,
    pub mac: String,
}

/// A word that is said to a run has a purpose of its own, and one for another purpose is none for it.
pub trait RunWord: Serialize + DeserializeOwned {
    const PURPOSE: &'static str;
}

impl RunWord for Start {
    const PURPOSE: &'static str = "start";
}

impl RunWord for Mail {
    const PURPOSE: &'static str = "mail";
}

impl SignedWord {
    /// Signs a word for one run of one project.
    pub fn of<W: RunWord>(word: &W, project: &str, run: &str, key: &StateKey) -> Self {
        let word = serde_json::to_string(word).expect("plain values serialise");
        let mac = mac::<W>(&word, project, run, key);
        Self { word, mac }
    }

    /// The word, if somebody with the key said it to this run of this project.
    pub fn read<W: RunWord>(&self, project: &str, run: &str, key: &StateKey) -> Option<W> {
        // Both have the same length, and no byte of one says anything of the next.
        let expected = mac::<W>(&self.word, project, run, key);
        let differing = expected.bytes().zip(self.mac.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
        let is_signed = expected.len() == self.mac.len() && differing == 0;
        if is_signed { serde_json::from_str(&self.word).ok() } else { None }
    }
}

fn mac<W: RunWord>(word: &str, project: &str, run: &str, key: &StateKey) -> String {
    let parts = [W::PURPOSE.as_bytes(), project.as_bytes(), run.as_bytes(), word.as_bytes()];
    key.mac(SigningPurpose::Engine, parts).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_counts_for_its_run_and_purpose_alone() {
        let key = StateKey::from_bytes([7; 32]);
        let word = Mail::Cancel { by: "me".to_owned(), at: 1 };
        let signed = SignedWord::of(&word, "refund", "r1", &key);
        let read = |signed: &SignedWord, project, run, key: &StateKey| signed.read::<Mail>(project, run, key).is_some();
        assert!(read(&signed, "refund", "r1", &key));
        assert!(!read(&signed, "refund", "r2", &key) && !read(&signed, "other", "r1", &key));
        assert!(!read(&signed, "refund", "r1", &StateKey::from_bytes([8; 32])));
        assert!(signed.read::<Start>("refund", "r1", &key).is_none());
        for other in ["", "00000000000000000000000000000000"] {
            assert!(!read(&SignedWord { mac: other.to_owned(), ..signed.clone() }, "refund", "r1", &key));
        }
        let changed = SignedWord { word: signed.word.replace("me", "you"), ..signed };
        assert!(!read(&changed, "refund", "r1", &key));
    }
}
