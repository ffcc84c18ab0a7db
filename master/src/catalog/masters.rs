//! The set of masters, from when it is changed online for the first time.
//!
//! A change is journaled when it begins, with the numbers that new masters get, and when it ends. What has been done in
//! between follows from the members of the masters' group (`crate::procedures::masters_change`), so any later leader
//! continues it.
//!
//! Until the first change the set is the one that the cluster was founded with; it is recorded with that change.
//!
//! Invariants: one change at a time; there are 1, 3 or 5 masters; every edit names the version of the set that it was made
//! for; a number is given once, since it contains an index of the log that is later than every former one of its place.

use std::collections::BTreeSet;

use super::codec::{ByteWriter as _, DecodeError, Reader, flag};
use super::{Catalog, Outcome, Refusal, tag};
use crate::masters::numbers::{Peer, check_count};

/// A change of the set to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MastersPlan {
    /// The version of the set that it was made for.
    pub version: u64,
    /// The present masters; they count if the set was never recorded.
    pub present: Vec<Peer>,
    /// The masters to add.
    pub add: Vec<Peer>,
    /// The addresses of those to remove.
    pub remove: Vec<String>,
}

/// An edit of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MastersEdit {
    /// The intent to change it.
    Begin(MastersPlan),
    /// The intent to undo the change, if it still can be.
    Undo { version: u64 },
    /// The change has ended: it was made, or undone.
    End { version: u64, undone: bool },
}

/// An unfinished change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MastersChange {
    /// The masters that are added.
    pub add: Vec<Peer>,
    /// The masters that are removed.
    pub remove: Vec<Peer>,
    /// Whether an administrator wants it undone.
    pub undo: bool,
    /// The stamp of its begin.
    pub since_ms: u64,
}

/// The set of masters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MasterSet {
    /// Raised by every change; 0: never changed.
    pub version: u64,
    /// The masters, by place; empty until the first change. During a change: those before it.
    pub present: Vec<Peer>,
    /// The change that is under way.
    pub change: Option<MastersChange>,
}

impl MasterSet {
    /// All masters, with those that are being added.
    pub fn all(&self) -> Vec<Peer> {
        let added = self.change.iter().flat_map(|change| &change.add);
        self.present.iter().chain(added).cloned().collect()
    }

    /// Whether the master with this number is being added.
    pub fn is_adding(&self, number: u64) -> bool {
        self.change.iter().flat_map(|change| &change.add).any(|peer| peer.number == number)
    }

    /// The masters after the change.
    pub fn after(&self) -> Vec<Peer> {
        let Some(change) = &self.change else { return self.present.clone() };
        let mut after: Vec<Peer> = self.all().into_iter().filter(|peer| !change.remove.contains(peer)).collect();
        after.sort_by_key(Peer::place);
        after
    }

    fn begin(&mut self, plan: &MastersPlan, stamp: u64) -> Result<(), Refusal> {
        self.check_version(plan.version)?;
        if self.change.is_some() {
            return Err(Refusal::Changed("the masters are being changed already".to_owned()));
        }
        let peers = if self.present.is_empty() { plan.present.clone() } else { self.present.clone() };
        let (remove, kept): (Vec<Peer>, Vec<Peer>) =
            peers.iter().cloned().partition(|peer| plan.remove.contains(&peer.address));
        let occupied: BTreeSet<usize> = peers.iter().chain(&plan.add).map(Peer::place).collect();
        let addresses: BTreeSet<&str> = kept.iter().chain(&plan.add).map(|peer| peer.address.as_str()).collect();
        let after = kept.len() + plan.add.len();
        let is_sound = remove.len() == plan.remove.len()
            && occupied.len() == peers.len() + plan.add.len()
            && addresses.len() == after
            && check_count(after).is_ok();
        if !is_sound {
            return Err(Refusal::Invalid(
                "the masters after a change are 1, 3 or 5, each at a place of its own".into(),
            ));
        }
        self.present = peers;
        self.change = Some(MastersChange { add: plan.add.clone(), remove, undo: false, since_ms: stamp });
        Ok(())
    }

    fn undo(&mut self, version: u64) -> Result<(), Refusal> {
        self.check_version(version)?;
        self.change.as_mut().ok_or_else(no_change)?.undo = true;
        Ok(())
    }

    fn end(&mut self, version: u64, undone: bool) -> Result<(), Refusal> {
        self.check_version(version)?;
        let after = self.after();
        self.change.take().ok_or_else(no_change)?;
        if !undone {
            self.present = after;
        }
        self.version += 1;
        Ok(())
    }

    fn check_version(&self, version: u64) -> Result<(), Refusal> {
        if version == self.version {
            return Ok(());
        }
        Err(Refusal::Changed(format!("the masters are at version {}, not {version}", self.version)))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.version);
        encode_peers(&self.present, out);
        out.u8(u8::from(self.change.is_some()));
        if let Some(change) = &self.change {
            encode_peers(&change.add, out);
            encode_peers(&change.remove, out);
            out.u8(u8::from(change.undo));
            out.u64(change.since_ms);
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (version, present) = (from.u64()?, from.list(decode_peer)?);
        let change = if flag(from)? { Some(MastersChange::decode(from)?) } else { None };
        Ok(Self { version, present, change })
    }
}

impl MastersChange {
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (add, remove) = (from.list(decode_peer)?, from.list(decode_peer)?);
        Ok(Self { add, remove, undo: flag(from)?, since_ms: from.u64()? })
    }
}

fn decode_peer(from: &mut Reader<'_>) -> Result<Peer, DecodeError> {
    Ok(Peer { number: from.u64()?, address: from.text()? })
}

impl MastersEdit {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Begin(plan) => {
                out.tagged(tag::BEGIN_MASTERS, &[plan.version]);
                encode_peers(&plan.present, out);
                encode_peers(&plan.add, out);
                out.list(plan.remove.iter(), |out, address| out.text(address));
            }
            Self::Undo { version } => out.tagged(tag::UNDO_MASTERS, &[*version]),
            Self::End { version, undone } => {
                out.tagged(tag::END_MASTERS, &[*version]);
                out.u8(u8::from(*undone));
            }
        }
    }

    /// Decodes the edit with this tag.
    pub(super) fn decode(tag: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = from.u64()?;
        Ok(match tag {
            tag::BEGIN_MASTERS => Self::Begin(MastersPlan {
                version,
                present: from.list(decode_peer)?,
                add: from.list(decode_peer)?,
                remove: from.list(Reader::text)?,
            }),
            tag::UNDO_MASTERS => Self::Undo { version },
            tag::END_MASTERS => Self::End { version, undone: flag(from)? },
            found => return Err(DecodeError::Tag { what: "edit of the masters", found }),
        })
    }
}

impl Catalog {
    /// The set of masters.
    pub const fn masters(&self) -> &MasterSet {
        &self.masters
    }

    pub(super) fn edit_masters(&mut self, edit: &MastersEdit, stamp: u64) -> Result<Outcome, Refusal> {
        match edit {
            MastersEdit::Begin(plan) => self.masters.begin(plan, stamp),
            MastersEdit::Undo { version } => self.masters.undo(*version),
            MastersEdit::End { version, undone } => self.masters.end(*version, *undone),
        }
        .map(|()| Outcome::Done)
    }
}

fn encode_peers(peers: &[Peer], out: &mut Vec<u8>) {
    out.list(peers.iter(), |out, peer| {
        out.u64(peer.number);
        out.text(&peer.address);
    });
}

fn no_change() -> Refusal {
    Refusal::NotFound("a change of the masters".to_owned())
}
