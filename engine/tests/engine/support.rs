//! What the tests share.
//!
//! - `model`: the contents of a region as a list of everything ever applied, with a slow and obvious way to read it.
//! - `world`: an engine and its model side by side, driven by a log as the raft crate drives it.
//! - `home`: where that engine is, and its settings.
//! - `steps`: random steps over a world, from `dice`.
//! - `scanning`, `skipping`: scans compared with the model.
//! - `fixture`: one region and single puts, for tests of one claim.
//! - `amount`: how much a test does.

pub mod amount;
pub mod dice;
pub mod fixture;
pub mod home;
pub mod model;
pub mod scanning;
pub mod skipping;
pub mod steps;
pub mod world;
