//! One region as a group's log describes it: its descriptor and the schema it is under.
//!
//! It is kept with the region, in the region's durable point, not with the group: a region that replays from an old point
//! must see the schema of that time.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::cell::Cells;
use terrane_types::versions::FormatVersions;
use terrane_types::{ByteWriter as _, KeyRange, RegionDescriptor, RegionEpoch, TableSchema};

use crate::group::reply::Reply;
use crate::operation::{Destination, WriteHeader, put_descriptor, read_descriptor, read_schema};
use crate::record::{Malformed, Reader};

/// The layout of a region's part of a durable point.
const FORMAT: u8 = 1;
/// Its versions.
pub const VERSIONS: FormatVersions =
    FormatVersions { name: "region state", oldest: FORMAT as u32, newest: FORMAT as u32 };

/// A region as of the last applied entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionState {
    pub descriptor: RegionDescriptor,
    pub schema: Arc<TableSchema>,
    /// The rows of the region that was created with the table and that this one came from by splits and merges. Its ends are
    /// boundaries that were asked for: no automatic merge removes them.
    pub planned: KeyRange,
    /// Where the region moves, if it is frozen for that: no request is answered.
    pub moving: Option<Destination>,
}

impl RegionState {
    /// The region's part of its durable point.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = vec![FORMAT];
        put_descriptor(&mut out, &self.descriptor);
        out.bytes(&self.schema.encode());
        out.bytes(&self.planned.start);
        out.bytes(&self.planned.end);
        out.option(self.moving.as_ref(), |out, moving| moving.encode(out));
        out.into()
    }

    pub fn decode(record: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(record);
        if reader.u8()? != FORMAT {
            return Err(Malformed("this build does not know the version of the region's state"));
        }
        let descriptor = read_descriptor(&mut reader)?;
        let schema = Arc::new(read_schema(&reader.bytes()?)?);
        let planned = KeyRange::new(reader.bytes()?, reader.bytes()?)
            .map_err(|_| Malformed("the planned range of a region ends before it starts"))?;
        let moving = match reader.u8()? {
            0 => None,
            1 => Some(Destination::decode(&mut reader)?),
            _ => return Err(Malformed("whether a region moves is neither 0 nor 1")),
        };
        reader.finish()?;
        Ok(Self { descriptor, schema, planned, moving })
    }

    /// The same region under another schema.
    pub(super) fn under(&self, schema: &Arc<TableSchema>) -> Self {
        let descriptor = RegionDescriptor { schema_version: schema.version, ..self.descriptor.clone() };
        Self { descriptor, schema: schema.clone(), ..self.clone() }
    }

    /// Refuses a write that names a family which was dropped after the edge checked it. Cells are looked at only if the
    /// table was altered in between, which the versions tell.
    pub fn check_families<'c>(
        &self,
        header: &WriteHeader,
        cells: impl IntoIterator<Item = &'c [u8]>,
    ) -> Result<(), Reply> {
        let is_gone = |cells: &[u8]| Cells::new(cells).any(|cell| self.schema.family(cell.family).is_none());
        let is_checked = !terrane_env::planted!("a write to a dropped family is acknowledged");
        if is_checked && header.schema_version != self.schema.version && cells.into_iter().any(is_gone) {
            return Err(Reply::SchemaChanged { table: self.schema.table, version: self.schema.version });
        }
        Ok(())
    }

    /// Refuses what names the region while it moves.
    pub fn check_resting(&self) -> Result<(), Reply> {
        match self.moving {
            Some(_) => Err(Reply::Moving { region: self.descriptor.region }),
            None => Ok(()),
        }
    }

    /// Checks that a write names the present epoch, and that the region and its table accept writes.
    pub fn check_write(&self, epoch: RegionEpoch) -> Result<(), Reply> {
        if self.descriptor.epoch != epoch {
            let current = vec![self.descriptor.clone()];
            return Err(Reply::Stale { region: self.descriptor.region, current });
        }
        if !terrane_env::planted!("a frozen region takes writes") {
            self.check_resting()?;
        }
        if self.schema.disabled {
            return Err(Reply::Disabled { what: format!("table {}", self.schema.name) });
        }
        if self.schema.read_only {
            return Err(Reply::ReadOnly { what: format!("table {}", self.schema.name) });
        }
        Ok(())
    }
}
