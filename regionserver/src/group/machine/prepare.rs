//! The leader's half of the state machine: what a proposal becomes when it is packed into an entry.
//!
//! The evaluator decides; here its decisions meet the state. The state is locked for the look-ups only, so that evaluating
//! does not hold up applying.

use std::sync::Arc;

use terrane_raft::{Packing, Prepared};

use super::GroupMachine;
use crate::evaluate::{Columns, Numbers, Target};
use crate::group::proposal::{Proposal, Write};
use crate::group::reply::Reply;
use crate::operation::{Split, encode_tick};

impl GroupMachine {
    /// Appends the operation that a proposal becomes to the entry that is being packed.
    pub(super) fn prepare_proposal(
        &self,
        packing: &Packing,
        proposal: &Proposal,
        entry: &mut Vec<u8>,
    ) -> Prepared<Reply> {
        match proposal {
            Proposal::Write(write) => self.prepare_write(packing, write, entry),
            // What changes regions or schemas is packed alone, and clears what the evaluator has recorded.
            Proposal::ChangeTables(_)
            | Proposal::Split(_)
            | Proposal::Merge(_)
            | Proposal::Freeze(_)
            | Proposal::Unfreeze(_)
            | Proposal::Depart(_)
            | Proposal::Adopt { .. }
            | Proposal::Refuse(_)
            | Proposal::Load { .. }
                if !packing.alone =>
            {
                Prepared::WhenLanded
            }
            Proposal::Adopt { least_stamp, .. } if packing.stamp < *least_stamp => Prepared::Later,
            Proposal::ChangeTables(change) => self.packed_alone(|entry| change.encode(entry), entry),
            Proposal::Split(split) => self.prepare_split(split, entry),
            Proposal::Merge(merge) => self.packed_alone(|entry| merge.encode(entry), entry),
            Proposal::Freeze(freeze) => self.packed_alone(|entry| freeze.encode(entry), entry),
            Proposal::Unfreeze(unfreeze) => self.packed_alone(|entry| unfreeze.encode(entry), entry),
            Proposal::Depart(depart) => self.packed_alone(|entry| depart.encode(entry), entry),
            Proposal::Adopt { adopt, .. } => self.packed_alone(|entry| adopt.encode(entry), entry),
            Proposal::Refuse(refuse) => self.packed_alone(|entry| refuse.encode(entry), entry),
            Proposal::Load { least_stamp, .. } if packing.stamp < *least_stamp => Prepared::Later,
            Proposal::Load { load, .. } => self.prepare_load(packing, load, entry),
            Proposal::Settle(settle) => {
                settle.encode(entry);
                Prepared::Packed
            }
            Proposal::Compare(compare) => {
                compare.encode(entry);
                Prepared::Packed
            }
            Proposal::Tick => {
                encode_tick(entry);
                Prepared::Packed
            }
        }
    }

    /// Packs what changes regions or schemas.
    pub(super) fn packed_alone(&self, encode: impl FnOnce(&mut Vec<u8>), entry: &mut Vec<u8>) -> Prepared<Reply> {
        encode(entry);
        self.evaluator.lock().forget();
        Prepared::PackedAlone
    }

    /// Packs a write, as far as what is applied here allows.
    fn prepare_write(&self, packing: &Packing, write: &Write, entry: &mut Vec<u8>) -> Prepared<Reply> {
        let mut evaluator = self.evaluator.lock();
        if packing.alone && terrane_env::buggify!("a leader forgets the columns it knows") {
            evaluator.forget();
        }
        let (numbers, target) = {
            let inner = self.inner.lock();
            let region = match inner.state.check_write(&write.header) {
                Ok(region) => region,
                Err(refusal) => return Prepared::Refused(refusal),
            };
            let cells = write.rows().iter().map(|row| &row.cells.as_bytes()[..]);
            if let Err(refusal) = region.check_families(&write.header, cells) {
                return Prepared::Refused(refusal);
            }
            let Some(hosted) = inner.hosted.get(&write.header.region) else {
                return Prepared::Refused(inner.state.stale(write.header.region));
            };
            let numbers = evaluator.look_up(packing, inner.windows.get(&hosted.region), write);
            let needed = numbers != Numbers::Plain || evaluator.is_watching();
            (numbers, needed.then(|| (hosted.clone() as Arc<dyn Columns>, region.schema.clone())))
        };
        let target = target.as_ref().map(|(columns, schema)| Target { columns, schema });
        match (numbers, target) {
            (Numbers::InFlight, _) => Prepared::WhenLanded,
            (Numbers::Each(known), Some(target)) => evaluator.pack(packing, write, &target, known, entry),
            (_, target) => evaluator.pack_plain(packing, write, target.as_ref(), entry),
        }
    }

    fn prepare_split(&self, split: &Split, entry: &mut Vec<u8>) -> Prepared<Reply> {
        match split.encode(entry) {
            Ok(()) => {
                self.evaluator.lock().forget();
                Prepared::PackedAlone
            }
            Err(error) => Prepared::Refused(Reply::Invalid { what: error.to_string() }),
        }
    }
}
