//! The parts of the load generator that need no cluster: what to ask for, and what was measured.

pub mod gaps;
pub mod stats;
pub mod workload;
