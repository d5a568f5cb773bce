//! Runs in one process that each work in a directory of their own, while the process is somewhere else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use llm_do::model::name::{ModelChoices, ModelName};
use llm_do::project::ApprovalMode;
use llm_do::project::create::WorkerDefaults;
use llm_do::records::RunKind;
use llm_do::runtime::input::Input;
use llm_do::runtime::{Output, RunError};
use llm_do::tools::fence::FenceConfig;
use llm_do::tools::working_directory::WorkingDirectory;
use llm_do_launch::launch::{Launch, ListenPlan, PolicyOverrides, Purpose, Record};
use llm_do_launch::program_terms::ProgramTerms;
use llm_do_launch::python::PythonPlan;
use llm_do_launch::record::RunHeader;
use llm_do_launch::session::Update;
use llm_do_launch::settings::{Settings, Variables};
use llm_do_launch::tools::ToolOffer;

const MANIFEST: &str = r#"{"version": 1, "entry": {}, "worker_files": ["main.worker"], "python_files": ["where.py"],
    "toolsets": {"look": {"shell": {"rules": [{"pattern": "pwd", "approval": "allow"}], "default": "block"}}}}"#;
const WORKER: &str =
    "---\nname: main\nentry: true\ntools: [where]\ntoolsets: [look, filesystem_cwd]\n---\nYou look around.\n";
const PYTHON: &str = "import os\n\ndef where() -> str:\n    return os.getcwd()\n\nTOOLS = [where]\n";
const CONFIG: &str = "[providers.acme]\nkind = 'openai-chat'\nbase_url = 'http://127.0.0.1:1/v1'\n\
    api_key_cmd = ['sh', '-c', 'pwd > key_was_asked_for; echo k']\n[http]\nretries = 0\n";

/// A directory with a project, a script and a note of its own.
fn place(name: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    fs::create_dir(at("desk")).unwrap();
    fs::write(at("note.txt"), format!("the note of {name}")).unwrap();
    for (path, text) in [("desk/project.json", MANIFEST), ("desk/main.worker", WORKER), ("desk/where.py", PYTHON)] {
        fs::write(at(path), text).unwrap();
    }
    let calls = "- { round: 1, call: [{ shell: { command: pwd } }, { where: {} }, { read_file: { path: note.txt } }] }";
    fs::write(at("script.yaml"), format!("{calls}\n- say: \"{name}: {{{{ result }}}}\"\n")).unwrap();
    place
}

fn settings(home: &Path) -> Arc<Settings> {
    fs::write(home.join("config.toml"), CONFIG).unwrap();
    let path = std::env::var("PATH").unwrap();
    let variables = Variables::of([("LLM_DO_HOME", home.to_str().unwrap()), ("PATH", path.as_str())]);
    Arc::new(Settings::load(variables, Arc::new(|_| {})).unwrap_or_else(|error| panic!("{}", error.fact())))
}

fn launch(directory: &Path, model: &str, settings: &Settings) -> Launch {
    let required = Some(ModelName::parse(model).unwrap());
    Launch {
        assistant: false,
        project: "desk".into(),
        directory: WorkingDirectory::at(directory).unwrap(),
        entry: None,
        python: PythonPlan::of(None, &settings.variables, &settings.config),
        models: ModelChoices { required, providers: settings.config.custom_providers(), ..ModelChoices::default() },
        tools: ToolOffer::Offered,
        policy: PolicyOverrides { approval_mode: Some(ApprovalMode::ApproveAll), ..PolicyOverrides::default() },
        fence: FenceConfig::default(),
        created: WorkerDefaults::default(),
        own_files: vec!["answer.txt".into()],
        purpose: Purpose::Answer,
        terms: ProgramTerms::default(),
        rules: Vec::new(),
        trace_parent: None,
    }
}

async fn run(launch: Launch, settings: &Arc<Settings>, journal: Option<&str>) -> Result<Output, RunError> {
    let surveyed = launch.survey(settings).unwrap_or_else(|error| panic!("{}", error.fact()));
    let linked = surveyed.trust_as_own().unwrap_or_else(|error| panic!("{}", error.fact())).link().await;
    let linked = linked.unwrap_or_else(|error| panic!("{}", error.fact()));
    let input = Input::from("hi");
    let record = match journal {
        None => Record::Ephemeral,
        Some(file) => {
            let header = RunHeader::begin(&linked.launch, linked.files.clone(), Some(input.clone()));
            let header = header.unwrap_or_else(|error| panic!("{}", error.fact()));
            Record::File(file.into(), RunKind::Run, Box::new(header))
        }
    };
    let ready = linked.ready(record, None).unwrap_or_else(|error| panic!("{}", error.fact()));
    let (session, mut updates) = ready.start(ListenPlan::default());
    session.turn(input);
    loop {
        match updates.next().await {
            Some(Update::TurnEnded(result)) => return result.answer,
            Some(_) => {}
            None => panic!("the turn did not end"),
        }
    }
}

#[tokio::test]
async fn two_runs_of_one_process_work_each_in_its_own_directory() {
    let before = std::env::current_dir().unwrap();
    let home = tempfile::tempdir().unwrap();
    let settings = settings(home.path());
    let places = [place("one"), place("two")];
    let [one, two] = &places;
    let run = |place: &tempfile::TempDir| {
        run(launch(place.path(), "scripted:script.yaml", &settings), &settings, Some("run.journal"))
    };
    // At the same time.
    let answers = tokio::join!(run(one), run(two));
    for (place, name, answer) in [(one, "one", answers.0), (two, "two", answers.1)] {
        let Ok(Output::Text(said)) = answer else { panic!("{answer:?}") };
        let path = place.path().canonicalize().unwrap();
        let path = path.to_str().unwrap();
        assert!(said.starts_with(&format!("{name}: ")), "its own script: {said}");
        assert_eq!(said.matches(path).count(), 2, "a command and Python are in {path}: {said}");
        assert!(said.contains(&format!("the note of {name}")), "{said}");
        assert!(place.path().join("run.journal").is_file());
    }
    assert_eq!(std::env::current_dir().unwrap(), before, "the process stays where it is");
}

#[tokio::test]
async fn a_key_is_fetched_where_the_run_works() {
    let home = tempfile::tempdir().unwrap();
    let settings = settings(home.path());
    for place in [place("one"), place("two")] {
        let launched = launch(place.path(), "acme:rocket", &settings);
        let failed = Box::pin(run(launched, &settings, None)).await;
        assert!(matches!(failed, Err(RunError::Model { .. })), "nothing listens there: {failed:?}");
        let printed = fs::read_to_string(place.path().join("key_was_asked_for")).unwrap();
        assert_eq!(Path::new(printed.trim_end()), place.path().canonicalize().unwrap());
    }
}
