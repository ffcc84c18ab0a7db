//! Typed row keys: declarations, their text form, and the order of encodings.

use std::cmp::{Ordering, Reverse};

use terrane_types::fuzzing::{Damage, Dice, Format, again, draw, no_limits, round_trip};
use terrane_types::limits::ROW_BYTES_MAX;
use terrane_types::{Bucket, Desc, KeyDeclaration, RowKey, Tail};

/// The formats of this module.
pub const FORMATS: &[Format] = &[DECLARATION, TEXT, ORDER];

const DECLARATION: Format = Format {
    name: "key-declaration",
    damage: Damage::Undetected,
    read: |bytes| again(KeyDeclaration::parse(std::str::from_utf8(bytes).ok()?), |key| key.to_string().into_bytes()),
    draw: |dice| {
        let key = draw::key(dice);
        round_trip(&key, key.to_string().into_bytes(), |bytes| KeyDeclaration::parse(&String::from_utf8_lossy(bytes)))
    },
    limits: no_limits,
};

/// A declaration, a zero byte, and a row: what is shown of a key is the key when it is typed in again.
const TEXT: Format = Format {
    name: "key-text",
    damage: Damage::Undetected,
    read: |bytes| {
        let at = bytes.iter().position(|byte| *byte == 0)?;
        let key = KeyDeclaration::parse(std::str::from_utf8(&bytes[..at]).ok()?).map_err(|error| error.to_string());
        let (key, row) = (key.ok()?, &bytes[at + 1..]);
        assert!((0..4).filter_map(|parts| key.prefix_len(row, parts)).is_sorted());
        let texts = key.decode(row).map_err(|error| error.to_string()).ok()?;
        if row.is_empty() || row.len() > ROW_BYTES_MAX {
            return None;
        }
        let again = key.encode(&texts).unwrap_or_else(|error| panic!("a shown key is refused: {error}\n{texts:?}"));
        assert_eq!(again.as_bytes(), row, "a shown key is another one when it is typed in: {texts:?}");
        Some(bytes.to_vec())
    },
    draw: |dice| {
        let key = draw::key(dice);
        let texts: Vec<String> = key.text_parts().iter().map(|part| part_text(dice, &part.kind.to_string())).collect();
        let row = key.encode(&texts).unwrap_or_else(|error| panic!("a valid key is refused: {error}\n{key} {texts:?}"));
        [key.to_string().as_bytes(), &[0], row.as_bytes()].concat()
    },
    limits: no_limits,
};

fn part_text(dice: &mut Dice, kind: &str) -> String {
    match kind.trim_start_matches("desc ") {
        "u32" => dice.number32().to_string(),
        "u64" => dice.number().to_string(),
        "i32" => dice.number32().cast_signed().to_string(),
        "i64" | "time" => dice.signed().to_string(),
        "f64" => dice.pick(&[0.0, -0.0, 1.5, -1e300, f64::INFINITY, f64::MIN_POSITIVE]).to_string(),
        "bool" => dice.flag().to_string(),
        "uuid" => {
            let digits: String = dice.array::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
        }
        "text" => dice.text(8).replace(['\\', '\0', '\n'], "x"),
        fixed if fixed.starts_with("bytes") && fixed != "bytes" => {
            "x".repeat(fixed["bytes".len()..].parse().expect("a width"))
        }
        _ => format!("b{}", terrane_types::escape(&dice.bytes(12))),
    }
}

/// A key of every kind of part.
#[derive(Debug, PartialEq, RowKey)]
struct Sample {
    bucket: Bucket<7>,
    number: i64,
    time: Desc<i32>,
    ratio: f64,
    name: String,
    blob: Desc<Vec<u8>>,
    small: u32,
    yes: bool,
    rest: Tail<Vec<u8>>,
}

/// An encoded key of every kind of part. Two drawn ones sort as bytes as their values do.
const ORDER: Format = Format {
    name: "key-order",
    damage: Damage::Undetected,
    read: |row| {
        let sample = Sample::decode(row).map_err(|error| error.to_string()).ok()?;
        let mut again = Vec::new();
        sample.encode_into(&mut again);
        Some(again)
    },
    draw: |dice| {
        let one = sample(dice);
        // Often equal up to some part.
        let mut other = sample(&mut dice.clone());
        if dice.flag() {
            (other.number, other.ratio) = (one.number, one.ratio);
            (other.time, other.name) = (Desc(one.time.0), one.name.clone());
        }
        let bytes = |key: &Sample| {
            let mut out = Vec::new();
            key.encode_into(&mut out);
            out
        };
        let (first, second) = (bytes(&one), bytes(&other));
        assert_eq!(first[1..].cmp(&second[1..]), compare(&one, &other), "{one:?}\n{other:?}");
        round_trip(&one, first, Sample::decode)
    },
    limits: no_limits,
};

fn sample(dice: &mut Dice) -> Sample {
    Sample {
        bucket: Bucket,
        number: dice.signed(),
        time: Desc(dice.number32().cast_signed()),
        ratio: dice.pick(&[0.0, -0.0, 1.5, -2.5, f64::MAX, f64::MIN, f64::INFINITY, f64::NEG_INFINITY]),
        name: dice.text(6),
        blob: Desc(dice.bytes(8)),
        small: dice.number32(),
        yes: dice.flag(),
        rest: Tail(dice.bytes(8)),
    }
}

/// The order of the values, part by part.
fn compare(one: &Sample, other: &Sample) -> Ordering {
    let order = one.number.cmp(&other.number).then(Reverse(one.time.0).cmp(&Reverse(other.time.0)));
    let order =
        order.then(one.ratio.total_cmp(&other.ratio)).then_with(|| one.name.as_bytes().cmp(other.name.as_bytes()));
    let order = order.then_with(|| other.blob.0.cmp(&one.blob.0)).then(one.small.cmp(&other.small));
    order.then(one.yes.cmp(&other.yes)).then_with(|| one.rest.0.cmp(&other.rest.0))
}
