//! Declarations as text, and keys by part.

use proptest::prelude::*;

use super::*;
use crate::keycodec::{Desc, PartType, Tail};
use crate::range::KeyRange;
use crate::row_key::RowKey;

fn key(text: &str) -> KeyDeclaration {
    KeyDeclaration::parse(text).expect(text)
}

#[test]
fn every_type_is_read_and_shown_again() {
    let text = "bucket256, a:u32, b:desc u64, c:i32, d:desc i64, e:f64, f:bool, g:uuid, h:desc text, i:bytes, j:bytes12, \
                k:time, l:desc time, m:tail";
    assert_eq!(key(text).to_string(), text);
    assert_eq!(key(" user : u64 ,time:desc   i64 ").to_string(), "user:u64, time:desc i64");
    assert_eq!(key("salt:bucket8, a:u32").to_string(), "salt:bucket8, a:u32");
}

#[test]
fn bad_declarations_say_what_is_wrong() {
    for (text, part) in [
        ("", "name:type"),
        ("user", "name:type"),
        ("user:", "not the type"),
        ("user:u16", "u32 u64 i32 i64"),
        (":u64", "not the name of a key part"),
        ("a b:u64", "not the name of a key part"),
        ("a:u64, a:u32", "named a"),
        ("a:tail, b:u32", "only be the last"),
        ("a:u32, b:bucket4", "only be the first"),
        ("bucket4", "nothing but a bucket"),
        ("bucket0, a:u32", "1 to 256"),
        ("bucket257, a:u32", "1 to 256"),
        ("a:bytes0", "1 to 32767"),
        ("a:desc tail", "no direction"),
        ("desc bucket4, a:u32", "name:type"),
        ("a:desc desc u32", "not the type"),
    ] {
        let error = KeyDeclaration::parse(text).expect_err(text).what;
        assert!(error.contains(part), "{text:?}: {error}");
    }
    let many: Vec<String> = (0..33).map(|number| format!("p{number}:u32")).collect();
    assert!(KeyDeclaration::parse(&many.join(",")).expect_err("33 parts").what.contains("1 to 32"));
}

#[test]
fn keys_by_part_are_the_keys_of_the_codec() {
    #[derive(RowKey)]
    struct Typed {
        user: String,
        time: Desc<i64>,
        tail: Tail<String>,
    }
    let row = Typed { user: "a\0b".to_owned(), time: Desc(-5), tail: Tail("x\\y".to_owned()) }.encode().expect("short");
    let declared = Typed::declaration();
    assert_eq!(declared.encode(&[r"a\x00b", "-5", r"x\\y"]), Ok(row.clone()));
    assert_eq!(declared.decode(&row).expect("own output"), [r"a\x00b", "-5", r"x\\y"]);
}

#[test]
fn a_bucket_is_computed_and_left_out() {
    let key = key("bucket16, user:u64");
    let row = key.encode(&["7"]).expect("one part is given");
    assert_eq!((row.len(), key.decode(&row)), (9, Ok(vec!["7".to_owned()])));
    assert_eq!(key.text_parts().len(), 1);
    assert!(key.encode(&["3", "7"]).expect_err("the bucket is not given").what.contains("1 parts (user), not 2"));
    let ranges = key.prefix_ranges(&["7"]).expect("a prefix");
    assert_eq!(ranges.iter().filter(|range| range.contains(&row)).count(), 1);
    let mut other = row.to_vec();
    other[0] = other[0].wrapping_add(1);
    assert!(key.decode(&other).is_err());
}

#[test]
fn a_wrong_text_names_its_part() {
    let key = key("user:u64, code:bytes2, id:uuid");
    for (texts, part) in [
        (["-1", "ab", "00000000-0000-0000-0000-000000000000"], "part user (u64)"),
        (["1", "abc", "00000000-0000-0000-0000-000000000000"], "3 bytes are given where 2 belong"),
        (["1", r"a\q", "00000000-0000-0000-0000-000000000000"], "escape"),
        (["1", "ab", "no"], "part id (uuid)"),
    ] {
        let error = key.encode(&texts).expect_err(part).what;
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn prefixes_count_parts() {
    let key = key("user:text, time:desc i64, tail:tail");
    let row = key.encode(&["ann", "5", "rest"]).expect("a key");
    let lengths: Vec<_> = (0..=4).map(|parts| key.prefix_len(&row, parts)).collect();
    assert_eq!(lengths, [Some(0), Some(5), Some(13), Some(17), None]);
    assert_eq!(key.prefix_len(b"ann", 1), None);
}

fn kinds() -> impl Strategy<Value = PartKind> {
    let part = prop_oneof![
        Just(PartType::U32),
        Just(PartType::U64),
        Just(PartType::I32),
        Just(PartType::I64),
        Just(PartType::F64),
        Just(PartType::Time),
        Just(PartType::Bool),
        Just(PartType::Uuid),
        Just(PartType::Text),
        Just(PartType::Bytes),
        (1u16..40).prop_map(PartType::Fixed),
    ];
    (part, any::<bool>()).prop_map(|(part, desc)| PartKind { part, desc })
}

fn declarations() -> impl Strategy<Value = KeyDeclaration> {
    (proptest::collection::vec(kinds(), 1..6), proptest::option::of(1u16..=256), any::<bool>()).prop_map(
        |(mut kinds, bucket, tail)| {
            kinds.extend(tail.then(|| PartKind::asc(PartType::Tail)));
            let bucket = bucket.map(|buckets| PartKind::asc(PartType::Bucket(buckets)));
            let kinds = bucket.into_iter().chain(kinds);
            let part = |(at, kind): (usize, PartKind)| KeyPart { name: format!("p{at}"), kind };
            KeyDeclaration::new(kinds.enumerate().map(part).collect()).expect("made by the rules")
        },
    )
}

proptest! {
    #[test]
    fn text_round_trip(declaration in declarations()) {
        prop_assert_eq!(KeyDeclaration::parse(&declaration.to_string()), Ok(declaration));
    }

    #[test]
    fn whatever_a_row_decodes_to_encodes_to_the_row(declaration in declarations(), row: Vec<u8>) {
        if let Ok(texts) = declaration.decode(&row) {
            // A NaN's payload is not in its text; every other key comes back byte for byte.
            if !texts.iter().any(|text| text == "NaN") {
                let again = declaration.encode(&texts);
                prop_assert_eq!(again.as_ref().map(|row| row.as_bytes()), Ok(&row[..]));
            }
        }
    }

    #[test]
    fn prefixes_end_where_their_parts_do(declaration in declarations(), row in proptest::collection::vec(any::<u8>(), 0..120)) {
        let parts = declaration.parts();
        let mut before = 0;
        for count in 1..=parts.len() {
            let length = declaration.prefix_len(&row, u32::try_from(count).expect("at most 32"));
            // A bucket alone is no declaration, and in a row made up it is seldom the one of the other parts.
            if !parts[0].kind.is_bucket() {
                let leading = KeyDeclaration::new(parts[..count].to_vec()).expect("a declaration's leading parts are one");
                prop_assert_eq!(length.is_some(), leading.decode(&row[..length.unwrap_or(row.len())]).is_ok());
            }
            let Some(length) = length else { break };
            prop_assert!((before..=row.len()).contains(&length));
            before = length;
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text: String) {
        let _ = KeyDeclaration::parse(&text);
    }
}

#[test]
fn every_nan_is_shown_so_that_it_is_the_same_key_when_typed_in() {
    let key = KeyDeclaration::parse("a:f64, b:desc f64").unwrap();
    let quiet = f64::NAN.to_bits();
    for bits in [quiet, quiet | 7, quiet | 1 << 63, f64::INFINITY.to_bits() | 1] {
        let text = if bits == quiet { "NaN".to_owned() } else { format!("NaN:{bits:016x}") };
        let row = key.encode(&[&text, &text]).unwrap();
        assert_eq!(key.decode(&row).unwrap(), [text.clone(), text]);
    }
    assert!(key.encode(&["NaN:0", "1"]).is_err(), "bits of a number");
}

#[test]
fn a_key_is_read_from_a_line_by_name_or_in_order() {
    let key = key("user:u64, time:desc i64, action:u32");
    let row = key.parse_line("user=7,time=1767225600000,action=1").expect("by name");
    assert_eq!(key.parse_line("action=1,user=7,time=1767225600000").expect("in any order"), row);
    assert_eq!(key.parse_line("7,1767225600000,1").expect("in order"), row);
    assert_eq!(key.line(&row).expect("a key"), "user=7,time=1767225600000,action=1");
    assert_eq!(key.parse_bound_line("user=7").expect("a bound"), 7_u64.to_be_bytes());
    assert_eq!(key.parse_prefix_line("7").expect("a prefix"), [KeyRange::prefix(&7_u64.to_be_bytes())]);
    assert_eq!(key.parse_prefix_line("").expect("no part"), [KeyRange::prefix(b"")]);
}

#[test]
fn a_bad_line_names_the_part_and_what_it_takes() {
    let key = key("user:u64, name:text");
    for (line, named) in [
        ("user=7", "part name (text) is missing"),
        ("7", "part name (text) is missing"),
        ("", "part user (u64) is missing"),
        ("user=-1,name=a", "part user (u64): \"-1\" is not an integer from 0 to 18446744073709551615"),
        ("7,a,b", "3 parts are given; a key is user=<u64>,name=<text>"),
        ("usr=7,name=a", "the key has no part \"usr\"; did you mean user?"),
        ("user=7,user=8", "part user is given twice"),
        ("user=7,a", "name all parts or none"),
        ("7,a=b", "name all parts or none"),
        ("user=7,name=a=b", "needs single quotes: 'a=b'"),
        ("7,o'brien", "needs single quotes: 'o''brien'"),
        ("7,'open", "is not closed"),
        ("7,'a'b", "a comma belongs between"),
    ] {
        let refused = key.parse_line(line).expect_err(line).what;
        assert!(refused.contains(named), "{line}: {refused}");
    }
    let refused = key.parse_prefix_line("name=a").expect_err("a gap").what;
    assert!(refused.contains("part name is given without user"), "{refused}");
}

proptest! {
    #[test]
    fn a_line_is_read_back(user: u64, name: String, data: Vec<u8>) {
        let key = key("bucket4, user:u64, name:text, data:bytes");
        let row = key.encode(&[user.to_string(), crate::escape::escape(name.as_bytes()), crate::escape::escape(&data)]);
        let row = row.expect("a key");
        let line = key.line(&row).expect("a key");
        prop_assert_eq!(key.parse_line(&line).expect(&line), row);
    }

    #[test]
    fn any_line_is_read_or_refused(line: String) {
        let key = key("user:text, time:i64");
        let _ = key.parse_line(&line);
        let _ = key.parse_prefix_line(&line);
    }
}
