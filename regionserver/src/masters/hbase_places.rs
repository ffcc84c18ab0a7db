//! Where masters and other servers serve HBase's clients, as the masters' answers to reports say.
//!
//! A client of HBase asks any process where the masters are, and is redirected to the leader of a region's group by its address
//! for HBase's clients. Both are hints: a client that finds an outdated place asks again. In memory only: a server that has just
//! started learns them from the first answers.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use terrane_proto::v1;
use terrane_types::ServerId;

/// A place where HBase's clients are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HbasePlace {
    /// `host:port`.
    pub address: String,
    /// Distinguishes the lives of the process.
    pub start_code: u64,
}

/// A master that serves HBase's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HbaseMaster {
    /// Where.
    pub place: HbasePlace,
    /// Whether it leads the masters, as far as is known here.
    pub leads: bool,
}

/// What is known.
#[derive(Debug, Default)]
pub struct HbasePlaces(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By the masters' own addresses, each with the number of the leadership in which it has answered; 0: it did not lead.
    masters: BTreeMap<String, (HbasePlace, u64)>,
    servers: BTreeMap<ServerId, HbasePlace>,
}

impl HbasePlaces {
    /// A master has answered a report; `leadership` is its number if it leads.
    pub(crate) fn heard(&self, master: &str, leadership: u64, reply: &v1::ReportReply) {
        let mut known = self.0.lock();
        match &reply.hbase {
            Some(v1::HbaseMaster { address, start_code, .. }) => {
                let place = HbasePlace { address: address.clone(), start_code: *start_code };
                let leadership = if reply.is_follower { 0 } else { leadership };
                known.masters.insert(master.to_owned(), (place, leadership));
            }
            None => drop(known.masters.remove(master)),
        }
        if !reply.is_follower {
            let place =
                |server: &v1::HbaseServer| HbasePlace { address: server.address.clone(), start_code: server.boot };
            known.servers = reply.hbase_servers.iter().map(|server| (ServerId(server.server), place(server))).collect();
        }
    }

    /// Forgets the masters that are none any more.
    pub(crate) fn retain_masters(&self, is_master: impl Fn(&str) -> bool) {
        self.0.lock().masters.retain(|master, _| is_master(master));
    }

    /// The masters that serve HBase's clients. One that was deposed may not have said so: the newest leadership counts.
    #[must_use]
    pub fn masters(&self) -> Vec<HbaseMaster> {
        let known = self.0.lock();
        let newest = known.masters.values().map(|(_, leadership)| *leadership).max().unwrap_or(0);
        let master = |(place, leadership): &(HbasePlace, u64)| HbaseMaster {
            place: place.clone(),
            leads: newest > 0 && *leadership == newest,
        };
        known.masters.values().map(master).collect()
    }

    /// Where a server serves HBase's clients.
    #[must_use]
    pub fn server(&self, server: ServerId) -> Option<HbasePlace> {
        self.0.lock().servers.get(&server).cloned()
    }

    /// All live servers that serve HBase's clients.
    #[must_use]
    pub fn servers(&self) -> Vec<HbasePlace> {
        self.0.lock().servers.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(address: &str, is_follower: bool) -> v1::ReportReply {
        let hbase = Some(v1::HbaseMaster { address: address.to_owned(), start_code: 5, zookeeper: String::new() });
        let server = v1::HbaseServer { server: 2, address: "s:16020".to_owned(), boot: 3 };
        v1::ReportReply { is_follower, hbase, hbase_servers: vec![server], ..v1::ReportReply::default() }
    }

    fn leaders(places: &HbasePlaces) -> Vec<String> {
        places.masters().into_iter().filter(|master| master.leads).map(|master| master.place.address).collect()
    }

    #[test]
    fn the_master_of_the_newest_leadership_leads() {
        let places = HbasePlaces::default();
        places.heard("a", 0, &reply("a:16000", true));
        assert_eq!((places.masters().len(), leaders(&places).len()), (1, 0));
        assert!(places.servers().is_empty(), "only the leader names the servers");
        places.heard("a", 4, &reply("a:16000", false));
        assert_eq!(leaders(&places), ["a:16000"]);
        // The former leader says nothing any more.
        places.heard("b", 5, &reply("b:16000", false));
        assert_eq!(leaders(&places), ["b:16000"]);
        places.heard("b", 0, &v1::ReportReply { is_follower: true, ..v1::ReportReply::default() });
        places.retain_masters(|master| master == "b");
        assert!(places.masters().is_empty(), "it serves HBase's clients no more");
        assert_eq!(places.server(ServerId(2)).map(|place| place.start_code), Some(3));
    }
}
