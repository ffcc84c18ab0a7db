//! Nothing: the examples beside this file are the crate.
