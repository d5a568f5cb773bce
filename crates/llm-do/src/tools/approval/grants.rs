//! What a person approved for the rest of a session.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{Answer, Candidate, Memory, Ruling, canonical, digest};

/// An approval for the rest of the session, for one agent: a person who read what `editor` was about to do has not read what
/// another agent does with the same tool. Refusals are never remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Grant {
    Call {
        agent: String,
        toolset: String,
        tool: String,
        call: String,
        /// What no rule can allow is granted for what was shown, and a plain grant does not cover it.
        exception: Option<String>,
    },
    Tool {
        agent: String,
        toolset: String,
        tool: String,
        /// The part of it, where an answer covers less than the tool.
        part: Option<String>,
    },
}

impl Grant {
    /// What tells it from every other one.
    fn digest(&self) -> String {
        digest([format!("{self:?}").as_str()])
    }
}

/// What runs without a question until the session ends, in words.
#[cfg(feature = "front-end")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionGrant {
    /// The agent that may do it.
    pub agent: String,
    /// The tool.
    pub tool: String,
    /// The arguments or the part of the tool that it is for; nothing if it is for all of it.
    pub only: Option<String>,
    digest: String,
}

#[cfg(feature = "front-end")]
impl SessionGrant {
    fn of(grant: &Grant) -> Self {
        let digest = grant.digest();
        match grant.clone() {
            Grant::Call { agent, tool, call, .. } => Self { agent, tool, only: Some(call), digest },
            Grant::Tool { agent, tool, part, .. } => Self { agent, tool, only: part, digest },
        }
    }
}

/// The approvals of one session.
#[derive(Default)]
pub(super) struct Grants {
    remembered: Mutex<HashSet<Grant>>,
    /// Wakes the questions that an answer for the session may have answered too.
    more: Notify,
}

impl Grants {
    /// Whether one of them covers the call.
    pub(super) fn cover(&self, candidate: &Candidate<'_>, ruling: &Ruling) -> bool {
        let remembered = self.lock();
        if remembered.is_empty() {
            return false;
        }
        let is_granted = |grant: Option<Grant>| grant.is_some_and(|grant| remembered.contains(&grant));
        match ruling.memory() {
            Memory::Nothing => false,
            Memory::CallOnly => is_granted(call_grant(candidate, ruling)),
            Memory::CallOrTool => {
                is_granted(Some(tool_grant(candidate, ruling))) || is_granted(call_grant(candidate, ruling))
            }
        }
    }

    /// Waits until one of them covers the call.
    pub(super) async fn covering(&self, candidate: &Candidate<'_>, ruling: &Ruling) {
        loop {
            let more = self.more.notified();
            if self.cover(candidate, ruling) {
                return;
            }
            more.await;
        }
    }

    /// For this session only: an answer from a record is not remembered.
    pub(super) fn remember(&self, answer: &Answer, candidate: &Candidate<'_>, ruling: &Ruling) {
        let grant = match answer {
            Answer::CallForSession => call_grant(candidate, ruling).filter(|_| ruling.memory() != Memory::Nothing),
            Answer::ToolForSession => {
                Some(tool_grant(candidate, ruling)).filter(|_| ruling.memory() == Memory::CallOrTool)
            }
            Answer::Once
            | Answer::Edited(_)
            | Answer::Values(_)
            | Answer::Refuse { .. }
            | Answer::EndRun
            | Answer::Later => None,
        };
        if let Some(grant) = grant {
            self.lock().insert(grant);
            self.more.notify_waiters();
        }
    }

    /// What they are, in a fixed order.
    #[cfg(feature = "front-end")]
    pub(super) fn list(&self) -> Vec<SessionGrant> {
        let mut grants: Vec<SessionGrant> = self.lock().iter().map(SessionGrant::of).collect();
        grants.sort();
        grants
    }

    /// Forgets one of the list; its calls are asked about again.
    #[cfg(feature = "front-end")]
    pub(super) fn forget(&self, forgotten: &SessionGrant) {
        self.lock().retain(|grant| SessionGrant::of(grant) != *forgotten);
    }

    // A panic elsewhere leaves the set as it was.
    fn lock(&self) -> MutexGuard<'_, HashSet<Grant>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an answer for the session would cover, as digests.
pub(super) fn coverage(candidate: &Candidate<'_>, ruling: &Ruling) -> super::SessionCoverage {
    super::SessionCoverage {
        call: call_grant(candidate, ruling).map(|grant| grant.digest()),
        tool: Some(tool_grant(candidate, ruling).digest()),
    }
}

fn tool_grant(candidate: &Candidate<'_>, ruling: &Ruling) -> Grant {
    let part = ruling.verdict.covers().map(|covers| covers.tool.clone());
    let (toolset, tool) = (candidate.toolset.digest(), candidate.tool.to_owned());
    Grant::Tool { agent: candidate.caller(), toolset, tool, part }
}

/// The grant that would cover the call, if one can.
fn call_grant(candidate: &Candidate<'_>, ruling: &Ruling) -> Option<Grant> {
    if ruling.verdict.memory() == Memory::Nothing {
        return None;
    }
    let exception = ruling.verdict.exception();
    let (toolset, tool) = (candidate.toolset.digest(), candidate.tool.to_owned());
    let covers = ruling.verdict.covers();
    let call = covers.map_or_else(|| canonical(candidate.arguments), |covers| covers.call.clone());
    Some(Grant::Call { agent: candidate.caller(), toolset, tool, call, exception })
}
