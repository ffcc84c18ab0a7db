//! The limits of the whole system, checked by the client and again at the server's edge.
//!
//! They are constants rather than settings: if two processes disagree about a limit, one accepts what the other
//! refuses. Each limit states what it protects. `docs/limits.md` lists them with the answer beyond each: `xtask` compiles this
//! file to render the page, so it holds plain constants and imports nothing.

/// Longest row key in bytes; the packed format keeps row lengths in 16 bits and HBase's own limit is the same.
pub const ROW_BYTES_MAX: usize = 32_767;

/// Longest qualifier in bytes.
pub const QUALIFIER_BYTES_MAX: usize = 32_767;

/// Longest tag section of a cell in bytes.
pub const TAGS_BYTES_MAX: usize = 32_767;

/// Longest value in bytes (10 MiB).
pub const VALUE_BYTES_MAX: usize = 10 << 20;

/// Most bytes of packed cells in the mutation of one row (16 MiB): a row is one log operation and is never divided.
pub const ROW_MUTATION_BYTES_MAX: usize = 16 << 20;

/// Most bytes in one batch (32 MiB); clients divide larger ones between rows.
pub const BATCH_BYTES_MAX: usize = 32 << 20;

/// The largest message either side of any gRPC service takes (40 MiB): a whole batch and its headers.
pub const MESSAGE_BYTES_MAX: usize = 40 << 20;

/// Most rows in one write request, and so in one atomic batch: all writes of the group wait while they are processed.
/// Clients divide larger batches of independent rows.
pub const BATCH_ROWS_MAX: usize = 16_384;

/// Most rows in one get request: the caller's next request waits for all of them. Clients divide longer lists.
pub const GET_ROWS_MAX: usize = 16_384;

/// Most bytes of cells in the answer to a get, and of one row that passes a filter that tests cells (32 MiB): they are held in
/// memory as a whole, and leave in one message.
pub const READ_BYTES_MAX: usize = 32 << 20;

/// Bytes of a block of a scan, unless the caller chooses another size (256 KiB).
pub const SCAN_BLOCK_BYTES_DEFAULT: usize = 256 << 10;

/// Most bytes of a block of a scan (4 MiB); a row that is larger continues in the next block.
pub const SCAN_BLOCK_BYTES_MAX: usize = 4 << 20;

/// Most requests in one message of a session.
pub const SESSION_BATCH_REQUESTS_MAX: usize = 16_384;

/// Bytes at which a region splits, unless the table sets another size (256 MiB).
pub const REGION_SIZE_DEFAULT: u64 = 256 << 20;

/// The smallest region size a table may set (16 KiB; sizes this small are for tests and demos).
pub const REGION_SIZE_MIN: u64 = 16 << 10;

/// Bytes of memtable at which a region flushes, unless the table sets another size (64 MiB).
pub const FLUSH_SIZE_DEFAULT: u64 = 64 << 20;

/// The smallest flush size a table may set (4 KiB): below it every put would become a file.
pub const FLUSH_SIZE_MIN: u64 = 4 << 10;

/// Bytes of cells at which a block of a file ends, unless the family sets another size (16 KiB).
pub const BLOCK_SIZE_DEFAULT: u32 = 16 << 10;

/// The smallest block size a family may set (1 KiB): below it the index of a file outgrows its cells.
pub const BLOCK_SIZE_MIN: u32 = 1 << 10;

/// The largest block size a family may set (1 MiB): every get reads and decompresses a whole block.
pub const BLOCK_SIZE_MAX: u32 = 1 << 20;

/// Longest name of a table, namespace, family or key part.
pub const NAME_CHARS_MAX: usize = 128;

/// Longest name of a family that a table could not have, as in HBase.
pub const FREE_FAMILY_BYTES_MAX: usize = 127;

/// The largest timestamp a cell may carry; the next one, `cell::LATEST`, tells the leader to fill it in.
pub const TIMESTAMP_MAX: i64 = i64::MAX - 1;

/// Most column families in one table: each is a store with its own files in every region.
pub const FAMILIES_MAX: usize = 64;

/// Most versions a family may keep or a reader may request.
pub const VERSIONS_MAX: u32 = i32::MAX as u32;

/// Most namespaces in one cluster: each is a line in every checkpoint of the catalog.
pub const NAMESPACES_MAX: usize = 10_000;

/// Most bytes of names and values of a namespace's properties.
pub const NAMESPACE_PROPERTIES_BYTES_MAX: usize = 64 << 10;

/// The same of all namespaces together: all of them are in every checkpoint of the catalog.
pub const ALL_PROPERTIES_BYTES_MAX: usize = 16 << 20;

/// Columns of one family whose types can be declared.
pub const COLUMN_TYPES_MAX: usize = 1_024;
/// Most entries of free metadata on one table, and on one family.
pub const METADATA_ENTRIES_MAX: usize = 64;

/// Longest value of free metadata in bytes.
pub const METADATA_VALUE_BYTES_MAX: usize = 4_096;

/// Most bytes that a table's schema takes in logs and manifests (1 MiB): each region of the table keeps it.
pub const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// Most split points of a new table; more regions result from splits.
pub const SPLIT_POINTS_MAX: usize = 10_000;

/// Most bytes in all split points of a new table (8 MiB): its regions are sent to their groups in one message, with
/// each boundary twice.
pub const SPLIT_POINTS_BYTES_MAX: usize = 8 << 20;

/// How deep the ands and ors of a condition may be nested: all writes of the group wait while it is evaluated.
pub const CONDITION_DEPTH_MAX: usize = 8;

/// Most tests of columns in one condition.
pub const CONDITION_TESTS_MAX: usize = 64;

/// Most values in all tests of one condition.
pub const CONDITION_VALUES_MAX: usize = 256;

/// Most increments and appends in the mutation of one row.
pub const READ_MODIFY_WRITES_MAX: usize = 1_024;

/// Most bytes of cells that the mutation of one row returns (1 MiB): they go through the log.
pub const RETURNED_BYTES_MAX: usize = 1 << 20;

/// Most parts in a key declaration.
pub const KEY_PARTS_MAX: usize = 32;

// One cell with the largest value and longest qualifier fits a row's mutation, and one such row fits a batch.
const _: () = assert!(VALUE_BYTES_MAX + QUALIFIER_BYTES_MAX + TAGS_BYTES_MAX + 1024 < ROW_MUTATION_BYTES_MAX);
const _: () = assert!(ROW_MUTATION_BYTES_MAX + ROW_BYTES_MAX + 1024 < BATCH_BYTES_MAX);
const _: () = assert!(BATCH_BYTES_MAX < MESSAGE_BYTES_MAX && READ_BYTES_MAX < MESSAGE_BYTES_MAX);
// Lengths of rows, qualifiers, tags and names fit their fields in the packed format.
const _: () = assert!(ROW_BYTES_MAX <= u16::MAX as usize && QUALIFIER_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(TAGS_BYTES_MAX <= u16::MAX as usize && NAME_CHARS_MAX <= u8::MAX as usize);
