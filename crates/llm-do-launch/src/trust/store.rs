//! Where trust is kept: a file for each project, outside of it, signed. What was not signed here counts as nothing.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use llm_do::files;
use llm_do::files::FileAccess;
use llm_do::records::{LineMac, SigningPurpose, digest, sign, split};
use llm_do::trust::{TrustDigest, TrustItem};
use serde::{Deserialize, Serialize};

use crate::error::LaunchError;
use crate::state::StateDirectory;

/// A file of ours is far smaller.
const LARGEST_FILE: u64 = 16 * 1024 * 1024;
/// What was agreed to long ago gives way.
const MOST_KEPT: usize = 10_000;

pub struct Store<'a> {
    state: &'a StateDirectory,
}

/// What was agreed to about a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptTrust {
    pub items: BTreeSet<TrustDigest>,
    pub is_place: bool,
    lines: Vec<KeptItem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Extent {
    Exact,
    Place,
}

#[derive(Serialize, Deserialize)]
struct TrustFile {
    root: String,
    trust: Extent,
    items: Vec<KeptItem>,
}

/// Only the digest counts; the words are for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptItem {
    digest: String,
    words: String,
}

impl<'a> Store<'a> {
    pub fn of(state: &'a StateDirectory) -> Self {
        Self { state }
    }

    /// Nothing, unless a file that was signed here says more.
    pub fn kept(&self, root: &Path) -> Result<KeptTrust, LaunchError> {
        let Some((file, root)) = self.file(root) else { return Ok(KeptTrust::default()) };
        let Ok(text) = read(&file) else { return Ok(KeptTrust::default()) };
        let Some(key) = self.state.key()? else { return Ok(KeptTrust::default()) };
        let signed = split(text.trim_end().as_bytes()).filter(|(signed, mac)| {
            key.next(SigningPurpose::Trust, LineMac::default(), signed).to_string().as_bytes() == *mac
        });
        let written = signed.and_then(|_| serde_json::from_str::<TrustFile>(text.trim_end()).ok());
        Ok(match written {
            Some(written) if written.root == root => KeptTrust {
                items: written.items.iter().filter_map(|item| TrustDigest::parse(&item.digest)).collect(),
                is_place: written.trust == Extent::Place,
                lines: written.items,
            },
            Some(_) | None => KeptTrust::default(),
        })
    }

    /// Adds to what was agreed to. An error is why it will be asked for again.
    pub fn keep(&self, root: &Path, before: &KeptTrust, items: &[TrustItem], is_place: bool) -> Result<(), String> {
        let unsigned = "there is no key to sign it with";
        let (file, root) = self.file(root).ok_or("there is no directory for it: `HOME` is not set")?;
        let key = self.state.key().map_err(|error| error.fact())?.ok_or(unsigned)?;
        let new = items.iter().filter(|item| !before.items.contains(&item.digest));
        let words = |item: &TrustItem| format!("{} {} ({})", item.class.words(), item.words, item.source);
        let new = new.map(|item| KeptItem { digest: item.digest.to_string(), words: words(item) });
        let mut items: Vec<KeptItem> = before.lines.iter().cloned().chain(new).collect();
        items.drain(..items.len().saturating_sub(MOST_KEPT));
        let trust = if is_place || before.is_place { Extent::Place } else { Extent::Exact };
        let mut text = serde_json::to_string(&TrustFile { root, trust, items }).map_err(|error| error.to_string())?;
        // What is signed stands before the mac, which becomes the last member.
        let mac = key.next(SigningPurpose::Trust, LineMac::default(), &text.as_bytes()[..text.len() - 1]);
        sign(&mut text, mac);
        write(&file, &text).map_err(|error| error.to_string())
    }

    /// The file of a project, and how it names the project. Names need not be UTF-8, and two that are not must not look
    /// alike.
    fn file(&self, root: &Path) -> Option<(PathBuf, String)> {
        let root = root.canonicalize().ok()?.as_os_str().as_encoded_bytes().escape_ascii().to_string();
        let name = digest([root.as_str()]);
        Some((self.state.directory()?.join("trust").join(format!("{}.json", &name[..32])), root))
    }
}

fn read(file: &Path) -> io::Result<String> {
    let metadata = file.symlink_metadata()?;
    if !metadata.is_file() || metadata.len() > LARGEST_FILE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    std::fs::read_to_string(file)
}

/// Whole or not at all.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    files::replace_path(file, format!("{text}\n").as_bytes(), FileAccess::Private)
}

/// Whether only the user and root can change what a directory contains, or put another one in its place.
pub fn is_private(root: &Path) -> bool {
    let Ok(root) = root.canonicalize() else { return false };
    let user = rustix::process::geteuid().as_raw();
    root.ancestors().all(|directory| {
        directory.symlink_metadata().is_ok_and(|metadata| {
            metadata.is_dir() && [user, 0].contains(&metadata.uid()) && metadata.mode() & 0o022 == 0
        })
    })
}
