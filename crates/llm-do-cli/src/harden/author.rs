//! Whoever writes the code: our own agent, or one of the project.

use std::path::Path;
use std::sync::Arc;

use llm_do::messages::Usage;
use llm_do::program::AgentSpec;
use llm_do::program::Typing;
use llm_do::{Input, ModelChoices, ModelName, Output, Project};
use llm_do_launch::launch::{Launch, ListenPlan, Record};
use llm_do_launch::session::Update;
use llm_do_launch::settings::Settings;
use serde_json::{Value, json};

use super::files::HardenedFiles;
use super::records::Example;
use crate::failure::Failure;
use crate::plan;
use crate::test::case::TestBench;

/// Our author: its prompt can be read and tested like any other.
pub const OURS: &str = include_str!("author.worker");

/// What code comes to, roughly, in tokens.
const ANSWER_TOKENS: u64 = 2_000;

/// Who is asked for code, and what is sent.
pub struct Authoring<'a> {
    pub settings: &'a Arc<Settings>,
    pub bench: &'a TestBench,
    /// An agent of the project, instead of ours.
    pub author: Option<String>,
    pub model: ModelName,
    pub choices: ModelChoices,
}

/// What the author reads.
pub fn request(files: &HardenedFiles, agent: &AgentSpec, examples: &[Example]) -> Result<Value, Failure> {
    let worker = files.root.join(&agent.file);
    let worker = llm_do_launch::text::file("the worker file", &worker)?;
    let schema = |typing: &Typing| -> Value {
        match typing {
            Typing::Untyped => Value::Null,
            Typing::Schema(schema) => schema.to().unwrap_or_default(),
            Typing::Python(class) => class.schema.as_ref().and_then(|schema| schema.to().ok()).unwrap_or_default(),
        }
    };
    let examples: Vec<Value> =
        examples.iter().map(|example| json!({"input": example.input, "output": example.output})).collect();
    Ok(json!({
        "function": files.function,
        "worker": worker,
        "schema_in": schema(&agent.input),
        "schema_out": schema(&agent.output),
        "examples": examples,
    }))
}

impl Authoring<'_> {
    /// ` (about $0.03)`.
    pub fn cost_words(&self, request: &Value) -> String {
        let input_tokens = (request.to_string().len() + OURS.len()) as u64 / 4;
        let usage = Usage { requests: 1, input_tokens, output_tokens: ANSWER_TOKENS, ..Usage::default() };
        match self.settings.config.prices.cost(&self.model, &usage) {
            Some(usd) if usd < 0.01 => " (less than $0.01)".to_owned(),
            Some(usd) => format!(" (about ${usd:.2})"),
            None => " (its price is not known)".to_owned(),
        }
    }

    /// Asks for the code. It is a text that nothing has run.
    pub async fn code(&self, request: Value) -> Result<String, Failure> {
        let linked = match &self.author {
            Some(author) => {
                let launch =
                    Launch { entry: Some(author.clone()), models: self.choices.clone(), ..self.bench.launch.clone() };
                launch.survey(self.settings)?.trust_as(&self.bench.agreed)?.link().await?
            }
            None => {
                let project = Project::new(Path::new(".")).agent("harden_author.worker", OURS);
                let models = ModelChoices { required: Some(self.model.clone()), ..self.choices.clone() };
                let launch = plan::launch(models);
                launch.survey_project(project, self.settings)?.trust_as_own()?.link().await?
            }
        };
        linked.check_keys()?;
        let (session, mut updates) = linked.ready(Record::Ephemeral, None)?.start(ListenPlan::default());
        session.turn(Input::from(request));
        let answer = loop {
            match updates.next().await {
                Some(Update::TurnEnded(result)) => break result.answer,
                Some(_) => {}
                None => return Err(Failure::failed("the author gave no answer")),
            }
        };
        drop(session);
        while updates.next().await.is_some() {}
        let answer: Value = match answer.map_err(Failure::from)? {
            Output::Value(value) => value.to().unwrap_or_default(),
            Output::Text(text) => serde_json::from_str(&text).unwrap_or_default(),
        };
        let code = answer["code"].as_str().filter(|code| !code.trim().is_empty());
        let code = code.ok_or_else(|| Failure::failed("the author answered without `code`"))?;
        Ok(format!("{}\n", unfenced(code).trim_end()))
    }
}

/// Models like to put code into a fence.
fn unfenced(code: &str) -> &str {
    let code = code.trim();
    let inner = code.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.and_then(|inner| inner.split_once('\n')).map_or(code, |(_, inner)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_no_part_of_the_code() {
        for text in ["x = 1", "```\nx = 1\n```", "```python\nx = 1```\n"] {
            assert_eq!(unfenced(text).trim(), "x = 1", "{text}");
        }
    }
}
