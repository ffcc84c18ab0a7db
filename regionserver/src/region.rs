//! Operations on a single region: writes are checked, rows read, ranges scanned, and boundaries for splits found.

pub mod aggregate;
pub mod bloom_prefix;
pub mod boundary;
pub mod cell_digest;
pub mod comparison;
pub mod damage;
pub mod filter;
pub mod held_snapshots;
pub mod hot_rows;
pub mod hot_sampler;
pub mod latest;
pub mod load;
pub mod load_boundary;
pub mod merge;
pub(crate) mod orders;
pub mod read;
pub(crate) mod resume_token;
pub mod sample;
pub mod scan;
pub mod split;
pub mod write;
