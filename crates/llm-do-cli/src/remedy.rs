//! What can be done about a mistake, in the words of this program: its flags, its variables and its configuration. The
//! library knows none of them. Clients of `serve` read the same words.

use std::path::Path;

use llm_do::approval::{FormField, PendingQuestion, short_id};
use llm_do::escape::visible;
use llm_do::remedy::{Remedy, Wording};

/// The words of this program, for the library to put into text that it makes itself.
pub const WORDING: Wording = Wording::by(words);

/// A remedy in one line.
pub fn words(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Text(text) => text.clone(),
        Remedy::ChooseEntry { agents } => {
            format!("mark one with `entry: true`, or give `--agent NAME`; {agents}")
        }
        Remedy::OverrideModel { agent, model } => format!("`-m {agent}={model}` replaces the model of one agent"),
        Remedy::StartWithModel { model, usable } => format!(
            "{usable}; start the run with `-m {model}` for agents without a `model` of their own (their \
             `compatible_models` must allow it)"
        ),
        Remedy::ReplaceModels { project, model, has_key } => {
            let other = format!("`llm-do {} -m all={model}`", shell_word(project));
            if *has_key { other } else { format!("{other}; without any key: {DEMO}") }
        }
        Remedy::NewWorkerFile { name } => format!("`llm-do new --worker {name}` writes one to start from"),
        Remedy::SetKey { variables } => format!("set `{}` before a run", variables.join("` or `")),
        Remedy::SetAddress { variables } => format!("set {}", variables.join(" or ")),
        Remedy::LogIn { server, project } => format!("`llm-do mcp login {server} {}`", shell_word(project)),
        Remedy::RaiseBudget { per } => {
            format!("a new {per} begins with all of it; `usd` of its `[[budget]]` in config.toml allows more")
        }
        Remedy::ResumeRun { file } => {
            format!("`llm-do resume {}` continues the run in it; or name another file", file.display())
        }
        other => fixed(other).map_or_else(|| other.to_string(), str::to_owned),
    }
}

/// Those whose words are always the same.
fn fixed(remedy: &Remedy) -> Option<&'static str> {
    Some(match remedy {
        Remedy::ChooseModel { .. } => "write `model:` in its file, give `-m provider:model`, or set `LLM_DO_MODEL`",
        Remedy::ChooseFirstModel => "`-m`, `LLM_DO_MODEL` or `llm-do models --use NAME`",
        Remedy::ChooseProvider => "`llm-do models` lists what can be asked; `ollama` needs no key",
        Remedy::TryLater => "try again later; `llm-do models` lists what else can be asked",
        Remedy::FindProvider => "is it running, and is this its address? `llm-do models` lists what else can be asked",
        Remedy::SetConnections => "`[http]` in config.toml sets `ca_file` and `proxy`",
        Remedy::AllowTime => "`[http]` in config.toml and `timeout_seconds` allow more time",
        Remedy::AnswerQuestions => "`--approve-all` answers every question with yes",
        Remedy::RaiseRunLimit => "a flag or `runtime.limits` in the manifest allows more",
        Remedy::AllowUnknownPrices => {
            "`[prices]` in config.toml names it, in USD per million tokens; with `--allow-unknown-prices` the limit \
             holds for what has a price"
        }
        Remedy::BoundServerTool => {
            "`max_uses` in the agent's file bounds it; with `--allow-unknown-prices` the limit does not cover it"
        }
        Remedy::NewProject => "`llm-do new hello` writes a project to start from",
        Remedy::PlaceProgram => {
            "a program is found by its name in directories of the system, and in `[shell] directories` of the user's \
             config.toml; one by its path must lie where only you and root can write"
        }
        Remedy::ChoosePython => {
            "name one with `--python PATH`, or make one with `python3 -m venv .venv` in the project"
        }
        Remedy::NameInterpreter => "name the interpreter with `--python PATH`",
        Remedy::FindFence => "`llm-do check` says which fence there is; without the key it runs with your rights",
        Remedy::AcceptThinFence => "`--fence thin` or `LLM_DO_FENCE=thin` accepts it",
        Remedy::AcceptUnkeptRepository => "`LLM_DO_FENCE=thin` accepts that",
        Remedy::ReadAsForeign => "`--foreign` reads it as a stranger's",
        Remedy::ListRuns => "`llm-do runs` lists the runs that are kept",
        Remedy::BeginRun => "`llm-do run PROJECT PROMPT` begins one; `llm-do runs --all` lists those of all projects",
        Remedy::BeginChat => "`llm-do chat PROJECT` begins one; `llm-do runs --all` lists those of all projects",
        Remedy::ShowRun => "wait until it ends, or look at it with `llm-do resume RUN --show`",
        Remedy::RunElsewhere => "run it from a place with another name, or with `--ephemeral`",
        // Worded with their data, or as the library does.
        Remedy::Text(_)
        | Remedy::ChooseEntry { .. }
        | Remedy::OverrideModel { .. }
        | Remedy::ReplaceModels { .. }
        | Remedy::StartWithModel { .. }
        | Remedy::NewWorkerFile { .. }
        | Remedy::SetKey { .. }
        | Remedy::SetAddress { .. }
        | Remedy::ResumeRun { .. }
        | Remedy::RaiseBudget { .. }
        | Remedy::LogIn { .. }
        | Remedy::MendBudget
        | Remedy::RaiseAgentLimit => return None,
    })
}

/// What runs without any key.
pub const DEMO: &str = "`llm-do new demo --template demo && llm-do demo`";

/// A path as a shell reads it as one word.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%=".contains(letter);
    let is_word = text.chars().all(is_plain) && !text.is_empty() && !text.starts_with('-');
    if is_word { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// The command that answers a question with a form, with an example of each value that it needs.
pub fn filling(question: &PendingQuestion, name: &str) -> String {
    format!(
        "`llm-do inbox answer {name} {} --go` answers with these values: put in your own",
        examples(question).join(" ")
    )
}

/// The flags of `resume` that decide about a question: yes, or an example of each value that it needs.
pub fn decided(question: &PendingQuestion) -> String {
    let id = short_id(&question.id);
    if question.form.is_none() {
        return format!(" --approve {id}");
    }
    examples(question).iter().fold(String::new(), |flags, value| flags + &format!(" --answer {id}.{value}"))
}

/// An example of each value that a form needs, as a shell reads it.
fn examples(question: &PendingQuestion) -> Vec<String> {
    let fields = question.form.iter().flat_map(|form| &form.fields);
    let is_any_needed = fields.clone().any(|field| field.required);
    let shown = fields.filter(|field| field.required || !is_any_needed);
    let value = |field: &FormField| format!("{}={}", field.name, shell_word(Path::new(field.example())));
    shown.map(|field| visible(&value(field)).into_owned()).collect()
}

/// The command that answers the question with this name: yes, or an example of each value that it needs.
pub fn answering(question: &PendingQuestion, name: &str) -> String {
    match &question.form {
        None => format!("llm-do inbox approve {name}"),
        Some(form) if form.fields.is_empty() => format!("llm-do inbox show {name}"),
        Some(_) => format!("llm-do inbox answer {name} {}", examples(question).join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What names a thing of this program.
    const OURS: &[&str] = &["`-", "llm-do ", "LLM_DO_", "config.toml"];

    #[test]
    fn each_remedy_is_worded_with_what_this_program_has() {
        let text = |text: &str| text.to_owned();
        let cases = [
            (Remedy::from("open a window"), "open a window"),
            (
                Remedy::ChooseEntry { agents: text("agents: a, b") },
                "mark one with `entry: true`, or give `--agent NAME`; agents: a, b",
            ),
            (
                Remedy::ChooseModel { agent: text("main") },
                "write `model:` in its file, give `-m provider:model`, or set `LLM_DO_MODEL`",
            ),
            (
                Remedy::OverrideModel { agent: text("main"), model: text("ollama:q") },
                "`-m main=ollama:q` replaces the model of one agent",
            ),
            (
                Remedy::StartWithModel { model: text("ollama:q"), usable: text("the project uses: x:y") },
                "the project uses: x:y; start the run with `-m ollama:q` for agents without a `model` of their own \
                 (their `compatible_models` must allow it)",
            ),
            (Remedy::SetKey { variables: vec![text("A"), text("B")] }, "set `A` or `B` before a run"),
            (
                Remedy::ReplaceModels { project: "my desk".into(), model: text("ollama:q"), has_key: false },
                "`llm-do 'my desk' -m all=ollama:q`; without any key: `llm-do new demo --template demo && llm-do demo`",
            ),
            (
                Remedy::ReplaceModels { project: "desk".into(), model: text("openai:gpt"), has_key: true },
                "`llm-do desk -m all=openai:gpt`",
            ),
            (Remedy::SetAddress { variables: vec![text("A"), text("B")] }, "set A or B"),
            (
                Remedy::ResumeRun { file: "a/b.journal".into() },
                "`llm-do resume a/b.journal` continues the run in it; or name another file",
            ),
            (
                Remedy::RaiseBudget { per: text("day") },
                "a new day begins with all of it; `usd` of its `[[budget]]` in config.toml allows more",
            ),
            (Remedy::RaiseAgentLimit, "`limits` in the agent's file allows more"),
            (Remedy::AcceptThinFence, "`--fence thin` or `LLM_DO_FENCE=thin` accepts it"),
            (
                Remedy::BoundServerTool,
                "`max_uses` in the agent's file bounds it; with `--allow-unknown-prices` the limit does not cover it",
            ),
        ];
        for (remedy, expected) in cases {
            assert_eq!(words(&remedy), expected);
            assert_eq!(WORDING.of(&remedy), expected);
        }
    }

    #[test]
    fn the_words_of_the_library_name_nothing_of_this_program() {
        let remedies = [
            Remedy::ChooseFirstModel,
            Remedy::ChooseProvider,
            Remedy::TryLater,
            Remedy::FindProvider,
            Remedy::SetConnections,
            Remedy::AllowTime,
            Remedy::AnswerQuestions,
            Remedy::AllowUnknownPrices,
            Remedy::BoundServerTool,
            Remedy::NewProject,
            Remedy::NewWorkerFile { name: "main".to_owned() },
            Remedy::PlaceProgram,
            Remedy::ChoosePython,
            Remedy::NameInterpreter,
            Remedy::FindFence,
            Remedy::AcceptThinFence,
            Remedy::AcceptUnkeptRepository,
            Remedy::ReadAsForeign,
            Remedy::ShowRun,
            Remedy::ListRuns,
            Remedy::BeginRun,
            Remedy::BeginChat,
            Remedy::RunElsewhere,
        ];
        for remedy in remedies {
            let (ours, neutral) = (words(&remedy), remedy.to_string());
            assert!(OURS.iter().any(|name| ours.contains(name)), "{ours}");
            assert!(!OURS.iter().any(|name| neutral.contains(name)), "{neutral}");
        }
    }
}
