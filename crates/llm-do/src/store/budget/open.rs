//! A budget whose ledger this process writes: the lock around every look, the lines of each period, and the file that says
//! that this process is alive.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::account::{BudgetAccount, LedgerLine};
use super::{Budget, BudgetError, spent_in};
use crate::model::prices::Money;
use crate::store::files;
use crate::store::layout::StoreLayout;
use crate::store::period::CalendarPeriod;

/// Above this a ledger is rewritten as sums.
const LONGEST_LEDGER: u64 = 1 << 20;
/// One of an earlier period is rewritten as sums already above this.
const LONGEST_EARLIER: u64 = 4 << 10;
/// What is so much longer was not written by us.
const TOO_LONG: u64 = 64 << 20;

/// A budget that is in use by this process.
pub(super) struct OpenBudget {
    pub terms: Budget,
    directory: PathBuf,
    layout: StoreLayout,
    pub holder: String,
    /// Locked as long as this process may have reservations.
    _alive: File,
    next: AtomicU64,
    /// What is known of the ledgers that were looked at.
    known: Mutex<BTreeMap<String, KnownLedger>>,
    /// Settlements that are not written yet, each with its period.
    unwritten: Mutex<Vec<(CalendarPeriod, LedgerLine)>>,
    /// Heard by those of this process who wait.
    settled: Arc<Notify>,
}

/// A ledger as far as it was read.
struct KnownLedger {
    /// Open, so that no other file can be taken for it.
    file: File,
    path: PathBuf,
    account: BudgetAccount,
    read: u64,
    lines: u64,
}

impl KnownLedger {
    fn open(path: &Path) -> io::Result<Self> {
        let file = files::open_lines(path)?;
        Ok(Self { file, path: path.to_owned(), account: BudgetAccount::default(), read: 0, lines: 0 })
    }

    /// Whether its file is still the one at its path, with all that was read of it.
    fn is_current(&self) -> bool {
        let place = |file: &fs::Metadata| (file.dev(), file.ino());
        let (Ok(ours), Ok(theirs)) = (self.file.metadata(), fs::symlink_metadata(&self.path)) else { return false };
        place(&ours) == place(&theirs) && ours.len() >= self.read
    }

    /// Reads what was written since. A last line without its end is half of what a killed process wrote: it has sent
    /// nothing for it.
    fn catch_up(&mut self) -> Result<(), String> {
        let wrong = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        let length = self.file.metadata().map_err(|error| wrong(&self.path, error))?.len();
        if length > TOO_LONG {
            return Err(format!("{} is too long", self.path.display()));
        }
        let mut bytes = vec![0; usize::try_from(length.saturating_sub(self.read)).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, self.read).map_err(|error| wrong(&self.path, error))?;
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let number = self.lines + 1;
            let damaged = |why: &str| format!("{}: line {number} is damaged: {why}", self.path.display());
            let parsed: LedgerLine = serde_json::from_slice(line).map_err(|_| damaged("it is no line of a ledger"))?;
            self.account.apply(parsed).map_err(damaged)?;
            (self.read, self.lines) = (self.read + line.len() as u64, number);
        }
        Ok(())
    }

    /// Appends lines by one write, all of them or none.
    fn append(&mut self, lines: &[LedgerLine]) -> Result<(), String> {
        let wrong = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        let bytes = written(lines);
        let cut = self.file.set_len(self.read);
        let count = cut.and_then(|()| (&self.file).write(&bytes));
        let whole =
            count.and_then(|count| if count == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) });
        if let Err(error) = whole {
            let _ = self.file.set_len(self.read);
            return Err(wrong(&self.path, error));
        }
        for line in lines {
            self.account.apply(line.clone()).map_err(|why| format!("{}: {why}", self.path.display()))?;
        }
        (self.read, self.lines) = (self.read + bytes.len() as u64, self.lines + lines.len() as u64);
        Ok(())
    }

    /// Rewrites it as sums. One that cannot be is as good as it was.
    fn shorten(self) -> Self {
        let bytes = written(&self.account.lines());
        if bytes.len() as u64 > self.read / 2 {
            return self;
        }
        let beside = self.path.with_extension("new");
        let options = &mut OpenOptions::new();
        let rewritten = files::open_regular(&beside, options.write(true).create(true).truncate(true).mode(0o600));
        let rewritten = rewritten.and_then(|mut file| file.write_all(&bytes));
        let again = rewritten.and_then(|()| fs::rename(&beside, &self.path)).and_then(|()| Self::open(&self.path));
        let again = again.ok().and_then(|mut ledger| ledger.catch_up().is_ok().then_some(ledger));
        again.unwrap_or(self)
    }
}

fn written(lines: &[LedgerLine]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        bytes.extend(serde_json::to_vec(line).expect("plain values serialise"));
        bytes.push(b'\n');
    }
    bytes
}

impl OpenBudget {
    /// Makes what is missing, and looks whether the ledger of this period can be understood.
    pub(super) fn open(
        terms: &Budget,
        layout: &StoreLayout,
        period: &CalendarPeriod,
        settled: &Arc<Notify>,
    ) -> Result<Self, BudgetError> {
        let directory = layout.budget(&terms.name);
        let holders = directory.join("holders");
        let wrong = |path: &Path, error: io::Error| terms.unkept(format!("{}: {error}", path.display()));
        for made in [layout.state(), &directory, &holders] {
            files::make_private(made).map_err(|error| wrong(made, error))?;
        }
        let holder = format!("{:016x}", fastrand::u64(..));
        let path = directory.join("lock");
        // Nobody may take a new holder for a dead one before it has its lock.
        let lock = files::lock_file(&path).map_err(|error| wrong(&path, error))?;
        let own = holders.join(&holder);
        let options = &mut OpenOptions::new();
        let alive = files::open_regular(&own, options.write(true).create_new(true).mode(0o600));
        let alive = alive.and_then(|file| file.try_lock().map(|()| file).map_err(io::Error::from));
        let alive = alive.map_err(|error| wrong(&own, error))?;
        let budget = Self {
            terms: terms.clone(),
            directory,
            layout: layout.clone(),
            holder,
            _alive: alive,
            next: AtomicU64::new(0),
            known: Mutex::default(),
            unwritten: Mutex::default(),
            settled: Arc::clone(settled),
        };
        let mut locked = LockedBudget { budget: &budget, _lock: lock };
        locked.account(period)?;
        locked.tidy(period);
        drop(locked);
        Ok(budget)
    }

    /// Nothing if another process is at it right now: that takes no longer than a few lines.
    pub(super) fn try_lock(&self) -> Result<Option<LockedBudget<'_>>, BudgetError> {
        let path = self.directory.join("lock");
        let wrong = |error: io::Error| self.terms.unkept(format!("{}: {error}", path.display()));
        let options = &mut OpenOptions::new();
        let file = files::open_regular(&path, options.write(true).create(true).truncate(false).mode(0o600));
        let file = file.map_err(wrong)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(LockedBudget { budget: self, _lock: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(wrong(error)),
        }
    }

    /// Writes down what a reservation came to, now or as soon as others let go of the ledger.
    pub(super) fn settle(self: &Arc<Self>, period: &CalendarPeriod, number: u64, spent: Money) {
        let (holder, picodollars) = (self.holder.clone(), spent.picodollars());
        self.write_later(period, LedgerLine::Settled { holder, number, picodollars });
    }

    /// Writes down what was spent though nothing was reserved for it.
    pub(super) fn spend(self: &Arc<Self>, period: &CalendarPeriod, spent: Money) {
        self.write_later(period, LedgerLine::Spent { picodollars: spent.picodollars() });
    }

    fn write_later(self: &Arc<Self>, period: &CalendarPeriod, line: LedgerLine) {
        locked(&self.unwritten).push((period.clone(), line));
        if self.try_flush() {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(executor) => drop(executor.spawn(flush_soon(Arc::downgrade(self)))),
            Err(_) => drop(self.flush_now()),
        }
    }

    /// Waits for others as long as one may wait for a file. Whether nothing is left to be written.
    fn flush_now(&self) -> bool {
        if locked(&self.unwritten).is_empty() {
            return true;
        }
        let lock = files::lock_file(&self.directory.join("lock"));
        lock.is_ok_and(|lock| LockedBudget { budget: self, _lock: lock }.flush().is_ok())
    }

    /// Whether nothing is left to be written. What cannot be written is tried again with the next line, and at last when
    /// the budget is closed; until then others see the reservation, which is no less than what was spent.
    fn try_flush(&self) -> bool {
        if locked(&self.unwritten).is_empty() {
            return true;
        }
        self.try_lock().ok().flatten().is_some_and(|mut lock| lock.flush().is_ok())
    }

    /// What is known to be spent and reserved, as of the last look.
    pub(super) fn last_seen(&self, period: &str) -> BudgetAccount {
        locked(&self.known).get(period).map(|known| known.account.clone()).unwrap_or_default()
    }
}

/// Tries until it is written, or the budget is closed.
async fn flush_soon(budget: Weak<OpenBudget>) {
    for wait in super::waits(Duration::from_millis(1), Duration::from_millis(100)) {
        tokio::time::sleep(wait).await;
        if budget.upgrade().is_none_or(|budget| budget.try_flush()) {
            return;
        }
    }
}

/// The last one of this process is done with it.
impl Drop for OpenBudget {
    fn drop(&mut self) {
        // A holder whose file is left behind is dead for everybody: what it had reserved counts as spent.
        if self.flush_now() {
            let _ = fs::remove_file(self.directory.join("holders").join(&self.holder));
        }
    }
}

/// A budget that no other process changes meanwhile.
pub(super) struct LockedBudget<'a> {
    pub budget: &'a OpenBudget,
    _lock: File,
}

impl LockedBudget<'_> {
    /// What the ledger of a period says now; it is begun where there is none.
    pub(super) fn account(&mut self, period: &CalendarPeriod) -> Result<BudgetAccount, BudgetError> {
        self.flush()?;
        self.begun(period)
    }

    fn begun(&mut self, period: &CalendarPeriod) -> Result<BudgetAccount, BudgetError> {
        let (account, terms) = (self.read(&period.name)?, &self.budget.terms);
        match &account.subject {
            Some(subject) if subject.project == terms.project_name() => Ok(account),
            Some(_) => {
                let path = self.budget.directory.join(&period.name);
                Err(terms.unkept(format!("{} is of another project; give it another name", path.display())))
            }
            None => {
                let picodollars = spent_in(&self.budget.layout, terms, period)?.picodollars();
                let begun = LedgerLine::Begun { project: terms.project_name(), picodollars };
                self.append(&period.name, &[begun])?;
                self.read(&period.name)
            }
        }
    }

    /// Counts what dead holders have reserved as spent. Whether there were any.
    pub(super) fn bury(&mut self, period: &str) -> Result<bool, BudgetError> {
        let holders = self.budget.last_seen(period).holders();
        let dead: Vec<String> = holders.into_iter().filter(|holder| self.is_dead(holder)).collect();
        let lines: Vec<LedgerLine> = dead.iter().map(|holder| LedgerLine::Died { holder: holder.clone() }).collect();
        if lines.is_empty() {
            return Ok(false);
        }
        self.append(period, &lines)?;
        Ok(true)
    }

    fn is_dead(&self, holder: &str) -> bool {
        holder != self.budget.holder && is_dead(&self.budget.directory, holder)
    }

    /// Reserves so much; the number names it.
    pub(super) fn reserve(&mut self, period: &str, amount: Money) -> Result<u64, BudgetError> {
        let number = self.budget.next.fetch_add(1, Ordering::Relaxed);
        let (holder, picodollars) = (self.budget.holder.clone(), amount.picodollars());
        self.append(period, &[LedgerLine::Reserved { holder, number, picodollars }])?;
        Ok(number)
    }

    /// Writes what could not be written before.
    pub(super) fn flush(&mut self) -> Result<(), BudgetError> {
        let unwritten = std::mem::take(&mut *locked(&self.budget.unwritten));
        let mut written = 0;
        let mut result = Ok(());
        for (period, line) in &unwritten {
            result = self.write_settlement(period, line);
            if result.is_err() {
                break;
            }
            written += 1;
        }
        locked(&self.budget.unwritten).extend(unwritten.into_iter().skip(written));
        if written > 0 {
            self.budget.settled.notify_waiters();
        }
        result
    }

    fn write_settlement(&mut self, period: &CalendarPeriod, line: &LedgerLine) -> Result<(), BudgetError> {
        // Of a ledger that somebody has removed nothing is settled: it begins anew from what runs have cost.
        let is_wanted = match line {
            LedgerLine::Settled { holder, number, .. } => {
                self.read(&period.name)?.open.contains_key(&(holder.clone(), *number))
            }
            LedgerLine::Begun { .. } | LedgerLine::Reserved { .. } | LedgerLine::Died { .. } => true,
            LedgerLine::Spent { .. } => self.begun(period).map(|_| true)?,
        };
        if is_wanted { self.append(&period.name, std::slice::from_ref(line)) } else { Ok(()) }
    }

    /// What the ledger of a period says, as far as it is begun.
    fn read(&self, period: &str) -> Result<BudgetAccount, BudgetError> {
        let unkept = |reason| self.budget.terms.unkept(reason);
        let path = self.budget.directory.join(period);
        let mut known = locked(&self.budget.known);
        let current = known.remove(period).filter(KnownLedger::is_current);
        let opened = |error| unkept(format!("{}: {error}", path.display()));
        let mut ledger = current.map_or_else(|| KnownLedger::open(&path).map_err(opened), Ok)?;
        ledger.catch_up().map_err(unkept)?;
        let account = ledger.account.clone();
        // Those of the periods before are hardly ever needed again.
        known.retain(|_, ledger| ledger.account.open.keys().any(|(holder, _)| *holder == self.budget.holder));
        known.insert(period.to_owned(), ledger);
        Ok(account)
    }

    /// Appends to a ledger that was read while it was locked.
    fn append(&mut self, period: &str, lines: &[LedgerLine]) -> Result<(), BudgetError> {
        let mut known = locked(&self.budget.known);
        let Some(mut ledger) = known.remove(period) else {
            return Err(self.budget.terms.unkept("its ledger was not read".to_owned()));
        };
        ledger.append(lines).map_err(|reason| self.budget.terms.unkept(reason))?;
        let ledger = if ledger.read > LONGEST_LEDGER { ledger.shorten() } else { ledger };
        known.insert(period.to_owned(), ledger);
        Ok(())
    }

    /// Removes what dead holders left, and makes the ledgers of earlier periods short. Nothing depends on it.
    fn tidy(&mut self, period: &CalendarPeriod) {
        let directory = &self.budget.directory;
        for holder in names(&directory.join("holders")).filter(|holder| self.is_dead(holder)) {
            let _ = fs::remove_file(directory.join("holders").join(holder));
        }
        let is_long = |name: &String| {
            let length = fs::symlink_metadata(directory.join(name)).map_or(0, |file| file.len());
            length > LONGEST_EARLIER && *name != period.name && name.starts_with(|c: char| c.is_ascii_digit())
        };
        for earlier in names(directory).filter(is_long).collect::<Vec<_>>() {
            if self.read(&earlier).is_ok() && self.bury(&earlier).is_ok() {
                let known = locked(&self.budget.known).remove(&earlier);
                known.map(KnownLedger::shorten);
            }
        }
    }
}

fn names(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// Whether nobody holds its lock any more.
pub(super) fn is_dead(directory: &Path, holder: &str) -> bool {
    let path = directory.join("holders").join(holder);
    match files::open_regular(&path, OpenOptions::new().read(true)) {
        Ok(file) => file.try_lock_shared().is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the ledger of a period says, for whoever only looks; a dead holder's reservations count as spent.
pub(super) fn look(
    terms: &Budget,
    layout: &StoreLayout,
    period: &CalendarPeriod,
) -> Result<BudgetAccount, BudgetError> {
    let directory = layout.budget(&terms.name);
    let path = directory.join(&period.name);
    let wrong = |error: io::Error| terms.unkept(format!("{}: {error}", path.display()));
    // Locked, so that no half of a line is seen; without a lock there is no ledger either.
    let lock = match files::open_regular(&directory.join("lock"), OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BudgetAccount::default()),
        opened => opened.map_err(wrong)?,
    };
    files::lock_lines(&lock, &path).map_err(wrong)?;
    let file = match files::open_regular(&path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BudgetAccount::default()),
        opened => opened.map_err(wrong)?,
    };
    let mut ledger = KnownLedger { file, path, account: BudgetAccount::default(), read: 0, lines: 0 };
    ledger.catch_up().map_err(|reason| terms.unkept(reason))?;
    let mut account = ledger.account;
    for holder in account.holders().into_iter().filter(|holder| is_dead(&directory, holder)) {
        // It cannot be wrong: the holder is one of this account.
        let _ = account.apply(LedgerLine::Died { holder });
    }
    Ok(account)
}
