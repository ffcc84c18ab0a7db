//! The operation numbers packed into entries that have not landed.
//!
//! A number in here may still have no effect, so a retry of it has to wait. Numbers are kept by entry, because entries land
//! one after another; there are few entries in flight, and the usual number is above all others of its client.

use std::collections::{BTreeMap, VecDeque};

use crate::window::ClientId;
use crate::window::Ranges;

/// Operation numbers in flight.
#[derive(Default)]
pub struct InFlight {
    /// Oldest first.
    entries: VecDeque<(u64, BTreeMap<ClientId, Ranges>)>,
}

impl InFlight {
    /// Entries up to this ordinal have landed: their numbers are in the windows.
    pub fn land(&mut self, landed: u64) {
        while self.entries.front().is_some_and(|(ordinal, _)| *ordinal <= landed) {
            self.entries.pop_front();
        }
    }

    pub fn contains(&self, client: &ClientId, number: u64) -> bool {
        self.of(client).any(|numbers| numbers.contains(number))
    }

    /// The highest number of a client; 0 if there is none.
    pub fn highest(&self, client: &ClientId) -> u64 {
        self.of(client).filter_map(Ranges::last).max().unwrap_or(0)
    }

    fn of(&self, client: &ClientId) -> impl Iterator<Item = &Ranges> {
        self.entries.iter().filter_map(|(_, clients)| clients.get(client))
    }

    /// Records a number that was packed into the entry with this ordinal; 0 is none.
    pub fn note(&mut self, ordinal: u64, client: ClientId, number: u64) {
        if number == 0 {
            return;
        }
        if self.entries.back().is_none_or(|(last, _)| *last != ordinal) {
            self.entries.push_back((ordinal, BTreeMap::new()));
        }
        if let Some((_, clients)) = self.entries.back_mut() {
            clients.entry(client).or_default().insert(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_known_until_their_entry_lands() {
        let (mut in_flight, client) = (InFlight::default(), [1; 16]);
        in_flight.note(1, client, 5);
        in_flight.note(2, client, 3);
        assert!(in_flight.contains(&client, 5) && in_flight.contains(&client, 3));
        assert_eq!((in_flight.highest(&client), in_flight.highest(&[2; 16])), (5, 0));
        in_flight.land(1);
        assert!(!in_flight.contains(&client, 5) && in_flight.contains(&client, 3));
        in_flight.land(2);
        assert_eq!(in_flight.highest(&client), 0);
    }
}
