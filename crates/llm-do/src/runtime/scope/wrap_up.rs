//! A limit is reached, and the model finishes with what it has: one last request, in which it may not call tools, and for
//! which something was kept back.

use super::super::record::{TurnMessage, WrapUpRecord};
use super::super::request::LAST_RESULTS;
use super::super::{Output, RunError};
use super::{CallScope, answer, head};
use crate::event::EventKind;
use crate::journal::{StepDescription, StepKind, Steps};
use crate::message::{Content, Message, Reply, ToolResult};
use crate::model::{Head, estimate};
use crate::spending::LimitHit;

/// Where a limit is reached, and the model is to finish with what it has.
pub(super) struct Finishing {
    reached: LimitHit,
    /// The place of the decision, and of the last request.
    place: Steps,
}

/// What the model reads.
const FINISH: &str = "A limit of this run is reached. No more tools can be called, and this is the last reply. Finish now \
                      with what you have, and say what is missing.";
/// What it reads of calls that are not made any more.
const NOT_MADE: &str = "not called: the limit of tool calls is reached";
const CUT: &str = "\n[the rest is left out: a limit is reached]";

impl CallScope<'_> {
    /// From here on the model only finishes. The error is for whoever does not wait for that.
    pub(super) fn finish_at(&mut self, reached: LimitHit, place: &Steps) -> RunError {
        let (limit, used, allowed) = (reached.limit.name(), reached.used, reached.allowed);
        self.finishing = Some(Box::new(Finishing { reached, place: place.clone() }));
        let (agent, partial) = (self.agent.name.clone(), self.partial_text());
        RunError::Limit { agent, limit, used, allowed, needed: None, partial }
    }

    /// What a turn comes to that failed: its error, or a last answer.
    pub(super) async fn wrapped_up(&mut self, error: RunError) -> Result<Output, RunError> {
        match self.finishing.take() {
            None => Err(error),
            // Boxed: hardly any turn ends so.
            Some(finishing) => Box::pin(self.finish_with(*finishing)).await,
        }
    }

    async fn finish_with(&mut self, finishing: Finishing) -> Result<Output, RunError> {
        let Finishing { reached, place } = finishing;
        self.decide_to_finish(&reached, &place.at(format_args!("wrap_up"))).await?;
        self.end_calls();
        self.push(Message::user(FINISH), TurnMessage::Made);
        let reply = self.last_reply(&reached, &place.at(format_args!("last"))).await?;
        if reply.tool_calls().next().is_some() || reply.is_empty() || reply.unfinished().is_some() {
            return Err(self.limited(&reached, [self.partial_text(), reply.text()].join("\n").trim().to_owned()));
        }
        let output = answer(self.runtime, &self.agent, &reply, self.answered.as_ref(), &self.events).await?;
        self.push(Message::Assistant(reply), TurnMessage::Made);
        Ok(output)
    }

    /// It is decided once: whoever goes on with the run later does not find out again.
    async fn decide_to_finish(&mut self, reached: &LimitHit, steps: &Steps) -> Result<(), RunError> {
        let record = WrapUpRecord { limit: reached.limit.name(), used: reached.used, allowed: reached.allowed };
        let (events, agent) = (self.events.clone(), self.agent.name.clone());
        let telling = steps.telling(&events);
        let effect = async {
            let WrapUpRecord { limit, used, allowed } = record.clone();
            let text = format!("the limit `{limit}` is reached: agent `{agent}` finishes with what it has");
            telling.send(|| EventKind::LimitReached { limit, used, allowed });
            telling.send(|| EventKind::Notice { text });
            Ok::<_, RunError>(record)
        };
        steps.run(|| StepDescription::new(StepKind::Decide, &()), &telling, effect).await.map(drop)
    }

    /// Calls that are not made any more get a result, and results that are too long for what was kept back are cut.
    fn end_calls(&mut self) {
        let last = self.frame.history.len().saturating_sub(1);
        match self.frame.history.last_mut() {
            Some(Message::Assistant(reply)) => {
                let refused = |(id, tool): (String, String)| ToolResult { id, tool, outcome: Err(NOT_MADE.to_owned()) };
                let calls: Vec<_> = reply.tool_calls().map(|call| (call.id.clone(), call.tool.clone())).collect();
                if !calls.is_empty() {
                    let results = calls.into_iter().map(refused).collect();
                    self.push(Message::tool_results(results), TurnMessage::Made);
                }
            }
            Some(Message::Tool(message)) => {
                // Our own words need a part of it too.
                let share = (LAST_RESULTS - 256) / (message.parts.len() as u64).max(1);
                let cut = message.parts.iter_mut().filter_map(|result| shorten(result, share).then_some(())).count();
                if cut > 0 {
                    self.chain = None;
                    self.rewind(last);
                    if let Some(source) = self.turn.as_mut().and_then(|turn| turn.sources.last_mut()) {
                        *source = TurnMessage::Made;
                    }
                }
            }
            Some(Message::User(_)) | None => {}
        }
    }

    /// Asks once more. What does not fit though something was kept back for it is the limit after all.
    async fn last_reply(&mut self, reached: &LimitHit, steps: &Steps) -> Result<Reply, RunError> {
        let runtime = self.runtime;
        let model = runtime.models.of(&self.agent)?;
        let last = model.open(Head { may_call: false, ..head(runtime, &self.agent, self.plane()) });
        let usual = std::mem::replace(&mut self.conversation, last);
        let (parts, kept) = (self.parts.take(), std::mem::take(&mut self.own.kept));
        self.own.sent += runtime.resumed.requests_at(steps.path());
        self.extend_chain();
        // Set, so that the limit is not met with yet another last request.
        self.finishing = Some(Box::new(Finishing { reached: reached.clone(), place: steps.clone() }));
        let reply = self.sent(steps.clone(), None, true).await;
        self.finishing = None;
        (self.conversation, self.parts, self.own.kept) = (usual, parts, kept);
        reply
    }
}

/// Cuts a result to so many tokens; whether there was anything to cut.
fn shorten(result: &mut ToolResult, tokens: u64) -> bool {
    let Ok(parts) = &mut result.outcome else { return false };
    let mut left = tokens;
    let mut is_cut = false;
    for part in parts {
        let text = match part {
            Content::Text { text } => text,
            Content::Value { json } => json,
            Content::Attachment(_) => {
                *part = Content::Text { text: CUT.trim().to_owned() };
                is_cut = true;
                continue;
            }
        };
        let size = estimate::of_text(text);
        if size > left {
            let bytes = usize::try_from(if text.is_ascii() { left * 3 } else { left }).unwrap_or(usize::MAX);
            let text = format!("{}{CUT}", &text[..text.floor_char_boundary(bytes)]);
            *part = Content::Text { text };
            is_cut = true;
            left = 0;
        } else {
            left -= size;
        }
    }
    is_cut
}
