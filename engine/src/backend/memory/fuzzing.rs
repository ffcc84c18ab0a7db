//! Files of cells as the fuzz driver sees them.
//!
//! [`FRAMES`] computes the checksums itself, so that changed bytes reach the cells.

use std::path::Path;

use terrane_types::FamilyName;
use terrane_types::fuzzing::{Damage, Format, no_limits};

use super::{decode, encode};
use crate::cells::Cells;
use crate::codec::{frame, unframe};
use crate::fuzzing::draw;

const FILE_ID: u64 = 7;

/// A whole file.
pub(crate) const FILE: Format = Format {
    name: "cells-file",
    damage: Damage::Refused,
    read: |bytes| read(bytes).map(|_| bytes.to_vec()),
    draw: |dice| written(&draw::cells(dice, 12)),
    limits: || vec![written(&draw::largest())],
};

/// The frames of a file, each after its 32-bit length.
pub(crate) const FRAMES: Format = Format {
    name: "cells-file-frames",
    damage: Damage::Undetected,
    read: |bytes| {
        let (mut file, mut rest) = (Vec::new(), bytes);
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX).min(after.len());
            let (payload, after) = after.split_at(length);
            frame(&mut file, payload);
            rest = after;
        }
        read(&file).map(|cells| frames(&encode(FILE_ID, &family(), &cells)))
    },
    draw: |dice| frames(&written(&draw::cells(dice, 12))),
    limits: no_limits,
};

fn family() -> FamilyName {
    FamilyName::new("f").expect("a valid name")
}

fn read(bytes: &[u8]) -> Option<Cells> {
    decode(Path::new("7.cells"), FILE_ID, bytes).map_err(|error| error.to_string()).ok()
}

fn written(cells: &Cells) -> Vec<u8> {
    let bytes = encode(FILE_ID, &family(), cells);
    let back = read(&bytes).expect("a file that was written is read");
    assert_eq!(back.len(), cells.len(), "a file is read with other cells");
    if bytes.len() < TEXT_BYTES_MAX {
        assert_eq!(draw::shown(&back), draw::shown(cells), "a file is read with other cells");
    }
    assert!(encode(FILE_ID, &family(), &back) == bytes, "cells that were read are written as other ones");
    bytes
}

/// Files up to this size are compared as text.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The frames without their checksums.
fn frames(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(payload) = unframe(bytes) {
        out.extend_from_slice(&bytes[..4]);
        out.extend_from_slice(payload);
        bytes = &bytes[crate::codec::FRAME_HEADER_BYTES + payload.len()..];
    }
    out
}
