//! Time, requests, tokens and money in one line. Pure.

use std::time::Duration;

use llm_do::messages::Usage;

/// The line that closes a run or a chat. What was asked and never answered may have cost something too; if a person stopped
/// it, that is at least what its stream had told. What was not asked again, since the replies were known, is told apart. A run that is
/// kept is named.
pub fn line(elapsed: Duration, (usage, saved): (&Usage, &Usage), run: Option<&str>, is_cancelled: bool) -> String {
    let requests = match usage.requests {
        1 => "1 request".to_owned(),
        count => format!("{count} requests"),
    };
    let run = run.map(|run| format!(" · {run}")).unwrap_or_default();
    let run = if saved.requests > 0 { format!(" · {}{run}", cached(saved)) } else { run };
    let time = seconds(elapsed);
    let (tokens, cost) = (tokens(usage), cost(usage));
    let is_cut = is_cancelled && usage.unanswered > 0;
    let cost = if is_cut { cost.replacen("about ", "at least ", 1) } else { cost };
    match usage.unanswered {
        0 => format!("{time} · {requests} · {tokens} · {cost}{run}\n"),
        all if is_cut && all == usage.requests => format!("{time} · {requests} cancelled · {cost}{run}\n"),
        some => {
            let word = if is_cut { "cancelled" } else { "unanswered" };
            format!("{time} · {requests}, {some} {word} · {tokens} · {cost}{run}\n")
        }
    }
}

/// What was not asked again.
fn cached(saved: &Usage) -> String {
    let saved_money = saved.cost_usd.filter(|usd| *usd > 0.0).map(|usd| format!(", {} saved", money(usd)));
    format!("{} from the cache{}", saved.requests, saved_money.unwrap_or_default())
}

pub fn tokens(usage: &Usage) -> String {
    format!("{} tokens in, {} out", count(usage.input_tokens), count(usage.output_tokens))
}

/// The same where there is little room.
pub fn short_tokens(usage: &Usage) -> String {
    format!("{} in, {} out", count(usage.input_tokens), count(usage.output_tokens))
}

/// An amount in a table: small ones to the hundredth of a cent.
pub fn money(usd: f64) -> String {
    match usd {
        0.0 => "$0".to_owned(),
        usd if usd < 1.0 => format!("${usd:.4}"),
        usd => format!("${usd:.2}"),
    }
}

/// The costs in words. Unknown costs are not shown as zero, and estimated ones not as known.
pub fn cost(usage: &Usage) -> String {
    let about = if usage.estimated == 0 { "" } else { "about " };
    match usage.cost_usd {
        None if usage.requests == 0 => "$0".to_owned(),
        None => "cost unknown".to_owned(),
        Some(0.0) => "$0".to_owned(),
        Some(usd) if usd < 0.1 => format!("{about}${usd:.4}"),
        Some(usd) => format!("{about}${usd:.2}"),
    }
}

pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        whole => format!("{} min {} s", whole / 60, whole % 60),
    }
}

/// A count of tokens: exact while it is short.
#[expect(clippy::cast_precision_loss, reason = "shown with one digit after the point")]
pub fn count(tokens: u64) -> String {
    match tokens {
        0..10_000 => tokens.to_string(),
        10_000..1_000_000 => format!("{:.1}k", tokens as f64 / 1e3),
        _ => format!("{:.1}M", tokens as f64 / 1e6),
    }
}

/// How far something has come: `3/10 copying`, in its own words.
pub fn progress(progress: f64, total: Option<f64>, message: Option<&str>) -> String {
    let total = total.map(|total| format!("/{total}")).unwrap_or_default();
    let message = message.map(|message| format!(" {message}")).unwrap_or_default();
    format!("{progress}{total}{message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_in_one_line() {
        let usage = |requests, input_tokens, output_tokens, cost_usd| Usage {
            requests,
            input_tokens,
            output_tokens,
            cost_usd,
            ..Usage::default()
        };
        let cases = [
            (200, usage(1, 12, 3, Some(0.0)), "0.2 s · 1 request · 12 tokens in, 3 out · $0\n"),
            (
                61_000,
                usage(3, 12_345, 9_999, Some(0.012_345)),
                "1 min 1 s · 3 requests · 12.3k tokens in, 9999 out · $0.0123\n",
            ),
            (59_940, usage(2, 2_000_000, 0, Some(1.5)), "59.9 s · 2 requests · 2.0M tokens in, 0 out · $1.50\n"),
            (0, usage(1, 1, 1, None), "0.0 s · 1 request · 1 tokens in, 1 out · cost unknown\n"),
            (0, usage(0, 0, 0, None), "0.0 s · 0 requests · 0 tokens in, 0 out · $0\n"),
        ];
        for (milliseconds, usage, expected) in cases {
            assert_eq!(line(Duration::from_millis(milliseconds), (&usage, &Usage::default()), None, false), expected);
        }
        let cut = Usage { unanswered: 1, estimated: 1, ..usage(2, 12, 3, Some(0.25)) };
        let expected = "0.0 s · 2 requests, 1 unanswered · 12 tokens in, 3 out · about $0.25\n";
        assert_eq!(line(Duration::ZERO, (&cut, &Usage::default()), None, false), expected);
        let named = format!("{} · 06gy3k9x7wqe4t2m\n", expected.trim_end());
        assert_eq!(line(Duration::ZERO, (&cut, &Usage::default()), Some("06gy3k9x7wqe4t2m"), false), named);
        let expected = "0.0 s · 2 requests, 1 cancelled · 12 tokens in, 3 out · at least $0.25\n";
        assert_eq!(line(Duration::ZERO, (&cut, &Usage::default()), None, true), expected);
        let only = Usage { unanswered: 1, estimated: 1, ..usage(1, 612, 2, Some(0.0006)) };
        assert_eq!(
            line(Duration::ZERO, (&only, &Usage::default()), None, true),
            "0.0 s · 1 request cancelled · at least $0.0006\n"
        );
        let unknown = Usage { cost_usd: None, ..only };
        assert_eq!(
            line(Duration::ZERO, (&unknown, &Usage::default()), None, true),
            "0.0 s · 1 request cancelled · cost unknown\n"
        );
    }
}
