//! Records that were read a moment ago: whoever looks at a run asks for it again and again, and it is read anew only once it has
//! grown.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use llm_do::records::{JournalContents, JournalError};
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::store::summary::{JournalUse, RunSummary};
use llm_do_launch::kept_runs::project_of;

/// So many runs are looked at by turns.
const MOST: usize = 4;

/// The last records that were read.
#[derive(Default)]
pub struct RecordCache(Mutex<VecDeque<CachedRecord>>);

struct CachedRecord {
    id: RunId,
    stamp: FileStamp,
    contents: Arc<JournalContents>,
}

/// What changes when something is written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    length: u64,
    changed: SystemTime,
}

impl RecordCache {
    /// What the record of a run says now.
    pub fn read(&self, store: &RunStore, id: &RunId) -> Result<Arc<JournalContents>, JournalError> {
        // Asked before it is read: what is written meanwhile is read the next time.
        let stamp = FileStamp::of(store, id);
        if let Some(contents) = stamp.and_then(|stamp| self.known(id, stamp)) {
            return Ok(contents);
        }
        let contents = Arc::new(store.read_journal(id)?);
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.retain(|record| record.id != *id);
        if let Some(stamp) = stamp {
            cached.push_back(CachedRecord { id: *id, stamp, contents: Arc::clone(&contents) });
        }
        if cached.len() > MOST {
            cached.pop_front();
        }
        Ok(contents)
    }

    fn known(&self, id: &RunId, stamp: FileStamp) -> Option<Arc<JournalContents>> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cached.iter().find(|record| record.id == *id && record.stamp == stamp);
        found.map(|record| Arc::clone(&record.contents))
    }
}

impl FileStamp {
    fn of(store: &RunStore, id: &RunId) -> Option<Self> {
        let file = fs::metadata(store.layout().journal(id)).ok()?;
        Some(Self { length: file.len(), changed: file.modified().ok()? })
    }
}

/// What runs have come to that go on: the list hears of them only when they end. A record that takes long to read is read anew the
/// more seldom.
#[derive(Default)]
pub struct LiveSummaries(Mutex<BTreeMap<RunId, LiveSummary>>);

struct LiveSummary {
    stamp: Option<FileStamp>,
    read_at: Instant,
    took: Duration,
    so_far: Arc<RunSoFar>,
}

/// A run that goes on, as its record tells of it.
pub struct RunSoFar {
    pub project: String,
    pub summary: RunSummary,
}

/// So many are remembered.
const MOST_SUMMARIES: usize = 64;
/// Reading takes at most so much of the time.
const SHARE: u32 = 20;

impl LiveSummaries {
    /// Nothing if there is no record yet, or none that can be read.
    pub fn read(&self, store: &RunStore, id: &RunId) -> Option<Arc<RunSoFar>> {
        let stamp = FileStamp::of(store, id);
        let begun = Instant::now();
        if let Some(known) = self.all().get(id)
            && (known.is_of(stamp) || begun.duration_since(known.read_at) < known.took * SHARE)
        {
            return Some(Arc::clone(&known.so_far));
        }
        let contents = store.read_journal(id).ok()?;
        let summary = store.summary(id, &contents, JournalUse::Locked);
        let so_far = Arc::new(RunSoFar { project: project_of(&contents), summary });
        let took = begun.elapsed();
        let mut all = self.all();
        all.insert(*id, LiveSummary { stamp, read_at: Instant::now(), took, so_far: Arc::clone(&so_far) });
        if all.len() > MOST_SUMMARIES
            && let Some(oldest) = all.iter().min_by_key(|(_, known)| known.read_at).map(|(id, _)| *id)
        {
            all.remove(&oldest);
        }
        Some(so_far)
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<RunId, LiveSummary>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveSummary {
    /// Whether nothing was written since. Items of a run over a list have records of their own.
    fn is_of(&self, stamp: Option<FileStamp>) -> bool {
        stamp.is_some() && self.stamp == stamp && self.so_far.summary.kind != llm_do::records::RunKind::Map
    }
}
