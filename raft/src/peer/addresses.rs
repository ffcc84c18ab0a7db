//! The addresses of servers, and their sources.
//!
//! The master sends addresses with every report; a peer sends its own in the hello of each link that it opens, so a server
//! that restarts elsewhere is found while no master is up. Newer information wins: a master that repeats itself reverts
//! nothing, and of two hellos of one server the one of the later boot counts. The book outlives the process: its owner stores
//! it whenever [`AddressBook::changed`] returns.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use terrane_types::ServerId;
use tokio::sync::Notify;

/// Servers whose addresses are kept. A cluster has a few hundred at most; a peer must not fill memory with made-up ones.
const SERVERS_MAX: usize = 4096;
/// Longest address; the master accepts no longer one.
const ADDRESS_BYTES_MAX: usize = 512;

/// The addresses of a cluster's servers, shared by everything that opens connections to them.
#[derive(Debug, Default)]
pub struct AddressBook {
    known: Mutex<Addresses>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Addresses {
    addresses: BTreeMap<ServerId, String>,
    /// The master's last report: only a different address is news.
    reported: BTreeMap<ServerId, String>,
    /// The boot number of the latest hello of a server.
    boots: BTreeMap<ServerId, u64>,
}

impl AddressBook {
    /// Records the addresses that the master reports.
    pub fn set(&self, addresses: impl IntoIterator<Item = (ServerId, String)>) {
        let mut known = self.known.lock();
        let mut news = false;
        for (server, address) in addresses {
            if known.reported.get(&server) != Some(&address) {
                known.reported.insert(server, address.clone());
                news |= known.addresses.insert(server, address.clone()) != Some(address);
            }
        }
        drop(known);
        if news {
            self.changed.notify_one();
        }
    }

    /// Takes over all addresses that the master knows. Servers that it does not know any more were removed, and are not called again.
    /// `own` stays: a master may not know it yet. None: a master that is starting knows no server.
    pub fn replace(&self, addresses: Vec<(ServerId, String)>, own: ServerId) {
        if addresses.is_empty() {
            return;
        }
        let mut known = self.known.lock();
        let is_removed =
            |server: &&ServerId| **server != own && addresses.iter().all(|(present, _)| present != *server);
        // Only those that a master has told: a server may have heard of a peer before its master did.
        let removed: Vec<ServerId> = known.reported.keys().filter(is_removed).copied().collect();
        for server in &removed {
            known.reported.remove(server);
            known.addresses.remove(server);
            known.boots.remove(server);
        }
        drop(known);
        if !removed.is_empty() {
            self.changed.notify_one();
        }
        self.set(addresses);
    }

    /// Records the address that a peer announces in its hello.
    pub fn heard(&self, server: ServerId, boot: u64, address: &str) {
        if address.is_empty() || address.len() > ADDRESS_BYTES_MAX || terrane_env::net::channel(address).is_err() {
            return;
        }
        let mut known = self.known.lock();
        let is_new = !known.addresses.contains_key(&server);
        if (is_new && known.addresses.len() >= SERVERS_MAX) || known.boots.get(&server).is_some_and(|last| *last > boot)
        {
            return;
        }
        known.boots.insert(server, boot);
        let news = known.addresses.insert(server, address.to_owned()).as_deref() != Some(address);
        drop(known);
        if news {
            tracing::info!(%server, address, "a peer has a new address");
            self.changed.notify_one();
        }
    }

    /// Forgets a server that has left for good, so that no link to it is opened again.
    pub fn forget(&self, server: ServerId) {
        let mut known = self.known.lock();
        known.addresses.remove(&server);
        known.reported.remove(&server);
    }

    /// The address of a server.
    pub fn get(&self, server: ServerId) -> Option<String> {
        self.known.lock().addresses.get(&server).cloned()
    }

    /// All addresses, by server.
    pub fn all(&self) -> BTreeMap<ServerId, String> {
        self.known.lock().addresses.clone()
    }

    /// Returns when an address has changed since the last call. Only one caller may wait: the one that stores the book.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: ServerId = ServerId(7);

    fn report(book: &AddressBook, address: &str) {
        book.set([(SERVER, address.to_owned())]);
    }

    #[tokio::test]
    async fn a_master_that_repeats_itself_does_not_revert_a_peers_announcement() {
        let book = AddressBook::default();
        report(&book, "a:1");
        book.heard(SERVER, 2, "a:2");
        report(&book, "a:1");
        assert_eq!(book.get(SERVER).as_deref(), Some("a:2"));
        report(&book, "a:3");
        assert_eq!(book.get(SERVER).as_deref(), Some("a:3"));
    }

    #[tokio::test]
    async fn a_server_that_the_master_does_not_know_any_more_is_forgotten() {
        let book = AddressBook::default();
        let (own, other, peer) = (ServerId(1), ServerId(2), ServerId(9));
        book.set([(own, "own:1".to_owned()), (other, "b:1".to_owned()), (SERVER, "a:1".to_owned())]);
        book.heard(peer, 1, "c:1");
        book.replace(vec![(other, "b:2".to_owned())], own);
        let known: Vec<ServerId> = book.all().into_keys().collect();
        assert_eq!((known, book.get(other).as_deref()), (vec![own, other, peer], Some("b:2")));
        book.replace(Vec::new(), own);
        assert_eq!(book.all().len(), 3);
    }

    #[tokio::test]
    async fn a_forgotten_server_can_be_told_again() {
        let book = AddressBook::default();
        report(&book, "a:1");
        book.forget(SERVER);
        assert_eq!(book.get(SERVER), None);
        report(&book, "a:1");
        assert_eq!(book.get(SERVER).as_deref(), Some("a:1"));
    }

    #[tokio::test]
    async fn the_hello_of_an_earlier_boot_changes_nothing() {
        let book = AddressBook::default();
        book.heard(SERVER, 5, "a:5");
        book.heard(SERVER, 4, "a:4");
        assert_eq!(book.get(SERVER).as_deref(), Some("a:5"));
        book.heard(SERVER, 6, "a:6");
        assert_eq!(book.get(SERVER).as_deref(), Some("a:6"));
    }

    #[tokio::test]
    async fn invalid_addresses_are_ignored_and_the_book_is_bounded() {
        let book = AddressBook::default();
        for address in ["", "no port", &format!("{}:1", "x".repeat(ADDRESS_BYTES_MAX))] {
            book.heard(SERVER, 1, address);
        }
        assert!(book.all().is_empty());
        (0..2 * SERVERS_MAX as u64).for_each(|server| book.heard(ServerId(server), 1, "a:1"));
        assert_eq!(book.all().len(), SERVERS_MAX);
    }
}
