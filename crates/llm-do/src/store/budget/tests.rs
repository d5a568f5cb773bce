//! Budgets as several processes keep them: each holder here has its own locks, as a process has.

use std::collections::VecDeque;
use std::fs;

use proptest::prelude::*;

use super::*;
use crate::spending::Cost;
use crate::store::costs::CostLine;
use crate::store::layout::RunId;

/// 2026-11-17T12:00:00Z, a Tuesday.
const NOON: u64 = 1_794_916_800_000;
const DAY: u64 = 86_400_000;

fn utc() -> LocalZone {
    LocalZone::of_rules("UTC0").unwrap()
}

fn budget(name: &str, usd: f64) -> Budget {
    Budget { name: name.to_owned(), usd, per: PeriodLength::Day, project: None, warn_at: None, on_limit: None }
}

fn exactly(usd: f64) -> Wish {
    Wish::exactly(Cost { money: Money::from_usd(usd), ..Cost::REQUEST })
}

/// A state directory, and the processes that use it.
struct Desk {
    state: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { state: tempfile::tempdir().unwrap() }
    }

    fn layout(&self) -> StoreLayout {
        StoreLayout::new(self.state.path())
    }

    /// A process of its own, as far as locks are concerned.
    fn process(&self, budgets: &[Budget]) -> RunBudgets {
        self.try_process(budgets, NOON).unwrap()
    }

    fn try_process(&self, budgets: &[Budget], at: u64) -> Result<RunBudgets, BudgetError> {
        let settled = Arc::default();
        let open = |budget: &Budget| {
            let period = budget.per.around(CalendarDay::of(at, &utc()));
            OpenBudget::open(budget, &self.layout(), &period, &settled).map(Arc::new)
        };
        let budgets = budgets.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(RunBudgets {
            budgets,
            zone: utc(),
            told: Arc::default(),
            raised: Mutex::default(),
            kept: Mutex::default(),
            settled,
        })
    }

    fn ledger(&self, name: &str, period: &str) -> PathBuf {
        self.layout().budget(name).join(period)
    }

    /// What was spent and is reserved, as somebody sees it who only looks.
    fn seen(&self, budget: &Budget, at: u64) -> (f64, f64) {
        let period = budget.per.around(CalendarDay::of(at, &utc()));
        let account = open::look(budget, &self.layout(), &period).unwrap();
        (account.spent.usd(), account.reserved().usd())
    }

    fn costs(&self, day: &str, project: &str, usd: f64) {
        let line = CostLine {
            day: CalendarDay::parse(day).unwrap(),
            run: RunId::of_now(),
            project: project.to_owned(),
            entry: "main".to_owned(),
            agent: "main".to_owned(),
            model: "a:b".to_owned(),
            input: 1,
            output: 1,
            usd: Some(usd),
        };
        CostFiles::of(&self.layout()).append(&[line]).unwrap();
    }
}

fn reserved(run: &RunBudgets, usd: f64) -> BudgetReservation {
    reserved_at(run, usd, NOON)
}

/// A child that another test starts has our locks until it becomes another program.
fn attempted(run: &RunBudgets, wish: &Wish, at: u64) -> Result<ReserveAttempt, ReserveError> {
    loop {
        match run.try_reserve(wish, at) {
            Ok(ReserveAttempt::Busy) => std::thread::yield_now(),
            attempt => return attempt,
        }
    }
}

fn reserved_at(run: &RunBudgets, usd: f64, at: u64) -> BudgetReservation {
    match attempted(run, &exactly(usd), at) {
        Ok(ReserveAttempt::Reserved(reserved)) => reserved,
        Ok(ReserveAttempt::Busy | ReserveAttempt::Waits) => panic!("it waits"),
        Err(error) => panic!("{error:?}"),
    }
}

fn waits(run: &RunBudgets, usd: f64) -> bool {
    matches!(attempted(run, &exactly(usd), NOON), Ok(ReserveAttempt::Waits))
}

fn stopped(run: &RunBudgets, usd: f64) -> LimitHit {
    match attempted(run, &exactly(usd), NOON) {
        Err(ReserveError::Limit(hit)) => hit,
        Err(ReserveError::Unkept(reason)) => panic!("{reason}"),
        Ok(_) => panic!("it is not stopped"),
    }
}

/// As if the process were killed: its locks are free, its file stays behind, and nothing is settled.
fn kill(desk: &Desk, run: RunBudgets, open: Vec<BudgetReservation>) {
    for mut reservation in open {
        reservation.parts.clear();
    }
    let holder =
        |budget: &Arc<OpenBudget>| desk.layout().budget(&budget.terms.name).join("holders").join(&budget.holder);
    let files: Vec<PathBuf> = run.budgets.iter().map(holder).collect();
    drop(run);
    for file in files {
        assert!(!file.exists(), "an end without anything to write leaves nothing behind");
        fs::write(file, "").unwrap();
    }
}

#[test]
fn several_processes_share_a_budget_and_only_what_was_spent_stops() {
    let desk = Desk::new();
    let everyday = [budget("everyday", 1.0)];
    let (one, two) = (desk.process(&everyday), desk.process(&everyday));
    let first = reserved(&one, 0.6);
    assert!(waits(&two, 0.5), "only the other's reservation is in its way");
    assert!(waits(&one, 0.5), "also its own");
    let second = reserved(&two, 0.4);
    Box::new(first).settle(Money::from_usd(0.1));
    assert_eq!(desk.seen(&everyday[0], NOON), (0.1, 0.4));
    let third = reserved(&two, 0.5);
    drop(third);
    Box::new(second).settle(Money::from_usd(0.4));
    let hit = stopped(&one, 0.6);
    assert_eq!((hit.used, hit.allowed, hit.needed), (0.5, 1.0, Some(0.6)));
    assert_eq!(hit.limit, BoundedAmount::Budget { name: "everyday".into(), per: "day", on_limit: None });
    // Another day has all of it, and a request settles on the day of its start.
    let tomorrow = reserved_at(&one, 0.9, NOON + DAY);
    assert_eq!(desk.seen(&everyday[0], NOON + DAY), (0.0, 0.9));
    Box::new(tomorrow).settle(Money::from_usd(0.7));
    assert_eq!((desk.seen(&everyday[0], NOON).0, desk.seen(&everyday[0], NOON + DAY).0), (0.5, 0.7));
}

#[test]
fn what_a_dead_holder_had_reserved_counts_as_spent_and_a_living_ones_does_not() {
    let desk = Desk::new();
    let everyday = [budget("everyday", 1.0)];
    let (one, two) = (desk.process(&everyday), desk.process(&everyday));
    let lost = vec![reserved(&one, 0.4), reserved(&one, 0.3)];
    assert!(waits(&two, 0.5));
    kill(&desk, one, lost);
    assert_eq!(desk.seen(&everyday[0], NOON), (0.7, 0.0));
    assert_eq!(Money::from_usd(stopped(&two, 0.5).used), Money::mills(700), "nobody will settle it any more");
    Box::new(reserved(&two, 0.3)).settle(Money::from_usd(0.3));
    assert_eq!(Money::from_usd(stopped(&two, 0.1).used), Money::mills(1000));
}

#[test]
fn a_request_is_reserved_in_all_budgets_or_in_none() {
    let desk = Desk::new();
    let both = [budget("large", 10.0), budget("small", 0.5)];
    let (run, other) = (desk.process(&both), desk.process(&both[1..]));
    let hit = stopped(&run, 0.6);
    assert_eq!(hit.limit.name(), "budget small");
    assert_eq!(desk.seen(&both[0], NOON), (0.0, 0.0));
    let in_the_way = reserved(&other, 0.4);
    assert!(waits(&run, 0.3));
    assert_eq!(desk.seen(&both[0], NOON), (0.0, 0.0), "who waits holds nothing");
    drop(in_the_way);
    Box::new(reserved(&run, 0.3)).settle(Money::from_usd(0.2));
    assert_eq!((desk.seen(&both[0], NOON).0, desk.seen(&both[1], NOON).0), (0.2, 0.2));
    // A ledger that cannot be written gives back what was reserved before it.
    let small = desk.ledger("small", "2026-11-17");
    fs::write(&small, "{\"begun\":{\"picodollars\":0}}\nnonsense\n").unwrap();
    assert!(matches!(attempted(&run, &exactly(0.1), NOON), Err(ReserveError::Unkept(_))));
    assert_eq!(desk.seen(&both[0], NOON), (0.2, 0.0));
}

#[test]
fn a_ledger_begins_with_what_runs_have_cost_in_the_period_and_the_project() {
    let desk = Desk::new();
    desk.costs("2026-11-15", "/a", 1.0);
    desk.costs("2026-11-16", "/a", 2.0);
    desk.costs("2026-11-17", "/b", 4.0);
    desk.costs("2026-11-30", "/a", 8.0);
    desk.costs("2026-12-01", "/a", 16.0);
    let of = |name: &str, per, project: Option<&str>| Budget {
        per,
        project: project.map(PathBuf::from),
        ..budget(name, 100.0)
    };
    for (budget, expected) in [
        (of("a", PeriodLength::Day, None), 4.0),
        (of("b", PeriodLength::Week, None), 6.0),
        (of("c", PeriodLength::Month, None), 15.0),
        (of("d", PeriodLength::Month, Some("/a")), 11.0),
        (of("e", PeriodLength::Month, Some("/a/b")), 0.0),
    ] {
        let run = desk.process(std::slice::from_ref(&budget));
        assert_eq!(desk.seen(&budget, NOON), (expected, 0.0), "{budget:?}");
        drop(run);
        // What comes later is in the ledger itself.
        desk.costs("2026-11-17", "/a", 0.0);
    }
    let changed = of("d", PeriodLength::Month, Some("/b"));
    let error = desk.try_process(&[changed], NOON).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("is of another project; give it another name"), "{error}");
}

#[test]
fn damage_is_an_error_and_half_of_a_line_is_not() {
    let whole = "{\"begun\":{\"picodollars\":5}}\n";
    for (text, expected) in [
        ("nonsense\n", "line 1 is damaged"),
        ("{\"spent\":{\"picodollars\":5}}\n", "line 1 is damaged: it does not say what was spent before"),
        (&format!("{whole}{{\"reserved\":{{\"holder\":\"a\"}}}}\n"), "line 2 is damaged"),
        (&format!("{whole}{whole}"), "line 2 is damaged: it begins again"),
        (&format!("{whole}\n"), "line 2 is damaged"),
        (&format!("{whole}{{\"settled\":{{\"holder\":\"a\",\"number\":1,\"picodollars\":1}}}}\n"), "was not reserved"),
        (
            &format!("{whole}{{\"reserved\":{{\"holder\":\"../a\",\"number\":1,\"picodollars\":1}}}}\n"),
            "no name of ours",
        ),
        (&format!("{whole}{{\"spent\":{{\"picodollars\":-1}}}}\n"), "line 2 is damaged"),
        (&format!("{whole}{{\"spent\":{{\"picodollars\":1,\"by\":\"me\"}}}}\n"), "line 2 is damaged"),
    ] {
        let desk = Desk::new();
        drop(desk.process(&[budget("everyday", 1.0)]));
        let path = desk.ledger("everyday", "2026-11-17");
        fs::write(&path, text).unwrap();
        let error = desk.try_process(&[budget("everyday", 1.0)], NOON).map(|_| ()).unwrap_err().to_string();
        let begins = format!("the budget `everyday` cannot be kept: {}", path.display());
        assert!(error.starts_with(&begins) && error.contains(expected), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing is reset");
    }
    let desk = Desk::new();
    let everyday = [budget("everyday", 1.0)];
    let run = desk.process(&everyday);
    let path = desk.ledger("everyday", "2026-11-17");
    let before = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{before}{{\"reserved\":{{\"hol")).unwrap();
    Box::new(reserved(&run, 0.5)).settle(Money::from_usd(0.5));
    assert_eq!(desk.seen(&everyday[0], NOON), (0.5, 0.0));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
}

#[test]
fn a_ledger_that_grows_is_rewritten_as_sums_and_everybody_goes_on() {
    let desk = Desk::new();
    let everyday = [budget("everyday", 1_000.0)];
    let (one, two) = (desk.process(&everyday), desk.process(&everyday));
    let kept = reserved(&two, 7.0);
    let path = desk.ledger("everyday", "2026-11-17");
    let (mut longest, mut rewritten, mut count) = (0, 0, 0_u64);
    while rewritten < 2 {
        Box::new(reserved(if count % 3 == 0 { &two } else { &one }, 0.01)).settle(Money::from_usd(0.001));
        count += 1;
        let length = fs::metadata(&path).unwrap().len();
        rewritten += u64::from(length < longest);
        longest = length;
        assert!(longest <= (1 << 20) + 200 && count < 40_000, "{longest} bytes after {count}");
    }
    let spent = Money::mills(count).usd();
    assert_eq!(desk.seen(&everyday[0], NOON), (spent, 7.0));
    Box::new(kept).settle(Money::from_usd(1.0));
    assert_eq!(desk.seen(&everyday[0], NOON), (Money::mills(count + 1000).usd(), 0.0));
    // What is left of a long ledger of an earlier day is its sum.
    for _ in 0..100 {
        Box::new(reserved(&one, 0.01)).settle(Money::ZERO);
    }
    drop((one, two));
    drop(desk.try_process(&everyday, NOON + DAY).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
    assert_eq!(desk.seen(&everyday[0], NOON), (Money::mills(count + 1000).usd(), 0.0));
    assert_eq!(fs::read_dir(desk.layout().budget("everyday").join("holders")).unwrap().count(), 0);
}

#[test]
fn what_costs_nothing_needs_no_budget_and_what_a_provider_charges_all_the_same_is_counted() {
    let desk = Desk::new();
    let everyday = [Budget { warn_at: Some(0.5), ..budget("everyday", 1.0) }];
    let book = BudgetBook::new(desk.layout(), everyday.to_vec(), utc());
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let BudgetsInForce(run) = book.open_for(Path::new("/p")).unwrap().unwrap();
    let near = executor.block_on(async {
        let paid = run.reserve(exactly(0.9)).await.unwrap().settle(Money::from_usd(1.0));
        let free = run.reserve(exactly(0.0)).await.unwrap().settle(Money::from_usd(0.25));
        assert!(run.reserve(exactly(0.1)).await.is_err());
        [paid, free].concat()
    });
    assert_eq!(near.len(), 1, "told once in a run");
    let standings = book.standings().unwrap();
    assert_eq!((standings[0].spent, standings[0].reserved, standings[0].left()), (1.25, 0.0, 0.0));
    let other = Budget { project: Some("/q".into()), ..budget("other", 1.0) };
    assert!(BudgetBook::new(desk.layout(), vec![other], utc()).open_for(Path::new("/p")).unwrap().is_none());
    assert!(!desk.layout().budget("other").exists(), "no file is made for what is not in force");
}

#[test]
fn a_request_that_waits_goes_as_soon_as_there_is_room_and_nothing_is_settled_late() {
    let desk = Desk::new();
    let everyday = [budget("everyday", 1.0)];
    let settled: Arc<Notify> = Arc::default();
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let today = PeriodLength::Day.around(CalendarDay::of(now(), &utc()));
    let process = || {
        let open = OpenBudget::open(&everyday[0], &desk.layout(), &today, &settled).unwrap();
        RunBudgets {
            budgets: vec![Arc::new(open)],
            zone: utc(),
            told: Arc::default(),
            raised: Mutex::default(),
            kept: Mutex::default(),
            settled: Arc::default(),
        }
    };
    let (one, two) = (process(), process());
    executor.block_on(async {
        let first = one.reserve(exactly(0.8)).await.unwrap();
        let second = two.reserve(exactly(0.8));
        let settle = async {
            tokio::task::yield_now().await;
            first.settle(Money::from_usd(0.1));
        };
        let (second, ()) = tokio::join!(second, settle);
        second.unwrap().settle(Money::from_usd(0.2));
        // The ledger is held by somebody else: it is written down as soon as it is free.
        let third = one.reserve(exactly(0.6)).await.unwrap();
        let lock = loop {
            match two.budgets[0].try_lock().unwrap() {
                Some(lock) => break lock,
                None => tokio::task::yield_now().await,
            }
        };
        third.settle(Money::from_usd(0.5));
        drop(lock);
        let fourth = two.reserve(exactly(0.2)).await.unwrap();
        drop(fourth);
    });
    assert_eq!(desk.seen(&everyday[0], now()), (0.8, 0.0));
}

/// What happens next in a schedule.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A holder asks for so many mills, of an answer between these lengths.
    Ask { holder: usize, fixed: u64, longest: u64 },
    /// One of its requests ends at this share of its reservation.
    Settle { holder: usize, which: usize, percent: u64 },
    /// It is killed, and another comes in its place.
    Kill { holder: usize },
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let holder = 0_usize..5;
    let ask = (holder.clone(), 1_u64..60, 0_u64..80);
    let settle = (holder.clone(), 0_usize..8, 0_u64..=100);
    prop::collection::vec(
        prop_oneof![
            5 => ask.prop_map(|(holder, fixed, longest)| Happening::Ask { holder, fixed, longest }),
            4 => settle.prop_map(|(holder, which, percent)| Happening::Settle { holder, which, percent }),
            1 => holder.prop_map(|holder| Happening::Kill { holder }),
        ],
        1..120,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Two budgets, five holders, and whatever order they ask, are answered and are killed in: what can have been sent never
    /// comes to more than either budget, nothing is lost, and only what was spent stops.
    #[test]
    fn budgets_are_never_passed_and_only_spent_money_stops(schedule in happenings()) {
        let desk = Desk::new();
        let both = [budget("day", 0.7), Budget { per: PeriodLength::Week, ..budget("week", 0.5) }];
        let (least, dollar) = (Money::from_usd(0.5), Money::from_usd(0.7));
        let mut holders: Vec<(RunBudgets, VecDeque<(BudgetReservation, Money)>)> =
            (0..5).map(|_| (desk.process(&both), VecDeque::new())).collect();
        let mut spent = Money::ZERO;
        for happening in schedule {
            match happening {
                Happening::Ask { holder, fixed, longest } => {
                    let mill = Money::mills(1);
                    let fixed = Cost { money: mill.times(fixed), ..Cost::REQUEST };
                    let wish = Wish { per_token: mill, longest: longest + 4, least: 4, ..Wish::exactly(fixed) };
                    match attempted(&holders[holder].0, &wish, NOON) {
                        Ok(ReserveAttempt::Reserved(reserved)) => {
                            let amount = wish.cost(reserved.longest).money;
                            holders[holder].1.push_back((reserved, amount));
                        }
                        Ok(ReserveAttempt::Waits | ReserveAttempt::Busy) => {
                            prop_assert!(holders.iter().any(|(_, open)| !open.is_empty()), "it waits for nobody");
                        }
                        Err(ReserveError::Limit(hit)) => {
                            prop_assert!(spent.plus(wish.cost(4).money) > least, "{hit:?} though {spent:?} was spent");
                        }
                        Err(ReserveError::Unkept(reason)) => prop_assert!(false, "{reason}"),
                    }
                }
                Happening::Settle { holder, which, percent } => {
                    let open = &mut holders[holder].1;
                    if which < open.len() && let Some((reserved, amount)) = open.remove(which) {
                        let cost = Money::from_picodollars(amount.picodollars() / 100 * percent);
                        spent = spent.plus(cost);
                        Box::new(reserved).settle(cost);
                    }
                }
                Happening::Kill { holder } => {
                    let fresh = desk.process(&both);
                    let (run, open) = std::mem::replace(&mut holders[holder], (fresh, VecDeque::new()));
                    spent = open.iter().fold(spent, |sum, (_, amount)| sum.plus(*amount));
                    kill(&desk, run, open.into_iter().map(|(reserved, _)| reserved).collect());
                }
            }
            let open = holders.iter().flat_map(|(_, open)| open).fold(Money::ZERO, |sum, (_, amount)| sum.plus(*amount));
            prop_assert!(spent.plus(open) <= least && spent.plus(open) <= dollar, "{spent:?} and {open:?}");
            for budget in &both {
                prop_assert_eq!(desk.seen(budget, NOON), (spent.usd(), open.usd()));
            }
        }
    }
}
