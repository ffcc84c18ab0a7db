//! Rows of the meta table: keys, columns, limits, offsets and tokens.

use std::time::Duration;

use terrane_types::{GroupId, PackedRows, ServerId};

use super::*;
use crate::catalog::tests::full;
use crate::servers::inventory::Inventory;
use crate::servers::liveness::{Liveness, Moment};

fn observed() -> Observations {
    let mut liveness = Liveness::new(Duration::from_secs(3), Moment(0));
    liveness.live(ServerId(1), 1, Moment(1)).unwrap();
    let mut inventory = Inventory::default();
    inventory.hint_leader(GroupId(1), ServerId(1));
    Observations { liveness, inventory }
}

fn all() -> MetaScan {
    MetaScan {
        range: KeyRange::all(),
        reverse: false,
        limit: 0,
        offset: 0,
        projection: Projection::all(),
        block_bytes: 0,
        resume: Bytes::new(),
        count_only: false,
    }
}

fn keys(blocks: &[MetaBlock]) -> Vec<String> {
    let rows = blocks.iter().flat_map(|block| PackedRows::new(block.rows.clone().into()));
    rows.map(|row| String::from_utf8(row.unwrap().row.as_bytes().to_vec()).unwrap()).collect()
}

fn scanned(wanted: &MetaScan) -> Vec<MetaBlock> {
    scan(&full(), &observed(), wanted).unwrap()
}

#[test]
fn rows_sort_by_the_bytes_of_their_keys() {
    assert_eq!(keys(&scanned(&all())), ["t,,1", r"t,a\x00,70", "t,c,2", "t,m,3"]);
}

#[test]
fn a_row_describes_its_region() {
    let blocks = scanned(&MetaScan { offset: 1, limit: 1, ..all() });
    let row = PackedRows::new(blocks[0].rows.clone().into()).next().unwrap().unwrap();
    let cells: Vec<String> = row
        .cells
        .iter()
        .map(|cell| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            format!("{}:{}={}@{}", text(cell.family), text(cell.qualifier), text(cell.value), cell.timestamp)
        })
        .collect();
    assert_eq!(
        cells.join(" "),
        "info:epoch=2@1000 info:group=1@1000 info:leader=a:1@1000 info:region=70@1000 info:servers=a:1@1000 \
         info:start=a\\x00@1000 info:stop=c@1000 info:table=t@1000"
    );
}

#[test]
fn ranges_limits_and_directions_work_as_on_any_table() {
    let range = KeyRange::new("t,a", "t,m").unwrap();
    assert_eq!(keys(&scanned(&MetaScan { range: range.clone(), ..all() })), [r"t,a\x00,70", "t,c,2"]);
    let reverse = MetaScan { range, reverse: true, ..all() };
    assert_eq!(keys(&scanned(&reverse)), ["t,c,2", r"t,a\x00,70"]);
    let limited = scanned(&MetaScan { limit: 2, offset: 1, ..all() });
    assert_eq!(keys(&limited), [r"t,a\x00,70", "t,c,2"]);
    assert_eq!((limited[0].limit_left, limited[0].offset_left, limited[0].done), (0, 0, true));
    assert_eq!(scanned(&MetaScan { offset: 9, limit: 1, ..all() })[0].offset_left, 5);
}

#[test]
fn a_token_continues_after_the_last_row_in_both_directions() {
    for reverse in [false, true] {
        let mut paged = Vec::new();
        let mut resume = Bytes::new();
        for _ in 0..4 {
            let page = scanned(&MetaScan { limit: 1, reverse, resume, ..all() });
            paged.extend(keys(&page));
            resume = page[0].resume.clone();
        }
        assert_eq!(paged, keys(&scanned(&MetaScan { reverse, ..all() })));
        let after = scanned(&MetaScan { limit: 1, reverse, resume, ..all() });
        assert_eq!((after.len(), after[0].row_count, after[0].done), (1, 0, true));
    }
    assert!(scan(&full(), &observed(), &MetaScan { resume: Bytes::from_static(b"\x09x"), ..all() }).is_err());
}

#[test]
fn small_blocks_hold_the_same_rows() {
    let blocks = scanned(&MetaScan { block_bytes: 1, ..all() });
    assert_eq!(
        blocks.iter().map(|block| (block.row_count, block.done)).collect::<Vec<_>>(),
        [(1, false), (1, false), (1, false), (1, true)]
    );
    assert_eq!(keys(&blocks), keys(&scanned(&all())));
}

#[test]
fn counting_returns_no_rows() {
    let counted = scanned(&MetaScan { count_only: true, ..all() });
    assert_eq!((counted[0].row_count, counted[0].rows.len()), (4, 0));
}

#[test]
fn a_projection_hides_columns_and_rows_without_any() {
    let family = || FAMILY.parse().unwrap();
    let one = MetaScan { projection: Projection::all().with_column(family(), "leader"), ..all() };
    let blocks = scanned(&one);
    let rows = PackedRows::new(blocks[0].rows.clone().into());
    assert!(rows.map(|row| row.unwrap().cells.iter().count()).all(|cells| cells == 1));
    let none = MetaScan { projection: Projection::all().with_column(family(), "nothing"), ..all() };
    assert_eq!(scanned(&none)[0].row_count, 0);
}
