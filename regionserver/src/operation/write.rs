//! Mutations of rows of one region: the operation that the log exists for.
//!
//! What the log holds is final: the leader has evaluated conditions and increments, cells carry their timestamps, and a
//! row whose caller is owed more than success carries its result.

use bytes::Bytes;
use terrane_env::trace::{TRACE_CONTEXT_BYTES, TraceContext};
use terrane_types::cell::stamp_in_place;
use terrane_types::{ByteWriter as _, RegionEpoch, RegionId};

use super::{FORMAT, WRITE};
use crate::record::{Malformed, Reader};
use crate::window::ClientId;

/// Bytes of a Write before its rows, and of a row before its key.
pub const WRITE_HEADER_BYTES: usize = 2 + 8 + 8 + 8 + 16 + 8 + 1 + 4;
pub const ROW_HEADER_BYTES: usize = 8 + 8 + 1 + 2 + 4;

/// A Write's flag: all of its rows are applied, or none.
const ATOMIC: u8 = 1;
/// A Write's flag: it was made for one version of the schema, and has no effect under another.
const EXACT_SCHEMA: u8 = 2;
/// A Write's flag: the context of its trace follows.
const TRACED: u8 = 4;

/// A row's flag: a result follows the cells.
const RESULT: u8 = 1;
/// A row's flag: nothing of it is applied and its number is not noted, because it was applied before, is too old to be
/// known, or is postponed.
const UNTRACKED: u8 = 2;

/// What a Write says about all its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHeader {
    pub region: RegionId,
    pub epoch: RegionEpoch,
    /// The version of the schema under which its families were checked.
    pub schema_version: u64,
    /// Exactly-once: the client, and the lowest operation number it still waits for.
    pub client: ClientId,
    pub lowest_unsettled: u64,
    /// All rows or none.
    pub atomic: bool,
    /// It was made for exactly this `schema_version`.
    pub exact_schema: bool,
    /// The trace that it belongs to, if one is recorded: what replicas do with it are parts of this span.
    pub trace: Option<TraceContext>,
}

/// Mutations of rows of one region, as a replica reads them from its log.
#[derive(Clone)]
pub struct LoggedWrite {
    pub header: WriteHeader,
    rows: Reader,
    left: usize,
}

/// One row's mutation in the log: the unit of atomicity and of exactly-once. Read rows share the entry's memory (`B` is
/// [`Bytes`]); the leader writes rows that it borrows (`B` is `&[u8]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRow<B> {
    /// The client's number for it; 0: it has none.
    pub operation: u64,
    /// When the client first tried it.
    pub first_try_ms: u64,
    pub row: B,
    /// What is applied, packed.
    pub cells: B,
    /// A [`super::RowResult`], if the caller is owed more than success.
    pub result: Option<B>,
    /// Nothing of it is applied, and its number is not noted.
    pub untracked: bool,
}

impl LoggedWrite {
    pub(super) fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let mut header = WriteHeader {
            region: RegionId(reader.u64()?),
            epoch: RegionEpoch(reader.u64()?),
            schema_version: reader.u64()?,
            client: reader.array()?,
            lowest_unsettled: reader.u64()?,
            atomic: false,
            exact_schema: false,
            trace: None,
        };
        let flags = reader.u8()?;
        header.set_flags(flags)?;
        if flags & TRACED != 0 {
            let context = TraceContext::from_bytes(&reader.array::<TRACE_CONTEXT_BYTES>()?);
            header.trace = context.map_err(|_| Malformed("a write carries a malformed trace"))?;
        }
        let left = reader.count(ROW_HEADER_BYTES)?;
        Ok(Self { header, rows: reader, left })
    }

    fn row(&mut self) -> Result<LoggedRow<Bytes>, Malformed> {
        let operation = self.rows.u64()?;
        let first_try_ms = self.rows.u64()?;
        let flags = self.rows.u8()?;
        if flags & !(RESULT | UNTRACKED) != 0 {
            return Err(Malformed("a row carries flags that are not known to this build"));
        }
        let row_len = usize::from(self.rows.u16()?);
        let cells_len = usize::try_from(self.rows.u32()?).map_err(|_| Malformed("a row's cells are too long"))?;
        let (row, cells) = (self.rows.take(row_len)?, self.rows.take(cells_len)?);
        let result = if flags & RESULT != 0 { Some(self.rows.bytes()?) } else { None };
        Ok(LoggedRow { operation, first_try_ms, row, cells, result, untracked: flags & UNTRACKED != 0 })
    }

    /// Rows that are left to read.
    pub fn len(&self) -> usize {
        self.left
    }
}

impl WriteHeader {
    fn set_flags(&mut self, flags: u8) -> Result<(), Malformed> {
        if flags & !(ATOMIC | EXACT_SCHEMA | TRACED) != 0 {
            return Err(Malformed("a write carries flags that are not known to this build"));
        }
        self.atomic = flags & ATOMIC != 0;
        self.exact_schema = flags & EXACT_SCHEMA != 0;
        Ok(())
    }

    fn flags(&self) -> u8 {
        (u8::from(self.atomic) * ATOMIC)
            | (u8::from(self.exact_schema) * EXACT_SCHEMA)
            | (u8::from(self.trace.is_some()) * TRACED)
    }

    /// Bytes that it takes in the log.
    pub const fn encoded_len(&self) -> usize {
        WRITE_HEADER_BYTES + if self.trace.is_some() { TRACE_CONTEXT_BYTES } else { 0 }
    }
}

impl Iterator for LoggedWrite {
    type Item = Result<LoggedRow<Bytes>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.row())
    }
}

/// Appends a Write, row by row, to the entry that is being packed.
pub struct WriteEncoder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    /// Where the number of its rows goes.
    count_at: usize,
    rows: u32,
    /// The entry's stamp, for cells without a timestamp.
    stamp: i64,
}

impl<'a> WriteEncoder<'a> {
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, header: &WriteHeader, stamp: i64) -> Self {
        let start = out.len();
        out.extend_from_slice(&[FORMAT, WRITE]);
        out.u64(header.region.0);
        out.u64(header.epoch.0);
        out.u64(header.schema_version);
        out.extend_from_slice(&header.client);
        out.u64(header.lowest_unsettled);
        out.push(header.flags());
        if let Some(trace) = header.trace {
            out.extend_from_slice(&trace.to_bytes());
        }
        let count_at = out.len();
        out.count(0);
        Self { out, start, count_at, rows: 0, stamp }
    }

    /// Appends a row and fills the stamp into its cells that have no timestamp. Returns the cells as they are then.
    pub fn push(&mut self, row: &LoggedRow<&[u8]>) -> &[u8] {
        let LoggedRow { operation, first_try_ms, row, cells, result, untracked } = *row;
        let result_bytes = result.map_or(0, |result| 4 + result.len());
        self.out.reserve(ROW_HEADER_BYTES + row.len() + cells.len() + result_bytes);
        self.out.u64(operation);
        self.out.u64(first_try_ms);
        self.out.push((u8::from(untracked) * UNTRACKED) | (u8::from(result.is_some()) * RESULT));
        self.out.u16(u16::try_from(row.len()).expect("rows are bounded at the edge"));
        self.out.count(cells.len());
        self.out.extend_from_slice(row);
        let at = self.out.len();
        self.out.extend_from_slice(cells);
        stamp_in_place(&mut self.out[at..], self.stamp);
        if let Some(result) = result {
            self.out.bytes(result);
        }
        self.rows += 1;
        &self.out[at..at + cells.len()]
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Ends it; returns the number of its rows.
    pub fn finish(self) -> u32 {
        let at = self.count_at;
        self.out[at..at + 4].copy_from_slice(&self.rows.to_le_bytes());
        self.rows
    }
}
