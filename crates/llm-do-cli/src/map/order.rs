//! Results in the order of the input, each as soon as all before it are known. Pure.

use std::collections::BTreeMap;

/// What is known of items, and told in order.
#[derive(Debug)]
pub struct ResultOrder {
    /// The number of the first item that is not known yet.
    next: u64,
    /// What is known beyond it; nothing of an item that has no result.
    ahead: BTreeMap<u64, Option<String>>,
}

impl Default for ResultOrder {
    fn default() -> Self {
        Self { next: 1, ahead: BTreeMap::new() }
    }
}

impl ResultOrder {
    /// An item is known: its line, unless it has none. Gives the lines that can be told now.
    pub fn put(&mut self, number: u64, line: Option<String>) -> String {
        self.ahead.insert(number, line);
        let mut told = String::new();
        while let Some(line) = self.ahead.remove(&self.next) {
            told.push_str(line.as_deref().unwrap_or_default());
            self.next += 1;
        }
        told
    }

    /// How many are known that cannot be told yet.
    pub fn waiting(&self) -> usize {
        self.ahead.len()
    }

    /// What is left when nothing more comes: in order, over the gaps.
    pub fn rest(self) -> String {
        self.ahead.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_result_waits_for_those_before_it() {
        let mut order = ResultOrder::default();
        assert_eq!(order.put(3, Some("c".into())), "");
        assert_eq!((order.put(1, Some("a".into())), order.waiting()), ("a".into(), 1));
        assert_eq!(order.put(2, None), "c", "an item without a result holds nobody up");
        assert_eq!(order.put(5, Some("e".into())), "");
        assert_eq!(order.rest(), "e");
    }

    proptest! {
        #[test]
        fn all_is_told_once_and_in_order(shuffled in Just((1..40_u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut order = ResultOrder::default();
            let told: Vec<String> = shuffled.iter().map(|number| order.put(*number, Some(format!("{number} ")))).collect();
            let expected: Vec<String> = (1..40_u64).map(|number| format!("{number} ")).collect();
            prop_assert_eq!(told.concat(), expected.concat());
            prop_assert_eq!(order.waiting(), 0);
        }
    }
}
