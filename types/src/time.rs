//! Points in time: the dates that people write and read, and the milliseconds that cells and keys hold.
//!
//! A time is milliseconds since 1970 in UTC, as timestamps of cells are. This is the one place that reads and writes dates:
//! parts of keys, values of columns, filters and the command line all go through it.
//!
//! | text | is |
//! |---|---|
//! | `2026-01-31` | midnight UTC |
//! | `2026-01-31T12:00Z`, `2026-01-31 12:00:00.250` | that moment; without a zone it is UTC |
//! | `2026-01-31T12:00:00+02:00` | 10:00 UTC |
//! | `1769860800000` | milliseconds since 1970 |
//! | `now`, `now-1h`, `-90m`, `+1d` | relative, where the caller says what time it is: [`Time::parse_at`] |
//!
//! Invariants:
//! - What [`Display`](fmt::Display) writes is RFC 3339 in UTC and reads back as the same time. A time outside of the years
//!   0000 to 9999, which RFC 3339 has no text for, is its number.
//! - Nothing here knows the machine's time zone or clock.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Datelike, NaiveDate, Timelike};

use crate::invalid::Invalid;
use crate::quantity::parse_duration_ms;

/// What a text may be, for errors.
const FORMS: &str = "write a date, as in 2026-01-31 or 2026-01-31T12:00:00Z, or milliseconds since 1970";

/// A point in time: milliseconds since 1970 in UTC.
///
/// As a part of a key it is declared as `time` and has the bytes of an `i64`; as a value of a column it has the bytes of an
/// `i64`, too.
///
/// ```
/// use std::time::SystemTime;
/// use terrane_types::{Desc, RowKey, Time};
///
/// #[derive(RowKey)]
/// struct Action { user: u64, time: Desc<Time> }
///
/// let time: Time = "2026-01-31T12:00+02:00".parse()?;
/// assert_eq!(time.millis(), 1_769_853_600_000);
/// assert_eq!(time.to_string(), "2026-01-31T10:00:00Z");
/// assert_eq!(Action::declaration().to_string(), "user:u64, time:desc time");
/// let now = Action { user: 7, time: Desc(SystemTime::now().into()) };
/// # now.encode()?;
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// What a text says.
enum Written {
    At(Time),
    /// Milliseconds from now.
    FromNow(i64),
}

impl Time {
    /// The time this many milliseconds after the beginning of 1970 in UTC, or before it if negative.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the beginning of 1970 in UTC.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The midnight in UTC with which this day begins; `None` if there is no such day.
    #[must_use]
    pub fn from_date(year: i32, month: u32, day: u32) -> Option<Self> {
        Some(Self(
            NaiveDate::from_ymd_opt(year, month, day)?.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis(),
        ))
    }

    /// The year, month and day of this time in UTC; `None` for years that calendars do not reach.
    #[must_use]
    pub fn date(self) -> Option<(i32, u32, u32)> {
        let date = DateTime::from_timestamp_millis(self.0)?;
        Some((date.year(), date.month(), date.day()))
    }

    /// Parses a date or milliseconds; see [the module](self). A fraction finer than milliseconds is dropped.
    ///
    /// ```
    /// use terrane_types::Time;
    /// assert_eq!(Time::parse("1970-01-02")?, Time::parse("86400000")?);
    /// let refused = Time::parse("2026-13-01").unwrap_err().what;
    /// assert_eq!(refused, r#""2026-13-01" is not a time: there is no month 13"#);
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`] that says what is wrong and what to write instead; also for a relative time.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        match read(text)? {
            Written::At(time) => Ok(time),
            Written::FromNow(_) => Err(refused(text, &format!("no relative time is taken here; {FORMS}"))),
        }
    }

    /// Parses a date, milliseconds, or a time relative to `now`: `now`, `now-1h`, `-90m`, `+1d`.
    ///
    /// ```
    /// use terrane_types::Time;
    /// let now = Time::parse("2026-01-31T12:00Z")?;
    /// assert_eq!(Time::parse_at("-90m", now)?.to_string(), "2026-01-31T10:30:00Z");
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid`] that says what is wrong and what to write instead.
    pub fn parse_at(text: &str, now: Self) -> Result<Self, Invalid> {
        match read(text)? {
            Written::At(time) => Ok(time),
            Written::FromNow(distance) => {
                let time = now.0.checked_add(distance);
                time.map(Self).ok_or_else(|| refused(text, "64 bits of milliseconds do not reach so far"))
            }
        }
    }

    /// Whether the text is a time relative to now.
    #[must_use]
    pub fn is_relative(text: &str) -> bool {
        matches!(relative(text.trim()), Some(Ok(_)))
    }
}

fn refused(text: &str, why: &str) -> Invalid {
    let shown: String = text.chars().take(40).collect();
    Invalid::new(format!("{shown:?} is not a time: {why}"))
}

fn read(text: &str) -> Result<Written, Invalid> {
    let trimmed = text.trim();
    if let Ok(millis) = trimmed.parse() {
        return Ok(Written::At(Time(millis)));
    }
    if let Some(distance) = relative(trimmed) {
        return distance.map(Written::FromNow);
    }
    moment(trimmed).map(Written::At).map_err(|why| refused(text, &why))
}

/// The distance from now in milliseconds, if the text has the form of a relative time.
fn relative(text: &str) -> Option<Result<i64, Invalid>> {
    let signed = match text.strip_prefix("now") {
        Some("") => return Some(Ok(0)),
        Some(rest) => rest.trim_start(),
        None => text,
    };
    let (sign, span) = match (signed.strip_prefix('-'), signed.strip_prefix('+')) {
        (Some(span), _) => (-1, span),
        (_, Some(span)) => (1, span),
        _ => return None,
    };
    // A number without a unit is milliseconds since 1970, wherever a time is written.
    if !span.ends_with(|last: char| last.is_ascii_alphabetic()) || span.contains([':', '-']) {
        return None;
    }
    let distance = |ms| i64::try_from(ms).expect("a time span has less than 2^63 milliseconds");
    Some(parse_duration_ms(span.trim()).map(|ms| sign * distance(ms)))
}

/// A day, and the time of day and the zone after it where they are given.
fn moment(text: &str) -> Result<Time, String> {
    let Some((day, rest)) = text.split_at_checked(10).filter(|(day, _)| has_shape(day, "0000-00-00")) else {
        return Err(misshapen(text));
    };
    let midnight = midnight_of(day)?;
    let (clock, zone) = match rest.strip_prefix(['T', 't', ' ']) {
        Some(rest) => {
            let end = rest.find(|letter: char| !letter.is_ascii_digit() && !":.,".contains(letter));
            rest.split_at(end.unwrap_or(rest.len()))
        }
        None => ("00:00", rest),
    };
    Ok(Time(midnight.0 + milliseconds_of_day(clock)? - offset_ms(zone.trim())?))
}

/// Whether the text has a digit for each `0` of the shape, and else its characters.
fn has_shape(text: &str, shape: &str) -> bool {
    let fits = |(byte, shape): (u8, u8)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits)
}

/// The number of some digits, at most nine of them.
fn number(digits: &str) -> u32 {
    digits.bytes().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
}

fn midnight_of(day: &str) -> Result<Time, String> {
    let (year, month, date) = (number(&day[..4]), number(&day[5..7]), number(&day[8..]));
    let midnight = |date| Time::from_date(i32::try_from(year).expect("four digits"), month, date);
    match midnight(date) {
        Some(midnight) => Ok(midnight),
        None if !(1..=12).contains(&month) => Err(format!("there is no month {month:02}")),
        None => {
            let last = (28..=31).rev().find(|last| midnight(*last).is_some()).unwrap_or(28);
            Err(format!("there is no day {date:02} in {}, which has {last} days", &day[..7]))
        }
    }
}

fn milliseconds_of_day(clock: &str) -> Result<i64, String> {
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, "0"));
    let seconds = match clock.len() {
        5 if has_shape(clock, "00:00") && fraction == "0" => 0,
        8 if has_shape(clock, "00:00:00") => number(&clock[6..]),
        _ => return Err(format!("the time of day is HH:MM, HH:MM:SS or HH:MM:SS.mmm, not {clock:?}")),
    };
    if !(1..=9).contains(&fraction.len()) || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err("the fraction of a second has 1 to 9 digits".to_owned());
    }
    let (hours, minutes) = (number(&clock[..2]), number(&clock[3..5]));
    match (hours, minutes, seconds) {
        (24.., ..) => {
            return Err(format!("there is no hour {hours}; a day begins at 00:00 and ends before the next 00:00"));
        }
        (_, 60.., _) => return Err(format!("there is no minute {minutes}")),
        (_, _, 60) => return Err("leap seconds are not counted; write 59".to_owned()),
        (_, _, 61..) => return Err(format!("there is no second {seconds}")),
        _ => {}
    }
    let milliseconds = number(&format!("{fraction:0<3}")[..3]);
    Ok(i64::from((hours * 60 + minutes) * 60 + seconds) * 1_000 + i64::from(milliseconds))
}

/// How far a zone is ahead of UTC.
fn offset_ms(zone: &str) -> Result<i64, String> {
    if ["", "z", "utc", "gmt"].contains(&zone.to_ascii_lowercase().as_str()) {
        return Ok(0);
    }
    let bad =
        || format!("the zone {zone:?} is not known; write Z or an offset such as +01:00 (without one, it is UTC)");
    let (sign, offset) = match (zone.strip_prefix('+'), zone.strip_prefix(['-', '\u{2212}'])) {
        (Some(offset), _) => (1, offset),
        (_, Some(offset)) => (-1, offset),
        _ => return Err(bad()),
    };
    let (hours, minutes) = match offset {
        _ if has_shape(offset, "00:00") => (number(&offset[..2]), number(&offset[3..])),
        _ if has_shape(offset, "0000") => (number(&offset[..2]), number(&offset[2..])),
        _ if has_shape(offset, "00") => (number(offset), 0),
        _ => return Err(bad()),
    };
    if hours > 23 || minutes > 59 {
        return Err(bad());
    }
    Ok(sign * i64::from(hours * 60 + minutes) * 60_000)
}

/// What to write instead of a text that does not begin with a date.
fn misshapen(text: &str) -> String {
    if ["today", "yesterday", "tomorrow"].contains(&text.to_ascii_lowercase().as_str()) {
        return format!("when that begins depends on the zone; {FORMS}");
    }
    let day = text.split(['T', 't', ' ']).next().unwrap_or_default();
    let fields: Vec<&str> = day.split(['-', '/', '.']).collect();
    let numbers =
        fields.iter().all(|field| (1..=4).contains(&field.len()) && field.bytes().all(|b| b.is_ascii_digit()));
    match fields[..] {
        [year, month, date] if numbers && year.len() == 4 && month.len() <= 2 && date.len() <= 2 => {
            format!("write {year}-{month:0>2}-{date:0>2}")
        }
        [_, _, year] if numbers && year.len() == 4 => "the year comes first, as in 2026-01-31".to_owned(),
        [_, _, _] if numbers => "a year has four digits and comes first, as in 2026-01-31".to_owned(),
        [year, month] if numbers && year.len() == 4 && month.len() <= 2 => {
            format!("the day is missing; write {year}-{month:0>2}-01")
        }
        _ if parse_duration_ms(text).is_ok() => format!("a time relative to now has a sign, as in -{text}"),
        _ => FORMS.to_owned(),
    }
}

impl FromStr for Time {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::parse(text)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(date) = DateTime::from_timestamp_millis(self.0).filter(|date| (0..=9999).contains(&date.year()))
        else {
            return write!(f, "{}", self.0);
        };
        write!(f, "{:04}-{:02}-{:02}T", date.year(), date.month(), date.day())?;
        write!(f, "{:02}:{:02}:{:02}", date.hour(), date.minute(), date.second())?;
        match self.0.rem_euclid(1_000) {
            0 => f.write_str("Z"),
            milliseconds => write!(f, ".{milliseconds:03}Z"),
        }
    }
}

/// Rounded down to milliseconds. Years that 64 bits of them do not reach become the first or the last that they do.
impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
            Err(before) => {
                let nanoseconds = before.duration().as_nanos();
                Self(i64::try_from(nanoseconds.div_ceil(1_000_000)).map_or(i64::MIN, |millis| -millis))
            }
        }
    }
}

impl TryFrom<Time> for SystemTime {
    type Error = Invalid;

    /// Fails for a time that the clock of this operating system does not reach.
    fn try_from(time: Time) -> Result<Self, Invalid> {
        let distance = Duration::from_millis(time.0.unsigned_abs());
        let found = if time.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        found.ok_or_else(|| Invalid::new(format!("the time {time} is outside of what this operating system knows")))
    }
}

#[cfg(test)]
mod tests;
