//! A run in one file, for another machine: the journal byte for byte, then a line for each of its large values.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::files;
use super::layout::{HexDigest, RunId};
use super::run::RunStore;
use super::summary::{JournalUse, ProjectLookup, RunSummary};
use crate::journal::file::{Durability, JournalError, read_foreign_with};
use crate::journal::record::RunIdentity;

/// Why a bundle was not put into a store. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// There is such a run already.
    #[error("the run `{0}` is here already")]
    Known(RunId),
    /// It is not whole, or no bundle at all.
    #[error("{} is no whole bundle of a run: {reason}", .file.display())]
    Broken {
        /// The bundle.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It cannot be read, or the run cannot be kept.
    #[error("the run cannot be kept: {0}")]
    Io(#[from] io::Error),
}

/// A line behind those of the journal.
#[derive(Serialize, Deserialize)]
struct BundledBlob {
    blob: HexDigest,
    base64: String,
}

/// How such a line begins.
const BLOB: &[u8] = b"{\"blob\":";
/// What is longer was not made by us.
const LONGEST: u64 = 4 << 30;

impl RunStore {
    /// Writes a run piece by piece, as lines that another machine can go on with.
    pub fn bundle(&self, id: &RunId, write: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let journal = files::read_whole(&self.layout().journal(id), LONGEST)?;
        // What another process is still writing is not there yet.
        write(&journal[..crate::journal::record::committed(&journal)])?;
        let blobs = self.blobs(id);
        for blob in blobs.digests()? {
            let base64 = BASE64.encode(blobs.get(&blob)?);
            let blob = HexDigest::parse(&blob).ok_or(io::ErrorKind::InvalidData)?;
            let mut line = serde_json::to_vec(&BundledBlob { blob, base64 })?;
            line.push(b'\n');
            write(&line)?;
        }
        Ok(())
    }

    /// Puts a run of another machine here, under its id. Whose it is, is found out by whoever goes on with it.
    pub fn unbundle(&self, file: &Path, project_of: ProjectLookup<'_>) -> Result<RunId, BundleError> {
        let broken = |reason: String| BundleError::Broken { file: file.to_owned(), reason };
        let bytes = files::read_whole(file, LONGEST).map_err(|error| broken(error.to_string()))?;
        let (journal, blobs) = parts(&bytes).map_err(broken)?;
        let id = id_of(journal).ok_or_else(|| broken("its first line names no run".to_owned()))?;
        match self.create_as(&id) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(BundleError::Known(id)),
            created => created?,
        }
        let put = self.put(&id, journal, &blobs, project_of);
        if put.is_err() {
            let _ = fs::remove_dir_all(self.layout().run(&id));
        }
        put.map(|()| id).map_err(|reason| broken(reason.to_string()))
    }

    /// The journal comes last: a run without one is none.
    fn put(
        &self,
        id: &RunId,
        journal: &[u8],
        blobs: &BundledValues,
        project_of: ProjectLookup<'_>,
    ) -> Result<(), JournalError> {
        let path = self.layout().journal(id);
        let failed = |error| JournalError::Io { path: path.clone(), error };
        for (digest, value) in blobs {
            self.blobs(id).keep(digest.as_str(), value, Durability::Written).map_err(failed)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        file.write_all(journal).map_err(failed)?;
        let contents = match self.read_journal(id) {
            // Of another machine: whoever goes on with it has to agree to that.
            Err(JournalError::Foreign { .. }) => read_foreign_with(&path, Some(&self.blobs(id))),
            read => read,
        }?;
        let line = RunSummary::of(&contents, JournalUse::Free).line(*id, &project_of(&contents));
        self.index().append(&line).map_err(failed)
    }
}

/// Large values by their digests, each compared with its own.
type BundledValues = BTreeMap<HexDigest, Vec<u8>>;

/// The lines of the journal, and the values behind them.
fn parts(bytes: &[u8]) -> Result<(&[u8], BundledValues), String> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let journal: usize = lines.take_while(|line| !line.starts_with(BLOB)).map(<[u8]>::len).sum();
    if !bytes.ends_with(b"\n") {
        return Err("its last line is cut off".to_owned());
    }
    let mut blobs = BundledValues::new();
    for line in bytes[journal..].split_inclusive(|byte| *byte == b'\n') {
        let BundledBlob { blob, base64 } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let value = BASE64.decode(base64).map_err(|error| error.to_string())?;
        if HexDigest::of(&value) != blob {
            return Err(format!("the value {blob} was changed"));
        }
        blobs.insert(blob, value);
    }
    Ok((&bytes[..journal], blobs))
}

fn id_of(journal: &[u8]) -> Option<RunId> {
    #[derive(Deserialize)]
    struct HeaderLine {
        run: RunIdentity,
    }
    let line = journal.split(|byte| *byte == b'\n').next()?;
    RunId::parse(&serde_json::from_slice::<HeaderLine>(line).ok()?.run.id?)
}
