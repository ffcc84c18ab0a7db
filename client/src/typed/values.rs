//! Values of columns that are anything serde knows: as JSON, or packed by postcard.

#[cfg(any(feature = "json", feature = "postcard"))]
use terrane_types::{ColumnValue, Invalid};

/// A column's value as JSON: `tags: Json<Vec<String>>`. Readable by people and every language; names of fields are in every
/// value. With feature `json`.
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

/// Some values cannot be JSON: a map whose keys are no texts.
#[cfg(feature = "json")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> ColumnValue for Json<T> {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        serde_json::to_vec(&self.0).map_err(|error| Invalid::new(format!("the value cannot be JSON: {error}")))
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        serde_json::from_slice(value)
            .map(Self)
            .map_err(|error| Invalid::new(format!("the value is no such JSON: {error}")))
    }
}

/// A column's value packed by [postcard](https://postcard.jamesmunns.com): small and quick, read by programs that know the type. Fields
/// are known by their order: add new ones to a type of another name. With feature `postcard`.
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

/// Some values cannot be packed: a sequence whose length is not known before it was written.
#[cfg(feature = "postcard")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> ColumnValue for Postcard<T> {
    fn to_value(&self) -> Result<Vec<u8>, Invalid> {
        postcard::to_allocvec(&self.0).map_err(|error| Invalid::new(format!("the value cannot be packed: {error}")))
    }

    fn from_value(value: &[u8]) -> Result<Self, Invalid> {
        match postcard::take_from_bytes(value) {
            Ok((read, [])) => Ok(Self(read)),
            Ok((_, rest)) => Err(Invalid::new(format!("the packed value has {} bytes more than its type", rest.len()))),
            Err(error) => Err(Invalid::new(format!("the value is not packed as its type: {error}"))),
        }
    }
}
