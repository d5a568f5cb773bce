//! Code in the place of an agent, or beside it: what it is given, and what becomes of its answer.

use serde_json::{Value, json};

use super::{CallScope, TurnMessage, answer};
use crate::journal::{StepDescription, StepKind};
use crate::message::{Content, Message, RawJson, Reply};
use crate::project::Typing;
use crate::runtime::input::Input;
use crate::runtime::{Output, RunError, Runtime};
use crate::tools::approval::canonical;
use crate::tools::python::stand_in::{AnswerMode, CodeAnswer, ShadowAnswer, StandIn};

/// What code is given of a turn, or why it can be given nothing.
pub(in crate::runtime) type CodeInput = Result<RawJson, String>;

impl CallScope<'_> {
    /// What code would be given of this turn; nothing if none may be asked. The input is still there.
    pub(super) fn given_to_code(&self) -> Option<CodeInput> {
        let stand_in = self.agent.stand_in.as_ref()?;
        if stand_in.mode == AnswerMode::Agent {
            return None;
        }
        let input = self.turn.as_ref()?.input.as_deref()?;
        Some(given_to_code(&self.agent.input, input))
    }

    /// The answer of code; nothing if the agent is asked.
    pub(super) async fn answered_by_code(&mut self, given: &CodeInput) -> Result<Option<Output>, RunError> {
        let Some(stand_in) = self.agent.stand_in.clone().filter(|stand_in| stand_in.mode.answers_by_code()) else {
            return Ok(None);
        };
        let (agent, runtime) = (self.agent.name.clone(), self.runtime);
        let failed = |reason: String| RunError::Code { agent: agent.clone(), reason };
        let is_fallback = stand_in.mode == AnswerMode::Fallback;
        let value = match given {
            Ok(value) => value,
            Err(_) if is_fallback => return Ok(None),
            Err(reason) => return Err(failed(reason.clone())),
        };
        let steps = self.turn_steps().at(format_args!("code"));
        let request = steps.is_recorded().then(|| described(&stand_in, value));
        let description = || StepDescription::new(StepKind::Decide, &request);
        let events = self.events.clone();
        let asked = steps.here(&events).step(description, |_| async {
            match ask(runtime, &stand_in, value).await {
                // What failed is asked again when the run goes on.
                CodeAnswer::Failed(reason) => Err(failed(reason)),
                answer => Ok(answer),
            }
        });
        match asked.await? {
            CodeAnswer::Value(value) => self.take_answer(&stand_in, &value).await.map(Some),
            CodeAnswer::NotSure(_) if is_fallback => Ok(None),
            CodeAnswer::NotSure(why) => Err(failed(format!("it is not sure: {why}"))),
            CodeAnswer::Failed(reason) => Err(failed(reason)),
        }
    }

    /// It is held against what the agent declares, as an answer of its model is, and stands in the conversation.
    async fn take_answer(&mut self, stand_in: &StandIn, value: &RawJson) -> Result<Output, RunError> {
        let text = match (&self.agent.output, value.to::<String>()) {
            (Typing::Untyped, Ok(text)) => text,
            _ => value.get().to_owned(),
        };
        let reply = Reply::answer(&format!("code:{}", stand_in.file.display()), text);
        let answered = answer(self.runtime, &self.agent, &reply, None, &self.events).await;
        let output = answered.map_err(|error| match error {
            RunError::Output { agent, violation } => RunError::Code { agent, reason: violation },
            other => other,
        })?;
        self.push(Message::Assistant(reply), TurnMessage::Made);
        Ok(output)
    }

    /// Lets code answer beside the agent, and notes whether it answers the same. Whatever comes of it changes nothing.
    pub(super) async fn shadow(&mut self, given: &CodeInput, output: &Output) -> Result<(), RunError> {
        let Some(stand_in) = self.agent.stand_in.clone().filter(|stand_in| stand_in.mode == AnswerMode::Shadow) else {
            return Ok(());
        };
        let Ok(value) = given else { return Ok(()) };
        let steps = self.turn_steps().at(format_args!("shadow"));
        // Without a record nobody would count.
        if !steps.is_recorded() {
            return Ok(());
        }
        let request = described(&stand_in, value);
        let (events, runtime) = (self.events.clone(), self.runtime);
        let effect = async {
            let code = ask(runtime, &stand_in, value).await;
            let is_same = match &code {
                CodeAnswer::Value(value) => is_same(value, output),
                CodeAnswer::NotSure(_) | CodeAnswer::Failed(_) => false,
            };
            Ok::<_, RunError>(ShadowAnswer { code, is_same })
        };
        let description = || StepDescription::new(StepKind::Decide, &request);
        steps.here(&events).step(description, |_| effect).await.map(drop)
    }
}

async fn ask(runtime: &Runtime, stand_in: &StandIn, value: &RawJson) -> CodeAnswer {
    match &runtime.program.registry.stand_ins {
        Some(host) => host.answer(stand_in, value).await,
        None => CodeAnswer::Failed("Python was not started".to_owned()),
    }
}

fn described(stand_in: &StandIn, value: &RawJson) -> RawJson {
    RawJson::of(&json!({"file": stand_in.file, "function": stand_in.function, "value": value}))
}

/// The value that an agent is given, for code: that of its schema, or `{"input": …}`.
pub(in crate::runtime) fn given_to_code(typing: &Typing, input: &Input) -> CodeInput {
    let has_files = match input {
        Input::Text(_) => false,
        Input::Parts(parts) => parts.iter().any(|part| matches!(part, Content::Attachment(_))),
        Input::Object { attachments, .. } => !attachments.is_empty(),
    };
    if has_files {
        return Err("files were given, which code does not take".to_owned());
    }
    // A message that was recorded is text, and may have been an object before.
    let input = match input {
        Input::Parts(parts) => {
            let text = parts.iter().map(|part| match part {
                Content::Text { text } | Content::Value { json: text } => text.as_str(),
                Content::Attachment(_) => "",
            });
            let text = text.collect::<Vec<_>>().join("\n");
            serde_json::from_str::<Value>(&text).ok().filter(Value::is_object).map_or(Input::Text(text), Input::from)
        }
        other => other.clone(),
    };
    match typing.schema() {
        Some(schema) => {
            let schema = schema.to().unwrap_or(Value::Null);
            input.fitted(&schema).map(|(value, _)| RawJson::of(&value))
        }
        None => Ok(match input {
            Input::Object { value: value @ Value::Object(_), .. } if value["input"].is_string() => {
                RawJson::of(&json!({"input": value["input"]}))
            }
            Input::Object { value, .. } => RawJson::of(&json!({"input": value})),
            Input::Text(text) => RawJson::of(&json!({"input": text})),
            Input::Parts(_) => return Err("nothing was said".to_owned()),
        }),
    }
}

/// Whether code answered what the agent answered, however the JSON is written.
fn is_same(value: &RawJson, output: &Output) -> bool {
    match output {
        Output::Value(answer) => canonical(value) == canonical(answer),
        Output::Text(text) => value.to::<String>().is_ok_and(|value| value == *text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_given_what_the_agent_is_given() {
        let typed = Typing::Schema(
            RawJson::parse(r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#).unwrap(),
        );
        let object = |value: Value| Input::from(value);
        for (typing, input, expected) in [
            (&typed, object(json!({"a": "x"})), r#"{"a":"x"}"#),
            (&typed, Input::from("x"), r#"{"a":"x"}"#),
            (&typed, Input::Parts(vec![Content::text("{\n  \"a\": \"x\"\n}")]), r#"{"a":"x"}"#),
            (&Typing::Untyped, Input::from("x"), r#"{"input":"x"}"#),
            (&Typing::Untyped, object(json!({"input": "x", "attachments": []})), r#"{"input":"x"}"#),
            (&Typing::Untyped, object(json!([1])), r#"{"input":[1]}"#),
            (&Typing::Untyped, Input::Parts(vec![Content::text("x")]), r#"{"input":"x"}"#),
        ] {
            assert_eq!(given_to_code(typing, &input).unwrap().get(), expected, "{input:?}");
        }
    }

    #[test]
    fn the_same_answer_may_be_written_otherwise() {
        let value = |text: &str| RawJson::parse(text).unwrap();
        let output = Output::Value(value(r#"{"b": 1, "a": [true]}"#));
        assert!(is_same(&value(r#"{"a":[true],"b":1}"#), &output));
        assert!(!is_same(&value(r#"{"a":[true],"b":2}"#), &output));
        assert!(is_same(&value(r#""x""#), &Output::Text("x".to_owned())));
        assert!(!is_same(&value("1"), &Output::Text("1".to_owned())));
    }
}
