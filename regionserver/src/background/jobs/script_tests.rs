//! When jobs of one kind may start, as scripts. Keys are numbers, times are in milliseconds.
//!
//! ```text
//! start KEY                  a job starts
//! fail KEY at=MS             it failed
//! succeed KEY at=MS
//! may KEY at=MS ...          whether a job may start then
//! expire at=MS               old failures are dropped
//! show                       the keys with a failure
//! ```

use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;

#[test]
fn jobs_start_as_recorded() {
    let origin = Instant::now();
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/background/jobs/testdata"), || {
        let mut jobs = Jobs::<u64>::default();
        move |line: &str, out: &mut String| {
            let words: Vec<&str> = line.split(' ').collect();
            let key = words.get(1).and_then(|key| key.parse::<u64>().ok());
            let key = || key.unwrap_or_else(|| panic!("no key: {line}"));
            let times = words.iter().filter_map(|word| word.strip_prefix("at="));
            let times: Vec<u64> = times.map(|time| time.parse().expect("a time")).collect();
            let at = |ms: u64| origin + Duration::from_millis(ms);
            match words[0] {
                "start" => drop(jobs.running.insert(key())),
                "fail" | "succeed" => jobs.finish(key(), words[0] == "succeed", at(times[0])),
                "may" => {
                    for ms in times {
                        let verdict = if jobs.may_start(&key(), at(ms)) { "may start" } else { "may not start" };
                        writeln!(out, "{} {verdict} at {ms}", key()).expect("writing to a string");
                    }
                }
                "expire" => jobs.backoffs.expire(at(times[0])),
                "show" => {
                    let failed = jobs.backoffs.0.iter().map(|(key, (_, pause))| format!("{key} pauses {pause:?}"));
                    let failed: Vec<String> = failed.collect();
                    let none = || "no failures".to_owned();
                    writeln!(out, "{}", if failed.is_empty() { none() } else { failed.join(", ") })
                        .expect("writing to a string");
                }
                _ => panic!("no such command: {line}"),
            }
        }
    });
}
