//! Limits of a filter. They bound its cost before any row is read.

/// Longest text of a filter in bytes.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// How deep expressions may be nested.
pub const DEPTH_MAX: usize = 16;
/// Most tests and connectives in one filter.
pub const NODES_MAX: usize = 256;
/// Most entries (ranges, fuzzy keys, timestamps, values) in all lists of one filter together.
pub const ENTRIES_MAX: usize = 2_048;
/// Most regular expressions in one filter.
pub const PATTERNS_MAX: usize = 16;
/// Longest regular expression in bytes of its text.
pub const PATTERN_BYTES_MAX: usize = 4_096;
/// Largest regular expression once compiled.
pub const PATTERN_SIZE_MAX: usize = 512 << 10;
