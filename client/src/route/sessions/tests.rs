//! Golden scripts of what a call does about a server. `call AT LAST` is a call at a time in milliseconds, when the last session at
//! the server's address is `none`, `ready`, `away` (not accepted yet), `broken SINCE` (the server ended it) or `silent SINCE` (the
//! server could not be reached, or stopped answering).

use std::fmt::Write as _;
use std::time::Duration;

use terrane_testscript::check_scripts;

use super::*;

#[test]
fn scripts() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/route/sessions/testdata");
    check_scripts(directory, || {
        let began = Instant::now();
        move |line: &str, out: &mut String| {
            let at = |text: &str| began + Duration::from_millis(text.parse().expect("milliseconds"));
            let words: Vec<&str> = line.split(' ').collect();
            let (now, last) = match words[..] {
                ["call", now, "none"] => (at(now), None),
                ["call", now, "ready"] => (at(now), Some(Standing::Ready)),
                ["call", now, "away"] => (at(now), Some(Standing::Away)),
                ["call", now, "broken", since] => {
                    (at(now), Some(Standing::Broken { doubtful: false, since: at(since) }))
                }
                ["call", now, "silent", since] => {
                    (at(now), Some(Standing::Broken { doubtful: true, since: at(since) }))
                }
                _ => panic!("no such command: {line}"),
            };
            let done = match step(last, now) {
                Step::Use => "uses the session",
                Step::Open => "opens a session and uses it",
                Step::OpenOnTrial => "opens a session on trial, and goes to another member",
                Step::Pass => "goes to another member",
            };
            writeln!(out, "{done}").unwrap();
        }
    });
}
