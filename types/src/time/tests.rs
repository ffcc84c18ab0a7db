//! Golden scripts of dates, and properties. The commands:
//!
//! - `parse TEXT`: milliseconds and date, or the error.
//! - `now TEXT` sets the clock; `relative TEXT` parses by it.
//! - `show MS`: the text of these milliseconds.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn print(time: Result<Time, Invalid>, out: &mut String) {
    match time {
        Ok(time) => writeln!(out, "{} {time}", time.millis()),
        Err(refused) => writeln!(out, "refused: {refused}"),
    }
    .unwrap();
}

#[test]
fn scripts_play_as_recorded() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/time/testdata"), || {
        let mut now = Time::default();
        move |line: &str, out: &mut String| {
            let (command, text) = line.split_once(' ').unwrap_or((line, ""));
            match command {
                "parse" => print(Time::parse(text), out),
                "now" => now = Time::parse(text).unwrap(),
                "relative" => print(Time::parse_at(text, now), out),
                "show" => writeln!(out, "{}", Time::from_millis(text.parse().unwrap())).unwrap(),
                _ => panic!("no such command: {line}"),
            }
        }
    });
}

#[test]
fn times_of_the_system_are_rounded_down() {
    let nanoseconds = Duration::from_nanos(1);
    for millis in [i64::MIN / 1_000, -1, 0, 1, 1_769_817_600_123] {
        let Ok(system) = SystemTime::try_from(Time::from_millis(millis)) else { continue };
        assert_eq!(Time::from(system), Time::from_millis(millis));
        assert_eq!(Time::from(system + nanoseconds), Time::from_millis(millis));
        assert_eq!(Time::from(system - nanoseconds), Time::from_millis(millis - 1));
    }
}

proptest! {
    #[test]
    fn what_is_shown_is_read_back(millis in prop_oneof![any::<i64>(), -99_999_999_999_999..253_402_300_800_001i64]) {
        let time = Time::from_millis(millis);
        prop_assert_eq!(Time::parse(&time.to_string()), Ok(time));
        prop_assert_eq!(Time::parse_at(&time.to_string(), Time::default()), Ok(time));
    }

    #[test]
    fn dates_sort_as_their_times(one in 0..253_402_300_800_000i64, other in 0..253_402_300_800_000i64) {
        let (one, other) = (one - one % 1_000, other - other % 1_000);
        let text = |millis: i64| Time::from_millis(millis).to_string();
        prop_assert_eq!(text(one).cmp(&text(other)), one.cmp(&other));
    }

    #[test]
    fn a_day_has_its_date(days in -700_000..2_900_000i64, within in 0..86_400_000i64) {
        let midnight = Time::from_millis(days * 86_400_000);
        let (year, month, day) = Time::from_millis(midnight.millis() + within).date().unwrap();
        prop_assert_eq!(Time::from_date(year, month, day), Some(midnight));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9nowTZ:+. /-]{0,28}|.{0,20}") {
        let _ = Time::parse(&text);
        let _ = Time::parse_at(&text, Time::from_millis(i64::MAX));
    }
}
