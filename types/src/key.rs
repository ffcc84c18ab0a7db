//! The `key` attribute of a table: it declares the typed, named parts of its row keys, in order.
//!
//! The declaration gives the key's bytes a meaning. Typed tables compare it with their own parts when they open, tools
//! show and parse keys by part, and `atomic=N` counts its leading parts. The text form is that of the command line:
//! `'user:u64, time:desc i64, action:u32'`. The encoding is that of [`crate::keycodec`], driven by the declaration
//! instead of by Rust types.

mod line;
mod text;

use std::fmt;

use crate::invalid::Invalid;
use crate::keycodec::PartKind;
use crate::limits::KEY_PARTS_MAX;
use crate::name::check_name;

/// One part of a declared key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Its name; empty for a bucket declared without one.
    pub name: String,
    /// Its type.
    pub kind: PartKind,
}

/// The typed parts of a table's row keys.
///
/// ```
/// use terrane_types::KeyDeclaration;
/// let key = KeyDeclaration::parse("user:u64, time:desc i64, action:u32")?;
/// let row = key.encode(&["7", "1000", "3"])?;
/// assert_eq!(row.len(), 20);
/// assert_eq!(key.decode(&row)?, ["7", "1000", "3"]);
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDeclaration {
    parts: Vec<KeyPart>,
}

/// The name of a bucket part that is declared without one.
const BUCKET_NAME: &str = "bucket";

impl KeyDeclaration {
    /// Parses a declaration: parts separated by commas, each `name:type`; the name of a bucket is optional.
    ///
    /// # Errors
    /// [`Invalid`] that names the part and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let parts = text.split(',').map(parse_part).collect::<Result<Vec<_>, _>>()?;
        Self::new(parts)
    }

    /// A declaration of these parts.
    ///
    /// # Errors
    /// [`Invalid`] for no parts or too many, a bad or repeated name, a bucket that is not first or is alone, or a tail
    /// that is not last.
    pub fn new(parts: Vec<KeyPart>) -> Result<Self, Invalid> {
        if !(1..=KEY_PARTS_MAX).contains(&parts.len()) {
            return Err(Invalid::new(format!("a key has 1 to {KEY_PARTS_MAX} parts, not {}", parts.len())));
        }
        for (at, part) in parts.iter().enumerate() {
            check_name("key part", &part.name)?;
            if parts[..at].iter().any(|earlier| earlier.name == part.name) {
                return Err(Invalid::new(format!("two parts of the key are named {}", part.name)));
            }
            if part.kind.is_tail() && at + 1 < parts.len() {
                return Err(Invalid::new(format!("part {} is a tail, which can only be the last part", part.name)));
            }
            if part.kind.is_bucket() && at > 0 {
                return Err(Invalid::new(format!("part {} is a bucket, which can only be the first part", part.name)));
            }
        }
        if parts[0].kind.is_bucket() && parts.len() == 1 {
            return Err(Invalid::new("the key is nothing but a bucket; it needs a part after it"));
        }
        Ok(Self { parts })
    }

    /// The declaration of a derived key, whose parts the compiler has checked.
    ///
    /// # Panics
    /// If the parts break a rule, which the derive's checks rule out.
    pub(crate) fn of(names: &[&str], kinds: &[PartKind]) -> Self {
        let part = |(name, kind): (&&str, &PartKind)| KeyPart { name: (*name).to_owned(), kind: *kind };
        Self::new(names.iter().zip(kinds).map(part).collect()).expect("the derive checks names and places of parts")
    }

    /// The parts in order, including a bucket.
    #[must_use]
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// The same key with the same bytes, whose times are the numbers that they are stored as: for JSON, for programs that read
    /// text, and to compare declarations by what they mean for bytes.
    ///
    /// ```
    /// use terrane_types::KeyDeclaration;
    /// let key = KeyDeclaration::parse("user:u64, time:desc time")?;
    /// let row = key.parse_line("user=7,time=2026-01-31")?;
    /// assert_eq!(key.line(&row)?, "user=7,time=2026-01-31T00:00:00Z");
    /// assert_eq!(key.as_stored().line(&row)?, "user=7,time=1769817600000");
    /// assert_eq!(key.as_stored(), KeyDeclaration::parse("user:u64, time:desc i64")?);
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    #[must_use]
    pub fn as_stored(&self) -> Self {
        let part = |part: &KeyPart| KeyPart { name: part.name.clone(), kind: part.kind.as_stored() };
        Self { parts: self.parts.iter().map(part).collect() }
    }

    /// The parts that have a text form: all but a bucket, which is computed from the others.
    #[must_use]
    pub fn text_parts(&self) -> &[KeyPart] {
        &self.parts[usize::from(self.parts[0].kind.is_bucket())..]
    }
}

fn parse_part(text: &str) -> Result<KeyPart, Invalid> {
    match text.split_once(':') {
        Some((name, kind)) => Ok(KeyPart { name: name.trim().to_owned(), kind: PartKind::parse(kind)? }),
        None => match PartKind::parse(text) {
            Ok(kind) if kind.is_bucket() => Ok(KeyPart { name: BUCKET_NAME.to_owned(), kind }),
            Err(error) if text.trim_start().starts_with(BUCKET_NAME) => Err(error),
            _ => {
                let shown: String = text.trim().chars().take(40).collect();
                Err(Invalid::new(format!(
                    "{shown:?} is not a part of a key: write name:type, as in 'user:u64, time:desc i64, action:u32'"
                )))
            }
        },
    }
}

impl std::str::FromStr for KeyDeclaration {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::parse(text)
    }
}

impl fmt::Display for KeyDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            if !(part.kind.is_bucket() && part.name == BUCKET_NAME) {
                write!(f, "{}:", part.name)?;
            }
            write!(f, "{}", part.kind)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
