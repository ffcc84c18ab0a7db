//! Filters and the conditions of `--if`, as text: what they mean depends on the table, and their form is checked at once.

use terrane_filter::{Filter, FilterTemplate};
use terrane_types::Invalid;

use super::values::now;

/// A filter whose form is right.
pub fn filter(text: &str) -> Result<FilterTemplate, Invalid> {
    let template = Filter::with(text).at(now());
    template.outline()?;
    Ok(template)
}

/// A condition whose form is right: the part of the filter language that tests columns by name.
pub fn condition(text: &str) -> Result<FilterTemplate, Invalid> {
    let template = Filter::with(text).at(now());
    template.outline()?.filter.into_condition()?;
    Ok(template)
}
