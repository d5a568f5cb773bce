//! What a run is called: 16 characters that sort by time.

use std::time::{SystemTime, UNIX_EPOCH};

/// Digits that nobody takes for one another: no i, l, o, u.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
pub(crate) const LENGTH: usize = 16;

/// 48 bits of milliseconds and 32 random ones.
pub fn run_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let digits = written(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), fastrand::u32(..));
    digits.map(char::from).iter().collect()
}

/// The digits of an id that was made in this millisecond since 1970.
pub(crate) fn written(milliseconds: u64, random: u32) -> [u8; LENGTH] {
    let bits = u128::from(milliseconds & 0xffff_ffff_ffff) << 32 | u128::from(random);
    std::array::from_fn(|index| DIGITS[(bits >> (5 * (LENGTH - 1 - index)) & 31) as usize])
}

/// The millisecond since 1970 in which an id with these digits was made.
#[cfg(feature = "front-end")]
pub(crate) fn milliseconds(digits: &[u8; LENGTH]) -> u64 {
    let value = |digit: &u8| DIGITS.iter().position(|known| known == digit).unwrap_or(0) as u128;
    let bits = digits.iter().fold(0_u128, |bits, digit| bits << 5 | value(digit));
    u64::try_from(bits >> 32).unwrap_or(u64::MAX)
}

/// Whether a byte can stand in an id.
#[cfg(feature = "front-end")]
pub(crate) fn is_digit(byte: u8) -> bool {
    // Asked for each of many bytes: this is no search.
    matches!(byte, b'0'..=b'9' | b'a'..=b'h' | b'j' | b'k' | b'm' | b'n' | b'p'..=b't' | b'v'..=b'z')
}

/// Whether a text is such an id, whoever made it.
#[cfg(feature = "front-end")]
pub fn is_run_id(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_are_recognised() {
        assert_eq!(&written(0, 0), b"0000000000000000");
        assert_eq!(&written(u64::MAX, u32::MAX), b"zzzzzzzzzzzzzzzz");
        let times = [0, 1, 31, 32, 1_794_000_000_000, 1_794_000_000_001];
        assert_eq!(times.map(|time| milliseconds(&written(time, u32::MAX))), times);
        let ids: Vec<String> = times.iter().map(|time| written(*time, 7).map(char::from).iter().collect()).collect();
        assert!(ids.is_sorted() && ids.iter().all(|id| is_run_id(id)), "{ids:?}");
        assert!((0..=255).all(|byte| is_digit(byte) == DIGITS.contains(&byte)));
        assert!(is_run_id(&run_id()) && run_id() != run_id());
        for wrong in ["", "000000000000000", "00000000000000000", "000000000000000o", "000000000000000A"] {
            assert!(!is_run_id(wrong), "{wrong}");
        }
    }
}
