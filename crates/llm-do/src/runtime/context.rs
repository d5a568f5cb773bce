//! What becomes of a conversation that grows towards the window of its model: old results are cleared, then old turns are
//! summarised. Here is decided which; nothing is done. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::escape::visible_start;
use crate::journal::StepValue;
use crate::message::{Arguments, Content, Finish, Message, RawJson, Reply, ReplyPart, ToolCall, ToolResult, Usage};
use crate::model::estimate;
use crate::model::name::ModelName;
use crate::project::ContextSettings;

/// Results of so many calls stay, whatever they hold.
const LAST_RESULTS: usize = 5;
/// A result with fewer characters is not worth a mark.
const SHORT_RESULT: usize = 1_000;
/// After clearing, so much of the window is used.
const CLEARED_TO: f64 = 0.3;
/// The last so many tokens stay when turns are summarised, at most.
const MOST_KEPT: u64 = 20_000;

/// From which sizes on something is done, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContextThresholds {
    /// What may go in, so that the answer has room.
    pub window: u64,
    pub clear_above: u64,
    pub clear_to: u64,
    pub summarise_above: u64,
    pub keep: u64,
}

impl ContextThresholds {
    pub(super) fn of(settings: &ContextSettings, window: u64, max_tokens: Option<u64>) -> Self {
        let window = window.saturating_sub(max_tokens.unwrap_or(0));
        Self {
            window,
            clear_above: share(window, settings.clear_at.unwrap_or(0.6)),
            clear_to: share(window, CLEARED_TO),
            summarise_above: share(window, settings.summarise_at.unwrap_or(0.85)),
            keep: settings.keep.unwrap_or(MOST_KEPT).min(share(window, CLEARED_TO)),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of some thousand tokens, from 0 to 1"
)]
fn share(window: u64, part: f64) -> u64 {
    (window as f64 * part.clamp(0.0, 1.0)) as u64
}

/// What is left out of requests from a moment on, as a journal keeps it. Places are those of the whole conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContextPlan {
    /// The results that are cleared: the number of the message, and of the result in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cleared: Vec<(usize, usize)>,
    /// How many tokens they had.
    #[serde(default)]
    pub saved: u64,
    /// What stands before this message, but for the first one, is summarised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarise_to: Option<usize>,
}

impl StepValue for ContextPlan {}

impl ContextPlan {
    pub(super) fn is_empty(&self) -> bool {
        self.cleared.is_empty() && self.summarise_to.is_none()
    }

    /// What is done about a conversation of this size. `starts` are the numbers of the messages that turns begin with, the
    /// present one last.
    pub(super) fn of(
        history: &[Message],
        left_out: &LeftOut,
        starts: &[usize],
        size: u64,
        limits: &ContextThresholds,
        model: &ModelName,
    ) -> Self {
        let mut plan = Self::default();
        if size <= limits.clear_above {
            return plan;
        }
        for (place, tokens) in clearable(history, left_out, model) {
            if size.saturating_sub(plan.saved) <= limits.clear_to {
                break;
            }
            plan.cleared.push(place);
            plan.saved += tokens;
        }
        // A request that shows less than the one before it costs its cached beginning. Where the mark cannot be reached, it is
        // waited until there is something to win.
        let is_reached = size.saturating_sub(plan.saved) <= limits.clear_to;
        let is_little = plan.saved < limits.clear_above.saturating_sub(limits.clear_to);
        if !is_reached && is_little && size <= limits.summarise_above {
            return Self::default();
        }
        // Else each turn would clear the one result that has become old.
        if size.saturating_sub(plan.saved) > limits.summarise_above || (!is_reached && is_little) {
            plan.summarise_to = summary_end(history, left_out, starts, limits.keep, model);
        }
        plan
    }
}

/// All that is left out of requests so far.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    /// How long the conversation was when each was decided.
    edits: Vec<(usize, ContextPlan, Option<String>)>,
}

impl LeftOut {
    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    pub(super) fn add(&mut self, at: usize, plan: ContextPlan, summary: Option<String>) {
        self.edits.push((at, plan, summary));
    }

    /// What was decided later than the conversation was so long is undone.
    pub(super) fn truncate(&mut self, length: usize) {
        self.edits.retain(|(at, ..)| *at <= length);
    }

    /// How long the conversation was when something was last left out.
    pub(super) fn last(&self) -> usize {
        self.edits.last().map_or(0, |(at, ..)| *at)
    }

    fn cleared(&self) -> BTreeSet<(usize, usize)> {
        self.edits.iter().flat_map(|(_, plan, _)| plan.cleared.iter().copied()).collect()
    }

    /// The last summary: what stands before this message, and in which words.
    fn summary(&self) -> Option<(usize, &str)> {
        let of = |(_, plan, text): &'_ (usize, ContextPlan, Option<String>)| plan.summarise_to.zip(text.clone());
        let found = self.edits.iter().rev().find(|edit| of(edit).is_some())?;
        Some((found.1.summarise_to?, found.2.as_deref()?))
    }

    /// What a request sends.
    pub(super) fn view(&self, history: &[Message], model: &str) -> Vec<Message> {
        let (cleared, ordinals) = (self.cleared(), ordinals(history));
        let mut view = Vec::with_capacity(history.len());
        let from = match self.summary() {
            Some((to, text)) if to <= history.len() => {
                view.extend(history.first().cloned());
                view.push(Message::Assistant(summary_reply(to, text, model)));
                to
            }
            Some(_) | None => 0,
        };
        for (number, message) in history.iter().enumerate().skip(from) {
            let Message::Tool(results) = message else {
                view.push(message.clone());
                continue;
            };
            let calls = calls_before(history, number);
            let result = |(part, result): (usize, &ToolResult)| {
                if !cleared.contains(&(number, part)) {
                    return result.clone();
                }
                let ordinal = ordinals.get(&(number, part)).copied().unwrap_or_default();
                let mark = Content::text(mark(result, calls.get(part).copied(), ordinal));
                ToolResult { outcome: Ok(vec![mark]), ..result.clone() }
            };
            view.push(Message::tool_results(results.parts.iter().enumerate().map(result).collect()));
        }
        view
    }
}

fn summary_reply(to: usize, text: &str, model: &str) -> Reply {
    let text = format!("[Summary of {} earlier messages; `recall` with the id `s` reads them whole.]\n{text}", to - 1);
    let part = ReplyPart::Text(crate::message::TextPart { text, private: None });
    let (model, usage) = (model.to_owned(), Usage::default());
    Reply { parts: vec![part], model, finish: Finish::Stop, finish_reason: None, usage }
}

fn calls_before(history: &[Message], number: usize) -> Vec<&ToolCall> {
    match number.checked_sub(1).and_then(|before| history.get(before)) {
        Some(Message::Assistant(reply)) => reply.tool_calls().collect(),
        Some(Message::User(_) | Message::Tool(_)) | None => Vec::new(),
    }
}

/// Each result of the conversation, counted from 1.
fn ordinals(history: &[Message]) -> BTreeMap<(usize, usize), u64> {
    let mut count = 0;
    let mut ordinals = BTreeMap::new();
    for (number, message) in history.iter().enumerate() {
        let Message::Tool(results) = message else { continue };
        for part in 0..results.parts.len() {
            count += 1;
            ordinals.insert((number, part), count);
        }
    }
    ordinals
}

/// What stands in place of a result.
fn mark(result: &ToolResult, call: Option<&ToolCall>, ordinal: u64) -> String {
    let lines = match &result.outcome {
        Ok(content) => Content::shown(content).lines().count(),
        Err(_) => 0,
    };
    let subject = call.and_then(subject).map(|subject| format!(" {}", visible_start(&subject, 60))).unwrap_or_default();
    format!("[cleared: {}{subject}, {} lines; recall r{ordinal}]", result.tool, grouped(lines as u64))
}

fn subject(call: &ToolCall) -> Option<String> {
    const SUBJECTS: &[&str] = &["path", "command", "url", "query", "pattern", "name", "input", "id"];
    let Arguments::Object(arguments) = &call.arguments else { return None };
    let arguments: serde_json::Value = arguments.to().ok()?;
    SUBJECTS.iter().find_map(|name| arguments.get(*name)?.as_str().map(str::to_owned))
}

/// 3812 as 3,812.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Results that may be cleared, the oldest first, each with the tokens that this saves. Never the last ones, errors and
/// refusals, or short ones.
fn clearable(history: &[Message], left_out: &LeftOut, model: &ModelName) -> Vec<((usize, usize), u64)> {
    let cleared = left_out.cleared();
    let from = left_out.summary().map_or(0, |(to, _)| to);
    let results = history.iter().enumerate().skip(from).filter_map(|(number, message)| match message {
        Message::Tool(results) => {
            Some(results.parts.iter().enumerate().map(move |(part, result)| (number, part, result)))
        }
        Message::User(_) | Message::Assistant(_) => None,
    });
    let all: Vec<(usize, usize, &ToolResult)> = results.flatten().collect();
    let old = all.len().saturating_sub(LAST_RESULTS);
    let worth = |(number, part, result): &(usize, usize, &ToolResult)| {
        let content = result.outcome.as_ref().ok()?;
        let is_long = Content::shown(content).chars().nth(SHORT_RESULT).is_some();
        let message = Message::tool_results(vec![(*result).clone()]);
        let tokens = estimate::of_message(&message, model);
        (is_long && !cleared.contains(&(*number, *part))).then_some(((*number, *part), tokens))
    };
    all.iter().take(old).filter_map(worth).collect()
}

/// Where the summary ends: whole turns before the last tokens that stay. `None` if there is no such turn.
fn summary_end(
    history: &[Message],
    left_out: &LeftOut,
    starts: &[usize],
    keep: u64,
    model: &ModelName,
) -> Option<usize> {
    let before = left_out.summary().map_or(1, |(to, _)| to);
    let tail = |start: usize| history[start..].iter().map(|message| estimate::of_message(message, model)).sum::<u64>();
    let fits = |start: &&usize| {
        **start > before && **start < history.len() && matches!(history.first(), Some(Message::User(_)))
    };
    let candidates: Vec<usize> = starts.iter().filter(fits).copied().collect();
    candidates.iter().rev().find(|start| tail(**start) >= keep).or(candidates.first()).copied()
}

/// What the model is asked that summarises.
pub(super) const SUMMARISE: &str = "You summarise a part of a conversation between a user and an assistant, so that the \
assistant can go on with the summary in place of the words. Keep every fact, name, number, path, decision, promise and open \
question. Leave out greetings and repetitions. Write plain sentences, without an introduction.";

/// The part of a conversation that is summarised, to read.
pub(super) fn transcript(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        match message {
            Message::User(said) => text.extend(["user: ", &Content::shown(&said.parts), "\n"]),
            Message::Assistant(reply) => {
                let said = reply.text();
                if !said.trim().is_empty() {
                    text.extend(["assistant: ", &said, "\n"]);
                }
                for call in reply.tool_calls() {
                    let arguments = match &call.arguments {
                        Arguments::Object(object) => object.get().to_owned(),
                        Arguments::Malformed(text) => RawJson::of(text).get().to_owned(),
                    };
                    text.extend(["call: ", &call.tool, " ", &arguments, "\n"]);
                }
            }
            Message::Tool(results) => {
                for result in &results.parts {
                    match &result.outcome {
                        Ok(content) => text.extend(["result: ", &Content::shown(content), "\n"]),
                        Err(reason) => text.extend(["refused or failed: ", reason, "\n"]),
                    }
                }
            }
        }
    }
    text
}

/// What people refused stands in the summary in their words.
pub(super) fn refusals(messages: &[Message]) -> String {
    let results = messages.iter().filter_map(|message| match message {
        Message::Tool(results) => Some(&results.parts),
        Message::User(_) | Message::Assistant(_) => None,
    });
    let refused = results.flatten().filter_map(|result| match &result.outcome {
        Err(reason) if reason.starts_with(crate::journal::call::REFUSED) => Some((&result.tool, reason)),
        Err(_) | Ok(_) => None,
    });
    refused.map(|(tool, reason)| format!("\n`{tool}` was {reason}")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> ModelName {
        ModelName::parse("acme:rocket").unwrap()
    }

    fn round(id: usize, length: usize) -> [Message; 2] {
        let id = format!("c{id}");
        let arguments = Arguments::parse(format!("{{\"path\":\"{id}.md\"}}"));
        let call = ToolCall { id: id.clone(), tool: "read_file".to_owned(), arguments, private: None };
        let reply = Reply { parts: vec![ReplyPart::ToolCall(call)], ..Reply::answer(&"acme:rocket", "") };
        let text = "word\n".repeat(length / 5);
        let result = ToolResult { id, tool: "read_file".to_owned(), outcome: Ok(vec![Content::text(text)]) };
        [Message::Assistant(reply), Message::tool_results(vec![result])]
    }

    #[test]
    fn shares_of_windows_are_as_the_page_says() {
        let thresholds = |settings: ContextSettings, window, max_tokens| {
            let ContextThresholds { window, clear_above, clear_to, summarise_above, keep } =
                ContextThresholds::of(&settings, window, max_tokens);
            [window, clear_above, clear_to, summarise_above, keep]
        };
        let usual = ContextSettings::default;
        let cases = [
            (usual(), 8_192, Some(1_024), [7_168, 4_300, 2_150, 6_092, 2_150]),
            (usual(), 200_000, None, [200_000, 120_000, 60_000, 170_000, 20_000]),
            (usual(), 1_000, Some(2_000), [0, 0, 0, 0, 0]),
            (
                ContextSettings { clear_at: Some(0.5), keep: Some(100), ..usual() },
                1_000,
                None,
                [1_000, 500, 300, 850, 100],
            ),
            (ContextSettings { summarise_at: Some(2.0), ..usual() }, 1_000, None, [1_000, 600, 300, 1_000, 300]),
        ];
        for (settings, window, max_tokens, expected) in cases {
            assert_eq!(thresholds(settings, window, max_tokens), expected, "{window}");
        }
    }

    #[test]
    fn old_long_results_are_cleared_down_to_a_third_and_never_the_last_five() {
        let mut history = vec![Message::user("go")];
        (0..9).for_each(|id| history.extend(round(id, if id == 1 { 500 } else { 3_000 })));
        let limits = ContextThresholds::of(&ContextSettings::default(), 10_000, None);
        let plan = |size| ContextPlan::of(&history, &LeftOut::default(), &[0], size, &limits, &model());
        assert!(plan(6_000).is_empty(), "not above the threshold");
        let places = |numbers: &[usize]| numbers.iter().map(|number| (*number, 0)).collect::<Vec<_>>();
        assert_eq!(plan(8_000).cleared, places(&[2, 6, 8]), "the second is short, and the last five stay");
        assert_eq!((plan(3_900).cleared, plan(8_000).saved), (Vec::new(), 3_000));
        let small = ContextThresholds { clear_to: 5_500, ..limits };
        let few = ContextPlan::of(&history, &LeftOut::default(), &[0], 6_100, &small, &model());
        assert_eq!(few.cleared, places(&[2]), "no more than is needed");
        let mut left_out = LeftOut::default();
        left_out.add(history.len(), plan(8_000), None);
        let view = left_out.view(&history, "acme:rocket");
        let Message::Tool(results) = &view[2] else { panic!("{view:?}") };
        let mark = Content::shown(results.parts[0].outcome.as_ref().unwrap());
        assert_eq!(mark, "[cleared: read_file c0.md, 600 lines; recall r1]");
        assert_eq!((view.len(), &view[4]), (history.len(), &history[4]));
        let little = ContextPlan::of(&history, &left_out, &[0, 10], 8_600, &limits, &model());
        assert_eq!(little.summarise_to, Some(10), "where little can be cleared, turns are summarised");
        let again = ContextPlan::of(&history, &left_out, &[0], 8_000, &limits, &model());
        assert!(again.cleared.is_empty(), "nothing is cleared twice");
    }

    #[test]
    fn whole_turns_before_the_last_tokens_are_summarised_and_the_first_message_stays() {
        let mut history = Vec::new();
        let mut starts = Vec::new();
        for turn in 0..10 {
            starts.push(history.len());
            history.push(Message::user(format!("{turn} {}", "x".repeat(300))));
            history.push(Message::Assistant(Reply::answer(&"acme:rocket", "y".repeat(300))));
        }
        let limits = ContextThresholds::of(&ContextSettings::default(), 2_000, None);
        let plan = ContextPlan::of(&history, &LeftOut::default(), &starts, 1_900, &limits, &model());
        assert_eq!(
            (plan.summarise_to, plan.cleared.len()),
            (Some(14), 0),
            "the last 600 tokens and the turn they begin in"
        );
        let mut left_out = LeftOut::default();
        left_out.add(history.len(), plan, Some("They counted.".to_owned()));
        let view = left_out.view(&history, "acme:rocket");
        assert_eq!((view.len(), &view[0], &view[2..]), (8, &history[0], &history[14..]));
        let Message::Assistant(reply) = &view[1] else { panic!("{view:?}") };
        assert_eq!(
            reply.text(),
            "[Summary of 13 earlier messages; `recall` with the id `s` reads them whole.]\nThey counted."
        );
        left_out.truncate(history.len() - 2);
        assert!(left_out.is_empty(), "a turn that is forgotten takes back what was decided in it");
        let only = ContextPlan::of(&history[..2], &LeftOut::default(), &[0], 1_900, &limits, &model());
        assert!(only.is_empty(), "the present turn is never summarised");
        assert_eq!(grouped(3_812), "3,812");
    }
}
