//! Who speaks to a worker: the engine signs each request for the path that it asks, for a short time, with a key whose public
//! half its operator hands out. Without such a signature anybody on the machine could hand a worker a journal of his own.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::HeaderMap;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;

/// How the text of a public key begins.
const PREFIX: &str = "publickeyv1_";
const SCHEME: &str = "x-restate-signature-scheme";
const TOKEN: &str = "x-restate-jwt-v1";
/// Clocks of two machines differ.
const LEEWAY: Duration = Duration::from_secs(5);

/// The public half of an engine's key.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityKey([u8; 32]);

impl fmt::Debug for IdentityKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IdentityKey")
    }
}

#[derive(Deserialize)]
struct TokenHead {
    alg: String,
}

#[derive(Deserialize)]
struct TokenClaims {
    aud: String,
    exp: u64,
    nbf: u64,
}

impl IdentityKey {
    /// Reads what the engine prints when it starts: `publickeyv1_…`.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = base58(text.trim().strip_prefix(PREFIX)?)?;
        bytes.try_into().ok().map(Self)
    }

    /// Whether the engine signed a request for this path, and for now.
    pub fn vouches_for(&self, headers: &HeaderMap, path: &str) -> bool {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        header(SCHEME) == Some("v1") && header(TOKEN).is_some_and(|token| self.signed(token, path, now).is_some())
    }

    fn signed(&self, token: &str, path: &str, now: Duration) -> Option<()> {
        let (message, signature) = token.rsplit_once('.')?;
        let (head, claims) = message.split_once('.')?;
        let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let signature = decoded(signature)?;
        UnparsedPublicKey::new(&ED25519, self.0).verify(message.as_bytes(), &signature).ok()?;
        let head: TokenHead = serde_json::from_slice(&decoded(head)?).ok()?;
        let TokenClaims { aud, exp, nbf } = serde_json::from_slice(&decoded(claims)?).ok()?;
        let is_now = now < Duration::from_secs(exp) + LEEWAY && now + LEEWAY >= Duration::from_secs(nbf);
        (head.alg == "EdDSA" && aud == path && is_now).then_some(())
    }
}

/// Digits that nobody takes for one another, as keys are written.
fn base58(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    const LONGEST: usize = 64;
    if text.len() > LONGEST {
        return None;
    }
    let mut bytes: Vec<u8> = Vec::new();
    for digit in text.bytes() {
        let mut carry = u32::try_from(DIGITS.iter().position(|known| *known == digit)?).ok()?;
        for byte in bytes.iter_mut().rev() {
            carry += u32::from(*byte) * 58;
            *byte = (carry & 0xff) as u8;
            carry >>= 8;
        }
        if carry > 0 {
            bytes.insert(0, (carry & 0xff) as u8);
        }
    }
    let zeros = text.bytes().take_while(|digit| *digit == b'1').count();
    Some([vec![0; zeros], bytes].concat())
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    fn token(pair: &Ed25519KeyPair, head: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }

    #[test]
    fn a_signature_is_for_one_path_and_a_short_time() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = IdentityKey(pair.public_key().as_ref().try_into().unwrap());
        let other = IdentityKey([9; 32]);
        let now = Duration::from_secs(1000);
        let claims = r#"{"aud":"/invoke/a/b","exp":1060,"iat":940,"nbf":940}"#;
        let good = token(&pair, r#"{"alg":"EdDSA","typ":"JWT"}"#, claims);
        assert!(key.signed(&good, "/invoke/a/b", now).is_some());
        assert!(key.signed(&good, "/invoke/a/c", now).is_none());
        assert!(key.signed(&good, "/invoke/a/b", Duration::from_secs(1066)).is_none());
        assert!(key.signed(&good, "/invoke/a/b", Duration::from_mins(15)).is_none());
        assert!(other.signed(&good, "/invoke/a/b", now).is_none());
        assert!(key.signed(&token(&pair, r#"{"alg":"none"}"#, claims), "/invoke/a/b", now).is_none());
        for wrong in ["", ".", "..", "a.b.c", &good[..good.len() - 4]] {
            assert!(key.signed(wrong, "/invoke/a/b", now).is_none(), "{wrong}");
        }
    }

    #[test]
    fn keys_are_read_as_the_engine_prints_them() {
        assert_eq!(base58("1112"), Some(vec![0, 0, 0, 1]));
        assert_eq!(base58("5Q"), Some(vec![255]));
        assert_eq!(base58("0"), None);
        assert!(IdentityKey::parse("publickeyv1_w7YHemBctH5Ck2nQRQ47iBBqhNHy4FV7t2Usbye2A6f").is_some());
        for wrong in ["", "publickeyv1_", "publickeyv1_abc", "w7YHemBctH5Ck2nQRQ47iBBqhNHy4FV7t2Usbye2A6f"] {
            assert_eq!(IdentityKey::parse(wrong), None, "{wrong}");
        }
    }
}
