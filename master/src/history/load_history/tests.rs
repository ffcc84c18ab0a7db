//! Tests of the load history: named cases, and random tables against a plain model.

use proptest::prelude::*;

use super::*;

const TABLE: TableId = TableId(7);
/// An hour past a boundary of rings.
const EPOCH_MS: u64 = 1_767_225_600_000;

struct Clock(u64);

impl Clock {
    fn look(&self, history: &mut LoadHistory, regions: &[(&[u8], Counts)]) {
        let regions =
            regions.iter().map(|(start, rates)| RegionRates { start: Bytes::copy_from_slice(start), rates: *rates });
        history.look(Moment(self.0), EPOCH_MS + self.0, &BTreeMap::from([(TABLE, regions.collect())]));
    }

    /// Looks once a second for so long.
    fn run(&mut self, seconds: u64, history: &mut LoadHistory, regions: &[(&[u8], Counts)]) {
        for _ in 0..seconds {
            self.0 += 1_000;
            self.look(history, regions);
        }
    }
}

fn all(what: usize) -> HeatRequest {
    let range = KeyRange { start: Bytes::new(), end: Bytes::new() };
    HeatRequest { what, first: 0, end: u64::MAX, range, columns_max: MINUTES, rows_max: usize::MAX }
}

/// The sum of each row, with the first key.
fn sums(history: &LoadHistory, what: usize) -> Vec<(String, u64)> {
    let heat = history.heat(TABLE, &all(what)).unwrap();
    heat.rows.iter().map(|(range, counts)| (terrane_types::escape(&range.start), counts.iter().sum())).collect()
}

#[test]
fn rates_become_counts_of_minutes_and_the_unfinished_one_is_in_the_map_only() {
    let (mut history, mut clock) = (LoadHistory::default(), Clock(0));
    clock.look(&mut history, &[(b"", [0; 3])]);
    clock.run(90, &mut history, &[(b"", [10, 20, 2_048])]);
    let minute = EPOCH_MS / 60_000;
    // The look at second 60 begins the next minute.
    assert_eq!(history.cluster(), [ClusterMinute { minute, counts: [590, 1_180, 59 * 2_048] }]);
    assert_eq!(sums(&history, 0), [(String::new(), 900)]);
    assert_eq!(sums(&history, 2), [(String::new(), 90 * 2_048)]);
    assert_eq!(history.known_from_ms(), Some(EPOCH_MS));
}

#[test]
fn a_split_halves_what_was_counted_and_a_merge_adds_it_up() {
    let (mut history, mut clock) = (LoadHistory::default(), Clock(0));
    clock.look(&mut history, &[(b"", [0; 3])]);
    clock.run(61, &mut history, &[(b"", [0, 3, 0])]);
    clock.run(60, &mut history, &[(b"", [0, 0, 0]), (b"m", [0, 5, 0])]);
    assert_eq!(sums(&history, 1), [(String::new(), 92), ("m".to_owned(), 391)]);
    clock.run(1, &mut history, &[(b"", [0; 3])]);
    assert_eq!(sums(&history, 1), [(String::new(), 483)]);
}

#[test]
fn what_was_not_watched_is_not_known_and_a_clock_that_is_set_back_changes_no_past() {
    let (mut history, mut clock) = (LoadHistory::default(), Clock(0));
    clock.look(&mut history, &[(b"", [1; 3])]);
    clock.run(61, &mut history, &[(b"", [1; 3])]);
    clock.0 += 5 * 60_000;
    clock.run(61, &mut history, &[(b"", [1; 3])]);
    let minutes: Vec<u64> = history.cluster().iter().map(|known| known.minute - EPOCH_MS / 60_000).collect();
    assert_eq!(minutes, [0, 1, 6]);
    let before = history.cluster();
    history.look(Moment(clock.0), EPOCH_MS, &BTreeMap::new());
    assert_eq!(history.cluster(), before);
    assert!(history.heat(TABLE, &all(0)).is_none(), "the table was dropped");
}

#[test]
fn a_day_later_the_ring_has_no_trace_of_the_day_before() {
    let (mut history, mut clock) = (LoadHistory::default(), Clock(0));
    clock.look(&mut history, &[(b"", [0; 3])]);
    clock.run(61, &mut history, &[(b"", [7; 3])]);
    for _ in 0..MINUTES {
        clock.0 += 60_000;
        clock.look(&mut history, &[(b"", [0; 3])]);
    }
    assert_eq!(sums(&history, 0), [(String::new(), 0)]);
    assert_eq!(history.bytes(), size_of::<Strip>(), "a range without load takes no memory");
}

#[test]
fn a_map_stays_within_its_columns_and_rows_and_keeps_all_counts() {
    let (mut history, mut clock) = (LoadHistory::default(), Clock(0));
    let starts: Vec<String> =
        (0..10).map(|number| if number == 0 { String::new() } else { format!("k{number}") }).collect();
    let regions: Vec<(&[u8], Counts)> = starts.iter().map(|start| (start.as_bytes(), [1, 0, 0])).collect();
    clock.look(&mut history, &regions);
    clock.run(600, &mut history, &regions);
    let heat = history.heat(TABLE, &HeatRequest { columns_max: 4, rows_max: 3, ..all(0) }).unwrap();
    assert!(heat.columns <= 5 && heat.rows.len() == 3, "{heat:?}");
    assert_eq!(heat.rows.iter().flat_map(|(_, counts)| counts).sum::<u64>(), 6_000);
    assert_eq!(heat.rows[0].0.end, "k4");
    let range = KeyRange { start: Bytes::from_static(b"k5"), end: Bytes::from_static(b"k6x") };
    let zoomed = history.heat(TABLE, &HeatRequest { range, ..all(0) }).unwrap();
    assert_eq!(zoomed.rows.iter().map(|(range, _)| &range.start[..]).collect::<Vec<_>>(), [b"k5", b"k6"]);
}

#[test]
fn a_thousand_busy_regions_stay_below_32_mib() {
    let mut history = LoadHistory::default();
    for table in 0..3 {
        let regions = |count: u32| {
            (0..count).map(|n| RegionRates {
                start: if n == 0 { Bytes::new() } else { Bytes::from(n.to_be_bytes().to_vec()) },
                rates: [9, 9, 9_999],
            })
        };
        let tables = BTreeMap::from([(TableId(table), regions(2_000).collect())]);
        for look in 0..3 {
            history.look(Moment(look * 60_000), EPOCH_MS + (u64::from(table as u32) * 3 + look) * 60_000, &tables);
        }
        assert!(history.bytes() < 32 << 20, "{} bytes", history.bytes());
        assert_eq!(history.tables.values().map(BTreeMap::len).sum::<usize>(), STRIPS_MAX);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Split(u8),
    Merge(u8),
    Rates(u8, u16),
    Seconds(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        any::<u8>().prop_map(Step::Split),
        any::<u8>().prop_map(Step::Merge),
        (any::<u8>(), any::<u16>()).prop_map(|(at, rate)| Step::Rates(at, rate)),
        (1_u8..100).prop_map(Step::Seconds),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    // A failure prints the least steps that lead to it.
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splits_and_merges_lose_and_invent_nothing(steps in steps(), room in 1_usize..40) {
        let mut history = LoadHistory::with_room(room);
        let mut clock = Clock(0);
        // The model: the rate of each region, and the sum of the table, however it is cut.
        let mut regions: BTreeMap<Vec<u8>, u64> = BTreeMap::from([(Vec::new(), 0)]);
        let mut requested = 0;
        for step in steps {
            let place = |at: u8| usize::from(at) % regions.len();
            match step {
                Step::Split(at) => { regions.entry(vec![at]).or_insert(0); }
                Step::Merge(at) => {
                    let start = regions.keys().nth(place(at)).unwrap().clone();
                    if !start.is_empty() { regions.remove(&start); }
                }
                Step::Rates(at, rate) => {
                    let start = regions.keys().nth(place(at)).unwrap().clone();
                    regions.insert(start, u64::from(rate));
                }
                Step::Seconds(seconds) => {
                    let shown: Vec<(&[u8], Counts)> = regions.iter().map(|(start, rate)| (&start[..], [*rate, 0, 0])).collect();
                    // The first look of all only begins the history.
                    let counted = u64::from(seconds) - u64::from(history.last.is_none());
                    clock.run(u64::from(seconds), &mut history, &shown);
                    requested += counted * regions.values().sum::<u64>();
                    let strips = &history.tables[&TABLE];
                    prop_assert!(strips.len() <= room);
                    prop_assert!(strips.contains_key(&b""[..]));
                    prop_assert!(strips.keys().all(|start| regions.contains_key(&start[..])));
                    prop_assert!(room < regions.len() || strips.len() == regions.len());
                    let rows = sums(&history, 0);
                    let counted: u64 = rows.iter().map(|(_, sum)| sum).sum();
                    // Each strip rounds the minute that is cut in two by at most half a row.
                    let minutes = clock.0 / 60_000 + 1;
                    let slack = minutes * 256;
                    prop_assert!(counted.abs_diff(requested) <= slack, "{counted} counted, {requested} requested");
                }
            }
        }
    }
}
