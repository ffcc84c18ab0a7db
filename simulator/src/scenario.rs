//! Scenarios: what the clients of a run do, and what they check. [`crate::kind::Kind`] names them.

pub mod batches;
mod cluster_clock;
pub mod counters;
pub mod hbase;
pub mod hbase_model;
pub mod hostile;
pub mod list;
pub mod loads;
mod maintenance;
mod places;
mod play;
pub mod registers;
pub mod rows;
pub mod scans;
pub mod schema;
pub mod stale;
pub mod ttl;
pub mod wide;

use crate::kind::Kind;
pub use play::{CAPTIVE, HOSTS, Play, Scenario, below, create_table, open_table, passes, patiently, pause};

/// The scenario of a run.
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
