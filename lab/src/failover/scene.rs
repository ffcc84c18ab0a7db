//! What a fault acts on: the cluster of one run, with its disks and its table.

use anyhow::Context;
use terrane_lab::Cluster;

use super::disk::StallingDisk;
use super::network::Network;

/// One run of a fault.
pub struct Scene {
    pub cluster: Cluster,
    /// A disk for each server, if the fault needs them.
    pub disks: Vec<StallingDisk>,
    /// The servers' own network, if the fault needs one. After the cluster, so that it is removed after the processes end.
    pub network: Option<Network>,
    pub table: String,
    pub rows_per_region: u64,
    /// The number of the run, from 1.
    pub run: u32,
    /// The server that led the most groups before the fault.
    pub busiest: usize,
}

impl Scene {
    pub fn network(&self) -> anyhow::Result<&Network> {
        self.network.as_ref().context("the fault needs a network")
    }
}
