//! A group's log in memory as scripts: running, and rebuilt from records.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use terrane_env::fs::Disk;
use terrane_types::{GroupId, ReplicaId};

use super::GroupLog;
use crate::GroupSpec;
use crate::log::files::Files;
use crate::log::place::{HELD, Place};
use crate::log::record::{Mark, Record};
use crate::proposals::entry::Sequence;
use crate::script::{Line, check, or_dash};
use crate::types::{Entry, Payload, StoredMembership, Vote, log_id};

fn mark(term: u64, index: u64) -> Mark {
    Mark { log_id: log_id(term, index), membership: StoredMembership::default(), sequence: Sequence::default() }
}

/// `3` or `3..5`.
fn indexes(word: &str) -> std::ops::RangeInclusive<u64> {
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    first.parse().unwrap()..=last.parse().unwrap()
}

/// A running log: `append FIRST..LAST term=T`, `truncate LAST`, `offer INDEX`, `purge INDEX`, `vote T`. A log that is rebuilt
/// from records: `held FIRST..LAST`, `read FIRST..LAST`, `read-truncation LAST`, `read-purge INDEX`, `read-vote T`, `done`.
fn start() -> impl FnMut(&str, &mut String) {
    let spec = GroupSpec { group: GroupId(1), replica: ReplicaId(1), members: [].into() };
    let log = GroupLog::new(spec, Arc::new(Files::new(Disk::os(), PathBuf::from("no directory"))));
    let mut offset = 0;
    move |line, out| {
        let line = Line::new(line);
        let term = line.get("term").unwrap_or(1);
        let word = line.words().next().unwrap_or_default();
        let entry = |index| Entry { log_id: log_id(term, index), payload: Payload::Blank };
        let mut place = |segment| {
            offset += 40;
            Place { segment, offset, length: 40 }
        };
        let outcome: Result<(), String> = match line.command() {
            "append" => {
                log.append(&indexes(word).map(entry).collect::<Vec<_>>());
                Ok(())
            }
            "truncate" => {
                log.truncate_after(Some(line.word(0)));
                Ok(())
            }
            "offer" => {
                log.offer(mark(term, line.word(0)));
                Ok(())
            }
            "purge" => log.purge(&log_id(term, line.word(0))).map(drop).map_err(|error| error.to_string()),
            "vote" => {
                log.set_vote(Vote::new(line.word(0), ReplicaId(1)));
                Ok(())
            }
            "held" => indexes(word)
                .try_for_each(|index| log.replay_held(&log_id(term, index), place(1 | HELD)))
                .map_err(str::to_owned),
            "read" => indexes(word)
                .try_for_each(|index| log.replay(Record::Entry(entry(index)), place(7)).map(drop))
                .map_err(str::to_owned),
            "read-truncation" => {
                log.replay(Record::Truncated(Some(line.word(0))), place(7)).map(drop).map_err(str::to_owned)
            }
            "read-purge" => {
                log.replay(Record::Purged(mark(term, line.word(0))), place(7)).map(drop).map_err(str::to_owned)
            }
            "read-vote" => {
                let vote = Record::Vote(Vote::new(line.word(0), ReplicaId(1)));
                log.replay(vote, place(7)).map(drop).map_err(str::to_owned)
            }
            "done" => log.replayed().map_err(str::to_owned),
            other => panic!("unknown command {other}"),
        };
        if let Err(what) = outcome {
            writeln!(out, "refused: {what}").unwrap();
        }
        let (purged, last) = log.ends();
        let (purged, last) = (or_dash(purged.map(|id| id.index)), or_dash(last.map(|id| id.index)));
        let first = or_dash(log.first_index());
        writeln!(out, "purged {purged} first {first} last {last} vote {}", log.voted_term()).unwrap();
    }
}

#[test]
fn scripts() {
    check("log/memory", start);
}

#[test]
#[should_panic(expected = "the log is not contiguous: entry 5 appended at 3")]
fn a_gap_is_never_appended() {
    let (mut play, mut out) = (start(), String::new());
    play("append 0..2", &mut out);
    play("append 5", &mut out);
}

#[test]
#[should_panic(expected = "the term regressed from 3 to 2 at entry 1")]
fn an_earlier_term_is_never_appended_after_a_later_one() {
    let (mut play, mut out) = (start(), String::new());
    play("append 0 term=3", &mut out);
    play("append 1 term=2", &mut out);
}

#[test]
#[should_panic(expected = "the vote regressed")]
fn an_older_vote_never_replaces_a_newer_one() {
    let (mut play, mut out) = (start(), String::new());
    play("vote 5", &mut out);
    play("vote 4", &mut out);
}

#[test]
#[should_panic(expected = "a truncation after Some(1) removes entries purged up to Some(2)")]
fn purged_entries_are_never_truncated() {
    let (mut play, mut out) = (start(), String::new());
    for line in ["append 0..4", "offer 2", "purge 2", "truncate 1"] {
        play(line, &mut out);
    }
}
