//! Which runs are removed when they are old or too many, and when that is done. A run that runs or waits never is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::files;
use super::index::RunState;
use super::layout::RunId;
use super::run::{Removal, RemoveError, RunStore};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionRule {
    /// A finished run is removed so many days after its end.
    pub days: u64,
    /// Finished runs are removed, the oldest first, until all runs together have no more than this.
    pub megabytes: u64,
}

/// What is to be known of a run to decide about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRun {
    /// Which one.
    pub id: RunId,
    /// How far it has come.
    pub state: RunState,
    /// How much its files take.
    pub bytes: u64,
    /// When it came into its state, in milliseconds since 1970.
    pub ended: u64,
}

const DAY: u64 = 86_400_000;

/// Which of these runs are removed, the oldest first. Further runs, which are newer, take so many bytes besides.
pub(crate) fn removable(rule: RetentionRule, now: u64, runs: &[KeptRun], further_bytes: u64) -> Vec<RunId> {
    let mut finished: Vec<&KeptRun> = runs.iter().filter(|run| run.state.is_finished()).collect();
    finished.sort_by_key(|run| (run.ended, run.id));
    let most = rule.megabytes.saturating_mul(1 << 20);
    let mut bytes = runs.iter().fold(further_bytes, |sum, run| sum.saturating_add(run.bytes));
    let oldest = now.saturating_sub(rule.days.saturating_mul(DAY));
    let chosen = finished.into_iter().take_while(|run| {
        let is_beyond = run.ended < oldest || bytes > most;
        bytes = bytes.saturating_sub(run.bytes);
        is_beyond
    });
    chosen.map(|run| run.id).collect()
}

/// So long removing may take at the end of a run.
pub const LONGEST_SWEEP: Duration = Duration::from_millis(50);
/// A record that was written so much later than the list says is further than the list.
const SKEW: u64 = 60_000;
/// What the marker says when nothing was left to do.
const FINISHED: &[u8] = b"finished\n";

/// How far a sweep came that had no time left: the next one goes on there.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct SweepProgress {
    /// The last run that was measured; those before it were not.
    after: Option<RunId>,
    /// How much those take that were.
    bytes: u64,
}

/// Removes what the rule does not keep: at most once a day, and for no longer than `most`. What is left then is removed when
/// this is called again. Gives the runs that are gone.
pub fn sweep(store: &RunStore, rule: RetentionRule, now: u64, most: Duration) -> io::Result<Vec<RunId>> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let marker = match files::open_regular(&store.layout().sweep(), options) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    // One process at a time: others have nothing to do here.
    if marker.try_lock().is_err() {
        return Ok(Vec::new());
    }
    let removed = sweep_alone(store, rule, now, most, &marker);
    marker.unlock()?;
    removed
}

/// The caller holds the lock.
fn sweep_alone(
    store: &RunStore,
    rule: RetentionRule,
    now: u64,
    most: Duration,
    marker: &File,
) -> io::Result<Vec<RunId>> {
    let began = Instant::now();
    let Some(progress) = due(marker, now)? else { return Ok(Vec::new()) };
    let is_late = || began.elapsed() >= most;
    remove_gone(store, &is_late);
    let (runs, rest) = measure(store, progress, &is_late)?;
    // Removing by size needs the sizes of all: until they are known only age counts.
    let known_rule = if rest.is_some() { RetentionRule { megabytes: u64::MAX, ..rule } } else { rule };
    let chosen = removable(known_rule, now, &runs, progress.bytes);
    let mut removed = Vec::new();
    for id in &chosen {
        if is_late() {
            break;
        }
        match store.remove(id, Removal::Careful) {
            Ok(()) => removed.push(*id),
            // It was resumed or removed meanwhile.
            Err(RemoveError::Running(_) | RemoveError::Unknown(_)) => {}
            Err(RemoveError::Io(error)) => return Err(error),
        }
    }
    let is_cut = is_late() && removed.len() < chosen.len();
    mark(marker, rest.or(is_cut.then(SweepProgress::default)), now)?;
    Ok(removed)
}

/// Where to begin, if it is time. A time that has not come yet was written by a clock that went wrong.
fn due(marker: &File, now: u64) -> io::Result<Option<SweepProgress>> {
    let found = marker.metadata()?;
    let at = milliseconds(found.modified()?);
    let mut text = Vec::new();
    marker.take(256).read_to_end(&mut text)?;
    let progress = serde_json::from_slice(&text).ok();
    // It was only made.
    let is_new = text.is_empty();
    let is_time = is_new || at > now.saturating_add(SKEW) || now.saturating_sub(at) >= DAY;
    Ok(if is_time { Some(progress.unwrap_or_default()) } else { progress })
}

fn mark(mut marker: &File, progress: Option<SweepProgress>, now: u64) -> io::Result<()> {
    let content = progress.map_or(Ok(FINISHED.to_vec()), |progress| serde_json::to_vec(&progress))?;
    marker.set_len(0)?;
    marker.rewind()?;
    marker.write_all(&content)?;
    marker.set_modified(UNIX_EPOCH + Duration::from_millis(now))
}

/// What a process left that was killed while it removed a run.
fn remove_gone(store: &RunStore, is_late: &impl Fn() -> bool) {
    let Ok(entries) = fs::read_dir(store.layout().gone()) else { return };
    for entry in entries.flatten().take_while(|_| !is_late()) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// The runs of the list that were not measured before, the newest first by their ids, as far as there is time; and where
/// to go on if there is not enough.
fn measure(
    store: &RunStore,
    progress: SweepProgress,
    is_late: &impl Fn() -> bool,
) -> io::Result<(Vec<KeptRun>, Option<SweepProgress>)> {
    let text = store.index().read()?;
    let mut lines: Vec<(RunId, RunState, u64)> = text.newest().map(|line| (line.id, line.state, line.at)).collect();
    lines.retain(|(id, ..)| progress.after.is_none_or(|after| *id < after));
    lines.sort_unstable_by_key(|(id, ..)| std::cmp::Reverse(*id));
    let (mut runs, mut so_far) = (Vec::with_capacity(lines.len()), progress);
    for (id, state, ended) in lines {
        if is_late() {
            return Ok((runs, Some(so_far)));
        }
        so_far.after = Some(id);
        let Ok(journal) = fs::symlink_metadata(store.layout().journal(&id)) else { continue };
        // The list may say that a run is done which another process has gone on with since, and which waits now.
        let is_behind = journal.modified().map_or(0, milliseconds) > ended.saturating_add(SKEW);
        let state = if is_behind { RunState::Waits } else { state };
        let beside = [store.layout().blobs(&id), store.layout().items(&id)].map(|directory| size_of(&directory));
        let bytes = beside.into_iter().fold(journal.len(), u64::saturating_add);
        let run = KeptRun { id, state, bytes, ended };
        so_far.bytes = so_far.bytes.saturating_add(run.bytes);
        runs.push(run);
    }
    Ok((runs, None))
}

/// Of the files in a directory; what is beneath it does not count.
fn size_of(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).fold(0, |sum, found| sum.saturating_add(found.len()))
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use proptest::prelude::*;

    use super::super::index::{IndexLine, RunKind};
    use super::super::layout::StoreLayout;
    use super::*;

    const NOW: u64 = 1_794_873_600_000;
    const RULE: RetentionRule = RetentionRule { days: 90, megabytes: 2048 };

    /// A run that ended so many days ago and takes so many megabytes.
    fn run(number: u32, state: RunState, megabytes: u64, days: u64) -> KeptRun {
        KeptRun { id: RunId::new(1, number), state, bytes: megabytes << 20, ended: NOW - days * DAY }
    }

    fn chosen(rule: RetentionRule, runs: &[KeptRun]) -> Vec<u32> {
        let numbers: BTreeMap<RunId, u32> = (0..100).map(|number| (RunId::new(1, number), number)).collect();
        removable(rule, NOW, runs, 0).iter().map(|id| numbers[id]).collect()
    }

    #[test]
    fn what_is_old_or_too_much_goes_the_oldest_first() {
        use RunState::{Died, Done, Running, Stopped, Waits};
        let runs = [
            run(1, Done, 1000, 1),
            run(2, Waits, 500, 500),
            run(3, Stopped, 500, 91),
            run(4, Running, 500, 200),
            run(5, Died, 500, 100),
            run(6, Done, 500, 90),
        ];
        assert_eq!(chosen(RetentionRule { megabytes: 9999, ..RULE }, &runs), [5, 3]);
        assert_eq!(chosen(RULE, &runs), [5, 3, 6]);
        assert_eq!(chosen(RetentionRule { days: 9999, megabytes: 3000 }, &runs), [5]);
        assert_eq!(chosen(RetentionRule { days: u64::MAX, megabytes: 0 }, &runs), [5, 3, 6, 1]);
        assert_eq!(chosen(RetentionRule { days: 0, megabytes: u64::MAX }, &runs), [5, 3, 6, 1]);
        assert_eq!(removable(RULE, NOW, &runs[..1], 1048 << 20), []);
        assert_eq!(removable(RULE, NOW, &runs[..1], 1049 << 20), [runs[0].id]);
    }

    /// What may happen to a run.
    #[derive(Clone, Copy, Debug)]
    enum Change {
        Into(RunState),
        Grows(u64),
    }

    fn change() -> impl Strategy<Value = Change> {
        use RunState::{Died, Done, Running, Stopped, Waits};
        prop_oneof![
            prop::sample::select(vec![Running, Waits, Stopped, Died, Done]).prop_map(Change::Into),
            (0..2000_u64).prop_map(Change::Grows),
        ]
    }

    proptest! {
        #[test]
        fn what_waits_or_runs_is_never_removed(
            history in prop::collection::vec((0..20_u32, 0..400_u64, change()), 0..80),
            days in 0..400_u64,
            megabytes in 0..20_000_u64,
            further in 0..5000_u64,
        ) {
            let mut runs: BTreeMap<u32, KeptRun> = BTreeMap::new();
            let mut at = 0;
            for (number, pause, change) in history {
                at += pause * DAY / 40;
                let id = RunId::new(1, number);
                let run = runs.entry(number).or_insert(KeptRun { id, state: RunState::Running, bytes: 0, ended: at });
                match change {
                    Change::Into(state) => (run.state, run.ended) = (state, at),
                    Change::Grows(megabytes) => run.bytes += megabytes << 20,
                }
            }
            let (now, further) = (at, further << 20);
            let runs: Vec<KeptRun> = runs.into_values().collect();
            let rule = RetentionRule { days, megabytes };
            let removed = removable(rule, now, &runs, further);
            let of = |id: &RunId| runs.iter().find(|run| run.id == *id).unwrap();
            prop_assert!(removed.iter().all(|id| of(id).state.is_finished()));
            prop_assert!(removed.iter().map(|id| of(id).ended).is_sorted());
            let gone: HashSet<RunId> = removed.iter().copied().collect();
            prop_assert_eq!(gone.len(), removed.len());
            let left: Vec<&KeptRun> = runs.iter().filter(|run| !gone.contains(&run.id)).collect();
            let is_old = |run: &KeptRun| run.ended < now.saturating_sub(days * DAY);
            let finished: Vec<&&KeptRun> = left.iter().filter(|run| run.state.is_finished()).collect();
            prop_assert!(finished.iter().all(|run| !is_old(run)));
            let bytes = further + left.iter().map(|run| run.bytes).sum::<u64>();
            prop_assert!(bytes <= megabytes << 20 || finished.is_empty(), "no more than may be kept");
            // The last one that was removed had to be.
            if let Some(last) = removed.last().map(of) {
                prop_assert!(is_old(last) || bytes + last.bytes > megabytes << 20);
            }
        }
    }

    fn store(state: &Path) -> RunStore {
        RunStore::new(StoreLayout::new(state), None)
    }

    fn put(store: &RunStore, number: u32, state: RunState, days: u64, bytes: usize) -> RunId {
        let id = RunId::new(NOW - days * DAY, number);
        store.create_as(&id).unwrap();
        fs::write(store.layout().journal(&id), vec![0; bytes]).unwrap();
        let journal = File::options().write(true).open(store.layout().journal(&id)).unwrap();
        let ended = NOW - days * DAY;
        journal.set_modified(UNIX_EPOCH + Duration::from_millis(ended)).unwrap();
        let (project, entry) = ("/p".into(), "main".into());
        let (kind, label, waits, cost, requests, turns) = (RunKind::Run, None, None, None, 0, 0);
        let line = IndexLine { id, at: ended, kind, project, entry, label, state, waits, cost, requests, turns };
        store.index().append(&line).unwrap();
        id
    }

    const LONG: Duration = Duration::from_mins(10);

    #[test]
    fn a_sweep_removes_at_most_once_a_day() {
        let state = tempfile::tempdir().unwrap();
        let store = store(state.path());
        assert!(sweep(&store, RULE, NOW, LONG).unwrap().is_empty(), "there is no store yet");
        let old = put(&store, 1, RunState::Done, 100, 10);
        let waiting = put(&store, 2, RunState::Waits, 100, 10);
        let young = put(&store, 3, RunState::Done, 1, 10);
        fs::create_dir_all(store.layout().gone().join("left/by/another")).unwrap();
        assert_eq!(sweep(&store, RULE, NOW, LONG).unwrap(), [old]);
        assert_eq!(store.ids().unwrap(), [waiting, young]);
        assert_eq!(fs::read_dir(store.layout().gone()).unwrap().count(), 0);
        let older = put(&store, 4, RunState::Died, 200, 10);
        assert!(sweep(&store, RULE, NOW + DAY - 1, LONG).unwrap().is_empty(), "not before a day has passed");
        assert_eq!(sweep(&store, RULE, NOW + DAY, LONG).unwrap(), [older]);
        let again = put(&store, 5, RunState::Died, 200, 10);
        assert_eq!(sweep(&store, RULE, NOW - DAY, LONG).unwrap(), [again], "a clock that goes back stops nothing");
    }

    #[test]
    fn a_sweep_without_time_goes_on_later() {
        let state = tempfile::tempdir().unwrap();
        let store = store(state.path());
        let ids: Vec<RunId> =
            (0..5).map(|number| put(&store, number, RunState::Done, 9 - u64::from(number), 1 << 20)).collect();
        let rule = RetentionRule { days: 90, megabytes: 2 };
        assert!(sweep(&store, rule, NOW, Duration::ZERO).unwrap().is_empty());
        assert_eq!(sweep(&store, rule, NOW, LONG).unwrap(), ids[..3]);
        // Some were measured before: they count, and are not measured again.
        let progress = SweepProgress { after: Some(ids[4]), bytes: 2 << 20 };
        mark(&File::options().write(true).open(store.layout().sweep()).unwrap(), Some(progress), NOW).unwrap();
        assert_eq!(sweep(&store, rule, NOW, LONG).unwrap(), [ids[3]]);
        assert_eq!(store.ids().unwrap(), [ids[4]]);
    }

    #[test]
    fn what_the_list_does_not_know_yet_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let store = store(state.path());
        let resumed = put(&store, 1, RunState::Done, 100, 10);
        File::options()
            .write(true)
            .open(store.layout().journal(&resumed))
            .unwrap()
            .set_modified(SystemTime::now())
            .unwrap();
        let running = put(&store, 2, RunState::Done, 100, 10);
        let journal = File::open(store.layout().journal(&running)).unwrap();
        journal.lock().unwrap();
        let strange = store.layout().sweep();
        fs::write(&strange, "nonsense").unwrap();
        File::options().write(true).open(&strange).unwrap().set_modified(UNIX_EPOCH).unwrap();
        assert!(sweep(&store, RULE, NOW, LONG).unwrap().is_empty());
        assert_eq!(store.ids().unwrap().len(), 2);
        fs::remove_file(&strange).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &strange, 0o600.into()).unwrap();
        assert!(sweep(&store, RULE, NOW, LONG).is_err(), "a FIFO is not waited for");
    }
}
