//! Which entries pass the gate, as scripts.
//!
//! ```text
//! budget BYTES       a new gate for memtables of this budget
//! enter BYTES        an entry arrives; one that would wait goes away again
//! memtables BYTES    the background task measured the memtables
//! release            the server stops
//! ```

use std::fmt::Write as _;

use futures::FutureExt;
use terrane_testscript::check_scripts;

use super::*;

#[tokio::test(start_paused = true)]
async fn entries_pass_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/group/apply_gate/testdata"), || {
        let mut gate = ApplyGate::default();
        move |line: &str, out: &mut String| {
            let (command, bytes) = line.split_once(' ').unwrap_or((line, "0"));
            let bytes = bytes.parse().expect("a number");
            match command {
                "budget" => gate = ApplyGate::new(bytes),
                "enter" => {
                    let passes = gate.enter(bytes, || {}).now_or_never().is_some();
                    let verdict = if passes { "passes" } else { "waits" };
                    writeln!(out, "{bytes} {verdict}, {} used of {}", gate.used(), gate.limit)
                        .expect("writing to a string");
                }
                "memtables" => gate.set_memtable_bytes(bytes),
                "release" => gate.release(),
                _ => panic!("no such command: {line}"),
            }
        }
    });
}
