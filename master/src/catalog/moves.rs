//! Moves of regions as values: which regions move, where to and why, and how the latest moves ended.

use std::collections::{BTreeMap, VecDeque};

use terrane_types::{GroupId, RegionDescriptor, RegionEpoch, RegionId, ServerId, TableId};

use super::codec::{ByteWriter as _, DecodeError, Reader};
use super::regions::{decode_descriptor, encode_descriptor};

/// Ended moves that are remembered, for the callers that follow them and so that a region rests after a move.
const ENDED_MAX: usize = 256;

/// The id of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveId(pub u64);

impl std::fmt::Display for MoveId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a region moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// An administrator asked for it.
    Operator,
    /// Servers have different numbers of regions, bytes or requests.
    Balance,
    /// It is merged with a neighbour in the other group afterwards.
    Merge,
}

impl MoveReason {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Balance => "balance",
            Self::Merge => "merge",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Operator => 0,
            Self::Balance => 1,
            Self::Merge => 2,
        }
    }

    fn of_code(code: u8) -> Result<Self, DecodeError> {
        [Self::Operator, Self::Balance, Self::Merge]
            .into_iter()
            .find(|reason| reason.code() == code)
            .ok_or(DecodeError::Tag { what: "reason of a move", found: code })
    }
}

/// A move to begin; its id is assigned when the edit is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovePlan {
    /// The region.
    pub region: RegionId,
    /// Its epoch: a plan for an older region is refused.
    pub epoch: RegionEpoch,
    /// The group that it moves to.
    pub to: GroupId,
    /// The server that is to lead that group afterwards, if it matters.
    pub lead: Option<ServerId>,
    /// What asks for it.
    pub reason: MoveReason,
    /// Why, for people.
    pub why: String,
    /// The neighbour that the master merges it with afterwards, without being asked.
    pub merge_with: Option<RegionId>,
}

/// A move that has begun and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionMove {
    /// The region as it was when the move began.
    pub region: RegionDescriptor,
    /// The group that it moves to.
    pub to: GroupId,
    /// The server that is to lead that group afterwards, if it matters.
    pub lead: Option<ServerId>,
    /// What asks for it.
    pub reason: MoveReason,
    /// Why, for people.
    pub why: String,
    /// The neighbour that the master merges it with afterwards, without being asked.
    pub merge_with: Option<RegionId>,
    /// Why it is to be undone, if it still can be.
    pub cancelled: Option<String>,
    /// The stamp of the entry that began it, in milliseconds since 1970.
    pub since_ms: u64,
}

/// How a move ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveEnd {
    /// The region is in its new group.
    Moved(RegionDescriptor),
    /// The region stayed, and why.
    Undone(String),
}

/// A move that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedMove {
    /// Its id.
    pub id: MoveId,
    /// The region.
    pub region: RegionId,
    /// The group that it was to move to.
    pub to: GroupId,
    /// The neighbour that the master merges it with.
    pub merge_with: Option<RegionId>,
    /// How it ended.
    pub end: MoveEnd,
    /// The stamp of the entry that ended it, in milliseconds since 1970.
    pub ended_ms: u64,
}

/// The unfinished moves, and the latest ended ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    by_id: BTreeMap<MoveId, RegionMove>,
    ended: VecDeque<EndedMove>,
}

impl Moves {
    /// The unfinished move of this id.
    pub fn get(&self, id: MoveId) -> Option<&RegionMove> {
        self.by_id.get(&id)
    }

    /// The unfinished moves, by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (MoveId, &RegionMove)> {
        self.by_id.iter().map(|(id, known)| (*id, known))
    }

    /// The unfinished move of a region.
    pub fn of_region(&self, region: RegionId) -> Option<(MoveId, &RegionMove)> {
        self.iter().find(|(_, known)| known.region.region == region)
    }

    /// The unfinished moves of a table's regions.
    pub fn of_table(&self, table: TableId) -> impl Iterator<Item = (MoveId, &RegionMove)> {
        self.iter().filter(move |(_, known)| known.region.table == table)
    }

    /// The latest ended moves, oldest first.
    pub fn ended(&self) -> impl DoubleEndedIterator<Item = &EndedMove> {
        self.ended.iter()
    }

    /// How a move ended; `None` if it has not, or so long ago that it is forgotten.
    pub fn end_of(&self, id: MoveId) -> Option<&EndedMove> {
        self.ended().rev().find(|ended| ended.id == id)
    }

    pub(super) fn get_mut(&mut self, id: MoveId) -> Option<&mut RegionMove> {
        self.by_id.get_mut(&id)
    }

    /// Adds a move; returns the one that had its id, which is a defect.
    pub(super) fn add(&mut self, id: MoveId, known: RegionMove) -> Option<RegionMove> {
        self.by_id.insert(id, known)
    }

    pub(super) fn end(&mut self, ended: EndedMove) {
        self.by_id.remove(&ended.id);
        self.ended.push_back(ended);
        while self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.list(self.by_id.iter(), |out, (id, known)| {
            out.u64(id.0);
            known.encode(out);
        });
        out.list(self.ended.iter(), |out, ended| ended.encode(out));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let by_id = from.list(|from| Ok::<_, DecodeError>((MoveId(from.u64()?), RegionMove::decode(from)?)))?;
        let ended = from.list(EndedMove::decode)?;
        Ok(Self { by_id: by_id.into_iter().collect(), ended: ended.into() })
    }
}

fn decode_partner(from: &mut Reader<'_>) -> Result<Option<RegionId>, DecodeError> {
    Ok(Some(RegionId(from.u64()?)).filter(|region| region.0 != 0))
}

impl MovePlan {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.region.0);
        out.u64(self.epoch.0);
        out.u64(self.to.0);
        out.u64(self.lead.map_or(0, |server| server.0));
        out.u8(self.reason.code());
        out.text(&self.why);
        out.u64(self.merge_with.map_or(0, |region| region.0));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            region: RegionId(from.u64()?),
            epoch: RegionEpoch(from.u64()?),
            to: GroupId(from.u64()?),
            lead: Some(ServerId(from.u64()?)).filter(|server| server.0 != 0),
            reason: MoveReason::of_code(from.u8()?)?,
            why: from.text()?,
            merge_with: decode_partner(from)?,
        })
    }
}

impl RegionMove {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_descriptor(&self.region, out);
        out.u64(self.to.0);
        out.u64(self.lead.map_or(0, |server| server.0));
        out.u8(self.reason.code());
        out.text(&self.why);
        out.u64(self.merge_with.map_or(0, |region| region.0));
        out.u8(u8::from(self.cancelled.is_some()));
        out.text(self.cancelled.as_deref().unwrap_or_default());
        out.u64(self.since_ms);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (region, to) = (decode_descriptor(from)?, GroupId(from.u64()?));
        let lead = Some(ServerId(from.u64()?)).filter(|server| server.0 != 0);
        let (reason, why) = (MoveReason::of_code(from.u8()?)?, from.text()?);
        let merge_with = decode_partner(from)?;
        let cancelled = match (from.u8()?, from.text()?) {
            (0, text) if text.is_empty() => None,
            (1, text) => Some(text),
            (found, _) => return Err(DecodeError::Tag { what: "mark of a cancelled move", found }),
        };
        Ok(Self { region, to, lead, reason, why, merge_with, cancelled, since_ms: from.u64()? })
    }
}

impl MoveEnd {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Undone(why) => {
                out.u8(0);
                out.text(why);
            }
            Self::Moved(region) => {
                out.u8(1);
                encode_descriptor(region, out);
            }
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.u8()? {
            0 => Ok(Self::Undone(from.text()?)),
            1 => Ok(Self::Moved(decode_descriptor(from)?)),
            found => Err(DecodeError::Tag { what: "end of a move", found }),
        }
    }
}

impl EndedMove {
    fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.id.0);
        out.u64(self.region.0);
        out.u64(self.to.0);
        out.u64(self.merge_with.map_or(0, |region| region.0));
        self.end.encode(out);
        out.u64(self.ended_ms);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: MoveId(from.u64()?),
            region: RegionId(from.u64()?),
            to: GroupId(from.u64()?),
            merge_with: decode_partner(from)?,
            end: MoveEnd::decode(from)?,
            ended_ms: from.u64()?,
        })
    }
}
