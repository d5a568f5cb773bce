//! The symbolic side: what a call may do and who has to agree.

pub mod approval;
pub mod source;

use serde::Serialize;

use approval::DeclaredVerdict;

/// What a tool can do in the worst case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    ReadsFiles,
    WritesFiles,
    RunsCommands,
    ReachesNetwork,
    SpendsMoney,
    CreatesAgents,
}

impl Capability {
    pub const ALL: [Self; 6] = [
        Self::ReadsFiles,
        Self::WritesFiles,
        Self::RunsCommands,
        Self::ReachesNetwork,
        Self::SpendsMoney,
        Self::CreatesAgents,
    ];

    /// Code that runs with the user's rights can do all of this.
    pub const OF_CODE: &[Self] = &[Self::ReadsFiles, Self::WritesFiles, Self::RunsCommands, Self::ReachesNetwork];

    pub fn words(self) -> &'static str {
        match self {
            Self::ReadsFiles => "reads files",
            Self::WritesFiles => "writes files",
            Self::RunsCommands => "runs commands",
            Self::ReachesNetwork => "reaches the network",
            Self::SpendsMoney => "spends money",
            Self::CreatesAgents => "creates agents",
        }
    }
}

/// A tool as linking knows it, before any instance exists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeclaredTool {
    pub name: String,
    pub verdict: DeclaredVerdict,
    pub capabilities: Vec<Capability>,
}
