//! One program, many runs: one for each item of a list, which share what they may spend.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::mpsc;

use super::record::PriorSpending;
use super::totals::RunTotals;
use super::{Runtime, gate, heard};
use crate::event::{AgentSpending, Event, Events, Listen};
use crate::journal::file::FileJournal;
use crate::journal::record::JournalContents;
use crate::journal::requests::requests;
use crate::journal::{Journal, Steps};
use crate::telemetry::TracePrior;

/// Where the steps of one item are recorded, and what earlier processes did for it.
#[derive(Default)]
pub struct ItemRecord {
    engine: Option<Arc<dyn Journal>>,
    resumed: PriorSpending,
    /// What was counted for all items before.
    counted: Vec<AgentSpending>,
    /// What is known of its spans, and where it is noted that a collector has them.
    traced: Option<TracePrior>,
    journal: Option<Weak<FileJournal>>,
    /// Where it is told what is worth a line; nobody hears it otherwise.
    told: Option<Events>,
}

impl ItemRecord {
    /// The record of an item that begins.
    pub fn begun(journal: &Arc<FileJournal>) -> Self {
        let engine = Some(Arc::clone(journal) as Arc<dyn Journal>);
        Self { engine, journal: Some(Arc::downgrade(journal)), ..Self::default() }
    }

    /// The record of one that goes on, which says this.
    pub fn resumed(journal: &Arc<FileJournal>, contents: &JournalContents) -> Self {
        let (resumed, counted) = (PriorSpending::from(contents), spending_of(contents));
        Self { resumed, counted, traced: Some(TracePrior::from(contents)), ..Self::begun(journal) }
    }

    /// The same, of which somebody hears what is worth a line.
    pub fn telling(self) -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, told) = Events::new(Listen::Exceptions);
        (Self { told: Some(events), ..self }, told)
    }
}

/// A run of one item. What it takes is counted where the whole is when it ends.
pub struct ItemRun<'m> {
    whole: &'m Runtime,
    own: Runtime,
    counted: Vec<AgentSpending>,
}

impl Runtime {
    /// A further run of the same program, under a name of its own: its gate, its totals and its record are its own, and it
    /// spends what this one may spend. Nobody hears its events but whom its record tells them to.
    pub fn with_record(&self, name: String, record: ItemRecord) -> ItemRun<'_> {
        let ItemRecord { engine, mut resumed, counted, traced, journal, told } = record;
        let telemetry = self.telemetry.as_ref().map(|whole| whole.beside(name.clone(), traced, journal));
        let gate = gate(name, &self.config, &self.program);
        if let Some(known) = &self.config.approvals.known {
            resumed.answered(gate.run(), known.as_ref());
        }
        let session = Arc::new(RunTotals::default());
        resumed.account_to(&session);
        let events = heard(told.unwrap_or_else(Events::unheard), &session, &self.config, telemetry.as_ref());
        let own = Self {
            program: Arc::clone(&self.program),
            models: Arc::clone(&self.models),
            config: Arc::clone(&self.config),
            gate,
            session,
            ledger: Arc::clone(&self.ledger),
            account: self.account,
            steps: engine.map_or_else(Steps::unrecorded, Steps::recorded_by),
            resumed,
            events,
            telemetry,
            entered: AtomicU64::new(0),
            said: Mutex::default(),
            servers: Arc::clone(&self.servers),
            held: Mutex::default(),
            heads: Arc::clone(&self.heads),
            prices: Arc::clone(&self.prices),
            asking: Arc::clone(&self.asking),
        };
        own.raise_as_before(self.account);
        ItemRun { whole: self, own, counted }
    }

    /// What earlier processes spent for an item counts here, whether the item is taken up again or not.
    pub fn carry_over(&self, contents: &JournalContents) {
        self.ledger.carry_over(self.account, PriorSpending::from(contents).total());
        self.session.add(&spending_of(contents), &[]);
    }
}

impl ItemRun<'_> {
    /// The runtime of the item.
    pub fn runtime(&self) -> &Runtime {
        &self.own
    }

    /// Whether a model was asked in this process.
    pub fn has_asked(&self) -> bool {
        let before: u64 = self.counted.iter().map(|spent| spent.usage.requests).sum();
        self.own.session.sums().0.requests > before
    }

    /// Whether no model was asked in any process, since all replies were known.
    pub fn is_cached(&self) -> bool {
        let (total, saved) = self.own.session.sums();
        total.requests == 0 && saved.requests > 0
    }
}

/// However it ends, also if it is dropped.
impl Drop for ItemRun<'_> {
    fn drop(&mut self) {
        self.whole.session.add(&self.own.session.spending(), &self.counted);
        self.whole.session.save(&self.own.session.sums().1);
        self.whole.session.refuse(self.own.session.refused());
    }
}

/// What each agent used of each model, as a record tells it.
fn spending_of(contents: &JournalContents) -> Vec<AgentSpending> {
    let sums = RunTotals::default();
    let each = requests(contents).into_iter();
    let each: Vec<AgentSpending> = each
        .map(|request| AgentSpending { agent: request.agent, model: request.model, usage: request.usage })
        .collect();
    sums.add(&each, &[]);
    sums.spending()
}
