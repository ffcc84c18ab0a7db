//! Column values of any serde type: as JSON, or encoded by postcard.

#[cfg(any(feature = "json", feature = "postcard"))]
use terrane_types::{ColumnValue, Invalid};

/// A column's value as JSON: `tags: Json<Vec<String>>`. Readable in every language; every value contains the field names. With
/// feature `json`.
///
/// ```
/// use terrane_client::{ColumnValue, Json};
/// let value = Json(vec!["new".to_owned()]).to_value()?;
/// assert_eq!(value, br#"["new"]"#);
/// assert_eq!(Json::<Vec<String>>::from_value(&value)?.0, ["new"]);
/// # Ok::<(), terrane_client::Invalid>(())
/// ```
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json<T>(
    /// The value.
    pub T,
);

/// Some values have no JSON form, such as a map whose keys are not text.
#[cfg(feature = "json")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> ColumnValue for Json<T> {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        serde_json::to_vec(&self.0).map_err(|error| Invalid::new(format!("the value has no JSON form: {error}")))
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        serde_json::from_slice(value)
            .map(Self)
            .map_err(|error| Invalid::new(format!("the value is not JSON of this type: {error}")))
    }
}

/// A column's value encoded by [postcard](https://postcard.jamesmunns.com): small and fast, for programs that know the type.
/// Fields are identified by their order, so use a new type to add one. With feature `postcard`.
///
/// ```
/// use terrane_client::{ColumnValue, Postcard};
/// let value = Postcard((7u32, true)).to_value()?;
/// assert_eq!(value, [7, 1]);
/// assert_eq!(Postcard::<(u32, bool)>::from_value(&value)?.0, (7, true));
/// # Ok::<(), terrane_client::Invalid>(())
/// ```
#[cfg(feature = "postcard")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Postcard<T>(
    /// The value.
    pub T,
);

/// Some values cannot be encoded, such as a sequence of unknown length.
#[cfg(feature = "postcard")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> ColumnValue for Postcard<T> {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        postcard::to_allocvec(&self.0).map_err(|error| Invalid::new(format!("the value cannot be encoded: {error}")))
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        match postcard::take_from_bytes(value) {
            Ok((read, [])) => Ok(Self(read)),
            Ok((_, rest)) => Err(Invalid::new(format!("the value has {} bytes more than its type", rest.len()))),
            Err(error) => Err(Invalid::new(format!("the value is not an encoding of its type: {error}"))),
        }
    }
}
