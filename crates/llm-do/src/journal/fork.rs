//! A run that begins with what another one has recorded, up to a step: a new id, a new file, the same records. Pure.

use super::StepKind;
use super::file::NewRun;
use super::record::{
    ForkOrigin, JournalContents, JournalEntry, JournalLine, LineState, RunIdentity, StepProgress, turn_number,
};

/// Why a run cannot be forked there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// The record has no step at this key.
    #[error("nothing is recorded at `{0}`")]
    Unknown(String),
}

/// Where a fork begins to run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForkPoint {
    /// With this turn.
    Turn(u64),
    /// With this request of the turn.
    Request(u64, u64),
}

/// What a fork of the run begins with: everything before the step at this key, in the order of the conversation. Calls are
/// taken over whole or not at all: a key among the calls of a reply means that reply. Questions are not taken over, and
/// neither is what was lost or in doubt. The identity is that of the new run; where it comes from is added here. The header
/// is the old one, in which whoever forks changes what is no longer true.
pub fn forked(contents: &JournalContents, at: &str, identity: RunIdentity) -> Result<NewRun, ForkError> {
    let unknown = || ForkError::Unknown(at.to_owned());
    let (entry, point) = point(at).ok_or_else(unknown)?;
    let is_known = contents.record(at).is_some() || contents.beneath(at).next().is_some();
    // A conversation may be forked behind its last turn, too.
    let next = contents.turns().last().map_or(0, |(turn, _)| turn + 1);
    let is_next = contents.entry() == Some(entry) && at == format!("{entry}/t{next}");
    if !is_known && !is_next {
        return Err(unknown());
    }
    let key = match point {
        ForkPoint::Turn(turn) => format!("{entry}/t{turn}"),
        ForkPoint::Request(turn, request) => format!("{entry}/t{turn}/m{request}"),
    };
    let is_copied =
        |(key, record): &(&str, &JournalEntry)| record.kind != StepKind::Ask && is_before(contents, entry, point, key);
    let mut copied: Vec<(usize, JournalLine)> = contents
        .records()
        .filter(is_copied)
        .filter_map(|(key, record)| Some((record.line, line(key, record)?)))
        .collect();
    copied.sort_by_key(|(number, _)| *number);
    let forked = contents.identity.id.clone().map(|run| ForkOrigin { run, at: key });
    let copied = copied.into_iter().map(|(_, line)| line).collect();
    let (header, parts) = (contents.header.clone(), contents.parts.clone());
    Ok(NewRun { identity: RunIdentity { forked, ..identity }, header, copied, parts })
}

/// The entry of a key, and where a fork at this key begins.
fn point(key: &str) -> Option<(&str, ForkPoint)> {
    let entry = key.split('/').next().filter(|entry| !entry.is_empty())?;
    let Some(turn) = turn_number(entry, key) else { return Some((entry, ForkPoint::Turn(0))) };
    let request = request_number(entry, key);
    Some((entry, request.map_or(ForkPoint::Turn(turn), |request| ForkPoint::Request(turn, request))))
}

/// The number of the request of the entry's turn that a key stands at or beneath.
fn request_number(entry: &str, key: &str) -> Option<u64> {
    key.strip_prefix(entry)?.split('/').nth(2)?.strip_prefix('m')?.parse().ok()
}

/// Whether a step came before the point.
fn is_before(contents: &JournalContents, entry: &str, point: ForkPoint, key: &str) -> bool {
    if key.strip_prefix(entry).is_none_or(|rest| !rest.starts_with('/')) {
        return false;
    }
    // What the call was opened with.
    let Some(turn) = turn_number(entry, key) else { return true };
    let (first, requests) = match point {
        ForkPoint::Turn(first) => (first, None),
        ForkPoint::Request(first, request) => (first, Some(request)),
    };
    if turn != first {
        // One that was given up is nothing to go on with.
        return turn < first && contents.done(&format!("{entry}/t{turn}")).is_some();
    }
    let is_input = || key.strip_prefix(entry).and_then(|rest| rest.split('/').nth(2)) == Some("input");
    requests.is_some_and(|requests| request_number(entry, key).map_or_else(is_input, |request| request < requests))
}

/// The line of a step that is done.
fn line(key: &str, record: &JournalEntry) -> Option<JournalLine> {
    let StepProgress::Done(result) = &record.known else { return None };
    let JournalEntry { kind, request, at, by, parts, sent, judged, .. } = record.clone();
    let (k, res) = (key.to_owned(), Some(result.clone()));
    let (state, blob) = (LineState::Done, None);
    Some(JournalLine { k, kind, state, req: request, res, at, by, parts, sent, judged, blob })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_means_a_turn_or_a_request_of_the_entry() {
        let cases = [
            ("main", Some(ForkPoint::Turn(0))),
            ("main/open/x", Some(ForkPoint::Turn(0))),
            ("main/t3", Some(ForkPoint::Turn(3))),
            ("main/t3/input", Some(ForkPoint::Turn(3))),
            ("main/t3/x0123.0/c0", Some(ForkPoint::Turn(3))),
            ("main/t3/m2", Some(ForkPoint::Request(3, 2))),
            ("main/t3/m2/c1/t0/m4", Some(ForkPoint::Request(3, 2))),
            ("", None),
            ("/t0", None),
        ];
        for (key, expected) in cases {
            assert_eq!(point(key), expected.map(|point| ("main", point)), "{key}");
        }
    }
}
