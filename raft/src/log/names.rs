//! The names of the log's files.
//!
//! A segment is `00000001.log`, a held file `00000001.held` (`.held.new` while it is being written), and the segment that is
//! allocated ahead is `spare`.

use super::place::HELD;

/// The name of the segment that is allocated ahead.
pub(super) const SPARE: &str = "spare";

const SEGMENT: &str = ".log";
const HELD_FILE: &str = ".held";
const UNFINISHED: &str = ".held.new";

/// The name of the file `number`. Numbers have a fixed width, so that names sort like numbers.
pub(super) fn file_name(number: u64) -> String {
    let ending = if number & HELD == 0 { SEGMENT } else { HELD_FILE };
    format!("{:08}{ending}", number & !HELD)
}

/// The name of a held file that is not complete yet.
pub(super) fn unfinished(number: u64) -> String {
    format!("{:08}{UNFINISHED}", number & !HELD)
}

/// The number of the segment called `name`; `None` for names that are not a segment's.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(SEGMENT)?.parse::<u64>().ok()?;
    (file_name(number) == name).then_some(number)
}

/// The number of the held file called `name`, marked by [`HELD`].
pub(super) fn held_number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(HELD_FILE)?.parse::<u64>().ok()? | HELD;
    (file_name(number) == name).then_some(number)
}

/// Whether a crash left this file behind before it was complete.
pub(super) fn is_unfinished(name: &str) -> bool {
    name.ends_with(UNFINISHED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_come_back_and_other_names_are_not_segments() {
        for n in [0, 1, 99_999_999, 100_000_000] {
            assert_eq!(segment_number(&file_name(n)), Some(n));
        }
        for other in ["1.log", "x.log", "00000001.tmp", "+0000001.log", ""] {
            assert_eq!(segment_number(other), None);
        }
    }

    #[test]
    fn held_names_come_back_and_other_names_are_not_held_files() {
        assert_eq!(held_number(&file_name(HELD | 7)), Some(HELD | 7));
        assert_eq!(file_name(HELD | 7), "00000007.held");
        for other in ["00000007.log", "7.held", "00000007.held.new"] {
            assert_eq!(held_number(other), None);
        }
        assert!(is_unfinished(&unfinished(HELD | 7)));
    }
}
