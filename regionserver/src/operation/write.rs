//! Mutations of rows of one region: the operation that the log is made for.
//!
//! A Write has two forms of one layout. As it is *submitted*, by the edge to the proposer of the same process, a row may
//! carry a request: conditions, increments, what is to be returned. As it is *logged*, the leader has evaluated that: cells
//! are final, and a row that has something to tell carries its result instead. Plain rows are the same in both, so they
//! are copied and stamped in place.
//!
//! What is submitted never leaves the process, so requests (`request.rs`) have no version; the rest is on disks
//! (`docs/formats/operations.md`).

use bytes::Bytes;
use terrane_types::cell::stamp_in_place;
use terrane_types::{RegionEpoch, RegionId};

use super::{FORMAT, FORMAT_PLAIN, WRITE};
use crate::record::{Malformed, Reader, put_count, put_u64};
use crate::window::ClientId;

/// Bytes of a Write before its rows, and of a row before its key.
pub(super) const WRITE_HEADER_BYTES: usize = 2 + 8 + 8 + 8 + 16 + 8 + 1 + 4;
pub(super) const ROW_HEADER_BYTES: usize = 8 + 8 + 1 + 2 + 4;
/// Where in a Write its count of rows is.
const ROW_COUNT_AT: usize = WRITE_HEADER_BYTES - 4;

/// A Write's flag: all of its rows or none.
const ATOMIC: u8 = 1;
/// A Write's flag: it was made for one version of the schema, and has no effect under another.
const EXACT_SCHEMA: u8 = 2;
/// A Write's flag: its families were checked under its version of the schema. Without it, as older builds wrote, families
/// that are gone are left out when it is applied.
const FAMILIES_CHECKED: u8 = 4;

/// A row's flag: behind the cells is what is asked of it. In the submitted form only.
const REQUEST: u8 = 1;
/// A row's flag: behind the cells is what came of it. In the logged form only.
const RESULT: u8 = 2;
/// A row's flag: nothing of it is applied, and its number is not noted: it was applied before, or is too old to be known.
const UNTRACKED: u8 = 4;

const SHORT: Malformed = Malformed("the operation ends inside its rows");
const UNKNOWN_FLAGS: Malformed = Malformed("a row carries flags that are not known to this build");

/// What a Write says besides its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHeader {
    pub region: RegionId,
    pub epoch: RegionEpoch,
    pub schema_version: u64,
    /// Exactly-once: the client, and the lowest operation number it still waits for.
    pub client: ClientId,
    pub lowest_unsettled: u64,
    /// All rows or none.
    pub atomic: bool,
    /// It was made for this very `schema_version`.
    pub exact_schema: bool,
    /// Its families are those of this `schema_version`.
    pub families_checked: bool,
}

/// Mutations of rows of one region, as they are read at apply.
#[derive(Clone)]
pub struct Write {
    pub header: WriteHeader,
    rows: Reader,
    left: usize,
}

/// One row's mutation: the unit of atomicity and of exactly-once.
#[derive(Debug, PartialEq, Eq)]
pub struct RowWrite {
    pub operation: u64,
    pub first_try_ms: u64,
    pub row: Bytes,
    pub cells: Bytes,
    /// What came of it, if it has anything to tell.
    pub result: Option<Bytes>,
    /// Its number is not to be noted.
    pub untracked: bool,
}

impl Write {
    pub(super) fn decode(format: u8, mut reader: Reader) -> Result<Self, Malformed> {
        let mut header = WriteHeader {
            region: RegionId(reader.u64()?),
            epoch: RegionEpoch(reader.u64()?),
            schema_version: reader.u64()?,
            client: reader.array()?,
            lowest_unsettled: reader.u64()?,
            atomic: false,
            exact_schema: false,
            families_checked: false,
        };
        if format != FORMAT_PLAIN {
            header.set_flags(reader.u8()?)?;
        }
        let left = reader.count(ROW_HEADER_BYTES)?;
        Ok(Self { header, rows: reader, left })
    }

    fn row(&mut self) -> Result<RowWrite, Malformed> {
        let operation = self.rows.u64()?;
        let first_try_ms = self.rows.u64()?;
        let flags = self.rows.u8()?;
        if flags & !(RESULT | UNTRACKED) != 0 {
            return Err(UNKNOWN_FLAGS);
        }
        let row_len = usize::from(self.rows.u16()?);
        let cells_len = usize::try_from(self.rows.u32()?).map_err(|_| SHORT)?;
        let (row, cells) = (self.rows.take(row_len)?, self.rows.take(cells_len)?);
        let result = if flags & RESULT != 0 { Some(self.rows.bytes()?) } else { None };
        Ok(RowWrite { operation, first_try_ms, row, cells, result, untracked: flags & UNTRACKED != 0 })
    }

    /// Rows that are left to read.
    pub fn len(&self) -> usize {
        self.left
    }
}

impl WriteHeader {
    fn set_flags(&mut self, flags: u8) -> Result<(), Malformed> {
        if flags & !(ATOMIC | EXACT_SCHEMA | FAMILIES_CHECKED) != 0 {
            return Err(Malformed("a write carries flags that are not known to this build"));
        }
        self.atomic = flags & ATOMIC != 0;
        self.exact_schema = flags & EXACT_SCHEMA != 0;
        self.families_checked = flags & FAMILIES_CHECKED != 0;
        Ok(())
    }

    fn flags(&self) -> u8 {
        (u8::from(self.atomic) * ATOMIC)
            | (u8::from(self.exact_schema) * EXACT_SCHEMA)
            | (u8::from(self.families_checked) * FAMILIES_CHECKED)
    }
}

impl Iterator for Write {
    type Item = Result<RowWrite, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.row())
    }
}

/// A submitted Write where it lies: the leader looks at it before it copies anything.
#[derive(Clone, Copy)]
pub struct Submitted<'a> {
    pub header: WriteHeader,
    rows: &'a [u8],
}

/// One row of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmittedRow<'a> {
    pub operation: u64,
    pub first_try_ms: u64,
    pub row: &'a [u8],
    pub cells: &'a [u8],
    /// What is asked of it, if it is to be evaluated.
    pub request: Option<&'a [u8]>,
}

impl<'a> Submitted<'a> {
    /// Reads the submitted form; `None` for an operation of another kind.
    pub fn read(operation: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let &[FORMAT, WRITE, ..] = operation else { return Ok(None) };
        let (head, rows) = operation.split_at_checked(WRITE_HEADER_BYTES).ok_or(SHORT)?;
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes were taken"));
        let mut header = WriteHeader {
            region: RegionId(number(2)),
            epoch: RegionEpoch(number(10)),
            schema_version: number(18),
            client: head[26..42].try_into().expect("sixteen bytes were taken"),
            lowest_unsettled: number(42),
            atomic: false,
            exact_schema: false,
            families_checked: false,
        };
        header.set_flags(head[50])?;
        Ok(Some(Self { header, rows }))
    }

    /// The rows, one by one; ends at the first that cannot be read, with the error.
    pub fn rows(&self) -> impl Iterator<Item = Result<SubmittedRow<'a>, Malformed>> + use<'a> {
        let mut rest = self.rows;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            match split_row(rest) {
                Ok((row, after)) => {
                    rest = after;
                    Some(Ok(row))
                }
                Err(error) => {
                    rest = &[];
                    Some(Err(error))
                }
            }
        })
    }
}

fn split_row(bytes: &[u8]) -> Result<(SubmittedRow<'_>, &[u8]), Malformed> {
    let (header, body) = bytes.split_first_chunk::<ROW_HEADER_BYTES>().ok_or(SHORT)?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes were taken"));
    let (row, body) = body.split_at_checked(usize::from(u16::from_le_bytes([header[17], header[18]]))).ok_or(SHORT)?;
    let (cells, body) = take(body, [header[19], header[20], header[21], header[22]])?;
    let (request, after) = match header[16] {
        0 => (None, body),
        REQUEST => {
            let (length, body) = body.split_first_chunk::<4>().ok_or(SHORT)?;
            let (request, after) = take(body, *length)?;
            (Some(request), after)
        }
        _ => return Err(UNKNOWN_FLAGS),
    };
    Ok((SubmittedRow { operation: number(0), first_try_ms: number(8), row, cells, request }, after))
}

fn take(bytes: &[u8], length: [u8; 4]) -> Result<(&[u8], &[u8]), Malformed> {
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| SHORT)?;
    bytes.split_at_checked(length).ok_or(SHORT)
}

/// Lays a Write out row by row, behind whatever is in the buffer already.
pub struct WriteBuilder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    rows: u32,
}

/// How a row is marked in the logged form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// Its number is noted when it is applied.
    Yes,
    /// Its number is not noted.
    No,
}

impl<'a> WriteBuilder<'a> {
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>, header: &WriteHeader) -> Self {
        let start = out.len();
        out.extend_from_slice(&[FORMAT, WRITE]);
        put_u64(out, header.region.0);
        put_u64(out, header.epoch.0);
        put_u64(out, header.schema_version);
        out.extend_from_slice(&header.client);
        put_u64(out, header.lowest_unsettled);
        out.push(header.flags());
        put_count(out, 0);
        Self { out, start, rows: 0 }
    }

    /// Appends a plain row whose parts have been checked.
    pub fn push(&mut self, operation: u64, first_try_ms: u64, row: &[u8], cells: &[u8]) {
        self.put(operation, first_try_ms, 0, row, cells);
    }

    /// Appends a row that is to be evaluated.
    pub fn push_request(&mut self, operation: u64, first_try_ms: u64, row: &[u8], cells: &[u8], request: &[u8]) {
        self.put(operation, first_try_ms, REQUEST, row, cells);
        self.put_extra(request);
    }

    /// Appends a row in its logged form, stamped, with its result if it has one. Answers the cells as they are now.
    pub fn push_logged(
        &mut self,
        submitted: &SubmittedRow<'_>,
        tracked: Tracked,
        cells: &[u8],
        result: Option<&[u8]>,
        stamp: i64,
    ) -> &[u8] {
        let untracked = if tracked == Tracked::No { UNTRACKED } else { 0 };
        let flags = untracked | if result.is_some() { RESULT } else { 0 };
        self.put(submitted.operation, submitted.first_try_ms, flags, submitted.row, cells);
        let at = self.out.len() - cells.len();
        stamp_in_place(&mut self.out[at..], stamp);
        if let Some(result) = result {
            self.put_extra(result);
        }
        &self.out[at..at + cells.len()]
    }

    fn put(&mut self, operation: u64, first_try_ms: u64, flags: u8, row: &[u8], cells: &[u8]) {
        put_u64(self.out, operation);
        put_u64(self.out, first_try_ms);
        self.out.push(flags);
        self.out.extend_from_slice(&u16::try_from(row.len()).expect("rows are bounded at the edge").to_le_bytes());
        put_count(self.out, cells.len());
        self.out.extend_from_slice(row);
        self.out.extend_from_slice(cells);
        self.rows += 1;
    }

    fn put_extra(&mut self, extra: &[u8]) {
        put_count(self.out, extra.len());
        self.out.extend_from_slice(extra);
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Ends it; how many rows there are.
    pub fn finish(self) -> u32 {
        let at = self.start + ROW_COUNT_AT;
        self.out[at..at + 4].copy_from_slice(&self.rows.to_le_bytes());
        self.rows
    }

    /// What a Write takes besides its rows, and a row besides its key and cells.
    #[must_use]
    pub const fn overhead() -> (usize, usize) {
        (WRITE_HEADER_BYTES, ROW_HEADER_BYTES)
    }
}

/// Fills the entry's stamp into every cell that has no timestamp of its own, in a Write whose rows are all plain. Other
/// operations carry none.
pub fn stamp(operation: &mut [u8], stamp: i64) -> Result<(), Malformed> {
    let &[FORMAT, WRITE, ..] = &*operation else {
        return Ok(());
    };
    let mut rest = operation.get_mut(WRITE_HEADER_BYTES..).ok_or(SHORT)?;
    while !rest.is_empty() {
        let (header, body) = rest.split_at_mut_checked(ROW_HEADER_BYTES).ok_or(SHORT)?;
        if header[16] != 0 {
            return Err(UNKNOWN_FLAGS);
        }
        let row_len = usize::from(u16::from_le_bytes([header[17], header[18]]));
        let cells_len = u32::from_le_bytes([header[19], header[20], header[21], header[22]]);
        let cells_len = usize::try_from(cells_len).map_err(|_| SHORT)?;
        let (_, body) = body.split_at_mut_checked(row_len).ok_or(SHORT)?;
        let (cells, after) = body.split_at_mut_checked(cells_len).ok_or(SHORT)?;
        stamp_in_place(cells, stamp);
        rest = after;
    }
    Ok(())
}
