//! The number of a master's leadership, in a header of its orders and of its answers to reports.
//!
//! Later leaderships have higher numbers, also after the catalog was rebuilt. A header rather than a field of each order: one
//! place stamps all of them, and one checks all.

use tonic::metadata::MetadataMap;

/// The header.
const HEADER: &str = "terrane-leadership";

/// Stamps a call or an answer. 0 stands for no leadership.
pub fn stamp(metadata: &mut MetadataMap, number: u64) {
    if number > 0 {
        metadata.insert(HEADER, number.into());
    }
}

/// The number that a call or an answer is stamped with; 0 if it is not, or unreadably.
#[must_use]
pub fn of(metadata: &MetadataMap) -> u64 {
    let number = metadata.get(HEADER).and_then(|number| number.to_str().ok());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_its_absence_is_0() {
        let mut metadata = MetadataMap::new();
        stamp(&mut metadata, 0);
        assert_eq!(of(&metadata), 0);
        stamp(&mut metadata, u64::MAX);
        assert_eq!(of(&metadata), u64::MAX);
        metadata.insert(HEADER, "no number".parse().expect("a value"));
        assert_eq!(of(&metadata), 0);
    }
}
