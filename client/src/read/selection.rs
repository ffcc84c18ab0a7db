//! Which cells to read of each row: columns, versions, times, a filter, and how many. Shared by gets and scans.
//!
//! Building cannot fail, so that calls can be chained; names and numbers are checked when the read runs.

use bytes::Bytes;
use terrane_filter::{Filter, FilterTemplate, IntoFilter, RowFilter};
use terrane_types::{FamilyName, Invalid, KeyRange, Projection, QualifierRange, TableSchema, escape, escape_family};

use crate::read::key_after::key_after;
use crate::wire::get::ReadSpec;

/// Which cells a read returns of each row.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    columns: Vec<(String, Columns)>,
    versions: u32,
    time_min: i64,
    time_max: i64,
    cell_offset: u32,
    cell_limit: u32,
    keys_only: bool,
    first_cell_only: bool,
    /// Checked when it is given, so that its errors are known before any request is sent.
    filter: Option<Result<Filter, Invalid>>,
    filter_text: String,
    /// The filter's text, if what it means depends on the table.
    filter_template: Option<FilterTemplate>,
}

/// Columns of one family.
#[derive(Clone, Debug)]
enum Columns {
    All,
    One(Bytes),
    Range(KeyRange),
}

impl Selection {
    pub(crate) const fn all() -> Self {
        Self {
            columns: Vec::new(),
            versions: 1,
            time_min: 0,
            time_max: i64::MAX,
            cell_offset: 0,
            cell_limit: 0,
            keys_only: false,
            first_cell_only: false,
            filter: None,
            filter_text: String::new(),
            filter_template: None,
        }
    }

    pub(crate) fn family(&mut self, family: &str) {
        self.columns.push((family.to_owned(), Columns::All));
    }

    pub(crate) fn column(&mut self, family: &str, qualifier: &[u8]) {
        self.columns.push((family.to_owned(), Columns::One(Bytes::copy_from_slice(qualifier))));
    }

    pub(crate) fn column_prefix(&mut self, family: &str, prefix: &[u8]) {
        self.columns.push((family.to_owned(), Columns::Range(KeyRange::prefix(prefix))));
    }

    pub(crate) fn column_range(&mut self, family: &str, start: &[u8], end: &[u8]) {
        let range = KeyRange { start: Bytes::copy_from_slice(start), end: Bytes::copy_from_slice(end) };
        self.columns.push((family.to_owned(), Columns::Range(range)));
    }

    pub(crate) const fn versions(&mut self, versions: u32) {
        self.versions = versions;
    }

    pub(crate) const fn time_range(&mut self, min: i64, max: i64) {
        (self.time_min, self.time_max) = (min, max);
    }

    pub(crate) const fn cells(&mut self, offset: u32, limit: u32) {
        (self.cell_offset, self.cell_limit) = (offset, limit);
    }

    pub(crate) const fn keys_only(&mut self) {
        self.keys_only = true;
    }

    pub(crate) const fn first_cell_only(&mut self) {
        self.first_cell_only = true;
    }

    pub(crate) fn filter(&mut self, filter: impl IntoFilter) {
        let given = filter.given_text();
        self.filter_template = None;
        if given.as_ref().is_some_and(String::is_empty) {
            (self.filter, self.filter_text) = (None, String::new());
            return;
        }
        let filter = match filter.template() {
            Some(template) => template.outline().map(|outline| {
                self.filter_template = outline.depends_on_table.then_some(template);
                outline.filter
            }),
            None => filter.into_filter(),
        };
        let filter = filter.map_err(Invalid::from);
        self.filter_text = given.or_else(|| filter.as_ref().ok().map(Filter::to_string)).unwrap_or_default();
        self.filter = Some(filter);
    }

    /// The filter's text; empty: no filter.
    pub(crate) fn filter_text(&self) -> &str {
        &self.filter_text
    }

    /// The filter, unless it is invalid; `spec` returns that error.
    pub(crate) fn passing(&self) -> Option<&Filter> {
        self.filter.as_ref()?.as_ref().ok()
    }

    /// The part of the filter that can end the scan, if there is one.
    pub(crate) fn ends_the_scan(&self) -> Result<Option<&'static str>, Invalid> {
        let Some(filter) = self.checked_filter()? else { return Ok(None) };
        let parts = if let Filter::And(parts) = filter { &parts[..] } else { std::slice::from_ref(filter) };
        Ok(parts.iter().find_map(|part| match part {
            Filter::Page(_) => Some("page"),
            Filter::While(_) => Some("while"),
            _ => None,
        }))
    }

    fn checked_filter(&self) -> Result<Option<&Filter>, Invalid> {
        self.filter.as_ref().map(Result::as_ref).transpose().map_err(Clone::clone)
    }

    /// How many rows a `page(n)` in the filter lets pass. A server counts only those of its own region, so the scan has to count
    /// them all.
    pub(crate) fn rows_that_pass(&self) -> Option<u64> {
        self.passing().and_then(Filter::page)
    }

    /// What the filter means for this table, if that depends on the table. Its text then says it all, for servers.
    fn filter_for(&self, schema: &TableSchema) -> Result<Option<Filter>, Invalid> {
        match (self.checked_filter()?, &self.filter_template) {
            (_, Some(template)) => Ok(Some(template.build_for(schema)?)),
            (Some(filter), None) if filter.part_without_key().is_some() => {
                Ok(Some(filter.with_key(schema.key.as_ref())?))
            }
            _ => Ok(None),
        }
    }

    /// The part of the range outside of which no row can pass tests of leading key parts, so that a read asks no region there.
    pub(crate) fn clipped(&self, schema: &TableSchema, range: KeyRange) -> Result<KeyRange, Invalid> {
        let Some(filter) = self.filter_for(schema)? else { return Ok(range) };
        let clipped = RowFilter::new(&Projection::all(), &filter).clip(&range);
        // An empty end would mean no bound.
        Ok(clipped.unwrap_or_else(|| KeyRange { start: key_after(&[]), end: key_after(&[]) }))
    }

    /// The selection as a request for this table carries it, with its names and numbers checked.
    pub(crate) fn spec(&self, schema: &TableSchema) -> Result<ReadSpec, Invalid> {
        let filter = self.filter_for(schema)?.map_or_else(|| self.filter_text.clone(), |filter| filter.to_string());
        let checked =
            Projection::all().with_versions(self.versions).with_times(self.time_min, self.time_max).checked()?;
        let projection = Projection {
            families: self.families()?,
            cell_offset: self.cell_offset,
            cell_limit: self.cell_limit,
            keys_only: self.keys_only,
            first_cell_only: self.first_cell_only,
            ..checked
        };
        Ok(ReadSpec { projection, filter })
    }

    /// A family named as a whole outweighs its columns.
    fn families(&self) -> Result<Vec<(FamilyName, terrane_types::Columns)>, Invalid> {
        let mut families: Vec<(FamilyName, terrane_types::Columns, bool)> = Vec::new();
        for (name, columns) in &self.columns {
            let at = match families.iter().position(|(family, ..)| family.as_bytes() == name.as_bytes()) {
                Some(at) => at,
                None => {
                    families.push((FamilyName::new(name)?, terrane_types::Columns::default(), false));
                    families.len() - 1
                }
            };
            let (_, named, whole) = &mut families[at];
            match columns {
                Columns::All => *whole = true,
                Columns::One(qualifier) => named.qualifiers.push(qualifier.clone()),
                Columns::Range(range) => {
                    if range.is_empty() {
                        let shown = escape_family(name.as_bytes());
                        return Err(Invalid::new(format!(
                            "the column range {shown}:{} up to {shown}:{} is empty",
                            escape(&range.start),
                            escape(&range.end)
                        )));
                    }
                    let (start, end) = (range.start.clone(), range.end.clone());
                    named.ranges.push(QualifierRange { start, end });
                }
            }
        }
        Ok(families.into_iter().map(complete).collect())
    }
}

fn complete(
    (family, mut columns, whole): (FamilyName, terrane_types::Columns, bool),
) -> (FamilyName, terrane_types::Columns) {
    if whole {
        columns.qualifiers.clear();
        columns.ranges.clear();
    }
    columns.qualifiers.sort();
    columns.qualifiers.dedup();
    (family, columns)
}

/// The methods of everything that holds a [`Selection`].
macro_rules! selection_methods {
    ($($path:ident).+) => {
        /// Reads this column, in addition to others that are named. Without a name, all columns are read.
        pub fn column(mut self, family: &str, qualifier: impl AsRef<[u8]>) -> Self {
            self.$($path).+.column(family, qualifier.as_ref());
            self
        }

        /// Reads the columns of a family whose qualifiers start with these bytes, in addition to others that are named.
        pub fn column_prefix(mut self, family: &str, prefix: impl AsRef<[u8]>) -> Self {
            self.$($path).+.column_prefix(family, prefix.as_ref());
            self
        }

        /// Reads the columns of a family with qualifiers from `start` (inclusive) to `end` (exclusive; empty: no bound), in
        /// addition to others that are named.
        pub fn column_range(
            mut self,
            family: &str,
            start: impl AsRef<[u8]>,
            end: impl AsRef<[u8]>,
        ) -> Self {
            self.$($path).+.column_range(family, start.as_ref(), end.as_ref());
            self
        }

        /// Reads all columns of this family, in addition to others that are named.
        pub fn family(mut self, family: &str) -> Self {
            self.$($path).+.family(family);
            self
        }

        /// Reads up to this many versions of each column, newest first; 1 by default.
        pub fn versions(mut self, versions: u32) -> Self {
            self.$($path).+.versions(versions);
            self
        }

        /// Reads only cells with a timestamp from `min` (inclusive) to `max` (exclusive), in milliseconds.
        pub fn time_range(mut self, min: i64, max: i64) -> Self {
            self.$($path).+.time_range(min, max);
            self
        }

        /// Skips the first `offset` cells of each row and returns at most `limit` of those that follow (0: all). The
        /// servers count, after the filter: use it to page over the columns of a wide row.
        pub fn cells(mut self, offset: u32, limit: u32) -> Self {
            self.$($path).+.cells(offset, limit);
            self
        }

        /// Reads cells without their values: rows, columns and timestamps are returned, values are empty.
        pub fn keys_only(mut self) -> Self {
            self.$($path).+.keys_only();
            self
        }

        /// Reads only the first cell of each row. With `keys_only`, the cheapest way to list rows.
        pub fn first_cell_only(mut self) -> Self {
            self.$($path).+.first_cell_only();
            self
        }

        /// Reads only what passes the filter, given as text (`"i32(data:airtemp) > 100"`; empty: no filter), as text with bound values
        /// (`Filter::with("i32(data:airtemp) > ?").bind(limit)`) or as a [`Filter`](crate::Filter). The servers evaluate it;
        /// docs/filters.md describes the language. A filter that cannot be parsed fails the read with
        /// [`Error::Invalid`](crate::Error::Invalid) before any request is sent.
        pub fn filter(mut self, filter: impl terrane_filter::IntoFilter) -> Self {
            self.$($path).+.filter(filter);
            self
        }
    };
}

pub(crate) use selection_methods;

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> TableSchema {
        TableSchema::new("t".parse().expect("a name"))
    }

    fn shown(selection: &Selection) -> Vec<(String, usize, usize)> {
        let families = selection.spec(&schema()).expect("valid names").projection.families;
        families.into_iter().map(|(name, f)| (name.to_string(), f.qualifiers.len(), f.ranges.len())).collect()
    }

    #[test]
    fn a_family_named_as_a_whole_outweighs_its_columns() {
        let mut selection = Selection::all();
        selection.column("f", b"a");
        selection.family("f");
        selection.column("g", b"b");
        selection.column("g", b"b");
        selection.column_prefix("g", b"x");
        assert_eq!(shown(&selection), [("f".to_owned(), 0, 0), ("g".to_owned(), 1, 1)]);
    }

    #[test]
    fn errors_are_found_when_the_selection_is_used() {
        let refused = |change: fn(&mut Selection)| {
            let mut selection = Selection::all();
            change(&mut selection);
            selection.spec(&schema()).expect_err("refused").what
        };
        assert!(refused(|s| s.column_range("f", b"b", b"a")).contains("is empty"));
        assert!(refused(|s| s.versions(0)).contains("0 versions"));
        assert!(refused(|s| s.time_range(5, 4)).contains("reversed"));
        assert!(!refused(|s| s.family("")).is_empty());
        assert!(refused(|s| s.filter("i32(f:q > 5")).contains('^'), "the error points at the place");
    }
}
