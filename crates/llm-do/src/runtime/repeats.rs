//! A model that goes round in circles is told so: the third call in a row with the same arguments and the same result.
//! Nothing fails, since asking again and again may be honest work; limits bound it.

use crate::message::{Content, Message, ToolCall, ToolResult};

/// What a model reads behind the result of the third one.
pub(super) const NOTE: &str = "(This was the third call in a row with the same arguments and the same result. Calling it again may bring nothing new.)";

/// Writes the note where it belongs, once for each row of equal calls. Returns the tools that were called so.
pub(super) fn note(history: &[Message], calls: &[&ToolCall], results: &mut [ToolResult]) -> Vec<String> {
    let is_third = |index: usize| {
        let newest = (calls[index], &results[index]);
        let before = calls[..index].iter().copied().zip(&results[..index]).rev().chain(earlier(history));
        newest.1.outcome.is_ok() && before.take(3).take_while(|pair| are_equal(newest, *pair)).count() == 2
    };
    let third: Vec<usize> = (0..calls.len().min(results.len())).filter(|index| is_third(*index)).collect();
    for index in &third {
        if let Ok(parts) = &mut results[*index].outcome {
            parts.push(Content::text(NOTE));
        }
    }
    third.into_iter().map(|index| calls[index].tool.clone()).collect()
}

/// The calls of this turn with their results, the newest first.
fn earlier(history: &[Message]) -> impl Iterator<Item = (&ToolCall, &ToolResult)> {
    let mut messages = history.iter().rev().peekable();
    let rounds = std::iter::from_fn(move || {
        let Some(Message::Tool(results)) = messages.next_if(|message| matches!(message, Message::Tool(_))) else {
            return None;
        };
        let Some(Message::Assistant(reply)) = messages.next() else { return None };
        let calls: Vec<&ToolCall> = reply.tool_calls().collect();
        Some(calls.into_iter().zip(&results.parts).rev())
    });
    rounds.flatten()
}

fn are_equal(one: (&ToolCall, &ToolResult), other: (&ToolCall, &ToolResult)) -> bool {
    one.0.tool == other.0.tool && one.0.arguments == other.0.arguments && said(one.1) == said(other.1)
}

/// Without what we have added.
fn said(result: &ToolResult) -> Option<&[Content]> {
    let parts = result.outcome.as_deref().ok()?;
    match parts.split_last() {
        Some((Content::Text { text }, rest)) if text == NOTE => Some(rest),
        Some(_) | None => Some(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Arguments, Finish, Reply, ReplyPart, Usage};

    /// Each round is a list of calls: a tool, and what it gives.
    fn notes(rounds: &[&[(&str, Result<&str, &str>)]]) -> Vec<Vec<usize>> {
        let (mut history, mut noted) = (vec![Message::user("go")], Vec::new());
        for round in rounds {
            let call = |(tool, _): &(&str, _)| ToolCall {
                id: "c".into(),
                tool: (*tool).to_owned(),
                arguments: Arguments::parse("{}".into()),
                private: None,
            };
            let calls: Vec<ToolCall> = round.iter().map(call).collect();
            let result = |(tool, gave): &(&str, Result<&str, &str>)| ToolResult {
                id: "c".into(),
                tool: (*tool).to_owned(),
                outcome: gave.map(|text| vec![Content::text(text)]).map_err(str::to_owned),
            };
            let mut results: Vec<ToolResult> = round.iter().map(result).collect();
            note(&history, &calls.iter().collect::<Vec<_>>(), &mut results);
            let is_noted = |result: &ToolResult| result.outcome.as_ref().is_ok_and(|parts| parts.len() == 2);
            noted.push(results.iter().enumerate().filter(|(_, result)| is_noted(result)).map(|(at, _)| at).collect());
            let parts = calls.into_iter().map(ReplyPart::ToolCall).collect();
            let (model, finish, usage) = ("m:m".into(), Finish::ToolCalls, Usage::default());
            history.push(Message::Assistant(Reply { parts, model, finish, finish_reason: None, usage }));
            history.push(Message::tool_results(results));
        }
        noted
    }

    #[test]
    fn the_third_equal_call_in_a_row_is_noted_once() {
        let (same, other, failed): (&[_], &[_], &[_]) = (&[("a", Ok("x"))], &[("a", Ok("y"))], &[("a", Err("x"))]);
        let nothing = Vec::<usize>::new;
        assert_eq!(notes(&[same, same]), [nothing(), nothing()]);
        assert_eq!(notes(&[same; 6]), [nothing(), nothing(), vec![0], nothing(), nothing(), nothing()]);
        assert_eq!(notes(&[same, same, other, same]), [(); 4].map(|()| nothing()));
        assert_eq!(notes(&[failed; 3]), [(); 3].map(|()| nothing()));
        assert_eq!(notes(&[same, same, &[("b", Ok("x"))], same]), [(); 4].map(|()| nothing()));
        assert_eq!(notes(&[same, same, same, other, same, same, same])[6], [0], "another row is told of again");
        assert_eq!(notes(&[&[("a", Ok("x")); 4]]), [vec![2]], "of one reply");
        assert_eq!(notes(&[&[("a", Ok("x")); 2], same]), [nothing(), vec![0]]);
    }
}
