//! A region server: hosts the regions of the log groups it is a member of, and serves the data of those it leads.
//!
//! Life of a put: `service` decodes it, `edge` finds the region and checks the epoch, `region::write` checks the rows, the
//! raft crate stamps, orders and replicates the proposal, `group::machine` checks it again against the state at its entry and
//! applies it, and the reply leaves with the next batch of the `session`. A get takes a read point of its group and then a
//! snapshot. `background` flushes, compacts and splits meanwhile.
//!
//! Invariants:
//! - Region id and epoch decide what a request may do, before it is proposed and again when it is applied.
//! - Applying is deterministic: it depends on entries and on the replica's own durable points, and on nothing else.
//! - Every queue is bounded by a named constant; beyond it the answer is `Busy` with a delay.
//!
//! Not in this crate: where regions live (the master decides), what a row key means, how cells are stored (the engine).

mod addresses;
mod admission;
mod apply_gate;
mod background;
mod bringing;
mod check;
mod comparing;
mod config;
mod consistency;
mod description;
mod disk_free;
pub mod edge;
mod error_mapping;
mod evaluate;
mod fetching;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod hbase_places;
mod health;
mod hosted;
mod hot;
mod identity;
mod issues;
mod joining;
mod leadership;
mod loads;
mod maintenance;
mod masters;
mod membership;
mod mending;
mod metrics;
mod moves;
mod operation;
mod orphans;
mod page_token;
mod proposal;
mod ranked_lock;
mod record;
mod region;
mod region_ids;
mod region_orders;
mod replicas;
mod reply;
mod report;
mod resume_token;
mod server;
mod service;
mod shape_limits;
mod signals;
mod slow;
mod start_error;
mod versions;
mod views;
mod window;

pub use check::{check, is_data_directory};
pub use config::ServerConfig;
pub use group::machine::digest::GroupDigest;
pub use hbase_places::{HbaseMaster, HbasePlace, HbasePlaces};
pub use identity::IdentityError;
pub use masters::RegisterError;
pub use region_orders::{LedRegion, RegionOrders};
pub use server::{FlushProgress, RegionServer};
pub use shape_limits::ShapeLimits;
pub use start_error::StartError;
pub use terrane_engine::BackendKind;
pub use versions::formats;
