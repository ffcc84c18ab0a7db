//! Filters and comparators from their messages, within limits.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;
use prost::Message;
use terrane_types::Invalid;

use super::CellFilter;
use super::column_values::{Column, ColumnValue, DependentColumn, SingleColumnValue};
use super::columns::{
    ColumnCount, ColumnPagination, ColumnPrefixes, ColumnRange, Compare, FirstKey, KeyOnly, Part, Timestamps,
};
use super::compare::{Bitwise, Comparator, Operator, Test};
use super::decimal::Decimal;
use super::list::{All, One};
use super::pattern::Pattern;
use super::row_sets::{Fuzzy, FuzzyKey, RowRanges, Rows};
use super::rows::{InclusiveStop, Nothing, Page, Prefix, RandomRow, Row, Skip, WhileMatch, Wrapper};
use crate::limits::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX, FILTER_ENTRIES_MAX, FILTERS_MAX, PATTERNS_MAX};
use crate::proto;

/// The package of HBase's own filters and comparators.
const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// Reads a filter, and whether it has a regular expression whose time is not linear.
pub(super) fn decode(filter: &proto::Filter) -> Result<(Box<dyn CellFilter>, bool), Invalid> {
    let bytes = filter.encoded_len();
    if bytes > FILTER_BYTES_MAX {
        return Err(Invalid::new(format!("the filter has {bytes} bytes; the limit is {FILTER_BYTES_MAX}")));
    }
    let mut decoder = Decoder::default();
    let filter = decoder.filter(filter, 0)?;
    Ok((filter, decoder.backtracks))
}

/// Reads a comparator by itself, and whether what it was given has no bytes.
pub(super) fn comparator(given: &proto::Comparator) -> Result<(Comparator, bool), Invalid> {
    let bytes = given.encoded_len();
    if bytes > FILTER_BYTES_MAX {
        return Err(Invalid::new(format!("the comparator has {bytes} bytes; the limit is {FILTER_BYTES_MAX}")));
    }
    let comparator = Decoder::default().comparator(given)?;
    let is_empty = match &comparator {
        Comparator::Null => true,
        Comparator::Binary(given)
        | Comparator::BinaryPrefix(given)
        | Comparator::Component(given, _)
        | Comparator::Bit(given, _) => given.is_empty(),
        Comparator::Substring(given) => given.is_empty(),
        Comparator::Pattern(_) => {
            let bytes = given.serialized_comparator.as_ref();
            message::<proto::RegexStringComparator>("RegexStringComparator", bytes)?.pattern.is_empty()
        }
        Comparator::Long(_) | Comparator::Decimal(_) => false,
    };
    Ok((comparator, is_empty))
}

/// Counts what a filter holds.
#[derive(Default)]
struct Decoder {
    filters: usize,
    entries: usize,
    patterns: usize,
    /// A regular expression goes back.
    backtracks: bool,
}

/// The name of a class of HBase's filters, without the package.
fn short_name(class: &str) -> Result<&str, Invalid> {
    let unknown = || Invalid::new(format!("class {class} is unknown here; filters and comparators are those of HBase"));
    class.strip_prefix(PACKAGE).ok_or_else(unknown)
}

/// The message in some bytes.
fn message<M: Message + Default>(name: &str, bytes: Option<&Bytes>) -> Result<M, Invalid> {
    M::decode(bytes.cloned().unwrap_or_default())
        .map_err(|malformed| Invalid::new(format!("the message of a {name} is malformed: {malformed}")))
}

impl Decoder {
    /// Adds to a count that has a limit.
    fn count(count: &mut usize, more: usize, limit: usize, what: &str) -> Result<(), Invalid> {
        *count += more;
        if *count > limit {
            return Err(Invalid::new(format!("the filter has more than {limit} {what}")));
        }
        Ok(())
    }

    fn entries(&mut self, more: usize) -> Result<(), Invalid> {
        Self::count(&mut self.entries, more, FILTER_ENTRIES_MAX, "ranges, keys, prefixes, qualifiers and timestamps")
    }

    fn filter(&mut self, filter: &proto::Filter, depth: usize) -> Result<Box<dyn CellFilter>, Invalid> {
        if depth >= FILTER_DEPTH_MAX {
            return Err(Invalid::new(format!("the filter is nested deeper than {FILTER_DEPTH_MAX}")));
        }
        Self::count(&mut self.filters, 1, FILTERS_MAX, "filters")?;
        let name = short_name(&filter.name)?;
        let bytes = filter.serialized_filter.as_ref();
        Ok(match name {
            "FilterList" => self.list(&message(name, bytes)?, depth)?,
            "WhileMatchFilter" => {
                Box::new(WhileMatch { inner: self.wrapped(&message(name, bytes)?, depth)?, over: false })
            }
            "SkipFilter" => Box::new(Skip { inner: self.wrapped(&message(name, bytes)?, depth)?, drops: false }),
            "FilterWrapper" => Box::new(Wrapper { inner: self.wrapped(&message(name, bytes)?, depth)? }),
            "FilterAllFilter" => Box::new(Nothing),
            "PageFilter" => {
                let page: proto::PageFilter = message(name, bytes)?;
                if page.page_size < 0 {
                    return Err(Invalid::new(format!("a PageFilter has the size {}; name at least 0", page.page_size)));
                }
                Box::new(Page { size: page.page_size, passed: 0 })
            }
            "PrefixFilter" => {
                let prefix: proto::PrefixFilter = message(name, bytes)?;
                Box::new(Prefix { prefix: prefix.prefix, reverse: false, passed: false, skips: true })
            }
            "InclusiveStopFilter" => {
                let stop: proto::InclusiveStopFilter = message(name, bytes)?;
                let missing = || Invalid::new("an InclusiveStopFilter names no row");
                let last = stop.stop_row_key.ok_or_else(missing)?;
                Box::new(InclusiveStop { last, reverse: false, passed: false })
            }
            "RandomRowFilter" => {
                let random: proto::RandomRowFilter = message(name, bytes)?;
                Box::new(RandomRow { chance: random.chance, skips: false })
            }
            "RowFilter" => {
                let comparing: proto::ComparingFilter = message(name, bytes)?;
                Box::new(Row { test: self.test(name, &comparing.compare_filter)?, skips: false })
            }
            "FuzzyRowFilter" => self.fuzzy(message(name, bytes)?)?,
            "MultiRowRangeFilter" => self.row_ranges(message(name, bytes)?)?,
            "SingleColumnValueFilter" => Box::new(self.single_column_value(name, message(name, bytes)?, false)?),
            "SingleColumnValueExcludeFilter" => {
                let excluding: proto::SingleColumnValueExcludeFilter = message(name, bytes)?;
                Box::new(self.single_column_value(name, excluding.single_column_value_filter, true)?)
            }
            "ColumnValueFilter" => {
                let given: proto::ColumnValueFilter = message(name, bytes)?;
                let test = self.compared(name, given.compare_op(), Some(&given.comparator))?;
                let column = Column { family: given.family, qualifier: given.qualifier };
                Box::new(ColumnValue { column, test, found: false })
            }
            "DependentColumnFilter" => self.dependent_column(name, message(name, bytes)?)?,
            _ => self.of_columns(name, bytes)?,
        })
    }

    fn of_columns(&mut self, name: &str, bytes: Option<&Bytes>) -> Result<Box<dyn CellFilter>, Invalid> {
        let part = match name {
            "FamilyFilter" => Some(Part::Family),
            "QualifierFilter" => Some(Part::Qualifier),
            "ValueFilter" => Some(Part::Value),
            _ => None,
        };
        if let Some(part) = part {
            let comparing: proto::ComparingFilter = message(name, bytes)?;
            return Ok(Box::new(Compare { part, test: self.test(name, &comparing.compare_filter)? }));
        }
        Ok(match name {
            "KeyOnlyFilter" => {
                let keys: proto::KeyOnlyFilter = message(name, bytes)?;
                Box::new(KeyOnly { lengths: keys.len_as_val })
            }
            "FirstKeyOnlyFilter" => Box::new(FirstKey { qualifiers: None, found: false }),
            "FirstKeyValueMatchingQualifiersFilter" => {
                let first: proto::FirstKeyValueMatchingQualifiersFilter = message(name, bytes)?;
                self.entries(first.qualifiers.len())?;
                Box::new(FirstKey { qualifiers: Some(first.qualifiers.into_iter().collect()), found: false })
            }
            "ColumnPrefixFilter" => {
                let prefix: proto::ColumnPrefixFilter = message(name, bytes)?;
                Box::new(ColumnPrefixes { prefixes: vec![prefix.prefix], next: None })
            }
            "MultipleColumnPrefixFilter" => {
                let mut prefixes: Vec<Bytes> =
                    message::<proto::MultipleColumnPrefixFilter>(name, bytes)?.sorted_prefixes;
                self.entries(prefixes.len())?;
                prefixes.sort();
                if prefixes.windows(2).any(|pair| pair[0] == pair[1]) {
                    return Err(Invalid::new("a MultipleColumnPrefixFilter names a prefix twice"));
                }
                Box::new(ColumnPrefixes { prefixes, next: None })
            }
            "ColumnRangeFilter" => {
                let range: proto::ColumnRangeFilter = message(name, bytes)?;
                Box::new(ColumnRange {
                    least_inclusive: range.min_column_inclusive(),
                    greatest_inclusive: range.max_column_inclusive(),
                    least: range.min_column,
                    greatest: range.max_column,
                })
            }
            "ColumnCountGetFilter" => {
                let count: proto::ColumnCountGetFilter = message(name, bytes)?;
                not_negative(name, count.limit)?;
                Box::new(ColumnCount { limit: count.limit, seen: 0 })
            }
            "ColumnPaginationFilter" => {
                let page: proto::ColumnPaginationFilter = message(name, bytes)?;
                let (limit, offset) = (not_negative(name, page.limit)?, not_negative(name, page.offset())?);
                Box::new(ColumnPagination { limit, offset, from: page.column_offset, seen: 0 })
            }
            "TimestampsFilter" => {
                let times: proto::TimestampsFilter = message(name, bytes)?;
                self.entries(times.timestamps.len())?;
                if let Some(negative) = times.timestamps.iter().find(|time| **time < 0) {
                    return Err(Invalid::new(format!("a TimestampsFilter names the time {negative}")));
                }
                let hints = times.can_hint();
                Box::new(Timestamps { times: times.timestamps.into_iter().collect::<BTreeSet<_>>(), hints })
            }
            _ => {
                return Err(Invalid::new(format!(
                    "filter {PACKAGE}{name} is unknown here; filters are those of HBase 2.6"
                )));
            }
        })
    }

    fn wrapped(&mut self, wrapping: &proto::WrappingFilter, depth: usize) -> Result<Box<dyn CellFilter>, Invalid> {
        self.filter(&wrapping.filter, depth + 1)
    }

    fn list(&mut self, list: &proto::FilterList, depth: usize) -> Result<Box<dyn CellFilter>, Invalid> {
        let mut filters = Vec::with_capacity(list.filters.len().min(FILTERS_MAX));
        for filter in &list.filters {
            filters.push(self.filter(filter, depth + 1)?);
        }
        Ok(match list.operator() {
            proto::filter_list::Operator::MustPassAll => Box::new(All { filters, hinting: None, reverse: false }),
            proto::filter_list::Operator::MustPassOne => Box::new(One::new(filters)),
        })
    }

    fn single_column_value(
        &mut self,
        name: &str,
        given: proto::SingleColumnValueFilter,
        excludes: bool,
    ) -> Result<SingleColumnValue, Invalid> {
        if given.compare_op() == proto::CompareType::NoOp {
            return Err(Invalid::new(format!("a {name} compares with NO_OP")));
        }
        let test = self.compared(name, given.compare_op(), Some(&given.comparator))?;
        Ok(SingleColumnValue {
            test,
            drop_missing: given.filter_if_missing(),
            newest_only: given.latest_version_only(),
            excludes,
            found: false,
            matched: false,
            column: Column {
                family: given.column_family.unwrap_or_default(),
                qualifier: given.column_qualifier.unwrap_or_default(),
            },
        })
    }

    fn dependent_column(
        &mut self,
        name: &str,
        given: proto::DependentColumnFilter,
    ) -> Result<Box<dyn CellFilter>, Invalid> {
        let test = match &given.compare_filter.comparator {
            Some(_) => Some(self.test(name, &given.compare_filter)?),
            None => None,
        };
        Ok(Box::new(DependentColumn {
            test,
            excludes: given.drop_dependent_column(),
            times: HashSet::new(),
            column: Column {
                family: given.column_family.unwrap_or_default(),
                qualifier: given.column_qualifier.unwrap_or_default(),
            },
        }))
    }

    fn fuzzy(&mut self, given: proto::FuzzyRowFilter) -> Result<Box<dyn CellFilter>, Invalid> {
        self.entries(given.fuzzy_keys_data.len())?;
        if given.fuzzy_keys_data.is_empty() {
            return Err(Invalid::new("a FuzzyRowFilter has no key"));
        }
        let mut keys = Vec::with_capacity(given.fuzzy_keys_data.len());
        for pair in given.fuzzy_keys_data {
            let (key, mask) = (pair.first, pair.second);
            if key.len() != mask.len() {
                return Err(Invalid::new("a key of a FuzzyRowFilter and its mask differ in length"));
            }
            // Clients send the mask as it was given, with 1 for an open byte, or as they evaluate it, with 2 for one.
            let as_evaluated = mask.iter().any(|&byte| byte == 0xFF || byte == 2);
            let is_open = |byte: u8| if as_evaluated { byte != 0xFF } else { byte != 0 };
            let bytes = key.iter().zip(&mask).map(|(byte, mask)| (!is_open(*mask)).then_some(*byte)).collect();
            keys.push(FuzzyKey { bytes });
        }
        Ok(Box::new(Fuzzy { keys, reverse: false, drops: false, over: false }))
    }

    fn row_ranges(&mut self, given: proto::MultiRowRangeFilter) -> Result<Box<dyn CellFilter>, Invalid> {
        self.entries(given.row_range_list.len())?;
        if given.row_range_list.is_empty() {
            return Err(Invalid::new("a MultiRowRangeFilter has no range"));
        }
        let behind = |row: &Bytes| Bytes::from([&row[..], &[0]].concat());
        let mut ranges = Vec::with_capacity(given.row_range_list.len());
        for range in given.row_range_list {
            let (include_start, include_stop) = (range.start_row_inclusive(), range.stop_row_inclusive());
            let (start, stop) = (range.start_row.unwrap_or_default(), range.stop_row.unwrap_or_default());
            let is_reversed =
                !start.is_empty() && !stop.is_empty() && (stop < start || (stop == start && !include_stop));
            if is_reversed {
                return Err(Invalid::new(format!(
                    "a range of a MultiRowRangeFilter begins at {} and ends at {}",
                    terrane_types::escape(&start),
                    terrane_types::escape(&stop)
                )));
            }
            let start = if include_start || start.is_empty() { start } else { behind(&start) };
            let end = if include_stop && !stop.is_empty() { behind(&stop) } else { stop };
            ranges.push(Rows { start, end });
        }
        Ok(Box::new(RowRanges::new(ranges)))
    }

    fn test(&mut self, name: &str, given: &proto::CompareFilter) -> Result<Test, Invalid> {
        self.compared(name, given.compare_op(), given.comparator.as_ref())
    }

    fn compared(
        &mut self,
        name: &str,
        operator: proto::CompareType,
        comparator: Option<&proto::Comparator>,
    ) -> Result<Test, Invalid> {
        let operator = Operator::of(operator);
        let comparator = comparator.map(|comparator| self.comparator(comparator)).transpose()?;
        if comparator.is_none() && operator != Operator::Nothing {
            return Err(Invalid::new(format!("a {name} has no comparator")));
        }
        Ok(Test { operator, comparator })
    }

    fn comparator(&mut self, comparator: &proto::Comparator) -> Result<Comparator, Invalid> {
        let name = short_name(&comparator.name)?;
        let bytes = comparator.serialized_comparator.as_ref();
        let value = || {
            let comparable: proto::BinaryComparator = message(name, bytes)?;
            Ok::<Bytes, Invalid>(comparable.comparable.value.unwrap_or_default())
        };
        Ok(match name {
            "BinaryComparator" => Comparator::Binary(value()?),
            "BinaryPrefixComparator" => Comparator::BinaryPrefix(value()?),
            "NullComparator" => Comparator::Null,
            "LongComparator" => {
                let value = value()?;
                let number = <[u8; 8]>::try_from(&value[..]);
                let wrong = |_| Invalid::new(format!("a LongComparator has {} bytes; a number has 8", value.len()));
                Comparator::Long(i64::from_be_bytes(number.map_err(wrong)?))
            }
            "BigDecimalComparator" => Comparator::Decimal(Decimal::read(&value()?)?),
            "BitComparator" => {
                let bits: proto::BitComparator = message(name, bytes)?;
                let bitwise = match bits.bitwise_op() {
                    proto::bit_comparator::BitwiseOp::And => Bitwise::And,
                    proto::bit_comparator::BitwiseOp::Or => Bitwise::Or,
                    proto::bit_comparator::BitwiseOp::Xor => Bitwise::Xor,
                };
                Comparator::Bit(bits.comparable.value.unwrap_or_default(), bitwise)
            }
            "SubstringComparator" => {
                let part: proto::SubstringComparator = message(name, bytes)?;
                Comparator::Substring(part.substr.to_lowercase())
            }
            "RegexStringComparator" => {
                let pattern: proto::RegexStringComparator = message(name, bytes)?;
                Self::count(&mut self.patterns, 1, PATTERNS_MAX, "regular expressions")?;
                let pattern = Pattern::new(&pattern.pattern, pattern.pattern_flags, &pattern.charset)?;
                self.backtracks |= pattern.backtracks();
                Comparator::Pattern(pattern)
            }
            "BinaryComponentComparator" => {
                let part: proto::BinaryComponentComparator = message(name, bytes)?;
                Comparator::Component(part.value, usize::try_from(part.offset).unwrap_or(usize::MAX))
            }
            _ => {
                return Err(Invalid::new(format!(
                    "comparator {PACKAGE}{name} is unknown here; comparators are those of HBase 2.6"
                )));
            }
        })
    }
}

fn not_negative(name: &str, number: i32) -> Result<i64, Invalid> {
    if number < 0 {
        return Err(Invalid::new(format!("a {name} counts to {number}; name at least 0")));
    }
    Ok(i64::from(number))
}
