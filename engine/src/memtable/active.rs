//! The active buffer: the most recently written cells, in a skip list small enough for the processor's cache.
//!
//! Each entry owns its bytes in one allocation and carries the head of its row, so that most steps of a search compare
//! two numbers. The list lives until it is full and then becomes a run; only its one writer inserts and removes.
//!
//! A reader walks it without a lock. What is inserted meanwhile is above its snapshot; what is removed is replaced in
//! every live snapshot (see [`Active::remove_replaced`]).

use std::cmp::Ordering as CmpOrdering;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_skiplist::SkipSet;
use crossbeam_skiplist::set::Entry as Handle;
use terrane_env::sync::{limit, point};
use terrane_types::CellKind;

use crate::cells::{Cell, Cells};
use crate::column_selection::{ColumnSelection, Portion};
use crate::row_heads::Prefix;
use crate::row_range::RowRange;

/// Cells of a full buffer: with their heads and towers they stay in the second-level cache.
const CELLS_MAX: usize = limit(4_096, 3);
/// Bytes of a full buffer, where values are large.
const BYTES_MAX: u64 = 4 << 20;

/// An owned cell, and the key to look one up.
struct Entry {
    head: u64,
    /// Row, qualifier, tags and value, one after the other.
    bytes: Box<[u8]>,
    timestamp: i64,
    sequence: u64,
    position: u32,
    row_len: u16,
    qualifier_len: u16,
    tags_len: u16,
    kind: CellKind,
}

impl Entry {
    fn new(head: u64, cell: Cell<'_>) -> Self {
        let mut bytes = Vec::with_capacity(cell.data_bytes());
        for part in [cell.row, cell.qualifier, cell.tags, cell.value] {
            bytes.extend_from_slice(part);
        }
        Self {
            head,
            bytes: bytes.into_boxed_slice(),
            timestamp: cell.timestamp,
            sequence: cell.sequence,
            position: cell.position,
            row_len: short(cell.row.len()),
            qualifier_len: short(cell.qualifier.len()),
            tags_len: short(cell.tags.len()),
            kind: cell.kind,
        }
    }

    #[inline]
    fn cell(&self) -> Cell<'_> {
        let (row, rest) = self.bytes.split_at(usize::from(self.row_len));
        let (qualifier, rest) = rest.split_at(usize::from(self.qualifier_len));
        let (tags, value) = rest.split_at(usize::from(self.tags_len));
        Cell {
            row,
            qualifier,
            tags,
            value,
            timestamp: self.timestamp,
            sequence: self.sequence,
            position: self.position,
            kind: self.kind,
        }
    }

    /// Bytes of memory that a node with this entry takes: tower, counts, entry and the bytes it owns, each as large as
    /// allocators make them. Half of the nodes have one level, a quarter two and so on: two on average.
    fn memory_bytes(data: usize) -> u64 {
        let node = size_of::<Self>() + 3 * size_of::<usize>();
        (allocated(node) + allocated(data)) as u64
    }
}

/// What an allocator takes for this many bytes: sizes in steps of 16 and, above 256 bytes, of about an eighth.
fn allocated(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 16).max(16);
    bytes.next_multiple_of(step)
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> CmpOrdering {
        self.head.cmp(&other.head).then_with(|| self.cell().cmp_place(&other.cell()))
    }
}

impl PartialOrd for Entry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<CmpOrdering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

pub(super) struct Active {
    entries: SkipSet<Entry>,
    /// The prefix that heads are taken after: a guess from earlier rows.
    prefix: Prefix,
    /// Bytes of memory held.
    bytes: AtomicU64,
    /// Cells inserted so far. It rises before the write is published, so that a reader who may see the cell sees the count.
    inserts: AtomicU64,
}

impl Active {
    pub(super) fn new(prefix: Prefix) -> Self {
        Self { entries: SkipSet::new(), prefix, bytes: AtomicU64::new(0), inserts: AtomicU64::new(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= CELLS_MAX || self.bytes() >= BYTES_MAX
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The number of inserts so far. A copy is complete while this equals the count read before copying. Removals do not
    /// count: no reader needs what they remove, and every reader tolerates it.
    pub(super) fn inserts(&self) -> u64 {
        point();
        self.inserts.load(Ordering::Acquire)
    }

    /// Inserts a cell. Of two at one place, which the log brings only when it is applied again, the earlier stays. With
    /// `replaces`, returns whether an older put of its column lies directly below.
    pub(super) fn insert(&self, cell: Cell<'_>, replaces: bool) -> bool {
        let before = self.entries.len();
        point();
        let handle = self.entries.get_or_insert(Entry::new(self.prefix.head(cell.row), cell));
        if self.entries.len() > before {
            self.bytes.fetch_add(Entry::memory_bytes(cell.data_bytes()), Ordering::Relaxed);
        }
        point();
        self.inserts.fetch_add(1, Ordering::Release);
        replaces && handle.next().is_some_and(|below| is_replaced(&below.value().cell(), &cell, None))
    }

    /// Removes the older puts directly below a put that are newer than `newest_snapshot`. Returns whether anything was
    /// removed.
    pub(super) fn remove_replaced(&self, cell: &Cell<'_>, newest_snapshot: Option<u64>) -> bool {
        let place = self.place(&Cell { tags: &[], value: &[], ..*cell });
        let mut removed = false;
        let mut at = self.entries.lower_bound(Bound::Excluded(&place));
        // More than one where a snapshot that needed the others is gone by now.
        while let Some(below) = at {
            let older = below.value().cell();
            if !is_replaced(&older, cell, newest_snapshot) {
                break;
            }
            // Found from the one that goes: a new search for the place would cost as much as the insert did.
            at = below.next();
            point();
            if !below.remove() {
                break;
            }
            self.bytes.fetch_sub(Entry::memory_bytes(older.data_bytes()), Ordering::Relaxed);
            removed = true;
        }
        removed
    }

    /// All cells, in store order.
    pub(super) fn cells(&self) -> Cells {
        let bytes = self.entries.iter().map(|entry| entry.value().bytes.len()).sum();
        let mut cells = Cells::with_capacity(self.entries.len(), bytes);
        self.entries.iter().for_each(|entry| cells.push(entry.value().cell()));
        cells
    }

    /// Appends the cells of one row; returns whether those are all of it, see [`crate::source::Source::row`].
    pub(super) fn push_row(
        &self,
        row: &[u8],
        sought: ColumnSelection<'_>,
        portion: &mut Portion,
        out: &mut Cells,
    ) -> bool {
        if self.entries.is_empty() {
            return true;
        }
        let mut at = self.entries.lower_bound(Bound::Included(&self.before_row(row)));
        while let Some(handle) = at {
            let cell = handle.value().cell();
            if cell.row != row {
                break;
            }
            if sought.wants(cell.qualifier) {
                if portion.is_full(out) {
                    return false;
                }
                out.push(cell);
            }
            point();
            at = handle.next();
        }
        true
    }

    /// Appends the cells of the first `rows` rows within `bounds`, or with `reverse` of the last ones from the last
    /// cell back. Returns whether there may be more.
    pub(super) fn push_rows(&self, bounds: &RowRange, reverse: bool, rows: usize, out: &mut Cells) -> bool {
        let mut left = rows;
        let mut at = if reverse {
            if bounds.end.is_empty() {
                self.entries.back()
            } else {
                self.entries.upper_bound(Bound::Excluded(&self.before_row(&bounds.end)))
            }
        } else {
            self.entries.lower_bound(Bound::Included(&self.before_row(&bounds.start)))
        };
        let begin = out.len();
        while let Some(handle) = at {
            let cell = handle.value().cell();
            if !bounds.contains(cell.row) {
                return false;
            }
            if out.len() == begin || out.row(out.len() - 1) != cell.row {
                if left == 0 {
                    return true;
                }
                left -= 1;
            }
            out.push(cell);
            at = self.step(handle, reverse);
        }
        false
    }

    fn step<'a>(&self, handle: Handle<'a, Entry>, reverse: bool) -> Option<Handle<'a, Entry>> {
        point();
        if reverse { handle.prev() } else { handle.next() }
    }

    /// The place before all cells of a row.
    fn before_row(&self, row: &[u8]) -> Entry {
        self.place(&Cell {
            row,
            qualifier: &[],
            tags: &[],
            value: &[],
            timestamp: i64::MAX,
            sequence: u64::MAX,
            position: u32::MAX,
            kind: CellKind::Put,
        })
    }

    fn place(&self, cell: &Cell<'_>) -> Entry {
        Entry::new(self.prefix.head(cell.row), *cell)
    }
}

impl fmt::Debug for Active {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Active").field("cells", &self.entries.len()).field("bytes", &self.bytes).finish()
    }
}

/// Whether `older` is a put that `put` replaces, which therefore does not expire before it, and that only readers between `newest_snapshot` and `put` would see.
fn is_replaced(older: &Cell<'_>, put: &Cell<'_>, newest_snapshot: Option<u64>) -> bool {
    older.kind == CellKind::Put
        && older.sequence < put.sequence
        && Some(older.sequence) > newest_snapshot
        && older.qualifier == put.qualifier
        && older.row == put.row
        && older.expires_ms() <= put.expires_ms()
}

fn short(len: usize) -> u16 {
    u16::try_from(len).expect("rows, qualifiers and tags are limited to less than 64 KiB at the edge")
}
