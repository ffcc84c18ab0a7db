//! HBase's RPC, as values: what HBase's own clients send and expect, translated to Terrane's types and back.
//!
//! A program written for HBase finds regions, reads and writes through a protocol of its own. This crate speaks it, so that
//! the program moves by changing an address. It is one more edge over the same regions and adds nothing to the data model;
//! what the model lacks is refused with the exception class that HBase's clients understand.
//!
//! The wire layer is pure code without I/O. [`connection`] turns received bytes into calls ([`frame`]) and answers;
//! [`cell_block`] reads and writes cells, [`compression`] their blocks; [`exception`] is the one mapping of errors; [`region_name`] and [`meta`] are what
//! clients locate regions by; `filter` evaluates filters; [`discovery`] and [`zookeeper`] are how clients find the cluster. On
//! top of it, [`serve`] is a port with connections and calls, behind which is a region server ([`data`], `regions`) or a master
//! ([`tables`]).
//!
//! Invariants:
//! - Bytes from outside never panic and never set the size of an allocation: each length is compared with the bytes that
//!   have arrived, or with a named limit.
//! - Nothing that is not understood is ignored. A call that asks for more than this crate can do is refused.
//! - Protobuf messages stay at the border: [`proto`] holds HBase's messages only, none of Terrane's.

pub mod answer;
pub mod cell_block;
pub mod compression;
pub mod connection;
pub mod data;
pub mod discovery;
pub mod exception;
mod filter;
pub mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod limits;
pub mod load;
pub mod meta;
pub mod name_pattern;
pub mod place;
pub mod region_name;
mod regions;
mod results;
pub mod serve;
pub mod tables;
pub mod time_range;
pub mod zookeeper;

/// The name of HBase's protocol in the endpoints that processes report.
pub const PROTOCOL: &str = "hbase";

/// HBase's messages, generated from `proto/`.
pub mod proto {
    #![allow(missing_docs, clippy::all, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/hbase.pb.rs"));
}
