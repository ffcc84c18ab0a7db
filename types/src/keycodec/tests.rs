//! The codec: order of bytes equals order of values, round trip, prefixes, and the layouts of the HBase world.

use bytes::Bytes;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::row_key::RowKey;
use crate::time::Time;

/// The classic layout of a table of user actions: `user id | Long.MAX_VALUE - time | action id`.
#[derive(Clone, Debug, PartialEq, PartialOrd, RowKey)]
struct Action {
    user: u64,
    time: Desc<i64>,
    action: u32,
}

#[derive(Clone, Debug, PartialEq, PartialOrd, RowKey)]
struct Everything {
    number: i32,
    name: String,
    raw: Vec<u8>,
    shared: Bytes,
    back: Desc<String>,
    flag: bool,
    at: Time,
    code: [u8; 3],
    id: Uuid,
    tail: Tail<String>,
}

#[derive(Clone, Debug, PartialEq, RowKey)]
struct Salted {
    bucket: Bucket<16>,
    user: String,
    time: Desc<i64>,
}

#[derive(Clone, Debug, PartialEq, RowKey)]
struct Float {
    value: f64,
}

fn encoded(part: &impl KeyPart) -> Vec<u8> {
    let mut out = Vec::new();
    part.encode_part(&mut out);
    out
}

fn decoded<T: KeyPart>(bytes: &[u8]) -> Result<T, Invalid> {
    let mut input = PartReader::new(bytes);
    let part = T::decode_part(&mut input)?;
    input.finish()?;
    Ok(part)
}

#[test]
fn the_classic_layout_is_byte_for_byte_what_java_writes() {
    // DataOutputStream: writeLong(userId), writeLong(Long.MAX_VALUE - time), writeInt(actionId).
    let key = Action { user: 0x0102_0304_0506_0708, time: Desc(1_700_000_000_000), action: 42 };
    let expected = [
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // writeLong(72623859790382856)
        0x7f, 0xff, 0xfe, 0x74, 0x30, 0x1a, 0x97, 0xff, // writeLong(9223370336854775807)
        0x00, 0x00, 0x00, 0x2a, // writeInt(42)
    ];
    assert_eq!(9_223_370_336_854_775_807, i64::MAX - 1_700_000_000_000);
    assert_eq!(key.encode().expect("a short key").as_bytes(), expected);
    assert_eq!(Action::decode(&expected), Ok(key));
}

#[test]
fn a_time_has_the_bytes_of_its_milliseconds() {
    #[derive(RowKey)]
    struct Dated {
        user: u64,
        time: Desc<Time>,
        action: u32,
    }
    let key = Dated { user: 7, time: Desc(Time::from_millis(1_700_000_000_000)), action: 42 };
    let row = key.encode().expect("a short key");
    assert_eq!(Action::decode(&row), Ok(Action { user: 7, time: Desc(1_700_000_000_000), action: 42 }));
    let since = Dated::prefix().user(7).time_between(Time::from_millis(1_700_000_000_000)..);
    assert!(since.contains(&row));
    let at: std::time::SystemTime = Time::from_millis(1_700_000_000_000).try_into().expect("a near time");
    assert!(crate::range::KeyRange::from(Dated::prefix().user(7).time(at)).contains(&row), "a time of the system");
    assert_eq!(Dated::declaration().as_stored(), Action::declaration());
}

#[test]
fn reverse_timestamps_at_their_ends() {
    for (time, bytes) in [
        (0, [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        (i64::MAX, [0; 8]),
        (-1, [0x80, 0, 0, 0, 0, 0, 0, 0]),
        (i64::MIN, [0xff; 8]),
    ] {
        assert_eq!(encoded(&Desc(time)), bytes, "{time}");
    }
}

#[test]
fn texts_end_so_that_a_prefix_sorts_first() {
    assert_eq!(encoded(&String::new()), [0, 1]);
    assert_eq!(encoded(&"a\0b".to_owned()), [b'a', 0, 0xff, b'b', 0, 1]);
    assert_eq!(encoded(&Desc("a".to_owned())), [!b'a', 0xff, 0xfe]);
}

#[test]
fn floats_are_in_total_order() {
    let negative_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63);
    let rising =
        [negative_nan, f64::NEG_INFINITY, -1.5, -f64::MIN_POSITIVE, -0.0, 0.0, 1e-300, 1.5, f64::INFINITY, f64::NAN];
    for pair in rising.windows(2) {
        assert!(encoded(&pair[0]) < encoded(&pair[1]), "{pair:?}");
        assert!(encoded(&Desc(pair[0])) > encoded(&Desc(pair[1])), "{pair:?}");
    }
}

#[test]
fn a_bucket_is_the_hash_of_what_follows() {
    let key = Salted { bucket: Bucket, user: "ann".to_owned(), time: Desc(5) };
    let row = key.encode().expect("a short key");
    let expected = xxhash_rust::xxh3::xxh3_64(&row[1..]) % 16;
    assert_eq!(u64::from(row[0]), expected);
    assert_eq!(Salted::decode(&row), Ok(key));
    let mut other = row.to_vec();
    other[0] ^= 1;
    assert!(Salted::decode(&other).expect_err("another bucket").what.contains("belong in bucket"));
}

#[test]
fn a_prefix_over_buckets_is_one_range_for_each() {
    let ranges = Salted::prefix_1(&"ann".to_owned());
    assert_eq!(ranges.len(), 16);
    for time in 0..50 {
        let ann = Salted { bucket: Bucket, user: "ann".to_owned(), time: Desc(time) }.encode().expect("short");
        let anna = Salted { bucket: Bucket, user: "anna".to_owned(), time: Desc(time) }.encode().expect("short");
        assert_eq!(ranges.iter().filter(|range| range.contains(&ann)).count(), 1);
        assert!(!ranges.iter().any(|range| range.contains(&anna)));
    }
}

#[test]
fn declarations_follow_the_types() {
    assert_eq!(Action::declaration().to_string(), "user:u64, time:desc i64, action:u32");
    assert_eq!(Salted::declaration().to_string(), "bucket16, user:text, time:desc i64");
    assert_eq!(
        Everything::declaration().to_string(),
        "number:i32, name:text, raw:bytes, shared:bytes, back:desc text, flag:bool, at:time, code:bytes3, id:uuid, tail:tail"
    );
    assert_eq!(Action::PARTS, ["user", "time", "action"]);
}

#[test]
fn what_is_no_key_is_refused() {
    let row = Action { user: 1, time: Desc(2), action: 3 }.encode().expect("a short key");
    assert!(Action::decode(&row[..19]).expect_err("too short").what.contains("ends inside a part"));
    assert!(Action::decode(&[&row[..], &[0]].concat()).expect_err("too long").what.contains("1 bytes more"));
    assert!(decoded::<bool>(&[2]).is_err());
    assert!(decoded::<String>(b"a").expect_err("no end").what.contains("ends inside"));
    assert!(decoded::<String>(b"a\0\x02").expect_err("a bad escape").what.contains("00 02"));
    assert!(decoded::<String>(b"\xff\0\x01").expect_err("not UTF-8").what.contains("UTF-8"));
}

#[test]
fn a_key_too_long_for_a_row_is_refused() {
    #[derive(RowKey)]
    struct Long {
        tail: Tail<Vec<u8>>,
    }
    assert!(Long { tail: Tail(vec![0; 32_768]) }.encode().is_err());
    assert!(Long { tail: Tail(Vec::new()) }.encode().is_err(), "an empty key is no row");
    assert!(Long { tail: Tail(vec![0; 32_767]) }.encode().is_ok());
}

/// Few letters, so that equal values, prefixes and zero bytes come up often.
fn text() -> impl Strategy<Value = String> {
    "[a\u{0}\u{1}\u{ff}]{0,4}"
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff), any::<u8>()], 0..4)
}

fn everything() -> impl Strategy<Value = Everything> {
    (
        prop_oneof![-2i32..3, any::<i32>()],
        text(),
        bytes(),
        bytes(),
        text(),
        any::<bool>(),
        any::<i64>(),
        any::<[bool; 3]>(),
        any::<bool>(),
        text(),
    )
        .prop_map(|(number, name, raw, shared, back, flag, at, code, id, tail)| Everything {
            number,
            name,
            raw,
            shared: shared.into(),
            back: Desc(back),
            flag,
            at: Time::from_millis(at),
            code: code.map(u8::from),
            id: Uuid::from_u128(u128::from(id)),
            tail: Tail(tail),
        })
}

/// Order and round trip of one part, both ways round.
fn check_part<T: PlainPart + Ord + Clone + std::fmt::Debug>(a: &T, b: &T) -> Result<(), TestCaseError> {
    prop_assert_eq!(encoded(a).cmp(&encoded(b)), a.cmp(b));
    prop_assert_eq!(encoded(&Desc(a.clone())).cmp(&encoded(&Desc(b.clone()))), b.cmp(a));
    prop_assert_eq!(&decoded::<T>(&encoded(a))?, a);
    prop_assert_eq!(&decoded::<Desc<T>>(&encoded(&Desc(a.clone())))?.0, a);
    Ok(())
}

proptest! {
    #[test]
    fn parts_sort_as_their_values(
        u32s: [u32; 2], u64s: [u64; 2], i32s: [i32; 2], i64s: [i64; 2], arrays: [[u8; 5]; 2], bools: [bool; 2],
        ids: [u128; 2], texts in [text(), text()], raws in [bytes(), bytes()],
    ) {
        check_part(&u32s[0], &u32s[1])?;
        check_part(&u64s[0], &u64s[1])?;
        check_part(&i32s[0], &i32s[1])?;
        check_part(&i64s[0], &i64s[1])?;
        check_part(&arrays[0], &arrays[1])?;
        check_part(&bools[0], &bools[1])?;
        check_part(&Uuid::from_u128(ids[0]), &Uuid::from_u128(ids[1]))?;
        check_part(&texts[0], &texts[1])?;
        check_part(&raws[0], &raws[1])?;
        check_part(&Bytes::from(raws[0].clone()), &Bytes::from(raws[1].clone()))?;
    }

    #[test]
    fn floats_sort_as_total_order_says(a in any::<u64>(), b in any::<u64>()) {
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        prop_assert_eq!(encoded(&a).cmp(&encoded(&b)), a.total_cmp(&b));
        let key = Float { value: a };
        let row = key.encode()?;
        prop_assert_eq!(Float::decode(&row)?.value.to_bits(), a.to_bits());
    }

    #[test]
    fn desc_i64_is_max_minus_t(time: i64) {
        prop_assert_eq!(encoded(&Desc(time)), i64::MAX.wrapping_sub(time).to_be_bytes());
    }

    #[test]
    fn keys_sort_as_their_parts(a in everything(), b in everything()) {
        let (row_a, row_b) = (a.encode()?, b.encode()?);
        prop_assert_eq!(Some(row_a.cmp(&row_b)), a.partial_cmp(&b));
        prop_assert_eq!(Everything::decode(&row_a)?, a);
    }

    #[test]
    fn prefix_ranges_hold_exactly_the_keys_with_that_prefix(a in everything(), b in everything()) {
        let row = b.encode()?;
        let mut equal = a.number == b.number;
        prop_assert_eq!(Everything::prefix_1(&a.number).contains(&row), equal);
        equal &= a.name == b.name;
        prop_assert_eq!(Everything::prefix_2(&a.number, &a.name).contains(&row), equal);
        equal &= a.raw == b.raw;
        prop_assert_eq!(Everything::prefix_3(&a.number, &a.name, &a.raw).contains(&row), equal);
        equal &= a.shared == b.shared && a.back == b.back;
        let range = Everything::prefix_5(&a.number, &a.name, &a.raw, &a.shared, &a.back);
        prop_assert_eq!(range.contains(&row), equal);
    }

    #[test]
    fn prefixes_of_variable_parts_are_exact(a in text(), b in text(), c in text(), back in text(), other in text()) {
        #[derive(RowKey)]
        struct Leading {
            back: Desc<String>,
            name: String,
            tail: Tail<String>,
        }
        let row = Leading { back: Desc(back.clone()), name: a.clone(), tail: Tail(c.clone()) }.encode()?;
        prop_assert_eq!(Leading::prefix_1(&Desc(other.clone())).contains(&row), back == other);
        prop_assert_eq!(Leading::prefix_2(&Desc(back.clone()), &b).contains(&row), a == b);
        let range = Leading::prefix_3(&Desc(back), &a, &Tail(other.clone()));
        prop_assert_eq!(range.contains(&row), c.starts_with(&other));
    }

    #[test]
    fn random_bytes_never_panic(row: Vec<u8>) {
        let _ = Everything::decode(&row);
        let _ = Salted::decode(&row);
        let _ = Action::decode(&row);
    }
}
