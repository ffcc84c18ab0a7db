//! Golden scripts of silence: `ticks TIMEOUT ARRIVALS` plays one tick per character: a message arrives (`#`) or not (`.`)
//! while an answer is expected, or nothing arrives and nothing is expected (`_`). `TIMEOUT` is the ping timeout in ticks. The
//! output says at which ticks a ping is sent (`p`) and the server is suspected (`!`).

use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;

#[test]
fn scripts() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/wire/liveness/testdata");
    check_scripts(directory, || {
        |line: &str, out: &mut String| {
            let Some(["ticks", timeout, arrivals]) = line.split(' ').collect::<Vec<_>>().first_chunk().copied() else {
                panic!("no such command: {line}")
            };
            let timeout = timeout.parse().expect("a number of ticks");
            let (mut silence, mut arrived) = (Silence::default(), 0);
            let signs = arrivals.chars().map(|tick| {
                arrived += u64::from(tick == '#');
                match silence.tick(arrived, tick != '_', timeout) {
                    Sign::Enough => '-',
                    Sign::Wanted => 'p',
                    Sign::Missing => '!',
                }
            });
            writeln!(out, "        {}", signs.collect::<String>()).unwrap();
        }
    });
}

#[test]
fn the_least_patience_leaves_time_for_an_election_within_a_second_and_a_half() {
    let least = TICK * QUIET_TICKS + PING_TIMEOUT_MIN;
    assert!(least <= Duration::from_millis(600), "{least:?}");
}

#[test]
fn patience_follows_slow_pings_and_wrong_suspicions_and_comes_back() {
    let (ping_timeout, now) = (PingTimeout::default(), Instant::now());
    assert_eq!(ping_timeout.ticks(), 8);
    ping_timeout.answered(Duration::from_millis(100));
    assert_eq!(ping_timeout.ticks(), 16, "eight times what a ping took");
    (0..40).for_each(|_| ping_timeout.answered(Duration::from_millis(1)));
    assert_eq!(ping_timeout.ticks(), 8);

    ping_timeout.suspected(now);
    ping_timeout.accepted(now + SOON_BACK / 2);
    assert_eq!(ping_timeout.ticks(), 16, "the server was alive");
    ping_timeout.suspected(now);
    ping_timeout.accepted(now + SOON_BACK);
    assert_eq!(ping_timeout.ticks(), 16, "the server was stopped");
    for _ in 0..10 {
        ping_timeout.suspected(now);
        ping_timeout.accepted(now);
    }
    assert_eq!(ping_timeout.ticks(), 40, "bounded");
}
