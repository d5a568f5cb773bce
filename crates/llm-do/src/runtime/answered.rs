//! What an agent was given and what it answered, in the calls of a recorded run: by its model, by code in its place, or by both.
//! For people and for whoever learns from it; nothing that runs looks at it. Pure.

use super::Input;
use super::call_tree::{CallState, RecordedCall, calls};
use super::record::turn_output;
use super::scope::given_to_code;
use crate::event::CallKind;
use crate::journal::call::{CallOutcome, CallRecord, value_at};
use crate::journal::record::JournalContents;
use crate::message::{Content, RawJson, Usage};
use crate::project::AgentSpec;
use crate::tools::python::stand_in::{CodeAnswer, ShadowAnswer};

/// A call of an agent that has its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnsweredCall {
    /// What it was given.
    pub input: RawJson,
    /// What was answered.
    pub output: RawJson,
    /// What its requests took.
    pub usage: Usage,
    /// Whether code answered in the place of the agent.
    pub is_by_code: bool,
    /// Where code answered beside the agent: what it answered, if it did, and whether that was the same.
    pub shadow: Option<(Option<RawJson>, bool)>,
}

/// The answered calls of an agent. What its entry was given is told by whoever began the run, if it is not written down as
/// JSON. Calls with files are left out, and so are those of a run that began with somebody else.
pub fn answered_calls(contents: &JournalContents, agent: &AgentSpec, said: Option<&Input>) -> Vec<AnsweredCall> {
    if contents.is_of_others() {
        return Vec::new();
    }
    let (mut found, mut waiting) = (Vec::new(), Vec::new());
    for (number, turn) in calls(contents).iter().enumerate() {
        let said = said.filter(|_| number == 0);
        found.extend(of_entry(contents, agent, turn, said));
        waiting.extend(turn.calls.clone());
    }
    // The first one first.
    waiting.reverse();
    while let Some(call) = waiting.pop() {
        found.extend(of_call(contents, agent, &call));
        waiting.extend(call.calls.into_iter().rev());
    }
    found
}

fn is_answered(agent: &AgentSpec, call: &RecordedCall) -> bool {
    call.kind == CallKind::Agent && call.name == agent.name && call.state == CallState::Done
}

fn of_entry(
    contents: &JournalContents,
    agent: &AgentSpec,
    turn: &RecordedCall,
    said: Option<&Input>,
) -> Option<AnsweredCall> {
    if !is_answered(agent, turn) {
        return None;
    }
    let parts = || value_at::<Vec<Content>>(&format!("{}/input", turn.key), contents).ok();
    let input = match said {
        Some(said) => said.clone(),
        // What a template made of it cannot be told back.
        None if agent.prompt.is_none() => Input::Parts(parts()?),
        None => return None,
    };
    let number = turn.key.rsplit_once("/t")?.1.parse().ok()?;
    let output = turn_output(contents, number)?.to_json();
    answered(contents, agent, (&turn.key, turn), &input, output)
}

fn of_call(contents: &JournalContents, agent: &AgentSpec, call: &RecordedCall) -> Option<AnsweredCall> {
    if !is_answered(agent, call) {
        return None;
    }
    let CallOutcome::Content(content) = value_at::<CallRecord>(&call.key, contents).ok()?.gave else { return None };
    let output = match content.as_slice() {
        [Content::Value { json }] => RawJson::parse(json).ok()?,
        [Content::Text { text }] => RawJson::of(text),
        _ => return None,
    };
    let input = Input::from(call.input.as_ref()?.to::<serde_json::Value>().ok()?);
    answered(contents, agent, (&format!("{}/t0", call.key), call), &input, output)
}

fn answered(
    contents: &JournalContents,
    agent: &AgentSpec,
    (turn, call): (&str, &RecordedCall),
    input: &Input,
    output: RawJson,
) -> Option<AnsweredCall> {
    let code = value_at::<CodeAnswer>(&format!("{turn}/code"), contents).ok();
    let shadow = value_at::<ShadowAnswer>(&format!("{turn}/shadow"), contents).ok();
    Some(AnsweredCall {
        input: given_to_code(&agent.input, input).ok()?,
        output,
        usage: call.usage,
        is_by_code: matches!(code, Some(CodeAnswer::Value(_))),
        shadow: shadow.map(|ShadowAnswer { code, is_same }| match code {
            CodeAnswer::Value(value) => (Some(value), is_same),
            CodeAnswer::NotSure(_) | CodeAnswer::Failed(_) => (None, is_same),
        }),
    })
}
