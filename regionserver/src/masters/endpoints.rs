//! Where masters and other servers serve clients of other protocols, as the masters' answers to reports say.
//!
//! Such a client may ask any process where the masters are, or be redirected to the leader of a region's group by the leader's
//! address in that protocol. Both are hints: a client that finds an outdated endpoint asks again. In memory only: a server that
//! has just started learns them from the first answers.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use terrane_proto::v1;
use terrane_types::{Endpoint, MasterEndpoint, ServerId};

/// The endpoints that are known.
#[derive(Debug, Default)]
pub struct Endpoints(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By the masters' own addresses, each with the number of the leadership in which it has answered; 0: it did not lead.
    masters: BTreeMap<String, (Vec<Endpoint>, u64)>,
    servers: Vec<(ServerId, Endpoint)>,
}

impl Endpoints {
    /// A master has answered a report; `leadership` is its number if it leads.
    pub(crate) fn learn(&self, master: &str, leadership: u64, reply: &v1::ReportReply) {
        let mut known = self.0.lock();
        let endpoints = reply.endpoints.iter().cloned().map(Into::into).collect();
        let leadership = if reply.is_follower { 0 } else { leadership };
        known.masters.insert(master.to_owned(), (endpoints, leadership));
        if !reply.is_follower {
            let servers = reply.server_endpoints.iter();
            let of = |seen: &v1::ServerEndpoint| Some((ServerId(seen.server), seen.endpoint.clone()?.into()));
            known.servers = servers.filter_map(of).collect();
        }
    }

    /// Forgets the masters that are none any more.
    pub(crate) fn retain_masters(&self, is_master: impl Fn(&str) -> bool) {
        self.0.lock().masters.retain(|master, _| is_master(master));
    }

    /// The masters that serve a protocol. One that was deposed may not have said so: the newest leadership counts.
    #[must_use]
    pub fn masters(&self, protocol: &str) -> Vec<MasterEndpoint> {
        let known = self.0.lock();
        let serving = known.masters.values().filter_map(|(endpoints, leadership)| {
            Some((endpoints.iter().find(|endpoint| endpoint.protocol == protocol)?, *leadership))
        });
        let newest = serving.clone().map(|(_, leadership)| leadership).max().unwrap_or(0);
        let master = |(endpoint, leadership): (&Endpoint, u64)| MasterEndpoint {
            endpoint: endpoint.clone(),
            leads: newest > 0 && leadership == newest,
        };
        serving.map(master).collect()
    }

    /// Where a server serves a protocol.
    #[must_use]
    pub fn server(&self, protocol: &str, server: ServerId) -> Option<Endpoint> {
        let known = self.0.lock();
        let mut endpoints = known.servers.iter().filter(|(known, _)| *known == server).map(|(_, endpoint)| endpoint);
        endpoints.find(|endpoint| endpoint.protocol == protocol).cloned()
    }

    /// Where the live servers serve a protocol.
    #[must_use]
    pub fn servers(&self, protocol: &str) -> Vec<Endpoint> {
        let known = self.0.lock();
        let endpoints = known.servers.iter().map(|(_, endpoint)| endpoint);
        endpoints.filter(|endpoint| endpoint.protocol == protocol).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(protocol: &str, address: &str, start_code: u64) -> v1::Endpoint {
        v1::Endpoint { protocol: protocol.to_owned(), address: address.to_owned(), start_code }
    }

    fn reply(address: &str, is_follower: bool) -> v1::ReportReply {
        let endpoints = vec![endpoint("other", "o:1", 5), endpoint("p", address, 5)];
        let server = v1::ServerEndpoint { server: 2, endpoint: Some(endpoint("p", "s:16020", 3)) };
        v1::ReportReply { is_follower, endpoints, server_endpoints: vec![server], ..v1::ReportReply::default() }
    }

    fn leaders(endpoints: &Endpoints) -> Vec<String> {
        let masters = endpoints.masters("p").into_iter();
        masters.filter(|master| master.leads).map(|master| master.endpoint.address).collect()
    }

    #[test]
    fn the_master_of_the_newest_leadership_leads() {
        let endpoints = Endpoints::default();
        endpoints.learn("a", 0, &reply("a:16000", true));
        assert_eq!((endpoints.masters("p").len(), leaders(&endpoints).len()), (1, 0));
        assert!(endpoints.servers("p").is_empty(), "only the leader names the servers");
        endpoints.learn("a", 4, &reply("a:16000", false));
        assert_eq!(leaders(&endpoints), ["a:16000"]);
        // The former leader says nothing any more.
        endpoints.learn("b", 5, &reply("b:16000", false));
        assert_eq!(leaders(&endpoints), ["b:16000"]);
        endpoints.learn("b", 0, &v1::ReportReply { is_follower: true, ..v1::ReportReply::default() });
        endpoints.retain_masters(|master| master == "b");
        assert!(endpoints.masters("p").is_empty(), "it serves the protocol no more");
        assert_eq!(endpoints.server("p", ServerId(2)).map(|endpoint| endpoint.start_code), Some(3));
        assert!(endpoints.server("other", ServerId(2)).is_none() && endpoints.servers("other").is_empty());
    }
}
