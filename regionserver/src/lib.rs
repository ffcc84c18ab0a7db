//! A region server: hosts the regions of the log groups it is a member of, and serves the data of those it leads.
//!
//! Life of a put: `service` decodes it, `edge` finds the region and checks the epoch, `region::write` checks the rows
//! and lays out the log operation, the raft room stamps, orders and replicates it, `group::machine` checks again against
//! the state at that entry and applies, and the reply goes out with the next batch of the `session`. A get takes a read
//! point of its group and then a snapshot. `housekeeping` flushes,
//! compacts and splits behind all of that.
//!
//! Invariants:
//! - What a request may do is decided by region id and epoch, before it is proposed and again when it is applied.
//! - Applying is deterministic: it looks at entries and at the replica's own durable points, at nothing else.
//! - Every queue is bounded, and its bound has a name; beyond it the answer is `Busy` with a delay.
//!
//! Never here: where regions should live (the master's), what a row key means, how cells lie on disk (the engine's).
//! Left out for now: moves between groups, merges.

mod admission;
mod apply_gate;
mod check;
mod cluster;
mod config;
mod consistency;
mod disk;
mod edge;
mod evaluate;
mod faults;
mod flush;
mod group;
mod housekeeping;
mod identity;
mod ids;
mod joining;
mod maintenance;
mod metrics;
mod operation;
mod page_seal;
mod record;
mod region;
mod registry;
mod reply;
mod report;
mod server;
mod service;
mod session;
mod token;
mod troubles;
mod window;

pub use check::{check, is_data_directory};
pub use config::ServerConfig;
pub use identity::IdentityError;
pub use report::RegisterError;
pub use server::{FlushProgress, RegionServer, StartError};
pub use terrane_engine::BackendKind;
