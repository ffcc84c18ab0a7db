//! Keys and values of sled as the fuzz driver sees them.

use terrane_types::fuzzing::{Damage, Format};

use super::keys::{key_of, read_cell, sequence_of, value_of};
use crate::cells::{Cell, Cells};
use crate::fuzzing::draw;

/// A key after its 32-bit length, and the value. Keys sort as cells do.
pub(crate) const CELL: Format = Format {
    name: "sled-cell",
    damage: Damage::Undetected,
    read: |bytes| {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (key, value) = rest.split_at_checked(length)?;
        sequence_of(key);
        let mut cells = Cells::default();
        read_cell(key, value, &mut cells)?;
        Some(written(cells.get(0)))
    },
    draw: |dice| {
        let cells = draw::cells(dice, 6);
        let keys: Vec<Vec<u8>> = cells.iter().map(key_of).collect();
        assert!(keys.is_sorted(), "keys do not sort as cells: {keys:?}");
        checked(cells.get(dice.below(cells.len())))
    },
    limits: || vec![checked(draw::largest().get(0))],
};

fn written(cell: Cell<'_>) -> Vec<u8> {
    let key = key_of(cell);
    let length = u32::try_from(key.len()).expect("keys are short").to_le_bytes();
    [&length[..], &key, &value_of(cell)].concat()
}

fn checked(cell: Cell<'_>) -> Vec<u8> {
    let mut back = Cells::default();
    read_cell(&key_of(cell), &value_of(cell), &mut back).expect("a cell that was written is read");
    let back = back.get(0);
    assert!(back.cmp_place(&cell).is_eq(), "a cell is read at another place");
    assert!((back.value, back.tags, back.kind) == (cell.value, cell.tags, cell.kind), "a cell is read as another one");
    assert_eq!(sequence_of(&key_of(cell)), Some(cell.sequence));
    written(cell)
}
