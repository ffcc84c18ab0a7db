//! Counting rows and aggregating a column, on the servers and in parallel.
//!
//! The range is cut at the region boundaries that the cache knows, and each part is a scan that brings only numbers, two at a
//! time per server. The cuts need not be exact: each part follows splits and moves like any scan, and starts a region over
//! that changed meanwhile, so every row counts once. Parts are added in the order of the range, so a sum of floats is the
//! same each time.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrane_filter::IntoFilter;
use terrane_types::value_type::ValueType;
use terrane_types::{IntoPrefix, KeyRange, ServerId, TableId};

use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency, older};
use crate::error::Error;
use crate::read::request::{ReadOptions, reading_request};
use crate::read::scan::Scan;
use crate::read::scanner::Scanner;
use crate::read::selection::selection_methods;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::wire::scan::{AggregateColumn, AggregatePart};

/// Parts of one server that run at once.
const PARTS_PER_SERVER: usize = 2;

impl Table {
    /// Counts the rows of a range. The servers count in parallel and send only numbers. Every row counts once, also when
    /// regions split or move meanwhile. Safe to repeat.
    ///
    /// ```no_run
    /// # async fn run(readings: terrane_client::Table) -> Result<(), terrane_client::Error> {
    /// let all = readings.count(..).await?;
    /// let hot = readings.count("station-7|").filter("i32(data:airtemp) > 300").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Table::scan`] and its stream. The timeout applies to each wait for a block, and servers send one at least every
    /// half second: the count as a whole may take longer.
    pub fn count(&self, rows: impl Into<Scan>) -> CountRequest<'_> {
        let scan = rows.into();
        CountRequest { table: self, options: ReadOptions::new(scan.consistency), scan }
    }

    /// Count, sum, minimum, maximum and average of a column whose values are read as numbers. The servers compute in parallel
    /// and send only numbers. The newest version of the column counts in each row; rows without the column do not count.
    /// Safe to repeat.
    ///
    /// ```no_run
    /// use terrane_client::ValueType;
    /// # async fn run(readings: terrane_client::Table) -> Result<(), terrane_client::Error> {
    /// let july = "station-7|2026-07-01".."station-7|2026-08-01";
    /// let temperatures = readings.aggregate("data", "airtemp", ValueType::I32).range(july).await?;
    /// println!("{} readings, {:?} on average", temperatures.count(), temperatures.average());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Table::count`]; [`Error::Invalid`] for a type that is not numeric, and when a value cannot be read as the type
    /// (the message names row and column).
    pub fn aggregate(&self, family: &str, qualifier: impl AsRef<[u8]>, read_as: ValueType) -> AggregateRequest<'_> {
        AggregateRequest {
            table: self,
            scan: Scan::all(),
            family: family.to_owned(),
            qualifier: Bytes::copy_from_slice(qualifier.as_ref()),
            read_as,
            options: ReadOptions::new(Consistency::Linearizable),
        }
    }
}

/// A count; it runs when it is awaited. Created by [`Table::count`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct CountRequest<'t> {
    pub(crate) table: &'t Table,
    pub(crate) scan: Scan,
    pub(crate) options: ReadOptions,
}

reading_request!(CountRequest, u64);

impl CountRequest<'_> {
    selection_methods!(scan.selection);

    async fn run(self) -> Result<AsOf<u64>, Error> {
        let Self { table, scan, options } = self;
        let parts = in_parallel(table, &scan, options, |part| part.count()).await?;
        let as_of_ms = parts.iter().fold(None, |known, part| older(known, part.as_of_ms));
        Ok(AsOf { value: parts.iter().map(|part| part.value).sum(), as_of_ms })
    }
}

/// An aggregate of a column; it runs when it is awaited. Created by [`Table::aggregate`].
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct AggregateRequest<'t> {
    table: &'t Table,
    scan: Scan,
    family: String,
    qualifier: Bytes,
    read_as: ValueType,
    options: ReadOptions,
}

reading_request!(AggregateRequest, Aggregate);

impl AggregateRequest<'_> {
    /// Only rows of this range: `"a".."c"`, a prefix, or any other [`KeyRange`]. By default the whole table.
    pub fn range(mut self, range: impl Into<KeyRange>) -> Self {
        self.scan.range = range.into();
        self
    }

    /// Only rows with this prefix: bytes, text, or the leading parts of a typed key.
    pub fn prefix(mut self, prefix: impl IntoPrefix) -> Self {
        self.scan.range = prefix.prefixed_rows();
        self
    }

    /// Only rows that pass the filter; docs/filters.md describes the language.
    pub fn filter(mut self, filter: impl IntoFilter) -> Self {
        self.scan.selection.filter(filter);
        self
    }

    /// Only values with a timestamp from `min` (inclusive) to `max` (exclusive), in milliseconds.
    pub fn time_range(mut self, min: i64, max: i64) -> Self {
        self.scan.selection.time_range(min, max);
        self
    }

    async fn run(self) -> Result<AsOf<Aggregate>, Error> {
        let Self { table, mut scan, family, qualifier, read_as, options } = self;
        if !read_as.is_number() {
            return Err(Error::invalid(format!(
                "{read_as} is not a numeric type; those are i32, i64, u32, u64 and f64"
            )));
        }
        // Only the column: rows without it are skipped.
        scan.selection.column(&family, &qualifier);
        let column = AggregateColumn { family, qualifier, read_as };
        let parts = in_parallel(table, &scan, options, |part| part.aggregate(column.clone())).await?;
        let as_of_ms = parts.iter().fold(None, |known, part| older(known, part.as_of_ms));
        let sums = parts.into_iter().flat_map(|part| part.value);
        Ok(AsOf { value: Aggregate::of(read_as, sums)?, as_of_ms })
    }
}

/// Does `work` for each part of the scan's range; the results come in the order of the range.
async fn in_parallel<T, F: Future<Output = Result<T, Error>>>(
    table: &Table,
    scan: &Scan,
    options: ReadOptions,
    work: impl Fn(Scanner) -> F,
) -> Result<Vec<T>, Error> {
    let range = scan.checked_range()?;
    let schema = table.schema();
    let spec = Arc::new(scan.selection.spec(&schema)?);
    let range = scan.selection.clipped(&schema, range)?;
    table.check_projection(&spec.projection).await?;
    let scanner = |range| Scanner::new(table, scan, range, Arc::clone(&spec), options);
    // A limit, an offset and prefixes count over the whole range, so the range cannot be cut.
    let whole = scan.total_limit().is_some()
        || scan.offset > 0
        || scan.latest.is_some()
        || may_end(scan.selection.filter_text());
    if whole || table.target.table == TableId::META || range.is_empty() {
        return Ok(vec![work(scanner(range)).await?]);
    }
    let progress = Progress::new(Risk::READ, options.timeout_of(table));
    let regions = table.core.router.regions_of(&table.target, &range.start, &range.end, progress).await?;
    let starts = regions.iter().map(|(start, _)| start.clone());
    let ends = starts.clone().skip(1).chain([range.end.clone()]);
    let mut servers: BTreeMap<ServerId, Vec<(usize, KeyRange)>> = BTreeMap::new();
    for (at, ((start, end), (_, place))) in starts.zip(ends).zip(&regions).enumerate() {
        servers.entry(place.server).or_default().push((at, KeyRange { start, end }));
    }
    let of_servers = servers.into_values().map(|parts| {
        let parts = parts.into_iter().map(|(at, range)| {
            let done = work(scanner(range));
            async move { Ok::<_, Error>((at, done.await?)) }
        });
        futures::stream::iter(parts).buffer_unordered(PARTS_PER_SERVER).try_collect::<Vec<_>>()
    });
    let mut done: Vec<(usize, T)> = try_join_all(of_servers).await?.into_iter().flatten().collect();
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, part)| part).collect())
}

/// A computed number: exact for integer columns, a float for `f64` columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// From `i32`, `i64`, `u32` and `u64`.
    Integer(i128),
    /// From `f64`.
    Float(f64),
}

impl Number {
    /// The integer, if it is one.
    #[must_use]
    pub const fn as_i128(self) -> Option<i128> {
        match self {
            Self::Integer(integer) => Some(integer),
            Self::Float(_) => None,
        }
    }

    /// The number as a float; integers beyond 2^53 are rounded.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "the method promises a float")]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }

    fn read(read_as: ValueType, bytes: &[u8]) -> Result<Option<Self>, Error> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let number = match read_as {
            ValueType::F64 => bytes.try_into().map(|bytes| Self::Float(f64::from_be_bytes(bytes))),
            _ => bytes.try_into().map(|bytes| Self::Integer(i128::from_be_bytes(bytes))),
        };
        number
            .map(Some)
            .map_err(|_| Error::internal(format!("a server sent a sum of {read_as} in {} bytes", bytes.len())))
    }

    fn plus(self, other: Self) -> Self {
        match (self, other) {
            // 2^64 values of 2^63 fit, and no table has that many rows.
            (Self::Integer(one), Self::Integer(other)) => Self::Integer(one.wrapping_add(other)),
            (one, other) => Self::Float(one.as_f64() + other.as_f64()),
        }
    }

    fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one < other,
            (one, other) => one.as_f64() < other.as_f64(),
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(integer) => integer.fmt(f),
            Self::Float(float) => float.fmt(f),
        }
    }
}

/// Whether the filter may end the scan, so that the count of one region depends on the regions before. A filter that merely
/// contains the word is counted region by region without need.
fn may_end(filter: &str) -> bool {
    filter.contains("while")
}

/// The aggregate of a column over all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aggregate {
    count: u64,
    sum: Option<Number>,
    min: Option<Number>,
    max: Option<Number>,
}

impl Aggregate {
    fn of(read_as: ValueType, parts: impl IntoIterator<Item = AggregatePart>) -> Result<Self, Error> {
        let mut all = Self { count: 0, sum: None, min: None, max: None };
        for part in parts {
            let read = |bytes: &[u8]| Number::read(read_as, bytes);
            all.count += part.values;
            all.sum = joined(all.sum, read(&part.sum)?, Number::plus);
            all.min = joined(all.min, read(&part.min)?, |one, other| if other.is_below(one) { other } else { one });
            all.max = joined(all.max, read(&part.max)?, |one, other| if one.is_below(other) { other } else { one });
        }
        Ok(all)
    }

    /// The number of values: of rows that have the column.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The sum; exact for integers. `None` without a value.
    #[must_use]
    pub const fn sum(&self) -> Option<Number> {
        self.sum
    }

    /// The smallest value. `None` without a value. NaN is ignored.
    #[must_use]
    pub const fn min(&self) -> Option<Number> {
        self.min
    }

    /// The largest value, as for [`Aggregate::min`].
    #[must_use]
    pub const fn max(&self) -> Option<Number> {
        self.max
    }

    /// The mean. `None` without a value.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a mean is a float")]
    pub fn average(&self) -> Option<f64> {
        self.sum.map(|sum| sum.as_f64() / self.count as f64)
    }
}

fn joined(one: Option<Number>, other: Option<Number>, join: impl Fn(Number, Number) -> Number) -> Option<Number> {
    match (one, other) {
        (Some(one), Some(other)) => Some(join(one, other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(values: &[i128]) -> AggregatePart {
        let bytes = |value: Option<i128>| value.map_or_else(Vec::new, |value| value.to_be_bytes().to_vec()).into();
        AggregatePart {
            values: values.len() as u64,
            sum: bytes(values.iter().copied().reduce(|one, other| one + other)),
            min: bytes(values.iter().copied().min()),
            max: bytes(values.iter().copied().max()),
        }
    }

    #[test]
    fn parts_of_regions_add_up_and_empty_ones_change_nothing() {
        let parts = [part(&[]), part(&[5, -7]), part(&[]), part(&[i128::from(u64::MAX)])];
        let all = Aggregate::of(ValueType::I64, parts).expect("well-formed");
        assert_eq!((all.count(), all.sum()), (3, Some(Number::Integer(i128::from(u64::MAX) - 2))));
        assert_eq!((all.min(), all.max()), (Some(Number::Integer(-7)), Some(Number::Integer(u64::MAX.into()))));
        let none = Aggregate::of(ValueType::I64, [part(&[])]).expect("well-formed");
        assert_eq!((none.count(), none.sum(), none.min(), none.average()), (0, None, None, None));
    }

    #[test]
    fn floats_are_added_as_floats() {
        let bytes = |value: f64| Bytes::copy_from_slice(&value.to_be_bytes());
        let part = |sum, min, max| AggregatePart { values: 2, sum: bytes(sum), min: bytes(min), max: bytes(max) };
        let all = Aggregate::of(ValueType::F64, [part(1.5, -2.0, 3.5), part(0.5, -1.0, 1.5)]).expect("well-formed");
        assert_eq!(
            (all.sum(), all.min(), all.max()),
            (Some(Number::Float(2.0)), Some(Number::Float(-2.0)), Some(Number::Float(3.5)))
        );
        assert_eq!(all.average(), Some(0.5));
    }

    #[test]
    fn a_sum_of_a_wrong_width_is_an_error() {
        let wrong = AggregatePart { sum: Bytes::from_static(&[1, 2, 3]), ..part(&[1]) };
        assert!(Aggregate::of(ValueType::I32, [wrong]).is_err());
    }
}
