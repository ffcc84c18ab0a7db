//! The tables of `docs/limits.md`, rendered from the constants that the code checks.
//!
//! The constants are in source files that import nothing of ours, so this crate compiles them as well. The [list](list::SECTIONS)
//! says what each bounds and what happens beyond it; a constant without its line in the list is a finding of the tests below, and
//! `cargo xtask fix` writes the tables.

mod list;

use std::fmt::Write as _;

use super::rendered::Rendered;
use list::{Limit, Value};

#[path = "../../../types/src/limits.rs"]
#[allow(dead_code, reason = "the page has no defaults")]
mod data;
#[path = "../../../filter/src/limits.rs"]
mod filter;
#[path = "../../../hbase/src/limits.rs"]
#[allow(dead_code, reason = "the page has only limits")]
mod hbase;

/// The tables.
pub const REFERENCE: Rendered =
    Rendered { file: "docs/limits.md", list: "xtask/src/tidy/limits/list.rs", text: reference };

fn reference() -> String {
    let mut text = String::new();
    for section in list::SECTIONS {
        write!(text, "\n## {}\n\n{}\n\n", section.title, section.about).expect(INFALLIBLE);
        text.push_str("| what | limit | beyond it |\n|---|---|---|\n");
        for Limit { what, value, beyond, .. } in section.limits {
            writeln!(text, "| {what} | {} | {beyond} |", shown(*value)).expect(INFALLIBLE);
        }
    }
    text
}

/// A value with its unit, as a person writes it.
fn shown(value: Value) -> String {
    let grouped = |count: u64| {
        let digits = count.to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).expect(DIGITS)).collect();
        groups.join(",")
    };
    match value {
        Value::Bytes(bytes) if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        Value::Bytes(bytes) if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        Value::Bytes(bytes) => format!("{} bytes", grouped(bytes)),
        Value::Count(count) => grouped(count),
        Value::Seconds(seconds) => format!("{seconds} s"),
    }
}

const INFALLIBLE: &str = "a string takes any text";
const DIGITS: &str = "digits are ASCII";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Ranges of attributes, which `docs/attributes.md` lists with the attributes.
    const OF_ATTRIBUTES: [&str; 5] =
        ["REGION_SIZE_MIN", "FLUSH_SIZE_MIN", "BLOCK_SIZE_MIN", "BLOCK_SIZE_MAX", "VERSIONS_MAX"];

    #[test]
    fn every_limit_is_in_the_list() {
        let files = [
            ("data", include_str!("../../../types/src/limits.rs")),
            ("filter", include_str!("../../../filter/src/limits.rs")),
            ("hbase", include_str!("../../../hbase/src/limits.rs")),
        ];
        let listed: BTreeSet<&str> =
            list::SECTIONS.iter().flat_map(|section| section.limits).map(|limit| limit.constant).collect();
        let mut constants = BTreeSet::new();
        for (file, text) in files {
            let names = text.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
            let limits = names.filter(|name| name.ends_with("_MAX") || name.ends_with("_MIN"));
            constants.extend(limits.filter(|name| !OF_ATTRIBUTES.contains(name)).map(|name| format!("{file}::{name}")));
        }
        assert_eq!(listed, constants.iter().map(String::as_str).collect());
    }

    #[test]
    fn values_have_the_unit_that_a_person_would_choose() {
        let all = [
            Value::Bytes(10 << 20),
            Value::Bytes(64 << 10),
            Value::Bytes(32_767),
            Value::Count(1_024),
            Value::Seconds(90),
        ];
        assert_eq!(all.map(shown), ["10 MiB", "64 KiB", "32,767 bytes", "1,024", "90 s"]);
        assert!(reference().contains("| value of a cell | 10 MiB | `Invalid` |"));
    }
}
