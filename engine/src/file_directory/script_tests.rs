//! File numbers and what keeps a file: `testdata/*.txt`.
//!
//! - `open IDS`: starts above the files that the manifest names; `allocate`: prints the new number
//! - `release ID`, `doubt IDS`, `resolve`: what became of the records that were to name files
//! - `claim NAME ID`, `drop NAME`: a reader's claim
//! - `look`: takes what is protected now, as a clean-up does; prints nothing
//! - `clean NAMED of IDS`: which of the files a clean-up removes that looked then and finds these named (`-`: none)

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::ledger::{Claim, Ledger, Protected};

struct Script {
    ledger: Ledger,
    claims: BTreeMap<String, Arc<Claim>>,
    protected: Protected,
}

fn ids(words: &[&str]) -> BTreeSet<u64> {
    words.iter().filter(|word| **word != "-").map(|word| word.parse().expect("a number")).collect()
}

impl Script {
    fn command(&mut self, line: &str, out: &mut String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["open", ref named @ ..] => self.ledger = Ledger::new(&ids(named)),
            ["allocate"] => writeln!(out, "file {}", self.ledger.allocate()).expect("to a string"),
            ["release", id] => self.ledger.release(id.parse().expect("a number")),
            ["doubt", ref doubtful @ ..] => self.ledger.in_doubt(ids(doubtful).into_iter()),
            ["resolve"] => self.ledger.resolve_doubt(),
            ["claim", name, id] => {
                let claim = self.ledger.claim(id.parse().expect("a number"));
                self.claims.insert(name.to_owned(), claim);
            }
            ["drop", name] => drop(self.claims.remove(name).expect("a claim of that name")),
            ["look"] => self.protected = self.ledger.protected(),
            ["clean", ref rest @ ..] => self.clean(rest, out),
            _ => panic!("no such command: {line}"),
        }
    }

    fn clean(&mut self, words: &[&str], out: &mut String) {
        let of = words.iter().position(|word| *word == "of").expect("clean NAMED of IDS");
        let (named, present) = (ids(&words[..of]), ids(&words[of + 1..]));
        let (kept, removed): (Vec<_>, Vec<_>) =
            present.into_iter().partition(|id| self.ledger.keeps(*id, &named, &self.protected));
        writeln!(out, "kept {kept:?} removed {removed:?}").expect("to a string");
        self.ledger.drop_ended_claims();
    }
}

#[test]
fn every_script_prints_what_is_recorded() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/file_directory/testdata");
    terrane_testscript::check_scripts(directory, || {
        let mut script =
            Script { ledger: Ledger::new(&BTreeSet::new()), claims: BTreeMap::new(), protected: Protected::nothing() };
        move |line: &str, out: &mut String| script.command(line, out)
    });
}
