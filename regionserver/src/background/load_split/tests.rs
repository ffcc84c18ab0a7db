//! When and where a region is split for its load, as scripts.
//!
//! ```text
//! limits load=N seconds=N
//! load N N ...                 the load of one second each; prints what each leads to
//! postponed                    the last decision found no boundary
//! atomic N                     rows that share their first N bytes stay together
//! start ROW                    the first row of the region
//! grows                        the keys grow
//! rows a*10 b*5/4 ...          sampled rows, each so many times, with 16 units or as given; prints the choice
//! ```

use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;
use crate::region::sample::Sample;

struct Script {
    watch: Watch,
    limits: ShapeLimits,
    atomic: usize,
    start: Vec<u8>,
    grows: bool,
}

fn samples(words: &[&str]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for word in words {
        let (row, times) = word.split_once('*').expect("ROW*TIMES");
        let (times, units) = times.split_once('/').unwrap_or((times, "16"));
        let (times, units) = (times.parse().expect("a number"), units.parse().expect("a number"));
        let sample = Sample { row: bytes::Bytes::copy_from_slice(row.as_bytes()), units };
        samples.extend(std::iter::repeat_n(sample, times));
    }
    samples
}

impl Script {
    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().expect("a number");
        match words[0] {
            "limits" => {
                for word in &words[1..] {
                    match word.split_once('=').expect("NAME=N") {
                        ("load", limit) => self.limits.split_load = number(limit),
                        ("seconds", limit) => self.limits.split_seconds = number(limit) as u32,
                        _ => panic!("no such limit: {word}"),
                    }
                }
            }
            "load" => {
                for word in &words[1..] {
                    let step = self.watch.turn(number(word), &self.limits);
                    writeln!(out, "{word} {}", format!("{step:?}").to_lowercase()).expect("writing to a string");
                }
            }
            "postponed" => self.watch.postpone(),
            "atomic" => self.atomic = number(words[1]) as usize,
            "grows" => self.grows = true,
            "start" => self.start = words[1].as_bytes().to_vec(),
            "rows" => {
                let boundary = |row: &[u8]| {
                    let cut = if self.atomic == 0 { row.len() } else { row.len().min(self.atomic) };
                    (row[..cut] > self.start[..]).then(|| row[..cut].to_vec())
                };
                let shown = match choose_unasked(self.grows, &samples(&words[1..]), boundary) {
                    Choice::Unknown => "too few samples".to_owned(),
                    Choice::At(at, heavier) => format!("split at {}, the heavier side has {heavier} %", escape(&at)),
                    Choice::HotRow(row, percent) => format!("keep: row {} has {percent} %", escape(&row)),
                    Choice::Growing => "keep: the keys grow".to_owned(),
                    Choice::Nowhere => "keep: no boundary spreads the load".to_owned(),
                };
                writeln!(out, "{shown}").expect("writing to a string");
            }
            _ => panic!("no such command: {line}"),
        }
    }
}

#[test]
fn splits_for_load_are_decided_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/background/load_split/testdata"), || {
        let limits = ShapeLimits { split_load: 1_000, split_seconds: 3, ..ShapeLimits::default() };
        let mut script = Script { watch: Watch::default(), limits, atomic: 0, start: Vec::new(), grows: false };
        move |line: &str, out: &mut String| script.command(line, out)
    });
}
