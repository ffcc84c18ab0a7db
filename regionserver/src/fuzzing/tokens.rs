//! Resume tokens, which come back from clients.

use bytes::Bytes;
use terrane_types::KeyRange;
use terrane_types::fuzzing::{Damage, Dice, Format, draw, round_trip};
use terrane_types::limits::{NAME_CHARS_MAX, QUALIFIER_BYTES_MAX, ROW_BYTES_MAX};

use crate::region::aggregate::{Number, Totals};
use crate::region::latest::PrefixProgress;
use crate::region::resume_token::{CellAt, Position, ResumeToken};

/// A token, in the direction that it names.
pub const RESUME: Format = Format {
    name: "resume-token",
    damage: Damage::Undetected,
    read: |bytes| {
        let token = Bytes::copy_from_slice(bytes);
        let read = [false, true].map(|reverse| ResumeToken::decode(token.clone(), reverse));
        assert!(read[0].is_err() || read[1].is_err(), "a token is of both directions");
        let token = read.into_iter().find_map(|token| token.map_err(|error| error.to_string()).ok())?;
        Some(token.encode().expect("a token that was read has short rows").into())
    },
    draw: |dice| {
        let token = ResumeToken {
            reverse: dice.flag(),
            region: draw::range(dice),
            limit_left: dice.flag().then(|| dice.number()),
            offset_left: dice.number(),
            group: dice.flag().then(|| PrefixProgress { prefix: dice.bytes(30).into(), returned: dice.number32() }),
            totals: dice.flag().then(|| totals(dice)),
            position: position(dice),
            sequence: dice.flag().then(|| dice.number()),
        };
        checked(&token)
    },
    limits: || {
        let row = Bytes::from(vec![0xFF; ROW_BYTES_MAX]);
        let token = ResumeToken {
            reverse: true,
            region: KeyRange::new(vec![0xFE; ROW_BYTES_MAX], row.clone()).expect("the range is not reversed"),
            limit_left: Some(u64::MAX),
            offset_left: u64::MAX,
            group: Some(PrefixProgress { prefix: row.clone(), returned: u32::MAX }),
            totals: Some(totals(&mut Dice::new(1))),
            position: Position::Within {
                row,
                sequence: u64::MAX,
                cell: CellAt {
                    family: vec![b'f'; NAME_CHARS_MAX].into(),
                    qualifier: vec![0xFF; QUALIFIER_BYTES_MAX].into(),
                    timestamp: i64::MAX - 1,
                    sequence: u64::MAX,
                },
                unseen: true,
            },
            sequence: Some(u64::MAX),
        };
        vec![checked(&token)]
    },
};

fn checked(token: &ResumeToken) -> Vec<u8> {
    let bytes = token.encode().expect("drawn rows are short").into();
    round_trip(token, bytes, |bytes| ResumeToken::decode(Bytes::copy_from_slice(bytes), token.reverse))
}

fn position(dice: &mut Dice) -> Position {
    let row = Bytes::from(draw::row(dice));
    match dice.below(4) {
        0 => Position::Start,
        1 => Position::At(row),
        2 => Position::After(row),
        _ => Position::Within {
            row,
            sequence: dice.number(),
            cell: CellAt {
                family: dice.name().into(),
                qualifier: dice.bytes(30).into(),
                timestamp: dice.signed(),
                sequence: dice.number(),
            },
            unseen: dice.flag(),
        },
    }
}

fn totals(dice: &mut Dice) -> Totals {
    let float = dice.flag();
    let number = |dice: &mut Dice| match float {
        true => Number::Float(dice.pick(&[0.0, -1.5, f64::MAX, f64::INFINITY])),
        false => Number::Integer(dice.pick(&[0, -1, i128::MIN, i128::MAX])),
    };
    let (sum, extremes) = (number(dice), dice.flag().then(|| (number(dice), number(dice))));
    Totals { rows: dice.number(), values: dice.number(), sum, extremes }
}
