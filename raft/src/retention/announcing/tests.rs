//! When leaders announce, as scripts.

use std::fmt::Write as _;

use super::Announcer;
use crate::script::{Line, check};

const NS_PER_S: u64 = 1_000_000_000;

/// `look at=SECONDS said=I released=I [segment=N] [goes=I]`: the leader looks whether it has to announce.
fn start() -> impl FnMut(&str, &mut String) {
    let mut announcer = Announcer::new(0);
    move |line, out| {
        let line = Line::new(line);
        assert_eq!(line.command(), "look", "unknown command");
        let at: u64 = line.need("at");
        let segment = line.get("segment").unwrap_or(0);
        let due = announcer.is_due(line.need("said"), line.need("released"), segment, line.get("goes"), at * NS_PER_S);
        writeln!(out, "{at} s: {}", if due { "announces" } else { "silent" }).unwrap();
    }
}

#[test]
fn scripts() {
    check("retention/announcing", start);
}
