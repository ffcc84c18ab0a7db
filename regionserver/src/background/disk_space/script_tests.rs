//! What the disk's sizes mean, as scripts. Sizes are in MiB.
//!
//! ```text
//! disk TOTAL [reserve=MIB] [min=MIB]     a disk, the configured reserve, and the least it holds
//! free MIB ...                           the disk is looked at, once per size
//! ```

use std::fmt::Write as _;
use std::path::Path;

use terrane_testscript::check_scripts;

use super::*;

const MIB: u64 = 1 << 20;

fn mib(text: &str) -> u64 {
    text.parse::<u64>().unwrap_or_else(|_| panic!("{text} is no number")) * MIB
}

#[test]
fn disks_are_assessed_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/background/disk_space/testdata"), || {
        let (mut disk, mut total) = (DiskSpace::default(), 0);
        move |line: &str, out: &mut String| {
            let words: Vec<&str> = line.split(' ').collect();
            let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(mib);
            match words[0] {
                "disk" => {
                    total = mib(words[1]);
                    disk = DiskSpace::new(option("reserve"), option("min").unwrap_or(0));
                }
                "free" => {
                    for free in &words[1..] {
                        let Assessment { full, low, refuses_followed_entries, available } =
                            disk.assess(Path::new("/data"), mib(free), total);
                        let writes = match (full.is_some(), low.is_some()) {
                            (true, _) => "rejected",
                            (false, true) => "admitted but nearly full",
                            (false, false) => "admitted",
                        };
                        let followed = if refuses_followed_entries { "refused" } else { "accepted" };
                        let available = available / MIB;
                        writeln!(out, "{free} free: writes {writes}, entries {followed}, {available} for compactions")
                            .expect("writing to a string");
                    }
                }
                _ => panic!("no such command: {line}"),
            }
        }
    });
}
