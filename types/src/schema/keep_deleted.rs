//! How long a family keeps deleted cells.

use crate::invalid::Invalid;

/// Whether a family keeps deleted cells for reads of times below the tombstone. The numbers are stored and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeepDeleted {
    /// It does not.
    #[default]
    No = 0,
    /// It does, as long as the rules keep their versions.
    Yes = 1,
    /// It does until the tombstone has expired: `min_versions` does not protect deleted cells beyond that.
    Ttl = 2,
}

impl KeepDeleted {
    /// The value of the attribute.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "false",
            Self::Yes => "true",
            Self::Ttl => "ttl",
        }
    }

    /// The one with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::No),
            1 => Some(Self::Yes),
            2 => Some(Self::Ttl),
            _ => None,
        }
    }

    /// Whether some deleted cells are kept.
    #[must_use]
    pub const fn keeps(self) -> bool {
        !matches!(self, Self::No)
    }
}

impl std::fmt::Display for KeepDeleted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for KeepDeleted {
    type Err = Invalid;

    fn from_str(value: &str) -> Result<Self, Invalid> {
        let found = [Self::No, Self::Yes, Self::Ttl].into_iter().find(|known| known.as_str() == value);
        found.ok_or_else(|| Invalid::new(format!("keep_deleted_cells={value} is not one of true, false and ttl")))
    }
}
