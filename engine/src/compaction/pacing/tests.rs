//! The bucket over simulated time.

use super::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_burst_is_free_and_what_follows_waits_for_its_bytes() {
    let mut pacing = Pacing::new(1000, 500, 0);
    assert_eq!(pacing.take(0, 500, 0), 0);
    assert_eq!(pacing.take(0, 100, 0), SECOND / 10);
    // Queues after the previous one.
    assert_eq!(pacing.take(0, 100, 0), SECOND / 5);
    assert_eq!(pacing.take(SECOND / 5, 0, 0), 0);
}

#[test]
fn the_rate_holds_over_a_long_time_whatever_the_steps() {
    for step in [1, 7, 100, 499, 3000] {
        let mut pacing = Pacing::new(1000, 500, 0);
        let (mut now, mut taken) = (0, 0);
        while now < 100 * SECOND {
            now += pacing.take(now, step, 0);
            taken += step;
        }
        let waits = now / SECOND;
        assert!(taken >= 1000 * waits && taken <= 1000 * (waits + 1) + 500 + step, "{step}: {taken} in {waits} s");
    }
}

#[test]
fn idle_time_saves_up_a_burst_and_no_more() {
    let mut pacing = Pacing::new(1000, 500, 0);
    assert_eq!(pacing.take(u64::MAX / 2, 600, 0), SECOND / 10);
}

#[test]
fn pressure_raises_the_rate_until_there_is_no_limit() {
    let wait = |pressure| {
        let mut pacing = Pacing::new(1000, 0, 0);
        pacing.take(0, 900, pressure)
    };
    assert_eq!((wait(0), wait(450), wait(810), wait(900)), (SECOND * 9 / 10, SECOND * 9 / 20, SECOND * 9 / 100, 0));
    assert!((1..=1000).all(|pressure| wait(pressure) <= wait(pressure - 1)));
}

#[test]
fn what_was_taken_without_limit_is_not_paid_for_later() {
    let mut pacing = Pacing::new(1000, 500, 0);
    assert_eq!(pacing.take(0, 1 << 40, 1000), 0);
    assert_eq!(pacing.take(0, 500, 0), 0);
}

#[test]
fn a_rate_of_nothing_still_ends_and_a_clock_that_jumps_back_adds_nothing() {
    let mut pacing = Pacing::new(0, 0, SECOND);
    assert_eq!(pacing.take(SECOND, 5, 0), 5 * SECOND);
    let mut pacing = Pacing::new(1000, 100, SECOND);
    assert_eq!(pacing.take(0, 100, 0), 0);
    assert_eq!(pacing.take(0, 100, 0), SECOND / 10);
    assert_eq!(pacing.take(SECOND, 0, 0), SECOND / 10);
}
