//! Days, weeks and months as the user's calendar has them. Pure but for the look at which time zone the process is in.

use std::fmt;
use std::sync::OnceLock;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where a system says in which zone it is, as the rules of that zone.
const SYSTEM_ZONE: &str = "/etc/localtime";

/// Where clocks stand: what day it is depends on it.
#[derive(Clone, Debug)]
pub struct LocalZone(TimeZone);

impl LocalZone {
    /// That of this process, as `TZ` or the system says; UTC where neither does.
    ///
    /// The rules of the system's zone are a small file. Which name they have in the database of all zones does not matter
    /// here, and finding that out would read the whole database at each start.
    /// Each row of a list asks for it, so it is found once.
    pub fn of_process() -> Self {
        static FOUND: OnceLock<TimeZone> = OnceLock::new();
        let find = || {
            let rules = if std::env::var_os("TZ").is_none() { std::fs::read(SYSTEM_ZONE).ok() } else { None };
            rules.and_then(|rules| TimeZone::tzif("local", &rules).ok()).unwrap_or_else(TimeZone::system)
        };
        Self(FOUND.get_or_init(find).clone())
    }

    /// One that is described by its rules, as POSIX writes them: `CET-1CEST,M3.5.0,M10.5.0/3`.
    #[cfg(test)]
    pub(crate) fn of_rules(rules: &str) -> Option<Self> {
        TimeZone::posix(rules).ok().map(Self)
    }
}

/// A day as the user's calendar has it. As JSON and in words `2026-11-17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CalendarDay(Date);

impl CalendarDay {
    /// The day of a moment, in milliseconds since 1970. What is beyond the calendar is its last day.
    pub fn of(milliseconds: u64, zone: &LocalZone) -> Self {
        let moment = i64::try_from(milliseconds).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
        Self(zone.0.to_datetime(moment.unwrap_or(Timestamp::MAX)).date())
    }

    /// Reads `2026-11-17`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_shaped = text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
        if text.len() != 10 || !is_shaped {
            return None;
        }
        let (year, month, day) = (text[..4].parse().ok()?, text[5..7].parse().ok()?, text[8..].parse().ok()?);
        Date::new(year, month, day).ok().map(Self)
    }

    /// The month that it belongs to, as its file is called: `2026-11`.
    pub(crate) fn month(self) -> String {
        format!("{:04}-{:02}", self.0.year(), self.0.month())
    }
}

impl fmt::Display for CalendarDay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04}-{:02}-{:02}", self.0.year(), self.0.month(), self.0.day())
    }
}

impl Serialize for CalendarDay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CalendarDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("it is no day"))
    }
}

/// How long a period is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeriodLength {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// From the first day of a month to its last.
    Month,
}

impl PeriodLength {
    /// As it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// The period that a day is in.
    pub(crate) fn around(self, CalendarDay(day): CalendarDay) -> CalendarPeriod {
        let (name, first, last) = match self {
            Self::Day => (CalendarDay(day).to_string(), day, day),
            Self::Week => {
                let monday = day.saturating_sub(i64::from(day.weekday().to_monday_zero_offset()).days());
                let week = day.iso_week_date();
                (format!("{:04}-W{:02}", week.year(), week.week()), monday, monday.saturating_add(6.days()))
            }
            Self::Month => (CalendarDay(day).month(), day.first_of_month(), day.last_of_month()),
        };
        CalendarPeriod { name, first: CalendarDay(first), last: CalendarDay(last) }
    }
}

/// A day, a week or a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CalendarPeriod {
    /// What it is called: `2026-11-17`, `2026-W47` or `2026-11`.
    pub name: String,
    /// Its first day.
    pub first: CalendarDay,
    /// Its last day.
    pub last: CalendarDay,
}

impl CalendarPeriod {
    /// Whether a day is one of it.
    pub(crate) fn has(&self, day: CalendarDay) -> bool {
        self.first <= day && day <= self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zone(rules: &str) -> LocalZone {
        LocalZone::of_rules(rules).unwrap()
    }

    const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
    const NEW_YORK: &str = "EST5EDT,M3.2.0,M11.1.0";

    #[test]
    fn a_moment_has_a_day_wherever_clocks_are() {
        const NOON: u64 = 1_794_916_800_000; // 2026-11-17T12:00:00Z
        for (milliseconds, rules, expected) in [
            (0, "UTC0", "1970-01-01"),
            (0, "XXX1", "1969-12-31"),
            (86_399_999, "UTC0", "1970-01-01"),
            (86_399_999, "XXX-1", "1970-01-02"),
            (NOON, "UTC0", "2026-11-17"),
            (NOON, "XXX12:00:01", "2026-11-16"),
            (NOON, "XXX-12", "2026-11-18"),
            (NOON, "XXX-14", "2026-11-18"),
            (NOON, "XXX-11:59:59", "2026-11-17"),
            (951_782_400_000, "UTC0", "2000-02-29"),
            (4_107_542_400_000, "UTC0", "2100-03-01"),
            (u64::MAX, "UTC0", "9999-12-30"),
            // The night in which clocks go forward, at 01:00Z: the day before has 24 hours, this one 23.
            (1_774_738_799_999, BERLIN, "2026-03-28"),
            (1_774_738_800_000, BERLIN, "2026-03-29"),
            (1_774_821_599_999, BERLIN, "2026-03-29"),
            (1_774_821_600_000, BERLIN, "2026-03-30"),
            // And back: this one has 25.
            (1_792_879_199_999, BERLIN, "2026-10-24"),
            (1_792_879_200_000, BERLIN, "2026-10-25"),
            (1_792_969_199_999, BERLIN, "2026-10-25"),
            (1_792_969_200_000, BERLIN, "2026-10-26"),
            (1_793_505_599_999, NEW_YORK, "2026-10-31"),
            (1_793_505_600_000, NEW_YORK, "2026-11-01"),
            (1_793_595_600_000, NEW_YORK, "2026-11-02"),
        ] {
            assert_eq!(CalendarDay::of(milliseconds, &zone(rules)).to_string(), expected, "{milliseconds} {rules}");
        }
    }

    #[test]
    fn only_days_that_there_are_are_read() {
        assert_eq!(CalendarDay::parse("2026-11-17").unwrap().month(), "2026-11");
        for wrong in [
            "",
            "2026-11",
            "2026-11-1",
            "2026-02-29",
            "2100-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-04-31",
            "2026-01-00",
            "+026-01-01",
            "2026-1-011",
            "２026-1-1",
        ] {
            assert_eq!(CalendarDay::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn periods_begin_and_end_where_calendars_say() {
        for (length, day, name, first, last) in [
            (PeriodLength::Day, "2026-11-17", "2026-11-17", "2026-11-17", "2026-11-17"),
            (PeriodLength::Week, "2026-11-16", "2026-W47", "2026-11-16", "2026-11-22"),
            (PeriodLength::Week, "2026-11-17", "2026-W47", "2026-11-16", "2026-11-22"),
            (PeriodLength::Week, "2026-11-22", "2026-W47", "2026-11-16", "2026-11-22"),
            (PeriodLength::Week, "2026-11-23", "2026-W48", "2026-11-23", "2026-11-29"),
            // A week belongs to the year of its Thursday.
            (PeriodLength::Week, "2027-01-01", "2026-W53", "2026-12-28", "2027-01-03"),
            (PeriodLength::Week, "2024-12-31", "2025-W01", "2024-12-30", "2025-01-05"),
            (PeriodLength::Month, "2026-11-30", "2026-11", "2026-11-01", "2026-11-30"),
            (PeriodLength::Month, "2026-12-01", "2026-12", "2026-12-01", "2026-12-31"),
            (PeriodLength::Month, "2028-02-10", "2028-02", "2028-02-01", "2028-02-29"),
            (PeriodLength::Month, "2100-02-28", "2100-02", "2100-02-01", "2100-02-28"),
        ] {
            let period = length.around(CalendarDay::parse(day).unwrap());
            let found = (period.name.as_str(), period.first.to_string(), period.last.to_string());
            assert_eq!(found, (name, first.to_owned(), last.to_owned()), "{day}");
        }
    }

    proptest! {
        #[test]
        fn every_day_is_in_its_period_and_in_no_other(days in 0_u64..40_000, other in 0_u64..40_000) {
            let day = |number: u64| CalendarDay::of(number * 86_400_000, &zone("UTC0"));
            for length in [PeriodLength::Day, PeriodLength::Week, PeriodLength::Month] {
                let (period, second) = (length.around(day(days)), length.around(day(other)));
                prop_assert!(period.has(day(days)));
                prop_assert_eq!(CalendarDay::parse(&day(days).to_string()), Some(day(days)));
                prop_assert_eq!(day(days) < day(other), days < other);
                prop_assert_eq!(period.has(day(other)), period == second);
                prop_assert_eq!(period.name == second.name, period == second);
            }
        }
    }
}
