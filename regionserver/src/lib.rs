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

mod background;
mod check;
pub mod edge;
mod evaluate;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod health;
mod issues;
mod loads;
mod masters;
mod metrics;
mod moves;
mod operation;
mod ranked_lock;
mod record;
mod region;
mod replicas;
mod server;
mod service;
mod staging;
mod versions;
mod views;
mod window;

pub use background::shape_limits::ShapeLimits;
pub use check::{check, is_data_directory};
pub use group::machine::digest::GroupDigest;
pub use masters::RegisterError;
pub use masters::endpoints::Endpoints;
pub use region::orders::{LedRegion, RegionOrders};
pub use server::config::ServerConfig;
pub use server::identity::IdentityError;
pub use server::start_error::StartError;
pub use server::{FlushProgress, RegionServer};
pub use terrane_engine::BackendKind;
pub use versions::formats;
