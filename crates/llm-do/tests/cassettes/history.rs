//! The history of a recorded request, with our own replies in the places of the recorded ones.

use std::collections::BTreeMap;

use llm_do::message::{
    Arguments, Content, Finish, Message, RawJson, Reply, ReplyPart, TextPart, ToolCall, ToolResult, Usage, UserMessage,
};
use serde_json::Value;

use crate::request::{Answered, Said, SaidCall, Turn};

/// Puts each of `replies` (all that we decoded so far) where the recorded client sent it back. What it sent back besides
/// (a history from elsewhere, a call that it made out of an error) goes as a reply of another model, and calls that it
/// added to a reply are added here.
pub fn history(turns: &[Turn], replies: &[Reply]) -> Vec<Message> {
    let mut unused: Vec<&Reply> = replies.iter().collect();
    let mut messages = Vec::new();
    let mut calls = Calls::default();
    for turn in turns {
        match turn {
            Turn::User(parts) => messages.push(Message::User(UserMessage { parts: parts.clone() })),
            Turn::Reply(said) => {
                calls = Calls::default();
                let (own, unmatched) = take_matching(said, &mut unused, &mut calls);
                let mut own: Vec<Reply> = own.into_iter().cloned().collect();
                match own.last_mut() {
                    None => messages.push(Message::Assistant(foreign(said, &mut calls))),
                    Some(last) => last.parts.extend(unmatched.into_iter().map(|call| added(call, &mut calls))),
                }
                messages.extend(own.into_iter().map(Message::Assistant));
            }
            Turn::Results(results) => messages.push(Message::tool_results(calls.answer(results))),
        }
    }
    messages
}

/// The calls that results may answer: ours in their order, by the ids of the recording.
#[derive(Default)]
struct Calls {
    order: Vec<(String, String)>,
    ours: BTreeMap<String, String>,
}

impl Calls {
    fn add(&mut self, recorded_id: &str, call: &ToolCall) {
        self.order.push((call.id.clone(), call.tool.clone()));
        self.ours.insert(recorded_id.to_owned(), call.id.clone());
    }

    fn answer(&mut self, results: &[Answered]) -> Vec<ToolResult> {
        let calls = std::mem::take(self);
        let outcome = |id: &String| {
            let result = results.iter().find(|result| calls.ours.get(&result.id) == Some(id))?;
            Some(result.outcome.clone())
        };
        let answered = |(id, tool): &(String, String)| {
            Some(ToolResult { id: id.clone(), tool: tool.clone(), outcome: outcome(id)? })
        };
        calls.order.iter().filter_map(answered).collect()
    }
}

/// The replies that together are this recorded one, and those of its calls that are in none of them.
fn take_matching<'a, 's>(
    said: &'s Said,
    unused: &mut Vec<&'a Reply>,
    calls: &mut Calls,
) -> (Vec<&'a Reply>, Vec<&'s SaidCall>) {
    let mut open: Vec<&SaidCall> = said.calls.iter().collect();
    let mut own = Vec::new();
    unused.retain(|reply| {
        let Some(matched) = matching(reply, said, &open) else { return true };
        for (said, call) in matched.iter().zip(reply.tool_calls()) {
            calls.add(&said.id, call);
        }
        open.retain(|call| !matched.iter().any(|taken| std::ptr::eq(*taken, *call)));
        own.push(*reply);
        false
    });
    (own, open)
}

/// Which of the recorded calls are those of the reply, or `None` if the reply is not in what was said.
fn matching<'s>(reply: &Reply, said: &Said, open: &[&'s SaidCall]) -> Option<Vec<&'s SaidCall>> {
    let mut open = open.to_vec();
    let mut matched = Vec::new();
    for call in reply.tool_calls() {
        let by_id = open.iter().position(|said| said.id == call.id);
        // Ids that a provider leaves out were made up, there and here.
        let index = by_id.or_else(|| open.iter().position(|said| is_alike(said, call)))?;
        matched.push(open.remove(index));
    }
    let words = letters(&reply.text());
    let spoken = !words.is_empty() && letters(&said.text).contains(&words);
    (!matched.is_empty() || spoken || reply.finish == Finish::Pause).then_some(matched)
}

fn is_alike(said: &SaidCall, call: &ToolCall) -> bool {
    let arguments = match &call.arguments {
        Arguments::Object(object) => object.to::<Value>().unwrap(),
        Arguments::Malformed(text) => Value::from(text.as_str()),
    };
    said.name == call.tool && said.arguments == arguments
}

/// The recorder replaced typographic characters in requests.
fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// A call as the recorded client sent it.
fn added(call: &SaidCall, calls: &mut Calls) -> ReplyPart {
    let SaidCall { id, name, arguments } = call;
    let arguments = Arguments::parse(RawJson::of(arguments).get().to_owned());
    let call = ToolCall { id: id.clone(), tool: name.clone(), arguments, private: None };
    calls.add(id, &call);
    ReplyPart::ToolCall(call)
}

/// A reply that another model wrote.
fn foreign(said: &Said, calls: &mut Calls) -> Reply {
    let mut parts = Vec::new();
    if !said.text.is_empty() {
        parts.push(ReplyPart::Text(TextPart { text: said.text.clone(), private: None }));
    }
    parts.extend(said.calls.iter().map(|call| added(call, calls)));
    let finish = if said.calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
    Reply { parts, model: "elsewhere:unknown".to_owned(), finish, finish_reason: None, usage: Usage::default() }
}

/// What must be found again in a request that was asked with this history, as it stands in JSON.
pub fn traces(messages: &[Message]) -> Vec<String> {
    let mut contents: Vec<&Content> = Vec::new();
    for message in messages {
        match message {
            Message::User(message) => contents.extend(&message.parts),
            Message::Tool(message) => {
                contents.extend(message.parts.iter().filter_map(|part| part.outcome.as_ref().ok()).flatten());
            }
            Message::Assistant(_) => {}
        }
    }
    let trace = |content: &Content| match content {
        // What is JSON itself, a protocol may embed.
        Content::Text { text } if text.trim().is_empty() || serde_json::from_str::<Value>(text).is_ok() => None,
        Content::Text { text } => Some(in_json(text)),
        Content::Value { .. } => None,
        Content::Attachment(file) => serde_json::to_value(file).unwrap()["data"].as_str().map(str::to_owned),
    };
    contents.into_iter().filter_map(trace).collect()
}

fn in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
