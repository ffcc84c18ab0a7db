//! The window at its limits, its encoding, and a comparison with a model that drops nothing. The cases of single operations
//! are scripts (`script_tests.rs`).

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const A: ClientId = [1; 16];
const B: ClientId = [2; 16];

fn applied(window: &mut Window, client: ClientId, operation: u64, stamp: u64) -> bool {
    window.update(client, 0, stamp).applied(operation, None)
}

fn with_result(window: &mut Window, client: ClientId, operation: u64, stamp: u64, bytes: usize) {
    let result = Bytes::from(vec![7; bytes]);
    assert!(window.update(client, 0, stamp).applied(operation, Some(&result)));
}

#[test]
fn a_full_window_evicts_the_longest_idle_and_no_more_than_needed() {
    let mut window = Window::default();
    let id = |n: u32| {
        let mut id = [9; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        id
    };
    let one = CLIENT_BYTES + RANGE_BYTES;
    let fit = u32::try_from(WINDOW_BYTES_MAX / one).unwrap();
    for n in 0..fit {
        applied(&mut window, id(n), 1, 1_000 + u64::from(n));
    }
    assert_eq!((window.floor(), window.clients.len()), (0, fit as usize), "full to the brim");
    applied(&mut window, id(fit), 1, 500_000);
    assert_eq!((window.floor(), window.clients.len()), (1_000, fit as usize));
    assert_eq!(window.look_up(&id(0), 1, 999), Known::TooOld);
    assert_eq!(window.look_up(&id(1), 1, 999), Known::Applied(Kept::Nothing));
    assert!(window.bytes <= WINDOW_BYTES_MAX);
}

#[test]
fn a_client_that_wants_the_whole_window_pushes_no_other_out() {
    let mut window = Window::default();
    applied(&mut window, B, 1, 1_000);
    for n in 1..=200 {
        with_result(&mut window, A, n, 2_000, RESULT_BYTES_MAX);
        assert!(window.bytes <= WINDOW_BYTES_MAX);
    }
    assert_eq!(window.floor(), 0);
    assert_eq!(window.look_up(&B, 1, 900), Known::Applied(Kept::Nothing));
    assert_eq!(window.look_up(&B, 2, 900), Known::New);
    assert!(matches!(window.look_up(&A, 200, 900), Known::Applied(Kept::Result(_))));
    assert_eq!(window.look_up(&A, 1, 900), Known::Applied(Kept::Gone));
}

#[test]
fn a_client_that_fills_the_window_alone_loses_results_first_and_then_its_lowest_numbers() {
    let mut window = Window::default();
    for n in 1..=70 {
        with_result(&mut window, A, n, 1_000, RESULT_BYTES_MAX);
    }
    assert_eq!(window.floor(), 0, "it stays");
    assert_eq!(window.look_up(&A, 1, 900), Known::Applied(Kept::Gone));
    assert!(matches!(window.look_up(&A, 70, 900), Known::Applied(Kept::Result(_))));
    // Numbers that never join into ranges.
    for n in 50..40_000 {
        applied(&mut window, A, 2 * n, 1_000);
    }
    assert!(window.bytes <= WINDOW_BYTES_MAX);
    assert_eq!(window.look_up(&A, 1, 900), Known::TooOld);
    assert_eq!(window.look_up(&A, 79_998, 900), Known::Applied(Kept::Nothing));
    assert_eq!(window.look_up(&A, 79_997, 900), Known::New);
}

#[test]
fn the_record_has_this_layout() {
    assert_eq!(Window::decode(Bytes::new()).unwrap(), Window::default());
    let mut window = Window::default();
    window.update(A, 3, 100).applied(4, Some(&Bytes::from_static(b"r")));
    window.update(A, 3, 100).settle(&UnderWay::new(9, vec![(3, 4)]).unwrap());
    let numbers = |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let expected = [
        &[1][..],
        &numbers(&[0]),
        &[1, 0, 0, 0],
        &A,
        &numbers(&[100, 0, 3]),
        &[1, 0, 0, 0],
        &numbers(&[4, 4]),
        &[1, 0, 0, 0],
        &numbers(&[4]),
        &[1, 0, 0, 0, b'r'],
        &numbers(&[0]),
        &[1, 0, 0, 0],
        &numbers(&[5, 8]),
        &[0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(window.encode(), expected);
    assert_eq!(Window::decode(expected.clone().into()).unwrap(), window);
    for cut in 1..expected.len() {
        assert!(Window::decode(Bytes::copy_from_slice(&expected[..cut])).is_err(), "cut at {cut}");
    }
    assert!(Window::decode([&[2][..], &expected[1..]].concat().into()).is_err(), "another version");
}

/// A client with 64 calls in flight, one of them stuck, and thousands of others between two of its retries.
#[test]
fn a_stuck_call_gets_its_answer_however_many_others_pass_it() {
    let mut window = Window::default();
    let applied = |window: &mut Window, number: u64| with_result(window, A, number, 1_000 + number / 20, 45);
    // Number 3 is applied, but its answer was lost; number 7 is still on its way.
    (1..=10).filter(|number| *number != 7).for_each(|number| applied(&mut window, number));
    for number in 11..200_000 {
        applied(&mut window, number);
        if number % 64 == 0 {
            let under_way = vec![(3, 3), (7, 7), (number - 50, number)];
            let under_way = UnderWay::new(number + 1, under_way).unwrap();
            window.update(A, 3, 1_000 + number / 20).settle(&under_way);
            window = Window::decode(window.encode()).unwrap();
        }
        assert!(window.bytes < 16 << 10, "{} bytes at {number}", window.bytes);
    }
    assert_eq!(window.look_up(&A, 3, 900), Known::Applied(Kept::Result(Bytes::from_static(&[7; 45]))));
    assert_eq!(window.look_up(&A, 7, 900), Known::New, "never applied, so it may still be");
    assert_eq!(window.look_up(&A, 100_000, 900), Known::TooOld, "settled");
    applied(&mut window, 7);
    assert!(matches!(window.look_up(&A, 7, 900), Known::Applied(Kept::Result(_))));
}

#[test]
fn a_client_without_reports_loses_results_and_no_numbers() {
    let mut window = Window::default();
    // Number 3 is stuck: it is not applied here.
    for number in (1..20_000).filter(|number| *number != 3) {
        with_result(&mut window, A, number, 1_000, 45);
        assert!(window.bytes <= WINDOW_BYTES_MAX);
    }
    assert_eq!(window.look_up(&A, 3, 900), Known::New, "results were given up, the number was not");
    assert_eq!(window.look_up(&A, 2, 900), Known::Applied(Kept::Gone));
    assert!(matches!(window.look_up(&A, 19_999, 900), Known::Applied(Kept::Result(_))));
    assert_eq!(Window::decode(window.encode()).unwrap(), window);
}

/// Our clients never do this, but a window that cannot be brought under its limit would stop every replica of the region.
#[test]
fn a_client_that_settles_without_end_is_held_to_its_share() {
    let mut window = Window::default();
    applied(&mut window, A, 1, 1_000);
    for part in 1..8u64 {
        // Every other number of this part is settled, and none of the parts before.
        let first = part * 16_384;
        let every_other = (1..8_192).map(|at| (first + 2 * at, first + 2 * at));
        let waits = std::iter::once((2, first)).chain(every_other).collect();
        window.update(A, 0, 1_000).settle(&UnderWay::new(first + 16_384, waits).unwrap());
        assert!(window.bytes <= WINDOW_BYTES_MAX);
        assert_eq!(window.bytes, window.clients[&A].bytes());
    }
    assert_eq!(window.look_up(&A, 1, 900), Known::TooOld);
    assert_eq!(window.look_up(&A, 8 * 16_384, 900), Known::New);
}

#[derive(Clone, Debug)]
enum Step {
    Apply { client: u8, back: u64, result: Option<usize>, settle: bool },
    Wait(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let result = proptest::option::of(prop_oneof![Just(1), Just(4096), Just(4097), 1..5000usize]);
    let step = prop_oneof![
        8 => (0..6u8, 0..4u64, result, proptest::bool::weighted(0.1))
            .prop_map(|(client, back, result, settle)| Step::Apply { client, back, result, settle }),
        2 => (0..IDLE_MS_MAX / 2).prop_map(Step::Wait),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// Numbers come nearly in order, some twice. An applied number is never taken for new, a number reported as applied
    /// was applied, and a number that was never tried is new.
    #[test]
    fn it_never_guesses(steps in steps()) {
        let mut window = Window::default();
        let (mut now, mut next) = (1_000u64, BTreeMap::<u8, u64>::new());
        let mut everything = BTreeMap::<(u8, u64), (u64, Option<Bytes>)>::new();
        for step in steps {
            match step {
                Step::Wait(ms) => now += ms,
                Step::Restart => window = Window::decode(window.encode()).unwrap(),
                Step::Apply { client, back, result, settle } => {
                    now += 1;
                    let id = [client + 1; 16];
                    let highest = next.entry(client).or_insert(1);
                    let number = highest.saturating_sub(back).max(1);
                    let before = everything.get(&(client, number));
                    let first_try = before.map_or(now, |(first_try, _)| *first_try);
                    let known = window.look_up(&id, number, first_try);
                    match (before, &known) {
                        (None, Known::New) => {}
                        (None, Known::TooOld) => prop_assert!(number < *highest, "the highest number yet is new"),
                        (None, Known::Applied(_)) => prop_assert!(false, "a number never tried is taken for applied"),
                        (Some(_), Known::New) => prop_assert!(false, "an applied number is taken for new"),
                        (Some((_, first)), Known::Applied(kept)) => match kept {
                            Kept::Nothing => prop_assert_eq!(first, &None),
                            Kept::Result(result) => prop_assert_eq!(first.as_ref(), Some(result)),
                            // The window no longer knows whether this number had a result.
                            Kept::Gone => {
                                prop_assert!(first.is_some() || number < window.clients[&id].gone_below);
                            }
                        },
                        (Some(_), Known::TooOld) => {}
                    }
                    if known == Known::New {
                        let result = result.map(|bytes| Bytes::from(vec![client; bytes]));
                        let lowest = if settle { number } else { 0 };
                        prop_assert!(window.update(id, lowest, now).applied(number, result.as_ref()));
                        everything.insert((client, number), (first_try, result));
                        *highest = (*highest).max(number + 1);
                    }
                }
            }
            prop_assert!(window.bytes <= WINDOW_BYTES_MAX);
            prop_assert_eq!(window.bytes, window.clients.values().map(Client::bytes).sum::<usize>());
            prop_assert_eq!(&Window::decode(window.encode()).unwrap(), &window);
        }
    }
}
