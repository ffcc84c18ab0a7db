//! Snapshots, history and the collection of versions: `testdata/*.txt`.
//!
//! - `publish N [replaces]`: makes writes visible up to N; `advance MS`, `history MS`: log time, and how much of it is kept
//! - `take NAME [at N]`, `drop NAME`: a snapshot
//! - `keep N|nothing`: what another replica's readers may see; `bring N...`: snapshots that were held where the region moved from
//! - `collect MS`: a collection as of this log time; prints up to where it goes
//! - `split N`: the parent is split after N; from here on commands are for a daughter
//! - `show`: what can be read, and the snapshots that live

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Snapshot, Snapshots};

struct Script {
    snapshots: Snapshots,
    taken: BTreeMap<String, Snapshot>,
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

impl Script {
    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["publish", sequence] => drop(self.snapshots.publish(number(sequence), false)),
            ["publish", sequence, "replaces"] => {
                let newest = self.snapshots.publish(number(sequence), true);
                let newest = newest.map_or("none".to_owned(), |newest| newest.to_string());
                writeln!(out, "newest live snapshot: {newest}").expect("to a string");
            }
            ["advance", stamp] => self.snapshots.advance(number(stamp)),
            ["history", length] => self.snapshots.set_history(number(length)),
            ["take", name] => self.keep(name, self.snapshots.take(), out),
            ["take", name, "at", sequence] => match self.snapshots.take_at(number(sequence)) {
                Ok(snapshot) => self.keep(name, snapshot, out),
                Err(error) => writeln!(out, "{name}: {error}").expect("to a string"),
            },
            ["drop", name] => drop(self.taken.remove(name).expect("a snapshot of that name")),
            ["collect", stamp] => {
                let limit = self.snapshots.begin_collection(number(stamp));
                writeln!(out, "collects below {limit}").expect("to a string");
            }
            ["keep", "nothing"] => self.snapshots.keep_from(None),
            ["keep", from] => self.snapshots.keep_from(Some(number(from))),
            ["bring", ref numbers @ ..] => {
                for (at, snapshot) in
                    self.snapshots.brought(numbers.iter().map(|word| number(word))).into_iter().enumerate()
                {
                    self.keep(&format!("brought{at}"), snapshot, out);
                }
            }
            ["split", sequence] => self.split(number(sequence), out),
            ["show"] => self.show(out),
            _ => panic!("no such command: {line}"),
        }
    }

    fn keep(&mut self, name: &str, snapshot: Snapshot, out: &mut String) {
        writeln!(out, "{name} reads at {}", snapshot.sequence()).expect("to a string");
        self.taken.insert(name.to_owned(), snapshot);
    }

    fn split(&mut self, sequence: u64, out: &mut String) {
        let (daughter, handed_down) = self.snapshots.after_split(sequence);
        self.snapshots = daughter;
        for (at, snapshot) in handed_down.into_iter().enumerate() {
            self.keep(&format!("handed{at}"), snapshot, out);
        }
    }

    fn show(&self, out: &mut String) {
        let held = self.snapshots.0.lock();
        let live: Vec<_> = held.live.iter().map(|(sequence, count)| format!("{sequence}x{count}")).collect();
        let (oldest, newest) = (held.collected, held.published);
        writeln!(out, "readable {oldest}..={newest} live [{}]", live.join(" ")).expect("to a string");
    }
}

#[test]
fn every_script_prints_what_is_recorded() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/snapshot/testdata");
    terrane_testscript::check_scripts(directory, || {
        let mut script = Script { snapshots: Snapshots::new(0), taken: BTreeMap::new() };
        move |line: &str, out: &mut String| script.command(line, out)
    });
}
