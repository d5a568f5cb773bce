//! One agent over many items: each in a run of its own, so many at once, results in the order of the input.

pub mod order;
pub mod progress;
pub mod sink;
pub mod source;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llm_do::store::items::ItemName;
use llm_do::store::layout::HexDigest;
use llm_do::toolsets::Ending;
use llm_do::{CancellationToken, RunError};
use llm_do_launch::items::{ItemAnswer, ItemEnd, ItemRuns, KnownItem, is_of_all};
use llm_do_launch::keep::EndReason;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::console::{self, StdoutReader};
use crate::countdown::Countdown;
use crate::failure::Failure;
use crate::signals::{Signals, StopReason};
use crate::terminal::render::{Verbosity, View};
use crate::terminal::style::{Style, fit};
use crate::terminal::summary;
use crate::{commands::resume, report};
use order::ResultOrder;
use progress::{ItemCounts, grouped};
use sink::{ResultSink, result_line};
use source::{ItemSource, ListItem};

/// How items are worked through.
pub struct ItemsPlan {
    pub source: ItemSource,
    /// How many there are.
    pub total: u64,
    /// The base of paths in the source.
    pub directory: PathBuf,
    /// How many at once.
    pub jobs: usize,
    /// After so many nothing more is begun.
    pub max_failures: Option<u64>,
    pub output: Option<PathBuf>,
    pub view: View,
    pub timeout: Option<Duration>,
    /// The limit of the money that is shown.
    pub limit: Option<f64>,
    /// Whether an earlier process has worked at them.
    pub is_resumed: bool,
}

/// So many results may wait for one before them.
const FARTHEST: usize = 4096;
const TICK: Duration = Duration::from_millis(100);

/// Works through all items, to the report.
pub async fn attend(items: ItemRuns, plan: ItemsPlan) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let sink = ResultSink::open(plan.output.clone())?;
    let reader = if sink.is_file() { StdoutReader::of_nobody() } else { StdoutReader::of_stdout() };
    if plan.is_resumed {
        items.carry_over()?;
    }
    let mut work = ItemsAtWork {
        items: Arc::new(items),
        counts: ItemCounts { total: plan.total, ..ItemCounts::default() },
        failures: 0,
        order: ResultOrder::default(),
        sink,
        asked: JoinSet::new(),
        under_way: HashMap::new(),
        seen: HashMap::new(),
        cancelled: CancellationToken::new(),
        ended: ItemsEnd::default(),
        started: Instant::now(),
        plan,
    };
    let worked = work.through(signals, reader).await;
    work.close(worked).await
}

/// Why nothing more is begun, and what is left to say about it.
#[derive(Default)]
struct ItemsEnd {
    stopped: Option<StopReason>,
    /// What concerns all items, such as a limit.
    error: Option<RunError>,
    /// The first item that waits.
    waits: Option<RunError>,
    is_full: bool,
}

impl ItemsEnd {
    fn begins_no_more(&self) -> bool {
        self.stopped.is_some() || self.error.is_some() || self.is_full
    }
}

struct ItemsAtWork {
    items: Arc<ItemRuns>,
    plan: ItemsPlan,
    counts: ItemCounts,
    /// How many have failed that did not fail before.
    failures: u64,
    order: ResultOrder,
    sink: ResultSink,
    asked: JoinSet<ItemEnd>,
    under_way: HashMap<Id, ListItem>,
    /// How often each item has come.
    seen: HashMap<HexDigest, u64>,
    cancelled: CancellationToken,
    ended: ItemsEnd,
    started: Instant,
}

impl ItemsAtWork {
    async fn through(&mut self, mut signals: Signals, reader: StdoutReader) -> Result<(), Failure> {
        signals.settle();
        let _watch = self.items.clone().keeper().and_then(|keeper| keeper.listens_for(&self.cancelled));
        let mut countdown = Countdown::of(self.plan.timeout);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut coming, mut has_more) = (read(self.plan.source.clone(), self.plan.jobs), true);
        let cancelled = self.cancelled.clone();
        loop {
            has_more &= self.reads_on();
            if !has_more && self.asked.is_empty() {
                return Ok(());
            }
            let has_room = self.has_room();
            let is_running = self.ended.stopped.is_none();
            tokio::select! {
                biased;
                signal = signals.next() => match self.ended.stopped {
                    None => self.stop(signal.stops()),
                    Some(_) => return Err(signal.stops().failure()),
                },
                () = countdown.over(), if is_running => self.stop(StopReason::TimedOut(self.plan.timeout.unwrap_or_default())),
                () = reader.gone(), if is_running => self.stop(StopReason::Unread),
                () = cancelled.cancelled(), if is_running => self.stop(StopReason::Cancelled),
                Some(ended) = self.asked.join_next_with_id(), if !self.asked.is_empty() => {
                    self.ended(ended)?;
                    // Its place is taken at once, if there is somebody to take it.
                    if has_more && self.reads_on() && self.has_room() && let Ok(item) = coming.try_recv() {
                        self.take(item?)?;
                    }
                }
                item = coming.recv(), if has_more && has_room => match item {
                    Some(item) => self.take(item?)?,
                    None => has_more = false,
                },
                _ = tick.tick(), if self.plan.view.live => self.draw(),
            }
        }
    }

    fn has_room(&self) -> bool {
        self.asked.len() < self.plan.jobs && self.order.waiting() < FARTHEST
    }

    /// Where nothing more is begun, what is answered already still belongs to the results.
    fn reads_on(&self) -> bool {
        !self.ended.begins_no_more() || (self.plan.is_resumed && self.ended.stopped.is_none())
    }

    fn stop(&mut self, reason: StopReason) {
        self.ended.stopped = Some(reason);
        self.cancelled.cancel();
    }

    /// An item has come: it is answered already, or asked about.
    fn take(&mut self, item: ListItem) -> Result<(), Failure> {
        let (input, digest) = match item.content.clone().input(&self.plan.directory) {
            Ok(read) => read,
            Err(reason) => return self.fail(&item, &reason, false),
        };
        let before = self.seen.entry(digest.clone()).or_default();
        let name = ItemName::new(&digest, *before);
        *before += 1;
        let known = match self.known(&name) {
            Ok(KnownItem::Answered(output)) => {
                self.counts.known += 1;
                let lines = self.order.put(item.number, Some(result_line(item.number, &output)));
                return self.sink.results(&lines);
            }
            Ok(KnownItem::Begun(open)) => Some(*open),
            Ok(KnownItem::New) => None,
            Err(failure) => return self.fail(&item, &failure.words().0, false),
        };
        if self.ended.begins_no_more() {
            return Ok(());
        }
        let (items, cancelled) = (Arc::clone(&self.items), self.cancelled.clone());
        let task = self.asked.spawn(async move { items.ask(&name, known, input, &cancelled).await });
        self.under_way.insert(task.id(), item);
        Ok(())
    }

    /// Nothing is known of any item where no earlier process has worked.
    fn known(&self, name: &ItemName) -> Result<KnownItem, Failure> {
        if self.plan.is_resumed { Ok(self.items.known(name)?) } else { Ok(KnownItem::New) }
    }

    /// An item has come to its end.
    fn ended(&mut self, ended: Result<(Id, ItemEnd), JoinError>) -> Result<(), Failure> {
        let (id, answer) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                let answer = Err(RunError::Panicked { words: error.to_string() });
                (error.id(), ItemEnd { answer, notices: Vec::new(), is_known: false })
            }
        };
        let ItemEnd { answer, notices, is_known } = answer;
        let Some(item) = self.under_way.remove(&id) else { return Ok(()) };
        for notice in notices {
            self.clear();
            console::complain(&format!("note: item {}: {}\n", item.number, crate::failure::marked(&notice)));
        }
        match answer {
            Ok(ItemAnswer { output, is_cached }) => {
                self.counts.answered += 1;
                self.counts.cached += u64::from(is_cached);
                let lines = self.order.put(item.number, Some(result_line(item.number, &output)));
                self.sink.results(&lines)
            }
            Err(error @ RunError::Ended(Ending::NeedsApproval(_))) => {
                self.counts.waiting += 1;
                self.ended.waits.get_or_insert(error);
                let lines = self.order.put(item.number, None);
                self.sink.results(&lines)
            }
            // It can be asked again.
            Err(RunError::Cancelled { .. }) => Ok(()),
            Err(error) if is_of_all(&error) => {
                self.ended.error.get_or_insert(error);
                Ok(())
            }
            Err(error) => self.fail(&item, &error.to_string(), is_known),
        }
    }

    /// Failures that an earlier process knew do not count again: it would end where that one did.
    fn fail(&mut self, item: &ListItem, reason: &str, is_known: bool) -> Result<(), Failure> {
        self.counts.failed += 1;
        self.failures += u64::from(!is_known);
        self.ended.is_full |= self.plan.max_failures.is_some_and(|most| self.failures >= most);
        let is_told = match self.plan.view.verbosity {
            Verbosity::Quiet | Verbosity::Messages => false,
            Verbosity::Normal => !self.sink.is_file(),
            Verbosity::Calls | Verbosity::Text => true,
        };
        if is_told {
            self.clear();
        }
        self.sink.failure(item.number, &item.content.shown(), reason, is_told)?;
        let lines = self.order.put(item.number, None);
        self.sink.results(&lines)
    }

    fn draw(&self) {
        let usage = self.items.runtime().usage().total;
        let line = self.counts.line(&usage, self.plan.limit, self.started.elapsed());
        let line = fit(&line, console::columns().unwrap_or(80).saturating_sub(1));
        console::complain(&format!("\r{}\u{1b}[K", self.plan.view.stderr.paint(Style::Dim, &line)));
    }

    fn clear(&self) {
        if self.plan.view.live {
            console::complain("\r\u{1b}[K");
        }
    }

    /// Writes down how it ended, and says so.
    async fn close(mut self, worked: Result<(), Failure>) -> Result<(), Failure> {
        let order = std::mem::take(&mut self.order);
        let worked = worked.and(self.sink.results(&order.rest()));
        // What is still under way when the process has to end at once is left as it is recorded.
        self.asked.abort_all();
        let Self { items, counts, ended, plan, sink, .. } = &self;
        if let Some(keeper) = items.keeper() {
            keeper.has_answered(counts.answered + counts.known);
            match ended.stopped {
                Some(stopped) => keeper.ends_by(stopped.end_reason()),
                None if worked.is_err() || counts.failed > 0 => keeper.ends_by(EndReason::Failed),
                None => {}
            }
        }
        let last = ended.error.as_ref().or(ended.waits.as_ref()).filter(|_| ended.stopped.is_none());
        items.end(last).await;
        self.clear();
        let is_wanted = !matches!(plan.view.verbosity, Verbosity::Quiet | Verbosity::Messages);
        if is_wanted {
            let usage = items.runtime().usage();
            let run = items.resumption().is_some().then(|| items.run_id());
            let took =
                summary::line(self.started.elapsed(), (&usage.total, &usage.saved), run, ended.stopped.is_some());
            let said = format!("{}\n{}", counts.summary(), took.trim_end());
            let lines = said.lines().map(|line| format!("{}\n", plan.view.stderr.paint(Style::Dim, line)));
            console::complain(&lines.collect::<String>());
        }
        worked?;
        self.verdict(sink.errors())?;
        match console::delivered() {
            Err(failure) if failure.is_stop() && sink.is_file() => Ok(()),
            delivered => delivered,
        }
    }

    /// Success, or the worst of what happened.
    fn verdict(&self, errors: Option<&Path>) -> Result<(), Failure> {
        let Self { items, counts, ended, .. } = self;
        let resumption = items.resumption();
        let go_on = resumption.map(|run| format!("`{}`", resume::command(run)));
        if let Some(stopped) = ended.stopped {
            return Err(report::failure(RunError::Cancelled { partial: String::new() }, Some(stopped), resumption));
        }
        if let Some(error) = &ended.error {
            return Err(resume::failure(error.clone(), resumption));
        }
        let items = |count: u64| if count == 1 { "item" } else { "items" };
        if counts.waiting > 0 {
            let verb = if counts.waiting == 1 { "waits" } else { "wait" };
            let fact = format!("{} {} {verb} for an approval", grouped(counts.waiting), items(counts.waiting));
            let go_on = go_on.map(|command| format!(", and {command} goes on behind the answers")).unwrap_or_default();
            return Err(Failure::refused(fact).hint(format!("`llm-do inbox` lists what is asked{go_on}")));
        }
        if counts.failed > 0 {
            let fact =
                format!("{} of {} {} failed", grouped(counts.failed), grouped(counts.total), items(counts.total));
            let said = errors.map(|path| format!("{} says why; ", path.display())).unwrap_or_default();
            let go_on =
                go_on.map_or_else(|| "they are in no record".to_owned(), |go| format!("{go} takes them up again"));
            return Err(Failure::failed(fact).hint(format!("{said}{go_on}")));
        }
        let open = counts.total.saturating_sub(counts.done());
        if open > 0 {
            let verb = if open == 1 { "was" } else { "were" };
            let fact = format!("{} {} {verb} there no more when it came to them", grouped(open), items(open));
            return Err(Failure::failed(fact).hint("the list has changed since its items were counted"));
        }
        Ok(())
    }
}

/// Reads items on a thread of its own, only as far ahead as they are needed.
fn read(source: ItemSource, jobs: usize) -> mpsc::Receiver<Result<ListItem, Failure>> {
    let (sender, items) = mpsc::channel(jobs.max(16));
    tokio::task::spawn_blocking(move || {
        let each = |item| match sender.blocking_send(Ok(item)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        };
        let mut each = each;
        if let Err(failure) = source.each(&mut each) {
            // The file has changed since it was looked through.
            let _ = sender.blocking_send(Err(failure));
        }
    });
    items
}
