//! The leader's half of the state machine: what an operation becomes when it is packed into an entry.
//!
//! The decisions are the evaluator's; here it meets the state. The state is locked for the look-ups alone, so that
//! evaluating does not hold up applying.

use std::sync::Arc;

use bytes::Bytes;
use terrane_raft::{Packing, Prepared};

use super::GroupMachine;
use crate::evaluate::{Columns, Numbers, Target};
use crate::operation::{self, Submitted};
use crate::record::Malformed;
use crate::reply::Reply;

impl GroupMachine {
    /// Appends the logged form of an operation to the entry that is being packed.
    pub(super) fn prepare_operation(
        &self,
        packing: &Packing,
        operation: &[u8],
        entry: &mut Vec<u8>,
    ) -> Prepared<Bytes> {
        let prepared = match Submitted::read(operation) {
            Ok(Some(write)) => self.prepare_write(packing, &write, operation, entry),
            Ok(None) => Ok(self.prepare_other(packing, operation, entry)),
            Err(error) => Err(error),
        };
        prepared.unwrap_or_else(|error| Prepared::Refused(Reply::Invalid { what: error.to_string() }.encode()))
    }

    /// Packs a write, as far as what is applied here allows.
    fn prepare_write(
        &self,
        packing: &Packing,
        write: &Submitted<'_>,
        operation: &[u8],
        entry: &mut Vec<u8>,
    ) -> Result<Prepared<Bytes>, Malformed> {
        let mut evaluator = self.evaluator.lock();
        let (numbers, target) = {
            let inner = self.inner.lock();
            let region = match inner.state.check_write(&write.header) {
                Ok(region) => region,
                Err(refusal) => return Ok(Prepared::Refused(refusal.encode())),
            };
            let cells = write.rows().map_while(Result::ok).map(|row| row.cells);
            if let Err(refusal) = region.check_families(&write.header, cells) {
                return Ok(Prepared::Refused(refusal.encode()));
            }
            let Some(hosted) = inner.hosted.get(&write.header.region) else {
                return Ok(Prepared::Refused(inner.state.stale(write.header.region).encode()));
            };
            let numbers = evaluator.look_up(packing, inner.windows.get(&hosted.region), write)?;
            let needed = numbers != Numbers::Plain || evaluator.is_watching();
            (numbers, needed.then(|| (hosted.clone() as Arc<dyn Columns>, region.schema.clone())))
        };
        let target = target.as_ref().map(|(columns, schema)| Target { columns, schema });
        match (numbers, target) {
            (Numbers::InFlight, _) => Ok(Prepared::WhenLanded),
            (Numbers::Each(known), Some(target)) => evaluator.pack(packing, write, &target, known, operation, entry),
            (_, target) => evaluator.pack_plain(packing, write, target.as_ref(), operation, entry),
        }
    }

    fn prepare_other(&self, packing: &Packing, operation: &[u8], entry: &mut Vec<u8>) -> Prepared<Bytes> {
        let alone = operation::changes_regions(operation);
        if alone && !packing.alone {
            return Prepared::WhenLanded;
        }
        entry.extend_from_slice(operation);
        if !alone {
            return Prepared::Packed;
        }
        // Regions and schemas are others afterwards.
        self.evaluator.lock().forget();
        Prepared::PackedAlone
    }
}
