//! Clocks: wrong by a constant, running at a wrong rate, and after a suspension.

use super::*;
use crate::sim::{set_clock, suspend_host};
use crate::time;

/// What the clocks of a host show: milliseconds of simulated time, of the wall clock since 2026, and of the steady clock.
type Reading = (i64, i64, i64);

const EPOCH_SECONDS: u64 = 1_767_225_600;

fn cluster() -> (turmoil::Sim<'static>, impl Fn(&'static str) -> Reading) {
    seed(1);
    let mut builder = turmoil::Builder::new();
    builder.epoch(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS));
    let mut run = builder.simulation_duration(Duration::from_secs(600)).build();
    let readings: Rc<RefCell<std::collections::BTreeMap<&str, Reading>>> = Rc::default();
    for host in ["a", "b"] {
        let readings = readings.clone();
        add_host(&mut run, host, move || {
            let readings = readings.clone();
            async move {
                loop {
                    let simulated = turmoil::sim_elapsed().expect("a host").as_millis() as i64;
                    let wall = time::wall_ms() as i64 - EPOCH_SECONDS as i64 * 1_000;
                    let reading = (simulated, wall, (time::elapsed_ns() / 1_000_000) as i64);
                    assert!(readings.borrow().get(host).is_none_or(|before| before.2 <= reading.2), "it went back");
                    readings.borrow_mut().insert(host, reading);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
    }
    let readings = move |host| readings.borrow()[host];
    (run, readings)
}

#[test]
fn the_wall_clock_of_one_host_is_wrong_and_can_be_set_right() {
    let (mut run, reading) = cluster();
    set_clock("a", -3_000, 0);
    run_for(&mut run, Duration::from_secs(5));
    let ((at, wall, steady), (other_at, other_wall, _)) = (reading("a"), reading("b"));
    assert_eq!((wall - at, steady - at, other_wall - other_at), (-3_000, 0, 0));
    set_clock("a", 0, 0);
    run_for(&mut run, Duration::from_secs(1));
    let (at, wall, _) = reading("a");
    assert_eq!(wall, at);
}

#[test]
fn drift_moves_all_clocks_of_a_host_and_none_of_them_back() {
    let (mut run, reading) = cluster();
    set_clock("a", 0, 10_000);
    set_clock("b", 500, -10_000);
    run_for(&mut run, Duration::from_secs(100));
    let ((at, wall, steady), (other_at, other_wall, other_steady)) = (reading("a"), reading("b"));
    assert!((995..=1_005).contains(&(wall - at)) && (995..=1_005).contains(&(steady - at)));
    assert!((-505..=-495).contains(&(other_wall - other_at)) && (-1_005..=-995).contains(&(other_steady - other_at)));
    set_clock("a", 0, 0);
    run_for(&mut run, Duration::from_secs(1));
    let (at, wall, steady) = reading("a");
    assert!((wall - at).abs() <= 1 && steady - at >= 995, "the wall clock was set back, the steady one was not");
}

#[test]
fn one_machine_is_suspended_and_the_others_are_not() {
    let (mut run, reading) = cluster();
    run_for(&mut run, Duration::from_secs(1));
    suspend_host("a", Duration::from_secs(5));
    run_for(&mut run, Duration::from_secs(1));
    let ((at, wall, steady), (other_at, _, other_steady)) = (reading("a"), reading("b"));
    assert_eq!((wall - at, steady - at, other_steady - other_at), (0, 5_000, 0));
}
