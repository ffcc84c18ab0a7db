//! A row that is larger than an answer may be.

use terrane_proto::v1;
use terrane_types::{Error, PackedRows};

use crate::harness::{Bench, packed, shown};

const ROW: &[u8] = b"wide";
/// This many columns of this size exceed one answer.
const VALUE_BYTES: usize = 2 << 20;
const COLUMNS: u8 = 17;

#[tokio::test]
async fn a_row_over_the_limit_of_a_get_is_refused_but_exists_and_is_scanned_in_parts() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    for number in 0..COLUMNS {
        let cells = packed(&[number], &vec![b'a' + number; VALUE_BYTES]);
        let row = v1::RowMutation { row: ROW.into(), cells, ..Default::default() };
        client.put(&region, vec![row]).await.unwrap();
    }
    for on_disk in [false, true] {
        if on_disk {
            bench.flush().await;
        }
        let refused = client.get(&region, &[ROW]).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(invalid) if invalid.what.contains("or scan")), "{refused}");
        let get = v1::Get { rows: vec![ROW.into()], exists_only: true, ..Default::default() };
        let found = client.batch(vec![(region.clone(), v1::request::Body::Get(get))]).await.remove(0);
        assert!(matches!(&found, v1::reply::Body::Get(reply) if shown(&reply.rows) == ["wide="]), "{found:?}");

        let scan = v1::Scan { block_bytes: 1 << 20, ..Default::default() };
        let blocks = client.blocks(&region, scan).await.unwrap();
        let mut values = Vec::new();
        for row in blocks.iter().flat_map(|block| PackedRows::new(block.rows.clone())) {
            values.extend(row.unwrap().cells.iter().map(|cell| (cell.value[0], cell.value.len())));
        }
        let counted: u64 = blocks.iter().map(|block| block.row_count).sum();
        let expected: Vec<_> = (0..COLUMNS).map(|number| (b'a' + number, VALUE_BYTES)).collect();
        assert_eq!((values, counted), (expected, 1), "on disk: {on_disk}");
        assert!(blocks.len() >= usize::from(COLUMNS), "{} blocks", blocks.len());
    }
    bench.stop_server().await;
}
