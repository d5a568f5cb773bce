//! What a process adds up for metrics. Pure.

use super::name::{self, Instrument};
use super::span::{Attribute, AttributeValue};
use crate::message::Usage;

/// So many combinations of attributes are kept apart; models and agents are few.
const MOST_POINTS: usize = 2_000;

/// As the conventions advise, in seconds.
const DURATIONS: &[f64] = &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// As the conventions advise, in tokens.
const TOKENS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// How often values lay between bounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    pub(super) bounds: &'static [f64],
    /// One more than there are bounds: a value that equals a bound lies below it.
    pub(super) buckets: Vec<u64>,
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let buckets = vec![0; bounds.len() + 1];
        Self { bounds, buckets, count: 0, sum: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY }
    }

    fn add(&mut self, value: f64) {
        self.buckets[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.count += 1;
        self.sum += value;
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }
}

/// What was counted of one combination of attributes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MetricValue {
    Histogram(Histogram),
    Sum(f64),
}

/// A point of a metric.
#[derive(Debug)]
pub(super) struct MetricPoint<'a> {
    pub(super) attributes: &'a [Attribute],
    pub(super) counted: &'a MetricValue,
}

/// A request of a model that has ended.
#[derive(Clone, Debug)]
pub(super) struct EndedRequest<'a> {
    pub(super) agent: &'a str,
    /// As the conventions name it.
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
    pub(super) seconds: f64,
    pub(super) usage: &'a Usage,
    pub(super) error: Option<String>,
}

/// All metrics of a process.
#[derive(Debug, Default)]
pub(super) struct MetricBook(Vec<(Instrument, Vec<Attribute>, MetricValue)>);

impl MetricBook {
    /// Whether there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a request.
    pub(super) fn count(&mut self, request: EndedRequest<'_>) {
        let EndedRequest { agent, provider, model, seconds, usage, error } = request;
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        let common = || {
            let operation = (name::OPERATION, AttributeValue::Word(name::CHAT));
            vec![operation, (name::PROVIDER, text(provider)), (name::REQUEST_MODEL, text(model))]
        };
        let mut attributes = common();
        attributes.extend(error.map(|error| (name::ERROR_TYPE, AttributeValue::Text(error))));
        self.add_to_histogram(name::DURATION, attributes, DURATIONS, seconds);
        for (kind, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
            if tokens > 0 {
                let mut attributes = common();
                attributes.push((name::TOKEN_TYPE, AttributeValue::Word(kind)));
                #[expect(clippy::cast_precision_loss, reason = "no request has as many tokens")]
                self.add_to_histogram(name::TOKENS, attributes, TOKENS, tokens as f64);
            }
        }
        if let Some(cost) = usage.cost_usd.map(|cost| cost.max(0.0)) {
            let mut attributes = common();
            attributes.push((name::AGENT, text(agent)));
            if let Some(MetricValue::Sum(sum)) = self.point(name::SPENT, attributes, || MetricValue::Sum(0.0)) {
                *sum += cost;
            }
        }
    }

    fn add_to_histogram(
        &mut self,
        instrument: Instrument,
        attributes: Vec<Attribute>,
        bounds: &'static [f64],
        value: f64,
    ) {
        let new = || MetricValue::Histogram(Histogram::new(bounds));
        if let Some(MetricValue::Histogram(histogram)) = self.point(instrument, attributes, new) {
            histogram.add(value);
        }
    }

    fn point(
        &mut self,
        instrument: Instrument,
        attributes: Vec<Attribute>,
        new: impl FnOnce() -> MetricValue,
    ) -> Option<&mut MetricValue> {
        let known = self.0.iter().position(|(of, having, _)| *of == instrument && *having == attributes);
        let place = match known {
            Some(place) => place,
            None if self.0.len() < MOST_POINTS => {
                self.0.push((instrument, attributes, new()));
                self.0.len() - 1
            }
            None => return None,
        };
        self.0.get_mut(place).map(|(_, _, counted)| counted)
    }

    /// Each metric with its points.
    pub(super) fn metrics(&self) -> impl Iterator<Item = (Instrument, Vec<MetricPoint<'_>>)> {
        [name::DURATION, name::TOKENS, name::SPENT].into_iter().filter_map(|instrument| {
            let own = self.0.iter().filter(|(of, _, _)| *of == instrument);
            let points: Vec<MetricPoint<'_>> =
                own.map(|(_, attributes, counted)| MetricPoint { attributes, counted }).collect();
            (!points.is_empty()).then_some((instrument, points))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(book: &mut MetricBook, seconds: f64, usage: &Usage, error: Option<&str>) {
        let (agent, provider, model, error) = ("main", "openai", "gpt-x", error.map(str::to_owned));
        book.count(EndedRequest { agent, provider, model, seconds, usage, error });
    }

    fn histogram<'a>(book: &'a MetricBook, instrument: Instrument, mark: &str) -> &'a Histogram {
        let marked = |attributes: &[Attribute]| {
            attributes.iter().any(|(_, value)| match value {
                AttributeValue::Word(word) => *word == mark,
                AttributeValue::Text(text) => text == mark,
                AttributeValue::Number(_) | AttributeValue::Amount(_) | AttributeValue::Words(_) => false,
            })
        };
        let found = book.0.iter().find(|(of, attributes, _)| *of == instrument && marked(attributes));
        match found {
            Some((_, _, MetricValue::Histogram(histogram))) => histogram,
            other => panic!("no histogram: {other:?}"),
        }
    }

    #[test]
    fn requests_are_counted_by_model_kind_of_token_and_error() {
        let mut book = MetricBook::default();
        let usage = Usage { requests: 1, input_tokens: 16, output_tokens: 17, cost_usd: Some(0.5), ..Usage::default() };
        count(&mut book, 0.01, &usage, None);
        count(&mut book, 100.0, &usage, None);
        count(&mut book, 0.02, &Usage::default(), Some("429"));
        let tokens = histogram(&book, name::TOKENS, "input");
        assert_eq!((tokens.buckets[2], tokens.count, tokens.sum), (2, 2, 32.0), "a value at its bound lies below it");
        assert_eq!(histogram(&book, name::TOKENS, "output").buckets[3], 2);
        let durations = histogram(&book, name::DURATION, name::CHAT);
        assert_eq!((durations.buckets[0], durations.buckets[14], durations.count), (1, 1, 2));
        assert_eq!((durations.least, durations.most), (0.01, 100.0));
        assert_eq!(histogram(&book, name::DURATION, "429").count, 1);
        let spent: Vec<&MetricValue> = book.0.iter().filter(|(of, _, _)| *of == name::SPENT).map(|it| &it.2).collect();
        assert_eq!(spent, [&MetricValue::Sum(1.0)]);
        assert_eq!(book.metrics().map(|(_, points)| points.len()).collect::<Vec<_>>(), [2, 2, 1]);
    }

    #[test]
    fn attributes_that_never_repeat_do_not_fill_the_memory() {
        let mut book = MetricBook::default();
        for number in 0..2 * MOST_POINTS {
            count(&mut book, 1.0, &Usage::default(), Some(&number.to_string()));
        }
        assert_eq!(book.0.len(), MOST_POINTS);
    }
}
