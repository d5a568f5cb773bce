//! `llm-do map`: from the arguments, or from the record of a run that goes on, to items at work.

use std::path::Path;
use std::sync::Arc;

use llm_do::Program;
use llm_do::program::{Entry, Typing};
use llm_do::records::{Durability, Matching};
use llm_do_launch::inbox::{Inbox, WaitingQuestion};
use llm_do_launch::items::MapRecord;
use llm_do_launch::keep::{KeepNeed, RunSubject, WrittenItems};
use llm_do_launch::launch::{CacheUse, Launch, LinkedLaunch, Record};
use llm_do_launch::open_run::{OpenRun, RunPlace};
use llm_do_launch::record::RunHeader;
use llm_do_launch::settings::Settings;
use serde_json::Value;

use super::inbox::{unanswered, unfound};
use super::resume::{Decisions, listed, unchanged};
use crate::args::{ItemFormatArg, MapArgs, ResumeArgs};
use crate::attend::with_model;
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::map::source::ItemSource;
use crate::map::{ItemsPlan, attend, sink};
use crate::plan::{self, Conduct, MapPlan};
use crate::{answer_file, console, terminal::trust};

pub fn run(args: MapArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = Arc::new(environment.settings_of_run(&args.conduct)?);
    begin(plan::map(args, &environment, &settings)?, &settings)
}

fn begin(plan: MapPlan, settings: &Arc<Settings>) -> Result<(), Failure> {
    let MapPlan { launch, conduct, map, keep } = plan;
    let written = match &keep {
        Some(plan) => WrittenItems::of(settings, plan.durability, plan.need),
        None => WrittenItems::of(settings, Durability::Written, KeepNeed::Wanted),
    };
    let work = MapWork { launch, conduct, map, is_resumed: false, matching: Matching::Exact };
    work.run(&written, settings, |linked, map| {
        let Some(plan) = keep else { return Ok(Record::Ephemeral) };
        let record = linked.kept(plan, None)?;
        Ok(match record {
            Record::Keep(plan, header) => Record::Keep(plan, Box::new(RunHeader { map: Some(map.clone()), ..*header })),
            other => other,
        })
    })
}

/// Goes on with a run over items: those that are answered stay so.
pub fn go_on(
    open: OpenRun,
    args: &ResumeArgs,
    environment: &Environment,
    settings: &Arc<Settings>,
) -> Result<(), Failure> {
    let Some(map) = open.header.map.clone() else {
        return Err(Failure::usage("the record of the run does not say where its items are"));
    };
    if open.is_foreign() {
        return Err(Failure::usage("a run over items goes on only where it was begun"));
    }
    let directory = open.header.working_directory()?;
    let open = open.reached_from(&directory);
    decide(&open, args, environment)?;
    let conduct = plan::unspoken(&args.conduct, &directory, environment)?;
    let overrides = plan::overrides(&args.conduct, &directory, environment, settings)?;
    let RunHeader { project, flags, files, .. } = open.header.clone();
    let durability = if flags.durable { Durability::Synced } else { settings.config.runs.durability() };
    let launch = flags.launch(project, directory, overrides)?;
    let written = WrittenItems::of(settings, durability, KeepNeed::Wanted);
    let mut work = MapWork { launch, conduct, map, is_resumed: true, matching: Matching::Exact };
    let changes = work.changes(&files)?;
    if !changes.is_empty() {
        unchanged(&changes, args.force)?;
        if work.conduct.output.view.tells_notes() {
            console::complain(&format!("note: the project has changed: {}\n", listed(&changes)));
        }
        work.matching = Matching::ForgiveModels;
    }
    let matching = work.matching;
    let again = Arc::clone(settings);
    work.run(&written, settings, move |linked, _| {
        let subject = RunSubject::of(linked.program());
        Ok(Record::Known(open.resume(&linked.files, matching, Some(durability), subject, &again)?))
    })
}

/// What is decided on the command line counts like an answer from anywhere: if it is the first.
fn decide(open: &OpenRun, args: &ResumeArgs, environment: &Environment) -> Result<(), Failure> {
    let RunPlace::Store(store, id) = open.place() else {
        return Err(Failure::usage("a run over items goes on only where it is kept"));
    };
    let mut inbox = Inbox::of(store.clone());
    let open: Vec<WaitingQuestion> =
        inbox.open().map_err(unfound)?.into_iter().filter(|open| open.run == *id).collect();
    let questions: Vec<_> = open.iter().map(|open| open.question.clone()).collect();
    let decisions = Decisions::of(args, &questions)?;
    for waiting in &open {
        if let Some(answer) = decisions.about(&waiting.question.id) {
            inbox.answer(waiting, answer, &environment.user()).map_err(|error| unanswered(waiting, error))?;
        }
    }
    Ok(())
}

/// A run over items before anything of the project has run.
struct MapWork {
    launch: Launch,
    conduct: Conduct,
    map: MapRecord,
    is_resumed: bool,
    matching: Matching,
}

impl MapWork {
    /// What has changed of the project since these were its files.
    fn changes(&self, files: &llm_do::trust::Fingerprint) -> Result<Vec<String>, Failure> {
        let project = llm_do::Project::load_from(&self.launch.project, &self.launch.directory);
        let project = project.map_err(|report| Failure::from(llm_do_launch::error::LaunchError::Project(report)))?;
        Ok(files.changes(&project.fingerprint()))
    }

    fn run(
        self,
        written: &WrittenItems,
        settings: &Arc<Settings>,
        record: impl FnOnce(&LinkedLaunch, &MapRecord) -> Result<Record, Failure>,
    ) -> Result<(), Failure> {
        let (colour, debug) = (self.conduct.colour, self.conduct.output.debug);
        let shown = |failure: Failure| if debug { failure } else { failure.plain() };
        self.worked(written, settings, record).map_err(|failure| shown(failure).coloured(colour))
    }

    fn worked(
        self,
        written: &WrittenItems,
        settings: &Arc<Settings>,
        record: impl FnOnce(&LinkedLaunch, &MapRecord) -> Result<Record, Failure>,
    ) -> Result<(), Failure> {
        let Self { mut launch, conduct, mut map, is_resumed, matching } = self;
        let directory = launch.directory.join(".");
        // What is typed now counts before what was typed then.
        map.output = conduct.output.file.clone().or(map.output);
        let output = map.output.as_ref().map(|file| launch.directory.join(file));
        if let Some(file) = &output {
            answer_file::check(file)?;
            launch.own_files.extend([file.clone(), sink::errors_of(file)]);
        }
        if !launch.project_path().exists() {
            let shown = launch.project.display().to_string();
            return Err(Failure::usage(format!("no such project: `{}`", llm_do::escape::visible(&shown))).hint(
                "`llm-do map AGENT PROJECT` takes the agent first; without PROJECT it is the current directory",
            ));
        }
        // Nobody is asked while items are worked at: an item that asks waits.
        launch.policy.is_attended = false;
        let surveyed = with_model(launch.survey(settings)?, conduct.attended, settings)?;
        let source = items_of(&map, &directory)?.for_schema(input_schema(surveyed.program()));
        if let Some(file) = &output {
            unread(&source, &directory, file)?;
        }
        let total = source.count()?;
        let executor = executor()?;
        let linking = async {
            let trusted = trust::settle(surveyed, &conduct.trust).await?;
            Ok::<_, Failure>(Box::pin(trusted.link()).await?)
        };
        let linked = match executor.block_on(linking) {
            Ok(linked) => linked,
            Err(failure) => {
                executor.shutdown_background();
                return Err(failure);
            }
        };
        linked.program().replaced_models.iter().for_each(|fact| (settings.notes)(&format!("note: {fact}\n")));
        linked.check_keys()?;
        let limit = linked.launch.policy.limits.or(&linked.program().policy.limits).max_cost_usd;
        let record = record(&linked, &map)?;
        let is_explained = linked.launch.policy.cache == CacheUse::Explained;
        let tells_notices = is_explained && conduct.output.view.tells_notes();
        let plan = ItemsPlan {
            source,
            total,
            directory,
            jobs: map.jobs.and_then(|jobs| usize::try_from(jobs).ok()).unwrap_or(1),
            max_failures: map.max_failures,
            output,
            view: conduct.output.view,
            timeout: conduct.timeout,
            limit,
            is_resumed,
        };
        let ended = executor.block_on(async {
            let items = linked.ready(record, None)?.into_items(matching, written)?;
            attend(items.telling_notices(tells_notices), plan).await
        });
        executor.shutdown_background();
        ended
    }
}

/// Where the items are, as the record says it.
fn items_of(map: &MapRecord, directory: &Path) -> Result<ItemSource, Failure> {
    let format = map.format.as_deref().and_then(|word| <ItemFormatArg as clap::ValueEnum>::from_str(word, false).ok());
    match (&map.over, &map.files) {
        (Some(file), _) => ItemSource::over(file, format, directory),
        (None, Some(pattern)) => ItemSource::files(pattern, directory),
        (None, None) => Err(Failure::usage("the record of the run does not say where its items are")),
    }
}

/// Neither the results nor the failures take the place of what is still to be read.
fn unread(source: &ItemSource, directory: &Path, results: &Path) -> Result<(), Failure> {
    for file in [results, &sink::errors_of(results)] {
        if !answer_file::is_stream(file) && source.is_in(file, directory) {
            let shown = file.display().to_string();
            return Err(Failure::usage(format!("`-o`: {} holds the items", llm_do::escape::visible(&shown)))
                .hint("name another file for the results; the failures are written beside it"));
        }
    }
    Ok(())
}

/// What the agent takes, if it says so.
fn input_schema(program: &Program) -> Option<Arc<Value>> {
    let Entry::Agent(name) = &program.entry else { return None };
    match &program.agents.get(name)?.input {
        Typing::Schema(schema) => schema.to().ok().map(Arc::new),
        Typing::Untyped | Typing::Python(_) => None,
    }
}
