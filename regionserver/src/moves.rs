//! Moves of regions between groups: the server's part in both.
//!
//! - [`departures`]: the moves of regions that leave; `driver`: the leader of their group drives each.
//! - `receiving`: the members of the other group fetch its files into the [staging room](crate::staging), and adopt it or refuse it.
//! - [`peers`]: the calls between the two.
//!
//! # Steps
//! 1. The leader copies the region's files to the members of the other group, in rounds, until little is left. Requests are
//!    answered meanwhile.
//! 2. It freezes the region by an entry in its group's log, flushes the rest, and has that copied.
//! 3. Once a majority has all files, the other group adopts the region by an entry in its log: **the commit point**.
//! 4. The first group drops the region by another entry, once a majority has taken it in, and keeps a note of where it is.
//!
//! # Invariants
//! - Nothing unfreezes by time. A leader that finds a frozen region, because it was elected or restarted meanwhile, has the
//!   other group refuse the move. Only if that stands is the region unfrozen; if the region was adopted before, step 4 follows.
//! - What is forgotten is unknown, not refused: a group neither adopts nor refuses a move that is older than those which it
//!   remembers, and the leader finds out by rows and by the master's map (`driver`).
//! - What a region holds when it is frozen is what the other group gets: cells, window, sequence number, schema. Its epoch
//!   rises, and stamps go on from the higher one of both groups.
//! - Fetched files stay as long as the log has the adoption: a member that applies it later fetches them from another one.

pub mod departures;
mod driver;
pub mod peers;
mod receiving;
