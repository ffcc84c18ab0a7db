//! Golden scripts of one lane, and tests of the lanes together. A script starts with a lane that has just opened:
//!
//! - `enter N` lets that many requests in, as far as the lane takes them.
//! - `answered N` ends that many.
//! - `refused AT [HOLD]` is a refusal at a time in milliseconds; with `HOLD`, the lane stands still until `resume`.

use std::fmt::Write as _;

use futures::FutureExt as _;
use terrane_testscript::check_scripts;

use super::*;

#[test]
fn scripts() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/route/lanes/testdata");
    check_scripts(directory, || {
        let (lane, began, mut inside) = (Lane::default(), Instant::now(), 0);
        move |line, out| {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            let number = || rest.parse::<usize>().unwrap_or_else(|_| panic!("not a number: {line}"));
            match name {
                "enter" => inside += lane.turns.forget_permits(number()),
                "answered" => {
                    assert!(inside >= number(), "only {inside} are inside");
                    (0..number()).for_each(|_| lane.leave());
                    inside -= number();
                }
                "refused" => {
                    let (at, hold) = rest.split_once(' ').unwrap_or((rest, ""));
                    let hold = if hold == "HOLD" { HOLD_MAX } else { Duration::ZERO };
                    lane.cut(began + Duration::from_millis(at.parse().expect("milliseconds")), hold);
                }
                "resume" => lane.resume(),
                _ => panic!("no such command: {line}"),
            }
            let (state, free) = (lane.state.lock(), lane.turns.available_permits());
            let held = state.held.map_or(String::new(), |held| format!("; standing still, {held} kept back"));
            let State { bound, surplus, .. } = *state;
            writeln!(out, "bound {bound}: {inside} inside ({surplus} too many), {free} free{held}").unwrap();
        }
    });
}

const GROUP: GroupId = GroupId(3);

fn enter(lanes: &Lanes) -> Option<Turn> {
    let until = Instant::now() + Duration::from_secs(60);
    lanes.enter(GROUP, Load::Writes, until).now_or_never()?.expect("there is time")
}

fn lane(lanes: &Lanes) -> Arc<Lane> {
    Arc::clone(&lanes.lanes.read()[&(GROUP, Load::Writes)])
}

#[test]
fn without_a_refusal_no_caller_waits() {
    assert!(enter(&Lanes::default()).is_none());
}

#[tokio::test]
async fn a_refusal_stops_the_lane_for_its_pause_and_lowers_the_bound() {
    let lanes = Lanes::default();
    lanes.refused(GROUP, Load::Writes, Duration::from_secs(3600));
    let lane = lane(&lanes);
    assert_eq!((lane.state.lock().bound, lane.turns.available_permits()), (358, 0));
    lane.resume();
    let until = Instant::now() + Duration::from_secs(60);
    let mut in_flight = Vec::new();
    for _ in 0..358 {
        in_flight.push(lanes.enter(GROUP, Load::Writes, until).await.expect("in time").expect("a lane"));
    }
    let late = lanes.enter(GROUP, Load::Writes, Instant::now()).await;
    assert!(matches!(late, Err(Failure::Queued)), "{late:?}");
    let reads = lanes.enter(GROUP, Load::Reads, until).now_or_never().expect("no lane").expect("in time");
    assert!(reads.is_none());
    drop(in_flight);
    assert!(lane.turns.available_permits() >= 358);
}

#[test]
fn a_lane_closes_when_its_bound_has_recovered() {
    let lanes = Lanes::default();
    lanes.lanes.write().insert((GROUP, Load::Writes), Arc::default());
    lanes.open.store(1, Ordering::Relaxed);
    let lane = lane(&lanes);
    while !lane.has_recovered() {
        lane.turns.forget_permits(1);
        lane.leave();
    }
    assert_eq!(lane.turns.available_permits(), IN_FLIGHT_MAX);
    assert!(enter(&lanes).is_none());
    assert!(lanes.lanes.read().is_empty());
}
