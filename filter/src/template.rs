//! Filters with parameters: text with `?` in the places of values, and the values.
//!
//! The parser reads the text alone and takes a value where it meets a `?`. A value is therefore never parsed, and whatever it
//! holds, it cannot change what the filter tests. A `?` stands only where a string or a number can stand.

use terrane_types::{CellValue, TableSchema, Time};

use crate::error::FilterError;
use crate::expression::Filter;
use crate::parse::{self, Declared, Parsed};

/// A filter's text and the values of its parameters; made by [`Filter::with`].
#[derive(Clone, Debug)]
#[must_use = "a template is a filter once it is built or given to a read"]
pub struct FilterTemplate {
    text: String,
    values: Vec<CellValue<'static>>,
    now: Option<Time>,
}

impl Filter {
    /// A filter from text with a `?` for each value, which [`FilterTemplate::bind`] gives in order. Use this for values that
    /// come from outside: they are never read as part of the text.
    ///
    /// ```
    /// use terrane_filter::Filter;
    /// let name = "O'Brien' or exists(f:secret)";
    /// let filter = Filter::with("f:name = ? and i64(f:n) > ?").bind(name).bind(5_i64).build()?;
    /// assert_eq!(filter.to_string(), r"f:name = 'O\x27Brien\x27 or exists(f:secret)' and i64(f:n) > 5");
    ///
    /// let refused = Filter::with("i64(f:n) > ?").bind("five").build().unwrap_err();
    /// assert!(refused.to_string().contains("parameter 1 is text, not a number of type i64"));
    /// # Ok::<(), terrane_filter::FilterError>(())
    /// ```
    pub fn with(text: impl Into<String>) -> FilterTemplate {
        FilterTemplate { text: text.into(), values: Vec::new(), now: None }
    }
}

impl FilterTemplate {
    /// The value of the next parameter: text, bytes, a number, or any other [`CellValue`]. Where the text compares numbers,
    /// any integer is accepted that the type holds.
    pub fn bind<'v>(mut self, value: impl Into<CellValue<'v>>) -> Self {
        self.values.push(value.into().into_owned());
        self
    }

    /// The time from which relative times in the text count (`key(time) > now-1h`); without it they are refused. The filter
    /// holds the times themselves, so it means the same whenever it is used.
    ///
    /// ```
    /// use terrane_filter::Filter;
    /// use terrane_types::Time;
    /// let filter = Filter::with("time(d:seen) > -1h").at(Time::parse("2026-01-31T12:00Z")?).build()?;
    /// assert_eq!(filter.to_string(), "time(d:seen) > '2026-01-31T11:00:00Z'");
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    pub fn at(mut self, now: Time) -> Self {
        self.now = Some(now);
        self
    }

    /// The filter.
    ///
    /// # Errors
    /// [`FilterError::Parameter`] with the number of a parameter that has no value or one of another type, or of a value
    /// without a parameter; and the errors of the text.
    pub fn build(&self) -> Result<Filter, FilterError> {
        parse::parse(&self.text, &self.values, Declared::Nothing, self.now).map(|parsed| parsed.filter)
    }

    /// The filter for a table: columns that declare numbers are compared as such (`d:count > 5`), and parts of the key by their
    /// types.
    ///
    /// # Errors
    /// As for [`FilterTemplate::build`], and for values that are not of the declared types.
    pub fn build_for(&self, schema: &TableSchema) -> Result<Filter, FilterError> {
        parse::parse(&self.text, &self.values, Declared::By(schema), self.now).map(|parsed| parsed.filter)
    }

    /// Checks what can be checked before the table is known.
    ///
    /// # Errors
    /// As for [`FilterTemplate::build`].
    pub fn outline(&self) -> Result<FilterOutline, FilterError> {
        let Parsed { filter, depends_on_table } = parse::parse(&self.text, &self.values, Declared::Later, self.now)?;
        Ok(FilterOutline { filter, depends_on_table })
    }
}

/// A filter as far as it is known without the table.
#[derive(Clone, Debug)]
pub struct FilterOutline {
    /// Its tests. If the filter depends on the table, values of columns are missing.
    pub filter: Filter,
    /// Whether [`FilterTemplate::build_for`] may make another filter of it.
    pub depends_on_table: bool,
}

impl TryFrom<FilterTemplate> for Filter {
    type Error = FilterError;

    fn try_from(template: FilterTemplate) -> Result<Self, FilterError> {
        template.build()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn built(template: FilterTemplate) -> String {
        template.build().unwrap_or_else(|error| panic!("{error}")).to_string()
    }

    fn refused(template: FilterTemplate) -> String {
        let error = template.build().expect_err("refused").to_string();
        let (_, sentence) = error.split_once(": ").unwrap();
        sentence.lines().next().unwrap().to_owned()
    }

    #[test]
    fn parameters_stand_for_values_of_every_test() {
        let all =
            Filter::with("text(f:a) in (?, 'b') and prefix(row, ?) and contains(value, ?) and bits(value, and, ?)");
        let text = built(all.bind("a").bind(b"r").bind("c").bind(vec![1]));
        assert_eq!(
            text,
            r"text(f:a) in ('a', 'b') and prefix(row, 'r') and contains(value, 'c') and bits(value, and, '\x01')"
        );
        let whole = Filter::with("rows(?..?, ?..=?) and timestamps(?, 2) and columns(?, ?) and page(?)");
        let whole = whole.bind("a").bind("c").bind("x").bind("y").bind(1_i64).bind(3_u32).bind(4_u64).bind(10);
        assert_eq!(built(whole), r"rows('a'..'c', 'x'..'y\x00') and timestamps(1, 2) and columns(3, 4) and page(10)");
        assert_eq!(built(Filter::with("matches(f:a, ?)").bind("^a?$")), "matches(f:a, '^a?$')");
        assert_eq!(built(Filter::with("f:a = ? and f:b = '?'").bind(true)), r"f:a = '\xFF' and f:b = '?'");
    }

    #[test]
    fn integers_fit_by_value_and_not_by_width() {
        assert_eq!(built(Filter::with("i64(f:n) > ?").bind(5)), "i64(f:n) > 5");
        assert_eq!(built(Filter::with("u32(f:n) > ?").bind(5_i64)), "u32(f:n) > 5");
        assert_eq!(built(Filter::with("f64(f:n) > ?").bind(5)), "f64(f:n) > 5.0");
        assert_eq!(built(Filter::with("f64(f:n) > ?").bind(-0.5)), "f64(f:n) > -0.5");
        assert_eq!(refused(Filter::with("u32(f:n) > ?").bind(-5)), "parameter 1 is -5, which u32 does not hold");
        assert_eq!(
            refused(Filter::with("f64(f:n) > ?").bind(5_u64)),
            "parameter 1 is 5 (u64), not a number of type f64"
        );
        assert_eq!(
            refused(Filter::with("i64(f:n) > ?").bind(0.5)),
            "parameter 1 is 0.5 (f64), not a number of type i64"
        );
    }

    #[test]
    fn what_does_not_fit_is_named_by_number() {
        let of = |text: &str| Filter::with(text).bind("a");
        assert_eq!(refused(of("f:a = ? and f:b = ?")), "parameter 2 has no value; 1 is bound");
        assert_eq!(
            refused(Filter::with("f:a = ?")),
            "parameter 1 has no value: write one in the place of the `?`, or bind one"
        );
        assert_eq!(refused(of("f:a = ?").bind(1)), "parameter 2 has a value and no `?`: the text has 1");
        assert_eq!(refused(of("f:a = ? and i64(f:n) = ?").bind("b")), "parameter 2 is text, not a number of type i64");
        assert_eq!(
            refused(of("f:a = ? and f:n = ?").bind(5_i64)),
            "parameter 2 is a number (i64): say how to read the other side, like i64(…)"
        );
        assert_eq!(refused(of("page(?)")), "parameter 1 is text, not how many rows, a whole number");
        assert_eq!(refused(Filter::with("page(?)").bind(-1)), "parameter 1 is -1, not how many rows, a whole number");
        assert_eq!(
            refused(Filter::with("text(f:a) = ?").bind(vec![0xff])),
            "parameter 1 is not UTF-8, which a text is; compare other bytes without text()"
        );
        let error = of("f:a = ? and i64(f:n) = ?").bind("b").build().unwrap_err();
        assert!(matches!(error, FilterError::Parameter { number: 2, at: 23, .. }), "{error:?}");
    }

    fn schema() -> TableSchema {
        let mut schema = TableSchema::new("t".parse().expect("a name"));
        let mut family = terrane_types::FamilySchema::new("d".parse().expect("a name"));
        for (attribute, value) in [("type.count", "i64"), ("type.name", "text"), ("type.seen", "time")] {
            family.set_attribute(attribute, value).expect(attribute);
        }
        schema.add_family(family).expect("one family");
        schema
    }

    #[test]
    fn a_declared_column_is_compared_as_its_type() {
        let built =
            |text: &str| Filter::with(text).bind(5).build_for(&schema()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(built("d:count > 10 or d:count = ?").to_string(), "i64(d:count) > 10 or i64(d:count) = 5");
        assert_eq!(built("d:count in (-1, 2, ?)").to_string(), "i64(d:count) in (-1, 2, 5)");
        let written = built(r"bytes(d:count) = '\x00' and d:name = 'a' and d:other = 'b' and u64(d:count) < ?");
        assert_eq!(written.to_string(), r"d:count = '\x00' and d:name = 'a' and d:other = 'b' and u64(d:count) < 5");
        // What the table says does not change the text that travels.
        assert_eq!(built("d:count = ?").to_string().parse::<Filter>().unwrap(), built("d:count = ?"));
    }

    #[test]
    fn a_time_is_compared_with_dates() {
        let now = Time::parse("2026-01-31T12:00Z").expect("a date");
        let built =
            |text: &str| Filter::with(text).at(now).build_for(&schema()).unwrap_or_else(|error| panic!("{error}"));
        let noon = "time(d:seen) > '2026-01-31T12:00:00Z'";
        for text in [
            "d:seen > '2026-01-31T12:00Z'",
            "d:seen > 2026-01-31T12:00Z",
            "d:seen > 2026-01-31T12:00:00.000",
            "d:seen > '2026-01-31T14:00+02:00'",
            "d:seen > 1769860800000",
            "d:seen > now",
            "(d:seen > 2026-01-31T12:00)",
            "time(d:seen) > '2026-01-31 12:00'",
        ] {
            assert_eq!(built(text).to_string(), noon, "{text}");
            assert!(Filter::with(text).at(now).outline().is_ok(), "{text}");
        }
        assert_eq!(noon.parse::<Filter>().map(|read| read.to_string()).as_deref(), Ok(noon));
        assert_eq!(
            built("d:seen in (2026-01-31, now-1d)").to_string(),
            "time(d:seen) in ('2026-01-31T00:00:00Z', '2026-01-30T12:00:00Z')"
        );
        assert_eq!(built("timestamps(2026-01-31T12:00Z, 5)").to_string(), "timestamps(1769860800000, 5)");
        let bound =
            Filter::with("d:seen > ? and d:seen != ? and i64(d:seen) < ?").bind(now).bind("2026-01-31").bind(now);
        assert_eq!(
            bound.build_for(&schema()).map(|filter| filter.to_string()).as_deref(),
            Ok(
                "time(d:seen) > '2026-01-31T12:00:00Z' and time(d:seen) != '2026-01-31T00:00:00Z' and i64(d:seen) < 1769860800000"
            )
        );
        let refused = |text: &str| Filter::with(text).build_for(&schema()).expect_err(text).to_string();
        assert!(refused("d:seen > 2026-13-01T12:00").contains("there is no month 13"));
        assert!(refused("d:seen > -1h").contains("no relative time is taken here"));
        assert!(refused("d:other > 2026-01-31").contains("say to read the other side as one, time(…)"));
        assert!(refused("prefix(time(d:seen), 'a')").contains("looks at bytes"));
    }

    #[test]
    fn a_value_that_is_not_of_the_declared_type_is_refused() {
        let refused = |text: &str| Filter::with(text).build_for(&schema()).expect_err(text).to_string();
        assert!(refused("d:count = '12'").contains("expected a number of type i64 (for bytes, write bytes(…)"));
        assert!(refused("d:count > 1.5").contains("`1.5` is no number of type i64"));
        assert!(refused("d:other > 1").contains("say how to read the other side"));
    }

    #[test]
    fn an_outline_checks_the_form_and_leaves_types_to_the_table() {
        let outline = |text: &str| Filter::with(text).outline();
        assert!(outline("d:count > 10").expect("a number").depends_on_table);
        assert!(outline("key(user) = 7").expect("a part").depends_on_table);
        assert!(!outline("i64(d:count) > 10 and prefix(row, 'a')").expect("typed").depends_on_table);
        for text in ["d:count > ", "d:count > ten", "i64(d:count) > ten", "d:count = ?", "page(0)"] {
            assert!(outline(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_parameter_is_no_part_of_the_structure() {
        for text in ["? = 'a'", "f:? = 'a'", "? (f:a)", "not ?", "f:a ? 'b'", "random(?)", "fuzzy(?)", "i64(?) = 5"] {
            assert!(Filter::with(text).bind("row").build().is_err(), "{text}");
        }
        assert!("f:a = ?".parse::<Filter>().is_err(), "text alone has no parameters");
    }

    proptest! {
        #[test]
        fn a_bound_value_is_compared_as_it_is(value: Vec<u8>, text: String) {
            let filter = Filter::with("f:a = ? or text(f:b) = ?").bind(&value).bind(&text).build().unwrap();
            let Filter::Or(parts) = &filter else { panic!("{filter}") };
            let operands: Vec<&[u8]> = parts.iter().map(|part| match part {
                Filter::Compare { operand, .. } => &operand[..],
                other => panic!("{other}"),
            }).collect();
            prop_assert_eq!(operands, [&value[..], text.as_bytes()]);
            prop_assert_eq!(filter.to_string().parse::<Filter>().unwrap(), filter);
        }
    }
}
