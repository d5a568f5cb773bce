//! How large pictures are, read off their first bytes. Pure.

/// The size of a picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PictureSize {
    pub width: u64,
    pub height: u64,
}

impl PictureSize {
    /// Of a picture in one of the four formats that models see; `None` if its bytes do not say.
    pub(crate) fn of(data: &[u8]) -> Option<Self> {
        let size = match data {
            [0x89, b'P', b'N', b'G', ..] => Self::new(big(data, 16, 4)?, big(data, 20, 4)?),
            [b'G', b'I', b'F', b'8', ..] => Self::new(little(data, 6, 2)?, little(data, 8, 2)?),
            [0xff, 0xd8, ..] => jpeg(data)?,
            [b'R', b'I', b'F', b'F', ..] if data.get(8..12)? == b"WEBP" => webp(data)?,
            _ => return None,
        };
        (size.width > 0 && size.height > 0).then_some(size)
    }

    fn new(width: u64, height: u64) -> Self {
        Self { width, height }
    }

    /// How many squares of this many pixels cover it.
    pub(crate) fn tiles(self, side: u64) -> u64 {
        self.width.div_ceil(side).saturating_mul(self.height.div_ceil(side))
    }

    /// Made smaller until neither side is longer than this.
    #[must_use]
    pub(crate) fn within(self, longest: u64) -> Self {
        let side = self.width.max(self.height);
        if side <= longest { self } else { self.scaled(longest, side) }
    }

    /// Made smaller until the shorter side is no longer than this.
    #[must_use]
    pub(crate) fn with_shorter_side(self, longest: u64) -> Self {
        let side = self.width.min(self.height);
        if side <= longest { self } else { self.scaled(longest, side) }
    }

    fn scaled(self, by: u64, of: u64) -> Self {
        Self::new(self.width.saturating_mul(by).div_ceil(of), self.height.saturating_mul(by).div_ceil(of))
    }
}

fn big(data: &[u8], at: usize, bytes: usize) -> Option<u64> {
    Some(data.get(at..at + bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn little(data: &[u8], at: usize, bytes: usize) -> Option<u64> {
    Some(data.get(at..at + bytes)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The size stands in the first segment that begins a frame.
fn jpeg(data: &[u8]) -> Option<PictureSize> {
    let mut at = 2;
    loop {
        let (mark, kind) = (*data.get(at)?, *data.get(at + 1)?);
        if mark != 0xff {
            return None;
        }
        match kind {
            0xff => at += 1, // a filler
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some(PictureSize::new(big(data, at + 7, 2)?, big(data, at + 5, 2)?));
            }
            _ => at += 2 + usize::try_from(big(data, at + 2, 2)?.max(2)).ok()?,
        }
    }
}

fn webp(data: &[u8]) -> Option<PictureSize> {
    match data.get(12..16)? {
        b"VP8 " => Some(PictureSize::new(little(data, 26, 2)? & 0x3fff, little(data, 28, 2)? & 0x3fff)),
        b"VP8L" => {
            let bits = little(data, 21, 4)?;
            Some(PictureSize::new((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some(PictureSize::new(little(data, 24, 3)? + 1, little(data, 27, 3)? + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut data = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        data.extend(width.to_be_bytes());
        data.extend(height.to_be_bytes());
        data
    }

    #[test]
    fn the_first_bytes_say_how_large_it_is() {
        let mut jpeg = vec![0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xff, 0xc2, 0, 17, 8];
        jpeg.extend([0x01, 0x02, 0x03, 0x04]);
        let mut lossy = b"RIFF....WEBPVP8 ".to_vec();
        lossy.extend([0; 10]);
        lossy.extend([0x20, 0x43, 0x10, 0x80]);
        let mut lossless = b"RIFF....WEBPVP8L....\x2f".to_vec();
        lossless.extend((0x31f_u32 | 0x257 << 14).to_le_bytes());
        let mut extended = b"RIFF....WEBPVP8X........".to_vec();
        extended.extend([0x1f, 0x03, 0, 0x57, 0x02, 0]);
        let cases = [
            (png(800, 600), Some((800, 600))),
            (b"GIF89a\x20\x03\x58\x02".to_vec(), Some((800, 600))),
            (jpeg, Some((0x304, 0x102))),
            (lossy, Some((0x320, 0x10))),
            (lossless, Some((800, 600))),
            (extended, Some((800, 600))),
            (png(0, 600), None),
            (b"\x89PNG".to_vec(), None),
            (vec![0xff, 0xd8, 0xff, 0xe0], None),
            (b"hello".to_vec(), None),
            (Vec::new(), None),
        ];
        for (data, size) in cases {
            assert_eq!(PictureSize::of(&data).map(|size| (size.width, size.height)), size, "{data:?}");
        }
    }

    #[test]
    fn no_first_bytes_are_too_strange() {
        let starts: [&[u8]; 4] = [b"\x89PNG", b"GIF89a", b"\xff\xd8\xff\xe0", b"RIFF....WEBPVP8X"];
        for start in starts {
            for length in 0..40 {
                for byte in [0, 1, 0xc0, 0xff] {
                    let data: Vec<u8> = start.iter().copied().chain(std::iter::repeat_n(byte, length)).collect();
                    let _ = PictureSize::of(&data);
                }
            }
        }
    }

    #[test]
    fn a_large_one_is_made_smaller_before_it_is_cut_into_squares() {
        let size = PictureSize::new(4000, 3000);
        assert_eq!(
            (size.within(2000), size.with_shorter_side(768)),
            (PictureSize::new(2000, 1500), PictureSize::new(1024, 768))
        );
        assert_eq!((size.tiles(512), PictureSize::new(1, 1).tiles(512)), (48, 1));
        assert_eq!(PictureSize::new(10, 20).within(2000), PictureSize::new(10, 20));
    }
}
