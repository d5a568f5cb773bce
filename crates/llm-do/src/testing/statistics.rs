//! How sure a share of passed tests is. Pure.

/// Of a normal distribution, 95 of 100 lie within so many standard deviations.
const Z: f64 = 1.959_963_984_540_054;

/// A share, and between which shares the truth lies in 95 of 100 suites.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassRate {
    /// How many passed.
    pub passed: u64,
    /// How many there were.
    pub total: u64,
    /// The lower end of the interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl PassRate {
    /// The interval of Wilson, which stays within 0 and 1 and is honest for few tests.
    #[expect(clippy::cast_precision_loss, reason = "counts of tests")]
    pub fn of(passed: u64, total: u64) -> Self {
        if total == 0 {
            return Self { passed, total, low: 0.0, high: 1.0 };
        }
        let (n, share) = (total as f64, passed as f64 / total as f64);
        let scale = 1.0 + Z * Z / n;
        let centre = (share + Z * Z / (2.0 * n)) / scale;
        let half = Z / scale * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        Self { passed, total, low: (centre - half).max(0.0), high: (centre + half).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_books() {
        for (passed, total, low, high) in [
            (0, 0, 0.0, 1.0),
            (0, 10, 0.0, 0.2775),
            (10, 10, 0.7225, 1.0),
            (14, 15, 0.7018, 0.9881),
            (81, 263, 0.2553, 0.3662),
            (500, 1000, 0.4691, 0.5309),
        ] {
            let rate = PassRate::of(passed, total);
            assert!((rate.low - low).abs() < 1e-4 && (rate.high - high).abs() < 1e-4, "{rate:?}");
        }
    }

    /// Every possible suite of 30, weighted by how often it comes: the truth lies within in nearly all.
    #[test]
    fn intervals_cover_the_truth() {
        for truth in [0.05_f64, 0.2, 0.5, 0.8, 0.9] {
            let n = 30_u32;
            let mut covered = 0.0;
            let mut likelihood = (1.0 - truth).powi(30);
            for passed in 0..=n {
                let rate = PassRate::of(u64::from(passed), u64::from(n));
                if (rate.low..=rate.high).contains(&truth) {
                    covered += likelihood;
                }
                likelihood *= f64::from(n - passed) / f64::from(passed + 1) * truth / (1.0 - truth);
            }
            assert!(covered >= 0.92, "{truth}: {covered}");
        }
    }
}
