//! Tokens → money.
//!
//! The prices that we know stand in `prices/table.txt`, which `cargo run -p price-table` writes: sorted, one model
//! per line, searched where it lies. Nothing is parsed or built before a price is asked for. The user's own prices
//! come first, and a price that neither names stays unknown: it is never zero.
//!
//! A model is looked up by its whole name, then without what marks a version of it: a date (`-20251001`, `-2025-10-01`)
//! or a number (`-001`). Letters of any case are the same. Of `-latest` nothing is concluded: it moves on to models with
//! other prices, so only listed ones are known.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::name::ModelName;
use super::provider::provider;
use crate::message::Usage;

/// What models cost: the table, and what the user says instead.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    overrides: BTreeMap<String, ModelPrice>,
}

impl Prices {
    /// Prices of the user, which come before those of the table; names of models are compared in letters of any case.
    pub fn new(overrides: impl IntoIterator<Item = (ModelName, ModelPrice)>) -> Self {
        let key = |name: ModelName| name.to_string().to_ascii_lowercase();
        Self { overrides: overrides.into_iter().map(|(name, price)| (key(name), price)).collect() }
    }

    /// US dollars for one reply.
    pub fn cost(&self, model: &ModelName, usage: &Usage) -> Option<f64> {
        self.of(model).map(|price| price.cost(usage))
    }

    /// The price of a model: the user's own, else none at all for a free provider, else the table's; `None` if it is
    /// unknown.
    pub fn of(&self, model: &ModelName) -> Option<ModelPrice> {
        let own_provider = model.provider.to_ascii_lowercase();
        let model = model.model.to_ascii_lowercase();
        let overridden = names(&model).find_map(|name| self.overrides.get(&format!("{own_provider}:{name}")));
        if let Some(price) = overridden {
            return Some(price.clone());
        }
        if provider(&own_provider).is_some_and(|row| !row.paid) {
            return Some(ModelPrice::FREE);
        }
        listed(&own_provider, &model).filter_map(|name| find(TABLE, &name)).find_map(|price| price.parse().ok())
    }

    /// Every model with a known price, by its name.
    pub fn known(&self) -> BTreeMap<&str, ModelPrice> {
        let row = |(name, price): (&'static str, &str)| Some((name, price.parse().ok()?));
        let mut known: BTreeMap<&str, ModelPrice> = rows(TABLE).filter_map(row).collect();
        known.extend(self.overrides.iter().map(|(name, price)| (name.as_str(), price.clone())));
        known
    }
}

/// The names under which a table may list a model, the most exact first.
pub(super) fn listed_as(model: &ModelName) -> impl Iterator<Item = String> {
    listed(&model.provider.to_ascii_lowercase(), &model.model.to_ascii_lowercase()).collect::<Vec<_>>().into_iter()
}

/// Of names in small letters.
fn listed<'a>(provider: &'a str, model: &'a str) -> impl Iterator<Item = String> + 'a {
    let lists: [Option<&str>; 2] = match provider {
        "openai-chat" => [Some("openai"), None],
        // The list counts both ways to them as one.
        "google-vertex" => [Some("google"), None],
        // It resells the models of the other at the same price, and lists only what differs.
        "azure" => [Some("azure"), Some("openai")],
        name => [Some(name), None],
    };
    names(model).flat_map(move |name| lists.into_iter().flatten().map(move |list| format!("{list}:{name}")))
}

/// What one model costs. As text, a line of the table: the four prices, then those of longer prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPrice {
    /// What a token costs.
    pub rates: Rates,
    /// Other rates for longer prompts, by rising length.
    pub tiers: Vec<Tier>,
}

/// The rates for all tokens of a request with a longer prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// For more input tokens than these.
    pub above: u64,
    pub rates: Rates,
}

/// What the four kinds of tokens cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// For input that no cache knew.
    pub input: Rate,
    /// Tokens that come out.
    pub output: Rate,
    /// Tokens that are read from the provider's cache.
    pub cache_read: Rate,
    /// Tokens that are written to it.
    pub cache_write: Rate,
}

/// US dollars per million tokens, in millionths: the price of one token in picodollars. A whole number, so that costs
/// are exact however many tokens are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u32);

const PICODOLLARS: f64 = 1e12;

impl ModelPrice {
    const FREE: Self = Self {
        rates: Rates { input: Rate(0), output: Rate(0), cache_read: Rate(0), cache_write: Rate(0) },
        tiers: Vec::new(),
    };

    /// US dollars. Every input token is billed once: read from a cache, written to one, or neither.
    pub(crate) fn cost(&self, usage: &Usage) -> f64 {
        let rates = self.rates_for(usage.input_tokens);
        let read = usage.cache_read_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - read);
        let bill = [
            (usage.input_tokens - read - written, rates.input),
            (read, rates.cache_read),
            (written, rates.cache_write),
            (usage.output_tokens, rates.output),
        ];
        dollars(bill.into_iter().map(|(tokens, rate)| u128::from(tokens) * u128::from(rate.0)).sum())
    }

    /// Whether it costs nothing at all.
    pub(crate) fn is_free(&self) -> bool {
        *self == Self::FREE
    }

    /// The most that an input of about so many tokens can cost, and one token of the answer to it. The whole input
    /// may have to be written to a cache. The prompt may also have up to three times as many tokens, and so belong to
    /// a dearer tier: the estimate took three bytes for a token, and a token has at least one.
    pub(crate) fn most(&self, input_tokens: u64) -> (Money, Money) {
        let tiers = self.tiers.iter().filter(|tier| input_tokens.saturating_mul(3) > tier.above);
        let rates = || std::iter::once(&self.rates).chain(tiers.clone().map(|tier| &tier.rates));
        let input = rates().map(|rates| rates.input.max(rates.cache_write)).max().unwrap_or(self.rates.input);
        let output = rates().map(|rates| rates.output).max().unwrap_or(self.rates.output);
        (Money(u64::from(input.0)).times(input_tokens), Money(u64::from(output.0)))
    }

    fn rates_for(&self, input_tokens: u64) -> &Rates {
        let tier = self.tiers.iter().rev().find(|tier| input_tokens > tier.above);
        tier.map_or(&self.rates, |tier| &tier.rates)
    }
}

/// An amount of money, in picodollars: whole, so that sums and differences are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(u64);

impl Money {
    /// No money.
    pub(crate) const ZERO: Self = Self(0);

    /// A thousandth of a dollar, so many times.
    pub(crate) const fn mills(mills: u64) -> Self {
        Self(mills * 1_000_000_000)
    }

    /// The amount of so many dollars; zero if the number is negative or no number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a double saturates")]
    pub(crate) fn from_usd(usd: f64) -> Self {
        Self((usd * PICODOLLARS).round() as u64)
    }

    /// The amount in dollars.
    pub fn usd(self) -> f64 {
        dollars(u128::from(self.0))
    }

    /// The amount in millionths of a millionth of a dollar, exactly.
    pub(crate) fn picodollars(self) -> u64 {
        self.0
    }

    /// So many millionths of a millionth of a dollar.
    pub fn from_picodollars(count: u64) -> Self {
        Self(count)
    }

    /// The sum, at most the largest amount that there is.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, and zero if the other amount is larger.
    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The amount so many times, at most the largest amount that there is.
    #[must_use]
    pub(crate) fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// How often the other amount is in this one.
    pub(crate) fn holds(self, other: Self) -> u64 {
        self.0.checked_div(other.0).unwrap_or(u64::MAX)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a double holds nine thousand dollars to the last picodollar")]
fn dollars(picodollars: u128) -> f64 {
    picodollars as f64 / PICODOLLARS
}

impl Rate {
    /// The dearest that can be said; six times what the dearest model costs.
    pub const HIGHEST: f64 = 4_000.0;

    /// From US dollars per million tokens.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        (0.0..=Self::HIGHEST).contains(&dollars).then(|| Self((dollars * 1e6).round() as u32))
    }

    /// US dollars per million tokens.
    pub fn dollars(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.dollars(), f)
    }
}

impl FromStr for Rate {
    type Err = NotAPrice;

    fn from_str(text: &str) -> Result<Self, NotAPrice> {
        text.parse().ok().and_then(Self::from_dollars).ok_or(NotAPrice)
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.input, self.output, self.cache_read, self.cache_write)
    }
}

impl fmt::Display for ModelPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rates.fmt(f)?;
        self.tiers.iter().try_for_each(|tier| write!(f, " >{} {}", tier.above, tier.rates))
    }
}

/// A text that is not a price as the table writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a price")]
pub struct NotAPrice;

impl FromStr for ModelPrice {
    type Err = NotAPrice;

    fn from_str(text: &str) -> Result<Self, NotAPrice> {
        let mut words = text.split(' ');
        let rates = Rates::read(&mut words)?;
        let mut tiers = Vec::new();
        while let Some(word) = words.next() {
            let above = word.strip_prefix('>').and_then(|above| above.parse().ok()).ok_or(NotAPrice)?;
            tiers.push(Tier { above, rates: Rates::read(&mut words)? });
        }
        Ok(Self { rates, tiers })
    }
}

impl Rates {
    fn read<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<Self, NotAPrice> {
        let mut rate = || words.next().ok_or(NotAPrice)?.parse();
        Ok(Self { input: rate()?, output: rate()?, cache_read: rate()?, cache_write: rate()? })
    }
}

/// The names under which a model may be listed: its own, then that of what it is a version of.
pub fn names(model: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(model), |name| unversioned(name))
}

fn unversioned(name: &str) -> Option<&str> {
    let is_number = |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    let (rest, last) = name.rsplit_once('-')?;
    let is_version = is_number(last, 3) && last.starts_with("00");
    let is_date = is_number(last, 8) && last.starts_with("20");
    if is_version || is_date {
        return Some(rest);
    }
    let (rest, month) = rest.rsplit_once('-')?;
    let (rest, year) = rest.rsplit_once('-')?;
    (is_number(year, 4) && is_number(month, 2) && is_number(last, 2)).then_some(rest)
}

/// `name price` lines in the order of their names, after comments, which sort before all names. ASCII.
const TABLE: &str = include_str!("prices/table.txt");

fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '))
}

/// The price of a model by binary search over the text itself.
pub(super) fn find<'a>(table: &'a str, name: &str) -> Option<&'a str> {
    // Both are always at the start of a line, or at the end.
    let (mut low, mut high) = (0, table.len());
    while low < high {
        let middle = low.midpoint(high);
        let start = table[low..middle].rfind('\n').map_or(low, |end| low + end + 1);
        let end = table[middle..high].find('\n').map_or(high, |end| middle + end);
        let (found, price) = table[start..end].split_once(' ')?;
        match found.cmp(name) {
            std::cmp::Ordering::Less => low = (end + 1).min(high),
            std::cmp::Ordering::Equal => return Some(price),
            std::cmp::Ordering::Greater => high = start,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ModelName {
        ModelName::parse(name).unwrap()
    }

    fn priced(text: &str) -> ModelPrice {
        text.parse().unwrap()
    }

    fn usage([input, output, read, written]: [u64; 4]) -> Usage {
        Usage {
            requests: 1,
            input_tokens: input,
            output_tokens: output,
            cache_read_tokens: read,
            cache_write_tokens: written,
            ..Usage::default()
        }
    }

    #[test]
    fn every_token_is_billed_once_at_its_own_rate() {
        let flat = "1 5 0.1 1.25";
        let tiered = "1 5 0.1 1.25 >1000 2 10 0.2 2.5 >2000 4 20 0.4 5";
        let cases = [
            (flat, [0, 0, 0, 0], "0"),
            (flat, [1_000_000, 1_000_000, 0, 0], "6"),
            (flat, [1, 0, 0, 0], "0.000001"),
            (flat, [1000, 100, 0, 0], "0.0015"),
            (flat, [1000, 100, 600, 300], "0.001035"),
            (flat, [1000, 0, 1000, 0], "0.0001"),
            // If a provider reports more cached tokens than tokens, no token is billed twice.
            (flat, [1000, 0, 900, 900], "0.000215"),
            (flat, [1000, 0, 5000, 5000], "0.0001"),
            (tiered, [1000, 0, 0, 0], "0.001"),
            (tiered, [1001, 1, 0, 0], "0.002012"),
            (tiered, [3000, 1, 1000, 1000], "0.00942"),
            ("0.1 0.2 0.1 0.1", [3, 0, 0, 0], "0.0000003"),
            ("600 4000 600 600", [u64::MAX, u64::MAX, 0, 0], "84855022739063940"),
        ];
        for (price, tokens, dollars) in cases {
            assert_eq!(priced(price).cost(&usage(tokens)).to_string(), dollars, "{price} {tokens:?}");
        }
    }

    #[test]
    fn the_most_that_an_input_costs_is_that_of_a_written_cache_and_of_a_long_prompt_if_it_may_be_one() {
        let tiered = "1 5 0.1 1.25 >1000 2 10 0.2 2.5 >9000 4 20 0.4 3";
        let cases = [
            ("1 5 0.1 1.25", 1000, 0.001_25, 0.000_005),
            ("2 5 0.1 1.25", 1000, 0.002, 0.000_005),
            (tiered, 100, 0.000_125, 0.000_005),
            (tiered, 400, 0.001, 0.000_01),
            (tiered, 4000, 0.016, 0.000_02),
            ("0 0 0 0", 4000, 0.0, 0.0),
        ];
        for (price, tokens, input, output) in cases {
            let most = (Money::from_usd(input), Money::from_usd(output));
            assert_eq!(priced(price).most(tokens), most, "{price} {tokens}");
        }
    }

    #[test]
    fn amounts_of_money_are_exact_and_never_less_than_nothing() {
        let cent = Money::from_usd(0.01);
        assert_eq!((cent.times(100), cent.minus(cent.plus(cent))), (Money::mills(1000), Money::ZERO));
        assert_eq!((cent.usd(), Money::from_usd(1.0).holds(cent), cent.holds(Money::ZERO)), (0.01, 100, u64::MAX));
        assert_eq!((Money::from_usd(-1.0), Money::from_usd(f64::NAN)), (Money::ZERO, Money::ZERO));
    }

    #[test]
    fn costs_add_up_without_crumbs() {
        let cost = |dollars| Usage { requests: 1, cost_usd: Some(dollars), ..Usage::default() };
        let ten = (0..10).fold(Usage::default(), |sum, _| sum.plus(&cost(0.1)));
        assert_eq!(ten.cost_usd.unwrap().to_string(), "1");
        assert_eq!(cost(0.1).plus(&cost(0.2)).cost_usd.unwrap().to_string(), "0.3");
    }

    #[test]
    fn a_version_is_priced_as_what_it_is_a_version_of() {
        let cases: [(&str, &[&str]); 8] = [
            ("claude-haiku-4-5-20251001", &["claude-haiku-4-5-20251001", "claude-haiku-4-5"]),
            ("mistral-large-latest", &["mistral-large-latest"]),
            ("gpt-4o-2024-05-13", &["gpt-4o-2024-05-13", "gpt-4o"]),
            ("gemini-2.0-flash-001", &["gemini-2.0-flash-001", "gemini-2.0-flash"]),
            ("claude-opus-4-5", &["claude-opus-4-5"]),
            ("mistral-large-2411", &["mistral-large-2411"]),
            ("x-2024-5-13", &["x-2024-5-13"]),
            ("日-本", &["日-本"]),
        ];
        for (model, expected) in cases {
            assert_eq!(names(model).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn known_models_have_a_price_and_unknown_ones_have_none() {
        let prices = Prices::default();
        let input = |name| prices.of(&named(name)).map(|price| price.rates.input.to_string());
        let known = [
            ("anthropic:claude-haiku-4-5", "1"),
            ("anthropic:claude-haiku-4-5-20251001", "1"),
            ("Anthropic:Claude-Haiku-4-5", "1"),
            ("anthropic:claude-3-5-haiku-20241022", "0.8"),
            ("openai:gpt-4o", "2.5"),
            ("openai-chat:gpt-4o", "2.5"),
            ("azure:gpt-4o", "2.5"),
            ("openai:gpt-4o-2024-05-13", "5"),
            ("ollama:qwen3:8b", "0"),
            ("scripted:a.yaml", "0"),
        ];
        for (name, price) in known {
            assert_eq!(input(name).as_deref(), Some(price), "{name}");
        }
        for name in ["anthropic:claude", "openai:claude-haiku-4-5", "acme:rocket-1", "openai:#", "#:x", "zzz:zzz"] {
            assert_eq!(input(name), None, "{name}");
        }
        assert_eq!(prices.cost(&named("acme:rocket-1"), &usage([0; 4])), None);
    }

    #[test]
    fn the_user_knows_better_also_about_versions_and_free_providers() {
        let price = priced("7 8 7 7");
        let overridden = ["acme:Rocket-1", "anthropic:claude-haiku-4-5", "ollama:qwen3"];
        let prices = Prices::new(overridden.map(|name| (named(name), price.clone())));
        for name in ["acme:rocket-1", "acme:rocket-1-20260101", "anthropic:claude-haiku-4-5-20251001", "ollama:qwen3"] {
            assert_eq!(prices.of(&named(name)), Some(price.clone()), "{name}");
        }
        assert_eq!(prices.of(&named("ollama:llama")), Some(ModelPrice::FREE));
        assert_eq!(prices.known()["anthropic:claude-haiku-4-5"], price);
        assert_eq!(prices.known()["acme:rocket-1"], price);
    }

    #[test]
    fn every_row_is_found_and_reads_as_it_is_written() {
        let all: Vec<(&str, &str)> = rows(TABLE).collect();
        assert!(TABLE.is_ascii() && all.is_sorted_by(|(one, _), (other, _)| one < other));
        assert!(all.len() > 1000, "{}", all.len());
        for (name, price) in &all {
            assert_eq!(find(TABLE, name), Some(*price), "{name}");
            assert_eq!(priced(price).to_string(), *price, "{name}");
            assert_eq!(find(TABLE, &format!("{name}!")), None);
            assert!(provider(&named(name).provider).is_some_and(|row| row.paid), "{name}");
        }
        let without_end = TABLE.trim_end();
        let (last, price) = all[all.len() - 1];
        assert_eq!(find(without_end, last), Some(price));
        assert_eq!(find("", "a"), None);
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for text in ["", "1", "1 2 3", "1 2 3 x", "-1 2 3 4", "1 2 3 inf", "1 2 3 NaN", "1 2 3 4001", "1 2 3 4 >5"] {
            assert_eq!(text.parse::<ModelPrice>(), Err(NotAPrice), "{text}");
        }
        assert_eq!(Rate::from_dollars(0.003_625).unwrap().to_string(), "0.003625");
    }
}
