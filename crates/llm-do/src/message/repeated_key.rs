//! Keys that an object has twice. JSON does not say which of them counts, so the code that judges such a text and the
//! code that acts on it may read two different things.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The first key that an object of this text has twice, at any depth.
pub(crate) fn repeated_key(json: &str) -> Option<String> {
    let found = RefCell::new(None);
    // What is no JSON, or nested deeper than the parser reads, has no keys.
    let _ = RepeatedKeySearch(&found).deserialize(&mut serde_json::Deserializer::from_str(json));
    found.into_inner()
}

#[derive(Clone, Copy)]
struct RepeatedKeySearch<'f>(&'f RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for RepeatedKeySearch<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for RepeatedKeySearch<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key_seed(KeyText)? {
            if keys.contains(&key) {
                *self.0.borrow_mut() = Some(key.into_owned());
                return Err(A::Error::custom("a key is repeated"));
            }
            keys.insert(key);
            map.next_value_seed(self)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        IgnoredAny.visit_bool::<E>(value).map(drop)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        IgnoredAny.visit_i64::<E>(value).map(drop)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        IgnoredAny.visit_u64::<E>(value).map(drop)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        IgnoredAny.visit_f64::<E>(value).map(drop)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        IgnoredAny.visit_str::<E>(value).map(drop)
    }
}

/// A key, borrowed from the text unless something in it is escaped.
struct KeyText;

impl<'de> DeserializeSeed<'de> for KeyText {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeyText {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_repeated_however_it_is_written() {
        for (json, key) in [
            (r#"{"a": 1, "b": 2}"#, None),
            (r#"{"a": 1, "a": 2}"#, Some("a")),
            (r#"{"a": 1, "\u0061": 2}"#, Some("a")),
            (r#"{"a": {"b": [null, true, -1, 1.5, "x", {"c": 1, "d": 2, "c": 3}]}}"#, Some("c")),
            (r#"{"a": {"a": {"a": []}}, "b": {"a": 1}}"#, None),
            (r#"[{"a": 1}, {"a": 1}]"#, None),
            ("not JSON", None),
        ] {
            assert_eq!(repeated_key(json).as_deref(), key, "{json}");
        }
    }
}
