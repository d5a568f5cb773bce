//! One round of a run: from its record, as it came out of the engine, through the phases of the hall to where it ends or waits. It has a
//! thread of its own, because whoever writes its journal waits for the engine, and the engine is spoken to elsewhere.

use std::path::PathBuf;
use std::sync::Arc;

use llm_do::records::{Durability, EndState, Matching, RunEnd};
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do::trust::{Fingerprint, TrustItem};
use llm_do::{Limits, WorkingDirectory, process};
use llm_do_launch::error::LaunchError;
use llm_do_launch::keep::{KeepNeed, KeepPlan, RunKeeper, RunSubject};
use llm_do_launch::launch::{ListenPlan, Record};
use llm_do_launch::open_run::{OpenRun, RunPlace};
use llm_do_launch::record::{Author, LaunchOverrides, RunHeader};
use llm_do_launch::session::SessionLength;
use llm_do_launch::settings::Settings;

use crate::words::Start;

/// A project as its worker was started with it: somebody agreed to what it asks for.
#[derive(Clone)]
pub struct DeployedProject {
    /// What it is called at the engine.
    pub name: String,
    pub path: PathBuf,
    pub directory: WorkingDirectory,
    pub agreed: Vec<TrustItem>,
    pub files: Fingerprint,
    /// A digest of its files.
    pub program: String,
}

/// All that a round needs.
pub struct RunRound {
    pub project: Arc<DeployedProject>,
    /// With a state that is this run's alone.
    pub settings: Arc<Settings>,
    pub overrides: LaunchOverrides,
    pub store: RunStore,
    pub run: RunId,
    pub start: Start,
    /// Limits that were raised since.
    pub limits: Limits,
}

/// Why a round did not come to its end.
#[derive(Debug)]
pub enum RoundError {
    /// This worker has another program: one of the right version goes on.
    Program(String),
    /// The run cannot begin, and never will.
    Unusable(String),
    /// It broke off, and is tried again.
    BrokenOff(String),
}

impl RunRound {
    /// Until the run ends or waits for somebody.
    pub fn run(self) -> Result<RunEnd, RoundError> {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let executor = executor.map_err(|error| RoundError::BrokenOff(error.to_string()))?;
        let (store, run) = (self.store.clone(), self.run);
        let ended = process::with_room(|| executor.block_on(self.taken()));
        executor.shutdown_background();
        ended?;
        // What it says is what a later attempt will find.
        let contents = store.read_journal(&run).map_err(|error| RoundError::BrokenOff(error.to_string()))?;
        contents.ended().cloned().ok_or_else(|| RoundError::BrokenOff("its record has no end".to_owned()))
    }

    async fn taken(self) -> Result<(), RoundError> {
        let Self { project, settings, overrides, store, run, start, limits } = self;
        let unusable = |error: LaunchError| RoundError::Unusable(error.fact());
        let broken = |error: LaunchError| RoundError::BrokenOff(error.fact());
        let (path, directory) = (project.path.clone(), project.directory.clone());
        let mut launch = start.flags.clone().launch(path, directory, overrides).map_err(unusable)?;
        launch.policy.limits = limits.or(&launch.policy.limits);
        launch.policy.is_attended = false;
        let surveyed = launch.survey(&settings).map_err(unusable)?;
        same(&project.files, &surveyed.project().fingerprint())?;
        let trusted = surveyed.trust_as(&project.agreed).map_err(unusable)?;
        let linked = Box::pin(trusted.link()).await.map_err(unusable)?;
        linked.check_keys().map_err(unusable)?;
        let subject = RunSubject::of(linked.program());
        let record = if store.layout().journal(&run).exists() {
            let place = RunPlace::Store(store.clone(), run);
            let open = OpenRun::open(place, Author::User, &settings).map_err(broken)?;
            same(&open.header.files, &linked.files)?;
            open.resume(&linked.files, Matching::Exact, Some(Durability::Written), subject, &settings)
                .map_err(broken)?
        } else {
            let header =
                RunHeader::begin(&linked.launch, linked.files.clone(), start.input.clone()).map_err(unusable)?;
            let plan = KeepPlan {
                kind: start.kind,
                label: start.label,
                durability: Durability::Written,
                need: KeepNeed::Required,
                once: None,
                id: None,
            };
            RunKeeper::begin_as(run, &settings, store, &plan, subject, header).map_err(broken)?
        };
        let input = start.input.ok_or_else(|| RoundError::Unusable("nothing was said to it".to_owned()))?;
        let ready = linked.ready(Record::Known(record), None).map_err(unusable)?;
        let (session, mut updates) =
            ready.start(ListenPlan { length: SessionLength::OneTurn, ..ListenPlan::default() });
        let _turn = session.turn(input);
        session.close();
        while updates.next().await.is_some() {}
        Ok(())
    }
}

/// Whether these are the files that a run began with.
fn same(then: &Fingerprint, now: &Fingerprint) -> Result<(), RoundError> {
    let changes = then.changes(now);
    if changes.is_empty() {
        return Ok(());
    }
    Err(RoundError::Program(format!(
        "this worker has another program than the run began with ({}): a worker with that one goes on",
        changes.join(", ")
    )))
}

/// Whether somebody has to say something before the run goes on.
pub fn waits(end: &RunEnd) -> bool {
    matches!(end.state, EndState::Waits | EndState::Stopped)
}
