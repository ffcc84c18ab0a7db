//! Resume tokens: where a scan continues, as bytes that the client keeps and sends back.
//!
//! The server keeps no state for a scan between blocks, so a scan survives splits, moves and failovers, and a client that
//! goes away leaves nothing on the server. Tokens come from outside and are validated like any request. A position is only
//! ever narrowed to the requested range, so a forged token shows nothing that a plain scan would not.
//!
//! ```text
//! token    = version u8 (1) | flags u8 | region start u16-length | region end u16-length
//!          | limit left u64 | offset left u64 | group? | totals? | position | sequence u64?
//! flags    = 1 reverse, 2 limited, 4 with a group, 8 with totals, 16 of a snapshot, with its sequence
//! group    = prefix u16-length | rows given u32
//! totals   = rows u64 | values u64 | flags u8 (1 floats, 2 with extremes) | sum | (least | greatest)?
//!            numbers are i128, or f64 with flag 1
//! position = 0 (at the range's first row) | 1 row u16-length (after this row)
//!          | 2 row u16-length | sequence u64 | family u16-length | qualifier u16-length | timestamp i64 | cell sequence u64
//!          | 3 row u16-length (from this row on)
//!          | 4, as 2: the cells up to this one are not visible, and nothing of the row was sent
//! ```

use bytes::Bytes;
use terrane_types::{ByteWriter as _, Invalid, KeyRange};

use crate::record::{Malformed, Reader};
use crate::region::aggregate::Totals;
use crate::region::latest::PrefixProgress;

const VERSION: u8 = 1;
const REVERSE: u8 = 1;
const LIMITED: u8 = 2;
const GROUP: u8 = 4;
const TOTALS: u8 = 8;
const SNAPSHOT: u8 = 16;

/// The state of a scan between two blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    pub reverse: bool,
    /// The range of the region that made the token. When the region is done, the client continues after it.
    pub region: KeyRange,
    /// Rows still wanted; `None`: all.
    pub limit_left: Option<u64>,
    pub offset_left: u64,
    /// For a scan of the latest rows of each prefix.
    pub group: Option<PrefixProgress>,
    /// For a scan that aggregates.
    pub totals: Option<Totals>,
    pub position: Position,
    /// For a snapshot scan: the sequence number that all of it is read at.
    pub sequence: Option<u64>,
}

/// What comes next, in the scan's direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Nothing was read yet.
    Start,
    /// This row is next, from its beginning.
    At(Bytes),
    /// Everything up to and including this row has been read.
    After(Bytes),
    /// A row too large for a block: its cells up to this one were sent, as of this sequence number. Or it is unseen: those cells are
    /// not visible.
    Within { row: Bytes, sequence: u64, cell: CellAt, unseen: bool },
}

/// The last cell that was sent of a row in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellAt {
    pub family: Bytes,
    pub qualifier: Bytes,
    pub timestamp: i64,
    pub sequence: u64,
}

impl ResumeToken {
    /// Encodes the token.
    ///
    /// # Errors
    /// [`Malformed`] for rows beyond the maximal length.
    pub fn encode(&self) -> Result<Bytes, Malformed> {
        let mut out = Vec::with_capacity(64);
        let flag = |flag: u8, set: bool| if set { flag } else { 0 };
        out.push(VERSION);
        out.push(
            flag(GROUP, self.group.is_some())
                | flag(TOTALS, self.totals.is_some())
                | flag(SNAPSHOT, self.sequence.is_some())
                | flag(LIMITED, self.limit_left.is_some())
                | flag(REVERSE, self.reverse),
        );
        out.short(&self.region.start)?;
        out.short(&self.region.end)?;
        out.u64(self.limit_left.unwrap_or(0));
        out.u64(self.offset_left);
        if let Some(group) = &self.group {
            out.short(&group.prefix)?;
            out.u32(group.returned);
        }
        if let Some(totals) = &self.totals {
            totals.encode(&mut out);
        }
        match &self.position {
            Position::Start => out.push(0),
            Position::After(row) => {
                out.push(1);
                out.short(row)?;
            }
            Position::At(row) => {
                out.push(3);
                out.short(row)?;
            }
            Position::Within { row, sequence, cell, unseen } => {
                out.push(if *unseen { 4 } else { 2 });
                out.short(row)?;
                out.u64(*sequence);
                out.short(&cell.family)?;
                out.short(&cell.qualifier)?;
                out.i64(cell.timestamp);
                out.u64(cell.sequence);
            }
        }
        if let Some(sequence) = self.sequence {
            out.u64(sequence);
        }
        Ok(out.into())
    }

    /// Decodes a token that a client sent back. `reverse` is the direction of the present request.
    pub fn decode(token: Bytes, reverse: bool) -> Result<Self, Invalid> {
        let token = Self::parse(token)
            .map_err(|error| Invalid::new(format!("the resume token cannot be used: {error}; restart the scan")))?;
        if token.reverse != reverse {
            return Err(Invalid::new("the resume token belongs to a scan in the other direction"));
        }
        Ok(token)
    }

    fn parse(token: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(token);
        if reader.u8()? != VERSION {
            return Err(Malformed("this server does not know its version"));
        }
        let flags = reader.u8()?;
        if flags & !(REVERSE | LIMITED | GROUP | TOTALS | SNAPSHOT) != 0 {
            return Err(Malformed("it has flags that this server does not know"));
        }
        let region = KeyRange::new(reader.short()?, reader.short()?).map_err(|_| Malformed("its range is empty"))?;
        let limit = reader.u64()?;
        let offset_left = reader.u64()?;
        let group = match flags & GROUP {
            0 => None,
            _ => Some(PrefixProgress { prefix: reader.short()?, returned: reader.u32()? }),
        };
        let totals = if flags & TOTALS != 0 { Some(Totals::decode(&mut reader)?) } else { None };
        let position = read_position(&mut reader)?;
        let sequence = if flags & SNAPSHOT != 0 { Some(reader.u64()?) } else { None };
        reader.finish()?;
        let limit_left = (flags & LIMITED != 0).then_some(limit);
        Ok(Self { reverse: flags & REVERSE != 0, region, limit_left, offset_left, group, totals, position, sequence })
    }
}

fn read_position(reader: &mut Reader) -> Result<Position, Malformed> {
    let kind = reader.u8()?;
    match kind {
        0 => Ok(Position::Start),
        1 => Ok(Position::After(reader.short()?)),
        3 => Ok(Position::At(reader.short()?)),
        2 | 4 => Ok(Position::Within {
            row: reader.short()?,
            sequence: reader.u64()?,
            cell: CellAt {
                family: reader.short()?,
                qualifier: reader.short()?,
                timestamp: i64::from_le_bytes(reader.array()?),
                sequence: reader.u64()?,
            },
            unseen: kind == 4,
        }),
        _ => Err(Malformed("its position is of an unknown kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::aggregate::Number;

    fn sample(position: Position) -> ResumeToken {
        ResumeToken {
            reverse: true,
            region: KeyRange::new("b", "k").unwrap(),
            limit_left: Some(7),
            offset_left: 3,
            group: None,
            totals: None,
            position,
            sequence: None,
        }
    }

    fn extended() -> Vec<ResumeToken> {
        let integers = Totals {
            rows: 9,
            values: 8,
            sum: Number::Integer(-7),
            extremes: Some((Number::Integer(-9), Number::Integer(2))),
        };
        let floats = Totals { sum: Number::Float(1.5), extremes: None, ..integers };
        let group = PrefixProgress { prefix: "cc".into(), returned: 2 };
        let plain = sample(Position::After("c".into()));
        vec![
            ResumeToken { group: Some(group.clone()), ..plain.clone() },
            ResumeToken { totals: Some(integers), ..plain.clone() },
            ResumeToken { sequence: Some(12), ..plain.clone() },
            ResumeToken { group: Some(group), totals: Some(floats), sequence: Some(12), ..plain },
        ]
    }

    #[test]
    fn tokens_round_trip() {
        let cell = CellAt { family: "f".into(), qualifier: "q".into(), timestamp: -1, sequence: 9 };
        for position in [
            Position::Start,
            Position::After("c".into()),
            Position::At("c".into()),
            Position::Within { row: "c".into(), sequence: 12, cell: cell.clone(), unseen: false },
            Position::Within { row: "c".into(), sequence: 12, cell, unseen: true },
        ] {
            let token = sample(position);
            assert_eq!(ResumeToken::decode(token.encode().unwrap(), true).unwrap(), token);
            let token = ResumeToken { sequence: Some(12), ..token };
            assert_eq!(ResumeToken::decode(token.encode().unwrap(), true).unwrap(), token);
        }
        for token in extended() {
            assert_eq!(ResumeToken::decode(token.encode().unwrap(), true).unwrap(), token);
        }
    }

    /// Clients keep tokens across upgrades of the servers: these bytes must stay readable.
    #[test]
    fn the_layout_is_fixed() {
        let bytes = sample(Position::After("c".into())).encode().unwrap();
        assert_eq!(
            &bytes[..],
            [&[1u8, 3][..], &[1, 0, b'b', 1, 0, b'k'], &7u64.to_le_bytes(), &3u64.to_le_bytes(), &[1, 1, 0, b'c']]
                .concat()
        );
        let bytes = extended()[0].encode().unwrap();
        let group = [2, 0, b'c', b'c', 2, 0, 0, 0];
        assert_eq!(
            &bytes[..],
            [
                &[1u8, 7][..],
                &[1, 0, b'b', 1, 0, b'k'],
                &7u64.to_le_bytes(),
                &3u64.to_le_bytes(),
                &group,
                &[1, 1, 0, b'c']
            ]
            .concat()
        );
    }

    #[test]
    fn a_token_of_the_other_direction_is_refused() {
        let refused = ResumeToken::decode(sample(Position::Start).encode().unwrap(), false).unwrap_err();
        assert!(refused.what.contains("other direction"), "{refused}");
    }

    #[test]
    fn every_cut_token_is_refused() {
        let whole = sample(Position::After("c".into())).encode().unwrap();
        for len in 0..whole.len() {
            assert!(ResumeToken::decode(whole.slice(..len), true).is_err(), "cut at {len}");
        }
        for whole in extended().iter().map(|token| token.encode().unwrap()) {
            for len in 0..whole.len() {
                assert!(ResumeToken::decode(whole.slice(..len), true).is_err(), "cut at {len}");
            }
        }
    }
}
