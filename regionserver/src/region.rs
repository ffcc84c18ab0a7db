//! What is done to one region: writes checked and laid out, rows read, ranges scanned, a boundary for a split found.

pub mod aggregate;
pub mod bloom_prefix;
pub mod boundary;
pub mod damage;
pub mod filter;
pub mod held_snapshots;
pub mod latest;
pub mod read;
pub mod scan;
pub mod split;
pub mod write;
