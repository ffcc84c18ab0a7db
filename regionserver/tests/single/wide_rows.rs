//! A row that is larger than an answer may be.

use terrane_proto::v1;
use terrane_types::{Error, PackedRows};

use crate::harness::{Bench, TABLE, our_hello, packed, shown};

const ROW: &[u8] = b"wide";
/// This many columns of this size exceed one answer.
const VALUE_BYTES: usize = 2 << 20;
const COLUMNS: u8 = 17;

#[tokio::test]
async fn a_row_over_the_limit_of_a_get_is_refused_but_exists_and_is_scanned_in_parts() {
    let mut bench = Bench::start().await;
    let region = bench.create_table(|_| {}).await;
    let mut client = bench.client().await;
    for number in 0..COLUMNS {
        let cells = packed(&[number], &vec![b'a' + number; VALUE_BYTES]);
        let row = v1::RowMutation { row: ROW.into(), cells, ..Default::default() };
        client.put(&region, vec![row]).await.unwrap();
    }
    for on_disk in [false, true] {
        if on_disk {
            let request = v1::MaintainTableRequest { hello: our_hello(), table: TABLE.0 };
            let mut progress = bench.admin().flush_table(request).await.unwrap().into_inner();
            while progress.message().await.unwrap().is_some() {}
        }
        let refused = client.get(&region, &[ROW]).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(invalid) if invalid.what.contains("or scan")), "{refused}");
        let get = v1::Get { rows: vec![ROW.into()], exists_only: true, ..Default::default() };
        let found = client.batch(vec![(region.clone(), v1::request::Body::Get(get))]).await.remove(0);
        assert!(matches!(&found, v1::reply::Body::Get(reply) if shown(&reply.rows) == ["wide="]), "{found:?}");

        let mut scan = v1::Scan { block_bytes: 1 << 20, ..Default::default() };
        let (mut values, mut counted, mut blocks) = (Vec::new(), 0, 0);
        loop {
            let block = client.scan(&region, scan.clone()).await.unwrap();
            for row in PackedRows::new(block.rows.clone()) {
                values.extend(row.unwrap().cells.iter().map(|cell| (cell.value[0], cell.value.len())));
            }
            counted += block.row_count;
            blocks += 1;
            if block.done {
                break;
            }
            scan.resume = block.resume;
        }
        let expected: Vec<_> = (0..COLUMNS).map(|number| (b'a' + number, VALUE_BYTES)).collect();
        assert_eq!((values, counted), (expected, 1), "on disk: {on_disk}");
        assert!(blocks >= usize::from(COLUMNS), "{blocks} blocks");
    }
    bench.stop_server().await;
}
