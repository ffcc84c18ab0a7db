//! Rows with many columns, versions or tombstones: what is read of them follows what is wanted.

use bytes::Bytes;
use terrane_engine::{BackendKind, Patience, ReadStats, Region, RowRead, ScanSpec, Step};
use terrane_types::{CellKind, FamilyRules, KeyRange, Onward, PackedRows, Projection};

use crate::support::fixture::cell;
use crate::support::model::ModelCell;
use crate::support::world::World;

const MANY: u32 = 60_000;

fn qualifier(number: u32) -> Vec<u8> {
    format!("q{number:06}").into_bytes()
}

fn column(number: u32, timestamp: i64, kind: CellKind) -> ModelCell {
    let value = if kind.is_delete() { "" } else { "value" };
    ModelCell { qualifier: qualifier(number), ..cell(b"wide", timestamp, kind, value) }
}

/// A row of these cells, in a file and in a memtable in turn.
async fn each_place(cells: &[ModelCell], check: impl Fn(&Region)) {
    for flushed in [false, true] {
        let mut world = World::new(BackendKind::Lsm).await;
        let rules = FamilyRules { versions: MANY, ..FamilyRules::default() };
        let region = world.create(KeyRange::all(), &[("f", rules)]);
        cells.chunks(1_000).for_each(|cells| world.write(region, cells.to_vec()));
        if flushed {
            world.flush(region).await;
        }
        let region = &world.live[&region];
        region.set_part_bytes(usize::MAX);
        check(region);
    }
}

fn spec(projection: &Projection) -> ScanSpec {
    ScanSpec::new(KeyRange::all(), projection.clone(), 100_000)
}

fn scanned(region: &Region, projection: &Projection) -> ReadStats {
    let mut scanner = region.scan(region.snapshot(), spec(projection));
    assert_eq!(scanner.next(&mut Vec::new(), usize::MAX, Patience::MayBlock).unwrap(), Step::Row);
    scanner.take_stats()
}

fn got(region: &Region, projection: &Projection) -> ReadStats {
    let read = RowRead { projection, now_ms: 100_000, patience: Patience::MayBlock, bytes_max: usize::MAX };
    region.get_row(&region.snapshot(), b"wide", read, &mut Vec::new()).unwrap()
}

#[tokio::test]
async fn the_newest_version_is_read_without_the_others() {
    let versions = |number| (1..=i64::from(MANY)).map(move |timestamp| column(number, timestamp, CellKind::Put));
    let cells: Vec<_> = versions(1).chain([column(2, 1, CellKind::Put)]).chain(versions(3)).collect();
    each_place(&cells, |region| {
        for projection in [Projection::all(), Projection::all().with_versions(5)] {
            for stats in [scanned(region, &projection), got(region, &projection)] {
                assert_eq!(stats.cells_shown, u64::from(projection.versions * 2 + 1));
                assert!(stats.cells_seen < 4_000, "{stats:?}");
            }
        }
        // All of them are there.
        let all = scanned(region, &Projection::all().with_versions(MANY));
        assert_eq!(all.cells_shown, u64::from(MANY) * 2 + 1);
    })
    .await;
}

#[tokio::test]
async fn columns_are_sought_past_the_others() {
    let cells: Vec<_> = (0..MANY).map(|number| column(number, 1, CellKind::Put)).collect();
    each_place(&cells, |region| {
        let family = || "f".parse().unwrap();
        let range = Projection::all().with_qualifier_range(family(), qualifier(20_000), qualifier(20_010));
        let range = range.with_column(family(), qualifier(30_000)).with_qualifier_prefix(family(), "q00001");
        for stats in [scanned(region, &range), got(region, &range)] {
            assert_eq!(stats.cells_shown, 21);
            assert!(stats.cells_seen < 400, "{stats:?}");
        }
        // The judge of the cells says where the row continues.
        let mut scanner = region.scan(region.snapshot(), spec(&Projection::all()));
        let mut taken = 0;
        let walked = scanner.walk(Patience::MayBlock, |_, cell| {
            if cell.qualifier < &qualifier(20_000)[..] {
                return Onward::From(Bytes::from(qualifier(20_000)));
            }
            taken += 1;
            if taken < 10 { Onward::Cell } else { Onward::Row }
        });
        assert_eq!((walked.unwrap(), taken), (Step::Row, 10));
        let stats = scanner.take_stats();
        assert!(stats.cells_seen < 2_000, "{stats:?}");
    })
    .await;
}

#[tokio::test]
async fn a_row_of_deleted_columns_is_read_in_steps() {
    let deleted = (1..MANY).map(|number| column(number, 1, CellKind::DeleteColumn));
    let cells: Vec<_> = [column(0, 1, CellKind::Put)].into_iter().chain(deleted).collect();
    each_place(&cells, |region| {
        let mut scanner = region.scan(region.snapshot(), spec(&Projection::all()));
        let (mut steps, mut block) = (0, Vec::new());
        loop {
            let step = scanner.next(&mut block, usize::MAX, Patience::MayBlock).unwrap();
            let seen = scanner.take_stats().cells_seen;
            assert!(seen < 30_000, "{seen}");
            steps += 1;
            if step == Step::Row {
                break;
            }
            assert_eq!((step, scanner.row_start()), (Step::HiddenPart, Some(0)));
        }
        assert!(steps >= 3, "{steps}");
        let rows: Vec<_> = PackedRows::new(block.into()).map(Result::unwrap).collect();
        assert_eq!(rows.iter().map(|row| row.cells.iter().count()).collect::<Vec<_>>(), [1]);
        // A scan that continues in the middle of deleted columns has little to read.
        let deleted = Projection::all().with_qualifier_range("f".parse().unwrap(), qualifier(1), "");
        let mut hidden = region.scan(region.snapshot(), spec(&deleted));
        let mut place = None;
        while hidden.next(&mut Vec::new(), usize::MAX, Patience::MayBlock).unwrap() == Step::HiddenPart {
            place = hidden.hidden_up_to().or(place);
        }
        let from_cell = Some(place.expect("a place within the row"));
        let mut rest = region.scan(region.snapshot(), ScanSpec { from_cell, ..spec(&deleted) });
        let mut block = Vec::new();
        while rest.next(&mut block, usize::MAX, Patience::MayBlock).unwrap() != Step::End {}
        assert!(block.is_empty() && rest.take_stats().cells_seen < u64::from(MANY) / 2);
        // They are passed over in steps, too.
        let mut hidden = region.scan(region.snapshot(), spec(&deleted));
        let (mut left, mut steps) = (9, 0);
        while hidden.pass(&mut left, Patience::MayBlock).unwrap() != Step::End {
            assert!(hidden.take_stats().cells_seen < 20_000);
            steps += 1;
        }
        assert!(left == 9 && steps >= 3, "{left} {steps}");
    })
    .await;
}

/// A step that ends in a part with visible cells does not return them again.
#[tokio::test]
async fn visible_cells_among_many_hidden_ones_are_returned_once() {
    let kind = |number| if number % 500 == 0 { CellKind::Put } else { CellKind::DeleteColumn };
    let cells: Vec<_> = (0..MANY).map(|number| column(number, 1, kind(number))).collect();
    each_place(&cells, |region| {
        let mut scanner = region.scan(region.snapshot(), spec(&Projection::all()));
        let (mut hidden, mut block) = (0, Vec::new());
        loop {
            match scanner.next(&mut block, usize::MAX, Patience::MayBlock).unwrap() {
                Step::Row => break,
                step => assert_eq!((step, scanner.row_start()), (Step::HiddenPart, Some(0))),
            }
            hidden += 1;
        }
        assert!(hidden >= 2, "{hidden}");
        let rows: Vec<_> = PackedRows::new(block.into()).map(Result::unwrap).collect();
        let shown: Vec<_> = rows.iter().flat_map(|row| row.cells.iter().map(|cell| cell.qualifier.to_vec())).collect();
        let expected: Vec<_> =
            (0..MANY).filter(|number| number % 500 == 0).map(|number| qualifier(number).to_vec()).collect();
        assert_eq!(shown, expected);
    })
    .await;
}
