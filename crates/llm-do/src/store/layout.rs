//! Names: what runs are called, and where everything about them lies. Pure.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::items::ItemName;
use crate::journal::digest::{digest, hex};
use crate::journal::run_id;

/// What a run is called: 16 digits of Crockford's base 32 in lower case, which sort by the time the run was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId([u8; run_id::LENGTH]);

impl RunId {
    /// The id of a run that was made in this millisecond since 1970, told from others of the same one by 32 bits.
    pub fn new(milliseconds: u64, random: u32) -> Self {
        Self(run_id::written(milliseconds, random))
    }

    /// An id of this moment. Only making a directory of its name shows that no other run has it.
    pub(crate) fn of_now() -> Self {
        Self::new(now(), fastrand::u32(..))
    }

    /// Reads a whole id, as it is written.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_digits(text.as_bytes())
    }

    /// Reads a whole id out of bytes, which need not be text.
    pub(crate) fn from_digits(bytes: &[u8]) -> Option<Self> {
        let digits = <[u8; run_id::LENGTH]>::try_from(bytes).ok()?;
        digits.iter().copied().all(run_id::is_digit).then_some(Self(digits))
    }

    /// When it was made, in milliseconds since 1970.
    pub(crate) fn milliseconds(&self) -> u64 {
        run_id::milliseconds(&self.0)
    }

    /// The digits as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the digits of an id are ASCII")
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(IdVisitor)
    }
}

/// Lists are full of ids: none of them is copied to be read.
struct IdVisitor;

impl serde::de::Visitor<'_> for IdVisitor {
    type Value = RunId;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the id of a run")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RunId, E> {
        RunId::parse(text).ok_or_else(|| E::custom("it is no id of a run"))
    }
}

/// The beginning of an id as a person types it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunIdPrefix(String);

/// Why a typed word is not the beginning of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// It has characters that no id has, or more of them than an id.
    #[error("it is no id of a run")]
    NotAnId,
    /// It could be the beginning of an id, but people would mistake so few characters.
    #[error("the beginning of an id has at least {} characters", RunIdPrefix::SHORTEST)]
    TooShort,
}

impl RunIdPrefix {
    /// So many characters are the least that is taken for the beginning of an id.
    pub(crate) const SHORTEST: usize = 6;

    /// Reads what a person typed; capital letters mean the same as small ones.
    pub fn parse(typed: &str) -> Result<Self, PrefixError> {
        let prefix = typed.to_ascii_lowercase();
        match prefix.len() {
            0 => Err(PrefixError::NotAnId),
            length if length > run_id::LENGTH || !prefix.bytes().all(run_id::is_digit) => Err(PrefixError::NotAnId),
            length if length < Self::SHORTEST => Err(PrefixError::TooShort),
            _ => Ok(Self(prefix)),
        }
    }

    /// Whether an id begins like this.
    pub(crate) fn begins(&self, id: &RunId) -> bool {
        id.as_str().starts_with(&self.0)
    }

    /// The id, if all of it was typed.
    pub(crate) fn whole(&self) -> Option<RunId> {
        RunId::parse(&self.0)
    }
}

/// A SHA-256 as it names a file: 64 hexadecimal digits in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HexDigest(String);

impl HexDigest {
    /// That of these bytes.
    pub fn of(content: &[u8]) -> Self {
        Self(hex(&Sha256::digest(content)))
    }

    /// Reads one that was written down. What is no digest names no file.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 64 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// The digits as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HexDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for HexDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("it is no digest"))
    }
}

/// Where the files of a state directory lie. Nothing of it need exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLayout {
    state: PathBuf,
}

impl StoreLayout {
    /// That of this state directory.
    pub fn new(state: impl Into<PathBuf>) -> Self {
        Self { state: state.into() }
    }

    /// The state directory itself.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// The file that says that the user was told where runs are kept.
    pub(crate) fn told(&self) -> PathBuf {
        self.state.join("told")
    }

    /// The directory of what runs cost, with one file a month, such as `2026-11`.
    pub(crate) fn costs(&self) -> PathBuf {
        self.state.join("costs")
    }

    /// The directory of a budget: its lock, a ledger for each period, and who holds reservations in them.
    pub(crate) fn budget(&self, name: &str) -> PathBuf {
        self.state.join("budgets").join(name)
    }

    /// The directory of all runs.
    pub fn runs(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// The list of all runs.
    pub(crate) fn index(&self) -> PathBuf {
        self.in_runs("index")
    }

    /// The file that a process locks while it changes the list, which itself is replaced now and then.
    pub(crate) fn index_lock(&self) -> PathBuf {
        self.in_runs("index.lock")
    }

    /// The file whose time says when old runs were last removed, locked by the process that removes them.
    pub(crate) fn sweep(&self) -> PathBuf {
        self.in_runs("sweep")
    }

    /// The directory into which a run is moved to be removed: it is there as a whole, or gone.
    pub(crate) fn gone(&self) -> PathBuf {
        self.in_runs("gone")
    }

    /// The directory of one run.
    pub fn run(&self, id: &RunId) -> PathBuf {
        self.in_runs(id.as_str())
    }

    /// The journal of a run, locked by the process that runs it.
    pub fn journal(&self, id: &RunId) -> PathBuf {
        self.in_run(id, "journal")
    }

    /// The directory of a run's large values.
    pub fn blobs(&self, id: &RunId) -> PathBuf {
        self.in_run(id, "blobs")
    }

    /// The directory of the records of a run's items.
    pub fn items(&self, id: &RunId) -> PathBuf {
        self.in_run(id, "items")
    }

    /// The record of one item.
    pub fn item(&self, id: &RunId, name: &ItemName) -> PathBuf {
        self.items(id).join(name.as_str())
    }

    /// The directory of the answers to a run's questions.
    pub fn answers(&self, id: &RunId) -> PathBuf {
        self.in_run(id, "answers")
    }

    /// The file whose being there says that the run shall end.
    pub(crate) fn cancel(&self, id: &RunId) -> PathBuf {
        self.in_run(id, "cancel")
    }

    /// What a run holds of its own claim to a `--once` key: the file in [`StoreLayout::once`] is another name of it.
    pub(crate) fn claim(&self, id: &RunId) -> PathBuf {
        self.in_run(id, "once")
    }

    /// The directory of `--once` keys.
    pub(crate) fn once_keys(&self) -> PathBuf {
        self.state.join("once")
    }

    /// The file that holds the id of the run for this key, as [`once_digest`] names it.
    pub(crate) fn once(&self, digest: &HexDigest) -> PathBuf {
        self.once_keys().join(digest.as_str())
    }

    fn in_runs(&self, name: &str) -> PathBuf {
        let mut path = PathBuf::with_capacity(self.state.as_os_str().len() + 32);
        path.extend([&self.state, Path::new("runs"), Path::new(name)]);
        path
    }

    fn in_run(&self, id: &RunId, name: &str) -> PathBuf {
        self.run(id).join(name)
    }
}

/// What a `--once` key of a project is called. The caller gives the canonical root of the project, so that all ways to it
/// are the same project.
pub(crate) fn once_digest(project: &Path, key: &str) -> HexDigest {
    // Names need not be UTF-8, and two that are not must not look alike.
    let project = project.as_os_str().as_encoded_bytes().escape_ascii().to_string();
    HexDigest(digest([project.as_str(), key]))
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::*;

    use super::*;

    const ID: &str = "06gy3k9x7wqe4t2m";

    #[test]
    fn a_prefix_is_six_to_sixteen_digits() {
        for (typed, expected) in [
            ("", Some(PrefixError::NotAnId)),
            ("0", Some(PrefixError::TooShort)),
            ("06gy3", Some(PrefixError::TooShort)),
            ("06gyo", Some(PrefixError::NotAnId)),
            ("06gy3k", None),
            ("06GY3K", None),
            (ID, None),
            ("06gy3k9x7wqe4t2m0", Some(PrefixError::NotAnId)),
            ("support", Some(PrefixError::NotAnId)),
            ("./06gy3k", Some(PrefixError::NotAnId)),
            ("06gy3k\n", Some(PrefixError::NotAnId)),
            ("ööööööö", Some(PrefixError::NotAnId)),
        ] {
            let prefix = RunIdPrefix::parse(typed);
            assert_eq!(prefix.as_ref().err().copied(), expected, "{typed}");
            assert!(prefix.is_err() || prefix.unwrap().begins(&RunId::parse(ID).unwrap()), "{typed}");
        }
        assert_eq!(RunIdPrefix::parse(&ID.to_uppercase()).unwrap().whole(), RunId::parse(ID));
        assert_eq!(RunIdPrefix::parse(&ID[..15]).unwrap().whole(), None);
    }

    #[test]
    fn the_tree_is_the_one_that_is_documented() {
        let (layout, id) = (StoreLayout::new("/s"), RunId::parse(ID).unwrap());
        let digest = HexDigest::of(b"");
        for (path, expected) in [
            (layout.told(), "/s/told".to_owned()),
            (layout.costs(), "/s/costs".to_owned()),
            (layout.budget("everyday"), "/s/budgets/everyday".to_owned()),
            (layout.index(), "/s/runs/index".to_owned()),
            (layout.index_lock(), "/s/runs/index.lock".to_owned()),
            (layout.journal(&id), format!("/s/runs/{ID}/journal")),
            (layout.blobs(&id), format!("/s/runs/{ID}/blobs")),
            (layout.items(&id), format!("/s/runs/{ID}/items")),
            (layout.item(&id, &ItemName::new(&digest, 3)), format!("/s/runs/{ID}/items/{digest}.3")),
            (layout.answers(&id), format!("/s/runs/{ID}/answers")),
            (layout.cancel(&id), format!("/s/runs/{ID}/cancel")),
            (layout.once(&digest), format!("/s/once/{digest}")),
        ] {
            assert_eq!(path, Path::new(&expected));
        }
        assert_eq!(digest.as_str(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn a_key_belongs_to_one_project_whatever_its_bytes() {
        let paths = [&b"/a"[..], b"/a\xff", b"/a\xfe", b"/a\\xff", b"/ab"];
        let digests: Vec<HexDigest> =
            paths.iter().map(|path| once_digest(Path::new(OsStr::from_bytes(path)), "k")).collect();
        for (index, one) in digests.iter().enumerate() {
            assert!(!digests[..index].contains(one) && HexDigest::parse(one.as_str()).is_some());
        }
        assert_ne!(once_digest(Path::new("/a"), "bc"), once_digest(Path::new("/ab"), "c"));
    }

    proptest! {
        #[test]
        fn an_id_is_its_time_and_its_text(milliseconds in 0..1_u64 << 48, random: u32, other in 0..1_u64 << 48) {
            let id = RunId::new(milliseconds, random);
            prop_assert_eq!(id.milliseconds(), milliseconds);
            prop_assert_eq!(RunId::parse(&id.to_string()), Some(id));
            prop_assert_eq!(serde_json::from_str::<RunId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
            let later = RunId::new(other, random);
            prop_assert_eq!(id.cmp(&later), milliseconds.cmp(&other));
        }

        #[test]
        fn no_text_that_is_read_leads_to_another_place(text in "\\PC{0,80}") {
            for name in [HexDigest::parse(&text).map(|digest| digest.to_string()), RunId::parse(&text).map(|id| id.to_string())] {
                prop_assert!(name.is_none_or(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric())));
            }
            let _ = RunIdPrefix::parse(&text);
        }
    }
}
