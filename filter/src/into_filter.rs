//! What calls take as a filter, so that a caller need not parse text first.

use terrane_types::{Condition, Invalid};

use crate::error::FilterError;
use crate::expression::Filter;
use crate::template::FilterTemplate;

/// What a read or a condition takes as a filter: text, a [`Filter`], or a [`FilterTemplate`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a filter",
    note = "text, a `Filter` and `Filter::with(text).bind(value)` are"
)]
pub trait IntoFilter {
    /// The filter, checked.
    ///
    /// # Errors
    /// [`FilterError`] for text that does not parse, parameters that do not fit, and filters outside the limits.
    fn into_filter(self) -> Result<Filter, FilterError>;

    /// The text, if the filter is given as text. Page tokens are bound to a filter's text, so it is sent as it was given.
    fn given_text(&self) -> Option<String> {
        None
    }

    /// The text with its values, if the filter is given so: what it means then depends on the table.
    fn template(&self) -> Option<FilterTemplate> {
        None
    }

    /// The filter as the condition of a write: see [`Filter::into_condition`].
    ///
    /// # Errors
    /// As for [`IntoFilter::into_filter`] and [`Filter::into_condition`].
    fn into_condition(self) -> Result<Condition, Invalid>
    where
        Self: Sized,
    {
        self.into_filter()?.into_condition()
    }
}

impl IntoFilter for Filter {
    fn into_filter(self) -> Result<Filter, FilterError> {
        self.check()?;
        Ok(self)
    }
}

impl IntoFilter for &Filter {
    fn into_filter(self) -> Result<Filter, FilterError> {
        self.clone().into_filter()
    }
}

impl IntoFilter for FilterTemplate {
    fn into_filter(self) -> Result<Filter, FilterError> {
        self.build()
    }

    fn template(&self) -> Option<FilterTemplate> {
        Some(self.clone())
    }
}

macro_rules! text_is_a_filter {
    ($($text:ty),*) => {$(
        impl IntoFilter for $text {
            fn into_filter(self) -> Result<Filter, FilterError> {
                self.parse()
            }

            fn given_text(&self) -> Option<String> {
                Some((*self).to_owned())
            }

            fn template(&self) -> Option<FilterTemplate> {
                Some(Filter::with(self.to_string()))
            }
        }
    )*};
}

text_is_a_filter!(&str, String, &String);
