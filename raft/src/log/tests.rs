//! Crash tests of the log directory.
