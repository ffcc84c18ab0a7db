//! The search for an order of a key's operations that explains their results.
//!
//! A configuration is the set of operations placed so far and the state they lead to. From it, each operation may come next
//! that was called before the first return of an operation that is not placed yet. The search goes deep first and never
//! enters a configuration twice.
//!
//! What keeps it small:
//! - An operation that only looks is placed at once if it fits: every order that places it later remains an order if it is
//!   placed now. A write of the present value is not: placed later, it may restore that value.
//! - Of several open updates that do the same, only the first called is tried: the others can do nothing that it cannot.
//! - Open updates are tried last.

use std::collections::HashSet;

use super::Record;
use super::register::{Effect, Outcome, State, effect};

/// The search of one key.
pub(super) struct Search<'a> {
    /// Operations with a known result, in the order of their calls.
    known: Vec<&'a Record>,
    /// Updates without one, in the order of their calls.
    open: Vec<&'a Record>,
    steps: u64,
    entered: HashSet<(Placed, State)>,
}

/// Which operations are placed: known ones, then open ones.
type Placed = Vec<u64>;

/// A configuration that was entered, and what to try next from it.
struct Node {
    placed: Placed,
    /// Known operations with lower numbers are all placed.
    first: usize,
    /// Number of known operations placed.
    count: usize,
    next: Vec<(usize, State)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(records: &[&'a Record], steps: u64) -> Search<'a> {
        let is_open = |record: &&Record| record.outcome == Outcome::Unknown;
        let (open, known) = records.iter().copied().partition(is_open);
        Search { known, open, steps, entered: HashSet::new() }
    }

    /// Whether there is such an order; `None`: the search gave up.
    pub(super) fn run(&mut self) -> Option<bool> {
        let words = (self.known.len() + self.open.len()).div_ceil(64);
        let mut stack = vec![self.node(vec![0; words], None, 0, 0)];
        while let Some(node) = stack.last_mut() {
            if node.count == self.known.len() {
                return Some(true);
            }
            let Some((place, state)) = node.next.pop() else {
                stack.pop();
                continue;
            };
            let mut placed = node.placed.clone();
            insert(&mut placed, place);
            let count = node.count + usize::from(place < self.known.len());
            let first = node.first;
            if self.steps == 0 {
                return None;
            }
            self.steps -= 1;
            if self.entered.insert((placed.clone(), state.clone())) {
                stack.push(self.node(placed, state, first, count));
            }
        }
        Some(false)
    }

    /// Enters a configuration: places what fits and only looks, and lists what may come next.
    fn node(&self, mut placed: Placed, state: State, mut first: usize, mut count: usize) -> Node {
        loop {
            while first < self.known.len() && contains(&placed, first) {
                first += 1;
            }
            let last_call = self.last_call(&placed, first);
            let mut next = Vec::new();
            let mut settled = false;
            for place in self.candidates(&placed, first, last_call) {
                match effect(&state, &self.known[place].op, &self.known[place].outcome) {
                    Effect::Impossible => {}
                    Effect::Nothing if self.known[place].only_looks() => {
                        insert(&mut placed, place);
                        (count, settled) = (count + 1, true);
                    }
                    Effect::Nothing => next.push((place, state.clone())),
                    Effect::Next(state) => next.push((place, state)),
                }
            }
            if settled {
                continue;
            }
            // The last one is tried first.
            next.reverse();
            let mut tried = self.open_updates(&placed, &state, last_call);
            tried.reverse();
            tried.append(&mut next);
            return Node { placed, first, count, next: tried };
        }
    }

    /// The first return of a known operation that is not placed: what is called later cannot come next.
    fn last_call(&self, placed: &Placed, first: usize) -> u64 {
        let mut earliest = u64::MAX;
        for (place, record) in self.known.iter().enumerate().skip(first) {
            if record.called > earliest {
                break;
            }
            if !contains(placed, place) {
                earliest = earliest.min(record.returned);
            }
        }
        earliest
    }

    fn candidates(&self, placed: &Placed, first: usize, last_call: u64) -> Vec<usize> {
        let callable = self.known.iter().enumerate().skip(first).take_while(|(_, record)| record.called < last_call);
        callable.map(|(place, _)| place).filter(|place| !contains(placed, *place)).collect()
    }

    fn open_updates(&self, placed: &Placed, state: &State, last_call: u64) -> Vec<(usize, State)> {
        let mut updates: Vec<(usize, State)> = Vec::new();
        let callable = self.open.iter().enumerate().take_while(|(_, record)| record.called < last_call);
        for (index, record) in callable {
            let place = self.known.len() + index;
            if contains(placed, place) {
                continue;
            }
            if let Effect::Next(reached) = effect(state, &record.op, &record.outcome) {
                let same = |(other, _): &(usize, State)| self.open[other - self.known.len()].op == record.op;
                if !updates.iter().any(same) {
                    updates.push((place, reached));
                }
            }
        }
        updates
    }
}

fn contains(placed: &Placed, place: usize) -> bool {
    placed[place / 64] & (1 << (place % 64)) != 0
}

fn insert(placed: &mut Placed, place: usize) {
    placed[place / 64] |= 1 << (place % 64);
}
