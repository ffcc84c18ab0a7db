//! The window of a region that two were merged into.
//!
//! Operation numbers are a client's own, over all regions, so the two records of a client never contradict each other: what
//! one side applied or settled, the other does not know. Where the sides know differently much, the merged record is as
//! cautious as the more forgetful one: an unknown number is only new if *neither* side can have forgotten it.

use super::{Client, NO_CLIENT, Nonces, SHARE_BYTES_MAX, WINDOW_BYTES_MAX, Window};

impl Window {
    /// What two neighbours know together.
    #[must_use]
    pub fn united(left: Self, right: Self) -> Self {
        let floors = (left.floor, right.floor);
        let nonces = Nonces::united(left.nonces, right.nonces);
        let mut united = Self { floor: floors.0.max(floors.1), nonces, ..Self::default() };
        let mut others = right.clients;
        for (id, mut client) in left.clients {
            match others.remove(&id) {
                Some(other) => client.unite(other),
                // It may have been evicted from the other side.
                None => client.since = client.since.max(floors.1),
            }
            united.insert(id, client);
        }
        for (id, mut client) in others {
            client.since = client.since.max(floors.0);
            united.insert(id, client);
        }
        united.shrink_to_limit();
        united
    }

    /// Brings the window to its limit: clients over their share give up the excess first, then the longest idle ones go.
    fn shrink_to_limit(&mut self) {
        let ids: Vec<_> = self.clients.keys().copied().collect();
        for id in ids {
            if self.bytes <= WINDOW_BYTES_MAX {
                return;
            }
            if self.clients.get(&id).is_some_and(|client| client.bytes() > SHARE_BYTES_MAX)
                && let Some(mut greedy) = self.clients.remove(&id)
            {
                self.bytes -= greedy.bytes();
                self.by_time.remove(&(greedy.last, id));
                greedy.shrink(SHARE_BYTES_MAX);
                self.insert(id, greedy);
            }
        }
        self.hold_limit(&NO_CLIENT);
    }
}

impl Client {
    /// Adds what the other side knows of the same client.
    fn unite(&mut self, other: Self) {
        self.last = self.last.max(other.last);
        self.since = self.since.max(other.since);
        self.gone_below = self.gone_below.max(other.gone_below);
        self.applied.insert_ranges(other.applied.iter().collect());
        for (operation, result) in other.results {
            self.keep(operation, result);
        }
        self.settled_above.insert_ranges(other.settled_above.iter().collect());
        let settled = self.settled.max(other.settled);
        self.settled = 0;
        self.settle(settled);
        // A number that one side knows to be settled is of no interest to the client, whichever side applied it.
        let settled: Vec<_> = self.settled_above.iter().collect();
        self.applied.remove_ranges(&settled);
        let gone: Vec<u64> =
            self.results.keys().copied().filter(|operation| self.settled_above.contains(*operation)).collect();
        for operation in gone {
            self.forget_result(operation);
        }
    }
}
