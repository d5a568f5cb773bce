//! Why something was not begun.

use llm_do::Report;
use llm_do::remedy::Remedy;
use llm_do::store::layout::RunId;
use llm_do::trust::{TrustDigest, TrustItem};

/// A fact, what to do about it, and of which kind it is. The front end words it and picks the exit code.
#[derive(Debug)]
pub enum LaunchError {
    /// Mistakes in a project's files.
    Project(Report),
    /// The user has not agreed to what the project asks for.
    Untrusted(Box<UntrustedProject>),
    /// Another run of the project has the key of this one: it is the one to attach to.
    Taken(RunId),
    Failed {
        fact: String,
        /// What can be done about it; the front end words it.
        remedy: Option<Remedy>,
        kind: FailureKind,
    },
}

/// What a project asks for without the user's consent.
#[derive(Debug)]
pub struct UntrustedProject {
    pub list: TrustList,
    pub why: UntrustedReason,
}

/// What a person reads before they agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustList {
    /// What the user has not agreed to yet.
    pub items: Vec<TrustItem>,
    /// Others were agreed to before.
    pub is_rest: bool,
    /// Of all that the project asks for.
    pub digest: TrustDigest,
    /// Whether the place may be trusted whatever it will contain.
    pub offers_place: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntrustedReason {
    /// There was no person who could agree.
    Unattended,
    /// A person said no.
    Refused,
    /// The consent is for another list.
    OtherList,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    Usage,
    Failed,
    Provider,
    /// An approval is missing, or was refused.
    Approval,
}

impl LaunchError {
    pub fn usage(fact: impl Into<String>) -> Self {
        Self::of(FailureKind::Usage, fact)
    }

    pub fn failed(fact: impl Into<String>) -> Self {
        Self::of(FailureKind::Failed, fact)
    }

    pub fn provider(fact: impl Into<String>) -> Self {
        Self::of(FailureKind::Provider, fact)
    }

    pub fn refused(fact: impl Into<String>) -> Self {
        Self::of(FailureKind::Approval, fact)
    }

    fn of(kind: FailureKind, fact: impl Into<String>) -> Self {
        Self::Failed { fact: fact.into(), remedy: None, kind }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn hint(self, remedy: impl Into<Remedy>) -> Self {
        match self {
            Self::Failed { fact, kind, .. } => Self::Failed { fact, remedy: Some(remedy.into()), kind },
            other @ (Self::Project(_) | Self::Untrusted(_) | Self::Taken(_)) => other,
        }
    }

    /// What can be done about it, where that is one thing.
    pub fn remedy(&self) -> Option<&Remedy> {
        match self {
            Self::Failed { remedy, .. } => remedy.as_ref(),
            Self::Project(_) | Self::Untrusted(_) | Self::Taken(_) => None,
        }
    }

    /// The fact alone.
    pub fn fact(&self) -> String {
        match self {
            Self::Project(report) => report.to_string(),
            Self::Untrusted(_) => "the project is not trusted".to_owned(),
            Self::Taken(id) => format!("the run `{id}` has this key"),
            Self::Failed { fact, .. } => fact.clone(),
        }
    }
}
