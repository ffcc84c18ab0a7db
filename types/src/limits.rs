//! The limits that hold everywhere, checked at the client and again at the server's edge.
//!
//! They are constants rather than settings: a limit that two processes disagree about is a request accepted by one and
//! refused by the other. What a limit protects is said beside it.

/// Longest row key in bytes; the packed format keeps row lengths in 16 bits and HBase's own limit is the same.
pub const ROW_BYTES_MAX: usize = 32_767;

/// Longest qualifier in bytes.
pub const QUALIFIER_BYTES_MAX: usize = 32_767;

/// Longest tag section of a cell in bytes.
pub const TAGS_BYTES_MAX: usize = 32_767;

/// Longest value in bytes (10 MiB).
pub const VALUE_BYTES_MAX: usize = 10 << 20;

/// Most bytes of packed cells in the mutation of one row (16 MiB): a row is one log operation, never cut.
pub const ROW_MUTATION_BYTES_MAX: usize = 16 << 20;

/// Most bytes in one batch (32 MiB), cut between rows where need be.
pub const BATCH_BYTES_MAX: usize = 32 << 20;

/// Most rows in one request that writes, and so in one atomic batch: each takes its turn where a whole group's writes
/// wait. Batches of rows that are independent are cut by the client.
pub const BATCH_ROWS_MAX: usize = 16_384;

/// Most rows in one request that reads by key: each is looked up before the next request of its caller. Clients cut
/// longer lists.
pub const GET_ROWS_MAX: usize = 16_384;

/// Most requests in one message of a session.
pub const SESSION_BATCH_REQUESTS_MAX: usize = 16_384;

/// Bytes at which a region splits, unless the table says otherwise (256 MiB).
pub const REGION_SIZE_DEFAULT: u64 = 256 << 20;

/// The smallest region size a table may ask for (16 KiB; sizes this small are for tests and demos).
pub const REGION_SIZE_MIN: u64 = 16 << 10;

/// Bytes of memtable at which a region flushes, unless the table says otherwise (64 MiB).
pub const FLUSH_SIZE_DEFAULT: u64 = 64 << 20;

/// The smallest flush size a table may ask for (4 KiB): below it every put would become a file.
pub const FLUSH_SIZE_MIN: u64 = 4 << 10;

/// Bytes of cells at which a block of a file ends, unless the family says otherwise (16 KiB).
pub const BLOCK_SIZE_DEFAULT: u32 = 16 << 10;

/// The smallest block size a family may ask for (1 KiB): below it the index of a file outgrows its cells.
pub const BLOCK_SIZE_MIN: u32 = 1 << 10;

/// The largest block size a family may ask for (1 MiB): every get reads and decompresses a whole block.
pub const BLOCK_SIZE_MAX: u32 = 1 << 20;

/// Longest name of a table, namespace, family or key part.
pub const NAME_CHARS_MAX: usize = 128;

/// The largest timestamp a cell may carry; the one above it, [`crate::cell::LATEST`], asks the leader to fill it in.
pub const TIMESTAMP_MAX: i64 = i64::MAX - 1;

/// Most column families in one table: each is a store with files of its own in every region.
pub const FAMILIES_MAX: usize = 64;

/// Most versions a family may keep or a reader may ask for.
pub const VERSIONS_MAX: u32 = i32::MAX as u32;

/// Most namespaces in one cluster: each is a line in every checkpoint of the catalog.
pub const NAMESPACES_MAX: usize = 10_000;

/// Most entries of free metadata on one table, and on one family.
pub const METADATA_ENTRIES_MAX: usize = 64;

/// Longest value of free metadata in bytes.
pub const METADATA_VALUE_BYTES_MAX: usize = 4_096;

/// Most bytes that a table's schema takes in logs and manifests (1 MiB): each region of the table keeps it.
pub const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// Most regions beyond the first that a table may begin with; more come by splitting.
pub const SPLIT_POINTS_MAX: usize = 10_000;

/// Most bytes in all split points of a new table (8 MiB): its regions travel to their groups in one message, each
/// boundary twice.
pub const SPLIT_POINTS_BYTES_MAX: usize = 8 << 20;

/// How deep the ands and ors of a condition may be nested: it is evaluated where a whole group's writes wait.
pub const CONDITION_DEPTH_MAX: usize = 8;

/// Most tests of columns in one condition.
pub const CONDITION_TESTS_MAX: usize = 64;

/// Most values in all tests of one condition.
pub const CONDITION_VALUES_MAX: usize = 256;

/// Most increments and appends in the mutation of one row.
pub const READ_MODIFY_WRITES_MAX: usize = 1_024;

/// Most bytes of cells that the mutation of one row is answered with (1 MiB): they go through the log.
pub const RETURNED_BYTES_MAX: usize = 1 << 20;

/// Most parts in a key declaration.
pub const KEY_PARTS_MAX: usize = 32;

// A row's mutation must hold one cell of the largest value with the longest qualifier, and a batch one such row.
const _: () = assert!(VALUE_BYTES_MAX + QUALIFIER_BYTES_MAX + TAGS_BYTES_MAX + 1024 < ROW_MUTATION_BYTES_MAX);
const _: () = assert!(ROW_MUTATION_BYTES_MAX + ROW_BYTES_MAX + 1024 < BATCH_BYTES_MAX);
// Lengths of rows, qualifiers, tags and names must fit the widths that the packed format gives them.
const _: () = assert!(ROW_BYTES_MAX <= u16::MAX as usize && QUALIFIER_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(TAGS_BYTES_MAX <= u16::MAX as usize && NAME_CHARS_MAX <= u8::MAX as usize);
