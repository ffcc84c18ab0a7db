//! Outcomes of edits, as group 0's state machine replies them. The layout is documented in `docs/formats/catalog.md`.

use bytes::Bytes;
use terrane_types::{RegionId, ServerId, TableId};

use super::codec::{DecodeError, EDIT_VERSION, Reader, Writer, check_version};

/// What became of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Done,
    /// The new server's id.
    Server(ServerId),
    /// The first id of the block.
    RegionIds(RegionId),
    /// The new table's id.
    Table(TableId),
    /// It does not fit, and changed nothing.
    Refused(Refusal),
}

/// Why an edit changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something of this name is there already.
    AlreadyExists(String),
    /// What it names is not there.
    NotFound(String),
    /// The catalog is no longer what the edit was made from; look again.
    Changed(String),
    /// It breaks a rule.
    Invalid(String),
}

impl Outcome {
    /// The outcome as a reply of group 0's state machine.
    pub fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.u8(EDIT_VERSION);
        match self {
            Self::Done => out.u8(0),
            Self::Server(server) => {
                out.u8(1);
                out.u64(server.0);
            }
            Self::RegionIds(first) => {
                out.u8(2);
                out.u64(first.0);
            }
            Self::Table(table) => {
                out.u8(3);
                out.u64(table.0);
            }
            Self::Refused(refusal) => {
                let (tag, what) = match refusal {
                    Refusal::AlreadyExists(what) => (16, what),
                    Refusal::NotFound(what) => (17, what),
                    Refusal::Changed(what) => (18, what),
                    Refusal::Invalid(what) => (19, what),
                };
                out.u8(tag);
                out.text(what);
            }
        }
        out.into_bytes().into()
    }

    /// The outcome in a reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        check_version(from.u8()?)?;
        let outcome = match from.u8()? {
            0 => Self::Done,
            1 => Self::Server(ServerId(from.u64()?)),
            2 => Self::RegionIds(RegionId(from.u64()?)),
            3 => Self::Table(TableId(from.u64()?)),
            16 => Self::Refused(Refusal::AlreadyExists(from.text()?)),
            17 => Self::Refused(Refusal::NotFound(from.text()?)),
            18 => Self::Refused(Refusal::Changed(from.text()?)),
            19 => Self::Refused(Refusal::Invalid(from.text()?)),
            found => return Err(DecodeError::Tag { what: "outcome", found }),
        };
        from.end()?;
        Ok(outcome)
    }
}
