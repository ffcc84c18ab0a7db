//! Which neighbours are merged, as scripts.
//!
//! ```text
//! region r1 [a,m) [bytes=N] [load=N] [age=SECONDS] [planned=[,)] [table=N] [group=N] [size=N] [policy=none] [busy]
//! choose                       the two regions to merge; region_size is 1000, the load that splits 100
//! forget                       no regions
//! ```

use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;

fn range(text: &str) -> KeyRange {
    let (start, end) = text.trim_matches(['[', ')']).split_once(',').expect("a range: [a,m)");
    KeyRange::new(start.to_owned(), end.to_owned()).expect("a range")
}

fn region(line: &str) -> Candidate {
    let words: Vec<&str> = line.split(' ').collect();
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str, default: u64| option(name).map_or(default, |text| text.parse().expect("a number"));
    Candidate {
        region: RegionId(words[1].trim_start_matches('r').parse().expect("a number")),
        table: TableId(number("table", 1)),
        group: GroupId(number("group", 1)),
        range: range(words[2]),
        planned: option("planned").map_or(KeyRange::all(), range),
        policy: option("policy").map_or(SplitPolicy::Size, |policy| policy.parse().expect("a policy")),
        region_size: number("size", 1_000),
        bytes: number("bytes", 10),
        load: number("load", 0),
        age: Duration::from_secs(number("age", 600)),
        is_free: !words.contains(&"busy"),
    }
}

#[test]
fn merges_are_decided_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/background/merge/testdata"), || {
        let limits = ShapeLimits { split_load: 100, merge_rest: Duration::from_secs(600), ..ShapeLimits::default() };
        let mut candidates: Vec<Candidate> = Vec::new();
        move |line: &str, out: &mut String| match line.split(' ').next() {
            Some("region") => candidates.push(region(line)),
            Some("forget") => candidates.clear(),
            Some("choose") => {
                let chosen = choose(&candidates, &limits);
                let shown = chosen.map_or("none".to_owned(), |(left, right)| format!("r{left} and r{right}"));
                writeln!(out, "{shown}").expect("writing to a string");
            }
            _ => panic!("no such command: {line}"),
        }
    });
}
