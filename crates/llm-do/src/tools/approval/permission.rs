//! What the gate gives: the only thing with which a tool can be called.

use super::{FormAnswer, Verdict};
use crate::message::RawJson;

/// A call that the gate let through. The private fields are the point: only the gate makes one.
#[derive(Debug)]
pub struct PermittedCall {
    id: String,
    tool: String,
    arguments: RawJson,
    bound_to: Option<String>,
    exceptional: bool,
    form: Option<Box<FormAnswer>>,
}

/// What the gate let through, in this process: it is never written down, and nothing that was written down becomes one.
/// Only the plane makes a call of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    /// The arguments to which a person changed the call's.
    edited: Option<RawJson>,
    bound_to: Option<String>,
    exceptional: bool,
    /// Why the call fails without reaching its tool, if it does.
    failure: Option<String>,
    /// What a person made of the form of the question, if it has one.
    form: Option<Box<FormAnswer>>,
}

impl Permission {
    pub(super) fn of(verdict: &Verdict, bound_to: Option<String>, edited: Option<RawJson>) -> Self {
        let failure = match verdict {
            Verdict::Fail(reason) => Some(reason.clone()),
            Verdict::Allow | Verdict::Ask(_) | Verdict::AskAnyway(_) | Verdict::AlwaysAsk(_) | Verdict::Block(_) => {
                None
            }
        };
        Self { edited, bound_to, exceptional: verdict.is_exceptional(), failure, form: None }
    }

    /// For a call that asks a person, with what they made of it.
    pub(super) fn answered(verdict: &Verdict, form: FormAnswer) -> Self {
        Self { form: Some(Box::new(form)), ..Self::of(verdict, None, None) }
    }

    /// Takes out why the call fails without reaching its tool, if it does.
    pub(in crate::tools) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    /// What a person made of the form that was asked, and nothing else.
    pub(in crate::tools) fn into_form_answer(self) -> Option<FormAnswer> {
        self.form.map(|form| *form)
    }

    /// The digest of what the approval was shown against.
    pub fn bound_to(&self) -> Option<&str> {
        self.bound_to.as_deref()
    }

    /// For a call beneath which nothing runs, since all its steps come from a record.
    pub(in crate::tools) fn replayed(edited: Option<RawJson>) -> Self {
        Self { edited, bound_to: None, exceptional: false, failure: None, form: None }
    }

    /// The arguments that the approver put in the place of the model's; `None` if those stay.
    pub fn edited(&self) -> Option<&RawJson> {
        self.edited.as_ref()
    }

    pub(in crate::tools) fn call(self, id: &str, tool: &str, arguments: &RawJson) -> PermittedCall {
        let Self { edited, bound_to, exceptional, failure: _, form } = self;
        let arguments = edited.unwrap_or_else(|| arguments.clone());
        PermittedCall { id: id.to_owned(), tool: tool.to_owned(), arguments, bound_to, exceptional, form }
    }
}

impl PermittedCall {
    /// What the events of the call are told apart by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of the tool that may run.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The arguments that were permitted, which are the only ones that it may run with.
    pub fn arguments(&self) -> &RawJson {
        &self.arguments
    }

    /// The digest of what the approval was shown against, if it was asked for.
    pub(crate) fn bound_to(&self) -> Option<&str> {
        self.bound_to.as_deref()
    }

    /// Whether it allows what no rule can allow, such as a file outside the project: the toolset said so when it
    /// judged the call, and must not do such a thing for any other call.
    pub(crate) fn is_exceptional(&self) -> bool {
        self.exceptional
    }

    /// What a person made of the form that the call is, if it is one.
    pub(crate) fn form_answer(&self) -> Option<&FormAnswer> {
        self.form.as_deref()
    }

    /// The same call, under the name that the toolset below a variant has for its tool.
    pub(in crate::tools) fn renamed(self, tool: String) -> Self {
        Self { tool, ..self }
    }
}
