//! The list of planted bugs and the conditions in the sources name the same bugs: a bug that is not listed is never looked
//! for, and one that is only listed is never made.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test reads the sources of the workspace")]

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

/// The crates with planted bugs.
const CRATES: [&str; 7] = ["env", "engine", "raft", "regionserver", "master", "client", "hbase"];
/// What the test of the macro itself asks for.
const OF_ITS_TEST: &str = "a bug";

#[test]
fn every_planted_bug_is_listed_and_every_listed_one_is_planted() {
    let mut planted = BTreeSet::new();
    for name in CRATES {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace");
        collect(&root.join(name).join("src"), &mut planted);
    }
    planted.remove(OF_ITS_TEST);
    let listed: BTreeSet<String> = PLANTED.iter().map(|bug| bug.name.to_owned()).collect();
    assert_eq!(planted, listed);
}

fn collect(directory: &Path, planted: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, planted);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            let conditions = source.split("planted!(\"").skip(1);
            planted.extend(conditions.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
}

#[test]
fn needs_are_those_of_bugs() {
    assert_eq!(PLANTED.iter().filter_map(PlantedBug::needs).count(), NEEDS.len());
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<&str> = PLANTED.iter().map(|bug| bug.name).collect();
    assert_eq!(names.len(), PLANTED.len());
}
