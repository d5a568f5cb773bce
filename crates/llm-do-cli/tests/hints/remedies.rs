//! Each remedy: where it is printed, and that it helps.

use std::fs;
use std::path::Path;

use crate::World;

/// A remedy in this program's words: what is typed first and prints it, and what is typed then, as it says.
struct Remedied {
    /// The variant of `Remedy`.
    name: &'static str,
    /// Files besides those of the world.
    files: &'static [(&'static str, &'static str)],
    first: (&'static str, i32),
    says: &'static str,
    then: (&'static str, &'static str),
}

const fn remedied(
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    first: (&'static str, i32),
    says: &'static str,
    then: (&'static str, &'static str),
) -> Remedied {
    Remedied { name, files, first, says, then }
}

const AGENT: &str = "---\nname: main\nmodel: azure:x\n---\nx\n";
const PYTHON: &str =
    r#"{"version": 1, "entry": {"agent": "main"}, "worker_files": ["main.worker"], "python_files": ["t.py"]}"#;
const BUDGET: &str = "[[budget]]\nname = \"b\"\nusd = 0.01\nper = \"day\"\n";

const REMEDIED: &[Remedied] = &[
    remedied(
        "ChooseEntry",
        &[],
        ("llm-do two hi -m scripted:script.yaml", 2),
        "or give `--agent NAME`; agents: a, b",
        ("llm-do two hi -m scripted:script.yaml --agent a", "done: hi"),
    ),
    remedied(
        "ChooseFirstModel",
        &[],
        ("llm-do check desk", 0),
        "hint: `-m`, `LLM_DO_MODEL` or `llm-do models --use NAME`",
        (
            "llm-do models --use ollama:qwen3 && llm-do check desk && LLM_DO_MODEL=ollama:x llm-do check desk && \
             llm-do check desk -m ollama:y",
            "main  ollama:qwen3",
        ),
    ),
    remedied(
        "ReplaceModels",
        &[],
        ("llm-do fenced hi", 3),
        "hint: `llm-do fenced -m all=ollama:qwen3`; without any key: `llm-do new demo --template demo && llm-do demo`",
        ("llm-do fenced -m all=scripted:script.yaml hi", "done: hi"),
    ),
    remedied(
        "ChooseProvider",
        &[],
        ("llm-do desk auth -m scripted:script.yaml", 3),
        "hint: `llm-do models` lists what can be asked; `ollama` needs no key",
        ("llm-do models", "ollama  key not needed"),
    ),
    remedied(
        "FindProvider",
        &[],
        ("llm-do desk busy -m scripted:script.yaml", 3),
        "`llm-do models` lists what else can be asked",
        ("llm-do models", "ollama  key not needed"),
    ),
    remedied(
        "SetKey",
        &[],
        ("llm-do check fenced", 0),
        "hint: set `ANTHROPIC_API_KEY` before a run",
        ("ANTHROPIC_API_KEY=k llm-do check fenced 2>&1 | grep -c hint | grep -x 0 && echo no hint", "no hint"),
    ),
    remedied(
        "SetAddress",
        &[("cloud/main.worker", AGENT)],
        ("AZURE_OPENAI_API_KEY=k llm-do cloud hi", 3),
        "hint: set AZURE_OPENAI_ENDPOINT or AZURE_OPENAI_API_ENDPOINT",
        // It is asked now, and is not there.
        (
            "AZURE_OPENAI_API_KEY=k AZURE_OPENAI_ENDPOINT=http://127.0.0.1:1 llm-do cloud hi --timeout 1 || test $? -ne 2",
            "127.0.0.1:1",
        ),
    ),
    remedied(
        "AnswerQuestions",
        &[],
        ("llm-do -p desk write -m scripted:script.yaml --ephemeral", 4),
        "hint: `--approve-all` answers every question with yes",
        ("llm-do -p desk write -m scripted:script.yaml --ephemeral --approve-all", "done: wrote"),
    ),
    remedied(
        "RaiseRunLimit",
        &[],
        ("llm-do desk write -m scripted:script.yaml --approve-all --max-requests 1 --ephemeral", 5),
        "hint: a flag or `runtime.limits` in the manifest allows more",
        ("llm-do desk write -m scripted:script.yaml --approve-all --max-requests 2", "done: wrote"),
    ),
    remedied(
        "RaiseAgentLimit",
        &[("small/main.worker", "---\nname: main\ntoolsets: [filesystem_cwd]\nlimits: { max_requests: 1 }\n---\nx\n")],
        ("llm-do small write -m scripted:script.yaml --approve-all", 5),
        "`limits` in the agent's file allows more; `llm-do resume ",
        (
            "sed -i 's/max_requests: 1/max_requests: 2/' small/main.worker; llm-do resume --last --force --approve-all",
            "done: wrote",
        ),
    ),
    remedied(
        "AllowUnknownPrices",
        &[],
        ("OPENAI_API_KEY=k llm-do desk hi -m openai:unknown --max-cost-usd 1", 2),
        "with `--allow-unknown-prices` the limit holds for what has a price",
        (
            "OPENAI_BASE_URL=http://127.0.0.1:1 OPENAI_API_KEY=k llm-do desk hi -m openai:unknown --max-cost-usd 1 \
             --allow-unknown-prices --timeout 1 || test $? -ne 2",
            "127.0.0.1:1",
        ),
    ),
    remedied(
        "NewProject",
        &[],
        ("mkdir none; llm-do none hi", 2),
        "hint: `llm-do new hello` writes a project to start from",
        ("llm-do new hello && llm-do hello hi -m scripted:script.yaml", "done: hi"),
    ),
    remedied(
        "NewWorkerFile",
        &[("none/empty.worker", "")],
        ("cd none; llm-do check .", 2),
        "hint: `llm-do new --worker empty` writes one to start from",
        ("cd none; rm empty.worker; llm-do new --worker empty && llm-do check .", "ok: 1 agent"),
    ),
    remedied(
        "ChoosePython",
        &[("code/project.json", PYTHON), ("code/main.worker", "---\nname: main\n---\nx\n"), ("code/t.py", "x = 1\n")],
        ("p=$(command -v llm-do); PATH=/nowhere $p code hi -m scripted:script.yaml", 2),
        "hint: name one with `--python PATH`, or make one with `python3 -m venv .venv` in the project",
        (
            "py=$(command -v python3); p=$(command -v llm-do); PATH=/nowhere $p code hi -m scripted:script.yaml --python $py",
            "done: hi",
        ),
    ),
    remedied(
        "ResumeRun",
        &[],
        ("llm-do desk hi -m scripted:script.yaml --journal j && llm-do desk hi -m scripted:script.yaml --journal j", 2),
        "hint: `llm-do resume j` continues the run in it; or name another file",
        ("llm-do resume j", "done: hi"),
    ),
    remedied(
        "ListRuns",
        &[],
        ("llm-do resume nothing", 2),
        "hint: `llm-do runs` lists the runs that are kept",
        ("llm-do desk hi -m scripted:script.yaml && llm-do runs", "desk"),
    ),
    remedied(
        "BeginRun",
        &[],
        ("llm-do resume --last", 2),
        "hint: `llm-do run PROJECT PROMPT` begins one; `llm-do runs --all` lists those of all projects",
        ("llm-do run desk hi -m scripted:script.yaml && llm-do resume --last && llm-do runs --all", "done: hi"),
    ),
    remedied(
        "BeginChat",
        &[],
        ("llm-do chat desk --continue", 2),
        "hint: `llm-do chat PROJECT` begins one; `llm-do runs --all` lists those of all projects",
        ("echo hi | llm-do chat desk -m scripted:script.yaml && llm-do chat desk --continue", "1 turn so far"),
    ),
    remedied(
        "RunElsewhere",
        &[],
        (
            "d=$(printf 'caf\\351'); mkdir $d; cp desk/main.worker $d; llm-do $d hi -m scripted:script.yaml --journal j",
            2,
        ),
        "hint: run it from a place with another name, or with `--ephemeral`",
        ("llm-do $(printf 'caf\\351') hi -m scripted:script.yaml --ephemeral", "done: hi"),
    ),
    remedied(
        "MendBudget",
        &[(".config/llm-do/config.toml", BUDGET), (".local/state/llm-do/budgets", "not a directory")],
        ("llm-do desk hi -m scripted:script.yaml", 2),
        "make its files readable and writable",
        ("rm .local/state/llm-do/budgets; llm-do desk hi -m scripted:script.yaml", "done: hi"),
    ),
];

/// Remedies that another test holds, since what prints them takes more than a line: the file, and words of it.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("AcceptThinFence", "tests/tools/residents.rs", "fence thin` or"),
    ("AcceptUnkeptRepository", "tests/tools/fence.rs", "LLM_DO_FENCE=thin` accepts that"),
    ("LogIn", "tests/mcp/oauth.rs", "llm-do mcp login hub"),
    ("ReadAsForeign", "tests/journal/foreign.rs", "foreign` reads"),
    ("ShowRun", "tests/kept/named.rs", "wait until it ends"),
    ("TryLater", "tests/run/failures.rs", "try again later"),
];

/// Remedies that print no command: a key of a file of the user, or words for those who embed the library. Their words name the key,
/// and the documents of the keys are held against the reader elsewhere.
const NO_COMMAND: &[&str] = &[
    "Text",
    "ChooseModel",
    "OverrideModel",
    "StartWithModel",
    "SetConnections",
    "AllowTime",
    "RaiseBudget",
    "BoundServerTool",
    "PlaceProgram",
    "NameInterpreter",
    "FindFence",
];

fn variants() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm-do/src/remedy.rs");
    let text = fs::read_to_string(file).unwrap();
    let inside = text.split("pub enum Remedy {\n").nth(1).unwrap().split("\n}\n").next().unwrap();
    let names = inside.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    names.map(|line| line.split([' ', ',', '(']).next().unwrap().to_owned()).collect()
}

#[test]
fn every_remedy_has_a_row() {
    let rows = REMEDIED.iter().map(|row| row.name).chain(ELSEWHERE.iter().map(|row| row.0));
    let mut rows: Vec<&str> = rows.chain(NO_COMMAND.iter().copied()).collect();
    rows.sort_unstable();
    let mut variants = variants();
    variants.sort_unstable();
    assert_eq!(rows, variants);
    for (name, file, words) in ELSEWHERE {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        assert!(text.contains(words), "{name} is not in {file}");
    }
    let words = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/remedy.rs")).unwrap();
    let words = words.split("#[cfg(test)]").next().unwrap();
    for name in NO_COMMAND {
        let arm = words.split(&format!("Remedy::{name}")).nth(1).and_then(|arm| arm.split("Remedy::").next());
        assert!(
            arm.is_none_or(|arm| !arm.contains("`llm-do ") || *name == "FindFence"),
            "{name} prints a command: {arm:?}"
        );
    }
}

#[test]
fn every_remedy_is_printed_where_it_helps() {
    let mut failed = String::new();
    for row in REMEDIED {
        let world = World::new();
        for (path, text) in row.files {
            world.0.file(path, text);
        }
        let first = world.types(row.first.0);
        let said = format!("{}{}", first.stdout, first.stderr);
        if first.code != Some(row.first.1) || !said.contains(row.says) {
            failed += &format!(
                "=== {} is not printed: {:?}\n$ {}\n{said}[{:?}]\n",
                row.name, row.says, row.first.0, first.code
            );
            continue;
        }
        let then = world.types(row.then.0);
        let said = format!("{}{}", then.stdout, then.stderr);
        if then.code != Some(0) || !said.contains(row.then.1) {
            failed += &format!(
                "=== {} does not help: {:?}\n$ {}\n{said}[{:?}]\n",
                row.name, row.then.1, row.then.0, then.code
            );
        }
    }
    assert!(failed.is_empty(), "{failed}");
}
