//! What a run is called: 16 characters that sort by time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Digits that nobody takes for one another: no i, l, o, u.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 16;

/// 48 bits of milliseconds and 32 random ones.
pub fn run_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    written(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), fastrand::u32(..))
}

fn written(milliseconds: u64, random: u32) -> String {
    let bits = u128::from(milliseconds & 0xffff_ffff_ffff) << 32 | u128::from(random);
    let digit = |index: usize| char::from(DIGITS[(bits >> (5 * index) & 31) as usize]);
    (0..LENGTH).rev().map(digit).collect()
}

/// Whether a text is such an id, whoever made it.
pub fn is_run_id(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| DIGITS.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_are_recognised() {
        assert_eq!(written(0, 0), "0000000000000000");
        assert_eq!(written(u64::MAX, u32::MAX), "zzzzzzzzzzzzzzzz");
        let times = [0, 1, 31, 32, 1_794_000_000_000, 1_794_000_000_001];
        let ids: Vec<String> = times.iter().map(|time| written(*time, 7)).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| is_run_id(id)), "{ids:?}");
        assert!(is_run_id(&run_id()) && run_id() != run_id());
        for wrong in ["", "000000000000000", "00000000000000000", "000000000000000o", "000000000000000A"] {
            assert!(!is_run_id(wrong), "{wrong}");
        }
    }
}
