//! Our own store files (being moved in).
use std::collections::BTreeSet;
use std::sync::Arc;

use terrane_types::{FamilyName, TableId};

use super::WriterTarget;
use crate::Error;
use crate::cells::Cell;
use crate::engine::Options;
use crate::file::FileRef;
use crate::files::Files;
use crate::manifest::FileRecord;
use crate::source::Bounds;

pub(crate) struct TablesBackend {
    pub(crate) files: Arc<Files>,
}
pub(crate) struct TablesWriter {}
impl TablesBackend {
    pub(crate) async fn open(_options: &Options, _named: &BTreeSet<u64>) -> Result<Self, Error> {
        todo!()
    }
    pub(crate) async fn load(&self, _record: &FileRecord, _table: TableId, _family: &FamilyName) -> Result<FileRef, Error> {
        todo!()
    }
    pub(crate) fn writer(&self, _target: WriterTarget<'_>) -> TablesWriter {
        todo!()
    }
}
impl TablesWriter {
    pub(crate) fn has_work(&self) -> bool {
        todo!()
    }
    pub(crate) async fn work(&mut self) -> Result<(), Error> {
        todo!()
    }
    pub(crate) fn add(&mut self, _cell: Cell<'_>) {
        todo!()
    }
    pub(crate) async fn abandon(self) {
        todo!()
    }
    pub(crate) async fn finish(self, _bounds: &Bounds) -> Result<Vec<FileRef>, Error> {
        todo!()
    }
}
