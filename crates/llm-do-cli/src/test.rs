//! `llm-do test`: agents held against their cases. Models answer from records, or are asked.

mod adding;
pub mod case;
mod live;
pub mod plan;
mod record;
mod report;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use llm_do::diagnostics::Colour;
use llm_do::messages::Usage;
use llm_do::program::{AgentSpec, AnswerMode};
use llm_do::tests::{Answering, CaseOutcome, Fixture, ProjectListing, ScratchError, TestCase, TestFile};
use llm_do::trust::SurveyedProject;
use llm_do::{ModelChoices, Project};
use llm_do_launch::launch::{Launch, TrustedLaunch};
use llm_do_launch::settings::Settings;
use llm_do_launch::trust::WrittenOver;

use crate::args::TestArgs;
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::{FAILED, Failure};
use crate::terminal::trust;
use crate::{console, json, remedy};

use case::{CaseAnswers, CaseReport, CaseVerdict, TestBench};
use plan::{TestMode, TestPlan, replayed};
use report::NamedReport;

pub fn run(args: TestArgs) -> Result<(), Failure> {
    let environment = Environment::read();
    let settings = Arc::new(environment.settings()?);
    let colour = if environment.colours_stderr() { Colour::Ansi } else { Colour::Plain };
    let plan = TestPlan::of(args, &environment, &settings)?;
    executor()?.block_on(tested(&plan, &settings)).map_err(|failure| failure.coloured(colour))
}

async fn tested(plan: &TestPlan, settings: &Arc<Settings>) -> Result<(), Failure> {
    check_models(plan, settings)?;
    let (bench, trusted) = Box::pin(opened(plan, settings)).await?;
    let suite = TestSuite { plan, bench, files: trusted.project().tests() };
    match &plan.mode {
        TestMode::Replay => suite.replay().await,
        // What is written stands beside the cases.
        TestMode::Record => {
            let over = before_writing(plan, settings)?;
            let wrote = suite.record().await;
            keep_trust(plan, settings, &over)?;
            wrote
        }
        TestMode::Add { run, name } => {
            let over = before_writing(plan, settings)?;
            adding::add(&suite, run, name.as_deref()).await?;
            keep_trust(plan, settings, &over)
        }
        TestMode::Live { times, models, budget, at_once } => live::run(&suite, *times, models, *budget, *at_once).await,
    }
}

/// Where models are asked every agent has one. A case would say so of a copy of the project.
fn check_models(plan: &TestPlan, settings: &Arc<Settings>) -> Result<(), Failure> {
    let asked: Vec<&ModelChoices> = match &plan.mode {
        TestMode::Replay | TestMode::Add { .. } => Vec::new(),
        TestMode::Record => vec![&plan.launch.models],
        TestMode::Live { models, .. } => models.iter().map(|model| &model.choices).collect(),
    };
    for choices in asked {
        let project = Project::load_from(&plan.launch.project, &plan.launch.directory).map_err(wrong)?;
        let models = ModelChoices { may_be_open: false, ..choices.clone() };
        Launch { models, ..plan.launch.clone() }.survey_project(project, settings)?;
    }
    Ok(())
}

/// The project with its cases, once somebody has agreed to both, and what its cases share.
pub async fn opened(plan: &TestPlan, settings: &Arc<Settings>) -> Result<(TestBench, TrustedLaunch), Failure> {
    let launch = plan.launch.clone();
    let project = Project::load_from(&launch.project, &launch.directory).map_err(wrong)?.with_tests();
    let own = project.own_files();
    let looked_at = launch::only_looked_at(launch.clone());
    let surveyed = looked_at.survey_project(project, settings)?;
    let mistakes = surveyed.project().test_mistakes(surveyed.program());
    if mistakes.error_count() > 0 {
        return Err(wrong(mistakes));
    }
    let agreed = surveyed.trust_items();
    let trusted = trust::settle(surveyed, &plan.trust).await?;
    let root = std::path::absolute(&trusted.project().root)
        .map_err(|error| Failure::failed(format!("the project's directory: {error}")))?;
    let listing = ProjectListing::of(&root, listed_by_git(&root), own).map_err(|error| too_large(&error))?;
    let path = launch.project_path();
    let project = match path.file_name() {
        Some(name) if path.is_file() => PathBuf::from(name),
        Some(_) | None => PathBuf::from("."),
    };
    let (settings, temporary) = (Arc::clone(settings), plan.temporary.clone());
    let is_code = |agent: &AgentSpec| agent.stand_in.as_ref().is_some_and(|it| it.mode == AnswerMode::Code);
    let agents = trusted.program().agents.values();
    let by_code = agents.filter(|agent| is_code(agent)).map(|agent| agent.name.clone()).collect();
    Ok((TestBench { launch, settings, agreed, listing, project, temporary, by_code }, trusted))
}

mod launch {
    use llm_do::ModelChoices;
    use llm_do_launch::launch::Launch;

    /// Its models are chosen where they are asked.
    pub fn only_looked_at(launch: Launch) -> Launch {
        let models = ModelChoices { may_be_open: true, ..super::replayed(launch.models) };
        Launch { models, ..launch }
    }
}

/// A value that looks like a secret, or its beginning.
pub fn secret_in(text: &str) -> Option<String> {
    adding::secret_in(text)
}

pub fn wrong(report: llm_do::Report) -> Failure {
    Failure::Project { report: report.worded(remedy::WORDING), colour: Colour::Plain }
}

fn too_large(error: &ScratchError) -> Failure {
    Failure::usage(error.to_string()).hint("`scratch` of a case or of its file names what is copied")
}

/// What belongs to a project that git keeps; nothing if it keeps none of it.
fn listed_by_git(root: &Path) -> Option<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStrExt as _;
    // No program that a repository names is run for it.
    let plain = ["-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"];
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let git = Command::new("git").args(plain).args(list).current_dir(root).stdin(Stdio::null()).output().ok()?;
    let names = git.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names: Vec<PathBuf> = names.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name))).collect();
    (git.status.success() && !names.is_empty()).then_some(names)
}

/// What this command wrote is trusted exactly as it was written, if what was there before is.
pub fn keep_trust(plan: &TestPlan, settings: &Settings, over: &WrittenOver) -> Result<(), Failure> {
    if plan.trust.once.is_some() {
        return Ok(());
    }
    trust::keep_written(over, &looked_at(plan)?, &settings.state)
}

/// How it stands with the project before this command writes into it.
pub fn before_writing(plan: &TestPlan, settings: &Settings) -> Result<WrittenOver, Failure> {
    Ok(WrittenOver::project(&looked_at(plan)?, &settings.state)?)
}

/// The project with its cases as it is now; nothing of it runs.
fn looked_at(plan: &TestPlan) -> Result<SurveyedProject, Failure> {
    let launch = launch::only_looked_at(plan.launch.clone());
    let project = Project::load_from(&launch.project, &launch.directory).map_err(wrong)?.with_tests();
    project.surveyed(&launch.models, None).map_err(wrong)
}

/// The cases that are meant, and what they share.
struct TestSuite<'a> {
    plan: &'a TestPlan,
    bench: TestBench,
    files: &'a [TestFile],
}

impl TestSuite<'_> {
    fn root(&self) -> &Path {
        self.bench.listing.root()
    }

    /// The cases that are meant, in the order of their files.
    fn cases(&self) -> Result<Vec<(&TestFile, &TestCase)>, Failure> {
        let all = self.files.iter().flat_map(|file| file.cases.iter().map(move |case| (file, case)));
        let meant: Vec<_> = all.filter(|(file, case)| self.plan.means(&file.agent, &case.name)).collect();
        if !meant.is_empty() {
            return Ok(meant);
        }
        let shown = self.plan.launch.project.display();
        Err(match &self.plan.pattern {
            Some(pattern) if !self.files.is_empty() => {
                Failure::usage(format!("no case of {shown} has `{pattern}` in its name"))
            }
            _ => Failure::usage(format!("{shown} has no cases")).hint(format!(
                "write `NAME.test.yaml` beside the worker file, or make a case of a run: `llm-do test {} --add RUN`",
                remedy::shell_word(&self.plan.launch.project)
            )),
        })
    }

    /// One case as its record answers it.
    async fn replayed(&self, file: &TestFile, case: &TestCase) -> Result<CaseReport, Failure> {
        let needs_none = self.bench.by_code.contains(&file.agent) && case.judge.is_none();
        match record::read(&record::path(self.root(), file, case))?.or_else(|| needs_none.then(Fixture::default)) {
            None => Ok(unrecorded()),
            Some(fixture) => {
                let models = launch::only_looked_at(self.bench.launch.clone()).models;
                let answers = CaseAnswers { answering: Answering::Record, fixture, models };
                self.bench.run(file, case, answers).await
            }
        }
    }

    async fn replay(&self) -> Result<(), Failure> {
        let mut reports = Vec::new();
        for (file, case) in self.cases()? {
            let report = self.replayed(file, case).await?;
            self.tell(&mut reports, file, case, report)?;
        }
        self.finish(&reports)
    }

    /// Asks models where there is no record, or one that does not answer any more.
    async fn record(&self) -> Result<(), Failure> {
        let mut reports = Vec::new();
        for (file, case) in self.cases()? {
            let before = self.replayed(file, case).await?;
            let is_renewed = matches!(before.verdict, CaseVerdict::Stale(_) | CaseVerdict::Unrecorded);
            let report = if is_renewed { self.recorded(file, case).await? } else { before };
            self.tell(&mut reports, file, case, report)?;
        }
        self.finish(&reports)
    }

    async fn recorded(&self, file: &TestFile, case: &TestCase) -> Result<CaseReport, Failure> {
        let path = record::path(self.root(), file, case);
        let before = record::read(&path).ok().flatten();
        let models = self.bench.launch.models.clone();
        let models = ModelChoices { may_be_open: false, ..models };
        let answers = CaseAnswers { answering: Answering::World, fixture: Fixture::default(), models };
        let report = self.bench.run(file, case, answers).await?;
        // Half a conversation would answer half of the next one.
        if report.outcome.error.is_none() {
            record::write(&path, &report.fixture)?;
            if !self.plan.json {
                let shown = path.strip_prefix(self.root()).unwrap_or(&path).display();
                let before = before.map(|before| before.told()).unwrap_or_default();
                console::print(&report::renewed(
                    &shown.to_string(),
                    &before,
                    &report.fixture.told(),
                    self.plan.styles,
                ))?;
            }
        }
        Ok(report)
    }

    fn tell(
        &self,
        reports: &mut Vec<NamedReport>,
        file: &TestFile,
        case: &TestCase,
        report: CaseReport,
    ) -> Result<(), Failure> {
        let shown = file.path.display().to_string();
        let named = NamedReport { file: shown, agent: file.agent.clone(), case: case.name.clone(), report };
        if !self.plan.json {
            console::print(&report::line(&named, self.plan.styles))?;
        }
        reports.push(named);
        Ok(())
    }

    fn finish(&self, reports: &[NamedReport]) -> Result<(), Failure> {
        let styles = self.plan.styles;
        if let Some(file) = &self.plan.junit {
            record::write_text(file, &report::junit(reports))?;
        }
        if self.plan.json {
            console::print(&json::lines(&report::json(reports)))?;
        } else {
            let details: String = reports.iter().map(|named| report::details(named, styles)).collect();
            console::print(&format!("{details}{}", report::summary(reports)))?;
        }
        let is_renewable =
            |named: &NamedReport| matches!(named.report.verdict, CaseVerdict::Stale(_) | CaseVerdict::Unrecorded);
        if reports.iter().any(is_renewable) && !self.plan.json {
            console::settle();
            let project = remedy::shell_word(&self.plan.launch.project);
            console::complain(&format!(
                "hint: `llm-do test {project} --record` asks models and renews what is stale\n"
            ));
        }
        if reports.iter().all(|named| named.report.verdict.is_good()) {
            Ok(())
        } else {
            Err(Failure::Said { code: FAILED })
        }
    }
}

fn unrecorded() -> CaseReport {
    CaseReport {
        verdict: CaseVerdict::Unrecorded,
        misses: Vec::new(),
        fixture: Fixture::default(),
        usage: Usage::default(),
        seconds: 0.0,
        outcome: CaseOutcome::default(),
        is_out_of_money: false,
    }
}

/// Names that are taken, for new ones.
fn names_of(files: &[TestFile]) -> BTreeSet<&str> {
    files.iter().flat_map(|file| file.cases.iter().map(|case| case.name.as_str())).collect()
}
