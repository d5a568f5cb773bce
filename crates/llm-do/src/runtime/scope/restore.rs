//! A conversation that goes on: turns that a record has finished are taken over as they were, whatever has become of the
//! project since; a history that the caller gives is checked and recorded as its beginning.

use std::collections::{BTreeMap, HashSet};

use super::keep::PastTurn;
use super::{CallScope, Turn};
use crate::escape::visible_start;
use crate::event::{CallEnd, CallKind, EventKind};
use crate::journal::call::value_at;
use crate::journal::record::{command_number, turn_number};
use crate::journal::{RecordedSteps, StepDescription, StepKind, StepRecord, StepValue, Stop, telling};
use crate::message::{Content, Message, RawJson, Reply, ToolMessage};
use crate::runtime::input::{Input, InputError};
use crate::runtime::record::TurnRecord;
use crate::runtime::{Output, RunError};

/// A history that the caller gave.
impl StepValue for Vec<Message> {
    fn settled(self) -> Self {
        // The caller may have written it on many lines.
        RawJson::of(&self).in_one_line().to().unwrap_or(self)
    }
}

/// What was taken over from a record.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RestoredTurns {
    /// How many turns were finished.
    pub finished: usize,
    /// What was said last, and what was answered.
    pub last: Option<RestoredExchange>,
    /// The message of a turn that was cut off, as far as it was recorded:
    /// [`EntryCall::finish_turn`](crate::EntryCall::finish_turn) goes on with it.
    pub unfinished: Option<Vec<Content>>,
}

/// The last turn of a conversation that was finished.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RestoredExchange {
    /// What was said, as events show it.
    pub input: RawJson,
    /// What was answered, or said until it was stopped.
    pub output: Output,
    /// Why it came to no answer, if it was stopped or failed and stays all the same.
    pub stopped: Option<String>,
}

impl CallScope<'_> {
    /// Begins the conversation with what was said elsewhere. Before any turn.
    pub async fn begin_with(&mut self, history: Vec<Message>) -> Result<(), RunError> {
        check_history(&history).map_err(|reason| InputError::History { agent: self.agent.name.clone(), reason })?;
        let steps = self.steps.at(format_args!("history"));
        let request = steps.is_recorded().then(|| RawJson::of(&history).in_one_line());
        let description = || StepDescription::new(StepKind::Decide, &request);
        let given = steps.here(&self.events).step(description, |_| async move { Ok::<_, RunError>(history) }).await?;
        self.frame.history = given;
        Ok(())
    }

    /// Takes over what the record of the run has: the history that it began with and all turns that were finished, told
    /// again. Nothing of it is compared with the project of today. Before any turn.
    pub fn restore(&mut self) -> Result<RestoredTurns, RunError> {
        let steps = self.steps.clone();
        let Some(records) = steps.records() else { return Ok(RestoredTurns::default()) };
        let path = steps.path();
        let began = format!("{path}/history");
        if self.frame.history.is_empty() && records.result(&began).is_some() {
            self.frame.history = value_at(&began, records).map_err(Stop::Journal)?;
        }
        let (mut exchanges, mut unfinished) = (Vec::new(), None);
        for (number, key) in turns(path, records) {
            self.turns = number;
            self.restore_commands(number, records)?;
            exchanges.truncate(self.past.len());
            self.turns = number + 1;
            if records.result(&key).is_some() {
                exchanges.push(self.take_over(&key, records).map_err(Stop::Journal)?);
                unfinished = None;
            } else {
                // One that was given up was followed by others; only the last one was cut off.
                unfinished = value_at(&format!("{key}/input"), records).ok();
            }
        }
        self.restore_commands(self.turns, records)?;
        self.restore_view()?;
        exchanges.truncate(self.past.len());
        let restored = RestoredTurns { finished: exchanges.len(), last: exchanges.pop(), unfinished };
        Ok(restored)
    }

    /// Goes on with the turn that was cut off, under its number: what it had done is answered from the record. `message`
    /// is what [`CallScope::restore`] found.
    pub async fn finish_turn_until(
        &mut self,
        message: Vec<Content>,
        cancelled: impl Future<Output = ()> + Send,
    ) -> Result<Output, RunError> {
        self.turns = self.turns.saturating_sub(1);
        let turn = Turn { is_recorded: true, ..Turn::of(Input::Parts(message), None) };
        self.converse(turn, Some(std::pin::pin!(cancelled))).await
    }

    fn take_over(&mut self, key: &str, records: &dyn RecordedSteps) -> Result<RestoredExchange, String> {
        let turn: TurnRecord = value_at(key, records)?;
        let (messages, output) = (turn.messages(key, records)?, turn.output(key, records)?);
        let input = turn.input(key, records)?;
        if !self.has_begun {
            let (name, input, parent) = (self.agent.name.clone(), input.clone(), self.parent);
            self.events.send(|| EventKind::CallStarted { name, kind: CallKind::Agent, input, parent });
            self.has_begun = true;
        }
        let json = records.result(key).ok_or_else(|| format!("the record at `{key}` is missing"))?;
        let StepRecord { told, .. } =
            json.to::<StepRecord<serde::de::IgnoredAny>>().map_err(|error| error.to_string())?;
        self.events.replay(telling::told(key, &told, records)?);
        let own = records.keys_beneath(key).into_iter().filter(|request| is_request_of(key, request));
        self.own.sent += own.map(|request| self.runtime.resumed.requests_at(&request)).sum::<u64>();
        self.past.push(PastTurn { start: self.frame.history.len(), told: self.interrupted.take() });
        self.frame.history.extend(messages);
        self.restore_left_out(key, records)?;
        self.interrupted = turn.stopped().map(str::to_owned);
        self.ended = Some(match &self.interrupted {
            None => CallEnd::Output(output.told()),
            Some(reason) => CallEnd::Error(reason.clone()),
        });
        Ok(RestoredExchange { input, output, stopped: self.interrupted.clone() })
    }
}

/// The turns of a conversation that a record knows of, by their numbers.
fn turns(path: &str, records: &dyn RecordedSteps) -> BTreeMap<u64, String> {
    let keys = records.keys_beneath(path);
    let of_turns = keys.iter().filter(|key| command_number(path, key).is_none());
    let numbers = of_turns.filter_map(|key| turn_number(path, key));
    numbers.map(|number| (number, format!("{path}/t{number}"))).collect()
}

fn is_request_of(turn: &str, key: &str) -> bool {
    let name = key.strip_prefix(turn).and_then(|rest| rest.strip_prefix("/m"));
    // A last request stands beneath the one for which there was no room.
    let number = name.map(|name| name.trim_end_matches("/last").trim_end_matches("/calls"));
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a history can be gone on with: every tool call has its result, and nothing else has one. The error says which message
/// is wrong.
pub fn check_history(history: &[Message]) -> Result<(), String> {
    let mut open: Option<&Reply> = None;
    for (index, message) in history.iter().enumerate() {
        let number = index + 1;
        match (open.take(), message) {
            (None, Message::User(_)) => {}
            (None, Message::Assistant(reply)) => open = Some(reply).filter(|reply| reply.tool_calls().next().is_some()),
            (Some(reply), Message::Tool(results)) => {
                fits(reply, results).map_err(|why| format!("message {number}: {why}"))?;
            }
            (None, Message::Tool(_)) => return Err(format!("message {number} has results of calls that nobody made")),
            (Some(_), Message::User(_) | Message::Assistant(_)) => {
                return Err(format!("message {number} stands where the results of tool calls belong"));
            }
        }
    }
    match open {
        Some(_) => Err("the last reply has tool calls without results".to_owned()),
        None => Ok(()),
    }
}

fn fits(reply: &Reply, results: &ToolMessage) -> Result<(), String> {
    let asked: Vec<&str> = reply.tool_calls().map(|call| call.id.as_str()).collect();
    let given: Vec<&str> = results.parts.iter().map(|result| result.id.as_str()).collect();
    let distinct: HashSet<&&str> = asked.iter().collect();
    if distinct.len() != asked.len() {
        return Err("two calls of the reply before have the same id".to_owned());
    }
    match asked.iter().find(|id| !given.contains(id)) {
        Some(id) => Err(format!("the call `{}` has no result", visible_start(id, 80))),
        None if asked == given => Ok(()),
        None => Err("the results are not those of the calls before, in their order".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Arguments, Finish, ReplyPart, ToolCall, ToolResult, Usage};

    fn reply(calls: &[&str]) -> Message {
        let call = |id: &&str| {
            let (id, tool, arguments) = ((*id).to_owned(), "t".to_owned(), Arguments::parse(String::new()));
            ReplyPart::ToolCall(ToolCall { id, tool, arguments, private: None })
        };
        let (parts, model) = (calls.iter().map(call).collect(), "a:b".to_owned());
        Message::Assistant(Reply { parts, model, finish: Finish::Stop, finish_reason: None, usage: Usage::default() })
    }

    fn results(ids: &[&str]) -> Message {
        let result = |id: &&str| ToolResult {
            id: (*id).to_owned(),
            tool: "t".to_owned(),
            outcome: Ok(vec![Content::text("x")]),
        };
        Message::tool_results(ids.iter().map(result).collect())
    }

    #[test]
    fn a_history_is_replayed_as_it_was_given() {
        use crate::journal::generated::{Generator, assert_replayed_is_live};
        assert_replayed_is_live(|generator, _| generator.list(3, Generator::message), |messages| messages);
    }

    #[test]
    fn every_call_of_a_given_history_has_its_result() {
        let user = || Message::user("hi");
        let good = [
            vec![],
            vec![user()],
            vec![user(), reply(&[])],
            vec![user(), reply(&["a", "b"]), results(&["a", "b"]), reply(&[]), user()],
        ];
        for history in good {
            assert_eq!(check_history(&history), Ok(()), "{history:?}");
        }
        let bad = [
            (vec![user(), reply(&["a"])], "the last reply has tool calls without results"),
            (vec![user(), reply(&["a"]), user()], "message 3 stands where the results of tool calls belong"),
            (vec![results(&["a"])], "message 1 has results of calls that nobody made"),
            (vec![reply(&["a", "b"]), results(&["a"])], "message 2: the call `b` has no result"),
            (
                vec![reply(&["a"]), results(&["a", "b"])],
                "message 2: the results are not those of the calls before, in their order",
            ),
            (
                vec![reply(&["a", "a"]), results(&["a", "a"])],
                "message 2: two calls of the reply before have the same id",
            ),
        ];
        for (history, reason) in bad {
            assert_eq!(check_history(&history), Err(reason.to_owned()));
        }
    }
}
