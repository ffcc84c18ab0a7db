//! Names of tables, namespaces and families: checked once, cheap to clone, safe in any text.
//!
//! A name is `[A-Za-z0-9_.-]{1,128}`; a table is `table` in the namespace `default`, or `namespace:table`. A family may
//! have any other printable name that HBase allows, too, and is shown escaped. Nothing built from a name ever becomes a
//! path: files are named by ids.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::escape::{escape, escape_family, unescape};
use crate::invalid::Invalid;
use crate::limits::{FREE_FAMILY_BYTES_MAX, NAME_CHARS_MAX};

/// Whether the bytes are a name: 1 to 128 of `A-Z a-z 0-9 _ . -`.
#[must_use]
pub fn is_name(bytes: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=NAME_CHARS_MAX).contains(&bytes.len()) && bytes.iter().all(allowed)
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Invalid> {
    if is_name(name.as_bytes()) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME_CHARS_MAX + 1).collect();
    Err(Invalid::new(format!(
        "{shown:?} is not the name of a {what}; names are 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ . -"
    )))
}

/// Whether the bytes are the name of a family: a [name](is_name), or what HBase allows in UTF-8: 1 to 127 bytes without
/// control characters, `:`, `/` and `\`, that do not begin with `.`.
#[must_use]
pub fn is_family(bytes: &[u8]) -> bool {
    is_name(bytes) || is_free_family(bytes)
}

fn is_free_family(bytes: &[u8]) -> bool {
    let allowed = |byte: &u8| !byte.is_ascii_control() && !matches!(byte, b':' | b'/' | b'\\');
    (1..=FREE_FAMILY_BYTES_MAX).contains(&bytes.len())
        && bytes[0] != b'.'
        && bytes.iter().all(allowed)
        && std::str::from_utf8(bytes).is_ok()
}

/// Refuses what is not the name of a family.
pub(crate) fn check_family_name(name: &[u8]) -> Result<(), Invalid> {
    if is_family(name) {
        return Ok(());
    }
    let shown = escape(&name[..name.len().min(NAME_CHARS_MAX + 1)]);
    Err(Invalid::new(format!(
        "`{shown}` is not the name of a family; names are 1 to {FREE_FAMILY_BYTES_MAX} bytes of printable text in UTF-8 \
         without `:`, `/` and `\\`, and do not begin with `.`"
    )))
}

/// The name of a column family. It is shown with [escapes](escape_family) and parsed with them; [`FamilyName::new`] takes,
/// and [`FamilyName::as_str`] has, the name itself.
///
/// ```
/// use terrane_types::FamilyName;
/// let name = FamilyName::new("air temp")?;
/// assert_eq!(name.to_string(), r"air\x20temp");
/// assert_eq!(r"air\x20temp".parse::<FamilyName>()?, name);
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FamilyName(Arc<str>);

impl FamilyName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Invalid`] unless it is the name of a [family](is_family).
    pub fn new(name: &str) -> Result<Self, Invalid> {
        check_family_name(name.as_bytes())?;
        Ok(Self(name.into()))
    }

    /// The name as text, without escapes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether builds knew such names before families could have other names than tables.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        is_name(self.as_bytes())
    }

    /// The name as the bytes that cells carry.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl FromStr for FamilyName {
    type Err = Invalid;

    fn from_str(shown: &str) -> Result<Self, Invalid> {
        Self::try_from(&unescape(shown)?[..])
    }
}

impl TryFrom<&str> for FamilyName {
    type Error = Invalid;

    fn try_from(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<&[u8]> for FamilyName {
    type Error = Invalid;

    fn try_from(name: &[u8]) -> Result<Self, Invalid> {
        check_family_name(name)?;
        let name = std::str::from_utf8(name).expect("the name of a family is UTF-8");
        Ok(Self(name.into()))
    }
}

impl Borrow<str> for FamilyName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FamilyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() { f.write_str(&self.0) } else { f.write_str(&escape_family(self.as_bytes())) }
    }
}

impl fmt::Debug for FamilyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// The name of a namespace.
///
/// ```
/// use terrane_types::NamespaceName;
/// assert!(NamespaceName::default().is_default());
/// assert!(NamespaceName::new("a:b").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(Arc<str>);

impl NamespaceName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Invalid`] unless it is 1 to 128 of `A-Z a-z 0-9 _ . -`.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        check_name("namespace", name)?;
        Ok(Self(name.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the namespace of tables whose name has none. It always exists.
    #[must_use]
    pub fn is_default(&self) -> bool {
        &*self.0 == TableName::DEFAULT_NAMESPACE
    }
}

impl Default for NamespaceName {
    fn default() -> Self {
        Self(TableName::DEFAULT_NAMESPACE.into())
    }
}

impl FromStr for NamespaceName {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl Borrow<str> for NamespaceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// The name of a table, with its namespace.
///
/// ```
/// use terrane_types::TableName;
/// let name: TableName = "weather:observations".parse()?;
/// assert_eq!((name.namespace(), name.table()), ("weather", "observations"));
/// assert_eq!("default:t".parse::<TableName>()?.to_string(), "t");
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    namespace: Arc<str>,
    table: Arc<str>,
}

impl TableName {
    /// The namespace of tables whose name has none.
    pub const DEFAULT_NAMESPACE: &'static str = "default";

    /// The name of the index of regions; no table can be created with it.
    pub const META: &'static str = "meta";

    /// Parses `table` or `namespace:table`.
    ///
    /// # Errors
    /// [`Invalid`] unless each part is 1 to 128 of `A-Z a-z 0-9 _ . -`.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        let (namespace, table) = name.split_once(':').unwrap_or((Self::DEFAULT_NAMESPACE, name));
        check_name("namespace", namespace)?;
        check_name("table", table)?;
        Ok(Self { namespace: namespace.into(), table: table.into() })
    }

    /// The name of the meta table.
    #[must_use]
    pub fn meta() -> Self {
        Self { namespace: Self::DEFAULT_NAMESPACE.into(), table: Self::META.into() }
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The namespace as a [`NamespaceName`].
    #[must_use]
    pub fn namespace_name(&self) -> NamespaceName {
        NamespaceName(Arc::clone(&self.namespace))
    }

    /// The name within the namespace.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Whether this names the meta table.
    #[must_use]
    pub fn is_meta(&self) -> bool {
        &*self.namespace == Self::DEFAULT_NAMESPACE && &*self.table == Self::META
    }
}

impl FromStr for TableName {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl TryFrom<&str> for TableName {
    type Error = Invalid;

    fn try_from(name: &str) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if &*self.namespace != Self::DEFAULT_NAMESPACE {
            write!(f, "{}:", self.namespace)?;
        }
        f.write_str(&self.table)
    }
}

impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_the_limits() {
        assert!(FamilyName::new("").is_err());
        assert!(FamilyName::new(&"a".repeat(128)).is_ok());
        assert!(FamilyName::new(&"a".repeat(129)).is_err());
        assert!(FamilyName::new(&"ä".repeat(63)).is_ok() && FamilyName::new(&"ä".repeat(64)).is_err());
        for bad in ["a:b", "a/b", "a\\b", ". ", "..\0", "a\n", "\x7f"] {
            let error = FamilyName::new(bad).expect_err(bad);
            assert!(error.what.contains("printable text") && !error.what.contains(char::is_control), "{error}");
        }
        assert!(FamilyName::try_from(&b"\xff"[..]).is_err());
        for bad in ["a:b", "a/b", "ä", "a b"] {
            assert!(NamespaceName::new(bad).expect_err(bad).what.contains("A-Z a-z 0-9"));
        }
    }

    #[test]
    fn a_family_is_shown_as_one_word_that_is_read_back() {
        for (name, shown) in
            [("f.-_", "f.-_"), ("a b,c=d", r"a\x20b\x2Cc\x3Dd"), ("東", "東"), ("\u{202e}", r"\xE2\x80\xAE")]
        {
            let family = FamilyName::new(name).expect(name);
            assert_eq!((family.to_string().as_str(), family.as_str()), (shown, name));
            assert_eq!(shown.parse(), Ok(family));
        }
        // What a person types with a space is read as well.
        assert_eq!("a b".parse(), FamilyName::new("a b"));
        for bad in [r"a\x3Ab", r"\xFF", r"a\q", r"a\\b"] {
            assert!(bad.parse::<FamilyName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_default_namespace_is_not_shown() {
        let plain = TableName::new("t").expect("a name");
        assert_eq!(plain, TableName::new("default:t").expect("a name"));
        assert_eq!(plain.to_string(), "t");
        assert_eq!(TableName::new("n:t").expect("a name").to_string(), "n:t");
    }

    #[test]
    fn tables_with_bad_parts_are_refused() {
        for bad in ["", ":", "a:", ":a", "a:b:c"] {
            assert!(TableName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn meta_is_known_with_and_without_its_namespace() {
        assert!(TableName::new("meta").expect("a name").is_meta());
        assert!(TableName::new("default:meta").expect("a name").is_meta());
        assert!(!TableName::new("other:meta").expect("a name").is_meta());
        assert_eq!(TableName::meta().to_string(), "meta");
    }
}
