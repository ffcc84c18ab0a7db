//! How a starting process becomes a master: it resumes its directory, founds a cluster with others, is added to one, or takes
//! the place of a directory that was lost.

use terrane_proto::hello::Identity as Hello;
use terrane_types::ServerId;
use terrane_types::versions::Levels;

use crate::masters::founding::{FoundingState, Outcome, found};
use crate::masters::joining::replaced;
use crate::masters::numbers::place_of;
use crate::masters::peer_calls::PeerCalls;
use crate::masters::peers::Peers;
use crate::masters::replacing;
use crate::server::config::MasterConfig;
use crate::server::identity::{Founder, Identity};
use crate::server::start_error::StartError;

/// The identity of a process that others reach at this address; it is stored when this returns.
pub async fn enrol(config: &MasterConfig, address: &str, calls: &PeerCalls) -> Result<Identity, StartError> {
    let is_new = !Identity::exists(&config.data_dir).await?;
    let identity = if is_new && !config.join.is_empty() {
        Identity::check_directory(&config.data_dir).await?;
        if config.join.iter().all(|master| master == address) {
            let what = "--join names only this process; name masters of the running cluster";
            return Err(StartError::Settings(what.to_owned()));
        }
        let identity = calls.joining().joined().await;
        identity.store(&config.data_dir).await?;
        tracing::info!(master = identity.number, cluster = %identity.cluster, "this process is added to the masters");
        calls.announce(FoundingState::new(&identity));
        identity
    } else {
        founded(config, address, calls).await?
    };
    calls.joining().set(identity.cluster, identity.number);
    Ok(identity)
}

async fn founded(config: &MasterConfig, address: &str, calls: &PeerCalls) -> Result<Identity, StartError> {
    let mut identity = identify(config, address).await?;
    let state = calls.announce(FoundingState::new(&identity));
    complete_founding(config, &mut identity, &state).await?;
    Ok(identity)
}

/// The directory's identity. A list of masters other than the one that it is founding a cluster with is refused. Once it
/// belongs to a cluster, the catalog knows the masters.
async fn identify(config: &MasterConfig, address: &str) -> Result<Identity, StartError> {
    let several = config.place_among(address);
    if Identity::exists(&config.data_dir).await? {
        let identity = Identity::begin(&config.data_dir, Identity::single).await?;
        let recorded = identity.founder.as_ref().map(|founder| founder.peers.clone()).unwrap_or_default();
        let given = config.sorted_peers();
        if identity.cluster.is_nil() && !given.is_empty() && given != recorded {
            return Err(StartError::Peers { recorded, given });
        }
        return Ok(identity);
    }
    let several = several.map_err(StartError::Settings)?;
    let fresh = || several.map_or_else(Identity::single, |(peers, place)| Identity::one_of(peers, place));
    Ok(Identity::begin(&config.data_dir, fresh).await?)
}

/// Agrees with the other masters of a new cluster on its id, and records it before anything else is written. If the
/// cluster exists already, this directory replaces one that was lost, and gets a number of its own.
async fn complete_founding(
    config: &MasterConfig,
    identity: &mut Identity,
    state: &FoundingState,
) -> Result<(), StartError> {
    let Some(founder) = identity.founder.as_mut().filter(|_| identity.cluster.is_nil()) else { return Ok(()) };
    let place = place_of(identity.number);
    match found(founder, place).await? {
        Outcome::Founded(founded) => {
            let was_lost = founder.nonces[place] != Some(founded.nonces[place]);
            founder.nonces = founded.nonces.iter().copied().map(Some).collect();
            identity.cluster = founded.cluster;
            if was_lost {
                identity.number = number(identity, config.levels).await;
            }
            identity.store(&config.data_dir).await?;
            state.set(founded);
        }
        Outcome::Running(running) => {
            let address = founder.peers[place].clone();
            let peer = running.at(&address).expect("it was found among them");
            let hello = Hello { cluster: running.cluster, server: ServerId::default(), boot: identity.boot };
            let peers = Peers::new(hello, peer.number, config.levels, &running.masters, &running.masters);
            *identity = replaced(&running, peer, replacing::number(&peers).await);
            identity.store(&config.data_dir).await?;
        }
    }
    Ok(())
}

/// The number of a master that takes the place of its lost directory.
async fn number(identity: &Identity, levels: Levels) -> u64 {
    let hello = Hello { cluster: identity.cluster, server: ServerId::default(), boot: identity.boot };
    let own = identity.founder.as_ref().map(|Founder { peers, .. }| peers[place_of(identity.number)].clone());
    let masters = identity.first_masters(&own.unwrap_or_default());
    replacing::number(&Peers::new(hello, identity.number, levels, &masters, &masters)).await
}
