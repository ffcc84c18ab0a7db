//! Draws what log records and peer frames consist of.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::fuzzing::Dice;
use terrane_types::{GroupId, ReplicaId, ServerId};

use crate::GroupSpec;
use crate::log::Mark;
use crate::proposals::entry::{Header, Sequence};
use crate::types::{LogId, Member, Membership, Packed, Payload, StoredMembership, Vote, log_id};

/// The index of an entry: another one can follow it.
pub(crate) fn index(dice: &mut Dice) -> u64 {
    dice.number().min(u64::MAX - 1)
}

pub(crate) fn some_id(dice: &mut Dice) -> LogId {
    log_id(dice.number(), index(dice))
}

pub(crate) fn vote(dice: &mut Dice, term: u64) -> Vote {
    let replica = ReplicaId(dice.number());
    if dice.flag() { Vote::new_committed(term, replica) } else { Vote::new(term, replica) }
}

pub(crate) fn membership(dice: &mut Dice) -> Membership {
    let mut members = BTreeMap::new();
    for _ in 0..1 + dice.below(5) {
        members.insert(ReplicaId(dice.number()), Member { server: ServerId(dice.number()) });
    }
    let mut configurations = Vec::new();
    for _ in 0..1 + dice.below(2) {
        let voters: BTreeSet<ReplicaId> = members.keys().copied().filter(|_| dice.flag()).collect();
        configurations.push(if voters.is_empty() { members.keys().copied().collect() } else { voters });
    }
    Membership::new(configurations, members).expect("all voters are members")
}

pub(crate) fn payload(dice: &mut Dice) -> Payload {
    match dice.below(4) {
        0 => Payload::Blank,
        1 => Payload::Membership(membership(dice)),
        _ => Payload::Normal(Packed(dice.bytes(400).into())),
    }
}

pub(crate) fn spec(dice: &mut Dice, group: GroupId) -> GroupSpec {
    let members = dice.list(4, |dice| (ReplicaId(dice.number()), ServerId(dice.number()))).into_iter().collect();
    GroupSpec { group, replica: ReplicaId(dice.number()), members }
}

/// A header whose time is logged, or is what the stamp implies.
pub(crate) fn header(dice: &mut Dice) -> Header {
    let stamp = dice.number();
    let time = if dice.flag() { stamp.saturating_sub(500) } else { dice.number().min(stamp.saturating_sub(501)) };
    Header { term: dice.number(), ordinal: dice.number(), stamp, time, released: dice.number() }
}

/// A state as of some entry.
pub(crate) fn mark(dice: &mut Dice) -> Mark {
    let log_id = some_id(dice);
    let numbers = [dice.number(), dice.number(), dice.number(), dice.number()];
    let [term, ordinal, stamp, released] = numbers;
    let membership = StoredMembership::new(Some(log_id), membership(dice));
    Mark { log_id, membership, sequence: Sequence { term, ordinal, stamp, released } }
}
