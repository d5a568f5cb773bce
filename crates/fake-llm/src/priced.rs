//! A provider that wants money: it counts tokens in its own way, keeps to the bound of the answer, and writes a bill.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::reply::{FakeFinish, FakeReply, FakeUsage};
use crate::script::FakeScript;
use crate::seen::{SeenPart, SeenRequest};

/// What it charges, in picodollars for each token. The same number is the price in dollars of a million times a million
/// tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FakePrices {
    pub input: u64,
    pub output: u64,
}

/// What a provider has charged, in picodollars. Clones are the same bill.
#[derive(Debug, Clone, Default)]
pub struct Bill(Arc<Mutex<u64>>);

impl Bill {
    pub fn picodollars(&self) -> u64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, picodollars: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += picodollars;
    }
}

impl FakeScript {
    /// Answers every request that no earlier rule does, and bills it, whatever becomes of the answer on its way. What
    /// the model would like to say has up to so many tokens, by chance; what it may say is in the request.
    #[must_use]
    pub fn priced(self, prices: FakePrices, longest: u64, seed: u64, bill: &Bill) -> Self {
        let (bill, chance) = (bill.clone(), Mutex::new(fastrand::Rng::with_seed(seed)));
        self.answer(move |seen| {
            let wanted = chance.lock().unwrap_or_else(PoisonError::into_inner).u64(1..=longest);
            let (input, said) = (tokens(seen), wanted.min(seen.longest_answer.unwrap_or(u64::MAX)));
            bill.add(input * prices.input + said * prices.output);
            let text = "word".repeat(usize::try_from(said).unwrap_or(0));
            let finish = if said < wanted { FakeFinish::Length } else { FakeFinish::Natural };
            Some(FakeReply::text(&text).in_deltas(50).with_usage(FakeUsage::new(input, said)).finishing(finish))
        })
    }

    /// The same for a rule that says what is answered: it is billed.
    #[must_use]
    pub fn billed(
        self,
        prices: FakePrices,
        bill: &Bill,
        answer: impl Fn(&SeenRequest) -> Option<FakeReply> + Send + Sync + 'static,
    ) -> Self {
        let bill = bill.clone();
        self.answer(move |seen| {
            let reply = answer(seen)?;
            let (input, said) = (tokens(seen), 1);
            bill.add(input * prices.input + said * prices.output);
            Some(reply.with_usage(FakeUsage::new(input, said)))
        })
    }
}

/// A token for four letters of ASCII, and for each other one; a picture by its size.
fn tokens(seen: &SeenRequest) -> u64 {
    let parts = seen.messages.iter().flat_map(|message| &message.parts).map(|part| match part {
        SeenPart::Text(text) | SeenPart::Thinking { text, .. } | SeenPart::Result { text, .. } => of_text(text),
        SeenPart::RedactedThinking { payload } => of_text(payload),
        SeenPart::Call { name, arguments, .. } => of_text(name) + of_text(&arguments.to_string()),
        SeenPart::Other(value) => of_file(value),
    });
    let tools = seen.tools.iter().map(|tool| {
        let schema = tool.schema.as_ref().map_or(0, |schema| of_text(&schema.to_string()));
        of_text(&tool.name) + of_text(&tool.description) + schema
    });
    (of_text(&seen.system) + parts.sum::<u64>() + tools.sum::<u64>()).max(1)
}

fn of_text(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    ascii / 4 + text.chars().filter(|letter| !letter.is_ascii()).count() as u64
}

/// Pictures of tests are all of one size.
fn of_file(_: &Value) -> u64 {
    800 * 600 / 750
}
