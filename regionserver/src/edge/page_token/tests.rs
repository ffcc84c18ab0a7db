//! Tokens open as they were sealed, and in no other way.

use proptest::prelude::*;

use super::*;

fn key(id: u32) -> PageKey {
    PageKey { id, secret: Bytes::from(vec![u8::try_from(id).unwrap(); 32]) }
}

fn seal_with(keys: Vec<PageKey>) -> PageSeal {
    let seal = PageSeal::default();
    seal.set(keys);
    seal
}

fn binding() -> Binding {
    Binding {
        table: TableId(7),
        start: Bytes::from_static(b"a"),
        end: Bytes::from_static(b"z"),
        reverse: false,
        filter: "prefix(row, 'a')".to_owned(),
    }
}

fn position(bucket: u32, last: &'static str, finished: bool) -> Position {
    Position { bucket, last: Bytes::from_static(last.as_bytes()), finished }
}

fn refusal(opened: Result<Vec<Position>, Error>) -> String {
    match opened {
        Err(Error::Invalid(invalid)) => invalid.what,
        other => panic!("not refused as invalid: {other:?}"),
    }
}

/// Readers keep tokens for weeks, so these bytes must open in every later build.
#[test]
fn the_layout_is_fixed() {
    let seal = seal_with(vec![key(3)]);
    let token = seal.seal(&binding(), &[position(0, "m", false), position(1, "", true)]).unwrap();
    let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
}

/// Computed by other means too: the tag is the second line.
const GOLDEN: &str = concat!(
    "01030000000700000000000000cc4104c70200000000000001006d01000000010000",
    "d3a9e48b3cf551f0b8847f143826e387d3af79ebe1ea23e0903c1d593c4ac15b",
);

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let seal = seal_with(vec![key(3), key(2)]);
    let token = seal.seal(&binding(), &[position(0, "row", false)]).unwrap();
    for bit in 0..token.len() * 8 {
        let mut flipped = token.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        refusal(seal.open(&binding(), flipped.into()));
    }
    for len in 0..token.len() {
        refusal(seal.open(&binding(), token.slice(..len)));
    }
    let longer = [&token[..], b"x"].concat();
    refusal(seal.open(&binding(), longer.into()));
    assert_eq!(seal.open(&binding(), token).unwrap(), [position(0, "row", false)]);
}

#[test]
fn too_many_or_too_long_positions_are_refused() {
    let seal = seal_with(vec![key(1)]);
    let longest = Position { last: vec![1; ROW_BYTES_MAX].into(), ..position(0, "", false) };
    seal.seal(&binding(), std::slice::from_ref(&longest)).unwrap();
    assert!(seal.seal(&binding(), &[longest.clone(), longest.clone(), longest]).is_err());
    let longer = Position { last: vec![1; ROW_BYTES_MAX + 1].into(), ..position(0, "", false) };
    assert!(seal.seal(&binding(), &[longer]).is_err());
    seal.seal(&binding(), &vec![position(0, "", true); 256]).unwrap();
    assert!(seal.seal(&binding(), &vec![position(0, "", true); 257]).is_err());
}

proptest! {
    #[test]
    fn positions_round_trip(
        positions in proptest::collection::vec(
            (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..40), any::<bool>()), 0..20),
        start in proptest::collection::vec(any::<u8>(), 0..10),
        reverse in any::<bool>(),
    ) {
        let seal = seal_with(vec![key(5), key(4)]);
        let binding = Binding { start: start.into(), reverse, ..binding() };
        let positions: Vec<Position> = positions
            .into_iter()
            .map(|(bucket, last, finished)| Position { bucket, last: last.into(), finished })
            .collect();
        let token = seal.seal(&binding, &positions).unwrap();
        prop_assert_eq!(seal.open(&binding, token).unwrap(), positions);
    }

    #[test]
    fn foreign_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let seal = seal_with(vec![key(5)]);
        prop_assert!(seal.open(&binding(), bytes.into()).is_err());
    }
}
