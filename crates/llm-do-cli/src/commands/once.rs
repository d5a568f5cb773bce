//! `run --once KEY`, started again: the process attaches to the run that has the key.

use std::sync::Arc;
use std::time::Duration;

use llm_do::records::{self, JournalContents};
use llm_do::remedy::Remedy;
use llm_do::store::layout::RunId;
use llm_do::store::run::RunStore;
use llm_do_launch::error::LaunchError;
use llm_do_launch::open_run::{OpenRun, RunPlace};
use llm_do_launch::record::{Author, RunHeader};
use llm_do_launch::settings::Settings;

use super::resume;
use super::runs::follow;
use crate::args::{ConductArgs, ResumeArgs};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::plan;
use crate::report::{RunReport, not_begun};
use crate::signals::Signals;

/// So often it is looked whether the other process has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for a run that goes on, tells the answer of one that is done again, and goes on with any other. The exit code is the
/// run's own.
pub fn attach(id: &RunId, said: Option<&str>, conduct: ConductArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = Arc::new(environment.settings_of_run(&conduct)?);
    let format = plan::output_format(&conduct);
    let RunPlace::Store(store, id) = RunPlace::in_store(id.as_str(), &settings)? else {
        return Err(Failure::failed(format!("the run `{id}` is gone")));
    };
    let place = RunPlace::Store(store.clone(), id);
    same_input(&place, said, &settings).map_err(|failure| not_begun(failure, format))?;
    if !wait(&store, &id)? {
        match OpenRun::open(place.clone(), Author::User, &settings) {
            Ok(open) => {
                let args = ResumeArgs::of_run(id.as_str(), conduct);
                return resume::run_open(open, &args, &environment, &settings);
            }
            // Another process that attaches was faster: this one waits for what becomes of it.
            Err(LaunchError::Failed { remedy: Some(Remedy::ShowRun), .. }) => wait(&store, &id).map(drop)?,
            Err(error) => return Err(not_begun(error.into(), format)),
        }
    }
    let contents = place.read(Author::User, &settings)?;
    match records::outcome(&contents) {
        Some(outcome) => {
            let mut output = plan::output(&conduct, &environment);
            output.view.streamed = false;
            RunReport::recorded(outcome, id.to_string()).report(&output)
        }
        None => follow::exit(&id, &contents).map_err(|failure| not_begun(failure, format)),
    }
}

/// One key is for one input: whoever gives another one has made a mistake.
fn same_input(place: &RunPlace, said: Option<&str>, settings: &Settings) -> Result<(), Failure> {
    let contents: JournalContents = place.read(Author::User, settings)?;
    let header = RunHeader::of(&contents, &place.file())?;
    if header.once.as_deref() == said {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the key of `--once` belongs to the run {}, to which something else was said",
        header.run
    ))
    .hint("another input needs another key; nothing was changed"))
}

/// Whether another process ran it, which has ended now.
fn wait(store: &RunStore, id: &RunId) -> Result<bool, Failure> {
    let lost = |error: std::io::Error| Failure::failed(format!("the run `{id}` cannot be followed: {error}"));
    if !store.is_running(id).map_err(lost)? {
        return Ok(false);
    }
    let executor = executor()?;
    let ended = executor.block_on(async {
        let mut signals = Signals::listen()?;
        while store.is_running(id).map_err(lost)? {
            tokio::select! {
                signal = signals.next() => return Err(signal.stops().failure()),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        Ok(true)
    });
    executor.shutdown_background();
    ended
}
