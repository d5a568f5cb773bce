//! An answer that was cut and gone on with: both halves as one reply.

use crate::message::{Reply, ReplyPart, TextPart};

/// The beginning of an answer and the rest of it.
pub(super) fn joined(begun: Reply, rest: Reply) -> Reply {
    let Reply { parts: more, model, finish, finish_reason, usage } = rest;
    let usage = begun.usage.plus(&usage);
    let (mut parts, mut more) = (begun.parts, more.into_iter().peekable());
    if let Some(ReplyPart::Text(before)) = parts.last_mut()
        && let Some(ReplyPart::Text(after)) = more.next_if(|part| matches!(part, ReplyPart::Text(_)))
    {
        *before = TextPart { text: joined_text(&before.text, &after.text), private: after.private };
    }
    parts.extend(more);
    Reply { parts, model, finish, finish_reason, usage }
}

/// Providers take the beginning without white space at its end, so that the rest may bring it along.
fn joined_text(begun: &str, rest: &str) -> String {
    let begun = if rest.starts_with(char::is_whitespace) { begun.trim_end() } else { begun };
    format!("{begun}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Finish, Usage};

    fn reply(text: &str, finish: Finish, output_tokens: u64) -> Reply {
        let parts = vec![ReplyPart::Text(TextPart { text: text.into(), private: None })];
        let usage = Usage { requests: 1, output_tokens, cost_usd: Some(0.5), ..Usage::default() };
        Reply { parts, model: "anthropic:m".into(), finish, finish_reason: None, usage }
    }

    #[test]
    fn both_halves_are_one_text_and_were_paid_for() {
        let cases = [
            ("one two", " three", "one two three"),
            ("one two ", "three", "one two three"),
            ("one two ", " three", "one two three"),
            ("one t", "wo", "one two"),
        ];
        for (begun, rest, expected) in cases {
            let whole = joined(reply(begun, Finish::Length, 3), reply(rest, Finish::Stop, 4));
            assert_eq!((whole.text().as_str(), whole.finish), (expected, Finish::Stop));
            let Usage { requests, output_tokens, cost_usd, .. } = whole.usage;
            assert_eq!((requests, output_tokens, cost_usd), (2, 7, Some(1.0)));
        }
    }
}
