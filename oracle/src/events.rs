//! The events that the leading master lists: each happened once, follows from the one before, and says why.
//!
//! A list begins with the term of a leading master, so each is judged by itself. What is known is the list, looked at again and
//! again, and the map of regions. Then:
//! - an event keeps its number and its words, and no number is left out;
//! - splits and merges alternate at a key: a boundary that is there does not appear, and one that is gone does not disappear;
//! - a region moves out of the group that it moved into, and a leader follows the one that led, in a later term;
//! - a server, a drain or a table does not do twice in a row what it can do only once;
//! - a boundary of the map that was not there at the first look, or is not there any more, has its event.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::Place;
use terrane_types::admin::past::{EventInfo, EventKind};

use crate::verdict::Verdict;

/// The kinds of events that need a reason.
const REASONED: [EventKind; 7] = [
    EventKind::Split,
    EventKind::Merge,
    EventKind::Move,
    EventKind::Election,
    EventKind::Handover,
    EventKind::Failover,
    EventKind::Master,
];

/// What may happen twice in a row.
const REPEATED: [&str; 2] = ["was started again", "was truncated"];

/// The first keys of the regions of each table, escaped.
pub type Boundaries = BTreeMap<String, BTreeSet<String>>;

/// The events of one leading master so far.
#[derive(Debug, Default)]
pub struct Events {
    /// When it began to lead, which distinguishes it.
    life: Option<u64>,
    seen: BTreeMap<u64, EventInfo>,
    /// Whether each boundary is there, by the last event about it.
    boundaries: BTreeMap<(String, String), bool>,
    leaders: BTreeMap<u64, (u64, u64)>,
    /// How often the leader of each group changed.
    elections: BTreeMap<u64, usize>,
    groups: BTreeMap<u64, u64>,
    /// What each server, drain and table did last.
    last: BTreeMap<(EventKind, String), String>,
    /// The map at the first look at it.
    first: Boundaries,
    /// Whether a second look came after that one.
    is_confirmed: bool,
    /// What differed between these two looks, without an event: a region that splits and merges again between two looks of
    /// the master has no boundary in the events, but may have one in the map meanwhile.
    passing: BTreeSet<(String, String)>,
}

impl Events {
    /// A list of events, in any order, of the master that began to lead at this time.
    ///
    /// # Errors
    /// If one is not right.
    pub fn look(&mut self, life: u64, events: Vec<EventInfo>) -> Verdict {
        if self.life != Some(life) {
            *self = Self { life: Some(life), ..Self::default() };
        }
        let events: BTreeMap<u64, EventInfo> = events.into_iter().map(|event| (event.number, event)).collect();
        for (number, event) in events {
            if let Some(before) = self.seen.get(&number) {
                if *before != event {
                    return Err(format!("event {number} was {before:?} and is {event:?}"));
                }
                continue;
            }
            let next = self.seen.last_key_value().map_or(1, |(last, _)| last + 1);
            if number != next {
                return Err(format!("event {next} is left out: {event:?} follows"));
            }
            self.follow(&event).map_err(|why| format!("event {number}, {}: {why}", event.what))?;
            self.seen.insert(number, event);
        }
        Ok(())
    }

    /// How many events were seen.
    #[must_use]
    pub fn count(&self) -> usize {
        self.seen.len()
    }

    /// The events about a table, of a kind.
    #[must_use]
    pub fn about(&self, table: &str, kind: EventKind) -> usize {
        let is_about = |event: &&EventInfo| event.kind == kind && tables(event).any(|known| known == table);
        self.seen.values().filter(is_about).count()
    }

    /// How often the leader of a group changed.
    #[must_use]
    pub fn elections(&self, group: u64) -> usize {
        self.elections.get(&group).copied().unwrap_or_default()
    }

    fn follow(&mut self, event: &EventInfo) -> Verdict {
        if event.reason.is_empty() && REASONED.contains(&event.kind) {
            return Err("it has no reason".to_owned());
        }
        let words: Vec<&str> = event.what.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.trim_end_matches(',').parse::<u64>().ok());
        match event.kind {
            EventKind::Split | EventKind::Merge => {
                // A region that split and merged again has the boundaries that it had.
                let Some((_, at)) = event.what.split_once(" at ") else { return Ok(()) };
                let table = tables(event).next().unwrap_or_default().to_owned();
                let is_there = event.kind == EventKind::Split;
                match self.boundaries.insert((table, at.to_owned()), is_there) {
                    Some(before) if before == is_there => Err(format!("it follows another {} there", event.kind)),
                    _ => Ok(()),
                }
            }
            EventKind::Move if words.first() == Some(&"region") => {
                let (Some(region), Some(from), Some(to)) = (number(1), number(7), number(10)) else {
                    return Err("it does not say from where to where".to_owned());
                };
                match self.groups.insert(region, to) {
                    Some(group) if group != from => Err(format!("the region is in group {group}")),
                    _ => Ok(()),
                }
            }
            EventKind::Election | EventKind::Handover | EventKind::Failover => {
                let (Some(to), Some(group), Some(from)) = (number(1), number(4), number(7)) else {
                    return Err("it does not say who leads after whom".to_owned());
                };
                let before = self.leaders.get(&group).copied();
                let known_term = before.map_or(0, |(_, term)| term);
                let term = number(10).unwrap_or(known_term);
                self.leaders.insert(group, (to, term));
                *self.elections.entry(group).or_default() += 1;
                match before {
                    Some((leader, _)) if leader != from => Err(format!("server {leader} led")),
                    Some(_) if number(10).is_some_and(|term| term <= known_term) => {
                        Err(format!("term {known_term} had begun"))
                    }
                    _ => Ok(()),
                }
            }
            EventKind::Server | EventKind::Drain => self.not_again(event),
            EventKind::Table => {
                // A table of this name begins without a past.
                let is_of = |table: &str| {
                    tables(event).any(|of| of == table) || event.what.contains(&format!("table {table} "))
                };
                self.boundaries.retain(|(table, _), _| !is_of(table));
                self.first.retain(|table, _| !is_of(table));
                self.passing.retain(|(table, _)| !is_of(table));
                self.not_again(event)
            }
            _ => Ok(()),
        }
    }

    fn not_again(&mut self, event: &EventInfo) -> Verdict {
        let subject: Vec<&str> = event.what.split_whitespace().take(2).collect();
        let before = self.last.insert((event.kind, subject.join(" ")), event.what.clone());
        if before.as_ref() == Some(&event.what) && !REPEATED.iter().any(|again| event.what.contains(again)) {
            return Err("that was so already".to_owned());
        }
        Ok(())
    }

    /// The map while this master led. What comes first is compared with, but for what the second look does not confirm. More
    /// than the time between two looks of the master must lie between two calls.
    pub fn begin_map(&mut self, life: u64, map: &Boundaries) {
        if self.life != Some(life) || self.is_confirmed {
            return;
        }
        if self.first.is_empty() {
            self.first.clone_from(map);
            return;
        }
        self.is_confirmed = true;
        for (table, present) in map {
            let Some(first) = self.first.get(table) else { continue };
            let differ = first.symmetric_difference(present).map(|key| (table.clone(), key.clone()));
            self.passing.extend(differ.filter(|changed| !self.boundaries.contains_key(changed)));
        }
    }

    /// The map after all events about it were seen.
    ///
    /// # Errors
    /// If an event is missing.
    pub fn judge_map(&self, map: &Boundaries) -> Verdict {
        for (table, first) in self.first.iter().filter(|_| self.is_confirmed) {
            let Some(present) = map.get(table) else { continue };
            for key in first.union(present) {
                let (was, is) = (first.contains(key), present.contains(key));
                let was_passing = self.passing.contains(&(table.clone(), key.clone()));
                let told = self.boundaries.get(&(table.clone(), key.clone())).copied();
                if told.unwrap_or(if was_passing { is } else { was }) != is {
                    let change = if is { "begins at" } else { "no longer begins at" };
                    return Err(format!("a region of {table} {change} {key:?}, and no event says so"));
                }
            }
        }
        Ok(())
    }
}

/// The tables that an event is about.
fn tables(event: &EventInfo) -> impl Iterator<Item = &str> {
    event.places.iter().filter_map(|place| match place {
        Place::Table(name) => Some(name.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, kind: &str, what: &str) -> EventInfo {
        let of_table = what.contains(" of t ") || kind == "table";
        let places = of_table.then(|| Place::Table("t".to_owned())).into_iter().collect();
        let (kind, what, reason) = (EventKind::named(kind), what.to_owned(), "why".to_owned());
        EventInfo { number, time_ms: 0, kind, what, reason, places }
    }

    fn list(events: &[(&str, &str)]) -> Vec<EventInfo> {
        (1..).zip(events).map(|(number, (kind, what))| event(number, kind, what)).collect()
    }

    fn told(events: &[(&str, &str)]) -> Verdict {
        Events::default().look(1, list(events))
    }

    const SPLIT: (&str, &str) = ("split", "region 1 of t split into 2 and 3 at m");
    const MERGE: (&str, &str) = ("merge", "regions 2 and 3 of t merged into 4 at m");
    const AGAIN: (&str, &str) = ("split", "region 4 of t split into 5 and 6 at m");

    #[test]
    fn splits_and_merges_alternate_at_a_key() {
        told(&[SPLIT, MERGE, AGAIN]).unwrap();
        told(&[SPLIT, ("table", "table t was truncated"), AGAIN]).unwrap();
        assert!(told(&[SPLIT, SPLIT]).unwrap_err().contains("follows another split"));
        assert!(told(&[MERGE, MERGE]).unwrap_err().contains("follows another merge"));
    }

    #[test]
    fn a_leader_follows_the_one_that_led_in_a_later_term() {
        let first = ("election", "server 2 leads group 1 after server 1, in term 2");
        told(&[first, ("failover", "server 3 leads group 1 after server 2, in term 3")]).unwrap();
        told(&[first, ("handover", "server 3 leads group 1 after server 2")]).unwrap();
        assert!(told(&[first, first]).unwrap_err().contains("server 2 led"));
        let same_term = ("election", "server 3 leads group 1 after server 2, in term 2");
        assert!(told(&[first, same_term]).unwrap_err().contains("term 2 had begun"));
    }

    #[test]
    fn a_leadership_that_came_back_changed_twice() {
        let mut events = Events::default();
        let out = ("handover", "server 2 leads group 1 after server 1, in term 2");
        let back = ("handover", "server 1 leads group 1 after server 2, in term 3");
        events.look(1, list(&[out, back])).unwrap();
        assert_eq!((events.elections(1), events.elections(2)), (2, 0));
    }

    #[test]
    fn a_region_moves_out_of_the_group_it_is_in() {
        let there = ("move", "region 7 of t moved from group 1 to group 2");
        told(&[there, ("move", "region 7 of t moved from group 2 to group 1"), there]).unwrap();
        told(&[there, ("move", "the move of region 7 of t from group 2 to group 1 was undone")]).unwrap();
        assert!(told(&[there, there]).unwrap_err().contains("is in group 2"));
    }

    #[test]
    fn what_can_happen_once_does_not_come_twice_in_a_row() {
        let (silent, back) = (("server", "server 1 at h:1 is silent"), ("server", "server 1 at h:1 reports again"));
        told(&[silent, back, silent]).unwrap();
        told(&[("server", "server 1 at h:1 was started again"); 2]).unwrap();
        assert!(told(&[silent, silent]).unwrap_err().contains("was so already"));
        assert!(told(&[("table", "table t was created"); 2]).unwrap_err().contains("was so already"));
    }

    #[test]
    fn events_stay_and_none_is_left_out() {
        let mut events = Events::default();
        events.look(1, list(&[SPLIT])).unwrap();
        events.look(1, list(&[SPLIT, MERGE])).unwrap();
        assert_eq!((events.count(), events.about("t", EventKind::Split)), (2, 1));
        assert!(events.look(1, list(&[MERGE])).unwrap_err().contains("event 1 was"));
        assert!(events.look(1, vec![event(4, "split", SPLIT.1)]).unwrap_err().contains("event 3 is left out"));
        events.look(2, list(&[SPLIT])).unwrap();
        let silent = EventInfo { reason: String::new(), ..event(2, "merge", MERGE.1) };
        assert!(events.look(2, vec![silent]).unwrap_err().contains("no reason"));
    }

    #[test]
    fn a_boundary_that_comes_or_goes_without_an_event_is_found() {
        let map =
            |keys: &[&str]| Boundaries::from([("t".to_owned(), keys.iter().map(|key| (*key).to_owned()).collect())]);
        let mut events = Events::default();
        events.look(1, list(&[SPLIT])).unwrap();
        events.begin_map(1, &map(&["", "m", "p", "x"]));
        events.begin_map(1, &map(&["", "m", "x"]));
        events.judge_map(&map(&["", "m", "x"])).unwrap();
        assert!(events.judge_map(&map(&["", "c", "m", "x"])).unwrap_err().contains("begins at \"c\""));
        assert!(events.judge_map(&map(&["", "m"])).unwrap_err().contains("no longer begins at \"x\""));
        assert!(events.judge_map(&map(&["", "x"])).unwrap_err().contains("no longer begins at \"m\""));
        events.look(1, vec![event(2, "merge", MERGE.1)]).unwrap();
        events.judge_map(&map(&["", "x"])).unwrap();
    }
}
