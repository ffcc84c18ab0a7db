//! The layout is on disks: these bytes must stay readable.

use terrane_env::trace::{TRACE_CONTEXT_BYTES, TraceContext};
use terrane_types::cell::{CellRef, LATEST, pack};
use terrane_types::{FamilyName, FamilySchema, GroupId, KeyRange, TableName};

use super::write::WRITE_HEADER_BYTES;
use super::*;

impl WriteHeader {
    /// Of a write whose rows are independent of each other, under any version of the schema since this one.
    pub(crate) const fn plain(region: u64, epoch: u64, schema_version: u64, client: ClientId) -> Self {
        let (region, epoch) = (RegionId(region), RegionEpoch(epoch));
        let (lowest_unsettled, atomic, exact_schema, trace) = (0, false, false, None);
        Self { region, epoch, schema_version, client, lowest_unsettled, atomic, exact_schema, trace }
    }
}

const HEADER: WriteHeader = WriteHeader { lowest_unsettled: 11, ..WriteHeader::plain(7, 2, 3, [9; 16]) };

fn cells(timestamp: i64) -> Vec<u8> {
    let mut out = Vec::new();
    pack(&mut out, CellRef::put(b"f", b"q", timestamp, b"v"));
    out
}

fn plain<'a>(operation: u64, first_try_ms: u64, row: &'a [u8], cells: &'a [u8]) -> LoggedRow<&'a [u8]> {
    LoggedRow { operation, first_try_ms, row, cells, result: None, untracked: false }
}

fn encoded(header: &WriteHeader, stamp: i64, rows: &[LoggedRow<&[u8]>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = WriteEncoder::new(&mut out, header, stamp);
    for row in rows {
        encoder.push(row);
    }
    assert_eq!(encoder.finish() as usize, rows.len());
    out
}

fn write_of_two_rows() -> Vec<u8> {
    let (first, second) = (cells(LATEST), [cells(5), cells(LATEST)].concat());
    encoded(&HEADER, 777, &[plain(11, 1000, b"a", &first), plain(12, 1001, b"b", &second)])
}

fn rows(record: Vec<u8>) -> Vec<LoggedRow<Bytes>> {
    match Operation::decode(record.into()).unwrap() {
        Operation::Write(write) => {
            assert_eq!(write.header, HEADER);
            write.collect::<Result<_, _>>().unwrap()
        }
        _ => panic!("not a write"),
    }
}

#[test]
fn a_write_has_this_layout() {
    let out = encoded(&WriteHeader { atomic: true, ..HEADER }, 9, &[plain(11, 1000, b"row", &cells(5))]);
    let expected = [
        &[1u8, 1][..],
        &7u64.to_le_bytes(),
        &2u64.to_le_bytes(),
        &3u64.to_le_bytes(),
        &[9; 16],
        &11u64.to_le_bytes(),
        &[1],
        &1u32.to_le_bytes(),
        &11u64.to_le_bytes(),
        &1000u64.to_le_bytes(),
        &[0],
        &3u16.to_le_bytes(),
        &21u32.to_le_bytes(),
        b"row",
        &cells(5),
    ]
    .concat();
    assert_eq!(out, expected);
}

#[test]
fn a_logged_row_is_stamped_and_carries_its_result() {
    let unstamped = cells(LATEST);
    let row = LoggedRow { result: Some(&b"result"[..]), ..plain(11, 1000, b"a", &unstamped) };
    let mut out = Vec::new();
    let mut encoder = WriteEncoder::new(&mut out, &HEADER, 777);
    assert_eq!(encoder.push(&row), cells(777), "the cells as they are applied");
    encoder.push(&LoggedRow { row: b"", cells: b"", untracked: true, ..row });
    encoder.finish();
    let rows = rows(out);
    assert_eq!((&rows[0].cells[..], rows[0].untracked), (&cells(777)[..], false));
    assert_eq!((rows[1].result.as_deref(), rows[1].untracked), (Some(&b"result"[..]), true));
}

#[test]
fn a_split_has_this_layout() {
    let split =
        Split { region: RegionId(1), epoch: RegionEpoch(2), left: RegionId(3), right: RegionId(4), at: "m".into() };
    let numbers: Vec<u8> = [1u64, 2, 3, 4].iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut encoded = Vec::new();
    split.encode(&mut encoded).unwrap();
    assert_eq!(encoded, [&[1, 3][..], &numbers, &[1, 0, b'm']].concat());
    assert!(matches!(Operation::decode(encoded.into()), Ok(Operation::Split(read)) if read == split));
}

#[test]
fn changes_of_tables_round_trip() {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    schema.table = TableId(5);
    schema.add_family(FamilySchema::new(FamilyName::new("f").unwrap())).unwrap();
    let region = RegionDescriptor {
        region: RegionId(8),
        table: TableId(5),
        range: KeyRange::new("a", "b").unwrap(),
        epoch: RegionEpoch(1),
        group: GroupId(2),
        schema_version: 1,
    };
    for change in [
        ChangeTables { schema: Some(schema), create: vec![region], drop: None },
        ChangeTables { schema: None, create: Vec::new(), drop: Some(TableId(5)) },
    ] {
        let mut encoded = Vec::new();
        change.encode(&mut encoded);
        let read = Operation::decode(encoded.into());
        assert!(matches!(read, Ok(Operation::ChangeTables(read)) if read == change));
    }
}

#[test]
fn a_stamp_goes_into_cells_without_a_timestamp_and_nowhere_else() {
    let rows = rows(write_of_two_rows());
    assert_eq!(rows[0].cells, cells(777));
    assert_eq!(rows[1].cells, [cells(5), cells(777)].concat());
    assert_eq!((rows[1].operation, rows[1].first_try_ms, &rows[1].row[..]), (12, 1001, &b"b"[..]));
}

#[test]
fn a_tick_has_this_layout() {
    let mut tick = Vec::new();
    encode_tick(&mut tick);
    assert_eq!(tick, [1, 4]);
    assert!(matches!(Operation::decode(tick.into()), Ok(Operation::Tick)));
}

#[test]
fn every_cut_record_is_refused() {
    let whole = Bytes::from(write_of_two_rows());
    for len in 0..whole.len() {
        let read = Operation::decode(whole.slice(..len));
        let refused = match read {
            Err(_) => true,
            Ok(Operation::Write(mut write)) => write.any(|row| row.is_err()),
            Ok(_) => false,
        };
        assert!(refused, "cut at {len}");
    }
}

#[test]
fn a_traced_write_carries_its_trace_before_its_rows() {
    let trace = TraceContext::from_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let header = WriteHeader { trace, ..HEADER };
    let cells = cells(5);
    let (plain_bytes, traced) =
        (encoded(&HEADER, 9, &[plain(11, 1, b"row", &cells)]), encoded(&header, 9, &[plain(11, 1, b"row", &cells)]));
    let flags_at = WRITE_HEADER_BYTES - 5;
    assert_eq!((plain_bytes[flags_at], traced[flags_at]), (0, 4));
    assert_eq!(traced[flags_at + 1..flags_at + 1 + TRACE_CONTEXT_BYTES], trace.unwrap().to_bytes());
    assert_eq!(traced[flags_at + 1 + TRACE_CONTEXT_BYTES..], plain_bytes[flags_at + 1..]);
    assert_eq!(traced.len(), header.encoded_len() + plain_bytes.len() - HEADER.encoded_len());
    let mut nothing = traced.clone();
    nothing[flags_at + 1..flags_at + 17].fill(0);
    assert!(Operation::decode(nothing.into()).is_err(), "a trace is not zero");
    let Ok(Operation::Write(mut write)) = Operation::decode(traced.into()) else { panic!("not a write") };
    assert_eq!(write.header, header);
    assert_eq!(write.next().unwrap().unwrap().row, "row");
}

#[test]
fn an_unknown_format_kind_or_flag_is_refused() {
    assert!(Operation::decode(Bytes::from_static(&[2, 4])).is_err());
    assert!(Operation::decode(Bytes::from_static(&[1, 99])).is_err());
    let mut record = write_of_two_rows();
    record[WRITE_HEADER_BYTES + 16] = 8;
    let Ok(Operation::Write(mut write)) = Operation::decode(record.into()) else { panic!("not a write") };
    assert!(write.next().unwrap().is_err());
}

#[test]
fn operations_at_the_limits_of_the_edge_can_be_decoded() {
    use terrane_types::limits::{BATCH_ROWS_MAX, QUALIFIER_BYTES_MAX, ROW_BYTES_MAX};
    let row = vec![b'r'; ROW_BYTES_MAX];
    let mut longest = Vec::new();
    pack(&mut longest, CellRef::put(&[b'f'; 128], &[b'q'; QUALIFIER_BYTES_MAX], LATEST, b"v"));
    assert_eq!(rows(encoded(&HEADER, 1, &[plain(u64::MAX, u64::MAX, &row, &longest)]))[0].row, row);
    let cells = cells(5);
    let many: Vec<_> = (0..BATCH_ROWS_MAX as u64).map(|number| plain(number, 1, b"r", &cells)).collect();
    assert_eq!(rows(encoded(&HEADER, 1, &many)).len(), BATCH_ROWS_MAX);
    let split = |at: Vec<u8>| Split {
        region: RegionId(1),
        epoch: RegionEpoch(1),
        left: RegionId(2),
        right: RegionId(3),
        at: at.into(),
    };
    let (longest, mut encoded) = (split(row), Vec::new());
    longest.encode(&mut encoded).unwrap();
    assert!(matches!(Operation::decode(encoded.into()), Ok(Operation::Split(read)) if read == longest));
    assert!(split(vec![b'r'; 65_536]).encode(&mut Vec::new()).is_err(), "refused, and no panic");
}

#[test]
fn a_settle_has_this_layout() {
    let under_way = UnderWay::new(20, vec![(3, 3), (7, 9)]).unwrap();
    let settle = Settle { region: RegionId(7), client: [9; 16], under_way };
    let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let expected =
        [&[1, 5][..], &numbers(&[7]), &[9; 16], &numbers(&[20]), &[2, 0, 0, 0], &numbers(&[3, 3, 7, 9])].concat();
    let mut encoded = Vec::new();
    settle.encode(&mut encoded);
    assert_eq!((encoded.len(), &encoded), (settle.encoded_len(), &expected));
    assert!(matches!(Operation::decode(expected.clone().into()), Ok(Operation::Settle(read)) if read == settle));
    for cut in 2..expected.len() {
        assert!(Operation::decode(Bytes::copy_from_slice(&expected[..cut])).is_err(), "cut at {cut}");
    }
}
