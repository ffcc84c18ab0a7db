//! Draws cells in store order.

use terrane_types::CellKind;
use terrane_types::fuzzing::Dice;
use terrane_types::limits::{QUALIFIER_BYTES_MAX, ROW_BYTES_MAX, TAGS_BYTES_MAX, VALUE_BYTES_MAX};

use crate::cells::{Cell, Cells};

/// At least one cell.
pub(crate) fn cells(dice: &mut Dice, most: usize) -> Cells {
    let mut cells = Cells::default();
    let (mut row, mut qualifier) = (vec![b'r'], Vec::new());
    let (timestamp, sequence) = (dice.number() >> 2, dice.number() >> 1);
    for _ in 0..1 + dice.below(most) {
        if dice.flag() {
            row.truncate(dice.below(row.len() + 1));
            row.extend_from_slice(&dice.bytes(40));
            if row.is_empty() {
                row.push(b'r');
            }
        }
        if dice.flag() {
            qualifier = dice.bytes(30);
        }
        let value = dice.bytes(400);
        let kind = dice.pick(&[CellKind::Put, CellKind::Put, CellKind::Delete, CellKind::DeleteColumn]);
        cells.push(Cell {
            row: &row,
            qualifier: &qualifier,
            tags: if dice.one_in(8) { b"\x01\x01\x00t" } else { b"" },
            value: if kind == CellKind::Put { &value } else { b"" },
            timestamp: timestamp.cast_signed() + dice.below(300) as i64,
            sequence: sequence.saturating_add(dice.below(70_000) as u64),
            position: dice.pick(&[0, 0, 1, 2, u32::MAX]),
            kind,
        });
    }
    cells.sort_from(0);
    cells
}

/// Two cells with rows, qualifiers, tags and values of the greatest length.
pub(crate) fn largest() -> Cells {
    let mut cells = Cells::default();
    let (row, qualifier) = (vec![0xFF; ROW_BYTES_MAX], vec![0xFF; QUALIFIER_BYTES_MAX]);
    let (tags, value) = (vec![1; TAGS_BYTES_MAX], vec![7; VALUE_BYTES_MAX]);
    for (timestamp, sequence, position) in [(i64::MAX - 1, u64::MAX, u32::MAX), (0, 0, 0)] {
        let kind = CellKind::Put;
        cells.push(Cell {
            row: &row,
            qualifier: &qualifier,
            tags: &tags,
            value: &value,
            timestamp,
            sequence,
            position,
            kind,
        });
    }
    cells
}

/// The cells as text, to compare them.
pub(crate) fn shown(cells: &Cells) -> Vec<String> {
    cells.iter().map(|cell| format!("{cell:?}")).collect()
}
