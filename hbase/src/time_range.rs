//! Time ranges: clients send one even if they want all times.

use crate::proto::TimeRange;

/// The lowest time and the first one above the range; times that a signed number cannot hold are its end.
#[must_use]
pub fn bounds(range: Option<&TimeRange>) -> (i64, i64) {
    let time = |time: Option<u64>, none: i64| time.map_or(none, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
    range.map_or((0, i64::MAX), |range| (time(range.from, 0), time(range.to, i64::MAX)))
}

/// Whether the range leaves out some times.
#[must_use]
pub fn is_limited(range: Option<&TimeRange>) -> bool {
    bounds(range) != (0, i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_are_no_limit_however_they_are_said() {
        let range = |from, to| TimeRange { from, to };
        for all in [range(None, None), range(Some(0), None), range(Some(0), Some(i64::MAX.cast_unsigned()))] {
            assert!(!is_limited(Some(&all)), "{all:?}");
        }
        assert!(!is_limited(None));
        assert!(is_limited(Some(&range(Some(1), None))) && is_limited(Some(&range(None, Some(5)))));
        assert_eq!(bounds(Some(&range(Some(u64::MAX), Some(7)))), (i64::MAX, 7));
    }
}
