//! Every backend against a plain model, against crashes, and against itself under concurrency.
//!
//! - `model`: what a region holds, told as the list of everything ever applied, with a slow and obvious way to read it.
//! - `world`: an engine and its model side by side, driven by a log as the raft room would drive it.
//! - `random`: random steps; a failure prints its seed, and `TERRANE_SEED=n` runs that one alone.

#[path = "conformance/dice.rs"]
mod dice;
#[path = "conformance/model.rs"]
mod model;
#[path = "conformance/random.rs"]
mod random;
#[path = "conformance/world.rs"]
mod world;
