//! `llm-do harden` and `soften`: an agent's work becomes code, with evidence, and the way back.

mod author;
mod files;
mod manifest_text;
mod records;
pub mod soften;
mod status;
mod trial;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llm_do::escape::{visible, visible_lines};
use llm_do::program::{AgentSpec, AnswerMode, MANIFEST_NAME, Typing};
use llm_do::reach::Graph;
use llm_do::{ModelChoices, ModelName, Program, Project};
use llm_do_launch::error::LaunchError;
use llm_do_launch::fencing::{self, FenceChoice};
use llm_do_launch::settings::Settings;
use serde_json::Value;

use crate::args::{AnswerModeArg, HardenArgs, ModelArgs, TestArgs};
use crate::environment::Environment;
use crate::executor::executor;
use crate::failure::Failure;
use crate::terminal::trust;
use crate::test::case::TestBench;
use crate::test::plan::TestPlan;
use crate::{console, plan, remedy, test};

use author::Authoring;
use files::HardenedFiles;
use records::{Example, FEWEST, RecordedAnswers, parted};
use trial::{CodeTrial, TrialAnswer};

/// Of the differences so many are shown with the figures.
const SHOWN: usize = 3;

pub fn run(args: &HardenArgs) -> Result<(), Failure> {
    if args.author {
        return console::print(author::OURS);
    }
    let name = args.name.as_deref().unwrap_or_default();
    let environment = Environment::read();
    let settings = Arc::new(environment.settings()?);
    let plan = test_plan(args, &environment, &settings)?;
    let choices = plan::models(&ModelArgs::default(), &environment, &settings.config)?;
    let project = load(&plan)?;
    let linked = project.survey(&ModelChoices { may_be_open: true, ..choices.clone() }, None).map_err(test::wrong)?;
    let agent = agent_of(&linked.program, name)?;
    if args.status {
        let stand_in = agent.stand_in.as_ref().ok_or_else(|| not_hardened(name, &args.project))?;
        let answers = RecordedAnswers::read(agent, &args.project, args.since, &settings)?;
        return console::print(&status::text(agent, stand_in, &answers));
    }
    let files = HardenedFiles::of(&linked.program.root, agent);
    if let Some(mode) = args.mode {
        return change_mode(&files, agent, mode, &plan, &settings);
    }
    let hardening =
        Hardening { args, plan: &plan, settings: &settings, choices, program: &linked.program, agent, files };
    hardening.check()?;
    if !environment.can_ask {
        let fact = "hardening asks three questions, and nobody can answer them here; nothing was sent";
        return Err(Failure::refused(fact).hint("run it at a terminal"));
    }
    hardening.ask()
}

fn load(plan: &TestPlan) -> Result<Project, Failure> {
    Project::load_from(&plan.launch.project, &plan.launch.directory).map_err(test::wrong)
}

/// A project as it stands in a command, unless it is the current directory.
fn typed(project: &Path) -> String {
    if project == Path::new(".") { String::new() } else { format!(" {}", remedy::shell_word(project)) }
}

fn not_hardened(name: &str, project: &Path) -> Failure {
    let project = typed(project);
    Failure::usage(format!("`{name}` is not hardened: no code answers in its place"))
        .hint(format!("`llm-do harden {name}{project}` writes some from what it answered"))
}

fn agent_of<'a>(program: &'a Program, name: &str) -> Result<&'a AgentSpec, Failure> {
    let known = program.agents.keys().map(String::as_str);
    let unknown = || {
        let hint = llm_do::names::instead(name, "agents", known);
        Failure::usage(format!("the project has no agent `{}`", visible(name))).hint(hint)
    };
    program.agents.get(name).map(AsRef::as_ref).ok_or_else(unknown)
}

/// The project as tests see it: with its files, its trust, and what a scratch copy of it is made of.
fn test_plan(args: &HardenArgs, environment: &Environment, settings: &Settings) -> Result<TestPlan, Failure> {
    let test_args = TestArgs {
        project: args.project.clone(),
        pattern: None,
        live: false,
        times: None,
        models: ModelArgs::default(),
        budget: None,
        jobs: None,
        record: false,
        add: None,
        name: None,
        trust: args.trust.clone(),
        python: args.python.clone(),
        fence: args.fence,
        json: false,
        junit: None,
    };
    let mut plan = TestPlan::of(test_args, environment, settings)?;
    // What is behind it is no file of a test: it is somebody's code.
    let fence = args.fence.map(FenceChoice::from);
    plan.launch.fence = fencing::config(fence, &settings.variables, &settings.config, remedy::WORDING)?;
    Ok(plan)
}

fn change_mode(
    files: &HardenedFiles,
    agent: &AgentSpec,
    mode: AnswerModeArg,
    plan: &TestPlan,
    settings: &Settings,
) -> Result<(), Failure> {
    let before = agent.stand_in.as_ref().ok_or_else(|| not_hardened(&agent.name, &plan.launch.project))?.mode;
    let mode = match mode {
        AnswerModeArg::Agent => AnswerMode::Agent,
        AnswerModeArg::Shadow => AnswerMode::Shadow,
        AnswerModeArg::Fallback => AnswerMode::Fallback,
        AnswerModeArg::Code => AnswerMode::Code,
    };
    let over = test::before_writing(plan, settings)?;
    files.change_mode(mode)?;
    test::keep_trust(plan, settings, &over)?;
    console::print(&format!("{}   mode {} → {}\n", agent.name, files::word(before), files::word(mode)))
}

/// A session that may end with code in the place of an agent.
struct Hardening<'a> {
    args: &'a HardenArgs,
    plan: &'a TestPlan,
    settings: &'a Arc<Settings>,
    /// The user's models.
    choices: ModelChoices,
    program: &'a Program,
    agent: &'a AgentSpec,
    files: HardenedFiles,
}

impl Hardening<'_> {
    /// Whether it can be hardened at all: found out before anybody is asked.
    fn check(&self) -> Result<(), Failure> {
        let Self { agent, program, files, .. } = self;
        let name = &agent.name;
        let refused = |why: String| Failure::usage(format!("`{name}` cannot be hardened: {why}"));
        if agent.stand_in.is_some() {
            let project = typed(&self.args.project);
            let hint = format!(
                "`llm-do harden {name}{project} --status` tells how it goes, `llm-do soften {name}{project}` takes it back"
            );
            return Err(refused("it is hardened already".to_owned()).hint(hint));
        }
        if !files.root.join(MANIFEST_NAME).is_file() {
            let hint = format!("write a {MANIFEST_NAME} that lists its worker files: the code is named there");
            return Err(refused(format!("its project has no {MANIFEST_NAME}")).hint(hint));
        }
        if agent.output == Typing::Untyped {
            let hint = "give it `schema_out`: only then two answers can be told to be the same";
            return Err(refused("its answers are text without a schema".to_owned()).hint(hint));
        }
        let graph = Graph::new(program);
        let worst = graph.place(name).and_then(|place| graph.worst_cases().into_iter().nth(place)).unwrap_or_default();
        let writes = ["writes_files", "runs_commands", "creates_agents"];
        let is_written = |word: Value| writes.iter().any(|it| word == *it);
        let found = worst.iter().find(|(it, _)| is_written(serde_json::to_value(it).unwrap_or_default()));
        if let Some((capability, way)) = found {
            let way = way.words().join(" → ");
            let why =
                format!("it {} ({}), and code in its place does nothing but answer", capability.words(), visible(&way));
            return Err(refused(why));
        }
        files.check_free()?;
        self.plan.launch.fence.fence().houses().map_err(|unfenced| {
            let why = format!("written code runs behind a fence only: {}", unfenced.why);
            LaunchError::usage(format!("`{name}` cannot be hardened: {why}")).hint(unfenced.hint).into()
        })
    }

    /// Whether code runs here at all, before anything is sent: a function that is never sure is asked once.
    async fn check_host(&self, bench: &TestBench, example: &[Example]) -> Result<(), Failure> {
        let agent = &self.agent.name;
        let tried = self.tried(bench, &files::unsure(&self.files.function), example, &[]).await?;
        match tried.seen.into_iter().next() {
            Some((_, TrialAnswer::Failed(why))) => {
                Err(Failure::usage(format!("`{agent}` cannot be hardened: no code runs here in its place: {why}"))
                    .hint("nothing was sent"))
            }
            Some((_, TrialAnswer::Answer(_) | TrialAnswer::NotSure(_) | TrialAnswer::Untried)) | None => Ok(()),
        }
    }

    fn ask(&self) -> Result<(), Failure> {
        let Self { args, agent, settings, .. } = self;
        let name = &agent.name;
        let answers = RecordedAnswers::read(agent, &args.project, args.since, settings)?;
        // They would be sent, shown, and written into a file of cases.
        let (examples, secret): (Vec<Example>, Vec<Example>) = answers
            .examples()
            .into_iter()
            .partition(|example| test::secret_in(&format!("{} {}", example.input, example.output)).is_none());
        if !secret.is_empty() {
            let count = secret.len();
            let words = if count == 1 {
                "record has a value that looks like a secret"
            } else {
                "records have values that look like secrets"
            };
            console::complain(&format!("note: {count} {words}; left out: neither sent nor written\n"));
        }
        if examples.len() < FEWEST {
            let fact = format!("{} distinct records of `{name}` are too few: {FEWEST} are needed", examples.len());
            let project = typed(&args.project);
            let hint = format!(
                "run it more often, or over many items at once: `llm-do map {name}{project} --over FILE`; runs are counted that \
                 are kept, since `--since`"
            );
            return Err(Failure::usage(fact).hint(hint));
        }
        let recorded = examples.len();
        let (own, held_out) = parted(examples);
        console::print(&format!(
            "{} recorded calls of `{name}` in {}, {recorded} of them distinct: {} to write from, {} held out\n",
            answers.calls.len(),
            if answers.runs == 1 { "1 run".to_owned() } else { format!("{} runs", answers.runs) },
            own.len(),
            held_out.len()
        ))?;
        let (bench, _) = executor()?.block_on(test::opened(self.plan, settings))?;
        executor()?.block_on(self.check_host(&bench, &own[..1]))?;
        let authoring = self.authoring(&bench)?;
        let request = author::request(&self.files, agent, &own)?;
        if !self.may_send(&authoring, &request, own.len())? {
            return nothing();
        }
        let body = executor()?.block_on(authoring.code(request))?;
        let code = files::sealed(&body);
        if trust::choose(&numbered(&code), &run_question(recorded), b"yn")? != b'y' {
            return nothing();
        }
        let all: Vec<&Example> = own.iter().chain(&held_out).collect();
        let trial = executor()?.block_on(self.tried(&bench, &code, &own, &held_out))?;
        let mode = if trial.is_ever_not_sure() { AnswerMode::Fallback } else { AnswerMode::Code };
        let tests = files::sealed(&files::cases(name, &all));
        let Some(mode) = self.apply_question(&trial, &code, all.len(), mode)? else { return nothing() };
        let over = test::before_writing(self.plan, settings)?;
        self.files.apply(&code, &tests, mode)?;
        test::keep_trust(self.plan, settings, &over)?;
        console::print(&format!("applied: {}\n", applied(name, &args.project, mode)))
    }

    /// Who writes, with which model: that of the agent, unless another one was named.
    fn authoring<'b>(&'b self, bench: &'b TestBench) -> Result<Authoring<'b>, Failure> {
        let author = own_author(&self.files.root)?;
        let named = self.args.model.as_deref().map(ModelName::parse).transpose();
        let named = named.map_err(|error| Failure::usage(format!("`--model`: {error}")))?;
        let own = || Some(self.agent.model.clone()).filter(|model| !model.provider.is_empty());
        let of_author = || author.as_ref().and_then(|author| Some(self.program.agents.get(author)?.model.clone()));
        let model = named.clone().or_else(of_author).or_else(own).ok_or_else(|| {
            Failure::usage("no model is chosen for whoever writes the code").hint("name one: `-m provider:model`")
        })?;
        let mut choices = self.choices.clone();
        if let (Some(author), Some(model)) = (&author, &named) {
            choices.overrides.insert(author.clone(), model.clone());
        }
        Ok(Authoring { settings: self.settings, bench, author, model, choices })
    }

    fn may_send(&self, authoring: &Authoring<'_>, request: &Value, examples: usize) -> Result<bool, Failure> {
        let mut question = String::new();
        if let Some(found) = test::secret_in(&request.to_string()) {
            let _ = writeln!(question, "note: among them is a value that looks like a secret: {}", visible(&found));
        }
        let file = self.files.worker.display().to_string();
        let by = authoring.author.as_ref().map(|author| format!(" by the agent `{author}`")).unwrap_or_default();
        let cost = authoring.cost_words(request);
        let _ = writeln!(
            question,
            "send the {examples} with `{}` to {}{by}{cost}?\n  y yes   n no",
            visible(&file),
            visible(&authoring.model.to_string())
        );
        Ok(trust::choose("", &question, b"yn")? == b'y')
    }

    /// The code on all records, in a scratch project in which it answers alone.
    async fn tried<'b>(
        &self,
        bench: &TestBench,
        code: &str,
        own: &'b [Example],
        held_out: &'b [Example],
    ) -> Result<CodeTrial<'b>, Failure> {
        let text = |path: &Path| path.display().to_string();
        let files = [
            (text(&self.files.code), code.to_owned()),
            (MANIFEST_NAME.to_owned(), self.files.hardened_manifest(AnswerMode::Code)?),
        ];
        let inputs: Vec<&Value> = own.iter().chain(held_out).map(|example| &example.input).collect();
        let mut tried = Box::pin(trial::tried(bench, &self.agent.name, &files, &inputs)).await?;
        let of_held_out = tried.split_off(own.len());
        Ok(CodeTrial { seen: own.iter().zip(tried).collect(), held_out: held_out.iter().zip(of_held_out).collect() })
    }

    /// The figures, what would be written, and the mode in which; nothing if it is not wanted.
    fn apply_question(
        &self,
        trial: &CodeTrial<'_>,
        code: &str,
        cases: usize,
        mode: AnswerMode,
    ) -> Result<Option<AnswerMode>, Failure> {
        let mut shown = format!("{}\n", trial.words());
        shown.extend(trial.differences().take(SHOWN).map(difference));
        let more = trial.differences().count().saturating_sub(SHOWN);
        if more > 0 {
            let _ = writeln!(shown, "  and {more} more, which `d` shows");
        }
        if mode == AnswerMode::Fallback {
            shown.push_str("it was not sure of some: there the agent is still asked (mode fallback)\n");
        }
        shown.push_str(&self.files.told(code, cases, mode));
        loop {
            let question = "apply?\n  y yes   n no   d show all differences   s shadow first: the agent answers, the code is compared\n";
            match trust::choose(&shown, question, b"ynds")? {
                b'y' => return Ok(Some(mode)),
                b's' => return Ok(Some(AnswerMode::Shadow)),
                b'd' => shown = trial.differences().map(difference).collect(),
                _ => return Ok(None),
            }
            if shown.is_empty() {
                "there is no difference\n".clone_into(&mut shown);
            }
        }
    }
}

fn difference((example, tried): &(&Example, trial::TrialAnswer)) -> String {
    format!(
        "  differs: {}   agent: {}   code: {}\n",
        visible(&example.input.to_string()),
        visible(&example.output.to_string()),
        visible(&tried.words())
    )
}

fn nothing() -> Result<(), Failure> {
    console::print("nothing was changed\n")
}

fn applied(name: &str, project: &Path, mode: AnswerMode) -> String {
    let project = typed(project);
    let who = match mode {
        AnswerMode::Agent => "the agent answers, and the code rests",
        AnswerMode::Shadow => "the agent answers, and the code is compared with it",
        AnswerMode::Fallback => "the code answers, and the agent where it is not sure",
        AnswerMode::Code => "the code answers",
    };
    format!(
        "{who}; `llm-do harden {name}{project} --status` tells how it goes, `llm-do soften {name}{project}` takes it back"
    )
}

fn run_question(recorded: usize) -> String {
    format!("run it behind the fence on the {recorded} recorded inputs?\n  y yes   n no\n")
}

/// The file with the numbers of its lines, as a difference to nothing.
fn numbered(code: &str) -> String {
    let mut text = String::new();
    for (index, line) in code.lines().enumerate() {
        let _ = writeln!(text, "{:>4} + {}", index + 1, visible_lines(line));
    }
    text
}

/// The agent of the project that writes the code, if the manifest names one.
fn own_author(root: &Path) -> Result<Option<String>, Failure> {
    let path: PathBuf = root.join(MANIFEST_NAME);
    let text =
        std::fs::read_to_string(&path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    let manifest: Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(manifest["harden"]["author"].as_str().map(str::to_owned))
}
