//! Where the entries of one group are on disk, in eight bytes per entry.
//!
//! Consecutive entries in one file and one term form a run ([`EntryRun`]), which stores file, term and a base offset once.
//! Each of its entries has only its distance from that base and its length.

use std::collections::VecDeque;

use super::place::{HELD, Place};

/// The places of the entries `first..end`.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Index of the first entry, or of the next one if there is none.
    first: u64,
    end: u64,
    bytes: u64,
    runs: VecDeque<EntryRun>,
}

#[derive(Debug)]
struct EntryRun {
    first: u64,
    term: u64,
    segment: u64,
    base: u64,
    bytes: u64,
    /// Distance from the base and length of each entry.
    places: VecDeque<(u32, u32)>,
}

impl EntryRun {
    fn end(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    fn place(&self, at: usize) -> Place {
        let (distance, length) = self.places[at];
        Place { segment: self.segment, offset: self.base + u64::from(distance), length }
    }

    /// The distance of `place` from the base, if the entry can join the run.
    fn distance(&self, term: u64, place: Place) -> Option<u32> {
        let same = self.term == term && self.segment == place.segment;
        place.offset.checked_sub(self.base).filter(|_| same).and_then(|distance| u32::try_from(distance).ok())
    }

    /// Splits off the entries from `index` on.
    fn split_off(&mut self, index: u64) -> EntryRun {
        let at = usize::try_from(index - self.first).expect("the index is within the run");
        let places = self.places.split_off(at);
        let bytes = places.iter().map(|(_, length)| u64::from(*length)).sum();
        self.bytes -= bytes;
        EntryRun { first: index, term: self.term, segment: self.segment, base: self.base, bytes, places }
    }
}

impl Index {
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The index of the next entry.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes of all entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the entries up to `last`, approximately: a run that continues beyond it counts in proportion.
    pub(crate) fn bytes_through(&self, last: u64) -> u64 {
        let of = |run: &EntryRun| {
            let within = (last + 1).min(run.end()) - run.first;
            let share = u128::from(run.bytes) * u128::from(within) / run.places.len() as u128;
            u64::try_from(share).expect("a part of the run's bytes")
        };
        self.runs.iter().take_while(|run| run.first <= last).map(of).sum()
    }

    /// Drops all entries; the next one is `first`.
    pub(crate) fn reset(&mut self, first: u64) {
        *self = Index { first, end: first, ..Index::default() };
    }

    /// Adds the entry at [`Index::end`].
    pub(crate) fn push(&mut self, term: u64, place: Place) {
        let distance = self.runs.back().and_then(|run| run.distance(term, place));
        let distance = distance.unwrap_or_else(|| {
            let run = EntryRun {
                first: self.end,
                term,
                segment: place.segment,
                base: place.offset,
                bytes: 0,
                places: VecDeque::new(),
            };
            self.runs.push_back(run);
            0
        });
        let run = self.runs.back_mut().expect("a run was pushed if there was none");
        run.places.push_back((distance, place.length));
        run.bytes += u64::from(place.length);
        self.bytes += u64::from(place.length);
        self.end += 1;
    }

    fn run_at(&self, index: u64) -> Option<usize> {
        let behind = self.runs.partition_point(|run| run.first <= index);
        behind.checked_sub(1).filter(|at| index < self.runs[*at].end())
    }

    /// Term and place of an entry.
    pub(crate) fn get(&self, index: u64) -> Option<(u64, Place)> {
        let run = &self.runs[self.run_at(index)?];
        let at = usize::try_from(index - run.first).expect("the index is within the run");
        Some((run.term, run.place(at)))
    }

    /// Term of the last entry.
    pub(crate) fn last_term(&self) -> Option<u64> {
        self.runs.back().map(|run| run.term)
    }

    /// Term of the last entry, unless that is in a held file.
    pub(crate) fn last_term_in_segments(&self) -> Option<u64> {
        self.runs.back().filter(|run| run.segment & HELD == 0).map(|run| run.term)
    }

    /// Drops the entries from `end` on.
    pub(crate) fn truncate(&mut self, end: u64) {
        self.cut(end);
        while self.runs.back().is_some_and(|run| run.first >= end) {
            let run = self.runs.pop_back().expect("there is one");
            self.bytes -= run.bytes;
        }
        self.end = self.runs.back().map_or(self.first, EntryRun::end);
    }

    /// Drops the entries before `first`.
    pub(crate) fn purge(&mut self, first: u64) {
        self.cut(first);
        while self.runs.front().is_some_and(|run| run.first < first) {
            let run = self.runs.pop_front().expect("there is one");
            self.bytes -= run.bytes;
        }
        match self.runs.front() {
            Some(run) => self.first = run.first,
            None => self.reset(self.end.max(first)),
        }
    }

    /// Splits the run that spans `index`, if any, so that a run begins there.
    fn cut(&mut self, index: u64) {
        let Some(at) = self.run_at(index) else { return };
        if self.runs[at].first < index {
            let rest = self.runs[at].split_off(index);
            self.runs.insert(at + 1, rest);
        }
    }

    /// Index, term and place of the first entries in segments before `before`, up to `bytes` of them but at least one. If
    /// there are any, the entries of the held file `small` come before them.
    pub(crate) fn in_segments_before(&self, before: u64, small: Option<u64>, bytes: u64) -> Vec<(u64, u64, Place)> {
        let mut found = Vec::new();
        let (mut sum, mut any) = (0, false);
        for run in &self.runs {
            let is_segment = run.segment & HELD == 0;
            if (is_segment && run.segment >= before) || (!is_segment && small != Some(run.segment)) {
                continue;
            }
            for at in 0..run.places.len() {
                let place = run.place(at);
                if is_segment {
                    sum += u64::from(place.length);
                    if any && sum > bytes {
                        return found;
                    }
                    any = true;
                }
                found.push((run.first + at as u64, run.term, place));
            }
        }
        if any { found } else { Vec::new() }
    }

    /// The last entry in a held file.
    pub(crate) fn last_held(&self) -> Option<u64> {
        self.runs.iter().rev().find(|run| run.segment & HELD != 0).map(|run| run.end() - 1)
    }

    /// Whether all entries from `index` on are in held files.
    pub(crate) fn is_held_from(&self, index: u64) -> bool {
        self.runs.iter().rev().take_while(|run| run.end() > index).all(|run| run.segment & HELD != 0)
    }

    /// The last entry in file `segment`.
    pub(crate) fn last_in(&self, segment: u64) -> Option<u64> {
        self.runs.iter().rev().find(|run| run.segment == segment).map(|run| run.end() - 1)
    }

    /// Moves entries to new places. Returns false, and changes nothing, unless all of them are where the caller expects.
    pub(crate) fn relocate(&mut self, moved: &[Moved]) -> bool {
        // Entries purged meanwhile need no place.
        let moved = &moved[moved.partition_point(|moved| moved.index < self.first)..];
        let (Some(first), Some(last)) = (moved.first(), moved.last()) else { return true };
        if moved.iter().any(|moved| self.get(moved.index) != Some((moved.term, moved.from))) {
            return false;
        }
        let (first, end) = (first.index, last.index + 1);
        self.cut(end);
        self.cut(first);
        let behind = self.runs.partition_point(|run| run.first < end);
        let before = self.runs.partition_point(|run| run.first < first);
        let rest = self.runs.split_off(behind);
        for run in self.runs.drain(before..) {
            self.bytes -= run.bytes;
        }
        let end = std::mem::replace(&mut self.end, first);
        for moved in moved {
            self.push(moved.term, moved.to);
        }
        assert_eq!(self.end, last.index + 1, "entries {first} to {} were not copied as a whole", last.index);
        self.runs.extend(rest);
        self.end = end;
        true
    }
}

/// An entry that was copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) from: Place,
    pub(crate) to: Place,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::script::{Line, check, or_dash};

    fn place(segment: u64, at: u64) -> Place {
        Place { segment, offset: at * 100, length: 40 + u32::try_from(at % 7).unwrap() }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { term: u64, segment: u64 },
        Truncate(u64),
        Purge(u64),
        Move { from: u64, to: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1u64..3, 1u64..4).prop_map(|(term, segment)| Step::Push { term, segment }),
            1 => (0u64..60).prop_map(Step::Truncate),
            1 => (0u64..60).prop_map(Step::Purge),
            1 => (0u64..60, 0u64..60).prop_map(|(from, to)| Step::Move { from, to }),
        ];
        proptest::collection::vec(step, 0..120)
    }

    proptest! {
        #[test]
        fn entries_are_found_as_in_a_plain_list(steps in steps()) {
            let mut index = Index::default();
            index.reset(5);
            let mut plain: std::collections::BTreeMap<u64, (u64, Place)> = std::collections::BTreeMap::new();
            for (at, step) in (0u64..).zip(steps) {
                match step {
                    Step::Push { term, segment } => {
                        plain.insert(index.end(), (term, place(segment, at)));
                        index.push(term, place(segment, at));
                    }
                    Step::Truncate(end) => {
                        plain.retain(|entry, _| *entry < end);
                        index.truncate(end);
                    }
                    Step::Purge(first) => {
                        plain.retain(|entry, _| *entry >= first);
                        index.purge(first);
                    }
                    Step::Move { from, to } => {
                        let moved: Vec<Moved> = plain
                            .range(from..to.max(from))
                            .map(|(entry, (term, old))| {
                                Moved { index: *entry, term: *term, from: *old, to: place(1000 + at, *entry) }
                            })
                            .collect();
                        prop_assert!(index.relocate(&moved));
                        for moved in moved {
                            plain.insert(moved.index, (moved.term, moved.to));
                        }
                    }
                }
                for entry in 0..80 {
                    prop_assert_eq!(index.get(entry), plain.get(&entry).copied(), "{}", entry);
                }
                prop_assert_eq!(index.is_empty(), plain.is_empty());
                let bytes: u64 = plain.values().map(|(_, place)| u64::from(place.length)).sum();
                prop_assert_eq!(index.bytes(), bytes);
                prop_assert_eq!(index.bytes_through(u64::MAX - 1), bytes);
                if let Some((last, _)) = plain.last_key_value() {
                    prop_assert_eq!(index.end(), last + 1);
                    prop_assert_eq!(index.first(), *plain.first_key_value().unwrap().0);
                }
            }
        }
    }

    #[test]
    fn entries_that_changed_place_meanwhile_are_not_moved() {
        let mut index = Index::default();
        (0..4).for_each(|at| index.push(1, place(1, at)));
        let moved = |from| Moved { index: 3, term: 1, from, to: place(9, 0) };
        index.truncate(3);
        index.push(1, place(2, 0));
        assert!(!index.relocate(&[moved(place(1, 3))]));
        assert_eq!(index.get(3), Some((1, place(2, 0))));
        assert!(index.relocate(&[moved(place(2, 0))]));
        assert_eq!(index.get(3), Some((1, place(9, 0))));
    }

    /// `1:4`: entries 1 to 4 more, `s2`: in segment 2, `h2`: in held file 2; each takes 40 bytes.
    fn start() -> impl FnMut(&str, &mut String) {
        let mut index = Index::default();
        index.reset(1);
        let mut at = 0;
        let file = |word: &str| {
            let number: u64 = word[1..].parse().unwrap();
            if word.starts_with('h') { number | HELD } else { number }
        };
        let name = |file: u64| if file & HELD == 0 { format!("s{file}") } else { format!("h{}", file & !HELD) };
        move |line, out| {
            let line = Line::new(line);
            match line.command() {
                "push" => {
                    for _ in 0..line.need("count") {
                        at += 40;
                        index.push(1, Place { segment: file(line.word::<String>(0).as_str()), offset: at, length: 40 });
                    }
                }
                "purge" => index.purge(line.word::<u64>(0) + 1),
                "truncate" => index.truncate(line.word::<u64>(0) + 1),
                "copy" => {
                    let small = line.get::<String>("small").map(|small| file(&small));
                    let bytes = line.get("bytes").unwrap_or(u64::MAX);
                    let found = index.in_segments_before(line.need("before"), small, bytes);
                    let span = found.first().zip(found.last()).map(|(first, last)| format!("{}..{}", first.0, last.0));
                    let files: BTreeSet<_> = found.iter().map(|(_, _, place)| name(place.segment)).collect();
                    let files: Vec<_> = files.into_iter().collect();
                    writeln!(out, "copies {}", or_dash(span.map(|span| format!("{span} from {}", files.join(" ")))))
                        .unwrap();
                    if let Some(to) = line.get::<String>("to") {
                        let to = |offset| Place { segment: file(&to), offset, length: 40 };
                        let moved = found.iter().zip((0..).step_by(40));
                        let moved = moved.map(|((index, term, from), at)| Moved {
                            index: *index,
                            term: *term,
                            from: *from,
                            to: to(at),
                        });
                        assert!(index.relocate(&moved.collect::<Vec<_>>()));
                    }
                }
                other => panic!("unknown command {other}"),
            }
            let runs = index.runs.iter().map(|run| format!("{}..{} {}", run.first, run.end() - 1, name(run.segment)));
            writeln!(out, "{}", or_dash(Some(runs.collect::<Vec<_>>().join(" | ")).filter(|runs| !runs.is_empty())))
                .unwrap();
        }
    }

    #[test]
    fn scripts() {
        check("log/index", start);
    }

    #[test]
    fn an_entry_takes_few_bytes() {
        let mut index = Index::default();
        (0..100_000).for_each(|at| index.push(1, place(at / 10_000, at)));
        let places: usize = index.runs.iter().map(|run| run.places.capacity() * size_of::<(u32, u32)>()).sum();
        let runs = index.runs.capacity() * size_of::<EntryRun>();
        assert!((places + runs) / 100_000 <= 16, "{} bytes", places + runs);
    }
}
