//! The order in which cells that arrive together are written down.
//!
//! HBase judges what arrives together by timestamps: all of it sees the row as it was before, and a delete hides the puts
//! beside it that it covers, wherever it stands. With us what was written later counts. So the order decides: puts that a
//! delete may cover, then deletes, then the other puts. Those come last because a column keeps only so many versions: a put
//! below a version that a delete beside it takes away would go before that version does.

use std::collections::{HashMap, HashSet};

use terrane_types::cell::{CellKind, CellRef, Cells, LATEST, pack};
use terrane_types::{KeepDeleted, TableSchema};

/// Packs cells of one row that arrive together, in the order in which they have HBase's outcome.
pub(super) fn pack_together<'a>(cells: impl Iterator<Item = CellRef<'a>> + Clone, schema: &TableSchema) -> Vec<u8> {
    let mut packed = Vec::with_capacity(cells.clone().map(|cell| cell.packed_len()).sum());
    let as_given = terrane_env::planted!("deletes and puts that arrive together count in their order");
    let deletes = Deletes::among(cells.clone().filter(|cell| cell.kind.is_delete()));
    if as_given || deletes.is_empty() {
        cells.for_each(|cell| pack(&mut packed, cell));
        return packed;
    }
    let keeps = |cell: &CellRef<'_>| {
        let family = schema.family(cell.family);
        family.is_some_and(|family| family.rules.keep_deleted_cells != KeepDeleted::No)
    };
    let (mut after, mut left_out) = (Vec::new(), 0);
    for cell in cells.clone().filter(|cell| cell.kind == CellKind::Put) {
        match deletes.outcome(&cell) {
            // Written down, it would push out a version that stays when it is gone.
            Outcome::Deleted if !keeps(&cell) => left_out += 1,
            Outcome::Deleted | Outcome::Unclear => pack(&mut packed, cell),
            Outcome::Stays => after.push(cell),
        }
    }
    cells.clone().filter(|cell| cell.kind.is_delete()).for_each(|cell| pack(&mut packed, cell));
    after.into_iter().for_each(|cell| pack(&mut packed, cell));
    debug_assert_eq!(Cells::new(&packed).count() + left_out, cells.count(), "a cell of a write is lost on the way");
    packed
}

/// What deletes beside a put make of it.
enum Outcome {
    /// One of them deletes exactly its version.
    Deleted,
    /// One of them covers it, or may once both have their timestamps.
    Unclear,
    Stays,
}

/// What a tombstone is about: a family and, unless it is the whole family, a qualifier.
type Named<'a> = (&'a [u8], Option<&'a [u8]>);

/// The tombstones of a row.
#[derive(Default)]
struct Deletes<'a> {
    up_to: HashMap<Named<'a>, i64>,
    exact: HashSet<(Named<'a>, i64)>,
    /// Columns and families with a delete of a single version.
    single: HashSet<Named<'a>>,
}

impl<'a> Deletes<'a> {
    fn among(deletes: impl Iterator<Item = CellRef<'a>>) -> Self {
        let mut all = Self::default();
        for delete in deletes {
            let of = (delete.family, (!delete.kind.is_family_tombstone()).then_some(delete.qualifier));
            if matches!(delete.kind, CellKind::Delete | CellKind::DeleteFamilyVersion) {
                all.exact.insert((of, delete.timestamp));
                all.single.insert(of);
            } else {
                let time = all.up_to.entry(of).or_insert(delete.timestamp);
                *time = delete.timestamp.max(*time);
            }
        }
        all
    }

    fn is_empty(&self) -> bool {
        self.up_to.is_empty() && self.exact.is_empty()
    }

    fn outcome(&self, put: &CellRef<'a>) -> Outcome {
        let of_column = (put.family, Some(put.qualifier));
        let of_family = (put.family, None);
        let mut stays = true;
        for of in [of_column, of_family] {
            if self.exact.contains(&(of, put.timestamp)) {
                return Outcome::Deleted;
            }
            // What has no timestamp yet gets that of the moment, which may be above or below one that a client gave.
            let up_to = self.up_to.get(&of);
            stays &= match put.timestamp {
                LATEST => up_to.is_none() && !self.single.contains(&of),
                time => up_to.is_none_or(|&up_to| up_to < time) && !self.exact.contains(&(of, LATEST)),
            };
        }
        if stays { Outcome::Stays } else { Outcome::Unclear }
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::FamilySchema;

    use super::*;

    const NONE: KeepDeleted = KeepDeleted::No;

    fn put(qualifier: &'static [u8], timestamp: i64) -> CellRef<'static> {
        CellRef::put(b"f", qualifier, timestamp, b"v")
    }

    fn delete(kind: CellKind, qualifier: &'static [u8], timestamp: i64) -> CellRef<'static> {
        CellRef::delete(kind, b"f", qualifier, timestamp)
    }

    fn written(cells: &[CellRef<'_>], keep_deleted_cells: KeepDeleted) -> Vec<(CellKind, i64)> {
        let mut schema = TableSchema::new("t".parse().unwrap());
        let mut family = FamilySchema::new("f".parse().unwrap());
        family.rules.keep_deleted_cells = keep_deleted_cells;
        schema.add_family(family).unwrap();
        let packed = pack_together(cells.iter().copied(), &schema);
        Cells::new(&packed).map(|cell| (cell.kind, cell.timestamp)).collect()
    }

    #[test]
    fn puts_that_a_delete_may_cover_are_written_before_it_and_others_after_it() {
        use CellKind::{DeleteColumn, DeleteFamily, Put};
        let up_to = delete(DeleteColumn, b"q", 10);
        let cells = [up_to, put(b"q", 11), put(b"q", 10), put(b"r", 5), put(b"q", LATEST)];
        let expected = [(Put, 10), (Put, LATEST), (DeleteColumn, 10), (Put, 11), (Put, 5)];
        assert_eq!(written(&cells, NONE), expected);
        let family = delete(DeleteFamily, b"", LATEST);
        assert_eq!(written(&[family, put(b"r", 5)], NONE), [(Put, 5), (DeleteFamily, LATEST)]);
        assert_eq!(written(&[put(b"q", 7), put(b"q", 5)], NONE), [(Put, 7), (Put, 5)], "as they were given");
    }

    #[test]
    fn a_put_of_the_very_version_that_is_deleted_is_left_out_unless_readers_of_the_past_see_it() {
        use CellKind::{Delete, DeleteFamilyVersion, Put};
        for (kind, qualifier) in [(Delete, &b"q"[..]), (DeleteFamilyVersion, b"")] {
            let cells = [put(b"q", 10), delete(kind, qualifier, 10), put(b"q", 5)];
            assert_eq!(written(&cells, NONE), [(kind, 10), (Put, 5)]);
            assert_eq!(written(&cells, KeepDeleted::Yes), [(Put, 10), (kind, 10), (Put, 5)]);
        }
        // Its version is that of the moment, and no put says which one that will be.
        let now = delete(DeleteFamilyVersion, b"", LATEST);
        assert_eq!(written(&[now, put(b"q", 5)], NONE), [(Put, 5), (DeleteFamilyVersion, LATEST)]);
    }
}
