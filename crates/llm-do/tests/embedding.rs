//! What the library looks like to a program that embeds it: the blocks that its design shows, as they stand there, and the
//! same steps run with models that need no key.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking; the block prints its answer")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use fake_llm::{FakeLlm, FakeReply, FakeScript};
use llm_do::http::{HttpClient, HttpSettings};
use llm_do::model::exchange::{Endpoint, Exchange, Retries};
use llm_do::model::provider::provider;
use llm_do::project::trust::TrustedProgram;
use llm_do::runtime::ConnectError;
use llm_do::{Answer, Approvals, FileJournal, ModelChoices, Models, Project, Rule, Runtime, Tool};
use page::word_count;
use schemars::JsonSchema;
use serde::Deserialize;

/// The blocks, to the letter. They are compiled and not run: they need a key, and files in the working directory.
#[rustfmt::skip]
#[allow(unused_variables, unused_mut, reason = "a block shows a beginning, and goes on elsewhere")]
mod page {
    use super::{Deserialize, JsonSchema};
    use llm_do::{Answer, Approvals, FileJournal, Project, Rule, Runtime, Tool};

    /// The first one, of six lines.
    pub async fn main(key: &str) -> Result<(), Box<dyn std::error::Error>> {
        use llm_do::{Approvals, ModelChoices, Models, Project, Runtime};
        let project = Project::load("hello")?;
        let program = project.link(&ModelChoices::of("anthropic:claude-haiku-4-5")?)?;
        let runtime = Runtime::new(program, Models::connect("anthropic", key)?, Approvals::unattended());
        let outcome = runtime.run("What is a monad?").await?;
        println!("{}", outcome.output);
        Ok(())
    }

    /// Counts words
    #[derive(Deserialize, JsonSchema)] pub struct WordCount { text: String }
    pub async fn word_count(a: WordCount) -> Result<usize, String> { Ok(a.text.split_whitespace().count()) }

    /// The other lines.
    pub async fn rest(project: Project, runtime: Runtime, header: &str) -> Result<(), Box<dyn std::error::Error>> {
        let project = project.tool(Tool::new(word_count).verdict(Rule::Allow));

        let mut call = runtime.open_entry().await?;  // call.turn("…").await?, call.close().await
        call.close().await;
        let approvals = Approvals::ask_with(|question| async move { Answer::refuse("not today") });
        let runtime = runtime.with_journal(FileJournal::create("run.journal", &header, None)?);
        Ok(())
    }
}

const COUNTS: &str = "- {round: 1, call: {word_count: {text: '{{ heard }}'}}}\n- say: '{{ result }} words'\n";

/// A project on disk, as the block loads one.
fn hello() -> (tempfile::TempDir, Project) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("main.worker"), "---\nname: main\n---\nAnswer briefly.\n").unwrap();
    let project = Project::load(directory.path()).unwrap();
    (directory, project)
}

fn counting(approved: Rule) -> TrustedProgram {
    let project = Project::new(".").agent("main.worker", "---\nname: main\ntools: [word_count]\n---\nCount.");
    let project = project.tool(Tool::new(word_count).verdict(approved));
    project.link(&ModelChoices::scripted(COUNTS)).unwrap()
}

#[tokio::test]
async fn six_lines_lead_to_an_answer() -> Result<(), Box<dyn Error>> {
    // Named, so that it is compiled for what it promises.
    let _ = (page::main, page::rest);
    let (_directory, project) = hello();
    let program = project.link(&ModelChoices::scripted("- say: You said {{ heard }}."))?;
    let runtime = Runtime::new(program, Models::default(), Approvals::unattended());
    let outcome = runtime.run("hello").await?;
    assert_eq!(format!("{}", outcome.output), "You said hello.");
    Ok(())
}

/// The same with a provider on loopback: what `ModelChoices::of` chooses is asked for, with the key that was given.
#[tokio::test]
async fn a_provider_is_asked_with_the_key() -> Result<(), Box<dyn Error>> {
    let fake = FakeLlm::start(FakeScript::new().reply(FakeReply::text("A burrito.")));
    let usual = Endpoint::of(provider("anthropic").unwrap(), "sk-test".into()).unwrap();
    assert_eq!(usual.base_url, provider("anthropic").unwrap().base_url);
    let endpoint = Arc::new(Endpoint { base_url: fake.anthropic_url(), ..usual });
    let http = HttpClient::new(HttpSettings::STANDARD)?;
    let mut models = Models::default();
    models.insert("anthropic", Arc::new(Exchange { endpoint, http, retries: Retries::STANDARD }));

    let (_directory, project) = hello();
    let program = project.link(&ModelChoices::of("anthropic:claude-haiku-4-5")?)?;
    let outcome = Runtime::new(program, models, Approvals::unattended()).run("What is a monad?").await?;
    assert_eq!(outcome.output.to_string(), "A burrito.");
    fake.assert_finished();
    Ok(())
}

#[test]
fn what_cannot_be_connected_to_says_why() {
    let refused = |name: &str| Models::connect(name, "key").err().unwrap();
    assert!(Models::connect("anthropic", "key".to_owned()).is_ok());
    assert!(matches!(refused("nobody"), ConnectError::UnknownProvider { .. }));
    // Its address has the name of an account in it.
    assert!(matches!(refused("azure"), ConnectError::NoAddress { .. }));
    assert!(ModelChoices::of("claude").is_err());
}

/// A file that names its own model is no mistake: the choice is for those that name none.
#[test]
fn a_choice_for_all_agents_may_be_needed_by_none() {
    let project = Project::new(".").agent("main.worker", "---\nname: main\nmodel: ollama:q\n---\nx");
    assert!(project.link(&ModelChoices::of("anthropic:claude-haiku-4-5").unwrap()).is_ok());
}

#[tokio::test]
async fn a_function_is_a_tool() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new(counting(Rule::Allow), Models::default(), Approvals::unattended());
    assert_eq!(runtime.run("three short words").await?.output.to_string(), "3 words");
    Ok(())
}

#[tokio::test]
async fn an_entry_is_open_for_turns() -> Result<(), Box<dyn Error>> {
    let (_directory, project) = hello();
    let program = project.link(&ModelChoices::scripted("- say: '{{ heard }}, reply {{ round }}'"))?;
    let runtime = Runtime::new(program, Models::default(), Approvals::unattended());
    let mut call = runtime.open_entry().await?;
    assert_eq!(call.turn("one").await?.to_string(), "one, reply 1");
    assert_eq!(call.turn("two").await?.to_string(), "two, reply 2");
    assert_eq!(call.close().await.len(), 4);
    Ok(())
}

#[tokio::test]
async fn a_function_answers_questions() -> Result<(), Box<dyn Error>> {
    let approvals = Approvals::ask_with(|question| async move {
        match question.tool.as_str() {
            "word_count" => Answer::refuse("not today"),
            _ => Answer::Once,
        }
    });
    let runtime = Runtime::new(counting(Rule::Ask), Models::default(), approvals);
    let said = runtime.run("three short words").await?.output.to_string();
    assert!(said.contains("not today"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_run_is_recorded_in_a_file() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let (file, header) = (directory.path().join("run.journal"), "what resuming needs to know");
    let runtime = Runtime::new(counting(Rule::Allow), Models::default(), Approvals::unattended());
    let runtime = runtime.with_journal(FileJournal::create(&file, &header, None)?);
    runtime.run("three short words").await?;
    let contents = llm_do::journal::file::read_foreign(&file)?;
    assert_eq!(contents.header.get(), "\"what resuming needs to know\"");
    assert!(std::fs::read_to_string(&file)?.contains("word_count"));
    Ok(())
}

/// What a program outside of this repository cannot name is neither in the guide nor in the examples for embedders: the
/// modules that only the feature `internals` opens.
#[test]
fn guide_and_examples_use_public_names_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = std::fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let hidden: Vec<&str> = library
        .split("#[cfg(feature = \"internals\")]\npub mod ")
        .skip(1)
        .filter_map(|rest| rest.split_once(';').map(|(name, _)| name))
        .collect();
    assert!(hidden.contains(&"runtime"), "{hidden:?}");
    let shown = [
        "../../docs/embedding.md",
        "src/lib.rs",
        "examples/agents.rs",
        "examples/embed.rs",
        "examples/entry.rs",
        "examples/toolset.rs",
    ];
    for file in shown {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for name in &hidden {
            assert!(!text.contains(&format!("llm_do::{name}::")), "{file} names the hidden module `{name}`");
        }
    }
}

/// A program without flags reads advice that names none.
#[tokio::test]
async fn advice_is_a_value_that_reads_without_a_front_end() {
    let project = Project::new(".").agent("main.worker", "---\nname: main\n---\nx");
    let report = project.link(&ModelChoices::default()).err().unwrap().to_string();
    assert!(report.ends_with("= hint: write `model:` in its file, or choose a model for `main`"), "{report}");

    let runtime = Runtime::new(counting(Rule::Ask), Models::default(), Approvals::unattended());
    let error = runtime.run("three short words").await.unwrap_err();
    let remedy = error.remedy().unwrap();
    assert_eq!(remedy.to_string(), "give approvals that answer, or an approver who can be asked");
}
