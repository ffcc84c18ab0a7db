//! How a server joins its cluster.
//!
//! A server with a fresh directory needs a master, because only a master hands out an id. A server that has its identity
//! needs none to serve: it calls every master once, and if none answers it starts alone, with the addresses it stored, and
//! keeps registering in the background. Until that succeeds it has no page keys and no region ids; requests that need them
//! are answered `Unavailable`.
//!
//! A master that refuses permanently (it serves another cluster, or this server was replaced) ends the process, at the start
//! or later.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use terrane_proto::hello::Identity as HelloIdentity;
use terrane_types::{ClusterId, Error};
use tokio::sync::watch;

use crate::masters::{Masters, RegisterError, Registered, Registration};
use crate::server::config::ServerConfig;
use crate::server::identity::{Identity, IdentityError};
use crate::server::start_error::StartError;
use crate::versions::{ClusterLevel, said};

/// How long a server with an identity waits for masters before it starts alone. A master that is down refuses the connection
/// at once; this is for masters that are cut off.
const ALONE_AFTER: Duration = Duration::from_secs(1);

/// A server that knows its identity.
pub struct Joined {
    pub identity: HelloIdentity,
    /// The feature level of the cluster.
    pub level: Arc<ClusterLevel>,
    /// The answer of a master; `None`: no master answered.
    pub registered: Option<Registered>,
    /// The registration, to be repeated in the background if no master answered.
    pub joining: Joining,
    /// Why a master refused this server permanently, if one did.
    pub refused: watch::Receiver<Option<String>>,
}

/// A registration that continues in the background.
pub struct Joining {
    pub registration: Registration,
    data_dir: PathBuf,
    level: Arc<ClusterLevel>,
}

impl Joining {
    /// Handles the answer of a master. `None`: it refuses this server, and the process must end.
    pub fn take(&self, answer: Result<Registered, RegisterError>) -> Option<Registered> {
        let checked = match answer {
            Ok(registered) => check_cluster(registered, &self.data_dir, self.registration.cluster),
            Err(error) => Err(foreign(error, &self.data_dir, self.registration.cluster)),
        };
        checked.map_err(|error| self.level.refuse(error.to_string())).ok()
    }
}

/// Stores the identity durably before anything is opened under it, and registers if a master answers.
pub async fn join(
    config: &ServerConfig,
    masters: &mut Masters,
    known: Option<Identity>,
    advertised: &str,
) -> Result<Joined, StartError> {
    let boot = known.as_ref().map_or(1, |known| known.boot + 1);
    if let Some(known) = &known {
        // Raised before it is sent to anyone: a start that fails later never shares its number with the next one.
        Identity { boot, ..known.clone() }.store(&config.data_dir).await?;
    }
    let mut registration = Registration {
        cluster: known.as_ref().map(|known| known.cluster),
        server: known.as_ref().map(|known| known.server),
        boot,
        address: advertised.to_owned(),
        console: config.console.clone().unwrap_or_default(),
        engine: config.engine.to_string(),
        zone: config.zone.clone().unwrap_or_default(),
        versions: said(config.levels),
    };
    let (identity, registered) = match known {
        Some(known) => (Identity { boot, ..known }, ask_once(config, masters, &registration).await?),
        None => {
            let registered = masters.register(&registration, config.register_timeout).await?;
            let engine = config.engine.to_string();
            let Registered { cluster, server, level, .. } = registered;
            let fresh = Identity { cluster, server, engine, boot, level };
            fresh.store(&config.data_dir).await?;
            (registration.cluster, registration.server) = (Some(fresh.cluster), Some(fresh.server));
            (fresh, Some(registered))
        }
    };
    let here = HelloIdentity { cluster: identity.cluster, server: identity.server, boot };
    let (sender, refused) = watch::channel(None);
    let level = Arc::new(ClusterLevel::new(config.levels, config.data_dir.clone(), identity, sender));
    if let Some(registered) = &registered {
        level.learn(registered.level).await;
    }
    let joining = Joining { registration, data_dir: config.data_dir.clone(), level: level.clone() };
    Ok(Joined { identity: here, level, registered, joining, refused })
}

/// Calls every master once; `None`: none answered.
async fn ask_once(
    config: &ServerConfig,
    masters: &mut Masters,
    registration: &Registration,
) -> Result<Option<Registered>, StartError> {
    let asked = tokio::time::timeout(ALONE_AFTER, masters.register_once(registration)).await;
    let unreachable = match asked {
        Ok(Ok(registered)) => {
            return check_cluster(registered, &config.data_dir, registration.cluster).map(Some);
        }
        Ok(Err(RegisterError::Unreachable { last, .. })) => last,
        Ok(Err(error)) => return Err(foreign(error, &config.data_dir, registration.cluster)),
        Err(_) => Error::DeadlineExceeded.to_string(),
    };
    tracing::warn!("no master answered ({unreachable}); starting without one, and retrying in the background");
    Ok(None)
}

fn check_cluster(registered: Registered, data_dir: &Path, own: Option<ClusterId>) -> Result<Registered, StartError> {
    match own {
        Some(found) if found != registered.cluster => {
            let (directory, wanted) = (data_dir.to_owned(), registered.cluster);
            Err(IdentityError::Cluster { directory, found, wanted }.into())
        }
        _ => Ok(registered),
    }
}

/// A refusal by a master of another cluster is reported in terms of the directory, which is what can be changed here.
fn foreign(error: RegisterError, data_dir: &Path, own: Option<ClusterId>) -> StartError {
    match (error, own) {
        (RegisterError::Refused { refusal: Error::WrongCluster { expected, .. }, .. }, Some(found)) => {
            IdentityError::Cluster { directory: data_dir.to_owned(), found, wanted: expected }.into()
        }
        (error, _) => error.into(),
    }
}
