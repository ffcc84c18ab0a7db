//! Bulk loads: sorted rows of one region become store files, which every replica of the region takes in by one entry.
//!
//! - [`runs`]: the leader builds files of the parts that a client sends;
//! - [`commit`]: the leader has the members fetch the files into the [staging room](crate::staging), and proposes the load.
//!
//! # Steps
//! 1. A client sends a run, the sorted rows of one region, in parts. The leader checks each row as it checks those of a write
//!    and adds its cells to one file per family.
//! 2. The client commits the run. The files are synced, and the members fetch, verify and sync them.
//! 3. Once a majority has them, the load goes through the group's log like a write, with its length and checksum per file.
//!    **The entry is the commit point**: every replica that applies it takes all files in, or finds that it must not.
//!
//! # Invariants
//! - A load is proposed only when a quorum has its files on disk. A replica that applies it without them fetches them first.
//! - A load has an operation number and is applied once. A run that is cut in two because its region was split keeps the
//!   numbers it had, so that a commit whose answer was lost is recognised in both halves.

pub mod commit;
pub mod runs;
