//! Page tokens as the fuzz driver sees them.

use bytes::Bytes;
use hmac::Mac as _;
use terrane_types::TableId;
use terrane_types::fuzzing::{Damage, Dice, Format, draw, no_limits};
use terrane_types::limits::ROW_BYTES_MAX;

use super::{Binding, PageKey, PageSeal, Position, TAG_BYTES, bound, mac, read_positions};

/// A token for one request; a token for any other is refused.
pub(crate) const TOKEN: Format = Format {
    name: "page-token",
    damage: Damage::Refused,
    read: |bytes| {
        let token = Bytes::copy_from_slice(bytes);
        let positions = seal().open(&binding(), token.clone()).map_err(|error| error.to_string()).ok()?;
        let others = [
            Binding { table: TableId(6), ..binding() },
            Binding { end: Bytes::from_static(b"y"), ..binding() },
            Binding { reverse: false, ..binding() },
            Binding { filter: String::new(), ..binding() },
        ];
        for other in others {
            assert!(seal().open(&other, token.clone()).is_err(), "a token is opened for another request: {other:?}");
        }
        Some(sealed(&positions))
    },
    draw: |dice| checked(&dice.list(4, position)),
    limits: || {
        let last = Bytes::from(vec![0xFF; ROW_BYTES_MAX]);
        let longest = [Position { bucket: u32::MAX, last, finished: true }];
        let short = |bucket| Position { bucket, last: Bytes::from_static(&[7; 200]), finished: false };
        vec![checked(&longest), checked(&(0..256).map(short).collect::<Vec<_>>())]
    },
};

/// What a tag covers, with the tag that belongs to it.
pub(crate) const POSITIONS: Format = Format {
    name: "page-token-body",
    damage: Damage::Undetected,
    read: |bytes| {
        let tag = mac(&key(), bytes, &bound(&binding())).finalize().into_bytes();
        let positions = seal().open(&binding(), [bytes, &tag].concat().into());
        let positions = positions.map_err(|error| error.to_string()).ok()?;
        let mut token = sealed(&positions);
        token.truncate(token.len() - TAG_BYTES);
        Some(token)
    },
    draw: |dice| {
        let mut token = checked(&dice.list(4, position));
        token.truncate(token.len() - TAG_BYTES);
        assert!(read_positions(token.clone().into()).is_ok(), "positions that were sealed are read");
        token
    },
    limits: no_limits,
};

fn key() -> PageKey {
    PageKey { id: 9, secret: Bytes::from_static(&[3; 32]) }
}

fn seal() -> PageSeal {
    let seal = PageSeal::default();
    *seal.keys.write() = vec![key()].into();
    seal
}

fn binding() -> Binding {
    let (start, end) = (Bytes::from_static(b"a"), Bytes::from_static(b"z"));
    Binding { table: TableId(5), start, end, reverse: true, filter: "row < 'k'".to_owned() }
}

fn sealed(positions: &[Position]) -> Vec<u8> {
    seal().seal(&binding(), positions).expect("drawn positions are within the limits").into()
}

fn checked(positions: &[Position]) -> Vec<u8> {
    let token = sealed(positions);
    let back = seal().open(&binding(), token.clone().into()).expect("a token that was sealed is opened");
    assert_eq!(back, positions, "a token is opened with other positions");
    token
}

fn position(dice: &mut Dice) -> Position {
    let last = if dice.flag() { draw::row(dice).into() } else { Bytes::new() };
    Position { bucket: dice.number32(), last, finished: dice.flag() }
}
