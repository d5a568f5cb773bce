//! Asking the person: a question with a form, which goes the way of all questions and which only a person answers.

use schemars::JsonSchema;
use serde::Deserialize;

use super::approval::{FieldType, Form, FormAnswer, FormField, Judgement, PermittedCall, Question, Verdict, Voices};
use super::{CallContext, Repeat, ToolError, ToolSpec, Toolset, misfit};
use crate::BoxFuture;
use crate::message::{Content, RawJson};

/// Asks the person who runs you, and returns what they fill in. Use it only for what you cannot find out and must not guess.
/// They may decline
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AskUserArguments {
    /// What you want to know, in full: the person may see nothing else.
    question: String,
    /// At most 8 things to fill in; without them, one text.
    #[serde(default)]
    fields: Vec<FormField>,
}

/// The name of the tool, and of its toolset.
pub(crate) const ASK_USER: &str = "ask_user";

/// What a question without fields is answered with.
const ANSWER: &str = "answer";

pub(crate) struct AskUserToolset;

impl AskUserToolset {
    fn form(arguments: &RawJson) -> Result<Form, String> {
        let AskUserArguments { question, mut fields } = misfit::parse(arguments)?;
        if fields.is_empty() {
            fields.push(FormField {
                name: ANSWER.to_owned(),
                kind: FieldType::Text,
                options: Vec::new(),
                required: true,
            });
        }
        let form = Form { question, fields };
        form.check()?;
        Ok(form)
    }
}

impl Toolset for AskUserToolset {
    fn specs(&self) -> Vec<ToolSpec> {
        // Asked once all the same: the answer is a step of its own.
        vec![ToolSpec { repeat: Repeat::Repeatable, ..ToolSpec::of::<AskUserArguments>(ASK_USER) }]
    }

    fn judge<'a>(
        &'a self,
        _: &'a str,
        arguments: &'a RawJson,
        cx: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Judgement, String>> {
        Box::pin(async move {
            let question = Question {
                reason: format!("`{}` asks, in its own words:", cx.caller()),
                shows: vec!["question".to_owned(), "fields".to_owned()],
                form: Some(Self::form(arguments)?),
                ..Question::default()
            };
            // Neither a rule nor an approval of everything knows what a person would say.
            let voices = Voices { person_only: true, ..Voices::default() };
            Ok(Judgement { voices, ..Verdict::AlwaysAsk(question).into() })
        })
    }

    fn call<'a>(
        &'a self,
        call: PermittedCall,
        _: &'a CallContext<'a>,
    ) -> BoxFuture<'a, Result<Vec<Content>, ToolError>> {
        let read = match call.form_answer() {
            Some(FormAnswer::Filled(values)) => Ok(Content::Value { json: values.get().to_owned() }),
            Some(FormAnswer::Declined(None)) => Ok(Content::text(DECLINED)),
            Some(FormAnswer::Declined(Some(reason))) => Ok(Content::text(format!("{DECLINED}: {reason}"))),
            None => Err(ToolError::failed("nobody was asked")),
        };
        Box::pin(async move { Ok(vec![read?]) })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

const DECLINED: &str = "the person declined to answer";
