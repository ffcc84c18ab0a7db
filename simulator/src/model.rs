//! A plain model of the data path, random writes and reads, and a player that makes them and compares every answer with the
//! model. Tests play against servers of their own process, scenarios against simulated ones.

pub mod draw;
pub mod hbase;
pub mod plain;
pub mod possible;
