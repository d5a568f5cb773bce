//! The models and prices of `genai-prices` → our table.

use std::collections::{BTreeMap, BTreeSet};

use llm_do::model::prices::{ModelPrice, Rate, Rates, Tier, names};

use crate::source::{Amount, Amounts, PriceSource, PricedProvider};

/// The names that `genai-prices` has for our providers, each with ours.
const PROVIDERS: &[(&str, &str)] = &[
    ("anthropic", "anthropic"),
    ("azure", "azure"),
    ("cerebras", "cerebras"),
    ("deepseek", "deepseek"),
    ("fireworks", "fireworks"),
    ("google", "google"),
    ("groq", "groq"),
    ("mistral", "mistral"),
    ("openai", "openai"),
    ("openrouter", "openrouter"),
    ("together", "together"),
    ("x-ai", "xai"),
];

/// The file: comments, then rows.
pub fn text(source: &PriceSource, day: &str) -> String {
    let rows = rows(source, day);
    let mut text = format!(
        "# What models cost, in US dollars per million tokens: input, output, cache read, cache write; after `>TOKENS`,\n\
         # the same for prompts of more tokens. Written by `cargo run -p price-table`, not by hand.\n\
         # Source: genai-prices {} of {day}, https://github.com/pydantic/genai-prices\n\
         # Copyright (c) Pydantic Services Inc. 2025 to present; MIT, see LICENSE-genai-prices\n",
        source.version
    );
    for (name, price) in &rows {
        if !is_implied(name, price, &rows) {
            text.push_str(&format!("{name} {price}\n"));
        }
    }
    text
}

/// Every name with a price, those that the lookup would find anyway included.
pub fn rows(source: &PriceSource, day: &str) -> BTreeMap<String, ModelPrice> {
    let mut rows = BTreeMap::new();
    for provider in &source.providers {
        for model in &provider.models {
            for name in model.names() {
                let listed = our_name(provider, &model.id, name)
                    .filter(|_| source.meant(provider, name).is_some_and(|meant| meant == model.id));
                rows.extend(listed.and_then(|listed| Some((listed.clone(), price(&listed, model.prices_on(day))?))));
            }
        }
    }
    rows
}

/// `provider:model` as our users write it; `None` for a name that is none of our providers'.
fn our_name(provider: &PricedProvider, id: &str, name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    if !name.is_ascii() || name.contains(char::is_whitespace) {
        return None;
    }
    // The router of Hugging Face asks one of several others; only a name that says which has a price.
    if let Some(backend) = provider.id.strip_prefix("huggingface_") {
        return (name == id.to_ascii_lowercase()).then(|| format!("huggingface:{name}:{backend}"));
    }
    let (_, ours) = PROVIDERS.iter().find(|(theirs, _)| *theirs == provider.id)?;
    let is_foreign = match *ours {
        // Names there begin with the maker.
        "openrouter" => !name.contains('/'),
        // Offered by Vertex AI only.
        "google" => name.contains("claude"),
        _ => false,
    };
    (!is_foreign).then(|| format!("{ours}:{name}"))
}

/// The price of a model that is billed by tokens of text. What also counts images, sound or reasoning apart has none:
/// our sums cannot tell such tokens from others.
fn price(name: &str, amounts: &Amounts) -> Option<ModelPrice> {
    let is_free = amounts.is_empty() && name.starts_with("openrouter:") && name.ends_with(":free");
    if is_free {
        return "0 0 0 0".parse().ok();
    }
    let is_apart = |key: &String| (key.starts_with("output_") && key != "output_mtok") || key == "input_image_mtok";
    if amounts.keys().any(is_apart) {
        return None;
    }
    let thresholds: BTreeSet<u64> = amounts.values().flat_map(Amount::thresholds).collect();
    let tier = |above: u64| Some(Tier { above, rates: rates(amounts, above + 1)? });
    Some(ModelPrice {
        rates: rates(amounts, 0)?,
        tiers: thresholds.into_iter().map(tier).collect::<Option<Vec<Tier>>>()?,
    })
}

/// Caches without a price of their own are billed as input.
fn rates(amounts: &Amounts, prompt: u64) -> Option<Rates> {
    let rate = |key: &str| amounts.get(key).map(|amount| Rate::from_dollars(amount.for_prompt(prompt)));
    let input = rate("input_mtok")??;
    Some(Rates {
        input,
        output: rate("output_mtok")??,
        cache_read: rate("cache_read_mtok").unwrap_or(Some(input))?,
        cache_write: rate("cache_write_mtok").unwrap_or(Some(input))?,
    })
}

/// Whether the lookup finds the same price under the name without its version.
fn is_implied(name: &str, price: &ModelPrice, rows: &BTreeMap<String, ModelPrice>) -> bool {
    names(name).skip(1).find_map(|base| rows.get(base)) == Some(price)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use genai_prices::{PriceRequest, UsageKey};
    use llm_do::message::Usage;
    use llm_do::model::name::ModelName;
    use llm_do::model::prices::Prices;

    use super::*;
    use crate::SOURCE_DATE;

    /// Midnight of [`SOURCE_DATE`], in seconds since 1970.
    const MIDNIGHT: u64 = 1_793_318_400;
    /// Hours of a day: cheap and dear ones of the providers whose prices depend on the hour.
    const HOURS: [u64; 3] = [2, 8, 20];

    /// The provider and the model, as `genai-prices` names them.
    fn origin(name: &str) -> (String, String) {
        let (ours, model) = name.split_once(':').unwrap();
        match PROVIDERS.iter().find(|(_, provider)| *provider == ours) {
            Some((theirs, _)) => ((*theirs).to_owned(), model.to_owned()),
            None => {
                let (model, backend) = model.rsplit_once(':').unwrap();
                (format!("huggingface_{backend}"), model.to_owned())
            }
        }
    }

    fn asked(source: &PriceSource, name: &str, usage: &Usage) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let counts = [
            ("input_tokens", usage.input_tokens),
            ("output_tokens", usage.output_tokens),
            ("cache_read_tokens", usage.cache_read_tokens),
            ("cache_write_tokens", usage.cache_write_tokens),
        ]
        .map(|(key, count)| (UsageKey::from(key), count as f64));
        let theirs = genai_prices::Usage::from(counts);
        let (provider, model) = origin(name);
        let at = |hour: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(MIDNIGHT + hour * 3600);
            let request = PriceRequest::new(&model, &theirs).with_provider_id(&provider);
            source.calculator().calculate(&request.with_timestamp(time)).ok().map(|found| found.total_price)
        };
        HOURS.map(at).into_iter().flatten().reduce(f64::max)
    }

    fn costs_the_same(ours: f64, theirs: f64) -> bool {
        (ours - theirs).abs() <= theirs * 1e-4 + 1e-9
    }

    #[test]
    fn the_product_comes_to_the_same_costs_as_the_source() {
        let source = PriceSource::read().unwrap();
        let prices = Prices::default();
        let usages = [(900, 100, 500, 300), (150_000, 10, 0, 0), (2_000_000, 5000, 9000, 8000)];
        for name in rows(&source, SOURCE_DATE).keys() {
            for (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens) in usages {
                let usage =
                    Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, ..Usage::default() };
                let ours = prices.cost(&ModelName::parse(name).unwrap(), &usage).unwrap();
                let theirs = asked(&source, name, &usage).unwrap();
                assert!(costs_the_same(ours, theirs), "{name}: {ours}, not {theirs}, for {usage:?}");
            }
        }
    }

    #[test]
    fn a_version_that_is_not_listed_costs_what_the_source_takes_it_for() {
        let source = PriceSource::read().unwrap();
        let prices = Prices::default();
        let usage = Usage { input_tokens: 1000, output_tokens: 100, ..Usage::default() };
        let mut compared = 0;
        for name in rows(&source, SOURCE_DATE).keys() {
            for version in ["20260909", "2026-09-09", "007"] {
                let name = format!("{name}-{version}");
                if let Some(theirs) = asked(&source, &name, &usage) {
                    let ours = prices.cost(&ModelName::parse(&name).unwrap(), &usage);
                    let same = ours.is_some_and(|ours| costs_the_same(ours, theirs));
                    assert!(same, "{name}: {ours:?}, not {theirs}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 100, "{compared}");
    }
}
