//! Why a call comes out as it does, and what would become of a recorded call under other rules. Pure: the same three steps
//! as for a call that is about to run.

use std::sync::Arc;

use serde::Serialize;

use super::{LastingRules, RuledCall};
use crate::tools::approval::decide::{Facts, decide};
use crate::tools::approval::{
    ApprovalMode, CallOutlook, DecidedBy, JudgementRecord, JudgingStep, PlacedRule, Rule, VerdictKind, Voices,
};

/// What becomes of a call, in which step that is decided and by whom, and who else has spoken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What becomes of it.
    pub outlook: CallOutlook,
    /// Which of the three steps decides.
    pub step: JudgingStep,
    /// Who decides.
    pub by: DecidedBy,
    /// Where the lasting rule stands that decides, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The toolset's own verdict.
    pub toolset: VerdictKind,
    /// What rules say, the nearest to the call first.
    pub rules: Vec<SpokenRule>,
}

/// What one rule says of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpokenRule {
    /// Whose it is.
    pub whose: DecidedBy,
    /// What it says.
    pub says: Rule,
    /// Where it stands, if it is a lasting one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

impl Explanation {
    /// Of a call that was judged so, where a person could be asked.
    pub fn of(own: VerdictKind, voices: &Voices, mode: ApprovalMode) -> Self {
        let facts = Facts { own, voices, mode, is_known: false, is_remembered: false, has_approver: true };
        let decision = decide(facts);
        let spoken = |(says, whose, place): (Rule, DecidedBy, Option<&Arc<str>>)| SpokenRule {
            whose,
            says,
            place: place.map(|place| place.as_ref().to_owned()),
        };
        let allowance = voices.allowance.as_ref().map(|place| spoken((Rule::Allow, DecidedBy::Rule, Some(place))));
        Self {
            outlook: decision.outlook,
            step: decision.step,
            by: decision.by,
            rule: decision.place.map(|place| place.as_ref().to_owned()),
            toolset: own,
            rules: voices.verdicts().map(spoken).chain(allowance).collect(),
        }
    }

    /// Of a recorded call under these rules. What its toolset, its agent and its project said is as it was recorded.
    pub fn again(record: &JudgementRecord, call: RuledCall<'_>, rules: &LastingRules) -> Self {
        let recorded = record.manifest.map(|rule| PlacedRule { rule, place: "the manifest".into() });
        let voices = Voices { variant: record.variant, worker: record.worker, manifest: recorded, ..Voices::default() };
        Self::of(record.verdict, &rules.voices(call, voices), ApprovalMode::Prompt)
    }
}
