//! What identifies a request: hashes, which are stored in its place.

use sha2::{Digest as _, Sha256};

/// A hash of parts, each with its length, so that no two lists of parts run together.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    hex(&hashed(parts))
}

fn hashed<'a>(parts: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// The same hash in half as many digits.
pub fn short_digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    hex(&hashed(parts)[..16])
}

/// Whether a text is a whole hash, of whatever.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The hash of bytes, as other programs have it.
pub fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The hash of what a reader gives, from its beginning to its end.
pub fn of_content(mut reader: impl std::io::Read) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    let mut bytes = vec![0; 1 << 16];
    loop {
        match reader.read(&mut bytes) {
            Ok(0) => return Ok(hex(&hash.finalize())),
            Ok(read) => hash.update(&bytes[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The hash of a list that grows: each entry is hashed once, however often the whole is asked for.
#[derive(Clone, Debug)]
pub struct Chain {
    link: [u8; 32],
    length: usize,
}

impl Chain {
    /// A chain without entries; its digest depends on these parts, which do not count as entries.
    pub fn starting_with<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        Self { link: Sha256::digest(digest(parts)).into(), length: 0 }
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Adds an entry at the end, which changes the digest.
    pub fn push(&mut self, entry: &[u8]) {
        self.link = Sha256::new().chain_update(self.link).chain_update(entry).finalize().into();
        self.length += 1;
    }

    /// The hash of the parts that it started with and of all entries in their order, in hexadecimal.
    pub fn digest(&self) -> String {
        hex(&self.link)
    }
}

/// Bytes as lower-case hexadecimal, two digits each.
pub fn hex(bytes: &[u8]) -> String {
    let mut hex = Vec::with_capacity(2 * bytes.len());
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        hex.extend_from_slice(&digits(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    hex.extend_from_slice(&digits(last)[..2 * rest.len()]);
    String::from_utf8(hex).expect("digits are text")
}

/// The digits of four bytes, all at once.
fn digits(bytes: [u8; 4]) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut halves = u64::from(u32::from_be_bytes(bytes));
    halves = (halves | halves << 16) & 0x0000_ffff_0000_ffff;
    halves = (halves | halves << 8) & 0x00ff_00ff_00ff_00ff;
    halves = (halves | halves << 4) & (15 * EACH);
    // 1 where it is a letter, which stands further up.
    let letters = (halves + 6 * EACH) >> 4 & EACH;
    (halves + u64::from(b'0') * EACH + letters * u64::from(b'a' - b'9' - 1)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_two_digits_each() {
        let all: Vec<u8> = (0..=255).collect();
        for length in [0, 1, 2, 3, 4, 5, 32, 255, 256] {
            let expected: Vec<String> = all[..length].iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex(&all[..length]), expected.concat());
        }
    }

    #[test]
    fn parts_do_not_run_together() {
        let lists: [&[&str]; 5] = [&["ab", "c"], &["a", "bc"], &["abc"], &["abc", ""], &[]];
        for (index, one) in lists.iter().enumerate() {
            for other in &lists[..index] {
                assert_ne!(digest(one.iter().copied()), digest(other.iter().copied()), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_chain_depends_on_each_entry_and_its_place() {
        let chain = |start: &str, entries: &[&str]| {
            let mut chain = Chain::starting_with([start]);
            for entry in entries {
                chain.push(entry.as_bytes());
            }
            assert_eq!(chain.len(), entries.len());
            chain.digest()
        };
        assert_eq!(chain("a", &["x", "y"]), chain("a", &["x", "y"]));
        let different =
            [chain("a", &["x", "y"]), chain("a", &["y", "x"]), chain("b", &["x", "y"]), chain("a", &["xy"])];
        for (index, one) in different.iter().enumerate() {
            assert!(!different[..index].contains(one));
        }
    }
}
