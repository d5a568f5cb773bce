//! One run in the store: made, found, looked at, asked to end, removed; and the one run of a `--once` key.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FileType, Stat, lstat};

use super::answers::AnswerFiles;
use super::costs::CostFiles;
use super::files;
use super::index::RunIndex;
use super::layout::{HexDigest, PrefixError, RunId, RunIdPrefix, StoreLayout, once_digest};
use crate::journal::blobs::Blobs;
use crate::journal::mac::StateKey;

/// All runs that are kept in a state directory.
#[derive(Clone, Debug)]
pub struct RunStore {
    layout: StoreLayout,
    key: Option<StateKey>,
}

/// Why a typed word names no run.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No run has an id that begins like this.
    #[error("there is no run `{0}`")]
    Unknown(String),
    /// It could be the beginning of many ids.
    #[error("`{0}` is too short: the beginning of an id has at least {least} characters", least = RunIdPrefix::SHORTEST)]
    TooShort(String),
    /// Several ids begin like this; the newest is the first of them.
    #[error("`{typed}` is the beginning of {} ids", .candidates.len())]
    Ambiguous {
        /// What was typed.
        typed: String,
        /// The ids that begin like it.
        candidates: Vec<RunId>,
    },
    /// The runs cannot be listed.
    #[error("the runs cannot be listed: {0}")]
    Io(#[from] io::Error),
}

/// How a run is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Not while a process runs it.
    Careful,
    /// Whatever becomes of the process that runs it.
    Forced,
}

/// Why a run was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// It is not there.
    #[error("there is no run `{0}`")]
    Unknown(RunId),
    /// A process holds its lock.
    #[error("the run `{0}` is in use by another process")]
    Running(RunId),
    /// It, or what the list says of it, cannot be removed.
    #[error("it cannot be removed: {0}")]
    Io(#[from] io::Error),
}

/// Whose run a `--once` key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnceClaim {
    /// The one that claimed it.
    Won,
    /// Another one, which was first. The caller removes its own and attaches to that.
    Lost(RunId),
}

/// Which of two ids could be made at the same moment is decided by so many attempts.
const MOST_ATTEMPTS: usize = 100;
/// A claim is an id and a digest.
const LONGEST_CLAIM: u64 = 256;

impl RunStore {
    /// The store that is laid out like this. Without a key no answer can be given to its runs from elsewhere.
    pub fn new(layout: StoreLayout, key: Option<StateKey>) -> Self {
        Self { layout, key }
    }

    /// Where its files lie.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// The key that its records and answers are signed with.
    pub fn key(&self) -> Option<&StateKey> {
        self.key.as_ref()
    }

    /// The list of its runs.
    pub fn index(&self) -> RunIndex<'_> {
        RunIndex::of(&self.layout)
    }

    /// What its runs cost.
    pub fn costs(&self) -> CostFiles {
        CostFiles::of(&self.layout)
    }

    /// The large values of a run.
    pub fn blobs(&self, id: &RunId) -> Blobs {
        Blobs::at(self.layout.blobs(id))
    }

    /// The answers to a run's questions.
    pub fn answers(&self, id: &RunId) -> AnswerFiles<'_> {
        AnswerFiles::of(&self.layout, *id, self.key.as_ref())
    }

    /// Makes the directory of a new run, which is the user's alone.
    pub fn create(&self) -> io::Result<RunId> {
        let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..MOST_ATTEMPTS {
            let id = RunId::of_now();
            match self.create_as(&id) {
                Ok(()) => return Ok(id),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    /// Makes the directory of a run that has its id already, such as one from another machine. If there is such a run the
    /// error is [`io::ErrorKind::AlreadyExists`].
    pub(crate) fn create_as(&self, id: &RunId) -> io::Result<()> {
        // Whoever owns the one above it could exchange it.
        files::make_private(self.layout.state())?;
        files::make_private(&self.layout.runs())?;
        DirBuilder::new().mode(0o700).create(self.layout.run(id))
    }

    /// The ids of all runs that are there, the oldest first. This looks at the runs themselves and not at the list.
    pub fn ids(&self) -> io::Result<Vec<RunId>> {
        let entries = match fs::read_dir(self.layout.runs()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let runs = entries.flatten().filter(is_directory);
        let mut ids: Vec<RunId> = runs.filter_map(|entry| RunId::parse(entry.file_name().to_str()?)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Whether a run is there.
    pub(crate) fn has(&self, id: &RunId) -> bool {
        fs::symlink_metadata(self.layout.run(id)).is_ok_and(|found| found.is_dir())
    }

    /// The run whose id begins with what a person typed.
    pub fn find(&self, typed: &str) -> Result<RunId, FindError> {
        let unknown = || FindError::Unknown(typed.to_owned());
        let prefix = RunIdPrefix::parse(typed).map_err(|error| match error {
            PrefixError::NotAnId => unknown(),
            PrefixError::TooShort => FindError::TooShort(typed.to_owned()),
        })?;
        if let Some(id) = prefix.whole() {
            return if self.has(&id) { Ok(id) } else { Err(unknown()) };
        }
        let mut candidates = self.ids()?;
        candidates.retain(|id| prefix.begins(id));
        candidates.reverse();
        match candidates.as_slice() {
            [] => Err(unknown()),
            [id] => Ok(*id),
            [..] => Err(FindError::Ambiguous { typed: typed.to_owned(), candidates }),
        }
    }

    /// Whether a process runs it now. The lock is shared, so that any number of processes can look at once, and none of them
    /// looks like one that runs it.
    pub fn is_running(&self, id: &RunId) -> io::Result<bool> {
        let Some(journal) = self.open_journal(id)? else { return Ok(false) };
        match journal.try_lock_shared() {
            // Closing it would not do: a process that is being started may have it open for a moment.
            Ok(()) => journal.unlock().map(|()| false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(super) fn open_journal(&self, id: &RunId) -> io::Result<Option<File>> {
        match files::open_regular(&self.layout.journal(id), OpenOptions::new().read(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Removes a run with all that belongs to it, and takes it off the list. What it cost stays.
    pub fn remove(&self, id: &RunId, removal: Removal) -> Result<(), RemoveError> {
        if !self.has(id) {
            return Err(RemoveError::Unknown(*id));
        }
        // Held until it is gone: no other process goes on with it meanwhile.
        let journal = self.open_journal(id).ok().flatten();
        let locked = journal.as_ref().map(File::try_lock);
        if removal == Removal::Careful && matches!(locked, Some(Err(TryLockError::WouldBlock))) {
            return Err(RemoveError::Running(*id));
        }
        self.release_once(id)?;
        let gone = self.layout.gone();
        files::make_private(&gone)?;
        let moved = gone.join(format!("{id}-{:016x}", fastrand::u64(..)));
        fs::rename(self.layout.run(id), &moved)?;
        let listed = self.index().append_gone(id);
        fs::remove_dir_all(&moved)?;
        Ok(listed?)
    }

    /// Asks the process that runs it to end its turn.
    pub fn request_cancel(&self, id: &RunId) -> io::Result<()> {
        let mut options = OpenOptions::new();
        files::open_regular(&self.layout.cancel(id), options.write(true).create(true).truncate(false).mode(0o600))
            .map(drop)
    }

    /// Whether it was asked to end its turn, each time that this is called.
    pub fn cancel_request(&self, id: &RunId) -> impl Fn() -> bool + Send + Sync + use<> {
        let place = CString::new(self.layout.cancel(id).into_os_string().into_vec()).ok();
        let is_file = |found: Stat| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        move || place.as_deref().is_some_and(|place| lstat(place).is_ok_and(is_file))
    }

    /// Says that it was heard.
    pub fn clear_cancel(&self, id: &RunId) -> io::Result<()> {
        missing_is_fine(fs::remove_file(self.layout.cancel(id)))
    }

    /// Whether this is the first time that the user can be told where runs are kept: true once in the life of a store.
    pub fn is_first_telling(&self) -> io::Result<bool> {
        files::make_private(self.layout.state())?;
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.layout.told()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// `--once`: of all that start with the same key of a project, one is the run and the others attach to it.
///
/// Only a process that holds the lock of the directory of keys takes a key away, and only one whose run is gone; giving a
/// key needs no lock, since a name can be linked only where there is none.
impl RunStore {
    /// The run that a key of a project belongs to, if there is one.
    #[cfg(test)]
    pub(crate) fn find_once(&self, project: &Path, key: &str) -> io::Result<Option<RunId>> {
        self.holder(&once_digest(&project.canonicalize()?, key))
    }

    /// Claims a key for a run. Its journal is there and locked before: a run without one counts as removed, and its key is
    /// given to the next run that claims it.
    pub fn claim_once(&self, project: &Path, key: &str, id: &RunId) -> io::Result<OnceClaim> {
        let digest = once_digest(&project.canonicalize()?, key);
        if !self.has_journal(id) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the run `{id}` has no journal yet")));
        }
        files::make_private(&self.layout.once_keys())?;
        let claim = self.layout.claim(id);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&claim)?;
        file.write_all(format!("{id}\n{digest}\n").as_bytes())?;
        for _ in 0..MOST_ATTEMPTS {
            match fs::hard_link(&claim, self.layout.once(&digest)) {
                Ok(()) => return Ok(OnceClaim::Won),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            if let Some(first) = self.holder(&digest)? {
                fs::remove_file(&claim)?;
                return Ok(OnceClaim::Lost(first));
            }
            self.take_away(&digest, |holder| holder.is_none())?;
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "the key changes hands all the time"))
    }

    /// The run that holds a key and is still there.
    fn holder(&self, digest: &HexDigest) -> io::Result<Option<RunId>> {
        let id = match files::read_whole(&self.layout.once(digest), LONGEST_CLAIM) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // Whatever was put there, it is no claim.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge) => None,
            claim => claim_of(&claim?).map(|(id, _)| id),
        };
        Ok(id.filter(|id| self.has_journal(id)))
    }

    fn has_journal(&self, id: &RunId) -> bool {
        fs::symlink_metadata(self.layout.journal(id)).is_ok_and(|found| found.is_file())
    }

    fn release_once(&self, id: &RunId) -> io::Result<()> {
        let claim = files::read_whole(&self.layout.claim(id), LONGEST_CLAIM).ok();
        let Some((_, digest)) = claim.as_deref().and_then(claim_of) else { return Ok(()) };
        self.take_away(&digest, |holder| holder == Some(*id))
    }

    fn take_away(&self, digest: &HexDigest, is_free: impl Fn(Option<RunId>) -> bool) -> io::Result<()> {
        let _lock = match files::lock_directory(&self.layout.once_keys()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            lock => lock?,
        };
        if is_free(self.holder(digest)?) { missing_is_fine(fs::remove_file(self.layout.once(digest))) } else { Ok(()) }
    }
}

/// An id and a digest, a line each.
fn claim_of(bytes: &[u8]) -> Option<(RunId, HexDigest)> {
    let (id, digest) = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?.split_once('\n')?;
    Some((RunId::parse(id)?, HexDigest::parse(digest)?))
}

fn missing_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Barrier;

    use super::super::index::{IndexLine, RunKind, RunState};
    use super::super::race;
    use super::*;
    use crate::journal::file::Durability;

    fn store(state: &Path) -> RunStore {
        RunStore::new(StoreLayout::new(state), None)
    }

    /// A run whose journal is open and locked.
    fn started(store: &RunStore) -> (RunId, File) {
        let id = store.create().unwrap();
        let journal = File::create(store.layout.journal(&id)).unwrap();
        journal.try_lock().unwrap();
        (id, journal)
    }

    fn listed(id: RunId, state: RunState) -> IndexLine<'static> {
        let (project, entry) = ("/p".into(), "main".into());
        IndexLine {
            id,
            at: 1,
            kind: RunKind::Run,
            project,
            entry,
            label: None,
            state,
            waits: None,
            cost: None,
            requests: 0,
            turns: 0,
        }
    }

    #[test]
    fn a_run_is_the_users_alone() {
        let home = tempfile::tempdir().unwrap();
        let store = store(&home.path().join("a/state"));
        assert!(store.ids().unwrap().is_empty());
        let ids: Vec<RunId> = (0..20).map(|_| store.create().unwrap()).collect();
        assert_eq!(store.ids().unwrap().len(), 20);
        for directory in [store.layout.state().to_owned(), store.layout.runs(), store.layout.run(&ids[0])] {
            assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{}", directory.display());
        }
        assert_eq!(store.create_as(&ids[0]).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(store.is_first_telling().unwrap() && !store.is_first_telling().unwrap());
    }

    #[test]
    fn where_nothing_can_be_written_nothing_is_made() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), "").unwrap();
        assert!(store(&home.path().join("file")).create().is_err());
        assert!(store(Path::new("/proc/nowhere")).create().is_err());
        let closed = home.path().join("closed");
        fs::create_dir(&closed).unwrap();
        if rustix::process::geteuid().is_root() {
            rustix::fs::chown(&closed, Some(rustix::fs::Uid::from_raw(12345)), None).unwrap();
            let runs = closed.join("runs");
            fs::create_dir(&runs).unwrap();
            rustix::fs::chown(&runs, Some(rustix::fs::Uid::from_raw(12345)), None).unwrap();
            let error = store(&closed).create().unwrap_err();
            assert!(error.to_string().ends_with("belongs to another user"), "{error}");
        } else {
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
            assert!(store(&closed).create().is_err());
        }
    }

    #[test]
    fn a_run_is_found_by_a_unique_beginning() {
        let state = tempfile::tempdir().unwrap();
        let store = store(state.path());
        let ids = ["06gy3k9x7wqe4t2m", "06gy3k2m0c4vt81z", "06gy3j7pe8ha90rk"].map(|id| RunId::parse(id).unwrap());
        for id in &ids {
            store.create_as(id).unwrap();
        }
        fs::write(store.layout.runs().join("06gy3f00000000000"), "").unwrap();
        fs::write(store.layout.runs().join("06gy3f0000000000"), "").unwrap();
        for (typed, expected) in [
            ("06gy3k9", Ok(ids[0])),
            ("06GY3K2M", Ok(ids[1])),
            ("06gy3j", Ok(ids[2])),
            ("06gy3j7pe8ha90rk", Ok(ids[2])),
            ("06gy3", Err("`06gy3` is too short: the beginning of an id has at least 6 characters")),
            ("06gy3k", Err("`06gy3k` is the beginning of 2 ids")),
            ("06gy3f", Err("there is no run `06gy3f`")),
            ("06gy3j7pe8ha90r0", Err("there is no run `06gy3j7pe8ha90r0`")),
            ("support", Err("there is no run `support`")),
            ("../runs", Err("there is no run `../runs`")),
        ] {
            assert_eq!(
                store.find(typed).map_err(|error| error.to_string()),
                expected.map_err(str::to_owned),
                "{typed}"
            );
        }
        let Err(FindError::Ambiguous { candidates, .. }) = store.find("06gy3k") else { panic!() };
        assert_eq!(candidates, [ids[0], ids[1]]);
    }

    #[test]
    fn a_run_runs_while_its_journal_is_locked() {
        let state = tempfile::tempdir().unwrap();
        let store = store(state.path());
        let empty = store.create().unwrap();
        assert!(!store.is_running(&empty).unwrap(), "it has no journal");
        let (id, journal) = started(&store);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(store.is_running(&id).unwrap()));
            }
        });
        journal.unlock().unwrap();
        assert!(!store.is_running(&id).unwrap());
        fs::remove_file(store.layout.journal(&id)).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, store.layout.journal(&id), 0o600.into()).unwrap();
        assert!(store.is_running(&id).is_err(), "a FIFO is not waited for");
    }

    #[test]
    fn a_run_is_asked_to_end_until_it_has_heard() {
        let state = tempfile::tempdir().unwrap();
        let store = store(state.path());
        let id = store.create().unwrap();
        let is_requested = store.cancel_request(&id);
        assert!(!is_requested());
        store.clear_cancel(&id).unwrap();
        store.request_cancel(&id).unwrap();
        store.request_cancel(&id).unwrap();
        assert!(is_requested());
        store.clear_cancel(&id).unwrap();
        assert!(!is_requested());
        assert!(store.request_cancel(&RunId::new(1, 1)).is_err(), "there is no such run");
        fs::create_dir(store.layout.cancel(&id)).unwrap();
        assert!(!is_requested(), "what nobody could take back is no request");
    }

    #[test]
    fn a_run_is_removed_with_all_that_belongs_to_it_unless_it_runs() {
        let (state, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = store(state.path());
        let (id, journal) = started(&store);
        store.index().append(&listed(id, RunState::Running)).unwrap();
        assert_eq!(store.claim_once(project.path(), "k", &id).unwrap(), OnceClaim::Won);
        let digest = HexDigest::of(b"large");
        store.blobs(&id).keep(digest.as_str(), b"large", Durability::Written).unwrap();
        assert!(matches!(store.remove(&id, Removal::Careful), Err(RemoveError::Running(_))));
        assert!(store.has(&id));
        journal.unlock().unwrap();
        store.remove(&id, Removal::Careful).unwrap();
        assert!(!store.has(&id) && store.find_once(project.path(), "k").unwrap().is_none());
        assert_eq!(fs::read_dir(store.layout.once_keys()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(store.layout.gone()).unwrap().count(), 0);
        assert_eq!(store.index().read().unwrap().newest().count(), 0);
        assert!(!store.index().read().unwrap().is_behind());
        assert!(matches!(store.remove(&id, Removal::Careful), Err(RemoveError::Unknown(_))));
        let (id, _journal) = started(&store);
        store.remove(&id, Removal::Forced).unwrap();
        assert!(!store.has(&id));
    }

    #[test]
    fn a_key_belongs_to_the_first_run_of_its_project() {
        let (state, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = store(state.path());
        let [one, two, three] = [(); 3].map(|()| started(&store));
        assert!(store.claim_once(project.path(), "k", &store.create().unwrap()).is_err(), "it has no journal");
        assert_eq!(store.claim_once(project.path(), "k", &one.0).unwrap(), OnceClaim::Won);
        assert_eq!(store.claim_once(&project.path().join("."), "k", &two.0).unwrap(), OnceClaim::Lost(one.0));
        assert_eq!(store.find_once(project.path(), "k").unwrap(), Some(one.0));
        // Who lost and is removed takes nothing away.
        store.remove(&two.0, Removal::Forced).unwrap();
        assert_eq!(store.find_once(project.path(), "k").unwrap(), Some(one.0));
        assert_eq!(store.claim_once(state.path(), "k", &three.0).unwrap(), OnceClaim::Won, "another project");
        // A process was killed before it could make a journal, or while it removed the run.
        fs::remove_file(store.layout.journal(&one.0)).unwrap();
        let four = started(&store);
        assert_eq!(store.claim_once(project.path(), "k", &four.0).unwrap(), OnceClaim::Won);
        store.remove(&one.0, Removal::Forced).unwrap();
        assert_eq!(store.find_once(project.path(), "k").unwrap(), Some(four.0), "it is no longer the old one's");
    }

    #[test]
    fn whatever_lies_in_the_place_of_a_key_is_replaced() {
        let (state, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = store(state.path());
        files::make_private(&store.layout.once_keys()).unwrap();
        let place = store.layout.once(&once_digest(&project.path().canonicalize().unwrap(), "k"));
        let long = "x".repeat(1000);
        for content in ["", "nonsense", "06gy3k9x7wqe4t2m", long.as_str()] {
            fs::write(&place, content).unwrap();
            let (id, _journal) = started(&store);
            assert_eq!(store.claim_once(project.path(), "k", &id).unwrap(), OnceClaim::Won, "{content}");
            store.remove(&id, Removal::Forced).unwrap();
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, &place, 0o600.into()).unwrap();
        let (id, _journal) = started(&store);
        assert_eq!(store.claim_once(project.path(), "k", &id).unwrap(), OnceClaim::Won);
    }

    /// One claim, and what the claimer does about it.
    fn claimed(store: &RunStore, project: &Path) -> RunId {
        let (id, journal) = started(store);
        match store.claim_once(project, "k", &id).unwrap() {
            OnceClaim::Won => {
                // It lasts as long as all others may look at it.
                std::mem::forget(journal);
                id
            }
            OnceClaim::Lost(first) => {
                store.remove(&id, Removal::Forced).unwrap();
                first
            }
        }
    }

    #[test]
    fn of_a_hundred_claims_in_ten_processes_one_wins() {
        for stale in [false, true] {
            let race = tempfile::tempdir().unwrap();
            let store = store(race.path());
            if stale {
                let (id, _journal) = started(&store);
                assert_eq!(store.claim_once(race.path(), "k", &id).unwrap(), OnceClaim::Won);
                fs::remove_file(store.layout.journal(&id)).unwrap();
                fs::remove_dir_all(store.layout.run(&id)).unwrap();
            }
            race::run("store::run::tests::a_process_that_claims", race.path(), 10);
            let told = race::all_told(race.path());
            assert_eq!(told.len(), 100);
            assert!(told.iter().all(|id| *id == told[0]), "{told:?}");
            assert_eq!(store.ids().unwrap(), [RunId::parse(&told[0]).unwrap()], "all others are gone");
        }
    }

    #[test]
    fn a_process_that_claims() {
        let Some(directory) = race::directory() else { return };
        let (store, barrier) = (store(&directory), Barrier::new(10));
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    barrier.wait();
                    race::tell(&directory, claimed(&store, &directory).as_str());
                });
            }
        });
    }
}
