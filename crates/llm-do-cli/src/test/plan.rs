//! What was decided about a test: which cases, answered by whom, and how it is told. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use llm_do::ModelChoices;
use llm_do_launch::fencing::{self, FenceChoice};
use llm_do_launch::launch::Launch;
use llm_do_launch::python::PythonPlan;
use llm_do_launch::record::is_amount;
use llm_do_launch::settings::Settings;

use crate::args::{ModelArgs, TestArgs};
use crate::environment::Environment;
use crate::failure::Failure;
use crate::terminal::style::Styles;
use crate::terminal::trust::{self, Answerers};
use crate::{plan, remedy};

/// What `test` does.
pub struct TestPlan {
    pub launch: Launch,
    pub trust: Answerers,
    pub pattern: Option<String>,
    pub mode: TestMode,
    pub json: bool,
    pub junit: Option<PathBuf>,
    pub styles: Styles,
    /// Where temporary files go.
    pub temporary: Option<PathBuf>,
}

/// Who answers.
pub enum TestMode {
    /// The records.
    Replay,
    /// Models, once; their answers become records.
    Record,
    /// A kept run, which becomes a case of this name.
    Add { run: String, name: Option<String> },
    /// Models, several times each.
    Live { times: u64, models: Vec<LiveModel>, budget: Option<f64>, at_once: usize },
}

/// A column of the matrix.
pub struct LiveModel {
    /// As it was typed; nothing if the project's own models are asked.
    pub shown: Option<String>,
    pub choices: ModelChoices,
}

impl TestPlan {
    pub fn of(args: TestArgs, environment: &Environment, settings: &Settings) -> Result<Self, Failure> {
        if !is_amount(args.budget) {
            return Err(Failure::usage("`--budget` is not an amount"));
        }
        let choices = |words: &[String]| {
            let models = ModelArgs { models: words.to_vec() };
            let mut choices = plan::models(&models, environment, &settings.config)?;
            let directory = llm_do::WorkingDirectory::of_process();
            for model in choices.required.iter_mut().chain(&mut choices.all).chain(choices.overrides.values_mut()) {
                at_home(model, &directory);
            }
            Ok::<_, Failure>(choices)
        };
        let mode = if args.live {
            let columns: Vec<Vec<String>> = match args.models.models.as_slice() {
                [list] if list.contains(',') => list.split(',').map(|model| vec![model.trim().to_owned()]).collect(),
                words => vec![words.to_vec()],
            };
            let column = |words: &Vec<String>| {
                let shown = (!words.is_empty()).then(|| words.join(" "));
                Ok::<_, Failure>(LiveModel { shown, choices: choices(words)? })
            };
            let models = columns.iter().map(column).collect::<Result<_, _>>()?;
            let at_once = usize::try_from(args.jobs.unwrap_or(1)).unwrap_or(1);
            TestMode::Live { times: args.times.unwrap_or(1), models, budget: args.budget, at_once }
        } else if let Some(run) = args.add {
            TestMode::Add { run, name: args.name }
        } else if args.record {
            TestMode::Record
        } else {
            TestMode::Replay
        };
        // No model is asked in a replay: none need be chosen.
        let models = match &mode {
            TestMode::Record => choices(&args.models.models)?,
            TestMode::Replay | TestMode::Add { .. } | TestMode::Live { .. } => choices(&[])?,
        };
        let models = match &mode {
            TestMode::Record | TestMode::Live { .. } => models,
            TestMode::Replay | TestMode::Add { .. } => replayed(models),
        };
        // Whatever the fence here is: what is behind it is thrown away.
        let fence = args.fence.map(FenceChoice::from).or(Some(FenceChoice::Thin));
        let python = PythonPlan::of(None, &settings.variables, &settings.config);
        let launch = Launch {
            python: python.naming(args.python.map(reached_from_anywhere).or_else(|| own_python(&args.project))),
            project: args.project,
            fence: fencing::config(fence, &settings.variables, &settings.config, remedy::WORDING)?,
            trace_parent: settings.variables.trace_parent(),
            ..plan::launch(ModelChoices { may_be_open: true, ..models })
        };
        Ok(Self {
            launch,
            trust: Answerers {
                flag: trust::typed(args.trust.as_deref())?,
                once: environment.consent()?,
                person: environment.can_ask,
            },
            pattern: args.pattern,
            mode,
            json: args.json,
            junit: args.junit,
            styles: Styles { coloured: environment.colours_stdout() && !args.json },
            temporary: environment.get("TMPDIR").map(PathBuf::from),
        })
    }

    /// Whether a case is meant: by a part of its name, in letters of any case.
    pub fn means(&self, agent: &str, case: &str) -> bool {
        let name = format!("{agent} {case}").to_lowercase();
        self.pattern.as_ref().is_none_or(|pattern| name.contains(&pattern.to_lowercase()))
    }
}

/// Choices that decide about no agent: each has the model of its file, or none.
pub fn replayed(models: ModelChoices) -> ModelChoices {
    ModelChoices { required: None, all: None, overrides: BTreeMap::new(), fallbacks: Vec::new(), ..models }
}

/// A script is named from where the user is, and read from where the scratch project is.
fn at_home(model: &mut llm_do::ModelName, directory: &llm_do::WorkingDirectory) {
    if model.provider == "scripted"
        && let Ok(path) = std::path::absolute(directory.join(&model.model))
    {
        model.model = path.display().to_string();
    }
}

/// A program that was named where the user is, and starts where the scratch project is. A bare name is looked for on the path.
fn reached_from_anywhere(program: PathBuf) -> PathBuf {
    let is_bare = !program.as_os_str().as_encoded_bytes().contains(&b'/');
    if is_bare { program } else { std::path::absolute(&program).unwrap_or(program) }
}

/// The project's own interpreter: it is not copied.
fn own_python(project: &Path) -> Option<PathBuf> {
    let root = if project.is_dir() { project } else { project.parent()? };
    let python = std::path::absolute(root.join(".venv/bin/python")).ok()?;
    python.exists().then_some(python)
}
