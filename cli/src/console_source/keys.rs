//! Row keys as the console shows and takes them.

use terrane_console::source::{Bound, Failure, Key};
use terrane_types::health::sentence;
use terrane_types::{Invalid, KeyDeclaration, KeyRange, escape, unescape};

use crate::args::values::now;

/// A key or a bound, by its parts as far as it has them.
pub(super) fn shown(key: Option<&KeyDeclaration>, bytes: &[u8]) -> Key {
    let Some(key) = key.filter(|_| !bytes.is_empty()) else { return Key::of_bytes(bytes) };
    let text = key.shown(bytes);
    if text == escape(bytes) { Key::of_bytes(bytes) } else { Key::decoded(bytes, text) }
}

/// The bytes of a start bound, without a bucket.
pub(super) fn start(key: Option<&KeyDeclaration>, bound: &Bound) -> Result<Vec<u8>, Failure> {
    match (bound, key) {
        (Bound::Bytes(bytes), _) => Ok(bytes.clone()),
        (Bound::Typed(text), Some(key)) => {
            let bound = key.with_times_from(text, now()).and_then(|line| key.parse_bound_line(&line));
            bound.map_err(|bad| bad_key(text, Some(key), &bad))
        }
        (Bound::Typed(text), None) => unescape(text).map_err(|bad| bad_key(text, None, &bad)),
    }
}

/// The ranges of a prefix: one, or one per bucket.
pub(super) fn prefix(key: Option<&KeyDeclaration>, bound: &Bound) -> Result<Vec<KeyRange>, Failure> {
    match (bound, key) {
        (Bound::Typed(text), Some(key)) => {
            let ranges = key.with_times_from(text, now()).and_then(|line| key.parse_prefix_line(&line));
            ranges.map_err(|bad| bad_key(text, Some(key), &bad))
        }
        (bound, key) => Ok(vec![KeyRange::prefix(&start(key, bound)?)]),
    }
}

fn bad_key(text: &str, key: Option<&KeyDeclaration>, bad: &Invalid) -> Failure {
    let next = match key {
        Some(key) => format!("The table's key is `{key}`; give its leading parts, separated by commas."),
        None => r"Write bytes that are not printable as \xHH and a backslash as \\.".to_owned(),
    };
    Failure::bad_input(format!("The key {text:?} is wrong: {}", sentence(&bad.to_string())), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_show_the_parts_that_they_have() {
        let key = KeyDeclaration::parse("user:u64, time:desc i64").unwrap();
        let row = key.encode(&["7", "1000"]).unwrap();
        assert_eq!(shown(Some(&key), &row).text, "user=7,time=1000");
        assert_eq!(shown(Some(&key), &row[..8]).text, "user=7");
        assert_eq!(shown(Some(&key), &row[..9]).text, r"user=7,\x7F");
        assert_eq!(shown(Some(&key), b"abc").text, "abc");
        assert_eq!(shown(Some(&key), b"").text, "");
        assert_eq!(shown(None, b"a\xff").text, r"a\xFF");
    }

    #[test]
    fn times_are_dates() {
        let key = KeyDeclaration::parse("user:u64, time:desc time").unwrap();
        let bound = |text: &str| start(Some(&key), &Bound::Typed(text.to_owned()));
        let row = bound("user=7,time=2026-01-31T12:00").unwrap();
        assert_eq!(row, bound("7,1769860800000").unwrap());
        assert_eq!(shown(Some(&key), &row).text, "user=7,time=2026-01-31T12:00:00Z");
        assert!(bound("7,now").unwrap() < bound("7,-1h").unwrap(), "greater times come first");
        assert!(bound("7,2026-13-01").unwrap_err().to_string().contains("there is no month 13"));
    }

    #[test]
    fn a_bad_key_says_what_the_key_is() {
        let key = KeyDeclaration::parse("user:u64, time:desc i64").unwrap();
        let failure = start(Some(&key), &Bound::Typed("user=x".to_owned())).unwrap_err();
        assert!(failure.next.contains("user:u64"), "{failure}");
        assert_eq!(prefix(Some(&key), &Bound::Typed("7".to_owned())).unwrap().len(), 1);
        assert!(prefix(None, &Bound::Typed(r"\q".to_owned())).is_err());
    }
}
