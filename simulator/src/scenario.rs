//! Scenarios: what the clients of a run do, and what they check. [`crate::kind::Kind`] names them.

#[cfg(feature = "sim")]
pub mod batches;
#[cfg(feature = "sim")]
mod cluster_clock;
#[cfg(feature = "sim")]
pub mod counters;
#[cfg(feature = "sim")]
pub mod hbase;
#[cfg(feature = "sim")]
pub mod hbase_model;
#[cfg(feature = "sim")]
pub mod hostile;
#[cfg(feature = "sim")]
pub mod list;
#[cfg(feature = "sim")]
pub mod loads;
#[cfg(feature = "sim")]
mod maintenance;
#[cfg(feature = "sim")]
mod places;
#[cfg(feature = "sim")]
mod play;
#[cfg(feature = "sim")]
pub mod registers;
#[cfg(feature = "sim")]
pub mod rows;
#[cfg(feature = "sim")]
pub mod scans;
#[cfg(feature = "sim")]
pub mod schema;
#[cfg(feature = "sim")]
pub mod stale;
#[cfg(feature = "sim")]
pub mod ttl;
#[cfg(feature = "sim")]
pub mod wide;

#[cfg(feature = "sim")]
use crate::kind::Kind;
#[cfg(feature = "sim")]
pub use play::{CAPTIVE, HOSTS, Play, Scenario, below, create_table, open_table, passes, patiently, pause};

/// The scenario of a run.
#[cfg(feature = "sim")]
#[must_use]
pub fn scenario(kind: Kind) -> Box<dyn Scenario> {
    match kind {
        Kind::Rows => Box::new(rows::Rows::default()),
        Kind::Counters => Box::new(counters::Counters::default()),
        Kind::Scans => Box::new(scans::Scans::default()),
        Kind::List => Box::new(list::List::default()),
        Kind::Registers => Box::new(registers::Registers::default()),
        Kind::Batches => Box::new(batches::Batches::default()),
        Kind::Stale => Box::new(stale::Stale::default()),
        Kind::Ttl => Box::new(ttl::Ttl::default()),
        Kind::Wide => Box::new(wide::Wide::default()),
        Kind::Schema => Box::new(schema::Schema::default()),
        Kind::Loads => Box::new(loads::Loads::default()),
        Kind::Hbase => Box::new(hbase::Hbase::default()),
        Kind::HbaseModel => Box::new(hbase_model::HbaseModel::default()),
        Kind::Hostile => Box::new(hostile::Hostile::default()),
    }
}
