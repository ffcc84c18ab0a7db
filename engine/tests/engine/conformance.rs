//! Every backend against a plain model, across restarts, and against itself under concurrency.
//!
//! - `random`: random steps; a failure prints its seed, and `TERRANE_SEED=n` runs that seed alone.
//! - the others: one claim per test.

mod history;
mod ingest;
mod points;
mod racing;
mod random;
mod reads;
mod restart;
mod wide;
