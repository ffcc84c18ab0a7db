//! The part of ZooKeeper's protocol by which HBase's clients find a cluster: a few nodes, read-only.
//!
//! Clients of HBase 2 ask ZooKeeper by default, and some know no other way. They connect, read `/hbase/meta-region-server`,
//! `/hbase/master` and `/hbase/hbaseid`, list `/hbase`, and may leave watches. [`Nodes`] renders these from what the process
//! knows; [`Session`] speaks the protocol, without I/O.
//!
//! Invariants:
//! - Nothing is stored: every write is refused as by a read-only ZooKeeper, and no session expires, so that a client may
//!   reconnect to any process.
//! - Watches and packets are bounded.

mod nodes;
mod packet;
mod port;
mod session;

pub use nodes::Nodes;
pub use port::serve;
pub use session::{Session, Step};

/// Its name in the endpoints that masters report.
pub const PROTOCOL: &str = "zookeeper";
