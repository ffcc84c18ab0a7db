//! Which regions are flushed, as scripts.
//!
//! ```text
//! budget BYTES
//! region ID active=BYTES [frozen=BYTES] [flush-size=BYTES] [requested]
//! running ID ...             these are being flushed
//! waiting ID ...             those of them that wait for an entry before they freeze their region
//! choose                     the regions to flush now, most urgent first
//! ```

use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use terrane_types::RegionId;

use super::*;

#[derive(Default)]
struct Situation {
    budget: u64,
    candidates: Vec<Candidate<RegionId>>,
    running: BTreeSet<RegionId>,
    waiting: BTreeSet<RegionId>,
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

fn command(situation: &mut Situation, line: &str, out: &mut String) {
    let words: Vec<&str> = line.split(' ').collect();
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(number);
    match words[0] {
        "budget" => situation.budget = number(words[1]),
        "region" => {
            let (region, active_bytes) = (RegionId(number(words[1])), option("active").expect("active=BYTES"));
            situation.candidates.retain(|candidate| candidate.region != region);
            situation.candidates.push(Candidate {
                region,
                memtable_bytes: active_bytes + option("frozen").unwrap_or(0),
                active_bytes,
                flush_size: option("flush-size").unwrap_or(100),
                requested: words.contains(&"requested"),
            });
        }
        "running" => situation.running = words[1..].iter().map(|id| RegionId(number(id))).collect(),
        "waiting" => situation.waiting = words[1..].iter().map(|id| RegionId(number(id))).collect(),
        "choose" => {
            let Situation { candidates, running, waiting, budget } = &*situation;
            let chosen = choose(candidates, running, waiting, *budget);
            let chosen: Vec<String> = chosen.iter().map(ToString::to_string).collect();
            writeln!(out, "flush {}", if chosen.is_empty() { "none".to_owned() } else { chosen.join(" ") })
                .expect("writing to a string");
        }
        _ => panic!("no such command: {line}"),
    }
}

#[test]
fn flushes_are_chosen_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/background/flush_policy/testdata"), || {
        let mut situation = Situation::default();
        move |line: &str, out: &mut String| command(&mut situation, line, out)
    });
}
