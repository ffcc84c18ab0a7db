//! What each limit bounds, and what happens beyond it. The numbers are those of the constants.

use super::{data, filter, hbase};

/// A group of limits with a heading of its own.
pub struct Section {
    pub title: &'static str,
    /// A sentence or two above the table.
    pub about: &'static str,
    pub limits: &'static [Limit],
}

/// One limit.
pub struct Limit {
    /// Its constant, with the module that names its file: a test compares it with the constants of the files.
    #[cfg(test)]
    pub constant: &'static str,
    pub value: Value,
    /// What it bounds.
    pub what: &'static str,
    /// The answer to what exceeds it.
    pub beyond: &'static str,
}

/// A limit's value with its unit.
#[derive(Clone, Copy)]
pub enum Value {
    Bytes(u64),
    Count(u64),
    Seconds(u64),
}

macro_rules! limit {
    ($file:ident::$constant:ident, Seconds, $what:literal, $beyond:literal) => {
        Limit {
            #[cfg(test)]
            constant: concat!(stringify!($file), "::", stringify!($constant)),
            value: Value::Seconds($file::$constant.as_secs()),
            what: $what,
            beyond: $beyond,
        }
    };
    ($file:ident::$constant:ident, $unit:ident, $what:literal, $beyond:literal) => {
        Limit {
            #[cfg(test)]
            constant: concat!(stringify!($file), "::", stringify!($constant)),
            value: Value::$unit($file::$constant as u64),
            what: $what,
            beyond: $beyond,
        }
    };
}

/// All limits, as the page shows them.
pub const SECTIONS: &[Section] = &[
    Section {
        title: "Rows and cells",
        about: "The constants are in `types/src/limits.rs`.",
        limits: &[
            limit!(
                data::ROW_BYTES_MAX,
                Bytes,
                "row key; boundary of a region (both have at least 1 byte)",
                "`Invalid`"
            ),
            limit!(data::QUALIFIER_BYTES_MAX, Bytes, "qualifier, which may be empty", "`Invalid`"),
            limit!(data::TAGS_BYTES_MAX, Bytes, "tags of a cell", "`Invalid`"),
            limit!(data::VALUE_BYTES_MAX, Bytes, "value of a cell", "`Invalid`"),
            limit!(data::TIMESTAMP_MAX, Count, "timestamp of a cell, in milliseconds", "`Invalid`"),
        ],
    },
    Section {
        title: "Requests",
        about: "Batches of independent rows and long lists of gets may be larger in the clients, which divide them.",
        limits: &[
            limit!(data::ROW_MUTATION_BYTES_MAX, Bytes, "cells of the mutation of one row", "`Invalid`"),
            limit!(
                data::READ_MODIFY_WRITES_MAX,
                Count,
                "increments and appends in the mutation of one row",
                "`Invalid`"
            ),
            limit!(
                data::RETURNED_BYTES_MAX,
                Bytes,
                "cells that the mutation of one row returns",
                "`Invalid`; nothing is applied"
            ),
            limit!(data::BATCH_BYTES_MAX, Bytes, "one write request, and so one atomic batch", "`Invalid`"),
            limit!(data::BATCH_ROWS_MAX, Count, "rows of one write request", "`Invalid`"),
            limit!(data::CONDITION_DEPTH_MAX, Count, "nesting of a condition", "`Invalid`"),
            limit!(data::CONDITION_TESTS_MAX, Count, "tests of a condition", "`Invalid`"),
            limit!(data::CONDITION_VALUES_MAX, Count, "values in all tests of a condition", "`Invalid`"),
            limit!(data::GET_ROWS_MAX, Count, "rows of one get request", "`Invalid`"),
            limit!(
                data::READ_BYTES_MAX,
                Bytes,
                "answer to a get; one row that passes a filter that tests cells",
                "`Invalid`; a scan without such a filter sends larger rows in parts"
            ),
            limit!(data::SCAN_BLOCK_BYTES_MAX, Bytes, "block of a scan", "the block has this size"),
            limit!(
                data::SESSION_BATCH_REQUESTS_MAX,
                Count,
                "requests in one message of a session",
                "the session ends with `Invalid`"
            ),
            limit!(
                data::MESSAGE_BYTES_MAX,
                Bytes,
                "gRPC message in both directions (many libraries default to 4 MiB: raise `grpc.max_receive_message_length`)",
                "`RESOURCE_EXHAUSTED`"
            ),
        ],
    },
    Section {
        title: "Tables and namespaces",
        about: "The ranges of attributes are in [attributes.md](attributes.md).",
        limits: &[
            limit!(
                data::NAME_CHARS_MAX,
                Count,
                "characters of the name of a table, namespace, family or key part, of `A-Z a-z 0-9 _ . -`",
                "`Invalid`"
            ),
            limit!(
                data::FREE_FAMILY_BYTES_MAX,
                Bytes,
                "name of a family that HBase allows and a table could not have",
                "`Invalid`"
            ),
            limit!(data::FAMILIES_MAX, Count, "families of a table", "`Invalid`"),
            limit!(data::KEY_PARTS_MAX, Count, "parts of a key declaration", "`Invalid`"),
            limit!(data::COLUMN_TYPES_MAX, Count, "columns of a family whose types are declared", "`Invalid`"),
            limit!(
                data::METADATA_ENTRIES_MAX,
                Count,
                "entries of free metadata of a table, and of a family",
                "`Invalid`"
            ),
            limit!(data::METADATA_VALUE_BYTES_MAX, Bytes, "value of free metadata", "`Invalid`"),
            limit!(data::SCHEMA_BYTES_MAX, Bytes, "a table's schema with its metadata", "`Invalid`"),
            limit!(data::SPLIT_POINTS_MAX, Count, "split points of a new table", "`Invalid`"),
            limit!(data::SPLIT_POINTS_BYTES_MAX, Bytes, "all split points of a new table together", "`Invalid`"),
            limit!(data::NAMESPACES_MAX, Count, "namespaces of a cluster", "`Invalid`"),
            limit!(data::NAMESPACE_PROPERTIES_BYTES_MAX, Bytes, "properties of a namespace", "`Invalid`"),
            limit!(data::ALL_PROPERTIES_BYTES_MAX, Bytes, "properties of all namespaces together", "`Invalid`"),
        ],
    },
    Section {
        title: "Filters",
        about: "Of the [filter language](filters.md); the constants are in `filter/src/limits.rs`.",
        limits: &[
            limit!(filter::TEXT_BYTES_MAX, Bytes, "text of a filter", "`Invalid`"),
            limit!(filter::DEPTH_MAX, Count, "nesting", "`Invalid`"),
            limit!(filter::NODES_MAX, Count, "tests and connectives", "`Invalid`"),
            limit!(filter::ENTRIES_MAX, Count, "entries in all lists together", "`Invalid`"),
            limit!(filter::PATTERNS_MAX, Count, "regular expressions", "`Invalid`"),
            limit!(filter::PATTERN_BYTES_MAX, Bytes, "text of a regular expression", "`Invalid`"),
            limit!(filter::PATTERN_SIZE_MAX, Bytes, "a regular expression once compiled", "`Invalid`"),
        ],
    },
    Section {
        title: "HBase's clients",
        about: "Of the ports for [HBase's own clients](hbase.md), beside those above; the constants are in `hbase/src/limits.rs`. \
                What the connections of all ports hold together is in [bounds](design/bounds.md#the-network).",
        limits: &[
            limit!(
                hbase::CONNECTIONS_MAX,
                Count,
                "connections of a port",
                "the new one gets the place of the idlest without calls, which is closed"
            ),
            limit!(
                hbase::CALLS_MAX,
                Count,
                "calls of a connection whose answers have not left",
                "the connection is not read"
            ),
            limit!(hbase::FRAME_BYTES_MAX, Bytes, "one call", "`RequestTooBigException`; other calls go on"),
            limit!(
                hbase::CALL_BYTES_MAX,
                Bytes,
                "calls of a port that have not arrived whole; those that have and are not answered",
                "from 3/4 on, calls over 256 KiB wait, and the connections of those that hardly arrive are closed; \
                 `CallQueueTooBigException`"
            ),
            limit!(
                hbase::BLOCK_BYTES_MAX,
                Bytes,
                "a cell block without its compression; those of a port whose calls run",
                "`RequestTooBigException`; `CallQueueTooBigException`"
            ),
            limit!(
                hbase::SCANNERS_MAX,
                Count,
                "scanners of a connection, each for the lease between calls (`hbase-scanner-lease`)",
                "`RegionTooBusyException`"
            ),
            limit!(
                hbase::SCANNERS_BYTES_MAX,
                Bytes,
                "memory of the scanners of a server, of which each takes 1 KiB and its description",
                "`RegionTooBusyException`"
            ),
            limit!(hbase::SCAN_ANSWER_BYTES_MAX, Bytes, "rows in one answer to a scan", "the client asks for more"),
            limit!(
                hbase::BATCH_REQUESTS_MAX,
                Count,
                "reads and writes that a batch has under way, with as many bytes of writes as one write request",
                "the rest follows"
            ),
            limit!(hbase::READ_ROWS_MAX, Count, "gets of a batch that become one read", "the rest follows"),
            limit!(
                hbase::BATCH_ANSWER_BYTES_MAX,
                Bytes,
                "cells in one answer to a batch, beside what was under way then",
                "`RetryImmediatelyException` for the rest"
            ),
            limit!(hbase::FILTER_BYTES_MAX, Bytes, "a filter", "`DoNotRetryIOException`"),
            limit!(hbase::FILTER_DEPTH_MAX, Count, "nesting of a filter", "`DoNotRetryIOException`"),
            limit!(hbase::FILTERS_MAX, Count, "filters within a filter", "`DoNotRetryIOException`"),
            limit!(
                hbase::FILTER_ENTRIES_MAX,
                Count,
                "ranges, keys, prefixes, qualifiers and timestamps of a filter",
                "`DoNotRetryIOException`"
            ),
            limit!(hbase::PATTERNS_MAX, Count, "regular expressions of a filter", "`DoNotRetryIOException`"),
            limit!(hbase::PATTERN_BYTES_MAX, Bytes, "text of a regular expression", "`DoNotRetryIOException`"),
            limit!(hbase::PATTERN_SIZE_MAX, Bytes, "a regular expression once compiled", "`DoNotRetryIOException`"),
            limit!(
                hbase::PATTERN_STEPS_MAX,
                Count,
                "steps back in one search for a regular expression that takes more than linear time",
                "`DoNotRetryIOException`"
            ),
            limit!(
                hbase::PATTERN_TEXT_BYTES_MAX,
                Bytes,
                "text in which such an expression is searched for",
                "`DoNotRetryIOException`"
            ),
            limit!(
                hbase::DECIMAL_BYTES_MAX,
                Bytes,
                "number that a `BigDecimalComparator` reads",
                "`DoNotRetryIOException`"
            ),
            limit!(
                hbase::JUDGED_BYTES_MAX,
                Bytes,
                "cells of a row that the filter of a condition judges",
                "`DoNotRetryIOException`"
            ),
            limit!(
                hbase::PROCEDURES_MAX,
                Count,
                "changes of tables whose outcome is remembered",
                "the oldest outcome is forgotten; `RegionTooBusyException` if all are unfinished"
            ),
            limit!(
                hbase::SESSIONS_MAX,
                Count,
                "sessions of the ZooKeeper port",
                "the new one gets the place of the idlest"
            ),
            limit!(
                hbase::PACKETS_BYTES_MAX,
                Bytes,
                "packets to that port that have not arrived whole",
                "the connection is closed"
            ),
            limit!(hbase::WATCHES_MAX, Count, "watches of a session", "the watch is not kept"),
            limit!(hbase::SILENCE_MAX, Seconds, "silence of a session", "it is closed"),
        ],
    },
];
