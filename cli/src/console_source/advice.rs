//! What to do about a hot range: a pure function of how the load of a table is spread over its ranges and over time.
//!
//! A range is worth advice if it has more than a quarter of the table's load and the load is real. Then:
//! - if the hottest range moves along the keys, is always the last one, or its leader sees new rows beyond the older ones, new
//!   rows are neighbours: splitting does not help, because the next rows go to one region again. Rows are spread by a bucket first
//!   in the key; a first part of text, whose values grow at their end, can be stored in reverse instead;
//! - if it stays where it is and its region can be split, split it, at the key where the sampled load is halved if that is known;
//! - if one row has most of the load, only the application can spread it. The row is named by itself ([`advise_row`]).

use terrane_console::source::{Advice, AdviceKind, LoadMeasure};
use terrane_types::KeyDeclaration;
use terrane_types::keycodec::PartType;

/// A range with less of the table's load needs nothing.
const SHARE_MIN: f64 = 0.25;
/// A range with less load needs nothing, whatever its share: rows, or bytes, per second.
const ROWS_MIN: f64 = 100.0;
const BYTES_MIN: f64 = 1_048_576.0;
/// A single row with less of the table's load needs nothing.
const ROW_SHARE_MIN: f64 = 0.1;
/// The hottest range moves if it was at so many places, one after another.
const PLACES_MIN: usize = 3;

/// The load of a range in each column of a map.
pub(super) struct RangeLoad<'a> {
    pub counts: &'a [u64],
}

/// Where a region's load is halved.
pub(super) struct SplitAt {
    /// The flags of `admin split` that name it.
    pub flags: String,
    pub heavier_percent: u32,
}

/// A hot range in its table.
pub(super) struct Situation<'a> {
    pub table: &'a str,
    pub measure: LoadMeasure,
    pub key: Option<&'a KeyDeclaration>,
    /// All ranges of the map, in the order of the keys.
    pub ranges: &'a [RangeLoad<'a>],
    /// Which of them is hot.
    pub at: usize,
    /// Its share of the table's load, from 0 to 1.
    pub share: f64,
    pub per_second: f64,
    pub region: Option<u64>,
    /// Whether the server says that its region can be split.
    pub splittable: bool,
    /// Where its load is halved, if its leader knows.
    pub split: Option<SplitAt>,
    /// Whether its leader knows that one row has too much of the load for any split.
    pub is_one_row: bool,
    /// Whether its leader sees that new rows lie beyond the older ones.
    pub grows: bool,
    /// The command that creates a table like this one whose key begins with a bucket.
    pub salted: Option<String>,
}

/// What to do; `None`: nothing.
pub(super) fn advise(of: &Situation<'_>) -> Option<Advice> {
    let floor = if of.measure == LoadMeasure::Bytes { BYTES_MIN } else { ROWS_MIN };
    if of.share <= SHARE_MIN || of.per_second < floor {
        return None;
    }
    let percent = (of.share * 100.0).round();
    if of.measure != LoadMeasure::Reads && (of.grows || moves(of.ranges) || is_at_the_growing_end(of)) {
        return Some(spread(of, percent));
    }
    let region = of.region.filter(|_| of.splittable && !of.is_one_row)?;
    let what = format!("{percent} % of the load of {} is in this range, and it stays there.", of.table);
    let (text, command) = match &of.split {
        Some(split) => (
            format!(
                "{what} Split region {region} where its load is halved, so that two servers share it; the heavier side keeps {} %.",
                split.heavier_percent
            ),
            format!("terrane admin split {region} {}", split.flags),
        ),
        None => (
            format!(
                "{what} Split region {region}, so that two servers share it; without a key the split is near the middle of its \
                 bytes."
            ),
            format!("terrane admin split {region}"),
        ),
    };
    Some(Advice { kind: AdviceKind::Split, text, command: Some(command) })
}

/// What to do about a single row with this share of the table's load; `None`: nothing.
pub(super) fn advise_row(table: &str, row: &str, is_write: bool, share: f64, per_second: f64) -> Option<Advice> {
    if share <= ROW_SHARE_MIN || per_second < ROWS_MIN {
        return None;
    }
    let percent = (share * 100.0).round();
    let (what, next) = match is_write {
        true => ("writes", "Write it less often, or under several keys that are read together."),
        false => ("reads", "Cache it in the application."),
    };
    let text =
        format!("{percent} % of the {what} of {table} are of the row {row}, and no split spreads one row. {next}");
    Some(Advice { kind: AdviceKind::SpreadKey, text, command: None })
}

/// Whether the hottest range goes through at least a few places in one direction.
fn moves(ranges: &[RangeLoad<'_>]) -> bool {
    let columns = ranges.iter().map(|range| range.counts.len()).max().unwrap_or(0);
    let hottest = (0..columns).filter_map(|column| {
        let count = |at: &usize| ranges[*at].counts.get(column).copied().unwrap_or(0);
        (0..ranges.len()).max_by_key(|at| (count(at), *at)).filter(|at| count(at) > 0)
    });
    let mut places: Vec<usize> = hottest.collect();
    places.dedup();
    places.len() >= PLACES_MIN && (places.is_sorted() || places.iter().rev().is_sorted())
}

/// Whether the range is where rows go that are written one after another: the end of a table whose first part counts up or is a
/// time, or the start if that part is in descending order.
fn is_at_the_growing_end(of: &Situation<'_>) -> bool {
    let counts =
        |part: PartType| matches!(part, PartType::U32 | PartType::U64 | PartType::I32 | PartType::I64 | PartType::F64);
    let first = of.key.and_then(|key| key.parts().first());
    let Some(first) = first.filter(|part| counts(part.kind.part)) else { return false };
    let end = if first.kind.desc { 0 } else { of.ranges.len() - 1 };
    of.ranges.len() > 1 && of.at == end
}

fn spread(of: &Situation<'_>, percent: f64) -> Advice {
    let (table, command) = (of.table, of.salted.clone());
    let what = format!(
        "{percent} % of the load of {table} goes to one range, and the key grows: new rows lie beyond the older ones"
    );
    let first = of.key.and_then(|key| key.parts().first());
    match (first, of.key) {
        (Some(first), Some(_)) if first.kind.is_bucket() => Advice {
            kind: AdviceKind::AddBuckets,
            text: format!(
                "{what}, although they begin with {}. Use more buckets: create a table with more, and copy the rows.",
                first.kind
            ),
            command: None,
        },
        (Some(first), Some(_)) if matches!(first.kind.part, PartType::Text | PartType::Bytes) => Advice {
            kind: AdviceKind::ReversePart,
            text: format!(
                "{what}: new values of {} follow each other. Store {} in reverse, so that its end, which differs, comes first; or put \
                 a bucket before it. Either is a new table with the rows copied.",
                first.name, first.name
            ),
            command,
        },
        (Some(first), Some(_)) => Advice {
            kind: AdviceKind::AddBuckets,
            text: format!(
                "{what}: rows that are written at one time have neighbouring values of {}, and a split does not change that. Put a \
                 bucket first, in a new table, and copy the rows.",
                first.name
            ),
            command,
        },
        _ => Advice {
            kind: AdviceKind::AddBuckets,
            text: format!(
                "{what}: rows that are written at one time are neighbours, and a split does not change that. Put a hash of the key \
                 before it, or declare a key with a bucket, in a new table, and copy the rows."
            ),
            command,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(
        counts: &[&[u64]],
        at: usize,
        key: Option<&str>,
        change: impl Fn(&mut Situation<'_>),
    ) -> Option<AdviceKind> {
        let ranges: Vec<RangeLoad<'_>> = counts.iter().map(|counts| RangeLoad { counts }).collect();
        let key = key.map(|key| KeyDeclaration::parse(key).unwrap());
        let mut situation = Situation {
            table: "t",
            measure: LoadMeasure::Writes,
            key: key.as_ref(),
            ranges: &ranges,
            at,
            share: 0.9,
            per_second: 5_000.0,
            region: Some(7),
            splittable: true,
            split: None,
            is_one_row: false,
            grows: false,
            salted: Some("terrane table create t_salted".to_owned()),
        };
        change(&mut situation);
        advise(&situation).map(|advice| advice.kind)
    }

    const STAYS: &[&[u64]] = &[&[1, 1, 1], &[90, 80, 90], &[2, 2, 2]];
    const MOVES: &[&[u64]] = &[&[90, 1, 1], &[2, 80, 2], &[1, 2, 90]];

    #[test]
    fn a_hot_range_that_stays_is_split() {
        assert_eq!(advice(STAYS, 1, None, |_| {}), Some(AdviceKind::Split));
        assert_eq!(advice(STAYS, 1, Some("user:u64"), |_| {}), Some(AdviceKind::Split));
        assert_eq!(advice(&[&[5]], 0, None, |_| {}), Some(AdviceKind::Split));
    }

    #[test]
    fn a_range_whose_load_no_split_spreads_is_not_split() {
        assert_eq!(advice(STAYS, 1, None, |of| of.splittable = false), None);
        assert_eq!(advice(STAYS, 1, None, |of| of.is_one_row = true), None);
    }

    #[test]
    fn the_command_names_the_key_where_the_load_is_halved() {
        let ranges = [RangeLoad { counts: &[90] }];
        let situation = Situation {
            table: "t",
            measure: LoadMeasure::Writes,
            key: None,
            ranges: &ranges,
            at: 0,
            share: 0.9,
            per_second: 5_000.0,
            region: Some(7),
            splittable: true,
            split: Some(SplitAt { flags: "--at user=5".to_owned(), heavier_percent: 52 }),
            is_one_row: false,
            grows: false,
            salted: None,
        };
        let advice = advise(&situation).unwrap();
        assert_eq!(advice.command.as_deref(), Some("terrane admin split 7 --at user=5"));
        assert!(advice.text.contains("52 %"), "{}", advice.text);
    }

    #[test]
    fn one_hot_row_is_for_the_application() {
        let advice = advise_row("t", "user=7", true, 0.5, 200.0).unwrap();
        assert_eq!((advice.kind, advice.command), (AdviceKind::SpreadKey, None));
        assert!(advice.text.starts_with("50 % of the writes of t are of the row user=7"), "{}", advice.text);
        assert!(advise_row("t", "user=7", false, 0.5, 200.0).unwrap().text.contains("Cache it"));
        assert_eq!(advise_row("t", "user=7", false, 0.1, 200.0), None);
        assert_eq!(advise_row("t", "user=7", false, 0.5, 99.0), None);
    }

    #[test]
    fn a_small_share_or_a_small_load_needs_nothing() {
        assert_eq!(advice(STAYS, 1, None, |of| of.share = 0.25), None);
        assert_eq!(advice(STAYS, 1, None, |of| of.per_second = 99.0), None);
        assert_eq!(advice(STAYS, 1, None, |of| of.measure = LoadMeasure::Bytes), None);
        assert_eq!(advice(STAYS, 1, None, |of| of.region = None), None);
    }

    #[test]
    fn a_range_that_moves_along_the_keys_is_spread_by_the_key() {
        assert_eq!(advice(MOVES, 2, Some("time:i64, host:text"), |_| {}), Some(AdviceKind::AddBuckets));
        assert_eq!(advice(MOVES, 2, Some("bucket4, time:i64"), |_| {}), Some(AdviceKind::AddBuckets));
        assert_eq!(advice(MOVES, 2, Some("name:text"), |_| {}), Some(AdviceKind::ReversePart));
        assert_eq!(advice(MOVES, 2, None, |_| {}), Some(AdviceKind::AddBuckets));
        let back: Vec<&[u64]> = MOVES.iter().rev().copied().collect();
        assert_eq!(advice(&back, 0, Some("time:desc i64"), |_| {}), Some(AdviceKind::AddBuckets));
    }

    #[test]
    fn a_growing_key_is_never_split_and_the_advice_names_the_command() {
        // One region, whose leader sees that the keys grow: where its load was halved, no new row will be.
        let grows = |of: &mut Situation<'_>| {
            of.grows = true;
            of.split = Some(SplitAt { flags: "--at user=5".to_owned(), heavier_percent: 50 });
        };
        for (key, kind) in [
            (Some("time:i64"), AdviceKind::AddBuckets),
            (Some("time:desc i64"), AdviceKind::AddBuckets),
            (Some("name:text"), AdviceKind::ReversePart),
            (None, AdviceKind::AddBuckets),
        ] {
            assert_eq!(advice(&[&[5, 5]], 0, key, grows), Some(kind));
        }
        assert_eq!(
            advice(&[&[5, 5]], 0, Some("time:i64"), |of| {
                grows(of);
                of.measure = LoadMeasure::Reads;
            }),
            Some(AdviceKind::Split),
            "reads can be divided"
        );
        let ranges = [RangeLoad { counts: &[90] }];
        let situation = Situation {
            table: "t",
            measure: LoadMeasure::Writes,
            key: None,
            ranges: &ranges,
            at: 0,
            share: 0.9,
            per_second: 5_000.0,
            region: Some(7),
            splittable: true,
            split: None,
            is_one_row: false,
            grows: true,
            salted: Some("terrane table create t_salted".to_owned()),
        };
        let advice = advise(&situation).unwrap();
        assert_eq!(advice.command, situation.salted);
        assert!(advice.text.contains("the key grows"), "{}", advice.text);
    }

    #[test]
    fn the_first_range_of_a_descending_key_grows_at_its_start() {
        let first: &[&[u64]] = &[&[90, 90], &[1, 1]];
        assert_eq!(advice(first, 0, Some("time:desc i64"), |_| {}), Some(AdviceKind::AddBuckets));
        assert_eq!(advice(first, 0, Some("time:i64"), |_| {}), Some(AdviceKind::Split));
    }

    #[test]
    fn the_last_range_of_a_counting_key_grows_at_its_end() {
        let last: &[&[u64]] = &[&[1, 1], &[90, 90]];
        assert_eq!(advice(last, 1, Some("time:i64"), |_| {}), Some(AdviceKind::AddBuckets));
        assert_eq!(advice(last, 1, Some("name:text"), |_| {}), Some(AdviceKind::Split));
        assert_eq!(advice(last, 1, Some("time:i64"), |of| of.measure = LoadMeasure::Reads), Some(AdviceKind::Split));
    }
}
