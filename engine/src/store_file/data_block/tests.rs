//! Blocks of cells: decoding returns what was encoded, and inconsistent blocks are rejected.

use super::*;

fn cell<'a>(row: &'a [u8], qualifier: &'a [u8], timestamp: i64, value: &'a [u8]) -> Cell<'a> {
    Cell { row, qualifier, tags: b"", value, timestamp, sequence: 9, position: 0, kind: CellKind::Put }
}

fn block_of(cells: &Cells) -> DataBlock {
    let mut out = Vec::new();
    encode(cells, &mut out);
    out.extend_from_slice(&[0; PADDING_BYTES]);
    DataBlock::new(out).unwrap()
}

fn decode(block: &DataBlock) -> Cells {
    let (mut decoder, mut back) = (Decoder::default(), Cells::default());
    while decoder.next(block).unwrap() != Next::End {
        back.push(decoder.cell(block));
    }
    back
}

fn shown(cells: &Cells) -> Vec<String> {
    cells.iter().map(|cell| format!("{cell:?}")).collect()
}

fn assert_seek_finds_the_first_not_before(cells: &Cells, block: &DataBlock, place: Place<'_>) {
    let expected = cells.iter().find(|cell| !place.is_after(cell.row, cell.qualifier));
    let mut decoder = Decoder::default();
    let found = decoder.seek(block, place).unwrap() != Next::End;
    let found = found.then(|| format!("{:?}", decoder.cell(block)));
    assert_eq!(found, expected.map(|cell| format!("{cell:?}")), "{place:?}");
}

#[test]
fn cells_of_every_kind_round_trip() {
    let mut cells = Cells::default();
    let huge = vec![7; 100_000];
    cells.push(cell(b"a", b"", i64::MAX - 1, b""));
    cells.push(Cell { kind: CellKind::DeleteFamily, position: 3, ..cell(b"a", b"", 0, b"") });
    cells.push(Cell { position: 4, tags: b"\x01\x01\x00t", ..cell(b"a", b"q", 0, b"v") });
    cells.push(Cell { position: u32::MAX, sequence: u64::MAX, ..cell(b"a", b"q", 0, b"w") });
    cells.push(Cell { position: 0, sequence: 0, ..cell(b"a", b"q", 0, &huge) });
    for at in 0..100u32 {
        let row = format!("row{:03}", at / 3);
        cells.push(cell(row.as_bytes(), &[at as u8], i64::from(at), &row.as_bytes()[..at as usize % 4]));
    }
    let block = block_of(&cells);
    assert_eq!(shown(&decode(&block)), shown(&cells));
    assert_eq!(block.cells(), cells.len());
}

#[test]
fn seeking_finds_the_first_cell_not_before_the_place() {
    let mut cells = Cells::default();
    for at in 0..200u32 {
        let row = format!("{:02}", at / 7 * 2);
        cells.push(cell(row.as_bytes(), &[(at % 7 * 2) as u8], 5, b"v"));
    }
    let block = block_of(&cells);
    for row in 0..60u32 {
        let row = format!("{row:02}").into_bytes();
        for qualifier in 0..15u8 {
            let bytes = [qualifier];
            for qualifier in [Some(&bytes[..]), None] {
                assert_seek_finds_the_first_not_before(&cells, &block, Place { row: &row, qualifier });
            }
        }
    }
}

#[test]
fn seeking_finds_rows_that_begin_each_other_and_rows_from_outside_of_what_all_begin_with() {
    // Rows of up to six letters from two, after a common beginning of any length: each is the beginning of many others.
    let suffixes = |from: usize| (from..126).step_by(3).map(|number| format!("{:b}", number + 2)[1..].to_owned());
    for common in ["", "u", "user00000000"] {
        let mut rows: Vec<Vec<u8>> = suffixes(0).map(|suffix| format!("{common}{suffix}").into_bytes()).collect();
        rows.sort();
        let mut cells = Cells::default();
        for (at, row) in rows.iter().enumerate() {
            for qualifier in 0..=(at % 4) as u8 {
                cells.push(cell(row, &[qualifier], 5, b"v"));
            }
        }
        let block = block_of(&cells);
        let mut places: Vec<Vec<u8>> = suffixes(1).map(|suffix| format!("{common}{suffix}").into_bytes()).collect();
        places.extend(rows);
        places.extend([b"".to_vec(), b"user".to_vec(), b"user0000000".to_vec(), b"userz".to_vec(), b"\xff".to_vec()]);
        for row in &places {
            for qualifier in [Some(&[][..]), Some(&[2][..]), None] {
                assert_seek_finds_the_first_not_before(&cells, &block, Place { row, qualifier });
            }
        }
    }
}

#[test]
fn a_row_ends_where_the_next_cell_of_the_block_belongs_to_another() {
    let mut cells = Cells::default();
    for at in 0..100u8 {
        cells.push(cell(&[1, at / 3], &[at], 5, b"v"));
    }
    let block = block_of(&cells);
    let mut decoder = Decoder::default();
    for at in 0..cells.len() {
        assert_ne!(decoder.next(&block).unwrap(), Next::End);
        let ends = at + 1 < cells.len() && cells.row(at) != cells.row(at + 1);
        assert_eq!(decoder.row_ends(&block), ends, "cell {at}");
    }
}

#[test]
fn a_row_of_one_column_costs_at_most_eight_bytes_beside_suffix_and_value() {
    let mut cells = Cells::default();
    let mut suffixes = 0;
    let mut previous = Vec::new();
    for at in 0..112u64 {
        let row = format!("user{:036}", at * 104_729);
        suffixes += row.len() - common_prefix(&previous, row.as_bytes());
        let sequence = at * 7919 % 2_000_000;
        cells.push(Cell {
            sequence,
            ..cell(row.as_bytes(), b"c", 1_700_000_000_000 + (at * 37 % 9_000) as i64, &[1; 100])
        });
        previous = row.into_bytes();
    }
    let mut out = Vec::new();
    encode(&cells, &mut out);
    let restarts = cells.len() / RESTART_INTERVAL * 40;
    let overhead = (out.len() - suffixes - restarts - 100 * cells.len()) as f64 / cells.len() as f64;
    assert!(overhead <= 8.0, "{overhead} bytes");
}

#[test]
fn bytes_that_make_no_sense_end_in_an_error_and_never_in_a_panic() {
    let mut cells = Cells::default();
    for at in 0..40u8 {
        cells.push(Cell { position: u32::from(at), ..cell(&[1, at / 3], &[at], 5, &[at; 3]) });
    }
    let mut good = Vec::new();
    encode(&cells, &mut good);
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            bytes.extend_from_slice(&[0; PADDING_BYTES]);
            let Ok(block) = DataBlock::new(bytes) else { continue };
            let mut decoder = Decoder::default();
            while decoder.next(&block).is_ok_and(|next| next != Next::End) {
                let _ = decoder.cell(&block).data_bytes();
            }
            let _ = Decoder::default().seek(&block, Place::row(&[1, 7]));
        }
    }
}
