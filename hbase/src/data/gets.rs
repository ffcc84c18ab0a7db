//! Gets of a batch that ask for the same of several rows of a region: one read of the data path.

use bytes::Bytes;
use terrane_regionserver::edge::GetRequest;
use terrane_types::Invalid;
use terrane_types::rows::RowRefs;

use super::reading;
use super::region::Region;
use crate::exception::Exception;
use crate::limits::READ_ROWS_MAX;
use crate::proto;

/// Gets that become one read.
pub(super) struct Gets {
    /// What they ask for, without a row.
    pub get: Box<proto::Get>,
    pub read: GetRequest,
    /// Each row's place among the actions.
    pub places: Vec<usize>,
}

impl Gets {
    /// The first get of a read.
    ///
    /// # Errors
    /// If what it asks for is malformed or not supported, or its row is elsewhere.
    pub fn new(region: &Region, at: usize, row: Bytes, get: proto::Get) -> Result<Self, Exception> {
        let read = reading::get(region, proto::Get { row, ..get.clone() })?;
        Ok(Self { get: Box::new(get), read, places: vec![at] })
    }

    /// Whether this row goes with those before it.
    pub fn takes(&self, region: &Region, row: &[u8], get: &proto::Get) -> bool {
        self.places.len() < READ_ROWS_MAX && may_share(get) && *self.get == *get && region.check_row(row).is_ok()
    }

    /// Adds a row.
    pub fn add(&mut self, at: usize, row: Bytes) {
        self.read.rows.push(row);
        self.places.push(at);
    }
}

/// A filter has a state, which belongs to one row.
const fn may_share(get: &proto::Get) -> bool {
    get.filter.is_none() && get.store_limit.is_none() && get.store_offset.is_none()
}

/// The packed cells of each of these rows in the answer to their read, which leaves out rows that it has not found.
pub(super) fn rows_found(rows: &[Bytes], answer: &Bytes) -> Result<Vec<Option<Bytes>>, Invalid> {
    let mut found = RowRefs::new(answer);
    let mut next = found.next().transpose()?;
    let mut cells = Vec::with_capacity(rows.len());
    for row in rows {
        match next.filter(|next| next.row == &row[..]) {
            Some(of_row) => {
                cells.push(Some(answer.slice_ref(of_row.packed)));
                next = found.next().transpose()?;
            }
            None => cells.push(None),
        }
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use terrane_types::rows::pack_row;

    use super::*;

    #[test]
    fn rows_that_were_not_found_are_skipped_and_repeated_ones_are_all_there() {
        let rows = ["b", "a", "b", "c", "c", "d"].map(|row| Bytes::from_static(row.as_bytes()));
        let mut answer = Vec::new();
        for row in ["b", "b", "c", "c"] {
            pack_row(&mut answer, row.as_bytes(), &[]);
        }
        let found = rows_found(&rows, &answer.into()).unwrap();
        let found: Vec<_> = found.iter().map(Option::is_some).collect();
        assert_eq!(found, [true, false, true, true, true, false]);
    }
}
