//! Ids of tool calls that moved to another provider. What a provider sent itself goes back as it came; an id of
//! another provider that it would refuse is replaced, in the call and in its result alike.

use std::collections::HashMap;

use super::protocol::CallIdForm;

/// The replacements of one conversation.
#[derive(Debug)]
pub(crate) struct CallIds {
    form: CallIdForm,
    replaced: HashMap<String, String>,
}

impl CallIds {
    pub(crate) fn new(form: CallIdForm) -> Self {
        Self { form, replaced: HashMap::new() }
    }

    /// Takes note of an id that another provider gave.
    pub(crate) fn adopt(&mut self, id: &str) {
        let replacement = match self.form {
            CallIdForm::Any => return,
            CallIdForm::Word if is_word(id) => return,
            CallIdForm::Word => format!("call_{}", digest(id, 22)),
            CallIdForm::NineAlphanumeric if id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()) => return,
            CallIdForm::NineAlphanumeric => digest(id, 9),
        };
        self.replaced.insert(id.to_owned(), replacement);
    }

    /// The id as it goes over the wire.
    pub(crate) fn on_wire<'a>(&'a self, id: &'a str) -> &'a str {
        self.replaced.get(id).map_or(id, String::as_str)
    }
}

fn is_word(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Letters and digits that follow from the id alone, so that a replayed conversation has the same ones. FNV-1a is
/// enough: an attacker gains nothing by a collision among the calls of one conversation.
fn digest(id: &str, length: usize) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut hash = id.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        let digit = usize::try_from(hash % 62).expect("a remainder of 62");
        text.push(char::from(ALPHABET[digit]));
        hash /= 62;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_replaced_only_where_it_would_be_refused() {
        let cases = [
            (CallIdForm::Any, "functions.add:0", true),
            (CallIdForm::Word, "toolu_01-A", true),
            (CallIdForm::Word, "functions.add:0", false),
            (CallIdForm::Word, "", false),
            (CallIdForm::Word, &"x".repeat(64), true),
            (CallIdForm::Word, &"x".repeat(65), false),
            (CallIdForm::NineAlphanumeric, "rHU0eZiMa", true),
            (CallIdForm::NineAlphanumeric, "toolu_01A", false),
            (CallIdForm::NineAlphanumeric, "call_4_0", false),
        ];
        for (form, id, kept) in cases {
            let mut ids = CallIds::new(form);
            assert_eq!(ids.on_wire(id), id, "an own id is kept");
            ids.adopt(id);
            let sent = ids.on_wire(id).to_owned();
            assert_eq!(sent == id, kept, "{form:?} {id}");
            let mut sent_on = CallIds::new(form);
            sent_on.adopt(&sent);
            assert_eq!(sent_on.on_wire(&sent), sent, "a replacement fits");
        }
    }

    #[test]
    fn different_ids_get_different_replacements() {
        let mut ids = CallIds::new(CallIdForm::NineAlphanumeric);
        let all: Vec<String> = (0..2000).map(|n| format!("call_{n}_0")).collect();
        for id in &all {
            ids.adopt(id);
        }
        let sent: std::collections::HashSet<&str> = all.iter().map(|id| ids.on_wire(id)).collect();
        assert_eq!(sent.len(), all.len());
    }
}
