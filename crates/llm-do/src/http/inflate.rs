//! Answers that come compressed, though the request did not ask for it. The bytes themselves tell: no text begins as
//! gzip does.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::GzDecoder;

/// What a body is, as its first byte says.
pub(super) enum Encoding {
    Unread,
    Plain,
    Gzip(Box<GzDecoder<InflateBuffer>>),
}

/// Why a compressed body cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InflateError {
    TooLarge,
    Malformed,
}

const GZIP: u8 = 0x1f;

impl Encoding {
    /// The bytes behind these, of which there may be at most `room`.
    pub(super) fn decode(&mut self, chunk: Bytes, room: u64) -> Result<Bytes, InflateError> {
        if let (Self::Unread, Some(first)) = (&self, chunk.first()) {
            *self = match *first {
                GZIP => Self::Gzip(Box::new(GzDecoder::new(InflateBuffer { bytes: Vec::new(), room: 0 }))),
                _ => Self::Plain,
            };
        }
        match self {
            Self::Unread | Self::Plain => Ok(chunk),
            Self::Gzip(decoder) => inflate(decoder, &chunk, room),
        }
    }

    /// Whether a body that ends here is whole.
    pub(super) fn is_whole(&mut self) -> bool {
        match self {
            Self::Unread | Self::Plain => true,
            Self::Gzip(decoder) => decoder.try_finish().is_ok(),
        }
    }
}

fn inflate(decoder: &mut GzDecoder<InflateBuffer>, chunk: &[u8], room: u64) -> Result<Bytes, InflateError> {
    decoder.get_mut().room = room;
    let written = write(decoder, chunk).and_then(|()| decoder.flush());
    match written {
        Ok(()) => Ok(Bytes::from(std::mem::take(&mut decoder.get_mut().bytes))),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(InflateError::TooLarge),
        Err(_) => Err(InflateError::Malformed),
    }
}

/// Adds compressed bytes. What follows the end of the compressed body is ignored.
fn write(decoder: &mut GzDecoder<InflateBuffer>, mut chunk: &[u8]) -> io::Result<()> {
    while !chunk.is_empty() {
        match decoder.write(chunk)? {
            0 => break,
            taken => chunk = &chunk[taken..],
        }
    }
    Ok(())
}

/// A bounded buffer, since a few compressed bytes can stand for very many.
pub(super) struct InflateBuffer {
    bytes: Vec<u8>,
    room: u64,
}

impl Write for InflateBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.room = self.room.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn decoded(chunks: &[&[u8]], room: u64) -> (Result<Vec<u8>, InflateError>, bool) {
        let mut encoding = Encoding::Unread;
        let mut whole = Vec::new();
        for chunk in chunks {
            match encoding.decode(Bytes::copy_from_slice(chunk), room - whole.len() as u64) {
                Ok(bytes) => whole.extend_from_slice(&bytes),
                Err(unreadable) => return (Err(unreadable), false),
            }
        }
        (Ok(whole), encoding.is_whole())
    }

    #[test]
    fn what_is_compressed_is_inflated_however_it_is_split() {
        let text = "data: hello\n\n".repeat(50);
        let packed = compressed(text.as_bytes());
        for size in [1, 7, packed.len()] {
            let chunks: Vec<&[u8]> = packed.chunks(size).collect();
            assert_eq!(decoded(&chunks, 10_000), (Ok(text.clone().into_bytes()), true), "{size}");
        }
        assert_eq!(decoded(&[b"", b"data: ", b"x"], 100), (Ok(b"data: x".to_vec()), true));
        assert_eq!(decoded(&[&packed, b"more"], 10_000).0, Ok(text.clone().into_bytes()), "what follows is nothing");
    }

    #[test]
    fn what_is_cut_is_not_whole_and_what_is_broken_is_not_read() {
        let packed = compressed(b"hello");
        assert!(!decoded(&[&packed[..packed.len() - 4]], 100).1);
        let mut broken = packed.clone();
        broken[12] ^= 0xff;
        let (read, whole) = decoded(&[&broken], 100);
        assert!(read.is_err() || !whole, "{read:?}");
        assert_eq!(decoded(&[b"\x1f is no beginning of gzip"], 100).0, Err(InflateError::Malformed));
    }

    #[test]
    fn few_bytes_do_not_become_more_than_any_body_may_have() {
        let bomb = compressed(&vec![b'x'; 1_000_000]);
        assert!(bomb.len() < 10_000);
        assert_eq!(decoded(&[&bomb], 999_999).0, Err(InflateError::TooLarge));
        assert_eq!(decoded(&[&bomb], 1_000_000).0.map(|bytes| bytes.len()), Ok(1_000_000));
    }
}
