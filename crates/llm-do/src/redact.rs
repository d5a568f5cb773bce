//! Keys, kept out of what models, journals and screens are told.
//!
//! A tool may print a key, by mistake or on purpose. Whatever a tool gives passes here before it is a result, an
//! event or a line of a journal. It knows the keys as they are, in base64 and percent-encoded; an attacker who hides
//! a key better than that needs code of the project, which was trusted.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;

/// What stands where a key was.
pub(crate) const REDACTED: &str = "[redacted]";
/// Shorter values are not looked for, since they may be ordinary words of a text.
pub(crate) const SHORTEST: usize = 12;

/// Knows the keys of a run; more may come while it goes on. Copies know the same.
#[derive(Clone, Default)]
pub struct Redactor(Arc<RwLock<Vec<Finder<'static>>>>);

/// It shows nothing of what it holds, since all of that is secret.
impl fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Redactor")
    }
}

impl Redactor {
    /// One that knows these keys.
    #[cfg(test)]
    pub(crate) fn of<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let redactor = Self::default();
        values.into_iter().for_each(|value| redactor.learn(value));
        redactor
    }

    /// One more key. One that is shorter than `SHORTEST` is left out, since it is a word of a text as well.
    pub fn learn(&self, value: &str) {
        let value = value.trim();
        if value.len() < SHORTEST {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for form in forms(value) {
            if !known.iter().any(|finder| finder.needle() == form.as_bytes()) {
                known.push(Finder::new(form.as_bytes()).into_owned());
            }
        }
        // The longest first: a key may begin with another one.
        known.sort_by_key(|finder| std::cmp::Reverse(finder.needle().len()));
    }

    /// The text without the keys in it; what has none is not copied.
    pub fn redacted(&self, mut text: String) -> String {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for finder in known.iter() {
            if let Some(first) = finder.find(text.as_bytes()) {
                text = without(&text, first, finder);
            }
        }
        text
    }

    /// Whether there is a key in it.
    pub(crate) fn finds(&self, bytes: &[u8]) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|finder| finder.find(bytes).is_some())
    }
}

/// The text without one key. A key is text, so its ends lie between characters.
fn without(text: &str, first: usize, finder: &Finder<'_>) -> String {
    let (mut out, mut rest, mut at) = (String::with_capacity(text.len()), text, Some(first));
    while let Some(found) = at {
        out.push_str(&rest[..found]);
        out.push_str(REDACTED);
        rest = &rest[found + finder.needle().len()..];
        at = finder.find(rest.as_bytes());
    }
    out + rest
}

/// A value as it is, and as it is usually written elsewhere. Of base64 only as much as does not depend on what follows.
fn forms(value: &str) -> Vec<Cow<'_, str>> {
    let whole = &value.as_bytes()[..value.len() / 3 * 3];
    let mut forms = vec![Cow::Borrowed(value)];
    forms.extend([STANDARD_NO_PAD.encode(whole), URL_SAFE_NO_PAD.encode(whole)].map(Cow::Owned));
    forms.push(Cow::Owned(percent_encoded(value)));
    forms
}

fn percent_encoded(value: &str) -> String {
    let encoded = value.bytes().map(|byte| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-live/0123456789+abc";

    #[test]
    fn keys_are_taken_out_in_every_usual_form() {
        let redactor = Redactor::of([KEY, "  sk-live/0123456789+abcdefghij\n", "short"]);
        let base64 = base64::engine::general_purpose::STANDARD.encode(KEY);
        for (text, expected) in [
            ("nothing here, short".to_owned(), "nothing here, short".to_owned()),
            (format!("a{KEY}b{KEY}"), "a[redacted]b[redacted]".to_owned()),
            (format!("ä{KEY}ö"), "ä[redacted]ö".to_owned()),
            ("sk-live/0123456789+abcdefghij".to_owned(), "[redacted]".to_owned()),
            ("?key=sk-live%2F0123456789%2Babc&".to_owned(), "?key=[redacted]&".to_owned()),
            (format!("basic {base64}"), format!("basic [redacted]{}", &base64[28..])),
        ] {
            assert_eq!(redactor.redacted(text.clone()), expected, "{text}");
        }
        assert_eq!(format!("{redactor:?}"), "Redactor");
    }

    #[test]
    fn a_key_that_comes_later_is_known_to_all_copies() {
        let redactor = Redactor::default();
        let copy = redactor.clone();
        assert_eq!(copy.redacted(KEY.to_owned()), KEY);
        redactor.learn(KEY);
        assert_eq!(copy.redacted(KEY.to_owned()), REDACTED);
        assert!(copy.finds(KEY.as_bytes()) && !copy.finds(b"x"));
    }
}
