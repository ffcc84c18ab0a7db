//! Limits and smoothness of back-pressure.

use super::*;

fn debt_of(level0_files: u64, pending_regions: u64) -> Debt {
    Debt { level0_files, pending_bytes: pending_regions << 20, region_bytes: 1 << 20 }
}

#[test]
fn writers_feel_nothing_up_to_the_soft_limits() {
    assert_eq!(pressure(&[debt_of(LEVEL0_FILES_SOFT, PENDING_REGIONS_SOFT)], 750_000, 1_000_000), 0);
    assert_eq!(pressure(&[], 0, 0), 0);
    assert_eq!(verdict(0), Verdict::Go);
}

#[test]
fn any_hard_limit_alone_is_full_pressure() {
    let calm = debt_of(0, 0);
    assert_eq!(pressure(&[calm, debt_of(LEVEL0_FILES_HARD, 0)], 0, 1_000_000), 1000);
    assert_eq!(pressure(&[debt_of(0, PENDING_REGIONS_HARD), calm], 0, 1_000_000), 1000);
    assert_eq!(pressure(&[calm], 1_000_000, 1_000_000), 1000);
    assert_eq!(pressure(&[debt_of(u64::MAX, u64::MAX >> 20)], u64::MAX, 1), 1000);
    assert_eq!(verdict(1000), Verdict::RunningJobs(BUSY_RETRY));
}

#[test]
fn pressure_grows_with_the_square_of_the_way_to_the_limit() {
    let at = |files| pressure(&[debt_of(files, 0)], 0, 1);
    assert_eq!((at(9), at(12), at(16), at(20), at(23)), (3, 62, 250, 562, 878));
}

#[test]
fn waits_never_jump() {
    let wait = |pressure| match verdict(pressure) {
        Verdict::Go => Duration::ZERO,
        Verdict::Wait(wait) => wait,
        Verdict::RunningJobs(_) => panic!("busy below the limit, at {pressure}"),
    };
    for pressure in 1..1000 {
        let step = wait(pressure).checked_sub(wait(pressure - 1)).expect("waits only grow");
        assert!(step <= WAIT_MIN, "at {pressure}: {step:?}");
    }
    assert!(wait(999) > WAIT_MAX - WAIT_MIN);
}
