//! Which of several models is asked: the first, unless its provider has trouble or had some a moment ago.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::ModelError;
use super::name::ModelName;

/// So long a model is skipped after its provider had trouble.
const REST: Duration = Duration::from_mins(1);

/// The models whose providers had trouble, and when. Clones share the list: all agents of a process know what one of them
/// has met.
#[derive(Clone, Debug, Default)]
pub struct FailedModels(Arc<Mutex<BTreeMap<ModelName, Instant>>>);

impl FailedModels {
    pub(crate) fn note(&self, model: &ModelName, at: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(model.clone(), at);
    }

    /// Whether the model is to be skipped at this time.
    pub(crate) fn rests(&self, model: &ModelName, now: Instant) -> bool {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get(model).is_some_and(|at| now.saturating_duration_since(*at) < REST)
    }
}

/// Whether another model may do what this one could not: the trouble is that of its provider, and the request is good.
pub(crate) fn is_trouble_of_provider(error: &ModelError) -> bool {
    match error {
        ModelError::Wait(_) | ModelError::Unreachable(_) | ModelError::TimedOut(_) => true,
        ModelError::FixRequest(_)
        | ModelError::Authenticate(_)
        | ModelError::ContextTooLong(_)
        | ModelError::Garbled(_)
        | ModelError::GiveUp(_) => false,
    }
}

/// The model that is asked next, by its number, of those that were not asked for this request. One that rests is skipped,
/// unless all of them do: then the request would not be sent at all.
pub(crate) fn next(rests: &[bool], tried: &[bool]) -> Option<usize> {
    let all_rest = tried.iter().zip(rests).all(|(tried, rests)| *tried || *rests) && !tried.contains(&true);
    let is_next = |(tried, rests): (&bool, &bool)| !tried && (all_rest || !rests);
    tried.iter().zip(rests).position(is_next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Fault;

    #[test]
    fn the_first_that_neither_failed_nor_rests_is_next() {
        let cases: [(&[u8], &[u8], Option<usize>); 8] = [
            (&[0, 0], &[0, 0], Some(0)),
            (&[1, 0], &[0, 0], Some(1)),
            (&[1, 0], &[1, 0], Some(1)),
            (&[1, 1], &[1, 1], None),
            (&[1, 1], &[0, 0], Some(0)),
            (&[0, 1, 0], &[1, 0, 0], Some(2)),
            (&[1, 1, 1], &[0, 1, 0], None),
            (&[], &[], None),
        ];
        for (rests, tried, expected) in cases {
            let flags = |bits: &[u8]| bits.iter().map(|bit| *bit == 1).collect::<Vec<_>>();
            assert_eq!(next(&flags(rests), &flags(tried)), expected, "{rests:?} {tried:?}");
        }
    }

    #[test]
    fn what_has_failed_rests_for_a_minute_wherever_it_is_asked() {
        let (failed, name, now) = (FailedModels::default(), ModelName::parse("a:b").unwrap(), Instant::now());
        let elsewhere = failed.clone();
        assert!(!elsewhere.rests(&name, now));
        failed.note(&name, now);
        let after = |seconds| elsewhere.rests(&name, now + Duration::from_secs(seconds));
        assert_eq!([after(0), after(59), after(60)], [true, true, false]);
    }

    #[test]
    fn only_trouble_of_the_provider_is_a_reason() {
        let fault = Fault::default;
        for error in [ModelError::Wait(fault()), ModelError::Unreachable(fault()), ModelError::TimedOut(fault())] {
            assert!(is_trouble_of_provider(&error), "{error}");
        }
        let others = [
            ModelError::FixRequest(fault()),
            ModelError::Authenticate(fault()),
            ModelError::ContextTooLong(fault()),
            ModelError::Garbled(fault()),
            ModelError::GiveUp(fault()),
        ];
        assert!(!others.iter().any(is_trouble_of_provider));
    }
}
