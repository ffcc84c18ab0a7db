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

mod audit;
mod backoff;
mod callbacks;
mod catalog;
mod check;
mod chronicle;
mod config;
mod context;
mod deadline;
mod diagnostics;
pub mod edge;
mod enrolment;
mod events;
mod fleet;
mod founding;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod identity;
mod ids;
mod inventory;
mod issues;
mod joining;
mod journal;
mod late;
mod leadership;
mod leading;
mod liveness;
mod load_history;
mod machine;
mod masters_view;
mod membership;
mod meta;
mod metrics;
mod observed;
mod orders;
mod page_keys;
mod peer_calls;
mod peers;
mod planner;
mod procedure_history;
mod procedures;
mod rebuild;
mod regions;
mod replacing;
mod schemas;
mod seats;
mod server;
mod service;
mod start_error;
mod subject;
mod tables;
mod versions;
mod views;
mod vigil;

pub use catalog::checkpoint::CheckpointError;
pub use check::{check, is_data_directory};
pub use config::{HbaseAddresses, MasterConfig};
pub use founding::FoundingError;
pub use identity::IdentityError;
pub use rebuild::{Rebuild, Rebuilt, rebuild};
pub use server::Master;
pub use start_error::StartError;
pub use versions::formats;
