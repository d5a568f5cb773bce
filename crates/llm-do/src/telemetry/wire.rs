//! Spans and metrics as OTLP writes them: protobuf, by hand. Pure.
//!
//! Only what we send is here, in the order of its field numbers. `crates/parts` reads it with the messages of the
//! specification.

use super::context::TraceId;
use super::metric::{MetricBook, MetricPoint, MetricValue};
use super::name::{self, Instrument};
use super::span::{Attribute, AttributeValue, SpanEvent, TraceSpan, TraceSpanKind};

/// What all spans and metrics of a process have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Resource(pub(super) Vec<(String, String)>);

/// The fields of a message, one after the other.
#[derive(Default)]
struct ProtobufFields(Vec<u8>);

impl ProtobufFields {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn tag(&mut self, field: u32, form: u32) {
        self.varint(u64::from(field << 3 | form));
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn number(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, 5);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn packed(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        let mut packed = Vec::new();
        values.for_each(|value| packed.extend_from_slice(&value.to_le_bytes()));
        self.bytes(field, &packed);
    }

    fn attribute(&mut self, field: u32, name: &str, value: &AttributeValue) {
        self.message(field, |pair| {
            pair.text(1, name);
            pair.message(2, |any| any.value(value));
        });
    }

    fn attributes(&mut self, field: u32, attributes: &[Attribute]) {
        for (name, value) in attributes {
            self.attribute(field, name, value);
        }
    }

    fn value(&mut self, value: &AttributeValue) {
        match value {
            // A text is there, even if it is empty: it is one of several kinds.
            AttributeValue::Text(text) => self.bytes(1, text.as_bytes()),
            AttributeValue::Word(text) => self.bytes(1, text.as_bytes()),
            AttributeValue::Number(number) => self.number(3, *number),
            AttributeValue::Amount(amount) => self.double(4, *amount),
            AttributeValue::Words(words) => self.message(5, |list| {
                for word in words {
                    list.message(1, |any| any.bytes(1, word.as_bytes()));
                }
            }),
        }
    }

    fn resource(&mut self, field: u32, Resource(attributes): &Resource) {
        self.message(field, |resource| {
            for (name, value) in attributes {
                resource.message(1, |pair| {
                    pair.text(1, name);
                    pair.message(2, |any| any.bytes(1, value.as_bytes()));
                });
            }
        });
    }

    fn scope(&mut self, field: u32) {
        self.message(field, |scope| {
            scope.text(1, name::SCOPE);
            scope.text(2, env!("CARGO_PKG_VERSION"));
        });
    }

    fn span(&mut self, trace: TraceId, span: &TraceSpan) {
        self.bytes(1, &trace.0);
        self.bytes(2, &span.id.0);
        if let Some(parent) = span.parent {
            self.bytes(4, &parent.0);
        }
        self.text(5, &span.name);
        self.number(
            6,
            match span.kind {
                TraceSpanKind::Internal => 1,
                TraceSpanKind::Client => 3,
            },
        );
        self.fixed64(7, span.start);
        self.fixed64(8, span.end);
        self.attributes(9, &span.attributes);
        for SpanEvent { at, name, attributes } in &span.events {
            self.message(11, |event| {
                event.fixed64(1, *at);
                event.text(2, name);
                event.attributes(3, attributes);
            });
        }
        for link in &span.links {
            self.message(13, |fields| {
                fields.bytes(1, &link.trace.0);
                fields.bytes(2, &link.span.0);
                fields.fixed32(6, u32::from(link.is_sampled));
            });
        }
        if let Some(error) = &span.error {
            self.message(15, |status| {
                status.text(2, error);
                status.number(3, 2);
            });
        }
        // Sampled, with a trace id that has chance in it.
        self.fixed32(16, 1);
    }
}

/// A request to `/v1/traces`.
pub(super) fn traces<'a>(resource: &Resource, spans: impl Iterator<Item = (TraceId, &'a TraceSpan)>) -> Vec<u8> {
    let mut request = ProtobufFields::default();
    request.message(1, |of_resource| {
        of_resource.resource(1, resource);
        of_resource.message(2, |of_scope| {
            of_scope.scope(1);
            spans.for_each(|(trace, span)| of_scope.message(2, |fields| fields.span(trace, span)));
            of_scope.text(3, name::SCHEMA_URL);
        });
        of_resource.text(3, name::SCHEMA_URL);
    });
    request.0
}

/// Since the process began: each request has all.
const CUMULATIVE: u64 = 2;

/// A request to `/v1/metrics`.
pub(super) fn metrics(resource: &Resource, book: &MetricBook, since: u64, now: u64) -> Vec<u8> {
    let mut request = ProtobufFields::default();
    request.message(1, |of_resource| {
        of_resource.resource(1, resource);
        of_resource.message(2, |of_scope| {
            of_scope.scope(1);
            for (instrument, points) in book.metrics() {
                of_scope.message(2, |metric| metric.metric(instrument, &points, since, now));
            }
            of_scope.text(3, name::SCHEMA_URL);
        });
        of_resource.text(3, name::SCHEMA_URL);
    });
    request.0
}

impl ProtobufFields {
    fn metric(&mut self, instrument: Instrument, points: &[MetricPoint<'_>], since: u64, now: u64) {
        self.text(1, instrument.name);
        self.text(2, instrument.text);
        self.text(3, instrument.unit);
        let is_sum = points.iter().any(|point| matches!(point.counted, MetricValue::Sum(_)));
        self.message(if is_sum { 7 } else { 9 }, |data| {
            for point in points {
                data.message(1, |fields| fields.point(point, since, now));
            }
            data.number(2, CUMULATIVE);
            if is_sum {
                data.number(3, 1);
            }
        });
    }

    fn point(&mut self, point: &MetricPoint<'_>, since: u64, now: u64) {
        self.fixed64(2, since);
        self.fixed64(3, now);
        match point.counted {
            MetricValue::Sum(sum) => {
                self.double(4, *sum);
                self.attributes(7, point.attributes);
            }
            MetricValue::Histogram(histogram) => {
                self.fixed64(4, histogram.count);
                self.double(5, histogram.sum);
                self.packed(6, histogram.buckets.iter().copied());
                self.packed(7, histogram.bounds.iter().map(|bound| bound.to_bits()));
                self.attributes(9, point.attributes);
                self.double(11, histogram.least);
                self.double(12, histogram.most);
            }
        }
    }
}
