//! How letters look: several styles at once, and the codes that change one look into another. Pure.

/// A set of styles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appearance(u8);

impl Appearance {
    pub const PLAIN: Self = Self(0);
    pub const BOLD: Self = Self(1);
    pub const ITALIC: Self = Self(2);
    pub const UNDERLINED: Self = Self(4);
    pub const DIM: Self = Self(8);
    /// Code within a sentence.
    pub const CODE: Self = Self(16);
    /// A word that belongs to a programming language.
    pub const KEYWORD: Self = Self(32);
    /// A text within code.
    pub const QUOTED: Self = Self(64);

    // Colours of the terminal's own palette, which can be read on a light and on a dark ground.
    const CODES: [(Self, &str); 7] = [
        (Self::BOLD, "1"),
        (Self::DIM, "2"),
        (Self::ITALIC, "3"),
        (Self::UNDERLINED, "4"),
        (Self::QUOTED, "32"),
        (Self::KEYWORD, "35"),
        (Self::CODE, "36"),
    ];

    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// From this look to another one.
    pub fn change(self, to: Self, out: &mut String) {
        if self == to {
            return;
        }
        let mut codes = Self::CODES.iter().filter(|(look, _)| to.0 & look.0 != 0).map(|(_, code)| *code);
        out.push_str("\u{1b}[");
        // What stands is taken back first: not every terminal knows how to end a single style.
        let first = if self == Self::PLAIN { codes.next() } else { None };
        out.push_str(first.unwrap_or("0"));
        for code in codes {
            out.push(';');
            out.push_str(code);
        }
        out.push('m');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_code_leads_from_look_to_look() {
        let both = Appearance::BOLD.with(Appearance::CODE);
        let cases = [
            (Appearance::PLAIN, Appearance::PLAIN, ""),
            (Appearance::PLAIN, Appearance::BOLD, "\u{1b}[1m"),
            (Appearance::PLAIN, both, "\u{1b}[1;36m"),
            (both, Appearance::BOLD, "\u{1b}[0;1m"),
            (both, Appearance::PLAIN, "\u{1b}[0m"),
        ];
        for (from, to, expected) in cases {
            let mut out = String::new();
            from.change(to, &mut out);
            assert_eq!(out, expected, "{from:?} {to:?}");
        }
    }
}
