//! Operations on a single region: writes are checked, rows read, ranges scanned, and boundaries for splits found.

pub mod aggregate;
pub mod bloom_prefix;
pub mod boundary;
pub mod damage;
pub mod filter;
pub mod held_snapshots;
pub mod latest;
pub mod load;
pub mod merge;
pub mod read;
pub mod scan;
pub mod split;
pub mod write;
