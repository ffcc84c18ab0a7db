//! Spans: exactly the keys that are meant, whatever the order of the part and the bytes around it.

use proptest::prelude::*;

use super::*;
use crate::keycodec::{Bucket, Desc, Tail};

#[derive(Clone, Debug, PartialEq, PartialOrd, RowKey)]
struct Action {
    user: u64,
    time: Desc<i64>,
    action: i32,
}

#[derive(Clone, Debug, PartialEq, RowKey)]
struct Salted {
    bucket: Bucket<16>,
    user: String,
    time: Desc<i64>,
}

#[derive(Clone, Debug, PartialEq, RowKey)]
struct File {
    folder: String,
    name: Tail<String>,
}

#[test]
fn leading_parts_stand_for_a_span_by_themselves() {
    let row = Action { user: 7, time: Desc(5), action: 1 }.encode().expect("short");
    let spans: [KeySpan<Action>; 6] = [
        (..).into_span(),
        7u64.into_span(),
        (7u64, Desc(5)).into_span(),
        (7, 5).into_span(),
        Action::prefix_2(&7, &Desc(5)).into_span(),
        Action::prefix().user(7).time(5).into_span(),
    ];
    for span in &spans {
        assert!(span.contains(&row), "{span:?}");
        assert_eq!(span.ranges().len(), 1);
    }
    assert_eq!([&spans[3], &spans[5]], [&spans[2]; 2]);
}

#[test]
fn a_text_stands_for_a_span_borrowed_too() {
    let spans: [KeySpan<File>; 3] =
        ["music".into_span(), "music".to_owned().into_span(), File::prefix().folder("music").into_span()];
    assert!(spans.iter().all(|span| span == &spans[0]));
    let salted: KeySpan<Salted> = "ann".into_span();
    assert_eq!(salted, Salted::prefix().user("ann").into_span());
    for both in [("ann", 5).into_span(), ("ann".to_owned(), 5).into_span(), ("ann".to_owned(), Desc(5)).into_span()] {
        assert_eq!(both, Salted::prefix().user("ann").time(5).into_span());
    }
}

#[test]
fn a_span_of_salted_keys_is_a_range_of_each_bucket() {
    let span: KeySpan<Salted> = Salted::prefix().user("ann").time_between(5..).into_span();
    let ranges = span.ranges();
    assert_eq!(ranges.len(), 16);
    for time in 0..20 {
        for user in ["ann", "anna", "an"] {
            let key = Salted { bucket: Bucket, user: user.to_owned(), time: Desc(time) }.encode().expect("short");
            let expected = user == "ann" && time >= 5;
            assert_eq!(ranges.iter().filter(|range| range.contains(&key)).count(), usize::from(expected));
            assert_eq!(span.contains(&key), expected);
        }
    }
    let all: KeySpan<Salted> = (..).into_span();
    assert_eq!(all.ranges().last(), Some(&KeyRange::prefix(&[15])));
}

#[test]
fn a_span_over_all_buckets_ends_where_rows_do() {
    #[derive(RowKey)]
    struct Widest {
        bucket: Bucket<256>,
        id: u32,
    }
    let all: KeySpan<Widest> = (..).into_span();
    let key = Widest { bucket: Bucket, id: 7 }.encode().expect("short");
    assert_eq!(all.ranges().iter().filter(|range| range.contains(&key)).count(), 1);
    assert_eq!(all.ranges()[255], KeyRange { start: vec![255].into(), end: "".into() });
}

#[test]
fn the_highest_values_have_nothing_behind_them() {
    let span = Action::prefix().user_between((Bound::Excluded(u64::MAX), Bound::Unbounded));
    assert!(span.inner().is_empty() && !span.inner().end.is_empty());
    let high = Action { user: u64::MAX, time: Desc(i64::MIN), action: i32::MAX }.encode().expect("short");
    assert!(Action::prefix().user_between(u64::MAX..).contains(&high));
    assert!(Action::prefix().user_between(..=u64::MAX).contains(&high));
    assert!(!Action::prefix().user_between(..u64::MAX).contains(&high));
    let (low, high) = (Bound::Included(5), Bound::Excluded(3));
    assert!(Action::prefix().user_between((low, high)).inner().is_empty());
}

#[test]
fn the_length_of_leading_parts_is_found_in_the_key() {
    let key = Salted { bucket: Bucket, user: "a\0b".to_owned(), time: Desc(5) }.encode().expect("short");
    let behind = after_bucket::<Salted>(&key).expect("it has a bucket");
    let of = |parts| leading_bytes::<Salted>(parts, behind).expect("a key");
    assert_eq!((of(0), of(1), of(2), of(3)), (0, 6, 14, 14));
    assert!(leading_bytes::<Salted>(2, &behind[..10]).is_err());
    let file = File { folder: "f".to_owned(), name: Tail("name".to_owned()) }.encode().expect("short");
    assert_eq!(leading_bytes::<File>(2, &file), Ok(7));
}

proptest! {
    #[test]
    fn bounds_hold_exactly_the_values_between(
        user in 0u64..3, time in -3i64..4, action in -2i32..3, other in 0u64..3, low in -4i64..5, high in -4i64..5,
    ) {
        let row = Action { user, time: Desc(time), action }.encode()?;
        let of = || Action::prefix().user(other);
        let same = user == other;
        prop_assert_eq!(of().time_between(low..high).contains(&row), same && (low..high).contains(&time));
        prop_assert_eq!(of().time_between(low..=high).contains(&row), same && (low..=high).contains(&time));
        prop_assert_eq!(of().time_between(low..).contains(&row), same && (low..).contains(&time));
        prop_assert_eq!(of().time_between(..low).contains(&row), same && (..low).contains(&time));
        let open = (Bound::Excluded(low), Bound::Included(high));
        prop_assert_eq!(of().time_between(open).contains(&row), same && time > low && time <= high);
        let low = i32::try_from(low)?;
        let bounded = of().time(time).action_between(low..);
        prop_assert_eq!(bounded.contains(&row), same && action >= low);
    }

    #[test]
    fn bounds_of_texts_hold_exactly_the_texts_between(
        folder in "[a\u{0}\u{1}]{0,3}", name in "[a\u{0}\u{1}]{0,3}", low in "[a\u{0}\u{1}]{0,3}", high in "[a\u{0}\u{1}]{0,3}",
    ) {
        let row = File { folder: folder.clone(), name: Tail(name.clone()) }.encode()?;
        let open = (Bound::Excluded(low.clone()), Bound::Included(high.clone()));
        prop_assert_eq!(File::prefix().folder_between(open).contains(&row), folder > low && folder <= high);
        let tails = (Bound::Excluded(Tail(low.clone())), Bound::Included(Tail(high.clone())));
        let span = File::prefix().folder(folder.as_str()).name_between(tails);
        prop_assert_eq!(span.contains(&row), name > low && name <= high);
        let tails = (Bound::Included(Tail(low.clone())), Bound::Excluded(Tail(high.clone())));
        let span = File::prefix().folder(folder.as_str()).name_between(tails);
        prop_assert_eq!(span.contains(&row), name >= low && name < high);
    }
}
