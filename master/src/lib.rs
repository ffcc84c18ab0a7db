//! The master: which tables, regions, groups and servers there are, and what is to become of them.
//!
//! What it remembers is the catalog, the state machine of group 0 (`catalog`, `machine`, `journal`). What it merely sees
//! (who is alive, who leads, how big) stays in memory (`liveness`, `inventory`, `observed`). Changes of several steps are
//! journaled intents, driven to their end (`procedures`, `orders`), and the planner says where things go. The gRPC edge
//! (`service`) decodes, calls and encodes; `server` wires and shuts down.
//!
//! No read or write of a client goes through here: a region server serves its regions without a master, groups elect
//! their leaders by themselves, and a lost answer of the master costs a look-up, never data.
//!
//! Never here: how bytes are stored, cells, region logs. Master and region server meet only through `terrane_proto`.

mod backoff;
mod catalog;
mod check;
mod config;
mod context;
mod deadline;
mod identity;
mod ids;
mod inventory;
mod journal;
mod liveness;
mod machine;
mod membership;
mod meta;
mod metrics;
mod observed;
mod orders;
mod page_keys;
mod planner;
mod procedures;
mod schemas;
mod server;
mod service;
mod tables;
mod views;

pub use catalog::checkpoint::CheckpointError;
pub use check::{check, is_data_directory};
pub use config::MasterConfig;
pub use identity::IdentityError;
pub use server::{Master, StartError};
