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

mod addresses;
mod admission;
mod apply_gate;
mod background;
mod check;
mod config;
mod consistency;
mod edge;
mod error_mapping;
mod evaluate;
mod group;
mod health;
mod hosted;
mod identity;
mod joining;
mod maintenance;
mod masters;
mod metrics;
mod operation;
mod page_token;
mod proposal;
mod record;
mod region;
mod region_ids;
mod replicas;
mod reply;
mod report;
mod resume_token;
mod server;
mod service;
mod session;
mod signals;
mod start_error;
mod window;

pub use check::{check, is_data_directory};
pub use config::ServerConfig;
pub use identity::IdentityError;
pub use masters::RegisterError;
pub use server::{FlushProgress, RegionServer};
pub use start_error::StartError;
pub use terrane_engine::BackendKind;
