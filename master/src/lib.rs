//! The master: keeps track of tables, regions, groups and servers, and changes them.
//!
//! Durable state is the catalog, the state machine of group 0 (`catalog`, `machine`, `journal`). Observed state (which
//! servers are alive, who leads a group, how large regions are) stays in memory (`liveness`, `inventory`, `observed`).
//! Changes of several steps are journaled intents, driven to completion (`procedures`, `orders`); `planner` decides
//! where new groups and regions go, `fleet` where replicas and leaderships go later. `context` holds what these
//! components share. `load_history` and `events` keep what happened lately, in memory (`chronicle`). The gRPC edge (`service`) decodes, calls and encodes; `server` starts and stops everything.
//!
//! With several masters, one leads group 0: `leadership` says whether it is this one, and `leading` is what it then does. The others
//! answer look-ups and redirect everything else. `founding` is how they agree on a cluster id, `replacing` how one whose
//! directory was lost comes back, `joining` how another one is added online (`procedures::masters_change`), `peers` and `peer_calls` are what they ask each other.
//!
//! Client reads and writes do not pass through the master: a region server serves its regions without it, groups elect
//! their leaders themselves, and a lost reply of the master costs a lookup, never data.
//!
//! This crate knows nothing about cells, storage or region logs. Master and region server share only `terrane_proto`.

mod backoff;
mod catalog;
mod check;
mod context;
pub mod edge;
mod fleet;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod history;
mod ids;
mod issues;
mod journal;
mod leadership;
mod machine;
mod masters;
mod masters_view;
mod meta;
mod metrics;
mod monitor;
mod orders;
mod page_keys;
mod planner;
mod procedures;
mod server;
mod servers;
mod service;
mod tables;
mod versions;
mod views;

pub use catalog::checkpoint::CheckpointError;
pub use check::{check, is_data_directory};
pub use masters::founding::FoundingError;
pub use masters::rebuild::{Rebuild, Rebuilt, rebuild};
pub use server::Master;
pub use server::config::MasterConfig;
pub use server::identity::IdentityError;
pub use server::start_error::StartError;
pub use versions::formats;
