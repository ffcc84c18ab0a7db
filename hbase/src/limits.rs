//! The limits of the ports for HBase's clients, which `docs/limits.md` lists.
//!
//! They come on top of those of the data path (`terrane_types::limits`) and bound what one client can make a process hold. `xtask`
//! compiles this file to render the page, so it holds plain constants and imports nothing but time.

use std::time::Duration;

/// Most connections of a port.
pub const CONNECTIONS_MAX: u64 = 1_024;
/// Most calls of one connection whose answers have not left.
pub const CALLS_MAX: usize = 256;
/// Most bytes of a call, as HBase sets it.
pub const FRAME_BYTES_MAX: usize = 256 << 20;
/// Most bytes of a port's calls that have not arrived whole; and of those that have, until they are answered.
pub const CALL_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of a decompressed cell block: as many as a call may have without compression.
pub const BLOCK_BYTES_MAX: usize = FRAME_BYTES_MAX;

/// Most open scanners of a connection.
pub const SCANNERS_MAX: usize = 1_024;
/// Most memory that the scanners of a server take.
pub const SCANNERS_BYTES_MAX: usize = 64 << 20;
/// What a scanner takes beside its description.
pub const SCANNER_BYTES: usize = 1 << 10;
/// Most bytes of rows in one answer to a scan, whatever the client allows.
pub const SCAN_ANSWER_BYTES_MAX: usize = 8 << 20;

/// Most requests that a batch has under way: what they read or write is in memory until they end.
pub const BATCH_REQUESTS_MAX: usize = 128;
/// Most gets of a batch that become one read. It runs without a pause once it has begun.
pub const READ_ROWS_MAX: usize = 64;
/// Bytes of cells in one answer to a batch, after which the client asks for the rest again.
pub const BATCH_ANSWER_BYTES_MAX: usize = 64 << 20;

/// Most bytes of a filter, with everything within it.
pub const FILTER_BYTES_MAX: usize = 1 << 20;
/// How deep filters may be nested.
pub const FILTER_DEPTH_MAX: usize = 16;
/// Most filters in one filter, lists and wrappers included.
pub const FILTERS_MAX: usize = 1_024;
/// Most ranges, fuzzy keys, prefixes, qualifiers and timestamps in all filters of one filter.
pub const FILTER_ENTRIES_MAX: usize = 16_384;
/// Most regular expressions in one filter.
pub const PATTERNS_MAX: usize = 16;
/// Longest regular expression in bytes of its text.
pub const PATTERN_BYTES_MAX: usize = 4_096;
/// Largest regular expression once compiled.
pub const PATTERN_SIZE_MAX: usize = 512 << 10;
/// Most steps back of a search for a regular expression that cannot be run in linear time.
pub const PATTERN_STEPS_MAX: usize = 100_000;
/// Most bytes in which such an expression is searched for.
pub const PATTERN_TEXT_BYTES_MAX: usize = 16 << 10;
/// Most bytes of a number that a decimal comparator reads.
pub const DECIMAL_BYTES_MAX: usize = 1_024;
/// Most bytes of cells that the filter of a condition judges. The leader of a group judges one row after another, and the writes
/// of all its regions wait meanwhile: that is also why no regular expression of it may take more than linear time.
pub const JUDGED_BYTES_MAX: usize = 4 << 20;

/// Changes of tables whose outcome is remembered.
pub const PROCEDURES_MAX: usize = 1_024;

/// Most sessions of a port that looks like a ZooKeeper.
pub const SESSIONS_MAX: u64 = 1_024;
/// Most bytes of packets to that port that have not arrived whole.
pub const PACKETS_BYTES_MAX: u64 = 16 << 20;
/// Most watches of a session: one per kind and node that clients know, and some for nodes that do not exist here.
pub const WATCHES_MAX: usize = 64;
/// A session that says nothing for so long is over: clients ping several times within it.
pub const SILENCE_MAX: Duration = Duration::from_secs(90);
