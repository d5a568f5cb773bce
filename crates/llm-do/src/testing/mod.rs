//! Agents that are tested: cases in files, what must come of them, records that answer in the place of models, and how sure
//! a share of passed cases is. What runs a case is a front end.

pub(crate) mod case_file;
mod expectation;
mod fixture;
mod replay;
mod scratch;
mod statistics;

pub(crate) use case_file::TEST_ENDING;
pub use case_file::{ApprovedTools, TestCase, TestFile, ToolAnswers};
pub use expectation::{CallMade, CaseOutcome, Expectation, Miss};
pub use fixture::Fixture;
pub use replay::{Answering, ReplayPlan, StaleStep, TestJournal};
pub use scratch::{ProjectListing, ScratchError, ScratchProject};
pub use statistics::PassRate;
