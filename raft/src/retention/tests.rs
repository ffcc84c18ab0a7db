//! What is purged and when, as scripts.

use std::fmt::Write as _;

use super::{Step, may_offer, next_step, not_needed};
use crate::script::{Line, check, or_dash};

/// - `state [durable=I] [matched=I] [applied=I]`: how far this replica's files, all members' logs and applying have come.
/// - `marks I...`: the indexes whose states are remembered.
/// - `look`: one look; openraft carries out what it orders before the next.
fn start() -> impl FnMut(&str, &mut String) {
    let (mut durable, mut matched, mut applied) = (0, 0, 0);
    let mut marks: Vec<u64> = Vec::new();
    let (mut offered, mut snapshot, mut purged) = (None, None, None);
    move |line, out| {
        let line = Line::new(line);
        match line.command() {
            "state" => {
                durable = line.get("durable").unwrap_or(durable);
                matched = line.get("matched").unwrap_or(matched);
                applied = line.get("applied").unwrap_or(applied);
            }
            "marks" => marks = line.words().map(|word| word.parse().unwrap()).collect(),
            "look" => {
                let least = not_needed(durable, matched, applied);
                if let Some(&mark) = marks.iter().rev().find(|mark| **mark <= least)
                    && may_offer(mark, offered, least)
                {
                    offered = Some(mark);
                }
                let step = next_step(offered, snapshot, purged);
                match step {
                    Step::Snapshot => snapshot = offered,
                    Step::Purge(index) => purged = Some(index),
                    Step::Nothing => {}
                }
                let purged = or_dash(purged);
                writeln!(out, "not needed up to {least}: {step:?}, offered {} purged {purged}", or_dash(offered))
                    .unwrap();
            }
            other => panic!("unknown command {other}"),
        }
    }
}

#[test]
fn scripts() {
    check("retention", start);
}
