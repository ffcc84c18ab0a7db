//! When a region is split by size, as scripts.

use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;

#[test]
fn splits_by_size_are_decided_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/background/split/testdata"), || {
        let mut check = SizeCheck { policy: SplitPolicy::Size, region_size: 1000, bytes: 0, unsplittable_bytes: 0 };
        move |line: &str, out: &mut String| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            match words[0] {
                "policy" => check.policy = words[1].parse().expect("a policy"),
                "region-size" => check.region_size = number(1),
                "unsplittable-at" => check.unsplittable_bytes = number(1),
                "bytes" => {
                    for word in &words[1..] {
                        check.bytes = word.parse().expect("a number");
                        let decision = if check.wants_split() { "split" } else { "keep" };
                        writeln!(out, "{word} {decision}").expect("writing to a string");
                    }
                }
                _ => panic!("no such command: {line}"),
            }
        }
    });
}
