//! The names of the files that a repository tracks, from its index. Only the names: they say whether what `git` would
//! show may be a secret.

use std::path::PathBuf;

/// The paths of an index, or `None` if it is not one that is understood.
pub(crate) fn paths(bytes: &[u8], hash: Hash) -> Option<Vec<PathBuf>> {
    let mut reader = Reader(bytes);
    let (signature, version, count) = (reader.take(4)?, reader.number()?, reader.number()?);
    if signature != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let mut paths = Vec::new();
    let mut name: Vec<u8> = Vec::new();
    for _ in 0..count {
        let before = reader.0.len();
        reader.take(40 + hash.bytes())?;
        let flags = reader.short()?;
        if version >= 3 && flags & EXTENDED != 0 {
            reader.short()?;
        }
        if version == 4 {
            let kept = name.len().checked_sub(reader.varint()?)?;
            name.truncate(kept);
            name.extend_from_slice(reader.text()?);
        } else {
            name.clear();
            name.extend_from_slice(reader.text()?);
            // Entries end at a multiple of eight; the NUL after the name is the first byte of the filling.
            let used = before - reader.0.len();
            reader.take((8 - used % 8) % 8)?;
        }
        paths.push(PathBuf::from(String::from_utf8_lossy(&name).into_owned()));
    }
    reader.has_plain_extensions(hash).then_some(paths)
}

/// How a repository names its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The tree without entries, which every repository has.
    pub(crate) fn empty_tree(self) -> &'static str {
        match self {
            Self::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            Self::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        }
    }
}

const EXTENDED: u16 = 0x4000;

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// Whether what follows the entries may be passed over. An extension with a small letter may not: the names are in
    /// another file, or stand for whole directories.
    fn has_plain_extensions(&mut self, hash: Hash) -> bool {
        while self.0.len() > hash.bytes() {
            let Some([first, ..]) = self.take(4) else { return false };
            let length = self.number().and_then(|length| usize::try_from(length).ok());
            if !first.is_ascii_uppercase() || length.and_then(|length| self.take(length)).is_none() {
                return false;
            }
        }
        true
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(0, self.0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    /// The length of what is cut off the name before.
    fn varint(&mut self) -> Option<usize> {
        let mut byte = self.take(1)?[0];
        let mut value = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take(1)?[0];
            value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
        }
        Some(value)
    }
}
