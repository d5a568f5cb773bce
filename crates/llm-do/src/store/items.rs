//! The records of the items of a run: one for each, named by what the item is and not by where it stands in the list, so that
//! a line that is put before others shifts nothing.

use std::fmt;
use std::fs;
use std::io;

use super::layout::{HexDigest, RunId};
use super::run::RunStore;
use crate::journal::file::{JournalError, read_with};
use crate::journal::record::{EndState, JournalContents};
use crate::journal::requests::{RecordedRequest, requests};

/// What the record of an item is called: the digest of the item, and how many of the same stand before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemName(String);

impl ItemName {
    /// That of the item with this digest, which so many of the same stand before.
    pub fn new(digest: &HexDigest, before: u64) -> Self {
        Self(format!("{digest}.{before}"))
    }

    /// Reads the name of a file. What is no name of an item leads nowhere.
    pub fn parse(text: &str) -> Option<Self> {
        let (digest, before) = text.split_once('.')?;
        let name = Self::new(&HexDigest::parse(digest)?, before.parse().ok()?);
        (name.0 == text).then_some(name)
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ItemName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// How far an item has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemState {
    /// It has its answer.
    Answered,
    /// A question of it is open.
    Waits,
    /// It came to no answer, for this reason.
    Failed(String),
    /// Somebody was about to ask, and did not come to an end.
    Begun,
}

impl ItemState {
    /// That of an item whose record says this.
    pub(crate) fn of(contents: &JournalContents) -> Self {
        if contents.turns().iter().any(|(_, is_finished)| *is_finished) {
            return Self::Answered;
        }
        match contents.ended() {
            Some(end) if end.state == EndState::Stopped => Self::Failed(end.reason.clone()),
            Some(_) | None if contents.waiting().next().is_some() => Self::Waits,
            Some(_) | None => Self::Begun,
        }
    }
}

/// What the items of a run have come to.
#[derive(Clone, Debug, Default)]
pub struct ItemTally {
    /// How many have their answer.
    pub answered: u64,
    /// Those that wait for somebody.
    pub waits: Vec<ItemName>,
    /// Those that came to no answer, each with the reason.
    pub failed: Vec<(ItemName, String)>,
    /// How many were begun only.
    pub begun: u64,
    /// The agent that they were given to, if any of them has come so far.
    pub agent: Option<String>,
    /// When something was last recorded of one, in milliseconds since 1970.
    pub at: u64,
    /// What they took.
    pub requests: Vec<RecordedRequest>,
}

impl RunStore {
    /// The names of the items of a run that have a record.
    pub fn item_names(&self, id: &RunId) -> io::Result<Vec<ItemName>> {
        let entries = match fs::read_dir(self.layout().items(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names: Vec<ItemName> =
            entries.flatten().filter_map(|entry| ItemName::parse(entry.file_name().to_str()?)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// What the record of an item says. Another process may be writing it.
    pub fn read_item(&self, id: &RunId, name: &ItemName) -> Result<JournalContents, JournalError> {
        read_with(&self.layout().item(id, name), self.key(), Some(&self.blobs(id)))
    }

    /// What the items of a run have come to. A record that cannot be read counts as begun.
    pub fn tally(&self, id: &RunId) -> io::Result<ItemTally> {
        let mut tally = ItemTally::default();
        for name in self.item_names(id)? {
            let Ok(contents) = self.read_item(id, &name) else {
                tally.begun += 1;
                continue;
            };
            match ItemState::of(&contents) {
                ItemState::Answered => tally.answered += 1,
                ItemState::Waits => tally.waits.push(name),
                ItemState::Failed(reason) => tally.failed.push((name, reason)),
                ItemState::Begun => tally.begun += 1,
            }
            tally.at = tally.at.max(contents.last_at());
            tally.agent = tally.agent.or_else(|| contents.entry().map(str::to_owned));
            tally.requests.extend(requests(&contents));
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_nothing_else_is_a_name() {
        let digest = HexDigest::of(b"an item");
        let name = ItemName::new(&digest, 12);
        assert_eq!(ItemName::parse(name.as_str()), Some(name.clone()));
        let wrong = ["", ".", "..", "../x.0", &format!("{digest}"), &format!("{digest}.+1"), &format!("{digest}.01")];
        for text in wrong.into_iter().chain([format!("{digest}.x").as_str(), "abc.0"]) {
            assert_eq!(ItemName::parse(text), None, "{text}");
        }
    }
}
