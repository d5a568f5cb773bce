//! Limits that ask: what a person is asked where a limit is reached, as a call of a tool that nobody can call, and which figures
//! an answer may name. Pure.

use serde::{Deserialize, Serialize, Serializer};

use super::{Answer, Question};
#[cfg(feature = "front-end")]
use super::{ApprovalRequest, Form, PendingQuestion, form::check_kind};
use crate::message::RawJson;

/// The tool whose call a question about a limit is.
pub const RAISE_LIMIT: &str = "raise_limit";

/// What a person is asked about a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitRaise {
    /// The key of the limit, or `usd` for a budget.
    pub limit: String,
    /// Whose it is: `run`, `agent NAME` or `budget NAME`.
    pub of: String,
    #[serde(serialize_with = "figure")]
    pub used: f64,
    #[serde(serialize_with = "figure")]
    pub allowed: f64,
    /// What comes next takes at least so much.
    #[serde(serialize_with = "figure")]
    pub needed: f64,
    /// So much is proposed.
    #[serde(serialize_with = "figure")]
    pub to: f64,
}

/// A whole number as a person writes it.
#[expect(clippy::cast_possible_truncation, reason = "it is whole, and not too large")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn figure<S: Serializer>(amount: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if amount.fract() == 0.0 && amount.abs() <= LARGEST {
        return serializer.serialize_i64(*amount as i64);
    }
    serializer.serialize_f64(*amount)
}

/// No figure is larger: it would not be exact.
const LARGEST: f64 = 1e15;

impl LimitRaise {
    /// Proposes twice what is allowed, or as much as is needed if that is more.
    pub(crate) fn proposed(limit: &str, of: String, used: f64, allowed: f64, needed: f64) -> Self {
        let raise = Self { limit: limit.to_owned(), of, used, allowed, needed, to: 0.0 };
        let (twice, least) = (allowed * 2.0, used + needed);
        let to = match (twice >= least, raise.is_money()) {
            (true, _) => twice,
            (false, true) => (least * 100.0 - 1e-6).ceil() / 100.0,
            (false, false) => least,
        };
        Self { to, ..raise }
    }

    /// Whether the limit is one of money.
    pub(crate) fn is_money(&self) -> bool {
        matches!(self.limit.as_str(), "max_cost_usd" | "usd")
    }

    pub(crate) fn question(&self) -> Question {
        let Self { used, allowed, needed, to, .. } = self;
        let shown = |amount: &f64| self.shown(*amount);
        let whose = match self.of.split_once(' ') {
            Some(("agent", name)) => format!(" of agent `{name}`"),
            Some(("budget", name)) => format!(" of the budget `{name}`"),
            _ => String::new(),
        };
        let (what, next) = match self.limit.as_str() {
            "max_cost_usd" | "usd" => ("", format!("; the next request may cost {}", shown(needed))),
            "max_requests" => (" model requests", String::new()),
            "max_tool_calls" => (" tool calls", format!("; {} more are asked for", shown(needed))),
            "max_input_tokens" => (" tokens sent", format!("; the next request may have {}", shown(needed))),
            "max_output_tokens" => (" tokens received", String::new()),
            _ => ("", String::new()),
        };
        let (used, allowed) = (shown(used), shown(allowed));
        Question::because(format!("{used} of {allowed}{what}{whose} used{next}. Raise to {}?", shown(to)))
    }

    fn shown(&self, amount: f64) -> String {
        if !self.is_money() {
            return format!("{amount}");
        }
        if amount > 0.0 && amount < 0.1 { format!("${amount:.4}") } else { format!("${amount:.2}") }
    }

    pub(crate) fn arguments(&self) -> RawJson {
        RawJson::of(self)
    }

    /// Whether it raises a limit that allows so much.
    pub(crate) fn is_from(&self, allowed: f64) -> bool {
        is_equal(self.allowed, allowed)
    }

    /// The same as it was answered; `None` if it was not raised.
    pub(crate) fn answered(self, answer: &Answer) -> Option<Self> {
        match answer {
            Answer::Once => Some(self),
            Answer::Edited(arguments) => self.edited(arguments).ok(),
            Answer::CallForSession
            | Answer::ToolForSession
            | Answer::Values(_)
            | Answer::Refuse { .. }
            | Answer::EndRun
            | Answer::Later => None,
        }
    }

    /// The question about the same limit that stands in a record, in exactly its words.
    pub(crate) fn recorded(&self, arguments: &RawJson) -> Option<Self> {
        let asked: Self = arguments.to().ok()?;
        let is_same = asked.limit == self.limit && asked.of == self.of && is_equal(asked.allowed, self.allowed);
        is_same.then_some(asked)
    }

    /// What a person has changed the arguments to: another figure, and nothing else.
    pub(crate) fn edited(&self, arguments: &RawJson) -> Result<Self, String> {
        let edited: Self = arguments.to().map_err(|error| format!("that is no answer about a limit: {error}"))?;
        if edited != (Self { to: edited.to, ..self.clone() }) {
            return Err("only `to` can be changed: how far the limit is raised".to_owned());
        }
        edited.check()?;
        Ok(edited)
    }

    /// Why a figure is none that the limit can be raised to.
    fn check(&self) -> Result<(), String> {
        let Self { used, allowed, needed, to, .. } = self;
        let shown = |amount: &f64| self.shown(*amount);
        if !(to.is_finite() && *to <= LARGEST) || (!self.is_money() && to.fract() != 0.0) {
            return Err(format!("a limit cannot be raised to {to}"));
        }
        if to < used {
            return Err(format!("{} is less than the {} that are used already", shown(to), shown(used)));
        }
        if to <= allowed {
            return Err(format!("{} is not more than the {} that are allowed already", shown(to), shown(allowed)));
        }
        // What is shown is rounded, and a person types what is shown.
        let least = used + needed;
        if *to < least && !is_equal(*to, least) {
            let (to, least, needed) = (shown(to), self.rounded_up(least), shown(needed));
            return Err(format!(
                "{to} is too little: the next step takes up to {needed}, so it must be at least {least}"
            ));
        }
        Ok(())
    }

    fn rounded_up(&self, amount: f64) -> String {
        if self.is_money() {
            format!("${:.4}", (amount * 10_000.0 - 1e-6).ceil() / 10_000.0)
        } else {
            self.shown(amount)
        }
    }

    /// The answer that raises it to the figure that a person gives by a name: `usd` for money, `to` for all else. A figure without
    /// a name can mean nothing else.
    #[cfg(feature = "front-end")]
    fn answer(&self, values: &[(String, String)]) -> Result<Answer, String> {
        let expected = if self.is_money() { "usd" } else { "to" };
        let [(name, value)] = values else {
            return Err(format!("this question is answered by one value, `{expected}=…`"));
        };
        if name != expected && !name.is_empty() {
            return Err(format!("this question has no `{name}`: it is answered by `{expected}=…`"));
        }
        let figure = value.strip_prefix('$').filter(|_| self.is_money()).unwrap_or(value);
        let typed = if name.is_empty() { format!("`{value}`") } else { format!("`{name}={value}`") };
        let to: f64 = figure.parse().map_err(|_| format!("{typed} is no number"))?;
        let raised = Self { to, ..self.clone() };
        raised.check().map_err(|why| format!("{typed}: {why}"))?;
        Ok(if is_equal(to, self.to) { Answer::Once } else { Answer::Edited(raised.arguments()) })
    }
}

fn is_equal(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

#[cfg(feature = "front-end")]
impl PendingQuestion {
    /// The answer to a question that values answer, each by its name: a form, or a limit. An error says what is wrong with
    /// them, or that the question takes none.
    pub fn answer_by_values(&self, values: &[(String, String)]) -> Result<Answer, String> {
        by_values(&self.tool, &self.arguments, self.form.as_ref(), values)
    }

    /// Whether it takes such an answer at all.
    pub fn check_answer(&self, answer: &Answer) -> Result<(), String> {
        check_kind(answer, self.form.as_ref())
    }
}

#[cfg(feature = "front-end")]
impl ApprovalRequest {
    /// The answer to a question that values answer, as [`PendingQuestion::answer_by_values`] gives it.
    pub fn answer_by_values(&self, values: &[(String, String)]) -> Result<Answer, String> {
        by_values(&self.tool, &self.arguments, self.question.form.as_ref(), values)
    }
}

#[cfg(feature = "front-end")]
fn by_values(
    tool: &str,
    arguments: &RawJson,
    form: Option<&Form>,
    values: &[(String, String)],
) -> Result<Answer, String> {
    match (form, arguments.to::<LimitRaise>()) {
        (Some(form), _) => form.answer(values),
        (None, Ok(raise)) if tool == RAISE_LIMIT => raise.answer(values),
        (None, _) => Err("this question is answered by yes or no, and not by values".to_owned()),
    }
}

/// Whether arguments that a person has changed are an answer to a question about a limit. All others are judged elsewhere.
#[cfg(feature = "front-end")]
pub fn check_edited_raise(tool: &str, arguments: &RawJson, edited: &RawJson) -> Result<(), String> {
    match arguments.to::<LimitRaise>() {
        Ok(raise) if tool == RAISE_LIMIT => raise.edited(edited).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money() -> LimitRaise {
        LimitRaise::proposed("max_cost_usd", "run".to_owned(), 1.0, 1.0, 0.12)
    }

    #[test]
    fn a_question_says_what_is_used_and_what_is_needed() {
        let asked = |raise: &LimitRaise| raise.question().reason;
        assert_eq!(asked(&money()), "$1.00 of $1.00 used; the next request may cost $0.12. Raise to $2.00?");
        let poor = LimitRaise::proposed("max_cost_usd", "agent scout".to_owned(), 0.01, 0.02, 0.0512);
        assert_eq!(
            asked(&poor),
            "$0.0100 of $0.0200 of agent `scout` used; the next request may cost $0.0512. Raise to $0.0700?"
        );
        let budget = LimitRaise::proposed("usd", "budget everyday".to_owned(), 4.5, 5.0, 1.0);
        assert_eq!(
            asked(&budget),
            "$4.50 of $5.00 of the budget `everyday` used; the next request may cost $1.00. Raise to $10.00?"
        );
        let requests = LimitRaise::proposed("max_requests", "run".to_owned(), 3.0, 3.0, 1.0);
        assert_eq!(asked(&requests), "3 of 3 model requests used. Raise to 6?");
        let calls = LimitRaise::proposed("max_tool_calls", "run".to_owned(), 0.0, 0.0, 2.0);
        assert_eq!(asked(&calls), "0 of 0 tool calls used; 2 more are asked for. Raise to 2?");
    }

    #[test]
    fn a_figure_counts_if_it_is_one_and_reaches() {
        let values = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        let answer = |name: &str, value: &str| by_values(RAISE_LIMIT, &money().arguments(), None, &values(name, value));
        assert_eq!(answer("usd", "2"), Ok(Answer::Once));
        let three = LimitRaise { to: 3.5, ..money() };
        assert_eq!(answer("usd", "$3.50"), Ok(Answer::Edited(three.arguments())));
        assert_eq!(money().edited(&three.arguments()), Ok(three));
        for (name, value, why) in [
            ("usd", "abc", "`usd=abc` is no number"),
            ("usd", "", "`usd=` is no number"),
            ("", "two", "`two` is no number"),
            ("usd", "nan", "cannot be raised to NaN"),
            ("usd", "inf", "cannot be raised to inf"),
            ("usd", "-1", "is less than the $1.00 that are used already"),
            ("usd", "0.5", "$0.50 is less than the $1.00 that are used already"),
            ("usd", "1", "$1.00 is not more than the $1.00 that are allowed already"),
            ("usd", "1.1", "$1.10 is too little: the next step takes up to $0.12, so it must be at least $1.1200"),
            ("to", "2", "this question has no `to`: it is answered by `usd=…`"),
        ] {
            let wrong = answer(name, value).unwrap_err();
            assert!(wrong.contains(why), "{name}={value}: {wrong}");
        }
        let both = [values("usd", "2"), values("usd", "3")].concat();
        assert!(by_values(RAISE_LIMIT, &money().arguments(), None, &both).unwrap_err().contains("one value"));
        assert!(by_values("write_file", &money().arguments(), None, &both).unwrap_err().contains("yes or no"));
        let requests = LimitRaise::proposed("max_requests", "run".to_owned(), 3.0, 3.0, 1.0).arguments();
        assert!(by_values(RAISE_LIMIT, &requests, None, &values("to", "4.5")).unwrap_err().contains("raised to 4.5"));
        assert!(matches!(by_values(RAISE_LIMIT, &requests, None, &values("to", "4")), Ok(Answer::Edited(_))));
    }

    #[test]
    fn an_edited_answer_changes_the_figure_alone() {
        for wrong in [
            LimitRaise { used: 0.0, ..money() },
            LimitRaise { limit: "max_requests".to_owned(), ..money() },
            LimitRaise { of: "agent other".to_owned(), ..money() },
            LimitRaise { to: 0.2, ..money() },
        ] {
            assert!(money().edited(&wrong.arguments()).is_err(), "{wrong:?}");
        }
        assert!(money().edited(&RawJson::of(&serde_json::json!({"to": 3}))).is_err());
    }

    #[test]
    fn a_recorded_question_about_the_same_limit_is_asked_again_as_it_was() {
        let later = LimitRaise { used: 1.4, needed: 0.3, to: 3.0, ..money() };
        assert_eq!(later.recorded(&money().arguments()), Some(money()));
        assert_eq!(LimitRaise { allowed: 2.0, ..later }.recorded(&money().arguments()), None);
    }
}
