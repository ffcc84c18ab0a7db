//! The shared parts of whole-cluster tests: a cluster in this process, on real sockets, files and clocks, and waiting for
//! conditions. The checkers of what clients observe are in `terrane_oracle`; the simulator uses them as well, with
//! the same servers and client in simulated time.

pub mod cluster;
pub mod eventually;
pub mod log_lines;
