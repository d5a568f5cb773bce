//! What was written by this user, told from what was not: the state's key, and the only code that uses it.
//!
//! A mac says who wrote something, so a file that another program put in our place is recognised before anything in it
//! is believed. Every purpose has a prefix of its own: what was signed as trust can never pass for an answer.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::digest::hex;
use crate::beneath::{self, FileAccess};
use crate::system;

/// The name of the key's file in the state directory.
pub const KEY_FILE: &str = "key";
/// Behind the last value of a signed line comes this, then 32 hex digits, then `"}`.
pub const MEMBER: &str = ",\"mac\":\"";

/// Who signs. Machines that share one sign for each other.
#[derive(Clone)]
pub struct StateKey(Hmac<Sha256>);

impl LineMac {
    /// Whether these are its digits.
    pub(crate) fn is_written(self, digits: &[u8]) -> bool {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => u8::MAX,
        };
        let is_byte = |(byte, digits): (&u8, &[u8])| value(digits[0]) == byte >> 4 && value(digits[1]) == byte & 15;
        digits.len() == 2 * self.0.len() && self.0.iter().zip(digits.chunks_exact(2)).all(is_byte)
    }
}

/// It is a secret, whatever prints it.
impl fmt::Debug for StateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StateKey")
    }
}

/// What is signed; a mac for one purpose is none for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningPurpose {
    /// A line of a journal.
    Journal,
    /// A person's answer to a question.
    Answer,
    /// What was agreed to about a project.
    Trust,
    /// An agent that was made at run time.
    Created,
    /// Code that was compiled and kept.
    Compiled,
    /// A reply that counts again.
    Reply,
    /// What a client of another protocol gives back: which questions it was asked, and what names a run to it.
    Client,
    /// What is said to a run of an engine: that it begins, and what else is wanted of it.
    Engine,
}

impl SigningPurpose {
    fn prefix(self) -> &'static [u8] {
        match self {
            Self::Journal => b"llm-do journal 2\0",
            Self::Answer => b"llm-do answer 2\0",
            Self::Trust => b"llm-do trust 2\0",
            Self::Created => b"llm-do created 2\0",
            Self::Compiled => b"llm-do compiled 2\0",
            Self::Reply => b"llm-do reply 2\0",
            Self::Client => b"llm-do client 2\0",
            Self::Engine => b"llm-do engine 2\0",
        }
    }
}

/// The first half of an HMAC-SHA256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineMac([u8; 16]);

impl fmt::Display for LineMac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    system::random(&mut bytes)?;
    Ok(bytes)
}

impl StateKey {
    /// The key that these bytes are; the caller keeps them secret.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        // A key of any length fits an HMAC, so this cannot fail.
        Self(Hmac::new_from_slice(&bytes).expect("an HMAC takes a key of any length"))
    }

    /// From 64 hex digits, blanks around them left aside.
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim().as_bytes();
        let mut bytes = [0; 32];
        if text.len() != 64 {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = digit(0)? << 4 | digit(1)?;
        }
        Some(Self::from_bytes(bytes))
    }

    /// A new key as machines share it, which nobody else knows: 64 hex digits.
    #[cfg(feature = "front-end")]
    pub fn new_hex() -> io::Result<String> {
        random_bytes().map(|bytes| super::digest::hex(&bytes))
    }

    /// The key of a state directory; made when there is none yet. Two that come at once get the same one.
    pub fn of_directory(state: &Path) -> io::Result<Self> {
        let file = state.join(KEY_FILE);
        match read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => return read.map(Self::from_bytes),
        }
        let bytes = random_bytes()?;
        DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        match beneath::create_path(&file, &bytes, FileAccess::Private) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => read(&file).map(Self::from_bytes),
        }
    }

    /// Of parts, each with its length, so that no two lists of parts run together.
    pub fn mac<'a>(&self, purpose: SigningPurpose, parts: impl IntoIterator<Item = &'a [u8]>) -> LineMac {
        let mut mac = self.0.clone();
        mac.update(purpose.prefix());
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        first_half(mac)
    }

    /// Of the next line of a file whose lines are chained: `line` is what stands before the member that signs it.
    pub fn next(&self, purpose: SigningPurpose, previous: LineMac, line: &[u8]) -> LineMac {
        let mut mac = self.0.clone();
        mac.update(purpose.prefix());
        mac.update(&previous.0);
        mac.update(line);
        first_half(mac)
    }
}

fn first_half(mac: Hmac<Sha256>) -> LineMac {
    let whole: [u8; 32] = mac.finalize().into_bytes().into();
    let mut half = LineMac::default();
    half.0.copy_from_slice(&whole[..16]);
    half
}

/// A signed line, without its newline: what was signed, and its mac as text.
pub fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_suffix(b"\"}")?;
    let at = rest.len().checked_sub(32)?;
    let (signed, mac) = rest.split_at(at);
    Some((signed.strip_suffix(MEMBER.as_bytes())?, mac))
}

/// Appends the mac of a JSON object to it, as its last member. The object has at least one other.
pub fn sign(json: &mut String, mac: LineMac) {
    debug_assert!(json.len() > 2 && json.ends_with('}'), "an object with a member");
    json.pop();
    json.push_str(&format!("{MEMBER}{mac}\"}}"));
}

/// Ends a JSON object, whose brace is not there yet, with its mac.
pub(super) fn close(mac: LineMac, line: &mut Vec<u8>) {
    line.extend_from_slice(MEMBER.as_bytes());
    line.extend_from_slice(hex(&mac.0).as_bytes());
    line.extend_from_slice(b"\"}");
}

/// The key must be its owner's alone: one that others can read signs for them too.
fn read(file: &Path) -> io::Result<[u8; 32]> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{} {what}", file.display()));
    let mut open: File = OpenOptions::new().read(true).custom_flags(no_follow()).open(file)?;
    let metadata = open.metadata()?;
    if !metadata.is_file() || metadata.len() != 32 {
        return Err(wrong("is not a key of 32 bytes"));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        return Err(wrong("can be read by others or belongs to somebody else"));
    }
    let mut bytes = [0; 32];
    open.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[expect(clippy::cast_possible_wrap, reason = "flags of the system are the same bits in both types")]
fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits() as i32
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn key() -> StateKey {
        StateKey::from_bytes([7; 32])
    }

    #[test]
    fn a_signed_line_is_what_was_signed_and_its_mac() {
        let mut line = r#"{"k":"main"}"#.to_owned();
        let mac = key().next(SigningPurpose::Journal, LineMac::default(), br#"{"k":"main""#);
        sign(&mut line, mac);
        let (signed, found) = split(line.as_bytes()).unwrap();
        assert_eq!((signed, found), (&br#"{"k":"main""#[..], mac.to_string().as_bytes()));
        serde_json::from_str::<serde_json::Value>(&line).unwrap();
        let digits = mac.to_string();
        assert!(mac.is_written(digits.as_bytes()) && !LineMac::default().is_written(digits.as_bytes()));
        for at in 0..digits.len() {
            for other in [b'g', b'/', b':', b'`', b'F', digits.as_bytes()[at] ^ 1] {
                let mut digits = digits.clone().into_bytes();
                digits[at] = other;
                assert!(!mac.is_written(&digits), "{at} {other}");
            }
        }
        assert!(!mac.is_written(&digits.as_bytes()[1..]) && !mac.is_written(format!("{digits}0").as_bytes()));
        for other in ["", "{}", "\"}", r#"{"mac":"00000000000000000000000000000000"}"#] {
            assert_eq!(split(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_mac_depends_on_key_purpose_place_and_content() {
        let first = LineMac::default();
        let second = key().next(SigningPurpose::Journal, first, b"a");
        let macs = [
            second,
            key().next(SigningPurpose::Journal, second, b"a"),
            key().next(SigningPurpose::Journal, first, b"b"),
            key().next(SigningPurpose::Trust, first, b"a"),
            StateKey::from_bytes([8; 32]).next(SigningPurpose::Journal, first, b"a"),
            key().mac(SigningPurpose::Trust, [&b"ab"[..], b"c"]),
            key().mac(SigningPurpose::Trust, [&b"a"[..], b"bc"]),
        ];
        for (index, one) in macs.iter().enumerate() {
            assert!(!macs[..index].contains(one), "{index}");
        }
    }

    #[test]
    fn a_key_is_sixty_four_hex_digits() {
        assert!(StateKey::from_hex(&format!(" {}\n", "0a".repeat(32))).is_some());
        for text in ["", "0a", &"0g".repeat(32), &"0a".repeat(33), &"ä".repeat(32)] {
            assert!(StateKey::from_hex(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_directory_has_one_key_which_is_its_owners_alone() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("a/state");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let state = state.clone();
                std::thread::spawn(move || {
                    StateKey::of_directory(&state).unwrap().mac(SigningPurpose::Trust, [&b"x"[..]])
                })
            })
            .collect();
        let macs: Vec<LineMac> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(macs.iter().all(|mac| *mac == macs[0]), "one key for all who come at once");
        let file = state.join(KEY_FILE);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "no other file is left");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(StateKey::of_directory(&state).unwrap_err().to_string().contains("can be read by others"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&file, "short").unwrap();
        assert!(StateKey::of_directory(&state).unwrap_err().to_string().contains("32 bytes"));
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert!(StateKey::of_directory(&state).is_err(), "a link is no key");
    }
}
