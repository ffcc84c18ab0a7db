//! Golden scripts of operation numbers, and tests of their bitmap. In a script, each ticket has a name:
//!
//! - `take NAME COUNT` takes numbers for a call; `settle NAME...` ends calls.
//! - `renumber NAME FROM COUNT` takes further numbers under the identity of a call.
//! - `report NAME REGION` is a request of a call to a region: the unsettled numbers that it lists, if it is time for that.
//!
//! Identities are shown as `A`, `B` and so on. A new one is taken when the numbers span more than 1000.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;

#[test]
fn scripts() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/route/operation_numbers/testdata");
    check_scripts(directory, || {
        let operations = Operations { span_max: 1000, ..Operations::new() };
        let (mut tickets, mut identities) = (BTreeMap::<String, Ticket>::new(), Vec::<Bytes>::new());
        move |line, out| {
            let words: Vec<&str> = line.split(' ').collect();
            let count = |text: &str| text.parse::<u64>().expect("a number");
            match words[..] {
                ["take", name, n] => drop(tickets.insert(name.to_owned(), operations.take(count(n)))),
                ["renumber", name, from, n] => {
                    let ticket = tickets[from].another(count(n));
                    tickets.insert(name.to_owned(), ticket);
                }
                ["settle", ..] => words[1..].iter().for_each(|name| drop(tickets.remove(*name).expect("a call"))),
                ["report", name, region] => {
                    let report = tickets[name].unsettled_to_report(RegionId(count(region)));
                    let shown = report.map_or("nothing".to_owned(), |Unsettled { below, ranges }| {
                        let ranges: Vec<String> =
                            ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
                        format!("{} of those below {below}", ranges.join(", "))
                    });
                    return writeln!(out, "{shown}").unwrap();
                }
                _ => panic!("no such command: {line}"),
            }
            let shown: Vec<String> = tickets
                .iter()
                .map(|(name, ticket)| {
                    let id = ticket.client_id();
                    let at = identities.iter().position(|known| *known == id).unwrap_or_else(|| {
                        identities.push(id);
                        identities.len() - 1
                    });
                    let (identity, first, lowest) =
                        (char::from(b'A' + at as u8), ticket.first, ticket.lowest_unsettled());
                    format!("{name}={identity}{first}+{} (lowest {lowest})", ticket.count)
                })
                .collect();
            writeln!(out, "{}", if shown.is_empty() { "no calls".to_owned() } else { shown.join(" ") }).unwrap();
        }
    });
}

#[test]
#[should_panic(expected = "operation 1 is settled twice")]
fn a_number_is_settled_once() {
    let mut window = Window::new();
    window.reserve(2);
    window.settle(2);
    // As if 2 had been given out again.
    window.settled[0] |= 1 << 1;
    window.settle(1);
}

#[test]
fn the_bitmap_agrees_with_a_set_in_any_order_of_settling() {
    for seed in 0..20u64 {
        let mut random = xorshift(seed);
        let mut window = Window::new();
        let mut open = BTreeSet::new();
        for _ in 0..300 {
            if open.is_empty() || random().is_multiple_of(2) {
                let count = random() % 100 + 1;
                let first = window.reserve(count);
                open.extend(first..first + count);
            } else {
                for _ in 0..random() % 150 {
                    let at = random() as usize % open.len().max(1);
                    let Some(number) = open.iter().nth(at).copied() else { break };
                    open.remove(&number);
                    window.settle(number);
                }
            }
            let lowest = open.first().copied().unwrap_or(window.next);
            assert_eq!(window.lowest, lowest, "seed {seed}");
            assert_eq!(window.in_flight, open.len() as u64, "seed {seed}");
            let ranges = window.unsettled();
            let told: BTreeSet<u64> = ranges.iter().flat_map(|(first, last)| *first..=*last).collect();
            assert_eq!(told, open, "seed {seed}");
            assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "seed {seed}: {ranges:?}");
            assert!(window.settled.len() as u64 <= (window.next - window.lowest) / 64 + 2, "seed {seed}");
        }
    }
}

#[test]
fn while_one_number_is_stuck_each_region_gets_a_report_once_in_many_requests() {
    let operations = Operations::new();
    let stuck = operations.take(1);
    let mut told = 0;
    for _ in 0..1_000 {
        let other = operations.take(1);
        told += u64::from(other.unsettled_to_report(RegionId(7)).is_some());
    }
    assert!((1..=1_000 / REPORT_EVERY_MIN).contains(&told), "{told}");
    let (other, last) = (operations.take(2), operations.take(1));
    let expected = Unsettled { below: 1_005, ranges: vec![(1, 1), (1_002, 1_004)] };
    assert_eq!(other.unsettled_to_report(RegionId(8)), Some(expected), "a region without a report yet");
    assert_eq!(other.unsettled_to_report(RegionId(8)), None);
    drop((stuck, other));
    assert_eq!(last.unsettled_to_report(RegionId(9)), None, "nothing lags");
}

#[test]
fn many_calls_in_flight_are_not_reported_while_none_is_stuck() {
    let operations = Operations::new();
    let mut calls: VecDeque<Ticket> = (0..2_000).map(|_| operations.take(1)).collect();
    for _ in 0..5_000 {
        calls.pop_front();
        calls.push_back(operations.take(1));
        assert_eq!(calls[1_999].unsettled_to_report(RegionId(7)), None);
    }
}

#[test]
fn an_identity_that_spans_too_much_is_replaced() {
    let operations = Operations { span_max: 10, ..Operations::new() };
    let stuck = operations.take(1);
    let mut others: Vec<Ticket> = (0..10).map(|_| operations.take(1)).collect();
    assert!(others.iter().all(|other| other.client_id() == stuck.client_id()));
    others.clear();
    let fresh = operations.take(3);
    assert_ne!(fresh.client_id(), stuck.client_id());
    assert_eq!((fresh.first(), fresh.lowest_unsettled()), (1, 1));
    assert_eq!((stuck.first(), stuck.lowest_unsettled()), (1, 1), "operations in flight keep their identity");
}

/// A small generator (xorshift): a seed reproduces the whole test.
fn xorshift(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
