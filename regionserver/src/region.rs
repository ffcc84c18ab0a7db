//! What is done to one region: writes checked and laid out, rows read, ranges scanned, a boundary for a split found.

pub mod aggregate;
pub mod cut;
pub mod damage;
pub mod filter;
pub mod latest;
pub mod prefix;
pub mod read;
pub mod scan;
pub mod split;
pub mod write;
