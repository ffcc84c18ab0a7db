//! What a fault acts on: the cluster of one run, with its disks and its table.

use super::disk::StallingDisk;
use crate::faults::cluster::Cluster;

/// One run of a fault.
pub struct Scene {
    pub cluster: Cluster,
    /// A disk for each server, if the fault needs them.
    pub disks: Vec<StallingDisk>,
    pub table: String,
    pub rows_per_region: u64,
    /// The number of the run, from 1.
    pub run: u32,
    /// The server that led the most groups before the fault.
    pub busiest: usize,
}
