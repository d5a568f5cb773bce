//! What can be done about what ended a turn.

use super::RunError;
use crate::message::UnfinishedReason;
use crate::model::ModelError;
use crate::model::protocol::ENDED_EARLY;
use crate::remedy::Remedy;
use crate::tools::Ending;

const LARGER_CONTEXT: &str = "give less input, or choose a model with a larger context";

impl RunError {
    /// What can be done about it, if that is known.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Ended(ending) => of_ending(ending),
            Self::Model { error, .. } => of_model(error),
            Self::NotAskedAgain { limit, .. } => {
                Some(format!("it was not asked again, since the limit `{limit}` is reached").into())
            }
            Self::Unfinished { unfinished, .. } => match unfinished {
                UnfinishedReason::Length => {
                    Some("`max_tokens` of `model_settings` allows longer answers, as far as the model does".into())
                }
                UnfinishedReason::ContextWindow => Some(LARGER_CONTEXT.into()),
                UnfinishedReason::Declined { .. } | UnfinishedReason::Broken { .. } => None,
            },
            Self::ContextFull { .. } => Some(LARGER_CONTEXT.into()),
            Self::Limit { .. } => Some(Remedy::RaiseAgentLimit),
            Self::UnknownPrice { .. } => Some(Remedy::AllowUnknownPrices),
            Self::UnboundedTool { .. } => Some(Remedy::BoundServerTool),
            Self::Input(_)
            | Self::Empty { .. }
            | Self::RepeatedFailure { .. }
            | Self::Output { .. }
            | Self::Code { .. }
            | Self::NoAgent { .. }
            | Self::TooDeep { .. }
            | Self::NoProvider { .. }
            | Self::Incompatible { .. }
            | Self::TooManyCalls(_)
            | Self::Toolset { .. }
            | Self::IdleRule { .. }
            | Self::Function { .. }
            | Self::NotStarted
            | Self::Panicked { .. }
            | Self::Cancelled { .. } => None,
        }
    }
}

fn of_ending(ending: &Ending) -> Option<Remedy> {
    match ending {
        Ending::NeedsApproval(_) => Some(Remedy::AnswerQuestions),
        Ending::Unauthenticated { .. } => Some(Remedy::ChooseProvider),
        Ending::Limit { .. } => Some(Remedy::RaiseRunLimit),
        Ending::Budget { per, .. } => Some(Remedy::RaiseBudget { per: per.clone() }),
        Ending::BudgetUnkept { .. } => Some(Remedy::MendBudget),
        Ending::NeedsLogin { server, project, .. } => {
            Some(Remedy::LogIn { server: server.clone(), project: project.clone() })
        }
        Ending::Refused { .. } | Ending::EndedByPerson | Ending::Journal(_) => None,
    }
}

fn of_model(error: &ModelError) -> Option<Remedy> {
    match error {
        ModelError::Authenticate(_) => Some(Remedy::ChooseProvider),
        ModelError::Unreachable(_) => Some(Remedy::SetConnections),
        // No answer came: a provider on the user's own machine was perhaps not started.
        ModelError::Wait(fault) if fault.status.is_none() && !fault.message.starts_with(ENDED_EARLY) => {
            Some(Remedy::FindProvider)
        }
        ModelError::TimedOut(_) => Some(Remedy::AllowTime),
        ModelError::Wait(_) => Some(Remedy::TryLater),
        ModelError::ContextTooLong(_) => Some(LARGER_CONTEXT.into()),
        ModelError::FixRequest(_) | ModelError::Garbled(_) | ModelError::GiveUp(_) => None,
    }
}
