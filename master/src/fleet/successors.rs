//! Servers whose address another one has, and of which nothing more will come, are removed from the catalog.
//!
//! A server that lost its disk comes back as a new one at the same address. So does one that died after it got an id and before
//! it stored it. The former number would be listed as silent for good. But a newcomer may also name an address by mistake, and a
//! server may be cut off or stand still for a while, so an address alone proves nothing. The former one is removed when
//!
//! - it has no replicas: where it had some, they are replaced first;
//! - it has been away for the grace time. One that reports is not gone, even if it cannot be reached;
//! - another server, which has joined later, is live at its address, so it answers there itself.

use std::time::Duration;

use terrane_types::ServerId;
use terrane_types::states::ServerState;

use crate::catalog::Catalog;
use crate::servers::liveness::{Liveness, Moment};

/// The servers to remove now.
pub fn find(catalog: &Catalog, liveness: &Liveness, now: Moment, replace_after: Duration) -> Vec<ServerId> {
    let is_gone = |server: ServerId| {
        matches!(liveness.state(server), ServerState::Silent | ServerState::Stopped)
            && liveness.away_for(server, now) >= replace_after
    };
    let has_successor = |server: ServerId, address: &str| {
        catalog
            .servers()
            .iter()
            .any(|(other, known)| other > server && known.address == address && liveness.is_live(other))
    };
    let servers = catalog.servers().iter();
    let gone = servers.filter(|(server, known)| {
        catalog.groups().replicas_on(*server) == 0 && is_gone(*server) && has_successor(*server, &known.address)
    });
    gone.map(|(server, _)| server).collect()
}
