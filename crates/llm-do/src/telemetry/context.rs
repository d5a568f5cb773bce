//! Who a span is, and whose trace it belongs to, as W3C Trace Context writes it. Pure.

use std::fmt;

use crate::journal::digest::short_digest;

/// Names a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TraceId(pub(super) [u8; 16]);

/// Names a span within its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SpanId(pub(super) [u8; 8]);

impl TraceId {
    /// Of a run that nobody's trace includes. A run's id has chance in it, so this has, and each process that goes on with the
    /// run finds the same.
    pub(super) fn of_run(run: &str) -> Self {
        Self(bytes_of(&short_digest(["trace", run])))
    }
}

impl SpanId {
    /// Of a place in the call tree of a run.
    pub(super) fn of(run: &str, key: &str) -> Self {
        Self(bytes_of(&short_digest(["span", run, key])[..16]))
    }
}

/// Digits of a digest, which are never all zero but by a chance that nobody meets.
fn bytes_of<const N: usize>(digits: &str) -> [u8; N] {
    parsed(digits).unwrap_or([1; N])
}

/// Bytes out of lower-case hexadecimal digits; all zero is no id.
fn parsed<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let is_lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 2 * N || !digits.bytes().all(is_lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes).filter(|bytes| bytes.iter().any(|byte| *byte != 0))
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// A span that others can be beneath of, as `traceparent` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) is_sampled: bool,
}

impl TraceParent {
    /// Reads the header, or the variable `TRACEPARENT`. A version that is newer may say more behind what is known.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.trim().split('-');
        let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let is_hex = |text: &str| text.len() == 2 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hex(version) || version == "ff" || !is_hex(flags) || (version == "00" && fields.next().is_some()) {
            return None;
        }
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        Some(Self { trace: TraceId(parsed(trace)?), span: SpanId(parsed(span)?), is_sampled })
    }
}

/// As it is handed on.
impl fmt::Display for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, is_sampled } = self;
        write!(formatter, "00-{trace}-{span}-{:02x}", u8::from(*is_sampled))
    }
}

/// Which traces are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampler {
    /// This choice, whoever asks.
    Always(Choice),
    /// What was chosen for the trace that the run belongs to, and this for a run that belongs to none.
    ParentBased(Choice),
}

/// What is chosen for a trace that begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// All of them.
    On,
    /// None of them.
    Off,
    /// This share of all traces, chosen by their ids: each process of a trace chooses the same.
    Ratio(f64),
}

impl Sampler {
    /// As the specification names them; the second text is what belongs to the name.
    pub fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        let ratio = || match argument.map_or(Ok(1.0), |text| text.trim().parse::<f64>()) {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Choice::Ratio(ratio)),
            Ok(_) | Err(_) => Err(format!("`{}` is no number from 0 to 1", argument.unwrap_or_default())),
        };
        Ok(match name {
            "always_on" => Self::Always(Choice::On),
            "always_off" => Self::Always(Choice::Off),
            "traceidratio" => Self::Always(ratio()?),
            "parentbased_always_on" => Self::ParentBased(Choice::On),
            "parentbased_always_off" => Self::ParentBased(Choice::Off),
            "parentbased_traceidratio" => Self::ParentBased(ratio()?),
            _ => return Err(format!("`{name}` is none of the samplers of the specification")),
        })
    }

    pub(super) fn samples(self, parent: Option<TraceParent>, trace: TraceId) -> bool {
        match (self, parent) {
            (Self::ParentBased(_), Some(parent)) => parent.is_sampled,
            (Self::Always(choice), _) | (Self::ParentBased(choice), None) => choice.includes(trace),
        }
    }
}

impl Choice {
    fn includes(self, trace: TraceId) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Ratio(ratio) => {
                let chance = trace.0[8..].iter().fold(0_u64, |chance, byte| chance << 8 | u64::from(*byte)) >> 11;
                #[expect(clippy::cast_precision_loss, reason = "53 bits are what such a number has")]
                let chance = chance as f64 / (1_u64 << 53) as f64;
                chance < ratio
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_traceparent_is_read_as_the_specification_writes_it() {
        for (text, expected) in [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Some(true)),
            (" 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00\n", Some(false)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", Some(true)),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", Some(true)),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", None),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", None),
            ("00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("", None),
        ] {
            let read = TraceParent::parse(text);
            assert_eq!(read.map(|parent| parent.is_sampled), expected, "{text}");
            assert!(read.is_none_or(|parent| parent.to_string().contains(TRACE)), "{text}");
        }
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn a_run_has_the_same_ids_in_every_process() {
        assert_eq!(TraceId::of_run("06gy3k9x7wqe4t2m"), TraceId::of_run("06gy3k9x7wqe4t2m"));
        assert_ne!(TraceId::of_run("06gy3k9x7wqe4t2m"), TraceId::of_run("06gy3k9x7wqe4t2n"));
        assert_ne!(SpanId::of("r", "main"), SpanId::of("r", "main/t0/m0"));
        assert_ne!(SpanId::of("r", "main"), SpanId::of("s", "main"));
        assert_eq!(SpanId::of("r", "main").to_string().len(), 16);
    }

    #[test]
    fn samplers_choose_as_the_specification_says() {
        let parent = |flags: &str| TraceParent::parse(&format!("00-{TRACE}-00f067aa0ba902b7-{flags}"));
        let trace = TraceId(parsed(TRACE).unwrap());
        for (name, argument, alone, beneath_sampled, beneath_other) in [
            ("always_on", None, true, true, true),
            ("always_off", None, false, false, false),
            ("traceidratio", Some("1"), true, true, true),
            ("traceidratio", Some("0"), false, false, false),
            ("traceidratio", None, true, true, true),
            ("parentbased_always_on", None, true, true, false),
            ("parentbased_always_off", None, false, true, false),
            ("parentbased_traceidratio", Some("0.0"), false, true, false),
            ("parentbased_traceidratio", Some("1.0"), true, true, false),
        ] {
            let sampler = Sampler::parse(name, argument).unwrap();
            let chosen = [None, parent("01"), parent("00")].map(|parent| sampler.samples(parent, trace));
            assert_eq!(chosen, [alone, beneath_sampled, beneath_other], "{name} {argument:?}");
        }
        for (name, argument) in [("sometimes", None), ("traceidratio", Some("2")), ("traceidratio", Some("half"))] {
            assert!(Sampler::parse(name, argument).is_err(), "{name}");
        }
        let sampler = Sampler::parse("traceidratio", Some("0.25")).unwrap();
        let chosen = (0..4000).filter(|run| sampler.samples(None, TraceId::of_run(&run.to_string()))).count();
        assert!((900..1100).contains(&chosen), "{chosen} of 4000");
    }
}
