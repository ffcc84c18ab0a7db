//! The lease decision as scripts.

use std::fmt::Write as _;
use std::time::Duration;

use super::LeaseView;
use crate::script::{Line, check};

/// `read [age=MS|no-quorum] [members=N] [suspended] [term=T] [applied=T] [voted=T] [transferred=T]`: whether a leader of
/// term 5 in a group of three may answer under its lease. Everything is favourable unless given.
fn play(line: &str, out: &mut String) {
    let line = Line::new(line);
    assert_eq!(line.command(), "read", "unknown command");
    let term = line.get("term").unwrap_or(5);
    let view = LeaseView {
        term,
        alone: line.get("members") == Some(1),
        quorum_age: if line.has("no-quorum") { None } else { Some(line.ms("age").unwrap_or(Duration::ZERO)) },
        suspended_since: line.has("suspended"),
        applied_term: line.get("applied").unwrap_or(term),
        voted_term: line.get("voted").unwrap_or(term),
        transferred_term: line.get("transferred").unwrap_or(0),
    };
    match view.check() {
        Ok(()) => writeln!(out, "answered under the lease").unwrap(),
        Err(why) => writeln!(out, "needs a quorum round: {why:?}").unwrap(),
    }
}

#[test]
fn scripts() {
    check("reads/lease", || play);
}
