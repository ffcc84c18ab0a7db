//! The operation numbers packed into entries that have not landed.
//!
//! A number in here may still have no effect, so a retry of it has to wait. Numbers are kept by entry, because entries land
//! one after another; there are few entries in flight, and the usual number is above all others of its client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::window::{ClientId, NONCE_CLIENT, Ranges};

/// Operation numbers in flight.
#[derive(Default)]
pub struct InFlight {
    /// Oldest first.
    entries: VecDeque<Entry>,
}

/// The numbers in one entry.
struct Entry {
    ordinal: u64,
    clients: BTreeMap<ClientId, Ranges>,
    /// Nonces, which make no ranges.
    nonces: BTreeSet<u64>,
}

impl InFlight {
    /// Entries up to this ordinal have landed: their numbers are in the windows.
    pub fn land(&mut self, landed: u64) {
        while self.entries.front().is_some_and(|entry| entry.ordinal <= landed) {
            self.entries.pop_front();
        }
    }

    pub fn contains(&self, client: &ClientId, number: u64) -> bool {
        if *client == NONCE_CLIENT {
            return self.entries.iter().any(|entry| entry.nonces.contains(&number));
        }
        self.of(client).any(|numbers| numbers.contains(number))
    }

    /// The highest number of a client; 0 if there is none.
    pub fn highest(&self, client: &ClientId) -> u64 {
        self.of(client).filter_map(Ranges::last).max().unwrap_or(0)
    }

    fn of(&self, client: &ClientId) -> impl Iterator<Item = &Ranges> {
        self.entries.iter().filter_map(|entry| entry.clients.get(client))
    }

    /// Records a number that was packed into the entry with this ordinal; 0 is none.
    pub fn note(&mut self, ordinal: u64, client: ClientId, number: u64) {
        if number == 0 {
            return;
        }
        if self.entries.back().is_none_or(|last| last.ordinal != ordinal) {
            self.entries.push_back(Entry { ordinal, clients: BTreeMap::new(), nonces: BTreeSet::new() });
        }
        if let Some(entry) = self.entries.back_mut() {
            if client == NONCE_CLIENT {
                entry.nonces.insert(number);
            } else {
                entry.clients.entry(client).or_default().insert(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_known_until_its_entry_lands() {
        let mut in_flight = InFlight::default();
        in_flight.note(1, NONCE_CLIENT, u64::MAX);
        in_flight.note(1, NONCE_CLIENT, 7);
        assert!(in_flight.contains(&NONCE_CLIENT, 7) && !in_flight.contains(&NONCE_CLIENT, 8));
        in_flight.land(1);
        assert!(!in_flight.contains(&NONCE_CLIENT, 7));
    }

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
