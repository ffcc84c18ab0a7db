//! Stand-in until the new memtable is merged.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use terrane_types::CellKind;

use crate::Error;
use crate::cells::{Cell, Cells};
use crate::reading::{Cursor, Reading, RowKey, Source};
use crate::run::Run;
use crate::source::Bounds;

pub(crate) trait Retention: Send + Sync {
    fn begin_drop(&self) -> (Option<u64>, u64);
}

pub(crate) struct Memtable {
    cells: RwLock<Cells>,
    one_version: AtomicBool,
    retention: Arc<dyn Retention>,
    bytes: AtomicU64,
}

impl Memtable {
    pub(crate) fn new(one_version: bool, retention: Arc<dyn Retention>) -> Self {
        Self { cells: RwLock::default(), one_version: AtomicBool::new(one_version), retention, bytes: AtomicU64::new(0) }
    }
    pub(crate) fn set_one_version(&self, on: bool) {
        self.one_version.store(on, Ordering::Relaxed);
    }
    pub(crate) fn insert(&self, cell: Cell<'_>) {
        let mut cells = self.cells.write();
        cells.push(cell);
        cells.sort_from(0);
        self.bytes.fetch_add(cell.data_bytes() as u64 + 64, Ordering::Relaxed);
    }
    pub(crate) fn insert_batch(&self, batch: Cells) {
        for cell in batch.iter() {
            self.insert(cell);
        }
    }
    pub(crate) fn remove_replaced(&self, cell: Cell<'_>) {
        if !self.one_version.load(Ordering::Relaxed) || cell.kind != CellKind::Put {
            return;
        }
        let (newest, _) = self.retention.begin_drop();
        let mut doomed = BTreeSet::new();
        let mut cells = self.cells.write();
        let mut below = false;
        for older in cells.iter() {
            if older.row != cell.row || older.qualifier != cell.qualifier {
                continue;
            }
            if older.sequence == cell.sequence && older.position == cell.position {
                below = true;
                continue;
            }
            if below {
                if older.kind != CellKind::Put || older.sequence >= cell.sequence || Some(older.sequence) <= newest {
                    break;
                }
                doomed.insert((older.sequence, older.position));
            }
        }
        cells.retain(|older| {
            !(older.row == cell.row
                && older.qualifier == cell.qualifier
                && doomed.contains(&(older.sequence, older.position)))
        });
    }
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.read().is_empty()
    }
}

impl Source for Memtable {
    fn row(&self, row: &RowKey<'_>, columns: &[Bytes], reading: Reading, out: &mut Cells) -> Result<(), Error> {
        Run::new(self.cells.read().clone()).row(row, columns, reading, out)
    }
    fn cursor(self: Arc<Self>, bounds: &Bounds, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        Arc::new(Run::new(self.cells.read().clone())).cursor(bounds, reverse, reading)
    }
}
