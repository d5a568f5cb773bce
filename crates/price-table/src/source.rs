//! The data of `genai-prices`, as far as it concerns us. The crate calculates and finds models, but does not show its
//! prices; they are read from the file in its package.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::Command;

use genai_prices::{Calculator, PriceRequest, Usage};
use serde::Deserialize;
use serde_json::Value;

pub struct PriceSource {
    pub version: String,
    pub providers: Vec<PricedProvider>,
    calculator: Calculator,
}

#[derive(Deserialize)]
pub struct PricedProvider {
    pub id: String,
    pub models: Vec<PricedModel>,
}

#[derive(Deserialize)]
pub struct PricedModel {
    pub id: String,
    #[cfg_attr(not(test), expect(dead_code, reason = "the rows of windows are held against it"))]
    pub context_window: Option<u64>,
    r#match: ModelNameRule,
    prices: PriceSchedule,
}

/// Which names mean a model.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ModelNameRule {
    And(Vec<ModelNameRule>),
    Or(Vec<ModelNameRule>),
    Contains(String),
    EndsWith(String),
    Equals(String),
    Regex(#[expect(dead_code, reason = "names cannot be read off an expression")] String),
    StartsWith(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PriceSchedule {
    Always(Amounts),
    /// Of those that hold at a time, the last one counts.
    Sometimes(Vec<Conditional>),
}

#[derive(Deserialize)]
struct Conditional {
    constraint: Option<Constraint>,
    prices: Amounts,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Constraint {
    Since {
        start_date: String,
    },
    Daily {
        #[expect(dead_code, reason = "it tells one kind from the other")]
        start_time: String,
    },
}

/// By what is counted, for example `input_mtok`: US dollars per million tokens.
pub type Amounts = BTreeMap<String, Amount>;

#[derive(Deserialize)]
#[serde(untagged)]
pub enum Amount {
    Flat(f64),
    Tiered { base: f64, tiers: Vec<PriceTier> },
}

#[derive(Deserialize)]
pub struct PriceTier {
    /// For prompts of more tokens than these.
    pub start: u64,
    pub price: f64,
}

impl PriceSource {
    /// Reads the package that the lock file names.
    pub fn read() -> Result<Self, Box<dyn Error>> {
        let package = package()?;
        let manifest = package["manifest_path"].as_str().ok_or("a package without a manifest")?;
        let data = std::fs::read(Path::new(manifest).with_file_name("data").join("prices.json"))?;
        Ok(Self {
            version: package["version"].as_str().ok_or("a package without a version")?.to_owned(),
            providers: serde_json::from_slice(&data)?,
            calculator: Calculator::from_json(&data)?,
        })
    }

    /// The id of the model that a provider means by a name.
    pub fn meant(&self, provider: &PricedProvider, name: &str) -> Option<String> {
        let usage = Usage::new();
        let request = PriceRequest::new(name, &usage).with_provider_id(&provider.id);
        let found = self.calculator.calculate(&request).ok()?;
        (found.provider_id == provider.id).then_some(found.model_id)
    }

    #[cfg(test)]
    pub fn calculator(&self) -> &Calculator {
        &self.calculator
    }
}

fn package() -> Result<Value, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform=host-tuple"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let found = packages.into_iter().find(|package| package["name"] == "genai-prices");
    found.ok_or_else(|| "genai-prices is not among the packages".into())
}

impl PricedModel {
    /// Names that may mean it. Parts of names count if they are its id with or without an ending.
    pub fn names(&self) -> Vec<&str> {
        let mut names = vec![self.id.as_str()];
        self.r#match.collect_names(&self.id, &mut names);
        // A name that ends otherwise is only the beginning of names.
        names.retain(|name| name.ends_with(|c: char| c.is_ascii_alphanumeric()));
        names
    }

    /// Its prices on a day. Where they depend on the hour, the dearest: an estimate should not be too low.
    pub fn prices_on(&self, day: &str) -> &Amounts {
        let entries = match &self.prices {
            PriceSchedule::Always(amounts) => return amounts,
            PriceSchedule::Sometimes(entries) => entries,
        };
        let holds_all_day = |entry: &Conditional| match &entry.constraint {
            None => true,
            Some(Constraint::Since { start_date }) => start_date.as_str() <= day,
            Some(Constraint::Daily { .. }) => false,
        };
        let base = entries.iter().rposition(holds_all_day).expect("one price has no condition");
        let hourly = entries[base + 1..].iter().filter(|entry| is_daily(entry));
        let candidates = hourly.chain([&entries[base]]).map(|entry| &entry.prices);
        candidates.max_by(|one, other| input(one).total_cmp(&input(other))).expect("the base is one")
    }
}

fn is_daily(entry: &Conditional) -> bool {
    match &entry.constraint {
        Some(Constraint::Daily { .. }) => true,
        Some(Constraint::Since { .. }) | None => false,
    }
}

fn input(amounts: &Amounts) -> f64 {
    amounts.get("input_mtok").map_or(0.0, |amount| amount.for_prompt(0))
}

impl ModelNameRule {
    fn collect_names<'a>(&'a self, id: &'a str, names: &mut Vec<&'a str>) {
        match self {
            Self::And(rules) | Self::Or(rules) => rules.iter().for_each(|rule| rule.collect_names(id, names)),
            Self::Equals(name) => names.push(name),
            Self::Contains(part) | Self::EndsWith(part) | Self::StartsWith(part) => {
                if id.starts_with(part.as_str()) || part.starts_with(id) {
                    names.push(part);
                }
            }
            Self::Regex(_) => {}
        }
    }
}

impl Amount {
    pub fn for_prompt(&self, tokens: u64) -> f64 {
        match self {
            Self::Flat(price) => *price,
            Self::Tiered { base, tiers } => {
                tiers.iter().rev().find(|tier| tokens > tier.start).map_or(*base, |tier| tier.price)
            }
        }
    }

    /// Where longer prompts begin to cost something else.
    pub fn thresholds(&self) -> impl Iterator<Item = u64> {
        let tiers: &[PriceTier] = match self {
            Self::Flat(_) => &[],
            Self::Tiered { tiers, .. } => tiers,
        };
        tiers.iter().map(|tier| tier.start)
    }
}
