//! Who has to agree before a tool runs. A call is judged in three steps: the floor of its toolset, the rules that speak of it,
//! and, if the verdict is to ask, an answer. `decide` is all of them, pure; the gate of a session asks and remembers.

mod answer;
pub(crate) mod decide;
mod form;
mod gate;
mod grants;
mod judgement;
mod permission;
mod raise;
mod rule;
mod trial;
mod verdict;

pub use crate::journal::digest::digest;
pub(crate) use answer::RecordedAnswer;
#[cfg(feature = "front-end")]
pub use answer::SHORT_ID;
#[cfg(not(feature = "front-end"))]
pub(crate) use answer::key_of_call;
#[cfg(feature = "front-end")]
pub use answer::key_of_call;
pub use answer::{
    Answer, ApprovalMode, ApprovalRequest, Approvals, Approver, AskedQuestion, KnownAnswers, PendingQuestion,
    SessionCoverage, canonical, short_id,
};
#[cfg(feature = "front-end")]
pub use decide::{CallOutlook, DecidedBy, JudgingStep};
pub use form::{FieldType, Form, FormField};
pub(crate) use form::{FormAnswer, check_kind};
pub use gate::{Candidate, Gate, GateOutcome, GatePassage, MOST_OPEN_QUESTIONS, RefusedBy};
#[cfg(feature = "front-end")]
pub use grants::SessionGrant;
pub use judgement::{CallSubject, Judgement, JudgementRecord, Ruling, UnshownCall};
pub use permission::{Permission, PermittedCall};
pub(crate) use raise::LimitRaise;
#[cfg(not(feature = "front-end"))]
pub(crate) use raise::RAISE_LIMIT;
#[cfg(feature = "front-end")]
pub use raise::{RAISE_LIMIT, check_edited_raise};
pub use rule::{PlacedRule, Rule, Rules, Voices};
pub(crate) use rule::{RulePlaces, strictest};
#[cfg(feature = "front-end")]
pub use trial::Trials;
pub use verdict::{CommandVerdict, Coverage, DeclaredVerdict, Memory, Question, Verdict, VerdictKind};
